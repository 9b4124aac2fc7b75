/* zeroute run: a program under the preload, and what it did. */
#include "base/settings.h"
#include "common/common.h"
#include "record/host_samples.h"
#include "run/checked.h"
#include "stat/stat.h"
#include "view/view.h"

#include <zeroute/record.h>

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct options {
    const char *json, *sim; /* sim: "" for the default card */
    int summary;            /* -1: where stderr is a terminal */
    bool discard, verbose, fail_on_error;
    bool presets_only; /* this pass takes presets, the other one everything else */
    struct zr_settings config;
    char **program;
};

static const char *called = "run"; /* or another command, which starts a program as this one does */

enum { PRESET = ZR_LONG, SIM, SUMMARY, NO_SUMMARY, JSON, DISCARD, FAIL_ON_ERROR, SETTING };
enum { OWN = 8, SETTINGS_MAX = 64 };

/* Filled in by describe(): the settings follow our own options. */
static struct zr_option option_table[OWN + SETTINGS_MAX + 1] = {
    {PRESET, "preset", "NAME", NULL},
    {SIM, "sim", "[SPEC]", "use a simulated GPU, for example --sim=devices:2,vram:16GiB"},
    {SUMMARY, "summary", NULL, "print a summary on stderr at the end (default on a terminal)"},
    {NO_SUMMARY, "no-summary", NULL, "print no summary"},
    {'v', "verbose", NULL, "print the summary with every row and column"},
    {JSON, "json", "FILE", "write the last statistics of every process that used a device; - is stdout"},
    {DISCARD, "discard", NULL, "leave nothing behind for 'zeroute stat'"},
    {FAIL_ON_ERROR, "fail-on-error", NULL, "exit with 66 if --check has found an error"},
};

static const struct zr_command command = {
    .name = "run",
    .usage = "zeroute run [OPTIONS] [--] PROGRAM [ARGUMENTS]",
    .about = "Starts PROGRAM with libzeroute.so preloaded, passes signals and its exit code through, and shows at the "
             "end what it and the processes it started did with device memory.",
    .options = option_table,
    .one_of = "summary|no-summary;verbose|no-summary",
    .notes = "Without settings the program is observed and nothing is changed; a bare LD_PRELOAD of libzeroute.so "
             "reroutes. An option overrides a preset, a preset overrides ZEROUTE_CONF, and that overrides the file "
             "named by ZEROUTE_CONF_FILE.\n"
             "\n"
             "Exit code: the program's own (its signal is raised again), 66 an error found with --fail-on-error, 125 "
             "our own failure, 126 the program cannot be "
             "executed, 127 it was not found.\n",
    .examples = "zeroute run -- python train.py\n"
                "zeroute run --preset mitigate --json out.json -- ./llama-server -m m.gguf\n"
                "zeroute run --sim=devices:2 --limit 80% -- ./program",
    .program = true,
};

static const struct zr_preset *observe(void) {
    return zr_preset_find("observe", strlen("observe"));
}

/* What a setting is here unless something is said: "route:native,cache:off" are the settings of observe. */
static const char *default_value(const struct zr_setting *setting, char *out, size_t size) {
    size_t length = strlen(setting->name);

    for (const char *item = observe()->settings; item; item = strchr(item, ',')) {
        item += *item == ',';
        if (strncmp(item, setting->name, length) == 0 && item[length] == ':') {
            snprintf(out, size, "%.*s", (int)strcspn(item + length + 1, ","), item + length + 1);
            return out;
        }
    }
    return setting->fallback;
}

/* An option for every setting, spelt with hyphens. */
static void describe(void) {
    static char text[SETTINGS_MAX][256], hyphens[SETTINGS_MAX][32], presets[1024];
    struct zr_option *next = option_table + OWN;
    char value[64];
    int n = snprintf(presets, sizeof presets, "several settings at once:");
    for (size_t i = 0; i < zr_preset_count; i++)
        n += snprintf(presets + n, sizeof presets - (size_t)n, "\n%s: %s", zr_presets[i].name, zr_presets[i].help);
    option_table[0].help = presets;
    for (size_t i = 0; i < zr_setting_count && i < SETTINGS_MAX; i++) {
        const struct zr_setting *s = &zr_settings[i];
        snprintf(hyphens[i], sizeof hyphens[i], "%s", s->name);
        for (char *c = hyphens[i]; *c; c++)
            *c = *c == '_' ? '-' : *c;
        snprintf(text[i], sizeof text[i], "%s (default %s)", s->help, default_value(s, value, sizeof value));
        *next++ = (struct zr_option){SETTING + (int)i, hyphens[i], s->values, text[i]};
    }
}

