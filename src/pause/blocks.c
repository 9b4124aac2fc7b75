/*
 * Blocks that can be given up: a reserved range with physical memory mapped into it, in place of
 * zeMemAllocDevice. What the program may ask about such a block is answered from the books, so that
 * the answer is the same while it is given up. A block that commands may still use when it is freed
 * waits until no command can: unmapping, unlike zeMemFree, does not wait for anything.
 */
#include "machine/machine.h"
#include "pause/inside.h"
#include "work/work.h"

#include <string.h>

enum {
    BUCKETS = 1 << 12,
    SMALLEST = 64 << 10,
    UNIT = 2 << 20,
    LARGE = 1 << 30,
    MAX_SIZE = 1, /* the one limit that can be lifted */
    MEMBERS = 64,
    SETTLE_MS = 200,
    PATIENCE_MS = 30, /* of a freed block, before the devices are asked */
    RELAXED_LIMITS = 0x10016,
    RELAXED_LIMITS_EXP = 0x00020001
};

static struct zr_lock pausable_lock; /* guards all below */
static struct zr_pausable *buckets[BUCKETS];
static struct zr_pausable *spare;
static struct zr_pausable *leaving; /* freed, while commands may use them */
static uint32_t leaving_since;      /* atomic, in milliseconds: when the oldest came; 0: none */

#define BELOW(p, name) ((zr_fn_##name)zr_below((p)->hook, ZR_E_##name, NULL))

static struct zr_pausable **bucket_of_base(uintptr_t base) {
    return &buckets[(base >> 16) * UINT64_C(0x9e3779b97f4a7c15) >> 52];
}
_Static_assert(BUCKETS == 1 << (64 - 52), "the bits of the hash");

/* --- which requests, and how large ------------------------------------------------------------ */

/* Whether the descriptor lifts the limit on the size of a block. */
static bool is_relaxed(const ze_device_mem_alloc_desc_t *desc) {
    const ze_relaxed_allocation_limits_exp_desc_t *next = desc->pNext;

    return next && !next->pNext && next->flags == MAX_SIZE &&
           ((uint32_t)next->stype == RELAXED_LIMITS || (uint32_t)next->stype == RELAXED_LIMITS_EXP);
}

static bool is_plain(const ze_device_mem_alloc_desc_t *desc) {
    return desc->stype == ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC && !desc->flags &&
           !desc->ordinal && (!desc->pNext || is_relaxed(desc));
}

/* Physical memory may be larger than a block: what zeMemAllocDevice refuses is left to it. */
static bool is_within_limits(const ze_device_mem_alloc_desc_t *desc, size_t size,
                             ze_device_handle_t device) {
    ze_device_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    struct zr_op op = {.hook = 0};

    if (size < LARGE)
        return true;
    if (!zr_device_handle(zr_device_known(device), &op.hook) ||
        ZR_BELOW(&op, zeDeviceGetProperties)(device, &p) != ZE_RESULT_SUCCESS)
        return false;
    return is_relaxed(desc) || size <= p.maxMemAllocSize;
}

static size_t page_of(size_t size) {
    return size < UNIT ? SMALLEST : UNIT;
}

static bool is_served(const ze_device_mem_alloc_desc_t *desc, size_t size, size_t alignment,
                      ze_device_handle_t device) {
    return desc && device && is_plain(desc) && size >= SMALLEST && size >> 44 == 0 &&
           alignment <= page_of(size) && !(alignment & (alignment - 1)) &&
           zr_device_known(device) != ZR_UNKNOWN_DEVICE && !zr_device_is_part(device) &&
           is_within_limits(desc, size, device);
}

size_t zr_pause_held(const ze_device_mem_alloc_desc_t *desc, size_t size, size_t alignment,
                     ze_device_handle_t device) {
    size_t page = page_of(size);

    if (!is_served(desc, size, alignment, device))
        return size;
    return (size + page - 1) & ~(page - 1);
}

/* --- memory of one block ---------------------------------------------------------------------- */

static void range_free(const struct zr_pausable *p) {
    (void)BELOW(p, zeVirtualMemFree)(p->context, (const void *)p->base, p->held);
}

/* Reserves the range of a block again at its own address. */
static bool reserve_there(const struct zr_pausable *p) {
    struct zr_op op = {.hook = p->hook};

    return zr_reserve_at(&op, p->context, p->base, p->held);
}

static ze_result_t memory_map(struct zr_pausable *p) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = p->held};
    ze_physical_mem_handle_t physical = NULL;
    ze_result_t result = BELOW(p, zePhysicalMemCreate)(p->context, p->device, &desc, &physical);

    if (result != ZE_RESULT_SUCCESS)
        return result;
    result = BELOW(p, zeVirtualMemMap)(p->context, (const void *)p->base, p->held, physical, 0,
                                       ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE);
    if (result == ZE_RESULT_SUCCESS)
        p->physical = physical;
    else
        (void)BELOW(p, zePhysicalMemDestroy)(p->context, physical);
    return result;
}

