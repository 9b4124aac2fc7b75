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
#include "entries.def"
#undef ZR_ENTRY
#define ZR_ABOVE(name, way) #name,
#include "entries_above.def"
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

static void raise_to(uint64_t *peak, uint64_t value)
{
    uint64_t seen = __atomic_load_n(peak, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(peak, &seen, value, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        ;
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
        raise_to(&h->max_ns, ns);
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

static void calibrate(uint64_t *ticks)
{
    unsigned a, b, c, d;
    struct timespec start, now;
    *ticks = 0;
    zr_clock_is_tsc = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
    if (zr_clock_is_tsc) {
        /* 200 us once per process that uses a device: good to some hundredths of a percent. */
        clock_gettime(CLOCK_MONOTONIC, &start);
        uint64_t from = __rdtsc(), to, ns;
        do {
            clock_gettime(CLOCK_MONOTONIC, &now);
            to = __rdtsc();
            ns = (uint64_t)(now.tv_sec - start.tv_sec) * 1000000000u + (uint64_t)now.tv_nsec -
                 (uint64_t)start.tv_nsec;
        } while (ns < 200000);
        clock_scale = (uint64_t)(((zr_u128)ns << 32) / (to - from));
        clock_hz = (uint64_t)((zr_u128)(to - from) * 1000000000u / ns);
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
        char knobs[1000];
        zr_knobs_print(&zr_config, knobs, sizeof knobs);
        zr_text(ZR_T_KNOBS, knobs);
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

/* What a thread has booked, as another one may read it while the mark is moved; at most a few tries. */
static int64_t level(struct zr_shard *s, struct zr_level *l)
{
    int64_t now = 0;
    for (int tries = 0; tries < 100; tries++) {
        uint64_t marks = __atomic_load_n(&s->marks, __ATOMIC_ACQUIRE);
        now = __atomic_load_n(&l->mark, __ATOMIC_ACQUIRE) + __atomic_load_n(&l->over, __ATOMIC_ACQUIRE);
        if (!(marks & 1) && __atomic_load_n(&s->marks, __ATOMIC_RELAXED) == marks)
            break;
    }
    return now;
}

/* By the thread of this shard. */
static void move_mark(struct zr_shard *s, struct zr_level *l, int64_t by)
{
    zr_relaxed_add(&s->marks, 1);
    atomic_signal_fence(memory_order_seq_cst);
    zr_relaxed_add((uint64_t *)&l->mark, (uint64_t)by);
    zr_relaxed_add((uint64_t *)&l->over, -(uint64_t)by);
    atomic_signal_fence(memory_order_seq_cst);
    zr_relaxed_add(&s->marks, 1);
}

/*
 * This thread is higher than it was: is the process? With one thread every new high comes here and
 * the peak is exact; with several, each looks after every 256 KiB, and the peak may lack that and
 * the slack per thread.
 */
void zr_peak_slow(struct zr_shard *s, unsigned device)
{
    int64_t bytes = 0, blocks = 0, on_device = 0;
    unsigned n = __atomic_load_n(&zr_segment.header->shard_count, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < n; i++) {
        struct zr_shard *o = zr_segment_shard(i);
        bytes += level(o, &o->bytes);
        blocks += level(o, &o->blocks);
        on_device += level(o, &o->device[device]);
    }
    struct zr_globals *g = zr_segment.globals;
    if (bytes > 0)
        raise_to(&g->peak_bytes, (uint64_t)bytes);
    if (blocks > 0)
        raise_to(&g->peak_blocks, (uint64_t)blocks);
    if (on_device > 0)
        raise_to(&g->peak_device[device], (uint64_t)on_device);
    zr_segment_describe_device(device);
    if (!s)
        return;
    bool alone = n <= 2;
    struct {
        struct zr_level *level;
        int64_t step;
    } own[] = {{&s->bytes, 256 << 10}, {&s->blocks, 16}, {&s->device[device], 256 << 10}};
    for (size_t i = 0; i < 3; i++)
        if (own[i].level->over > 0)
            move_mark(s, own[i].level, own[i].level->over + (alone ? 0 : own[i].step));
}

void zr_book_rest(struct zr_shard *s, unsigned device, uint64_t bytes, unsigned done)
{
    if (done < 2)
        zr_level_up(&s->blocks, 1);
    if (done < 3)
        zr_level_up(&s->device[device], (int64_t)bytes);
    zr_booked(s);
    zr_peak_slow(s, device);
}

/* Half of the slack, so that the next free does not come here again. */
static void follow(struct zr_shard *s, struct zr_level *l, int64_t slack)
{
    if (l->over < -slack)
        move_mark(s, l, l->over + slack / 2);
}

void zr_marks_follow(struct zr_shard *s, unsigned device)
{
    follow(s, &s->bytes, ZR_PEAK_SLACK_BYTES);
    follow(s, &s->blocks, ZR_PEAK_SLACK_BLOCKS);
    follow(s, &s->device[device], ZR_PEAK_SLACK_BYTES);
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
    __atomic_fetch_add(&s->bytes.over, n, __ATOMIC_RELAXED);
    __atomic_fetch_add(&s->blocks.over, one, __ATOMIC_RELAXED);
    __atomic_fetch_add(&s->device[device].over, n, __ATOMIC_RELAXED);
    if (!unbook)
        zr_peak_slow(NULL, device);
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
            raise_to(cell[i] + 3, (uint64_t)now);
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
    named_count = 0;
    memset(latency_reserved, 0, sizeof latency_reserved);
    atomic_store(&shared_latency_reserved, 0);
    atomic_store(&state, 0);
}
