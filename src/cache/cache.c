/*
 * Striped free lists. A thread uses one of ZR_STRIPES stripes, each with a lock, a hash table of bins (one per key and
 * size: a stack of blocks, the newest on top), and an LRU list per account. A request looks into its own stripe first
 * and then into the others that have blocks. Two locked instructions per lock, and nobody waits unless two threads
 * share a stripe.
 *
 * Blocks leave in one way, leave(): they are taken out of their stripe under its lock and go back to the driver after
 * it is released.
 */
#include "cache/cache.h"

#include <string.h>

enum { ZR_STRIPES = 16, BUCKETS = 512, BINS_AT_ONCE = 32, SWEEP = 1024 /* blocks at most */ };

struct bin {
    struct zr_key key;
    size_t held;
    struct zr_block *top;
    struct bin *next; /* in its bucket, or spare */
};
_Static_assert(sizeof(struct bin) == 64, "a cache line");

struct lru {
    struct zr_block *newest, *oldest;
    uint64_t bytes; /* atomic: read without the lock */
};

struct stripe {
    struct zr_lock lock;
    uint32_t blocks, hits; /* atomic: read without the lock */
    struct bin *spare;
    struct lru lru[ZR_ACCOUNTS];
    struct bin *bucket[BUCKETS];
} __attribute__((aligned(128)));

static struct stripe stripes[ZR_STRIPES];

static uint64_t limits[ZR_ACCOUNTS];                /* atomic */
static void (*give_back)(const struct zr_block *b); /* atomic */
static uint32_t idle;                               /* atomic: milliseconds; 0: blocks stay */
static uint32_t next_sweep;                         /* atomic: when somebody looks for idle blocks again */
static uint32_t next_stripe;                        /* atomic */
static uint32_t leaving;                            /* atomic: blocks taken out and not yet back at the driver */
static uint32_t returned;                           /* atomic */

/* --- stripes ------------------------------------------------------------------------------------------------------ */

static unsigned own_stripe(void) {
    if (unlikely(zr_thread.cache.stripe == 0))
        zr_thread.cache.stripe = __atomic_fetch_add(&next_stripe, 1, __ATOMIC_RELAXED) % ZR_STRIPES + 1;
    return zr_thread.cache.stripe - 1;
}

/* The first so many were given to a thread: nobody needs to look at the others. */
static unsigned stripes_used(void) {
    unsigned used = __atomic_load_n(&next_stripe, __ATOMIC_RELAXED);

    return used < ZR_STRIPES ? used : ZR_STRIPES;
}

static uint32_t blocks_in(const struct stripe *s) {
    return __atomic_load_n(&s->blocks, __ATOMIC_ACQUIRE);
}

/* Handles are pointers, so their low bits say little; the multiplications carry every bit to the top. */
static unsigned bucket_of(const struct zr_key *key, size_t held) {
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t x = (uintptr_t)key->context + held * odd;

    x = (x ^ x >> 32 ^ (uintptr_t)key->device) * odd;
    x = (x ^ x >> 29 ^ key->residents ^ (uint64_t)key->flags << 32 ^ (uint64_t)key->align << 8 ^ key->kind) * odd;
    return (unsigned)(x >> 55);
}
_Static_assert(BUCKETS == 1 << 9, "the hash has 9 bits");

static bool is_same(const struct zr_key *a, const struct zr_key *b) {
    uint64_t x[5], y[5];

    memcpy(x, a, sizeof x);
    memcpy(y, b, sizeof y);
    return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) | (x[4] ^ y[4])) == 0;
}

/* What leads to the bin of this key and size; *result is NULL when there is none. The caller holds the lock. */
static struct bin **find_bin(struct stripe *s, const struct zr_key *key, size_t held) {
    struct bin **at = &s->bucket[bucket_of(key, held)];

    while (*at && ((*at)->held != held || !is_same(&(*at)->key, key)))
        at = &(*at)->next;
    return at;
}

