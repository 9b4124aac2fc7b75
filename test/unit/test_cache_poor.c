/*
 * No memory for the allocators' own books: mmap fails from some moment on, whichever it is. What is refused is refused
 * by a code, what was handed out is taken back, and what is held goes back to the driver.
 */
#include "cache/cache.h"
#include "base/pages.h"
#include "cache/pool.h"
#include "suite.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
enum { LINE = 64, LINES = (256 << 10) / LINE, STEPS = 300, MOST = 64, EVERY = 7 };

static int mappings = -1; /* so many are left; below 0: any number */

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (mappings == 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    mappings -= mappings > 0;
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

/* Nothing more but so many mappings, and so many lines of the pieces that are cut from one. */
static void leave(int more, unsigned lines)
{
    mappings = 0;
    while (zr_piece(LINE))
        ;
    mappings = -1;
    for (unsigned i = lines; i < LINES; i++)
        ck_assert_ptr_nonnull(zr_piece(LINE));
    mappings = more;
}

static struct {
    uintptr_t next;
    uint64_t held;
} driver;

static int driver_alloc(void *arg, size_t size, void **out)
{
    (void)arg;
    *out = (void *)driver.next;
    driver.next += (size + 0x3fffff) & ~(uintptr_t)0x1fffff;
    driver.held += size;
    return 0;
}

static int driver_free(void *arg, void *p, size_t size)
{
    (void)arg, (void)p;
    driver.held -= size;
    return 0;
}

static int block_alloc(void *arg, const struct zr_key *key, size_t size, void **out)
{
    (void)key;
    return driver_alloc(arg, size, out);
}

static int block_free(void *arg, const struct zr_block *b)
{
    return driver_free(arg, NULL, b->held);
}

static bool is_full(int code)
{
    return code > 0;
}

static uint64_t seed;

static unsigned below(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

/* Of every kind: objects of slabs, blocks of both groups, coarse alignments. */
static size_t any_size(void)
{
    switch (below(4)) {
    case 0: return 1 + below(256);
    case 1: return 1 + below(64 << 10);
    case 2: return 1 + below(2 << 20);
    default: return 1 + below(24 << 20);
    }
}

struct out {
    uintptr_t at;
    size_t size;
} out[MOST];

static void is_apart(const struct out *new)
{
    for (const struct out *o = out; o < out + MOST; o++)
        ck_assert_msg(o == new || !o->at || o->at + o->size <= new->at || new->at + new->size <= o->at,
                      "%#zx bytes at %#zx lie in %#zx at %#zx", new->size, (size_t)new->at, o->size, (size_t)o->at);
}

/* --- slabs and split blocks ------------------------------------------------------------------------------- */

static void use(struct zr_pool *pool)
{
    for (unsigned i = 0; i < STEPS; i++) {
        struct out *o = &out[below(MOST)];

        if (o->at) {
            ck_assert_int_eq(zr_pool_free(pool, (void *)o->at), ZR_FREED);
            o->at = 0;
        } else {
            size_t size = any_size(), alignment = below(3) ? 0 : (size_t)1 << below(22);
            void *p = NULL;
            int code;

            errno = E2BIG;
            code = zr_pool_malloc(pool, size, alignment, &p);
            ck_assert_int_eq(errno, E2BIG);
            ck_assert_msg((code == 0) == (p != NULL), "code %d, %p", code, p);
            *o = (struct out){(uintptr_t)p, size};
            if (p)
                is_apart(o);
        }
    }
}

static void *come_and_go(void *pool)
{
    void *p = NULL;

    ck_assert_int_eq(zr_pool_malloc(pool, 512, 0, &p), 0);
    ck_assert_int_eq(zr_pool_free(pool, p), ZR_FREED);
    return NULL;
}

static void run_out_of(int more, unsigned lines, bool alone)
{
    static const struct zr_pool_backing backing = {NULL, driver_alloc, driver_free};
    struct zr_pool *pool = zr_pool_new(&backing);
    struct zr_pool_counts counts;
    pthread_t thread;

    ck_assert_ptr_nonnull(pool);
    come_and_go(pool);
    if (!alone) {
        ck_assert_int_eq(pthread_create(&thread, NULL, come_and_go, pool), 0);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
    }
    leave(more, lines);
    use(pool);
    for (struct out *o = out; o < out + MOST; o++) {
        if (o->at)
            ck_assert_int_eq(zr_pool_free(pool, (void *)o->at), ZR_FREED);
        o->at = 0;
    }
    zr_pool_trim(pool, 0);
    mappings = -1;
    zr_pool_counts(pool, &counts);
    ck_assert_msg(driver.held == 0 && counts.held == 0 && counts.whole_free == 0,
                  "with %d mappings and %u lines %llu bytes stay, %llu of them counted, %llu as free", more, lines,
                  (unsigned long long)driver.held, (unsigned long long)counts.held,
                  (unsigned long long)counts.whole_free);
    zr_pool_delete(pool);
}

START_TEST(a_pool_without_memory_for_its_books_loses_nothing)
{
    for (unsigned n = 0; n < 160; n++) {
        seed = n;
        driver.next = 0x7e0000010000; /* on a page of the device's */
        run_out_of((int)(n % 2), n / 4 * EVERY, n / 2 % 2);
    }
}
END_TEST

/* As contexts do in a program that lives long: what the first ones needed is enough for all that follow. */
START_TEST(pools_may_come_and_go_without_more_memory)
{
    static const struct zr_pool_backing backing = {NULL, driver_alloc, driver_free};

    for (unsigned round = 0; round < 500; round++) {
        struct zr_pool *pool = zr_pool_new(&backing);
        void *p[60];

        ck_assert_ptr_nonnull(pool);
        driver.next = 0x7e0000000000;
        for (unsigned i = 0; i < 60; i++)
            ck_assert_int_eq(zr_pool_malloc(pool, (size_t)64 << i % 20, i % 7 ? 0 : 4096, &p[i]), 0);
        for (unsigned i = 0; i < 60; i += 1 + round % 3) /* not all: what is out goes too */
            ck_assert_int_eq(zr_pool_free(pool, p[i]), ZR_FREED);
        zr_pool_delete(pool);
        ck_assert_uint_eq(driver.held, 0);
        if (round == 3)
            leave(0, 0);
    }
    mappings = -1;
}
END_TEST

/* --- whole blocks ----------------------------------------------------------------------------------------- */

START_TEST(whole_blocks_without_memory_for_their_books_are_not_lost)
{
    static const struct zr_backing backing = {NULL, block_alloc, block_free, is_full};
    static const struct zr_key keys[3] = {{.context = &driver}, {.context = &seed}, {.context = out, .align = 3}};

    for (unsigned n = 0; n < 40; n++) {
        struct zr_cache *c = zr_cache_new(&backing);
        struct zr_freed_block was;
        unsigned refused = 0;

        ck_assert_ptr_nonnull(c);
        seed = n;
        driver.next = 0x7e0000000000 + ((uintptr_t)n << 36);
        leave((int)(n % 4), n * EVERY);
        for (unsigned i = 0; i < STEPS; i++) {
            struct out *o = &out[below(MOST)];

            if (o->at) {
                ck_assert_int_le(zr_cache_free(c, (void *)o->at, true, &was), ZR_FREED_BY_DRIVER);
                o->at = 0;
            } else {
                int code = 0;
                size_t size = any_size();
                const struct zr_block *b;

                errno = E2BIG;
                b = zr_cache_alloc(c, &keys[below(3)], size, &code);
                ck_assert_int_eq(errno, E2BIG);
                ck_assert(b || code == ZR_CACHE_TROUBLE);
                refused += !b;
                *o = (struct out){b ? b->base : 0, size};
                if (b)
                    is_apart(o);
            }
        }
        for (struct out *o = out; o < out + MOST; o++) {
            if (o->at)
                ck_assert_int_le(zr_cache_free(c, (void *)o->at, true, &was), ZR_FREED_BY_DRIVER);
            o->at = 0;
        }
        mappings = -1;
        zr_cache_delete(c);
        ck_assert_msg(driver.held == 0, "%llu bytes stay, %u refused", (unsigned long long)driver.held, refused);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_poor");
    TCase *t = tcase_create("without memory");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_pool_without_memory_for_its_books_loses_nothing);
    tcase_add_test(t, pools_may_come_and_go_without_more_memory);
    tcase_add_test(t, whole_blocks_without_memory_for_their_books_are_not_lost);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
