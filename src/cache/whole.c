/* Whole blocks: the hot paths, and what happens when they miss. */
#include "cache/hit.h"

#include "cache/thread.h"

static __attribute__((noinline)) struct zr_block *alloc_slow(struct zr_cache *c,
                                                             const struct zr_key *key, size_t size,
                                                             int *code);
static __attribute__((noinline)) enum zr_freed keep_slow(struct zr_cache *c, void *p,
                                                         struct zr_freed_block *was);
static __attribute__((noinline, cold)) enum zr_freed tick_freed(struct heap *h);

/* Every call that cannot go straight on ends in a tail call: nothing is saved on the stack for it. */
struct zr_block *zr_cache_alloc(struct zr_cache *c, const struct zr_key *key, size_t size, int *code)
{
    struct heap *h = zr_heap_last;
    struct zr_block *b = likely(h->cache == c) ? zr_cache_at_hand(h, key, size) : NULL;

    return likely(b) ? b : alloc_slow(c, key, size, code);
}

/* Inlined twice: where the index has the block at its first place, and where it has it behind others. */
static inline __attribute__((always_inline)) enum zr_freed
keep_guessed(struct zr_cache *c, void *p, struct zr_freed_block *was, const void *slot)
{
    struct heap *h = zr_heap_last;

    if (unlikely(!zr_cache_put_by(h, __atomic_load_n(&h->mine, __ATOMIC_RELAXED), slot, was)))
        return keep_slow(c, p, was);
    return zr_tick_is_due(h) ? tick_freed(h) : ZR_FREED;
}

static __attribute__((noinline)) enum zr_freed keep_displaced(struct zr_cache *c, void *p,
                                                              struct zr_freed_block *was)
{
    const void *slot = zr_index_probe(p);

    if (unlikely(__atomic_load_n(&zr_slot_block(slot)->base, __ATOMIC_RELAXED) != (uintptr_t)p))
        return keep_slow(c, p, was);
    return keep_guessed(c, p, was, slot);
}

enum zr_freed zr_cache_keep(struct zr_cache *c, void *p, struct zr_freed_block *was)
{
    const void *slot = zr_index_first(p);

    if (unlikely(__atomic_load_n(&zr_slot_block(slot)->base, __ATOMIC_RELAXED) != (uintptr_t)p))
        return keep_displaced(c, p, was);
    return keep_guessed(c, p, was, slot);
}

static enum zr_freed tick_freed(struct heap *h)
{
    zr_tick(h);
    return ZR_FREED;
}

/* Each time another thread must have been faster than this one: more often, and there is too little for all. */
enum { MOST_TRIES = 16 };

/* A new block from the driver; *code is 0, the driver's, or -1 for trouble of our own. */
static struct zr_block *fresh(struct zr_cache *c, struct heap *h, const struct zr_key *key,
                              struct bin *bin, size_t size, int *code)
{
    struct zr_block *b = zr_block_new(), *old;
    size_t held = size;
    void *p = NULL;

    *code = -1;
    if (!b)
        return NULL;
    /* What could never be kept is not rounded up either. */
    if (bin && bin->held <= __atomic_load_n(&c->account[key->account].limit, __ATOMIC_RELAXED))
        held = bin->held;
    else
        bin = NULL;
    for (int tries = 0;; tries++) {
        uint32_t returned = zr_cache_returned(c);

        *code = c->backing.alloc(c->backing.arg, key, held, &p);
        if (*code == 0 || !c->backing.is_full(*code) || tries == MOST_TRIES)
            break;
        zr_cache_trim(c, key->account, NULL, 0);
        if (!zr_cache_await(c) || (tries && zr_cache_returned(c) == returned))
            break;
        if (held != size)
            bin = NULL;
        held = size;
    }
    if (*code != 0) {
        zr_block_recycle(b);
        return NULL;
    }
    zr_block_place(b, (uintptr_t)p, size, held);
    __atomic_store_n(&b->context, key->context, __ATOMIC_RELAXED);
    b->peers = key->peers;
    b->device = key->account;
    b->kind = key->kind;
    __atomic_store_n(&b->bin, bin ? bin->id : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&b->flags, ZR_BLOCK_OURS | (bin ? 0 : ZR_BLOCK_ODD), __ATOMIC_RELAXED);
    if (unlikely(!zr_map_insert(b))) {
        /* The driver gives out what we hold for live: it was freed past us. Believe the driver. */
        old = zr_map_take(p);
        if (old)
            zr_block_recycle(old);
        if (!old || !zr_map_insert(b)) {
            c->backing.free(c->backing.arg, b);
            zr_block_recycle(b);
            *code = -1;
            return NULL;
        }
    }
    zr_index_add(b);
    if (h) {
        uint64_t word = zr_block_word(b);

        /* Whoever frees it before we have said what it is has guessed the address. */
        __atomic_compare_exchange_n(&b->word, &word, word | (uint64_t)h->id << 8, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED);
    }
    return b;
}

