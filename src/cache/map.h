/*
 * From an address to its block: one map for all kinds of memory and all threads.
 *
 * A radix tree over the address: a root of 64 Ki pointers (bits 32 to 47), leaves of 64 Ki slots, one per
 * 64 KiB page (bits 16 to 31). A slot names the one block whose base lies in its page, so that looking up
 * a base takes three dependent loads (root, slot, descriptor), however many blocks there are. Only where
 * several blocks begin in one page (blocks from the driver's pools, host memory) the slot leads on to nodes
 * of 128, 64 and 8 slots, down to single bytes. The price of a block is independent of its size: only the
 * page of its base is written, so 19 GiB cost what 64 KiB cost.
 *
 * Writers use one compare-and-swap on the slot, readers nothing: no locks, no shared counters. A block that
 * leaves is not wiped from its slot. The slot carries 16 bits of the descriptor's generation, and one whose
 * generation moved on is empty for everybody; taking a block out therefore costs the one locked instruction
 * that decides between two takers.
 *
 * Inner addresses (zr_map_find) are found by the nearest base below: each leaf has a bitmap of pages in
 * which a base was seen. Bits are set on insertion and cleared only when a search stumbled over too many
 * pages that have become empty, so the common insertion just finds its bit set.
 *
 * Blocks of the whole-block cache are in a table of their bases besides (index.h), which answers first.
 *
 * Blocks in the map do not overlap. Addresses from 2^48 up take one more load: devices use all of the 57
 * bits, sign-extended (0xff00fffffffe0000), so the bits above these say nothing.
 */
#ifndef ZEROUTE_CACHE_MAP_H
#define ZEROUTE_CACHE_MAP_H

#include "cache/block.h"
#include "cache/index.h"
#include "cache/pause.h"

enum { ZR_MAP_FAN = 1 << 16 };

/* A bit for each slot, and one for each word of these in which a bit is set. */
struct zr_map_bits {
    uint64_t seen[ZR_MAP_FAN / 64];
    uint64_t any[ZR_MAP_FAN / 4096];
};

struct zr_map_leaf {
    uint64_t slot[ZR_MAP_FAN]; /* 0, or generation << 48 | descriptor, or node | 1 */
    struct zr_map_bits noted;  /* pages in which a base once was */
    uint32_t cleanings;        /* odd while bits are being cleared */
    uint32_t lock;
};

struct zr_map_root {
    struct zr_map_leaf *leaf[ZR_MAP_FAN];
    struct zr_map_bits noted; /* leaves that are there, or about to be */
};

/*
 * Where the slot of a page lies in its leaf. Blocks that are a power of two apart would otherwise have their slots in
 * a handful of the processor's cache sets; eight pages side by side still share a line.
 */
static inline unsigned zr_map_slot_of(uintptr_t a)
{
    unsigned page = a >> 16 & 0xffff;

    return page ^ page >> 7;
}

extern struct zr_map_root zr_map_low __attribute__((visibility("hidden")));
extern struct zr_map_root *zr_map_high[512] __attribute__((visibility("hidden")));

static inline struct zr_map_leaf *zr_map_leaf_of(uintptr_t a)
{
    struct zr_map_root *root = &zr_map_low;

    if (__builtin_expect(a >> 48 != 0, 0)) {
        root = __atomic_load_n(&zr_map_high[a >> 48 & 511], __ATOMIC_ACQUIRE);
        if (__builtin_expect(!root, 0))
            return NULL;
    }
    return __atomic_load_n(&root->leaf[a >> 32 & 0xffff], __ATOMIC_ACQUIRE);
}

struct zr_block *zr_map_descend(uint64_t slot, uintptr_t address);

/* What zr_map_look does, by the tree alone: for blocks that are not of the whole-block cache. */
static inline struct zr_block *zr_map_look_in_tree(const void *p, uint64_t *word)
{
    uintptr_t a = (uintptr_t)p;
    struct zr_map_leaf *leaf = zr_map_leaf_of(a);
    struct zr_block *b;
    uint64_t slot;

    if (__builtin_expect(!leaf, 0))
        return NULL;
    slot = __atomic_load_n(&leaf->slot[zr_map_slot_of(a)], __ATOMIC_ACQUIRE);
    if (slot & 1)
        b = zr_map_descend(slot, a);
    else
        b = (struct zr_block *)(slot & 0xffffffffffff);
    if (__builtin_expect(!b, 0))
        return NULL;
    /* The word first: a base read after it belongs to this generation or to a later one. */
    *word = zr_block_word(b);
    if (__builtin_expect(__atomic_load_n(&b->base, __ATOMIC_RELAXED) != a, 0))
        return NULL;
    return b;
}

