/*
 * What the runtime asks of Level Zero for a device allocation: through which hook, on which native handles, on which
 * devices it then wants the block resident, and how it frees it. Nothing of this is assumed: the runtime is let make
 * one block of its own for each pair of objects, and is watched. So the route alone changes nothing else, whatever
 * adapter, version or environment variable decides about residency.
 *
 * A practice belongs to SYCL objects. Their address alone may be another object by now, so a weak reference to each
 * object's control block is kept: while it is, no other object can have that address.
 */
#include "sycl/sycl.h"

#include <string.h>

enum {
    PAIRS = 256,      /* pairs of objects that are known at one time */
    PRACTICES = 1024, /* different ones: pairs of native handles */
    LAST_SHARED = 8,  /* up to libsycl.so.8 a sycl::device shares its implementation by counting */
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
    const void *first, *second; /* control block of queue or context; implementation of the device */
    struct control *held[2];
};

struct pair {
    struct identity id;
    const struct zr_practice *practice; /* NULL: leave it to the runtime */
    const struct zr_runtime *runtime;
    struct zr_shared object[2]; /* the SYCL objects themselves, to ask the runtime once more */
    bool queue;                 /* one object, a queue; otherwise a context and a device */
};

static struct pair pairs[PAIRS];
static struct zr_practice practices[PRACTICES];
static unsigned practice_count; /* atomic */
static struct zr_lock lock;
static uint32_t epoch = 1; /* atomic: rises when what was found no longer holds */

/* --- objects ------------------------------------------------------------------------------------------------------ */

static void hold(struct control *c) {
    __atomic_fetch_add(&c->weak, 1, __ATOMIC_RELAXED);
}

/* As weak_ptr's destructor does: the last one out has the control block destroyed, by its fourth virtual. */
static void drop(struct control *c) {
    enum { DESTROY = 3 };

    if (__atomic_fetch_sub(&c->weak, 1, __ATOMIC_ACQ_REL) == 1)
        c->table[DESTROY](c);
}

