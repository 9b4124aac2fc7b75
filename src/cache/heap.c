/* Heaps: made at a thread's first call, given back at its end, seized by whoever must reach into all. */
#include "cache/heap.h"

#include "cache/pages.h"
#include "cache/pool.h"
#include "cache/thread.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>

_Thread_local struct heap *zr_heaps[CACHES];

/* Ways of a new heap lead here: a key of zeros in front of magazines that are empty for ever. */
static struct magazines nothing;
static struct zr_cache *caches[CACHES];
static struct zr_lock caches_lock;
static bool no_membarrier;

static long membarrier(int command)
{
    int saved = errno;
    long r = syscall(SYS_membarrier, command, 0, 0);

    errno = saved;
    return r;
}

static struct heap *make_heap(struct zr_cache *c)
{
    struct heap *h;

    zr_lock(&c->lock);
    for (h = c->heaps; h && h->in_use; h = h->next)
        ;
    if (!h) {
        h = zr_pages((sizeof *h + 4095) & ~(size_t)4095);
        if (h) {
            h->cache = c;
            h->wanted = no_membarrier ? WANTED_LOCKED : 0;
            h->last = &h->way[0];
            for (unsigned i = 0; i < WAYS; i++)
                h->way[i].magazines = &nothing;
            h->next = c->heaps;
            __atomic_store_n(&c->heaps, h, __ATOMIC_RELEASE);
        }
    }
    if (h) {
        h->in_use = true;
        h->patience = 0;
        h->now = zr_now();
    }
    zr_unlock(&c->lock);
    return h;
}

struct heap *zr_heap(struct zr_cache *c)
{
    struct heap *h = zr_heaps[c->id];

    if (likely(h) || !zr_thread_enter())
        return h;
    return zr_heaps[c->id] = make_heap(c);
}

struct magazines *zr_heap_magazines(struct heap *h, struct key *k)
{
    struct magazines *mags = h->by_key[k->id];
    struct way *w = &h->way[zr_key_hash(&k->key)];

    if (!mags) {
        mags = h->spare;
        if (mags) {
            h->spare = (struct magazines *)mags->of[0].head;
            mags->of[0].head = NULL;
        } else {
            mags = zr_piece(sizeof *mags);
            if (!mags)
                return NULL;
            for (unsigned i = 0; i < ZR_CLASSES; i++)
                mags->of[i].full = run_of(i);
        }
        h->by_key[k->id] = mags;
    }
    w->key = k->key;
    w->magazines = mags;
    w->allowance = &h->account[k->key.account];
    h->last = w;
    return mags;
}

void zr_heap_forget_key(struct heap *h, struct key *k)
{
    struct magazines *mags = h->by_key[k->id];

    if (!mags)
        return;
    for (unsigned i = 0; i < WAYS; i++)
        if (h->way[i].magazines == mags) {
            memset(&h->way[i].key, 0, sizeof h->way[i].key);
            h->way[i].magazines = &nothing;
        }
    h->by_key[k->id] = NULL;
    mags->of[0].head = (struct zr_block *)h->spare;
    h->spare = mags;
}

/* Cold: enters with a locked instruction; sleeps as long as somebody else is inside. */
void zr_heap_wait(struct heap *h)
{
    int saved = errno;

    for (;;) {
        uint32_t wanted;

        __atomic_exchange_n(&h->inside, 1, __ATOMIC_SEQ_CST);
        wanted = __atomic_load_n(&h->wanted, __ATOMIC_SEQ_CST);
        if (!(wanted & WANTED_SEIZED))
            break;
        heap_leave(h);
        syscall(SYS_futex, &h->wanted, FUTEX_WAIT_PRIVATE, wanted, NULL, NULL, 0);
    }
    errno = saved;
}

void zr_heap_seize_all(struct zr_cache *c)
{
    zr_lock(&c->lock);
    for (struct heap *h = c->heaps; h; h = h->next)
        __atomic_fetch_or(&h->wanted, WANTED_SEIZED, __ATOMIC_SEQ_CST);
    if (!no_membarrier)
        membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    for (struct heap *h = c->heaps; h; h = h->next)
        while (__atomic_load_n(&h->inside, __ATOMIC_ACQUIRE))
            sched_yield();
}

