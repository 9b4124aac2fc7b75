/*
 * Runs a program under the preload and reads what it counted. For Check suites, started from the top of the tree.
 */
#ifndef TEST_CHILD_H
#define TEST_CHILD_H

#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zeroute/reader.h>

struct child {
    int status;                 /* as waitpid has it */
    char out[16384];            /* stdout and stderr */
    struct zeroute_snapshot *s; /* NULL: it made no segment */
    uint64_t started;           /* then or a moment later, in ticks since boot */
};

static inline const char *build_path(const char *name) {
    static char *path[16];
    static unsigned turn;
    char *here = getcwd(NULL, 0);
    const char *build = getenv("B");
    char **p = &path[turn++ % 16];

    if (!build)
        build = "build";
    free(*p);
    ck_assert_int_gt(asprintf(p, "%s%s%s/%s", build[0] == '/' ? "" : here, build[0] == '/' ? "" : "/", build, name), 0);
    free(here);
    return *p;
}

/* The setting by which the loader finds the simulated GPU. */
static inline const char *sim_driver(void) {
    static char text[PATH_MAX + 32];

    snprintf(text, sizeof text, "ZE_ENABLE_ALT_DRIVERS=%s", build_path("libze_simgpu.so"));
    return text;
}

/* The library under test: ZEROUTE_TEST_LIBRARY names another build of it. */
static inline const char *library_path(void) {
    const char *other = getenv("ZEROUTE_TEST_LIBRARY");

    return other ? other : build_path("libzeroute.so");
}

/* Of this process, and not of one that had its number before: those that were killed leave theirs behind. */
static inline void child_read(struct child *c, int pid) {
    struct zeroute_list *list = zeroute_list_new();

    for (size_t i = 0; i < list->count; i++) {
        char why[256];

        if (list->process[i].pid_inside != pid || list->process[i].start_time < c->started)
            continue;
        c->s = zeroute_snapshot_new(&list->process[i], why, sizeof why);
        unlink(list->process[i].path);
    }
    zeroute_list_free(list);
}

/*
 * argv[0] is a program of build/test/process or a path. `settings` are NAME=VALUE, NULL at the end; LD_PRELOAD
 * is the library unless they say otherwise.
 */
static inline struct child *child_run(const char *const *settings, const char *const *argv) {
    struct child *c = calloc(1, sizeof *c);
    size_t used = 0;
    int pipes[2], pid;
    ssize_t n;
    struct timespec now;

    ck_assert_int_eq(pipe(pipes), 0);
    clock_gettime(CLOCK_BOOTTIME, &now);
    pid = fork();
    if (pid == 0) {
        char name[256];
        const char *path = argv[0];

        dup2(pipes[1], 1);
        dup2(pipes[1], 2);
        close(pipes[0]);
        close(pipes[1]);
        if (!strchr(path, '/')) {
            snprintf(name, sizeof name, "test/process/%.200s", path);
            path = build_path(name);
        }
        setenv("LD_PRELOAD", library_path(), 1);
        for (; settings && *settings; settings++)
            putenv(strdup(*settings));
        execv(path, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(pipes[1]);
    while (used < sizeof c->out - 1 && (n = read(pipes[0], c->out + used, sizeof c->out - 1 - used)) > 0)
        used += (size_t)n;
    close(pipes[0]);
    waitpid(pid, &c->status, 0);
    c->started = (uint64_t)(now.tv_sec * 100 + now.tv_nsec / 10000000);
    child_read(c, pid);
    return c;
}

/*
 * Of a name that the segment does not have, a misspelt one for example, nothing can be said. Only cards and callers
 * have theirs when there is something to count.
 */
static inline uint64_t child_count(const struct child *c, const char *format, ...) {
    char name[160];
    va_list list;

    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    ck_assert_msg(c->s != NULL, "no segment, and so no %s: %s", name, c->out);
    if (strncmp(name, "device.", 7) != 0 && strncmp(name, "callers.", 8) != 0)
        ck_assert_msg(zeroute_find(c->s, name) != NULL, "no field %s", name);
    return zeroute_value(c->s, name, 0);
}

/* The field has this value; where it has not, the message says which field, and both values. */
#define counts(c, name, wanted)                                                                                        \
    ck_assert_msg(child_count(c, name) == (wanted), "%s is %llu, not %llu", name,                                      \
                  (unsigned long long)child_count(c, name), (unsigned long long)(wanted))

static inline void child_free(struct child *c) {
    if (c->s)
        zeroute_snapshot_free(c->s);
    free(c);
}

#define child_ok(c)                                                                                                    \
    ck_assert_msg(WIFEXITED((c)->status) && WEXITSTATUS((c)->status) == 0, "status %#x: %s", (unsigned)(c)->status,    \
                  (c)->out)

#endif
