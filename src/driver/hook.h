/*
 * Hooks: the places at which a call reaches us, and the way down from each.
 *
 * A call comes through one of our exported symbols, through a pointer that dlsym handed out, or through a
 * function table. Each entry point has one small function per hook; it notes the hook and the caller and
 * goes on to the one implementation, zr_on_<entry>. What a hook stands in front of (its originals) is kept
 * per hook, because a process may hold several loaders and several drivers.
 */
#ifndef ZEROUTE_HOOK_H
#define ZEROUTE_HOOK_H

#include "policy/local.h"
#include "driver/ze_compat.h"
#include "zeroute.h"

#pragma GCC visibility push(hidden)

enum {
    ZR_LIBRARIES = 8, /* loaders and drivers that can be told apart */
    ZR_HOOK_PLT = 0,
    ZR_HOOK_DLSYM = 1,                            /* + n: asked of library n by name */
    ZR_HOOK_TABLE = ZR_HOOK_DLSYM + ZR_LIBRARIES, /* + n: found in table set n */
    ZR_HOOKS = ZR_HOOK_TABLE + ZR_LIBRARIES
};

/* ZR_EACH_LIBRARY(X, ...) is X(0, ...) X(1, ...) and so on. */
#define ZR_EACH_LIBRARY(X, ...)                                                                    \
    X(0, __VA_ARGS__) X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(3, __VA_ARGS__)                        \
    X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__) X(7, __VA_ARGS__)

