/* What the processor's counter is worth, on a machine that lets others run in the middle of a reading. */
#include "stats/stats.h"
#include "suite.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MS = 1000000 };
static unsigned readings, held_up; /* the reading of this number takes 5 ms to come back; 0: none does */

static void pass(long ns) {
    struct timespec left = {0, ns};

    while (syscall(SYS_nanosleep, &left, &left) != 0)
        ;
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int code = (int)syscall(SYS_clock_gettime, clock, out);

    if (clock == CLOCK_MONOTONIC && ++readings == held_up)
        pass(5 * MS);
    return code;
}

/* Two readings of the counter with 20 ms in between, in nanoseconds. */
static void is_true(void) {
    uint64_t from, ns, before, after;
    struct timespec t;
    char path[64];

    ck_assert(zr_stats_open());
    held_up = 0;
    clock_gettime(CLOCK_MONOTONIC, &t);
    before = (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
    from = zr_ticks();
    pass(20 * MS);
    ns = zr_ticks_to_ns(zr_ticks() - from);
    clock_gettime(CLOCK_MONOTONIC, &t);
    after = (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
    ck_assert_uint_ge(ns, 19 * MS);
    ck_assert_uint_le(ns, (after - before) / 10 * 11);
    snprintf(path, sizeof path, ZEROUTE_SEGMENT_DIR "/" ZEROUTE_SEGMENT_PREFIX "%d.%016llx", (int)getpid(),
             (unsigned long long)zr_segment.header->nonce);
    ck_assert_int_eq(unlink(path), 0);
}

START_TEST(the_clock_is_true_whichever_reading_is_held_up) {
    held_up = (unsigned)_i;
    is_true();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("clock");
    TCase *t = tcase_create("clock");

    tcase_add_loop_test(t, the_clock_is_true_whichever_reading_is_held_up, 0, 12);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
