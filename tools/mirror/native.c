/* The route of programs that call Level Zero themselves, sharing as Unified Runtime does. */
#include "mirror/mirror.h"

#include <dlfcn.h>
#include <level_zero/ze_api.h>
#include <stdio.h>
#include <string.h>

enum { ENDS = 64 << 10 };

#define FUNCTIONS(X)                                                                                                   \
    X(zeInit)                                                                                                          \
    X(zeDriverGet)                                                                                                     \
    X(zeDriverGetProperties)                                                                                           \
    X(zeDeviceGet)                                                                                                     \
    X(zeDeviceGetProperties)                                                                                           \
    X(zeDeviceGetMemoryProperties)                                                                                     \
    X(zeDeviceGetCommandQueueGroupProperties)                                                                          \
    X(zeDeviceCanAccessPeer)                                                                                           \
    X(zeContextCreateEx)                                                                                               \
    X(zeMemAllocDevice)                                                                                                \
    X(zeMemAllocHost)                                                                                                  \
    X(zeMemGetIpcHandle)                                                                                               \
    X(zeContextMakeMemoryResident)                                                                                     \
    X(zeCommandListCreateImmediate)                                                                                    \
    X(zeCommandListAppendMemoryCopy)

static struct {
#define X(name) __typeof__(&name) name;
    FUNCTIONS(X)
#undef X
} ze;

static ze_driver_handle_t driver;
static ze_context_handle_t context;
static ze_device_handle_t devices[ZR_CARDS_MAX];
static ze_command_list_handle_t lists[ZR_CARDS_MAX];
static unsigned device_count;
static unsigned char *staging;

static bool failed(const char *call, ze_result_t result, char *why, size_t size) {
    if (result == ZE_RESULT_SUCCESS)
        return false;
    snprintf(why, size, "%s: error 0x%x%s", call, (unsigned)result,
             result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY     ? " (out of host memory)"
             : result == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY ? " (out of device memory)"
             : result == ZE_RESULT_ERROR_UNINITIALIZED        ? " (no driver or no card; --sim needs neither)"
                                                              : "");
    return true;
}

static bool resolve(char *why, size_t size) {
    void *loader = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL), *symbol;

    if (!loader) {
        snprintf(why, size, "no Level Zero loader: %s", dlerror());
        return false;
    }
#define X(name)                                                                                                        \
    symbol = dlsym(loader, #name);                                                                                     \
    memcpy(&ze.name, &symbol, sizeof symbol);                                                                          \
    if (!symbol) {                                                                                                     \
        snprintf(why, size, "the loader lacks " #name);                                                                \
        return false;                                                                                                  \
    }
    FUNCTIONS(X)
#undef X
    return true;
}

/* The first driver with graphics cards; drivers of other kinds may stand before it. */
static bool find_cards(char *why, size_t size) {
    ze_driver_handle_t drivers[8];
    uint32_t count = 8;

    if (failed("zeInit", ze.zeInit(0), why, size) || failed("zeDriverGet", ze.zeDriverGet(&count, drivers), why, size))
        return false;
    for (uint32_t i = 0; i < count && !device_count; i++) {
        ze_device_handle_t all[ZR_CARDS_MAX];
        uint32_t found = ZR_CARDS_MAX;

        if (ze.zeDeviceGet(drivers[i], &found, all) != ZE_RESULT_SUCCESS)
            continue;
        for (uint32_t k = 0; k < found; k++) {
            ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};

            if (ze.zeDeviceGetProperties(all[k], &properties) == ZE_RESULT_SUCCESS &&
                properties.type == ZE_DEVICE_TYPE_GPU)
                devices[device_count++] = all[k];
        }
        driver = drivers[i];
    }
    if (!device_count)
        snprintf(why, size, "no graphics card");
    return device_count > 0;
}

static void describe(struct zr_mirror_route *route) {
    ze_driver_properties_t of_driver = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};
    ze_device_properties_t of_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};

    if (ze.zeDriverGetProperties(driver, &of_driver) == ZE_RESULT_SUCCESS)
        snprintf(route->driver, sizeof route->driver, "%u.%u.%u", of_driver.driverVersion >> 24,
                 of_driver.driverVersion >> 16 & 0xff, of_driver.driverVersion & 0xffff);
    if (ze.zeDeviceGetProperties(devices[0], &of_device) == ZE_RESULT_SUCCESS)
        snprintf(route->device, sizeof route->device, "%.90s", of_device.name);
    route->vram = ZR_ABSENT;
    for (unsigned i = 0; i < device_count; i++) {
        ze_device_memory_properties_t memory[4] = {{.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES},
                                                   {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES},
                                                   {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES},
                                                   {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES}};
        uint32_t count = 4;

        if (ze.zeDeviceGetMemoryProperties(devices[i], &count, memory) == ZE_RESULT_SUCCESS && count &&
            memory[0].totalSize < route->vram)
            route->vram = memory[0].totalSize;
    }
}

