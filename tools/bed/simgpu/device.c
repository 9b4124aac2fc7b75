/* Cards and tiles, and what they say about themselves. */
#include "simgpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEVICE_ID 0xe20b /* what a B580 says, so that runtimes choose as they would for one */

/* ZE_AFFINITY_MASK="0,2": only these cards, in order of their numbers; of "2.1" the card counts. */
static uint32_t affinity_mask(void) {
    const char *at = getenv("ZE_AFFINITY_MASK");
    uint32_t all = (1u << sim_config.devices) - 1, mask = 0;
    while (at && *at) {
        char *end;
        unsigned long card = strtoul(at, &end, 10);
        if (end != at && card < sim_config.devices)
            mask |= 1u << card;
        at = strchr(end, ',');
        at = at ? at + 1 : NULL;
    }
    return mask ? mask : all;
}

void sim_devices_init(void) {
    uint32_t visible = affinity_mask();
    for (unsigned card = 0; card < sim_config.devices; card++) {
        struct sim_device *device = &sim.cards[card];
        if (visible >> card & 1)
            sim.visible[sim.visible_count++] = card;
        *device = (struct sim_device){.card = card, .tile = -1};
        sim_object_init(&device->object);
        if (sim_config.tiles < 2)
            continue;
        device->tiles = calloc(sim_config.tiles, sizeof(*device->tiles));
        device->tile_count = device->tiles ? (unsigned)sim_config.tiles : 0;
        for (unsigned tile = 0; tile < device->tile_count; tile++) {
            device->tiles[tile] = (struct sim_device){.card = card, .tile = (int)tile, .root = device};
            sim_object_init(&device->tiles[tile].object);
        }
    }
}

uint32_t sim_visible_cards(void) {
    uint32_t mask = 0;
    for (unsigned i = 0; i < sim.visible_count; i++)
        mask |= 1u << sim.visible[i];
    return mask;
}

ze_result_t sim_zeDeviceGet(ze_driver_handle_t driver, uint32_t *count, ze_device_handle_t *devices) {
    if (!driver)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (*count == 0 || *count > sim.visible_count)
        *count = sim.visible_count;
    for (uint32_t i = 0; devices && i < *count; i++)
        devices[i] = (ze_device_handle_t)&sim.cards[sim.visible[i]];
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceGetSubDevices(ze_device_handle_t handle, uint32_t *count, ze_device_handle_t *devices) {
    struct sim_device *device = sim_device(handle);
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (*count == 0 || *count > device->tile_count)
        *count = device->tile_count;
    for (uint32_t i = 0; devices && i < *count; i++)
        devices[i] = (ze_device_handle_t)&device->tiles[i];
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceGetRootDevice(ze_device_handle_t handle, ze_device_handle_t *root) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!root)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *root = (ze_device_handle_t)sim_device(handle)->root;
    return ZE_RESULT_SUCCESS;
}

unsigned sim_bus(const struct sim_device *device) {
    return 3 + (sim_config.alike ? 0 : device->card);
}

static void fill_uuid(const struct sim_device *device, uint8_t *id) {
    static const uint8_t b580[] = {0x86, 0x80, 0x0b, 0xe2}; /* vendor and device id */
    memset(id, 0, ZE_MAX_DEVICE_UUID_SIZE);
    memcpy(id, b580, sizeof b580);
    id[4] = sim_second() ? 2 : 1;
    id[8] = (uint8_t)sim_bus(device);
    id[15] = (uint8_t)(device->tile + 1);
}

/* Of one region. A tile has its part of the card's memory. */
static uint64_t total_of(const struct sim_device *device) {
    return sim_config.vram / sim_config.regions / (device->tile >= 0 ? sim_config.tiles : 1);
}

/* The free-memory queries that runtimes chain to device and memory properties. */
static void fill_memory_extensions(const struct sim_device *device, void *first) {
    for (struct sim_next *next = first; next; next = next->next) {
        if ((uint32_t)next->stype == SIM_STYPE_USABLE_MEMORY) {
            uint64_t usable = sim_machine_free(device->card);
            memcpy(next + 1, &usable, sizeof(usable));
        } else if (next->stype == ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES) {
            ze_device_memory_ext_properties_t *extension = (void *)next;
            extension->type = ZE_DEVICE_MEMORY_EXT_TYPE_GDDR6;
            extension->physicalSize = total_of(device);
            extension->readBandwidth = extension->writeBandwidth = 456;
            extension->bandwidthUnit = ZE_BANDWIDTH_UNIT_BYTES_PER_NANOSEC;
        }
    }
}

ze_result_t sim_zeDeviceGetProperties(ze_device_handle_t handle, ze_device_properties_t *p) {
    const struct sim_device *device = sim_device(handle);
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->type = ZE_DEVICE_TYPE_GPU;
    p->vendorId = 0x8086;
    p->deviceId = DEVICE_ID;
    p->flags = device->tile >= 0 ? ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE : 0;
    p->subdeviceId = device->tile >= 0 ? (uint32_t)device->tile : 0;
    p->coreClockRate = 2850;
    p->maxMemAllocSize = sim_max_alloc();
    p->maxHardwareContexts = 65536;
    p->maxCommandQueuePriority = 0;
    p->numThreadsPerEU = 8;
    p->physicalEUSimdWidth = 16;
    p->numEUsPerSubslice = 8;
    p->numSubslicesPerSlice = 4;
    p->numSlices = 5;
    p->timerResolution = p->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 ? 1000000000u : 1;
    p->timestampValidBits = p->kernelTimestampValidBits = 64;
    fill_uuid(device, p->uuid.id);
    snprintf(p->name, sizeof(p->name), "%s", sim_config.name);
    fill_memory_extensions(device, p->pNext);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceGetComputeProperties(ze_device_handle_t handle, ze_device_compute_properties_t *p) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->maxTotalGroupSize = p->maxGroupSizeX = p->maxGroupSizeY = p->maxGroupSizeZ = 1024;
    p->maxGroupCountX = p->maxGroupCountY = p->maxGroupCountZ = UINT32_MAX;
    p->maxSharedLocalMemory = 128 * 1024;
    p->numSubGroupSizes = 2;
    memset(p->subGroupSizes, 0, sizeof(p->subGroupSizes));
    p->subGroupSizes[0] = 16;
    p->subGroupSizes[1] = 32;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceGetModuleProperties(ze_device_handle_t handle, ze_device_module_properties_t *p) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->spirvVersionSupported = ZE_MAKE_VERSION(1, 4);
    p->flags = ZE_DEVICE_MODULE_FLAG_FP16 | ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS;
    p->fp16flags = p->fp32flags = ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST;
    p->fp64flags = 0;
    p->maxArgumentsSize = 2048;
    p->printfBufferSize = 4 << 20;
    memset(&p->nativeKernelSupported, 0, sizeof(p->nativeKernelSupported));
    return ZE_RESULT_SUCCESS;
}

