/* What every benchmark of this folder does alike: the clock, medians, and Level Zero up to a context. */
#ifndef ZEROUTE_BENCH_H
#define ZEROUTE_BENCH_H

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double now_ns(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* What is compared runs on the same processor: those of a shared host differ from each other. */
static inline void stay_on(int processor) {
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static inline int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The lower quartile; sorts the values, as the median does. */
static inline double quartile(double *values, size_t n) {
    qsort(values, n, sizeof *values, by_value);
    return values[n / 4];
}

static inline double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, by_value);
    return values[n / 2];
}

#endif
