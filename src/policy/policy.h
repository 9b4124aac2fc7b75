/* The map of policy/: what is decided about a call, and the books behind it. Grouped by the file
 * that defines it. */
#ifndef ZEROUTE_POLICY_H
#define ZEROUTE_POLICY_H

#include "cache/cache.h"
#include "driver/driver.h"
#include "machine/machine.h"
#include "record/record.h"

struct zr_object;
struct zr_watch;

#pragma GCC visibility push(hidden)

/* --- alloc.c: every allocation, of whatever kind ---------------------------------------------- */
#define ZR_RESIDENTS_EXPECTED UINT64_MAX /* those of the last block of its card */
struct zr_alloc {
    enum zr_kind kind; /* DEVICE, HOST, SHARED or PHYSICAL */
    enum zr_entry entry;
    ze_context_handle_t context;
    ze_device_handle_t device; /* NULL for host memory */
    const void *desc;          /* of the entry point; for shared memory the device's */
    const void *host_desc;     /* shared memory's second one */
    size_t size, alignment;
    uint64_t residents; /* devices on which it will be made resident, or ZR_RESIDENTS_EXPECTED */
    uint32_t flags;     /* of its block */
    bool reusable;      /* may come from the cache, and go there when it is freed */
    bool is_object;     /* known by a handle, no block */
    void **out;         /* where the caller wants the address */
};
/*
 * Allocates from the cache, else from the driver within limit and host_floor, and books it. Leaves
 * in *a->out what the driver would have left there. *block: what was registered; NULL without
 * memory for that, or of an object. A pool of ours above is told, too.
 */
ze_result_t zr_policy_alloc(struct zr_op *op, const struct zr_alloc *a, struct zr_block **block);
/* cache_idle in milliseconds. */
uint32_t zr_cache_idle(void);
/* Whether the cache takes a block of this size. Tells it the limit of that account first. */
bool zr_policy_caches(unsigned account, size_t held);
/*
 * cache, cache_limit or cache_idle was changed: the cache and the pools follow, and give back what
 * is too much.
 */
void zr_cache_changed(void);
/* Whether this caller's blocks may be reused as soon as they are freed. */
bool zr_policy_reuses(const struct zr_op *op);
/*
 * Whether a free by this caller vouches that no command uses the block. Under some adapters a SYCL
 * program's free reaches zeMemFree although commands may still use the block: the driver waits for
 * them before it reuses the memory, and the adapter cannot vouch for the program. A caller that
 * came past our names appears as the loader, and may be an adapter.
 */
static inline bool zr_policy_vouches(const struct zr_op *op) {
    return zr_config.reuse == ZR_REUSE_ALWAYS || zr_library_who(op->library) == ZR_WHO_PROGRAM;
}
/* Whether that is enough to reuse the block at once: not where a proof can be had. */
bool zr_policy_believes(const struct zr_op *op);
/*
 * Memory of another process was opened by this entry point: asks the driver for its size and books
 * it. If it is over the limit, closes it, sets *out to NULL and returns OUT_OF_DEVICE_MEMORY.
 */
ze_result_t zr_policy_imported(struct zr_op *op, ze_context_handle_t context,
                               ze_device_handle_t device, enum zr_entry entry,
                               const ze_ipc_mem_handle_t *handle, void **out);
/* Such memory was closed. */
void zr_policy_closed(const void *ptr);
/* The runtime keeps this import open although the program has closed it; or the program has opened
 * it again. */
void zr_policy_kept_open(const void *ptr, bool kept);

/* --- free.c: every free ----------------------------------------------------------------------- */
struct zr_free {
    ze_context_handle_t context;
    void *ptr;
    const ze_memory_free_ext_desc_t *desc;
    bool ext;      /* by zeMemFreeExt, with this descriptor */
    bool reusable; /* no command uses the block any more, says the caller of zeMemFree */
};
/* Into the cache if it may be reused at once, else to the driver, which may wait for commands that
 * use the block. */
