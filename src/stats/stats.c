/*
 * Counting, the part that is not inline: threads and their shards, peaks, latencies, named
 * counters.
 */
#include "zeroute.h"

#include <cpuid.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

__thread uintptr_t zr_shard_word = ZR_SHARD_UNCLAIMED;
const struct zr_pair zr_one_call = {0, 1};
/* Its shard is given back: whatever it still counts goes to shard 0. */
static __thread bool thread_ended;
static __thread int claimed = -1;
static __thread bool exit_known; /* give_back will be called when this thread ends */

bool zr_clock_is_tsc;
static uint64_t clock_hz = 1000000000u;
static uint64_t clock_scale = (uint64_t)1 << 32; /* nanoseconds per tick, times 2^32 */

static struct zr_lock lock;
static _Atomic int state; /* 0 not tried, 1 open, 2 off */
static unsigned shards_used = 1;
static unsigned free_list[ZR_SHARDS], free_count;

/*
 * Pages of a shard's histograms that are reserved, a bit for each; written by the owner of the
 * shard alone.
 */
static uint64_t latency_reserved[ZR_SHARDS];
static _Atomic uint64_t shared_latency_reserved;
#define LATENCY_PER_PAGE (4096 / sizeof(struct zeroute_segment_histogram))
_Static_assert(ZR_ENTRIES <= 64 * LATENCY_PER_PAGE, "a bit for each page of histograms");
_Static_assert(4096 % sizeof(struct zeroute_segment_histogram) == 0, "no histogram crosses a page");

static struct {
    uint64_t hash;
    char name[80];
} named[ZR_DYNAMIC];
static unsigned named_count;

static const char *const entry_names[] = {
#define ZR_ENTRY(name, ...) #name,
#include "base/entries.def"
#undef ZR_ENTRY
#define ZR_ABOVE(name, way) #name,
#include "base/entries_above.def"
#undef ZR_ABOVE
};

const char *zr_entry_name(enum zr_entry e)
{
    return entry_names[e];
}

/* --- latency: called after a driver call, so some ten nanoseconds do not matter --------------- */

static unsigned bucket_of(uint64_t ns)
{
    if (ns < 16)
        return 0;
    unsigned octave = 63u - (unsigned)__builtin_clzll(ns);
    unsigned b = 1 + (octave - 4) * 4 + (unsigned)(ns >> (octave - 2) & 3);
    return b < ZEROUTE_BUCKETS ? b : ZEROUTE_BUCKETS - 1;
}

static bool latency_page(unsigned shard, enum zr_entry e)
{
    uint64_t bit = (uint64_t)1 << e / LATENCY_PER_PAGE;
    uint64_t have = shard ? latency_reserved[shard] : atomic_load(&shared_latency_reserved);
    if (likely(have & bit))
        return true;
    struct zeroute_segment_histogram *h = &zr_segment_shard(shard)->latency[e];
    if (!zr_segment_reserve(h, sizeof *h))
        return false;
    if (shard)
        latency_reserved[shard] |= bit;
    else
        atomic_fetch_or(&shared_latency_reserved, bit);
    return true;
}

uint64_t zr_time_span(enum zr_entry e, uint64_t from, uint64_t to, uint64_t weight)
{
    uint64_t ns = (uint64_t)((zr_u128)(to - from) * clock_scale >> 32);
    uintptr_t w = zr_shard_word;
    if (unlikely(w == ZR_SHARD_UNCLAIMED)) {
        zr_add_slow(offsetof(struct zr_shard, calls), 0);
        w = zr_shard_word;
    }
    if (w == ZR_SHARD_OFF || w == ZR_SHARD_UNCLAIMED)
        return ns;
    bool shared = w & 1;
    struct zr_shard *s = (struct zr_shard *)(w & ~(uintptr_t)1);
    if (!latency_page(shared ? 0 : (unsigned)claimed, e))
        return ns;
    struct zeroute_segment_histogram *h = &s->latency[e];
    uint64_t *bucket = &h->buckets[bucket_of(ns)];
    if (unlikely(shared)) {
        __atomic_fetch_add(bucket, weight, __ATOMIC_RELAXED);
        __atomic_fetch_add(&h->sum_ns, ns * weight, __ATOMIC_RELAXED);
    } else {
        zr_relaxed_add(bucket, weight);
        zr_relaxed_add(&h->sum_ns, ns * weight);
    }
    if (ns > __atomic_load_n(&h->max_ns, __ATOMIC_RELAXED))
        zr_raise_to(&h->max_ns, ns);
    __atomic_store_n(&s->activity, to, __ATOMIC_RELAXED);
    if (unlikely(to >= zr_host_due))
        zr_host_sample(to + clock_hz / 10);
    return ns;
}

