/*
 * SYCL's IPC for blocks of the SYCL route. The runtime asks UMF's tracker about a pointer and
 * refuses ours, so for our blocks the handle is our own: Level Zero's handle of the block, and
 * where in it the pointer lies. A process that runs zeroute opens it; any other hands it to its
 * runtime, which answers that it does not know it. Handles and pointers that are not ours go to the
 * runtime.
 */
#include "route.h"

#include <string.h>

/* What travels between processes. */
struct ticket {
    char magic[16];
    ze_ipc_mem_handle_t handle;
    uint64_t offset;
};
static const char magic[16] = "zeroute-ipc-mem";

/* What get() hands out; the program sees the ticket alone. */
struct issued {
    struct ticket ticket;
    ze_context_handle_t context;
    uint32_t door;
};

/* As sycl::ext::oneapi::experimental::ipc::handle: returned in two registers. */
struct handle {
    void *data;
    size_t size;
};

/* Pointers that open() gave out, each as often as it was opened. */
struct opened {
    struct opened *next;
    void *ptr, *base;
    ze_context_handle_t context;
    uint32_t door;
};
static struct opened *opened;
static struct zr_lock lock;

/* --- Level Zero, through our own implementations ---------------------------------------------- */

static void go_through(uint32_t door, const void *caller)
{
    zr_thread.caller = caller;
    zr_thread.door = door;
    zr_thread.way = door == ZR_DOOR_PLT     ? ZR_WAY_PLT
                    : door >= ZR_DOOR_TABLE ? ZR_WAY_TABLE
                                            : ZR_WAY_DLSYM;
}

static bool get(void *ptr, const void *caller, struct handle *out)
{
    struct zr_block *b = zr_map_find(ptr);
    const struct zr_habit *habit;
    struct issued *i;

    if (!b || !(__atomic_load_n(&b->flags, __ATOMIC_RELAXED) & ZR_BLOCK_SYCL))
        return false;
    i = calloc(1, sizeof *i);
    if (!i)
        return false;
    i->context = __atomic_load_n(&b->context, __ATOMIC_RELAXED);
    habit = zr_habit_in(i->context, b->device);
    i->door = habit ? habit->door : ZR_DOOR_PLT;
    memcpy(i->ticket.magic, magic, sizeof magic);
    i->ticket.offset = (uintptr_t)ptr - b->base;
    go_through(i->door, caller);
    if (zr_on_zeMemGetIpcHandle(i->context, (const void *)b->base, &i->ticket.handle) !=
        ZE_RESULT_SUCCESS) {
        free(i);
        return false;
    }
    out->data = i;
    out->size = sizeof i->ticket;
    return true;
}

static bool is_ours(const void *data, size_t size)
{
    return data && size == sizeof(struct ticket) && memcmp(data, magic, sizeof magic) == 0;
}

static bool put(struct handle *h, const void *caller)
{
    struct issued *i = h->data;

    if (!is_ours(h->data, h->size))
        return false;
    go_through(i->door, caller);
    zr_on_zeMemPutIpcHandle(i->context, i->ticket.handle);
    free(i);
    return true;
}

/* Native handles of the runtime's objects; it gives out no reference with them. */
static void *native(const struct zr_runtime *runtime, const char *symbol, const void *object)
{
    zr_function f = zr_runtime_function(runtime, symbol);

    return f ? ((void *(*)(const void *))f)(object) : NULL;
}

static bool open_here(const struct zr_runtime *runtime, const void *data, size_t size,
                      const void *context, const void *device, const void *caller, void **out)
{
    const struct zr_habit *habit;
    ze_device_handle_t on;
    struct ticket ticket;
    struct opened *o;

    if (!is_ours(data, size) || !runtime->ours ||
        runtime->context_backend(context) != ZR_SYCL_LEVEL_ZERO)
        return false;
    o = calloc(1, sizeof *o);
    if (!o)
        return false;
    memcpy(&ticket, data, sizeof ticket);
    o->context = native(runtime, "_ZNK4sycl3_V17context9getNativeEv", context);
    on = native(runtime, "_ZNK4sycl3_V16device9getNativeEv", device);
    habit = zr_habit_in(o->context, 0);
    o->door = habit ? habit->door : ZR_DOOR_PLT;
    go_through(o->door, caller);
    if (zr_on_zeMemOpenIpcHandle(o->context, on, ticket.handle, 0, &o->base) != ZE_RESULT_SUCCESS) {
        free(o);
        return false;
    }
    *out = o->ptr = (char *)o->base + ticket.offset;
    zr_lock(&lock);
    o->next = opened;
    opened = o;
    zr_unlock(&lock);
    return true;
}

