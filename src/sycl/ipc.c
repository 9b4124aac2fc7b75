/*
 * SYCL's IPC for blocks of the SYCL route. The runtime asks UMF's tracker about a pointer and
 * refuses ours, so for our blocks the handle is our own: Level Zero's handle of the block, and
 * where in it the pointer lies. A process that runs zeroute opens it; any other hands it to its
 * runtime, which answers that it does not know it. Handles and pointers that are not ours go to the
 * runtime.
 */
#include "sycl/route.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

/* What travels between processes. */
struct ticket {
    char magic[16];
    uint64_t process; /* who issued it: no two have the same */
    uint64_t base, size;
    ze_ipc_mem_handle_t handle;
    uint64_t offset;
};
static const char magic[16] = "zeroute-ipc-mem";

/* What get() hands out; the program sees the ticket alone. */
struct issued {
    struct ticket ticket;
    ze_context_handle_t context;
    uint32_t hook;
};

/* As sycl::ext::oneapi::experimental::ipc::handle: returned in two registers. */
struct handle {
    void *data;
    size_t size;
};

/*
 * Blocks that are open here, each opened once: opened a second time the driver gives another address, and takes the
 * memory away from both when one is closed.
 */
struct opened {
    struct opened *next;
    struct ticket ticket;
    ze_context_handle_t context;
    ze_device_handle_t device;
    void *base;
    unsigned times;
    uint32_t hook;
    bool own; /* a block of this process: nothing was asked of the driver */
};
static struct opened *opened;
static struct zr_lock lock;
static uint64_t this_process; /* under the lock */

