/* The loader and the cards, as the workers of selftest find them. */
#include "selftest/calls.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct zr_selftest_functions ze;
struct zr_calls zr_calls;

static void *find(void *loader, const char *name) {
    return dlsym(loader, name);
}

static bool resolve(char *why, size_t size) {
    void *loader = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL), *symbol;

    if (!loader) {
        snprintf(why, size, "no Level Zero loader (libze_loader.so.1)");
        return false;
    }
#define X(name)                                                                                                        \
    symbol = find(loader, #name);                                                                                      \
    memcpy(&ze.name, &symbol, sizeof symbol);                                                                          \
    if (!symbol) {                                                                                                     \
        snprintf(why, size, "the loader lacks " #name);                                                                \
        return false;                                                                                                  \
    }
    ZR_SELFTEST_FUNCTIONS(X)
#undef X
    *(void **)&ze.zeDevicePciGetPropertiesExt = find(loader, "zeDevicePciGetPropertiesExt");
    *(void **)&ze.zeCommandListHostSynchronize = find(loader, "zeCommandListHostSynchronize");
    *(void **)&ze.zeMemPutIpcHandle = find(loader, "zeMemPutIpcHandle");
    *(void **)&ze.zeDriverGetDefaultContext = find(loader, "zeDriverGetDefaultContext");
    return true;
}

static bool failed(const char *call, ze_result_t result, char *why, size_t size) {
    if (result == ZE_RESULT_SUCCESS)
        return false;
    snprintf(why, size, "%s: error 0x%x%s", call, (unsigned)result,
             result == ZE_RESULT_ERROR_UNINITIALIZED ? " (no driver or no card)" : "");
    return true;
}

/* Graphics cards of a driver; a driver of another kind has none. */
static void take_devices(ze_driver_handle_t driver) {
    ze_device_handle_t all[DEVICES];
    uint32_t found = DEVICES;

    if (ze.zeDeviceGet(driver, &found, all) != ZE_RESULT_SUCCESS)
        return;
    for (uint32_t i = 0; i < found; i++) {
        ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};

        if (ze.zeDeviceGetProperties(all[i], &properties) == ZE_RESULT_SUCCESS && properties.type == ZE_DEVICE_TYPE_GPU)
            zr_calls.devices[zr_calls.device_count++] = all[i];
    }
    zr_calls.driver = driver;
}

bool zr_level_zero_open(char *why, size_t size) {
    ze_driver_handle_t drivers[8];
    uint32_t count = COUNT(drivers);

    if (!resolve(why, size) || failed("zeInit", ze.zeInit(0), why, size) ||
        failed("zeDriverGet", ze.zeDriverGet(&count, drivers), why, size))
        return false;
    for (uint32_t i = 0; i < count && !zr_calls.device_count; i++)
        take_devices(drivers[i]);
    if (!zr_calls.device_count)
        snprintf(why, size, "no graphics card");
    return zr_calls.device_count > 0;
}

ze_result_t zr_level_zero_list(ze_context_handle_t context, ze_device_handle_t device, ze_command_queue_mode_t mode,
                               ze_command_list_handle_t *list) {
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .mode = mode};
    ze_command_queue_group_properties_t groups[8];
    uint32_t count = COUNT(groups);
    ze_result_t r;

    memset(groups, 0, sizeof groups);
    for (unsigned g = 0; g < COUNT(groups); g++)
        groups[g].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
    r = ze.zeDeviceGetCommandQueueGroupProperties(device, &count, groups);
    if (r != ZE_RESULT_SUCCESS)
        return r;
    for (uint32_t g = 0; g < count; g++) {
        if ((groups[g].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY) &&
            !(groups[g].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE))
            queue.ordinal = g;
    }
    return ze.zeCommandListCreateImmediate(context, device, &queue, list);
}
