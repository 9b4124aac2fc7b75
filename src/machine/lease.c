/*
 * What a process may take of a card without a look at others, who count it as taken meanwhile: a
 * look costs 100 us and more, which is too much for each allocation far from the end. As in a
 * per-CPU counter a batch is reserved in advance. It ends by the clock, so that what an idle
 * process does not use is missing to nobody for long.
 *
 * A thread announces its bytes, takes them from the lease, and looks at the clock last: then the
 * lease was still announced when the bytes were.
 */
#include "machine/machine.h"

/* The number of the lease is above the bytes: what is meant for an earlier one changes nothing. */
enum { NUMBER = 48 };
#define BYTES_LEFT (((uint64_t)1 << NUMBER) - 1)

static struct {
    uint64_t left, until; /* atomic: bytes that can be used, and the number; CLOCK_MONOTONIC */
    bool asking;          /* atomic: a thread is about to make one */
} leases[ZR_DEVICES];

static struct zeroute_segment_lease *announced(unsigned device) {
    if (device >= ZR_DEVICES || !zr_stats_is_open())
        return NULL;
    return &zr_segment.globals->group.lease[device];
}

bool zr_lease_use(unsigned device, uint64_t bytes) {
    uint64_t left;

    if (device >= ZR_DEVICES)
        return false;
    left = __atomic_load_n(&leases[device].left, __ATOMIC_SEQ_CST);
    do {
        if ((left & BYTES_LEFT) < bytes || !(left & BYTES_LEFT))
            return false;
    } while (!__atomic_compare_exchange_n(&leases[device].left, &left, left - bytes, false,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return zr_now() < __atomic_load_n(&leases[device].until, __ATOMIC_SEQ_CST);
}

void zr_lease_return(unsigned device, uint64_t bytes) {
    const struct zeroute_segment_lease *of = announced(device);
    uint64_t left, room;

    if (!of)
        return;
    left = __atomic_load_n(&leases[device].left, __ATOMIC_SEQ_CST);
    do {
        if (!(left & BYTES_LEFT))
            return;
        room = __atomic_load_n(&of->bytes, __ATOMIC_SEQ_CST);
        room = room > (left & BYTES_LEFT) ? room - (left & BYTES_LEFT) : 0;
    } while (!__atomic_compare_exchange_n(&leases[device].left, &left,
                                          left + (bytes < room ? bytes : room), false,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}

/* The next lease, with so many bytes. */
static void renew(unsigned device, uint64_t bytes) {
    uint64_t left = __atomic_load_n(&leases[device].left, __ATOMIC_SEQ_CST), next;

    do {
        next = (((left >> NUMBER) + 1) << NUMBER) | (bytes & BYTES_LEFT);
    } while (!__atomic_compare_exchange_n(&leases[device].left, &left, next, false,
                                          __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}

bool zr_lease_ask(unsigned device, uint64_t bytes) {
    struct zeroute_segment_lease *to = announced(device);

    if (!to || __atomic_exchange_n(&leases[device].asking, true, __ATOMIC_SEQ_CST))
        return false;
    renew(device, 0);
    __atomic_store_n(&leases[device].until, zr_now() + ZR_LEASE_NS, __ATOMIC_SEQ_CST);
    __atomic_store_n(&to->until_ns, leases[device].until, __ATOMIC_SEQ_CST);
    __atomic_store_n(&to->bytes, bytes, __ATOMIC_SEQ_CST);
    return true;
}

void zr_lease_grant(unsigned device, bool granted) {
    struct zeroute_segment_lease *to = announced(device);

    if (to && granted)
        renew(device, to->bytes);
    else if (to)
        __atomic_store_n(&to->bytes, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&leases[device].asking, false, __ATOMIC_SEQ_CST);
}

void zr_lease_end(unsigned device) {
    if (zr_lease_announced(device) && zr_lease_ask(device, 0))
        zr_lease_grant(device, false);
}

uint64_t zr_lease_announced(unsigned device) {
    const struct zeroute_segment_lease *of = announced(device);

    if (!of || zr_now() >= __atomic_load_n(&of->until_ns, __ATOMIC_SEQ_CST))
        return 0;
    return __atomic_load_n(&of->bytes, __ATOMIC_SEQ_CST);
}

void zr_lease_fork_child(void) {
    for (unsigned i = 0; i < ZR_DEVICES; i++) {
        leases[i].left = 0;
        leases[i].asking = false;
    }
}
