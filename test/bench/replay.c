/*
 * The allocators over a trace, several times, above a driver that costs nothing: JSON for bench_replay.
 *
 *   build/bench/replay [--whole] [--passes N] [FILE]     replays a trace, standard input without FILE
 *   build/bench/replay --make tensors|segments [SEED]    prints a made-up trace
 *
 * --whole: a driver allocation per block, as at the Level Zero entry points, instead of the pool's segments.
 */
#include "cache/cache.h"
#include "trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_PASSES = 1000 };

/* A driver that costs nothing: addresses that are never used, and counts. */
static struct { uint64_t next, held, peak, calls; } driver;

static struct zr_block *driver_alloc(const struct zr_key *key, size_t size, size_t held) {
    struct zr_block *b = zr_block_new();

    if (!b)
        return NULL;
    zr_block_place(b, (uintptr_t)driver.next, size, held);
    zr_block_set_key(b, key);
    if (!zr_map_insert(b)) {
        zr_block_recycle(b);
        return NULL;
    }
    driver.next += (held + 0x1fffff) & ~(uint64_t)0x1fffff;
    driver.held += held;
    if (driver.held > driver.peak)
        driver.peak = driver.held;
    driver.calls++;
    return b;
}

static enum zr_released driver_free(struct zr_block *b) {
    driver.held -= b->held;
    driver.calls++;
    return ZR_RELEASED;
}

static struct zr_block *segment_alloc(void *key, size_t size, int *code) {
    struct zr_block *b = driver_alloc(key, size, size);

    *code = b ? 0 : ZR_NO_MEMORY;
    return b;
}

static void segment_free(void *key, struct zr_block *b) {
    (void)key;
    driver_free(b);
    zr_block_recycle(zr_map_take((void *)b->base));
}

struct pass {
    double ns_per_event;
    uint64_t calls, peak_held;
};

struct allocator {
    struct zr_pool *pool; /* NULL: whole blocks */
    struct zr_key key;
};

static double now_ns(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static bool get(struct allocator *a, size_t size, void **out) {
    size_t held = zr_cache_round(size);
    struct zr_block *b;
    bool grew;

    if (a->pool)
        return zr_pool_malloc(a->pool, size ? size : 1, ZR_POOL_GRAIN, out, &grew) == 0;
    b = zr_cache_get(&a->key, held, size);
    if (!b)
        b = driver_alloc(&a->key, size, held);
    *out = b ? (void *)b->base : NULL;
    return b;
}

static bool put(struct allocator *a, void *p) {
    struct zr_block *b;
    uint64_t word;
    size_t size;

    if (a->pool)
        return zr_pool_free(a->pool, p, &size) == ZR_FREED;
    b = zr_map_look(p, &word);
    if (!b || zr_word_state(word) != ZR_BLOCK_LIVE || !zr_block_shift(b, word, ZR_BLOCK_CACHED))
        return false;
    zr_cache_put(b);
    return true;
}

static bool run(const struct zr_trace *t, struct allocator *a, void **at) {
    const struct zr_trace_event *end = t->event + t->events;

    for (const struct zr_trace_event *e = t->event; e < end; e++) {
        if (e->bytes != ZR_TRACE_FREE) {
            if (!get(a, e->bytes, &at[e->slot]))
                return false;
        } else {
            if (!put(a, at[e->slot]))
                return false;
            at[e->slot] = NULL;
        }
    }
    return true;
}

/* One pass, from an empty program to an empty program: what the trace leaves allocated is freed afterwards. */
static bool run_pass(const struct zr_trace *t, struct allocator *a, void **at, struct pass *out) {
    uint64_t calls = driver.calls;
    double start;

    driver.peak = driver.held;
    start = now_ns();
    if (!run(t, a, at))
        return false;
    out->ns_per_event = (now_ns() - start) / (double)t->events;
    for (uint32_t i = 0; i < t->slots; i++) {
        if (at[i])
            put(a, at[i]);
        at[i] = NULL;
    }
    out->calls = driver.calls - calls;
    out->peak_held = driver.peak;
    return true;
}

static void print(const struct zr_trace *t, const struct pass *pass, unsigned passes, double ns, uint64_t held) {
    printf("{\"events\": %zu, \"ns_per_event\": %.1f, \"driver_calls_first_pass\": %" PRIu64
           ", \"driver_calls_per_pass\": %" PRIu64 ", \"peak_live_bytes\": %" PRIu64 ", \"held_over_live\": %.4f}\n",
           t->events, ns, pass[0].calls, pass[passes - 1].calls, t->peak_live,
           (double)held / (double)(t->peak_live ? t->peak_live : 1));
}

static int replay(const struct zr_trace *t, bool whole, unsigned passes) {
    struct allocator a = {.key = {.device = &driver}};
    const struct zr_pool_backing backing = {&a.key, segment_alloc, segment_free};
    struct pass *pass = calloc(passes, sizeof *pass);
    void **at = calloc(t->slots, sizeof *at);
    double best = 0;
    uint64_t held = 0;
    bool good = pass && at;

    driver.next = (uint64_t)1 << 44;
    zr_cache_setup(driver_free, UINT32_MAX);
    zr_cache_set_limit(0, UINT64_MAX);
    if (good && !whole) {
        a.pool = zr_pool_new(&backing, 0);
        good = a.pool != NULL;
    }
    for (unsigned i = 0; good && i < passes; i++) {
        good = run_pass(t, &a, at, &pass[i]);
        if (i == 1 || (i > 1 && pass[i].ns_per_event < best))
            best = pass[i].ns_per_event;
        if (pass[i].peak_held > held)
            held = pass[i].peak_held;
    }
    if (good)
        print(t, pass, passes, best, held);
    else
        fputs("replay: out of memory\n", stderr);
    free(pass);
    free(at);
    return good ? 0 : 1;
}

int main(int argc, char **argv) {
    const char *file = NULL;
    unsigned passes = 5;
    bool whole = false;
    struct zr_trace t;
    char why[160];

    if (argc > 2 && strcmp(argv[1], "--make") == 0)
        return zr_trace_make(stdout, argv[2], argc > 3 ? strtoull(argv[3], NULL, 10) : 1) ? 0 : 1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--whole") == 0)
            whole = true;
        else if (strcmp(argv[i], "--passes") == 0 && i + 1 < argc)
            passes = (unsigned)strtoul(argv[++i], NULL, 10);
        else
            file = argv[i];
    }
    if (passes < 2 || passes > MOST_PASSES || (file && !freopen(file, "r", stdin))) {
        fputs("replay: usage: replay [--whole] [--passes 2..1000] [FILE] | --make tensors|segments [SEED]\n", stderr);
        return 2;
    }
    if (!zr_trace_read(&t, stdin, why, sizeof why)) {
        fprintf(stderr, "replay: %s\n", why);
        return 2;
    }
    int code = replay(&t, whole, passes);
    zr_trace_free(&t);
    return code;
}
