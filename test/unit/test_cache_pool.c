/* Slabs and split blocks: each promise of pool.h. */
#include "cache/split.h"
#include "suite.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
enum { FULL = 0x70000003 };

static struct {
    uintptr_t next;
    uint64_t held, room;
    int allocs, frees;
} driver;

static int driver_alloc(void *arg, size_t size, void **out)
{
    (void)arg;
    if (driver.held + size > driver.room)
        return FULL;
    driver.allocs++;
    driver.held += size;
    *out = (void *)driver.next;
    driver.next += (size + 0x3fffff) & ~(uintptr_t)0x1fffff;
    return 0;
}

static int driver_free(void *arg, void *p, size_t size)
{
    (void)arg, (void)p;
    driver.frees++;
    driver.held -= size;
    return 0;
}

static struct zr_pool *pool;

static void start(void)
{
    static const struct zr_pool_backing backing = {NULL, driver_alloc, driver_free};

    memset(&driver, 0, sizeof driver);
    driver.next = 0x7e0000000000;
    driver.room = UINT64_MAX;
    pool = zr_pool_new(&backing);
    ck_assert_ptr_nonnull(pool);
}

static void stop(void)
{
    zr_pool_delete(pool);
    ck_assert_uint_eq(driver.held, 0);
}

static void *get(size_t size, size_t alignment)
{
    void *p = NULL;

    ck_assert_int_eq(zr_pool_malloc(pool, size, alignment, &p), 0);
    ck_assert_ptr_nonnull(p);
    ck_assert_uint_ge(zr_pool_usable(pool, p), size);
    return p;
}

static enum zr_freed put(void *p)
{
    return zr_pool_free(pool, p);
}

START_TEST(sizes_of_all_kinds_come_and_go)
{
    void *p[40];

    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 40; i++)
            p[i] = get((size_t)3 << (i % 27), 0);
        for (unsigned i = 0; i < 40; i++)
            ck_assert_int_eq(put(p[i * 7 % 40]), ZR_FREED);
    }
    zr_pool_trim(pool, 0);
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

START_TEST(alignment_is_honoured_for_any_power_of_two)
{
    for (size_t align = 1; align <= 64 * MIB; align *= 2)
        for (size_t size = 1; size <= 4 * MIB; size *= 7) {
            void *p = get(size, align), *q = get(size, align);

            ck_assert_uint_eq((uintptr_t)p & (align - 1), 0);
            ck_assert_uint_eq((uintptr_t)q & (align - 1), 0);
            put(p);
            put(q);
        }
}
END_TEST

START_TEST(a_request_of_nothing_is_served)
{
    void *p = get(0, 0), *q = get(0, 0);

    ck_assert_ptr_ne(p, q);
    ck_assert_int_eq(put(p), ZR_FREED);
    ck_assert_int_eq(put(q), ZR_FREED);
}
END_TEST

START_TEST(small_requests_share_a_segment)
{
    for (int i = 0; i < 1000; i++)
        get(100, 0);
    ck_assert_int_eq(driver.allocs, 1);
    ck_assert_uint_eq(driver.held, 2 * MIB);
}
END_TEST

/* One thread: the first 4096 lie as PyTorch would place them, the next share slabs. */
START_TEST(of_many_tiny_requests_those_beyond_a_segment_share_slabs)
{
    enum { MANY = 20000 };
    static char *p[MANY];

    for (int i = 0; i < MANY; i++)
        p[i] = get(64, 0);
    ck_assert_uint_eq(driver.held, 4 * MIB);
    ck_assert_uint_eq(zr_pool_usable(pool, p[0]), 512);
    ck_assert_uint_eq(zr_pool_usable(pool, p[MANY - 1]), 64);
    ck_assert_int_eq(put(p[MANY - 1] + 8), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(put(p[MANY - 1]), ZR_FREED);
    ck_assert_int_eq(put(p[MANY - 1]), ZR_FREED_TWICE);
    for (int i = 0; i < MANY - 1; i++)
        ck_assert_int_eq(put(p[i]), ZR_FREED);
    ck_assert_uint_eq(zr_pool_usable(pool, get(64, 0)), 512);
    zr_pool_trim(pool, 0);
    ck_assert_uint_eq(driver.held, 2 * MIB);
}
END_TEST

static void *get_many_tiny(void *arg)
{
    for (int i = 0; i < 4096; i++)
        get(64, 0);
    return arg;
}

/* A thread for each task, and what it leaves is in use for long. */
START_TEST(the_tiny_requests_of_threads_that_have_ended_count_too)
{
    pthread_t thread;

    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(pthread_create(&thread, NULL, get_many_tiny, NULL), 0);
        pthread_join(thread, NULL);
    }
    ck_assert_uint_eq(driver.held, 2 * 4 * MIB);
}
END_TEST

