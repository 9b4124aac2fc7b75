/*
 * This machine as every command sees it: processes with whose they are, jobs, cards, host memory, and what follows from
 * these together, sampled once or again and again. Commands render a view, and compute nothing that another computes
 * too. Grouped by the file that defines it.
 */
#ifndef ZEROUTE_TOOLS_VIEW_H
#define ZEROUTE_TOOLS_VIEW_H

#include "common/common.h"

/* --- identity.c: whose process it is ---------------------------------------------------------- */
/* Texts as they were found, cut; "" for none. Never trusted: made harmless where they are shown. */
struct zr_identity {
    char job[128];       /* "slurm:81.0", "torchrun:ID.PORT", "ray:ID", or the name of its `zeroute run` */
    char job_name[64];   /* as people called it: SLURM_JOB_NAME */
    char rank[16];       /* in the job */
    char local_rank[16]; /* on this machine */
    char container[64];  /* its name, else the first 12 digits of its id */
    char pod[128];
    char space[64]; /* the Kubernetes namespace */
};
/* From the segment's header, the process's environment and its cgroup. What may not be read is empty. */
void zr_identify(const struct zeroute_process *p, struct zr_identity *out);
/* The part that /proc/PID/cgroup tells; for tests. */
void zr_identify_cgroup(const char *text, struct zr_identity *out);
/* The part that an environment tells: strings separated by NUL. */
void zr_identify_environment(const char *text, size_t length, const struct zeroute_process *p, struct zr_identity *out);

/* --- series.c: what a process has counted, as series of metrics ------------------------------- */
enum zr_metric_type { ZR_METRIC_COUNTER, ZR_METRIC_GAUGE, ZR_METRIC_HISTOGRAM };
enum { ZR_LE = 12, ZR_FAMILIES_MOST = 256, ZR_PROCESS_SERIES = 2048 };

struct zr_metric {
    char name[96]; /* without "zeroute_" */
    char help[160];
    enum zr_metric_type type;
    bool nanoseconds; /* values are; the metric is in seconds */
};
/* The families so far: those of metrics.def, then those of fields that it does not know. */
extern struct zr_metric zr_metric[ZR_FAMILIES_MOST];
extern unsigned zr_metric_count;
/* The upper bound of a bucket in nanoseconds, 256 ns to 1.07 s; from ZR_LE on there is none. */
uint64_t zr_le_ns(unsigned bucket);

struct zr_series {
    struct zr_series *next;
    struct zr_series *below; /* in its chain of the hash table */
    unsigned family;
    uint64_t value;             /* of a histogram: the sum in nanoseconds */
    uint64_t bucket[ZR_LE + 1]; /* of a histogram: counts, not cumulated */
    char labels[];              /* 'entry="zeMemFree",via="plt"', ready to print; "" for none */
};
enum { ZR_CHAINS = 64 };
struct zr_figures {
    struct zr_series *first; /* the latest one */
    size_t count;
    struct zr_series *chain[ZR_CHAINS];
};
struct zr_device_names {
    unsigned count;
    char name[16][32]; /* PCI address of device N, else its number */
};
/*
 * Every field that is not zero, ZR_PROCESS_SERIES at most. `rank` is a label of what differs by rank, unless NULL or
 * empty.
 */
void zr_figures_take(struct zr_figures *f, const struct zeroute_snapshot *s, const struct zr_device_names *devices,
                     const char *rank);
/* Adds counters and histograms of `other`, and gauges too if told to. False: `f` would have more than `most` series. */
bool zr_figures_add(struct zr_figures *f, const struct zr_figures *other, bool gauges, size_t most);
void zr_figures_free(struct zr_figures *f);
/* Appends name="VALUE" to labels, harmless; nothing for an empty value. */
void zr_label(char *labels, size_t size, const char *name, const char *value);

/* --- view.c ----------------------------------------------------------------------------------- */
/* Beyond ZR_WATCH_KEPT groups, those that have ended are one: a page of metrics is not to grow with every job. */
enum { ZR_HISTORY = 360, ZR_WATCH_PROCESSES = 4096, ZR_WATCH_GROUPS = 1024, ZR_WATCH_KEPT = 128 };
/* The newest of the processes that have ended keep all their fields, this many; the others only their figures. */
enum { ZR_ENDED_FIELDS = 100 };
/* One user's share of a view: whoever makes up processes, jobs and fields leaves room for others. */
enum { ZR_USER_PROCESSES = 512, ZR_USER_SERIES = 32768 };

