/*
 * SYCL's USM functions, in front of the runtime's own. Thin: counts the call, asks the route, and leaves the
 * rest to the runtime. The runtime may throw through these frames: nothing is held across a call to it but what a
 * cleanup lets go.
 */
#include "sycl/runtime_pool.h"

enum {
    KIND_DEVICE = 1, /* sycl::usm::alloc::device */
    LARGEST_ALIGNMENT = 64 << 10
};

/* A form with properties is served only when the list is empty: a bitset of 8 bytes, then a vector. */
static inline bool has_properties(const void *properties)
{
    const struct {
        uint64_t dataless;
        const void *begin, *end, *capacity;
    } *list = properties;

    return list && (list->dataless || list->begin != list->end);
}

static bool probe(const struct zr_runtime *r, const struct zr_request *request, size_t size)
{
    static const char code[64]; /* an empty code location: three null pointers and two numbers */
    void *p;

    if (request->queue) {
        p = ((void *(*)(size_t, const void *, const void *))r->real[ZR_SYCL_malloc_device_QC])(
            size, request->queue, code);
        if (p)
            ((void (*)(void *, const void *, const void *))r->real[ZR_SYCL_free_QC])(p, request->queue, code);
    } else {
        p = ((void *(*)(size_t, const void *, const void *, const void *))r->real[ZR_SYCL_malloc_device_DC])(
            size, request->device, request->context, code);
        if (p)
            ((void (*)(void *, const void *, const void *))r->real[ZR_SYCL_free_XC])(p, request->context,
                                                                                     code);
    }
    return p != NULL;
}

static inline bool is_aligned(enum zr_sycl_form form)
{
    return (form >= ZR_SYCL_aligned_alloc_device_QC && form <= ZR_SYCL_aligned_alloc_device_DPC) ||
           (form >= ZR_SYCL_aligned_alloc_QKC && form <= ZR_SYCL_aligned_alloc_DKPC);
}

/* The program's request once more, by the plainest form: all forms end in the same call. */
static void *ask(const struct zr_runtime *runtime, const struct zr_request *r)
{
    static const char code[64];

    if (r->queue && is_aligned(r->which))
        return ((void *(*)(size_t, size_t, const void *, const void *))
                    runtime->real[ZR_SYCL_aligned_alloc_device_QC])(r->alignment, r->size, r->queue, code);
    if (r->queue)
        return ((void *(*)(size_t, const void *, const void *))runtime->real[ZR_SYCL_malloc_device_QC])(
            r->size, r->queue, code);
    if (is_aligned(r->which))
        return ((void *(*)(size_t, size_t, const void *, const void *, const void *))
                    runtime->real[ZR_SYCL_aligned_alloc_device_DC])(r->alignment, r->size, r->device, r->context,
                                                                    code);
    return ((void *(*)(size_t, const void *, const void *, const void *))runtime->real[ZR_SYCL_malloc_device_DC])(
        r->size, r->device, r->context, code);
}

/*
 * What may be served at all. Size 0 and odd alignments get the runtime's own, and so do alignments above the page of
 * device memory: adapters differ about those.
 */
static inline bool is_plain(const struct zr_request *r)
{
    return likely(r->size != 0) && likely(!(r->alignment & (r->alignment - 1))) &&
           likely(r->alignment <= LARGEST_ALIGNMENT) && likely(!has_properties(r->properties));
}

/* True: *out is the answer. */
static bool serve(const struct zr_runtime *runtime, const struct zr_request *r, const void *caller, void **out)
{
    const struct zr_habit *habit;
    enum zr_served route;

    if (!runtime->ours || !is_plain(r))
        return false;
    route = zr_route();
    if (unlikely(route == ZR_SERVED_UNDECIDED)) {
        if (!zr_is_level_zero(runtime, r)) {
            zr_route_waits();
            return false;
        }
        route = zr_route_decide();
    }
    if (route == ZR_SERVED_BY_POOL)
        return zr_shortcut_slow(runtime, r, ask, out);
    if (route != ZR_SERVED_AT_SYCL)
        return false;
    habit = zr_habit_of(runtime, r, probe);
    if (!habit)
        return false;
    return zr_route_alloc(habit, r->size, r->alignment, caller, out);
}

static inline bool is_device(enum zr_entry entry, int kind)
{
    if (entry == ZR_E_malloc_device || entry == ZR_E_aligned_alloc_device)
        return true;
    return (entry == ZR_E_malloc || entry == ZR_E_aligned_alloc) && kind == KIND_DEVICE;
}

