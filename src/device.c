/*
 * Cards by number: device handles to small numbers, in the order in which zeDeviceGet lists them.
 *
 * One card can have several handles: an old loader with two drivers wraps them, so that the same card looks
 * different at the loader and at the driver's door. Handles are joined by the card's UUID.
 */
#include "policy.h"

#include <string.h>

enum { HANDLES = ZR_DEVICE_HANDLES, CARDS = 64 };

struct zr_device zr_device[HANDLES];
static struct {
    uint8_t uuid[ZE_MAX_DEVICE_UUID_SIZE];
} card[CARDS];
static unsigned cards;
static struct zr_lock lock;

static unsigned look(ze_device_handle_t device)
{
    for (unsigned i = zr_device_place(device), n = 0; n < HANDLES; i = (i + 1) % HANDLES, n++) {
        ze_device_handle_t at = __atomic_load_n(&zr_device[i].handle, __ATOMIC_ACQUIRE);

        if (at == device)
            return __atomic_load_n(&zr_device[i].number, __ATOMIC_RELAXED);
        if (!at)
            break;
    }
    return ZR_UNKNOWN_DEVICE;
}

/* Under the lock. */
static void learn(ze_device_handle_t device, unsigned number)
{
    for (unsigned i = zr_device_place(device), n = 0; n < HANDLES; i = (i + 1) % HANDLES, n++) {
        if (zr_device[i].handle && zr_device[i].handle != device)
            continue;
        __atomic_store_n(&zr_device[i].number, number, __ATOMIC_RELAXED);
        __atomic_store_n(&zr_device[i].handle, device, __ATOMIC_RELEASE);
        return;
    }
}

/* Under the lock: the card with this UUID, a new one if there is none or if it says nothing. */
static unsigned card_of(const uint8_t *uuid)
{
    static const uint8_t nothing[ZE_MAX_DEVICE_UUID_SIZE];

    for (unsigned i = 0; i < cards; i++)
        if (memcmp(card[i].uuid, nothing, sizeof nothing) != 0 &&
            memcmp(card[i].uuid, uuid, sizeof nothing) == 0)
            return i;
    if (cards == CARDS)
        return CARDS - 1;
    memcpy(card[cards].uuid, uuid, sizeof nothing);
    return cards++;
}

static bool properties(struct zr_call *call, ze_device_handle_t device, ze_device_properties_t *p)
{
    memset(p, 0, sizeof *p);
    p->stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES;
    return ZR_BELOW(call, zeDeviceGetProperties)(device, p) == ZE_RESULT_SUCCESS;
}

static ze_device_handle_t root_of(struct zr_call *call, ze_device_handle_t part)
{
    typedef ze_result_t (*get_root)(ze_device_handle_t, ze_device_handle_t *);
    get_root get = (get_root)zr_function_below(call->door, "zeDeviceGetRootDevice");
    ze_device_handle_t root = NULL;

    if (!get || get(part, &root) != ZE_RESULT_SUCCESS)
        return NULL;
    return root;
}

/* A handle that came from no list that we saw: asked of the driver, once. */
static __attribute__((noinline, cold)) unsigned ask(struct zr_call *call, ze_device_handle_t device)
{
    ze_device_properties_t p;
    ze_device_handle_t root;
    unsigned number;

    if (!properties(call, device, &p))
        return ZR_UNKNOWN_DEVICE;
    if (p.flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE && (root = root_of(call, device)) &&
        root != device && (number = zr_device_number(call, root)) != ZR_UNKNOWN_DEVICE) {
        zr_lock(&lock);
        learn(device, number);
        zr_unlock(&lock);
        return number;
    }
    zr_device_seen(call, NULL, &device, 1);
    return look(device);
}

unsigned zr_device_number_slow(struct zr_call *call, ze_device_handle_t device)
{
    unsigned number;

    if (!device)
        return ZR_UNKNOWN_DEVICE;
    number = look(device);
    return likely(number != ZR_UNKNOWN_DEVICE) ? number : ask(call, device);
}

void zr_device_seen(struct zr_call *call, ze_device_handle_t root, const ze_device_handle_t *devices,
                    uint32_t count)
{
    unsigned of_root = root ? zr_device_number(call, root) : ZR_UNKNOWN_DEVICE;

    for (uint32_t i = 0; i < count; i++) {
        ze_device_properties_t p;

        if (!devices[i] || look(devices[i]) != ZR_UNKNOWN_DEVICE)
            continue;
        if (of_root == ZR_UNKNOWN_DEVICE && !properties(call, devices[i], &p))
            continue;
        zr_lock(&lock);
        if (look(devices[i]) == ZR_UNKNOWN_DEVICE)
            learn(devices[i], of_root != ZR_UNKNOWN_DEVICE ? of_root : card_of(p.uuid.id));
        zr_unlock(&lock);
    }
}

/* The driver's handles are not usable in a child, but they may come again: the numbers stay. */
void zr_fork_child_device(void)
{
    lock = (struct zr_lock){0};
}