static void bad_setting(const char *why, void *where) {
    zr_complain(called, "%s: %s", (const char *)where, why);
}

static char *read_file(const char *path) {
    FILE *f = fopen(path, "re");
    char *text = f ? calloc(1, 65536) : NULL;
    size_t n = text ? fread(text, 1, 65535, f) : 0;
    bool bad = !f || !text || (n == 0 && ferror(f));
    if (f)
        fclose(f);
    if (!bad)
        return text;
    free(text);
    return NULL;
}

/* What the environment sets; the weakest first. */
static bool environment(struct options *o) {
    static char from_variable[] = "ZEROUTE_CONF";
    char *file = getenv("ZEROUTE_CONF_FILE");
    const char *text = getenv("ZEROUTE_CONF");
    bool good = true;
    zr_settings_default(&o->config);
    zr_preset_set(&o->config, observe()); /* the command changes nothing unless it is told to */
    if (file && *file) {
        char *lines = read_file(file);
        if (!lines) {
            zr_complain(called, "ZEROUTE_CONF_FILE: cannot read %s: %s", file, strerror(errno));
            return false;
        }
        good = zr_settings_parse(&o->config, lines, '\n', bad_setting, file);
        free(lines);
    }
    return (!text || zr_settings_parse(&o->config, text, ',', bad_setting, from_variable)) && good;
}

static bool set_preset(struct options *o, const char *name) {
    const struct zr_preset *preset = zr_preset_find(name, strlen(name));
    char why[640];
    size_t n;

    if (preset) {
        zr_preset_set(&o->config, preset);
        return true;
    }
    n = (size_t)snprintf(why, sizeof why, "unknown preset '%.64s': expected one of ", name);
    for (size_t i = 0; i < zr_preset_count && n < sizeof why; i++)
        n += (size_t)snprintf(why + n, sizeof why - n, "%s%s", i ? ", " : "", zr_presets[i].name);
    zr_did_you_mean("preset", name, why, sizeof why);
    zr_complain(called, "--preset: %s", why);
    return false;
}

static bool set_setting(struct options *o, const struct zr_setting *s, const char *value) {
    char why[640];
    if (strchr(value, ',')) {
        zr_complain(called, "bad value '%s' of --%s: expected no comma in it", value, s->name);
        return false;
    }
    if (zr_setting_set(&o->config, s->name, value, why, sizeof why))
        return true;
    zr_did_you_mean(s->name, value, why, sizeof why);
    zr_complain(called, "%s", why);
    return false;
}

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    if (o->presets_only)
        return option->id != PRESET || set_preset(o, value);
    switch (option->id) {
    case PRESET:
        return true;
    case SIM:
        o->sim = value ? value : "";
        return true;
    case SUMMARY:
    case NO_SUMMARY:
        o->summary = option->id == SUMMARY;
        return true;
    case 'v':
        o->summary = o->verbose = true;
        return true;
    case JSON:
        o->json = value;
        return true;
    case DISCARD:
        o->discard = true;
        return true;
    case FAIL_ON_ERROR:
        o->fail_on_error = true;
        return true;
    default:
        return set_setting(o, &zr_settings[option->id - SETTING], value);
    }
}

/* Presets in a first pass of their own, for options are stronger wherever they stand. Returns as zr_options. */
static bool parse(struct options *o, int argc, char **argv, int *at) {
    describe();
    o->presets_only = true;
    if (!zr_options(&command, argc, argv, take, o, at))
        return false;
    o->presets_only = false;
    if (!zr_options(&command, argc, argv, take, o, at))
        return false;
    o->program = argv + *at;
    if (!*o->program)
        *at = zr_wrong(&command, "no program given: expected PROGRAM [ARGUMENTS]");
    else if (o->fail_on_error && (o->config.check == ZR_CHECK_NONE || !o->config.stats))
        *at = zr_wrong(&command, "--fail-on-error needs --check, and the statistics (not --stats off)");
    else
        return true;
    return false;
}

