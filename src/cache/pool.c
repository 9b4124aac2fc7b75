/*
 * The pool: segments from the backing, split by best fit and merged when chunks come back, by
 * PyTorch's rules. One lock per pool, which is not held while the backing is called.
 *
 * From a pointer to its allocation: zr_map_find gives the block, which names its segment, which has
 * a table of where allocations begin: an entry per grain in small segments, per 1 MiB in large
 * ones, whose allocations are larger than that. An entry is the chunk that begins there, or the
 * address of one that was freed there, plus one.
 */
#include "cache/cache.h"
#include "cache/fit.h"

#include <sched.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define GRAIN ((size_t)ZR_POOL_GRAIN)
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)
#define MOST ((size_t)1 << 46) /* whatever is larger is for the backing to refuse */

enum {
    WHOLE,
    ALL,
    LISTS
}; /* of segments: the entirely free by the time at which they became so, and all */
enum {
    SMALL,
    LARGE,
    GROUPS,
    TABLE_CLASSES = 48,
    CALLS_PER_CLOCK = 128,
    RECENT = 512,
    MOST_TRIES = 16
};
#define NEVER ((uint32_t)INT32_MAX) /* ages have 31 bits */

struct zr_segment_of_pool {
    struct zr_pool *pool; /* atomic: NULL while it is spare */
    struct zr_block *block;
    uintptr_t base;
    size_t size; /* whole grains */
    struct zr_chunk *first;
    uint64_t live;  /* allocations */
    uint32_t stamp; /* when it became entirely free, */
    uint32_t turn;  /* and at which reading of the clock */
    uint8_t group;
    uint8_t shift;       /* log2 of the bytes per entry of the table */
    uint8_t table_class; /* log2 of the entries that there is room for */
    struct zr_segment_of_pool *newer[LISTS], *older[LISTS]; /* spare: the next one is older[ALL] */
    uintptr_t table[];
};
typedef struct zr_segment_of_pool segment;

struct list {
    segment *newest, *oldest;
};

/* What most calls write comes first: two cache lines. */
struct zr_pool {
    struct zr_lock lock;
    uint32_t calls;
    struct zr_pool_counts counts;
    struct zr_chunk *free[GROUPS]; /* the treaps of fit.h */
    struct zr_chunk *spare_chunks;
    uint64_t openings;     /* frees and new segments ever: after one, what did not fit may fit */
    struct zr_block *gone; /* blocks of segments that have left, until the lock is released */
    struct list list[LISTS];
    uint64_t keep;
    uint32_t idle; /* or NEVER */
    unsigned account;
    struct zr_pool_backing backing;
    struct zr_pool *next; /* in `pools`, or in `spare_pools` */
    segment *spare[TABLE_CLASSES];
    segment *recent[RECENT]; /* where the pointers freed last were, by address: most others are
                                there, too */
};

static struct zr_lock pools_lock;
static struct zr_pool *pools, *spare_pools;
static unsigned walkers; /* threads that walk `pools` without the lock: no pool leaves meanwhile */

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) & ~(to - 1);
}

/* --- segments; the caller holds the lock ------------------------------------------------------ */

static void link_newest(struct zr_pool *pool, unsigned which, segment *s) {
    struct list *list = &pool->list[which];

    s->newer[which] = NULL;
    s->older[which] = list->newest;
    if (list->newest)
        list->newest->newer[which] = s;
    else
        list->oldest = s;
    list->newest = s;
}

static void unlink_segment(struct zr_pool *pool, unsigned which, segment *s) {
    struct list *list = &pool->list[which];

    if (s->newer[which])
        s->newer[which]->older[which] = s->older[which];
    else
        list->newest = s->older[which];
    if (s->older[which])
        s->older[which]->newer[which] = s->newer[which];
    else
        list->oldest = s->newer[which];
}

static uintptr_t *entry_of(segment *s, uintptr_t a) {
    return &s->table[(a - s->base) >> s->shift];
}

/* A blank descriptor, its table cleared; NULL when mmap fails. */
static segment *new_segment(struct zr_pool *pool, unsigned shift, size_t size) {
    unsigned table_class =
        64 - (unsigned)__builtin_clzll((size - 1) >> shift | 7); /* of the last entry */
    size_t bytes = sizeof(segment) + sizeof(uintptr_t) * ((size_t)1 << table_class);
    segment *s = pool->spare[table_class];

    if (s)
        pool->spare[table_class] = s->older[ALL];
    else
        s = bytes <= 64 << 10 ? zr_piece(bytes) : zr_pages(round_up(bytes, 4096));
    if (s) {
        memset(s, 0, bytes);
        s->table_class = (uint8_t)table_class;
    }
    return s;
}

