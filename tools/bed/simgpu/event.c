/* Events, their pools, and fences. A state change wakes all who wait on sim.changed. */
#include "simgpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct sim_event_pool {
    struct sim_object object;
    struct sim_context *context;
    uint32_t count, flags;
    bool counter_based;
    bool shared; /* another process may signal: waiting means looking now and then */
    int fd;
    struct sim_event_slot *slots;
};

static size_t pool_bytes(uint32_t count) {
    return sim_round(count * sizeof(struct sim_event_slot), 4096);
}

static ze_result_t pool_new(struct sim_context *context, uint32_t count, uint32_t flags, int fd,
                            ze_event_pool_handle_t *out) {
    struct sim_event_pool *pool = calloc(1, sizeof(*pool));
    if (!pool)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    sim_object_init(&pool->object);
    pool->context = context;
    pool->count = count;
    pool->flags = flags;
    pool->fd = fd;
    pool->shared = fd >= 0;
    pool->slots =
        mmap(NULL, pool_bytes(count), PROT_READ | PROT_WRITE, fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (pool->slots == MAP_FAILED) {
        free(pool);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *out = (ze_event_pool_handle_t)pool;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeEventPoolCreate(ze_context_handle_t context, const ze_event_pool_desc_t *desc, uint32_t count,
                                  ze_device_handle_t *devices, ze_event_pool_handle_t *out) {
    int fd = -1;
    (void)count;
    (void)devices;
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->count == 0)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    if (desc->flags & ZE_EVENT_POOL_FLAG_IPC) {
        fd = memfd_create("simgpu-events", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)pool_bytes(desc->count)) != 0)
            return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    ze_result_t result = pool_new(sim_context(context), desc->count, desc->flags, fd, out);
    for (const struct sim_next *next = desc->pNext; next && !result; next = next->next) {
        if ((uint32_t)next->stype == SIM_STYPE_COUNTER_EVENTS)
            ((struct sim_event_pool *)*out)->counter_based = true;
    }
    return result;
}

ze_result_t sim_zeEventPoolDestroy(ze_event_pool_handle_t handle) {
    struct sim_event_pool *pool = (struct sim_event_pool *)handle;
    if (!pool)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    munmap(pool->slots, pool_bytes(pool->count));
    if (pool->fd >= 0)
        close(pool->fd);
    free(pool);
    return ZE_RESULT_SUCCESS;
}

struct pool_handle {
    int32_t fd, pid;
    uint32_t count, flags;
};

ze_result_t sim_zeEventPoolGetIpcHandle(ze_event_pool_handle_t handle, ze_ipc_event_pool_handle_t *out) {
    const struct sim_event_pool *pool = (struct sim_event_pool *)handle;
    if (!pool)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (pool->fd < 0)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    struct pool_handle data = {pool->fd, getpid(), pool->count, pool->flags};
    memset(out, 0, sizeof(*out));
    memcpy(out, &data, sizeof(data));
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeEventPoolPutIpcHandle(ze_context_handle_t context, ze_ipc_event_pool_handle_t handle) {
    (void)handle;
    return context ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
}

ze_result_t sim_zeEventPoolOpenIpcHandle(ze_context_handle_t context, ze_ipc_event_pool_handle_t handle,
                                         ze_event_pool_handle_t *out) {
    struct pool_handle data;
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    memcpy(&data, &handle, sizeof(data));
    int fd = sim_open_fd_of(data.pid, data.fd);
    if (fd < 0)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    ze_result_t result = pool_new(sim_context(context), data.count, data.flags, fd, out);
    if (result != ZE_RESULT_SUCCESS)
        close(fd);
    return result;
}

ze_result_t sim_zeEventPoolCloseIpcHandle(ze_event_pool_handle_t handle) {
    return sim_zeEventPoolDestroy(handle);
}

ze_result_t sim_zeEventPoolGetContextHandle(ze_event_pool_handle_t handle, ze_context_handle_t *out) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = (ze_context_handle_t)((struct sim_event_pool *)handle)->context;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeEventPoolGetFlags(ze_event_pool_handle_t handle, ze_event_pool_flags_t *out) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = ((struct sim_event_pool *)handle)->flags;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeEventCreate(ze_event_pool_handle_t handle, const ze_event_desc_t *desc, ze_event_handle_t *out) {
    struct sim_event_pool *pool = (struct sim_event_pool *)handle;
    if (!pool)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->index >= pool->count)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    struct sim_event *event = calloc(1, sizeof(*event));
    if (!event)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    sim_object_init(&event->object);
    event->pool = pool;
    event->slot = &pool->slots[desc->index];
    event->signal_scope = desc->signal;
    event->wait_scope = desc->wait;
    event->shared = pool->shared;
    event->counter_based = pool->counter_based;
    *out = (ze_event_handle_t)event;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeEventDestroy(ze_event_handle_t handle) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    free((struct sim_event *)handle);
    return ZE_RESULT_SUCCESS;
}

void sim_event_set(struct sim_event *event, bool signalled) {
    atomic_store(&event->slot->signalled, signalled);
}

bool sim_wait_changed(uint64_t deadline, bool poll) {
    uint64_t now = sim_now(), until = deadline;
    if (now >= deadline)
        return false;
    if (poll && until - now > 1000000)
        until = now + 1000000;
    if (until - now > 3600000000000u) {
        pthread_cond_wait(&sim.changed, &sim.progress);
        return true;
    }
    struct timespec t = {.tv_sec = (time_t)(until / 1000000000u), .tv_nsec = (long)(until % 1000000000u)};
    pthread_cond_timedwait(&sim.changed, &sim.progress, &t);
    return true;
}

uint64_t sim_deadline(uint64_t timeout) {
    uint64_t now = sim_now();
    return timeout > UINT64_MAX - now ? UINT64_MAX : now + timeout;
}

ze_result_t sim_zeEventHostSignal(ze_event_handle_t handle) {
    struct sim_event *event = (struct sim_event *)handle;
    if (!event)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    pthread_mutex_lock(&sim.progress);
    event->slot->start = event->slot->end = sim_now();
    sim_event_set(event, true);
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.progress);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeEventHostReset(ze_event_handle_t handle) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    sim_event_set((struct sim_event *)handle, false);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeEventQueryStatus(ze_event_handle_t handle) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return atomic_load(&((struct sim_event *)handle)->slot->signalled) ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

ze_result_t sim_zeEventHostSynchronize(ze_event_handle_t handle, uint64_t timeout) {
    struct sim_event *event = (struct sim_event *)handle;
    if (!event)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    uint64_t deadline = sim_deadline(timeout);
    pthread_mutex_lock(&sim.progress);
    bool done;
    while (!(done = atomic_load(&event->slot->signalled)) && sim_wait_changed(deadline, event->shared))
        continue;
    pthread_mutex_unlock(&sim.progress);
    return done ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

void sim_event_times(struct sim_event *event, ze_kernel_timestamp_result_t *out) {
    const struct sim_event_slot *slot = event->slot;
    out->global = (ze_kernel_timestamp_data_t){slot->start, slot->end};
    out->context = out->global;
}

ze_result_t sim_zeEventQueryKernelTimestamp(ze_event_handle_t handle, ze_kernel_timestamp_result_t *out) {
    struct sim_event *event = (struct sim_event *)handle;
    if (!event)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&sim.progress);
    bool done = atomic_load(&event->slot->signalled);
    if (done)
        sim_event_times(event, out);
    pthread_mutex_unlock(&sim.progress);
    return done ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

ze_result_t sim_zeEventGetEventPool(ze_event_handle_t handle, ze_event_pool_handle_t *out) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = (ze_event_pool_handle_t)((struct sim_event *)handle)->pool;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeEventGetSignalScope(ze_event_handle_t handle, ze_event_scope_flags_t *out) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = ((struct sim_event *)handle)->signal_scope;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeEventGetWaitScope(ze_event_handle_t handle, ze_event_scope_flags_t *out) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = ((struct sim_event *)handle)->wait_scope;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeFenceCreate(ze_command_queue_handle_t queue, const ze_fence_desc_t *desc, ze_fence_handle_t *out) {
    if (!queue)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    struct sim_fence *fence = calloc(1, sizeof(*fence));
    if (!fence)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    sim_object_init(&fence->object);
    atomic_init(&fence->signalled, (desc->flags & ZE_FENCE_FLAG_SIGNALED) != 0);
    *out = (ze_fence_handle_t)fence;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeFenceDestroy(ze_fence_handle_t handle) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    free((struct sim_fence *)handle);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeFenceHostSynchronize(ze_fence_handle_t handle, uint64_t timeout) {
    struct sim_fence *fence = (struct sim_fence *)handle;
    if (!fence)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    uint64_t deadline = sim_deadline(timeout);
    pthread_mutex_lock(&sim.progress);
    bool done;
    while (!(done = atomic_load(&fence->signalled)) && sim_wait_changed(deadline, false))
        continue;
    pthread_mutex_unlock(&sim.progress);
    return done ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

ze_result_t sim_zeFenceQueryStatus(ze_fence_handle_t handle) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return atomic_load(&((struct sim_fence *)handle)->signalled) ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

ze_result_t sim_zeFenceReset(ze_fence_handle_t handle) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    atomic_store(&((struct sim_fence *)handle)->signalled, false);
    return ZE_RESULT_SUCCESS;
}
