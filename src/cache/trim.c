/* Giving back: by account, by context, by age, and to stay under a limit. All of it is cold. */
#include "cache/heap.h"

#include <sched.h>
#include <string.h>
#include <time.h>

enum { CALLS_PER_CLOCK = 64, LONG_PAUSE = 20 /* ms */, LONGEST_WAIT = 5000 /* ms */, PORTION = 1024 };

static void sweep_idle(struct zr_cache *c, uint32_t now);

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
void zr_tick(struct heap *h)
{
    struct zr_cache *c = h->cache;
    uint32_t now = zr_now(), due = __atomic_load_n(&c->next_sweep, __ATOMIC_RELAXED);

    heap_enter(h);
    h->pushed += (uint64_t)((int64_t)h->pace - h->patience);
    if (now - h->now >= LONG_PAUSE)
        h->pace = 0;
    else if (h->pace < CALLS_PER_CLOCK)
        h->pace = h->pace * 2 + 1;
    h->patience = (int32_t)h->pace;
    h->now = now;
    heap_leave(h);
    if ((int32_t)(now - due) >= 0 &&
        __atomic_compare_exchange_n(&c->next_sweep, &due, now + c->idle / 4 + 1, false,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        sweep_idle(c, now);
}

void zr_cache_set_limit(struct zr_cache *c, unsigned account, uint64_t bytes)
{
    __atomic_store_n(&c->account[account].limit, bytes < UINT64_MAX / 4 ? bytes : UINT64_MAX / 4,
                     __ATOMIC_RELAXED);
}

void zr_cache_set_exact(struct zr_cache *c, unsigned account, uint64_t bytes)
{
    __atomic_store_n(&c->account[account].exact, bytes, __ATOMIC_RELAXED);
}

void zr_cache_set_idle(struct zr_cache *c, uint32_t milliseconds)
{
    c->idle = milliseconds < INT32_MAX ? milliseconds : INT32_MAX;
    __atomic_store_n(&c->next_sweep, zr_now() + c->idle / 4 + 1, __ATOMIC_RELAXED);
}

/* What a sweep takes, and what it has taken. */
struct sweep {
    unsigned account;    /* ZR_ACCOUNTS: all */
    const void *context; /* NULL: all */
    uint32_t min_age;    /* ms */
    uint32_t now;
    uint64_t enough; /* lists are left alone once so many bytes were taken, */
    uint32_t most;   /* or so many blocks, */
    uint64_t least;  /* if these are so many bytes */
    uint32_t blocks;
    uint64_t bytes;
    struct zr_block *list;
};

static bool is_done(const struct sweep *s)
{
    return s->bytes >= s->enough || (s->blocks >= s->most && s->bytes >= s->least);
}

static bool is_old(const struct sweep *s, uint32_t stamp)
{
    return !s->min_age || (int32_t)(s->now - stamp) >= (int32_t)s->min_age;
}

/* Takes the oldest of a list, oldest first, as many as are needed and old enough; returns how many. */
static unsigned cut(struct sweep *s, struct zr_block **list, unsigned length, uint64_t held)
{
    unsigned n = 0;

    for (; n < length && !is_done(s) && is_old(s, list[n]->stamp); n++) {
        struct zr_block *b = list[n];

        s->bytes += held;
        s->blocks++;
        b->link = s->list;
        s->list = b;
    }
    if (n)
        memmove(list, list + n, (length - n) * sizeof *list);
    return n;
}

static bool matches(const struct sweep *s, const struct bin *bin)
{
    const struct zr_key *key = &bin->key->key;

    return bin->used && (s->account == ZR_ACCOUNTS || s->account == key->account) &&
           (!s->context || s->context == key->context);
}

/* With all heaps seized. Room that is not used is given up. Threads that ended have left nothing in theirs. */
static void sweep_heaps(struct sweep *s, struct zr_cache *c)
{
    for (struct heap *h = c->heaps; h; h = h->next)
        for (unsigned id = 1; h->in_use && id <= c->bins; id++) {
            struct bin *bin = c->bin[id];
            struct magazine *m = &h->of[id];
            struct zr_block *list[LARGEST_MAGAZINE];
            unsigned count, gone;

            if (!m->room || !matches(s, bin))
                continue;
            count = zr_magazine_list(m, list);
            gone = cut(s, list, count, bin->held);
            h->moved -= gone;
            zr_ungrant(c, bin->key->key.account, (m->room - (count - gone)) * bin->held);
            zr_magazine_fill(m, list, count - gone, count - gone);
        }
}

static void sweep_depots(struct sweep *s, struct zr_cache *c)
{
    for (unsigned id = 1; id <= c->bins; id++) {
        struct bin *bin = c->bin[id];
        uint64_t before = s->bytes;

        if (!matches(s, bin))
            continue;
        zr_lock(&bin->lock);
        for (struct run **at = &bin->runs; *at && !is_done(s);) {
            struct run *run = *at;

            if (is_old(s, run->stamp))
                run->length -= cut(s, run->at, run->length, bin->held);
            if (run->length) {
                at = &run->next;
                continue;
            }
            __atomic_store_n(at, run->next, __ATOMIC_RELAXED);
            run->next = bin->spare;
            bin->spare = run;
        }
        zr_unlock(&bin->lock);
        zr_ungrant(c, bin->key->key.account, s->bytes - before);
    }
}

void zr_give_back(struct zr_cache *c, struct zr_block *list)
{
    bool some = list != NULL;

    while (list) {
        struct zr_block *b = list;
        const struct zr_key *key = &c->bin[b->bin]->key->key;

        list = b->link;
        b->context = key->context;
        /* Out of the map first: the driver may hand the address to another thread at once. */
        zr_index_remove(b);
        __atomic_store_n(&b->word, b->word & ~(uint64_t)0xff, __ATOMIC_RELEASE);
        c->backing.free(c->backing.arg, b);
        zr_block_recycle(b);
    }
    if (some)
        __atomic_fetch_add(&c->returned, 1, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&c->giving, 1, __ATOMIC_RELEASE);
}

/* With the lock held: nobody takes out more. False: it has taken so many milliseconds already. */
static bool wait_for_givers(const struct zr_cache *c, uint32_t longest)
{
    uint32_t began = zr_now();

    while (__atomic_load_n(&c->giving, __ATOMIC_ACQUIRE)) {
        if (zr_now() - began >= longest)
            return false;
        ZR_PAUSE("waiting for what is given back");
        sched_yield();
    }
    return true;
}

bool zr_cache_await(struct zr_cache *c)
{
    bool all;

    if (!__atomic_load_n(&c->giving, __ATOMIC_ACQUIRE))
        return true;
    zr_lock(&c->lock);
    all = wait_for_givers(c, LONGEST_WAIT);
    zr_unlock(&c->lock);
    return all;
}

uint32_t zr_cache_returned(const struct zr_cache *c)
{
    return __atomic_load_n(&c->returned, __ATOMIC_ACQUIRE);
}

static void sweep(struct sweep *s, struct zr_cache *c)
{
    zr_heap_seize_all(c);
    sweep_heaps(s, c);
    sweep_depots(s, c);
    zr_giving(c);
    zr_heap_release_all(c);
    zr_give_back(c, s->list);
}

uint64_t zr_cache_trim(struct zr_cache *c, unsigned account, const void *context, uint32_t min_age)
{
    struct sweep s = {.account = account, .context = context, .min_age = min_age, .now = zr_now(),
                      .enough = UINT64_MAX, .most = UINT32_MAX};

    sweep(&s, c);
    return s.bytes;
}

/* The call that notices was made for something else: it gives back a portion, and others follow soon. */
static void sweep_idle(struct zr_cache *c, uint32_t now)
{
    struct sweep s = {.account = ZR_ACCOUNTS, .min_age = c->idle, .now = now, .enough = UINT64_MAX, .most = PORTION};

    sweep(&s, c);
    if (is_done(&s))
        __atomic_store_n(&c->next_sweep, now + 2 * (zr_now() - now) + 1, __ATOMIC_RELAXED);
}

/*
 * The age at which enough would go is found by a quarter at a time: a handful of passes over lists that are short, and
 * no sorting. A sixteenth of the limit more than needed is taken, so that this stays rare; but not of blocks without
 * number, which the caller would wait for.
 */
void zr_make_room(struct zr_cache *c, unsigned account, uint64_t bytes)
{
    struct account *a = &c->account[account];
    uint64_t want = bytes + a->limit / 16;
    struct sweep s = {.account = account, .min_age = c->idle, .now = zr_now(), .enough = want, .most = PORTION,
                      .least = bytes};

    if (bytes > a->limit)
        return;
    zr_heap_seize_all(c);
    for (;; s.min_age /= 4) {
        sweep_depots(&s, c);
        sweep_heaps(&s, c);
        if (is_done(&s) || s.min_age == 0 ||
            __atomic_load_n(&a->granted, __ATOMIC_RELAXED) + want <= a->limit)
            break;
    }
    zr_giving(c);
    zr_heap_release_all(c);
    zr_give_back(c, s.list);
}

/* Blocks whose key found no bin are known by their context alone. */
static bool disown(struct zr_block *b, void *arg)
{
    const void *context = arg;

    if (zr_word_state(zr_block_word(b)) == ZR_BLOCK_LIVE &&
        __atomic_load_n(&b->context, __ATOMIC_RELAXED) == context &&
        (__atomic_fetch_and(&b->flags, ~(uint32_t)ZR_BLOCK_OURS, __ATOMIC_RELAXED) & ZR_BLOCK_OURS))
        zr_index_remove(b);
    return true;
}

void zr_cache_drop_context(struct zr_cache *c, const void *context)
{
    struct sweep s = {.account = ZR_ACCOUNTS, .context = context, .enough = UINT64_MAX, .most = UINT32_MAX};

    zr_heap_seize_all(c);
    sweep_heaps(&s, c);
    sweep_depots(&s, c);
    zr_block_each(disown, (void *)(uintptr_t)context);
    for (unsigned id = 1; id <= c->bins; id++)
        if (matches(&s, c->bin[id])) {
            c->bin[id]->used = false;
            for (struct heap *h = c->heaps; h; h = h->next)
                zr_heap_forget_key(h, c->bin[id]->key);
        }
    zr_giving(c);
    zr_heap_release_all(c);
    zr_give_back(c, s.list);
    zr_lock(&c->lock);
    /*
     * Others may have taken blocks of this context out and be giving them back still: by their key, so that no
     * other may take its place yet, and to this context, so that it may not go yet.
     */
    while (!wait_for_givers(c, UINT32_MAX))
        ;
    for (unsigned i = 0; i < c->keys; i++)
        if (c->key[i]->used && c->key[i]->key.context == context)
            zr_key_drop(c, c->key[i]);
    zr_unlock(&c->lock);
}

/* With all heaps seized: granted is the room in magazines and what lies in depots; not all room is used. */
static uint64_t kept(struct zr_cache *c, unsigned account)
{
    uint64_t idle = 0;

    for (struct heap *h = c->heaps; h; h = h->next)
        for (unsigned id = 1; h->in_use && id <= c->bins; id++)
            if (c->bin[id]->key->key.account == account)
                idle += (h->of[id].room - magazine_count(&h->of[id])) * c->bin[id]->held;
    return __atomic_load_n(&c->account[account].granted, __ATOMIC_RELAXED) - idle;
}

uint64_t zr_cache_kept(struct zr_cache *c, unsigned account)
{
    uint64_t bytes;

    zr_heap_seize_all(c);
    bytes = kept(c, account);
    zr_heap_release_all(c);
    return bytes;
}

void zr_cache_counts(struct zr_cache *c, struct zr_cache_counts *out)
{
    memset(out, 0, sizeof *out);
    zr_heap_seize_all(c);
    out->misses = __atomic_load_n(&c->shared_misses, __ATOMIC_RELAXED);
    for (struct heap *h = c->heaps; h; h = h->next) {
        uint64_t blocks = 0;

        for (unsigned id = 1; id <= c->bins; id++)
            blocks += magazine_count(&h->of[id]);
        out->kept_blocks += blocks;
        out->misses += __atomic_load_n(&h->misses, __ATOMIC_RELAXED);
        out->hits += h->pushed + (uint64_t)((int64_t)h->pace - h->patience) + h->moved - blocks;
    }
    for (unsigned id = 1; id <= c->bins; id++) {
        struct bin *bin = c->bin[id];

        zr_lock(&bin->lock);
        for (struct run *run = bin->runs; run; run = run->next)
            out->kept_blocks += run->length;
        zr_unlock(&bin->lock);
    }
    for (unsigned i = 0; i < ZR_ACCOUNTS; i++)
        out->kept_bytes += kept(c, i);
    zr_heap_release_all(c);
}
