/*
 * The lean way: what observing costs in a process that is settled and decides nothing. What happens once in a while
 * has been left out of it: such a call takes the general way (policy.h) instead.
 *
 * Blocks on the lean way are claimed. Whoever gets an address from the driver is the only one who has it, and a
 * process mostly gets the same addresses again. So a block that is freed is parked: it stays in the map as it is,
 * and the thread that put it there, which alone holds the claim, revives it when the driver hands out that address to
 * it again. Both are plain stores. A block that another thread frees, or an address that another thread is given,
 * goes the general way, whose locked instructions change the block's word and thereby end the claim.
 */
#ifndef ZEROUTE_LEAN_H
#define ZEROUTE_LEAN_H

#include "policy.h"

#pragma GCC visibility push(hidden)

/* --- lean.c: what happens once in a while ----------------------------------------------------------------- */
/* The claim of a place that is free: matches no address. */
extern struct zr_block zr_no_block;
void zr_claims_start(struct zr_local *l);
/* What the general way has learnt about a call, for the next one. */
void zr_lean_learn(struct zr_local *l, enum zr_lean which, const void *caller, ze_device_handle_t device, unsigned number);
/* A block of device memory that is not parked in the map: false when it cannot be put there. */
bool zr_claim_new(struct zr_local *l, unsigned device, ze_context_handle_t context, const void *base, size_t size);
/* Counts a failure; returns it. */
ze_result_t zr_refused(enum zr_entry e, ze_result_t result);
/* Gives up the thread's claims: parked blocks leave the map. */
void zr_claims_drop(struct zr_local *l);

#define ZR_INLINE static inline __attribute__((always_inline))

/* For the general way: the door has noted the caller. */
ZR_INLINE void zr_note(uint32_t door, enum zr_way way)
{
    zr_thread.door = door;
    zr_thread.way = way;
}

/* Nothing unusual in the process, or with the counters of this thread. */
ZR_INLINE bool zr_lean_is_open(void)
{
    const struct zr_local *l = zr_thread.local;

    return likely(l) && __atomic_load_n(&l->open, __ATOMIC_RELAXED);
}

/* The counters of a call; then it is within the door. */
ZR_INLINE void zr_lean_enter(const struct zr_local *l, enum zr_lean which, enum zr_way way, enum zr_entry e,
                             enum zr_field driver)
{
    struct zr_shard *s = l->shard;

    /* All of it: a part that was just written cannot be forwarded to a reader of the whole. */
    zr_thread.busy = ZR_ONLY_INSIDE;
    zr_relaxed_add(&s->calls[way][e], 1);
    zr_relaxed_add(&s->fields[driver], 1);
    zr_relaxed_add((uint64_t *)((uintptr_t)s + l->lean[which].calls), 1);
}

static inline void zr_lean_leave(const int *unused)
{
    (void)unused;
    zr_thread.busy = 0;
}
#define ZR_LEAN_GUARD int guard __attribute__((cleanup(zr_lean_leave), unused)) = 0

ZR_INLINE struct zr_claim *zr_claim_of(struct zr_local *l, const void *base)
{
    return &l->claim[(uintptr_t)base * 0x9e3779b97f4a7c15u >> (64 - ZR_CLAIM_BITS)];
}

/* The block of a claim, if it is the one of this base and has this state; else NULL. */
ZR_INLINE struct zr_block *zr_claimed(const struct zr_claim *c, const void *base, enum zr_block_state state)
{
    struct zr_block *b = c->block;

    return likely(zr_block_base(b) == (uintptr_t)base) &&
                   likely(zr_block_word(b) == (c->live ^ (ZR_BLOCK_LIVE ^ (uint64_t)state)))
               ? b
               : NULL;
}

/* After the driver has given out a block on the device that was seen last. */
ZR_INLINE void zr_lean_got(struct zr_local *l, ze_context_handle_t context, void *base, size_t size)
{
    const struct zr_claim *c = zr_claim_of(l, base);
    uint64_t live = c->live;
    struct zr_block *b = zr_claimed(c, base, ZR_BLOCK_PARKED);

    if (likely(b)) {
        __atomic_store_n(&b->size, size, __ATOMIC_RELAXED);
        b->held = size;
        /* Most often it is as it was, and a look costs less than a store. */
        if (unlikely(b->context != context))
            __atomic_store_n(&b->context, context, __ATOMIC_RELAXED);
        if (unlikely(b->peers))
            b->peers = 0;
        if (unlikely(b->flags || b->device != l->number)) {
            b->flags = 0;
            b->device = (uint16_t)l->number;
        }
        zr_map_revive(b, live);
    } else if (!zr_claim_new(l, l->number, context, base, size)) {
        return;
    }
    zr_book_on_device(l->shard, &l->shard->on_device[l->number][ZR_KIND_DEVICE], l->level, l->number, size);
}

/*
 * The doors. Whatever a call may want besides comes before the first change, and is left to the general way by a
 * jump: so the arguments stay in their registers until the driver gets them.
 */
