/* Host memory while a recorded program runs. */
#ifndef ZEROUTE_TOOLS_RECORD_HOST_SAMPLES_H
#define ZEROUTE_TOOLS_RECORD_HOST_SAMPLES_H

#include "common/common.h"

#include <zeroute/record.h>

struct zr_host_samples {
    struct zeroute_record_host *sample;
    size_t n;
    unsigned every_ms;
    uint64_t before_ns; /* a look at a machine that was not there yet; 0: none */
};
/* Takes one now; the next is due after every_ms. */
void zr_host_samples_take(struct zr_host_samples *s);
/*
 * Adds the samples to a record whose process has ended, by exit or killed. False: nobody may write there, or it is
 * none.
 * A record that was cut off half way through it reads as without samples.
 */
bool zr_host_samples_add(const struct zr_host_samples *s, const char *path);
void zr_host_samples_free(struct zr_host_samples *s);

/* recording.c: adds the samples to every record of a run: FILE, with %p for any number, and FILE.PID. */
void zr_host_samples_add_all(const struct zr_host_samples *s, const char *file, const char *run);

#endif