/* Adds a block of the backing as a segment; returns its one chunk, free and in no treap. NULL when
 * mmap fails. */
static struct zr_chunk *add_segment(struct zr_pool *pool, unsigned group, struct zr_block *b) {
    struct zr_chunk *c = zr_chunk_new(&pool->spare_chunks);
    unsigned shift = group == SMALL ? 9 : 20;
    segment *s = c ? new_segment(pool, shift, b->size) : NULL;

    if (!s) {
        if (c)
            zr_chunk_drop(&pool->spare_chunks, c);
        return NULL;
    }
    s->block = b;
    s->base = b->base;
    s->size = b->size;
    s->first = c;
    s->group = (uint8_t)group;
    s->shift = (uint8_t)shift;
    *c = (struct zr_chunk){.base = s->base, .size = s->size, .segment = s};
    link_newest(pool, ALL, s);
    pool->counts.held += b->held;
    if (pool->counts.held > pool->counts.peak_held)
        pool->counts.peak_held = pool->counts.held;
    __atomic_store_n(&s->pool, pool, __ATOMIC_RELEASE);
    __atomic_store_n(&b->segment, s, __ATOMIC_RELEASE);
    return c;
}

/* Takes a segment out of the pool, with all its chunks, for unlock() to give its block back. */
static ZR_COLD void remove_segment(struct zr_pool *pool, segment *s) {
    struct zr_block *b = s->block;

    for (unsigned i = 0; i < RECENT; i++)
        if (pool->recent[i] == s)
            pool->recent[i] = NULL;
    for (struct zr_chunk *c = s->first, *next; c; c = next) {
        next = c->next;
        if (c->up)
            zr_fit_remove(c);
        zr_chunk_drop(&pool->spare_chunks, c);
    }
    pool->counts.held -= b->held;
    pool->counts.backing_frees++;
    __atomic_store_n(&b->segment, NULL, __ATOMIC_RELEASE);
    __atomic_store_n(&s->pool, NULL, __ATOMIC_RELEASE);
    unlink_segment(pool, ALL, s);
    s->older[ALL] = pool->spare[s->table_class];
    pool->spare[s->table_class] = s;
    b->below = pool->gone;
    pool->gone = b;
    zr_leaving(1);
}

/* Releases the lock, and gives back what has left meanwhile. Returns the bytes. */
static uint64_t unlock(struct zr_pool *pool) {
    struct zr_block *gone = pool->gone;
    uint64_t bytes = 0;

    pool->gone = NULL;
    zr_unlock(&pool->lock);
    while (unlikely(gone)) {
        struct zr_block *b = gone;

        gone = b->below;
        bytes += b->held;
        pool->backing.free(pool->backing.arg, b);
        zr_returned(1);
    }
    return bytes;
}

/* Entirely free segments, the longest unused first, until `keep` bytes of such are left. */
static inline void trim_to(struct zr_pool *pool, uint64_t keep) {
    while (unlikely(pool->counts.whole_free > keep)) {
        segment *s = pool->list[WHOLE].oldest;

        unlink_segment(pool, WHOLE, s);
        pool->counts.whole_free -= s->block->held;
        remove_segment(pool, s);
    }
}

/* Gives back segments unused for too long. Only now and then: reading the clock takes a tenth of a
 * call. */
static void tick(struct zr_pool *pool) {
    uint32_t now;
    segment *s;

    if (likely(++pool->calls % CALLS_PER_CLOCK))
        return;
    now = zr_now_ms();
    while ((s = pool->list[WHOLE].oldest)) {
        if ((int32_t)(now - s->stamp) < (int32_t)pool->idle)
            return;
        trim_to(pool, pool->counts.whole_free - 1);
    }
}

static bool is_exported(const segment *s) {
    return zr_block_flags(s->block) & ZR_BLOCK_EXPORTED;
}

static bool segment_is_kept(const segment *s) {
    return !(zr_block_flags(s->block) & (ZR_BLOCK_EXPORTED | ZR_BLOCK_LENT));
}

