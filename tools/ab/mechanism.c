/* The mechanism beside the fingerprint: which counters moved between the arms, and which may. */
#include "ab/ab.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *fields, *per, *help;
} mechanisms[] = {
#define ZR_MECHANISM(name, fields, per, help) {name, fields, per, help},
#define ZR_MOVES(setting, mechanism)
#include "ab/mechanism.def"
#undef ZR_MECHANISM
#undef ZR_MOVES
};
#define MECHANISMS (sizeof(mechanisms) / sizeof(*mechanisms))
_Static_assert(MECHANISMS <= ZR_AB_MECHANISMS, "room for every mechanism");

static const struct {
    const char *setting, *mechanism;
} moves[] = {
#define ZR_MECHANISM(name, fields, per, help)
#define ZR_MOVES(setting, mechanism) {setting, mechanism},
#include "ab/mechanism.def"
#undef ZR_MECHANISM
#undef ZR_MOVES
};

/* Counters of one arm scatter a little in real programs: less than this is never called a move. */
static const double least_change = 0.05;

/* The sum of its fields, or divided by alternative number `per` of what it is judged by; NaN: nothing to divide by. */
static double measure(const struct zr_ab_run *run, size_t mechanism, int per) {
    const char *by = mechanisms[mechanism].per;
    double sum = zr_ab_field_sum(&run->fields, mechanisms[mechanism].fields);

    for (int i = 0; per >= 0 && i < per; i++)
        by += strcspn(by, "|") + 1;
    if (per < 0)
        return sum;
    char *fields = strndup(by, strcspn(by, "|"));
    double of = fields ? zr_ab_field_sum(&run->fields, fields) : 0;
    free(fields);
    return of > 0 ? sum / of : NAN;
}

static double *values_of(const struct zr_ab *ab, size_t arm, size_t mechanism, int per, size_t *n) {
    double *v = zr_ab_more(NULL, ab->n_runs, sizeof(*v));

    *n = 0;
    for (size_t r = 0; r < ab->n_runs && !zr_ab_from_outside(&ab->arm[arm]); r++)
        if (ab->run[r].arm == arm && zr_ab_counts(&ab->run[r]) && !isnan(v[*n] = measure(&ab->run[r], mechanism, per)))
            (*n)++;
    return v;
}

/* Enough runs: the rank test; fewer: no overlap at all. */
static bool moved(const double *a, size_t na, const double *b, size_t nb) {
    double ma = zr_median(a, na), mb = zr_median(b, nb);

    if (na == 0 || nb == 0 || fabs(mb - ma) <= least_change * fmax(fabs(ma), fabs(mb)))
        return false;
    if (na >= ZR_AB_MIN_RUNS && nb >= ZR_AB_MIN_RUNS)
        return zr_mann_whitney(a, na, b, nb, NULL) < ZR_AB_ALPHA;
    return fabs(zr_cliff_delta(a, na, b, nb)) >= 1;
}

/* By each of the ways in which it is judged. */
static bool changed(const struct zr_ab *ab, size_t arm, size_t mechanism) {
    int ways = 0;
    bool all = true;

    for (const char *s = mechanisms[mechanism].per; s && *s; s += strcspn(s, "|") + (s[strcspn(s, "|")] == '|'))
        ways++;
    for (int way = ways ? 0 : -1; way < ways && all; way++) {
        size_t na, nb;
        double *a = values_of(ab, 0, mechanism, way, &na), *b = values_of(ab, arm, mechanism, way, &nb);
        all = way < 0 || (na && nb) ? moved(a, na, b, nb) : all;
        free(a);
        free(b);
    }
    return all;
}

/* What a variable, a library or a command of the user may move is not known. */
static bool declares_unknown(const struct zr_ab_arm *a, const struct zr_ab_arm *b) {
    const struct zr_ab_arm *arms[] = {a, b};

    if (a->none != b->none)
        return true;
    for (size_t side = 0; side < 2; side++)
        for (size_t i = 0; i < arms[side]->n_items; i++) {
            const struct zr_ab_item *x = &arms[side]->items[i];
            bool there = x->kind == ZR_AB_SETTING || x->kind == ZR_AB_PRESET;
            for (size_t k = 0; !there && k < arms[!side]->n_items; k++) {
                const struct zr_ab_item *y = &arms[!side]->items[k];
                there = x->kind == y->kind && !strcmp(x->key, y->key) && !strcmp(x->value, y->value);
            }
            if (!there)
                return true;
        }
    return false;
}

static bool expected(const struct zr_ab_arm *a, const struct zr_ab_arm *b, const char *mechanism) {
    if (declares_unknown(a, b))
        return true;
    for (size_t i = 0; i < sizeof(moves) / sizeof(*moves); i++) {
        if (fnmatch(moves[i].mechanism, mechanism, 0))
            continue;
        char *va = zr_ab_setting_value(a, moves[i].setting), *vb = zr_ab_setting_value(b, moves[i].setting);
        bool differs = va && vb && strcmp(va, vb);
        free(va);
        free(vb);
        if (differs)
            return true;
    }
    return false;
}

size_t zr_ab_mechanisms(const struct zr_ab *ab, struct zr_ab_moved *out, size_t max) {
    size_t n = 0;

    for (size_t m = 0; m < MECHANISMS && n < max; m++) {
        struct zr_ab_moved *one = &out[n];
        bool anything = false;
        *one = (struct zr_ab_moved){.name = mechanisms[m].name, .help = mechanisms[m].help};
        for (size_t arm = 0; arm < ab->n_arms; arm++) {
            size_t count;
            double *v = values_of(ab, arm, m, -1, &count);
            one->median[arm] = zr_median(v, count);
            anything |= one->median[arm] > 0;
            free(v);
        }
        for (size_t arm = 1; anything && arm < ab->n_arms; arm++) {
            one->arm[arm].moved = changed(ab, arm, m);
            one->arm[arm].expected = expected(&ab->arm[0], &ab->arm[arm], one->name);
            one->arm[arm].allowed = zr_ab_allowed(ab, one->name);
        }
        n += anything; /* what never happened in any arm is not worth a line */
    }
    return n;
}
