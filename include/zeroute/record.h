/*
 * The record: one file per process, in which the process notes every allocation, free, failure and mark as it happens.
 * doc/record.md is the page about it; this header is the contract.
 *
 * A file is a header, then chunks of chunk_size bytes. A chunk belongs to one thread of the process, which appends
 * records to it and then stores `used`: what lies before `used` is complete, even if the process was killed. The
 * records of one thread are in order; those of different threads are put in order by their time.
 *
 * All integers are little-endian. A reader goes by header_size, chunk_size and the `words` of each record as it finds
 * them, and skips types that it does not know: a minor version adds types, flags, texts, and words at the end of a
 * record. A reader refuses a major version that is newer than its own, and reads every older one.
 */
#ifndef ZEROUTE_RECORD_FORMAT_H
#define ZEROUTE_RECORD_FORMAT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ZEROUTE_RECORD_MAGIC 0x44524f434552525aull /* "ZRRECORD" */
#define ZEROUTE_RECORD_MAJOR 1u
#define ZEROUTE_RECORD_MINOR 1u
#define ZEROUTE_CHUNK_MAGIC 0x4b4e4843u /* "CHNK" */

/* Bounds that every file keeps to; a reader refuses what is beyond them. */
enum {
    ZEROUTE_RECORD_CHUNK_LEAST = 4096,
    ZEROUTE_RECORD_CHUNK_MOST = 16 << 20,
    ZEROUTE_RECORD_NATIVE_MOST = 128, /* native frames of a stack */
    ZEROUTE_RECORD_PYTHON_MOST = 128, /* Python frames of a stack */
    ZEROUTE_RECORD_TEXT_MOST = 32768  /* bytes of a text, a path, a name or a line table; what is longer is cut */
};

/* At the start of the file; the first chunk begins at header_size. */
struct zeroute_record_header {
    uint64_t magic;
    uint16_t major, minor;
    uint32_t header_size;
    uint32_t chunk_size;
    uint32_t pid;
    uint64_t process_start; /* field 22 of /proc/PID/stat: with pid, which process it was */
    uint64_t start_time;    /* CLOCK_MONOTONIC in ns when the record began; the times of events are of this clock */
    uint64_t start_real;    /* CLOCK_REALTIME in ns at the same moment */
    uint64_t end_time;      /* CLOCK_MONOTONIC; 0: the process still runs, or did not end by exit */
    uint64_t lost_events;   /* could not be stored: the disk was full, or the file was gone */
    uint64_t lost_stacks;   /* events without a stack because the table of stacks was full */
    uint32_t flags;         /* ZEROUTE_RECORD_RESERVED_SAME, ... */
    uint32_t stacks;        /* enum zeroute_record_stacks */
    char version[16];       /* of zeroute */
    char run_id[40];        /* the same for all processes of one `zeroute record`; empty without it */
};

enum {
    ZEROUTE_RECORD_RESERVED_SAME = 1 /* nothing is cached: reserved is allocated, and there is no RESERVE or RELEASE */
};
enum zeroute_record_stacks { ZEROUTE_STACKS_OFF, ZEROUTE_STACKS_NATIVE, ZEROUTE_STACKS_PYTHON };

/* At the start of every chunk; its first record follows. A chunk without the magic was never used: skip it. */
struct zeroute_record_chunk {
    uint32_t magic;
    uint32_t thread;   /* counts from 1 in the order in which threads appeared */
    uint64_t used;     /* bytes, this header included; stored last (release) */
    uint64_t sequence; /* of the chunks of this thread, from 0: their order, whatever their place in the file */
};

/* Every record begins so. The next one is `words` * 8 bytes further on. */
struct zeroute_record_head {
    uint16_t type; /* enum zeroute_record_type */
    uint16_t words;
    uint32_t id; /* of events: the id of the stack, 0 for none; otherwise what the record defines */
};

