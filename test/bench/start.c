/*
 * What the preload adds to the start of a process that never touches a GPU: /bin/true with and without it, in turn.
 * Prints the medians, their difference and ratio. The goal is at most 0.3 ms.
 *   start [RUNS] LIBRARY
 */
#include "bench.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

static double run(char *const *environment)
{
    char name[] = "/bin/true";
    char *const argv[] = {name, NULL};
    double start = now_ns();
    pid_t pid;
    int status;

    if (posix_spawn(&pid, name, NULL, NULL, argv, environment) != 0 || waitpid(pid, &status, 0) != pid ||
        status != 0) {
        fprintf(stderr, "start: %s did not run\n", name);
        exit(1);
    }
    return (now_ns() - start) / 1e6;
}

int main(int argc, char **argv)
{
    int runs = argc > 2 ? atoi(argv[1]) : 1000;
    char preload[4096];
    char *const bare[] = {NULL};
    char *const with[] = {preload, NULL};
    double *a = calloc((size_t)runs, sizeof *a), *b = calloc((size_t)runs, sizeof *b), x, y;

    if (argc < 2 || runs < 1 || !a || !b) {
        fprintf(stderr, "usage: start [RUNS] LIBRARY\n");
        return 2;
    }
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", argv[argc - 1]);
    for (int i = 0; i < runs; i++) {
        a[i] = run(bare);
        b[i] = run(with);
    }
    x = median(a, (size_t)runs);
    y = median(b, (size_t)runs);
    printf("start of /bin/true, %d runs each in turn: %.3f ms without, %.3f ms with the preload: "
           "+%.3f ms, %.2fx\ngoal: at most 0.3 ms added to the start: %s\n",
           runs, x, y, y - x, y / x, y - x <= 0.3 ? "yes" : "NO");
    free(a);
    free(b);
    return 0;
}
