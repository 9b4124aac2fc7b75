/*
 * The map of driver/: the real functions below each hook, calls to them, and the cards. Grouped by
 * the file that defines it.
 *
 * A call reaches us at a hook: one of our exported symbols, a pointer that dlsym handed out, or a
 * slot of a function table. What a hook stands in front of is kept per hook, because a process may
 * have several loaders and drivers.
 */
#ifndef ZEROUTE_DRIVER_H
#define ZEROUTE_DRIVER_H

#include "base/base.h"
#include "driver/ze_compat.h"
#include "stats/stats.h"

#pragma GCC visibility push(hidden)

enum {
    ZR_LOADED = 8, /* loaders and drivers that can be told apart */
    ZR_HOOK_PLT = 0,
    ZR_HOOK_DLSYM = 1,                         /* + n: library n was asked by name */
    ZR_HOOK_TABLE = ZR_HOOK_DLSYM + ZR_LOADED, /* + n: in table set n */
    ZR_HOOK_HANDLE =
        ZR_HOOK_TABLE + ZR_LOADED, /* + n: in the tables behind the handles of driver n */
    ZR_HOOKS = ZR_HOOK_HANDLE + ZR_LOADED
};
#define ZR_VIA_OF(hook) ((enum zr_via)(((hook) + ZR_LOADED - 1) / ZR_LOADED))

