/* Chunks, and best fit. See fit.h. */
#include "cache/fit.h"

enum { CHUNKS_AT_ONCE = 64 };

struct zr_chunk *zr_chunk_new(struct zr_chunk **spare) {
    struct zr_chunk *c = *spare;

    if (unlikely(!c)) {
        c = zr_piece(CHUNKS_AT_ONCE * sizeof *c);
        if (!c)
            return NULL;
        for (unsigned i = 1; i < CHUNKS_AT_ONCE; i++)
            zr_chunk_drop(spare, &c[i]);
    } else {
        *spare = c->larger;
    }
    c->up = NULL;
    return c;
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

/* Merges a chunk with the next one; neither is in a treap. */
static void absorb_next(struct zr_chunk *c, struct zr_chunk **spare) {
    struct zr_chunk *next = c->next;

    c->size += next->size;
    c->next = next->next;
    if (c->next)
        c->next->prev = c;
    zr_chunk_drop(spare, next);
}

/* --- the treap -------------------------------------------------------------------------------- */

static bool precedes(const struct zr_chunk *a, const struct zr_chunk *b) {
    return a->size < b->size || (a->size == b->size && a->base < b->base);
}

/*
 * The heap order: multiples of the golden ratio spread evenly. By size first: a chunk lands where
 * the last one of its size did, so that branch prediction works.
 */
static bool outranks(const struct zr_chunk *a, const struct zr_chunk *b) {
    const uint64_t golden = 0x9e3779b97f4a7c15u;

    return a->size == b->size ? (uintptr_t)a * golden > (uintptr_t)b * golden
                              : a->size * golden > b->size * golden;
}

/* Makes *at point to c, which may be NULL. */
static void attach(struct zr_chunk **at, struct zr_chunk *c) {
    *at = c;
    if (c)
        c->up = at;
}

void zr_fit_insert(struct zr_chunk **at, struct zr_chunk *c) {
    struct zr_chunk **smaller = &c->smaller, **larger = &c->larger, *rest;

    while (*at && outranks(*at, c))
        at = precedes(c, *at) ? &(*at)->smaller : &(*at)->larger;
    rest = *at;
    attach(at, c);
    while (rest) /* c splits the subtree that was there */
        if (precedes(rest, c)) {
            attach(smaller, rest);
            smaller = &rest->larger;
            rest = *smaller;
        } else {
            attach(larger, rest);
            larger = &rest->smaller;
            rest = *larger;
        }
    *smaller = NULL;
    *larger = NULL;
}

void zr_fit_remove(struct zr_chunk *c) {
    struct zr_chunk **at = c->up, *smaller = c->smaller, *larger = c->larger;

    while (smaller && larger)
        if (outranks(smaller, larger)) {
            attach(at, smaller);
            at = &smaller->larger;
            smaller = *at;
        } else {
            attach(at, larger);
            at = &larger->smaller;
            larger = *at;
        }
    attach(at, smaller ? smaller : larger);
    c->up = NULL;
}

void zr_fit_merge(struct zr_chunk **root, struct zr_chunk *c, struct zr_chunk **spare) {
    if (c->next && c->next->up) {
        zr_fit_remove(c->next);
        absorb_next(c, spare);
    }
    if (c->prev && c->prev->up) {
        c = c->prev;
        zr_fit_remove(c);
        absorb_next(c, spare);
    }
    zr_fit_insert(root, c);
}
