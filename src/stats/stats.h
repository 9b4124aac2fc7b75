/*
 * The map of stats/: counters, bookings and their peaks, latencies, calling libraries and the
 * fingerprint, all published in one shared-memory segment (zeroute/segment.h). Grouped by the file
 * that defines it. Callable from anywhere, from any thread; nothing here calls anything but base/.
 * errno is preserved throughout.
 */
#ifndef ZEROUTE_STATS_H
#define ZEROUTE_STATS_H

#include "base/base.h"
#include "zeroute/segment.h"

#include <time.h>

#pragma GCC visibility push(hidden)

enum zr_field {
#define ZR_COUNTER(id, name, unit, help) ZR_F_##id,
#include "stats/fields.def"
    ZR_FIELDS
};
enum zr_gauge {
#define ZR_GAUGE(id, name, unit, help) ZR_G_##id,
#include "stats/fields.def"
    ZR_GAUGES
};
enum zr_text {
#define ZR_TEXT(id, name, help) ZR_T_##id,
#include "stats/fields.def"
    ZR_TEXTS
};
enum zr_card {
#define ZR_CARD(id, name, help) ZR_C_##id,
#include "stats/fields.def"
    ZR_CARD_FIGURES
};

#define ZR_DEVICES 16     /* devices beyond are counted with the last */
#define ZR_DYNAMIC 512    /* fields that get their name at run time */
#define ZR_TEXT_ROOM 2032 /* a report of check with both its stacks */
#define ZR_SHARDS 256     /* threads beyond share shard 0 */

/* What has a peak. */
enum zr_account {
    ZR_ACCOUNT_ALL,                                   /* memory of all devices, */
    ZR_ACCOUNT_BLOCKS,                                /* and how many blocks that is */
    ZR_ACCOUNT_DEVICE,                                /* of device 0; the others follow */
    ZR_ACCOUNT_KIND = ZR_ACCOUNT_DEVICE + ZR_DEVICES, /* each kind of memory that is on no device */
    ZR_ACCOUNT_RESERVED = ZR_ACCOUNT_KIND + ZR_KINDS - ZR_KINDS_ON_DEVICE,
    ZR_ACCOUNT_RESERVED_ON, /* device 0; the others follow, and last host USM */
    ZR_STATS_ACCOUNTS = ZR_ACCOUNT_RESERVED_ON + ZR_DEVICES + 1
};

/* --- layout of the segment (private to stats/) ------------------------------------------------ */

struct zr_cell {
    uint64_t allocated, freed;   /* bytes */
    uint64_t allocations, frees; /* blocks */
};

/*
 * What a thread has not yet folded into the total of an account (book.c), and its maximum since the
 * last fold.
 */
struct zr_level {
    int64_t level, high;
};

enum { ZR_SIZES = 41 }; /* the last one also counts what is larger: 1 TiB */

/*
 * Written by its thread alone, except that all threads share the histograms of the first shard. The
 * generation is that of a seqlock over all that precedes `fields`: odd while booking.
 */
struct zr_shard {
    _Alignas(64) uint64_t generation;
    uint64_t folds; /* begun so far */
    struct zr_level level[ZR_STATS_ACCOUNTS];
    _Alignas(64) struct zr_cell on_device[ZR_DEVICES][ZR_KINDS_ON_DEVICE];
    struct zr_cell elsewhere[ZR_KINDS - ZR_KINDS_ON_DEVICE];
    struct zr_cell reserved[ZR_DEVICES + 1]; /* the last is host USM */
    _Alignas(64) uint64_t fields[ZR_FIELDS];
    uint64_t calls[ZR_VIAS][ZR_ENTRIES];
    uint64_t failures[ZR_ENTRIES];
    uint64_t sizes[ZR_SIZES]; /* device allocations of 2^n bytes and more, up to the next power */
    uint64_t dynamic[ZR_DYNAMIC];
    uint64_t activity; /* clock at the last call that was timed */
    _Alignas(4096) struct zeroute_segment_histogram latency[ZR_ENTRIES];
};

