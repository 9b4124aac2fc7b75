/* zeroute doctor -- COMMAND: starts it under observe, looks at it while it holds memory, and ends it. */
#include "doctor/doctor.h"
#include "outside/outside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
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
    struct zr_look look;
    pid_t found = 0;
    char why[256];

    *most = 0;
    zr_outside_look(&look, ZR_LOOK_SEGMENTS);
    for (size_t i = 0; i < look.count; i++) {
        const struct zeroute_process *p = &look.process[i];
        if (!zr_run_owns(p, run) || p->state != ZEROUTE_LIVE || !p->pid)
            continue;
        struct zeroute_snapshot *s = zr_outside_snapshot(p, why, sizeof why);
        uint64_t held = s ? zeroute_value(s, "allocated_bytes.all.current", 0) : 0;
        if (s && (!found || held > *most)) {
            found = p->pid;
            *most = held;
        }
        zeroute_snapshot_free(s);
    }
    zr_look_free(&look);
    return found;
}

static void prepare_observed(const void *data) {
    (void)data;
    setenv("ZEROUTE_CONF", "preset:observe", 1);
    unsetenv("ZEROUTE_CONF_FILE");
}

/* Moves what was read of a process into `to`, which is freed before. */
static void take(struct zr_case *to, const struct zr_case *from) {
    zr_stack_free(&to->stack);
    *to = *from;
}

bool zr_doctor_trial(struct zr_case *c, struct zr_diagnosis *d, char **argv, double seconds, int *signal) {
    static struct zr_case look;
    struct zr_program program = {
        .argv = argv, .own_group = true, .out = STDERR_FILENO /* our page stays clean */, .prepare = prepare_observed};
    char run[ZR_RUN_NAME], library[1024];
    uint64_t most = 0, held, later;
    bool seen = false;

    if (!zr_preload_find("doctor", library, sizeof library) || !zr_preload_set(library))
        return false;
    zr_run_name(run, sizeof run);
    int error = zr_spawn(&program);
    unsetenv("LD_PRELOAD");
    if (error) {
        zr_complain("doctor", "cannot execute %s: %s", argv[0], strerror(error));
        return false;
    }
    double stop = now() + seconds;
    while (!zr_spawn_wait(&program, LOOK_EVERY_MS, -1) && !program.asked_to_end && now() < stop) {
        pid_t who = holder(run, &held);
        if (!who || (seen && held < most) || !zr_doctor_gather(&look, who))
            continue;
        if (holder(run, &later) == who && later >= held) { /* else it ends, and half of it was gone already */
            take(c, &look);
            zr_findings_free(&d->findings);
            zr_diagnose(c, d); /* while its libraries can be read below its own root */
            most = held;
            seen = true;
        } else {
            zr_stack_free(&look.stack);
        }
    }
    *signal = program.asked_to_end;
    zr_spawn_end(&program);
    if (!seen && !*signal)
        zr_complain("doctor", "%s used no Level Zero device within %.0f s, or ended before it could be looked at",
                    argv[0], seconds);
    return seen && !*signal;
}
