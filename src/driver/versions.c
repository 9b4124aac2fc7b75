/* What the driver says of itself and of its cards, for the fingerprint: asked once per driver, when it lists them. */
#include "driver/driver.h"

#include <stdio.h>

enum { DRIVERS = 4 };

static ze_driver_handle_t told[DRIVERS];

/* Without a lock, so that a fork can leave nothing held. */
static bool first_time(ze_driver_handle_t driver, unsigned *number) {
    for (*number = 0; *number < DRIVERS; ++*number) {
        ze_driver_handle_t there = NULL;

        if (__atomic_compare_exchange_n(&told[*number], &there, driver, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return true;
        if (there == driver)
            return false;
    }
    return false;
}

/* Under the number that our fields have: where it is on the bus, and how much memory it has. */
static void note_place(struct zr_call *call, ze_device_handle_t device) {
    typedef ze_result_t (*get_pci)(ze_device_handle_t, ze_pci_ext_properties_t *);
    get_pci get = (get_pci)zr_function_below(call->hook, "zeDevicePciGetPropertiesExt");
    ze_pci_ext_properties_t p = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
    unsigned number = zr_device_number(call, device);
    char key[48], value[64];

    if (get && get(device, &p) == ZE_RESULT_SUCCESS) {
        snprintf(key, sizeof key, "card.%u.pci", number);
        snprintf(value, sizeof value, "%04x:%02x:%02x.%x", (unsigned)p.address.domain, (unsigned)p.address.bus,
                 (unsigned)p.address.device, (unsigned)p.address.function);
        zr_fingerprint_note(key, value);
    }
    snprintf(key, sizeof key, "card.%u.memory", number);
    snprintf(value, sizeof value, "%llu MiB", (unsigned long long)zr_device_memory(call, device) >> 20);
    zr_fingerprint_note(key, value);
}

static void note_card(struct zr_call *call, unsigned driver, uint32_t n, ze_device_handle_t device) {
    ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    char key[48], value[208];

    if (ZR_BELOW(call, zeDeviceGetProperties)(device, &p) != ZE_RESULT_SUCCESS)
        return;
    if (driver)
        snprintf(key, sizeof key, "card.%u.%u", driver, (unsigned)n);
    else
        snprintf(key, sizeof key, "card.%u", (unsigned)n);
    snprintf(value, sizeof value, "%.64s %04x:%04x, %llu MHz", p.name, (unsigned)p.vendorId, (unsigned)p.deviceId,
             (unsigned long long)p.coreClockRate);
    zr_fingerprint_note(key, value);
    note_place(call, device);
}

void zr_note_driver(struct zr_call *call, ze_driver_handle_t driver, const ze_device_handle_t *devices,
                    uint32_t count) {
    typedef ze_result_t (*get_properties)(ze_driver_handle_t, ze_driver_properties_t *);
    ze_driver_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};
    unsigned number;

    if (!first_time(driver, &number))
        return;
    get_properties get = (get_properties)zr_function_below(call->hook, "zeDriverGetProperties");
    if (get && get(driver, &p) == ZE_RESULT_SUCCESS) {
        char key[48], value[64];
        snprintf(key, sizeof key, number ? "driver.%u.version" : "driver.version", number);
        snprintf(value, sizeof value, "%u.%u.%u", (unsigned)(p.driverVersion >> 24),
                 (unsigned)(p.driverVersion >> 16 & 255), (unsigned)(p.driverVersion & 0xffff));
        zr_fingerprint_note(key, value);
    }
    for (uint32_t i = 0; i < count && i < 8; i++)
        note_card(call, number, i, devices[i]);
}
