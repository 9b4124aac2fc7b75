/* zeroute replay: runs the allocator over a recorded sequence of allocations, without any device. */
#include "common/common.h"

#include "cache/pool.h"
#include "replay/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_PASSES = 1000 };

/* A driver that costs nothing: addresses that are never used, and counts. */
static struct {
    uint64_t next, held, peak, calls;
} driver;

static int driver_alloc(void *arg, size_t size, void **out)
{
    (void)arg;
    *out = (void *)(uintptr_t)driver.next;
    driver.next += (size + 0x1fffff) & ~(uint64_t)0x1fffff;
    driver.held += size;
    if (driver.held > driver.peak)
        driver.peak = driver.held;
    driver.calls++;
    return 0;
}

static int driver_free(void *arg, void *p, size_t size)
{
    (void)arg, (void)p;
    driver.held -= size;
    driver.calls++;
    return 0;
}

static int block_alloc(void *arg, const struct zr_key *key, size_t size, void **out)
{
    (void)key;
    return driver_alloc(arg, size, out);
}

static int block_free(void *arg, const struct zr_block *b)
{
    return driver_free(arg, NULL, b->held);
}

static bool never_full(int code)
{
    (void)code;
    return false;
}

struct options {
    const char *file, *make;
    bool json, whole;
    unsigned passes;
    uint64_t seed;
};

struct pass {
    double ns_per_event;
    uint64_t calls, peak_held;
};

struct allocator {
    struct zr_pool *pool;
    struct zr_cache *cache;
    struct zr_key key;
};

static double now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static bool run_pool(const struct zr_trace *t, struct allocator *a, void **at)
{
    const struct zr_trace_event *end = t->event + t->events;

    for (const struct zr_trace_event *e = t->event; e < end; e++) {
        if (e->bytes != ZR_TRACE_FREE) {
            if (zr_pool_malloc(a->pool, e->bytes, 0, &at[e->slot]) != 0)
                return false;
        } else {
            if (zr_pool_free(a->pool, at[e->slot]) != ZR_FREED)
                return false;
            at[e->slot] = NULL;
        }
    }
    return true;
}

static bool run_whole(const struct zr_trace *t, struct allocator *a, void **at)
{
    const struct zr_trace_event *end = t->event + t->events;
    struct zr_freed_block was;
    int code = 0;

    for (const struct zr_trace_event *e = t->event; e < end; e++) {
        if (e->bytes != ZR_TRACE_FREE) {
            struct zr_block *b = zr_cache_alloc(a->cache, &a->key, e->bytes, &code);

            if (!b)
                return false;
            at[e->slot] = (void *)b->base;
        } else {
            if (zr_cache_free(a->cache, at[e->slot], true, &was) > ZR_FREED_BY_DRIVER)
                return false;
            at[e->slot] = NULL;
        }
    }
    return true;
}

/* One pass, from an empty program to an empty program: what the trace leaves allocated is freed afterwards. */
static bool run_pass(const struct zr_trace *t, struct allocator *a, void **at, struct pass *out)
{
    struct zr_freed_block was;
    uint64_t calls = driver.calls;
    double start;

    driver.peak = driver.held;
    start = now_ns();
    if (!(a->pool ? run_pool : run_whole)(t, a, at))
        return false;
    out->ns_per_event = (now_ns() - start) / (double)t->events;
    for (uint32_t i = 0; i < t->slots; i++) {
        if (at[i] && a->pool)
            zr_pool_free(a->pool, at[i]);
        else if (at[i])
            zr_cache_free(a->cache, at[i], true, &was);
        at[i] = NULL;
    }
    out->calls = driver.calls - calls;
    out->peak_held = driver.peak;
    return true;
}

