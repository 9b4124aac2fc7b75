/*
 * UMF's ops: the runtime makes its memory pools with umfPoolCreate(umfDisjointPoolOps(), provider,
 * ...). We create its pools for device memory with an ops table of our own instead; UMF tracks
 * every pointer as before, so all other SYCL calls work. Host and shared memory keep UMF's own ops.
 * The memory comes from the runtime's own provider, and so from zeMemAllocDevice, where our hooks
 * see it.
 *
 * `reuse` decides what is pooled: by default what the runtime's own pool would reuse at once.
 * Larger blocks go straight to the provider and back, which may wait for the device as it always
 * did. So do blocks with an alignment above the page size of device memory: the runtime's pool
 * would over-allocate by that much, and so mostly leaves them to its provider as well.
 *
 * The layout of the table is UMF's contract: ops version 0.11, 1.0 and 1.1 are known, others are
 * left alone.
 */
#include "sycl/sycl.h"
#include "work/work.h"

#include <stdlib.h>
#include <string.h>

enum {
    UMF_SUCCESS = 0,
    UMF_OUT_OF_HOST_MEMORY = 1,
    UMF_INVALID_ARGUMENT = 3,
    UMF_NOT_SUPPORTED = 5,
    PAGE = 64 << 10,
    LEAVING_MS = 5000, /* waited at most for blocks of a pool that other threads are freeing */
    OPS_0_11 = 0 << 16 | 11,
    OPS_1_0 = 1 << 16 | 0,
    OPS_1_1 = 1 << 16 | 1
};

/* As of 1.1; 1.0 ends before ext_trim_memory, 0.11 before get_name and with two other results
 * (below). */
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
    zr_function ext_ctl; /* NULL: UMF's default, which knows of no setting */
    int (*ext_trim_memory)(void *pool, size_t keep);
};

struct pool {
    struct zr_pool *pool;
    void *provider;
    /* larger blocks outlive the pool: the runtime's own would not have held them */
    size_t goes_up_to;
    uint32_t hook;                    /* at which the provider's calls are seen */
    unsigned number;                  /* of the device */
    const struct zr_library *library; /* whose calls these are: UMF's */
    void *context;                    /* atomic: of its blocks */
    uint64_t residents;               /* atomic: of the block that was freed last */
};

static struct { /* what we call of UMF: set once, under the lock; codes are umf_result_t */
    int (*alloc)(void *provider, size_t size, size_t alignment, void **out);
    int (*free)(void *provider, void *ptr, size_t size);
} umf;

/* --- the provider below ----------------------------------------------------------------------- */

/* An operation of the pool: our hooks see the provider's calls below it, and their blocks are the
 * pool's. */
static void pool_op_begin(struct zr_op *op, const struct pool *p, enum zr_entry entry) {
    *op = (struct zr_op){.library = p->library,
                         .hook = p->hook,
                         .entry = (uint16_t)entry,
                         .via = ZR_VIA_POOL,
                         .admits = true,
                         .pooled = true};
    zr_op_begin(op);
}

/* The provider translates codes: what the driver said, the call that arrives below has noted. */
static ze_result_t provide(struct zr_op *op, const struct pool *p, size_t size, size_t alignment,
                           int *code, void **out) {
    op->block = NULL;
    op->driver_code = ZE_RESULT_SUCCESS;
    op->refused_by = ZR_REFUSED_BY_DRIVER;
    *code = umf.alloc(p->provider, size, alignment, out);
    if (likely(*code == 0))
        return ZE_RESULT_SUCCESS;
    return op->driver_code ? (ze_result_t)op->driver_code : ZE_RESULT_ERROR_UNKNOWN;
}

