/* What every command uses: text and tables, JSON, options, starting programs, and what the machine tells. */
#ifndef ZEROUTE_TOOLS_COMMON_H
#define ZEROUTE_TOOLS_COMMON_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

#include <jansson.h>
#include <zeroute/reader.h>

/* The commands: each gets its command line as main does, and returns the exit code. */
#define ZR_COMMAND(name, help) int zr_cmd_##name(int argc, char **argv);
#include "commands.def"
#undef ZR_COMMAND

#define ZR_ABSENT UINT64_MAX /* an amount that is not known */

/* --- options.c: the command line, from one table per command ---------------------------------- */
struct zr_option {
    int id;               /* a letter or digit is its short form as well; from ZR_LONG on it has none */
    const char *name;     /* without the dashes */
    const char *argument; /* "FILE"; "[FILE]": optional, behind '='; NULL: takes none */
    const char *help;     /* NULL: not shown */
};
#define ZR_LONG 256

/* Exit codes of every command but run. */
enum { ZR_EXIT_DONE, ZR_EXIT_FINDING, ZR_EXIT_ERROR, ZR_EXIT_NO_VERDICT };

struct zr_command {
    const char *name;
    const char *usage;               /* one line for each form */
    const char *about;               /* a paragraph */
    const struct zr_option *options; /* ended by one without a name; -h and --help are added */
    const char *notes; /* lines between the options and the examples, or NULL; wrapped unless they begin with a space */
    const char *examples; /* a line each, at most 78 columns, as a shell runs them */
    const char *operands; /* what is expected: "one process id at most" */
    int least, most;      /* operands */
    const char *one_of;   /* options that rule each other out: "json|markdown;all|pid", or NULL */
    bool program;         /* the first operand begins a command line of its own */
};

/* Takes an option with its value, or NULL. Reports a wrong value and returns false. */
typedef bool zr_take_option(void *to, const struct zr_option *o, const char *value);
/*
 * Parses a command line. Returns true with *at the index of the first operand, or false with *at the exit code: of
 * --help, or of wrong usage, which it has reported.
 */
bool zr_options(const struct zr_command *c, int argc, char **argv, zr_take_option *take, void *to, int *at);
/* "zeroute NAME: WHAT; see 'zeroute NAME --help'" on stderr; returns ZR_EXIT_ERROR. */
int zr_wrong(const struct zr_command *c, const char *what);
/* "bad value VALUE of --NAME: expected EXPECTED; see ..." on stderr; returns false. */
bool zr_option_bad(const struct zr_command *c, const struct zr_option *o, const char *value, const char *expected);
/* Values of options and operands. Each returns false, with what was expected on stderr, if the text is none. */
bool zr_option_number(const struct zr_command *c, const struct zr_option *o, const char *value, uint64_t least,
                      uint64_t most, uint64_t *out);
bool zr_option_real(const struct zr_command *c, const struct zr_option *o, const char *value, double least,
                    double *out);
bool zr_option_bytes(const struct zr_command *c, const struct zr_option *o, const char *value, uint64_t *out);
bool zr_option_choice(const struct zr_command *c, const struct zr_option *o, const char *value,
                      const char *choices); /* "abba|random" */
bool zr_operand_pid(const struct zr_command *c, const char *text, int *pid);

/* --- nearest.c: "did you mean" ----------------------------------------------------------------- */
/* Set word and length, try every name; then `best` is what was meant, or NULL. Hyphen and underscore are the same. */
struct zr_nearest {
    const char *word;
    size_t length;
    const char *best;
    size_t best_length;
    unsigned distance;
};
/* Letters to insert, delete, replace, or swap with their neighbour; of names of up to 96. */
unsigned zr_distance(const char *a, size_t m, const char *b, size_t n);
void zr_nearest_try(struct zr_nearest *n, const char *name, size_t length);
/* Appends " (did you mean 'native'?)" for a bad value of a setting or of "preset", or for a setting that is none. */
void zr_did_you_mean(const char *setting, const char *value, char *text, size_t size);
/* The same for one of "get|set|trim". */
void zr_mean_one_of(const char *names, const char *word, char *text, size_t size);
void zr_nearest_try_list(struct zr_nearest *n, const char *names); /* "on|off"; those in capitals are skipped */

