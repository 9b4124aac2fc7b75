/*
 * Counting: one shard per thread, written by that thread alone with plain loads and stores (about 1
 * ns, no line that another thread writes). Readers add the shards up.
 */
#ifndef ZEROUTE_STATS_H
#define ZEROUTE_STATS_H

#include "zeroute/segment.h"
#include <stdatomic.h>
#include <time.h>
#include <x86intrin.h>

enum zr_field {
#define ZR_COUNTER(id, name, unit, help) ZR_F_##id,
#define ZR_GAUGE(id, name, unit, help)
#define ZR_TEXT(id, name, help)
#define ZR_ACCOUNT(id, name, unit, help)
#include "fields.def"
#undef ZR_COUNTER
    ZR_FIELDS
};
enum zr_gauge {
#define ZR_COUNTER(id, name, unit, help)
#undef ZR_GAUGE
#define ZR_GAUGE(id, name, unit, help) ZR_G_##id,
#include "fields.def"
#undef ZR_GAUGE
    ZR_GAUGES
};
enum zr_text {
#define ZR_GAUGE(id, name, unit, help)
#undef ZR_TEXT
#define ZR_TEXT(id, name, help) ZR_T_##id,
#include "fields.def"
#undef ZR_TEXT
    ZR_TEXTS
};
#undef ZR_COUNTER
#undef ZR_GAUGE
#undef ZR_ACCOUNT

#define ZR_DEVICES 16   /* devices beyond are counted with the last */
#define ZR_DYNAMIC 384  /* fields that get their name at run time */
#define ZR_SHARDS 256   /* threads beyond share shard 0 */

struct zr_cell {
    uint64_t allocated, freed;   /* bytes */
    uint64_t allocations, frees; /* blocks */
};

/*
 * What one thread has booked, net, as its distance from a mark: above it the peak of all must be looked at, and when
 * it is far below, the mark follows. So a booking is an addition and a test of its sign.
 */
struct zr_level {
    int64_t over; /* what is booked, less the mark */
    int64_t mark;
};

/*
 * What every allocation and free touches lies in few cache lines: the driver leaves little of the first-level cache
 * to us. The first line has the generation, which guards all up to `fields`, and the levels of device 0.
 */
struct zr_shard {
    uint64_t generation; /* odd while a booking is written */
    uint64_t marks;      /* odd while a mark is moved */
    struct zr_level bytes, blocks, device[ZR_DEVICES];
    _Alignas(64) struct zr_cell on_device[ZR_DEVICES][ZR_KINDS_ON_DEVICE];
    struct zr_cell elsewhere[ZR_KINDS - ZR_KINDS_ON_DEVICE];
    _Alignas(64) uint64_t fields[ZR_FIELDS];
    _Alignas(64) uint64_t calls[ZR_WAYS][(ZR_ENTRIES + 7) / 8 * 8];
    uint64_t activity; /* clock at the last driver call that was timed */
    uint64_t failures[ZR_ENTRIES];
    uint64_t dynamic[ZR_DYNAMIC];
    _Alignas(4096) struct zeroute_segment_histogram latency[ZR_ENTRIES];
};

/*
 * This thread's shard. The lowest bit set means that there is none to write to with plain stores:
 * not claimed yet, statistics off, or the shared shard 0.
 */
extern __thread uintptr_t zr_shard_word;
#define ZR_SHARD_UNCLAIMED ((uintptr_t)1)
#define ZR_SHARD_OFF ((uintptr_t)3)

/*
 * At the first device operation: makes the segment. Idempotent. False: stats:off, or it failed
 * (said once).
 */
bool zr_stats_open(void);
/* As zr_stats_open, without making it: is there a segment? */
bool zr_stats_is_open(void);
void zr_gauge(enum zr_gauge g, uint64_t value);
void zr_text(enum zr_text t, const char *text);
/*
 * A counter whose name is known only now ("guard.calls.zeFoo"): returns its number for
 * zr_count_named, the same one for the same name. Cold: takes a lock. When the table is full, -1,
 * which zr_count_named ignores.
 */
