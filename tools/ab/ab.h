/*
 * The map of `zeroute ab` and `zeroute diff`. Way of a comparison:
 * ab.c (command line) -> arm.c (arms, plan) -> trial.c (one run) -> struct zr_ab, all raw ->
 * analysis.c (fingerprint, mechanism, statistics) -> struct zr_ab_analysis -> report.c -> struct zr_ab_report ->
 * report_*.c. A report needs nothing but struct zr_ab, which load.c reads back from the JSON.
 */
#ifndef ZEROUTE_AB_H
#define ZEROUTE_AB_H

#include "ab/statistics.h"
#include "view/view.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define ZR_AB_FORMAT 3 /* of the JSON; a reader refuses another one */
#define ZR_AB_ARMS 64

/* --- pairs.c: names with texts, sorted by name --------------------------------------------- */
struct zr_pair {
    char *name, *value;
};
struct zr_pairs {
    struct zr_pair *at;
    size_t n;
};
void zr_pairs_set(struct zr_pairs *p, const char *name, const char *value);
const char *zr_pairs_get(const struct zr_pairs *p, const char *name); /* NULL when absent */
void zr_pairs_copy(struct zr_pairs *to, const struct zr_pairs *from);
void zr_pairs_clear(struct zr_pairs *p);
/* Names joined by '+', shell patterns allowed: the sum of their values, 0 for what is absent. */
double zr_ab_field_sum(const struct zr_pairs *fields, const char *expression);

/* --- memory.c: like realloc and asprintf; without memory the process ends ---------------------------------------- */
void *zr_ab_more(void *old, size_t count, size_t size);
char *zr_ab_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- what is compared ------------------------------------------------------------------------- */
enum zr_ab_kind { ZR_AB_SETTING, ZR_AB_PRESET, ZR_AB_ENV, ZR_AB_LIB, ZR_AB_CMD, ZR_AB_NONE };

struct zr_ab_item {
    enum zr_ab_kind kind;
    char *key;   /* setting, preset or variable; "" otherwise */
    char *value; /* of setting or variable; path; command */
};

struct zr_program;

struct zr_ab_arm {
    char *name; /* "a", "b" */
    char *text; /* as given */
    struct zr_ab_item *items;
    size_t n_items;
    bool none; /* without the preload */
};

/* Which way is up: what a change of the metric may be called. */
enum zr_ab_better { ZR_AB_LOWER, ZR_AB_HIGHER, ZR_AB_NEITHER };
enum zr_ab_unit { ZR_AB_SECONDS, ZR_AB_BYTES, ZR_AB_COUNT, ZR_AB_RATIO, ZR_AB_PLAIN };

struct zr_ab_metric {
    char *name;
    enum zr_ab_unit unit;
    enum zr_ab_better better;
    char *help;
};

struct zr_ab_sample { /* seen from outside, t seconds after the start; NaN: not available */
    double t, gpu_active, mem_available, rss, vram, imports, mirrored;
};

struct zr_ab_run {
    size_t arm;
    size_t number; /* in the order of execution, from 1 */
    bool warmup;
    bool settled;  /* the machine was back at its baseline before it started */
    int status;    /* as wait(2) tells */
    double waited; /* seconds for the baseline */
    double *value; /* one per metric; NaN: not measured in this run */
    struct zr_pairs fingerprint;
    struct zr_pairs fields; /* the mechanism's counters, summed over the run's processes */
    char *invalid;          /* why this is not a run; NULL: it is one */
    struct zr_ab_sample *sample;
    size_t n_samples;
};

/* Everything raw. */
struct zr_ab {
    char **command; /* NULL-terminated */
    struct zr_ab_arm arm[ZR_AB_ARMS];
    size_t n_arms;
    struct zr_ab_metric *metric;
    size_t n_metrics;
    struct zr_ab_run *run;
    size_t n_runs;
    char *primary; /* names joined by commas; NULL: by what differs between the arms */
    char **allow;
    size_t n_allow;
    uint64_t seed;
    double effect; /* size in % that the user gave; 0: chosen */
    bool random_order;
    bool same_output;
    bool interrupted;
    size_t planned; /* counted runs per arm */
    char *started;  /* UTC */
    char *repeat;   /* the command line to repeat it */
    struct zr_pairs machine;
};
void zr_ab_clear(struct zr_ab *ab);
size_t zr_ab_metric_index(const struct zr_ab *ab, const char *name); /* n_metrics when unknown */
size_t zr_ab_metric_add(struct zr_ab *ab, const char *name, enum zr_ab_unit unit, enum zr_ab_better better,
                        const char *help);