static bool memory_unmap(struct zr_pausable *p) {
    if (BELOW(p, zeVirtualMemUnmap)(p->context, (const void *)p->base, p->held) !=
        ZE_RESULT_SUCCESS)
        return false;
    (void)BELOW(p, zePhysicalMemDestroy)(p->context, p->physical);
    p->physical = NULL;
    return true;
}

/*
 * The range is freed and reserved again: else another card goes on reading the old memory when new
 * memory is mapped there.
 */
bool zr_pausable_give_up(struct zr_pausable *p) {
    if (!memory_unmap(p))
        return false;
    range_free(p);
    p->lost = !reserve_there(p);
    return true;
}

ze_result_t zr_pausable_get_back(struct zr_pausable *p) {
    if (p->lost && !reserve_there(p))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    p->lost = false;
    return memory_map(p);
}

void zr_pausable_make_resident(struct zr_pausable *p) {
    for (unsigned i = 0; i < p->residents; i++)
        (void)BELOW(p, zeContextMakeMemoryResident)(p->resident[i].context, p->resident[i].device,
                                                    (void *)p->base, p->held);
}

/* Gives everything back that a block has. Nobody else knows it any more. */
static void block_end(struct zr_pausable *p) {
    if (!p->physical)
        zr_store_forget(p);
    else if (!memory_unmap(p))
        zr_warn("pause: the driver did not unmap a block of %zu bytes that was freed", p->held);
    if (!p->lost)
        range_free(p);
    if (p->unclaimed)
        zr_claim(p->number, (int64_t)p->unclaimed);
    zr_lock(&pausable_lock);
    p->next = spare;
    spare = p;
    zr_unlock(&pausable_lock);
}

/* --- the table -------------------------------------------------------------------------------- */

static struct zr_pausable *pausable_new(void) {
    struct zr_pausable *p;

    zr_lock(&pausable_lock);
    p = spare;
    if (p)
        spare = p->next;
    zr_unlock(&pausable_lock);
    if (!p)
        p = zr_piece(sizeof *p);
    return p;
}

static void table_insert(struct zr_pausable *p) {
    struct zr_pausable **bucket = bucket_of_base(p->base);

    zr_lock(&pausable_lock);
    p->next = *bucket;
    *bucket = p;
    zr_unlock(&pausable_lock);
}

/* The caller holds the lock. */
static struct zr_pausable **table_find(uintptr_t base) {
    struct zr_pausable **at = bucket_of_base(base);

    while (*at && (*at)->base != base)
        at = &(*at)->next;
    return at;
}

static struct zr_pausable *table_take(uintptr_t base) {
    struct zr_pausable **at, *p;

    zr_lock(&pausable_lock);
    at = table_find(base);
    p = *at;
    if (p)
        *at = p->next;
    zr_unlock(&pausable_lock);
    return p;
}

/* Blocks may be given up and got back by see(), so it is not called under the lock. */
bool zr_pausable_each(bool (*see)(struct zr_pausable *p, void *arg), void *arg) {
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct zr_pausable *p = buckets[i]; p; p = p->next)
            if (!see(p, arg))
                return false;
    return true;
}

/* --- allocation ------------------------------------------------------------------------------- */

/* Without that a block could not come back. Tried with a range that has room for large pages. */
static bool may_come_back(struct zr_op *op, ze_context_handle_t context) {
    if (likely(zr_reserves_at_will(op, context, UNIT)))
        return true;
    zr_pause_never("this driver does not reserve memory at an address that it is asked for");
    return false;
}

static bool is_short(ze_result_t result) {
    return result == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY ||
           result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

/*
 * Whether the context holds the device: else zeMemAllocDevice refuses, and creating physical memory
 * does not. Tried once for each pair with a small block.
 */
static struct {
    ze_context_handle_t context;
    ze_device_handle_t device;
} members[MEMBERS]; /* under the lock */
static unsigned next_member;

static bool is_known_member(ze_context_handle_t context, ze_device_handle_t device) {
    bool known = false;

    zr_lock(&pausable_lock);
    for (unsigned i = 0; i < MEMBERS && !known; i++)
        known = members[i].context == context && members[i].device == device;
    zr_unlock(&pausable_lock);
    return known;
}

static bool is_member(struct zr_op *op, ze_context_handle_t context, ze_device_handle_t device) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *block = NULL;

    if (likely(is_known_member(context, device)))
        return true;
    if (ZR_BELOW(op, zeMemAllocDevice)(context, &desc, 64, 0, device, &block) != ZE_RESULT_SUCCESS)
        return false;
    (void)ZR_BELOW(op, zeMemFree)(context, block);
    zr_lock(&pausable_lock);
    members[next_member].context = context;
    members[next_member].device = device;
    next_member = (next_member + 1) % MEMBERS;
    zr_unlock(&pausable_lock);
    return true;
}

