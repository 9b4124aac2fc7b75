/*
 * The map of the preload: what crosses files, grouped by the file that defines it. Way of an
 * allocation: entry/ -> policy -> cache/ -> driver. stats and trace are written from the side.
 */
#ifndef ZEROUTE_INTERNAL_H
#define ZEROUTE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/kind.h"
#include "base/settings.h"
#include "base/lock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

/* All that follows is the library's own: no detour over the global offset table. */
#pragma GCC visibility push(hidden)

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* How a call came to us. */
enum zr_via { ZR_VIA_PLT, ZR_VIA_DLSYM, ZR_VIA_TABLE, ZR_VIA_SYCL, ZR_VIA_POOL, ZR_VIAS };

/*
 * Every entry point: ZR_E_zeMemAllocDevice, ..., ZR_E_aligned_alloc_device, ..., ZR_E_pool_malloc,
 * ...
 */
enum zr_entry {
#define ZR_ENTRY(name, ...) ZR_E_##name,
#include "base/entries.def"
#undef ZR_ENTRY
    ZR_ENTRIES_ZE,
    ZR_E_before_above = ZR_ENTRIES_ZE - 1,
#define ZR_ABOVE(name, way) ZR_E_##name,
#include "base/entries_above.def"
#undef ZR_ABOVE
    ZR_ENTRIES
};

/* --- config.c: the settings in force; all zero before zr_config_load(), read-only after it ------- */
extern struct zr_config zr_config;
/* At the first touch of Level Zero, never before: environment and file. Idempotent, any thread. */
void zr_config_load(void);

/*
 * Nothing is kept: what we hold from the driver is what the process holds from us. Then
 * reserved_bytes is another name for allocated_bytes, and booking it costs nothing.
 */
static inline bool zr_reserved_is_allocated(void)
{
    return !zr_config.cache && (zr_config.route == ZR_ROUTE_NATIVE || zr_config.route == ZR_ROUTE_SYCL);
}

/* --- say.c ------------------------------------------------------------------------------------ */
/*
 * One line on stderr by write(2), "zeroute: " in front; each message once in a process. errno is
 * kept.
 */
void zr_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* --- stats.c: counters in the segment; the inline part is stats.h ----------------------------- */
#include "stats/stats.h"

/* --- segment.c: the file behind the counters; only stats.c and fingerprint.c write through it - */
struct zr_globals {
    uint64_t unused; /* so that no offset is 0, which stands for none */
    uint64_t peak_bytes, peak_blocks, peak_device[ZR_DEVICES];
    struct {
        uint64_t allocated, freed, now, peak;
    } reserved_all, reserved[ZR_DEVICES];
    uint64_t gauges[ZR_GAUGES];
    struct {
        struct zeroute_segment_text head;
        char text[1008];
    } texts[ZR_TEXTS];
};
struct zr_segment {
    struct zeroute_segment_header *header; /* NULL: there is none */
    struct zr_globals *globals;
    struct zeroute_segment_text *fingerprint;
    char *shards;
    int fd;
    uint64_t device, inode; /* of the file, to know our descriptor again */
};
extern struct zr_segment zr_segment;
#define ZR_FINGERPRINT_SIZE ((size_t)128 << 10)
/*
 * Makes the file, its table of fields and shard 0. On failure false, with nothing left behind and
 * said once.
 */
bool zr_segment_create(uint64_t clock_hz, uint64_t clock_ticks);
/* In a forked child: lets go of the parent's file without touching it. */
void zr_segment_abandon(void);
/*
 * Gets real pages behind a part of the mapping, so that a full /dev/shm is an error here and no
 * SIGBUS later.
 */
bool zr_segment_reserve(const void *start, size_t size);
static inline struct zr_shard *zr_segment_shard(unsigned n)
{
    return (struct zr_shard *)(void *)(zr_segment.shards + n * sizeof(struct zr_shard));
}
/* Appends a field that readers see from now on; false when the table or the file system is full. */
bool zr_segment_describe(const struct zeroute_segment_field *f);
/* The fields of device n. */
void zr_segment_describe_device(unsigned n);
/* Replaces a text under its generation number; cut at size. */
void zr_segment_write_text(struct zeroute_segment_text *t, size_t size, const char *text,
                           size_t length);