#define ZR_ENTRY(name, table, slot, parameters, arguments)                                         \
    typedef ze_result_t(*zr_fn_##name) parameters;                                                 \
    ze_result_t zr_on_##name parameters;
#include "base/entries.def"
#undef ZR_ENTRY

/* The two ways between a function and dlsym's kind of pointer. */
#define ZR_FUNCTION(pointer) ((zr_function)(uintptr_t)(pointer))
#define ZR_POINTER(function) ((void *)(uintptr_t)(function))

/* --- entry/hooks.c: the small functions ------------------------------------------------------------ */
struct zr_asker;
struct zr_thread {
    const void *caller; /* these three written by the hook, read at once by the implementation */
    uint32_t hook;
    uint32_t way; /* enum zr_via */
    union {
        struct {
            uint8_t inside;  /* this thread is in one of our implementations */
            uint8_t lean;    /* it may go the lean way (lean.h), unless that is closed by now */
            uint16_t pooled; /* in a pool of ours, which keeps memory itself */
            uint32_t watch;  /* a runtime is being watched (habit.c) */
        };
        uint64_t busy; /* all of them, for those who go a shorter way when none, or only one, is the case */
    };
    struct zr_local *local; /* NULL: not made yet, or not to be had */
    struct zr_asker *asker; /* the call site that was last served from what is kept (hit.h), or NULL, */
    union {
        uintptr_t base; /* and the block it got */
        struct {
            union {
                ze_context_handle_t context;
                void *ptr;
            };
            size_t size;
            void **out;
        } put_by; /* on the lean way: what is needed after the driver's part */
    };
};
_Static_assert(sizeof(struct zr_thread) == 64, "one cache line");
enum { ZR_ONLY_INSIDE = 1, ZR_ONLY_LEAN = 1 << 8 };
extern __thread struct zr_thread zr_thread __attribute__((aligned(64)));
#define ZR_INLINE static inline __attribute__((always_inline))
/* Where a call comes from: the return address and the hook. No address has these bits. */
enum { ZR_FROM_HOOK = 57 };

static inline uintptr_t zr_from(const void *caller, uint32_t hook)
{
    return (uintptr_t)caller | (uintptr_t)hook << ZR_FROM_HOOK;
}
_Static_assert(ZR_HOOKS <= 1 << (64 - ZR_FROM_HOOK), "hooks fit");

/* For an implementation that is called next; the caller is noted already. */
ZR_INLINE void zr_note(uint32_t hook, enum zr_via way)
{
    zr_thread.hook = hook;
    zr_thread.way = way;
}
extern const char *const zr_ze_name[ZR_ENTRIES_ZE];
extern const zr_function zr_hook_function[ZR_HOOKS][ZR_ENTRIES_ZE];

/* --- entry/table.c: table getters ------------------------------------------------------------------- */
typedef ze_result_t (*zr_getter)(ze_api_version_t version, void **table);
extern const char *const zr_getter_name[ZR_TABLES];
extern const zr_getter zr_getter_function[ZR_LIBRARIES][ZR_TABLES];
/* The library that a set of table hooks belongs to, -1 for none. */
int zr_table_library(unsigned set);
void zr_fork_child_table(void);
/* A hook of way "table" in front of one function; the function itself when all places are taken. */
zr_function zr_table_hook(unsigned entry, zr_function original);

/* --- entry/guard.c ---------------------------------------------------------------------------------- */
bool zr_guard_answer(void *handle, const char *name, const void *caller, void **answer);

/* --- entry/dlsym.c ---------------------------------------------------------------------------------- */
/* The real dlsym, asked from our place in the order. */
void *zr_real_dlsym(void *handle, const char *name);

/* --- driver.c: what lies below each hook ------------------------------------------------------------ */
extern zr_function zr_original[ZR_HOOKS][ZR_ENTRIES_ZE];

/* What keeps a call from the shortest way; 0 in a settled process that only observes. */
enum {
    ZR_UNSETTLED = 1, /* the settings are not read yet */
    ZR_EXITING = 2,   /* the process is being torn down: calls go straight down, uncounted */
    ZR_INJECTING = 4, /* the setting `inject` names a call */
    ZR_DECIDING = 8,  /* the policy has a say in allocations, or memory may be kept */
    ZR_TRACING = 16   /* the setting `trace` names a file */
};
extern uint8_t zr_unusual;
static inline bool zr_is(unsigned what)
{
    return __atomic_load_n(&zr_unusual, __ATOMIC_RELAXED) & what;
}
#define zr_exiting zr_is(ZR_EXITING)
/* Reads the settings; false when the call is to go straight down. */
bool zr_settle(void);

enum zr_library_kind { ZR_LIBRARY_OTHER, ZR_LIBRARY_LOADER, ZR_LIBRARY_LAYER, ZR_LIBRARY_DRIVER };
struct zr_library {
    uintptr_t base; /* of its first segment; 0: the place is free */
    uintptr_t end;  /* of a loader's last one: loaders are pinned and known by address from then on */
    enum zr_library_kind kind;
    void *handle;
    zr_function getter[ZR_TABLES];
};
extern struct zr_library zr_library[ZR_LIBRARIES];

/*
 * The kind of library that holds this address. Loaders and drivers get a number, the others -1, and so do
 * they when all numbers are taken. `handle` is one that found the address, or NULL. About 20 us.
 */
enum zr_library_kind zr_library_of(const void *address, void *handle, int *number);
/* A function without a hook of ours, of the library below this hook; NULL when it has none. About 1 us. */
zr_function zr_function_below(uint32_t hook, const char *name);
/* For the exported symbols: the next definition in the global scope, else the loader's. NULL for none. */
zr_function zr_next(const char *name, const void *caller);
/* Never NULL: where there is nothing below, a function that answers with an error. */
zr_function zr_find_original(uint32_t hook, unsigned entry);

/* NULL: not looked for yet. */
static inline zr_function zr_known_below(uint32_t hook, unsigned entry)
{
    return __atomic_load_n(&zr_original[hook][entry], __ATOMIC_ACQUIRE);
}

static inline zr_function zr_below(uint32_t hook, unsigned entry)
{
    zr_function f = zr_known_below(hook, entry);

    return likely(f) ? f : zr_find_original(hook, entry);
}
/* The typed function below the hook that a call came through. */
#define ZR_BELOW(call, name) ((zr_fn_##name)zr_below((call)->hook, ZR_E_##name))

/* --- inject.c: the setting `inject` ---------------------------------------------------------------------- */
/* The code with which this call is to fail, or success. Counts the calls of each rule. */
ze_result_t zr_inject(enum zr_entry entry);

/* --- a call in progress ----------------------------------------------------------------------------- */
struct zr_call {
    const void *caller;
    uint32_t hook;
    bool entered;
    uint8_t bucket;  /* of its size (local.h) */
    uint8_t way;     /* enum zr_via */
    uint32_t weight; /* how many calls the time of this one stands for; 0: not timed */
    uint64_t start;
};

/* True: the call is ours to count and to decide. False: hand it down as it is. A few ns, no lock. */
static inline bool zr_enter(struct zr_call *call, enum zr_entry entry)
{
    struct zr_thread *t = &zr_thread;
    uint32_t way = t->way;

    call->caller = t->caller;
    call->hook = t->hook;
    call->way = (uint8_t)way;
    call->entered = false;
    if (unlikely(t->inside))
        return false;
    if (unlikely(zr_is(ZR_UNSETTLED | ZR_EXITING)) && !zr_settle())
        return false;
    call->entered = true;
    t->inside = 1;
    zr_fork_check();
    zr_count_call(entry, way);
    return true;
}

static inline void zr_leave(struct zr_call *call)
{
    if (likely(call->entered))
        zr_thread.inside = 0;
}

/* Around the driver's part of a call: timed or not (local.h), its failure counted. */
static inline void zr_start(struct zr_call *call, enum zr_entry entry, size_t bytes)
{
    struct zr_local *l = zr_thread.local;

    if (unlikely(!l))
        l = zr_local_make();
    call->bucket = (uint8_t)zr_pace_bucket(bytes);
    call->weight = likely(l) ? zr_pace(l, entry, call->bucket) : 1;
    if (unlikely(call->weight))
        call->start = zr_ticks();
}

static inline ze_result_t zr_stop(struct zr_call *call, enum zr_entry entry, ze_result_t result)
{
    if (unlikely(call->weight))
        zr_pace_timed(zr_thread.local, entry, call->bucket, call->start, call->weight);
    if (unlikely(result != ZE_RESULT_SUCCESS))
        zr_count_failure_code(entry, (uint32_t)result);
    return result;
}

/*
 * First line of an implementation. A call that has already passed a hook of ours goes straight down: it is
 * counted once, and two interposers cannot send it back and forth for ever. The guard is dropped by a
 * cleanup, so that it goes even when something is thrown through us.
 */
#define ZR_ENTER(name, arguments)                                                                  \
    struct zr_call call __attribute__((cleanup(zr_leave)));                                        \
    if (unlikely(!zr_enter(&call, ZR_E_##name)))                                                   \
        return ZR_BELOW(&call, name) arguments

/* The code that the setting `inject` gives this driver call, or success. */
static inline ze_result_t zr_injected(enum zr_entry entry)
{
    return unlikely(zr_is(ZR_INJECTING)) ? zr_inject(entry) : ZE_RESULT_SUCCESS;
}

/* The driver's part of a call about this many bytes, timed and its failure counted. */
#define ZR_DOWN(call, name, bytes, arguments)                                                      \
    __extension__({                                                                                \
        ze_result_t down_ = zr_injected(ZR_E_##name);                                              \
        zr_start((call), ZR_E_##name, (bytes));                                                                 \
        zr_stop((call), ZR_E_##name,                                                               \
                down_ != ZE_RESULT_SUCCESS ? down_ : ZR_BELOW((call), name) arguments);            \
    })

#pragma GCC visibility pop

#endif
