/* zeContext*: contexts and residency. And zeDriver*, zeInitDrivers, which lead to them. */
#include "policy/policy.h"

ze_result_t zr_on_zeDriverGet(uint32_t *count, ze_driver_handle_t *drivers) {
    ZR_ENTER(zeDriverGet, (count, drivers));
    return ZR_DOWN(&call, zeDriverGet, 0, (count, drivers));
}

ze_result_t zr_on_zeInitDrivers(uint32_t *count, ze_driver_handle_t *drivers, void *desc) {
    ZR_ENTER(zeInitDrivers, (count, drivers, desc));
    return ZR_DOWN(&call, zeInitDrivers, 0, (count, drivers, desc));
}

ze_result_t zr_on_zeContextCreate(ze_driver_handle_t driver, const ze_context_desc_t *desc, ze_context_handle_t *out) {
    ZR_ENTER(zeContextCreate, (driver, desc, out));
    return zr_policy_context_made(ZR_DOWN(&call, zeContextCreate, 0, (driver, desc, out)), out);
}

ze_result_t zr_on_zeContextCreateEx(ze_driver_handle_t driver, const ze_context_desc_t *desc, uint32_t count,
                                    ze_device_handle_t *devices, ze_context_handle_t *out) {
    ZR_ENTER(zeContextCreateEx, (driver, desc, count, devices, out));
    return zr_policy_context_made(ZR_DOWN(&call, zeContextCreateEx, 0, (driver, desc, count, devices, out)), out);
}

ze_result_t zr_on_zeContextDestroy(ze_context_handle_t context) {
    ZR_ENTER(zeContextDestroy, (context));
    zr_policy_before_context_destroy(&call, context);
    ze_result_t result = ZR_DOWN(&call, zeContextDestroy, 0, (context));
    if (result != ZE_RESULT_SUCCESS && context)
        zr_policy_context_stays(context);
    return result;
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
