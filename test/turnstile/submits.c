/*
 * What the threads of a program give the device to do, and how they wait for it. A block is used by commands between
 * its allocation and its free, but may be freed while they are pending by a free that waits; that is do_free()'s part.
 */
#include "program.h"

enum { SLOTS = 5, QUEUES_FROM = 3, EVENTS = 3, LISTS = 3, APPENDED = 3 };

static struct slot { /* an immediate list; from QUEUES_FROM on a queue with lists and a fence of its own */
    void *handle;
    ze_command_list_handle_t lists[LISTS];
    ze_fence_handle_t fence;
    int context, card;
    bool there, busy; /* busy: a thread appends to it, makes it or ends it */
    unsigned waits;
} slots[SLOTS];
static ze_event_pool_handle_t pool;
static int pool_context;
static bool pool_busy;
static ze_event_handle_t events[EVENTS];
static bool event_there[EVENTS], event_busy[EVENTS];
static unsigned event_waits[EVENTS];

void submits_begin(void) {
    for (int i = 0; i < SLOTS; i++)
        slots[i] = (struct slot){.handle = NULL};
    for (int i = 0; i < EVENTS; i++)
        event_there[i] = event_busy[i] = false;
    for (int i = 0; i < EVENTS; i++)
        event_waits[i] = 0;
    pool = NULL;
    pool_busy = false;
}

/* --- lists, queues, events ---------------------------------------------------------------------------------------- */

static bool make_immediate(struct actor *a, struct slot *s) {
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .flags = draw(a) % 2 ? 1 << 1 : 0,
                                    .mode = draw(a) % 8 ? ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS
                                                        : ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    ze_command_list_handle_t list = NULL;

    if (zeCommandListCreateImmediate(program_context(s->context), ts_device(s->card), &desc, &list))
        return false;
    s->handle = list;
    return true;
}

static bool make_queue(struct actor *a, struct slot *s) {
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .mode = draw(a) % 8 ? ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS
                                                        : ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    ze_command_list_desc_t list = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, .flags = draw(a) % 2 ? 1 << 3 : 0};
    ze_fence_desc_t fence = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC};
    ze_command_queue_handle_t queue = NULL;

    if (zeCommandQueueCreate(program_context(s->context), ts_device(s->card), &desc, &queue))
        return false;
    s->handle = queue;
    for (int i = 0; i < LISTS; i++)
        if (zeCommandListCreate(program_context(s->context), ts_device(s->card), &list, &s->lists[i]))
            ts_violation("a command list was not created");
    if (zeFenceCreate(queue, &fence, &s->fence))
        ts_violation("a fence was not created");
    return true;
}

static bool is_queue(const struct slot *s) {
    return s - slots >= QUEUES_FROM;
}

/* The slot is the caller's until leave_slot(); NULL if another thread has it. */
static struct slot *enter_slot(struct actor *a, struct slot *s) {
    if (s->busy)
        return NULL;
    s->busy = true;
    if (s->there)
        return s;
    s->context = enter_context(a);
    s->card = draw(a) % 4 == 0;
    if (s->context >= 0) {
        s->there = is_queue(s) ? make_queue(a, s) : make_immediate(a, s);
        if (s->there)
            return s;
        leave_context(s->context);
    }
    s->busy = false;
    return NULL;
}

static void leave_slot(struct slot *s) {
    s->busy = false;
}

static void end_slot(struct slot *s) {
    void *handle = s->handle;

    s->there = false;
    if (is_queue(s)) {
        zeFenceDestroy(s->fence);
        for (int i = 0; i < LISTS; i++)
            zeCommandListDestroy(s->lists[i]);
        zeCommandQueueDestroy(handle);
    } else {
        zeCommandListDestroy(handle);
    }
    leave_context(s->context);
}

static void make_pool(struct actor *a) {
    ze_event_pool_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .count = EVENTS};

    if (pool || pool_busy)
        return;
    pool_context = enter_context(a);
    if (pool_context < 0)
        return;
    pool_busy = true;
    if (zeEventPoolCreate(program_context(pool_context), &desc, 0, NULL, &pool))
        ts_violation("an event pool was not created");
    pool_busy = false;
}

/* An event for one call; -1 if another thread has it. Signals of it may be pending, or long done. */
static int enter_event(struct actor *a, int i) {
    ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};

    if (event_busy[i])
        return -1;
    event_busy[i] = true;
    make_pool(a);
    if (!event_there[i] && pool && !pool_busy)
        event_there[i] = zeEventCreate(pool, &desc, &events[i]) == ZE_RESULT_SUCCESS;
    if (event_there[i])
        return i;
    event_busy[i] = false;
    return -1;
}

static void leave_event(int i) {
    if (i >= 0)
        event_busy[i] = false;
}

