/* Reading a comparison back from its JSON: the raw part; the analysis is repeated from it. */
#include "ab/ab.h"

#include "common/common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *copy_or(const char *s, const char *fallback) {
    return zr_ab_text("%s", s ? s : fallback);
}

static void load_pairs(struct zr_pairs *p, json_t *object) {
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value) {
        char number[32];
        if (json_is_string(value))
            zr_pairs_set(p, key, json_string_value(value));
        else if (json_is_number(value)) {
            snprintf(number, sizeof(number), "%.17g", json_number_value(value));
            zr_pairs_set(p, key, number);
        }
    }
}

static char **load_texts(const json_t *array, size_t *n) {
    char **list = zr_ab_more(NULL, json_array_size(array) + 1, sizeof(*list));

    *n = 0;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *text = json_string_value(json_array_get(array, i));
        if (text)
            list[(*n)++] = zr_ab_text("%s", text);
    }
    list[*n] = NULL;
    return list;
}

static char *load_arm(struct zr_ab_arm *arm, const json_t *one) {
    const char *setting = zr_json_get_text(one, "setting");

    arm->name = copy_or(zr_json_get_text(one, "name"), "");
    return zr_ab_arm_parse(arm, setting ? setting : "");
}

static void load_metric(struct zr_ab *ab, const json_t *one) {
    const char *unit = zr_json_get_text(one, "unit"), *better = zr_json_get_text(one, "better");
    const char *name = zr_json_get_text(one, "name"), *help = zr_json_get_text(one, "help");
    int u = ZR_AB_SECONDS, b = ZR_AB_LOWER;

    while (u < ZR_AB_PLAIN && unit && strcmp(unit, zr_ab_unit_name((enum zr_ab_unit)u)))
        u++;
    while (b < ZR_AB_NEITHER && better && strcmp(better, zr_ab_better_name((enum zr_ab_better)b)))
        b++;
    zr_ab_metric_add(ab, name ? name : "", (enum zr_ab_unit)u, (enum zr_ab_better)b, help ? help : "");
}

static char *load_design(struct zr_ab *ab, const json_t *root) {
    const json_t *arms = json_object_get(root, "arms");
    const json_t *metrics = json_object_get(root, "metrics");
    char *wrong = NULL;

    if (!json_is_array(arms) || json_array_size(arms) > ZR_AB_ARMS || !json_is_array(metrics))
        return zr_ab_text("it has no arms or no metrics");
    if (json_array_size(json_object_get(root, "factors")))
        return zr_ab_text("it was made with --factor, which only earlier versions know");
    while (!wrong && ab->n_arms < json_array_size(arms)) {
        const json_t *one = json_array_get(arms, ab->n_arms);
        wrong = load_arm(&ab->arm[ab->n_arms++], one);
    }
    for (size_t m = 0; m < json_array_size(metrics); m++)
        load_metric(ab, json_array_get(metrics, m));
    return wrong;
}

static double item(const json_t *array, size_t i) {
    const json_t *value = json_array_get(array, i);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void load_samples(struct zr_ab_run *run, const json_t *samples) {
    const json_t *t = json_object_get(samples, "t"), *active = json_object_get(samples, "gpu_active");
    const json_t *available = json_object_get(samples, "mem_available");
    const json_t *rss = json_object_get(samples, "rss"), *vram = json_object_get(samples, "vram");
    const json_t *imports = json_object_get(samples, "imports");

    run->n_samples = json_array_size(t);
    run->sample = zr_ab_more(NULL, run->n_samples, sizeof(*run->sample));
    for (size_t i = 0; i < run->n_samples; i++)
        run->sample[i] = (struct zr_ab_sample){
            item(t, i), item(active, i), item(available, i), item(rss, i), item(vram, i), item(imports, i), NAN};
}

static char *load_runs(struct zr_ab *ab, const json_t *runs) {
    for (size_t r = 0; r < json_array_size(runs); r++) {
        const json_t *one = json_array_get(runs, r);
        const json_t *values = json_object_get(one, "values");
        double arm = zr_json_get_number(one, "arm"), status = zr_json_get_number(one, "status");
        const char *invalid = zr_json_get_text(one, "invalid");
        if (!(arm >= 0 && arm < (double)ab->n_arms))
            return zr_ab_text("run %zu belongs to no arm", r + 1);
        struct zr_ab_run *run = zr_ab_run_add(ab);
        run->arm = (size_t)arm;
        run->number = (size_t)fmax(0, zr_json_get_number(one, "number"));
        run->status = isfinite(status) ? (int)status : 0;
        run->warmup = zr_json_get_flag(one, "warmup");
        run->settled = zr_json_get_flag(one, "settled");
        run->waited = zr_json_get_number(one, "waited");
        run->invalid = invalid ? zr_ab_text("%s", invalid) : NULL;
        for (size_t m = 0; m < ab->n_metrics; m++)
            run->value[m] = zr_json_get_number(values, ab->metric[m].name);
        load_pairs(&run->fingerprint, json_object_get(one, "fingerprint"));
        load_pairs(&run->fields, json_object_get(one, "fields"));
        load_samples(run, json_object_get(one, "samples"));
    }
    return NULL;
}

static char *load_document(struct zr_ab *ab, const json_t *root) {
    double format = zr_json_get_number(root, "format"), effect = zr_json_get_number(root, "effect");
    const char *seed = zr_json_get_text(root, "seed"), *order = zr_json_get_text(root, "order");
    size_t n;

    if (isnan(format))
        return zr_ab_text("it is not a comparison: expected a file written by zeroute ab --json");
    if (format != ZR_AB_FORMAT && format != 2) /* in which counters were texts */
        return zr_ab_text("its format is %g: expected %d", format, ZR_AB_FORMAT);
    char *wrong = load_design(ab, root);
    if (wrong)
        return wrong;
    ab->command = load_texts(json_object_get(root, "command"), &n);
    ab->allow = load_texts(json_object_get(root, "allow"), &ab->n_allow);
    ab->seed = seed ? strtoull(seed, NULL, 10) : 0;
    ab->primary = copy_or(zr_json_get_text(root, "primary"), "");
    ab->started = copy_or(zr_json_get_text(root, "started"), "");
    ab->repeat = copy_or(zr_json_get_text(root, "repeat"), "");
    ab->effect = isfinite(effect) ? effect : 0;
    ab->random_order = order && !strcmp(order, "random");
    ab->planned = (size_t)fmax(0, zr_json_get_number(root, "planned_runs"));
    ab->same_output = zr_json_get_flag(root, "same_output");
    ab->interrupted = zr_json_get_flag(root, "interrupted");
    load_pairs(&ab->machine, json_object_get(root, "machine"));
    return load_runs(ab, json_object_get(root, "runs"));
}

char *zr_ab_load(struct zr_ab *ab, const char *file) {
    char *wrong;
    json_t *root = zr_json_read(file, &wrong);

    if (root)
        wrong = load_document(ab, root);
    char *message = root && !wrong ? NULL : zr_ab_text("%s: %s", file, wrong ? wrong : "out of memory");
    json_decref(root);
    free(wrong);
    return message;
}
