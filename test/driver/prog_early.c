/*
 * Is a block that was freed while a command may use it ever handed out too early? Each case gives a device work that
 * waits for a gate, frees a block of it by a free that vouches for nothing, and asks for the same size again: before
 * anything is proven, after something that proves nothing, and after the proof. Prints a line for each case: its name,
 * and for each of the three whether the block came back ("back") or another one ("other"; "-": not asked).
 *
 *   early [CASE...]     all of them but failed-append, which needs Intel's driver, refused-sync, refused-device and
 *                       tile, which need a simulated GPU of that kind, device-reset, for which Intel's driver waits,
 *                       and those after which nothing counts as proven: fork, namespace, semaphore, capture
 */
#include "ze_test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOREVER (20 * SECOND)

static ze_event_pool_handle_t pool;
static ze_event_handle_t gate;
static uint32_t next_event;
static char *source;
static size_t size = 5 << 20; /* another one for each case, so that no case sees the blocks of others */

/* Blocks of this case that were freed. */
static void *freed[8];
static unsigned freed_count;

/* Newer than the headers of Debian 12. */
static ze_result_t (*wait_for_list)(ze_command_list_handle_t list, uint64_t timeout);
static ze_result_t (*wait_for_device)(ze_device_handle_t device);

static ze_event_handle_t new_event(void) {
    ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC,
                            .index = next_event++,
                            .signal = ZE_EVENT_SCOPE_FLAG_HOST,
                            .wait = ZE_EVENT_SCOPE_FLAG_HOST};
    ze_event_handle_t event;

    CHECK(zeEventCreate(pool, &desc, &event));
    return event;
}

static ze_command_list_handle_t new_async_list(unsigned card, bool in_order) {
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .flags = in_order ? 1 << 1 : 0,
                                    .ordinal = copy_group(card),
                                    .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_command_list_handle_t list;

    CHECK(zeCommandListCreateImmediate(context, cards[card], &desc, &list));
    return list;
}

static ze_command_queue_handle_t new_queue(void) {
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .ordinal = copy_group(0),
                                    .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_command_queue_handle_t queue;

    CHECK(zeCommandQueueCreate(context, cards[0], &desc, &queue));
    return queue;
}

/* A list that copies into the block, after the gate if it is given, and signals the event. */
static ze_command_list_handle_t closed_list(void *block, ze_event_handle_t after, ze_event_handle_t event) {
    ze_command_list_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                   .commandQueueGroupOrdinal = copy_group(0)};
    ze_command_list_handle_t list;

    CHECK(zeCommandListCreate(context, cards[0], &desc, &list));
    CHECK(zeCommandListAppendMemoryCopy(list, block, source, 4096, event, after != NULL, after ? &after : NULL));
    CHECK(zeCommandListClose(list));
    return list;
}

static void copy_after(ze_command_list_handle_t list, void *block, ze_event_handle_t after, ze_event_handle_t event) {
    CHECK(zeCommandListAppendMemoryCopy(list, block, source, 4096, event, after != NULL, after ? &after : NULL));
}

/* Vouches for nothing, and does not wait either. */
static void free_early(void *block) {
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                      .freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE};

    CHECK(zeMemFreeExt(context, &desc, block));
    freed[freed_count++ % 8] = block;
}

static void print_back(void) {
    void *now = new_device(0, size);
    bool back = false;

    for (unsigned i = 0; i < freed_count; i++)
        back = back || freed[i] == now;
    printf(" %s", back ? "back" : "other");
    free_early(now);
}

struct work {
    void *block;
    ze_command_list_handle_t list;
};

static struct work begin_work(bool in_order, ze_event_handle_t event) {
    struct work w = {new_device(0, size), new_async_list(0, in_order)};

    copy_after(w.list, w.block, gate, event);
    free_early(w.block);
    print_back();
    return w;
}

