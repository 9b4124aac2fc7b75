/*
 * What the process holds of each device, all kinds together, and the setting `limit`: device memory
 * beyond it is refused, and programs that ask how much there is are told what the limit leaves.
 * Nothing is counted unless a limit is set. Each block keeps what was charged for it, and in which
 * ledgers, so that a limit can be set, changed and removed while blocks live.
 */
#include "policy/policy.h"

#include <string.h>

enum { CARDS = 64, TRIES = 6 };
/* Of what is left, a lease takes an eighth, at least so much; nothing near the end. */
enum { LEASE_PART = 8, LEASE_LEAST = 1 << 16 };

static struct {
    uint64_t used;      /* atomic */
    uint64_t memory;    /* atomic: of the card; 0: not asked yet */
    uint64_t usable;    /* atomic: the same less the driver's own share */
    uint64_t remaining; /* atomic: limit:auto, what other processes do not have; 0: not known yet */
    uint64_t share;     /* atomic: what the last look left to our blocks; 0: none yet */
} account[CARDS];

/* Whether what this process may take depends on what others have. */
static bool looks_at_others(void) {
    return zr_config.limit.is_auto || zr_config.group_limit.set;
}

static uint64_t amount_of(const struct zr_amount *amount, uint64_t total) {
    return amount->percent_x100 ? (uint64_t)((zr_u128)total * amount->percent_x100 / 10000)
                                : amount->bytes;
}

bool zr_limit_counts_imports(void) {
    return !zr_config.limit.is_auto || zr_config.group_limit.set;
}

/* Whether this kind of memory counts against the limit of its card. */
static bool is_charged(enum zr_kind kind) {
    if (kind == ZR_KIND_IMPORTED)
        return zr_limit_counts_imports();
    return kind == ZR_KIND_DEVICE || kind == ZR_KIND_PHYSICAL;
}

/* A device without a number is booked, and so counted, as the first one. */
static unsigned counted_as(unsigned number) {
    return number == ZR_UNKNOWN_DEVICE ? 0 : number;
}

/* The memory of the whole card, whichever handle is at hand: a sub-device would report less. 0 if
 * unknown. */
static uint64_t memory_of(unsigned number) {
    uint64_t memory = __atomic_load_n(&account[number].memory, __ATOMIC_RELAXED);
    struct zr_op own = {.hook = ZR_HOOK_PLT};
    ze_device_handle_t card = likely(memory) ? NULL : zr_device_handle(number, &own.hook);

    if (card) {
        __atomic_store_n(&account[number].usable, zr_device_usable(&own, card), __ATOMIC_RELAXED);
        memory = zr_device_memory(&own, card);
        __atomic_store_n(&account[number].memory, memory, __ATOMIC_RELAXED);
    }
    return memory;
}

bool zr_limit_fits_card(unsigned number, uint64_t bytes) {
    return number < CARDS && bytes <= memory_of(number);
}

/* What programs can have of it: the driver keeps a share. */
static uint64_t usable_of(unsigned number) {
    return memory_of(number) ? __atomic_load_n(&account[number].usable, __ATOMIC_RELAXED) : 0;
}

/* What the group may hold; UINT64_MAX if there is no limit, or the card's size is not known. */
static uint64_t group_limit_of(unsigned number) {
    struct zr_amount limit = zr_config.group_limit;

    if (likely(!limit.set) || number >= CARDS)
        return UINT64_MAX;
    if (limit.percent_x100 && !memory_of(number))
        return UINT64_MAX;
    return amount_of(&limit, limit.percent_x100 ? memory_of(number) : 0);
}

uint64_t zr_limit_of(unsigned number) {
    struct zr_amount limit = zr_config.limit;
    uint64_t memory, remaining;

    number = counted_as(number);
    if (likely(!limit.set) || number >= CARDS)
        return group_limit_of(number);
    if (!limit.percent_x100 && !limit.is_auto)
        return limit.bytes;
    memory = memory_of(number);
    remaining = __atomic_load_n(&account[number].remaining, __ATOMIC_RELAXED);
    if (limit.is_auto && remaining)
        return remaining;
    if (!memory)
        return UINT64_MAX;
    return limit.is_auto ? memory : amount_of(&limit, memory);
}