/* Its last allocation has gone. */
static void became_whole(struct zr_pool *pool, segment *s) {
    uint32_t turn = 1 + pool->calls / CALLS_PER_CLOCK;

    if (!segment_is_kept(s)) {
        remove_segment(pool, s);
        return;
    }
    link_newest(pool, WHOLE, s);
    pool->counts.whole_free += s->block->held;
    if (s->turn != turn) { /* one that comes and goes is stamped once in so many calls */
        s->turn = turn;
        s->stamp = zr_now_ms();
    }
    trim_to(pool, pool->keep);
}

/* --- chunks; the caller holds the lock -------------------------------------------------------- */

/* The best fit in a segment that was not exported, in no treap any more; NULL: there is none. */
static struct zr_chunk *take_best(struct zr_pool *pool, unsigned group, size_t size) {
    struct zr_chunk *c;

    while ((c = zr_fit_best(pool->free[group], size))) {
        segment *s = c->segment;

        zr_fit_remove(c);
        if (s->live == 0) {
            unlink_segment(pool, WHOLE, s);
            pool->counts.whole_free -= s->block->held;
        }
        if (likely(!is_exported(s)))
            break;
        if (s->live == 0)
            remove_segment(pool, s);
    }
    return c;
}

/* Cuts off what lies before the alignment. NULL, and the chunk is free as it was, when mmap fails.
 */
static ZR_COLD struct zr_chunk *align(struct zr_pool *pool, struct zr_chunk *front, size_t before) {
    struct zr_chunk *c = zr_chunk_cut(front, before, &pool->spare_chunks);

    zr_fit_insert(&pool->free[front->segment->group], front);
    if (!c && front->segment->live == 0)
        became_whole(pool, front->segment);
    return c;
}

/* Makes an allocation of a chunk that is in no treap. What is left over becomes free, if it is
 * worth it. */
static void *chunk_allocate(struct zr_pool *pool, struct zr_chunk *c, size_t size,
                            size_t requested) {
    segment *s = c->segment;
    size_t left = c->size - size;
    struct zr_chunk *rest = NULL;

    if (s->group == SMALL ? left >= GRAIN : left > MIB)
        rest = zr_chunk_cut(c, size, &pool->spare_chunks);
    if (rest)
        zr_fit_insert(&pool->free[s->group], rest);
    c->requested = requested;
    *entry_of(s, c->base) = (uintptr_t)c;
    s->live++;
    pool->counts.live++;
    pool->counts.live_bytes += requested;
    return (void *)c->base;
}

static void release(struct zr_pool *pool, struct zr_chunk *c) {
    segment *s = c->segment;

    *entry_of(s, c->base) = c->base | 1;
    s->live--;
    pool->counts.live--;
    pool->counts.live_bytes -= c->requested;
    c->requested = 0;
    if (likely(!is_exported(s)))
        zr_fit_merge(&pool->free[s->group], c, &pool->spare_chunks);
    if (s->live == 0)
        became_whole(pool, s);
}

/* --- malloc and free -------------------------------------------------------------------------- */

/* The chunk of a new segment, in no treap; NULL, and *code. The caller does not hold the lock. */
static struct zr_chunk *try_growing(struct zr_pool *pool, unsigned group, size_t size, int *code) {
    struct zr_block *b = pool->backing.alloc(pool->backing.arg, size, code);
    struct zr_chunk *c;

    if (!b)
        return NULL;
    zr_lock(&pool->lock);
    c = b->base % GRAIN == 0 ? add_segment(pool, group, b) : NULL;
    pool->openings += c != NULL;
    pool->counts.backing_allocs++;
    pool->counts.backing_frees += !c;
    zr_unlock(&pool->lock);
    if (!c) {
        pool->backing.free(pool->backing.arg, b);
        *code = ZR_NO_MEMORY;
    }
    return c;
}

/* The same with the lock held, which it releases meanwhile. Tries PyTorch's segment size, then the
 * size needed. */
static ZR_COLD struct zr_chunk *pool_grow(struct zr_pool *pool, unsigned group, size_t room,
                                          int *code) {
    size_t exact = round_up(room, SMALL_SEGMENT);
    size_t wanted = group == LARGE && room < LARGE_SEGMENT / 2 ? LARGE_SEGMENT : exact;
    struct zr_chunk *c;

    unlock(pool);
    c = try_growing(pool, group, wanted, code);
    if (!c && wanted != exact)
        c = try_growing(pool, group, exact, code);
    zr_lock(&pool->lock);
    return c;
}

