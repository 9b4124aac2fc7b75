/*
 * The map of check/: memory errors on the device (the setting `check`). Called by policy/ alone;
 * hook/start.c has its end and its fork. Grouped by the file that defines it. A worker thread does
 * all work on the device. No call of the program waits for it longer than check_wait, and no memory
 * is changed before the device is idle. Without the setting this costs one predictable branch.
 */
#ifndef ZEROUTE_CHECK_H
#define ZEROUTE_CHECK_H

#include "cache/cache.h"
#include "driver/driver.h"
#include "machine/machine.h"

#pragma GCC visibility push(hidden)

static inline bool zr_checking(void) {
    return unlikely(zr_config.check > ZR_CHECK_NONE);
}

static inline bool zr_checks(enum zr_value what) {
    return zr_config.check == what || zr_config.check == ZR_CHECK_ALL;
}

enum { ZR_FRAMES = 16 };
/* Who did something: a thread (0: nobody has yet) and its frames, innermost first. */
struct zr_origin {
    uint32_t thread, count;
    uint64_t frame[ZR_FRAMES];
};
/* Notes the calling thread and its stack. A few us. */
void zr_origin_here(struct zr_origin *o);

/* --- checked.c: what policy/ tells us --------------------------------------------------------- */
/*
 * Whether a SYCL runtime pools no blocks, so that each of them is seen: a variable that it read in
 * time says so.
 */
bool zr_check_pool_is_off(void);
/* How much to reserve for a request: room for a red zone is added where possible. */
size_t zr_check_held(enum zr_kind kind, bool plain, size_t size);
/*
 * A block was handed out; b may be NULL. Plain: its descriptor has no extension. release() gives it
 * to the driver.
 */
void zr_check_born(const struct zr_op *op, struct zr_block *b, ze_device_handle_t device,
                   bool plain, zr_release *release);
/*
 * The block is CACHED, out of the books, and owned by the caller. Returns true if check takes it
 * over and frees it later; false if the caller keeps it and is to free it now, with the driver's
 * answer: nothing of ours uses it then. No command uses it when this returns true, whatever `use`
 * was.
 */
enum zr_use {
    ZR_USE_POSSIBLE, /* it was freed with BLOCKING or DEFER */
    ZR_USE_DENIED,   /* the caller vouches that no command uses it, which is not believed */
    ZR_USE_ENDED     /* work/ has the proof: poisoned at once */
};
bool zr_check_free(const struct zr_op *op, ze_context_handle_t context, struct zr_block *b,
                   enum zr_use use);
/* Reports a wrong free; `around` is the block that holds ptr, or NULL, and its word. */
void zr_check_bad_free(const void *ptr, const struct zr_block *around, uint64_t word);
/* Whether this is memory of check's own: the driver knows it, and the program must not. */
bool zr_check_owns(const void *ptr);
/*
 * Memory was mapped where other memory was mapped before, and another card may go on reading that.
 */
void zr_check_remapped(const void *ptr, size_t size, const struct zr_origin *unmapped);
/* Before a context is destroyed: reports live blocks in it. */
void zr_check_context_ends(const void *context);
void zr_check_process_end(void);

/* --- worker.c, finding.c: what is held back, and what was found ------------------------------- */
/* A block leaves the books in another way than by a free. */
void zr_check_forget(const struct zr_block *b);
/*
 * Verifies and gives back all that is held back. With a context, which is about to be destroyed,
 * also destroys our own objects in it and stops all work in it. Returns the bytes.
 */
uint64_t zr_check_drain(void *context);
/*
 * Verifies every red zone and all that is held back, now. Returns false if that took longer than
 * `ms`.
 */
bool zr_check_now(uint32_t ms);
/* How many errors were found. */
uint32_t zr_check_errors(void);

/* --- imports.c: check:ipc --------------------------------------------------------------------- */
/*
 * The handle of the block that begins at base was taken; a handle was opened, as this import (-1:
 * it is not known to others).
 */
void zr_check_exported(const void *base, const struct zr_handle_id *id);
void zr_check_imported(int import);
/* Reports each import that its exporter has freed, once. */
void zr_imports_look(void);