/* --- what the program is given ---------------------------------------------------------------- */

/*
 * backing:eager has to be there before the driver is loaded; what the user set himself is kept, and
 * named.
 */
static void eager_backing(void) {
    char kept[256];
    if (!zr_eager_environment(kept, sizeof kept))
        zr_complain(called, "backing:eager: your own %s is kept, so memory is not backed eagerly", kept);
}

/* --- what is shown at the end ----------------------------------------------------------------- */

static uint64_t asked_of_host(const struct zr_view *m) {
    uint64_t sum = 0;

    for (size_t i = 0; i < m->process_count + m->ended_count; i++) {
        const struct zr_process_view *v = i < m->process_count ? m->process[i] : m->ended[i - m->process_count];
        sum += v->snapshot ? zr_host_side_peak(v->snapshot) : 0;
    }
    return sum;
}

/* `m` may be NULL: then there is no process. */
static bool write_json(const char *path, const struct zr_view *m, const struct zr_watched *w) {
    struct zr_publish to;
    FILE *f = zr_publish_open(&to, called, path);
    json_t *document;

    if (!f)
        return false;
    if (m && w) {
        document = zr_view_json(m, (struct zr_json_parts){0});
        zr_watched_json(document, w, asked_of_host(m));
    } else {
        document = zr_json_document(1);
        zr_json_array(document, "processes");
    }
    return zr_publish_close(&to, zr_json_write(f, document, ZR_JSON_DIGITS, false));
}

static void summarise(const struct zr_view *m, const struct zr_watched *w, bool verbose) {
    size_t count = m->process_count + m->ended_count, n = 0;
    struct zr_process_view **process = calloc(count + 1, sizeof(struct zr_process_view *));
    struct zeroute_snapshot **s = calloc(count + 1, sizeof(struct zeroute_snapshot *));
    bool colour = zr_colour(stderr);

    for (size_t i = 0; process && s && i < count; i++) {
        process[n] = i < m->process_count ? m->process[i] : m->ended[i - m->process_count];
        s[n] = process[n]->snapshot;
        n += s[n] != NULL;
    }
    fflush(stdout);
    fputc('\n', stderr);
    if (n == 0) {
        fputs("zeroute: no process used a Level Zero device, or could publish what it did\n", stderr);
    } else {
        struct zeroute_snapshot *sum = n > 1 ? zr_sum(s, n) : NULL;
        struct zr_sheet page = {.snapshot = sum ? sum : s[0], .view = m, .process = process, .count = n, .watched = w};
        struct zr_overview live = {false, SIZE_MAX, ZR_SORT_NOT_SAID}, ended = {true, SIZE_MAX, ZR_SORT_NOT_SAID};
        if (n > 1 && (zr_overview(stderr, m, &live, colour) | zr_overview(stderr, m, &ended, colour)))
            fputc('\n', stderr);
        zr_summary(stderr, &page, colour, verbose);
        zeroute_snapshot_free(sum);
    }
    free(process);
    free(s);
}

/* What check found in the processes of the run. */
struct checked {
    uint64_t errors;
    unsigned places; /* errors that differ in kind or frames, of the first ten of each process */
    bool counted;    /* a process published its count */
};

/* As valgrind's last line, and why the exit code is what it is. */
static void conclude_check(const struct options *o, const struct checked *c, int code) {
    const char *why = "";

    if (!c->counted) {
        fputs("zeroute: check: cannot tell how many errors: no process published statistics\n", stderr);
        return;
    }
    if (code == ZR_EXIT_FOUND)
        why = "; exit code 66: --fail-on-error";
    else if (c->errors && o->fail_on_error)
        why = "; the program ended by a signal, which is raised again";
    else if (c->errors)
        why = "; the exit code is the program's: --fail-on-error would make it 66";
    fprintf(stderr, "zeroute: check: %llu error%s", (unsigned long long)c->errors, c->errors == 1 ? "" : "s");
    if (c->errors > 1 && c->places)
        fprintf(stderr, " in %u place%s", c->places, c->places == 1 ? "" : "s");
    fprintf(stderr, "%s\n", why);
}

