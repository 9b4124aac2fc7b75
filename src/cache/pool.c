/* The pool's front: what a thread keeps of small objects, the slabs behind it, and the door to large blocks. */
#include "cache/pool.h"

#include "cache/heap.h"
#include "cache/pages.h"
#include "cache/split.h"
#include "cache/thread.h"

#include <string.h>

enum { CALLS_PER_CLOCK = 64 };

struct object {
    void *p;
    uint8_t *state;
};

struct shelf {
    uint32_t count;
    uint32_t full;
    struct object object[MAGAZINE];
};

/* What one thread keeps for one pool. */
struct front {
    uint64_t serial; /* of the pool: another one may have its place by now */
    uint32_t trims;
    struct shelf of[SMALL_CLASSES];
};

static _Thread_local struct front *fronts[POOLS];
static struct zr_pool *pools[POOLS];
static struct zr_lock pools_lock;
static uint64_t last_serial;

static __attribute__((noinline)) int malloc_slow(struct zr_pool *pool, size_t size, size_t alignment,
                                                 void **out);
static __attribute__((noinline)) enum zr_freed free_slow(struct zr_pool *pool, void *p,
                                                         struct chunk *c);
static __attribute__((noinline)) void put_on_full_shelf(struct zr_pool *pool, struct front *f,
                                                        struct slab *s, struct object o);

/* The class whose objects are large enough and aligned: slabs begin on a grain, so its size decides. */
static inline unsigned small_class(size_t size, size_t alignment)
{
    unsigned c = zr_class_of(size | (size == 0));

    if (unlikely(alignment > SMALLEST))
        while (zr_class_size(c) & (alignment - 1))
            c++;
    return c;
}

int zr_pool_malloc(struct zr_pool *pool, size_t size, size_t alignment, void **out)
{
    struct front *f = pool->id < POOLS ? fronts[pool->id] : NULL;
    struct shelf *shelf;
    struct object *o;

    if (unlikely(!f || f->serial != pool->serial || size > SMALL || alignment > GRAIN))
        return malloc_slow(pool, size, alignment, out);
    shelf = &f->of[small_class(size, alignment)];
    if (unlikely(shelf->count == 0))
        return malloc_slow(pool, size, alignment, out);
    o = &shelf->object[--shelf->count];
    __atomic_store_n(o->state, 1, __ATOMIC_RELAXED);
    *out = o->p;
    return 0;
}

enum zr_freed zr_pool_free(struct zr_pool *pool, void *p)
{
    struct front *f = pool->id < POOLS ? fronts[pool->id] : NULL;
    struct chunk *c = zr_split_look(pool, p);
    struct shelf *shelf;
    struct object o;
    struct slab *s;
    size_t offset;
    uint32_t n;

    if (unlikely(!c))
        return ZR_FREED_UNKNOWN;
    if (__atomic_load_n(&c->kind, __ATOMIC_ACQUIRE) != CHUNK_SLAB || unlikely(!f) ||
        unlikely(f->serial != pool->serial))
        return free_slow(pool, p, c);
    s = c->slab;
    offset = (uintptr_t)p - __atomic_load_n(&c->base, __ATOMIC_RELAXED);
    n = (uint32_t)(offset * s->inverse >> 32);
    if (unlikely(offset >= SLAB || n * s->size != offset))
        return ZR_FREED_UNKNOWN;
    o = (struct object){p, &s->state[n]};
    if (unlikely(__atomic_exchange_n(o.state, 0, __ATOMIC_ACQ_REL) == 0))
        return ZR_FREED_TWICE;
    shelf = &f->of[s->size_class];
    if (unlikely(shelf->count == shelf->full)) {
        put_on_full_shelf(pool, f, s, o);
        return ZR_FREED;
    }
    shelf->object[shelf->count++] = o;
    return ZR_FREED;
}

/* --- slabs; all with the lock held --------------------------------------------------------------------- */

static void list(struct zr_pool *pool, struct slab *s)
{
    struct slab **first = &pool->partial[s->size_class];

    s->prev = NULL;
    s->next = *first;
    if (*first)
        (*first)->prev = s;
    *first = s;
    s->listed = true;
}

static void unlist(struct zr_pool *pool, struct slab *s)
{
    if (s->prev)
        s->prev->next = s->next;
    else
        pool->partial[s->size_class] = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->listed = false;
}