static void end_work(const struct work *w) {
    CHECK(wait_for_list(w->list, FOREVER));
    CHECK(zeCommandListDestroy(w->list));
}

static void open_gate(void) {
    CHECK(zeEventHostSignal(gate));
}

/* --- waits that prove --------------------------------------------------------------------------------------------- */

static void by_list(void) {
    struct work w = begin_work(true, NULL);

    EQUAL(wait_for_list(w.list, 0), ZE_RESULT_NOT_READY);
    print_back();
    open_gate();
    CHECK(wait_for_list(w.list, FOREVER));
    print_back();
    end_work(&w);
}

static void by_event(void) {
    ze_event_handle_t event = new_event();
    struct work w = begin_work(true, event);

    EQUAL(zeEventQueryStatus(event), ZE_RESULT_NOT_READY);
    print_back();
    open_gate();
    CHECK(zeEventHostSynchronize(event, FOREVER));
    print_back();
    end_work(&w);
}

/* The event of a later command in order proves what lies before it. */
static void by_later_event(void) {
    ze_event_handle_t event = new_event();
    struct work w = begin_work(true, NULL);
    void *another = new_device(0, size);

    open_gate();
    copy_after(w.list, another, NULL, event);
    printf(" -");
    CHECK(zeEventHostSynchronize(event, FOREVER));
    print_back();
    end_work(&w);
}

static void by_device(void) {
    struct work w = begin_work(true, NULL);

    if (card_count > 1) {
        CHECK(wait_for_device(cards[1])); /* another card's */
        print_back();
    } else {
        printf(" -");
    }
    open_gate();
    CHECK(wait_for_device(cards[0]));
    print_back();
    end_work(&w);
}

static void by_queue(void) {
    void *block = new_device(0, size);
    ze_command_queue_handle_t queue = new_queue();
    ze_command_list_handle_t list = closed_list(block, gate, NULL);

    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    free_early(block);
    print_back();
    EQUAL(zeCommandQueueSynchronize(queue, 0), ZE_RESULT_NOT_READY);
    print_back();
    open_gate();
    CHECK(zeCommandQueueSynchronize(queue, FOREVER));
    print_back();
    CHECK(zeCommandListDestroy(list));
    CHECK(zeCommandQueueDestroy(queue));
}

static void by_fence(void) {
    void *block = new_device(0, size);
    ze_command_queue_handle_t queue = new_queue();
    ze_command_list_handle_t list = closed_list(block, gate, NULL);
    ze_fence_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    ze_fence_handle_t fence;

    CHECK(zeFenceCreate(queue, &desc, &fence));
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, fence));
    free_early(block);
    print_back();
    EQUAL(zeFenceQueryStatus(fence), ZE_RESULT_NOT_READY);
    print_back();
    open_gate();
    CHECK(zeFenceHostSynchronize(fence, FOREVER));
    print_back();
    CHECK(zeFenceDestroy(fence));
    CHECK(zeCommandListDestroy(list));
    CHECK(zeCommandQueueDestroy(queue));
}

/* Without an order, but the second command begins after the first: its event proves both. */
static void by_chain(void) {
    ze_event_handle_t first = new_event(), second = new_event();
    struct work w = begin_work(false, first);
    void *another = new_device(0, size);

    copy_after(w.list, another, first, second);
    EQUAL(zeEventQueryStatus(second), ZE_RESULT_NOT_READY);
    print_back();
    open_gate();
    CHECK(zeEventHostSynchronize(second, FOREVER));
    print_back();
    end_work(&w);
}

/* --- what proves nothing ------------------------------------------------------------------------------------------ */

/* Without an order the event of a later command says nothing of an earlier one. */
static void out_of_order(void) {
    ze_event_handle_t event = new_event();
    struct work w = begin_work(false, NULL);
    void *another = new_device(0, size);

    copy_after(w.list, another, NULL, event);
    printf(zeEventHostSynchronize(event, SECOND / 10) == ZE_RESULT_SUCCESS ? "" : " (in order here)");
    print_back();
    open_gate();
    CHECK(wait_for_list(w.list, FOREVER));
    print_back();
    end_work(&w);
}