static void discard(const struct zr_view *m) {
    for (size_t i = 0; i < m->ended_count; i++)
        zr_gc_remove(&m->ended[i]->process, false);
}

/* Adds up what check found, and prints it. */
static void report_check(const struct options *o, const struct zr_view *m, struct checked *checked) {
    size_t all = m->process_count + m->ended_count, count = 0;
    struct zeroute_snapshot **s = calloc(all + 1, sizeof(struct zeroute_snapshot *));

    for (size_t i = 0; s && i < all; i++) {
        const struct zr_process_view *v = i < m->process_count ? m->process[i] : m->ended[i - m->process_count];
        if (!v->snapshot)
            continue;
        s[count++] = v->snapshot;
        checked->errors += zeroute_value(v->snapshot, "check.errors", 0);
        checked->counted = true;
    }
    if (s && o->config.check > ZR_CHECK_NONE)
        checked->places = zr_checked_print(stderr, s, count);
    free(s);
}

static bool report(const struct options *o, const char *run, bool nested, const struct zr_watched *w,
                   struct checked *checked) {
    struct zr_view *m = zr_view_new(
        &(struct zr_scope){.run = run, .finished = true, .fields = true, .all_at_once = true, .before = &w->before});
    bool good = true;

    if (!m || !zr_view_sample(m)) {
        zr_complain(called, "cannot look at what the processes have counted: %s", strerror(errno));
        zr_view_free(m);
        return false;
    }
    for (size_t i = 0; i < m->unread_count; i++)
        zr_complain(called, "process %d: %s", m->unread[i].pid, m->unread[i].why);
    if (o->json)
        good = write_json(o->json, m, w);
    if (o->summary > 0 || (o->summary < 0 && isatty(STDERR_FILENO)))
        summarise(m, w, o->verbose);
    report_check(o, m, checked);
    if (o->discard && !nested)
        discard(m);
    zr_view_free(m);
    return good;
}

/* A record of an earlier run makes way, unless its process is still at it: then this one gets another name. */
static bool can_record(const char *file) {
    struct zeroute_record_header h;
    char folder[PATH_MAX];
    struct stat s;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    ssize_t n = fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) ? read(fd, &h, sizeof h) : -1;
    bool exists = fd >= 0 || errno != ENOENT;

    if (fd >= 0)
        close(fd);
    if (exists && n != 0 && (n != sizeof h || h.magic != ZEROUTE_RECORD_MAGIC)) {
        zr_complain(called, "%s exists and is no record: name another file", file);
        return false;
    }
    snprintf(folder, sizeof folder, "%s", file);
    if (access(dirname(folder), W_OK | X_OK) != 0) {
        zr_complain(called, "cannot write %s: %s", file, strerror(errno));
        return false;
    }
    if (exists && (n == 0 || h.end_time || (kill((pid_t)h.pid, 0) != 0 && errno == ESRCH)))
        unlink(file);
    return true;
}

/*
 * A relative path is of the folder in which the command was given, wherever the processes go. One that a setting cannot
 * hold stays as it is.
 */
static void record_here(const char **file) {
    static char path[PATH_MAX];
    char folder[PATH_MAX];

    if (!*file || **file == '/' || strcmp(*file, "none") == 0 || !getcwd(folder, sizeof folder) ||
        strpbrk(folder, ",%\n"))
        return;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, *file) < sizeof path)
        *file = path;
}

