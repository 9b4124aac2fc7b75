/*
 * Calls every entry point with all that it needs; the suite has one call of the one that the first argument names fail,
 * with the code that the second one gives. That call is made again, and what was got is given back, so that the books
 * end at zero. Exit codes: 3 no call failed, 77 the loader has no such function.
 */
#include "sim.h"

#include <dlfcn.h>
#include <level_zero/zes_api.h>

static const char *wanted;
static unsigned code;
static bool met;

/* One that is not the wanted one must do; the wanted one fails once, and changes nothing. */
#define CALL(name, arguments)                                                                                          \
    do {                                                                                                               \
        unsigned result_ = (unsigned)(name arguments);                                                                 \
        if (result_ != ZE_RESULT_SUCCESS) {                                                                            \
            EXPECT(strcmp(wanted, #name) == 0 && !met && result_ == code);                                             \
            met = true;                                                                                                \
            OK(name arguments);                                                                                        \
        }                                                                                                              \
    } while (0)

static struct gpu gpu;

/* The simulated GPU is asked by a function that it is asked for by name. */
static bool may_ask(void) {
    return strcmp(wanted, "zeDriverGetExtensionFunctionAddress") != 0;
}

static void start(void) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    uint32_t count = 1, tiles = 2;
    ze_device_handle_t tile[2];
    ze_context_handle_t other;

    CALL(zeInit, (0));
    CALL(zeDriverGet, (&count, &gpu.driver));
    gpu.cards = 2;
    CALL(zeDeviceGet, (gpu.driver, &gpu.cards, gpu.card));
    CALL(zeDeviceGetSubDevices, (gpu.card[0], &tiles, tile));
    CALL(zeContextCreate, (gpu.driver, &desc, &gpu.context));
    CALL(zeContextCreateEx, (gpu.driver, &desc, 2, gpu.card, &other));
    CALL(zeContextDestroy, (other));
}

static void questions(void) {
    ze_device_properties_t device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    ze_device_memory_properties_t memory = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
    zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};
    zes_mem_handle_t module;
    uint32_t one = 1;
    void *function;

    CALL(zeDeviceGetProperties, (gpu.card[0], &device));
    CALL(zeDeviceGetMemoryProperties, (gpu.card[0], &one, &memory));
    CALL(zesDeviceEnumMemoryModules, ((zes_device_handle_t)gpu.card[0], &one, &module));
    CALL(zesMemoryGetState, (module, &state));
    CALL(zeDriverGetExtensionFunctionAddress, (gpu.driver, "zeSimgpuQuery", &function));
}

static void memory(void) {
    ze_memory_free_ext_desc_t blocking = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, .freePolicy = 1};
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t owner;
    ze_ipc_mem_handle_t handle;
    void *p = NULL, *q = NULL, *host = NULL, *shared = NULL, *open = NULL, *base;
    size_t size;

    CALL(zeMemAllocDevice, (gpu.context, &device_desc, 4 * MIB, 0, gpu.card[0], &p));
    CALL(zeMemAllocDevice, (gpu.context, &device_desc, 4 * MIB, 0, gpu.card[1], &q));
    CALL(zeMemAllocHost, (gpu.context, &host_desc, 4 * MIB, 0, &host));
    CALL(zeMemAllocShared, (gpu.context, &device_desc, &host_desc, 4 * MIB, 0, gpu.card[0], &shared));
    CALL(zeMemGetAllocProperties, (gpu.context, p, &properties, &owner));
    EXPECT(owner == gpu.card[0]);
    /* Of a block of ours the books tell, of another the driver. */
    CALL(zeMemGetAddressRange, (gpu.context, shared, &base, &size));
    CALL(zeMemGetAddressRange, (gpu.context, p, &base, &size));
    EXPECT(base == p && size == 4 * MIB);
    CALL(zeContextMakeMemoryResident, (gpu.context, gpu.card[1], p, 4 * MIB));
    EXPECT(!may_ask() || residency(&gpu, p) & 2);
    CALL(zeContextEvictMemory, (gpu.context, gpu.card[1], p, 4 * MIB));
    EXPECT(!may_ask() || !(residency(&gpu, p) & 2));
    CALL(zeMemGetIpcHandle, (gpu.context, p, &handle));
    CALL(zeMemOpenIpcHandle, (gpu.context, gpu.card[1], handle, 0, &open));
    CALL(zeMemCloseIpcHandle, (gpu.context, open));
    CALL(zeMemFree, (gpu.context, p));
    CALL(zeMemFreeExt, (gpu.context, &blocking, q));
    CALL(zeMemFree, (gpu.context, host));
    CALL(zeMemFree, (gpu.context, shared));
}

static void mapped(void) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 4 * MIB};
    ze_physical_mem_handle_t physical;
    ze_memory_access_attribute_t access;
    void *range = NULL;
    size_t page, length;

    CALL(zeVirtualMemQueryPageSize, (gpu.context, gpu.card[0], 4 * MIB, &page));
    CALL(zeVirtualMemReserve, (gpu.context, NULL, 4 * MIB, &range));
    CALL(zePhysicalMemCreate, (gpu.context, gpu.card[0], &desc, &physical));
    CALL(zeVirtualMemMap, (gpu.context, range, 4 * MIB, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    CALL(zeVirtualMemSetAccessAttribute, (gpu.context, range, 4 * MIB, ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY));
    CALL(zeVirtualMemGetAccessAttribute, (gpu.context, range, 4 * MIB, &access, &length));
    CALL(zeVirtualMemUnmap, (gpu.context, range, 4 * MIB));
    CALL(zeVirtualMemFree, (gpu.context, range, 4 * MIB));
    CALL(zePhysicalMemDestroy, (gpu.context, physical));
}

static void objects(void) {
    ze_event_pool_desc_t pool_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .count = 4};
    ze_command_list_desc_t list_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
    ze_command_queue_desc_t queue_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC};
    ze_event_pool_handle_t pool;
    ze_command_list_handle_t list, immediate;
    ze_command_queue_handle_t queue;

    CALL(zeEventPoolCreate, (gpu.context, &pool_desc, 0, NULL, &pool));
    CALL(zeCommandListCreate, (gpu.context, gpu.card[0], &list_desc, &list));
    CALL(zeCommandListCreateImmediate, (gpu.context, gpu.card[0], &queue_desc, &immediate));
    CALL(zeCommandQueueCreate, (gpu.context, gpu.card[0], &queue_desc, &queue));
    CALL(zeCommandListDestroy, (list));
    CALL(zeCommandListDestroy, (immediate));
    CALL(zeCommandQueueDestroy, (queue));
    CALL(zeEventPoolDestroy, (pool));
}

int main(int argc, char **argv) {
    wanted = argc > 2 ? argv[1] : "";
    code = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 0;
    if (!dlsym(RTLD_DEFAULT, wanted))
        return 77;
    start();
    questions();
    memory();
    mapped();
    objects();
    CALL(zeContextDestroy, (gpu.context));
    EXPECT(!may_ask() || (figure(&gpu, "vram.0") == 0 && figure(&gpu, "vram.1") == 0));
    return met ? 0 : 3;
}
