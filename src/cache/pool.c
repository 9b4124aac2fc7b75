/* The pool's hook. One thread alone has its own way in (alone.c); here is that of several. */
#include "cache/quick.h"

#include "cache/heap.h"
#include "base/pages.h"
#include "cache/thread.h"

#include <string.h>

static struct zr_pool *pools[POOLS];
static struct zr_lock pools_lock;
static uint64_t last_serial;
static struct zr_pool *spare_pools; /* deleted ones: a program may make and delete them without end */

static __attribute__((noinline)) int malloc_slow(struct zr_pool *pool, size_t size, size_t alignment,
                                                 void **out);
static __attribute__((noinline)) enum zr_freed free_slow(struct zr_pool *pool, void *p, size_t *asked);

/* Sizes and alignments from here on are the backing's to refuse. */
#define NONSENSE ((size_t)1 << 45)

static inline unsigned quick_bin(size_t size)
{
    return (unsigned)(size * 0x9e3779b97f4a7c15u >> 58);
}
_Static_assert(QUICK_BINS == 1 << 6, "the hash has six bits");

/* Inside. False: there is no room for it. */
static inline bool quick_put(const struct zr_pool *pool, struct front *f, struct chunk *c)
{
    size_t size = GRAINS(c->asked);
    unsigned bin = quick_bin(size);
    struct quick *q = &f->quick[bin];

    if (unlikely(q->count == QUICK_MOST || (q->count && q->size != size) ||
                 f->bytes + c->size > __atomic_load_n(&pool->quick_limit, __ATOMIC_RELAXED)))
        return false;
    q->chunk[q->count++] = c;
    q->size = size;
    f->filled |= (uint64_t)1 << bin;
    f->bytes += c->size;
    return true;
}

/* Inside. NULL: none of this size, which is a multiple of GRAIN. */
static inline struct chunk *quick_get(struct front *f, size_t size)
{
    unsigned bin = quick_bin(size);
    struct quick *q = &f->quick[bin];
    struct chunk *c;

    if (unlikely(q->count == 0 || q->size != size))
        return NULL;
    c = q->chunk[--q->count];
    if (q->count == 0)
        f->filled &= ~((uint64_t)1 << bin);
    f->bytes -= c->size;
    return c;
}

/* Inside. NULL: nothing is kept that would do. */
static inline void *get_kept(struct front *f, size_t size, size_t alignment)
{
    if (is_small(size, alignment)) {
        struct shelf *shelf = &f->of[small_class(size, alignment)];
        struct object *o;

        if (unlikely(shelf->count == 0))
            return NULL;
        o = &shelf->object[--shelf->count];
        __atomic_store_n(o->state, (uint16_t)size, __ATOMIC_RELAXED);
        return o->p;
    } else {
        struct chunk *c = alignment <= GRAIN ? quick_get(f, GRAINS(size)) : NULL;

        if (unlikely(!c))
            return NULL;
        c->asked = size;
        set_where(c, base_of(c), CHUNK_BLOCK);
        return (void *)base_of(c);
    }
}

int zr_pool_malloc(struct zr_pool *pool, size_t size, size_t alignment, void **out)
{
    struct front *f = front_of(pool);

    if (unlikely(!f) || unlikely(size - 1 >= NONSENSE - 1) || unlikely(alignment >= NONSENSE) ||
        unlikely(!front_enter(f)))
        return malloc_slow(pool, size, alignment, out);
    if (likely(!pool->shared)) {
        *out = NULL;
        return zr_alone_malloc(pool, size, alignment, out, f);
    }
    *out = get_kept(f, size, alignment);
    front_leave(f);
    return likely(*out) ? 0 : malloc_slow(pool, size, alignment, out);
}

