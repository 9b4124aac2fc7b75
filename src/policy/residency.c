/*
 * Residency: on which devices blocks are made resident, and residency:owner.
 *
 * Making a block resident on another device than its owner exports it and may cost host memory.
 * With residency:owner such a request is answered with success, counted and not passed on. The
 * owner's own request, sub-devices of the owner, virtual memory, host memory and imported blocks
 * pass as they are.
 */
#include "pause/pause.h"
#include "policy/policy.h"

#include <string.h>

/*
 * Devices from which something was evicted. The driver evicts all blocks of one of its slabs
 * together, and we do not know which those are, so the books no longer hold for such a device. Nor
 * do they where residency is requested on a sub-device: the driver keeps it per sub-device, the
 * books per card.
 */
static uint64_t uncertain; /* atomic */

static uint64_t bit_of(unsigned number) {
    return number < 64 ? UINT64_C(1) << number : 0;
}

static uint32_t skipped_bit(unsigned number) {
    return number < 15 ? (uint32_t)ZR_BLOCK_SKIPPED << number : 0;
}

/* --- where the next block will be resident ---------------------------------------------------- */

struct zr_remembered zr_remembered[ZR_ACCOUNTS];

ZR_COLD void zr_residency_remember_other(const struct zr_block *b, uint64_t requested) {
    struct zr_remembered *last = &zr_remembered[b->key.account];

    __atomic_store_n(&last->context, b->key.context, __ATOMIC_RELAXED);
    __atomic_store_n(&last->devices, requested, __ATOMIC_RELAXED);
}

void zr_residency_forget(const void *context) {
    for (unsigned i = 0; i < ZR_ACCOUNTS; i++)
        if (__atomic_load_n(&zr_remembered[i].context, __ATOMIC_RELAXED) == context)
            __atomic_store_n(&zr_remembered[i].devices, 0, __ATOMIC_RELAXED);
}

/* --- whose block it is ------------------------------------------------------------------------ */

/* Asks the driver, once, about a block that was allocated past us. */
static ZR_COLD struct zr_block *ask_owner(struct zr_op *op, ze_context_handle_t context,
                                          const void *ptr) {
    ze_memory_allocation_properties_t p = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t owner = NULL;
    void *base = NULL;
    size_t size = 0;

    if (ZR_BELOW(op, zeMemGetAllocProperties)(context, ptr, &p, &owner) != ZE_RESULT_SUCCESS ||
        p.type != ZE_MEMORY_TYPE_DEVICE || !owner ||
        ZR_BELOW(op, zeMemGetAddressRange)(context, ptr, &base, &size) != ZE_RESULT_SUCCESS)
        return NULL;
    zr_registry_note(op, ZR_KIND_DEVICE, zr_device_number(op, owner), context, base, size,
                     ZR_BLOCK_FOREIGN);
    return zr_map_find(ptr);
}

/* The LIVE block that holds *ptr; if there is none, NULL, and *ptr becomes what to ask the driver
 * about. */
static struct zr_block *find_live(void **ptr) {
    struct zr_block *b = zr_map_find(*ptr);

    if (unlikely(!b))
        *ptr = (void *)zr_registry_visible(*ptr);
    return b;
}

/* The block whose owner decides about this pointer; NULL if the request is to pass. */
static struct zr_block *owned(struct zr_op *op, ze_context_handle_t context, void **ptr) {
    struct zr_block *b = find_live(ptr);

    if (!b)
        b = ask_owner(op, context, *ptr);
    return b && b->key.kind == ZR_KIND_DEVICE ? b : NULL;
}

/* "libccl.so" matches libccl.so and libccl.so.1, not libcclx.so. */
static bool is_listed(const char *list, const char *library) {
    while (*list) {
        size_t n = strcspn(list, "+");

        if (n && strncmp(list, library, n) == 0 && (library[n] == '\0' || library[n] == '.'))
            return true;
        list += n + (list[n] == '+');
    }
    return false;
}

/* A program that has made a block resident on a peer does so with all. */
static bool has_peers; /* atomic */

bool zr_residency_mirrors(void) {
    return __atomic_load_n(&has_peers, __ATOMIC_RELAXED) &&
           zr_config.residency != ZR_RESIDENCY_OWNER && zr_config.backing != ZR_BACKING_EAGER;
}

bool zr_residency_skips(const struct zr_op *op) {
    const char *through = zr_config.peer_callers;

    if (zr_config.residency != ZR_RESIDENCY_OWNER)
        return false;
    return !(through && *through && is_listed(through, op->library->name));
}

/* --- requests --------------------------------------------------------------------------------- */

static ze_result_t record_residency(enum zeroute_record_type type, const struct zr_block *b,
                                    const void *ptr, unsigned number, size_t size, unsigned flags,
                                    ze_result_t result) {
    unsigned owner = b ? b->key.account : ZEROUTE_RECORD_NO_CARD;

    if (b && type == ZEROUTE_EVENT_RESIDENT && owner != number)
        flags |= ZEROUTE_FLAG_PEER;
    zr_record(type, ZR_KIND_DEVICE, number, ptr, size, owner, flags, (uint32_t)result);
    return result;
}

static ze_result_t skip(const struct zr_op *op, struct zr_block *b, const void *ptr,
                        unsigned number, size_t size) {
    zr_block_mark(b, skipped_bit(number));
    zr_count(ZR_F_RESIDENCY_PEER_SKIPPED_CALLS, 1);
    zr_count(ZR_F_RESIDENCY_PEER_SKIPPED_BYTES, size);
    zr_count_caller(op->library, ZR_CALLER_SKIPPED_CALLS, 1);
    zr_count_caller(op->library, ZR_CALLER_SKIPPED_BYTES, size);
    return record_residency(ZEROUTE_EVENT_RESIDENT, b, ptr, number, size, ZEROUTE_FLAG_SKIPPED,
                            ZE_RESULT_SUCCESS);
}

