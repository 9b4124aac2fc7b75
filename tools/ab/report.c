/* What a report says, built once from the analysis: the renderers lay it out and add nothing. */
#include "ab/ab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *keep(struct zr_ab_report *r, char *text) {
    if (!text)
        return NULL;
    r->owned = zr_ab_more(r->owned, r->n_owned + 1, sizeof(*r->owned));
    return r->owned[r->n_owned++] = text;
}

/* --- arms ------------------------------------------------------------------------------------- */

static void say_arms(struct zr_ab_report *r) {
    const struct zr_ab *ab = r->ab;

    r->n_arms = ab->n_arms;
    for (size_t a = 0; a < ab->n_arms; a++)
        r->arm[a] = (struct zr_ab_report_arm){
            .label = ab->arm[a].name,
            .name = ab->arm[a].name,
            .setting = ab->arm[a].text,
            .runs = r->an->counted[a],
        };
}

/* --- fingerprint and mechanism ---------------------------------------------------------------- */

static const char *value_or(const char *value) {
    return *value ? value : "(not there)";
}

static bool refused(const struct zr_ab_difference *d) {
    return d->status == ZR_AB_UNDECLARED || d->status == ZR_AB_UNLIKE;
}

/* Several arms may differ from the first in the same thing. */
static bool told_before(const struct zr_ab_differences *d, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (d->at[k].status == d->at[i].status && d->at[k].arm != d->at[k].than && d->at[i].arm != d->at[i].than &&
            !strcmp(d->at[k].what, d->at[i].what) && !strcmp(d->at[k].value, d->at[i].value) &&
            !strcmp(d->at[k].other, d->at[i].other))
            return true;
    return false;
}

static void say_finding(struct zr_ab_report *r, const struct zr_ab_difference *d) {
    r->finding = zr_ab_more(r->finding, r->n_findings + 1, sizeof(*r->finding));
    struct zr_ab_report_finding *f = &r->finding[r->n_findings++];
    const char *arm = r->arm[d->arm].label, *than = r->arm[d->than].label;

    *f = (struct zr_ab_report_finding){.what = d->what, .status = zr_ab_status_name(d->status), .refused = refused(d)};
    if (d->arm == d->than && d->run == d->other_run) {
        f->line[0] = keep(r, zr_ab_text("in %s: %s, declared %s", arm, value_or(d->value), value_or(d->other)));
    } else if (d->arm == d->than) {
        f->line[0] = keep(r, zr_ab_text("in %s: %s in run %zu, %s in run %zu", arm, value_or(d->other), d->other_run,
                                        value_or(d->value), d->run));
    } else {
        f->line[0] = keep(r, zr_ab_text("%s: %s", than, value_or(d->other)));
        f->line[1] = keep(r, zr_ab_text("%s: %s", arm, value_or(d->value)));
    }
    if (d->status == ZR_AB_CONSEQUENCE)
        f->line[2] = keep(r, zr_ab_text("follows from %s", d->why));
}

/* What is refused first. */
static void say_fingerprint(struct zr_ab_report *r) {
    const struct zr_ab_differences *d = &r->an->differences;

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < d->n; i++)
            if (refused(&d->at[i]) == (pass == 0) && !told_before(d, i))
                say_finding(r, &d->at[i]);
    r->misleading = r->n_findings && r->finding[0].refused;
    r->fingerprint = r->misleading ? "the runs differ in more than was declared"
                                   : "the arms differ in what was declared, and in nothing else";
}

static void say_mechanisms(struct zr_ab_report *r) {
    r->mechanism = zr_ab_more(NULL, r->an->n_mechanisms, sizeof(*r->mechanism));
    r->n_mechanisms = r->an->n_mechanisms;
    for (size_t m = 0; m < r->n_mechanisms; m++) {
        const struct zr_ab_moved *one = &r->an->mechanism[m];
        struct zr_ab_report_mechanism *said = &r->mechanism[m];
        bool moved = false;

        *said = (struct zr_ab_report_mechanism){.name = one->name, .help = one->help};
        for (size_t a = 0; a < r->n_arms; a++) {
            said->value[a] = one->median[a];
            said->median[a] = isnan(one->median[a]) ? "-" : keep(r, zr_ab_text("%.6g", one->median[a]));
            moved |= one->arm[a].moved;
            said->refused |= one->arm[a].moved && !one->arm[a].expected && !one->arm[a].allowed;
        }
        said->note = !moved ? "" : said->refused ? "changed unexpectedly" : "changed";
    }
}

