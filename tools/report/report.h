/* The map of report/: records are loaded, their blocks paired, their stacks named, and shown or exported. */
#ifndef ZEROUTE_TOOLS_REPORT_H
#define ZEROUTE_TOOLS_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <zeroute/record.h>

/* --- load.c: a file becomes events in the order of time ------------------------------------------ */
#define ZR_NO_EVENT UINT32_MAX

/* One event. Times are ns since the record began. */
struct zr_event {
    uint64_t time;
    uint64_t address;
    uint64_t size; /* of a FREE: that of its block, once paired */
    uint64_t aux;
    uint32_t stack;   /* index of a stack; 0: none */
    uint32_t of;      /* ALLOC, FREE: the stack that allocated the block */
    uint32_t partner; /* ALLOC, RESERVE: the event that ends it; FREE, RELEASE: the one that began it; RESIDENT, EVICT:
                         the ALLOC of the block; or ZR_NO_EVENT */
    uint32_t code;
    uint32_t duration;
    uint16_t entry;
    uint16_t thread; /* index of a thread */
    uint8_t type, kind, card, refuser, flags, via;
};

struct zr_module {
    uint64_t time, start, end, bias;
    unsigned build_id_size;
    uint8_t build_id[36];
    const char *path;
};

struct zr_code {
    uint32_t id;
    uint32_t first_line;
    const char *file, *name;
    const uint8_t *table;
    uint32_t table_size;
};

/* As recorded: innermost frame first. */
struct zr_call_stack {
    uint64_t time;
    uint32_t id;
    uint16_t native, python;
    bool cut; /* there were more frames */
    const uint64_t *address;
    const struct zeroute_record_python *frame;
};

struct zr_thread {
    uint32_t number, tid;
    char name[17];
};

/* Host memory of the machine at a time; as in struct zeroute_record_host. */
struct zr_host_sample {
    uint64_t time; /* ns since the record began; 0 for what was before */
    uint64_t available, gpu_active;
};

struct zr_record {
    char *path;
    struct zeroute_record_header header;
    uint64_t duration; /* ns from the start of the record to its last event, or to its end */
    bool ended;        /* the process ended by exit */
    struct zr_event *event;
    uint32_t events;
    uint64_t damaged;            /* records that could not be read */
    struct zr_call_stack *stack; /* the first one is empty: "no stack" */
    uint32_t stacks;
    struct zr_code *code; /* in the order of their ids */
    size_t codes;
    struct zr_module *module; /* in the order of their times */
    size_t modules;
    struct zr_thread *thread;
    uint32_t threads;
    uint64_t card_memory[256]; /* 0: not known */
    bool card_seen[256];
    char *text[ZEROUTE_TEXT_PYTHON + 1]; /* by id; NULs between parts; NULL: absent */
    size_t text_size[ZEROUTE_TEXT_PYTHON + 1];
    const char **entry, **via; /* names of entry points and hooks */
    unsigned entries, vias;
    struct zr_host_sample *host; /* in the order of time */
    size_t hosts;
    char **mark; /* the text of a MARK event is mark[aux] */
    size_t marks;
    struct zr_arena *arena;
    struct zr_implied *implied; /* blocks that ended without a FREE: in the order of `at` */
    size_t implieds;
    uint64_t unknown_frees;
};

/* A block whose address was handed out again: its FREE is missing. */
struct zr_implied {
    uint32_t at;    /* the event that handed the address out again */
    uint32_t begin; /* the block's ALLOC or RESERVE */
};

/*
 * Loads a record. Costs at most a few times the bytes that are used in the file. Returns NULL with what is wrong in
 * `why`. The caller frees it with zr_record_free.
 */
struct zr_record *zr_record_load(const char *path, char *why, size_t size);
void zr_record_free(struct zr_record *r);

