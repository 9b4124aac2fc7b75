/*
 * Our allocators beside others, in one process, on the same patterns and over a driver that costs nothing.
 * One line of JSON per figure on stdout: ns per allocation and free.
 *
 * Rounds are interleaved: every allocator runs for a few milliseconds in each of them, and the median
 * counts, so that what else the machine does hits all alike.
 */
#include "../null_driver.h"
#include "bench.h"
#include "umf.h"

#include "base/pages.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { ROUNDS = 15, LIVE = 1000, ALLOCATORS = 8, HANDED = 512, CHUNK = 50, MOST_STEPS = 200000 };
static const double slice_ns = 3e6;

/* --- the allocators --------------------------------------------------------------------------------------------- */
static struct zr_cache *cache;
static struct zr_pool *pool;
static const struct zr_key key = {.context = (void *)0x1230, .device = (void *)0x4560, .account = 1};

static void *whole_get(size_t size)
{
    int code;
    struct zr_block *b = zr_cache_alloc(cache, &key, size, &code);

    return (void *)b->base;
}

static void whole_put(void *p)
{
    struct zr_freed_block was;

    zr_cache_free(cache, p, true, &was);
}

static void *pool_get(size_t size)
{
    void *p = NULL;

    zr_pool_malloc(pool, size, 0, &p);
    return p;
}

static void pool_put(void *p)
{
    zr_pool_free(pool, p);
}

/*
 * What the machine itself makes of two threads: each has a stack of blocks to itself, writes to a block when it takes
 * it and when it puts it back, and shares nothing at all with the other.
 */
struct own_block {
    uint64_t word;
} __attribute__((aligned(64)));
static _Thread_local struct {
    size_t left, made;
    struct own_block *at[LIVE + 1], block[LIVE + 1];
} own __attribute__((aligned(64)));

static void *own_get(size_t size)
{
    struct own_block *b = own.left ? own.at[--own.left] : &own.block[own.made++];

    b->word = size;
    return b;
}

static void own_put(void *p)
{
    struct own_block *b = p;

    b->word = 0;
    own.at[own.left++] = b;
}

static struct allocator {
    const char *name;
    void *(*get)(size_t size);
    void (*put)(void *p);
} allocator[ALLOCATORS];
static int allocators;

static void add(const char *name, void *(*get)(size_t), void (*put)(void *))
{
    allocator[allocators++] = (struct allocator){name, get, put};
}

/* Under one name or the other. */
static void add_library(const char *name, const char *file, const char *or, const char *get, const char *put)
{
    void *first = dlopen(file, RTLD_NOW | RTLD_LOCAL), *lib = first ? first : dlopen(or, RTLD_NOW | RTLD_LOCAL);
    void *a = lib ? dlsym(lib, get) : NULL;
    void *b = lib ? dlsym(lib, put) : NULL;
    struct allocator found = {.name = name};

    if (!a || !b) {
        fprintf(stderr, "cache: skipped: %s: %s\n", name, lib ? "functions missing" : dlerror());
        return;
    }
    memcpy(&found.get, &a, sizeof a);
    memcpy(&found.put, &b, sizeof b);
    allocator[allocators++] = found;
}

/* --- patterns: a slice is many steps in chunks ------------------------------------------------------------------ */
struct work {
    const struct allocator *a;
    size_t size;
    void **live;
    uint64_t random;
};

static void run_pair(struct work *w)
{
    for (int i = 0; i < CHUNK; i++)
        w->a->put(w->a->get(w->size));
}

/* A cheap generator and no division: they are part of what is timed. */
static void run_live(struct work *w)
{
    uint64_t r = w->random;

    for (int i = 0; i < CHUNK; i++) {
        void **at = &w->live[(r >> 32) * LIVE >> 32];

        r = r * 6364136223846793005u + 1442695040888963407u;
        w->a->put(*at);
        *at = w->a->get(w->size);
    }
    w->random = r;
}

static void hold(struct work *w)
{
    for (size_t i = 0; w->live && i < LIVE; i++)
        w->live[i] = w->a->get(w->size);
}

static void let_go(struct work *w)
{
    for (size_t i = 0; w->live && i < LIVE; i++)
        w->a->put(w->live[i]);
}

static void (*pattern)(struct work *w);