static bool close_here(void *ptr, const void *caller)
{
    struct opened **at, *o;

    zr_lock(&lock);
    for (at = &opened; *at && (*at)->ptr != ptr; at = &(*at)->next)
        ;
    o = *at;
    if (o)
        *at = o->next;
    zr_unlock(&lock);
    if (!o)
        return false;
    go_through(o->door, caller);
    zr_on_zeMemCloseIpcHandle(o->context, o->base);
    free(o);
    return true;
}

void zr_fork_child_sycl_ipc(void)
{
    lock = (struct zr_lock){0};
    opened = NULL; /* the parent's; its few bytes are let go of */
}

/* --- what the program calls ------------------------------------------------------------------- */

/* Found by a function that every runtime has: runtimes before 2026 have no IPC. */
static struct zr_runtime *runtime_of(const void *caller, enum zr_entry entry)
{
    struct zr_runtime *runtime = zr_runtime_of(ZR_SYCL_free_XC, caller);

    if (likely(!zr_exiting)) {
        zr_fork_check();
        zr_count_call(entry, ZR_WAY_SYCL);
    }
    return runtime;
}

#define EXPORT(name, symbol)                                                                       \
    __asm__(".symver zr_sycl_" #name ", " symbol "@ZEROUTE_0");                                    \
    __attribute__((visibility("default")))

/* The same three functions in the two namespaces that runtimes have had for them. */
#define ZR_IPC(name, prefix)                                                                       \
    struct handle zr_sycl_##name##_get(void *ptr, const void *context);                            \
    EXPORT(name##_get, prefix "3getEPvRKNS0_7contextE")                                            \
    struct handle zr_sycl_##name##_get(void *ptr, const void *context)                             \
    {                                                                                              \
        const void *caller = __builtin_return_address(0);                                          \
        struct zr_runtime *runtime = runtime_of(caller, ZR_E_ipc_memory_get);                      \
        struct handle out = {NULL, 0};                                                             \
        zr_function real;                                                                          \
                                                                                                   \
        if (get(ptr, caller, &out) || !runtime)                                                    \
            return out;                                                                            \
        real = zr_runtime_function(runtime, prefix "3getEPvRKNS0_7contextE");                      \
        return real ? ((struct handle(*)(void *, const void *))real)(ptr, context) : out;          \
    }                                                                                              \
    void zr_sycl_##name##_put(struct handle *handle, const void *context);                         \
    EXPORT(name##_put, prefix "3putERNS4_6handleERKNS0_7contextE")                                 \
    void zr_sycl_##name##_put(struct handle *handle, const void *context)                          \
    {                                                                                              \
        const void *caller = __builtin_return_address(0);                                          \
        struct zr_runtime *runtime = runtime_of(caller, ZR_E_ipc_memory_put);                      \
        zr_function real;                                                                          \
                                                                                                   \
        if (put(handle, caller) || !runtime)                                                       \
            return;                                                                                \
        real = zr_runtime_function(runtime, prefix "3putERNS4_6handleERKNS0_7contextE");           \
        if (real)                                                                                  \
            ((void (*)(struct handle *, const void *))real)(handle, context);                      \
    }                                                                                              \
    void zr_sycl_##name##_close(void *ptr, const void *context);                                   \
    EXPORT(name##_close, prefix "5closeEPvRKNS0_7contextE")                                        \
    void zr_sycl_##name##_close(void *ptr, const void *context)                                    \
    {                                                                                              \
        const void *caller = __builtin_return_address(0);                                          \
        struct zr_runtime *runtime = runtime_of(caller, ZR_E_ipc_memory_close);                    \
        zr_function real;                                                                          \
                                                                                                   \
        if (close_here(ptr, caller) || !runtime)                                                   \
            return;                                                                                \
        real = zr_runtime_function(runtime, prefix "5closeEPvRKNS0_7contextE");                    \
        if (real)                                                                                  \
            ((void (*)(void *, const void *))real)(ptr, context);                                  \
    }
ZR_IPC(ipc_memory, "_ZN4sycl3_V13ext6oneapi12experimental10ipc_memory")
ZR_IPC(ipc, "_ZN4sycl3_V13ext6oneapi12experimental3ipc6memory")

#define OPEN "_ZN4sycl3_V16detail16openIPCMemHandleEPKSt4bytemRKNS0_7contextERKNS0_6deviceE"
void *zr_sycl_ipc_open(const void *data, size_t size, const void *context, const void *device);
EXPORT(ipc_open, OPEN)
void *zr_sycl_ipc_open(const void *data, size_t size, const void *context, const void *device)
{
    const void *caller = __builtin_return_address(0);
    struct zr_runtime *runtime = runtime_of(caller, ZR_E_ipc_memory_open);
    void *out = NULL;
    zr_function real;

    if (!runtime || open_here(runtime, data, size, context, device, caller, &out))
        return out;
    real = zr_runtime_function(runtime, OPEN);
    return real ? ((void *(*)(const void *, size_t, const void *, const void *))real)(
                      data, size, context, device)
                : NULL;
}