static struct bin *new_bin(struct stripe *s) {
    struct bin *bin = s->spare;

    if (unlikely(!bin)) {
        bin = zr_piece(BINS_AT_ONCE * sizeof *bin);
        if (!bin)
            return NULL;
        for (unsigned i = 0; i + 1 < BINS_AT_ONCE; i++)
            bin[i].next = &bin[i + 1];
    }
    s->spare = bin->next;
    return bin;
}

/* Atomic: whoever reports a wrong free may look at the same place for `caller`. */
static void set_above(struct zr_block *b, struct zr_block *above) {
    __atomic_store_n(&b->above, above, __ATOMIC_RELAXED);
}

/* Files a block as the newest of its bin and account; false: no memory for a bin. The caller holds the lock. */
static bool file(struct stripe *s, struct zr_block *b) {
    struct bin **at = find_bin(s, &b->key, b->held), *bin = *at;
    struct lru *lru = &s->lru[b->key.account];

    if (!bin) {
        bin = new_bin(s);
        if (unlikely(!bin))
            return false;
        *bin = (struct bin){b->key, b->held, NULL, NULL};
        *at = bin;
    }
    set_above(b, NULL);
    b->below = bin->top;
    if (bin->top)
        set_above(bin->top, b);
    bin->top = b;
    b->newer = NULL;
    b->older = lru->newest;
    *(lru->newest ? &lru->newest->newer : &lru->oldest) = b;
    lru->newest = b;
    __atomic_store_n(&lru->bytes, lru->bytes + b->held, __ATOMIC_RELAXED);
    __atomic_store_n(&s->blocks, s->blocks + 1, __ATOMIC_RELAXED);
    return true;
}

/* Takes a block out of its stripe. `at` leads to its bin. The caller holds the lock. */
static void unfile(struct stripe *s, struct bin **at, struct zr_block *b) {
    struct lru *lru = &s->lru[b->key.account];
    struct bin *bin = *at;

    if (unlikely(!bin)) /* never: a cached block has a bin */
        return;
    if (b->below)
        set_above(b->below, b->above);
    *(b->above ? &b->above->below : &bin->top) = b->below;
    *(b->newer ? &b->newer->older : &lru->newest) = b->older;
    *(b->older ? &b->older->newer : &lru->oldest) = b->newer;
    if (!bin->top) {
        *at = bin->next;
        bin->next = s->spare;
        s->spare = bin;
    }
    __atomic_store_n(&lru->bytes, lru->bytes - b->held, __ATOMIC_RELAXED);
    __atomic_store_n(&s->blocks, s->blocks - 1, __ATOMIC_RELEASE);
}

/* --- how blocks leave --------------------------------------------------------------------------------------------- */

void zr_leaving(unsigned blocks) {
    __atomic_fetch_add(&leaving, blocks, __ATOMIC_ACQ_REL);
}

void zr_returned(unsigned blocks) {
    __atomic_fetch_add(&returned, blocks, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&leaving, blocks, __ATOMIC_ACQ_REL);
}

/* Out of the map first: once the driver has the block, another thread may get and insert the same address. */
static void release_all(struct zr_block *list) {
    while (list) {
        struct zr_block *b = list;

        list = b->below;
        __atomic_store_n(&b->word, zr_block_word(b) >> 32 << 32 | ZR_BLOCK_NONE, __ATOMIC_RELEASE);
        __atomic_load_n(&give_back, __ATOMIC_ACQUIRE)(b);
        zr_block_recycle(b);
        zr_returned(1);
    }
}

/* Which blocks leave: all conditions hold, and no more than so many. */
struct criteria {
    unsigned account;    /* or ZR_ACCOUNTS */
    const void *context; /* or NULL */
    uint32_t unused_ms;  /* at least */
    uint32_t now;
    uint64_t bytes; /* until so much has left */
    unsigned blocks;
    const struct zr_block *except;
};

