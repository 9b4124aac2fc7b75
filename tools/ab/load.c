/* Reading a comparison back from its JSON: the raw part; the analysis is made anew from it. */
#include "ab/ab.h"
#include "common/json_parse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *copy_or(const char *s, const char *fallback)
{
    return zr_ab_text("%s", s ? s : fallback);
}

static void load_pairs(struct zr_pairs *p, const struct zr_node *object)
{
    for (size_t i = 0; object && object->type == ZR_NODE_OBJECT && i < object->n; i++)
        if (object->child[i].text)
            zr_pairs_set(p, object->child[i].key, object->child[i].text);
}

static char **load_texts(const struct zr_node *array, size_t *n)
{
    char **list = zr_ab_more(NULL, (array ? array->n : 0) + 1, sizeof(*list));

    *n = 0;
    for (size_t i = 0; array && array->type == ZR_NODE_ARRAY && i < array->n; i++)
        if (array->child[i].type == ZR_NODE_TEXT)
            list[(*n)++] = zr_ab_text("%s", array->child[i].text);
    list[*n] = NULL;
    return list;
}

static char *load_design(struct zr_ab *ab, const struct zr_node *root)
{
    const struct zr_node *arms = zr_node_get(root, "arms"), *factors = zr_node_get(root, "factors");
    const struct zr_node *metrics = zr_node_get(root, "metrics");
    char *wrong = NULL;

    if (!arms || arms->type != ZR_NODE_ARRAY || arms->n > ZR_AB_ARMS || !metrics ||
        metrics->type != ZR_NODE_ARRAY || (factors && factors->n > ZR_AB_FACTORS))
        return zr_ab_text("it has no arms or no metrics");
    for (size_t i = 0; factors && factors->type == ZR_NODE_ARRAY && i < factors->n; i++) {
        struct zr_ab_factor *f = &ab->factor[ab->n_factors++];
        const struct zr_node *levels = zr_node_get(&factors->child[i], "levels");
        f->name = copy_or(zr_node_text(&factors->child[i], "name"), "");
        for (size_t l = 0; levels && l < levels->n && l < ZR_AB_LEVELS; l++)
            f->level[f->n_levels++] = copy_or(levels->child[l].text, "");
    }
    for (size_t a = 0; !wrong && a < arms->n; a++) {
        struct zr_ab_arm *arm = &ab->arm[ab->n_arms++];
        const struct zr_node *level = zr_node_get(&arms->child[a], "level");
        const char *setting = zr_node_text(&arms->child[a], "setting");
        arm->name = copy_or(zr_node_text(&arms->child[a], "name"), "");
        wrong = zr_ab_arm_parse(arm, setting ? setting : "");
        for (size_t i = 0; level && i < level->n && i < ZR_AB_FACTORS; i++)
            arm->level[i] = (size_t)level->child[i].number;
    }
    for (size_t m = 0; m < metrics->n; m++) {
        const struct zr_node *one = &metrics->child[m];
        const char *unit = zr_node_text(one, "unit"), *better = zr_node_text(one, "better");
        int u = ZR_AB_SECONDS, b = ZR_AB_LOWER;
        while (u < ZR_AB_PLAIN && unit && strcmp(unit, zr_ab_unit_name((enum zr_ab_unit)u)))
            u++;
        while (b < ZR_AB_NEITHER && better &&
               strcmp(better, zr_ab_better_name((enum zr_ab_better)b)))
            b++;
        const char *name = zr_node_text(one, "name"), *help = zr_node_text(one, "help");
        zr_ab_metric_add(ab, name ? name : "", (enum zr_ab_unit)u, (enum zr_ab_better)b,
                         help ? help : "");
    }
    return wrong;
}

static double item(const struct zr_node *array, size_t i)
{
    return array && array->type == ZR_NODE_ARRAY && i < array->n &&
                   array->child[i].type == ZR_NODE_NUMBER
               ? array->child[i].number
               : NAN;
}

