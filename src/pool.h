/*
 * Pools of ours behind the SYCL runtime (pool.c), as UMF's interface needs them (entry/pool.c).
 */
#ifndef ZEROUTE_POOL_H
#define ZEROUTE_POOL_H

#include "cache/pool.h"
#include "route.h"

/* What we call of the runtime's UMF; codes are umf_result_t. */
struct zr_umf {
    int (*alloc)(void *provider, size_t size, size_t alignment, void **out);
    int (*free)(void *provider, void *ptr, size_t size);
};

struct zr_umf_pool;

/* NULL: the provider's memory is not device memory, or we do not see it at our doors. Makes one
 * block and frees it. */
struct zr_umf_pool *zr_umf_pool_new(const struct zr_umf *umf, void *provider, size_t reuses_up_to);
void zr_umf_pool_delete(struct zr_umf_pool *pool);
/* 0, or the provider's code after everything that lay unused was given back. */
int zr_umf_pool_malloc(struct zr_umf_pool *pool, size_t size, size_t alignment, void **out);
size_t zr_umf_pool_usable(struct zr_umf_pool *pool, const void *ptr);
/* False: not the start of an allocation, nothing was done. */
bool zr_umf_pool_free(struct zr_umf_pool *pool, void *ptr);
uint64_t zr_umf_pool_trim(struct zr_umf_pool *pool, uint64_t keep);

#endif
