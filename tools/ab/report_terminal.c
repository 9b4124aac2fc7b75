/* The report on the terminal: may there be a verdict, then the figures, then the verdict. */
#include "ab/ab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In a factorial the names are long: its arms have numbers, told at the head. */
static const char *label(const struct zr_ab *ab, size_t arm, char number[24])
{
    if (!ab->n_factors)
        return ab->arm[arm].name;
    snprintf(number, 24, "%zu", arm + 1);
    return number;
}

static void head(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    char *command = zr_ab_quoted(ab->command);

    fprintf(f, "zeroute ab: %s\n", command);
    for (size_t arm = 0; arm < ab->n_arms; arm++) {
        char number[24];
        fprintf(f, "  %-2s  %s, %zu run%s\n", label(ab, arm, number),
                ab->n_factors ? ab->arm[arm].name : ab->arm[arm].text, an->counted[arm],
                an->counted[arm] == 1 ? "" : "s");
    }
    fprintf(f, "  order %s, seed %llu\n", ab->random_order ? "random" : "ABBA", (unsigned long long)ab->seed);
    free(command);
}

static const char *value_or(const char *value)
{
    return *value ? value : "(not there)";
}

static bool refused(const struct zr_ab_difference *d)
{
    return d->status == ZR_AB_UNDECLARED || d->status == ZR_AB_UNLIKE;
}

static void one_difference(FILE *f, const struct zr_ab *ab, const struct zr_ab_difference *d)
{
    char one[24], two[24];
    const char *arm = label(ab, d->arm, one), *than = label(ab, d->than, two);

    fprintf(f, "  %-11s %s\n", zr_ab_status_name(d->status), d->what);
    if (d->arm == d->than && d->run == d->other_run)
        fprintf(f, "              in %s: %s, declared %s\n", arm, value_or(d->value), value_or(d->other));
    else if (d->arm == d->than)
        fprintf(f, "              in %s: %s in run %zu, %s in run %zu\n", arm, value_or(d->other), d->other_run,
                value_or(d->value), d->run);
    else
        fprintf(f, "              %s: %s\n              %s: %s\n", than, value_or(d->other), arm, value_or(d->value));
    if (d->status == ZR_AB_CONSEQUENCE)
        fprintf(f, "              follows from %s\n", d->why);
}

/* In a factorial many arms differ from the first in the same thing. */
static bool told_before(const struct zr_ab_differences *d, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (d->at[k].status == d->at[i].status && d->at[k].arm != d->at[k].than && d->at[i].arm != d->at[i].than &&
            !strcmp(d->at[k].what, d->at[i].what) && !strcmp(d->at[k].value, d->at[i].value) &&
            !strcmp(d->at[k].other, d->at[i].other))
            return true;
    return false;
}

static bool fingerprints(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    bool fine = true;

    for (size_t i = 0; i < an->differences.n; i++)
        fine &= !refused(&an->differences.at[i]);
    fprintf(f, "\nFingerprint: %s\n",
            fine ? "the arms differ in what was declared and in nothing else; the runs of each are alike"
                 : "the runs differ in more than was declared");
    for (size_t i = 0; i < an->differences.n; i++)
        if (refused(&an->differences.at[i]) == !fine && !told_before(&an->differences, i))
            one_difference(f, ab, &an->differences.at[i]);
    return fine;
}

static void mechanisms(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    int column = ab->n_arms > 4 ? 10 : 12;
    char number[24];

    if (!an->n_mechanisms)
        return;
    fprintf(f, "\nMechanism (median per run)\n  %-22s", "");
    for (size_t arm = 0; arm < ab->n_arms; arm++)
        fprintf(f, "%*s", column, label(ab, arm, number));
    fputc('\n', f);
    for (size_t m = 0; m < an->n_mechanisms; m++) {
        const struct zr_ab_moved *one = &an->mechanism[m];
        bool moved = false, own = true;
        fprintf(f, "  %-22s", one->name);
        for (size_t arm = 0; arm < ab->n_arms; arm++) {
            if (isnan(one->median[arm]))
                fprintf(f, "%*s", column, "-");
            else
                fprintf(f, "%*.6g", column, one->median[arm]);
            moved |= one->arm[arm].moved;
            own &= !one->arm[arm].moved || one->arm[arm].expected || one->arm[arm].allowed;
        }
        fprintf(f, "%s\n", !moved ? "" : own ? "   moved" : "   moved, NOT BY DECLARATION");
    }
}

/* Name of the row and of the arm, as wide as what is beside them needs. */
struct layout {
    int name, arm;
};

