/*
 * No memory for the allocators' own books: mmap fails from some moment on, whichever it is. What is refused is refused
 * by a code, what was handed out is taken back, and what is held goes back to the driver. And how much of their own
 * they need where there is plenty.
 */
#include "cache_whole.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE = 64, LINES = (256 << 10) / LINE, STEPS = 300, MOST = 64, EVERY = 7 };

static int mappings = -1; /* so many are left; below 0: any number */

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (mappings == 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    mappings -= mappings > 0;
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* Nothing more but so many mappings, and so many lines of the pieces that are cut from one. */
static void leave(int more, unsigned lines) {
    mappings = 0;
    while (zr_piece(LINE))
        ;
    mappings = -1;
    for (unsigned i = lines; i < LINES; i++)
        ck_assert_ptr_nonnull(zr_piece(LINE));
    mappings = more;
}

static uint64_t seed;

static unsigned below(unsigned n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

/* Of both groups. */
static size_t any_size(void) {
    switch (below(4)) {
    case 0:
        return 1 + below(256);
    case 1:
        return 1 + below(64 << 10);
    case 2:
        return 1 + below(2 << 20);
    default:
        return 1 + below(24 << 20);
    }
}

struct out {
    uintptr_t at;
    size_t size;
} out[MOST];

static void is_apart(const struct out *new) {
    for (const struct out *o = out; o < out + MOST; o++)
        ck_assert_msg(o == new || !o->at || o->at + o->size <= new->at || new->at + new->size <= o->at,
                      "%#zx bytes at %#zx lie in %#zx at %#zx", new->size, (size_t) new->at, o->size, (size_t)o->at);
}

/* --- the pool --------------------------------------------------------------------------------------------------- */

static void use(struct zr_pool *pool) {
    for (unsigned i = 0; i < STEPS; i++) {
        struct out *o = &out[below(MOST)];
        size_t size = any_size(), freed;

        if (o->at) {
            ck_assert_int_eq(zr_pool_free(pool, (void *)o->at, &freed), ZR_FREED);
            ck_assert_uint_eq(freed, o->size);
            o->at = 0;
        } else {
            size_t alignment = below(3) ? 0 : (size_t)1 << below(17);
            void *p = NULL;
            bool grew;
            int code;

            errno = E2BIG;
            code = zr_pool_malloc(pool, size, alignment, &p, &grew);
            ck_assert_int_eq(errno, E2BIG);
            ck_assert_msg((code == 0) == (p != NULL), "code %d, %p", code, p);
            if (alignment)
                ck_assert_uint_eq((uintptr_t)p % alignment, 0);
            *o = (struct out){(uintptr_t)p, size};
            if (p)
                is_apart(o);
        }
    }
}

static void run_out_of(int more, unsigned lines) {
    struct zr_pool *pool = zr_pool_new(&segments, 1);
    struct zr_pool_counts counts;
    size_t freed;

    ck_assert_ptr_nonnull(pool);
    leave(more, lines);
    use(pool);
    for (struct out *o = out; o < out + MOST; o++) {
        if (o->at)
            ck_assert_int_eq(zr_pool_free(pool, (void *)o->at, &freed), ZR_FREED);
        o->at = 0;
    }
    zr_pool_trim(pool, 0);
    mappings = -1;
    zr_pool_counts(pool, &counts);
    ck_assert_msg(driver.held == 0 && counts.held == 0 && counts.whole_free == 0 && counts.live == 0,
                  "with %d mappings and %u lines %llu bytes stay, %llu of them counted, %llu as free", more, lines,
                  (unsigned long long)driver.held, (unsigned long long)counts.held,
                  (unsigned long long)counts.whole_free);
    zr_pool_delete(pool);
}

/* There is no descriptor for what lies before the alignment: the segment stays free as it was. */
START_TEST(a_request_that_cannot_be_aligned_changes_nothing) {
    struct zr_pool *pool = zr_pool_new(&segments, 1);
    struct zr_pool_counts counts;
    size_t freed;
    bool grew;
    void *p;

    driver_start();
    driver.offset = 512;
    ck_assert_int_eq(zr_pool_malloc(pool, 512, 0, &p, &grew), 0);
    ck_assert_int_eq(zr_pool_malloc(pool, 18 * MIB, 0, &p, &grew), 0);
    ck_assert_int_eq(zr_pool_free(pool, p, &freed), ZR_FREED);
    leave(0, 0);
    do /* until no descriptor is left to split a chunk with */
        ck_assert_int_eq(zr_pool_malloc(pool, 512, 0, &p, &grew), 0);
    while (zr_pool_usable(pool, p) == 512);
    ck_assert_int_eq(zr_pool_malloc(pool, 12 * MIB, 65536, &p, &grew), ZR_NO_MEMORY);
    ck_assert(!grew && !p);
    zr_pool_counts(pool, &counts);
    ck_assert_uint_eq(counts.whole_free, 18 * MIB);
    ck_assert_uint_eq(zr_pool_trim(pool, 0), 18 * MIB);
    mappings = -1;
    zr_pool_delete(pool);
    ck_assert_uint_eq(driver.held, 0);
}
END_TEST

/* Each in a process of its own: what one has needed is there for the next. */
START_TEST(a_pool_without_memory_for_its_books_loses_nothing) {
    driver_start();
    driver.offset = _i % 3 * 512u;
    seed = (uint64_t)_i;
    run_out_of(_i % 4, (unsigned)(_i / 4 * EVERY * 3));
}
END_TEST

/* As contexts do in a program that lives long: what the first ones needed is enough for all that follow. */
START_TEST(pools_may_come_and_go_without_more_memory) {
    driver_start();
    for (unsigned round = 0; round < 500; round++) {
        struct zr_pool *pool = zr_pool_new(&segments, 1);
        size_t freed;
        bool grew;
        void *p[60];

        ck_assert_ptr_nonnull(pool);
        driver.next = 0x7e0000000000;
        for (unsigned i = 0; i < 60; i++)
            ck_assert_int_eq(zr_pool_malloc(pool, (size_t)64 << i % 20, i % 7 ? 0 : 4096, &p[i], &grew), 0);
        for (unsigned i = 0; i < 60; i += 1 + round % 3) /* not all: what is out goes too */
            ck_assert_int_eq(zr_pool_free(pool, p[i], &freed), ZR_FREED);
        zr_pool_delete(pool);
        ck_assert_uint_eq(driver.held, 0);
        if (round == 3)
            leave(0, 0);
    }
    mappings = -1;
}
END_TEST

/* --- whole blocks ------------------------------------------------------------------------------------------------- */

START_TEST(whole_blocks_without_memory_for_their_books_are_not_lost) {
    static const struct zr_key keys[3] = {{.context = &driver, .account = 1},
                                          {.context = &seed, .account = 1},
                                          {.context = out, .align = 3, .account = 1}};

    start();
    seed = (uint64_t)_i;
    leave(_i % 4, (unsigned)_i * EVERY);
    for (unsigned i = 0; i < STEPS; i++) {
        struct out *o = &out[below(MOST)];
        size_t size = any_size();

        errno = E2BIG;
        if (o->at) {
            put((void *)o->at);
            o->at = 0;
        } else {
            const struct zr_block *b = get_key(&keys[below(3)], size);

            *o = (struct out){b ? b->base : 0, size};
            if (b)
                is_apart(o);
        }
        ck_assert_int_eq(errno, E2BIG);
    }
    for (struct out *o = out; o < out + MOST; o++)
        if (o->at)
            put((void *)o->at);
    ck_assert_uint_eq(zr_cache_bytes(1), driver.held);
    zr_cache_trim(ZR_ACCOUNTS, NULL);
    ck_assert_uint_eq(driver.held, 0);
    mappings = -1;
}
END_TEST

static void *use_descriptors(void *arg) {
    struct zr_block *b[40];

    for (int i = 0; i < 40; i++)
        if (!(b[i] = zr_block_new()))
            abort();
    for (int i = 0; i < 40; i++)
        zr_block_recycle(b[i]);
    return arg;
}

START_TEST(threads_that_end_leave_their_descriptors_to_others) {
    static const struct zr_module modules[] = {{NULL, zr_cache_thread_end, NULL}};
    pthread_t thread;

    zr_lifecycle_modules(modules, 1);
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(pthread_create(&thread, NULL, use_descriptors, NULL), 0);
        pthread_join(thread, NULL);
        if (i == 2)
            leave(0, 0);
    }
    mappings = -1;
}
END_TEST

/* --- plenty ----------------------------------------------------------------------------------------------------- */

static size_t resident(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long size = 0, pages = 0;

    ck_assert(f && fscanf(f, "%lu %lu", &size, &pages) == 2);
    fclose(f);
    return pages * 4096;
}

/* A process with blocks of mixed kinds, contexts, alignments and sizes, spread over the address space as drivers do. */
START_TEST(mixed_blocks_cost_little_memory_of_our_own) {
    enum { BLOCKS = 192 };
    static const uintptr_t kinds[] = {0x7f0000000000, 0xff00fff000000000, 0x500000000000};
    struct zr_block *b[BLOCKS];
    size_t before, after;

    start();
    before = resident();
    for (unsigned round = 0; round < 50; round++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            struct zr_key k = {.context = (void *)(0x1000ul + i % 12 * 64),
                               .account = 1,
                               .kind = (uint8_t)(i % 3),
                               .align = (uint8_t)(i % 17),
                               .residents = i % 4};

            driver.next = kinds[i % 3] + (uintptr_t)i * 64 * MIB;
            b[i] = get_key(&k, (size_t)4096 << i % 14);
        }
        for (unsigned i = 0; i < BLOCKS; i++)
            put((void *)b[i]->base);
    }
    after = resident();
    ck_assert_msg(after - before < 4 * MIB, "%zu KiB", (after - before) / 1024);
}
END_TEST

START_TEST(a_pool_costs_little_memory_of_our_own) {
    struct zr_pool *pool;
    size_t before, after;
    void *p;
    bool grew;

    driver_start();
    before = resident();
    pool = zr_pool_new(&segments, 1);
    for (unsigned i = 0; i < 192; i++)
        ck_assert_int_eq(zr_pool_malloc(pool, (size_t)512 << i % 16, 0, &p, &grew), 0);
    after = resident();
    ck_assert_msg(after - before < 4 * MIB, "%zu KiB", (after - before) / 1024);
    zr_pool_delete(pool);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache_poor");
    TCase *t = tcase_create("without memory");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_pool_without_memory_for_its_books_loses_nothing, 0, 160);
    tcase_add_test(t, a_request_that_cannot_be_aligned_changes_nothing);
    tcase_add_test(t, pools_may_come_and_go_without_more_memory);
    tcase_add_test(t, threads_that_end_leave_their_descriptors_to_others);
    tcase_add_loop_test(t, whole_blocks_without_memory_for_their_books_are_not_lost, 0, 40);
    tcase_add_test(t, mixed_blocks_cost_little_memory_of_our_own);
    tcase_add_test(t, a_pool_costs_little_memory_of_our_own);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
