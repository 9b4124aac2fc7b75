/*
 * UMF's ops: the runtime makes its memory pools with umfPoolCreate(umfDisjointPoolOps(), provider, ...). For device
 * memory it gets a table of ours instead; UMF tracks every pointer as before, so all other calls of SYCL work. Host and
 * shared memory keep the table that UMF has. The memory comes from the runtime's own provider, and so from
 * zeMemAllocDevice, where our hooks see it.
 *
 * `reuse` decides what is pooled: by default what the runtime's own pool would reuse at once. Larger blocks go straight
 * to the provider and back, which may wait for the device as it always did; so do blocks with an alignment above the
 * page of device memory, which the runtime's pool pays for with that much more memory, and so mostly leaves to its
 * provider as well.
 *
 * The layout of the table is UMF's contract: ops version 0.11, 1.0 and 1.1 are known, others are left alone.
 */
#include "sycl/sycl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    UMF_SUCCESS = 0,
    UMF_OUT_OF_HOST_MEMORY = 1,
    UMF_INVALID_ARGUMENT = 3,
    UMF_NOT_SUPPORTED = 5,
    UMF_INVALID_CTL_PATH = 9,
    PAGE = 64 << 10,
    OPS_0_11 = 0 << 16 | 11,
    OPS_1_0 = 1 << 16 | 0,
    OPS_1_1 = 1 << 16 | 1
};

/* As of 1.1; 1.0 ends before ext_trim_memory, 0.11 before get_name and with two other results (below). */
struct ops {
    uint32_t version;
    int (*initialize)(void *provider, const void *params, void **pool);
    int (*finalize)(void *pool);
    void *(*malloc)(void *pool, size_t size);
    void *(*calloc)(void *pool, size_t count, size_t size);
    void *(*realloc)(void *pool, void *ptr, size_t size);
    void *(*aligned_malloc)(void *pool, size_t size, size_t alignment);
    int (*malloc_usable_size)(void *pool, const void *ptr, size_t *size);
    int (*free)(void *pool, void *ptr);
    int (*get_last_allocation_error)(void *pool);
    int (*get_name)(void *pool, const char **name);
    int (*ext_ctl)(void *pool, int source, const char *name, void *arg, size_t size, int type, va_list arguments);
    int (*ext_trim_memory)(void *pool, size_t keep);
};

/* One of ours, or UMF's own behind our table where the provider turns out not to be for us. */
struct pool {
    struct zr_pool *pool; /* NULL: UMF's own, */
    void *theirs;         /* namely this one */
    void *provider;
    size_t goes_up_to; /* what is larger stays when the pool goes: the runtime's own would not have had it */
    uint32_t hook;     /* at which the provider's calls are seen */
    unsigned number;   /* of the device */
};

static const struct ops *real_ops; /* UMF's own; under the lock until the runtime has a table of ours */
static struct {                    /* what we call of UMF; codes are umf_result_t */
    int (*alloc)(void *provider, size_t size, size_t alignment, void **out);
    int (*free)(void *provider, void *ptr, size_t size);
} umf;

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
static ze_result_t provide(const struct pool *p, size_t size, size_t alignment, int *code, void **out) {
    struct below was __attribute__((cleanup(leave_below), unused)) = enter_below();

    zr_thread.refused = ZE_RESULT_SUCCESS;
    zr_thread.limited = false;
    *code = umf.alloc(p->provider, size, alignment, out);
    if (likely(*code == 0))
        return ZE_RESULT_SUCCESS;
    return zr_thread.refused ? (ze_result_t)zr_thread.refused : ZE_RESULT_ERROR_UNKNOWN;
}

static struct zr_block *provider_alloc(const struct pool *p, size_t size, size_t alignment, int *code) {
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
        umf.free(p->provider, out, size);
        *code = ZR_NO_MEMORY;
    }
    return b;
}

