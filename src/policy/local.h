/*
 * What a thread keeps to itself between calls: which of its calls are quick, which library it last was called from,
 * and the blocks that it put into the map itself. One mapping per thread, found through zr_thread.local.
 */
#ifndef ZEROUTE_LOCAL_H
#define ZEROUTE_LOCAL_H

#include "cache/block.h"
#include "driver/ze_compat.h"
#include "zeroute.h"

#pragma GCC visibility push(hidden)

/*
 * Reading the clock twice costs as much as everything else that observing does. So calls that take long are all
 * timed, and of quick ones about one in 128, which stands for all since the last. What is quick is learnt per thread,
 * entry point and power of two of the size: a size is quick after 64 timed calls in a row below 2 us, and is not
 * any more after one above that. Every size begins as one that is timed: rare calls are all timed.
 */
struct zr_pace {
    size_t like;     /* 2^n of a size that is quick, the one seen last; or 0 */
    uint32_t left;   /* quick calls until the next one is timed */
    uint32_t weight; /* how many calls that one will stand for */
};

/* A function of any type. */
typedef void (*zr_function)(void);

/* An entry point on the lean way: where the last call came from, what stands for it (stats.h), what lies below. */
struct zr_lean_site {
    uintptr_t from; /* zr_from */
    struct zr_pair *tally;
    zr_function below;
};
enum zr_lean { ZR_LEAN_ALLOC, ZR_LEAN_FREE, ZR_LEAN_FREE_EXT, ZR_LEANS };
enum { ZR_LEAN_WAYS = 3 }; /* ways to Level Zero: the first of enum zr_via */

/* A block that this thread put into the map, and the word it has while it is LIVE (lean.h). */
struct zr_claim {
    struct zr_block *block;
    uint64_t live;
};

enum { ZR_CLAIM_BITS = 9 };

/* The lean way is open: settled, nothing to decide, not at the end of the process. Others free blocks too: lean.h. */
enum zr_open { ZR_OPEN = 1, ZR_SHARED = 2 };

/*
 * Wiped in a forked child. What the lean way reads of it comes first, one cache line and one for each way, and is not
 * at the start of a page, where many other things begin.
 */
struct zr_local {
    _Alignas(64) uint32_t open; /* enum zr_open */
    uint32_t parking; /* between a look at `open` and the store that parks a block */
    ze_device_handle_t device; /* the one seen last; its level in the shard, and the traits of its blocks */
    struct zr_level *level;
    uint64_t traits;
    struct zr_pace lean[ZR_LEANS];
    struct {
        _Alignas(64) struct zr_lean_site site[ZR_LEANS];
    } way[ZR_LEAN_WAYS];

    struct zr_shard *shard;
    uint64_t quick[ZR_ENTRIES_ZE]; /* bit n: calls about 2^n bytes */
    struct zr_claim claim[1 << ZR_CLAIM_BITS];
    uint8_t streak[ZR_ENTRIES_ZE][64]; /* quick calls in a row, until a size is quick */
    struct zr_pace pace[ZR_ENTRIES_ZE];
    struct zr_local *next, **link; /* of all threads */
    unsigned long long libraries; /* loaded and unloaded, when it was last looked at callers */
    uint32_t random;
    uint32_t turns; /* calls that were timed for others */
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
        return &l->lean[ZR_LEAN_ALLOC];
    case ZR_E_zeMemFree:
        return &l->lean[ZR_LEAN_FREE];
    case ZR_E_zeMemFreeExt:
        return &l->lean[ZR_LEAN_FREE_EXT];
    default:
        return &l->pace[e];
    }
}

static inline unsigned zr_pace_bucket(size_t bytes)
{
    return 63u - (unsigned)__builtin_clzll(bytes | 1);
}

static inline bool zr_pace_is_quick(const struct zr_local *l, enum zr_entry e, unsigned bucket)
{
    return l->quick[e] >> bucket & 1;
}

/* How many calls the time of this one is to stand for; 0: it is not timed. */
static inline uint32_t zr_pace(struct zr_local *l, enum zr_entry e, unsigned bucket)
{
    if (likely(zr_pace_is_quick(l, e, bucket)) && likely(--zr_pace_of(l, e)->left))
        return 0;
    return zr_pace_due(l, e, bucket);
}

/* The same for those who leave timing to somebody else: false, and nothing changed, when the call is to be timed. */
static inline bool zr_pace_skips(struct zr_local *l, enum zr_lean which, enum zr_entry e, size_t bytes)
{
    struct zr_pace *p = &l->lean[which];

    if (unlikely(bytes - p->like >= p->like)) {
        if (!zr_pace_is_quick(l, e, zr_pace_bucket(bytes)))
            return false;
        p->like = (size_t)1 << zr_pace_bucket(bytes);
    }
    if (unlikely(--p->left == 0)) {
        p->left = 1;
        return false;
    }
    return true;
}

#pragma GCC visibility pop

#endif
