/*
 * Backing for the allocators that costs nothing: addresses that nobody can touch, one after the other, and nothing
 * that is ever taken back.
 */
#ifndef ZEROUTE_TEST_NULL_DRIVER_H
#define ZEROUTE_TEST_NULL_DRIVER_H

#include "cache/cache.h"

static uintptr_t null_next = 0x500000000000;

static inline void *null_address(size_t size) {
    return (void *)__atomic_fetch_add(&null_next, (size + 0xffff) & ~(size_t)0xffff, __ATOMIC_RELAXED);
}

/* A block in the map, LIVE; NULL when mmap fails. */
static inline struct zr_block *null_block(const struct zr_key *key, size_t size, size_t held) {
    struct zr_block *b = zr_block_new();

    if (!b)
        return NULL;
    zr_block_place(b, (uintptr_t)null_address(held), size, held);
    zr_block_set_key(b, key);
    if (zr_map_insert(b))
        return b;
    zr_block_recycle(b);
    return NULL;
}

static inline enum zr_released null_release(struct zr_block *b) {
    (void)b;
    return ZR_RELEASED;
}

static inline struct zr_block *null_segment(void *arg, size_t size, int *code) {
    static const struct zr_key key;
    struct zr_block *b = null_block(&key, size, size);

    (void)arg;
    *code = b ? 0 : ZR_NO_MEMORY;
    return b;
}

static inline void null_free_segment(void *arg, struct zr_block *b) {
    (void)arg;
    zr_block_recycle(zr_map_take((void *)b->base));
}

static const struct zr_pool_backing null_segments = {NULL, null_segment, null_free_segment};

/* What the preload does at the entry points. */
static inline struct zr_block *whole_alloc(const struct zr_key *key, size_t size) {
    size_t held = zr_cache_round(size);
    struct zr_block *b = zr_cache_get(key, held, size);

    return b ? b : null_block(key, size, held);
}

static inline bool whole_free(void *p) {
    uint64_t word;
    struct zr_block *b = zr_map_look(p, &word);
    bool keep;

    if (!b || zr_word_state(word) != ZR_BLOCK_LIVE)
        return false;
    keep = zr_cache_takes(b->key.account, b->held);
    if (!zr_block_shift(b, word, keep ? ZR_BLOCK_CACHED : ZR_BLOCK_NONE))
        return false;
    if (keep)
        zr_cache_put(b);
    else
        zr_block_recycle(b);
    return true;
}

#endif
