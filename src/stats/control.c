/*
 * Requests of the process's user: read from the segment at a call, carried out by its thread,
 * answered there.
 */
#include "stats/stats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const uint32_t nothing;
const uint32_t *zr_control_word = &nothing;
zr_carry_out *zr_control_handler;
static struct zeroute_segment_control *control;
static _Atomic bool control_busy; /* a thread is carrying one out */
static bool by_thread;            /* calls of the program do not look */

static void control_announce(void) {
    const uint32_t *word = control && !by_thread ? &control->request : &nothing;

    __atomic_store_n(&zr_control_word, word, __ATOMIC_RELEASE);
}

void zr_control_open(struct zeroute_segment_control *c) {
    control = c;
    atomic_store(&control_busy, false);
    control_announce();
}

void zr_control_by_thread(bool now) {
    by_thread = now;
    control_announce();
}

void zr_control_poll(void) {
    if (control && __atomic_load_n(&control->request, __ATOMIC_RELAXED))
        zr_control_serve();
}

/* The page may hold anything and may change while it is read: only a copy is examined. */
static void carry_out(uint32_t number) {
    char text[sizeof control->text], reply[sizeof control->reply];
    bool done;

    memcpy(text, control->text, sizeof text);
    text[sizeof text - 1] = '\0';
    reply[0] = '\0';
    done = zr_control_handler(text, reply, sizeof reply);
    snprintf(control->reply, sizeof control->reply, "%s", reply);
    control->code = done ? ZEROUTE_CARRIED_OUT : ZEROUTE_REFUSED;
    control->answered_ns = zr_clock(CLOCK_REALTIME);
    __atomic_store_n(&control->answer, number, __ATOMIC_RELEASE);
}

/* Calls to the driver meanwhile are ours, not the program's. */
ZR_COLD void zr_control_serve(void) {
    int saved = errno;
    uint32_t number;

    if (atomic_exchange(&control_busy, true))
        return;
    ZR_OWN_OP(own, 0);
    number = __atomic_exchange_n(&control->request, 0, __ATOMIC_ACQUIRE);
    if (number)
        carry_out(number);
    atomic_store(&control_busy, false);
    errno = saved;
}
