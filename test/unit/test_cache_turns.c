/*
 * Two threads and one block, one after the other as the test says: between looking at a block and claiming it a
 * thread is stopped until the other one is done. And the same where a sandbox takes membarrier away, or madvise.
 */
#include "cache/heap.h"
#include "cache/quick.h"
#include "null_driver.h"
#include "seccomp.h"
#include "suite.h"
#include "turns.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static struct zr_cache *cache;
static struct zr_pool *pool;
static const struct zr_key key = {.context = (void *)0x1000, .device = (void *)0x2000, .account = 1};

static void start(void)
{
    cache = zr_cache_new(&null_blocks);
    pool = zr_pool_new(&null_segments);
    ck_assert(cache && pool);
    zr_cache_set_idle(cache, UINT32_MAX);
    stopped = waits = go = 0;
}

static void *get(size_t size)
{
    int code;
    struct zr_block *b = zr_cache_alloc(cache, &key, size, &code);

    ck_assert_ptr_nonnull(b);
    return (void *)b->base;
}

static enum zr_freed put(void *p)
{
    struct zr_freed_block was;

    return zr_cache_keep(cache, p, &was);
}

static enum zr_freed give_back(void *p)
{
    struct zr_freed_block was;

    return zr_cache_return(cache, p, &was);
}

static enum zr_freed put_into_pool(void *p)
{
    return zr_pool_free(pool, p);
}

/* --- the other thread ------------------------------------------------------------------------------------------ */
struct other {
    pthread_t thread;
    void *p; /* NULL: allocates one itself */
    enum zr_freed (*free)(void *p);
    const char *stop;
    enum zr_freed result;
    int done;
};

static void *free_it(void *arg)
{
    struct other *o = arg;

    if (!o->p)
        __atomic_store_n(&o->p, get(65536), __ATOMIC_RELEASE);
    stop_here = o->stop;
    o->result = o->free(o->p);
    set(&o->done, 1);
    return NULL;
}

static void begin(struct other *o)
{
    ck_assert_int_eq(pthread_create(&o->thread, NULL, free_it, o), 0);
}

static enum zr_freed end(struct other *o)
{
    pthread_join(o->thread, NULL);
    return o->result;
}

/* A thread that has looked at the block and not claimed it yet; this one frees it meanwhile. */
static void the_second_is_refused(void *p, enum zr_freed (*first)(void *), enum zr_freed (*second)(void *))
{
    struct other o = {.p = p, .free = second, .stop = "before a claim"};

    set(&stopped, 0), set(&go, 0);
    begin(&o);
    wait_for(&stopped);
    ck_assert_int_le(first(p), ZR_FREED_BY_DRIVER);
    set(&go, 1);
    ck_assert_int_ge(end(&o), ZR_FREED_TWICE);
}

START_TEST(who_has_looked_at_a_block_does_not_get_it_when_another_was_faster)
{
    start();
    the_second_is_refused(get(65536), put, put);
    the_second_is_refused(get(65536), put, give_back);
    the_second_is_refused(get(65536), give_back, put);
    the_second_is_refused(get(65536), give_back, give_back);
}
END_TEST

START_TEST(the_same_in_a_pool_of_several_threads)
{
    struct other o = {.free = put_into_pool, .stop = NULL};
    void *p;

    start();
    ck_assert_int_eq(zr_pool_malloc(pool, 65536, 0, &o.p), 0);
    begin(&o);
    ck_assert_int_eq(end(&o), ZR_FREED);
    ck_assert_int_eq(zr_pool_malloc(pool, 65536, 0, &p), 0);
    the_second_is_refused(p, put_into_pool, put_into_pool);
}
END_TEST

