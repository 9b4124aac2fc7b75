/* Best fit: segments from the backing, split where something smaller is asked for, merged when it comes back. */
#include "cache/split.h"

#include "cache/heap.h"
#include "cache/pages.h"

#include <string.h>

#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)

/* --- free chunks, by size and address: a tree per size class, balanced by random priorities ---------- */

__extension__ typedef unsigned __int128 rank;

/* Of a multiple of GRAIN below 2^48; larger sizes have larger bins. No branches. */
static inline unsigned bin_of(size_t size)
{
    size_t grains = size / GRAIN;
    unsigned top = 63 - (unsigned)__builtin_clzll(grains);

    return top * 8 + (unsigned)(grains << 3 >> top & 7);
}

static inline rank rank_of(const struct chunk *c)
{
    return (rank)c->size << 64 | c->where;
}

/* Made from the address, as good as random, and never stored. */
static inline uint64_t priority(const struct chunk *c)
{
    return c->where * 0x9e3779b97f4a7c15u;
}

static inline void hang(struct chunk **at, struct chunk *c)
{
    *at = c;
    __atomic_store_n(&c->up, at, __ATOMIC_RELAXED); /* after it was said to be free: pool.c looks at slabs without the lock */
}

static inline __attribute__((always_inline)) void insert(struct bins *bins, struct chunk *c)
{
    unsigned bin = bin_of(c->size);
    struct chunk **at = &bins->tree[bin], **before = &c->child[0], **after = &c->child[1], *rest;
    uint64_t mine = priority(c);
    rank r = rank_of(c);

    bins->filled[bin / 64] |= (uint64_t)1 << bin % 64;
    while (*at && priority(*at) >= mine)
        if (rank_of(*at) < r)
            at = &(*at)->child[1];
        else
            at = &(*at)->child[0];
    rest = *at;
    hang(at, c);
    while (rest)
        if (rank_of(rest) < r) {
            hang(before, rest);
            before = &rest->child[1];
            rest = rest->child[1];
        } else {
            hang(after, rest);
            after = &rest->child[0];
            rest = rest->child[0];
        }
    *before = *after = NULL;
}

/* Takes it out, without a search: it knows what leads to it. */
static inline __attribute__((always_inline)) void withdraw(struct bins *bins, const struct chunk *c)
{
    struct chunk *l = c->child[0], *r = c->child[1], **at = c->up;

    while (l && r)
        if (priority(l) >= priority(r)) {
            hang(at, l);
            at = &l->child[1];
            l = *at;
        } else {
            hang(at, r);
            at = &r->child[0];
            r = *at;
        }
    if (!l)
        l = r;
    if (l) {
        hang(at, l);
        return;
    }
    *at = NULL;
    if (at >= bins->tree && at < bins->tree + FIT_BINS) {
        size_t bin = (size_t)(at - bins->tree);

        bins->filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
    }
}

/* The smallest chunk of at least this size, of equal ones the lowest; NULL: none. */
static inline __attribute__((always_inline)) struct chunk *best_fit(const struct bins *bins, size_t size)
{
    unsigned bin = bin_of(size), word = bin / 64;
    struct chunk *best = NULL, *c = bins->tree[bin];
    uint64_t left;

    while (c)
        if (c->size < size) {
            c = c->child[1];
        } else {
            best = c;
            c = c->child[0];
        }
    if (best)
        return best;
    left = bins->filled[word] & (UINT64_MAX - 1) << bin % 64;
    while (!left)
        if (++word < FIT_WORDS)
            left = bins->filled[word];
        else
            return NULL;
    c = bins->tree[word * 64 + (unsigned)__builtin_ctzll(left)];
    while (c->child[0])
        c = c->child[0];
    return c;
}

/* Blocks of the large group are larger than any of the small one. */
static inline unsigned group_of(const struct chunk *out)
{
    return out->size > MIB;
}

bool zr_split_is_first(struct zr_pool *pool, const struct chunk *c, size_t size)
{
    const struct chunk *best = best_fit(pool->use[group_of(c)], size);

    return !best || rank_of(c) < rank_of(best);
}

static inline bool is_whole(const struct chunk *c)
{
    return !c->prev && !c->next;
}

/* Something lives in the segment, or did until now: it is in use. */
static inline __attribute__((always_inline)) void file(struct zr_pool *pool, unsigned group, struct chunk *c)
{
    set_where(c, base_of(c), CHUNK_FREE);
    insert(pool->use[group], c);
    if (unlikely(is_whole(c))) {
        c->segment->stamp = pool->now;
        pool->group[group].whole_free += c->size;
    }
}

static inline void unfile(struct zr_pool *pool, unsigned group, struct chunk *c)
{
    withdraw(pool->use[group], c);
}

