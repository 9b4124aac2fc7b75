/*
 * The map of check/: memory errors on the device (the setting `check`). Called by policy/ alone; hook/start.c has its
 * end and its fork. Grouped by the file that defines it.
 *
 * A worker thread does all work on the device. No call of the program waits for it longer than check_wait, nothing is
 * changed before the device came to rest, and without the setting nothing of this runs: one predictable branch.
 */
#ifndef ZEROUTE_CHECK_H
#define ZEROUTE_CHECK_H

#include "cache/cache.h"
#include "driver/driver.h"

#pragma GCC visibility push(hidden)

static inline bool zr_checking(void) {
    return unlikely(zr_config.check > ZR_CHECK_NONE);
}

/* --- checked.c: what policy/ tells us ----------------------------------------------------------------------------- */
/* How much to reserve for a request of so many bytes: a red zone more where one can be had. */
size_t zr_check_held(enum zr_kind kind, ze_device_handle_t device, const void *desc, size_t size);
/* A block was given out; b may be NULL. `release` gives a block back to the driver. */
void zr_check_born(const struct zr_call *call, struct zr_block *b, ze_device_handle_t device, const void *desc,
                   void (*release)(const struct zr_block *b));
/*
 * The block is CACHED, out of the books, and ours alone. True: it is check's now, and goes back to the driver later.
 * False: the caller still has it, and nothing of ours uses it. Blocking: no command may use it when this returns true.
 */
bool zr_check_free(const struct zr_call *call, ze_context_handle_t context, struct zr_block *b, bool blocking);
/* A block leaves the books on another way than a free. */
void zr_check_forget(const struct zr_block *b);
/* Nobody may free this: around is the block that holds it, or NULL, and its word. */
void zr_check_bad_free(const void *ptr, const struct zr_block *around, uint64_t word);
/* What is held back for an account (ZR_ACCOUNTS: all) and a context (NULL: all) is verified and goes. Returns bytes. */
uint64_t zr_check_drain(unsigned account, const void *context);
/* Before a context goes: live blocks in it are reported. */
void zr_check_context_ends(const struct zr_call *call, const void *context);
/* Verifies every red zone and everything held back, now. False: not all of it in so many milliseconds. */
bool zr_check_now(uint32_t ms);
/* How many errors were found. */
uint32_t zr_check_errors(void);
void zr_check_fork_child(void);
void zr_check_process_end(void);

/* --- imports.c: check:ipc ----------------------------------------------------------------------------------------- */
/* The handle of the block that begins at base was taken; a handle was opened; what is open at ptr was closed. */
void zr_check_exported(const void *base, const ze_ipc_mem_handle_t *handle);
void zr_check_imported(const void *ptr, const ze_ipc_mem_handle_t *handle);
void zr_check_closed(const void *ptr);

/* --- among the files of check/ ------------------------------------------------------------------------------------ */
enum { ZR_FRAMES = 16 };

/* Who did something: a thread and its frames, innermost first. */
struct zr_origin {
    uint32_t thread, count;
    uint64_t frame[ZR_FRAMES];
};

enum zr_checked_state {
    ZR_CHECKED_SPARE,  /* what it describes is gone; kept for a while to name a second free */
    ZR_CHECKED_LIVE,   /* the program has the block */
    ZR_CHECKED_QUEUED, /* freed, waits for the worker; may be withdrawn */
    ZR_CHECKED_BUSY,   /* freed, in the worker's hands; with ZR_WANT_POISON the device was at rest after the free */
    ZR_CHECKED_KEPT,   /* poisoned, in quarantine; may be withdrawn */
    ZR_CHECKED_DONE    /* the worker has done what it could, and whoever frees the block has it again */
};
enum zr_want { ZR_WANT_ZONE = 1, ZR_WANT_POISON = 2 }; /* when it is freed: look at its red zone, hold it back */
/* Of a block by a command of ours. Until it is being submitted the program's free may cancel it. */
enum zr_use { ZR_UNUSED, ZR_USE_BEGINS, ZR_USE_CANCELLED, ZR_USE_SUBMITTING, ZR_USE_SUBMITTED };

struct zr_checked_list {
    struct zr_checked *newest, *oldest;
    size_t blocks;
    uint64_t bytes;
};