/* Its owner is about to free a block by plain stores; another one comes with the same block. */
static void the_owner_is_waited_for(void)
{
    struct other owner = {.free = put, .stop = "before a store"}, stranger = {.free = put};

    set(&stopped, 0), set(&go, 0), set(&waits, 0);
    begin(&owner);
    wait_for(&stopped);
    stranger.p = __atomic_load_n(&owner.p, __ATOMIC_ACQUIRE);
    begin(&stranger);
    while (!is_set(&waits) && !is_set(&stranger.done))
        sched_yield();
    ck_assert(!is_set(&stranger.done));
    set(&go, 1);
    ck_assert_int_eq(end(&owner), ZR_FREED);
    ck_assert_int_eq(end(&stranger), ZR_FREED_TWICE);
}

/* The first block of a thread comes from the driver and goes another way: let there be one at hand. */
static void *warm(void *arg)
{
    for (int i = 0; i < 3; i++)
        put(get(65536));
    return arg;
}

static void warm_up(void)
{
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, warm, NULL), 0);
    pthread_join(thread, NULL);
}

START_TEST(an_owner_that_is_inside_is_waited_for)
{
    start();
    warm_up();
    the_owner_is_waited_for();
}
END_TEST

static int has_a_heap, is_over;

static void *hold_a_heap(void *arg)
{
    put(get(65536));
    set(&has_a_heap, 1);
    wait_for(&is_over);
    return arg;
}

/* A thousand threads that have nothing to do with it would be a thousand calls of the kernel. */
START_TEST(an_owner_that_does_not_wait_is_not_woken)
{
    pthread_t thread;

    start();
    ck_assert_int_eq(pthread_create(&thread, NULL, hold_a_heap, NULL), 0);
    wait_for(&has_a_heap);
    set(&go, 1);
    stop_here = "waking an owner";
    ck_assert_uint_eq(zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0), 65536);
    stop_here = NULL;
    ck_assert(!is_set(&stopped));
    set(&is_over, 1);
    pthread_join(thread, NULL);
}
END_TEST

/*
 * Its owner was inside when somebody seized the heap, and has set a way by which it comes in again, when the other one
 * has just found it empty.
 */
static int goes_again, seizer_goes, comes_again;

static void *get_twice(void *arg)
{
    struct zr_key other = key;
    void *p[3];
    int code;

    for (int i = 0; i < 3; i++)
        p[i] = get(65536);
    for (int i = 0; i < 3; i++)
        put(p[i]);
    other.flags = 1;
    ck_assert_ptr_nonnull(zr_cache_alloc(cache, &other, 65536, &code));
    stop_here = "before a way is set";
    get(65536);
    set(&comes_again, 1);
    wait_for(&goes_again);
    set(&go, 0);
    stop_here = "inside by a way";
    get(65536);
    return arg;
}

static enum zr_freed trim_all(void *unused)
{
    go_on = &seizer_goes;
    zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0);
    return unused ? ZR_FREED : ZR_FREED_UNKNOWN;
}

START_TEST(an_owner_that_has_come_in_by_an_old_way_is_waited_for)
{
    struct other seizer = {.p = &go, .free = trim_all, .stop = "between two rounds"};
    pthread_t owner;

    start();
    ck_assert_int_eq(pthread_create(&owner, NULL, get_twice, NULL), 0);
    wait_for(&stopped);
    set(&stopped, 0);
    begin(&seizer);
    wait_for(&waits);
    set(&go, 1);
    wait_for(&comes_again);
    wait_for(&stopped); /* the seizer has seen that nobody is inside */
    set(&stopped, 0), set(&waits, 0);
    set(&goes_again, 1);
    wait_for(&stopped); /* and now the owner is */
    set(&seizer_goes, 1);
    while (!is_set(&waits) && !is_set(&seizer.done))
        sched_yield();
    ck_assert(!is_set(&seizer.done));
    set(&go, 1);
    pthread_join(owner, NULL);
    end(&seizer);
}
END_TEST

/* One is alone in a pool, and inside; another one comes. */
static enum zr_freed take_from_pool(void *unused)
{
    void *p = unused;

    return zr_pool_malloc(pool, 65536, 0, &p) == 0 && p != unused ? ZR_FREED : ZR_FREED_UNKNOWN;
}

