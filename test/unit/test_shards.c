/* Bookings by one thread and by many: none is lost, and a reader sees whole ones. */
#include "segment.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

START_TEST(memory_is_booked_by_kind_and_by_device) {
    zr_book(ZR_KIND_DEVICE, 0, 3 * MIB);
    zr_book(ZR_KIND_DEVICE, 2, 5 * MIB);
    zr_book(ZR_KIND_SHARED, 2, MIB);
    zr_book(ZR_KIND_HOST, 0, 7 * MIB);
    zr_book(ZR_KIND_PHYSICAL, 0, 2 * MIB);
    zr_book(ZR_KIND_VIRTUAL, 0, 64 * MIB);
    zr_unbook(ZR_KIND_DEVICE, 0, 3 * MIB);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 8 * MIB);
    ck_assert_uint_eq(value("allocated_bytes.all.peak"), 11 * MIB);
    ck_assert_uint_eq(value("allocated_bytes.all.allocated"), 11 * MIB);
    ck_assert_uint_eq(value("allocated_bytes.all.freed"), 3 * MIB);
    ck_assert_uint_eq(value("allocation.all.current"), 3);
    ck_assert_uint_eq(value("allocation.all.peak"), 4);
    ck_assert_uint_eq(value("device.0.allocated_bytes.all.current"), 2 * MIB);
    ck_assert_uint_eq(value("device.0.allocated_bytes.all.peak"), 5 * MIB);
    ck_assert_uint_eq(value("device.2.allocated_bytes.all.current"), 6 * MIB);
    ck_assert_uint_eq(value("device.1.allocated_bytes.all.current"), UINT64_MAX);
    ck_assert_uint_eq(value("allocated_bytes.host.current"), 7 * MIB);
    ck_assert_uint_eq(value("allocated_bytes.shared.current"), MIB);
    ck_assert_uint_eq(value("allocated_bytes.physical.current"), 2 * MIB);
    ck_assert_uint_eq(value("virtual_bytes.reserved.current"), 64 * MIB);
}
END_TEST

START_TEST(a_peak_of_one_thread_is_exact_however_it_comes_about) {
    uint64_t now = 0, peak = 0, live[64];
    unsigned n = 0, seed = 7;
    for (int i = 0; i < 200000; i++) {
        seed = seed * 1103515245 + 12345;
        bool up = n == 0 || (n < 64 && (seed >> 16) % 2);
        if (up) {
            live[n] = 1 + (seed >> 8) % (40 * MIB);
            now += live[n];
            zr_book(ZR_KIND_DEVICE, 1, live[n++]);
            peak = now > peak ? now : peak;
        } else {
            now -= live[--n];
            zr_unbook(ZR_KIND_DEVICE, 1, live[n]);
        }
        if (i % 50000 == 0)
            ck_assert_uint_eq(value("allocated_bytes.all.peak"), peak);
    }
    ck_assert_uint_eq(value("allocated_bytes.all.peak"), peak);
    ck_assert_uint_eq(value("device.1.allocated_bytes.all.peak"), peak);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), now);
}
END_TEST

START_TEST(more_freed_than_allocated_reads_as_zero) {
    zr_unbook(ZR_KIND_DEVICE, 0, 5 * MIB);
    zr_book_reserved(0, -(int64_t)MIB);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 0);
    ck_assert_uint_eq(value("allocation.all.current"), 0);
    ck_assert_uint_eq(value("allocated_bytes.all.peak"), 0);
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 0);
    ck_assert_uint_eq(value("reserved_bytes.all.peak"), 0);
}
END_TEST

#define THREADS 16
#define ROUNDS 20000
static pthread_barrier_t together;

static void *busy(void *unused) {
    (void)unused;
    pthread_barrier_wait(&together);
    for (int i = 0; i < ROUNDS; i++) {
        zr_count_call(ZR_E_zeMemAllocDevice, ZR_VIA_DLSYM);
        zr_book(ZR_KIND_DEVICE, 0, MIB);
        zr_count_caller(zr_library_of((const void *)(uintptr_t)busy), ZR_CALLER_CALLS, 1);
        zr_count_caller(zr_library_of((const void *)(uintptr_t)busy), ZR_CALLER_BYTES, MIB);
        zr_unbook(ZR_KIND_DEVICE, 0, MIB);
        if (i % 100 == 0)
            zr_time_call(ZR_E_zeMemFree, 1, zr_now(), 1);
    }
    return NULL;
}

static void run_threads(unsigned n) {
    pthread_t t[512];
    pthread_barrier_init(&together, NULL, n);
    for (unsigned i = 0; i < n; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, busy, NULL), 0);
    for (unsigned i = 0; i < n; i++)
        pthread_join(t[i], NULL);
}

