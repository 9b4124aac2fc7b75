/* zeroute doctor -- COMMAND: starts it under observe, looks at it while it holds memory, and ends it. */
#include "doctor/doctor.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_EVERY_MS = 50 };

static double now(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of the processes of this run that live, the one that holds most; 0: none has used a device yet. */
static pid_t holder(const char *run, uint64_t *most) {
    struct zeroute_list *list = zeroute_list_new();
    pid_t found = 0;
    char why[256];

    *most = 0;
    for (size_t i = 0; list && i < list->count; i++) {
        struct zeroute_process *p = &list->process[i];
        if (!zr_run_owns(p, run) || p->state != ZEROUTE_LIVE || !p->pid)
            continue;
        struct zeroute_snapshot *s = zeroute_snapshot_new(p, why, sizeof why);
        uint64_t held = s ? zeroute_value(s, "allocated_bytes.all.current", 0) : 0;
        if (s && (!found || held > *most)) {
            found = p->pid;
            *most = held;
        }
        zeroute_snapshot_free(s);
    }
    zeroute_list_free(list);
    return found;
}

static pid_t start(char **argv) {
    pid_t pid = fork();

    if (pid)
        return pid;
    setpgid(0, 0);
    setenv("ZEROUTE_CONF", "preset:observe", 1);
    dup2(STDERR_FILENO, STDOUT_FILENO); /* our page stays clean */
    execvp(argv[0], argv);
    zr_complain("doctor", "cannot execute %s: %s", argv[0], strerror(errno));
    _exit(ZR_EXIT_NOT_FOUND);
}

static void end(pid_t pid) {
    struct timespec tenth = {0, 100000000};

    kill(-pid, SIGTERM);
    for (int i = 0; i < 20 && waitpid(pid, NULL, WNOHANG) == 0; i++)
        nanosleep(&tenth, NULL);
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* Moves what was read of a process into `to`, which is freed before. */
static void take(struct zr_case *to, const struct zr_case *from) {
    zr_stack_free(&to->stack);
    *to = *from;
}

bool zr_doctor_trial(struct zr_case *c, struct zr_diagnosis *d, char **argv, double seconds) {
    static struct zr_case look;
    struct timespec pause = {0, LOOK_EVERY_MS * 1000000L};
    char run[ZR_RUN_NAME], library[1024];
    uint64_t most = 0, held;
    bool seen = false;
    int status = 0;

    if (!zr_preload_find("doctor", library, sizeof library) || !zr_preload_set(library))
        return false;
    zr_run_name(run, sizeof run);
    pid_t pid = start(argv);
    unsetenv("LD_PRELOAD");
    double stop = now() + seconds;
    while (pid > 0 && waitpid(pid, &status, WNOHANG) == 0) {
        pid_t who = holder(run, &held);
        if (who && (!seen || held >= most) && zr_doctor_gather(&look, who)) {
            take(c, &look);
            zr_findings_free(&d->findings);
            zr_diagnose(c, d); /* while its libraries can be read below its own root */
            most = held;
            seen = true;
        }
        if (now() > stop) {
            end(pid);
            break;
        }
        nanosleep(&pause, NULL);
    }
    if (!seen && pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == ZR_EXIT_NOT_FOUND)
        return false;
    if (!seen)
        zr_complain("doctor", "%s used no Level Zero device within %.0f s, or ended before it could be looked at",
                    argv[0], seconds);
    return seen;
}