/* --- submissions -------------------------------------------------------------------------------------------------- */

static int usable_context; /* of the slot in question */

static bool is_usable(const struct owner *o) {
    return owner_is_held(o) && o->kind != TS_HOST && o->context == usable_context;
}

static int some_block(struct actor *a, const struct slot *s) {
    usable_context = s->context;
    return some_owner(a, is_usable);
}

static void append(struct actor *a, ze_command_list_handle_t list, const struct owner *o, ze_event_handle_t event) {
    if (!o) {
        if (event)
            zeCommandListAppendSignalEvent(list, event);
        return;
    }
    ts_operation(a->index, "submit a command that uses %p%s", (void *)o->p, event ? " and signals an event" : "");
    if (zeCommandListAppendMemoryFill(list, (void *)o->p, "", 1, o->size, event, 0, NULL))
        ts_violation("a command was refused");
}

/* Returns the owner whose block it uses, which may not be freed until the caller says so. */
static int append_some(struct actor *a, struct slot *s, ze_command_list_handle_t list, ze_event_handle_t event) {
    int i = some_block(a, s);

    if (i != NO_OWNER)
        owners[i].submitting++;
    append(a, list, i == NO_OWNER ? NULL : &owners[i], event);
    return i;
}

void op_submit(struct actor *a) {
    struct slot *s = enter_slot(a, &slots[draw(a) % QUEUES_FROM]);
    int e, i;

    if (!s)
        return;
    e = draw(a) % 2 ? enter_event(a, (int)(draw(a) % EVENTS)) : -1;
    ts_operation(a->index, "submit to a list");
    i = append_some(a, s, s->handle, e < 0 ? NULL : events[e]);
    if (i != NO_OWNER)
        owners[i].submitting--;
    leave_event(e);
    leave_slot(s);
}

static ze_command_list_handle_t idle_list(const struct slot *s) {
    for (int i = 0; i < LISTS; i++)
        if (!ts_device_is_busy(s->lists[i]))
            return s->lists[i];
    return NULL;
}

/* A list of commands, executed once or twice. What it names may not be freed before. `o` is used, or some (NULL). */
static void execute(struct actor *a, struct slot *s, struct owner *o, ze_event_handle_t event) {
    int used[APPENDED], count = o ? 1 : 1 + (int)(draw(a) % APPENDED), times = draw(a) % 4 ? 1 : 2;
    ze_fence_handle_t fence = draw(a) % 2 ? s->fence : NULL;
    ze_command_list_handle_t list = idle_list(s);

    if (!list)
        return;
    if (o)
        o->submitting++;
    ts_operation(a->index, "execute a list");
    zeCommandListReset(list);
    if (o)
        append(a, list, o, event);
    for (int k = 0; k < count && !o; k++)
        used[k] = append_some(a, s, list, k == 0 ? event : NULL);
    zeCommandListClose(list);
    ts_operation(a->index, "execute a list");
    if (fence && draw(a) % 4 && !ts_device_fences(fence))
        zeFenceReset(fence);
    while (times-- && !zeCommandQueueExecuteCommandLists(s->handle, 1, &list, fence))
        fence = NULL;
    if (o)
        o->submitting--;
    for (int k = 0; k < count && !o; k++)
        if (used[k] != NO_OWNER)
            owners[used[k]].submitting--;
}

void op_execute(struct actor *a) {
    struct slot *s = enter_slot(a, &slots[QUEUES_FROM + draw(a) % (SLOTS - QUEUES_FROM)]);
    int e;

    if (!s)
        return;
    e = draw(a) % 4 ? -1 : enter_event(a, (int)(draw(a) % EVENTS));
    execute(a, s, NULL, e < 0 ? NULL : events[e]);
    leave_event(e);
    leave_slot(s);
}

/* --- waits -------------------------------------------------------------------------------------------------------- */

static uint64_t some_timeout(struct actor *a) {
    return draw(a) % 3 ? UINT64_MAX : 0;
}

static void wait_for(struct actor *a, struct slot *s) {
    uint64_t timeout = some_timeout(a);

    if (!s->there || s->busy)
        return;
    ts_operation(a->index, "wait for a %s", is_queue(s) ? "queue" : "list");
    if (!is_queue(s)) {
        s->waits++; /* others may append to it meanwhile */
        zeCommandListHostSynchronize(s->handle, timeout);
        s->waits--;
        return;
    }
    s->busy = true; /* the fence may not be reset meanwhile */
    if (draw(a) % 3 == 0)
        zeCommandQueueSynchronize(s->handle, timeout);
    else if (draw(a) % 2)
        zeFenceHostSynchronize(s->fence, timeout);
    else
        zeFenceQueryStatus(s->fence);
    leave_slot(s);
}

