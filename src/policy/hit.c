/*
 * The shortest way through a Level Zero entry point: a call site that asks for what it asked for before, a block at
 * hand in this thread; and the free of a block that stays at hand. Nothing is looked up that was looked up before.
 * Whatever is not as usual goes, untouched, the general way through policy.c.
 */
#include "policy/hit.h"

enum { LOOK_AGAIN = 16 };

/*
 * A call site that frees blocks of a device: in one cache line. Found by the call site alone: what is written on its
 * behalf has an address before the block's descriptor is there, and stores without one hold up the loads behind them
 * (3 ns with a thousand blocks). What finds its place taken, as the blocks of a second device do, goes to another.
 */
struct freer {
    uintptr_t from; /* 0: go the general way */
    uint32_t what; /* device and kind of the blocks, as in their traits */
    uint32_t mine; /* what heap->mine was: of this thread */
    struct zr_pair *tally; /* as an asker's */
    struct zr_level *level;
    struct heap *heap;
} __attribute__((aligned(64)));

__thread struct zr_asker zr_askers[ZR_ASKERS];
static __thread struct freer freers[ZR_ASKERS], more_freers[ZR_ASKERS];
static __thread uint32_t ticks;

static inline struct freer *freer_of(uintptr_t from)
{
    struct freer *f = &freers[from * 0x9e3779b97f4a7c15u >> 60];

    __asm__("" : "+r"(f));
    return f;
}

/* `what`: device and kind, the upper half of a block's traits. */
static inline struct freer *other_freer_of(uintptr_t from, uint32_t what)
{
    return &more_freers[(from + what) * 0x9e3779b97f4a7c15u >> 60];
}

static inline bool is_for(const struct freer *f, uintptr_t from, uint32_t what)
{
    return likely(f->from == from) && likely(f->what == what);
}

/* Where the general way has just counted a call from here; NULL: it goes on doing so. */
static const struct zr_site *site_of(const void *caller)
{
    const struct zr_site *site = zr_sites ? &zr_sites->site[zr_site_of(caller)] : NULL;

    return site && site->address == caller ? site : NULL;
}

void zr_hit_learn(struct zr_asker *asker, const struct zr_call *call, size_t alignment)
{
    uintptr_t shard = zr_shard_word;
    unsigned number = asker->key.account;

    if (asker->key.extra || zr_config.host_floor.set || number >= ZR_DEVICES ||
        !zr_cache_learn(&asker->again, &asker->key))
        return;
    asker->tally = NULL;
    if (shard != ZR_SHARD_OFF) {
        const struct zr_site *site = site_of(call->caller);
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
    asker->alignment = alignment;
    asker->from = asker->site;
}

void zr_hit_learn_free(const struct zr_cache *c, const struct zr_call *call, unsigned device)
{
    uintptr_t shard = zr_shard_word;
    const struct zr_site *site = shard & 1 ? NULL : site_of(call->caller);
    struct heap *h = zr_heap_last;
    struct freer f = {.from = zr_from(call->caller, call->hook), .what = device | ZR_KIND_DEVICE << 16, .heap = h,
                      .mine = __atomic_load_n(&h->mine, __ATOMIC_RELAXED)};
    struct freer *first = freer_of(f.from);

    if ((!site && shard != ZR_SHARD_OFF) || h->cache != c || f.mine == NOT_PRIVATE || device >= ZR_DEVICES)
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
    *(first->from == 0 || is_for(first, f.from, f.what) ? first : other_freer_of(f.from, f.what)) = f;
}

static void learn_anew(void)
{
    for (unsigned i = 0; i < ZR_ASKERS; i++) {
        zr_askers[i].from = 0;
        freers[i].from = 0;
        more_freers[i].from = 0;
    }
}

void zr_hit_forget(void)
{
    for (unsigned i = 0; i < ZR_ASKERS; i++)
        zr_askers[i].site = 0;
    learn_anew();
    zr_thread.asker = NULL;
}

/*
 * Now and then: the clock, and with it blocks that nobody has used for long. The driver may be called, so the guard is
 * still set, and dropped here. Libraries come and go: those behind the call sites are looked at again.
 */
static __attribute__((noinline, cold)) ze_result_t tick(struct heap *h)
{
    struct zr_call call __attribute__((cleanup(zr_leave), unused)) = {.entered = true};

    zr_tick(h);
    if (++ticks % LOOK_AGAIN == 0) {
        learn_anew();
        if (zr_sites)
            zr_sites->countdown = 1;
    }
    return ZE_RESULT_SUCCESS;
}

/* The hook has noted its caller, and nothing else yet. */
static void note_from(uintptr_t from)
{
    uint32_t hook = (uint32_t)(from >> ZR_FROM_HOOK);

    zr_note(hook,
            hook >= ZR_HOOK_TABLE ? ZR_VIA_TABLE : hook >= ZR_HOOK_DLSYM ? ZR_VIA_DLSYM : ZR_VIA_PLT);
}

/* What was asked for is all in the asker. */
static __attribute__((noinline, cold)) ze_result_t none_at_hand(const struct zr_asker *asker, size_t size, void **out)
{
    const struct zr_asker was = *asker; /* while it cannot become another */
    const ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                             .flags = was.key.flags,
                                             .ordinal = was.key.ordinal};

    zr_hit_leave();
    note_from(was.from);
    return zr_on_zeMemAllocDevice(was.key.context, &desc, size, was.alignment, was.key.device, out);
}