/* The sum over all threads, which all of them fold into: a cache line of its own. */
struct zr_total {
    _Alignas(64) int64_t now;
    int64_t peak;
};

struct zr_globals {
    uint64_t unused; /* so that no offset is 0, which stands for none */
    struct zr_total total[ZR_STATS_ACCOUNTS];
    uint64_t gauges[ZR_GAUGES];
    uint64_t cards[ZR_DEVICES][ZR_CARD_FIGURES];
    struct zeroute_segment_claim claims[ZR_DEVICES];
    struct zeroute_segment_group group;
    struct {
        struct zeroute_segment_text head;
        char text[ZR_TEXT_ROOM];
    } texts[ZR_TEXTS];
};

/* --- stats.c: the segment's life, shards, counters, gauges, texts ----------------------------- */

/*
 * Creates the segment, at the first device operation. Idempotent. Returns false with stats:off or
 * on failure.
 */
bool zr_stats_open(void);
/* Whether there is a segment; does not create one. */
bool zr_stats_is_open(void);
/* The start time, field 22 of /proc/self/stat: identifies the process together with its id. */
uint64_t zr_process_start(void);
/* /proc/PID/cmdline as one line. */
void zr_command_line(const char *path, char *out, size_t size);
/* Sets a gauge; no effect before zr_stats_open(). */
void zr_gauge(enum zr_gauge g, uint64_t value);
/* Replaces a text, cut at 2031 bytes; no effect before zr_stats_open(). */
void zr_text(enum zr_text t, const char *text);
/*
 * A counter whose name is known only now ("guard.calls.zeFoo"): returns its number for
 * zr_count_named(), the same one for the same name. Takes a lock and searches. -1, which
 * zr_count_named() ignores: stats are off or the table is full.
 */
int zr_named(const char *name, const char *unit, const char *help);
/* failures.<entry> and failures.code.<code>. Cold: looks the code up by name. */
void zr_count_failure(enum zr_entry e, uint32_t code);
enum { ZR_DEVICE_LOST = 0x70000001 };
/*
 * A child of fork gets a segment of its own at its first device operation; the parent's is left
 * untouched.
 */
void zr_stats_fork_child(void);
/*
 * Folds what the thread has booked and frees its shard and its pace. What it counts afterwards goes
 * to shard 0.
 */
void zr_stats_thread_end(void);

/*
 * The shard of this thread, shard 0 if it has none of its own; NULL without statistics. Opens the
 * segment.
 */
struct zr_shard *zr_shard_of_thread(void);
void zr_add_slow(size_t offset, uint64_t n);

