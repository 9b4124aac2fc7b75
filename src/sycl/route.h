/*
 * The SYCL route: which runtime a call belongs to, what that runtime does below, and who serves
 * instead. Grouped by file.
 */
#ifndef ZEROUTE_ROUTE_H
#define ZEROUTE_ROUTE_H

#include "policy/policy.h"

/* --- runtime.c: the SYCL runtimes in this process --------------------------------------------- */
enum zr_sycl_form {
#define ZR_SYCL(form, entry, symbol, parameters, arguments, ...) ZR_SYCL_##form,
#define ZR_SYCL_FREE(form, symbol, parameters, arguments, object) ZR_SYCL_##form,
#include "sycl/usm.def"
#undef ZR_SYCL
#undef ZR_SYCL_FREE
    ZR_SYCL_FORMS
};

enum { ZR_SYCL_LEVEL_ZERO = 2 }; /* sycl::backend::ext_oneapi_level_zero */

struct zr_runtime {
    uintptr_t base; /* of libsycl */
    void *handle;
    unsigned soname; /* libsycl.so.<soname>; 0: one that we do not know */
    bool ours; /* known, complete, and the first one that was used: its allocations may be served */
    signed char (*context_backend)(const void *context);
    signed char (*queue_backend)(const void *queue);
    zr_function real[ZR_SYCL_FORMS];
};

#define ZR_RUNTIME_NOT_KNOWN "a SYCL runtime of a version that is not known"
/* There are SYCL runtimes in the process, and none of a version that we know. Cold. */
bool zr_runtime_is_foreign(void);
/* The runtime that this caller's code was linked to; NULL when there is none at all. About 5 ns when known. */
struct zr_runtime *zr_runtime_of(enum zr_sycl_form form, const void *caller);
/* The definition that the caller would be bound to without us: its own dependencies', then the global one. Cold. */
zr_function zr_definition(const char *symbol, const void *caller);
/* A further function of this runtime, or NULL. Cold. */
zr_function zr_runtime_function(const struct zr_runtime *runtime, const char *symbol);
/* The caller is one of the libraries through which SYCL runtimes call Level Zero (UR, PI, UMF). Cold. */
bool zr_is_adapter(const void *caller);
/* It is, or it came where callers cannot be told apart. About 1 ns when known. */
bool zr_may_be_adapter(const void *caller);
void zr_fork_child_runtime(void);

