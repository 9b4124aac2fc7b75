/*
 * A child of fork: whatever another thread of its parent held or was doing, the child waits for nobody, knows nothing
 * of the parent's blocks, and goes on using the pools that it was given.
 */
#include "cache_whole.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static struct zr_pool *pool;
static void *cached, *live, *pooled;

static void begin(void) {
    bool grew;

    start();
    pool = zr_pool_new(&segments, 1);
    cached = get(65536);
    live = get(65536);
    put(cached);
    ck_assert_int_eq(zr_pool_malloc(pool, 4096, 0, &pooled, &grew), 0);
}

static void child_does(void (*what)(void)) {
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        alarm(10); /* instead of waiting for ever */
        zr_fork_child();
        zr_cache_fork_child();
        zr_pool_fork_child();
        what();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

static bool see_one(struct zr_block *b, void *arg) {
    (void)b;
    ++*(int *)arg;
    return true;
}

static void must(bool claim) {
    if (!claim)
        abort();
}

static void know_nothing(void) {
    int frees = driver.frees, seen = 0;
    uint64_t word;

    zr_block_each(see_one, &seen);
    must(seen == 0);
    must(!zr_map_base(live) && !zr_map_around(cached, &word));
    must(zr_cache_bytes(1) == 0 && zr_cache_trim(ZR_ACCOUNTS, NULL) == 0);
    must(get(65536) != cached && driver.frees == frees);
    zr_cache_await(5000);
}

START_TEST(a_child_knows_nothing_of_its_parents_blocks) {
    child_does(know_nothing);
    ck_assert_ptr_eq(get(65536), cached);
}
END_TEST

static void use_pools(void) {
    struct zr_pool *own = zr_pool_new(&segments, 1);
    int frees = driver.frees;
    void *p, *q;
    size_t size;
    bool grew;

    must(own && own != pool);
    must(zr_pool_malloc(pool, 4096, 0, &p, &grew) == 0 && !grew);
    must(zr_pool_malloc(own, 4096, 0, &q, &grew) == 0);
    must(zr_pool_free(pool, p, &size) == ZR_FREED && zr_pool_free(own, q, &size) == ZR_FREED);
    must(zr_pool_free(pool, pooled, &size) == ZR_FREED && size == 4096);
    must(zr_pools_trim(ZR_ACCOUNTS) == 2 * MIB && driver.frees == frees + 1); /* its own pool's alone */
    zr_pool_delete(own);
    zr_pool_delete(pool);
}

START_TEST(a_child_uses_the_pools_that_it_inherits) {
    child_does(use_pools);
}
END_TEST

/* --- a thread that is somewhere in the middle ----------------------------------------------------------------------
 */
static pthread_barrier_t there, on;

/* The thread stops in the backing, without a lock; and holds the pool's lock by the trick of a corrupt neighbour. */
static struct zr_block *stop_inside(void *arg, size_t size, int *code) {
    pthread_barrier_wait(&there);
    pthread_barrier_wait(&on);
    return segment_alloc(arg, size, code);
}

static void *grow(void *arg) {
    bool grew;
    void *p;

    zr_pool_malloc(arg, 512, 0, &p, &grew);
    return NULL;
}

static void use_all(void) {
    void *p = get(65536);

    put(p);
    zr_cache_trim(ZR_ACCOUNTS, NULL);
    zr_pools_trim(ZR_ACCOUNTS);
    zr_cache_await(5000);
    use_pools();
}

START_TEST(a_child_waits_for_no_thread_of_its_parent) {
    static const struct zr_pool_backing stopping = {NULL, stop_inside, segment_free};
    struct zr_pool *other = zr_pool_new(&stopping, 2);
    pthread_t thread;

    pthread_barrier_init(&there, NULL, 2);
    pthread_barrier_init(&on, NULL, 2);
    pthread_create(&thread, NULL, grow, other);
    pthread_barrier_wait(&there);
    child_does(use_all);
    pthread_barrier_wait(&on);
    pthread_join(thread, NULL);
}
END_TEST

/* What a pool whose lock was held has in it is not sure: it begins anew, and so the parent's blocks are unknown. */
static void use_what_was_held(void) {
    struct zr_pool_counts counts;
    size_t size;
    void *p, *q;
    bool grew;

    zr_pool_counts(pool, &counts);
    must(counts.live == 0 && counts.held == 0);
    must(zr_pool_free(pool, pooled, &size) == ZR_FREED_UNKNOWN);
    for (int i = 0; i < 100; i++) {
        must(zr_pool_malloc(pool, 512 << i % 14, 0, &p, &grew) == 0 && p != pooled);
        must(zr_pool_malloc(pool, 4096, 0, &q, &grew) == 0 && q != p);
        must(zr_pool_usable(pool, p) >= (size_t)512 << i % 14);
        must(zr_pool_free(pool, q, &size) == ZR_FREED && zr_pool_free(pool, p, &size) == ZR_FREED);
    }
    put(get(65536));
    zr_pool_set_limits(pool, 0, 1);
    zr_pools_trim(ZR_ACCOUNTS);
    zr_pool_delete(pool);
}

START_TEST(a_child_finds_the_lock_of_a_pool_free) {
    struct zr_lock *lock = (struct zr_lock *)pool; /* it begins with its lock */

    zr_lock(lock);
    child_does(use_what_was_held);
    zr_unlock(lock);
}
END_TEST

static int going = 1;

static void *churn(void *arg) {
    uint64_t n = 0;
    size_t size;
    bool grew;
    void *p;

    while (__atomic_load_n(&going, __ATOMIC_RELAXED)) {
        put(get(65536 << n++ % 3));
        if (zr_pool_malloc(pool, 512 << n % 14, 0, &p, &grew) != 0 || zr_pool_free(pool, p, &size) != ZR_FREED)
            abort();
        zr_block_recycle(zr_block_new());
        if (n % 8192 == 0)
            zr_cache_trim(ZR_ACCOUNTS, NULL);
    }
    return arg;
}

/* At whatever moment: locks held, lists half changed. */
static void use_what_is_left(void) {
    struct zr_pool *own = zr_pool_new(&segments, 1);
    size_t size;
    bool grew;
    void *p;

    for (int i = 0; i < 100; i++) {
        put(get(65536 << i % 3));
        must(zr_pool_malloc(own, 512 << i % 14, 0, &p, &grew) == 0 && zr_pool_free(own, p, &size) == ZR_FREED);
        must(zr_pool_malloc(pool, 512 << i % 14, 0, &p, &grew) == 0 && zr_pool_free(pool, p, &size) == ZR_FREED);
    }
    zr_cache_trim(ZR_ACCOUNTS, NULL);
    zr_pools_trim(ZR_ACCOUNTS);
    zr_pool_delete(own);
    zr_pool_delete(pool);
}

START_TEST(a_fork_may_come_at_any_moment) {
    pthread_t thread[2];

    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, churn, NULL);
    for (int i = 0; i < 300; i++)
        child_does(use_what_is_left);
    __atomic_store_n(&going, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache fork");
    TCase *c = tcase_create("in a child");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, begin, NULL);
    tcase_add_test(c, a_child_knows_nothing_of_its_parents_blocks);
    tcase_add_test(c, a_child_uses_the_pools_that_it_inherits);
    tcase_add_test(c, a_child_waits_for_no_thread_of_its_parent);
    tcase_add_test(c, a_child_finds_the_lock_of_a_pool_free);
    tcase_add_test(c, a_fork_may_come_at_any_moment);
    return run_suite(suite);
}
