/*
 * Work of our own on device memory: an immediate command list for a context and a device, with a
 * host buffer to copy through. Uses only functions that every loader has, found below the hook that
 * the memory came through, so that the handles fit. The copy engine is used where there is one, so
 * that kernels of the program do not hold up ours; it fills with one-byte patterns only.
 */
#include "driver/driver.h"

enum { GROUPS = 16 };

#define FIND(hook, name) ((__typeof__(&(name)))zr_function_below((hook), NULL, #name))

/* The group that copies and does not compute, else the first one. */
static uint32_t copy_group(const struct zr_engine *e) {
    __typeof__(&zeDeviceGetCommandQueueGroupProperties) get =
        FIND(e->hook, zeDeviceGetCommandQueueGroupProperties);
    ze_command_queue_group_properties_t p[GROUPS] = {0};
    uint32_t count = GROUPS;

    for (unsigned i = 0; i < GROUPS; i++)
        p[i].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
    if (!get || get(e->device, &count, p) != ZE_RESULT_SUCCESS)
        return 0;
    for (uint32_t i = 0; i < count && i < GROUPS; i++)
        if (p[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY &&
            !(p[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE) && p[i].numQueues)
            return i;
    return 0;
}

void zr_engine_make(struct zr_engine *e, size_t buffer) {
    __typeof__(&zeCommandListCreateImmediate) make_list =
        FIND(e->hook, zeCommandListCreateImmediate);
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .ordinal = copy_group(e),
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    struct zr_op op = {.hook = e->hook};

    e->fill = FIND(e->hook, zeCommandListAppendMemoryFill);
    e->copy = FIND(e->hook, zeCommandListAppendMemoryCopy);
    e->destroy = FIND(e->hook, zeCommandListDestroy);
    if (!make_list || !e->fill || !e->copy || !e->destroy ||
        ZR_BELOW(&op, zeMemAllocHost)(e->context, &host, buffer, 64, &e->buffer) !=
            ZE_RESULT_SUCCESS ||
        make_list(e->context, e->device, &queue, &e->list) != ZE_RESULT_SUCCESS)
        e->list = NULL;
}

void zr_engine_drop(struct zr_engine *e) {
    if (e->list)
        e->destroy(e->list);
    if (e->buffer)
        ((zr_fn_zeMemFree)zr_below(e->hook, ZR_E_zeMemFree, NULL))(e->context, e->buffer);
}

/* A loader before 1.25 lacks zeDeviceSynchronize; the driver has it from API 1.14 on. */
bool zr_devices_rest(void) {
    for (unsigned number = 0; number < ZR_DEVICES; number++) {
        uint32_t hook = 0;
        ze_device_handle_t device = zr_device_handle(number, &hook);
        zr_function wait = device ? zr_function_below(hook, NULL, "zeDeviceSynchronize") : NULL;

        if (device && !wait)
            wait = zr_function_of_driver("zeDeviceSynchronize");
        if (device &&
            (!wait || ((ze_result_t(*)(ze_device_handle_t))wait)(device) != ZE_RESULT_SUCCESS))
            return false;
    }
    return true;
}