static void forget_members(const void *context) {
    zr_lock(&pausable_lock);
    for (unsigned i = 0; i < MEMBERS; i++)
        if ((const void *)members[i].context == context)
            members[i].context = NULL;
    zr_unlock(&pausable_lock);
}

/* Reserves and maps; leaves nothing behind if that fails. */
static ze_result_t block_make(struct zr_pausable *p, size_t alignment) {
    void *at = NULL;
    ze_result_t result = BELOW(p, zeVirtualMemReserve)(p->context, NULL, p->held, &at);

    if (result != ZE_RESULT_SUCCESS)
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    p->base = (uintptr_t)at;
    if (alignment && p->base & (alignment - 1)) {
        range_free(p);
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    }
    result = memory_map(p);
    if (is_short(result) && zr_pause_settle())
        result = memory_map(p);
    if (result != ZE_RESULT_SUCCESS)
        range_free(p);
    return result;
}

static bool ask_properties(struct zr_pausable *p) {
    p->properties = (ze_memory_allocation_properties_t){
        .stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    return BELOW(p, zeMemGetAllocProperties)(p->context, (const void *)p->base, &p->properties,
                                             &p->owner) == ZE_RESULT_SUCCESS;
}

ze_result_t zr_pause_alloc(struct zr_op *op, ze_context_handle_t context,
                           const ze_device_mem_alloc_desc_t *desc, size_t size, size_t alignment,
                           ze_device_handle_t device, void **out, bool *served) {
    struct zr_pausable like = {.context = context, .device = device, .hook = op->hook}, *p;
    ze_result_t result;

    *served = false;
    like.held = zr_pause_held(desc, size, alignment, device);
    if (!context || !out || like.held != size || !is_served(desc, size, alignment, device) ||
        !zr_pause_start())
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    ZR_WITHIN(ZR_GATE_WORK);
    p = may_come_back(op, context) && is_member(op, context, device) ? pausable_new() : NULL;
    if (!p)
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    *p = like;
    p->number = zr_device_known(device);
    result = block_make(p, alignment);
    *served = result == ZE_RESULT_SUCCESS || is_short(result);
    if (result == ZE_RESULT_SUCCESS && ask_properties(p)) {
        *out = (void *)p->base;
        p->size = p->held;
        table_insert(p);
        return result;
    }
    if (result == ZE_RESULT_SUCCESS) {
        *served = false;
        memory_unmap(p);
        range_free(p);
    }
    zr_lock(&pausable_lock);
    p->next = spare;
    spare = p;
    zr_unlock(&pausable_lock);
    return result;
}

/* --- free ------------------------------------------------------------------------------------- */

static bool may_end(const struct zr_pausable *p) {
    return (p->epoch && zr_work_is_sure() && zr_work_is_idle(p->epoch)) ||
           zr_rest_has_ended(p->rest);
}

static void leave_later(struct zr_pausable *p) {
    uint32_t now = zr_now_ms();

    zr_lock(&pausable_lock);
    p->next = leaving;
    leaving = p;
    if (!leaving_since)
        __atomic_store_n(&leaving_since, now ? now : 1, __ATOMIC_RELAXED);
    zr_unlock(&pausable_lock);
}

static struct zr_pausable *take_idle(void) {
    struct zr_pausable *p, **at;

    zr_lock(&pausable_lock);
    for (at = &leaving; *at && !may_end(*at);)
        at = &(*at)->next;
    p = *at;
    if (p)
        *at = p->next;
    if (!leaving)
        __atomic_store_n(&leaving_since, 0, __ATOMIC_RELAXED);
    zr_unlock(&pausable_lock);
    return p;
}

uint32_t zr_leaving_ms(void) {
    uint32_t since = __atomic_load_n(&leaving_since, __ATOMIC_RELAXED);

    return since ? zr_now_ms() - since + 1 : 0;
}

bool zr_leaving_settle(void) {
    struct zr_pausable *p;
    bool any = false;

    while ((p = take_idle())) {
        block_end(p);
        any = true;
    }
    return any;
}

/* The thread of ours asks the devices; whoever is short of memory waits for it a little. */
bool zr_pause_settle(void) {
    static const struct timespec little = {0, 500000};
    uint32_t begun = zr_now_ms();
    bool any = zr_leaving_settle();

    while (zr_leaving_ms() && zr_now_ms() - begun < SETTLE_MS) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &little, NULL);
        any |= zr_leaving_settle() || !zr_leaving_ms();
    }
    return any;
}

