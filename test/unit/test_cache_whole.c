/* Whole blocks: each promise of cache.h, against a backing that counts and can be told to fail. */
#include "cache/cache.h"
#include "cache/classes.h"
#include "suite.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FULL = 0x70000003, INVALID = 0x78000004 };
#define MIB ((size_t)1 << 20)

static struct {
    uint64_t next;
    int allocs, frees, fail_next, fail_code, refuse_next;
    uint64_t held, room;
    size_t last_size;
    void *last_context;
    uint64_t last_peers;
} driver;

static int driver_alloc(void *arg, const struct zr_key *key, size_t size, void **out)
{
    uint64_t align = key->align > 16 ? (uint64_t)1 << key->align : 65536, at, from;

    (void)arg;
    __atomic_fetch_add(&driver.allocs, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&driver.last_size, size, __ATOMIC_RELAXED);
    if (driver.fail_next) {
        driver.fail_next--;
        return driver.fail_code;
    }
    if (__atomic_add_fetch(&driver.held, size, __ATOMIC_RELAXED) > driver.room) {
        __atomic_fetch_sub(&driver.held, size, __ATOMIC_RELAXED);
        return FULL;
    }
    from = __atomic_load_n(&driver.next, __ATOMIC_RELAXED);
    do
        at = (from + align - 1) & -align;
    while (!__atomic_compare_exchange_n(&driver.next, &from, at + ((size + 65535) & ~(size_t)65535),
                                        false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    *out = (void *)at;
    return 0;
}

static void (*while_freeing)(void);

static int driver_free(void *arg, const struct zr_block *b)
{
    (void)arg;
    if (zr_map_base((void *)b->base))
        abort(); /* out of the map before it goes back */
    if (while_freeing)
        while_freeing();
    if (driver.refuse_next) {
        driver.refuse_next--;
        return INVALID;
    }
    __atomic_fetch_add(&driver.frees, 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&driver.held, b->held, __ATOMIC_RELAXED);
    __atomic_store_n(&driver.last_context, b->context, __ATOMIC_RELAXED);
    __atomic_store_n(&driver.last_peers, b->peers, __ATOMIC_RELAXED);
    return 0;
}

static bool driver_is_full(int code)
{
    return code == FULL;
}

static struct zr_cache *cache;
static const struct zr_key key = {.context = (void *)0x1000, .device = (void *)0x2000, .account = 1};
static struct zr_freed_block was;

static void start(void)
{
    static const struct zr_backing backing = {NULL, driver_alloc, driver_free, driver_is_full};

    memset(&driver, 0, sizeof driver);
    driver.next = 0x7f0000000000;
    driver.room = UINT64_MAX;
    cache = zr_cache_new(&backing);
    ck_assert_ptr_nonnull(cache);
    zr_cache_set_idle(cache, UINT32_MAX);
}

static void stop(void)
{
    zr_cache_delete(cache);
}

static void *get_key(const struct zr_key *k, size_t size)
{
    int code = 0;
    struct zr_block *b = zr_cache_alloc(cache, k, size, &code);

    ck_assert_ptr_nonnull(b);
    ck_assert_uint_eq(b->size, size);
    ck_assert_uint_ge(b->held, size);
    ck_assert_ptr_eq(zr_map_base((void *)b->base), b);
    return (void *)b->base;
}

static void *get(size_t size)
{
    return get_key(&key, size);
}

static enum zr_freed put(void *p)
{
    return zr_cache_free(cache, p, true, &was);
}

START_TEST(a_freed_block_is_reused_and_remembers_the_asked_size)
{
    void *p = get(3 * MIB);

    ck_assert_int_eq(put(p), ZR_FREED);
    ck_assert_uint_eq(was.size, 3 * MIB);
    ck_assert_ptr_eq(get(3 * MIB - 5), p);
    ck_assert_uint_eq(zr_map_base(p)->size, 3 * MIB - 5);
    ck_assert_ptr_null(zr_map_find((char *)p + 3 * MIB - 5));
    ck_assert_int_eq(driver.allocs, 1);
    put(p);
}
END_TEST

START_TEST(waste_is_bounded)
{
    for (size_t size = 1; size < ZR_CLASS_LIMIT / 2; size += size / 61 + 1) {
        unsigned c = zr_class_of(size);
        size_t held = zr_class_size(c);

        ck_assert_uint_lt(c, ZR_CLASSES);
        ck_assert_uint_ge(held, size);
        ck_assert(c == 0 || zr_class_size(c - 1) < size);
        ck_assert_uint_le(held - size, size <= 512 ? 63 : size <= MIB ? size / 8 : size / 16);
    }
    ck_assert_uint_eq(zr_class_size(zr_class_of(ZR_CLASS_LIMIT)), ZR_CLASS_LIMIT);
    for (size_t size = 2 * MIB; size <= 64 * MIB; size += 2 * MIB)
        ck_assert_uint_eq(zr_class_size(zr_class_of(size)), size);
}
END_TEST

START_TEST(blocks_of_another_key_are_not_reused)
{
    struct zr_key other[7];
    void *p = get(MIB);

    put(p);
    for (int i = 0; i < 7; i++)
        other[i] = key;
    other[0].context = (void *)0x1010;
    other[1].device = (void *)0x2010;
    other[2].ordinal = 1;
    other[3].flags = 1;
    other[4].peers = 2;
    other[5].align = 21;
    other[6].extra = 1;
    for (int i = 0; i < 7; i++)
        ck_assert_ptr_ne(get_key(&other[i], MIB), p);
    ck_assert_ptr_eq(get(MIB), p);
}
END_TEST

START_TEST(alignment_is_honoured_for_any_power_of_two)
{
    for (unsigned align = 1; align <= 30; align++) {
        struct zr_key k = key;
        void *p, *q;

        k.align = (uint8_t)align;
        p = get_key(&k, 100);
        ck_assert_uint_eq((uintptr_t)p & (((uintptr_t)1 << align) - 1), 0);
        put(p);
        q = get_key(&k, 100);
        ck_assert_uint_eq((uintptr_t)q & (((uintptr_t)1 << align) - 1), 0);
    }
}
END_TEST

START_TEST(misuse_is_told_apart_and_corrupts_nothing)
{
    void *p = get(MIB), *q = get(MIB);
    struct zr_block *foreign = zr_block_new();

    ck_assert_int_eq(put((char *)p + 64), ZR_FREED_INSIDE);
    ck_assert_int_eq(put((char *)p + MIB - 1), ZR_FREED_INSIDE);
    ck_assert_int_eq(put((void *)0x123456), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(put(NULL), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(put(p), ZR_FREED);
    ck_assert_int_eq(put(p), ZR_FREED_TWICE);
    ck_assert_int_eq(put((char *)p + 64), ZR_FREED_UNKNOWN);
    zr_block_place(foreign, 0x55550000, 100, 100);
    ck_assert(zr_map_insert(foreign));
    ck_assert_int_eq(put((void *)0x55550000), ZR_FREED_FOREIGN);
    ck_assert_ptr_eq(zr_map_take((void *)0x55550000), foreign);
    zr_block_recycle(foreign);
    ck_assert_ptr_eq(get(MIB), p);
    ck_assert_ptr_ne(get(MIB), p);
    put(p);
    ck_assert_int_eq(put(q), ZR_FREED);
}
END_TEST

START_TEST(a_block_that_may_be_in_use_goes_to_the_driver)
{
    void *p = get(MIB);

    ck_assert_int_eq(zr_cache_free(cache, p, false, &was), ZR_FREED_BY_DRIVER);
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_ptr_eq(driver.last_context, key.context);
    ck_assert_int_eq(put(p), ZR_FREED_UNKNOWN);
}
END_TEST

static _Atomic int trimming, dropping, dropped, too_early;

static void *trim(void *arg)
{
    zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0);
    return arg;
}

static void *drop(void *arg)
{
    dropping = 1;
    zr_cache_drop_context(cache, key.context);
    dropped = 1;
    return arg;
}

/* Time enough for a context to go, if nothing holds it. */
static void hold_on(void)
{
    struct timespec t = {.tv_nsec = 50000000};

    trimming = 1;
    while (!dropping)
        sched_yield();
    nanosleep(&t, NULL);
    too_early = dropped;
}

START_TEST(a_context_waits_for_what_another_thread_gives_back_to_it)
{
    pthread_t trimmer, dropper;

    put(get(MIB));
    while_freeing = hold_on;
    ck_assert_int_eq(pthread_create(&trimmer, NULL, trim, NULL), 0);
    while (!trimming)
        sched_yield();
    ck_assert_int_eq(pthread_create(&dropper, NULL, drop, NULL), 0);
    pthread_join(trimmer, NULL);
    pthread_join(dropper, NULL);
    while_freeing = NULL;
    ck_assert(dropped && !too_early);
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_ptr_eq(driver.last_context, key.context);
}
END_TEST

START_TEST(a_block_that_the_driver_refuses_stays_alive)
{
    void *p = get(MIB), *inside = (char *)p + 5;

    driver.refuse_next = 1;
    ck_assert_int_eq(zr_cache_free(cache, p, false, &was), ZR_FREED_REFUSED);
    ck_assert_int_eq(was.code, INVALID);
    ck_assert_ptr_nonnull(zr_map_find(inside));
    ck_assert_int_eq(put(p), ZR_FREED);
    ck_assert_ptr_eq(get(MIB), p);
    zr_cache_set_limit(cache, key.account, 0); /* nothing can be kept: the driver is asked at once */
    zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0);
    driver.refuse_next = 1;
    ck_assert_int_eq(put(p), ZR_FREED_REFUSED);
    ck_assert_int_eq(put(p), ZR_FREED_BY_DRIVER);
    ck_assert_int_eq(put(p), ZR_FREED_UNKNOWN);
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

START_TEST(a_block_with_an_ipc_handle_is_really_freed)
{
    void *p = get(MIB);

    zr_block_mark(zr_map_base(p), ZR_BLOCK_EXPORTED);
    ck_assert_int_eq(put(p), ZR_FREED_BY_DRIVER);
    ck_assert_int_eq(driver.frees, 1);
}
END_TEST

START_TEST(a_block_that_became_resident_elsewhere_is_kept_under_those_peers)
{
    struct zr_key peers = key;
    void *p = get(MIB);

    zr_map_base(p)->peers = 6;
    zr_block_mark(zr_map_base(p), ZR_BLOCK_MOVED);
    ck_assert_int_eq(put(p), ZR_FREED);
    ck_assert_ptr_ne(get(MIB), p);
    peers.peers = 6;
    ck_assert_ptr_eq(get_key(&peers, MIB), p);
    ck_assert_uint_eq(zr_map_base(p)->peers, 6);
    put(p);
    zr_cache_trim(cache, 1, NULL, 0);
    ck_assert_uint_eq(driver.last_peers, 6);
}
END_TEST

START_TEST(out_of_memory_gives_back_this_device_and_asks_once_more)
{
    struct zr_key other = key;
    void *p = get(8 * MIB), *q;
    int code = 0;

    other.account = 2;
    other.device = (void *)0x2020;
    q = get_key(&other, 8 * MIB);
    put(p);
    put(q);
    driver.room = 20 * MIB;
    ck_assert_ptr_nonnull(get(12 * MIB));
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_ptr_eq(get_key(&other, 8 * MIB), q);
    driver.allocs = 0;
    ck_assert_ptr_null(zr_cache_alloc(cache, &key, 12 * MIB, &code));
    ck_assert_int_eq(code, FULL);
    ck_assert_int_eq(driver.allocs, 2);
}
END_TEST

START_TEST(the_second_try_asks_for_the_very_size)
{
    size_t size = 33 * MIB + 1;
    void *p;

    driver.room = size;
    p = get(size);
    ck_assert_uint_eq(driver.last_size, size);
    ck_assert_int_eq(put(p), ZR_FREED_BY_DRIVER);
}
END_TEST

START_TEST(other_codes_of_the_driver_go_up_unchanged)
{
    int code = 0;

    driver.fail_next = 1;
    driver.fail_code = INVALID;
    ck_assert_ptr_null(zr_cache_alloc(cache, &key, MIB, &code));
    ck_assert_int_eq(code, INVALID);
    ck_assert_int_eq(driver.allocs, 1);
}
END_TEST

START_TEST(sizes_without_a_class_reach_the_driver_as_they_are)
{
    int code = 0;
    struct zr_block *b = zr_cache_alloc(cache, &key, 0, &code);

    ck_assert_ptr_nonnull(b);
    ck_assert_uint_eq(driver.last_size, 0);
    ck_assert_int_eq(put((void *)b->base), ZR_FREED_BY_DRIVER);
    b = zr_cache_alloc(cache, &key, ZR_CLASS_LIMIT + 1, &code);
    ck_assert_uint_eq(driver.last_size, ZR_CLASS_LIMIT + 1);
    ck_assert_int_eq(put((void *)b->base), ZR_FREED_BY_DRIVER);
}
END_TEST

START_TEST(no_more_is_kept_than_the_limit_allows)
{
    void *p[64];

    zr_cache_set_limit(cache, 1, 16 * MIB);
    for (int i = 0; i < 64; i++)
        p[i] = get((size_t)(1 + i % 4) * MIB);
    for (int i = 0; i < 64; i++) {
        put(p[i]);
        ck_assert_uint_le(zr_cache_kept(cache, 1), 16 * MIB);
    }
    ck_assert_uint_ge(zr_cache_kept(cache, 1), 8 * MIB);
    ck_assert_uint_eq(driver.held, zr_cache_kept(cache, 1));
    ck_assert_int_eq(put(get(17 * MIB)), ZR_FREED_BY_DRIVER);
}
END_TEST

START_TEST(a_limit_of_nothing_keeps_nothing)
{
    zr_cache_set_limit(cache, 1, 0);
    ck_assert_int_eq(put(get(MIB)), ZR_FREED_BY_DRIVER);
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

static void wait_ms(long ms)
{
    struct timespec from, now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &from);
    do {
        usleep(2000);
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < ms);
}

START_TEST(what_lies_unused_is_given_back_on_a_later_call)
{
    void *p = get(MIB), *q = get(2 * MIB);

    zr_cache_set_idle(cache, 40);
    put(p);
    put(q);
    wait_ms(100);
    ck_assert_ptr_ne(get(4096), p);
    ck_assert_int_eq(driver.frees, 2);
    ck_assert_uint_eq(zr_cache_kept(cache, 1), 0);
}
END_TEST

START_TEST(a_destroyed_context_leaves_nothing_behind)
{
    struct zr_key other = key;
    void *p = get(MIB), *live = get(MIB), *q;

    other.context = (void *)0x1010;
    q = get_key(&other, MIB);
    put(p);
    put(q);
    zr_cache_drop_context(cache, key.context);
    ck_assert_int_eq(driver.frees, 1);
    ck_assert_ptr_eq(driver.last_context, key.context);
    ck_assert_ptr_eq(get_key(&other, MIB), q);
    ck_assert_int_eq(put(live), ZR_FREED_FOREIGN);
    ck_assert_ptr_ne(get(MIB), p);
}
END_TEST

START_TEST(contexts_may_come_and_go_without_end)
{
    for (uintptr_t i = 0; i < 3 * ZR_KEYS_MAX; i++) {
        struct zr_key k = key;
        void *p;

        k.context = (void *)(0x10000 + i * 16);
        p = get_key(&k, MIB);
        ck_assert_int_eq(put(p), ZR_FREED);
        ck_assert_ptr_eq(get_key(&k, MIB), p);
        put(p);
        zr_cache_drop_context(cache, k.context);
        ck_assert_int_eq(driver.frees, (int)i + 1);
    }
}
END_TEST

START_TEST(too_many_keys_are_served_by_the_driver_alone)
{
    for (uintptr_t i = 0; i < ZR_KEYS_MAX + 10; i++) {
        struct zr_key k = key;

        k.context = (void *)(0x10000 + i * 16);
        ck_assert_int_eq(put(get_key(&k, MIB)), i < ZR_KEYS_MAX ? ZR_FREED : ZR_FREED_BY_DRIVER);
    }
}
END_TEST

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

START_TEST(hits_and_misses_are_counted_whatever_way_a_block_takes)
{
    struct zr_cache_counts counts;
    void *p[200];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 200; i++)
            p[i] = get(4096);
        for (int i = 0; i < 200; i++)
            put(p[i]);
    }
    zr_cache_counts(cache, &counts);
    ck_assert_uint_eq(counts.misses, 200);
    ck_assert_uint_eq(counts.hits, 400);
    ck_assert_uint_eq(counts.kept_blocks, 200);
    zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0);
    put(get(4096));
    zr_cache_counts(cache, &counts);
    ck_assert_uint_eq(counts.misses, 201);
    ck_assert_uint_eq(counts.hits, 400);
    ck_assert_uint_eq(counts.kept_blocks, 1);
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
    for (int i = 0; i < 50; i++) {
        zr_cache_trim(cache, i % 2 ? ZR_ACCOUNTS : 1, i % 3 ? NULL : key.context, (uint32_t)i % 2);
        zr_cache_kept(cache, 1);
        usleep(200);
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

START_TEST(a_forked_child_starts_with_nothing)
{
    void *p = get(MIB);
    int status;
    pid_t child;

    put(p);
    child = fork();
    if (child == 0) {
        zr_cache_fork_child();
        _exit(zr_map_base(p) || zr_cache_kept(cache, 1) || put(p) != ZR_FREED_UNKNOWN ||
              get(MIB) == p || driver.allocs != 2);
    }
    waitpid(child, &status, 0);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    ck_assert_ptr_eq(get(MIB), p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache whole");
    TCase *c = tcase_create("whole");

    suite_add_tcase(suite, c);
    tcase_add_checked_fixture(c, start, stop);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_freed_block_is_reused_and_remembers_the_asked_size);
    tcase_add_test(c, waste_is_bounded);
    tcase_add_test(c, blocks_of_another_key_are_not_reused);
    tcase_add_test(c, alignment_is_honoured_for_any_power_of_two);
    tcase_add_test(c, misuse_is_told_apart_and_corrupts_nothing);
    tcase_add_test(c, a_block_that_may_be_in_use_goes_to_the_driver);
    tcase_add_test(c, a_block_that_the_driver_refuses_stays_alive);
    tcase_add_test(c, a_context_waits_for_what_another_thread_gives_back_to_it);
    tcase_add_test(c, a_block_with_an_ipc_handle_is_really_freed);
    tcase_add_test(c, a_block_that_became_resident_elsewhere_is_kept_under_those_peers);
    tcase_add_test(c, out_of_memory_gives_back_this_device_and_asks_once_more);
    tcase_add_test(c, the_second_try_asks_for_the_very_size);
    tcase_add_test(c, other_codes_of_the_driver_go_up_unchanged);
    tcase_add_test(c, sizes_without_a_class_reach_the_driver_as_they_are);
    tcase_add_test(c, no_more_is_kept_than_the_limit_allows);
    tcase_add_test(c, a_limit_of_nothing_keeps_nothing);
    tcase_add_test(c, what_lies_unused_is_given_back_on_a_later_call);
    tcase_add_test(c, a_destroyed_context_leaves_nothing_behind);
    tcase_add_test(c, contexts_may_come_and_go_without_end);
    tcase_add_test(c, too_many_keys_are_served_by_the_driver_alone);
    tcase_add_test(c, a_thread_that_ends_leaves_its_blocks_to_the_others);
    tcase_add_test(c, a_trim_reaches_into_the_magazines_of_all_threads);
    tcase_add_test(c, of_two_threads_that_free_one_pointer_one_succeeds);
    tcase_add_test(c, hits_and_misses_are_counted_whatever_way_a_block_takes);
    tcase_add_test(c, what_another_thread_has_freed_is_free_for_its_own_thread_too);
    tcase_add_test(c, threads_allocate_free_and_export_while_another_trims);
    tcase_add_test(c, a_forked_child_starts_with_nothing);
    return run_suite(suite);
}
