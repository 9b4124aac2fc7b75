/*
 * Counting: the segment's life, threads and their shards, gauges, texts, and counters named at run
 * time.
 */
#include "stats/stats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct zr_lock stats_lock;
static _Atomic int stats_state; /* 0 not tried, 1 open, 2 off */
static unsigned shards_used = 1;
static unsigned free_list[ZR_SHARDS], free_count;

static char named_fields[ZR_DYNAMIC][80];
static unsigned named_field_count;

bool zr_stats_is_open(void) {
    return atomic_load_explicit(&stats_state, memory_order_acquire) == 1;
}

bool zr_stats_open(void) {
    int seen = atomic_load_explicit(&stats_state, memory_order_acquire), saved = errno;
    bool made = false;

    if (likely(seen) || zr_exiting())
        return seen == 1;
    zr_config_load();
    zr_fork_arm();
    zr_lock(&stats_lock);
    if (!atomic_load(&stats_state)) {
        made = zr_config.stats && zr_segment_create();
        atomic_store_explicit(&stats_state, made ? 1 : 2, memory_order_release);
    }
    zr_unlock(&stats_lock);
    if (made) {
        char settings[1000];

        zr_settings_print(&zr_config, settings, sizeof settings);
        zr_text(ZR_T_SETTINGS, settings);
        if (*zr_backing_in_force())
            zr_text(ZR_T_BACKING, zr_backing_in_force());
        zr_fingerprint_refresh();
    }
    errno = saved;
    return atomic_load(&stats_state) == 1;
}

/* --- shards ----------------------------------------------------------------------------------- */

/*
 * A shard for this thread alone, returned or new; NULL if there is none. The caller holds the lock.
 */
static struct zr_shard *shard_claim(void) {
    if (free_count)
        return zr_segment_shard(free_list[--free_count]);
    if (shards_used == ZR_SHARDS ||
        !zr_segment_reserve(zr_segment_shard(shards_used), offsetof(struct zr_shard, latency)))
        return NULL;
    __atomic_store_n(&zr_segment.header->shard_count, ++shards_used, __ATOMIC_RELEASE);
    return zr_segment_shard(shards_used - 1);
}

struct zr_shard *zr_shard_of_thread(void) {
    int saved = errno;

    if (likely(zr_thread.stats.shard))
        return zr_thread.stats.shard;
    if (zr_thread.stats.shared)
        return zr_segment_shard(0);
    if (zr_thread.stats.off || !zr_stats_open()) {
        zr_thread.stats.off = true;
        return NULL;
    }
    /*
     * Without our lock: libc takes the dynamic linker's, which a thread inside dlopen may hold
     * while it counts.
     */
    if (zr_thread_attend()) {
        zr_lock(&stats_lock);
        zr_thread.stats.shard = shard_claim();
        zr_unlock(&stats_lock);
    }
    zr_thread.stats.shared = !zr_thread.stats.shard;
    errno = saved;
    return zr_thread.stats.shared ? zr_segment_shard(0) : zr_thread.stats.shard;
}

ZR_COLD void zr_add_slow(size_t offset, uint64_t n) {
    struct zr_shard *s = zr_shard_of_thread();

    if (!s)
        return;
    if (zr_thread.stats.shard)
        zr_add(offset, n);
    else
        __atomic_fetch_add((uint64_t *)((uintptr_t)s + offset), n, __ATOMIC_RELAXED);
}

void zr_stats_thread_end(void) {
    struct zr_shard *s = zr_thread.stats.shard;

    zr_latency_thread_end();
    zr_thread.stats.shard = NULL;
    zr_thread.stats.library = NULL;
    if (!s)
        return;
    zr_fold_all(s);
    zr_lock(&stats_lock);
    free_list[free_count++] = (unsigned)((size_t)((char *)s - zr_segment.shards) / sizeof *s);
    zr_unlock(&stats_lock);
}

/* --- gauges, texts, names that come at run time ----------------------------------------------- */

void zr_gauge(enum zr_gauge g, uint64_t value) {
    if (zr_stats_is_open())
        __atomic_store_n(&zr_segment.globals->gauges[g], value, __ATOMIC_RELAXED);
}

void zr_text(enum zr_text t, const char *text) {
    if (!zr_stats_is_open())
        return;
    zr_lock(&stats_lock);
    zr_segment_write_text(&zr_segment.globals->texts[t].head, sizeof zr_segment.globals->texts[t],
                          text, strlen(text));
    zr_unlock(&stats_lock);
}

/* Gives the next number to a new name; false if there is no room. The caller holds the lock. */
static bool name_next(const char *name, const char *unit, const char *help) {
    size_t offset = offsetof(struct zr_shard, dynamic) + named_field_count * sizeof(uint64_t);
    struct zeroute_segment_field f = {.type = ZEROUTE_COUNTER, .offset = (uint32_t)offset};

    if (named_field_count == ZR_DYNAMIC || !zr_segment_describe(&f, "", name, unit, help, ""))
        return false;
    memcpy(named_fields[named_field_count++], f.name, sizeof f.name);
    return true;
}

int zr_named(const char *name, const char *unit, const char *help) {
    unsigned n = 0;
    int saved = errno;
    bool there;

    if (!zr_stats_open())
        return -1;
    zr_lock(&stats_lock);
    while (n < named_field_count && strncmp(named_fields[n], name, sizeof named_fields[n] - 1) != 0)
        n++;
    there = n < named_field_count || name_next(name, unit, help);
    zr_unlock(&stats_lock);
    errno = saved;
    return there ? (int)n : -1;
}

ZR_COLD void zr_count_failure(enum zr_entry e, uint32_t code) {
    char name[40];

    zr_add(offsetof(struct zr_shard, failures) + e * sizeof(uint64_t), 1);
    if (code == ZR_DEVICE_LOST)
        zr_count(ZR_F_LOST_CALLS, 1);
    snprintf(name, sizeof name, "failures.code.0x%08x", code);
    zr_count_named(zr_named(name, "", "calls that failed with this code"), 1);
}

void zr_stats_fork_child(void) {
    zr_segment_abandon();
    zr_thread.stats.shard = NULL;
    zr_thread.stats.off = false;
    zr_thread.stats.shared = false;
    shards_used = 1;
    free_count = 0;
    named_field_count = 0;
    atomic_store(&stats_state, 0);
}
