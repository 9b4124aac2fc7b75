/* Command lists, ordinary and immediate, and what can be appended to them. */
#include "simgpu.h"

#include <stdlib.h>
#include <string.h>

struct sim_list {
    struct sim_object object;
    struct sim_context *context;
    struct sim_device *device;
    struct sim_queue *queue; /* an immediate list has one of its own */
    uint32_t ordinal, index;
    struct sim_command **commands;
    size_t count, room;
};

static ze_result_t new_list(ze_context_handle_t context, ze_device_handle_t device, uint32_t ordinal,
                            struct sim_list **out) {
    struct sim_list *list = calloc(1, sizeof(*list));
    if (!list)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    sim_object_init(&list->object);
    list->context = sim_context(context);
    list->device = sim_device(device);
    list->ordinal = ordinal;
    *out = list;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeCommandListCreate(ze_context_handle_t context, ze_device_handle_t device,
                                    const ze_command_list_desc_t *desc, ze_command_list_handle_t *out) {
    struct sim_list *list;
    if (!context || !device)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    ze_result_t result = new_list(context, device, desc->commandQueueGroupOrdinal, &list);
    if (result == ZE_RESULT_SUCCESS)
        *out = (ze_command_list_handle_t)list;
    return result;
}

ze_result_t sim_zeCommandListCreateImmediate(ze_context_handle_t context, ze_device_handle_t device,
                                             const ze_command_queue_desc_t *desc, ze_command_list_handle_t *out) {
    struct sim_list *list;
    if (!context || !device)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    ze_result_t result = new_list(context, device, desc->ordinal, &list);
    if (result != ZE_RESULT_SUCCESS)
        return result;
    list->index = desc->index;
    list->queue = sim_queue_new(sim_context(context), sim_device(device), desc);
    if (!list->queue) {
        free(list);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *out = (ze_command_list_handle_t)list;
    return ZE_RESULT_SUCCESS;
}

static void clear(struct sim_list *list) {
    for (size_t i = 0; i < list->count; i++)
        sim_command_drop(list->commands[i]);
    list->count = 0;
}

ze_result_t sim_zeCommandListDestroy(ze_command_list_handle_t handle) {
    struct sim_list *list = (struct sim_list *)handle;
    if (!list)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (list->queue)
        sim_queue_free(list->queue);
    clear(list);
    free(list->commands);
    free(list);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeCommandListClose(ze_command_list_handle_t handle) {
    return handle ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
}

ze_result_t sim_zeCommandListReset(ze_command_list_handle_t handle) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    clear((struct sim_list *)handle);
    return ZE_RESULT_SUCCESS;
}

/* Room behind the command for its pattern or offsets and for the events it waits for. */
static struct sim_command *new_command(enum sim_command_kind kind, const void *extra, size_t size,
                                       ze_event_handle_t signal, uint32_t wait_count, ze_event_handle_t *waits) {
    size_t padded = sim_round(size, sizeof(void *));
    struct sim_command *command = calloc(1, sizeof(*command) + padded + wait_count * sizeof(struct sim_event *));
    if (!command)
        return NULL;
    char *behind = (char *)(command + 1);
    command->kind = kind;
    atomic_init(&command->references, 1);
    if (size)
        memcpy(behind, extra, size);
    command->pattern = behind;
    command->pattern_size = size;
    command->waits = (struct sim_event **)(void *)(behind + padded);
    command->wait_count = wait_count;
    for (uint32_t i = 0; i < wait_count; i++)
        command->waits[i] = (struct sim_event *)waits[i];
    command->signal = (struct sim_event *)signal;
    return command;
}

static void set_operand(struct sim_command *command, int which, const void *p, size_t size) {
    command->operand[which] = (struct sim_operand){.at = (uintptr_t)p, .size = size};
}

static void set_cost(struct sim_command *command, size_t bytes) {
    command->cost = sim_config.copy_cost;
    if (sim_config.copy_rate)
        command->cost += (uint64_t)((double)bytes * 1e9 / (double)sim_config.copy_rate);
}

/* Takes the command over. */
static ze_result_t append(struct sim_list *list, struct sim_command *command) {
    if (!command)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (list->queue) {
        ze_result_t result = sim_queue_submit(list->queue, &command, 1, NULL);
        sim_command_drop(command);
        return result;
    }
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 16;
        void *more = realloc(list->commands, room * sizeof(struct sim_command *));
        if (!more) {
            sim_command_drop(command);
            return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        list->commands = more;
        list->room = room;
    }
    list->commands[list->count++] = command;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_waits(uint32_t count, ze_event_handle_t *waits) {
    return count && !waits ? ZE_RESULT_ERROR_INVALID_SIZE : ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeCommandListAppendMemoryCopy(ze_command_list_handle_t handle, void *target, const void *source,
                                              size_t size, ze_event_handle_t signal, uint32_t wait_count,
                                              ze_event_handle_t *waits) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!target || !source)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (check_waits(wait_count, waits))
        return ZE_RESULT_ERROR_INVALID_SIZE;
    struct sim_command *command = new_command(SIM_COPY, NULL, 0, signal, wait_count, waits);
    if (command) {
        command->target = target;
        command->source = source;
        set_operand(command, 0, target, size);
        set_operand(command, 1, source, size);
        set_cost(command, size);
    }
    return append((struct sim_list *)handle, command);
}

ze_result_t sim_zeCommandListAppendMemoryCopyFromContext(ze_command_list_handle_t handle, void *target,
                                                         ze_context_handle_t context, const void *source, size_t size,
                                                         ze_event_handle_t signal, uint32_t wait_count,
                                                         ze_event_handle_t *waits) {
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return sim_zeCommandListAppendMemoryCopy(handle, target, source, size, signal, wait_count, waits);
}

ze_result_t sim_zeCommandListAppendMemoryFill(ze_command_list_handle_t handle, void *target, const void *pattern,
                                              size_t pattern_size, size_t size, ze_event_handle_t signal,
                                              uint32_t wait_count, ze_event_handle_t *waits) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!target || !pattern)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (pattern_size == 0 || check_waits(wait_count, waits))
        return ZE_RESULT_ERROR_INVALID_SIZE;
    struct sim_command *command = new_command(SIM_FILL, pattern, pattern_size, signal, wait_count, waits);
    if (command) {
        command->target = target;
        set_operand(command, 0, target, size);
        set_cost(command, size);
    }
    return append((struct sim_list *)handle, command);
}

