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

/* --- front.c: blocks that were freed a moment ago --------------------------------------------- */
struct zr_front;
enum zr_front_answer {
    ZR_FRONT_KEPT,
    ZR_FRONT_KEPT_LONG, /* kept, and time to call zr_front_pass_time() */
    ZR_FRONT_PASSED,    /* known, and no longer: give it to the pool */
    ZR_FRONT_TWICE,     /* it is free already */
    ZR_FRONT_UNKNOWN    /* ask the pool */
};
/* Keeps up to so many bytes; what lies there for longer than idle_ns goes back. NULL when mmap
 * fails. */
struct zr_front *zr_front_new(uint64_t limit, uint64_t idle_ns);
void zr_front_delete(struct zr_front *front);
/* A block of exactly this size, or NULL. `asked` is told when it is given back. */
void *zr_front_take(struct zr_front *front, size_t size, size_t asked);
/* The pool has handed out a block; false: there is no place to remember it. */
bool zr_front_note(struct zr_front *front, void *ptr, size_t size, size_t asked);
enum zr_front_answer zr_front_give(struct zr_front *front, void *ptr, size_t *asked);
/* Of a block that is out; 0: not known here. */
size_t zr_front_size(struct zr_front *front, const void *ptr);
/* Gives everything back to the pool; true: there was something. */
bool zr_front_drain(struct zr_front *front, struct zr_pool *pool);
void zr_front_pass_time(struct zr_front *front, struct zr_pool *pool);
/* How many blocks are out and remembered here, and their bytes as asked. */
uint64_t zr_front_out(struct zr_front *front, uint64_t *bytes);
void zr_front_fork_child(struct zr_front *front);

#endif
