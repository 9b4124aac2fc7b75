/*
 * The lean way: what observing costs in a process that is settled and decides nothing. What happens once in a while
 * has been left out of it: such a call takes the general way (policy.h) instead.
 *
 * Blocks on the lean way are claimed. Whoever gets an address from the driver is the only one who has it, and a
 * process mostly gets the same addresses again. So a block that is freed is parked: it stays in the map as it is,
 * and the thread that put it there, which alone holds the claim, revives it when the driver hands out that address to
 * it again. Both are plain stores. An address that another thread is given goes the general way, whose locked
 * instructions change the block's word and thereby end the claim.
 *
 * So does a claimed block that another thread frees. The first one that comes with such a block ends the plain stores
 * for good: it tells all threads, has the kernel run a memory barrier in each of them, and waits until none is parking.
 * From then on blocks are parked by a compare-and-swap: of two threads that free one block at once, one parks or takes
 * it.
 */
#ifndef ZEROUTE_LEAN_H
#define ZEROUTE_LEAN_H

#include "policy/policy.h"

#pragma GCC visibility push(hidden)

/* --- lean.c: what happens once in a while ----------------------------------------------------------------- */
/* The claim of a place that is free: matches no address. */
extern struct zr_block zr_no_block;
void zr_claims_start(struct zr_local *l);
/* What the general way has learnt about a call, for the next one. `device` NULL: a free. */
void zr_lean_learn(struct zr_local *l, enum zr_lean which, const struct zr_call *call, ze_device_handle_t device,
                   unsigned number);
/* A block of device memory that is not parked in the map: false when it cannot be put there. */
bool zr_claim_new(struct zr_local *l, ze_context_handle_t context, const void *base, size_t size);
/* After the driver's part, when it was not as usual: a block that is not in the map yet; a call that failed. */
ze_result_t zr_lean_new(enum zr_via way);
ze_result_t zr_lean_refused(enum zr_via way, enum zr_lean which, size_t bytes, ze_result_t result);
ze_result_t zr_lean_not_freed(enum zr_via way, enum zr_lean which, ze_result_t result);
/* Gives up the thread's claims: parked blocks leave the map. */
void zr_claims_drop(struct zr_local *l);

/* Nothing unusual in the process, or with the counters of this thread. */
ZR_INLINE bool zr_lean_is_open(const struct zr_local *l)
{
    return likely(l) && likely(__atomic_load_n(&l->open, __ATOMIC_RELAXED) & ZR_OPEN);
}

/*
 * A thread that is neither inside nor watched comes in. All of `busy`: a part that was just written cannot be forwarded
 * to a reader of the whole.
 */
ZR_INLINE void zr_lean_enter(void)
{
    zr_thread.busy = ZR_ONLY_INSIDE;
}

static inline void zr_lean_leave(const int *unused)
{
    (void)unused;
    zr_thread.busy = ZR_ONLY_LEAN;
}
#define ZR_LEAN_GUARD int guard __attribute__((cleanup(zr_lean_leave), unused)) = 0

/* After the driver's part; NULL in a child that was forked meanwhile. */
ZR_INLINE struct zr_local *zr_lean_local(void)
{
    __asm__ volatile("" ::: "memory"); /* or the address is kept in a register */
    return zr_thread.local;
}

ZR_INLINE unsigned zr_lean_device(const struct zr_local *l)
{
    return (uint16_t)(l->traits >> 32);
}

ZR_INLINE struct zr_claim *zr_claim_of(struct zr_local *l, const void *base)
{
    return &l->claim[(uintptr_t)base * 0x9e3779b97f4a7c15u >> (64 - ZR_CLAIM_BITS)];
}

/* Whether the block of a claim is the one of this base, in this state. */
ZR_INLINE bool zr_claimed(const struct zr_claim *c, const void *base, enum zr_block_state state)
{
    return likely(zr_block_base(c->block) == (uintptr_t)base) &&
           likely(zr_block_word(c->block) == (c->live ^ (ZR_BLOCK_LIVE ^ (uint64_t)state)));
}

/* After the driver has given out a block on the device that was seen last: into the map, if it was there before. */
ZR_INLINE bool zr_lean_place(struct zr_local *l, ze_context_handle_t context, void *base, size_t size)
{
    const struct zr_claim *c = zr_claim_of(l, base);
    struct zr_block *b = c->block;

    if (unlikely(!zr_claimed(c, base, ZR_BLOCK_PARKED)))
        return false;
    /* Most often it is as it was, and a look costs less than a store: the driver waits for stores to be done. */
    if (unlikely(b->held != size)) {
        __atomic_store_n(&b->size, size, __ATOMIC_RELAXED);
        b->held = size;
    }
    if (unlikely(b->context != context))
        __atomic_store_n(&b->context, context, __ATOMIC_RELAXED);
    if (unlikely(b->peers | (b->traits ^ l->traits))) {
        b->peers = 0;
        b->traits = l->traits;
    }
    zr_map_revive(b, c->live);
    return true;
}

