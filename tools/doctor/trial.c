/* zeroute doctor -- COMMAND: starts it under observe, looks at it while it holds memory, and ends it. */
#include "doctor/doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define AGAIN_SECONDS 0.5

/* The process of the view that holds most; NULL: none has used a device yet. */
static const struct zr_process_view *holder(const struct zr_view *m) {
    const struct zr_process_view *most = NULL;

    for (size_t i = 0; i < m->process_count; i++) {
        const struct zr_process_view *v = m->process[i];
        if (v->process.pid && (!most || v->allocated > most->allocated))
            most = v;
    }
    return most;
}

/* Device memory and its mirror. */
static uint64_t weight_of(const struct zr_process_view *v) {
    return v->allocated + (v->mirror == ZR_ABSENT ? 0 : v->mirror);
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

/* The diagnosis at the moment when the command held most. */
struct trial {
    struct zr_case *found;
    struct zr_diagnosis *diagnosis;
    uint64_t most;
    double at; /* when; 0: not yet */
};

/*
 * Looks at the process closely if it holds more than before, and from time to time if it holds as much: it may have
 * done something else meanwhile. What is gone when the look is over counts for nothing: then the process ends.
 */
static void look_closely(struct trial *t, struct zr_view *m) {
    static struct zr_case look;
    const struct zr_process_view *v = holder(m);

    if (!v || (t->at > 0 &&
               (weight_of(v) < t->most || (weight_of(v) == t->most && zr_clock_seconds() - t->at < AGAIN_SECONDS))))
        return;
    pid_t pid = v->process.pid;
    uint64_t held = v->allocated, weight = weight_of(v);
    if (!zr_doctor_gather(&look, pid))
        return;
    v = zr_view_sample(m) ? holder(m) : NULL;
    /* A process that ends loses its mirror before its segment says that it holds nothing any more. */
    if (!v || v->process.pid != pid || v->allocated < held || (t->at > 0 && weight_of(v) < weight)) {
        zr_stack_free(&look.stack);
        return;
    }
    take(t->found, &look);
    zr_findings_free(&t->diagnosis->findings);
    zr_diagnose(t->found, t->diagnosis); /* while its libraries can be read below its own root */
    t->most = weight;
    t->at = zr_clock_seconds();
}

bool zr_doctor_trial(struct zr_case *c, struct zr_diagnosis *d, char **argv, double seconds, int *signal) {
    struct zr_program program = {
        .argv = argv, .own_group = true, .out = STDERR_FILENO /* our page stays clean */, .prepare = prepare_observed};
    char run[ZR_RUN_NAME], library[1024];
    struct trial t = {.found = c, .diagnosis = d};
    struct zr_view *m;

    if (!zr_preload_find("doctor", library, sizeof library) || !zr_preload_set(library))
        return false;
    zr_run_name(run, sizeof run);
    m = zr_view_new(&(struct zr_scope){.run = run, .all_at_once = true, .history_ns = 1000000000});
    int error = m ? zr_spawn(&program) : ENOMEM;
    unsetenv("LD_PRELOAD");
    if (error) {
        zr_complain("doctor", "cannot execute %s: %s", argv[0], strerror(error));
        zr_view_free(m);
        return false;
    }
    double stop = zr_clock_seconds() + seconds;
    while (!zr_spawn_wait(&program, ZR_WATCHED_MS, -1) && !program.asked_to_end && zr_clock_seconds() < stop)
        if (zr_view_sample(m))
            look_closely(&t, m);
    *signal = program.asked_to_end;
    zr_spawn_end(&program);
    zr_view_free(m);
    if (!t.at && !*signal)
        zr_complain("doctor", "%s used no Level Zero device within %.0f s, or ended before it could be looked at",
                    argv[0], seconds);
    return t.at > 0 && !*signal;
}
