/*
 * Inside the whole-block cache: what a thread keeps, what threads share, and who may touch which.
 *
 * A heap belongs to one thread and one cache. Its owner enters it with two plain instructions and no locked
 * one. Another thread that must reach in (a trim has to empty all magazines) seizes all heaps: it
 * sets `wanted`, has the kernel run a memory barrier in every thread of the process (membarrier, some
 * microseconds), and waits until no owner is inside. Where the kernel has no membarrier, owners enter
 * with a locked instruction instead.
 *
 * A block is from the heap that handed it out last: its word names that heap. As long as nobody else has
 * freed a block of a heap, the heap is private, and its owner frees its blocks with plain stores, inside. The
 * first thread that comes with a block of a private heap of somebody else seizes all heaps and makes that one
 * shared (some microseconds); blocks of a shared heap are claimed by a compare-and-swap, by everybody. So of two
 * threads that free one pointer one wins, in either case. When nobody else has freed its blocks for a while, the heap
 * takes another number and is private again under that; what is out under the old number stays shared.
 */
#ifndef ZEROUTE_CACHE_HEAP_H
#define ZEROUTE_CACHE_HEAP_H

#include "cache/cache.h"
#include "cache/classes.h"
#include "cache/pause.h"
#include "base/lock.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { CACHES = 8, WAYS = 16, KEY_BITS = 9, LONGEST_RUN = 31, LARGEST_MAGAZINE = 2 * LONGEST_RUN, BINS = 1 << 15 };

/*
 * What one thread keeps of one bin: the newest block, where a free and the allocation after it meet, and a stack of
 * the others. The stack grows down to a multiple of 512, where it is full; above its oldest block is a NULL. So
 * neither path needs a count. When it is full its older half goes to the depot. Bytes are counted by room, not by
 * block: what a magazine may hold is granted beforehand.
 */
struct magazine {
    struct zr_block *top;   /* or NO_TOP; NULL: there is no room at all */
    struct zr_block **next; /* the newest of the others */
    uint32_t room;          /* so many were granted, the top among them; at most twice a run */
    uint32_t spare[3];
};
#define NO_TOP ((struct zr_block *)1)
enum { STACK = 512 };
_Static_assert(LARGEST_MAGAZINE * sizeof(void *) < STACK, "an empty stack does not look full");

/* Blocks of one bin on their way between threads, the oldest first. */
struct run {
    struct run *next;
    uint32_t length;
    uint32_t stamp; /* its oldest block is as old as this, or less: a sweep need not look at the block */
    struct zr_block *at[LONGEST_RUN];
};

/*
 * All blocks of one key and size class are interchangeable: a bin. Bins are numbered as they come into use, so that
 * what a thread keeps of those that it uses lies close together. Here is what all threads share of one.
 */
struct bin {
    struct key *key;
    size_t held; /* bytes of each block */
    bool used;   /* false: its context is gone, nothing more is kept */
    uint32_t id;
    unsigned size_class;
    unsigned run; /* so many blocks make one */
    struct zr_lock lock;
    struct run *runs;
    struct run *spare;
    struct bin *next; /* of those that wait */
};

struct key {
    struct zr_key key;
    uint16_t id;
    bool used;
    uint32_t version; /* odd while the key is exchanged for another one */
    struct key *same; /* atomic: the next one whose hash has the same topmost bits */
    uint64_t exact;           /* as its account had it */
    uint16_t bin[ZR_CLASSES]; /* 0: none yet */
};

/* From the size that was asked for last of one key to a magazine. */
struct drawer {
    const struct key *key;
    size_t size; /* or SIZE_MAX */
    struct magazine *magazine;
};

/* A thread's shortcut from a key to its bins. */
struct way {
    struct zr_key key;
    struct drawer drawer;
} __attribute__((aligned(64)));

#define NOT_PRIVATE UINT32_MAX

/*
 * Heaps begin with a page, as do descriptors, the first of which are used most: what is written all the time
 * lies further back, as a load is held up by a store that is a multiple of 4 KiB away.
 */
