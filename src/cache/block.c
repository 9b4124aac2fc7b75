#include "cache/block.h"

#include "base/lock.h"
#include "base/pages.h"
#include "cache/thread.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum { BATCH = 64, SLABS = 512, FIRST_SLAB = 64 << 10, LARGEST_SLAB = 8 << 20 };

struct list {
    struct zr_block *head;
    unsigned count;
};

struct slab {
    struct zr_block *blocks;
    size_t used, count;
};

static _Thread_local struct list mine;

static struct {
    struct zr_lock lock;
    struct list free;
    unsigned slabs;
    struct slab slab[SLABS];
} all;

static struct zr_block *pop(struct list *list)
{
    struct zr_block *b = list->head;

    list->head = b->link;
    list->count--;
    return b;
}

static void push(struct list *list, struct zr_block *b)
{
    __atomic_store_n(&b->link, list->head, __ATOMIC_RELAXED);
    list->head = b;
    list->count++;
}

static struct zr_block *blank(struct zr_block *b)
{
    __atomic_store_n(&b->context, NULL, __ATOMIC_RELAXED); /* may be looked at by zr_block_each */
    b->peers = 0;
    __atomic_store_n(&b->flags, 0, __ATOMIC_RELAXED);
    b->device = 0;
    b->kind = 0;
    return b;
}

/* With the lock held. Each slab is twice the one before: few slabs, and small processes stay small. */
static bool add_slab(void)
{
    size_t bytes = FIRST_SLAB;
    struct zr_block *blocks;
    unsigned n = all.slabs;

    if (n == SLABS)
        return false;
    for (unsigned i = 0; i < n && bytes < LARGEST_SLAB; i++)
        bytes *= 2;
    blocks = zr_pages(bytes);
    if (!blocks)
        return false;
    all.slab[n] = (struct slab){blocks, 0, bytes / sizeof *blocks};
    __atomic_store_n(&all.slabs, n + 1, __ATOMIC_RELEASE);
    return true;
}

/* With the lock held: a recycled descriptor, else the next of the newest slab (in address order). */
static struct zr_block *take_one(void)
{
    struct slab *s = all.slabs ? &all.slab[all.slabs - 1] : NULL;

    if (all.free.head)
        return pop(&all.free);
    if (!s || s->used == s->count) {
        if (!add_slab())
            return NULL;
        s = &all.slab[all.slabs - 1];
    }
    return &s->blocks[__atomic_fetch_add(&s->used, 1, __ATOMIC_RELAXED)];
}

static __attribute__((noinline, cold)) struct zr_block *refill(void)
{
    struct zr_block *b, *batch[BATCH];
    unsigned n = 0;

    if (!zr_thread_enter()) {
        zr_lock(&all.lock);
        b = take_one();
        zr_unlock(&all.lock);
        return b ? blank(b) : NULL;
    }
    zr_lock(&all.lock);
    while (n < BATCH && (batch[n] = take_one()))
        n++;
    zr_unlock(&all.lock);
    if (n == 0)
        return NULL;
    while (n > 1)
        push(&mine, batch[--n]);
    return blank(batch[0]);
}

static __attribute__((noinline, cold)) void flush(unsigned keep)
{
    zr_lock(&all.lock);
    while (mine.count > keep)
        push(&all.free, pop(&mine));
    zr_unlock(&all.lock);
}

struct zr_block *zr_block_new(void)
{
    if (likely(mine.head))
        return blank(pop(&mine));
    return refill();
}

void zr_block_recycle(struct zr_block *b)
{
    /* The next generation: whoever still knows this descriptor under the old one finds it stale. */
    __atomic_store_n(&b->word, (uint64_t)(zr_word_generation(zr_block_word(b)) + 1) << 32, __ATOMIC_RELEASE);
    if (unlikely(!zr_thread_enter())) {
        zr_lock(&all.lock);
        push(&all.free, b);
        zr_unlock(&all.lock);
        return;
    }
    push(&mine, b);
    if (unlikely(mine.count > 2 * BATCH))
        flush(BATCH);
}

void zr_block_each(bool (*see)(struct zr_block *b, void *arg), void *arg)
{
    unsigned slabs = __atomic_load_n(&all.slabs, __ATOMIC_ACQUIRE);

    for (unsigned i = 0; i < slabs; i++) {
        size_t used = __atomic_load_n(&all.slab[i].used, __ATOMIC_RELAXED);

        for (size_t j = 0; j < used; j++) {
            struct zr_block *b = &all.slab[i].blocks[j];

            if (zr_word_state(zr_block_word(b)) != ZR_BLOCK_NONE && !see(b, arg))
                return;
        }
    }
}

void zr_block_thread_exit(void)
{
    flush(0);
}

/* The parent's descriptors are left alone: nothing in the child refers to them any more. */
void zr_block_fork_child(void)
{
    all.lock.word = 0;
    all.slabs = 0;
    all.free = (struct list){0};
    mine = (struct list){0};
}
