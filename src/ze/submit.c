/*
 * What gives a device work, and what waits for it: each call is passed on as it is, and src/work/
 * is told before and after it. `below` is the function that the hook stands in front of.
 */
#include "pause/pause.h"
#include "policy/policy.h"
#include "work/work.h"

#include <string.h>

enum {
    QUEUE_IN_ORDER = 1 << 1,
    LIST_IN_ORDER = 1 << 3,
    POOL_IPC = 1 << 1,
    POOL_COUNTER_BASED = 0x20014
};

/* Work of our own is not the program's. */
static bool is_own_work(void) {
    const struct zr_op *above = zr_op_innermost();

    return zr_exiting() || (above && !above->admits && !above->watch);
}

/* --- submissions ------------------------------------------------------------------------------ */

struct task {
    bool is_first;     /* it has not passed a hook before */
    enum zr_gate gate; /* that it is inside */
    const void *above; /* what this thread was submitting to when it began */
    struct zr_submission submission;
    const void *signals; /* an event, a fence, or NULL */
};

/*
 * A call passes a second hook on its way down: that of the table behind the loader. It is followed
 * once. A loader that wraps handles, as those do that have two drivers below them, passes the
 * driver's own handle to that hook, which is not known. What longjmp leaves behind in
 * zr_thread.work does no harm: the runner of that list is inside for ever, and so nothing is proven
 * any more.
 */
static struct task task_begin(const void *list, const void *event) {
    struct task t = {.gate = ZR_GATES, .above = zr_thread.work.submits};
    struct zr_runner *runner;
    bool later;

    if (t.above == list || is_own_work())
        return t;
    zr_fork_check();
    t.gate = zr_gate_begin(ZR_GATE_WORK);
    runner = zr_work_runner(list, &later);
    if (unlikely(t.above && !runner && !later))
        return t;
    t.is_first = true;
    zr_thread.work.submits = list;
    if (later && zr_pausing())
        zr_work_list_filled(list, true);
    if (likely(runner)) {
        t.submission = zr_work_begin(runner);
        t.signals = event;
        if (event)
            zr_work_signals_begin(event);
    } else if (later && event) {
        zr_work_signal_unknown(event, true); /* each execution of the list signals it */
    } else if (!later && list) {
        zr_work_lost("a command list or queue is used that was created past zeroute");
    }
    return t;
}

/*
 * It begins after these events. In programs that keep commands in order by such waits, as some
 * adapters do, the last event proves all of them.
 */
static void task_after(const struct task *t, uint32_t count, const void *waits) {
    if (t->signals)
        zr_work_signals_after(t->signals, &t->submission, count, waits);
}

static void task_end(const struct task *t, ze_result_t result) {
    zr_gate_end(&t->gate);
    if (!t->is_first)
        return;
    zr_thread.work.submits = t->above;
    zr_work_end(&t->submission);
    if (t->signals)
        zr_work_signals_end(t->signals, &t->submission, result == ZE_RESULT_SUCCESS);
    if (result == ZE_RESULT_SUCCESS && t->submission.runner &&
        zr_runner_is_synchronous(t->submission.runner))
        zr_work_prove_one(t->submission.runner, t->submission.number);
}

/*
 * The driver makes a block resident on the card that copies it, and so has it mirrored, whatever
 * was asked for.
 */
static void lend(const void *list, const void *ptr) {
    struct zr_block *b = zr_map_find(ptr);

    if (b && b->key.kind == ZR_KIND_DEVICE && b->key.account != zr_work_device(list))
        zr_block_mark(b, ZR_BLOCK_LENT);
}

