/* The smallest program that uses a GPU: allocate, copy there and back, free. */
#include <level_zero/ze_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(ze_result_t result, const char *what) {
    if (result == ZE_RESULT_SUCCESS)
        return;
    printf("%s: %#x\n", what, (unsigned)result);
    exit(1);
}
#define CHECK(call) check(call, #call)

int main(void) {
    ze_driver_handle_t driver;
    ze_device_handle_t device;
    ze_context_handle_t context;
    ze_command_list_handle_t list;
    uint32_t one = 1;
    CHECK(zeInit(0));
    CHECK(zeDriverGet(&one, &driver));
    CHECK(zeDeviceGet(driver, &one, &device));
    ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    CHECK(zeContextCreate(driver, &context_desc, &context));
    ze_command_queue_desc_t queue_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                          .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    CHECK(zeCommandListCreateImmediate(context, device, &queue_desc, &list));
    const size_t sizes[] = {1, 4096, 1 << 20, 5 << 20};
    for (int i = 0; i < 4; i++) {
        ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
        void *p;
        char *host = malloc(sizes[i]), *back = calloc(1, sizes[i]);
        memset(host, 'a' + i, sizes[i]);
        CHECK(zeMemAllocDevice(context, &desc, sizes[i], 0, device, &p));
        CHECK(zeCommandListAppendMemoryCopy(list, p, host, sizes[i], NULL, 0, NULL));
        CHECK(zeCommandListAppendMemoryCopy(list, back, p, sizes[i], NULL, 0, NULL));
        if (memcmp(host, back, sizes[i]) != 0) {
            puts("data differ");
            return 1;
        }
        CHECK(zeMemFree(context, p));
        free(host);
        free(back);
    }
    CHECK(zeCommandListDestroy(list));
    CHECK(zeContextDestroy(context));
    puts("ok");
    return 0;
}