/* An event that was signalled before and not reset is no proof of the command that signals it next. */
static void used_event(void) {
    ze_event_handle_t event = new_event();
    ze_command_list_handle_t first = new_async_list(0, true);
    void *another = new_device(0, size);
    struct work w;

    copy_after(first, another, NULL, event);
    CHECK(wait_for_list(first, FOREVER));
    w = begin_work(true, event);
    (void)zeEventQueryStatus(event);
    print_back();
    open_gate();
    CHECK(wait_for_list(w.list, FOREVER));
    print_back();
    end_work(&w);
    CHECK(zeCommandListDestroy(first));
}

/* The host has let the second command begin before the first one was done. */
static void broken_chain(void) {
    ze_event_handle_t first = new_event(), second = new_event();
    struct work w = begin_work(false, first);
    void *another = new_device(0, size);

    copy_after(w.list, another, first, second);
    CHECK(zeEventHostSignal(first));
    (void)zeEventHostSynchronize(second, SECOND / 10); /* one engine does both in turn */
    print_back();
    open_gate();
    CHECK(wait_for_list(w.list, FOREVER));
    print_back();
    end_work(&w);
}

static void host_signal(void) {
    ze_event_handle_t event = new_event();
    struct work w = begin_work(false, event);

    CHECK(zeEventHostSignal(event));
    CHECK(zeEventHostSynchronize(event, FOREVER));
    print_back();
    open_gate();
    CHECK(wait_for_list(w.list, FOREVER));
    print_back();
    end_work(&w);
}

/* A counting event that was refused with its command says that it was signalled. */
static void failed_append(void) {
    struct {
        uint32_t stype;
        const void *next;
        uint32_t flags, signal, wait;
    } desc = {.stype = 0x3001d, .flags = 1 << 0 | 1 << 2, .signal = 2, .wait = 2}; /* immediate, host-visible */
    ze_result_t (*create)(ze_context_handle_t, ze_device_handle_t, void *, ze_event_handle_t *);
    struct work w = begin_work(true, NULL);
    ze_event_handle_t event;

    CHECK(zeDriverGetExtensionFunctionAddress(driver, "zexCounterBasedEventCreate2", (void **)&create));
    CHECK(create(context, cards[0], &desc, &event));
    EXPECT(zeCommandListAppendMemoryFill(w.list, source, "four", 4, 4096, event, 0, NULL) != ZE_RESULT_SUCCESS);
    EQUAL(zeEventQueryStatus(event), ZE_RESULT_SUCCESS);
    print_back();
    open_gate();
    CHECK(wait_for_list(w.list, FOREVER));
    print_back();
    end_work(&w);
    CHECK(zeEventDestroy(event));
}

/* Another list, of another thread or card, still uses the block. */
struct other {
    unsigned card;
    void *block;
    ze_command_list_handle_t list;
};

static void *submit(void *arg) {
    struct other *o = arg;

    o->list = new_async_list(o->card, true);
    copy_after(o->list, o->block, gate, NULL);
    return NULL;
}

static void with_another(unsigned card) {
    struct other o = {card, new_device(0, size), NULL};
    ze_command_list_handle_t list = new_async_list(0, true);
    pthread_t thread;

    EQUAL(pthread_create(&thread, NULL, submit, &o), 0);
    EQUAL(pthread_join(thread, NULL), 0);
    copy_after(list, o.block, NULL, NULL);
    free_early(o.block);
    print_back();
    CHECK(wait_for_list(list, FOREVER));
    print_back();
    open_gate();
    CHECK(wait_for_list(o.list, FOREVER));
    CHECK(wait_for_list(list, FOREVER));
    print_back();
    CHECK(zeCommandListDestroy(o.list));
    CHECK(zeCommandListDestroy(list));
}