static void print_json(const struct options *o, const struct zr_trace *t, const struct pass *pass,
                       double ns, uint64_t held)
{

    json_t *document = zr_json_document(1);
    zr_json_text(document, "file", o->file);
    zr_json_text(document, "blocks", o->whole ? "whole" : "split");
    zr_json_count(document, "events", t->events);
    zr_json_count(document, "allocations", t->allocations);
    zr_json_count(document, "frees", t->frees);
    zr_json_count(document, "never_freed", t->left);
    zr_json_count(document, "unknown_frees", t->unknown_frees);
    zr_json_real(document, "ns_per_event", ns);
    zr_json_count(document, "driver_calls_first_pass", pass[0].calls);
    zr_json_count(document, "driver_calls_per_pass", pass[o->passes - 1].calls);
    zr_json_count(document, "peak_live_bytes", t->peak_live);
    zr_json_count(document, "peak_held_bytes", held);
    zr_json_real(document, "held_over_live", (double)held / (double)(t->peak_live ? t->peak_live : 1));
    json_t *passes = zr_json_array(document, "passes");
    for (unsigned i = 0; i < o->passes; i++) {
        json_t *item = zr_json_object(passes, NULL);
        zr_json_real(item, "ns_per_event", pass[i].ns_per_event);
        zr_json_count(item, "driver_calls", pass[i].calls);
        zr_json_count(item, "peak_held_bytes", pass[i].peak_held);
    }
    zr_json_write(stdout, document, ZR_JSON_DIGITS, false);
}

static void print_text(const struct options *o, const struct zr_trace *t, const struct pass *pass,
                       double ns, uint64_t held)
{
    char live_text[ZR_TEXT_SIZE], held_text[ZR_TEXT_SIZE];

    printf("events            %zu (%" PRIu64 " allocations, %" PRIu64 " frees)\n", t->events,
           t->allocations, t->frees);
    printf("ns per event      %.1f (best of %u passes)\n", ns, o->passes);
    printf("driver calls      ");
    for (unsigned i = 0; i < o->passes && i < 8; i++)
        printf("%s%" PRIu64, i ? ", " : "", pass[i].calls);
    printf("%s (per pass)\n", o->passes > 8 ? ", ..." : "");
    printf("peak live         %s\n", zr_text_bytes(live_text, t->peak_live));
    printf("peak held         %s (%.3f of live)\n", zr_text_bytes(held_text, held),
           (double)held / (double)(t->peak_live ? t->peak_live : 1));
}

static void help(void)
{
    fputs("usage: zeroute replay FILE [--whole] [--passes N] [--json]\n"
          "       zeroute replay --make tensors|segments [--seed N]\n"
          "\n"
          "Runs the caching allocator over a recorded sequence of allocations, several times, against a driver\n"
          "that costs nothing, and says how fast it was, how often it called the driver, and how much it held.\n"
          "FILE is CSV: op,id,bytes,stream,time_us (op: a allocates, f frees); - is standard input.\n"
          "'zeroute run --trace FILE' records one.\n"
          "\n"
          "  --whole      one driver allocation per block, as at the Level Zero entry points; without it slabs\n"
          "               and split blocks, as in the SYCL runtime's pool\n"
          "  --passes N   how often the trace is run (default 5)\n"
          "  --json       the result as JSON on stdout\n"
          "  --make SHAPE write a made-up trace on stdout: tensors of a program without a cache of its own, or\n"
          "               the segments that PyTorch asks for\n"
          "  --seed N     another one of that shape\n"
          "\n"
          "examples:\n"
          "  zeroute replay training.csv\n"
          "  zeroute replay --make tensors | zeroute replay - --json\n",
          stdout);
}

static bool parse_number(const char *text, uint64_t most, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *out <= most;
}

