/*
 * The worker thread, and the calls that wait for it. A descriptor is in one list, which is its
 * state; one lock guards them all, and is not held while the driver is called. The worker has one
 * descriptor in hand at a time. It takes over a freed block, verifies its red zone, holds it back
 * if it may, and gives it to the driver: if commands may still use it (BLOCKING, DEFER) only once
 * the devices are idle, else at once, since the driver does the waiting. When memory is short, a
 * context is destroyed or the process ends, the thread that waits gives back unverified what the
 * worker did not get to in time, but never what it has in hand.
 */
#include "check/check.h"

#include <stdlib.h>
#include <string.h>

enum { NO_WORKER, RUNNING, IMPOSSIBLE, CLOSING, HALTED, STOPPED };
enum {
    QUARANTINE_BLOCKS = 4096,
    HISTORY = 1024,  /* descriptors of blocks that are gone */
    PATIENCE = 5,    /* calls that may wait in vain */
    LOOK_AHEAD = 64, /* freed blocks among which one that is proven idle is looked for */
    MS = 1000000
};
/* How often the worker looks at imports when it has nothing to do. */
static const uint64_t IDLE = UINT64_C(50) * MS;
/* When memory is short, a context goes, the process ends. */
static const uint64_t TIME_LIMIT = UINT64_C(1000) * MS;

struct zr_lock zr_check_lock;
struct zr_checked_list zr_check_list[ZR_PLACES];
static struct zr_checked *in_hand;    /* what the worker works on, or NULL */
static bool touching;                 /* commands of ours may use it by now */
static uint64_t tickets;              /* of frees */
static uint64_t rested;               /* the devices were idle after the free with this ticket, */
static bool restless;                 /* or the driver cannot tell */
static uint64_t rest_after;           /* wait until they are idle after this one */
static zr_release *release_to_driver; /* under the lock; the same for all blocks */
static uint32_t changes; /* atomic, a futex: there is something to do, or something was done */
static int impatience;   /* atomic: calls that have waited in vain */
static int draining;     /* under the lock: calls for which the quarantine is emptied */
/*
 * Atomic. CLOSING: takes nothing new, verifies what is there. HALTED: the worker must make no more
 * calls.
 */
static int worker_state;

static bool worker_runs(void) {
    return __atomic_load_n(&worker_state, __ATOMIC_ACQUIRE) == RUNNING;
}

bool zr_worker_halts(void) {
    return __atomic_load_n(&worker_state, __ATOMIC_ACQUIRE) >= HALTED;
}

/* --- lists, under the lock -------------------------------------------------------------------- */

static struct zr_checked *checked_oldest(enum zr_checked_place place) {
    return zr_check_list[place].oldest;
}

static void list_remove(struct zr_checked_list *list, struct zr_checked *c) {
    if (c->newer)
        c->newer->older = c->older;
    else
        list->newest = c->older;
    if (c->older)
        c->older->newer = c->newer;
    else
        list->oldest = c->newer;
    list->blocks--;
    list->bytes -= c->held;
}

static void list_append(struct zr_checked_list *list, struct zr_checked *c) {
    c->older = list->newest;
    c->newer = NULL;
    if (list->newest)
        list->newest->newer = c;
    else
        list->oldest = c;
    list->newest = c;
    list->blocks++;
    list->bytes += c->held;
}

/* To the newer end of another list. */
static void checked_move(struct zr_checked *c, enum zr_checked_place to) {
    struct zr_checked_list *from = &zr_check_list[c->place], *list = &zr_check_list[to];

    if (c->place != ZR_CHECKED_NOWHERE)
        list_remove(from, c);
    c->place = (uint8_t)to;
    if (to != ZR_CHECKED_NOWHERE)
        list_append(list, c);
}

static void checked_forget(struct zr_checked *c) {
    c->block = NULL;
    checked_move(c, ZR_CHECKED_GONE);
}

void zr_check_forget(const struct zr_block *b) {
    struct zr_checked *c = zr_checked_of(b);

    zr_lock(&zr_check_lock);
    if (c)
        checked_forget(c);
    zr_unlock(&zr_check_lock);
}

/* --- waiting ---------------------------------------------------------------------------------- */

static void worker_changed(void) {
    __atomic_fetch_add(&changes, 1, __ATOMIC_SEQ_CST);
    zr_futex_wake(&changes);
}