static uint64_t used_of(unsigned number) {
    return number < CARDS ? __atomic_load_n(&account[number].used, __ATOMIC_RELAXED) : 0;
}

/* --- charges ---------------------------------------------------------------------------------- */

/* Returns which of these ledgers it was entered in: a claim needs a segment. */
static unsigned enter(unsigned ledgers, unsigned card, uint64_t bytes) {
    if (ledgers & ZR_LEDGER_LIMIT)
        __atomic_fetch_add(&account[card].used, bytes, __ATOMIC_SEQ_CST);
    if (ledgers & ZR_LEDGER_CLAIM && !zr_claim(card, (int64_t)bytes))
        ledgers &= ~(unsigned)ZR_LEDGER_CLAIM;
    return ledgers;
}

static void strike(unsigned ledgers, unsigned card, uint64_t bytes) {
    if (ledgers & ZR_LEDGER_LIMIT)
        __atomic_fetch_sub(&account[card].used, bytes, __ATOMIC_RELAXED);
    if (ledgers & ZR_LEDGER_CLAIM)
        zr_claim(card, -(int64_t)bytes);
}

/* Of several threads that undo a charge, one finds it. */
static struct zr_charge withdraw(struct zr_charge *charge) {
    struct zr_charge none = {0}, was;

    __atomic_load(charge, &was, __ATOMIC_RELAXED);
    if (likely(!was.ledgers))
        return none;
    __atomic_exchange(charge, &none, &was, __ATOMIC_ACQ_REL);
    strike(was.ledgers, was.card, was.bytes);
    return was;
}

void zr_charge_undo(struct zr_charge *charge) {
    struct zr_charge was = withdraw(charge);

    if (unlikely(was.ledgers & ZR_LEDGER_CLAIM))
        zr_lease_return(was.card, was.bytes);
}

/*
 * A walk that follows a change of the limit may enter something for the last block of a descriptor
 * while that block ends. It would strike that itself, if the descriptor were not used again first.
 */
void zr_charge_pass(struct zr_charge *charge, struct zr_charge *to) {
    struct zr_charge was;

    __atomic_load(to, &was, __ATOMIC_RELAXED);
    if (likely(!charge->ledgers && !was.ledgers))
        return;
    __atomic_exchange(to, charge, &was, __ATOMIC_ACQ_REL);
    strike(was.ledgers, was.card, was.bytes);
}

/* What is counted where, by the setting in force. */
static unsigned ledgers_in_force(void) {
    if (!zr_limit_is_set())
        return 0;
    return looks_at_others() ? ZR_LEDGER_LIMIT | ZR_LEDGER_CLAIM : ZR_LEDGER_LIMIT;
}

/*
 * Brings a charge in line with the setting. What is new is entered before the charge says so, and
 * what ends is struck afterwards: whoever undoes the charge meanwhile undoes what was done.
 */
void zr_limit_follow(struct zr_charge *charge, enum zr_kind kind, unsigned number, uint64_t bytes) {
    unsigned wanted = is_charged(kind) ? ledgers_in_force() : 0, card = counted_as(number), entered;
    struct zr_charge was, is;

    if (card >= CARDS)
        return;
    __atomic_load(charge, &was, __ATOMIC_ACQUIRE);
    do {
        if (was.ledgers == wanted)
            return;
        is = was;
        if (!was.ledgers) {
            is.bytes = bytes;
            is.card = (uint8_t)card;
        }
        entered = enter(wanted & ~was.ledgers, is.card, is.bytes);
        is.ledgers = (uint8_t)((was.ledgers & wanted) | entered);
        if (__atomic_compare_exchange(charge, &was, &is, false, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE))
            break;
        strike(entered, is.card, is.bytes);
    } while (true);
    strike(was.ledgers & ~is.ledgers, is.card, is.bytes);
}

/* --- limit:auto ------------------------------------------------------------------------------- */

static uint64_t less(uint64_t from, uint64_t what) {
    return from > what ? from - what : 0;
}

static void bound_by(struct zr_share *s, enum zr_bound bound, uint64_t bytes) {
    if (bytes >= s->bytes)
        return;
    s->bytes = bytes;
    s->bound = bound;
}