/* Sets up our environment for the program. */
static bool prepare(const struct options *o, bool nested, char *root, size_t size) {
    char settings[8192], library[1024];
    if ((o->json && !zr_publish_possible(called, o->json)) ||
        (o->config.record && !nested && !can_record(o->config.record)) ||
        !zr_preload_find(called, library, sizeof library) || !zr_preload_set(library) ||
        (o->sim && !zr_simulate(called, o->sim, root, size)))
        return false;
    if (o->config.backing == ZR_BACKING_EAGER)
        eager_backing();
    if (o->config.check > ZR_CHECK_NONE)
        setenv("UR_L0_DISABLE_USM_ALLOCATOR", "1", 0); /* a runtime's pool would hide its small blocks */
    struct zr_settings given = o->config;
    record_here(&given.record);
    zr_settings_print(&given, settings, sizeof settings);
    setenv("ZEROUTE_CONF", settings, 1);
    const char *obstacle = zr_preload_obstacle(o->program[0]);
    if (obstacle)
        zr_complain(called, "%s %s: nothing can be preloaded into it, and nothing will be seen of it", o->program[0],
                    obstacle);
    return true;
}

static int not_executed(const struct options *o, int error) {
    zr_complain(called, "cannot execute %s: %s", o->program[0], error == ENOENT ? "not found" : strerror(error));
    if (o->json)
        write_json(o->json, NULL, NULL); /* a reader finds an empty list, not an empty file */
    return error == ENOENT || error == ENOTDIR ? ZR_EXIT_NOT_FOUND : ZR_EXIT_CANNOT;
}

/*
 * Waits until the program has ended, and watches meanwhile. A record has host memory as it was: sampled more often, so
 * that a short program has a line of it, too.
 */
static void wait_and_watch(struct zr_program *program, struct zr_watched *watched, struct zr_host_samples *samples) {
    int since_ms = ZR_WATCHED_MS;
    bool ended = false;

    while (!ended) {
        int pause_ms = samples && samples->every_ms < ZR_WATCHED_MS ? (int)samples->every_ms : ZR_WATCHED_MS;

        if (since_ms >= ZR_WATCHED_MS) {
            zr_watched_sample(watched);
            since_ms = 0;
        }
        if (samples)
            zr_host_samples_take(samples);
        ended = zr_spawn_wait(program, pause_ms, -1);
        since_ms += pause_ms;
    }
}

/* Returns as zr_spawn. */
static int spawn_and_watch(const struct options *o, const char *run, struct zr_program *program,
                           struct zr_watched *watched) {
    struct zr_host_samples samples = {0};

    zr_watched_begin(watched, run);
    if (o->config.record)
        zr_host_samples_take(&samples);
    int error = zr_spawn(program);
    if (!error)
        wait_and_watch(program, watched, o->config.record ? &samples : NULL);
    if (!error && o->config.record)
        zr_host_samples_add_all(&samples, o->config.record, run);
    zr_host_samples_free(&samples);
    return error;
}

/* Returns the exit code, or -1 with the wait status of the program in *status. */
static int run_program(const struct options *o, int *status) {
    char run[ZR_RUN_NAME], root[512] = "";
    bool nested = getenv("ZEROUTE_RUN") != NULL;
    struct zr_program program = {.argv = o->program};
    int code = ZR_EXIT_OWN, error;
    struct checked checked = {0};
    struct zr_watched watched;
    if (!prepare(o, nested, root, sizeof root))
        return code;
    zr_run_name(run, sizeof run);
    error = spawn_and_watch(o, run, &program, &watched);
    *status = program.status;
    if (error)
        code = not_executed(o, error);
    else if (report(o, run, nested, &watched, &checked) || *status != 0)
        code = o->fail_on_error && checked.errors && WIFEXITED(*status) ? ZR_EXIT_FOUND : -1;
    if (!error && o->config.check > ZR_CHECK_NONE)
        conclude_check(o, &checked, code);
    zr_watched_end(&watched);
    zr_simulate_end(root);
    zr_gc_old();
    return code;
}

int zr_cmd_run(int argc, char **argv) {
    struct options *o = calloc(1, sizeof *o);
    int at, status, code = ZR_EXIT_OWN;
    if (!o)
        return code;
    called = argv[0];
    o->summary = -1;
    if (environment(o)) {
        if (parse(o, argc, argv, &at))
            code = run_program(o, &status);
        else if (at == ZR_EXIT_DONE)
            code = ZR_EXIT_DONE;
    }
    free(o);
    return code < 0 ? zr_end_like(status) : code;
}
