/* zes: enough to be asked for memory state, through zesInit or through ZES_ENABLE_SYSMAN=1. */
#include "simgpu.h"

#include <stdio.h>
#include <string.h>

/* One module per region of a card. */
struct memory_module {
    struct sim_object object;
    unsigned card;
};
static struct memory_module modules[SIM_CARDS][SIM_REGIONS];

/* After zesInit its devices are others than those of the core API; with ZES_ENABLE_SYSMAN they are the same. */
static struct sim_device devices_apart[SIM_CARDS];
static bool apart;

void sim_modules_init(void) {
    for (unsigned card = 0; card < SIM_CARDS; card++)
        for (unsigned i = 0; i < SIM_REGIONS; i++) {
            sim_object_init(&modules[card][i].object);
            modules[card][i].card = card;
        }
}

ze_result_t sim_zesInit(uint32_t flags) {
    if (flags)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    ze_result_t result = sim_zeInit(0);
    if (result == ZE_RESULT_SUCCESS && !__atomic_exchange_n(&apart, true, __ATOMIC_ACQ_REL))
        memcpy(devices_apart, sim.cards, sizeof(devices_apart));
    return result;
}

static zes_device_handle_t sysman_device(unsigned card) {
    bool own = __atomic_load_n(&apart, __ATOMIC_ACQUIRE);
    return (zes_device_handle_t)(own ? &devices_apart[card] : &sim.cards[card]);
}

ze_result_t sim_zesDriverGet(uint32_t *count, zes_driver_handle_t *drivers) {
    return sim_zeDriverGet(count, (ze_driver_handle_t *)drivers);
}

/* Every card: ZE_AFFINITY_MASK is the core API's. */
ze_result_t sim_zesDeviceGet(zes_driver_handle_t driver, uint32_t *count, zes_device_handle_t *devices) {
    if (!driver)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (*count == 0 || *count > sim_config.devices)
        *count = (uint32_t)sim_config.devices;
    for (uint32_t i = 0; devices && i < *count; i++)
        devices[i] = sysman_device(i);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zesDeviceGetProperties(zes_device_handle_t handle, zes_device_properties_t *p) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->core.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    p->core.pNext = NULL;
    sim_zeDeviceGetProperties((ze_device_handle_t)handle, &p->core);
    p->numSubdevices = sim_device((ze_device_handle_t)handle)->tile_count;
    snprintf(p->serialNumber, sizeof(p->serialNumber), "unknown");
    snprintf(p->boardNumber, sizeof(p->boardNumber), "unknown");
    snprintf(p->brandName, sizeof(p->brandName), "zeroute");
    snprintf(p->modelName, sizeof(p->modelName), "%.63s", p->core.name);
    snprintf(p->vendorName, sizeof(p->vendorName), "zeroute");
    snprintf(p->driverVersion, sizeof(p->driverVersion), "%.60s", sim_config.version);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zesDevicePciGetProperties(zes_device_handle_t handle, zes_pci_properties_t *p) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->address = (zes_pci_address_t){.bus = sim_bus(sim_device((ze_device_handle_t)handle))};
    p->maxSpeed = (zes_pci_speed_t){.gen = 4, .width = 8, .maxBandwidth = 16000000000LL};
    p->haveBandwidthCounters = p->havePacketCounters = p->haveReplayCounters = 0;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zesDeviceEnumMemoryModules(zes_device_handle_t handle, uint32_t *count, zes_mem_handle_t *out) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    unsigned card = sim_device((ze_device_handle_t)handle)->card;
    if (*count == 0 || *count > sim_config.regions)
        *count = (uint32_t)sim_config.regions;
    for (uint32_t i = 0; out && i < *count; i++)
        out[i] = (zes_mem_handle_t)&modules[card][i];
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zesMemoryGetProperties(zes_mem_handle_t handle, zes_mem_properties_t *p) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->type = ZES_MEM_TYPE_GDDR6;
    p->onSubdevice = 0;
    p->subdeviceId = 0;
    p->location = ZES_MEM_LOC_DEVICE;
    p->physicalSize = sim_config.vram / sim_config.regions;
    p->busWidth = 192;
    p->numChannels = 12;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zesMemoryGetState(zes_mem_handle_t handle, zes_mem_state_t *p) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->health = ZES_MEM_HEALTH_OK;
    p->size = sim_config.vram / sim_config.regions;
    p->free = sim_machine_free(((struct memory_module *)handle)->card) / sim_config.regions;
    return ZE_RESULT_SUCCESS;
}

/* The UUID of the core API, too: the 16 bytes agree. */
ze_result_t sim_zesDriverGetDeviceByUuidExp(zes_driver_handle_t driver, struct sim_uuid uuid,
                                            zes_device_handle_t *device, ze_bool_t *on_subdevice, uint32_t *subdevice) {
    if (!driver)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!device || !on_subdevice || !subdevice)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    for (unsigned card = 0; card < sim_config.devices; card++) {
        ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
        sim_zeDeviceGetProperties((ze_device_handle_t)&sim.cards[card], &p);
        if (memcmp(p.uuid.id, uuid.id, sizeof(uuid.id)) == 0) {
            *device = sysman_device(card);
            *on_subdevice = 0;
            *subdevice = 0;
            return ZE_RESULT_SUCCESS;
        }
    }
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
}
