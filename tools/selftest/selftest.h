/*
 * zeroute selftest: the same seeded program on the driver alone and under each setting, in processes of their own, and
 * what people want to know about a machine. A worker (`zeroute selftest-worker`) runs the program and prints every
 * answer; the command compares, and reports a page. Grouped by the file that defines it.
 */
#ifndef ZEROUTE_TOOLS_SELFTEST_H
#define ZEROUTE_TOOLS_SELFTEST_H

#include "common/common.h"

enum { ZR_SELFTEST_CARDS = 16, ZR_SELFTEST_SETTINGS = 16, ZR_SELFTEST_FINDINGS = 32, ZR_SELFTEST_SEEDS = 64 };

/* --- worker.c, calls.c, usm.c, measured.c: in the worker ---------------------------------------- */
struct zr_selftest_program {
    const char *name;
    uint64_t seed;
    unsigned count;   /* operations */
    const char *only; /* "3-5,9": these alone; NULL: all */
    uint64_t budget;  /* bytes that are allocated in all; 0: without end, and the card is filled */
    unsigned cards;   /* the first ones; 0: all */
};
/* "3-5,9": is i in it? */
bool zr_selftest_listed(const char *list, unsigned i);
/* Each prints its answers. False, with the reason in why, where there is nothing to run on. */
bool zr_calls_run(const struct zr_selftest_program *p, char *why, size_t size);
bool zr_usm_run(const struct zr_selftest_program *p, char *why, size_t size);
bool zr_selftest_probe(const struct zr_selftest_program *p, char *why, size_t size);
bool zr_selftest_cost(const struct zr_selftest_program *p, char *why, size_t size);
bool zr_selftest_free(const struct zr_selftest_program *p, char *why, size_t size);
bool zr_selftest_beyond(const struct zr_selftest_program *p, char *why, size_t size);

/* --- child.c: one worker ------------------------------------------------------------------------ */
enum zr_ending {
    ZR_ENDED,       /* its program is over */
    ZR_CANNOT,      /* there is nothing to run on; `why` says so */
    ZR_HUNG,        /* nothing came for as long as the deadline */
    ZR_DIED,        /* of a signal */
    ZR_FAILED,      /* with an exit code */
    ZR_INTERRUPTED, /* we were asked to end */
};
struct zr_child {
    struct zr_selftest_program program;
    const char *conf;     /* of the preload; NULL: without it */
    const char *mask;     /* ZE_AFFINITY_MASK; NULL: as it is */
    const char *runtime;  /* folder of the SYCL runtime, or NULL */
    unsigned deadline_ms; /* without a new line */

    enum zr_ending ending;
    char why[200]; /* of an ending other than ZR_ENDED, without paths */
    bool preloaded;
    char **line;
    size_t count;
    double seconds;
};
/* Runs it to its end. Always leaves it so that zr_child_free may be called. */
void zr_child_run(struct zr_child *c);
void zr_child_free(struct zr_child *c);
/* The operation that a child was at when it ended: "copy" of its last line; "its start". */
const char *zr_child_step(const struct zr_child *c, char *out, size_t size);
/* The path cut to the file's name wherever one stands in a text, and harmless. Returns out. */
char *zr_without_paths(char *out, size_t size, const char *text);

/* --- compare.c ---------------------------------------------------------------------------------- */
enum zr_difference { ZR_SAME, ZR_SAME_BUT_KNOWN, ZR_DIFFERS };
/* Compares the lines; `at` is the first line that differs, `reason` of a known difference. */
enum zr_difference zr_compare(const char *setting, const struct zr_child *alone, const struct zr_child *under,
                              size_t *at, const char **reason);
/* What shows by itself that driver or card went wrong; NULL: nothing. `at` is the line. */
const char *zr_contradiction(const struct zr_child *c, size_t *at);

/* --- selftest.c --------------------------------------------------------------------------------- */
struct zr_selftest_setting {
    const char *name, *conf, *what;
    bool level_zero, sycl, quick;
};
extern const struct zr_selftest_setting zr_selftest_settings[];
extern const unsigned zr_selftest_setting_count;

struct zr_selftest_card {
    char name[96], pdev[32];
    uint64_t vram;
    bool used; /* by another process: left alone */
    uint64_t used_bytes;
};

/* One program under one setting. */
struct zr_selftest_row {
    const char *program; /* calls, sycl */
    const struct zr_selftest_setting *setting;
    unsigned runs, same, known, differing, ended_badly;
    const char *reason; /* of the last known difference */
};

/* Something that is not as it should be. */
struct zr_selftest_finding {
    char program[16], setting[32]; /* "" : the driver alone */
    uint64_t seed;
    unsigned runs, of; /* seen in so many of so many runs */
    char what[320];
    char alone[240], under[240]; /* the line that differs */
    char again[320];             /* the command that repeats it */
};

