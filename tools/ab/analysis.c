/* From raw runs to a verdict, or to the reasons why there is none. Deterministic: same runs, same words. */
#include "ab/ab.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void add_text(char ***list, size_t *n, char *text) {
    *list = zr_ab_more(*list, *n + 1, sizeof(**list));
    (*list)[(*n)++] = text;
}

#define reason(an, ...) add_text(&(an)->reason, &(an)->n_reasons, zr_ab_text(__VA_ARGS__))
#define remark(an, ...) add_text(&(an)->remark, &(an)->n_remarks, zr_ab_text(__VA_ARGS__))

/* --- numbers ---------------------------------------------------------------------------------- */

/* A seed of its own for every interval, so that adding a metric changes no other figure. */
static uint64_t seed_for(const struct zr_ab *ab, const char *metric, size_t arm) {
    uint64_t h = 0xcbf29ce484222325u ^ ab->seed;

    for (const char *s = metric; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return (h ^ arm) * 0x100000001b3u;
}

static double scatter(const double *v, size_t n) {
    double robust = zr_spread(v, n);

    return robust > 0 ? robust : zr_deviation(v, n);
}

/*
 * The spread of single runs. That of the middle half forgives outliers, and with few runs of two kinds
 * (fast ones, slow ones) far too much: it is not let below what the interval beside it shows, whose
 * standard error on normal noise is sqrt(pi / n) of it.
 */
static double noise_of(const double *a, const double *b, const struct zr_ab_comparison *c) {
    double sa = scatter(a, c->n_base), sb = scatter(b, c->n), middle = sqrt((sa * sa + sb * sb) / 2);
    double n = 2.0 / (1.0 / (double)c->n + 1.0 / (double)c->n_base);
    double half = (c->difference_interval.high - c->difference_interval.low) / 2;
    double shown = half / zr_normal_quantile(0.975) * sqrt(n / M_PI);

    return isfinite(shown) ? fmax(middle, shown) : middle;
}

/* The next round size below what these runs could see: the effect that a reader will ask about. */
static double next_smaller(double seen) {
    static const double sizes[] = {0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (sizes[i] < 0.9 * seen)
            return sizes[i];
    return 0;
}

static void compare(const struct zr_ab *ab, size_t metric, size_t arm, struct zr_ab_comparison *c) {
    const char *name = ab->metric[metric].name;
    double *a = zr_ab_values(ab, 0, metric, &c->n_base), *b = zr_ab_values(ab, arm, metric, &c->n);
    double base = zr_median(a, c->n_base);

    c->median = zr_median(b, c->n);
    c->median_interval = zr_bootstrap_median(b, c->n, seed_for(ab, name, arm + 1000));
    c->p = c->p_corrected = c->change = c->difference = c->delta = NAN;
    c->difference_interval = c->change_interval = (struct zr_interval){NAN, NAN};
    if (arm && c->n && c->n_base) {
        uint64_t seed = seed_for(ab, name, arm);
        c->difference = c->median - base;
        zr_bootstrap_compare(a, c->n_base, b, c->n, seed, &c->difference_interval, &c->change_interval);
        if (base != 0)
            c->change = c->median / base - 1;
        c->delta = zr_cliff_delta(a, c->n_base, b, c->n);
        c->p = c->p_corrected = zr_mann_whitney(a, c->n_base, b, c->n, NULL);
        size_t least = c->n < c->n_base ? c->n : c->n_base;
        c->noise = base != 0 ? noise_of(a, b, c) / fabs(base) : NAN;
        double smallest = zr_smallest_seen(c->noise, least, ZR_AB_ALPHA, ZR_AB_POWER);
        c->seen = ab->effect > 0 ? ab->effect / 100 : next_smaller(smallest);
        if (c->noise > 0 && c->seen > 0)
            c->needed = zr_runs_needed(c->noise, c->seen, ZR_AB_ALPHA, ZR_AB_POWER);
    }
    free(a);
    free(b);
}

static bool is_constant(const struct zr_ab *ab, size_t metric) {
    double first = NAN;

    for (size_t r = 0; r < ab->n_runs; r++) {
        double v = ab->run[r].value[metric];
        if (!zr_ab_counts(&ab->run[r]) || !isfinite(v))
            continue;
        if (isnan(first))
            first = v;
        else if (v != first)
            return false;
    }
    return true;
}

/* Trend over all runs in the order of time, each arm's own level taken out. */
static double drift_of(const struct zr_ab *ab, size_t metric, const struct zr_ab_row *row) {
    double *v = zr_ab_more(NULL, ab->n_runs, sizeof(*v)), p;
    size_t n = 0;

    for (size_t r = 0; r < ab->n_runs; r++)
        if (zr_ab_counts(&ab->run[r]) && isfinite(ab->run[r].value[metric]))
            v[n++] = ab->run[r].value[metric] - row->arm[ab->run[r].arm].median;
    p = zr_drift(v, n);
    free(v);
    return p;
}

/*
 * Holm's correction over quantities: one is tested once, by the smallest p of its metrics, and all of its metrics are
 * corrected by the same factor.
 */
static void correct(const struct zr_ab *ab, struct zr_ab_analysis *an, bool primary) {
    size_t n = 0, max = ab->n_metrics * ab->n_arms;
    double *p = zr_ab_more(NULL, max, sizeof(*p)), *least = zr_ab_more(NULL, max, sizeof(*least));
    struct {
        const char *quantity;
        size_t arm;
    } *of = zr_ab_more(NULL, max, sizeof(*of));

    for (int pass = 0; pass < 2; pass++) {
        for (size_t m = 0; m < ab->n_metrics; m++)
            for (size_t arm = 1; arm < ab->n_arms; arm++) {
                struct zr_ab_comparison *c = &an->row[m].arm[arm];
                const char *quantity = zr_ab_quantity(ab->metric[m].name);
                size_t i = 0;
                if (an->row[m].primary != primary || an->row[m].constant || isnan(c->p))
                    continue;
                while (i < n && (of[i].arm != arm || strcmp(of[i].quantity, quantity) != 0))
                    i++;
                if (pass) {
                    c->p_corrected = fmin(1, least[i] > 0 ? c->p * p[i] / least[i] : c->p);
                    continue;
                }
                if (i == n) {
                    of[i].quantity = quantity;
                    of[i].arm = arm;
                    p[n++] = c->p;
                }
                p[i] = least[i] = fmin(p[i], c->p);
            }
        if (!pass)
            zr_holm(p, n);
    }
    free(p);
    free(least);
    free(of);
}

/* Zero is outside of the 95 % interval: whatever the ranks say, that is not called noise. */
static bool excludes_zero(const struct zr_ab_comparison *c) {
    return c->difference_interval.low > 0 || c->difference_interval.high < 0;
}

static void judge(struct zr_ab_comparison *c, bool constant) {
    c->outcome = ZR_AB_NOT_TESTED;
    if (c->n < ZR_AB_MIN_RUNS || c->n_base < ZR_AB_MIN_RUNS)
        return;
    if (constant || (!(c->p < ZR_AB_ALPHA) && !excludes_zero(c)))
        c->outcome = ZR_AB_NO_DIFFERENCE;
    else if (!(c->p_corrected < ZR_AB_ALPHA))
        c->outcome = ZR_AB_UNCLEAR;
    else /* equal medians can still differ in distribution: the ranks tell the side */
        c->outcome = c->delta < 0 ? ZR_AB_LESS : ZR_AB_MORE;
}

static void analyse_metrics(const struct zr_ab *ab, struct zr_ab_analysis *an) {
    double *drift = zr_ab_more(NULL, ab->n_metrics, sizeof(*drift));

    for (size_t m = 0; m < ab->n_metrics; m++) {
        struct zr_ab_row *row = &an->row[m];
        row->primary = zr_ab_is_primary(ab, ab->metric[m].name);
        row->constant = is_constant(ab, m);
        for (size_t arm = 0; arm < ab->n_arms; arm++) {
            compare(ab, m, arm, &row->arm[arm]);
            row->measured |= row->arm[arm].n > 0;
        }
        row->drift_p = row->measured && !row->constant ? drift_of(ab, m, row) : NAN;
        drift[m] = row->drift_p;
    }
    zr_holm(drift, ab->n_metrics);
    for (size_t m = 0; m < ab->n_metrics; m++)
        an->row[m].drifts = drift[m] < ZR_AB_ALPHA;
    free(drift);
    correct(ab, an, true);
    correct(ab, an, false);
    for (size_t m = 0; m < ab->n_metrics; m++)
        for (size_t arm = 1; arm < ab->n_arms; arm++)
            judge(&an->row[m].arm[arm], an->row[m].constant);
}

/* --- may there be a verdict at all? ----------------------------------------------------------- */

static void check_runs(const struct zr_ab *ab, struct zr_ab_analysis *an) {
    for (size_t r = 0; r < ab->n_runs; r++) {
        const struct zr_ab_run *run = &ab->run[r];
        an->counted[run->arm] += zr_ab_counts(run);
        if (run->invalid && !run->warmup)
            remark(an, "run %zu (%s) is not a run: %s", run->number, ab->arm[run->arm].name, run->invalid);
        else if (!run->warmup && !run->invalid && run->status)
            remark(an, "run %zu (%s) failed and is left out", run->number, ab->arm[run->arm].name);
        if (!run->settled && !run->warmup)
            remark(an, "run %zu (%s) started after %.1f s although memory was not back at its baseline", run->number,
                   ab->arm[run->arm].name, run->waited);
    }
    for (size_t arm = 0; arm < ab->n_arms; arm++)
        if (an->counted[arm] < ZR_AB_MIN_RUNS)
            reason(an, "%s has %zu run%s that count%s: a verdict needs at least %d", ab->arm[arm].name,
                   an->counted[arm], an->counted[arm] == 1 ? "" : "s", an->counted[arm] == 1 ? "s" : "",
                   ZR_AB_MIN_RUNS);
    if (ab->interrupted)
        remark(an, "interrupted: %zu runs per arm were planned", ab->planned);
}

static void check_declarations(const struct zr_ab *ab, struct zr_ab_analysis *an) {
    for (size_t arm = 1; arm < ab->n_arms; arm++) {
        char *text[8];
        size_t n = zr_ab_declared(&ab->arm[0], &ab->arm[arm], text, 8);
        char *all = zr_ab_text("%s", "");
        for (size_t i = 0; i < n && i < 8; i++) {
            char *longer = zr_ab_text("%s%s%s", all, i ? " and " : "", text[i]);
            free(all);
            free(text[i]);
            all = longer;
        }
        if (n == 0)
            remark(an, "%s and %s declare no difference: any difference is noise", ab->arm[0].name, ab->arm[arm].name);
        else if (n > 1 && zr_ab_allowed(ab, "together"))
            remark(an,
                   "%s differs from %s in %zu things at once (%s): the result is about all of "
                   "them together (--allow together)",
                   ab->arm[arm].name, ab->arm[0].name, n, all);
        else if (n > 1)
            reason(an,
                   "%s differs from %s in %zu things at once, %s: which one had the effect "
                   "is unknown; change one at a time",
                   ab->arm[arm].name, ab->arm[0].name, n, all);
        free(all);
    }
}

/* A run that began under one setting and ended under another says nothing about either. */
static void check_changes(const struct zr_ab *ab, struct zr_ab_analysis *an) {
    size_t changed = 0;
    const char *what = NULL;

    for (size_t r = 0; r < ab->n_runs; r++) {
        const char *one = zr_pairs_get(&ab->run[r].fingerprint, "settings.changed");
        if (!one || !zr_ab_counts(&ab->run[r]))
            continue;
        changed++;
        what = one;
    }
    if (changed)
        reason(an, "settings were changed by zeroute ctl while %zu run%s going on (the last one: %s)", changed,
               changed == 1 ? " was" : "s were", what);
}

static void check_fingerprints(const struct zr_ab *ab, struct zr_ab_analysis *an) {
    size_t undeclared = 0, unlike = 0;

    check_changes(ab, an);
    zr_ab_fingerprints(ab, &an->differences);
    for (size_t i = 0; i < an->differences.n; i++) {
        const struct zr_ab_difference *d = &an->differences.at[i];
        undeclared += d->status == ZR_AB_UNDECLARED;
        unlike += d->status == ZR_AB_UNLIKE;
        if (d->status == ZR_AB_ALLOWED)
            remark(an, "%s differs and was allowed: %s", d->what,
                   d->arm == d->than ? "the runs of one arm are not alike in it"
                                     : "the verdict does not tell its share");
    }
    if (undeclared)
        reason(an, "the arms differ in %zu thing%s not declared (listed under fingerprint)", undeclared,
               undeclared == 1 ? "" : "s");
    if (unlike)
        reason(an, "the runs of one arm are not alike in %zu thing%s (listed under fingerprint)", unlike,
               unlike == 1 ? "" : "s");
    for (size_t arm = 0; arm < ab->n_arms; arm++)
        if (zr_ab_from_outside(&ab->arm[arm]))
            remark(an, "%s runs %s: its fingerprint is what shows from outside", ab->arm[arm].name,
                   ab->arm[arm].none ? "without the preload" : "without statistics (stats:off)");
}

static void check_mechanisms(const struct zr_ab *ab, struct zr_ab_analysis *an) {
    an->n_mechanisms = zr_ab_mechanisms(ab, an->mechanism, ZR_AB_MECHANISMS);
    for (size_t arm = 1; arm < ab->n_arms; arm++)
        for (size_t m = 0; m < an->n_mechanisms; m++) {
            const struct zr_ab_moved *one = &an->mechanism[m];
            if (!one->arm[arm].moved || one->arm[arm].expected)
                continue;
            if (one->arm[arm].allowed)
                remark(an, "%s changed %s as well (%.4g to %.4g): the verdict is about both (--allow %s)",
                       ab->arm[arm].text, one->name, one->median[0], one->median[arm], one->name);
            else
                reason(an,
                       "%s changed more than it should: %s (%s) went from %.4g to %.4g; with --allow %s the verdict is "
                       "about both",
                       ab->arm[arm].text, one->name, one->help, one->median[0], one->median[arm], one->name);
        }
}

/* A name that admits nothing is most likely misspelt. */
static void check_allowed(const struct zr_ab *ab, struct zr_ab_analysis *an) {
    for (size_t i = 0; i < ab->n_allow; i++) {
        bool used = false;
        for (size_t d = 0; !used && d < an->differences.n; d++)
            used = zr_ab_allows(ab->allow[i], an->differences.at[d].what);
        for (size_t m = 0; !used && m < an->n_mechanisms; m++)
            used = zr_ab_allows(ab->allow[i], an->mechanism[m].name);
        if (!used && strcmp(ab->allow[i], "together"))
            remark(an, "--allow %s: nothing of that name differs", ab->allow[i]);
    }
}

/* A file that was not written proves nothing about the output. */
static void check_outputs(const struct zr_ab *ab, struct zr_ab_analysis *an) {
    for (size_t r = 0; r < ab->n_runs; r++) {
        const struct zr_ab_run *run = &ab->run[r];
        for (size_t i = 0; zr_ab_counts(run) && i < run->fingerprint.n; i++) {
            const struct zr_pair *p = &run->fingerprint.at[i];
            if (strncmp(p->name, "output.", 7) || strcmp(p->value, ZR_AB_NO_FILE))
                continue;
            reason(an, "%s was not there after run %zu (%s): nothing shows that the output is the same", p->name + 7,
                   run->number, ab->arm[run->arm].name);
            return;
        }
    }
}

static void check_primary(const struct zr_ab *ab, struct zr_ab_analysis *an) {
    if (an->primary >= ab->n_metrics)
        reason(an, "the primary metric %s was not measured", zr_ab_primary_names(ab));
    for (size_t m = 0; m < ab->n_metrics; m++) {
        const struct zr_ab_row *row = &an->row[m];
        if (!row->primary)
            continue;
        for (size_t arm = 0; arm < ab->n_arms; arm++)
            if (row->arm[arm].n < ZR_AB_MIN_RUNS && an->counted[arm] >= ZR_AB_MIN_RUNS)
                reason(an, "the primary metric %s was measured in %zu of %zu runs of %s", ab->metric[m].name,
                       row->arm[arm].n, an->counted[arm], ab->arm[arm].name);
        if (row->drifts)
            remark(an,
                   "%s drifts over the runs (p = %.2g): interleaving spreads that over the arms, but "
                   "the machine was not steady",
                   ab->metric[m].name, row->drift_p);
    }
}

/* The first of the primary metrics. */
static size_t first_primary(const struct zr_ab *ab) {
    const char *names = zr_ab_primary_names(ab);
    char *first = strndup(names, strcspn(names, ","));
    size_t m = zr_ab_metric_index(ab, first ? first : "");

    free(first);
    return m;
}

void zr_ab_analyse(const struct zr_ab *ab, struct zr_ab_analysis *an) {
    *an = (struct zr_ab_analysis){0};
    an->row = zr_ab_more(NULL, ab->n_metrics, sizeof(*an->row));
    memset(an->row, 0, ab->n_metrics * sizeof(*an->row));
    an->primary = first_primary(ab);
    check_runs(ab, an);
    check_declarations(ab, an);
    check_fingerprints(ab, an);
    check_mechanisms(ab, an);
    check_allowed(ab, an);
    check_outputs(ab, an);
    analyse_metrics(ab, an);
    check_primary(ab, an);
    an->verdict = an->n_reasons == 0;
}

void zr_ab_analysis_clear(struct zr_ab_analysis *an) {
    free(an->row);
    zr_ab_differences_clear(&an->differences);
    for (size_t i = 0; i < an->n_reasons; i++)
        free(an->reason[i]);
    for (size_t i = 0; i < an->n_remarks; i++)
        free(an->remark[i]);
    free(an->reason);
    free(an->remark);
    *an = (struct zr_ab_analysis){0};
}
