/* What stands before a pool (front.c): each promise of pool.h. */
#include "pool.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define FOREVER UINT64_MAX

static uintptr_t next_address;
static uint64_t held;

static int backing_alloc(void *arg, size_t size, void **out)
{
    (void)arg;
    held += size;
    *out = (void *)next_address;
    next_address += (size + 0x3fffff) & ~(uintptr_t)0x1fffff;
    return 0;
}

static int backing_free(void *arg, void *p, size_t size)
{
    (void)arg, (void)p;
    held -= size;
    return 0;
}

static struct zr_pool *pool;
static struct zr_front *front;

static void start(uint64_t limit, uint64_t idle_ns)
{
    static const struct zr_pool_backing backing = {NULL, backing_alloc, backing_free};

    next_address = 0x7e0000000000;
    held = 0;
    pool = zr_pool_new(&backing);
    front = zr_front_new(limit, idle_ns);
    ck_assert(pool && front);
}

static void stop(void)
{
    zr_front_drain(front, pool);
    zr_front_delete(front);
    zr_pool_delete(pool);
    ck_assert_uint_eq(held, 0);
}

/* A block of the pool that the front remembers. */
static void *out(size_t size, size_t asked)
{
    void *p = NULL;

    ck_assert_int_eq(zr_pool_malloc(pool, size, 512, &p), 0);
    ck_assert(zr_front_note(front, p, size, asked));
    return p;
}

static enum zr_front_answer give(void *p, size_t asked)
{
    size_t told = 0;
    enum zr_front_answer answer = zr_front_give(front, p, &told);

    if (answer != ZR_FRONT_UNKNOWN && answer != ZR_FRONT_TWICE)
        ck_assert_uint_eq(told, asked);
    return answer;
}

static uint64_t blocks_out(uint64_t bytes)
{
    uint64_t told, blocks = zr_front_out(front, &told);

    ck_assert_uint_eq(told, bytes);
    return blocks;
}

START_TEST(what_was_just_given_back_is_handed_out_again)
{
    start(64 * MIB, FOREVER);
    void *p = out(2 * MIB, 2 * MIB - 7);

    ck_assert_int_eq(give(p, 2 * MIB - 7), ZR_FRONT_KEPT);
    ck_assert_ptr_null(zr_front_take(front, 1 * MIB, MIB));
    ck_assert_ptr_eq(zr_front_take(front, 2 * MIB, 2 * MIB - 100), p);
    ck_assert_ptr_null(zr_front_take(front, 2 * MIB, 2 * MIB));
    ck_assert_uint_eq(zr_front_size(front, p), 2 * MIB);
    ck_assert_int_eq(give(p, 2 * MIB - 100), ZR_FRONT_KEPT);
    stop();
}
END_TEST

START_TEST(a_block_that_is_free_or_unknown_is_refused)
{
    start(64 * MIB, FOREVER);
    char *p = out(4 * KIB, 4 * KIB);

    ck_assert_int_eq(give(p + 512, 0), ZR_FRONT_UNKNOWN);
    ck_assert_int_eq(give(p, 4 * KIB), ZR_FRONT_KEPT);
    ck_assert_int_eq(give(p, 0), ZR_FRONT_TWICE);
    ck_assert_uint_eq(zr_front_size(front, p), 0);
    zr_front_drain(front, pool);
    ck_assert_int_eq(give(p, 0), ZR_FRONT_UNKNOWN);
    ck_assert_int_eq(zr_pool_free(pool, p), ZR_FREED_TWICE);
    stop();
}
END_TEST

START_TEST(more_than_the_limit_goes_to_the_pool)
{
    start(3 * MIB, FOREVER);
    void *first = out(2 * MIB, 2 * MIB), *second = out(2 * MIB, 2 * MIB);

    ck_assert_int_eq(give(first, 2 * MIB), ZR_FRONT_KEPT);
    ck_assert_int_eq(give(second, 2 * MIB), ZR_FRONT_PASSED);
    ck_assert_int_eq(zr_pool_free(pool, second), ZR_FREED);
    ck_assert_int_eq(give(second, 0), ZR_FRONT_UNKNOWN);
    stop();
}
END_TEST

START_TEST(a_place_that_is_taken_is_not_taken_twice)
{
    enum { MANY = 2000 };
    static void *block[MANY];
    static bool noted[MANY];
    unsigned known = 0;

    start(UINT64_MAX, FOREVER);
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(zr_pool_malloc(pool, 4 * KIB, 512, &block[i]), 0);
        noted[i] = zr_front_note(front, block[i], 4 * KIB, 4 * KIB);
        known += noted[i];
    }
    ck_assert(known > 100 && known <= 512);
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(zr_front_size(front, block[i]) != 0, noted[i]);
        if (noted[i])
            ck_assert(give(block[i], 4 * KIB) <= ZR_FRONT_KEPT_LONG);
        else
            ck_assert(give(block[i], 0) == ZR_FRONT_UNKNOWN && zr_pool_free(pool, block[i]) == ZR_FREED);
    }
    stop();
}
END_TEST

