/*
 * Random operations on both allocators, checked step by step against a plain list. ZEROUTE_MODEL_STEPS sets
 * how many (CI: ten million, with the sanitizers); ZEROUTE_MODEL_SEED repeats a run that failed.
 */
#include "cache/cache.h"
#include "suite.h"

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

enum { LIVE = 96, HELD = 4096, FULL = 0x70000003, KEYS = 4 };
#define MIB ((size_t)1 << 20)

static uint64_t seed, step;

/* Check writes a line to a pipe for every assertion: here only for one that fails. */
#define HOLDS(claim)                                                                                                   \
    do {                                                                                                               \
        if (!(claim))                                                                                                  \
            ck_abort_msg("step %" PRIu64 ": not so: %s", step, #claim);                                                \
    } while (0)

static uint64_t draw(uint64_t below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static size_t draw_size(void) {
    size_t size = ((size_t)1 << draw(25)) + draw(4096);

    return draw(50) ? size : draw(2);
}

/* --- the driver: every block that it has handed out, in a plain list -------------------------------------- */
static struct {
    struct {
        uintptr_t base;
        size_t size;
        void *context;
    } block[HELD];
    size_t count;
    uintptr_t next;
    uint64_t held, room;
} driver;

/* A block in the map, LIVE, or NULL. */
static struct zr_block *hand_out(const struct zr_key *key, size_t size, size_t held) {
    uintptr_t mask = key->align ? ((uintptr_t)1 << (key->align - 1)) - 1 : 0;
    struct zr_block *b;

    driver.next = (driver.next + mask) & ~mask;
    if (driver.held + held > driver.room || driver.count == HELD)
        return NULL;
    driver.block[driver.count].base = driver.next;
    driver.block[driver.count].size = held;
    driver.block[driver.count++].context = key->context;
    b = zr_block_new();
    HOLDS(b);
    zr_block_place(b, driver.next, size, held);
    zr_block_set_key(b, key);
    HOLDS(zr_map_insert(b));
    /* Some blocks share a 64 KiB page, as in the driver's pools. */
    driver.next += ((held | 1) + 511) & ~(size_t)511;
    if (draw(2))
        driver.next = (driver.next + 0xffff) & ~(uintptr_t)0xffff;
    driver.held += held;
    return b;
}

static size_t find(uintptr_t base) {
    for (size_t i = 0; i < driver.count; i++)
        if (driver.block[i].base == base)
            return i;
    return HELD;
}

static enum zr_released take_back(struct zr_block *b) {
    size_t i = find(b->base);

    HOLDS(i < HELD);
    HOLDS(driver.block[i].size == b->held);
    HOLDS(driver.block[i].context == b->key.context);
    HOLDS(zr_word_state(zr_block_word(b)) >= ZR_BLOCK_LEAVING);
    driver.held -= b->held;
    driver.block[i] = driver.block[--driver.count];
    return ZR_RELEASED;
}

static struct zr_block *segment_alloc(void *arg, size_t size, int *code) {
    static const struct zr_key key;
    struct zr_block *b = hand_out(&key, size, size);

    (void)arg;
    *code = b ? 0 : FULL;
    return b;
}

static void segment_free(void *arg, struct zr_block *b) {
    (void)arg;
    HOLDS(zr_map_take((void *)b->base) == b);
    take_back(b);
    zr_block_recycle(b);
}

/* --- the model: what the program holds --------------------------------------------------------------------- */
static struct {
    char *p;
    size_t size, usable;
    void *context;
} live[LIVE];
static size_t lives;

static void check_new(const char *p, size_t size) {
    for (size_t i = 0; i < lives; i++)
        HOLDS(p + size <= live[i].p || live[i].p + live[i].size <= p || (size == 0 && p != live[i].p));
}

static void forget(size_t i) {
    live[i] = live[--lives];
}

static uint64_t steps(void) {
    const char *text = getenv("ZEROUTE_MODEL_STEPS");

    return text ? strtoull(text, NULL, 10) : 200000;
}

static void begin(uint64_t salt) {
    const char *text = getenv("ZEROUTE_MODEL_SEED");

    seed = (text ? strtoull(text, NULL, 10) : 88172645463325252u) ^ salt;
    memset(&driver, 0, sizeof driver);
    driver.next = 0x7d0000000000;
    driver.room = 4096 * MIB;
    lives = 0;
}

static void whole_get(void) {
    struct zr_key key = {
        .context = (void *)(0x1000 + draw(KEYS) * 16), .account = 3, .align = draw(8) ? 0 : (uint8_t)(1 + draw(21))};
    size_t size = draw_size(), held = zr_cache_round(size);
    struct zr_block *b;

    if (lives == LIVE)
        return;
    driver.room = draw(100) ? 4096 * MIB : driver.held;
    b = zr_cache_get(&key, held, size);
    if (!b && !(b = hand_out(&key, size, held)))
        return;
    HOLDS(find(b->base) < HELD);
    HOLDS(driver.block[find(b->base)].size == b->held);
    HOLDS(driver.block[find(b->base)].context == key.context);
    HOLDS(key.align == 0 || (b->base & (((uintptr_t)1 << (key.align - 1)) - 1)) == 0);
    HOLDS(b->size == size && b->held == held);
    HOLDS(zr_map_base((void *)b->base) == b);
    check_new((char *)b->base, b->held);
    live[lives].p = (char *)b->base;
    live[lives].size = size;
    live[lives++].context = key.context;
}

static void release_live(size_t i, bool keep) {
    uint64_t word = 0;
    struct zr_block *b = zr_map_look(live[i].p, &word);

    HOLDS(b && zr_word_state(word) == ZR_BLOCK_LIVE && b->size == live[i].size);
    HOLDS(zr_block_shift(b, word, ZR_BLOCK_CACHED));
    HOLDS(!zr_block_shift(b, word, ZR_BLOCK_CACHED));
    HOLDS(!zr_map_take(live[i].p));
    if (keep && zr_cache_takes(b->key.account, b->held)) {
        zr_cache_put(b);
    } else {
        HOLDS(zr_block_shift(b, zr_block_word(b), ZR_BLOCK_LEAVING));
        take_back(b);
        zr_block_recycle(b);
    }
    forget(i);
}

static void whole_put(void) {
    if (lives)
        release_live(draw(lives), draw(10) != 0);
}

static void whole_look(void) {
    struct zr_block *b;
    uint64_t word = 0;
    char *inside;
    size_t i;

    if (lives == 0)
        return;
    i = draw(lives);
    b = zr_map_base(live[i].p);
    HOLDS(b);
    HOLDS(b->held == 0 || zr_map_around(live[i].p + b->held - 1, &word) == b);
    HOLDS(zr_map_around(live[i].p + b->held, &word) != b);
    if (live[i].size == 0)
        return;
    inside = live[i].p + draw(live[i].size);
    HOLDS(zr_map_find(inside) == b);
    HOLDS(zr_map_find(live[i].p + live[i].size) != b);
}

static void whole_rare(void) {
    void *context = (void *)(0x1000 + draw(KEYS) * 16);

    switch (draw(4)) {
    case 0:
        zr_cache_trim(ZR_ACCOUNTS, draw(2) ? context : NULL);
        break;
    case 1:
        zr_cache_set_limit(3, draw(2) ? UINT64_MAX : draw(512) * MIB);
        break;
    case 2:
        for (size_t i = lives; i-- > 0;)
            if (live[i].context == context)
                release_live(i, true);
        zr_cache_trim(ZR_ACCOUNTS, context);
        for (size_t i = 0; i < driver.count; i++)
            HOLDS(driver.block[i].context != context);
        break;
    default:
        zr_cache_setup(take_back, draw(2) ? 1 : UINT32_MAX);
        break;
    }
}

/* Another thread, with a stripe of its own, takes a step now and then; nobody else moves meanwhile. */
static struct {
    pthread_t thread;
    sem_t begin, end;
    void (*step)(void);
} other;

static void *take_steps(void *arg) {
    for (;;) {
        sem_wait(&other.begin);
        if (!other.step)
            return arg;
        other.step();
        sem_post(&other.end);
    }
}

static void start_other(void) {
    sem_init(&other.begin, 0, 0);
    sem_init(&other.end, 0, 0);
    HOLDS(pthread_create(&other.thread, NULL, take_steps, NULL) == 0);
}

static void let_other(void (*take)(void)) {
    other.step = take;
    sem_post(&other.begin);
    sem_wait(&other.end);
}

static void stop_other(void) {
    other.step = NULL;
    sem_post(&other.begin);
    pthread_join(other.thread, NULL);
}

START_TEST(whole_blocks_agree_with_a_plain_list) {
    uint64_t end = steps(), held;

    begin(1);
    zr_cache_setup(take_back, UINT32_MAX);
    zr_cache_set_limit(3, UINT64_MAX);
    start_other();
    for (step = 0; step < end; step++) {
        uint64_t what = draw(1000);

        if (step % 50000 == 0) {
            stop_other();
            start_other();
        }
        if (draw(200) == 0)
            let_other(what < 480 ? whole_get : what < 950 ? whole_put : what < 998 ? whole_look : whole_rare);
        else if (what < 480)
            whole_get();
        else if (what < 950)
            whole_put();
        else if (what < 998)
            whole_look();
        else
            whole_rare();
        if (step % 64)
            continue;
        held = zr_cache_bytes(3);
        for (size_t i = 0; i < lives; i++)
            held += zr_map_base(live[i].p)->held;
        HOLDS(held == driver.held);
    }
    stop_other();
    while (lives)
        release_live(0, true);
    zr_cache_trim(ZR_ACCOUNTS, NULL);
    HOLDS(driver.held == 0);
}
END_TEST

static struct zr_pool *pool;

static void pool_get(void) {
    size_t size = draw_size() + 1, align = draw(4) ? 0 : (size_t)1 << draw(17), usable;
    void *p = NULL;
    bool grew;

    driver.room = draw(100) ? 4096 * MIB : driver.held;
    if (zr_pool_malloc(pool, size, align, &p, &grew) != 0) {
        HOLDS(!p && grew);
        return;
    }
    HOLDS(!align || ((uintptr_t)p & (align - 1)) == 0);
    usable = zr_pool_usable(pool, p);
    HOLDS(usable >= size);
    check_new(p, usable);
    live[lives].p = p;
    live[lives].usable = usable;
    live[lives++].size = size;
}

static void pool_put(size_t i) {
    size_t size;

    HOLDS(zr_pool_usable(pool, live[i].p) == live[i].usable);
    if (draw(8) == 0)
        HOLDS(zr_pool_free(pool, live[i].p + 1 + draw(511), &size) == ZR_FREED_INTERIOR);
    HOLDS(zr_pool_free(pool, live[i].p, &size) == ZR_FREED);
    HOLDS(size == live[i].size);
    HOLDS(zr_pool_free(pool, live[i].p, &size) != ZR_FREED);
    HOLDS(zr_pool_usable(pool, live[i].p) == 0);
    forget(i);
}

static void pool_rare(uint64_t what) {
    switch (what) {
    case 0:
        zr_pool_trim(pool, draw(2) * draw(64) * MIB);
        break;
    case 1:
        zr_pool_set_limits(pool, draw(2) ? UINT64_MAX : draw(64) * MIB, draw(2) ? 1 : UINT32_MAX);
        break;
    case 2:
        if (lives)
            zr_block_mark(zr_map_find(live[draw(lives)].p), ZR_BLOCK_EXPORTED);
        break;
    default:
        while (lives)
            pool_put(0);
        zr_pool_trim(pool, 0);
        HOLDS(driver.held == 0);
    }
}

START_TEST(split_blocks_agree_with_a_plain_list) {
    static const struct zr_pool_backing backing = {NULL, segment_alloc, segment_free};
    struct zr_pool_counts counts;
    uint64_t end = steps();

    begin(2);
    pool = zr_pool_new(&backing, 0);
    for (step = 0; step < end; step++) {
        uint64_t what = draw(1000);

        if (what < 500 && lives < LIVE)
            pool_get();
        else if (what < 980 && lives)
            pool_put(draw(lives));
        else if (what >= 996)
            pool_rare(what - 996);
        if (step % 64)
            continue;
        zr_pool_counts(pool, &counts);
        HOLDS(counts.held == driver.held && counts.live == lives);
    }
    zr_pool_delete(pool);
    HOLDS(driver.held == 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache model");
    TCase *c = tcase_create("model");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 3600);
    tcase_add_test(c, whole_blocks_agree_with_a_plain_list);
    tcase_add_test(c, split_blocks_agree_with_a_plain_list);
    return run_suite(suite);
}