static void other_thread(void) {
    with_another(0);
}

static void other_card(void) {
    with_another(card_count > 1 ? 1 : 0);
}

/* A fence counts for its own execution, not for what the queue was given afterwards. */
static void fence_of_another_run(void) {
    void *block = new_device(0, size);
    ze_command_queue_handle_t queue = new_queue();
    ze_command_list_handle_t open = closed_list(block, NULL, NULL), waits = closed_list(block, gate, NULL);
    ze_fence_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    ze_fence_handle_t fence;

    CHECK(zeFenceCreate(queue, &desc, &fence));
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &open, fence));
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &waits, NULL));
    free_early(block);
    print_back();
    CHECK(zeFenceHostSynchronize(fence, FOREVER));
    print_back();
    open_gate();
    CHECK(zeCommandQueueSynchronize(queue, FOREVER));
    print_back();
    CHECK(zeFenceDestroy(fence));
    CHECK(zeCommandListDestroy(open));
    CHECK(zeCommandListDestroy(waits));
    CHECK(zeCommandQueueDestroy(queue));
}

/* A list that a queue executes signals the same event. */
static void event_of_a_list(void) {
    ze_event_handle_t event = new_event();
    struct work w = begin_work(true, event);
    void *another = new_device(0, size);
    ze_command_queue_handle_t queue = new_queue();
    ze_command_list_handle_t list = closed_list(another, NULL, event);

    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    (void)zeEventHostSynchronize(event, SECOND / 10); /* one engine may do both in turn */
    print_back();
    open_gate();
    CHECK(zeCommandQueueSynchronize(queue, FOREVER));
    CHECK(wait_for_list(w.list, FOREVER));
    print_back();
    end_work(&w);
    CHECK(zeCommandListDestroy(list));
    CHECK(zeCommandQueueDestroy(queue));
}

/* So does one that was executed before the event was reset, and is executed again. */
static void event_of_a_list_after_its_reset(void) {
    ze_event_handle_t event = new_event();
    void *another = new_device(0, size);
    ze_command_queue_handle_t queue = new_queue();
    ze_command_list_handle_t list = closed_list(another, NULL, event);
    struct work w;

    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    CHECK(zeCommandQueueSynchronize(queue, FOREVER));
    CHECK(zeEventHostReset(event));
    w = begin_work(true, event);
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    (void)zeEventHostSynchronize(event, SECOND / 10); /* one engine may do both in turn */
    print_back();
    open_gate();
    CHECK(zeCommandQueueSynchronize(queue, FOREVER));
    CHECK(wait_for_list(w.list, FOREVER));
    print_back();
    end_work(&w);
    CHECK(zeCommandListDestroy(list));
    CHECK(zeCommandQueueDestroy(queue));
}

/* A synchronous list has done what it was given when the call returns, and nothing else is done by that. */
static void synchronous_list(void) {
    struct work w = begin_work(true, NULL);
    void *another = new_device(0, size);
    ze_command_list_handle_t list = new_list(0, copy_group(0));

    copy_after(list, another, NULL, NULL);
    print_back();
    open_gate();
    CHECK(wait_for_list(w.list, FOREVER));
    print_back();
    end_work(&w);
    CHECK(zeCommandListDestroy(list));
}

/* Each execution of a closed list is work of its own. */
static void executed_again(void) {
    void *block = new_device(0, size);
    ze_command_queue_handle_t queue = new_queue();
    ze_command_list_handle_t list = closed_list(block, gate, NULL);

    open_gate();
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    CHECK(zeCommandQueueSynchronize(queue, FOREVER));
    CHECK(zeEventHostReset(gate));
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    free_early(block);
    print_back();
    EQUAL(zeCommandQueueSynchronize(queue, 0), ZE_RESULT_NOT_READY);
    print_back();
    open_gate();
    CHECK(zeCommandQueueSynchronize(queue, FOREVER));
    print_back();
    CHECK(zeCommandListDestroy(list));
    CHECK(zeCommandQueueDestroy(queue));
}