START_TEST(freed_neighbours_merge)
{
    void *p[10];
    int allocs;

    for (int i = 0; i < 10; i++)
        p[i] = get(2 * MIB, 0);
    allocs = driver.allocs;
    ck_assert_int_eq(allocs, 1);
    for (int i = 0; i < 10; i++)
        put(p[(i * 3 + 1) % 10]);
    ck_assert_ptr_eq(get(20 * MIB, 0), p[0]);
    ck_assert_int_eq(driver.allocs, allocs);
}
END_TEST

START_TEST(what_is_out_is_known_as_it_was_asked_for)
{
    size_t asked = 0;
    uint64_t bytes;
    void *p[4] = {get(100, 0), get(100, 512), get(5000, 0), get(3 * MIB + 1, 0)};

    ck_assert_uint_eq(zr_pool_out(pool, &bytes), 4);
    ck_assert_uint_eq(bytes, 100 + 100 + 5000 + 3 * MIB + 1);
    ck_assert_int_eq(zr_pool_free_size(pool, p[3], &asked), ZR_FREED);
    ck_assert_uint_eq(asked, 3 * MIB + 1);
    ck_assert_int_eq(zr_pool_free_size(pool, p[0], &asked), ZR_FREED);
    ck_assert_uint_eq(asked, 100);
    ck_assert_uint_eq(zr_pool_out(pool, &bytes), 2);
    ck_assert_uint_eq(bytes, 5100);
}
END_TEST

START_TEST(the_best_fit_is_taken)
{
    void *a = get(6 * MIB, 0), *gap = get(2 * MIB, 0), *b = get(4 * MIB, 0), *end = get(8 * MIB, 0);

    put(a);
    put(b);
    ck_assert_ptr_eq(get(4 * MIB, 0), b);
    ck_assert_ptr_eq(get(5 * MIB, 0), a);
    put(gap);
    put(end);
}
END_TEST

START_TEST(what_was_left_before_an_aligned_block_is_found_once_they_are_one)
{
    char *a = get(MIB + MIB / 4, 0), *b = get(2 * MIB, MIB / 2), *c;

    ck_assert_ptr_eq(b, a + MIB + MIB / 2);
    ck_assert_int_eq(put(b), ZR_FREED);
    c = get(3 * MIB, 0);
    ck_assert_ptr_eq(c, a + MIB + MIB / 4);
    ck_assert_int_eq(put(c), ZR_FREED);
    ck_assert_int_eq(put(a), ZR_FREED);
}
END_TEST

START_TEST(a_size_beyond_all_memory_is_the_drivers_to_refuse)
{
    void *p = pool;

    driver.room = (uint64_t)1 << 40;
    for (unsigned bit = 41; bit < 64; bit++) {
        ck_assert_int_eq(zr_pool_malloc(pool, (size_t)1 << bit, 0, &p), FULL);
        ck_assert_int_eq(zr_pool_malloc(pool, 1, (size_t)1 << bit, &p), FULL);
    }
    ck_assert_ptr_null(p);
}
END_TEST

