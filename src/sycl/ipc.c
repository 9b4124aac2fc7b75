/*
 * SYCL's IPC for blocks of route:sycl. The runtime asks UMF's tracker about a pointer and rejects
 * ours. So we export a block of the runtime's own and, in a copy of that handle, replace what
 * identifies the block: Level Zero's handle, base, size and offset, each found by its value. Any
 * other process can open such a handle, with or without the preload; this one is given the block
 * itself.
 *
 * UMF tells allocations at one address apart by an id in the handle. All handles of one block must
 * be equal but for the offset, so the first one is kept until the block is freed.
 */
#include "sycl/sycl.h"

#include <stdlib.h>
#include <string.h>

#define NATIVE_SIZE                                                                                \
    (((size_t)17 << 20) + 0x30000) /* above any pool's usual limit, and found nowhere else */
#define NATIVE_OFFSET ((size_t)0x51240)

/* Layout of sycl::ext::oneapi::experimental::ipc::handle, which is returned in two registers. */
struct handle {
    void *data;
    size_t size;
};
typedef struct handle (*get_function)(void *ptr, const void *context);
typedef void (*put_function)(struct handle *handle, const void *context);

/* The handle of a block, its offset not yet set, or a copy with an offset that the program was
 * given. */
struct exported {
    struct exported *next;
    uintptr_t base; /* of the block; 0: a copy */
    uint64_t word;  /* of the block: its generation tells it from later blocks at this base */
    ze_ipc_mem_handle_t handle;
    size_t size, offset_at;
    _Alignas(16) char data[];
};

static struct exported *exports;

/* --- making a handle out of one of the runtime's ---------------------------------------------- */

/* Replaces each occurrence of `from` by `to`. Returns how many there were; *at is the position of
 * the last. */
static unsigned replace_bytes(char *data, size_t size, const void *from, const void *to, size_t n,
                              size_t *at) {
    unsigned found = 0;

    for (size_t i = 0; i + n <= size; i += 4)
        if (memcmp(data + i, from, n) == 0) {
            memcpy(data + i, to, n);
            *at = i;
            found++;
        }
    return found;
}

static struct exported *make(const struct zr_block *b, const ze_ipc_mem_handle_t *handle,
                             const struct handle *native, const void *base,
                             const struct zr_watch *seen) {
    struct exported *e = malloc(sizeof *e + native->size);
    size_t offset = NATIVE_OFFSET, none = 0, at;

    if (!e)
        return NULL;
    *e = (struct exported){
        .word = zr_block_word(b), .base = b->base, .handle = *handle, .size = native->size};
    memcpy(e->data, native->data, native->size);
    if (seen->exported &&
        replace_bytes(e->data, e->size, &seen->handle, handle, sizeof *handle, &at) == 1 &&
        replace_bytes(e->data, e->size, &base, &b->base, sizeof base, &at) == 1 &&
        replace_bytes(e->data, e->size, &offset, &none, sizeof offset, &e->offset_at) == 1 &&
        replace_bytes(e->data, e->size, &seen->made, &b->size, sizeof b->size, &at) >= 1)
        return e;
    free(e);
    return NULL;
}

struct wanted {
    const struct zr_block *block;
    ze_ipc_mem_handle_t handle;
    const void *context; /* SYCL's */
    get_function get;
    put_function put;
    struct exported *made;
};

/* These calls are ours, not the program's: watched, but not counted. */
static void ask_runtime(const struct zr_runtime *runtime, const struct zr_request *objects,
                        void *arg) {
    struct wanted *w = arg;
    struct zr_practice watched;
    struct zr_op op __attribute__((cleanup(zr_op_end)));
    struct handle native;
    char *base;

    zr_watch_begin(&op, &watched, NATIVE_SIZE);
    base = zr_native_alloc(runtime, objects, NATIVE_SIZE);
    if (!base)
        return;
    native = w->get(base + NATIVE_OFFSET, w->context);
    if (native.data) {
        w->made = make(w->block, &w->handle, &native, base, &watched.seen);
        w->put(&native, w->context);
    }
    zr_native_free(runtime, objects, base);
}

/* --- the handles of blocks -------------------------------------------------------------------- */

