/* Whole blocks: the hot paths, and what happens when they miss. */
#include "cache/heap.h"

#include "cache/thread.h"

#include <string.h>

static __attribute__((noinline)) struct zr_block *alloc_slow(struct zr_cache *c,
                                                             const struct zr_key *key, size_t size,
                                                             int *code);
static __attribute__((noinline)) enum zr_freed keep_slow(struct zr_cache *c, struct zr_block *b,
                                                         struct zr_freed_block *was);
static __attribute__((noinline, cold)) enum zr_freed free_odd(struct zr_cache *c, struct zr_block *b,
                                                              uint64_t word, void *p, bool keep,
                                                              struct zr_freed_block *was);
static __attribute__((noinline, cold)) enum zr_freed tick_freed(struct heap *h);

/* Nobody else can change a CACHED block that is in our hands, so a store will do. */
static inline void hand_out(struct zr_block *b, const struct zr_key *key, size_t size)
{
    __atomic_store_n(&b->context, key->context, __ATOMIC_RELAXED);
    b->peers = key->peers;
    __atomic_store_n(&b->size, size, __ATOMIC_RELAXED);
    __atomic_store_n(&b->word, b->word ^ (ZR_BLOCK_CACHED ^ ZR_BLOCK_LIVE), __ATOMIC_RELEASE);
}

static inline bool same_key(const struct zr_key *a, const struct zr_key *b)
{
    const uint64_t *x = (const void *)a, *y = (const void *)b;

    return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4])) == 0;
}

static inline struct zr_block *pop(struct magazine *m)
{
    struct zr_block *b = m->head;

    m->head = b->link;
    m->count--;
    return b;
}

static inline void push(struct magazine *m, struct zr_block *b)
{
    __atomic_store_n(&b->link, m->head, __ATOMIC_RELAXED);
    m->head = b;
    m->count++;
}

static inline void add_kept(struct allowance *a, uint64_t bytes)
{
    __atomic_store_n(&a->kept, a->kept + bytes, __ATOMIC_RELAXED);
}

static inline void count_one(uint64_t *counter)
{
    __atomic_store_n(counter, *counter + 1, __ATOMIC_RELAXED);
}

static inline void note(struct zr_freed_block *was, const struct zr_block *b)
{
    was->size = b->size;
    memcpy(&was->device, &b->device, sizeof was->device + sizeof was->kind);
}
_Static_assert(offsetof(struct zr_block, kind) == offsetof(struct zr_block, device) + 2 &&
                   offsetof(struct zr_freed_block, kind) == offsetof(struct zr_freed_block, device) + 2,
               "device and kind are copied in one");

/* Every call that cannot go straight on ends in a tail call: nothing is saved on the stack for it. */
struct zr_block *zr_cache_alloc(struct zr_cache *c, const struct zr_key *key, size_t size, int *code)
{
    struct heap *h = zr_heaps[c->id];
    struct zr_block *b;
    struct magazine *m;
    struct way *w;
    uint64_t hits;

    if (unlikely(!h || size - 1 >= ZR_CLASS_LIMIT))
        return alloc_slow(c, key, size, code);
    if (unlikely(!heap_try_enter(h)))
        return alloc_slow(c, key, size, code);
    w = h->last;
    m = &w->magazines->of[zr_class_of(size)];
    b = m->head;
    if (unlikely(!b || !same_key(&w->key, key))) {
        heap_leave(h);
        return alloc_slow(c, key, size, code);
    }
    m->head = b->link;
    m->count--;
    add_kept(w->allowance, -b->held);
    hits = h->hits + 1;
    __atomic_store_n(&h->hits, hits, __ATOMIC_RELAXED);
    heap_leave(h);
    hand_out(b, key, size);
    if (unlikely((hits & h->patience) == 0))
        return zr_tick(h, b);
    return b;
}

