/*
 * How PyTorch's caching allocator places blocks, written from its documented rules, with nothing but the
 * bookkeeping: to compare how much it would hold from the driver. Slow and simple on purpose.
 *
 *   sizes     rounded up to 512 B
 *   pools     up to 1 MiB from segments of 2 MiB; the rest from segments of 20 MiB, or of the request's own
 *             size rounded up to 2 MiB when that is 10 MiB or more
 *   placing   the smallest free block that is large enough, of equal ones the lowest; split when 512 B (in
 *             large segments: more than 1 MiB) would be left; freed neighbours merge
 */
#ifndef ZEROUTE_TEST_TORCH_MODEL_H
#define ZEROUTE_TEST_TORCH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct torch_block {
    uint64_t at, size; /* addresses grow with every segment, as a driver's mostly do */
    bool large, out;
    struct torch_block *prev, *next; /* in its segment */
};

struct torch_model {
    struct torch_block **free; /* sorted: pool, size, address */
    size_t count, room;
    uint64_t next, held;
    uint64_t calls;
};

static inline int torch_before(const struct torch_block *b, bool large, uint64_t size, uint64_t at) {
    if (b->large != large)
        return b->large < large;
    return b->size != size ? b->size < size : b->at < at;
}

/* Where such a block is in the list, or would be. */
static inline size_t torch_find(const struct torch_model *m, bool large, uint64_t size, uint64_t at) {
    size_t low = 0, high = m->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (torch_before(m->free[middle], large, size, at))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline void torch_file(struct torch_model *m, struct torch_block *b) {
    size_t i = torch_find(m, b->large, b->size, b->at);

    if (m->count == m->room) {
        m->room = m->room ? m->room * 2 : 1024;
        m->free = realloc(m->free, m->room * sizeof *m->free);
    }
    for (size_t j = m->count++; j > i; j--)
        m->free[j] = m->free[j - 1];
    m->free[i] = b;
}

static inline void torch_unfile(struct torch_model *m, const struct torch_block *b) {
    size_t i = torch_find(m, b->large, b->size, b->at);

    for (m->count--; i < m->count; i++)
        m->free[i] = m->free[i + 1];
}

static inline struct torch_block *torch_malloc(struct torch_model *m, uint64_t bytes) {
    const uint64_t mib = (uint64_t)1 << 20;
    uint64_t size = bytes < 512 ? 512 : (bytes + 511) & ~(uint64_t)511, left;
    bool large = size > mib;
    size_t i = torch_find(m, large, size, 0);
    struct torch_block *b;

    if (i < m->count && m->free[i]->large == large) {
        b = m->free[i];
        torch_unfile(m, b);
    } else {
        b = calloc(1, sizeof *b);
        b->size = !large ? 2 * mib : size < 10 * mib ? 20 * mib : (size + 2 * mib - 1) & ~(2 * mib - 1);
        b->large = large;
        b->at = m->next;
        m->next += b->size;
        m->held += b->size;
        m->calls++;
    }
    left = b->size - size;
    if (large ? left > mib : left >= 512) {
        struct torch_block *rest = calloc(1, sizeof *rest);

        *rest = (struct torch_block){b->at + size, left, large, false, b, b->next};
        if (b->next)
            b->next->prev = rest;
        b->next = rest;
        b->size = size;
        torch_file(m, rest);
    }
    b->out = true;
    return b;
}

static inline void torch_free(struct torch_model *m, struct torch_block *b) {
    struct torch_block *next = b->next, *prev = b->prev;

    b->out = false;
    if (next && !next->out) {
        torch_unfile(m, next);
        b->size += next->size;
        b->next = next->next;
        if (b->next)
            b->next->prev = b;
        free(next);
    }
    if (prev && !prev->out) {
        torch_unfile(m, prev);
        prev->size += b->size;
        prev->next = b->next;
        if (b->next)
            b->next->prev = prev;
        free(b);
        b = prev;
    }
    torch_file(m, b);
}

/* Nothing may be out any more. */
static inline void torch_end(struct torch_model *m) {
    while (m->count)
        free(m->free[--m->count]);
    free(m->free);
    m->free = NULL;
}

#endif
