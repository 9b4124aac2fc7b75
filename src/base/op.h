/*
 * An operation: one call in progress. It lies on the stack of the entry point, and the thread's
 * structure points to the innermost one. What a function needs to know about the call is here or in
 * its arguments: what happened below is read from the operation, what is above it from op->above.
 * doc/architecture.md says who writes and who reads each field.
 */
#ifndef ZEROUTE_BASE_OP_H
#define ZEROUTE_BASE_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zr_block;
struct zr_library;
struct zr_watch;
struct zr_watcher;
struct zeroute_record_event;

/* Where a call reached us: its return address, and the hook that it came through. */
struct zr_arrival {
    const void *caller;
    uint32_t hook;
};

/*
 * ZR_ARRIVED((a, b)) is (from, a, b), and ZR_ARRIVES((int a, int b)) is (struct zr_arrival from,
 * int a, int b).
 */
#define ZR_LIST(...) __VA_ARGS__
#define ZR_ARRIVED(arguments) (from, ZR_LIST arguments)
#define ZR_ARRIVES(parameters) (struct zr_arrival from, ZR_LIST parameters)

/*
 * What was charged for a block, and against which ledgers: it is undone by what stands here,
 * whatever the settings say by then. All zero: nothing was charged.
 */
struct zr_charge {
    uint64_t bytes : 48, card : 8, ledgers : 8; /* enum zr_ledger */
};
_Static_assert(sizeof(struct zr_charge) == 8, "a block's is changed by one atomic operation");
enum zr_ledger {
    ZR_LEDGER_LIMIT = 1, /* what this process has of the card */
    ZR_LEDGER_CLAIM = 2  /* what it has announced of it to other processes */
};

/* Who refuses an allocation, if somebody does. */
enum zr_refuser {
#define ZR_BY_DRIVER(id, ...) ZR_REFUSED_BY_##id,
#define ZR_BY_SETTING(id, ...) ZR_REFUSED_BY_##id,
#define ZR_BY_OTHER(id, ...) ZR_REFUSED_BY_##id,
#include "base/refusals.def"
    ZR_REFUSERS
};

struct zr_op {
    struct zr_op *above; /* the operation that this one arrived below; NULL: none */
    uintptr_t mark;      /* tells it from what longjmp has left behind */
    const void *caller;
    const struct zr_library *library; /* the caller's */
    uint32_t hook;  /* that the call came through; calls to the driver go below it */
    uint16_t entry; /* the entry point, and */
    uint8_t via;    /* the kind of hook, as they were counted */
    bool entered;   /* it is the thread's, until zr_op_end() */
    bool admits;    /* calls that arrive below it are counted and decided; else they pass down */
    bool pooled;    /* a pool of ours asks: blocks allocated below it are its segments */
    uint8_t rooms;  /* retry loops in progress (policy/room.c) */
    uint8_t refused_by;   /* enum zr_refuser: of the last allocation */
    uint32_t driver_code; /* of the last allocation, for callers that are given a translated one */
    struct zr_block *block;           /* what was allocated below it */
    struct zr_charge charge;          /* of the last allocation, until its block has it */
    const struct zr_watcher *watcher; /* is told what arrives below it, or NULL */
    struct zr_watch *watch;           /* where it notes that */
    const void *told;                 /* a pointer whose wrong free was reported already, or NULL */
    uint64_t began; /* when the call of its next event in the record began; 0: not known */
    struct zeroute_record_event *freed; /* its last FREE in the record, while that is carried out */
    struct {                            /* the call to the driver */
        uint64_t start;
        size_t bytes;
        uint32_t weight;
        uint32_t code;
    } down;
};

#endif
