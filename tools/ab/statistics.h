/*
 * Statistics of `zeroute ab`: pure functions on arrays of numbers, deterministic by seed.
 * They know nothing of arms, runs or metrics.
 */
#ifndef ZEROUTE_AB_STAT_H
#define ZEROUTE_AB_STAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A verdict needs p below this: for the primary metric alone, and once more for all the others
 * together after Holm's correction. A report without any effect is then wrong in at most 2 of 100.
 * Five runs against five can reach p = 0.0079 at best, so five is the least that can give a verdict.
 */
#define ZR_AB_ALPHA 0.01
#define ZR_AB_POWER 0.8
#define ZR_AB_MIN_RUNS 5
#define ZR_AB_RESAMPLES 2000

/* xoshiro256**: the same numbers from the same seed on every machine. */
struct zr_random {
    uint64_t s[4];
};
void zr_random_seed(struct zr_random *r, uint64_t seed);
size_t zr_random_below(struct zr_random *r, size_t n); /* 0 .. n-1, n up to 2^32 */
double zr_random_normal(struct zr_random *r);          /* mean 0, deviation 1 */

struct zr_interval {
    double low, high;
};

double zr_median(const double *v, size_t n);             /* NaN when n is 0 */
double zr_quantile(const double *v, size_t n, double q); /* linear between order statistics */
double zr_spread(const double *v, size_t n);             /* 1.4826 x median absolute deviation */
double zr_deviation(const double *v, size_t n);          /* sample standard deviation */
double zr_normal_below(double z);                        /* P(Z < z) */
double zr_normal_quantile(double p);

/* 95 % percentile bootstrap intervals. */
struct zr_interval zr_bootstrap_median(const double *v, size_t n, uint64_t seed);
/* Of median(b) - median(a), and of median(b) / median(a) - 1: NaN when the median of a can be 0. */
void zr_bootstrap_compare(const double *a, size_t na, const double *b, size_t nb, uint64_t seed,
                          struct zr_interval *difference, struct zr_interval *change);

/*
 * Two-sided p of Mann and Whitney's U. Up to 80 values the distribution is counted out exactly over
 * all ways to split these very values, ties included; above that, the normal approximation with
 * corrections for ties and continuity. *u, when given, is the U of b.
 */
double zr_mann_whitney(const double *a, size_t na, const double *b, size_t nb, double *u);

/* Cliff's delta: P(b > a) - P(b < a), from -1 to 1. */
double zr_cliff_delta(const double *a, size_t na, const double *b, size_t nb);
const char *zr_cliff_word(double delta); /* negligible, small, medium, large */

/* Holm's step-down correction in place. Entries that are NaN were not tested and stay NaN. */
void zr_holm(double *p, size_t n);

/* Mann and Kendall's test of a trend in v, in the order of time: two-sided p; 1 for fewer than 8. */
double zr_drift(const double *v, size_t n);

/* Runs per arm needed to see a difference of `effect` when runs scatter by `noise` (same unit). */
double zr_runs_needed(double noise, double effect, double alpha, double power);
/* The smallest difference that n runs per arm would see. */
double zr_smallest_seen(double noise, size_t n, double alpha, double power);

#endif