static void arm_line(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t metric, size_t arm,
                     const char *first, struct layout wide)
{
    const struct zr_ab_metric *m = &ab->metric[metric];
    const struct zr_ab_row *row = &an->row[metric];
    const struct zr_ab_comparison *c = &row->arm[arm];
    char median[ZR_AB_WORD], change[ZR_AB_WORD], interval[2 * ZR_AB_WORD], p[ZR_AB_WORD];
    char low[ZR_AB_WORD], high[ZR_AB_WORD], number[24];

    fprintf(f, "  %-*.*s %-*.*s %10s", wide.name, wide.name, first, wide.arm, wide.arm, label(ab, arm, number),
            zr_ab_number(median, m->unit, c->median));
    if (arm == 0 || ab->n_factors || isnan(c->difference)) {
        zr_ab_interval_text(interval, m->unit, c->median_interval);
        fprintf(f, "  %*s  %-24s %s\n", ab->n_factors ? 0 : 9, "", interval, row->drifts && !arm ? "drifts" : "");
        return;
    }
    if (isfinite(c->change)) {
        zr_ab_percent(change, c->change);
        snprintf(interval, sizeof(interval), "%s to %s", zr_ab_percent(low, c->change_interval.low),
                 zr_ab_percent(high, c->change_interval.high));
    } else {
        snprintf(change, sizeof(change), "%s%.100s", c->difference > 0 ? "+" : "",
                 zr_ab_number(low, m->unit, c->difference));
        zr_ab_interval_text(interval, m->unit, c->difference_interval);
    }
    fprintf(f, "  %9s  %-24s %8s  %s\n", change, interval, zr_ab_p_text(p, c->p_corrected),
            !an->verdict || c->outcome == ZR_AB_NOT_TESTED ? "" : zr_ab_outcome_word(m, c->outcome, true));
}

static void columns(FILE *f, const struct zr_ab *ab, const char *first, struct layout wide)
{
    fprintf(f, "\n  %-*.*s %-*s %10s  %*s  %-24s %8s\n", wide.name, wide.name, first, wide.arm, "", "median",
            ab->n_factors ? 0 : 9, ab->n_factors ? "" : "change", "95 % interval", ab->n_factors ? "" : "p");
}

/* By setting, in full: this is the table that a reader came for. */
static void primary(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    struct layout wide = {16, 2};

    if (an->primary >= ab->n_metrics)
        return;
    for (size_t arm = 0; arm < ab->n_arms; arm++) {
        int n = (int)strlen(ab->n_factors ? ab->arm[arm].name : ab->arm[arm].text);
        wide.name = n > wide.name ? n : wide.name;
    }
    wide.name = wide.name > 52 ? 52 : wide.name;
    fprintf(f, "\n%s, the primary metric: %s", ab->metric[an->primary].name, ab->metric[an->primary].help);
    columns(f, ab, "setting", wide);
    for (size_t arm = 0; arm < ab->n_arms; arm++)
        arm_line(f, ab, an, an->primary, arm, ab->n_factors ? ab->arm[arm].name : ab->arm[arm].text, wide);
}

static void figures(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    struct layout wide = {25, 2};
    char text[ZR_AB_WORD];

    columns(f, ab, "other metrics", wide);
    for (size_t m = 0; m < ab->n_metrics; m++) {
        const struct zr_ab_row *row = &an->row[m];
        if (row->primary || zr_ab_dull(ab, row))
            continue;
        if (row->constant)
            fprintf(f, "  %-*.*s %-*s %10s  %*s  the same in every run\n", wide.name, wide.name, ab->metric[m].name,
                    wide.arm, "", zr_ab_number(text, ab->metric[m].unit, row->arm[0].median), ab->n_factors ? 0 : 9,
                    "");
        for (size_t arm = 0; arm < ab->n_arms && !row->constant; arm++)
            arm_line(f, ab, an, m, arm, arm ? "" : ab->metric[m].name, wide);
    }
    if (!ab->n_factors)
        fputs("  p: Mann-Whitney U; of metrics other than the primary, Holm-corrected\n", f);
}

static void verdict(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    fprintf(f, "\n%s\n", an->verdict ? "Verdict" : "No verdict");
    for (size_t i = 0; i < an->n_reasons; i++)
        fprintf(f, "  %s\n", an->reason[i]);
    for (size_t arm = 1; an->verdict && !ab->n_factors && arm < ab->n_arms; arm++) {
        char *sentence = zr_ab_sentence(ab, an, an->primary, arm);
        fprintf(f, "  %s\n", sentence);
        free(sentence);
    }
    for (size_t e = 0; an->verdict && e < an->n_effects; e++) {
        char *sentence = zr_ab_effect_sentence(ab, an, e);
        fprintf(f, "  %s: %s\n", ab->metric[an->primary].name, sentence);
        free(sentence);
    }
    for (size_t arm = 1; an->verdict && !ab->n_factors && arm < ab->n_arms; arm++) {
        char *others = zr_ab_others(ab, an, arm);
        if (others)
            fprintf(f, "  %s\n", others);
        free(others);
    }
    for (size_t i = 0; i < an->n_remarks; i++)
        fprintf(f, "  note: %s\n", an->remark[i]);
}

void zr_ab_report_terminal(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    head(f, ab, an);
    if (!fingerprints(f, ab, an)) {
        verdict(f, ab, an);
        fputs("  The figures are kept back, for they would mislead; --json has them raw.\n"
              "  To admit a difference by name: --allow NAME\n",
              f);
        return;
    }
    mechanisms(f, ab, an);
    primary(f, ab, an);
    figures(f, ab, an);
    verdict(f, ab, an);
}
