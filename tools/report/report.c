/* zeroute report: what records say, as a page, in the terminal, for scripts, and for other tools. */
#include "report/report.h"
#include "common/common.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES_MOST = 1024, SAMPLES = 4000, SAMPLES_LEAST = 300, PERFETTO_SAMPLES = 20000 };
enum form { PAGE, TEXT, JSON, TORCH, PERFETTO, FLAMEGRAPH, CSV };
enum { O_TEXT = ZR_LONG, O_TORCH, O_PERFETTO, O_FLAMEGRAPH, O_CSV, O_TOP, O_ROOT, O_NO_SYMBOLS, O_NO_OPEN, O_DIFF };

static const struct zr_option options[] = {
    {'o', "output", "FILE",
     "write to FILE; - is stdout. Without it the page goes to RECORD.html, with --diff to NEW.diff.html, "
     "--torch-snapshot to RECORD.pickle, --perfetto to RECORD.perfetto.json, and everything else to stdout"},
    {O_TEXT, "text", NULL, "print peak, what was never freed, failures, and the stacks behind them"},
    {'j', "json", NULL, "print the same as JSON"},
    {O_TORCH, "torch-snapshot", NULL, "write a snapshot for PyTorch's memory viewer (pytorch.org/memory_viz)"},
    {O_PERFETTO, "perfetto", NULL, "write trace events for ui.perfetto.dev: counters, blocks and calls"},
    {O_FLAMEGRAPH, "flamegraph", "[WEIGHT]",
     "print folded stacks, weighed by peak (default), leaks, allocations, bytes or failures"},
    {O_CSV, "csv", NULL, "print every event as a line of CSV"},
    {O_DIFF, "diff", NULL, "compare two records, OLD and NEW: what grew and what shrank, by stack"},
    {O_TOP, "top", "N", "how many stacks and failures --text and --json list (10)"},
    {O_ROOT, "root", "DIR", "look for the libraries of the program below DIR, for a record from a container"},
    {O_NO_SYMBOLS, "no-symbols", NULL, "open no library: name native frames by library and offset"},
    {O_NO_OPEN, "no-open", NULL, "write the page, and do not open it in a browser"},
    {0},
};

static const struct zr_command command = {
    .name = "report",
    .usage = "zeroute report [OPTIONS] RECORD...\nzeroute report --diff [OPTIONS] OLD NEW",
    .about = "Shows what a record says: memory over time, what was live at any moment and at the peak, what was never "
             "freed, and which calls failed, each with its call stack. Writes one page that needs no network, and "
             "opens it if it can. Several records are the processes of a job, shown side by side.",
    .options = options,
    .examples = "zeroute record -o run.zr -- python train.py   # make a record\n"
                "zeroute report run.zr                         # look at it in a browser\n"
                "zeroute report --text run.zr                  # or in the terminal\n"
                "zeroute report zeroute.*.zr                   # ranks of a job\n"
                "zeroute report --torch-snapshot run.zr        # for PyTorch's viewer\n"
                "zeroute report --diff before.zr after.zr      # what grew, by stack\n"
                "zeroute report --flamegraph=leaks run.zr      # for speedscope\n",
    .operands = "one record at least",
    .least = 1,
    .most = FILES_MOST,
};

struct options {
    enum form form;
    const char *output, *root, *weight;
    uint64_t top;
    bool no_symbols, no_open, diff;
};

static bool take(void *to, const struct zr_option *o, const char *value) {
    struct options *x = to;
    enum form form = o->id == O_TEXT         ? TEXT
                     : o->id == 'j'          ? JSON
                     : o->id == O_TORCH      ? TORCH
                     : o->id == O_PERFETTO   ? PERFETTO
                     : o->id == O_FLAMEGRAPH ? FLAMEGRAPH
                     : o->id == O_CSV        ? CSV
                                             : PAGE;

    if (form != PAGE) {
        if (x->form != PAGE && x->form != form) {
            zr_wrong(&command, "one form of output at a time");
            return false;
        }
        x->form = form;
    }
    switch (o->id) {
    case 'o':
        x->output = value;
        return true;
    case O_FLAMEGRAPH:
        x->weight = value ? value : "peak";
        return zr_option_choice(&command, o, x->weight, "peak|leaks|allocations|bytes|failures");
    case O_TOP:
        return zr_option_number(&command, o, value, 1, 100000, &x->top);
    case O_ROOT:
        x->root = value;
        return true;
    case O_DIFF:
        return x->diff = true;
    case O_NO_SYMBOLS:
        return x->no_symbols = true;
    case O_NO_OPEN:
        return x->no_open = true;
    default:
        return true;
    }
}

/* --- one record ------------------------------------------------------------------------------------------------ */