#define ZR_ENTRY(name, table, index, minor, parameters, arguments)                                 \
    typedef ze_result_t(*zr_fn_##name) parameters;                                                 \
    ze_result_t zr_on_##name ZR_ARRIVES(parameters); /* the implementation, in ze/ */
#include "base/entries.def"

/*
 * Extensions of a driver: the functions that stand in front of them, in ze/, and the driver's own
 * (atomic).
 */
enum zr_extension {
#define ZR_EXTENSION(name, parameters) ZR_X_##name,
#include "base/extensions.def"
    ZR_EXTENSIONS
};
extern zr_function zr_extension_real[ZR_EXTENSIONS];
#define ZR_EXTENSION(name, parameters)                                                             \
    typedef ze_result_t(*zr_xfn_##name) parameters;                                                \
    ze_result_t zr_x_##name parameters;
#include "base/extensions.def"

/*
 * What gives a device work, or waits for it: zr_does_NAME(below, ...) in ze/submit.c calls the
 * function `below`.
 */
#define ZR_ABOVE_FUNCTION(parameters) (zr_function below, ZR_LIST parameters)
#define ZR_WORK(name, table, index, minor, parameters, arguments)                                  \
    typedef ze_result_t(*zr_work_fn_##name) parameters;                                            \
    ze_result_t zr_does_##name ZR_ABOVE_FUNCTION(parameters);
#include "base/work.def"
/*
 * An object was made by op->entry: if it is a list, a queue or a pool of events, src/work/ is told.
 */
void zr_submit_made(struct zr_op *op, ze_device_handle_t device, const void *desc,
                    const void *object);

/* --- below.c: loaders and drivers, and what lies below each hook ------------------------------ */
enum zr_loaded_kind { ZR_LOADED_OTHER, ZR_LOADED_LOADER, ZR_LOADED_DRIVER };
struct zr_loaded {
    uintptr_t base; /* where it begins; 0: the place is free */
    uintptr_t end;  /* of a loader: it is pinned, and known by its address from then on */
    uint64_t file;  /* a hash of its path */
    enum zr_loaded_kind kind;
    void *handle;
    zr_function getter[ZR_TABLES];
};
extern struct zr_loaded zr_loaded[ZR_LOADED];
extern zr_function zr_original[ZR_HOOKS][ZR_ENTRIES_ZE];
/* The library that a set of table hooks belongs to: its number plus one, 0 for none. Atomic. */
extern int zr_table_set[ZR_LOADED];
/* Guards the places of libraries and sets, and stores into tables that are not ours. */
extern struct zr_lock zr_loaded_lock;
/* A Level Zero library or call has been seen. */
extern bool zr_touched;

/*
 * The kind of library that holds this address. Loaders and drivers get a number, while there are
 * any; all else gets -1. `handle` is the dlopen handle that found the address, or NULL. About 20
 * us.
 */
enum zr_loaded_kind zr_loaded_of(const void *address, void *handle, int *number);
/* The number of the library below a hook; -1 for an exported symbol, or if the library is gone. */
int zr_loaded_below(uint32_t hook);
/*
 * Reports calls that bypass us, and after a semicolon what to do about it: in the segment, and as a
 * warning.
 */
void zr_missed(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Whether a file of this name is a driver. */
bool zr_is_driver_name(const char *file);
/*
 * A function that we do not hook, of the library below this hook; NULL if it has none. About 1 us.
 */
zr_function zr_function_below(uint32_t hook, const void *caller, const char *name);
/*
 * The driver's own function, where the loader may lack it; NULL unless there is exactly one driver,
 * and it has it.
 */
zr_function zr_function_of_driver(const char *name);
/*
 * For the exported symbols: the next definition in the global scope, else the loader's. NULL for
 * none.
 */
zr_function zr_next(const char *name, const void *caller);
/* Never NULL: if nothing lies below, a function that returns an error. */
zr_function zr_find_original(uint32_t hook, unsigned entry, const void *caller);

/* The caller may be NULL: it tells whose loader to take where none was found yet. */
static inline zr_function zr_below(uint32_t hook, unsigned entry, const void *caller) {
    zr_function f = __atomic_load_n(&zr_original[hook][entry], __ATOMIC_ACQUIRE);

    return likely(f) ? f : zr_find_original(hook, entry, caller);
}
/*
 * The typed function below the hook that a call came through: of a struct zr_op, or of a struct
 * zr_arrival.
 */
#define ZR_BELOW(at, name) ((zr_fn_##name)zr_below((at)->hook, ZR_E_##name, (at)->caller))

/* --- call.c: a call in progress --------------------------------------------------------------- */
/*
 * Returns true if the call is ours to count and decide, false if it is to be passed down. Some 5
 * ns, no lock.
 */
bool zr_op_enter(struct zr_op *op, struct zr_arrival from, enum zr_entry entry);
/* Whether a call that arrives now is not the program's, but one below another that was decided. */
bool zr_op_passes_down(void);
/*
 * The function that a call goes straight down to at a hook, because it has passed one already;
 * NULL: it has not.
 */
zr_function zr_op_passes(uint32_t hook, unsigned entry);

/*
 * First line of an implementation; returns from it if the call is not ours to decide. A call that
 * has already passed a hook of ours goes straight down: it is counted once, and two interposers
 * cannot recurse into each other.
 */
#define ZR_ENTER_OR_RETURN(name, arguments)                                                        \
    struct zr_op op __attribute__((cleanup(zr_op_end)));                                           \
    if (unlikely(!zr_op_enter(&op, from, ZR_E_##name)))                                            \
    return ZR_BELOW(&from, name) arguments

/* Calls the driver's function for this many bytes; times it and counts a failure. */
#define ZR_DOWN(op, name, bytes, arguments)                                                        \
    zr_down_end((op), ZR_E_##name,                                                                 \
                zr_down_begin((op), ZR_E_##name, (bytes)) ? ZR_BELOW((op), name) arguments         \
                                                          : (ze_result_t)(op)->down.code)
/*
 * Begins a call that is to be timed. Returns the code with which `inject` makes it fail, else
 * success.
 */
ze_result_t zr_descend(enum zr_entry entry, uint64_t *start);
/* Ends a call that was timed (weight is not 0) or has failed. */
void zr_ascend(enum zr_entry entry, size_t bytes, uint64_t start, uint32_t weight,
               ze_result_t result);

/* Returns false if `inject` makes the call fail, with op->down.code. */
static inline bool zr_down_begin(struct zr_op *op, enum zr_entry entry, size_t bytes) {
    op->down.bytes = bytes;
    op->down.weight = zr_time_weight(entry, bytes);
    if (likely(!op->down.weight))
        return true;
    op->down.code = (uint32_t)zr_descend(entry, &op->down.start);
    return op->down.code == ZE_RESULT_SUCCESS;
}

static inline ze_result_t zr_down_end(struct zr_op *op, enum zr_entry entry, ze_result_t result) {
    if (unlikely(op->down.weight || result != ZE_RESULT_SUCCESS))
        zr_ascend(entry, op->down.bytes, op->down.start, op->down.weight, result);
    return result;
}

/* --- device.c: drivers and cards by number ---------------------------------------------------- */
enum { ZR_UNKNOWN_DEVICE = 0xffff };
/*
 * The number of a device, or of the card of a sub-device; ZR_UNKNOWN_DEVICE if none. A short search
 * if known.
 */
unsigned zr_device_number(struct zr_op *op, ze_device_handle_t device);
/* The same for a device that was met before; ZR_UNKNOWN_DEVICE for others. */
unsigned zr_device_known(ze_device_handle_t device);
/* Of a device that has a number: whether it is a sub-device. */
bool zr_device_is_part(ze_device_handle_t device);
/* Learns a list of zeDeviceGet, in the driver's order, or the sub-devices of a device. */
void zr_device_seen(struct zr_op *op, const ze_device_handle_t *devices, uint32_t count);
void zr_device_parts(struct zr_op *op, ze_device_handle_t root, const ze_device_handle_t *parts,
                     uint32_t count);
/* A handle of the card itself, and the hook at which it is valid; NULL for none. */
ze_device_handle_t zr_device_handle(unsigned number, uint32_t *hook);
/* The device's local memory, all regions together; 0 when the driver does not say. */
uint64_t zr_device_memory(struct zr_op *op, ze_device_handle_t device);
/*
 * What programs can have of it: on a discrete card at most 95 % of the physical memory, because the
 * driver keeps the rest for itself, whether it says so or not.
 */
uint64_t zr_device_usable(struct zr_op *op, ze_device_handle_t device);
/* Memory modules of a device of Sysman, as they were enumerated. */
void zr_device_modules(struct zr_op *op, zes_device_handle_t device,
                       const zes_mem_handle_t *modules, uint32_t count);
/*
 * The device that a module belongs to, and how many it has; false if it was never enumerated.
 * ZR_UNKNOWN_DEVICE if the process has not seen that device in the core API.
 */
bool zr_device_of_module(zes_mem_handle_t memory, unsigned *number, uint32_t *among);
enum { ZR_DRIVERS = 8 };
/* The number of a driver, from 0, in the order in which they are met; -1 for NULL, or too many. */
int zr_driver_number(ze_driver_handle_t driver);
/* Notes its version in the fingerprint. Asks each driver once. */
void zr_note_driver(struct zr_op *op, ze_driver_handle_t driver);

/* --- reserve.c: address ranges at a given address --------------------------------------------- */
/* Reserves this range, and nothing else: false if the driver gives another one, or none. */
bool zr_reserve_at(struct zr_op *op, ze_context_handle_t context, uintptr_t start, size_t size);
/* The same, and frees it. */
bool zr_reserve_and_free(struct zr_op *op, ze_context_handle_t context, uintptr_t start,
                         size_t size);
/* Whether the driver reserves where it is asked to, which it need not: tried once. */
bool zr_reserves_at_will(struct zr_op *op, ze_context_handle_t context, size_t size);

/* --- engine.c: work of our own on device memory ----------------------------------------------- */
struct zr_engine {
    ze_context_handle_t context;
    ze_device_handle_t device;
    uint32_t hook;
    ze_command_list_handle_t list; /* synchronous; NULL: it does not work */
    void *buffer;
    __typeof__(&zeCommandListAppendMemoryFill) fill;
    __typeof__(&zeCommandListAppendMemoryCopy) copy;
    __typeof__(&zeCommandListDestroy) destroy;
};
/*
 * Makes the list and a host buffer of this many bytes for the context, the device and the hook that
 * are set. Leaves it without a list if the driver refuses.
 */
void zr_engine_make(struct zr_engine *e, size_t buffer);
/* Gives list and buffer back. */
void zr_engine_drop(struct zr_engine *e);
/* Waits until every device that was met is idle. Returns false if the driver cannot tell. */
bool zr_devices_rest(void);

#pragma GCC visibility pop

#endif
