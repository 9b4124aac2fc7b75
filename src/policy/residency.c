/*
 * Residency: which device asks for which block, and residency:owner.
 *
 * Making a block resident on another device than its owner exports it and may cost host memory (DESIGN.md
 * 1.4). With residency:owner such a request is answered with success, counted and not passed on. The owner's
 * own request, sub-devices of the owner, virtual memory, host memory and imported blocks pass as they are.
 */
#include "cache/pause.h"
#include "policy/policy.h"

#include <stdio.h>
#include <string.h>

/*
 * Devices from which something was, or was to be, evicted. Blocks of a slab of the driver's are evicted together, and
 * nobody knows which these are: what the books say of such a device is not relied on any more. Nor where residency is
 * asked for on a part of a card, as the driver keeps it for each part: the books know cards.
 */
static uint64_t uncertain;

bool zr_residency_is_certain(uint64_t devices)
{
    return !(__atomic_load_n(&uncertain, __ATOMIC_RELAXED) & devices);
}

/* Bit n of the upper half of a block's flags: residency on device n was asked for and skipped. */
static uint32_t skipped_bit(unsigned device)
{
    return device < 15 ? (uint32_t)ZR_BLOCK_USER << device : 0;
}

/* A block that was allocated past us is asked about once, and then known. */
static __attribute__((noinline, cold)) struct zr_block *ask_owner(struct zr_call *call,
                                                                 ze_context_handle_t context,
                                                                 const void *ptr)
{
    ze_memory_allocation_properties_t p = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t owner = NULL;
    void *base = NULL;
    size_t size = 0;

    if (ZR_BELOW(call, zeMemGetAllocProperties)(context, ptr, &p, &owner) != ZE_RESULT_SUCCESS ||
        p.type != ZE_MEMORY_TYPE_DEVICE || !owner ||
        ZR_BELOW(call, zeMemGetAddressRange)(context, ptr, &base, &size) != ZE_RESULT_SUCCESS)
        return NULL;
    zr_registry_add(ZR_KIND_DEVICE, zr_device_number(call, owner), context, base, size,
                    ZR_BLOCK_FOREIGN);
    return zr_map_find(ptr);
}

/* The LIVE block that holds *ptr; NULL: none, and *ptr is what the driver is to be asked for then. */
static struct zr_block *held(struct zr_call *call, ze_context_handle_t context, void **ptr)
{
    struct zr_block *b = zr_map_find(*ptr);

    if (unlikely(!b))
        *ptr = (void *)zr_keep_asked_about(call, context, *ptr);
    return b;
}

/* The block whose owner matters for this pointer; NULL: none, let the request pass. */
static struct zr_block *owned(struct zr_call *call, ze_context_handle_t context, void **ptr)
{
    struct zr_block *b = held(call, context, ptr);

    if (!b)
        b = ask_owner(call, context, *ptr);
    return b && b->kind == ZR_KIND_DEVICE ? b : NULL;
}

/* "libccl.so" names libccl.so and libccl.so.1, not libcclx.so. */
static bool named(const char *list, const char *library)
{
    while (*list) {
        size_t n = strcspn(list, "+");

        if (n && strncmp(list, library, n) == 0 && (library[n] == '\0' || library[n] == '.'))
            return true;
        list += n + (list[n] == '+');
    }
    return false;
}

bool zr_residency_skips(const struct zr_call *call)
{
    const char *through = zr_config.peer_callers;

    if (zr_config.residency != ZR_RESIDENCY_OWNER)
        return false;
    return !(through && *through && named(through, zr_caller_name(call->caller)));
}

/* By library too. A library asks from few places: the numbers of the last one are kept per thread. */
static __thread struct {
    const void *caller;
    int calls, bytes;
} last;

static void count_skipped(const void *caller, size_t bytes)
{
    if (last.caller != caller) {
        const char *library = zr_caller_name(caller);
        char name[96];

        snprintf(name, sizeof name, "callers.%s.skipped_calls", library);
        last.calls = zr_named(name, "", "peer residency of this library that was skipped");
        snprintf(name, sizeof name, "callers.%s.skipped_bytes", library);
        last.bytes = zr_named(name, "bytes", "bytes of these");
        last.caller = caller;
    }
    zr_count(ZR_F_RESIDENCY_PEER_SKIPPED_CALLS, 1);
    zr_count(ZR_F_RESIDENCY_PEER_SKIPPED_BYTES, bytes);
    zr_count_named(last.calls, 1);
    zr_count_named(last.bytes, bytes);
}

