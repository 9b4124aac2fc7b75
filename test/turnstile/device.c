/*
 * What the device is given to do. A command is pending until the device has done it; which one is done next, and when,
 * depends on the seed. A wait lets the device do what it has to wait for, and nothing more: what was given to it while
 * the wait was under way stays pending. Handles are given out again at once.
 *
 * Commands of the program change no memory: they only use the blocks that they name. Those of the preload (check's
 * worker) are carried out in the call.
 */
#include "turnstile.h"

#include <string.h>

enum { RUNNERS = 32, EVENTS = 32, FENCES = 16, COMMANDS = 512, RECORDED = 8, USES = 2 };
enum { QUEUE_IN_ORDER = 1 << 1, LIST_IN_ORDER = 1 << 3, BLOCKING = 1, DEFER = 2 };

struct event { /* or a fence, or a pool of events */
    void *tables;
    bool live, signalled;
};
struct use { /* of a part of a block: another one may have its address by now */
    uintptr_t p, base;
    size_t size;
    uint64_t given;
};
struct uses {
    struct use at[USES];
    unsigned count;
    struct event *event; /* signalled when it is done */
};
struct runner { /* a list that runs later, an immediate list, a queue */
    void *tables;
    bool live, later, queue, in_order, synchronous;
    int card;
    unsigned recorded;
    struct uses record[RECORDED];
};
struct command {
    bool pending;
    struct runner *runner, *list;
    uint64_t number, execution;
    struct uses uses;
    struct event *fence;
};

static struct runner runners[RUNNERS];
static struct event events[EVENTS], fences[FENCES], pools[EVENTS];
static struct command commands[COMMANDS];
static uint64_t numbers, executions, chance, pace;

void ts_device_begin(uint64_t seed) {
    memset(runners, 0, sizeof runners);
    memset(events, 0, sizeof events);
    memset(fences, 0, sizeof fences);
    memset(commands, 0, sizeof commands);
    numbers = executions = 0;
    chance = ts_mix(seed + 41);
    pace = UINT64_C(4) << 2 * (chance % 4); /* steps of a command */
}

void ts_device_waits(void) {
    pace = 0;
}

static uint64_t draw(void) {
    chance = ts_mix(chance + ts_now());
    return chance >> 8;
}

/* --- what it does ------------------------------------------------------------------------------------------------- */

static void finish(struct command *c) {
    bool last = true;

    c->pending = false;
    if (c->uses.event)
        c->uses.event->signalled = true;
    for (int i = 0; i < COMMANDS; i++)
        last = last && !(commands[i].pending && commands[i].execution == c->execution);
    if (c->fence && last)
        c->fence->signalled = true;
}

static bool is_next(const struct command *c) {
    for (int i = 0; c->runner->in_order && i < COMMANDS; i++)
        if (commands[i].pending && commands[i].runner == c->runner && commands[i].number < c->number)
            return false;
    return true;
}

/* With all before it, if its runner executes in order. */
static void finish_up_to(const struct command *last) {
    for (int i = 0; i < COMMANDS; i++) {
        struct command *c = &commands[i];

        if (c->pending && c->runner == last->runner &&
            (c == last || (last->runner->in_order && c->number < last->number)))
            finish(c);
    }
}

static void finish_all(const struct runner *of, int card, uint64_t up_to) {
    for (int i = 0; i < COMMANDS; i++) {
        struct command *c = &commands[i];

        if (c->pending && c->number <= up_to && (!of || c->runner == of) && (card < 0 || c->runner->card == card))
            finish(c);
    }
}

void ts_device_finishes(void) {
    finish_all(NULL, -1, UINT64_MAX);
}

/* Now and then one more command is done. */
void ts_device_goes_on(void) {
    struct command *some = NULL;
    unsigned count = 0;

    if (!pace || draw() % pace)
        return;
    for (int i = 0; i < COMMANDS; i++)
        if (commands[i].pending && is_next(&commands[i]) && draw() % ++count == 0)
            some = &commands[i];
    if (some)
        finish(some);
}

static bool uses_block(const struct command *c, const struct ts_block *b) {
    for (unsigned i = 0; i < c->uses.count; i++)
        if (c->uses.at[i].base == b->base && c->uses.at[i].given == b->given)
            return true;
    return false;
}

bool ts_device_uses(const struct ts_block *b) {
    for (int i = 0; b && i < COMMANDS; i++)
        if (commands[i].pending && uses_block(&commands[i], b))
            return true;
    return false;
}