/* --- texts.c ----------------------------------------------------------------------------------------- */
/* Finds the names of entry points and hooks. False without memory. */
bool zr_record_names(struct zr_record *r);
/* The name of an entry point or a hook; "" if unknown. */
const char *zr_record_entry(const struct zr_record *r, unsigned entry);
const char *zr_record_via(const struct zr_record *r, unsigned via);
/* A variable of the launcher ("RANK"); NULL if it was not set. */
const char *zr_record_variable(const struct zr_record *r, const char *name);
/* The command line in one line, cut at `size`. */
void zr_record_command(const struct zr_record *r, char *out, size_t size);
/* Which rank of a job the process was, as its launcher says; -1: not known. */
int zr_record_rank(const struct zr_record *r);

/* --- arena.c: memory that is freed as a whole ----------------------------------------------------- */
struct zr_arena *zr_arena_new(void);
/* NULL without memory. Aligned to 8 bytes. */
void *zr_arena_get(struct zr_arena *a, size_t size);
/* A copy with a NUL behind it. */
char *zr_arena_text(struct zr_arena *a, const char *text, size_t size);
void zr_arena_free(struct zr_arena *a);
/* Room for one more element in *(T **)array, of which there is room for *have. False without memory. */
bool zr_room(void *array, size_t *have, size_t used, size_t each);

/* --- blocks.c: which FREE ends which ALLOC -------------------------------------------------------- */
/* Sets partner, and the size, kind, card and `of` of every FREE. False without memory. */
bool zr_record_pair(struct zr_record *r);
/* Kinds that make up allocated_bytes.all. */
static inline bool zr_kind_allocated(unsigned kind) {
    return kind == ZEROUTE_MEMORY_DEVICE || kind == ZEROUTE_MEMORY_SHARED || kind == ZEROUTE_MEMORY_PHYSICAL;
}
/* Kinds that are memory of the program: the above, host memory and imports. Address ranges and mappings are not. */
static inline bool zr_kind_memory(unsigned kind) {
    return zr_kind_allocated(kind) || kind == ZEROUTE_MEMORY_HOST || kind == ZEROUTE_MEMORY_IMPORTED;
}
const char *zr_kind_name(unsigned kind);
/* Calls f for every block of memory that is live after the event `at`; ZR_NO_EVENT: at the end. */
void zr_record_live(const struct zr_record *r, uint32_t at, void (*f)(void *to, const struct zr_event *block),
                    void *to);

/* Sizes in classes that fit what runtimes and PyTorch request. */
enum { ZR_SIZE_CLASSES = 10 };
unsigned zr_size_class(uint64_t size);
const char *zr_size_class_name(unsigned size_class);

/* --- python.c: lines of Python ---------------------------------------------------------------------- */
/* The line of the instruction at this offset, from the location table of CPython 3.11 and later; 0: not known. */
uint32_t zr_python_line(const struct zr_code *c, uint32_t offset);

/* --- demangle.c ---------------------------------------------------------------------------------------- */
/* A C++ name in readable form, cut to the size of `out`; any other name as it is. */
void zr_demangle(const char *name, char *out, size_t size);

/* --- symbols.c: names of native frames, by libdw ------------------------------------------------------ */
struct zr_symbols;
/* Libraries are looked for below `root` ("" for none). `off`: none is opened, and frames are named by their library.
 * Those that `before` (NULL: none) has opened are used again: it must live longer. */
struct zr_symbols *zr_symbols_new(const struct zr_record *r, const char *root, bool off,
                                  const struct zr_symbols *before);
void zr_symbols_free(struct zr_symbols *s);
/* Who a return address belongs to. Texts are good until zr_symbols_free. */
struct zr_symbol {
    const char *name;    /* demangled; NULL: not known */
    const char *library; /* the path of the module; NULL: no module */
    const char *file;    /* NULL: not known */
    const char *folder;  /* what `file` is relative to; NULL: not known, or it is absolute */
    uint32_t line;
    uint64_t offset; /* in the module's own terms */
    size_t module;   /* its index; SIZE_MAX: none */
};
/* The module of an address at a time; SIZE_MAX: none. */
size_t zr_symbol_module(const struct zr_symbols *s, uint64_t address, uint64_t time);
void zr_symbol_of(struct zr_symbols *s, uint64_t address, uint64_t time, struct zr_symbol *out);
/* Names were wanted, and libdw is not installed. */
bool zr_symbols_unavailable(const struct zr_symbols *s);
/* Modules whose file is not the one that was loaded then: the next one from *i on, NULL behind the last. */
const char *zr_symbols_replaced(const struct zr_symbols *s, size_t *i);

