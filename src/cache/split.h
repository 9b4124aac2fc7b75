/* Inside the pool: segments, the chunks they are split into, slabs, and the way from an address to its chunk. */
#ifndef ZEROUTE_CACHE_SPLIT_H
#define ZEROUTE_CACHE_SPLIT_H

#include "cache/classes.h"
#include "lock.h"
#include "cache/pool.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum {
    GRAIN = 512,      /* chunks begin and end on multiples of it */
    SMALLEST = 64,    /* smallest object */
    SMALL = 256,      /* largest object of a slab: what would waste half a grain and more */
    SLAB = 2 << 10,
    SLAB_OBJECTS = SLAB / SMALLEST,
    SMALL_CLASSES = SMALL / SMALLEST,
    POOLS = 64,
    WINDOW_BITS = 20, /* of the large group no two blocks begin in one window */
    FAN = 4096,
};
#define MIB ((size_t)1 << 20)
#define GRAINS(size) (((size) + GRAIN - 1) & ~(size_t)(GRAIN - 1))

enum chunk_kind { CHUNK_NONE, CHUNK_FREE, CHUNK_BLOCK, CHUNK_KEPT, CHUNK_SLAB };
enum { GROUP_SMALL, GROUP_LARGE, GROUPS };

/* One cache line. */
struct chunk {
    uintptr_t where; /* atomic: address | kind; read without the lock, to be compared with an address */
    size_t size;
    struct chunk *prev, *next; /* neighbours in the segment */
    union {
        struct chunk *child[2]; /* tree of free chunks: before and after it; list of spare ones */
        uint64_t after;         /* the state of its thread when it was handed out (alone.c) */
    };
    struct segment *segment;
    union {
        struct slab *slab;
        size_t asked;      /* by the user */
        struct chunk **up; /* what leads to it in the tree */
    };
};
_Static_assert(sizeof(struct chunk) == 64, "one line");

static inline uintptr_t base_of(const struct chunk *c)
{
    return __atomic_load_n(&c->where, __ATOMIC_RELAXED) & ~(uintptr_t)(GRAIN - 1);
}

static inline enum chunk_kind kind_of(const struct chunk *c)
{
    return (enum chunk_kind)(__atomic_load_n(&c->where, __ATOMIC_RELAXED) & (GRAIN - 1));
}

/* Is that the start of a chunk of this kind? Inner addresses have other low bits. */
static inline bool is_at(uintptr_t where, uintptr_t a, enum chunk_kind kind)
{
    return where == (a | (uintptr_t)kind) && a % GRAIN == 0;
}

static inline void set_where(struct chunk *c, uintptr_t base, enum chunk_kind kind)
{
    __atomic_store_n(&c->where, base | (uintptr_t)kind, __ATOMIC_RELEASE);
}

struct segment {
    size_t size;
    uint8_t group;
    uint8_t set;    /* which of the group's bins its free chunks are in */
    uint32_t stamp; /* when it became entirely free */
    void *from;     /* as the backing gave it */
    size_t from_size;
    struct chunk *first;
    struct segment *prev, *next;
};

/* Objects of one class. `state` is written by whoever holds the object; the rest belongs to the lock. */
struct slab {
    uint16_t state[SLAB_OBJECTS]; /* atomic: the size asked for while the user has it, else 0 */
    uint16_t free[SLAB_OBJECTS];  /* stack of objects that are in no thread's hands */
    uint32_t count, total;
    uint32_t size, inverse; /* n / size is n * inverse >> 32 for n below SLAB */
    uint32_t size_class;
    bool listed;
    struct slab *prev, *next; /* of those with something free */
    struct chunk *chunk;
};

/* Free chunks by size, in eight steps per doubling; in each bin a tree by size, then address. */
enum { FIT_BINS = 40 * 8, FIT_WORDS = FIT_BINS / 64 };
struct bins {
    struct chunk *tree[FIT_BINS];
    uint64_t filled[FIT_WORDS];
};

/*
 * Three sets of bins per group, and who they are changes (again.c): those in use; whole segments put aside
 * when nothing lived any more; whole segments that a program which repeats itself has not asked for yet.
 */
enum { SETS = 3 };
struct group {
    struct bins bins[SETS];
    struct segment *segments;
    uint64_t bytes, whole_free;
};

/* From an address, by bits 44 to 55, 32 to 43, and 20 to 31: a chunk, or the grains of this window. */
struct window {
    struct chunk *at[(1 << WINDOW_BITS) / GRAIN]; /* the chunk that begins here, or the slab around it */
    char colour[64]; /* blocks at the same place of their windows fall into different sets of the processor's cache */
};
struct leaf {
    uintptr_t at[FAN]; /* atomic: struct chunk, or struct window with bit 0 set */
};
struct branch {
    struct leaf *at[FAN];
};
struct stem {
    struct branch *at[FAN];
};

/* What the program asked for first since everything was last put aside. */
enum { RECORD = 32 };
struct record {
    size_t size[RECORD];
    unsigned count;
    unsigned met;   /* so many of them have come again */
    bool undecided; /* nothing lived a while ago: the same again, or something new? */
};

