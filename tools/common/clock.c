/* The time, in the units that commands count in. */
#include "common/common.h"

#include <time.h>

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t zr_clock_ns(void) {
    return nanoseconds(CLOCK_MONOTONIC);
}

double zr_clock_seconds(void) {
    return 1e-9 * (double)zr_clock_ns();
}

uint64_t zr_wall_ns(void) {
    return nanoseconds(CLOCK_REALTIME);
}