/* 0: go on; otherwise what to exit with, plus one. */
static int parse(struct options *o, int argc, char **argv)
{
    uint64_t n;

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";

        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return 1;
        } else if (strcmp(argv[i], "--json") == 0) {
            o->json = true;
        } else if (strcmp(argv[i], "--whole") == 0) {
            o->whole = true;
        } else if (strcmp(argv[i], "--passes") == 0) {
            if (!parse_number(value, MOST_PASSES, &n) || n < 2) {
                zr_complain("replay", "--passes '%s': expected a number from 2 to %d", value, MOST_PASSES);
                return 3;
            }
            o->passes = (unsigned)n;
            i++;
        } else if (strcmp(argv[i], "--seed") == 0) {
            if (!parse_number(value, UINT64_MAX, &o->seed)) {
                zr_complain("replay", "--seed '%s': expected a number", value);
                return 3;
            }
            i++;
        } else if (strcmp(argv[i], "--make") == 0) {
            o->make = value;
            i++;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            zr_complain("replay", "unknown option '%s': expected --whole, --passes, --json, --make or --seed",
                        argv[i]);
            return 3;
        } else if (o->file) {
            zr_complain("replay", "'%s': expected one file only", argv[i]);
            return 3;
        } else {
            o->file = argv[i];
        }
    }
    if (!o->file && !o->make) {
        zr_complain("replay", "no trace given: expected a FILE, see 'zeroute replay --help'");
        return 3;
    }
    return 0;
}

static bool load(const struct options *o, struct zr_trace *t)
{
    FILE *in = strcmp(o->file, "-") == 0 ? stdin : fopen(o->file, "r");
    char why[160];
    bool good;

    if (!in) {
        zr_complain("replay", "%s: %s: expected a trace that can be read", o->file, strerror(errno));
        return false;
    }
    good = zr_trace_read(t, in, why, sizeof why);
    if (in != stdin)
        fclose(in);
    if (!good)
        zr_complain("replay", "%s: %s", o->file, why);
    else if (t->unknown_frees)
        zr_complain("replay",
                    "%s: %" PRIu64 " frees of ids that are not allocated, the first in line %zu: left out",
                    o->file, t->unknown_frees, t->first_unknown_line);
    return good;
}

static int replay(const struct options *o, const struct zr_trace *t)
{
    const struct zr_pool_backing split = {NULL, driver_alloc, driver_free};
    const struct zr_backing whole = {NULL, block_alloc, block_free, never_full};
    struct allocator a = {.key = {.device = &driver}};
    struct pass *pass = calloc(o->passes, sizeof *pass);
    void **at = calloc(t->slots, sizeof *at);
    double best = 0;
    uint64_t held = 0;
    bool good = pass && at;

    driver.next = (uint64_t)1 << 44;
    if (o->whole)
        good = good && (a.cache = zr_cache_new(&whole));
    else
        good = good && (a.pool = zr_pool_new(&split));
    if (good && a.cache)
        zr_cache_set_idle(a.cache, UINT32_MAX);
    for (unsigned i = 0; good && pass && i < o->passes; i++) {
        good = run_pass(t, &a, at, &pass[i]);
        if (i == 1 || (i > 1 && pass[i].ns_per_event < best))
            best = pass[i].ns_per_event;
        if (pass[i].peak_held > held)
            held = pass[i].peak_held;
    }
    if (good)
        (o->json ? print_json : print_text)(o, t, pass, best, held);
    else
        zr_complain("replay", "out of memory");
    free(pass);
    free(at);
    return good ? 0 : 1;
}

int zr_cmd_replay(int argc, char **argv)
{
    struct options o = {.passes = 5, .seed = 1};
    int stop = parse(&o, argc, argv), result;
    struct zr_trace t;

    if (stop)
        return stop - 1;
    if (o.make) {
        if (zr_trace_make(stdout, o.make, o.seed))
            return 0;
        zr_complain("replay", "--make '%s': expected tensors or segments", o.make);
        return 2;
    }
    if (!load(&o, &t)) {
        zr_trace_free(&t);
        return 1;
    }
    result = replay(&o, &t);
    zr_trace_free(&t);
    return result;
}
