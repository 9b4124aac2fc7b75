/*
 * The descriptor of one block of memory, of any kind: one cache line. Descriptors are type-stable: the
 * memory of one is never given back and never becomes anything else, so a reader without a lock may look
 * at a stale one and notice it, instead of faulting.
 */
#ifndef ZEROUTE_CACHE_BLOCK_H
#define ZEROUTE_CACHE_BLOCK_H

#include "base/kind.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum zr_block_state {
    ZR_BLOCK_NONE,   /* not in the map: new, or taken */
    ZR_BLOCK_LIVE,   /* handed out to the process */
    ZR_BLOCK_CACHED, /* in the map, kept for reuse: no allocation as far as the process can see */
    ZR_BLOCK_PARKED, /* the driver has it back; it stays where it is in the map, for the next one of this base */
    ZR_BLOCK_STATES
};

/* Of a LIVE or PARKED block: a thread may park it without a locked instruction (lean.h). */
#define ZR_WORD_CLAIMED ((uint64_t)1 << 24)

enum zr_block_flags {
    ZR_BLOCK_EXPORTED = 1 << 0, /* its IPC handle was taken: really free it when it is freed */
    ZR_BLOCK_OURS = 1 << 1,     /* from the whole-block cache: zr_cache_free takes it back */
    ZR_BLOCK_MOVED = 1 << 2,    /* `peers` is no longer what its key says: find its key anew */
    ZR_BLOCK_ODD = 1 << 3,      /* never kept: smaller than its size class (memory was short), or asked for */
    ZR_BLOCK_USER = 1 << 16     /* this bit and those above belong to the layer above */
};

struct zr_block {
    uintptr_t base;
    size_t size;   /* as asked */
    size_t held;   /* as taken from the driver */
    uint64_t word; /* atomic: generation << 32 | ZR_WORD_CLAIMED | heap << 8 | enum zr_block_state */
    union {
        void *context;         /* as given by the caller, while in the map */
        struct zr_block *link; /* next in a list, otherwise */
    };
    uint64_t peers;      /* bit n: resident on device n besides its owner */
    union {
        struct {
            union {
                uint32_t flags; /* atomic: enum zr_block_flags */
                uint16_t own;   /* those of the cache alone */
            };
            uint16_t device; /* index, the caller's */
            uint8_t kind;    /* enum zr_kind */
            uint8_t spare;
        };
        uint64_t traits; /* all of these, for one load */
    };
    uint32_t bin;   /* the cache's own: where it belongs by key and size class (heap.h) */
    uint32_t stamp; /* and when it was freed, in milliseconds */
};
_Static_assert(sizeof(struct zr_block) == 64, "a descriptor is one cache line");

/* A blank descriptor, or NULL when mmap fails. A few ns: free lists are per thread, refilled by the batch. */
struct zr_block *zr_block_new(void);

/* For a descriptor that is in no map (never inserted, or taken). Any thread may recycle any descriptor. */
void zr_block_recycle(struct zr_block *b);

/*
 * Fills in where the block lies; call it before zr_map_insert. Other threads may still look at this
 * descriptor through a stale way, so these fields are written atomically, and by this function only.
 */
static inline void zr_block_place(struct zr_block *b, uintptr_t base, size_t size, size_t held)
{
    __atomic_store_n(&b->base, base, __ATOMIC_RELAXED);
    __atomic_store_n(&b->size, size, __ATOMIC_RELAXED);
    __atomic_store_n(&b->held, held, __ATOMIC_RELAXED);
}

static inline uintptr_t zr_block_base(const struct zr_block *b)
{
    return __atomic_load_n(&b->base, __ATOMIC_RELAXED);
}

static inline uint64_t zr_block_word(const struct zr_block *b)
{
    return __atomic_load_n(&b->word, __ATOMIC_ACQUIRE);
}

static inline enum zr_block_state zr_word_state(uint64_t word)
{
    return (enum zr_block_state)(word & 0xff);
}

/* Which heap of the whole-block cache the block is from (heap.h); 0: none. */
static inline unsigned zr_word_heap(uint64_t word)
{
    return word >> 8 & 0xffff;
}

static inline uint32_t zr_word_generation(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

/*
 * Moves a block from the state (and generation) in `word` to `to`; false when somebody was faster. One
 * locked instruction: of two threads that free one pointer exactly one gets true.
 */
static inline bool zr_block_shift(struct zr_block *b, uint64_t word, enum zr_block_state to)
{
    return __atomic_compare_exchange_n(&b->word, &word, (word & ~(uint64_t)0xff) | to, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static inline void zr_block_mark(struct zr_block *b, uint32_t flags)
{
    __atomic_fetch_or(&b->flags, flags, __ATOMIC_RELAXED);
}

/*
 * Calls see(b, arg) for every block that is in the map, in no order; stops when it returns false. Costs a
 * walk over every descriptor there ever was: for context destruction and shutdown, not for a hot path.
 */
void zr_block_each(bool (*see)(struct zr_block *b, void *arg), void *arg);

void zr_block_fork_child(void);
void zr_block_thread_exit(void);

#endif
