/* Commands are asynchronous, take the time that they are given (copy_cost:100ms) and move bytes in order. */
#include "sim.h"

static struct gpu gpu;

static void an_immediate_list_is_asynchronous(void) {
    ze_command_list_handle_t list = immediate(&gpu, 0, false);
    ze_event_handle_t gate = new_event(&gpu), done = new_event(&gpu);
    char *p = on_card(&gpu, 0, 4096), host[4096], back[4096];
    memset(host, 'h', sizeof(host));
    memset(back, 0, sizeof(back));
    OK(zeCommandListAppendMemoryCopy(list, p, host, sizeof(host), NULL, 1, &gate));
    OK(zeCommandListAppendMemoryCopy(list, back, p, sizeof(host), done, 0, NULL));
    GIVES(ZE_RESULT_NOT_READY, zeEventQueryStatus(done));
    GIVES(ZE_RESULT_NOT_READY, zeEventHostSynchronize(done, 0));
    GIVES(ZE_RESULT_NOT_READY, zeEventHostSynchronize(done, 1000000));
    uint64_t start = now_ms();
    OK(zeEventHostSignal(gate));
    OK(zeEventHostSynchronize(done, UINT64_MAX));
    EXPECT(now_ms() - start >= 200);
    EXPECT(memcmp(host, back, sizeof(host)) == 0);
    ze_kernel_timestamp_result_t times;
    OK(zeEventQueryKernelTimestamp(done, &times));
    EXPECT(times.global.kernelEnd - times.global.kernelStart >= 100000000);
    OK(zeEventHostReset(done));
    GIVES(ZE_RESULT_NOT_READY, zeEventQueryStatus(done));
    OK(zeEventDestroy(done));
    OK(zeEventDestroy(gate));
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(gpu.context, p));
}

/* As adapter v2 of the SYCL runtimes uses them: taken again without a reset. */
static void a_counter_based_event_is_unsignalled_by_the_next_command(void) {
    struct {
        uint32_t stype;
        const void *next;
        uint32_t flags;
    } counter = {0x20014, NULL, 1}; /* ze_event_pool_counter_based_exp_desc_t, since 1.9 */
    ze_event_pool_desc_t pool_desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .pNext = &counter, .flags = 1, .count = 1};
    ze_event_desc_t event_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
    ze_command_list_handle_t list = immediate(&gpu, 0, false);
    ze_event_pool_handle_t pool;
    ze_event_handle_t done;
    char *p = on_card(&gpu, 0, 4096), host[4096] = "h";
    OK(zeEventPoolCreate(gpu.context, &pool_desc, 1, gpu.card, &pool));
    OK(zeEventCreate(pool, &event_desc, &done));
    for (int i = 0; i < 2; i++) {
        OK(zeCommandListAppendMemoryCopy(list, p, host, sizeof(host), done, 0, NULL));
        GIVES(ZE_RESULT_NOT_READY, zeEventQueryStatus(done));
        OK(zeEventHostSynchronize(done, UINT64_MAX));
    }
    OK(zeEventDestroy(done));
    OK(zeEventPoolDestroy(pool));
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(gpu.context, p));
}

static void a_synchronous_list_waits(void) {
    ze_command_list_handle_t list = immediate(&gpu, 0, true);
    char *p = on_card(&gpu, 0, 64);
    const uint32_t pattern = 0x04030201;
    OK(zeCommandListAppendMemoryFill(list, p, &pattern, sizeof(pattern), 64, NULL, 0, NULL));
    for (int i = 0; i < 64; i++)
        EXPECT(p[i] == i % 4 + 1);
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(gpu.context, p));
}

