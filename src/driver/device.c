/*
 * Drivers and cards by number. Cards: device handles to small numbers, in the order in which
 * zeDeviceGet lists them.
 *
 * One card can have several handles: an old loader with two drivers wraps them, so that the same
 * card looks different at the loader and at the driver's hook. Handles are joined by the card's
 * UUID.
 */
#include "driver/driver.h"
#include "machine/machine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { HANDLES = 256, CARDS = 64, MODULES = 64 };
/* Of a discrete card Intel's driver keeps a twentieth for itself. */
enum { DRIVERS_PART = 20 };

typedef uint8_t uuid[ZE_MAX_DEVICE_UUID_SIZE];

/* Tables that only grow: entries below their atomic counts never change. */
static struct {
    ze_device_handle_t handle;
    unsigned number;
    bool is_part; /* a sub-device: its number is that of its card */
} known[HANDLES];
static unsigned known_count;
static struct {
    uuid uuid;
    ze_device_handle_t handle; /* of the card itself, valid at this hook */
    uint32_t hook;
} card[CARDS];
static unsigned card_count;
/*
 * Sysman's memory modules. Sysman has its own device handles; the UUID is that of the core API's
 * device.
 */
static struct {
    zes_mem_handle_t handle;
    ze_device_handle_t device;
    uuid uuid;
    uint32_t among; /* modules that its device has */
} sysman_module[MODULES];
static unsigned sysman_module_count;
static struct zr_lock device_lock;

/* Its index in known[], or -1. There are few handles: a linear search is as fast as a hash. */
static int find_handle(ze_device_handle_t device) {
    for (unsigned i = 0, n = __atomic_load_n(&known_count, __ATOMIC_ACQUIRE); device && i < n; i++)
        if (known[i].handle == device)
            return (int)i;
    return -1;
}

unsigned zr_device_known(ze_device_handle_t device) {
    int at = find_handle(device);

    return at < 0 ? (unsigned)ZR_UNKNOWN_DEVICE : known[at].number;
}

bool zr_device_is_part(ze_device_handle_t device) {
    int at = find_handle(device);

    return at >= 0 && known[at].is_part;
}

/* The caller holds the lock. */
static void learn(ze_device_handle_t device, unsigned number, bool is_part) {
    if (!device || known_count == HANDLES || find_handle(device) >= 0)
        return;
    known[known_count].handle = device;
    known[known_count].number = number;
    known[known_count].is_part = is_part;
    __atomic_store_n(&known_count, known_count + 1, __ATOMIC_RELEASE);
}

/*
 * The card with this UUID, the `rank`-th of several from 0; ZR_UNKNOWN_DEVICE if there is none or
 * the UUID is empty.
 */
static unsigned card_with(const uint8_t *id, unsigned rank) {
    static const uuid nothing;
    unsigned n = __atomic_load_n(&card_count, __ATOMIC_ACQUIRE);

    for (unsigned i = 0; i < n && memcmp(id, nothing, sizeof nothing) != 0; i++)
        if (memcmp(card[i].uuid, id, sizeof nothing) == 0 && rank-- == 0)
            return i;
    return ZR_UNKNOWN_DEVICE;
}

/* That card, or a new one if there is none. The caller holds the lock. */
static unsigned card_of(const struct zr_op *op, ze_device_handle_t device, const uint8_t *id,
                        unsigned rank) {
    unsigned number = card_with(id, rank);

    if (number != ZR_UNKNOWN_DEVICE)
        return number;
    if (card_count == CARDS)
        return CARDS - 1;
    number = card_count;
    memcpy(card[number].uuid, id, sizeof card[number].uuid);
    card[number].handle = device;
    card[number].hook = op->hook;
    __atomic_store_n(&card_count, number + 1, __ATOMIC_RELEASE);
    return number;
}

ze_device_handle_t zr_device_handle(unsigned number, uint32_t *hook) {
    if (number >= __atomic_load_n(&card_count, __ATOMIC_ACQUIRE))
        return NULL;
    *hook = card[number].hook;
    return card[number].handle;
}

static bool properties(struct zr_op *op, ze_device_handle_t device, ze_device_properties_t *p) {
    memset(p, 0, sizeof *p);
    p->stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    return ZR_BELOW(op, zeDeviceGetProperties)(device, p) == ZE_RESULT_SUCCESS;
}

/* --- lists of devices ------------------------------------------------------------------------- */

static __attribute__((format(printf, 3, 4))) void note_card(unsigned number, const char *what,
                                                            const char *format, ...) {
    char key[48], value[208];
    va_list ap;

    va_start(ap, format);
    vsnprintf(value, sizeof value, format, ap);
    va_end(ap);
    snprintf(key, sizeof key, "card.%u%s", number, what);
    zr_fingerprint_note(key, value);
}

/*
 * Notes the card in the fingerprint, and its bus address, by which the kernel's figures are found.
 */