/* The fence of the first execution, waited for once more. */
static void used_fence(void) {
    void *block = new_device(0, size);
    ze_command_queue_handle_t queue = new_queue();
    ze_command_list_handle_t list = closed_list(block, gate, NULL);
    ze_fence_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    ze_fence_handle_t fence;

    CHECK(zeFenceCreate(queue, &desc, &fence));
    open_gate();
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, fence));
    CHECK(zeFenceHostSynchronize(fence, FOREVER));
    CHECK(zeEventHostReset(gate));
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    free_early(block);
    print_back();
    CHECK(zeFenceHostSynchronize(fence, FOREVER));
    print_back();
    CHECK(zeFenceReset(fence));
    open_gate();
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, fence));
    CHECK(zeFenceHostSynchronize(fence, FOREVER));
    CHECK(zeCommandQueueSynchronize(queue, FOREVER));
    print_back();
    CHECK(zeFenceDestroy(fence));
    CHECK(zeCommandListDestroy(list));
    CHECK(zeCommandQueueDestroy(queue));
}

/* A list that is reset may be reused, but what it did on its queue needs the queue's proof. */
static void reset_list(void) {
    void *block = new_device(0, size);
    ze_event_handle_t event = new_event();
    ze_command_queue_handle_t queue = new_queue();
    ze_command_list_handle_t list = closed_list(block, gate, event);

    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, NULL));
    free_early(block);
    print_back();
    open_gate();
    CHECK(zeEventHostSynchronize(event, FOREVER));
    CHECK(zeCommandListReset(list));
    print_back();
    CHECK(zeCommandQueueSynchronize(queue, FOREVER));
    print_back();
    CHECK(zeCommandListDestroy(list));
    CHECK(zeCommandQueueDestroy(queue));
}

/* Who destroys a list vouches for it: until then an event that another process may signal proves nothing. */
static void destroyed_list(void) {
    ze_event_handle_t event;
    ze_event_pool_handle_t shared = new_events(&event, 1, ZE_EVENT_POOL_FLAG_IPC);
    struct work w = begin_work(true, event);

    open_gate();
    CHECK(zeEventHostSynchronize(event, FOREVER));
    print_back();
    CHECK(zeCommandListDestroy(w.list));
    print_back();
    CHECK(zeEventDestroy(event));
    CHECK(zeEventPoolDestroy(shared));
}

/* The driver's own kernel fills the block, after the gate. */
static void by_kernel(void) {
    ze_command_queue_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .flags = 1 << 1, .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    void *block = new_device(0, size);
    ze_command_list_handle_t list;

    CHECK(zeCommandListCreateImmediate(context, cards[0], &desc, &list));
    CHECK(zeCommandListAppendMemoryFill(list, block, "zero", 4, 4096, NULL, 1, &gate));
    free_early(block);
    print_back();
    EQUAL(wait_for_list(list, 0), ZE_RESULT_NOT_READY);
    print_back();
    open_gate();
    CHECK(wait_for_list(list, FOREVER));
    print_back();
    CHECK(zeCommandListDestroy(list));
}

/* The other card reads the block into memory of its own. */
static void copied_by_another_card(void) {
    unsigned other = card_count > 1 ? 1 : 0;
    void *block = new_device(0, size), *copy = new_device(other, size);
    ze_command_list_handle_t here = new_async_list(0, true), there = new_async_list(other, true);

    CHECK(zeCommandListAppendMemoryCopy(there, copy, block, 4096, NULL, 1, &gate));
    copy_after(here, block, NULL, NULL);
    free_early(block);
    print_back();
    CHECK(wait_for_list(here, FOREVER));
    print_back();
    open_gate();
    CHECK(wait_for_list(there, FOREVER));
    print_back();
    CHECK(zeCommandListDestroy(here));
    CHECK(zeCommandListDestroy(there));
}

