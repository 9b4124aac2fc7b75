/* Replaying records. */
#ifndef ZEROUTE_TOOLS_REPLAY_H
#define ZEROUTE_TOOLS_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- recorded.c: a record as steps that an allocator can take ------------------------------------ */

enum { ZR_REPLAY_CARDS = 64 };
enum zr_step_op { ZR_STEP_ALLOC, ZR_STEP_FREE, ZR_STEP_TRIM, ZR_STEP_CONTEXT_GO, ZR_STEP_RESIDENT, ZR_STEP_EVICT };

struct zr_step {
    uint64_t bytes, context;
    uint32_t ms; /* since the record began */
    uint32_t slot;
    uint8_t op, card; /* TRIM: ZEROUTE_RECORD_NO_CARD: all */
    bool is_device;   /* and not shared or physical memory */
    bool is_piece;    /* of a pool's segment */
    bool may_cache;   /* ALLOC: it could be taken from the cache. FREE: it could be cached */
};

struct zr_outcome {
    uint64_t peak_reserved; /* bytes, of all cards together */
    uint64_t driver_calls;  /* allocations and frees of device memory */
    uint64_t hits;
    uint64_t refused; /* by the limit */
};

struct zr_recorded {
    struct zr_step *step;
    size_t steps;
    uint32_t slots;
    bool pieces; /* a pool of ours served */
    uint64_t lost;
    uint64_t card_memory[ZR_REPLAY_CARDS]; /* 0: not known */
    char settings[2048];
    struct zr_outcome recorded; /* what happened */
};

bool zr_is_record(const char *path);
/* False: `why` says what is wrong. The caller frees it with zr_recorded_free either way. */
bool zr_recorded_load(struct zr_recorded *to, const char *path, char *why, size_t size);
void zr_recorded_free(struct zr_recorded *r);

/* --- whatif.c ------------------------------------------------------------------------------------ */

/*
 * What would have happened with other settings: those of the record, changed by `settings` (a preset, "key:value", or
 * several joined by +; "" for none). False: `why` says what is wrong with them.
 */
bool zr_what_if(const struct zr_recorded *recorded, const char *settings, struct zr_outcome *outcome, char *why,
                size_t size);

#endif