/* Parks a block that this thread has claimed; false: somebody else has freed it. See above for the two ways. */
ZR_INLINE bool zr_lean_park(struct zr_local *l, const struct zr_claim *c, struct zr_block *b)
{
    uint32_t open;
    bool parked;

    __atomic_store_n(&l->parking, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    open = __atomic_load_n(&l->open, __ATOMIC_RELAXED);
    if (likely(open == ZR_OPEN))
        parked = zr_map_park_alone(b, c->live);
    else
        parked = open & ZR_OPEN && zr_map_park(b, c->live);
    __atomic_store_n(&l->parking, 0, __ATOMIC_RELEASE);
    return parked;
}

/*
 * The hooks. Whatever a call may want besides comes before the first change, and is left to the general way by a
 * jump: so the arguments stay in their registers until the driver gets them. What is needed after that is put by where
 * the hook writes anyway: it takes fewer instructions than to clear registers for it.
 */
ZR_INLINE ze_result_t zr_lean_zeMemAllocDevice(uint32_t hook, enum zr_via way, ze_context_handle_t context,
                                               const ze_device_mem_alloc_desc_t *desc, size_t size,
                                               size_t alignment, ze_device_handle_t device, void **out)
{
    struct zr_local *l = zr_thread.local;
    const struct zr_lean_site *site = &l->way[way].site[ZR_LEAN_ALLOC];
    ze_result_t result;

    if (!zr_lean_is_open(l) || unlikely(!desc || desc->pNext) || unlikely(l->device != device) ||
        unlikely(site->from != zr_from(zr_thread.caller, hook)) ||
        unlikely(!zr_pace_skips(l, ZR_LEAN_ALLOC, ZR_E_zeMemAllocDevice, size))) {
        zr_note(hook, way);
        return zr_on_zeMemAllocDevice(context, desc, size, alignment, device, out);
    }
    zr_thread.put_by.context = context;
    zr_thread.put_by.size = size;
    zr_thread.put_by.out = out;
    ZR_LEAN_GUARD;
    zr_lean_enter();
    result = ((zr_fn_zeMemAllocDevice)site->below)(context, desc, size, alignment, device, out);
    l = zr_lean_local();
    size = zr_thread.put_by.size;
    if (unlikely(!l) || unlikely(result != ZE_RESULT_SUCCESS))
        return zr_lean_refused(way, ZR_LEAN_ALLOC, size, result);
    if (unlikely(!zr_lean_place(l, zr_thread.put_by.context, *zr_thread.put_by.out, size)))
        return zr_lean_new(way);
    zr_tally_got(l->way[way].site[ZR_LEAN_ALLOC].tally, l->level, size);
    return ZE_RESULT_SUCCESS;
}

/* The claim of a block that may be freed on the lean way, as far as the block goes; else NULL. */
ZR_INLINE const struct zr_claim *zr_lean_claim(struct zr_local *l, const void *ptr)
{
    const struct zr_claim *c = zr_claim_of(l, ptr);
    const struct zr_block *b = c->block;

    return likely(zr_block_base(b) == (uintptr_t)ptr) && likely(b->traits >> 32 == l->traits >> 32) ? c : NULL;
}

/* A free, by whichever function. `before` it; by the `general` way; by what lies `below`. */
#define ZR_LEAN_FREES(which, entry, before, general, below_)                                         \
    struct zr_local *l = zr_thread.local;                                                          \
    const struct zr_lean_site *site = &l->way[way].site[which];                                    \
    const struct zr_claim *c;                                                                      \
    size_t held;                                                                                   \
    ze_result_t result;                                                                            \
                                                                                                   \
    if (!zr_lean_is_open(l) || unlikely(!(c = zr_lean_claim(l, ptr))) ||                           \
        unlikely(site->from != zr_from(zr_thread.caller, hook)) ||                                 \
        unlikely(!zr_pace_skips(l, which, entry, (held = c->block->held))) ||                      \
        unlikely(!zr_lean_park(l, c, c->block))) {                                                 \
        zr_note(hook, way);                                                                        \
        return general;                                                                            \
    }                                                                                              \
    ZR_LEAN_GUARD;                                                                                 \
    zr_lean_enter();                                                                               \
    zr_thread.put_by.ptr = ptr;                                                                    \
    zr_thread.put_by.size = held;                                                                  \
    before;                                                                                        \
    result = below_;                                                                               \
    l = zr_lean_local();                                                                           \
    if (unlikely(!l) || unlikely(result != ZE_RESULT_SUCCESS))                                     \
        return zr_lean_not_freed(way, which, result);                                       \
    zr_tally_gave(l->way[way].site[which].tally, l->level, zr_thread.put_by.size);                 \
    return ZE_RESULT_SUCCESS

ZR_INLINE ze_result_t zr_lean_zeMemFree(uint32_t hook, enum zr_via way, ze_context_handle_t context, void *ptr)
{
    ZR_LEAN_FREES(ZR_LEAN_FREE, ZR_E_zeMemFree, (void)0, zr_on_zeMemFree(context, ptr),
                  ((zr_fn_zeMemFree)site->below)(context, ptr));
}

ZR_INLINE ze_result_t zr_lean_zeMemFreeExt(uint32_t hook, enum zr_via way, ze_context_handle_t context,
                                           const ze_memory_free_ext_desc_t *desc, void *ptr)
{
    ZR_LEAN_FREES(ZR_LEAN_FREE_EXT, ZR_E_zeMemFreeExt,
                  zr_relaxed_add(&l->shard->fields[zr_free_policy_field(desc)], 1),
                  zr_on_zeMemFreeExt(context, desc, ptr), ((zr_fn_zeMemFreeExt)site->below)(context, desc, ptr));
}

#pragma GCC visibility pop

#endif