/* A reset by the device: the event may be signalled by what came before it or by what comes after. */
static void reset_by_the_device(void) {
    ze_event_handle_t event = new_event();
    ze_command_list_handle_t list = new_async_list(0, true);
    void *block = new_device(0, size), *another = new_device(0, size);

    copy_after(list, another, NULL, event);
    CHECK(zeEventHostSynchronize(event, FOREVER));
    copy_after(list, another, gate, NULL);
    CHECK(zeCommandListAppendEventReset(list, event));
    copy_after(list, block, NULL, event);
    free_early(block);
    print_back();
    CHECK(zeEventQueryStatus(event)); /* still of the first */
    print_back();
    open_gate();
    CHECK(wait_for_list(list, FOREVER));
    print_back();
    CHECK(zeCommandListDestroy(list));
}

/* A fence that is signalled from the start is no proof of the first execution. */
static void signalled_fence(void) {
    void *block = new_device(0, size);
    ze_command_queue_handle_t queue = new_queue();
    ze_command_list_handle_t list = closed_list(block, gate, NULL);
    ze_fence_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC, .flags = ZE_FENCE_FLAG_SIGNALED};
    ze_fence_handle_t fence;

    CHECK(zeFenceCreate(queue, &desc, &fence));
    CHECK(zeCommandQueueExecuteCommandLists(queue, 1, &list, fence));
    free_early(block);
    print_back();
    (void)zeFenceQueryStatus(fence);
    print_back();
    open_gate();
    CHECK(zeCommandQueueSynchronize(queue, FOREVER));
    print_back();
    CHECK(zeFenceDestroy(fence));
    CHECK(zeCommandListDestroy(list));
    CHECK(zeCommandQueueDestroy(queue));
}

/* A command that a synchronous list was given, and that failed, may be running. */
static void refused_by_a_synchronous_list(void) {
    void *block = new_device(0, size);
    ze_command_list_handle_t list = new_list(0, copy_group(0));

    EXPECT(zeCommandListAppendMemoryFill(list, block, "", 1, 4096, NULL, 0, NULL) != ZE_RESULT_SUCCESS);
    free_early(block);
    print_back();
    printf(" -");
    CHECK(wait_for_list(list, FOREVER));
    print_back();
    CHECK(zeCommandListDestroy(list));
}

static void refused_by_the_device(void) {
    struct work w = begin_work(true, NULL);

    EXPECT(wait_for_device(cards[0]) != ZE_RESULT_SUCCESS);
    print_back();
    open_gate();
    CHECK(wait_for_list(w.list, FOREVER));
    print_back();
    end_work(&w);
}

/* A part of a card says nothing of the other parts. */
static void by_tile(void) {
    struct work w = begin_work(true, NULL);
    ze_device_handle_t tile;
    uint32_t one = 1;

    CHECK(zeDeviceGetSubDevices(cards[0], &one, &tile));
    open_gate();
    CHECK(wait_for_device(tile));
    print_back();
    CHECK(wait_for_list(w.list, FOREVER));
    print_back();
    end_work(&w);
}

/* --- after these nothing counts as proven ------------------------------------------------------------------------- */

/* What was created in the parent is not known to the child, which is not to take it for proven. */
static void after_fork(void) {
    ze_command_list_handle_t list = new_async_list(0, true);
    void *block = new_device(0, size), *another = new_device(0, size);
    pid_t child;
    int status = 0;

    copy_after(list, another, NULL, NULL);
    CHECK(wait_for_list(list, FOREVER));
    fflush(stdout);
    child = fork();
    if (child == 0) {
        copy_after(list, block, gate, NULL);
        free_early(block);
        print_back();
        print_back();
        fflush(stdout);
        _exit(0);
    }
    EQUAL(waitpid(child, &status, 0), child);
    EQUAL(status, 0);
    printf(" back");
    CHECK(zeCommandListDestroy(list));
}

