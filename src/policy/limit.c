/*
 * What the process has of each device, all kinds alike, and the setting `limit`: device memory beyond it is refused,
 * and programs that ask how much there is are told what the limit leaves. Nothing is counted here unless a limit is
 * set.
 */
#include "policy/policy.h"

#include <string.h>

enum { CARDS = 64 };

static struct {
    uint64_t used;  /* atomic */
    uint64_t limit; /* atomic: of a limit in percent; 0: the card was not asked yet */
} account[CARDS];

uint64_t zr_amount_of(const struct zr_amount *amount, uint64_t total) {
    if (!amount->percent_x100)
        return amount->bytes;
    return (uint64_t)((zr_u128)total * amount->percent_x100 / 10000);
}

/* A device without a number is booked as the first one, and so it is counted there. */
static unsigned counted_as(unsigned number) {
    return number == ZR_UNKNOWN_DEVICE ? 0 : number;
}

/* A part of the card's memory, whichever of its handles is at hand: a sub-device would name less. */
static ZR_COLD uint64_t find_limit(unsigned number) {
    struct zr_call own = {.hook = ZR_HOOK_PLT};
    ze_device_handle_t card = zr_device_handle(number, &own.hook);
    uint64_t limit = card ? zr_amount_of(&zr_config.limit, zr_device_memory(&own, card)) : 0;

    __atomic_store_n(&account[number].limit, limit, __ATOMIC_RELEASE);
    return limit;
}

uint64_t zr_limit_of(unsigned number) {
    uint64_t limit;

    number = counted_as(number);
    if (likely(!zr_config.limit.set) || number >= CARDS)
        return UINT64_MAX;
    if (!zr_config.limit.percent_x100)
        return zr_config.limit.bytes;
    limit = __atomic_load_n(&account[number].limit, __ATOMIC_ACQUIRE);
    if (unlikely(!limit))
        limit = find_limit(number);
    return limit ? limit : UINT64_MAX;
}

static uint64_t used_of(unsigned number) {
    return number < CARDS ? __atomic_load_n(&account[number].used, __ATOMIC_RELAXED) : 0;
}

bool zr_limit_take(unsigned number, uint64_t bytes) {
    uint64_t used, limit;

    number = counted_as(number);
    if (likely(!zr_config.limit.set) || number >= CARDS)
        return true;
    limit = zr_limit_of(number);
    used = __atomic_load_n(&account[number].used, __ATOMIC_RELAXED);
    do {
        if (bytes > limit || used > limit - bytes)
            return false;
    } while (!__atomic_compare_exchange_n(&account[number].used, &used, used + bytes, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return true;
}

void zr_limit_drop(unsigned number, uint64_t bytes) {
    uint64_t used;

    number = counted_as(number);
    if (likely(!zr_config.limit.set) || number >= CARDS)
        return;
    used = __atomic_load_n(&account[number].used, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&account[number].used, &used, used > bytes ? used - bytes : 0, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

uint64_t zr_cache_share(struct zr_call *call, ze_device_handle_t device) {
    uint64_t total = device ? zr_device_memory(call, device) : 0;
    uint64_t usual = total / 50 > (UINT64_C(256) << 20) ? total / 50 : UINT64_C(256) << 20;

    /* Of memory that nobody reports, such as the host's, a percentage says nothing. */
    if (!zr_config.cache_limit.set || (zr_config.cache_limit.percent_x100 && !total))
        return usual;
    return zr_amount_of(&zr_config.cache_limit, total);
}

/* --- what programs are told --------------------------------------------------------------------------------------- */

static void least(uint64_t *value, uint64_t bound) {
    if (value && *value > bound)
        *value = bound;
}

void zr_limit_report(unsigned number, uint64_t *total, uint64_t *free) {
    bool all = number == ZR_UNKNOWN_DEVICE;

    if (!zr_config.limit.set)
        return;
    for (unsigned n = all ? 0 : number; n < (all ? CARDS : number + 1); n++) {
        uint64_t limit = zr_limit_of(n), used = used_of(n);

        least(total, limit);
        least(free, limit > used ? limit - used : 0);
    }
}

void zr_limit_report_part(unsigned number, uint64_t *left, uint64_t *total) {
    zr_limit_report(number, left, NULL);
    least(total, *left);
    if (*left != UINT64_MAX)
        *left -= *total;
}

/* A device that has several modules has its limit shared out among them by their size. */
void zr_limit_report_module(zes_mem_handle_t memory, uint64_t *total, uint64_t *free) {
    uint64_t limit = UINT64_MAX, left = UINT64_MAX, size = *total;
    unsigned number;
    uint32_t among;
    bool known = zr_device_of_module(memory, &number, &among);

    if (!zr_config.limit.set)
        return;
    if (known && number == ZR_UNKNOWN_DEVICE)
        limit = left = zr_amount_of(&zr_config.limit, size * among) / among;
    else
        zr_limit_report(number, &limit, &left);
    if (number != ZR_UNKNOWN_DEVICE && among > 1 && limit != UINT64_MAX) {
        limit /= among;
        left /= among;
    }
    least(total, limit);
    least(free, left);
}

void zr_limit_fork_child(void) {
    memset(account, 0, sizeof account);
}