enum zr_free_word { ZR_FREE_TRUE, ZR_FREE_LIES, ZR_FREE_NOT_TOLD };
struct zr_selftest_cost_row {
    uint64_t size;
    double ns[ZR_SELFTEST_SETTINGS]; /* of a pair; [0]: the driver alone; 0: not measured */
};
enum { ZR_COST_SIZES = 4, ZR_COST_SETTINGS = 5, ZR_MIRROR_ROWS = 8 };
struct zr_selftest_mirror {
    const char *label;
    bool measured;
    double slope;  /* bytes of host memory for a byte of device memory */
    char why[160]; /* verdict, or why there is none */
};
struct zr_selftest_answer {
    const char *setting; /* "" : the driver alone */
    char text[200];
};

struct zr_selftest_options {
    bool quick, whole, force, json, sim, list;
    const char *html, *cards, *python, *settings, *only;
    const char *sim_spec;
    uint64_t budget, beyond; /* beyond: how far the card may be filled over its size; 0: not at all */
    uint64_t seed;
    bool seed_set;
    unsigned seeds, count;
    unsigned seconds;  /* in all */
    unsigned patience; /* seconds without an answer */
};

/* The page. */
struct zr_selftest {
    struct zr_selftest_options options;
    char kernel[96], driver[64], loader[48], runtime[96], runtime_folder[512], when[32];
    unsigned card_count;
    struct zr_selftest_card card[ZR_SELFTEST_CARDS];
    char mask[128];
    unsigned cards; /* that are used */
    uint64_t budget, host;
    unsigned row_count;
    struct zr_selftest_row row[2 * ZR_SELFTEST_SETTINGS];
    unsigned finding_count, findings_left_out;
    struct zr_selftest_finding finding[ZR_SELFTEST_FINDINGS];
    uint64_t first_seed;
    unsigned seeds_done[2], seeds_asked;
    bool time_over, interrupted;
    const char *cost_setting[ZR_COST_SETTINGS];
    unsigned cost_count;
    struct zr_selftest_cost_row cost[ZR_COST_SIZES];
    unsigned mirror_count;
    struct zr_selftest_mirror mirror[ZR_MIRROR_ROWS];
    unsigned answer_count;
    struct zr_selftest_answer answer[8];
    unsigned note_count;
    char note[8][240];
    double began, seconds, hung; /* hung: what was spent waiting for workers that hung */
};
/* A child of this test, with its mask, runtime and deadline; to be completed. */
struct zr_child zr_selftest_child(const struct zr_selftest *t, const char *program, const char *conf);
void zr_selftest_note(struct zr_selftest *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A new finding, or NULL where there are enough; of the driver alone if `setting` is NULL. */
struct zr_selftest_finding *zr_selftest_finds(struct zr_selftest *t, const struct zr_child *c, const char *setting,
                                              const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Whether the time that was given is over. */
bool zr_selftest_late(struct zr_selftest *t);
bool zr_selftest_agrees(const struct zr_selftest *t);

/* --- measures.c --------------------------------------------------------------------------------- */
void zr_selftest_measure(struct zr_selftest *t);

/* --- runtime.c ---------------------------------------------------------------------------------- */
/* Finds the SYCL runtime of a Python, or of /opt/intel: the folder of libsycl.so.N and that name. False: none. */
bool zr_selftest_find_runtime(const char *python, char *folder, size_t folder_size, char *name, size_t size);

/* --- page.c, page_html.c, page_json.c ------------------------------------------------------------- */
extern const char zr_selftest_contains[];
void zr_selftest_page(FILE *to, const struct zr_selftest *t);
void zr_selftest_html(FILE *to, const struct zr_selftest *t);
bool zr_selftest_json(FILE *to, const struct zr_selftest *t);
/* "agrees", "differs in 2 of 3 runs", ...; returns out. */
const char *zr_selftest_verdict(char *out, size_t size, const struct zr_selftest_row *row);

/* --- state.c: what was tested last ------------------------------------------------------------------ */
struct zr_selftest_state {
    char driver[64], kernel[96], loader[48], runtime[64];
};
/* What a selftest would find now. */
void zr_selftest_state_now(struct zr_selftest_state *out);
/* False: there was none, or its file is not to be trusted. */
bool zr_selftest_state_read(struct zr_selftest_state *out);
void zr_selftest_state_write(const struct zr_selftest_state *state);
/* "the driver (26.22 -> 26.27) and the kernel (...)"; false: nothing has changed, or there was no selftest. */
bool zr_selftest_changed(char *out, size_t size);

#endif
