/* Something is thrown through our frames: the calls after it are counted as before. */
#include <level_zero/ze_api.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

jmp_buf thrown_to;
int throwing;
void *throw_marker;

static __attribute__((noinline)) void call_it(ze_context_handle_t context, void *p)
{
    throw_marker = __builtin_frame_address(0);
    zeMemFree(context, p);
    puts("nothing was thrown");
    exit(1);
}

int main(void)
{
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_driver_handle_t driver;
    ze_device_handle_t device;
    ze_context_handle_t context;
    void *volatile kept;
    void *p;
    uint32_t one = 1;

    if (zeInit(0) || zeDriverGet(&one, &driver) || zeDeviceGet(driver, &one, &device) ||
        zeContextCreate(driver, &desc, &context) ||
        zeMemAllocDevice(context, &on_device, 1 << 20, 0, device, &p))
        return 1;
    kept = p;
    if (!setjmp(thrown_to)) {
        throwing = 1;
        call_it(context, kept);
    }
    for (int i = 0; i < 5; i++)
        if (zeMemAllocDevice(context, &on_device, 1 << 20, 0, device, &p) || zeMemFree(context, p))
            return 1;
    puts("done");
    return 0;
}
