/*
 * The map of work/: what the program has given its devices to do, and what of it is proven to be
 * done.
 *
 * A *runner* is what executes submissions: an immediate command list, or a command queue. Each
 * submission has a number on its runner, and the epoch in which it was made. The epoch advances
 * with every free, so a block that was freed in epoch e can be used only by submissions of epoch e
 * and before: it is idle once all of them are proven.
 *
 * Only what the driver has answered proves anything: a wait that succeeded for a list, a queue, a
 * device, a fence or an event. A wait proves what had been submitted, and had returned from the
 * driver, when it began.
 */
#ifndef ZEROUTE_WORK_H
#define ZEROUTE_WORK_H

#include "base/base.h"

#pragma GCC visibility push(hidden)

struct zr_runner;

/* --- submissions.c: runners, epochs, and what is proven --------------------------------------- */
struct zr_submission {
    struct zr_runner *runner; /* NULL: nothing to end */
    uint64_t number;          /* on that runner */
};
/*
 * Begins a submission, before the driver is called. One locked instruction if the runner is known
 * to nobody else.
 */
struct zr_submission zr_work_begin(struct zr_runner *runner);
/* The driver has returned. */
void zr_work_end(const struct zr_submission *s);
/* What a wait for all of a runner that begins now will prove. */
uint64_t zr_work_waited(struct zr_runner *runner);
/* Everything up to this number is done. */
void zr_work_prove(struct zr_runner *runner, uint64_t number);
/* This one is done, and with it what was submitted before, if the runner executes in order. */
void zr_work_prove_one(struct zr_runner *runner, uint64_t number);
/* Calls see() for each runner of a device. */
void zr_work_each(unsigned device, void (*see)(struct zr_runner *runner, void *arg), void *arg);

/* A block is freed now: returns its epoch, and begins the next one. */
uint64_t zr_work_freed(void);
/* All submissions of epochs below this one are proven. 20 ns, and 2 ns more for each runner. */
uint64_t zr_work_proven(void);
static inline bool zr_work_is_idle(uint64_t epoch) {
    return epoch < zr_work_proven();
}

/*
 * Whether everything that a device was given was seen. Once something may have been missed, nothing
 * counts as proven for the rest of the process; it is said once, and zr_work_why() has the reason
 * ("" until then). Returns false too while it cannot be told.
 */
bool zr_work_is_sure(void);
ZR_COLD void zr_work_lost(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *zr_work_why(void);
/*
 * Somebody asks what is idle, or which cards copy: the entry points of work.def are hooked. Decided
 * by the settings at the start.
 */
bool zr_work_is_watched(void);
void zr_work_fork_child(void);

/* --- by_handle.c: lists, queues, fences and events by handle ---------------------------------- */
struct zr_runner *zr_runner_new(unsigned device, bool in_order, bool synchronous);
bool zr_runner_is_synchronous(const struct zr_runner *runner);

/* After their creation has succeeded. */
void zr_work_list_made(const void *list, unsigned device, bool immediate, bool in_order,
                       bool synchronous);
void zr_work_queue_made(const void *queue, unsigned device, bool synchronous);
/*
 * A list, a queue or a pool of events is being destroyed. Of a list or a queue the specification
 * makes the caller vouch that nothing executes there any more. The second function says whether it
 * was.
 */
struct zr_submission zr_work_going(const void *handle);
void zr_work_gone(const void *handle, const struct zr_submission *last, bool gone);
/*
 * Events of such a pool may be signalled by others, or are counters (a signal replaces the one
 * before).
 */
void zr_work_pool_made(const void *pool, bool shared, bool counter_based);
void zr_work_pool_shared(const void *pool);
void zr_work_event_made(const void *event, const void *pool, bool counter_based);
void zr_work_event_gone(const void *event);
void zr_work_fence_made(const void *fence, bool signalled);
void zr_work_fence_gone(const void *fence);

/*
 * The runner of an immediate list or a queue. NULL for a list that runs later, on a queue (*later),
 * or is not known.
 */
struct zr_runner *zr_work_runner(const void *handle, bool *later);
/*
 * Something was appended to a list that runs later; or it was reset. How many there are that hold
 * commands.
 */
void zr_work_list_filled(const void *list, bool filled);
unsigned zr_work_lists_filled(void);
/* Of a list or queue; UINT16_MAX if it is not known. */
unsigned zr_work_device(const void *handle);
/*
 * An event or a fence is about to be signalled by a submission: until zr_work_signals_end() it
 * proves nothing.
 */
void zr_work_signals_begin(const void *handle);
void zr_work_signals_end(const void *handle, const struct zr_submission *s, bool good);
/*
 * In between: the submission begins after these events, and so what signals them is done when it
 * is.
 */
void zr_work_signals_after(const void *handle, const struct zr_submission *s, uint32_t count,
                           const void *const *waits);
/*
 * It was, or may be, signalled by something else: it proves nothing until it is reset; for ever if
 * `ever`.
 */
void zr_work_signal_unknown(const void *handle, bool ever);
void zr_work_signal_reset(const void *handle);

/* A wait for a fence or an event: what it will prove if it succeeds. */
struct zr_awaited {
    void *object;
    struct zr_runner *runner;
    uint64_t number, generation;
};
struct zr_awaited zr_work_await(const void *handle);
void zr_work_awaited(const struct zr_awaited *a);
void zr_work_handles_fork_child(void);

#pragma GCC visibility pop

#endif
