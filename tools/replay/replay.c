/* zeroute replay: runs the allocator over a recorded sequence of allocations, without any device. */
#include "common/common.h"

#include "cache/cache.h"
#include "replay/replay.h"

#include <errno.h>
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

struct options {
    const char *file, *make, *settings;
    bool json, whole;
    unsigned passes;
    uint64_t seed;
};

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

static void print_json(const struct options *o, const struct zr_trace *t, const struct pass *pass, double ns,
                       uint64_t held) {

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

static void print_text(const struct options *o, const struct zr_trace *t, const struct pass *pass, double ns,
                       uint64_t held) {
    char live_text[ZR_TEXT_SIZE], held_text[ZR_TEXT_SIZE];

    printf("events            %zu (%" PRIu64 " allocations, %" PRIu64 " frees)\n", t->events, t->allocations, t->frees);
    printf("ns per event      %.1f (best of %u passes)\n", ns, o->passes);
    printf("driver calls      ");
    for (unsigned i = 0; i < o->passes && i < 8; i++)
        printf("%s%" PRIu64, i ? ", " : "", pass[i].calls);
    printf("%s (per pass)\n", o->passes > 8 ? ", ..." : "");
    printf("peak live         %s\n", zr_text_bytes(live_text, t->peak_live));
    printf("peak held         %s (%.3f of live)\n", zr_text_bytes(held_text, held),
           (double)held / (double)(t->peak_live ? t->peak_live : 1));
}

enum { WHOLE = ZR_LONG, PASSES, JSON, MAKE, SEED, SETTINGS };

static const struct zr_option option_table[] = {
    {WHOLE, "whole", NULL,
     "make one driver allocation per block, as at the Level Zero entry points, instead of splitting segments, as in "
     "the "
     "SYCL runtime's pool"},
    {PASSES, "passes", "N", "run the trace N times, at least 2 (default 5)"},
    {SETTINGS, "settings", "LIST",
     "with a record: settings to try, each a preset or a setting, several joined by +: "
     "observe,cache:on+limit:8GiB"},
    {JSON, "json", NULL, "print JSON"},
    {MAKE, "make", "SHAPE",
     "write a synthetic trace on stdout: tensors of a program without a cache of its own, or the segments that PyTorch "
     "requests"},
    {SEED, "seed", "N", "seed of the synthetic trace (default 1)"},
    {0},
};

static const struct zr_command command = {
    .name = "replay",
    .usage = "zeroute replay [--settings LIST] [--json] RECORD\n"
             "zeroute replay [--whole] [--passes N] [--json] FILE\n"
             "zeroute replay --make tensors|segments [--seed N]",
    .about =
        "With a record ('zeroute record') it says what happened, what a replay with the same settings makes of it, and "
        "what other settings would have done: the peak of reserved memory, driver calls, hits in the cache, and "
        "allocations that a limit refuses. "
        "With a CSV file (op,id,bytes,stream,time_us; op: a allocates, f frees; - is standard input) it runs the "
        "caching allocator over it several times, against a driver that costs nothing, and says how fast it was, "
        "how often it called the driver, and how much it reserved.",
    .options = option_table,
    .notes = "Exit code: 0 done, 2 an error or wrong usage.\n",
    .operands = "one file",
    .most = 1,
    .examples = "zeroute replay train.zr --settings observe,reroute,limit:8GiB\n"
                "zeroute replay training.csv\n"
                "zeroute replay --make tensors | zeroute replay - --json",
};

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    uint64_t n;

    switch (option->id) {
    case WHOLE:
        o->whole = true;
        return true;
    case PASSES:
        if (!zr_option_number(&command, option, value, 2, MOST_PASSES, &n))
            return false;
        o->passes = (unsigned)n;
        return true;
    case JSON:
        o->json = true;
        return true;
    case SETTINGS:
        o->settings = value;
        return true;
    case MAKE:
        o->make = value;
        return zr_option_choice(&command, option, value, "tensors|segments");
    default:
        return zr_option_number(&command, option, value, 0, UINT64_MAX, &o->seed);
    }
}

static bool load(const struct options *o, struct zr_trace *t) {
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
        zr_complain("replay", "%s: %" PRIu64 " frees of ids that are not allocated, the first in line %zu: left out",
                    o->file, t->unknown_frees, t->first_unknown_line);
    return good;
}