/* Moves what meets the criteria from the LRU list of one account to *list, oldest first. The caller holds the lock. */
static uint64_t take_out(struct stripe *s, unsigned account, struct criteria *c, struct zr_block **list) {
    struct zr_block *b, *newer;
    uint64_t bytes = 0;

    for (b = s->lru[account].oldest; b && c->bytes && c->blocks; b = newer) {
        newer = b->newer;
        if (c->unused_ms && (int32_t)(c->now - b->stamp) < (int32_t)c->unused_ms)
            break;
        if ((c->context && b->key.context != c->context) || b == c->except)
            continue;
        zr_leaving(1); /* before anybody can see the stripe without it */
        unfile(s, find_bin(s, &b->key, b->held), b);
        b->below = *list;
        *list = b;
        bytes += b->held;
        c->bytes -= b->held < c->bytes ? b->held : c->bytes;
        c->blocks--;
    }
    return bytes;
}

/* Gives what meets the criteria back to the driver, from the caller's stripe first. Returns the bytes. */
static ZR_COLD uint64_t leave(struct criteria c) {
    unsigned first = c.account < ZR_ACCOUNTS ? c.account : 0;
    unsigned end = c.account < ZR_ACCOUNTS ? c.account + 1 : ZR_ACCOUNTS;
    unsigned own = own_stripe(), used = stripes_used();
    uint64_t bytes = 0;

    for (unsigned i = 0; i < used && c.bytes && c.blocks; i++) {
        struct stripe *s = &stripes[(own + i) % used];
        struct zr_block *list = NULL;

        if (blocks_in(s) == 0)
            continue;
        zr_lock(&s->lock);
        for (unsigned account = first; account < end; account++)
            bytes += take_out(s, account, &c, &list);
        zr_unlock(&s->lock);
        release_all(list);
    }
    return bytes;
}

