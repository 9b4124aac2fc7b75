#include "lean.h"

/* No address of the driver's is 1; who frees it finds a word that no claim has, not even a blank one. */
struct zr_block zr_no_block = {.base = 1, .word = UINT64_MAX};

void zr_claims_start(struct zr_local *l)
{
    for (unsigned i = 0; i < 1u << ZR_CLAIM_BITS; i++)
        l->claim[i].block = &zr_no_block;
}

void zr_lean_learn(struct zr_local *l, enum zr_lean which, const void *caller, ze_device_handle_t device,
                   unsigned number)
{
    struct zr_lean_entry *e = &l->lean[which];
    const struct zr_site *site;

    if (device && l->device != device) {
        l->device = device;
        l->number = number;
        l->level = &l->shard->device[number];
    }
    if (e->caller == caller || !zr_sites)
        return;
    site = &zr_sites->site[zr_site_of(caller)];
    if (site->address != caller)
        return;
    e->caller = caller;
    e->calls = site->calls;
    e->bytes = site->bytes;
}

ze_result_t zr_refused(enum zr_entry e, ze_result_t result)
{
    zr_count_failure_code(e, (uint32_t)result);
    return result;
}

/* Ends a claim; a parked block has no other owner. */
static void evict(struct zr_claim *c)
{
    if (zr_map_evict(c->block, c->live))
        zr_block_recycle(c->block);
    c->block = &zr_no_block;
}

bool zr_claim_new(struct zr_local *l, unsigned device, ze_context_handle_t context, const void *base, size_t size)
{
    struct zr_claim *c = zr_claim_of(l, base);
    struct zr_block *b;

    evict(c);
    b = zr_registry_put(ZR_KIND_DEVICE, device, context, base, size, 0);
    if (b)
        *c = (struct zr_claim){b, zr_block_word(b)};
    return b;
}

void zr_claims_drop(struct zr_local *l)
{
    for (unsigned i = 0; i < 1u << ZR_CLAIM_BITS; i++)
        evict(&l->claim[i]);
}
