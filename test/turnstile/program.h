/*
 * The program above the preload: what it owns, what it does, and what must hold. Grouped by the file that defines it.
 */
#ifndef TURNSTILE_PROGRAM_H
#define TURNSTILE_PROGRAM_H

#include "turnstile.h"

/* --- settings.c: under what the program runs ---------------------------------------------------------------------- */
enum setting_flag {
    REFUSES = 1, /* a wrong free never reaches the driver */
    HAS_CACHE = 2,
    LIMITED = 4,  /* limit in bytes */
    AUTO = 8,     /* limit:auto */
    FDINFO = 16,  /* the kernel tells what is used */
    FLAKY = 32,   /* sometimes */
    CHECKED = 64, /* red zones and quarantine: the driver holds more than the program */
    RECORDED = 128,
    SEVERAL = 256, /* two processes, on cards that are too small for both */
    SYCL = 512,    /* a SYCL runtime, too */
    GROUP = 2048,  /* both of them share a limit, in bytes */
    VOUCHES = 1024 /* no command uses what the program frees at the SYCL level (reuse:always) */
};
struct setting {
    const char *name, *conf;
    unsigned flags;
    uint64_t limit;
};
extern const struct setting settings[];
extern const unsigned setting_count;
const struct setting *setting_named(const char *name);

/* --- truth.c: what the program owns, and what follows from that --------------------------------------------------- */
enum { OWNERS = 2048, NO_OWNER = -1 };
struct owner { /* one allocation of the program, from its call on; never forgotten */
    uintptr_t p;
    size_t size, given_size; /* as asked for, and as the driver gave it */
    enum ts_kind kind;
    int card, context;
    uint64_t called, returned, free_called, gone; /* times of the truth; 0: not yet */
    uint32_t frees;                               /* in flight: the threads, a bit each */
    unsigned calls;                               /* that other threads are in about it */
    unsigned submitting;                          /* of them, those that must be over before it is freed */
    uint64_t given;                               /* when the driver gave out its block */
    bool exported, orphaned;
    bool spent;     /* being freed, and the driver has given its address to somebody else already */
    bool contested; /* a wrong free may have taken it */
    bool doomed;    /* it was freed in the driver before its allocation returned, which this setting allows */
    bool past_us;
};
extern struct owner owners[OWNERS];
extern int owner_count;
extern const struct setting *truth_setting;
extern unsigned truth_failed; /* allocations */
extern bool truth_inexact;    /* what the books say is no longer known: a wrong free has reached the driver */

void truth_begin(const struct setting *s);
uint64_t truth_time(void);
void truth_alloc_begins(void);
/* Returns the owner, NO_OWNER if the allocation failed. */
int truth_alloc_ends(ze_result_t result, const void *p, size_t size, enum ts_kind kind, int card, int context);
void truth_free_begins(const void *p);
void truth_free_ends(ze_result_t result);
/* Whether a wrong free is refused; no longer once the cache may be off. */
bool truth_refuses(void);
void truth_may_pass(void);
/* Whether the driver has refused something in this thread's last call. */
bool truth_was_refused(void);
/* Nothing that the program owns lies there. */
void truth_must_be_free(uintptr_t p, size_t size);
/* An answer about p: whether it is allocated, and if so where its block begins and ends (or 0). */
void truth_answer(uint64_t asked, const void *p, bool live, const void *base, size_t size);
/* All answers, now that every interval is known. */
void truth_check_answers(void);
/* Where nobody frees it. */
static inline bool owner_is_held(const struct owner *o) {
    return o->returned && !o->gone && !o->frees && !o->orphaned && !o->doomed && !o->past_us;
}

/* --- segment.c: the books of the preload -------------------------------------------------------------------------- */
/* Maps the segment of this process; false if there is none. */
bool segment_open(void);
/* A field as a signed number: fields are not clamped. False if there is no such field. */
bool segment_value(const char *name, int64_t *value);
/* The name of a gauge below zero, or NULL. */
const char *segment_negative(int64_t *value);
/* What is announced for a card, and what of it is in no block. */
bool segment_claim(int card, int64_t *blocks, int64_t *unseen);
/* Writes a request; the next call carries it out. False if there is no segment. */
bool segment_request(const char *text);
const char *segment_reply(void);
void segment_unlink(void);

