/* Emptying the quarantine when memory is short, a context goes or the process ends; and verifying all of it, now. */
#include "check/check.h"

enum { MS = 1000000 };

struct criteria {
    unsigned account;
    const void *context;
    size_t blocks;
    uint64_t bytes;
    struct zr_checked *taken;
};

static bool matches(const struct criteria *d, const struct zr_checked *c) {
    return (d->account == ZR_ACCOUNTS || d->account == c->account) &&
           (!d->context || c->context == (const struct _ze_context_handle_t *)d->context);
}

static void mark(struct zr_checked_list *list, struct criteria *d) {
    for (struct zr_checked *c = list->oldest; c; c = c->newer)
        if (matches(d, c)) {
            c->leaves = true;
            d->blocks++;
            d->bytes += c->held;
        }
}

/* The first that matches, marked: what was freed meanwhile goes, too. */
static bool has_one(struct zr_checked_list *list, const struct criteria *d) {
    struct zr_checked *c = list->oldest;

    while (c && !matches(d, c))
        c = c->newer;
    if (c && !c->leaves) {
        c->leaves = true;
        zr_worker_ring();
    }
    return c != NULL;
}

static bool is_empty(void *arg) {
    return !zr_check_drops.count && !has_one(&zr_check_kept, arg) && !has_one(&zr_check_freed, arg) &&
           !has_one(&zr_check_busy, arg);
}

/* What the worker has not begun with is the caller's. */
static void withdraw(struct zr_checked_list *list, struct criteria *d) {
    struct zr_checked *c = list->oldest, *newer;

    for (; c; c = newer) {
        newer = c->newer;
        if (!matches(d, c) || __atomic_load_n(&c->use, __ATOMIC_ACQUIRE) != ZR_UNUSED ||
            (c->state == ZR_CHECKED_QUEUED && !c->orphan)) /* its free is still waiting */
            continue;
        zr_list_leave(c);
        c->state = ZR_CHECKED_BUSY;
        c->newer = d->taken;
        d->taken = c;
        d->blocks++;
    }
}

/* The context goes, and takes the block that the worker is held up with along. */
static void disown(struct criteria *d) {
    for (struct zr_checked *c = zr_check_busy.oldest; c; c = c->newer)
        if (matches(d, c)) {
            c->block = NULL;
            d->blocks++;
        }
}

uint64_t zr_worker_drain(unsigned account, const void *context, uint32_t ms, bool closing) {
    struct criteria d = {.account = account, .context = context};
    bool done;

    if (!zr_worker_runs())
        return 0;
    zr_lock(&zr_check_lock);
    mark(&zr_check_kept, &d);
    mark(&zr_check_freed, &d);
    mark(&zr_check_busy, &d);
    if ((context || closing) && zr_check_drops.count < ZR_DROPS)
        zr_check_drops.context[zr_check_drops.count++] = context;
    done = d.blocks == 0 && zr_check_drops.count == 0;
    zr_unlock(&zr_check_lock);
    if (done)
        return 0;
    if (closing)
        zr_worker_stop();
    zr_worker_ring();
    done = zr_worker_await(is_empty, &d, (uint64_t)ms * MS);
    if (!done) {
        __atomic_fetch_add(&zr_check_hurry, 1, __ATOMIC_ACQ_REL);
        done = zr_worker_await(is_empty, &d, (uint64_t)ms * MS);
        __atomic_fetch_sub(&zr_check_hurry, 1, __ATOMIC_ACQ_REL);
    }
    zr_lock(&zr_check_lock);
    d.blocks = 0;
    if (!done && !closing) {
        withdraw(&zr_check_kept, &d);
        withdraw(&zr_check_freed, &d);
        if (context)
            disown(&d);
        zr_check_drops.count = 0;
    } else if (!done) {
        d.blocks = zr_check_kept.blocks + zr_check_freed.blocks + zr_check_busy.blocks;
    }
    zr_unlock(&zr_check_lock);
    zr_check_count(ZR_CHECKED_UNVERIFIED, d.blocks);
    if (!done && context)
        zr_poison_abandon(context);
    while (d.taken) {
        struct zr_checked *c = d.taken;

        d.taken = c->newer;
        zr_worker_release(c);
    }
    return d.bytes;
}

/* --- all of it, now ----------------------------------------------------------------------------------------------- */

/* zr_check_now(): the red zones of live blocks, and what is in quarantine. What was looked at goes to the end. */
struct zr_checked *zr_next_to_look_at(void) {
    for (struct zr_checked *c = zr_check_kept.oldest; c; c = c->newer)
        if (c->look)
            return c;
    for (struct zr_checked *c = zr_check_live.oldest; c; c = c->newer)
        if (c->look)
            return c;
    return NULL;
}

static bool is_looked_at(void *arg) {
    (void)arg;
    return !zr_next_to_look_at();
}

bool zr_worker_check(uint32_t ms) {
    if (!zr_worker_runs())
        return false;
    zr_lock(&zr_check_lock);
    for (struct zr_checked *c = zr_check_kept.oldest; c; c = c->newer)
        c->look = true;
    for (struct zr_checked *c = zr_check_live.oldest; c; c = c->newer)
        c->look = c->armed && c->kind != ZR_KIND_SHARED; /* the device may be using it: leave it there */
    zr_unlock(&zr_check_lock);
    zr_worker_ring();
    return zr_worker_await(is_looked_at, NULL, (uint64_t)ms * MS);
}