static int may_look;
static uint32_t wanted_then;

/* Whether this thread takes the lock from now on, as seen after the other one was there. */
static enum zr_freed take_and_look(void *unused)
{
    enum zr_freed result = take_from_pool(unused);

    wait_for(&may_look);
    wanted_then = zr_fronts[pool->id]->wanted;
    return result;
}

static void who_is_alone_is_waited_for(bool sandbox)
{
    struct other first = {.p = &go, .free = take_and_look, .stop = "inside a front"};
    struct other second = {.p = &go, .free = take_from_pool};

    begin(&first);
    wait_for(&stopped);
    ck_assert(!sandbox || take_membarrier_away());
    begin(&second);
    while (!is_set(&waits) && !is_set(&second.done))
        sched_yield();
    ck_assert(!is_set(&second.done));
    set(&go, 1);
    ck_assert_int_eq(end(&second), ZR_FREED);
    set(&may_look, 1);
    ck_assert_int_eq(end(&first), ZR_FREED);
    ck_assert_int_eq(pool->no_membarrier, sandbox);
    ck_assert_int_eq(wanted_then != 0, sandbox);
}

START_TEST(who_is_alone_in_a_pool_is_waited_for)
{
    start();
    who_is_alone_is_waited_for(false);
}
END_TEST

/* --- what is on its way back -------------------------------------------------------------------------------------- */
static int stop_and_free(void *arg, const struct zr_block *b)
{
    pause_at("giving back");
    return null_blocks.free(arg, b);
}

static enum zr_freed trim(void *unused)
{
    (void)unused;
    zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0);
    return ZR_FREED;
}

static enum zr_freed drop(void *unused)
{
    (void)unused;
    zr_cache_drop_context(cache, key.context);
    return ZR_FREED;
}

START_TEST(a_context_waits_for_what_another_thread_gives_back_to_it)
{
    struct zr_backing backing = null_blocks;
    struct other trimmer = {.p = &go, .free = trim, .stop = "giving back"}, dropper = {.p = &go, .free = drop};

    start();
    backing.free = stop_and_free;
    cache = zr_cache_new(&backing);
    put(get(65536));
    begin(&trimmer);
    wait_for(&stopped);
    begin(&dropper);
    while (!is_set(&waits) && !is_set(&dropper.done))
        sched_yield();
    ck_assert(!is_set(&dropper.done));
    set(&go, 1);
    end(&trimmer);
    end(&dropper);
}
END_TEST

/* Room for one block. */
enum { FULL = 1 };
static int out;