struct zr_pool {
    struct zr_pool_backing backing;
    uint64_t serial;
    unsigned id;
    bool shared;           /* more than one thread: the lock counts (quick.h) */
    bool no_membarrier;    /* there was one: every front is wanted for good */
    uint8_t in_use, aside, later; /* which set is which */
    struct bins *use[GROUPS];     /* the bins in use of each group */
    unsigned members[SETS];       /* segments */
    uint64_t quick_limit;  /* atomic: bytes that one thread may keep */
    uintptr_t root;        /* what the first request after nothing lived got */
    size_t root_size;
    struct segment *root_segment;
    struct zr_lock lock;
    struct front *fronts;
    uint64_t held, peak_held, allocs, frees;
    uint64_t keep;
    uint32_t idle;
    uint32_t calls; /* the clock is read every 64th */
    uint32_t now, last_sweep;
    struct record record;
    struct slab *partial[SMALL_CLASSES];
    struct chunk *spare_chunks;
    struct segment *spare_segments;
    struct slab *spare_slabs;
    struct group group[GROUPS];
    struct stem stem;
};

/*
 * find.c. The chunk that is said to be at an address: check its base, it may long be elsewhere. No lock
 * needed. Three loads for large blocks, four for small ones.
 */
static inline struct chunk *zr_find(const struct zr_pool *pool, const void *p)
{
    uintptr_t a = (uintptr_t)p, entry;
    struct branch *branch = __atomic_load_n(&pool->stem.at[a >> 44 & (FAN - 1)], __ATOMIC_ACQUIRE);
    struct leaf *leaf;

    if (unlikely(!branch))
        return NULL;
    leaf = __atomic_load_n(&branch->at[a >> 32 & (FAN - 1)], __ATOMIC_ACQUIRE);
    if (unlikely(!leaf))
        return NULL;
    entry = __atomic_load_n(&leaf->at[a >> WINDOW_BITS & (FAN - 1)], __ATOMIC_ACQUIRE);
    if (entry & 1) {
        struct window *w = (struct window *)(entry - 1);

        return __atomic_load_n(&w->at[(a & (((uintptr_t)1 << WINDOW_BITS) - 1)) / GRAIN], __ATOMIC_ACQUIRE);
    }
    return (struct chunk *)entry;
}
/* All below with the lock held, or alone. Make zr_find find it for these bytes; false: no memory. */
bool zr_find_set_all(struct zr_pool *pool, struct chunk *c, uintptr_t from, size_t size);
bool zr_find_by_grains(struct zr_pool *pool, uintptr_t from, size_t size); /* several blocks may begin in a window */

/* Make zr_find find it at its start. */
static inline bool zr_find_set(struct zr_pool *pool, struct chunk *c)
{
    uintptr_t a = base_of(c);
    struct branch *branch = pool->stem.at[a >> 44 & (FAN - 1)];
    struct leaf *leaf = likely(branch) ? branch->at[a >> 32 & (FAN - 1)] : NULL;
    uintptr_t *entry = likely(leaf) ? &leaf->at[a >> WINDOW_BITS & (FAN - 1)] : NULL;

    if (unlikely(!entry || *entry & 1))
        return zr_find_set_all(pool, c, a, GRAIN);
    __atomic_store_n(entry, (uintptr_t)c, __ATOMIC_RELEASE);
    return true;
}

/* split.c. A chunk of so many bytes, a multiple of GRAIN; NULL: see the code. */
struct chunk *zr_split_take(struct zr_pool *pool, size_t size, int *code);
/* For the user: out, and found by its address. Any size and alignment. */
struct chunk *zr_split_take_block(struct zr_pool *pool, size_t size, size_t alignment, int *code);
void zr_split_give(struct zr_pool *pool, struct chunk *c);
uint64_t zr_split_trim(struct zr_pool *pool, uint64_t keep, uint32_t min_age);
void zr_split_move(struct zr_pool *pool, unsigned from, unsigned to); /* everything, from set to set */
void zr_split_adopt(struct zr_pool *pool, struct segment *s, unsigned to); /* its free chunks, to this set */
/* Another set is in use now: hot paths go by pointers. */
static inline void zr_split_use(struct zr_pool *pool, unsigned set)
{
    pool->in_use = (uint8_t)set;
    for (unsigned i = 0; i < GROUPS; i++)
        pool->use[i] = &pool->group[i].bins[set];
}
/* Would this chunk, if it were filed as it is, be the best fit for this size? */
bool zr_split_is_first(struct zr_pool *pool, const struct chunk *c, size_t size);

/* quick.c: everything that threads keep goes back and is merged; true: there was something. Alone, or with the lock. */
bool zr_front_gather(struct zr_pool *pool);

/* again.c */
void zr_again_cross(struct zr_pool *pool, size_t size); /* nothing lives, and this is asked for */
void zr_again_note(struct zr_pool *pool, size_t size);  /* this is asked for */
void zr_again_go_on(struct zr_pool *pool);              /* something new: use everything there is */

#endif
