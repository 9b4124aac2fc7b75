/*
 * One run through everything that is booked apart from plain allocations: residency on owner and peer, virtual and
 * physical memory, export and import, failures. Two devices of one driver in one context.
 */
#include <level_zero/ze_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20 };

#define CHECK(call)                                                                                \
    do {                                                                                           \
        ze_result_t result_ = (call);                                                              \
        if (result_ != ZE_RESULT_SUCCESS) {                                                        \
            printf("%s: %#x\n", #call, (unsigned)result_);                                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static ze_context_handle_t context;
static ze_device_handle_t device[8];

static void *allocate(size_t size, int owner)
{
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *p;

    CHECK(zeMemAllocDevice(context, &desc, size, 0, device[owner], &p));
    return p;
}

static void residency(void)
{
    char *p = allocate(4 * MIB, 0);

    CHECK(zeContextMakeMemoryResident(context, device[0], p, 4 * MIB));
    CHECK(zeContextMakeMemoryResident(context, device[1], p, 4 * MIB));
    CHECK(zeContextMakeMemoryResident(context, device[1], p + MIB, MIB)); /* an inner address */
    CHECK(zeContextEvictMemory(context, device[1], p, 4 * MIB));
    CHECK(zeContextEvictMemory(context, device[0], p, 4 * MIB));
    CHECK(zeMemFree(context, p));
}

static void copy_across(void)
{
    ze_command_queue_desc_t queue = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    ze_command_list_handle_t list;
    char *data = malloc(MIB), *back = calloc(1, MIB);
    void *from = allocate(MIB, 0), *to = allocate(MIB, 1);

    for (int i = 0; i < MIB; i++)
        data[i] = (char)(i * 31);
    CHECK(zeContextMakeMemoryResident(context, device[1], from, MIB));
    CHECK(zeCommandListCreateImmediate(context, device[1], &queue, &list));
    CHECK(zeCommandListAppendMemoryCopy(list, from, data, MIB, NULL, 0, NULL));
    CHECK(zeCommandListAppendMemoryCopy(list, to, from, MIB, NULL, 0, NULL));
    CHECK(zeCommandListAppendMemoryCopy(list, back, to, MIB, NULL, 0, NULL));
    if (memcmp(data, back, MIB) != 0) {
        puts("data differ");
        exit(1);
    }
    CHECK(zeCommandListDestroy(list));
    CHECK(zeMemFree(context, from));
    CHECK(zeMemFree(context, to));
    free(data);
    free(back);
}

static void virtual_memory(void)
{
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 2 * MIB};
    ze_physical_mem_handle_t physical;
    char *p;

    CHECK(zeVirtualMemReserve(context, NULL, 8 * MIB, (void **)&p));
    CHECK(zePhysicalMemCreate(context, device[1], &desc, &physical));
    CHECK(zeVirtualMemMap(context, p + 2 * MIB, 2 * MIB, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    CHECK(zeVirtualMemUnmap(context, p + 2 * MIB, 2 * MIB));
    CHECK(zePhysicalMemDestroy(context, physical));
    CHECK(zeVirtualMemFree(context, p, 8 * MIB));
}

static void sharing(void)
{
    void *p = allocate(3 * MIB, 0), *opened;
    ze_ipc_mem_handle_t handle;

    CHECK(zeMemGetIpcHandle(context, p, &handle));
    CHECK(zeMemGetIpcHandle(context, p, &handle));
    CHECK(zeMemOpenIpcHandle(context, device[0], handle, 0, &opened));
    CHECK(zeMemCloseIpcHandle(context, opened));
    CHECK(zeMemFree(context, p));
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

    CHECK(zeInit(0));
    CHECK(zeDriverGet(&drivers, &driver));
    CHECK(zeDeviceGet(driver, &devices, device));
    CHECK(zeContextCreate(driver, &desc, &context));
    residency();
    copy_across();
    virtual_memory();
    sharing();
    failures();
    CHECK(zeContextDestroy(context));
    return 0;
}
