/*
 * What other settings would have done: the steps of a record, taken by the very allocators of the preload over a driver
 * that only counts, on a clock that the record drives. Each in a process of its own, because the allocators are global.
 */
#include "common/common.h"

#include "base/settings.h"
#include "cache/cache.h"
#include "replay/replay.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RUNTIME_POOLS_UP_TO = 4 << 20, EXACT_PART = 1024 };
static const uint64_t usual_cache = (uint64_t)256 << 20;

uint32_t zr_virtual_ms; /* what zr_now_ms() says in this program */

static struct zr_settings c;
static const struct zr_recorded *r;
static struct zr_outcome out;
static uint64_t next = (uint64_t)1 << 44, held_by[ZR_REPLAY_CARDS], limit[ZR_REPLAY_CARDS], share[ZR_REPLAY_CARDS],
                reserved;
static struct zr_pool *pool[ZR_REPLAY_CARDS];
static struct zr_key segment_key[ZR_REPLAY_CARDS];

/* limit:auto is all that the card has: what other processes had of it is not in the record. */
static uint64_t amount(const struct zr_amount *a, uint64_t total, uint64_t otherwise) {
    if (!a->set || ((a->percent_x100 || a->is_auto) && !total))
        return otherwise;
    if (a->is_auto)
        return total;
    return a->percent_x100 ? (uint64_t)((zr_u128)total * a->percent_x100 / 10000) : a->bytes;
}

static void change(unsigned card, int64_t bytes, bool is_device) {
    held_by[card] += (uint64_t)bytes;
    reserved += (uint64_t)bytes;
    out.driver_calls += is_device;
    if (reserved > out.peak_reserved)
        out.peak_reserved = reserved;
}

static void trim(unsigned card) {
    zr_cache_trim(card, NULL);
    zr_pools_trim(card);
}

/* Within the limit, if need be after everything that is cached has gone back. */
static bool fits(unsigned card, uint64_t bytes) {
    if (bytes <= limit[card] && held_by[card] <= limit[card] - bytes)
        return true;
    trim(card);
    return bytes <= limit[card] && held_by[card] <= limit[card] - bytes;
}

static struct zr_block *driver_alloc(const struct zr_key *key, size_t size, size_t held) {
    struct zr_block *b = fits(key->account, held) ? zr_block_new() : NULL;

    if (!b)
        return NULL;
    zr_block_place(b, (uintptr_t)next, size, held);
    zr_block_set_key(b, key);
    if (!zr_map_insert(b)) {
        zr_block_recycle(b);
        return NULL;
    }
    next += (held + 0x1fffff) & ~(uint64_t)0x1fffff;
    change(key->account, (int64_t)held, true);
    return b;
}

static enum zr_released release(struct zr_block *b) {
    change(b->key.account, -(int64_t)b->held, true);
    return ZR_RELEASED;
}

static struct zr_block *segment_alloc(void *key, size_t size, int *code) {
    struct zr_block *b = driver_alloc(key, size, size);

    *code = b ? 0 : ZR_NO_MEMORY;
    return b;
}

static void segment_free(void *key, struct zr_block *b) {
    (void)key;
    release(b);
    zr_block_recycle(zr_map_take((void *)b->base));
}

/* --- steps ------------------------------------------------------------------------------------------------------ */

enum way { GONE, PASSED, POOLED, WHOLE };
struct slot {
    void *ptr;
    uint64_t held;
    uint64_t requested; /* bit n: residency on card n */
    uint8_t way, card;
    bool is_device;
};

static bool is_pooled(const struct zr_step *s) {
    bool all = c.route == ZR_ROUTE_POOL && !r->pieces; /* the record is of another route: what if it were the pool's */

    return c.cache && s->is_device && (c.route == ZR_ROUTE_POOL || c.route == ZR_ROUTE_AUTO) && (all || s->is_piece) &&
           (c.reuse == ZR_REUSE_ALWAYS || s->bytes <= RUNTIME_POOLS_UP_TO);
}

static void *context_of(const struct zr_step *s) {
    return (void *)(uintptr_t)(s->context & UINT64_MAX >> 16);
}

