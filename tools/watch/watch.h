/*
 * The machine as zeroute top, serve and stat --prometheus see it: cards, jobs, processes, sampled again and again, with
 * rates and a bounded history. One model, three views. Grouped by the file that defines it.
 */
#ifndef ZEROUTE_TOOLS_WATCH_H
#define ZEROUTE_TOOLS_WATCH_H

#include "common/common.h"

/* --- identity.c: whose process it is -------------------------------------------------------------- */
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

/* --- series.c: what a process has counted, as series of metrics ------------------------------------ */
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

/* --- model.c ---------------------------------------------------------------------------------------- */
/* Beyond ZR_WATCH_KEPT groups, those that have ended are one: a page of metrics is not to grow with every job. */
enum { ZR_HISTORY = 360, ZR_WATCH_PROCESSES = 4096, ZR_WATCH_GROUPS = 1024, ZR_WATCH_KEPT = 128 };
/* What one user takes of a model: a user who makes up processes, jobs and fields leaves room for others. */
enum { ZR_USER_PROCESSES = 512, ZR_USER_SERIES = 32768 };

/* The last ZR_HISTORY values, one every `every` nanoseconds; between two the highest counts. */
struct zr_history {
    uint64_t next, high;
    unsigned count, at;
    uint64_t value[ZR_HISTORY];
};
/* The n-th value of the last `count`, the oldest first. */
uint64_t zr_history_at(const struct zr_history *h, unsigned n);

struct zr_card_view {
    char pdev[32], driver[16];
    uint64_t vram;         /* ZR_ABSENT: not told */
    uint64_t ours, others; /* VRAM in use by processes under zeroute, and by others */
    uint64_t gtt;          /* host memory that it maps for our processes */
    struct zr_history used;
};

struct zr_process_view {
    struct zeroute_process process;
    struct zr_identity id;
    uint64_t allocated, reserved, peak, host_usm, host_side, blocks;
    uint64_t calls, hits, misses, allocations, driver_calls, failures, refused, changes, p99_ns;
    uint64_t hits_lately, asked_lately;                            /* since the last sample, or else ever */
    uint64_t vram, gtt, mirror;                                    /* from the kernel; ZR_ABSENT: not told */
    double allocations_rate, driver_rate, hit_rate, failures_rate; /* per second; hit_rate 0 to 1, below 0: none */
    char settings[768], route[64], hooks[160];
    struct zr_history used;
    struct zr_figures figures;
    unsigned cards; /* that it has opened */
    struct zr_card_use card[ZR_CARDS_MAX];
    uint64_t sampled_ns, kernel_ns; /* CLOCK_MONOTONIC: of the figures, and of those from the kernel */
    unsigned idle;                  /* samples without a call */
    bool seen;                      /* in this sample */
};

/* Processes that are one to a metric: of one user's job in one container. */
struct zr_group {
    char labels[512];
    unsigned uid;
    struct zr_figures live, ended; /* ended: counters of processes that have gone */
    unsigned processes;
    bool was_live; /* had processes at the last sample */
};

struct zr_model_options {
    uint64_t history_ns; /* between two values of a history */
    bool metrics;        /* series for zr_exposition() are wanted, too */
    bool per_process;    /* a group for each process */
    bool all_at_once;    /* one sample is all there will be: look at everything */
    int pid;             /* look at this process alone; 0: at all */
};

struct zr_model {
    struct zr_model_options options;
    struct zr_meminfo host;
    uint64_t mirror; /* GPUActive less host USM of our processes; ZR_ABSENT: not told */
    struct zr_history mirror_history;
    unsigned card_count;
    struct zr_card_view card[ZR_CARDS_MAX];
    size_t process_count, process_room;
    struct zr_process_view **process; /* live, in the order in which they were found */
    size_t group_count;
    struct zr_group group[ZR_WATCH_GROUPS];
    unsigned unreadable, unseen; /* processes: segments that cannot be read; calls that cannot be seen */
    char unreadable_why[128];
    uint64_t samples, sample_ns, wall_ns; /* how many; how long the last one took; CLOCK_REALTIME of it */
    struct zr_ended *ended;               /* private */
    struct zr_others *others;             /* private */
};

struct zr_model *zr_model_new(const struct zr_model_options *o);
/* Looks at every process. False: out of memory. */
bool zr_model_sample(struct zr_model *m);
void zr_model_free(struct zr_model *m);

/* A job of several processes as one, or one process by itself. */
struct zr_job_view {
    const char *name; /* "" for a process without a job */
    unsigned uid;
    size_t count;
    struct zr_process_view **process; /* of the model */
    struct zr_process_view sum;       /* figures and rates added up; p99 is the highest */
};
/* Folds the processes of the model by job and user. The result is good until the next sample. */
struct zr_job_view *zr_jobs(const struct zr_model *m, size_t *count);
void zr_jobs_free(struct zr_job_view *jobs);

/* --- drm.c: cards, and who has how much of them ------------------------------------------------------ */
/* Refreshes what the kernel tells of cards and processes, a bounded part of it in each sample. */
void zr_model_cards(struct zr_model *m, uint64_t now);
/* A process says that there is such a card, of so much memory. */
void zr_model_card(struct zr_model *m, const char *pdev, uint64_t vram);
void zr_history_note(struct zr_history *h, uint64_t now, uint64_t every, uint64_t value);

/* --- exposition.c: the Prometheus text format -------------------------------------------------------- */
void zr_exposition(FILE *out, const struct zr_model *m);

/* --- watch_json.c: documents of `top --json` and of serve's /api -------------------------------------- */
json_t *zr_watch_document(const struct zr_model *m, bool histories);
json_t *zr_watch_process(const struct zr_model *m, int pid);

#endif
