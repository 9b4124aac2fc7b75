/* The driver starts and sees the cards: one line each with name, bus address and peers. */
#include "ze_test.h"

int main(void) {
    start();
    for (uint32_t i = 0; i < card_count; i++) {
        ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
        ze_pci_ext_properties_t pci = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
        ze_device_memory_properties_t memory = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
        uint32_t one = 1;
        CHECK(zeDeviceGetProperties(cards[i], &properties));
        CHECK(zeDevicePciGetPropertiesExt(cards[i], &pci));
        CHECK(zeDeviceGetMemoryProperties(cards[i], &one, &memory));
        printf("%s, %#x, bus %02x, %llu MiB, peers", properties.name, properties.deviceId, pci.address.bus,
               (unsigned long long)memory.totalSize >> 20);
        for (uint32_t j = 0; j < card_count; j++) {
            ze_bool_t peer = 0;
            CHECK(zeDeviceCanAccessPeer(cards[i], cards[j], &peer));
            if (peer && i != j)
                printf(" %u", j);
        }
        putchar('\n');
    }
    CHECK(zeContextDestroy(context));
    return 0;
}
