/* Comparisons made up for tests: arms, runs and values without a process. */
#ifndef AB_FIXTURE_H
#define AB_FIXTURE_H

#include "ab/ab.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline void fixture_arm(struct zr_ab *ab, const char *name, const char *setting) {
    struct zr_ab_arm *arm = &ab->arm[ab->n_arms++];
    char *wrong = zr_ab_arm_parse(arm, setting);

    ck_assert_msg(!wrong, "%s", wrong);
    arm->name = zr_ab_text("%s", name);
}

static inline void fixture_start(struct zr_ab *ab, const char *a, const char *b) {
    *ab = (struct zr_ab){.seed = 1, .planned = 10};
    ab->command = calloc(3, sizeof(char *));
    ab->command[0] = strdup("./train");
    ab->command[1] = strdup("--steps=3 <&>");
    ab->primary = strdup("wall");
    ab->started = strdup("2026-11-16T05:00:00Z");
    ab->repeat = strdup("zeroute ab -- ./train");
    zr_pairs_set(&ab->machine, "kernel", "6.18.0");
    zr_ab_metric_add(ab, "wall", ZR_AB_SECONDS, ZR_AB_LOWER, "from start to end");
    zr_ab_metric_add(ab, "host.mirror", ZR_AB_BYTES, ZR_AB_LOWER, "host pages behind device memory");
    if (a)
        fixture_arm(ab, "a", a);
    if (b)
        fixture_arm(ab, "b", b);
}

/* A valid run with the fingerprint that its arm should have. */
static inline struct zr_ab_run *fixture_run(struct zr_ab *ab, size_t arm) {
    static const char *const settings[] = {"route", "cache", "residency", "backing"};
    struct zr_ab_run *run = zr_ab_run_add(ab);

    run->arm = arm;
    run->number = ab->n_runs;
    zr_pairs_set(&run->fingerprint, "kernel", "6.18.0");
    zr_pairs_set(&run->fingerprint, "driver.version", "26.27");
    zr_pairs_set(&run->fingerprint, "loader.version", "1.32.0");
    zr_pairs_set(&run->fingerprint, "card.0.name", "B580");
    zr_pairs_set(&run->fingerprint, "library.libze_intel_gpu.so.1.path", "/usr/lib/libze_intel_gpu.so.1");
    zr_pairs_set(&run->fingerprint, "library.libze_loader.so.1.path", "/usr/lib/libze_loader.so.1");
    for (size_t i = 0; i < 4 && !ab->arm[arm].none; i++) {
        char *name = zr_ab_text("setting.%s", settings[i]), *value = zr_ab_setting_value(&ab->arm[arm], settings[i]);
        zr_pairs_set(&run->fingerprint, name, value);
        free(name);
        free(value);
    }
    for (size_t i = 0; i < ab->arm[arm].n_items; i++)
        if (ab->arm[arm].items[i].kind == ZR_AB_ENV) {
            char *name = zr_ab_text("env.%s", ab->arm[arm].items[i].key);
            zr_pairs_set(&run->fingerprint, name, ab->arm[arm].items[i].value);
            free(name);
        }
    return run;
}

/* n runs per arm in ABBA order; wall around 1 s times factor[arm] with this relative noise. */
static inline void fixture_runs(struct zr_ab *ab, size_t n, const double *factor, double noise, uint64_t seed) {
    struct zr_random r;
    size_t *plan = zr_ab_plan(ab->n_arms, n, false, seed);

    zr_random_seed(&r, seed);
    for (size_t i = 0; i < n * ab->n_arms; i++) {
        struct zr_ab_run *run = fixture_run(ab, plan[i]);
        run->value[0] = factor[plan[i]] * (1 + noise * zr_random_normal(&r));
        run->value[1] = 1e9 * (1 + noise * zr_random_normal(&r));
    }
    free(plan);
}

#endif