bool ts_device_uses_range(uintptr_t p, size_t size) {
    const struct ts_block *b = ts_block_around(p);

    for (int i = 0; b && i < COMMANDS; i++)
        for (unsigned k = 0; commands[i].pending && k < commands[i].uses.count; k++) {
            const struct use *u = &commands[i].uses.at[k];

            if (u->base == b->base && u->given == b->given && p < u->p + u->size && u->p < p + size)
                return true;
        }
    return false;
}

/* A free that waits for what uses the block, or one that does not. */
void ts_device_frees(const struct ts_block *b, unsigned policy) {
    for (int i = 0; i < COMMANDS; i++) {
        if (!commands[i].pending || !uses_block(&commands[i], b))
            continue;
        if (!(policy & (BLOCKING | DEFER)))
            ts_violation("%p was freed in the driver by a call that does not wait, while a command uses it",
                         (void *)b->base);
        finish_up_to(&commands[i]);
    }
}

static bool is_busy(const struct runner *r) {
    for (int i = 0; i < COMMANDS; i++)
        if (commands[i].pending && (commands[i].runner == r || commands[i].list == r))
            return true;
    return false;
}

bool ts_device_is_busy(const void *list_or_queue) {
    return is_busy(list_or_queue);
}

bool ts_device_signals(ze_event_handle_t event) {
    for (int i = 0; i < COMMANDS; i++)
        if (commands[i].pending && commands[i].uses.event == (struct event *)event)
            return true;
    return false;
}

bool ts_device_fences(ze_fence_handle_t fence) {
    for (int i = 0; i < COMMANDS; i++)
        if (commands[i].pending && commands[i].fence == (struct event *)fence)
            return true;
    return false;
}

/* --- what it is given --------------------------------------------------------------------------------------------- */

static void give(struct runner *r, struct runner *list, const struct uses *uses, struct event *fence) {
    struct command *c = NULL;

    for (int i = 0; i < COMMANDS && !c; i++)
        if (!commands[i].pending)
            c = &commands[i];
    if (!c)
        ts_violation("more than %d commands", COMMANDS);
    *c = (struct command){true, r, list, ++numbers, executions, *uses, fence};
    if (r->synchronous)
        finish_up_to(c);
}

static void add_use(struct uses *uses, const void *ptr, size_t size, const char *what) {
    const struct ts_block *b = ts_block_around((uintptr_t)ptr);

    if (!b || (uintptr_t)ptr + size > b->base + b->room)
        ts_violation("a command %s %zu bytes at %p, which is not allocated", what, size, ptr);
    uses->at[uses->count++] = (struct use){(uintptr_t)ptr, b->base, size, b->given};
}

static ze_result_t append(ze_command_list_handle_t handle, const struct uses *uses) {
    struct runner *r = (struct runner *)handle;

    if (!r || !r->live || r->queue)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!r->later) {
        executions++;
        give(r, NULL, uses, NULL);
    } else if (r->recorded < RECORDED) {
        r->record[r->recorded++] = *uses;
    } else {
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return ZE_RESULT_SUCCESS;
}

/* By check: what a command of the program uses is not to be touched. */
static void must_be_idle(const void *ptr) {
    if (ts_device_uses(ts_block_at((uintptr_t)ptr)))
        ts_violation("check fills %p, which a command of the program uses", ptr);
}

