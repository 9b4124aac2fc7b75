/*
 * The chunks that segments are split into, and the free ones by size, for best fit: the smallest that is large enough,
 * of equal ones the lowest.
 *
 * A bin for every size up to 128 KiB, and above that for every 256th of a doubling, found by a two-level bitmap. A bin
 * has a pairing heap by address for each size in it; the heaps of a bin are linked, the smallest size first. Most bins
 * hold one chunk or none, where inserting and removing take a few stores. No locks: the pool's is held.
 */
#ifndef ZEROUTE_CACHE_FIT_H
#define ZEROUTE_CACHE_FIT_H

#include "cache/cache.h"

#pragma GCC visibility push(hidden)

enum {
    FIT_BITS = 8, /* so many bits of a size, after its first one, tell its bin */
    FIT_STEPS = 1 << FIT_BITS,
    FIT_BINS = 32 * FIT_STEPS, /* sizes below 2^48 */
    FIT_WORDS = FIT_BINS / 64
};

/* A piece of a segment. One cache line. */
struct zr_chunk {
    uintptr_t base;
    size_t size;
    struct zr_chunk *prev, *next; /* neighbours in the segment */
    struct zr_segment_of_pool *segment;
    struct zr_chunk **up; /* free: what points to it in its bin; NULL: allocated or retired */
    union {
        struct zr_chunk *child; /* free: in its heap */
        size_t requested;       /* allocated: not 0 */
    };
    struct zr_chunk *sibling; /* free: in its heap, or the heap of the next size; spare: the next one */
};
_Static_assert(sizeof(struct zr_chunk) == 64, "a cache line");

struct zr_fit {
    uint64_t words[FIT_WORDS / 64]; /* a bit per word of `bins` */
    uint64_t bins[FIT_WORDS];       /* a bit per bin */
    struct zr_chunk *root[FIT_BINS];
};

/* Descriptors come from a list of spare ones, which grows; NULL when mmap fails. */
struct zr_chunk *zr_chunk_more(struct zr_chunk **spare);

static inline struct zr_chunk *zr_chunk_new(struct zr_chunk **spare) {
    struct zr_chunk *c = likely(*spare) ? *spare : zr_chunk_more(spare);

    if (likely(c)) {
        *spare = c->sibling;
        c->up = NULL;
    }
    return c;
}

static inline void zr_chunk_drop(struct zr_chunk **spare, struct zr_chunk *c) {
    c->sibling = *spare;
    *spare = c;
}

/* Cuts a chunk that is in no bin after so many bytes. Returns the rest, in no bin; NULL when mmap fails. */
struct zr_chunk *zr_chunk_cut(struct zr_chunk *c, size_t size, struct zr_chunk **spare);

/* The exponent and the topmost bits of a floating-point number are the bin: larger sizes never have smaller ones. */
static inline unsigned zr_fit_bin(size_t size) {
    size_t grains = size / ZR_POOL_GRAIN;
    double real = (double)(int64_t)grains;
    uint64_t bits;

    if (grains < FIT_STEPS)
        return (unsigned)grains;
    __builtin_memcpy(&bits, &real, sizeof bits);
    return (unsigned)(bits >> (52 - FIT_BITS)) - ((1022u + FIT_BITS) << FIT_BITS);
}

/* The best fit, or NULL. */
static inline struct zr_chunk *zr_fit_best(const struct zr_fit *fit, size_t size) {
    unsigned first = zr_fit_bin(size), word = first / 64, page = word / 64;
    uint64_t left = fit->bins[word] & UINT64_MAX << first % 64;

    for (;;) {
        if (!left) {
            left = fit->words[page] & (UINT64_MAX - 1) << word % 64;
            while (!left) {
                if (++page == FIT_WORDS / 64)
                    return NULL;
                left = fit->words[page];
            }
            word = page * 64 + (unsigned)__builtin_ctzll(left);
            left = fit->bins[word];
        }
        for (struct zr_chunk *c = fit->root[word * 64 + (unsigned)__builtin_ctzll(left)]; c; c = c->sibling)
            if (likely(c->size >= size))
                return c;
        left &= left - 1; /* all chunks of the request's own bin are too small */
    }
}

void zr_fit_insert(struct zr_fit *fit, struct zr_chunk *c);
/* Constant time unless it is the root of a heap: then logarithmic, amortised. Leaves c->up NULL. */
void zr_fit_remove(struct zr_fit *fit, struct zr_chunk *c);
/* Cuts a chunk that is in no bin after so many bytes, and inserts the rest. Leaves it whole when mmap fails. */
void zr_fit_split(struct zr_fit *fit, struct zr_chunk *c, size_t size, struct zr_chunk **spare);
/* Merges a chunk that is in no bin with those of its neighbours that are free, and inserts the result. */
void zr_fit_merge(struct zr_fit *fit, struct zr_chunk *c, struct zr_chunk **spare);

#pragma GCC visibility pop

#endif