/* Of two threads that free a block at once, one succeeds. */
static inline bool is_mine_now(struct chunk *c, uintptr_t p)
{
    uintptr_t was = p | CHUNK_BLOCK;

    ZR_PAUSE("before a claim");
    return __atomic_compare_exchange_n(&c->where, &was, p | CHUNK_KEPT, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

enum zr_freed zr_pool_free_size(struct zr_pool *pool, void *p, size_t *asked)
{
    struct front *f = front_of(pool);
    uintptr_t where, a = (uintptr_t)p;
    struct chunk *c;

    if (unlikely(!f) || unlikely(!front_enter(f)))
        return free_slow(pool, p, asked);
    if (likely(!pool->shared))
        return zr_alone_free(pool, p, asked, f);
    c = zr_find(pool, p);
    if (unlikely(!c)) { /* nothing of this pool was ever there */
        front_leave(f);
        return ZR_FREED_UNKNOWN;
    }
    where = __atomic_load_n(&c->where, __ATOMIC_ACQUIRE);
    if (is_at(where, a, CHUNK_BLOCK)) {
        *asked = c->asked;
        if (likely(++f->ticks % CALLS_PER_CLOCK) && likely(is_mine_now(c, a))) {
            if (likely(quick_put(pool, f, c))) {
                front_leave(f);
                return ZR_FREED;
            }
            set_where(c, a, CHUNK_BLOCK);
        }
    } else if (likely((where & (GRAIN - 1)) == CHUNK_SLAB)) {
        struct slab *slab = __atomic_load_n(&c->slab, __ATOMIC_ACQUIRE);
        /* Freed twice, it may be no slab any more: then it says so before it is anything else. */
        bool still = __atomic_load_n(&c->where, __ATOMIC_ACQUIRE) == where;
        uint16_t *state = likely(still) ? zr_slab_object(slab, a - (where & ~(uintptr_t)(GRAIN - 1))) : NULL;
        struct shelf *shelf = state ? &f->of[slab->size_class] : NULL;

        if (likely(shelf) && likely(shelf->count < shelf->full)) {
            *asked = __atomic_exchange_n(state, 0, __ATOMIC_ACQ_REL);
            if (likely(*asked))
                shelf->object[shelf->count++] = (struct object){p, state};
            front_leave(f);
            return likely(*asked) ? ZR_FREED : ZR_FREED_TWICE;
        }
    }
    front_leave(f);
    return free_slow(pool, p, asked);
}

enum zr_freed zr_pool_free(struct zr_pool *pool, void *p)
{
    size_t asked;

    return zr_pool_free_size(pool, p, &asked);
}

size_t zr_pool_usable(struct zr_pool *pool, const void *p)
{
    struct chunk *c = zr_find(pool, p);
    uintptr_t where = c ? __atomic_load_n(&c->where, __ATOMIC_ACQUIRE) : 0;
    const uint16_t *state;
    struct slab *slab;

    if (is_at(where, (uintptr_t)p, CHUNK_BLOCK))
        return c->size;
    if ((where & (GRAIN - 1)) != CHUNK_SLAB)
        return 0;
    slab = __atomic_load_n(&c->slab, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&c->where, __ATOMIC_ACQUIRE) != where)
        return 0;
    state = zr_slab_object(slab, (uintptr_t)p - (where & ~(uintptr_t)(GRAIN - 1)));
    return state && __atomic_load_n(state, __ATOMIC_RELAXED) ? slab->size : 0;
}

/* --- the slow ways ----------------------------------------------------------------------------------------- */

/* Alone: true, inside the front, and no lock. Otherwise the lock is held, and nobody is inside this front. */
static bool enter(struct zr_pool *pool, struct front **f)
{
    *f = zr_front(pool);
    if (*f && front_enter(*f)) {
        if (likely(!pool->shared))
            return true;
        front_leave(*f);
    }
    zr_lock(&pool->lock);
    zr_front_share(pool);
    return false;
}

/* What the backing says to so much. */
static __attribute__((noinline, cold)) int refusal(struct zr_pool *pool, size_t size)
{
    void *p = NULL;
    int code;

    zr_lock(&pool->lock);
    code = pool->backing.alloc(pool->backing.arg, size, &p);
    if (code == 0)
        pool->backing.free(pool->backing.arg, p, size);
    zr_unlock(&pool->lock);
    return code ? code : ZR_CACHE_TROUBLE;
}

static int malloc_slow(struct zr_pool *pool, size_t size, size_t alignment, void **out)
{
    struct front *f;
    struct object o;
    struct chunk *c;
    int code = 0;

    *out = NULL;
    size += size == 0;
    if (unlikely(size >= NONSENSE || alignment >= NONSENSE))
        return refusal(pool, size > alignment ? size : alignment);
    if (enter(pool, &f)) {
        return zr_alone_malloc(pool, size, alignment, out, f);
    }
    zr_front_pass_time(pool);
    if (f && is_small(size, alignment)) {
        struct shelf *shelf = &f->of[small_class(size, alignment)];

        if (shelf->count || zr_slab_fill_shelf(pool, shelf, small_class(size, alignment), &code))
            *out = get_kept(f, size, alignment);
    } else if (is_small(size, alignment)) {
        if (zr_slab_take(pool, small_class(size, alignment), &o, &code)) {
            __atomic_store_n(o.state, (uint16_t)size, __ATOMIC_RELAXED);
            *out = o.p;
        }
    } else {
        if (f)
            zr_front_merge(pool, f);
        c = zr_split_take_block(pool, size, alignment, &code);
        *out = c ? (void *)base_of(c) : NULL;
    }
    zr_unlock(&pool->lock);
    return *out ? 0 : code;
}

/* Is there a block, or was there one, or a slab around it? No lock needed. */
static bool is_here(const struct zr_pool *pool, uintptr_t a)
{
    const struct chunk *c = zr_find(pool, (void *)a);
    uintptr_t where = c ? __atomic_load_n(&c->where, __ATOMIC_ACQUIRE) : 0;
    uintptr_t kind = where & (GRAIN - 1), inside = a - (where - kind);

    return kind == CHUNK_SLAB ? inside < SLAB : kind != CHUNK_NONE && inside == 0;
}

/*
 * Who looks for the pool of a pointer asks one after the other: only where it is does a thread get a front. Elsewhere
 * somebody is alone, and stays so; or the pool is being deleted.
 */
static enum zr_freed free_slow(struct zr_pool *pool, void *p, size_t *asked)
{
    enum zr_freed result = ZR_FREED_UNKNOWN;
    uintptr_t where;
    struct front *f;
    struct chunk *c;

    *asked = 0;
    if (!front_of(pool) && !is_here(pool, (uintptr_t)p))
        return ZR_FREED_UNKNOWN;
    if (enter(pool, &f))
        return zr_alone_free(pool, p, asked, f);
    zr_front_pass_time(pool); /* first: a slab that is empty may go */
    c = zr_find(pool, p);
    where = c ? __atomic_load_n(&c->where, __ATOMIC_ACQUIRE) : 0;
    if (is_at(where, (uintptr_t)p, CHUNK_BLOCK)) {
        *asked = c->asked;
        result = is_mine_now(c, (uintptr_t)p) ? ZR_FREED : ZR_FREED_TWICE;
        if (result == ZR_FREED)
            zr_split_give(pool, c);
    } else if (is_at(where, (uintptr_t)p, CHUNK_FREE) || is_at(where, (uintptr_t)p, CHUNK_KEPT)) {
        result = ZR_FREED_TWICE;
    } else if ((where & (GRAIN - 1)) == CHUNK_SLAB) {
        uint16_t *state = zr_slab_object(c->slab, (uintptr_t)p - (where & ~(uintptr_t)(GRAIN - 1)));

        struct shelf *shelf = f ? &f->of[c->slab->size_class] : NULL;

        *asked = state ? __atomic_exchange_n(state, 0, __ATOMIC_ACQ_REL) : 0;
        result = *asked ? ZR_FREED : state ? ZR_FREED_TWICE : ZR_FREED_UNKNOWN;
        if (*asked)
            zr_slab_give(pool, c->slab, state);
        if (*asked && shelf)
            zr_slab_empty_shelf(pool, shelf, shelf->full / 2);
    }
    zr_unlock(&pool->lock);
    return result;
}

/* --- the pool as a whole ------------------------------------------------------------------------------------ */

_Static_assert(sizeof(struct zr_pool) < 2 * MIB, "no huge pages: most of it is never touched");

static struct zr_pool *take_spare(void)
{
    struct zr_pool *pool;

    zr_lock(&pools_lock);
    pool = spare_pools;
    if (pool)
        spare_pools = pool->next_spare;
    zr_unlock(&pools_lock);
    return pool;
}

/* What a pool begins with; its bins are empty, and what it has learnt of addresses stays good. */
static void begin(struct zr_pool *pool, const struct zr_pool_backing *backing)
{
    pool->edge.where = CHUNK_BLOCK;
    pool->shared = pool->no_membarrier = false;
    pool->noting = true;
    pool->backing = *backing;
    pool->keep = pool->whole_most = UINT64_MAX;
    pool->idle = UINT32_MAX;
    pool->quick_limit = pool->whole_free = 0;
    pool->peak_held = pool->allocs = pool->frees = 0;
    pool->calls = pool->last_sweep = 0;
    pool->tiny = 0;
    pool->root = 0;
    memset(&pool->record, 0, sizeof pool->record);
    if (pool->departures)
        memset(pool->departure, 0, sizeof pool->departure);
    pool->departures = 0;
    pool->crossed = pool->since = 0;
    pool->path = pool->born = 0;
    zr_split_use(pool, 0);
    pool->aside = 1;
    pool->later = 2;
    pool->now = zr_now();
}

struct zr_pool *zr_pool_new(const struct zr_pool_backing *backing)
{
    struct zr_pool *pool = take_spare();

    if (!pool) {
        pool = zr_pages((sizeof *pool + 4095) & ~(size_t)4095);
        if (!pool)
            return NULL;
        for (unsigned i = 0; i < NEAR; i++)
            pool->near[i].high = UINTPTR_MAX;
    }
    begin(pool, backing);
    zr_lock(&pools_lock);
    pool->serial = ++last_serial;
    for (pool->id = 0; pool->id < POOLS && pools[pool->id]; pool->id++)
        ;
    if (pool->id < POOLS)
        pools[pool->id] = pool;
    else
        pool->shared = true;
    zr_unlock(&pools_lock);
    return pool;
}

/* All that is sure of an inherited pool: its segments. */
static void give_back(struct zr_pool *pool)
{
    for (unsigned i = 0; i < GROUPS; i++)
        for (struct segment *s = pool->group[i].newest; s; s = s->older)
            pool->backing.free(pool->backing.arg, s->from, s->from_size);
}

/*
 * The pool's own memory stays mapped, for the next one: a thread may still hold a stale pointer to it. A thread that
 * ends takes its front with it as soon as the pool is not listed any more: not while we go through them.
 */
void zr_pool_delete(struct zr_pool *pool)
{
    zr_lock(&pools_lock);
    if (pool->id < POOLS)
        pools[pool->id] = NULL;
    zr_lock(&pool->lock);
    zr_front_seize_all(pool);
    pool->serial = 0;
    zr_front_release_all(pool);
    pool->fronts = NULL;
    zr_unlock(&pools_lock);
    if (pool->inherited) {
        give_back(pool);
        zr_unlock(&pool->lock);
        return;
    }
    zr_split_end(pool);
    memset(pool->partial, 0, sizeof pool->partial);
    zr_unlock(&pool->lock);
    zr_lock(&pools_lock);
    pool->next_spare = spare_pools;
    spare_pools = pool;
    zr_unlock(&pools_lock);
}

uint64_t zr_pool_trim(struct zr_pool *pool, uint64_t keep)
{
    uint64_t bytes;

    if (pool->inherited)
        return 0;
    zr_lock(&pool->lock);
    zr_front_seize_all(pool);
    zr_front_gather(pool);
    bytes = zr_split_trim(pool, keep, 0);
    zr_front_release_all(pool);
    zr_unlock(&pool->lock);
    return bytes;
}

void zr_pool_set_limits(struct zr_pool *pool, uint64_t keep, uint32_t idle_ms)
{
    zr_lock(&pool->lock);
    zr_front_seize_all(pool);
    pool->keep = keep;
    pool->idle = idle_ms < INT32_MAX ? idle_ms : UINT32_MAX; /* ages have 31 bits */
    pool->whole_most = pool->idle == UINT32_MAX ? keep - keep / 4 : 0;
    pool->now = zr_now();
    for (unsigned i = 0; i < GROUPS; i++)
        for (struct segment *s = pool->group[i].newest; s; s = s->older)
            s->stamp = pool->now;
    zr_front_set_limit(pool);
    zr_front_release_all(pool);
    zr_unlock(&pool->lock);
}

void zr_pool_counts(struct zr_pool *pool, struct zr_pool_counts *out)
{
    zr_lock(&pool->lock);
    zr_front_seize_all(pool);
    *out = (struct zr_pool_counts){.held = pool->held,
                                   .peak_held = pool->peak_held,
                                   .backing_allocs = pool->allocs,
                                   .backing_frees = pool->frees,
                                   .whole_free = pool->whole_free};
    zr_front_release_all(pool);
    zr_unlock(&pool->lock);
}

static uint64_t out_of_slab(const struct slab *s, uint64_t *bytes)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < s->total; i++) {
        uint16_t asked = __atomic_load_n(&s->state[i], __ATOMIC_RELAXED);

        *bytes += asked;
        count += asked != 0;
    }
    return count;
}