START_TEST(misuse_is_refused_and_corrupts_nothing)
{
    void *small = get(1000, 0), *large = get(3 * MIB, 0), *other = get(3 * MIB, 0);

    ck_assert_int_eq(put((char *)small + 8), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(put((char *)large + 512), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(put((char *)large + 8), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(put(NULL), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(put((void *)0xffff800000000000), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(put(small), ZR_FREED);
    ck_assert_int_eq(put(small), ZR_FREED_TWICE);
    ck_assert_int_eq(put(large), ZR_FREED);
    ck_assert_int_ne(put(large), ZR_FREED);
    ck_assert_uint_eq(zr_pool_usable(pool, small), 0);
    ck_assert_uint_eq(zr_pool_usable(pool, (char *)other + 512), 0);
    ck_assert_ptr_eq(get(1000, 0), small);
    ck_assert_ptr_ne(get(1000, 0), small);
    ck_assert_ptr_eq(get(3 * MIB, 0), large);
}
END_TEST

START_TEST(a_full_driver_gets_back_what_is_unused_and_is_asked_again)
{
    void *p = get(30 * MIB, 0), *q = NULL;

    driver.room = 40 * MIB;
    put(p);
    get(40 * MIB, 0);
    ck_assert_uint_eq(driver.held, 40 * MIB);
    ck_assert_int_eq(zr_pool_malloc(pool, 2 * MIB, 0, &q), FULL);
    ck_assert_ptr_null(q);
}
END_TEST

START_TEST(near_the_end_a_segment_is_no_larger_than_needed)
{
    driver.room = 4 * MIB;
    get(3 * MIB, 0);
    ck_assert_uint_eq(driver.held, 4 * MIB);
}
END_TEST

START_TEST(no_more_free_segments_are_kept_than_the_limit_allows)
{
    void *p[8];

    zr_pool_set_limits(pool, 32 * MIB, UINT32_MAX);
    for (int i = 0; i < 8; i++)
        p[i] = get(12 * MIB, 0);
    for (int i = 0; i < 8; i++)
        put(p[i]);
    ck_assert_uint_le(driver.held, 32 * MIB);
    ck_assert_uint_ge(driver.held, 12 * MIB);
}
END_TEST

START_TEST(what_lies_unused_is_given_back_on_later_calls)
{
    void *p = get(12 * MIB, 0), *q = get(4 * MIB, 0); /* the second leaves 16 MiB of its segment */
    struct timespec from, now;

    zr_pool_set_limits(pool, UINT64_MAX, 30);
    put(p);
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        usleep(100);
        put(get(14 * MIB, 0)); /* does not fit where the first was */
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (driver.frees == 0 && now.tv_sec - from.tv_sec < 30);
    ck_assert_int_eq(driver.frees, 1);
    put(q);
}
END_TEST

START_TEST(thirty_days_are_long)
{
    zr_pool_set_limits(pool, UINT64_MAX, 30u * 24 * 3600 * 1000);
    get(KIB, 0);
    put(get(20 * MIB, 0));
    pool->last_sweep = pool->now - INT32_MAX;
    for (int i = 0; i < 300; i++)
        put(get(KIB, 0));
    ck_assert_int_eq(driver.frees, 0);
}
END_TEST

START_TEST(a_repeated_program_calls_the_driver_no_more)
{
    void *p[300];
    int allocs = 0;

    for (int round = 0; round < 4; round++) {
        uint64_t r = 7;

        for (int i = 0; i < 300; i++) {
            r = r * 6364136223846793005u + 1;
            p[i] = get((r >> 40) % (6 * MIB), 0);
            if (i % 3 == 2)
                put(p[i - 1]);
        }
        for (int i = 0; i < 300; i++)
            if (i % 3 != 1)
                put(p[i]);
        if (round == 0)
            allocs = driver.allocs + driver.frees;
    }
    ck_assert_int_eq(driver.allocs + driver.frees, allocs);
}
END_TEST

static void *hand[2000];
static pthread_barrier_t gate;

static void *free_what_another_got(void *arg)
{
    (void)arg;
    for (int round = 0; round < 20; round++) {
        pthread_barrier_wait(&gate);
        for (int i = 0; i < 2000; i++)
            ck_assert_int_eq(put(hand[i]), ZR_FREED);
        pthread_barrier_wait(&gate);
    }
    return NULL;
}

START_TEST(one_thread_frees_what_another_allocates)
{
    pthread_t thread;

    pthread_barrier_init(&gate, NULL, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, free_what_another_got, NULL), 0);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 2000; i++)
            hand[i] = get((size_t)64 << (i % 12), 0);
        pthread_barrier_wait(&gate);
        pthread_barrier_wait(&gate);
    }
    pthread_join(thread, NULL);
    zr_pool_trim(pool, 0);
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

static int freed[2];

static void *free_all(void *arg)
{
    int me = (int)(uintptr_t)arg;

    pthread_barrier_wait(&gate);
    for (int i = 0; i < 2000; i++)
        freed[me] += put(hand[i]) == ZR_FREED;
    return NULL;
}

static void *get_one(void *arg)
{
    put(get(1000, 0));
    return arg;
}

/* Every so often a call looks at the clock, and slabs that are empty go: this one may be in one of them. */
START_TEST(what_is_freed_twice_while_its_slab_goes_is_refused)
{
    pthread_t thread;

    zr_pool_set_limits(pool, UINT64_MAX, 1);
    get(1000, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, get_one, NULL), 0);
    pthread_join(thread, NULL);
    for (int which = 0; which < 32; which++) {
        for (int i = 0; i < 32; i++)
            hand[i] = get(64, 0);
        for (int i = 0; i < 32; i++)
            ck_assert_int_eq(put(hand[i]), ZR_FREED);
        usleep(3000);
        for (int i = 0; i < 256; i++)
            ck_assert_int_ne(put(hand[which]), ZR_FREED);
    }
}
END_TEST

static void *free_elsewhere(void *arg)
{
    char *p = arg;
    bool refused = put(p + 64) == ZR_FREED_UNKNOWN && put(p + 64 * MIB) == ZR_FREED_UNKNOWN;

    return refused && !pool->shared ? NULL : arg;
}

/* As one that looks for the pool of a pointer: whoever is alone there stays so. */
START_TEST(who_asks_for_what_is_not_there_is_no_user_of_the_pool)
{
    pthread_t thread;
    void *wrong;

    ck_assert_int_eq(pthread_create(&thread, NULL, free_elsewhere, get(KIB, 0)), 0);
    pthread_join(thread, &wrong);
    ck_assert_ptr_null(wrong);
}
END_TEST

START_TEST(of_two_threads_that_free_one_pointer_one_succeeds)
{
    pthread_t thread;

    pthread_barrier_init(&gate, NULL, 2);
    for (int i = 0; i < 2000; i++)
        hand[i] = get(i % 2 ? 200 : 40 * KIB, 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, free_all, (void *)1), 0);
    free_all((void *)0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(freed[0] + freed[1], 2000);
}
END_TEST

START_TEST(pools_do_not_mix_and_their_places_are_used_again)
{
    static const struct zr_pool_backing backing = {NULL, driver_alloc, driver_free};

    for (int i = 0; i < 200; i++) {
        struct zr_pool *other = zr_pool_new(&backing);
        void *p = NULL, *mine = get(100, 0);

        ck_assert_ptr_nonnull(other);
        ck_assert_int_eq(zr_pool_malloc(other, 100, 0, &p), 0);
        ck_assert_ptr_ne(p, mine);
        ck_assert_int_eq(put(p), ZR_FREED_UNKNOWN);
        ck_assert_int_eq(zr_pool_free(other, mine), ZR_FREED_UNKNOWN);
        ck_assert_int_eq(zr_pool_free(other, p), ZR_FREED);
        ck_assert_int_eq(put(mine), ZR_FREED);
        zr_pool_delete(other);
    }
}
END_TEST

static void *use_once_and_end(void *arg)
{
    void *p = NULL;

    ck_assert_int_eq(zr_pool_malloc(arg, 4 * KIB, 0, &p), 0);
    ck_assert_int_eq(zr_pool_free(arg, p), ZR_FREED);
    pthread_barrier_wait(&gate);
    return NULL;
}

/* A race: some of the rounds must meet it. */
START_TEST(threads_may_end_while_their_pool_is_deleted)
{
    enum { ROUNDS = 1000, THREADS = 4 };
    static const struct zr_pool_backing backing = {NULL, driver_alloc, driver_free};

    pthread_barrier_init(&gate, NULL, THREADS + 1);
    for (int i = 0; i < ROUNDS; i++) {
        struct zr_pool *other = zr_pool_new(&backing);
        pthread_t thread[THREADS];

        ck_assert_ptr_nonnull(other);
        for (int j = 0; j < THREADS; j++)
            ck_assert_int_eq(pthread_create(&thread[j], NULL, use_once_and_end, other), 0);
        pthread_barrier_wait(&gate);
        zr_pool_delete(other);
        for (int j = 0; j < THREADS; j++)
            pthread_join(thread[j], NULL);
    }
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

START_TEST(more_pools_than_threads_keep_places_for_still_work)
{
    static const struct zr_pool_backing backing = {NULL, driver_alloc, driver_free};
    struct zr_pool *many[100];

    for (int i = 0; i < 100; i++) {
        void *p[3];

        many[i] = zr_pool_new(&backing);
        for (int j = 0; j < 3; j++)
            ck_assert_int_eq(zr_pool_malloc(many[i], 100, 0, &p[j]), 0);
        for (int j = 0; j < 3; j++)
            ck_assert_int_eq(zr_pool_free(many[i], p[j]), ZR_FREED);
        ck_assert_int_eq(zr_pool_free(many[i], p[0]), ZR_FREED_TWICE);
    }
    for (int i = 0; i < 100; i++)
        zr_pool_delete(many[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache pool");
    TCase *c = tcase_create("pool");

    suite_add_tcase(suite, c);
    tcase_add_checked_fixture(c, start, stop);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, sizes_of_all_kinds_come_and_go);
    tcase_add_test(c, alignment_is_honoured_for_any_power_of_two);
    tcase_add_test(c, a_request_of_nothing_is_served);
    tcase_add_test(c, small_requests_share_a_segment);
    tcase_add_test(c, of_many_tiny_requests_those_beyond_a_segment_share_slabs);
    tcase_add_test(c, the_tiny_requests_of_threads_that_have_ended_count_too);
    tcase_add_test(c, freed_neighbours_merge);
    tcase_add_test(c, what_is_out_is_known_as_it_was_asked_for);
    tcase_add_test(c, the_best_fit_is_taken);
    tcase_add_test(c, what_was_left_before_an_aligned_block_is_found_once_they_are_one);
    tcase_add_test(c, a_size_beyond_all_memory_is_the_drivers_to_refuse);
    tcase_add_test(c, misuse_is_refused_and_corrupts_nothing);
    tcase_add_test(c, a_full_driver_gets_back_what_is_unused_and_is_asked_again);
    tcase_add_test(c, near_the_end_a_segment_is_no_larger_than_needed);
    tcase_add_test(c, no_more_free_segments_are_kept_than_the_limit_allows);
    tcase_add_test(c, what_lies_unused_is_given_back_on_later_calls);
    tcase_add_test(c, thirty_days_are_long);
    tcase_add_test(c, a_repeated_program_calls_the_driver_no_more);
    tcase_add_test(c, one_thread_frees_what_another_allocates);
    tcase_add_test(c, what_is_freed_twice_while_its_slab_goes_is_refused);
    tcase_add_test(c, who_asks_for_what_is_not_there_is_no_user_of_the_pool);
    tcase_add_test(c, of_two_threads_that_free_one_pointer_one_succeeds);
    tcase_add_test(c, pools_do_not_mix_and_their_places_are_used_again);
    tcase_add_test(c, threads_may_end_while_their_pool_is_deleted);
    tcase_add_test(c, more_pools_than_threads_keep_places_for_still_work);
    return run_suite(suite);
}