static void bound_by_card(struct zr_share *s) {
    const struct zr_look *look = &s->look;

    if (s->card) {
        bound_by(s, ZR_BOUND_CARD, less(s->card, look->unseen));
        bound_by(s, ZR_BOUND_OTHERS, less(s->card, look->unseen + look->others));
    }
    if (look->is_in_cgroup)
        bound_by(s, ZR_BOUND_CGROUP, less(look->cgroup.most, look->unseen + look->cgroup_others));
}

/* The least of what each of them leaves. */
static void measure(unsigned number, uint64_t used, bool fresh, struct zr_share *s) {
    struct zr_amount limit = zr_config.limit;
    bool by_card = limit.is_auto || zr_config.free_memory == ZR_FREE_MEMORY_CHECKED;
    uint64_t group = group_limit_of(number);

    s->card = limit.is_auto ? usable_of(number) : memory_of(number);
    s->bytes = UINT64_MAX;
    s->bound = ZR_BOUND_CARD;
    zr_claims_look(number, used, fresh, &s->look);
    if (by_card)
        bound_by_card(s);
    if (group != UINT64_MAX)
        bound_by(s, ZR_BOUND_GROUP, less(group, s->look.unseen + s->look.group_others));
    if (limit.is_auto)
        __atomic_store_n(&account[number].remaining, s->bytes ? s->bytes : 1,
                         __ATOMIC_RELAXED); /* 0 would be: not known yet */
    else if (limit.set)
        bound_by(s, ZR_BOUND_LIMIT, zr_limit_of(number));
}

void zr_limit_share(unsigned number, uint64_t blocks, struct zr_share *s) {
    *s = (struct zr_share){.bytes = UINT64_MAX};
    if (number < CARDS)
        measure(number, blocks, true, s);
}

/* How long a lease is to be. Nothing where a lease would not be worth a look, or it is too late. */
static uint64_t lease_wanted(unsigned number) {
    uint64_t known = __atomic_load_n(&account[number].share, __ATOMIC_RELAXED);
    uint64_t left = less(known, used_of(number)) / LEASE_PART;

    return known == UINT64_MAX || left < LEASE_LEAST ? 0 : left;
}

/*
 * Looks, and asks for a lease with the same look. What this process takes meanwhile is added to
 * `used` before the lease is read, and the lease is announced before `used` is read: one of two
 * threads sees the other.
 */
static bool fits(unsigned number, bool again, struct zr_share *share) {
    uint64_t wanted = again ? 0 : lease_wanted(number), used, leased;
    bool asked = wanted && zr_lease_ask(number, wanted), fit;

    measure(number, used_of(number), again, share);
    leased = zr_lease_announced(number);
    used = used_of(number);
    __atomic_store_n(&account[number].share, share->bytes, __ATOMIC_RELAXED);
    fit = used + leased <= share->bytes && (again || used < share->bytes - share->bytes / 8);
    if (asked)
        zr_lease_grant(number, fit);
    return fit;
}

/* What others have leased but do not use is there again soon. */
static void pause_before(int try, const struct zr_share *share) {
    long ns = (long)(zr_now() % 1000 + 1) << (7 + try);

    if (share->look.leased && ns < ZR_LEASE_NS)
        ns = ZR_LEASE_NS;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = ns}, NULL);
}

/*
 * Announce first, then look; near the end cached figures will not do. If two processes want the
 * last of a card at once, both may find it too much: they withdraw, and retry after pauses of
 * different length.
 */
static bool take_share(struct zr_op *op, unsigned number, uint64_t bytes) {
    struct zr_charge *charge = &op->charge;
    struct zr_share share;

    for (int try = 0; try < TRIES; try++) {
        *charge = (struct zr_charge){.bytes = bytes, .card = (uint8_t)number};
        charge->ledgers = (uint8_t)enter(ZR_LEDGER_LIMIT | ZR_LEDGER_CLAIM, number, bytes);
        if (try == 0 && zr_lease_use(number, bytes))
            return true;
        if (try > 0)
            zr_lease_end(number);
        if (fits(number, try > 0, &share))
            return true;
        withdraw(charge); /* it was never granted: nothing of it belongs to a lease */
        if (try > 0)
            pause_before(try, &share);
    }
    op->refused_by =
        share.bound == ZR_BOUND_GROUP ? ZR_REFUSED_BY_GROUP_LIMIT : ZR_REFUSED_BY_LIMIT;
    return false;
}

