/*
 * Queues: one thread each, started by the first command. A command waits for its events, lets its
 * time pass, and then moves its bytes: source is read and destination written at the END of the
 * time, so that memory which is freed and reused too early shows as wrong data on either side.
 */
#include "simgpu.h"

#include <stdlib.h>
#include <sys/prctl.h>

struct task {
    struct sim_command *command; /* NULL: only the fence */
    struct sim_fence *fence;
    struct task *next;           /* in the queue */
    struct task *after, *before; /* among all tasks that are under way */
};

struct sim_queue {
    struct sim_object object;
    struct sim_context *context;
    struct sim_device *device;
    uint32_t ordinal, index;
    bool synchronous;
    /* under sim.progress */
    struct task *first, *last;
    unsigned pending;
    bool running, stop;
    pthread_t thread;
    struct sim_queue *next; /* of all queues */
};

static struct task *under_way;
static struct sim_queue *queues;

static bool overlaps(const struct sim_command *command, uintptr_t base, size_t size) {
    for (int i = 0; command && i < 2; i++) {
        const struct sim_operand *operand = &command->operand[i];
        if (operand->ours && operand->at < base + size && base < operand->at + operand->size)
            return true;
    }
    return false;
}

static bool in_use(uintptr_t base, size_t size) {
    for (const struct task *task = under_way; task; task = task->after) {
        if (overlaps(task->command, base, size))
            return true;
    }
    return false;
}

bool sim_in_use(uintptr_t base, size_t size) {
    pthread_mutex_lock(&sim.progress);
    bool used = in_use(base, size);
    pthread_mutex_unlock(&sim.progress);
    return used;
}

void sim_wait_unused(uintptr_t base, size_t size) {
    pthread_mutex_lock(&sim.progress);
    while (in_use(base, size))
        pthread_cond_wait(&sim.changed, &sim.progress);
    pthread_mutex_unlock(&sim.progress);
}

void sim_command_drop(struct sim_command *command) {
    if (command && atomic_fetch_sub(&command->references, 1) == 1)
        free(command);
}

/* Progress lock held. False: the queue was told to stop first. */
static bool wait_for_events(struct sim_queue *queue, const struct sim_command *command) {
    for (uint32_t i = 0; i < command->wait_count; i++) {
        struct sim_event *event = command->waits[i];
        while (!atomic_load(&event->slot->signalled)) {
            if (queue->stop)
                return false;
            sim_wait_changed(UINT64_MAX, event->shared);
        }
    }
    return true;
}

static void finish(struct sim_queue *queue, struct task *task, uint64_t start) {
    struct sim_command *command = task->command;
    pthread_mutex_lock(&sim.progress);
    if (command && command->signal) {
        command->signal->slot->start = start;
        command->signal->slot->end = sim_now();
        sim_event_set(command->signal, true);
    }
    if (task->fence)
        atomic_store(&task->fence->signalled, true);
    if (task->before)
        task->before->after = task->after;
    else
        under_way = task->after;
    if (task->after)
        task->after->before = task->before;
    queue->pending--;
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.progress);
    sim_command_drop(command);
    free(task);
    sim_free_deferred();
}

static void *work(void *argument) {
    struct sim_queue *queue = argument;
    prctl(PR_SET_NAME, "simgpu queue");
    prctl(PR_SET_TIMERSLACK, 1);
    for (;;) {
        pthread_mutex_lock(&sim.progress);
        while (!queue->first && !queue->stop)
            pthread_cond_wait(&sim.changed, &sim.progress);
        struct task *task = queue->first;
        if (!task) {
            pthread_mutex_unlock(&sim.progress);
            return NULL;
        }
        queue->first = task->next;
        if (!queue->first)
            queue->last = NULL;
        bool go = !task->command || wait_for_events(queue, task->command);
        pthread_mutex_unlock(&sim.progress);
        uint64_t start = sim_now();
        if (go && task->command) {
            sim_spend(task->command->cost);
            sim_execute(task->command);
        }
        finish(queue, task, start);
    }
}

struct sim_queue *sim_queue_new(struct sim_context *context, struct sim_device *device,
                                const ze_command_queue_desc_t *desc) {
    struct sim_queue *queue = calloc(1, sizeof(*queue));
    if (!queue)
        return NULL;
    sim_object_init(&queue->object);
    queue->context = context;
    queue->device = device;
    queue->ordinal = desc->ordinal;
    queue->index = desc->index;
    queue->synchronous = desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    pthread_mutex_lock(&sim.progress);
    queue->next = queues;
    queues = queue;
    pthread_mutex_unlock(&sim.progress);
    return queue;
}