START_TEST(threads_lose_nothing_and_their_shards_are_used_again) {
    run_threads(THREADS);
    run_threads(THREADS);
    ck_assert_uint_eq(value("calls.zeMemAllocDevice.dlsym"), 2 * THREADS * ROUNDS);
    ck_assert_uint_eq(value("allocation.all.allocated"), 2 * THREADS * ROUNDS);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 0);
    ck_assert_uint_eq(value("latency.zeMemFree.calls"), 2 * THREADS * ROUNDS / 100);
    ck_assert_uint_le(zr_segment.header->shard_count, THREADS + 2);
    uint64_t peak = value("allocated_bytes.all.peak");
    ck_assert_uint_ge(peak, MIB);
    ck_assert_uint_le(peak, THREADS * MIB);
}
END_TEST

START_TEST(more_threads_than_shards_share_one_and_lose_nothing) {
    run_threads(300);
    ck_assert_uint_eq(value("calls.zeMemAllocDevice.dlsym"), 300ull * ROUNDS);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 0);
    ck_assert_uint_eq(value("allocated_bytes.all.freed"), 300ull * ROUNDS * MIB);
}
END_TEST

static void *take(void *unused) {
    (void)unused;
    for (int i = 0; i < 1000; i++)
        zr_book(ZR_KIND_DEVICE, 0, MIB);
    return NULL;
}

static void *give(void *unused) {
    (void)unused;
    for (int i = 0; i < 1000; i++)
        zr_unbook(ZR_KIND_DEVICE, 0, MIB);
    return NULL;
}

START_TEST(one_thread_may_free_what_another_allocated) {
    pthread_t t;
    for (int round = 0; round < 5; round++) {
        pthread_create(&t, NULL, take, NULL);
        pthread_join(t, NULL);
        ck_assert_uint_eq(value("allocated_bytes.all.current"), 1000 * MIB);
        pthread_create(&t, NULL, give, NULL);
        pthread_join(t, NULL);
        ck_assert_uint_eq(value("allocated_bytes.all.current"), 0);
    }
    ck_assert_uint_eq(value("allocated_bytes.all.peak"), 1000 * MIB);
}
END_TEST

/* reroute caches: what is reserved has books of its own. */
START_TEST(reserved_is_never_below_allocated) {
    zr_book_reserved(0, 3 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 3 * MIB);
    zr_book(ZR_KIND_DEVICE, 0, 5 * MIB); /* as if it was read in between */
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 5 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.peak"), 5 * MIB);
    ck_assert_uint_eq(value("device.0.reserved_bytes.all.current"), 5 * MIB);
    zr_unbook(ZR_KIND_DEVICE, 0, 5 * MIB);
    zr_book_reserved(0, -(int64_t)MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 2 * MIB);
    ck_assert_uint_eq(value("device.0.reserved_bytes.all.peak"), 5 * MIB);
}
END_TEST

START_TEST(without_a_cache_reserved_is_allocated) {
    setenv("ZEROUTE_CONF", "preset:observe", 1);
    zr_book(ZR_KIND_DEVICE, 0, 5 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 5 * MIB);
    zr_unbook(ZR_KIND_DEVICE, 0, 2 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 3 * MIB);
    ck_assert_uint_eq(value("device.0.reserved_bytes.all.current"), 3 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.peak"), 5 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.freed"), 2 * MIB);
}
END_TEST

static void *turn_over(void *stop) {
    while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED)) {
        for (int i = 0; i < 4; i++) {
            uint64_t bytes = i < 2 ? 20 * MIB : 100;
            struct timespec pause = {.tv_nsec = 20000};
            if (i % 2)
                zr_unbook(ZR_KIND_DEVICE, 1, bytes);
            else
                zr_book(ZR_KIND_DEVICE, 1, bytes);
            nanosleep(&pause, NULL); /* a driver would take its time, too */
        }
    }
    return NULL;
}