/* The caller holds the lock. */
static struct exported *find_export(uintptr_t base, uint64_t word) {
    struct exported *e = exports;

    while (e && (e->base != base || e->word >> 32 != word >> 32))
        e = e->next;
    return e;
}

/* If two threads export one block, both get the handle of the first. */
static struct exported *add_export(struct exported *new) {
    struct exported *e;

    zr_lock(&zr_sycl_lock);
    e = new->base ? find_export(new->base, new->word) : NULL;
    if (!e) {
        new->next = exports;
        exports = new;
    }
    zr_unlock(&zr_sycl_lock);
    if (e)
        free(new);
    return e ? e : new;
}

/* Removes and returns the copy with this data, or else the handle of the block with this base; NULL
 * if none exists. */
static struct exported *take_export(const void *data, uintptr_t base) {
    struct exported **at = &exports, *e;

    zr_lock(&zr_sycl_lock);
    while (*at && (data ? (*at)->data != data : (*at)->base != base))
        at = &(*at)->next;
    e = *at;
    if (e)
        *at = e->next;
    zr_unlock(&zr_sycl_lock);
    return e;
}

static struct exported *export(const struct zr_block *b, const void *caller, struct wanted *w) {
    struct zr_op op __attribute__((cleanup(zr_op_end)));
    ze_result_t result;

    zr_route_enter(&op, zr_block_hook(b), ZR_E_ipc_memory_get, caller);
    result =
        ZR_DOWN(&op, zeMemGetIpcHandle, 0, (b->key.context, (const void *)b->base, &w->handle));
    if (result != ZE_RESULT_SUCCESS)
        return NULL;
    zr_registry_exported((const void *)b->base, &w->handle);
    zr_practice_use(b->key.context, b->key.account, ask_runtime, w);
    if (!w->made) {
        ZR_DOWN(&op, zeMemPutIpcHandle, 0, (b->key.context, w->handle));
        zr_warn("route:sycl: the layout of this runtime's IPC handles is unknown; a block cannot "
                "be exported");
        return NULL;
    }
    return add_export(w->made);
}

/* The handle of a block of ours; one without data if the runtime is to answer. */
static struct handle handle_of(struct wanted *w, char *ptr, const void *caller) {
    struct exported *e, *copy;
    size_t offset;

    zr_lock(&zr_sycl_lock);
    e = find_export(w->block->base, zr_block_word(w->block));
    zr_unlock(&zr_sycl_lock);
    if (!e)
        e = export(w->block, caller, w);
    copy = e ? calloc(1, sizeof *copy + e->size) : NULL;
    if (!copy)
        return (struct handle){NULL, 0};
    offset = (uintptr_t)ptr - w->block->base;
    memcpy(copy->data, e->data, e->size);
    memcpy(copy->data + e->offset_at, &offset, sizeof offset);
    return (struct handle){add_export(copy)->data, e->size};
}

/* The block of ours that a handle names, or NULL. Drivers that import their own memory have lost
 * the queue for it. */
static char *own_block(const char *data, size_t size) {
    char *p = NULL;
    size_t offset;

    zr_lock(&zr_sycl_lock);
    for (struct exported *e = exports; e && !p; e = e->next) {
        size_t after = e->offset_at + sizeof offset;

        if (!e->base || e->size != size || memcmp(e->data, data, e->offset_at) != 0 ||
            memcmp(e->data + after, data + after, size - after) != 0)
            continue;
        memcpy(&offset, data + e->offset_at, sizeof offset);
        p = (char *)e->base + offset;
    }
    zr_unlock(&zr_sycl_lock);
    return p && zr_route_block(p) ? p : NULL;
}

void zr_ipc_before_free(struct zr_op *op, const struct zr_block *b) {
    struct exported *e = take_export(NULL, b->base);

    if (e && e->word >> 32 == zr_block_word(b) >> 32)
        ZR_DOWN(op, zeMemPutIpcHandle, 0, (b->key.context, e->handle));
    free(e);
}

/*
 * A child's SYCL objects are copies of its parent's, so what was found about them still holds. The
 * handles are the parent's: their few bytes are leaked.
 */
void zr_sycl_fork_child(void) {
    exports = NULL;
}

