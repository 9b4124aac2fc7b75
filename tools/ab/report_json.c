/* Everything raw, versioned, and the analysis beside it. ab_load.c reads the raw part back. */
#include "ab/ab.h"
#include "common/common.h"

#include <math.h>
#include <stdlib.h>

static void named_interval(json_t *j, const char *name, struct zr_interval i) {
    json_t *named = zr_json_array(j, name);
    zr_json_real(named, NULL, i.low);
    zr_json_real(named, NULL, i.high);
}

static void named_pairs(json_t *j, const char *name, const struct zr_pairs *p) {
    json_t *named = zr_json_object(j, name);
    for (size_t i = 0; i < p->n; i++)
        zr_json_text(named, p->at[i].name, p->at[i].value);
}

/* Counters, as numbers: as in every other document. */
static void named_numbers(json_t *j, const char *name, const struct zr_pairs *p) {
    json_t *object = zr_json_object(j, name);

    for (size_t i = 0; i < p->n; i++)
        zr_json_count(object, p->at[i].name, strtoull(p->at[i].value, NULL, 10));
}

static void named_texts(json_t *j, const char *name, char *const *list, size_t n) {
    json_t *named = zr_json_array(j, name);
    for (size_t i = 0; i < n; i++)
        zr_json_text(named, NULL, list[i]);
}

static void design(json_t *j, const struct zr_ab *ab) {
    json_t *arms = zr_json_array(j, "arms");
    for (size_t a = 0; a < ab->n_arms; a++) {
        char *settings = zr_ab_settings(&ab->arm[a]);
        json_t *item = zr_json_object(arms, NULL);
        zr_json_text(item, "name", ab->arm[a].name);
        zr_json_text(item, "setting", ab->arm[a].text);
        zr_json_text(item, "settings", ab->arm[a].none ? "" : settings);
        free(settings);
    }
    json_t *metrics = zr_json_array(j, "metrics");
    for (size_t m = 0; m < ab->n_metrics; m++) {
        json_t *item = zr_json_object(metrics, NULL);
        zr_json_text(item, "name", ab->metric[m].name);
        zr_json_text(item, "unit", zr_ab_unit_name(ab->metric[m].unit));
        zr_json_text(item, "better", zr_ab_better_name(ab->metric[m].better));
        zr_json_text(item, "help", ab->metric[m].help);
    }
}

static void samples(json_t *j, const struct zr_ab_run *run) {
    static const char *const names[] = {"t", "gpu_active", "mem_available", "rss", "vram", "imports"};

    json_t *samples = zr_json_object(j, "samples");
    for (size_t s = 0; s < sizeof(names) / sizeof(*names); s++) {
        json_t *named = zr_json_array(samples, names[s]);
        for (size_t i = 0; i < run->n_samples; i++) {
            const struct zr_ab_sample *x = &run->sample[i];
            const double v[] = {x->t, x->gpu_active, x->mem_available, x->rss, x->vram, x->imports};
            zr_json_real(named, NULL, v[s]);
        }
    }
}

static void runs(json_t *j, const struct zr_ab *ab) {
    json_t *runs = zr_json_array(j, "runs");
    for (size_t r = 0; r < ab->n_runs; r++) {
        const struct zr_ab_run *run = &ab->run[r];
        json_t *item = zr_json_object(runs, NULL);
        zr_json_count(item, "number", run->number);
        zr_json_count(item, "arm", run->arm);
        zr_json_count(item, "status", (uint64_t)run->status);
        zr_json_flag(item, "warmup", run->warmup);
        zr_json_flag(item, "settled", run->settled);
        zr_json_real(item, "waited", run->waited);
        if (run->invalid)
            zr_json_text(item, "invalid", run->invalid);
        json_t *values = zr_json_object(item, "values");
        for (size_t m = 0; m < ab->n_metrics; m++)
            if (isfinite(run->value[m]))
                zr_json_real(values, ab->metric[m].name, run->value[m]);
        named_pairs(item, "fingerprint", &run->fingerprint);
        named_numbers(item, "fields", &run->fields);
        samples(item, run);
    }
}

static void comparison(json_t *j, const struct zr_ab_comparison *c, bool base) {
    json_t *item = zr_json_object(j, NULL);
    zr_json_count(item, "runs", c->n);
    zr_json_real(item, "median", c->median);
    named_interval(item, "median_interval", c->median_interval);
    if (!base) {
        zr_json_real(item, "difference", c->difference);
        named_interval(item, "difference_interval", c->difference_interval);
        zr_json_real(item, "change", c->change);
        named_interval(item, "change_interval", c->change_interval);
        zr_json_real(item, "p", c->p);
        zr_json_real(item, "p_corrected", c->p_corrected);
        zr_json_real(item, "cliff_delta", c->delta);
        zr_json_real(item, "noise", c->noise);
        zr_json_real(item, "runs_needed", c->needed);
        zr_json_real(item, "to_see", c->seen);
        zr_json_text(item, "outcome", zr_ab_outcome_name(c->outcome));
    }
}

