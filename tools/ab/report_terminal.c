/* The report on the terminal: the verdict, the figures, then what it rests on. */
#include "ab/ab.h"
#include "common/common.h"

#include <stdlib.h>
#include <string.h>

enum { INDENT = 14 }; /* of what belongs to a finding */

/* Behind as many spaces; wrapped where the width of the screen is known. */
static void say(FILE *f, int indent, const char *prefix, const char *text) {
    size_t width = zr_columns(f);
    char *whole = zr_ab_text("%s%s", prefix, text);

    fprintf(f, "%*s", indent, "");
    zr_text_wrap(f, indent, width ? (int)width : 1 << 20, whole);
    free(whole);
}

static void head(FILE *f, const struct zr_ab_report *r) {
    say(f, 0, "zeroute ab: ", r->command);
    for (size_t a = 0; a < r->n_arms; a++)
        fprintf(f, "  %-2s  %s, %zu run%s\n", r->arm[a].label, zr_shown(r->arm[a].setting), r->arm[a].runs,
                r->arm[a].runs == 1 ? "" : "s");
}

static bool is_verdict(const struct zr_ab_report_line *line) {
    return !strcmp(line->kind, "verdict") || !strcmp(line->kind, "reason");
}

static void verdict(FILE *f, const struct zr_ab_report *r) {
    bool colour = zr_colour(f);

    fprintf(f, "\n%s%s%s\n", zr_bold(colour), zr_shown(r->headline), zr_plain(colour));
    for (size_t i = 0; i < r->n_lines; i++)
        if (is_verdict(&r->line[i]))
            say(f, 2, "", r->line[i].text);
}

static void details(FILE *f, const struct zr_ab_report *r) {
    bool any = false;

    for (size_t i = 0; i < r->n_lines; i++)
        if (!is_verdict(&r->line[i])) {
            fputs(any ? "" : "\nIn detail\n", f);
            say(f, 2, zr_ab_report_prefix(&r->line[i]), r->line[i].text);
            any = true;
        }
}

static void fingerprint(FILE *f, const struct zr_ab_report *r) {
    fputc('\n', f);
    say(f, 0, "Fingerprint: ", r->fingerprint);
    for (size_t i = 0; i < r->n_findings; i++) {
        const struct zr_ab_report_finding *one = &r->finding[i];
        fprintf(f, "  %-*s%s\n", INDENT - 2, one->status, zr_shown(one->what));
        for (size_t l = 0; l < ZR_AB_FINDING_LINES; l++)
            if (one->line[l])
                say(f, INDENT, "", one->line[l]);
    }
}

static void mechanisms(FILE *f, const struct zr_ab_report *r) {
    int column = r->n_arms > 4 ? 10 : 12;

    if (!r->n_mechanisms)
        return;
    fprintf(f, "\nMechanism (median per run)\n  %-20s", "");
    for (size_t a = 0; a < r->n_arms; a++)
        fprintf(f, "%*s", column, r->arm[a].label);
    fputc('\n', f);
    for (size_t m = 0; m < r->n_mechanisms; m++) {
        const struct zr_ab_report_mechanism *one = &r->mechanism[m];
        fprintf(f, "  %-20s", one->name);
        for (size_t a = 0; a < r->n_arms; a++)
            fprintf(f, "%*s", column, one->median[a]);
        fprintf(f, "%s%s\n", *one->note ? "   " : "", one->note);
    }
}

/* --- figures: two arms side by side, more of them below each other ------------------------------- */

static bool is_noteworthy(const struct zr_ab_report *r, const struct zr_ab_report_metric *m) {
    if (m->primary || r->verbose)
        return true;
    for (size_t a = 1; a < r->n_arms && !m->same; a++) {
        enum zr_ab_outcome o = r->an->row[m->index].arm[a].outcome;
        if (o == ZR_AB_LESS || o == ZR_AB_MORE || o == ZR_AB_UNCLEAR || o == ZR_AB_NOT_TESTED)
            return true;
    }
    return false;
}

