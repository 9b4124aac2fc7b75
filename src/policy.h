/*
 * What is decided about a call, and the books that decisions rest on. Grouped by file.
 */
#ifndef ZEROUTE_POLICY_H
#define ZEROUTE_POLICY_H

#include "cache/map.h"
#include "door.h"

/* --- policy.c: who serves an allocation --------------------------------------------------------------- */
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
ze_result_t zr_policy_free_ext(struct zr_call *call, ze_context_handle_t context,
                               const ze_memory_free_ext_desc_t *desc, void *ptr);
/* Before the driver is asked how much memory is free: what we keep must not look used. NULL: all devices. */
void zr_policy_before_memory_query(struct zr_call *call, ze_device_handle_t device);
/* After it has answered: with a limit set, total and free are told as the limit leaves them. */
void zr_policy_tell_limit(struct zr_call *call, ze_device_handle_t device, uint64_t *total, uint64_t *free);
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
/* The pointer to ask the driver about: another one where this one is free as far as the process can know. */
const void *zr_keep_asked_about(struct zr_call *call, ze_context_handle_t context, const void *ptr);
/* The range of a block of ours, as it was asked for; false: ask the driver. */
bool zr_keep_address_range(const void *ptr, void **base, size_t *size);
/* Residency on this device was asked for; true: the block has it. */
bool zr_keep_is_resident(struct zr_block *b, unsigned number);
/* The block's residency has changed. */
void zr_keep_moved(struct zr_block *b);
/* Gives back what is kept for a device, or for all (ZR_UNKNOWN_DEVICE). Returns the bytes. */
uint64_t zr_keep_trim(struct zr_call *call, unsigned number);
void zr_keep_drop_context(struct zr_call *call, ze_context_handle_t context);
void zr_fork_child_keep(void);

/* --- limit.c: what the process holds of each device, and the knob `limit` ---------------------------------- */
uint64_t zr_device_memory(struct zr_call *call, ze_device_handle_t device);
uint64_t zr_amount_of(const struct zr_amount *amount, uint64_t total);
/* UINT64_MAX: none. */
uint64_t zr_limit_of(struct zr_call *call, unsigned number, ze_device_handle_t device);
uint64_t zr_limit_used(unsigned number);
/* Before the driver is asked for memory; false: it would be more than the limit. Free of cost without one. */
bool zr_limit_take(struct zr_call *call, unsigned number, ze_device_handle_t device, uint64_t bytes);
void zr_limit_drop(unsigned number, uint64_t bytes);
/* Memory that came without asking: it counts, and is not refused. */
void zr_limit_add(unsigned number, uint64_t bytes);
/* As zr_limit_take, after what is kept was given back if need be. */
bool zr_policy_within_limit(struct zr_call *call, unsigned number, ze_device_handle_t device,
                            uint64_t bytes);
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

/* Books a block that the driver has just given out. A few ns. */
void zr_registry_add(enum zr_kind kind, unsigned device, ze_context_handle_t context, const void *base,
                     size_t size, uint32_t flags);
/*
 * Takes a block out of the books before its free goes down: afterwards another thread may be given the same
 * address at once. Then either _gone (the driver took it) or _back (it refused). Both accept NULL.
 */
struct zr_block *zr_registry_take(const void *base);
void zr_registry_gone(struct zr_block *b);
void zr_registry_back(struct zr_block *b);
/* The IPC handle of the block that holds ptr was taken. */
void zr_registry_exported(const void *ptr);
/* Memory of another process was opened; the driver is asked how much. */
void zr_registry_imported(struct zr_call *call, ze_context_handle_t context, ze_device_handle_t device,
                          const void *base);
/* Physical memory, of a device or of the host, known by its handle. */
void zr_registry_physical(bool on_device, unsigned device, ze_context_handle_t context,
                          const void *handle, size_t size);
/* Physical memory was mapped into a reserved range, or unmapped. */
void zr_registry_mapped(const void *ptr, size_t size);
void zr_registry_unmapped(const void *ptr, size_t size);
/* True when an extension of this type is chained to a descriptor. */
bool zr_chain_has(const void *desc, uint32_t stype);

/* --- device.c: cards by number ------------------------------------------------------------------------ */
/* The number of a device, sub-devices that of their card; ZR_UNKNOWN_DEVICE for none. One load when known. */
unsigned zr_device_number(struct zr_call *call, ze_device_handle_t device);
/* A list as zeDeviceGet gave it, in the driver's order; or the parts of `root`. */
void zr_device_seen(struct zr_call *call, ze_device_handle_t root, const ze_device_handle_t *devices,
                    uint32_t count);
void zr_fork_child_device(void);

/* --- versions.c: the driver and its cards in the fingerprint --------------------------------------------- */
void zr_note_driver(struct zr_call *call, ze_driver_handle_t driver, const ze_device_handle_t *devices,
                    uint32_t count);

/* --- residency.c ---------------------------------------------------------------------------------------- */
ze_result_t zr_residency_make(struct zr_call *call, ze_context_handle_t context,
                              ze_device_handle_t device, void *ptr, size_t size);
ze_result_t zr_residency_evict(struct zr_call *call, ze_context_handle_t context,
                               ze_device_handle_t device, void *ptr, size_t size);

#endif