/* One per block, type-stable like zr_block. What changes after birth changes under the worker's lock. */
struct zr_checked {
    struct zr_checked *newer, *older;
    struct zr_checked_list *in;
    struct zr_block *block; /* NULL: taken back by the program's own free while a command of ours was on its way */
    uintptr_t base;
    size_t size, held;
    ze_context_handle_t context;
    ze_device_handle_t device; /* NULL: memory that the processor reaches */
    uint64_t ticket;           /* when it was queued */
    uint32_t hook;
    uint32_t freed_ms;
    uint32_t use; /* atomic: enum zr_use */
    uint16_t account;
    uint8_t kind;
    uint8_t state; /* enum zr_checked_state */
    uint8_t want;  /* enum zr_want */
    bool chained;  /* its descriptor has extensions: never held back */
    bool armed;    /* its red zone is filled, and nothing was found in it */
    bool clean;    /* while KEPT: nothing was found in it */
    bool outlived; /* its context is gone, and that was reported: nothing is done with it any more */
    bool look;     /* zr_check_now() wants it looked at */
    bool leaves;   /* it is to go as soon as it can */
    bool awaited;  /* whoever freed it still looks at it */
    bool orphan;   /* whoever freed it did not wait: the worker gives it back */
    struct zr_origin born, freed;
};

/* worker.c: the thread, and what waits for it. */
extern struct zr_lock zr_check_lock; /* guards every list and every state */
extern struct zr_checked_list zr_check_arming, zr_check_live, zr_check_freed, zr_check_kept, zr_check_busy,
    zr_check_gone;
void zr_list_leave(struct zr_checked *c);
enum { ZR_DROPS = 8 };
extern struct zr_drops {
    const void *context[ZR_DROPS]; /* whose engines are to go */
    unsigned count;
} zr_check_drops;
extern int zr_check_hurry; /* atomic: calls for which verifying has taken too long */
bool zr_worker_runs(void);
void zr_worker_stop(void);
void zr_worker_ring(void);
/* Until done(arg), asked under the lock, is true, or so long has passed. The worker itself never waits here. */
bool zr_worker_await(bool (*done)(void *arg), void *arg, uint64_t ns);
/* To the driver, unless its context has gone meanwhile. */
void zr_worker_release(struct zr_checked *c);
/* Starts the worker if need be; false: there is none, and will be none. */
bool zr_worker_start(void (*release)(const struct zr_block *b));
/* A new descriptor, or an old one of a block that is gone; NULL: no memory. */
struct zr_checked *zr_worker_new(void);
/* It is LIVE from now on. Its red zone is filled, if it has one: waits check_wait at most. */
void zr_worker_born(struct zr_checked *c);
/* It is the program's to free, or gone. */
void zr_worker_take(struct zr_checked *c);
/* What c->want says is done; then as zr_check_free(). */
bool zr_worker_free(struct zr_checked *c, bool blocking);
/* The next block that zr_check_now() wants looked at, under the lock. */
struct zr_checked *zr_next_to_look_at(void);
/* drain.c */
/*
 * What matches is verified and released, in so many ms at most; what is left after that is released as it is, or just
 * counted if `closing`. Our own things in the context go. Returns the bytes.
 */
uint64_t zr_worker_drain(unsigned account, const void *context, uint32_t ms, bool closing);
bool zr_worker_check(uint32_t ms);
/* The process ends: no more calls into the driver. Somebody waits: no more verifying. */
bool zr_worker_halts(void);
bool zr_worker_hurries(void);
void zr_worker_fork_child(void);

/* poison.c: work on memory, by the worker alone. Each returns false if the driver refuses. */
bool zr_poison_fill(struct zr_checked *c, size_t from, size_t length);
/* The first and the last byte that is not as it was filled; first > last: all are. */
bool zr_poison_look(struct zr_checked *c, size_t from, size_t length, size_t *first, size_t *last);
/* Waits until no device has anything to do. False: it cannot be known. */
bool zr_poison_rest(void);
/* Lists and buffers of ours in a context (NULL: in all) go. */
void zr_poison_drop(const void *context);
/* A context goes while the worker is held up: what we have in it is left to the driver. By any thread. */
void zr_poison_abandon(const void *context);
void zr_poison_fork_child(void);

