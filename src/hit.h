/*
 * Call sites that allocate and free at the Level Zero entry points: what each asks for, and so the shortest way to
 * what is kept. For keep.c and hit.c.
 */
#ifndef ZEROUTE_HIT_H
#define ZEROUTE_HIT_H

#include "policy.h"

#include "cache/hit.h"

#pragma GCC visibility push(hidden)

enum { ZR_ASKERS = 16 };

/*
 * What a call site asks for. A block that is resident on peers is reused only for whoever would ask for the same
 * again, which is whoever did so the last time.
 */
struct zr_asker {
    const void *caller;
    struct zr_key key; /* of its last block; key.peers: where residency was asked for after the block before */
    uint64_t asked;    /* the same after the last one */
    uintptr_t base;    /* the last one */
    size_t alignment;  /* that it was asked for with; or ZR_UNLEARNT: go the general way */
    uint32_t way; /* enum zr_way */
    struct zr_pair *tally; /* stands for its calls, in this thread's shard */
    struct zr_level *level;
    struct heap *heap;
    uintptr_t shard;
} __attribute__((aligned(128)));
#define ZR_UNLEARNT SIZE_MAX

/* A call site that frees blocks of a device. */
struct zr_freer {
    const void *caller;
    uint32_t what; /* device and kind of the blocks, as in their traits */
    uint32_t way;
    struct zr_pair *tally;
    struct zr_level *level;
    struct heap *heap; /* NULL: go the general way */
    uintptr_t shard;
} __attribute__((aligned(64)));

extern __thread struct zr_asker zr_askers[ZR_ASKERS];
extern __thread struct zr_asker *zr_last_asker;

static inline struct zr_asker *zr_asker_of(const void *caller, const void *device)
{
    uint64_t mixed = ((uintptr_t)caller ^ (uintptr_t)device) * 0x9e3779b97f4a7c15u;
    struct zr_asker *asker = &zr_askers[mixed >> 60];

    __asm__("" : "+r"(asker)); /* or gcc computes it anew for each use */
    return asker;
}
_Static_assert(ZR_ASKERS == 16, "four bits");

/* After a call site was served: remembers what for, when it may be served again without asking anybody. */
void zr_hit_learn(struct zr_asker *asker, const struct zr_call *call, const struct zr_cache *c, size_t alignment);
/* After a block of this device was kept. */
void zr_hit_learn_free(const struct zr_cache *c, const struct zr_call *call, unsigned device);
/* Of this thread: all of it. */
void zr_hit_forget(void);

#pragma GCC visibility pop

#endif
