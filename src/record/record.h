/* The map of record/: the record of what was allocated and freed (the setting `trace`). Called by policy/ alone. */
#ifndef ZEROUTE_RECORD_H
#define ZEROUTE_RECORD_H

#include "base/base.h"

#pragma GCC visibility push(hidden)

/* --- trace.c ------------------------------------------------------------------------------------------------------ */
static inline bool zr_recording(void) {
    return zr_config.trace != NULL;
}
/* The process got a block of a device: after it was given out. */
void zr_record_alloc(const void *id, uint64_t bytes, unsigned device);
/* It gives one back: before that takes effect. */
void zr_record_free(const void *id, unsigned device);
void zr_record_fork_child(void);
/* Writes what is left. */
void zr_record_process_end(void);

#pragma GCC visibility pop

#endif