#define ZR_WORK(...)
#define ZR_COPIES(name, table, index, minor, parameters, arguments, event, count, waits, to, from) \
    ze_result_t zr_does_##name ZR_ABOVE_FUNCTION(parameters) {                                     \
        struct task t = task_begin(list, event);                                                   \
        ze_result_t result;                                                                        \
                                                                                                   \
        if (count)                                                                                 \
            task_after(&t, count, waits);                                                          \
        if (unlikely(t.is_first && zr_config.residency == ZR_RESIDENCY_OWNER)) {                   \
            lend(list, to);                                                                        \
            lend(list, from);                                                                      \
        }                                                                                          \
        result = ((zr_work_fn_##name)below)arguments;                                              \
        task_end(&t, result);                                                                      \
        return result;                                                                             \
    }
#define ZR_SUBMITS(name, table, index, minor, parameters, arguments, event, count, waits)          \
    ze_result_t zr_does_##name ZR_ABOVE_FUNCTION(parameters) {                                     \
        struct task t = task_begin(list, event);                                                   \
        ze_result_t result;                                                                        \
                                                                                                   \
        if (count)                                                                                 \
            task_after(&t, count, waits);                                                          \
        result = ((zr_work_fn_##name)below)arguments;                                              \
        task_end(&t, result);                                                                      \
        return result;                                                                             \
    }
#define ZR_UNKNOWN_WORK(name, table, index, minor, parameters, arguments)                          \
    ze_result_t zr_does_##name ZR_ABOVE_FUNCTION(parameters) {                                     \
        if (is_own_work())                                                                         \
            return ((zr_work_fn_##name)below)arguments;                                            \
        zr_work_lost(#name " was called, and the end of what it starts cannot be followed");       \
        ZR_WITHIN(ZR_GATE_WORK);                                                                   \
        return ((zr_work_fn_##name)below)arguments;                                                \
    }
#include "base/work.def"

/* A fence counts for its own execution. */
ze_result_t zr_does_zeCommandQueueExecuteCommandLists(zr_function below,
                                                      ze_command_queue_handle_t queue,
                                                      uint32_t count,
                                                      ze_command_list_handle_t *lists,
                                                      ze_fence_handle_t fence) {
    struct task t = task_begin(queue, fence);
    ze_result_t result =
        ((zr_work_fn_zeCommandQueueExecuteCommandLists)below)(queue, count, lists, fence);

    task_end(&t, result);
    return result;
}

ze_result_t zr_does_zeCommandListAppendEventReset(zr_function below, ze_command_list_handle_t list,
                                                  ze_event_handle_t event) {
    struct task t = task_begin(list, NULL);
    ze_result_t result;

    zr_work_signal_unknown(event, false);
    result = ((zr_work_fn_zeCommandListAppendEventReset)below)(list, event);
    task_end(&t, result);
    return result;
}

/* --- waits ------------------------------------------------------------------------------------ */

static ze_result_t all_done(struct zr_runner *runner, uint64_t number, ze_result_t result) {
    if (runner && result == ZE_RESULT_SUCCESS)
        zr_work_prove(runner, number);
    return result;
}

#define WAITS_FOR_ALL(name, type)                                                                  \
    ze_result_t zr_does_##name(zr_function below, type handle, uint64_t timeout) {                 \
        bool later;                                                                                \
        struct zr_runner *runner = zr_work_runner(handle, &later);                                 \
        uint64_t number = runner ? zr_work_waited(runner) : 0;                                     \
                                                                                                   \
        return all_done(runner, number, ((zr_work_fn_##name)below)(handle, timeout));              \
    }
WAITS_FOR_ALL(zeCommandListHostSynchronize, ze_command_list_handle_t)
WAITS_FOR_ALL(zeCommandQueueSynchronize, ze_command_queue_handle_t)

enum { RUNNERS_MOST = 256 };
struct of_device {
    unsigned count;
    struct {
        struct zr_runner *runner;
        uint64_t number;
    } at[RUNNERS_MOST];
};

static void note_runner(struct zr_runner *runner, void *arg) {
    struct of_device *all = arg;

    if (all->count == RUNNERS_MOST)
        return;
    all->at[all->count].runner = runner;
    all->at[all->count++].number = zr_work_waited(runner);
}

/* A sub-device says nothing of the whole card. */
ze_result_t zr_does_zeDeviceSynchronize(zr_function below, ze_device_handle_t device) {
    struct of_device all = {.count = 0};
    unsigned number = zr_device_known(device);
    ze_result_t result;

    if (number != ZR_UNKNOWN_DEVICE && !zr_device_is_part(device))
        zr_work_each(number, note_runner, &all);
    result = ((zr_work_fn_zeDeviceSynchronize)below)(device);
    for (unsigned i = 0; i < all.count && result == ZE_RESULT_SUCCESS; i++)
        zr_work_prove(all.at[i].runner, all.at[i].number);
    return result;
}

static ze_result_t signal_done(const struct zr_awaited *awaited, ze_result_t result) {
    if (result == ZE_RESULT_SUCCESS)
        zr_work_awaited(awaited);
    return result;
}

#define AWAITS(name, type, object, parameters, arguments)                                          \
    ze_result_t zr_does_##name parameters {                                                        \
        struct zr_awaited awaited = zr_work_await(object);                                         \
        return signal_done(&awaited, ((zr_work_fn_##name)below)arguments);                         \
    }
AWAITS(zeFenceHostSynchronize, fence, fence,
       (zr_function below, ze_fence_handle_t fence, uint64_t timeout), (fence, timeout))
AWAITS(zeFenceQueryStatus, fence, fence, (zr_function below, ze_fence_handle_t fence), (fence))
AWAITS(zeEventHostSynchronize, event, event,
       (zr_function below, ze_event_handle_t event, uint64_t timeout), (event, timeout))
AWAITS(zeEventQueryStatus, event, event, (zr_function below, ze_event_handle_t event), (event))

/* --- what is created, changed and destroyed --------------------------------------------------- */

static void list_made(const ze_command_list_desc_t *desc, unsigned number, const void *list) {
    zr_work_list_made(list, number, false, desc->flags & LIST_IN_ORDER, false);
}

static void immediate_list_made(const ze_command_queue_desc_t *desc, unsigned number,
                                const void *list) {
    zr_work_list_made(list, number, true, desc->flags & QUEUE_IN_ORDER,
                      desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
}

static void queue_made(const ze_command_queue_desc_t *desc, unsigned number, const void *queue) {
    zr_work_queue_made(queue, number, desc->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
}

static void pool_made(const ze_event_pool_desc_t *desc, const void *pool) {
    zr_work_pool_made(pool, desc->flags & POOL_IPC, zr_chained(desc, POOL_COUNTER_BASED) != NULL);
}

void zr_submit_made(struct zr_op *op, ze_device_handle_t device, const void *desc,
                    const void *object) {
    if (!desc || !zr_work_is_watched())
        return;
    switch (op->entry) {
    case ZR_E_zeCommandListCreate:
        list_made(desc, zr_device_number(op, device), object);
        break;
    case ZR_E_zeCommandListCreateImmediate:
        immediate_list_made(desc, zr_device_number(op, device), object);
        break;
    case ZR_E_zeCommandQueueCreate:
        queue_made(desc, zr_device_number(op, device), object);
        break;
    case ZR_E_zeEventPoolCreate:
        pool_made(desc, object);
        break;
    default:
        break;
    }
}

ze_result_t zr_does_zeCommandListReset(zr_function below, ze_command_list_handle_t list) {
    ze_result_t result = ((zr_work_fn_zeCommandListReset)below)(list);

    if (result == ZE_RESULT_SUCCESS && zr_pausing())
        zr_work_list_filled(list, false);
    return result;
}

ze_result_t zr_does_zeCommandListCreateCloneExp(zr_function below, ze_command_list_handle_t list,
                                                ze_command_list_handle_t *out) {
    ze_result_t result = ((zr_work_fn_zeCommandListCreateCloneExp)below)(list, out);

    if (result == ZE_RESULT_SUCCESS)
        zr_work_list_made(*out, ZR_UNKNOWN_DEVICE, false, false, false);
    if (result == ZE_RESULT_SUCCESS && zr_pausing())
        zr_work_list_filled(*out, true);
    return result;
}

ze_result_t zr_does_zeFenceCreate(zr_function below, ze_command_queue_handle_t queue,
                                  const ze_fence_desc_t *desc, ze_fence_handle_t *out) {
    ze_result_t result = ((zr_work_fn_zeFenceCreate)below)(queue, desc, out);

    if (result == ZE_RESULT_SUCCESS)
        zr_work_fence_made(*out, desc && desc->flags & ZE_FENCE_FLAG_SIGNALED);
    return result;
}

ze_result_t zr_does_zeFenceDestroy(zr_function below, ze_fence_handle_t fence) {
    zr_work_fence_gone(fence);
    return ((zr_work_fn_zeFenceDestroy)below)(fence);
}

ze_result_t zr_does_zeFenceReset(zr_function below, ze_fence_handle_t fence) {
    ze_result_t result = ((zr_work_fn_zeFenceReset)below)(fence);

    if (result == ZE_RESULT_SUCCESS)
        zr_work_signal_reset(fence);
    return result;
}

ze_result_t zr_does_zeEventCreate(zr_function below, ze_event_pool_handle_t pool,
                                  const ze_event_desc_t *desc, ze_event_handle_t *out) {
    ze_result_t result = ((zr_work_fn_zeEventCreate)below)(pool, desc, out);

    if (result == ZE_RESULT_SUCCESS)
        zr_work_event_made(*out, pool, false);
    return result;
}

/* Counters that other processes or the program's own memory advance prove nothing. */
ze_result_t zr_does_zeEventCounterBasedCreate(zr_function below, ze_context_handle_t context,
                                              ze_device_handle_t device, void *desc,
                                              ze_event_handle_t *out) {
    enum { SHARED = 1 << 3 | 1 << 6 };
    const struct zr_ze_flags *d = desc;
    ze_result_t result = ((zr_work_fn_zeEventCounterBasedCreate)below)(context, device, desc, out);

    if (result == ZE_RESULT_SUCCESS) {
        zr_work_event_made(*out, NULL, true);
        if (d && (d->next || d->flags & SHARED))
            zr_work_signal_unknown(*out, true);
    }
    return result;
}

ze_result_t zr_does_zexCounterBasedEventCreate2(zr_function below, ze_context_handle_t context,
                                                ze_device_handle_t device, void *desc,
                                                ze_event_handle_t *out) {
    return zr_does_zeEventCounterBasedCreate(below, context, device, desc, out);
}

ze_result_t zr_does_zeEventDestroy(zr_function below, ze_event_handle_t event) {
    zr_work_event_gone(event);
    return ((zr_work_fn_zeEventDestroy)below)(event);
}

ze_result_t zr_does_zeEventHostSignal(zr_function below, ze_event_handle_t event) {
    zr_work_signal_unknown(event, false);
    return ((zr_work_fn_zeEventHostSignal)below)(event);
}

ze_result_t zr_does_zeEventHostReset(zr_function below, ze_event_handle_t event) {
    ze_result_t result = ((zr_work_fn_zeEventHostReset)below)(event);

    if (result == ZE_RESULT_SUCCESS)
        zr_work_signal_reset(event);
    return result;
}

ze_result_t zr_does_zeEventPoolGetIpcHandle(zr_function below, ze_event_pool_handle_t pool,
                                            void *out) {
    zr_work_pool_shared(pool);
    return ((zr_work_fn_zeEventPoolGetIpcHandle)below)(pool, out);
}

/* --- kernels, for pause alone ----------------------------------------------------------------- */

ze_result_t zr_does_zeKernelSetArgumentValue(zr_function below, ze_kernel_handle_t kernel,
                                             uint32_t index, size_t size, const void *value) {
    zr_work_fn_zeKernelSetArgumentValue set = (zr_work_fn_zeKernelSetArgumentValue)below;
    uintptr_t pointer = 0;
    ze_result_t result;

    if (!zr_pausing() || is_own_work())
        return set(kernel, index, size, value);
    ZR_WITHIN(ZR_GATE_WORK);
    result = set(kernel, index, size, value);
    if (result != ZE_RESULT_SUCCESS)
        return result;
    if (value && size == sizeof pointer)
        memcpy(&pointer, value, sizeof pointer);
    zr_pause_argument(kernel, index, (const void *)pointer, below);
    return result;
}

ze_result_t zr_does_zeKernelDestroy(zr_function below, ze_kernel_handle_t kernel) {
    ZR_WITHIN(ZR_GATE_WORK);
    if (zr_pausing())
        zr_pause_kernel_gone(kernel);
    return ((zr_work_fn_zeKernelDestroy)below)(kernel);
}
