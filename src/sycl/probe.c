/*
 * What the runtime asks of Level Zero for a device allocation: through which hook, on which native
 * handles, on which devices it then wants the block resident, and how it frees it. Nothing of this
 * is assumed: the runtime is let make one block of its own for each pair of objects, and is
 * watched. So the route alone changes nothing else, whatever adapter, version or environment
 * variable decides about residency.
 *
 * A habit belongs to SYCL objects. Their address alone may be another object by now, so a weak
 * reference to each object's control block is kept: while it is, no other object can have that
 * address.
 */
#include "sycl/route.h"

#include <string.h>

enum {
    HABITS = 256, /* pairs of objects that are known at one time */
    LEARNT = 64,  /* different habits: pairs of native handles */
    LAST_SHARED_DEVICE =
        8,            /* up to libsycl.so.8 a sycl::device shares its implementation by counting */
    FIRST_PROBE = 16, /* MiB: over any pool's usual limit, so that it reaches Level Zero */
    LAST_PROBE = 256
};

/* libstdc++'s control block of a shared_ptr. */
struct control {
    void (**table)(struct control *);
    int strong, weak;
};

/* What a request is known by. */
struct identity {
    const void *first,
        *second; /* control block of queue or context; implementation of the device */
    struct control *held[2];
};

struct pair {
    struct identity id;
    const struct zr_habit *habit; /* NULL: leave it to the runtime */
    struct zr_pool_way pool;      /* under route:pool, by which of our pools the runtime serves them */
    const struct zr_runtime *runtime;
    struct zr_shared object[2]; /* the SYCL objects themselves, to ask the runtime once more */
    bool queue;              /* one object, a queue; otherwise a context and a device */
};

static struct pair pairs[HABITS];
static struct zr_habit learnt[LEARNT];
static unsigned learnt_count;
static struct zr_lock lock;
uint32_t zr_habit_epoch = 1; /* atomic: rises when what was learnt no longer holds */

/* What this thread used last, and what it is watching. */
static __thread struct {
    const void *first, *second;
    const struct zr_habit *habit;
    uint32_t epoch;
} last;
static __thread struct {
    struct zr_habit habit;
    size_t size;
    bool allocated, freed;
} seen;

/* --- objects ---------------------------------------------------------------------------------- */

static void hold(struct control *c)
{
    __atomic_fetch_add(&c->weak, 1, __ATOMIC_RELAXED);
}

/* As weak_ptr's destructor does: the last one out has the control block destroyed, by its fourth virtual. */
static void drop(struct control *c)
{
    enum { DESTROY = 3 };

    if (__atomic_fetch_sub(&c->weak, 1, __ATOMIC_ACQ_REL) == 1)
        c->table[DESTROY](c);
}

