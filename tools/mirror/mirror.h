/*
 * zeroute mirror-test: what one measurement is made of. A worker process allocates in steps and
 * prints a line after each; the command reads the lines, fits a line through them and judges.
 */
#ifndef ZEROUTE_TOOLS_MIRROR_H
#define ZEROUTE_TOOLS_MIRROR_H

#include "common/common.h"

#include <signal.h>

enum { ZR_STEPS_MAX = 64 };

enum zr_share { ZR_SHARE_PEER, ZR_SHARE_IPC, ZR_SHARE_NONE };
extern const char *const zr_share_names[];

/* What is measured. */
struct zr_mirror_plan {
    const char *label;     /* of a row of --all; "" otherwise */
    const char *route;     /* native: Level Zero calls; auto, pool, sycl: SYCL's allocation functions */
    const char *residency; /* settings of the preload */
    const char *backing;
    const char *variables; /* "NAME=VALUE NAME=VALUE" for the worker, or NULL */
    enum zr_share share;
    unsigned cards;
    unsigned count;
    uint64_t step;
    uint64_t keep;
    unsigned seconds;    /* for the worker; 0: without end */
    const char *runtime; /* folder of the SYCL runtime, or NULL */
};

/* One line of the worker; what the kernel does not tell is ZR_ABSENT. */
struct zr_mirror_step {
    uint64_t device;
    struct zr_meminfo host;
    uint64_t rss;
    uint64_t imports; /* gtt of all cards */
    uint64_t vram;    /* of all cards, as the kernel counts it */
};

enum zr_verdict { ZR_NOT_MIRRORED, ZR_MIRRORED, ZR_CANNOT_TELL };
extern const char *const zr_verdict_names[];

struct zr_mirror_result {
    struct zr_mirror_plan plan;
    unsigned count; /* steps, the baseline included */
    struct zr_mirror_step step[ZR_STEPS_MAX + 1];
    bool by_active, by_available; /* which lines could be fitted */
    struct zr_line active;        /* GPUActive over device bytes */
    struct zr_line available;     /* drop of MemAvailable over device bytes */
    enum zr_verdict verdict;
    char why[256];     /* of the verdict */
    char stopped[200]; /* why the worker ended early, or "" */
    char data[32];     /* intact, damaged, unchecked */
    char driver[64];
    char device[96];
    uint64_t vram; /* of the smallest card; ZR_ABSENT: not told */
};

/* --- verdict.c -------------------------------------------------------------------------------- */
/* Fits a line through the steps and judges it: fills in everything from by_active to why. */
void zr_mirror_judge(struct zr_mirror_result *result);

/* --- measure.c -------------------------------------------------------------------------------- */
/* Runs a worker in a fresh process under the preload. Always fills in the result; `stopped` says what went wrong. */
void zr_mirror_measure(const struct zr_mirror_plan *plan, struct zr_mirror_result *result);
/* From now on a signal ends the measurement under way; its number is then in zr_mirror_interrupted. */
void zr_mirror_catch(void);
extern volatile sig_atomic_t zr_mirror_interrupted;

/* --- worker.c --------------------------------------------------------------------------------- */
/* Reads a line that the worker printed. Returns false if it is not a step. */
bool zr_mirror_parse_step(const char *line, struct zr_mirror_step *step);

/* --- native.c, sycl.c: the allocators of the worker ------------------------------------------- */
struct zr_mirror_route {
    unsigned cards;
    char driver[64];
    char device[96];
    uint64_t vram; /* of the smallest card; ZR_ABSENT: not told */
    /* Allocates on a card and shares as the plan says; NULL with the reason in why. */
    void *(*allocate)(const struct zr_mirror_plan *plan, unsigned card, uint64_t bytes, char *why, size_t size);
    /* Writes a pattern that depends on the seed into both ends of a block, or compares it. */
    bool (*write)(unsigned card, void *block, uint64_t bytes, unsigned seed);
    bool (*verify)(unsigned card, void *block, uint64_t bytes, unsigned seed, bool *same);
};

/* Each returns false, with the reason in `why`, if the route is not available. */
bool zr_mirror_open_native(const struct zr_mirror_plan *plan, struct zr_mirror_route *route, char *why, size_t size);
bool zr_mirror_open_sycl(const struct zr_mirror_plan *plan, struct zr_mirror_route *route, char *why, size_t size);
/* The SYCL runtime on the library path: its objects are as its own functions take them. */
struct zr_sycl {
    void *library; /* of dlopen */
    const void *context;
    unsigned cards;
    const void *device[ZR_CARDS_MAX];
};
bool zr_sycl_open(struct zr_sycl *out, char *why, size_t size);
/*
 * Whether a process with these /proc/PID/maps has an adapter for Level Zero and not v2. A runtime without any file of
 * an adapter has both inside.
 */
bool zr_mirror_lacks_v2(const char *maps);

/* --- show.c ----------------------------------------------------------------------------------- */
void zr_mirror_show(FILE *to, const struct zr_mirror_result *result);
/* --- advice.c: the recommendation behind a verdict, and behind the table of --all --------------- */
void zr_mirror_advise(FILE *to, const struct zr_mirror_result *r);
/* "at 24.0 GiB of VRAM (2 cards in full) this costs 24.0 GiB of RAM here" */
void zr_mirror_cost(FILE *to, const struct zr_mirror_result *r);
void zr_mirror_advise_all(FILE *to, const struct zr_mirror_result *results, unsigned count);
void zr_mirror_show_table(FILE *to, const struct zr_mirror_result *results, unsigned count, bool markdown);
void zr_mirror_show_json(FILE *to, const struct zr_mirror_result *results, unsigned count);

#endif