/*
 * The descriptor whose base may be p, in any state, and its word; NULL when there is none. For those who go
 * on with zr_block_shift, which fails if the block has changed since.
 */
static inline struct zr_block *zr_map_look(const void *p, uint64_t *word)
{
    struct zr_block *b = zr_index_guess(p);

    *word = zr_block_word(b);
    if (__builtin_expect(__atomic_load_n(&b->base, __ATOMIC_RELAXED) == (uintptr_t)p &&
                             zr_word_state(*word) != ZR_BLOCK_NONE,
                         1))
        return b;
    return zr_map_look_in_tree(p, word);
}

/*
 * Puts the block into the map, LIVE. False, and nothing changed, when mmap fails or when a block with the
 * same base is there already (LIVE, CACHED or PARKED): take that one first, if the driver says otherwise.
 */
bool zr_map_insert(struct zr_block *b);

/* The LIVE block with exactly this base, else NULL: the hot path of a free. Lock-free, a few ns. */
static inline struct zr_block *zr_map_base(const void *p)
{
    uint64_t word;
    struct zr_block *b = zr_map_look(p, &word);

    return b && zr_word_state(word) == ZR_BLOCK_LIVE ? b : NULL;
}

/* The LIVE block that holds this address within the size that was asked for, else NULL. Lock-free. */
struct zr_block *zr_map_find(const void *p);

/* heap.c: takes a block of the whole-block cache, which its heap may be freeing without a locked instruction. */
bool zr_take_ours(struct zr_block *b, uint64_t word);

/*
 * Removes the LIVE block with exactly this base and hands it to the caller, who recycles it; NULL when there
 * is none. Of two threads that take one address, one gets it.
 */
static inline struct zr_block *zr_map_take(const void *p)
{
    uint64_t word;
    struct zr_block *b = zr_map_look_in_tree(p, &word);

    if (!b || zr_word_state(word) != ZR_BLOCK_LIVE)
        return NULL;
    if (__builtin_expect(__atomic_load_n(&b->flags, __ATOMIC_RELAXED) & ZR_BLOCK_OURS, 0))
        return zr_take_ours(b, word) ? b : NULL;
    return zr_block_shift(b, word, ZR_BLOCK_NONE) ? b : NULL;
}

/*
 * For the one who may park blocks of this base (lean.h): LIVE to PARKED and back. The way back is a plain store,
 * because whoever has the address from the driver is the only one to touch it; so is the way there while nobody else
 * may take the block. Anybody else removes a parked block with zr_map_evict, which is true for one of those who try: he
 * recycles it.
 */
static inline bool zr_map_park(struct zr_block *b, uint64_t live)
{
    ZR_PAUSE("before a block is parked");
    return zr_block_shift(b, live, ZR_BLOCK_PARKED);
}

static inline bool zr_map_park_alone(struct zr_block *b, uint64_t live)
{
    if (__builtin_expect(zr_block_word(b) != live, 0))
        return false;
    ZR_PAUSE("before a block is parked by its owner alone");
    __atomic_store_n(&b->word, live ^ (ZR_BLOCK_LIVE ^ ZR_BLOCK_PARKED), __ATOMIC_RELEASE);
    return true;
}

static inline void zr_map_revive(struct zr_block *b, uint64_t live)
{
    __atomic_store_n(&b->word, live, __ATOMIC_RELEASE);
}

/*
 * After the driver has refused a free: the block is LIVE again. It may be somebody else's by now, if two threads have
 * freed it at once and the driver has taken it from the other one: then it is left alone.
 */
static inline void zr_map_unpark(struct zr_block *b, uint64_t live)
{
    (void)zr_block_shift(b, live ^ (ZR_BLOCK_LIVE ^ ZR_BLOCK_PARKED), ZR_BLOCK_LIVE);
}

static inline bool zr_map_evict(struct zr_block *b, uint64_t live)
{
    return zr_block_shift(b, live ^ (ZR_BLOCK_LIVE ^ ZR_BLOCK_PARKED), ZR_BLOCK_NONE);
}

void zr_map_fork_child(void);

#endif