enum zeroute_record_type {
    /* Events: struct zeroute_record_event. */
    ZEROUTE_EVENT_ALLOC = 1,  /* the process got a block, or a piece of one: noted after it was handed out */
    ZEROUTE_EVENT_FREE,       /* it gives one back: noted before that takes effect */
    ZEROUTE_EVENT_BACK,       /* the free was refused: the block at `address` is live as before */
    ZEROUTE_EVENT_FAIL,       /* a call failed for good: `code`, and `refuser` says who refused */
    ZEROUTE_EVENT_RESERVE,    /* we got memory from the driver, `size` bytes at `address` */
    ZEROUTE_EVENT_RELEASE,    /* we gave it back */
    ZEROUTE_EVENT_TRIM,       /* cached memory was given back, `size` bytes; `code`: because of this failure, or 0 */
    ZEROUTE_EVENT_RESIDENT,   /* residency of `address` was requested on `card`; aux: the owner's card */
    ZEROUTE_EVENT_EVICT,      /* or given up */
    ZEROUTE_EVENT_EXPORT,     /* an IPC handle of the block that holds `address` was taken */
    ZEROUTE_EVENT_MAP,        /* physical memory aux was mapped at `address` */
    ZEROUTE_EVENT_UNMAP,      /* whatever is mapped there was unmapped */
    ZEROUTE_EVENT_CONTEXT,    /* context `address` was created */
    ZEROUTE_EVENT_CONTEXT_GO, /* or destroyed */
    ZEROUTE_EVENT_MARK,       /* zeroute_mark(): the text follows the event, NUL-terminated */
    ZEROUTE_EVENTS,           /* one more than the last; grows with minor versions */
    /* What events refer to. */
    ZEROUTE_RECORD_STACK = 64, /* struct zeroute_record_stack */
    ZEROUTE_RECORD_CODE,       /* struct zeroute_record_code */
    ZEROUTE_RECORD_MODULE,     /* struct zeroute_record_module */
    ZEROUTE_RECORD_THREAD,     /* struct zeroute_record_thread */
    ZEROUTE_RECORD_CARD,       /* struct zeroute_record_card */
    ZEROUTE_RECORD_TEXT,       /* struct zeroute_record_text */
    ZEROUTE_RECORD_HOST        /* struct zeroute_record_host; minor version 1 */
};

/* As in `enum zr_kind` and doc/statistics.md; the first three make up allocated_bytes.all and its peak. */
enum zeroute_record_kind {
    ZEROUTE_MEMORY_DEVICE,
    ZEROUTE_MEMORY_SHARED,
    ZEROUTE_MEMORY_PHYSICAL, /* `address` is a handle */
    ZEROUTE_MEMORY_HOST,
    ZEROUTE_MEMORY_VIRTUAL, /* a reserved address range */
    ZEROUTE_MEMORY_MAPPED,
    ZEROUTE_MEMORY_IMPORTED, /* memory of another process: ALLOC is the import, FREE its end */
    ZEROUTE_MEMORY_KINDS
};

enum zeroute_record_refuser {
    ZEROUTE_REFUSED_BY_DRIVER,
    ZEROUTE_REFUSED_BY_LIMIT,      /* the setting `limit`; aux is the limit in bytes */
    ZEROUTE_REFUSED_BY_HOST_FLOOR, /* the setting `host_floor`; aux is its value */
    ZEROUTE_REFUSED_BY_INJECT,     /* the setting `inject` */
    ZEROUTE_REFUSED_BY_ZEROUTE,    /* a double or interior free of a cached block, or no memory for our own books */
    ZEROUTE_REFUSED_BY_GROUP_LIMIT /* the setting group_limit */
};

enum zeroute_record_event_flag {
    ZEROUTE_FLAG_HIT = 1,    /* ALLOC: from the cache, or a piece of a segment that was there; no driver call */
    ZEROUTE_FLAG_PIECE = 2,  /* ALLOC, FREE: of a pool's segment */
    ZEROUTE_FLAG_CACHED = 4, /* ALLOC: of a kind that may be cached. FREE: is kept for reuse, if there is room for it */
    ZEROUTE_FLAG_PEER = 8,   /* RESIDENT: on another card than the owner's */
    ZEROUTE_FLAG_SKIPPED = 16, /* RESIDENT, EVICT: residency:owner kept it from the driver */
    ZEROUTE_FLAG_ANSWERED = 32 /* RESIDENT: it was so already, and the driver was not asked */
};

#define ZEROUTE_RECORD_NO_CARD 255u

/*
 * aux of ALLOC and FREE: the context in the lower 48 bits, 0 for a pool's pieces; above it a hash of the other
 * properties that blocks must have alike to be reused for each other.
 */
struct zeroute_record_event {
    struct zeroute_record_head head; /* id: the stack */
    uint64_t time;                   /* CLOCK_MONOTONIC in ns */
    uint64_t address;                /* or a handle */
    uint64_t size;                   /* in bytes, as the program requested it; of RESERVE and RELEASE what is held */
    uint64_t aux;                    /* ALLOC, FREE: see below; else as the type says */
    uint32_t code;                   /* ze_result_t; 0 is success */
    uint32_t duration;               /* ns that the call took so far; 0: not known; UINT32_MAX: that or longer */
    uint16_t entry;                  /* the entry point: an index into the text ENTRIES */
    uint8_t via;                     /* the hook that saw the call: an index into the text VIAS */
    uint8_t kind;                    /* enum zeroute_record_kind */
    uint8_t card;                    /* ZEROUTE_RECORD_NO_CARD: none, or all */
    uint8_t refuser;                 /* enum zeroute_record_refuser */
    uint8_t flags;                   /* enum zeroute_record_event_flag */
    uint8_t unused;
};

