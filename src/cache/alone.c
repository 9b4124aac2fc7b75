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

/* Nothing was out before this request, or only what was served by is_root(). True: it is the first one. */
static __attribute__((noinline)) bool begin(struct zr_pool *pool, struct front *f, size_t size)
{
    f->hold = 0;
    zr_front_empty(pool, f);
    zr_slab_drop_empty(pool);
    changed(f);
    if (f->root_hits)
        pool->since = f->root_calls - 1;
    for (; f->root_hits; f->root_hits--)
        if (pool->root)
            zr_again_root(pool);
    if (f->out > 0)
        return false;
    if (pool->whole_free != pool->bytes) { /* what a thread that is gone has left */
        f->hold = INT64_MIN;
        return false;
    }
    pool->crossed++;
    pool->since = pool->calls - 1;
    zr_again_cross(pool, size);
    return true;
}

/*
 * A request and its free, again and again, while nothing else lives: it gets the place that it got the first
 * time, the root, without further ado. Whatever else is asked for finds everything merged (begin).
 */
static bool is_root(const struct zr_pool *pool, struct front *f, size_t size, size_t alignment)
{
    const struct chunk *last = f->last;

    if (f->out != 0 || !last || alignment > GRAIN || GRAINS(last->asked) != GRAINS(size) ||
        base_of(last) != pool->root || GRAINS(size) != pool->root_size)
        return false;
    f->exact = true;
    f->hold = INT64_MAX;
    f->root_hits += f->root_hits < RECORD;
    f->root_calls = pool->calls;
    return true;
}

/* Best fit would take this chunk: nothing came or went since it was handed out, or it cannot merge and is first. */
static inline bool is_best(struct zr_pool *pool, const struct front *f, const struct chunk *c, size_t size)
{
    return f->exact || (zr_quick_is_out(c->prev) && zr_quick_is_out(c->next) && zr_split_is_first(pool, c, size));
}

static INLINE int get_block(struct zr_pool *pool, size_t size, size_t alignment, void **out, struct front *f)
{
    size_t rounded = GRAINS(size);
    struct chunk *c = f->last;
    int code = 0;

    if (c) {
        if (alignment <= GRAIN && GRAINS(c->asked) == rounded && is_best(pool, f, c, rounded)) {
            f->last = NULL;
            c->asked = size;
            set_where(c, base_of(c), CHUNK_BLOCK);
            goto got;
        }
        merge_last(pool, f);
    }
    c = zr_split_take_block(pool, size, alignment, &code);
    changed(f);
    if (unlikely(!c))
        return code;
got:
    c->after = f->state;
    f->out++;
    *out = (void *)base_of(c);
    return 0;
}

static __attribute__((noinline)) int fill(struct zr_pool *pool, size_t size, size_t alignment, struct front *f)
{
    unsigned class = small_class(size, alignment);
    int code = 0;

    if (f->last)
        merge_last(pool, f);
    changed(f);
    zr_slab_fill_shelf(pool, &f->of[class], class, &code);
    return code;
}

static INLINE int get_object(struct zr_pool *pool, size_t size, size_t alignment, void **out, struct front *f)
{
    struct shelf *shelf = &f->of[small_class(size, alignment)];
    struct object *o;
    int code;

    if (unlikely(shelf->count == 0) && (code = fill(pool, size, alignment, f)) != 0)
        return code;
    o = &shelf->object[--shelf->count];
    __atomic_store_n(o->state, (uint16_t)size, __ATOMIC_RELAXED);
    f->out++;
    *out = o->p;
    return 0;
}

/* Something is about to begin. */
static __attribute__((noinline)) int get_first(struct zr_pool *pool, size_t size, size_t alignment, void **out,
                                               struct front *f)
{
    bool first = !is_root(pool, f, size, alignment) && begin(pool, f, GRAINS(size));
    int code = get_block(pool, size, alignment, out, f);

    pool->tiny += code == 0 && size <= SMALL;
    if (first && code == 0) {
        pool->root = alignment <= GRAIN ? (uintptr_t)*out : 0;
        pool->root_size = GRAINS(size);
        pool->root_segment = zr_find_alone(pool, (uintptr_t)*out)->segment;
    }
    front_leave(f);
    return code;
}

static __attribute__((noinline)) int get_next(struct zr_pool *pool, size_t size, size_t alignment, void **out,
                                              struct front *f)
{
    int code = get_block(pool, size, alignment, out, f);

    front_leave(f);
    return code;
}

int zr_alone_malloc(struct zr_pool *pool, size_t size, size_t alignment, void **out, struct front *f)
{
    int code;

    zr_front_pass_time(pool);
    if (unlikely(f->out <= f->hold))
        return get_first(pool, size, alignment, out, f);
    if (size > SMALL)
        return get_next(pool, size, alignment, out, f);
    if (pool->tiny < FEW || alignment > SMALL) {
        code = get_next(pool, size, alignment, out, f);
        pool->tiny += code == 0;
        return code;
    }
    code = get_object(pool, size, alignment, out, f);
    front_leave(f);
    return code;
}

static enum zr_freed free_object(struct zr_pool *pool, struct front *f, struct chunk *c, uintptr_t a, size_t *asked)
{
    uint16_t *state = zr_slab_object(c->slab, a - base_of(c));
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
    shelf->object[shelf->count++] = (struct object){(void *)a, state};
    f->out--;
    return ZR_FREED;
}

/* Its neighbours will be looked at when it is merged. */
static inline void keep(struct zr_pool *pool, struct front *f, struct chunk *c)
{
    struct chunk *last = f->last;

    __builtin_prefetch(c->prev);
    __builtin_prefetch(c->next);
    f->exact = !last && c->after == f->state;
    f->out--;
    f->last = c;
    if (last) {
        changed(f);
        zr_split_merge(pool, last);
    }
    if (unlikely(c->size > pool->quick_limit))
        merge_last(pool, f);
}

enum zr_freed zr_alone_free(struct zr_pool *pool, void *p, size_t *asked, struct front *f)
{
    uintptr_t a = (uintptr_t)p, where;
    struct chunk *c = zr_find_alone(pool, a);
    enum zr_freed result = ZR_FREED;

    zr_front_pass_time(pool);
    where = c ? c->where : 0; /* now: a slab that is empty may have gone */
    if (likely(is_at(where, a, CHUNK_BLOCK))) {
        *asked = c->asked;
        if (unlikely(*asked <= SMALL))
            pool->tiny--;
        set_where(c, a, CHUNK_KEPT);
        keep(pool, f, c);
    } else if (likely((where & (GRAIN - 1)) == CHUNK_SLAB)) {
        result = free_object(pool, f, c, a, asked);
    } else {
        result = is_at(where, a, CHUNK_FREE) || is_at(where, a, CHUNK_KEPT) ? ZR_FREED_TWICE : ZR_FREED_UNKNOWN;
    }
    front_leave(f);
    return result;
}