/* --- metrics ---------------------------------------------------------------------------------- */

static void say_cell(struct zr_ab_report *r, size_t metric, size_t arm, struct zr_ab_report_cell *cell) {
    const struct zr_ab_metric *m = &r->ab->metric[metric];
    const struct zr_ab_comparison *c = &r->an->row[metric].arm[arm];
    char text[ZR_AB_WORD], more[2 * ZR_AB_WORD];

    *cell = (struct zr_ab_report_cell){.change = "", .change_interval = "", .p = "", .outcome = "", .value = c->median};
    cell->median = keep(r, zr_ab_text("%s", zr_ab_number(text, m->unit, c->median)));
    cell->interval = keep(r, zr_ab_text("%s", zr_ab_interval_text(text, m->unit, c->median_interval)));
    if (arm == 0 || isnan(c->difference))
        return;
    zr_ab_change_text(m, c, text, more);
    cell->change = keep(r, zr_ab_text("%s", text));
    cell->change_interval = keep(r, zr_ab_text("%s", more));
    cell->p = keep(r, zr_ab_text("%s", zr_ab_p_text(text, c->p_corrected)));
    if (r->an->verdict && c->outcome != ZR_AB_NOT_TESTED)
        cell->outcome = zr_ab_outcome_word(m, c->outcome, zr_ab_outputs_alike(r->an));
}

/* Nothing to tell: not measured, or zero in every run. The primary metric is always told. */
static bool is_dull(const struct zr_ab *ab, const struct zr_ab_row *row) {
    if (row->primary || !row->measured)
        return !row->primary;
    for (size_t arm = 0; arm < ab->n_arms; arm++)
        if (row->arm[arm].median != 0 && !isnan(row->arm[arm].median))
            return false;
    return row->constant;
}

/* The same outcome, or a change the same way that more runs would make clear. */
static bool says_the_same(const struct zr_ab_comparison *a, const struct zr_ab_comparison *mirror) {
    bool lower = mirror->outcome == ZR_AB_LESS && a->difference < 0;
    bool higher = mirror->outcome == ZR_AB_MORE && a->difference > 0;

    return a->outcome == mirror->outcome || (a->outcome == ZR_AB_UNCLEAR && (lower || higher));
}

/* Measured beside the mirror, of the same pages: a row of its own where it changes otherwise. */
static bool is_like_mirror(const struct zr_ab_report *r, size_t metric) {
    static const char *const host[] = {"host.gpu_active", "host.available_drop", "host.imports",
                                       "host.per_device_byte"};
    size_t mirror = zr_ab_metric_index(r->ab, "host.mirror");
    bool of_host = false;

    for (size_t i = 0; i < sizeof host / sizeof *host; i++) {
        const char *end = r->ab->metric[metric].name + strlen(host[i]); /* host.imports.0000:03:00.0 is one of them */
        of_host =
            of_host || (strncmp(r->ab->metric[metric].name, host[i], strlen(host[i])) == 0 && (!*end || *end == '.'));
    }
    if (!of_host || mirror >= r->ab->n_metrics || !r->an->row[mirror].measured || r->an->row[metric].primary ||
        is_dull(r->ab, &r->an->row[mirror]))
        return false;
    for (size_t a = 1; a < r->n_arms; a++)
        if (!says_the_same(&r->an->row[metric].arm[a], &r->an->row[mirror].arm[a]))
            return false;
    return true;
}

/* The primary metric first. */
static void say_metrics(struct zr_ab_report *r) {
    r->metric = zr_ab_more(NULL, r->ab->n_metrics, sizeof(*r->metric));
    for (int pass = 0; pass < 2; pass++)
        for (size_t m = 0; m < r->ab->n_metrics; m++) {
            const struct zr_ab_row *row = &r->an->row[m];
            if (row->primary != (pass == 0) || is_dull(r->ab, row))
                continue;
            struct zr_ab_report_metric *said = &r->metric[r->n_metrics++];
            *said = (struct zr_ab_report_metric){.index = m,
                                                 .name = r->ab->metric[m].name,
                                                 .help = r->ab->metric[m].help,
                                                 .primary = row->primary,
                                                 .same = row->constant && !row->primary,
                                                 .drifts = row->drifts,
                                                 .folded = is_like_mirror(r, m)};
            for (size_t a = 0; a < r->n_arms; a++)
                say_cell(r, m, a, &said->cell[a]);
        }
    r->footnote = "p: Mann-Whitney U, Holm-corrected over quantities; a verdict needs p below 0.01.";
}