static size_t region_end(const ze_copy_region_t *region, size_t pitch, size_t slice) {
    size_t depth = region->depth ? region->depth : 1;
    if (!region->width || !region->height)
        return 0;
    return (depth - 1 + region->originZ) * slice + ((size_t)region->height - 1 + region->originY) * pitch +
           region->originX + region->width;
}

ze_result_t sim_zeCommandListAppendMemoryCopyRegion(ze_command_list_handle_t handle, void *target,
                                                    const ze_copy_region_t *to, uint32_t pitch, uint32_t slice,
                                                    const void *source, const ze_copy_region_t *from,
                                                    uint32_t source_pitch, uint32_t source_slice,
                                                    ze_event_handle_t signal, uint32_t wait_count,
                                                    ze_event_handle_t *waits) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!target || !source || !to || !from)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (check_waits(wait_count, waits))
        return ZE_RESULT_ERROR_INVALID_SIZE;
    struct sim_command *command = new_command(SIM_REGION, NULL, 0, signal, wait_count, waits);
    if (command) {
        command->target = target;
        command->source = source;
        command->to = *to;
        command->from = *from;
        command->pitch = pitch;
        command->slice = slice;
        command->source_pitch = source_pitch;
        command->source_slice = source_slice;
        ze_copy_region_t read = *to; /* the source is read with the target's extent */
        read.originX = from->originX;
        read.originY = from->originY;
        read.originZ = from->originZ;
        set_operand(command, 0, target, region_end(to, pitch, slice));
        set_operand(command, 1, source, region_end(&read, source_pitch, source_slice));
        set_cost(command, (size_t)to->width * to->height * (to->depth ? to->depth : 1));
    }
    return append((struct sim_list *)handle, command);
}

