#include "cache/map.h"

#include "base/lock.h"
#include "base/pages.h"

#include <string.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { LEVELS = 4, LARGEST_NODE = 128, HIGH_ROOTS = 512, TOO_MANY_EMPTY = 32 };

/* Level 0 is the leaf; below it nodes split one slot of the level above. */
static const unsigned char level_shift[LEVELS] = {16, 9, 3, 0};
static const unsigned char level_fan[LEVELS] = {0, LARGEST_NODE, 64, 8};

struct zr_map_root zr_map_low;
struct zr_map_root *zr_map_high[HIGH_ROOTS]; /* bits 48 to 56, where any above 47 is set */

static unsigned slot_of_page(unsigned page)
{
    return zr_map_slot_of((uintptr_t)page << 16);
}

static unsigned index_of(uintptr_t a, unsigned level)
{
    return a >> level_shift[level] & (level_fan[level] - 1u);
}

static uint64_t *node_of(uint64_t slot)
{
    return (uint64_t *)(slot & ~(uint64_t)1);
}

static struct zr_block *block_of(uint64_t slot)
{
    return (struct zr_block *)(slot & 0xffffffffffff);
}

static uint64_t slot_of(struct zr_block *b, uint64_t word)
{
    return (uint64_t)(uintptr_t)b | word >> 32 << 48;
}

static uint64_t load(const uint64_t *slot)
{
    return __atomic_load_n(slot, __ATOMIC_ACQUIRE);
}

/*
 * The block that a slot names, and its base, if it is still the one that was put there: the word is read
 * again after the base, which so belongs to the generation that the slot names.
 */
static struct zr_block *occupant(uint64_t slot, uintptr_t *base)
{
    struct zr_block *b = block_of(slot);
    uint64_t word;

    if (!b)
        return NULL;
    word = zr_block_word(b);
    *base = __atomic_load_n(&b->base, __ATOMIC_ACQUIRE);
    return word >> 32 << 48 == (slot & ~(uint64_t)0xffffffffffff) &&
                   zr_word_state(word) != ZR_BLOCK_NONE &&
                   zr_word_generation(zr_block_word(b)) == zr_word_generation(word)
               ? b
               : NULL;
}

struct zr_block *zr_map_descend(uint64_t slot, uintptr_t address)
{
    for (unsigned level = 1; slot & 1; level++)
        slot = load(&node_of(slot)[index_of(address, level)]);
    return block_of(slot);
}

/* Two loads in the common case. For a page: after the swap of its slot, which orders them behind it. */
static void set(struct zr_map_bits *bits, unsigned i)
{
    uint64_t bit = (uint64_t)1 << i % 64, *word = &bits->seen[i / 64];
    uint64_t any_bit = (uint64_t)1 << i / 64 % 64, *any = &bits->any[i / 4096];

    if (unlikely(!(__atomic_load_n(word, __ATOMIC_SEQ_CST) & bit)))
        __atomic_fetch_or(word, bit, __ATOMIC_SEQ_CST);
    if (unlikely(!(__atomic_load_n(any, __ATOMIC_SEQ_CST) & any_bit)))
        __atomic_fetch_or(any, any_bit, __ATOMIC_SEQ_CST);
}

static struct zr_map_root *root_of(uintptr_t a)
{
    return likely(a >> 48 == 0) ? &zr_map_low
                                : __atomic_load_n(&zr_map_high[a >> 48 & 511], __ATOMIC_ACQUIRE);
}

/* A root of 57-bit space or a leaf. Whoever comes second finds the first one's; its pages stay untouched. */
static void *fill(void **where, size_t bytes)
{
    void *found = __atomic_load_n(where, __ATOMIC_ACQUIRE), *made;

    if (found)
        return found;
    made = zr_pages(bytes);
    if (!made)
        return NULL;
    return __atomic_compare_exchange_n(where, &found, made, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE)
               ? made
               : found;
}

static __attribute__((noinline, cold)) struct zr_map_leaf *make_leaf(uintptr_t a)
{
    struct zr_map_root *root = &zr_map_low;
    unsigned i = a >> 32 & 0xffff;
    void *leaf;

    if (a >> 48) {
        void *made = fill((void **)&zr_map_high[a >> 48 & 511], sizeof *root);

        if (!made)
            return NULL;
        root = made;
    }
    /* Noted before anybody can use it. */
    set(&root->noted, i);
    leaf = fill((void **)&root->leaf[i], sizeof(struct zr_map_leaf));
    ZR_PAUSE("beside a new leaf");
    return leaf;
}