/* A reused block keeps its residency, so the books may have the answer. */
static bool is_resident(ze_device_handle_t device, struct zr_block *b, unsigned number) {
    uint64_t bit = bit_of(number);

    if (unlikely(zr_device_is_part(device)))
        __atomic_fetch_or(&uncertain, bit, __ATOMIC_SEQ_CST);
    /* Of two threads at once one may be forgotten: that costs a hit. */
    __atomic_store_n(&b->requested, __atomic_load_n(&b->requested, __ATOMIC_RELAXED) | bit,
                     __ATOMIC_RELAXED);
    return zr_block_flags(b) & ZR_BLOCK_CACHEABLE &&
           __atomic_load_n(&b->residents, __ATOMIC_RELAXED) & bit &&
           !(__atomic_load_n(&uncertain, __ATOMIC_RELAXED) & bit);
}

ze_result_t zr_residency_make(struct zr_op *op, ze_context_handle_t context,
                              ze_device_handle_t device, void *ptr, size_t size) {
    unsigned number = zr_device_number(op, device);
    struct zr_block *b = number == ZR_UNKNOWN_DEVICE ? NULL : owned(op, context, &ptr);
    bool peer = b && b->key.account != number;
    struct zr_room room;
    ze_result_t result;

    if (b) {
        zr_count(peer ? ZR_F_RESIDENCY_PEER_REQUESTED_CALLS : ZR_F_RESIDENCY_OWNER_REQUESTED_CALLS,
                 1);
        zr_count(peer ? ZR_F_RESIDENCY_PEER_REQUESTED_BYTES : ZR_F_RESIDENCY_OWNER_REQUESTED_BYTES,
                 size);
        if (peer && zr_residency_skips(op))
            return skip(op, b, ptr, number, size);
        if (is_resident(device, b, number) && context && size) {
            zr_count(ZR_F_RESIDENCY_ANSWERED_CALLS, 1);
            return record_residency(ZEROUTE_EVENT_RESIDENT, b, ptr, number, size,
                                    ZEROUTE_FLAG_ANSWERED, ZE_RESULT_SUCCESS);
        }
    }
    ZR_WITHIN(ZR_GATE_WORK);
    /* A driver that defers backing allocates only now: on the owner, and what the import takes on a
     * peer. */
    room = zr_room_begin(op, peer ? ZR_UNKNOWN_DEVICE : number);
    do {
        result = ZR_DOWN(op, zeContextMakeMemoryResident, size, (context, device, ptr, size));
    } while (zr_room_again(&room, result));
    if (unlikely(result != ZE_RESULT_SUCCESS))
        op->refused_by = ZR_REFUSED_BY_DRIVER;
    record_residency(ZEROUTE_EVENT_RESIDENT, b, ptr, number, size, 0, result);
    if (!b || result != ZE_RESULT_SUCCESS)
        return result;
    if (peer) {
        __atomic_store_n(&has_peers, true, __ATOMIC_RELAXED);
        zr_count(ZR_F_RESIDENCY_PEER_GRANTED_CALLS, 1);
        zr_count(ZR_F_RESIDENCY_PEER_GRANTED_BYTES, size);
    }
    __atomic_fetch_or(&b->residents, bit_of(number), __ATOMIC_RELAXED);
    if (zr_pausing())
        zr_pause_resident(ptr, context, device, true);
    return result;
}

/* What was skipped is not evicted either; everything else is. */
ze_result_t zr_residency_evict(struct zr_op *op, ze_context_handle_t context,
                               ze_device_handle_t device, void *ptr, size_t size) {
    unsigned number = zr_device_number(op, device);
    struct zr_block *b = number == ZR_UNKNOWN_DEVICE ? NULL : find_live(&ptr);
    uint64_t bit = bit_of(number);
    uint32_t skipped = b ? skipped_bit(number) : 0;
    ze_result_t result;

    zr_count(ZR_F_RESIDENCY_EVICT_CALLS, 1);
    if (skipped && !(__atomic_load_n(&b->residents, __ATOMIC_RELAXED) & bit) &&
        (__atomic_fetch_and(&b->flags, ~skipped, __ATOMIC_RELAXED) & skipped)) {
        zr_count(ZR_F_RESIDENCY_EVICT_SKIPPED_CALLS, 1);
        return record_residency(ZEROUTE_EVENT_EVICT, b, ptr, number, size, ZEROUTE_FLAG_SKIPPED,
                                ZE_RESULT_SUCCESS);
    }
    /* First: after the driver has evicted something, no request is answered from the books. */
    __atomic_fetch_or(&uncertain, bit ? bit : UINT64_MAX, __ATOMIC_SEQ_CST);
    ZR_WITHIN(ZR_GATE_WORK);
    if (zr_pausing())
        zr_pause_resident(ptr, context, device, false);
    result = ZR_DOWN(op, zeContextEvictMemory, size, (context, device, ptr, size));
    record_residency(ZEROUTE_EVENT_EVICT, b, ptr, number, size, 0, result);
    if (b && b->key.kind == ZR_KIND_DEVICE && result == ZE_RESULT_SUCCESS)
        __atomic_fetch_and(&b->residents, ~bit, __ATOMIC_RELAXED);
    return result;
}
