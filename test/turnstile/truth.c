/*
 * What the program owns. An address is owned from the return of its allocation to the call of its free; in between it
 * may not be given to anybody else, may not be freed in the driver, and has to be answered as allocated.
 */
#include "program.h"

#include <string.h>

enum flight_kind { NOTHING, ALLOCATING, FREEING };
struct flight { /* what each thread is in the middle of */
    enum flight_kind kind;
    uintptr_t p;    /* being freed */
    uintptr_t gave; /* the driver gave this to the allocation */
    uint64_t began;
    int target; /* the owner when the free was called */
    bool overlapped, refused, doomed;
    bool robbed; /* a wrong free of its took a block of the program's */
};
struct answer {
    uint64_t asked, answered, step;
    uintptr_t p, base;
    size_t size;
    int thread;
    bool live;
};

struct owner owners[OWNERS];
int owner_count;
const struct setting *truth_setting;
bool truth_inexact;
unsigned truth_failed;
static struct flight flights[TS_THREADS];
static struct answer answers[OWNERS];
static int answer_count;
static struct own { /* memory that check's worker was given for itself, or a SYCL runtime */
    uintptr_t base;
    size_t size;
    uint64_t given, gone;
    bool runtimes;
} own[512];
static unsigned own_count;
static uint64_t now;
static bool may_pass; /* the cache may have been switched off */

uint64_t truth_time(void) {
    return ++now;
}

static struct flight *flight(void) {
    return ts_self() < 0 ? NULL : &flights[ts_self()];
}

bool truth_refuses(void) {
    return truth_setting->flags & REFUSES && !may_pass;
}

void truth_may_pass(void) {
    may_pass = true;
}

static bool is_alive(const struct owner *o) {
    return !o->gone;
}

/* --- what the driver tells ---------------------------------------------------------------------------------------- */

static void driver_gives(const struct ts_block *b) {
    struct flight *f = flight();

    if (f && f->kind == ALLOCATING && !ts_is_child())
        f->gave = b->base;
    if ((ts_is_daemon() || sycl_has_context(b->context)) && own_count < sizeof own / sizeof *own)
        own[own_count++] =
            (struct own){.base = b->base, .size = b->size, .given = truth_time(), .runtimes = !ts_is_daemon()};
}

/* Another thread is just being given this address: nobody can know it yet. */
static void look_at_allocations(uintptr_t p, bool wrong_free) {
    for (int t = 0; t < TS_THREADS; t++) {
        struct flight *other = &flights[t];

        if (t == ts_self() || other->kind != ALLOCATING || other->gave != p || other->doomed)
            continue;
        /* Between two atomic operations it may be registered: then this free is as good as one a moment later. */
        if ((truth_refuses() && !ts_atomics) || !wrong_free)
            ts_violation("%p was freed in the driver while thread %d was being given it", (void *)p, t);
        other->doomed = true;
        truth_inexact = true;
    }
}

/* Where we only observe, a wrong free goes down, and takes the block of whoever has the address by then. */
static void rob(struct flight *f, struct owner *o) {
    f->robbed = true;
    o->free_called = f->began;
    o->gone = truth_time();
}

static void driver_takes(uintptr_t p, const struct ts_block *b) {
    struct flight *f = flight();
    bool freeing = f && f->kind == FREEING && f->p == p;

    if (ts_is_child())
        return;
    if (!b) {
        bool passes = freeing && (!truth_refuses() || f->overlapped || f->target == NO_OWNER);

        if (!passes || truth_refuses())
            ts_violation("the driver was asked to free %p, which is not allocated: it was freed twice", (void *)p);
        return;
    }
    for (int i = 0; i < owner_count; i++) {
        struct owner *o = &owners[i];

        if (o->p != p || !o->returned || !is_alive(o) || o->frees || o->orphaned || o->doomed)
            continue;
        if (freeing && !truth_refuses() && (f->target == NO_OWNER || f->overlapped))
            rob(f, o);
        else
            ts_violation("%p (%zu bytes) was freed in the driver, but the program owns it and did not free it",
                         (void *)p, o->size);
    }
    sycl_block_goes(b);
    if (freeing && ts_atomics && sycl_has_context(b->context) && sycl_doom_allocations())
        truth_inexact = true;
    for (unsigned i = 0; i < own_count; i++)
        if (own[i].base == p && !own[i].gone)
            own[i].gone = truth_time();
    if (f && f->gave == p)
        f->gave = 0;
    look_at_allocations(p, freeing);
}

/* The cache has to give back what it holds of a context before that goes. */
static void find_unowned(const struct ts_block *b, void *arg) {
    bool owned = b->past_us || b->context != *(int *)arg;

    for (int i = 0; i < owner_count && !owned; i++)
        owned = owners[i].p == b->base && is_alive(&owners[i]);
    for (int t = 0; t < TS_THREADS && !owned; t++)
        owned = flights[t].kind == ALLOCATING && flights[t].gave == b->base;
    if (!owned && b->refused) /* it goes with its context, for all that the preload can know */
        ts_block_goes(b);
    else if (!owned)
        ts_violation("context %d is destroyed while %p (%zu bytes), which the program has freed, still lives in it",
                     b->context, (void *)b->base, b->size);
}

