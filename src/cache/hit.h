/*
 * The hot paths of whole blocks, inline: a block that is at hand in this thread, and one that stays at hand. For
 * whole.c, and for callers that know the key already. What is not settled here has changed nothing.
 */
#ifndef ZEROUTE_CACHE_HIT_H
#define ZEROUTE_CACHE_HIT_H

#include "cache/heap.h"

#include <emmintrin.h>
#include <string.h>

/* Nobody else can change a CACHED block that is in our hands, so a store will do. It is under our heap already. */
static inline struct zr_block *hand_out(struct zr_block *b, size_t size)
{
    __atomic_store_n(&b->size, size, __ATOMIC_RELAXED);
    __atomic_store_n(&b->word, b->word ^ (ZR_BLOCK_CACHED ^ ZR_BLOCK_LIVE), __ATOMIC_RELEASE);
    return b;
}

/* `ours` is aligned. */
static inline bool same_key(const struct zr_key *ours, const struct zr_key *key)
{
    const __m128i *x = (const void *)ours, *y = (const void *)key;
    __m128i same = _mm_and_si128(_mm_cmpeq_epi8(_mm_load_si128(x), _mm_loadu_si128(y)),
                                 _mm_cmpeq_epi8(_mm_load_si128(x + 1), _mm_loadu_si128(y + 1)));

    return ((const uint64_t *)x)[4] == ((const uint64_t *)y)[4] && _mm_movemask_epi8(same) == 0xffff;
}
_Static_assert(sizeof(struct zr_key) == 40 && offsetof(struct way, key) == 0, "compared in three");

static inline void note(struct zr_freed_block *was, const struct zr_block *b)
{
    was->size = b->size;
    memcpy(&was->device, &b->device, 4);
}
_Static_assert(offsetof(struct zr_block, device) == offsetof(struct zr_block, traits) + 4 &&
                   offsetof(struct zr_block, kind) == offsetof(struct zr_block, device) + 2 &&
                   offsetof(struct zr_freed_block, kind) == offsetof(struct zr_freed_block, device) + 2 &&
                   offsetof(struct zr_freed_block, code) == offsetof(struct zr_freed_block, device) + 4,
               "device and kind are copied in one");

/* Inside: the newest block for this size. NULL: there is none at hand. */
static inline __attribute__((always_inline)) struct zr_block *drawer_pop(struct heap *h, struct drawer *s, size_t size)
{
    struct magazine *m = s->magazine;

    if (unlikely(s->size != size)) {
        unsigned size_class = zr_class_of(size), bin;
        const struct key *k = s->key;

        if (unlikely(size_class >= ZR_CLASSES || !(bin = __atomic_load_n(&k->bin[size_class], __ATOMIC_RELAXED))))
            return NULL;
        if (unlikely(size > __atomic_load_n(&k->exact, __ATOMIC_RELAXED)) && zr_class_size(size_class) != size)
            return NULL;
        s->magazine = m = &h->of[bin];
        s->size = size;
    }
    return magazine_pop(m);
}

/* A block of this key and size from this thread's heap, LIVE. NULL: go through zr_cache_alloc. */
static inline __attribute__((always_inline)) struct zr_block *
zr_cache_at_hand(struct heap *h, const struct zr_key *key, size_t size)
{
    struct zr_block *b = NULL;
    struct way *w;

    heap_enter_hot(h);
    w = __atomic_load_n(&h->last, __ATOMIC_RELAXED);
    ZR_PAUSE("inside by a way");
    if (likely(same_key(&w->key, key)))
        b = drawer_pop(h, &w->drawer, size);
    heap_leave(h);
    return likely(b) ? hand_out(b, size) : NULL;
}

/*
 * Who was served by this heap, and so knows the bins of his key and a magazine of it, may be served again as long as
 * the heap has the same pass: neither its owner nor the keys have changed then, and nobody has seized it.
 */
struct zr_again {
    uint64_t pass;
    struct heap *heap;
    struct drawer drawer;
};

/* Outside, after a block of this key: how to get the next one. False: not by this way. */
static inline bool zr_cache_learn(struct zr_again *again, const struct zr_key *key)
{
    struct heap *h = zr_heap_last;
    const struct way *w;
    bool known;

    heap_enter_hot(h);
    w = __atomic_load_n(&h->last, __ATOMIC_RELAXED);
    *again = (struct zr_again){__atomic_load_n(&h->pass, __ATOMIC_ACQUIRE), h, w->drawer};
    known = again->pass && same_key(&w->key, key);
    heap_leave(h);
    return known;
}

static inline __attribute__((always_inline)) struct zr_block *zr_cache_again(struct zr_again *again, size_t size)
{
    struct heap *h = again->heap;
    struct zr_block *b = NULL;

    heap_enter_hot(h);
    if (likely(__atomic_load_n(&h->pass, __ATOMIC_ACQUIRE) == again->pass))
        b = drawer_pop(h, &again->drawer, size);
    heap_leave(h);
    return likely(b) ? hand_out(b, size) : NULL;
}

/*
 * The slot of the index whose block has the base that is freed. Kept, or go through zr_cache_keep. A block that this
 * heap may free by itself is of its cache. `mine`: as h->mine was when the caller last saw that the heap is this
 * thread's; no other owner has the same. zr_tick may be due now.
 */
static inline __attribute__((always_inline)) bool
zr_cache_put_by(struct heap *h, uint32_t mine, const void *slot, struct zr_freed_block *was)
{
    struct zr_block *b = zr_slot_block(slot);
    uint64_t word;

    heap_enter_hot(h);
    /* A private block of this heap: between here and heap_leave nobody else touches it. */
    word = zr_block_word(b);
    if (unlikely((uint32_t)word != mine) || unlikely(__atomic_load_n(&h->mine, __ATOMIC_ACQUIRE) != mine) ||
        unlikely(__atomic_load_n(&b->own, __ATOMIC_RELAXED) != ZR_BLOCK_OURS) ||
        unlikely(!magazine_push(&h->of[zr_slot_bin(slot)], b))) {
        heap_leave(h);
        return false;
    }
    ZR_PAUSE("before a store");
    b->stamp = h->now;
    note(was, b);
    __atomic_store_n(&b->word, word ^ (ZR_BLOCK_LIVE ^ ZR_BLOCK_CACHED), __ATOMIC_RELEASE);
    h->patience--;
    heap_leave(h);
    return true;
}

static inline bool zr_tick_is_due(const struct heap *h)
{
    return unlikely(h->patience < 0);
}

#endif
