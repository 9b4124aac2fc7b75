/*
 * Who serves SYCL's device allocations, and how it is done at the SYCL entry points: by what we
 * keep, over zeMemAllocDevice on the runtime's own handles, with the residency that the runtime
 * would ask for.
 */
#include "sycl/route.h"

enum {
    USUAL_POOL_LIMIT = 4 << 20
}; /* what the runtime's pool keeps of device memory unless told otherwise */

uint32_t zr_route_decision;
static uint32_t pool_taken;
static const char *pool_refused;
static size_t pool_limit = SIZE_MAX; /* atomic: until the runtime tells */

static void tell(const char *route, const char *why)
{
    zr_text(ZR_T_ROUTE, route);
    zr_text(ZR_T_ROUTE_WHY, why);
}

__attribute__((noinline, cold)) enum zr_served zr_route_decide(void)
{
    enum zr_served d = ZR_SERVED_ELSEWHERE;
    bool taken = __atomic_load_n(&pool_taken, __ATOMIC_ACQUIRE);
    const char *refused = __atomic_load_n(&pool_refused, __ATOMIC_ACQUIRE);

    zr_config_load();
    zr_stats_open();
    switch (zr_config.route) {
    case ZR_ROUTE_SYCL:
        d = ZR_SERVED_AT_SYCL;
        tell("sycl", "asked for");
        break;
    case ZR_ROUTE_NATIVE:
        tell("native", "asked for");
        break;
    case ZR_ROUTE_POOL:
        if (taken)
            d = ZR_SERVED_BY_POOL;
        else
            tell("native", refused ? refused : "the runtime asks nobody for its pool");
        break;
    default:
        if (taken) {
            d = ZR_SERVED_BY_POOL;
        } else {
            d = ZR_SERVED_AT_SYCL;
            tell("sycl", refused ? refused : "the runtime asks nobody for its pool");
        }
        break;
    }
    __atomic_store_n(&zr_route_decision, d, __ATOMIC_RELEASE);
    return d;
}

void zr_route_waits(void)
{
    zr_config_load();
    zr_stats_open();
    if (!__atomic_load_n(&pool_taken, __ATOMIC_ACQUIRE))
        tell("native", "another backend than Level Zero so far");
    zr_count(ZR_F_PASSED_BACKEND, 1);
}

bool zr_route_wants_pool(void)
{
    zr_config_load();
    return zr_config.route == ZR_ROUTE_AUTO || zr_config.route == ZR_ROUTE_POOL;
}

void zr_route_pool_taken(void)
{
    if (__atomic_exchange_n(&pool_taken, 1, __ATOMIC_ACQ_REL) == 0) {
        zr_stats_open();
        tell("pool",
             zr_config.route == ZR_ROUTE_POOL ? "asked for" : "the runtime takes its pool from us");
    }
}

void zr_route_pool_refused(const char *why)
{
    __atomic_store_n(&pool_refused, why, __ATOMIC_RELEASE);
}

/* A program's own pools may keep more than the one that plain allocations come from: the least holds. */
void zr_route_pool_limit(size_t bytes)
{
    if (bytes < __atomic_load_n(&pool_limit, __ATOMIC_RELAXED))
        __atomic_store_n(&pool_limit, bytes, __ATOMIC_RELAXED);
}

/*
 * A runtime that holds its pool inside tells nothing, and neither does one whose pool is switched off. With these
 * variables, whatever they say, nothing is known to be reused at once.
 */
static __attribute__((noinline, cold)) size_t untold_limit(void)
{
    static const char *const names[] = {
        "UR_L0_DISABLE_USM_ALLOCATOR", "SYCL_PI_LEVEL_ZERO_DISABLE_USM_ALLOCATOR", "UR_L0_USM_ALLOCATOR",
        "SYCL_PI_LEVEL_ZERO_USM_ALLOCATOR"};
    size_t limit = USUAL_POOL_LIMIT;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (getenv(names[i]))
            limit = 0;
    zr_route_pool_limit(limit);
    return limit;
}