int zr_named(const char *name, const char *unit, const char *help);
/* failures.<entry> and failures.code.<code>. */
void zr_count_failure_code(enum zr_entry e, uint32_t code);
/*
 * reserved_bytes.all and of the device: what we hold from the driver, cached or handed out. On
 * driver calls only.
 */
void zr_book_reserved(unsigned device, int64_t bytes);
/*
 * The driver's part of a call, between two readings of zr_ticks(). `weight`: how many calls it
 * stands for, when others were not timed. Returns it in nanoseconds.
 */
uint64_t zr_time_span(enum zr_entry e, uint64_t from, uint64_t to, uint64_t weight);
const char *zr_entry_name(enum zr_entry e);

/* Private to stats.c, here for the inline functions. */
extern bool zr_clock_is_tsc;
void zr_add_slow(size_t offset, uint64_t n);
void zr_book_slow(enum zr_kind k, unsigned device, uint64_t bytes, bool unbook);
void zr_peak_slow(struct zr_shard *s, unsigned device);
void zr_marks_follow(struct zr_shard *s, unsigned device);
/* The rest of a booking that rises above a mark: `done` of the three levels have it already. */
void zr_book_rest(struct zr_shard *s, unsigned device, uint64_t bytes, unsigned done);

static inline uint64_t zr_ticks(void)
{
    if (likely(zr_clock_is_tsc))
        return __rdtsc();
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ThreadSanitizer does not see into assembly. */
#ifdef __SANITIZE_THREAD__
#define ZR_PLAIN_C
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ZR_PLAIN_C
#endif
#endif

/* Written by this thread alone, read by others: one instruction, which compilers do not make of a load and a store. */
static inline void zr_relaxed_add(uint64_t *p, uint64_t n)
{
#ifdef ZR_PLAIN_C
    __atomic_store_n(p, __atomic_load_n(p, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
#else
    __asm__("addq %1, %0" : "+m"(*p) : "er"(n) : "cc");
#endif
}

static inline void zr_add(size_t offset, uint64_t n)
{
    uintptr_t w = zr_shard_word;
    if (likely(!(w & 1)))
        zr_relaxed_add((uint64_t *)(w + offset), n);
    else if (w != ZR_SHARD_OFF)
        zr_add_slow(offset, n);
}

static inline void zr_count(enum zr_field f, uint64_t n)
{
    zr_add(offsetof(struct zr_shard, fields) + f * sizeof(uint64_t), n);
}

static inline void zr_count_named(int number, uint64_t n)
{
    if (likely(number >= 0))
        zr_add(offsetof(struct zr_shard, dynamic) + (size_t)number * sizeof(uint64_t), n);
}

static inline void zr_count_call(enum zr_entry e, enum zr_way w)
{
    zr_add(offsetof(struct zr_shard, calls[0]) + w * sizeof(((struct zr_shard *)0)->calls[0]) +
               e * sizeof(uint64_t),
           1);
}

static inline void zr_count_failure(enum zr_entry e)
{
    zr_add(offsetof(struct zr_shard, failures) + e * sizeof(uint64_t), 1);
}

static inline struct zr_cell *zr_cell(struct zr_shard *s, enum zr_kind k, unsigned device)
{
    if (likely(k < ZR_KINDS_ON_DEVICE))
        return &s->on_device[device][k];
    return &s->elsewhere[k - ZR_KINDS_ON_DEVICE];
}

/* Around a booking: odd in between. Stores are not reordered on x86-64. */
static inline void zr_booking(struct zr_shard *s)
{
    zr_relaxed_add(&s->generation, 1);
    atomic_signal_fence(memory_order_seq_cst);
}

static inline void zr_booked(struct zr_shard *s)
{
    atomic_signal_fence(memory_order_seq_cst);
    zr_relaxed_add(&s->generation, 1);
}

/* True: it is above its mark now. */
static inline bool zr_level_up(struct zr_level *l, int64_t n)
{
#ifdef ZR_PLAIN_C
    int64_t over = __atomic_load_n(&l->over, __ATOMIC_RELAXED) + n;
    __atomic_store_n(&l->over, over, __ATOMIC_RELAXED);
    return over > 0;
#else
    bool above;
    __asm__("addq %2, %1" : "=@ccg"(above), "+m"(l->over) : "er"(n));
    return above;
#endif
}

static inline void zr_level_down(struct zr_level *l, int64_t n)
{
    zr_relaxed_add((uint64_t *)&l->over, -(uint64_t)n);
}

/*
 * How far a thread may fall before its mark follows: what the peak of several threads may lack, per
 * thread.
 */
#define ZR_PEAK_SLACK_BYTES ((int64_t)64 << 20)
#define ZR_PEAK_SLACK_BLOCKS ((int64_t)1024)

/* The books of memory on a device: its cell for this kind, its level, in a shard of this thread. */
static inline void zr_book_on_device(struct zr_shard *s, struct zr_cell *c, struct zr_level *l,
                                     unsigned device, uint64_t bytes)
{
    int64_t n = (int64_t)bytes;
    zr_booking(s);
    zr_relaxed_add(&c->allocated, bytes);
    zr_relaxed_add(&c->allocations, 1);
    if (unlikely(zr_level_up(&s->bytes, n)))
        zr_book_rest(s, device, bytes, 1);
    else if (unlikely(zr_level_up(&s->blocks, 1)))
        zr_book_rest(s, device, bytes, 2);
    else if (unlikely(zr_level_up(l, n)))
        zr_book_rest(s, device, bytes, 3);
    else
        zr_booked(s);
}

static inline void zr_unbook_on_device(struct zr_shard *s, struct zr_cell *c, struct zr_level *l,
                                       unsigned device, uint64_t bytes)
{
    int64_t n = (int64_t)bytes;
    zr_booking(s);
    zr_relaxed_add(&c->freed, bytes);
    zr_relaxed_add(&c->frees, 1);
    zr_level_down(&s->bytes, n);
    zr_level_down(&s->blocks, 1);
    zr_level_down(l, n);
    zr_booked(s);
    if (unlikely(s->bytes.over < -ZR_PEAK_SLACK_BYTES) ||
        unlikely(s->blocks.over < -ZR_PEAK_SLACK_BLOCKS) || unlikely(l->over < -ZR_PEAK_SLACK_BYTES))
        zr_marks_follow(s, device);
}

/*
 * The driver or the cache has given out memory: allocated_bytes.*, allocation.*, of all and of the
 * device.
 */
static inline void zr_book(enum zr_kind k, unsigned device, uint64_t bytes)
{
    uintptr_t w = zr_shard_word;
    if (unlikely(w & 1)) {
        if (w != ZR_SHARD_OFF)
            zr_book_slow(k, device, bytes, false);
        return;
    }
    struct zr_shard *s = (struct zr_shard *)w;
    if (unlikely(device >= ZR_DEVICES))
        device = ZR_DEVICES - 1;
    if (likely(k < ZR_KINDS_ON_DEVICE)) {
        zr_book_on_device(s, &s->on_device[device][k], &s->device[device], device, bytes);
        return;
    }
    struct zr_cell *c = zr_cell(s, k, device);
    zr_booking(s);
    zr_relaxed_add(&c->allocated, bytes);
    zr_relaxed_add(&c->allocations, 1);
    zr_booked(s);
}

/* Memory has been taken back. */
static inline void zr_unbook(enum zr_kind k, unsigned device, uint64_t bytes)
{
    uintptr_t w = zr_shard_word;
    if (unlikely(w & 1)) {
        if (w != ZR_SHARD_OFF)
            zr_book_slow(k, device, bytes, true);
        return;
    }
    struct zr_shard *s = (struct zr_shard *)w;
    if (unlikely(device >= ZR_DEVICES))
        device = ZR_DEVICES - 1;
    if (likely(k < ZR_KINDS_ON_DEVICE)) {
        zr_unbook_on_device(s, &s->on_device[device][k], &s->device[device], device, bytes);
        return;
    }
    struct zr_cell *c = zr_cell(s, k, device);
    zr_booking(s);
    zr_relaxed_add(&c->freed, bytes);
    zr_relaxed_add(&c->frees, 1);
    zr_booked(s);
}

#endif