/* For a thread without a heap: one block straight from the depot. */
static struct zr_block *from_depot(struct zr_cache *c, struct bin *bin)
{
    struct zr_block *run[LONGEST_RUN], *b;
    unsigned n = zr_depot_get(bin, run);

    if (!n)
        return NULL;
    b = run[n - 1];
    if (n > 1)
        zr_depot_put(bin, run, n - 1); /* there is memory for it: it has just been a run */
    zr_ungrant(c, bin->key->key.account, b->held);
    __atomic_store_n(&b->word, (uint64_t)zr_word_generation(b->word) << 32 | ZR_BLOCK_CACHED, __ATOMIC_RELAXED);
    return b;
}

/* Another key than last time, an empty magazine, or none: from the depot, then from the driver. */
static struct zr_block *alloc_slow(struct zr_cache *c, const struct zr_key *key, size_t size, int *code)
{
    unsigned size_class = zr_class_of(size);
    struct heap *h = zr_heap(c);
    struct zr_block *b = NULL;
    struct bin *bin = NULL;
    struct key *k;

    if (h && size_class < ZR_CLASSES) {
        struct way *w = &h->way[zr_key_hash(key)];

        heap_enter(h);
        if (same_key(&w->key, key)) {
            zr_heap_last_way(h, w);
            b = drawer_pop(h, &w->drawer, size);
        }
        heap_leave(h);
        if (b)
            return hand_out(b, size);
    }
    k = zr_key_find(c, key);
    if (k && size_class < ZR_CLASSES)
        bin = zr_bin_find(c, k, size_class);
    /* Neither a new block nor one that is kept may be larger than asked for. */
    if (bin && bin->held != size && size > __atomic_load_n(&k->exact, __ATOMIC_RELAXED))
        bin = NULL;
    if (bin && h) {
        heap_enter(h);
        if (bin->used) {
            zr_heap_way(h, k);
            b = zr_magazine_take(h, bin);
        }
        heap_leave(h);
    } else if (bin) {
        b = from_depot(c, bin);
    }
    if (b) {
        hand_out(b, size);
    } else {
        b = fresh(c, h, key, bin, size, code);
        __atomic_fetch_add(h ? &h->misses : &c->shared_misses, 1, __ATOMIC_RELAXED);
    }
    if (h)
        zr_tick(h);
    return b;
}

/* To the driver, at once: the block is CACHED or NONE and in our hands. */
static enum zr_freed give_one(struct zr_cache *c, struct zr_block *b, struct zr_freed_block *was)
{
    zr_index_remove(b);
    __atomic_store_n(&b->word, b->word & ~(uint64_t)0xff, __ATOMIC_RELEASE);
    was->code = c->backing.free(c->backing.arg, b);
    if (unlikely(was->code != 0) && zr_map_insert(b)) {
        zr_index_add(b);
        return ZR_FREED_REFUSED;
    }
    zr_block_recycle(b);
    return ZR_FREED_BY_DRIVER;
}

