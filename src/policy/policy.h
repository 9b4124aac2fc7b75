/*
 * What is decided about a call, and the books that decisions rest on. Grouped by file.
 */
#ifndef ZEROUTE_POLICY_H
#define ZEROUTE_POLICY_H

#include "cache/map.h"
#include "driver/hook.h"

#pragma GCC visibility push(hidden)

/* --- policy.c: who serves an allocation, where that is a question (ZR_DECIDING) ------------------------ */
ze_result_t zr_policy_alloc_device(struct zr_call *call, ze_context_handle_t context,
                                   const ze_device_mem_alloc_desc_t *desc, size_t size,
                                   size_t alignment, ze_device_handle_t device, void **out);
/* The same past what we keep. */
ze_result_t zr_policy_alloc_device_from_driver(struct zr_call *call, ze_context_handle_t context,
                                               const ze_device_mem_alloc_desc_t *desc, size_t size,
                                               size_t alignment, ze_device_handle_t device, void **out);
ze_result_t zr_policy_alloc_host(struct zr_call *call, ze_context_handle_t context,
                                 const ze_host_mem_alloc_desc_t *desc, size_t size,
                                 size_t alignment, void **out);
ze_result_t zr_policy_alloc_shared(struct zr_call *call, ze_context_handle_t context,
                                   const ze_device_mem_alloc_desc_t *device_desc,
                                   const ze_host_mem_alloc_desc_t *host_desc, size_t size,
                                   size_t alignment, ze_device_handle_t device, void **out);
ze_result_t zr_policy_free(struct zr_call *call, ze_context_handle_t context, void *ptr);
/* The same, and the block goes back to the driver. */
ze_result_t zr_policy_free_to_driver(struct zr_call *call, ze_context_handle_t context, void *ptr);
ze_result_t zr_policy_free_ext(struct zr_call *call, ze_context_handle_t context,
                               const ze_memory_free_ext_desc_t *desc, void *ptr);
/* The counter of a free with this descriptor. */
enum zr_field zr_free_policy_field(const ze_memory_free_ext_desc_t *desc);
/*
 * Gives back all that is kept for a device, or for all (ZR_UNKNOWN_DEVICE), wherever it is kept: also before the
 * driver is asked how much memory is free, because what we keep must not look used.
 */
bool zr_policy_trim(struct zr_call *call, unsigned number);
/*
 * After a driver has refused with this code for the so-manieth time (from 0): true, and counted, if it is full and
 * something has gone back to it since zr_keep_returned() gave this number, so that it may be asked again.
 */
bool zr_policy_try_again(struct zr_call *call, unsigned number, ze_result_t result, uint32_t returned, int tries);
/* ZR_DOWN, after `each`, and once more when the driver has no memory left and something is kept that can go. */
#define ZR_DOWN_AGAIN(each, call, name, number, size, arguments)                                             \
    __extension__({                                                                                          \
        ze_result_t got_;                                                                                    \
        uint32_t returned_;                                                                                  \
        int tries_ = 0;                                                                                      \
        do {                                                                                                 \
            returned_ = zr_keep_returned();                                                                  \
            each;                                                                                            \
            got_ = ZR_DOWN((call), name, (size), arguments);                                                 \
        } while (unlikely(got_ != ZE_RESULT_SUCCESS) &&                                                      \
                 zr_policy_try_again((call), (number), got_, returned_, tries_++));                          \
        got_;                                                                                                \
    })
/*
 * After the driver was asked how much memory there is, or is free: with a limit set, both are told as the limit
 * leaves them. Either may be NULL. ZR_UNKNOWN_DEVICE: as it leaves them on the device that has least.
 */
void zr_policy_tell_limit(struct zr_call *call, unsigned number, uint64_t *total, uint64_t *free);
/* The same for one of several parts of a device that are told one after the other: *left begins at UINT64_MAX. */
void zr_policy_tell_part(struct zr_call *call, unsigned number, uint64_t *left, uint64_t *total);
/* The same for a memory module of Sysman. */
void zr_policy_tell_module(struct zr_call *call, zes_mem_handle_t memory, uint64_t *total, uint64_t *free);
/*
 * Memory of another process was opened by this entry point; the driver is asked how much. Over the limit it is
 * closed again, *out is NULL and the answer is OUT_OF_DEVICE_MEMORY.
 */
ze_result_t zr_policy_imported(struct zr_call *call, ze_context_handle_t context,
                               ze_device_handle_t device, enum zr_entry entry, void **out);
