/* Heaps: made at a thread's first call, given back at its end, seized by whoever must reach into all. */
#include "cache/heap.h"

#include "cache/membarrier.h"
#include "base/pages.h"
#include "cache/pool.h"
#include "cache/thread.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

/* Ways lead here when there is none: a key of no context. */
static const struct key no_key;
static struct way no_way = {.key = {.context = (void *)-1, .account = ZR_ACCOUNTS}, .drawer = {.key = &no_key}};
static struct heap no_heap = {.last = &no_way, .mine = NOT_PRIVATE}; /* of no cache */
_Thread_local struct heap *zr_heaps[CACHES];
_Thread_local struct heap *zr_heap_last = &no_heap;

_Static_assert(offsetof(struct heap, of) <= 4096, "the head of a heap is wiped in children");

uint8_t zr_heap_shared[1 << 16];
static uint32_t heap_ids; /* atomic: how many were given away */
static struct zr_cache *caches[CACHES];
static struct zr_lock caches_lock;
static uint64_t passes; /* atomic: how many were given away */

static bool has_membarrier(void)
{
    return zr_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
}

static bool is_locked(const struct zr_cache *c)
{
    return __atomic_load_n(&c->no_membarrier, __ATOMIC_RELAXED);
}

/* Inside or seized: as far as it is private. */
static void be_private(struct heap *h)
{
    uint32_t mine = (uint32_t)h->id << 8 | ZR_BLOCK_LIVE;

    __atomic_store_n(&h->mine, h->private ? mine : NOT_PRIVATE, __ATOMIC_RELEASE);
}

/*
 * A pass stands for one owner of the heap and the keys it knows: whoever has it knows bins and magazines of this heap
 * without asking again. With the cache's lock held.
 */
static void new_pass(struct heap *h)
{
    h->own_pass = __atomic_add_fetch(&passes, 1, __ATOMIC_RELAXED);
}

static void show_pass(struct heap *h)
{
    __atomic_store_n(&h->pass, is_locked(h->cache) ? 0 : h->own_pass, __ATOMIC_RELEASE);
}

/*
 * A number is given away once: what a thread that ended has handed out is nobody's private block any more. Who
 * comes after 65535 threads shares from the start.
 */