static int alloc_one(void *arg, const struct zr_key *k, size_t size, void **p)
{
    int none = 0;

    if (!__atomic_compare_exchange_n(&out, &none, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return FULL;
    return null_blocks.alloc(arg, k, size, p);
}

static int free_one(void *arg, const struct zr_block *b)
{
    int code = stop_and_free(arg, b);

    set(&out, 0);
    return code;
}

static bool is_full(int code)
{
    return code == FULL;
}

static enum zr_freed get_one(void *unused)
{
    (void)unused;
    get(MIB);
    return ZR_FREED;
}

/* One thread gives back what is kept, and is stopped on the way; another one asks for memory. */
static void begin_both(const struct zr_backing *backing, struct other *trimmer, struct other *getter)
{
    start();
    cache = zr_cache_new(backing);
    put(get(65536));
    begin(trimmer);
    wait_for(&stopped);
    begin(getter);
}

START_TEST(who_finds_no_memory_waits_for_what_another_thread_gives_back)
{
    const struct zr_backing backing = {NULL, alloc_one, free_one, is_full};
    struct other trimmer = {.p = &go, .free = trim, .stop = "giving back"}, getter = {.p = &go, .free = get_one};

    begin_both(&backing, &trimmer, &getter);
    wait_for(&waits);
    set(&go, 1);
    end(&trimmer);
    end(&getter);
}
END_TEST

/* A driver whose free waits for commands, which wait for something that comes after the answer. */
static int refused;

static int free_late(void *arg, const struct zr_block *b)
{
    set(&stopped, 1);
    wait_for(&refused);
    return null_blocks.free(arg, b);
}

static enum zr_freed ask_for_one(void *unused)
{
    int code;

    (void)unused;
    ck_assert_ptr_null(zr_cache_alloc(cache, &key, MIB, &code));
    ck_assert_int_eq(code, FULL);
    set(&refused, 1);
    return ZR_FREED;
}

START_TEST(nobody_waits_for_ever_for_what_another_thread_gives_back)
{
    const struct zr_backing backing = {NULL, alloc_one, free_late, is_full};
    struct other trimmer = {.p = &go, .free = trim}, getter = {.p = &go, .free = ask_for_one};

    begin_both(&backing, &trimmer, &getter);
    end(&getter);
    end(&trimmer);
}
END_TEST

/* --- a leaf of the map that one thread makes and another one uses ------------------------------------------------- */
static enum zr_freed insert(void *base)
{
    struct zr_block *b = zr_block_new();

    zr_block_place(b, (uintptr_t)base, 65536, 65536);
    return zr_map_insert(b) ? ZR_FREED : ZR_FREED_UNKNOWN;
}

START_TEST(a_block_in_a_leaf_that_another_thread_has_just_made_is_found_from_the_next)
{
    const uintptr_t leaf = (uintptr_t)0x123 << 32, next = leaf + ((uintptr_t)1 << 32);
    struct other maker = {.p = (void *)leaf, .free = insert, .stop = "beside a new leaf"};
    struct zr_block *b = zr_block_new();

    begin(&maker);
    wait_for(&stopped);
    zr_block_place(b, next - 65536, 3 * 65536, 3 * 65536);
    ck_assert(zr_map_insert(b));
    ck_assert_ptr_eq(zr_map_find((void *)(next + 65536)), b);
    set(&go, 1);
    ck_assert_int_eq(end(&maker), ZR_FREED);
    ck_assert_ptr_eq(zr_map_find((void *)(next + 65536)), b);
}
END_TEST

/* --- whose a heap is ---------------------------------------------------------------------------------------------- */
static bool is_private(void)
{
    return zr_heap_last->mine != NOT_PRIVATE;
}

static void another_frees(void *p)
{
    struct other o = {.p = p, .free = put};

    begin(&o);
    ck_assert_int_eq(end(&o), ZR_FREED);
    ck_assert_int_eq(put(p), ZR_FREED_TWICE);
}

START_TEST(a_heap_is_its_owners_alone_again_when_nobody_else_frees_its_blocks)
{
    void *old, *new;

    start();
    put(get(65536));
    ck_assert(is_private());
    for (int round = 0; round < 3; round++) {
        old = get(4096);
        another_frees(get(65536));
        ck_assert(!is_private());
        for (int i = 0; i < (CALM << round) * 3; i++)
            ck_assert_int_eq(put(get(65536)), ZR_FREED);
        ck_assert(is_private());
        new = get(65536);
        ck_assert_int_eq(put(new), ZR_FREED);
        ck_assert_int_eq(put(new), ZR_FREED_TWICE);
        ck_assert(is_private());
        /* What was out all the time is under the old number. */
        if (round == 0)
            another_frees(old);
        else
            the_second_is_refused(old, put, put);
        ck_assert(is_private());
    }
}
END_TEST

START_TEST(a_heap_stays_shared_while_others_free_its_blocks)
{
    start();
    for (int i = 0; i < 20; i++) {
        for (int j = 0; j < CALM / 2; j++)
            ck_assert_int_eq(put(get(65536)), ZR_FREED);
        another_frees(get(65536));
        ck_assert(!is_private());
    }
}
END_TEST

/* --- without membarrier ------------------------------------------------------------------------------------------ */
enum { BUSY = 20000, SLOTS = 16 };
static void *slot[SLOTS];

static void *work(void *arg)
{
    uint64_t r = (uintptr_t)arg;

    for (int i = 0; i < BUSY; i++) {
        void *p = get(4096 << i % 4), *old, *q = NULL;

        r = r * 6364136223846793005u + 1442695040888963407u;
        old = __atomic_exchange_n(&slot[(r >> 33) % SLOTS], p, __ATOMIC_ACQ_REL);
        if (old && put(old) != ZR_FREED)
            return arg;
        if (zr_pool_malloc(pool, 100 + (r >> 40) % 100000, 0, &q) != 0 || zr_pool_free(pool, q) != ZR_FREED)
            return arg;
        if (i % 1000 == 0)
            zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0), zr_pool_trim(pool, 0);
    }
    return NULL;
}

static void two_threads_work(unsigned before)
{
    struct zr_cache_counts counts;
    pthread_t thread;
    void *wrong;

    ck_assert_int_eq(pthread_create(&thread, NULL, work, &slot), 0);
    ck_assert_ptr_null(work(&go));
    pthread_join(thread, &wrong);
    ck_assert_ptr_null(wrong);
    for (int i = 0; i < SLOTS; i++)
        if (slot[i])
            ck_assert_int_eq(put(slot[i]), ZR_FREED);
    zr_cache_counts(cache, &counts);
    ck_assert_uint_eq(counts.hits + counts.misses, 2 * BUSY + before);
}

/* A filter cannot be taken off again: in a process of its own. */
static void in_a_child(void (*what)(void))
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        what();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

static void never_there(void)
{
    ck_assert(take_membarrier_away());
    start();
    warm(NULL);
    ck_assert(!is_private());
    two_threads_work(3);
}

/* One that comes later, too, enters with a locked instruction. */
static void *is_locked_from_the_start(void *arg)
{
    put(get(65536));
    return zr_heap_last->wanted & WANTED_LOCKED && !is_private() ? NULL : arg;
}

static void gone_later(void)
{
    pthread_t thread;
    void *wrong;

    start();
    warm(NULL);
    ck_assert(is_private());
    ck_assert(take_membarrier_away());
    zr_cache_trim(cache, ZR_ACCOUNTS, NULL, 0);
    ck_assert(!is_private());
    ck_assert(zr_heap_last->wanted & WANTED_LOCKED);
    ck_assert_int_eq(pthread_create(&thread, NULL, is_locked_from_the_start, &wrong), 0);
    pthread_join(thread, &wrong);
    ck_assert_ptr_null(wrong);
    two_threads_work(4);
    ck_assert(!is_private());
}

static void gone_while_the_owner_is_inside(void)
{
    start();
    warm_up();
    ck_assert(take_membarrier_away());
    the_owner_is_waited_for();
}

/* And from then on everybody takes the lock, also who comes later. */
static void gone_while_one_is_alone(void)
{
    struct other third = {.p = &go, .free = take_and_look};

    start();
    who_is_alone_is_waited_for(true);
    wanted_then = 0;
    begin(&third);
    ck_assert_int_eq(end(&third), ZR_FREED);
    ck_assert_uint_ne(wanted_then, 0);
}

START_TEST(who_is_alone_in_a_pool_is_waited_for_without_membarrier)
{
    in_a_child(gone_while_one_is_alone);
}
END_TEST

static void old_kernel(void)
{
    void *p;

    start();
    ck_assert(take_away(SYS_madvise, EINVAL));
    errno = 0;
    p = get(65536);
    ck_assert_int_eq(put(p), ZR_FREED);
    ck_assert_int_eq(errno, 0);
}

START_TEST(errno_is_left_alone_where_the_kernel_cannot_wipe_in_a_child)
{
    in_a_child(old_kernel);
}
END_TEST

START_TEST(two_threads_work_without_membarrier)
{
    in_a_child(never_there);
}
END_TEST

START_TEST(two_threads_work_when_membarrier_is_taken_away)
{
    in_a_child(gone_later);
}
END_TEST

START_TEST(an_owner_that_is_inside_is_waited_for_without_membarrier)
{
    in_a_child(gone_while_the_owner_is_inside);
}
END_TEST

START_TEST(single_blocks_make_one_run_with_the_oldest_first)
{
    enum { COUNT = 20 };
    struct zr_block *run[LONGEST_RUN], *b[COUNT];
    struct bin *bin;
    unsigned length;
    int code;

    start();
    for (unsigned i = 0; i < COUNT; i++) {
        b[i] = zr_cache_alloc(cache, &key, 4096, &code);
        ck_assert_ptr_nonnull(b[i]);
        b[i]->stamp = UINT32_MAX - 5 + i * 7 % COUNT;
    }
    bin = cache->bin[b[0]->bin];
    for (unsigned i = 0; i < COUNT; i++)
        ck_assert(zr_depot_put(bin, &b[i], 1));
    length = zr_depot_get(bin, run);
    ck_assert_uint_eq(length, COUNT);
    for (unsigned i = 0; i < COUNT; i++)
        ck_assert_uint_eq(run[i]->stamp, UINT32_MAX - 5 + i);
    length = zr_depot_get(bin, run);
    ck_assert_uint_eq(length, 0);
}
END_TEST

/* As many as there may be: contexts, alignments, ordinals and peers make a key each. */
START_TEST(a_key_is_found_among_hundreds_by_looking_at_few)
{
    struct key *found[ZR_KEYS_MAX];

    start();
    count_here = "another key";
    for (int round = 0; round < 2; round++) {
        counted = 0;
        for (uintptr_t i = 0; i < ZR_KEYS_MAX; i++) {
            struct zr_key k = key;
            struct key *at;

            k.context = (void *)(0x55d2c0a41000 + i / 16 * 0x250);
            k.align = i % 16;
            at = zr_key_find(cache, &k);
            ck_assert_ptr_nonnull(at);
            ck_assert(round == 0 || at == found[i]);
            found[i] = at;
        }
    }
    ck_assert_uint_le(counted, 2 * ZR_KEYS_MAX);
    count_here = NULL;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache turns");
    TCase *c = tcase_create("turns");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, who_has_looked_at_a_block_does_not_get_it_when_another_was_faster);
    tcase_add_test(c, the_same_in_a_pool_of_several_threads);
    tcase_add_test(c, an_owner_that_is_inside_is_waited_for);
    tcase_add_test(c, an_owner_that_does_not_wait_is_not_woken);
    tcase_add_test(c, an_owner_that_has_come_in_by_an_old_way_is_waited_for);
    tcase_add_test(c, a_context_waits_for_what_another_thread_gives_back_to_it);
    tcase_add_test(c, who_finds_no_memory_waits_for_what_another_thread_gives_back);
    tcase_add_test(c, a_block_in_a_leaf_that_another_thread_has_just_made_is_found_from_the_next);
    tcase_add_test(c, nobody_waits_for_ever_for_what_another_thread_gives_back);
    tcase_add_test(c, a_heap_is_its_owners_alone_again_when_nobody_else_frees_its_blocks);
    tcase_add_test(c, a_heap_stays_shared_while_others_free_its_blocks);
    tcase_add_test(c, who_is_alone_in_a_pool_is_waited_for);
    tcase_add_test(c, who_is_alone_in_a_pool_is_waited_for_without_membarrier);
    tcase_add_test(c, single_blocks_make_one_run_with_the_oldest_first);
    tcase_add_test(c, a_key_is_found_among_hundreds_by_looking_at_few);
    tcase_add_test(c, errno_is_left_alone_where_the_kernel_cannot_wipe_in_a_child);
    tcase_add_test(c, two_threads_work_without_membarrier);
    tcase_add_test(c, two_threads_work_when_membarrier_is_taken_away);
    tcase_add_test(c, an_owner_that_is_inside_is_waited_for_without_membarrier);
    return run_suite(suite);
}
