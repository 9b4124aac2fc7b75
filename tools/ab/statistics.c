/* Median, bootstrap, Mann-Whitney U, Holm, drift, runs needed: the statistics behind a verdict. */
#include "ab/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_LIMIT 80

static uint64_t rotate_left(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

void zr_random_seed(struct zr_random *r, uint64_t seed) {
    for (int i = 0; i < 4; i++) { /* splitmix64 */
        uint64_t z = (seed += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        r->s[i] = z ^ (z >> 31);
    }
}

static uint64_t next(struct zr_random *r) {
    uint64_t *s = r->s, out = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return out;
}

static double unit(struct zr_random *r) {
    return (double)(next(r) >> 11) * 0x1p-53;
}

/* Multiplication instead of division: the bias is n / 2^32, far below what any figure here shows. */
size_t zr_random_below(struct zr_random *r, size_t n) {
    return (size_t)((next(r) >> 32) * (uint64_t)n >> 32);
}

double zr_random_normal(struct zr_random *r) {
    double u = 1.0 - unit(r), v = unit(r);

    return sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * v);
}

static int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

static double *sorted_copy(const double *v, size_t n) {
    double *copy = malloc((n ? n : 1) * sizeof(*copy));

    if (!copy)
        abort();
    if (n)
        memcpy(copy, v, n * sizeof(*copy));
    qsort(copy, n, sizeof(*copy), by_value);
    return copy;
}

static double quantile_of_sorted(const double *v, size_t n, double q) {
    double at = q * (double)(n - 1);
    size_t i = (size_t)at;

    if (i + 1 >= n)
        return v[n - 1];
    return v[i] + (at - (double)i) * (v[i + 1] - v[i]);
}

double zr_quantile(const double *v, size_t n, double q) {
    if (n == 0)
        return NAN;
    double *copy = sorted_copy(v, n), result = quantile_of_sorted(copy, n, q);
    free(copy);
    return result;
}

double zr_median(const double *v, size_t n) {
    return zr_quantile(v, n, 0.5);
}

double zr_spread(const double *v, size_t n) {
    if (n == 0)
        return NAN;
    double m = zr_median(v, n), *off = malloc(n * sizeof(*off)), result;

    if (!off)
        abort();
    for (size_t i = 0; i < n; i++)
        off[i] = fabs(v[i] - m);
    result = 1.4826022185056018 * zr_median(off, n);
    free(off);
    return result;
}

double zr_deviation(const double *v, size_t n) {
    double mean = 0, sum = 0;

    if (n < 2)
        return n ? 0 : NAN;
    for (size_t i = 0; i < n; i++)
        mean += v[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        sum += (v[i] - mean) * (v[i] - mean);
    return sqrt(sum / (double)(n - 1));
}

double zr_normal_below(double z) {
    return 0.5 * erfc(-z * M_SQRT1_2);
}

/* Bisection on the distribution: exact to the last bits, and needs no table. */
double zr_normal_quantile(double p) {
    double low = -40, high = 40;

    if (!(p > 0))
        return -INFINITY;
    if (!(p < 1))
        return INFINITY;
    for (int i = 0; i < 100; i++) {
        double middle = 0.5 * (low + high);
        if (zr_normal_below(middle) < p)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

/* --- bootstrap -------------------------------------------------------------------------------- */

/* The source is sorted: drawing indices and counting them gives the median in linear time. */
static double resampled_median(const double *sorted, size_t n, unsigned *count, struct zr_random *r) {
    size_t low = (n - 1) / 2, high = n / 2, seen = 0;
    double at_low = 0;
    bool have_low = false;

    memset(count, 0, n * sizeof(*count));
    for (size_t i = 0; i < n; i++)
        count[zr_random_below(r, n)]++;
    for (size_t i = 0; i < n; i++) {
        seen += count[i];
        if (!have_low && seen > low) {
            at_low = sorted[i];
            have_low = true;
        }
        if (seen > high)
            return 0.5 * (at_low + sorted[i]);
    }
    return sorted[n - 1];
}

static struct zr_interval middle_95(double *draws, size_t n) {
    struct zr_interval out = {NAN, NAN};

    for (size_t i = 0; i < n; i++)
        if (!isfinite(draws[i]))
            return out;
    qsort(draws, n, sizeof(*draws), by_value);
    out.low = quantile_of_sorted(draws, n, 0.025);
    out.high = quantile_of_sorted(draws, n, 0.975);
    return out;
}

struct zr_interval zr_bootstrap_median(const double *v, size_t n, uint64_t seed) {
    struct zr_interval out = {NAN, NAN};
    double *draws = malloc(ZR_AB_RESAMPLES * sizeof(*draws)), *sorted = sorted_copy(v, n);
    unsigned *count = malloc((n + 1) * sizeof(*count));
    struct zr_random r;

    if (!draws || !count)
        abort();
    zr_random_seed(&r, seed);
    for (size_t i = 0; n && i < ZR_AB_RESAMPLES; i++)
        draws[i] = resampled_median(sorted, n, count, &r);
    if (n)
        out = middle_95(draws, ZR_AB_RESAMPLES);
    free(draws);
    free(sorted);
    free(count);
    return out;
}

void zr_bootstrap_compare(const double *a, size_t na, const double *b, size_t nb, uint64_t seed,
                          struct zr_interval *difference, struct zr_interval *change) {
    struct zr_random r;

    *difference = *change = (struct zr_interval){NAN, NAN};
    if (na == 0 || nb == 0)
        return;
    double *sa = sorted_copy(a, na), *sb = sorted_copy(b, nb);
    double *draws = malloc(ZR_AB_RESAMPLES * sizeof(*draws));
    double *ratios = malloc(ZR_AB_RESAMPLES * sizeof(*ratios));
    unsigned *count = malloc((na > nb ? na : nb) * sizeof(*count));

    if (!draws || !ratios || !count)
        abort();
    zr_random_seed(&r, seed);
    for (size_t i = 0; i < ZR_AB_RESAMPLES; i++) {
        double ma = resampled_median(sa, na, count, &r), mb = resampled_median(sb, nb, count, &r);
        draws[i] = mb - ma;
        ratios[i] = mb / ma - 1;
    }
    *difference = middle_95(draws, ZR_AB_RESAMPLES);
    *change = middle_95(ratios, ZR_AB_RESAMPLES);
    free(sa);
    free(sb);
    free(draws);
    free(ratios);
    free(count);
}

/* --- Mann-Whitney ----------------------------------------------------------------------------- */

struct ranked {
    double value;
    bool of_b;
};

static int by_ranked_value(const void *x, const void *y) {
    return by_value(&((const struct ranked *)x)->value, &((const struct ranked *)y)->value);
}

/* Twice the rank, so that the mean rank of a tie is a whole number. Returns sum of t^3 - t over ties. */
static double double_ranks(const struct ranked *v, size_t n, unsigned *rank) {
    double ties = 0;

    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && v[j].value == v[i].value; j++)
            ;
        for (size_t k = i; k < j; k++)
            rank[k] = (unsigned)(i + 1 + j);
        double t = (double)(j - i);
        ties += t * t * t - t;
    }
    return ties;
}

/*
 * ways[k * width + s]: how many sets of k values have doubled ranks that add up to s. Counts reach
 * 1e23 and are kept as doubles; their relative error stays below 1e-13.
 */
static double exact_p(const unsigned *rank, size_t n, size_t nb, unsigned sum_b) {
    size_t width = n * (n + 1) + 1;
    double *ways = calloc((nb + 1) * width, sizeof(*ways)), all = 0, far = 0;
    double mean = (double)nb * (double)(n + 1), off = fabs((double)sum_b - mean);
    size_t reached = 0;

    if (!ways)
        abort();
    ways[0] = 1;
    for (size_t i = 0; i < n; i++) {
        reached += rank[i];
        for (size_t k = nb < i + 1 ? nb : i + 1; k > 0; k--) {
            double *to = ways + k * width;
            const double *from = ways + (k - 1) * width;
            for (size_t s = rank[i]; s <= reached; s++)
                to[s] += from[s - rank[i]];
        }
    }
    for (size_t s = 0; s < width; s++) {
        double w = ways[nb * width + s];
        all += w;
        if (fabs((double)s - mean) >= off)
            far += w;
    }
    free(ways);
    return far / all;
}

double zr_mann_whitney(const double *a, size_t na, const double *b, size_t nb, double *u) {
    size_t n = na + nb;

    if (u)
        *u = NAN;
    if (na == 0 || nb == 0)
        return NAN;
    struct ranked *v = malloc(n * sizeof(*v));
    unsigned *rank = malloc(n * sizeof(*rank)), sum_b = 0;
    double p;

    if (!v || !rank)
        abort();
    for (size_t i = 0; i < n; i++)
        v[i] = (struct ranked){i < na ? a[i] : b[i - na], i >= na};
    qsort(v, n, sizeof(*v), by_ranked_value);
    double ties = double_ranks(v, n, rank);
    for (size_t i = 0; i < n; i++)
        sum_b += v[i].of_b ? rank[i] : 0;
    double x = (double)na, y = (double)nb, all = x + y;
    double u_b = 0.5 * (double)sum_b - 0.5 * y * (y + 1);
    if (u)
        *u = u_b;
    if (n <= EXACT_LIMIT) {
        p = exact_p(rank, n, nb, sum_b);
    } else {
        double variance = x * y / 12.0 * (all + 1 - ties / (all * (all - 1)));
        double off = fabs(u_b - 0.5 * x * y) - 0.5;
        p = variance > 0 && off > 0 ? 2 * zr_normal_below(-off / sqrt(variance)) : 1;
    }
    free(v);
    free(rank);
    return p < 1 ? p : 1;
}

double zr_cliff_delta(const double *a, size_t na, const double *b, size_t nb) {
    double more = 0;

    for (size_t i = 0; i < na; i++)
        for (size_t j = 0; j < nb; j++)
            more += (b[j] > a[i]) - (b[j] < a[i]);
    return more / ((double)na * (double)nb);
}

/* The customary bounds of Romano and others (2006). */
const char *zr_cliff_word(double delta) {
    double d = fabs(delta);

    return d < 0.147 ? "negligible" : d < 0.33 ? "small" : d < 0.474 ? "medium" : "large";
}

/* --- several metrics, trends, and how many runs ----------------------------------------------- */

void zr_holm(double *p, size_t n) {
    size_t tested = 0;
    double floor_p = 0;
    bool *seen = calloc(n ? n : 1, sizeof(*seen));

    if (!seen)
        abort();
    for (size_t i = 0; i < n; i++)
        tested += !isnan(p[i]);
    for (size_t done = 0; done < tested; done++) {
        size_t least = n;
        for (size_t i = 0; i < n; i++)
            if (!isnan(p[i]) && !seen[i] && (least == n || p[i] < p[least]))
                least = i;
        if (least == n)
            break;
        floor_p = fmax(floor_p, p[least] * (double)(tested - done));
        p[least] = floor_p < 1 ? floor_p : 1;
        seen[least] = true;
    }
    free(seen);
}

double zr_drift(const double *v, size_t n) {
    double s = 0, ties = 0;

    if (n < 8)
        return 1;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            s += (v[j] > v[i]) - (v[j] < v[i]);
    double *sorted = sorted_copy(v, n);
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && sorted[j] == sorted[i]; j++)
            ;
        double t = (double)(j - i);
        ties += t * (t - 1) * (2 * t + 5);
    }
    free(sorted);
    double m = (double)n, variance = (m * (m - 1) * (2 * m + 5) - ties) / 18;
    double off = fabs(s) - 1;
    double p = variance > 0 && off > 0 ? 2 * zr_normal_below(-off / sqrt(variance)) : 1;
    return p < 1 ? p : 1;
}

/* On normal noise the rank test is 3/pi as efficient as the t test. */
double zr_runs_needed(double noise, double effect, double alpha, double power) {
    double z = zr_normal_quantile(1 - alpha / 2) + zr_normal_quantile(power);
    double n = 2 * z * z * (noise / effect) * (noise / effect) * M_PI / 3;

    return fmax(ceil(n), ZR_AB_MIN_RUNS);
}

double zr_smallest_seen(double noise, size_t n, double alpha, double power) {
    double z = zr_normal_quantile(1 - alpha / 2) + zr_normal_quantile(power);

    return noise * z * sqrt(2 * M_PI / 3 / (double)n);
}
