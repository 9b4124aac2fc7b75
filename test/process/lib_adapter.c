/* A runtime's adapter by its name: it frees what commands may still use, so what it frees is not reused at once. */
#include <level_zero/ze_api.h>

void *adapter_alloc(ze_context_handle_t context, ze_device_handle_t device, size_t size);
ze_result_t adapter_free(ze_context_handle_t context, void *p);

/* volatile: the return address must lie in this library. */
void *adapter_alloc(ze_context_handle_t context, ze_device_handle_t device, size_t size) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *p = NULL;
    volatile ze_result_t result = zeMemAllocDevice(context, &desc, size, 0, device, &p);

    return result == ZE_RESULT_SUCCESS ? p : NULL;
}

ze_result_t adapter_free(ze_context_handle_t context, void *p) {
    volatile ze_result_t result = zeMemFree(context, p);

    return result;
}
