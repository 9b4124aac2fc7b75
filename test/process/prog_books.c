/*
 * One run through everything that is booked apart from plain allocations: residency on owner and peer, virtual and
 * physical memory, export and import, failures. Two devices of one driver in one context.
 */
#include "sim.h"

static ze_context_handle_t context;
static ze_device_handle_t device[8];

static void *allocate(size_t size, int owner)
{
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *p;

    OK(zeMemAllocDevice(context, &desc, size, 0, device[owner], &p));
    return p;
}

static void resident(void)
{
    char *p = allocate(4 * MIB, 0);

    OK(zeContextMakeMemoryResident(context, device[0], p, 4 * MIB));
    OK(zeContextMakeMemoryResident(context, device[1], p, 4 * MIB));
    OK(zeContextMakeMemoryResident(context, device[1], p + MIB, MIB)); /* an inner address */
    OK(zeContextEvictMemory(context, device[1], p, 4 * MIB));
    OK(zeContextEvictMemory(context, device[0], p, 4 * MIB));
    OK(zeMemFree(context, p));
}

static void copy_across(void)
{
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    ze_command_list_handle_t list;
    char *data = malloc(MIB), *back = calloc(1, MIB);
    void *from = allocate(MIB, 0), *to = allocate(MIB, 1);

    for (size_t i = 0; i < MIB; i++)
        data[i] = (char)(i * 31);
    OK(zeContextMakeMemoryResident(context, device[1], from, MIB));
    OK(zeCommandListCreateImmediate(context, device[1], &queue, &list));
    OK(zeCommandListAppendMemoryCopy(list, from, data, MIB, NULL, 0, NULL));
    OK(zeCommandListAppendMemoryCopy(list, to, from, MIB, NULL, 0, NULL));
    OK(zeCommandListAppendMemoryCopy(list, back, to, MIB, NULL, 0, NULL));
    if (memcmp(data, back, MIB) != 0) {
        puts("data differ");
        exit(1);
    }
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(context, from));
    OK(zeMemFree(context, to));
    free(data);
    free(back);
}

static void virtual_memory(void)
{
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 2 * MIB};
    ze_physical_mem_handle_t physical;
    char *p;

    OK(zeVirtualMemReserve(context, NULL, 8 * MIB, (void **)&p));
    OK(zePhysicalMemCreate(context, device[1], &desc, &physical));
    OK(zeVirtualMemMap(context, p + 2 * MIB, 2 * MIB, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    OK(zeVirtualMemUnmap(context, p + 2 * MIB, 2 * MIB));
    OK(zePhysicalMemDestroy(context, physical));
    OK(zeVirtualMemFree(context, p, 8 * MIB));
}

static void sharing(void)
{
    void *p = allocate(3 * MIB, 0), *opened;
    ze_ipc_mem_handle_t handle;

    OK(zeMemGetIpcHandle(context, p, &handle));
    OK(zeMemGetIpcHandle(context, p, &handle));
    OK(zeMemOpenIpcHandle(context, device[0], handle, 0, &opened));
    OK(zeMemCloseIpcHandle(context, opened));
    OK(zeMemFree(context, p));
}

static void failures(void)
{
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    int local;
    void *p = NULL;

    if (zeMemAllocDevice(context, &desc, (size_t)1 << 60, 0, device[0], &p) == ZE_RESULT_SUCCESS ||
        zeMemFree(context, &local) == ZE_RESULT_SUCCESS) {
        puts("something succeeded that cannot");
        exit(1);
    }
}

int main(void)
{
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_driver_handle_t driver;
    uint32_t drivers = 1, devices = 8;

    OK(zeInit(0));
    OK(zeDriverGet(&drivers, &driver));
    OK(zeDeviceGet(driver, &devices, device));
    OK(zeContextCreate(driver, &desc, &context));
    resident();
    copy_across();
    virtual_memory();
    sharing();
    failures();
    OK(zeContextDestroy(context));
    return 0;
}
