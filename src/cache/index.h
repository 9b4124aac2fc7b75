/*
 * From a base to its block, for the blocks of the whole-block cache: a hash table of descriptors in front of
 * the tree (map.h), which answers a free by one load from a few KiB, wherever the blocks lie.
 *
 * It only guesses. Whoever asks looks at the descriptor, which says what it is; a wrong guess, or none, sends
 * him to the tree, which is never wrong. So readers need no lock and no care while a table grows or an entry
 * leaves: they may miss, and that is all. Nobody writes to it on a hot path: a block enters when the driver
 * has given it out, and leaves before the driver takes it back.
 */
#ifndef ZEROUTE_CACHE_INDEX_H
#define ZEROUTE_CACHE_INDEX_H

#include "cache/block.h"

/*
 * Read by all, hardly ever written: in a line of its own. Written from the bottom up and read from the top down, so
 * that whoever has seen how large a table is finds one at least as large.
 */
struct zr_index {
    unsigned shift; /* 64 - n for a table of 2^n slots */
    void **slot;    /* bin << 48 | descriptor; an empty one is &zr_nobody */
    uint64_t factor;
} __attribute__((aligned(64)));

extern struct zr_index zr_index __attribute__((visibility("hidden")));
extern struct zr_block zr_nobody __attribute__((visibility("hidden")));

static inline struct zr_block *zr_slot_block(const void *slot)
{
    return (struct zr_block *)((uintptr_t)slot & 0xffffffffffff);
}

static inline unsigned zr_slot_bin(const void *slot)
{
    return (unsigned)((uintptr_t)slot >> 48);
}

/* Bases are multiples of 64 KiB most often: their pages are what the factor spreads. */
static inline uint64_t zr_index_mix(uintptr_t base)
{
    return base >> 16 | base << 48;
}

/*
 * What the index has at the place of this base. Drivers give out bases at regular distances, which a factor
 * spreads evenly, or not at all: then the index takes another one. Seven instructions.
 */
static inline void *zr_index_first(const void *p)
{
    unsigned shift = __atomic_load_n(&zr_index.shift, __ATOMIC_ACQUIRE);
    void **slot = __atomic_load_n(&zr_index.slot, __ATOMIC_ACQUIRE);
    uint64_t factor = __atomic_load_n(&zr_index.factor, __ATOMIC_RELAXED);

    return __atomic_load_n(&slot[zr_index_mix((uintptr_t)p) * factor >> (shift & 63)], __ATOMIC_ACQUIRE);
}

/*
 * What it has at the next places, if one of them is of this base; else the last one that was looked at. Inline: through
 * a call of zr_index_probe the free of a displaced block takes longer.
 */
static inline void *zr_index_next(const void *p)
{
    unsigned shift = __atomic_load_n(&zr_index.shift, __ATOMIC_ACQUIRE) & 63;
    void **slot = __atomic_load_n(&zr_index.slot, __ATOMIC_ACQUIRE);
    uint64_t home = zr_index_mix((uintptr_t)p) * __atomic_load_n(&zr_index.factor, __ATOMIC_RELAXED) >> shift;
    void *at = &zr_nobody;

    for (unsigned n = 1; n <= 3; n++) {
        at = __atomic_load_n(&slot[(home + n) & UINT64_MAX >> shift], __ATOMIC_ACQUIRE);
        if (__atomic_load_n(&zr_slot_block(at)->base, __ATOMIC_RELAXED) == (uintptr_t)p)
            break;
    }
    return at;
}

/* At all places of this base, and then by the tree: the slot of the descriptor with this base, or of another. */
void *zr_index_probe(const void *p);

static inline struct zr_block *zr_index_guess(const void *p)
{
    struct zr_block *b = zr_slot_block(zr_index_first(p));

    if (__builtin_expect(__atomic_load_n(&b->base, __ATOMIC_RELAXED) != (uintptr_t)p, 0))
        return zr_slot_block(zr_index_probe(p));
    return b;
}

/*
 * With its bin as it is: to change that, remove the block and add it again while nobody but the caller may free it.
 * Without memory for a larger table a block stays out, and the tree answers for it.
 */
void zr_index_add(struct zr_block *b);
void zr_index_remove(const struct zr_block *b);
void zr_index_fork_child(void);

#endif