static void number(struct heap *h)
{
    uint32_t id = __atomic_load_n(&heap_ids, __ATOMIC_RELAXED);

    do {
        if (id == UINT16_MAX)
            break;
    } while (!__atomic_compare_exchange_n(&heap_ids, &id, id + 1, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    h->id = id == UINT16_MAX ? 0 : (uint16_t)(id + 1);
    h->private = h->id && !is_locked(h->cache);
    be_private(h);
}

static struct heap *make_heap(struct zr_cache *c)
{
    int saved = errno;
    struct heap *h;

    zr_lock(&c->lock);
    for (h = c->heaps; h && h->in_use; h = h->next)
        ;
    if (!h) {
        h = zr_pages((sizeof *h + BINS * sizeof h->of[0] + 4095) & ~(size_t)4095);
        if (h) {
            /* In a child of fork or clone nobody has a pass, and no block is private. */
            madvise(h, 4096, MADV_WIPEONFORK);
            h->cache = c;
            h->wanted = c->no_membarrier ? WANTED_LOCKED : 0;
            h->last = &no_way;
            for (unsigned i = 0; i < WAYS; i++)
                h->way[i] = no_way;
            h->next = c->heaps;
            __atomic_store_n(&c->heaps, h, __ATOMIC_RELEASE);
        }
    }
    if (h) {
        h->in_use = true;
        h->pushed += (uint64_t)((int64_t)h->pace - h->patience); /* of the thread that had it before */
        h->patience = 0;
        h->pace = 0;
        h->now = zr_now();
        h->claims = 0;
        h->calm = h->calm ? h->calm : CALM;
        number(h);
        new_pass(h);
        show_pass(h);
    }
    zr_unlock(&c->lock);
    errno = saved;
    return h;
}

struct heap *zr_heap(struct zr_cache *c)
{
    struct heap *h = zr_heaps[c->id];

    if (!h && zr_thread_enter())
        h = zr_heaps[c->id] = make_heap(c);
    zr_heap_last = h ? h : &no_heap;
    return h;
}

/* Without membarrier there is no straight way. */
void zr_heap_last_way(struct heap *h, struct way *w)
{
    ZR_PAUSE("before a way is set");
    __atomic_store_n(&h->last, is_locked(h->cache) ? &no_way : w, __ATOMIC_RELAXED);
}

void zr_heap_way(struct heap *h, const struct key *k)
{
    struct way *w = &h->way[zr_key_hash(&k->key)];

    *w = (struct way){k->key, {k, SIZE_MAX, &h->of[0]}};
    zr_heap_last_way(h, w);
}

void zr_heap_forget_key(struct heap *h, const struct key *k)
{
    for (unsigned i = 0; i < WAYS; i++)
        if (h->way[i].drawer.key == k)
            h->way[i] = no_way;
    new_pass(h);
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
        if (__atomic_compare_exchange_n(&h->wanted, &wanted, wanted | WANTED_ASLEEP, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            syscall(SYS_futex, &h->wanted, FUTEX_WAIT_PRIVATE, wanted | WANTED_ASLEEP, NULL, NULL, 0);
    }
    errno = saved;
}

/* A sandbox has taken membarrier away since the cache was made. From now on owners enter with a locked instruction. */
static __attribute__((noinline, cold)) void do_without_membarrier(struct zr_cache *c)
{
    __atomic_store_n(&c->no_membarrier, true, __ATOMIC_RELAXED);
    for (struct heap *h = c->heaps; h; h = h->next) {
        h->private = false;
        __atomic_store_n(&zr_heap_shared[h->id], 1, __ATOMIC_RELEASE);
        __atomic_fetch_or(&h->wanted, WANTED_LOCKED, __ATOMIC_SEQ_CST);
    }
    zr_stores_arrive();
}

/* Owners that were inside, or on their way in, are out when this returns. */
static void wait_for_owners(struct zr_cache *c, bool enter_plainly)
{
    if (enter_plainly && unlikely(!zr_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)))
        do_without_membarrier(c);
    for (struct heap *h = c->heaps; h; h = h->next)
        while (__atomic_load_n(&h->inside, __ATOMIC_ACQUIRE)) {
            ZR_PAUSE("waiting for an owner");
            sched_yield();
        }
}

/*
 * An owner that was inside when we came may have set `last` after we did, and gone in again by it. It has left by
 * now, or is inside by that; as it cannot set it once more, since it sees that the heap is wanted, a second
 * round settles it.
 */
void zr_heap_seize_all(struct zr_cache *c)
{
    bool again = false, enter_plainly;

    zr_lock(&c->lock);
    enter_plainly = !c->no_membarrier;
    for (struct heap *h = c->heaps; h; h = h->next) {
        __atomic_fetch_or(&h->wanted, WANTED_SEIZED, __ATOMIC_SEQ_CST);
        __atomic_store_n(&h->mine, NOT_PRIVATE, __ATOMIC_RELAXED);
        __atomic_store_n(&h->pass, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&h->last, &no_way, __ATOMIC_RELAXED);
    }
    wait_for_owners(c, enter_plainly);
    ZR_PAUSE("between two rounds");
    for (struct heap *h = c->heaps; h; h = h->next)
        if (__atomic_exchange_n(&h->last, &no_way, __ATOMIC_RELAXED) != &no_way)
            again = true;
    if (again)
        wait_for_owners(c, enter_plainly);
}

/* Owners that did not come meanwhile need no call of the kernel: there may be a thousand of them. */
void zr_heap_release_all(struct zr_cache *c)
{
    const uint32_t released = WANTED_SEIZED | WANTED_ASLEEP;
    int saved = errno;

    for (struct heap *h = c->heaps; h; h = h->next) {
        be_private(h);
        show_pass(h);
        if (__atomic_fetch_and(&h->wanted, ~released, __ATOMIC_RELEASE) & WANTED_ASLEEP) {
            ZR_PAUSE("waking an owner");
            syscall(SYS_futex, &h->wanted, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        }
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
        c->account[i].limit = c->account[i].exact = UINT64_MAX / 4;
    c->no_membarrier = !has_membarrier();
    zr_lock(&caches_lock);
    for (id = 0; id < CACHES && caches[id]; id++)
        ;
    if (id < CACHES) {
        c->id = id;
        __atomic_store_n(&caches[id], c, __ATOMIC_RELEASE);
    }
    zr_unlock(&caches_lock);
    c->next_sweep = zr_now() + c->idle;
    return id < CACHES ? c : NULL;
}

void zr_cache_delete(struct zr_cache *c)
{
    zr_cache_trim(c, ZR_ACCOUNTS, NULL, 0);
    zr_lock(&caches_lock);
    __atomic_store_n(&caches[c->id], NULL, __ATOMIC_RELEASE);
    zr_unlock(&caches_lock);
    zr_heaps[c->id] = NULL;
    zr_heap_last = &no_heap;
}

/* What the depots have no memory for is given back. */
static struct zr_block *empty_into_depots(struct heap *h)
{
    struct zr_cache *c = h->cache;
    struct zr_block *list = NULL;
    unsigned bins = __atomic_load_n(&c->bins, __ATOMIC_ACQUIRE);

    for (unsigned id = 1; id <= bins; id++) {
        struct magazine *m = &h->of[id];
        struct bin *bin = c->bin[id];
        struct zr_block *kept[LARGEST_MAGAZINE];
        unsigned n, count;

        if (!m->room)
            continue;
        count = zr_magazine_list(m, kept);
        h->moved -= count;
        zr_ungrant(c, bin->key->key.account, (m->room - count) * bin->held);
        for (unsigned done = 0; done < count; done += n) {
            n = count - done < LONGEST_RUN ? count - done : LONGEST_RUN;
            if (zr_depot_put(bin, kept + done, n))
                continue;
            zr_ungrant(c, bin->key->key.account, n * bin->held);
            for (unsigned j = done; j < done + n; j++) {
                kept[j]->link = list;
                list = kept[j];
            }
        }
        zr_magazine_fill(m, NULL, 0, 0);
    }
    return list;
}

void zr_cache_thread_exit(void)
{
    zr_heap_last = &no_heap;
    for (unsigned id = 0; id < CACHES; id++) {
        struct heap *h = zr_heaps[id];
        struct zr_block *list;

        zr_heaps[id] = NULL;
        if (!h)
            continue;
        heap_enter(h);
        list = empty_into_depots(h);
        zr_giving(h->cache);
        heap_leave(h);
        zr_give_back(h->cache, list);
        __atomic_store_n(&zr_heap_shared[h->id], 1, __ATOMIC_RELEASE);
        zr_lock(&h->cache->lock);
        h->in_use = false;
        zr_unlock(&h->cache->lock);
    }
}

/* Whichever cache it is of. Afterwards its owner, too, claims its blocks like everybody. */
static __attribute__((noinline, cold)) void share(unsigned heap)
{
    for (unsigned id = 0; id < CACHES; id++) {
        struct zr_cache *c = __atomic_load_n(&caches[id], __ATOMIC_ACQUIRE);

        if (!c)
            continue;
        zr_heap_seize_all(c);
        for (struct heap *h = c->heaps; h; h = h->next)
            if (h->id == heap)
                h->private = false;
        zr_heap_release_all(c);
    }
    __atomic_store_n(&zr_heap_shared[heap], 1, __ATOMIC_RELEASE);
}

static bool is_mine(unsigned heap)
{
    for (unsigned id = 0; id < CACHES; id++)
        if (zr_heaps[id] && zr_heaps[id]->id == heap)
            return true;
    return false;
}

bool zr_heap_claim(struct zr_block *b, uint64_t word, enum zr_block_state to, unsigned heap)
{
    unsigned from = zr_word_heap(word);

    if (from != heap && from) {
        uint8_t shared = __atomic_load_n(&zr_heap_shared[from], __ATOMIC_ACQUIRE);

        if (shared != 2 && !is_mine(from)) {
            if (!shared)
                share(from);
            __atomic_store_n(&zr_heap_shared[from], 2, __ATOMIC_RELEASE);
        }
    }
    ZR_PAUSE("before a claim");
    return __atomic_compare_exchange_n(&b->word, &word,
                                       (uint64_t)zr_word_generation(word) << 32 | heap << 8 | to, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/*
 * Twice as many are waited for each time: a program whose threads take turns with each other's blocks
 * pays for some seizures, not for one after another, and uses up a handful of numbers. With the cache's lock held
 * nobody seizes, so what its owner writes is not lost.
 */
void zr_heap_calm(struct heap *h)
{
    uint8_t shared = __atomic_load_n(&zr_heap_shared[h->id], __ATOMIC_ACQUIRE);

    if (!shared || !h->id || is_locked(h->cache) || ++h->claims < h->calm)
        return;
    h->claims = 0;
    if (shared == 2) {
        __atomic_store_n(&zr_heap_shared[h->id], 1, __ATOMIC_RELEASE);
        return;
    }
    h->calm = h->calm < UINT32_MAX / 2 ? h->calm * 2 : h->calm;
    zr_lock(&h->cache->lock);
    number(h);
    zr_unlock(&h->cache->lock);
}

bool zr_take_ours(struct zr_block *b, uint64_t word)
{
    if (!zr_heap_claim(b, word, ZR_BLOCK_NONE, 0))
        return false;
    zr_index_remove(b);
    return true;
}

/* Only the forking thread is left. Heaps, keys and depots are the parent's: forgotten, never touched again. */
void zr_cache_fork_child(void)
{
    caches_lock.word = 0;
    zr_heap_last = &no_heap;
    memset(zr_heap_shared, 0, heap_ids + 1);
    heap_ids = 0;
    for (unsigned id = 0; id < CACHES; id++) {
        struct zr_cache *c = caches[id];

        zr_heaps[id] = NULL;
        if (!c)
            continue;
        c->lock.word = 0;
        c->giving = 0;
        c->no_membarrier = !has_membarrier();
        c->heaps = NULL;
        c->keys = c->bins = c->keys_used = 0;
        c->spare_bins = NULL;
        c->shared_misses = 0;
        for (unsigned i = 0; i < ZR_ACCOUNTS; i++)
            c->account[i].granted = 0;
        memset(c->key, 0, sizeof c->key);
        memset(c->key_like, 0, sizeof c->key_like);
        memset(c->bin, 0, sizeof c->bin);
    }
    zr_pool_fork_child();
    zr_block_fork_child();
    zr_map_fork_child();
    zr_pages_fork_child();
}
