/*
 * zeContext*: contexts, and residency in them.
 */
#include "policy/policy.h"
#include "sycl/route.h"

ze_result_t zr_on_zeContextCreate(ze_driver_handle_t driver, const ze_context_desc_t *desc,
                                  ze_context_handle_t *out)
{
    ZR_ENTER(zeContextCreate, (driver, desc, out));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeContextCreate, 0, (driver, desc, out));
}

ze_result_t zr_on_zeContextCreateEx(ze_driver_handle_t driver, const ze_context_desc_t *desc,
                                    uint32_t count, ze_device_handle_t *devices,
                                    ze_context_handle_t *out)
{
    ZR_ENTER(zeContextCreateEx, (driver, desc, count, devices, out));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeContextCreateEx, 0, (driver, desc, count, devices, out));
}

ze_result_t zr_on_zeContextDestroy(ze_context_handle_t context)
{
    ZR_ENTER(zeContextDestroy, (context));
    zr_count_caller(call.caller, 0);
    zr_route_drop_context(&call, context);
    zr_policy_before_context_destroy(&call, context);
    return ZR_DOWN(&call, zeContextDestroy, 0, (context));
}

ze_result_t zr_on_zeContextMakeMemoryResident(ze_context_handle_t context, ze_device_handle_t device,
                                              void *ptr, size_t size)
{
    if (unlikely(zr_thread.watch))
        zr_habit_saw_resident(zr_thread.hook, device, size);
    ZR_ENTER(zeContextMakeMemoryResident, (context, device, ptr, size));
    zr_count_caller(call.caller, 0);
    return zr_residency_make(&call, context, device, ptr, size);
}

ze_result_t zr_on_zeContextEvictMemory(ze_context_handle_t context, ze_device_handle_t device,
                                       void *ptr, size_t size)
{
    ZR_ENTER(zeContextEvictMemory, (context, device, ptr, size));
    zr_count_caller(call.caller, 0);
    return zr_residency_evict(&call, context, device, ptr, size);
}