/* --- json.c: documents, built and read with jansson ------------------------------------------- */
/*
 * The functions that add take an object and a key, or an array and NULL. They fail silently without memory: a
 * part that is NULL makes zr_json_write fail.
 */
extern bool zr_json_begun; /* a document was written on stdout */
/* An object with "format": N, the version of this kind of document. */
json_t *zr_json_document(int format);
/* A new object or array, owned by its parent. */
json_t *zr_json_object(json_t *parent, const char *key);
json_t *zr_json_array(json_t *parent, const char *key);
void zr_json_text(json_t *parent, const char *key, const char *text); /* any bytes; NULL: left out */
void zr_json_count(json_t *parent, const char *key, uint64_t n);      /* above INT64_MAX a real */
void zr_json_amount(json_t *parent, const char *key, uint64_t n);     /* ZR_ABSENT: left out */
void zr_json_real(json_t *parent, const char *key, double d);         /* not finite: null */
void zr_json_flag(json_t *parent, const char *key, bool b);
/* Prints the document and drops it. `digits` are those of a real: 17 come back as they were. */
bool zr_json_write(FILE *out, json_t *document, unsigned digits, bool one_line);
#define ZR_JSON_DIGITS 10
/* A whole file; NULL with what is wrong in *why, to be freed. The caller drops the result with json_decref. */
json_t *zr_json_read(const char *path, char **why);
/* NULL, NaN and false if the key is absent or of another type. */
const char *zr_json_get_text(const json_t *object, const char *key);
double zr_json_get_number(const json_t *object, const char *key);
bool zr_json_get_flag(const json_t *object, const char *key);

/* --- harmless.c: text from outside, for wherever it is printed ---------------------------------- */
enum zr_for {
    ZR_FOR_TERMINAL, /* one line, and nothing that steers a terminal */
    ZR_FOR_METRIC,   /* a label's value, or a help text, of Prometheus */
    ZR_FOR_HTML,     /* text or the value of an attribute */
    ZR_FOR_JSON,     /* UTF-8: what jansson takes */
};
/* A copy, to be freed. What is not UTF-8 is U+FFFD, what steers is '?'. */
char *zr_harmless(const char *text, enum zr_for where);
/* The same for a terminal, good until it was called 32 times more. NULL is "". */
const char *zr_shown(const char *text);

/* --- text.c: numbers in readable form; each returns its buffer -------------------------------------- */
#define ZR_TEXT_SIZE 32
const char *zr_text_bytes(char *out, uint64_t bytes); /* 1.50 GiB, 0; "-" for ZR_ABSENT */
const char *zr_text_time(char *out, uint64_t ns);     /* 12.3 us */
const char *zr_text_count(char *out, uint64_t n);     /* 1,234,567 */
const char *zr_text_age(char *out, uint64_t ns);      /* 3m 20s */
/* A size as the settings have it, "2GiB", "512M". Returns false if it is none. */
bool zr_text_parse_bytes(const char *text, uint64_t *out);
size_t zr_text_width(const char *text); /* columns on the screen */
/* Fits the text into this many columns, leaving out its middle if it is longer. `out` has room for all of it. */
const char *zr_text_middle(char *out, const char *text, size_t columns);
/*
 * The same for a command: folders go first, then what stands between the program and its script, then the end.
 * "/usr/bin/python3 -u /home/me/train.py --epochs 100" becomes "python3 -u train.py --ep...".
 */
const char *zr_text_command(char *out, const char *command, size_t columns);
/*
 * Prints a text behind a head of `indent` columns, broken at spaces before `width`; further lines are indented. Text
 * from outside adds no lines: a line break in it is shown as other control characters are.
 */
void zr_text_wrap(FILE *to, int indent, int width, const char *text);

/* --- table.c ---------------------------------------------------------------------------------- */
struct zr_table;
/*
 * Column heads, NULL last. One that begins with > is aligned to the right; where the table is too wide for the screen
 * the one that begins with ~, or else the first, is cut in the middle of its cells; that with $ as commands are.
 */
