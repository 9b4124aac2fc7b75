/*
 * What a thread keeps to itself between calls: which of its calls are quick, which library it last was called from,
 * and the blocks that it put into the map itself. One mapping per thread, found through zr_thread.local.
 */
#ifndef ZEROUTE_LOCAL_H
#define ZEROUTE_LOCAL_H

#include "cache/block.h"
#include "ze_compat.h"
#include "zeroute.h"

#pragma GCC visibility push(hidden)

/*
 * Reading the clock twice costs as much as everything else that observing does. So calls that take long are all
 * timed, and of quick ones about one in 64, which stands for all since the last. What is quick is learnt per thread,
 * entry point and power of two of the size: a size is quick after 64 timed calls in a row below 2 us, and is not
 * any more after one above that. Every size begins as one that is timed: rare calls are all timed.
 */
struct zr_pace {
    uint64_t quick;  /* bit n: calls about 2^n bytes */
    uint32_t left;   /* quick calls until the next one is timed */
    uint32_t weight; /* how many calls that one will stand for */
};

/* An entry point with a lean way: the return address seen last, where the counters of its library lie in a shard. */
struct zr_lean_entry {
    const void *caller;
    uint32_t calls, bytes;
    struct zr_pace pace;
};
enum zr_lean { ZR_LEAN_ALLOC, ZR_LEAN_FREE, ZR_LEAN_FREE_EXT, ZR_LEANS };

/* A block that this thread put into the map, and the word it has while it is LIVE (lean.h). */
struct zr_claim {
    struct zr_block *block;
    uint64_t live;
};

enum { ZR_CLAIM_BITS = 9 };

/* Wiped in a forked child. What the lean way reads of it is two cache lines, and not at the start of a page, where
 * many other things begin. */
struct zr_local {
    struct zr_claim claim[1 << ZR_CLAIM_BITS];
    uint8_t streak[ZR_ENTRIES_ZE][64]; /* quick calls in a row, until a size is quick */
    struct zr_pace pace[ZR_ENTRIES_ZE];
    struct zr_local *next, **link; /* of all threads */
    unsigned long long libraries; /* loaded and unloaded, when it was last looked at callers */
    uint32_t random;
    uint32_t turns; /* calls that were timed for others */

    _Alignas(64) struct zr_shard *shard;
    uint32_t open; /* the lean way is: settled, nothing to decide, not at the end of the process */
    uint32_t number;
    ze_device_handle_t device; /* the one seen last; its number, and its level in the shard */
    struct zr_level *level;
    struct zr_lean_entry lean[ZR_LEANS];
};

/* This thread's, made at its first call; NULL when it is ending or there is no memory. Cold. */
struct zr_local *zr_local_make(void);
/* Whether this call is to be timed although its size is quick, or because it is not. Cold. */
uint32_t zr_pace_due(struct zr_local *l, enum zr_entry e, unsigned bucket);
/* After a call that was timed. l may be NULL. */
void zr_pace_timed(struct zr_local *l, enum zr_entry e, unsigned bucket, uint64_t start, uint32_t weight);
/* The end of the process: no call goes the lean way any more. */
void zr_local_close_all(void);
void zr_fork_child_local(void);

/* Those of the lean way lie where it reads anyway. */
static inline struct zr_pace *zr_pace_of(struct zr_local *l, enum zr_entry e)
{
    switch ((int)e) {
    case ZR_E_zeMemAllocDevice:
        return &l->lean[ZR_LEAN_ALLOC].pace;
    case ZR_E_zeMemFree:
        return &l->lean[ZR_LEAN_FREE].pace;
    case ZR_E_zeMemFreeExt:
        return &l->lean[ZR_LEAN_FREE_EXT].pace;
    default:
        return &l->pace[e];
    }
}

static inline unsigned zr_pace_bucket(size_t bytes)
{
    return 63u - (unsigned)__builtin_clzll(bytes | 1);
}

/* How many calls the time of this one is to stand for; 0: it is not timed. */
static inline uint32_t zr_pace(struct zr_local *l, enum zr_entry e, unsigned bucket)
{
    struct zr_pace *p = zr_pace_of(l, e);

    if (likely(p->quick >> bucket & 1) && likely(--p->left))
        return 0;
    return zr_pace_due(l, e, bucket);
}

/* The same for those who leave timing to somebody else: false, and nothing changed, when the call is to be timed. */
static inline bool zr_pace_skips(struct zr_pace *p, size_t bytes)
{
    if (unlikely(!(p->quick >> zr_pace_bucket(bytes) & 1)))
        return false;
    if (unlikely(--p->left == 0)) {
        p->left = 1;
        return false;
    }
    return true;
}

#pragma GCC visibility pop

#endif
