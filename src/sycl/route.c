/*
 * Decides who serves SYCL's device allocations, and serves them at the SYCL entry points: with
 * zeMemAllocDevice on the runtime's own handles, and the residency that the runtime would request.
 */
#include "sycl/sycl.h"
#include "work/work.h"

#include <stdlib.h>

enum { USUAL_POOL_LIMIT = 4 << 20 }; /* what the runtime's pool keeps by default */

uint32_t zr_route_decision;
static uint32_t pool_taken;
static const char *pool_refused;     /* atomic: why there is none of ours, where it asked for one */
static size_t pool_limit = SIZE_MAX; /* atomic: until the runtime tells */

static void tell(const char *route, const char *why) {
    zr_text(ZR_T_ROUTE, route);
    zr_text(ZR_T_ROUTE_WHY, why);
}

/* Why our pool is not behind this runtime. */
static const char *why_no_pool(void) {
    const char *why = __atomic_load_n(&pool_refused, __ATOMIC_ACQUIRE);

    if (why)
        return why;
    if (zr_elf_named(zr_who_is_adapter_name) == ZR_LIST_ABSENT)
        return "the runtime has its adapter and its pool inside itself, where a preload cannot "
               "take the "
               "pool's place";
    return "the runtime's adapter has a pool inside itself, and takes none from outside";
}

ZR_COLD enum zr_route zr_route_decide(bool level_zero) {
    enum zr_route d = ZR_BY_RUNTIME;
    const char *why = why_no_pool();
    bool taken = __atomic_load_n(&pool_taken, __ATOMIC_ACQUIRE);

    zr_config_load();
    zr_stats_open();
    if (!level_zero) {
        if (!taken)
            tell("native", "another backend than Level Zero so far");
        zr_count(ZR_F_PASSED_BACKEND, 1);
        return ZR_NOT_DECIDED;
    }
    if (zr_config.route == ZR_ROUTE_NATIVE) {
        tell("native", "asked for");
    } else if (zr_config.route == ZR_ROUTE_SYCL) {
        d = ZR_AT_SYCL;
        tell("sycl", "asked for");
    } else if (taken) {
        d = ZR_BY_POOL;
    } else if (zr_config.route == ZR_ROUTE_AUTO) {
        d = ZR_AT_SYCL;
        tell("sycl", why);
    } else {
        tell("native", why);
        zr_warn("route:pool is not possible here: %s; SYCL's device allocations are left to the "
                "runtime",
                why);
    }
    __atomic_store_n(&zr_route_decision, d, __ATOMIC_RELEASE);
    return d;
}

bool zr_route_wants_pool(void) {
    zr_config_load();
    return zr_config.route == ZR_ROUTE_AUTO || zr_config.route == ZR_ROUTE_POOL;
}

void zr_route_pool_taken(void) {
    if (__atomic_exchange_n(&pool_taken, 1, __ATOMIC_ACQ_REL) == 0) {
        zr_stats_open();
        tell("pool",
             zr_config.route == ZR_ROUTE_POOL ? "asked for" : "the runtime takes its pool from us");
    }
}

void zr_route_pool_refused(const char *why) {
    __atomic_store_n(&pool_refused, why, __ATOMIC_RELEASE);
}

/* A program's own pools may keep more than the one behind plain allocations: the smallest limit
 * holds. */
void zr_route_pool_limit(size_t bytes) {
    if (bytes < __atomic_load_n(&pool_limit, __ATOMIC_RELAXED))
        __atomic_store_n(&pool_limit, bytes, __ATOMIC_RELAXED);
}

/*
 * A runtime with an internal pool does not tell its limit, nor does one whose pool is switched off.
 * If one of these variables is set, whatever its value, assume that nothing is reused at once.
 */
static ZR_COLD size_t untold_limit(void) {
    static const char *const names[] = {"UR_L0_DISABLE_USM_ALLOCATOR",
                                        "SYCL_PI_LEVEL_ZERO_DISABLE_USM_ALLOCATOR",
                                        "UR_L0_USM_ALLOCATOR", "SYCL_PI_LEVEL_ZERO_USM_ALLOCATOR"};
    size_t limit = USUAL_POOL_LIMIT;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (getenv(names[i]))
            limit = 0;
    zr_route_pool_limit(limit);
    return limit;
}