/* finding.c: what was found */
#define ZR_FINDINGS                                                                                                    \
    ZR_FINDING(WRITE_AFTER_FREE, "write_after_free", "freed memory that was written to")                               \
    ZR_FINDING(OVERRUN, "overrun", "writes behind the end of a block")                                                 \
    ZR_FINDING(UNDERRUN, "underrun", "writes before the start of a block")                                             \
    ZR_FINDING(DOUBLE_FREE, "double_free", "frees of a block that was freed before")                                   \
    ZR_FINDING(INTERIOR_FREE, "interior_free", "frees of a pointer into the middle of a block")                        \
    ZR_FINDING(FOREIGN_FREE, "foreign_free", "frees of a pointer that no allocation returned")                         \
    ZR_FINDING(WRONG_CONTEXT, "wrong_context", "frees through another context than the block's")                       \
    ZR_FINDING(CONTEXT_LIVE, "context_with_live_blocks", "contexts destroyed while they had blocks")                   \
    ZR_FINDING(LEAK, "leak", "ends of the process with blocks still allocated")                                        \
    ZR_FINDING(IPC_FREED_OPEN, "ipc_freed_while_open", "blocks freed while another process has them open")             \
    ZR_FINDING(IPC_STALE, "ipc_stale_import", "imports that their exporter has freed")                                 \
    ZR_FINDING(IPC_UNCLOSED, "ipc_not_closed", "imports that were opened more often than closed")
/* What is not an error and still has to be known. */
#define ZR_CHECK_COUNTS                                                                                                \
    ZR_CHECK_COUNT(BLOCKS, "blocks", "blocks that check has taken notice of")                                          \
    ZR_CHECK_COUNT(POISONED, "poisoned", "freed blocks that were poisoned and held back")                              \
    ZR_CHECK_COUNT(VERIFIED, "verified", "freed blocks that were verified before they went")                           \
    ZR_CHECK_COUNT(UNVERIFIED, "unverified", "freed blocks that went without: there was no time, or no rest")          \
    ZR_CHECK_COUNT(PASSED_SHARED, "not_checked.shared", "blocks with an IPC handle, imported or with extensions")      \
    ZR_CHECK_COUNT(PASSED_SIZE, "not_checked.size", "blocks larger than check_quarantine")                             \
    ZR_CHECK_COUNT(PASSED_BUSY, "not_checked.busy", "blocks that the device was too busy for")                         \
    ZR_CHECK_COUNT(PASSED_FAILED, "not_checked.failed", "blocks that the driver did no work on for check")             \
    ZR_CHECK_COUNT(TIMEOUTS, "timeouts", "calls that have waited for check_wait in vain")

enum zr_finding {
#define ZR_FINDING(id, name, help) ZR_FOUND_##id,
    ZR_FINDINGS
#undef ZR_FINDING
        ZR_FOUND
};
enum zr_check_count {
#define ZR_CHECK_COUNT(id, name, help) ZR_CHECKED_##id,
    ZR_CHECK_COUNTS
#undef ZR_CHECK_COUNT
        ZR_CHECKED_COUNTS
};
void zr_check_count(enum zr_check_count what, uint64_t n);
/* The thread that calls, and its stack. A few us. */
void zr_origin_here(struct zr_origin *o);

/* The text of a finding, made line by line and cut where it is full. */
struct zr_account_of {
    char text[4096];
    size_t used;
};
void zr_tell(struct zr_account_of *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void zr_tell_origin(struct zr_account_of *t, const char *what, const struct zr_origin *o);
/* Address, size, kind, card and context of a block. */
void zr_tell_block(struct zr_account_of *t, const struct zr_checked *c);
/* By the worker: looks at a red zone, or at a block in quarantine, and reports. False: the driver refuses. */
bool zr_look_at_zone(struct zr_checked *c);
bool zr_look_at_freed(struct zr_checked *c);
/* Counts it; the first ten are printed and published. */
void zr_found(enum zr_finding what, const struct zr_account_of *t);
/* Whether text is worth making: fewer than ten were told. */
bool zr_found_is_told(void);
void zr_found_fork_child(void);
/* imports.c: a block is freed; look at what has become of imports; the process ends. */
void zr_handles_freed(const struct zr_checked *c);
void zr_handles_look(void);
void zr_handles_end(void);
void zr_handles_fork_child(void);

/* At the end: how many were not told, and what could not be verified. */
void zr_found_summary(void);

#pragma GCC visibility pop

#endif
