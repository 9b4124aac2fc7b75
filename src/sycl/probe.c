/*
 * What the runtime does at Level Zero for a device allocation: through which hook, on which native
 * handles, on which devices it makes the block resident, and how it frees it. None of this is
 * assumed: for each pair of objects we let the runtime allocate one block of its own and watch. So
 * the route changes the path and nothing else, whatever adapter, version or environment variable
 * decides about residency.
 *
 * A practice belongs to SYCL objects. An address may be reused by another object, so we hold a weak
 * reference to each object's control block: until it is dropped, no other control block can have
 * that address.
 */
#include "sycl/sycl.h"

#include <string.h>

enum {
    PAIRS = 256,      /* of objects that are known at a time */
    PRACTICES = 1024, /* different ones: pairs of native handles */
    LAST_SHARED = 8,  /* up to libsycl.so.8 a sycl::device holds its implementation by shared_ptr */
    FIRST_PROBE = 16, /* MiB: above the usual limit of any pool, so that it reaches Level Zero */
    LAST_PROBE = 256
};

/* libstdc++'s control block of a shared_ptr. */
struct control {
    void (**table)(struct control *);
    int strong, weak;
};

/* A shared_ptr as SYCL's context, queue and (in older runtimes) device hold their implementation.
 */
struct shared {
    void *implementation;
    struct control *control;
};

/*
 * The objects of a request: a queue, or a context and a device. Identified by the control block of
 * the first and the implementation of the second.
 */
struct pair {
    /* a device of a newer runtime is one pointer without a control block */
    struct shared object[2];
    bool queue;
    const struct zr_runtime *runtime;
    const struct zr_practice *practice; /* NULL: to be found at the next request */
};

static struct pair pairs[PAIRS];
static struct zr_practice practices[PRACTICES];
static unsigned practice_count;
static uint32_t practice_epoch = 1; /* atomic: incremented when what was found no longer holds */

/* --- objects ---------------------------------------------------------------------------------- */

static inline struct pair pair_of(const struct zr_runtime *runtime, const struct zr_request *r) {
    const struct shared *first = r->queue ? r->queue : r->context, *device = r->device;
    struct pair p = {.runtime = runtime, .queue = r->queue != NULL, .object = {*first}};

    if (r->queue)
        return p;
    p.object[1].implementation = device->implementation;
    if (runtime->soname <= LAST_SHARED)
        p.object[1].control = device->control;
    return p;
}

static inline bool same(const struct pair *a, const struct pair *b) {
    return a->object[0].control == b->object[0].control &&
           a->object[1].implementation == b->object[1].implementation;
}

static void hold(const struct pair *p) {
    for (int i = 0; i < 2; i++)
        if (p->object[i].control)
            __atomic_fetch_add(&p->object[i].control->weak, 1, __ATOMIC_RELAXED);
}

/* As ~weak_ptr: the last reference destroys the control block, by its fourth virtual function. */
static void drop_one(struct control *c) {
    enum { DESTROY = 3 };

    if (c && __atomic_fetch_sub(&c->weak, 1, __ATOMIC_ACQ_REL) == 1)
        c->table[DESTROY](c);
}

/* The caller does not hold the lock: a destructor of the runtime may run. */
static void drop(const struct pair *p) {
    for (int i = 0; i < 2; i++)
        drop_one(p->object[i].control);
}