/* A CACHED block, under this heap if there is one: into its magazine, or into the depot. */
static enum zr_freed keep_block(struct zr_cache *c, struct heap *h, struct zr_block *b,
                                struct zr_freed_block *was)
{
    struct bin *bin = c->bin[b->bin];
    bool kept = false, tick = false;

    if (h) {
        for (int tries = 0; tries < 2 && !kept; tries++) {
            struct magazine *m = &h->of[b->bin];

            if (tries)
                zr_make_room(c, b->device, b->held);
            heap_enter(h);
            kept = bin->used && (magazine_push(m, b) || (zr_magazine_widen(h, bin) && magazine_push(m, b)));
            if (kept) {
                b->stamp = h->now;
                tick = --h->patience < 0;
                zr_heap_way(h, bin->key);
            }
            heap_leave(h);
        }
    } else if (bin->used && zr_grant(c, b->device, b->held)) {
        b->stamp = zr_now();
        kept = zr_depot_put(bin, &b, 1);
        if (!kept)
            zr_ungrant(c, b->device, b->held);
    }
    if (!kept)
        return give_one(c, b, was);
    if (tick)
        zr_tick(h);
    return ZR_FREED;
}

/* Where a block belongs whose peers are others than its key says. */
static struct bin *rebin(struct zr_cache *c, const struct zr_block *b)
{
    const struct bin *from = c->bin[b->bin];
    struct zr_key moved = from->key->key;
    struct key *k;

    moved.peers = b->peers;
    k = from->used ? zr_key_find(c, &moved) : NULL;
    return k ? zr_bin_find(c, k, from->size_class) : NULL;
}

/*
 * All that is not a plain free of a private block: what another thread has allocated, full magazines, misuse,
 * exported blocks, blocks that changed peers.
 */
static inline enum zr_freed free_any(struct zr_cache *c, void *p, bool keep, struct zr_freed_block *was)
{
    struct heap *h = zr_heap(c);
    unsigned heap = h ? h->id : 0;
    struct bin *bin;
    uint32_t flags;
    uint64_t word;
    struct zr_block *b = zr_map_look(p, &word);

    if (!b || zr_word_state(word) != ZR_BLOCK_LIVE) {
        if (b && zr_word_state(word) == ZR_BLOCK_CACHED)
            return ZR_FREED_TWICE;
        return zr_map_find(p) ? ZR_FREED_INSIDE : ZR_FREED_UNKNOWN;
    }
    flags = __atomic_load_n(&b->flags, __ATOMIC_RELAXED);
    if (!(flags & ZR_BLOCK_OURS))
        return ZR_FREED_FOREIGN;
    note(was, b);
    if (!keep || (flags & (ZR_BLOCK_EXPORTED | ZR_BLOCK_ODD)))
        return zr_heap_claim(b, word, ZR_BLOCK_NONE, 0) ? give_one(c, b, was) : ZR_FREED_TWICE;
    if (likely(!(flags & ZR_BLOCK_MOVED))) {
        if (!zr_heap_claim(b, word, ZR_BLOCK_CACHED, heap))
            return ZR_FREED_TWICE;
        if (h && zr_word_heap(word) == heap)
            zr_heap_calm(h);
        return keep_block(c, h, b, was);
    }
    bin = rebin(c, b);
    if (!zr_heap_claim(b, word, ZR_BLOCK_CACHED, heap))
        return ZR_FREED_TWICE;
    if (!bin)
        return give_one(c, b, was);
    /* Its slot in the index names its bin. */
    zr_index_remove(b);
    __atomic_store_n(&b->bin, bin->id, __ATOMIC_RELAXED);
    zr_index_add(b);
    __atomic_fetch_and(&b->flags, ~(uint32_t)ZR_BLOCK_MOVED, __ATOMIC_RELAXED);
    return keep_block(c, h, b, was);
}

static enum zr_freed keep_slow(struct zr_cache *c, void *p, struct zr_freed_block *was)
{
    return free_any(c, p, true, was);
}

enum zr_freed zr_cache_return(struct zr_cache *c, void *p, struct zr_freed_block *was)
{
    return free_any(c, p, false, was);
}
