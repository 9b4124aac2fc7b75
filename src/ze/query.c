/*
 * Start, devices, free-memory queries, and functions that are asked for by extension name.
 */
#include "policy/policy.h"

#include <string.h>

/* Settings that the driver must find when it starts are set before it does. */
ze_result_t zr_on_zeInit(ze_init_flags_t flags)
{
    ZR_ENTER(zeInit, (flags));
    zr_config_load();
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeInit, 0, (flags));
}

ze_result_t zr_on_zeInitDrivers(uint32_t *count, ze_driver_handle_t *drivers, void *desc)
{
    ZR_ENTER(zeInitDrivers, (count, drivers, desc));
    zr_config_load();
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeInitDrivers, 0, (count, drivers, desc));
}

ze_result_t zr_on_zesInit(uint32_t flags)
{
    ZR_ENTER(zesInit, (flags));
    zr_config_load();
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zesInit, 0, (flags));
}

ze_result_t zr_on_zeDeviceGet(ze_driver_handle_t driver, uint32_t *count, ze_device_handle_t *devices)
{
    ZR_ENTER(zeDeviceGet, (driver, count, devices));
    zr_count_caller(call.caller, 0);
    uint32_t asked = count ? *count : 0;
    ze_result_t result = ZR_DOWN(&call, zeDeviceGet, 0, (driver, count, devices));
    if (result == ZE_RESULT_SUCCESS && devices && asked) {
        uint32_t got = *count < asked ? *count : asked;
        zr_device_seen(&call, NULL, devices, got);
        zr_note_driver(&call, driver, devices, got);
    }
    return result;
}

ze_result_t zr_on_zeDeviceGetSubDevices(ze_device_handle_t device, uint32_t *count,
                                        ze_device_handle_t *parts)
{
    ZR_ENTER(zeDeviceGetSubDevices, (device, count, parts));
    zr_count_caller(call.caller, 0);
    uint32_t asked = count ? *count : 0;
    ze_result_t result = ZR_DOWN(&call, zeDeviceGetSubDevices, 0, (device, count, parts));
    if (result == ZE_RESULT_SUCCESS && parts && asked)
        zr_device_seen(&call, device, parts, *count < asked ? *count : asked);
    return result;
}

static void *chained(void *chain, uint32_t stype)
{
    struct zr_ze_usable_memory *link = chain;

    while (link && link->stype != stype)
        link = link->next;
    return link;
}

/* The largest block is no larger than the limit. Chained to it may be how much memory is free. */
ze_result_t zr_on_zeDeviceGetProperties(ze_device_handle_t device, ze_device_properties_t *properties)
{
    ZR_ENTER(zeDeviceGetProperties, (device, properties));
    zr_count_caller(call.caller, 0);
    struct zr_ze_usable_memory *usable =
        properties ? chained(properties->pNext, ZR_STYPE_DEVICE_USABLEMEM_SIZE) : NULL;
    bool asks = usable || (properties && zr_config.limit.set);
    unsigned number = asks ? zr_device_number(&call, device) : ZR_UNKNOWN_DEVICE;
    if (usable && number != ZR_UNKNOWN_DEVICE)
        zr_policy_trim(&call, number);
    ze_result_t result = ZR_DOWN(&call, zeDeviceGetProperties, 0, (device, properties));
    if (result == ZE_RESULT_SUCCESS && asks)
        zr_policy_tell_limit(&call, number, number == ZR_UNKNOWN_DEVICE ? NULL : &properties->maxMemAllocSize,
                             usable ? &usable->bytes : NULL);
    return result;
}

/* SYCL's global_mem_size is the physical size, where the driver tells it, else the total. */
static void tell_region(struct zr_call *call, unsigned number, ze_device_memory_properties_t *region,
                        uint64_t *total_left, uint64_t *physical_left)
{
    ze_device_memory_ext_properties_t *more =
        chained(region->pNext, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES);
    struct zr_ze_usable_memory *usable = chained(region->pNext, ZR_STYPE_DEVICE_USABLEMEM_SIZE);

    zr_policy_tell_part(call, number, total_left, &region->totalSize);
    if (more)
        zr_policy_tell_part(call, number, physical_left, &more->physicalSize);
    if (usable)
        zr_policy_tell_limit(call, number, NULL, &usable->bytes);
}

