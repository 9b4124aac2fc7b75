/* Magazines when they are empty or full, and the account that says how much may be in them. */
#include "cache/heap.h"

#include "cache/pages.h"

#include <string.h>

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

/* Memory for as many blocks as any magazine holds, and one place in front: a number may come to another bin. */
static bool furnish(struct magazine *m)
{
    if (!m->at) {
        struct zr_block **at = zr_piece((LARGEST_MAGAZINE + 8) * sizeof *at);

        m->at = at ? at + 8 : NULL;
    }
    return m->at;
}

struct zr_block **zr_magazine_open(struct magazine *m)
{
    if (m->count)
        m->at[m->count - 1] = m->top;
    return m->at;
}

void zr_magazine_close(struct magazine *m, unsigned count)
{
    m->count = count;
    m->top = count ? m->at[count - 1] : NULL;
}

/* All the room that the magazine can use, so that a thread asks rarely; near the limit only what is needed. */
bool zr_magazine_widen(struct heap *h, struct bin *bin)
{
    struct zr_cache *c = h->cache;
    struct magazine *m = &h->of[bin->id];
    unsigned account = bin->key->key.account, more;
    uint64_t portion = __atomic_load_n(&c->account[account].limit, __ATOMIC_RELAXED) / 16;

    if (!furnish(m))
        return false;
    if (m->room == 2 * bin->run && m->count == m->room) {
        struct zr_block **at = zr_magazine_open(m);

        if (!zr_depot_put(bin, at, bin->run))
            return false;
        memmove(at, at + bin->run, bin->run * sizeof *at);
        zr_magazine_close(m, m->count - bin->run);
        m->room -= bin->run;
    }
    more = 2 * bin->run - m->room;
    if (more * bin->held > portion || !zr_grant(c, account, more * bin->held)) {
        more = 1;
        if (!zr_grant(c, account, bin->held))
            return false;
    }
    m->room += more;
    return true;
}

struct zr_block *zr_magazine_take(struct heap *h, struct bin *bin)
{
    struct magazine *m = &h->of[bin->id];
    unsigned n, most = 2 * bin->run;

    if (m->count)
        return magazine_pop(m);
    n = furnish(m) ? zr_depot_get(bin, m->at) : 0;
    if (!n)
        return NULL;
    zr_magazine_close(m, n);
    m->room += n;
    if (m->room > most) {
        zr_ungrant(h->cache, bin->key->key.account, (m->room - most) * bin->held);
        m->room = most;
    }
    for (unsigned i = 0; i < n; i++) {
        uint64_t word = m->at[i]->word;

        __atomic_store_n(&m->at[i]->word,
                         (uint64_t)zr_word_generation(word) << 32 | (uint64_t)h->id << 8 | ZR_BLOCK_CACHED,
                         __ATOMIC_RELAXED);
    }
    return magazine_pop(m);
}
