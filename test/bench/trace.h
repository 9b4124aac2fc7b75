/* Allocation traces: op,id,bytes,stream,time_us, one event to a line, as read from a file or made up. */
#ifndef ZEROUTE_BENCH_TRACE_H
#define ZEROUTE_BENCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct zr_trace_event {
    uint64_t bytes; /* ZR_TRACE_FREE: the block of this slot is freed */
    uint32_t slot;  /* which block; a number from 0 up, used again after a free */
};
#define ZR_TRACE_FREE UINT64_MAX

struct zr_trace {
    struct zr_trace_event *event;
    size_t events;
    uint32_t slots; /* blocks that live at once, at most */
    uint64_t allocations, frees;
    uint64_t peak_live; /* bytes */
    uint64_t unknown_frees;
    size_t first_unknown_line;
    uint64_t left; /* blocks that the trace never frees */
};

/*
 * Reads a trace. False: `why` says what is wrong, in which line, and what was expected. Frees of ids that
 * are not allocated are left out and counted. The caller frees the trace with zr_trace_free either way.
 */
bool zr_trace_read(struct zr_trace *t, FILE *in, char *why, size_t size);
void zr_trace_free(struct zr_trace *t);

/*
 * Writes a trace of one of two shapes as CSV: "tensors" are what a program without a cache of its own requests
 * (a transformer's forward and backward passes, steps of varying length), "segments" what PyTorch requests
 * below its own cache (2 MiB, 20 MiB, multiples of 2 MiB). The same seed makes the same trace.
 */
bool zr_trace_make(FILE *out, const char *shape, uint64_t seed);

#endif
