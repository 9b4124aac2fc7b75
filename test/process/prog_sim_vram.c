/* VRAM of 64 MiB runs out or spills; everything that tells free memory agrees. */
#include "sim.h"
#include <level_zero/zes_api.h>

static struct gpu gpu;

static uint64_t free_by_sysman(void) {
    zes_device_handle_t device = (zes_device_handle_t)gpu.card[0];
    zes_mem_handle_t module;
    zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};
    uint32_t one = 1;
    OK(zesDeviceEnumMemoryModules(device, &one, &module));
    OK(zesMemoryGetState(module, &state));
    EXPECT(state.size == 64 * MIB);
    return state.free;
}

static uint64_t free_memory(void) {
    struct usable of_memory = USABLE;
    ze_device_memory_properties_t memory = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES, .pNext = &of_memory};
    uint64_t usable = usable_memory(gpu.card[0]);
    uint32_t one = 1;
    OK(zeDeviceGetMemoryProperties(gpu.card[0], &one, &memory));
    EXPECT(memory.totalSize == 64 * MIB);
    EXPECT(usable == of_memory.bytes);
    EXPECT(usable == free_by_sysman());
    return usable;
}

static void runs_out(void) {
    void *p[40], *q = NULL;
    int n = 0;
    EXPECT(free_memory() == 64 * MIB);
    while (n < 40 && zeMemAllocDevice(gpu.context, &device_desc, 2 * MIB, 0, gpu.card[0], &p[n]) == ZE_RESULT_SUCCESS)
        n++;
    EXPECT(n == 32 && free_memory() == 0);
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, zeMemAllocDevice(gpu.context, &device_desc, 1, 0, gpu.card[0], &q));
    EXPECT(q == NULL);
    OK(zeMemFree(gpu.context, p[--n]));
    q = on_card(&gpu, 0, 1);
    OK(zeMemFree(gpu.context, q));
    p[n++] = on_card(&gpu, 0, 2 * MIB); /* the empty slab is given back for it */
    while (n)
        OK(zeMemFree(gpu.context, p[--n]));
    EXPECT(free_memory() == 64 * MIB);
}

static void spills(void) {
    char *p = on_card(&gpu, 0, 96 * MIB);
    p[96 * MIB - 1] = 1;
    EXPECT(figure(&gpu, "system.0") == 96 * MIB);
    EXPECT(free_memory() == 64 * MIB);
    EXPECT(gpu_active() == (int64_t)(96 * MIB));
    EXPECT(in_fdinfo(0, "drm-total-system") == (int64_t)(96 * MIB));
    OK(zeMemFree(gpu.context, p));
    EXPECT(figure(&gpu, "system.0") == 0 && gpu_active() == 0);
}

int main(int argc, char **argv) {
    gpu = first_gpu();
    if (argc > 1 && strcmp(argv[1], "spill") == 0)
        spills();
    else
        runs_out();
    return 0;
}