/* The last ZR_HISTORY values, one for each stretch of history_ns: the highest of it. All of a view end together. */
struct zr_history {
    uint64_t high;
    unsigned count, at;
    uint64_t value[ZR_HISTORY];
};
/* The n-th value of the last `count`, the oldest first. */
uint64_t zr_history_at(const struct zr_history *h, unsigned n);
/* `due`: a stretch ends with this sample. */
void zr_history_note(struct zr_history *h, bool due, uint64_t value);

struct zr_card_view {
    char pdev[32], driver[16];
    char model[64];        /* as the driver names it to a process of ours; "" while none has told */
    uint64_t vram;         /* ZR_ABSENT: not told */
    uint64_t ours, others; /* VRAM in use by processes under zeroute, and by others */
    uint64_t gtt;          /* host memory that it maps for our processes */
    struct zr_history used;
};
/* Whether what the kernel counts for all processes is within 5 % of its size. */
bool zr_card_is_full(const struct zr_card_view *card);

/* How much of a card all processes together hold; 0: not known. */
unsigned zr_card_percent(const struct zr_card_view *card);

/* --- safe.c: whether the preset safe would help ------------------------------------------------ */
struct zr_safe_signs {
    bool is_on;       /* limit:auto is in force */
    bool refused;     /* the driver has refused memory because there was none */
    bool was;         /* the card's figure is of the past */
    unsigned percent; /* of the fullest card that the process uses */
    uint64_t lost;    /* calls that were answered DEVICE_LOST */
    uint64_t spilled;
};
/* What the process itself has counted. */
struct zr_safe_signs zr_safe_signs_of(const struct zeroute_snapshot *s);
enum zr_safe { ZR_SAFE_NOT_NEEDED, ZR_SAFE_IS_ON, ZR_SAFE_HELPS };
/* And why, in words. */
enum zr_safe zr_safe_for(const struct zr_safe_signs *signs, char *why, size_t size);

/* Host memory that may be a mirror: what drivers hold beyond what our processes asked for. */
enum zr_lost_by { ZR_LOST_UNKNOWN, ZR_LOST_GPU_ACTIVE, ZR_LOST_AVAILABLE, ZR_LOST_UNACCOUNTED };
struct zr_lost {
    uint64_t bytes; /* ZR_ABSENT: not known */
    enum zr_lost_by by;
    uint64_t start;     /* GPUActive before the program; 0: not read then */
    uint64_t host_side; /* host and shared USM, which is in GPUActive and no mirror */
};

/* What the kernel counts for a process on a card, and what of it is known. */
struct zr_account {
    unsigned number; /* of the device in its process */
    char pdev[32];
    uint64_t vram;                     /* ZR_ABSENT: not told */
    uint64_t blocks, images, imported; /* of it, as the process counts */
    uint64_t unseen;                   /* the rest: modules, command buffers, the driver's own */
    uint64_t spilled;                  /* blocks that are not there, on a card that is full */
};

/* What a quantity did while it was watched (growth.c). */
struct zr_trend {
    uint64_t began_ns, since_ns, rose_ns, seen_ns; /* CLOCK_MONOTONIC; began 0: not seen yet */
    uint64_t from, last, own;
    unsigned steps, samples;
};

/* How far the device memory of a program has been given back (paused.c). */
enum zr_pause_state { ZR_PAUSE_OFF, ZR_PAUSE_RUNNING, ZR_PAUSE_PAUSING, ZR_PAUSE_PAUSED, ZR_PAUSE_RESUMING };
struct zr_pause_view {
    enum zr_pause_state state; /* OFF: it was started without pause:on */
    uint64_t since_ns;         /* CLOCK_REALTIME */
    uint64_t bytes;            /* given back; while it changes, what has been moved */
    uint64_t host_bytes;       /* of the host, that hold contents */
    uint64_t kept;             /* device memory that stays */
    uint64_t waiting;          /* threads that are held */
    char reason[320];          /* why the last request was refused, or waits */
};

