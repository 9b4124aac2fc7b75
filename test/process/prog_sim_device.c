/* What cards say about themselves: identity, tiles, peers, PCI, version, extensions. */
#include "sim.h"

int main(void) {
    struct gpu gpu = first_gpu();
    ze_driver_properties_t driver = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};
    OK(zeDriverGetProperties(gpu.driver, &driver));
    EXPECT(driver.driverVersion == (1u << 24 | 14u << 16 | 35000u)); /* version:1.14.35000 */
    uint32_t count = 0;
    OK(zeDriverGetExtensionProperties(gpu.driver, &count, NULL));
    EXPECT(count >= 5);

    EXPECT(gpu.cards == 3);
    ze_device_properties_t p[3];
    ze_pci_ext_properties_t pci[3];
    for (int i = 0; i < 3; i++) {
        p[i] = (ze_device_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
        pci[i] = (ze_pci_ext_properties_t){.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
        OK(zeDeviceGetProperties(gpu.card[i], &p[i]));
        OK(zeDevicePciGetPropertiesExt(gpu.card[i], &pci[i]));
        EXPECT(p[i].type == ZE_DEVICE_TYPE_GPU && strcmp(p[i].name, "Test Card") == 0);
        for (int j = 0; j < i; j++) {
            ze_bool_t access = 0;
            EXPECT(memcmp(&p[i].uuid, &p[j].uuid, sizeof(p[i].uuid)) != 0);
            EXPECT(pci[i].address.bus != pci[j].address.bus);
            OK(zeDeviceCanAccessPeer(gpu.card[i], gpu.card[j], &access));
            EXPECT(access == !getenv("NEOReadDebugKeys"));
        }
    }

    ze_device_handle_t tiles[2];
    count = 0;
    OK(zeDeviceGetSubDevices(gpu.card[0], &count, NULL));
    EXPECT(count == 2);
    OK(zeDeviceGetSubDevices(gpu.card[0], &count, tiles));
    OK(zeDeviceGetProperties(tiles[1], &p[0]));
    EXPECT((p[0].flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE) && p[0].subdeviceId == 1);
    void *block;
    OK(zeMemAllocDevice(gpu.context, &device_desc, 4 * MIB, 0, tiles[1], &block));
    EXPECT(figure(&gpu, "vram.0") == 4 * MIB);
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], block, 4 * MIB));
    EXPECT(figure(&gpu, "mirror") == 0); /* the tile's own card is no peer */
    OK(zeMemFree(gpu.context, block));
    return 0;
}
