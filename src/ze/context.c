/*
 * zeContext*: contexts, and residency in them.
 */
#include "policy/policy.h"

ze_result_t zr_on_zeContextDestroy(ze_context_handle_t context) {
    ZR_ENTER(zeContextDestroy, (context));
    zr_policy_before_context_destroy(&call, context);
    return ZR_DOWN(&call, zeContextDestroy, 0, (context));
}

ze_result_t zr_on_zeContextMakeMemoryResident(ze_context_handle_t context, ze_device_handle_t device, void *ptr,
                                              size_t size) {
    if (unlikely(zr_thread.watch))
        zr_watch_resident(zr_thread.hook.number, device, size);
    ZR_ENTER(zeContextMakeMemoryResident, (context, device, ptr, size));
    return zr_residency_make(&call, context, device, ptr, size);
}

ze_result_t zr_on_zeContextEvictMemory(ze_context_handle_t context, ze_device_handle_t device, void *ptr, size_t size) {
    ZR_ENTER(zeContextEvictMemory, (context, device, ptr, size));
    return zr_residency_evict(&call, context, device, ptr, size);
}
