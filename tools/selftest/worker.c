/*
 * The process that is compared: `zeroute selftest-worker PROGRAM`, started by selftest with and without the preload.
 * Its lines are the answers; lines that begin with # are not compared: whether the preload is in the process, why
 * there is nothing to run on, and what a measurement found.
 */
#include "selftest/selftest.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name;
    bool (*run)(const struct zr_selftest_program *p, char *why, size_t size);
} programs[] = {
    {"cards", zr_selftest_probe}, {"calls", zr_calls_run},    {"sycl", zr_usm_run},
    {"cost", zr_selftest_cost},   {"free", zr_selftest_free}, {"beyond", zr_selftest_beyond},
};

static void say_preload(void) {
    char *maps = zr_read_whole("/proc/self/maps", NULL);

    printf("# preload %s\n", maps && strstr(maps, "/libzeroute.so") ? "yes" : "no");
    free(maps);
}

static bool take(struct zr_selftest_program *p, const char *name, const char *value) {
    if (strcmp(name, "--seed") == 0)
        p->seed = strtoull(value, NULL, 0);
    else if (strcmp(name, "--count") == 0)
        p->count = (unsigned)strtoul(value, NULL, 0);
    else if (strcmp(name, "--only") == 0)
        p->only = value;
    else if (strcmp(name, "--budget") == 0)
        p->budget = strtoull(value, NULL, 0);
    else if (strcmp(name, "--cards") == 0)
        p->cards = (unsigned)strtoul(value, NULL, 0);
    else
        return false;
    return true;
}

/* zeroute selftest-worker PROGRAM [--seed N] [--count N] [--only LIST] [--budget BYTES] [--cards N] */
int zr_cmd_selftest_worker(int argc, char **argv) {
    struct zr_selftest_program p = {.name = argc > 1 ? argv[1] : "", .seed = 1, .count = 300};
    char why[200] = "";

    for (int i = 2; i < argc; i += 2) {
        if (i + 1 == argc || !take(&p, argv[i], argv[i + 1]))
            p.name = "";
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        if (strcmp(p.name, programs[i].name) != 0)
            continue;
        /* A crash must not take the line along. */
        setvbuf(stdout, NULL, _IONBF, 0);
        say_preload();
        if (programs[i].run(&p, why, sizeof why))
            return ZR_EXIT_DONE;
        printf("# cannot %s\n", why);
        return ZR_EXIT_NO_VERDICT;
    }
    fprintf(stderr, "zeroute selftest-worker: it is a part of zeroute selftest: use that\n");
    return ZR_EXIT_ERROR;
}