/* A booking is one critical section: whoever reads in the middle of it sees the state before or after. */
START_TEST(a_reader_never_sees_half_a_booking) {
    bool stop = false;
    unsigned torn = 0;
    pthread_t t;
    open_it();
    ck_assert_int_eq(pthread_create(&t, NULL, turn_over, &stop), 0);
    for (int i = 0; i < 2000; i++) {
        char why[256];
        struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
        ck_assert_msg(s != NULL, "%s", why);
        if (s->torn) { /* the writer has lost its processor: it happens */
            torn++;
            zeroute_snapshot_free(s);
            continue;
        }
        uint64_t now = zeroute_value(s, "allocated_bytes.all.current", 1);
        uint64_t blocks = zeroute_value(s, "allocation.all.current", 9);
        ck_assert_msg(now == 0 || now == 100 || now == 20 * MIB, "%llu", (unsigned long long)now);
        ck_assert_uint_eq(blocks, now != 0);
        ck_assert_uint_eq(now, zeroute_value(s, "allocated_bytes.all.allocated", 1) -
                                   zeroute_value(s, "allocated_bytes.all.freed", 1));
        uint64_t peak = zeroute_value(s, "allocated_bytes.all.peak", 1);
        ck_assert_msg(peak == 0 || peak == 20 * MIB, "%llu", (unsigned long long)peak);
        zeroute_snapshot_free(s);
    }
    ck_assert_uint_lt(torn, 1000);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(t, NULL);
}
END_TEST

#define BATCH ((int64_t)ZR_BATCH_BYTES)
#define LARGE ((uint64_t)ZR_BATCH_BYTES + 4 * MIB) /* it is folded at once */
static _Atomic unsigned half_done, unmarked, too_high;

/* Runs in the middle of whatever the thread was at. It is the only one that books. */
static void interrupt(int unused) {
    const struct zr_shard *s = zr_thread.stats.shard;
    const struct zr_cell *c = &s->on_device[1][ZR_KIND_DEVICE];
    (void)unused;
    for (unsigned i = 0; i < 2; i++) {
        unsigned account = i ? ZR_ACCOUNT_ALL : ZR_ACCOUNT_DEVICE + 1;
        const struct zr_total *t = &zr_segment.globals->total[account];
        const struct zr_level *l = &s->level[account];
        if ((int64_t)(c->allocated - c->freed) != t->now + l->level) {
            half_done++;
            unmarked += !(s->generation & 1);
        }
        too_high += l->level >= BATCH || l->level <= -BATCH || l->high >= BATCH;
    }
}

static void *never_rest(void *stop) {
    while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED)) {
        zr_book(ZR_KIND_DEVICE, 1, LARGE);
        zr_unbook(ZR_KIND_DEVICE, 1, LARGE);
    }
    return NULL;
}

/* No two of its words may ever be read together; what is read is true all the same, but for a batch. */
START_TEST(a_process_that_never_rests_is_read_within_a_batch_and_in_time) {
    bool stop = false;
    double shortest = 1e9;
    pthread_t t;
    open_it();
    ck_assert_int_eq(pthread_create(&t, NULL, never_rest, &stop), 0);
    for (int i = 0; i < 20; i++) {
        char why[256];
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
        clock_gettime(CLOCK_MONOTONIC, &to);
        ck_assert_msg(s != NULL, "%s", why);
        ck_assert_uint_lt(zeroute_value(s, "allocated_bytes.all.current", UINT64_MAX), LARGE + MIB);
        ck_assert_uint_lt(zeroute_value(s, "allocated_bytes.all.peak", UINT64_MAX), LARGE + MIB);
        ck_assert_uint_le(zeroute_value(s, "allocation.all.peak", UINT64_MAX), 64);
        double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
        shortest = ms < shortest ? ms : shortest;
        zeroute_snapshot_free(s);
    }
    ck_assert_msg(shortest < 500, "%.0f ms", shortest); /* 50 and a busy machine */
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(t, NULL);
}
END_TEST

static void *begin_with_a_large_block(void *unused) {
    (void)unused;
    zr_book(ZR_KIND_DEVICE, 1, LARGE);
    pthread_barrier_wait(&together);
    return NULL;
}

/* A reader that knows of no shard of the thread yet must not add what it has folded already. */
START_TEST(threads_that_begin_while_they_are_read_are_read_whole) {
    pthread_t t[64];
    open_it();
    pthread_barrier_init(&together, NULL, 65);
    for (int i = 0; i < 64; i++) {
        char why[256];
        ck_assert_int_eq(pthread_create(&t[i], NULL, begin_with_a_large_block, NULL), 0);
        for (int k = 0; k < 5; k++) {
            struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
            ck_assert_msg(s != NULL, "%s", why);
            if (!s->torn)
                ck_assert_uint_eq(zeroute_value(s, "allocation.all.current", 9) * LARGE,
                                  zeroute_value(s, "allocated_bytes.all.current", 1));
            zeroute_snapshot_free(s);
        }
    }
    pthread_barrier_wait(&together);
    for (int i = 0; i < 64; i++)
        pthread_join(t[i], NULL);
}
END_TEST