static void describe_card(struct zr_op *op, unsigned number) {
    typedef ze_result_t (*get_pci)(ze_device_handle_t, ze_pci_ext_properties_t *);
    get_pci get = (get_pci)zr_function_below(op->hook, op->caller, "zeDevicePciGetPropertiesExt");
    ze_pci_ext_properties_t pci = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
    const ze_pci_address_ext_t *a = &pci.address;
    ze_device_properties_t p;

    if (properties(op, card[number].handle, &p))
        note_card(number, "", "%.64s %04x:%04x, %llu MHz", p.name, (unsigned)p.vendorId,
                  (unsigned)p.deviceId, (unsigned long long)p.coreClockRate);
    if (get && get(card[number].handle, &pci) == ZE_RESULT_SUCCESS) {
        note_card(number, ".pci", "%04x:%02x:%02x.%x", (unsigned)a->domain, (unsigned)a->bus,
                  (unsigned)a->device, (unsigned)a->function);
        zr_drm_name(number, (uint64_t)a->domain << 16 | (uint64_t)a->bus << 8 | a->device << 3 |
                                a->function);
    }
    note_card(number, ".memory", "%llu MiB",
              (unsigned long long)zr_device_memory(op, card[number].handle) >> 20);
}

/* How many earlier devices of the list have the same UUID. */
static unsigned rank_in(uuid *ids, uint32_t i) {
    unsigned rank = 0;

    for (uint32_t k = 0; k < i; k++)
        rank += memcmp(ids[k], ids[i], sizeof *ids) == 0;
    return rank;
}

/*
 * Two handles of one list are two cards, whatever their UUIDs: without sysfs Intel's driver gives
 * all cards one.
 */
void zr_device_seen(struct zr_op *op, const ze_device_handle_t *devices, uint32_t count) {
    ze_device_handle_t handle[CARDS];
    unsigned before, after, n = 0;
    uuid ids[CARDS];

    for (uint32_t i = 0; i < count && n < CARDS; i++) {
        ze_device_properties_t p;

        if (!devices[i] || !properties(op, devices[i], &p))
            continue;
        memcpy(ids[n], p.uuid.id, sizeof ids[n]);
        handle[n++] = devices[i];
    }
    zr_lock(&device_lock);
    before = card_count;
    for (unsigned i = 0; i < n; i++)
        if (find_handle(handle[i]) < 0)
            learn(handle[i], card_of(op, handle[i], ids[i], rank_in(ids, i)), false);
    after = card_count;
    zr_unlock(&device_lock);
    for (n = before; n < after; n++)
        describe_card(op, n);
}

void zr_device_parts(struct zr_op *op, ze_device_handle_t root, const ze_device_handle_t *parts,
                     uint32_t count) {
    unsigned number = zr_device_number(op, root);

    zr_lock(&device_lock);
    for (uint32_t i = 0; i < count && number != ZR_UNKNOWN_DEVICE; i++)
        learn(parts[i], number, true);
    zr_unlock(&device_lock);
}

/* Asks the driver, once, about a handle from a list that we did not see. */
static ZR_COLD unsigned ask_driver_about(struct zr_op *op, ze_device_handle_t device) {
    typedef ze_result_t (*get_root)(ze_device_handle_t, ze_device_handle_t *);
    get_root get = (get_root)zr_function_below(op->hook, op->caller, "zeDeviceGetRootDevice");
    ze_device_handle_t root = NULL;
    ze_device_properties_t p;

    if (!device || !properties(op, device, &p))
        return ZR_UNKNOWN_DEVICE;
    if (p.flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE && get &&
        get(device, &root) == ZE_RESULT_SUCCESS && root != device)
        zr_device_parts(op, root, &device, 1);
    if (find_handle(device) < 0)
        zr_device_seen(op, &device, 1);
    return zr_device_known(device);
}

unsigned zr_device_number(struct zr_op *op, ze_device_handle_t device) {
    unsigned number = zr_device_known(device);

    return likely(number != ZR_UNKNOWN_DEVICE) ? number : ask_driver_about(op, device);
}

/* The device's regions: what programs are told of them, and what they are physically. */
struct regions {
    ze_device_memory_properties_t told[16];
    ze_device_memory_ext_properties_t more[16];
    uint64_t total, physical;
};

static void sum_up(struct zr_op *op, ze_device_handle_t device, struct regions *r) {
    uint32_t most = sizeof r->told / sizeof *r->told, count = most;

    for (uint32_t i = 0; i < most; i++) {
        r->told[i].stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
        r->more[i].stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_EXT_PROPERTIES;
        r->told[i].pNext = &r->more[i];
    }
    if (ZR_BELOW(op, zeDeviceGetMemoryProperties)(device, &count, r->told) != ZE_RESULT_SUCCESS)
        return;
    for (uint32_t i = 0; i < count && i < most; i++) {
        uint64_t told = r->told[i].totalSize, physical = r->more[i].physicalSize;

        r->total += told;
        r->physical += physical > told ? physical : told;
    }
}

