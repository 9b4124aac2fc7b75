/*
 * The segment: one file per process, /dev/shm/zeroute-<uid>/<pid>.<nonce>, written by that process alone but for
 * zeroute_segment_control.
 *
 * The directory belongs to the user of the process and has mode 0700: whoever owns it owns the process. Where another
 * user has taken its name, .1, .2 and so on are appended to it, so go by its owner and not by its name.
 *
 * Contract. Everything a reader needs is found through the header's offsets and sizes: a reader
 * must use header_size, field_size and the offsets as it finds them, and skip types it does not
 * know. Fields may be added at any time, also while the process runs; none changes its meaning
 * under the same layout version. All integers are little-endian; counters are 8-byte aligned and
 * only grow.
 *
 * Reading: use pread(2), not mmap(2): pages that the writer has not reserved yet read as zeros
 * then, and cost nothing. zeroute/reader.h does all of this.
 */
#ifndef ZEROUTE_SEGMENT_H
#define ZEROUTE_SEGMENT_H

#include <stdint.h>

#define ZEROUTE_SEGMENT_DIR "/dev/shm"
#define ZEROUTE_SEGMENT_USER "zeroute-"
#define ZEROUTE_SEGMENT_NAME "%d.%016llx" /* of the process and its nonce */
/* Up to layout 3 segments lay in ZEROUTE_SEGMENT_DIR itself, under names that began like this. */
#define ZEROUTE_SEGMENT_OLD_PREFIX "zeroute."
/* Written last: a file without it is not ready. */
#define ZEROUTE_SEGMENT_MAGIC 0x31544f5245535a5aull
#define ZEROUTE_SEGMENT_LAYOUT 4u

/* The writer holds a POSIX write lock on this byte for its whole life; readers ask with F_GETLK. */
#define ZEROUTE_SEGMENT_LOCK_BYTE 0

enum zeroute_type {
    ZEROUTE_COUNTER = 1,   /* sum over all shards */
    ZEROUTE_GAUGE = 2,     /* now: see zeroute_segment_field.minus */
    ZEROUTE_PEAK = 3,      /* the highest value that a gauge had, signed: see zeroute_segment_field.total */
    ZEROUTE_HISTOGRAM = 4, /* zeroute_segment_histogram, one in each shard */
    ZEROUTE_TEXT = 5,      /* NUL-terminated, zeroute_segment_text */
    /*
     * A text, too, of lines "TN": fields of type T and name N that are zero or empty. The segment of a process that
     * has ended has their names alone, to be small.
     */
    ZEROUTE_ZEROS = 6,
};

enum zeroute_place {
    ZEROUTE_SHARDS = 0, /* offset counts from the start of each shard */
    ZEROUTE_GLOBAL = 1, /* offset counts from globals_offset */
};

/* A global gauge with this value is absent: the system does not offer it. */
#define ZEROUTE_ABSENT UINT64_MAX

struct zeroute_segment_field {
    char name[80];
    char unit[16]; /* "bytes", "ns", "" */
    char help[128];
    uint16_t type;
    uint16_t place;
    uint32_t offset;
    /*
     * The value is the sum of `count` words, `stride` bytes apart. Of a text: its room, its head
     * included.
     */
    uint32_t stride;
    uint32_t count;
    /*
     * 0, or the offset of a second series with the same stride and count, to be subtracted
     * (gauges).
     */
    uint32_t minus;
    /*
     * 0, or the offset in the globals of a signed total that shards fold what they have counted into. Then the series
     * in the shards is signed as well, and holds what is not folded yet: a gauge is the total plus the series at
     * `offset`; a peak is at least the total plus the series at `high`.
     */
    uint32_t total;
    uint32_t high;
    uint32_t reserved;
};

#define ZEROUTE_BUCKETS 126
/*
 * Nanoseconds in logarithmic buckets, four to the octave: bucket 0 holds all below 16 ns, bucket i
 * holds [16 * 2^((i-1)/4), 16 * 2^(i/4)) with linear quarters inside an octave, the last one all
 * above.
 */
struct zeroute_segment_histogram {
    uint64_t sum_ns;
    uint64_t max_ns;
    uint64_t buckets[ZEROUTE_BUCKETS];
};

/*
 * Before a text, which follows at once. Texts change rarely: odd generation means that one is being
 * written.
 */
