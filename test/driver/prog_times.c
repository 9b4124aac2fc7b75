/* Events and times: who waits for whom, on one card and across cards, and what the clock says. */
#include "ze_test.h"

#define EVENTS 6
#define SIZE (1ul << 20)

static ze_event_handle_t events[EVENTS];

static void drop_events(ze_event_pool_handle_t pool) {
    for (unsigned i = 0; i < EVENTS; i++)
        CHECK(zeEventDestroy(events[i]));
    CHECK(zeEventPoolDestroy(pool));
}

static ze_command_list_handle_t new_async(unsigned card, uint32_t group, uint32_t flags) {
    ze_command_list_handle_t list;
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .ordinal = group,
                                    .flags = flags,
                                    .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    CHECK(zeCommandListCreateImmediate(context, cards[card], &desc, &list));
    return list;
}

static void the_program_holds_commands_back(ze_command_list_handle_t list) {
    ze_event_pool_handle_t pool = new_events(events, EVENTS, 0);
    uint8_t *bytes = new_host(4096);
    bytes[0] = 1;
    CHECK(zeCommandListAppendWaitOnEvents(list, 1, &events[0]));
    CHECK(zeCommandListAppendMemoryFill(list, bytes, "\7", 1, 4096, events[1], 0, NULL));
    EQUAL(zeEventHostSynchronize(events[1], SECOND / 50), ZE_RESULT_NOT_READY);
    EQUAL(bytes[0], 1);
    CHECK(zeEventHostSignal(events[0]));
    CHECK(zeEventHostSynchronize(events[1], 20 * SECOND));
    EQUAL(bytes[0] + bytes[4095], 14);
    CHECK(zeCommandListAppendEventReset(list, events[0]));
    CHECK(zeCommandListAppendSignalEvent(list, events[2]));
    CHECK(zeEventHostSynchronize(events[2], 20 * SECOND));
    EQUAL(zeEventQueryStatus(events[0]), ZE_RESULT_NOT_READY);
    CHECK(zeMemFree(context, bytes));
    drop_events(pool);
}

/* There and back: each list waits for an event of the other card's. */
static void cards_wait_for_each_other(unsigned card, unsigned peer, uint32_t group) {
    ze_event_pool_handle_t pool = new_events(events, EVENTS, 0);
    ze_command_list_handle_t here = new_async(card, group, 2), there = new_async(peer, group, 2);
    uint8_t *from = malloc(SIZE), *to = calloc(1, SIZE);
    void *mine = new_device(card, SIZE), *other = new_device(peer, SIZE);
    fill_random(from, SIZE, card * 4 + peer);
    CHECK(zeCommandListAppendMemoryCopy(here, mine, from, SIZE, events[0], 0, NULL));
    CHECK(zeCommandListAppendMemoryCopy(there, other, mine, SIZE, events[1], 1, &events[0]));
    CHECK(zeCommandListAppendMemoryCopy(here, to, other, SIZE, events[2], 1, &events[1]));
    CHECK(zeEventHostSynchronize(events[2], 20 * SECOND));
    expect_bytes("there and back", to, from, SIZE);
    CHECK(zeCommandListDestroy(here));
    CHECK(zeCommandListDestroy(there));
    CHECK(zeMemFree(context, mine));
    CHECK(zeMemFree(context, other));
    free(from);
    free(to);
    drop_events(pool);
}

static void times_follow_each_other(unsigned card, ze_command_list_handle_t list, bool compute) {
    ze_event_pool_handle_t pool = new_events(events, EVENTS, ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP);
    uint64_t *clock = new_host(4096), host, now, last = 0;
    ze_kernel_timestamp_result_t *copied = new_host(4096), times[3];
    const size_t places[] = {64, 256, 0};
    memset(clock, 0, 4096);
    CHECK(zeCommandListAppendWriteGlobalTimestamp(list, clock, NULL, 0, NULL));
    for (unsigned i = 0; i < 3; i++)
        CHECK(
            zeCommandListAppendMemoryFill(list, clock + 64, "\7", 1, 512, events[i], i > 0, i ? &events[i - 1] : NULL));
    CHECK(zeCommandListAppendWriteGlobalTimestamp(list, clock + 1, events[3], 1, &events[2]));
    CHECK(zeEventHostSynchronize(events[3], 20 * SECOND));
    CHECK(zeDeviceGetGlobalTimestamps(cards[card], &host, &now));
    for (unsigned i = 0; i < 3; i++) {
        CHECK(zeEventQueryKernelTimestamp(events[i], &times[i]));
        EQUAL(times[i].global.kernelStart > last, 1);
        EQUAL(times[i].global.kernelEnd >= times[i].global.kernelStart, 1);
        last = times[i].global.kernelStart;
    }
    EQUAL(clock[0] > 0 && clock[0] <= clock[1] && clock[1] <= now, 1);
    if (compute) { /* the driver has no other way than a kernel */
        CHECK(zeCommandListAppendQueryKernelTimestamps(list, 3, events, copied, places, events[4], 0, NULL));
        CHECK(zeEventHostSynchronize(events[4], 20 * SECOND));
        for (unsigned i = 0; i < 3; i++)
            expect_bytes("times", (char *)copied + places[i], &times[i], sizeof(times[i]));
        CHECK(zeCommandListAppendQueryKernelTimestamps(list, 3, events, copied, NULL, events[5], 0, NULL));
        CHECK(zeEventHostSynchronize(events[5], 20 * SECOND));
        expect_bytes("times", copied, times, sizeof(times));
    }
    CHECK(zeMemFree(context, clock));
    CHECK(zeMemFree(context, copied));
    drop_events(pool);
}

int main(void) {
    start();
    for (unsigned card = 0; card < card_count; card++) {
        for (unsigned compute = 0; compute < 2; compute++) {
            uint32_t group = compute ? 0 : copy_group(card);
            ze_command_list_handle_t list = new_async(card, group, 0);
            the_program_holds_commands_back(list);
            times_follow_each_other(card, list, compute);
            for (unsigned peer = 0; peer < card_count; peer++)
                cards_wait_for_each_other(card, peer, group);
            CHECK(zeCommandListDestroy(list));
        }
    }
    CHECK(zeContextDestroy(context));
    puts("done");
    return 0;
}