ZR_INLINE ze_result_t zr_lean_zeMemAllocDevice(uint32_t door, enum zr_way way, ze_context_handle_t context,
                                               const ze_device_mem_alloc_desc_t *desc, size_t size,
                                               size_t alignment, ze_device_handle_t device, void **out)
{
    struct zr_local *l = zr_thread.local;
    zr_fn_zeMemAllocDevice below = (zr_fn_zeMemAllocDevice)zr_known_below(door, ZR_E_zeMemAllocDevice);
    ze_result_t result;

    if (unlikely(zr_thread.busy) || unlikely(!below) || unlikely(!desc || desc->pNext) ||
        unlikely(l->device != device) ||
        unlikely(l->lean[ZR_LEAN_ALLOC].caller != zr_thread.caller) ||
        unlikely(!zr_pace_skips(&l->lean[ZR_LEAN_ALLOC].pace, size))) {
        zr_note(door, way);
        return zr_on_zeMemAllocDevice(context, desc, size, alignment, device, out);
    }
    ZR_LEAN_GUARD;
    zr_lean_enter(l, ZR_LEAN_ALLOC, way, ZR_E_zeMemAllocDevice, ZR_F_DRIVER_ALLOC_CALLS);
    zr_relaxed_add((uint64_t *)((uintptr_t)l->shard + l->lean[ZR_LEAN_ALLOC].bytes), size);
    result = below(context, desc, size, alignment, device, out);
    if (unlikely(result != ZE_RESULT_SUCCESS))
        return zr_refused(ZR_E_zeMemAllocDevice, result);
    zr_lean_got(l, context, *out, size);
    return ZE_RESULT_SUCCESS;
}

/* The claim of a block that may be freed on the lean way, as far as the block goes; else NULL. */
ZR_INLINE const struct zr_claim *zr_lean_claim(struct zr_local *l, const void *ptr)
{
    const struct zr_claim *c = zr_claim_of(l, ptr);
    const struct zr_block *b = zr_claimed(c, ptr, ZR_BLOCK_LIVE);

    return likely(b) && likely(b->device == l->number) ? c : NULL;
}

ZR_INLINE ze_result_t zr_lean_zeMemFree(uint32_t door, enum zr_way way, ze_context_handle_t context, void *ptr)
{
    struct zr_local *l = zr_thread.local;
    zr_fn_zeMemFree below = (zr_fn_zeMemFree)zr_known_below(door, ZR_E_zeMemFree);
    const struct zr_claim *c;
    size_t held;
    ze_result_t result;

    if (unlikely(zr_thread.busy) || unlikely(!below) || unlikely(!(c = zr_lean_claim(l, ptr))) ||
        unlikely(l->lean[ZR_LEAN_FREE].caller != zr_thread.caller) ||
        unlikely(!zr_pace_skips(&l->lean[ZR_LEAN_FREE].pace, (held = c->block->held))) ||
        unlikely(!zr_map_park(c->block, c->live))) {
        zr_note(door, way);
        return zr_on_zeMemFree(context, ptr);
    }
    ZR_LEAN_GUARD;
    zr_lean_enter(l, ZR_LEAN_FREE, way, ZR_E_zeMemFree, ZR_F_DRIVER_FREE_CALLS);
    result = below(context, ptr);
    if (unlikely(result != ZE_RESULT_SUCCESS)) {
        zr_map_unpark(c->block, c->live);
        return zr_refused(ZR_E_zeMemFree, result);
    }
    zr_unbook_on_device(l->shard, &l->shard->on_device[l->number][ZR_KIND_DEVICE], l->level, l->number, held);
    return ZE_RESULT_SUCCESS;
}

ZR_INLINE ze_result_t zr_lean_zeMemFreeExt(uint32_t door, enum zr_way way, ze_context_handle_t context,
                                           const ze_memory_free_ext_desc_t *desc, void *ptr)
{
    struct zr_local *l = zr_thread.local;
    zr_fn_zeMemFreeExt below = (zr_fn_zeMemFreeExt)zr_known_below(door, ZR_E_zeMemFreeExt);
    const struct zr_claim *c;
    size_t held;
    ze_result_t result;

    if (unlikely(zr_thread.busy) || unlikely(!below) || unlikely(!(c = zr_lean_claim(l, ptr))) ||
        unlikely(l->lean[ZR_LEAN_FREE_EXT].caller != zr_thread.caller) ||
        unlikely(!zr_pace_skips(&l->lean[ZR_LEAN_FREE_EXT].pace, (held = c->block->held))) ||
        unlikely(!zr_map_park(c->block, c->live))) {
        zr_note(door, way);
        return zr_on_zeMemFreeExt(context, desc, ptr);
    }
    ZR_LEAN_GUARD;
    zr_lean_enter(l, ZR_LEAN_FREE_EXT, way, ZR_E_zeMemFreeExt, ZR_F_DRIVER_FREE_CALLS);
    zr_relaxed_add(&l->shard->fields[zr_free_policy_field(desc)], 1);
    result = below(context, desc, ptr);
    if (unlikely(result != ZE_RESULT_SUCCESS)) {
        zr_map_unpark(c->block, c->live);
        return zr_refused(ZR_E_zeMemFreeExt, result);
    }
    zr_unbook_on_device(l->shard, &l->shard->on_device[l->number][ZR_KIND_DEVICE], l->level, l->number, held);
    return ZE_RESULT_SUCCESS;
}

#pragma GCC visibility pop

#endif
