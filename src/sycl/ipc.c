/*
 * SYCL's IPC for blocks of route:sycl. The runtime asks UMF's tracker about a pointer and refuses ours. So it is asked
 * for the handle of a block of its own instead, and in a copy of that handle the parts that name the block are
 * exchanged: Level Zero's handle, base, size and offset. Where they lie is found by looking for their values. Such a
 * handle is opened by any process, with or without us, like any other; opening and closing are the runtime's own.
 *
 * UMF tells allocations at one address apart by an id in the handle: all handles of one block must be the same but for
 * the offset, so the first one is kept until the block is freed.
 */
#include "sycl/sycl.h"

#include <stdlib.h>
#include <string.h>

#define NATIVE_SIZE (((size_t)17 << 20) + 0x30000) /* over any pool's usual limit, and unlike any other number */
#define NATIVE_OFFSET ((size_t)0x51240)

/* As sycl::ext::oneapi::experimental::ipc::handle: returned in two registers. */
struct handle {
    void *data;
    size_t size;
};
typedef struct handle (*get_handle)(void *ptr, const void *context);
typedef void (*put_handle)(struct handle *handle, const void *context);

/* The handle of a block, its offset still to be set. */
struct exported {
    struct exported *next;
    uint64_t word; /* of the block: another generation is another block */
    uintptr_t base;
    ze_ipc_mem_handle_t handle;
    size_t size, offset_at;
    char data[];
};

/* What the program was given. */
struct issued {
    struct issued *next;
    _Alignas(16) char data[];
};

static struct exported *exports;
static struct issued *issues;
static struct zr_lock lock;

/* --- making a handle out of one of the runtime's ------------------------------------------------------------------ */

/* Puts `to` wherever `from` is. Returns how often that was; *at is the last place. */
static unsigned exchange(char *data, size_t size, const void *from, const void *to, size_t n, size_t *at) {
    unsigned found = 0;

    for (size_t i = 0; i + n <= size; i += 4)
        if (memcmp(data + i, from, n) == 0) {
            memcpy(data + i, to, n);
            *at = i;
            found++;
        }
    return found;
}

static struct exported *make(const struct zr_block *b, const ze_ipc_mem_handle_t *handle, const struct handle *native,
                             const void *base, const struct zr_watch *seen) {
    struct exported *e = malloc(sizeof *e + native->size);
    size_t offset = NATIVE_OFFSET, none = 0, at;

    if (!e)
        return NULL;
    *e = (struct exported){.word = zr_block_word(b), .base = b->base, .handle = *handle, .size = native->size};
    memcpy(e->data, native->data, native->size);
    if (seen->exported && exchange(e->data, e->size, &seen->handle, handle, sizeof *handle, &at) == 1 &&
        exchange(e->data, e->size, &base, &b->base, sizeof base, &at) == 1 &&
        exchange(e->data, e->size, &offset, &none, sizeof offset, &e->offset_at) == 1 &&
        exchange(e->data, e->size, &seen->made, &b->size, sizeof b->size, &at) >= 1)
        return e;
    free(e);
    return NULL;
}

struct wanted {
    const struct zr_block *block;
    ze_ipc_mem_handle_t handle;
    const void *context; /* SYCL's */
    get_handle get;
    put_handle put;
    struct exported *made;
};

/* Calls of ours, not of the program: uncounted, but seen. */
static void ask_runtime(const struct zr_runtime *runtime, const struct zr_request *objects, void *arg) {
    struct wanted *w = arg;
    struct zr_watch seen = {.size = NATIVE_SIZE};
    struct zr_watching was __attribute__((cleanup(zr_watch_stop), unused)) = zr_watch_start(&seen);
    char *base = zr_native_alloc(runtime, objects, NATIVE_SIZE);
    struct handle native;

    if (!base)
        return;
    native = w->get(base + NATIVE_OFFSET, w->context);
    if (native.data) {
        w->made = make(w->block, &w->handle, &native, base, &seen);
        w->put(&native, w->context);
    }
    zr_native_free(runtime, objects, base);
}

