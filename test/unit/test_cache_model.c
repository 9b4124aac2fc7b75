/*
 * Random operations on both allocators, checked step by step against a plain list. ZEROUTE_MODEL_STEPS sets
 * how many (CI: ten million, with the sanitizers); ZEROUTE_MODEL_SEED repeats a run that failed.
 */
#include "cache/cache.h"
#include "cache/classes.h"
#include "cache/pool.h"
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
#define HOLDS(claim)                                                                               \
    do {                                                                                           \
        if (!(claim))                                                                              \
            ck_abort_msg("step %" PRIu64 ": not so: %s", step, #claim);                            \
    } while (0)

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static size_t draw_size(void)
{
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

static int hand_out(size_t size, unsigned align, void *context, void **out)
{
    uintptr_t mask = ((uintptr_t)1 << align) - 1;

    driver.next = (driver.next + mask) & ~mask;
    if (driver.held + size > driver.room || driver.count == HELD)
        return FULL;
    driver.block[driver.count].base = driver.next;
    driver.block[driver.count].size = size;
    driver.block[driver.count++].context = context;
    *out = (void *)driver.next;
    /* Some blocks share a 64 KiB page, as in the driver's pools. */
    driver.next += ((size | 1) + 511) & ~(size_t)511;
    if (draw(2))
        driver.next = (driver.next + 0xffff) & ~(uintptr_t)0xffff;
    driver.held += size;
    return 0;
}

static size_t find(uintptr_t base)
{
    for (size_t i = 0; i < driver.count; i++)
        if (driver.block[i].base == base)
            return i;
    return HELD;
}

static int take_back(uintptr_t base, size_t size, const void *context)
{
    size_t i = find(base);

    HOLDS(i < HELD);
    HOLDS(driver.block[i].size == size);
    HOLDS(driver.block[i].context == context);
    driver.held -= size;
    driver.block[i] = driver.block[--driver.count];
    return 0;
}

static int whole_alloc(void *arg, const struct zr_key *key, size_t size, void **out)
{
    (void)arg;
    return hand_out(size, key->align, key->context, out);
}

static int whole_free(void *arg, const struct zr_block *b)
{
    (void)arg;
    return take_back(b->base, b->held, b->context);
}

static bool is_full(int code)
{
    return code == FULL;
}

static int split_alloc(void *arg, size_t size, void **out)
{
    (void)arg;
    return hand_out(size, 0, NULL, out);
}

static int split_free(void *arg, void *p, size_t size)
{
    (void)arg;
    return take_back((uintptr_t)p, size, NULL);
}

/* --- the model: what the program holds --------------------------------------------------------------------- */
static struct {
    char *p;
    size_t size;
    bool exported;
    void *context;
} live[LIVE];
static size_t lives;

static void check_new(const char *p, size_t size)
{
    for (size_t i = 0; i < lives; i++)
        HOLDS(p + size <= live[i].p || live[i].p + live[i].size <= p ||
                          (size == 0 && p != live[i].p));
}

static void forget(size_t i)
{
    live[i] = live[--lives];
}

static uint64_t steps(void)
{
    const char *text = getenv("ZEROUTE_MODEL_STEPS");

    return text ? strtoull(text, NULL, 10) : 200000;
}

static void begin(uint64_t salt)
{
    const char *text = getenv("ZEROUTE_MODEL_SEED");

    seed = (text ? strtoull(text, NULL, 10) : 88172645463325252u) ^ salt;
    memset(&driver, 0, sizeof driver);
    driver.next = 0x7d0000000000;
    driver.room = 4096 * MIB;
    lives = 0;
}

static struct zr_cache *cache;
static struct zr_freed_block was;

static void whole_get(void)
{
    struct zr_key key = {.context = (void *)(0x1000 + draw(KEYS) * 16),
                         .account = 3,
                         .align = draw(8) ? 0 : (uint8_t)(1 + draw(21))};
    size_t size = draw_size();
    int code = 0;
    struct zr_block *b;

    if (lives == LIVE)
        return;
    driver.room = draw(100) ? 4096 * MIB : driver.held;
    b = zr_cache_alloc(cache, &key, size, &code);
    if (!b) {
        HOLDS(code == FULL);
        return;
    }
    HOLDS(find(b->base) < HELD);
    HOLDS(driver.block[find(b->base)].size == b->held);
    HOLDS(driver.block[find(b->base)].context == key.context);
    HOLDS((b->base & (((uintptr_t)1 << key.align) - 1)) == 0);
    HOLDS(b->size == size);
    HOLDS(b->held >= size);
    check_new((char *)b->base, b->held);
    live[lives].p = (char *)b->base;
    live[lives].size = size;
    live[lives].exported = false;
    live[lives++].context = key.context;
}

static void whole_put(void)
{
    size_t i;
    bool keep = draw(10) != 0;
    enum zr_freed freed;

    if (lives == 0)
        return;
    i = draw(lives);
    freed = zr_cache_free(cache, live[i].p, keep, &was);
    HOLDS(freed == ZR_FREED || freed == ZR_FREED_BY_DRIVER);
    HOLDS(was.size == live[i].size);
    if (!keep || live[i].exported)
        HOLDS(freed == ZR_FREED_BY_DRIVER);
    freed = zr_cache_free(cache, live[i].p, keep, &was);
    HOLDS(freed == ZR_FREED_TWICE || freed == ZR_FREED_UNKNOWN);
    forget(i);
}

static void whole_look(void)
{
    size_t i;
    char *inside;

    if (lives == 0)
        return;
    i = draw(lives);
    HOLDS(zr_map_base(live[i].p));
    if (live[i].size == 0)
        return;
    inside = live[i].p + draw(live[i].size);
    HOLDS(zr_map_find(inside) == zr_map_base(live[i].p));
    if (inside != live[i].p)
        HOLDS(zr_cache_free(cache, inside, true, &was) == ZR_FREED_INSIDE);
    HOLDS(zr_map_find(live[i].p + live[i].size) != zr_map_base(live[i].p));
    if (draw(20) == 0) {
        zr_block_mark(zr_map_base(live[i].p), ZR_BLOCK_EXPORTED);
        live[i].exported = true;
    }
}

static void whole_rare(void)
{
    void *context = (void *)(0x1000 + draw(KEYS) * 16);

    switch (draw(4)) {
    case 0:
        zr_cache_trim(cache, ZR_ACCOUNTS, draw(2) ? context : NULL, (uint32_t)draw(2));
        break;
    case 1:
        zr_cache_set_limit(cache, 3, draw(2) ? UINT64_MAX : draw(512) * MIB);
        break;
    case 2:
        for (size_t i = lives; i-- > 0;)
            if (live[i].context == context) {
                zr_cache_free(cache, live[i].p, true, &was);
                forget(i);
            }
        zr_cache_drop_context(cache, context);
        for (size_t i = 0; i < driver.count; i++)
            HOLDS(driver.block[i].context != context);
        break;
    default:
        zr_cache_set_idle(cache, draw(2) ? 1 : UINT32_MAX);
        break;
    }
}

/* Another thread, with magazines of its own, takes a step now and then; nobody else moves meanwhile. */
static struct {
    pthread_t thread;
    sem_t begin, end;
    void (*step)(void);
} other;

static void *take_steps(void *arg)
{
    for (;;) {
        sem_wait(&other.begin);
        if (!other.step)
            return arg;
        other.step();
        sem_post(&other.end);
    }
}

static void start_other(void)
{
    sem_init(&other.begin, 0, 0);
    sem_init(&other.end, 0, 0);
    HOLDS(pthread_create(&other.thread, NULL, take_steps, NULL) == 0);
}

static void let_other(void (*take)(void))
{
    other.step = take;
    sem_post(&other.begin);
    sem_wait(&other.end);
}

static void stop_other(void)
{
    other.step = NULL;
    sem_post(&other.begin);
    pthread_join(other.thread, NULL);
}

START_TEST(whole_blocks_agree_with_a_plain_list)
{
    static const struct zr_backing backing = {NULL, whole_alloc, whole_free, is_full};
    uint64_t end = steps(), held;

    begin(1);
    cache = zr_cache_new(&backing);
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
        held = zr_cache_kept(cache, 3);
        for (size_t i = 0; i < lives; i++)
            held += zr_map_base(live[i].p)->held;
        HOLDS(held == driver.held);
    }
    stop_other();
    while (lives) {
        zr_cache_free(cache, live[0].p, true, &was);
        forget(0);
    }
    zr_cache_delete(cache);
    HOLDS(driver.held == 0);
}
END_TEST

/* So many tiny ones that a thread alone takes the next from slabs (quick.h). */
enum { CROWD = 4096 };
static void *crowd[CROWD];
static bool crowded;

static void crowd_comes(struct zr_pool *pool)
{
    driver.room = 4096 * MIB;
    for (size_t i = 0; i < CROWD; i++)
        HOLDS(zr_pool_malloc(pool, 1 + draw(256), 0, &crowd[i]) == 0);
    crowded = true;
}

static void crowd_goes(struct zr_pool *pool)
{
    for (size_t i = 0; i < CROWD; i++)
        HOLDS(zr_pool_free(pool, crowd[i]) == ZR_FREED);
    crowded = false;
}

START_TEST(split_blocks_agree_with_a_plain_list)
{
    static const struct zr_pool_backing backing = {NULL, split_alloc, split_free};
    struct zr_pool *pool;
    uint64_t end = steps();

    begin(2);
    pool = zr_pool_new(&backing);
    for (step = 0; step < end; step++) {
        uint64_t what = draw(1000);

        if (what < 500 && lives < LIVE) {
            size_t size = draw_size(), align = draw(4) ? 0 : (size_t)1 << draw(20);
            void *p = NULL;

            driver.room = draw(100) ? 4096 * MIB : driver.held;
            if (zr_pool_malloc(pool, size, align, &p) != 0) {
                HOLDS(!p);
                continue;
            }
            if (align)
                HOLDS(((uintptr_t)p & (align - 1)) == 0);
            HOLDS(zr_pool_usable(pool, p) >= size);
            check_new(p, zr_pool_usable(pool, p));
            live[lives].p = p;
            live[lives++].size = zr_pool_usable(pool, p);
        } else if (what < 980 && lives) {
            size_t i = draw(lives);

            HOLDS(zr_pool_usable(pool, live[i].p) == live[i].size);
            if (draw(8) == 0 && live[i].size > 64)
                HOLDS(zr_pool_free(pool, live[i].p + 1 + draw(63)) != ZR_FREED);
            HOLDS(zr_pool_free(pool, live[i].p) == ZR_FREED);
            HOLDS(zr_pool_free(pool, live[i].p) != ZR_FREED);
            HOLDS(zr_pool_usable(pool, live[i].p) == 0);
            forget(i);
        } else if (what == 999) {
            zr_pool_trim(pool, draw(2) * draw(64) * MIB);
        } else if (what == 998) {
            zr_pool_set_limits(pool, draw(2) ? UINT64_MAX : draw(64) * MIB, draw(2) ? 1 : UINT32_MAX);
        } else if (what == 997) {
            while (lives) {
                HOLDS(zr_pool_free(pool, live[0].p) == ZR_FREED);
                forget(0);
            }
            if (crowded)
                crowd_goes(pool);
            zr_pool_trim(pool, 0);
            HOLDS(driver.held == 0);
            if (draw(8) == 0)
                crowd_comes(pool);
        }
    }
    zr_pool_delete(pool);
    HOLDS(driver.held == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache model");
    TCase *c = tcase_create("model");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 3600);
    tcase_add_test(c, whole_blocks_agree_with_a_plain_list);
    tcase_add_test(c, split_blocks_agree_with_a_plain_list);
    return run_suite(suite);
}