/* As weak_ptr's lock() does: false when the object is gone already. */
static bool keep_alive(struct control *c) {
    int strong = __atomic_load_n(&c->strong, __ATOMIC_RELAXED);

    while (strong != 0)
        if (__atomic_compare_exchange_n(&c->strong, &strong, strong + 1, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            return true;
    return false;
}

/* As shared_ptr's destructor does: the object goes by the third virtual. */
static void let_go(struct control *c) {
    enum { DISPOSE = 2 };

    if (__atomic_fetch_sub(&c->strong, 1, __ATOMIC_ACQ_REL) == 1) {
        c->table[DISPOSE](c);
        drop(c);
    }
}

static bool dead(const struct pair *p) {
    for (int i = 0; i < 2; i++)
        if (p->id.held[i] && __atomic_load_n(&p->id.held[i]->strong, __ATOMIC_ACQUIRE) == 0)
            return true;
    return false;
}

static inline bool same(const struct identity *a, const struct identity *b) {
    return a->first == b->first && a->second == b->second;
}

static inline void identify(const struct zr_runtime *runtime, const struct zr_request *r, struct identity *id) {
    *id = (struct identity){0};
    if (r->queue) {
        id->first = id->held[0] = zr_shared(r->queue)->control;
        return;
    }
    id->first = id->held[0] = zr_shared(r->context)->control;
    id->second = zr_shared(r->device)->implementation;
    if (runtime->soname <= LAST_SHARED)
        id->held[1] = zr_shared(r->device)->control;
}

/* A newer device is one pointer: there is nothing behind it. */
static void note_objects(const struct zr_runtime *runtime, const struct zr_request *r, struct pair *p) {
    p->runtime = runtime;
    p->queue = r->queue != NULL;
    p->object[0] = *zr_shared(r->queue ? r->queue : r->context);
    if (!r->queue)
        p->object[1] = (struct zr_shared){zr_shared(r->device)->implementation, p->id.held[1]};
}

/* --- watching ----------------------------------------------------------------------------------------------------- */

/* Ours, not the program's: uncounted, and never from the cache. Within another watch that one goes on. */
struct zr_watching zr_watch_start(struct zr_watch *w) {
    struct zr_watching was = {.own = !zr_thread.watch, .inside = zr_thread.inside};

    if (was.own) {
        zr_thread.watch = w;
        zr_thread.inside = true;
    }
    return was;
}

/* A cleanup: watching ends even when something is thrown. */
void zr_watch_stop(const struct zr_watching *was) {
    if (was->own) {
        zr_thread.watch = NULL;
        zr_thread.inside = was->inside;
    }
}

bool zr_probe(bool (*act)(void *arg), void *arg, size_t size, struct zr_practice *out) {
    struct zr_call call = {.hook = ZR_HOOK_PLT};

    memset(out, 0, sizeof *out);
    out->seen.size = size;
    {
        struct zr_watching was __attribute__((cleanup(zr_watch_stop))) = zr_watch_start(&out->seen);

        if (!was.own || !act(arg) || !out->seen.allocated || !out->seen.freed)
            return false;
    }
    call.hook = out->seen.hook;
    out->number = (uint16_t)zr_device_number(&call, out->seen.device);
    for (uint32_t i = 0; i < out->seen.residents; i++) {
        unsigned n = zr_device_number(&call, out->seen.resident[i]);

        if (n < 64)
            out->residents |= UINT64_C(1) << n;
    }
    out->seen.size = out->seen.made = 0; /* the same practice, however large the block was */
    return true;
}

struct native {
    const struct zr_runtime *runtime;
    const struct zr_request *objects;
    size_t size;
};

static bool make_and_free(void *arg) {
    const struct native *n = arg;
    void *p = zr_native_alloc(n->runtime, n->objects, n->size);

    if (p)
        zr_native_free(n->runtime, n->objects, p);
    return p != NULL;
}

static bool probe_runtime(const struct zr_runtime *runtime, const struct zr_request *objects, struct zr_practice *out) {
    bool seen = false;

    for (size_t mib = FIRST_PROBE; !seen && mib <= LAST_PROBE; mib *= 4) {
        struct native native = {runtime, objects, mib << 20};

        seen = zr_probe(make_and_free, &native, native.size, out);
    }
    return seen;
}

/* --- the table of objects ----------------------------------------------------------------------------------------- */

/* Under the lock. Equal practices are one; NULL: all places are taken. */
static const struct zr_practice *remember(const struct zr_practice *p) {
    for (unsigned i = 0; i < practice_count; i++)
        if (memcmp(&practices[i], p, sizeof *p) == 0)
            return &practices[i];
    if (practice_count == PRACTICES)
        return NULL;
    practices[practice_count] = *p;
    __atomic_store_n(&practice_count, practice_count + 1, __ATOMIC_RELEASE);
    return &practices[practice_count - 1];
}

static unsigned place_of(const struct identity *id) {
    uintptr_t h = (uintptr_t)id->first * 31 + (uintptr_t)id->second;

    return (unsigned)(h >> 4 ^ h >> 13) % PAIRS;
}

/* Under the lock: the pair, a free place for it, or one whose object is gone. NULL when all are taken. */
static struct pair *place(const struct identity *want) {
    struct pair *spare = NULL;

    for (unsigned i = 0, at = place_of(want); i < PAIRS; i++, at = (at + 1) % PAIRS) {
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

/* Under the lock. The references are dropped by the caller, without it: a destructor of the runtime's may run. */
static void release(struct pair *p, struct control *dropped[2]) {
    for (int i = 0; i < 2; i++)
        dropped[i] = p->id.held[i];
    memset(p, 0, sizeof *p);
    /* What a thread used last is known by these addresses alone. */
    __atomic_fetch_add(&epoch, 1, __ATOMIC_RELEASE);
}

static void drop_all(struct control *dropped[2]) {
    for (int i = 0; i < 2; i++)
        if (dropped[i])
            drop(dropped[i]);
}

bool zr_is_level_zero(const struct zr_runtime *runtime, const struct zr_request *r) {
    return (r->queue ? runtime->queue_backend(r->queue) : runtime->context_backend(r->context)) == ZR_SYCL_LEVEL_ZERO;
}

/* True: *practice is what is known. False: the caller must ask the runtime. */
static bool known(const struct identity *want, const struct zr_practice **practice) {
    struct pair *p;
    bool found;

    zr_lock(&lock);
    p = place(want);
    found = !p || same(&p->id, want);
    if (found)
        *practice = p ? p->practice : NULL; /* no place for it: not asked each time, but left to the runtime */
    zr_unlock(&lock);
    return found;
}

/* `found` NULL: these objects are left to the runtime. */
static const struct zr_practice *keep(const struct zr_runtime *runtime, const struct zr_request *request,
                                      const struct identity *want, const struct zr_practice *found) {
    struct control *dropped[2] = {NULL, NULL};
    const struct zr_practice *practice;
    struct pair *p;

    zr_lock(&lock);
    practice = found ? remember(found) : NULL;
    p = place(want);
    if (p && !same(&p->id, want)) {
        if (p->id.first)
            release(p, dropped);
        p->id = *want;
        note_objects(runtime, request, p);
        p->practice = practice;
        for (int i = 0; i < 2; i++)
            if (p->id.held[i])
                hold(p->id.held[i]);
    }
    zr_unlock(&lock);
    drop_all(dropped);
    return p ? practice : NULL;
}

static ZR_COLD const struct zr_practice *find_practice(const struct zr_runtime *runtime,
                                                       const struct zr_request *request, const struct identity *want) {
    const struct zr_practice *practice;
    struct zr_practice found;

    if (!want->first || !want->held[0])
        return NULL;
    if (known(want, &practice))
        return practice;
    if (!zr_is_level_zero(runtime, request)) {
        zr_count(ZR_F_PASSED_BACKEND, 1);
        return keep(runtime, request, want, NULL);
    }
    /* Not even one block to be had now: the card is full, which says nothing of the next time. */
    return probe_runtime(runtime, request, &found) ? keep(runtime, request, want, &found) : NULL;
}

const struct zr_practice *zr_practice_of(const struct zr_runtime *runtime, const struct zr_request *request) {
    uint32_t now = __atomic_load_n(&epoch, __ATOMIC_ACQUIRE);
    const struct zr_practice *practice;
    struct identity want;

    identify(runtime, request, &want);
    if (likely(zr_thread.sycl.first == want.first && zr_thread.sycl.second == want.second &&
               zr_thread.sycl.epoch == now))
        return zr_thread.sycl.practice;
    practice = find_practice(runtime, request, &want);
    if (practice) {
        zr_thread.sycl.first = want.first;
        zr_thread.sycl.second = want.second;
        zr_thread.sycl.practice = practice;
        zr_thread.sycl.epoch = now;
    }
    return practice;
}

/* --- the objects once more ---------------------------------------------------------------------------------------- */

/* The objects of a pair, kept alive for the moment; false: none there, or gone. */
static bool borrow(unsigned at, struct pair *out) {
    bool alive;

    zr_lock(&lock);
    *out = pairs[at];
    alive = out->id.first && out->practice && keep_alive(out->id.held[0]);
    if (alive && out->id.held[1] && !keep_alive(out->id.held[1])) {
        zr_unlock(&lock);
        let_go(out->id.held[0]);
        return false;
    }
    zr_unlock(&lock);
    return alive;
}

static void give_back(const struct pair *p) {
    for (int i = 0; i < 2; i++)
        if (p->id.held[i])
            let_go(p->id.held[i]);
}

static struct zr_request objects_of(const struct pair *p) {
    return (struct zr_request){.queue = p->queue ? &p->object[0] : NULL,
                               .context = p->queue ? NULL : &p->object[0],
                               .device = p->queue ? NULL : &p->object[1]};
}

void zr_practice_use(const void *context, unsigned number, zr_use use, void *arg) {
    for (unsigned i = 0; i < PAIRS; i++) {
        struct pair p;

        if (!borrow(i, &p))
            continue;
        if (p.practice->seen.context == context && p.practice->number == number) {
            struct zr_request objects = objects_of(&p);

            use(p.runtime, &objects, arg);
            give_back(&p);
            return;
        }
        give_back(&p);
    }
}

/* What the runtime does for this pair now; what could not be watched is found at the next request. */
static const struct zr_practice *renew(unsigned at, const struct pair *was) {
    struct zr_request objects = objects_of(was);
    struct control *dropped[2] = {NULL, NULL};
    const struct zr_practice *practice;
    struct zr_practice found;
    bool seen = probe_runtime(was->runtime, &objects, &found);

    zr_lock(&lock);
    practice = seen ? remember(&found) : NULL;
    if (same(&pairs[at].id, &was->id)) {
        if (practice)
            pairs[at].practice = practice;
        else
            release(&pairs[at], dropped);
    }
    __atomic_fetch_add(&epoch, 1, __ATOMIC_RELEASE);
    zr_unlock(&lock);
    drop_all(dropped);
    return practice;
}

void zr_practice_renew(const void *caller) {
    struct {
        const struct zr_practice *was, *is;
    } done[PRACTICES] = {{NULL, NULL}}; /* pairs share practices: what lives follows once */
    unsigned count = 0;

    for (unsigned i = 0; i < PAIRS; i++) {
        const struct zr_practice *is;
        unsigned n = 0;
        struct pair was;

        if (!borrow(i, &was))
            continue;
        is = renew(i, &was);
        while (n < count && (done[n].was != was.practice || done[n].is != is))
            n++;
        if (is && is != was.practice && n == count && count < PRACTICES) {
            done[count].was = was.practice;
            done[count++].is = is;
            zr_route_residency_changed(was.practice, is, caller);
        }
        give_back(&was);
    }
}

/* The child's SYCL objects are copies of the parent's; what was found is as good as before. */
void zr_probe_fork_child(void) {
    lock = (struct zr_lock){0};
    __atomic_fetch_add(&epoch, 1, __ATOMIC_RELEASE);
}