static int provider_free(const struct pool *p, struct zr_block *b) {
    struct below was __attribute__((cleanup(leave_below), unused)) = enter_below();

    return umf.free(p->provider, (void *)b->base, b->size);
}

static struct zr_block *backing_alloc(void *arg, size_t size, int *code) {
    return provider_alloc(arg, size, 0, code);
}

static void backing_free(void *arg, struct zr_block *b) {
    provider_free(arg, b);
}

/* --- pools of ours ------------------------------------------------------------------------------------------------ */

static void make_one(const struct pool *p, struct zr_practice *out) {
    struct zr_watching was __attribute__((cleanup(zr_watch_stop), unused)) = zr_watch_start(out, PAGE);
    void *ptr = NULL;

    if (umf.alloc(p->provider, PAGE, 0, &ptr) == 0)
        umf.free(p->provider, ptr, PAGE);
}

/* What no device could hold is the provider's to refuse: it must not be rounded up past the end of numbers. */
static size_t pools_up_to(size_t reuses_up_to) {
    return !zr_config.cache ? 0 : zr_config.reuse == ZR_REUSE_RUNTIME ? reuses_up_to : SIZE_MAX / 4;
}

/* False: the provider's memory is not device memory, or we do not see it at our hooks. Makes one block and frees it. */
static bool begin(struct pool *p, void *provider, size_t reuses_up_to) {
    struct zr_pool_backing backing = {p, backing_alloc, backing_free};
    struct zr_practice practice;

    p->provider = provider;
    p->goes_up_to = reuses_up_to;
    make_one(p, &practice);
    if (!zr_practice_seen(&practice))
        return false;
    p->hook = practice.seen.hook;
    p->number = practice.number;
    p->pool = zr_pool_new(&backing, p->number);
    if (p->pool)
        zr_pool_set_limits(p->pool, zr_cache_share(p->number), zr_cache_idle());
    return p->pool != NULL;
}

static bool free_direct(struct pool *p, struct zr_block *b) {
    size_t size = b->size;

    if (provider_free(p, b) != 0)
        return false;
    zr_unbook(ZR_KIND_DEVICE, p->number, size);
    return true;
}