void op_wait(struct actor *a) {
    wait_for(a, &slots[draw(a) % SLOTS]);
}

void op_wait_device(struct actor *a) {
    int card = draw(a) % 2;

    ts_operation(a->index, "wait for card %d", card);
    zeDeviceSynchronize(ts_device(card));
}

/* Waits, asks, resets, signals, ends. While others submit. */
static void use_event(struct actor *a, int i, unsigned what) {
    if (!event_there[i] || (event_busy[i] && what >= 5))
        return;
    ts_operation(a->index, "an event (%u)", what);
    if (what < 5) {
        event_waits[i]++;
        if (what < 3)
            zeEventHostSynchronize(events[i], some_timeout(a));
        else
            zeEventQueryStatus(events[i]);
        event_waits[i]--;
    } else {
        event_busy[i] = true;
        if (what == 5) {
            zeEventHostReset(events[i]);
        } else if (what == 6) {
            zeEventHostSignal(events[i]);
        } else if (!event_waits[i] && !ts_device_signals(events[i])) {
            event_there[i] = false;
            zeEventDestroy(events[i]);
        }
        leave_event(i);
    }
}

void op_event(struct actor *a) {
    use_event(a, (int)(draw(a) % EVENTS), draw(a) % 8);
}

/* --- all together ------------------------------------------------------------------------------------------------- */

/* By a command, with this event or without one; then a wait, or something happens to the event. */
static void use_once(struct actor *a, struct slot *s, int i, int event) {
    static const unsigned whats[] = {0, 1, 3, 5, 5, 6};
    int e = draw(a) % 3 ? enter_event(a, event) : -1;
    bool entered = !s->busy && enter_slot(a, s);

    if (entered && owner_is_held(&owners[i]) && s->context == owners[i].context && is_queue(s)) {
        execute(a, s, &owners[i], e < 0 ? NULL : events[e]);
    } else if (entered && owner_is_held(&owners[i]) && s->context == owners[i].context) {
        owners[i].submitting++;
        append(a, s->handle, &owners[i], e < 0 ? NULL : events[e]);
        owners[i].submitting--;
    }
    if (entered)
        leave_slot(s);
    leave_event(e);
    if (draw(a) % 3 == 0)
        wait_for(a, s);
    else if (draw(a) % 4)
        use_event(a, event, whats[draw(a) % 6]);
}

/* A block is used, perhaps waited for, freed, and its size asked for again. */
void op_work(struct actor *a) {
    struct slot *s = &slots[draw(a) % SLOTS];
    unsigned times = 1 + draw(a) % 4;
    int event = (int)(draw(a) % EVENTS);
    size_t size = some_size(a);
    int c, card, i;

    if (!enter_slot(a, s))
        return;
    leave_slot(s);
    c = s->context;
    card = s->card;
    context_uses[c]++;
    ts_operation(a->index, "allocate %zu bytes for work", size);
    i = do_alloc(TS_DEVICE, c, card, size, 0);
    while (i != NO_OWNER && times--)
        use_once(a, s, i, event);
    if (i != NO_OWNER && owner_is_held(&owners[i]) && !owners[i].submitting) {
        ts_operation(a->index, "free %p after work", (void *)owners[i].p);
        do_free((const void *)owners[i].p, c, draw(a) % 2 ? 1 : 2);
        ts_operation(a->index, "allocate %zu bytes after work", size);
        do_alloc(TS_DEVICE, c, card, size, 0);
    }
    leave_context(c);
}

/* A list or a queue goes once it is idle. */
void op_slot_end(struct actor *a) {
    struct slot *s = &slots[draw(a) % SLOTS];

    if (!s->there || s->busy || s->waits)
        return;
    s->busy = true;
    ts_operation(a->index, "end a %s", is_queue(s) ? "queue" : "list");
    if (!ts_device_is_busy(s->handle)) /* nor are its lists */
        end_slot(s);
    leave_slot(s);
}

void submits_end(void) {
    struct actor a = {.random = program_seed};

    for (int i = 0; i < SLOTS; i++) {
        struct slot *s = &slots[i];

        if (!s->there)
            continue;
        ts_operation(MOST_OPERATIONS, "the last wait");
        if (draw(&a) % 2 && is_queue(s))
            zeCommandQueueSynchronize(s->handle, UINT64_MAX);
        else if (draw(&a) % 2)
            zeCommandListHostSynchronize(s->handle, UINT64_MAX);
    }
    ts_device_finishes();
    for (int i = 0; i < SLOTS; i++)
        if (slots[i].there)
            end_slot(&slots[i]);
    for (int i = 0; i < EVENTS; i++)
        if (event_there[i])
            zeEventDestroy(events[i]);
    if (!pool)
        return;
    zeEventPoolDestroy(pool);
    leave_context(pool_context);
}