/* As reserve_for() of policy/alloc.c. */
static size_t reserve_for(const struct zr_step *s) {
    size_t held = zr_cache_round(s->bytes);

    if (c.limit.set && s->bytes > limit[s->card] / EXACT_PART)
        return s->bytes;
    return held <= share[s->card] ? held : s->bytes;
}

/* Where the next block of a context and card will be resident, as policy/residency.c expects it. */
enum { REMEMBERED = 256 };
static struct expected {
    const void *context;
    uint64_t cards;
    unsigned card;
} expected[REMEMBERED];

static struct expected *expected_of(const void *context, unsigned card) {
    uintptr_t bits = (uintptr_t)context;
    struct expected *e = &expected[((bits >> 4 ^ bits >> 12) + card * (uintptr_t)37) % REMEMBERED];

    if (e->context != context || e->card != card)
        *e = (struct expected){.context = context, .card = card};
    return e;
}

/* Contexts that were destroyed last: a block that is freed after its context is not cached. */
static struct {
    const void *context;
    uint32_t at; /* slots above it belong to a later context of that address */
} gone[4096];

static unsigned place_of(const void *context) {
    return (unsigned)((uintptr_t)context * UINT64_C(0x9e3779b97f4a7c15) >> 52);
}

static bool outlives_its_context(const void *context, uint32_t slot) {
    unsigned i = place_of(context);

    return gone[i].context == context && slot < gone[i].at;
}

static void end_context(const struct zr_step *s) {
    void *context = context_of(s);
    unsigned i = place_of(context);

    gone[i].context = context;
    gone[i].at = s->slot;
    for (unsigned n = 0; n < REMEMBERED; n++)
        expected[n].cards = expected[n].context == context ? 0 : expected[n].cards;
    zr_cache_trim(ZR_ACCOUNTS, context);
}

static void change_residency(const struct zr_step *s, struct slot *at) {
    struct zr_block *b = at->way == WHOLE ? zr_map_find(at->ptr) : NULL;
    uint64_t bit = UINT64_C(1) << s->card;

    if (!b || (s->op == ZR_STEP_RESIDENT && c.residency == ZR_RESIDENCY_OWNER && s->card != at->card))
        return;
    if (s->op == ZR_STEP_EVICT) {
        b->residents &= ~bit;
    } else {
        b->residents |= bit;
        at->requested |= bit;
    }
}

static void allocate(const struct zr_step *s, struct slot *at, bool cached_then) {
    struct zr_key key = {
        .device = &out, .context = context_of(s), .account = s->card, .flags = (uint32_t)(s->context >> 48)};
    bool grew = false, whole = c.cache && s->is_device && !s->is_piece && (s->may_cache || !cached_then);
    struct zr_block *b = NULL;

    *at = (struct slot){.card = s->card, .held = s->bytes, .is_device = s->is_device};
    if (is_pooled(s)) {
        at->way =
            zr_pool_malloc(pool[s->card], s->bytes ? s->bytes : 1, ZR_POOL_GRAIN, &at->ptr, &grew) ? GONE : POOLED;
        out.hits += at->way == POOLED && !grew;
    } else if (whole) {
        at->held = reserve_for(s);
        key.residents = expected_of(key.context, s->card)->cards;
        b = zr_cache_get(&key, at->held, s->bytes);
        out.hits += b != NULL;
        key.residents = 0;
        if (!b)
            b = driver_alloc(&key, s->bytes, at->held);
        at->ptr = b ? (void *)b->base : NULL;
        at->way = b ? WHOLE : GONE;
    } else if (fits(s->card, s->bytes)) {
        change(s->card, (int64_t)s->bytes, s->is_device);
        at->way = PASSED;
    }
    out.refused += at->way == GONE;
}

static void give_back(const struct zr_step *s, struct slot *at, bool may_cache) {
    struct zr_block *b;
    uint64_t word;
    size_t size;

    if (at->way == POOLED) {
        zr_pool_free(pool[at->card], at->ptr, &size);
    } else if (at->way == PASSED) {
        change(at->card, -(int64_t)at->held, at->is_device);
    } else if (at->way == WHOLE) {
        b = zr_map_look(at->ptr, &word);
        may_cache = may_cache && !outlives_its_context(b->key.context, s->slot);
        if (may_cache)
            expected_of(b->key.context, at->card)->cards = at->requested;
        if (may_cache && zr_cache_takes(at->card, b->held) && zr_block_shift(b, word, ZR_BLOCK_CACHED)) {
            zr_cache_put(b);
        } else {
            release(b);
            zr_block_recycle(zr_map_take((void *)b->base));
        }
    }
    at->way = GONE;
}

