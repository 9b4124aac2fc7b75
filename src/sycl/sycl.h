/*
 * The map of sycl/: SYCL's entry points, UMF's pool operations, and which runtime this is and what
 * it does. Grouped by the file that defines it.
 */
#ifndef ZEROUTE_SYCL_H
#define ZEROUTE_SYCL_H

#include "policy/policy.h"

#pragma GCC visibility push(hidden)

/* --- runtime.c: the SYCL runtimes in this process --------------------------------------------- */
enum zr_sycl_form {
#define ZR_SYCL(form, entry, symbol, parameters, arguments, ...) ZR_SYCL_##form,
#define ZR_SYCL_FREE(form, symbol, parameters, arguments, ...) ZR_SYCL_##form,
#include "sycl/usm.def"
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
/* Whether there are SYCL runtimes in the process, but none of a known version. Cold. */
bool zr_runtime_is_foreign(void);
/*
 * Counts a call of this entry point. Returns the runtime that the caller is linked to, NULL if we
 * cannot tell: then the call is the runtime's, whichever it is (zr_runtime_form,
 * zr_runtime_function). A few ns once it is known.
 */
struct zr_runtime *zr_runtime_called(enum zr_entry entry, const void *caller);
/* The definition that the caller would bind to without us: in its dependencies, then in the global
 * scope. Cold. */
zr_function zr_definition(const char *symbol, const void *caller);
/*
 * The function that a call goes on to: of this runtime, else what the caller would bind to without
 * us. NULL if there is none. Some ns for a USM form; another function is cold.
 */
zr_function zr_runtime_form(const struct zr_runtime *runtime, enum zr_sycl_form form,
                            const void *caller);
zr_function zr_runtime_function(const struct zr_runtime *runtime, const char *symbol,
                                const void *caller);

/* A hidden version, as for the ze functions: programs linked against the runtime bind to it, dlsym
 * does not find it. */
#define ZR_SYCL_EXPORT(name, symbol)                                                               \
    __asm__(".symver zr_sycl_" #name ", " symbol "@ZEROUTE_0");                                    \
    __attribute__((visibility("default")))

/* --- probe.c: what the runtime asks of Level Zero for a device allocation --------------------- */
struct zr_request {
    size_t alignment, size;
    const void *queue; /* this, or the two below */
    const void *device, *context;
    const void *properties; /* NULL: a form without */
    int kind;               /* sycl::usm::alloc, in the forms that name it */
};

enum { ZR_WATCH_DEVICES = 16 };
struct zr_watch {
    size_t size; /* smaller allocations are ignored */
    bool allocated, freed, exported;
    uint32_t hook; /* through which the runtime calls Level Zero */
    ze_context_handle_t context;
    ze_device_handle_t device;
    uint32_t ordinal, flags;
    uint32_t residents; /* devices on which it requests residency, the owner included */
    ze_device_handle_t resident[ZR_WATCH_DEVICES];
    bool frees_ext; /* frees with zeMemFreeExt */
    uint32_t free_policy;
    size_t made;      /* the size that reached Level Zero, */
    const void *base; /* and what was made of it */
    ze_ipc_mem_handle_t handle;
};

/* Found by letting the runtime make one block of its own and watching what reaches Level Zero. */
struct zr_practice {
    struct zr_watch seen;
    uint64_t residents; /* the devices of seen.resident by number */
    uint16_t number;    /* of the device */
};

/*
 * The runtime's practice for these objects. NULL if they are not of Level Zero or it cannot be
 * found: leave the call to the runtime. About 5 ns for the objects that this thread used last.
 */
const struct zr_practice *zr_practice_of(const struct zr_runtime *runtime,
                                         const struct zr_request *request);
/* Peer access was switched on or off: residency may be requested differently from now on, for live
 * blocks too. */
void zr_practice_renew(const void *caller);
/* Calls use() once with SYCL objects of this context and device, kept alive meanwhile; not at all
 * if all are gone. */
typedef void (*zr_use)(const struct zr_runtime *runtime, const struct zr_request *objects,
                       void *arg);
void zr_practice_use(const void *context, unsigned number, zr_use use, void *arg);
/* Turns what was watched into a practice. Returns false if no block was allocated and freed. */
bool zr_practice_seen(struct zr_practice *p);
/* Whether the objects of this request belong to Level Zero. */
bool zr_is_level_zero(const struct zr_runtime *runtime, const struct zr_request *request);

/* --- watch.c ---------------------------------------------------------------------------------- */
/*
 * Notes in p->seen what reaches Level Zero from this thread for a block of `size` bytes or more.
 * These calls are ours, not the program's: not counted, and never served from the cache.
 * zr_op_end() ends it, a cleanup handler, since something may be thrown.
 */
void zr_watch_begin(struct zr_op *op, struct zr_practice *p, size_t size);

/* --- usm.c: SYCL's USM functions -------------------------------------------------------------- */
/* Allocate and free device memory with the runtime's own functions, for these objects. May throw.
 */
void *zr_native_alloc(const struct zr_runtime *runtime, const struct zr_request *objects,
                      size_t size);
void zr_native_free(const struct zr_runtime *runtime, const struct zr_request *objects, void *p);
extern struct zr_lock zr_sycl_lock; /* guards all tables of this folder, none of which is hot */

/* --- umf.c: pools of ours behind the runtime -------------------------------------------------- */
/* Peer access was switched: what a pool keeps of before then is not handed out again. */
void zr_pool_peers_changed(void);

/* --- route.c: who serves SYCL's device allocations -------------------------------------------- */
enum zr_route { ZR_NOT_DECIDED, ZR_AT_SYCL, ZR_BY_POOL, ZR_BY_RUNTIME };
extern uint32_t zr_route_decision; /* atomic */
/*
 * Decides at the first allocation on Level Zero, and publishes the decision in the segment. An
 * earlier allocation on another backend decides nothing, because the runtime asks for its pool when
 * Level Zero is first used; it is counted.
 */
enum zr_route zr_route_decide(bool level_zero);
static inline enum zr_route zr_route(void) {
    return (enum zr_route)__atomic_load_n(&zr_route_decision, __ATOMIC_ACQUIRE);
}
/* Whether we are to be the runtime's pool, if it lets us. */
bool zr_route_wants_pool(void);
/* The runtime has taken our pool; or the reason why it cannot. */
void zr_route_pool_taken(void);
void zr_route_pool_refused(const char *why);
/* The largest block that the runtime's own pool keeps, and so reuses at once. */
void zr_route_pool_limit(size_t bytes);
size_t zr_route_reuses_up_to(void);
/* *out is NULL if memory is short, as the runtime would answer. Returns false to leave this one to
 * the runtime. */
bool zr_route_alloc(const struct zr_practice *practice, enum zr_entry entry, size_t size,
                    size_t alignment, const void *caller, void **out);
/* Returns false if it is no block of this route: leave it to the runtime. */
bool zr_route_free(void *ptr, enum zr_entry entry, const void *caller);
/* The LIVE block of this route that holds ptr, or NULL. */
struct zr_block *zr_route_block(const void *ptr);
/* Begins an operation through this hook for a caller of this SYCL entry point. zr_op_end() ends it.
 */
void zr_route_enter(struct zr_op *op, uint32_t hook, enum zr_entry entry, const void *caller);
/* The runtime now requests residency on other devices: live blocks follow. Cold. */
void zr_route_residency_changed(const struct zr_practice *was, const struct zr_practice *is,
                                const void *caller);

/* --- ipc.c ------------------------------------------------------------------------------------ */
/* Puts the IPC handle of a block of route:sycl back before the block is freed. */
void zr_ipc_before_free(struct zr_op *op, const struct zr_block *b);
void zr_sycl_fork_child(void); /* of the whole folder */

#pragma GCC visibility pop

#endif
