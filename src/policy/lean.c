#include "policy/lean.h"

#include <string.h>

/* No address of the driver's is 1; who frees it finds a word that no claim has, not even a blank one. */
struct zr_block zr_no_block = {.base = 1, .word = UINT64_MAX};

void zr_claims_start(struct zr_local *l)
{
    for (unsigned i = 0; i < 1u << ZR_CLAIM_BITS; i++)
        l->claim[i].block = &zr_no_block;
}

static const struct {
    enum zr_entry entry;
    enum zr_field driver;
} kind[ZR_LEANS] = {{ZR_E_zeMemAllocDevice, ZR_F_DRIVER_ALLOC_CALLS},
                    {ZR_E_zeMemFree, ZR_F_DRIVER_FREE_CALLS},
                    {ZR_E_zeMemFreeExt, ZR_F_DRIVER_FREE_CALLS}};

/* Where the words lie that every call of this kind counts into. */
static struct zeroute_segment_into into(const struct zr_local *l, enum zr_lean which, enum zr_via way,
                                        const struct zr_site *site)
{
    const struct zr_shard *s = l->shard;
    const struct zr_cell *cell = &s->on_device[zr_lean_device(l)][ZR_KIND_DEVICE];
    bool alloc = which == ZR_LEAN_ALLOC;

    return (struct zeroute_segment_into){
        .bytes = {zr_in_shard(s, alloc ? &cell->allocated : &cell->freed), alloc ? site->bytes : 0},
        .calls = {zr_in_shard(s, alloc ? &cell->allocations : &cell->frees),
                  zr_in_shard(s, &s->calls[way][kind[which].entry]),
                  zr_in_shard(s, &s->fields[kind[which].driver]), site->calls}};
}

void zr_lean_learn(struct zr_local *l, enum zr_lean which, const struct zr_call *call, ze_device_handle_t device,
                   unsigned number)
{
    const struct zr_site *site;
    struct zeroute_segment_into words;
    struct zr_lean_site *known;
    struct zr_pair *tally;

    if (device && l->device != device) {
        l->device = device;
        l->level = &l->shard->on[number].level;
        l->traits = (uint64_t)number << 32;
        memset(l->way, 0, sizeof l->way);
    }
    known = &l->way[call->way < ZR_LEAN_WAYS ? call->way : 0].site[which];
    if (call->way >= ZR_LEAN_WAYS || !l->device || !zr_sites ||
        known->from == zr_from(call->caller, call->hook))
        return;
    site = &zr_sites->site[zr_site_of(call->caller)];
    if (site->address != call->caller)
        return;
    words = into(l, which, call->way, site);
    tally = zr_tally(l->shard, zr_lean_device(l), &words);
    if (!tally)
        return;
    *known = (struct zr_lean_site){zr_from(call->caller, call->hook), tally, zr_below(call->hook, kind[which].entry)};
}

ze_result_t zr_lean_refused(enum zr_via way, enum zr_lean which, size_t bytes, ze_result_t result)
{
    struct zr_local *l = zr_thread.local;

    if (!l)
        return result;
    zr_tally_failed(l->shard, l->way[way].site[which].tally, bytes);
    if (result != ZE_RESULT_SUCCESS)
        zr_count_failure_code(kind[which].entry, (uint32_t)result);
    return result;
}

ze_result_t zr_lean_not_freed(enum zr_via way, enum zr_lean which, ze_result_t result)
{
    struct zr_local *l = zr_thread.local;
    const struct zr_claim *c = l ? zr_claim_of(l, zr_thread.put_by.ptr) : NULL;

    if (c)
        zr_map_unpark(c->block, c->live);
    return zr_lean_refused(way, which, 0, result);
}

static bool change_word(struct zr_block *b, uint64_t from, uint64_t to)
{
    return zr_block_word(b) == from &&
           __atomic_compare_exchange_n(&b->word, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/*
 * Ends a claim; a parked block has no other owner, and one that is not can be freed by anybody, also now: then it may
 * be another's by the next instruction, and its word has changed.
 */
static void evict(struct zr_claim *c)
{
    if (zr_map_evict(c->block, c->live))
        zr_block_recycle(c->block);
    else
        (void)change_word(c->block, c->live, c->live & ~ZR_WORD_CLAIMED);
    c->block = &zr_no_block;
}

bool zr_claim_new(struct zr_local *l, ze_context_handle_t context, const void *base, size_t size)
{
    struct zr_claim *c = zr_claim_of(l, base);
    struct zr_block *b;
    uint64_t word;

    evict(c);
    b = zr_registry_put(ZR_KIND_DEVICE, zr_lean_device(l), context, base, size, 0);
    if (!b)
        return false;
    word = zr_block_word(b);
    /* Whoever takes it before it is claimed has guessed the address. */
    if (zr_word_state(word) == ZR_BLOCK_LIVE && change_word(b, word, word | ZR_WORD_CLAIMED))
        *c = (struct zr_claim){b, word | ZR_WORD_CLAIMED};
    return true;
}

void zr_claims_drop(struct zr_local *l)
{
    for (unsigned i = 0; i < 1u << ZR_CLAIM_BITS; i++)
        evict(&l->claim[i]);
}

ze_result_t zr_lean_new(enum zr_via way)
{
    struct zr_local *l = zr_thread.local;
    size_t size = zr_thread.put_by.size;

    if (zr_claim_new(l, zr_thread.put_by.context, *zr_thread.put_by.out, size))
        zr_tally_got(l->way[way].site[ZR_LEAN_ALLOC].tally, l->level, size);
    else
        zr_lean_refused(way, ZR_LEAN_ALLOC, size, ZE_RESULT_SUCCESS);
    return ZE_RESULT_SUCCESS;
}