START_TEST(half_a_booking_is_marked_wherever_it_is_interrupted) {
    bool stop = false;
    pthread_t t;
    open_it();
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer delivers signals at places of its own");
#endif
    zr_book(ZR_KIND_DEVICE, 1, 0); /* its fields are described */
    zr_unbook(ZR_KIND_DEVICE, 1, 0);
    zr_stats_thread_end();
    signal(SIGUSR1, interrupt);
    ck_assert_int_eq(pthread_create(&t, NULL, never_rest, &stop), 0);
    while (__atomic_load_n(&zr_segment_shard(1)->generation, __ATOMIC_RELAXED) < 1000)
        sched_yield();
    for (int i = 0; i < 5000000 && half_done < 100; i++)
        pthread_kill(t, SIGUSR1);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(t, NULL);
    ck_assert_uint_ge(half_done, 100);
    ck_assert_uint_eq(unmarked, 0);
    ck_assert_uint_eq(too_high, 0);
}
END_TEST

START_TEST(a_booking_that_never_ends_is_waited_for_in_vain_but_not_for_long) {
    open_it();
    zr_book(ZR_KIND_DEVICE, 0, MIB);
    zr_thread.stats.shard->generation++;
    struct zeroute_snapshot *s = look();
    ck_assert(s->torn);
    ck_assert_uint_eq(zeroute_value(s, "allocated_bytes.all.current", 0), MIB);
    zeroute_snapshot_free(s);
    zr_thread.stats.shard->generation++;
    s = look();
    ck_assert(!s->torn);
    zeroute_snapshot_free(s);
}
END_TEST

static pthread_barrier_t all_claimed, all_done;

static void *claim_and_wait(void *unused) {
    (void)unused;
    zr_count(ZR_F_CACHE_HITS, 1);
    pthread_barrier_wait(&all_claimed);
    pthread_barrier_wait(&all_done);
    return NULL;
}

static void *take_in_the_shared_shard(void *unused) {
    (void)unused;
    for (int i = 0; i < 200000; i++) {
        zr_book(ZR_KIND_DEVICE, 0, 3);
        zr_count(ZR_F_CACHE_MISSES, 1);
    }
    ck_assert(zr_thread.stats.shared && !zr_thread.stats.shard);
    return NULL;
}

START_TEST(threads_that_share_a_shard_lose_nothing) {
    pthread_t t[ZR_SHARDS - 1], shared[4];
    open_it();
    pthread_barrier_init(&all_claimed, NULL, ZR_SHARDS);
    pthread_barrier_init(&all_done, NULL, ZR_SHARDS);
    for (int i = 0; i < ZR_SHARDS - 1; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, claim_and_wait, NULL), 0);
    pthread_barrier_wait(&all_claimed);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&shared[i], NULL, take_in_the_shared_shard, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(shared[i], NULL);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 4 * 200000 * 3);
    ck_assert_uint_eq(value("allocated_bytes.all.allocated"), 4 * 200000 * 3);
    ck_assert_uint_eq(value("allocated_bytes.all.peak"), 4 * 200000 * 3);
    ck_assert_uint_eq(value("allocation.all.peak"), 4 * 200000);
    ck_assert_uint_eq(value("cache.misses"), 4 * 200000);
    pthread_barrier_wait(&all_done);
    for (int i = 0; i < ZR_SHARDS - 1; i++)
        pthread_join(t[i], NULL);
}
END_TEST

int main(void) {
    Suite *s = suite_create("shards");
    TCase *t = segment_case(s);
    tcase_add_test(t, memory_is_booked_by_kind_and_by_device);
    tcase_add_test(t, a_peak_of_one_thread_is_exact_however_it_comes_about);
    tcase_add_test(t, more_freed_than_allocated_reads_as_zero);
    tcase_add_test(t, threads_lose_nothing_and_their_shards_are_used_again);
    tcase_add_test(t, more_threads_than_shards_share_one_and_lose_nothing);
    tcase_add_test(t, one_thread_may_free_what_another_allocated);
    tcase_add_test(t, reserved_is_never_below_allocated);
    tcase_add_test(t, without_a_cache_reserved_is_allocated);
    tcase_add_test(t, a_reader_never_sees_half_a_booking);
    tcase_add_test(t, a_process_that_never_rests_is_read_within_a_batch_and_in_time);
    tcase_add_test(t, threads_that_begin_while_they_are_read_are_read_whole);
    tcase_add_test(t, half_a_booking_is_marked_wherever_it_is_interrupted);
    tcase_add_test(t, a_booking_that_never_ends_is_waited_for_in_vain_but_not_for_long);
    tcase_add_test(t, threads_that_share_a_shard_lose_nothing);
    return run_suite(s);
}
