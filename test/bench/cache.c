/*
 * Our allocators beside UMF's pool, in one process, on the same patterns and over a driver that costs nothing.
 * One line of JSON per figure on stdout: ns per allocation and free.
 *
 * Rounds are interleaved: every allocator runs for a few milliseconds in each of them, so that what else the machine
 * does hits all alike, and the lower quartile counts.
 */
#include "../null_driver.h"
#include "bench.h"
#include "umf.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { ROUNDS = 40, LIVE = 1000, ALLOCATORS = 3, CHUNK = 50, MOST_STEPS = 200000 };
static const double slice_ns = 3e6;

/* --- the allocators --------------------------------------------------------------------------------------------- */
static struct zr_pool *pool;

/* As the preload does it: the key is filled in anew for every request. */
static void *whole_get(size_t size) {
    struct zr_key key = {.context = (void *)0x1230, .device = (void *)0x4560, .account = 1};

    return (void *)whole_alloc(&key, size)->base;
}

static void whole_put(void *p) {
    whole_free(p);
}

static void *pool_get(size_t size) {
    void *p = NULL;
    bool grew;

    zr_pool_malloc(pool, size, ZR_POOL_GRAIN, &p, &grew);
    return p;
}

static void pool_put(void *p) {
    size_t size;

    zr_pool_free(pool, p, &size);
}

static const struct allocator {
    const char *name;
    void *(*get)(size_t size);
    void (*put)(void *p);
} allocator[ALLOCATORS] = {{"zeroute", whole_get, whole_put},
                           {"zeroute pool", pool_get, pool_put},
                           {"umf disjoint", disjoint_get, disjoint_put}};

/* --- patterns: a slice is many steps in chunks ------------------------------------------------------------------ */
struct work {
    const struct allocator *a;
    size_t size;
    void **live;
    uint64_t random;
};

static void run_pair(struct work *w) {
    for (int i = 0; i < CHUNK; i++)
        w->a->put(w->a->get(w->size));
}

/* A cheap generator and no division: they are part of what is timed. */
static void run_live(struct work *w) {
    uint64_t r = w->random;

    for (int i = 0; i < CHUNK; i++) {
        void **at = &w->live[(r >> 32) * LIVE >> 32];

        r = r * 6364136223846793005u + 1442695040888963407u;
        w->a->put(*at);
        *at = w->a->get(w->size);
    }
    w->random = r;
}

static void hold(struct work *w) {
    for (size_t i = 0; w->live && i < LIVE; i++)
        w->live[i] = w->a->get(w->size);
}

static void let_go(struct work *w) {
    for (size_t i = 0; w->live && i < LIVE; i++)
        w->a->put(w->live[i]);
}

static void (*pattern)(struct work *w);

static double one_thread(struct work *w, size_t steps) {
    double start, ns;

    hold(w);
    start = now_ns();
    for (size_t i = 0; i < steps; i += CHUNK)
        pattern(w);
    ns = now_ns() - start;
    let_go(w);
    return ns / (double)steps;
}

/*
 * Two threads, each on a processor of its own, begin together and end together: the first does its steps, the
 * second works until the first is done. What counts is the work of both over that time. Without the processors
 * fixed, a lock that is waited for may bring both threads onto one, where they take turns and never meet.
 */
static struct {
    struct work w;
    size_t steps;
    int ready, stop;
} second;

static void *work_until_stopped(void *arg) {
    (void)arg;
    stay_on(1);
    hold(&second.w);
    __atomic_store_n(&second.ready, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&second.ready, __ATOMIC_ACQUIRE) == 1)
        ;
    while (!__atomic_load_n(&second.stop, __ATOMIC_ACQUIRE)) {
        pattern(&second.w);
        second.steps += CHUNK;
    }
    let_go(&second.w);
    return NULL;
}

static double two_threads(struct work *w, size_t steps) {
    static void *live[LIVE];
    cpu_set_t before;
    pthread_t other;
    double start, ns;

    sched_getaffinity(0, sizeof before, &before);
    second.w = *w;
    second.w.live = w->live ? live : NULL;
    second.w.random++;
    second.steps = 0;
    second.stop = second.ready = 0;
    pthread_create(&other, NULL, work_until_stopped, NULL);
    stay_on(0);
    hold(w);
    while (!__atomic_load_n(&second.ready, __ATOMIC_ACQUIRE))
        ;
    __atomic_store_n(&second.ready, 2, __ATOMIC_RELEASE);
    start = now_ns();
    for (size_t i = 0; i < steps; i += CHUNK)
        pattern(w);
    ns = now_ns() - start;
    __atomic_store_n(&second.stop, 1, __ATOMIC_RELEASE);
    pthread_join(other, NULL);
    let_go(w);
    sched_setaffinity(0, sizeof before, &before);
    return 2 * ns / (double)(steps + second.steps);
}

