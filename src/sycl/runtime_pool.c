/*
 * Pools of ours behind the SYCL runtime: memory from the runtime's own provider, and so from zeMemAllocDevice, where
 * our hooks see it; handed out by the pool of cache/.
 *
 * `reuse` decides what is pooled: by default what the runtime's own pool would reuse at once. Larger blocks go straight
 * to the provider and back, which may wait for the device as it always did; so do blocks with an alignment above the
 * page of device memory, which the runtime's pool pays for with that much more memory, and so mostly leaves to its
 * provider as well.
 */
#include "sycl/sycl.h"

enum { PAGE = 64 << 10 };

/* --- the provider below ------------------------------------------------------------------------------------------- */

/* What the provider does is seen at our hooks, even when a hook of ours has led here. */
struct below {
    bool inside, pooled;
};

static struct below enter_below(void) {
    struct below was = {zr_thread.inside, zr_thread.pooled};

    zr_thread.inside = false;
    zr_thread.pooled = true;
    return was;
}

static void leave_below(const struct below *was) {
    zr_thread.inside = was->inside;
    zr_thread.pooled = was->pooled;
}

/* The provider translates codes: what the driver said is noted where we see its call. */
static ze_result_t provide(const struct zr_runtime_pool *p, size_t size, size_t alignment, int *code, void **out) {
    struct below was __attribute__((cleanup(leave_below), unused)) = enter_below();

    zr_thread.refused = ZE_RESULT_SUCCESS;
    zr_thread.limited = false;
    *code = p->umf.alloc(p->provider, size, alignment, out);
    if (likely(*code == 0))
        return ZE_RESULT_SUCCESS;
    return zr_thread.refused ? (ze_result_t)zr_thread.refused : ZE_RESULT_ERROR_UNKNOWN;
}

static struct zr_block *provider_alloc(const struct zr_runtime_pool *p, size_t size, size_t alignment, int *code) {
    struct zr_call call = {.hook = p->hook};
    struct zr_block *b;
    void *out = NULL;
    ze_result_t result = ZR_WITH_ROOM(&call, p->number, provide(p, size, alignment, code, &out));

    if (unlikely(result != ZE_RESULT_SUCCESS)) {
        zr_policy_refused(&call, ZR_E_pool_malloc, p->number, size, result);
        return NULL;
    }
    b = zr_map_base(out);
    if (unlikely(!b)) { /* it could not be registered */
        p->umf.free(p->provider, out, size);
        *code = ZR_NO_MEMORY;
    }
    return b;
}

static int provider_free(const struct zr_runtime_pool *p, struct zr_block *b) {
    struct below was __attribute__((cleanup(leave_below), unused)) = enter_below();

    return p->umf.free(p->provider, (void *)b->base, b->size);
}

static struct zr_block *backing_alloc(void *arg, size_t size, int *code) {
    return provider_alloc(arg, size, 0, code);
}

static void backing_free(void *arg, struct zr_block *b) {
    provider_free(arg, b);
}

/* --- making and deleting ------------------------------------------------------------------------------------------ */

static bool make_one(void *arg) {
    struct zr_runtime_pool *p = arg;
    void *ptr = NULL;

    return p->umf.alloc(p->provider, PAGE, 0, &ptr) == 0 && p->umf.free(p->provider, ptr, PAGE) == 0;
}

/* What no device could hold is the provider's to refuse: it must not be rounded up past the end of numbers. */
static size_t pools_up_to(size_t reuses_up_to) {
    return !zr_config.cache ? 0 : zr_config.reuse == ZR_REUSE_RUNTIME ? reuses_up_to : SIZE_MAX / 4;
}

bool zr_runtime_pool_begin(struct zr_runtime_pool *p, const struct zr_umf *umf, void *provider, size_t reuses_up_to) {
    struct zr_pool_backing backing = {p, backing_alloc, backing_free};
    struct zr_practice practice;
    struct zr_call call = {.hook = ZR_HOOK_PLT};

    *p = (struct zr_runtime_pool){.umf = *umf, .provider = provider, .goes_up_to = reuses_up_to};
    /* Only a provider whose blocks are device memory that we see is ours. */
    if (!zr_probe(make_one, p, PAGE, &practice))
        return false;
    p->hook = call.hook = practice.seen.hook;
    p->number = practice.number;
    p->pool = zr_pool_new(&backing, p->number);
    if (p->pool)
        zr_pool_set_limits(p->pool, zr_cache_share(&call, practice.seen.device), zr_cache_idle());
    return p->pool != NULL;
}

