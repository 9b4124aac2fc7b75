/* One run of the command: started under an arm's setting, watched from outside, and what it left behind. */
#ifndef ZEROUTE_AB_RUN_H
#define ZEROUTE_AB_RUN_H

#include "ab.h"

#include <signal.h>
#include <sys/types.h>

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

/* Set by SIGINT and SIGTERM: the run under way is given up, what is done is kept. */
extern volatile sig_atomic_t zr_ab_interrupted;

/* --- ab_run.c --------------------------------------------------------------------------------- */
void zr_ab_metrics_add(struct zr_ab *ab); /* the built-in ones, from ab_metrics.def */
/* Appends one run to ab->run. False, said, when nothing could be run at all (exit code 125). */
bool zr_ab_run_one(struct zr_ab *ab, struct zr_ab_running *how, size_t arm, size_t number,
                   bool warmup);
/* A shell command of --setup, --prepare or --cleanup in the arm's environment, without the preload. */
bool zr_ab_shell(const struct zr_ab *ab, size_t arm, const char *option, const char *command);

/* --- ab_spawn.c ------------------------------------------------------------------------------- */
/* The arm's variables and library paths put into our own environment; for a child after fork. */
void zr_ab_environment(const struct zr_ab_arm *arm);
char **
zr_ab_words(const char *command); /* split as a shell would, nothing expanded; NULL-terminated */
char *const *zr_ab_command(const struct zr_ab *ab, size_t arm, char ***owned);
/* Starts argv with its output in these descriptors; -1 with *error set. */
pid_t zr_ab_spawn(const struct zr_ab *ab, const struct zr_ab_running *how, size_t arm,
                  char *const *argv, int out, int err, int *error);

/* --- ab_sample.c ------------------------------------------------------------------------------ */
#define ZR_AB_SAMPLES 512
struct zr_ab_watch {             /* what was seen from outside while a run was under way */
    struct zr_ab_sample *sample; /* at most ZR_AB_SAMPLES: a long run is kept more coarsely */
    size_t n, taken, every;      /* every n-th that was taken is kept */
    struct zr_ab_sample
        most; /* the highest of each, of mem_available the lowest; of all that were taken */
    struct zr_ab_sample last;  /* what the processes had when they were last looked at */
    struct zr_pairs libraries; /* of the arm none: from /proc/PID/maps */
    struct {
        char pdev[32];
        double peak;
    } card[16];
    size_t n_cards;
};
/* The machine always; the processes too where asked for, which costs more. */
void zr_ab_sample(struct zr_ab_watch *w, pid_t pid, double t, bool processes, bool libraries);
/* Waits until memory is back at the baseline; false: it was not, after how->settle seconds. */
bool zr_ab_settle(struct zr_ab_running *how, double *waited);

/* --- ab_collect.c ----------------------------------------------------------------------------- */
/* One line of a process's fingerprint, taken apart: settings one by one, a library's path and build. */
void zr_ab_fact(struct zr_pairs *p, const char *key, const char *value);
/* The segments of the run: fields, fingerprint, latencies. False: no hook saw a call. */
bool zr_ab_collect(struct zr_ab *ab, struct zr_ab_run *run, const char *name);
void zr_ab_machine(struct zr_ab *ab);

#endif