/* Looks for idle blocks, at most four times within the time after which they leave. */
static void sweep(uint32_t now) {
    uint32_t due = __atomic_load_n(&next_sweep, __ATOMIC_RELAXED);
    uint32_t unused = __atomic_load_n(&idle, __ATOMIC_RELAXED);

    if (likely((int32_t)(now - due) < 0) || unused == 0)
        return;
    if (__atomic_compare_exchange_n(&next_sweep, &due, now + unused / 4 + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        leave((struct criteria){ZR_ACCOUNTS, NULL, unused, now, UINT64_MAX, SWEEP, NULL});
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

/* From one stripe, LIVE; NULL when it has none. */
static struct zr_block *get_from(struct stripe *s, const struct zr_key *key, size_t held) {
    struct zr_block *b = NULL;
    struct bin **at;

    if (blocks_in(s) == 0)
        return NULL;
    zr_lock(&s->lock);
    at = find_bin(s, key, held);
    if (*at) {
        b = (*at)->top;
        __atomic_store_n(&s->hits, s->hits + 1, __ATOMIC_RELAXED);
        unfile(s, at, b);
    }
    zr_unlock(&s->lock);
    return b;
}

struct zr_block *zr_cache_get(const struct zr_key *key, size_t held, size_t size) {
    unsigned own = own_stripe(), used = stripes_used();
    struct zr_block *b = get_from(&stripes[own], key, held);

    for (unsigned i = 1; unlikely(!b) && i < used; i++)
        b = get_from(&stripes[(own + i) % used], key, held);
    if (unlikely(!b)) {
        sweep(zr_now_ms());
        return NULL;
    }
    __atomic_store_n(&b->size, size, __ATOMIC_RELAXED);
    __atomic_store_n(&b->requested, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&b->segment, NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&b->flags, b->flags & (ZR_BLOCK_SKIPPED - 1) & ~(ZR_BLOCK_SYCL | ZR_BLOCK_WITH_CONTEXT),
                     __ATOMIC_RELAXED);
    __atomic_store_n(&b->word, (b->word & ~(uint64_t)0xff) | ZR_BLOCK_LIVE, __ATOMIC_RELEASE);
    return b;
}

bool zr_cache_put(struct zr_block *b) {
    unsigned account = b->key.account;
    uint64_t limit = account < ZR_ACCOUNTS ? __atomic_load_n(&limits[account], __ATOMIC_RELAXED) : 0, bytes;
    struct stripe *s = &stripes[own_stripe()];
    bool filed;

    if (unlikely(b->held > limit))
        return false;
    b->stamp = zr_now_ms();
    sweep(b->stamp);
    zr_lock(&s->lock);
    filed = file(s, b);
    bytes = s->lru[account].bytes;
    zr_unlock(&s->lock);
    /* While every stripe has no more than its share of the limit, nobody needs to add up all of them. */
    if (unlikely(bytes > limit / ZR_STRIPES) && (bytes = zr_cache_bytes(account)) > limit)
        leave((struct criteria){.account = account, .bytes = bytes - limit, .blocks = UINT32_MAX, .except = b});
    return filed;
}

/* Ages have 31 bits. */
void zr_cache_setup(void (*release)(const struct zr_block *b), uint32_t idle_ms) {
    idle_ms = idle_ms >= INT32_MAX ? 0 : idle_ms ? idle_ms : 1;
    __atomic_store_n(&give_back, release, __ATOMIC_RELEASE);
    __atomic_store_n(&idle, idle_ms, __ATOMIC_RELAXED);
    __atomic_store_n(&next_sweep, zr_now_ms() + idle_ms / 4, __ATOMIC_RELAXED);
}

void zr_cache_set_limit(unsigned account, uint64_t bytes) {
    uint64_t cached = zr_cache_bytes(account);

    __atomic_store_n(&limits[account], bytes, __ATOMIC_RELAXED);
    if (cached > bytes)
        leave((struct criteria){.account = account, .bytes = cached - bytes, .blocks = UINT32_MAX});
}

/* Log-linear: the step is a power of two, so that rounding up is an addition and a mask. */
size_t zr_cache_round(size_t size) {
    unsigned top = size > 512 ? 63 - (unsigned)__builtin_clzll(size - 1) : 9;
    size_t step = (size_t)1 << (top < 20 ? top - 3 : top < 26 ? top - 4 : top - 6);
    size_t rounded = (size + step - 1) & ~(step - 1);

    return rounded >= size ? rounded : size;
}

uint64_t zr_cache_trim(unsigned account, const void *context) {
    return leave((struct criteria){.account = account, .context = context, .bytes = UINT64_MAX, .blocks = UINT32_MAX});
}

void zr_cache_await(uint32_t ms) {
    static const struct timespec little = {0, 50000};
    uint32_t start = zr_now_ms();

    while (__atomic_load_n(&leaving, __ATOMIC_ACQUIRE) && zr_now_ms() - start < ms)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &little, NULL);
}

bool zr_cache_takes(unsigned account, size_t held) {
    return account < ZR_ACCOUNTS && held <= __atomic_load_n(&limits[account], __ATOMIC_RELAXED);
}

uint32_t zr_cache_left(void) {
    uint32_t left = __atomic_load_n(&returned, __ATOMIC_ACQUIRE);

    for (unsigned i = 0; i < ZR_STRIPES; i++)
        left += __atomic_load_n(&stripes[i].hits, __ATOMIC_RELAXED);
    return left;
}

uint64_t zr_cache_bytes(unsigned account) {
    uint64_t bytes = 0;

    for (unsigned i = 0, used = stripes_used(); i < used; i++)
        bytes += __atomic_load_n(&stripes[i].lru[account].bytes, __ATOMIC_RELAXED);
    return bytes;
}

/* What the parent has cached is not the child's; limits and release() stay. */
void zr_cache_fork_child(void) {
    zr_block_fork_child();
    zr_map_fork_child();
    memset(stripes, 0, sizeof stripes);
    leaving = 0;
}