ze_result_t zr_on_zeDeviceGetMemoryProperties(ze_device_handle_t device, uint32_t *count,
                                              ze_device_memory_properties_t *properties)
{
    ZR_ENTER(zeDeviceGetMemoryProperties, (device, count, properties));
    zr_count_caller(call.caller, 0);
    uint32_t regions = properties && count ? *count : 0;
    uint64_t total_left = UINT64_MAX, physical_left = UINT64_MAX;
    unsigned number = regions ? zr_device_number(&call, device) : ZR_UNKNOWN_DEVICE;
    for (uint32_t i = 0; i < regions && number != ZR_UNKNOWN_DEVICE; i++)
        if (unlikely(chained(properties[i].pNext, ZR_STYPE_DEVICE_USABLEMEM_SIZE)))
            zr_policy_trim(&call, number);
    ze_result_t result =
        ZR_DOWN(&call, zeDeviceGetMemoryProperties, 0, (device, count, properties));
    if (result != ZE_RESULT_SUCCESS || number == ZR_UNKNOWN_DEVICE)
        return result;
    for (uint32_t i = 0; i < regions && i < *count; i++)
        tell_region(&call, number, &properties[i], &total_left, &physical_left);
    return result;
}

ze_result_t zr_on_zesDeviceEnumMemoryModules(zes_device_handle_t device, uint32_t *count,
                                             zes_mem_handle_t *modules)
{
    ZR_ENTER(zesDeviceEnumMemoryModules, (device, count, modules));
    zr_count_caller(call.caller, 0);
    uint32_t asked = count ? *count : 0;
    ze_result_t result = ZR_DOWN(&call, zesDeviceEnumMemoryModules, 0, (device, count, modules));
    if (result == ZE_RESULT_SUCCESS && modules && asked)
        zr_device_modules(&call, device, modules, *count < asked ? *count : asked);
    return result;
}

ze_result_t zr_on_zesMemoryGetState(zes_mem_handle_t memory, zes_mem_state_t *state)
{
    ZR_ENTER(zesMemoryGetState, (memory, state));
    zr_count_caller(call.caller, 0);
    unsigned number;
    uint32_t among;
    if (!zr_device_of_module(memory, &number, &among) || number != ZR_UNKNOWN_DEVICE)
        zr_policy_trim(&call, number);
    ze_result_t result = ZR_DOWN(&call, zesMemoryGetState, 0, (memory, state));
    if (result == ZE_RESULT_SUCCESS && state)
        zr_policy_tell_module(&call, memory, &state->size, &state->free);
    return result;
}

/* --- functions by extension name ---------------------------------------------------------------------- */
/*
 * Memory is also exported and imported by functions that only the driver knows, and so is it asked to call back,
 * or to unmap something, when a block is freed: a block of which that is asked must not be kept. One of each is
 * remembered per driver; where there are more drivers than places the caller gets the driver's own function.
 */
enum { EXTENSIONS = 4 };
typedef ze_result_t (*get_handles)(ze_context_handle_t, const void *, uint32_t *,
                                   ze_ipc_mem_handle_t *);
typedef ze_result_t (*open_handles)(ze_context_handle_t, ze_device_handle_t, uint32_t,
                                    ze_ipc_mem_handle_t *, ze_ipc_memory_flags_t, void **);
typedef ze_result_t (*call_back)(ze_context_handle_t, void *, void *);
typedef ze_result_t (*map_to_host)(ze_context_handle_t, const void *, void **, void *);
static get_handles real_get[EXTENSIONS];
static open_handles real_open[EXTENSIONS];
static call_back real_call_back[EXTENSIONS];
static map_to_host real_map[EXTENSIONS];

static bool ours_to_see(ze_result_t result)
{
    return result == ZE_RESULT_SUCCESS && !zr_thread.inside && !zr_exiting;
}

static const void *asked_about(ze_context_handle_t context, const void *ptr)
{
    struct zr_call call = {.hook = ZR_HOOK_PLT};

    return zr_thread.inside || zr_exiting ? ptr : zr_keep_asked_about(&call, context, ptr);
}

static ze_result_t on_get(unsigned n, ze_context_handle_t context, const void *ptr, uint32_t *count,
                          ze_ipc_mem_handle_t *handles)
{
    ze_result_t result = real_get[n](context, asked_about(context, ptr), count, handles);

    if (ours_to_see(result) && handles)
        zr_registry_exported(ptr);
    return result;
}