bool zr_pause_free(const void *ptr, bool exported) {
    struct zr_pausable *p;

    ZR_WITHIN(ZR_GATE_BOOKS);
    p = table_take((uintptr_t)ptr);
    if (!p)
        return false;
    if (p->physical && !zr_exiting()) {
        p->epoch = zr_work_is_sure() ? zr_work_freed() : 0;
        p->rest = zr_rest_after_now();
        if (exported && !may_end(p))
            (void)zr_devices_rest();
        else if (!may_end(p)) {
            leave_later(p);
            return true;
        }
    }
    block_end(p);
    return true;
}

/* --- what the program asks -------------------------------------------------------------------- */

/* The base of the block that holds ptr, if the program has it. */
static uintptr_t base_around(const void *ptr) {
    const struct zr_block *b = zr_map_find(ptr);

    return b ? b->base : 0;
}

bool zr_pause_properties(const void *ptr, ze_memory_allocation_properties_t *properties,
                         ze_device_handle_t *device) {
    uintptr_t base = base_around(ptr);
    const struct zr_pausable *p;
    bool known;

    if (!base || !properties || properties->pNext)
        return false;
    zr_lock(&pausable_lock);
    p = *table_find(base);
    known = p != NULL;
    if (known) {
        properties->type = p->properties.type;
        properties->id = p->properties.id;
        properties->pageSize = p->properties.pageSize;
        if (device)
            *device = p->owner;
    }
    zr_unlock(&pausable_lock);
    return known;
}

bool zr_pause_range(const void *ptr, void **base, size_t *size) {
    const struct zr_block *b = zr_map_find(ptr);
    bool known;

    if (!b)
        return false;
    zr_lock(&pausable_lock);
    known = *table_find(b->base) != NULL;
    zr_unlock(&pausable_lock);
    if (!known)
        return false;
    if (base)
        *base = (void *)b->base;
    if (size)
        *size = b->size;
    return true;
}

/* The caller holds the lock. */
static void add_resident(struct zr_pausable *p, ze_context_handle_t context,
                         ze_device_handle_t device, bool resident) {
    unsigned i = 0;

    while (i < p->residents &&
           (p->resident[i].context != context || p->resident[i].device != device))
        i++;
    if (!resident && i < p->residents) {
        p->resident[i] = p->resident[--p->residents];
    } else if (resident && i == p->residents && i < ZR_PAUSABLE_RESIDENTS) {
        p->resident[i].context = context;
        p->resident[i].device = device;
        p->residents++;
    }
}

void zr_pause_resident(const void *ptr, ze_context_handle_t context, ze_device_handle_t device,
                       bool resident) {
    uintptr_t base = base_around(ptr);
    struct zr_pausable *p;

    if (!base)
        return;
    zr_lock(&pausable_lock);
    p = *table_find(base);
    if (p)
        add_resident(p, context, device, resident);
    zr_unlock(&pausable_lock);
}

/* --- the end of a context --------------------------------------------------------------------- */

/* The caller holds the lock. */
static struct zr_pausable *take_from(struct zr_pausable **at, const void *context) {
    struct zr_pausable *p;

    while (*at && (const void *)(*at)->context != context)
        at = &(*at)->next;
    p = *at;
    if (p)
        *at = p->next;
    return p;
}

/* Whoever destroys a context vouches that nothing uses its memory any more. */
void zr_pause_context_ends(ze_context_handle_t context) {
    struct zr_pausable *p;

    ZR_WITHIN(ZR_GATE_BOOKS);
    do {
        zr_lock(&pausable_lock);
        p = take_from(&leaving, context);
        zr_unlock(&pausable_lock);
        if (p)
            block_end(p);
    } while (p);
    zr_engines_drop(context);
}

/* Its handle is no use any more: what it had is forgotten. */
void zr_pause_context_gone(ze_context_handle_t context) {
    struct zr_pausable *p;

    forget_members(context);
    ZR_WITHIN(ZR_GATE_BOOKS);
    for (unsigned i = 0; i < BUCKETS; i++)
        do {
            zr_lock(&pausable_lock);
            p = take_from(&buckets[i], context);
            zr_unlock(&pausable_lock);
            if (p && p->unclaimed)
                zr_claim(p->number, (int64_t)p->unclaimed);
        } while (p);
}

void zr_blocks_fork_child(void) {
    memset(buckets, 0, sizeof buckets);
    spare = NULL;
    leaving = NULL;
    leaving_since = 0;
    memset(members, 0, sizeof members);
}
