#include "policy/local.h"

#include "cache/membarrier.h"
#include "driver/hook.h"
#include "policy/lean.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

enum { QUICK_NS = 2000, STREAK = 64, LOOK_AGAIN = 8, INTO_PAGE = 18 * 64 };

static __thread bool thread_ended;
static struct zr_local *all;
static struct zr_lock lock;
static bool registered; /* for membarrier; without it claims are shared from the beginning */
uint32_t zr_claims_shared;

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle __attribute__((visibility("hidden")));

static void enlist(struct zr_local *l)
{
    zr_lock(&lock);
    if (!registered) {
        registered = true;
        if (!zr_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
            __atomic_store_n(&zr_claims_shared, 1, __ATOMIC_RELAXED);
    }
    l->next = all;
    l->link = &all;
    if (all)
        all->link = &l->next;
    all = l;
    /* Asked under the lock: at the end of the process either this sees it, or zr_local_close_all sees this. */
    l->open = (l->shard && !zr_is(~0u) ? ZR_OPEN : 0) | (zr_claims_shared ? ZR_SHARED : 0);
    zr_thread.lean = l->open & ZR_OPEN;
    zr_unlock(&lock);
}

static void unmap(struct zr_local *l)
{
    munmap((char *)l - INTO_PAGE, INTO_PAGE + sizeof *l);
}

static void drop(void *unused)
{
    struct zr_local *l;

    (void)unused;
    zr_fork_check();
    l = zr_thread.local;
    thread_ended = true;
    zr_thread.local = NULL;
    zr_thread.lean = 0;
    if (!l)
        return;
    zr_lock(&lock);
    *l->link = l->next;
    if (l->next)
        l->next->link = l->link;
    zr_unlock(&lock);
    zr_claims_drop(l);
    unmap(l);
}

struct zr_local *zr_local_make(void)
{
    int saved = errno;
    struct zr_local *l = zr_thread.local;

    if (l || thread_ended)
        return l;
    char *pages = mmap(NULL, INTO_PAGE + sizeof *l, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        l = NULL;
    } else if (__cxa_thread_atexit_impl(drop, NULL, &__dso_handle) != 0) {
        munmap(pages, INTO_PAGE + sizeof *l);
        l = NULL;
    } else {
        l = (struct zr_local *)(void *)(pages + INTO_PAGE);
        /* Closed in a child of fork or clone, like zr_fork_word. Where it is not to be had, fork tells us itself. */
        madvise(pages, INTO_PAGE + sizeof *l, MADV_WIPEONFORK);
        zr_claims_start(l);
        /* The shard was claimed before, so it is given back after this: no call can use it any more then. */
        if (!(zr_shard_word & 1))
            l->shard = (struct zr_shard *)zr_shard_word;
        enlist(l);
    }
    zr_thread.local = l;
    errno = saved;
    return l;
}

void zr_local_close_all(void)
{
    zr_lock(&lock);
    for (struct zr_local *l = all; l; l = l->next)
        __atomic_store_n(&l->open, l->open & ~(uint32_t)ZR_OPEN, __ATOMIC_RELAXED);
    zr_unlock(&lock);
}

static void share_claims(void)
{
    struct zr_local *own = zr_thread.local;

    zr_lock(&lock);
    if (!zr_claims_shared && all && (all != own || all->next)) {
        for (struct zr_local *l = all; l; l = l->next)
            __atomic_store_n(&l->open, l->open | ZR_SHARED, __ATOMIC_RELAXED);
        if (!zr_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
            zr_stores_arrive();
        for (struct zr_local *l = all; l; l = l->next)
            while (l != own && __atomic_load_n(&l->parking, __ATOMIC_ACQUIRE)) {
                ZR_PAUSE("waiting for one who parks");
                sched_yield();
            }
        __atomic_store_n(&zr_claims_shared, 1, __ATOMIC_RELEASE);
    }
    zr_unlock(&lock);
}

void zr_claims_leave(const void *base)
{
    uint64_t word;

    if (zr_map_look_in_tree(base, &word) && zr_word_state(word) == ZR_BLOCK_LIVE && word & ZR_WORD_CLAIMED)
        share_claims();
}

/* From 65 to 192 calls, so that no rhythm of a program's calls hides some of them from the clock. */
static void next_turn(struct zr_local *l, struct zr_pace *p)
{
    l->random = l->random * 1664525u + 1013904223u;
    p->left = p->weight = 65 + (l->random >> 25);
}

uint32_t zr_pace_due(struct zr_local *l, enum zr_entry e, unsigned bucket)
{
    struct zr_pace *p = zr_pace_of(l, e);
    uint32_t weight = p->weight;

    if (!zr_pace_is_quick(l, e, bucket))
        return 1;
    next_turn(l, p);
    if (++l->turns % LOOK_AGAIN == 0 && zr_callers_moved(&l->libraries))
        memset(l->way, 0, sizeof l->way);
    return weight;
}

void zr_pace_timed(struct zr_local *l, enum zr_entry e, unsigned bucket, uint64_t start, uint32_t weight)
{
    uint64_t ns = zr_time_span(e, start, zr_ticks(), weight);
    struct zr_pace *p;

    if (!l)
        return;
    p = zr_pace_of(l, e);
    if (ns >= QUICK_NS) {
        l->streak[e][bucket] = 0;
        l->quick[e] &= ~((uint64_t)1 << bucket);
        p->like = 0;
    } else if (l->streak[e][bucket] < STREAK && ++l->streak[e][bucket] == STREAK) {
        l->quick[e] |= (uint64_t)1 << bucket;
        if (!p->left)
            next_turn(l, p);
    }
}

/* The parent's blocks are forgotten with its map; counters of libraries get other places. */
void zr_fork_child_local(void)
{
    lock = (struct zr_lock){0};
    all = NULL;
    registered = false;
    zr_claims_shared = 0;
    if (zr_thread.local)
        unmap(zr_thread.local);
    zr_thread.local = NULL;
    zr_thread.lean = 0;
}
