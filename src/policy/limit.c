/*
 * What the process holds of each device, all kinds together, and the setting `limit`: device memory beyond it is
 * refused, and programs that ask how much there is are told what the limit leaves. Nothing is counted unless a limit is
 * set; counted blocks are marked (ZR_BLOCK_LIMITED), so that a limit can be set and removed while blocks live.
 */
#include "policy/policy.h"

#include <string.h>

enum { CARDS = 64, TRIES = 6 };

static struct {
    uint64_t used;   /* atomic */
    uint64_t memory; /* atomic: of the card; 0: not asked yet */
    uint64_t left;   /* atomic: limit:auto, what other processes leave us; 0: not known yet */
} account[CARDS];

static uint64_t amount_of(const struct zr_amount *amount, uint64_t total) {
    return amount->percent_x100 ? (uint64_t)((zr_u128)total * amount->percent_x100 / 10000) : amount->bytes;
}

/* A device without a number is booked, and so counted, as the first one. */
static unsigned counted_as(unsigned number) {
    return number == ZR_UNKNOWN_DEVICE ? 0 : number;
}

/* The memory of the whole card, whichever handle is at hand: a sub-device would report less. 0 if unknown. */
static uint64_t memory_of(unsigned number) {
    uint64_t memory = __atomic_load_n(&account[number].memory, __ATOMIC_RELAXED);
    struct zr_op own = {.hook = ZR_HOOK_PLT};
    ze_device_handle_t card = likely(memory) ? NULL : zr_device_handle(number, &own.hook);

    if (card) {
        memory = zr_device_memory(&own, card);
        __atomic_store_n(&account[number].memory, memory, __ATOMIC_RELAXED);
    }
    return memory;
}

uint64_t zr_limit_of(unsigned number) {
    struct zr_amount limit = zr_config.limit;
    uint64_t memory, left;

    number = counted_as(number);
    if (likely(!limit.set) || number >= CARDS)
        return UINT64_MAX;
    if (!limit.percent_x100 && !limit.is_auto)
        return limit.bytes;
    memory = memory_of(number);
    left = limit.is_auto ? __atomic_load_n(&account[number].left, __ATOMIC_RELAXED) : 0;
    return left ? left : !memory ? UINT64_MAX : limit.is_auto ? memory : amount_of(&limit, memory);
}

static uint64_t used_of(unsigned number) {
    return number < CARDS ? __atomic_load_n(&account[number].used, __ATOMIC_RELAXED) : 0;
}

void zr_charge_undo(struct zr_charge *c) {
    if (c->ledgers & ZR_LEDGER_LIMIT)
        __atomic_fetch_sub(&account[c->card].used, c->bytes, __ATOMIC_RELAXED);
    if (c->ledgers & ZR_LEDGER_CLAIM)
        zr_claim(c->card, -(int64_t)c->bytes);
    c->ledgers = 0;
}

static void drop(unsigned number, uint64_t bytes) {
    number = counted_as(number);
    __atomic_fetch_sub(&account[number].used, bytes, __ATOMIC_RELAXED);
    if (zr_config.limit.is_auto)
        zr_claim(number, -(int64_t)bytes);
}

/*
 * limit:auto. Announce first, then look; near the end cached figures will not do. If two processes want the last of a
 * card at once, both may find it too much: they withdraw, and retry after pauses of different length.
 */
static bool take_left(struct zr_charge *charge, unsigned number, uint64_t bytes) {
    uint64_t memory = memory_of(number), used, taken, left;
    for (int try = 0; try < TRIES; try++) {
        used = __atomic_add_fetch(&account[number].used, bytes, __ATOMIC_SEQ_CST);
        taken = zr_claim_and_look(number, used - bytes, (int64_t)bytes, try > 0);
        left = memory > taken ? memory - taken : 1;
        __atomic_store_n(&account[number].left, left, __ATOMIC_RELAXED);
        *charge = (struct zr_charge){bytes, (uint16_t)number, ZR_LEDGER_LIMIT | ZR_LEDGER_CLAIM};
        if (!memory || (used <= left && (try > 0 || used < left - left / 8)))
            return true;
        zr_charge_undo(charge);
        if (try > 0)
            clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = (long)(zr_now() % 1000 + 1) << (7 + try)},
                            NULL);
    }
    return false;
}

