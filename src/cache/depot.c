/* Keys and their depots: what all threads share. A thread comes here once for a run of blocks. */
#include "cache/heap.h"

#include "cache/pages.h"

#include <string.h>

static struct key *look_up(struct zr_cache *c, const struct zr_key *key)
{
    unsigned n = __atomic_load_n(&c->keys, __ATOMIC_ACQUIRE);

    for (unsigned i = 0; i < n; i++) {
        struct key *k = __atomic_load_n(&c->key[i], __ATOMIC_ACQUIRE);

        if (__atomic_load_n(&k->used, __ATOMIC_ACQUIRE) && memcmp(&k->key, key, sizeof *key) == 0)
            return k;
    }
    return NULL;
}

/* A key that nobody uses any more gives its place to the new one; otherwise the list grows. */
static struct key *add(struct zr_cache *c, const struct zr_key *key)
{
    struct key *k;
    unsigned i;

    for (i = 0; i < c->keys && c->key[i]->used; i++)
        ;
    if (i == ZR_KEYS_MAX)
        return NULL;
    k = c->key[i];
    if (!k) {
        k = zr_piece(sizeof *k);
        if (!k)
            return NULL;
        k->id = (uint16_t)i;
        __atomic_store_n(&c->key[i], k, __ATOMIC_RELEASE);
    }
    k->key = *key;
    __atomic_store_n(&k->used, true, __ATOMIC_RELEASE);
    if (i == c->keys)
        __atomic_store_n(&c->keys, i + 1, __ATOMIC_RELEASE);
    return k;
}

struct key *zr_key_find(struct zr_cache *c, const struct zr_key *key)
{
    struct key *k = look_up(c, key);

    if (likely(k) || key->account >= ZR_ACCOUNTS)
        return k;
    zr_lock(&c->lock);
    k = look_up(c, key);
    if (!k)
        k = add(c, key);
    zr_unlock(&c->lock);
    return k;
}

void zr_depot_put(struct key *k, unsigned size_class, struct zr_block *run, unsigned length)
{
    run->run_length = (uint8_t)length;
    zr_lock(&k->lock);
    run->run = k->runs[size_class];
    __atomic_store_n(&k->runs[size_class], run, __ATOMIC_RELAXED);
    zr_unlock(&k->lock);
}

struct zr_block *zr_depot_get(struct key *k, unsigned size_class)
{
    struct zr_block *run;

    if (!__atomic_load_n(&k->runs[size_class], __ATOMIC_RELAXED))
        return NULL;
    zr_lock(&k->lock);
    run = k->runs[size_class];
    if (run)
        __atomic_store_n(&k->runs[size_class], run->run, __ATOMIC_RELAXED);
    zr_unlock(&k->lock);
    return run;
}