ze_result_t zr_policy_free(struct zr_op *op, const struct zr_free *f);
/*
 * A free at a SYCL entry point that is left to the runtime, which may refuse an unknown pointer
 * without asking the driver: check reports it here. Only where the runtime's pool is off: pieces of
 * a pool are not blocks that we know. If it was reported, begins an operation that says so to the
 * free below it; the caller ends it.
 */
void zr_policy_free_above(struct zr_op *op, const void *ptr);
/* Notes a new context if `result` is success. Returns `result`. */
ze_result_t zr_policy_context_made(ze_result_t result, const ze_context_handle_t *context);
/* Before a context is destroyed: gives back what is cached for it, and blocks that a runtime would
 * free with it. */
void zr_policy_before_context_destroy(struct zr_op *op, ze_context_handle_t context);
/* The driver has destroyed it; or has refused to. */
void zr_policy_context_destroyed(ze_context_handle_t context);
void zr_policy_context_stays(ze_context_handle_t context);
/* Counts a wrong free by its kind, FREE_INVALID_*, and reports the first of a kind. The block is
 * NULL if unknown. */
void zr_policy_wrong_free(enum zr_field kind, const void *caller, const void *ptr,
                          const struct zr_block *b);
void zr_free_fork_child(void);
/* A block was registered here, where another thread may be about to free what it takes for unknown
 * memory. */
extern uint32_t zr_suspects;
void zr_suspect_registered(const void *base);
/*
 * Gives a block to the driver that the program has freed before. Returns whether the driver has
 * taken it back.
 */
enum zr_released zr_policy_release(struct zr_block *b);
/* The same for a block that a pool handed out as the provider gave it: sycl/umf.c. */
extern enum zr_released (*zr_policy_release_direct)(struct zr_block *b);
/*
 * Whether a thread may have been given an address that is not in the map yet: waits up to 100 ms
 * for those.
 */
bool zr_policy_in_flight(void);
void zr_alloc_fork_child(void);

/* --- room.c: out of memory: give back what is cached, try again ------------------------------- */
struct zr_room {
    struct zr_op *op;
    unsigned number;
    uint32_t withdrawals; /* zr_cache_withdrawals() before the attempt */
    int tries;
};
/*
 * The one retry loop, for a device or for all (ZR_UNKNOWN_DEVICE):
 *
 *     struct zr_room room = zr_room_begin(op, number);
 *
 *     do {
 *         result = attempt();
 *     } while (zr_room_again(&room, result));
 *
 * Goes round again, and counts a retry, if memory is short and something has left the cache since
 * the attempt. In nested loops the outer one decides.
 */
static inline struct zr_room zr_room_begin(struct zr_op *op, unsigned number) {
    op->rooms++;
    return (struct zr_room){
        .op = op, .number = number, .withdrawals = zr_config.cache ? zr_cache_withdrawals() : 0};
}
bool zr_room_made(struct zr_room *room, ze_result_t result);
static inline bool zr_room_again(struct zr_room *room, ze_result_t result) {
    if (unlikely(result != ZE_RESULT_SUCCESS) && zr_room_made(room, result))
        return true;
    room->op->rooms--;
    return false;
}
/*
 * Gives back all that cache and pools hold for a device, or for all (ZR_UNKNOWN_DEVICE). Called
 * also before the driver is asked how much memory is free, because the cache must not look used.
 * Returns the bytes.
 */
uint64_t zr_policy_trim(unsigned number);

/* --- limit.c: what the process has of each device, and the setting `limit` -------------------- */
/* The limit in bytes; UINT64_MAX if there is none. */
uint64_t zr_limit_of(unsigned number);
/*
 * Whether imported memory counts. It takes nothing of a card that is not taken already, by who has
 * exported it: so limit:auto alone never refuses it.
 */
