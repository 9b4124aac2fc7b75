/*
 * The chunks that segments are split into, and the free ones in a treap by size and address, for
 * best fit: the smallest that is large enough, of equal ones the lowest. Logarithmic, expected. No
 * locks: the pool's is held.
 */
#ifndef ZEROUTE_CACHE_FIT_H
#define ZEROUTE_CACHE_FIT_H

#include "cache/cache.h"

#pragma GCC visibility push(hidden)

/* A piece of a segment. One cache line. */
struct zr_chunk {
    uintptr_t base;
    size_t size;
    struct zr_chunk *prev, *next; /* neighbours in the segment */
    struct zr_segment_of_pool *segment;
    struct zr_chunk *
        *up; /* free: what points to it in the treap; NULL: allocated, or of an exported segment */
    union {
        struct zr_chunk *smaller; /* free: in the treap */
        size_t requested;         /* allocated: not 0 */
    };
    struct zr_chunk *larger; /* free: in the treap; spare: the next one */
};
_Static_assert(sizeof(struct zr_chunk) == 64, "a cache line");

/* Descriptors come from a list of spare ones, which grows; NULL when mmap fails. */
struct zr_chunk *zr_chunk_new(struct zr_chunk **spare);

static inline void zr_chunk_drop(struct zr_chunk **spare, struct zr_chunk *c) {
    c->larger = *spare;
    *spare = c;
}

/* Cuts a chunk that is in no treap after `size` bytes. Returns the rest, in no treap either; NULL
 * if mmap fails. */
struct zr_chunk *zr_chunk_cut(struct zr_chunk *c, size_t size, struct zr_chunk **spare);

/* The best fit, or NULL. */
static inline struct zr_chunk *zr_fit_best(struct zr_chunk *root, size_t size) {
    struct zr_chunk *best = NULL;

    while (root)
        if (root->size < size) {
            root = root->larger;
        } else {
            best = root;
            root = root->smaller;
        }
    return best;
}

void zr_fit_insert(struct zr_chunk **root, struct zr_chunk *c);
/* Leaves c->up NULL. */
void zr_fit_remove(struct zr_chunk *c);
/* Merges a chunk that is in no treap with those of its neighbours that are free, and inserts the
 * result. */
void zr_fit_merge(struct zr_chunk **root, struct zr_chunk *c, struct zr_chunk **spare);

#pragma GCC visibility pop

#endif
