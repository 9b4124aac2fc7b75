/* copy_cost: a large copy takes that long, and its bytes are the old ones until then. Prints ms. */
#include "ze_test.h"

#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(void) {
    const size_t size = 8 << 20;
    start();
    ze_command_list_handle_t list;
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .ordinal = copy_group(0),
                                    .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    CHECK(zeCommandListCreateImmediate(context, cards[0], &desc, &list));
    ze_event_pool_handle_t pool;
    ze_event_handle_t event;
    ze_event_pool_desc_t pool_desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE, .count = 1};
    ze_event_desc_t event_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
    CHECK(zeEventPoolCreate(context, &pool_desc, 0, NULL, &pool));
    CHECK(zeEventCreate(pool, &event_desc, &event));
    volatile char *to = new_host(size);
    char *from = new_host(size);
    memset(from, 2, size);
    memset((char *)to, 1, size);
    double start_ms = now();
    CHECK(zeCommandListAppendMemoryCopy(list, (char *)to, from, size, event, 0, NULL));
    char early = to[size - 1];
    double queued_ms = now();
    CHECK(zeEventHostSynchronize(event, 20 * SECOND));
    double done_ms = now();
    EQUAL(to[size - 1], 2);
    if (done_ms - start_ms > 50 && queued_ms - start_ms < 50)
        EQUAL(early, 1);
    printf("%.0f\n", done_ms - start_ms);
    CHECK(zeEventDestroy(event));
    CHECK(zeEventPoolDestroy(pool));
    CHECK(zeCommandListDestroy(list));
    return 0;
}