/* Waits until done(arg), called under the lock, returns true, `ns` at most. Not for the worker. */
static bool worker_await(bool (*done)(void *arg), void *arg, uint64_t ns) {
    uint64_t now, end = zr_now() + ns;

    for (;;) {
        uint32_t seen = __atomic_load_n(&changes, __ATOMIC_SEQ_CST);
        bool is_done;

        zr_lock(&zr_check_lock);
        is_done = done(arg);
        zr_unlock(&zr_check_lock);
        now = zr_now();
        if (is_done || now >= end)
            return is_done;
        zr_futex_wait(&changes, seen, end - now);
    }
}

/* Waits on behalf of a call of the program; not any more once a few calls have waited in vain. */
static bool await_for_call(bool (*done)(void *arg), void *arg) {
    if (__atomic_load_n(&impatience, __ATOMIC_RELAXED) >= PATIENCE)
        return false;
    if (worker_await(done, arg, zr_config.check_wait))
        return true;
    zr_check_count(ZR_FOUND_TIMEOUTS, 1);
    if (__atomic_add_fetch(&impatience, 1, __ATOMIC_RELAXED) == PATIENCE)
        zr_warn("check: the device was busy for longer than check_wait %d times: calls do not wait "
                "for it any more, "
                "and errors that follow a free at once may be missed",
                PATIENCE);
    return false;
}

/* --- the worker ------------------------------------------------------------------------------- */

/* Gives the block to the driver, unless it went with its context. */
static void checked_release(struct zr_checked *c) {
    zr_release *release;
    struct zr_block *b;

    zr_lock(&zr_check_lock);
    b = c->block;
    release = release_to_driver;
    checked_forget(c);
    zr_unlock(&zr_check_lock);
    if (!b || zr_worker_halts())
        return;
    zr_cache_give_back(b, release);
}

/* Gives back, unverified, what was freed up to this ticket and is not in hand. */
static void give_up(uint64_t last) {
    for (;;) {
        struct zr_checked *c = NULL;

        zr_lock(&zr_check_lock);
        for (enum zr_checked_place p = ZR_CHECKED_ASKED; p <= ZR_CHECKED_LEAVING && !c; p++)
            for (c = checked_oldest(p); c && (!c->ticket || c->ticket > last || c == in_hand);)
                c = c->newer;
        if (c)
            checked_move(c, ZR_CHECKED_NOWHERE);
        zr_unlock(&zr_check_lock);
        if (!c)
            return;
        zr_check_count(ZR_FOUND_UNVERIFIED, 1);
        checked_release(c);
    }
}

/* The oldest of the freed blocks that no command can use any more, or NULL. Under the lock. */
static struct zr_checked *oldest_idle(void) {
    struct zr_checked *freed = checked_oldest(ZR_CHECKED_FREED);

    for (unsigned i = 0; freed && i < LOOK_AHEAD; i++) {
        if (freed->ticket <= rested || freed->is_idle)
            return freed;
        freed = freed->newer;
    }
    return NULL;
}

/*
 * Takes the next descriptor in hand and moves it where it goes next. Returns where it was. Under
 * the lock.
 */
static enum zr_checked_place take_next(void) {
    const struct zr_checked_list *kept = &zr_check_list[ZR_CHECKED_KEPT];
    enum zr_checked_place from;

    if (kept->bytes > zr_config.check_quarantine.bytes || kept->blocks > QUARANTINE_BLOCKS ||
        (kept->oldest && draining))
        checked_move(kept->oldest, ZR_CHECKED_LEAVING);
    in_hand = checked_oldest(ZR_CHECKED_ASKED);
    if (!in_hand)
        in_hand = oldest_idle();
    if (!in_hand)
        in_hand = checked_oldest(ZR_CHECKED_LEAVING);
    from = in_hand ? in_hand->place : ZR_CHECKED_NOWHERE;
    if (from == ZR_CHECKED_ASKED || from == ZR_CHECKED_FREED)
        checked_move(in_hand, in_hand->ticket ? ZR_CHECKED_KEPT : ZR_CHECKED_LIVE);
    return from;
}

/*
 * Waits until the devices are idle, so that what was freed before may be poisoned. False if there
 * is nothing to do.
 */
