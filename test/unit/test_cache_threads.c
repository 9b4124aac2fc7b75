/* Whole blocks: what cache.h promises to several threads. In a given order: test_cache_turns.c. */
#include "cache_whole.h"

#include <pthread.h>
#include <sched.h>

static void *fill_and_end(void *arg)
{
    void *p[100];

    (void)arg;
    for (int i = 0; i < 100; i++)
        p[i] = get(MIB);
    for (int i = 0; i < 100; i++)
        put(p[i]);
    return NULL;
}

START_TEST(a_thread_that_ends_leaves_its_blocks_to_the_others)
{
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, fill_and_end, NULL), 0);
    pthread_join(thread, NULL);
    for (int i = 0; i < 100; i++)
        get(MIB);
    ck_assert_int_eq(driver.allocs, 100);
}
END_TEST

static pthread_barrier_t gate;

static void *keep_and_wait(void *arg)
{
    put(get(MIB));
    pthread_barrier_wait(&gate);
    pthread_barrier_wait(&gate);
    return arg;
}

START_TEST(a_trim_reaches_into_the_magazines_of_all_threads)
{
    pthread_t thread;

    pthread_barrier_init(&gate, NULL, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, keep_and_wait, NULL), 0);
    pthread_barrier_wait(&gate);
    ck_assert_uint_eq(zr_cache_kept(cache, 1), MIB);
    ck_assert_uint_eq(zr_cache_trim(cache, 1, NULL, 0), MIB);
    ck_assert_uint_eq(driver.held, 0);
    pthread_barrier_wait(&gate);
    pthread_join(thread, NULL);
}
END_TEST

static void *shared[2000];
static int freed[2];

static void *free_all(void *arg)
{
    int me = (int)(uintptr_t)arg;
    struct zr_freed_block mine;

    pthread_barrier_wait(&gate);
    for (int i = 0; i < 2000; i++)
        freed[me] += zr_cache_free(cache, shared[i], true, &mine) == ZR_FREED;
    return NULL;
}

START_TEST(of_two_threads_that_free_one_pointer_one_succeeds)
{
    pthread_t thread;
    struct zr_cache_counts counts;

    pthread_barrier_init(&gate, NULL, 2);
    for (int i = 0; i < 2000; i++)
        shared[i] = get(4096);
    ck_assert_int_eq(pthread_create(&thread, NULL, free_all, (void *)1), 0);
    free_all((void *)0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(freed[0] + freed[1], 2000);
    zr_cache_counts(cache, &counts);
    ck_assert_uint_eq(counts.kept_blocks, 2000);
    ck_assert_uint_eq(counts.kept_bytes, 2000 * 4096);
}
END_TEST

static void *free_one(void *arg)
{
    struct zr_freed_block mine;

    return (void *)(uintptr_t)zr_cache_free(cache, arg, true, &mine);
}

START_TEST(what_another_thread_has_freed_is_free_for_its_own_thread_too)
{
    void *p = get(MIB), *q = get(MIB), *freed_as;
    pthread_t thread;

    ck_assert_int_eq(put(q), ZR_FREED);
    ck_assert_ptr_eq(get(MIB), q);
    ck_assert_int_eq(pthread_create(&thread, NULL, free_one, p), 0);
    pthread_join(thread, &freed_as);
    ck_assert_uint_eq((uintptr_t)freed_as, ZR_FREED);
    ck_assert_int_eq(put(p), ZR_FREED_TWICE);
    ck_assert_int_eq(put(q), ZR_FREED);
    ck_assert_int_eq(put(q), ZR_FREED_TWICE);
    ck_assert_ptr_eq(get(MIB), q);
    ck_assert_ptr_eq(get(MIB), p);
    ck_assert_int_eq(driver.allocs, 2);
}
END_TEST

enum { CHURNERS = 3, CHURN = 4000, HANDS = 32 };
static void *hands[HANDS]; /* blocks pass from thread to thread through these */
static int ended;

static void *churn(void *arg)
{
    uint64_t r = (uintptr_t)arg * 2 + 1;
    struct zr_freed_block mine;
    int code;

    for (int i = 0; i < CHURN; i++) {
        struct zr_key k = key;
        struct zr_block *b;
        void *other;

        r = r * 6364136223846793005u + 1442695040888963407u;
        k.context = (void *)(0x1000 + (r >> 60) % 2 * 16);
        b = zr_cache_alloc(cache, &k, (size_t)4096 << (r >> 40) % 9, &code);
        if (zr_map_find((char *)b->base + 1) != b)
            abort();
        if ((r >> 50) % 16 == 0)
            zr_block_mark(b, ZR_BLOCK_EXPORTED);
        other = __atomic_exchange_n(&hands[(r >> 33) % HANDS], (void *)b->base, __ATOMIC_ACQ_REL);
        if (other && zr_cache_free(cache, other, (r >> 55) % 8 != 0, &mine) > ZR_FREED_BY_DRIVER)
            abort();
    }
    __atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED);
    return NULL;
}

