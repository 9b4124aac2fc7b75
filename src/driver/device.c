/*
 * Cards by number: device handles to small numbers, in the order in which zeDeviceGet lists them.
 *
 * One card can have several handles: an old loader with two drivers wraps them, so that the same card looks
 * different at the loader and at the driver's hook. Handles are joined by the card's UUID.
 */
#include "driver/driver.h"

#include <string.h>

enum { HANDLES = ZR_DEVICE_HANDLES, CARDS = 64, MODULES = 64 };

struct zr_device zr_device[HANDLES];
static struct {
    uint8_t uuid[ZE_MAX_DEVICE_UUID_SIZE];
    ze_device_handle_t handle; /* of the card itself, good at this hook */
    uint32_t hook;
} card[CARDS];
static unsigned cards; /* atomic */
static struct zr_lock lock;

/* Sysman's memory modules. Its devices are others than those of the core API: the UUID is the same. */
static struct {
    zes_mem_handle_t handle; /* atomic, the last to be written */
    ze_device_handle_t device;
    uint8_t uuid[ZE_MAX_DEVICE_UUID_SIZE];
    uint32_t among; /* modules that its device has */
} module[MODULES];

static bool any_part; /* atomic: a sub-device was seen */

static const struct zr_device *find(ze_device_handle_t device) {
    for (unsigned i = zr_device_place(device), n = 0; n < HANDLES; i = (i + 1) % HANDLES, n++) {
        ze_device_handle_t at = __atomic_load_n(&zr_device[i].handle, __ATOMIC_ACQUIRE);

        if (at == device)
            return &zr_device[i];
        if (!at)
            break;
    }
    return NULL;
}

static unsigned look(ze_device_handle_t device) {
    const struct zr_device *at = find(device);

    return at ? __atomic_load_n(&at->number, __ATOMIC_RELAXED) : ZR_UNKNOWN_DEVICE;
}

bool zr_device_is_part(ze_device_handle_t device) {
    const struct zr_device *at = __atomic_load_n(&any_part, __ATOMIC_RELAXED) ? find(device) : NULL;

    return at && __atomic_load_n(&at->is_part, __ATOMIC_RELAXED);
}

/* Under the lock. */
static void learn(ze_device_handle_t device, unsigned number, bool is_part) {
    for (unsigned i = zr_device_place(device), n = 0; n < HANDLES; i = (i + 1) % HANDLES, n++) {
        if (zr_device[i].handle && zr_device[i].handle != device)
            continue;
        __atomic_store_n(&zr_device[i].number, number, __ATOMIC_RELAXED);
        __atomic_store_n(&zr_device[i].is_part, is_part, __ATOMIC_RELAXED);
        if (is_part)
            __atomic_store_n(&any_part, true, __ATOMIC_RELAXED);
        __atomic_store_n(&zr_device[i].handle, device, __ATOMIC_RELEASE);
        return;
    }
}

/* The card with this UUID, the `rank`-th of several from 0; ZR_UNKNOWN_DEVICE: none, or it says nothing. */
static unsigned card_with(const uint8_t *uuid, unsigned rank) {
    static const uint8_t nothing[ZE_MAX_DEVICE_UUID_SIZE];
    unsigned known = __atomic_load_n(&cards, __ATOMIC_ACQUIRE);

    for (unsigned i = 0; i < known && memcmp(uuid, nothing, sizeof nothing) != 0; i++)
        if (memcmp(card[i].uuid, uuid, sizeof nothing) == 0 && rank-- == 0)
            return i;
    return ZR_UNKNOWN_DEVICE;
}

/* Under the lock: that card, a new one if there is none. */
static unsigned card_of(const struct zr_call *call, ze_device_handle_t device, const uint8_t *uuid, unsigned rank) {
    unsigned number = card_with(uuid, rank);

    if (number != ZR_UNKNOWN_DEVICE || cards == CARDS)
        return number != ZR_UNKNOWN_DEVICE ? number : CARDS - 1;
    number = cards;
    memcpy(card[number].uuid, uuid, sizeof card[number].uuid);
    card[number].handle = device;
    card[number].hook = call->hook;
    __atomic_store_n(&cards, number + 1, __ATOMIC_RELEASE);
    return number;
}

