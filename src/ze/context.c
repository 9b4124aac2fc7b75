/* zeContext*: contexts and residency. And zeDriver*, zeInitDrivers, which lead to them. */
#include "policy/policy.h"

ze_result_t zr_on_zeDriverGet(struct zr_arrival from, uint32_t *count,
                              ze_driver_handle_t *drivers) {
    ZR_ENTER_OR_RETURN(zeDriverGet, (count, drivers));
    return ZR_DOWN(&op, zeDriverGet, 0, (count, drivers));
}

ze_result_t zr_on_zeInitDrivers(struct zr_arrival from, uint32_t *count,
                                ze_driver_handle_t *drivers, void *desc) {
    ZR_ENTER_OR_RETURN(zeInitDrivers, (count, drivers, desc));
    return ZR_DOWN(&op, zeInitDrivers, 0, (count, drivers, desc));
}

ze_result_t zr_on_zeContextCreate(struct zr_arrival from, ze_driver_handle_t driver,
                                  const ze_context_desc_t *desc, ze_context_handle_t *out) {
    ZR_ENTER_OR_RETURN(zeContextCreate, (driver, desc, out));
    return zr_policy_context_made(ZR_DOWN(&op, zeContextCreate, 0, (driver, desc, out)), out);
}

ze_result_t zr_on_zeContextCreateEx(struct zr_arrival from, ze_driver_handle_t driver,
                                    const ze_context_desc_t *desc, uint32_t count,
                                    ze_device_handle_t *devices, ze_context_handle_t *out) {
    ZR_ENTER_OR_RETURN(zeContextCreateEx, (driver, desc, count, devices, out));
    return zr_policy_context_made(
        ZR_DOWN(&op, zeContextCreateEx, 0, (driver, desc, count, devices, out)), out);
}

ze_result_t zr_on_zeContextDestroy(struct zr_arrival from, ze_context_handle_t context) {
    ZR_ENTER_OR_RETURN(zeContextDestroy, (context));
    zr_policy_before_context_destroy(&op, context);
    ze_result_t result = ZR_DOWN(&op, zeContextDestroy, 0, (context));
    if (result == ZE_RESULT_SUCCESS)
        zr_policy_context_destroyed(context);
    else if (context)
        zr_policy_context_stays(context);
    return result;
}

ze_result_t zr_on_zeContextMakeMemoryResident(struct zr_arrival from, ze_context_handle_t context,
                                              ze_device_handle_t device, void *ptr, size_t size) {
    const struct zr_op *watched = zr_op_watched();
    if (unlikely(watched))
        watched->watcher->makes_resident(watched->watch, from.hook, device, size);
    ZR_ENTER_OR_RETURN(zeContextMakeMemoryResident, (context, device, ptr, size));
    return zr_residency_make(&op, context, device, ptr, size);
}

ze_result_t zr_on_zeContextEvictMemory(struct zr_arrival from, ze_context_handle_t context,
                                       ze_device_handle_t device, void *ptr, size_t size) {
    ZR_ENTER_OR_RETURN(zeContextEvictMemory, (context, device, ptr, size));
    return zr_residency_evict(&op, context, device, ptr, size);
}
