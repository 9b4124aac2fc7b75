/*
 * Backing for the allocators that costs nothing: addresses that nobody can touch, one after the other, and nothing
 * that is ever taken back.
 */
#ifndef ZEROUTE_TEST_NULL_DRIVER_H
#define ZEROUTE_TEST_NULL_DRIVER_H

#include "cache/cache.h"
#include "cache/pool.h"

static uintptr_t null_next = 0x500000000000;

static inline void *null_address(size_t size)
{
    return (void *)__atomic_fetch_add(&null_next, (size + 0xffff) & ~(size_t)0xffff, __ATOMIC_RELAXED);
}

static inline int null_block(void *arg, const struct zr_key *key, size_t size, void **out)
{
    (void)arg, (void)key;
    *out = null_address(size);
    return 0;
}

static inline int null_free_block(void *arg, const struct zr_block *b)
{
    (void)arg, (void)b;
    return 0;
}

static inline bool null_is_full(int code)
{
    (void)code;
    return false;
}

static inline int null_segment(void *arg, size_t size, void **out)
{
    (void)arg;
    *out = null_address(size);
    return 0;
}

static inline int null_free_segment(void *arg, void *p, size_t size)
{
    (void)arg, (void)p, (void)size;
    return 0;
}

static const struct zr_backing null_blocks = {NULL, null_block, null_free_block, null_is_full};
static const struct zr_pool_backing null_segments = {NULL, null_segment, null_free_segment};

#endif
