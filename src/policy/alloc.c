/*
 * Every allocation: from the cache if it holds a block of that key, else from the driver, within
 * limit and host_floor.
 *
 * One driver allocation per block. A request is served from the cache only when every property of
 * it is part of the key; anything else is left to the driver and counted.
 */
#include "check/check.h"
#include "pause/pause.h"
#include "policy/policy.h"
#include "work/work.h"

#include <string.h>

enum {
    RELAXED_LIMITS = 0x10016,        /* ze_relaxed_allocation_limits_ext_desc_t, */
    RELAXED_LIMITS_EXP = 0x00020001, /* and before spec 1.17 */
    HOST_FLAGS = 0xf, /* those that the specification names: where it is, and how it is cached */
    EXACT_PART = 1024,
    /* Blocks above 64 GiB are not cached. */
    LARGEST_LOG2 = 36
};

static bool may_be_proven(void) {
    return zr_config.reuse == ZR_REUSE_PROVEN && zr_work_is_sure();
}

bool zr_policy_reuses(const struct zr_op *op) {
    if (!zr_config.cache || zr_op_is_pooled(op))
        return false;
    return zr_policy_vouches(op) || may_be_proven();
}

bool zr_policy_believes(const struct zr_op *op) {
    return zr_policy_vouches(op) && !may_be_proven();
}

/* --- keys ------------------------------------------------------------------------------------- */

static bool relaxed_only(const void *next, uint32_t *flags) {
    const ze_relaxed_allocation_limits_exp_desc_t *relaxed = next;

    /* Intel's driver refuses one that relaxes nothing. */
    if (((uint32_t)relaxed->stype != RELAXED_LIMITS &&
         (uint32_t)relaxed->stype != RELAXED_LIMITS_EXP) ||
        relaxed->pNext || !relaxed->flags)
        return false;
    *flags = relaxed->flags | ((uint32_t)relaxed->stype == RELAXED_LIMITS ? 1u << 31 : 0);
    return true;
}

static bool device_key(const struct zr_alloc *a, struct zr_key *key) {
    const ze_device_mem_alloc_desc_t *desc = a->desc;

    if (!a->device || desc->stype != ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC ||
        (unlikely(desc->pNext) && !relaxed_only(desc->pNext, &key->extra)))
        return false;
    key->device = a->device;
    key->flags = desc->flags;
    key->ordinal = desc->ordinal;
    key->residents = a->residents;
    if (a->residents == ZR_RESIDENTS_EXPECTED)
        key->residents = zr_residency_expected(a->context, key->account);
    return true;
}

/* With a flag of its own, Intel's driver takes memory of the caller, which *out names. */
static bool host_key(const struct zr_alloc *a, struct zr_key *key) {
    const ze_host_mem_alloc_desc_t *desc = a->desc;

    if (desc->flags & ~HOST_FLAGS || desc->stype != ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC ||
        (desc->pNext && !relaxed_only(desc->pNext, &key->extra)))
        return false;
    key->flags = desc->flags;
    return true;
}

/*
 * Returns false if the block must not be reused. An alignment that is no power of two is left to
 * the driver to refuse; above 1 GiB there are few aligned addresses, and Intel's driver ignores the
 * alignment once they are taken.
 */
static bool make_key(const struct zr_alloc *a, unsigned account, struct zr_key *key) {
    *key = (struct zr_key){.context = a->context,
                           .account = account == ZR_UNKNOWN_DEVICE ? 0 : (uint16_t)account,
                           .kind = (uint8_t)a->kind};
    if (!a->reusable || !a->context || !a->desc || !a->out || !a->size || account >= ZR_ACCOUNTS ||
        a->alignment & (a->alignment - 1) || a->alignment > (size_t)1 << 30)
        return false;
    if (unlikely((a->size - 1) >> LARGEST_LOG2)) {
        zr_count(ZR_F_PASSED_SIZE, 1);
        return false;
    }
    key->align = a->alignment ? (uint8_t)(__builtin_ctzl(a->alignment) + 1) : 0;
    return a->kind == ZR_KIND_HOST ? host_key(a, key) : device_key(a, key);
}

static bool has_plain_desc(const struct zr_alloc *a) {
    struct zr_key key = {0};

    return a->desc && (a->kind == ZR_KIND_HOST ? host_key(a, &key) : device_key(a, &key));
}

