/* Best fit: segments from the backing, split where something smaller is asked for, merged when it comes back. */
#include "cache/split.h"

#include "cache/heap.h"
#include "base/pages.h"

#include <string.h>

#define SMALL_SEGMENT (2 * MIB)
#define LARGE_SEGMENT (20 * MIB)

bool zr_split_is_first(struct zr_pool *pool, const struct chunk *c, size_t size)
{
    const struct chunk *best = fit_best(pool->use[zr_group_of(c)], size);

    return !best || fit_before(c, best);
}

static void belong(struct zr_pool *pool, struct segment *s, unsigned set)
{
    pool->members[s->set]--;
    pool->members[set]++;
    s->set = (uint8_t)set;
}

/* The best fit of those in use, taken out; NULL: there is none. */
static struct chunk *take_best(struct zr_pool *pool, unsigned group, size_t size)
{
    struct chunk *c = fit_take(pool->use[group], size);

    if (c && zr_is_whole(pool, c))
        pool->whole_free -= c->size;
    return c;
}

/* All of a segment of a set that is not in use, if one was new in this place; NULL: none. It is in use from now on. */
static struct chunk *take_up(struct zr_pool *pool, unsigned group, unsigned set, uint64_t at, size_t size)
{
    struct segment *s = zr_again_find(pool, at, set);

    if (!s || s->group != group || s->size < size)
        return NULL;
    fit_remove(&pool->group[group].bins[set], s->first);
    pool->whole_free -= s->size;
    belong(pool, s, pool->in_use);
    return s->first;
}

void zr_split_adopt(struct zr_pool *pool, struct segment *s, unsigned to)
{
    struct group *g = &pool->group[s->group];

    for (struct chunk *c = s->first; c != &pool->edge; c = c->next)
        if (kind_of(c) == CHUNK_FREE) {
            fit_remove(&g->bins[s->set], c);
            fit_insert(&g->bins[to], c);
        }
    belong(pool, s, to);
}

/* From the oldest on: those that are many, and in one set for long, are mostly behind the last one that is moved. */
void zr_split_move(struct zr_pool *pool, unsigned from, unsigned to, uint64_t born)
{
    for (unsigned i = 0; i < GROUPS; i++)
        for (struct segment *s = pool->group[i].oldest; s && s->born < born && pool->members[from]; s = s->newer)
            if (s->set == from)
                zr_split_adopt(pool, s, to);
}

/* --- chunks and segments ------------------------------------------------------------------------------- */

/* Its chunks have gone. */
static void give_segment(struct zr_pool *pool, struct segment *s)
{
    struct group *g = &pool->group[s->group];

    if (s->newer)
        s->newer->older = s->older;
    else
        g->newest = s->older;
    if (s->older)
        s->older->newer = s->newer;
    else
        g->oldest = s->newer;
    zr_again_delist(pool, s);
    pool->bytes -= s->size;
    pool->members[s->set]--;
    pool->held -= s->from_size;
    pool->frees++;
    pool->backing.free(pool->backing.arg, s->from, s->from_size);
    s->older = pool->spare_segments;
    pool->spare_segments = s;
}

static void release(struct zr_pool *pool, struct segment *s)
{
    if (pool->root_segment == s)
        pool->root = 0;
    fit_remove(&pool->group[s->group].bins[s->set], s->first);
    pool->whole_free -= s->size;
    zr_chunk_drop(pool, s->first);
    give_segment(pool, s);
}

uint64_t zr_split_trim(struct zr_pool *pool, uint64_t keep, uint32_t min_age)
{
    uint64_t before_trim = pool->held;
    uint32_t now = min_age ? zr_now() : 0;

    for (unsigned i = 0; i < GROUPS; i++) {
        struct group *g = &pool->group[i];
        struct segment *next;

        for (struct segment *s = g->newest; s; s = next) {
            next = s->older;
            if (pool->whole_free <= keep)
                break;
            if (kind_of(s->first) == CHUNK_FREE && s->first->size == s->size &&
                (!min_age || (int32_t)(now - s->stamp) >= (int32_t)min_age))
                release(pool, s);
        }
    }
    return before_trim - pool->held;
}

void zr_split_end(struct zr_pool *pool)
{
    for (unsigned i = 0; i < GROUPS; i++) {
        struct group *g = &pool->group[i];

        while (g->newest) {
            struct segment *s = g->newest;

            for (struct chunk *c = s->first, *next; c != &pool->edge; c = next) {
                next = c->next;
                if (kind_of(c) == CHUNK_FREE) {
                    fit_remove(&g->bins[s->set], c);
                } else if (kind_of(c) == CHUNK_SLAB) {
                    c->slab->next = pool->spare_slabs;
                    pool->spare_slabs = c->slab;
                }
                zr_chunk_drop(pool, c);
            }
            give_segment(pool, s);
        }
    }
}