/* Once the block is found. Inlined twice: where its page holds one block, and where it holds several. */
static inline __attribute__((always_inline)) enum zr_freed
free_block(struct zr_cache *c, void *p, bool keep, struct zr_freed_block *was, struct zr_block *b)
{
    struct heap *h = zr_heaps[c->id];
    uint64_t word, kept, frees;
    struct magazines *mags;
    struct magazine *m;
    struct allowance *a;

    if (unlikely(!b))
        return free_odd(c, NULL, 0, p, keep, was);
    word = zr_block_word(b);
    if (unlikely(__atomic_load_n(&b->base, __ATOMIC_RELAXED) != (uintptr_t)p))
        return free_odd(c, NULL, 0, p, keep, was);
    if (unlikely(zr_word_state(word) != ZR_BLOCK_LIVE || !keep ||
                 (__atomic_load_n(&b->flags, __ATOMIC_RELAXED) & 0xffff) != ZR_BLOCK_OURS))
        return free_odd(c, b, word, p, keep, was);
    note(was, b);
    if (unlikely(!zr_block_shift(b, word, ZR_BLOCK_CACHED)))
        return ZR_FREED_TWICE;
    if (unlikely(!h || !heap_try_enter(h)))
        return keep_slow(c, b, was);
    mags = h->by_key[b->key];
    a = &h->account[b->device];
    kept = a->kept + b->held;
    if (unlikely(!mags || kept > a->allowed)) {
        heap_leave(h);
        return keep_slow(c, b, was);
    }
    m = &mags->of[b->size_class];
    if (unlikely(m->count == m->full)) {
        heap_leave(h);
        return keep_slow(c, b, was);
    }
    m->count++;
    __atomic_store_n(&b->link, m->head, __ATOMIC_RELAXED);
    m->head = b;
    __atomic_store_n(&a->kept, kept, __ATOMIC_RELAXED);
    b->stamp = h->now;
    frees = ++h->frees;
    heap_leave(h);
    if (unlikely((frees & h->patience) == 0))
        return tick_freed(h);
    return ZR_FREED;
}

static __attribute__((noinline)) enum zr_freed free_among_several(struct zr_cache *c, void *p, bool keep,
                                                                  struct zr_freed_block *was,
                                                                  uint64_t slot)
{
    return free_block(c, p, keep, was, zr_map_descend(slot, (uintptr_t)p));
}

enum zr_freed zr_cache_free(struct zr_cache *c, void *p, bool keep, struct zr_freed_block *was)
{
    struct zr_map_leaf *leaf = zr_map_leaf_of((uintptr_t)p);
    uint64_t slot;

    if (unlikely(!leaf))
        return free_odd(c, NULL, 0, p, keep, was);
    slot = __atomic_load_n(&leaf->slot[zr_map_slot_of((uintptr_t)p)], __ATOMIC_ACQUIRE);
    if (unlikely(slot & 1))
        return free_among_several(c, p, keep, was, slot);
    return free_block(c, p, keep, was, (struct zr_block *)(slot & 0xffffffffffff));
}

static enum zr_freed tick_freed(struct heap *h)
{
    zr_tick(h, NULL);
    return ZR_FREED;
}

/* A new block from the driver; *code is 0, the driver's, or -1 for trouble of our own. */
static struct zr_block *fresh(struct zr_cache *c, const struct zr_key *key, struct key *k,
                              size_t size, int *code)
{
    struct zr_block *b = zr_block_new(), *old;
    unsigned size_class = k && size - 1 < ZR_CLASS_LIMIT ? zr_class_of(size) : ZR_CLASSES;
    size_t held = size;
    void *p = NULL;

    *code = -1;
    if (!b)
        return NULL;
    /* What could never be kept is not rounded up either. */
    if (size_class < ZR_CLASSES && zr_class_size(size_class) <= c->account[key->account].limit)
        held = zr_class_size(size_class);
    else
        size_class = ZR_CLASSES;
    *code = c->backing.alloc(c->backing.arg, key, held, &p);
    if (*code != 0 && c->backing.is_full(*code)) {
        zr_cache_trim(c, key->account, NULL, 0);
        if (held != size)
            size_class = ZR_CLASSES;
        held = size;
        *code = c->backing.alloc(c->backing.arg, key, held, &p);
    }
    if (*code != 0) {
        zr_block_recycle(b);
        return NULL;
    }
    zr_block_place(b, (uintptr_t)p, size, held);
    b->context = key->context;
    b->peers = key->peers;
    b->device = key->account;
    b->kind = key->kind;
    b->key = k ? k->id : NO_KEY;
    b->size_class = (uint16_t)size_class;
    __atomic_store_n(&b->flags, ZR_BLOCK_OURS | (size_class == ZR_CLASSES ? ZR_BLOCK_ODD : 0),
                     __ATOMIC_RELAXED);
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
    return b;
}

