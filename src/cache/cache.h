/*
 * The map of cache/: blocks, the map from address to block, the cache of whole blocks, and the
 * pool. Knows keys, blocks and a table of backing functions; nothing of Level Zero, SYCL, settings
 * or files. Grouped by the file that defines it.
 *
 * Safe for any number of threads. Memory comes from mmap, errno is preserved, there is no thread of
 * our own: the clock is looked at on calls. No lock is held while a backing function runs.
 */
#ifndef ZEROUTE_CACHE_H
#define ZEROUTE_CACHE_H

#include "base/base.h"

#include <time.h>

#pragma GCC visibility push(hidden)

enum {
    ZR_ACCOUNTS = 64, /* device numbers; the last one stands for host memory */
    ZR_HOST_ACCOUNT = ZR_ACCOUNTS - 1
};

/* --- block.c: the descriptor of one allocation ------------------------------------------------ */
enum zr_block_state {
    ZR_BLOCK_NONE,    /* not in the map: new, or gone */
    ZR_BLOCK_LIVE,    /* the program has it */
    ZR_BLOCK_CACHED,  /* in the map, free for reuse: not an allocation as far as the program can see
                       */
    ZR_BLOCK_LEAVING, /* on its way from the cache to the driver, which may hand the address out
                         again at any time */
    ZR_BLOCK_FREEING  /* a free of the program's is on its way there */
};

enum zr_block_flags {
    ZR_BLOCK_EXPORTED =
        1 << 0, /* its IPC handle was taken: goes back to the driver when it is freed */
    ZR_BLOCK_CACHEABLE =
        1 << 1, /* may be cached when it is freed: every property of it is in its key */
    ZR_BLOCK_PINNED =
        1 << 2, /* something depends on its free (a callback, a host mapping): never cached */
    ZR_BLOCK_FOREIGN = 1 << 3, /* allocated past us: known, not booked */
    ZR_BLOCK_UNBORN =
        1 << 4, /* its allocation has not returned, so nobody can name it yet (check) */
    ZR_BLOCK_POOLED =
        1 << 5,             /* a segment of a pool of ours, which books what it hands out itself */
    ZR_BLOCK_SYCL = 1 << 6, /* handed out at a SYCL entry point, and taken back there */
    ZR_BLOCK_WITH_CONTEXT = 1 << 7, /* the runtime would free it with its context: so do we */
    ZR_BLOCK_HOOK = 8,              /* bits 8 to 13: the hook that it came through */
    ZR_BLOCK_DIRECT =
        1 << 14, /* a pool's, handed out as the provider gave it: `owner` is that pool */
    ZR_BLOCK_LENT =
        1 << 15, /* another card copied to or from it under residency:owner, and so mirrors it until
                    it goes back to the driver: not kept when it is free */
    ZR_BLOCK_SKIPPED =
        1 << 16 /* << n, n below 15: residency on device n was requested and skipped */
};
#define ZR_BLOCK_ORPHANED (1u << 31) /* its context was destroyed */
#define ZR_BLOCK_NOT_KEPT (ZR_BLOCK_EXPORTED | ZR_BLOCK_PINNED | ZR_BLOCK_LENT)

/* Blocks are interchangeable when their keys are equal. */
struct zr_key {
    void *context;
    void *device;       /* handle: a sub-device and its card are different ones */
    uint64_t residents; /* bit n: resident on device n; of a block: as it is filed in the cache */
    uint32_t flags, ordinal; /* of the descriptor */
    uint32_t extra;          /* relaxed allocation limits */
    uint16_t account;        /* whose limit counts it: the number of the device */
    uint8_t kind;            /* enum zr_kind */
    uint8_t align;           /* log2 + 1 of the alignment requested; 0: none */
};

struct zr_segment_of_pool;
struct zr_checked;

/*
 * Descriptors are type-stable: the memory of one never becomes anything else, so a reader without a
 * lock may look at a stale one and notice it, instead of faulting. Three cache lines; the first has
 * what the map and the books need.
 */
struct zr_block {
    uintptr_t base;
    size_t size;                        /* as requested */
    size_t held;                        /* as reserved from the driver */
    uint64_t word;                      /* atomic: generation << 32 | enum zr_block_state */
    uint32_t flags;                     /* atomic: enum zr_block_flags */
    uint32_t stamp;                     /* while cached: when it was freed, in milliseconds */
    struct zr_charge charge;            /* atomic: what was charged for it */
    struct zr_segment_of_pool *segment; /* the pool's own, or NULL */
    struct zr_block *below; /* in its bin, or in a list of those that are spare or leave */

