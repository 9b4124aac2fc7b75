/* Frees at every stage of the end: an exit handler from before the first call, one from after it, a destructor. */
#include <level_zero/ze_api.h>
#include <stdio.h>
#include <stdlib.h>

static ze_context_handle_t context;
static void *block[3];

static void give_back(int n)
{
    ze_result_t result = zeMemFree(context, block[n]);

    printf("stage %d: %#x\n", n, (unsigned)result);
    fflush(stdout);
}

static void early(void)
{
    give_back(1);
}

static void late(void)
{
    give_back(0);
}

__attribute__((destructor)) static void last(void)
{
    give_back(2);
}

int main(void)
{
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_driver_handle_t driver;
    ze_device_handle_t device;
    uint32_t one = 1;

    atexit(early);
    if (zeInit(0) || zeDriverGet(&one, &driver) || zeDeviceGet(driver, &one, &device) ||
        zeContextCreate(driver, &desc, &context))
        return 1;
    for (int i = 0; i < 3; i++)
        if (zeMemAllocDevice(context, &on_device, 4 << 20, 0, device, &block[i]))
            return 1;
    atexit(late);
    return 0;
}