int zr_pool_malloc(struct zr_pool *pool, size_t size, size_t alignment, void **out, bool *grew) {
    size_t rounded = size <= MOST ? round_up(size, GRAIN) : 2 * MOST;
    size_t room = alignment > GRAIN ? rounded + alignment - GRAIN : rounded;
    unsigned group = rounded > MIB ? LARGE : SMALL;
    struct zr_chunk *c;
    int code = ZR_NO_MEMORY;

    *out = NULL;
    *grew = false;
    zr_lock(&pool->lock);
    c = take_best(pool, group, room);
    for (int tries = 0; unlikely(!c) && tries < MOST_TRIES; tries++) {
        uint64_t openings = pool->openings;

        *grew = true;
        c = pool_grow(pool, group, room, &code);
        /* Other threads may have freed what fits meanwhile, or room for a segment. */
        if (c || pool->openings == openings)
            break;
        c = take_best(pool, group, room);
    }
    if (c && unlikely(c->base & (alignment - 1)) && alignment > GRAIN)
        c = align(pool, c, -c->base & (alignment - 1));
    if (likely(c))
        *out = chunk_allocate(pool, c, rounded, size);
    tick(pool);
    unlock(pool);
    return likely(*out) ? 0 : code;
}

/* The segment of this pool around p, or NULL. */
static segment *find_segment(struct zr_pool *pool, const void *p) {
    uintptr_t a = (uintptr_t)p;
    segment **recent = &pool->recent[a / SMALL_SEGMENT % RECENT], *s = *recent;
    const struct zr_block *b;

    if (s && a - s->base < s->size)
        return s;
    b = zr_map_find(p);
    if (!b || zr_block_flags(b) & (ZR_BLOCK_DIRECT | ZR_BLOCK_SYCL))
        return NULL;
    s = __atomic_load_n(&b->segment, __ATOMIC_ACQUIRE);
    if (!s || __atomic_load_n(&s->pool, __ATOMIC_ACQUIRE) != pool || a - s->base >= s->size)
        return NULL;
    *recent = s;
    return s;
}

/* The allocation that begins at p, in this segment; NULL if there is none. */
static struct zr_chunk *find_chunk(segment *s, const void *p) {
    uintptr_t entry = s ? *entry_of(s, (uintptr_t)p) : 1;
    struct zr_chunk *c = entry & 1 ? NULL : (struct zr_chunk *)entry;

    return c && c->base == (uintptr_t)p ? c : NULL;
}

/* Why there is none: searches the table below the address. Cold. */
static ZR_COLD enum zr_freed why_not_freed(segment *s, uintptr_t a) {
    uintptr_t *entry = entry_of(s, a);

    if (*entry == (a | 1) && !(a & 1))
        return ZR_FREED_TWICE;
    for (; entry >= s->table; entry--) {
        struct zr_chunk *c = *entry & 1 ? NULL : (struct zr_chunk *)*entry;

        if (c && c->base < a)
            return a - c->base < c->size ? ZR_FREED_INTERIOR : ZR_FREED_UNKNOWN;
    }
    return ZR_FREED_UNKNOWN;
}

enum zr_freed zr_pool_free(struct zr_pool *pool, void *p, size_t *size) {
    enum zr_freed result = ZR_FREED_UNKNOWN;
    struct zr_chunk *c;
    segment *s;

    *size = 0;
    zr_lock(&pool->lock);
    s = find_segment(pool, p);
    c = find_chunk(s, p);
    if (likely(c)) {
        *size = c->requested;
        pool->openings++;
        release(pool, c);
        tick(pool);
        result = ZR_FREED;
    } else if (s) {
        result = why_not_freed(s, (uintptr_t)p);
    }
    unlock(pool);
    return result;
}

size_t zr_pool_usable(struct zr_pool *pool, const void *p) {
    struct zr_chunk *c;
    size_t size;

    zr_lock(&pool->lock);
    c = find_chunk(find_segment(pool, p), p);
    size = c ? c->size : 0;
    zr_unlock(&pool->lock);
    return size;
}

/* --- the pool as a whole ---------------------------------------------------------------------- */

