/*
 * A pool that one thread uses: no lock, no locked instruction, and blocks are placed as best fit would,
 * always. The block that was freed last is kept as it is and merged with the next call, unless that asks
 * for its size and would get just this place.
 */
#include "cache/quick.h"

static inline void changed(struct front *f)
{
    f->state++;
}

static inline void merge_last(struct zr_pool *pool, struct front *f)
{
    struct chunk *c = f->last;

    f->last = NULL;
    changed(f);
    zr_split_give(pool, c);
}

static bool nothing_lives(const struct zr_pool *pool)
{
    return pool->group[0].whole_free == pool->group[0].bytes &&
           pool->group[1].whole_free == pool->group[1].bytes;
}

/* Nothing was out before this request, or only what was served by is_root(). True: it is the first one. */
static __attribute__((noinline)) bool begin(struct zr_pool *pool, struct front *f, size_t size)
{
    f->hold = 0;
    zr_front_empty(pool, f);
    zr_slab_drop_empty(pool);
    changed(f);
    for (; f->root_hits; f->root_hits--) {
        if (!pool->root)
            continue;
        zr_again_cross(pool, pool->root_size);
        zr_again_note(pool, pool->root_size);
        zr_split_adopt(pool, pool->root_segment, pool->in_use);
    }
    if (f->out > 0)
        return false;
    if (!nothing_lives(pool)) { /* what a thread that is gone has left */
        f->hold = INT64_MIN;
        return false;
    }
    zr_again_cross(pool, size);
    return true;
}

/*
 * A request and its free, again and again, while nothing else lives: it gets the place that it got the first
 * time, the root, without further ado. Whatever else is asked for finds everything merged (begin).
 */
static bool is_root(const struct zr_pool *pool, struct front *f, size_t size, size_t alignment)
{
    uintptr_t p = 0;

    if (f->out != 0 || !pool->root)
        return false;
    if (is_small(size, alignment)) {
        const struct shelf *shelf = &f->of[small_class(size, alignment)];

        p = shelf->count ? (uintptr_t)shelf->object[shelf->count - 1].p : 0;
    } else if (f->last && alignment <= GRAIN && GRAINS(f->last->asked) == GRAINS(size)) {
        p = base_of(f->last);
    }
    if (p != pool->root)
        return false;
    f->exact = true;
    f->hold = INT64_MAX;
    f->root_hits += f->root_hits < RECORD;
    return true;
}

/* Best fit would take just this chunk: nothing came or went since it was handed out; or it cannot merge and is first. */
static inline bool is_best(struct zr_pool *pool, const struct front *f, const struct chunk *c, size_t size)
{
    return f->exact || (zr_quick_is_out(c->prev) && zr_quick_is_out(c->next) && zr_split_is_first(pool, c, size));
}

static int get_block(struct zr_pool *pool, struct front *f, size_t size, size_t alignment, void **out)
{
    size_t rounded = GRAINS(size);
    struct chunk *c = f->last;
    int code = 0;

    if (c) {
        if (alignment <= GRAIN && GRAINS(c->asked) == rounded && is_best(pool, f, c, rounded)) {
            f->last = NULL;
            c->after = f->state;
            c->asked = size;
            set_where(c, base_of(c), CHUNK_BLOCK);
            *out = (void *)base_of(c);
            return 0;
        }
        merge_last(pool, f);
    }
    c = zr_split_take_block(pool, size, alignment, &code);
    changed(f);
    if (unlikely(!c))
        return code;
    c->after = f->state;
    *out = (void *)base_of(c);
    return 0;
}

static int get_object(struct zr_pool *pool, struct front *f, size_t size, size_t alignment, void **out)
{
    struct shelf *shelf = &f->of[small_class(size, alignment)];
    struct object *o;
    int code = 0;

    if (unlikely(shelf->count == 0)) {
        if (f->last)
            merge_last(pool, f);
        changed(f);
        if (!zr_slab_fill_shelf(pool, shelf, small_class(size, alignment), &code))
            return code;
    }
    o = &shelf->object[--shelf->count];
    __atomic_store_n(o->state, (uint16_t)size, __ATOMIC_RELAXED);
    *out = o->p;
    return 0;
}

int zr_alone_malloc(struct zr_pool *pool, struct front *f, size_t size, size_t alignment, void **out)
{
    bool first = false, small = is_small(size, alignment);
    int code;

    zr_front_pass_time(pool);
    if (unlikely(f->out <= f->hold) && !is_root(pool, f, size, alignment))
        first = begin(pool, f, small ? SLAB : GRAINS(size));
    code = small ? get_object(pool, f, size, alignment, out) : get_block(pool, f, size, alignment, out);
    if (unlikely(code != 0))
        return code;
    f->out++;
    if (unlikely(first)) {
        pool->root = (uintptr_t)*out;
        pool->root_size = small ? SLAB : GRAINS(size);
        pool->root_segment = zr_find(pool, *out)->segment;
    }
    return 0;
}

enum zr_freed zr_alone_free(struct zr_pool *pool, struct front *f, void *p, size_t *asked)
{
    uintptr_t a = (uintptr_t)p, where;
    struct chunk *c = zr_find(pool, p);

    where = c ? c->where : 0;
    if (likely(is_at(where, a, CHUNK_BLOCK))) {
        *asked = c->asked;
        f->exact = !f->last && c->after == f->state;
        set_where(c, a, CHUNK_KEPT);
        if (f->last)
            merge_last(pool, f);
        f->last = c;
        if (unlikely(c->size > pool->quick_limit))
            merge_last(pool, f);
    } else if (likely((where & (GRAIN - 1)) == CHUNK_SLAB)) {
        uint16_t *state = zr_slab_object(c->slab, a - (where & ~(uintptr_t)(GRAIN - 1)));
        struct shelf *shelf = &f->of[c->slab->size_class];

        if (unlikely(!state))
            return ZR_FREED_UNKNOWN;
        *asked = *state;
        if (unlikely(*state == 0))
            return ZR_FREED_TWICE;
        __atomic_store_n(state, 0, __ATOMIC_RELAXED);
        if (unlikely(shelf->count == shelf->full)) {
            zr_slab_empty_shelf(pool, shelf, shelf->full / 2);
            changed(f);
        }
        shelf->object[shelf->count++] = (struct object){p, state};
    } else {
        return is_at(where, a, CHUNK_FREE) || is_at(where, a, CHUNK_KEPT) ? ZR_FREED_TWICE : ZR_FREED_UNKNOWN;
    }
    f->out--;
    zr_front_pass_time(pool);
    return ZR_FREED;
}