static struct slab *new_slab(struct zr_pool *pool, unsigned size_class, int *code)
{
    struct slab *s = pool->spare_slabs;
    struct chunk *c;

    *code = ZR_CACHE_TROUBLE;
    if (s)
        pool->spare_slabs = s->next;
    else if (!(s = zr_piece(sizeof *s)))
        return NULL;
    c = zr_split_take(pool, SLAB, GRAIN, code);
    if (!c || !zr_split_point(pool, c, SLAB)) {
        if (c)
            zr_split_give(pool, c);
        s->next = pool->spare_slabs;
        pool->spare_slabs = s;
        return NULL;
    }
    *code = 0;
    s->size = (uint32_t)zr_class_size(size_class);
    s->inverse = (uint32_t)((((uint64_t)1 << 32) + s->size - 1) / s->size);
    s->size_class = size_class;
    s->count = s->total = SLAB / s->size;
    s->chunk = c;
    for (uint32_t i = 0; i < s->total; i++) {
        s->free[i] = (uint16_t)(s->total - 1 - i);
        __atomic_store_n(&s->state[i], 0, __ATOMIC_RELAXED);
    }
    c->slab = s;
    __atomic_store_n(&c->kind, CHUNK_SLAB, __ATOMIC_RELEASE);
    list(pool, s);
    return s;
}

static bool take_object(struct zr_pool *pool, unsigned size_class, struct object *o, int *code)
{
    struct slab *s = pool->partial[size_class];
    uint32_t n;

    if (!s && !(s = new_slab(pool, size_class, code)))
        return false;
    n = s->free[--s->count];
    if (s->count == 0)
        unlist(pool, s);
    *o = (struct object){(void *)(s->chunk->base + (uintptr_t)n * s->size), &s->state[n]};
    return true;
}

/* One empty slab per class is kept while it is the only one with room. */
static void give_object(struct zr_pool *pool, struct slab *s, uint8_t *state)
{
    s->free[s->count++] = (uint16_t)(state - s->state);
    if (!s->listed)
        list(pool, s);
    if (s->count == s->total && (s->prev || s->next)) {
        struct chunk *c = s->chunk;

        unlist(pool, s);
        __atomic_store_n(&c->kind, CHUNK_BLOCK, __ATOMIC_RELAXED);
        zr_split_give(pool, c);
        s->next = pool->spare_slabs;
        pool->spare_slabs = s;
    }
}

static struct slab *slab_of(const struct zr_pool *pool, struct object o)
{
    return zr_split_look(pool, o.p)->slab;
}

static void empty_shelf(struct zr_pool *pool, struct shelf *shelf, uint32_t keep)
{
    while (shelf->count > keep) {
        struct object o = shelf->object[--shelf->count];

        give_object(pool, slab_of(pool, o), o.state);
    }
}

static void empty_front(struct zr_pool *pool, struct front *f)
{
    for (unsigned i = 0; i < SMALL_CLASSES; i++)
        empty_shelf(pool, &f->of[i], 0);
}

/* Gives back empty slabs that were kept, so that their segments may become free. */
static void drop_empty_slabs(struct zr_pool *pool)
{
    for (unsigned i = 0; i < SMALL_CLASSES; i++)
        for (struct slab *s = pool->partial[i], *next; s; s = next) {
            next = s->next;
            if (s->count != s->total)
                continue;
            unlist(pool, s);
            __atomic_store_n(&s->chunk->kind, CHUNK_BLOCK, __ATOMIC_RELAXED);
            zr_split_give(pool, s->chunk);
            s->next = pool->spare_slabs;
            pool->spare_slabs = s;
        }
}

/* --- the slow ways ----------------------------------------------------------------------------------------- */

static struct front *my_front(struct zr_pool *pool)
{
    struct front *f;

    if (pool->id >= POOLS || !zr_thread_enter())
        return NULL;
    f = fronts[pool->id];
    if (!f) {
        f = zr_pages((sizeof *f + 4095) & ~(size_t)4095);
        if (!f)
            return NULL;
        fronts[pool->id] = f;
    }
    if (f->serial != pool->serial) {
        for (unsigned i = 0; i < SMALL_CLASSES; i++) {
            size_t full = SLAB / zr_class_size(i);

            f->of[i].count = 0;
            f->of[i].full = full > MAGAZINE ? MAGAZINE : (uint32_t)full;
        }
        f->serial = pool->serial;
        f->trims = __atomic_load_n(&pool->trims, __ATOMIC_RELAXED);
    }
    return f;
}

