/*
 * What an event of a record costs: marks, which are appended as every event is, from so many frames deep. As a program
 * it prints ns per mark, the lowest of many turns; as a library it is called from Python.
 */
#include "bench.h"

#include <dlfcn.h>
#include <stdint.h>

enum { TURNS = 60, EACH = 2000 };

static double turn(void (*mark)(const char *)) {
    double start = now_ns();

    for (int i = 0; i < EACH; i++)
        mark("");
    return (now_ns() - start) / EACH;
}

static double measure(void (*mark)(const char *)) {
    double best = 1e9;

    for (int i = 0; i < TURNS; i++) {
        double ns = turn(mark);

        if (ns < best)
            best = ns;
    }
    return best;
}

double marks(int depth);

/* Not as a tail call. */
__attribute__((noinline)) double marks(int depth) {
    volatile double ns;

    if (depth > 0)
        ns = marks(depth - 1);
    else
        ns = measure((void (*)(const char *))(uintptr_t)dlsym(RTLD_DEFAULT, "zeroute_mark"));
    return ns;
}

int main(int argc, char **argv) {
    /* main and what starts it, turn and measure: five frames more */
    printf("%.1f\n", marks((argc > 1 ? atoi(argv[1]) : 20) - 6));
    return 0;
}
