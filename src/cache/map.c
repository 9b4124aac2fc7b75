/*
 * A critnib: a radix tree of 16-way nodes over the bits of the address, with a node only where two
 * bases part (path compression), as UMF's own tracker has it. Its size depends on the number of
 * descriptors, not on the addresses that were ever used: a node is given back when a single child
 * is left in it.
 *
 * Writers hold the lock. Readers hold none: nodes are type-stable, so a reader may pass through one
 * that has been given back, which still leads where it did. Only when it is reused may a reader go
 * astray and find nothing, or not the nearest block; every reuse is counted, and a reader that
 * found nothing tries again if the count has changed.
 *
 * A block that leaves (LEAVING, then NONE) stays in the tree until its descriptor is placed
 * elsewhere, or until a block that covers its base is inserted. So a double free can be told from a
 * free of an unknown pointer, and an allocation at the same address changes nothing in the tree.
 * Blocks in the map do not overlap: the nearest base at or below an address is that of the block
 * around it, if there is one.
 */
#include "cache/cache.h"

enum { BITS = 4, FAN = 1 << BITS, NODES_AT_ONCE = 32 };

/* The addresses that it covers are equal above bit shift + BITS; the next BITS below that tell its
 * children apart. */
struct node {
    uintptr_t first; /* of these addresses */
    unsigned shift;
    uintptr_t child[FAN]; /* NULL, a block, or a node + 1 */
    struct node *next;    /* spare; all else stays as it was */
};

static struct zr_lock map_lock;
static uint32_t uses;  /* atomic: how often a node was taken from `spare` */
static uintptr_t root; /* atomic, as a child of a node, and like those */
static struct node *spare_nodes;

