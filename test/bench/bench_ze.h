/* Level Zero up to a context that holds every card, for benchmarks that allocate. */
#ifndef ZEROUTE_BENCH_ZE_H
#define ZEROUTE_BENCH_ZE_H

#include "bench.h"

#include <level_zero/ze_api.h>

enum { CARDS = 8 };
static const ze_device_mem_alloc_desc_t plain_desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
static ze_context_handle_t context;
static ze_device_handle_t cards[CARDS];
static uint32_t card_count = CARDS;

static __attribute__((noinline, cold)) void failed(const char *what, ze_result_t r) {
    fprintf(stderr, "%s: 0x%x\n", what, r);
    exit(1);
}

static inline void must(const char *what, ze_result_t r) {
    if (__builtin_expect(r != ZE_RESULT_SUCCESS, 0))
        failed(what, r);
}
#define MUST(call) must(#call, call)

static inline void open_cards(void) {
    ze_context_desc_t d = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    ze_driver_handle_t driver;
    uint32_t one = 1;

    MUST(zeInit(0));
    MUST(zeDriverGet(&one, &driver));
    MUST(zeDeviceGet(driver, &card_count, cards));
    MUST(zeContextCreate(driver, &d, &context));
}

static inline void *take(size_t size) {
    void *p = NULL;

    MUST(zeMemAllocDevice(context, &plain_desc, size, 0, cards[0], &p));
    return p;
}

/* As SYCL's runtime does: on the owner and on every other card of the context. */
static inline void spread(void *p, size_t size) {
    for (uint32_t i = 0; i < card_count; i++)
        MUST(zeContextMakeMemoryResident(context, cards[i], p, size));
}

static inline void give(void *p) {
    MUST(zeMemFree(context, p));
}

#endif