/* ns per allocation and free, of one thread while `threads` of them run. */
static double once(bool living, const struct allocator *a, size_t size, int threads, size_t steps) {
    static void *live[LIVE];
    struct work w = {a, size, living ? live : NULL, 88172645463325252u};

    pattern = living ? run_live : run_pair;
    return threads == 2 ? two_threads(&w, steps) : one_thread(&w, steps);
}

static void compare(bool living, size_t size, int threads) {
    double slice[ALLOCATORS][ROUNDS];
    size_t steps[ALLOCATORS];

    for (int i = 0; i < ALLOCATORS; i++) {
        double ns = once(living, &allocator[i], size, threads, 4 * CHUNK);
        size_t n = (size_t)(slice_ns / ns) / CHUNK * CHUNK + CHUNK;

        steps[i] = n < MOST_STEPS ? n : MOST_STEPS;
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < ALLOCATORS; i++)
            slice[i][round] = once(living, &allocator[i], size, threads, steps[i]);
    for (int i = 0; i < ALLOCATORS; i++)
        printf("{\"pattern\": \"%s\", \"size\": %zu, \"threads\": %d, \"allocator\": \"%s\", \"ns\": %.2f}\n",
               living ? "live" : "pair", size, threads, allocator[i].name, quartile(slice[i], ROUNDS));
}

/* --- the same thousand blocks, with and without many others beside them ------------------------------------------ */
enum { USED = 1000 };

static bool whole_knows(void *p) {
    return zr_map_base(p) != NULL;
}

static bool pool_knows(void *p) {
    return zr_pool_usable(pool, p) != 0;
}

static const struct keeper {
    const struct allocator *a;
    bool (*knows)(void *p);
    size_t size;
} keepers[] = {
    {&allocator[0], whole_knows, 65536}, {&allocator[1], pool_knows, 512}, {&allocator[2], umf_knows, 65536}};

/* ns for a lookup, and for a free and an allocation, of USED blocks in any order. */
static void measure_many(const struct keeper *k, void **p, const unsigned *order, double *look, double *again) {
    size_t found = 0;
    double began = now_ns();

    for (unsigned i = 0; i < USED; i++)
        found += k->knows(p[order[i]]);
    *look = found == USED ? (now_ns() - began) / USED : 1e9;
    began = now_ns();
    for (unsigned i = 0; i < USED; i++) {
        k->a->put(p[order[i]]);
        p[order[i]] = k->a->get(k->size);
    }
    *again = (now_ns() - began) / USED;
}

static void compare_many(void) {
    static const size_t counts[] = {USED, 1000000};
    enum { MANY_ROUNDS = 501 };
    static double look[MANY_ROUNDS], again[MANY_ROUNDS];
    void **p = malloc(counts[1] * sizeof *p);
    unsigned order[USED];

    for (unsigned i = 0; i < USED; i++)
        order[i] = i * 617 % USED;
    for (unsigned who = 0; p && who < sizeof keepers / sizeof *keepers; who++) {
        const struct keeper *k = &keepers[who];

        for (size_t n = 0, held = 0; n < 2; n++) {
            while (held < counts[n])
                p[held++] = k->a->get(k->size);
            for (int round = 0; round < MANY_ROUNDS; round++)
                measure_many(k, p, order, &look[round], &again[round]);
            printf("{\"pattern\": \"many\", \"live\": %zu, \"allocator\": \"%s\", \"lookup\": %.2f, "
                   "\"pair\": %.2f}\n",
                   counts[n], k->a->name, median(look, MANY_ROUNDS), median(again, MANY_ROUNDS));
            for (; n == 1 && held; held--)
                k->a->put(p[held - 1]);
        }
    }
    free(p);
}

/* --only NAME: pair, live or many. */
int main(int argc, char **argv) {
    static const size_t sizes[] = {64, 4096, 65536, 1 << 20, 20 << 20, 64 << 20};
    const char *only = argc > 2 && strcmp(argv[1], "--only") == 0 ? argv[2] : NULL;

    zr_cache_setup(null_release, UINT32_MAX);
    zr_cache_set_limit(1, UINT64_MAX);
    pool = zr_pool_new(&null_segments, 1);
    if (!pool || !open_umf()) {
        fprintf(stderr, "cache: %s\n", pool ? "libumf.so.1 cannot be used" : "no memory");
        return 1;
    }
    for (int threads = 1; threads <= 2; threads++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (int living = 0; living <= 1; living++)
                if (!only || strcmp(only, living ? "live" : "pair") == 0)
                    compare(living, sizes[i], threads);
    if (!only || strcmp(only, "many") == 0)
        compare_many();
    return 0;
}