static int replay(const struct options *o, const struct zr_trace *t) {
    struct allocator a = {.key = {.device = &driver}};
    const struct zr_pool_backing backing = {&a.key, segment_alloc, segment_free};
    struct pass *pass = calloc(o->passes, sizeof *pass);
    void **at = calloc(t->slots, sizeof *at);
    double best = 0;
    uint64_t held = 0;
    bool good = pass && at;

    driver.next = (uint64_t)1 << 44;
    zr_cache_setup(driver_free, UINT32_MAX);
    zr_cache_set_limit(0, UINT64_MAX);
    if (good && !o->whole)
        good = (a.pool = zr_pool_new(&backing, 0));
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
    return good ? ZR_EXIT_DONE : ZR_EXIT_ERROR;
}

/* --- records ------------------------------------------------------------------------------------ */

static void show_outcome(json_t *list, const char *settings, const struct zr_outcome *o) {
    char reserved[ZR_TEXT_SIZE];

    if (!list) {
        printf("%-32.60s %13s %13" PRIu64 " %10" PRIu64 " %8" PRIu64 "\n", settings,
               zr_text_bytes(reserved, o->peak_reserved), o->driver_calls, o->hits, o->refused);
        return;
    }
    json_t *item = zr_json_object(list, NULL);
    zr_json_text(item, "settings", settings);
    zr_json_count(item, "peak_reserved_bytes", o->peak_reserved);
    zr_json_count(item, "driver_calls", o->driver_calls);
    zr_json_count(item, "hits", o->hits);
    zr_json_count(item, "refused", o->refused);
}

static bool what_if(const struct zr_recorded *r, json_t *list, const char *settings, const char *name) {
    struct zr_outcome outcome;
    char why[256];

    if (!zr_what_if(r, settings, &outcome, why, sizeof why)) {
        zr_complain("replay", "%s: %s", name, why);
        return false;
    }
    show_outcome(list, name, &outcome);
    return true;
}

static int replay_record(const struct options *o) {
    json_t *document = o->json ? zr_json_document(1) : NULL, *list = NULL;
    char *settings = strdup(o->settings ? o->settings : ""), *rest = settings, *one, why[256];
    struct zr_recorded r;
    bool good = settings && zr_recorded_load(&r, o->file, why, sizeof why);

    if (!good) {
        zr_complain("replay", "%s: %s", o->file, why);
        free(settings);
        return ZR_EXIT_ERROR;
    }
    if (r.lost)
        zr_complain("replay", "%s: %" PRIu64 " events were lost: figures are too low", o->file, r.lost);
    if (o->json) {
        zr_json_text(document, "file", o->file);
        zr_json_text(document, "settings", r.settings);
        zr_json_count(document, "steps", r.steps);
        list = zr_json_array(document, "outcomes");
    } else {
        printf("%-32s %13s %13s %10s %8s\n", "settings", "peak reserved", "driver calls", "hits", "refused");
    }
    show_outcome(list, "recorded", &r.recorded);
    good = what_if(&r, list, "", "the same, replayed");
    while (good && (one = strsep(&rest, ",")))
        good = !*one || what_if(&r, list, one, one);
    if (o->json)
        good &= zr_json_write(stdout, document, ZR_JSON_DIGITS, false);
    zr_recorded_free(&r);
    free(settings);
    return good ? ZR_EXIT_DONE : ZR_EXIT_ERROR;
}

int zr_cmd_replay(int argc, char **argv) {
    struct options o = {.passes = 5, .seed = 1};
    struct zr_trace t;
    int at;

    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    if (!o.make == (at == argc))
        return zr_wrong(&command, o.make ? "--make and a file together: expected one of them"
                                         : "no trace given: expected a file");
    if (o.make)
        return zr_trace_make(stdout, o.make, o.seed) ? ZR_EXIT_DONE : ZR_EXIT_ERROR;
    o.file = argv[at];
    if (zr_is_record(o.file))
        return replay_record(&o);
    if (o.settings)
        return zr_wrong(&command, "--settings needs a record, and this is none: 'zeroute record' makes one");
    int result = load(&o, &t) ? replay(&o, &t) : ZR_EXIT_ERROR;
    zr_trace_free(&t);
    return result;
}
