/*
 * Two cards, a block on each and a bystander, all made resident on both cards as a SYCL runtime
 * does; then a copy from card to card, byte for byte. Prints GPUActive before and after the copy, less
 * what it was before the blocks, and whether the bytes are right.
 */
#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 8 << 20, FIRST = 0, SECOND = 1 };

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        ze_result_t result_ = (call);                                                                                  \
        if (result_ != ZE_RESULT_SUCCESS) {                                                                            \
            printf("%s: 0x%x\n", #call, (unsigned)result_);                                                            \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static unsigned long gpu_active_kib(void) {
    char path[512], line[128];
    const char *root = getenv("ZEROUTE_ROOT");
    unsigned long kib = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/proc/meminfo", root ? root : "");
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "GPUActive: %lu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

static uint32_t copy_group(ze_device_handle_t device) {
    ze_command_queue_group_properties_t groups[8];
    uint32_t count = 8;

    memset(groups, 0, sizeof groups);
    for (unsigned i = 0; i < 8; i++)
        groups[i].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
    zeDeviceGetCommandQueueGroupProperties(device, &count, groups);
    for (uint32_t i = 0; i < count; i++)
        if ((groups[i].flags & 3) == ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY)
            return i;
    return 0;
}

int main(void) {
    ze_driver_handle_t driver;
    ze_device_handle_t cards[2];
    ze_context_handle_t context;
    ze_command_list_handle_t lists[2];
    ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_device_mem_alloc_desc_t device_desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t host_desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    uint32_t one = 1, two = 2;
    void *blocks[3];
    unsigned char *host;
    unsigned long base, before;
    bool same = true;

    MUST(zeInit(0));
    MUST(zeDriverGet(&one, &driver));
    MUST(zeDeviceGet(driver, &two, cards));
    MUST(zeContextCreate(driver, &context_desc, &context));
    MUST(zeMemAllocHost(context, &host_desc, 2 * BLOCK, 0, (void **)&host));
    for (int i = 0; i < 2; i++) {
        queue.ordinal = copy_group(cards[i]);
        MUST(zeCommandListCreateImmediate(context, cards[i], &queue, &lists[i]));
        MUST(zeCommandListAppendMemoryCopy(lists[i], host, host + BLOCK, BLOCK, NULL, 0, NULL));
    }
    base = gpu_active_kib();
    for (int i = 0; i < 3; i++) {
        MUST(zeMemAllocDevice(context, &device_desc, BLOCK, 0, cards[i & 1], &blocks[i]));
        MUST(zeContextMakeMemoryResident(context, cards[i & 1], blocks[i], BLOCK));
        MUST(zeContextMakeMemoryResident(context, cards[!(i & 1)], blocks[i], BLOCK));
    }
    for (int i = 0; i < BLOCK; i++)
        host[i] = (unsigned char)(i * 7 + (i >> 11));
    MUST(zeCommandListAppendMemoryCopy(lists[FIRST], blocks[FIRST], host, BLOCK, NULL, 0, NULL));
    before = gpu_active_kib() - base;
    MUST(zeCommandListAppendMemoryCopy(lists[SECOND], blocks[SECOND], blocks[FIRST], BLOCK, NULL, 0, NULL));
    MUST(zeCommandListAppendMemoryCopy(lists[SECOND], host + BLOCK, blocks[SECOND], BLOCK, NULL, 0, NULL));
    same = !memcmp(host, host + BLOCK, BLOCK);
    printf("before %lu after %lu %s\n", before, gpu_active_kib() - base, same ? "same" : "different");
    /* what was answered can be taken back; Intel's driver refuses this for a peer that it granted */
    zeContextEvictMemory(context, cards[SECOND], blocks[FIRST], BLOCK);
    MUST(zeMemFree(context, blocks[FIRST]));
    MUST(zeMemFree(context, blocks[SECOND]));
    MUST(zeMemFree(context, blocks[2]));
    return same ? 0 : 1;
}
