/* From an address to its chunk: a table in three steps, and one or two more where blocks lie close together. */
#include "cache/split.h"

#include "base/pages.h"

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

static uintptr_t *grain_of(struct pane *pane, uintptr_t a)
{
    return &pane->at[a / GRAIN & (PANE_GRAINS - 1)];
}

/* The grains of this pane, with the chunk that had it for itself; NULL: no memory. */
static struct pane *pane_of(struct window *window, uintptr_t a)
{
    uintptr_t *at = &window->at[a >> PANE_BITS & (PANES - 1)];
    struct pane *pane = (struct pane *)(*at - 1);

    if (*at & 1)
        return pane;
    pane = zr_piece(sizeof *pane);
    if (!pane)
        return NULL;
    if (*at)
        *grain_of(pane, base_of((struct chunk *)*at)) = *at;
    __atomic_store_n(at, (uintptr_t)pane + 1, __ATOMIC_RELEASE);
    return pane;
}

__attribute__((noinline)) bool zr_find_set_by_grains(struct window *window, struct chunk *c, uintptr_t a)
{
    struct pane *pane = pane_of(window, a);

    if (pane)
        __atomic_store_n(grain_of(pane, a), (uintptr_t)c, __ATOMIC_RELEASE);
    return pane != NULL;
}

/* Slabs lie in segments of the small group: there are windows. */
bool zr_find_set_all(struct zr_pool *pool, struct chunk *c)
{
    uintptr_t base = base_of(c);

    for (uintptr_t a = base; a < base + c->size; a += GRAIN) {
        uintptr_t entry = zr_find_near(pool, a)->at[a >> WINDOW_BITS & (FAN - 1)];

        if (!zr_find_set_by_grains((struct window *)(entry - 1), c, a))
            return false;
    }
    return true;
}

static bool to_panes(uintptr_t *entry)
{
    struct window *w = zr_piece(sizeof *w);

    if (!w)
        return false;
    if (*entry)
        w->at[base_of((struct chunk *)*entry) >> PANE_BITS & (PANES - 1)] = *entry;
    __atomic_store_n(entry, (uintptr_t)w + 1, __ATOMIC_RELEASE);
    return true;
}

bool zr_find_reach(struct zr_pool *pool, uintptr_t from, size_t size, bool by_panes)
{
    const uintptr_t step = (uintptr_t)1 << WINDOW_BITS;

    for (uintptr_t a = from & ~(step - 1); a < from + size; a += step) {
        uintptr_t *entry = entry_of(pool, a);

        if (!entry || (by_panes && !(*entry & 1) && !to_panes(entry)))
            return false;
    }
    return true;
}