ze_device_handle_t zr_device_handle(unsigned number, uint32_t *hook) {
    if (number >= __atomic_load_n(&cards, __ATOMIC_ACQUIRE))
        return NULL;
    *hook = card[number].hook;
    return card[number].handle;
}

static bool properties(struct zr_call *call, ze_device_handle_t device, ze_device_properties_t *p) {
    memset(p, 0, sizeof *p);
    p->stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    return ZR_BELOW(call, zeDeviceGetProperties)(device, p) == ZE_RESULT_SUCCESS;
}

static ze_device_handle_t root_of(struct zr_call *call, ze_device_handle_t part) {
    typedef ze_result_t (*get_root)(ze_device_handle_t, ze_device_handle_t *);
    get_root get = (get_root)zr_function_below(call->hook, "zeDeviceGetRootDevice");
    ze_device_handle_t root = NULL;

    if (!get || get(part, &root) != ZE_RESULT_SUCCESS)
        return NULL;
    return root;
}

/* A handle that came from no list that we saw: asked of the driver, once. */
static __attribute__((noinline, cold)) unsigned ask(struct zr_call *call, ze_device_handle_t device) {
    ze_device_properties_t p;
    ze_device_handle_t root;
    unsigned number;

    if (!properties(call, device, &p))
        return ZR_UNKNOWN_DEVICE;
    if (p.flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE && (root = root_of(call, device)) && root != device &&
        (number = zr_device_number(call, root)) != ZR_UNKNOWN_DEVICE) {
        zr_lock(&lock);
        learn(device, number, true);
        zr_unlock(&lock);
        return number;
    }
    zr_device_seen(call, NULL, &device, 1);
    return look(device);
}

unsigned zr_device_number_slow(struct zr_call *call, ze_device_handle_t device) {
    unsigned number;

    if (!device)
        return ZR_UNKNOWN_DEVICE;
    number = look(device);
    return likely(number != ZR_UNKNOWN_DEVICE) ? number : ask(call, device);
}

static void learn_parts(unsigned card_number, const ze_device_handle_t *parts, uint32_t count) {
    zr_lock(&lock);
    for (uint32_t i = 0; i < count; i++)
        if (parts[i] && look(parts[i]) == ZR_UNKNOWN_DEVICE)
            learn(parts[i], card_number, true);
    zr_unlock(&lock);
}

/* Where it is on the bus, so that the kernel's figures find it. */
static void name_card(struct zr_call *call, ze_device_handle_t device) {
    typedef ze_result_t (*get_pci)(ze_device_handle_t, ze_pci_ext_properties_t *);
    get_pci get = (get_pci)zr_function_below(call->hook, "zeDevicePciGetPropertiesExt");
    ze_pci_ext_properties_t p = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};

    if (get && get(device, &p) == ZE_RESULT_SUCCESS)
        zr_drm_name(look(device), (uint64_t)p.address.domain << 16 | (uint64_t)p.address.bus << 8 |
                                      p.address.device << 3 | p.address.function);
}

/* How many of the list before this one say the same of themselves. */
static unsigned rank_in(uint8_t (*uuid)[ZE_MAX_DEVICE_UUID_SIZE], uint32_t i) {
    unsigned rank = 0;

    for (uint32_t k = 0; k < i; k++)
        rank += memcmp(uuid[k], uuid[i], sizeof *uuid) == 0;
    return rank;
}

/*
 * Two handles of one list are two cards, whatever they say about themselves: without sysfs Intel's driver gives all
 * cards one UUID.
 */
