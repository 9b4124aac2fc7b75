/*
 * Pools of ours behind the SYCL runtime (pool.c), as UMF's interface needs them (entry/pool.c).
 */
#ifndef ZEROUTE_POOL_H
#define ZEROUTE_POOL_H

#include "cache/pool.h"
#include "sycl/route.h"

/* What we call of the runtime's UMF; codes are umf_result_t. */
struct zr_umf {
    int (*alloc)(void *provider, size_t size, size_t alignment, void **out);
    int (*free)(void *provider, void *ptr, size_t size);
};

struct zr_umf_pool;

/* NULL: the provider's memory is not device memory, or we do not see it at our hooks. Makes one block and frees it. */
struct zr_umf_pool *zr_umf_pool_new(const struct zr_umf *umf, void *provider, size_t reuses_up_to);
void zr_umf_pool_delete(struct zr_umf_pool *pool);
/* 0, or the provider's code after everything that lay unused was given back. */
int zr_umf_pool_malloc(struct zr_umf_pool *pool, size_t size, size_t alignment, void **out);
size_t zr_umf_pool_usable(struct zr_umf_pool *pool, const void *ptr);
/* False: not the start of an allocation, nothing was done. */
bool zr_umf_pool_free(struct zr_umf_pool *pool, void *ptr);
uint64_t zr_umf_pool_trim(struct zr_umf_pool *pool, uint64_t keep);
/* Freed, if it is a block of this pool. False: it is not, or something is wrong with it, and nothing was done. */
bool zr_umf_pool_recycle(struct zr_umf_pool *pool, void *ptr);
/* The same for whichever pool has it; NULL: none. */
struct zr_umf_pool *zr_umf_pools_recycle(void *ptr);

/* --- shortcut.c: from the SYCL entry points straight to the pool that the runtime would ask ----------------- */
struct zr_shortcut {
    const void *first, *second; /* the objects of this thread's last request */
    struct zr_pool_way way;     /* and what is known of them */
    const void *freed;          /* the context or queue of its last free */
    struct zr_umf_pool *from;   /* a pool in which the next block to be freed may be */
    uint32_t epoch, freed_epoch;
    uint32_t asking; /* this thread asks the runtime: what the pool does meanwhile is told to shortcut.c */
};
extern __thread struct zr_shortcut zr_shortcut;

/* The program's own request, made of the runtime. */
typedef void *(*zr_ask)(const struct zr_runtime *runtime, const struct zr_request *request);
/* Where zr_shortcut_alloc did not serve. True: *out is the answer. False: leave it to the runtime. */
bool zr_shortcut_slow(const struct zr_runtime *runtime, const struct zr_request *request, zr_ask ask, void **out);
bool zr_shortcut_free_slow(const struct zr_runtime *runtime, void *ptr, const void *object);
/* The pool has nothing: the runtime is to say so, and need not ask it again. */
void zr_shortcut_refuse(const struct zr_request *request, int code);
/* In the pool, while `asking`: the code of this request, if it was refused before it came this way; else 0. */
int zr_shortcut_refused(const struct zr_umf_pool *pool, size_t size, size_t alignment);
void zr_shortcut_saw(const struct zr_pool_way *way, size_t size, size_t alignment, const void *out);

/* NULL: ask zr_shortcut_slow. About 2 ns, and what the pool takes. */
static inline void *zr_shortcut_alloc(const struct zr_request *r)
{
    const struct zr_shortcut *s = &zr_shortcut;
    const void *first = zr_shared(r->queue ? r->queue : r->context)->control;
    const void *second = r->queue ? NULL : zr_shared(r->device)->implementation;
    void *out;
    int code;

    if (unlikely(s->first != first) || unlikely(s->second != second) || unlikely(!s->way.pool) ||
        unlikely(s->epoch != __atomic_load_n(&zr_habit_epoch, __ATOMIC_ACQUIRE)) || unlikely(zr_host_refuses(r->size)))
        return NULL;
    code = zr_umf_pool_malloc(s->way.pool, r->size, r->alignment, &out);
    if (unlikely(code != 0)) {
        zr_shortcut_refuse(r, code);
        return NULL;
    }
    zr_count_call(s->way.entry, ZR_VIA_POOL);
    zr_count_caller(s->way.caller, r->size);
    zr_trace('a', out, r->size, 0);
    return out;
}

/* False: ask zr_shortcut_free_slow. */
static inline bool zr_shortcut_free(void *ptr, const void *object)
{
    const struct zr_shortcut *s = &zr_shortcut;

    if (unlikely(s->freed != zr_shared(object)->control) || unlikely(!s->from) ||
        unlikely(s->freed_epoch != __atomic_load_n(&zr_habit_epoch, __ATOMIC_ACQUIRE)) ||
        unlikely(!zr_umf_pool_recycle(s->from, ptr)))
        return false;
    zr_count_call(ZR_E_pool_free, ZR_VIA_POOL);
    zr_trace('f', ptr, 0, 0);
    return true;
}

#endif
