/*
 * The worker, and those who wait for it.
 *
 * A descriptor is in one list, which is its state; one lock guards them all, and the driver is called without it. The
 * worker has one descriptor in hand at a time. What was freed is the worker's to give back, with two exceptions: a free
 * that blocks takes its block back if the device did not come to rest in time, because then the driver must do the
 * waiting; and when memory is short, a context goes or the process ends, what the worker did not get to in time is
 * given back unverified by whoever waited. Neither touches what is in hand.
 */
#include "check/check.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    QUARANTINE_BLOCKS = 4096,
    QUARANTINE_MIB = 256,
    HISTORY = 1024, /* descriptors of blocks that are gone */
    PATIENCE = 5,   /* calls that may wait in vain */
    EXIT_MS = 2000, /* at the end of the process */
    HAND_MS = 10000,
    MS = 1000000
};

struct zr_lock zr_check_lock;
struct zr_checked_list zr_check_list[ZR_PLACES];
static struct zr_checked *in_hand; /* what the worker works on, or NULL */
static uint64_t tickets;           /* of frees */
static uint64_t rested;            /* the device was at rest after the free with this ticket; the worker's own */
static void (*give_back)(const struct zr_block *b);
static uint32_t bell;     /* atomic, a futex: there is something to do */
static uint32_t progress; /* atomic, a futex: something was done */
static int impatience;    /* atomic: calls that have waited in vain */
static int hurry;         /* atomic: calls for which verifying has taken too long */
static int draining;      /* under the lock: calls for which the quarantine is emptied */
static bool restless;     /* the same: the driver cannot say when a device is at rest */
/* Atomic. CLOSING: nothing new is taken, what is there is verified. HALTED: the worker is to call nobody any more. */
static enum { NO_WORKER, RUNNING, IMPOSSIBLE, CLOSING, HALTED, STOPPED } state;

static int state_now(void) {
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE);
}

static bool runs(void) {
    return state_now() == RUNNING;
}

bool zr_worker_halts(void) {
    return state_now() >= HALTED;
}

bool zr_worker_hurries(void) {
    return zr_worker_halts() || __atomic_load_n(&hurry, __ATOMIC_RELAXED) > 0;
}

uint64_t zr_quarantine_bytes(void) {
    return zr_config.check_quarantine.set ? zr_config.check_quarantine.bytes : (uint64_t)QUARANTINE_MIB << 20;
}

/* --- lists, under the lock ---------------------------------------------------------------------------------------- */

static struct zr_checked *oldest(enum zr_checked_place place) {
    return zr_check_list[place].oldest;
}

/* To the newer end of another list. */
static void move(struct zr_checked *c, enum zr_checked_place to) {
    struct zr_checked_list *from = &zr_check_list[c->place], *list = &zr_check_list[to];

    if (c->place != ZR_CHECKED_NOWHERE) {
        *(c->newer ? &c->newer->older : &from->newest) = c->older;
        *(c->older ? &c->older->newer : &from->oldest) = c->newer;
        from->blocks--;
        from->bytes -= c->held;
    }
    c->place = (uint8_t)to;
    if (to == ZR_CHECKED_NOWHERE)
        return;
    c->older = list->newest;
    c->newer = NULL;
    *(list->newest ? &list->newest->newer : &list->oldest) = c;
    list->newest = c;
    list->blocks++;
    list->bytes += c->held;
}

struct zr_checked *zr_worker_new(void) {
    struct zr_checked *c;

    zr_lock(&zr_check_lock);
    c = zr_check_list[ZR_CHECKED_GONE].blocks > HISTORY ? oldest(ZR_CHECKED_GONE) : NULL;
    if (c && c != in_hand)
        move(c, ZR_CHECKED_NOWHERE);
    else
        c = NULL;
    zr_unlock(&zr_check_lock);
    if (!c)
        c = zr_piece(sizeof *c);
    if (c)
        *c = (struct zr_checked){0};
    return c;
}

static void forget(struct zr_checked *c) {
    c->block = NULL;
    move(c, ZR_CHECKED_GONE);
}

