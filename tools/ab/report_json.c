/* Everything raw, versioned, and the analysis beside it. ab_load.c reads the raw part back. */
#include "ab/ab.h"
#include "common/common.h"

#include <math.h>
#include <stdlib.h>

static void named_interval(struct zr_json *j, const char *name, struct zr_interval i)
{
    zr_json_begin(j, name, '[');
    zr_json_double(j, i.low);
    zr_json_double(j, i.high);
    zr_json_close(j, ']');
}

static void named_pairs(struct zr_json *j, const char *name, const struct zr_pairs *p)
{
    zr_json_begin(j, name, '{');
    for (size_t i = 0; i < p->n; i++)
        zr_json_text(j, p->at[i].name, p->at[i].value);
    zr_json_close(j, '}');
}

static void named_texts(struct zr_json *j, const char *name, char *const *list, size_t n)
{
    zr_json_begin(j, name, '[');
    for (size_t i = 0; i < n; i++)
        zr_json_string(j, list[i]);
    zr_json_close(j, ']');
}

static void design(struct zr_json *j, const struct zr_ab *ab)
{
    zr_json_begin(j, "arms", '[');
    for (size_t a = 0; a < ab->n_arms; a++) {
        char *settings = zr_ab_settings(&ab->arm[a]);
        zr_json_open(j, '{');
        zr_json_text(j, "name", ab->arm[a].name);
        zr_json_text(j, "setting", ab->arm[a].text);
        zr_json_text(j, "settings", ab->arm[a].none ? "" : settings);
        if (ab->n_factors) {
            zr_json_begin(j, "level", '[');
            for (size_t i = 0; i < ab->n_factors; i++)
                zr_json_number(j, ab->arm[a].level[i]);
            zr_json_close(j, ']');
        }
        zr_json_close(j, '}');
        free(settings);
    }
    zr_json_close(j, ']');
    zr_json_begin(j, "factors", '[');
    for (size_t i = 0; i < ab->n_factors; i++) {
        zr_json_open(j, '{');
        zr_json_text(j, "name", ab->factor[i].name);
        named_texts(j, "levels", ab->factor[i].level, ab->factor[i].n_levels);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
    zr_json_begin(j, "metrics", '[');
    for (size_t m = 0; m < ab->n_metrics; m++) {
        zr_json_open(j, '{');
        zr_json_text(j, "name", ab->metric[m].name);
        zr_json_text(j, "unit", zr_ab_unit_name(ab->metric[m].unit));
        zr_json_text(j, "better", zr_ab_better_name(ab->metric[m].better));
        zr_json_text(j, "help", ab->metric[m].help);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
}

static void samples(struct zr_json *j, const struct zr_ab_run *run)
{
    static const char *const names[] = {"t",   "gpu_active", "mem_available",
                                        "rss", "vram",       "imports"};

    zr_json_begin(j, "samples", '{');
    for (size_t s = 0; s < sizeof(names) / sizeof(*names); s++) {
        zr_json_begin(j, names[s], '[');
        for (size_t i = 0; i < run->n_samples; i++) {
            const struct zr_ab_sample *x = &run->sample[i];
            const double v[] = {x->t, x->gpu_active, x->mem_available, x->rss, x->vram, x->imports};
            zr_json_double(j, v[s]);
        }
        zr_json_close(j, ']');
    }
    zr_json_close(j, '}');
}

static void runs(struct zr_json *j, const struct zr_ab *ab)
{
    zr_json_begin(j, "runs", '[');
    for (size_t r = 0; r < ab->n_runs; r++) {
        const struct zr_ab_run *run = &ab->run[r];
        zr_json_open(j, '{');
        zr_json_count(j, "number", run->number);
        zr_json_count(j, "arm", run->arm);
        zr_json_real(j, "status", run->status);
        zr_json_flag(j, "warmup", run->warmup);
        zr_json_flag(j, "settled", run->settled);
        zr_json_real(j, "waited", run->waited);
        if (run->invalid)
            zr_json_text(j, "invalid", run->invalid);
        zr_json_begin(j, "values", '{');
        for (size_t m = 0; m < ab->n_metrics; m++)
            if (isfinite(run->value[m]))
                zr_json_real(j, ab->metric[m].name, run->value[m]);
        zr_json_close(j, '}');
        named_pairs(j, "fingerprint", &run->fingerprint);
        named_pairs(j, "fields", &run->fields);
        samples(j, run);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
}

static void comparison(struct zr_json *j, const struct zr_ab_comparison *c, bool base)
{
    zr_json_open(j, '{');
    zr_json_count(j, "runs", c->n);
    zr_json_real(j, "median", c->median);
    named_interval(j, "median_interval", c->median_interval);
    if (!base) {
        zr_json_real(j, "difference", c->difference);
        named_interval(j, "difference_interval", c->difference_interval);
        zr_json_real(j, "change", c->change);
        named_interval(j, "change_interval", c->change_interval);
        zr_json_real(j, "p", c->p);
        zr_json_real(j, "p_corrected", c->p_corrected);
        zr_json_real(j, "cliff_delta", c->delta);
        zr_json_real(j, "noise", c->noise);
        zr_json_real(j, "runs_needed", c->needed);
        zr_json_real(j, "to_see", c->seen);
        zr_json_text(j, "outcome", zr_ab_outcome_name(c->outcome));
    }
    zr_json_close(j, '}');
}

static void analysed_metrics(struct zr_json *j, const struct zr_ab *ab,
                             const struct zr_ab_analysis *an)
{
    zr_json_begin(j, "metrics", '{');
    for (size_t m = 0; m < ab->n_metrics; m++) {
        if (!an->row[m].measured)
            continue;
        zr_json_begin(j, ab->metric[m].name, '{');
        zr_json_flag(j, "primary", an->row[m].primary);
        zr_json_flag(j, "constant", an->row[m].constant);
        zr_json_flag(j, "drifts", an->row[m].drifts);
        zr_json_begin(j, "arms", '[');
        for (size_t arm = 0; arm < ab->n_arms; arm++)
            comparison(j, &an->row[m].arm[arm], arm == 0);
        zr_json_close(j, ']');
        zr_json_close(j, '}');
    }
    zr_json_close(j, '}');
}

static void analysed_differences(struct zr_json *j, const struct zr_ab_analysis *an)
{
    zr_json_begin(j, "differences", '[');
    for (size_t i = 0; i < an->differences.n; i++) {
        const struct zr_ab_difference *d = &an->differences.at[i];
        zr_json_open(j, '{');
        zr_json_text(j, "what", d->what);
        zr_json_text(j, "status", zr_ab_status_name(d->status));
        zr_json_count(j, "arm", d->arm);
        zr_json_count(j, "than", d->than);
        zr_json_count(j, "run", d->run);
        zr_json_count(j, "than_run", d->other_run);
        zr_json_text(j, "value", d->value);
        zr_json_text(j, "than_value", d->other);
        zr_json_text(j, "why", d->why);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
}

static void analysed_mechanisms(struct zr_json *j, const struct zr_ab *ab,
                                const struct zr_ab_analysis *an)
{
    zr_json_begin(j, "mechanisms", '[');
    for (size_t m = 0; m < an->n_mechanisms; m++) {
        const struct zr_ab_moved *one = &an->mechanism[m];
        zr_json_open(j, '{');
        zr_json_text(j, "name", one->name);
        zr_json_begin(j, "arms", '[');
        for (size_t arm = 0; arm < ab->n_arms; arm++) {
            zr_json_open(j, '{');
            zr_json_real(j, "median", one->median[arm]);
            zr_json_flag(j, "moved", one->arm[arm].moved);
            zr_json_flag(j, "expected", one->arm[arm].expected);
            zr_json_close(j, '}');
        }
        zr_json_close(j, ']');
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
}

static void analysed_effects(struct zr_json *j, const struct zr_ab *ab,
                             const struct zr_ab_analysis *an)
{
    zr_json_begin(j, "effects", '[');
    for (size_t e = 0; e < an->n_effects; e++) {
        zr_json_open(j, '{');
        zr_json_begin(j, "factors", '{');
        for (size_t i = 0; i < ab->n_factors; i++)
            if (an->effect[e].level[i])
                zr_json_text(j, ab->factor[i].name, ab->factor[i].level[an->effect[e].level[i]]);
        zr_json_close(j, '}');
        zr_json_real(j, "estimate", an->effect[e].estimate);
        named_interval(j, "interval", an->effect[e].interval);
        zr_json_real(j, "p", an->effect[e].p);
        zr_json_real(j, "p_corrected", an->effect_corrected[e]);
        zr_json_flag(j, "found", an->effect_corrected[e] < ZR_AB_ALPHA);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
}

void zr_ab_report_json(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    struct zr_json writer, *j = &writer;
    char seed[24];
    size_t words = 0;

    while (ab->command && ab->command[words])
        words++;
    snprintf(seed, sizeof(seed), "%llu", (unsigned long long)ab->seed);
    zr_json_start(j, f);
    zr_json_open(j, '{');
    zr_json_text(j, "format", "zeroute ab");
    zr_json_count(j, "format_version", ZR_AB_FORMAT);
    zr_json_text(j, "zeroute_version", ZEROUTE_VERSION);
    zr_json_text(j, "started", ab->started ? ab->started : "");
    zr_json_text(j, "repeat", ab->repeat ? ab->repeat : "");
    named_texts(j, "command", ab->command, words);
    zr_json_text(j, "seed", seed); /* a text: 64 bits do not fit a JSON number */
    zr_json_text(j, "order", ab->random_order ? "random" : "abba");
    zr_json_text(j, "primary", ab->primary ? ab->primary : "wall");
    zr_json_real(j, "effect", ab->effect);
    zr_json_count(j, "planned_runs", ab->planned);
    zr_json_flag(j, "same_output", ab->same_output);
    zr_json_flag(j, "interrupted", ab->interrupted);
    named_texts(j, "allow", ab->allow, ab->n_allow);
    named_pairs(j, "machine", &ab->machine);
    design(j, ab);
    runs(j, ab);
    zr_json_begin(j, "analysis", '{');
    zr_json_flag(j, "verdict", an->verdict);
    zr_json_real(j, "alpha", ZR_AB_ALPHA);
    named_texts(j, "reasons", an->reason, an->n_reasons);
    named_texts(j, "remarks", an->remark, an->n_remarks);
    analysed_metrics(j, ab, an);
    analysed_differences(j, an);
    analysed_mechanisms(j, ab, an);
    analysed_effects(j, ab, an);
    zr_json_close(j, '}');
    zr_json_close(j, '}');
}