struct heap {
    struct way way[WAYS];
    uint64_t spare[5 * 8];
    uint32_t inside;
    uint32_t wanted;  /* enum: not 0 sends the owner the slow way */
    uint32_t mine;    /* atomic: low half of the word of a block that it may free by itself; or NOT_PRIVATE */
    uint32_t now;     /* milliseconds, as of the last reading */
    int32_t patience; /* so many frees until the clock is read again */
    uint32_t pace;    /* and so many from there to the next time */
    uint64_t pass;    /* atomic: of those whom its owner was served for; 0: nobody goes straight by one */
    struct way *last; /* atomic: the way of the key that was asked for last */
    struct zr_cache *cache;
    uint64_t pushed;  /* blocks into its magazines: by frees, up to the last reading of the clock, */
    uint64_t moved;   /* and from depots, less those to depots and to sweeps: what is not there was a hit */
    uint64_t misses;
    struct heap *next;
    uint32_t claims; /* blocks of a shared heap that its owner freed since it last looked whether others do, too */
    uint32_t calm;   /* so many of them with no other in between make it private again */
    uint16_t id; /* of no other heap, ever; 0: there were too many, it is never private */
    uint64_t own_pass; /* `pass` says so, unless it is seized */
    bool private; /* `mine` says so, unless it is seized */
    bool in_use;  /* a thread owns it */
    struct magazine of[] __attribute__((aligned(64))); /* BINS; 0 is nobody's: empty for ever, and full */
};

struct account {
    uint64_t limit;
    uint64_t exact;   /* larger blocks serve their very size alone */
    uint64_t granted; /* atomic: the room in all magazines, and what lies in depots, in bytes */
} __attribute__((aligned(64)));

struct zr_cache {
    struct zr_backing backing;
    unsigned id;
    uint32_t idle;
    bool no_membarrier;  /* owners enter with a locked instruction; nothing goes straight */
    struct zr_lock lock; /* keys, list of heaps, seizure */
    struct heap *heaps;  /* never shrinks: heaps of threads that ended are used again */
    unsigned keys, bins;
    unsigned keys_used; /* atomic */
    struct bin *spare_bins;
    uint32_t next_sweep; /* atomic: when somebody should look for idle blocks again */
    uint32_t giving;     /* atomic: threads that give back what they took out */
    uint32_t returned;   /* atomic: how often one has */
    uint64_t shared_misses; /* of threads without a heap */
    struct account account[ZR_ACCOUNTS];
    struct key *key[ZR_KEYS_MAX];
    struct key *key_like[1 << KEY_BITS]; /* atomic: those in use, by the topmost bits of their hash */
    struct bin *bin[BINS];
};

extern _Thread_local struct heap *zr_heaps[CACHES];

/* The one that was used last: of this thread, of any cache; never NULL. */
extern _Thread_local struct heap *zr_heap_last;

/* By the number of a heap: 1, others may free its blocks too; 2, one has since its owner last looked. */
extern uint8_t zr_heap_shared[1 << 16];
enum { CALM = 1024 };

/* Handles are pointers: their low bits say nothing. */
static inline uint64_t zr_key_mix(const struct zr_key *key)
{
    uint64_t x = (uintptr_t)key->context ^ (uint64_t)(uintptr_t)key->device << 7 ^
                 (uint64_t)key->peers << 32 ^ ((uint64_t)key->ordinal + key->flags + key->align) << 40;

    return x * 0x9e3779b97f4a7c15u;
}

/* Which of a heap's ways a key takes. */
static inline unsigned zr_key_hash(const struct zr_key *key)
{
    return (unsigned)(zr_key_mix(key) >> 60);
}
_Static_assert(WAYS == 16, "the hash has four bits");

static inline void heap_leave(struct heap *h)
{
    __atomic_store_n(&h->inside, 0, __ATOMIC_RELEASE);
}

void zr_heap_wait(struct heap *h);

/*
 * Values of `wanted`: somebody has seized the heap; the kernel has no membarrier, enter with a lock; the owner sleeps
 * until it is released.
 */
enum { WANTED_SEIZED = 1, WANTED_LOCKED = 2, WANTED_ASLEEP = 4 };

/*
 * The hot paths look at `mine`, `pass` or `last` next, which say no to everything in a heap that is wanted. The store
 * may still be in flight when these are read: whoever seizes has the kernel complete it.
 */
