/*
 * The driver serves it and we keep the books: what a call does that cannot go the lean way (lean.h), this time or ever.
 */
#include "policy/lean.h"

/* Blocks of the lean way are claimed here too, so that the next call about one can go it. */
ze_result_t zr_plain_alloc_device(struct zr_call *call, ze_context_handle_t context,
                                  const ze_device_mem_alloc_desc_t *desc, size_t size, size_t alignment,
                                  ze_device_handle_t device, void **out)
{
    enum zr_kind kind = ZR_KIND_DEVICE;
    struct zr_local *l;
    uint32_t flags = 0;
    ze_result_t result;
    unsigned number;

    zr_count(ZR_F_DRIVER_ALLOC_CALLS, 1);
    result = ZR_DOWN(call, zeMemAllocDevice, size, (context, desc, size, alignment, device, out));
    if (unlikely(result != ZE_RESULT_SUCCESS))
        return result;
    if (unlikely(desc && desc->pNext))
        zr_chain_kind(desc, &kind, &flags);
    if (unlikely(kind == ZR_KIND_IMPORTED))
        return zr_policy_imported(call, context, device, ZR_E_zeMemAllocDevice, out);
    number = zr_device_number(call, device);
    l = zr_thread.local;
    if (!zr_lean_is_open(l) || kind != ZR_KIND_DEVICE || flags || number >= ZR_DEVICES) {
        zr_registry_add(kind, number, context, *out, size, flags);
        return result;
    }
    zr_lean_learn(l, ZR_LEAN_ALLOC, call, device, number);
    if (zr_lean_place(l, context, *out, size) || zr_claim_new(l, context, *out, size))
        zr_book(ZR_KIND_DEVICE, number, size);
    return result;
}

static ze_result_t finish_free(struct zr_block *b, ze_result_t result)
{
    if (likely(result == ZE_RESULT_SUCCESS))
        zr_registry_gone(b);
    else
        zr_registry_back(b);
    return result;
}

/* What is known of a claimed block before the driver may give its address to somebody else. */
struct parked {
    struct zr_block *block;
    uint64_t live;
    size_t held;
    unsigned device;
};

/* Parks the block, if this thread has claimed it. */
static bool park(enum zr_lean which, const struct zr_call *call, const void *ptr, struct parked *p)
{
    struct zr_local *l = zr_thread.local;
    const struct zr_claim *c;

    if (!zr_lean_is_open(l))
        return false;
    zr_lean_learn(l, which, call, NULL, 0);
    c = zr_claim_of(l, ptr);
    if (!zr_claimed(c, ptr, ZR_BLOCK_LIVE))
        return false;
    *p = (struct parked){c->block, c->live, c->block->held, c->block->device};
    return zr_lean_park(l, c, p->block);
}

static ze_result_t unpark(const struct parked *p, ze_result_t result)
{
    if (result == ZE_RESULT_SUCCESS)
        zr_unbook(ZR_KIND_DEVICE, p->device, p->held);
    else
        zr_map_unpark(p->block, p->live);
    return result;
}

ze_result_t zr_plain_free(struct zr_call *call, ze_context_handle_t context, void *ptr)
{
    struct zr_block *b;
    struct parked p;

    zr_count(ZR_F_DRIVER_FREE_CALLS, 1);
    if (park(ZR_LEAN_FREE, call, ptr, &p))
        return unpark(&p, ZR_DOWN(call, zeMemFree, p.held, (context, ptr)));
    b = zr_registry_take(ptr);
    return finish_free(b, ZR_DOWN(call, zeMemFree, b ? b->held : 0, (context, ptr)));
}

ze_result_t zr_plain_free_ext(struct zr_call *call, ze_context_handle_t context,
                              const ze_memory_free_ext_desc_t *desc, void *ptr)
{
    struct zr_block *b;
    struct parked p;

    zr_count(ZR_F_DRIVER_FREE_CALLS, 1);
    if (park(ZR_LEAN_FREE_EXT, call, ptr, &p))
        return unpark(&p, ZR_DOWN(call, zeMemFreeExt, p.held, (context, desc, ptr)));
    b = zr_registry_take(ptr);
    return finish_free(b, ZR_DOWN(call, zeMemFreeExt, b ? b->held : 0, (context, desc, ptr)));
}
