/*
 * A small Level Zero program, as anybody might write one: finds the GPUs, then works in steps as a
 * training loop does: gets device memory, fills it from the host, copies it on the device and to
 * the next card, brings it back, compares every byte, and gives the memory back.
 *
 *   demo [STEPS]      10 steps
 *   demo --probe      exit code 0 if there is a GPU, 77 if not
 */
#include <level_zero/ze_api.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define DEVICES 8
#define NO_GPU 77

static ze_driver_handle_t driver;
static ze_context_handle_t context;
static ze_device_handle_t device[DEVICES];
static ze_command_list_handle_t commands[DEVICES];
static uint32_t devices;
static uint64_t verified;

static void check(ze_result_t result, const char *what) {
    if (result == ZE_RESULT_SUCCESS)
        return;
    fprintf(stderr, "demo: %s failed with 0x%x\n", what, (unsigned)result);
    exit(1);
}

/* The first driver that has a GPU. */
static bool find_gpus(void) {
    ze_driver_handle_t driver_list[8];
    uint32_t drivers = 8;
    if (zeInit(ZE_INIT_FLAG_GPU_ONLY) != ZE_RESULT_SUCCESS || zeDriverGet(&drivers, driver_list) != ZE_RESULT_SUCCESS)
        return false;
    for (uint32_t i = 0; i < drivers && i < 8; i++) {
        ze_device_handle_t all[32];
        uint32_t count = 32;
        if (zeDeviceGet(driver_list[i], &count, all) != ZE_RESULT_SUCCESS)
            continue;
        for (uint32_t d = 0; d < count && devices < DEVICES; d++) {
            ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
            if (zeDeviceGetProperties(all[d], &p) == ZE_RESULT_SUCCESS && p.type == ZE_DEVICE_TYPE_GPU)
                device[devices++] = all[d];
        }
        if (devices) {
            driver = driver_list[i];
            return true;
        }
    }
    return false;
}

static void introduce(void) {
    for (uint32_t d = 0; d < devices; d++) {
        ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
        ze_device_memory_properties_t memory[4] = {{0}};
        uint32_t count = 4;
        uint64_t bytes = 0;
        for (int i = 0; i < 4; i++)
            memory[i].stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
        check(zeDeviceGetProperties(device[d], &p), "zeDeviceGetProperties");
        check(zeDeviceGetMemoryProperties(device[d], &count, memory), "zeDeviceGetMemoryProperties");
        for (uint32_t i = 0; i < count && i < 4; i++)
            bytes += memory[i].totalSize;
        printf("device %u: %s, %.1f GiB\n", d, p.name, (double)bytes / (1024.0 * MIB));
    }
}

static void prepare(void) {
    ze_context_desc_t c = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    check(zeContextCreate(driver, &c, &context), "zeContextCreate");
    for (uint32_t d = 0; d < devices; d++) {
        ze_command_queue_desc_t q = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
        check(zeCommandListCreateImmediate(context, device[d], &q, &commands[d]), "zeCommandListCreateImmediate");
    }
}

/* Memory on one card, made resident on every card, as SYCL runtimes do it. */
static void *get(uint32_t on, size_t size) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *p = NULL;
    check(zeMemAllocDevice(context, &desc, size, 512, device[on], &p), "zeMemAllocDevice");
    for (uint32_t d = 0; d < devices; d++)
        check(zeContextMakeMemoryResident(context, device[d], p, size), "zeContextMakeMemoryResident");
    return p;
}

static void copy(uint32_t on, void *to, const void *from, size_t size) {
    check(zeCommandListAppendMemoryCopy(commands[on], to, from, size, NULL, 0, NULL), "zeCommandListAppendMemoryCopy");
}

/* One tensor: host -> card -> same card -> next card -> host, and every byte compared. */
static void work(uint32_t on, size_t size, unsigned char *out, unsigned char *in, unsigned seed) {
    uint32_t next = (on + 1) % devices;
    void *a = get(on, size), *b = get(on, size), *c = get(next, size);
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = (i + seed) * 0x9e3779b97f4a7c15u;
        memcpy(out + i, &word, 8);
    }
    copy(on, a, out, size);
    copy(on, b, a, size);
    copy(on, c, b, size);
    memset(in, 0, size);
    copy(next, in, c, size);
    if (memcmp(in, out, size) != 0) {
        fprintf(stderr, "demo: wrong data came back from device %u\n", next);
        exit(1);
    }
    verified += size;
    check(zeMemFree(context, a), "zeMemFree");
    check(zeMemFree(context, b), "zeMemFree");
    check(zeMemFree(context, c), "zeMemFree");
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    static const size_t sizes[] = {4 << 10, 2 * MIB, 2 * MIB, 20 * MIB};
    bool probe = argc > 1 && strcmp(argv[1], "--probe") == 0;
    long steps = argc > 1 && !probe ? strtol(argv[1], NULL, 10) : 10;
    if (argc > 2 || steps < 1 || steps > 1000000) {
        fprintf(stderr, "usage: demo [STEPS | --probe]\n");
        return 2;
    }
    if (!find_gpus()) {
        if (!probe)
            fprintf(stderr, "demo: no GPU found\n");
        return NO_GPU;
    }
    if (probe)
        return 0;
    introduce();
    prepare();
    ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void *out = NULL, *in = NULL;
    check(zeMemAllocHost(context, &host, 20 * MIB, 64, &out), "zeMemAllocHost");
    check(zeMemAllocHost(context, &host, 20 * MIB, 64, &in), "zeMemAllocHost");
    void *weights = get(0, 64 * MIB); /* kept for the whole run, as a model is */
    double start = now();
    for (long s = 0; s < steps; s++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            work((uint32_t)s % devices, sizes[i], out, in, (unsigned)s);
    double seconds = now() - start;
    printf("steps: %ld\n", steps);
    printf("verified_bytes: %llu\n", (unsigned long long)verified);
    printf("ms_per_step: %.2f\n", seconds * 1e3 / (double)steps);
    check(zeMemFree(context, weights), "zeMemFree");
    check(zeMemFree(context, out), "zeMemFree");
    check(zeMemFree(context, in), "zeMemFree");
    for (uint32_t d = 0; d < devices; d++)
        zeCommandListDestroy(commands[d]);
    check(zeContextDestroy(context), "zeContextDestroy");
    puts("result: right");
    return 0;
}
