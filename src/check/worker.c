/*
 * The worker, and what waits for it: red zones to fill, freed blocks to poison, blocks in quarantine to verify.
 *
 * Descriptors are in one list each: `arming` and `live` while the program has the block, `freed` until the device came
 * to rest, `kept` in quarantine, `busy` in the worker's hands, `gone` afterwards. One lock guards lists and states; the
 * driver is called without it. Whoever waits does so for `progress` to change, with a time limit.
 */
#include "check/check.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    QUARANTINE_BLOCKS = 4096,
    QUARANTINE_MIB = 256,
    HISTORY = 1024, /* descriptors of blocks that are gone */
    PATIENCE = 5,   /* calls that may wait in vain */
    EXIT_MS = 2000, /* at the end of the process */
    SUBMIT_MS = 10000,
    MS = 1000000
};

struct zr_lock zr_check_lock;
struct zr_checked_list zr_check_arming, zr_check_live, zr_check_freed, zr_check_kept, zr_check_busy, zr_check_gone;
static uint32_t bell;     /* atomic, a futex: there is something to do */
static uint32_t progress; /* atomic, a futex: something was done */
static uint64_t tickets;
struct zr_drops zr_check_drops;
static int impatience; /* atomic: calls that waited in vain */
static enum { NO_WORKER, STARTING, RUNNING, NONE_POSSIBLE, STOPPING, STOPPED } state; /* atomic */
static void (*give_back)(const struct zr_block *b);

int zr_check_hurry;
static bool halt; /* atomic: the process ends, and the worker is to call nobody any more */

bool zr_worker_halts(void) {
    return __atomic_load_n(&halt, __ATOMIC_ACQUIRE);
}

bool zr_worker_hurries(void) {
    return zr_worker_halts() || __atomic_load_n(&zr_check_hurry, __ATOMIC_ACQUIRE) > 0;
}

static int state_now(void) {
    return __atomic_load_n(&state, __ATOMIC_ACQUIRE);
}

bool zr_worker_runs(void) {
    return state_now() == RUNNING;
}

void zr_worker_stop(void) {
    __atomic_store_n(&state, STOPPING, __ATOMIC_RELEASE);
}

/* --- lists, under the lock ---------------------------------------------------------------------------------------- */

static void add(struct zr_checked_list *list, struct zr_checked *c) {
    c->in = list;
    c->older = list->newest;
    c->newer = NULL;
    *(list->newest ? &list->newest->newer : &list->oldest) = c;
    list->newest = c;
    list->blocks++;
    list->bytes += c->held;
}

void zr_list_leave(struct zr_checked *c) {
    struct zr_checked_list *list = c->in;

    *(c->newer ? &c->newer->older : &list->newest) = c->older;
    *(c->older ? &c->older->newer : &list->oldest) = c->newer;
    list->blocks--;
    list->bytes -= c->held;
    c->in = NULL;
}

static void move(struct zr_checked *c, struct zr_checked_list *list, enum zr_checked_state to) {
    if (c->in)
        zr_list_leave(c);
    add(list, c);
    c->state = (uint8_t)to;
}

struct zr_checked *zr_worker_new(void) {
    struct zr_checked *c;