size_t zr_route_reuses_up_to(void) {
    size_t limit = __atomic_load_n(&pool_limit, __ATOMIC_RELAXED);

    return likely(limit != SIZE_MAX) ? limit : untold_limit();
}

/* --- at the SYCL entry points ----------------------------------------------------------------- */

void zr_route_enter(struct zr_op *op, uint32_t hook, enum zr_entry entry, const void *caller) {
    *op = (struct zr_op){.caller = caller,
                         .library = zr_library_of(caller),
                         .hook = hook,
                         .entry = (uint16_t)entry,
                         .via = ZR_VIA_SYCL};
    zr_op_begin(op);
}

/* What the runtime itself reuses at once; everything if the program vouches for it (reuse:always).
 */
static bool is_reused(size_t size) {
    return zr_config.cache &&
           (zr_config.reuse == ZR_REUSE_ALWAYS || size <= zr_route_reuses_up_to());
}

/* What the runtime would give back is reused once no command can use it any more. */
static bool reuses_once_proven(void) {
    return zr_config.cache && zr_config.reuse == ZR_REUSE_PROVEN && zr_work_is_sure();
}

/* If a device refuses, the block is freed, as the runtime does. */
static ze_result_t make_resident(struct zr_op *op, const struct zr_watch *w, void *p, size_t size) {
    ze_result_t result = ZE_RESULT_SUCCESS;

    for (uint32_t i = 0; result == ZE_RESULT_SUCCESS && i < w->residents; i++)
        result = zr_residency_make(op, w->context, w->resident[i], p, size);
    if (unlikely(result != ZE_RESULT_SUCCESS))
        zr_policy_free(op, &(struct zr_free){.context = w->context, .ptr = p});
    return result;
}

static ze_result_t route_allocate(struct zr_op *op, const struct zr_practice *practice, size_t size,
                                  size_t alignment, void **out) {
    const struct zr_watch *w = &practice->seen;
    ze_device_mem_alloc_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, .flags = w->flags, .ordinal = w->ordinal};
    struct zr_alloc a = {.kind = ZR_KIND_DEVICE,
                         .entry = ZR_E_zeMemAllocDevice,
                         .context = w->context,
                         .device = w->device,
                         .desc = &desc,
                         .size = size,
                         .alignment = alignment,
                         .residents = practice->residents,
                         .flags = ZR_BLOCK_SYCL,
                         .reusable = is_reused(size) || reuses_once_proven(),
                         .out = out};
    struct zr_block *b;
    ze_result_t result;

    if (zr_residency_skips(op))
        a.residents &= UINT64_C(1) << (practice->number & 63);
    /* The runtime's own pool takes its blocks with it when its context goes. */
    if (size <= zr_route_reuses_up_to())
        a.flags |= ZR_BLOCK_WITH_CONTEXT;
    result = zr_policy_alloc(op, &a, &b);
    if (unlikely(result != ZE_RESULT_SUCCESS))
        return result;
    if (unlikely(!b)) { /* it could not be registered: leave it to the runtime */
        ZR_BELOW(op, zeMemFree)(w->context, *out);
        return ZE_RESULT_ERROR_UNKNOWN;
    }
    __atomic_store_n(&b->owner, practice, __ATOMIC_RELAXED);
    return make_resident(op, w, *out, size);
}

bool zr_route_alloc(const struct zr_practice *practice, enum zr_entry entry, size_t size,
                    size_t alignment, const void *caller, void **out) {
    struct zr_op op __attribute__((cleanup(zr_op_end)));
    struct zr_room room;
    ze_result_t result;

    *out = NULL;
    zr_route_enter(&op, practice->seen.hook, entry, caller);
    zr_count_caller(op.library, ZR_CALLER_CALLS, 1);
    if (zr_floor_refuses(&op, ZR_E_aligned_alloc_device, practice->number, size, &result))
        return true;
    room = zr_room_begin(&op, practice->number);
    do {
        result = route_allocate(&op, practice, size, alignment, out);
    } while (zr_room_again(&room, result));
    if (likely(result == ZE_RESULT_SUCCESS))
        return true;
    zr_refused(&op, ZR_E_aligned_alloc_device, practice->number, size, result);
    *out = NULL;
    return zr_is_short(result); /* any other error is left to the runtime to report */
}