static struct zr_block *provider_alloc(const struct pool *p, size_t size, size_t alignment,
                                       int *code) {
    struct zr_op op __attribute__((cleanup(zr_op_end)));
    struct zr_room room;
    ze_result_t result;
    void *out = NULL;

    pool_op_begin(&op, p, ZR_E_pool_malloc);
    room = zr_room_begin(&op, p->number);
    do {
        result = provide(&op, p, size, alignment, code, &out);
    } while (zr_room_again(&room, result));
    if (op.above)
        op.above->began = op.began;
    if (unlikely(result != ZE_RESULT_SUCCESS)) {
        zr_refused(&op, ZR_E_pool_malloc, p->number, size, result);
        return NULL;
    }
    if (unlikely(!op.block)) { /* it could not be registered */
        umf.free(p->provider, out, size);
        *code = ZR_NO_MEMORY;
    }
    return op.block;
}

static int provider_free(const struct pool *p, struct zr_block *b) {
    struct zr_op op __attribute__((cleanup(zr_op_end)));

    pool_op_begin(&op, p, ZR_E_pool_free);
    /*
     * What the provider was asked for: a block of the cache serves smaller sizes too, and check
     * adds a red zone.
     */
    return umf.free(p->provider, (void *)b->base,
                    zr_config.check == ZR_CHECK_NONE ? b->held : b->size);
}

static struct zr_block *backing_alloc(void *arg, size_t size, int *code) {
    return provider_alloc(arg, size, 0, code);
}

static void backing_free(void *arg, struct zr_block *b) {
    provider_free(arg, b);
}

/* --- pools of ours ---------------------------------------------------------------------------- */

static void make_one(const struct pool *p, struct zr_practice *out) {
    struct zr_op op __attribute__((cleanup(zr_op_end)));
    void *ptr = NULL;

    zr_watch_begin(&op, out, PAGE);
    if (umf.alloc(p->provider, PAGE, 0, &ptr) == 0)
        umf.free(p->provider, ptr, PAGE);
}

/* Leaves absurd sizes to the provider, which refuses them: rounding them up must not overflow. */
static size_t pools_up_to(size_t reuses_up_to) {
    if (!zr_config.cache)
        return 0;
    return zr_config.reuse == ZR_REUSE_ALWAYS ? SIZE_MAX / 4 : reuses_up_to;
}

/* Allocates and frees one block. Returns false if it is not device memory, or our hooks did not see
 * it. */
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

/*
 * Blocks that are too large for the runtime's own pool. Under reuse:proven they stay in the cache
 * of whole blocks, each pool's apart from the others': they are filed under the pool instead of
 * their context.
 */
static bool keeps_direct(void) {
    return zr_config.cache && zr_config.reuse == ZR_REUSE_PROVEN && zr_work_is_sure();
}

static uint32_t
    peer_changes; /* atomic: blocks from before the last one are resident on other cards */

void zr_pool_peers_changed(void) {
    __atomic_fetch_add(&peer_changes, 1, __ATOMIC_RELEASE);
}

static struct zr_block *direct_from_cache(struct pool *p, size_t size) {
    struct zr_key key = {.context = p,
                         .account = (uint16_t)p->number,
                         .kind = ZR_KIND_DEVICE,
                         .extra = __atomic_load_n(&peer_changes, __ATOMIC_ACQUIRE),
                         .residents = __atomic_load_n(&p->residents, __ATOMIC_RELAXED)};
    struct zr_block *b;

    zr_pending_settle();
    b = zr_cache_get(&key, zr_cache_round(size), size);
    if (!b)
        return NULL;
    __atomic_store_n(&b->key.context, __atomic_load_n(&p->context, __ATOMIC_RELAXED),
                     __ATOMIC_RELAXED);
    return b;
}