static void belong(struct zr_pool *pool, struct segment *s, unsigned set)
{
    pool->members[s->set]--;
    pool->members[set]++;
    s->set = (uint8_t)set;
}

/* The best fit, taken out; NULL: there is none. */
static inline struct chunk *take_best(struct zr_pool *pool, unsigned group, size_t size)
{
    struct chunk *c = best_fit(pool->use[group], size);

    if (unlikely(!c))
        return NULL;
    withdraw(pool->use[group], c);
    if (unlikely(is_whole(c)))
        pool->group[group].whole_free -= c->size;
    return c;
}

/* Of a set that is not in use; NULL: there is none, or it is not of just this size. It is in use from now on. */
static struct chunk *take_fit(struct zr_pool *pool, unsigned group, unsigned set, size_t size, bool exact)
{
    struct group *g = &pool->group[group];
    struct chunk *c = best_fit(&g->bins[set], size);

    if (!c || (exact && c->size != size))
        return NULL;
    withdraw(&g->bins[set], c);
    if (is_whole(c))
        g->whole_free -= c->size;
    belong(pool, c->segment, pool->in_use);
    return c;
}

void zr_split_adopt(struct zr_pool *pool, struct segment *s, unsigned to)
{
    struct group *g = &pool->group[s->group];

    for (struct chunk *c = s->first; c; c = c->next)
        if (kind_of(c) == CHUNK_FREE) {
            withdraw(&g->bins[s->set], c);
            insert(&g->bins[to], c);
        }
    belong(pool, s, to);
}

void zr_split_move(struct zr_pool *pool, unsigned from, unsigned to)
{
    for (unsigned i = 0; i < GROUPS; i++)
        for (struct segment *s = pool->group[i].segments; s && pool->members[from]; s = s->next)
            if (s->set == from)
                zr_split_adopt(pool, s, to);
}

/* --- chunks and segments ------------------------------------------------------------------------------- */

static inline struct chunk *new_chunk(struct zr_pool *pool)
{
    struct chunk *c = pool->spare_chunks;

    if (likely(c)) {
        pool->spare_chunks = c->child[1];
        return c;
    }
    return zr_piece(sizeof *c);
}

static inline void drop_chunk(struct zr_pool *pool, struct chunk *c)
{
    set_where(c, 0, CHUNK_NONE);
    c->child[1] = pool->spare_chunks;
    pool->spare_chunks = c;
}

static void release(struct zr_pool *pool, struct segment *s)
{
    struct group *g = &pool->group[s->group];

    if (pool->root_segment == s)
        pool->root = 0;
    withdraw(&g->bins[s->set], s->first);
    g->whole_free -= s->size;
    drop_chunk(pool, s->first);
    if (s->prev)
        s->prev->next = s->next;
    else
        g->segments = s->next;
    if (s->next)
        s->next->prev = s->prev;
    g->bytes -= s->size;
    pool->members[s->set]--;
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
            if (kind_of(s->first) == CHUNK_FREE && s->first->size == s->size &&
                (!min_age || (int32_t)(now - s->stamp) >= (int32_t)min_age))
                release(pool, s);
        }
    }
    return before_trim - pool->held;
}

/* One chunk, free and not filed yet, that is all of a new segment. */
static __attribute__((noinline)) struct chunk *new_segment(struct zr_pool *pool, unsigned group, size_t size, int *code)
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
    base = *code == 0 ? ((uintptr_t)s->from + GRAIN - 1) & ~(uintptr_t)(GRAIN - 1) : 0;
    if (*code == 0 && group == GROUP_SMALL && !zr_find_by_grains(pool, base, size)) {
        pool->backing.free(pool->backing.arg, s->from, size);
        *code = ZR_CACHE_TROUBLE;
    }
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
    s->from_size = size;
    s->size = (size - (base - (uintptr_t)s->from)) & ~(size_t)(GRAIN - 1);
    s->group = (uint8_t)group;
    s->set = pool->in_use;
    pool->members[s->set]++;
    s->first = c;
    s->prev = NULL;
    s->next = g->segments;
    if (g->segments)
        g->segments->prev = s;
    g->segments = s;
    g->bytes += s->size;
    set_where(c, base, CHUNK_NONE);
    c->size = s->size;
    c->prev = c->next = NULL;
    c->segment = s;
    return c;
}