static void in_a_namespace(void) {
    struct work w = begin_work(true, NULL);

    EQUAL(dlmopen(LM_ID_NEWLM, "libze_loader.so.1", RTLD_NOW) != NULL, true);
    print_back();
    open_gate();
    end_work(&w);
    print_back();
}

static void by_semaphore(void) {
    ze_result_t (*append)(ze_command_list_handle_t, uint32_t, void *, void *, ze_event_handle_t, uint32_t, void *);
    struct work w = begin_work(true, NULL);

    *(void **)&append = dlsym(RTLD_DEFAULT, "zeCommandListAppendSignalExternalSemaphoreExt");
    (void)append(w.list, 0, NULL, NULL, NULL, 0, NULL);
    print_back();
    open_gate();
    end_work(&w);
    print_back();
}

static void by_capture(void) {
    ze_result_t (*begin)(ze_command_list_handle_t, void *);
    ze_command_list_handle_t list = new_async_list(0, true);
    struct work w = begin_work(true, NULL);

    *(void **)&begin = dlsym(RTLD_DEFAULT, "zeCommandListBeginGraphCaptureExt");
    (void)begin(list, NULL);
    print_back();
    open_gate();
    end_work(&w);
    print_back();
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"list", by_list},
                 {"event", by_event},
                 {"later-event", by_later_event},
                 {"device", by_device},
                 {"queue", by_queue},
                 {"fence", by_fence},
                 {"out-of-order", out_of_order},
                 {"used-event", used_event},
                 {"host-signal", host_signal},
                 {"other-thread", other_thread},
                 {"other-card", other_card},
                 {"other-run", fence_of_another_run},
                 {"list-event", event_of_a_list},
                 {"signalled-fence", signalled_fence},
                 {"executed-again", executed_again},
                 {"used-fence", used_fence},
                 {"reset-list", reset_list},
                 {"destroyed-list", destroyed_list},
                 {"kernel", by_kernel},
                 {"copied", copied_by_another_card},
                 {"chain", by_chain},
                 {"broken-chain", broken_chain},
                 {"list-event-reset", event_of_a_list_after_its_reset},
                 {"synchronous", synchronous_list},
                 {"refused-sync", refused_by_a_synchronous_list},
                 {"refused-device", refused_by_the_device},
                 {"tile", by_tile},
                 {"failed-append", failed_append},
                 {"device-reset", reset_by_the_device},
                 {"fork", after_fork},
                 {"namespace", in_a_namespace},
                 {"semaphore", by_semaphore},
                 {"capture", by_capture}};
    const size_t count = sizeof cases / sizeof *cases, last = count - 9; /* the rest only by name */
    ze_event_pool_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .flags = ZE_EVENT_POOL_FLAG_HOST_VISIBLE, .count = 64};

    start();
    CHECK(zeEventPoolCreate(context, &desc, 0, NULL, &pool));
    source = new_host(4096);
    *(void **)&wait_for_list = dlsym(RTLD_DEFAULT, "zeCommandListHostSynchronize");
    *(void **)&wait_for_device = dlsym(RTLD_DEFAULT, "zeDeviceSynchronize");
    if (!wait_for_list) {
        printf("skipped: this loader is too old\n");
        return 77;
    }
    for (size_t i = 0; i < count; i++) {
        bool wanted = argc == 1 && i < last;

        for (int a = 1; a < argc; a++)
            wanted = wanted || strcmp(argv[a], cases[i].name) == 0;
        size += 1 << 20;
        if (!wanted || (cases[i].run == by_device && !wait_for_device))
            continue;
        gate = new_event();
        freed_count = 0;
        printf("%s", cases[i].name);
        cases[i].run();
        printf("\n");
        fflush(stdout);
        CHECK(zeEventDestroy(gate));
    }
    return 0;
}