/* A frame of Python: which instruction of which code object. */
struct zeroute_record_python {
    uint32_t code;  /* the id of a CODE record; 0: the code object could not be read */
    uint32_t where; /* offset of the instruction in bytes, and ZEROUTE_PYTHON_ENTRY */
};
#define ZEROUTE_PYTHON_ENTRY 0x80000000u /* called from C: it is the last of its evaluation loop's frames */

/*
 * A stack, innermost frame first: `native` return addresses (8 bytes each), then `python` frames. Ids are not dense. A
 * stack may be missing if the process was killed. To merge: from the innermost native frame outwards, each frame of the
 * interpreter's evaluation function stands for Python frames, up to and including the next one with
 * ZEROUTE_PYTHON_ENTRY.
 */
struct zeroute_record_stack {
    struct zeroute_record_head head;
    uint64_t time; /* when it was first seen */
    uint16_t native, python;
    uint8_t native_cut, python_cut; /* there were more than could be stored */
    uint16_t unused;
};

/* A Python code object: the texts follow, each of its size and without a NUL, in this order. */
struct zeroute_record_code {
    struct zeroute_record_head head;
    uint32_t first_line;
    uint16_t file_size, name_size; /* co_filename, co_qualname: UTF-8 */
    uint32_t table_size;           /* co_linetable, to be decoded as CPython's location table */
    uint32_t table_cut;            /* 1: the table is longer than was stored; lines behind its end are not known */
};

/*
 * A loaded library, or the program. An address of a stack belongs to the module that holds it; of several that held it
 * at different times, to the latest one that is not younger than the stack. The path follows, NUL-terminated; it may be
 * a name only (the vDSO).
 */
struct zeroute_record_module {
    struct zeroute_record_head head;
    uint64_t time;
    uint64_t start, end; /* of its segments in memory */
    uint64_t bias;       /* address in memory less address in the file's own terms (l_addr) */
    uint32_t build_id_size;
    uint8_t build_id[36];
};

/* The id is the thread's number in its chunks. */
struct zeroute_record_thread {
    struct zeroute_record_head head;
    uint32_t tid;
    uint32_t unused;
    char name[16];
};

/* The id is the card's number. Noted when the card is first used. */
struct zeroute_record_card {
    struct zeroute_record_head head;
    uint64_t memory; /* bytes; 0: not known */
};

/*
 * Host memory of the whole machine, as the launcher saw it: not in the process's own chunks, but in one that the
 * launcher adds when the process has ended.
 */
struct zeroute_record_host {
    struct zeroute_record_head head;
    uint64_t time;       /* CLOCK_MONOTONIC in ns; may be before the record began */
    uint64_t available;  /* MemAvailable in bytes */
    uint64_t gpu_active; /* GPUActive in bytes; UINT64_MAX: the kernel does not tell */
};

/* Something about the process: the id says what; the text follows, `size` bytes, NULs between its parts. */
struct zeroute_record_text {
    struct zeroute_record_head head;
    uint32_t size;
    uint32_t unused;
};
enum zeroute_record_text_id {
    ZEROUTE_TEXT_COMMAND = 1, /* the command line, arguments separated by NUL */
    ZEROUTE_TEXT_SETTINGS,    /* "key:value,..." in force */
    ZEROUTE_TEXT_VARIABLES,   /* "NAME=value" of launchers: RANK, SLURM_PROCID, ... */
    ZEROUTE_TEXT_ENTRIES,     /* names of entry points */
    ZEROUTE_TEXT_VIAS,        /* names of hooks */
    ZEROUTE_TEXT_DIRECTORY,   /* where the process was when the record began */
    ZEROUTE_TEXT_PYTHON       /* "3.12.1: frames are recorded", or why not */
};

/*
 * A line in time: call it from the program, at the start of a step or wherever something is to be found again. Exported
 * by the preload alone, so look it up: `dlsym(RTLD_DEFAULT, "zeroute_mark")`, or from Python
 * `ctypes.CDLL(None).zeroute_mark(b"step 1")`. Without a record it does nothing. At most 255 bytes are kept.
 */
void zeroute_mark(const char *text);
typedef void (*zeroute_mark_function)(const char *text);

#ifdef __cplusplus
}
#endif
#endif