/* Before a context goes: what we keep for it goes back to the driver. */
void zr_policy_before_context_destroy(struct zr_call *call, ze_context_handle_t context);

/* --- keep.c: blocks that are kept and reused at the Level Zero entry points ------------------------------- */
/* False: not one for us, or we are in trouble; the caller goes to the driver. */
bool zr_keep_alloc_device(struct zr_call *call, ze_context_handle_t context,
                          const ze_device_mem_alloc_desc_t *desc, size_t size, size_t alignment,
                          ze_device_handle_t device, void **out, ze_result_t *result);
bool zr_keep_alloc_host(struct zr_call *call, ze_context_handle_t context,
                        const ze_host_mem_alloc_desc_t *desc, size_t size, size_t alignment, void **out,
                        ze_result_t *result);
/* A block for somebody who knows beforehand where it will be resident; the owner counts among these. */
struct zr_keep_as {
    ze_context_handle_t context;
    ze_device_handle_t device;
    uint16_t number;
    uint32_t ordinal, flags;
    uint64_t residents;
};
/* *hit: the block is resident there already. UNSUPPORTED_FEATURE: in trouble, go another way. */
ze_result_t zr_keep_alloc_as(struct zr_call *call, const struct zr_keep_as *as, size_t size,
                             size_t alignment, void **out, bool *hit);
/* False: not a block of ours and the driver knows it. desc NULL: zeMemFree. */
bool zr_keep_free(struct zr_call *call, ze_context_handle_t context,
                  const ze_memory_free_ext_desc_t *desc, void *ptr, ze_result_t *result);
/* By zeMemFree, and never kept: the driver may wait for commands in it. */
bool zr_keep_not(struct zr_call *call, ze_context_handle_t context, void *ptr, ze_result_t *result);
/* The pointer to ask the driver about: another one where this one is free as far as the process can know. */
const void *zr_keep_asked_about(struct zr_call *call, ze_context_handle_t context, const void *ptr);
/*
 * The pointer to close where none of that base is in the books. Intel's driver frees whatever holds it, by zeMemFree's
 * own way: another pointer where that is a block of ours, or one that is kept.
 */
const void *zr_keep_to_close(struct zr_call *call, ze_context_handle_t context, const void *ptr);
/* The range of a block of ours, as it was asked for; false: ask the driver. */
bool zr_keep_address_range(ze_context_handle_t context, const void *ptr, void **base, size_t *size);
/* Residency on this device was asked for; true: the block has it. */
bool zr_keep_is_resident(struct zr_block *b, unsigned number);
/* The block's residency has changed. */
void zr_keep_moved(struct zr_block *b);
/* Gives back what is kept for a device, or for all (ZR_UNKNOWN_DEVICE). Returns the bytes. */
uint64_t zr_keep_trim(struct zr_call *call, unsigned number);
/* Another number than before: something that was kept, here or in pools, has gone back meanwhile. */
uint32_t zr_keep_returned(void);
void zr_keep_drop_context(struct zr_call *call, ze_context_handle_t context);
/* cache_limit of a device: 2 % of its memory or 256 MiB, the larger, unless the user says otherwise. */
uint64_t zr_cache_share(struct zr_call *call, ze_device_handle_t device);
/* cache_idle in milliseconds; 24 days and more are the same. */
uint32_t zr_cache_idle(void);
void zr_fork_child_keep(void);

/* --- limit.c: what the process holds of each device, and the setting `limit` ---------------------------------- */
uint64_t zr_device_memory(struct zr_call *call, ze_device_handle_t device);
uint64_t zr_amount_of(const struct zr_amount *amount, uint64_t total);
/* UINT64_MAX: none. */
uint64_t zr_limit_of(const struct zr_call *call, unsigned number);
uint64_t zr_limit_used(unsigned number);
/* Before the driver is asked for memory; false: it would be more than the limit. Free of cost without one. */
bool zr_limit_take(const struct zr_call *call, unsigned number, uint64_t bytes);
void zr_limit_drop(unsigned number, uint64_t bytes);
/* As zr_limit_take, after what is kept was given back if need be. */
bool zr_policy_within_limit(struct zr_call *call, unsigned number, uint64_t bytes);
/* OUT_OF_DEVICE_MEMORY on behalf of the limit, counted. */
ze_result_t zr_policy_refused(enum zr_entry entry);
void zr_fork_child_limit(void);

