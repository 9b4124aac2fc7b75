/* Prints the PCI bus of each card that the process may see, and uses each one. */
#include "sim.h"

int main(void) {
    struct gpu gpu = first_gpu();
    for (uint32_t i = 0; i < gpu.cards; i++) {
        ze_pci_ext_properties_t pci = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
        OK(zeDevicePciGetPropertiesExt(gpu.card[i], &pci));
        OK(zeMemFree(gpu.context, on_card(&gpu, i, 100)));
        printf("%u%c", pci.address.bus, i + 1 < gpu.cards ? ' ' : '\n');
    }
    return 0;
}
