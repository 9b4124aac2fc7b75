/*
 * Exec queues. One thread per queue, started at its first batch, carries the batches out in order
 * and signals their fences. A queue under the driver's direct submission gets one batch that never
 * ends: it waits at a semaphore for the next commands, so that thread mostly sleeps.
 */
#include "standin.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

struct job {
    struct job *next;
    uint64_t address; /* 0: fences only */
    uint32_t sync_count;
    struct xe_sync syncs[];
};

struct xs_queue {
    struct xs_context context;
    struct xs_client *client;
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct job *first, **last;
    pthread_t thread;
    bool running;
};

static bool in_sync_done(struct xs_client *client, const struct xe_sync *sync) {
    uint64_t point = sync->type == XE_SYNC_TIMELINE_SYNCOBJ ? sync->timeline_value : 1;
    return sync->type == XE_SYNC_USER_FENCE || xs_syncobj_done(client, sync->handle, point);
}

static void wait_in_syncs(struct xs_client *client, const struct xe_sync *syncs, uint32_t count,
                          const _Atomic bool *stop) {
    for (uint32_t i = 0; i < count; i++) {
        if (syncs[i].flags & XE_SYNC_FLAG_SIGNAL)
            continue;
        while (!in_sync_done(client, &syncs[i]) && !(stop && *stop))
            xs_event_wait(XS_ANY_ADDRESS, xs_event_seen(XS_ANY_ADDRESS), 1000000);
    }
}

/* An exec writes its user fences through the address space, a bind straight into the process. */
static int signal_one(struct xs_client *client, struct xs_vm *vm, const struct xe_sync *sync) {
    if (!(sync->flags & XE_SYNC_FLAG_SIGNAL))
        return 0;
    switch (sync->type) {
    case XE_SYNC_SYNCOBJ:
        return xs_syncobj_signal(client, sync->handle, 1);
    case XE_SYNC_TIMELINE_SYNCOBJ:
        return xs_syncobj_signal(client, sync->handle, sync->timeline_value);
    case XE_SYNC_USER_FENCE:
        if (vm)
            return xs_vm_write(vm, sync->addr, &sync->timeline_value, 8) ? 0 : -EFAULT;
        if (!sync->addr || sync->addr % 8)
            return -EINVAL;
        __atomic_store_n((uint64_t *)(uintptr_t)sync->addr, sync->timeline_value, __ATOMIC_RELEASE);
        xs_event_bump(sync->addr & XS_ADDRESS_MASK);
        return 0;
    default:
        return -EINVAL;
    }
}

int xs_signal_syncs(struct xs_client *client, uint64_t syncs, uint32_t count) {
    const struct xe_sync *list = (void *)(uintptr_t)syncs;
    wait_in_syncs(client, list, count, NULL);
    for (uint32_t i = 0; i < count; i++) {
        int error = signal_one(client, NULL, &list[i]);
        if (error)
            return error;
    }
    return 0;
}

static struct job *next_job(struct xs_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    while (!queue->first && !queue->context.stop)
        pthread_cond_wait(&queue->more, &queue->lock);
    struct job *job = queue->context.stop ? NULL : queue->first;
    if (job) {
        queue->first = job->next;
        if (!queue->first)
            queue->last = &queue->first;
    }
    pthread_mutex_unlock(&queue->lock);
    return job;
}

static void *carry_out(void *arg) {
    struct xs_queue *queue = arg;
    prctl(PR_SET_NAME, "xe-standin", 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    for (struct job *job; (job = next_job(queue)) != NULL; free(job)) {
        wait_in_syncs(queue->client, job->syncs, job->sync_count, &queue->context.stop);
        if (job->address && !xs_context_is_banned(&queue->context))
            xs_batch_run(&queue->context, job->address);
        for (uint32_t i = 0; i < job->sync_count; i++)
            signal_one(queue->client, queue->context.vm, &job->syncs[i]);
    }
    return NULL;
}

int xs_queue_create(struct xs_client *client, struct xe_exec_queue_create *create) {
    const struct xe_engine_instance *engine = (void *)(uintptr_t)create->instances;
    if (create->width != 1 || !create->num_placements)
        return -EINVAL;
    struct xs_vm *vm = xs_vm_get(client, create->vm_id);
    struct xs_queue *queue = vm ? calloc(1, sizeof(*queue)) : NULL;
    if (!queue) {
        if (vm)
            xs_vm_unref(vm);
        return vm ? -ENOMEM : -ENOENT;
    }
    queue->context.vm = vm;
    queue->context.engine_class = engine->engine_class;
    queue->context.card = client->card;
    queue->context.losses = client->losses;
    queue->client = client;
    queue->last = &queue->first;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->more, NULL);
    pthread_mutex_lock(&client->lock);
    create->exec_queue_id = xs_table_add(&client->queues, queue);
    pthread_mutex_unlock(&client->lock);
    xs_count(XS_C_exec_queue_create, 1);
    return 0;
}