/* Nothing was handed out here unless the route is ours. */
struct zr_block *zr_route_block(const void *ptr) {
    struct zr_block *b = zr_route() == ZR_AT_SYCL ? zr_map_find(ptr) : NULL;

    return b && zr_block_flags(b) & ZR_BLOCK_SYCL ? b : NULL;
}

/* What is not reused is freed as the runtime would free it: that may wait for commands. */
static void route_take_back(struct zr_block *b, void *ptr, enum zr_entry entry,
                            const void *caller) {
    struct zr_op op __attribute__((cleanup(zr_op_end)));
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC};
    struct zr_free f = {.context = __atomic_load_n(&b->key.context, __ATOMIC_RELAXED), .ptr = ptr};
    const struct zr_practice *practice = b->owner;

    f.reusable = is_reused(b->size);
    if (unlikely(!f.reusable && practice && practice->seen.frees_ext)) {
        desc.freePolicy = practice->seen.free_policy;
        f.desc = &desc;
        f.ext = true;
    }
    zr_route_enter(&op, zr_block_hook(b), entry, caller);
    if (unlikely(zr_block_flags(b) & ZR_BLOCK_EXPORTED))
        zr_ipc_before_free(&op, b);
    zr_policy_free(&op, &f);
}

bool zr_route_free(void *ptr, enum zr_entry entry, const void *caller) {
    struct zr_block *b = zr_route_block(ptr);
    uint64_t word;

    if (likely(b && b->base == (uintptr_t)ptr)) {
        /* The runtime does not know the block, and the loader may be gone: the end of the process
         * frees it. */
        if (!zr_exiting())
            route_take_back(b, ptr, entry, caller);
        return true;
    }
    /* The runtime answers: it knows none of our blocks. */
    if (b) {
        zr_policy_wrong_free(ZR_F_FREE_INVALID_INTERIOR, caller, ptr, b);
        return false;
    }
    b = zr_route() == ZR_AT_SYCL ? zr_map_look(ptr, &word) : NULL;
    if (b && zr_block_flags(b) & ZR_BLOCK_SYCL)
        zr_policy_wrong_free(ZR_F_FREE_INVALID_TWICE, caller, ptr, b);
    return false;
}

/* --- residency that changes while blocks live ------------------------------------------------- */

struct change {
    struct zr_op *op;
    const struct zr_practice *was, *is;
};

typedef ze_result_t (*residency)(struct zr_op *, ze_context_handle_t, ze_device_handle_t, void *,
                                 size_t);

static void follow_residency(struct change *c, const struct zr_watch *w, uint64_t devices,
                             void *base, size_t size, residency ask) {
    for (uint32_t i = 0; i < w->residents; i++) {
        unsigned n = zr_device_number(c->op, w->resident[i]);

        if (n < 64 && devices >> n & 1)
            ask(c->op, w->context, w->resident[i], base, size);
    }
}

static bool follow_one(struct zr_block *b, void *arg) {
    struct change *c = arg;
    uint64_t was = c->was->residents, is = c->is->residents;
    void *base = (void *)__atomic_load_n(&b->base, __ATOMIC_RELAXED);
    size_t size = __atomic_load_n(&b->size, __ATOMIC_RELAXED);

    if (!(zr_block_flags(b) & ZR_BLOCK_SYCL) ||
        __atomic_load_n(&b->owner, __ATOMIC_RELAXED) != c->was ||
        zr_word_state(zr_block_word(b)) != ZR_BLOCK_LIVE)
        return true;
    follow_residency(c, &c->is->seen, is & ~was, base, size, zr_residency_make);
    follow_residency(c, &c->was->seen, was & ~is, base, size, zr_residency_evict);
    __atomic_store_n(&b->owner, c->is,
                     __ATOMIC_RELAXED); /* pairs of objects share practices: it follows once */
    return true;
}

void zr_route_residency_changed(const struct zr_practice *was, const struct zr_practice *is,
                                const void *caller) {
    struct zr_op op __attribute__((cleanup(zr_op_end)));
    struct change c = {.op = &op, .was = was, .is = is};

    zr_route_enter(&op, is->seen.hook, ZR_E_enable_peer_access, caller);
    zr_block_each(follow_one, &c);
}
