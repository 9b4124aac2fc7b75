/*
 * Work on memory for check, by the worker alone: fill, look, wait for rest.
 *
 * Host memory is written and read by the processor. Device memory, and shared memory, which drivers move when the
 * processor touches it, is by a command list and a queue of our own per context and device, with a host buffer to read
 * through. They are made of functions that every loader has, found below the hook that the block came through, so that
 * handles are of the kind that these expect. The copy engine is used where there is one, so that a list of a program
 * that waits does not hold up ours. It fills with patterns of one byte.
 */
#include "check/check.h"

#include <string.h>

enum {
    PATTERN = 0xff, /* NaN in fp32, fp16 and bf16, -1 in integers */
    ENGINES = 32,
    BUFFER = 1 << 20,
    GROUPS = 16,
    TABLE_SYNCHRONIZE = 22, /* zeDeviceSynchronize in its table, from API 1.14 on */
    TABLE_SLOTS = 128
};

static struct engine {
    ze_context_handle_t context; /* atomic; NULL: free */
    ze_device_handle_t device;
    uint32_t hook;
    bool broken;
    ze_command_queue_handle_t queue;
    ze_command_list_handle_t list;
    unsigned char *buffer;
    ze_result_t (*fill)(ze_command_list_handle_t, void *, const void *, size_t, size_t, ze_event_handle_t, uint32_t,
                        ze_event_handle_t *);
    ze_result_t (*copy)(ze_command_list_handle_t, void *, const void *, size_t, ze_event_handle_t, uint32_t,
                        ze_event_handle_t *);
    ze_result_t (*close)(ze_command_list_handle_t);
    ze_result_t (*reset)(ze_command_list_handle_t);
    ze_result_t (*execute)(ze_command_queue_handle_t, uint32_t, ze_command_list_handle_t *, ze_fence_handle_t);
    ze_result_t (*wait)(ze_command_queue_handle_t, uint64_t);
    ze_result_t (*destroy_list)(ze_command_list_handle_t);
    ze_result_t (*destroy_queue)(ze_command_queue_handle_t);
} engines[ENGINES];

/* --- engines ------------------------------------------------------------------------------------------------------ */

#define FIND(e, member, name) (((e)->member = (__typeof__((e)->member))zr_function_below((e)->hook, name)) != NULL)

