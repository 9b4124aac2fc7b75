/*
 * A clock for callgrind, under which every call would be a slow one: each reading is 50 ns later than the last.
 * Preloaded before libzeroute.so by test/bench/bench_instructions.
 */
#include <stdint.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *out) {
    static uint64_t ns = UINT64_C(1000000000);

    (void)clock;
    ns = __atomic_add_fetch(&ns, 50, __ATOMIC_RELAXED);
    out->tv_sec = (time_t)(ns / 1000000000);
    out->tv_nsec = (long)(ns % 1000000000);
    return 0;
}