struct zr_ab_run *zr_ab_run_add(struct zr_ab *ab);
void zr_ab_run_drop(struct zr_ab *ab);          /* the last one */
bool zr_ab_counts(const struct zr_ab_run *run); /* not a warm-up, valid, exit status 0 */
/* The values of one metric in one arm, in order of time; to be freed. */
double *zr_ab_values(const struct zr_ab *ab, size_t arm, size_t metric, size_t *n);

/* --- arm.c: arms and the plan ----------------------------------------------------- */
/* NULL, or what is wrong, to be freed. */
char *zr_ab_arm_parse(struct zr_ab_arm *arm, const char *text);
/* Which arm runs when: rounds * arms entries, to be freed. */
size_t *zr_ab_plan(size_t arms, size_t rounds, bool random_order, uint64_t seed);
char *zr_ab_settings(const struct zr_ab_arm *arm); /* ZEROUTE_CONF of this arm, to be freed */
/* The setting's value in force in this arm; to be freed. */
char *zr_ab_setting_value(const struct zr_ab_arm *arm, const char *setting);
bool zr_ab_is_setting(const char *name, size_t length);
/* No in-process statistics: without the preload, or with stats:off. */
bool zr_ab_from_outside(const struct zr_ab_arm *arm);

/* --- primary.c: which metrics the comparison is about ------------------------------------------ */
/* Names joined by commas: --primary, or what follows from the difference between the arms. */
const char *zr_ab_primary_names(const struct zr_ab *ab);
bool zr_ab_is_primary(const struct zr_ab *ab, const char *metric);
/* What is wrong with these names, to be freed; NULL: each is measured, or may be found in the output. */
char *zr_ab_unknown_metric(const struct zr_ab *ab, const char *names, const char *const *regex, size_t n_regex);
/* Metrics of one quantity count once in the correction for several comparisons. */
const char *zr_ab_quantity(const char *metric);

/* --- fingerprint.c: do the arms differ in what was declared and in nothing else? ----------- */
enum zr_ab_status { ZR_AB_DECLARED, ZR_AB_CONSEQUENCE, ZR_AB_ALLOWED, ZR_AB_UNDECLARED, ZR_AB_UNLIKE };

struct zr_ab_difference {
    enum zr_ab_status status;
    char *what;          /* name in the fingerprint */
    size_t arm, than;    /* values of `arm` against `than`; the same arm when its runs are not alike */
    char *value, *other; /* "" for absent */
    size_t run, other_run;
    char *why; /* the declaration it follows from, or "" */
};
struct zr_ab_differences {
    struct zr_ab_difference *at;
    size_t n;
};
void zr_ab_fingerprints(const struct zr_ab *ab, struct zr_ab_differences *out);
/* What two fingerprints differ in, nothing declared: for `zeroute diff`. */
void zr_ab_fingerprint_compare(const struct zr_pairs *a, const struct zr_pairs *b, struct zr_ab_differences *out);
void zr_ab_differences_clear(struct zr_ab_differences *d);
/* Items in which two arms differ as declared, as texts; if there are several, the cause cannot be told. */
size_t zr_ab_declared(const struct zr_ab_arm *a, const struct zr_ab_arm *b, char **texts, size_t max);
bool zr_ab_allowed(const struct zr_ab *ab, const char *what);
bool zr_ab_allows(const char *allow, const char *what); /* one --allow alone */

/* --- mechanism.c: did a setting move more than its own mechanism? ----------------------------- */
struct zr_ab_moved {
    const char *name; /* of the mechanism */
    const char *help;
    double median[ZR_AB_ARMS]; /* NaN: not available */
    struct {
        bool moved;    /* against the first arm, beyond noise */
        bool expected; /* the declared setting is known to move it */
        bool allowed;
    } arm[ZR_AB_ARMS];
};
size_t zr_ab_mechanisms(const struct zr_ab *ab, struct zr_ab_moved *out, size_t max);
#define ZR_AB_MECHANISMS 32

