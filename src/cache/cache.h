/*
 * The caching allocator: what crosses src/cache/, and the contract. It knows keys, blocks and a table of
 * three backing functions, and nothing of Level Zero, SYCL, environment variables or files. Two ways of
 * holding memory:
 *
 *   zr_cache_*  whole blocks: one allocation of the backing per block, so that whatever anybody asks the
 *               driver about a pointer stays right. Freed blocks are kept by key and size class.
 *   zr_pool_*   slabs and split blocks (pool.h): for users who never ask about a pointer.
 *
 * Both are safe for any number of threads, take their own memory from mmap, preserve errno, and have no
 * thread of their own: time is looked at on calls.
 */
#ifndef ZEROUTE_CACHE_H
#define ZEROUTE_CACHE_H

#include "cache/block.h"
#include "cache/map.h"

enum { ZR_ACCOUNTS = 64, ZR_KEYS_MAX = 512 };

/*
 * Blocks are interchangeable when their keys are equal. Keys are compared byte by byte: zero one before
 * filling it in.
 */
struct zr_key {
    void *context;
    void *device; /* handle: a sub-device is another one than its device */
    union {
        struct {
            uint32_t flags;
            uint32_t ordinal;
        };
        uint64_t what; /* both, for one look */
    };
    uint64_t peers;  /* devices, besides its own, on which the block is resident */
    uint16_t account; /* whose limit counts it: the device's index, below ZR_ACCOUNTS */
    uint8_t kind;    /* enum zr_kind */
    uint8_t align;   /* log2 of the alignment asked for; 0: none was asked for */
    uint32_t extra;  /* relaxed limits and the like */
};
_Static_assert(sizeof(struct zr_key) == 40, "a key has no padding");

/* Where memory comes from. Codes are the driver's own and go up unchanged; 0 is success. */
struct zr_backing {
    void *arg;
    /* The size may be larger than what was asked; alignment is key->align. Called without any lock held. */
    int (*alloc)(void *arg, const struct zr_key *key, size_t size, void **out);
    /*
     * The block is in no map any more: base, held, context, peers, device and kind are as they were. A block
     * that the driver refuses is not kept again: nobody knows what became of it.
     */
    int (*free)(void *arg, const struct zr_block *b);
    /* True for a code that means "out of memory" or "too large": something may be given back and tried again. */
    bool (*is_full)(int code);
};

struct zr_cache;

/* NULL when mmap fails or too many instances exist. Nothing is asked of the backing yet. */
struct zr_cache *zr_cache_new(const struct zr_backing *backing);

/* Gives everything cached back. For tests: no other thread that ever used it may still be alive. */
void zr_cache_delete(struct zr_cache *cache);

/* How many bytes may be kept for an account (default: no bound), and how long a block may lie unused (1000 ms). */
void zr_cache_set_limit(struct zr_cache *cache, unsigned account, uint64_t bytes);
/*
 * Above this size nobody gets more than he asks for (default: no bound): a block is not rounded up, kept only if it has
 * the size of its class, and then for this very size. Before the account is used.
 */
void zr_cache_set_exact(struct zr_cache *cache, unsigned account, uint64_t bytes);
void zr_cache_set_idle(struct zr_cache *cache, uint32_t milliseconds);

/*
 * A block for at least `size` bytes, LIVE in the map, with b->size as asked. On a hit *code is left as it
 * was; on a miss it is 0. NULL: *code is the driver's; out of memory means that the cache of this account
 * was given back and the driver asked once more, for the very size; and yet again, a few times, if more has gone
 * back meanwhile: other threads free and allocate, too. ZR_CACHE_TROUBLE: no memory for our
 * own books, go to the driver directly. Size 0 and sizes over 64 GiB go to the backing as they are.
 * A hit costs about 60 instructions, none of them locked, and writes no line that another thread uses.
 */
struct zr_block *zr_cache_alloc(struct zr_cache *cache, const struct zr_key *key, size_t size, int *code);
enum { ZR_CACHE_TROUBLE = -1 };

enum zr_freed {
    ZR_FREED,         /* kept */
    ZR_FREED_BY_DRIVER, /* given back to the driver at once */
    ZR_FREED_REFUSED, /* the driver would not have it: still LIVE */
    ZR_FREED_FOREIGN, /* a LIVE block that did not come from this cache: nothing was done */
    ZR_FREED_TWICE,   /* the base of a block that is cached: nothing was done */
    ZR_FREED_INSIDE,  /* points into a LIVE block: nothing was done */
    ZR_FREED_UNKNOWN  /* no block of anybody: nothing was done */
};

/* What a free was about, for whoever keeps the books. */
struct zr_freed_block {
    size_t size;
    uint16_t device;
    uint8_t kind;
    int code; /* the driver's, with ZR_FREED_REFUSED */
};

/*
 * Take a block back by its base: to be kept, or, as it may be in use still, to be given to the driver. A block with
 * ZR_BLOCK_EXPORTED goes to the driver in either case. Of two threads that free one pointer one is told ZR_FREED.
 * About 50 instructions when kept, none of them locked unless other threads free this thread's blocks too.
 */
enum zr_freed zr_cache_keep(struct zr_cache *cache, void *p, struct zr_freed_block *was);
enum zr_freed zr_cache_return(struct zr_cache *cache, void *p, struct zr_freed_block *was);

static inline enum zr_freed zr_cache_free(struct zr_cache *cache, void *p, bool keep,
                                          struct zr_freed_block *was)
{
    return keep ? zr_cache_keep(cache, p, was) : zr_cache_return(cache, p, was);
}

/*
 * Gives back what is kept: of one account (or all: ZR_ACCOUNTS), of one context (or all: NULL), unused for
 * at least min_age milliseconds (or all: 0). Reaches into the magazines of all threads. Returns the bytes.
 */
uint64_t zr_cache_trim(struct zr_cache *cache, unsigned account, const void *context, uint32_t min_age);

/*
 * Blocks that other threads have taken out may not be back at the driver yet: waits until they are. Not for the
 * backing's own functions. False: after some seconds they are not. The driver's free may wait for commands, and these
 * for something that the caller is to do once it has its answer.
 */
bool zr_cache_await(struct zr_cache *cache);
/* Another number than before: something that was kept has gone back to the driver meanwhile. */
uint32_t zr_cache_returned(const struct zr_cache *cache);

/* The context is going away: gives back what is kept for it, forgets its keys. Its LIVE blocks turn foreign. */
void zr_cache_drop_context(struct zr_cache *cache, const void *context);

struct zr_cache_counts {
    uint64_t hits, misses;
    uint64_t kept_bytes; /* in all magazines and depots */
    uint64_t kept_blocks;
};

/* Sums over all threads, each figure as of some moment during the call. */
void zr_cache_counts(struct zr_cache *cache, struct zr_cache_counts *out);

/* The bytes kept for one account. Like the sums, it holds up all threads for some microseconds. */
uint64_t zr_cache_kept(struct zr_cache *cache, unsigned account);

/* In a forked child: nothing was ever cached; the parent's blocks are forgotten, not freed. */
void zr_cache_fork_child(void);

/* Called by thread.c when a thread ends: its magazines go to the depots. */
void zr_cache_thread_exit(void);

#endif
