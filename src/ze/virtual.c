/*
 * zeVirtualMem* and zePhysicalMem*: address ranges, physical memory, and what is mapped where.
 * A PyTorch with expandable segments allocates by these alone.
 */
#include "policy/policy.h"

ze_result_t zr_on_zeVirtualMemReserve(ze_context_handle_t context, const void *start, size_t size,
                                      void **out)
{
    ZR_ENTER(zeVirtualMemReserve, (context, start, size, out));
    zr_count_caller(call.caller, 0);
    ze_result_t result = ZR_DOWN(&call, zeVirtualMemReserve, size, (context, start, size, out));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_add(ZR_KIND_VIRTUAL, 0, context, *out, size, 0);
    return result;
}

ze_result_t zr_on_zeVirtualMemFree(ze_context_handle_t context, const void *ptr, size_t size)
{
    ZR_ENTER(zeVirtualMemFree, (context, ptr, size));
    zr_count_caller(call.caller, 0);
    struct zr_block *b = zr_registry_take(ptr);
    ze_result_t result = ZR_DOWN(&call, zeVirtualMemFree, size, (context, ptr, size));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_gone(b);
    else
        zr_registry_back(b);
    return result;
}

ze_result_t zr_on_zeVirtualMemQueryPageSize(ze_context_handle_t context, ze_device_handle_t device,
                                            size_t size, size_t *page)
{
    ZR_ENTER(zeVirtualMemQueryPageSize, (context, device, size, page));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeVirtualMemQueryPageSize, 0, (context, device, size, page));
}

/* A driver that defers backing looks for memory only now, on a device that the call does not name. */
ze_result_t zr_on_zeVirtualMemMap(ze_context_handle_t context, const void *ptr, size_t size,
                                  ze_physical_mem_handle_t physical, size_t offset,
                                  ze_memory_access_attribute_t access)
{
    ZR_ENTER(zeVirtualMemMap, (context, ptr, size, physical, offset, access));
    zr_count_caller(call.caller, 0);
    ze_result_t result = ZR_DOWN_AGAIN((void)0, &call, zeVirtualMemMap, ZR_UNKNOWN_DEVICE, size,
                                       (context, ptr, size, physical, offset, access));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_mapped(ptr, size);
    return result;
}

ze_result_t zr_on_zeVirtualMemUnmap(ze_context_handle_t context, const void *ptr, size_t size)
{
    ZR_ENTER(zeVirtualMemUnmap, (context, ptr, size));
    zr_count_caller(call.caller, 0);
    ze_result_t result = ZR_DOWN(&call, zeVirtualMemUnmap, size, (context, ptr, size));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_unmapped(ptr, size);
    return result;
}

ze_result_t zr_on_zeVirtualMemSetAccessAttribute(ze_context_handle_t context, const void *ptr,
                                                 size_t size, ze_memory_access_attribute_t access)
{
    ZR_ENTER(zeVirtualMemSetAccessAttribute, (context, ptr, size, access));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeVirtualMemSetAccessAttribute, 0, (context, ptr, size, access));
}

ze_result_t zr_on_zeVirtualMemGetAccessAttribute(ze_context_handle_t context, const void *ptr,
                                                 size_t size, ze_memory_access_attribute_t *access,
                                                 size_t *out)
{
    ZR_ENTER(zeVirtualMemGetAccessAttribute, (context, ptr, size, access, out));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeVirtualMemGetAccessAttribute, 0, (context, ptr, size, access, out));
}

/* Physical memory of the host belongs to no device. */
ze_result_t zr_on_zePhysicalMemCreate(ze_context_handle_t context, ze_device_handle_t device,
                                      ze_physical_mem_desc_t *desc, ze_physical_mem_handle_t *out)
{
    ZR_ENTER(zePhysicalMemCreate, (context, device, desc, out));
    size_t size = desc ? desc->size : 0;
    zr_count_caller(call.caller, size);
    bool on_device = device && desc && !(desc->flags & ZR_PHYSICAL_MEM_FLAG_ON_HOST);
    unsigned number = zr_device_number(&call, device);
    if (on_device && unlikely(!zr_policy_within_limit(&call, number, size)))
        return zr_policy_refused(ZR_E_zePhysicalMemCreate);
    ze_result_t result =
        ZR_DOWN_AGAIN((void)0, &call, zePhysicalMemCreate, number, size, (context, device, desc, out));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_physical(on_device, number, context, *out, size);
    if (result == ZE_RESULT_SUCCESS && on_device)
        zr_trace('a', *out, size, number);
    else if (on_device)
        zr_limit_drop(number, size);
    return result;
}

ze_result_t zr_on_zePhysicalMemDestroy(ze_context_handle_t context, ze_physical_mem_handle_t physical)
{
    ZR_ENTER(zePhysicalMemDestroy, (context, physical));
    zr_count_caller(call.caller, 0);
    struct zr_block *b = zr_registry_take(physical);
    bool traced = b && b->kind == ZR_KIND_PHYSICAL;
    if (traced)
        zr_trace('f', physical, 0, b->device);
    ze_result_t result =
        ZR_DOWN(&call, zePhysicalMemDestroy, b ? b->held : 0, (context, physical));
    if (result != ZE_RESULT_SUCCESS && traced)
        zr_trace('a', physical, b->held, b->device);
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_gone(b);
    else
        zr_registry_back(b);
    return result;
}

ze_result_t zr_on_zePhysicalMemGetProperties(ze_context_handle_t context,
                                             ze_physical_mem_handle_t physical, void *properties)
{
    ZR_ENTER(zePhysicalMemGetProperties, (context, physical, properties));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zePhysicalMemGetProperties, 0, (context, physical, properties));
}
