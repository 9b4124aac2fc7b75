/* Copies and fills on the copy engine, between all kinds of memory and cards, byte by byte. */
#include "ze_test.h"

static const size_t sizes[] = {1, 3, 64, 4095, 65536, 65537, 1 << 20, (3 << 20) + 17, 20 << 20};

struct way { /* an immediate list, or a list and its queue */
    ze_command_list_handle_t list;
    ze_command_queue_handle_t queue;
};

static struct way new_way(unsigned card, int immediate) {
    struct way way = {0};
    uint32_t group = copy_group(card);
    if (immediate) {
        ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                        .ordinal = group,
                                        .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
        CHECK(zeCommandListCreateImmediate(context, cards[card], &desc, &way.list));
        return way;
    }
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .ordinal = group};
    ze_command_list_desc_t list = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, .commandQueueGroupOrdinal = group};
    CHECK(zeCommandQueueCreate(context, cards[card], &desc, &way.queue));
    CHECK(zeCommandListCreate(context, cards[card], &list, &way.list));
    return way;
}

static void copy(struct way *way, void *to, const void *from, size_t size) {
    CHECK(zeCommandListAppendMemoryCopy(way->list, to, from, size, NULL, 0, NULL));
    CHECK(zeCommandListAppendBarrier(way->list, NULL, 0, NULL));
}

/* Immediate lists tell by an event, so that a header without zeCommandListHostSynchronize will do. */
static void finish(struct way *way) {
    if (way->queue) {
        CHECK(zeCommandListClose(way->list));
        CHECK(zeCommandQueueExecuteCommandLists(way->queue, 1, &way->list, NULL));
        CHECK(zeCommandQueueSynchronize(way->queue, 20 * SECOND));
        CHECK(zeCommandListReset(way->list));
        return;
    }
    ze_event_pool_handle_t pool;
    ze_event_handle_t event;
    ze_event_pool_desc_t pool_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                      .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE | ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP,
                                      .count = 1};
    ze_event_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_DESC, .signal = ZE_EVENT_SCOPE_FLAG_HOST, .wait = ZE_EVENT_SCOPE_FLAG_HOST};
    ze_kernel_timestamp_result_t times = {0};
    CHECK(zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
    CHECK(zeEventCreate(pool, &desc, &event));
    CHECK(zeCommandListAppendBarrier(way->list, event, 0, NULL));
    CHECK(zeEventHostSynchronize(event, 20 * SECOND));
    CHECK(zeEventQueryKernelTimestamp(event, &times));
    EQUAL(times.global.kernelEnd >= times.global.kernelStart && times.global.kernelStart > 0, 1);
    CHECK(zeEventDestroy(event));
    CHECK(zeEventPoolDestroy(pool));
}

static void round_trip(struct way *way, unsigned card, unsigned peer, size_t size) {
    uint8_t *from = malloc(size), *to = calloc(1, size), *filled = malloc(size);
    fill_random(from, size, (uint32_t)size + card);
    memset(filled, 0xa7, size);
    void *device = new_device(card, size), *other = new_device(peer, size);
    void *host = new_host(size), *shared = new_shared(card, size);
    memset(shared, 1, size);
    copy(way, device, from, size);
    copy(way, other, device, size);
    copy(way, host, other, size);
    copy(way, shared, host, size);
    copy(way, to, shared, size);
    finish(way);
    expect_bytes("program memory", to, from, size);
    expect_bytes("host memory", host, from, size);
    expect_bytes("shared memory", shared, from, size);
    CHECK(zeCommandListAppendMemoryFill(way->list, other, "\xa7", 1, size, NULL, 0, NULL));
    CHECK(zeCommandListAppendBarrier(way->list, NULL, 0, NULL));
    copy(way, to, other, size);
    finish(way);
    expect_bytes("fill", to, filled, size);
    CHECK(zeMemFree(context, device));
    CHECK(zeMemFree(context, other));
    CHECK(zeMemFree(context, host));
    CHECK(zeMemFree(context, shared));
    free(from);
    free(to);
    free(filled);
}

static void regions(struct way *way, unsigned card) {
    enum { PITCH = 1000, ROWS = 50, WIDTH = 300, HEIGHT = 20 };
    uint8_t from[PITCH * ROWS], to[PITCH * ROWS] = {0}, want[PITCH * ROWS] = {0};
    fill_random(from, sizeof(from), 5);
    uint8_t *device = new_device(card, sizeof(from));
    ze_copy_region_t source = {.originX = 7, .originY = 3, .width = WIDTH, .height = HEIGHT, .depth = 1};
    ze_copy_region_t target = {.originX = 450, .originY = 25, .width = WIDTH, .height = HEIGHT, .depth = 1};
    copy(way, device, from, sizeof(from));
    CHECK(zeCommandListAppendMemoryCopyRegion(way->list, to, &target, PITCH, 0, device, &source, PITCH, 0, NULL, 0,
                                              NULL));
    finish(way);
    for (unsigned row = 0; row < HEIGHT; row++)
        memcpy(want + (25 + row) * PITCH + 450, from + (3 + row) * PITCH + 7, WIDTH);
    expect_bytes("region", to, want, sizeof(to));
    CHECK(zeMemFree(context, device));
}

int main(void) {
    start();
    for (unsigned card = 0; card < card_count; card++) {
        for (int immediate = 0; immediate < 2; immediate++) {
            struct way way = new_way(card, immediate);
            for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
                round_trip(&way, card, (card + 1) % card_count, sizes[i]);
            regions(&way, card);
            CHECK(zeCommandListDestroy(way.list));
            if (way.queue)
                CHECK(zeCommandQueueDestroy(way.queue));
        }
    }
    CHECK(zeContextDestroy(context));
    puts("done");
    return 0;
}