bool zr_limit_counts_imports(void);
/* Whether a card is known and as large as that. */
bool zr_limit_fits_card(unsigned number, uint64_t bytes);
/* Whether a setting limits what the process may take of a device. */
static inline bool zr_limit_is_set(void) {
    return unlikely(zr_config.limit.set | zr_config.group_limit.set);
}
/* What leaves least of a card. */
enum zr_bound { ZR_BOUND_CARD, ZR_BOUND_OTHERS, ZR_BOUND_CGROUP, ZR_BOUND_GROUP, ZR_BOUND_LIMIT };
struct zr_share {
    uint64_t bytes; /* what the blocks of this process may be together; UINT64_MAX: not known */
    enum zr_bound bound;
    uint64_t card; /* its memory less the driver's own share; 0: not known */
    struct zr_look look;
};
/* What is left of a card to the blocks of this process, which are so large, looked at now. Takes
 * some 100 us. */
void zr_limit_share(unsigned number, uint64_t blocks, struct zr_share *share);
/* Called before the driver is asked for memory; charges it to the operation. Returns false if that
 * would exceed a limit, and op->refused_by says which. Free without a limit. */
bool zr_limit_take(struct zr_op *op, unsigned number, uint64_t bytes);
/* Undoes a charge by what it recorded; nothing is charged any more. */
void zr_charge_undo(struct zr_charge *charge);
/*
 * Gives the charge of an operation to a block that cannot be found yet. The operation's stays as it
 * is.
 */
void zr_charge_pass(struct zr_charge *charge, struct zr_charge *to);
/* Brings a charge for these bytes in line with the setting; the caller sees to it that its owner
 * stays what it is. */
void zr_limit_follow(struct zr_charge *charge, enum zr_kind kind, unsigned number, uint64_t bytes);
/* A block is in the map now: if the setting was changed since it was charged, its charge follows.
 */
void zr_limit_registered(struct zr_block *b);
/* The setting was changed: the charges of all that the process holds follow. */
void zr_limit_changed(void);
/*
 * After the driver was asked how much memory there is, or is free: with a limit set, reduces both
 * to what the limit leaves. Either may be NULL. ZR_UNKNOWN_DEVICE: what it leaves on the device
 * that has least.
 */
void zr_limit_report(unsigned number, uint64_t *total, uint64_t *free);
/*
 * The same for one of several parts of a device that are reported one after the other: *remaining
 * begins at UINT64_MAX.
 */
void zr_limit_report_part(unsigned number, uint64_t *remaining, uint64_t *total);
/* The same for a memory module of Sysman. */
void zr_limit_report_module(zes_mem_handle_t memory, uint64_t *total, uint64_t *free);
/*
 * free_memory:checked, and the driver has refused to say how much memory is free: the kernel's
 * figure. Returns false if it is not known.
 */
bool zr_limit_answer(unsigned number, uint64_t *total, uint64_t *free);
/* cache_limit of a device: 2 % of its memory or 256 MiB, the larger, unless the user says
 * otherwise. */
uint64_t zr_cache_share(unsigned number);
/* ipc_hold_limit of a device in bytes. */
uint64_t zr_hold_share(unsigned number);
void zr_limit_fork_child(void);

/* --- pending.c: freed blocks that commands may still use (reuse:proven) ----------------------- */
/*
 * Takes over a CACHED block that was freed in this epoch (0: nobody needs to wait): into the cache
 * if it is idle, else it waits here.
 */
void zr_pending_keep(struct zr_block *b, const struct zr_free *f, uint64_t epoch);
/*
 * Moves those that are proven idle into the cache, and gives those that waited too long to the
 * driver.
 */
void zr_pending_settle(void);
bool zr_pending_any(void);
/*
 * Gives all of an account (ZR_ACCOUNTS: all) and a context (NULL: all) to the driver. Returns the
 * bytes.
 */
uint64_t zr_pending_drain(unsigned account, const void *context);
void zr_pending_fork_child(void);