/* --- callers.c -------------------------------------------------------------------------------- */
struct zr_site {
    const void *address;
    uint32_t calls, bytes; /* where its counters lie in a shard */
};
struct zr_sites {
    unsigned long long generation; /* libraries loaded and unloaded when it was filled */
    uint32_t countdown;
    struct zr_site site[256];
};
extern __thread struct zr_sites *zr_sites;
void zr_count_caller_slow(const void *return_address, uint64_t bytes);

static inline unsigned zr_site_of(const void *address)
{
    uintptr_t a = (uintptr_t)address;
    return (unsigned)((a ^ a >> 9) & 255);
}

/*
 * callers.<soname>.calls and .bytes of the library that holds the address. About 2 ns when seen
 * before.
 */
static inline void zr_count_caller(const void *return_address, uint64_t bytes)
{
    struct zr_sites *t = zr_sites;
    uintptr_t w = zr_shard_word;
    if (likely(t && !(w & 1))) {
        const struct zr_site *s = &t->site[zr_site_of(return_address)];
        if (likely(s->address == return_address && --t->countdown)) {
            zr_relaxed_add((uint64_t *)(w + s->calls), 1);
            zr_relaxed_add((uint64_t *)(w + s->bytes), bytes);
            return;
        }
    }
    zr_count_caller_slow(return_address, bytes);
}
/* Libraries have come or gone since `seen`: callers are looked up again. About 100 ns. */
bool zr_callers_moved(unsigned long long *seen);
/* The library's name ("libccl.so.1"), never NULL; valid for the life of the process. Cold. */
const char *zr_caller_name(const void *address);

/* --- fingerprint.c: what this process runs on, for comparing runs ----------------------------- */
/*
 * Writes the fingerprint into the segment: about 0.1 ms. Called again when libraries have come or
 * gone.
 */
void zr_fingerprint_refresh(void);
/*
 * A fact that only the caller knows ("driver.version", "1.6.33578"); kept for every later refresh.
 */
void zr_fingerprint_note(const char *key, const char *value);

/* --- host.c: host memory behind device memory ------------------------------------------------- */
/* When the segment is made: the baseline that readers compare with. */
void zr_host_start(void);
/* After something slow (a driver call), when zr_ticks() has come to zr_host_due: host figures for readers. About
 * 50 us; `next` is when the next is due. */
extern _Atomic uint64_t zr_host_due;
void zr_host_sample(uint64_t next);
/*
 * host_floor: whether a device allocation must fail with OUT_OF_HOST_MEMORY now; counted and said.
 */
bool zr_host_refuses_slow(uint64_t bytes);
static inline bool zr_host_refuses(uint64_t bytes)
{
    return unlikely(zr_config.host_floor.set) && zr_host_refuses_slow(bytes);
}
/*
 * backing:eager: into the environment, before the driver reads it; what the user set himself is
 * kept.
 */
void zr_host_back_eagerly(void);

/* --- trace.c: the setting `trace` ------------------------------------------------------------------ */
void zr_trace_slow(char op, const void *id, uint64_t bytes, unsigned stream);
/*
 * A block was got ('a', afterwards) or is given back ('f', before): its address, and the device in the place of a
 * stream. One load when nothing is traced.
 */
static inline void zr_trace(char op, const void *id, uint64_t bytes, unsigned stream)
{
    if (unlikely(zr_config.trace != NULL))
        zr_trace_slow(op, id, bytes, stream);
}
/* Writes what is left. */
void zr_trace_end(void);

/* --- fork.c: a child starts with nothing of ours ---------------------------------------------- */
extern const volatile uint32_t *zr_fork_word;
/* Once, cold, before anything that a child must not inherit is made. */
void zr_fork_arm(void);
void zr_fork_child(void);
/*
 * At every hook of ours, before any lock or table is touched: sees fork, and raw clone too. One
 * load.
 */
static inline void zr_fork_check(void)
{
    if (unlikely(*__atomic_load_n(&zr_fork_word, __ATOMIC_ACQUIRE) == 0))
        zr_fork_child();
}
/* What each module forgets; called by zr_fork_child() in a process with a single thread. */
void zr_fork_child_stats(void);
void zr_fork_child_callers(void);
void zr_fork_child_fingerprint(void);
void zr_fork_child_host(void);
void zr_fork_child_config(void);
void zr_fork_child_trace(void);
/* Before this thread's shard goes to another: nothing is counted there that was learnt (hit.c). */
void zr_hit_forget(void) __attribute__((weak));
/* Everything from policy.c down; weak, because what only counts is linked without it. */
void zr_fork_child_policy(void) __attribute__((weak));

#pragma GCC visibility pop

#endif
