/* A runner, as the files of work/ see it. */
#ifndef ZEROUTE_WORK_RUNNER_H
#define ZEROUTE_WORK_RUNNER_H

#include "work/work.h"

enum { RUNNER_MARKS = 8 };

/* From this submission on they belong to this epoch. */
struct runner_mark {
    uint64_t first, epoch;
};

/* Guarded by its lock, but for what is said to be atomic. */
struct zr_runner {
    struct zr_lock lock;
    uint32_t inside;                /* submissions that the driver has not returned from, */
    const struct zr_thread *thread; /* atomic: the thread of the first of them, */
    uint64_t inside_first;          /* and its number */
    uint64_t returned;              /* atomic: that number once the driver has returned, else 0 */
    uint64_t begun;                 /* the newest submission */
    uint64_t proved;                /* the newest that is proven with all before it */
    uint64_t window;                /* bit n: submission proved + 1 + n is proven */
    uint64_t oldest; /* atomic: the epoch of the oldest that is not; UINT64_MAX: there is none */
    unsigned marks;  /* where epochs begin among those that are not proven */
    struct runner_mark mark[RUNNER_MARKS];
    uint16_t device;
    bool in_order, synchronous;
    struct zr_runner *next; /* in the list of all */
};

#pragma GCC visibility push(hidden)

/*
 * For a list or queue that was created where another one was: what that one has left is not proven
 * by it.
 */
void zr_runner_renew(struct zr_runner *r, unsigned device, bool in_order, bool synchronous);
/* Whether this submission is proven; false for number 0. */
bool zr_runner_is_proven(struct zr_runner *r, uint64_t number);
/* Whether it is proven with all before it. */
bool zr_runner_has_proven(struct zr_runner *r, uint64_t number);

#pragma GCC visibility pop

#endif