void xs_queue_drop(struct xs_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->context.stop = true;
    bool running = queue->running;
    pthread_cond_signal(&queue->more);
    pthread_mutex_unlock(&queue->lock);
    xs_event_bump_all();
    if (running)
        pthread_join(queue->thread, NULL);
    while (queue->first) {
        struct job *job = queue->first;
        queue->first = job->next;
        free(job);
    }
    xs_vm_unref(queue->context.vm);
    pthread_mutex_destroy(&queue->lock);
    pthread_cond_destroy(&queue->more);
    free(queue);
}

int xs_queue_destroy(struct xs_client *client, uint32_t id) {
    pthread_mutex_lock(&client->lock);
    struct xs_queue *queue = xs_table_take(&client->queues, id);
    pthread_mutex_unlock(&client->lock);
    if (!queue)
        return -ENOENT;
    xs_queue_drop(queue);
    xs_count(XS_C_exec_queue_destroy, 1);
    return 0;
}

/* Queue's lock held. The program's signals are not for this thread. */
static int start_thread(struct xs_queue *queue) {
    sigset_t all, before;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 512 << 10);
    int error = pthread_create(&queue->thread, &attributes, carry_out, queue);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    queue->running = !error;
    return -error;
}

int xs_queue_exec(struct xs_client *client, struct xe_exec *exec) {
    if (exec->num_batch_buffer > 1 || exec->num_syncs > 1024)
        return -EINVAL;
    size_t bytes = exec->num_syncs * sizeof(struct xe_sync);
    struct job *job = calloc(1, sizeof(*job) + bytes);
    if (!job)
        return -ENOMEM;
    job->address = exec->num_batch_buffer ? exec->address : 0;
    job->sync_count = exec->num_syncs;
    if (bytes)
        memcpy(job->syncs, (void *)(uintptr_t)exec->syncs, bytes);
    pthread_mutex_lock(&client->lock);
    struct xs_queue *queue = xs_table_get(&client->queues, exec->exec_queue_id);
    int error = !queue ? -ENOENT : xs_context_is_banned(&queue->context) ? -ECANCELED : 0;
    if (!error) {
        pthread_mutex_lock(&queue->lock);
        if (!queue->running)
            error = start_thread(queue);
        if (!error) {
            *queue->last = job;
            queue->last = &job->next;
            pthread_cond_signal(&queue->more);
        }
        pthread_mutex_unlock(&queue->lock);
    }
    pthread_mutex_unlock(&client->lock);
    if (error)
        free(job);
    else
        xs_count(XS_C_exec, 1);
    return error;
}

static bool fence_met(const struct xe_wait_user_fence *wait) {
    uint64_t now = __atomic_load_n((uint64_t *)(uintptr_t)wait->addr, __ATOMIC_ACQUIRE);
    uint64_t want = wait->value & wait->mask;
    now &= wait->mask;
    switch (wait->op) {
    case XE_WAIT_EQ:
        return now == want;
    case XE_WAIT_NEQ:
        return now != want;
    case XE_WAIT_GT:
        return now > want;
    case XE_WAIT_GTE:
        return now >= want;
    case XE_WAIT_LT:
        return now < want;
    default:
        return now <= want;
    }
}

/* -ENOENT: no such queue; else whether it is banned. */
static int banned(struct xs_client *client, uint32_t id) {
    pthread_mutex_lock(&client->lock);
    struct xs_queue *queue = xs_table_get(&client->queues, id);
    int result = queue ? xs_context_is_banned(&queue->context) : -ENOENT;
    pthread_mutex_unlock(&client->lock);
    return result;
}

int xs_queue_property(struct xs_client *client, struct xe_exec_queue_get_property *arg) {
    int result = arg->property == XE_EXEC_QUEUE_PROPERTY_BAN ? banned(client, arg->exec_queue_id) : -EINVAL;
    if (result < 0)
        return result;
    arg->value = (uint64_t)result;
    return 0;
}

int xs_wait_user_fence(struct xs_client *client, struct xe_wait_user_fence *wait) {
    xs_count(XS_C_wait_user_fence, 1);
    if (!wait->addr || wait->addr % 8 || wait->op > XE_WAIT_LTE)
        return -EINVAL;
    if (fence_met(wait))
        return 0;
    uint64_t start = xs_now();
    bool absolute = wait->flags & XE_WAIT_FLAG_ABSTIME;
    uint64_t end = wait->timeout < 0 ? UINT64_MAX : (uint64_t)wait->timeout + (absolute ? 0 : start);
    uint64_t nap = 20000;
    for (unsigned round = 0;; round++) {
        uint32_t seen = xs_event_seen(XS_ANY_ADDRESS);
        if (fence_met(wait))
            break;
        if (wait->exec_queue_id && banned(client, wait->exec_queue_id))
            return -EIO;
        uint64_t now = xs_now();
        if (now >= end)
            return -ETIME;
        if (round < 16) {
            sched_yield();
            continue;
        }
        xs_event_wait(XS_ANY_ADDRESS, seen, nap < end - now ? nap : end - now);
        if (nap < 1000000)
            nap += nap / 4;
    }
    if (!absolute && wait->timeout > 0) {
        uint64_t spent = xs_now() - start;
        wait->timeout = spent < (uint64_t)wait->timeout ? wait->timeout - (int64_t)spent : 0;
    }
    return 0;
}