/* --- analysis.c: what a run of numbers says ------------------------------------------------ */
enum zr_ab_outcome {
    ZR_AB_NOT_TESTED,    /* not measured in both arms, or too few runs */
    ZR_AB_NO_DIFFERENCE, /* beyond noise */
    ZR_AB_UNCLEAR,       /* would differ if it were the only metric: more runs are needed to say so */
    ZR_AB_LESS,
    ZR_AB_MORE,
};

struct zr_ab_comparison { /* one metric, one arm against the first */
    size_t n, n_base;
    double median;
    struct zr_interval median_interval;
    double difference, change; /* change: NaN when the base is 0 */
    struct zr_interval difference_interval, change_interval;
    double p, p_corrected, delta;
    enum zr_ab_outcome outcome;
    double noise;        /* spread of runs relative to the median */
    double needed, seen; /* runs per arm needed to see a change of `seen` (0.05: 5 %) */
};

struct zr_ab_row { /* one metric */
    bool measured, constant, drifts, primary;
    double drift_p;
    struct zr_ab_comparison arm[ZR_AB_ARMS]; /* [0]: the base itself, medians only */
};

struct zr_ab_analysis {
    struct zr_ab_row *row; /* one per metric */
    struct zr_ab_differences differences;
    struct zr_ab_moved mechanism[ZR_AB_MECHANISMS];
    size_t n_mechanisms;
    char **reason; /* why there is no verdict */
    size_t n_reasons;
    char **remark; /* what a reader must know beside the verdict */
    size_t n_remarks;
    size_t counted[ZR_AB_ARMS];
    size_t primary; /* the first of the primary metrics; n_metrics: not measured */
    bool verdict;
};
void zr_ab_analyse(const struct zr_ab *ab, struct zr_ab_analysis *an);
void zr_ab_analysis_clear(struct zr_ab_analysis *an);

/* --- words.c: numbers and verdicts as texts, the same in every report ---------------------- */
#define ZR_AB_WORD 160
char *zr_ab_number(char *out, enum zr_ab_unit unit, double v);
char *zr_ab_percent(char *out, double change);
char *zr_ab_interval_text(char *out, enum zr_ab_unit unit, struct zr_interval i);
char *zr_ab_p_text(char *out, double p);
/* "faster", "more", "no difference beyond noise" ... */
const char *zr_ab_outcome_word(const struct zr_ab_metric *m, enum zr_ab_outcome o, bool same_output);
/* A whole sentence, to be freed. */
/* The verdict in plain words: "Host RAM 84 % lower with residency:owner; wall time unchanged (-1 % .. +2 %)". */
char *zr_ab_plain_sentence(const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t arm);
char *zr_ab_sentence(const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t metric, size_t arm);
/* The other metrics that differ, in one line to be freed; NULL: none does. */
char *zr_ab_others(const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t arm);
bool zr_ab_outputs_alike(const struct zr_ab_analysis *an);
/* The change and its 95 % interval; `interval` holds 2 * ZR_AB_WORD. */
void zr_ab_change_text(const struct zr_ab_metric *m, const struct zr_ab_comparison *c, char *change, char *interval);
const char *zr_ab_unit_name(enum zr_ab_unit u);
const char *zr_ab_better_name(enum zr_ab_better b);
const char *zr_ab_status_name(enum zr_ab_status s);
const char *zr_ab_outcome_name(enum zr_ab_outcome o);
char *zr_ab_quoted(char *const *argv); /* a command as a shell would take it; to be freed */

/* --- report.c: what a report says ------------------------------------------------------------- */
/*
 * Built once from the analysis. The renderers lay it out and add nothing, so that all reports say the same; the page
 * draws the runs beside it, and the JSON holds everything raw. Texts are never NULL unless it says so.
 */
#define ZR_AB_THE_SAME "the same in every run"
#define ZR_AB_FINDING_LINES 3