static void lists_run_on_queues_and_signal_fences(void) {
    ze_command_queue_handle_t queue;
    ze_command_list_handle_t list;
    ze_fence_handle_t fence;
    ze_command_queue_desc_t queue_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC};
    ze_command_list_desc_t list_desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC};
    ze_fence_desc_t fence_desc = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    OK(zeCommandQueueCreate(gpu.context, gpu.card[0], &queue_desc, &queue));
    OK(zeCommandListCreate(gpu.context, gpu.card[0], &list_desc, &list));
    OK(zeFenceCreate(queue, &fence_desc, &fence));
    char *p = on_card(&gpu, 0, 4 * MIB), back[16];
    uint64_t *stamp = NULL;
    OK(zeMemAllocHost(gpu.context, &host_desc, sizeof(*stamp), 0, (void **)&stamp));
    *stamp = 0;
    ze_event_handle_t gate = new_event(&gpu);
    OK(zeCommandListAppendMemoryFill(list, p, "x", 1, 4 * MIB, NULL, 1, &gate));
    OK(zeCommandListAppendBarrier(list, NULL, 0, NULL));
    OK(zeCommandListAppendMemoryCopy(list, back, p + 4 * MIB - 16, 16, NULL, 0, NULL));
    OK(zeCommandListAppendWriteGlobalTimestamp(list, stamp, NULL, 0, NULL));
    OK(zeCommandListClose(list));
    for (int run = 0; run < 2; run++) {
        memset(back, 0, sizeof(back));
        OK(zeCommandQueueExecuteCommandLists(queue, 1, &list, fence));
        GIVES(ZE_RESULT_NOT_READY, zeFenceQueryStatus(fence));
        GIVES(ZE_RESULT_NOT_READY, zeFenceHostSynchronize(fence, 1000));
        GIVES(ZE_RESULT_NOT_READY, zeCommandQueueSynchronize(queue, 0));
        OK(zeEventHostSignal(gate));
        OK(zeFenceHostSynchronize(fence, UINT64_MAX));
        OK(zeCommandQueueSynchronize(queue, UINT64_MAX));
        EXPECT(memcmp(back, "xxxxxxxxxxxxxxxx", 16) == 0 && *stamp != 0);
        OK(zeFenceReset(fence));
        OK(zeEventHostReset(gate));
    }
    OK(zeEventDestroy(gate));
    OK(zeCommandListReset(list));
    OK(zeCommandListDestroy(list));
    OK(zeFenceDestroy(fence));
    OK(zeCommandQueueDestroy(queue));
    OK(zeMemFree(gpu.context, stamp));
    OK(zeMemFree(gpu.context, p));
}

static void events_order_queues(void) {
    ze_command_list_handle_t first = immediate(&gpu, 0, false), second = immediate(&gpu, 0, false);
    ze_event_handle_t gate = new_event(&gpu), middle = new_event(&gpu), end = new_event(&gpu);
    char *p = on_card(&gpu, 0, 64), back[64];
    OK(zeCommandListAppendMemoryCopy(second, back, p, 64, end, 1, &middle));
    OK(zeCommandListAppendWaitOnEvents(first, 1, &gate));
    OK(zeCommandListAppendMemoryFill(first, p, "e", 1, 64, NULL, 0, NULL));
    OK(zeCommandListAppendSignalEvent(first, middle));
    GIVES(ZE_RESULT_NOT_READY, zeEventHostSynchronize(end, 20000000));
    OK(zeEventHostSignal(gate));
    OK(zeEventHostSynchronize(end, UINT64_MAX));
    EXPECT(back[0] == 'e' && back[63] == 'e');
    OK(zeCommandListAppendEventReset(first, end));
    OK(zeCommandListDestroy(first)); /* what can run still does */
    GIVES(ZE_RESULT_NOT_READY, zeEventQueryStatus(end));
    OK(zeCommandListDestroy(second));
    OK(zeEventDestroy(gate));
    OK(zeEventDestroy(middle));
    OK(zeEventDestroy(end));
    OK(zeMemFree(gpu.context, p));
}

static void regions_are_copied_row_by_row(void) {
    ze_command_list_handle_t list = immediate(&gpu, 0, true);
    char from[8 * 8], *to = on_card(&gpu, 0, 16 * 16);
    for (int i = 0; i < 64; i++)
        from[i] = (char)i;
    memset(to, -1, 256);
    ze_copy_region_t target = {.originX = 2, .originY = 3, .width = 4, .height = 2, .depth = 1};
    ze_copy_region_t source = {.originX = 1, .originY = 5, .width = 4, .height = 2, .depth = 1};
    OK(zeCommandListAppendMemoryCopyRegion(list, to, &target, 16, 0, from, &source, 8, 0, NULL, 0, NULL));
    for (int y = 0; y < 16; y++) {
        for (int x = 0; x < 16; x++) {
            bool inside = x >= 2 && x < 6 && y >= 3 && y < 5;
            EXPECT(to[y * 16 + x] == (inside ? (y - 3 + 5) * 8 + x - 2 + 1 : -1));
        }
    }
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(gpu.context, to));
}

static void wrong_arguments(void) {
    ze_command_list_handle_t list = immediate(&gpu, 0, false);
    char byte;
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zeCommandListAppendMemoryCopy(list, NULL, &byte, 1, NULL, 0, NULL));
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeCommandListAppendMemoryCopy(NULL, &byte, &byte, 1, NULL, 0, NULL));
    GIVES(ZE_RESULT_ERROR_INVALID_SIZE, zeCommandListAppendMemoryCopy(list, &byte, &byte, 1, NULL, 1, NULL));
    OK(zeCommandListDestroy(list));
}

int main(void) {
    gpu = first_gpu();
    an_immediate_list_is_asynchronous();
    a_counter_based_event_is_unsignalled_by_the_next_command();
    a_synchronous_list_waits();
    lists_run_on_queues_and_signal_fences();
    events_order_queues();
    regions_are_copied_row_by_row();
    wrong_arguments();
    EXPECT(figure(&gpu, "faults") == 0);
    return 0;
}
