/* Slabs: a chunk each, cut into objects of one size class. */
#include "cache/quick.h"

#include "base/pages.h"

static void list(struct zr_pool *pool, struct slab *s)
{
    struct slab **first = &pool->partial[s->size_class];

    s->prev = NULL;
    s->next = *first;
    if (*first)
        (*first)->prev = s;
    *first = s;
    s->listed = true;
}

static void unlist(struct zr_pool *pool, struct slab *s)
{
    if (s->prev)
        s->prev->next = s->next;
    else
        pool->partial[s->size_class] = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->listed = false;
}

static void spare(struct zr_pool *pool, struct slab *s)
{
    s->next = pool->spare_slabs;
    pool->spare_slabs = s;
}

static struct slab *new_slab(struct zr_pool *pool, unsigned size_class, int *code)
{
    struct slab *s = pool->spare_slabs;
    struct chunk *c;

    *code = ZR_CACHE_TROUBLE;
    if (s)
        pool->spare_slabs = s->next;
    else if (!(s = zr_piece(sizeof *s)))
        return NULL;
    c = zr_split_take(pool, SLAB, code);
    if (!c || !zr_find_set_all(pool, c)) {
        if (c) {
            *code = ZR_CACHE_TROUBLE; /* a new segment has said 0 */
            zr_split_give(pool, c);
        }
        spare(pool, s);
        return NULL;
    }
    *code = 0;
    s->size = (uint32_t)zr_class_size(size_class);
    s->inverse = (uint32_t)((((uint64_t)1 << 32) + s->size - 1) / s->size);
    s->size_class = size_class;
    s->count = s->total = SLAB / s->size;
    s->chunk = c;
    for (uint32_t i = 0; i < s->total; i++) {
        s->free[i] = (uint16_t)(s->total - 1 - i);
        __atomic_store_n(&s->state[i], 0, __ATOMIC_RELAXED);
    }
    c->slab = s;
    set_where(c, base_of(c), CHUNK_SLAB);
    list(pool, s);
    return s;
}

static void drop(struct zr_pool *pool, struct slab *s)
{
    unlist(pool, s);
    zr_split_give(pool, s->chunk);
    spare(pool, s);
}

bool zr_slab_take(struct zr_pool *pool, unsigned size_class, struct object *o, int *code)
{
    struct slab *s = pool->partial[size_class];
    uint32_t n;

    if (!s && !(s = new_slab(pool, size_class, code)))
        return false;
    n = s->free[--s->count];
    if (s->count == 0)
        unlist(pool, s);
    *o = (struct object){(void *)(base_of(s->chunk) + (uintptr_t)n * s->size), &s->state[n]};
    return true;
}

/* One object, and half a shelf more, as long as slabs with room are there. */
bool zr_slab_fill_shelf(struct zr_pool *pool, struct shelf *shelf, unsigned size_class, int *code)
{
    if (!zr_slab_take(pool, size_class, &shelf->object[0], code))
        return false;
    for (shelf->count = 1; shelf->count < shelf->full / 2 + 1 && pool->partial[size_class]; shelf->count++)
        zr_slab_take(pool, size_class, &shelf->object[shelf->count], code);
    return true;
}

/* One empty slab per class is kept while it is the only one with room. */
void zr_slab_give(struct zr_pool *pool, struct slab *s, const uint16_t *state)
{
    s->free[s->count++] = (uint16_t)(state - s->state);
    if (!s->listed)
        list(pool, s);
    if (s->count == s->total && (s->prev || s->next))
        drop(pool, s);
}

void zr_slab_empty_shelf(struct zr_pool *pool, struct shelf *shelf, uint32_t keep)
{
    while (shelf->count > keep) {
        struct object o = shelf->object[--shelf->count];

        zr_slab_give(pool, zr_find(pool, o.p)->slab, o.state);
    }
}

void zr_slab_drop_empty(struct zr_pool *pool)
{
    for (unsigned i = 0; i < SMALL_CLASSES; i++)
        for (struct slab *s = pool->partial[i], *next; s; s = next) {
            next = s->next;
            if (s->count == s->total)
                drop(pool, s);
        }
}