/* One chunk, free and not filed yet, that is all of a new segment. */
static __attribute__((noinline)) struct chunk *new_segment(struct zr_pool *pool, unsigned group, size_t size, int *code)
{
    struct group *g = &pool->group[group];
    struct segment *s = pool->spare_segments;
    struct chunk *c = zr_chunk_new(pool);
    uintptr_t base;

    if (s)
        pool->spare_segments = s->older;
    else
        s = zr_piece(sizeof *s);
    *code = ZR_CACHE_TROUBLE;
    if (s && c)
        *code = pool->backing.alloc(pool->backing.arg, size, &s->from);
    base = *code == 0 ? ((uintptr_t)s->from + GRAIN - 1) & ~(uintptr_t)(GRAIN - 1) : 0;
    if (*code == 0) {
        set_where(c, base, CHUNK_NONE);
        if (!zr_find_reach(pool, base, size, group == GROUP_SMALL) || !zr_find_set(pool, c)) {
            pool->backing.free(pool->backing.arg, s->from, size);
            *code = ZR_CACHE_TROUBLE;
        }
    }
    if (*code != 0) {
        if (s) {
            s->older = pool->spare_segments;
            pool->spare_segments = s;
        }
        if (c)
            zr_chunk_drop(pool, c);
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
    s->newer = NULL;
    s->older = g->newest;
    *(g->newest ? &g->newest->newer : &g->oldest) = s;
    g->newest = s;
    pool->bytes += s->size;
    c->size = s->size;
    c->prev = c->next = &pool->edge;
    c->segment = s;
    return c;
}

/* A segment that was put aside, or whatever fits once all of them are in use, or a new one. */
struct chunk *zr_split_grow(struct zr_pool *pool, unsigned group, size_t size, int *code)
{
    size_t exact = (size + SMALL_SEGMENT - 1) & ~(SMALL_SEGMENT - 1);
    size_t want = group == GROUP_LARGE && size < LARGE_SEGMENT / 2 ? LARGE_SEGMENT : exact;
    struct chunk *c;
    uint64_t at;

    if (zr_front_gather(pool) && (c = take_best(pool, group, size)))
        return c;
    if (pool->record.undecided) {
        if ((c = take_up(pool, group, pool->aside, zr_again_place(pool, size), size)))
            return c;
        zr_again_go_on(pool, size);
        if ((c = take_best(pool, group, size)))
            return c;
    }
    while (at = zr_again_place(pool, size), pool->members[pool->later]) {
        if ((c = take_up(pool, group, pool->later, at, size)))
            return c;
        zr_again_depart(pool, at);
        if ((c = take_best(pool, group, size)))
            return c;
    }
    c = new_segment(pool, group, want, code);
    if (!c && (zr_split_trim(pool, 0, 0) || want != exact))
        c = new_segment(pool, group, exact, code);
    if (c)
        zr_again_enlist(pool, c->segment, at);
    return c;
}

/* Alignment beyond the grain: what lies before it becomes a chunk of its own. NULL: no memory for that. */
static struct chunk *cut_before(struct zr_pool *pool, unsigned group, struct chunk *front, size_t before_it)
{
    struct chunk *c;

    if (before_it == 0)
        return front;
    zr_split_off(pool, group, front, before_it);
    c = front->next;
    if (base_of(c) != base_of(front) + before_it) {
        c = NULL;
        if (zr_is_whole(pool, front))
            pool->whole_free += front->size; /* a segment that is entirely free, as it was */
    } else {
        fit_remove(pool->use[group], c);
        set_where(c, base_of(c), CHUNK_NONE);
    }
    zr_split_file(pool, group, front);
    return c;
}

struct chunk *zr_split_take_aligned(struct zr_pool *pool, size_t size, size_t alignment, int *code)
{
    size_t room = size + alignment - GRAIN;
    unsigned group = room > MIB;
    struct chunk *c;

    if (group == GROUP_LARGE && size <= MIB) { /* one block to a window */
        room += MIB + GRAIN - size;
        size = MIB + GRAIN;
    }
    if (pool->noting)
        zr_again_note(pool, size);
    c = take_best(pool, group, room);
    if (!c && !(c = zr_split_grow(pool, group, room, code)))
        return NULL;
    c = cut_before(pool, group, c, -base_of(c) & (alignment - 1));
    if (!c) {
        *code = ZR_CACHE_TROUBLE;
        return NULL;
    }
    zr_split_fit(pool, group, c, size);
    return c;
}

__attribute__((noinline)) void zr_split_look_at(struct zr_pool *pool, struct segment *s)
{
    s->stamp = pool->now;
    if (pool->whole_free > pool->keep - pool->keep / 4)
        release(pool, s);
}

void zr_split_give(struct zr_pool *pool, struct chunk *c)
{
    zr_split_merge(pool, c);
}