static inline void heap_enter_hot(struct heap *h)
{
    __atomic_store_n(&h->inside, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void heap_enter(struct heap *h)
{
    heap_enter_hot(h);
    if (likely(__atomic_load_n(&h->wanted, __ATOMIC_ACQUIRE) == 0))
        return;
    heap_leave(h);
    zr_heap_wait(h);
}

/* How many blocks of a class make a run: 31, fewer from 1 MiB up, never under 4. */
static inline unsigned run_of(unsigned size_class)
{
    size_t n = ((size_t)32 << 20) / zr_class_size(size_class);

    return n < 4 ? 4 : n > LONGEST_RUN ? LONGEST_RUN : (unsigned)n;
}

static inline unsigned magazine_count(const struct magazine *m)
{
    unsigned left = (uintptr_t)m->next % STACK / sizeof *m->next;

    return m->room ? m->room - 1 - left + (m->top != NO_TOP) : 0;
}

/* Inside: its newest block, or NULL. */
static inline struct zr_block *magazine_pop(struct magazine *m)
{
    struct zr_block *b = m->top;

    if (likely((uintptr_t)b > (uintptr_t)NO_TOP)) {
        m->top = NO_TOP;
        return b;
    }
    if (b && (b = *m->next))
        m->next++;
    return b;
}

/* Inside: false when it is full. */
static inline bool magazine_push(struct magazine *m, struct zr_block *b)
{
    struct zr_block *top = m->top;

    if (unlikely(top != NO_TOP)) {
        if (unlikely(!top || (uintptr_t)m->next % STACK == 0))
            return false;
        *--m->next = top;
    }
    m->top = b;
    return true;
}

/* heap.c: this thread's heap, made if need be; NULL at a thread's end or without memory. */
struct heap *zr_heap(struct zr_cache *c);
/* Inside: the next allocation of this key, or this way, goes straight. */
void zr_heap_way(struct heap *h, const struct key *k);
void zr_heap_last_way(struct heap *h, struct way *w);
void zr_heap_forget_key(struct heap *h, const struct key *k); /* with the heap seized */
/*
 * Moves a LIVE block, found with this word, on to `to` and under that heap; false when somebody was faster. One
 * locked instruction, and a seizure if it is the first block of a heap that another thread frees.
 */
bool zr_heap_claim(struct zr_block *b, uint64_t word, enum zr_block_state to, unsigned heap);
/* Outside, after its owner has claimed a block of a heap that is not private: may make it so. */
void zr_heap_calm(struct heap *h);
void zr_heap_seize_all(struct zr_cache *c);   /* takes the cache's lock and keeps it */
void zr_heap_release_all(struct zr_cache *c); /* and lets go of it */

/* depot.c: keys and bins, made if need be; NULL: too many, or no memory. Outside, they take the cache's lock. */
struct key *zr_key_find(struct zr_cache *c, const struct zr_key *key);
struct bin *zr_bin_find(struct zr_cache *c, struct key *k, unsigned size_class);
void zr_key_drop(struct zr_cache *c, struct key *k); /* with the cache's lock held: its numbers wait for another */
/* Runs of blocks that no thread keeps. False, and nothing done: no memory. */
bool zr_depot_put(struct bin *bin, struct zr_block *const *blocks, unsigned length);
unsigned zr_depot_get(struct bin *bin, struct zr_block **blocks); /* at most LONGEST_RUN */

/* magazine.c */
bool zr_grant(struct zr_cache *c, unsigned account, uint64_t bytes); /* so much of the limit, if it is left */
void zr_ungrant(struct zr_cache *c, unsigned account, uint64_t bytes);
/* Inside the heap: room for one more block at least. False: the limit, or no memory. */
bool zr_magazine_widen(struct heap *h, struct bin *bin);
/* Inside: a block, from the magazine or a run of the depot, under this heap. NULL: there is none. */
struct zr_block *zr_magazine_take(struct heap *h, struct bin *bin);
/* With the heap seized, or inside: copies all blocks, oldest first, and says how many; fills it with others. */
unsigned zr_magazine_list(const struct magazine *m, struct zr_block **list);
void zr_magazine_fill(struct magazine *m, struct zr_block *const *list, unsigned count, unsigned room);

/* trim.c */
/* Outside the heap: reads the clock, and now and then looks for idle blocks. */
void zr_tick(struct heap *h);
uint32_t zr_now(void); /* milliseconds, from the kernel's coarse clock: no system call */
/* Outside: gives back the blocks longest unused, in any thread, until there is room. */
void zr_make_room(struct zr_cache *c, unsigned account, uint64_t bytes);
/*
 * CACHED blocks, linked: to the driver. zr_giving comes first, while they are taken out: inside the heap, or with all
 * heaps seized. In between nobody may take a lock of the cache: who destroys a context waits for it with the lock held.
 */
static inline void zr_giving(struct zr_cache *c)
{
    __atomic_fetch_add(&c->giving, 1, __ATOMIC_RELAXED);
}
void zr_give_back(struct zr_cache *c, struct zr_block *list);

#endif