static bool direct_to_cache(struct pool *p, struct zr_block *b, const void *caller) {
    const struct zr_free unproven = {.ext = false};
    struct zr_key key = {.context = p,
                         .account = (uint16_t)p->number,
                         .kind = ZR_KIND_DEVICE,
                         .extra = b->key.extra};
    uint64_t word = zr_block_word(b);
    size_t size = b->size;

    if (!keeps_direct() || zr_block_flags(b) & ZR_BLOCK_NOT_KEPT ||
        !zr_policy_caches(p->number, b->held) || zr_word_state(word) != ZR_BLOCK_LIVE ||
        !zr_block_shift(b, word, ZR_BLOCK_CACHED))
        return false;
    if (unlikely(zr_block_flags(b) & ZR_BLOCK_NOT_KEPT)) { /* exported since we looked */
        __atomic_store_n(&b->word, word, __ATOMIC_RELEASE);
        return false;
    }
    __atomic_store_n(&p->context, b->key.context, __ATOMIC_RELAXED);
    key.residents = __atomic_load_n(&b->residents, __ATOMIC_RELAXED);
    __atomic_store_n(&p->residents, key.residents, __ATOMIC_RELAXED);
    zr_block_set_key(b, &key);
    __atomic_store_n(&b->freed_by, caller, __ATOMIC_RELAXED);
    zr_unbook(ZR_KIND_DEVICE, p->number, size);
    zr_count(ZR_F_CACHE_RETURNED, 1);
    zr_pending_keep(b, &unproven, zr_work_freed());
    return true;
}

/* The provider's free reaches our hooks, which give the block to the driver. */
static enum zr_released release_direct(struct zr_block *b) {
    struct pool *p = (struct pool *)b->owner;

    __atomic_store_n(&b->key.context, __atomic_load_n(&p->context, __ATOMIC_RELAXED),
                     __ATOMIC_RELAXED);
    return provider_free(p, b) == 0 ? ZR_RELEASED_WHOLE : ZR_RELEASE_REFUSED;
}

static bool free_direct(struct pool *p, struct zr_block *b) {
    size_t size = b->size;

    if (provider_free(p, b) != 0)
        return false;
    zr_unbook(ZR_KIND_DEVICE, p->number, size);
    return true;
}

/* With cache:off each block is the provider's: those that the runtime's own pool would have held go
 * with the pool. */
static bool release_with_pool(struct zr_block *b, void *arg) {
    struct pool *p = arg;

    if (zr_word_state(zr_block_word(b)) != ZR_BLOCK_LIVE ||
        !(zr_block_flags(b) & ZR_BLOCK_DIRECT) || b->owner != p)
        return true;
    if (__atomic_load_n(&b->size, __ATOMIC_RELAXED) <= p->goes_up_to) {
        zr_registry_piece_freed(p->number, (const void *)b->base);
        free_direct(p, b);
    } else {
        b->owner = NULL; /* another pool may lie there soon */
    }
    return true;
}

/* A program may destroy its context while blocks live: their memory goes with the pool. */
static void end(struct pool *p) {
    struct zr_pool_counts counts;

    zr_pool_counts(p->pool, &counts);
    while (counts.live-- > 0) {
        zr_unbook(ZR_KIND_DEVICE, p->number, counts.live_bytes);
        counts.live_bytes = 0;
    }
    zr_pending_drain(ZR_ACCOUNTS, p);
    zr_cache_trim(ZR_ACCOUNTS, p);
    zr_cache_await(LEAVING_MS);
    zr_block_each(release_with_pool, p);
    zr_pool_delete(p->pool);
}

static struct zr_block *direct_from_provider(struct pool *p, size_t size, size_t alignment,
                                             int *code) {
    uint32_t changes = __atomic_load_n(&peer_changes, __ATOMIC_ACQUIRE);
    size_t rounded = keeps_direct() && alignment <= PAGE ? zr_cache_round(size) : size;
    struct zr_block *b = provider_alloc(p, rounded, alignment, code);

    if (!b && rounded != size)
        b = provider_alloc(p, size, alignment, code);
    if (!b)
        return NULL;
    __atomic_store_n(&b->size, size, __ATOMIC_RELAXED);
    zr_block_mark(b, ZR_BLOCK_DIRECT);
    b->key.extra = changes;
    return b;
}

