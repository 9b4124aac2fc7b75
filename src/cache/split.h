/* Inside the pool: segments, the chunks they are split into, slabs, and the way from an address to its chunk. */
#ifndef ZEROUTE_CACHE_SPLIT_H
#define ZEROUTE_CACHE_SPLIT_H

#include "cache/classes.h"
#include "cache/fit.h"
#include "base/pages.h"
#include "base/lock.h"
#include "cache/pool.h"

enum {
    SMALLEST = 64,    /* smallest object */
    SMALL = 256,      /* largest object of a slab: what would waste half a grain and more */
    SLAB = 2 << 10,
    SLAB_OBJECTS = SLAB / SMALLEST,
    SMALL_CLASSES = SMALL / SMALLEST,
    POOLS = 64,
    WINDOW_BITS = 20, /* of the large group no two blocks begin in one window */
    PANE_BITS = 16,
    PANES = 1 << (WINDOW_BITS - PANE_BITS),
    PANE_GRAINS = (1 << PANE_BITS) / GRAIN,
    FAN = 4096,
};
#define MIB ((size_t)1 << 20)
#define GRAINS(size) (((size) + GRAIN - 1) & ~(size_t)(GRAIN - 1))

enum { GROUP_SMALL, GROUP_LARGE, GROUPS };

