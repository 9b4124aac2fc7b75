/*
 * Striped free lists. A thread uses one of ZR_STRIPES stripes, each with a lock, a hash table of
 * bins (one per key and size: a stack of blocks, whose top, the newest, stands for the bin in its
 * bucket), and an LRU list per account. A request looks into its own stripe first and then into the
 * others. One locked instruction per lock, and nobody waits unless two threads share a stripe.
 *
 * Eviction takes blocks out of their stripe under its lock and gives them to the driver after it is
 * released.
 */
#include "cache/cache.h"

#include <string.h>

enum {
    ZR_STRIPES = 16,
    BUCKETS = 512,
    SWEEP = 1024, /* blocks at most */
    /* Flags that stay when a block is handed out again; the others say what the last owner did with
       it. */
    OF_THE_BLOCK = (ZR_BLOCK_SKIPPED - 1) & ~(ZR_BLOCK_SYCL | ZR_BLOCK_WITH_CONTEXT)
};

struct lru {
    struct zr_block *newest, *oldest;
    uint64_t bytes; /* atomic: read without the lock */
};

struct zr_stripe {
    struct zr_lock lock;
    uint32_t hits; /* atomic: read without the lock */
    struct lru lru[ZR_ACCOUNTS];
    struct zr_block
        *bucket[BUCKETS]; /* atomic: read without the lock; the tops of bins, by their `next` */
} __attribute__((aligned(128)));

static struct zr_stripe stripes[ZR_STRIPES];

uint64_t zr_cache_limit[ZR_ACCOUNTS];
static zr_release *release_block; /* atomic */
static uint32_t idle;             /* atomic: milliseconds; 0: blocks stay */
static uint32_t next_sweep;       /* atomic: when somebody looks for idle blocks again */
static uint32_t next_stripe;      /* atomic */
static uint32_t leaving;          /* atomic: blocks taken out and not yet back at the driver */
static uint32_t returned;         /* atomic */

/* --- stripes ---------------------------------------------------------------------------------- */

static struct zr_stripe *own_stripe(void) {
    if (unlikely(!zr_thread.cache.stripe))
        zr_thread.cache.stripe =
            &stripes[__atomic_fetch_add(&next_stripe, 1, __ATOMIC_RELAXED) % ZR_STRIPES];
    return zr_thread.cache.stripe;
}

/* How many stripes were ever given to a thread: the others are empty. */
static unsigned stripes_used(void) {
    unsigned used = __atomic_load_n(&next_stripe, __ATOMIC_RELAXED);

    return used < ZR_STRIPES ? used : ZR_STRIPES;
}

/* The next stripe in the ring of those in use. */
static struct zr_stripe *after(struct zr_stripe *s) {
    return s + 1 < &stripes[stripes_used()] ? s + 1 : stripes;
}

/*
 * Keys that agree in these fields seldom differ in the others: such bins share a bucket. The
 * multiplication carries every bit to the top.
 */
static unsigned bin_bucket(const struct zr_key *key, size_t held) {
    uint64_t x =
        (uintptr_t)key->context + ((uintptr_t)key->device << 24) + (held << 12) + key->align;

    return (unsigned)(x * 0x9e3779b97f4a7c15u >> 55);
}
_Static_assert(BUCKETS == 1 << 9, "the hash has 9 bits");

/* Field by field: a wider load of what was just written in parts would defeat store forwarding. */
static bool is_same(const struct zr_key *a, const struct zr_key *b) {
    return a->context == b->context && a->device == b->device && a->residents == b->residents &&
           a->flags == b->flags && a->ordinal == b->ordinal && a->extra == b->extra &&
           a->account == b->account && a->kind == b->kind && a->align == b->align;
}

/* The link to the top of the bin of this key and size; *result is NULL if there is none. The caller
 * holds the lock. */
static inline struct zr_block **find_bin(struct zr_block **bucket, const struct zr_key *key,
                                         size_t held) {
    while (*bucket && ((*bucket)->held != held || !is_same(&(*bucket)->key, key)))
        bucket = &(*bucket)->next;
    return bucket;
}

static inline struct zr_block **bin_of(struct zr_stripe *s, const struct zr_block *b) {
    return find_bin(&s->bucket[bin_bucket(&b->key, b->held)], &b->key, b->held);
}

