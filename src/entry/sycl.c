/*
 * SYCL's USM functions, in front of the runtime's own. Thin: counts the call, asks the route, and leaves the
 * rest to the runtime. The runtime may throw through these frames: nothing is held across a call to it but what a
 * cleanup lets go.
 */
#include "route.h"

enum {
    KIND_DEVICE = 1, /* sycl::usm::alloc::device */
    LARGEST_ALIGNMENT = 64 << 10
};

/* A form with properties is served only when the list is empty: a bitset of 8 bytes, then a vector. */
static bool has_properties(const void *properties)
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

/*
 * True: *out is the answer. Size 0 and odd alignments get the runtime's own, and so do alignments above the page of
 * device memory: adapters differ about those.
 */
static inline bool serve(const struct zr_runtime *runtime, const struct zr_request *r, const void *caller,
                         void **out)
{
    const struct zr_habit *habit;

    if (!runtime->ours || r->size == 0 || r->alignment & (r->alignment - 1) ||
        unlikely(r->alignment > LARGEST_ALIGNMENT) || has_properties(r->properties))
        return false;
    if (unlikely(!zr_route_is_decided()) && !zr_is_level_zero(runtime, r)) {
        zr_route_waits();
        return false;
    }
    if (!zr_route_is_sycl())
        return false;
    habit = zr_habit_of(runtime, r, probe);
    if (!habit)
        return false;
    return zr_route_alloc(habit, r->size, r->alignment, caller, out);
}

static inline bool is_device(enum zr_entry entry, const struct zr_request *r)
{
    if (entry == ZR_E_malloc_device || entry == ZR_E_aligned_alloc_device)
        return true;
    return (entry == ZR_E_malloc || entry == ZR_E_aligned_alloc) && r->kind == KIND_DEVICE;
}

#define ZR_SYCL(form, entry, symbol, parameters, arguments, ...)                                   \
    void *zr_sycl_##form parameters;                                                               \
    ZR_SYCL_EXPORT(form, "_ZN4sycl3_V1" symbol)                                                    \
    void *zr_sycl_##form parameters                                                                \
    {                                                                                              \
        const void *caller = __builtin_return_address(0);                                          \
        struct zr_runtime *runtime = zr_runtime_of(ZR_SYCL_##form, caller);                        \
        struct zr_request request = {.which = ZR_SYCL_##form, __VA_ARGS__};                        \
        void *out;                                                                                 \
                                                                                                   \
        if (unlikely(!runtime))                                                                    \
            return NULL;                                                                           \
        if (likely(!zr_exiting)) {                                                                 \
            zr_fork_check();                                                                       \
            zr_count_call(ZR_E_##entry, ZR_WAY_SYCL);                                              \
            if (unlikely(!runtime->ours))                                                          \
                zr_count(ZR_F_PASSED_RUNTIME, 1);                                                  \
            if (is_device(ZR_E_##entry, &request) && serve(runtime, &request, caller, &out))       \
                return out;                                                                        \
        }                                                                                          \
        return ((void *(*)parameters)runtime->real[ZR_SYCL_##form])arguments;                      \
    }
#define ZR_SYCL_FREE(form, symbol, parameters, arguments)                                          \
    void zr_sycl_##form parameters;                                                                \
    ZR_SYCL_EXPORT(form, "_ZN4sycl3_V1" symbol)                                                    \
    void zr_sycl_##form parameters                                                                 \
    {                                                                                              \
        const void *caller = __builtin_return_address(0);                                          \
        struct zr_runtime *runtime = zr_runtime_of(ZR_SYCL_##form, caller);                        \
                                                                                                   \
        if (likely(!zr_exiting)) {                                                                 \
            zr_fork_check();                                                                       \
            zr_count_call(ZR_E_free, ZR_WAY_SYCL);                                                 \
        }                                                                                          \
        if (zr_route_free(ptr, caller) || unlikely(!runtime))                                      \
            return;                                                                                \
        ((void (*)parameters)runtime->real[ZR_SYCL_##form])arguments;                              \
    }
#include "entry/sycl.def"

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