void zr_worker_forget(struct zr_checked *c) {
    zr_lock(&zr_check_lock);
    forget(c);
    zr_unlock(&zr_check_lock);
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static void futex_wake(uint32_t *word) {
    __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void futex_wait(uint32_t *word, uint32_t seen, uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &t, NULL, 0);
}

static uint64_t now_ns(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Until done(arg), asked under the lock, is true, or so long has passed. Not for the worker. */
static bool await(bool (*done)(void *arg), void *arg, uint64_t ns) {
    uint64_t start = now_ns();

    for (;;) {
        uint32_t seen = __atomic_load_n(&progress, __ATOMIC_SEQ_CST);
        uint64_t spent;
        bool is_done;

        zr_lock(&zr_check_lock);
        is_done = done(arg);
        zr_unlock(&zr_check_lock);
        spent = now_ns() - start;
        if (is_done || spent >= ns)
            return is_done;
        futex_wait(&progress, seen, ns - spent);
    }
}

/* A call of the program waits for the worker: not after calls have done so in vain a few times. */
static bool await_for_call(bool (*done)(void *arg), void *arg) {
    if (__atomic_load_n(&impatience, __ATOMIC_RELAXED) >= PATIENCE)
        return false;
    if (await(done, arg, zr_config.check_wait))
        return true;
    zr_check_count(ZR_FOUND_TIMEOUTS, 1);
    if (__atomic_add_fetch(&impatience, 1, __ATOMIC_RELAXED) == PATIENCE)
        zr_warn(
            "check: the device was busy for longer than check_wait (%llu ms) %d times: calls do not wait for it any "
            "more, and errors that follow a free at once may be missed",
            (unsigned long long)(zr_config.check_wait / MS), PATIENCE);
    return false;
}

/* --- the worker --------------------------------------------------------------------------------------------------- */

/* To the driver, unless its context has taken it along. */
static void release(struct zr_checked *c) {
    struct zr_block *b;

    zr_lock(&zr_check_lock);
    b = c->block;
    c->block = NULL;
    zr_unlock(&zr_check_lock);
    if (b && !zr_worker_halts()) {
        /* Out of the map first: once the driver has it, another thread may get and insert the same address. */
        __atomic_store_n(&b->word, zr_block_word(b) >> 32 << 32 | ZR_BLOCK_NONE, __ATOMIC_RELEASE);
        give_back(b);
        zr_block_recycle(b);
    }
    zr_worker_forget(c);
}

/* Gives back, unverified, what was freed up to this ticket and is neither in hand nor awaited. */
static void give_up(uint64_t ticket) {
    struct zr_checked *c;

    do {
        zr_lock(&zr_check_lock);
        c = NULL;
        for (enum zr_checked_place p = ZR_CHECKED_ASKED; p <= ZR_CHECKED_LEAVING && !c; p++)
            for (c = oldest(p); c; c = c->newer)
                if (c->ticket && c->ticket <= ticket && c != in_hand && !(p == ZR_CHECKED_FREED && c->awaited))
                    break;
        if (c)
            move(c, ZR_CHECKED_NOWHERE);
        zr_unlock(&zr_check_lock);
        if (c) {
            zr_check_count(ZR_FOUND_UNVERIFIED, 1);
            release(c);
        }
    } while (c);
}

/* What comes next, in hand and in the place where it belongs afterwards; where it was. Under the lock. */
static enum zr_checked_place take_next(void) {
    const struct zr_checked_list *kept = &zr_check_list[ZR_CHECKED_KEPT];
    struct zr_checked *freed = oldest(ZR_CHECKED_FREED);
    enum zr_checked_place from;

    if (kept->bytes > zr_quarantine_bytes() || kept->blocks > QUARANTINE_BLOCKS || (kept->oldest && draining))
        move(kept->oldest, ZR_CHECKED_LEAVING);
    in_hand = oldest(ZR_CHECKED_ASKED)           ? oldest(ZR_CHECKED_ASKED)
              : freed && freed->ticket <= rested ? freed
                                                 : oldest(ZR_CHECKED_LEAVING);
    from = in_hand ? in_hand->place : ZR_CHECKED_NOWHERE;
    if (from == ZR_CHECKED_ASKED)
        move(in_hand, in_hand->ticket ? ZR_CHECKED_KEPT : ZR_CHECKED_LIVE);
    else if (from == ZR_CHECKED_FREED)
        move(in_hand, ZR_CHECKED_KEPT);
    return from;
}

/* What was freed until now may be poisoned once the devices are at rest. */
static bool come_to_rest(void) {
    uint64_t last;
    bool any, rests;

    zr_lock(&zr_check_lock);
    any = oldest(ZR_CHECKED_FREED);
    last = tickets;
    zr_unlock(&zr_check_lock);
    if (!any)
        return false;
    rests = zr_poison_rest();
    zr_lock(&zr_check_lock);
    rested = rests ? last : rested;
    restless |= !rests;
    zr_unlock(&zr_check_lock);
    if (!rests) {
        zr_warn("check: the driver cannot say when a device is at rest: freed memory is not poisoned");
        give_up(last);
    }
    return rests;
}

/* Does what comes next. False: there is nothing. */
static bool step(void) {
    struct zr_checked *c;
    enum zr_checked_place from;
    bool arm, poison, poisoned, good;

    zr_lock(&zr_check_lock);
    from = take_next();
    c = in_hand;
    zr_unlock(&zr_check_lock);
    if (!c)
        return come_to_rest();
    poison = from == ZR_CHECKED_FREED;
    poisoned = c->poisoned;
    arm = from == ZR_CHECKED_ASKED && !c->armed && !c->ticket;
    good = arm ? zr_poison_fill(c, c->size, c->held - c->size)
               : (!poisoned || zr_look_at_freed(c)) && (!c->armed || zr_look_at_zone(c)) &&
                     (!poison || zr_poison_fill(c, 0, c->size));
    if (poison || (!good && !poisoned))
        zr_check_count(good ? ZR_FOUND_POISONED : ZR_FOUND_PASSED_FAILED, 1);
    if (from == ZR_CHECKED_LEAVING && poisoned)
        zr_check_count(good ? ZR_FOUND_VERIFIED : ZR_FOUND_UNVERIFIED, 1);
    if (from == ZR_CHECKED_LEAVING)
        release(c);
    zr_lock(&zr_check_lock);
    if (arm)
        c->armed = good && c->block;
    if (poison)
        c->poisoned = good;
    if (poison && !good)
        move(c, ZR_CHECKED_LEAVING);
    in_hand = NULL;
    zr_unlock(&zr_check_lock);
    return true;
}

static void *work(void *unused) {
    (void)unused;
    zr_thread.inside = true; /* hooks pass on whatever this thread calls */
    while (!zr_worker_halts()) {
        uint32_t rung = __atomic_load_n(&bell, __ATOMIC_SEQ_CST);

        /* The bell was read first: what is queued from here on rings it again. */
        if (step())
            futex_wake(&progress);
        else
            futex_wait(&bell, rung, UINT64_MAX / 2);
    }
    __atomic_store_n(&state, STOPPED, __ATOMIC_RELEASE);
    futex_wake(&progress);
    return NULL;
}

static bool start(void);

/* --- what the program's calls ask for ----------------------------------------------------------------------------- */

struct request {
    struct zr_checked *c;
    uint64_t ticket; /* of the free; 0: there was none */
};

/* The descriptor may be another block's by now. */
static bool is_done(void *arg) {
    const struct request *r = arg;
    const struct zr_checked *c = r->c;

    return c->ticket != r->ticket || (c != in_hand && c->place != ZR_CHECKED_ASKED && c->place != ZR_CHECKED_FREED);
}

/* What has not begun is not done. */
static void cancel(struct zr_checked *c) {
    zr_lock(&zr_check_lock);
    if (c->place == ZR_CHECKED_ASKED)
        move(c, ZR_CHECKED_LIVE);
    zr_unlock(&zr_check_lock);
}

void zr_worker_born(struct zr_checked *c, void (*release_block)(const struct zr_block *b)) {
    struct request r = {.c = c};
    bool guarded;

    give_back = release_block;
    guarded = start() && c->held > c->size;
    zr_lock(&zr_check_lock);
    move(c, guarded ? ZR_CHECKED_ASKED : ZR_CHECKED_LIVE);
    zr_unlock(&zr_check_lock);
    if (guarded)
        futex_wake(&bell);
    if (guarded && !await_for_call(is_done, &r) && c->kind == ZR_KIND_SHARED)
        cancel(c); /* the processor may use it from now on: the device must not touch it at the same time */
}

/* Has a red zone looked at. Not of shared memory, which the processor may be using. Under the lock. */
static void ask(struct zr_checked *c) {
    if (c->place == ZR_CHECKED_LIVE && c->armed && c->kind != ZR_KIND_SHARED)
        move(c, ZR_CHECKED_ASKED);
}

/* More waits for the device to rest than the quarantine may hold: it must not cost the program its memory. */
static bool is_crowded(const struct zr_checked *c) {
    const struct zr_checked_list *freed = &zr_check_list[ZR_CHECKED_FREED];

    return freed->bytes + c->held > zr_quarantine_bytes() || freed->blocks >= QUARANTINE_BLOCKS;
}

/*
 * A block that is held back stays with the worker, unless the free blocks and the device did not come to rest. Of any
 * other the red zone is looked at, and it stays the caller's, so that the driver answers to the free; unless a command
 * of ours is still on its way, which a free that blocks waits for, as the driver would.
 */
bool zr_worker_free(struct zr_checked *c, struct zr_checked *before, bool poison, bool blocking) {
    struct request r = {.c = c};
    bool ours;

    if (!runs()) {
        zr_worker_forget(c);
        return false;
    }
    if (blocking) {
        cancel(c);
        await(is_done, &r, (uint64_t)HAND_MS * MS);
    }
    zr_lock(&zr_check_lock);
    if (before)
        ask(before);
    if (poison && !restless && !is_crowded(c)) {
        c->ticket = r.ticket = ++tickets;
        c->awaited = blocking;
        move(c, ZR_CHECKED_FREED);
    } else {
        move(c, c->armed ? ZR_CHECKED_ASKED : ZR_CHECKED_LIVE);
    }
    zr_unlock(&zr_check_lock);
    futex_wake(&bell);
    if (!await_for_call(is_done, &r) && !r.ticket) {
        cancel(c);
        if (blocking)
            await(is_done, &r, (uint64_t)HAND_MS * MS);
    }
    zr_lock(&zr_check_lock);
    if (r.ticket)
        ours = c->ticket != r.ticket || c->place != ZR_CHECKED_FREED || !blocking;
    else
        ours = c == in_hand && !blocking;
    if (!ours) {
        forget(c);
    } else if (!r.ticket) {
        c->ticket = ++tickets;
        move(c, ZR_CHECKED_LEAVING);
    }
    zr_unlock(&zr_check_lock);
    if (poison && (!r.ticket || !ours))
        zr_check_count(ZR_FOUND_PASSED_BUSY, 1);
    return ours;
}

/* --- emptying the quarantine -------------------------------------------------------------------------------------- */

/* What was freed up to this ticket is gone. */
static bool is_drained(void *ticket) {
    uint64_t last = *(uint64_t *)ticket;

    for (enum zr_checked_place p = ZR_CHECKED_FREED; p <= ZR_CHECKED_LEAVING; p++)
        if (oldest(p) && oldest(p)->ticket <= last)
            return false;
    return !in_hand || !in_hand->ticket || in_hand->ticket > last;
}

static bool is_out_of(void *context) {
    return !in_hand || (context && (void *)in_hand->context != context);
}

/* Live blocks of a context that goes are left alone from now on. */
static void leave_alone(const void *context) {
    for (enum zr_checked_place p = ZR_CHECKED_LIVE; p <= ZR_CHECKED_ASKED; p++)
        for (struct zr_checked *c = oldest(p), *newer; c; c = newer) {
            newer = c->newer;
            if (c->ticket || (const void *)c->context != context)
                continue;
            c->armed = false;
            if (p == ZR_CHECKED_ASKED)
                move(c, ZR_CHECKED_LIVE);
        }
}

uint64_t zr_worker_drain(void *context, uint32_t ms) {
    uint64_t bytes = 0, last;
    bool held_up;

    zr_lock(&zr_check_lock);
    for (enum zr_checked_place p = ZR_CHECKED_FREED; p <= ZR_CHECKED_LEAVING; p++)
        bytes += zr_check_list[p].bytes;
    last = tickets;
    if (context)
        leave_alone(context);
    draining++;
    zr_unlock(&zr_check_lock);
    futex_wake(&bell);
    if (bytes)
        await(is_drained, &last, (uint64_t)ms * MS);
    give_up(last);
    __atomic_fetch_add(&hurry, 1, __ATOMIC_RELAXED);
    held_up = (bytes || context) && !await(is_out_of, context, (uint64_t)ms * MS);
    __atomic_fetch_sub(&hurry, 1, __ATOMIC_RELAXED);
    give_up(last); /* what was in hand */
    zr_lock(&zr_check_lock);
    draining--;
    if (context && held_up && in_hand)
        in_hand->block = NULL; /* its context takes it along */
    zr_unlock(&zr_check_lock);
    if (context)
        zr_poison_drop(context, held_up);
    return bytes;
}

static bool is_looked_at(void *unused) {
    (void)unused;
    return !in_hand && !oldest(ZR_CHECKED_ASKED);
}

bool zr_check_now(uint32_t ms) {
    struct zr_checked *c, *newer;

    if (!runs())
        return false;
    zr_lock(&zr_check_lock);
    for (c = oldest(ZR_CHECKED_LIVE); c; c = newer) {
        newer = c->newer;
        ask(c);
    }
    while ((c = oldest(ZR_CHECKED_KEPT)) && c != in_hand)
        move(c, ZR_CHECKED_ASKED);
    zr_unlock(&zr_check_lock);
    futex_wake(&bell);
    return await(is_looked_at, NULL, (uint64_t)ms * MS);
}

/* --- beginning and end -------------------------------------------------------------------------------------------- */

static bool is_stopped(void *unused) {
    (void)unused;
    return state_now() == STOPPED;
}

/*
 * Before the driver is torn down: it was loaded before the first block, so its own end comes later. What is freed from
 * now on goes straight to the driver.
 */
static void at_exit(void) {
    uint32_t ms = EXIT_MS;

    zr_fork_check();
    if (!runs())
        return;
    if (!zr_check_now(ms))
        ms = 0;
    __atomic_store_n(&state, CLOSING, __ATOMIC_RELEASE);
    zr_worker_drain(NULL, ms);
    __atomic_store_n(&state, HALTED, __ATOMIC_RELEASE);
    futex_wake(&bell);
    zr_poison_drop(NULL, !await(is_stopped, NULL, (uint64_t)ms * MS));
}

/* The thread takes no signals but those of its own faults, which drivers handle for shared memory. */
static bool create(void) {
    int (*make)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (__typeof__(make))ZR_FUNCTION(zr_real_dlsym(RTLD_DEFAULT, "pthread_create"));
    int (*detach)(pthread_t) = (__typeof__(detach))ZR_FUNCTION(zr_real_dlsym(RTLD_DEFAULT, "pthread_detach"));
    sigset_t all, was;
    pthread_t thread;
    bool made;

    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigprocmask(SIG_BLOCK, &all, &was);
    made = make && detach && make(&thread, NULL, work, NULL) == 0;
    sigprocmask(SIG_SETMASK, &was, NULL);
    if (made)
        detach(thread);
    return made;
}

/* With the first block. False: there is no worker, and will be none. */
static bool start(void) {
    static bool registered;
    int none = NO_WORKER;

    if (likely(runs()))
        return true;
    zr_fork_arm();
    if (!__atomic_compare_exchange_n(&state, &none, RUNNING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return none == RUNNING;
    if (!registered)
        registered = atexit(at_exit) == 0;
    if (!create()) {
        __atomic_store_n(&state, IMPOSSIBLE, __ATOMIC_RELEASE);
        zr_warn("check: no thread can be started: only wrong frees and leaks are found");
        zr_worker_drain(NULL, 0); /* what other threads have freed meanwhile */
    }
    return runs();
}

void zr_worker_fork_child(void) {
    zr_check_lock = (struct zr_lock){0};
    for (unsigned i = 0; i < ZR_PLACES; i++)
        zr_check_list[i] = (struct zr_checked_list){0};
    in_hand = NULL;
    tickets = rested = 0;
    impatience = hurry = draining = 0;
    __atomic_store_n(&state, NO_WORKER, __ATOMIC_RELEASE);
    zr_poison_fork_child();
}