static void analysed_metrics(json_t *j, const struct zr_ab *ab, const struct zr_ab_analysis *an) {
    json_t *metrics = zr_json_object(j, "metrics");
    for (size_t m = 0; m < ab->n_metrics; m++) {
        if (!an->row[m].measured)
            continue;
        json_t *named = zr_json_object(metrics, ab->metric[m].name);
        zr_json_flag(named, "primary", an->row[m].primary);
        zr_json_flag(named, "constant", an->row[m].constant);
        zr_json_flag(named, "drifts", an->row[m].drifts);
        json_t *arms = zr_json_array(named, "arms");
        for (size_t arm = 0; arm < ab->n_arms; arm++)
            comparison(arms, &an->row[m].arm[arm], arm == 0);
    }
}

static void analysed_differences(json_t *j, const struct zr_ab_analysis *an) {
    json_t *differences = zr_json_array(j, "differences");
    for (size_t i = 0; i < an->differences.n; i++) {
        const struct zr_ab_difference *d = &an->differences.at[i];
        json_t *item = zr_json_object(differences, NULL);
        zr_json_text(item, "what", d->what);
        zr_json_text(item, "status", zr_ab_status_name(d->status));
        zr_json_count(item, "arm", d->arm);
        zr_json_count(item, "than", d->than);
        zr_json_count(item, "run", d->run);
        zr_json_count(item, "than_run", d->other_run);
        zr_json_text(item, "value", d->value);
        zr_json_text(item, "than_value", d->other);
        zr_json_text(item, "why", d->why);
    }
}

static void analysed_mechanisms(json_t *j, const struct zr_ab *ab, const struct zr_ab_analysis *an) {
    json_t *mechanisms = zr_json_array(j, "mechanisms");
    for (size_t m = 0; m < an->n_mechanisms; m++) {
        const struct zr_ab_moved *one = &an->mechanism[m];
        json_t *item = zr_json_object(mechanisms, NULL);
        zr_json_text(item, "name", one->name);
        json_t *arms = zr_json_array(item, "arms");
        for (size_t arm = 0; arm < ab->n_arms; arm++) {
            json_t *inner = zr_json_object(arms, NULL);
            zr_json_real(inner, "median", one->median[arm]);
            zr_json_flag(inner, "moved", one->arm[arm].moved);
            zr_json_flag(inner, "expected", one->arm[arm].expected);
        }
    }
}

/* The sentences of the other reports; their figures are those of the analysis. */
static void said(json_t *document, const struct zr_ab_report *r) {
    json_t *report = zr_json_object(document, "report");

    zr_json_text(report, "headline", r->headline);
    json_t *lines = zr_json_array(report, "lines");
    for (size_t i = 0; i < r->n_lines; i++) {
        json_t *line = zr_json_object(lines, NULL);
        zr_json_text(line, "kind", r->line[i].kind);
        zr_json_text(line, "text", r->line[i].text);
    }
    zr_json_text(report, "fingerprint", r->fingerprint);
    zr_json_text(report, "footnote", r->footnote);
    zr_json_text(report, "machine", r->machine);
}

void zr_ab_report_json(FILE *f, const struct zr_ab_report *r) {
    const struct zr_ab *ab = r->ab;
    const struct zr_ab_analysis *an = r->an;
    char seed[24];
    size_t words = 0;

    while (ab->command && ab->command[words])
        words++;
    snprintf(seed, sizeof(seed), "%llu", (unsigned long long)ab->seed);
    json_t *document = zr_json_document(ZR_AB_FORMAT);
    zr_json_text(document, "zeroute_version", ZEROUTE_VERSION);
    zr_json_text(document, "started", ab->started ? ab->started : "");
    zr_json_text(document, "repeat", ab->repeat ? ab->repeat : "");
    named_texts(document, "command", ab->command, words);
    zr_json_text(document, "seed", seed); /* a text: 64 bits do not fit a JSON number */
    zr_json_text(document, "order", ab->random_order ? "random" : "abba");
    zr_json_text(document, "primary", zr_ab_primary_names(ab));
    zr_json_real(document, "effect", ab->effect);
    zr_json_count(document, "planned_runs", ab->planned);
    zr_json_flag(document, "same_output", ab->same_output);
    zr_json_flag(document, "interrupted", ab->interrupted);
    named_texts(document, "allow", ab->allow, ab->n_allow);
    named_pairs(document, "machine", &ab->machine);
    design(document, ab);
    runs(document, ab);
    json_t *analysis = zr_json_object(document, "analysis");
    zr_json_flag(analysis, "verdict", an->verdict);
    zr_json_real(analysis, "alpha", ZR_AB_ALPHA);
    named_texts(analysis, "reasons", an->reason, an->n_reasons);
    named_texts(analysis, "remarks", an->remark, an->n_remarks);
    analysed_metrics(analysis, ab, an);
    analysed_differences(analysis, an);
    analysed_mechanisms(analysis, ab, an);
    said(document, r);
    zr_json_write(f, document, 17, false);
}