struct zr_process_view {
    struct zeroute_process process;
    struct zr_identity id;
    uint64_t allocated, reserved, reserved_peak, peak, host_usm, host_side, blocks;
    uint64_t calls, hits, misses, allocations, driver_calls, failures, refused, changes, p99_ns;
    uint64_t hits_lately, asked_lately;                            /* since the last sample, or else ever */
    uint64_t vram, gtt, mirror;                                    /* from the kernel; ZR_ABSENT: not told */
    uint64_t unseen, spilled;                                      /* on all cards */
    uint64_t ipc_open, left_bytes;                                 /* left: not freed at its end; ZR_ABSENT: not told */
    uint64_t last_activity_ns;                                     /* CLOCK_REALTIME of its last call */
    double allocations_rate, driver_rate, hit_rate, failures_rate; /* per second; hit_rate 0 to 1, below 0: none */
    char settings[768], route[64], hooks[160];
    struct zr_pause_view pause;
    struct zr_history used;
    struct zr_figures figures;
    struct zr_process_memory memory; /* from the kernel; of a live one */
    unsigned accounts;
    struct zr_account account[ZR_CARDS_MAX];
    uint32_t on_cards; /* a bit for each card of the view that holds memory of it */
    struct zr_trend trend[ZR_GROWTHS];
    struct zeroute_snapshot *snapshot; /* its fields, where the scope wants them; owned by the view */
    uint64_t sampled_ns;               /* CLOCK_MONOTONIC: of the figures */
    unsigned idle;                     /* samples without a call */
    bool seen;                         /* in this sample */
    size_t group;                      /* of metrics, that it was counted in */
};

/* Processes that are one to a metric: of one user's job in one container. */
struct zr_group {
    char labels[512];
    unsigned uid;
    struct zr_figures live, ended; /* ended: counters of processes that have gone */
    unsigned processes;
    bool was_live; /* had processes at the last sample */
};

/* Which processes, and what of them. */
struct zr_scope {
    int pid;                         /* this process alone; 0: all */
    const char *run;                 /* those that this `zeroute run` has started; NULL: all */
    bool finished;                   /* those that have ended, too */
    bool jobs;                       /* those that have ended of a job that runs, too */
    bool fields;                     /* all that they have counted: zr_process_view.snapshot */
    bool metrics;                    /* series for zr_exposition(), too */
    bool per_process;                /* a group for each process */
    bool all_at_once;                /* one sample is all there will be: look at everything */
    uint64_t history_ns;             /* between two values of a history */
    const struct zr_meminfo *before; /* read before the program began; NULL: it was not */
};

struct zr_view {
    struct zr_scope scope;
    struct zr_meminfo host;
    struct zr_lost lost;
    uint64_t host_side;        /* host and shared USM of all processes */
    uint64_t host_side_beyond; /* of it of processes that the scope leaves out; 0: it is in what was read before */
    uint64_t mirror;           /* ZR_ABSENT: not told */
    struct zr_history mirror_history;
    unsigned holders; /* processes that hold a card, ours or not */
    unsigned card_count;
    struct zr_card_view card[ZR_CARDS_MAX];
    size_t process_count, process_room;
    struct zr_process_view **process; /* live, in the order in which they were found */
    size_t ended_count, ended_room;
    struct zr_process_view **ended; /* finished, where the scope wants them */
    size_t finished;                /* how many have ended and left a segment, wanted or not */
    size_t group_count;
    struct zr_group group[ZR_WATCH_GROUPS];
    unsigned unreadable, unhooked; /* processes: segments that cannot be read; calls that cannot be seen */
    char unreadable_why[128];
    struct zr_unread *unread; /* each of them */
    size_t unread_count;
    uint64_t history_next;                /* CLOCK_MONOTONIC: when a stretch of the histories ends */
    bool history_due;                     /* with this sample */
    uint64_t samples, sample_ns, wall_ns; /* how many; how long the last one took; CLOCK_REALTIME of it */
    struct zr_joint *joint;               /* of each job that was seen, ZR_JOINTS at most */
    size_t joint_count;
    struct zr_ended *counted; /* private */
};
/* The most that the processes of a job were seen to hold at one time. */
struct zr_joint {
    char job[sizeof((struct zr_identity *)NULL)->job];
    unsigned uid;
    uint64_t peak, now; /* now: in this sample, while it is taken */
};
enum { ZR_JOINTS = 1024 };
/* A segment that cannot be read, and why. */
struct zr_unread {
    int pid;
    unsigned uid;
    char path[320], why[128];
};