uint64_t zr_pool_out(struct zr_pool *pool, uint64_t *bytes)
{
    uint64_t count = 0;

    *bytes = 0;
    if (pool->inherited)
        return 0;
    zr_lock(&pool->lock);
    zr_front_seize_all(pool);
    for (unsigned i = 0; i < GROUPS; i++)
        for (struct segment *s = pool->group[i].newest; s; s = s->older)
            for (struct chunk *c = s->first; c != &pool->edge; c = c->next)
                if (kind_of(c) == CHUNK_BLOCK) {
                    *bytes += c->asked;
                    count++;
                } else if (kind_of(c) == CHUNK_SLAB) {
                    count += out_of_slab(c->slab, bytes);
                }
    zr_front_release_all(pool);
    zr_unlock(&pool->lock);
    return count;
}

void zr_pool_thread_exit(void)
{
    for (unsigned id = 0; id < POOLS; id++) {
        struct front *f = zr_fronts[id];
        struct zr_pool *pool;

        if (!f)
            continue;
        zr_lock(&pools_lock);
        pool = pools[id];
        if (pool && pool->serial == f->serial) {
            zr_lock(&pool->lock);
            zr_front_empty(pool, f);
            zr_front_forget(pool, f);
            zr_unlock(&pool->lock);
        }
        zr_unlock(&pools_lock);
        zr_fronts[id] = NULL;
        zr_pages_back(f, (sizeof *f + 4095) & ~(size_t)4095);
    }
}

/* Places are for the child's own pools: in one that it inherits, threads have no fronts, and none is waited for. */
void zr_pool_fork_child(void)
{
    pools_lock.word = 0;
    for (unsigned id = 0; id < POOLS; id++)
        if (pools[id]) {
            pools[id]->lock.word = 0;
            pools[id]->inherited = true;
            pools[id]->fronts = NULL;
            pools[id]->id = POOLS;
            pools[id] = NULL;
        }
    spare_pools = NULL;
    memset(zr_fronts, 0, sizeof zr_fronts);
}
