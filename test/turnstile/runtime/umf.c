/*
 * UMF, as far as an adapter uses it: pools by a table of functions, a tracker of all pointers, and a pool of its own
 * that pools nothing. Only one thread runs at a time, and none parks in here.
 */
#include "umf.h"

#include <stdlib.h>

enum { TRACKED = 4096 };

struct umf_pool {
    const struct umf_ops *ops;
    void *pool;
};
static struct tracked {
    void *ptr;
    struct umf_pool *pool;
} tracked[TRACKED];

/* --- the pool that pools nothing ---------------------------------------------------------------------------------- */

static struct size {
    void *ptr;
    size_t size;
} sizes[TRACKED];

static int begin(void *provider, const void *params, void **pool) {
    (void)params;
    *pool = provider;
    return UMF_SUCCESS;
}

static int end(void *pool) {
    (void)pool;
    return UMF_SUCCESS;
}

static void *give_aligned(void *pool, size_t size, size_t alignment) {
    void *out = NULL;

    if (umfMemoryProviderAlloc(pool, size, alignment, &out))
        return NULL;
    for (int i = 0; i < TRACKED; i++)
        if (!sizes[i].ptr) {
            sizes[i] = (struct size){out, size};
            return out;
        }
    abort();
}

static void *give(void *pool, size_t size) {
    return give_aligned(pool, size, 0);
}

static int take(void *pool, void *ptr) {
    for (int i = 0; i < TRACKED; i++)
        if (sizes[i].ptr == ptr) {
            sizes[i].ptr = NULL;
            return umfMemoryProviderFree(pool, ptr, sizes[i].size);
        }
    return UMF_INVALID_ARGUMENT;
}

const struct umf_ops *umfDisjointPoolOps(void) {
    static const struct umf_ops ops = {.version = 1 << 16,
                                       .initialize = begin,
                                       .finalize = end,
                                       .malloc = give,
                                       .aligned_malloc = give_aligned,
                                       .free = take};

    return &ops;
}

int umfDisjointPoolParamsSetMaxPoolableSize(void *params, size_t size) {
    return params && size ? UMF_SUCCESS : UMF_INVALID_ARGUMENT;
}

int umfDisjointPoolParamsSetName(void *params, const char *name) {
    return params && name ? UMF_SUCCESS : UMF_INVALID_ARGUMENT;
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

int umfPoolCreate(const struct umf_ops *ops, void *provider, const void *params, uint32_t flags,
                  struct umf_pool **out) {
    struct umf_pool *p = calloc(1, sizeof *p);
    int result = flags || !p ? UMF_INVALID_ARGUMENT : ops->initialize(provider, params, &p->pool);

    if (result == UMF_SUCCESS) {
        p->ops = ops;
        *out = p;
    } else {
        free(p);
    }
    return result;
}

void umfPoolDestroy(struct umf_pool *pool) {
    pool->ops->finalize(pool->pool);
    free(pool);
}

void *umfPoolAlignedMalloc(struct umf_pool *pool, size_t size, size_t alignment) {
    void *p = alignment ? pool->ops->aligned_malloc(pool->pool, size, alignment) : pool->ops->malloc(pool->pool, size);

    for (int i = 0; p && i < TRACKED; i++)
        if (!tracked[i].ptr) {
            tracked[i] = (struct tracked){p, pool};
            return p;
        }
    return NULL;
}

int umfFree(void *ptr) {
    for (int i = 0; i < TRACKED; i++)
        if (tracked[i].ptr == ptr) {
            struct umf_pool *pool = tracked[i].pool;

            tracked[i].ptr = NULL;
            return pool->ops->free(pool->pool, ptr);
        }
    return UMF_INVALID_ARGUMENT;
}

int umfMemoryProviderAlloc(void *provider, size_t size, size_t alignment, void **out) {
    const struct umf_provider *p = provider;

    return p->alloc(p->arg, size, alignment, out);
}

int umfMemoryProviderFree(void *provider, void *ptr, size_t size) {
    const struct umf_provider *p = provider;

    return p->free(p->arg, ptr, size);
}
