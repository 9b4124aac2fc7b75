/*
 * Command lists, queues, fences, events and their pools, by handle: a hash table with chains, which
 * is read without a lock. Entries stay for ever, since drivers use the same few addresses again;
 * one that was destroyed is marked.
 */
#include "work/runner.h"

enum { BUCKETS = 1 << 14, OBJECTS_MOST = 1 << 18 };

enum class { CLASS_RUNNER, CLASS_SIGNAL, CLASS_POOL };

struct object {
    struct object *next;
    const void *handle;
    enum class class;
    bool gone;
};

/* An immediate list or a queue; a list that runs later on a queue has no runner. */
struct runner_object {
    struct object object;
    struct zr_runner *runner; /* NULL: none was ever needed */
    bool later;
    bool filled;     /* atomic: it runs later, and holds commands */
    uint16_t device; /* atomic */
};

/*
 * Of a submission that waited for events: what is done once it is. A submission is listed with all
 * before it on its runner, or alone.
 */
enum { DONE_MOST = 4, WAITS_MOST = 16 };
struct done {
    struct zr_runner *runner;
    uint64_t number;
    bool all;
};
struct done_before {
    struct zr_submission of; /* the submission that waited */
    uint64_t trust;          /* as it was when it began to wait */
    unsigned count;
    struct done at[DONE_MOST];
};

/* An event or a fence. */
struct signal {
    struct object object;
    struct zr_lock lock;
    uint64_t generation;      /* changes with everything that happens to it */
    struct zr_runner *runner; /* of the submission that signals it, or NULL, */
    uint64_t number;          /* and its number */
    uint32_t pending;         /* submissions in progress that will signal it */
    bool counter_based;       /* a new signal replaces the one before */
    bool used;                /* was signalled since it was made or reset */
    bool unknown;             /* by something that is not known, until it is reset */
    bool never;               /* proves nothing any more */
    bool waited;              /* submissions begin after it */
    struct done_before before;
};

struct pool {
    struct object object;
    bool shared, counter_based;
};

/*
 * Atomic: changes when an event that submissions wait for may be signalled by something else than
 * they were told. What was concluded from such waits before is not used then.
 */
static uint64_t trust = 1;
static struct object **buckets; /* atomic */
static struct zr_lock table_lock;
static unsigned objects; /* guarded by the lock */

