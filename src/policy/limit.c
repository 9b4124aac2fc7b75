/*
 * The account: what the process holds of each device, all kinds alike, and the setting `limit`.
 *
 * Nothing is counted here unless a limit is set.
 */
#include "policy/policy.h"

#include <string.h>

enum { DEVICES = 64 };

static struct {
    uint64_t used;  /* atomic */
    uint64_t limit; /* atomic; 0: not asked yet */
} account[DEVICES];

/* The device's local memory, all regions together; 0 when the driver does not say. */
uint64_t zr_device_memory(struct zr_call *call, ze_device_handle_t device)
{
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

uint64_t zr_amount_of(const struct zr_amount *amount, uint64_t total)
{
    if (!amount->percent_x100)
        return amount->bytes;
    return (uint64_t)((zr_u128)total * amount->percent_x100 / 10000);
}

/* A device without a number is booked as the first one, and so it is counted there. */
static unsigned counted_as(unsigned number)
{
    return number == ZR_UNKNOWN_DEVICE ? 0 : number;
}

/* A part of the card's memory, whichever of its handles is at hand: a sub-device would name less. */
static __attribute__((noinline, cold)) uint64_t find_limit(const struct zr_call *call, unsigned number)
{
    struct zr_call own = {.caller = call->caller};
    ze_device_handle_t card = zr_device_handle(number, &own.hook);
    uint64_t limit = card ? zr_amount_of(&zr_config.limit, zr_device_memory(&own, card)) : 0;

    __atomic_store_n(&account[number].limit, limit, __ATOMIC_RELEASE);
    return limit;
}

uint64_t zr_limit_of(const struct zr_call *call, unsigned number)
{
    uint64_t limit;

    number = counted_as(number);
    if (likely(!zr_config.limit.set) || number >= DEVICES)
        return UINT64_MAX;
    if (!zr_config.limit.percent_x100)
        return zr_config.limit.bytes;
    limit = __atomic_load_n(&account[number].limit, __ATOMIC_ACQUIRE);
    if (unlikely(!limit))
        limit = find_limit(call, number);
    return limit ? limit : UINT64_MAX;
}

uint64_t zr_limit_used(unsigned number)
{
    return number < DEVICES ? __atomic_load_n(&account[number].used, __ATOMIC_RELAXED) : 0;
}

bool zr_limit_take(const struct zr_call *call, unsigned number, uint64_t bytes)
{
    uint64_t limit = zr_limit_of(call, number);
    uint64_t used;

    number = counted_as(number);
    if (likely(!zr_config.limit.set) || number >= DEVICES)
        return true;
    used = __atomic_load_n(&account[number].used, __ATOMIC_RELAXED);
    do {
        if (bytes > limit || used > limit - bytes)
            return false;
    } while (!__atomic_compare_exchange_n(&account[number].used, &used, used + bytes, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return true;
}

void zr_limit_drop(unsigned number, uint64_t bytes)
{
    uint64_t used;

    number = counted_as(number);
    if (likely(!zr_config.limit.set) || number >= DEVICES)
        return;
    used = __atomic_load_n(&account[number].used, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&account[number].used, &used, used > bytes ? used - bytes : 0,
                                        false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

void zr_fork_child_limit(void)
{
    memset(account, 0, sizeof account);
}