/* With cache:off the provider gave each block for itself: what the runtime's own pool would have had goes too. */
static bool leave(struct zr_block *b, void *arg) {
    struct pool *p = arg;

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
static void end(struct pool *p) {
    struct zr_pool_counts counts;

    zr_pool_counts(p->pool, &counts);
    for (; counts.live > 0; counts.live--, counts.live_bytes = 0)
        zr_unbook(ZR_KIND_DEVICE, p->number, counts.live_bytes);
    zr_block_each(leave, p);
    zr_pool_delete(p->pool);
}

static int direct(struct pool *p, size_t *size, size_t alignment, void **out) {
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

/* 0, or the provider's code after everything that lay unused was given back. */
static int serve(struct pool *p, size_t size, size_t alignment, void **out) {
    bool asked = true;
    int code = ZR_NO_MEMORY;

    if (likely(size <= pools_up_to(p->goes_up_to) && alignment <= PAGE))
        code = zr_pool_malloc(p->pool, size, alignment, out, &asked);
    if (unlikely(code == ZR_NO_MEMORY)) /* not for the pool, or no memory for its books */
        code = direct(p, &size, alignment, out);
    if (unlikely(code != 0))
        return code;
    zr_count(asked ? ZR_F_CACHE_MISSES : ZR_F_CACHE_HITS, 1);
    zr_registry_piece(p->number, *out, size, !asked);
    return 0;
}

static struct zr_block *direct_block(const struct pool *p, const void *ptr) {
    struct zr_block *b = zr_map_base(ptr);

    return b && zr_block_flags(b) & ZR_BLOCK_DIRECT && b->owner == p ? b : NULL;
}

static size_t usable(struct pool *p, const void *ptr) {
    size_t size = zr_pool_usable(p->pool, ptr);
    struct zr_block *b = likely(size) ? NULL : direct_block(p, ptr);

    return b ? b->size : size;
}

/* False: not the start of an allocation, nothing was done. */
static bool take_back(struct pool *p, void *ptr, const void *caller) {
    static const enum zr_field wrong[] = {[ZR_FREED_TWICE] = ZR_F_FREE_INVALID_TWICE,
                                          [ZR_FREED_INTERIOR] = ZR_F_FREE_INVALID_INTERIOR,
                                          [ZR_FREED_UNKNOWN] = ZR_F_FREE_INVALID_UNKNOWN};
    enum zr_freed freed;
    struct zr_block *b;
    size_t size = 0;

    zr_registry_piece_leaves(p->number, ptr);
    freed = zr_pool_free(p->pool, ptr, &size);
    b = freed == ZR_FREED_UNKNOWN ? direct_block(p, ptr) : NULL;
    if (b)
        return free_direct(p, b);
    if (likely(freed == ZR_FREED))
        zr_unbook(ZR_KIND_DEVICE, p->number, size);
    else
        zr_policy_wrong_free(wrong[freed], caller, ptr, NULL);
    return freed == ZR_FREED;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* What we cannot serve UMF's own pool does: a runtime gets as many pools as it wants. */
static int initialize(void *provider, const void *params, void **out) {
    struct pool *p = calloc(1, sizeof *p);
    int code;

    zr_fork_check();
    if (!p)
        return UMF_OUT_OF_HOST_MEMORY;
    *out = p;
    if (begin(p, provider, zr_thread.sycl.limit)) {
        zr_route_pool_taken();
        return UMF_SUCCESS;
    }
    zr_route_pool_refused("the runtime's provider is not for device memory that we see");
    code = real_ops->initialize(provider, params, &p->theirs);
    if (code != UMF_SUCCESS)
        free(p);
    return code;
}

static int finalize(void *pool) {
    struct pool *p = pool;
    int code = UMF_SUCCESS;

    zr_fork_check();
    if (!p->pool)
        code = real_ops->finalize(p->theirs);
    else if (zr_exiting())
        return code; /* a thread may still be inside */
    else
        end(p);
    free(p);
    return code;
}

static void *allocate(struct pool *p, enum zr_entry entry, size_t size, size_t alignment, const void *caller) {
    const struct zr_library *library;
    void *out = NULL;
    int code;

    if (zr_exiting()) /* nothing is registered any more */
        return umf.alloc(p->provider, size, alignment, &out) ? NULL : out;
    zr_fork_check();
    zr_control_check();
    zr_count_call(entry, ZR_VIA_POOL);
    if (unlikely(size == 0 || alignment & (alignment - 1)))
        code = UMF_INVALID_ARGUMENT;
    else if (unlikely(zr_host_refuses(size))) {
        zr_shortage(NULL, ZR_CAUSE_FLOOR, entry, p->number, size, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        code = UMF_OUT_OF_HOST_MEMORY;
    } else
        code = serve(p, size, alignment, &out);
    library = zr_library_of(caller);
    zr_count_caller(library, ZR_CALLER_CALLS, 1);
    if (likely(code == UMF_SUCCESS))
        zr_count_caller(library, ZR_CALLER_BYTES, size);
    zr_thread.sycl.error = code == ZR_NO_MEMORY ? UMF_OUT_OF_HOST_MEMORY : code;
    return out;
}

static void *pool_malloc(void *pool, size_t size) {
    struct pool *p = pool;

    if (unlikely(!p->pool))
        return real_ops->malloc(p->theirs, size);
    return allocate(p, ZR_E_pool_malloc, size, 0, __builtin_return_address(0));
}

static void *pool_aligned_malloc(void *pool, size_t size, size_t alignment) {
    struct pool *p = pool;

    if (unlikely(!p->pool))
        return real_ops->aligned_malloc(p->theirs, size, alignment);
    return allocate(p, ZR_E_pool_aligned_malloc, size, alignment, __builtin_return_address(0));
}

/* As UMF's own: device memory cannot be written from here. */
static void *not_supported(enum zr_entry entry) {
    zr_count_call(entry, ZR_VIA_POOL);
    zr_thread.sycl.error = UMF_NOT_SUPPORTED;
    return NULL;
}

static void *pool_calloc(void *pool, size_t count, size_t size) {
    struct pool *p = pool;

    return p->pool ? not_supported(ZR_E_pool_calloc) : real_ops->calloc(p->theirs, count, size);
}

static void *pool_realloc(void *pool, void *ptr, size_t size) {
    struct pool *p = pool;

    return p->pool ? not_supported(ZR_E_pool_realloc) : real_ops->realloc(p->theirs, ptr, size);
}

static int pool_usable(void *pool, const void *ptr, size_t *size) {
    struct pool *p = pool;

    if (unlikely(!p->pool))
        return real_ops->malloc_usable_size(p->theirs, ptr, size);
    zr_count_call(ZR_E_pool_malloc_usable_size, ZR_VIA_POOL);
    *size = ptr ? usable(p, ptr) : 0;
    return UMF_SUCCESS;
}

static int pool_free(void *pool, void *ptr) {
    struct pool *p = pool;

    if (unlikely(!p->pool))
        return real_ops->free(p->theirs, ptr);
    if (unlikely(!ptr || zr_exiting()))
        return UMF_SUCCESS;
    zr_fork_check();
    zr_control_check();
    zr_count_call(ZR_E_pool_free, ZR_VIA_POOL);
    return take_back(p, ptr, __builtin_return_address(0)) ? UMF_SUCCESS : UMF_INVALID_ARGUMENT;
}

static int pool_last_error(void *pool) {
    struct pool *p = pool;

    return p->pool ? zr_thread.sycl.error : real_ops->get_last_allocation_error(p->theirs);
}

static int pool_name(void *pool, const char **name) {
    struct pool *p = pool;

    if (p && !p->pool)
        return real_ops->get_name(p->theirs, name);
    *name = "zeroute";
    return UMF_SUCCESS;
}

static int pool_ctl(void *pool, int source, const char *name, void *arg, size_t size, int type, va_list arguments) {
    struct pool *p = pool;

    if (p && !p->pool && real_ops->ext_ctl)
        return real_ops->ext_ctl(p->theirs, source, name, arg, size, type, arguments);
    return UMF_INVALID_CTL_PATH;
}

static int pool_trim(void *pool, size_t keep) {
    struct pool *p = pool;

    if (!p->pool)
        return real_ops->ext_trim_memory ? real_ops->ext_trim_memory(p->theirs, keep) : UMF_NOT_SUPPORTED;
    zr_fork_check();
    zr_pool_trim(p->pool, keep);
    return UMF_SUCCESS;
}

/* The size itself is the result in 0.11. */
static size_t pool_usable_0_11(void *pool, const void *ptr) {
    struct pool *p = pool;
    size_t size = 0;

    if (!p->pool)
        return ((size_t(*)(void *, const void *))(zr_function)real_ops->malloc_usable_size)(p->theirs, ptr);
    pool_usable(pool, ptr, &size);
    return size;
}

static struct ops ours = {.initialize = initialize,
                          .finalize = finalize,
                          .malloc = pool_malloc,
                          .calloc = pool_calloc,
                          .realloc = pool_realloc,
                          .aligned_malloc = pool_aligned_malloc,
                          .malloc_usable_size = pool_usable,
                          .free = pool_free,
                          .get_last_allocation_error = pool_last_error,
                          .get_name = pool_name,
                          .ext_ctl = pool_ctl,
                          .ext_trim_memory = pool_trim};

/* Once: which table this UMF knows, and the two functions of its provider. Of two threads that come at once both find
 * the same. */
static bool adopt(const struct ops *real, const void *caller) {
    zr_function alloc = zr_definition("umfMemoryProviderAlloc", caller);
    zr_function back = zr_definition("umfMemoryProviderFree", caller);

    if (!alloc || !back)
        return false;
    zr_lock(&zr_sycl_lock);
    if (!real_ops) {
        umf.alloc = (int (*)(void *, size_t, size_t, void **))alloc;
        umf.free = (int (*)(void *, void *, size_t))back;
        ours.version = real->version;
        if (real->version == OPS_0_11)
            ours.malloc_usable_size = (int (*)(void *, const void *, size_t *))(zr_function)pool_usable_0_11;
        real_ops = real;
    }
    zr_unlock(&zr_sycl_lock);
    return real_ops == real;
}

static const struct ops *table_for(const struct ops *real, const void *caller) {
    const char *why = NULL;

    if (real->version != OPS_0_11 && real->version != OPS_1_0 && real->version != OPS_1_1)
        why = "a UMF whose pools have a layout that is not known";
    else if (zr_runtime_is_foreign())
        why = ZR_RUNTIME_NOT_KNOWN;
    else if (!adopt(real, caller))
        why = "a second UMF in this process, or one without providers";
    if (!why)
        return &ours;
    zr_route_pool_refused(why);
    return real;
}

/* --- what the adapter calls --------------------------------------------------------------------------------------- */

#define REAL(name, caller) ((__typeof__(&zr_##name))zr_definition(#name, caller))

const void *zr_umfDisjointPoolOps(void);
int zr_umfDisjointPoolParamsSetName(void *params, const char *name);
int zr_umfDisjointPoolParamsSetMaxPoolableSize(void *params, size_t size);

#define EXPORT __attribute__((visibility("default")))

EXPORT const void *zr_umfDisjointPoolOps(void) {
    const void *caller = __builtin_return_address(0);
    const void *(*real)(void) = REAL(umfDisjointPoolOps, caller);
    const struct ops *ops = real ? real() : NULL;

    if (!ops || zr_exiting() || !zr_thread.sycl.for_device || !zr_library_of(caller)->is_adapter ||
        !zr_route_wants_pool())
        return ops;
    return table_for(ops, caller);
}

EXPORT int zr_umfDisjointPoolParamsSetName(void *params, const char *name) {
    int (*real)(void *, const char *) = REAL(umfDisjointPoolParamsSetName, __builtin_return_address(0));

    zr_thread.sycl.for_device = name && strcmp(name, "Device") == 0;
    if (zr_thread.sycl.for_device && zr_thread.sycl.params == params)
        zr_route_pool_limit(zr_thread.sycl.limit);
    return real ? real(params, name) : UMF_NOT_SUPPORTED;
}

EXPORT int zr_umfDisjointPoolParamsSetMaxPoolableSize(void *params, size_t size) {
    int (*real)(void *, size_t) = REAL(umfDisjointPoolParamsSetMaxPoolableSize, __builtin_return_address(0));

    zr_thread.sycl.params = params;
    zr_thread.sycl.limit = size;
    return real ? real(params, size) : UMF_NOT_SUPPORTED;
}

/* Callers name the version of UMF that they were linked against. */
#define VERSIONS(name)                                                                                                 \
    __asm__(".symver zr_" #name ", " #name "@UMF_1.0\n"                                                                \
            ".globl zr_" #name "_0_11\n"                                                                               \
            ".type zr_" #name "_0_11, @function\n"                                                                     \
            ".set zr_" #name "_0_11, zr_" #name "\n"                                                                   \
            ".symver zr_" #name "_0_11, " #name "@UMF_0.11\n")
VERSIONS(umfDisjointPoolOps);
VERSIONS(umfDisjointPoolParamsSetName);
VERSIONS(umfDisjointPoolParamsSetMaxPoolableSize);