/* --- registry.c: every block that was seen ------------------------------------------------------------ */
enum {
    /* Owned by somebody who allocated it past us: known, not booked. */
    ZR_BLOCK_FOREIGN = 1 << 8,
    /* Its base is a handle, not memory. */
    ZR_BLOCK_HANDLE = 1 << 9,
    /* Behind a pool of ours, which books what it hands out itself. */
    ZR_BLOCK_POOLED = 1 << 10,
    ZR_UNKNOWN_DEVICE = 0xffff
};
/* Handed out at a SYCL entry point, and taken back there. */
#define ZR_BLOCK_SYCL ((uint32_t)1 << 31)

/*
 * local.c: before a block is taken by whoever comes: no other thread parks it with a plain store (lean.h) after this.
 * Some microseconds, and only once in a process, where another thread has claimed it.
 */
extern uint32_t zr_claims_shared;
void zr_claims_leave(const void *base);

/* For a descriptor that does not fit into the map as it is: false, and recycled, when it cannot be helped. */
bool zr_registry_insert_slow(struct zr_block *b);
/* The books of a block in every case: not booked, in a pool, reserved on its own, within a limit, mapped into. */
void zr_registry_book_slow(const struct zr_block *b);
void zr_registry_unbook_slow(const struct zr_block *b);

/* Puts a block that the driver has just given out into the map, not yet into the books. NULL: it cannot be helped. */
static inline struct zr_block *zr_registry_put(enum zr_kind kind, unsigned device, ze_context_handle_t context,
                                               const void *base, size_t size, uint32_t flags)
{
    struct zr_block *b = zr_block_new();

    if (unlikely(!b))
        return NULL;
    if (unlikely(device == ZR_UNKNOWN_DEVICE))
        device = 0;
    /* A handle is no range of memory: it is found by itself alone. */
    zr_block_place(b, (uintptr_t)base, flags & ZR_BLOCK_HANDLE ? 1 : size, size);
    __atomic_store_n(&b->context, context, __ATOMIC_RELAXED);
    b->peers = 0;
    b->flags = flags;
    b->device = (uint16_t)device;
    b->kind = (uint8_t)kind;
    if (unlikely(!zr_map_insert(b)) && !zr_registry_insert_slow(b))
        return NULL;
    return b;
}

/* Books a block that the driver has just given out. A few ns. */
static inline void zr_registry_add(enum zr_kind kind, unsigned device, ze_context_handle_t context,
                                   const void *base, size_t size, uint32_t flags)
{
    struct zr_block *b = zr_registry_put(kind, device, context, base, size, flags);

    if (unlikely(!b))
        return;
    if (unlikely(zr_is(ZR_DECIDING) || flags & ZR_BLOCK_FOREIGN))
        zr_registry_book_slow(b);
    else
        zr_book(kind, b->device, size);
}

/*
 * Takes a block out of the books before its free goes down: afterwards another thread may be given the same
 * address at once. Then either _gone (the driver took it) or _back (it refused). Both accept NULL.
 */
static inline struct zr_block *zr_registry_take(const void *base)
{
    if (likely(!__atomic_load_n(&zr_claims_shared, __ATOMIC_RELAXED)))
        zr_claims_leave(base);
    return zr_map_take(base);
}

static inline void zr_registry_gone(struct zr_block *b)
{
    if (unlikely(!b))
        return;
    if (unlikely(zr_is(ZR_DECIDING) || b->flags & ZR_BLOCK_FOREIGN || b->kind == ZR_KIND_VIRTUAL))
        zr_registry_unbook_slow(b);
    else
        zr_unbook(b->kind, b->device, b->held);
    zr_block_recycle(b);
}
void zr_registry_back(struct zr_block *b);
/* The IPC handle of the block that holds ptr was taken. */
void zr_registry_exported(const void *ptr);
/* Something hangs on the free of the block that holds ptr: it must reach the driver. */
void zr_registry_not_kept(const void *ptr);
/* Physical memory, of a device or of the host, known by its handle. */
void zr_registry_physical(bool on_device, unsigned device, ze_context_handle_t context,
                          const void *handle, size_t size);
/* Physical memory was mapped into a reserved range, or unmapped. */
void zr_registry_mapped(const void *ptr, size_t size);
void zr_registry_unmapped(const void *ptr, size_t size);
/* True when an extension of this type is chained to a descriptor. */
bool zr_chain_has(const void *desc, uint32_t stype);

