/*
 * Blocks that were freed while a command may still use them (reuse:proven). They wait here, CACHED
 * as the program sees it, until everything that was submitted before their free is proven; then the
 * cache gets them. Those for which that takes longer than cache_idle, and all of them when memory
 * is short, go to the driver by the free that was called, which waits as it always did.
 *
 * A queue by age: epochs only grow, so nothing behind the first one that is not proven can be
 * reused earlier.
 */
#include "policy/policy.h"
#include "work/work.h"

static struct {
    struct zr_lock lock;
    struct zr_block *first, *last; /* by `below` */
    uint64_t bytes[ZR_ACCOUNTS];
    unsigned blocks; /* atomic: read without the lock */
} pending;

bool zr_pending_any(void) {
    return __atomic_load_n(&pending.blocks, __ATOMIC_RELAXED) != 0;
}

/* The caller holds the lock. `link` leads to the block. */
static void pending_unlink(struct zr_block **link, struct zr_block *before) {
    struct zr_block *b = *link;

    *link = b->below;
    if (pending.last == b)
        pending.last = before;
    pending.bytes[b->key.account] -= b->held;
    __atomic_store_n(&pending.blocks, pending.blocks - 1, __ATOMIC_RELAXED);
}

static void release_list(struct zr_block *list) {
    while (list) {
        struct zr_block *b = list;

        list = b->below;
        zr_count(ZR_F_REUSE_UNPROVEN, 1);
        zr_cache_give_back(b, zr_policy_release);
        zr_returned(1);
    }
}

struct chosen {
    unsigned account;    /* or ZR_ACCOUNTS */
    const void *context; /* or NULL */
    uint64_t bytes;      /* at most, and one block more */
};

/* The caller holds the lock. Takes those out that were chosen, the oldest first. */
static uint64_t pending_take(const struct chosen *c, struct zr_block **list) {
    struct zr_block **link = &pending.first, *before = NULL, *b;
    uint64_t bytes = 0;

    while (bytes < c->bytes && *link) {
        b = *link;
        if ((c->account < ZR_ACCOUNTS && b->key.account != c->account) ||
            (c->context && b->key.context != c->context)) {
            before = b;
            link = &b->below;
            continue;
        }
        pending_unlink(link, before);
        zr_leaving(1);
        b->below = *list;
        *list = b;
        bytes += b->held;
    }
    return bytes;
}

uint64_t zr_pending_drain(unsigned account, const void *context) {
    struct chosen c = {account, context, UINT64_MAX};
    struct zr_block *list = NULL;
    uint64_t bytes;

    if (!zr_pending_any())
        return 0;
    zr_pending_settle();
    zr_lock(&pending.lock);
    bytes = pending_take(&c, &list);
    zr_unlock(&pending.lock);
    release_list(list);
    return bytes;
}

/*
 * The caller holds the lock. Takes those out that waited too long; more is pending than the cache
 * may hold.
 */
static void pending_take_old(struct zr_block **list) {
    uint32_t now = zr_now_ms(), most = zr_cache_idle();

    while (pending.first && most < INT32_MAX &&
           (int32_t)(now - pending.first->stamp) >= (int32_t)most) {
        struct zr_block *b = pending.first;

        pending_unlink(&pending.first, NULL);
        zr_leaving(1);
        b->below = *list;
        *list = b;
    }
}

void zr_pending_settle(void) {
    struct zr_block *proven = NULL, *old = NULL;
    uint64_t epoch;

    if (!zr_pending_any())
        return;
    epoch = zr_work_is_sure() ? zr_work_proven() : 0;
    zr_lock(&pending.lock);
    while (pending.first && pending.first->epoch < epoch) {
        struct zr_block *b = pending.first;

        pending_unlink(&pending.first, NULL);
        b->free_ext = false;
        b->below = proven;
        proven = b;
    }
    pending_take_old(&old);
    zr_unlock(&pending.lock);
    while (proven) {
        struct zr_block *b = proven;

        proven = b->below;
        zr_cache_put(b);
    }
    release_list(old);
}

static void pending_put(struct zr_block *b, uint64_t epoch) {
    unsigned account = b->key.account;
    struct chosen c = {.account = account};
    struct zr_block *list = NULL;
    uint64_t limit = zr_cache_share(account);

    b->epoch = epoch;
    b->stamp = zr_now_ms();
    b->below = NULL;
    zr_lock(&pending.lock);
    if (pending.first)
        pending.last->below = b;
    else
        pending.first = b;
    pending.last = b;
    pending.bytes[account] += b->held;
    __atomic_store_n(&pending.blocks, pending.blocks + 1, __ATOMIC_RELAXED);
    if (pending.bytes[account] > limit) {
        c.bytes = pending.bytes[account] - limit;
        pending_take(&c, &list);
    }
    zr_unlock(&pending.lock);
    release_list(list);
}

void zr_pending_keep(struct zr_block *b, const struct zr_free *f, uint64_t epoch) {
    bool idle = !epoch || zr_work_is_idle(epoch);

    if (epoch)
        zr_count(idle ? ZR_F_REUSE_PROVEN : ZR_F_REUSE_WAITED, 1);
    b->free_ext = !idle && f->ext;
    b->free_policy = f->desc ? f->desc->freePolicy : 0;
    if (idle)
        zr_cache_put(b);
    else
        pending_put(b, epoch);
    zr_pending_settle();
}

void zr_pending_fork_child(void) {
    pending.first = pending.last = NULL;
    pending.blocks = 0;
    for (unsigned i = 0; i < ZR_ACCOUNTS; i++)
        pending.bytes[i] = 0;
}