struct zr_view *zr_view_new(const struct zr_scope *scope);
/* Looks at every process of the scope. False: out of memory, or no helper. */
bool zr_view_sample(struct zr_view *m);
void zr_view_free(struct zr_view *m);
/* Whether two segments that were listed are those of one process. */
bool zr_is_same_process(const struct zeroute_process *a, const struct zeroute_process *b);
/* The live process of this pid, here or else in its own namespace; else the last one that has ended. NULL: none. */
struct zr_process_view *zr_view_find(const struct zr_view *m, int pid);
/* Leaves that process alone in the view; false: there is none. */
bool zr_view_keep(struct zr_view *m, int pid);

/* --- job.c: a job of several processes as one, or one process by itself ----------------------- */
enum zr_peak_is {
    ZR_PEAK_EXACT, /* of one process, or of several that ran one after another */
    ZR_PEAK_SEEN,  /* the most that they held together whenever they were looked at */
    ZR_PEAK_BOUND, /* looked at once: at most this, as far as the peaks of those that ran at one time add up */
};
extern const char *const zr_peak_names[];
struct zr_job_view {
    const char *name; /* "" for a process without a job */
    unsigned uid;
    size_t count;
    struct zr_process_view **process; /* of the view */
    size_t ended;                     /* of them; they come last */
    size_t paused;                    /* of the living, or about to be */
    struct zr_process_view sum;       /* figures and rates of the living added up; p99 is the highest */
    uint64_t peak;                    /* as `peak_is` says */
    enum zr_peak_is peak_is;
    uint64_t reserved_peak; /* exact or an upper bound */
};
/* Adds what the processes of each job hold now; after each sample. */
void zr_joint_note(struct zr_view *m);
/* Folds the processes of the view by job and user. The result is good until the next sample. */
struct zr_job_view *zr_jobs(const struct zr_view *m, size_t *count);
void zr_jobs_free(struct zr_job_view *jobs);
/* Whether this is what people call the job: "81.0" and "slurm:81.0" alike, or the name of a run. */
bool zr_job_is_called(const struct zr_process_view *v, const char *name);
/*
 * Snapshots as one, to be freed; NULL without any. Of processes that have ended while others run, nothing is held any
 * more; a peak is the most that those that ran at one time can have had together.
 */
struct zeroute_snapshot *zr_sum(struct zeroute_snapshot *const *s, size_t count);

/* --- cards.c: cards, host memory, mirror ------------------------------------------------------ */
struct zr_look;
/* Brings the cards, the mirror and the accounts of all processes up to date. */
void zr_view_cards(struct zr_view *m, const struct zr_look *look);
/* Numbers of cards in their order in the view: "0", "0,2", "0-3"; "-" for none. Returns out. */
const char *zr_cards_text(char *out, size_t size, uint32_t cards);
/* A mirror that is worth a colour. */
#define ZR_MIRROR_WARNS (UINT64_C(64) << 20)
/* A process says that there is such a card, of so much memory. */
void zr_view_card(struct zr_view *m, const char *pdev, uint64_t vram, const char *model);
/* What the kernel counts for the process, and its account per card. */
void zr_view_memory(struct zr_process_view *v, const struct zr_look *look);
void zr_view_account(struct zr_process_view *v, const struct zeroute_snapshot *s, const struct zr_device_names *names);
/*
 * The one formula. GPUActive less host and shared USM; where the kernel has no GPUActive, the drop of MemAvailable
 * less resident memory and these; without a reading before either, what is attributed to no process, which is rough.
 * `before` may be NULL.
 */
void zr_lost_find(const struct zr_meminfo *before, const struct zr_meminfo *now, uint64_t host_side, uint64_t rss,
                  struct zr_lost *out);
/* "GPUActive since before the program, less 48 MiB of host and shared USM" */
const char *zr_lost_text(char *out, size_t size, const struct zr_lost *lost);
/*
 * What one process makes the host hold. The kernel charges an imported buffer to each card that imports it, so the
 * imports of all cards are divided by the number of others; never more than the machine has lost. ZR_ABSENT: not told.
 */
uint64_t zr_mirror_of(const struct zr_process_memory *memory, const struct zr_lost *lost);

/* --- growth.c --------------------------------------------------------------------------------- */
/* Notes what of a process grows while its own allocations do not. */
void zr_trends_note(struct zr_process_view *v, uint64_t now_ns);
/* Whether it grows, seen for 30 seconds and three samples at least, and until now. */
bool zr_grows(const struct zr_process_view *v, unsigned kind, uint64_t now_ns, struct zr_growth *out);

