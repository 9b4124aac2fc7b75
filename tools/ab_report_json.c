/* Everything raw, versioned, and the analysis beside it. ab_load.c reads the raw part back. */
#include "ab.h"

#include <math.h>
#include <stdlib.h>

static void text(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

static void key(FILE *f, const char *name)
{
    text(f, name);
    fputc(':', f);
}

static void number(FILE *f, double v)
{
    if (isfinite(v))
        fprintf(f, "%.17g", v);
    else
        fputs("null", f);
}

static void named_text(FILE *f, const char *name, const char *value)
{
    key(f, name);
    text(f, value);
    fputc(',', f);
}

static void named_number(FILE *f, const char *name, double v)
{
    key(f, name);
    number(f, v);
    fputc(',', f);
}

static void named_bool(FILE *f, const char *name, bool v)
{
    fprintf(f, "\"%s\":%s,", name, v ? "true" : "false");
}

static void named_interval(FILE *f, const char *name, struct zr_interval i)
{
    key(f, name);
    fputc('[', f);
    number(f, i.low);
    fputc(',', f);
    number(f, i.high);
    fputs("],", f);
}

static void pairs(FILE *f, const struct zr_pairs *p)
{
    fputc('{', f);
    for (size_t i = 0; i < p->n; i++) {
        fputs(i ? "," : "", f);
        key(f, p->at[i].name);
        text(f, p->at[i].value);
    }
    fputc('}', f);
}

static void texts(FILE *f, const char *name, char *const *list, size_t n)
{
    key(f, name);
    fputc('[', f);
    for (size_t i = 0; i < n; i++) {
        fputs(i ? "," : "", f);
        text(f, list[i]);
    }
    fputc(']', f);
}

static void design(FILE *f, const struct zr_ab *ab)
{
    fputs("\"arms\":[", f);
    for (size_t a = 0; a < ab->n_arms; a++) {
        char *knobs = zr_ab_knobs(&ab->arm[a]);
        fprintf(f, "%s{", a ? "," : "");
        named_text(f, "name", ab->arm[a].name);
        named_text(f, "knobs", ab->arm[a].none ? "" : knobs);
        key(f, "setting");
        text(f, ab->arm[a].text);
        if (ab->n_factors) {
            fputs(",\"level\":[", f);
            for (size_t i = 0; i < ab->n_factors; i++)
                fprintf(f, "%s%zu", i ? "," : "", ab->arm[a].level[i]);
            fputc(']', f);
        }
        fputc('}', f);
        free(knobs);
    }
    fputs("],\n\"factors\":[", f);
    for (size_t i = 0; i < ab->n_factors; i++) {
        fprintf(f, "%s{", i ? "," : "");
        named_text(f, "name", ab->factor[i].name);
        texts(f, "levels", ab->factor[i].level, ab->factor[i].n_levels);
        fputc('}', f);
    }
    fputs("],\n\"metrics\":[", f);
    for (size_t m = 0; m < ab->n_metrics; m++) {
        fprintf(f, "%s\n{", m ? "," : "");
        named_text(f, "name", ab->metric[m].name);
        named_text(f, "unit", zr_ab_unit_name(ab->metric[m].unit));
        named_text(f, "better", zr_ab_better_name(ab->metric[m].better));
        key(f, "help");
        text(f, ab->metric[m].help);
        fputc('}', f);
    }
    fputs("],\n", f);
}

static void samples(FILE *f, const struct zr_ab_run *run)
{
    static const char *const names[] = {"t", "gpu_active", "mem_available", "rss", "vram", "imports"};

    fputs("\"samples\":{", f);
    for (size_t s = 0; s < sizeof(names) / sizeof(*names); s++) {
        fprintf(f, "%s\"%s\":[", s ? "," : "", names[s]);
        for (size_t i = 0; i < run->n_samples; i++) {
            const struct zr_ab_sample *x = &run->sample[i];
            const double v[] = {x->t, x->gpu_active, x->mem_available, x->rss, x->vram, x->imports};
            fputs(i ? "," : "", f);
            number(f, v[s]);
        }
        fputc(']', f);
    }
    fputc('}', f);
}

static void runs(FILE *f, const struct zr_ab *ab)
{
    fputs("\"runs\":[", f);
    for (size_t r = 0; r < ab->n_runs; r++) {
        const struct zr_ab_run *run = &ab->run[r];
        bool first = true;
        fprintf(f, "%s\n{\"number\":%zu,\"arm\":%zu,\"status\":%d,", r ? "," : "", run->number, run->arm,
                run->status);
        named_bool(f, "warmup", run->warmup);
        named_bool(f, "settled", run->settled);
        named_number(f, "waited", run->waited);
        if (run->invalid)
            named_text(f, "invalid", run->invalid);
        fputs("\"values\":{", f);
        for (size_t m = 0; m < ab->n_metrics; m++) {
            if (!isfinite(run->value[m]))
                continue;
            fputs(first ? "" : ",", f);
            key(f, ab->metric[m].name);
            number(f, run->value[m]);
            first = false;
        }
        fputs("},\"fingerprint\":", f);
        pairs(f, &run->fingerprint);
        fputs(",\"fields\":", f);
        pairs(f, &run->fields);
        fputc(',', f);
        samples(f, run);
        fputc('}', f);
    }
    fputs("],\n", f);
}

static void comparison(FILE *f, const struct zr_ab_comparison *c, bool base)
{
    fprintf(f, "{\"runs\":%zu,", c->n);
    named_interval(f, "median_interval", c->median_interval);
    if (!base) {
        named_number(f, "difference", c->difference);
        named_interval(f, "difference_interval", c->difference_interval);
        named_number(f, "change", c->change);
        named_interval(f, "change_interval", c->change_interval);
        named_number(f, "p", c->p);
        named_number(f, "p_corrected", c->p_corrected);
        named_number(f, "cliff_delta", c->delta);
        named_number(f, "noise", c->noise);
        named_number(f, "runs_needed", c->needed);
        named_number(f, "to_see", c->seen);
        named_text(f, "outcome", zr_ab_outcome_name(c->outcome));
    }
    key(f, "median");
    number(f, c->median);
    fputc('}', f);
}

static void analysed_metrics(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    bool first = true;

    fputs("\"metrics\":{", f);
    for (size_t m = 0; m < ab->n_metrics; m++) {
        if (!an->row[m].measured)
            continue;
        fputs(first ? "\n" : ",\n", f);
        first = false;
        key(f, ab->metric[m].name);
        fputc('{', f);
        named_bool(f, "primary", an->row[m].primary);
        named_bool(f, "constant", an->row[m].constant);
        named_bool(f, "drifts", an->row[m].drifts);
        fputs("\"arms\":[", f);
        for (size_t arm = 0; arm < ab->n_arms; arm++) {
            fputs(arm ? "," : "", f);
            comparison(f, &an->row[m].arm[arm], arm == 0);
        }
        fputs("]}", f);
    }
    fputs("},\n", f);
}

static void analysed_differences(FILE *f, const struct zr_ab_analysis *an)
{
    fputs("\"differences\":[", f);
    for (size_t i = 0; i < an->differences.n; i++) {
        const struct zr_ab_difference *d = &an->differences.at[i];
        fprintf(f, "%s\n{", i ? "," : "");
        named_text(f, "what", d->what);
        named_text(f, "status", zr_ab_status_name(d->status));
        fprintf(f, "\"arm\":%zu,\"than\":%zu,\"run\":%zu,\"than_run\":%zu,", d->arm, d->than, d->run,
                d->other_run);
        named_text(f, "value", d->value);
        named_text(f, "than_value", d->other);
        key(f, "why");
        text(f, d->why);
        fputc('}', f);
    }
    fputs("],\n", f);
}

static void analysed_mechanisms(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    fputs("\"mechanisms\":[", f);
    for (size_t m = 0; m < an->n_mechanisms; m++) {
        const struct zr_ab_moved *one = &an->mechanism[m];
        fprintf(f, "%s\n{", m ? "," : "");
        named_text(f, "name", one->name);
        fputs("\"arms\":[", f);
        for (size_t arm = 0; arm < ab->n_arms; arm++) {
            fprintf(f, "%s{", arm ? "," : "");
            named_bool(f, "moved", one->arm[arm].moved);
            named_bool(f, "expected", one->arm[arm].expected);
            key(f, "median");
            number(f, one->median[arm]);
            fputc('}', f);
        }
        fputs("]}", f);
    }
    fputs("],\n", f);
}

static void analysed_effects(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    fputs("\"effects\":[", f);
    for (size_t e = 0; e < an->n_effects; e++) {
        bool first = true;
        fprintf(f, "%s\n{\"factors\":{", e ? "," : "");
        for (size_t i = 0; i < ab->n_factors; i++) {
            if (!an->effect[e].level[i])
                continue;
            fputs(first ? "" : ",", f);
            key(f, ab->factor[i].name);
            text(f, ab->factor[i].level[an->effect[e].level[i]]);
            first = false;
        }
        fputs("},", f);
        named_interval(f, "interval", an->effect[e].interval);
        named_number(f, "p", an->effect[e].p);
        named_number(f, "p_corrected", an->effect_corrected[e]);
        key(f, "estimate");
        number(f, an->effect[e].estimate);
        fputc('}', f);
    }
    fputs("],\n", f);
}

void zr_ab_report_json(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an)
{
    size_t words = 0;

    while (ab->command && ab->command[words])
        words++;
    fprintf(f, "{\"format\":\"zeroute ab\",\"format_version\":%d,", ZR_AB_FORMAT);
    named_text(f, "zeroute_version", ZEROUTE_VERSION);
    named_text(f, "started", ab->started ? ab->started : "");
    named_text(f, "repeat", ab->repeat ? ab->repeat : "");
    texts(f, "command", ab->command, words);
    fprintf(f, ",\n\"seed\":\"%llu\",", (unsigned long long)ab->seed);
    named_text(f, "order", ab->random_order ? "random" : "abba");
    named_text(f, "primary", ab->primary ? ab->primary : "wall");
    named_number(f, "effect", ab->effect);
    named_number(f, "planned_runs", (double)ab->planned);
    named_bool(f, "same_output", ab->same_output);
    named_bool(f, "interrupted", ab->interrupted);
    texts(f, "allow", ab->allow, ab->n_allow);
    fputs(",\n\"machine\":", f);
    pairs(f, &ab->machine);
    fputs(",\n", f);
    design(f, ab);
    runs(f, ab);
    fputs("\"analysis\":{", f);
    named_bool(f, "verdict", an->verdict);
    texts(f, "reasons", an->reason, an->n_reasons);
    fputc(',', f);
    texts(f, "remarks", an->remark, an->n_remarks);
    fputs(",\n", f);
    analysed_metrics(f, ab, an);
    analysed_differences(f, an);
    analysed_mechanisms(f, ab, an);
    analysed_effects(f, ab, an);
    fprintf(f, "\"alpha\":%g}}\n", ZR_AB_ALPHA);
}