/* A hidden version, like the ze functions: found by those who are linked against the runtime. */
#define ZR_SYCL_EXPORT(name, symbol)                                                               \
    __asm__(".symver zr_sycl_" #name ", " symbol "@ZEROUTE_0");                                    \
    __attribute__((visibility("default")))

/* For calls that not every runtime has: the caller's runtime, by a function that each has; the call is counted. */
struct zr_runtime *zr_runtime_called(enum zr_entry entry, const void *caller);

/* --- habit.c: what the runtime asks of Level Zero for a device allocation --------------------- */
/* A shared_ptr as SYCL's context, queue and (in older runtimes) device hold their implementation. */
struct zr_shared {
    void *implementation;
    void *control;
};

static inline const struct zr_shared *zr_shared(const void *object)
{
    return object;
}

struct zr_request {
    enum zr_sycl_form which;
    size_t alignment, size;
    const void *queue; /* this, or the two below */
    const void *device, *context;
    const void *properties; /* NULL: a form without */
    int kind;               /* sycl::usm::alloc, in the forms that name it */
};

enum { ZR_HABIT_DEVICES = 16 };

/* Learnt by letting the runtime make one block of its own and watching what reaches Level Zero. */
struct zr_habit {
    uint32_t hook;               /* through which the runtime calls Level Zero */
    ze_context_handle_t context; /* as it names them */
    ze_device_handle_t device;
    uint32_t ordinal, flags;
    uint32_t residents; /* devices on which it asks for residency, the owner included */
    ze_device_handle_t resident[ZR_HABIT_DEVICES];
    uint64_t resident_on; /* the same by number */
    uint16_t number;      /* of the device */
    bool waits;           /* frees with a policy that waits for commands */
    uint32_t free_policy; /* of zeMemFreeExt; meaningless unless it uses that */
    bool frees_ext;
};

/* A native device allocation and its free by the runtime, for watching; false: it gave none. */
typedef bool (*zr_probe)(const struct zr_runtime *runtime, const struct zr_request *request,
                         size_t size);

/*
 * The habit for these objects; NULL: not Level Zero, or not to be learnt, so leave the call to the
 * runtime. About 3 ns for the objects that this thread used last.
 */
const struct zr_habit *zr_habit_of(const struct zr_runtime *runtime,
                                   const struct zr_request *request, zr_probe probe);
/* Whether the objects of this request belong to Level Zero. */
bool zr_is_level_zero(const struct zr_runtime *runtime, const struct zr_request *request);
/* Watches whatever allocates and frees `size` bytes or more of device memory once; false: nothing was seen. */
bool zr_habit_watch(bool (*act)(void *arg), void *arg, size_t size, struct zr_habit *out);
/* What was learnt last for this context and device, or NULL. */
const struct zr_habit *zr_habit_in(ze_context_handle_t context, unsigned number);
/* By which of our pools the runtime serves a pair of objects, and as what the pool saw its call (shortcut.c). */
struct zr_pool_way {
    struct zr_umf_pool *pool; /* NULL: by none */
    const void *caller;
    enum zr_entry entry;
};
/* False: nothing is known yet. Takes a lock. */
bool zr_habit_pool(const struct zr_runtime *runtime, const struct zr_request *request, struct zr_pool_way *way);
void zr_habit_keep_pool(const struct zr_runtime *runtime, const struct zr_request *request,
                        const struct zr_pool_way *way);
/* Is some device of this context or queue served by a pool of ours? Takes a lock. */
bool zr_habit_is_pooled(const void *object);
/* What a thread remembers of these answers holds as long as this stays the same. */
extern uint32_t zr_habit_epoch;
/* Peer access was switched on or off: residency may be asked differently from now on, for what lives too. */
void zr_habit_renew(zr_probe probe, const void *caller);
/* Called at the hooks while this thread watches (zr_thread.watch). */
void zr_habit_saw_alloc(uint32_t hook, ze_context_handle_t context,
                        const ze_device_mem_alloc_desc_t *desc, size_t size,
                        ze_device_handle_t device);
void zr_habit_saw_resident(uint32_t hook, ze_device_handle_t device, size_t size);
void zr_habit_saw_free(bool ext, uint32_t policy);
void zr_fork_child_habit(void);

/* --- route.c: who serves SYCL's device allocations -------------------------------------------- */
/* Where device allocations are served. Decided at the first one, told in the segment. */
enum zr_served { ZR_SERVED_UNDECIDED, ZR_SERVED_AT_SYCL, ZR_SERVED_BY_POOL, ZR_SERVED_ELSEWHERE };
extern uint32_t zr_route_decision; /* atomic */
enum zr_served zr_route_decide(void);
static inline enum zr_served zr_route(void)
{
    return (enum zr_served)__atomic_load_n(&zr_route_decision, __ATOMIC_ACQUIRE);
}
/* An allocation on another backend before that: it decides nothing, for the runtime asks for its pool when Level
 * Zero is first used. Told and counted. */
void zr_route_waits(void);
/* True: as the runtime's pool, if it lets us. */
bool zr_route_wants_pool(void);
/* The runtime has taken our pool; or why it cannot. */
void zr_route_pool_taken(void);
void zr_route_pool_refused(const char *why);
/* The largest block that the runtime's own pool keeps: what it reuses at once. */
void zr_route_pool_limit(size_t bytes);
size_t zr_route_reuses_up_to(void);
/* *out is NULL when memory is short, as the runtime would answer. False: leave this one to the runtime. */
bool zr_route_alloc(const struct zr_habit *habit, size_t size, size_t alignment, const void *caller,
                    void **out);
/* False: not a block of this route, leave it to the runtime. */
bool zr_route_free(void *ptr, const void *caller);
bool zr_route_owns(const void *ptr);
/* A context is about to go: what the program has not freed and the runtime's pool would take with it goes too. Cold. */
void zr_route_drop_context(struct zr_call *call, ze_context_handle_t context);
/* The runtime asks for residency on other devices now: what lives follows. Cold. */
void zr_route_residency_changed(const struct zr_habit *was, const struct zr_habit *is, const void *caller);

/* --- entry/sycl_ipc.c, pool.c, guard.c: weak, because the rest is tested without the entries --------- */
void zr_fork_child_sycl_ipc(void) __attribute__((weak));
void zr_fork_child_umf(void) __attribute__((weak));
void zr_fork_child_guard(void) __attribute__((weak));

#endif
