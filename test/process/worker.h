/* Programs on the simulated GPU that wait to be told to go on, for suites that look at processes from outside. */
#ifndef TEST_PROCESS_WORKER_H
#define TEST_PROCESS_WORKER_H

#include "shell.h"

#include <unistd.h>

/* run_work with these arguments, under the preload; it has said that it is ready. */
struct worker {
    pid_t pid;
    int in, out;
};

static inline struct worker begin(const char *const *argv) {
    struct worker w;
    int in[2], from[2];
    char line[64] = "", library[PATH_MAX + 32], driver[PATH_MAX + 32], program[PATH_MAX + 32];
    snprintf(library, sizeof library, "%s/libzeroute.so", build);
    snprintf(driver, sizeof driver, "%s/libze_simgpu.so", build);
    snprintf(program, sizeof program, "%s/test/process/run_work", build);
    ck_assert_int_eq(pipe(in), 0);
    ck_assert_int_eq(pipe(from), 0);
    w.pid = fork();
    if (w.pid == 0) {
        dup2(in[0], 0);
        dup2(from[1], 1);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        setenv("LD_PRELOAD", library, 1);
        setenv("ZE_ENABLE_ALT_DRIVERS", driver, 1);
        execv(program, (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    close(in[0]);
    close(from[1]);
    w.in = in[1];
    w.out = from[0];
    for (size_t n = 0; n < sizeof line - 1 && !strchr(line, '\n'); n++)
        ck_assert_int_eq(read(w.out, line + n, 1), 1);
    ck_assert_int_eq(strncmp(line, "ready", 5), 0);
    return w;
}

/* One more line for a program that waits. */
static inline void go_on(struct worker *w) {
    ck_assert_int_eq(write(w->in, "\n", 1), 1);
}

/* Its wait status. */
static inline int finish(struct worker *w) {
    int status;
    close(w->in);
    ck_assert_int_eq(waitpid(w->pid, &status, 0), w->pid);
    close(w->out);
    return status;
}

#endif
