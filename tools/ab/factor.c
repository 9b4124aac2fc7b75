/* Full factorial designs: main effects and interactions, with intervals and permutation tests. */
#include "ab/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CELLS 256
#define PERMUTATIONS 4000

static void cell_levels(const struct zr_design *d, size_t cell, size_t *level) {
    for (size_t f = d->factors; f-- > 0; cell /= d->levels[f])
        level[f] = cell % d->levels[f];
}

size_t zr_factorial_effects(const struct zr_design *d, struct zr_effect *e, size_t max) {
    size_t n = 0;

    for (size_t order = 1; order <= d->factors && order <= 3; order++)
        for (size_t cell = 1; cell < d->cells; cell++) {
            struct zr_effect one = {.p = NAN};
            cell_levels(d, cell, one.level);
            for (size_t f = 0; f < d->factors; f++)
                one.order += one.level[f] > 0;
            if (one.order != order)
                continue;
            if (n < max)
                e[n] = one;
            n++;
        }
    return n;
}

/*
 * Weight of each cell in the contrast: for factors of the effect +1 at its level and -1 at level 0
 * (0 elsewhere), averaged over the levels of the factors outside.
 */
static void contrast(const struct zr_design *d, const struct zr_effect *e, double *weight) {
    for (size_t cell = 0; cell < d->cells; cell++) {
        size_t level[ZR_AB_FACTORS] = {0};
        double w = 1;
        cell_levels(d, cell, level);
        for (size_t f = 0; f < d->factors; f++) {
            if (e->level[f] == 0)
                w /= (double)d->levels[f];
            else if (level[f] == 0)
                w = -w;
            else if (level[f] != e->level[f])
                w = 0;
        }
        weight[cell] = w;
    }
}

static double weighted(const double *weight, const double *v, size_t cells) {
    double sum = 0;

    for (size_t c = 0; c < cells; c++)
        if (weight[c] != 0)
            sum += weight[c] * v[c];
    return sum;
}

static struct zr_interval interval(const struct zr_design *d, const double *weight, uint64_t seed) {
    struct zr_random r;
    size_t most = 0;
    double middle[MAX_CELLS] = {0}, *draw = malloc(ZR_AB_RESAMPLES * sizeof(*draw)), *sample;

    for (size_t c = 0; c < d->cells; c++)
        most = d->count[c] > most ? d->count[c] : most;
    sample = malloc((most + 1) * sizeof(*sample));
    if (!draw || !sample)
        abort();
    zr_random_seed(&r, seed);
    for (size_t i = 0; i < ZR_AB_RESAMPLES; i++) {
        for (size_t c = 0; c < d->cells; c++) {
            if (weight[c] == 0)
                continue;
            for (size_t k = 0; k < d->count[c]; k++)
                sample[k] = d->values[c][zr_random_below(&r, d->count[c])];
            middle[c] = zr_median(sample, d->count[c]);
        }
        draw[i] = weighted(weight, middle, d->cells);
    }
    struct zr_interval out = {zr_quantile(draw, ZR_AB_RESAMPLES, 0.025), zr_quantile(draw, ZR_AB_RESAMPLES, 0.975)};
    free(draw);
    free(sample);
    return out;
}

struct observation {
    double value;
    size_t cell, stratum;
};

static int by_observed(const void *x, const void *y) {
    const struct observation *a = x, *b = y;

    return (a->value > b->value) - (a->value < b->value);
}

static int by_stratum(const void *x, const void *y) {
    const struct observation *a = x, *b = y;

    return (a->stratum > b->stratum) - (a->stratum < b->stratum);
}

/* Values become mean ranks. Values that differ by no more than rounding are tied. */
static void rank_values(struct observation *o, size_t n) {
    double largest = 0;

    qsort(o, n, sizeof(*o), by_observed);
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(o[i].value));
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && o[j].value - o[j - 1].value <= largest * 1e-12; j++)
            ;
        double mean = 0.5 * (double)(i + 1 + j);
        for (size_t k = i; k < j; k++)
            o[k].value = mean;
    }
}

/*
 * The contrast of the cells' means. `studentised`: divided by its standard error, so that cells that
 * scatter more than others do not pass for an effect.
 */
