/*
 * The second way of holding memory: slabs and split blocks, for users who never ask the driver about a
 * pointer (SYCL's runtime through UMF, which tracks pointers itself; replay). Safe for any number of threads.
 *
 *   up to 256 B    objects of one size class in slabs of 2 KiB; threads keep a few of each class. A thread that is
 *                  alone places the first 4096 like all others: no more than a segment could be saved
 *   up to 1 MiB    best fit in segments of 2 MiB
 *   above          best fit in segments of 20 MiB, or of the request's own size from 10 MiB up
 *
 * Freed neighbours merge. That is how PyTorch's own allocator places blocks, and no more is held. When
 * nothing lives any more, all segments are put aside and taken up again in the order in which they were
 * needed: a program that repeats itself makes no driver call the second time.
 */
#ifndef ZEROUTE_CACHE_POOL_H
#define ZEROUTE_CACHE_POOL_H

#include "cache/cache.h"

/* Codes are the backing's own and go up unchanged; 0 is success. Called with the pool's lock held. */
struct zr_pool_backing {
    void *arg;
    int (*alloc)(void *arg, size_t size, void **out);
    int (*free)(void *arg, void *p, size_t size);
};

struct zr_pool;

/* NULL when mmap fails. Nothing is asked of the backing yet. */
struct zr_pool *zr_pool_new(const struct zr_pool_backing *backing);

/* Gives every segment back, whatever lives in it. No other thread may be inside the pool. */
void zr_pool_delete(struct zr_pool *pool);

/*
 * At least `size` bytes, aligned to `alignment` (a power of two, or 0: a multiple of 64 B; 512 B above
 * 256 B). A size of 0 is served as 1. The backing's code when it has nothing left, even after everything
 * unused was given back. About 60 instructions for what was freed a moment ago; otherwise about 250, and with
 * several threads a lock.
 */
int zr_pool_malloc(struct zr_pool *pool, size_t size, size_t alignment, void **out);

/* ZR_FREED; ZR_FREED_TWICE or ZR_FREED_UNKNOWN (also for inner addresses), and nothing was done. */
enum zr_freed zr_pool_free(struct zr_pool *pool, void *p);
enum zr_freed zr_pool_free_size(struct zr_pool *pool, void *p, size_t *asked); /* and how much had been asked for */

/* How many bytes are there behind p, the start of an allocation; 0 if it is none. */
size_t zr_pool_usable(struct zr_pool *pool, const void *p);

/* Gives segments back that are entirely free, until no more than `keep` bytes of such are held. Returns the bytes. */
uint64_t zr_pool_trim(struct zr_pool *pool, uint64_t keep);

/*
 * Free segments beyond so many bytes are given back as they become free, and such that lay unused for so long; with 24
 * days and more, none.
 */
void zr_pool_set_limits(struct zr_pool *pool, uint64_t keep, uint32_t idle_ms);

struct zr_pool_counts {
    uint64_t held, peak_held; /* bytes from the backing */
    uint64_t backing_allocs, backing_frees;
    uint64_t whole_free; /* bytes in segments that are entirely free */
};
void zr_pool_counts(struct zr_pool *pool, struct zr_pool_counts *out);
/* How many allocations the user has, and how many bytes were asked for in them. Looks at each; 0 of a parent's pool. */
uint64_t zr_pool_out(struct zr_pool *pool, uint64_t *bytes);

/* In a child of fork. Its parent's pools are used with a lock, and neither looked through nor trimmed. */
void zr_pool_fork_child(void);
void zr_pool_thread_exit(void);

#endif
