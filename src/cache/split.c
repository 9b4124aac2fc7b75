/* Best fit: segments from the backing, split where something smaller is asked for, merged when it comes back. */
#include "cache/split.h"

#include "cache/heap.h"
#include "cache/pages.h"

#include <string.h>

#define MIB ((size_t)1 << 20)
#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)

enum { FAN = 4096 };

/* --- from an address to its chunk ------------------------------------------------------------------- */

struct chunk *zr_split_look(const struct zr_pool *pool, const void *p)
{
    uintptr_t a = (uintptr_t)p;
    struct bough *bough = __atomic_load_n(&pool->stem.at[a >> 45 & (FAN - 1)], __ATOMIC_ACQUIRE);
    struct branch *branch;
    struct leaf *leaf;

    if (unlikely(!bough))
        return NULL;
    branch = __atomic_load_n(&bough->at[a >> 33 & (FAN - 1)], __ATOMIC_ACQUIRE);
    if (unlikely(!branch))
        return NULL;
    leaf = __atomic_load_n(&branch->at[a >> 21 & (FAN - 1)], __ATOMIC_ACQUIRE);
    return leaf ? __atomic_load_n(&leaf->at[a >> 9 & (FAN - 1)], __ATOMIC_ACQUIRE) : NULL;
}

/* The node behind a pointer, made if there is none. */
#define FILL(where) \
    (*(where) ? *(where) \
              : (__atomic_store_n((where), zr_pages(sizeof **(where)), __ATOMIC_RELEASE), *(where)))

bool zr_split_point(struct zr_pool *pool, struct chunk *c, size_t size)
{
    for (uintptr_t a = c->base; a < c->base + size; a += GRAIN) {
        struct bough *bough = FILL(&pool->stem.at[a >> 45 & (FAN - 1)]);
        struct branch *branch = bough ? FILL(&bough->at[a >> 33 & (FAN - 1)]) : NULL;
        struct leaf *leaf = branch ? FILL(&branch->at[a >> 21 & (FAN - 1)]) : NULL;

        if (unlikely(!leaf))
            return false;
        __atomic_store_n(&leaf->at[a >> 9 & (FAN - 1)], c, __ATOMIC_RELEASE);
    }
    return true;
}

/* --- free chunks, by size and address: a tree per size class, balanced by random priorities ---------- */

static unsigned bin_of(size_t size)
{
    return size > ZR_CLASS_LIMIT ? ZR_CLASSES - 1u : zr_class_of(size);
}

static bool before(const struct chunk *a, const struct chunk *b)
{
    return a->size != b->size ? a->size < b->size : a->base < b->base;
}

static void insert(struct bins *bins, struct chunk *c)
{
    unsigned bin = bin_of(c->size);
    struct chunk **at = &bins->tree[bin], **lower = &c->left, **upper = &c->right, *rest;

    c->priority = (uint32_t)(c->base * 0x9e3779b97f4a7c15u >> 32);
    while (*at && (*at)->priority >= c->priority)
        at = before(*at, c) ? &(*at)->right : &(*at)->left;
    rest = *at;
    while (rest)
        if (before(rest, c)) {
            *lower = rest;
            lower = &rest->right;
            rest = rest->right;
        } else {
            *upper = rest;
            upper = &rest->left;
            rest = rest->left;
        }
    *lower = *upper = NULL;
    *at = c;
    bins->filled[bin / 64] |= (uint64_t)1 << bin % 64;
}

static void withdraw(struct bins *bins, struct chunk *c)
{
    unsigned bin = bin_of(c->size);
    struct chunk **at = &bins->tree[bin], *l = c->left, *r = c->right;

    while (*at != c)
        at = before(*at, c) ? &(*at)->right : &(*at)->left;
    while (l && r)
        if (l->priority >= r->priority) {
            *at = l;
            at = &l->right;
            l = l->right;
        } else {
            *at = r;
            at = &r->left;
            r = r->left;
        }
    *at = l ? l : r;
    if (!bins->tree[bin])
        bins->filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
}

/* The smallest chunk of at least this size; of equal ones the lowest. */
static struct chunk *best_fit(const struct bins *bins, size_t size)
{
    unsigned bin = bin_of(size), word = bin / 64;
    struct chunk *best = NULL, *c;
    uint64_t left;