/* --- the handles of blocks ---------------------------------------------------------------------------------------- */

static struct exported *find(const struct zr_block *b) {
    struct exported *e;

    zr_lock(&lock);
    for (e = exports; e && (e->base != b->base || e->word >> 32 != zr_block_word(b) >> 32); e = e->next)
        ;
    zr_unlock(&lock);
    return e;
}

/* Of two threads that export one block both get the handle of the first. */
static struct exported *publish(struct exported *made) {
    struct exported *e;

    zr_lock(&lock);
    for (e = exports; e && (e->base != made->base || e->word >> 32 != made->word >> 32); e = e->next)
        ;
    if (!e) {
        made->next = exports;
        exports = made;
    }
    zr_unlock(&lock);
    if (e)
        free(made);
    return e ? e : made;
}

static struct exported *export(const struct zr_block *b, const void *caller, struct wanted *w) {
    struct zr_call call __attribute__((cleanup(zr_leave)));
    ze_result_t result;

    zr_route_enter(&call, zr_block_hook(b), caller);
    result = ZR_DOWN(&call, zeMemGetIpcHandle, 0, (b->key.context, (const void *)b->base, &w->handle));
    if (result != ZE_RESULT_SUCCESS)
        return NULL;
    zr_registry_exported((const void *)b->base, &w->handle);
    zr_practice_use(b->key.context, b->key.account, ask_runtime, w);
    if (!w->made) {
        ZR_DOWN(&call, zeMemPutIpcHandle, 0, (b->key.context, w->handle));
        zr_warn("route:sycl: this runtime's IPC handles have a form that is not known; a block cannot be exported");
        return NULL;
    }
    return publish(w->made);
}

static bool get(void *ptr, const void *context, const void *caller, get_handle real_get, put_handle real_put,
                struct handle *out) {
    struct zr_block *b = zr_route_block(ptr);
    struct wanted w = {.block = b, .context = context, .get = real_get, .put = real_put};
    struct exported *e;
    struct issued *i;
    size_t offset;

    if (!b || !real_get || !real_put)
        return false;
    e = find(b);
    if (!e && !(e = export(b, caller, &w)))
        return false;
    i = malloc(sizeof *i + e->size);
    if (!i)
        return false;
    offset = (uintptr_t)ptr - b->base;
    memcpy(i->data, e->data, e->size);
    memcpy(i->data + e->offset_at, &offset, sizeof offset);
    *out = (struct handle){i->data, e->size};
    zr_lock(&lock);
    i->next = issues;
    issues = i;
    zr_unlock(&lock);
    return true;
}

/* False: it was the runtime that gave it out. */
static bool put(const struct handle *h) {
    struct issued **at, *i;

    zr_lock(&lock);
    for (at = &issues; *at && (*at)->data != h->data; at = &(*at)->next)
        ;
    i = *at;
    if (i)
        *at = i->next;
    zr_unlock(&lock);
    free(i);
    return i != NULL;
}

/* A handle of a block of this process: nothing needs to be opened. */
static void *open_own(const char *data, size_t size) {
    struct exported *e;
    char *p = NULL;
    size_t offset;

    zr_lock(&lock);
    for (e = exports; e && !p; e = e->next) {
        size_t after = e->offset_at + sizeof offset;

        if (e->size != size || memcmp(e->data, data, e->offset_at) != 0 ||
            memcmp(e->data + after, data + after, size - after) != 0)
            continue;
        memcpy(&offset, data + e->offset_at, sizeof offset);
        p = (char *)e->base + offset;
    }
    zr_unlock(&lock);
    return p && zr_route_block(p) ? p : NULL;
}

void zr_ipc_before_free(struct zr_call *call, const struct zr_block *b) {
    struct exported **at, *e;

    zr_lock(&lock);
    for (at = &exports; *at && (*at)->base != b->base; at = &(*at)->next)
        ;
    e = *at;
    if (e)
        *at = e->next;
    zr_unlock(&lock);
    if (e && e->word >> 32 == zr_block_word(b) >> 32)
        ZR_DOWN(call, zeMemPutIpcHandle, 0, (b->key.context, e->handle));
    free(e);
}

