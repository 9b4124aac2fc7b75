/*
 * Gates: a thread enters before it does something that a pause must not meet, and leaves after it.
 * Whoever closes a gate waits until nobody is inside; whoever comes meanwhile waits until it is
 * open again. Threads are spread over counters, so that a submission costs two locked instructions
 * on a line of its own.
 */
#include "pause/inside.h"

#include <string.h>

enum { SLOTS = 16, NAP_NS = 100000000, LOOK_NS = 50000 };

static struct gate {
    _Alignas(128) uint32_t closed; /* atomic, a futex */
    struct {
        _Alignas(128) uint32_t now; /* atomic */
    } inside[SLOTS];
} gates[ZR_GATES];
static uint32_t waiting; /* atomic: threads held */

static uint32_t *inside_of(struct gate *g) {
    return &g->inside[((uintptr_t)&zr_thread >> 6) * UINT64_C(0x9e3779b97f4a7c15) >> 60].now;
}

static ZR_COLD void await_open(struct gate *g) {
    zr_gauge(ZR_G_PAUSE_WAITING, __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST));
    while (__atomic_load_n(&g->closed, __ATOMIC_SEQ_CST))
        zr_futex_wait(&g->closed, 1, NAP_NS);
    zr_gauge(ZR_G_PAUSE_WAITING, __atomic_sub_fetch(&waiting, 1, __ATOMIC_SEQ_CST));
}

void zr_gate_enter(enum zr_gate which) {
    struct gate *g = &gates[which];
    uint32_t *slot = inside_of(g);

    if (zr_thread.pause.inside[which]++)
        return;
    for (;;) {
        __atomic_fetch_add(slot, 1, __ATOMIC_SEQ_CST);
        if (likely(!__atomic_load_n(&g->closed, __ATOMIC_SEQ_CST)))
            return;
        __atomic_fetch_sub(slot, 1, __ATOMIC_SEQ_CST);
        await_open(g);
    }
}

void zr_gate_leave(enum zr_gate which) {
    if (--zr_thread.pause.inside[which] == 0)
        __atomic_fetch_sub(inside_of(&gates[which]), 1, __ATOMIC_RELEASE);
}

void zr_gate_open(enum zr_gate which) {
    __atomic_store_n(&gates[which].closed, 0, __ATOMIC_SEQ_CST);
    zr_futex_wake(&gates[which].closed);
}

/* Those that come from now on wait, so each counter must be seen at zero once. */
bool zr_gate_close(enum zr_gate which, uint64_t end_ns) {
    static const struct timespec little = {0, LOOK_NS};
    struct gate *g = &gates[which];

    __atomic_store_n(&g->closed, 1, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < SLOTS; i++)
        while (__atomic_load_n(&g->inside[i].now, __ATOMIC_SEQ_CST)) {
            if (zr_now() >= end_ns || zr_pause_halts())
                return false;
            clock_nanosleep(CLOCK_MONOTONIC, 0, &little, NULL);
        }
    return true;
}

void zr_gate_fork_child(void) {
    memset(gates, 0, sizeof gates);
    memset(&zr_thread.pause, 0, sizeof zr_thread.pause);
    waiting = 0;
}
