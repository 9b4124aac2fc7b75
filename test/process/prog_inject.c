/*
 * Calls the entry point that the first argument names, twice, with all that it needs: the suite has its first call
 * fail. What was got is given back, so that the books end at zero. Exit code 77: the loader has no such function.
 */
#include "sim.h"

#include <dlfcn.h>
#include <level_zero/zes_api.h>

#define INJECTED ZE_RESULT_ERROR_DEVICE_LOST

static const char *wanted;
static bool met;

/* One that is not the wanted one must do; the wanted one fails first, and changes nothing. */
#define CALL(name, arguments)                                                                                          \
    do {                                                                                                               \
        if (strcmp(wanted, #name) == 0 && !met) {                                                                      \
            met = true;                                                                                                \
            GIVES(INJECTED, name arguments);                                                                           \
        }                                                                                                              \
        OK(name arguments);                                                                                            \
    } while (0)

static struct gpu gpu;

static void start(void) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    uint32_t count = 1, tiles = 2;
    ze_device_handle_t tile[2];
    ze_context_handle_t other;

    CALL(zeInit, (0));
    OK(zeDriverGet(&count, &gpu.driver));
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
    OK(zeMemAllocDevice(gpu.context, &device_desc, 4 * MIB, 0, gpu.card[1], &q));
    CALL(zeMemAllocHost, (gpu.context, &host_desc, 4 * MIB, 0, &host));
    CALL(zeMemAllocShared, (gpu.context, &device_desc, &host_desc, 4 * MIB, 0, gpu.card[0], &shared));
    CALL(zeMemGetAllocProperties, (gpu.context, p, &properties, &owner));
    EXPECT(owner == gpu.card[0]);
    /* Of a block of ours the books tell, of another the driver. */
    if (strcmp(wanted, "zeMemGetAddressRange") == 0)
        met = zeMemGetAddressRange(gpu.context, shared, &base, &size) == INJECTED;
    OK(zeMemGetAddressRange(gpu.context, p, &base, &size));
    EXPECT(base == p && size == 4 * MIB);
    CALL(zeContextMakeMemoryResident, (gpu.context, gpu.card[1], p, 4 * MIB));
    EXPECT(residency(&gpu, p) & 2);
    CALL(zeContextEvictMemory, (gpu.context, gpu.card[1], p, 4 * MIB));
    EXPECT(!(residency(&gpu, p) & 2));
    CALL(zeMemGetIpcHandle, (gpu.context, p, &handle));
    CALL(zeMemOpenIpcHandle, (gpu.context, gpu.card[1], handle, 0, &open));
    CALL(zeMemCloseIpcHandle, (gpu.context, open));
    CALL(zeMemFree, (gpu.context, p));
    CALL(zeMemFreeExt, (gpu.context, &blocking, q));
    OK(zeMemFree(gpu.context, host));
    OK(zeMemFree(gpu.context, shared));
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

int main(int argc, char **argv) {
    wanted = argc > 1 ? argv[1] : "";
    if (!dlsym(RTLD_DEFAULT, wanted))
        return 77;
    start();
    questions();
    memory();
    mapped();
    OK(zeContextDestroy(gpu.context));
    EXPECT(figure(&gpu, "vram.0") == 0 && figure(&gpu, "vram.1") == 0);
    if (!met)
        printf("%s is not called here\n", wanted);
    return met ? 0 : 3;
}
