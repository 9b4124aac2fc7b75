/* A driver that counts and can be told to refuse, for whole blocks and for segments: what the suites of cache/ share.
 */
#ifndef ZEROUTE_TEST_CACHE_WHOLE_H
#define ZEROUTE_TEST_CACHE_WHOLE_H

#include "cache/cache.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>

enum { FULL = 0x70000003 };
#define MIB ((size_t)1 << 20)

static struct {
    uintptr_t next;
    uint64_t held, room;
    int allocs, frees, refuse; /* refuse: so many times */
    size_t offset;             /* of every base from a page */
    const void *last_context;
} driver;

static inline void driver_start(void) {
    memset(&driver, 0, sizeof driver);
    driver.next = 0x7f0000000000;
    driver.room = UINT64_MAX;
}

/* A block in the map, LIVE; NULL and *code. */
static inline struct zr_block *driver_alloc(const struct zr_key *key, size_t size, size_t held, int *code) {
    struct zr_block *b;

    *code = FULL;
    if (driver.refuse && driver.refuse--)
        return NULL;
    if (__atomic_add_fetch(&driver.held, held, __ATOMIC_RELAXED) > driver.room) {
        __atomic_fetch_sub(&driver.held, held, __ATOMIC_RELAXED);
        return NULL;
    }
    *code = ZR_NO_MEMORY;
    b = zr_block_new();
    if (b) {
        zr_block_place(
            b, __atomic_fetch_add(&driver.next, (held + 2 * 65536) & ~(size_t)65535, __ATOMIC_RELAXED) + driver.offset,
            size, held);
        zr_block_set_key(b, key);
    }
    if (!b || !zr_map_insert(b)) {
        if (b)
            zr_block_recycle(b);
        __atomic_fetch_sub(&driver.held, held, __ATOMIC_RELAXED);
        return NULL;
    }
    __atomic_fetch_add(&driver.allocs, 1, __ATOMIC_RELAXED);
    *code = 0;
    return b;
}

static inline enum zr_released driver_free(struct zr_block *b) {
    uint64_t word = 0;
    const struct zr_block *known = zr_map_look((void *)b->base, &word);

    if (known == b && (zr_word_state(word) == ZR_BLOCK_LIVE || zr_word_state(word) == ZR_BLOCK_CACHED))
        abort(); /* nobody's before it goes back */
    __atomic_fetch_add(&driver.frees, 1, __ATOMIC_RELAXED);
    __atomic_fetch_sub(&driver.held, b->held, __ATOMIC_RELAXED);
    __atomic_store_n(&driver.last_context, b->key.context, __ATOMIC_RELAXED);
    return ZR_RELEASED;
}

static inline struct zr_block *segment_alloc(void *arg, size_t size, int *code) {
    static const struct zr_key key;

    (void)arg;
    return driver_alloc(&key, size, size, code);
}

static inline void segment_free(void *arg, struct zr_block *b) {
    (void)arg;
    if (zr_map_take((void *)b->base) != b)
        ck_abort_msg("%p is not LIVE", (void *)b->base);
    driver_free(b);
    zr_block_recycle(b);
}

static const struct zr_pool_backing segments = {NULL, segment_alloc, segment_free};

/* --- whole blocks, as the layer above uses them ------------------------------------------------------------- */
static const struct zr_key key = {.context = (void *)0x1000, .device = (void *)0x2000, .account = 1};

static inline void start(void) {
    driver_start();
    zr_cache_setup(driver_free, UINT32_MAX);
    zr_cache_set_limit(1, UINT64_MAX);
}

static inline struct zr_block *get_key(const struct zr_key *k, size_t size) {
    size_t held = zr_cache_round(size);
    struct zr_block *b = zr_cache_get(k, held, size);
    int code;

    return b ? b : driver_alloc(k, size, held, &code);
}

static inline void *get(size_t size) {
    const struct zr_block *b = get_key(&key, size);

    if (!b) /* Check writes a line for every assertion: only for one that fails */
        ck_abort_msg("no block of %zu bytes", size);
    return (void *)b->base;
}

/* Whether it was cached. Freed for good otherwise. */
static inline bool put(void *p) {
    uint64_t word;
    struct zr_block *b = zr_map_look(p, &word);
    bool keep;

    if (!b || zr_word_state(word) != ZR_BLOCK_LIVE)
        ck_abort_msg("%p is not LIVE", p);
    keep = zr_cache_takes(b->key.account, b->held);
    if (!zr_block_shift(b, word, keep ? ZR_BLOCK_CACHED : ZR_BLOCK_LEAVING))
        ck_abort_msg("%p is somebody else's", p);
    if (keep) {
        zr_cache_put(b);
        return true;
    }
    driver_free(b);
    zr_block_recycle(b);
    return false;
}

#endif