/* As weak_ptr's lock() does: false when the object is gone already. */
static bool keep_alive(struct control *c)
{
    int strong = __atomic_load_n(&c->strong, __ATOMIC_RELAXED);

    while (strong != 0)
        if (__atomic_compare_exchange_n(&c->strong, &strong, strong + 1, true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return true;
    return false;
}

/* As shared_ptr's destructor does: the object goes by the third virtual. */
static void let_go(struct control *c)
{
    enum { DISPOSE = 2 };

    if (__atomic_fetch_sub(&c->strong, 1, __ATOMIC_ACQ_REL) == 1) {
        c->table[DISPOSE](c);
        drop(c);
    }
}

static bool dead(const struct pair *p)
{
    for (int i = 0; i < 2; i++)
        if (p->id.held[i] && __atomic_load_n(&p->id.held[i]->strong, __ATOMIC_ACQUIRE) == 0)
            return true;
    return false;
}

static inline bool same(const struct identity *a, const struct identity *b)
{
    return a->first == b->first && a->second == b->second;
}

static inline void identify(const struct zr_runtime *runtime, const struct zr_request *r,
                            struct identity *id)
{
    *id = (struct identity){0};
    if (r->queue) {
        id->first = id->held[0] = zr_shared(r->queue)->control;
        return;
    }
    id->first = id->held[0] = zr_shared(r->context)->control;
    id->second = zr_shared(r->device)->implementation;
    if (runtime->soname <= LAST_SHARED_DEVICE)
        id->held[1] = zr_shared(r->device)->control;
}

/* A newer device is one pointer: there is nothing behind it. */
static void note_objects(const struct zr_runtime *runtime, const struct zr_request *r, struct pair *p)
{
    p->runtime = runtime;
    p->queue = r->queue != NULL;
    p->object[0] = *zr_shared(r->queue ? r->queue : r->context);
    if (!r->queue)
        p->object[1] = (struct zr_shared){zr_shared(r->device)->implementation, p->id.held[1]};
}

/* --- watching --------------------------------------------------------------------------------- */

/* Smaller ones are the runtime's own affairs. */
void zr_habit_saw_alloc(uint32_t hook, ze_context_handle_t context,
                        const ze_device_mem_alloc_desc_t *desc, size_t size,
                        ze_device_handle_t device)
{
    if (seen.allocated || size < seen.size)
        return;
    seen.allocated = true;
    seen.habit.hook = hook;
    seen.habit.context = context;
    seen.habit.device = device;
    if (desc) {
        seen.habit.ordinal = desc->ordinal;
        seen.habit.flags = desc->flags;
    }
}

/* The same call may pass a second hook of ours further down. */
void zr_habit_saw_resident(uint32_t hook, ze_device_handle_t device, size_t size)
{
    if (seen.allocated && hook == seen.habit.hook && !seen.freed && size >= seen.size &&
        seen.habit.residents < ZR_HABIT_DEVICES)
        seen.habit.resident[seen.habit.residents++] = device;
}

void zr_habit_saw_free(bool ext, uint32_t policy)
{
    if (!seen.allocated || seen.freed)
        return;
    seen.freed = true;
    seen.habit.frees_ext = ext;
    seen.habit.free_policy = policy;
    seen.habit.waits = ext && policy != 0;
}

static void stop_watching(const bool *watching)
{
    if (*watching)
        zr_thread.watch = zr_thread.inside = 0;
}

/* Ours, not the program's: uncounted, and never from what we keep. The guard goes even when something throws. */
static bool watch(bool (*act)(void *arg), void *arg, size_t size)
{
    bool watching __attribute__((cleanup(stop_watching))) = !zr_thread.watch;

    /* Within another watch: what is seen now belongs to that one. */
    if (!watching)
        return false;
    memset(&seen, 0, sizeof seen);
    seen.size = size;
    zr_thread.watch = zr_thread.inside = 1;
    return act(arg) && seen.allocated && seen.freed;
}

/* Devices by number, once the watching is over. */
static void number_devices(void)
{
    struct zr_call call = {.hook = seen.habit.hook};

    seen.habit.number = (uint16_t)zr_device_number(&call, seen.habit.device);
    for (uint32_t i = 0; i < seen.habit.residents; i++) {
        unsigned n = zr_device_number(&call, seen.habit.resident[i]);

        if (n < 64)
            seen.habit.resident_on |= UINT64_C(1) << n;
    }
}

bool zr_habit_watch(bool (*act)(void *arg), void *arg, size_t size, struct zr_habit *out)
{
    if (!watch(act, arg, size))
        return false;
    number_devices();
    *out = seen.habit;
    return true;
}

struct native {
    const struct zr_runtime *runtime;
    const struct zr_request *request;
    zr_probe probe;
    size_t size;
};

static bool ask_runtime(void *arg)
{
    const struct native *n = arg;

    return n->probe(n->runtime, n->request, n->size);
}

static const struct zr_habit *remember(void)
{
    number_devices();
    for (unsigned i = 0; i < learnt_count; i++)
        if (memcmp(&learnt[i], &seen.habit, sizeof seen.habit) == 0)
            return &learnt[i];
    if (learnt_count == LEARNT)
        return NULL;
    learnt[learnt_count] = seen.habit;
    __atomic_store_n(&learnt_count, learnt_count + 1, __ATOMIC_RELEASE);
    return &learnt[learnt_count - 1];
}

/* --- the table -------------------------------------------------------------------------------- */

static unsigned place_of(const struct identity *id)
{
    uintptr_t h = (uintptr_t)id->first * 31 + (uintptr_t)id->second;

    return (unsigned)(h >> 4 ^ h >> 13) % HABITS;
}

/* Under the lock: the pair, a free place for it, or one whose object is gone. NULL when all are taken. */
static struct pair *place(const struct identity *want)
{
    struct pair *spare = NULL;

    for (unsigned i = 0, at = place_of(want); i < HABITS; i++, at = (at + 1) % HABITS) {
        struct pair *p = &pairs[at];

        if (same(&p->id, want))
            return p;
        if (!spare && (!p->id.first || dead(p)))
            spare = p;
        if (!p->id.first)
            break;
    }
    return spare;
}

static void release(struct pair *p)
{
    for (int i = 0; i < 2; i++)
        if (p->id.held[i])
            drop(p->id.held[i]);
    memset(p, 0, sizeof *p);
    /* What a thread used last is known by these addresses alone. */
    __atomic_fetch_add(&zr_habit_epoch, 1, __ATOMIC_RELEASE);
}

bool zr_is_level_zero(const struct zr_runtime *runtime, const struct zr_request *r)
{
    return (r->queue ? runtime->queue_backend(r->queue) : runtime->context_backend(r->context)) ==
           ZR_SYCL_LEVEL_ZERO;
}

/* True: *habit is what is known. False: the caller must ask the runtime; the lock is not held meanwhile. */
static bool known(const struct identity *want, const struct zr_habit **habit)
{
    struct pair *p;
    bool found;

    zr_lock(&lock);
    p = place(want);
    found = !p || same(&p->id, want);
    if (found)
        *habit = p ? p->habit : NULL; /* no place for it: not asked each time, but left to the runtime */
    zr_unlock(&lock);
    return found;
}

/* Under the lock: a place for these objects that was not theirs before; NULL: all are taken, or they have one. */
static struct pair *take_place(const struct zr_runtime *runtime, const struct zr_request *request,
                               const struct identity *want)
{
    struct pair *p = place(want);

    if (!p || same(&p->id, want))
        return NULL;
    if (p->id.first)
        release(p);
    p->id = *want;
    note_objects(runtime, request, p);
    for (int i = 0; i < 2; i++)
        if (p->id.held[i])
            hold(p->id.held[i]);
    return p;
}

static const struct zr_habit *keep(const struct zr_runtime *runtime, const struct zr_request *request,
                                   const struct identity *want, bool learn)
{
    const struct zr_habit *habit;
    bool full;
    struct pair *p;

    zr_lock(&lock);
    habit = learn ? remember() : NULL;
    p = take_place(runtime, request, want);
    if (p)
        p->habit = habit;
    full = !p && !place(want);
    zr_unlock(&lock);
    return full ? NULL : habit;
}

static bool watch_runtime(const struct zr_runtime *runtime, const struct zr_request *request, zr_probe probe)
{
    bool watched = false;

    for (size_t mib = FIRST_PROBE; !watched && mib <= LAST_PROBE; mib *= 4) {
        struct native native = {runtime, request, probe, mib << 20};

        watched = watch(ask_runtime, &native, native.size);
    }
    return watched;
}

static __attribute__((noinline, cold)) const struct zr_habit *
learn(const struct zr_runtime *runtime, const struct zr_request *request, const struct identity *want,
      zr_probe probe)
{
    const struct zr_habit *habit;

    if (!want->first || !want->held[0])
        return NULL;
    if (known(want, &habit))
        return habit;
    if (!zr_is_level_zero(runtime, request)) {
        zr_count(ZR_F_PASSED_BACKEND, 1);
        return keep(runtime, request, want, false);
    }
    /* Not even one block to be had now: the card is full, which says nothing of the next time. */
    return watch_runtime(runtime, request, probe) ? keep(runtime, request, want, true) : NULL;
}

const struct zr_habit *zr_habit_of(const struct zr_runtime *runtime,
                                   const struct zr_request *request, zr_probe probe)
{
    struct identity want;
    uint32_t now = __atomic_load_n(&zr_habit_epoch, __ATOMIC_ACQUIRE);

    identify(runtime, request, &want);
    if (likely(last.first == want.first && last.second == want.second && last.epoch == now))
        return last.habit;
    const struct zr_habit *habit = learn(runtime, request, &want, probe);

    if (habit) {
        last.first = want.first;
        last.second = want.second;
        last.habit = habit;
        last.epoch = now;
    }
    return habit;
}

const struct zr_habit *zr_habit_in(ze_context_handle_t context, unsigned number)
{
    unsigned n = __atomic_load_n(&learnt_count, __ATOMIC_ACQUIRE);

    while (n-- > 0)
        if (learnt[n].context == context && learnt[n].number == number)
            return &learnt[n];
    return NULL;
}

/* The objects of a pair, kept alive for the moment; false: none there, or gone. */
static bool borrow(unsigned at, struct pair *out)
{
    bool mine;

    zr_lock(&lock);
    *out = pairs[at];
    mine = out->id.first && out->habit && keep_alive(out->id.held[0]);
    if (mine && out->id.held[1] && !keep_alive(out->id.held[1])) {
        zr_unlock(&lock);
        let_go(out->id.held[0]);
        return false;
    }
    zr_unlock(&lock);
    return mine;
}

static void give_back(const struct pair *p)
{
    for (int i = 0; i < 2; i++)
        if (p->id.held[i])
            let_go(p->id.held[i]);
}

/* What the runtime does for this pair now; what could not be watched is learnt at the next request. */
static const struct zr_habit *renew(unsigned at, const struct pair *was, zr_probe probe)
{
    struct zr_request request = {.queue = was->queue ? &was->object[0] : NULL,
                                 .context = was->queue ? NULL : &was->object[0],
                                 .device = was->queue ? NULL : &was->object[1]};
    bool watched = watch_runtime(was->runtime, &request, probe);
    const struct zr_habit *habit;

    zr_lock(&lock);
    habit = watched ? remember() : NULL;
    if (same(&pairs[at].id, &was->id)) {
        if (habit)
            pairs[at].habit = habit;
        else
            release(&pairs[at]);
    }
    __atomic_fetch_add(&zr_habit_epoch, 1, __ATOMIC_RELEASE);
    zr_unlock(&lock);
    return habit;
}

void zr_habit_renew(zr_probe probe, const void *caller)
{
    struct {
        const struct zr_habit *was, *is;
    } done[LEARNT] = {{NULL, NULL}}; /* pairs share habits: what lives follows once */
    unsigned count = 0;

    for (unsigned i = 0; i < HABITS; i++) {
        const struct zr_habit *is;
        unsigned n = 0;
        struct pair was;

        if (!borrow(i, &was))
            continue;
        is = renew(i, &was, probe);
        while (n < count && (done[n].was != was.habit || done[n].is != is))
            n++;
        if (is && is != was.habit && n == count && count < LEARNT) {
            done[count].was = was.habit;
            done[count++].is = is;
            zr_route_residency_changed(was.habit, is, caller);
        }
        give_back(&was);
    }
}

/* --- which of our pools the runtime serves them by ---------------------------------------------- */

bool zr_habit_pool(const struct zr_runtime *runtime, const struct zr_request *request, struct zr_pool_way *way)
{
    struct identity want;
    struct pair *p;
    bool found;

    identify(runtime, request, &want);
    if (!want.first)
        return false;
    zr_lock(&lock);
    p = place(&want);
    found = !p || same(&p->id, &want);
    *way = p && found ? p->pool : (struct zr_pool_way){0};
    zr_unlock(&lock);
    return found;
}

void zr_habit_keep_pool(const struct zr_runtime *runtime, const struct zr_request *request,
                        const struct zr_pool_way *way)
{
    struct identity want;
    struct pair *p;

    identify(runtime, request, &want);
    zr_lock(&lock);
    p = want.first ? take_place(runtime, request, &want) : NULL;
    if (p)
        p->pool = *way;
    zr_unlock(&lock);
}

bool zr_habit_is_pooled(const void *object)
{
    const void *first = zr_shared(object)->control;
    bool found = false;

    zr_lock(&lock);
    for (unsigned i = 0; i < HABITS && !found; i++)
        found = first && pairs[i].id.first == first && pairs[i].pool.pool;
    zr_unlock(&lock);
    return found;
}

/* The child's SYCL objects are copies of the parent's; what was learnt is as good as before. */
void zr_fork_child_habit(void)
{
    lock = (struct zr_lock){0};
    __atomic_fetch_add(&zr_habit_epoch, 1, __ATOMIC_RELEASE);
}