/* --- shards ----------------------------------------------------------------------------------- */

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle __attribute__((visibility("hidden")));

static void give_back(void *unused)
{
    (void)unused;
    thread_ended = true;
    exit_known = false;
    zr_shard_word = ZR_SHARD_UNCLAIMED;
    zr_fork_check();
    if (zr_hit_forget)
        zr_hit_forget();
    if (claimed < 0)
        return;
    zr_lock(&lock);
    free_list[free_count++] = (unsigned)claimed;
    zr_unlock(&lock);
    claimed = -1;
}

/* Gives this thread a shard of its own, or the shared one. With the lock held. */
static void claim(void)
{
    unsigned n = 0;
    if (exit_known && !thread_ended) {
        if (free_count) {
            n = free_list[--free_count];
        } else if (shards_used < ZR_SHARDS &&
                   zr_segment_reserve(zr_segment_shard(shards_used),
                                      offsetof(struct zr_shard, latency))) {
            n = shards_used++;
            __atomic_store_n(&zr_segment.header->shard_count, shards_used, __ATOMIC_RELEASE);
        }
    }
    claimed = n ? (int)n : -1;
    zr_shard_word = (uintptr_t)zr_segment_shard(n) | (n == 0);
}

/*
 * Counter and clock at one moment. Of some readings the shortest: a busy machine lets others run in the middle of one,
 * for milliseconds.
 */
static uint64_t read_both(struct timespec *clock)
{
    uint64_t shortest = 0, at = 0;
    for (int i = 0; i < 8; i++) {
        struct timespec now;
        uint64_t before = __rdtsc();
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t took = __rdtsc() - before;
        if (i == 0 || took < shortest) {
            shortest = took;
            at = before + took / 2;
            *clock = now;
        }
    }
    return at;
}

static uint64_t ns_between(const struct timespec *from, const struct timespec *to)
{
    return (uint64_t)(to->tv_sec - from->tv_sec) * 1000000000u + (uint64_t)to->tv_nsec - (uint64_t)from->tv_nsec;
}