struct zr_ab_report_arm {
    const char *label; /* short, for the terminal */
    const char *name, *setting;
    size_t runs; /* that count */
};
struct zr_ab_report_finding { /* something in which the arms or the runs differ */
    const char *what, *status;
    bool refused;                          /* there is no verdict because of it */
    const char *line[ZR_AB_FINDING_LINES]; /* the values, and what it follows from; NULL: none */
};
struct zr_ab_report_mechanism {
    const char *name, *help, *note;
    bool refused;
    const char *median[ZR_AB_ARMS];
    double value[ZR_AB_ARMS]; /* of the median */
};
struct zr_ab_report_cell { /* one metric in one arm; the change is against the first arm, "" where there is none */
    const char *median, *interval, *change, *change_interval, *p, *outcome;
    double value; /* of the median */
};
struct zr_ab_report_metric {
    size_t index; /* in struct zr_ab */
    const char *name, *help;
    bool primary, drifts;
    bool same;   /* in every run: the first cell says it all */
    bool folded; /* tells what host.mirror tells: reports show it apart */
    struct zr_ab_report_cell cell[ZR_AB_ARMS];
};
struct zr_ab_report_line {
    const char *kind; /* verdict, reason, primary, other, note, advice */
    const char *text;
};

struct zr_ab_report {
    const struct zr_ab *ab; /* for drawings and the raw JSON */
    const struct zr_ab_analysis *an;
    const char *command, *started, *order, *machine, *repeat;
    struct zr_ab_report_arm arm[ZR_AB_ARMS];
    size_t n_arms;
    const char *fingerprint; /* a sentence about the findings */
    struct zr_ab_report_finding *finding;
    size_t n_findings;
    bool misleading; /* what follows would mislead: mechanisms and metrics are empty */
    struct zr_ab_report_mechanism *mechanism;
    size_t n_mechanisms;
    struct zr_ab_report_metric *metric; /* the primary one first; those with nothing to tell are left out */
    size_t n_metrics;
    const char *footnote; /* of the metrics; may be "" */
    const char *headline; /* Verdict, No verdict */
    struct zr_ab_report_line *line;
    size_t n_lines;
    bool verbose; /* the terminal shows what is unchanged, too */
    char **owned;
    size_t n_owned;
};

/* Points into ab and an, which must outlive it. */
void zr_ab_report_build(struct zr_ab_report *r, const struct zr_ab *ab, const struct zr_ab_analysis *an);
void zr_ab_report_clear(struct zr_ab_report *r);
const char *zr_ab_report_prefix(const struct zr_ab_report_line *line); /* "note: " or "" */

/* --- report_terminal.c, report_markdown.c, report_html.c, report_json.c, load.c --------------- */
void zr_ab_report_terminal(FILE *f, const struct zr_ab_report *r);
void zr_ab_report_markdown(FILE *f, const struct zr_ab_report *r);
void zr_ab_report_html(FILE *f, const struct zr_ab_report *r);
void zr_ab_report_json(FILE *f, const struct zr_ab_report *r);
char *zr_ab_load(struct zr_ab *ab, const char *file); /* NULL, or what is wrong, to be freed */

/* --- output.c: numbers and a hash from what the command printed ---------------------------- */
/* Adds every `name: number` whose name the extended regular expression finds. */
char *zr_ab_output_metrics(struct zr_ab *ab, struct zr_ab_run *run, const char *text, const char *const *regex,
                           size_t n);
void zr_ab_hash_text(const void *data, size_t size, char out[65]); /* SHA-256 */
bool zr_ab_hash_file(const char *path, char out[65]);
#define ZR_AB_NO_FILE "(not there)" /* in place of the hash of a file that cannot be read */

/* --- trial.c: one run of the command ---------------------------------------------------------- */
struct zr_ab_running {  /* how runs are made; the same for all of them */
    char library[1024]; /* libzeroute.so */
    double interval;    /* seconds between samples */
    double settle;      /* seconds to wait for the baseline */
    const char **regex; /* --metric */
    size_t n_regex;
    const char **file; /* --same-output=FILE */
    size_t n_files;
    bool show_output;
    double base_active, base_available; /* NaN until they could be read */
};

/* Set by SIGINT, SIGTERM and SIGHUP: the run under way is given up, what is done is kept. */
extern volatile sig_atomic_t zr_ab_interrupted;

