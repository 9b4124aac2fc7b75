/*
 * Counting: one shard per thread, written by that thread alone with plain loads and stores (about 1
 * ns, no line that another thread writes). Readers add the shards up.
 */
#ifndef ZEROUTE_STATS_H
#define ZEROUTE_STATS_H

#include "zeroute/segment.h"
#include <emmintrin.h>
#include <stdatomic.h>
#include <time.h>
#include <x86intrin.h>

enum zr_field {
#define ZR_COUNTER(id, name, unit, help) ZR_F_##id,
#define ZR_GAUGE(id, name, unit, help)
#define ZR_TEXT(id, name, help)
#define ZR_ACCOUNT(id, name, unit, help)
#include "stats/fields.def"
#undef ZR_COUNTER
    ZR_FIELDS
};
enum zr_gauge {
#define ZR_COUNTER(id, name, unit, help)
#undef ZR_GAUGE
#define ZR_GAUGE(id, name, unit, help) ZR_G_##id,
#include "stats/fields.def"
#undef ZR_GAUGE
    ZR_GAUGES
};
enum zr_text {
#define ZR_GAUGE(id, name, unit, help)
#undef ZR_TEXT
#define ZR_TEXT(id, name, help) ZR_T_##id,
#include "stats/fields.def"
#undef ZR_TEXT
    ZR_TEXTS
};
#undef ZR_COUNTER
#undef ZR_GAUGE
#undef ZR_ACCOUNT

#define ZR_DEVICES 16   /* devices beyond are counted with the last */
#define ZR_DYNAMIC 384  /* fields that get their name at run time */
#define ZR_SHARDS 256   /* threads beyond share shard 0 */
#define ZR_TALLIES 32   /* per thread: a handful of libraries and devices; what is beyond is counted word by word */

struct zr_cell {
    uint64_t allocated, freed;   /* bytes */
    uint64_t allocations, frees; /* blocks */
};

/* A number of bytes and one of blocks or calls, in one store: they agree for whoever reads both. */
struct zr_pair {
    int64_t bytes, count;
} __attribute__((aligned(16)));

/*
 * What one thread has booked on one device, net, and up to where it may rise before the peak of all must be looked at
 * (peak.c). The level is written by the thread alone, the mark by whoever holds the lock of peaks.
 */
struct zr_level {
    struct zr_pair level, mark;
};

/* All that an allocation or a free writes, in one cache line: most threads have one tally for each. */
struct zr_line {
    struct zr_level level;
    struct zr_pair tally[2];
} __attribute__((aligned(64)));

/*
 * What every allocation and free touches lies in few cache lines: the driver leaves little of the first-level cache
 * to us. The generation guards what is not a tally, up to `fields`.
 */
struct zr_shard {
    uint64_t generation; /* odd while a booking is written */
    _Alignas(64) struct zr_cell on_device[ZR_DEVICES][ZR_KINDS_ON_DEVICE];
    struct zr_cell elsewhere[ZR_KINDS - ZR_KINDS_ON_DEVICE];
    /* Not near the start of a page: a load is held up by a store that is a multiple of 4 KiB away (cache/heap.h). */
    _Alignas(64) uint64_t spare[19 * 8];
    struct zr_line on[ZR_DEVICES];
    struct zr_pair more[ZR_TALLIES];
    struct zeroute_segment_into into[ZR_TALLIES];
    _Alignas(64) uint64_t fields[ZR_FIELDS];
    _Alignas(64) uint64_t calls[ZR_VIAS][(ZR_ENTRIES + 7) / 8 * 8];
    uint64_t activity; /* clock at the last driver call that was timed */
    uint64_t failures[ZR_ENTRIES];
    uint64_t dynamic[ZR_DYNAMIC];
    _Alignas(4096) struct zeroute_segment_histogram latency[ZR_ENTRIES];
};
_Static_assert(sizeof(struct zr_pair) == sizeof(struct zeroute_segment_tally), "one is the other");

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

/* --- peak.c: peaks of all threads ---------------------------------------------------------------------------- */
/* A thread is higher on a device than it may be without a look at the others: this is its level there. */
void zr_peak_look(struct zr_level *own);
void zr_fork_child_peak(void);

/*
 * The tally of a device that counts into these words of this thread's shard, made if need be; NULL: all are taken, or
 * the processor has no AVX. The first word of each list is what is booked: a call that failed does not count there.
 */
struct zr_pair *zr_tally(struct zr_shard *s, unsigned device, const struct zeroute_segment_into *into);
/* A call that would have counted here failed: it is one all the same. */
void zr_tally_failed(struct zr_shard *s, const struct zr_pair *tally, uint64_t bytes);

/* Private to stats.c, here for the inline functions. */
extern bool zr_clock_is_tsc;
void zr_add_slow(size_t offset, uint64_t n);
void zr_book_slow(enum zr_kind k, unsigned device, uint64_t bytes, bool unbook);

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

