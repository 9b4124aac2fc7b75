/* Entry points that the oldest loader lacks; each is used where the loader has it, and named. */
#include "sim.h"
#include <dlfcn.h>
#include <level_zero/zes_api.h>

struct init_desc {
    uint32_t stype;
    const void *next;
    uint32_t flags;
};

static void *find(const char *name) {
    void *address = dlsym(RTLD_DEFAULT, name);
    if (address)
        printf("%s\n", name);
    return address;
}
#define FIND(name, pointer)                                                                                            \
    do {                                                                                                               \
        void *address_ = find(name);                                                                                   \
        memcpy(&(pointer), &address_, sizeof(address_));                                                               \
    } while (0)

int main(void) {
    ze_result_t (*init_drivers)(uint32_t *, ze_driver_handle_t *, const struct init_desc *);
    ze_context_handle_t (*default_context)(ze_driver_handle_t);
    ze_result_t (*with_properties)(ze_context_handle_t, const void *, void *, ze_ipc_mem_handle_t *);
    ze_result_t (*put)(ze_context_handle_t, ze_ipc_mem_handle_t);
    ze_result_t (*synchronize)(ze_command_list_handle_t, uint64_t);
    ze_result_t (*list_device)(ze_command_list_handle_t, ze_device_handle_t *);
    ze_result_t (*vector_width)(ze_device_handle_t, uint32_t *, void *);
    ze_result_t (*root_device)(ze_device_handle_t, ze_device_handle_t *);
    ze_ipc_mem_handle_t handle;

    FIND("zeInitDrivers", init_drivers);
    if (init_drivers) {
        struct init_desc desc = {.stype = 0x20021, .flags = 1};
        ze_driver_handle_t driver;
        uint32_t one = 1;
        OK(init_drivers(&one, &driver, &desc));
        EXPECT(one == 1 && driver);
    }
    struct gpu gpu = first_gpu();
    char *p = on_card(&gpu, 0, 4096);
    FIND("zeDriverGetDefaultContext", default_context);
    if (default_context) {
        void *q;
        EXPECT(default_context(gpu.driver) && default_context(gpu.driver) != gpu.context);
        EXPECT(default_context(gpu.driver) == default_context(gpu.driver));
        OK(zeMemAllocDevice(default_context(gpu.driver), &device_desc, 64, 0, gpu.card[0], &q));
        OK(zeMemFree(gpu.context, q));
    }
    FIND("zeMemGetIpcHandleWithProperties", with_properties);
    if (with_properties)
        OK(with_properties(gpu.context, p, NULL, &handle));
    FIND("zeMemPutIpcHandle", put);
    if (put) {
        OK(zeMemGetIpcHandle(gpu.context, p, &handle));
        for (int i = 0; i < 3; i++)
            OK(put(gpu.context, handle)); /* extra puts succeed */
    }
    ze_command_list_handle_t list = immediate(&gpu, 0, false);
    FIND("zeCommandListHostSynchronize", synchronize);
    if (synchronize) {
        char back = 0;
        p[0] = 's';
        ze_event_handle_t gate = new_event(&gpu);
        OK(zeCommandListAppendMemoryCopy(list, &back, p, 1, NULL, 1, &gate));
        GIVES(ZE_RESULT_NOT_READY, synchronize(list, 0));
        OK(zeEventHostSignal(gate));
        OK(synchronize(list, UINT64_MAX));
        EXPECT(back == 's');
        OK(zeEventDestroy(gate));
    }
    FIND("zeCommandListGetDeviceHandle", list_device);
    if (list_device) {
        ze_device_handle_t device;
        OK(list_device(list, &device));
        EXPECT(device == gpu.card[0]);
    }
    FIND("zeDeviceGetVectorWidthPropertiesExt", vector_width);
    if (vector_width) {
        uint32_t count = 0;
        OK(vector_width(gpu.card[0], &count, NULL));
        EXPECT(count == 1);
    }
    FIND("zeDeviceGetRootDevice", root_device);
    if (root_device) {
        ze_device_handle_t root = gpu.card[0];
        OK(root_device(gpu.card[0], &root));
        EXPECT(root == NULL); /* is one itself */
    }
    ze_result_t (*sysman_init)(uint32_t);
    ze_result_t (*sysman_drivers)(uint32_t *, zes_driver_handle_t *);
    ze_result_t (*sysman_devices)(zes_driver_handle_t, uint32_t *, zes_device_handle_t *);
    FIND("zesInit", sysman_init);
    FIND("zesDriverGet", sysman_drivers);
    FIND("zesDeviceGet", sysman_devices);
    if (sysman_init && sysman_drivers && sysman_devices) {
        zes_driver_handle_t driver;
        zes_device_handle_t device;
        zes_mem_handle_t module;
        zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};
        uint32_t one = 1;
        OK(sysman_init(0));
        OK(sysman_drivers(&one, &driver));
        OK(sysman_devices(driver, &one, &device));
        OK(zesDeviceEnumMemoryModules(device, &one, &module));
        OK(zesMemoryGetState(module, &state));
        EXPECT(state.size - state.free == figure(&gpu, "vram.0"));
    }
    OK(zeCommandListDestroy(list));
    OK(zeMemFree(gpu.context, p));
    return 0;
}
