/*
 * Free chunks by size, for best fit: the smallest that is large enough, of equal ones the lowest.
 *
 * A bin for every size up to 128 KiB, and above it for every 256th of a doubling, found by two levels of bits: what is
 * looked at fits into the processor's first cache. In a bin, a heap by address (a pairing heap) for each size; the
 * heaps of a bin are linked, the smallest size first. Most bins hold one chunk or none: to file it and to take it out
 * is a few stores.
 */
#ifndef ZEROUTE_CACHE_FIT_H
#define ZEROUTE_CACHE_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define INLINE inline __attribute__((always_inline))

enum {
    GRAIN = 512, /* chunks begin and end on multiples of it */
    FIT_BITS = 8, /* so many of a size, after its first one */
    FIT_STEPS = 1 << FIT_BITS,
    FIT_BINS = 32 * FIT_STEPS, /* below 2^48 */
    FIT_WORDS = FIT_BINS / 64,
};

enum chunk_kind { CHUNK_NONE, CHUNK_FREE, CHUNK_BLOCK, CHUNK_KEPT, CHUNK_SLAB };

/* One cache line. */
struct chunk {
    uintptr_t where; /* atomic: address | kind; read without the lock, to be compared with an address */
    size_t size;
    struct chunk *prev, *next; /* neighbours in the segment */
    union {
        struct {
            struct chunk *child, *sibling; /* free: in its bin; the next spare one is its sibling */
        };
        uint64_t after; /* the state of its thread when it was handed out (alone.c) */
    };
    struct segment *segment;
    union {
        struct slab *slab;
        size_t asked;      /* by the user */
        struct chunk **up; /* free: what leads to it */
    };
};
_Static_assert(sizeof(struct chunk) == 64, "one line");

static inline uintptr_t base_of(const struct chunk *c)
{
    return __atomic_load_n(&c->where, __ATOMIC_RELAXED) & ~(uintptr_t)(GRAIN - 1);
}

static inline enum chunk_kind kind_of(const struct chunk *c)
{
    return (enum chunk_kind)(__atomic_load_n(&c->where, __ATOMIC_RELAXED) & (GRAIN - 1));
}

/* Is that the start of a chunk of this kind? Inner addresses have other low bits. */
static inline bool is_at(uintptr_t where, uintptr_t a, enum chunk_kind kind)
{
    return where == (a | (uintptr_t)kind) && a % GRAIN == 0;
}

static inline void set_where(struct chunk *c, uintptr_t base, enum chunk_kind kind)
{
    __atomic_store_n(&c->where, base | (uintptr_t)kind, __ATOMIC_RELEASE);
}

struct bins {
    uint64_t words[FIT_WORDS / 64]; /* bit by word of `filled` */
    uint64_t filled[FIT_WORDS];     /* bit by bin */
    struct chunk *root[FIT_BINS];
};

/*
 * Larger sizes have no smaller bins. The exponent of a fraction and its topmost bits are the bin: no search for the
 * topmost bit, which some processors are slow at.
 */
static inline unsigned fit_bin(size_t size)
{
    size_t grains = size / GRAIN;
    double real = (double)(int64_t)grains;
    uint64_t bits;

    if (grains < FIT_STEPS)
        return (unsigned)grains;
    __builtin_memcpy(&bits, &real, sizeof bits);
    return (unsigned)(bits >> (52 - FIT_BITS)) - ((1022u + FIT_BITS) << FIT_BITS);
}

static inline bool fit_before(const struct chunk *a, const struct chunk *b)
{
    return a->size != b->size ? a->size < b->size : a->where < b->where;
}

static inline void fit_hang(struct chunk **at, struct chunk *c)
{
    *at = c;
    /* After it was said to be free: pool.c looks at slabs without the lock. */
    __atomic_store_n(&c->up, at, __ATOMIC_RELAXED);
}

/* The same, but there may be none: then it is written to another one, where it does not matter. No branch. */
static inline void fit_follow(struct chunk **at, struct chunk *c, struct chunk *other)
{
    *at = c;
    __atomic_store_n(&(c ? c : other)->up, at, __ATOMIC_RELAXED);
}

/* `high` becomes the first child of `low`. */
static inline void fit_adopt(struct chunk *low, struct chunk *high)
{
    fit_follow(&high->sibling, low->child, high);
    fit_hang(&low->child, high);
}

/* fit.c. One heap of several, linked by `sibling`. */
struct chunk *zr_fit_combine(struct chunk *first);

static inline void fit_mark(struct bins *bins, unsigned bin)
{
    bins->filled[bin / 64] |= (uint64_t)1 << bin % 64;
    bins->words[bin / 4096] |= (uint64_t)1 << bin / 64 % 64;
}

static inline void fit_unmark(struct bins *bins, unsigned bin)
{
    if ((bins->filled[bin / 64] &= ~((uint64_t)1 << bin % 64)) == 0)
        bins->words[bin / 4096] &= ~((uint64_t)1 << bin / 64 % 64);
}

static INLINE void fit_insert(struct bins *bins, struct chunk *c)
{
    unsigned bin = fit_bin(c->size);
    struct chunk **at = &bins->root[bin], *was = *at, *next;

    if (likely(!was)) {
        c->child = c->sibling = NULL;
        fit_mark(bins, bin);
        fit_hang(at, c);
        return;
    }
    while (unlikely(was->size < c->size) && (at = &was->sibling, was = *at))
        ;
    c->child = NULL;
    if (likely(was) && likely(was->size == c->size)) {
        if (c->where > was->where) {
            fit_adopt(was, c);
            return;
        }
        next = was->sibling;
        was->sibling = NULL;
        fit_hang(&c->child, was);
    } else {
        next = was;
    }
    fit_follow(&c->sibling, next, c);
    fit_hang(at, c);
}

/* Takes it out, without a search: it knows what leads to it. */
static INLINE void fit_remove(struct bins *bins, struct chunk *c)
{
    struct chunk *next = c->sibling, *below = c->child, **up = c->up;

    if (below) {
        if (below->sibling)
            below = zr_fit_combine(below);
        fit_hang(up, below);
        up = &below->sibling;
    }
    fit_follow(up, next, c);
    if (!next && up >= bins->root && up < bins->root + FIT_BINS)
        fit_unmark(bins, (unsigned)(up - bins->root));
}

/* The best fit; NULL: there is none. */
static INLINE struct chunk *fit_best(const struct bins *bins, size_t size)
{
    unsigned first = fit_bin(size), word = first / 64, page = word / 64;
    uint64_t left = bins->filled[word] & UINT64_MAX << first % 64;
    struct chunk *c;

    for (;;) {
        if (!left) {
            left = bins->words[page] & (UINT64_MAX - 1) << word % 64;
            while (unlikely(!left)) {
                if (++page == FIT_WORDS / 64)
                    return NULL;
                left = bins->words[page];
            }
            word = page * 64 + (unsigned)__builtin_ctzll(left);
            left = bins->filled[word];
        }
        for (c = bins->root[word * 64 + (unsigned)__builtin_ctzll(left)]; c; c = c->sibling)
            if (likely(c->size >= size))
                return c;
        left &= left - 1; /* some of its own bin, and all too small */
    }
}

/* And takes it out. */
static INLINE struct chunk *fit_take(struct bins *bins, size_t size)
{
    struct chunk *c = fit_best(bins, size);

    if (likely(c))
        fit_remove(bins, c);
    return c;
}

#endif
