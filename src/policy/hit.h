/*
 * Call sites that allocate and free at the Level Zero entry points: what each asks for, and so the shortest way to
 * what is kept. For the hooks, keep.c and hit.c. The thread is in no call of ours, and not on the lean way.
 */
#ifndef ZEROUTE_HIT_H
#define ZEROUTE_HIT_H

#include "policy/policy.h"

#include "cache/hit.h"

#pragma GCC visibility push(hidden)

enum { ZR_ASKERS = 16 };

/*
 * What a call site asks for. A block that is resident on peers is reused only for whoever would ask for the same
 * again, which is whoever did so the last time. Two cache lines for what a hit looks at.
 */
struct zr_asker {
    uintptr_t from;    /* served so before; or 0: go the general way */
    struct zr_key key; /* of its last block; key.peers: where residency was asked for after the block before */
    uint64_t asked;    /* the same after the last one */
    size_t alignment;  /* that it was asked for with */
    struct zr_again again;
    struct zr_pair *tally; /* stands for its calls, in this thread's shard; NULL: nothing is counted */
    struct zr_level *level;
    uintptr_t site; /* whose all this is: `from`, if it has been learnt */
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct zr_asker) == 128, "two cache lines");

extern __thread struct zr_asker zr_askers[ZR_ASKERS];

static inline struct zr_asker *zr_asker_of(uintptr_t from, const void *device)
{
    uint64_t mixed = (from ^ (uintptr_t)device) * 0x9e3779b97f4a7c15u;
    struct zr_asker *asker = &zr_askers[mixed >> 60];

    __asm__("" : "+r"(asker)); /* or gcc computes it anew for each use */
    return asker;
}
_Static_assert(ZR_ASKERS == 16, "four bits");

/* After a call site was served: remembers what for, when it may be served again without asking anybody. */
void zr_hit_learn(struct zr_asker *asker, const struct zr_call *call, size_t alignment);
/* After a block of this device was kept. */
void zr_hit_learn_free(const struct zr_cache *c, const struct zr_call *call, unsigned device);

/* The asker has been served so before, and the thread is inside by now; a free by whatever site. */
ze_result_t zr_hit_serve(struct zr_asker *asker, size_t size, void **out);
ze_result_t zr_hit_free(ze_context_handle_t context, void *ptr, uintptr_t from);

/* As in a key: flags and ordinal. */
static inline uint64_t zr_hit_what(const ze_device_mem_alloc_desc_t *desc)
{
    uint64_t what;

    memcpy(&what, &desc->flags, sizeof what);
    return what;
}

ZR_INLINE bool zr_hit_asks_again(const struct zr_asker *a, uintptr_t from, ze_context_handle_t context,
                                 const ze_device_mem_alloc_desc_t *desc, size_t alignment, ze_device_handle_t device,
                                 void **out)
{
    return likely(a->from == from) && likely(desc) && likely(a->alignment == alignment) &&
           likely(a->key.context == context) && likely(a->key.device == device) &&
           likely(a->key.peers == a->asked) && likely(zr_hit_what(desc) == a->key.what) &&
           likely(!desc->pNext) && likely(desc->stype == ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC) &&
           likely(out) && likely(__atomic_load_n(&zr_unusual, __ATOMIC_RELAXED) == ZR_DECIDING);
}
_Static_assert(offsetof(ze_device_mem_alloc_desc_t, ordinal) == offsetof(ze_device_mem_alloc_desc_t, flags) + 4 &&
                   offsetof(struct zr_key, ordinal) == offsetof(struct zr_key, flags) + 4,
               "flags and ordinal are compared in one");

/*
 * Before the first look at what was learnt: handlers of signals that come now may not learn anything else. All of
 * `busy`: a part that was just written cannot be forwarded to a reader of the whole.
 */
ZR_INLINE void zr_hit_enter(void)
{
    zr_thread.busy = ZR_ONLY_INSIDE;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

ZR_INLINE void zr_hit_leave(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    zr_thread.busy = 0;
}

/* For the hooks, which have noted the caller and nothing else. */
ZR_INLINE ze_result_t zr_hit_zeMemAllocDevice(uint32_t hook, enum zr_via way, ze_context_handle_t context,
                                              const ze_device_mem_alloc_desc_t *desc, size_t size, size_t alignment,
                                              ze_device_handle_t device, void **out)
{
    uintptr_t from = zr_from(zr_thread.caller, hook);
    struct zr_asker *asker = zr_asker_of(from, device);

    if (likely(zr_thread.busy == 0)) {
        zr_hit_enter();
        if (zr_hit_asks_again(asker, from, context, desc, alignment, device, out))
            return zr_hit_serve(asker, size, out);
        zr_hit_leave();
    }
    zr_note(hook, way);
    return zr_on_zeMemAllocDevice(context, desc, size, alignment, device, out);
}

ZR_INLINE ze_result_t zr_hit_zeMemFree(uint32_t hook, enum zr_via way, ze_context_handle_t context, void *ptr)
{
    if (likely(zr_thread.busy == 0))
        return zr_hit_free(context, ptr, zr_from(zr_thread.caller, hook));
    zr_note(hook, way);
    return zr_on_zeMemFree(context, ptr);
}

/* What is freed by a policy is looked at. */
ZR_INLINE ze_result_t zr_hit_zeMemFreeExt(uint32_t hook, enum zr_via way, ze_context_handle_t context,
                                          const ze_memory_free_ext_desc_t *desc, void *ptr)
{
    zr_note(hook, way);
    return zr_on_zeMemFreeExt(context, desc, ptr);
}

#pragma GCC visibility pop

#endif