static bool come_to_rest(void) {
    uint64_t last;
    bool known;

    zr_lock(&zr_check_lock);
    last = rest_after > rested ? tickets : 0;
    zr_unlock(&zr_check_lock);
    if (!last)
        return false;
    known = zr_devices_rest();
    if (!known)
        zr_warn(
            "check: the driver cannot say when a device is at rest: freed memory is not poisoned");
    zr_lock(&zr_check_lock);
    restless = !known;
    rested = last;
    zr_unlock(&zr_check_lock);
    return true;
}

/* Does the next piece of work. Returns false if there is none. */
static bool worker_step(void) {
    struct zr_checked *c;
    enum zr_checked_place from;
    bool arm, poison, poisoned, good;

    zr_lock(&zr_check_lock);
    from = take_next();
    c = in_hand;
    zr_unlock(&zr_check_lock);
    if (!c)
        return come_to_rest();
    /* A list of the program's may be first, which waits for a free of this very block. */
    zr_poison_fill(c, 0, 0);
    zr_lock(&zr_check_lock);
    touching = c->block && (c->ticket || !c->exempt);
    in_hand = touching ? c : NULL;
    if (!c->block)
        checked_forget(c); /* it has gone to the driver meanwhile */
    zr_unlock(&zr_check_lock);
    if (!touching)
        return true;
    poison = from == ZR_CHECKED_FREED;
    poisoned = c->poisoned;
    arm = from == ZR_CHECKED_ASKED && !c->armed && !c->ticket;
    good = arm ? zr_poison_fill(c, c->size, c->held)
               : (!poisoned || zr_look(c, false)) && (!c->armed || zr_look(c, true)) &&
                     (!poison || ((!restless || c->is_idle) && zr_poison_fill(c, 0, c->size)));
    if (poison || (!good && !poisoned))
        zr_check_count(good ? ZR_FOUND_POISONED : ZR_FOUND_PASSED_FAILED, 1);
    if (from == ZR_CHECKED_LEAVING && poisoned)
        zr_check_count(good ? ZR_FOUND_VERIFIED : ZR_FOUND_UNVERIFIED, 1);
    if (from == ZR_CHECKED_LEAVING)
        checked_release(c);
    zr_lock(&zr_check_lock);
    if (arm)
        c->armed = good && c->block;
    if (poison)
        c->poisoned = good;
    if (poison && !good)
        checked_move(c, ZR_CHECKED_LEAVING);
    in_hand = NULL;
    touching = false;
    zr_unlock(&zr_check_lock);
    return true;
}

static void *worker_work(void *unused) {
    (void)unused;
    ZR_OWN_OP(own, 0); /* hooks pass on whatever this thread calls */

    while (!zr_worker_halts()) {
        /* Before anything is looked for. */
        uint32_t seen = __atomic_load_n(&changes, __ATOMIC_SEQ_CST);

        if (worker_step()) {
            worker_changed();
            continue;
        }
        zr_imports_look();
        zr_futex_wait(&changes, seen, IDLE);
    }
    __atomic_store_n(&worker_state, STOPPED, __ATOMIC_RELEASE);
    worker_changed();
    return NULL;
}

/* --- beginning and end ------------------------------------------------------------------------ */

static bool is_stopped(void *unused) {
    (void)unused;
    return __atomic_load_n(&worker_state, __ATOMIC_ACQUIRE) == STOPPED;
}

/*
 * Runs before the driver is torn down, which was loaded before the first block and so ends later.
 * What is freed from now on goes straight to the driver.
 */
static void at_exit(void) {
    zr_fork_check();
    if (!worker_runs())
        return;
    zr_check_now(TIME_LIMIT / MS);
    __atomic_store_n(&worker_state, CLOSING, __ATOMIC_RELEASE);
    zr_check_drain(NULL);
    __atomic_store_n(&worker_state, HALTED, __ATOMIC_RELEASE);
    worker_changed();
    zr_poison_drop(NULL, !worker_await(is_stopped, NULL, TIME_LIMIT));
}

