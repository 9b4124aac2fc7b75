/* Start, devices, and queries for free memory. */
#include "policy/policy.h"

#include <string.h>

ze_result_t zr_on_zeDeviceGet(struct zr_arrival from, ze_driver_handle_t driver, uint32_t *count,
                              ze_device_handle_t *devices) {
    ZR_ENTER_OR_RETURN(zeDeviceGet, (driver, count, devices));
    uint32_t asked = count ? *count : 0;
    ze_result_t result = ZR_DOWN(&op, zeDeviceGet, 0, (driver, count, devices));
    if (result == ZE_RESULT_SUCCESS && devices && asked) {
        zr_device_seen(&op, devices, *count < asked ? *count : asked);
        zr_note_driver(&op, driver);
    }
    return result;
}

ze_result_t zr_on_zeDeviceGetSubDevices(struct zr_arrival from, ze_device_handle_t device,
                                        uint32_t *count, ze_device_handle_t *parts) {
    ZR_ENTER_OR_RETURN(zeDeviceGetSubDevices, (device, count, parts));
    uint32_t asked = count ? *count : 0;
    ze_result_t result = ZR_DOWN(&op, zeDeviceGetSubDevices, 0, (device, count, parts));
    if (result == ZE_RESULT_SUCCESS && parts && asked)
        zr_device_parts(&op, device, parts, *count < asked ? *count : asked);
    return result;
}

/*
 * A driver that does not know the question leaves the answer as it was: under free_memory:checked a
 * value that no card can have shows that. Returns what was there.
 */
static uint64_t await_answer(struct zr_ze_usable_memory *usable) {
    uint64_t before = usable->bytes;

    if (zr_config.free_memory == ZR_FREE_MEMORY_CHECKED)
        usable->bytes = UINT64_MAX;
    return before;
}

static void see_answer(struct zr_ze_usable_memory *usable, uint64_t before, unsigned number,
                       ze_result_t result) {
    uint64_t total;

    if (zr_config.free_memory != ZR_FREE_MEMORY_CHECKED || usable->bytes != UINT64_MAX)
        return;
    if (result != ZE_RESULT_SUCCESS || !zr_limit_answer(number, &total, &usable->bytes))
        usable->bytes = before;
}

/* Caps the largest block at the limit. A chained structure may ask how much memory is free. */
ze_result_t zr_on_zeDeviceGetProperties(struct zr_arrival from, ze_device_handle_t device,
                                        ze_device_properties_t *properties) {
    ZR_ENTER_OR_RETURN(zeDeviceGetProperties, (device, properties));
    struct zr_ze_usable_memory *usable = zr_chained(properties, ZR_STYPE_DEVICE_USABLEMEM_SIZE);
    bool asks = usable || (properties && zr_limit_is_set());
    unsigned number = asks ? zr_device_number(&op, device) : ZR_UNKNOWN_DEVICE;
    if (usable && number != ZR_UNKNOWN_DEVICE)
        zr_policy_trim(number);
    uint64_t before = usable ? await_answer(usable) : 0;
    ze_result_t result = ZR_DOWN(&op, zeDeviceGetProperties, 0, (device, properties));
    if (usable)
        see_answer(usable, before, number, result);
    if (result == ZE_RESULT_SUCCESS && asks)
        zr_limit_report(number, number == ZR_UNKNOWN_DEVICE ? NULL : &properties->maxMemAllocSize,
                        usable ? &usable->bytes : NULL);
    return result;
}

/* SYCL's global_mem_size is the physical size where the driver reports it, else the total. */
static void report_region(unsigned number, ze_device_memory_properties_t *region,
                          uint64_t *total_remaining, uint64_t *physical_remaining) {
    ze_device_memory_ext_properties_t *more =
        zr_chained(region, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES);
    struct zr_ze_usable_memory *usable = zr_chained(region, ZR_STYPE_DEVICE_USABLEMEM_SIZE);

    zr_limit_report_part(number, total_remaining, &region->totalSize);
    if (more)
        zr_limit_report_part(number, physical_remaining, &more->physicalSize);
    if (usable)
        zr_limit_report(number, NULL, &usable->bytes);
}

ze_result_t zr_on_zeDeviceGetMemoryProperties(struct zr_arrival from, ze_device_handle_t device,
                                              uint32_t *count,
                                              ze_device_memory_properties_t *properties) {
    ZR_ENTER_OR_RETURN(zeDeviceGetMemoryProperties, (device, count, properties));
    uint32_t regions = properties && count ? *count : 0;
    uint64_t total_remaining = UINT64_MAX, physical_remaining = UINT64_MAX;
    unsigned number = regions ? zr_device_number(&op, device) : ZR_UNKNOWN_DEVICE;
    for (uint32_t i = 0; i < regions && number != ZR_UNKNOWN_DEVICE; i++)
        if (unlikely(zr_chained(&properties[i], ZR_STYPE_DEVICE_USABLEMEM_SIZE)))
            zr_policy_trim(number);
    ze_result_t result = ZR_DOWN(&op, zeDeviceGetMemoryProperties, 0, (device, count, properties));
    if (result != ZE_RESULT_SUCCESS || number == ZR_UNKNOWN_DEVICE)
        return result;
    for (uint32_t i = 0; i < regions && i < *count; i++)
        report_region(number, &properties[i], &total_remaining, &physical_remaining);
    return result;
}

ze_result_t zr_on_zesDeviceEnumMemoryModules(struct zr_arrival from, zes_device_handle_t device,
                                             uint32_t *count, zes_mem_handle_t *modules) {
    ZR_ENTER_OR_RETURN(zesDeviceEnumMemoryModules, (device, count, modules));
    uint32_t asked = count ? *count : 0;
    ze_result_t result = ZR_DOWN(&op, zesDeviceEnumMemoryModules, 0, (device, count, modules));
    if (result == ZE_RESULT_SUCCESS && modules && asked)
        zr_device_modules(&op, device, modules, *count < asked ? *count : asked);
    return result;
}

ze_result_t zr_on_zesMemoryGetState(struct zr_arrival from, zes_mem_handle_t memory,
                                    zes_mem_state_t *state) {
    ZR_ENTER_OR_RETURN(zesMemoryGetState, (memory, state));
    unsigned number;
    uint32_t among;
    if (!zr_device_of_module(memory, &number, &among) || number != ZR_UNKNOWN_DEVICE)
        zr_policy_trim(number);
    ze_result_t result = ZR_DOWN(&op, zesMemoryGetState, 0, (memory, state));
    if (result == ZE_RESULT_SUCCESS && state) {
        zr_limit_report_module(memory, &state->size, &state->free);
    } else if (state && number != ZR_UNKNOWN_DEVICE && among == 1 &&
               zr_limit_answer(number, &state->size, &state->free)) {
        state->health = ZES_MEM_HEALTH_UNKNOWN;
        return ZE_RESULT_SUCCESS;
    }
    return result;
}