struct segment {
    size_t size;
    uint8_t group;
    uint8_t set;    /* which of the group's bins its free chunks are in */
    uint32_t stamp; /* when it became entirely free */
    void *from;     /* as the backing gave it */
    size_t from_size;
    struct chunk *first;
    struct segment *newer, *older;
    uint64_t born;  /* so many there had been before it, */
    uint64_t place; /* and where the program was then (again.c) */
    struct segment *same;
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

/*
 * Three sets of bins per group, and who they are changes (again.c): those in use; whole segments put aside
 * when nothing lived any more; whole segments that a program which repeats itself has not asked for yet.
 */
enum { SETS = 3 };
struct group {
    struct bins bins[SETS];
    struct segment *newest, *oldest;
};

/*
 * From an address, by bits 44 to 55, 32 to 43, and 20 to 31: a chunk, or the panes of this window; from there a chunk,
 * or, once two begin in a pane, its grains.
 */
struct pane {
    uintptr_t at[PANE_GRAINS]; /* atomic: the chunk that begins here, or the slab around it */
};
struct window {
    uintptr_t at[PANES]; /* atomic: struct chunk, or struct pane with bit 0 set */
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
enum { RECORD = 32, FROM_NOTHING = 1 };
struct record {
    size_t size[RECORD]; /* with FROM_NOTHING where nothing lived before it: steps that are short do not look alike */
    size_t next;         /* what the next one has of that */
    unsigned count;
    unsigned met;     /* so many of them have come again */
    bool undecided;   /* nothing lived a while ago: the same again, or something new? */
    uint64_t path;    /* if it is something new: of the pool, until then, */
    uint32_t crossed; /* and how often */
};

/* Where a program did something else than before, and how many segments had been new until then. */
enum { PLACES = 4096, DEPARTURES = 4096 };
struct departure {
    uint64_t at, born;
};

/* For whoever is alone, or has the lock: the leaves of these 4 GiB. */
enum { NEAR = 8 };
struct near {
    uintptr_t high; /* the address beyond bit 31 */
    struct leaf *leaf;
};

struct zr_pool {
    struct zr_pool_backing backing;
    uint64_t serial;
    unsigned id;
    bool shared;           /* more than one thread: the lock counts (quick.h) */
    bool no_membarrier;    /* there was one: every front is wanted for good */
    bool inherited;        /* by a child of fork: what other threads were at was never finished */
    uint8_t in_use, aside, later; /* which set is which */
    struct bins *use[GROUPS];     /* the bins in use of each group */
    struct chunk *spare_chunks;
    uint64_t quick_limit; /* atomic: bytes that one thread may keep */
    uint32_t calls;       /* the clock is read every 128th */
    uint64_t tiny;        /* alone: blocks that are out and would have fitted into a slab */
    bool noting;          /* what is asked for is of interest (again.c) */
    uint64_t whole_free;  /* bytes in segments that are entirely free, */
    uint64_t whole_most;  /* and beyond which it matters that one more is so */
    struct chunk edge __attribute__((aligned(64))); /* the neighbour of the first and of the last of a segment */
    struct near near[NEAR];
    unsigned members[SETS]; /* segments */
    uintptr_t root;         /* what the first request after nothing lived got */
    size_t root_size;
    struct segment *root_segment;
    struct zr_lock lock;
    struct zr_pool *next_spare;
    struct front *fronts;
    uint64_t bytes; /* in segments */
    uint64_t held, peak_held, allocs, frees;
    uint64_t keep;
    uint32_t idle;
    uint32_t now, last_sweep;
    /* Where the program is (again.c): how often nothing lived since it began, calls until the last time, departures. */
    uint32_t crossed, since;
    uint64_t path;
    uint64_t born; /* segments, ever */
    struct record record;
    struct segment *by_place[PLACES];
    unsigned departures;
    struct departure departure[DEPARTURES];
    struct slab *partial[SMALL_CLASSES];
    struct segment *spare_segments;
    struct slab *spare_slabs;
    struct group group[GROUPS];
    struct stem stem;
};

/*
 * find.c. The chunk that is said to be at an address: check its base, it may long be elsewhere. No lock
 * needed. Three loads for large blocks, four or five for small ones.
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
    if (entry & 1)
        entry = __atomic_load_n(&((struct window *)(entry - 1))->at[a >> PANE_BITS & (PANES - 1)], __ATOMIC_ACQUIRE);
    if (entry & 1)
        entry = __atomic_load_n(&((struct pane *)(entry - 1))->at[a / GRAIN & (PANE_GRAINS - 1)], __ATOMIC_ACQUIRE);
    return (struct chunk *)entry;
}

/*
 * All below with the lock held, or alone. Where it is said: a place that holds a pointer to the chunk. No branch: how
 * close together blocks lie changes from one to the next.
 */
static inline uintptr_t *zr_find_within(uintptr_t *at, uintptr_t was, uintptr_t index)
{
    return (uintptr_t *)((uintptr_t)at ^ (((uintptr_t)at ^ (was - 1 + index * sizeof was)) & -(was & 1)));
}

static inline uintptr_t *zr_find_place(struct leaf *leaf, uintptr_t a)
{
    uintptr_t *at = &leaf->at[a >> WINDOW_BITS & (FAN - 1)];

    at = zr_find_within(at, __atomic_load_n(at, __ATOMIC_RELAXED), a >> PANE_BITS & (PANES - 1));
    return zr_find_within(at, __atomic_load_n(at, __ATOMIC_RELAXED), a / GRAIN & (PANE_GRAINS - 1));
}

struct leaf *zr_find_leaf(struct zr_pool *pool, uintptr_t a); /* NULL: nothing was ever there */

static inline struct leaf *zr_find_near(struct zr_pool *pool, uintptr_t a)
{
    const struct near *n = &pool->near[a >> 32 & (NEAR - 1)];

    return likely(n->high == a >> 32) ? n->leaf : zr_find_leaf(pool, a);
}

/* As zr_find: about twenty instructions. */
static inline struct chunk *zr_find_alone(struct zr_pool *pool, uintptr_t a)
{
    struct leaf *leaf = zr_find_near(pool, a);

    return likely(leaf) ? (struct chunk *)__atomic_load_n(zr_find_place(leaf, a), __ATOMIC_RELAXED) : NULL;
}

/* Makes zr_find find it at its start, in a segment. False: no memory. */
bool zr_find_set_by_grains(struct window *window, struct chunk *c, uintptr_t a);
static inline bool zr_find_set(struct zr_pool *pool, struct chunk *c)
{
    uintptr_t a = base_of(c), *at = &zr_find_near(pool, a)->at[a >> WINDOW_BITS & (FAN - 1)], was = *at;

    if (was & 1) {
        struct window *window = (struct window *)(was - 1);

        at = &window->at[a >> PANE_BITS & (PANES - 1)];
        was = *at;
        if (was & 1)
            at = &((struct pane *)(was - 1))->at[a / GRAIN & (PANE_GRAINS - 1)];
        else if (was && unlikely(base_of((struct chunk *)was) >> PANE_BITS == a >> PANE_BITS) && was != (uintptr_t)c)
            return zr_find_set_by_grains(window, c, a); /* another one begins near by: they are told apart now */
    }
    __atomic_store_n(at, (uintptr_t)c, __ATOMIC_RELEASE);
    return true;
}

bool zr_find_set_all(struct zr_pool *pool, struct chunk *c); /* a slab, everywhere in it */
/* For a new segment; `by_panes`: several blocks may begin in a window. False: no memory. */
bool zr_find_reach(struct zr_pool *pool, uintptr_t from, size_t size, bool by_panes);

/* again.c */
void zr_again_cross(struct zr_pool *pool, size_t size); /* nothing lives, and this is asked for */
void zr_again_note(struct zr_pool *pool, size_t size);  /* this is asked for */
void zr_again_root(struct zr_pool *pool);               /* both, for the root, which was served already */
void zr_again_go_on(struct zr_pool *pool, size_t size); /* this is something new: use what was put aside */
void zr_again_end(struct zr_pool *pool);                /* use everything there is */
uint64_t zr_again_place(const struct zr_pool *pool, size_t size); /* where the program is, when this does not fit */
struct segment *zr_again_find(const struct zr_pool *pool, uint64_t at, unsigned set); /* new in this place, or NULL */
void zr_again_depart(struct zr_pool *pool, uint64_t at); /* there is none: use what there was when this was so first */
void zr_again_enlist(struct zr_pool *pool, struct segment *s, uint64_t at); /* it is new */
void zr_again_delist(struct zr_pool *pool, const struct segment *s);

/* split.c. Nothing fits: a chunk from elsewhere, not split yet; NULL: see the code. */
struct chunk *zr_split_grow(struct zr_pool *pool, unsigned group, size_t size, int *code);
struct chunk *zr_split_take_aligned(struct zr_pool *pool, size_t size, size_t alignment, int *code);

static inline bool zr_is_whole(const struct zr_pool *pool, const struct chunk *c)
{
    return (((uintptr_t)c->prev ^ (uintptr_t)&pool->edge) | ((uintptr_t)c->next ^ (uintptr_t)&pool->edge)) == 0;
}

/* Something lives in the segment, or did until now: it is in use. */
static INLINE void zr_split_file(struct zr_pool *pool, unsigned group, struct chunk *c)
{
    set_where(c, base_of(c), CHUNK_FREE);
    fit_insert(pool->use[group], c);
}

static inline struct chunk *zr_chunk_new(struct zr_pool *pool)
{
    struct chunk *c = pool->spare_chunks;

    if (unlikely(!c))
        return zr_piece(sizeof *c);
    pool->spare_chunks = c->sibling;
    return c;
}

static inline void zr_chunk_drop(struct zr_pool *pool, struct chunk *c)
{
    set_where(c, 0, CHUNK_NONE);
    c->sibling = pool->spare_chunks;
    pool->spare_chunks = c;
}

/* Cuts off what is behind the first `size` bytes and files it as free, unless there is no memory. */
static INLINE void zr_split_off(struct zr_pool *pool, unsigned group, struct chunk *c, size_t size)
{
    struct chunk *rest = zr_chunk_new(pool), *next = c->next;

    if (unlikely(!rest))
        return;
    set_where(rest, base_of(c) + size, CHUNK_NONE);
    if (unlikely(!zr_find_set(pool, rest))) {
        zr_chunk_drop(pool, rest);
        return;
    }
    rest->size = c->size - size;
    rest->segment = c->segment;
    rest->prev = c;
    rest->next = next;
    next->prev = rest;
    c->next = rest;
    c->size = size;
    zr_split_file(pool, group, rest);
}

/* Chunks that are too small for anything of their group stay with the block in front of them. */
static INLINE void zr_split_fit(struct zr_pool *pool, unsigned group, struct chunk *c, size_t size)
{
    if (c->size - size > (group == GROUP_SMALL ? 0 : MIB))
        zr_split_off(pool, group, c, size);
}

/* A chunk of so many bytes, a multiple of GRAIN, found by its address; NULL: see the code. */
static INLINE struct chunk *zr_split_take(struct zr_pool *pool, size_t size, int *code)
{
    unsigned group = size > MIB;
    struct chunk *c;

    if (unlikely(pool->noting))
        zr_again_note(pool, size);
    c = fit_take(pool->use[group], size);
    if (unlikely(!c)) {
        c = zr_split_grow(pool, group, size, code);
        if (!c)
            return NULL;
    } else {
        pool->whole_free -= c->size & -(size_t)zr_is_whole(pool, c);
    }
    zr_split_fit(pool, group, c, size);
    return c;
}

/* For the user: out. Any size and alignment. */
static INLINE struct chunk *zr_split_take_block(struct zr_pool *pool, size_t size, size_t alignment, int *code)
{
    struct chunk *c = likely(alignment <= GRAIN) ? zr_split_take(pool, GRAINS(size), code)
                                                 : zr_split_take_aligned(pool, GRAINS(size), alignment, code);

    if (unlikely(!c))
        return NULL;
    c->asked = size;
    set_where(c, base_of(c), CHUNK_BLOCK);
    return c;
}

void zr_split_look_at(struct zr_pool *pool, struct segment *s); /* it is entirely free now: is enough kept? */

/* Blocks of the large group are larger than any of the small one. */
static inline unsigned zr_group_of(const struct chunk *out)
{
    return out->size > MIB;
}

/* It comes back, and becomes one with its free neighbours. */
static INLINE void zr_split_merge(struct zr_pool *pool, struct chunk *c)
{
    struct chunk *prev = c->prev, *next = c->next;
    unsigned group = zr_group_of(c);
    struct bins *bins = pool->use[group];

    if (kind_of(next) == CHUNK_FREE) {
        struct chunk *beyond = next->next;

        fit_remove(bins, next);
        c->size += next->size;
        c->next = beyond;
        beyond->prev = c;
        zr_chunk_drop(pool, next);
    }
    if (kind_of(prev) == CHUNK_FREE) {
        bool hidden = prev->size <= MIB && group == GROUP_LARGE; /* in the same window as the block behind it */

        fit_remove(bins, prev);
        prev->size += c->size;
        prev->next = c->next;
        c->next->prev = prev;
        zr_chunk_drop(pool, c);
        c = prev;
        if (unlikely(hidden))
            (void)zr_find_set(pool, c); /* its place is there */
    }
    zr_split_file(pool, group, c);
    pool->whole_free += c->size & -(size_t)zr_is_whole(pool, c);
    if (unlikely(pool->whole_free > pool->whole_most) && zr_is_whole(pool, c))
        zr_split_look_at(pool, c->segment);
}
void zr_split_give(struct zr_pool *pool, struct chunk *c); /* the same, as a call */

void zr_split_end(struct zr_pool *pool); /* all segments go back, whatever is out of them */
uint64_t zr_split_trim(struct zr_pool *pool, uint64_t keep, uint32_t min_age);
/* Segments that came before so many others, from set to set. */
void zr_split_move(struct zr_pool *pool, unsigned from, unsigned to, uint64_t born);
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

#endif