/* The parent's; their few bytes are let go of. */
void zr_ipc_fork_child(void) {
    lock = (struct zr_lock){0};
    exports = NULL;
    issues = NULL;
}

/* --- what the program calls --------------------------------------------------------------------------------------- */

/* The same three functions in the two namespaces that runtimes have had for them. */
#define ZR_IPC(name, prefix)                                                                                           \
    struct handle zr_sycl_##name##_get(void *ptr, const void *context);                                                \
    ZR_SYCL_EXPORT(name##_get, prefix "3getEPvRKNS0_7contextE")                                                        \
    struct handle zr_sycl_##name##_get(void *ptr, const void *context) {                                               \
        const void *caller = __builtin_return_address(0);                                                              \
        struct zr_runtime *r = zr_runtime_called(ZR_E_ipc_memory_get, caller);                                         \
        get_handle real = r ? (get_handle)zr_runtime_function(r, prefix "3getEPvRKNS0_7contextE") : NULL;              \
        put_handle back = r ? (put_handle)zr_runtime_function(r, prefix "3putERNS4_6handleERKNS0_7contextE") : NULL;   \
        struct handle out = {NULL, 0};                                                                                 \
                                                                                                                       \
        if (get(ptr, context, caller, real, back, &out) || !real)                                                      \
            return out;                                                                                                \
        return real(ptr, context);                                                                                     \
    }                                                                                                                  \
    void zr_sycl_##name##_put(struct handle *handle, const void *context);                                             \
    ZR_SYCL_EXPORT(name##_put, prefix "3putERNS4_6handleERKNS0_7contextE")                                             \
    void zr_sycl_##name##_put(struct handle *handle, const void *context) {                                            \
        struct zr_runtime *r = zr_runtime_called(ZR_E_ipc_memory_put, __builtin_return_address(0));                    \
        put_handle real = r ? (put_handle)zr_runtime_function(r, prefix "3putERNS4_6handleERKNS0_7contextE") : NULL;   \
                                                                                                                       \
        if (!put(handle) && real)                                                                                      \
            real(handle, context);                                                                                     \
    }                                                                                                                  \
    void zr_sycl_##name##_close(void *ptr, const void *context);                                                       \
    ZR_SYCL_EXPORT(name##_close, prefix "5closeEPvRKNS0_7contextE")                                                    \
    void zr_sycl_##name##_close(void *ptr, const void *context) {                                                      \
        struct zr_runtime *r = zr_runtime_called(ZR_E_ipc_memory_close, __builtin_return_address(0));                  \
        zr_function real = r ? zr_runtime_function(r, prefix "5closeEPvRKNS0_7contextE") : NULL;                       \
                                                                                                                       \
        if (!zr_route_block(ptr) && real)                                                                              \
            ((void (*)(void *, const void *))real)(ptr, context);                                                      \
    }
ZR_IPC(ipc_memory, "_ZN4sycl3_V13ext6oneapi12experimental10ipc_memory")
ZR_IPC(ipc, "_ZN4sycl3_V13ext6oneapi12experimental3ipc6memory")

#define OPEN "_ZN4sycl3_V16detail16openIPCMemHandleEPKSt4bytemRKNS0_7contextERKNS0_6deviceE"
void *zr_sycl_ipc_open(const void *data, size_t size, const void *context, const void *device);
ZR_SYCL_EXPORT(ipc_open, OPEN)
void *zr_sycl_ipc_open(const void *data, size_t size, const void *context, const void *device) {
    struct zr_runtime *r = zr_runtime_called(ZR_E_ipc_memory_open, __builtin_return_address(0));
    zr_function real = r ? zr_runtime_function(r, OPEN) : NULL;
    void *own = open_own(data, size);

    if (own || !real)
        return own;
    return ((void *(*)(const void *, size_t, const void *, const void *))real)(data, size, context, device);
}