/* Not on the stack: a thread may have a small one. The driver looks into sysfs: errno is kept. */
static void read_regions(struct zr_op *op, ze_device_handle_t device, uint64_t *total,
                         uint64_t *physical) {
    struct regions *r = zr_pages(sizeof *r);
    int saved = errno;

    *total = *physical = 0;
    if (!r)
        return;
    sum_up(op, device, r);
    *total = r->total;
    *physical = r->physical;
    zr_pages_back(r, sizeof *r);
    errno = saved;
}

uint64_t zr_device_memory(struct zr_op *op, ze_device_handle_t device) {
    uint64_t total, physical;

    read_regions(op, device, &total, &physical);
    return total;
}

uint64_t zr_device_usable(struct zr_op *op, ze_device_handle_t device) {
    uint64_t total, physical;
    ze_device_properties_t p;

    read_regions(op, device, &total, &physical);
    if (!properties(op, device, &p) || p.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED)
        return total;
    physical -= physical / DRIVERS_PART;
    return total < physical ? total : physical;
}

/* --- Sysman ----------------------------------------------------------------------------------- */

static int find_module(zes_mem_handle_t memory) {
    for (unsigned i = 0, n = __atomic_load_n(&sysman_module_count, __ATOMIC_ACQUIRE); i < n; i++)
        if (sysman_module[i].handle == memory)
            return (int)i;
    return -1;
}

void zr_device_modules(struct zr_op *op, zes_device_handle_t device,
                       const zes_mem_handle_t *modules, uint32_t count) {
    typedef ze_result_t (*get_properties)(zes_device_handle_t, zes_device_properties_t *);
    get_properties get =
        (get_properties)zr_function_below(op->hook, op->caller, "zesDeviceGetProperties");
    zes_device_properties_t p = {.stype = ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES,
                                 .core.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    uint32_t among = 0;

    if (!get || get(device, &p) != ZE_RESULT_SUCCESS)
        memset(&p, 0, sizeof p);
    /* The caller may have asked for some of them only. */
    if (ZR_BELOW(op, zesDeviceEnumMemoryModules)(device, &among, NULL) != ZE_RESULT_SUCCESS ||
        among < count)
        among = count;
    zr_lock(&device_lock);
    for (uint32_t i = 0; i < count && sysman_module_count < MODULES; i++)
        if (find_module(modules[i]) < 0) {
            sysman_module[sysman_module_count].handle = modules[i];
            sysman_module[sysman_module_count].device = (ze_device_handle_t)device;
            memcpy(sysman_module[sysman_module_count].uuid, p.core.uuid.id, sizeof(uuid));
            sysman_module[sysman_module_count].among = among;
            __atomic_store_n(&sysman_module_count, sysman_module_count + 1, __ATOMIC_RELEASE);
        }
    zr_unlock(&device_lock);
}

bool zr_device_of_module(zes_mem_handle_t memory, unsigned *number, uint32_t *among) {
    int at = find_module(memory);

    *number = ZR_UNKNOWN_DEVICE;
    *among = 1;
    if (at < 0)
        return false;
    *number = zr_device_known(sysman_module[at].device);
    if (*number == ZR_UNKNOWN_DEVICE) {
        if (card_with(sysman_module[at].uuid, 1) != ZR_UNKNOWN_DEVICE)
            return false; /* several cards have this UUID, so it is not known which one it is */
        *number = card_with(sysman_module[at].uuid, 0);
    }
    *among = sysman_module[at].among;
    return true;
}

/* --- drivers ---------------------------------------------------------------------------------- */

/* Without a lock: entries are only ever added. */
int zr_driver_number(ze_driver_handle_t driver) {
    static ze_driver_handle_t met[ZR_DRIVERS];

    for (int n = 0; driver && n < ZR_DRIVERS; n++) {
        ze_driver_handle_t there = NULL;

        if (__atomic_compare_exchange_n(&met[n], &there, driver, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED) ||
            there == driver)
            return n;
    }
    return -1;
}

void zr_note_driver(struct zr_op *op, ze_driver_handle_t driver) {
    typedef ze_result_t (*get_properties)(ze_driver_handle_t, ze_driver_properties_t *);
    ze_driver_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};
    static bool told[ZR_DRIVERS];
    int number = zr_driver_number(driver);
    char key[48], value[64];
    get_properties get;

    if (number < 0 || __atomic_exchange_n(&told[number], true, __ATOMIC_RELAXED))
        return;
    get = (get_properties)zr_function_below(op->hook, op->caller, "zeDriverGetProperties");
    if (!get || get(driver, &p) != ZE_RESULT_SUCCESS)
        return;
    snprintf(key, sizeof key, number ? "driver.%d.version" : "driver.version", number);
    snprintf(value, sizeof value, "%u.%u.%u", (unsigned)(p.driverVersion >> 24),
             (unsigned)(p.driverVersion >> 16 & 255), (unsigned)(p.driverVersion & 0xffff));
    zr_fingerprint_note(key, value);
}
