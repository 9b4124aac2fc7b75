/* Histograms of how long calls take, and which calls are timed. */
#include "stats/stats.h"

#include <errno.h>

enum { QUICK_NS = 2000, STREAK = 64, PACES = ZR_ENTRIES * 64 };

/* --- which calls are timed -------------------------------------------------------------------- */

/* If there is no memory for it, or the thread is ending, all calls are timed. */
static void make_pace(void) {
    if (!zr_thread_attend())
        return;
    zr_thread.stats.pace = zr_pages(PACES * sizeof *zr_thread.stats.pace);
    zr_thread.stats.random = (uint32_t)zr_now();
}

ZR_COLD uint32_t zr_time_weight_slow(const struct zr_pace *p) {
    if (!zr_shard_of_thread())
        return zr_config.inject.count != 0;
    if (!p)
        make_pace();
    return p && p->weight ? p->weight : 1;
}

/* One in 65 to 192 quick calls, at random: a fixed interval could miss periodic calls. */
static void pace_learn(struct zr_pace *p, uint64_t ns) {
    p->untimed = 0;
    p->weight = 0;
    /* Every call is looked at that may be made to fail. */
    if (ns >= QUICK_NS || zr_config.inject.count) {
        p->streak = 0;
    } else if (p->streak == STREAK || ++p->streak == STREAK) {
        zr_thread.stats.random = zr_thread.stats.random * 1664525u + 1013904223u;
        p->weight = (uint8_t)(65 + (zr_thread.stats.random >> 25));
        p->untimed = p->weight - 1;
    }
}

void zr_latency_thread_end(void) {
    if (zr_thread.stats.pace)
        zr_pages_back(zr_thread.stats.pace, PACES * sizeof *zr_thread.stats.pace);
    zr_thread.stats.pace = NULL;
}

/* --- histograms ------------------------------------------------------------------------------- */

static unsigned histogram_bucket(uint64_t ns) {
    unsigned octave = zr_power_of(ns), b;

    if (ns < 16)
        return 0;
    b = 1 + (octave - 4) * 4 + (unsigned)(ns >> (octave - 2) & 3);
    return b < ZEROUTE_BUCKETS ? b : ZEROUTE_BUCKETS - 1;
}

/* All threads share the histograms of shard 0: timed calls are slow or rare. */
static void histogram_record(enum zr_entry e, uint64_t ns, uint32_t weight) {
    struct zeroute_segment_histogram *h = &zr_segment_shard(0)->latency[e];

    __atomic_fetch_add(&h->buckets[histogram_bucket(ns)], weight, __ATOMIC_RELAXED);
    __atomic_fetch_add(&h->sum_ns, ns * weight, __ATOMIC_RELAXED);
    zr_raise_to((int64_t *)&h->max_ns, (int64_t)ns);
}

void zr_time_call(enum zr_entry e, size_t bytes, uint64_t start, uint32_t weight) {
    uint64_t now = zr_now(), ns = now - start;
    struct zr_shard *s = zr_shard_of_thread();
    int saved = errno;

    if (!s)
        return;
    histogram_record(e, ns, weight);
    __atomic_store_n(&s->activity, now, __ATOMIC_RELAXED);
    if (zr_thread.stats.pace)
        pace_learn(&zr_thread.stats.pace[zr_power_of(bytes) * ZR_ENTRIES + e], ns);
    errno = saved;
}
