/*
 * A lock-free radix tree over the address: a root of 64 Ki pointers (bits 32 to 47) and leaves of 64 Ki slots, one per
 * 64 KiB page (bits 16 to 31). A slot names the block whose base lies in its page, so that finding a base takes three
 * dependent loads (root, slot, descriptor). Where several blocks begin in one page, the slot leads on to nodes of 128,
 * 64 and 8 slots, down to single bytes. A block costs one slot, whatever its size. Leaves are mapped whole and touched
 * sparsely: 4 KiB of memory per 32 MiB of addresses in which blocks begin.
 *
 * Writers use one compare-and-swap on the slot, readers none. A block that leaves is not wiped from its slot: the slot
 * carries 16 bits of the descriptor's generation, which moves on with every insertion, and a slot whose block is NONE
 * or of another generation is empty for everybody.
 *
 * Inner addresses are found by the nearest base below. Each leaf has a two-level bitmap of the pages in which a base
 * was seen; bits are cleared only when a search passes many pages that have become empty, under a seqlock.
 *
 * Blocks in the map do not overlap. Addresses with any of the bits 48 to 56 set take one more load; devices use all of
 * the 57 bits, sign-extended, so the bits above them say nothing.
 */
#include "cache/cache.h"

#include <string.h>

enum { FAN = 1 << 16, LEVELS = 4, NODE = 128, HIGH_ROOTS = 512, TOO_MANY_EMPTY = 32 };
#define BLOCK_BITS (((uint64_t)1 << 48) - 1)
#define ADDRESS_BITS (((uintptr_t)1 << 57) - 1)

/* Level 0 is the leaf; a node below it splits one slot of the level above. */
static const unsigned char level_shift[LEVELS] = {16, 9, 3, 0};
static const unsigned char level_fan[LEVELS] = {0, NODE, 64, 8};

/* A bit per slot, and a bit per word of these that is not 0. */
struct bitmap {
    uint64_t bits[FAN / 64];
    uint64_t words[FAN / 4096];
};

struct leaf {
    uint64_t slot[FAN];  /* 0, generation << 48 | descriptor, or node | 1 */
    struct bitmap pages; /* in which a base was seen */
    uint32_t sequence;   /* seqlock: odd while bits are being cleared */
    uint32_t clearing;
};

struct root {
    struct leaf *leaf[FAN];
    struct bitmap leaves;
};

static struct root low;
static struct root *high[HIGH_ROOTS];

static uint64_t load(const uint64_t *slot) {
    return __atomic_load_n(slot, __ATOMIC_ACQUIRE);
}

static struct root *root_of(uintptr_t a) {
    return likely(a >> 48 == 0) ? &low : __atomic_load_n(&high[a >> 48 & (HIGH_ROOTS - 1)], __ATOMIC_ACQUIRE);
}

static struct leaf *leaf_of(uintptr_t a) {
    struct root *root = root_of(a);

    return likely(root) ? __atomic_load_n(&root->leaf[a >> 32 & (FAN - 1)], __ATOMIC_ACQUIRE) : NULL;
}

static unsigned page_of(uintptr_t a) {
    return a >> 16 & (FAN - 1);
}

/*
 * The slot of a page. Blocks that lie a power of two apart would otherwise share a few of the processor's cache sets:
 * the line is mixed with higher bits of the page, within the same 4 KiB of slots.
 */
static uint64_t *slot_of(struct leaf *leaf, unsigned page) {
    return &leaf->slot[page ^ (page >> 6 & 0x1f8)];
}

static unsigned index_of(uintptr_t a, unsigned level) {
    level %= LEVELS;
    return a >> level_shift[level] & (level_fan[level] - 1u);
}

static uint64_t *node_of(uint64_t slot) {
    return (uint64_t *)(uintptr_t)(slot & ~(uint64_t)1);
}

static struct zr_block *block_of(uint64_t slot) {
    return (struct zr_block *)(uintptr_t)(slot & BLOCK_BITS);
}

/* --- lookups by base ---------------------------------------------------------------------------------------------- */

struct zr_block *zr_map_look(const void *p, uint64_t *word) {
    uintptr_t a = (uintptr_t)p;
    struct leaf *leaf = leaf_of(a);
    uint64_t slot = likely(leaf) ? load(slot_of(leaf, page_of(a))) : 0;
    struct zr_block *b;