/* --- hold.c: freed blocks that another process has open (ipc:hold) ---------------------------- */
/* The IPC handle of a block was taken. */
void zr_hold_exported(struct zr_block *b, const struct zr_handle_id *id);
/*
 * The block is FREEING and owned by the caller. Returns true if another process has it open: then
 * it is held, CACHED, until nobody has, or until ipc_hold_limit is reached. With ipc:default it
 * costs one predictable branch.
 */
bool zr_hold_block(struct zr_block *b, const struct zr_free *f);
/* Gives back what nobody has open any more; unless `now`, looks every few milliseconds at most.
 * Returns the bytes. */
uint64_t zr_hold_look(bool now);
bool zr_hold_any(void);
/* Gives back all of a context, which is about to be destroyed. */
void zr_hold_drain(const void *context);
void zr_hold_fork_child(void);

/* Whether this code says that memory was short, of the card or of the host. */
static inline bool zr_is_short(ze_result_t code) {
    return code == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY ||
           code == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/* --- shortage.c: refusals, and what is never freed -------------------------------------------- */
/*
 * An allocation was refused for good, by op->refused_by with this code: counted, recorded, and
 * explained if memory was short. Within a retry loop nothing is final, and nothing is done. Returns
 * the code.
 */
ze_result_t zr_refused(struct zr_op *op, enum zr_entry entry, unsigned number, uint64_t bytes,
                       ze_result_t code);
/* A setting refuses, with the code of its line in base/refusals.def. */
ze_result_t zr_refuse(struct zr_op *op, enum zr_refuser who, enum zr_entry entry, unsigned number,
                      uint64_t bytes);
bool zr_floor_refuses_slow(struct zr_op *op, enum zr_entry entry, unsigned number, uint64_t bytes,
                           ze_result_t *result);
/* Whether host_floor refuses this: then *result is the answer. Does nothing within a retry loop: it
 * was asked before. */
static inline bool zr_floor_refuses(struct zr_op *op, enum zr_entry entry, unsigned number,
                                    uint64_t bytes, ze_result_t *result) {
    return unlikely(zr_config.host_floor.set) &&
           zr_floor_refuses_slow(op, entry, number, bytes, result);
}
void zr_shortage_process_end(void);
void zr_shortage_fork_child(void);

/* --- registry.c: every block that was seen, and what it is booked as -------------------------- */
/* Enters a block that the driver has just allocated into map and books; NULL if there is no memory.
 * A few ns. */
struct zr_block *zr_registry_add(struct zr_op *op, const struct zr_key *key, const void *base,
                                 size_t size, size_t held, uint32_t flags);
extern bool zr_registry_lacks; /* atomic: a block got no descriptor, so the map may be outdated for
                                  its address */
/* A block of the cache was handed out again. */
void zr_registry_reused(const struct zr_op *op, struct zr_block *b);
/* The same for a block without properties that matter for reuse. */
struct zr_block *zr_registry_note(struct zr_op *op, enum zr_kind kind, unsigned number,
                                  ze_context_handle_t context, const void *base, size_t size,
                                  uint32_t flags);
/*
 * A block leaves the map (zr_registry_take) before its free goes down: afterwards another thread
 * may be given the same address at once. Then zr_registry_answered with the driver's answer, which
 * is returned: the block is gone, or back in the map. All accept NULL.
 */
struct zr_block *zr_registry_take(const void *ptr);
ze_result_t zr_registry_answered(struct zr_block *b, ze_result_t result);
void zr_registry_gone(struct zr_block *b);
/* The driver has got back what was reserved for a block: out of the map, out of the ledgers. */
void zr_registry_released(struct zr_block *b);
/* Function tables were hooked that calls may already have been made through. */
void zr_registry_hooked_late(void);
/* Records ALLOC, BACK or RESERVE after it took effect, FREE or RELEASE before (enum
 * zeroute_record_type). */
void zr_registry_event(enum zeroute_record_type type, const struct zr_block *b, unsigned flags);
static inline void zr_registry_record(enum zeroute_record_type type, const struct zr_block *b,
                                      unsigned flags) {
    if (unlikely(zr_recording()))
        zr_registry_event(type, b, flags);
}
/* Books what the process holds of a block again on reuse, or takes it out of the books on a free.
 */
void zr_registry_book(const struct zr_block *b);
void zr_registry_unbook(const struct zr_block *b);
/* Books and records what a pool has handed out: a piece of a segment, old (hit) or new, or a whole
 * block. */
void zr_registry_piece(unsigned number, const void *ptr, size_t size, bool hit);
/* Records that it is taking a piece back; zr_unbook() follows once it has. */
void zr_registry_piece_freed(unsigned number, const void *ptr);
/* The IPC handle of the block that holds ptr was taken. */
void zr_registry_exported(const void *ptr, const ze_ipc_mem_handle_t *handle);
/*
 * Before a call that makes the free of the block that holds ptr matter to others
 * (ZR_BLOCK_EXPORTED, ZR_BLOCK_PINNED): from now on it is not cached. Returns the pointer to pass
 * on, as zr_registry_visible().
 */
const void *zr_registry_mark(const void *ptr, uint32_t flags);
/* Physical memory was mapped into a reserved range; or what zr_object_take_mapped() has found was
 * unmapped. */
void zr_registry_mapped(struct zr_op *op, const void *ptr, size_t size, const void *physical);
ze_result_t zr_registry_unmapped(struct zr_object *mappings, const void *ptr, size_t size,
                                 ze_result_t result);
/* The pointer to ask the driver about: an unknown one if, for the process, ptr is not allocated. */
const void *zr_registry_visible(const void *ptr);
/* The pointer to close as an import: an unknown one if ptr is a block of ours. */
const void *zr_registry_closable(const void *ptr);
/* The range of a block that is larger than was requested. Returns false otherwise: ask the driver.
 */
bool zr_registry_range(const void *ptr, void **base, size_t *size);
/* The hook that a block came through. */
static inline uint32_t zr_block_hook(const struct zr_block *b) {
    return zr_block_flags(b) >> ZR_BLOCK_HOOK & 63;
}
/* The extension of this type that is chained to a descriptor, or NULL. */
void *zr_chained(const void *desc, uint32_t stype);

/* --- objects.c: what takes memory and is known by a handle ------------------------------------ */
struct zr_object {
    struct zr_object *next; /* in its bucket, or in a list of those that are taken */
    const void *handle;     /* or, of a mapping, its address */
    const void *context;
    const struct zr_library *library; /* that has made it; NULL: an extension did */
    uint64_t bytes;
    struct zr_charge charge; /* atomic */
    uint16_t account;
    uint8_t kind;
    bool exported; /* its IPC handle was taken */
};
/* Enters and books an object that the driver has just made; op->charge is its own. Returns false
 * without memory. */
bool zr_object_add(struct zr_op *op, enum zr_kind kind, unsigned number, const void *context,
                   const void *handle, uint64_t bytes);
/*
 * An object leaves the table before its end goes down; so do the mappings that lie in a range. NULL
 * if there is none. Then zr_object_answered with the driver's answer, which is returned: it is
 * gone, or back in the table.
 */
struct zr_object *zr_object_take(const void *handle);
struct zr_object *zr_object_take_mapped(const void *start, size_t size);
ze_result_t zr_object_answered(struct zr_object *list, ze_result_t result);
/* The IPC handle of this object was taken. Returns false if there is none. *first: for the first
 * time. */
bool zr_object_exported(const void *handle, enum zr_kind *kind, unsigned *number, uint64_t *bytes,
                        bool *first);
/* Calls see() for each object under the lock of the table: no driver, no other object. */
void zr_object_each(void (*see)(struct zr_object *o, void *arg), void *arg);
void zr_object_fork_child(void);

/* --- remap.c: memory that is mapped anew in a reserved range, which another card may not see -- */
/* The process has made a command list or a queue for this card. */
void zr_remap_at_work(unsigned number);
/* Before memory is mapped: makes the reservation anew where it must be, and can be; else counts and
 * reports. */
void zr_remap_before(struct zr_op *op, const void *ptr, size_t size);
/* These mappings were unmapped; or a whole reservation was freed. */
void zr_remap_unmapped(const struct zr_object *mappings);
void zr_remap_released(const void *start, size_t size);
void zr_remap_fork_child(void);

/* --- residency.c ------------------------------------------------------------------------------ */
ze_result_t zr_residency_make(struct zr_op *op, ze_context_handle_t context,
                              ze_device_handle_t device, void *ptr, size_t size);
ze_result_t zr_residency_evict(struct zr_op *op, ze_context_handle_t context,
                               ze_device_handle_t device, void *ptr, size_t size);
/* Whether the blocks of this process are made resident on peers, which mirrors them in host memory
 * where the driver defers their backing. */
bool zr_residency_mirrors(void);
/* Whether residency:owner applies to this caller. */
bool zr_residency_skips(const struct zr_op *op);
/*
 * Where the last block of a card that was freed had been made resident, and of which context it
 * was: the next one probably will be, too. Being wrong costs a hit.
 */
struct zr_remembered {
    const void *context; /* atomic, and so is the other */
    uint64_t devices;
};
extern struct zr_remembered zr_remembered[ZR_ACCOUNTS];
static inline uint64_t zr_residency_expected(const void *context, unsigned number) {
    const struct zr_remembered *last = &zr_remembered[number];

    if (__atomic_load_n(&last->context, __ATOMIC_RELAXED) != context)
        return 0;
    return __atomic_load_n(&last->devices, __ATOMIC_RELAXED);
}
/* Remembers where a block that is being freed was made resident. */
void zr_residency_remember_other(const struct zr_block *b, uint64_t requested);
static inline void zr_residency_remember(const struct zr_block *b) {
    uint64_t requested = __atomic_load_n(&b->requested, __ATOMIC_RELAXED);

    if (unlikely(zr_residency_expected(b->key.context, b->key.account) != requested))
        zr_residency_remember_other(b, requested);
}
void zr_residency_forget(const void *context);

/* --- request.c: what `zeroute ctl` asks for --------------------------------------------------- */
/* A zr_carry_out: "set SETTING VALUE", "trim", "mark TEXT". */
bool zr_policy_request(const char *request, char *reply, size_t size);

/* --- who watches what arrives below an operation (sycl/watch.c) ------------------------------- */
/* Called by the entry points. What is watched passes down, uncounted; it may pass several hooks. */
struct zr_watcher {
    /* Returns whether it is of interest, and was not noted at an earlier hook: allocated() follows,
     * if it succeeds. */
    bool (*allocates)(struct zr_watch *w, uint32_t hook, ze_context_handle_t context,
                      const ze_device_mem_alloc_desc_t *desc, size_t size,
                      ze_device_handle_t device);
    void (*allocated)(struct zr_watch *w, const void *ptr);
    void (*makes_resident)(struct zr_watch *w, uint32_t hook, ze_device_handle_t device,
                           size_t size);
    void (*frees)(struct zr_watch *w, const void *ptr, const ze_memory_free_ext_desc_t *desc,
                  bool ext);
    void (*exported)(struct zr_watch *w, const ze_ipc_mem_handle_t *handle);
};
/* The innermost operation, if what arrives below it is watched; else NULL. */
static inline const struct zr_op *zr_op_watched(void) {
    const struct zr_op *above = zr_op_innermost();

    return unlikely(above) && above->watcher ? above : NULL;
}

#pragma GCC visibility pop

#endif
