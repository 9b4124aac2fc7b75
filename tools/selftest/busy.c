/* Operations of the random sequence that run while others do: several threads, and frees while commands run. */
#include "selftest/calls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* --- several threads -------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 12, SAMPLE = 4096, LARGEST = 3 };

struct thread {
    unsigned device;
    size_t sizes[ROUNDS];
    unsigned failures, wrong;
    void *left; /* freed by another thread */
    pthread_t thread;
};

/* A block of its own at a time, written and read back. Device memory alone: the driver's locks of shared deadlock. */
static void thread_round(struct thread *t, ze_command_list_handle_t list, size_t size, unsigned round) {
    ze_device_mem_alloc_desc_t d = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    unsigned char from[SAMPLE], to[SAMPLE] = {0};
    size_t n = size < SAMPLE ? size : SAMPLE;
    void *p = NULL;

    if (ze.zeMemAllocDevice(zr_calls.contexts[0], &d, size, 0, zr_calls.devices[t->device], &p)) {
        t->failures++;
        return;
    }
    memset(from, (int)(round * 16 + t->device + 1), n);
    if (ze.zeCommandListAppendMemoryCopy(list, p, from, n, NULL, 0, NULL) ||
        ze.zeCommandListAppendMemoryCopy(list, to, p, n, NULL, 0, NULL))
        t->failures++;
    else
        t->wrong += memcmp(from, to, n) != 0;
    if (round == ROUNDS - 1)
        t->left = p;
    else
        t->failures += ze.zeMemFree(zr_calls.contexts[0], p) != ZE_RESULT_SUCCESS;
}

static void *thread_main(void *of) {
    struct thread *t = of;
    ze_command_list_handle_t list;

    if (zr_level_zero_list(zr_calls.contexts[0], zr_calls.devices[t->device], ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
                           &list)) {
        t->failures++;
        return NULL;
    }
    for (unsigned i = 0; i < ROUNDS; i++)
        thread_round(t, list, t->sizes[i], i);
    ze.zeCommandListDestroy(list);
    return NULL;
}

void zr_calls_threads(void) {
    static struct thread threads[THREADS];
    unsigned failures = 0, wrong = 0, started = 0;
    uint64_t all = 0;

    for (unsigned i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.device = (unsigned)zr_below(zr_calls.device_count)};
        for (unsigned k = 0; k < ROUNDS; k++) {
            threads[i].sizes[k] = 1 + zr_below(zr_below(2) ? 64 * KIB : LARGEST * MIB);
            all += threads[i].sizes[k];
        }
    }
    if (!zr_calls_may_take(all))
        return;
    while (started < THREADS && !pthread_create(&threads[started].thread, NULL, thread_main, &threads[started]))
        started++;
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i].thread, NULL);
    for (unsigned i = 0; i < started; i++) {
        if (threads[i].left)
            threads[i].failures += ze.zeMemFree(zr_calls.contexts[0], threads[i].left) != ZE_RESULT_SUCCESS;
        failures += threads[i].failures;
        wrong += threads[i].wrong;
    }
    zr_out(" %u threads: %u failures %u wrong", started, failures, wrong);
}

/* --- freed while a command may still use it ---------------------------------------------------- */

/*
 * A block that is being copied is freed with a policy that waits for commands, or defers; one of the same size comes
 * and is filled. What was copied must be what the first one held.
 */
void zr_calls_early(void) {
    ze_memory_free_ext_desc_t how = {ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, NULL,
                                     ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};
    ze_device_mem_alloc_desc_t d = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t h = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    unsigned device = (unsigned)zr_below(zr_calls.device_count);
    size_t size = 64 * KIB + zr_below(2 * MIB);
    unsigned char old = (unsigned char)(1 + zr_below(100)), new = (unsigned char)(101 + zr_below(100));
    ze_context_handle_t c = zr_calls.contexts[0];
    ze_command_list_handle_t list = NULL;
    void *first = NULL, *second = NULL, *host = NULL;
    unsigned bad = 0;
    ze_result_t r;

    if (zr_below(2))
        how.freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
    if (!ze.zeCommandListHostSynchronize || !zr_calls_may_take(3 * size))
        return;
    r = zr_level_zero_list(c, zr_calls.devices[device], ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, &list);
    if (!r)
        r = ze.zeMemAllocHost(c, &h, size, 0, &host);
    if (!r)
        r = ze.zeMemAllocDevice(c, &d, size, 0, zr_calls.devices[device], &first);
    if (!r)
        r = ze.zeCommandListAppendMemoryFill(zr_calls.lists[device], first, &old, 1, size, NULL, 0, NULL);
    if (!r)
        r = ze.zeCommandListAppendMemoryCopy(list, host, first, size, NULL, 0, NULL);
    zr_out(" %zu on %u: %#x", size, device, r);
    if (first)
        zr_out(" free%u %#x", how.freePolicy, ze.zeMemFreeExt(c, &how, first));
    if (!r) {
        r = ze.zeMemAllocDevice(c, &d, size, 0, zr_calls.devices[device], &second);
        if (!r)
            r = ze.zeCommandListAppendMemoryFill(zr_calls.lists[device], second, &new, 1, size, NULL, 0, NULL);
        zr_out(" %#x", r);
        r = ze.zeCommandListHostSynchronize(list, UINT64_MAX);
        for (size_t i = 0; i < size; i++)
            bad += ((unsigned char *)host)[i] != old;
        zr_out(" %#x %u wrong", r, bad);
    }
    if (second)
        zr_out(" free %#x", ze.zeMemFree(c, second));
    if (host)
        ze.zeMemFree(c, host);
    if (list)
        ze.zeCommandListDestroy(list);
}
