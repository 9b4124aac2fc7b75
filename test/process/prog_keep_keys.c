/* Keys: a cached block serves requests like the one it was made for, and none that differs in a property. */
#include "keep.h"

#include <signal.h>
#include <sys/time.h>

/*
 * A program asks for the same again and again, and then for something else: another card, alignment, size, a chained
 * structure. It gets what it asks for each time, and every call is counted (test_keep.c).
 */
enum { STEADY_ROUNDS = 3000 };

static void *ask(const void *next, size_t size, size_t alignment, unsigned card) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, .pNext = next};
    void *p = NULL;

    OK(zeMemAllocDevice(gpu.context, &desc, size, alignment, gpu.card[card], &p));
    return p;
}

static void steady(void) {
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {.stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
                                                       .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    void *first = ask(NULL, 64 * KIB, 0, 0); /* so that no other one is aligned by chance */
    uint64_t before = 0;

    for (unsigned i = 0; i < STEADY_ROUNDS; i++) {
        /* Each kind is asked for 16 times in a row. */
        unsigned kind = i / 16 % 5, card = kind == 1;
        size_t size = kind == 2 ? 192 * KIB : 64 * KIB, alignment = kind == 3 ? MIB : 0;
        ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
        ze_device_handle_t device = NULL;
        size_t range = 0;
        void *p = ask(kind == 4 ? &relaxed : NULL, size, alignment, card);

        EXPECT(!alignment || (uintptr_t)p % alignment == 0);
        OK(zeMemGetAllocProperties(gpu.context, p, &properties, &device));
        EXPECT(device == gpu.card[card]);
        OK(zeMemGetAddressRange(gpu.context, p, NULL, &range));
        EXPECT(range == size);
        release(p);
        EXPECT(zeMemFree(gpu.context, p) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
        if (i == 16 * 5)
            before = allocs();
    }
    EXPECT(allocs() == before);
    release(first);
}

static void another_key(void) {
    struct extension unknown = {0x7fff0001, NULL};
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {.stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
                                                       .pNext = &unknown,
                                                       .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    ze_device_mem_alloc_desc_t desc[4] = {device_desc, device_desc, device_desc, device_desc};
    ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t other;
    void *kept = settled(), *p;

    desc[0].pNext = &unknown;
    desc[1].pNext = &relaxed;
    desc[2].ordinal = 1;
    desc[3].stype = 0x7fff0001;
    for (int i = 0; i < 4; i++) {
        uint64_t before = allocs();

        EXPECT(settled() == kept && allocs() == before);
        if (request(gpu.context, &desc[i], gpu.card[0], &p) == ZE_RESULT_SUCCESS)
            EXPECT(p != kept);
        EXPECT(allocs() == before + 1);
        if (i != 1)
            continue;
        before = frees();
        release(p);
        EXPECT(frees() == before + 1); /* passed by, so it is not kept either */
    }
    settled();
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_POINTER, request(gpu.context, &device_desc, gpu.card[0], NULL));
    settled();
    OK(zeContextCreate(gpu.driver, &context_desc, &other));
    OK(request(other, &device_desc, gpu.card[0], &p));
    EXPECT(p != kept);
    OK(zeMemFree(other, p));
    OK(zeContextDestroy(other));
    EXPECT(settled() == kept);
}

/* After requests with and without relaxed limits: the driver judges each value. */
static void no_alignment(void) {
    static const size_t alignment[] = {3, SIZE_MAX, SIZE_MAX - 1};
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {.stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
                                                       .flags = ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE};
    ze_device_mem_alloc_desc_t desc[2] = {device_desc, device_desc};

    desc[1].pNext = &relaxed;
    for (int i = 0; i < 6; i++) {
        void *p;

        OK(request(gpu.context, &desc[i / 3], gpu.card[0], &p));
        release(p);
        GIVES(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT,
              zeMemAllocDevice(gpu.context, &device_desc, 3 * MIB, alignment[i % 3], gpu.card[0], &p));
    }
}

/*
 * A signal handler that allocates and frees in the middle of calls that are served from the cache: every other time in
 * another context, else as the program does, each time a little more, so that each is a new peak. Not while the program
 * has a block: both together would be the peak for good.
 */
enum { SIGNALS = 4000, MOST = 100000 };
static ze_context_handle_t others;
static volatile unsigned signals, more, holds;

static void *grow(ze_context_handle_t context) {
    void *p = NULL;

    more += more < MOST;
    OK(zeMemAllocDevice(context, &device_desc, 2 * MIB + more, 0, gpu.card[0], &p));
    return p;
}

static void come_between(int signal) {
    (void)signal;
    for (int i = 0; i < 3 && !holds; i++) {
        ze_context_handle_t context = signals % 2 ? others : gpu.context;

        OK(zeMemFree(context, grow(context)));
    }
    signals++;
}

static void interrupted(void) {
    ze_context_desc_t context_desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    void *kept = grow(gpu.context), *p;

    release(kept);
    OK(zeContextCreate(gpu.driver, &context_desc, &others));
    OK(zeMemFree(others, grow(others)));
    EXPECT(signal(SIGALRM, come_between) != SIG_ERR && setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (signals < SIGNALS) {
        p = grow(gpu.context);
        holds = 1;
        EXPECT(p == kept);
        release(p);
        holds = 0;
    }
    EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0);
    OK(zeContextDestroy(others));
}

/* Each card, and each tile of it, gets memory of its own. With tiles:2. */
static void many_devices(void) {
    ze_device_handle_t device[24], owner;
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    unsigned n = 0;
    void *p;

    for (unsigned i = 0; i < gpu.cards; i++) {
        uint32_t two = 2;

        device[n++] = gpu.card[i];
        OK(zeDeviceGetSubDevices(gpu.card[i], &two, &device[n]));
        n += two;
    }
    EXPECT(n == 24);
    for (unsigned i = 0; i < 20 * n; i++) {
        OK(request(gpu.context, &device_desc, device[i % n], &p));
        OK(zeMemGetAllocProperties(gpu.context, p, &properties, &owner));
        EXPECT(owner == device[i % n]);
        release(p);
    }
}

static const struct part all[] = {PART(steady),      PART(another_key),  PART(no_alignment),
                                  PART(interrupted), PART(many_devices), {NULL, NULL}};

int main(int argc, char **argv) {
    gpu = first_gpu();
    return run_part(all, argc, argv);
}