static unsigned bucket_of(const void *handle) {
    return (unsigned)(((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15u >> 50);
}
_Static_assert(BUCKETS == 1 << (64 - 50), "the bits of the hash");

static struct object *find_object(const void *handle, enum class class) {
    struct object **table = __atomic_load_n(&buckets, __ATOMIC_ACQUIRE), *o;

    if (!table || !handle)
        return NULL;
    for (o = __atomic_load_n(&table[bucket_of(handle)], __ATOMIC_ACQUIRE); o; o = o->next)
        if (o->handle == handle && o->class == class)
            return o;
    return NULL;
}

static struct object *live_object(const void *handle, enum class class) {
    struct object *o = find_object(handle, class);

    return o && !__atomic_load_n(&o->gone, __ATOMIC_ACQUIRE) ? o : NULL;
}

/*
 * The entry of a handle, which may be that of an object before; NULL if there is no memory for it.
 */
static void *enter_object(const void *handle, enum class class, size_t size) {
    struct object *o = find_object(handle, class), **at;

    if (o || !handle)
        return o;
    zr_lock(&table_lock);
    if (!buckets)
        __atomic_store_n(&buckets, zr_pages(BUCKETS * sizeof *buckets), __ATOMIC_RELEASE);
    o = find_object(handle, class);
    if (!o && buckets && objects < OBJECTS_MOST) {
        o = zr_piece(size);
        if (o) {
            at = &buckets[bucket_of(handle)];
            *o = (struct object){.next = *at, .handle = handle, .class = class};
            __atomic_store_n(at, o, __ATOMIC_RELEASE);
            objects++;
        }
    }
    zr_unlock(&table_lock);
    if (!o)
        zr_work_lost("there was no memory for the books of %u lists, queues and events",
                     OBJECTS_MOST);
    return o;
}

static void mark_gone(struct object *o, bool gone) {
    __atomic_store_n(&o->gone, gone, __ATOMIC_RELEASE);
}

/* --- lists and queues ------------------------------------------------------------------------- */

static void runner_made(const void *handle, unsigned device, bool later, bool in_order,
                        bool synchronous) {
    struct runner_object *o = enter_object(handle, CLASS_RUNNER, sizeof *o);

    if (!o)
        return;
    o->later = later;
    __atomic_store_n(&o->filled, false, __ATOMIC_RELAXED);
    __atomic_store_n(&o->device, (uint16_t)device, __ATOMIC_RELAXED);
    if (o->runner)
        zr_runner_renew(o->runner, device, in_order, synchronous);
    else if (!later)
        o->runner = zr_runner_new(device, in_order, synchronous);
    mark_gone(&o->object, false);
}

void zr_work_list_made(const void *list, unsigned device, bool immediate, bool in_order,
                       bool synchronous) {
    if (zr_work_is_watched())
        runner_made(list, device, !immediate, in_order, synchronous);
}

/* Lists that a queue executes may overlap. */
void zr_work_queue_made(const void *queue, unsigned device, bool synchronous) {
    if (zr_work_is_watched())
        runner_made(queue, device, false, false, synchronous);
}

/*
 * The driver may give a pool's handle to one that is opened from another process, and that is not
 * seen.
 */
struct zr_submission zr_work_going(const void *handle) {
    struct runner_object *o = (struct runner_object *)live_object(handle, CLASS_RUNNER);
    struct object *pool = live_object(handle, CLASS_POOL);
    struct zr_submission last = {.runner = NULL};

    if (pool)
        mark_gone(pool, true);
    if (!o)
        return last;
    mark_gone(&o->object, true);
    if (o->runner && !o->later) {
        last.runner = o->runner;
        last.number = zr_work_waited(o->runner);
    }
    return last;
}

void zr_work_gone(const void *handle, const struct zr_submission *last, bool gone) {
    struct object *o = find_object(handle, CLASS_RUNNER);

    if (gone && last->runner)
        zr_work_prove(last->runner, last->number);
    if (!gone && o)
        mark_gone(o, false);
}

struct zr_runner *zr_work_runner(const void *handle, bool *later) {
    struct runner_object *o = (struct runner_object *)live_object(handle, CLASS_RUNNER);

    *later = o && o->later;
    return o && !o->later ? o->runner : NULL;
}

void zr_work_list_filled(const void *list, bool filled) {
    struct runner_object *o = (struct runner_object *)live_object(list, CLASS_RUNNER);

    if (o && o->later)
        __atomic_store_n(&o->filled, filled, __ATOMIC_RELAXED);
}

unsigned zr_work_lists_filled(void) {
    struct object **table = __atomic_load_n(&buckets, __ATOMIC_ACQUIRE);
    unsigned count = 0;

    for (unsigned i = 0; table && i < BUCKETS; i++)
        for (const struct object *o = __atomic_load_n(&table[i], __ATOMIC_ACQUIRE); o; o = o->next)
            if (o->class == CLASS_RUNNER && !__atomic_load_n(&o->gone, __ATOMIC_ACQUIRE))
                count +=
                    __atomic_load_n(&((const struct runner_object *)o)->filled, __ATOMIC_RELAXED);
    return count;
}

unsigned zr_work_device(const void *handle) {
    struct runner_object *o = (struct runner_object *)live_object(handle, CLASS_RUNNER);

    return o ? __atomic_load_n(&o->device, __ATOMIC_RELAXED) : UINT16_MAX;
}

/* --- fences and events ------------------------------------------------------------------------ */

void zr_work_pool_made(const void *handle, bool shared, bool counter_based) {
    struct pool *pool =
        zr_work_is_watched() ? enter_object(handle, CLASS_POOL, sizeof *pool) : NULL;

    if (!pool)
        return;
    pool->shared = shared;
    pool->counter_based = counter_based;
    mark_gone(&pool->object, false);
}

void zr_work_pool_shared(const void *handle) {
    struct pool *pool = (struct pool *)live_object(handle, CLASS_POOL);

    if (pool)
        pool->shared = true;
}

/* The caller holds the lock. Whether its last signal may still come. */
static bool is_outstanding(const struct signal *s) {
    return s->pending || (s->runner && !zr_runner_is_proven(s->runner, s->number));
}

/*
 * The caller holds the lock, and has not told the driver yet of what makes the signal doubtful. One
 * that has come is not doubtful any more.
 */
static void lose_trust(struct signal *s) {
    if (s->waited && is_outstanding(s))
        __atomic_fetch_add(&trust, 1, __ATOMIC_SEQ_CST);
    s->waited = false;
}

/* A signal that is still to come for what was there before would be taken for its own. */
static void signal_made(const void *handle, bool counter_based, bool used, bool never) {
    struct signal *s = enter_object(handle, CLASS_SIGNAL, sizeof *s);

    if (!s)
        return;
    zr_lock(&s->lock);
    never = never || is_outstanding(s);
    lose_trust(s);
    s->generation++;
    s->pending = 0;
    s->runner = NULL;
    s->counter_based = counter_based;
    s->used = used;
    s->unknown = false;
    s->never = never;
    zr_unlock(&s->lock);
    mark_gone(&s->object, false);
}

/* An event of a pool that is not known may be signalled by another process. */
void zr_work_event_made(const void *event, const void *handle, bool counter_based) {
    struct pool *pool = handle ? (struct pool *)live_object(handle, CLASS_POOL) : NULL;
    bool from_unknown = handle && !pool;

    if (zr_work_is_watched())
        signal_made(event, counter_based || (pool && pool->counter_based), false,
                    from_unknown || (pool && pool->shared));
}

void zr_work_fence_made(const void *fence, bool signalled) {
    if (zr_work_is_watched())
        signal_made(fence, false, signalled, false);
}

static void signal_gone(const void *handle) {
    struct signal *s = (struct signal *)live_object(handle, CLASS_SIGNAL);

    if (!s)
        return;
    mark_gone(&s->object, true);
    zr_lock(&s->lock);
    s->generation++;
    zr_unlock(&s->lock);
}

void zr_work_event_gone(const void *event) {
    signal_gone(event);
}

void zr_work_fence_gone(const void *fence) {
    signal_gone(fence);
}

void zr_work_signals_begin(const void *handle) {
    struct signal *s = (struct signal *)live_object(handle, CLASS_SIGNAL);

    if (!s)
        return;
    zr_lock(&s->lock);
    lose_trust(s);
    s->generation++;
    s->pending++;
    zr_unlock(&s->lock);
}

/* --- what lies before a submission that waits for events -------------------------------------- */

static void add_done(struct done_before *b, const struct done *d) {
    for (unsigned i = 0; i < b->count; i++) {
        struct done *at = &b->at[i];

        if (at->runner != d->runner)
            continue;
        if (at->all && d->number <= at->number)
            return;
        if (d->all && (at->all || at->number <= d->number)) {
            *at = *d;
            return;
        }
    }
    if (b->count < DONE_MOST)
        b->at[b->count++] = *d;
}

/* Whether all that a runner was given before this submission is done by then. */
static bool is_all_before(const struct done_before *b, struct zr_runner *runner, uint64_t number) {
    if (runner->in_order || zr_runner_has_proven(runner, number - 1))
        return true;
    for (unsigned i = 0; i < b->count; i++)
        if (b->at[i].runner == runner && b->at[i].all && b->at[i].number + 1 >= number)
            return true;
    return false;
}

/* The caller holds the lock. Whether a wait for it ends by the signal that is known. */
static bool is_certain(const struct signal *s) {
    return !s->unknown && !s->never && !s->pending && s->runner;
}

static bool is_before_of(const struct signal *s) {
    return s->before.of.runner == s->runner && s->before.of.number == s->number &&
           s->before.trust == __atomic_load_n(&trust, __ATOMIC_SEQ_CST);
}

static void add_awaited(struct done_before *b, const void *handle) {
    struct signal *s = (struct signal *)live_object(handle, CLASS_SIGNAL);
    struct done own;

    if (!s)
        return;
    zr_lock(&s->lock);
    if (is_certain(s)) {
        s->waited = true;
        for (unsigned i = 0; is_before_of(s) && i < s->before.count; i++)
            add_done(b, &s->before.at[i]);
        own = (struct done){.runner = s->runner, .number = s->number};
        own.all = is_all_before(b, own.runner, own.number);
        add_done(b, &own);
    }
    zr_unlock(&s->lock);
}

void zr_work_signals_after(const void *handle, const struct zr_submission *submission,
                           uint32_t count, const void *const *waits) {
    struct signal *s = (struct signal *)live_object(handle, CLASS_SIGNAL);
    struct done_before b = {.of = *submission, .trust = __atomic_load_n(&trust, __ATOMIC_SEQ_CST)};
    struct done own = {.runner = submission->runner, .number = submission->number};

    if (!s || !submission->runner || !waits)
        return;
    for (uint32_t i = 0; i < count && i < WAITS_MOST; i++)
        add_awaited(&b, waits[i]);
    own.all = is_all_before(&b, own.runner, own.number);
    if (own.all)
        add_done(&b, &own);
    zr_lock(&s->lock);
    s->before = b;
    zr_unlock(&s->lock);
}

/*
 * Without a reset the event may have been signalled before, and a wait for it would prove nothing.
 * A counter is replaced by each submission that signals it.
 */
void zr_work_signals_end(const void *handle, const struct zr_submission *submission, bool good) {
    struct signal *s = (struct signal *)live_object(handle, CLASS_SIGNAL);

    if (!s)
        return;
    zr_lock(&s->lock);
    s->generation++;
    s->pending -= s->pending != 0;
    if (submission->runner) {
        if (s->used && !s->counter_based) {
            s->unknown = true;
            s->never = s->never || is_outstanding(s);
        }
        if (s->counter_based)
            s->unknown = false;
        if (!good)
            s->unknown = true;
        s->used = true;
        s->runner = submission->runner;
        s->number = submission->number;
    }
    zr_unlock(&s->lock);
}

void zr_work_signal_unknown(const void *handle, bool ever) {
    struct signal *s = (struct signal *)live_object(handle, CLASS_SIGNAL);

    if (!s)
        return;
    zr_lock(&s->lock);
    lose_trust(s);
    s->generation++;
    s->used = true;
    s->unknown = true;
    s->never = s->never || ever;
    zr_unlock(&s->lock);
}

/* A signal that is still to come would be taken for the next one. */
void zr_work_signal_reset(const void *handle) {
    struct signal *s = (struct signal *)live_object(handle, CLASS_SIGNAL);

    if (!s)
        return;
    zr_lock(&s->lock);
    lose_trust(s);
    s->generation++;
    s->never = s->never || is_outstanding(s);
    s->runner = NULL;
    s->used = false;
    s->unknown = false;
    zr_unlock(&s->lock);
}

struct zr_awaited zr_work_await(const void *handle) {
    struct signal *s = (struct signal *)live_object(handle, CLASS_SIGNAL);
    struct zr_awaited a = {.object = s};

    if (!s)
        return a;
    zr_lock(&s->lock);
    if (is_certain(s)) {
        a.runner = s->runner;
        a.number = s->number;
    }
    a.generation = s->generation;
    zr_unlock(&s->lock);
    return a;
}

/* If anything has happened to it meanwhile, it is not known which signal has ended the wait. */
void zr_work_awaited(const struct zr_awaited *a) {
    struct signal *s = a->object;
    struct done_before before = {.count = 0};
    bool same;

    if (!s || !a->runner)
        return;
    zr_lock(&s->lock);
    same = s->generation == a->generation;
    if (same && s->before.count && is_before_of(s))
        before = s->before;
    zr_unlock(&s->lock);
    if (!same)
        return;
    for (unsigned i = 0; i < before.count; i++) {
        if (before.at[i].all)
            zr_work_prove(before.at[i].runner, before.at[i].number);
        else
            zr_work_prove_one(before.at[i].runner, before.at[i].number);
    }
    zr_work_prove_one(a->runner, a->number);
}

void zr_work_handles_fork_child(void) {
    buckets = NULL;
    objects = 0;
}