/* With the lock held, on every slow way. */
static void pass_time(struct zr_pool *pool, struct front *f)
{
    if (unlikely(f && f->trims != __atomic_load_n(&pool->trims, __ATOMIC_RELAXED))) {
        f->trims = pool->trims;
        empty_front(pool, f);
    }
    if (likely(++pool->calls % CALLS_PER_CLOCK))
        return;
    pool->now = zr_now();
    if (pool->idle != UINT32_MAX && pool->now - pool->last_sweep > pool->idle / 4) {
        pool->last_sweep = pool->now;
        zr_split_trim(pool, 0, pool->idle ? pool->idle : 1);
    }
}

static int malloc_slow(struct zr_pool *pool, size_t size, size_t alignment, void **out)
{
    struct front *f = my_front(pool);
    struct object o = {0};
    int code = 0;

    size += size == 0;
    if (unlikely(size > SIZE_MAX / 4 || alignment > SIZE_MAX / 4))
        return pool->backing.alloc(pool->backing.arg, size, out);
    zr_lock(&pool->lock);
    pass_time(pool, f);
    if (size <= SMALL && alignment <= GRAIN) {
        unsigned size_class = small_class(size, alignment);

        if (take_object(pool, size_class, &o, &code)) {
            struct shelf *shelf = f ? &f->of[size_class] : NULL;

            /* Half a shelf more, as long as slabs with room are there. */
            while (shelf && shelf->count < shelf->full / 2 && pool->partial[size_class])
                if (take_object(pool, size_class, &shelf->object[shelf->count], &code))
                    shelf->count++;
            __atomic_store_n(o.state, 1, __ATOMIC_RELAXED);
            code = 0;
        }
    } else {
        struct chunk *c = zr_split_take(pool, (size + GRAIN - 1) & ~(size_t)(GRAIN - 1),
                                        alignment > GRAIN ? alignment : GRAIN, &code);

        if (likely(c)) {
            code = 0;
            __atomic_store_n(&c->kind, CHUNK_BLOCK, __ATOMIC_RELAXED);
            o.p = (void *)c->base;
            if (unlikely(!zr_split_point(pool, c, GRAIN))) {
                zr_split_give(pool, c);
                code = ZR_CACHE_TROUBLE;
            }
        }
    }
    zr_unlock(&pool->lock);
    *out = code == 0 ? o.p : NULL;
    return code;
}

static enum zr_freed free_slow(struct zr_pool *pool, void *p, struct chunk *c)
{
    struct front *f = my_front(pool);
    enum zr_freed result = ZR_FREED_UNKNOWN;

    if (f && __atomic_load_n(&c->kind, __ATOMIC_ACQUIRE) == CHUNK_SLAB)
        return zr_pool_free(pool, p);
    zr_lock(&pool->lock);
    pass_time(pool, f);
    if (c->kind == CHUNK_BLOCK && c->base == (uintptr_t)p) {
        zr_split_give(pool, c);
        result = ZR_FREED;
    } else if (c->kind == CHUNK_FREE && c->base == (uintptr_t)p) {
        result = ZR_FREED_TWICE;
    } else if (c->kind == CHUNK_SLAB && (uintptr_t)p - c->base < SLAB &&
               ((uintptr_t)p - c->base) % c->slab->size == 0) {
        uint8_t *state = &c->slab->state[((uintptr_t)p - c->base) / c->slab->size];

        result = __atomic_exchange_n(state, 0, __ATOMIC_ACQ_REL) ? ZR_FREED : ZR_FREED_TWICE;
        if (result == ZR_FREED)
            give_object(pool, c->slab, state);
    }
    zr_unlock(&pool->lock);
    return result;
}

static void put_on_full_shelf(struct zr_pool *pool, struct front *f, struct slab *s, struct object o)
{
    struct shelf *shelf = &f->of[s->size_class];

    zr_lock(&pool->lock);
    pass_time(pool, f);
    empty_shelf(pool, shelf, shelf->full / 2);
    zr_unlock(&pool->lock);
    shelf->object[shelf->count++] = o;
}