START_TEST(what_is_out_is_counted_as_it_was_asked_for)
{
    start(3 * MIB, FOREVER);
    void *first = out(2 * MIB, 2 * MIB - 1), *second = out(2 * MIB, 100);

    ck_assert_uint_eq(blocks_out(2 * MIB + 99), 2);
    give(first, 2 * MIB - 1);
    ck_assert_uint_eq(blocks_out(100), 1);
    give(second, 100); /* over the limit */
    ck_assert_int_eq(zr_pool_free(pool, second), ZR_FREED);
    ck_assert_uint_eq(blocks_out(0), 0);
    ck_assert_ptr_eq(zr_front_take(front, 2 * MIB, 5), first);
    ck_assert_uint_eq(blocks_out(5), 1);
    give(first, 5);
    stop();
}
END_TEST

START_TEST(draining_leaves_what_is_out)
{
    start(64 * MIB, FOREVER);
    void *kept = out(2 * MIB, 2 * MIB), *lives = out(2 * MIB, 2 * MIB);

    give(kept, 2 * MIB);
    ck_assert(zr_front_drain(front, pool));
    ck_assert(!zr_front_drain(front, pool));
    ck_assert_ptr_null(zr_front_take(front, 2 * MIB, 2 * MIB));
    ck_assert_uint_eq(zr_front_size(front, lives), 2 * MIB);
    ck_assert_int_eq(give(lives, 2 * MIB), ZR_FRONT_KEPT);
    stop();
}
END_TEST

START_TEST(what_lies_for_long_goes_back)
{
    start(64 * MIB, 0);
    void *p = out(2 * MIB, 2 * MIB);
    int long_ones = 0;

    for (int i = 0; i < 1000; i++) {
        long_ones += give(p, 2 * MIB) == ZR_FRONT_KEPT_LONG;
        ck_assert_ptr_eq(zr_front_take(front, 2 * MIB, 2 * MIB), p);
    }
    ck_assert_int_ge(long_ones, 3);
    give(p, 2 * MIB);
    zr_front_pass_time(front, pool);
    ck_assert_ptr_null(zr_front_take(front, 2 * MIB, 2 * MIB));
    stop();
}
END_TEST

/* Each block carries who has it: two who have one at a time would see each other. */
enum { ROUNDS = 20000 };
static uint32_t mine[512];

static uint32_t *holder(const void *p)
{
    return &mine[(uintptr_t)p / (2 * MIB) % 512];
}

static void *churn(void *arg)
{
    uint32_t me = (uint32_t)(uintptr_t)arg;

    for (int i = 0; i < ROUNDS; i++) {
        size_t asked = 2 * MIB - (size_t)(i % 5), told = 0;
        void *p = zr_front_take(front, 2 * MIB, asked);
        bool noted = p != NULL;

        if (!p) {
            ck_assert_int_eq(zr_pool_malloc(pool, 2 * MIB, 512, &p), 0);
            noted = zr_front_note(front, p, 2 * MIB, asked);
        }
        ck_assert_uint_eq(__atomic_exchange_n(holder(p), me, __ATOMIC_RELAXED), 0);
        if (i % 64 == 0)
            zr_front_drain(front, pool);
        ck_assert_uint_eq(__atomic_exchange_n(holder(p), 0, __ATOMIC_RELAXED), me);
        switch (noted ? zr_front_give(front, p, &told) : ZR_FRONT_PASSED) {
        case ZR_FRONT_PASSED:
            ck_assert_int_eq(zr_pool_free(pool, p), ZR_FREED);
            break;
        case ZR_FRONT_KEPT_LONG:
            zr_front_pass_time(front, pool);
            break;
        case ZR_FRONT_KEPT:
            break;
        default:
            ck_abort_msg("a block of ours is not known");
        }
        ck_assert(!noted || told == asked);
    }
    return NULL;
}

START_TEST(threads_never_share_a_block)
{
    pthread_t thread[4];

    start(6 * MIB, 0);
    for (uintptr_t i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    ck_assert_uint_eq(blocks_out(0), 0);
    stop();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("front");
    TCase *t = tcase_create("front");
    SRunner *runner;
    int failed;

    tcase_set_timeout(t, 60);
    tcase_add_test(t, what_was_just_given_back_is_handed_out_again);
    tcase_add_test(t, a_block_that_is_free_or_unknown_is_refused);
    tcase_add_test(t, more_than_the_limit_goes_to_the_pool);
    tcase_add_test(t, a_place_that_is_taken_is_not_taken_twice);
    tcase_add_test(t, what_is_out_is_counted_as_it_was_asked_for);
    tcase_add_test(t, draining_leaves_what_is_out);
    tcase_add_test(t, what_lies_for_long_goes_back);
    tcase_add_test(t, threads_never_share_a_block);
    suite_add_tcase(suite, t);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