/* Inside to the end: what is counted is no single instruction, and a new peak takes a lock. */
__attribute__((section(".text.sorted.3"))) ze_result_t zr_hit_serve(struct zr_asker *asker, size_t size, void **out)
{
    struct zr_block *b = zr_cache_again(&asker->again, size);

    if (unlikely(!b))
        return none_at_hand(asker, size, out);
    /* Marks of its life before; nobody else knows the block yet. */
    if (unlikely(b->flags & ~(uint32_t)(ZR_BLOCK_USER - 1)))
        __atomic_store_n(&b->flags, b->flags & (ZR_BLOCK_USER - 1), __ATOMIC_RELAXED);
    asker->asked = 0;
    zr_thread.asker = asker;
    zr_thread.base = b->base;
    *out = (void *)b->base;
    if (likely(asker->tally))
        zr_tally_got(asker->tally, asker->level, size);
    zr_hit_leave();
    return ZE_RESULT_SUCCESS;
}

static __attribute__((noinline, cold)) ze_result_t free_otherwise(ze_context_handle_t context, void *p, uintptr_t from)
{
    zr_hit_leave();
    note_from(from);
    return zr_on_zeMemFree(context, p);
}

/* The block of this slot has this base and is of the freer's device. */
static inline __attribute__((always_inline)) ze_result_t put_by(ze_context_handle_t context, void *p, uintptr_t from,
                                                                const struct freer *f, const void *slot)
{
    struct heap *h = f->heap;
    struct zr_freed_block was;

    if (unlikely(!context) || unlikely(__atomic_load_n(&zr_unusual, __ATOMIC_RELAXED) != ZR_DECIDING) ||
        unlikely(!zr_cache_put_by(h, f->mine, slot, &was)))
        return free_otherwise(context, p, from);
    if (likely(f->tally))
        zr_tally_gave(f->tally, f->level, was.size);
    if (zr_tick_is_due(h))
        return tick(h);
    zr_hit_leave();
    return ZE_RESULT_SUCCESS;
}

static inline uint32_t what_of(const void *slot)
{
    return (uint32_t)(__atomic_load_n(&zr_slot_block(slot)->traits, __ATOMIC_RELAXED) >> 32);
}

static inline bool is_of(const void *slot, const void *p)
{
    return __atomic_load_n(&zr_slot_block(slot)->base, __ATOMIC_RELAXED) == (uintptr_t)p;
}

/* Not at its first place in the index, or not for the first freer of this place. */
static __attribute__((noinline)) ze_result_t free_displaced(ze_context_handle_t context, void *p, uintptr_t from)
{
    const void *slot = zr_index_first(p);
    const struct freer *f = freer_of(from);

    if (!is_of(slot, p)) {
        slot = zr_index_next(p);
        if (unlikely(!is_of(slot, p)))
            slot = zr_index_probe(p);
        if (unlikely(!is_of(slot, p)))
            return free_otherwise(context, p, from);
    }
    if (!is_for(f, from, what_of(slot))) {
        f = other_freer_of(from, what_of(slot));
        if (unlikely(!is_for(f, from, what_of(slot))))
            return free_otherwise(context, p, from);
    }
    return put_by(context, p, from, f, slot);
}

__attribute__((section(".text.sorted.3"))) ze_result_t zr_hit_free(ze_context_handle_t context, void *p, uintptr_t from)
{
    const struct freer *f = freer_of(from);
    const void *slot = zr_index_first(p);

    zr_hit_enter();
    if (unlikely(!is_of(slot, p)) || unlikely(!is_for(f, from, what_of(slot))))
        return free_displaced(context, p, from);
    return put_by(context, p, from, f, slot);
}