static void load_samples(struct zr_ab_run *run, const struct zr_node *samples)
{
    const struct zr_node *t = zr_node_get(samples, "t"),
                         *active = zr_node_get(samples, "gpu_active");
    const struct zr_node *available = zr_node_get(samples, "mem_available");
    const struct zr_node *rss = zr_node_get(samples, "rss"), *vram = zr_node_get(samples, "vram");
    const struct zr_node *imports = zr_node_get(samples, "imports");

    run->n_samples = t && t->type == ZR_NODE_ARRAY ? t->n : 0;
    run->sample = zr_ab_more(NULL, run->n_samples, sizeof(*run->sample));
    for (size_t i = 0; i < run->n_samples; i++)
        run->sample[i] = (struct zr_ab_sample){item(t, i),   item(active, i), item(available, i),
                                               item(rss, i), item(vram, i),   item(imports, i)};
}

static char *load_runs(struct zr_ab *ab, const struct zr_node *runs)
{
    for (size_t r = 0; runs && runs->type == ZR_NODE_ARRAY && r < runs->n; r++) {
        const struct zr_node *one = &runs->child[r], *values = zr_node_get(one, "values");
        double arm = zr_node_number(one, "arm"), status = zr_node_number(one, "status");
        if (!(arm >= 0 && arm < (double)ab->n_arms))
            return zr_ab_text("run %zu belongs to no arm", r + 1);
        struct zr_ab_run *run = zr_ab_run_add(ab);
        run->arm = (size_t)arm;
        run->number = (size_t)fmax(0, zr_node_number(one, "number"));
        run->status = isfinite(status) ? (int)status : 0;
        run->warmup = zr_node_true(one, "warmup");
        run->settled = zr_node_true(one, "settled");
        run->waited = zr_node_number(one, "waited");
        if (zr_node_text(one, "invalid"))
            run->invalid = zr_ab_text("%s", zr_node_text(one, "invalid"));
        for (size_t m = 0; m < ab->n_metrics; m++)
            run->value[m] = zr_node_number(values, ab->metric[m].name);
        load_pairs(&run->fingerprint, zr_node_get(one, "fingerprint"));
        load_pairs(&run->fields, zr_node_get(one, "fields"));
        load_samples(run, zr_node_get(one, "samples"));
    }
    return NULL;
}

char *zr_ab_load(struct zr_ab *ab, const char *file)
{
    char *wrong, *message;
    struct zr_node *root = zr_node_parse_file(file, &wrong);
    const char *format = zr_node_text(root, "format"), *seed = zr_node_text(root, "seed");
    const char *order = zr_node_text(root, "order");
    double version = zr_node_number(root, "format_version"),
           effect = zr_node_number(root, "effect");
    size_t n;

    if (!root)
        ;
    else if (!format || strcmp(format, "zeroute ab"))
        wrong = zr_ab_text("it is not a comparison: expected a file written by zeroute ab --json");
    else if (!(version >= 1 && version <= ZR_AB_FORMAT))
        wrong = zr_ab_text("its format version is %g: expected at most %d", version, ZR_AB_FORMAT);
    else
        wrong = load_design(ab, root);
    if (root && !wrong) {
        ab->command = load_texts(zr_node_get(root, "command"), &n);
        ab->allow = load_texts(zr_node_get(root, "allow"), &ab->n_allow);
        ab->seed = seed ? strtoull(seed, NULL, 10) : 0;
        ab->primary = copy_or(zr_node_text(root, "primary"), "wall");
        ab->started = copy_or(zr_node_text(root, "started"), "");
        ab->repeat = copy_or(zr_node_text(root, "repeat"), "");
        ab->effect = isfinite(effect) ? effect : 0;
        ab->random_order = order && !strcmp(order, "random");
        ab->planned = (size_t)fmax(0, zr_node_number(root, "planned_runs"));
        ab->same_output = zr_node_true(root, "same_output");
        ab->interrupted = zr_node_true(root, "interrupted");
        load_pairs(&ab->machine, zr_node_get(root, "machine"));
        wrong = load_runs(ab, zr_node_get(root, "runs"));
    }
    zr_node_free(root);
    message = wrong ? zr_ab_text("%s: %s", file, wrong) : NULL;
    free(wrong);
    return message;
}