bool zr_limit_take(struct zr_op *op, unsigned number, uint64_t bytes) {
    uint64_t used, limit;

    number = counted_as(number);
    zr_charge_undo(&op->charge);
    if (likely(!zr_limit_is_set()) || number >= CARDS)
        return true;
    if (looks_at_others())
        return take_share(op, number, bytes);
    limit = zr_limit_of(number);
    used = __atomic_load_n(&account[number].used, __ATOMIC_RELAXED);
    op->refused_by = ZR_REFUSED_BY_LIMIT;
    do {
        if (bytes > limit || used > limit - bytes)
            return false;
    } while (!__atomic_compare_exchange_n(&account[number].used, &used, used + bytes, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    op->charge =
        (struct zr_charge){.bytes = bytes, .card = (uint8_t)number, .ledgers = ZR_LEDGER_LIMIT};
    return true;
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

uint64_t zr_hold_share(unsigned number) {
    return number < CARDS ? amount_of(&zr_config.ipc_hold_limit, memory_of(number)) : 0;
}

/* --- a setting that changes while blocks live ------------------------------------------------- */

/*
 * The block may be freed, and its descriptor be another block's, while we look: then its charge is
 * undone, and whatever is there by now is looked at again.
 */
static void follow(struct zr_block *b) {
    for (;;) {
        uint64_t word = zr_block_word(b);

        if (zr_word_state(word) == ZR_BLOCK_NONE || zr_block_flags(b) & ZR_BLOCK_FOREIGN)
            return;
        zr_limit_follow(&b->charge, __atomic_load_n(&b->key.kind, __ATOMIC_RELAXED),
                        __atomic_load_n(&b->key.account, __ATOMIC_RELAXED),
                        __atomic_load_n(&b->held, __ATOMIC_RELAXED));
        if (zr_block_word(b) == word)
            return;
        zr_charge_undo(&b->charge);
    }
}

/* The setting is read after the block can be found: a change that has not seen the block is seen
 * here. */
void zr_limit_registered(struct zr_block *b) {
    struct zr_charge charge;

    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    __atomic_load(&b->charge, &charge, __ATOMIC_RELAXED);
    if (unlikely(charge.ledgers != ledgers_in_force()))
        follow(b);
}

static bool follow_each(struct zr_block *b, void *unused) {
    (void)unused;
    follow(b);
    return true;
}

static void follow_object(struct zr_object *o, void *unused) {
    (void)unused;
    zr_limit_follow(&o->charge, o->kind, o->account, o->bytes);
}

void zr_limit_changed(void) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    zr_block_each(follow_each, NULL);
    zr_object_each(follow_object, NULL);
}

/* --- what programs are told ------------------------------------------------------------------- */

static void least(uint64_t *value, uint64_t bound) {
    if (value && *value > bound)
        *value = bound;
}

static void report_limit(unsigned number, uint64_t *total, uint64_t *free) {
    uint64_t limit = zr_limit_of(number), used = used_of(number);

    least(total, limit);
    least(free, less(limit, used));
}

/* The group's share is the card that its processes see. */
static void report_group(unsigned number, uint64_t *total, uint64_t *free) {
    uint64_t limit = group_limit_of(number);
    struct zr_look look;

    least(total, limit);
    if (!free || limit == UINT64_MAX || !memory_of(number))
        return;
    zr_claims_look(number, used_of(number), true, &look);
    least(free, less(limit, used_of(number) + look.unseen + look.group_others));
}

static void report(unsigned number, uint64_t *total, uint64_t *free) {
    bool all = number == ZR_UNKNOWN_DEVICE;
    struct zr_amount limit = zr_config.limit;

    if (!zr_limit_is_set())
        return;
    for (unsigned n = all ? 0 : number; n < (all ? CARDS : number + 1); n++) {
        if (limit.set && !limit.is_auto)
            report_limit(n, total, free);
        if (zr_config.group_limit.set)
            report_group(n, total, free);
    }
}

/* Whether answers to queries of free memory are held against what the kernel says. */
static bool checks_free(void) {
    return zr_config.free_memory == ZR_FREE_MEMORY_CHECKED || zr_config.limit.is_auto;
}

/* What this process has in blocks: by the ledger where there is one, else by the books. */
static uint64_t blocks_of(unsigned number) {
    return looks_at_others() || !zr_stats_open() ? used_of(number) : zr_booked(number);
}

/*
 * free_memory:checked: the least of what the driver reports and what the kernel and other
 * processes' announcements leave. Some drivers always report 0 or the total: that is replaced.
 * `total` is what the query reported, or 0.
 */
static void check_free(unsigned number, uint64_t total, uint64_t *free) {
    static uint64_t zeros; /* atomic: cards whose driver reported 0 with nothing in use */
    uint64_t driver = free ? *free : 0, memory, blocks, remaining, in_use;
    struct zr_share share;

    if (!free || number >= ZR_DEVICES || !checks_free())
        return;
    memory = memory_of(number);
    blocks = blocks_of(number);
    measure(number, blocks, true, &share);
    in_use = blocks + share.look.unseen + share.look.others;
    remaining = share.bytes == UINT64_MAX ? 0 : less(share.bytes, blocks);
    if (!driver && remaining && !blocks)
        __atomic_fetch_or(&zeros, UINT64_C(1) << number, __ATOMIC_RELAXED);
    total = total ? total : memory;
    if (driver > total || (driver == total && in_use) ||
        (!driver && __atomic_load_n(&zeros, __ATOMIC_RELAXED) >> number & 1)) {
        zr_count(ZR_F_FREE_REPLACED_CALLS, 1);
        zr_warn("the driver says that %llu of %llu bytes are free on card %u, which cannot be "
                "right: programs are told "
                "the kernel's figure",
                (unsigned long long)driver, (unsigned long long)total, number);
        *free = remaining;
    }
    least(free, remaining);
    report(number, NULL, free);
    __atomic_store_n(zr_card(number, ZR_C_FREE_DRIVER), driver, __ATOMIC_RELAXED);
    __atomic_store_n(zr_card(number, ZR_C_FREE_TOLD), *free, __ATOMIC_RELAXED);
}

bool zr_limit_answer(unsigned number, uint64_t *total, uint64_t *free) {
    struct zr_share share;

    if (number >= ZR_DEVICES || !checks_free() || !memory_of(number))
        return false;
    measure(number, blocks_of(number), true, &share);
    *total = memory_of(number);
    *free = less(share.bytes, blocks_of(number));
    zr_count(ZR_F_FREE_ANSWERED_CALLS, 1);
    zr_warn("the driver refuses to say how much memory is free on card %u: programs are told the "
            "kernel's figure",
            number);
    report(number, total, free);
    return true;
}

void zr_limit_report(unsigned number, uint64_t *total, uint64_t *free) {
    check_free(number, 0, free);
    report(number, total, free);
}

void zr_limit_report_part(unsigned number, uint64_t *remaining, uint64_t *total) {
    report(number, remaining, NULL);
    least(total, *remaining);
    if (*remaining != UINT64_MAX)
        *remaining -= *total;
}

/* What the settings allow of a card of this size. */
static uint64_t least_amount(uint64_t size) {
    struct zr_amount limit = zr_config.limit, group = zr_config.group_limit;
    uint64_t amount = UINT64_MAX;

    if (limit.set && !limit.is_auto)
        amount = amount_of(&limit, size);
    if (group.set)
        least(&amount, amount_of(&group, size));
    return amount;
}

/* The limit of a device with several modules is divided among them by size. */
void zr_limit_report_module(zes_mem_handle_t memory, uint64_t *total, uint64_t *free) {
    uint64_t limit = UINT64_MAX, remaining = UINT64_MAX, size = *total;
    unsigned number;
    uint32_t among;
    bool known = zr_device_of_module(memory, &number, &among);

    if (among == 1)
        check_free(number, size, free);
    if (!zr_limit_is_set())
        return;
    if (known && number == ZR_UNKNOWN_DEVICE)
        limit = remaining = least_amount(size * among);
    else
        report(number, &limit, &remaining);
    least(total, limit / among);
    least(free, remaining / among);
}

void zr_limit_fork_child(void) {
    memset(account, 0, sizeof account);
}