void zr_heap_release_all(struct zr_cache *c)
{
    int saved = errno;

    for (struct heap *h = c->heaps; h; h = h->next) {
        __atomic_fetch_and(&h->wanted, ~(uint32_t)WANTED_SEIZED, __ATOMIC_RELEASE);
        if (h->in_use && h != zr_heaps[c->id])
            syscall(SYS_futex, &h->wanted, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
    zr_unlock(&c->lock);
    errno = saved;
}

struct zr_cache *zr_cache_new(const struct zr_backing *backing)
{
    struct zr_cache *c = zr_pages((sizeof *c + 4095) & ~(size_t)4095);
    unsigned id;

    if (!c)
        return NULL;
    c->backing = *backing;
    c->idle = 1000;
    for (unsigned i = 0; i < ZR_ACCOUNTS; i++)
        c->account[i].limit = UINT64_MAX / 4;
    zr_lock(&caches_lock);
    no_membarrier = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
    for (id = 0; id < CACHES && caches[id]; id++)
        ;
    if (id < CACHES) {
        c->id = id;
        caches[id] = c;
    }
    zr_unlock(&caches_lock);
    c->next_sweep = zr_now() + c->idle;
    return id < CACHES ? c : NULL;
}

void zr_cache_delete(struct zr_cache *c)
{
    zr_cache_trim(c, ZR_ACCOUNTS, NULL, 0);
    zr_lock(&caches_lock);
    caches[c->id] = NULL;
    zr_unlock(&caches_lock);
    zr_heaps[c->id] = NULL;
}

static void empty_into_depots(struct heap *h)
{
    struct zr_cache *c = h->cache;

    for (unsigned i = 0; i < c->keys; i++) {
        struct magazines *mags = h->by_key[i];
        struct allowance *a;

        if (!mags)
            continue;
        a = &h->account[c->key[i]->key.account];
        for (unsigned size_class = 0; size_class < ZR_CLASSES; size_class++) {
            struct magazine *m = &mags->of[size_class];
            struct zr_block *runs[2] = {m->head, m->reserve};

            if (m->head)
                m->head->run_length = (uint8_t)m->count;
            for (int n = 0; n < 2; n++) {
                uint64_t bytes = runs[n] ? runs[n]->run_length * runs[n]->held : 0;

                if (!runs[n])
                    continue;
                __atomic_store_n(&a->allowed, a->allowed - bytes, __ATOMIC_RELAXED);
                __atomic_store_n(&a->kept, a->kept - bytes, __ATOMIC_RELAXED);
                zr_depot_put(c->key[i], size_class, runs[n], runs[n]->run_length);
            }
            m->head = m->reserve = NULL;
            m->count = 0;
        }
    }
    for (unsigned i = 0; i < ZR_ACCOUNTS; i++) {
        __atomic_fetch_sub(&c->account[i].granted, h->account[i].allowed, __ATOMIC_RELAXED);
        __atomic_store_n(&h->account[i].allowed, 0, __ATOMIC_RELAXED);
    }
}

void zr_cache_thread_exit(void)
{
    for (unsigned id = 0; id < CACHES; id++) {
        struct heap *h = zr_heaps[id];

        zr_heaps[id] = NULL;
        if (!h)
            continue;
        heap_enter(h);
        empty_into_depots(h);
        heap_leave(h);
        zr_lock(&h->cache->lock);
        h->in_use = false;
        zr_unlock(&h->cache->lock);
    }
}

/* Only the forking thread is left. Heaps, keys and depots are the parent's: forgotten, never touched again. */
void zr_cache_fork_child(void)
{
    caches_lock.word = 0;
    no_membarrier = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
    for (unsigned id = 0; id < CACHES; id++) {
        struct zr_cache *c = caches[id];

        zr_heaps[id] = NULL;
        if (!c)
            continue;
        c->lock.word = 0;
        c->heaps = NULL;
        c->keys = 0;
        c->shared_misses = 0;
        for (unsigned i = 0; i < ZR_ACCOUNTS; i++)
            c->account[i].granted = 0;
        memset(c->key, 0, sizeof c->key);
    }
    zr_pool_fork_child();
    zr_block_fork_child();
    zr_map_fork_child();
    zr_pages_fork_child();
}