/* --- stacks.c: native and Python frames merged, outermost first --------------------------------------- */
struct zr_frame {
    const char *name;     /* "step", "at::empty(...)" */
    const char *file;     /* of the source, or of the library; "" if neither is known */
    uint32_t line;        /* 0: not known */
    bool python, runtime; /* runtime: of the SYCL, UMF or Level Zero stack */
};

/* Stacks that show the same frames are one path. */
struct zr_path {
    const uint32_t *frame; /* outermost first */
    uint32_t frames;
    uint32_t caller;    /* index of a caller */
    uint32_t caller_at; /* which of the frames that is */
    const char *name;   /* the caller, and what tells paths of one caller apart: names.c */
};

struct zr_paths {
    struct zr_frame *frame;
    uint32_t frames;
    struct zr_path *path; /* the first one is "no stack" */
    uint32_t paths;
    uint32_t *of_stack; /* path by index of a stack */
    char **caller;      /* who requested memory, in one line: the innermost frame that is not of the runtime */
    uint32_t callers;
    struct zr_arena *arena;
};
/* NULL without memory. */
struct zr_paths *zr_paths_new(const struct zr_record *r, struct zr_symbols *s);
void zr_paths_free(struct zr_paths *p);
/* How many frames of a path there are without what the runtime does below its first function. */
uint32_t zr_path_shown(const struct zr_paths *p, uint32_t path);
/* "train.py:41 in step", "at::empty(...) (libtorch.so)"; returns out. */
const char *zr_frame_text(const struct zr_frame *f, char *out, size_t size);

/* --- names.c: what tells paths of one caller apart ----------------------------------------------------- */
/*
 * Names every path by its caller and, where several paths have that caller, by the frames that tell them apart,
 * outermost first: "weights (model.c:12) > layer (model.c:7)". Sorts the paths once. False without memory.
 */
bool zr_paths_name(struct zr_paths *p);

/* --- profile.c: what a record amounts to ------------------------------------------------------------------ */
enum { ZR_TOP_BLOCKS = 200, ZR_TOP_CALLERS = 11, ZR_TOP_PATHS = 200, ZR_LATENCIES = 160 };

/* How much of something is live, and the most that ever was. */
struct zr_level {
    uint64_t bytes, blocks;
    uint64_t most, most_blocks; /* at `at` */
    uint64_t at;                /* ns */
};

/* What one path did. Levels count allocated memory: the kinds device, shared and physical. */
struct zr_path_use {
    struct zr_level level;
    uint64_t peak, peak_blocks;       /* live at the peak of the process */
    uint64_t refused, refused_blocks; /* live when the last allocation was refused */
    uint64_t left, left_blocks;       /* live at the end; host memory and imports too */
    uint64_t allocations, bytes, failures;
};

struct zr_class_use {
    struct zr_level level;
    uint64_t allocations, bytes, failures, hits;
    uint64_t timed[2], longest[2];     /* calls: [0] that reached the driver, [1] served from the cache */
    uint32_t latency[2][ZR_LATENCIES]; /* by zr_latency_bucket */
};

/* A point in the picture of memory over time: the state after an event. */
struct zr_sample {
    uint32_t event;
    uint64_t time;
};

/* Reserved memory at a sample: how much of it is free, and the largest piece of that. */
struct zr_gap {
    uint32_t sample;
    uint64_t reserved, free, largest;
};

