/*
 * Sleeping until somebody wrote something. Commands and fences poll memory that anybody may write
 * with a plain store. A write of our own wakes, at once, those who wait for that address and those
 * who wait for anything; a store by the program is seen when the nap ends.
 */
#include "standin.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 64

static struct slot { _Atomic uint32_t event, sleepers; } slots[SLOTS + 1]; /* the last one is for any address */

static struct slot *slot_of(uint64_t address) {
    return &slots[address == XS_ANY_ADDRESS ? SLOTS : (address >> 2) * 0x9e3779b97f4a7c15ull >> 58];
}

uint32_t xs_event_seen(uint64_t address) {
    return atomic_load(&slot_of(address)->event);
}

void xs_event_wait(uint64_t address, uint32_t seen, uint64_t ns) {
    struct slot *slot = slot_of(address);
    struct timespec timeout = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    atomic_fetch_add(&slot->sleepers, 1);
    syscall(SYS_futex, &slot->event, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
    atomic_fetch_sub(&slot->sleepers, 1);
}

static void bump(struct slot *slot) {
    atomic_fetch_add(&slot->event, 1);
    if (atomic_load(&slot->sleepers))
        syscall(SYS_futex, &slot->event, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void xs_event_bump(uint64_t address) {
    if (address != XS_ANY_ADDRESS)
        bump(slot_of(address));
    bump(&slots[SLOTS]);
}

/* Everybody looks again: a queue is being stopped. */
void xs_event_bump_all(void) {
    for (unsigned i = 0; i <= SLOTS; i++)
        bump(&slots[i]);
}