void zr_device_seen(struct zr_call *call, ze_device_handle_t root, const ze_device_handle_t *devices, uint32_t count) {
    unsigned of_root = root ? zr_device_number(call, root) : ZR_UNKNOWN_DEVICE;
    uint8_t uuid[CARDS][ZE_MAX_DEVICE_UUID_SIZE];
    bool said[CARDS];

    if (of_root != ZR_UNKNOWN_DEVICE) {
        learn_parts(of_root, devices, count);
        return;
    }
    count = count < CARDS ? count : CARDS;
    for (uint32_t i = 0; i < count; i++) {
        ze_device_properties_t p;

        said[i] = devices[i] && properties(call, devices[i], &p);
        memset(uuid[i], 0, sizeof uuid[i]);
        if (said[i])
            memcpy(uuid[i], p.uuid.id, sizeof uuid[i]);
    }
    zr_lock(&lock);
    for (uint32_t i = 0; i < count; i++)
        if (said[i] && look(devices[i]) == ZR_UNKNOWN_DEVICE)
            learn(devices[i], card_of(call, devices[i], uuid[i], rank_in(uuid, i)), false);
    zr_unlock(&lock);
    for (uint32_t i = 0; i < count; i++)
        if (said[i])
            name_card(call, devices[i]);
}

uint64_t zr_device_memory(struct zr_call *call, ze_device_handle_t device) {
    enum { REGIONS = 16 };
    ze_device_memory_properties_t p[REGIONS];
    uint32_t count = REGIONS;
    uint64_t total = 0;

    memset(p, 0, sizeof p);
    for (int i = 0; i < REGIONS; i++)
        p[i].stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
    if (ZR_BELOW(call, zeDeviceGetMemoryProperties)(device, &count, p) != ZE_RESULT_SUCCESS)
        return 0;
    for (uint32_t i = 0; i < count; i++)
        total += p[i].totalSize;
    return total;
}

/* --- Sysman ------------------------------------------------------------------------------------------------------- */
static void sysman_uuid(struct zr_call *call, zes_device_handle_t device, uint8_t *uuid) {
    typedef ze_result_t (*get_properties)(zes_device_handle_t, zes_device_properties_t *);
    get_properties get = (get_properties)zr_function_below(call->hook, "zesDeviceGetProperties");
    zes_device_properties_t p;

    memset(&p, 0, sizeof p);
    p.stype = ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    p.core.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    if (!get || get(device, &p) != ZE_RESULT_SUCCESS)
        memset(&p, 0, sizeof p);
    memcpy(uuid, p.core.uuid.id, ZE_MAX_DEVICE_UUID_SIZE);
}

void zr_device_modules(struct zr_call *call, zes_device_handle_t device, const zes_mem_handle_t *modules,
                       uint32_t count) {
    uint8_t uuid[ZE_MAX_DEVICE_UUID_SIZE];
    uint32_t among = 0;

    sysman_uuid(call, device, uuid);
    /* The caller may have asked for some of them only. */
    if (ZR_BELOW(call, zesDeviceEnumMemoryModules)(device, &among, NULL) != ZE_RESULT_SUCCESS || among < count)
        among = count;
    zr_lock(&lock);
    for (uint32_t i = 0; i < count; i++)
        for (unsigned n = 0; n < MODULES; n++) {
            if (module[n].handle == modules[i])
                break;
            if (module[n].handle)
                continue;
            module[n].device = (ze_device_handle_t)device;
            memcpy(module[n].uuid, uuid, sizeof uuid);
            module[n].among = among;
            __atomic_store_n(&module[n].handle, modules[i], __ATOMIC_RELEASE);
            break;
        }
    zr_unlock(&lock);
}

bool zr_device_of_module(zes_mem_handle_t memory, unsigned *number, uint32_t *among) {
    for (unsigned n = 0; n < MODULES; n++) {
        zes_mem_handle_t at = __atomic_load_n(&module[n].handle, __ATOMIC_ACQUIRE);

        if (!at)
            break;
        if (at != memory)
            continue;
        *among = module[n].among;
        *number = look(module[n].device);
        if (*number != ZR_UNKNOWN_DEVICE)
            return true;
        /* Of several cards that say the same of themselves nobody knows which it is. */
        if (card_with(module[n].uuid, 1) != ZR_UNKNOWN_DEVICE)
            break;
        *number = card_with(module[n].uuid, 0);
        return true;
    }
    *number = ZR_UNKNOWN_DEVICE;
    *among = 1;
    return false;
}

/* The driver's handles are not usable in a child, but they may come again: the numbers stay. */
void zr_device_fork_child(void) {
    lock = (struct zr_lock){0};
}
