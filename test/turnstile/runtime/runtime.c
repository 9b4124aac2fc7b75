/*
 * A SYCL runtime with its Level Zero adapter inside: a context with two devices, a pool of UMF for each. Device memory
 * is made resident on both cards, as Unified Runtime does it.
 */
#include "runtime.h"
#include "umf.h"

#include <string.h>

enum { PARAMS = 64 };

/* As libstdc++'s shared_ptr has it. */
struct control {
    void (**table)(struct control *);
    int strong, weak;
};
struct shared {
    void *implementation;
    struct control *control;
};
struct card {
    struct umf_provider provider;
    struct umf_pool *pool;
    ze_device_handle_t device;
    void *handle; /* what a sycl::device of this runtime is: one pointer */
    bool making;
};

static void nothing(struct control *c) {
    (void)c;
}
static void (*functions[])(struct control *) = {nothing, nothing, nothing, nothing};
static struct control of_context = {functions, 1, 1};
static struct shared context_object;
static ze_context_handle_t native;
static struct card cards[RUNTIME_CARDS];
static int adapter;

/* --- the adapter -------------------------------------------------------------------------------------------------- */

static int provide(void *arg, size_t size, size_t alignment, void **out) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    const struct card *c = arg;

    if (zeMemAllocDevice(native, &desc, size, alignment, c->device, out))
        return UMF_OUT_OF_HOST_MEMORY;
    for (int i = 0; i < RUNTIME_CARDS; i++)
        zeContextMakeMemoryResident(native, cards[i].device, *out, size);
    return UMF_SUCCESS;
}

static int give_back(void *arg, void *ptr, size_t size) {
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                      .freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};
    ze_result_t result = ZE_RESULT_SUCCESS;

    (void)arg;
    if (size)
        result = adapter == 1 ? zeMemFree(native, ptr) : zeMemFreeExt(native, &desc, ptr);
    return result ? UMF_INVALID_ARGUMENT : UMF_SUCCESS;
}

static struct umf_pool *pool_of(struct card *c) {
    char params[PARAMS] = "";

    if (c->pool || c->making)
        return c->pool;
    c->making = true; /* another thread goes without meanwhile */
    umfDisjointPoolParamsSetMaxPoolableSize(params, RUNTIME_POOLS_UP_TO);
    umfDisjointPoolParamsSetName(params, "Device");
    umfPoolCreate(umfDisjointPoolOps(), &c->provider, params, 0, &c->pool);
    c->making = false;
    return c->pool;
}

void runtime_begin(ze_context_handle_t c, const ze_device_handle_t *devices, int which) {
    native = c;
    adapter = which;
    context_object = (struct shared){&native, &of_context};
    for (int i = 0; i < RUNTIME_CARDS; i++) {
        cards[i].device = devices[i];
        cards[i].handle = &cards[i];
        cards[i].provider = (struct umf_provider){provide, give_back, &cards[i]};
    }
}

void runtime_end_pool(int card) {
    struct umf_pool *pool = cards[card].pool;

    cards[card].pool = NULL;
    if (pool)
        umfPoolDestroy(pool);
}

const void *runtime_context(void) {
    return &context_object;
}

const void *runtime_device(int card) {
    return &cards[card].handle;
}

/* --- SYCL's functions --------------------------------------------------------------------------------------------- */

struct request {
    size_t alignment, size;
    const void *queue, *device, *context, *properties;
    int kind;
};

static void *serve(const char *entry, const struct request *r) {
    struct card *c = r->device ? *(struct card *const *)r->device : NULL;
    struct umf_pool *pool = c && strstr(entry, "_device") ? pool_of(c) : NULL;

    return pool && r->size ? umfPoolAlignedMalloc(pool, r->size, r->alignment) : NULL;
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define ZR_SYCL(form, entry, symbol, parameters, arguments, ...)                                                       \
    void *sycl_##form parameters __asm__("_ZN4sycl3_V1" symbol);                                                       \
    void *sycl_##form parameters {                                                                                     \
        return serve(#entry, &(struct request){__VA_ARGS__});                                                          \
    }
#define ZR_SYCL_FREE(form, symbol, parameters, arguments, ...)                                                         \
    void sycl_##form parameters __asm__("_ZN4sycl3_V1" symbol);                                                        \
    void sycl_##form parameters {                                                                                      \
        umfFree(ptr);                                                                                                  \
    }
#include "../../../src/sycl/usm.def"

signed char context_backend(const void *object) __asm__("_ZNK4sycl3_V17context11get_backendEv");
signed char context_backend(const void *object) {
    return object == &context_object ? 2 : 0;
}
signed char queue_backend(const void *object) __asm__("_ZNK4sycl3_V15queue11get_backendEv");
signed char queue_backend(const void *object) {
    return object ? 2 : 0;
}