/* Group 0 computes and copies, group 1 only copies. */
ze_result_t sim_zeDeviceGetCommandQueueGroupProperties(ze_device_handle_t handle, uint32_t *count,
                                                       ze_command_queue_group_properties_t *p) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (*count == 0 || *count > 2)
        *count = 2;
    for (uint32_t i = 0; p && i < *count; i++) {
        p[i].flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
        if (i == 0)
            p[i].flags |=
                ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS;
        p[i].maxMemoryFillPatternSize = i == 0 ? SIZE_MAX : 16;
        p[i].numQueues = 1;
    }
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceGetMemoryProperties(ze_device_handle_t handle, uint32_t *count,
                                            ze_device_memory_properties_t *p) {
    const struct sim_device *device = sim_device(handle);
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (*count == 0 || *count > sim_config.regions)
        *count = (uint32_t)sim_config.regions;
    for (uint32_t i = 0; p && i < *count; i++) {
        p[i].flags = 0;
        p[i].maxClockRate = 2375;
        p[i].maxBusWidth = 192;
        p[i].totalSize = total_of(device);
        snprintf(p[i].name, sizeof(p[i].name), "HBM");
        fill_memory_extensions(device, p[i].pNext);
    }
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceGetMemoryAccessProperties(ze_device_handle_t handle, ze_device_memory_access_properties_t *p) {
    const uint32_t all = ZE_MEMORY_ACCESS_CAP_FLAG_RW | ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC; /* nothing concurrent */
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->hostAllocCapabilities = p->deviceAllocCapabilities = all;
    p->sharedSingleDeviceAllocCapabilities = all;
    p->sharedCrossDeviceAllocCapabilities = all;
    p->sharedSystemAllocCapabilities = 0;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceGetCacheProperties(ze_device_handle_t handle, uint32_t *count,
                                           ze_device_cache_properties_t *p) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (*count == 0 || *count > 1)
        *count = 1;
    if (p) {
        p->flags = 0;
        p->cacheSize = 18 << 20;
    }
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceGetImageProperties(ze_device_handle_t handle, ze_device_image_properties_t *p) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->maxImageDims1D = p->maxImageDims2D = p->maxImageDims3D = 0;
    p->maxImageBufferSize = 0;
    p->maxImageArraySlices = p->maxSamplers = p->maxReadImageArgs = p->maxWriteImageArgs = 0;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceGetExternalMemoryProperties(ze_device_handle_t handle,
                                                    ze_device_external_memory_properties_t *p) {
    const uint32_t types = ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD | ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF;
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->memoryAllocationImportTypes = p->memoryAllocationExportTypes = types;
    p->imageImportTypes = p->imageExportTypes = 0;
    return ZE_RESULT_SUCCESS;
}

static bool connected(ze_device_handle_t a, ze_device_handle_t b) {
    return sim_device(a)->card == sim_device(b)->card || (sim_config.peers && !sim.peerless);
}

ze_result_t sim_zeDeviceGetP2PProperties(ze_device_handle_t handle, ze_device_handle_t peer,
                                         ze_device_p2p_properties_t *p) {
    if (!handle || !peer)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->flags = connected(handle, peer) ? ZE_DEVICE_P2P_PROPERTY_FLAG_ACCESS : 0;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceCanAccessPeer(ze_device_handle_t handle, ze_device_handle_t peer, ze_bool_t *value) {
    if (!handle || !peer)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!value)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *value = connected(handle, peer);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceGetStatus(ze_device_handle_t handle) {
    return handle ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
}

ze_result_t sim_zeDeviceGetGlobalTimestamps(ze_device_handle_t handle, uint64_t *host, uint64_t *device) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!host || !device)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *host = *device = sim_now();
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDevicePciGetPropertiesExt(ze_device_handle_t handle, ze_pci_ext_properties_t *p) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->address = (ze_pci_address_ext_t){.domain = 0, .bus = sim_bus(sim_device(handle))};
    p->maxSpeed = (ze_pci_speed_ext_t){.genVersion = 4, .width = 8, .maxBandwidth = 16000000000LL};
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeDeviceGetVectorWidthPropertiesExt(ze_device_handle_t handle, uint32_t *count,
                                                    struct sim_vector_width *p) {
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (*count == 0 || *count > 1)
        *count = 1;
    if (p) {
        p->vector_width_size = 32;
        memcpy(p->preferred, (uint32_t[]){16, 8, 4, 1, 1, 0, 8}, sizeof(p->preferred));
        memcpy(p->native, p->preferred, sizeof(p->native));
    }
    return ZE_RESULT_SUCCESS;
}