static void context_goes(int context) {
    if (ts_is_child())
        return;
    ts_each_block(find_unowned, &context);
    for (int i = 0; i < owner_count; i++)
        if (is_alive(&owners[i]) && owners[i].context == context)
            owners[i].orphaned = true;
}

static void driver_refuses(void) {
    if (flight())
        flight()->refused = true;
}

void truth_begin(const struct setting *s) {
    truth_setting = s;
    truth_inexact = may_pass = false;
    owner_count = answer_count = 0;
    truth_failed = own_count = 0;
    now = 0;
    memset(flights, 0, sizeof flights);
    ts_truth = (struct ts_truth){
        .given = driver_gives, .taken = driver_takes, .context_gone = context_goes, .refused = driver_refuses};
}

/* --- allocations -------------------------------------------------------------------------------------------------- */

void truth_alloc_begins(void) {
    *flight() = (struct flight){.kind = ALLOCATING, .began = truth_time(), .target = NO_OWNER};
}

void truth_must_be_free(uintptr_t p, size_t size) {
    for (int i = 0; i < owner_count; i++) {
        const struct owner *o = &owners[i];

        if (!is_alive(o) || !o->returned || o->frees || o->contested || o->doomed)
            continue;
        if (p < o->p + o->size && o->p < p + size)
            ts_violation("an allocation returned %p (%zu bytes), but the program owns %p (%zu bytes)", (void *)p, size,
                         (void *)o->p, o->size);
    }
}

/* An earlier owner has exported this very block, before it freed it. */
static void must_not_be_exported(const struct ts_block *b) {
    for (int i = 0; i < owner_count && b->exported; i++)
        if (owners[i].gone && owners[i].exported && owners[i].p == b->base && owners[i].given == b->given)
            ts_violation("an allocation returned %p, which was exported before it was freed", (void *)b->base);
}

static int new_owner(const struct owner *o) {
    if (owner_count == OWNERS)
        ts_violation("more than %d allocations", OWNERS);
    owners[owner_count] = *o;
    return owner_count++;
}

/* A block that the driver gave to an allocation which failed: it was there for a while. */
static void remember_failed(const struct flight *f) {
    const struct ts_block *b = ts_block_at(f->gave);

    if (f->gave)
        new_owner(&(struct owner){
            .p = f->gave, .size = b ? b->size : 1, .called = f->began, .gone = truth_time(), .context = -1});
}

int truth_alloc_ends(ze_result_t result, const void *p, size_t size, enum ts_kind kind, int card, int context) {
    struct flight f = *flight();
    const struct ts_block *b = ts_block_at((uintptr_t)p);
    struct owner o = {.p = (uintptr_t)p,
                      .size = size,
                      .kind = kind,
                      .card = card,
                      .context = context,
                      .called = f.began,
                      .doomed = f.doomed};

    flight()->kind = NOTHING;
    if (result != ZE_RESULT_SUCCESS) {
        truth_failed++;
        remember_failed(&f);
        return NO_OWNER;
    }
    o.returned = truth_time();
    if (!f.doomed) {
        truth_must_be_free(o.p, size);
        sycl_must_not_own(o.p, size);
        if (!b)
            ts_violation("an allocation returned %p, which the driver has not given out", p);
        if (b->size < size || b->kind != kind || b->context != context || (kind != TS_HOST && b->card != card))
            ts_violation(
                "an allocation returned %p: %zu bytes of kind %d, card %d, context %d; asked for %zu, %d, %d, %d", p,
                b->size, b->kind, b->card, b->context, size, kind, card, context);
        must_not_be_exported(b);
        if (ts_device_uses(b))
            ts_violation("an allocation returned %p, which a command still uses", p);
    }
    /* A free that is under way may hit it, unless that one has a block of its own. */
    for (int t = 0; t < TS_THREADS; t++)
        if (flights[t].kind == FREEING && flights[t].p == o.p &&
            (flights[t].target == NO_OWNER || flights[t].overlapped)) {
            o.frees |= 1u << t;
            o.contested = true;
            o.free_called = o.returned;
        }
    for (int i = 0; i < owner_count; i++)
        owners[i].spent |= owners[i].p == o.p && owners[i].frees;
    o.given = b ? b->given : 0;
    o.given_size = b ? b->size : size;
    return new_owner(&o);
}

/* --- frees -------------------------------------------------------------------------------------------------------- */

/* Two frees of one owner: either may succeed. */
static void overlap(struct flight *f, struct owner *o) {
    o->contested = true;
    f->overlapped = true;
    for (int t = 0; t < TS_THREADS; t++)
        if (o->frees >> t & 1)
            flights[t].overlapped = true;
}

