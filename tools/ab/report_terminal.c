/* The report on the terminal: what differs, the figures, then the verdict. */
#include "ab/ab.h"
#include "common/common.h"

#include <string.h>

enum { INDENT = 14 }; /* of what belongs to a finding */

static void head(FILE *f, const struct zr_ab_report *r) {
    fprintf(f, "zeroute ab: %s\n", zr_shown(r->command));
    for (size_t a = 0; a < r->n_arms; a++)
        fprintf(f, "  %-2s  %s, %zu run%s\n", r->arm[a].label, zr_shown(r->arm[a].setting), r->arm[a].runs,
                r->arm[a].runs == 1 ? "" : "s");
    fprintf(f, "  %s\n", zr_shown(r->order));
}

static void fingerprint(FILE *f, const struct zr_ab_report *r) {
    fprintf(f, "\nFingerprint: %s\n", zr_shown(r->fingerprint));
    for (size_t i = 0; i < r->n_findings; i++) {
        const struct zr_ab_report_finding *one = &r->finding[i];
        fprintf(f, "  %-*s%s\n", INDENT - 2, one->status, zr_shown(one->what));
        for (size_t l = 0; l < ZR_AB_FINDING_LINES; l++)
            if (one->line[l])
                fprintf(f, "%*s%s\n", INDENT, "", zr_shown(one->line[l]));
    }
}

static void mechanisms(FILE *f, const struct zr_ab_report *r) {
    int column = r->n_arms > 4 ? 10 : 12;

    if (!r->n_mechanisms)
        return;
    fprintf(f, "\nMechanism (median per run)\n  %-22s", "");
    for (size_t a = 0; a < r->n_arms; a++)
        fprintf(f, "%*s", column, r->arm[a].label);
    fputc('\n', f);
    for (size_t m = 0; m < r->n_mechanisms; m++) {
        const struct zr_ab_report_mechanism *one = &r->mechanism[m];
        fprintf(f, "  %-22s", one->name);
        for (size_t a = 0; a < r->n_arms; a++)
            fprintf(f, "%*s", column, one->median[a]);
        fprintf(f, "%s%s\n", *one->note ? "   " : "", one->note);
    }
}

/* Width of the column "change": a factorial has none. */
static int change_width(const struct zr_ab_report *r) {
    return r->ab->n_factors ? 0 : 9;
}

static void columns(FILE *f, const struct zr_ab_report *r, const char *first, int width) {
    bool changes = change_width(r) > 0;

    fprintf(f, "\n  %-*.*s %-2s %10s  %*s  %-24s %8s\n", width, width, first, "", "median", change_width(r),
            changes ? "change" : "", "95 % interval", changes ? "p" : "");
}

static void arm_line(FILE *f, const struct zr_ab_report *r, const struct zr_ab_report_metric *m, size_t arm,
                     const char *first, int width) {
    const struct zr_ab_report_cell *c = &m->cell[arm];

    fprintf(f, "  %-*.*s %-2.2s %10s  %*s  %-24s", width, width, first, r->arm[arm].label, c->median, change_width(r),
            c->change, *c->change ? c->change_interval : c->interval);
    if (*c->change)
        fprintf(f, " %8s  %s\n", c->p, c->outcome);
    else
        fprintf(f, " %s\n", m->drifts && !arm ? "drifts" : "");
}

/* By setting, in full: this is the table that a reader came for. */
static void primary(FILE *f, const struct zr_ab_report *r, const struct zr_ab_report_metric *m) {
    int width = 16;

    for (size_t a = 0; a < r->n_arms; a++)
        width = (int)strlen(r->arm[a].setting) > width ? (int)strlen(r->arm[a].setting) : width;
    width = width > 52 ? 52 : width;
    fprintf(f, "\n%s, the primary metric: %s", zr_shown(m->name), zr_shown(m->help));
    columns(f, r, "setting", width);
    for (size_t a = 0; a < r->n_arms; a++)
        arm_line(f, r, m, a, r->arm[a].setting, width);
}

static void others(FILE *f, const struct zr_ab_report *r, size_t from) {
    int width = 25;

    columns(f, r, "other metrics", width);
    for (size_t i = from; i < r->n_metrics; i++) {
        const struct zr_ab_report_metric *m = &r->metric[i];
        if (m->same)
            fprintf(f, "  %-*.*s %-2s %10s  %*s  %s\n", width, width, zr_shown(m->name), "", m->cell[0].median,
                    change_width(r), "", ZR_AB_THE_SAME);
        for (size_t a = 0; a < r->n_arms && !m->same; a++)
            arm_line(f, r, m, a, a ? "" : m->name, width);
    }
    if (*r->footnote)
        fprintf(f, "  %s\n", zr_shown(r->footnote));
}

void zr_ab_report_terminal(FILE *f, const struct zr_ab_report *r) {
    bool has_primary = r->n_metrics && r->metric[0].primary;

    head(f, r);
    fingerprint(f, r);
    mechanisms(f, r);
    if (has_primary)
        primary(f, r, &r->metric[0]);
    if (r->n_metrics)
        others(f, r, has_primary);
    fprintf(f, "\n%s\n", zr_shown(r->headline));
    for (size_t i = 0; i < r->n_lines; i++)
        fprintf(f, "  %s%s\n", zr_ab_report_prefix(&r->line[i]), zr_shown(r->line[i].text));
    fprintf(f, "\nMachine: %s\nRepeat: %s\n", zr_shown(r->machine), zr_shown(r->repeat));
}
