/*
 * What a thread keeps of a pool, and who may touch what.
 *
 * A front belongs to one thread and one pool. As long as a pool has a single front, its thread is alone
 * (alone.c): it enters with two plain instructions and works on everything, without a lock and without any
 * locked instruction. From the second front on the pool's lock guards what threads share, for good, and a
 * thread is only inside its own front that way. Whoever must reach into the fronts of others seizes them:
 * with the lock held it sets `wanted`, has the kernel run a memory barrier in every thread of the process,
 * and waits until nobody is inside. Where the kernel has no membarrier, everything is done with the lock held.
 *
 * With several threads, each keeps freed blocks by the size that was asked for, not merged; all are merged
 * before anything else is placed by that thread, and by every thread before the backing is asked.
 */
#ifndef ZEROUTE_CACHE_QUICK_H
#define ZEROUTE_CACHE_QUICK_H

#include "cache/pause.h"
#include "cache/split.h"

enum { MAGAZINE = 32, QUICK_BINS = 64, QUICK_MOST = 6, CALLS_PER_CLOCK = 128 };

/*
 * Alone, so many requests that fit into a slab get a block each, where PyTorch would place it: together they take one
 * small segment, and slabs that lie otherwise now and then cost one more than they save.
 */
enum { FEW = 4096 };

struct object {
    void *p;
    uint16_t *state;
};

struct shelf {
    uint32_t count;
    uint32_t full;
    struct object object[MAGAZINE];
};

/* Blocks of one size. */
struct quick {
    size_t size;
    uint64_t count;
    struct chunk *chunk[QUICK_MOST];
};
_Static_assert(sizeof(struct quick) == 64, "one line");

struct front {
    uint32_t inside;
    uint32_t wanted; /* not 0: go the slow way */
    uint64_t serial; /* of the pool: another one may have its place by now */
    struct front *next;
    /* alone */
    int64_t out; /* handed out less taken back */
    int64_t hold; /* with no more than so many out, something is about to begin */
    struct chunk *last;
    uint64_t state; /* a number for what is free now: unchanged since, nothing came or went */
    uint32_t root_hits;
    uint32_t root_calls; /* of the pool, at the last of them */
    bool exact; /* when the last one was freed, nothing had come or gone since it was handed out */
    /* with others */
    uint32_t ticks;
    uint64_t filled; /* bit by bin */
    uint64_t bytes;  /* in bins */
    struct quick quick[QUICK_BINS] __attribute__((aligned(64)));
    struct shelf of[SMALL_CLASSES];
};

extern _Thread_local struct front *zr_fronts[POOLS];

static inline bool front_enter(struct front *f)
{
    __atomic_store_n(&f->inside, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (likely(__atomic_load_n(&f->wanted, __ATOMIC_ACQUIRE) == 0)) {
        ZR_PAUSE("inside a front");
        return true;
    }
    __atomic_store_n(&f->inside, 0, __ATOMIC_RELEASE);
    return false;
}

static inline void front_leave(struct front *f)
{
    __atomic_store_n(&f->inside, 0, __ATOMIC_RELEASE);
}

/* This thread's, if it has one that is good for the pool. */
static inline struct front *front_of(const struct zr_pool *pool)
{
    struct front *f = likely(pool->id < POOLS) ? zr_fronts[pool->id] : NULL;

    return likely(f) && likely(f->serial == pool->serial) ? f : NULL;
}

static inline bool is_small(size_t size, size_t alignment)
{
    return size <= SMALL && alignment <= SMALL;
}

/* The class whose objects are large enough and aligned: slabs begin on a grain, so its size decides. */
static inline unsigned small_class(size_t size, size_t alignment)
{
    unsigned c = zr_class_of(size);

    if (unlikely(alignment > SMALLEST))
        while (zr_class_size(c) & (alignment - 1))
            c++;
    return c;
}

static inline bool zr_quick_is_out(const struct chunk *c)
{
    return kind_of(c) == CHUNK_BLOCK || kind_of(c) == CHUNK_SLAB;
}

/* alone.c: inside, and the pool is not shared. The size is not 0 and no nonsense. They leave. */
int zr_alone_malloc(struct zr_pool *pool, size_t size, size_t alignment, void **out, struct front *f);
enum zr_freed zr_alone_free(struct zr_pool *pool, void *p, size_t *asked, struct front *f);

/* quick.c. This thread's front, made if need be; NULL at a thread's end or without memory. Not inside, no lock held. */
struct front *zr_front(struct zr_pool *pool);
void zr_front_forget(struct zr_pool *pool, struct front *f); /* empty, with the lock held */
/* What a front keeps goes back; inside it, or with the lock held and it seized. */
void zr_front_merge(struct zr_pool *pool, struct front *f); /* blocks */
bool zr_front_empty(struct zr_pool *pool, struct front *f); /* and objects; true: there were some */

/* With the lock held: nobody is inside any front until it is released. */
void zr_front_seize_all(struct zr_pool *pool);
void zr_front_release_all(struct zr_pool *pool);
void zr_front_share(struct zr_pool *pool);     /* no thread is alone any more */
void zr_front_set_limit(struct zr_pool *pool); /* how much each may keep, when `keep` has changed */
void zr_front_look_at_clock(struct zr_pool *pool);

/* On every call that may change something behind the fronts: alone or with the lock held. */
static inline void zr_front_pass_time(struct zr_pool *pool)
{
    if (unlikely(++pool->calls % CALLS_PER_CLOCK == 0))
        zr_front_look_at_clock(pool);
}

/* slab.c: objects of up to SMALL bytes. With the lock held, or alone. */
bool zr_slab_fill_shelf(struct zr_pool *pool, struct shelf *shelf, unsigned size_class, int *code); /* an empty one */
bool zr_slab_take(struct zr_pool *pool, unsigned size_class, struct object *o, int *code);
void zr_slab_give(struct zr_pool *pool, struct slab *s, const uint16_t *state);
void zr_slab_empty_shelf(struct zr_pool *pool, struct shelf *shelf, uint32_t keep);
void zr_slab_drop_empty(struct zr_pool *pool); /* those that are kept although nothing is out of them */

/* An object of a slab: which, or NULL. */
static inline uint16_t *zr_slab_object(struct slab *s, uintptr_t offset)
{
    uint32_t n = (uint32_t)(offset * s->inverse >> 32);

    return likely(offset < SLAB && n * s->size == offset) ? &s->state[n] : NULL;
}

#endif
