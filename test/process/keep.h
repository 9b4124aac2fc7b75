/*
 * What the programs of test_keep.c share: a GPU whose driver counts calls, and call sites that are known to ask for
 * one block. Each program has several parts: one promise per run, named by the first argument.
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

/* A call site that is known to ask for this block, and for once asks for something else. */
static __attribute__((noinline, unused)) ze_result_t site_aligned(ze_context_handle_t context,
                                                                  const ze_device_mem_alloc_desc_t *desc,
                                                                  size_t alignment, ze_device_handle_t device,
                                                                  void **p) {
    ze_result_t result = zeMemAllocDevice(context, desc, 3 * MIB, alignment, device, p);

    __asm__ volatile("" : "+r"(result)); /* no tail call: the return address is what a site is known by */
    return result;
}

static inline ze_result_t site(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc,
                               ze_device_handle_t device, void **p) {
    return site_aligned(context, desc, 0, device, p);
}

static inline void *settled(void) {
    void *p = NULL;

    for (int i = 0; i < 20; i++) {
        OK(site(gpu.context, &device_desc, gpu.card[0], &p));
        release(p);
    }
    return p;
}

/* Larger than what the driver takes from slabs, which are resident as a whole. */
#define BLOCK (4 * MIB)

#endif