static double one_thread(struct work *w, size_t steps)
{
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

static void *work_until_stopped(void *arg)
{
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

static double two_threads(struct work *w, size_t steps)
{
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

/* One thread allocates, another frees: a ring between them. */
struct ring {
    const struct allocator *a;
    size_t size, steps;
    void *volatile slot[HANDED];
};

static void *free_from(void *arg)
{
    struct ring *r = arg;

    for (size_t i = 0; i < r->steps; i++) {
        void *p;

        while (!(p = __atomic_load_n(&r->slot[i % HANDED], __ATOMIC_ACQUIRE)))
            sched_yield();
        __atomic_store_n(&r->slot[i % HANDED], NULL, __ATOMIC_RELEASE);
        r->a->put(p);
    }
    return NULL;
}

static double measure_handed(const struct allocator *a, size_t size, size_t steps)
{
    static struct ring r;
    pthread_t other;
    double start = now_ns();

    r = (struct ring){.a = a, .size = size, .steps = steps};
    pthread_create(&other, NULL, free_from, &r);
    for (size_t i = 0; i < steps; i++) {
        while (__atomic_load_n(&r.slot[i % HANDED], __ATOMIC_ACQUIRE))
            sched_yield();
        __atomic_store_n(&r.slot[i % HANDED], a->get(size), __ATOMIC_RELEASE);
    }
    pthread_join(other, NULL);
    return (now_ns() - start) / (double)steps;
}

enum { PAIR, LIVING, HANDING };

/* ns per allocation and free, of one thread while `threads` of them run. */
static double once(int kind, const struct allocator *a, size_t size, int threads, size_t steps)
{
    static void *live[LIVE];
    struct work w = {a, size, kind == LIVING ? live : NULL, 88172645463325252u};

    if (kind == HANDING)
        return measure_handed(a, size, steps);
    pattern = kind == LIVING ? run_live : run_pair;
    return threads == 2 ? two_threads(&w, steps) : one_thread(&w, steps);
}

/* One thread and two take turns, too: what two do over one is told by the same moments. */
static void compare(int kind, const char *name, size_t size, int from)
{
    double slice[2][ALLOCATORS][ROUNDS];
    size_t steps[2][ALLOCATORS];
    int count = allocators - (kind == HANDING); /* the last has nothing to hand over */

    for (int threads = from; threads <= 2; threads++)
        for (int i = 0; i < count; i++) {
            double ns = once(kind, &allocator[i], size, threads, 4 * CHUNK);
            size_t n = (size_t)(slice_ns / ns) / CHUNK * CHUNK + CHUNK;

            steps[threads - 1][i] = n < MOST_STEPS ? n : MOST_STEPS;
        }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < count; i++)
            for (int threads = from; threads <= 2; threads++)
                slice[threads - 1][i][round] = once(kind, &allocator[i], size, threads, steps[threads - 1][i]);
    for (int i = 0; i < count && from == 1; i++) {
        double work[ROUNDS];

        for (int round = 0; round < ROUNDS; round++)
            work[round] = 2 * slice[0][i][round] / slice[1][i][round];
        printf("{\"pattern\": \"%s\", \"size\": %zu, \"allocator\": \"%s\", \"two_over_one\": %.2f}\n", name, size,
               allocator[i].name, median(work, ROUNDS));
    }
    for (int threads = from; threads <= 2; threads++)
        for (int i = 0; i < count; i++) {
            double *ns = slice[threads - 1][i], middle = median(ns, ROUNDS);

            printf("{\"pattern\": \"%s\", \"size\": %zu, \"threads\": %d, \"allocator\": \"%s\", \"ns\": %.2f, "
                   "\"lowest\": %.2f, \"highest\": %.2f}\n",
                   name, size, threads, allocator[i].name, middle, ns[0], ns[ROUNDS - 1]);
        }
    fflush(stdout);
}

/* --- lookups and frees among many live blocks ------------------------------------------------------------------- */
/*
 * Who else looks blocks up: UMF's tracker; and the machine itself, which reads one line for each block, and reads and
 * writes it for a free. Nobody who keeps a line for each block can be faster than that.
 */
static bool whole_knows(void *p)
{
    return zr_map_base(p) != NULL;
}

static struct {
    char *line;
    size_t count, next;
} lines;

static void *line_get(size_t size)
{
    (void)size;
    return lines.line + 64 * (lines.next++ % lines.count);
}

static void line_put(void *p)
{
    ++*(volatile uint64_t *)p;
}

static bool line_is_read(void *p)
{
    return *(volatile uint64_t *)p + 1 != 0;
}

static void **get_many(void *(*get)(size_t), size_t count, bool shuffled)
{
    void **p = malloc(count * sizeof *p);
    uint64_t r = 1;

    for (size_t i = 0; i < count; i++)
        p[i] = get(65536);
    for (size_t i = count; shuffled && i-- > 1;) {
        size_t j = (r = r * 6364136223846793005u + 1442695040888963407u) % (i + 1);
        void *t = p[i];

        p[i] = p[j], p[j] = t;
    }
    return p;
}

/* ns for one, written out for each of them: what is measured is no call through a pointer. */
#define TIME_EACH(p, count, act)                    \
    __extension__({                                 \
        double began = now_ns();                    \
        for (size_t i_ = 0; i_ < (count); i_++)     \
            act((p)[i_]);                           \
        (now_ns() - began) / (double)(count);       \
    })
#define COUNT_whole(q) found += whole_knows(q)
#define COUNT_umf(q) found += umf_knows(q)
#define COUNT_line(q) found += line_is_read(q)

enum { OURS, TRACKER, MACHINE, KEEPERS };
static const char *const keeper[] = {"zeroute", "umf disjoint", "the machine"};

/* Of a free; 0: something was not found. */
static double measure_many(int who, size_t count, bool shuffled, double *look)
{
    void *(*const get[])(size_t) = {whole_get, disjoint_get, line_get};
    size_t found = 0;
    double ns;
    void **p;

    lines.count = count;
    p = get_many(get[who], count, shuffled);
    *look = who == OURS      ? TIME_EACH(p, count, COUNT_whole)
            : who == TRACKER ? TIME_EACH(p, count, COUNT_umf)
                             : TIME_EACH(p, count, COUNT_line);
    ns = who == OURS      ? TIME_EACH(p, count, whole_put)
         : who == TRACKER ? TIME_EACH(p, count, disjoint_put)
                          : TIME_EACH(p, count, line_put);
    free(p);
    return found == count ? ns : 0;
}

static void compare_many(void)
{
    static const size_t counts[] = {1000, 1000000};

    lines.line = zr_pages((counts[1] * 64 + 0x1fffff) & ~(size_t)0x1fffff);
    for (int i = 0; i < 2; i++)
        for (int order = 0; order < 2; order++)
            for (int who = 0; who < KEEPERS; who++) {
                double best_free = 1e9, best_look = 1e9, look;

                if (!lines.line || (who == TRACKER && (!umf_pool || !umf_pool_by_pointer)))
                    continue;
                for (int round = 0; round < (i == 0 ? 500 : who == TRACKER ? 2 : 5); round++) {
                    double ns = measure_many(who, counts[i], order, &look);

                    best_free = ns < best_free ? ns : best_free;
                    best_look = look < best_look ? look : best_look;
                }
                printf("{\"pattern\": \"many, %s\", \"live\": %zu, \"allocator\": \"%s\", \"lookup_ns\": %.2f, "
                       "\"free_ns\": %.2f}\n",
                       order ? "any order" : "in order", counts[i], keeper[who], best_look, best_free);
                fflush(stdout);
            }
}

/* --quick: fewer sizes. --umf: us and UMF alone. --only NAME: one pattern (pair, live, many, handed over). */
int main(int argc, char **argv)
{
    static const size_t sizes[] = {64, 4096, 65536, 1 << 20, 20 << 20, 64 << 20};
    const char *only = NULL;
    bool umf_alone = false;
    size_t step = 1;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            step = 3;
        umf_alone |= strcmp(argv[i], "--umf") == 0;
        if (strcmp(argv[i], "--only") == 0)
            only = argv[++i];
    }
    cache = zr_cache_new(&null_blocks);
    pool = zr_pool_new(&null_segments);
    if (!cache || !pool)
        return 1;
    zr_cache_set_idle(cache, UINT32_MAX);
    add("zeroute", whole_get, whole_put);
    if (!umf_alone)
        add("zeroute pool", pool_get, pool_put);
    if (open_umf())
        add("umf disjoint", disjoint_get, disjoint_put);
    else
        fprintf(stderr, "cache: skipped: umf disjoint: libumf.so.1 not found\n");
    if (!umf_alone) {
        add_library("mimalloc", "libmimalloc.so.2", "libmimalloc.so.3", "mi_malloc", "mi_free");
        add_library("jemalloc", "libjemalloc.so.2", "libjemalloc.so", "malloc", "free");
        add("glibc", malloc, free);
    }
    add("nothing in common", own_get, own_put);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i += step) {
        if (!only || strcmp(only, "pair") == 0)
            compare(PAIR, "pair", sizes[i], 1);
        if (!only || strcmp(only, "live") == 0)
            compare(LIVING, "live", sizes[i], 1);
    }
    if (!only || strcmp(only, "many") == 0)
        compare_many();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i += step)
        if (!only || strcmp(only, "handed over") == 0)
            compare(HANDING, "handed over", sizes[i], 2);
    return 0;
}
