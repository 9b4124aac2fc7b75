/*
 * The turnstile: one thread at a time passes the driver's door, and a seed decides which.
 *
 * The library libze_loader.so.1 (scheduler.c, driver.c) takes the place of the Level Zero loader. The program
 * (program.c, truth.c, ...) runs above the preload and is linked to it. Only one thread runs between two points, so
 * nothing here needs a lock.
 */
#ifndef TURNSTILE_H
#define TURNSTILE_H

#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TS_THREADS = 16, /* of one run, those that the preload starts included */
    TS_STEPS = 8192, /* remembered */
    TS_CARDS = 2,
    TS_CONTEXTS = 4,
    TS_PAGE = 1 << 16
};

/* --- scheduler.c: points, threads, time --------------------------------------------------------------------------- */

struct ts_step {
    uint64_t number;
    int thread;
    const char *place; /* a literal: the runner is the same image, so it can read it, too */
    uint64_t subject;
    char operation[80];
};

/* Shared by the runner and the process that runs a seed: what is left of that one if it dies. */
struct ts_shared {
    uint64_t steps, switches, calls;
    uint64_t time;              /* virtual, ns */
    uint64_t used[TS_CARDS];    /* of each card, by all processes of a run */
    uint64_t limited[TS_CARDS]; /* what of it counts against a limit */
    char violation[640];
    uint32_t threads;
    struct {
        char operation[80];
        const char *place;
        const char *state;
    } thread[TS_THREADS];
    struct ts_step step[TS_STEPS]; /* a ring, by number */
    uint32_t ended;                /* the run came to its end */
    uint32_t notes;                /* counted by the program, for the table of what was reached */
};
extern struct ts_shared *ts_shared;

/* How the next thread is chosen at a point. */
enum ts_strategy { TS_UNIFORM, TS_STAY, TS_PRIORITIES, TS_SCRIPT, TS_STRATEGIES = TS_SCRIPT };

/* The calling thread becomes thread 0 of a run. */
void ts_begin(uint64_t seed, enum ts_strategy strategy, uint64_t most_steps);
/* The script is done: threads of the preload go on, too. */
void ts_script_done(void);
/* Starts a thread, which waits until it is chosen. Its random stream is that of `stream`. Returns its number. */
int ts_start(void (*run)(void *), void *arg, unsigned stream);
/* Waits until this thread has ended. */
void ts_join(int thread);
/*
 * A second process behind the same turnstile, before this one has called the preload. Returns -1 in it, and in this one
 * the number of its first thread, to be joined. It ends by ts_process_ends().
 */
