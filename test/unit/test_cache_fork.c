/*
 * A child of fork and the allocators: whatever lock another thread of its parent held, and whatever it was doing, the
 * child starts with nothing and waits for nobody. The locks that lie in static memory are tested by prog_locks.c.
 */
#include "cache/heap.h"
#include "cache/quick.h"
#include "null_driver.h"
#include "suite.h"

#include <sys/wait.h>

static const struct zr_key key = {.context = (void *)0x1000, .device = (void *)0x2000, .account = 1};
static struct zr_cache *cache;
static struct zr_pool *pool;
static void *kept;

static void *get(size_t size)
{
    int code;
    struct zr_block *b = zr_cache_alloc(cache, &key, size, &code);

    ck_assert_ptr_nonnull(b);
    return (void *)b->base;
}

static void put(void *p)
{
    struct zr_freed_block was;

    ck_assert_int_eq(zr_cache_keep(cache, p, &was), ZR_FREED);
}

static void start(void)
{
    cache = zr_cache_new(&null_blocks);
    pool = zr_pool_new(&null_segments);
    ck_assert(cache && pool);
    zr_cache_set_idle(cache, UINT32_MAX);
    kept = get(65536);
    put(kept);
}

/* What a child does first: everything that takes a lock. */
static void work(void)
{
    struct zr_pool *own;
    void *p = get(65536);

    ck_assert_ptr_ne(p, kept);
    put(p);
    zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0);
    zr_cache_drop_context(cache, key.context);
    own = zr_pool_new(&null_segments);
    ck_assert(own && zr_pool_malloc(own, 65536, 0, &p) == 0 && zr_pool_free(own, p) == ZR_FREED);
    zr_pool_delete(own);
    (void)zr_pool_malloc(pool, 65536, 0, &p); /* a runtime that goes on using it is told something */
}

static void child_does(void (*what)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        alarm(10); /* instead of waiting for ever */
        zr_cache_fork_child();
        what();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

static void child_works(void)
{
    child_does(work);
}

START_TEST(a_cache_whose_lock_is_held)
{
    start();
    cache->lock.word = 1;
    child_works();
    cache->lock.word = 0;
}
END_TEST

START_TEST(a_depot_whose_lock_is_held)
{
    start();
    for (unsigned id = 1; id <= cache->bins; id++)
        cache->bin[id]->lock.word = 1;
    child_works();
    for (unsigned id = 1; id <= cache->bins; id++)
        cache->bin[id]->lock.word = 0;
}
END_TEST

START_TEST(a_heap_that_is_seized)
{
    start();
    zr_heap_seize_all(cache);
    child_works();
    zr_heap_release_all(cache);
}
END_TEST

START_TEST(a_heap_whose_owner_is_inside)
{
    start();
    zr_heap_last->inside = 1;
    child_works();
    zr_heap_last->inside = 0;
}
END_TEST

START_TEST(a_thread_that_is_giving_back)
{
    start();
    zr_giving(cache);
    child_works();
    zr_give_back(cache, NULL);
}
END_TEST

START_TEST(a_pool_whose_lock_is_held)
{
    void *p;

    start();
    ck_assert_int_eq(zr_pool_malloc(pool, 65536, 0, &p), 0);
    pool->lock.word = 1;
    child_works();
    pool->lock.word = 0;
}
END_TEST

START_TEST(a_pool_whose_thread_is_inside)
{
    void *p;

    start();
    ck_assert_int_eq(zr_pool_malloc(pool, 65536, 0, &p), 0);
    zr_fronts[pool->id]->inside = 1;
    child_works();
    zr_fronts[pool->id]->inside = 0;
}
END_TEST

static void *inherited;

static void use_both(void)
{
    struct zr_pool *own = zr_pool_new(&null_segments);
    void *p, *q;

    ck_assert_ptr_nonnull(own);
    for (int i = 0; i < 4; i++) {
        ck_assert(zr_pool_malloc(pool, 65536, 0, &p) == 0 && zr_pool_malloc(own, 65536, 0, &q) == 0);
        ck_assert(zr_pool_free(pool, p) == ZR_FREED && zr_pool_free(own, q) == ZR_FREED);
    }
    ck_assert_int_eq(zr_pool_free(pool, inherited), ZR_FREED);
    zr_pool_delete(own);
    zr_pool_delete(pool);
}

START_TEST(a_pool_beside_one_of_its_own)
{
    start();
    ck_assert_int_eq(zr_pool_malloc(pool, 65536, 0, &inherited), 0);
    child_does(use_both);
}
END_TEST

static void drop(void)
{
    uint64_t bytes;

    ck_assert_uint_eq(zr_pool_trim(pool, 0), 0);
    ck_assert_uint_eq(zr_pool_out(pool, &bytes), 0);
    zr_pool_delete(pool);
    ck_assert_ptr_ne(zr_pool_new(&null_segments), pool);
}

START_TEST(a_pool_in_which_another_thread_is_at_work_is_dropped)
{
    struct chunk *first, *next;
    void *p;

    start();
    ck_assert_int_eq(zr_pool_malloc(pool, 65536, 0, &p), 0);
    first = pool->group[GROUP_SMALL].newest->first;
    next = first->next;
    first->next = (struct chunk *)64;
    child_does(drop);
    first->next = next;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache fork");
    TCase *c = tcase_create("in a child");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, a_cache_whose_lock_is_held);
    tcase_add_test(c, a_depot_whose_lock_is_held);
    tcase_add_test(c, a_heap_that_is_seized);
    tcase_add_test(c, a_heap_whose_owner_is_inside);
    tcase_add_test(c, a_thread_that_is_giving_back);
    tcase_add_test(c, a_pool_whose_lock_is_held);
    tcase_add_test(c, a_pool_whose_thread_is_inside);
    tcase_add_test(c, a_pool_beside_one_of_its_own);
    tcase_add_test(c, a_pool_in_which_another_thread_is_at_work_is_dropped);
    return run_suite(suite);
}
