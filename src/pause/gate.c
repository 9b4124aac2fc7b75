/*
 * Gates: a thread enters before it does something that a pause must not meet, and leaves after it.
 * Whoever closes a gate waits until nobody is inside; whoever comes meanwhile waits until it is
 * open again. Each thread says in a place of its own that it is inside, so a submission costs one
 * locked instruction.
 */
#include "pause/inside.h"

#include <string.h>

enum { NAP_NS = 100000000, LOOK_NS = 50000 };

/* Of one thread, and then of another. They are never freed. */
struct zr_place {
    struct zr_place *next;
    uint32_t taken; /* atomic */
    uint32_t inside[ZR_GATES];
};

static struct {
    _Alignas(64) uint32_t closed; /* atomic, a futex */
    uint32_t shared;              /* atomic: inside without a place of their own */
} gates[ZR_GATES];
static struct zr_place *places; /* atomic */
static uint32_t waiting;        /* atomic: threads held */

/* --- places ----------------------------------------------------------------------------------- */

static struct zr_place *place_reuse(void) {
    struct zr_place *p;

    for (p = __atomic_load_n(&places, __ATOMIC_ACQUIRE); p; p = p->next)
        if (!__atomic_exchange_n(&p->taken, 1, __ATOMIC_ACQ_REL))
            return p;
    return NULL;
}

/* NULL if the thread ends, or without memory. */
static ZR_COLD struct zr_place *place_new(void) {
    struct zr_place *p;

    if (!zr_thread_attend())
        return NULL;
    p = place_reuse();
    if (!p) {
        p = zr_piece(sizeof *p);
        if (!p)
            return NULL;
        p->taken = 1;
        p->next = __atomic_load_n(&places, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&places, &p->next, p, false, __ATOMIC_RELEASE,
                                            __ATOMIC_RELAXED))
            ;
    }
    zr_thread.pause.place = p;
    return p;
}

void zr_gate_thread_end(void) {
    struct zr_place *p = zr_thread.pause.place;

    zr_thread.pause.place = NULL;
    if (!p || zr_thread.pause.inside[ZR_GATE_WORK] || zr_thread.pause.inside[ZR_GATE_BOOKS])
        return; /* what longjmp has left inside stays inside */
    __atomic_store_n(&p->taken, 0, __ATOMIC_RELEASE);
}

static bool anybody_inside(enum zr_gate which) {
    struct zr_place *p;

    for (p = __atomic_load_n(&places, __ATOMIC_ACQUIRE); p; p = p->next)
        if (__atomic_load_n(&p->inside[which], __ATOMIC_SEQ_CST))
            return true;
    return __atomic_load_n(&gates[which].shared, __ATOMIC_SEQ_CST) != 0;
}

/* --- gates ------------------------------------------------------------------------------------ */

static ZR_COLD void await_open(enum zr_gate which) {
    uint32_t *closed = &gates[which].closed;

    zr_gauge(ZR_G_PAUSE_WAITING, __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST));
    while (__atomic_load_n(closed, __ATOMIC_SEQ_CST))
        zr_futex_wait(closed, 1, NAP_NS);
    zr_gauge(ZR_G_PAUSE_WAITING, __atomic_sub_fetch(&waiting, 1, __ATOMIC_SEQ_CST));
}

static ZR_COLD void enter_shared(enum zr_gate which) {
    for (;;) {
        __atomic_fetch_add(&gates[which].shared, 1, __ATOMIC_SEQ_CST);
        if (!__atomic_load_n(&gates[which].closed, __ATOMIC_SEQ_CST))
            return;
        __atomic_fetch_sub(&gates[which].shared, 1, __ATOMIC_SEQ_CST);
        await_open(which);
    }
}

/* A thread that came in without a place leaves without one. */
void zr_gate_enter(enum zr_gate which) {
    struct zr_place *p = zr_thread.pause.place;

    if (zr_thread.pause.inside[which]++)
        return;
    if (unlikely(!p))
        p = place_new();
    zr_thread.pause.shared[which] = !p;
    if (unlikely(!p)) {
        enter_shared(which);
        return;
    }
    for (;;) {
        __atomic_exchange_n(&p->inside[which], 1, __ATOMIC_SEQ_CST);
        if (likely(!__atomic_load_n(&gates[which].closed, __ATOMIC_SEQ_CST)))
            return;
        __atomic_store_n(&p->inside[which], 0, __ATOMIC_SEQ_CST);
        await_open(which);
    }
}

void zr_gate_leave(enum zr_gate which) {
    if (--zr_thread.pause.inside[which])
        return;
    if (unlikely(zr_thread.pause.shared[which]))
        __atomic_fetch_sub(&gates[which].shared, 1, __ATOMIC_RELEASE);
    else
        __atomic_store_n(&zr_thread.pause.place->inside[which], 0, __ATOMIC_RELEASE);
}

void zr_gate_open(enum zr_gate which) {
    __atomic_store_n(&gates[which].closed, 0, __ATOMIC_SEQ_CST);
    zr_futex_wake(&gates[which].closed);
}

bool zr_gate_close(enum zr_gate which, uint64_t end_ns) {
    static const struct timespec little = {0, LOOK_NS};

    __atomic_store_n(&gates[which].closed, 1, __ATOMIC_SEQ_CST);
    while (anybody_inside(which)) {
        if (zr_now() >= end_ns || zr_pause_halts())
            return false;
        clock_nanosleep(CLOCK_MONOTONIC, 0, &little, NULL);
    }
    return true;
}

void zr_gate_fork_child(void) {
    memset(gates, 0, sizeof gates);
    memset(&zr_thread.pause, 0, sizeof zr_thread.pause);
    places = NULL;
    waiting = 0;
}