START_TEST(threads_allocate_free_and_export_while_another_trims)
{
    pthread_t thread[CHURNERS];

    zr_cache_set_limit(cache, 1, 8 * MIB);
    zr_cache_set_idle(cache, 1);
    memset(hands, 0, sizeof hands);
    for (uintptr_t i = 0; i < CHURNERS; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, churn, (void *)i), 0);
    for (int i = 0; __atomic_load_n(&ended, __ATOMIC_RELAXED) < CHURNERS; i++) {
        zr_cache_trim(cache, i % 2 ? ZR_ACCOUNTS : 1, i % 3 ? NULL : key.context, (uint32_t)i % 2);
        zr_cache_kept(cache, 1);
        sched_yield();
    }
    for (int i = 0; i < CHURNERS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < HANDS; i++)
        if (hands[i])
            put(hands[i]);
    zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0);
    ck_assert_uint_eq(driver.held, 0);
    ck_assert_uint_eq(zr_cache_kept(cache, 1), 0);
}
END_TEST

/* --- when memory is short ----------------------------------------------------------------------------------- */
static void *theirs;

static void *exchange(void *arg)
{
    struct zr_key other = key;

    other.flags = 1;
    put(theirs);
    get_key(&other, 8 * MIB);
    return arg;
}

/* Before the second try of whoever asks for 16 MiB another thread frees a block, and asks for one of another kind. */
static int be_faster(void *arg, const struct zr_key *k, size_t size, void **out)
{
    static int tries;
    pthread_t t;

    if (size == 16 * MIB && ++tries == 2) {
        ck_assert_int_eq(pthread_create(&t, NULL, exchange, NULL), 0);
        pthread_join(t, NULL);
    }
    return driver_alloc(arg, k, size, out);
}

START_TEST(nobody_is_refused_for_what_others_free_meanwhile)
{
    const struct zr_backing backing = {NULL, be_faster, driver_free, driver_is_full};
    void *p;

    cache = zr_cache_new(&backing);
    p = get(8 * MIB);
    theirs = get(8 * MIB);
    put(p);
    driver.room = 24 * MIB;
    get(16 * MIB);
    ck_assert_uint_eq(driver.held, 24 * MIB);
    ck_assert_int_eq(driver.frees, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache threads");
    TCase *c = tcase_create("threads");

    suite_add_tcase(suite, c);
    tcase_add_checked_fixture(c, start, stop);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_thread_that_ends_leaves_its_blocks_to_the_others);
    tcase_add_test(c, a_trim_reaches_into_the_magazines_of_all_threads);
    tcase_add_test(c, of_two_threads_that_free_one_pointer_one_succeeds);
    tcase_add_test(c, what_another_thread_has_freed_is_free_for_its_own_thread_too);
    tcase_add_test(c, threads_allocate_free_and_export_while_another_trims);
    tcase_add_test(c, nobody_is_refused_for_what_others_free_meanwhile);
    return run_suite(suite);
}