/* --- among the files of check/ ---------------------------------------------------------------- */

/* Where a descriptor is: its state, and the list that it is in. */
enum zr_checked_place {
    ZR_CHECKED_NOWHERE,
    ZR_CHECKED_LIVE,  /* the program has the block */
    ZR_CHECKED_ASKED, /* the worker is to fill the red zone of a live block, or to verify it */
    ZR_CHECKED_FREED, /* the worker is to poison it once the device has been idle after the free */
    ZR_CHECKED_KEPT,  /* in quarantine */
    ZR_CHECKED_LEAVING, /* the worker is to verify it and to give it back */
    ZR_CHECKED_GONE,    /* given back; the descriptor is kept for a while to name a second free */
    ZR_PLACES
};

/*
 * One per block, type-stable like zr_block. What changes after birth changes under zr_check_lock.
 */
struct zr_checked {
    struct zr_checked *newer, *older;
    struct zr_block *block; /* NULL: check is done with it */
    uintptr_t base;
    size_t size, held;
    ze_context_handle_t context;
    ze_device_handle_t device; /* NULL: memory that the processor reaches */
    /* Of its free, once check has it: later ones have higher numbers; else 0. */
    uint64_t ticket;
    uint32_t hook;
    uint16_t account;
    uint8_t kind;
    uint8_t place;    /* enum zr_checked_place */
    bool may_be_kept; /* its descriptor has no extensions */
    bool is_idle;     /* it was freed, and no command can use it */
    /* The processor may use it, so the device must not, until it is freed. */
    bool exempt;
    bool armed;                 /* its red zone is filled, and nothing was found in it */
    bool poisoned;              /* it is filled, and nothing was found in it */
    struct zr_handle_id handle; /* the last one that was taken of it */
    struct zr_origin born, freed;
};

struct zr_checked_list {
    struct zr_checked *newest, *oldest;
    size_t blocks;
    uint64_t bytes;
};

/*
 * checked.c: the descriptor for a block, which may be NULL, or for the block that holds an address;
 * or NULL.
 */
struct zr_checked *zr_checked_of(const struct zr_block *b);
struct zr_checked *zr_checked_at(uintptr_t address);

/* worker.c: the thread, its lists, and those who wait for it. */
/* Guards lists, descriptors and engines; never held while the driver is called. */
extern struct zr_lock zr_check_lock;
extern struct zr_checked_list zr_check_list[ZR_PLACES];
/*
 * The block now belongs to the program. Has its red zone filled, if there is one: waits check_wait
 * at most.
 */
void zr_worker_born(const struct zr_checked *as, zr_release *release);
/*
 * As zr_check_free(). Verifies its red zone and that of `before`, unless NULL; with `poison` it is
 * held back.
 */
bool zr_worker_free(struct zr_checked *c, struct zr_checked *before, bool poison, enum zr_use use);
/*
 * Starts the worker, at the first block or import. Returns false if there is none and never will
 * be.
 */
bool zr_worker_start(void);
/* Whether the process ends: no more calls into the driver. */
bool zr_worker_halts(void);
void zr_worker_fork_child(void);

/*
 * poison.c: work on memory, by the worker alone. Return false if the driver refuses or there is no
 * time.
 */
/* With from == to nothing is filled: returns once the device carries out commands of ours. */
bool zr_poison_fill(const struct zr_checked *c, size_t from, size_t to);
/* The first and the last byte that differ from the fill; first > last if none does. */
bool zr_poison_look(const struct zr_checked *c, size_t from, size_t to, size_t *first,
                    size_t *last);
/*
 * Any thread: destroys our objects in a context (NULL: in all); only forgets them if the worker is
 * held up in it.
 */
void zr_poison_drop(const void *context, bool held_up);