void truth_free_begins(const void *ptr) {
    struct flight *f = flight();

    *f = (struct flight){.kind = FREEING, .p = (uintptr_t)ptr, .began = truth_time(), .target = NO_OWNER};
    for (int i = 0; i < owner_count; i++) {
        struct owner *o = &owners[i];

        if (o->p != f->p || !is_alive(o) || o->spent)
            continue;
        if (o->frees)
            overlap(f, o);
        else
            f->target = i;
        o->frees |= 1u << ts_self();
        if (!o->free_called)
            o->free_called = f->began;
    }
}

/*
 * A wrong free has succeeded. Between two atomic operations the block of an allocation that has not returned can be
 * found already: then this free is as good as one a moment later. Returns whether there is such an allocation.
 */
static bool doom_allocations(uintptr_t p) {
    bool any = false;

    for (int t = 0; t < TS_THREADS && ts_atomics; t++) {
        struct flight *other = &flights[t];

        if (t == ts_self() || other->kind != ALLOCATING || (other->gave && other->gave != p))
            continue;
        other->doomed = any = truth_inexact = true;
    }
    if (ts_atomics && sycl_doom_allocations())
        any = truth_inexact = true;
    return any;
}

void truth_free_ends(ze_result_t result) {
    struct flight f = *flight();
    int freed = NO_OWNER;

    flight()->kind = NOTHING;
    for (int i = 0; i < owner_count; i++) {
        struct owner *o = &owners[i];

        if (o->p != f.p || !is_alive(o))
            continue;
        if (!(o->frees >> ts_self() & 1))
            continue;
        o->frees &= ~(1u << ts_self());
        if (o->returned && (freed == NO_OWNER || owners[freed].doomed))
            freed = i;
    }
    if (!f.p)
        return;
    if (result == ZE_RESULT_SUCCESS) {
        bool excused = freed == NO_OWNER && (doom_allocations(f.p) || truth_inexact || f.robbed);

        if (freed != NO_OWNER)
            owners[freed].gone = truth_time();
        else if (!excused)
            ts_violation("a free of %p succeeded, but nobody owned it", (void *)f.p);
    } else if (f.target != NO_OWNER && is_alive(&owners[f.target]) && !owners[f.target].contested && !f.overlapped &&
               !f.refused && !owners[f.target].orphaned && !owners[f.target].doomed && !owners[f.target].past_us) {
        ts_violation("a free of %p was refused with 0x%x, but the program owned it", (void *)f.p, (unsigned)result);
    }
    for (int i = 0; i < owner_count; i++)
        if (owners[i].p == f.p && is_alive(&owners[i]) && !owners[i].frees && !owners[i].doomed)
            owners[i].contested = false;
}

bool truth_was_refused(void) {
    return flight()->refused;
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

void truth_answer(uint64_t asked, const void *p, bool live, const void *base, size_t size) {
    if (answer_count < OWNERS)
        answers[answer_count++] = (struct answer){.asked = asked,
                                                  .answered = truth_time(),
                                                  .step = ts_now(),
                                                  .p = (uintptr_t)p,
                                                  .base = (uintptr_t)base,
                                                  .size = size,
                                                  .thread = ts_self(),
                                                  .live = live};
}

/* What a runtime has is allocated, and when check got this memory while the question was on its way, so was that. */
static bool was_theirs(const struct answer *a) {
    for (unsigned i = 0; i < own_count; i++) {
        const struct own *o = &own[i];

        if (a->p - o->base < o->size && o->given < a->answered &&
            (o->runtimes ? !o->gone || o->gone > a->asked : o->given > a->asked))
            return true;
    }
    return false;
}

static void check_answer(const struct answer *a) {
    const struct owner *surely = NULL;
    bool perhaps = false;

    for (int i = 0; i < owner_count; i++) {
        const struct owner *o = &owners[i];

        /* Before its allocation returns nobody but the driver knows the block. */
        if (a->p - o->p >= (a->asked <= o->returned && o->given_size > o->size ? o->given_size : o->size))
            continue;
        if (o->called <= a->answered && (!o->gone || o->gone >= a->asked))
            perhaps = true;
        if (o->returned && o->returned <= a->asked && !o->doomed && !o->orphaned &&
            (!o->free_called || o->free_called > a->answered))
            surely = o;
    }
    if (surely && !a->live)
        ts_violation("step %llu, thread %d: %p was answered as not allocated, but the program owns it",
                     (unsigned long long)a->step, a->thread, (void *)a->p);
    if (!perhaps && a->live && !truth_inexact && !was_theirs(a))
        ts_violation("step %llu, thread %d: %p was answered as allocated, but it was free all the time",
                     (unsigned long long)a->step, a->thread, (void *)a->p);
    if (surely && a->base && (a->base != surely->p || a->size != surely->size))
        ts_violation("step %llu, thread %d: the range of %p was answered as %zu bytes at %p; it is %zu at %p",
                     (unsigned long long)a->step, a->thread, (void *)a->p, a->size, (void *)a->base, surely->size,
                     (void *)surely->p);
}

void truth_check_answers(void) {
    for (int i = 0; i < answer_count; i++)
        check_answer(&answers[i]);
}