/* Written by any thread; most often it is high enough already. */
static inline void zr_raise_to(uint64_t *peak, uint64_t value)
{
    uint64_t seen = __atomic_load_n(peak, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(peak, &seen, value, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        ;
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

static inline void zr_count_call(enum zr_entry e, enum zr_via w)
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

/* Where a word of a shard lies in each of them. */
static inline uint32_t zr_in_shard(const struct zr_shard *s, const void *at)
{
    return (uint32_t)((uintptr_t)at - (uintptr_t)s);
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

/* No bytes, one call. */
extern const struct zr_pair zr_one_call __attribute__((visibility("hidden")));

/*
 * One store adds to both halves. Whoever reads them as 64 bits each finds each as it was or as it is; on every
 * processor with AVX, without which there are no tallies, both at once.
 */
static inline __m128i zr_pair_of(uint64_t bytes)
{
    return _mm_add_epi64(_mm_cvtsi64_si128((long long)bytes), *(const __m128i *)(const void *)&zr_one_call);
}

static inline __m128i zr_pair_add(struct zr_pair *p, __m128i n)
{
#ifdef ZR_PLAIN_C
    int64_t bytes = __atomic_load_n(&p->bytes, __ATOMIC_RELAXED) + _mm_cvtsi128_si64(n);
    int64_t count = __atomic_load_n(&p->count, __ATOMIC_RELAXED) + _mm_cvtsi128_si64(_mm_unpackhi_epi64(n, n));
    __atomic_store_n(&p->bytes, bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&p->count, count, __ATOMIC_RELAXED);
    return _mm_set_epi64x(count, bytes);
#else
    volatile __m128i *v = (volatile __m128i *)(void *)p;
    __m128i sum = _mm_add_epi64(*v, n);
    *v = sum;
    return sum;
#endif
}

static inline __m128i zr_pair_load(const struct zr_pair *p)
{
#ifdef ZR_PLAIN_C
    return _mm_set_epi64x(__atomic_load_n(&p->count, __ATOMIC_RELAXED), __atomic_load_n(&p->bytes, __ATOMIC_RELAXED));
#else
    return *(const volatile __m128i *)(const void *)p;
#endif
}

/* True: it is above its mark now, in bytes or in blocks. */
static inline bool zr_level_up(struct zr_level *l, __m128i n)
{
    __m128i left = _mm_sub_epi64(zr_pair_load(&l->mark), zr_pair_add(&l->level, n));
    return _mm_movemask_pd(_mm_castsi128_pd(left)) != 0;
}

static inline void zr_level_down(struct zr_level *l, __m128i n)
{
    zr_pair_add(&l->level, _mm_sub_epi64(_mm_setzero_si128(), n));
}

/* n: these bytes and one call; both are added to the tally. */
#define ZR_TALLY_ONE_MORE                                                                          \
    "vmovq %[bytes], %[n]\n\t"                                                                     \
    "vpaddq %[one], %[n], %[n]\n\t"                                                                \
    "vpaddq %[tally], %[n], %[sum]\n\t"                                                            \
    "vmovdqa %[sum], %[tally]\n\t"

/*
 * An allocation, or a free, that a tally stands for, on this device and with its level in the same shard. A few ns. By
 * instructions of AVX, without which there are no tallies: drivers and libc leave the upper halves of the vector
 * registers in use, and instructions of SSE that follow are held up by them, in the driver's next call as well (up to
 * 15 ns).
 */
static inline void zr_tally_got(struct zr_pair *tally, struct zr_level *l, uint64_t bytes)
{
#ifdef ZR_PLAIN_C
    __m128i n = zr_pair_of(bytes);
    zr_pair_add(tally, n);
    int above = zr_level_up(l, n);
#else
    __m128i n, sum;
    bool above;
    __asm__(ZR_TALLY_ONE_MORE
            "vpaddq %[level], %[n], %[n]\n\t"
            "vmovdqa %[n], %[level]\n\t"
            "vpcmpgtq %[mark], %[n], %[n]\n\t"
            "vtestpd %[n], %[n]"
            : [tally] "+m"(*tally), [level] "+m"(l->level), [n] "=&x"(n), [sum] "=&x"(sum), [above] "=@ccnz"(above)
            : [mark] "m"(l->mark), [bytes] "r"(bytes), [one] "m"(zr_one_call));
#endif
    if (unlikely(above))
        zr_peak_look(l);
}

static inline void zr_tally_gave(struct zr_pair *tally, struct zr_level *l, uint64_t bytes)
{
#ifdef ZR_PLAIN_C
    __m128i n = zr_pair_of(bytes);
    zr_pair_add(tally, n);
    zr_level_down(l, n);
#else
    __m128i n, sum;
    __asm__(ZR_TALLY_ONE_MORE
            "vmovdqa %[level], %[sum]\n\t"
            "vpsubq %[n], %[sum], %[sum]\n\t"
            "vmovdqa %[sum], %[level]"
            : [tally] "+m"(*tally), [level] "+m"(l->level), [n] "=&x"(n), [sum] "=&x"(sum)
            : [bytes] "r"(bytes), [one] "m"(zr_one_call));
#endif
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
    struct zr_cell *c = zr_cell(s, k, device);
    zr_booking(s);
    zr_relaxed_add(&c->allocated, bytes);
    zr_relaxed_add(&c->allocations, 1);
    zr_booked(s);
    if (likely(k < ZR_KINDS_ON_DEVICE) && unlikely(zr_level_up(&s->on[device].level, zr_pair_of(bytes))))
        zr_peak_look(&s->on[device].level);
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
    struct zr_cell *c = zr_cell(s, k, device);
    zr_booking(s);
    zr_relaxed_add(&c->freed, bytes);
    zr_relaxed_add(&c->frees, 1);
    zr_booked(s);
    if (likely(k < ZR_KINDS_ON_DEVICE))
        zr_level_down(&s->on[device].level, zr_pair_of(bytes));
}

#endif
