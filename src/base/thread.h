/*
 * All thread-local state, in one structure. Each part belongs to the folder that it is named after;
 * nothing else in src/ is thread-local.
 */
#ifndef ZEROUTE_BASE_THREAD_H
#define ZEROUTE_BASE_THREAD_H

#include "base/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zr_thread {
    struct zr_op *op; /* the innermost operation, or NULL; read it with zr_op_innermost() */
    bool attended;    /* zr_thread_attend() has registered the end of this thread */
    bool ended;       /* its exit handler has run: it has no shard, stripe or chunk any more */
    struct {
        struct zr_shard *shard; /* NULL: none yet, or none available */
        bool off;               /* there are no statistics */
        bool shared; /* its shard is that of threads without their own: updates are atomic */
        const struct zr_library *library; /* that called last */
        uint32_t library_checks;          /* calls until the list of libraries is checked again */
        struct zr_pace *pace; /* which calls are quick, and when the next of them is timed */
        uint32_t random;
    } stats;
    struct {
        struct zr_stripe *stripe; /* of the cache; NULL: none yet */
        struct zr_block *spare;   /* descriptors to hand out */
        unsigned spares;
    } cache;
    struct {
        int error;                  /* of the last allocation from a pool, as UMF asks for it */
        void *params;               /* of UMF that the adapter has set last, */
        size_t limit;               /* their limit, */
        bool for_device;            /* and whether they are for device memory */
        const void *first, *second; /* the objects of the last request, */
        const struct zr_practice *practice; /* what the runtime does for them, */
        uint32_t epoch;                     /* and when that was so */
    } sycl;
    struct {
        const void *submits; /* the list or queue to which it is submitting, or NULL */
        const void *lost;    /* the frame of the hook that has counted a lost device last */
    } work;
    struct {
        struct zr_place *place; /* where it says that it is inside a gate; NULL: none yet */
        uint32_t inside[2];     /* calls in progress that a pause waits for, by gate */
        bool shared[2];         /* it came in without a place */
    } pause;
    struct {
        struct zeroute_record_chunk *chunk; /* that this thread appends to, or NULL */
        uintptr_t stack_start, stack_end;   /* the mapping of its stack */
        uint64_t chunks;                    /* that it has had */
        uint32_t number;                    /* in the record, from 1 */
        bool busy;                          /* an event is being appended */
    } record;
};

extern __thread struct zr_thread zr_thread __attribute__((visibility("hidden")));

#endif