struct zr_profile {
    const struct zr_record *r;
    const struct zr_paths *p;
    uint64_t count[ZEROUTE_EVENTS]; /* events by type */
    struct zr_level all;            /* allocated, over all cards */
    uint32_t peak_event;            /* ZR_NO_EVENT: nothing was ever allocated */
    struct zr_level kind[ZEROUTE_MEMORY_KINDS];
    struct zr_level card[256]; /* allocated memory */
    struct zr_level card_kind[256][ZEROUTE_MEMORY_KINDS];
    struct zr_level reserved;
    uint64_t left, left_blocks;          /* memory of all kinds at the end */
    uint64_t made[ZEROUTE_MEMORY_KINDS]; /* allocations by kind; what is left of a kind is its level */
    uint32_t failure_event; /* the last allocation that was refused: where the program ended, if it ended of that;
                               ZR_NO_EVENT: none was */
    uint64_t refused, refused_blocks; /* allocated then */
    uint64_t trimmed;                 /* bytes */
    struct zr_path_use *path;         /* as in p->path */
    struct zr_level *caller;          /* as in p->caller */
    struct zr_class_use size[ZR_SIZE_CLASSES];
    uint32_t top[ZR_TOP_BLOCKS]; /* ALLOC events of the largest blocks, largest first */
    size_t tops;
    struct zr_sample *sample;
    uint32_t samples;
    uint8_t cards[256]; /* numbers of cards that had events, ascending; ZEROUTE_RECORD_NO_CARD last */
    size_t n_cards;
    uint32_t top_caller[ZR_TOP_CALLERS]; /* the rest is "other callers" */
    size_t top_callers;
    uint32_t top_path[ZR_TOP_PATHS]; /* by the most that was live */
    size_t top_paths;
    /* Values at samples: row after row, each of `samples` values. */
    uint64_t *total, *blocks, *held;
    uint64_t *by_card, *by_kind, *by_caller, *by_size, *by_path;
    struct zr_gap *gap;
    size_t gaps;
};
/* `detail`: how many samples at most, about. NULL without memory. */
struct zr_profile *zr_profile_new(const struct zr_record *r, const struct zr_paths *p, uint32_t detail);
void zr_profile_free(struct zr_profile *f);
/* Latencies in buckets of a quarter of a power of two; the value in the middle of a bucket. */
unsigned zr_latency_bucket(uint32_t ns);
uint64_t zr_latency_value(unsigned bucket);
/* The latency that this share (0 to 1) of the calls stayed within. */
uint64_t zr_latency_quantile(const struct zr_class_use *c, unsigned reused, double share);
/* Memory that is reserved is not counted apart where nothing is cached. */
static inline bool zr_reserved_apart(const struct zr_record *r) {
    return !(r->header.flags & ZEROUTE_RECORD_RESERVED_SAME);
}

/* --- what is shown of one process: the command fills it, every form of output takes it ------------------------ */
enum { ZR_NOTES_MOST = 16 };
struct zr_report {
    struct zr_record *record;
    struct zr_symbols *symbols;
    struct zr_paths *paths;
    struct zr_profile *profile;
    char name[64];             /* "rank 2", "process 4711" */
    uint64_t offset;           /* ns from the start of the earliest process */
    char *note[ZR_NOTES_MOST]; /* what a reader must know before any figure: events lost, no end */
    size_t notes;
    char *remark[ZR_NOTES_MOST]; /* and what may explain one afterwards: libraries replaced, no Python frames */
    size_t remarks;
};

/* --- host.c: what the program cost in host memory ----------------------------------------------------------------- */
struct zr_host_line {
    size_t n;                /* samples; 0: the launcher took none */
    uint64_t *lost, *mirror; /* by sample: how much less is available; GPUActive's growth less host and shared USM */
    bool mirror_known;       /* the kernel tells GPUActive */
    uint64_t lost_most, mirror_most;
};
/* False without memory. zr_host_line_free frees it. */
bool zr_host_line_of(const struct zr_record *r, struct zr_host_line *out);
void zr_host_line_free(struct zr_host_line *line);

/* --- joint.c: several processes at once ------------------------------------------------------------------------ */
struct zr_joint {
    uint64_t peaks;        /* the sum of what each process had at its own peak */
    struct zr_level level; /* of all processes at the same moment; `at` is since the start of the earliest */
    uint64_t left, left_blocks, allocations, failures;
    uint64_t *then; /* what each process had at the joint peak, in the order of `shown` */
};
/* False without memory. The caller frees `then`. */
bool zr_joint_of(const struct zr_report *shown, size_t n, struct zr_joint *out);