    for (c = bins->tree[bin]; c;)
        if (c->size >= size) {
            best = c;
            c = c->left;
        } else {
            c = c->right;
        }
    if (best)
        return best;
    left = bin % 64 == 63 ? 0 : bins->filled[word] & ~(((uint64_t)2 << bin % 64) - 1);
    while (!left && ++word < sizeof bins->filled / sizeof *bins->filled)
        left = bins->filled[word];
    if (!left)
        return NULL;
    for (c = bins->tree[word * 64 + (unsigned)__builtin_ctzll(left)]; c->left;)
        c = c->left;
    return c;
}

static void file(struct zr_pool *pool, struct chunk *c)
{
    struct group *g = &pool->group[c->group];

    insert(&g->free, c);
    c->reserved = false;
    __atomic_store_n(&c->kind, CHUNK_FREE, __ATOMIC_RELAXED);
    if (unlikely(c->size == c->segment->size)) {
        c->segment->stamp = pool->now;
        g->whole_free += c->size;
    }
}

static void unfile(struct group *g, struct chunk *c)
{
    withdraw(c->reserved ? &g->reserve : &g->free, c);
    if (unlikely(c->size == c->segment->size))
        g->whole_free -= c->size;
}

/*
 * Nothing lives in the group any more. All segments are put aside, and each is taken up again when a new one
 * of its size would be needed: so a program that does the same again finds the same places, and calls the
 * driver for none of them. Segments that lie in the reserve already are not touched.
 */
static void begin_again(struct group *g)
{
    for (unsigned word = 0; word < sizeof g->free.filled / sizeof *g->free.filled; word++)
        while (g->free.filled[word]) {
            struct chunk *c =
                g->free.tree[word * 64 + (unsigned)__builtin_ctzll(g->free.filled[word])];

            withdraw(&g->free, c);
            insert(&g->reserve, c);
            c->reserved = true;
        }
}

/* --- chunks and segments ------------------------------------------------------------------------------- */

static struct chunk *new_chunk(struct zr_pool *pool)
{
    struct chunk *c = pool->spare_chunks;

    if (likely(c)) {
        pool->spare_chunks = c->right;
        return c;
    }
    return zr_piece(sizeof *c);
}

static void drop_chunk(struct zr_pool *pool, struct chunk *c)
{
    __atomic_store_n(&c->kind, CHUNK_NONE, __ATOMIC_RELAXED);
    c->right = pool->spare_chunks;
    pool->spare_chunks = c;
}

static void release(struct zr_pool *pool, struct group *g, struct segment *s)
{
    unfile(g, s->first);
    drop_chunk(pool, s->first);
    if (s->prev)
        s->prev->next = s->next;
    else
        g->segments = s->next;
    if (s->next)
        s->next->prev = s->prev;
    g->bytes -= s->size;
    pool->held -= s->from_size;
    pool->frees++;
    pool->backing.free(pool->backing.arg, s->from, s->from_size);
    s->next = pool->spare_segments;
    pool->spare_segments = s;
}

uint64_t zr_split_trim(struct zr_pool *pool, uint64_t keep, uint32_t min_age)
{
    uint64_t before_trim = pool->held;
    uint32_t now = min_age ? zr_now() : 0;

    for (unsigned i = 0; i < GROUPS; i++) {
        struct group *g = &pool->group[i];
        struct segment *next;

        for (struct segment *s = g->segments; s; s = next) {
            next = s->next;
            if (g->whole_free == 0 || pool->group[0].whole_free + pool->group[1].whole_free <= keep)
                break;
            if (s->first->kind == CHUNK_FREE && s->first->size == s->size &&
                (!min_age || (int32_t)(now - s->stamp) >= (int32_t)min_age))
                release(pool, g, s);
        }
    }
    return before_trim - pool->held;
}

/* One chunk, free and not filed yet, that is all of a new segment. */
static struct chunk *new_segment(struct zr_pool *pool, unsigned group, size_t size, int *code)
{
    struct group *g = &pool->group[group];
    struct segment *s = pool->spare_segments;
    struct chunk *c = new_chunk(pool);
    uintptr_t base;

