/* Several threads at once: nothing is handed out twice, nothing is lost, and nobody waits for ever. */
#include "cache_whole.h"

#include <pthread.h>

enum { THREADS = 4, LIVE = 64 };
static unsigned steps = 40000;

static const struct zr_module modules[] = {{NULL, zr_cache_thread_end, NULL}};

static void begin(void) {
    zr_lifecycle_modules(modules, 1);
    start();
}

static void run(void *(*what)(void *), unsigned count) {
    pthread_t thread[THREADS];

    for (uintptr_t i = 0; i < count; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, what, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
}

static uint64_t next(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* Each owner writes its name on what it has; `caller` is the owner's while a block is LIVE. */
static void *churn_whole(void *me) {
    uint64_t seed = (uintptr_t)me;
    struct zr_block *live[LIVE] = {0};

    for (unsigned i = 0; i < steps; i++) {
        struct zr_block **b = &live[next(&seed) % LIVE];
        struct zr_key k = key;

        if (*b) {
            if ((*b)->caller != me)
                abort();
            put((void *)(*b)->base);
            *b = NULL;
        } else {
            k.context = (void *)(0x1000 + next(&seed) % 3 * 16);
            *b = get_key(&k, 65536 << next(&seed) % 4);
            (*b)->caller = me;
        }
        if (next(&seed) % 4096 == 0)
            zr_cache_trim(ZR_ACCOUNTS, next(&seed) % 2 ? NULL : (void *)0x1010);
    }
    for (unsigned i = 0; i < LIVE; i++)
        if (live[i])
            put((void *)live[i]->base);
    return NULL;
}

START_TEST(threads_share_the_cache) {
    run(churn_whole, THREADS);
    ck_assert_uint_eq(zr_cache_bytes(1), driver.held);
    zr_cache_trim(ZR_ACCOUNTS, NULL);
    ck_assert_uint_eq(driver.held, 0);
    ck_assert_int_eq(driver.allocs, driver.frees);
}
END_TEST

START_TEST(threads_keep_within_the_limit) {
    zr_cache_set_limit(1, 4 * MIB);
    run(churn_whole, THREADS);
    ck_assert_uint_eq(zr_cache_bytes(1), driver.held);
    ck_assert_uint_le(zr_cache_bytes(1), 4 * MIB);
}
END_TEST

static void *put_one(void *p) {
    put(p);
    return NULL;
}

static void *take_one(void *p) {
    return get(65536) == p ? p : NULL;
}

START_TEST(a_block_freed_by_another_thread_is_found) {
    void *p = get(65536), *result;
    pthread_t thread;

    pthread_create(&thread, NULL, put_one, p);
    pthread_join(thread, NULL);
    ck_assert_ptr_eq(get(65536), p);
    put(p);
    pthread_create(&thread, NULL, take_one, p);
    pthread_join(thread, &result);
    ck_assert_ptr_eq(result, p);
    ck_assert_int_eq(driver.allocs, 1);
}
END_TEST

/* The limit counts what other threads have cached, and pushes it out. */
START_TEST(old_blocks_of_other_threads_leave_first_where_there_are_none_of_ones_own) {
    void *p = get(2 * MIB), *q = get(2 * MIB);
    pthread_t thread;

    zr_cache_set_limit(1, 3 * MIB);
    pthread_create(&thread, NULL, put_one, p);
    pthread_join(thread, NULL);
    ck_assert(put(q));
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_ptr_eq(get(2 * MIB), q);
}
END_TEST

static pthread_barrier_t both;
static uintptr_t contested;
static int won[3];

static void *free_contested(void *me) {
    for (int i = 0; i < 5000; i++) {
        struct zr_block *b;
        uint64_t word;

        if (me == (void *)1)
            contested = (uintptr_t)get(65536);
        pthread_barrier_wait(&both);
        b = zr_map_look((void *)contested, &word);
        if (b && zr_word_state(word) == ZR_BLOCK_LIVE && zr_block_shift(b, word, ZR_BLOCK_CACHED)) {
            won[(uintptr_t)me]++;
            zr_cache_put(b);
        }
        pthread_barrier_wait(&both);
    }
    return NULL;
}

START_TEST(of_two_threads_that_free_one_block_one_succeeds) {
    pthread_barrier_init(&both, NULL, 2);
    run(free_contested, 2);
    ck_assert_int_eq(won[1] + won[2], 5000);
    ck_assert_int_eq(driver.allocs, 1);
}
END_TEST

/* --- a release that takes its time ------------------------------------------------------------------------------- */
static int slow_entered, slow_done;

static enum zr_released slow_release(struct zr_block *b) {
    struct timespec t = {0, 50000000};

    __atomic_store_n(&slow_entered, 1, __ATOMIC_RELEASE);
    nanosleep(&t, NULL);
    driver_free(b);
    __atomic_store_n(&slow_done, 1, __ATOMIC_RELEASE);
    return ZR_RELEASED;
}

static void *trim_all(void *arg) {
    zr_cache_trim(ZR_ACCOUNTS, NULL);
    return arg;
}

START_TEST(await_waits_until_others_have_given_back_what_they_took_out) {
    pthread_t thread;
    uint32_t before = zr_cache_withdrawals();

    zr_cache_setup(slow_release, UINT32_MAX);
    put(get(65536));
    pthread_create(&thread, NULL, trim_all, NULL);
    while (!__atomic_load_n(&slow_entered, __ATOMIC_ACQUIRE))
        ;
    ck_assert_uint_eq(zr_cache_trim(ZR_ACCOUNTS, NULL), 0);
    put(get(131072)); /* nobody else waits meanwhile */
    ck_assert_int_eq(__atomic_load_n(&slow_done, __ATOMIC_ACQUIRE), 0);
    zr_cache_await(5000);
    ck_assert_int_eq(__atomic_load_n(&slow_done, __ATOMIC_ACQUIRE), 1);
    ck_assert_uint_ne(zr_cache_withdrawals(), before);
    pthread_join(thread, NULL);
}
END_TEST

static struct zr_block *marked;
static uint32_t stop;
static unsigned lost;

/* Marks a block as another thread would that exports it: nobody else takes this mark away. */
static void *mark(void *arg) {
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        zr_block_mark(marked, ZR_BLOCK_PINNED);
        for (int i = 0; i < 20; i++)
            lost += !(zr_block_flags(marked) & ZR_BLOCK_PINNED);
        __atomic_fetch_and(&marked->flags, ~(uint32_t)ZR_BLOCK_PINNED, __ATOMIC_RELAXED);
    }
    return arg;
}

/* What the last owner did with a block is forgotten when it is handed out again, while others mark it. */
START_TEST(a_mark_survives_a_hit) {
    void *p = get(65536);
    pthread_t thread;

    marked = zr_map_base(p);
    ck_assert_int_eq(pthread_create(&thread, NULL, mark, NULL), 0);
    for (unsigned i = 0; i < 40 * steps; i++) {
        zr_block_mark(marked, ZR_BLOCK_SYCL);
        put(p);
        ck_assert_ptr_eq(get(65536), p);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(lost, 0);
    put(p);
}
END_TEST

/* --- the pool ------------------------------------------------------------------------------------------------------
 */
static struct zr_pool *pool;

static void *churn_pool(void *me) {
    uint64_t seed = (uintptr_t)me;
    void *live[LIVE] = {0};
    size_t size[LIVE], freed;
    bool grew;

    for (unsigned i = 0; i < steps; i++) {
        unsigned n = next(&seed) % LIVE;

        if (live[n]) {
            if (zr_pool_usable(pool, live[n]) < size[n] || zr_pool_free(pool, live[n], &freed) != ZR_FREED ||
                freed != size[n])
                abort();
            live[n] = NULL;
        } else {
            size[n] = 1 + next(&seed) % ((size_t)1024 << next(&seed) % 12);
            if (zr_pool_malloc(pool, size[n], (size_t)512 << next(&seed) % 8, &live[n], &grew) != 0)
                abort();
        }
        if (next(&seed) % 2048 == 0)
            zr_pools_trim(ZR_ACCOUNTS);
    }
    for (unsigned i = 0; i < LIVE; i++)
        if (live[i] && zr_pool_free(pool, live[i], &freed) != ZR_FREED)
            abort();
    return NULL;
}

START_TEST(threads_share_a_pool) {
    struct zr_pool_counts c;

    pool = zr_pool_new(&segments, 1);
    run(churn_pool, THREADS);
    zr_pool_counts(pool, &c);
    ck_assert_uint_eq(c.live, 0);
    ck_assert_uint_eq(c.live_bytes, 0);
    ck_assert_uint_eq(c.whole_free, c.held);
    ck_assert_uint_eq(zr_pool_trim(pool, 0), c.held);
    ck_assert_uint_eq(driver.held, 0);
    zr_pool_delete(pool);
}
END_TEST

static void *make_and_delete(void *me) {
    for (unsigned i = 0; i < steps / 20; i++) {
        struct zr_pool *own = zr_pool_new(&segments, 1);
        size_t size;
        bool grew;
        void *p;

        if (!own || zr_pool_malloc(own, 512, 0, &p, &grew) != 0 || zr_pool_free(own, p, &size) != ZR_FREED)
            abort();
        if (i % 2)
            zr_pools_trim(ZR_ACCOUNTS);
        zr_pool_delete(own);
    }
    return me;
}

START_TEST(pools_come_and_go_while_others_trim_them) {
    run(make_and_delete, THREADS);
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

static void slow_free(void *arg, struct zr_block *b) {
    struct timespec t = {0, 50000000};

    __atomic_store_n(&slow_entered, 1, __ATOMIC_RELEASE);
    nanosleep(&t, NULL);
    segment_free(arg, b);
    __atomic_store_n(&slow_done, 1, __ATOMIC_RELEASE);
}

static void *trim_pools(void *arg) {
    zr_pools_trim(ZR_ACCOUNTS);
    return arg;
}

/* Whoever deletes a pool takes its backing down next. */
START_TEST(a_pool_is_deleted_once_nobody_trims_it_any_more) {
    static const struct zr_pool_backing backing = {NULL, segment_alloc, slow_free};
    pthread_t thread;
    size_t size;
    bool grew;
    void *p;

    pool = zr_pool_new(&backing, 1);
    ck_assert_int_eq(zr_pool_malloc(pool, 512, 0, &p, &grew), 0);
    ck_assert_int_eq(zr_pool_free(pool, p, &size), ZR_FREED);
    pthread_create(&thread, NULL, trim_pools, NULL);
    while (!__atomic_load_n(&slow_entered, __ATOMIC_ACQUIRE))
        ;
    zr_pool_delete(pool);
    ck_assert_int_eq(__atomic_load_n(&slow_done, __ATOMIC_ACQUIRE), 1);
    pthread_join(thread, NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache threads");
    TCase *c = tcase_create("threads");
    const char *text = getenv("ZEROUTE_STEPS");

    if (text)
        steps = (unsigned)atoi(text);
    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, begin, NULL);
    tcase_add_test(c, threads_share_the_cache);
    tcase_add_test(c, threads_keep_within_the_limit);
    tcase_add_test(c, a_block_freed_by_another_thread_is_found);
    tcase_add_test(c, old_blocks_of_other_threads_leave_first_where_there_are_none_of_ones_own);
    tcase_add_test(c, of_two_threads_that_free_one_block_one_succeeds);
    tcase_add_test(c, await_waits_until_others_have_given_back_what_they_took_out);
    tcase_add_test(c, a_mark_survives_a_hit);
    tcase_add_test(c, a_pool_is_deleted_once_nobody_trims_it_any_more);
    tcase_add_test(c, threads_share_a_pool);
    tcase_add_test(c, pools_come_and_go_while_others_trim_them);
    return run_suite(suite);
}