/* As Unified Runtime does after every device allocation: resident on the owner and on every peer that can reach it. */
static bool share_with_peers(unsigned owner, void *block, uint64_t bytes, char *why, size_t size) {
    for (unsigned i = 0; i < device_count; i++) {
        ze_bool_t reaches = i == owner;

        if (i != owner && ze.zeDeviceCanAccessPeer(devices[i], devices[owner], &reaches) != ZE_RESULT_SUCCESS)
            reaches = false;
        if (reaches && failed("zeContextMakeMemoryResident",
                              ze.zeContextMakeMemoryResident(context, devices[i], block, bytes), why, size))
            return false;
    }
    return true;
}

static void *allocate(const struct zr_mirror_plan *plan, unsigned card, uint64_t bytes, char *why, size_t size) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_ipc_mem_handle_t handle;
    void *block = NULL;

    if (failed("zeMemAllocDevice", ze.zeMemAllocDevice(context, &desc, bytes, 512, devices[card], &block), why, size))
        return NULL;
    switch (plan->share) {
    case ZR_SHARE_PEER:
        return share_with_peers(card, block, bytes, why, size) ? block : NULL;
    case ZR_SHARE_IPC:
        /* the owner's own residency first, as any user of the block would have it */
        if (failed("zeContextMakeMemoryResident", ze.zeContextMakeMemoryResident(context, devices[card], block, bytes),
                   why, size) ||
            failed("zeMemGetIpcHandle", ze.zeMemGetIpcHandle(context, block, &handle), why, size))
            return NULL;
        return block;
    case ZR_SHARE_NONE:
        return failed("zeContextMakeMemoryResident",
                      ze.zeContextMakeMemoryResident(context, devices[card], block, bytes), why, size)
                   ? NULL
                   : block;
    }
    return block;
}

static size_t end_size(uint64_t bytes) {
    return bytes / 2 < ENDS ? (size_t)bytes / 2 : ENDS;
}

static bool copy(unsigned card, void *to, const void *from, size_t size) {
    return ze.zeCommandListAppendMemoryCopy(lists[card], to, from, size, NULL, 0, NULL) == ZE_RESULT_SUCCESS;
}

static void fill(unsigned char *to, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i++)
        to[i] = (unsigned char)(i * 31 + seed * 17 + (i >> 8));
}

static bool write_ends(unsigned card, void *block, uint64_t bytes, unsigned seed) {
    size_t size = end_size(bytes);

    if (!staging || !lists[card])
        return false;
    fill(staging, size, seed);
    return copy(card, block, staging, size) && copy(card, (char *)block + bytes - size, staging, size);
}

static bool verify_ends(unsigned card, void *block, uint64_t bytes, unsigned seed, bool *same) {
    size_t size = end_size(bytes);

    if (!staging || !lists[card])
        return false;
    fill(staging + 2 * ENDS, size, seed);
    memset(staging, 0, 2 * ENDS);
    if (!copy(card, staging, block, size) || !copy(card, staging + ENDS, (char *)block + bytes - size, size))
        return false;
    *same = !memcmp(staging, staging + 2 * ENDS, size) && !memcmp(staging + ENDS, staging + 2 * ENDS, size);
    return true;
}

/* A group of engines that copy and nothing else, where there is one: copies then need no kernel. */
static uint32_t copy_group(ze_device_handle_t device) {
    ze_command_queue_group_properties_t groups[8];
    uint32_t count = 8;

    memset(groups, 0, sizeof groups);
    for (unsigned i = 0; i < 8; i++)
        groups[i].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
    if (ze.zeDeviceGetCommandQueueGroupProperties(device, &count, groups) != ZE_RESULT_SUCCESS)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        if ((groups[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY) &&
            !(groups[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE))
            return i;
    }
    return 0;
}

static void open_lists(void) {
    ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    void *memory = NULL;

    if (ze.zeMemAllocHost(context, &host, 3 * ENDS, 4096, &memory) == ZE_RESULT_SUCCESS)
        staging = memory;
    for (unsigned i = 0; i < device_count; i++) {
        queue.ordinal = copy_group(devices[i]);
        if (ze.zeCommandListCreateImmediate(context, devices[i], &queue, &lists[i]) != ZE_RESULT_SUCCESS)
            lists[i] = NULL;
        else if (staging) /* at a card's first command the driver takes host memory of its own: before it is measured */
            copy(i, staging, staging + ENDS, ENDS);
    }
}

bool zr_mirror_open_native(const struct zr_mirror_plan *plan, struct zr_mirror_route *route, char *why, size_t size) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};

    if (!resolve(why, size) || !find_cards(why, size))
        return false;
    if (device_count < plan->cards) {
        snprintf(why, size, "there are %u cards, not %u", device_count, plan->cards);
        return false;
    }
    device_count = plan->cards;
    if (failed("zeContextCreateEx", ze.zeContextCreateEx(driver, &desc, device_count, devices, &context), why, size))
        return false;
    open_lists();
    describe(route);
    route->cards = device_count;
    route->allocate = allocate;
    route->write = write_ends;
    route->verify = verify_ends;
    return true;
}