/* Atomic, because readers without the lock look at buckets, and the report of a wrong free at
 * `above` and `next`. */
static void store_link(struct zr_block **at, struct zr_block *b) {
    __atomic_store_n(at, b, __ATOMIC_RELEASE);
}

/*
 * Files a block as the newest of its bin and account. The caller holds the lock. A thread that
 * makes the block resident just now changes `residents`, not the key that it is found by.
 */
static void stripe_file(struct zr_stripe *s, struct zr_block *b) {
    struct lru *lru = &s->lru[b->key.account];
    struct zr_block **at, *top;

    b->key.residents = __atomic_load_n(&b->residents, __ATOMIC_RELAXED);
    at = bin_of(s, b);
    top = *at;
    b->below = top;
    store_link(&b->next, top ? top->next : NULL);
    if (top)
        store_link(&top->above, b);
    store_link(at, b);
    b->newer = NULL;
    b->older = lru->newest;
    if (lru->newest)
        lru->newest->newer = b;
    else
        lru->oldest = b;
    lru->newest = b;
    __atomic_store_n(&lru->bytes, lru->bytes + b->held, __ATOMIC_RELAXED);
}

/* Takes a block out of its stripe. `at` leads to the top of its bin. The caller holds the lock. */
static inline void stripe_unfile(struct zr_stripe *s, struct zr_block **at, struct zr_block *b) {
    struct lru *lru = &s->lru[b->key.account];

    if (*at != b) {
        b->above->below = b->below;
        if (b->below)
            store_link(&b->below->above, b->above);
    } else if (b->below) {
        store_link(&b->below->next, b->next);
        store_link(at, b->below);
    } else {
        store_link(at, b->next);
    }
    if (b->newer)
        b->newer->older = b->older;
    else
        lru->newest = b->older;
    if (b->older)
        b->older->newer = b->newer;
    else
        lru->oldest = b->newer;
    __atomic_store_n(&lru->bytes, lru->bytes - b->held, __ATOMIC_RELAXED);
}

/* --- how blocks leave ------------------------------------------------------------------------- */

void zr_leaving(unsigned blocks) {
    __atomic_fetch_add(&leaving, blocks, __ATOMIC_ACQ_REL);
}

void zr_returned(unsigned blocks) {
    __atomic_fetch_add(&returned, blocks, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&leaving, blocks, __ATOMIC_ACQ_REL);
}

/* What the driver did not take back: tried again when memory is wanted. */
static struct {
    struct zr_lock lock;
    struct zr_block *first; /* atomic: read without the lock */
    zr_release *release;
} refused;

/* LEAVING first: once the driver has the block, another thread may get and insert the same address.
 */
void zr_cache_give_back(struct zr_block *b, zr_release *release) {
    __atomic_store_n(&b->word, zr_block_word(b) >> 32 << 32 | ZR_BLOCK_LEAVING, __ATOMIC_RELEASE);
    switch (release(b)) {
    case ZR_RELEASED:
        zr_block_recycle(b);
        return;
    case ZR_RELEASED_WHOLE:
        return;
    case ZR_RELEASE_REFUSED:
        break;
    }
    zr_lock(&refused.lock);
    b->below = refused.first;
    __atomic_store_n(&refused.first, b, __ATOMIC_RELAXED);
    refused.release = release;
    zr_unlock(&refused.lock);
}

static void release_all(struct zr_block *list) {
    while (list) {
        struct zr_block *b = list;

        list = b->below;
        zr_cache_give_back(b, __atomic_load_n(&release_block, __ATOMIC_ACQUIRE));
        zr_returned(1);
    }
}

/* Has release() called for each of those that were refused before, of this context or all (NULL).
 */
ZR_COLD void zr_cache_try_again(const void *context, zr_release *release) {
    struct zr_block *list = NULL, **at;

    zr_lock(&refused.lock);
    for (at = &refused.first; *at;) {
        struct zr_block *b = *at;

        if (context && b->key.context != context) {
            at = &b->below;
            continue;
        }
        zr_leaving(1); /* before another thread can see the list without it */
        __atomic_store_n(at, b->below, __ATOMIC_RELAXED);
        b->below = list;
        list = b;
    }
    release = release ? release : refused.release;
    zr_unlock(&refused.lock);
    while (list) {
        struct zr_block *b = list;

        list = b->below;
        zr_cache_give_back(b, release);
        zr_returned(1);
    }
}