ze_result_t zr_residency_make(struct zr_call *call, ze_context_handle_t context,
                              ze_device_handle_t device, void *ptr, size_t size)
{
    unsigned asking = zr_device_number(call, device);
    struct zr_block *b = asking == ZR_UNKNOWN_DEVICE ? NULL : owned(call, context, &ptr);
    bool peer = b && b->device != asking;
    ze_result_t result;

    if (b && !peer) {
        zr_count(ZR_F_RESIDENCY_OWNER_REQUESTED_CALLS, 1);
        zr_count(ZR_F_RESIDENCY_OWNER_REQUESTED_BYTES, size);
    }
    if (peer) {
        zr_count(ZR_F_RESIDENCY_PEER_REQUESTED_CALLS, 1);
        zr_count(ZR_F_RESIDENCY_PEER_REQUESTED_BYTES, size);
        if (zr_residency_skips(call)) {
            zr_block_mark(b, skipped_bit(asking));
            count_skipped(call->caller, size);
            return ZE_RESULT_SUCCESS;
        }
    }
    if (b && zr_device_is_part(device) && zr_residency_is_certain(UINT64_C(1) << asking))
        __atomic_fetch_or(&uncertain, UINT64_C(1) << asking, __ATOMIC_SEQ_CST);
    if (b && zr_keep_is_resident(b, asking) && zr_residency_is_certain(UINT64_C(1) << asking) && context && size) {
        zr_count(ZR_F_RESIDENCY_ANSWERED_CALLS, 1);
        return ZE_RESULT_SUCCESS;
    }
    /* A driver that defers backing looks for memory only now: on the owner, and for what a peer's import takes. */
    result = ZR_DOWN_AGAIN((void)0, call, zeContextMakeMemoryResident, peer ? ZR_UNKNOWN_DEVICE : asking, size,
                           (context, device, ptr, size));
    if (!b || result != ZE_RESULT_SUCCESS)
        return result;
    if (peer) {
        zr_count(ZR_F_RESIDENCY_PEER_GRANTED_CALLS, 1);
        zr_count(ZR_F_RESIDENCY_PEER_GRANTED_BYTES, size);
    }
    if (asking < 64 && b->kind == ZR_KIND_DEVICE) {
        __atomic_fetch_or(&b->peers, (uint64_t)1 << asking, __ATOMIC_RELAXED);
        zr_keep_moved(b);
    }
    return result;
}

/* What was skipped is not evicted either; everything else is. */
ze_result_t zr_residency_evict(struct zr_call *call, ze_context_handle_t context,
                               ze_device_handle_t device, void *ptr, size_t size)
{
    unsigned asking = zr_device_number(call, device);
    struct zr_block *b = asking == ZR_UNKNOWN_DEVICE ? NULL : held(call, context, &ptr);
    uint64_t bit = asking < 64 ? (uint64_t)1 << asking : 0;
    uint32_t skipped = b ? skipped_bit(asking) : 0;
    ze_result_t result;

    zr_count(ZR_F_RESIDENCY_EVICT_CALLS, 1);
    if (skipped && !(__atomic_load_n(&b->peers, __ATOMIC_RELAXED) & bit) &&
        (__atomic_fetch_and(&b->flags, ~skipped, __ATOMIC_RELAXED) & skipped)) {
        zr_count(ZR_F_RESIDENCY_EVICT_SKIPPED_CALLS, 1);
        return ZE_RESULT_SUCCESS;
    }
    /* Beforehand: who is answered from the books was so before the driver evicts anything. */
    __atomic_fetch_or(&uncertain, bit ? bit : UINT64_MAX, __ATOMIC_SEQ_CST);
    result = ZR_DOWN(call, zeContextEvictMemory, size, (context, device, ptr, size));
    ZR_PAUSE("after an eviction");
    if (b && b->kind == ZR_KIND_DEVICE && result == ZE_RESULT_SUCCESS) {
        __atomic_fetch_and(&b->peers, ~bit, __ATOMIC_RELAXED);
        zr_keep_moved(b);
    }
    return result;
}

/* The numbers are those of the parent's segment; the one thread that is left has them in `last`. */
void zr_fork_child_residency(void)
{
    last.caller = NULL;
}