static inline bool is_short_way(void)
{
    if (zr_route() != ZR_SERVED_BY_POOL || unlikely(zr_exiting))
        return false;
    zr_fork_check();
    return true;
}

/*
 * The shortcut goes by the objects that the program names, and so needs to know no runtime. The request is written out
 * only for those who go on.
 */
#define ZR_SYCL(form, entry, symbol, parameters, arguments, ...)                                   \
    void *zr_sycl_##form parameters;                                                               \
    ZR_SYCL_EXPORT(form, "_ZN4sycl3_V1" symbol)                                                    \
    void *zr_sycl_##form parameters                                                                \
    {                                                                                              \
        const struct zr_request r = {.which = ZR_SYCL_##form, __VA_ARGS__};                        \
        const void *caller = __builtin_return_address(0);                                          \
        struct zr_runtime *runtime;                                                                \
        void *out;                                                                                 \
                                                                                                   \
        if (is_device(ZR_E_##entry, r.kind) && is_short_way() && is_plain(&r) &&                   \
            likely(out = zr_shortcut_alloc(&r))) {                                                 \
            zr_count_call(ZR_E_##entry, ZR_VIA_SYCL);                                              \
            return out;                                                                            \
        }                                                                                          \
        runtime = zr_runtime_of(ZR_SYCL_##form, caller);                                           \
        if (unlikely(!runtime))                                                                    \
            return NULL;                                                                           \
        if (likely(!zr_exiting)) {                                                                 \
            struct zr_request request = {.which = ZR_SYCL_##form, __VA_ARGS__};                    \
                                                                                                   \
            zr_fork_check();                                                                       \
            zr_count_call(ZR_E_##entry, ZR_VIA_SYCL);                                              \
            if (unlikely(!runtime->ours))                                                          \
                zr_count(ZR_F_PASSED_RUNTIME, 1);                                                  \
            if (is_device(ZR_E_##entry, request.kind) && serve(runtime, &request, caller, &out))   \
                return out;                                                                        \
        }                                                                                          \
        return ((void *(*)parameters)runtime->real[ZR_SYCL_##form])arguments;                      \
    }
#define ZR_SYCL_FREE(form, symbol, parameters, arguments, object)                                  \
    void zr_sycl_##form parameters;                                                                \
    ZR_SYCL_EXPORT(form, "_ZN4sycl3_V1" symbol)                                                    \
    void zr_sycl_##form parameters                                                                 \
    {                                                                                              \
        const void *caller = __builtin_return_address(0);                                          \
        struct zr_runtime *runtime;                                                                \
        bool short_way = is_short_way();                                                           \
                                                                                                   \
        if (short_way && likely(zr_shortcut_free(ptr, object))) {                                  \
            zr_count_call(ZR_E_free, ZR_VIA_SYCL);                                                 \
            return;                                                                                \
        }                                                                                          \
        runtime = zr_runtime_of(ZR_SYCL_##form, caller);                                           \
        if (likely(!zr_exiting)) {                                                                 \
            zr_fork_check();                                                                       \
            zr_count_call(ZR_E_free, ZR_VIA_SYCL);                                                 \
        }                                                                                          \
        if (short_way && runtime && zr_shortcut_free_slow(runtime, ptr, object))                   \
            return;                                                                                \
        if (zr_route_free(ptr, caller) || unlikely(!runtime))                                      \
            return;                                                                                \
        ((void (*)parameters)runtime->real[ZR_SYCL_##form])arguments;                              \
    }
#include "sycl/usm.def"

/* Peer access decides where the runtime wants blocks resident: it is watched anew. */
#define ZR_PEER(entry, symbol)                                                                     \
    void zr_sycl_##entry(void *device, const void *peer);                                          \
    ZR_SYCL_EXPORT(entry, "_ZN4sycl3_V1" symbol)                                                   \
    void zr_sycl_##entry(void *device, const void *peer)                                           \
    {                                                                                              \
        const void *caller = __builtin_return_address(0);                                          \
        struct zr_runtime *runtime = zr_runtime_called(ZR_E_##entry, caller);                      \
        zr_function real = runtime ? zr_runtime_function(runtime, "_ZN4sycl3_V1" symbol) : NULL;   \
                                                                                                   \
        if (!real)                                                                                 \
            return;                                                                                \
        ((void (*)(void *, const void *))real)(device, peer);                                      \
        if (runtime->ours)                                                                         \
            zr_habit_renew(probe, caller);                                                         \
    }
ZR_PEER(enable_peer_access, "6device29ext_oneapi_enable_peer_accessERKS1_")
ZR_PEER(disable_peer_access, "6device30ext_oneapi_disable_peer_accessERKS1_")