/* From the run behind the magazine, or from the depot. Inside the heap. */
static struct zr_block *refill(struct heap *h, struct key *k, struct magazine *m, unsigned size_class)
{
    struct zr_block *run = m->reserve;
    struct allowance *a = &h->account[k->key.account];

    if (m->head)
        return pop(m);
    if (run) {
        m->reserve = NULL;
    } else {
        run = zr_depot_get(k, size_class);
        if (!run)
            return NULL;
        __atomic_store_n(&a->allowed, a->allowed + run->run_length * run->held, __ATOMIC_RELAXED);
        add_kept(a, run->run_length * run->held);
    }
    m->head = run;
    m->count = run->run_length;
    return pop(m);
}

/* For a thread without a heap: one block straight from the depot. */
static struct zr_block *from_depot(struct zr_cache *c, struct key *k, unsigned size_class)
{
    struct zr_block *run = zr_depot_get(k, size_class);

    if (!run)
        return NULL;
    if (run->run_length > 1)
        zr_depot_put(k, size_class, run->link, run->run_length - 1u);
    __atomic_fetch_sub(&c->account[k->key.account].granted, run->held, __ATOMIC_RELAXED);
    return run;
}

/* Another key than last time, an empty magazine, or none: from the depot, then from the driver. */
static struct zr_block *alloc_slow(struct zr_cache *c, const struct zr_key *key, size_t size, int *code)
{
    struct key *k;
    struct heap *h = zr_heap(c);
    struct zr_block *b = NULL;
    unsigned size_class = size - 1 < ZR_CLASS_LIMIT ? zr_class_of(size) : ZR_CLASSES;

    if (h && size_class < ZR_CLASSES) {
        struct way *w = &h->way[zr_key_hash(key)];

        heap_enter(h);
        if (same_key(&w->key, key)) {
            h->last = w;
            if (w->magazines->of[size_class].head) {
                b = pop(&w->magazines->of[size_class]);
                add_kept(w->allowance, -b->held);
                count_one(&h->hits);
            }
        }
        heap_leave(h);
        if (b) {
            hand_out(b, key, size);
            return b;
        }
    }
    k = zr_key_find(c, key);
    if (k && size_class < ZR_CLASSES && h) {
        struct magazines *mags;

        heap_enter(h);
        mags = zr_heap_magazines(h, k);
        if (mags)
            b = refill(h, k, &mags->of[size_class], size_class);
        if (b) {
            add_kept(&h->account[key->account], -b->held);
            count_one(&h->hits);
        }
        heap_leave(h);
    } else if (k && size_class < ZR_CLASSES) {
        b = from_depot(c, k, size_class);
    }
    if (b) {
        hand_out(b, key, size);
    } else {
        b = fresh(c, key, k, size, code);
        if (h)
            count_one(&h->misses);
        else
            __atomic_fetch_add(&c->shared_misses, 1, __ATOMIC_RELAXED);
    }
    return h ? zr_tick(h, b) : b;
}

/* To the driver, at once: the block is CACHED or NONE and in our hands. */
static enum zr_freed give_one(struct zr_cache *c, struct zr_block *b, struct zr_freed_block *was)
{
    __atomic_store_n(&b->word, b->word & ~(uint64_t)0xff, __ATOMIC_RELEASE);
    was->code = c->backing.free(c->backing.arg, b);
    if (unlikely(was->code != 0) && zr_map_insert(b))
        return ZR_FREED_REFUSED;
    zr_block_recycle(b);
    return ZR_FREED_BY_DRIVER;
}