struct zr_table *zr_table_new(const char *first, ...) __attribute__((sentinel));
void zr_table_row(struct zr_table *t, ...); /* as many texts as there are columns; copied */
/* The same, from arrays; that of heads ends with NULL. */
struct zr_table *zr_table_of(const char *const *head);
void zr_table_cells(struct zr_table *t, const char *const *cell);
size_t zr_table_rows(const struct zr_table *t);
/* As wide as the terminal, or $COLUMNS, at most; colours if told to. Frees the table. */
void zr_table_print(struct zr_table *t, FILE *out, bool colour);
void zr_table_free(struct zr_table *t);
/* The columns of the terminal, or $COLUMNS; 0: unlimited, as in a pipe. */
size_t zr_columns(FILE *out);
/* True for a terminal, unless NO_COLOR is set. */
bool zr_colour(FILE *out);
/* "\033[1m" and so on, or nothing. */
const char *zr_bold(bool colour);
const char *zr_dim(bool colour);
const char *zr_red(bool colour);
const char *zr_plain(bool colour);

/* --- find.c: files that belong to the command ------------------------------------------------- */
/* Finds a file installed with the command, beside it or in ../lib. Returns false with `out` saying where it looked. */
bool zr_find_file(const char *name, char *out, size_t size);
/* Returns true if the file is our preload for this machine; otherwise `why` says what it is. */
bool zr_check_library(const char *path, char *why, size_t size);
/* The command itself, to be started again. */
void zr_own_path(char *out, size_t size);
/* Returns why nothing can be preloaded into a program, searched in PATH ("is ..."), or NULL. */
const char *zr_preload_obstacle(const char *program);