struct zeroute_segment_text {
    uint64_t generation;
    uint32_t length;
    uint32_t reserved;
};

struct zeroute_segment_header {
    uint64_t magic;
    uint32_t layout;
    uint32_t header_size;
    uint64_t file_size;
    /* Who writes: pid as seen in its own PID namespace, start time in clock ticks since boot. */
    uint32_t pid;
    uint32_t uid;
    uint64_t pid_namespace;
    uint64_t start_time;
    uint64_t nonce;
    uint64_t created_ns; /* CLOCK_REALTIME */
    char boot_id[40];
    char version[16];
    char run_id[40]; /* of the `zeroute run` above this process, or empty */
    char job_id[96]; /* of the launcher (MPI, torchrun, Slurm), or empty */
    char rank[16];
    char command[256];
    /* Where things are. */
    uint64_t globals_offset;
    uint64_t globals_size;
    uint64_t fields_offset;
    uint32_t field_size;
    uint32_t field_count; /* grows; a counted field is complete */
    uint64_t shards_offset;
    uint64_t shard_size;
    uint32_t shard_count;      /* grows; shards ever used, the first one always there */
    uint32_t shard_generation; /* offset in a shard of its generation: odd while it books */
    uint32_t shard_activity;   /* offset in a shard of the clock at its last driver call */
    uint32_t buckets;
    uint64_t fingerprint_offset; /* a zeroute_segment_text of "key\tvalue\n" lines */
    uint64_t fingerprint_size;
    /*
     * The writer's clock: nanoseconds = (ticks - clock_ticks) * 1e9 / clock_hz, from created_ns on.
     */
    uint64_t clock_hz;
    uint64_t clock_ticks;
    /*
     * The first bytes of a shard, this many, are what its generation guards: short, to be read in
     * one go.
     */
    uint64_t shard_group;
    /*
     * Offset in a shard of how often it has begun to fold into totals. Totals agree with the shards if no shard has
     * folded between its own reading and theirs. Less than a batch of a shard (32 MiB, 64 blocks) is not folded.
     */
    uint32_t shard_folds;
    uint32_t control_size;   /* 0, or header_size ends before it: the process takes no requests */
    uint64_t control_offset; /* of a zeroute_segment_control */
    uint64_t claims;         /* offset in the globals of 16 zeroute_segment_claim; 0: there are none */
    uint64_t group;          /* offset in the globals of a zeroute_segment_group; 0: there is none */
};

/* What the writer holds of a card under limit:auto, or is about to take, so that others leave it. */
struct zeroute_segment_claim {
    uint64_t card;           /* its PCI address plus one: domain << 16 | bus << 8 | device << 3 | function; 0: none */
    uint64_t blocks, unseen; /* bytes in blocks, and bytes that are in no block */
};

/* Of the same process: with whom it shares a limit, and what of each card it may take without a look at others. */
struct zeroute_segment_group {
    uint64_t id; /* a hash of the name of its group (group_limit); 0: none */
    struct zeroute_segment_lease {
        uint64_t bytes, until_ns; /* counts as taken until CLOCK_MONOTONIC says so */
    } lease[16];
};

/*
 * Requests of the process's own user, the one part of the file that others write (zeroute ctl). Requesters take turns
 * by a POSIX write lock on ZEROUTE_SEGMENT_REQUEST_BYTE. One writes `text`, then a new number into `request`, by one
 * atomic store. The next call of the process into Level Zero or SYCL exchanges it for 0, carries the request out,
 * writes code, reply and time, and last the number into `answer`. A requester that waits no longer exchanges its number
 * for 0: the request is withdrawn, unless the process was faster.
 */
#define ZEROUTE_SEGMENT_REQUEST_BYTE 1
struct zeroute_segment_control {
    uint32_t request;
    uint32_t answer;
    uint32_t code; /* enum zeroute_answer */
    uint32_t reserved;
    uint64_t answered_ns; /* CLOCK_REALTIME: when it took effect */
    char text[512];       /* "set limit 12GiB", "trim", "mark TEXT"; NUL-terminated */
    char reply[1024];     /* what is in force now, or why not */
};
enum zeroute_answer { ZEROUTE_CARRIED_OUT = 0, ZEROUTE_REFUSED = 1 };

#endif
