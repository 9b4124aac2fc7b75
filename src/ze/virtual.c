/*
 * zeVirtualMem* and zePhysicalMem*: address ranges, physical memory, and what is mapped where.
 * With expandable segments PyTorch allocates through these alone.
 */
#include "policy/policy.h"

ze_result_t zr_on_zeVirtualMemReserve(ze_context_handle_t context, const void *start, size_t size, void **out) {
    ZR_ENTER(zeVirtualMemReserve, (context, start, size, out));
    ze_result_t result = ZR_DOWN(&call, zeVirtualMemReserve, size, (context, start, size, out));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_note(&call, ZR_KIND_VIRTUAL, 0, context, *out, size, 0);
    return result;
}

/* A driver that defers backing allocates only now, on a device that the call does not name. */
ze_result_t zr_on_zeVirtualMemMap(ze_context_handle_t context, const void *ptr, size_t size,
                                  ze_physical_mem_handle_t physical, size_t offset,
                                  ze_memory_access_attribute_t access) {
    ZR_ENTER(zeVirtualMemMap, (context, ptr, size, physical, offset, access));
    ze_result_t result =
        ZR_WITH_ROOM(&call, ZR_UNKNOWN_DEVICE,
                     ZR_DOWN(&call, zeVirtualMemMap, size, (context, ptr, size, physical, offset, access)));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_mapped(ptr, size, physical);
    return result;
}

ze_result_t zr_on_zeVirtualMemUnmap(ze_context_handle_t context, const void *ptr, size_t size) {
    ZR_ENTER(zeVirtualMemUnmap, (context, ptr, size));
    ze_result_t result = ZR_DOWN(&call, zeVirtualMemUnmap, size, (context, ptr, size));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_unmapped(ptr, size);
    return result;
}

/* Physical memory is registered by its handle. Host memory belongs to no device. */
ze_result_t zr_on_zePhysicalMemCreate(ze_context_handle_t context, ze_device_handle_t device,
                                      ze_physical_mem_desc_t *desc, ze_physical_mem_handle_t *out) {
    ZR_ENTER(zePhysicalMemCreate, (context, device, desc, out));
    bool on_device = device && desc && !(desc->flags & ZR_PHYSICAL_MEM_FLAG_ON_HOST);
    struct zr_alloc a = {.kind = on_device ? ZR_KIND_PHYSICAL : ZR_KIND_HOST,
                         .entry = ZR_E_zePhysicalMemCreate,
                         .context = context,
                         .device = device,
                         .desc = desc,
                         .size = desc ? desc->size : 0,
                         .flags = ZR_BLOCK_HANDLE};
    return zr_policy_alloc(&call, &a, (void **)(void *)out);
}
