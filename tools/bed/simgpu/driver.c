/* The driver object: start, version, extensions. */
#include "simgpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct sim_state sim = {.memory = PTHREAD_MUTEX_INITIALIZER, .progress = PTHREAD_MUTEX_INITIALIZER};

static bool is_debug_key(const char *name, const char *value) {
    const char *keys = getenv("NEOReadDebugKeys"), *key = getenv(name);
    return keys && strcmp(keys, "1") == 0 && key && strcmp(key, value) == 0;
}

static void start(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&sim.changed, &attributes);
    pthread_condattr_destroy(&attributes);
    sim_config_load();
    sim_tables_init();
    sim_object_init(&sim.driver.object);
    sim_devices_init();
    sim_modules_init();
}

void sim_start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

/* Each large block is a file of its own: the soft limit of descriptors must not end that at 1024. */
static void raise_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* What zeInit fixes for the life of the process: debug keys of the environment, the machine. */
static void initialize(void) {
    sim.eager = is_debug_key("EnableDeferBacking", "0");
    sim.peerless = is_debug_key("ForceZeDeviceCanAccessPerReturnValue", "0");
    raise_descriptor_limit();
    sim_machine_attach();
    sim.driver.default_context = sim_context_new(sim_visible_cards());
    atomic_store(&sim.ready, true);
}

ze_result_t sim_zeInit(ze_init_flags_t flags) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (flags & ~3u)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    sim_start();
    pthread_once(&once, initialize);
    return flags == ZE_INIT_FLAG_VPU_ONLY ? ZE_RESULT_ERROR_UNINITIALIZED : ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDriverGet(uint32_t *count, ze_driver_handle_t *drivers) {
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!atomic_load(&sim.ready))
        return ZE_RESULT_ERROR_UNINITIALIZED;
    if (*count == 0 || *count > 1)
        *count = 1;
    if (drivers)
        drivers[0] = (ze_driver_handle_t)&sim.driver;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeInitDrivers(uint32_t *count, ze_driver_handle_t *drivers, const struct sim_init_desc *desc) {
    if (!count || !desc)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!(desc->flags & 1)) {
        *count = 0;
        return ZE_RESULT_SUCCESS;
    }
    ze_result_t result = sim_zeInit(0);
    return result ? result : sim_zeDriverGet(count, drivers);
}

ze_result_t sim_zeDriverGetApiVersion(ze_driver_handle_t driver, ze_api_version_t *version) {
    (void)driver;
    if (!version)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *version = (ze_api_version_t)ZE_MAKE_VERSION(1, 15);
    return ZE_RESULT_SUCCESS;
}

/* MAJOR.MINOR.BUILD as the real driver packs it: 8, 8 and 16 bits. */
static uint32_t packed_version(void) {
    uint32_t part[3] = {0, 0, 0};
    char *at = sim_config.version;
    for (size_t i = 0; i < 3; i++) {
        part[i] = (uint32_t)strtoul(at, &at, 10);
        at += *at == '.';
    }
    return (part[0] & 0xff) << 24 | (part[1] & 0xff) << 16 | (part[2] & 0xffff);
}

static void fill_driver_extension(struct sim_next *next) {
    if ((uint32_t)next->stype == SIM_STYPE_DDI_HANDLES)
        *(uint32_t *)(next + 1) = sim_config.ddi_handles ? 1 : 0;
    else if (next->stype == ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES)
        ((ze_driver_memory_free_ext_properties_t *)(void *)next)->freePolicies =
            ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE | ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
}

ze_result_t sim_zeDriverGetProperties(ze_driver_handle_t driver, ze_driver_properties_t *properties) {
    (void)driver;
    if (!properties)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    memset(&properties->uuid, 0, sizeof(properties->uuid));
    memcpy(&properties->uuid, sim_second() ? "simgpu2" : "simgpu", 7);
    properties->driverVersion = packed_version();
    for (struct sim_next *next = properties->pNext; next; next = next->next)
        fill_driver_extension(next);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDriverGetIpcProperties(ze_driver_handle_t driver, ze_driver_ipc_properties_t *properties) {
    (void)driver;
    if (!properties)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    properties->flags = ZE_IPC_PROPERTY_FLAG_MEMORY | ZE_IPC_PROPERTY_FLAG_EVENT_POOL;
    return ZE_RESULT_SUCCESS;
}

struct extension {
    const char *name;
    uint32_t version;
};
static const struct extension extensions[] = {
    {"ZE_extension_memory_free_policies", ZE_MAKE_VERSION(1, 0)},
    {"ZE_extension_pci_properties", ZE_MAKE_VERSION(1, 0)},
    {"ZE_extension_device_memory_properties", ZE_MAKE_VERSION(1, 0)},
    {"ZE_extension_device_usablemem_size_properties", ZE_MAKE_VERSION(1, 0)},
    {"ZE_experimental_relaxed_allocation_limits", ZE_MAKE_VERSION(1, 0)},
    {"ZE_experimental_event_pool_counter_based", ZE_MAKE_VERSION(1, 0)},
    {"ZE_intel_get_driver_version_string", ZE_MAKE_VERSION(1, 0)},
    {"ZE_extension_driver_ddi_handles", ZE_MAKE_VERSION(1, 0)}, /* last: with ddi_handles:on only */
};

ze_result_t sim_zeDriverGetExtensionProperties(ze_driver_handle_t driver, uint32_t *count,
                                               ze_driver_extension_properties_t *properties) {
    (void)driver;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    uint32_t known = sizeof(extensions) / sizeof(extensions[0]);
    if (!sim_config.ddi_handles)
        known--;
    if (*count == 0 || *count > known)
        *count = known;
    for (uint32_t i = 0; properties && i < *count; i++) {
        memset(&properties[i], 0, sizeof(properties[i]));
        snprintf(properties[i].name, sizeof(properties[i].name), "%s", extensions[i].name);
        properties[i].version = extensions[i].version;
    }
    return ZE_RESULT_SUCCESS;
}

static ze_result_t version_string(ze_driver_handle_t driver, char *out, size_t *size) {
    (void)driver;
    if (!out)
        *size = strlen(sim_config.version) + 1;
    else
        snprintf(out, *size, "%s", sim_config.version);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDriverGetExtensionFunctionAddress(ze_driver_handle_t driver, const char *name, void **address) {
    (void)driver;
    if (!name || !address)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    sim_function function = sim_function_named(name);
    if (strcmp(name, "zeIntelGetDriverVersionString") == 0)
        function = (sim_function)version_string;
    else if (strcmp(name, "zeSimgpuQuery") == 0)
        function = (sim_function)sim_query;
    else if (strcmp(name, "zeSimgpuResidency") == 0)
        function = (sim_function)sim_residency;
    memcpy(address, &function, sizeof(function));
    return function ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t sim_zeDriverGetLastErrorDescription(ze_driver_handle_t driver, const char **text) {
    (void)driver;
    if (!text)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *text = "";
    return ZE_RESULT_SUCCESS;
}

ze_context_handle_t sim_zeDriverGetDefaultContext(ze_driver_handle_t driver) {
    (void)driver;
    return (ze_context_handle_t)sim.driver.default_context;
}
