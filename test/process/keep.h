/*
 * What the programs of test_keep.c share: a GPU whose driver counts calls, and requests that are all alike but for one
 * property. Each program has several parts: one promise per run, named by the first argument.
 */
#ifndef TEST_PROCESS_KEEP_H
#define TEST_PROCESS_KEEP_H

#include "sim.h"

static struct gpu gpu;

static inline uint64_t allocs(void) {
    return figure(&gpu, "calls.zeMemAllocDevice");
}

static inline uint64_t frees(void) {
    return figure(&gpu, "calls.zeMemFree");
}

static inline uint64_t ext_frees(void) {
    return figure(&gpu, "calls.zeMemFreeExt");
}

/* Of a kind that nobody knows, to be chained to a descriptor. */
struct extension {
    uint32_t stype;
    const void *next;
};

static inline void release(void *p) {
    OK(zeMemFree(gpu.context, p));
}

static inline ze_result_t request(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc,
                                  ze_device_handle_t device, void **p) {
    return zeMemAllocDevice(context, desc, 3 * MIB, 0, device, p);
}

/* The block that such a request is served with from now on. */
static inline void *settled(void) {
    void *p = NULL;

    OK(request(gpu.context, &device_desc, gpu.card[0], &p));
    release(p);
    return p;
}

/* Larger than what the driver takes from slabs, which are resident as a whole. */
#define BLOCK (4 * MIB)

#endif
