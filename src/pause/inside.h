/* What the files of pause/ share. */
#ifndef ZEROUTE_PAUSE_INSIDE_H
#define ZEROUTE_PAUSE_INSIDE_H

#include "pause/pause.h"
#include "stats/stats.h"

#pragma GCC visibility push(hidden)

/* --- gate.c ----------------------------------------------------------------------------------- */
/*
 * Waits until nobody is inside, until `end_ns` at most; false if somebody still is. It stays
 * closed.
 */
bool zr_gate_close(enum zr_gate which, uint64_t end_ns);
void zr_gate_open(enum zr_gate which);
void zr_gate_fork_child(void);

/* --- blocks.c --------------------------------------------------------------------------------- */
enum { ZR_PAUSABLE_RESIDENTS = 16 };

/*
 * A block that can be given up. Found by its base; changes under the lock of the table, but for
 * what moves: that changes while BOOKS is closed.
 */
struct zr_pausable {
    struct zr_pausable *next; /* in its bucket, or in a list */
    uintptr_t base;
    size_t size, held; /* as requested, as reserved */
    ze_context_handle_t context;
    ze_device_handle_t device;
    uint32_t hook;
    unsigned number;                   /* of the card */
    ze_physical_mem_handle_t physical; /* NULL: given up */
    ze_memory_allocation_properties_t properties;
    ze_device_handle_t owner;
    uint64_t unclaimed; /* bytes that are not announced to others while it is given up */
    uint64_t place;     /* of its contents in the store */
    bool stored;        /* its contents are there */
    bool returned;      /* in this attempt to resume */
    bool lost;          /* its address could not be reserved again */
    uint64_t epoch;     /* of its free, while it waits for idle devices; 0: not known */
    uint64_t rest;      /* the number of the rest that proves it idle */
    unsigned residents;
    struct {
        ze_context_handle_t context;
        ze_device_handle_t device;
    } resident[ZR_PAUSABLE_RESIDENTS];
};
/*
 * Calls see() for each block until it returns false. BOOKS is closed. Returns whether all were
 * seen.
 */
bool zr_pausable_each(bool (*see)(struct zr_pausable *p, void *arg), void *arg);
/*
 * Gives the memory of a block up, and keeps its address; gets it back there. BOOKS is closed, or
 * the block is nobody else's.
 */
bool zr_pausable_give_up(struct zr_pausable *p);
ze_result_t zr_pausable_get_back(struct zr_pausable *p);
void zr_pausable_make_resident(struct zr_pausable *p);
/*
 * Frees what was freed by the program and is idle by now; for how long the oldest waits, 0: none.
 */
bool zr_leaving_settle(void);
uint32_t zr_leaving_ms(void);
void zr_blocks_fork_child(void);

/* --- contents.c: engines, and where contents are kept ----------------------------------------- */
/*
 * Makes room for this many bytes in host memory, or in a file in DIR; NULL, or why there is none.
 */
const char *zr_store_make(const char *folder, uint64_t bytes);
void zr_store_drop(void);
/* How much host memory it takes. */
uint64_t zr_store_host_bytes(void);
/* Copies a block's contents into its place, or back. */
bool zr_store_put(const struct zr_pausable *p);
bool zr_store_get(const struct zr_pausable *p);
/* Fills a block with zeros. */
bool zr_store_zero(const struct zr_pausable *p);
/* Whether contents are kept at all. */
bool zr_store_keeps(void);
/* A block was freed: its contents are dropped. */
void zr_store_forget(const struct zr_pausable *p);
/* Gives back the engines of a context; NULL: all. */
void zr_engines_drop(const void *context);
void zr_contents_fork_child(void);

/* --- kernels.c -------------------------------------------------------------------------------- */
/* Sets the arguments again that point into blocks that were given up. */
void zr_kernels_set_again(void);
void zr_kernels_fork_child(void);

/* --- session.c -------------------------------------------------------------------------------- */
/* The thread of ours must make no more calls. */
bool zr_pause_halts(void);
/* Starts it, once. Returns whether it runs. */
bool zr_pause_start(void);
/* Says what was moved so far. */
void zr_pause_moved(int64_t bytes);
/* A rest of all devices that begins after this call has this number; whether it has ended. */
uint64_t zr_rest_after_now(void);
bool zr_rest_has_ended(uint64_t number);

#pragma GCC visibility pop

#endif
