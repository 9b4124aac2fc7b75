/* The report for a pull request: the verdict first. */
#include "ab/ab.h"
#include "common/common.h"

#include <string.h>

/* A text inside a table. */
static void cell(FILE *f, const char *text) {
    for (; *text; text++) {
        if (*text == '|' || *text == '\\')
            fputc('\\', f);
        fputc(*text == '\n' ? ' ' : *text, f);
    }
}

static void verdict(FILE *f, const struct zr_ab_report *r) {
    fprintf(f, "### zeroute ab: %s\n\n", r->an->verdict ? "verdict" : "no verdict");
    for (size_t i = 0; i < r->n_lines; i++) {
        const char *bold = strcmp(r->line[i].kind, "verdict") ? "" : "**";
        fprintf(f, "- %s%s%s%s\n", bold, zr_ab_report_prefix(&r->line[i]), zr_shown(r->line[i].text), bold);
    }
}

/* The row of names, and the row that makes it a table. */
static void table_head(FILE *f, const struct zr_ab_report *r, const char *first, bool settings) {
    fprintf(f, "\n| %s", first);
    for (size_t a = 0; a < r->n_arms; a++) {
        fputs(" | ", f);
        cell(f, r->arm[a].name);
        if (settings && strcmp(r->arm[a].name, r->arm[a].setting)) {
            fputs(": `", f);
            cell(f, r->arm[a].setting);
            fputc('`', f);
        }
    }
    fputs(" |\n| ---", f);
    for (size_t a = 0; a < r->n_arms; a++)
        fputs(" | ---", f);
    fputs(" |\n", f);
}

static void metrics(FILE *f, const struct zr_ab_report *r) {
    table_head(f, r, "median (95 % interval)", true);
    for (size_t i = 0; i < r->n_metrics; i++) {
        const struct zr_ab_report_metric *m = &r->metric[i];
        fputs("| ", f);
        cell(f, m->name);
        fputs(m->drifts ? " (drifts)" : "", f);
        for (size_t a = 0; a < r->n_arms; a++) {
            const struct zr_ab_report_cell *c = &m->cell[a];
            fprintf(f, " | %s", c->median);
            if (m->same) {
                fputs(a ? "" : ", " ZR_AB_THE_SAME, f);
                continue;
            }
            fprintf(f, " (%s)", c->interval);
            if (*c->change)
                fprintf(f, ", %s (%s), p = %s%s%s", c->change, c->change_interval, c->p, *c->outcome ? ": " : "",
                        c->outcome);
        }
        fputs(" |\n", f);
    }
    if (*r->footnote)
        fprintf(f, "\n%s\n", zr_shown(r->footnote));
}

static void mechanisms(FILE *f, const struct zr_ab_report *r) {
    if (!r->n_mechanisms)
        return;
    table_head(f, r, "mechanism, median per run", false);
    for (size_t m = 0; m < r->n_mechanisms; m++) {
        fprintf(f, "| %s%s%s", r->mechanism[m].name, *r->mechanism[m].note ? ": " : "", r->mechanism[m].note);
        for (size_t a = 0; a < r->n_arms; a++)
            fprintf(f, " | %s", r->mechanism[m].median[a]);
        fputs(" |\n", f);
    }
}

void zr_ab_report_markdown(FILE *f, const struct zr_ab_report *r) {
    verdict(f, r);
    fprintf(f, "\n`%s`, %s, runs:", zr_shown(r->command), zr_shown(r->order));
    for (size_t a = 0; a < r->n_arms; a++)
        fprintf(f, "%s %s %zu", a ? "," : "", zr_shown(r->arm[a].name), r->arm[a].runs);
    fputc('\n', f);
    if (r->n_metrics)
        metrics(f, r);
    fprintf(f, "\nFingerprint: %s\n", zr_shown(r->fingerprint));
    for (size_t i = 0; i < r->n_findings; i++) {
        fprintf(f, "- %s: `%s`", r->finding[i].status, zr_shown(r->finding[i].what));
        for (size_t l = 0; l < ZR_AB_FINDING_LINES; l++)
            if (r->finding[i].line[l])
                fprintf(f, ", %s", zr_shown(r->finding[i].line[l]));
        fputc('\n', f);
    }
    mechanisms(f, r);
    fprintf(f, "\nMachine: %s\n\nRepeat:\n```sh\n%s\n```\n", zr_shown(r->machine), zr_shown(r->repeat));
}