void zr_ab_metrics_add(struct zr_ab *ab); /* the built-in ones, from metrics.def */
/* Appends one run to ab->run. Reports it and returns false if the command could not be run at all. */
bool zr_ab_run_one(struct zr_ab *ab, struct zr_ab_running *how, size_t arm, size_t number, bool warmup);
/* Runs a shell command of --setup, --prepare or --cleanup in the arm's environment, without the preload. */
bool zr_ab_shell(const struct zr_ab *ab, size_t arm, const char *option, const char *command);

/* --- command.c ----------------------------------------------------------------------------- */
/* Puts the arm's variables and library paths into our own environment; for a child after fork. */
void zr_ab_environment(const struct zr_ab_arm *arm);
char *const *zr_ab_command(const struct zr_ab *ab, size_t arm, char ***owned);
/* Starts a program as the command of an arm. Returns as zr_spawn. */
int zr_ab_spawn(const struct zr_ab *ab, const struct zr_ab_running *how, size_t arm, struct zr_program *program);

/* --- sample.c ------------------------------------------------------------------------------ */
#define ZR_AB_SAMPLES 512
struct zr_ab_watch {
    unsigned looks; /* at processes */ /* what was seen from outside while a run was under way */
    struct zr_ab_sample *sample;       /* at most ZR_AB_SAMPLES: a long run is kept more coarsely */
    size_t n, taken, every;            /* every n-th that was taken is kept */
    struct zr_ab_sample most;          /* the highest of each, of mem_available the lowest; of all that were taken */
    struct zr_ab_sample last;          /* what the processes had when they were last looked at */
    struct zr_pairs libraries;         /* of the arm none: from /proc/PID/maps */
    struct zr_watched watched;         /* of the other arms: its processes, as every launcher watches them */
    struct {
        char pdev[32];
        double peak;
    } card[16];
    size_t n_cards;
};
/* Samples the machine, and the processes too if told to, which costs more. */
void zr_ab_sample(struct zr_ab_watch *w, pid_t pid, double t, bool processes, bool libraries);
/* Waits until memory is back at the baseline. Returns false if it was not after how->settle seconds. */
bool zr_ab_settle(struct zr_ab_running *how, double *waited);

/* --- collect.c ----------------------------------------------------------------------------- */
/* Splits one line of a fingerprint: settings one by one, a library into path and build id. */
void zr_ab_fact(struct zr_pairs *p, const char *key, const char *value);
/* Reads the segments of the run: fields, fingerprint, latencies. Returns false if no hook saw a call. */
bool zr_ab_collect(struct zr_ab *ab, struct zr_ab_run *run, const char *name);
void zr_ab_machine(struct zr_ab *ab);

/* --- arguments.c: the command line ------------------------------------------------------------ */
struct zr_ab_options {
    struct zr_ab ab;
    struct zr_ab_running how;
    size_t runs, warmup;
    const char *setup, *prepare, *cleanup;
    const char *report, *html, *sim;
    const char *json, *markdown; /* "": on stdout */
    const char **higher, **lower;
    size_t n_higher, n_lower;
    bool quiet, verbose;
};

/* As zr_options. */
bool zr_ab_parse(struct zr_ab_options *o, int argc, char **argv, int *at);
/* Sorts the arms. Reports it and returns false if they cannot be compared. */
bool zr_ab_check(struct zr_ab_options *o);
/* Prints and frees an error message. Returns true if it is NULL. */
bool zr_ab_right(char *message);
void zr_ab_allow(struct zr_ab *ab, const char *what); /* --allow */

/* --- svg.c: drawings of the page, plain SVG; colours come from its style sheet ---------------- */
/* Prints a text with <, >, & and quotes escaped. */
void zr_html_text(FILE *f, const char *s);
/* Draws a dot for each run of one metric, a line for each arm, with the median and its 95 % interval. */
void zr_svg_dots(FILE *f, const struct zr_ab *ab, const struct zr_ab_analysis *an, size_t metric);
/* Draws memory over time of one run, on axes that all arms share. */
void zr_svg_memory(FILE *f, const struct zr_ab_run *run, double base_available, double base_active, double most_seconds,
                   double most_bytes);
/* The largest value that zr_svg_memory would draw of this run. */
double zr_svg_memory_most(const struct zr_ab_run *run, double base_available, double base_active);

#endif