int ts_process(unsigned stream);
void ts_process_ends(void) __attribute__((noreturn));
/* From here on threads run as the system likes. */
void ts_end(void);
/* The number of the calling thread, or -1. */
int ts_self(void);
/* Whether the preload has started this thread. */
bool ts_is_daemon(void);
/* A number that increases at every point. */
uint64_t ts_now(void);
/* What the calling thread does from now on; its random stream begins anew. NULL: nothing. */
void ts_operation(unsigned index, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The calling thread parks; another may go on. */
void ts_point(const char *place, const void *subject);
/* Whether the points of atomic operations count (the second build of the preload). */
extern bool ts_atomics;
void ts_atomic_point(void);
/* Says what is wrong, where every thread is, and ends the process. The first one counts. */
void ts_violation(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* fork. In the child nothing is scheduled any more, and it has to end by ts_child_ends. */
int ts_fork(void);
void ts_child_ends(void) __attribute__((noreturn));
bool ts_is_child(void);
/* Called by a violation before the process ends. */
extern void (*ts_last_words)(void);

/* For scripts: runs `thread` alone until it parks at this place, or until it has done what it was told: then false. */
bool ts_run_until(int thread, const char *place);
/* A thread of a script has done what it was told. */
void ts_idle(void);

static inline uint64_t ts_mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* --- driver.c: what the driver has given out: the truth ----------------------------------------------------------- */

enum ts_kind { TS_DEVICE, TS_HOST, TS_SHARED, TS_PHYSICAL, TS_KINDS };
struct ts_block {
    uintptr_t base;
    size_t size, room; /* room: in whole pages */
    enum ts_kind kind;
    int card, context;
    bool live, exported, past_us;
    bool refused;      /* a free of it, once: what becomes of it then nobody can promise */
    uint32_t resident; /* cards, a bit each */
    uint64_t given;    /* when */
};
struct ts_driver {
    uint64_t vram[TS_CARDS];    /* of each card */
    uint64_t used[TS_CARDS];    /* device, shared and physical memory */
    uint64_t limited[TS_CARDS]; /* what of it counts against the limit: device and physical memory */
    uint64_t most, most_of_all; /* more of that on one card, by this process or all, breaks a promise */
    unsigned blocks, physical, ranges, imports, handles, lists;
    unsigned refuse_free, refuse_alloc; /* the next so many */
    ze_result_t refusal;
    bool fdinfo;      /* the kernel tells */
    char kernel[160]; /* the folder that holds its figures, or empty */
    bool spills;      /* what is more than the card has is given out all the same, and is wrong */
};
extern struct ts_driver ts_driver;
/* What the program knows; each may be NULL. Called while nobody else runs. */
struct ts_truth {
    void (*given)(const struct ts_block *b);
    void (*taken)(uintptr_t address, const struct ts_block *b); /* b is NULL: nothing is there */
    void (*context_gone)(int context);
    void (*refused)(void); /* a free, because ts_driver says so */
};
extern struct ts_truth ts_truth;

void ts_driver_begin(uint64_t seed);
/* What this process has left goes back to the cards. */
void ts_driver_ends(void);
const struct ts_block *ts_block_at(uintptr_t base);
const struct ts_block *ts_block_around(uintptr_t address);
/* The driver drops it by itself. */
void ts_block_goes(const struct ts_block *b);
void ts_each_block(void (*see)(const struct ts_block *b, void *arg), void *arg);
bool ts_context_is_live(int context);
int ts_context_number(ze_context_handle_t context);
ze_device_handle_t ts_device(int card);
ze_driver_handle_t ts_driver_handle(void);
/* Memory that nobody above sees being allocated; where nothing has been before, if `fresh`. NULL: there is no room. */
void *ts_allocate_past(int context, size_t size, bool fresh);
/* Writes what the kernel says. */
void ts_kernel_tells(void);
/* -1: it is none. */
int ts_card_number(ze_device_handle_t device);

/* --- device.c: commands ------------------------------------------------------------------------------------------- */
void ts_device_begin(uint64_t seed);
/* No command is done before somebody waits for it, and no wait fails. */
void ts_device_waits(void);
/* Now and then a command is done; all are done. */
void ts_device_goes_on(void);
void ts_device_finishes(void);
/* Whether a command that is not done uses this block. */
bool ts_device_uses(const struct ts_block *b);
/* The same of a part of it. */
bool ts_device_uses_range(uintptr_t p, size_t size);
void ts_device_frees(const struct ts_block *b, unsigned policy);
/* Whether commands of a list or a queue are not done; will signal an event; count for a fence. */
bool ts_device_is_busy(const void *list_or_queue);
bool ts_device_signals(ze_event_handle_t event);
bool ts_device_fences(ze_fence_handle_t fence);

/* --- the door ----------------------------------------------------------------------------------------------------- */

/* A function of the driver: point, effect, point. `subject` is what the step is about. */
#define TS_DOOR(name, parameters, subject, effect)                                                                     \
    ze_result_t name parameters; /* the installed header may lack it */                                                \
    ze_result_t name parameters {                                                                                      \
        ze_result_t result;                                                                                            \
        ts_point("before " #name, (const void *)(subject));                                                            \
        ts_shared->calls++;                                                                                            \
        ts_device_goes_on();                                                                                           \
        result = (effect);                                                                                             \
        ts_point("after " #name, (const void *)(subject));                                                             \
        return result;                                                                                                 \
    }

#endif