    zr_lock(&zr_check_lock);
    c = zr_check_gone.blocks > HISTORY && !zr_check_gone.oldest->awaited ? zr_check_gone.oldest : NULL;
    if (c)
        zr_list_leave(c);
    zr_unlock(&zr_check_lock);
    if (!c)
        c = zr_piece(sizeof *c);
    if (c)
        *c = (struct zr_checked){0};
    return c;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static void futex_wake(uint32_t *word) {
    __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void zr_worker_ring(void) {
    futex_wake(&bell);
}

/* ns: UINT64_MAX for ever. */
static void futex_wait(uint32_t *word, uint32_t seen, uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, ns == UINT64_MAX ? NULL : &t, NULL, 0);
}

static uint64_t now_ns(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Until done(arg), asked under the lock, is true, or so long has passed. The worker itself never waits here. */
bool zr_worker_await(bool (*done)(void *arg), void *arg, uint64_t ns) {
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

/* A call of the program waits for the worker: not after it has done so in vain a few times. */
static bool await_for_call(bool (*done)(void *arg), void *arg) {
    if (__atomic_load_n(&impatience, __ATOMIC_RELAXED) >= PATIENCE)
        return false;
    if (zr_worker_await(done, arg, zr_config.check_wait))
        return true;
    zr_check_count(ZR_CHECKED_TIMEOUTS, 1);
    if (__atomic_add_fetch(&impatience, 1, __ATOMIC_RELAXED) == PATIENCE)
        zr_warn(
            "check: the device was busy for longer than check_wait (%llu ms) %d times: calls do not wait for it any "
            "more, and errors that follow a free at once may be missed",
            (unsigned long long)(zr_config.check_wait / MS), PATIENCE);
    return false;
}

/* --- the worker's steps: each returns true if there was something to do ------------------------------------------- */

/* A command of ours has ended: false if the block was taken meanwhile, and the descriptor is all that is left. */
static bool use_ends(struct zr_checked *c) {
    __atomic_store_n(&c->use, ZR_UNUSED, __ATOMIC_RELEASE);
    if (c->block)
        return true;
    move(c, &zr_check_gone, ZR_CHECKED_SPARE);
    return false;
}

/* To the driver, unless its context has gone meanwhile. */
void zr_worker_release(struct zr_checked *c) {
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
    zr_lock(&zr_check_lock);
    move(c, &zr_check_gone, ZR_CHECKED_SPARE);
    zr_unlock(&zr_check_lock);
}

static bool arm_next(void) {
    struct zr_checked *c;
    bool good;

    zr_lock(&zr_check_lock);
    c = zr_check_arming.oldest;
    if (c) {
        move(c, &zr_check_live, ZR_CHECKED_LIVE);
        __atomic_store_n(&c->use, ZR_USE_BEGINS, __ATOMIC_RELEASE);
    }
    zr_unlock(&zr_check_lock);
    if (!c)
        return false;
    good = zr_poison_fill(c, c->size, c->held - c->size);
    zr_lock(&zr_check_lock);
    c->armed = good;
    good |= !use_ends(c); /* cancelled */
    zr_unlock(&zr_check_lock);
    if (!good)
        zr_check_count(ZR_CHECKED_PASSED_FAILED, 1);
    return true;
}

/* The device is at rest, or nothing is to be written. */
static void process(struct zr_checked *c) {
    bool good = true, poisoned = false, orphan;

    if (c->want & ZR_WANT_ZONE && c->armed)
        good = zr_look_at_zone(c);
    if (good && c->want & ZR_WANT_POISON)
        poisoned = good = zr_poison_fill(c, 0, c->size);
    if (!good)
        zr_check_count(ZR_CHECKED_PASSED_FAILED, 1);
    zr_lock(&zr_check_lock);
    c->clean = poisoned;
    if (!use_ends(c)) {
        zr_unlock(&zr_check_lock);
        return;
    }
    orphan = c->orphan;
    if (poisoned)
        move(c, &zr_check_kept, ZR_CHECKED_KEPT);
    else if (!orphan)
        c->state = ZR_CHECKED_DONE; /* who freed it has it again */
    zr_unlock(&zr_check_lock);
    if (poisoned)
        zr_check_count(ZR_CHECKED_POISONED, 1);
    else if (orphan)
        zr_worker_release(c);
}

/* All that was queued before the device came to rest. */
static bool free_some(void) {
    uint64_t until;
    bool wants_rest = false, rests = true;

    zr_lock(&zr_check_lock);
    until = tickets;
    for (struct zr_checked *c = zr_check_freed.oldest; c && !wants_rest; c = c->newer)
        wants_rest = c->want & ZR_WANT_POISON;
    zr_unlock(&zr_check_lock);
    if (wants_rest)
        rests = zr_poison_rest();
    if (!rests)
        zr_warn("check: the driver cannot say when a device is at rest: freed memory is not poisoned");
    for (unsigned n = 0;; n++) {
        struct zr_checked *c;

        zr_lock(&zr_check_lock);
        c = zr_worker_halts() ? NULL : zr_check_freed.oldest;
        if (c && c->ticket <= until) {
            if (!rests)
                c->want &= (uint8_t)~ZR_WANT_POISON;
            move(c, &zr_check_busy, ZR_CHECKED_BUSY);
            __atomic_store_n(&c->use, ZR_USE_BEGINS, __ATOMIC_RELEASE);
        } else {
            c = NULL;
        }
        zr_unlock(&zr_check_lock);
        if (!c)
            return n > 0;
        process(c);
        futex_wake(&progress);
    }
}

static uint64_t quarantine_bytes(void) {
    return zr_config.check_quarantine.set ? zr_config.check_quarantine.bytes : (uint64_t)QUARANTINE_MIB << 20;
}

/* What must leave the quarantine next: what was asked to, or the oldest beyond its size. Under the lock. */
static struct zr_checked *next_to_leave(void) {
    for (struct zr_checked *c = zr_check_kept.oldest; c; c = c->newer)
        if (c->leaves)
            return c;
    return zr_check_kept.bytes > quarantine_bytes() || zr_check_kept.blocks > QUARANTINE_BLOCKS ? zr_check_kept.oldest
                                                                                                : NULL;
}

static bool shrink(void) {
    struct zr_checked *c;
    bool good;

    zr_lock(&zr_check_lock);
    c = next_to_leave();
    if (c)
        move(c, &zr_check_busy, ZR_CHECKED_BUSY);
    zr_unlock(&zr_check_lock);
    if (!c)
        return false;
    good = !c->clean || zr_look_at_freed(c);
    if (good && c->armed)
        good = zr_look_at_zone(c);
    zr_check_count(good ? ZR_CHECKED_VERIFIED : ZR_CHECKED_UNVERIFIED, 1);
    zr_worker_release(c);
    return true;
}

static bool look_next(void) {
    struct zr_checked *c;
    bool freed_before;

    zr_lock(&zr_check_lock);
    c = zr_next_to_look_at();
    freed_before = c && c->in == &zr_check_kept;
    if (c) {
        c->look = false;
        move(c, freed_before ? &zr_check_busy : &zr_check_live, freed_before ? ZR_CHECKED_BUSY : ZR_CHECKED_LIVE);
        __atomic_store_n(&c->use, ZR_USE_BEGINS, __ATOMIC_RELEASE);
    }
    zr_unlock(&zr_check_lock);
    if (!c)
        return false;
    if (freed_before && c->clean)
        zr_look_at_freed(c);
    if (c->armed)
        zr_look_at_zone(c);
    zr_lock(&zr_check_lock);
    if (use_ends(c) && freed_before)
        move(c, &zr_check_kept, ZR_CHECKED_KEPT);
    zr_unlock(&zr_check_lock);
    return true;
}

/* Not before the last of the context's blocks has gone: what was queued meanwhile comes first. */
static bool drop_next(void) {
    const void *context = NULL;
    bool any;

    zr_lock(&zr_check_lock);
    any = zr_check_drops.count > 0 && !zr_check_arming.blocks && !zr_check_freed.blocks && !next_to_leave();
    if (any)
        context = zr_check_drops.context[0];
    zr_unlock(&zr_check_lock);
    if (!any)
        return false;
    zr_poison_drop(context);
    zr_lock(&zr_check_lock);
    if (zr_check_drops.count && zr_check_drops.context[0] == context)
        memmove(zr_check_drops.context, zr_check_drops.context + 1,
                --zr_check_drops.count * sizeof *zr_check_drops.context);
    zr_unlock(&zr_check_lock);
    return true;
}

static void *work(void *unused) {
    (void)unused;
    zr_thread.inside = true; /* hooks pass on whatever this thread calls */
    while (!zr_worker_halts()) {
        uint32_t rung = __atomic_load_n(&bell, __ATOMIC_SEQ_CST);

        /* The bell was read first: what is queued from here on rings it again. */
        if (arm_next() || free_some() || shrink() || look_next() || drop_next())
            futex_wake(&progress);
        else if (state_now() == STOPPING)
            break;
        else
            futex_wait(&bell, rung, UINT64_MAX);
    }
    __atomic_store_n(&state, STOPPED, __ATOMIC_RELEASE);
    futex_wake(&progress);
    return NULL;
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
    zr_fork_check();
    if (!zr_worker_runs())
        return;
    zr_worker_drain(ZR_ACCOUNTS, NULL, EXIT_MS, true);
    __atomic_store_n(&halt, true, __ATOMIC_RELEASE);
    zr_worker_ring();
    zr_worker_await(is_stopped, NULL, (uint64_t)EXIT_MS * MS);
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

static bool is_started(void *unused) {
    (void)unused;
    return state_now() != STARTING;
}

bool zr_worker_start(void (*release_block)(const struct zr_block *b)) {
    static bool registered;
    int none = NO_WORKER;

    if (likely(zr_worker_runs()))
        return true;
    zr_fork_arm();
    if (!__atomic_compare_exchange_n(&state, &none, STARTING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        if (none == STARTING)
            zr_worker_await(is_started, NULL, zr_config.check_wait);
        return zr_worker_runs();
    }
    give_back = release_block;
    if (!registered)
        registered = atexit(at_exit) == 0;
    __atomic_store_n(&state, RUNNING, __ATOMIC_RELEASE);
    if (!create()) {
        __atomic_store_n(&state, NONE_POSSIBLE, __ATOMIC_RELEASE);
        zr_warn("check: no thread can be started: only wrong frees and leaks are found");
    }
    futex_wake(&progress);
    return zr_worker_runs();
}

void zr_worker_fork_child(void) {
    struct zr_checked_list none = {0};

    zr_check_lock = (struct zr_lock){0};
    zr_check_arming = zr_check_live = zr_check_freed = zr_check_kept = zr_check_busy = zr_check_gone = none;
    zr_check_drops.count = 0;
    impatience = 0;
    zr_check_hurry = 0;
    halt = false;
    __atomic_store_n(&state, NO_WORKER, __ATOMIC_RELEASE);
    zr_poison_fork_child();
}

/* --- what the program's calls ask for ----------------------------------------------------------------------------- */

static bool is_armed(void *arg) {
    const struct zr_checked *c = arg;

    return c->in != &zr_check_arming && __atomic_load_n(&c->use, __ATOMIC_ACQUIRE) == ZR_UNUSED;
}

/* The program may be using it from now on: a device must not touch what the processor does. */
static void disarm(struct zr_checked *c) {
    zr_lock(&zr_check_lock);
    if (c->in == &zr_check_arming)
        move(c, &zr_check_live, ZR_CHECKED_LIVE);
    zr_unlock(&zr_check_lock);
}

void zr_worker_born(struct zr_checked *c) {
    bool guarded = c->held > c->size && zr_worker_runs();

    zr_lock(&zr_check_lock);
    c->state = ZR_CHECKED_LIVE;
    add(guarded ? &zr_check_arming : &zr_check_live, c);
    zr_unlock(&zr_check_lock);
    if (guarded) {
        zr_worker_ring();
        if (!await_for_call(is_armed, c) && c->kind == ZR_KIND_SHARED)
            disarm(c);
    }
}

static bool is_handled(void *arg) {
    const struct zr_checked *c = arg;

    return c->state != ZR_CHECKED_QUEUED && c->state != ZR_CHECKED_BUSY;
}

static bool is_submitted(void *arg) {
    const struct zr_checked *c = arg;

    return __atomic_load_n(&c->use, __ATOMIC_ACQUIRE) != ZR_USE_SUBMITTING;
}

/* The caller frees the block itself. A command of ours may still be on its way: then the worker has the descriptor. */
static void take(struct zr_checked *c) {
    uint32_t use = ZR_USE_BEGINS;

    c->block = NULL;
    if (!__atomic_compare_exchange_n(&c->use, &use, ZR_USE_CANCELLED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
        use == ZR_UNUSED)
        move(c, &zr_check_gone, ZR_CHECKED_SPARE);
    else if (c->in)
        zr_list_leave(c);
}

void zr_worker_take(struct zr_checked *c) {
    zr_lock(&zr_check_lock);
    take(c);
    zr_unlock(&zr_check_lock);
}

/*
 * Whoever freed the block has waited, or does not wait. Under the lock: true: it stays with us. A free that blocks may
 * leave a command of ours to the driver, which waits for it; for any other the worker gives the block back.
 */
static bool settle(struct zr_checked *c, bool blocking) {
    bool at_rest = c->state == ZR_CHECKED_KEPT || (c->state == ZR_CHECKED_BUSY && c->want & ZR_WANT_POISON);
    bool ours = at_rest || (!blocking && (c->want & ZR_WANT_POISON || c->use != ZR_UNUSED)) ||
                (!blocking && c->state == ZR_CHECKED_BUSY);

    c->awaited = false;
    if (c->state == ZR_CHECKED_SPARE)
        return true; /* it was held back, verified, and has gone */
    if (c->state == ZR_CHECKED_DONE || !ours) {
        take(c);
        return false;
    }
    c->orphan = true;
    return true;
}

/* More waits for the worker than the quarantine may hold: it must not cost the program its memory. Under the lock. */
static bool is_crowded(const struct zr_checked *c) {
    return (zr_check_freed.bytes + c->held > quarantine_bytes() || zr_check_freed.blocks >= QUARANTINE_BLOCKS) &&
           __atomic_load_n(&c->use, __ATOMIC_ACQUIRE) == ZR_UNUSED;
}

bool zr_worker_free(struct zr_checked *c, bool blocking) {
    bool ours, passed;

    if (!c->want || !zr_worker_runs()) {
        zr_worker_take(c);
        return false;
    }
    zr_lock(&zr_check_lock);
    if (is_crowded(c)) {
        take(c);
        zr_unlock(&zr_check_lock);
        zr_check_count(ZR_CHECKED_PASSED_BUSY, 1);
        return false;
    }
    c->awaited = true;
    if (c->in == &zr_check_arming)
        c->armed = false; /* not begun */
    move(c, &zr_check_freed, ZR_CHECKED_QUEUED);
    c->ticket = ++tickets;
    zr_unlock(&zr_check_lock);
    zr_worker_ring();
    await_for_call(is_handled, c);
    if (blocking)
        zr_worker_await(is_submitted, c, (uint64_t)SUBMIT_MS * MS); /* the driver takes it: it does not wait */
    zr_lock(&zr_check_lock);
    passed = c->want & ZR_WANT_POISON;
    ours = settle(c, blocking);
    zr_unlock(&zr_check_lock);
    if (!ours && passed)
        zr_check_count(ZR_CHECKED_PASSED_BUSY, 1);
    return ours;
}
