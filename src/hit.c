/*
 * The shortest way through a Level Zero entry point: a call site that asks for what it asked for before, a block at
 * hand in this thread; and the free of a block that stays at hand. Nothing is looked up that was looked up before.
 * Whatever is not as usual goes, untouched, the general way through policy.c.
 */
#include "hit.h"

enum { LOOK_AGAIN = 16 };

__thread struct zr_asker zr_askers[ZR_ASKERS];
__thread struct zr_asker *zr_last_asker;
static __thread struct zr_freer freers[ZR_ASKERS];
static __thread uint32_t ticks;

/* `what`: device and kind, the upper half of a block's traits. */
static inline struct zr_freer *freer_of(const void *caller, uint32_t what)
{
    struct zr_freer *f = &freers[((uintptr_t)caller + what) * 0x9e3779b97f4a7c15u >> 60];

    __asm__("" : "+r"(f));
    return f;
}

/* Where the general way has just counted a call from here; NULL: it goes on doing so. */
static const struct zr_site *site_of(const void *caller)
{
    const struct zr_site *site = zr_sites ? &zr_sites->site[zr_site_of(caller)] : NULL;

    return site && site->address == caller ? site : NULL;
}

void zr_hit_learn(struct zr_asker *asker, const struct zr_call *call, const struct zr_cache *c, size_t alignment)
{
    uintptr_t shard = zr_shard_word;
    unsigned number = asker->key.account;

    if (asker->key.extra || zr_config.host_floor.set || number >= ZR_DEVICES || zr_heap_last->cache != c)
        return;
    if (shard != ZR_SHARD_OFF) {
        const struct zr_site *site = site_of(asker->caller);
        struct zr_shard *s = (struct zr_shard *)shard;
        const struct zr_cell *cell;

        if (shard & 1 || !site)
            return;
        cell = &s->on_device[number][ZR_KIND_DEVICE];
        asker->level = &s->on[number].level;
        asker->tally = zr_tally(s, number, &(struct zeroute_segment_into){
                                       .bytes = {zr_in_shard(s, &cell->allocated), site->bytes},
                                       .calls = {zr_in_shard(s, &cell->allocations),
                                                 zr_in_shard(s, &s->calls[call->way][ZR_E_zeMemAllocDevice]),
                                                 zr_in_shard(s, &s->fields[ZR_F_CACHE_HITS]), site->calls}});
        if (!asker->tally)
            return;
    }
    asker->way = call->way;
    asker->heap = zr_heap_last;
    asker->shard = shard;
    asker->alignment = alignment;
}

void zr_hit_learn_free(const struct zr_cache *c, const struct zr_call *call, unsigned device)
{
    uintptr_t shard = zr_shard_word;
    const struct zr_site *site = shard & 1 ? NULL : site_of(call->caller);
    struct zr_freer f = {.caller = call->caller, .what = device | ZR_KIND_DEVICE << 16, .way = call->way,
                         .heap = zr_heap_last, .shard = shard};

    if ((!site && shard != ZR_SHARD_OFF) || zr_heap_last->cache != c || device >= ZR_DEVICES)
        return;
    if (site) {
        struct zr_shard *s = (struct zr_shard *)shard;
        const struct zr_cell *cell = &s->on_device[device][ZR_KIND_DEVICE];

        f.level = &s->on[device].level;
        f.tally = zr_tally(s, device, &(struct zeroute_segment_into){
                                  .bytes = {zr_in_shard(s, &cell->freed)},
                                  .calls = {zr_in_shard(s, &cell->frees),
                                            zr_in_shard(s, &s->calls[call->way][ZR_E_zeMemFree]),
                                            zr_in_shard(s, &s->fields[ZR_F_FREE_POLICY_DEFAULT]),
                                            zr_in_shard(s, &s->fields[ZR_F_CACHE_KEPT]), site->calls}});
        if (!f.tally)
            return;
    }
    *freer_of(f.caller, f.what) = f;
}

void zr_hit_forget(void)
{
    for (unsigned i = 0; i < ZR_ASKERS; i++) {
        zr_askers[i] = (struct zr_asker){.alignment = ZR_UNLEARNT};
        freers[i].heap = NULL;
    }
    zr_last_asker = NULL;
}

/*
 * Now and then: the clock, and with it blocks that nobody has used for long. The driver may be called, so the guard is
 * still set, and dropped here. Libraries come and go: those behind the call sites are looked at again.
 */
static __attribute__((noinline, cold)) ze_result_t tick(void)
{
    struct zr_call call __attribute__((cleanup(zr_leave), unused)) = {.entered = true};

    zr_tick(zr_heap_last);
    if (++ticks % LOOK_AGAIN == 0) {
        for (unsigned i = 0; i < ZR_ASKERS; i++) {
            zr_askers[i].alignment = ZR_UNLEARNT;
            freers[i].heap = NULL;
        }
        if (zr_sites)
            zr_sites->countdown = 1;
    }
    return ZE_RESULT_SUCCESS;
}

/*
 * A settled process without faults to inject, a thread that is in no call of ours. All of `busy`, here and where it is
 * written: a part that was just written cannot be forwarded to a reader of the whole.
 */