static bool free_direct(struct zr_runtime_pool *p, struct zr_block *b) {
    size_t size = b->size;

    if (provider_free(p, b) != 0)
        return false;
    zr_unbook(ZR_KIND_DEVICE, p->number, size);
    return true;
}

/* With cache:off the provider gave each block for itself: what the runtime's own pool would have had goes too. */
static bool leave(struct zr_block *b, void *arg) {
    struct zr_runtime_pool *p = arg;

    if (zr_word_state(zr_block_word(b)) != ZR_BLOCK_LIVE || !(zr_block_flags(b) & ZR_BLOCK_DIRECT) || b->owner != p)
        return true;
    if (__atomic_load_n(&b->size, __ATOMIC_RELAXED) <= p->goes_up_to) {
        zr_registry_piece_leaves(p->number, (const void *)b->base);
        free_direct(p, b);
    } else {
        b->owner = NULL; /* another pool may lie there soon */
    }
    return true;
}

/* A program may let its context go while blocks live: the memory goes with the pool. */
void zr_runtime_pool_end(struct zr_runtime_pool *p) {
    struct zr_pool_counts counts;

    zr_pool_counts(p->pool, &counts);
    for (; counts.live > 0; counts.live--, counts.live_bytes = 0)
        zr_unbook(ZR_KIND_DEVICE, p->number, counts.live_bytes);
    zr_block_each(leave, p);
    zr_pool_delete(p->pool);
    p->pool = NULL;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static int direct(struct zr_runtime_pool *p, size_t *size, size_t alignment, void **out) {
    int code = 0;
    struct zr_block *b = provider_alloc(p, *size, alignment, &code);

    if (!b)
        return code ? code : ZR_NO_MEMORY;
    zr_block_mark(b, ZR_BLOCK_DIRECT);
    b->owner = p;
    *size = b->size;
    *out = (void *)b->base;
    return 0;
}

int zr_runtime_pool_malloc(struct zr_runtime_pool *p, size_t size, size_t alignment, void **out) {
    bool asked = true;
    int code;

    if (unlikely(size > pools_up_to(p->goes_up_to) || alignment > PAGE))
        code = direct(p, &size, alignment, out);
    else
        code = zr_pool_malloc(p->pool, size, alignment, out, &asked);
    if (unlikely(code != 0))
        return code;
    zr_count(asked ? ZR_F_CACHE_MISSES : ZR_F_CACHE_HITS, 1);
    zr_registry_piece(p->number, *out, size, !asked);
    return 0;
}

static struct zr_block *direct_block(const struct zr_runtime_pool *p, const void *ptr) {
    struct zr_block *b = zr_map_base(ptr);

    return b && zr_block_flags(b) & ZR_BLOCK_DIRECT && b->owner == p ? b : NULL;
}

size_t zr_runtime_pool_usable(struct zr_runtime_pool *p, const void *ptr) {
    size_t size = zr_pool_usable(p->pool, ptr);
    struct zr_block *b = likely(size) ? NULL : direct_block(p, ptr);

    return b ? b->size : size;
}

bool zr_runtime_pool_free(struct zr_runtime_pool *p, void *ptr, const void *caller) {
    struct zr_block *b;
    size_t size = 0;

    zr_registry_piece_leaves(p->number, ptr);
    switch (zr_pool_free(p->pool, ptr, &size)) {
    case ZR_FREED:
        zr_unbook(ZR_KIND_DEVICE, p->number, size);
        return true;
    case ZR_FREED_TWICE:
        zr_policy_wrong_free(ZR_F_FREE_INVALID_TWICE, caller, ptr, NULL);
        break;
    case ZR_FREED_INTERIOR:
        zr_policy_wrong_free(ZR_F_FREE_INVALID_INTERIOR, caller, ptr, NULL);
        break;
    case ZR_FREED_UNKNOWN:
        b = direct_block(p, ptr);
        if (b)
            return free_direct(p, b);
        zr_policy_wrong_free(ZR_F_FREE_INVALID_UNKNOWN, caller, ptr, NULL);
        break;
    }
    return false;
}
