/*
 * zeVirtualMem* and zePhysicalMem*: address ranges, physical memory, and what is mapped where.
 * With expandable segments PyTorch allocates through these alone.
 */
#include "policy/policy.h"

ze_result_t zr_on_zeVirtualMemReserve(struct zr_arrival from, ze_context_handle_t context,
                                      const void *start, size_t size, void **out) {
    ZR_ENTER_OR_RETURN(zeVirtualMemReserve, (context, start, size, out));
    ze_result_t result = ZR_DOWN(&op, zeVirtualMemReserve, size, (context, start, size, out));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_note(&op, ZR_KIND_VIRTUAL, 0, context, *out, size, 0);
    return result;
}

/* What is still mapped goes with the range. */
ze_result_t zr_on_zeVirtualMemFree(struct zr_arrival from, ze_context_handle_t context,
                                   const void *start, size_t size) {
    ZR_ENTER_OR_RETURN(zeVirtualMemFree, (context, start, size));
    struct zr_block *b = zr_registry_take(start);
    struct zr_object *mappings = b ? zr_object_take_mapped(start, b->held) : NULL;
    ze_result_t result = ZR_DOWN(&op, zeVirtualMemFree, b ? b->held : 0, (context, start, size));
    if (result == ZE_RESULT_SUCCESS && b)
        zr_remap_released(start, b->held);
    zr_object_answered(mappings, result);
    return zr_registry_answered(b, result);
}

/* A driver that defers backing allocates only now, on a device that the call does not name. */
ze_result_t zr_on_zeVirtualMemMap(struct zr_arrival from, ze_context_handle_t context,
                                  const void *ptr, size_t size, ze_physical_mem_handle_t physical,
                                  size_t offset, ze_memory_access_attribute_t access) {
    ZR_ENTER_OR_RETURN(zeVirtualMemMap, (context, ptr, size, physical, offset, access));
    struct zr_room room = zr_room_begin(&op, ZR_UNKNOWN_DEVICE);
    ze_result_t result;
    zr_remap_before(&op, ptr, size);
    do {
        result =
            ZR_DOWN(&op, zeVirtualMemMap, size, (context, ptr, size, physical, offset, access));
    } while (zr_room_again(&room, result));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_mapped(&op, ptr, size, physical);
    return result;
}

ze_result_t zr_on_zeVirtualMemUnmap(struct zr_arrival from, ze_context_handle_t context,
                                    const void *ptr, size_t size) {
    ZR_ENTER_OR_RETURN(zeVirtualMemUnmap, (context, ptr, size));
    struct zr_object *mappings = zr_object_take_mapped(ptr, size);
    ze_result_t result = ZR_DOWN(&op, zeVirtualMemUnmap, size, (context, ptr, size));
    return zr_registry_unmapped(mappings, ptr, size, result);
}

/* Physical memory is an object, known by its handle. Host memory belongs to no device. */
ze_result_t zr_on_zePhysicalMemCreate(struct zr_arrival from, ze_context_handle_t context,
                                      ze_device_handle_t device, ze_physical_mem_desc_t *desc,
                                      ze_physical_mem_handle_t *out) {
    ZR_ENTER_OR_RETURN(zePhysicalMemCreate, (context, device, desc, out));
    bool on_device = device && desc && !(desc->flags & ZR_PHYSICAL_MEM_FLAG_ON_HOST);
    struct zr_alloc a = {.kind = on_device ? ZR_KIND_PHYSICAL : ZR_KIND_HOST,
                         .entry = ZR_E_zePhysicalMemCreate,
                         .context = context,
                         .device = device,
                         .desc = desc,
                         .size = desc ? desc->size : 0,
                         .is_object = true,
                         .out = (void **)(void *)out};
    struct zr_block *block;
    return zr_policy_alloc(&op, &a, &block);
}
