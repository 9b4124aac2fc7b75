/*
 * /bin/true with and without a preload, in turn. Prints the median us of both.
 *   start LIBRARY
 */
#include "bench.h"

#include <spawn.h>
#include <sys/wait.h>

enum { RUNS = 2000 };

static double run(char *const *environment) {
    char name[] = "/bin/true";
    char *const argv[] = {name, NULL};
    double start = now_ns();
    pid_t pid;
    int status;

    if (posix_spawn(&pid, name, NULL, NULL, argv, environment) != 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        fprintf(stderr, "start: %s did not run\n", name);
        exit(1);
    }
    return (now_ns() - start) / 1e3;
}

int main(int argc, char **argv) {
    static double bare[RUNS], with[RUNS];
    char preload[4096];
    char *const nothing[] = {NULL}, *const library[] = {preload, NULL};

    if (argc != 2)
        return 2;
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", argv[1]);
    for (int i = 0; i < RUNS; i++) {
        bare[i] = run(nothing);
        with[i] = run(library);
    }
    printf("%.0f %.0f\n", median(bare, RUNS), median(with, RUNS));
    return 0;
}
