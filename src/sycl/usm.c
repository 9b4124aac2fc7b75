/*
 * SYCL's USM functions, in front of the runtime's own: each counts the call, asks the route, and
 * leaves the rest to the runtime. The runtime may throw through these frames, so whatever is held
 * across a call to it is released by a cleanup handler.
 */
#include "sycl/sycl.h"

enum {
    KIND_DEVICE = 1, /* sycl::usm::alloc::device */
    LARGEST_ALIGNMENT = 64 << 10
};

struct zr_lock zr_sycl_lock;
static const char no_location[64]; /* a code location: three null pointers and two numbers */

/* A form with properties is served only when the list is empty: a bitset of 8 bytes, then a vector.
 */
static inline bool has_properties(const void *properties) {
    const struct {
        uint64_t dataless;
        const void *begin, *end, *capacity;
    } *list = properties;

    return list && (list->dataless || list->begin != list->end);
}

void *zr_native_alloc(const struct zr_runtime *r, const struct zr_request *objects, size_t size) {
    if (objects->queue)
        return ((void *(*)(size_t, const void *, const void *))r->real[ZR_SYCL_malloc_device_QC])(
            size, objects->queue, no_location);
    return ((void *(*)(size_t, const void *, const void *,
                       const void *))r->real[ZR_SYCL_malloc_device_DC])(
        size, objects->device, objects->context, no_location);
}

void zr_native_free(const struct zr_runtime *r, const struct zr_request *objects, void *p) {
    if (objects->queue)
        ((void (*)(void *, const void *, const void *))r->real[ZR_SYCL_free_QC])(p, objects->queue,
                                                                                 no_location);
    else
        ((void (*)(void *, const void *, const void *))r->real[ZR_SYCL_free_XC])(
            p, objects->context, no_location);
}

/*
 * What may be served at all. Size 0, odd alignments, and alignments above the page size of device
 * memory, on which adapters differ, get the runtime's own answer.
 */
static inline bool is_plain_request(const struct zr_request *r) {
    return likely(r->size != 0) && likely(!(r->alignment & (r->alignment - 1))) &&
           likely(r->alignment <= LARGEST_ALIGNMENT) && likely(!has_properties(r->properties));
}

static bool is_device(enum zr_entry entry, int kind) {
    if (entry == ZR_E_malloc_device || entry == ZR_E_aligned_alloc_device)
        return true;
    return (entry == ZR_E_malloc || entry == ZR_E_aligned_alloc) && kind == KIND_DEVICE;
}

/* Returns true if *out is the answer, false if the runtime's own function is to be called. */
static bool serve_request(const struct zr_runtime *runtime, enum zr_entry entry,
                          const struct zr_request *r, const void *caller, void **out) {
    const struct zr_practice *practice;
    enum zr_route route = zr_route();

    if (zr_exiting())
        return false;
    if (unlikely(!runtime->ours))
        zr_count(ZR_F_PASSED_RUNTIME, 1);
    if (!runtime->ours || !is_device(entry, r->kind) || !is_plain_request(r))
        return false;
    if (unlikely(route == ZR_NOT_DECIDED))
        route = zr_route_decide(zr_is_level_zero(runtime, r));
    if (route != ZR_AT_SYCL)
        return false;
    practice = zr_practice_of(runtime, r);
    return practice && zr_route_alloc(practice, entry, r->size, r->alignment, caller, out);
}

/* What to call for an allocation: the runtime's own function; NULL if *out is the answer. */
static zr_function form_alloc(enum zr_entry entry, enum zr_sycl_form form,
                              const struct zr_request *r, const void *caller, void **out) {
    struct zr_runtime *runtime = zr_runtime_called(entry, caller);

    *out = NULL;
    if (likely(runtime) && serve_request(runtime, entry, r, caller, out))
        return NULL;
    return zr_runtime_form(runtime, form, caller);
}

/*
 * The same for a free: NULL if it was one of ours. check reports a wrong one here, and begins an
 * operation that says so to the free below it.
 */
static zr_function form_free(struct zr_op *op, enum zr_sycl_form form, const struct zr_request *r,
                             void *ptr, const void *caller) {
    struct zr_runtime *runtime = zr_runtime_called(ZR_E_free, caller);

    if (unlikely(zr_config.check > ZR_CHECK_NONE) && runtime && runtime->ours &&
        zr_is_level_zero(runtime, r))
        zr_policy_free_above(op, ptr);
    if (zr_route_free(ptr, ZR_E_free, caller))
        return NULL;
    return zr_runtime_form(runtime, form, caller);
}

#define ZR_SYCL(form_, entry, symbol, parameters, arguments, ...)                                  \
    void *zr_sycl_##form_ parameters;                                                              \
    ZR_SYCL_EXPORT(form_, "_ZN4sycl3_V1" symbol)                                                   \
    void *zr_sycl_##form_ parameters {                                                             \
        const struct zr_request r = {__VA_ARGS__};                                                 \
        void *out;                                                                                 \
        zr_function real =                                                                         \
            form_alloc(ZR_E_##entry, ZR_SYCL_##form_, &r, __builtin_return_address(0), &out);      \
                                                                                                   \
        return real ? ((void *(*)parameters)real)arguments : out;                                  \
    }
#define ZR_SYCL_FREE(form, symbol, parameters, arguments, ...)                                     \
    void zr_sycl_##form parameters;                                                                \
    ZR_SYCL_EXPORT(form, "_ZN4sycl3_V1" symbol)                                                    \
    void zr_sycl_##form parameters {                                                               \
        const struct zr_request r = {__VA_ARGS__};                                                 \
        struct zr_op op __attribute__((cleanup(zr_op_end))) = {.entered = false};                  \
        zr_function real = form_free(&op, ZR_SYCL_##form, &r, ptr, __builtin_return_address(0));   \
                                                                                                   \
        if (likely(real))                                                                          \
            ((void(*) parameters)real) arguments;                                                  \
    }
#include "sycl/usm.def"

/* Peer access decides where the runtime makes blocks resident: probe it again. */
static void switch_peer_access(enum zr_entry entry, const char *symbol, void *device,
                               const void *peer, const void *caller) {
    struct zr_runtime *runtime = zr_runtime_called(entry, caller);
    zr_function real = zr_runtime_function(runtime, symbol, caller);

    if (!real)
        return;
    ((void (*)(void *, const void *))real)(device, peer);
    zr_pool_peers_changed();
    if (runtime && runtime->ours)
        zr_practice_renew(caller);
}

#define ZR_PEER(entry, symbol)                                                                     \
    void zr_sycl_##entry(void *device, const void *peer);                                          \
    ZR_SYCL_EXPORT(entry, "_ZN4sycl3_V1" symbol)                                                   \
    void zr_sycl_##entry(void *device, const void *peer) {                                         \
        switch_peer_access(ZR_E_##entry, "_ZN4sycl3_V1" symbol, device, peer,                      \
                           __builtin_return_address(0));                                           \
    }
ZR_PEER(enable_peer_access, "6device29ext_oneapi_enable_peer_accessERKS1_")
ZR_PEER(disable_peer_access, "6device30ext_oneapi_disable_peer_accessERKS1_")
