/*
 * Work on memory for check, by the worker alone: fill, look, wait for rest. Host memory is written
 * and read by the processor. Device memory, and shared memory, which drivers migrate when the
 * processor touches it, goes through an immediate command list of our own per context and device,
 * with a host buffer to read through. They use only functions that every loader has, found below
 * the hook that the block came through, so that the handles fit. The copy engine is used where
 * there is one, so that kernels of the program do not hold up ours; it fills with one-byte patterns
 * only.
 */
#include "check/check.h"

#include <string.h>

enum {
    ENGINES = 32,
    BUFFER = 1 << 20,
    GROUPS = 16,
    PATTERN = 0xff /* NaN in fp32, fp16 and bf16, -1 in integers */
};

/* In the table under zr_check_lock. Only the worker adds and uses them. */
static struct engine {
    ze_context_handle_t context; /* NULL: the place is free */
    ze_device_handle_t device;
    uint32_t hook;
    ze_command_list_handle_t list; /* synchronous; NULL: it does not work */
    void *buffer;
    __typeof__(&zeCommandListAppendMemoryFill) fill;
    __typeof__(&zeCommandListAppendMemoryCopy) copy;
    __typeof__(&zeCommandListDestroy) destroy;
} engines[ENGINES];

#define FIND(hook, name) ((__typeof__(&(name)))zr_function_below((hook), NULL, #name))

/* The group that copies and does not compute, else the first one. */
static uint32_t copy_group(const struct engine *e) {
    __typeof__(&zeDeviceGetCommandQueueGroupProperties) get =
        FIND(e->hook, zeDeviceGetCommandQueueGroupProperties);
    ze_command_queue_group_properties_t p[GROUPS] = {0};
    uint32_t count = GROUPS;

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

/* Leaves it without a list if the driver refuses. */
static void engine_make(struct engine *e) {
    __typeof__(&zeCommandListCreateImmediate) make_list =
        FIND(e->hook, zeCommandListCreateImmediate);
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .ordinal = copy_group(e),
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    ze_host_mem_alloc_desc_t host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    struct zr_op op = {.hook = e->hook};

    e->fill = FIND(e->hook, zeCommandListAppendMemoryFill);
    e->copy = FIND(e->hook, zeCommandListAppendMemoryCopy);
    e->destroy = FIND(e->hook, zeCommandListDestroy);
    if (!make_list || !e->fill || !e->copy || !e->destroy ||
        ZR_BELOW(&op, zeMemAllocHost)(e->context, &host, BUFFER, 64, &e->buffer) !=
            ZE_RESULT_SUCCESS ||
        make_list(e->context, e->device, &queue, &e->list) != ZE_RESULT_SUCCESS)
        e->list = NULL;
}

/* NULL if the driver refuses, there are too many, or the process ends. */
static struct engine *engine_of(const struct zr_checked *c) {
    struct engine *e = NULL, *empty = NULL;

    zr_lock(&zr_check_lock);
    for (unsigned i = 0; i < ENGINES && !e; i++)
        if (engines[i].context == c->context && engines[i].device == c->device &&
            engines[i].hook == c->hook)
            e = &engines[i];
        else if (!engines[i].context)
            empty = &engines[i];
    if (!e && empty)
        *empty = (struct engine){.context = c->context, .device = c->device, .hook = c->hook};
    zr_unlock(&zr_check_lock);
    if (!e && empty) {
        e = empty;
        engine_make(e);
    }
    return e && e->list && !zr_worker_halts() ? e : NULL;
}

bool zr_check_owns(const void *ptr) {
    bool owns = false;

    zr_lock(&zr_check_lock);
    for (unsigned i = 0; i < ENGINES && !owns; i++)
        owns = engines[i].context && (uintptr_t)ptr - (uintptr_t)engines[i].buffer < BUFFER;
    zr_unlock(&zr_check_lock);
    return owns;
}

void zr_poison_drop(const void *context, bool held_up) {
    ZR_OWN_OP(own, 0); /* hooks further down pass on what we call */

    for (unsigned i = 0; i < ENGINES; i++) {
        struct engine e = {.context = NULL};

        zr_lock(&zr_check_lock);
        if (!context || (const void *)engines[i].context == context) {
            e = engines[i];
            engines[i].context = NULL;
        }
        zr_unlock(&zr_check_lock);
        if (!e.context || held_up)
            continue;
        if (e.list)
            e.destroy(e.list);
        if (e.buffer)
            ((zr_fn_zeMemFree)zr_below(e.hook, ZR_E_zeMemFree, NULL))(e.context, e.buffer);
    }
}

bool zr_poison_fill(const struct zr_checked *c, size_t from, size_t to) {
    static const unsigned char pattern = PATTERN;
    struct engine *e = c->device ? engine_of(c) : NULL;
    void *at = e && from == to ? e->buffer : (void *)(c->base + from);
    size_t size = e && from == to ? 1 : to - from;

    if (!c->device)
        memset(at, PATTERN, size);
    return !c->device ||
           (e && e->fill(e->list, at, &pattern, 1, size, NULL, 0, NULL) == ZE_RESULT_SUCCESS);
}

/*
 * Copies a part of a block into the engine's buffer. False as well if its context has gone
 * meanwhile, and the buffer.
 */
static bool fetch_part(struct engine *e, const struct zr_checked *c, size_t from, size_t bytes) {
    if (zr_worker_halts())
        return false;
    if (e->copy(e->list, e->buffer, (void *)(c->base + from), bytes, NULL, 0, NULL) !=
        ZE_RESULT_SUCCESS)
        return false;
    return __atomic_load_n(&c->block, __ATOMIC_RELAXED) != NULL;
}

bool zr_poison_look(const struct zr_checked *c, size_t from, size_t to, size_t *first,
                    size_t *last) {
    struct engine *e = c->device ? engine_of(c) : NULL;
    const unsigned char *bytes = e ? e->buffer : (const unsigned char *)c->base + from;

    *first = 1;
    *last = 0;
    if (c->device && !e)
        return false;
    for (size_t n; from < to; from += n) {
        n = e && to - from > BUFFER ? BUFFER : to - from;
        if (e && !fetch_part(e, c, from, n))
            return false;
        if (bytes[0] == PATTERN && memcmp(bytes, bytes + 1, n - 1) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            if (bytes[i] != PATTERN) {
                *first = *first > *last ? from + i : *first;
                *last = from + i;
            }
    }
    return true;
}

/* A loader before 1.25 lacks zeDeviceSynchronize; the driver has it from API 1.14 on. */
bool zr_poison_rest(void) {
    for (unsigned number = 0; number < ZR_DEVICES; number++) {
        uint32_t hook = 0;
        ze_device_handle_t device = zr_device_handle(number, &hook);
        zr_function wait = device ? zr_function_below(hook, NULL, "zeDeviceSynchronize") : NULL;

        if (device && !wait)
            wait = zr_function_of_driver("zeDeviceSynchronize");
        if (device &&
            (!wait || ((ze_result_t(*)(ze_device_handle_t))wait)(device) != ZE_RESULT_SUCCESS))
            return false;
    }
    return true;
}
