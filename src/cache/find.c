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

static struct chunk **grain_of(uintptr_t entry, uintptr_t a)
{
    struct window *w = (struct window *)(entry - 1);

    return &w->at[(a & (((uintptr_t)1 << WINDOW_BITS) - 1)) / GRAIN];
}

bool zr_find_set_all(struct zr_pool *pool, struct chunk *c, uintptr_t from, size_t size)
{
    for (uintptr_t a = from; a < from + size; a += GRAIN) {
        uintptr_t *entry = entry_of(pool, a);

        if (unlikely(!entry))
            return false;
        if (*entry & 1)
            __atomic_store_n(grain_of(*entry, a), c, __ATOMIC_RELEASE);
        else
            __atomic_store_n(entry, (uintptr_t)c, __ATOMIC_RELEASE);
    }
    return true;
}

bool zr_find_by_grains(struct zr_pool *pool, uintptr_t from, size_t size)
{
    const uintptr_t step = (uintptr_t)1 << WINDOW_BITS;

    for (uintptr_t a = from & ~(step - 1); a < from + size; a += step) {
        uintptr_t *entry = entry_of(pool, a);
        struct window *w;

        if (entry && *entry & 1)
            continue;
        w = entry ? zr_piece(sizeof *w) : NULL;
        if (!w)
            return false;
        if (*entry) {
            struct chunk *c = (struct chunk *)*entry;

            *grain_of((uintptr_t)w + 1, base_of(c)) = c;
        }
        __atomic_store_n(entry, (uintptr_t)w + 1, __ATOMIC_RELEASE);
    }
    return true;
}
