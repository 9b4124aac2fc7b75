/*
 * A program that does the same again finds the same places, and calls the driver for none of them.
 *
 * Best fit alone does not give that: with all segments at hand from the start it places blocks otherwise
 * than it did while they were asked for one by one, and now and then needs one more. So when nothing lives
 * any more, all segments are put aside, and each is taken up again in the place where it was new: as many
 * calls after the beginning, for the same size. That is right for a program that repeats itself and for no
 * other: the first sizes that are asked for are compared with those of the first time, and at the first one
 * that differs, all that was put aside comes back into use, as if nothing had happened.
 *
 * A program may begin as ever and then do something else. It departs where nothing fits and no segment was new
 * in that place: then all there is comes into use. How many segments there were is noted; if the program
 * departs in the same place again, it gets those, and what was new later waits for its own place.
 */
#include "cache/split.h"

/* They change names, after the few of `to` were moved over; most often there are none. */
static void join(struct zr_pool *pool, uint8_t *from, uint8_t *to)
{
    uint8_t was = *to;

    if (pool->members[*to] > pool->members[*from]) {
        zr_split_move(pool, *from, *to, UINT64_MAX);
        return;
    }
    zr_split_move(pool, *to, *from, UINT64_MAX);
    *to = *from;
    *from = was;
    zr_split_use(pool, pool->in_use);
}

/* --- places ---------------------------------------------------------------------------------------------- */

static uint64_t mixed(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ b) * 0x9e3779b97f4a7c15u;

    return h ^ h >> 32;
}

static uint64_t place(const struct zr_pool *pool, uint32_t calls, size_t size)
{
    return mixed(mixed(mixed(pool->path, pool->crossed), calls), size) | 1;
}

uint64_t zr_again_place(const struct zr_pool *pool, size_t size)
{
    return place(pool, pool->calls - pool->since, size);
}

void zr_again_enlist(struct zr_pool *pool, struct segment *s, uint64_t at)
{
    struct segment **first = &pool->by_place[at / 2 % PLACES];

    s->born = pool->born++;
    s->place = at;
    s->same = *first;
    *first = s;
}

void zr_again_delist(struct zr_pool *pool, const struct segment *s)
{
    struct segment **link = &pool->by_place[s->place / 2 % PLACES];

    while (*link != s)
        link = &(*link)->same;
    *link = s->same;
}

struct segment *zr_again_find(const struct zr_pool *pool, uint64_t at, unsigned set)
{
    struct segment *s = pool->by_place[at / 2 % PLACES];

    while (s && (s->place != at || s->set != set))
        s = s->same;
    return s;
}

/* How many segments there were when the program first departed here: now, if it never did; 0: too many are known. */
static uint64_t there_then(struct zr_pool *pool, uint64_t at)
{
    struct departure *d;

    for (size_t i = at / 2; (d = &pool->departure[i % DEPARTURES])->at; i++)
        if (d->at == at)
            return d->born;
    if (pool->departures == DEPARTURES / 2)
        return 0;
    pool->departures++;
    *d = (struct departure){at, pool->born};
    return pool->born;
}

static void take_up(struct zr_pool *pool, uint64_t born)
{
    if (born >= pool->born)
        join(pool, &pool->later, &pool->in_use);
    else
        zr_split_move(pool, pool->later, pool->in_use, born);
}

void zr_again_depart(struct zr_pool *pool, uint64_t at)
{
    uint64_t born = there_then(pool, at);

    pool->path = at;
    take_up(pool, born ? born : UINT64_MAX);
}

/* --- from nothing ---------------------------------------------------------------------------------------- */

void zr_again_go_on(struct zr_pool *pool, size_t size)
{
    struct record *r = &pool->record;

    if (r->undecided) {
        join(pool, &pool->aside, &pool->in_use);
        pool->path = r->path;
        pool->crossed += r->crossed;
        take_up(pool, there_then(pool, zr_again_place(pool, size)));
    }
    r->undecided = false;
    pool->noting = r->count < RECORD;
}

void zr_again_cross(struct zr_pool *pool, size_t size)
{
    struct record *r = &pool->record;
    size_t seen = size | FROM_NOTHING;

    r->next = FROM_NOTHING;
    if (r->count == 0) {
        pool->crossed = 0;
        return;
    }
    if (r->undecided && ((r->met < r->count && r->size[r->met] == seen) || r->size[0] != seen))
        return;
    join(pool, &pool->in_use, &pool->aside);
    if (!r->undecided) {
        r->path = pool->path;
        r->crossed = 0;
    }
    r->crossed += pool->crossed;
    pool->path = pool->crossed = 0;
    r->undecided = pool->noting = true;
    r->met = 0;
}

void zr_again_note(struct zr_pool *pool, size_t size)
{
    struct record *r = &pool->record;
    size_t seen = size | r->next;

    r->next = 0;
    if (r->undecided && (r->met == r->count || r->size[r->met] != seen))
        zr_again_go_on(pool, size);
    if (r->count < RECORD)
        r->size[r->count++] = seen;
    if (r->undecided && ++r->met == RECORD) {
        r->undecided = false;
        join(pool, &pool->aside, &pool->later);
    }
    pool->noting = r->undecided || r->count < RECORD;
}

void zr_again_root(struct zr_pool *pool)
{
    struct segment *root = pool->root_segment;
    size_t size = pool->root_size;

    zr_again_cross(pool, size);
    zr_again_note(pool, size);
    if (root->set == pool->in_use)
        return;
    if (pool->record.undecided && root->place != place(pool, 1, size))
        zr_again_go_on(pool, size);
    else
        zr_split_adopt(pool, root, pool->in_use);
}

void zr_again_end(struct zr_pool *pool)
{
    join(pool, &pool->aside, &pool->in_use);
    join(pool, &pool->later, &pool->in_use);
    pool->record.undecided = false;
}