static enum zr_freed keep_slow(struct zr_cache *c, struct zr_block *b, struct zr_freed_block *was)
{
    struct key *k = b->key < ZR_KEYS_MAX ? c->key[b->key] : NULL;
    struct heap *h = zr_heap(c);
    struct zr_block *list = NULL;
    bool kept = false;

    if (!k || !k->used)
        return give_one(c, b, was);
    if (h) {
        struct allowance *a = &h->account[b->device];
        struct magazines *mags;

        heap_enter(h);
        mags = zr_heap_magazines(h, k);
        kept = mags && (a->kept + b->held <= a->allowed || zr_allow(h, b->device, b->held));
        if (!kept && mags) {
            heap_leave(h);
            list = zr_make_room(c, b->device, b->held);
            heap_enter(h);
            mags = zr_heap_magazines(h, k);
            kept = mags && zr_allow(h, b->device, b->held);
        }
        if (kept) {
            struct magazine *m = &mags->of[b->size_class];

            if (m->count == m->full) {
                if (m->reserve) {
                    uint64_t bytes = m->reserve->run_length * m->reserve->held;

                    __atomic_store_n(&a->allowed, a->allowed - bytes, __ATOMIC_RELAXED);
                    add_kept(a, -bytes);
                    zr_depot_put(k, b->size_class, m->reserve, m->reserve->run_length);
                }
                m->reserve = m->head;
                m->reserve->run_length = (uint8_t)m->count;
                m->head = NULL;
                m->count = 0;
            }
            b->stamp = h->now;
            push(m, b);
            add_kept(a, b->held);
        }
        heap_leave(h);
    } else if (zr_grant(c, b->device, b->held)) {
        b->stamp = zr_now();
        b->link = NULL;
        zr_depot_put(k, b->size_class, b, 1);
        kept = true;
    }
    zr_give_back(c, list);
    if (!kept)
        return give_one(c, b, was);
    if (h)
        zr_tick(h, b);
    return ZR_FREED;
}

/* All that is not a plain free of a block of ours: misuse, exported blocks, blocks that changed peers. */
static enum zr_freed free_odd(struct zr_cache *c, struct zr_block *b, uint64_t word, void *p, bool keep,
                              struct zr_freed_block *was)
{
    uint32_t flags;

    if (!b || zr_word_state(word) != ZR_BLOCK_LIVE) {
        if (b && zr_word_state(word) == ZR_BLOCK_CACHED)
            return ZR_FREED_TWICE;
        return zr_map_find(p) ? ZR_FREED_INSIDE : ZR_FREED_UNKNOWN;
    }
    flags = __atomic_load_n(&b->flags, __ATOMIC_RELAXED);
    if (!(flags & ZR_BLOCK_OURS))
        return ZR_FREED_FOREIGN;
    note(was, b);
    if (keep && (flags & ZR_BLOCK_MOVED) && !(flags & (ZR_BLOCK_EXPORTED | ZR_BLOCK_ODD))) {
        struct key *k = b->key < ZR_KEYS_MAX ? c->key[b->key] : NULL;

        if (k && k->used) {
            struct zr_key moved = k->key;

            moved.peers = b->peers;
            k = zr_key_find(c, &moved);
        }
        if (!k)
            flags |= ZR_BLOCK_ODD;
        if (!zr_block_shift(b, word, ZR_BLOCK_CACHED))
            return ZR_FREED_TWICE;
        if (k) {
            b->key = k->id;
            __atomic_fetch_and(&b->flags, ~(uint32_t)ZR_BLOCK_MOVED, __ATOMIC_RELAXED);
            return keep_slow(c, b, was);
        }
        return give_one(c, b, was);
    }
    if (!zr_block_shift(b, word, ZR_BLOCK_NONE))
        return ZR_FREED_TWICE;
    return give_one(c, b, was);
}