/* Which blocks leave: those that meet all conditions, up to these amounts. */
struct criteria {
    unsigned account;    /* or ZR_ACCOUNTS */
    const void *context; /* or NULL */
    uint32_t unused_ms;  /* at least */
    uint32_t now;
    uint64_t bytes; /* stop when this much has left */
    unsigned blocks;
    const struct zr_block *except;
};

/* Moves what meets the criteria from the LRU list of one account to *list, oldest first. The caller
 * holds the lock. */
static uint64_t stripe_take_out(struct zr_stripe *s, unsigned account, struct criteria *c,
                                struct zr_block **list) {
    struct zr_block *b, *newer;
    uint64_t bytes = 0;

    for (b = s->lru[account].oldest; b && c->bytes && c->blocks; b = newer) {
        newer = b->newer;
        if (c->unused_ms && (int32_t)(c->now - b->stamp) < (int32_t)c->unused_ms)
            break;
        if ((c->context && b->key.context != c->context) || b == c->except)
            continue;
        zr_leaving(1); /* before another thread can see the stripe without it */
        stripe_unfile(s, bin_of(s, b), b);
        b->below = *list;
        *list = b;
        bytes += b->held;
        c->bytes -= b->held < c->bytes ? b->held : c->bytes;
        c->blocks--;
    }
    return bytes;
}

/* Gives what meets the criteria back to the driver, from the caller's stripe first. Returns the
 * bytes. */
static ZR_COLD uint64_t evict(struct criteria c) {
    unsigned first = c.account < ZR_ACCOUNTS ? c.account : 0;
    unsigned end = c.account < ZR_ACCOUNTS ? c.account + 1 : ZR_ACCOUNTS;
    struct zr_stripe *own = own_stripe(), *s = own;
    uint64_t bytes = 0;

    do {
        struct zr_block *list = NULL;

        zr_lock(&s->lock);
        for (unsigned account = first; account < end; account++)
            bytes += stripe_take_out(s, account, &c, &list);
        zr_unlock(&s->lock);
        release_all(list);
        s = after(s);
    } while (s != own && c.bytes && c.blocks);
    return bytes;
}