bool zr_limit_take(struct zr_charge *charge, unsigned number, uint64_t bytes) {
    uint64_t used, limit;

    number = counted_as(number);
    charge->ledgers = 0;
    if (likely(!zr_config.limit.set) || number >= CARDS)
        return true;
    if (zr_config.limit.is_auto)
        return take_left(charge, number, bytes);
    limit = zr_limit_of(number);
    used = __atomic_load_n(&account[number].used, __ATOMIC_RELAXED);
    do {
        if (bytes > limit || used > limit - bytes)
            return false;
    } while (!__atomic_compare_exchange_n(&account[number].used, &used, used + bytes, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    *charge = (struct zr_charge){bytes, (uint16_t)number, ZR_LEDGER_LIMIT};
    return true;
}

void zr_limit_leave(struct zr_block *b) {
    if (zr_block_flags(b) & ZR_BLOCK_LIMITED &&
        __atomic_fetch_and(&b->flags, ~(uint32_t)ZR_BLOCK_LIMITED, __ATOMIC_RELAXED) & ZR_BLOCK_LIMITED)
        drop(b->key.account, b->held);
}

uint64_t zr_cache_share(unsigned number) {
    uint64_t total = number < CARDS && number != ZR_HOST_ACCOUNT ? memory_of(number) : 0;
    uint64_t usual = total / 50 > (UINT64_C(256) << 20) ? total / 50 : UINT64_C(256) << 20;
    struct zr_amount limit = zr_config.cache_limit;

    /* A percentage needs a total, which nobody reports for some memory, such as the host's. */
    if (!limit.set || (limit.percent_x100 && !total))
        return usual;
    return amount_of(&limit, total);
}

static bool counts(const struct zr_block *b) {
    uint8_t kind = __atomic_load_n(&b->key.kind, __ATOMIC_RELAXED);

    return (kind == ZR_KIND_DEVICE || kind == ZR_KIND_PHYSICAL || kind == ZR_KIND_IMPORTED) &&
           !(zr_block_flags(b) & ZR_BLOCK_FOREIGN) && counted_as(b->key.account) < CARDS;
}

/* The mark is set once and cleared once, by whoever comes first: this walk, the allocation or the free. */
static bool count(struct zr_block *b, void *unused) {
    uint64_t word = zr_block_word(b);

    (void)unused;
    if (zr_word_state(word) == ZR_BLOCK_NONE || !counts(b) ||
        __atomic_fetch_or(&b->flags, ZR_BLOCK_LIMITED, __ATOMIC_SEQ_CST) & ZR_BLOCK_LIMITED)
        return true;
    __atomic_fetch_add(&account[counted_as(b->key.account)].used, b->held, __ATOMIC_RELAXED);
    if (zr_word_state(zr_block_word(b)) == ZR_BLOCK_NONE) /* its free may have checked before it was marked */
        zr_limit_leave(b);
    return true;
}

void zr_limit_changed(void) {
    if (zr_config.limit.set)
        zr_block_each(count, NULL);
}

/* --- what programs are told --------------------------------------------------------------------------------------- */

static void least(uint64_t *value, uint64_t bound) {
    if (value && *value > bound)
        *value = bound;
}

static void report(unsigned number, uint64_t *total, uint64_t *free) {
    bool all = number == ZR_UNKNOWN_DEVICE;

    if (!zr_config.limit.set || zr_config.limit.is_auto)
        return;
    for (unsigned n = all ? 0 : number; n < (all ? CARDS : number + 1); n++) {
        uint64_t limit = zr_limit_of(n), used = used_of(n);

        least(total, limit);
        least(free, limit > used ? limit - used : 0);
    }
}

/*
 * free_memory:checked: the least of what the driver reports and what the kernel and other processes' announcements
 * leave. Some drivers always report 0 or the total: that is replaced. `total` is what the query reported, or 0.
 */
static void check_free(unsigned number, uint64_t total, uint64_t *free) {
    static uint64_t zeros; /* atomic: cards whose driver reported 0 with nothing in use */
    uint64_t driver = free ? *free : 0, memory, blocks, left;
    if (!free || number >= ZR_DEVICES || (zr_config.free_memory != ZR_FREE_MEMORY_CHECKED && !zr_config.limit.is_auto))
        return;
    memory = memory_of(number);
    blocks = zr_config.limit.is_auto || !zr_stats_open() ? used_of(number) : zr_booked(number);
    left = blocks + zr_claim_and_look(number, blocks, 0, true);
    left = memory > left ? memory - left : 0;
    if (!driver && left && !blocks)
        __atomic_fetch_or(&zeros, UINT64_C(1) << number, __ATOMIC_RELAXED);
    total = total ? total : memory;
    if (driver > total || (driver == total && left < memory) ||
        (!driver && __atomic_load_n(&zeros, __ATOMIC_RELAXED) >> number & 1)) {
        zr_count(ZR_F_FREE_REPLACED_CALLS, 1);
        zr_warn("the driver says that %llu of %llu bytes are free on card %u, which cannot be right: programs are told "
                "the kernel's figure",
                (unsigned long long)driver, (unsigned long long)total, number);
        *free = left;
    }
    least(free, left);
    report(number, NULL, free);
    __atomic_store_n(zr_card(number, ZR_C_FREE_DRIVER), driver, __ATOMIC_RELAXED);
    __atomic_store_n(zr_card(number, ZR_C_FREE_TOLD), *free, __ATOMIC_RELAXED);
}

void zr_limit_report(unsigned number, uint64_t *total, uint64_t *free) {
    check_free(number, 0, free);
    report(number, total, free);
}

void zr_limit_report_part(unsigned number, uint64_t *left, uint64_t *total) {
    report(number, left, NULL);
    least(total, *left);
    if (*left != UINT64_MAX)
        *left -= *total;
}

/* The limit of a device with several modules is divided among them by size. */
void zr_limit_report_module(zes_mem_handle_t memory, uint64_t *total, uint64_t *free) {
    struct zr_amount amount = zr_config.limit;
    uint64_t limit = UINT64_MAX, left = UINT64_MAX, size = *total;
    unsigned number;
    uint32_t among;
    bool known = zr_device_of_module(memory, &number, &among);

    if (among == 1)
        check_free(number, size, free);
    if (!amount.set || amount.is_auto)
        return;
    if (known && number == ZR_UNKNOWN_DEVICE)
        limit = left = amount_of(&amount, size * among);
    else
        report(number, &limit, &left);
    least(total, limit / among);
    least(free, left / among);
}

void zr_limit_fork_child(void) {
    memset(account, 0, sizeof account);
}
