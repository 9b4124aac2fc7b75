/* The containers of `zeroute ab`: sorted pairs of texts, and struct zr_ab itself. */
#include "ab/ab.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* Where name is, or where it belongs. */
static size_t place_of(const struct zr_pairs *p, const char *name, bool *found) {
    size_t low = 0, high = p->n;

    *found = false;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = strcmp(p->at[middle].name, name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void zr_pairs_set(struct zr_pairs *p, const char *name, const char *value) {
    bool found;
    size_t i = place_of(p, name, &found);

    if (found) {
        char *copy = zr_ab_text("%s", value);
        free(p->at[i].value);
        p->at[i].value = copy;
        return;
    }
    p->at = zr_ab_more(p->at, p->n + 1, sizeof(*p->at));
    memmove(p->at + i + 1, p->at + i, (p->n - i) * sizeof(*p->at));
    p->at[i] = (struct zr_pair){zr_ab_text("%s", name), zr_ab_text("%s", value)};
    p->n++;
}

const char *zr_pairs_get(const struct zr_pairs *p, const char *name) {
    bool found;
    size_t i = place_of(p, name, &found);

    return found ? p->at[i].value : NULL;
}

void zr_pairs_copy(struct zr_pairs *to, const struct zr_pairs *from) {
    for (size_t i = 0; i < from->n; i++)
        zr_pairs_set(to, from->at[i].name, from->at[i].value);
}

void zr_pairs_clear(struct zr_pairs *p) {
    for (size_t i = 0; i < p->n; i++) {
        free(p->at[i].name);
        free(p->at[i].value);
    }
    free(p->at);
    *p = (struct zr_pairs){0};
}

double zr_ab_field_sum(const struct zr_pairs *fields, const char *expression) {
    char *copy = zr_ab_text("%s", expression), *rest = copy, *pattern;
    double sum = 0;

    while ((pattern = strsep(&rest, "+"))) {
        if (!strpbrk(pattern, "*?[")) {
            const char *value = zr_pairs_get(fields, pattern);
            sum += value ? strtod(value, NULL) : 0;
            continue;
        }
        for (size_t i = 0; i < fields->n; i++)
            if (fields->at[i].value && !fnmatch(pattern, fields->at[i].name, 0))
                sum += strtod(fields->at[i].value, NULL);
    }
    free(copy);
    return sum;
}

size_t zr_ab_metric_index(const struct zr_ab *ab, const char *name) {
    size_t i = 0;

    while (i < ab->n_metrics && strcmp(ab->metric[i].name, name))
        i++;
    return i;
}

size_t zr_ab_metric_add(struct zr_ab *ab, const char *name, enum zr_ab_unit unit, enum zr_ab_better better,
                        const char *help) {
    size_t i = zr_ab_metric_index(ab, name);

    if (i < ab->n_metrics)
        return i;
    ab->metric = zr_ab_more(ab->metric, ab->n_metrics + 1, sizeof(*ab->metric));
    ab->metric[ab->n_metrics++] = (struct zr_ab_metric){zr_ab_text("%s", name), unit, better, zr_ab_text("%s", help)};
    for (size_t r = 0; r < ab->n_runs; r++) {
        ab->run[r].value = zr_ab_more(ab->run[r].value, ab->n_metrics, sizeof(double));
        ab->run[r].value[i] = NAN;
    }
    return i;
}

struct zr_ab_run *zr_ab_run_add(struct zr_ab *ab) {
    ab->run = zr_ab_more(ab->run, ab->n_runs + 1, sizeof(*ab->run));
    struct zr_ab_run *run = &ab->run[ab->n_runs++];
    *run = (struct zr_ab_run){.settled = true};
    run->value = zr_ab_more(NULL, ab->n_metrics, sizeof(double));
    for (size_t m = 0; m < ab->n_metrics; m++)
        run->value[m] = NAN;
    return run;
}

bool zr_ab_counts(const struct zr_ab_run *run) {
    return !run->warmup && !run->invalid && WIFEXITED(run->status) && WEXITSTATUS(run->status) == 0;
}

double *zr_ab_values(const struct zr_ab *ab, size_t arm, size_t metric, size_t *n) {
    double *v = zr_ab_more(NULL, ab->n_runs, sizeof(*v));

    *n = 0;
    for (size_t r = 0; r < ab->n_runs; r++)
        if (ab->run[r].arm == arm && zr_ab_counts(&ab->run[r]) && isfinite(ab->run[r].value[metric]))
            v[(*n)++] = ab->run[r].value[metric];
    return v;
}

static void clear_arm(struct zr_ab_arm *arm) {
    for (size_t i = 0; i < arm->n_items; i++) {
        free(arm->items[i].key);
        free(arm->items[i].value);
    }
    free(arm->items);
    free(arm->name);
    free(arm->text);
}

static void clear_run(struct zr_ab_run *run) {
    free(run->value);
    free(run->invalid);
    free(run->sample);
    zr_pairs_clear(&run->fingerprint);
    zr_pairs_clear(&run->fields);
}

void zr_ab_run_drop(struct zr_ab *ab) {
    clear_run(&ab->run[--ab->n_runs]);
}

void zr_ab_clear(struct zr_ab *ab) {
    for (char **word = ab->command; word && *word; word++)
        free(*word);
    free(ab->command);
    for (size_t i = 0; i < ab->n_arms; i++)
        clear_arm(&ab->arm[i]);
    for (size_t m = 0; m < ab->n_metrics; m++) {
        free(ab->metric[m].name);
        free(ab->metric[m].help);
    }
    free(ab->metric);
    for (size_t r = 0; r < ab->n_runs; r++)
        clear_run(&ab->run[r]);
    free(ab->run);
    for (size_t i = 0; i < ab->n_allow; i++)
        free(ab->allow[i]);
    free(ab->allow);
    free(ab->primary);
    free(ab->started);
    free(ab->repeat);
    zr_pairs_clear(&ab->machine);
    *ab = (struct zr_ab){0};
}
