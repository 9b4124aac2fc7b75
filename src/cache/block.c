/*
 * Descriptors from slabs that are never unmapped. Each thread keeps a list of spare ones, which is
 * refilled from and spilled to the global list in batches: one lock per BATCH calls.
 */
#include "cache/cache.h"

enum { BATCH = ZR_SPARES / 2, SLABS = 512, FIRST_SLAB = 16 << 10, DOUBLINGS = 9 };

struct slab {
    struct zr_block *blocks;
    size_t used, count; /* used is atomic */
};

static struct {
    struct zr_lock lock;
    struct zr_block *spare;
    unsigned slabs; /* atomic */
    struct slab slab[SLABS];
} all;

static void push(struct zr_block **list, struct zr_block *b) {
    b->below = *list;
    *list = b;
}

static struct zr_block *pop(struct zr_block **list) {
    struct zr_block *b = *list;

    *list = b->below;
    return b;
}

/* The caller holds the lock. Each slab is twice as large as the one before, so small processes stay
 * small. */
static bool add_slab(void) {
    unsigned n = all.slabs;
    size_t bytes = (size_t)FIRST_SLAB << (n < DOUBLINGS ? n : DOUBLINGS);
    struct zr_block *blocks = n < SLABS ? zr_pages(bytes) : NULL;

    if (!blocks)
        return false;
    all.slab[n] = (struct slab){blocks, 0, bytes / sizeof *blocks};
    __atomic_store_n(&all.slabs, n + 1, __ATOMIC_RELEASE);
    return true;
}

/* The caller holds the lock. */
static struct zr_block *take_one(void) {
    struct slab *s = all.slabs ? &all.slab[all.slabs - 1] : NULL;

    if (all.spare)
        return pop(&all.spare);
    if (!s || s->used == s->count) {
        if (!add_slab())
            return NULL;
        s = &all.slab[all.slabs - 1];
    }
    __atomic_store_n(&s->used, s->used + 1, __ATOMIC_RELEASE);
    return &s->blocks[s->used - 1];
}

/* A single one when the thread is ending. */
ZR_COLD void zr_block_refill(void) {
    unsigned count = zr_thread_attend() ? BATCH : 1;
    struct zr_block *b;

    zr_lock(&all.lock);
    while (zr_thread.cache.spares < count) {
        b = take_one();
        if (!b)
            break;
        push(&zr_thread.cache.spare, b);
        zr_thread.cache.spares++;
    }
    zr_unlock(&all.lock);
}

ZR_COLD void zr_block_spill(unsigned keep) {
    zr_lock(&all.lock);
    for (; zr_thread.cache.spares > keep; zr_thread.cache.spares--)
        push(&all.spare, pop(&zr_thread.cache.spare));
    zr_unlock(&all.lock);
}

void zr_block_each(bool (*see)(struct zr_block *b, void *arg), void *arg) {
    unsigned slabs = __atomic_load_n(&all.slabs, __ATOMIC_ACQUIRE);

    for (unsigned i = 0; i < slabs; i++) {
        size_t used = __atomic_load_n(&all.slab[i].used, __ATOMIC_ACQUIRE);

        for (size_t j = 0; j < used; j++) {
            struct zr_block *b = &all.slab[i].blocks[j];

            if (zr_word_state(zr_block_word(b)) != ZR_BLOCK_NONE && !see(b, arg))
                return;
        }
    }
}

void zr_cache_thread_end(void) {
    zr_block_spill(0);
}

/* The parent's descriptors are left alone: the lists may be half changed, and its blocks are not
 * the child's. */
void zr_block_fork_child(void) {
    all.slabs = 0;
    all.spare = NULL;
    zr_thread.cache.spare = NULL;
    zr_thread.cache.spares = 0;
}