/* Commands that can run still do; those that wait for an event are dropped. */
void sim_queue_free(struct sim_queue *queue) {
    pthread_mutex_lock(&sim.progress);
    queue->stop = true;
    bool running = queue->running;
    struct sim_queue **at = &queues;
    while (*at != queue)
        at = &(*at)->next;
    *at = queue->next;
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.progress);
    if (running)
        pthread_join(queue->thread, NULL);
    free(queue);
}

/* Progress lock held. */
static ze_result_t push(struct sim_queue *queue, struct sim_command *command, struct sim_fence *fence) {
    struct task *task = calloc(1, sizeof(*task));
    if (!task)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (!queue->running && pthread_create(&queue->thread, NULL, work, queue) != 0) {
        free(task);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    queue->running = true;
    task->command = command;
    task->fence = fence;
    if (command) {
        atomic_fetch_add(&command->references, 1);
        if (command->signal && command->signal->counter_based)
            sim_event_set(command->signal, false);
    }
    if (queue->last)
        queue->last->next = task;
    else
        queue->first = task;
    queue->last = task;
    task->after = under_way;
    if (under_way)
        under_way->before = task;
    under_way = task;
    queue->pending++;
    return ZE_RESULT_SUCCESS;
}

/* A command on one card that names a buffer of another exports it, as the real driver does. */
static void prepare(struct sim_queue *queue, struct sim_command *command) {
    pthread_mutex_lock(&sim.memory);
    for (int i = 0; i < 2; i++) {
        struct sim_operand *operand = &command->operand[i];
        struct sim_block block;
        operand->ours = operand->size && sim_backing_at(operand->at);
        if (operand->ours && sim_find((void *)operand->at, &block) && block.backing->device &&
            block.backing->device->card != queue->device->card)
            sim_export(block.backing, (int)queue->device->card);
    }
    pthread_mutex_unlock(&sim.memory);
}

ze_result_t sim_queue_submit(struct sim_queue *queue, struct sim_command *const *commands, size_t count,
                             struct sim_fence *fence) {
    ze_result_t result = ZE_RESULT_SUCCESS;
    for (size_t i = 0; i < count; i++)
        prepare(queue, commands[i]);
    pthread_mutex_lock(&sim.progress);
    for (size_t i = 0; i < count && !result; i++)
        result = push(queue, commands[i], NULL);
    if (fence && !result)
        result = push(queue, NULL, fence);
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.progress);
    if (!result && queue->synchronous)
        return sim_queue_wait(queue, UINT64_MAX);
    return result;
}

ze_result_t sim_queue_wait(struct sim_queue *queue, uint64_t timeout) {
    uint64_t deadline = sim_deadline(timeout);
    pthread_mutex_lock(&sim.progress);
    while (queue->pending && sim_wait_changed(deadline, false))
        continue;
    bool done = queue->pending == 0;
    pthread_mutex_unlock(&sim.progress);
    return done ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

ze_result_t sim_zeDeviceSynchronize(ze_device_handle_t device) {
    if (!device)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    pthread_mutex_lock(&sim.progress);
    for (struct sim_queue *queue = queues; queue;) {
        if (queue->device == sim_device(device) && queue->pending) {
            pthread_cond_wait(&sim.changed, &sim.progress);
            queue = queues;
        } else {
            queue = queue->next;
        }
    }
    pthread_mutex_unlock(&sim.progress);
    return ZE_RESULT_SUCCESS;
}

/* By name as well, as all functions of Intel's driver are: a loader before 1.25 leads to it in no other way. */
ze_result_t zeDeviceSynchronize(ze_device_handle_t device)
    __attribute__((visibility("default"), alias("sim_zeDeviceSynchronize")));

ze_result_t sim_zeCommandQueueCreate(ze_context_handle_t context, ze_device_handle_t device,
                                     const ze_command_queue_desc_t *desc, ze_command_queue_handle_t *out) {
    if (!context || !device)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->ordinal > 1 || desc->index > 0)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    *out = (ze_command_queue_handle_t)sim_queue_new(sim_context(context), sim_device(device), desc);
    return *out ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

ze_result_t sim_zeCommandQueueDestroy(ze_command_queue_handle_t queue) {
    if (!queue)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    sim_queue_free((struct sim_queue *)queue);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeCommandQueueSynchronize(ze_command_queue_handle_t queue, uint64_t timeout) {
    if (!queue)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return sim_queue_wait((struct sim_queue *)queue, timeout);
}

ze_result_t sim_zeCommandQueueGetOrdinal(ze_command_queue_handle_t queue, uint32_t *out) {
    if (!queue)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = ((struct sim_queue *)queue)->ordinal;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeCommandQueueGetIndex(ze_command_queue_handle_t queue, uint32_t *out) {
    if (!queue)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = ((struct sim_queue *)queue)->index;
    return ZE_RESULT_SUCCESS;
}