const char *zr_ab_report_prefix(const struct zr_ab_report_line *line) {
    return strcmp(line->kind, "note") ? "" : "note: ";
}

/* --- verdict ---------------------------------------------------------------------------------- */

static void say_line(struct zr_ab_report *r, const char *kind, const char *text) {
    r->line = zr_ab_more(r->line, r->n_lines + 1, sizeof(*r->line));
    r->line[r->n_lines++] = (struct zr_ab_report_line){kind, text};
}

static const char *hash_of_output(const struct zr_ab *ab) {
    for (size_t i = 0; i < ab->n_runs; i++)
        if (zr_ab_counts(&ab->run[i]))
            return zr_pairs_get(&ab->run[i].fingerprint, "output");
    return NULL;
}

static void say_verdict(struct zr_ab_report *r) {
    const struct zr_ab *ab = r->ab;
    const struct zr_ab_analysis *an = r->an;
    bool compared = an->verdict;

    r->headline = an->verdict ? "Verdict" : "No verdict";
    for (size_t i = 0; i < an->n_reasons; i++)
        say_line(r, "reason", an->reason[i]);
    for (size_t arm = 1; compared && arm < ab->n_arms; arm++) {
        const char *plain = keep(r, zr_ab_plain_sentence(ab, an, arm));
        if (plain)
            say_line(r, "verdict", plain);
    }
    for (size_t arm = 1; compared && arm < ab->n_arms; arm++)
        for (size_t m = 0; m < ab->n_metrics; m++)
            if (an->row[m].primary)
                say_line(r, "primary", keep(r, zr_ab_sentence(ab, an, m, arm)));
    for (size_t arm = 1; compared && arm < ab->n_arms; arm++) {
        const char *others = keep(r, zr_ab_others(ab, an, arm));
        if (others)
            say_line(r, "other", others);
    }
    const char *output = ab->same_output && zr_ab_outputs_alike(an) ? hash_of_output(ab) : NULL;
    if (output)
        say_line(r, "other", keep(r, zr_ab_text("the output is the same in every run (SHA-256 %.12s)", output)));
    for (size_t i = 0; i < an->n_remarks; i++)
        say_line(r, "note", an->remark[i]);
    if (r->misleading) {
        say_line(r, "advice", "The figures are not shown, for they would mislead; --json has them.");
        say_line(r, "advice", "To admit a difference by name: --allow NAME");
    }
}

static const char *machine_text(struct zr_ab_report *r) {
    char *out = zr_ab_text("%s", "");

    for (size_t i = 0; i < r->ab->machine.n; i++) {
        const struct zr_pair *p = &r->ab->machine.at[i];
        char *longer = zr_ab_text("%s%s%s %s", out, i ? ", " : "", p->name, p->value);
        free(out);
        out = longer;
    }
    return keep(r, out);
}

void zr_ab_report_build(struct zr_ab_report *r, const struct zr_ab *ab, const struct zr_ab_analysis *an) {
    *r = (struct zr_ab_report){.ab = ab, .an = an, .footnote = ""};
    r->command = keep(r, zr_ab_quoted(ab->command));
    r->started = ab->started ? ab->started : "";
    r->order =
        keep(r, zr_ab_text("order %s, seed %llu", ab->random_order ? "random" : "ABBA", (unsigned long long)ab->seed));
    r->machine = machine_text(r);
    r->repeat = ab->repeat ? ab->repeat : r->command;
    say_arms(r);
    say_fingerprint(r);
    if (!r->misleading) {
        say_mechanisms(r);
        say_metrics(r);
    }
    say_verdict(r);
}

void zr_ab_report_clear(struct zr_ab_report *r) {
    for (size_t i = 0; i < r->n_owned; i++)
        free(r->owned[i]);
    free(r->owned);
    free(r->finding);
    free(r->mechanism);
    free(r->metric);
    free(r->line);
    *r = (struct zr_ab_report){0};
}