/* --- device.c: cards by number ------------------------------------------------------------------------ */
enum { ZR_DEVICE_HANDLES = 256 }; /* handles beyond are unknown: far above what a machine holds */
struct zr_device {
    ze_device_handle_t handle;
    uint32_t number;
    bool is_part; /* a sub-device: its number is that of its card */
};
extern struct zr_device zr_device[ZR_DEVICE_HANDLES];
/* Of a device that has a number. One load where no sub-device was ever seen. */
extern bool zr_device_parts;
bool zr_device_is_part_slow(ze_device_handle_t device);

static inline bool zr_device_is_part(ze_device_handle_t device)
{
    return unlikely(__atomic_load_n(&zr_device_parts, __ATOMIC_RELAXED)) && zr_device_is_part_slow(device);
}
unsigned zr_device_number_slow(struct zr_call *call, ze_device_handle_t device);

static inline unsigned zr_device_place(ze_device_handle_t device)
{
    return (unsigned)(((uintptr_t)device >> 4 ^ (uintptr_t)device >> 12) % ZR_DEVICE_HANDLES);
}

/* The number of a device, sub-devices that of their card; ZR_UNKNOWN_DEVICE for none. One load when known. */
static inline unsigned zr_device_number(struct zr_call *call, ze_device_handle_t device)
{
    struct zr_device *at = &zr_device[zr_device_place(device)];

    if (likely(device && __atomic_load_n(&at->handle, __ATOMIC_ACQUIRE) == device))
        return __atomic_load_n(&at->number, __ATOMIC_RELAXED);
    return zr_device_number_slow(call, device);
}
/* A list as zeDeviceGet gave it, in the driver's order; or the parts of `root`. */
void zr_device_seen(struct zr_call *call, ze_device_handle_t root, const ze_device_handle_t *devices,
                    uint32_t count);
/* A handle of the card itself, and the hook at which it is good; NULL for none. */
ze_device_handle_t zr_device_handle(unsigned number, uint32_t *hook);
/* Memory modules of a device of Sysman, as they were enumerated. */
void zr_device_modules(struct zr_call *call, zes_device_handle_t device, const zes_mem_handle_t *modules,
                       uint32_t count);
/*
 * Whose module it is, and among how many; false: it was never enumerated. ZR_UNKNOWN_DEVICE: the process has
 * not met the device in the core API.
 */
bool zr_device_of_module(zes_mem_handle_t memory, unsigned *number, uint32_t *among);
void zr_fork_child_device(void);

/* --- versions.c: the driver and its cards in the fingerprint --------------------------------------------- */
void zr_note_driver(struct zr_call *call, ze_driver_handle_t driver, const ze_device_handle_t *devices,
                    uint32_t count);

/* --- plain.c: the driver serves it and we keep the books --------------------------------------------------- */
/* What a descriptor says about import and export. */
void zr_chain_kind(const void *desc, enum zr_kind *kind, uint32_t *flags);
ze_result_t zr_plain_alloc_device(struct zr_call *call, ze_context_handle_t context,
                                  const ze_device_mem_alloc_desc_t *desc, size_t size, size_t alignment,
                                  ze_device_handle_t device, void **out);
ze_result_t zr_plain_free(struct zr_call *call, ze_context_handle_t context, void *ptr);
ze_result_t zr_plain_free_ext(struct zr_call *call, ze_context_handle_t context,
                              const ze_memory_free_ext_desc_t *desc, void *ptr);

/* --- pool.c: pools of ours behind a SYCL runtime (pool.h) ------------------------------------------------ */
/* As zr_keep_trim, for what these keep. */
uint64_t zr_pools_trim(unsigned number);
/* Another number than before: something that they kept has gone back to its provider meanwhile. */
uint32_t zr_pools_returned(void);
void zr_fork_child_pool(void);

/* --- residency.c ---------------------------------------------------------------------------------------- */
ze_result_t zr_residency_make(struct zr_call *call, ze_context_handle_t context,
                              ze_device_handle_t device, void *ptr, size_t size);
/* A block that was made resident on these devices still is. */
bool zr_residency_is_certain(uint64_t devices);
/* residency:owner, and this caller is not let through. */
bool zr_residency_skips(const struct zr_call *call);
void zr_fork_child_residency(void);
ze_result_t zr_residency_evict(struct zr_call *call, ze_context_handle_t context,
                               ze_device_handle_t device, void *ptr, size_t size);

#pragma GCC visibility pop

#endif