static void init(struct zr_pool *pool, const struct zr_pool_backing *backing, unsigned account) {
    pool->account = account;
    pool->backing = *backing;
    pool->counts = (struct zr_pool_counts){0};
    pool->keep = UINT64_MAX;
    pool->idle = NEVER;
}

struct zr_pool *zr_pool_new(const struct zr_pool_backing *backing, unsigned account) {
    struct zr_pool *pool;

    zr_lock(&pools_lock);
    pool = spare_pools;
    if (pool)
        spare_pools = pool->next;
    else
        pool = zr_piece(sizeof *pool);
    if (pool) {
        init(pool, backing, account);
        pool->next = pools;
        pools = pool;
    }
    zr_unlock(&pools_lock);
    return pool;
}

/* Waits for walkers: the backing may be gone as soon as this has returned. */
void zr_pool_delete(struct zr_pool *pool) {
    struct zr_pool **at = &pools;

    zr_lock(&pools_lock);
    while (walkers) {
        zr_unlock(&pools_lock);
        sched_yield();
        zr_lock(&pools_lock);
    }
    while (*at && *at != pool)
        at = &(*at)->next;
    if (*at)
        *at = pool->next;
    zr_unlock(&pools_lock);
    zr_lock(&pool->lock);
    trim_to(pool, 0);
    while (pool->list[ALL].newest)
        remove_segment(pool, pool->list[ALL].newest);
    unlock(pool);
    zr_lock(&pools_lock);
    pool->next = spare_pools;
    spare_pools = pool;
    zr_unlock(&pools_lock);
}

void zr_pool_set_limits(struct zr_pool *pool, uint64_t keep, uint32_t idle_ms) {
    zr_lock(&pool->lock);
    pool->keep = keep;
    pool->idle = idle_ms < NEVER ? idle_ms : NEVER;
    zr_unlock(&pool->lock);
    zr_pool_trim(pool, keep);
}

uint64_t zr_pool_trim(struct zr_pool *pool, uint64_t keep) {
    zr_lock(&pool->lock);
    trim_to(pool, keep);
    return unlock(pool);
}

/* The first pool of a walk. Pools that are made meanwhile come before it. */
static struct zr_pool *begin_walk(void) {
    struct zr_pool *first;

    zr_lock(&pools_lock);
    walkers++;
    first = pools;
    zr_unlock(&pools_lock);
    return first;
}

static void end_walk(void) {
    zr_lock(&pools_lock);
    walkers--;
    zr_unlock(&pools_lock);
}

uint64_t zr_pools_trim(unsigned account) {
    uint64_t bytes = 0;

    for (struct zr_pool *pool = begin_walk(); pool; pool = pool->next)
        if (account == ZR_ACCOUNTS || pool->account == account)
            bytes += zr_pool_trim(pool, 0);
    end_walk();
    return bytes;
}

void zr_pools_set_limits(unsigned account, uint64_t keep, uint32_t idle_ms) {
    for (struct zr_pool *pool = begin_walk(); pool; pool = pool->next)
        if (pool->account == account)
            zr_pool_set_limits(pool, keep, idle_ms);
    end_walk();
}

void zr_pool_counts(struct zr_pool *pool, struct zr_pool_counts *out) {
    zr_lock(&pool->lock);
    *out = pool->counts;
    zr_unlock(&pool->lock);
}

/* A thread of the parent held its lock, so it may be inconsistent: it starts empty. */
static void pool_forget(struct zr_pool *pool) {
    struct zr_pool_backing backing = pool->backing;
    unsigned account = pool->account;

    memset(pool, 0, sizeof *pool);
    init(pool, &backing, account);
}

/* The map is empty now (zr_cache_fork_child comes first): enters the segments again. */
static void inherit(struct zr_pool *pool) {
    for (segment *s = pool->list[ALL].newest; s; s = s->older[ALL]) {
        s->block->charge = (struct zr_charge){0}; /* the parent's */
        (void)zr_map_insert(s->block);
    }
}

void zr_pool_fork_child(void) {
    struct zr_pool *next;

    for (struct zr_pool *pool = pools; pool; pool = next) {
        next = pool->next;
        if (pool->lock.word)
            pool_forget(pool);
        else
            inherit(pool);
    }
    pools = NULL;
    spare_pools = NULL;
    walkers = 0;
}