static int direct(struct pool *p, size_t *size, size_t alignment, void **out, bool *asked) {
    struct zr_block *b = NULL;
    int code = 0;

    *asked = false;
    if (keeps_direct() && alignment <= PAGE)
        b = direct_from_cache(p, *size);
    if (!b) {
        *asked = true;
        b = direct_from_provider(p, *size, alignment, &code);
    }
    if (!b)
        return code ? code : ZR_NO_MEMORY;
    b->owner = p;
    *size = b->size;
    *out = (void *)b->base;
    return 0;
}

/* Returns 0, or the provider's code if it still refuses after all unused memory was given back. */
static int serve(struct pool *p, size_t size, size_t alignment, void **out) {
    bool asked = true;
    int code = ZR_NO_MEMORY;

    if (likely(size <= pools_up_to(p->goes_up_to) && alignment <= PAGE))
        code = zr_pool_malloc(p->pool, size, alignment, out, &asked);
    if (unlikely(code == ZR_NO_MEMORY)) /* not for the pool, or no memory for its books */
        code = direct(p, &size, alignment, out, &asked);
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

/* Returns false and does nothing if ptr is not the start of an allocation. */
static bool take_back(struct pool *p, void *ptr, const void *caller) {
    static const enum zr_field wrong[] = {[ZR_FREED_TWICE] = ZR_F_FREE_INVALID_TWICE,
                                          [ZR_FREED_INTERIOR] = ZR_F_FREE_INVALID_INTERIOR,
                                          [ZR_FREED_UNKNOWN] = ZR_F_FREE_INVALID_UNKNOWN};
    enum zr_freed freed;
    struct zr_block *b;
    size_t size = 0;

    zr_registry_piece_freed(p->number, ptr);
    freed = zr_pool_free(p->pool, ptr, &size);
    b = freed == ZR_FREED_UNKNOWN ? direct_block(p, ptr) : NULL;
    if (b)
        return direct_to_cache(p, b, caller) || free_direct(p, b);
    if (likely(freed == ZR_FREED))
        zr_unbook(ZR_KIND_DEVICE, p->number, size);
    else
        zr_policy_wrong_free(wrong[freed], caller, ptr, NULL);
    return freed == ZR_FREED;
}

/* --- the table -------------------------------------------------------------------------------- */

static int initialize(void *provider, const void *params, void **out) {
    struct pool *p = calloc(1, sizeof *p);

    (void)params;
    zr_fork_check();
    zr_policy_release_direct = release_direct;
    if (p && begin(p, provider, zr_thread.sycl.limit)) {
        p->library = zr_library_find_now(__builtin_return_address(0));
        zr_route_pool_taken();
        *out = p;
        return UMF_SUCCESS;
    }
    free(p);
    zr_route_pool_refused("the runtime's provider is not for device memory that we see");
    return UMF_NOT_SUPPORTED;
}

static int finalize(void *pool) {
    struct zr_op op __attribute__((cleanup(zr_op_end))) = {.entered = false};
    struct pool *p = pool;

    zr_fork_check();
    if (zr_exiting()) /* a thread may still be inside */
        return UMF_SUCCESS;
    pool_op_begin(&op, p, ZR_E_pool_free);
    end(p);
    free(p);
    return UMF_SUCCESS;
}

static void *allocate(struct pool *p, enum zr_entry entry, size_t size, size_t alignment) {
    struct zr_op op __attribute__((cleanup(zr_op_end))) = {.entered = false};
    ze_result_t refused;
    void *out = NULL;
    int code;

    if (zr_exiting()) /* nothing is registered any more */
        return umf.alloc(p->provider, size, alignment, &out) ? NULL : out;
    pool_op_begin(&op, p, entry);
    zr_fork_check();
    zr_control_check();
    zr_count_call(entry, ZR_VIA_POOL);
    if (unlikely(size == 0 || alignment & (alignment - 1)))
        code = UMF_INVALID_ARGUMENT;
    else if (zr_floor_refuses(&op, entry, p->number, size, &refused))
        code = UMF_OUT_OF_HOST_MEMORY;
    else
        code = serve(p, size, alignment, &out);
    zr_count_caller(p->library, ZR_CALLER_CALLS, 1);
    if (likely(code == UMF_SUCCESS))
        zr_count_caller(p->library, ZR_CALLER_BYTES, size);
    zr_thread.sycl.error = code == ZR_NO_MEMORY ? UMF_OUT_OF_HOST_MEMORY : code;
    return out;
}

static void *pool_malloc(void *pool, size_t size) {
    return allocate(pool, ZR_E_pool_malloc, size, 0);
}

static void *pool_aligned_malloc(void *pool, size_t size, size_t alignment) {
    return allocate(pool, ZR_E_pool_aligned_malloc, size, alignment);
}

/* As UMF's own pool answers: device memory cannot be written from the host. */
static void *not_supported(enum zr_entry entry) {
    zr_count_call(entry, ZR_VIA_POOL);
    zr_thread.sycl.error = UMF_NOT_SUPPORTED;
    return NULL;
}

static void *pool_calloc(void *pool, size_t count, size_t size) {
    (void)pool;
    (void)count;
    (void)size;
    return not_supported(ZR_E_pool_calloc);
}

static void *pool_realloc(void *pool, void *ptr, size_t size) {
    (void)pool;
    (void)ptr;
    (void)size;
    return not_supported(ZR_E_pool_realloc);
}

/* In 0.11 the result is the size itself. */
static size_t pool_usable_0_11(void *pool, const void *ptr) {
    zr_count_call(ZR_E_pool_malloc_usable_size, ZR_VIA_POOL);
    return ptr ? usable(pool, ptr) : 0;
}

static int pool_usable(void *pool, const void *ptr, size_t *size) {
    *size = pool_usable_0_11(pool, ptr);
    return UMF_SUCCESS;
}

static int pool_free(void *pool, void *ptr) {
    struct zr_op op __attribute__((cleanup(zr_op_end))) = {.entered = false};

    if (unlikely(!ptr || zr_exiting()))
        return UMF_SUCCESS;
    pool_op_begin(&op, pool, ZR_E_pool_free);
    zr_fork_check();
    zr_control_check();
    zr_count_call(ZR_E_pool_free, ZR_VIA_POOL);
    return take_back(pool, ptr, __builtin_return_address(0)) ? UMF_SUCCESS : UMF_INVALID_ARGUMENT;
}

static int pool_last_error(void *pool) {
    (void)pool;
    return zr_thread.sycl.error;
}

static int pool_name(void *pool, const char **name) {
    (void)pool;
    *name = "zeroute";
    return UMF_SUCCESS;
}

static int pool_trim(void *pool, size_t keep) {
    struct pool *p = pool;

    zr_fork_check();
    zr_pool_trim(p->pool, keep);
    return UMF_SUCCESS;
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
                          .ext_trim_memory = pool_trim};

/* Adopts the first UMF that asks: the version of its ops, and the two functions of its provider. */
static bool adopt_ops(uint32_t version, const void *caller) {
    __typeof__(umf.alloc) alloc =
        (__typeof__(umf.alloc))zr_definition("umfMemoryProviderAlloc", caller);
    __typeof__(umf.free) back =
        (__typeof__(umf.free))zr_definition("umfMemoryProviderFree", caller);

    if (!alloc || !back)
        return false;
    zr_lock(&zr_sycl_lock);
    if (!umf.alloc) {
        umf.alloc = alloc;
        umf.free = back;
        ours.version = version;
        if (version == OPS_0_11)
            ours.malloc_usable_size =
                (__typeof__(ours.malloc_usable_size))(zr_function)pool_usable_0_11;
    }
    zr_unlock(&zr_sycl_lock);
    return umf.alloc == alloc;
}

/* Whether a pool of this UMF can be ours. */
static bool is_possible(uint32_t version, const void *caller) {
    const char *why = NULL;

    if (version != OPS_0_11 && version != OPS_1_0 && version != OPS_1_1)
        why = "a UMF whose pools have a layout that is not known";
    else if (zr_runtime_is_foreign())
        why = ZR_RUNTIME_NOT_KNOWN;
    else if (!adopt_ops(version, caller))
        why = "a second UMF in this process, or one without providers";
    if (why)
        zr_route_pool_refused(why);
    return !why;
}

/* --- what the adapter calls ------------------------------------------------------------------- */

#define REAL(name, caller) ((__typeof__(&zr_##name))zr_definition(#name, caller))

int zr_umfPoolCreate(const struct ops *ops, void *provider, const void *params, uint32_t flags,
                     void **pool);
int zr_umfDisjointPoolParamsSetName(void *params, const char *name);
int zr_umfDisjointPoolParamsSetMaxPoolableSize(void *params, size_t size);

#define EXPORT __attribute__((visibility("default")))

/* A runtime gets as many pools as it wants: one that cannot be ours is UMF's own. A probe's pool is
 * left alone. */
EXPORT int zr_umfPoolCreate(const struct ops *ops, void *provider, const void *params,
                            uint32_t flags, void **pool) {
    const void *caller = __builtin_return_address(0);
    int (*real)(const struct ops *, void *, const void *, uint32_t, void **) =
        REAL(umfPoolCreate, caller);

    if (!real)
        return UMF_NOT_SUPPORTED;
    if (ops && zr_thread.sycl.for_device && params == zr_thread.sycl.params && !zr_exiting() &&
        !zr_op_watched() && zr_library_who_now(caller) == ZR_WHO_RUNTIME && zr_route_wants_pool() &&
        is_possible(ops->version, caller) &&
        real(&ours, provider, params, flags, pool) == UMF_SUCCESS)
        return UMF_SUCCESS;
    return real(ops, provider, params, flags, pool);
}

EXPORT int zr_umfDisjointPoolParamsSetName(void *params, const char *name) {
    int (*real)(void *, const char *) =
        REAL(umfDisjointPoolParamsSetName, __builtin_return_address(0));

    zr_thread.sycl.for_device = name && strcmp(name, "Device") == 0;
    if (zr_thread.sycl.for_device && zr_thread.sycl.params == params)
        zr_route_pool_limit(zr_thread.sycl.limit);
    return real ? real(params, name) : UMF_NOT_SUPPORTED;
}

EXPORT int zr_umfDisjointPoolParamsSetMaxPoolableSize(void *params, size_t size) {
    int (*real)(void *, size_t) =
        REAL(umfDisjointPoolParamsSetMaxPoolableSize, __builtin_return_address(0));

    zr_thread.sycl.params = params;
    zr_thread.sycl.limit = size;
    return real ? real(params, size) : UMF_NOT_SUPPORTED;
}

/* Callers name the symbol version that they were linked against: 1.0, or the first that has the
 * function. */
#define VERSIONS(name, first)                                                                      \
    __asm__(".symver zr_" #name ", " #name "@UMF_1.0\n"                                            \
            ".globl zr_" #name "_first\n"                                                          \
            ".type zr_" #name "_first, @function\n"                                                \
            ".set zr_" #name "_first, zr_" #name "\n"                                              \
            ".symver zr_" #name "_first, " #name "@UMF_" first "\n")
VERSIONS(umfPoolCreate, "0.10");
VERSIONS(umfDisjointPoolParamsSetName, "0.11");
VERSIONS(umfDisjointPoolParamsSetMaxPoolableSize, "0.11");