static bool simulate(bool cached_then) {
    uint32_t idle = c.cache_idle / 1000000 < UINT32_MAX ? (uint32_t)(c.cache_idle / 1000000) : UINT32_MAX;
    struct slot *slot = calloc((size_t)r->slots + 1, sizeof *slot);

    zr_virtual_ms = r->step[0].ms;
    zr_cache_setup(release, idle ? idle : 1);
    for (unsigned i = 0; slot && i < ZR_REPLAY_CARDS; i++) {
        uint64_t total = r->card_memory[i];
        const struct zr_pool_backing backing = {&segment_key[i], segment_alloc, segment_free};

        limit[i] = amount(&c.limit, total, UINT64_MAX);
        share[i] = amount(&c.cache_limit, total, total / 50 > usual_cache ? total / 50 : usual_cache);
        zr_cache_set_limit(i, share[i]);
        segment_key[i] = (struct zr_key){.device = &out, .account = (uint16_t)i};
        pool[i] = zr_pool_new(&backing, i);
        if (!pool[i])
            return false;
        zr_pool_set_limits(pool[i], share[i], idle ? idle : 1);
    }
    for (size_t i = 0; slot && i < r->steps; i++) {
        const struct zr_step *s = &r->step[i];

        zr_virtual_ms = s->ms;
        if (s->op == ZR_STEP_ALLOC) {
            allocate(s, &slot[s->slot], cached_then);
        } else if (s->op == ZR_STEP_FREE) {
            give_back(s, &slot[s->slot], s->may_cache || !cached_then);
        } else if (s->op == ZR_STEP_TRIM) {
            trim(s->card < ZR_REPLAY_CARDS ? s->card : (unsigned)ZR_ACCOUNTS);
        } else if (s->op == ZR_STEP_CONTEXT_GO) {
            end_context(s);
        } else {
            change_residency(s, &slot[s->slot]);
        }
    }
    free(slot);
    return slot != NULL;
}

/* --- settings -------------------------------------------------------------------------------------------------- */

struct complaint {
    char *why;
    size_t size;
};

static void complain(const char *what, void *data) {
    struct complaint *to = data;

    snprintf(to->why, to->size, "%s", what);
}

/* The recorded settings, changed by "reroute", "limit:8GiB" or several joined by +. */
static bool apply(const char *change_to, char *why, size_t size) {
    struct complaint to = {why, size};
    char text[1024];

    zr_settings_default(&c);
    zr_settings_parse(&c, r->settings, ',', complain, &to); /* what this version does not know is left out */
    if (!*change_to)
        return true;
    snprintf(text, sizeof text, "%s%s", strchr(change_to, ':') ? "" : "preset:", change_to);
    for (char *p = text; *p; p++)
        if (*p == '+')
            *p = ',';
    if (zr_settings_parse(&c, text, ',', complain, &to))
        return true;
    char *value = strchr(text, ':');
    if (value && !strchr(value, ',')) {
        *value++ = '\0';
        zr_did_you_mean(text, value, why, size);
    }
    return false;
}

bool zr_what_if(const struct zr_recorded *recorded, const char *settings, struct zr_outcome *outcome, char *why,
                size_t size) {
    int ends[2], status = 1;
    bool cached_then;
    pid_t child;

    r = recorded;
    apply("", why, size);
    cached_then = c.cache;
    if (!apply(settings, why, size))
        return false;
    snprintf(why, size, "out of memory");
    if (pipe(ends) != 0)
        return false;
    fflush(NULL);
    child = fork();
    if (child == 0) {
        bool good = simulate(cached_then) && write(ends[1], &out, sizeof out) == sizeof out;

        _exit(!good);
    }
    close(ends[1]);
    bool good = child > 0 && read(ends[0], outcome, sizeof *outcome) == sizeof *outcome;
    close(ends[0]);
    if (child > 0)
        waitpid(child, &status, 0);
    return good && status == 0;
}