/* Written by one thread and read by others: a load and a store, no locked instruction. */
static inline void zr_relaxed_add(uint64_t *p, uint64_t n) {
    __atomic_store_n(p, __atomic_load_n(p, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

/* Raises a maximum that any thread may write. Usually it is high enough already: one load. */
static inline void zr_raise_to(int64_t *peak, int64_t value) {
    int64_t seen = __atomic_load_n(peak, __ATOMIC_RELAXED);

    while (seen < value && !__atomic_compare_exchange_n(peak, &seen, value, true, __ATOMIC_RELAXED,
                                                        __ATOMIC_RELAXED))
        ;
}

/* Adds to a word of this thread's shard: about 1 ns, no cache line that another thread writes. */
static inline void zr_add(size_t offset, uint64_t n) {
    struct zr_shard *s = zr_thread.stats.shard;

    if (likely(s))
        zr_relaxed_add((uint64_t *)((uintptr_t)s + offset), n);
    else
        zr_add_slow(offset, n);
}

static inline void zr_count(enum zr_field f, uint64_t n) {
    zr_add(offsetof(struct zr_shard, fields) + f * sizeof(uint64_t), n);
}

static inline void zr_count_named(int number, uint64_t n) {
    if (likely(number >= 0))
        zr_add(offsetof(struct zr_shard, dynamic) + (size_t)number * sizeof(uint64_t), n);
}

/* calls.<entry>.<via> */
static inline void zr_count_call(enum zr_entry e, enum zr_via via) {
    zr_add(offsetof(struct zr_shard, calls) + ((size_t)via * ZR_ENTRIES + e) * sizeof(uint64_t), 1);
}

/* --- segment.c: the file (private to stats/) -------------------------------------------------- */

struct zr_segment {
    struct zeroute_segment_header *header; /* NULL: there is none */
    struct zr_globals *globals;
    struct zeroute_segment_text *fingerprint;
    char *shards;
    uint32_t devices; /* bit n: the fields of device n are described */
    struct zr_descriptor file;
    char path[128];
};
extern struct zr_segment zr_segment;
#define ZR_FINGERPRINT_SIZE ((size_t)128 << 10)

/*
 * Creates the file, its table of fields and shard 0. On failure warns once, leaves nothing behind,
 * returns false.
 */
bool zr_segment_create(void);
/* In a child of fork: drops the parent's file without touching it. */
void zr_segment_abandon(void);
/*
 * Allocates the pages of a part of the mapping, so that a full /dev/shm is an error here rather
 * than SIGBUS later.
 */
bool zr_segment_reserve(const void *start, size_t size);
/*
 * Appends a field that readers see from now on: prefix and name, help and more, each cut where it
 * does not fit. Returns false if the table or the file system is full.
 */
bool zr_segment_describe(struct zeroute_segment_field *f, const char *prefix, const char *name,
                         const char *unit, const char *help, const char *more);
/* Replaces a text under its generation (a seqlock); cut at size. One writer at a time. */
void zr_segment_write_text(struct zeroute_segment_text *t, size_t size, const char *text,
                           size_t length);

static inline struct zr_shard *zr_segment_shard(unsigned n) {
    return (struct zr_shard *)(void *)(zr_segment.shards + n * sizeof(struct zr_shard));
}

/* --- compact.c: the segment of a process that ends, made small -------------------------------- */

/*
 * Exchanges the segment for one of a few KiB that says the same. Nothing is counted any more. Keeps
 * the old one where that fails.
 */
void zr_stats_process_end(void);

/* --- control.c: requests that `zeroute ctl` has written into the segment ---------------------- */

/*
 * Carries out a request; returns whether it was done. `reply` says what is in force now, or why it
 * was not done.
 */
typedef bool zr_carry_out(const char *request, char *reply, size_t size);
extern zr_carry_out *zr_control_handler; /* of policy/, set before any call */
extern const uint32_t *zr_control_word;  /* atomic: of the segment, or one that is 0 */
void zr_control_serve(void);
/* Sets where requests are read from; NULL for nowhere (private to stats/). */
void zr_control_open(struct zeroute_segment_control *c);

/*
 * From now on a thread of ours reads requests, by zr_control_poll(), and calls of the program do
 * not.
 */
void zr_control_by_thread(bool now);
void zr_control_poll(void);

/* Called at every hook, before the call is decided: carries out a pending request. Two loads. */
static inline void zr_control_check(void) {
    if (unlikely(
            __atomic_load_n(__atomic_load_n(&zr_control_word, __ATOMIC_RELAXED), __ATOMIC_RELAXED)))
        zr_control_serve();
}

/* --- fields.c: the segment's description of itself (private to stats/) ------------------------ */

/* Describes all fields but those of devices and those named at run time. */
void zr_fields_describe(void);
/* Describes the fields of a device. Once per device, the first time that it is booked on. */
void zr_fields_describe_device(unsigned n);

/* --- book.c: bytes and blocks in use, and their peaks ----------------------------------------- */

/*
 * Peaks are kept by per-thread counters that are folded in batches (the kernel's percpu_counter).
 * Unfolded is less than a batch, so a peak is exact with one thread and within a batch per thread
 * with several.
 */
enum { ZR_BATCH_BYTES = 32 << 20, ZR_BATCH_BLOCKS = 64 };

/*
 * The process has got a block: allocated_bytes.*, allocation.*, of all and of the device, or of the
 * kind if that is on no device. Some 4 ns; a block of 32 MiB or more costs two locked instructions
 * besides.
 */
void zr_book(enum zr_kind k, unsigned device, uint64_t bytes);
/* The process has freed a block, whichever thread booked it. */
void zr_unbook(enum zr_kind k, unsigned device, uint64_t bytes);

/*
 * Nothing is cached: what is reserved from the driver is what the process holds. Then
 * reserved_bytes is another name for allocated_bytes, and zr_book_reserved() does nothing.
 */
static inline bool zr_reserved_is_allocated(void) {
    const struct zr_settings *s = &zr_config_at_start; /* the fields are described once */

    return !s->cache && s->check <= ZR_CHECK_NONE &&
           (s->route == ZR_ROUTE_NATIVE || s->route == ZR_ROUTE_SYCL);
}

enum { ZR_RESERVED_HOST = ZR_DEVICES }; /* in place of a device: host USM */
/*
 * reserved_bytes.all and of the device, or of the host: cached or handed out; negative when it goes
 * back.
 */
void zr_book_reserved(unsigned device, int64_t bytes);
/* What is reserved on a device now. Adds up all threads. The segment must be open. */
uint64_t zr_booked(unsigned device);
/* A figure of a card, to be changed atomically. */
uint64_t *zr_card(unsigned device, enum zr_card c);
/*
 * Folds what the thread has booked in its shard, which another thread may get afterwards (private
 * to stats/).
 */
void zr_fold_all(struct zr_shard *s);

/* --- libraries.c: which library a call came from ---------------------------------------------- */

/* callers.<soname>.*: all calls, and those that residency:owner kept from the driver. */
enum zr_caller {
    ZR_CALLER_CALLS,
    ZR_CALLER_BYTES,
    ZR_CALLER_SKIPPED_CALLS,
    ZR_CALLER_SKIPPED_BYTES,
    ZR_CALLER_FIELDS
};

/*
 * Never changes and is never freed; a library that is loaded elsewhere later is another one of the
 * same name.
 */
struct zr_library {
    uintptr_t start, end; /* equal: no addresses are known to be its own */
    uint64_t generation;  /* of the dynamic linker's list in which it was last seen */
    char name[56];        /* DT_SONAME */
    uint32_t who;         /* atomic: enum zr_who, as far as it is known */
    /* Of all libraries of that name; of "others" from the 97th name on. */
    int *counters;
    /* Numbers of named counters plus one; 0: not named yet, -1: no room for it. */
    int own[ZR_CALLER_FIELDS];
    void *tag; /* atomic: for sycl/, the runtime that it is linked to */
};

const struct zr_library *zr_library_find(const void *address);
/*
 * The same, never busy; and who it is. They may wait for a dlopen in another thread: for callers
 * that call the dynamic linker anyway.
 */
const struct zr_library *zr_library_find_now(const void *address);
enum zr_who zr_library_who_now(const void *address);
/* Who it is. ZR_WHO_NOT_KNOWN while a thread forks. A load once it is known. */
enum zr_who zr_library_ask_who(const struct zr_library *l);
static inline enum zr_who zr_library_who(const struct zr_library *l) {
    uint32_t who = __atomic_load_n(&l->who, __ATOMIC_RELAXED);

    return likely(who != ZR_WHO_NOT_KNOWN) ? (enum zr_who)who : zr_library_ask_who(l);
}
void zr_count_caller_slow(const struct zr_library *l, enum zr_caller what, uint64_t n);
void zr_libraries_fork_child(void);

/*
 * The library that holds this return address; never NULL. "unknown" if none does, and while a
 * thread forks: then the record has no runtime, and is not kept. About 2 ns for the library that
 * this thread was called from last, tens of ns for others, microseconds for one never seen. A
 * library loaded in the place of another is noticed within 1024 calls of a thread.
 */
static inline const struct zr_library *zr_library_of(const void *address) {
    const struct zr_library *l = zr_thread.stats.library;

    if (likely(l && (uintptr_t)address - l->start < l->end - l->start &&
               --zr_thread.stats.library_checks))
        return l;
    return zr_library_find(address);
}

/* The fields of a library appear when they are first counted. */
static inline void zr_count_caller(const struct zr_library *l, enum zr_caller what, uint64_t n) {
    int number = __atomic_load_n(&l->counters[what], __ATOMIC_RELAXED);

    if (likely(number > 0))
        zr_count_named(number - 1, n);
    else
        zr_count_caller_slow(l, what, n);
}

static inline void *zr_library_tagged(const struct zr_library *l) {
    return __atomic_load_n(&l->tag, __ATOMIC_ACQUIRE);
}

static inline void zr_library_tag(const struct zr_library *l, void *tag) {
    __atomic_store_n((void **)(uintptr_t)&l->tag, tag, __ATOMIC_RELEASE);
}

/* --- latency.c: how long calls take ----------------------------------------------------------- */

/*
 * Reading the clock twice costs as much as all the rest of observing a call. So all calls of 2 us
 * and more are timed, but only one in about 128 quicker ones, which stands for all since the last.
 * Whether calls are quick is learnt per thread, entry point and power of two of the size: they are
 * after 64 timed calls in a row below 2 us, and no longer after one above that. Rare calls are all
 * timed.
 */
struct zr_pace {
    uint8_t untimed; /* calls until one is timed */
    uint8_t weight;  /* how many calls that one will stand for; 0: one */
    uint8_t streak;  /* timed calls in a row that were quick, up to 64 */
};

/* Nanoseconds. CLOCK_MONOTONIC is that of latencies. No system call; some 20 ns. */
static inline uint64_t zr_clock(clockid_t clock) {
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static inline uint64_t zr_now(void) {
    return zr_clock(CLOCK_MONOTONIC);
}

uint32_t zr_time_weight_slow(const struct zr_pace *p);
/* For zr_stats_thread_end(). */
void zr_latency_thread_end(void);

static inline unsigned zr_power_of(size_t bytes) {
    return 63u - (unsigned)__builtin_clzll(bytes | 1);
}

/* How many calls the time of this one is to stand for; 0: do not time it. About 1 ns. */
static inline uint32_t zr_time_weight(enum zr_entry e, size_t bytes) {
    struct zr_pace *p =
        zr_thread.stats.pace ? &zr_thread.stats.pace[zr_power_of(bytes) * ZR_ENTRIES + e] : NULL;

    if (likely(p) && likely(p->untimed)) {
        p->untimed--;
        return 0;
    }
    return zr_time_weight_slow(p);
}

/*
 * After the call, if zr_time_weight() was not 0: the time since `start` is the driver's part of it.
 */
void zr_time_call(enum zr_entry e, size_t bytes, uint64_t start, uint32_t weight);

/* --- fingerprint.c: what this process runs on, for comparing runs ----------------------------- */

/*
 * Writes the fingerprint into the segment: about 0.1 ms. Called again when libraries have come or
 * gone.
 */
void zr_fingerprint_refresh(void);
/* Tries again if the last refresh came while the libraries could not be listed. */
void zr_fingerprint_complete(void);
/* Adds a fact that only the caller knows ("driver.version", "1.6.33578") to every later refresh. */
void zr_fingerprint_note(const char *key, const char *value);

#pragma GCC visibility pop

#endif