/* --- watched.c: a program that a command has started ------------------------------------------ */
enum { ZR_WATCHED_MS = 100 };
struct zr_watched_figure {
    bool known;
    unsigned samples;
    double sum;
    uint64_t peak;
};
struct zr_watched {
    struct zr_view *view; /* of its processes */
    struct zr_meminfo before;
    struct zr_watched_figure active; /* GPUActive of the machine */
    struct zr_watched_figure mirror; /* of its processes together, and so is this */
    struct zr_watched_figure unseen;
    struct zr_watched_figure held; /* device memory */
    uint64_t least_available;      /* MemAvailable; ZR_ABSENT: not told */
    unsigned full;                 /* cards of the view that were full, a bit each */
    unsigned percent;              /* of the fullest card that its processes used, at most */
    uint64_t spilled;              /* at most */
    uint64_t next_look;
};
/* Before the program is started. `run` is the name of its run, and lives as long. */
void zr_watched_begin(struct zr_watched *w, const char *run);
/* To be called every ZR_WATCHED_MS, or more often: host memory is read each time. */
void zr_watched_sample(struct zr_watched *w);
/* Waits until the program has ended, and watches it meanwhile. */
bool zr_watched_wait(struct zr_watched *w, struct zr_program *p);
/*
 * The most of the host that mirrored device memory. Of a program that was looked at a few times only it is at least
 * what GPUActive rose at most less all that `asked`, the peak of host and shared USM, can explain. ZR_ABSENT: not
 * known.
 */
uint64_t zr_watched_mirror(const struct zr_watched *w, uint64_t asked, bool *at_least);
/* Whether it was looked at a few times only: peaks may have been missed. */
bool zr_watched_is_brief(const struct zr_watched *w);
/* ZR_ABSENT: not known. */
uint64_t zr_watched_mean(const struct zr_watched_figure *f);
/* "watched":{...} of an object; `asked` as above. */
void zr_watched_json(json_t *object, const struct zr_watched *w, uint64_t asked);
void zr_watched_end(struct zr_watched *w);

/* --- figures.c -------------------------------------------------------------------------------- */
/* The sum of all fields whose names begin with "calls." or "failures."; failures by code are not counted twice. */
uint64_t zr_total(const struct zeroute_snapshot *s, const char *prefix);
/* Host memory that was asked for and that is in GPUActive: host USM, cached or not, and the host side of shared USM. */
uint64_t zr_host_side(const struct zeroute_snapshot *s);
/* The most that it can have been. */
uint64_t zr_host_side_peak(const struct zeroute_snapshot *s);
/* What zeroute does not see of a process, and what the kernel counts for it; false if it sees all. */
enum { ZR_MISSED_TEXT = 320, ZR_MISSED_SHOWN = 3 };
bool zr_missed_text(char *out, size_t size, const struct zr_process_view *v);

/* --- paused.c --------------------------------------------------------------------------------- */
void zr_pause_take(struct zr_pause_view *out, const struct zeroute_snapshot *s);
/* "paused", as in JSON and metrics. */
const char *zr_pause_name(enum zr_pause_state state);
/* Whether its memory is given back, or is on its way. */
bool zr_is_paused(const struct zr_process_view *v);
/* "paused 5m 12s", "resuming"; "" of one that runs. `out` has ZR_TEXT_SIZE bytes. */
const char *zr_pause_text(char *out, const struct zr_process_view *v, uint64_t wall_ns);
/* "pause":{...} of a process that was started with pause:on. */
void zr_pause_json(json_t *object, const struct zr_process_view *v);

/* --- exposition.c: the Prometheus text format ------------------------------------------------- */
void zr_exposition(FILE *out, const struct zr_view *m);

/* --- view_json.c: the one schema -------------------------------------------------------------- */
struct zr_json_parts {
    bool histories; /* of processes, cards and the mirror */
    bool machine;   /* host and cards */
    bool jobs;
};
json_t *zr_view_json(const struct zr_view *m, struct zr_json_parts parts);
/* The process of this pid alone, with its fields; NULL: there is none. */
json_t *zr_view_json_of(const struct zr_view *m, int pid);
/* "fields":{...},"fingerprint":{...} of a process. */
void zr_json_fields(json_t *object, const struct zeroute_snapshot *s);
/* What a process holds on a card, as members of an object. */
void zr_json_card_use(json_t *object, const struct zr_card_use *use);

#endif
