/* Magazines when they are empty or full, and the account that says how much may be in them. */
#include "cache/heap.h"

#include "base/pages.h"

bool zr_grant(struct zr_cache *c, unsigned account, uint64_t bytes)
{
    struct account *a = &c->account[account];
    uint64_t limit = __atomic_load_n(&a->limit, __ATOMIC_RELAXED);
    uint64_t granted = __atomic_load_n(&a->granted, __ATOMIC_RELAXED);

    do {
        if (granted > limit || bytes > limit - granted)
            return false;
    } while (!__atomic_compare_exchange_n(&a->granted, &granted, granted + bytes, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return true;
}

void zr_ungrant(struct zr_cache *c, unsigned account, uint64_t bytes)
{
    if (bytes)
        __atomic_fetch_sub(&c->account[account].granted, bytes, __ATOMIC_RELAXED);
}

/* Memory for as many blocks as any magazine holds: its number may come to another bin. */
static bool furnish(struct magazine *m)
{
    if (!m->next) {
        uintptr_t piece = (uintptr_t)zr_piece(2 * STACK - 64);

        m->next = (struct zr_block **)((piece + STACK - 1) & ~(uintptr_t)(STACK - 1));
    }
    return m->next;
}

unsigned zr_magazine_list(const struct magazine *m, struct zr_block **list)
{
    unsigned count = magazine_count(m), n = count;

    if (n && m->top != NO_TOP)
        list[--n] = m->top;
    for (struct zr_block *const *at = m->next; n; at++)
        list[--n] = *at;
    return count;
}

void zr_magazine_fill(struct magazine *m, struct zr_block *const *list, unsigned count, unsigned room)
{
    struct zr_block **stack = (struct zr_block **)((uintptr_t)m->next & ~(uintptr_t)(STACK - 1));

    m->room = room;
    if (!room) {
        m->top = NULL;
        return;
    }
    m->next = stack + room - 1;
    *m->next = NULL;
    for (unsigned i = 0; i + 1 < count; i++)
        *--m->next = list[i];
    m->top = count ? list[count - 1] : NO_TOP;
}

/* All the room that the magazine can use, so that a thread asks rarely; near the limit only what is needed. */
bool zr_magazine_widen(struct heap *h, struct bin *bin)
{
    struct zr_cache *c = h->cache;
    struct magazine *m = &h->of[bin->id];
    struct zr_block *list[LARGEST_MAGAZINE];
    unsigned account = bin->key->key.account, count, room = m->room, gone = 0, more;
    uint64_t portion = __atomic_load_n(&c->account[account].limit, __ATOMIC_RELAXED) / 16;

    if (!furnish(m))
        return false;
    count = zr_magazine_list(m, list);
    if (room == 2 * bin->run) {
        if (!zr_depot_put(bin, list, bin->run))
            return false;
        gone = bin->run;
        h->moved -= gone;
        room -= gone;
    }
    more = 2 * bin->run - room;
    if ((more * bin->held > portion || !zr_grant(c, account, more * bin->held)))
        more = zr_grant(c, account, bin->held);
    zr_magazine_fill(m, list + gone, count - gone, room + more);
    return more;
}

struct zr_block *zr_magazine_take(struct heap *h, struct bin *bin)
{
    struct magazine *m = &h->of[bin->id];
    struct zr_block *list[LONGEST_RUN], *b;
    unsigned n, room, most = 2 * bin->run;

    if ((b = magazine_pop(m)))
        return b;
    n = furnish(m) ? zr_depot_get(bin, list) : 0;
    if (!n)
        return NULL;
    for (unsigned i = 0; i < n; i++)
        __atomic_store_n(&list[i]->word,
                         (uint64_t)zr_word_generation(list[i]->word) << 32 | (uint64_t)h->id << 8 |
                             ZR_BLOCK_CACHED,
                         __ATOMIC_RELAXED);
    room = m->room + n;
    if (room > most) {
        zr_ungrant(h->cache, bin->key->key.account, (room - most) * bin->held);
        room = most;
    }
    h->moved += n;
    zr_magazine_fill(m, list, n, room);
    return magazine_pop(m);
}