/* Nothing fits: a segment that was put aside, the very size that would be asked for if there is one, or a new one. */
static __attribute__((noinline)) struct chunk *grow(struct zr_pool *pool, unsigned group, size_t size, int *code)
{
    size_t exact = (size + SMALL_SEGMENT - 1) & ~(SMALL_SEGMENT - 1);
    size_t want = group == GROUP_LARGE && size < LARGE_SEGMENT / 2 ? LARGE_SEGMENT : exact;
    struct chunk *c;

    if (zr_front_gather(pool) && (c = take_best(pool, group, size)))
        return c;
    if (pool->record.undecided) {
        if ((c = take_fit(pool, group, pool->aside, want, true)))
            return c;
        zr_again_go_on(pool);
        if ((c = take_best(pool, group, size)))
            return c;
    }
    if ((c = take_fit(pool, group, pool->later, want, true)) ||
        (c = take_fit(pool, group, pool->later, size, false)))
        return c;
    c = new_segment(pool, group, want, code);
    if (!c && (zr_split_trim(pool, 0, 0) || want != exact))
        c = new_segment(pool, group, exact, code);
    return c;
}

/* Cuts off what is behind the first `size` bytes and files it as free. */
static inline void split(struct zr_pool *pool, unsigned group, struct chunk *c, size_t size)
{
    struct chunk *rest = new_chunk(pool);

    if (unlikely(!rest))
        return;
    set_where(rest, base_of(c) + size, CHUNK_NONE);
    rest->size = c->size - size;
    rest->segment = c->segment;
    rest->prev = c;
    rest->next = c->next;
    if (c->next)
        c->next->prev = rest;
    c->next = rest;
    c->size = size;
    file(pool, group, rest);
}

/* Chunks that are too small for anything of their group stay with the block in front of them. */
static inline bool worth_splitting(unsigned group, size_t rest)
{
    return group == GROUP_SMALL ? rest >= GRAIN : rest > MIB;
}

/* Alignment beyond the grain: what lies before it becomes a chunk of its own. NULL: no memory for that. */
static __attribute__((noinline)) struct chunk *cut_before(struct zr_pool *pool, unsigned group, struct chunk *front, size_t before_it)
{
    struct chunk *c;

    if (before_it == 0)
        return front;
    split(pool, group, front, before_it);
    c = front->next;
    if (!c || base_of(c) != base_of(front) + before_it) {
        file(pool, group, front);
        return NULL;
    }
    unfile(pool, group, c);
    file(pool, group, front);
    return c;
}

static inline __attribute__((always_inline)) struct chunk *take(struct zr_pool *pool, size_t size, size_t alignment, int *code)
{
    size_t room = alignment > GRAIN ? size + alignment - GRAIN : size;
    unsigned group = room > MIB;
    struct chunk *c;

    if (unlikely(room > size && group == GROUP_LARGE && size <= MIB)) { /* one block to a window */
        room += MIB + GRAIN - size;
        size = MIB + GRAIN;
    }
    if (unlikely(pool->record.undecided || pool->record.count < RECORD))
        zr_again_note(pool, size);
    c = take_best(pool, group, room);
    if (unlikely(!c) && !(c = grow(pool, group, room, code)))
        return NULL;
    if (unlikely(alignment > GRAIN) && !(c = cut_before(pool, group, c, -base_of(c) & (alignment - 1)))) {
        *code = ZR_CACHE_TROUBLE;
        return NULL;
    }
    if (worth_splitting(group, c->size - size))
        split(pool, group, c, size);
    return c;
}

struct chunk *zr_split_take(struct zr_pool *pool, size_t size, int *code)
{
    return take(pool, size, 0, code);
}

struct chunk *zr_split_take_block(struct zr_pool *pool, size_t size, size_t alignment, int *code)
{
    struct chunk *c = take(pool, GRAINS(size), alignment, code);

    if (unlikely(!c))
        return NULL;
    if (unlikely(!zr_find_set(pool, c))) {
        zr_split_give(pool, c);
        *code = ZR_CACHE_TROUBLE;
        return NULL;
    }
    c->asked = size;
    set_where(c, base_of(c), CHUNK_BLOCK);
    return c;
}

void zr_split_give(struct zr_pool *pool, struct chunk *c)
{
    struct chunk *prev = c->prev, *next = c->next;
    unsigned group = group_of(c);

    if (next && kind_of(next) == CHUNK_FREE) {
        unfile(pool, group, next);
        c->size += next->size;
        c->next = next->next;
        if (c->next)
            c->next->prev = c;
        drop_chunk(pool, next);
    }
    if (prev && kind_of(prev) == CHUNK_FREE) {
        unfile(pool, group, prev);
        prev->size += c->size;
        prev->next = c->next;
        if (prev->next)
            prev->next->prev = prev;
        drop_chunk(pool, c);
        c = prev;
    }
    file(pool, group, c);
    if (unlikely(is_whole(c)) &&
        pool->group[0].whole_free + pool->group[1].whole_free > pool->keep - pool->keep / 4)
        release(pool, c->segment);
}
