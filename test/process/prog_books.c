/*
 * One run through everything that is booked apart from plain allocations: residency on owner and peer, virtual and
 * physical memory, export and import, failures. Two devices of one driver in one context.
 */
#include "sim.h"

static struct gpu gpu;

static void resident(void) {
    char *p = on_card(&gpu, 0, 4 * MIB);

    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, 4 * MIB));
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, 4 * MIB));
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p + MIB, MIB)); /* an inner address */
    OK(zeContextEvictMemory(gpu.context, gpu.card[1], p, 4 * MIB));
    OK(zeContextEvictMemory(gpu.context, gpu.card[0], p, 4 * MIB));
    OK(zeMemFree(gpu.context, p));
}

static void copy_across(void) {
    ze_command_list_handle_t list = immediate(&gpu, 1, true);
    char *data = malloc(MIB), *back = calloc(1, MIB);
    void *from = on_card(&gpu, 0, MIB), *to = on_card(&gpu, 1, MIB);

    for (size_t i = 0; i < MIB; i++)
        data[i] = (char)(i * 31);
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], from, MIB));
    OK(zeCommandListAppendMemoryCopy(list, from, data, MIB, NULL, 0, NULL));
    OK(zeCommandListAppendMemoryCopy(list, to, from, MIB, NULL, 0, NULL));
    OK(zeCommandListAppendMemoryCopy(list, back, to, MIB, NULL, 0, NULL));
    if (memcmp(data, back, MIB) != 0) {
        puts("data differ");
        exit(1);
    }
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(gpu.context, from));
    OK(zeMemFree(gpu.context, to));
    free(data);
    free(back);
}

static void virtual_memory(void) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 2 * MIB};
    ze_physical_mem_handle_t physical;
    char *p;

    OK(zeVirtualMemReserve(gpu.context, NULL, 8 * MIB, (void **)&p));
    OK(zePhysicalMemCreate(gpu.context, gpu.card[1], &desc, &physical));
    OK(zeVirtualMemMap(gpu.context, p + 2 * MIB, 2 * MIB, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    OK(zeVirtualMemUnmap(gpu.context, p + 2 * MIB, 2 * MIB));
    OK(zePhysicalMemDestroy(gpu.context, physical));
    OK(zeVirtualMemFree(gpu.context, p, 8 * MIB));
}

static void sharing(void) {
    void *p = on_card(&gpu, 0, 3 * MIB), *opened;
    ze_ipc_mem_handle_t handle;

    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    OK(zeMemOpenIpcHandle(gpu.context, gpu.card[0], handle, 0, &opened));
    OK(zeMemCloseIpcHandle(gpu.context, opened));
    OK(zeMemFree(gpu.context, p));
}

static void failures(void) {
    int local;
    void *p = NULL;

    if (zeMemAllocDevice(gpu.context, &device_desc, (size_t)1 << 60, 0, gpu.card[0], &p) == ZE_RESULT_SUCCESS ||
        zeMemFree(gpu.context, &local) == ZE_RESULT_SUCCESS) {
        puts("something succeeded that cannot");
        exit(1);
    }
}

int main(void) {
    gpu = first_gpu();
    resident();
    copy_across();
    virtual_memory();
    sharing();
    failures();
    OK(zeContextDestroy(gpu.context));
    return 0;
}