/* --- what the program calls ------------------------------------------------------------------- */

static struct handle get_handle(void *ptr, const void *context, const void *caller,
                                const char *get_symbol, const char *put_symbol) {
    struct zr_runtime *r = zr_runtime_called(ZR_E_ipc_memory_get, caller);
    struct wanted w = {.block = zr_route_block(ptr),
                       .context = context,
                       .get = (get_function)zr_runtime_function(r, get_symbol, caller),
                       .put = (put_function)zr_runtime_function(r, put_symbol, caller)};
    struct handle out = {NULL, 0};

    if (w.block && w.get && w.put)
        out = handle_of(&w, ptr, caller);
    return out.data || !w.get ? out : w.get(ptr, context);
}

/* Handles that we did not make are the runtime's. */
static void put_handle(struct handle *handle, const void *context, const void *caller,
                       const char *symbol) {
    struct zr_runtime *runtime = zr_runtime_called(ZR_E_ipc_memory_put, caller);
    put_function real = (put_function)zr_runtime_function(runtime, symbol, caller);
    struct exported *copy = handle->data ? take_export(handle->data, 0) : NULL;

    if (!copy && real)
        real(handle, context);
    free(copy);
}

static void close_pointer(void *ptr, const void *context, const void *caller, const char *symbol) {
    struct zr_runtime *runtime = zr_runtime_called(ZR_E_ipc_memory_close, caller);
    zr_function real = zr_runtime_function(runtime, symbol, caller);

    if (!real || zr_route_block(ptr))
        return;
    ((void (*)(void *, const void *))real)(ptr, context);
    zr_policy_kept_open(ptr, true); /* UMF may keep it for the next time */
}

/* The same three functions, in both namespaces that runtimes have used for them. */
#define GET "3getEPvRKNS0_7contextE"
#define PUT "3putERNS4_6handleERKNS0_7contextE"
#define CLOSE "5closeEPvRKNS0_7contextE"
#define ZR_IPC(name, prefix)                                                                       \
    struct handle zr_sycl_##name##_get(void *ptr, const void *context);                            \
    ZR_SYCL_EXPORT(name##_get, prefix GET)                                                         \
    struct handle zr_sycl_##name##_get(void *ptr, const void *context) {                           \
        return get_handle(ptr, context, __builtin_return_address(0), prefix GET, prefix PUT);      \
    }                                                                                              \
    void zr_sycl_##name##_put(struct handle *handle, const void *context);                         \
    ZR_SYCL_EXPORT(name##_put, prefix PUT)                                                         \
    void zr_sycl_##name##_put(struct handle *handle, const void *context) {                        \
        put_handle(handle, context, __builtin_return_address(0), prefix PUT);                      \
    }                                                                                              \
    void zr_sycl_##name##_close(void *ptr, const void *context);                                   \
    ZR_SYCL_EXPORT(name##_close, prefix CLOSE)                                                     \
    void zr_sycl_##name##_close(void *ptr, const void *context) {                                  \
        close_pointer(ptr, context, __builtin_return_address(0), prefix CLOSE);                    \
    }
ZR_IPC(ipc_memory, "_ZN4sycl3_V13ext6oneapi12experimental10ipc_memory")
ZR_IPC(ipc, "_ZN4sycl3_V13ext6oneapi12experimental3ipc6memory")

#define OPEN "_ZN4sycl3_V16detail16openIPCMemHandleEPKSt4bytemRKNS0_7contextERKNS0_6deviceE"
void *zr_sycl_ipc_open(const void *data, size_t size, const void *context, const void *device);
ZR_SYCL_EXPORT(ipc_open, OPEN)
void *zr_sycl_ipc_open(const void *data, size_t size, const void *context, const void *device) {
    const void *caller = __builtin_return_address(0);
    struct zr_runtime *runtime = zr_runtime_called(ZR_E_ipc_memory_open, caller);
    zr_function real = zr_runtime_function(runtime, OPEN, caller);
    char *ptr = own_block(data, size);

    if (ptr || !real)
        return ptr;
    ptr = ((void *(*)(const void *, size_t, const void *, const void *))real)(data, size, context,
                                                                              device);
    zr_policy_kept_open(ptr, false);
    return ptr;
}
