/*
 * A card whose memory has several parts: regions of the core API, modules of Sysman. One limit holds for all of them,
 * and what is told of them adds up to it. One promise per run, named by the first argument.
 */
#include "sim.h"

#include <level_zero/zes_api.h>

enum { PARTS = 4, MOST = 16 };
static struct gpu gpu;

static ze_result_t ask(uint32_t ordinal, size_t size, void **p) {
    ze_device_mem_alloc_desc_t desc = device_desc;

    desc.ordinal = ordinal;
    return zeMemAllocDevice(gpu.context, &desc, size, 0, gpu.card[0], p);
}

/* All of the card's parts: what its regions have, and what is free in its modules. */
static void tells(const size_t *total, const size_t *free) {
    ze_device_memory_ext_properties_t more[PARTS];
    ze_device_memory_properties_t region[PARTS];
    zes_mem_handle_t module[PARTS];
    uint32_t regions = PARTS, modules = PARTS;

    for (int i = 0; i < PARTS; i++) {
        more[i] = (ze_device_memory_ext_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES};
        region[i] =
            (ze_device_memory_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES, .pNext = &more[i]};
    }
    OK(zeDeviceGetMemoryProperties(gpu.card[0], &regions, region));
    OK(zesDeviceEnumMemoryModules(gpu.card[0], &modules, module));
    EXPECT(regions == PARTS && modules == PARTS);
    for (int i = 0; i < PARTS; i++) {
        zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};

        OK(zesMemoryGetState(module[i], &state));
        printf("%d: %zu %zu, %zu %zu MiB\n", i, region[i].totalSize / MIB, more[i].physicalSize / MIB, state.size / MIB,
               state.free / MIB);
        EXPECT(region[i].totalSize == total[i] * MIB && more[i].physicalSize == total[i] * MIB);
        EXPECT(state.size == free[0] * MIB && state.free == free[1] * MIB);
    }
}

/* 1 GiB in four parts, and a limit of 640 MiB, by bytes or as a part of all of it. */
static void told(void) {
    const size_t total[PARTS] = {256, 256, 128, 0};
    void *p;

    tells(total, (size_t[]){160, 160});
    OK(ask(2, 320 * MIB, &p));
    tells(total, (size_t[]){160, 80});
    OK(zeMemFree(gpu.context, p));
    tells(total, (size_t[]){160, 160});
}

/* Sixteen parts: a limit in percent is one of all of them. */
static void part_of_all(void) {
    void *p = NULL, *q = &gpu;

    OK(ask(15, 500 * MIB, &p));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, ask(0, 20 * MIB, &q));
    OK(ask(1, 12 * MIB, &q));
}

/* 64 MiB of all parts together; what is kept of one makes room in another, and is no block of it. */
static void counted(void) {
    void *p = NULL, *q = &gpu;

    OK(ask(0, 40 * MIB, &p));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, ask(1, 40 * MIB, &q));
    OK(zeMemFree(gpu.context, p));
    OK(ask(1, 40 * MIB, &q));
    EXPECT(figure(&gpu, "calls.zeMemAllocDevice") == 2 && figure(&gpu, "calls.zeMemFree") == 1);
    OK(zeMemFree(gpu.context, q));
    OK(ask(0, 8 * MIB, &p));
    OK(ask(1, 40 * MIB, &q));
    EXPECT(figure(&gpu, "calls.zeMemAllocDevice") == 3);
}

static zes_mem_state_t state_of(unsigned card, uint32_t part, uint32_t asked_for) {
    zes_mem_handle_t module[MOST];
    zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};

    OK(zesDeviceEnumMemoryModules(gpu.card[card], &asked_for, module));
    OK(zesMemoryGetState(module[part], &state));
    return state;
}

/* Whoever asks for the first module only has not got the whole limit. */
static void asked_for_one(void) {
    EXPECT(state_of(0, 0, 1).size == 160 * MIB);
    EXPECT(state_of(0, 3, PARTS).size == 160 * MIB);
    EXPECT(state_of(0, 0, PARTS).size == 160 * MIB);
}

/*
 * Eight cards of sixteen modules are more than are remembered: one that is not known may be of any card. So what every
 * card keeps goes first, and the answer is that of the card with the least left. 32 MiB each.
 */
static void unknown(void) {
    for (unsigned card = 0; card < gpu.cards; card++)
        EXPECT(state_of(card, 0, MOST).size == (card < 4 ? 2 : 32) * MIB);
    OK(zeMemFree(gpu.context, on_card(&gpu, 7, 8 * MIB)));
    OK(zeMemFree(gpu.context, on_card(&gpu, 0, 8 * MIB)));
    EXPECT(state_of(1, 0, MOST).free == 2 * MIB); /* another card's: nothing to do with these two */
    EXPECT(figure(&gpu, "vram.0") == 8 * MIB && figure(&gpu, "vram.7") == 8 * MIB);
    EXPECT(state_of(7, 15, MOST).free == 32 * MIB);
    EXPECT(figure(&gpu, "vram.0") == 0 && figure(&gpu, "vram.7") == 0);
    on_card(&gpu, 2, 8 * MIB);
    EXPECT(state_of(7, 15, MOST).free == 24 * MIB && state_of(1, 0, MOST).free == 2 * MIB);
    EXPECT(state_of(2, 0, MOST).free == 24 * MIB / 16);
}

static const struct part all[] = {PART(told),          PART(part_of_all), PART(counted),
                                  PART(asked_for_one), PART(unknown),     {NULL, NULL}};

int main(int argc, char **argv) {
    gpu = first_gpu();
    return run_part(all, argc, argv);
}