    if (s)
        pool->spare_segments = s->next;
    else
        s = zr_piece(sizeof *s);
    *code = ZR_CACHE_TROUBLE;
    if (s && c)
        *code = pool->backing.alloc(pool->backing.arg, size, &s->from);
    if (*code != 0) {
        if (s) {
            s->next = pool->spare_segments;
            pool->spare_segments = s;
        }
        if (c)
            drop_chunk(pool, c);
        return NULL;
    }
    pool->allocs++;
    pool->held += size;
    if (pool->held > pool->peak_held)
        pool->peak_held = pool->held;
    base = ((uintptr_t)s->from + GRAIN - 1) & ~(uintptr_t)(GRAIN - 1);
    s->from_size = size;
    s->base = base;
    s->size = (size - (base - (uintptr_t)s->from)) & ~(size_t)(GRAIN - 1);
    s->first = c;
    s->prev = NULL;
    s->next = g->segments;
    if (g->segments)
        g->segments->prev = s;
    g->segments = s;
    g->bytes += s->size;
    __atomic_store_n(&c->base, base, __ATOMIC_RELAXED);
    c->size = s->size;
    c->prev = c->next = NULL;
    c->segment = s;
    c->slab = NULL;
    c->group = (uint8_t)group;
    return c;
}

/* Nothing fits: a segment from the reserve, the very size that would be asked for if there is one, or a new one. */
static struct chunk *grow(struct zr_pool *pool, unsigned group, size_t size, int *code)
{
    struct group *g = &pool->group[group];
    size_t exact = (size + SMALL_SEGMENT - 1) & ~(SMALL_SEGMENT - 1);
    size_t want = group == GROUP_LARGE && size < LARGE_SEGMENT / 2 ? LARGE_SEGMENT : exact;
    struct chunk *c = best_fit(&g->reserve, want);

    if (!c || c->size != want)
        c = best_fit(&g->reserve, size);
    if (c) {
        unfile(g, c);
        return c;
    }
    c = new_segment(pool, group, want, code);
    if (!c && (zr_split_trim(pool, 0, 0) || want != exact))
        c = new_segment(pool, group, exact, code);
    return c;
}

/* Cuts off what is behind the first `size` bytes and files it as free. */
static void split(struct zr_pool *pool, struct chunk *c, size_t size)
{
    struct chunk *rest = new_chunk(pool);

    if (unlikely(!rest))
        return;
    __atomic_store_n(&rest->base, c->base + size, __ATOMIC_RELAXED);
    rest->size = c->size - size;
    rest->segment = c->segment;
    rest->slab = NULL;
    rest->group = c->group;
    rest->prev = c;
    rest->next = c->next;
    if (c->next)
        c->next->prev = rest;
    c->next = rest;
    c->size = size;
    file(pool, rest);
}

/* Chunks that are too small for anything of their group stay with the block in front of them. */
static bool worth_splitting(unsigned group, size_t rest)
{
    return group == GROUP_SMALL ? rest >= GRAIN : rest > MIB;
}

struct chunk *zr_split_take(struct zr_pool *pool, size_t size, size_t alignment, int *code)
{
    size_t room = alignment > GRAIN ? size + alignment - GRAIN : size;
    unsigned group = room <= MIB ? GROUP_SMALL : GROUP_LARGE;
    struct group *g = &pool->group[group];
    struct chunk *c = best_fit(&g->free, room), *front;
    size_t before_it;

    if (likely(c))
        unfile(g, c);
    else if (!(c = grow(pool, group, room, code)))
        return NULL;
    before_it = -c->base & (alignment > GRAIN ? alignment - 1 : 0);
    if (unlikely(before_it)) {
        front = c;
        split(pool, front, before_it);
        c = front->next;
        if (!c || c->base != front->base + before_it) {
            file(pool, front);
            *code = ZR_CACHE_TROUBLE;
            return NULL;
        }
        unfile(g, c);
        file(pool, front);
    }
    if (worth_splitting(group, c->size - size))
        split(pool, c, size);
    return c;
}

void zr_split_give(struct zr_pool *pool, struct chunk *c)
{
    struct group *g = &pool->group[c->group];
    struct chunk *prev = c->prev, *next = c->next;

    c->slab = NULL;
    if (next && next->kind == CHUNK_FREE) {
        unfile(g, next);
        c->size += next->size;
        c->next = next->next;
        if (c->next)
            c->next->prev = c;
        drop_chunk(pool, next);
    }
    if (prev && prev->kind == CHUNK_FREE) {
        unfile(g, prev);
        prev->size += c->size;
        prev->next = c->next;
        if (prev->next)
            prev->next->prev = prev;
        drop_chunk(pool, c);
        c = prev;
    }
    file(pool, c);
    if (likely(c->size != c->segment->size))
        return;
    if (pool->group[0].whole_free + pool->group[1].whole_free > pool->keep)
        release(pool, g, c->segment);
    if (g->whole_free == g->bytes)
        begin_again(g);
}
