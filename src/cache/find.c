/* From an address to its chunk: a table in three steps, and a fourth where blocks lie close together. */
#include "cache/split.h"

#include "cache/pages.h"

/* The node behind a pointer, made if there is none. */
#define FILL(where) \
    (*(where) ? *(where) \
              : (__atomic_store_n((where), zr_pages(sizeof **(where)), __ATOMIC_RELEASE), *(where)))

static uintptr_t *entry_of(struct zr_pool *pool, uintptr_t a)
{
    struct branch *branch = FILL(&pool->stem.at[a >> 44 & (FAN - 1)]);
    struct leaf *leaf = branch ? FILL(&branch->at[a >> 32 & (FAN - 1)]) : NULL;

    return leaf ? &leaf->at[a >> WINDOW_BITS & (FAN - 1)] : NULL;
}

__attribute__((noinline, cold)) struct leaf *zr_find_leaf(struct zr_pool *pool, uintptr_t a)
{
    const struct branch *branch = pool->stem.at[a >> 44 & (FAN - 1)];
    struct leaf *leaf = branch ? branch->at[a >> 32 & (FAN - 1)] : NULL;

    if (leaf)
        pool->near[a >> 32 & (NEAR - 1)] = (struct near){a >> 32, leaf};
    return leaf;
}

void zr_find_set_all(struct zr_pool *pool, struct chunk *c)
{
    uintptr_t base = base_of(c);

    for (uintptr_t a = base; a < base + c->size; a += GRAIN)
        __atomic_store_n(zr_find_place(zr_find_near(pool, a), a), (uintptr_t)c, __ATOMIC_RELEASE);
}

static bool to_grains(uintptr_t *entry)
{
    struct window *w = zr_piece(sizeof *w);
    struct chunk *c = (struct chunk *)*entry;

    if (!w)
        return false;
    if (c)
        w->at[(base_of(c) & (((uintptr_t)1 << WINDOW_BITS) - 1)) / GRAIN] = c;
    __atomic_store_n(entry, (uintptr_t)w + 1, __ATOMIC_RELEASE);
    return true;
}

bool zr_find_reach(struct zr_pool *pool, uintptr_t from, size_t size, bool by_grains)
{
    const uintptr_t step = (uintptr_t)1 << WINDOW_BITS;

    for (uintptr_t a = from & ~(step - 1); a < from + size; a += step) {
        uintptr_t *entry = entry_of(pool, a);

        if (!entry || (by_grains && !(*entry & 1) && !to_grains(entry)))
            return false;
    }
    return true;
}