static void calibrate(uint64_t *ticks)
{
    unsigned a, b, c, d;
    struct timespec start, now;
    *ticks = 0;
    zr_clock_is_tsc = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
    if (zr_clock_is_tsc) {
        /* 200 us once per process that uses a device: good to some hundredths of a percent. */
        uint64_t from = read_both(&start);
        do {
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while (ns_between(&start, &now) < 200000);
        uint64_t passed = read_both(&now) - from, ns = ns_between(&start, &now);
        clock_scale = (uint64_t)(((zr_u128)ns << 32) / passed);
        clock_hz = (uint64_t)((zr_u128)passed * 1000000000u / ns);
    }
    *ticks = zr_ticks();
}

bool zr_stats_is_open(void)
{
    return atomic_load_explicit(&state, memory_order_acquire) == 1;
}

bool zr_stats_open(void)
{
    int seen = atomic_load_explicit(&state, memory_order_acquire);
    if (likely(seen))
        return seen == 1;
    int saved = errno;
    zr_config_load();
    zr_fork_arm();
    zr_lock(&lock);
    bool made = false;
    if (!atomic_load(&state)) {
        if (zr_config.stats) {
            uint64_t ticks;
            calibrate(&ticks);
            made = zr_segment_create(clock_hz, ticks);
        }
        atomic_store_explicit(&state, made ? 1 : 2, memory_order_release);
    }
    zr_unlock(&lock);
    if (made) {
        char settings[1000];
        zr_settings_print(&zr_config, settings, sizeof settings);
        zr_text(ZR_T_SETTINGS, settings);
        zr_host_start();
        zr_fingerprint_refresh();
    }
    errno = saved;
    return atomic_load(&state) == 1;
}

/*
 * The thread's word after trying for a shard: what is counted before the segment is there is not
 * lost.
 */
static uintptr_t word(void)
{
    if (zr_shard_word != ZR_SHARD_UNCLAIMED)
        return zr_shard_word;
    if (!zr_stats_open()) {
        zr_shard_word = ZR_SHARD_OFF;
        return ZR_SHARD_OFF;
    }
    int saved = errno;
    /*
     * Outside our lock: libc takes the loader's, which a thread inside dlopen may hold while it
     * counts.
     */
    if (!exit_known && !thread_ended)
        exit_known = __cxa_thread_atexit_impl(give_back, NULL, &__dso_handle) == 0;
    zr_lock(&lock);
    claim();
    zr_unlock(&lock);
    errno = saved;
    return zr_shard_word;
}

void zr_add_slow(size_t offset, uint64_t n)
{
    uintptr_t w = word();
    if (w == ZR_SHARD_OFF)
        return;
    uint64_t *at = (uint64_t *)((w & ~(uintptr_t)1) + offset);
    if (w & 1)
        __atomic_fetch_add(at, n, __ATOMIC_RELAXED);
    else
        zr_relaxed_add(at, n);
}

/* --- booking ---------------------------------------------------------------------------------- */

/* Of the places that nobody counts in yet, the one nearest to the level of the device. */
static uint32_t place_for(const struct zr_shard *s, unsigned device, unsigned n)
{
    for (unsigned i = 0; i < 2; i++) {
        uint32_t at = zr_in_shard(s, &s->on[device].tally[i]);
        unsigned k = 0;
        while (k < n && s->into[k].tally != at)
            k++;
        if (k == n)
            return at;
    }
    return zr_in_shard(s, &s->more[n]);
}

/* The processor has AVX, and the system saves its registers. */
static bool has_avx(void)
{
    static int known; /* atomic; 0: not yet */
    int answer = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!answer) {
        unsigned a, b, c = 0, d;
        answer = -1;
        if (__get_cpuid(1, &a, &b, &c, &d) && c & bit_OSXSAVE && c & bit_AVX) {
            __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
            answer = (a & 6) == 6 ? 1 : -1;
        }
        __atomic_store_n(&known, answer, __ATOMIC_RELAXED);
    }
    return answer > 0;
}

struct zr_pair *zr_tally(struct zr_shard *s, unsigned device, const struct zeroute_segment_into *into)
{
    if (!has_avx())
        return NULL;
    for (unsigned i = 0; i < ZR_TALLIES; i++) {
        struct zeroute_segment_into *at = &s->into[i];
        if (!at->tally) {
            uint32_t place = place_for(s, device, i);
            *at = *into;
            __atomic_store_n(&at->tally, place, __ATOMIC_RELEASE);
        }
        if (memcmp(at->bytes, into->bytes, sizeof into->bytes) == 0 &&
            memcmp(at->calls, into->calls, sizeof into->calls) == 0)
            return (struct zr_pair *)((uintptr_t)s + at->tally);
    }
    return NULL;
}

void zr_tally_failed(struct zr_shard *s, const struct zr_pair *tally, uint64_t bytes)
{
    const struct zeroute_segment_into *into = s->into;
    while (into->tally != zr_in_shard(s, tally))
        into++;
    for (size_t i = 1; i < sizeof into->calls / sizeof *into->calls && into->calls[i]; i++)
        zr_relaxed_add((uint64_t *)((uintptr_t)s + into->calls[i]), 1);
    if (into->bytes[1])
        zr_relaxed_add((uint64_t *)((uintptr_t)s + into->bytes[1]), bytes);
}