/* The group that copies and does not compute, else the first one. */
static uint32_t copy_group(const struct engine *e) {
    ze_command_queue_group_properties_t p[GROUPS];
    ze_result_t (*get)(ze_device_handle_t, uint32_t *, ze_command_queue_group_properties_t *) =
        (__typeof__(get))zr_function_below(e->hook, "zeDeviceGetCommandQueueGroupProperties");
    uint32_t count = GROUPS;

    memset(p, 0, sizeof p);
    for (unsigned i = 0; i < GROUPS; i++)
        p[i].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
    if (!get || get(e->device, &count, p) != ZE_RESULT_SUCCESS)
        return 0;
    for (uint32_t i = 0; i < count && i < GROUPS; i++)
        if (p[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY &&
            !(p[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE) && p[i].numQueues)
            return i;
    return 0;
}

static bool make(struct engine *e) {
    struct zr_call call = {.hook = e->hook};
    uint32_t group = copy_group(e);
    ze_command_queue_desc_t queue = {
        .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, .ordinal = group, .mode = ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS};
    ze_command_list_desc_t list = {.stype = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, .commandQueueGroupOrdinal = group};
    ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    ze_result_t (*make_queue)(ze_context_handle_t, ze_device_handle_t, const ze_command_queue_desc_t *,
                              ze_command_queue_handle_t *) =
        (__typeof__(make_queue))zr_function_below(e->hook, "zeCommandQueueCreate");
    ze_result_t (*make_list)(ze_context_handle_t, ze_device_handle_t, const ze_command_list_desc_t *,
                             ze_command_list_handle_t *) =
        (__typeof__(make_list))zr_function_below(e->hook, "zeCommandListCreate");
    void *buffer = NULL;

    if (!make_queue || !make_list || !FIND(e, fill, "zeCommandListAppendMemoryFill") ||
        !FIND(e, copy, "zeCommandListAppendMemoryCopy") || !FIND(e, close, "zeCommandListClose") ||
        !FIND(e, reset, "zeCommandListReset") || !FIND(e, execute, "zeCommandQueueExecuteCommandLists") ||
        !FIND(e, wait, "zeCommandQueueSynchronize") || !FIND(e, destroy_list, "zeCommandListDestroy") ||
        !FIND(e, destroy_queue, "zeCommandQueueDestroy"))
        return false;
    if (make_queue(e->context, e->device, &queue, &e->queue) != ZE_RESULT_SUCCESS ||
        make_list(e->context, e->device, &list, &e->list) != ZE_RESULT_SUCCESS ||
        ZR_BELOW(&call, zeMemAllocHost)(e->context, &host, BUFFER, 64, &buffer) != ZE_RESULT_SUCCESS)
        return false;
    e->buffer = buffer;
    return true;
}

static ze_context_handle_t context_of(const struct engine *e) {
    return __atomic_load_n(&e->context, __ATOMIC_ACQUIRE);
}

void zr_poison_abandon(const void *context) {
    for (unsigned i = 0; i < ENGINES; i++)
        if ((const void *)context_of(&engines[i]) == context)
            __atomic_store_n(&engines[i].context, NULL, __ATOMIC_RELEASE);
}

/* NULL: the driver does not play along, or there are too many. */
static struct engine *engine_of(const struct zr_checked *c) {
    struct engine *empty = NULL;

    for (unsigned i = 0; i < ENGINES; i++) {
        struct engine *e = &engines[i];

        if (context_of(e) == c->context && e->device == c->device && e->hook == c->hook)
            return e->broken ? NULL : e;
        if (!context_of(e) && !empty)
            empty = e;
    }
    if (!empty)
        return NULL;
    *empty = (struct engine){.device = c->device, .hook = c->hook};
    __atomic_store_n(&empty->context, c->context, __ATOMIC_RELEASE);
    empty->broken = !make(empty);
    return empty->broken ? NULL : empty;
}

void zr_poison_drop(const void *context) {
    for (unsigned i = 0; i < ENGINES; i++) {
        struct engine *e = &engines[i];
        struct zr_call call = {.hook = e->hook};

        if (!context_of(e) || (context && (const void *)context_of(e) != context))
            continue;
        if (e->list)
            e->destroy_list(e->list);
        if (e->queue)
            e->destroy_queue(e->queue);
        if (e->buffer)
            ZR_BELOW(&call, zeMemFree)(e->context, e->buffer);
        *e = (struct engine){0};
    }
}

void zr_poison_fork_child(void) {
    memset(engines, 0, sizeof engines);
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

/* A command on the block may be appended; false: the program's free came first. */
static bool may_submit(struct zr_checked *c) {
    uint32_t begins = ZR_USE_BEGINS;

    return __atomic_compare_exchange_n(&c->use, &begins, ZR_USE_SUBMITTING, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE) ||
           begins != ZR_USE_CANCELLED;
}

/* What was appended is carried out. From ZR_USE_SUBMITTED on the driver knows that a command uses the block. */
static bool carry_out(struct engine *e, struct zr_checked *c, ze_result_t appended) {
    bool good = appended == ZE_RESULT_SUCCESS && e->close(e->list) == ZE_RESULT_SUCCESS &&
                e->execute(e->queue, 1, &e->list, NULL) == ZE_RESULT_SUCCESS;

    __atomic_store_n(&c->use, ZR_USE_SUBMITTED, __ATOMIC_RELEASE);
    good = good && e->wait(e->queue, UINT64_MAX) == ZE_RESULT_SUCCESS;
    if (e->reset(e->list) != ZE_RESULT_SUCCESS || (!good && appended == ZE_RESULT_SUCCESS))
        e->broken = true;
    return good;
}

bool zr_poison_fill(struct zr_checked *c, size_t from, size_t length) {
    static const unsigned char pattern = PATTERN;
    void *at = (void *)(c->base + from);
    struct engine *e;

    if (!c->device) {
        bool good = may_submit(c);

        if (good)
            memset(at, PATTERN, length);
        return good;
    }
    e = zr_worker_halts() ? NULL : engine_of(c);
    return e && may_submit(c) && carry_out(e, c, e->fill(e->list, at, &pattern, 1, length, NULL, 0, NULL));
}

static void compare(const unsigned char *bytes, size_t length, size_t offset, size_t *first, size_t *last) {
    static const uint64_t full = UINT64_MAX;
    size_t i = 0;

    while (i < length) {
        if (length - i >= 8 && memcmp(bytes + i, &full, 8) == 0) {
            i += 8;
            continue;
        }
        if (bytes[i] != PATTERN) {
            if (*first > *last)
                *first = offset + i;
            *last = offset + i;
        }
        i++;
    }
}

bool zr_poison_look(struct zr_checked *c, size_t from, size_t length, size_t *first, size_t *last) {
    struct engine *e;

    *first = 1;
    *last = 0;
    if (!c->device && !may_submit(c))
        return false;
    if (!c->device) {
        compare((const unsigned char *)c->base + from, length, from, first, last);
        return true;
    }
    e = zr_worker_halts() ? NULL : engine_of(c);
    for (size_t at = from, end = from + length; e && at < end; at += BUFFER) {
        size_t n = end - at < BUFFER ? end - at : BUFFER;

        if (zr_worker_hurries() || !may_submit(c) ||
            !carry_out(e, c, e->copy(e->list, e->buffer, (const void *)(c->base + at), n, NULL, 0, NULL)))
            return false;
        compare(e->buffer, n, at, first, last);
    }
    return e != NULL;
}

/* --- rest --------------------------------------------------------------------------------------------------------- */

typedef ze_result_t (*synchronize)(ze_device_handle_t);

/*
 * A loader before 1.19 or so lacks the function. With one driver in the process the loader's handles are the driver's,
 * and the driver's own table has it.
 */
static synchronize from_table(void) {
    typedef ze_result_t (*getter)(uint32_t version, void **table);
    void *table[TABLE_SLOTS] = {0};
    getter get = NULL;
    unsigned drivers = 0;

    for (unsigned n = 0; n < ZR_LOADED; n++)
        if (__atomic_load_n(&zr_loaded[n].base, __ATOMIC_ACQUIRE) && zr_loaded[n].kind == ZR_LOADED_DRIVER) {
            drivers++;
            get = (getter)__atomic_load_n(&zr_loaded[n].getter[ZR_TABLE_Device], __ATOMIC_ACQUIRE);
        }
    if (drivers != 1 || !get || get(1 << 16 | 14, table) != ZE_RESULT_SUCCESS)
        return NULL;
    return (synchronize)ZR_FUNCTION(table[TABLE_SYNCHRONIZE]);
}

bool zr_poison_rest(void) {
    for (unsigned number = 0; number < ZR_DEVICES; number++) {
        uint32_t hook = 0;
        ze_device_handle_t device = zr_device_handle(number, &hook);
        synchronize wait = device ? (synchronize)zr_function_below(hook, "zeDeviceSynchronize") : NULL;

        if (device && !wait)
            wait = from_table();
        if (device && (!wait || wait(device) != ZE_RESULT_SUCCESS))
            return false;
    }
    return true;
}