/* Looks for idle blocks, at most four times per cache_idle. */
static inline void sweep(uint32_t now) {
    uint32_t due = __atomic_load_n(&next_sweep, __ATOMIC_RELAXED);
    uint32_t unused = __atomic_load_n(&idle, __ATOMIC_RELAXED);

    if (likely((int32_t)(now - due) < 0) || unused == 0)
        return;
    if (__atomic_compare_exchange_n(&next_sweep, &due, now + unused / 4 + 1, false,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        evict((struct criteria){ZR_ACCOUNTS, NULL, unused, now, UINT64_MAX, SWEEP, NULL});
}

/* --- the interface ---------------------------------------------------------------------------- */

/* From one stripe; NULL when it has none. */
static inline struct zr_block *get_from(struct zr_stripe *s, unsigned bucket,
                                        const struct zr_key *key, size_t held) {
    struct zr_block **at = &s->bucket[bucket], *b;

    if (!__atomic_load_n(at, __ATOMIC_ACQUIRE))
        return NULL;
    zr_lock(&s->lock);
    at = find_bin(at, key, held);
    b = *at;
    if (b) {
        __atomic_store_n(&s->hits, s->hits + 1, __ATOMIC_RELAXED);
        stripe_unfile(s, at, b);
    }
    zr_unlock(&s->lock);
    return b;
}

static ZR_COLD struct zr_block *get_from_others(struct zr_stripe *own, unsigned bucket,
                                                const struct zr_key *key, size_t held) {
    struct zr_block *b = NULL;

    for (struct zr_stripe *s = after(own); !b && s != own; s = after(s))
        b = get_from(s, bucket, key, held);
    return b;
}

struct zr_block *zr_cache_get(const struct zr_key *key, size_t held, size_t size) {
    struct zr_stripe *own = own_stripe();
    unsigned bucket = bin_bucket(key, held);
    struct zr_block *b = get_from(own, bucket, key, held);

    if (unlikely(!b))
        b = get_from_others(own, bucket, key, held);
    if (unlikely(!b)) {
        sweep(zr_now_ms());
        return NULL;
    }
    __atomic_store_n(&b->size, size, __ATOMIC_RELAXED);
    __atomic_store_n(&b->requested, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&b->segment, NULL, __ATOMIC_RELAXED);
    if (unlikely(zr_block_flags(b) & ~(uint32_t)OF_THE_BLOCK)) /* others may be marking it */
        __atomic_fetch_and(&b->flags, OF_THE_BLOCK, __ATOMIC_RELAXED);
    __atomic_store_n(&b->word, (b->word & ~(uint64_t)0xff) | ZR_BLOCK_LIVE, __ATOMIC_RELEASE);
    return b;
}

void zr_cache_put(struct zr_block *b) {
    struct zr_stripe *s = own_stripe();
    unsigned account = b->key.account;
    uint64_t limit = __atomic_load_n(&zr_cache_limit[account], __ATOMIC_RELAXED), bytes, all;

    b->stamp = zr_now_ms();
    sweep(b->stamp);
    zr_lock(&s->lock);
    stripe_file(s, b);
    bytes = s->lru[account].bytes;
    zr_unlock(&s->lock);
    /* As long as no stripe exceeds its share of the limit, there is no need to add up all of them.
     */
    if (likely(bytes <= limit / ZR_STRIPES))
        return;
    all = zr_cache_bytes(account);
    if (all > limit)
        evict((struct criteria){
            .account = account, .bytes = all - limit, .blocks = UINT32_MAX, .except = b});
}

/* Ages have 31 bits. */
void zr_cache_setup(zr_release *release, uint32_t idle_ms) {
    if (idle_ms >= INT32_MAX)
        idle_ms = 0;
    else if (idle_ms == 0)
        idle_ms = 1;
    __atomic_store_n(&release_block, release, __ATOMIC_RELEASE);
    __atomic_store_n(&idle, idle_ms, __ATOMIC_RELAXED);
    __atomic_store_n(&next_sweep, zr_now_ms() + idle_ms / 4, __ATOMIC_RELAXED);
}

void zr_cache_set_limit(unsigned account, uint64_t bytes) {
    uint64_t cached = zr_cache_bytes(account);

    __atomic_store_n(&zr_cache_limit[account], bytes, __ATOMIC_RELAXED);
    if (cached > bytes)
        evict((struct criteria){.account = account, .bytes = cached - bytes, .blocks = UINT32_MAX});
}

/* Log-linear: the step is a power of two, so that rounding up is an addition and a mask. */
size_t zr_cache_round(size_t size) {
    unsigned top = size > 512 ? 63 - (unsigned)__builtin_clzll(size - 1) : 9;
    unsigned finer = 6; /* log2 of the steps per doubling */
    size_t step, rounded;

    if (top < 20)
        finer = 3;
    else if (top < 26)
        finer = 4;
    step = (size_t)1 << (top - finer);
    rounded = (size + step - 1) & ~(step - 1);

    return rounded >= size ? rounded : size;
}

uint64_t zr_cache_trim(unsigned account, const void *context) {
    if (unlikely(__atomic_load_n(&refused.first, __ATOMIC_RELAXED)))
        zr_cache_try_again(context, NULL);
    return evict((struct criteria){
        .account = account, .context = context, .bytes = UINT64_MAX, .blocks = UINT32_MAX});
}

/* Cold: looks at every block with its key in every stripe. */
ZR_COLD bool zr_cache_drop(struct zr_block *b) {
    for (unsigned i = 0; i < stripes_used(); i++) {
        struct zr_stripe *s = &stripes[i];
        struct zr_block **at, *there;

        zr_lock(&s->lock);
        at = bin_of(s, b);
        there = *at;
        while (there && there != b)
            there = there->below;
        if (there)
            stripe_unfile(s, at, b);
        zr_unlock(&s->lock);
        if (there)
            return true;
    }
    return false;
}

bool zr_cache_await(uint32_t ms) {
    static const struct timespec little = {0, 50000};
    uint32_t start = zr_now_ms();

    while (__atomic_load_n(&leaving, __ATOMIC_ACQUIRE)) {
        if (zr_now_ms() - start >= ms)
            return false;
        clock_nanosleep(CLOCK_MONOTONIC, 0, &little, NULL);
    }
    return true;
}

uint32_t zr_cache_withdrawals(void) {
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
    refused.first = NULL;
}