/* finding.c: what was found, and other things that are counted. */
#define ZR_FINDINGS                                                                                \
    ZR_FINDING(WRITE_AFTER_FREE, "write_after_free", "freed memory that was written to")           \
    ZR_FINDING(OVERRUN, "overrun", "writes behind the end of a block")                             \
    ZR_FINDING(UNDERRUN, "underrun", "writes before the start of a block")                         \
    ZR_FINDING(DOUBLE_FREE, "double_free", "frees of a block that was freed before")               \
    ZR_FINDING(INTERIOR_FREE, "interior_free", "frees of a pointer into the middle of a block")    \
    ZR_FINDING(FOREIGN_FREE, "foreign_free", "frees of a pointer that no allocation returned")     \
    ZR_FINDING(WRONG_CONTEXT, "wrong_context", "frees through another context than the block's")   \
    ZR_FINDING(CONTEXT_LIVE, "context_with_live_blocks",                                           \
               "contexts destroyed while they had blocks")                                         \
    ZR_FINDING(LEAK, "leak", "ends of the process with blocks still allocated")                    \
    ZR_FINDING(REMAPPED, "remapped_under_peer",                                                    \
               "memory mapped where another card may read what was there before")                  \
    ZR_FINDING(IPC_FREED_OPEN, "ipc_freed_while_open",                                             \
               "blocks freed while another process has them open")                                 \
    ZR_FINDING(IPC_STALE, "ipc_stale_import", "imports that their exporter has freed")             \
    ZR_FINDING(IPC_UNCLOSED, "ipc_not_closed", "imports that were opened more often than closed")  \
    ZR_FINDING(ERRORS, "errors", "errors that check has found, leaks at the end not counted")      \
    ZR_FINDING(BLOCKS, "blocks", "blocks that check has taken notice of")                          \
    ZR_FINDING(POISONED, "poisoned", "freed blocks that were poisoned and held back")              \
    ZR_FINDING(PROVEN, "proven", "freed blocks that no command could use: no wait for the device") \
    ZR_FINDING(VERIFIED, "verified", "freed blocks that were verified before they went")           \
    ZR_FINDING(UNVERIFIED, "unverified",                                                           \
               "freed blocks that went without: there was no time, or no rest")                    \
    ZR_FINDING(PASSED_SHARED, "not_checked.shared",                                                \
               "blocks with an IPC handle, imported or with extensions")                           \
    ZR_FINDING(PASSED_SIZE, "not_checked.size", "blocks larger than check_quarantine")             \
    ZR_FINDING(PASSED_ZONE, "not_checked.zone",                                                    \
               "blocks without a red zone: no memory for one, or no time")                         \
    ZR_FINDING(PASSED_BUSY, "not_checked.busy", "blocks that the device was too busy for")         \
    ZR_FINDING(PASSED_FAILED, "not_checked.failed",                                                \
               "blocks that the driver did no work on for check")                                  \
    ZR_FINDING(TIMEOUTS, "timeouts", "calls that have waited for check_wait in vain")

enum zr_finding {
#define ZR_FINDING(id, name, help) ZR_FOUND_##id,
    ZR_FINDINGS
#undef ZR_FINDING
        ZR_FOUND
};
void zr_check_count(enum zr_finding what, uint64_t n);

/*
 * The text of a finding, built line by line and cut if it is full. Empty once ten findings have
 * been printed.
 */
struct zr_report {
    enum zr_finding what;
    size_t used;
    char text[4096];
    size_t modules_used;
    /* "name=path" of the frames' libraries, for a reader that looks up their lines. */
    char modules[1024];
};
void zr_tell(struct zr_report *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds who did something, if anybody has. */
void zr_tell_origin(struct zr_report *r, const char *what, const struct zr_origin *o);
/* Address, size, kind, card and context of a block, and who allocated and freed it. */
void zr_tell_block(struct zr_report *r, const struct zr_checked *c);
/* Counts an error; the first ten are printed and published. */
void zr_found(struct zr_report *r);
/*
 * By the worker: verifies a red zone or a poisoned block, and reports once. Returns false as
 * zr_poison_look() does.
 */
bool zr_look(struct zr_checked *c, bool at_zone);
/* At the end: reports how many were not printed, and what could not be verified. */
void zr_found_summary(void);
void zr_found_fork_child(void);

/* imports.c: an exported block is freed; the process ends. */
void zr_exports_freed(const struct zr_checked *c);
void zr_imports_end(void);

#pragma GCC visibility pop

#endif