/* --- operations.c: what a thread does ----------------------------------------------------------------------------- */
struct actor {
    uint64_t random;
    unsigned thread, index;
};
struct operation {
    const char *name;
    unsigned weight;
    void (*act)(struct actor *a);
    unsigned needs, not_with; /* flags of the setting */
};
/* For operations in other files. */
uint64_t draw(struct actor *a);
/* A context that lives until leave_context(); -1 if there is none. */
int enter_context(struct actor *a);
void leave_context(int c);
ze_context_handle_t program_context(int c);
/* One of the owners that `fits`, NO_OWNER if there is none. */
int some_owner(struct actor *a, bool (*fits)(const struct owner *o));
size_t some_size(struct actor *a);
extern const struct operation operations[];
extern const unsigned operation_count;
void operations_begin(void);
/* Context 0 and 1, cards, drivers. */
void program_opens(void);
/* Everything the threads left: freed, unmapped, closed. */
void program_closes(void);
void make_request(const char *text);
/* For operations and scripts. */
int do_alloc(enum ts_kind kind, int context, int card, size_t size, size_t alignment);
int do_alloc_past(int context, size_t size, bool fresh);
ze_result_t do_free(const void *p, int context, int policy);
void do_query(const void *p, int context, bool range);
void ask_free_memory(int card);
ze_result_t do_context_destroy(int context);
int do_context_create(void);
ze_result_t do_residency(const struct owner *o, int card, bool in);
ze_result_t do_export(struct owner *o);
extern int context_uses[TS_CONTEXTS];
extern bool context_dying[TS_CONTEXTS];
struct held { /* what is no block */
    size_t virtual_bytes, mapped_bytes, physical_bytes, imported_bytes;
};
extern struct held held;
extern uint64_t program_seed;

/* --- submits.c: what the device is given to do, and waits --------------------------------------------------------- */
void submits_begin(void);
/* Everything is done, and lists, queues and events are gone. */
void submits_end(void);
void op_submit(struct actor *a);
void op_work(struct actor *a);
void op_execute(struct actor *a);
void op_wait(struct actor *a);
void op_wait_device(struct actor *a);
void op_event(struct actor *a);
void op_slot_end(struct actor *a);

/* From API 1.6 and 1.14 on. */
ze_result_t zeCommandListHostSynchronize(ze_command_list_handle_t list, uint64_t timeout);
ze_result_t zeDeviceSynchronize(ze_device_handle_t device);

/* --- sycl.c: the program above a SYCL runtime --------------------------------------------------------------------- */
void sycl_opens(void);
void sycl_closes(void);
/* A violation if it owns something there; if it owns a part of a block that goes back to the driver. */
void sycl_must_not_own(uintptr_t p, size_t size);
void sycl_block_goes(const struct ts_block *b);
/* A wrong free has taken what an allocation in progress may have got. False: there is none. */
bool sycl_doom_allocations(void);
/* Whether this is the runtime's context. */
bool sycl_has_context(int context);
/* What it owns is added. */
void sycl_add_up(int64_t *bytes, int64_t *blocks);
void op_usm_alloc(struct actor *a);
void op_usm_free(struct actor *a);
void op_usm_work(struct actor *a);
void op_usm_wait(struct actor *a);
void op_usm_end(struct actor *a);

/* --- rest.c: what must hold when nobody is in a call -------------------------------------------------------------- */
void rest_compare(const char *when, bool everything_freed);

/* --- record.c: the record of this process, read back -------------------------------------------------------------- */
void record_compare(const char *when);

/* --- run.c: one seed ---------------------------------------------------------------------------------------------- */
enum { MOST_THREADS = 4, MOST_OPERATIONS = 64, LEFT_OUT = 256 };
struct plan { /* what is run; the same plan does the same */
    const struct setting *setting;
    uint64_t seed;
    bool atomics;
    unsigned threads_left_out;       /* a bit each */
    uint64_t kinds_left_out;         /* operations, a bit each */
    uint64_t left_out[MOST_THREADS]; /* steps of a thread, a bit each */
};
unsigned plan_threads(const struct plan *p);
unsigned plan_operations(const struct plan *p, unsigned thread);
/* Which operation that is. */
unsigned plan_kind(const struct plan *p, unsigned thread, unsigned index);
/* In a process of its own; does not return. */
void run_plan(const struct plan *p) __attribute__((noreturn));

/* --- script.c: one fixed script of steps -------------------------------------------------------------------------- */
struct script {
    char name[64], conf[256], known[256];
    const char *path;
    bool fdinfo;
};
bool script_read(struct script *s, const char *path);
void run_script(const struct script *s) __attribute__((noreturn));
/* In the process of a run, before anything else. */
void prepare(const struct setting *setting, uint64_t seed);
/* Where the kernel tells of this process. */
void set_root(const struct setting *setting);

#endif
