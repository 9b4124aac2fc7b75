/* Giving back: by account, by context, by age, and to stay under a limit. All of it is cold. */
#include "cache/heap.h"

#include <string.h>
#include <time.h>

enum { CALLS_PER_CLOCK = 64, LONG_PAUSE = 20 /* ms */ };
#define LARGEST_PORTION ((uint64_t)1 << 30)

uint32_t zr_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint32_t)((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
}

/*
 * Calls that follow each other closely read the clock ever less often; after a pause every call does. So a
 * thread that is called rarely notices that time has passed, and one that is called all the time pays
 * nothing for it.
 */
struct zr_block *zr_tick(struct heap *h, struct zr_block *b)
{
    struct zr_cache *c = h->cache;
    uint32_t now = zr_now(), due = __atomic_load_n(&c->next_sweep, __ATOMIC_RELAXED);

    if (now - h->now >= LONG_PAUSE)
        h->patience = 0;
    else if (h->patience < CALLS_PER_CLOCK - 1)
        h->patience = h->patience * 2 + 1;
    h->now = now;
    if ((int32_t)(now - due) >= 0 &&
        __atomic_compare_exchange_n(&c->next_sweep, &due, now + c->idle / 4 + 1, false,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        zr_cache_trim(c, ZR_ACCOUNTS, NULL, c->idle);
    return b;
}

void zr_cache_set_limit(struct zr_cache *c, unsigned account, uint64_t bytes)
{
    __atomic_store_n(&c->account[account].limit, bytes < UINT64_MAX / 4 ? bytes : UINT64_MAX / 4,
                     __ATOMIC_RELAXED);
}

void zr_cache_set_idle(struct zr_cache *c, uint32_t milliseconds)
{
    c->idle = milliseconds < INT32_MAX ? milliseconds : INT32_MAX;
    __atomic_store_n(&c->next_sweep, zr_now() + c->idle / 4 + 1, __ATOMIC_RELAXED);
}

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

/* A portion at a time, so that a thread asks rarely; near the limit only what is needed. */
bool zr_allow(struct heap *h, unsigned account, uint64_t bytes)
{
    struct zr_cache *c = h->cache;
    struct allowance *a = &h->account[account];
    uint64_t need = a->kept + bytes > a->allowed ? a->kept + bytes - a->allowed : 0;
    uint64_t portion = __atomic_load_n(&c->account[account].limit, __ATOMIC_RELAXED) / 16;

    if (portion > LARGEST_PORTION)
        portion = LARGEST_PORTION;
    if (portion < need || !zr_grant(c, account, portion)) {
        portion = need;
        if (!zr_grant(c, account, portion))
            return false;
    }
    __atomic_store_n(&a->allowed, a->allowed + portion, __ATOMIC_RELAXED);
    return true;
}

/* What a sweep takes, and what it has taken. */
struct sweep {
    unsigned account;    /* ZR_ACCOUNTS: all */
    const void *context; /* NULL: all */
    uint32_t min_age;    /* ms */
    uint32_t now;
    uint64_t enough; /* lists are left alone once so many bytes were taken */
    uint64_t bytes;
    struct zr_block *list;
};

/* Cuts a list, newest first, where it becomes too old; returns how many blocks were cut off. */
static unsigned cut(struct sweep *s, struct zr_block **list)
{
    struct zr_block *b;
    uint64_t missing = s->enough - s->bytes, n = 0;

    if (s->bytes >= s->enough || !*list)
        return 0;
    for (b = *list; b; b = b->link)
        n++;
    missing = (missing - 1) / (*list)->held + 1;
    for (uint64_t spared = n > missing ? n - missing : 0; spared; spared--)
        list = &(*list)->link;
    while (*list && s->min_age && (int32_t)(s->now - (*list)->stamp) < (int32_t)s->min_age)
        list = &(*list)->link;
    n = 0;
    b = *list;
    __atomic_store_n(list, NULL, __ATOMIC_RELAXED);
    while (b) {
        struct zr_block *next = b->link;

        s->bytes += b->held;
        b->link = s->list;
        s->list = b;
        b = next;
        n++;
    }
    return (unsigned)n;
}

static bool matches(const struct sweep *s, const struct key *k)
{
    return k->used && (s->account == ZR_ACCOUNTS || s->account == k->key.account) &&
           (!s->context || s->context == k->key.context);
}

static void sweep_magazine(struct sweep *s, struct allowance *a, struct magazine *m)
{
    unsigned n = cut(s, &m->head), behind = 0;

    m->count -= n;
    if (m->reserve) {
        unsigned length = m->reserve->run_length;

        behind = cut(s, &m->reserve);
        if (m->reserve)
            m->reserve->run_length = (uint8_t)(length - behind);
    }
    if (n + behind)
        __atomic_store_n(&a->kept, a->kept - (n + behind) * s->list->held, __ATOMIC_RELAXED);
}

/* With all heaps seized. What a thread may keep without asking is cut down to what it keeps. */
static void sweep_heaps(struct sweep *s, struct zr_cache *c)
{
    for (struct heap *h = c->heaps; h; h = h->next) {
        for (unsigned i = 0; i < c->keys; i++) {
            struct key *k = c->key[i];

            if (!h->by_key[i] || !matches(s, k))
                continue;
            for (unsigned j = 0; j < ZR_CLASSES; j++)
                if (h->by_key[i]->of[j].head || h->by_key[i]->of[j].reserve)
                    sweep_magazine(s, &h->account[k->key.account], &h->by_key[i]->of[j]);
        }
        for (unsigned i = 0; i < ZR_ACCOUNTS; i++) {
            struct allowance *a = &h->account[i];

            if (a->allowed == a->kept || (s->account != ZR_ACCOUNTS && s->account != i))
                continue;
            __atomic_fetch_sub(&c->account[i].granted, a->allowed - a->kept, __ATOMIC_RELAXED);
            __atomic_store_n(&a->allowed, a->kept, __ATOMIC_RELAXED);
        }
    }
}

static void sweep_depots(struct sweep *s, struct zr_cache *c)
{
    for (unsigned i = 0; i < c->keys; i++) {
        struct key *k = c->key[i];
        uint64_t before = s->bytes;

        if (!matches(s, k))
            continue;
        zr_lock(&k->lock);
        for (unsigned j = 0; j < ZR_CLASSES; j++)
            for (struct zr_block **at = &k->runs[j]; *at;) {
                struct zr_block *run = *at, *rest = run->run;
                unsigned length = run->run_length, n = cut(s, at);

                if (*at) {
                    run->run_length = (uint8_t)(length - n);
                    at = &run->run;
                } else {
                    __atomic_store_n(at, rest, __ATOMIC_RELAXED);
                }
            }
        zr_unlock(&k->lock);
        __atomic_fetch_sub(&c->account[k->key.account].granted, s->bytes - before, __ATOMIC_RELAXED);
    }
}

void zr_give_back(struct zr_cache *c, struct zr_block *list)
{
    while (list) {
        struct zr_block *b = list;
        const struct zr_key *key = &c->key[b->key]->key;

        list = b->link;
        b->context = key->context;
        b->peers = key->peers;
        /* Out of the map first: the driver may hand the address to another thread at once. */
        __atomic_store_n(&b->word, b->word & ~(uint64_t)0xff, __ATOMIC_RELEASE);
        c->backing.free(c->backing.arg, b);
        zr_block_recycle(b);
    }
}

uint64_t zr_cache_trim(struct zr_cache *c, unsigned account, const void *context, uint32_t min_age)
{
    struct sweep s = {account, context, min_age, zr_now(), UINT64_MAX, 0, NULL};

    zr_heap_seize_all(c);
    sweep_heaps(&s, c);
    sweep_depots(&s, c);
    zr_heap_release_all(c);
    zr_give_back(c, s.list);
    return s.bytes;
}

/*
 * The age at which enough would go is found by halving: a handful of passes over lists that are short, and
 * no sorting. A sixteenth of the limit more than needed is taken, so that this stays rare.
 */
struct zr_block *zr_make_room(struct zr_cache *c, unsigned account, uint64_t bytes)
{
    struct account *a = &c->account[account];
    uint64_t want = bytes + a->limit / 16;
    struct sweep s = {account, NULL, c->idle, zr_now(), want, 0, NULL};

    if (bytes > a->limit)
        return NULL;
    zr_heap_seize_all(c);
    for (;; s.min_age /= 4) {
        sweep_depots(&s, c);
        sweep_heaps(&s, c);
        if (s.bytes >= want || s.min_age == 0 ||
            __atomic_load_n(&a->granted, __ATOMIC_RELAXED) + want <= a->limit)
            break;
    }
    zr_heap_release_all(c);
    return s.list;
}

static bool disown(struct zr_block *b, void *arg)
{
    const struct key *k = arg;

    if (zr_word_state(zr_block_word(b)) == ZR_BLOCK_LIVE && b->key == k->id &&
        __atomic_load_n(&b->context, __ATOMIC_RELAXED) == k->key.context)
        __atomic_fetch_and(&b->flags, ~(uint32_t)ZR_BLOCK_OURS, __ATOMIC_RELAXED);
    return true;
}

void zr_cache_drop_context(struct zr_cache *c, const void *context)
{
    struct sweep s = {ZR_ACCOUNTS, context, 0, zr_now(), UINT64_MAX, 0, NULL};

    zr_heap_seize_all(c);
    sweep_heaps(&s, c);
    sweep_depots(&s, c);
    for (unsigned i = 0; i < c->keys; i++) {
        struct key *k = c->key[i];

        if (!matches(&s, k))
            continue;
        for (struct heap *h = c->heaps; h; h = h->next)
            zr_heap_forget_key(h, k);
        zr_block_each(disown, k);
    }
    /* Blocks are given back by their key: only then may another key take its place. */
    zr_heap_release_all(c);
    zr_give_back(c, s.list);
    zr_lock(&c->lock);
    for (unsigned i = 0; i < c->keys; i++)
        if (matches(&s, c->key[i]))
            __atomic_store_n(&c->key[i]->used, false, __ATOMIC_RELEASE);
    zr_unlock(&c->lock);
}

uint64_t zr_cache_kept(struct zr_cache *c, unsigned account)
{
    uint64_t idle = 0;

    /* Granted is what heaps may keep and what lies in depots: take off what heaps do not use. */
    for (struct heap *h = __atomic_load_n(&c->heaps, __ATOMIC_ACQUIRE); h; h = h->next)
        idle += __atomic_load_n(&h->account[account].allowed, __ATOMIC_RELAXED) -
                __atomic_load_n(&h->account[account].kept, __ATOMIC_RELAXED);
    return __atomic_load_n(&c->account[account].granted, __ATOMIC_RELAXED) - idle;
}

void zr_cache_counts(struct zr_cache *c, struct zr_cache_counts *out)
{
    memset(out, 0, sizeof *out);
    zr_heap_seize_all(c);
    out->misses = __atomic_load_n(&c->shared_misses, __ATOMIC_RELAXED);
    for (struct heap *h = c->heaps; h; h = h->next) {
        out->hits += h->hits;
        out->misses += h->misses;
        for (unsigned i = 0; i < c->keys; i++)
            for (unsigned j = 0; h->by_key[i] && j < ZR_CLASSES; j++) {
                const struct magazine *m = &h->by_key[i]->of[j];

                out->kept_blocks += m->count + (m->reserve ? m->reserve->run_length : 0u);
            }
    }
    for (unsigned i = 0; i < c->keys; i++) {
        struct key *k = c->key[i];

        zr_lock(&k->lock);
        for (unsigned j = 0; j < ZR_CLASSES; j++)
            for (struct zr_block *run = k->runs[j]; run; run = run->run)
                out->kept_blocks += run->run_length;
        zr_unlock(&k->lock);
    }
    for (unsigned i = 0; i < ZR_ACCOUNTS; i++)
        out->kept_bytes += zr_cache_kept(c, i);
    zr_heap_release_all(c);
}
