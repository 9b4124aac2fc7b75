/*
 * What every program of the ways of binding does with the functions it found: allocate on each device of each
 * driver, write through the pointers, read back, free. How it finds them is the program's own business.
 *
 * WAY_CALLS device allocations and as many frees are made per device, and one shared block.
 */
#ifndef TEST_WAY_H
#define TEST_WAY_H

#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAY_CALLS = 3, WAY_SIZE = 1 << 20 };

#define WAY_FUNCTIONS(F)                                                                                               \
    F(zeInit)                                                                                                          \
    F(zeDriverGet)                                                                                                     \
    F(zeDeviceGet)                                                                                                     \
    F(zeContextCreate)                                                                                                 \
    F(zeContextDestroy)                                                                                                \
    F(zeContextMakeMemoryResident)                                                                                     \
    F(zeCommandListCreateImmediate)                                                                                    \
    F(zeCommandListDestroy)                                                                                            \
    F(zeCommandListAppendMemoryCopy)                                                                                   \
    F(zeMemAllocDevice)                                                                                                \
    F(zeMemAllocShared)                                                                                                \
    F(zeMemFree)

struct way {
#define F(name) __typeof__(&name) name;
    WAY_FUNCTIONS(F)
#undef F
};

#define WAY_CHECK(call)                                                                                                \
    do {                                                                                                               \
        ze_result_t result_ = (call);                                                                                  \
        if (result_ != ZE_RESULT_SUCCESS) {                                                                            \
            printf("%s: %#x\n", #call, (unsigned)result_);                                                             \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline void way_same(const void *a, const void *b) {
    if (memcmp(a, b, WAY_SIZE) == 0)
        return;
    puts("data differ");
    exit(1);
}

static inline void way_device(const struct way *w, ze_context_handle_t context, ze_device_handle_t device, int mark) {
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t on_host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    ze_command_list_handle_t list;
    char *there[WAY_CALLS], *shared;
    char *data = malloc(WAY_SIZE), *back = malloc(WAY_SIZE);

    WAY_CHECK(w->zeCommandListCreateImmediate(context, device, &queue, &list));
    WAY_CHECK(w->zeMemAllocShared(context, &on_device, &on_host, WAY_SIZE, 0, device, (void **)&shared));
    for (int i = 0; i < WAY_CALLS; i++) {
        WAY_CHECK(w->zeMemAllocDevice(context, &on_device, WAY_SIZE, 0, device, (void **)&there[i]));
        WAY_CHECK(w->zeContextMakeMemoryResident(context, device, there[i], WAY_SIZE));
        memset(data, mark + i, WAY_SIZE);
        WAY_CHECK(w->zeCommandListAppendMemoryCopy(list, there[i], data, WAY_SIZE, NULL, 0, NULL));
    }
    for (int i = 0; i < WAY_CALLS; i++) {
        memset(data, mark + i, WAY_SIZE);
        WAY_CHECK(w->zeCommandListAppendMemoryCopy(list, back, there[i], WAY_SIZE, NULL, 0, NULL));
        way_same(data, back);
        WAY_CHECK(w->zeCommandListAppendMemoryCopy(list, shared, there[i], WAY_SIZE, NULL, 0, NULL));
        way_same(data, shared);
        WAY_CHECK(w->zeMemFree(context, there[i]));
    }
    WAY_CHECK(w->zeMemFree(context, shared));
    WAY_CHECK(w->zeCommandListDestroy(list));
    free(data);
    free(back);
}

/* Prints how many devices it used, for the test to compare with what was counted. */
static inline int way_run(const struct way *w) {
    ze_driver_handle_t driver[8];
    uint32_t drivers = 0, total = 0;

    WAY_CHECK(w->zeInit(0));
    WAY_CHECK(w->zeDriverGet(&drivers, NULL));
    WAY_CHECK(w->zeDriverGet(&drivers, driver));
    for (uint32_t d = 0; d < drivers; d++) {
        ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
        ze_device_handle_t device[8];
        ze_context_handle_t context;
        uint32_t devices = 8;

        WAY_CHECK(w->zeDeviceGet(driver[d], &devices, device));
        WAY_CHECK(w->zeContextCreate(driver[d], &desc, &context));
        for (uint32_t i = 0; i < devices; i++)
            way_device(w, context, device[i], (int)(16 * total++ + 1));
        WAY_CHECK(w->zeContextDestroy(context));
    }
    printf("%u devices\n", total);
    return 0;
}

/* Every function by dlsym on one handle; exits when one is missing. */
#define WAY_BY_NAME(handle)                                                                                            \
    do {                                                                                                               \
        void *handle_ = (handle);                                                                                      \
        WAY_FUNCTIONS(WAY_LOOK_UP)                                                                                     \
        (void)handle_;                                                                                                 \
    } while (0)
#define WAY_LOOK_UP(name)                                                                                              \
    *(void **)&way.name = dlsym(handle_, #name);                                                                       \
    if (!way.name) {                                                                                                   \
        printf("%s: %s\n", #name, dlerror());                                                                          \
        exit(1);                                                                                                       \
    }

#endif
