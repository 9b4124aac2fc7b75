/* What the programs of the simulated GPU's tests share: a GPU to use, and checks that say what failed. */
#ifndef TEST_PROCESS_SIM_H
#define TEST_PROCESS_SIM_H

#include "expect.h"
#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define GIVES(code, call)                                                                                              \
    do {                                                                                                               \
        unsigned got_ = (unsigned)(call);                                                                              \
        if (got_ != (unsigned)(code)) {                                                                                \
            printf("%s:%d: %#x, not %s: %s\n", __FILE__, __LINE__, got_, #code, #call);                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call) GIVES(ZE_RESULT_SUCCESS, call)

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static const ze_device_mem_alloc_desc_t device_desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
static const ze_host_mem_alloc_desc_t host_desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};

struct gpu {
    ze_driver_handle_t driver;
    ze_context_handle_t context;
    uint32_t cards;
    ze_device_handle_t card[8];
};

static inline void use_driver(struct gpu *gpu, ze_driver_handle_t driver) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    gpu->driver = driver;
    gpu->cards = 8;
    OK(zeDeviceGet(driver, &gpu->cards, gpu->card));
    OK(zeContextCreate(driver, &desc, &gpu->context));
}

static inline struct gpu first_gpu(void) {
    struct gpu gpu;
    ze_driver_handle_t driver;
    uint32_t one = 1;
    OK(zeInit(0));
    OK(zeDriverGet(&one, &driver));
    use_driver(&gpu, driver);
    return gpu;
}

static inline void *on_card(struct gpu *gpu, unsigned card, size_t size) {
    void *p = NULL;
    OK(zeMemAllocDevice(gpu->context, &device_desc, size, 0, gpu->card[card], &p));
    return p;
}

static inline ze_result_t free_with(struct gpu *gpu, void *p, uint32_t policy) {
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, .freePolicy = policy};
    return zeMemFreeExt(gpu->context, &desc, p);
}

/* Chained to a question about a device: how much of its memory is free, which SYCL asks so. */
struct usable {
    uint32_t stype;
    void *next;
    uint64_t bytes;
};
#define USABLE                                                                                                         \
    { 0x20041, NULL, 0 }

static inline uint64_t usable_memory(ze_device_handle_t card) {
    struct usable usable = USABLE;
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, .pNext = &usable};
    OK(zeDeviceGetProperties(card, &properties));
    return usable.bytes;
}

/* A block that is exported, and the descriptor of it. */
static inline void *exported_block(struct gpu *gpu, unsigned card, size_t size, int *fd) {
    ze_external_memory_export_desc_t as = {.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC,
                                           .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF};
    ze_external_memory_export_fd_t out = {.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD,
                                          .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF};
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES,
                                                    .pNext = &out};
    ze_device_mem_alloc_desc_t desc = device_desc;
    ze_device_handle_t owner;
    void *p = NULL;
    desc.pNext = &as;
    OK(zeMemAllocDevice(gpu->context, &desc, size, 0, gpu->card[card], &p));
    OK(zeMemGetAllocProperties(gpu->context, p, &properties, &owner));
    *fd = out.fd;
    return p;
}

static inline ze_result_t import_block(struct gpu *gpu, unsigned card, size_t size, int fd, void **out) {
    ze_external_memory_import_fd_t from = {
        .stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, .fd = fd};
    ze_device_mem_alloc_desc_t desc = device_desc;
    desc.pNext = &from;
    return zeMemAllocDevice(gpu->context, &desc, size, 0, gpu->card[card], out);
}

static inline ze_command_list_handle_t immediate(struct gpu *gpu, unsigned card, bool synchronous) {
    ze_command_list_handle_t list;
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .mode = synchronous ? ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS
                                                        : ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    OK(zeCommandListCreateImmediate(gpu->context, gpu->card[card], &desc, &list));
    return list;
}

/* From one pool that stays. */
static inline ze_event_handle_t new_event(struct gpu *gpu) {
    static ze_event_pool_handle_t pool;
    static uint32_t used;
    ze_event_pool_desc_t pool_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                      .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
                                      .count = 64};
    ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC, .index = used++};
    ze_event_handle_t event;
    if (!pool)
        OK(zeEventPoolCreate(gpu->context, &pool_desc, 0, NULL, &pool));
    OK(zeEventCreate(pool, &desc, &event));
    return event;
}

/* A figure of the simulated driver: see sim_query in tools/bed/simgpu/machine.c. */
static inline uint64_t figure(struct gpu *gpu, const char *name) {
    uint64_t (*query)(const char *);
    void *address = NULL;
    OK(zeDriverGetExtensionFunctionAddress(gpu->driver, "zeSimgpuQuery", &address));
    memcpy(&query, &address, sizeof(query));
    return query(name);
}

/* Cards that the block is resident on, a bit each. */
static inline uint32_t residency(struct gpu *gpu, const void *p) {
    uint32_t (*query)(const void *);
    void *address = NULL;
    OK(zeDriverGetExtensionFunctionAddress(gpu->driver, "zeSimgpuResidency", &address));
    memcpy(&query, &address, sizeof(query));
    return query(p);
}

/* The number behind `name` in a file under ZEROUTE_ROOT, in bytes; -1: no such line or file. */
static inline int64_t bytes_in_file(const char *file, const char *name) {
    char path[4096], line[256], unit[16] = "";
    long long value = -1;
    snprintf(path, sizeof(path), "%s/%s", getenv("ZEROUTE_ROOT"), file);
    FILE *stream = fopen(path, "r");
    while (stream && fgets(line, sizeof(line), stream)) {
        size_t length = strlen(name);
        if (strncmp(line, name, length) != 0 || line[length] != ':')
            continue;
        if (sscanf(line + length + 1, "%lld %15s", &value, unit) < 1)
            value = -1;
        if (strcmp(unit, "KiB") == 0 || strcmp(unit, "kB") == 0)
            value *= 1024;
        else if (strcmp(unit, "MiB") == 0)
            value *= 1024 * 1024;
    }
    if (stream)
        fclose(stream);
    return value;
}

static inline int64_t gpu_active(void) {
    return bytes_in_file("proc/meminfo", "GPUActive");
}

static inline int64_t in_fdinfo(unsigned card, const char *name) {
    char file[64];
    snprintf(file, sizeof(file), "proc/%d/fdinfo/%u", getpid(), 200 + card);
    return bytes_in_file(file, name);
}

/* Programs of several parts: one per run, named by the first argument. The table ends with no name. */
struct part {
    const char *name;
    void (*run)(void);
};
#define PART(name)                                                                                                     \
    { #name, name }

static inline int run_part(const struct part *parts, int argc, char **argv) {
    for (; argc == 2 && parts->name; parts++)
        if (strcmp(argv[1], parts->name) == 0) {
            parts->run();
            return 0;
        }
    printf("no such part\n");
    return 2;
}

static inline uint64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static inline void pause_ms(long ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

#endif