static uint64_t process(void)
{
    struct timespec t;

    zr_lock(&lock);
    if (!this_process) {
        clock_gettime(CLOCK_REALTIME, &t);
        this_process = ((uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec) << 8 ^ (uint64_t)getpid();
    }
    zr_unlock(&lock);
    return this_process;
}

/* --- Level Zero, through our own implementations ---------------------------------------------- */

static void go_through(uint32_t hook, const void *caller)
{
    zr_thread.caller = caller;
    zr_thread.hook = hook;
    zr_thread.way = hook == ZR_HOOK_PLT     ? ZR_VIA_PLT
                    : hook >= ZR_HOOK_TABLE ? ZR_VIA_TABLE
                                            : ZR_VIA_DLSYM;
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
    i->hook = habit ? habit->hook : ZR_HOOK_PLT;
    memcpy(i->ticket.magic, magic, sizeof magic);
    i->ticket.process = process();
    i->ticket.base = b->base;
    i->ticket.size = b->size;
    i->ticket.offset = (uintptr_t)ptr - b->base;
    go_through(i->hook, caller);
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
    go_through(i->hook, caller);
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

/* Under the lock. A handle may come back for another block when the first is gone; its address tells. */
static struct opened *find_open(const struct ticket *t, ze_context_handle_t context, ze_device_handle_t device)
{
    for (struct opened *o = opened; o; o = o->next)
        if (o->context == context && o->device == device && o->ticket.process == t->process &&
            o->ticket.base == t->base && o->ticket.size == t->size &&
            memcmp(&o->ticket.handle, &t->handle, sizeof t->handle) == 0)
            return o;
    return NULL;
}

/* Under the lock. NULL: the driver does not open it. */
static struct opened *open_new(const struct ticket *t, ze_context_handle_t context, ze_device_handle_t device,
                               const void *caller)
{
    const struct zr_habit *habit = zr_habit_in(context, 0);
    struct opened *o = calloc(1, sizeof *o);

    if (!o)
        return NULL;
    o->ticket = *t;
    o->context = context;
    o->device = device;
    o->hook = habit ? habit->hook : ZR_HOOK_PLT;
    o->own = t->process == this_process;
    o->base = (void *)(uintptr_t)t->base;
    go_through(o->hook, caller);
    if (!o->own && zr_on_zeMemOpenIpcHandle(context, device, t->handle, 0, &o->base) != ZE_RESULT_SUCCESS) {
        free(o);
        return NULL;
    }
    o->next = opened;
    opened = o;
    return o;
}

static bool open_here(const struct zr_runtime *runtime, const void *data, size_t size,
                      const void *context, const void *device, const void *caller, void **out)
{
    ze_context_handle_t in;
    ze_device_handle_t on;
    struct ticket ticket;
    struct opened *o;

    if (!is_ours(data, size) || !runtime->ours ||
        runtime->context_backend(context) != ZR_SYCL_LEVEL_ZERO)
        return false;
    memcpy(&ticket, data, sizeof ticket);
    in = native(runtime, "_ZNK4sycl3_V17context9getNativeEv", context);
    on = native(runtime, "_ZNK4sycl3_V16device9getNativeEv", device);
    zr_lock(&lock);
    o = find_open(&ticket, in, on);
    if (!o)
        o = open_new(&ticket, in, on, caller);
    if (o) {
        o->times++;
        *out = (char *)o->base + ticket.offset;
    }
    zr_unlock(&lock);
    return o != NULL;
}

static bool close_here(void *ptr, const void *caller)
{
    struct opened **at, *o;
    bool last;

    zr_lock(&lock);
    for (at = &opened; *at && (uintptr_t)ptr - (uintptr_t)(*at)->base >= (*at)->ticket.size; at = &(*at)->next)
        ;
    o = *at;
    last = o && --o->times == 0;
    if (last)
        *at = o->next;
    zr_unlock(&lock);
    if (!last)
        return o != NULL;
    if (!o->own) {
        go_through(o->hook, caller);
        zr_on_zeMemCloseIpcHandle(o->context, o->base);
    }
    free(o);
    return true;
}

void zr_fork_child_sycl_ipc(void)
{
    lock = (struct zr_lock){0};
    opened = NULL; /* the parent's; its few bytes are let go of */
    this_process = 0;
}

/* --- what the program calls ------------------------------------------------------------------- */

/* The same three functions in the two namespaces that runtimes have had for them. */
#define ZR_IPC(name, prefix)                                                                       \
    struct handle zr_sycl_##name##_get(void *ptr, const void *context);                            \
    ZR_SYCL_EXPORT(name##_get, prefix "3getEPvRKNS0_7contextE")                                    \
    struct handle zr_sycl_##name##_get(void *ptr, const void *context)                             \
    {                                                                                              \
        const void *caller = __builtin_return_address(0);                                          \
        struct zr_runtime *runtime = zr_runtime_called(ZR_E_ipc_memory_get, caller);               \
        struct handle out = {NULL, 0};                                                             \
        zr_function real;                                                                          \
                                                                                                   \
        if (get(ptr, caller, &out) || !runtime)                                                    \
            return out;                                                                            \
        real = zr_runtime_function(runtime, prefix "3getEPvRKNS0_7contextE");                      \
        return real ? ((struct handle(*)(void *, const void *))real)(ptr, context) : out;          \
    }                                                                                              \
    void zr_sycl_##name##_put(struct handle *handle, const void *context);                         \
    ZR_SYCL_EXPORT(name##_put, prefix "3putERNS4_6handleERKNS0_7contextE")                         \
    void zr_sycl_##name##_put(struct handle *handle, const void *context)                          \
    {                                                                                              \
        const void *caller = __builtin_return_address(0);                                          \
        struct zr_runtime *runtime = zr_runtime_called(ZR_E_ipc_memory_put, caller);               \
        zr_function real;                                                                          \
                                                                                                   \
        if (put(handle, caller) || !runtime)                                                       \
            return;                                                                                \
        real = zr_runtime_function(runtime, prefix "3putERNS4_6handleERKNS0_7contextE");           \
        if (real)                                                                                  \
            ((void (*)(struct handle *, const void *))real)(handle, context);                      \
    }                                                                                              \
    void zr_sycl_##name##_close(void *ptr, const void *context);                                   \
    ZR_SYCL_EXPORT(name##_close, prefix "5closeEPvRKNS0_7contextE")                                \
    void zr_sycl_##name##_close(void *ptr, const void *context)                                    \
    {                                                                                              \
        const void *caller = __builtin_return_address(0);                                          \
        struct zr_runtime *runtime = zr_runtime_called(ZR_E_ipc_memory_close, caller);             \
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
ZR_SYCL_EXPORT(ipc_open, OPEN)
void *zr_sycl_ipc_open(const void *data, size_t size, const void *context, const void *device)
{
    const void *caller = __builtin_return_address(0);
    struct zr_runtime *runtime = zr_runtime_called(ZR_E_ipc_memory_open, caller);
    void *out = NULL;
    zr_function real;

    if (!runtime || open_here(runtime, data, size, context, device, caller, &out))
        return out;
    real = zr_runtime_function(runtime, OPEN);
    return real ? ((void *(*)(const void *, size_t, const void *, const void *))real)(
                      data, size, context, device)
                : NULL;
}