/* The p of a difference that more runs would have to show. */
static const char *doubt(const struct zr_ab_report *r, const struct zr_ab_report_metric *m, size_t arm) {
    return r->an->row[m->index].arm[arm].outcome == ZR_AB_UNCLEAR ? "?" : "";
}

static void side_by_side(struct zr_table *t, const struct zr_ab_report *r, const struct zr_ab_report_metric *m) {
    const struct zr_ab_report_cell *c = &m->cell[1];
    char p[ZR_AB_WORD];

    snprintf(p, sizeof(p), "%s%s", c->p, doubt(r, m, 1));
    if (m->same)
        zr_table_row(t, m->name, m->cell[0].median, c->median, "same", "", "");
    else
        zr_table_row(t, m->name, m->cell[0].median, c->median, c->change, c->change_interval, p);
}

static void below(struct zr_table *t, const struct zr_ab_report *r, const struct zr_ab_report_metric *m) {
    for (size_t a = 0; a < (m->same ? 1 : r->n_arms); a++) {
        const struct zr_ab_report_cell *c = &m->cell[a];
        char p[ZR_AB_WORD];
        snprintf(p, sizeof(p), "%s%s", c->p, doubt(r, m, a));
        zr_table_row(t, a ? "" : m->name, m->same ? "" : r->arm[a].label, c->median, m->same ? "same" : c->change,
                     m->same      ? ""
                     : *c->change ? c->change_interval
                                  : c->interval,
                     p);
    }
}

/* Adds a name to a list in one line. */
static void list_name(char **list, const char *name) {
    char *longer = zr_ab_text("%s%s%s", *list ? *list : "", *list ? ", " : "", name);

    free(*list);
    *list = longer;
}

static void figures(FILE *f, const struct zr_ab_report *r) {
    bool two = r->n_arms == 2, doubts = false;
    char *dull = NULL, *folded = NULL, label[2][16];
    struct zr_table *t;

    if (!r->n_metrics)
        return;
    snprintf(label[0], sizeof(label[0]), ">%.10s", r->arm[0].label);
    snprintf(label[1], sizeof(label[1]), ">%.10s", r->arm[1].label);
    t = two ? zr_table_new("metric", label[0], label[1], ">change", "95 % interval", ">p", (char *)NULL)
            : zr_table_new("metric", "", ">median", ">change", "95 % interval", ">p", (char *)NULL);
    for (size_t i = 0; i < r->n_metrics; i++) {
        const struct zr_ab_report_metric *m = &r->metric[i];
        if (!is_noteworthy(r, m)) {
            list_name(&dull, m->name);
            continue;
        }
        if (m->folded && !r->verbose) {
            list_name(&folded, m->name);
            continue;
        }
        for (size_t a = 1; a < r->n_arms; a++)
            doubts |= *doubt(r, m, a) != 0;
        if (two)
            side_by_side(t, r, m);
        else
            below(t, r, m);
    }
    fputc('\n', f);
    zr_table_print(t, f, zr_colour(f));
    if (dull)
        say(f, 0, "No difference: ", dull);
    if (folded)
        say(f, 0, "Changed with host.mirror: ", folded);
    free(dull);
    free(folded);
    if (doubts)
        fputs("?: more runs will tell\n", f);
    if (*r->footnote)
        say(f, 0, "", r->footnote);
}

void zr_ab_report_terminal(FILE *f, const struct zr_ab_report *r) {
    head(f, r);
    verdict(f, r);
    figures(f, r);
    mechanisms(f, r);
    fingerprint(f, r);
    details(f, r);
    fputc('\n', f);
    say(f, 0, "Runs: ", r->order);
    say(f, 0, "Machine: ", r->machine);
    say(f, 0, "Repeat: ", r->repeat);
}