    struct zr_key key; /* context, account and kind hold for every block; nothing in it changes
                          while it is filed */
    struct zr_block *newer, *older; /* while cached: in its stripe, by the time it was freed */
    union {
        struct zr_block *above; /* while cached: in its bin; */
        struct zr_block *next;  /* of the one on top: that of the next bin in its bucket */
    };

    /* atomic, bit n: resident on device n; copied into the key when it is filed */
    uint64_t residents;
    /* atomic, bit n: residency on device n was requested since it was handed out */
    uint64_t requested;
    const void *caller;   /* atomic: the return address of whoever allocated it last, or NULL */
    const void *freed_by; /* atomic: that of whoever freed it last */
    const void *owner; /* with ZR_BLOCK_DIRECT: the pool that handed it out; with ZR_BLOCK_SYCL: its
                          practice */
    struct zr_checked *checked; /* with the setting `check`: what check/ knows of it */
    bool counted;               /* atomic: as exported */
    bool free_ext;              /* the driver is to free it by zeMemFreeExt, */
    uint32_t free_policy;       /* with this policy */
    uint64_t epoch; /* while pending (reuse:proven): when it was freed, in epochs of work/ */
};
_Static_assert(sizeof(struct zr_block) == 192, "three cache lines");

/*
 * Calls see(b, arg) for every block in the map, in no order, until it returns false. Walks every
 * descriptor ever made: for the end of a context and the like.
 */
void zr_block_each(bool (*see)(struct zr_block *b, void *arg), void *arg);

/* Sets the properties; atomically, because a reader of a stale pointer may look at them. */
static inline void zr_block_set_key(struct zr_block *b, const struct zr_key *key) {
    b->key.device = key->device;
    b->key.flags = key->flags;
    b->key.ordinal = key->ordinal;
    b->key.extra = key->extra;
    b->key.align = key->align;
    __atomic_store_n(&b->key.context, key->context, __ATOMIC_RELAXED);
    __atomic_store_n(&b->residents, key->residents, __ATOMIC_RELAXED);
    __atomic_store_n(&b->key.account, key->account, __ATOMIC_RELAXED);
    __atomic_store_n(&b->key.kind, key->kind, __ATOMIC_RELAXED);
}

static inline uint64_t zr_block_word(const struct zr_block *b) {
    return __atomic_load_n(&b->word, __ATOMIC_ACQUIRE);
}

static inline enum zr_block_state zr_word_state(uint64_t word) {
    return (enum zr_block_state)(word & 0xff);
}

static inline uint32_t zr_block_flags(const struct zr_block *b) {
    return __atomic_load_n(&b->flags, __ATOMIC_RELAXED);
}

static inline void zr_block_mark(struct zr_block *b, uint32_t flags) {
    __atomic_fetch_or(&b->flags, flags, __ATOMIC_RELAXED);
}

/*
 * Moves a block from the state and generation in `word` to another state; false if another thread
 * was faster. One locked instruction: of two threads that free one pointer exactly one gets true.
 */