ze_result_t sim_zeCommandListAppendWriteGlobalTimestamp(ze_command_list_handle_t handle, uint64_t *target,
                                                        ze_event_handle_t signal, uint32_t wait_count,
                                                        ze_event_handle_t *waits) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!target)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (check_waits(wait_count, waits))
        return ZE_RESULT_ERROR_INVALID_SIZE;
    struct sim_command *command = new_command(SIM_STAMP, NULL, 0, signal, wait_count, waits);
    if (command) {
        command->target = target;
        set_operand(command, 0, target, sizeof(*target));
    }
    return append((struct sim_list *)handle, command);
}

/* Commands run in order, so a barrier is only its events. */
ze_result_t sim_zeCommandListAppendBarrier(ze_command_list_handle_t handle, ze_event_handle_t signal,
                                           uint32_t wait_count, ze_event_handle_t *waits) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (check_waits(wait_count, waits))
        return ZE_RESULT_ERROR_INVALID_SIZE;
    return append((struct sim_list *)handle, new_command(SIM_NOTHING, NULL, 0, signal, wait_count, waits));
}

ze_result_t sim_zeCommandListAppendMemoryRangesBarrier(ze_command_list_handle_t handle, uint32_t count,
                                                       const size_t *sizes, const void **ranges,
                                                       ze_event_handle_t signal, uint32_t wait_count,
                                                       ze_event_handle_t *waits) {
    if (count && (!sizes || !ranges))
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return sim_zeCommandListAppendBarrier(handle, signal, wait_count, waits);
}

ze_result_t sim_zeCommandListAppendSignalEvent(ze_command_list_handle_t handle, ze_event_handle_t event) {
    if (!event)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return sim_zeCommandListAppendBarrier(handle, event, 0, NULL);
}

ze_result_t sim_zeCommandListAppendWaitOnEvents(ze_command_list_handle_t handle, uint32_t count,
                                                ze_event_handle_t *events) {
    if (!events)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return sim_zeCommandListAppendBarrier(handle, NULL, count, events);
}

ze_result_t sim_zeCommandListAppendEventReset(ze_command_list_handle_t handle, ze_event_handle_t event) {
    if (!handle || !event)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    struct sim_command *command = new_command(SIM_RESET, NULL, 0, NULL, 0, NULL);
    if (command)
        command->subject = (struct sim_event *)event;
    return append((struct sim_list *)handle, command);
}

ze_result_t sim_zeCommandListAppendQueryKernelTimestamps(ze_command_list_handle_t handle, uint32_t count,
                                                         ze_event_handle_t *events, void *target, const size_t *offsets,
                                                         ze_event_handle_t signal, uint32_t wait_count,
                                                         ze_event_handle_t *waits) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!events || !target)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    ze_result_t result = sim_zeCommandListAppendBarrier(handle, NULL, wait_count, waits);
    if (result != ZE_RESULT_SUCCESS)
        return result;
    size_t end = count * sizeof(ze_kernel_timestamp_result_t);
    for (uint32_t i = 0; offsets && i < count; i++) {
        if (offsets[i] + sizeof(ze_kernel_timestamp_result_t) > end)
            end = offsets[i] + sizeof(ze_kernel_timestamp_result_t);
    }
    struct sim_command *command =
        new_command(SIM_TIMES, offsets, offsets ? count * sizeof(*offsets) : 0, signal, count, events);
    if (command) {
        command->offsets = offsets ? (const size_t *)(const void *)command->pattern : NULL;
        command->target = target;
        set_operand(command, 0, target, end);
    }
    return append((struct sim_list *)handle, command);
}