/* At least 1; capped at 24 days. */
uint32_t zr_cache_idle(void) {
    uint64_t ms = zr_config.cache_idle / 1000000;

    if (ms == 0)
        return 1;
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

static uint64_t limited; /* atomic: accounts whose cache_limit the cache was told */
_Static_assert(ZR_ACCOUNTS <= 64, "a bit for each");

static ZR_COLD uint64_t set_cache_limit(unsigned account) {
    const struct zr_settings *now;
    uint64_t share;

    do { /* if the setting changes meanwhile, the new value must win, whichever thread is last */
        now = &zr_config;
        share = zr_cache_share(account);
        zr_cache_setup(zr_policy_release, zr_cache_idle());
        zr_cache_set_limit(account, share);
        __atomic_fetch_or(&limited, UINT64_C(1) << account, __ATOMIC_SEQ_CST);
    } while (now != &zr_config);
    return share;
}

bool zr_policy_caches(unsigned account, size_t held) {
    if (unlikely(!(__atomic_load_n(&limited, __ATOMIC_RELAXED) >> account & 1)))
        set_cache_limit(account);
    return zr_cache_takes(account, held);
}

void zr_cache_changed(void) {
    uint32_t hook;

    for (unsigned account = 0; account < ZR_ACCOUNTS; account++)
        if (__atomic_load_n(&limited, __ATOMIC_SEQ_CST) >> account & 1 ||
            zr_device_handle(account, &hook))
            zr_pools_set_limits(account, set_cache_limit(account), zr_cache_idle());
    if (!zr_config.cache)
        zr_policy_trim(ZR_UNKNOWN_DEVICE);
}

/*
 * How much to reserve for a request. A program that sizes itself by the reported limit takes all of
 * it in a few pieces: the largest must not cost more than was requested, so they are not rounded
 * up. Nor is what could never be cached.
 */
static size_t reserve_for(const struct zr_key *key, size_t size) {
    size_t held = zr_cache_round(size);

    bool takes = zr_policy_caches(key->account, held);

    if (zr_limit_is_set() && key->kind == ZR_KIND_DEVICE &&
        size > zr_limit_of(key->account) / EXACT_PART)
        return size;
    return takes ? held : size;
}

/* --- from the driver -------------------------------------------------------------------------- */

/* zeMemAllocDevice of a process that may be paused. */
static ZR_COLD ze_result_t call_pausable(struct zr_op *op, const struct zr_alloc *a, size_t size) {
    bool served, begun = zr_down_begin(op, ZR_E_zeMemAllocDevice, size);
    ze_result_t result = (ze_result_t)op->down.code;

    if (begun)
        result =
            zr_pause_alloc(op, a->context, a->desc, size, a->alignment, a->device, a->out, &served);
    if (!begun || served)
        return zr_down_end(op, ZR_E_zeMemAllocDevice, result);
    ZR_WITHIN(ZR_GATE_BOOKS);
    return zr_down_end(
        op, ZR_E_zeMemAllocDevice,
        ZR_BELOW(op, zeMemAllocDevice)(a->context, a->desc, size, a->alignment, a->device, a->out));
}

/* How much is reserved in place of this many bytes: whole pages, if the block can be given up. */
static inline size_t in_pages(const struct zr_alloc *a, size_t size) {
    if (likely(!zr_pausing()) || a->entry != ZR_E_zeMemAllocDevice || !a->context)
        return size;
    return zr_pause_held(a->desc, size, a->alignment, a->device);
}

/* The driver's part of each entry point that allocates. */
static inline ze_result_t call_driver(struct zr_op *op, const struct zr_alloc *a, size_t size) {
    switch (a->entry) {
    case ZR_E_zeMemAllocDevice:
        if (zr_pausing())
            return call_pausable(op, a, size);
        return ZR_DOWN(op, zeMemAllocDevice, size,
                       (a->context, a->desc, size, a->alignment, a->device, a->out));
    case ZR_E_zeMemAllocHost:
        return ZR_DOWN(op, zeMemAllocHost, size, (a->context, a->desc, size, a->alignment, a->out));
    case ZR_E_zeMemAllocShared:
        return ZR_DOWN(op, zeMemAllocShared, size,
                       (a->context, a->desc, a->host_desc, size, a->alignment, a->device, a->out));
    default:
        return ZR_DOWN(op, zePhysicalMemCreate, size,
                       (a->context, a->device, (void *)(uintptr_t)a->desc, (void *)a->out));
    }
}

/* Whether this much memory of a device counts against its limit. */
static bool is_limited(enum zr_kind kind) {
    return kind == ZR_KIND_DEVICE || kind == ZR_KIND_PHYSICAL;
}

static inline ze_result_t ask_within_limit(struct zr_op *op, const struct zr_alloc *a,
                                           unsigned number, size_t size) {
    ze_result_t result;

    op->refused_by = ZR_REFUSED_BY_DRIVER;
    if (zr_limit_is_set() && is_limited(a->kind)) {
        /* What the driver would refuse anyway is left to it. */
        bool hopeless =
            !a->context || !a->desc || !size || a->alignment & (a->alignment - 1) || size >> 44;

        if (!hopeless && !zr_limit_take(op, number, size))
            return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    op->refused_by = ZR_REFUSED_BY_DRIVER;
    if (a->kind != ZR_KIND_PHYSICAL)
        zr_count(ZR_F_DRIVER_ALLOC_CALLS, 1);
    result = call_driver(op, a, size);
    if (unlikely(result != ZE_RESULT_SUCCESS)) {
        op->refused_by = ZR_REFUSED_BY_DRIVER;
        zr_charge_undo(&op->charge);
    }
    return result;
}

/* Asks for *held bytes, and if there is no room for that, for the exact size; then *held is the
 * size. */
static inline ze_result_t ask_for_held(struct zr_op *op, const struct zr_alloc *a, unsigned number,
                                       size_t *held) {
    const size_t exact = in_pages(a, a->size);

    for (size_t size = *held;; size = exact) {
        ze_result_t result = ask_within_limit(op, a, number, size);

        if (likely(result == ZE_RESULT_SUCCESS))
            *held = size;
        if (likely(result == ZE_RESULT_SUCCESS || size == exact) ||
            (result != ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY &&
             result != ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY &&
             result != ZE_RESULT_ERROR_UNSUPPORTED_SIZE))
            return result;
    }
}

static ze_result_t from_driver(struct zr_op *op, const struct zr_alloc *a, unsigned number,
                               size_t *held) {
    struct zr_room room = zr_room_begin(op, a->kind == ZR_KIND_HOST ? ZR_UNKNOWN_DEVICE : number);
    ze_result_t result;

    do {
        result = ask_for_held(op, a, number, held);
    } while (zr_room_again(&room, result));
    if (likely(result == ZE_RESULT_SUCCESS))
        return result;
    return zr_refused(op, a->entry, number, a->size, result);
}

/* --- all together ----------------------------------------------------------------------------- */

/* The counter for a request with an extension that is no part of a key. */
static ZR_COLD enum zr_field extension_of(const void *desc) {
    if (zr_chained(desc, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD))
        return ZR_F_PASSED_IMPORT;
    if (zr_chained(desc, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC))
        return ZR_F_PASSED_EXPORT;
    return ZR_F_PASSED_PNEXT;
}

static ZR_COLD ze_result_t import(struct zr_op *op, const struct zr_alloc *a,
                                  struct zr_block **block) {
    /* The driver tells the size of an import, and only afterwards. */
    struct zr_room room = zr_room_begin(op, zr_device_number(op, a->device));
    ze_result_t result;

    do {
        result = ZR_DOWN(op, zeMemAllocDevice, a->size,
                         (a->context, a->desc, a->size, a->alignment, a->device, a->out));
    } while (zr_room_again(&room, result));
    zr_count(ZR_F_DRIVER_ALLOC_CALLS, 1);
    if (result != ZE_RESULT_SUCCESS)
        return result;
    result = zr_policy_imported(op, a->context, a->device, a->entry, NULL, a->out);
    *block = result == ZE_RESULT_SUCCESS ? zr_map_base(*a->out) : NULL;
    return result;
}

/* No memory for a descriptor: we could not answer queries about a larger block, so it must have the
 * exact size. */
static ZR_COLD ze_result_t unregistered(struct zr_op *op, const struct zr_alloc *a, unsigned number,
                                        size_t held) {
    ze_result_t result = ZE_RESULT_SUCCESS;

    zr_charge_undo(&op->charge);
    if (held != a->size) {
        ZR_BELOW(op, zeMemFree)(a->context, *a->out);
        held = a->size;
        result = from_driver(op, a, number, &held);
        zr_charge_undo(&op->charge); /* nothing if it was refused */
    }
    return result;
}

/*
 * Allocations that the driver may have answered and that the map does not show yet. Threads are
 * spread over counters by their stacks.
 */
enum { FLIGHTS = 16, FLIGHT_MS = 100 };
static struct { _Alignas(128) uint32_t now; /* atomic */ } flights[FLIGHTS];

static uint32_t *begin_flight(const struct zr_op *op) {
    uint32_t *now = &flights[((uintptr_t)op >> 16) * UINT64_C(0x9e3779b97f4a7c15) >> 60].now;

    __atomic_fetch_add(now, 1, __ATOMIC_SEQ_CST);
    return now;
}

/* A cleanup handler: something may be thrown through the driver's call. */
static void end_flight(uint32_t *const *now) {
    __atomic_fetch_sub(*now, 1, __ATOMIC_SEQ_CST);
}

/* Those that begin from now on are of no interest, so each counter must be seen at zero once. */
ZR_COLD bool zr_policy_in_flight(void) {
    static const struct timespec little = {0, 50000};
    uint32_t start = zr_now_ms();

    for (unsigned i = 0; i < FLIGHTS; i++)
        while (__atomic_load_n(&flights[i].now, __ATOMIC_SEQ_CST)) {
            if (zr_now_ms() - start >= FLIGHT_MS)
                return true;
            clock_nanosleep(CLOCK_MONOTONIC, 0, &little, NULL);
        }
    return false;
}

void zr_alloc_fork_child(void) {
    memset(flights, 0, sizeof flights);
}

/* A block of the cache, handed out again; NULL if it has none. */
static inline struct zr_block *from_cache(struct zr_op *op, const struct zr_alloc *a,
                                          const struct zr_key *key, size_t held) {
    struct zr_block *b;

    if (unlikely(zr_pending_any()))
        zr_pending_settle();
    b = zr_cache_get(key, held, a->size);
    if (unlikely(!b))
        return NULL;
    zr_count(ZR_F_CACHE_HITS, 1);
    if (unlikely(a->flags))
        zr_block_mark(b, a->flags);
    zr_registry_reused(op, b);
    *a->out = (void *)b->base;
    return b;
}

/* A new block, or an object. */
static inline ze_result_t from_below(struct zr_op *op, const struct zr_alloc *a, unsigned number,
                                     struct zr_key *key, size_t held, uint32_t flags,
                                     struct zr_block **block) {
    uint32_t *flight __attribute__((cleanup(end_flight), unused)) = begin_flight(op);
    ze_result_t result = from_driver(op, a, number, &held);

    if (unlikely(result != ZE_RESULT_SUCCESS))
        return result;
    if (unlikely(a->is_object)) {
        if (!zr_object_add(op, a->kind, number, a->context, *a->out, held))
            zr_charge_undo(&op->charge);
        return result;
    }
    key->residents = 0; /* a new block is not resident anywhere yet */
    *block = zr_registry_add(op, key, *a->out, a->size, held, flags);
    return likely(*block) ? result : unregistered(op, a, number, held);
}

/* UMF's provider translates codes: its pool is told what came of the call. */
static void report_above(struct zr_op *op, ze_result_t result, struct zr_block *block) {
    op->above->driver_code = (uint32_t)result;
    op->above->refused_by = op->refused_by;
    op->above->began = op->began;
    op->above->block = block;
}

static inline ze_result_t allocate_any(struct zr_op *op, const struct zr_alloc *a, unsigned number,
                                       struct zr_block **block) {
    uint32_t flags = a->flags | (zr_op_is_pooled(op) ? ZR_BLOCK_POOLED : 0);
    size_t held = a->size;
    ze_result_t result;
    struct zr_key key;
    bool reusable = make_key(a, number, &key);

    if (reusable) {
        held = in_pages(a, reserve_for(&key, a->size));
        *block = from_cache(op, a, &key, held);
        if (likely(*block))
            return ZE_RESULT_SUCCESS;
        flags |= ZR_BLOCK_CACHEABLE;
    } else if (unlikely(a->kind == ZR_KIND_DEVICE && a->desc &&
                        ((const ze_base_desc_t *)a->desc)->pNext)) {
        enum zr_field extension = extension_of(a->desc);

        if (a->reusable)
            zr_count(extension, 1);
        if (extension == ZR_F_PASSED_IMPORT)
            return import(op, a, block);
        if (extension == ZR_F_PASSED_EXPORT)
            flags |= ZR_BLOCK_EXPORTED;
    }
    if (!reusable)
        held = in_pages(a, held);
    if (zr_checking() && !a->is_object) {
        held = zr_check_held(a->kind, has_plain_desc(a), a->size);
        flags |= ZR_BLOCK_UNBORN;
    }
    result = from_below(op, a, number, &key, held, flags, block);
    if (likely(result == ZE_RESULT_SUCCESS) &&
        (reusable || (a->flags & ZR_BLOCK_SYCL && zr_config.cache)))
        zr_count(ZR_F_CACHE_MISSES, 1);
    if (zr_checking() && *block) {
        zr_check_born(op, *block, a->device, has_plain_desc(a), zr_policy_release);
        __atomic_fetch_and(&(*block)->flags, ~(uint32_t)ZR_BLOCK_UNBORN, __ATOMIC_RELEASE);
    }
    return result;
}

ze_result_t zr_policy_alloc(struct zr_op *op, const struct zr_alloc *a, struct zr_block **block) {
    unsigned number =
        a->kind == ZR_KIND_HOST ? (unsigned)ZR_HOST_ACCOUNT : zr_device_number(op, a->device);
    ze_result_t result;

    *block = NULL;
    op->refused_by = ZR_REFUSED_BY_DRIVER;
    if (unlikely(zr_hold_any()))
        zr_hold_look(false);
    if (unlikely(zr_recording()) && zr_record_begin(op, number) && a->kind != ZR_KIND_HOST)
        zr_record_card(number, zr_device_memory(op, a->device));
    if (is_limited(a->kind) && zr_floor_refuses(op, a->entry, number, a->size, &result))
        return result;
    result = allocate_any(op, a, number, block);
    if (likely(result == ZE_RESULT_SUCCESS))
        zr_count_caller(op->library, ZR_CALLER_BYTES, a->size);
    if (unlikely(zr_op_is_pooled(op)))
        report_above(op, result, *block);
    return result;
}

/* --- memory of other processes ---------------------------------------------------------------- */

static bool is_on_host(struct zr_op *op, ze_context_handle_t context, const void *ptr) {
    ze_memory_allocation_properties_t p = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t device = NULL;

    return ZR_BELOW(op, zeMemGetAllocProperties)(context, ptr, &p, &device) == ZE_RESULT_SUCCESS &&
           p.type == ZE_MEMORY_TYPE_HOST;
}

/* Charges what was imported already. Returns false if that would exceed the limit, whatever is
 * given back. */
static bool charge_with_room(struct zr_op *op, unsigned number, size_t size) {
    struct zr_room room = zr_room_begin(op, number);
    bool charged;

    do {
        charged = zr_limit_take(op, number, size);
    } while (
        zr_room_again(&room, charged ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY));
    if (charged)
        op->refused_by = ZR_REFUSED_BY_DRIVER;
    return charged;
}

static ZR_COLD void note_import(const void *ptr, const ze_ipc_mem_handle_t *handle) {
    int import = zr_share_opened(ptr, handle);

    if (zr_checking())
        zr_check_imported(import);
    else if (import < 0)
        zr_warn("more than %d IPC handles are open: the processes that exported the others cannot "
                "hold their blocks (ipc:hold)",
                ZR_IMPORTS);
}

/*
 * Only the driver knows the size, whatever an allocation names, and the kind: host memory that
 * another process exported takes nothing from the device that it is opened for.
 */
ze_result_t zr_policy_imported(struct zr_op *op, ze_context_handle_t context,
                               ze_device_handle_t device, enum zr_entry entry,
                               const ze_ipc_mem_handle_t *handle, void **out) {
    enum zr_kind kind = is_on_host(op, context, *out) ? ZR_KIND_HOST : ZR_KIND_IMPORTED;
    unsigned number = zr_device_number(op, device);
    void *start = NULL;
    size_t size = 0;

    if (ZR_BELOW(op, zeMemGetAddressRange)(context, *out, &start, &size) != ZE_RESULT_SUCCESS)
        size = 0;
    if (kind == ZR_KIND_IMPORTED && zr_limit_counts_imports() &&
        !charge_with_room(op, number, size)) {
        if (entry == ZR_E_zeMemAllocDevice)
            ZR_BELOW(op, zeMemFree)(context, *out);
        else
            ZR_BELOW(op, zeMemCloseIpcHandle)(context, *out);
        *out = NULL;
        return zr_refused(op, entry, number, size, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    }
    if (entry != ZR_E_zeMemAllocDevice)
        zr_count(ZR_F_IPC_IMPORTS, 1);
    if (zr_sharing() && handle)
        note_import(*out, handle);
    if (!zr_registry_note(op, kind, number, context, *out, size, 0))
        zr_charge_undo(&op->charge);
    return ZE_RESULT_SUCCESS;
}

void zr_policy_kept_open(const void *ptr, bool kept) {
    const struct zr_block *b = zr_sharing() ? zr_map_find(ptr) : NULL;

    if (b)
        zr_share_kept_open((const void *)b->base, kept);
}

void zr_policy_closed(const void *ptr) {
    zr_count(ZR_F_IPC_CLOSES, 1);
    if (!zr_sharing())
        return;
    if (zr_checking())
        zr_imports_look();
    zr_share_closed(ptr);
}