void zr_book_slow(enum zr_kind k, unsigned device, uint64_t bytes, bool unbook)
{
    uintptr_t w = word();
    if (w == ZR_SHARD_OFF)
        return;
    if (!(w & 1)) {
        if (unbook)
            zr_unbook(k, device, bytes);
        else
            zr_book(k, device, bytes);
        return;
    }
    struct zr_shard *s = (struct zr_shard *)(w & ~(uintptr_t)1);
    if (device >= ZR_DEVICES)
        device = ZR_DEVICES - 1;
    struct zr_cell *c = zr_cell(s, k, device);
    int64_t n = (int64_t)bytes, one = 1;
    if (unbook) {
        n = -n;
        one = -1;
    }
    __atomic_fetch_add(unbook ? &c->freed : &c->allocated, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(unbook ? &c->frees : &c->allocations, 1, __ATOMIC_RELAXED);
    if (k >= ZR_KINDS_ON_DEVICE)
        return;
    __atomic_fetch_add(&s->on[device].level.level.bytes, n, __ATOMIC_RELAXED);
    __atomic_fetch_add(&s->on[device].level.level.count, one, __ATOMIC_RELAXED);
    if (!unbook)
        zr_peak_look(&s->on[device].level);
}

void zr_book_reserved(unsigned device, int64_t bytes)
{
    if (!zr_stats_open())
        return;
    if (device >= ZR_DEVICES)
        device = ZR_DEVICES - 1;
    zr_segment_describe_device(device);
    struct zr_globals *g = zr_segment.globals;
    uint64_t *cell[] = {&g->reserved_all.allocated, &g->reserved[device].allocated};
    for (size_t i = 0; i < 2; i++) { /* allocated, freed, now, peak: four words in a row */
        if (bytes < 0)
            __atomic_fetch_add(cell[i] + 1, (uint64_t)-bytes, __ATOMIC_RELAXED);
        else
            __atomic_fetch_add(cell[i], (uint64_t)bytes, __ATOMIC_RELAXED);
        int64_t now = (int64_t)__atomic_add_fetch(cell[i] + 2, (uint64_t)bytes, __ATOMIC_RELAXED);
        if (now > 0)
            zr_raise_to(cell[i] + 3, (uint64_t)now);
    }
}

/* --- gauges, texts, names that come at run time ----------------------------------------------- */

void zr_gauge(enum zr_gauge g, uint64_t value)
{
    if (zr_stats_is_open())
        __atomic_store_n(&zr_segment.globals->gauges[g], value, __ATOMIC_RELAXED);
}

void zr_text(enum zr_text t, const char *text)
{
    if (!zr_stats_is_open())
        return;
    zr_lock(&lock);
    zr_segment_write_text(&zr_segment.globals->texts[t].head,
                          sizeof zr_segment.globals->texts[t], text, strlen(text));
    zr_unlock(&lock);
}

int zr_named(const char *name, const char *unit, const char *help)
{
    if (!zr_stats_open())
        return -1;
    uint64_t hash = 14695981039346656037u;
    for (const char *p = name; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    zr_lock(&lock);
    unsigned n = 0;
    while (n < named_count && (named[n].hash != hash || strncmp(named[n].name, name, 79) != 0))
        n++;
    int number = (int)n;
    if (n == named_count) {
        struct zeroute_segment_field f = {
            .type = ZEROUTE_COUNTER,
            .offset = (uint32_t)(offsetof(struct zr_shard, dynamic) + n * sizeof(uint64_t))};
        snprintf(f.name, sizeof f.name, "%s", name);
        snprintf(f.unit, sizeof f.unit, "%s", unit);
        snprintf(f.help, sizeof f.help, "%s", help);
        if (n < ZR_DYNAMIC && zr_segment_describe(&f)) {
            named[n].hash = hash;
            memcpy(named[n].name, f.name, sizeof named[n].name);
            named_count++;
        } else {
            number = -1;
        }
    }
    zr_unlock(&lock);
    return number;
}

void zr_count_failure_code(enum zr_entry e, uint32_t code)
{
    char name[40];
    zr_count_failure(e);
    snprintf(name, sizeof name, "failures.code.0x%08x", code);
    zr_count_named(zr_named(name, "", "calls that failed with this code"), 1);
}

/* The parent's segment stays as it is; this process gets its own at its first device operation. */
void zr_fork_child_stats(void)
{
    zr_segment_abandon();
    zr_shard_word = ZR_SHARD_UNCLAIMED;
    claimed = -1;
    lock = (struct zr_lock){0};
    shards_used = 1;
    free_count = 0;
    zr_fork_child_peak();
    named_count = 0;
    memset(latency_reserved, 0, sizeof latency_reserved);
    atomic_store(&shared_latency_reserved, 0);
    atomic_store(&state, 0);
}