static uintptr_t map_load(const uintptr_t *at) {
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

/* A release: a reader of this value sees the count of uses before it. */
static void map_store(uintptr_t *at, uintptr_t value) {
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}

static struct node *node_of(uintptr_t child) {
    return (struct node *)(child - 1);
}

static unsigned shift_of(const struct node *n) {
    return __atomic_load_n(&n->shift, __ATOMIC_ACQUIRE);
}

static uintptr_t base_of(const struct zr_block *b) {
    return __atomic_load_n(&b->base, __ATOMIC_ACQUIRE);
}

static unsigned index_of(uintptr_t a, unsigned shift) {
    return a >> shift & (FAN - 1);
}

/* --- lookups ---------------------------------------------------------------------------------- */

/* Two loads per node: whether the path was the right one shows at its end. */
struct zr_block *zr_map_look(const void *p, uint64_t *word) {
    uintptr_t a = (uintptr_t)p;

    for (;;) {
        uint32_t before = __atomic_load_n(&uses, __ATOMIC_ACQUIRE);
        uintptr_t at = map_load(&root);
        struct zr_block *b;

        while (at & 1)
            at = map_load(&node_of(at)->child[index_of(a, shift_of(node_of(at)))]);
        b = (struct zr_block *)at;
        if (likely(b)) {
            /* The word first: a base read after it belongs to this generation or to a later one. */
            *word = zr_block_word(b);
            if (likely(base_of(b) == a))
                return b;
        }
        if (likely(__atomic_load_n(&uses, __ATOMIC_ACQUIRE) == before))
            return NULL;
    }
}

struct zr_block *zr_map_base(const void *p) {
    uint64_t word;
    struct zr_block *b = zr_map_look(p, &word);

    return b && zr_word_state(word) == ZR_BLOCK_LIVE ? b : NULL;
}

struct zr_block *zr_map_take(const void *p) {
    uint64_t word;
    struct zr_block *b = zr_map_look(p, &word);

    return b && zr_word_state(word) == ZR_BLOCK_LIVE && zr_block_shift(b, word, ZR_BLOCK_FREEING)
               ? b
               : NULL;
}

/* The block with the greatest base up to `a` under this child of a node with that shift. */
static struct zr_block *nearest(uintptr_t child, unsigned above, uintptr_t a) {
    struct zr_block *b = (struct zr_block *)child;
    uintptr_t first;
    unsigned shift;

    if (!(child & 1))
        return b && base_of(b) <= a ? b : NULL;
    first = map_load(&node_of(child)->first);
    shift = shift_of(node_of(child));
    if (first > a || shift >= above) /* the latter only if a node is being reused */
        return NULL;
    b = NULL;
    for (int i = (a ^ first) >> shift < FAN ? (int)index_of(a, shift) : FAN - 1; i >= 0 && !b; i--)
        b = nearest(map_load(&node_of(child)->child[i]), shift, a);
    return b;
}

struct zr_block *zr_map_around(const void *p, uint64_t *word) {
    uintptr_t a = (uintptr_t)p;

    for (;;) {
        uint32_t before = __atomic_load_n(&uses, __ATOMIC_ACQUIRE);
        struct zr_block *b = nearest(map_load(&root), 64, a);
        bool same = true;

        if (b) {
            uintptr_t base;
            size_t held;

            *word = zr_block_word(b);
            base = base_of(b);
            held = __atomic_load_n(&b->held, __ATOMIC_ACQUIRE);
            same = zr_block_word(b) == *word;
            if (same && zr_word_state(*word) != ZR_BLOCK_NONE && a - base < held)
                return b;
        }
        if (likely(same && __atomic_load_n(&uses, __ATOMIC_ACQUIRE) == before))
            return NULL;
    }
}

struct zr_block *zr_map_find(const void *p) {
    uint64_t word = 0;
    struct zr_block *b = zr_map_base(p);

    if (b)
        return b;
    b = zr_map_around(p, &word);
    if (!b || zr_word_state(word) != ZR_BLOCK_LIVE)
        return NULL;
    return (uintptr_t)p - base_of(b) < __atomic_load_n(&b->size, __ATOMIC_RELAXED) ? b : NULL;
}

/* --- changes; the caller holds the lock ------------------------------------------------------- */

static void drop_node(struct node *n) {
    n->next = spare_nodes;
    spare_nodes = n;
}

static struct node *new_node(void) {
    struct node *n = spare_nodes;

    if (unlikely(!n)) {
        n = zr_piece(NODES_AT_ONCE * sizeof *n);
        for (unsigned i = 0; n && i < NODES_AT_ONCE; i++)
            drop_node(&n[i]);
        n = spare_nodes;
    }
    if (likely(n)) {
        spare_nodes = n->next;
        __atomic_fetch_add(&uses, 1, __ATOMIC_RELEASE); /* before anything in it changes */
    }
    return n;
}

/* The slot for the block with this base; *above is the slot of the node that holds it, or NULL. */
static uintptr_t *slot_of(uintptr_t a, uintptr_t **above) {
    uintptr_t *at = &root;

    *above = NULL;
    while (*at & 1 && (a ^ node_of(*at)->first) >> node_of(*at)->shift < FAN) {
        *above = at;
        at = &node_of(*at)->child[index_of(a, node_of(*at)->shift)];
    }
    return at;
}

/* Takes a block out, if it is where its base says. A node of one child is replaced by that child.
 */
static void map_take_out(const struct zr_block *b) {
    uintptr_t *above, *at = slot_of(base_of(b), &above), last = 0;
    unsigned left = 0;
    struct node *n;

    if (*at != (uintptr_t)b)
        return;
    map_store(at, 0);
    if (!above)
        return;
    n = node_of(*above);
    for (unsigned i = 0; i < FAN; i++)
        if (n->child[i]) {
            last = n->child[i];
            left++;
        }
    if (left == 1) {
        map_store(above, last);
        drop_node(n);
    }
}

/* Puts a node at this place, with what is there and the block as its children. False when mmap
 * fails. */
static bool part(uintptr_t *at, uintptr_t other, struct zr_block *b) {
    uintptr_t base = base_of(b);
    unsigned shift = (63 - (unsigned)__builtin_clzll(other ^ base)) / BITS * BITS;
    struct node *n = new_node();

    if (unlikely(!n))
        return false;
    map_store(&n->first, base >> shift >> BITS << BITS << shift);
    __atomic_store_n(&n->shift, shift, __ATOMIC_RELEASE);
    for (unsigned i = 0; i < FAN; i++) {
        uintptr_t child = 0;

        if (i == index_of(other, shift))
            child = *at;
        else if (i == index_of(base, shift))
            child = (uintptr_t)b;
        map_store(&n->child[i], child);
    }
    map_store(at, (uintptr_t)n + 1);
    return true;
}

/* Its memory is, or will be at once, the driver's again. */
static bool may_go(const struct zr_block *b) {
    enum zr_block_state state = zr_word_state(zr_block_word(b));

    return state != ZR_BLOCK_LIVE && state != ZR_BLOCK_CACHED;
}

static bool put_in(struct zr_block *b) {
    uintptr_t base = base_of(b), *above, *at = slot_of(base, &above);
    struct zr_block *other = (struct zr_block *)*at;

    if (*at & 1)
        return part(at, node_of(*at)->first, b);
    if (other && base_of(other) != base)
        return part(at, base_of(other), b);
    if (other && other != b && !may_go(other))
        return false;
    map_store(at, (uintptr_t)b);
    return true;
}

/* Takes out what the map remembers of blocks that began within this one. */
static void take_out_covered(const struct zr_block *b) {
    uintptr_t last = b->base + b->held - (b->held != 0);
    struct zr_block *inside = nearest(root, 64, last);

    while (inside != b && inside && may_go(inside)) {
        map_take_out(inside);
        inside = nearest(root, 64, last);
    }
}

bool zr_map_insert(struct zr_block *b) {
    uint64_t life = ((zr_block_word(b) >> 32) + 1) << 32;
    bool done;

    zr_lock(&map_lock);
    __atomic_store_n(&b->word, life | ZR_BLOCK_LIVE, __ATOMIC_RELEASE);
    done = put_in(b);
    if (likely(done))
        take_out_covered(b);
    else
        __atomic_store_n(&b->word, life | ZR_BLOCK_NONE, __ATOMIC_RELEASE);
    zr_unlock(&map_lock);
    return done;
}

ZR_COLD void zr_map_forget(const struct zr_block *b) {
    zr_lock(&map_lock);
    map_take_out(b);
    zr_unlock(&map_lock);
}

/* The parent's nodes are left alone: they may be half changed. */
void zr_map_fork_child(void) {
    root = 0;
    spare_nodes = NULL;
}
