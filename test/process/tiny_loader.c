/* As much of a loader as needs no libstdc++: for an old libc, and for measuring what we add to a call. */
#include <level_zero/ze_api.h>
#include <stdint.h>

ze_result_t zeInit(ze_init_flags_t flags) {
    (void)flags;
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeMemFree(ze_context_handle_t context, void *ptr) {
    (void)context;
    return ptr ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_POINTER;
}

ze_result_t zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t size,
                             size_t alignment, ze_device_handle_t device, void **out) {
    static uintptr_t turn;

    (void)context, (void)desc, (void)size, (void)alignment, (void)device;
    *out = (void *)(0x100000000000 + ((turn++ & 255) << 21));
    return ZE_RESULT_SUCCESS;
}

ze_result_t zeDeviceGetProperties(ze_device_handle_t device, ze_device_properties_t *properties) {
    (void)device;
    properties->uuid.id[0] = 1;
    return ZE_RESULT_SUCCESS;
}
