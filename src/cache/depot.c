/* Keys, bins and their depots: what all threads share. A thread comes here once for a run of blocks. */
#include "cache/heap.h"

#include "base/pages.h"

/* Without a lock: a place may be given to another key meanwhile, and a mixture of the two matches nothing. */
static bool is_key(const struct key *k, const struct zr_key *key)
{
    const uint64_t *a = (const void *)&k->key, *b = (const void *)key;
    uint32_t version = __atomic_load_n(&k->version, __ATOMIC_ACQUIRE);
    uint64_t differs = version & 1;

    if (!__atomic_load_n(&k->used, __ATOMIC_RELAXED))
        return false;
    for (unsigned i = 0; i < sizeof *key / sizeof *a; i++)
        differs |= __atomic_load_n(&a[i], __ATOMIC_ACQUIRE) ^ b[i];
    return !differs && __atomic_load_n(&k->version, __ATOMIC_RELAXED) == version;
}

static void set_key(struct key *k, const struct zr_key *key)
{
    uint64_t *a = (void *)&k->key;
    const uint64_t *b = (const void *)key;

    __atomic_store_n(&k->version, k->version + 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < sizeof *key / sizeof *a; i++)
        __atomic_store_n(&a[i], b[i], __ATOMIC_RELEASE);
    __atomic_store_n(&k->used, true, __ATOMIC_RELAXED);
    __atomic_store_n(&k->version, k->version + 1, __ATOMIC_RELEASE);
}

static struct key **like(struct zr_cache *c, const struct zr_key *key)
{
    return &c->key_like[zr_key_mix(key) >> (64 - KEY_BITS)];
}

/* Without the lock it may miss: a key that has just been given to another one leads on to those that are like that. */
static struct key *look_up(struct zr_cache *c, const struct zr_key *key)
{
    struct key *k = __atomic_load_n(like(c, key), __ATOMIC_ACQUIRE);

    while (k && !is_key(k, key)) {
        ZR_PAUSE("another key");
        k = __atomic_load_n(&k->same, __ATOMIC_ACQUIRE);
    }
    return k;
}

/* A key that nobody uses any more gives its place to the new one; otherwise the list grows. */
static struct key *add(struct zr_cache *c, const struct zr_key *key)
{
    struct key *k, **first = like(c, key);
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
    __atomic_store_n(&k->exact, __atomic_load_n(&c->account[key->account].exact, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    set_key(k, key);
    __atomic_store_n(&k->same, *first, __ATOMIC_RELEASE);
    __atomic_store_n(first, k, __ATOMIC_RELEASE);
    if (i == c->keys)
        __atomic_store_n(&c->keys, i + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&c->keys_used, c->keys_used + 1, __ATOMIC_RELAXED);
    return k;
}

/* About 10 ns, however many keys there are; where there are too many, no lock is taken to find that out. */
struct key *zr_key_find(struct zr_cache *c, const struct zr_key *key)
{
    struct key *k = look_up(c, key);

    if (likely(k) || key->account >= ZR_ACCOUNTS || __atomic_load_n(&c->keys_used, __ATOMIC_RELAXED) == ZR_KEYS_MAX)
        return k;
    zr_lock(&c->lock);
    k = look_up(c, key);
    if (!k)
        k = add(c, key);
    zr_unlock(&c->lock);
    return k;
}

struct bin *zr_bin_find(struct zr_cache *c, struct key *k, unsigned size_class)
{
    unsigned id = __atomic_load_n(&k->bin[size_class], __ATOMIC_ACQUIRE);
    struct bin *bin;

    if (likely(id))
        return c->bin[id];
    zr_lock(&c->lock);
    id = k->bin[size_class];
    bin = id ? c->bin[id] : c->spare_bins;
    if (!id && bin) {
        c->spare_bins = bin->next;
    } else if (!id && c->bins < BINS - 1 && (bin = zr_piece(sizeof *bin))) {
        bin->id = c->bins + 1;
        c->bin[bin->id] = bin;
        __atomic_store_n(&c->bins, bin->id, __ATOMIC_RELEASE);
    }
    if (!id && bin) {
        bin->size_class = size_class;
        bin->held = zr_class_size(size_class);
        bin->run = run_of(size_class);
        bin->key = k;
        bin->used = true;
        __atomic_store_n(&k->bin[size_class], (uint16_t)bin->id, __ATOMIC_RELEASE);
    }
    zr_unlock(&c->lock);
    return bin;
}

void zr_key_drop(struct zr_cache *c, struct key *k)
{
    struct key **at = like(c, &k->key);

    for (unsigned i = 0; i < ZR_CLASSES; i++) {
        struct bin *bin = c->bin[k->bin[i]];

        if (!k->bin[i])
            continue;
        bin->next = c->spare_bins;
        c->spare_bins = bin;
        __atomic_store_n(&k->bin[i], 0, __ATOMIC_RELAXED);
    }
    while (*at != k)
        at = &(*at)->same;
    __atomic_store_n(at, k->same, __ATOMIC_RELEASE);
    __atomic_store_n(&k->used, false, __ATOMIC_RELEASE);
    __atomic_store_n(&c->keys_used, c->keys_used - 1, __ATOMIC_RELAXED);
}

/* The oldest first. */
static void join(struct run *run, struct zr_block *b)
{
    unsigned at = run->length++;

    for (; at && (int32_t)(run->at[at - 1]->stamp - b->stamp) > 0; at--)
        run->at[at] = run->at[at - 1];
    run->at[at] = b;
    run->stamp = run->at[0]->stamp;
}

/* What a thread leaves behind is a block or two of each bin: a run is filled up before there is another one. */
bool zr_depot_put(struct bin *bin, struct zr_block *const *blocks, unsigned length)
{
    struct run *run;

    zr_lock(&bin->lock);
    run = bin->runs;
    if (run && run->length + length <= bin->run) {
        for (unsigned i = 0; i < length; i++)
            join(run, blocks[i]);
        zr_unlock(&bin->lock);
        return true;
    }
    run = bin->spare;
    if (run)
        bin->spare = run->next;
    else
        run = zr_piece(sizeof *run);
    if (run) {
        run->length = length;
        run->stamp = blocks[0]->stamp;
        memcpy(run->at, blocks, length * sizeof *blocks);
        run->next = bin->runs;
        __atomic_store_n(&bin->runs, run, __ATOMIC_RELAXED);
    }
    zr_unlock(&bin->lock);
    return run;
}

unsigned zr_depot_get(struct bin *bin, struct zr_block **blocks)
{
    struct run *run;
    unsigned length = 0;

    if (!__atomic_load_n(&bin->runs, __ATOMIC_RELAXED))
        return 0;
    zr_lock(&bin->lock);
    run = bin->runs;
    if (run) {
        length = run->length;
        memcpy(blocks, run->at, length * sizeof *blocks);
        __atomic_store_n(&bin->runs, run->next, __ATOMIC_RELAXED);
        run->next = bin->spare;
        bin->spare = run;
    }
    zr_unlock(&bin->lock);
    return length;
}