static inline bool zr_block_shift(struct zr_block *b, uint64_t word, enum zr_block_state to) {
    return __atomic_compare_exchange_n(&b->word, &word, (word & ~(uint64_t)0xff) | to, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* From here on it is not in the map, in whatever state it was. */
static inline void zr_block_gone(struct zr_block *b) {
    __atomic_store_n(&b->word, zr_block_word(b) >> 32 << 32 | ZR_BLOCK_NONE, __ATOMIC_RELEASE);
}

/* Refill this thread's list of spare descriptors, or return all but `keep` of them. */
void zr_block_refill(void);
void zr_block_spill(unsigned keep);
enum { ZR_SPARES = 64 };

/*
 * A blank descriptor, its place and key yet to be set; NULL if mmap fails. A few ns: each thread
 * has some. Fields that zr_block_each or a reader of a stale pointer may see are written
 * atomically.
 */
static inline struct zr_block *zr_block_new(void) {
    struct zr_block *b;

    if (unlikely(!zr_thread.cache.spare))
        zr_block_refill();
    b = zr_thread.cache.spare;
    if (unlikely(!b))
        return NULL;
    zr_thread.cache.spare = b->below;
    zr_thread.cache.spares--;
    __atomic_store_n(&b->requested, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&b->flags, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&b->segment, NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&b->owner, NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&b->freed_by, NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&b->counted, false, __ATOMIC_RELAXED);
    b->free_ext = false;
    return b;
}

/* For a descriptor that is not in the map. Any thread may recycle any descriptor. */
static inline void zr_block_recycle(struct zr_block *b) {
    unsigned most = zr_thread_attend() ? ZR_SPARES : 0;

    zr_block_gone(b);
    b->below = zr_thread.cache.spare;
    zr_thread.cache.spare = b;
    if (unlikely(++zr_thread.cache.spares > most))
        zr_block_spill(most / 2);
}

/* --- map.c: from an address to its block: one map for all kinds of memory and all threads ----- */
/* Removes what the map still remembers of a block that left it: its descriptor is to be placed
 * elsewhere. */
void zr_map_forget(const struct zr_block *b);
/* Sets where a block lies that is not in the map yet; call before zr_map_insert. */
static inline void zr_block_place(struct zr_block *b, uintptr_t base, size_t size, size_t held) {
    if (b->base && b->base != base)
        zr_map_forget(b);
    __atomic_store_n(&b->base, base, __ATOMIC_RELAXED);
    __atomic_store_n(&b->size, size, __ATOMIC_RELAXED);
    __atomic_store_n(&b->held, held, __ATOMIC_RELAXED);
}
/*
 * Puts the block into the map, LIVE. False, and nothing changed, when mmap fails or a block with
 * the same base is there (LIVE or CACHED).
 */
bool zr_map_insert(struct zr_block *b);
/* The descriptor whose base may be p, in any state, and its word, for zr_block_shift; NULL when
 * there is none. */
struct zr_block *zr_map_look(const void *p, uint64_t *word);
/* The LIVE block with exactly this base, or NULL. Lock-free, a few ns. */
struct zr_block *zr_map_base(const void *p);
/* The LIVE block that holds this address within the size that was requested, or NULL. Lock-free. */
struct zr_block *zr_map_find(const void *p);
/* The block, in any state but NONE, that holds this address within what is reserved, or NULL; its
 * word. */
struct zr_block *zr_map_around(const void *p, uint64_t *word);
/* Takes the LIVE block with exactly this base, FREEING from now on; NULL if there is none. */
struct zr_block *zr_map_take(const void *p);

/* --- cache.c: free whole blocks, one driver allocation each, by key and size ------------------ */
/*
 * How blocks leave: release() gets each one LEAVING and gives it to the driver. Returns whether the
 * driver has taken it back: the cache then recycles the descriptor. Blocks unused for idle_ms
 * leave; never from 2^31 - 1 on. Once, before anything is cached.
 */
enum zr_released {
    ZR_RELEASE_REFUSED, /* the driver did not take it: it is tried again when memory is wanted */
    ZR_RELEASED,
    ZR_RELEASED_WHOLE /* and its descriptor is recycled already */
};
typedef enum zr_released zr_release(struct zr_block *b);
void zr_cache_setup(zr_release *release, uint32_t idle_ms);
/*
 * Has a block released that is in no list. One that the driver does not take back stays LEAVING,
 * and is tried again when the cache is trimmed.
 */
void zr_cache_give_back(struct zr_block *b, zr_release *release);
/* Has release(), or the one that refused (NULL), called again for refused blocks of a context, or
 * all (NULL). */
void zr_cache_try_again(const void *context, zr_release *release);
/* A CACHED block whose memory the driver has handed out again: takes it out of the cache. False: it
 * is not there. */
bool zr_cache_drop(struct zr_block *b);
/* How many bytes may be cached for an account; 0, the default: nothing. */
void zr_cache_set_limit(unsigned account, uint64_t bytes);
/*
 * The size to reserve for a request, so that blocks of nearby sizes are interchangeable: size
 * classes with 8 steps per doubling up to 1 MiB, 16 up to 64 MiB, 64 beyond; multiples of 2 MiB up
 * to 256 MiB are classes.
 */
size_t zr_cache_round(size_t size);
/* A cached block of this key with exactly `held` bytes, LIVE again with this size; NULL: a miss. */
struct zr_block *zr_cache_get(const struct zr_key *key, size_t held, size_t size);
/* Whether a block of this size may be cached at all. */
extern uint64_t zr_cache_limit[ZR_ACCOUNTS]; /* atomic */
static inline bool zr_cache_takes(unsigned account, size_t held) {
    return account < ZR_ACCOUNTS &&
           held <= __atomic_load_n(&zr_cache_limit[account], __ATOMIC_RELAXED);
}
/*
 * Caches a block that zr_cache_takes allows and the caller has moved from LIVE to CACHED; it is
 * filed under b->key. Older blocks leave if the limit is exceeded, and idle ones when it is time to
 * look for them.
 */
void zr_cache_put(struct zr_block *b);
/* Gives back what is cached for an account (ZR_ACCOUNTS: all) and a context (NULL: all). Returns
 * the bytes. */
uint64_t zr_cache_trim(unsigned account, const void *context);
/*
 * Waits, at most so many ms, until blocks that other threads have taken out are back at the driver.
 * Must not be called from release(). Returns whether they are.
 */
bool zr_cache_await(uint32_t ms);
/*
 * Changes when something that was cached has left: it went back to the driver, from here or from a
 * pool, or another thread got it, which may have freed other memory in return. About 10 ns.
 */
uint32_t zr_cache_withdrawals(void);
uint64_t zr_cache_bytes(unsigned account);
void zr_cache_fork_child(void);
void zr_cache_thread_end(void);

/* --- pool.c: best fit with coalescing in segments placed by PyTorch's rules ------------------- */
enum { ZR_POOL_GRAIN = 512 }; /* chunks begin and end on multiples of it; the least alignment */

/* Codes are the backing's own and go up unchanged; 0 is success. */
struct zr_pool_backing {
    void *arg;
    /* A block of this size, on a multiple of ZR_POOL_GRAIN; in the map, LIVE, until free(). NULL:
     * *code says why. */
    struct zr_block *(*alloc)(void *arg, size_t size, int *code);
    void (*free)(void *arg, struct zr_block *b);
};
enum { ZR_NO_MEMORY = -1 }; /* for our own books */

struct zr_pool;
/* NULL when mmap fails. Nothing is asked of the backing yet. */
struct zr_pool *zr_pool_new(const struct zr_pool_backing *backing, unsigned account);
/* Gives every segment back, whatever lives in it. No other thread may be inside the pool. */
void zr_pool_delete(struct zr_pool *pool);
/* Entirely free segments go back beyond `keep` bytes, and after idle_ms unused. */
void zr_pool_set_limits(struct zr_pool *pool, uint64_t keep, uint32_t idle_ms);
/*
 * At least `size` bytes (not 0) on a multiple of `alignment` (a power of two up to 64 KiB; 512 at
 * least). *grew: the backing was asked. Segments: 2 MiB for chunks up to 1 MiB, 20 MiB for less
 * than 10 MiB, else the size rounded up to 2 MiB; of the smallest free chunks that fit the lowest;
 * what is left over is split off where it is 512 B or more (small) or more than 1 MiB (large).
 */
int zr_pool_malloc(struct zr_pool *pool, size_t size, size_t alignment, void **out, bool *grew);

enum zr_freed {
    ZR_FREED,
    ZR_FREED_TWICE,    /* an allocation of this pool began there, and was freed */
    ZR_FREED_INTERIOR, /* within an allocation of this pool */
    ZR_FREED_UNKNOWN   /* nothing of this pool */
};
/*
 * *size: as requested. In a segment whose IPC handle was taken (ZR_BLOCK_EXPORTED) nothing that was
 * freed is reused: it goes back as a whole when its last allocation has gone.
 */
enum zr_freed zr_pool_free(struct zr_pool *pool, void *p, size_t *size);
/* The bytes behind p, the start of an allocation; 0 if it is none. */
size_t zr_pool_usable(struct zr_pool *pool, const void *p);
/* Gives back entirely free segments until at most `keep` bytes of them are left. Returns the bytes.
 */
uint64_t zr_pool_trim(struct zr_pool *pool, uint64_t keep);
/* The same for every pool of an account (ZR_ACCOUNTS: all). */
uint64_t zr_pools_trim(unsigned account);
/* zr_pool_set_limits() for every pool of an account. */
void zr_pools_set_limits(unsigned account, uint64_t keep, uint32_t idle_ms);
struct zr_pool_counts {
    uint64_t held, peak_held; /* bytes in segments */
    uint64_t backing_allocs, backing_frees;
    uint64_t whole_free;       /* bytes in segments that are entirely free */
    uint64_t live, live_bytes; /* allocations, and what was requested in them */
};
void zr_pool_counts(struct zr_pool *pool, struct zr_pool_counts *out);
void zr_pool_fork_child(void);

/* --- among the files of cache/ ---------------------------------------------------------------- */
/* Milliseconds by the kernel's coarse clock: no system call, about 5 ns. Wraps around: compare
 * differences. */
static inline uint32_t zr_now_ms(void) {
#ifdef ZR_VIRTUAL_CLOCK /* in the command, which replays what happened at other times */
    extern uint32_t zr_virtual_ms;

    return zr_virtual_ms;
#endif
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint32_t)((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
}

/* block.c and map.c: a child of fork starts empty. */
void zr_block_fork_child(void);
void zr_map_fork_child(void);

/*
 * cache.c: what zr_cache_await waits for. Count blocks as leaving before the lock that they were
 * taken out under is released, and as returned once the driver has them.
 */
void zr_leaving(unsigned blocks);
void zr_returned(unsigned blocks);

#pragma GCC visibility pop

#endif