size_t zr_pool_usable(struct zr_pool *pool, const void *p)
{
    struct chunk *c = zr_split_look(pool, p);
    uint8_t kind = c ? __atomic_load_n(&c->kind, __ATOMIC_ACQUIRE) : (uint8_t)CHUNK_NONE;
    size_t offset;

    if (!c)
        return 0;
    offset = (uintptr_t)p - __atomic_load_n(&c->base, __ATOMIC_RELAXED);
    if (kind == CHUNK_BLOCK)
        return offset == 0 ? c->size : 0;
    if (kind != CHUNK_SLAB || offset >= SLAB || offset % c->slab->size)
        return 0;
    return __atomic_load_n(&c->slab->state[offset / c->slab->size], __ATOMIC_RELAXED) ? c->slab->size
                                                                                    : 0;
}

/* --- the pool as a whole ------------------------------------------------------------------------------------ */

struct zr_pool *zr_pool_new(const struct zr_pool_backing *backing)
{
    struct zr_pool *pool = zr_pages((sizeof *pool + 4095) & ~(size_t)4095);

    if (!pool)
        return NULL;
    pool->backing = *backing;
    pool->keep = UINT64_MAX;
    pool->idle = UINT32_MAX;
    pool->now = zr_now();
    zr_lock(&pools_lock);
    pool->serial = ++last_serial;
    for (pool->id = 0; pool->id < POOLS && pools[pool->id]; pool->id++)
        ;
    if (pool->id < POOLS)
        pools[pool->id] = pool;
    zr_unlock(&pools_lock);
    return pool;
}

/* The pool's own memory stays mapped: a thread may still hold a stale pointer to it. */
void zr_pool_delete(struct zr_pool *pool)
{
    zr_lock(&pools_lock);
    if (pool->id < POOLS)
        pools[pool->id] = NULL;
    zr_unlock(&pools_lock);
    zr_lock(&pool->lock);
    for (unsigned i = 0; i < GROUPS; i++)
        for (struct segment *s = pool->group[i].segments; s; s = s->next) {
            pool->frees++;
            pool->backing.free(pool->backing.arg, s->from, s->from_size);
        }
    memset(pool->group, 0, sizeof pool->group);
    memset(pool->partial, 0, sizeof pool->partial);
    pool->serial = 0;
    zr_unlock(&pool->lock);
}

uint64_t zr_pool_trim(struct zr_pool *pool, uint64_t keep)
{
    struct front *f = my_front(pool);
    uint64_t bytes;

    zr_lock(&pool->lock);
    __atomic_fetch_add(&pool->trims, 1, __ATOMIC_RELAXED);
    if (f) {
        f->trims = pool->trims;
        empty_front(pool, f);
    }
    drop_empty_slabs(pool);
    bytes = zr_split_trim(pool, keep, 0);
    zr_unlock(&pool->lock);
    return bytes;
}

void zr_pool_set_limits(struct zr_pool *pool, uint64_t keep, uint32_t idle_ms)
{
    zr_lock(&pool->lock);
    pool->keep = keep;
    pool->idle = idle_ms;
    zr_unlock(&pool->lock);
}

void zr_pool_counts(struct zr_pool *pool, struct zr_pool_counts *out)
{
    zr_lock(&pool->lock);
    *out = (struct zr_pool_counts){.held = pool->held,
                                   .peak_held = pool->peak_held,
                                   .backing_allocs = pool->allocs,
                                   .backing_frees = pool->frees,
                                   .whole_free = pool->group[0].whole_free +
                                                 pool->group[1].whole_free};
    zr_unlock(&pool->lock);
}

void zr_pool_thread_exit(void)
{
    for (unsigned id = 0; id < POOLS; id++) {
        struct front *f = fronts[id];

        if (!f)
            continue;
        fronts[id] = NULL;
        zr_lock(&pools_lock);
        if (pools[id] && pools[id]->serial == f->serial) {
            zr_lock(&pools[id]->lock);
            empty_front(pools[id], f);
            zr_unlock(&pools[id]->lock);
        }
        zr_unlock(&pools_lock);
        zr_pages_back(f, (sizeof *f + 4095) & ~(size_t)4095);
    }
}

void zr_pool_fork_child(void)
{
    pools_lock.word = 0;
    for (unsigned id = 0; id < POOLS; id++)
        if (pools[id])
            pools[id]->lock.word = 0;
    memset(pools, 0, sizeof pools);
    memset(fronts, 0, sizeof fronts);
}