static inline bool as_usual(void)
{
    return likely(__atomic_load_n(&zr_unusual, __ATOMIC_RELAXED) == ZR_DECIDING) &&
           likely(!zr_thread.busy) && likely(!zr_thread.pooled) &&
           likely(*__atomic_load_n(&zr_fork_word, __ATOMIC_ACQUIRE) != 0);
}

/* What was asked for is all in the asker. */
static __attribute__((noinline, cold)) ze_result_t none_at_hand(const struct zr_asker *asker, size_t size, void **out)
{
    const ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                             .flags = asker->key.flags,
                                             .ordinal = asker->key.ordinal};

    return zr_general_alloc_device(asker->key.context, &desc, size, asker->alignment, asker->key.device, out);
}

static __attribute__((noinline)) ze_result_t serve_hit(struct zr_asker *asker, size_t size, void **out)
{
    struct zr_shard *s = (struct zr_shard *)asker->shard;
    struct zr_block *b;

    zr_thread.busy = ZR_ONLY_INSIDE;
    b = zr_cache_at_hand(asker->heap, &asker->key, size);
    zr_thread.busy = 0;
    if (unlikely(!b))
        return none_at_hand(asker, size, out);
    /* Marks of its life before; nobody else knows the block yet. */
    if (unlikely(b->flags & ~(uint32_t)(ZR_BLOCK_USER - 1)))
        __atomic_store_n(&b->flags, b->flags & (ZR_BLOCK_USER - 1), __ATOMIC_RELAXED);
    asker->asked = 0;
    asker->base = b->base;
    zr_last_asker = asker;
    *out = (void *)b->base;
    if (likely(!((uintptr_t)s & 1)))
        zr_tally_got(s, asker->tally, asker->level, asker->key.account, size);
    return ZE_RESULT_SUCCESS;
}

/* Checks and no more, with the arguments where they came, so that nothing need be saved on the stack. */
ze_result_t zr_on_zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t size,
                                   size_t alignment, ze_device_handle_t device, void **out)
{
    struct zr_asker *asker = zr_asker_of(zr_thread.caller, device);

    if (unlikely(!as_usual() || !desc || !out) || unlikely(asker->caller != zr_thread.caller) ||
        unlikely(asker->way != zr_thread.way) || unlikely(asker->heap != zr_heap_last) || unlikely(asker->shard != zr_shard_word) ||
        unlikely(asker->alignment != alignment) || unlikely(asker->key.context != context) ||
        unlikely(asker->key.device != device) || unlikely(asker->key.peers != asker->asked) ||
        unlikely(asker->key.ordinal != desc->ordinal) || unlikely(asker->key.flags != desc->flags) ||
        unlikely(desc->pNext) || unlikely(desc->stype != ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC))
        return zr_general_alloc_device(context, desc, size, alignment, device, out);
    return serve_hit(asker, size, out);
}

/* The block of this slot has this base. Inlined twice: where the index has it at its first place, and where it has it behind others. */
static inline __attribute__((always_inline)) ze_result_t put_by(ze_context_handle_t context, void *p,
                                                                const void *slot)
{
    const void *caller = zr_thread.caller;
    uint32_t what = (uint32_t)(__atomic_load_n(&zr_slot_block(slot)->traits, __ATOMIC_RELAXED) >> 32);
    const struct zr_freer *f = freer_of(caller, what);
    struct heap *h = zr_heap_last;
    uintptr_t shard = zr_shard_word;
    struct zr_freed_block was;
    enum zr_put_by put;

    if (unlikely(!as_usual() || !context) || unlikely(f->caller != caller) || unlikely(f->what != what) ||
        unlikely(f->way != zr_thread.way) || unlikely(f->heap != h) || unlikely(f->shard != shard))
        return zr_general_free(context, p);
    zr_thread.busy = ZR_ONLY_INSIDE;
    put = zr_cache_put_by(h, slot, &was);
    if (unlikely(put == ZR_NOT_PUT_BY)) {
        zr_thread.busy = 0;
        return zr_general_free(context, p);
    }
    if (likely(!(shard & 1)))
        zr_tally_gave(f->tally, f->level, was.size);
    if (unlikely(put == ZR_PUT_BY_AND_TICK))
        return tick();
    zr_thread.busy = 0;
    return ZE_RESULT_SUCCESS;
}

static __attribute__((noinline)) ze_result_t free_displaced(ze_context_handle_t context, void *p)
{
    const void *slot = zr_index_probe(p);

    if (unlikely(__atomic_load_n(&zr_slot_block(slot)->base, __ATOMIC_RELAXED) != (uintptr_t)p))
        return zr_general_free(context, p);
    return put_by(context, p, slot);
}

ze_result_t zr_on_zeMemFree(ze_context_handle_t context, void *p)
{
    const void *slot = zr_index_first(p);

    if (unlikely(__atomic_load_n(&zr_slot_block(slot)->base, __ATOMIC_RELAXED) != (uintptr_t)p))
        return free_displaced(context, p);
    return put_by(context, p, slot);
}