    for (unsigned level = 1; unlikely(slot & 1); level++)
        slot = load(&node_of(slot)[index_of(a, level)]);
    b = block_of(slot);
    if (unlikely(!b))
        return NULL;
    /* The word first: a base read after it belongs to this generation or to a later one. */
    *word = zr_block_word(b);
    return likely(__atomic_load_n(&b->base, __ATOMIC_RELAXED) == a) ? b : NULL;
}

struct zr_block *zr_map_base(const void *p) {
    uint64_t word;
    struct zr_block *b = zr_map_look(p, &word);

    return b && zr_word_state(word) == ZR_BLOCK_LIVE ? b : NULL;
}

struct zr_block *zr_map_take(const void *p) {
    uint64_t word;
    struct zr_block *b = zr_map_look(p, &word);

    return b && zr_word_state(word) == ZR_BLOCK_LIVE && zr_block_shift(b, word, ZR_BLOCK_NONE) ? b : NULL;
}

/* --- insertion ---------------------------------------------------------------------------------------------------- */

/*
 * The block that a slot of this level names, and its base, unless it has left: the word is read again after the base,
 * which then belongs to the generation that the slot names. The base is checked against `at`, an address that the slot
 * stands for, because 16 bits of generation may coincide.
 */
static struct zr_block *occupant(uint64_t slot, unsigned level, uintptr_t at, uintptr_t *base) {
    struct zr_block *b = block_of(slot);
    uint64_t word;

    if (!b)
        return NULL;
    word = zr_block_word(b);
    *base = __atomic_load_n(&b->base, __ATOMIC_ACQUIRE);
    if (word << 16 >> 48 != slot >> 48 || zr_word_state(word) == ZR_BLOCK_NONE ||
        ((*base ^ at) & ADDRESS_BITS) >> level_shift[level])
        return NULL;
    return zr_block_word(b) >> 32 == word >> 32 ? b : NULL;
}

/* Two loads when the bit is set already. Follows the compare-and-swap of the slot, see clear_empty(). */
static void set_bit(struct bitmap *map, unsigned i) {
    uint64_t bit = (uint64_t)1 << i % 64, word_bit = (uint64_t)1 << i / 64 % 64;

    if (!(__atomic_load_n(&map->bits[i / 64], __ATOMIC_SEQ_CST) & bit))
        __atomic_fetch_or(&map->bits[i / 64], bit, __ATOMIC_SEQ_CST);
    if (!(__atomic_load_n(&map->words[i / 4096], __ATOMIC_SEQ_CST) & word_bit))
        __atomic_fetch_or(&map->words[i / 4096], word_bit, __ATOMIC_SEQ_CST);
}