size_t zr_route_reuses_up_to(void)
{
    size_t limit = __atomic_load_n(&pool_limit, __ATOMIC_RELAXED);

    return likely(limit != SIZE_MAX) ? limit : untold_limit();
}

/* --- at the SYCL entry points ----------------------------------------------------------------- */

static void begin(struct zr_call *call, uint32_t hook, const void *caller)
{
    call->caller = caller;
    call->hook = hook;
    call->entered = true;
    call->weight = 0;
    zr_thread.inside = 1;
}

/* Found in the books already: the flag is all that tells it from other blocks. */
static void mark(void *p)
{
    struct zr_block *b = zr_map_base(p);

    if (b)
        __atomic_store_n(&b->flags, __atomic_load_n(&b->flags, __ATOMIC_RELAXED) | ZR_BLOCK_SYCL,
                         __ATOMIC_RELAXED);
}

static ze_result_t alloc_plain(struct zr_call *call, const struct zr_habit *h, size_t size,
                               size_t alignment, void **out)
{
    ze_device_mem_alloc_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, .flags = h->flags, .ordinal = h->ordinal};

    return zr_policy_alloc_device_from_driver(call, h->context, &desc, size, alignment, h->device,
                                              out);
}

/* The driver refuses for want of memory: that is the answer. Anything else is for the runtime to say. */
static bool is_short(ze_result_t result)
{
    return result == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY ||
           result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/* As alloc_plain, from what is kept where it can be. A hit is resident already. */
static ze_result_t obtain(struct zr_call *call, const struct zr_habit *h, size_t size, size_t alignment,
                          void **out, bool *hit)
{
    struct zr_keep_as as = {h->context, h->device, h->number, h->ordinal, h->flags, h->resident_on};
    ze_result_t result = ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;

    *hit = false;
    if (zr_residency_skips(call))
        as.residents &= UINT64_C(1) << (h->number & 63);
    if (likely(zr_config.cache))
        result = zr_keep_alloc_as(call, &as, size, alignment, out, hit);
    if (unlikely(result == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE))
        result = alloc_plain(call, h, size, alignment, out);
    return result;
}

/* Where a device refuses, the block is of no use to the program: it goes back, as the runtime does it. */
static ze_result_t make_resident(struct zr_call *call, const struct zr_habit *h, void *p, size_t size)
{
    ze_result_t result = ZE_RESULT_SUCCESS, freed;

    for (uint32_t i = 0; result == ZE_RESULT_SUCCESS && i < h->residents; i++)
        result = zr_residency_make(call, h->context, h->resident[i], p, size);
    if (unlikely(result != ZE_RESULT_SUCCESS) &&
        !(zr_config.cache && zr_keep_not(call, h->context, p, &freed)))
        zr_plain_free(call, h->context, p);
    return result;
}

bool zr_route_alloc(const struct zr_habit *habit, size_t size, size_t alignment, const void *caller,
                    void **out)
{
    struct zr_call call __attribute__((cleanup(zr_leave)));
    ze_result_t result;
    bool hit, again = true;
    void *p = NULL;

    begin(&call, habit->hook, caller);
    zr_count_caller(caller, size);
    *out = NULL;
    if (unlikely(zr_host_refuses(size)))
        return true;
    for (;;) {
        result = obtain(&call, habit, size, alignment, &p, &hit);
        if (unlikely(result != ZE_RESULT_SUCCESS))
            return is_short(result);
        if (likely(hit))
            break;
        result = make_resident(&call, habit, p, size);
        if (likely(result == ZE_RESULT_SUCCESS))
            break;
        if (!again || !is_short(result) || !zr_policy_trim(&call, habit->number))
            return is_short(result);
        again = false;
        zr_count(ZR_F_CACHE_RETRIES, 1);
    }
    mark(p);
    zr_trace('a', p, size, habit->number);
    *out = p;
    return true;
}

/* What the runtime itself reuses at once, or all that is freed when the program vouches for it. */
static inline bool is_reused(const struct zr_block *b)
{
    return zr_config.cache &&
           (zr_config.reuse == ZR_REUSE_ALWAYS || b->size <= zr_route_reuses_up_to());
}

/* Nothing was ever handed out here unless it was decided so. */
static inline struct zr_block *mine(const void *ptr)
{
    struct zr_block *b = zr_route() == ZR_SERVED_AT_SYCL ? zr_map_base(ptr) : NULL;

    return b && __atomic_load_n(&b->flags, __ATOMIC_RELAXED) & ZR_BLOCK_SYCL ? b : NULL;
}

/* The rest goes back as the runtime would give it back: it, or the driver below it, may wait for commands. */
bool zr_route_free(void *ptr, const void *caller)
{
    struct zr_block *b = mine(ptr);
    struct zr_call call __attribute__((cleanup(zr_leave))) = {.entered = false};

    if (!b)
        return false;
    /* The runtime does not know the block, and the loader may be gone: the process's end frees it. */
    if (unlikely(zr_exiting))
        return true;
    ze_context_handle_t context = __atomic_load_n(&b->context, __ATOMIC_RELAXED);
    const struct zr_habit *habit = zr_habit_in(context, b->device);

    begin(&call, habit ? habit->hook : ZR_HOOK_PLT, caller);
    zr_trace('f', ptr, 0, b->device);
    if (likely(is_reused(b))) {
        zr_policy_free(&call, context, ptr);
    } else if (habit && habit->frees_ext) {
        ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                          .freePolicy = habit->free_policy};

        zr_policy_free_ext(&call, context, &desc, ptr);
    } else {
        zr_policy_free_to_driver(&call, context, ptr);
    }
    return true;
}

