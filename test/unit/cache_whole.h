/* Whole blocks against a backing that counts and can be told to fail: what the suites about cache.h share. */
#ifndef ZEROUTE_TEST_CACHE_WHOLE_H
#define ZEROUTE_TEST_CACHE_WHOLE_H

#include "cache/cache.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>

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

static inline int driver_alloc(void *arg, const struct zr_key *key, size_t size, void **out)
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

static inline int driver_free(void *arg, const struct zr_block *b)
{
    (void)arg;
    if (zr_map_base((void *)b->base))
        abort(); /* out of the map before it goes back */
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

static inline bool driver_is_full(int code)
{
    return code == FULL;
}

static struct zr_cache *cache;
static const struct zr_key key = {.context = (void *)0x1000, .device = (void *)0x2000, .account = 1};
static struct zr_freed_block was;

static inline void start(void)
{
    static const struct zr_backing backing = {NULL, driver_alloc, driver_free, driver_is_full};

    memset(&driver, 0, sizeof driver);
    driver.next = 0x7f0000000000;
    driver.room = UINT64_MAX;
    cache = zr_cache_new(&backing);
    ck_assert_ptr_nonnull(cache);
    zr_cache_set_idle(cache, UINT32_MAX);
}

static inline void stop(void)
{
    zr_cache_delete(cache);
}

static inline void *get_key(const struct zr_key *k, size_t size)
{
    int code = 0;
    struct zr_block *b = zr_cache_alloc(cache, k, size, &code);

    ck_assert_ptr_nonnull(b);
    ck_assert_uint_eq(b->size, size);
    ck_assert_uint_ge(b->held, size);
    ck_assert_ptr_eq(zr_map_base((void *)b->base), b);
    return (void *)b->base;
}

static inline void *get(size_t size)
{
    return get_key(&key, size);
}

static inline enum zr_freed put(void *p)
{
    return zr_cache_free(cache, p, true, &was);
}

#endif
