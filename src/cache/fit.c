/* Chunks, and best fit with bins, bitmaps and pairing heaps. See fit.h. */
#include "cache/fit.h"

enum { CHUNKS_AT_ONCE = 64 };

ZR_COLD struct zr_chunk *zr_chunk_more(struct zr_chunk **spare) {
    struct zr_chunk *c = zr_piece(CHUNKS_AT_ONCE * sizeof *c);

    for (unsigned i = 0; c && i < CHUNKS_AT_ONCE; i++)
        zr_chunk_drop(spare, &c[i]);
    return *spare;
}

struct zr_chunk *zr_chunk_cut(struct zr_chunk *c, size_t size, struct zr_chunk **spare) {
    struct zr_chunk *rest = zr_chunk_new(spare);

    if (unlikely(!rest))
        return NULL;
    rest->base = c->base + size;
    rest->size = c->size - size;
    rest->prev = c;
    rest->next = c->next;
    rest->segment = c->segment;
    if (c->next)
        c->next->prev = rest;
    c->next = rest;
    c->size = size;
    return rest;
}

/* Merges a chunk with the next one; neither is in a bin. */
static void absorb_next(struct zr_chunk *c, struct zr_chunk **spare) {
    struct zr_chunk *next = c->next;

    c->size += next->size;
    c->next = next->next;
    if (c->next)
        c->next->prev = c;
    zr_chunk_drop(spare, next);
}

/* --- pairing heaps ------------------------------------------------------------------------------------------------ */

/* Makes *at point to c, which may be NULL. */
static void attach(struct zr_chunk **at, struct zr_chunk *c) {
    *at = c;
    if (c)
        c->up = at;
}

/* Makes the root with the higher address the first child of the other. Returns the latter, without a sibling. */
static struct zr_chunk *meld(struct zr_chunk *a, struct zr_chunk *b) {
    struct zr_chunk *low = a->base < b->base ? a : b, *high = low == a ? b : a;

    attach(&high->sibling, low->child);
    attach(&low->child, high);
    low->sibling = NULL;
    return low;
}

/* One heap of those linked by `sibling`: two-pass merging, which makes the cost logarithmic, amortised. */
static struct zr_chunk *combine(struct zr_chunk *first) {
    struct zr_chunk *pairs = NULL, *all = NULL;

    while (first) {
        struct zr_chunk *a = first, *b = a->sibling;

        first = b ? b->sibling : NULL;
        if (b)
            a = meld(a, b);
        a->sibling = pairs;
        pairs = a;
    }
    while (pairs) {
        struct zr_chunk *next = pairs->sibling;

        pairs->sibling = NULL;
        all = all ? meld(all, pairs) : pairs;
        pairs = next;
    }
    return all;
}

void zr_fit_insert(struct zr_fit *fit, struct zr_chunk *c) {
    unsigned bin = zr_fit_bin(c->size);
    struct zr_chunk **at = &fit->root[bin], *next;

    c->child = c->sibling = NULL;
    if (!*at) {
        fit->bins[bin / 64] |= (uint64_t)1 << bin % 64;
        fit->words[bin / 4096] |= (uint64_t)1 << bin / 64 % 64;
    }
    while (*at && (*at)->size < c->size)
        at = &(*at)->sibling;
    next = *at;
    if (next && next->size == c->size) {
        struct zr_chunk *heap = next;

        next = heap->sibling;
        c = meld(heap, c);
    }
    attach(&c->sibling, next);
    attach(at, c);
}

void zr_fit_remove(struct zr_fit *fit, struct zr_chunk *c) {
    struct zr_chunk **up = c->up, *next = c->sibling, *heap = c->child;

    if (heap) {
        if (heap->sibling)
            heap = combine(heap);
        attach(up, heap);
        up = &heap->sibling;
    }
    attach(up, next);
    c->up = NULL;
    if (!next && up >= fit->root && up < fit->root + FIT_BINS) {
        unsigned bin = (unsigned)(up - fit->root);

        fit->bins[bin / 64] &= ~((uint64_t)1 << bin % 64);
        if (fit->bins[bin / 64] == 0)
            fit->words[bin / 4096] &= ~((uint64_t)1 << bin / 64 % 64);
    }
}

void zr_fit_split(struct zr_fit *fit, struct zr_chunk *c, size_t size, struct zr_chunk **spare) {
    struct zr_chunk *rest = zr_chunk_cut(c, size, spare);

    if (likely(rest))
        zr_fit_insert(fit, rest);
}

void zr_fit_merge(struct zr_fit *fit, struct zr_chunk *c, struct zr_chunk **spare) {
    if (c->next && c->next->up) {
        zr_fit_remove(fit, c->next);
        absorb_next(c, spare);
    }
    if (c->prev && c->prev->up) {
        c = c->prev;
        zr_fit_remove(fit, c);
        absorb_next(c, spare);
    }
    zr_fit_insert(fit, c);
}