static ze_result_t fill(ze_command_list_handle_t list, void *ptr, const void *pattern, size_t pattern_size, size_t size,
                        ze_event_handle_t event) {
    struct uses uses = {.event = (struct event *)event};

    add_use(&uses, ptr, size, "fills");
    if (!ts_is_daemon())
        return append(list, &uses);
    must_be_idle(ptr);
    if (pattern_size == 1)
        memset(ptr, *(const unsigned char *)pattern, size);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t copy(ze_command_list_handle_t list, void *to, const void *from, size_t size,
                        ze_event_handle_t event) {
    struct uses uses = {.event = (struct event *)event};

    add_use(&uses, to, size, "writes");
    add_use(&uses, from, size, "reads");
    if (!ts_is_daemon())
        return append(list, &uses);
    memcpy(to, from, size);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t signal_by(ze_command_list_handle_t list, ze_event_handle_t event) {
    return append(list, &(struct uses){.event = (struct event *)event});
}

static ze_result_t execute(struct runner *queue, uint32_t count, ze_command_list_handle_t *lists,
                           ze_fence_handle_t fence) {
    executions++;
    for (uint32_t i = 0; i < count; i++) {
        struct runner *list = (struct runner *)lists[i];

        for (unsigned k = 0; k < list->recorded; k++)
            give(queue, list, &list->record[k], (struct event *)fence);
    }
    return ZE_RESULT_SUCCESS;
}

TS_DOOR(zeCommandListAppendMemoryFill,
        (ze_command_list_handle_t list, void *ptr, const void *pattern, size_t pattern_size, size_t size,
         ze_event_handle_t event, uint32_t count, ze_event_handle_t *waits),
        ptr,
        !list || count || waits ? ZE_RESULT_ERROR_INVALID_ARGUMENT
                                : fill(list, ptr, pattern, pattern_size, size, event))
TS_DOOR(zeCommandListAppendMemoryCopy,
        (ze_command_list_handle_t list, void *to, const void *from, size_t size, ze_event_handle_t event,
         uint32_t count, ze_event_handle_t *waits),
        from, !list || count || waits ? ZE_RESULT_ERROR_INVALID_ARGUMENT : copy(list, to, from, size, event))
TS_DOOR(zeCommandListAppendSignalEvent, (ze_command_list_handle_t list, ze_event_handle_t event), event,
        signal_by(list, event))
TS_DOOR(zeCommandQueueExecuteCommandLists,
        (ze_command_queue_handle_t queue, uint32_t count, ze_command_list_handle_t *lists, ze_fence_handle_t fence),
        queue, execute((struct runner *)queue, count, lists, fence))

/* --- waits -------------------------------------------------------------------------------------------------------- */

/* A wait that is given no time fails, and now and then another one. check's worker is spared. */
static bool gives_up(uint64_t timeout) {
    return pace && !ts_is_daemon() && (timeout == 0 || draw() % 8 == 0);
}

/* A wait for all that was given before it. */
static ze_result_t wait_for_all(const struct runner *r, int card, uint64_t timeout, const char *before,
                                const char *after) {
    uint64_t up_to = numbers; /* what comes while we are under way is not waited for */
    ze_result_t result = ZE_RESULT_SUCCESS;
    bool busy = false;

    ts_point(before, r);
    ts_shared->calls++;
    for (int i = 0; i < COMMANDS; i++)
        busy |= commands[i].pending && commands[i].number <= up_to && (!r || commands[i].runner == r) &&
                (card < 0 || commands[i].runner->card == card);
    if (busy && gives_up(timeout))
        result = ZE_RESULT_NOT_READY;
    else
        finish_all(r, card, up_to);
    ts_point(after, r);
    return result;
}

static ze_result_t wait_for_event(struct event *e, uint64_t timeout) {
    struct command *first = NULL;

    for (int i = 0; i < COMMANDS; i++)
        if (commands[i].pending && (commands[i].uses.event == e || commands[i].fence == e) &&
            (!first || commands[i].number < first->number))
            first = &commands[i];
    if (!e->signalled && (!first || gives_up(timeout)))
        return ZE_RESULT_NOT_READY;
    while (!e->signalled && first) {
        struct command *next = NULL;
        uint64_t execution = first->execution;

        finish_up_to(first);
        for (int i = 0; i < COMMANDS; i++)
            if (commands[i].pending && commands[i].fence == e && commands[i].execution == execution)
                next = &commands[i];
        first = next;
    }
    return e->signalled ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

static ze_result_t ask_event(const struct event *e) {
    return e->signalled ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

ze_result_t zeCommandListHostSynchronize(ze_command_list_handle_t list, uint64_t timeout);
ze_result_t zeCommandListHostSynchronize(ze_command_list_handle_t list, uint64_t timeout) {
    return wait_for_all((struct runner *)list, -1, timeout, "before zeCommandListHostSynchronize",
                        "after zeCommandListHostSynchronize");
}

ze_result_t zeCommandQueueSynchronize(ze_command_queue_handle_t queue, uint64_t timeout) {
    return wait_for_all((struct runner *)queue, -1, timeout, "before zeCommandQueueSynchronize",
                        "after zeCommandQueueSynchronize");
}

ze_result_t zeDeviceSynchronize(ze_device_handle_t device);
ze_result_t zeDeviceSynchronize(ze_device_handle_t device) {
    return wait_for_all(NULL, ts_card_number(device), UINT64_MAX, "before zeDeviceSynchronize",
                        "after zeDeviceSynchronize");
}

TS_DOOR(zeEventHostSynchronize, (ze_event_handle_t event, uint64_t timeout), event,
        wait_for_event((struct event *)event, timeout))
TS_DOOR(zeEventQueryStatus, (ze_event_handle_t event), event, ask_event((struct event *)event))
TS_DOOR(zeFenceHostSynchronize, (ze_fence_handle_t fence, uint64_t timeout), fence,
        wait_for_event((struct event *)fence, timeout))
TS_DOOR(zeFenceQueryStatus, (ze_fence_handle_t fence), fence, ask_event((struct event *)fence))

/* --- lists, queues, events and fences ----------------------------------------------------------------------------- */

static ze_result_t new_runner(const struct runner *as, void *out) {
    for (int i = 0; i < RUNNERS; i++)
        if (!runners[i].live) {
            runners[i] = *as;
            runners[i].live = true;
            ts_driver.lists++;
            *(struct runner **)out = &runners[i];
            return ZE_RESULT_SUCCESS;
        }
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static ze_result_t end_runner(void *handle) {
    struct runner *r = handle;

    if (!r->live)
        ts_violation("the driver is asked to destroy a command list or queue twice");
    if (is_busy(r))
        ts_violation("the program destroys a command list or queue that is busy");
    r->live = false;
    ts_driver.lists--;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t new_event(struct event *table, int count, bool signalled, void *out) {
    for (int i = 0; i < count; i++)
        if (!table[i].live) {
            table[i] = (struct event){.live = true, .signalled = signalled};
            *(struct event **)out = &table[i];
            return ZE_RESULT_SUCCESS;
        }
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static ze_result_t end_event(void *handle) {
    ((struct event *)handle)->live = false;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t set_event(void *handle, bool signalled) {
    ((struct event *)handle)->signalled = signalled;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t reset_list(struct runner *r) {
    if (is_busy(r))
        ts_violation("the program resets a command list that is busy");
    r->recorded = 0;
    return ZE_RESULT_SUCCESS;
}

TS_DOOR(zeCommandListCreateImmediate,
        (ze_context_handle_t context, ze_device_handle_t device, const ze_command_queue_desc_t *desc,
         ze_command_list_handle_t *out),
        device,
        !context || !desc ? ZE_RESULT_ERROR_INVALID_NULL_HANDLE
                          : new_runner(&(struct runner){.in_order = desc->flags & QUEUE_IN_ORDER,
                                                        .synchronous = desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
                                                        .card = ts_card_number(device)},
                                       out))
TS_DOOR(zeCommandListCreate,
        (ze_context_handle_t context, ze_device_handle_t device, const ze_command_list_desc_t *desc,
         ze_command_list_handle_t *out),
        device,
        !context || !desc ? ZE_RESULT_ERROR_INVALID_NULL_HANDLE
                          : new_runner(&(struct runner){.later = true, .in_order = desc->flags & LIST_IN_ORDER}, out))
TS_DOOR(zeCommandQueueCreate,
        (ze_context_handle_t context, ze_device_handle_t device, const ze_command_queue_desc_t *desc,
         ze_command_queue_handle_t *out),
        device,
        !context || !desc ? ZE_RESULT_ERROR_INVALID_NULL_HANDLE
                          : new_runner(&(struct runner){.queue = true,
                                                        .synchronous = desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
                                                        .card = ts_card_number(device)},
                                       out))
TS_DOOR(zeCommandListDestroy, (ze_command_list_handle_t list), list, end_runner(list))
TS_DOOR(zeCommandQueueDestroy, (ze_command_queue_handle_t queue), queue, end_runner(queue))
TS_DOOR(zeCommandListClose, (ze_command_list_handle_t list), list, ZE_RESULT_SUCCESS)
TS_DOOR(zeCommandListReset, (ze_command_list_handle_t list), list, reset_list((struct runner *)list))
TS_DOOR(zeEventPoolCreate,
        (ze_context_handle_t context, const ze_event_pool_desc_t *desc, uint32_t count, ze_device_handle_t *devices,
         ze_event_pool_handle_t *out),
        devices,
        !context || !desc || count ? ZE_RESULT_ERROR_INVALID_NULL_HANDLE : new_event(pools, EVENTS, false, out))
TS_DOOR(zeEventPoolDestroy, (ze_event_pool_handle_t pool), pool, end_event(pool))
TS_DOOR(zeEventCreate, (ze_event_pool_handle_t pool, const ze_event_desc_t *desc, ze_event_handle_t *out), pool,
        !desc ? ZE_RESULT_ERROR_INVALID_NULL_POINTER : new_event(events, EVENTS, false, out))
TS_DOOR(zeEventDestroy, (ze_event_handle_t event), event, end_event(event))
TS_DOOR(zeEventHostSignal, (ze_event_handle_t event), event, set_event(event, true))
TS_DOOR(zeEventHostReset, (ze_event_handle_t event), event, set_event(event, false))
TS_DOOR(zeFenceCreate, (ze_command_queue_handle_t queue, const ze_fence_desc_t *desc, ze_fence_handle_t *out), queue,
        !desc ? ZE_RESULT_ERROR_INVALID_NULL_POINTER
              : new_event(fences, FENCES, desc->flags &ZE_FENCE_FLAG_SIGNALED, out))
TS_DOOR(zeFenceDestroy, (ze_fence_handle_t fence), fence, end_event(fence))
TS_DOOR(zeFenceReset, (ze_fence_handle_t fence), fence, set_event(fence, false))