/* As weak_ptr::lock(): returns false if the object is gone. */
static bool keep_alive(struct control *c) {
    int strong = c ? __atomic_load_n(&c->strong, __ATOMIC_RELAXED) : 1;

    while (c && strong != 0)
        if (__atomic_compare_exchange_n(&c->strong, &strong, strong + 1, true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return true;
    return strong != 0;
}

/* As ~shared_ptr: the last reference destroys the object, by the third virtual function. */
static void let_go(struct control *c) {
    enum { DISPOSE = 2 };

    if (c && __atomic_fetch_sub(&c->strong, 1, __ATOMIC_ACQ_REL) == 1) {
        c->table[DISPOSE](c);
        drop_one(c);
    }
}

static bool dead(const struct pair *p) {
    for (int i = 0; i < 2; i++) {
        const struct control *c = p->object[i].control;

        if (c && __atomic_load_n(&c->strong, __ATOMIC_ACQUIRE) == 0)
            return true;
    }
    return false;
}

/* --- watching --------------------------------------------------------------------------------- */

bool zr_practice_seen(struct zr_practice *p) {
    struct zr_op op = {.hook = p->seen.hook};

    if (!p->seen.allocated || !p->seen.freed)
        return false;
    p->number = (uint16_t)zr_device_number(&op, p->seen.device);
    for (uint32_t i = 0; i < p->seen.residents; i++) {
        unsigned n = zr_device_number(&op, p->seen.resident[i]);

        if (n < 64)
            p->residents |= UINT64_C(1) << n;
    }
    /* Size and place of the probe are no part of the practice. */
    p->seen.size = 0;
    p->seen.made = 0;
    p->seen.base = NULL;
    return true;
}

static void make_and_free(const struct zr_runtime *runtime, const struct zr_request *objects,
                          size_t size, struct zr_practice *out) {
    struct zr_op op __attribute__((cleanup(zr_op_end)));
    void *p;

    zr_watch_begin(&op, out, size);
    p = zr_native_alloc(runtime, objects, size);
    if (p)
        zr_native_free(runtime, objects, p);
}

static bool probe_runtime(const struct zr_runtime *runtime, const struct zr_request *objects,
                          struct zr_practice *out) {
    bool seen = false;

    for (size_t mib = FIRST_PROBE; !seen && mib <= LAST_PROBE; mib *= 4) {
        make_and_free(runtime, objects, mib << 20, out);
        seen = zr_practice_seen(out);
    }
    return seen;
}

/* --- the table of objects --------------------------------------------------------------------- */

/* The caller holds the lock. Equal practices are stored once; NULL if the table is full. */
static const struct zr_practice *remember(const struct zr_practice *p) {
    for (unsigned i = 0; i < practice_count; i++)
        if (memcmp(&practices[i], p, sizeof *p) == 0)
            return &practices[i];
    if (practice_count == PRACTICES)
        return NULL;
    practices[practice_count] = *p;
    return &practices[practice_count++];
}

/* The caller holds the lock. The pair, a free place for it, or one whose object is gone; NULL if
 * all are taken. */
static struct pair *place(const struct pair *want) {
    struct pair *spare = NULL;

    for (unsigned i = 0; i < PAIRS; i++) {
        if (same(&pairs[i], want))
            return &pairs[i];
        if (!spare && (!pairs[i].object[0].control || dead(&pairs[i])))
            spare = &pairs[i];
    }
    return spare;
}

bool zr_is_level_zero(const struct zr_runtime *runtime, const struct zr_request *r) {
    return (r->queue ? runtime->queue_backend(r->queue) : runtime->context_backend(r->context)) ==
           ZR_SYCL_LEVEL_ZERO;
}

/*
 * Stores what was found for these objects, replacing what was known of them or of objects that are
 * gone. Threads cache their last practice by the objects' addresses alone, hence the epoch.
 */
static const struct zr_practice *practice_keep(struct pair new, const struct zr_practice *found) {
    struct pair *p, was = {.queue = false};

    zr_lock(&zr_sycl_lock);
    new.practice = found ? remember(found) : NULL;
    p = place(&new);
    if (p) {
        hold(&new);
        was = *p;
        *p = new;
    }
    if (was.object[0].control)
        __atomic_fetch_add(&practice_epoch, 1, __ATOMIC_RELEASE);
    zr_unlock(&zr_sycl_lock);
    drop(&was);
    return p ? new.practice : NULL;
}

static ZR_COLD const struct zr_practice *find_practice(const struct zr_request *request,
                                                       const struct pair *want) {
    const struct zr_practice *practice;
    struct zr_practice found;
    const struct pair *p;

    if (!want->object[0].control)
        return NULL;
    if (!zr_is_level_zero(want->runtime, request)) {
        zr_count(ZR_F_PASSED_BACKEND, 1);
        return NULL;
    }
    zr_lock(&zr_sycl_lock);
    p = place(want);
    practice = p && same(p, want) ? p->practice : NULL;
    zr_unlock(&zr_sycl_lock);
    if (practice || !p) /* no place for it: left to the runtime rather than probed each time */
        return practice;
    /* If not even one block could be allocated, the card is full now, which says nothing about the
     * next time. */
    return probe_runtime(want->runtime, request, &found) ? practice_keep(*want, &found) : NULL;
}

const struct zr_practice *zr_practice_of(const struct zr_runtime *runtime,
                                         const struct zr_request *request) {
    uint32_t now = __atomic_load_n(&practice_epoch, __ATOMIC_ACQUIRE);
    struct pair want = pair_of(runtime, request);
    const struct zr_practice *practice;

    if (likely(zr_thread.sycl.first == want.object[0].control &&
               zr_thread.sycl.second == want.object[1].implementation &&
               zr_thread.sycl.epoch == now))
        return zr_thread.sycl.practice;
    practice = find_practice(request, &want);
    if (practice) {
        zr_thread.sycl.first = want.object[0].control;
        zr_thread.sycl.second = want.object[1].implementation;
        zr_thread.sycl.practice = practice;
        zr_thread.sycl.epoch = now;
    }
    return practice;
}

/* --- the objects once more -------------------------------------------------------------------- */

/* A pair whose objects are kept alive until give_back(); an empty one if there is none or they are
 * gone. */
static struct pair borrow(unsigned at) {
    struct pair p;
    bool first, both;

    zr_lock(&zr_sycl_lock);
    p = pairs[at];
    first = p.practice && keep_alive(p.object[0].control);
    both = first && keep_alive(p.object[1].control);
    zr_unlock(&zr_sycl_lock);
    if (first && !both)
        let_go(p.object[0].control);
    return both ? p : (struct pair){.queue = false};
}

/* A cleanup handler, since use() may throw. */
static void let_pair_go(const struct pair *p) {
    for (int i = 0; i < 2; i++)
        let_go(p->object[i].control);
}

static struct zr_request objects_of(const struct pair *p) {
    if (p->queue)
        return (struct zr_request){.queue = &p->object[0]};
    return (struct zr_request){.context = &p->object[0], .device = &p->object[1]};
}

void zr_practice_use(const void *context, unsigned number, zr_use use, void *arg) {
    for (unsigned i = 0; i < PAIRS; i++) {
        struct pair p __attribute__((cleanup(let_pair_go))) = borrow(i);
        struct zr_request objects = objects_of(&p);

        if (p.practice && p.practice->seen.context == context && p.practice->number == number) {
            use(p.runtime, &objects, arg);
            return;
        }
    }
}

void zr_practice_renew(const void *caller) {
    for (unsigned i = 0; i < PAIRS; i++) {
        struct pair was __attribute__((cleanup(let_pair_go))) = borrow(i);
        struct zr_request objects = objects_of(&was);
        const struct zr_practice *is = NULL;
        struct zr_practice found;

        if (was.practice)
            is = practice_keep(was, probe_runtime(was.runtime, &objects, &found) ? &found : NULL);
        if (is && is != was.practice)
            zr_route_residency_changed(was.practice, is, caller);
    }
}