static double statistic(const struct observation *o, size_t n, const double *weight, const struct zr_design *d,
                        bool studentised) {
    double mean[MAX_CELLS] = {0}, square[MAX_CELLS] = {0}, variance = 0;

    for (size_t i = 0; i < n; i++)
        mean[o[i].cell] += o[i].value / (double)d->count[o[i].cell];
    double sum = fabs(weighted(weight, mean, d->cells));
    if (!studentised)
        return sum;
    for (size_t i = 0; i < n; i++)
        square[o[i].cell] += (o[i].value - mean[o[i].cell]) * (o[i].value - mean[o[i].cell]);
    for (size_t c = 0; c < d->cells; c++)
        if (weight[c] != 0 && d->count[c] > 1)
            variance += weight[c] * weight[c] * square[c] / ((double)d->count[c] * (double)(d->count[c] - 1));
    return variance > 0 ? sum / sqrt(variance) : sum > 0 ? INFINITY : 0;
}

/* Where the stratum that starts at i ends. */
static size_t stratum_end(const struct observation *o, size_t n, size_t i) {
    size_t j = i + 1;

    while (j < n && o[j].stratum == o[i].stratum)
        j++;
    return j;
}

/*
 * Main effect: the values are ranked and permuted within each combination of the other factors, so
 * that nothing but this factor can explain the result. Interaction: lower effects are taken out and
 * what is left is permuted over the cells that take part.
 */
static size_t observe(const struct zr_design *d, const struct zr_effect *e, const double *weight,
                      struct observation *o) {
    double mean[MAX_CELLS] = {0}, rounding = 0;
    size_t n = 0;

    for (size_t c = 0; c < d->cells; c++) {
        for (size_t k = 0; k < d->count[c]; k++)
            mean[c] += d->values[c][k] / (double)d->count[c];
        rounding = fmax(rounding, 1e-12 * fabs(mean[c]));
    }
    double estimate = weighted(weight, mean, d->cells);

    for (size_t c = 0; c < d->cells; c++) {
        size_t level[ZR_AB_FACTORS], stratum = 0, part = 0;
        if (weight[c] == 0)
            continue;
        cell_levels(d, c, level);
        for (size_t f = 0; f < d->factors; f++) {
            part += e->level[f] > 0 && level[f] > 0;
            if (e->level[f] == 0)
                stratum = stratum * d->levels[f] + level[f];
        }
        double sign = (e->order - part) % 2 ? -1 : 1;
        double share = sign * estimate / (double)(1u << e->order);
        for (size_t k = 0; k < d->count[c]; k++, n++) {
            double rest = d->values[c][k] - mean[c] + share;
            o[n].value = e->order == 1 ? d->values[c][k] : fabs(rest) > rounding ? rest : 0;
            o[n].cell = c;
            o[n].stratum = e->order == 1 ? stratum : 0;
        }
    }
    qsort(o, n, sizeof(*o), by_stratum);
    for (size_t i = 0, j; e->order == 1 && i < n; i = j) {
        j = stratum_end(o, n, i);
        rank_values(o + i, j - i);
    }
    return n;
}

static double permutation_p(const struct zr_design *d, const struct zr_effect *e, const double *weight, uint64_t seed) {
    struct zr_random r;
    size_t total = 0, far = 0;

    for (size_t c = 0; c < d->cells; c++)
        total += d->count[c];
    struct observation *o = calloc(total ? total : 1, sizeof(*o));
    if (!o)
        abort();
    size_t n = observe(d, e, weight, o);
    double seen = statistic(o, n, weight, d, e->order > 1);
    zr_random_seed(&r, seed ^ 0x5bd1e995u);
    for (size_t round = 0; round < PERMUTATIONS; round++) {
        for (size_t i = 0, j; i < n; i = j) {
            j = stratum_end(o, n, i);
            for (size_t k = j - 1; k > i; k--) {
                size_t other = i + zr_random_below(&r, k - i + 1);
                double held = o[k].value;
                o[k].value = o[other].value;
                o[other].value = held;
            }
        }
        far += statistic(o, n, weight, d, e->order > 1) >= seen * (1 - 1e-9) - 1e-12;
    }
    free(o);
    return (double)(far + 1) / (PERMUTATIONS + 1);
}

void zr_factorial_measure(const struct zr_design *d, struct zr_effect *e, uint64_t seed) {
    double weight[MAX_CELLS], middle[MAX_CELLS] = {0};

    e->estimate = NAN;
    e->interval = (struct zr_interval){NAN, NAN};
    e->p = NAN;
    if (d->cells > MAX_CELLS)
        return;
    contrast(d, e, weight);
    for (size_t c = 0; c < d->cells; c++) {
        if (weight[c] != 0 && d->count[c] == 0)
            return;
        middle[c] = zr_median(d->values[c], d->count[c]);
    }
    e->estimate = weighted(weight, middle, d->cells);
    e->interval = interval(d, weight, seed);
    e->p = permutation_p(d, e, weight, seed);
}
