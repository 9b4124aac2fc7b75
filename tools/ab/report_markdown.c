/* The report for a pull request: verdict, a short table, the machine, and how to repeat it. */
#include "ab/ab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a reviewer asks for first; the user's own metrics follow. */
static const char *const wanted[] = {"wall",        "host.mirror", "host.per_device_byte", "device.held.peak",
                                     "allocations", "latency.p50", "latency.p99",          "failures"};

static void cell(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (*text == '|' || *text == '\\')
            fputc('\\', f);
        fputc(*text == '\n' ? ' ' : *text, f);
    }
}

static void row(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t metric)
{
    const struct zr_ab_metric *m = &ab->metric[metric];

    fputs("| ", f);
    cell(f, m->name);
    for (size_t arm = 0; arm < ab->n_arms; arm++) {
        const struct zr_ab_comparison *c = &an->row[metric].arm[arm];
        char median[ZR_AB_WORD], interval[ZR_AB_WORD], change[ZR_AB_WORD], p[ZR_AB_WORD];
        fprintf(f, " | %s", zr_ab_number(median, m->unit, c->median));
        if (c->median_interval.low < c->median_interval.high)
            fprintf(f, " (%s)", zr_ab_interval_text(interval, m->unit, c->median_interval));
        if (arm == 0 || ab->n_factors || !an->verdict || c->outcome == ZR_AB_NOT_TESTED)
            continue;
        if (an->row[metric].constant)
            fputs(", the same", f);
        else if (isfinite(c->change))
            fprintf(f, ", %s, p = %s: %s", zr_ab_percent(change, c->change), zr_ab_p_text(p, c->p_corrected),
                    zr_ab_outcome_word(m, c->outcome, true));
        else
            fprintf(f, ", p = %s: %s", zr_ab_p_text(p, c->p_corrected), zr_ab_outcome_word(m, c->outcome, true));
    }
    fputs(" |\n", f);
}

static bool is_wanted(const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t metric)
{
    if (!an->row[metric].measured)
        return false;
    if (an->row[metric].primary || ab->metric[metric].unit == ZR_AB_PLAIN)
        return true;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
        if (!strcmp(wanted[i], ab->metric[metric].name))
            return true;
    return false;
}

static void table(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    fputs("\n| median (95 % interval)", f);
    for (size_t arm = 0; arm < ab->n_arms; arm++) {
        fputs(" | ", f);
        cell(f, ab->arm[arm].name);
        if (strcmp(ab->arm[arm].name, ab->arm[arm].text) && !ab->n_factors) {
            fputs(": `", f);
            cell(f, ab->arm[arm].text);
            fputc('`', f);
        }
    }
    fputs(" |\n| ---", f);
    for (size_t arm = 0; arm < ab->n_arms; arm++)
        fputs(" | ---", f);
    fputs(" |\n", f);
    for (int pass = 0; pass < 2; pass++)
        for (size_t m = 0; m < ab->n_metrics; m++)
            if (an->row[m].primary == (pass == 0) && is_wanted(ab, an, m))
                row(f, ab, an, m);
    fputs("| runs", f);
    for (size_t arm = 0; arm < ab->n_arms; arm++)
        fprintf(f, " | %zu", an->counted[arm]);
    fputs(" |\n", f);
    if (!ab->same_output)
        return;
    fputs("| output", f);
    for (size_t arm = 0; arm < ab->n_arms; arm++) {
        const char *hash = NULL;
        for (size_t r = 0; r < ab->n_runs && !hash; r++)
            if (ab->run[r].arm == arm && zr_ab_counts(&ab->run[r]))
                hash = zr_pairs_get(&ab->run[r].fingerprint, "output");
        fprintf(f, " | `%.12s`", hash ? hash : "-");
    }
    fputs(" |\n", f);
}

static void differences(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    for (size_t i = 0; i < an->differences.n; i++) {
        const struct zr_ab_difference *d = &an->differences.at[i];
        fprintf(f, "- %s: `%s`", zr_ab_status_name(d->status), d->what);
        fprintf(f, " %s `%s`, %s `%s`", ab->arm[d->than].name, *d->other ? d->other : "-",
                d->arm == d->than ? "then" : ab->arm[d->arm].name, *d->value ? d->value : "-");
        fprintf(f, "%s%s\n", *d->why ? ", follows from " : "", d->why);
    }
}

void zr_ab_report_markdown(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    char *command = zr_ab_quoted(ab->command);

    fprintf(f, "### zeroute ab: %s\n\n", an->verdict ? "verdict" : "no verdict");
    for (size_t i = 0; i < an->n_reasons; i++)
        fprintf(f, "- %s\n", an->reason[i]);
    for (size_t arm = 1; an->verdict && !ab->n_factors && arm < ab->n_arms; arm++) {
        char *sentence = zr_ab_sentence(ab, an, an->primary, arm);
        fprintf(f, "- **%s**\n", sentence);
        free(sentence);
    }
    for (size_t e = 0; an->verdict && e < an->n_effects; e++) {
        char *sentence = zr_ab_effect_sentence(ab, an, e);
        fprintf(f, "- %s: %s\n", ab->metric[an->primary].name, sentence);
        free(sentence);
    }
    for (size_t i = 0; i < an->n_remarks; i++)
        fprintf(f, "- note: %s\n", an->remark[i]);
    table(f, ab, an);
    fputs("\nWhat differs between the arms:\n", f);
    differences(f, ab, an);
    if (!an->differences.n)
        fputs("- nothing that the fingerprint shows\n", f);
    fputs("\nThe machine: ", f);
    for (size_t i = 0; i < ab->machine.n; i++)
        fprintf(f, "%s%s %s", i ? ", " : "", ab->machine.at[i].name, ab->machine.at[i].value);
    fprintf(f, "\n\nTo repeat it:\n```sh\n%s\n```\n", ab->repeat ? ab->repeat : command);
    free(command);
}