/* --- diff.c: what differs between two records, by stack ----------------------------------------------------------- */
enum zr_diff_weight { ZR_BY_PEAK, ZR_BY_LEFT, ZR_BY_ALLOCATIONS, ZR_BY_BYTES, ZR_BY_FAILURES, ZR_DIFF_WEIGHTS };
struct zr_diff_row {
    const struct zr_paths *paths; /* of the new record if the stack is in it */
    uint32_t path;
    uint64_t was[ZR_DIFF_WEIGHTS], is[ZR_DIFF_WEIGHTS];
};
struct zr_diff {
    struct zr_diff_row *row;
    uint32_t rows;
    struct zr_arena *arena;
};
/* NULL without memory. Both reports must live longer. */
struct zr_diff *zr_diff_new(const struct zr_report *was, const struct zr_report *is);
void zr_diff_free(struct zr_diff *d);
/* The rows that changed: what grew, the most first, then what shrank; *n of them. To be freed; NULL: no memory. */
uint32_t *zr_diff_order(const struct zr_diff *d, enum zr_diff_weight by, size_t *n);
const char *zr_diff_weight_name(enum zr_diff_weight by);
/* diff_text.c, diff_page.c: `shown` is the old record and the new one. Each returns false if not all was written. */
bool zr_diff_text(FILE *out, const struct zr_report shown[2], const struct zr_diff *d, unsigned top);
bool zr_diff_json(FILE *out, const struct zr_report shown[2], const struct zr_diff *d, unsigned top);
bool zr_diff_flamegraph(FILE *out, const struct zr_diff *d, const char *weight);
bool zr_diff_page(FILE *out, const struct zr_report shown[2], const struct zr_diff *d);

/* --- words.c ------------------------------------------------------------------------------------------------- */
/* "OUT_OF_DEVICE_MEMORY", or the number; good until it was called again. */
const char *zr_code_name(uint32_t code);
/* "the driver", "limit" */
const char *zr_refuser_name(unsigned refuser);
/* "alloc", "free" */
const char *zr_event_name(unsigned type);
/* "94 %", "1.2 %", as the page writes it. Needs ZR_TEXT_SIZE bytes; returns out. */
const char *zr_share_text(char *out, uint64_t part, uint64_t whole);
/* "1.44 ms", "2:03 min", as the page writes it. */
const char *zr_span_text(char *out, uint64_t ns);

/* --- page.c, text.c, report_json.c, export.c, torch.c. Each returns false if not everything was written. -------- */
bool zr_report_page(FILE *out, const struct zr_report *shown, size_t n);
void zr_json_string(FILE *out, const char *text);
/* {"name","file",line,kind} of a frame, as the scripts of the pages take it. */
void zr_page_frame(FILE *out, const struct zr_frame *f);
/* From <!DOCTYPE to the data, and from behind it to the end: `html` and `script` are those of the page, the other
 * scripts those that all pages use. */
void zr_page_begin(FILE *out, const char *html);
void zr_page_end(FILE *out, const char *const *script);
extern const char zr_part_common_js[], zr_part_flame_js[];
/* "frame;frame;frame" */
void zr_folded_stack(FILE *out, const struct zr_paths *p, uint32_t path);
bool zr_report_text(FILE *out, const struct zr_report *shown, size_t n, unsigned top);
bool zr_report_json(FILE *out, const struct zr_report *shown, size_t n, unsigned top);
bool zr_export_torch(FILE *out, const struct zr_report *shown);
bool zr_export_perfetto(FILE *out, const struct zr_report *shown, size_t n);
bool zr_export_csv(FILE *out, const struct zr_report *shown, size_t n);
/* weight: peak, leaks, allocations, bytes or failures. */
bool zr_export_flamegraph(FILE *out, const struct zr_report *shown, size_t n, const char *weight);

#endif