ze_result_t sim_zeCommandListAppendMemoryPrefetch(ze_command_list_handle_t handle, const void *p, size_t size) {
    (void)size;
    return !handle ? ZE_RESULT_ERROR_INVALID_NULL_HANDLE
           : !p    ? ZE_RESULT_ERROR_INVALID_NULL_POINTER
                   : ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeCommandListAppendMemAdvise(ze_command_list_handle_t handle, ze_device_handle_t device, const void *p,
                                             size_t size, ze_memory_advice_t advice) {
    (void)size;
    (void)advice;
    return !handle || !device ? ZE_RESULT_ERROR_INVALID_NULL_HANDLE
           : !p               ? ZE_RESULT_ERROR_INVALID_NULL_POINTER
                              : ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeCommandListAppendHostFunction(ze_command_list_handle_t handle, void (*function)(void *), void *data,
                                                void *extensions, ze_event_handle_t signal, uint32_t wait_count,
                                                ze_event_handle_t *waits) {
    (void)extensions;
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!function)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    struct sim_command *command = new_command(SIM_CALL_HOST, NULL, 0, signal, wait_count, waits);
    if (command) {
        command->host_function = function;
        command->target = data;
    }
    return append((struct sim_list *)handle, command);
}

static ze_result_t run_lists(struct sim_queue *queue, uint32_t count, ze_command_list_handle_t *lists,
                             struct sim_fence *fence) {
    ze_result_t result = ZE_RESULT_SUCCESS;
    for (uint32_t i = 0; i < count && !result; i++) {
        const struct sim_list *list = (struct sim_list *)lists[i];
        result = sim_queue_submit(queue, list->commands, list->count, NULL);
    }
    if (fence && !result)
        result = sim_queue_submit(queue, NULL, 0, fence);
    return result;
}

ze_result_t sim_zeCommandQueueExecuteCommandLists(ze_command_queue_handle_t queue, uint32_t count,
                                                  ze_command_list_handle_t *lists, ze_fence_handle_t fence) {
    if (!queue)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!lists)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (count == 0)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    return run_lists((struct sim_queue *)queue, count, lists, (struct sim_fence *)fence);
}

ze_result_t sim_zeCommandListImmediateAppendCommandListsExp(ze_command_list_handle_t handle, uint32_t count,
                                                            ze_command_list_handle_t *lists, ze_event_handle_t signal,
                                                            uint32_t wait_count, ze_event_handle_t *waits) {
    struct sim_list *list = (struct sim_list *)handle;
    if (!list)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!lists)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!list->queue)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    ze_result_t result = sim_zeCommandListAppendBarrier(handle, NULL, wait_count, waits);
    if (result == ZE_RESULT_SUCCESS)
        result = run_lists(list->queue, count, lists, NULL);
    if (result == ZE_RESULT_SUCCESS && signal)
        result = sim_zeCommandListAppendSignalEvent(handle, signal);
    return result;
}

ze_result_t sim_zeCommandListHostSynchronize(ze_command_list_handle_t handle, uint64_t timeout) {
    struct sim_list *list = (struct sim_list *)handle;
    if (!list)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return list->queue ? sim_queue_wait(list->queue, timeout) : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

/* What newer runtimes ask a list about itself. */
#define GETTER(function, type, expression)                                                                             \
    ze_result_t function(ze_command_list_handle_t handle, type *out) {                                                 \
        const struct sim_list *list = (struct sim_list *)handle;                                                       \
        if (!list)                                                                                                     \
            return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;                                                                \
        if (!out)                                                                                                      \
            return ZE_RESULT_ERROR_INVALID_NULL_POINTER;                                                               \
        *out = expression;                                                                                             \
        return ZE_RESULT_SUCCESS;                                                                                      \
    }
GETTER(sim_zeCommandListGetDeviceHandle, ze_device_handle_t, (ze_device_handle_t)list->device)
GETTER(sim_zeCommandListGetContextHandle, ze_context_handle_t, (ze_context_handle_t)list->context)
GETTER(sim_zeCommandListGetOrdinal, uint32_t, list->ordinal)
GETTER(sim_zeCommandListImmediateGetIndex, uint32_t, list->index)
GETTER(sim_zeCommandListIsImmediate, ze_bool_t, list->queue != NULL)
