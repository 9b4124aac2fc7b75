/*
 * A program that does the same again finds the same places, and calls the driver for none of them.
 *
 * Best fit alone does not give that: with all segments at hand from the start it places blocks otherwise
 * than it did while they were asked for one by one, and now and then needs one more. So when nothing lives
 * any more, all segments are put aside, and each is taken up again when one of just its size would have
 * been asked of the driver. That is right for a program that repeats itself and for no other: the first
 * sizes that are asked for are compared with those of the last time, and at the first one that differs, all
 * there is comes back into use, as if nothing had been put aside.
 */
#include "cache/split.h"

/* They change names, after the few of `to` were moved over; most often there are none. */
static void join(struct zr_pool *pool, uint8_t *from, uint8_t *to)
{
    uint8_t was = *to;

    if (pool->members[*to] > pool->members[*from]) {
        zr_split_move(pool, *from, *to);
        return;
    }
    zr_split_move(pool, *to, *from);
    *to = *from;
    *from = was;
    zr_split_use(pool, pool->in_use);
}

void zr_again_go_on(struct zr_pool *pool)
{
    if (pool->record.undecided)
        join(pool, &pool->aside, &pool->in_use);
    pool->record.undecided = false;
    pool->noting = pool->record.count < RECORD;
}

void zr_again_cross(struct zr_pool *pool, size_t size)
{
    struct record *r = &pool->record;

    if (r->count == 0)
        return;
    if (r->undecided && ((r->met < r->count && r->size[r->met] == size) || r->size[0] != size))
        return;
    join(pool, &pool->in_use, &pool->aside);
    r->undecided = pool->noting = true;
    r->met = 0;
}

void zr_again_note(struct zr_pool *pool, size_t size)
{
    struct record *r = &pool->record;

    if (r->undecided && (r->met == r->count || r->size[r->met] != size))
        zr_again_go_on(pool);
    if (r->count < RECORD)
        r->size[r->count++] = size;
    if (r->undecided && ++r->met == RECORD) {
        r->undecided = false;
        join(pool, &pool->aside, &pool->later);
    }
    pool->noting = r->undecided || r->count < RECORD;
}
