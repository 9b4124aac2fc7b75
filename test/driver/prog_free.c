/*
 * How much memory is free on card 0, by every way of asking: before and after MIB are taken. One line for each way:
 * "properties BEFORE AFTER", "memory ...", "sysman ..."; a way that the driver does not offer is left out.
 *
 *   free [MIB]
 */
#include "ze_test.h"

#include <dlfcn.h>
#include <level_zero/zes_api.h>

struct usable {
    uint32_t stype;
    void *next;
    uint64_t bytes;
};
enum { USABLE = 0x20041, UNSAID = 77 };

static uint64_t by_properties(void) {
    struct usable u = {USABLE, NULL, UNSAID};
    ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, .pNext = &u};
    CHECK(zeDeviceGetProperties(cards[0], &p));
    return u.bytes;
}

static uint64_t by_memory(void) {
    struct usable u = {USABLE, NULL, UNSAID};
    ze_device_memory_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES, .pNext = &u};
    uint32_t one = 1;
    CHECK(zeDeviceGetMemoryProperties(cards[0], &one, &p));
    return u.bytes;
}

/* With ZES_ENABLE_SYSMAN the core API's handle will do; else Sysman is started by itself, from loader 1.9 on. */
static zes_device_handle_t sysman_device(void) {
    ze_result_t (*init)(uint32_t);
    ze_result_t (*get_drivers)(uint32_t *, zes_driver_handle_t *);
    ze_result_t (*get_devices)(zes_driver_handle_t, uint32_t *, zes_device_handle_t *);
    void *found[3] = {dlsym(RTLD_DEFAULT, "zesInit"), dlsym(RTLD_DEFAULT, "zesDriverGet"),
                      dlsym(RTLD_DEFAULT, "zesDeviceGet")};
    uint32_t one = 1;
    zes_driver_handle_t of;
    zes_device_handle_t device;
    memcpy(&init, &found[0], sizeof init);
    memcpy(&get_drivers, &found[1], sizeof get_drivers);
    memcpy(&get_devices, &found[2], sizeof get_devices);
    if (getenv("ZES_ENABLE_SYSMAN"))
        return (zes_device_handle_t)cards[0];
    if (!init || init(0) || get_drivers(&one, &of) || !one || get_devices(of, &one, &device) || !one)
        return NULL;
    return device;
}

static uint64_t by_sysman(void) {
    uint32_t one = 1;
    zes_mem_handle_t module;
    zes_mem_state_t state = {.stype = ZES_STRUCTURE_TYPE_MEM_STATE};
    zes_device_handle_t device = sysman_device();
    if (!device || zesDeviceEnumMemoryModules(device, &one, &module) || !one)
        return UNSAID;
    return zesMemoryGetState(module, &state) ? UNSAID : state.free;
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        uint64_t (*ask)(void);
    } ways[] = {{"properties", by_properties}, {"memory", by_memory}, {"sysman", by_sysman}};
    uint64_t before[3];
    start();
    for (unsigned i = 0; i < 3; i++)
        before[i] = ways[i].ask();
    if (argc > 1)
        new_device(0, (size_t)strtoull(argv[1], NULL, 10) << 20);
    for (unsigned i = 0; i < 3; i++) {
        if (before[i] != UNSAID)
            printf("%s %llu %llu\n", ways[i].name, (unsigned long long)before[i], (unsigned long long)ways[i].ask());
    }
    return 0;
}