struct leaving {
    struct zr_call *call;
    ze_context_handle_t context;
};

static bool leave(struct zr_block *b, void *arg)
{
    const struct leaving *l = arg;

    if (zr_word_state(zr_block_word(b)) == ZR_BLOCK_LIVE && b->size <= zr_route_reuses_up_to() &&
        __atomic_load_n(&b->flags, __ATOMIC_RELAXED) & ZR_BLOCK_SYCL &&
        __atomic_load_n(&b->context, __ATOMIC_RELAXED) == (void *)l->context)
        zr_policy_free_to_driver(l->call, l->context, (void *)b->base);
    return true;
}

void zr_route_drop_context(struct zr_call *call, ze_context_handle_t context)
{
    struct leaving l = {call, context};

    if (context && zr_route() == ZR_SERVED_AT_SYCL)
        zr_block_each(leave, &l);
}

bool zr_route_owns(const void *ptr)
{
    return mine(ptr) != NULL;
}

/* --- residency that changes while blocks live --------------------------------------------------- */

struct change {
    struct zr_call call;
    const struct zr_habit *was, *is;
};

static void follow(struct change *c, const struct zr_habit *h, uint64_t devices, void *base, size_t size,
                   bool make)
{
    for (uint32_t i = 0; i < h->residents; i++) {
        unsigned n = zr_device_number(&c->call, h->resident[i]);

        if (n >= 64 || !(devices >> n & 1))
            continue;
        if (make)
            zr_residency_make(&c->call, h->context, h->resident[i], base, size);
        else
            zr_residency_evict(&c->call, h->context, h->resident[i], base, size);
    }
}

static bool follow_one(struct zr_block *b, void *arg)
{
    struct change *c = arg;
    uint64_t was = c->was->resident_on, is = c->is->resident_on;
    void *base = (void *)b->base;

    if (zr_word_state(zr_block_word(b)) != ZR_BLOCK_LIVE || b->device != c->is->number ||
        !(__atomic_load_n(&b->flags, __ATOMIC_RELAXED) & ZR_BLOCK_SYCL) ||
        __atomic_load_n(&b->context, __ATOMIC_RELAXED) != (void *)c->is->context)
        return true;
    follow(c, c->is, is & ~was, base, b->size, true);
    follow(c, c->was, was & ~is, base, b->size, false);
    return true;
}

void zr_route_residency_changed(const struct zr_habit *was, const struct zr_habit *is, const void *caller)
{
    struct change c = {.was = was, .is = is};

    begin(&c.call, is->hook, caller);
    zr_block_each(follow_one, &c);
    zr_leave(&c.call);
}