static void note(char **list, size_t *n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void note(char **list, size_t *n, const char *fmt, ...) {
    va_list args;

    va_start(args, fmt);
    if (*n < ZR_NOTES_MOST && vasprintf(&list[*n], fmt, args) >= 0)
        (*n)++;
    va_end(args);
}

/* Whether figures hold: what a reader must know before any of them. */
static void take_notes(struct zr_report *s) {
    const struct zr_record *r = s->record;
    char number[ZR_TEXT_SIZE];

    if (!r->ended)
        note(s->note, &s->notes,
             "The record has no end: the process still runs, was killed, or left by _exit. Memory that is live then is "
             "shown as never freed.");
    if (r->header.lost_events)
        note(s->note, &s->notes, "%s events could not be stored: treat these figures as approximate.",
             zr_text_count(number, r->header.lost_events));
    if (r->damaged)
        note(s->note, &s->notes, "%s parts of the file could not be read and were left out.",
             zr_text_count(number, r->damaged));
    if (r->header.lost_stacks)
        note(s->note, &s->notes, "%s events have no stack: there were more different stacks than a record holds.",
             zr_text_count(number, r->header.lost_stacks));
    if (r->implieds)
        note(s->note, &s->notes, "%s blocks ended without a free: their address was handed out again.",
             zr_text_count(number, r->implieds));
}

/* Libraries whose frames nobody looks for: ours, and the dynamic linker, which beds bring along. */
static bool is_unseen_library(const char *path) {
    return strstr(path, "/libzeroute.so") || strstr(path, "/ld-linux");
}

/* Why frames may lack their names. */
static void take_remarks(struct zr_report *s, const struct zr_symbols *symbols) {
    const struct zr_record *r = s->record;
    const char *python = r->text[ZEROUTE_TEXT_PYTHON], *library;
    size_t i = 0, others = 0;

    if (r->header.stacks == ZEROUTE_STACKS_PYTHON && python && strstr(python, ": "))
        note(s->remark, &s->remarks, "No frames of Python. %s.", python);
    if (zr_symbols_unavailable(symbols) && r->modules)
        note(s->remark, &s->remarks, "libdw is not installed here (package libdw1): native functions have no names.");
    while ((library = zr_symbols_replaced(symbols, &i)))
        if (!is_unseen_library(library) && others++ < 4)
            note(s->remark, &s->remarks,
                 "%s is not the file that the program ran with (its build id differs): its functions have no names.",
                 library);
    if (others > 4)
        note(s->remark, &s->remarks, "%zu more libraries are not those that the program ran with.", others - 4);
}

static bool load(struct zr_report *s, const char *path, const struct options *o, uint32_t samples,
                 const struct zr_symbols *before) {
    char why[512];

    s->record = zr_record_load(path, why, sizeof why);
    if (!s->record) {
        zr_complain("report", "%s %s", zr_shown(path), why);
        return false;
    }
    int rank = zr_record_rank(s->record);
    if (rank >= 0)
        snprintf(s->name, sizeof s->name, "rank %d (process %u)", rank, s->record->header.pid);
    else
        snprintf(s->name, sizeof s->name, "process %u", s->record->header.pid);
    s->symbols = zr_symbols_new(s->record, o->root, o->no_symbols, before);
    s->paths = s->symbols ? zr_paths_new(s->record, s->symbols) : NULL;
    s->profile = s->paths ? zr_profile_new(s->record, s->paths, samples) : NULL;
    take_notes(s);
    if (s->symbols)
        take_remarks(s, s->symbols);
    if (!s->profile)
        zr_complain("report", "%s cannot be shown: out of memory", zr_shown(path));
    return s->profile != NULL;
}

static void unload(struct zr_report *s) {
    zr_profile_free(s->profile);
    zr_paths_free(s->paths);
    zr_symbols_free(s->symbols);
    zr_record_free(s->record);
    for (size_t i = 0; i < s->notes; i++)
        free(s->note[i]);
    for (size_t i = 0; i < s->remarks; i++)
        free(s->remark[i]);
}

/* Ranks in order, then others in the order of their start. */
static int in_order(const void *a, const void *b) {
    const struct zr_record *x = ((const struct zr_report *)a)->record, *y = ((const struct zr_report *)b)->record;
    int i = zr_record_rank(x), j = zr_record_rank(y);

    if (i != j)
        return i < 0 ? 1 : j < 0 ? -1 : i - j;
    return x->header.start_real < y->header.start_real ? -1 : x->header.start_real > y->header.start_real;
}

static void line_up(struct zr_report *shown, size_t n) {
    uint64_t first = UINT64_MAX;

    qsort(shown, n, sizeof *shown, in_order);
    for (size_t i = 0; i < n; i++)
        if (shown[i].record->header.start_real < first)
            first = shown[i].record->header.start_real;
    for (size_t i = 0; i < n; i++)
        shown[i].offset = shown[i].record->header.start_real - first;
}

/* --- output ------------------------------------------------------------------------------------------------------- */

static bool write_diff(FILE *out, const struct options *o, const struct zr_report *shown) {
    struct zr_diff *d = zr_diff_new(&shown[0], &shown[1]);
    bool ok = d != NULL;

    if (!d)
        zr_complain("report", "the records cannot be compared: out of memory");
    else if (o->form == TEXT)
        ok = zr_diff_text(out, shown, d, (unsigned)o->top);
    else if (o->form == JSON)
        ok = zr_diff_json(out, shown, d, (unsigned)o->top);
    else if (o->form == FLAMEGRAPH)
        ok = zr_diff_flamegraph(out, d, o->weight);
    else
        ok = zr_diff_page(out, shown, d);
    zr_diff_free(d);
    return ok;
}

static bool write_form(FILE *out, const struct options *o, const struct zr_report *shown, size_t n) {
    if (o->diff)
        return write_diff(out, o, shown);
    switch (o->form) {
    case TEXT:
        return zr_report_text(out, shown, n, (unsigned)o->top);
    case JSON:
        return zr_report_json(out, shown, n, (unsigned)o->top);
    case TORCH:
        return zr_export_torch(out, shown);
    case PERFETTO:
        return zr_export_perfetto(out, shown, n);
    case FLAMEGRAPH:
        return zr_export_flamegraph(out, shown, n, o->weight);
    case CSV:
        return zr_export_csv(out, shown, n);
    default:
        return zr_report_page(out, shown, n);
    }
}

/* Starts the desktop's browser, and does not wait for it. */
static void open_page(const char *path) {
    extern char **environ;
    char *absolute = realpath(path, NULL);
    char name[] = "xdg-open";
    char *argv[] = {name, absolute, NULL};
    posix_spawn_file_actions_t quiet;
    pid_t pid;

    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (absolute)
        posix_spawnp(&pid, name, &quiet, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&quiet);
    free(absolute);
}

static bool to_stdout(const struct options *o) {
    if (o->output)
        return strcmp(o->output, "-") == 0;
    return o->form != PAGE && o->form != TORCH && o->form != PERFETTO;
}

static int put_out(const struct options *o, const struct zr_report *shown, size_t n, const char *first) {
    static const char *const ends[] = {[PAGE] = ".html", [TORCH] = ".pickle", [PERFETTO] = ".perfetto.json"};
    char path[4096];
    char size[ZR_TEXT_SIZE];
    struct zr_publish to;

    if (to_stdout(o))
        return write_form(stdout, o, shown, n) ? ZR_EXIT_DONE : ZR_EXIT_ERROR;
    if (o->output)
        snprintf(path, sizeof path, "%s", o->output);
    else
        snprintf(path, sizeof path, "%.4000s%s", first, o->diff ? ".diff.html" : ends[o->form]);
    FILE *out = zr_publish_open(&to, "report", path);
    if (!out)
        return ZR_EXIT_ERROR;
    bool ok = write_form(out, o, shown, n);
    long written = ftell(out);
    if (!zr_publish_close(&to, ok))
        return ZR_EXIT_ERROR;
    printf("%s (%s)\n", zr_shown(path), zr_text_bytes(size, written > 0 ? (uint64_t)written : 0));
    if (o->form == PAGE && !o->no_open && isatty(STDOUT_FILENO) && (getenv("DISPLAY") || getenv("WAYLAND_DISPLAY")))
        open_page(path);
    return ZR_EXIT_DONE;
}

int zr_cmd_report(int argc, char **argv) {
    struct options o = {.root = "", .weight = "peak", .top = 10};
    int at;

    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    size_t n = (size_t)(argc - at), loaded = 0;
    if (o.form == TORCH && n > 1)
        return zr_wrong(&command, "a snapshot is of one process: name one record");
    if (o.diff && n != 2)
        return zr_wrong(&command, "--diff takes two records, the old one and the new one");
    if (o.diff && (o.form == TORCH || o.form == PERFETTO || o.form == CSV))
        return zr_wrong(&command, "--diff goes with --text, --json and --flamegraph, or makes a page");
    struct zr_report *shown = calloc(n, sizeof *shown);
    uint32_t samples = o.form == PERFETTO            ? PERFETTO_SAMPLES
                       : SAMPLES / n > SAMPLES_LEAST ? (uint32_t)(SAMPLES / n)
                                                     : SAMPLES_LEAST;
    int code = ZR_EXIT_ERROR;
    while (shown && loaded < n &&
           load(&shown[loaded], argv[at + (int)loaded], &o, samples, loaded ? shown[loaded - 1].symbols : NULL))
        loaded++;
    if (shown && loaded == n) {
        if (!o.diff)
            line_up(shown, n);
        code = put_out(&o, shown, n, argv[at + (o.diff ? 1 : 0)]);
    }
    for (size_t i = 0; shown && i < n; i++)
        unload(&shown[i]);
    free(shown);
    return code;
}