/* --- message.c -------------------------------------------------------------------------------- */
/* Prints "zeroute COMMAND: ..." and a newline on stderr. */
void zr_complain(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The text of the last one without its prefix; "" before the first. */
const char *zr_last_complaint(void);

/* --- spawn.c: the one way to start a program ----------------------------------------------------- */
/* Exit codes of `zeroute run` where the program has none: our own failure, cannot be executed, not found. */
#define ZR_EXIT_FOUND 66 /* with --fail-on-error */
#define ZR_EXIT_OWN 125
#define ZR_EXIT_CANNOT 126
#define ZR_EXIT_NOT_FOUND 127

/*
 * A program that we start. The caller fills in the first part and leaves the rest zero. From zr_spawn until it has
 * ended all signals to us are read by zr_spawn_wait, which passes them on. SIGKILL to us kills the program.
 */
struct zr_program {
    char *const *argv;                 /* argv[0] is searched in PATH */
    bool own_group;                    /* it ends with all that it has started, and does not read the terminal */
    int in, out, err;                  /* descriptors that it gets; 0: ours */
    void (*prepare)(const void *data); /* called in the child, to change its environment; may be NULL */
    const void *data;

    pid_t pid;
    int status; /* its wait status, once it has ended */
    struct rusage used;
    bool ended;
    int asked_to_end; /* the signal that was sent to us for that; 0: none */

    int signals;
    sigset_t saved_mask;
    struct sigaction saved_chld;
};

/* Starts it. Returns 0, or the errno of what was in the way: then it is over, and must not be waited for. */
int zr_spawn(struct zr_program *p);
/*
 * Waits until it has ended and returns true. Returns false when the time is over (-1: never), when the descriptor
 * `readable` is (-1: none), or when we were asked to end: the program knows.
 */
bool zr_spawn_wait(struct zr_program *p, int timeout_ms, int readable);
/* Ends it: SIGTERM, and SIGKILL two seconds later. */
void zr_spawn_end(struct zr_program *p);
/*
 * Kills it, and waits so long at most: what hangs in the kernel does not end. Then it is left behind and false is
 * returned.
 */
bool zr_spawn_end_within(struct zr_program *p, int ms);
/* zr_spawn, and zr_spawn_wait until it has ended. */
int zr_spawn_and_wait(struct zr_program *p);
/* Returns the exit code of a wait status, or dies of the same signal. */
int zr_end_like(int status);

/* --- publish.c: the one way to write a file --------------------------------------------------------- */
struct zr_publish {
    FILE *file;
    const char *command, *path, *name; /* the name is the last part of the path */
    int folder;
    mode_t mode; /* of the file that is replaced; 0: there is none */
    bool device;
    char temporary[32];
};
/*
 * Opens a file that is to have this path; "-" is stdout. It takes its name in zr_publish_close. Returns NULL, with the
 * reason on stderr, where that may not be: a link, a FIFO, a file of another user.
 */
FILE *zr_publish_open(struct zr_publish *p, const char *command, const char *path);
/* Closes the file, which takes its name if all is good; reports what was not. */
bool zr_publish_close(struct zr_publish *p, bool good);
/*
 * Whether a process of this user may leave contents in this folder: it is no link, belongs to the user or to root, and
 * others cannot exchange what is in it. Its absolute path goes to `out`. Reports it if not.
 */
bool zr_publish_folder(const char *command, const char *folder, unsigned uid, char *out, size_t size);
/* Whether zr_publish_open would succeed, for a command that has hours of work before it. Reports it if not. */
bool zr_publish_possible(const char *command, const char *path);

/* --- preload.c -------------------------------------------------------------------------------- */
/* The environment of a program under the preload; these functions change our own. */
#define ZR_RUN_NAME 40
/* Finds libzeroute.so (ZEROUTE_LIB, or with the command). Reports it and returns false if there is none. */
bool zr_preload_find(const char *command, char *path, size_t size);
/* Puts it in front of what LD_PRELOAD holds. */
bool zr_preload_set(const char *path);
/* Names a run. A run inside a run carries both names, so that each finds its own processes. */
void zr_run_name(char *run, size_t size);
bool zr_run_owns(const struct zeroute_process *p, const char *run);

/* --- simulate.c ------------------------------------------------------------------------------- */
/* Selects a simulated GPU. The caller hands `root` to zr_simulate_end when the program has ended. */
bool zr_simulate(const char *command, const char *spec, char *root, size_t size);
void zr_simulate_end(const char *root);
/* Counts the folders of simulated machines that no process holds any more, and removes them if told to. */
size_t zr_simulate_sweep(bool remove);

/* --- eager.c ---------------------------------------------------------------------------------- */
/*
 * Sets what backing:eager needs: NEOReadDebugKeys=1 and EnableDeferBacking=0. Variables that the user has set are kept;
 * returns false, with their names in `kept`, if they contradict it.
 */
bool zr_eager_environment(char *kept, size_t size);

/* --- elffile.c -------------------------------------------------------------------------------- */
/* What the file of a shared library tells. Nothing is loaded; a file that is damaged or not ELF gives empty answers. */
struct zr_elf_file {
    const unsigned char *data; /* NULL: could not be opened */
    size_t size;
};

/* Returns false with errno set if the file cannot be read. */
bool zr_elf_open(struct zr_elf_file *elf, const char *path);
void zr_elf_close(struct zr_elf_file *elf);

/* Hexadecimal; "" if the file has none, like Intel's own builds. */
void zr_elf_build_id(const struct zr_elf_file *elf, char *out, size_t size);

/* Whether a DT_NEEDED entry starts with this name. */
bool zr_elf_needs(const struct zr_elf_file *elf, const char *name);

/* Whether the file imports a function of exactly this name. */
bool zr_elf_imports(const struct zr_elf_file *elf, const char *name);

/* Whether the string is anywhere in the file, which is searched as a whole: a library that reads a variable has its
 * name. */
bool zr_elf_mentions(const struct zr_elf_file *elf, const char *string);

/* What follows the first occurrence of a prefix, up to a character outside "0-9."; "" without one. */
void zr_elf_number_after(const struct zr_elf_file *elf, const char *prefix, char *out, size_t size);

/* The first string of the file that looks like "2N.NN.NNNNN": how the Intel driver names itself. */
void zr_elf_driver_version(const struct zr_elf_file *elf, char *out, size_t size);

/* --- host.c ----------------------------------------------------------------------------------- */
/*
 * What the kernel tells about host and device memory. Paths are below $ZEROUTE_ROOT, so that a test can lay out a
 * machine in a folder. What the kernel does not offer is ZR_ABSENT, never zero.
 */

enum { ZR_CARDS_MAX = 16 };

/* /proc/meminfo. Only recent kernels have gpu_active and gpu_reclaim; MemAvailable does not include gpu_reclaim. */
struct zr_meminfo {
    uint64_t total;
    uint64_t available;
    uint64_t gpu_active;
    uint64_t gpu_reclaim;
    /* in use, and not told as anything: what drivers hold shows here on kernels without gpu_active */
    uint64_t unaccounted;
};

/* A region of a card's memory as fdinfo counts it. */
struct zr_region {
    uint64_t total;
    uint64_t resident;
};

/* What one process holds on one card, every DRM client counted once. gtt is host memory that the card imports or maps.
 */
struct zr_card_use {
    char pdev[32];
    char driver[16];
    unsigned clients;
    struct zr_region vram;
    struct zr_region gtt;
    struct zr_region system;
};

struct zr_process_memory {
    uint64_t rss;
    uint64_t cgroup_current;
    uint64_t cgroup_limit; /* absent: no limit, or the kernel offers none */
    unsigned card_count;
    struct zr_card_use cards[ZR_CARDS_MAX];
    unsigned dmabuf_fds; /* descriptors of shared buffers that are open */
    int fdinfo_error;    /* errno of the listing; 0: it was read */
};

/* "$ZEROUTE_ROOT" followed by the formatted path; returns out. */
char *zr_root_path(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Reads a whole file, of /proc as well, as a string to be freed. Returns NULL with errno set. length may be NULL. */
char *zr_read_whole(const char *path, size_t *length);

/* Lines "key: value" of such a file. "123 kB", "123 MiB" or "123", in bytes; false: no number. */
bool zr_amount_of(const char *text, uint64_t *out);
/* Each line of a text is handed out in turn, cut at its end; NULL after the last. */
char *zr_next_line(char **rest);
/* The value of "key:value" when the line has that key, else NULL. */
const char *zr_value_of(const char *line, const char *key);

/* Returns false with errno set if there is no meminfo. */
bool zr_meminfo_read(struct zr_meminfo *out);

/*
 * outside/memory.c, for a process of one's own; of others zr_outside_memory asks. Returns false with errno set if there
 * is no such process. fdinfo_error tells if descriptors could not be listed.
 */
bool zr_process_memory_read(pid_t pid, struct zr_process_memory *out);

/* How much less memory is available than at the baseline, gpu_reclaim counted as available. Negative: more. */
int64_t zr_meminfo_drop(const struct zr_meminfo *baseline, const struct zr_meminfo *now);

/* A line through n points by least squares; `error` is the standard error of the slope, NAN with two points. */
struct zr_line {
    double slope;
    double error;
    double intercept;
};
/* Returns false if there are fewer than two different x. */
bool zr_line_fit(const double *x, const double *y, unsigned n, struct zr_line *out);

/* --- clock.c ---------------------------------------------------------------------------------- */
uint64_t zr_clock_ns(void); /* CLOCK_MONOTONIC */
double zr_clock_seconds(void);
uint64_t zr_wall_ns(void); /* CLOCK_REALTIME */

/* --- view/growth.c: kinds of what may grow ------------------------------------------------------ */
enum { ZR_GROWTH_UNSEEN, ZR_GROWTH_HOST, ZR_GROWTH_GTT, ZR_GROWTH_IPC, ZR_GROWTHS, ZR_GROWTH_TEXT = 128 };
extern const struct zr_growth_kind {
    const char *name, *what, *todo;
    uint64_t least; /* bytes that are worth a word; 0: it is counted in handles */
} zr_growth_kinds[ZR_GROWTHS];

struct zr_growth {
    uint64_t by;
    time_t since;
    double seconds; /* until it last rose */
};
/* "+512 since 14:02 (8.5 a minute)"; `out` has ZR_GROWTH_TEXT bytes. */
const char *zr_growth_text(char *out, unsigned kind, const struct zr_growth *g);

/* --- cards.c ---------------------------------------------------------------------------------- */
/* The cards of the machine as sysfs shows them. */
enum zr_family { ZR_FAMILY_OTHER, ZR_FAMILY_ALCHEMIST, ZR_FAMILY_BATTLEMAGE };

struct zr_card {
    char pdev[32];   /* 0000:03:00.0 */
    char driver[16]; /* xe, i915 */
    unsigned vendor, device;
    enum zr_family family;
    uint64_t bar;  /* bytes of its memory that the CPU can see; ZR_ABSENT: not told */
    uint64_t vram; /* ZR_ABSENT: not told */
};

/* Intel cards with a render node, in the order of their nodes; at most count. */
unsigned zr_cards_list(struct zr_card *cards, unsigned count);

/* Discrete, and less of its memory is visible than it has: no Resizable BAR. */
bool zr_card_has_small_bar(const struct zr_card *card);

/* --- version.c: zeroute --version ---------------------------------------------------------------- */
void zr_print_version(bool verbose);

#endif