/* Nodes come in one size: 1 KiB for the rare page of several blocks is 1.6 % of that page. */
static uint64_t *make_node(void)
{
    return zr_piece(LARGEST_NODE * sizeof(uint64_t));
}

bool zr_map_insert(struct zr_block *b)
{
    uintptr_t a = b->base;
    struct zr_map_leaf *leaf = zr_map_leaf_of(a);
    unsigned level = 0, page = a >> 16 & 0xffff;
    uint64_t word = (zr_block_word(b) & ~(uint64_t)0xffffffff) | ZR_BLOCK_LIVE;
    uint64_t *slot, *spare = NULL;

    if (unlikely(!leaf) && !(leaf = make_leaf(a)))
        return false;
    slot = &leaf->slot[zr_map_slot_of(a)];
    __atomic_store_n(&b->word, word, __ATOMIC_RELEASE);
    for (;;) {
        uint64_t old = load(slot);
        uintptr_t other;

        if (old & 1) {
            slot = &node_of(old)[index_of(a, ++level)];
            continue;
        }
        if (likely(!occupant(old, &other))) {
            if (likely(__atomic_compare_exchange_n(slot, &old, slot_of(b, word), false,
                                                   __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)))
                break;
            continue;
        }
        if (block_of(old) == b)
            break; /* it was taken, and comes back */
        if (other == a) {
            __atomic_store_n(&b->word, word & ~(uint64_t)0xff, __ATOMIC_RELEASE);
            return false;
        }
        /* Two bases under one slot: hang a node below it that begins with the other one. */
        if (!spare && !(spare = make_node())) {
            __atomic_store_n(&b->word, word & ~(uint64_t)0xff, __ATOMIC_RELEASE);
            return false;
        }
        memset(spare, 0, LARGEST_NODE * sizeof *spare);
        spare[index_of(other, level + 1)] = old;
        if (__atomic_compare_exchange_n(slot, &old, (uint64_t)(uintptr_t)spare | 1, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            spare = NULL;
    }
    set(&leaf->noted, page);
    return true;
}

/* The block with the greatest base up to `a` under this slot; parked ones only for those who ask for them. */
static struct zr_block *below(uint64_t slot, unsigned level, uintptr_t a, bool parked_too)
{
    struct zr_block *b;
    uintptr_t base;

    if (!(slot & 1)) {
        b = occupant(slot, &base);
        if (!b || base > a || (!parked_too && zr_word_state(zr_block_word(b)) == ZR_BLOCK_PARKED))
            return NULL;
        return b;
    }
    level++;
    for (unsigned i = a == UINTPTR_MAX ? level_fan[level] - 1u : index_of(a, level);; i--) {
        b = below(load(&node_of(slot)[i]), level, a, parked_too);
        if (b || i == 0)
            return b;
        a = UINTPTR_MAX;
    }
}

/* Clears the bits of pages in which no base lies any more. A bit whose page was filled meanwhile is set again. */
static __attribute__((noinline, cold)) void clean(struct zr_map_leaf *leaf)
{
    if (__atomic_exchange_n(&leaf->lock, 1, __ATOMIC_ACQUIRE))
        return;
    __atomic_fetch_add(&leaf->cleanings, 1, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < ZR_MAP_FAN / 64; i++) {
        uint64_t any_bit = (uint64_t)1 << i % 64;

        for (uint64_t left = load(&leaf->noted.seen[i]); left; left &= left - 1) {
            uint64_t bit = left & -left;
            const uint64_t *slot = &leaf->slot[slot_of_page(i * 64 + (unsigned)__builtin_ctzll(left))];

            if (below(load(slot), 0, UINTPTR_MAX, true))
                continue;
            __atomic_fetch_and(&leaf->noted.seen[i], ~bit, __ATOMIC_SEQ_CST);
            if (below(__atomic_load_n(slot, __ATOMIC_SEQ_CST), 0, UINTPTR_MAX, true))
                __atomic_fetch_or(&leaf->noted.seen[i], bit, __ATOMIC_SEQ_CST);
        }
        if (load(&leaf->noted.seen[i]) || !(load(&leaf->noted.any[i / 64]) & any_bit))
            continue;
        __atomic_fetch_and(&leaf->noted.any[i / 64], ~any_bit, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&leaf->noted.seen[i], __ATOMIC_SEQ_CST))
            __atomic_fetch_or(&leaf->noted.any[i / 64], any_bit, __ATOMIC_SEQ_CST);
    }
    __atomic_fetch_add(&leaf->cleanings, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&leaf->lock, 0, __ATOMIC_RELEASE);
}

/* The greatest set bit below `end`, or -1. */
static int last_bit(const uint64_t *words, int end)
{
    for (int i = end > 0 ? (end - 1) / 64 : -1; i >= 0; i--) {
        uint64_t w = load(&words[i]);

        if (end - i * 64 < 64)
            w &= ((uint64_t)1 << (end - i * 64)) - 1;
        if (w)
            return i * 64 + 63 - __builtin_clzll(w);
    }
    return -1;
}

/* The greatest below `end` that is noted, or -1: at most 18 words are looked at. */
static int last_noted(const struct zr_map_bits *bits, int end)
{
    int word, bit;

    if (end <= 0)
        return -1;
    word = (end - 1) / 64;
    bit = last_bit(&bits->seen[word], end - word * 64);
    if (bit >= 0)
        return word * 64 + bit;
    for (word = last_bit(bits->any, word); word >= 0; word = last_bit(bits->any, word)) {
        bit = last_bit(&bits->seen[word], 64);
        if (bit >= 0)
            return word * 64 + bit;
    }
    return -1;
}

/* The block with the greatest base in the pages below `end` of one leaf. */
static struct zr_block *last_block(struct zr_map_leaf *leaf, int end)
{
    /* Once: pages of parked blocks stay noted, however many they are. */
    for (bool cleaned = false;;) {
        uint32_t before = __atomic_load_n(&leaf->cleanings, __ATOMIC_SEQ_CST);
        unsigned empty = 0;
        struct zr_block *b = NULL;

        for (int page = last_noted(&leaf->noted, end); page >= 0 && !b; page = last_noted(&leaf->noted, page)) {
            b = below(load(&leaf->slot[slot_of_page((unsigned)page)]), 0, UINTPTR_MAX, false);
            empty += !b;
        }
        if (empty > TOO_MANY_EMPTY && !cleaned) {
            clean(leaf);
            cleaned = true;
        } else if (before % 2 == 0 && before == __atomic_load_n(&leaf->cleanings, __ATOMIC_SEQ_CST)) {
            return b;
        }
        __builtin_ia32_pause();
    }
}

static struct zr_block *nearest_below(uintptr_t a)
{
    struct zr_map_root *root = root_of(a);
    int i = a >> 32 & 0xffff, page = a >> 16 & 0xffff;
    struct zr_map_leaf *leaf;
    struct zr_block *b;

    if (!root)
        return NULL;
    leaf = __atomic_load_n(&root->leaf[i], __ATOMIC_ACQUIRE);
    if (leaf) {
        b = below(load(&leaf->slot[slot_of_page((unsigned)page)]), 0, a, false);
        if (b || (b = last_block(leaf, page)))
            return b;
    }
    for (i = last_noted(&root->noted, i); i >= 0; i = last_noted(&root->noted, i)) {
        leaf = __atomic_load_n(&root->leaf[i], __ATOMIC_ACQUIRE);
        if (leaf && (b = last_block(leaf, ZR_MAP_FAN)))
            return b;
    }
    return NULL;
}

struct zr_block *zr_map_find(const void *p)
{
    uintptr_t a = (uintptr_t)p;
    struct zr_block *b = zr_map_base(p);

    if (likely(b))
        return b;
    while ((b = nearest_below(a))) {
        uint64_t word = zr_block_word(b);
        uintptr_t base = __atomic_load_n(&b->base, __ATOMIC_ACQUIRE);
        size_t size = __atomic_load_n(&b->size, __ATOMIC_ACQUIRE);

        if (zr_block_word(b) == word)
            return zr_word_state(word) == ZR_BLOCK_LIVE && a - base < size ? b : NULL;
    }
    return NULL;
}

void zr_map_fork_child(void)
{
    zr_index_fork_child();
    for (int i = last_noted(&zr_map_low.noted, ZR_MAP_FAN); i >= 0; i = last_noted(&zr_map_low.noted, i))
        zr_map_low.leaf[i] = NULL;
    zr_map_low.noted = (struct zr_map_bits){0};
    memset(zr_map_high, 0, sizeof zr_map_high);
}