static ze_result_t on_open(unsigned n, ze_context_handle_t context, ze_device_handle_t device,
                           uint32_t count, ze_ipc_mem_handle_t *handles, ze_ipc_memory_flags_t flags,
                           void **out)
{
    ze_result_t result = real_open[n](context, device, count, handles, flags, out);

    if (ours_to_see(result)) {
        struct zr_call call = {.hook = ZR_HOOK_PLT};

        result = zr_policy_imported(&call, context, device, ZR_E_zeMemOpenIpcHandle, out);
    }
    return result;
}

static ze_result_t on_call_back(unsigned n, ze_context_handle_t context, void *desc, void *ptr)
{
    ze_result_t result = real_call_back[n](context, desc, (void *)asked_about(context, ptr));

    if (ours_to_see(result))
        zr_registry_not_kept(ptr);
    return result;
}

static ze_result_t on_map(unsigned n, ze_context_handle_t context, const void *ptr, void **out,
                          void *next)
{
    ze_result_t result = real_map[n](context, asked_about(context, ptr), out, next);

    if (ours_to_see(result))
        zr_registry_not_kept(ptr);
    return result;
}

#define EXTENSION(n)                                                                               \
    static ze_result_t get##n(ze_context_handle_t context, const void *ptr, uint32_t *count,       \
                              ze_ipc_mem_handle_t *handles)                                        \
    {                                                                                              \
        return on_get(n, context, ptr, count, handles);                                            \
    }                                                                                              \
    static ze_result_t open##n(ze_context_handle_t context, ze_device_handle_t device,             \
                               uint32_t count, ze_ipc_mem_handle_t *handles,                       \
                               ze_ipc_memory_flags_t flags, void **out)                            \
    {                                                                                              \
        return on_open(n, context, device, count, handles, flags, out);                            \
    }                                                                                              \
    static ze_result_t call_back##n(ze_context_handle_t context, void *desc, void *ptr)            \
    {                                                                                              \
        return on_call_back(n, context, desc, ptr);                                                \
    }                                                                                              \
    static ze_result_t map##n(ze_context_handle_t context, const void *ptr, void **out, void *next) \
    {                                                                                              \
        return on_map(n, context, ptr, out, next);                                                 \
    }
EXTENSION(0)
EXTENSION(1)
EXTENSION(2)
EXTENSION(3)
#define OURS(name) {ZR_POINTER(name##0), ZR_POINTER(name##1), ZR_POINTER(name##2), ZR_POINTER(name##3)}
static const struct {
    const char *name;
    void **real;
    void *ours[EXTENSIONS];
} extensions[] = {{"zexMemGetIpcHandles", (void **)real_get, OURS(get)},
                  {"zexMemOpenIpcHandles", (void **)real_open, OURS(open)},
                  {"zexMemFreeRegisterCallbackExt", (void **)real_call_back, OURS(call_back)},
                  {"zeIntelMemMapDeviceMemToHost", (void **)real_map, OURS(map)}};

/* Finds or takes the place of this function; -1 when all are taken. */
static int place_for(void **places, void *f)
{
    for (int n = 0; n < EXTENSIONS; n++) {
        void *none = NULL;

        if (__atomic_compare_exchange_n(&places[n], &none, f, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE) ||
            none == f)
            return n;
    }
    return -1;
}

static void exchange_extension(const char *name, void **out)
{
    for (unsigned i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        int n;

        if (strcmp(name, extensions[i].name) == 0 && (n = place_for(extensions[i].real, *out)) >= 0)
            *out = extensions[i].ours[n];
    }
    for (unsigned e = 0; e < ZR_ENTRIES_ZE; e++)
        if (strcmp(name, zr_ze_name[e]) == 0)
            *out = ZR_POINTER(zr_table_hook(e, ZR_FUNCTION(*out)));
}

ze_result_t zr_on_zeDriverGetExtensionFunctionAddress(ze_driver_handle_t driver, const char *name,
                                                      void **out)
{
    ZR_ENTER(zeDriverGetExtensionFunctionAddress, (driver, name, out));
    zr_count_caller(call.caller, 0);
    ze_result_t result = ZR_DOWN(&call, zeDriverGetExtensionFunctionAddress, 0, (driver, name, out));
    if (result == ZE_RESULT_SUCCESS && name && out && *out)
        exchange_extension(name, out);
    return result;
}
