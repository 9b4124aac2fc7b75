/* Inside the pool: segments, the chunks they are split into, and the way from an address to its chunk. */
#ifndef ZEROUTE_CACHE_SPLIT_H
#define ZEROUTE_CACHE_SPLIT_H

#include "cache/classes.h"
#include "lock.h"
#include "cache/pool.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum {
    GRAIN = 512,        /* chunks begin and end on multiples of it */
    SMALLEST = 64,      /* smallest object */
    SMALL = 16 << 10,   /* largest object of a slab */
    SLAB = 64 << 10,
    SLAB_OBJECTS = SLAB / SMALLEST,
    SMALL_CLASSES = ZR_CLASS_SMALL + 5 * 8,
    MAGAZINE = 32,
    POOLS = 64,
};

enum chunk_kind { CHUNK_NONE, CHUNK_FREE, CHUNK_BLOCK, CHUNK_SLAB };
enum { GROUP_SMALL, GROUP_LARGE, GROUPS };

struct chunk {
    uintptr_t base; /* atomic: read without the lock, to be compared with an address */
    size_t size;
    struct chunk *prev, *next;  /* neighbours in the segment */
    struct chunk *left, *right; /* tree of free chunks; list of spare ones */
    struct segment *segment;
    struct slab *slab;
    uint32_t priority;
    uint8_t kind; /* atomic */
    uint8_t group;
    bool reserved; /* filed in the group's reserve */
};

struct segment {
    uintptr_t base;
    size_t size;
    void *from; /* as the backing gave it */
    size_t from_size;
    struct chunk *first;
    struct segment *prev, *next;
    uint32_t stamp; /* when it became entirely free */
};

/* Objects of one class. `state` is written by whoever holds the object; the rest belongs to the lock. */
struct slab {
    uint8_t state[SLAB_OBJECTS]; /* atomic: 1 while the user has it */
    uint16_t free[SLAB_OBJECTS]; /* stack of objects that are in no thread's hands */
    uint32_t count, total;
    uint32_t size, inverse; /* n / size is n * inverse >> 32 for n below SLAB */
    uint32_t size_class;
    bool listed;
    struct slab *prev, *next; /* of those with something free */
    struct chunk *chunk;
};

/* Free chunks by size class; in each a tree by size, then address. */
struct bins {
    struct chunk *tree[ZR_CLASSES];
    uint64_t filled[(ZR_CLASSES + 63) / 64];
};

struct group {
    struct bins free;
    struct bins reserve; /* whole segments, put aside when nothing lived in the group any more */
    struct segment *segments;
    uint64_t bytes, whole_free;
};

/* From an address, by bits 45 to 56, 33 to 44, 21 to 32, and 9 to 20. */
struct leaf {
    struct chunk *at[4096]; /* by grains: the chunk that begins here, or the slab around it */
};
struct branch {
    struct leaf *at[4096];
};
struct bough {
    struct branch *at[4096];
};
struct stem {
    struct bough *at[4096];
};

struct zr_pool {
    struct zr_pool_backing backing;
    uint64_t serial;
    unsigned id;
    struct zr_lock lock;
    uint64_t held, peak_held, allocs, frees;
    uint64_t keep;
    uint32_t idle;
    uint32_t calls; /* under the lock: the clock is read every 64th */
    uint32_t now, last_sweep;
    uint32_t trims; /* atomic: threads give back what they keep when it has changed */
    struct group group[GROUPS];
    struct slab *partial[SMALL_CLASSES];
    struct chunk *spare_chunks;
    struct segment *spare_segments;
    struct slab *spare_slabs;
    struct stem stem;
};

/* The chunk that is said to be at an address: check its base, it may long be elsewhere. No lock needed. */
struct chunk *zr_split_look(const struct zr_pool *pool, const void *p);

/* All with the lock held. Sizes are multiples of GRAIN, alignment is a power of two. */
struct chunk *zr_split_take(struct zr_pool *pool, size_t size, size_t alignment, int *code);
void zr_split_give(struct zr_pool *pool, struct chunk *c);
uint64_t zr_split_trim(struct zr_pool *pool, uint64_t keep, uint32_t min_age);
bool zr_split_point(struct zr_pool *pool, struct chunk *c, size_t size); /* make zr_split_look find it */

#endif
