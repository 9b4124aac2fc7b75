/*
 * Allocations of mixed kinds, sizes, alignments, cards and contexts, at most 192 of them live at once. Prints how much
 * anonymous memory the process has at the end, in KiB; that of the simulated cards is not among it. Argument: how many.
 */
#include "sim.h"

enum { LIVE = 192, CONTEXTS = 24 };

static struct gpu gpu;
static ze_context_handle_t context[CONTEXTS];
static struct {
    void *p;
    unsigned in;
} live[LIVE];
static unsigned in_context[CONTEXTS];
static uint32_t seed = 1;

static uint32_t draw(uint32_t below) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static long anonymous_kib(void) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;

    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "RssAnon: %ld kB", &kib) == 1)
            break;
    EXPECT(status && kib > 0);
    fclose(status);
    return kib;
}

static void new_context(unsigned i) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};

    OK(zeContextCreate(gpu.driver, &desc, &context[i]));
}

/* Any size: most programs have few, and each of these is a bin of its own. */
static size_t any_size(void) {
    switch (draw(4)) {
    case 0:
        return 1 + draw(64 << 10);
    case 1:
        return 1 + draw(1 << 20);
    default:
        return (size_t)(1 + draw(24 << 10)) << 10;
    }
}

static void *take(ze_context_handle_t in) {
    ze_device_mem_alloc_desc_t device = device_desc;
    size_t size = any_size(), alignment = draw(2) ? 0 : (size_t)1 << draw(22);
    ze_device_handle_t card = gpu.card[draw(gpu.cards)];
    void *p = NULL;

    device.flags = draw(3) ? 0 : ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_UNCACHED;
    switch (draw(6)) {
    case 0:
        OK(zeMemAllocHost(in, &host_desc, size, alignment, &p));
        break;
    case 1:
        OK(zeMemAllocShared(in, &device, &host_desc, size, alignment, card, &p));
        break;
    default:
        OK(zeMemAllocDevice(in, &device, size, alignment, card, &p));
        if (draw(8) == 0)
            OK(zeContextMakeMemoryResident(in, gpu.card[draw(gpu.cards)], p, size));
    }
    return p;
}

static void give(unsigned i) {
    if (!live[i].p)
        return;
    OK(zeMemFree(context[live[i].in], live[i].p));
    in_context[live[i].in]--;
    live[i].p = NULL;
}

static void step(void) {
    unsigned i = draw(LIVE), in = draw(CONTEXTS);

    give(i);
    if (draw(64) == 0 && !in_context[in]) {
        OK(zeContextDestroy(context[in]));
        new_context(in);
    }
    live[i].p = take(context[in]);
    live[i].in = in;
    in_context[in]++;
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 100000;

    gpu = first_gpu();
    for (unsigned i = 0; i < CONTEXTS; i++)
        new_context(i);
    for (int i = 0; i < steps; i++)
        step();
    printf("%ld KiB\n", anonymous_kib());
    for (unsigned i = 0; i < LIVE; i++)
        give(i);
    for (unsigned i = 0; i < CONTEXTS; i++)
        OK(zeContextDestroy(context[i]));
    return 0;
}