bool zr_worker_start(void) {
    static bool registered;
    int none = NO_WORKER;

    if (likely(worker_runs()))
        return true;
    zr_fork_arm();
    if (!__atomic_compare_exchange_n(&worker_state, &none, RUNNING, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return none == RUNNING;
    if (!registered)
        registered = atexit(at_exit) == 0;
    if (!zr_thread_start(worker_work, NULL)) {
        __atomic_store_n(&worker_state, IMPOSSIBLE, __ATOMIC_RELEASE);
        zr_warn("check: no thread can be started: only wrong frees and leaks are found");
        zr_check_drain(NULL); /* what other threads have freed meanwhile */
    }
    return worker_runs();
}

/* --- what the program's calls ask for --------------------------------------------------------- */

struct request {
    struct zr_checked *c;
    void *context;
    uint64_t ticket; /* of the free, or of the last one; 0: there was none */
};

/* The descriptor may be another block's by now. */
static bool is_done(void *arg) {
    const struct request *r = arg;
    const struct zr_checked *c = r->c;

    return c->ticket != r->ticket ||
           (c != in_hand && (c->place == ZR_CHECKED_LIVE || c->place == ZR_CHECKED_KEPT ||
                             c->place == ZR_CHECKED_GONE));
}

void zr_worker_born(const struct zr_checked *as, zr_release *release_block) {
    bool guarded = zr_worker_start() && as->held > as->size;
    struct request r = {.ticket = 0};

    zr_lock(&zr_check_lock);
    release_to_driver = release_block;
    r.c = zr_check_list[ZR_CHECKED_GONE].blocks > HISTORY ? checked_oldest(ZR_CHECKED_GONE) : NULL;
    if (r.c && r.c != in_hand)
        checked_move(r.c, ZR_CHECKED_NOWHERE);
    else
        r.c = zr_piece(sizeof *r.c);
    if (r.c) {
        *r.c = *as;
        checked_move(r.c, guarded ? ZR_CHECKED_ASKED : ZR_CHECKED_LIVE);
        __atomic_store_n(&as->block->checked, r.c, __ATOMIC_RELEASE);
    }
    zr_unlock(&zr_check_lock);
    if (!guarded || !r.c)
        return;
    worker_changed();
    if (await_for_call(is_done, &r) || as->kind != ZR_KIND_SHARED)
        return;
    zr_lock(&zr_check_lock);
    r.c->exempt = true;
    zr_unlock(&zr_check_lock);
    zr_check_count(ZR_FOUND_PASSED_ZONE, 1);
}

/*
 * Has a red zone verified, but not of shared memory, which the processor may be using. Under the
 * lock.
 */
static void checked_ask(struct zr_checked *c) {
    if (c->place == ZR_CHECKED_LIVE && c->armed && c->kind != ZR_KIND_SHARED)
        checked_move(c, ZR_CHECKED_ASKED);
}

static bool is_rested(void *ticket) {
    return rested >= *(uint64_t *)ticket && !restless;
}

/*
 * Whether the worker may free the block later than the program does. Not what others may refer to:
 * the driver may close what it shares by a number that has another owner by then.
 */
static bool may_leave_late(const struct zr_checked *c, enum zr_use use) {
    return use != ZR_USE_POSSIBLE &&
           !(zr_block_flags(c->block) & (ZR_BLOCK_EXPORTED | ZR_BLOCK_PINNED));
}

bool zr_worker_free(struct zr_checked *c, struct zr_checked *before, bool poison, enum zr_use use) {
    const struct zr_checked_list *freed = &zr_check_list[ZR_CHECKED_FREED];
    bool works = worker_runs(), idle = use == ZR_USE_ENDED, late = may_leave_late(c, use);
    bool armed, done, stuck, ours;
    struct request r = {.c = c};
    uint64_t mine;

    zr_lock(&zr_check_lock);
    if (works && poison && use == ZR_USE_POSSIBLE) {
        mine = ++tickets;
        rest_after = mine;
        zr_unlock(&zr_check_lock);
        worker_changed();
        works = await_for_call(is_rested, &mine);
        zr_lock(&zr_check_lock);
    }
    if (before && works)
        checked_ask(before);
    armed = works && c->armed;
    /* What waits for idle devices must fit into the quarantine: it is the program's memory. */
    if (works && poison && freed->bytes + c->held <= zr_config.check_quarantine.bytes &&
        freed->blocks < QUARANTINE_BLOCKS) {
        r.ticket = ++tickets;
        c->ticket = r.ticket;
        c->is_idle = idle;
        if (!idle)
            rest_after = r.ticket;
        checked_move(c, ZR_CHECKED_FREED);
    } else if (armed) {
        checked_move(c, ZR_CHECKED_ASKED);
    }
    zr_unlock(&zr_check_lock);
    worker_changed();
    if (poison && !r.ticket)
        zr_check_count(ZR_FOUND_PASSED_BUSY, 1);
    if (r.ticket && idle)
        zr_check_count(ZR_FOUND_PROVEN, 1);
    done = !r.ticket && !armed;
    if (!done && idle) /* for the worker, not for the device: that is not in vain */
        done = worker_await(is_done, &r, zr_config.check_wait);
    else if (!done)
        done = await_for_call(is_done, &r);
    if (r.ticket)
        return true;
    zr_lock(&zr_check_lock);
    /* The worker looks at it later, and gives it back. */
    ours = works && late && (!done || c == in_hand);
    stuck = !ours && c == in_hand && touching;
    c->ticket = ours ? ++tickets : 0;
    if (ours)
        checked_move(c, ZR_CHECKED_LEAVING);
    else
        checked_forget(c);
    zr_unlock(&zr_check_lock);
    worker_changed();
    if (!done && !late && !ours)
        zr_check_count(ZR_FOUND_UNVERIFIED, 1);
    if (stuck)
        /* For a command of ours: the driver would wait for it, too. */
        worker_await(is_done, &r, 10 * TIME_LIMIT);
    return ours;
}

/* Nothing freed up to then is left, and no work in the context is in progress. */
static bool is_drained(void *arg) {
    const struct request *r = arg;

    for (enum zr_checked_place p = ZR_CHECKED_ASKED; p <= ZR_CHECKED_LEAVING; p++)
        for (const struct zr_checked *c = checked_oldest(p); c; c = c->newer)
            if (c->ticket && c->ticket <= r->ticket)
                return false;
    return !in_hand || ((!in_hand->ticket || in_hand->ticket > r->ticket) &&
                        (void *)in_hand->context != r->context);
}

/* Live blocks of a context that is being destroyed are not touched any more. */
static void exempt_context(const void *context) {
    for (enum zr_checked_place p = ZR_CHECKED_LIVE; p <= ZR_CHECKED_ASKED; p++)
        for (struct zr_checked *c = checked_oldest(p), *newer; c; c = newer) {
            newer = c->newer;
            if (c->ticket || (const void *)c->context != context)
                continue;
            c->armed = false;
            c->exempt = true; /* the worker may be about to arm it */
            if (p == ZR_CHECKED_ASKED)
                checked_move(c, ZR_CHECKED_LIVE);
        }
}

uint64_t zr_check_drain(void *context) {
    struct request r = {.context = context};
    uint64_t bytes = 0;
    bool held_up;

    zr_lock(&zr_check_lock);
    for (enum zr_checked_place p = ZR_CHECKED_FREED; p <= ZR_CHECKED_LEAVING; p++)
        bytes += zr_check_list[p].bytes;
    r.ticket = tickets;
    if (context)
        exempt_context(context);
    draining++;
    zr_unlock(&zr_check_lock);
    worker_changed();
    for (unsigned i = 0; i < 2 && !worker_await(is_drained, &r, TIME_LIMIT); i++)
        give_up(r.ticket); /* and, the second time, what was in hand the first time */
    zr_lock(&zr_check_lock);
    draining--;
    held_up = context && in_hand && (void *)in_hand->context == context;
    if (held_up)
        in_hand->block = NULL; /* it goes with its context */
    zr_unlock(&zr_check_lock);
    if (context)
        zr_poison_drop(context, held_up);
    return bytes;
}

static bool is_looked_at(void *unused) {
    (void)unused;
    return !in_hand && !checked_oldest(ZR_CHECKED_ASKED);
}

bool zr_check_now(uint32_t ms) {
    struct zr_checked *c, *newer;

    if (!worker_runs())
        return false;
    zr_lock(&zr_check_lock);
    for (c = checked_oldest(ZR_CHECKED_LIVE); c; c = newer) {
        newer = c->newer;
        checked_ask(c);
    }
    while ((c = checked_oldest(ZR_CHECKED_KEPT))) {
        if (c == in_hand)
            break;
        checked_move(c, ZR_CHECKED_ASKED);
    }
    zr_unlock(&zr_check_lock);
    worker_changed();
    return worker_await(is_looked_at, NULL, (uint64_t)ms * MS);
}

void zr_worker_fork_child(void) {
    memset(zr_check_list, 0, sizeof zr_check_list);
    in_hand = NULL;
    tickets = 0;
    rested = 0;
    rest_after = 0;
    impatience = 0;
    draining = 0;
    __atomic_store_n(&worker_state, NO_WORKER, __ATOMIC_RELEASE);
    zr_poison_drop(NULL, true);
}