/* What *where points to, mapped if there is nothing yet; of two threads that map it one keeps its pages. */
static void *fill(void **where, size_t bytes) {
    void *found = __atomic_load_n(where, __ATOMIC_ACQUIRE), *made;

    if (found || !(made = zr_pages(bytes)))
        return found;
    if (__atomic_compare_exchange_n(where, &found, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return made;
    zr_pages_back(made, bytes);
    return found;
}

static ZR_COLD struct leaf *make_leaf(uintptr_t a) {
    struct root *root = root_of(a);
    unsigned i = a >> 32 & (FAN - 1);

    if (!root && !(root = fill((void **)&high[a >> 48 & (HIGH_ROOTS - 1)], sizeof *root)))
        return NULL;
    set_bit(&root->leaves, i); /* before anybody can use it */
    return fill((void **)&root->leaf[i], sizeof(struct leaf));
}

/* Puts the block into this slot or below it. Nodes come in one size: 1 KiB for the rare page of several blocks. */
static bool insert_at(uint64_t *slot, uint64_t entry, uintptr_t a) {
    uint64_t *node = NULL;

    for (unsigned level = 0;;) {
        uint64_t old = load(slot);
        uintptr_t other;

        if (old & 1) {
            slot = &node_of(old)[index_of(a, ++level)];
        } else if (likely(!occupant(old, level, a, &other))) {
            if (likely(__atomic_compare_exchange_n(slot, &old, entry, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)))
                return true;
        } else if (other == a || (!node && !(node = zr_piece(NODE * sizeof *node)))) {
            return false;
        } else { /* two bases under one slot: the other one moves into a node below it */
            memset(node, 0, NODE * sizeof *node);
            node[index_of(other, level + 1)] = old;
            if (__atomic_compare_exchange_n(slot, &old, (uint64_t)(uintptr_t)node | 1, false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_RELAXED))
                node = NULL;
        }
    }
}

bool zr_map_insert(struct zr_block *b) {
    uintptr_t a = b->base;
    struct leaf *leaf = leaf_of(a);
    uint64_t generation = (zr_block_word(b) >> 32) + 1;

    if (unlikely(!leaf) && !(leaf = make_leaf(a)))
        return false;
    __atomic_store_n(&b->word, generation << 32 | ZR_BLOCK_LIVE, __ATOMIC_RELEASE);
    if (!insert_at(slot_of(leaf, page_of(a)), generation << 48 | (uintptr_t)b, a)) {
        __atomic_store_n(&b->word, generation << 32 | ZR_BLOCK_NONE, __ATOMIC_RELEASE);
        return false;
    }
    set_bit(&leaf->pages, page_of(a));
    return true;
}

/* --- lookups by inner address ------------------------------------------------------------------------------------- */

/* The block with the greatest base up to `a` in a slot, or below it, that stands for the address `at`. */
static struct zr_block *last_under(uint64_t slot, unsigned level, uintptr_t at, uintptr_t a) {
    struct zr_block *b;
    uintptr_t base, first;

    if (!(slot & 1)) {
        b = occupant(slot, level, at, &base);
        return b && base <= a ? b : NULL;
    }
    first = at >> level_shift[level] << level_shift[level];
    level++;
    for (unsigned i = a == UINTPTR_MAX ? level_fan[level] - 1u : index_of(a, level);; i--) {
        b = last_under(load(&node_of(slot)[i]), level, first + ((uintptr_t)i << level_shift[level]), a);
        if (b || i == 0)
            return b;
        a = UINTPTR_MAX;
    }
}

/* All of one page of a leaf that begins at `from`. */
static struct zr_block *last_in_page(struct leaf *leaf, uintptr_t from, unsigned page) {
    uint64_t slot = __atomic_load_n(slot_of(leaf, page), __ATOMIC_SEQ_CST);

    return last_under(slot, 0, from + ((uintptr_t)page << 16), UINTPTR_MAX);
}

/*
 * Clears the bits of pages in which no base lies any more. A page may be filled at the same time: either its inserter
 * sees the bit cleared, or we see its slot filled, and the bit is set again.
 */
static ZR_COLD void clear_empty(struct leaf *leaf, uintptr_t from) {
    struct bitmap *map = &leaf->pages;

    if (__atomic_exchange_n(&leaf->clearing, 1, __ATOMIC_ACQUIRE))
        return;
    __atomic_fetch_add(&leaf->sequence, 1, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < FAN / 64; i++) {
        uint64_t word_bit = (uint64_t)1 << i % 64;

        for (uint64_t left = load(&map->bits[i]); left; left &= left - 1) {
            unsigned page = i * 64 + (unsigned)__builtin_ctzll(left);
            uint64_t bit = left & -left;

            if (last_in_page(leaf, from, page))
                continue;
            __atomic_fetch_and(&map->bits[i], ~bit, __ATOMIC_SEQ_CST);
            if (last_in_page(leaf, from, page))
                __atomic_fetch_or(&map->bits[i], bit, __ATOMIC_SEQ_CST);
        }
        if (load(&map->bits[i]) || !(load(&map->words[i / 64]) & word_bit))
            continue;
        __atomic_fetch_and(&map->words[i / 64], ~word_bit, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&map->bits[i], __ATOMIC_SEQ_CST))
            __atomic_fetch_or(&map->words[i / 64], word_bit, __ATOMIC_SEQ_CST);
    }
    __atomic_fetch_add(&leaf->sequence, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&leaf->clearing, 0, __ATOMIC_RELEASE);
}

/* The greatest set bit below `end` in an array of words, or -1. */
static int last_bit(const uint64_t *words, int end) {
    for (int i = (end + 63) / 64 - 1; i >= 0; i--) {
        uint64_t w = load(&words[i]);

        if (end - i * 64 < 64)
            w &= ((uint64_t)1 << (end - i * 64)) - 1;
        if (w)
            return i * 64 + 63 - __builtin_clzll(w);
    }
    return -1;
}

/* The greatest set bit below `end`, or -1; looks at 18 words at most. */
static int last_set(const struct bitmap *map, int end) {
    int word = (end + 63) / 64 - 1, bit;

    if (end <= 0)
        return -1;
    bit = last_bit(&map->bits[word], end - word * 64);
    while (bit < 0 && (word = last_bit(map->words, word)) >= 0)
        bit = last_bit(&map->bits[word], 64);
    return bit < 0 ? -1 : word * 64 + bit;
}

/* The block with the greatest base in the pages below `end` of a leaf. Reads the bitmap under the seqlock. */
static struct zr_block *last_in_leaf(struct leaf *leaf, uintptr_t from, int end) {
    for (bool cleared = false;;) {
        uint32_t before = __atomic_load_n(&leaf->sequence, __ATOMIC_SEQ_CST);
        struct zr_block *b = NULL;
        unsigned empty = 0;

        for (int page = last_set(&leaf->pages, end); page >= 0 && !b; page = last_set(&leaf->pages, page)) {
            b = last_in_page(leaf, from, (unsigned)page);
            empty += !b;
        }
        if (empty > TOO_MANY_EMPTY && !cleared) {
            clear_empty(leaf, from);
            cleared = true;
        } else if (before % 2 == 0 && before == __atomic_load_n(&leaf->sequence, __ATOMIC_SEQ_CST)) {
            return b;
        }
        __builtin_ia32_pause();
    }
}

static struct zr_block *nearest_below(uintptr_t a) {
    uintptr_t from = a >> 32 << 32;
    struct root *root = root_of(a);
    int i = (int)(a >> 32 & (FAN - 1));
    struct leaf *leaf = leaf_of(a);
    struct zr_block *b;

    if (!root)
        return NULL;
    if (leaf &&
        ((b = last_under(load(slot_of(leaf, page_of(a))), 0, a, a)) || (b = last_in_leaf(leaf, from, (int)page_of(a)))))
        return b;
    while ((i = last_set(&root->leaves, i)) >= 0) {
        from = (a >> 48 << 48) + ((uintptr_t)i << 32);
        leaf = __atomic_load_n(&root->leaf[i], __ATOMIC_ACQUIRE);
        if (leaf && (b = last_in_leaf(leaf, from, FAN)))
            return b;
    }
    return NULL;
}

struct zr_block *zr_map_around(const void *p, uint64_t *word) {
    uintptr_t a = (uintptr_t)p;
    struct zr_block *b;

    while ((b = nearest_below(a))) {
        uintptr_t base;
        size_t held;

        *word = zr_block_word(b);
        base = __atomic_load_n(&b->base, __ATOMIC_ACQUIRE);
        /* A handle is no range of memory. */
        held = __atomic_load_n(zr_block_flags(b) & ZR_BLOCK_HANDLE ? &b->size : &b->held, __ATOMIC_ACQUIRE);
        if (zr_block_word(b) == *word)
            return zr_word_state(*word) != ZR_BLOCK_NONE && a - base < held ? b : NULL;
    }
    return NULL;
}

struct zr_block *zr_map_find(const void *p) {
    uint64_t word = 0;
    struct zr_block *b = zr_map_base(p);

    if (b)
        return b;
    b = zr_map_around(p, &word);
    if (!b || zr_word_state(word) != ZR_BLOCK_LIVE)
        return NULL;
    return (uintptr_t)p - __atomic_load_n(&b->base, __ATOMIC_RELAXED) < __atomic_load_n(&b->size, __ATOMIC_RELAXED)
               ? b
               : NULL;
}

void zr_map_fork_child(void) {
    for (int i = last_set(&low.leaves, FAN); i >= 0; i = last_set(&low.leaves, i))
        low.leaf[i] = NULL;
    memset(&low.leaves, 0, sizeof low.leaves);
    memset(high, 0, sizeof high);
}
