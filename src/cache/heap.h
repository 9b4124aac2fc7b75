/*
 * Inside the whole-block cache: what a thread keeps, what threads share, and who may touch which.
 *
 * A heap belongs to one thread and one cache. Its owner enters it with two plain instructions and no locked
 * one. Another thread that must reach in (a trim has to empty all magazines) seizes all heaps: it
 * sets `wanted`, has the kernel run a memory barrier in every thread of the process (membarrier, some
 * microseconds), and waits until no owner is inside. Where the kernel has no membarrier, owners enter
 * with a locked instruction instead.
 */
#ifndef ZEROUTE_CACHE_HEAP_H
#define ZEROUTE_CACHE_HEAP_H

#include "cache/cache.h"
#include "cache/classes.h"
#include "lock.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { CACHES = 8, WAYS = 16, LONGEST_RUN = 32, NO_KEY = 0xffff };

/* The blocks of one class in one thread: a list in use and a full run behind it, for the depot. */
struct magazine {
    struct zr_block *head;
    struct zr_block *reserve;
    uint32_t count; /* in `head` */
    uint32_t full;  /* so many make a run */
    uint64_t spare; /* 32 bytes: found by a shift */
};

struct magazines {
    struct magazine of[ZR_CLASSES];
};

/* What all threads share for one key: runs of blocks, stacked by class. */
struct key {
    struct zr_key key;
    struct zr_lock lock;
    uint16_t id;
    bool used;
    struct zr_block *runs[ZR_CLASSES];
};

/* A thread's shortcut from a key to its magazines. */
struct way {
    struct zr_key key;
    struct magazines *magazines;
    struct allowance *allowance;
    uint64_t spare;
};

struct allowance {
    uint64_t kept;    /* bytes in this heap's magazines */
    uint64_t allowed; /* how many may be: taken from the account in larger portions */
};

struct heap {
    uint32_t inside;
    uint32_t wanted;   /* enum: not 0 sends the owner the slow way */
    uint32_t patience; /* mask: the clock is read when these bits of `hits` or `frees` are 0 */
    uint32_t now;      /* milliseconds, as of the last reading */
    uint64_t hits;
    uint64_t frees;
    struct way *last; /* the way of the key that was asked for last */
    uint64_t misses;
    struct zr_cache *cache;
    struct heap *next;
    bool in_use; /* a thread owns it */
    struct way way[WAYS] __attribute__((aligned(64)));
    struct allowance account[ZR_ACCOUNTS];
    struct magazines *spare; /* of keys that are gone, linked through the first head */
    struct magazines *by_key[ZR_KEYS_MAX];
};

struct account {
    uint64_t limit;
    uint64_t granted; /* atomic: allowances of all heaps, and bytes in depots */
} __attribute__((aligned(64)));

struct zr_cache {
    struct zr_backing backing;
    unsigned id;
    uint32_t idle;
    struct zr_lock lock; /* keys, list of heaps, seizure */
    struct heap *heaps;  /* never shrinks: heaps of threads that ended are used again */
    unsigned keys;
    uint32_t next_sweep; /* atomic: when somebody should look for idle blocks again */
    uint64_t shared_misses; /* of threads without a heap */
    struct account account[ZR_ACCOUNTS];
    struct key *key[ZR_KEYS_MAX];
};

extern _Thread_local struct heap *zr_heaps[CACHES];

/* Which of a heap's ways a key takes. Handles are pointers: their low bits say nothing. */
static inline unsigned zr_key_hash(const struct zr_key *key)
{
    uint64_t x = (uintptr_t)key->context ^ (uint64_t)(uintptr_t)key->device << 7 ^
                 (uint64_t)key->peers << 32 ^ ((uint64_t)key->ordinal + key->flags + key->align) << 40;

    return (unsigned)(x * 0x9e3779b97f4a7c15u >> 60);
}
_Static_assert(WAYS == 16, "the hash has four bits");

static inline void heap_leave(struct heap *h)
{
    __atomic_store_n(&h->inside, 0, __ATOMIC_RELEASE);
}

void zr_heap_wait(struct heap *h);

/* Values of `wanted`: somebody has seized the heap; the kernel has no membarrier, enter with a lock. */
enum { WANTED_SEIZED = 1, WANTED_LOCKED = 2 };

/*
 * The store may still be in flight when `wanted` is read: whoever seizes has the kernel complete it. False:
 * not entered, go the slow way.
 */
static inline bool heap_try_enter(struct heap *h)
{
    __atomic_store_n(&h->inside, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (likely(__atomic_load_n(&h->wanted, __ATOMIC_ACQUIRE) == 0))
        return true;
    heap_leave(h);
    return false;
}

static inline void heap_enter(struct heap *h)
{
    if (unlikely(!heap_try_enter(h)))
        zr_heap_wait(h);
}

/* How many blocks of a class make a run: 32, fewer from 1 MiB up, never under 4. */
static inline unsigned run_of(unsigned size_class)
{
    size_t n = ((size_t)32 << 20) / zr_class_size(size_class);

    return n < 4 ? 4 : n > LONGEST_RUN ? LONGEST_RUN : (unsigned)n;
}

/* heap.c: this thread's heap, made if need be; NULL at a thread's end or without memory. */
struct heap *zr_heap(struct zr_cache *c);
struct magazines *zr_heap_magazines(struct heap *h, struct key *k);
void zr_heap_forget_key(struct heap *h, struct key *k);
void zr_heap_seize_all(struct zr_cache *c);   /* takes the cache's lock and keeps it */
void zr_heap_release_all(struct zr_cache *c); /* and lets go of it */

/* keys.c */
struct key *zr_key_find(struct zr_cache *c, const struct zr_key *key); /* made if need be; NULL: too many */

/* depot.c: runs of blocks that no thread keeps */
void zr_depot_put(struct key *k, unsigned size_class, struct zr_block *run, unsigned length);
struct zr_block *zr_depot_get(struct key *k, unsigned size_class);

/* trim.c */
/* Outside the heap: reads the clock, and now and then looks for idle blocks. Returns b, for tail calls. */
struct zr_block *zr_tick(struct heap *h, struct zr_block *b);
uint32_t zr_now(void);                   /* milliseconds, from the kernel's coarse clock: no system call */
bool zr_grant(struct zr_cache *c, unsigned account, uint64_t bytes); /* so much of the limit, if it is left */
bool zr_allow(struct heap *h, unsigned account, uint64_t bytes); /* inside the heap: room for so much more */
/* Outside: takes out the blocks longest unused, in any thread, until there is room; the caller gives them back. */
struct zr_block *zr_make_room(struct zr_cache *c, unsigned account, uint64_t bytes);
void zr_give_back(struct zr_cache *c, struct zr_block *list);    /* CACHED blocks, linked: to the driver */

#endif
