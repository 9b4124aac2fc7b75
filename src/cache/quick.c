/* Fronts: made at a thread's first call, seized by whoever must reach into all, given back at its end. */
#include "cache/quick.h"

#include "cache/heap.h"
#include "cache/membarrier.h"
#include "base/pages.h"
#include "cache/thread.h"

#include <sched.h>
#include <string.h>

_Thread_local struct front *zr_fronts[POOLS];

void zr_front_set_limit(struct zr_pool *pool)
{
    uint64_t fronts = 1;

    for (struct front *f = pool->fronts; f && f->next; f = f->next)
        fronts++;
    __atomic_store_n(&pool->quick_limit, pool->keep / 4 / fronts, __ATOMIC_RELAXED);
}

/* A front of a pool that is gone may be used for this one. */
static void start(struct zr_pool *pool, struct front *f)
{
    memset(f->quick, 0, sizeof f->quick);
    for (unsigned i = 0; i < SMALL_CLASSES; i++) {
        size_t full = SLAB / zr_class_size(i);

        f->of[i].count = 0;
        f->of[i].full = full > MAGAZINE ? MAGAZINE : (uint32_t)full;
    }
    f->out = f->hold = 0;
    f->filled = f->bytes = 0;
    f->root_hits = 0;
    f->last = NULL;
    f->state = 1;
    zr_lock(&pool->lock);
    /* A sandbox may have taken it away since another thread came, who is inside, alone: he is waited for. */
    f->wanted = pool->no_membarrier || !zr_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    if (f->wanted || pool->fronts)
        zr_front_share(pool);
    if (pool->shared)
        f->hold = INT64_MIN;
    f->next = pool->fronts;
    pool->fronts = f;
    zr_front_set_limit(pool);
    f->serial = pool->serial;
    zr_unlock(&pool->lock);
}

struct front *zr_front(struct zr_pool *pool)
{
    struct front *f = front_of(pool);

    if (likely(f) || pool->id >= POOLS || !zr_thread_enter())
        return f;
    f = zr_fronts[pool->id];
    if (!f && !(f = zr_pages((sizeof *f + 4095) & ~(size_t)4095)))
        return NULL;
    zr_fronts[pool->id] = f;
    start(pool, f);
    return f;
}

void zr_front_forget(struct zr_pool *pool, struct front *f)
{
    struct front **at = &pool->fronts;

    while (*at && *at != f)
        at = &(*at)->next;
    if (*at)
        *at = f->next;
    zr_front_set_limit(pool);
}

void zr_front_merge(struct zr_pool *pool, struct front *f)
{
    for (; f->filled; f->filled &= f->filled - 1) {
        struct quick *q = &f->quick[__builtin_ctzll(f->filled)];

        while (q->count)
            zr_split_give(pool, q->chunk[--q->count]);
    }
    f->bytes = 0;
    f->state++;
    if (f->last)
        zr_split_give(pool, f->last);
    f->last = NULL;
}

bool zr_front_empty(struct zr_pool *pool, struct front *f)
{
    bool any = f->filled != 0 || f->last;

    zr_front_merge(pool, f);
    for (unsigned i = 0; i < SMALL_CLASSES; i++)
        if (f->of[i].count) {
            zr_slab_empty_shelf(pool, &f->of[i], 0);
            any = true;
        }
    return any;
}

/* Nobody goes in without the lock any more. */
static __attribute__((noinline, cold)) void do_without_membarrier(struct zr_pool *pool)
{
    pool->no_membarrier = true;
    for (struct front *f = pool->fronts; f; f = f->next)
        __atomic_fetch_add(&f->wanted, 1, __ATOMIC_SEQ_CST);
    zr_stores_arrive();
}

void zr_front_seize_all(struct zr_pool *pool)
{
    struct front *mine = pool->id < POOLS ? zr_fronts[pool->id] : NULL;

    if (pool->fronts == mine && (!mine || !mine->next))
        return;
    for (struct front *f = pool->fronts; f; f = f->next)
        if (f != mine)
            __atomic_fetch_add(&f->wanted, 1, __ATOMIC_SEQ_CST);
    if (!pool->no_membarrier && unlikely(!zr_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)))
        do_without_membarrier(pool);
    for (struct front *f = pool->fronts; f; f = f->next)
        while (f != mine && __atomic_load_n(&f->inside, __ATOMIC_ACQUIRE)) {
            ZR_PAUSE("waiting for one in a front");
            sched_yield();
        }
}

void zr_front_release_all(struct zr_pool *pool)
{
    struct front *mine = pool->id < POOLS ? zr_fronts[pool->id] : NULL;

    if (pool->fronts == mine && (!mine || !mine->next))
        return;
    for (struct front *f = pool->fronts; f; f = f->next)
        if (f != mine)
            __atomic_fetch_sub(&f->wanted, 1, __ATOMIC_RELEASE);
}

bool zr_front_gather(struct zr_pool *pool)
{
    bool any = false;

    zr_front_seize_all(pool);
    for (struct front *f = pool->fronts; f; f = f->next)
        any |= zr_front_empty(pool, f);
    zr_slab_drop_empty(pool);
    zr_front_release_all(pool);
    return any;
}

void zr_front_share(struct zr_pool *pool)
{
    if (pool->shared)
        return;
    zr_front_seize_all(pool);
    pool->shared = true;
    zr_again_end(pool);
    for (struct front *f = pool->fronts; f; f = f->next)
        f->hold = INT64_MIN;
    zr_front_release_all(pool);
}

void zr_front_look_at_clock(struct zr_pool *pool)
{
    if (pool->idle == UINT32_MAX)
        return;
    pool->now = zr_now();
    if (pool->now - pool->last_sweep <= pool->idle / 4)
        return;
    pool->last_sweep = pool->now;
    zr_front_gather(pool);
    zr_split_trim(pool, 0, pool->idle ? pool->idle : 1);
}
