/* One run: baseline, prepare, start, watch, wait, collect, and the figures that follow. */
#include "ab/ab.h"
#include "common/common.h"
#include "outside/outside.h"
#include "view/view.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

volatile sig_atomic_t zr_ab_interrupted;

void zr_ab_metrics_add(struct zr_ab *ab) {
#define ZR_METRIC(id, name, unit, better, fields, help) zr_ab_metric_add(ab, name, ZR_AB_##unit, ZR_AB_##better, help);
#include "ab/metrics.def"
#undef ZR_METRIC
}

static void prepare_shell(const void *arm) {
    zr_ab_environment(arm);
}

bool zr_ab_shell(const struct zr_ab *ab, size_t arm, const char *option, const char *command) {
    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"}, (char *)(uintptr_t)command, NULL};
    struct zr_program shell = {.argv = argv,
                               .own_group = true,
                               .out = STDERR_FILENO, /* our own output stays clean */
                               .prepare = prepare_shell,
                               .data = &ab->arm[arm]};

    if (!command)
        return true;
    int error = zr_spawn_and_wait(&shell);
    if (shell.asked_to_end)
        zr_ab_interrupted = 1;
    if (!error && shell.status == 0)
        return true;
    if (error)
        zr_complain("ab", "--%s failed in arm %s: %s", option, ab->arm[arm].name, strerror(error));
    else
        zr_complain("ab", "--%s failed in arm %s: '%s' ended with %s %d", option, ab->arm[arm].name, command,
                    WIFSIGNALED(shell.status) ? "signal" : "exit code",
                    WIFSIGNALED(shell.status) ? WTERMSIG(shell.status) : WEXITSTATUS(shell.status));
    return false;
}

/* --- while it runs ---------------------------------------------------------------------------- */

/*
 * Samples until the command ends. Looking at the processes may take 2 % of the time: where it is dear it becomes
 * rare. The wall time does not depend on any of it, for the wait ends with the command.
 */
static double watch(const struct zr_ab_running *how, struct zr_ab_watch *w, struct zr_program *program, double start,
                    bool libraries) {
    double next = start, next_processes = start;
    bool ended = false;

    while (!ended) {
        double before = zr_clock_seconds();
        if (before >= next) {
            bool processes = before >= next_processes;
            zr_ab_sample(w, program->pid, before - start, processes, libraries);
            zr_watched_sample(&w->watched);
            double after = zr_clock_seconds();
            next = after + how->interval;
            if (processes)
                next_processes = after + fmax(how->interval, 50 * (after - before));
        }
        ended = zr_spawn_wait(program, (int)ceil(1000 * fmax(next - zr_clock_seconds(), 0)), -1);
        if (program->asked_to_end)
            zr_ab_interrupted = 1;
    }
    return zr_clock_seconds() - start;
}

/* --- what follows from the samples ------------------------------------------------------------ */

static void set_metric(struct zr_ab *ab, struct zr_ab_run *run, const char *name, double value) {
    run->value[zr_ab_metric_index(ab, name)] = value;
}

static uint64_t amount(double v) {
    return isnan(v) ? ZR_ABSENT : (uint64_t)fmax(v, 0);
}

enum { LOOKS = 20 };

/*
 * Without the preload processes tell nothing: from the peaks, by the formula of view/cards.c. Imports come and go
 * faster than a short run is looked at: of such a one all that was lost counts.
 */
static double mirror_from_outside(const struct zr_ab_watch *w, double base_active, double base_available,
                                  uint64_t asked, double rss) {
    struct zr_meminfo before = {.gpu_active = amount(base_active),
                                .available = amount(base_available),
                                .gpu_reclaim = ZR_ABSENT,
                                .unaccounted = ZR_ABSENT};
    struct zr_meminfo most = {.gpu_active = amount(w->most.gpu_active),
                              .available = amount(w->most.mem_available),
                              .gpu_reclaim = ZR_ABSENT,
                              .unaccounted = ZR_ABSENT};
    struct zr_lost lost;

    zr_lost_find(&before, &most, asked, amount(rss), &lost);
    if (lost.bytes == ZR_ABSENT)
        return NAN;
    if (w->looks < LOOKS || isnan(w->most.mirrored))
        return (double)lost.bytes;
    return fmin((double)lost.bytes, w->most.mirrored);
}

static uint64_t field_of(const struct zr_ab_run *run, const char *name) {
    const char *value = zr_pairs_get(&run->fields, name);

    return value ? strtoull(value, NULL, 10) : 0;
}

/* As every command has it. */
static double mirror_of(const struct zr_ab_run *run, const struct zr_ab_watch *w, double base_active,
                        double base_available, double rss) {
    uint64_t asked = field_of(run, "reserved_bytes.host.peak") + field_of(run, "allocated_bytes.shared.peak");
    bool at_least;

    if (w->watched.mirror.known)
        return (double)zr_watched_mirror(&w->watched, asked, &at_least);
    return mirror_from_outside(w, base_active, base_available, asked, rss);
}

static void host_metrics(struct zr_ab *ab, struct zr_ab_run *run, const struct zr_ab_watch *w, double base_active,
                         double base_available, const struct rusage *used) {
    double rss = fmax(w->most.rss, 1024.0 * (double)used->ru_maxrss);
    double active = w->most.gpu_active - base_active, drop = base_available - w->most.mem_available;
    double mirror = mirror_of(run, w, base_active, base_available, rss);
    double held = run->value[zr_ab_metric_index(ab, "device.reserved.peak")];

    set_metric(ab, run, "host.rss", rss);
    set_metric(ab, run, "host.gpu_active", isnan(active) ? NAN : fmax(active, 0));
    set_metric(ab, run, "host.available_drop", isnan(drop) ? NAN : fmax(drop, 0));
    set_metric(ab, run, "host.imports", w->most.imports);
    set_metric(ab, run, "host.mirror", mirror);
    if (held > 0)
        set_metric(ab, run, "host.per_device_byte", mirror / held);
    for (size_t c = 0; c < w->n_cards && w->n_cards > 1; c++) {
        char *name = zr_ab_text("host.imports.%s", w->card[c].pdev);
        size_t m = zr_ab_metric_add(ab, name, ZR_AB_BYTES, ZR_AB_LOWER, "imports of this card, at their peak");
        run->value[m] = w->card[c].peak;
        free(name);
    }
}

/* --- output ----------------------------------------------------------------------------------- */

static char *whole(int fd, size_t *size) {
    struct stat st;
    char *text;
    ssize_t n = -1;

    *size = 0;
    if (fstat(fd, &st))
        st.st_size = 0;
    text = zr_ab_more(NULL, (size_t)st.st_size + 1, 1);
    while (*size < (size_t)st.st_size && (n = pread(fd, text + *size, (size_t)st.st_size - *size, (off_t)*size)) > 0)
        *size += (size_t)n;
    text[*size] = 0;
    return text;
}

static void take_output(struct zr_ab *ab, const struct zr_ab_running *how, struct zr_ab_run *run, int out, int err) {
    size_t n_out, n_err;
    char *text = whole(out, &n_out), *errors = whole(err, &n_err), hash[65];

    if (how->show_output) {
        fwrite(text, 1, n_out, stderr);
        fwrite(errors, 1, n_err, stderr);
    }
    free(zr_ab_output_metrics(ab, run, text, how->regex, how->n_regex));
    free(zr_ab_output_metrics(ab, run, errors, how->regex, how->n_regex));
    if (ab->same_output && how->n_files == 0) {
        zr_ab_hash_text(text, n_out, hash);
        zr_pairs_set(&run->fingerprint, "output", hash);
    }
    for (size_t i = 0; i < how->n_files; i++) {
        char *name = zr_ab_text("output.%s", how->file[i]);
        zr_pairs_set(&run->fingerprint, name, zr_ab_hash_file(how->file[i], hash) ? hash : ZR_AB_NO_FILE);
        free(name);
    }
    if (run->status && !zr_ab_interrupted) {
        size_t tail = n_err ? n_err : n_out, from = tail > 1000 ? tail - 1000 : 0;
        zr_complain("ab", "the command failed in arm %s (%s %d); the end of its output:", ab->arm[run->arm].name,
                    WIFSIGNALED(run->status) ? "signal" : "exit code",
                    WIFSIGNALED(run->status) ? WTERMSIG(run->status) : WEXITSTATUS(run->status));
        fprintf(stderr, "%s\n", (n_err ? errors : text) + from);
    }
    free(text);
    free(errors);
}

/* Firmware of the cards, where debugfs may be read: "wanted 70.29.2, found 70.44.1" tells the version. */
static void firmware(struct zr_ab_run *run) {
    static const char *const parts[] = {"guc", "huc", "gsc"};

    for (int card = 0; card < 16; card++)
        for (int gt = 0; gt < 2; gt++)
            for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
                char path[512], *text, *found;
                zr_root_path(path, sizeof(path), "/sys/kernel/debug/dri/%d/gt%d/uc/%s_info", card, gt, parts[i]);
                text = zr_read_whole(path, NULL);
                found = text ? strstr(text, "found ") : NULL;
                if (found) {
                    char *key = zr_ab_text("card.dri%d.gt%d.%s_firmware", card, gt, parts[i]);
                    found[6 + strspn(found + 6, "0123456789.")] = 0;
                    zr_pairs_set(&run->fingerprint, key, found + 6);
                    free(key);
                }
                free(text);
            }
}

/* What is known from outside: kernel, command and, without the preload, the libraries. */
static void outside_fingerprint(const struct zr_ab *ab, struct zr_ab_run *run, const struct zr_ab_watch *w,
                                char *const *argv) {
    char path[512], *kernel, *command = zr_ab_quoted(argv);

    zr_root_path(path, sizeof(path), "/proc/sys/kernel/osrelease");
    kernel = zr_read_whole(path, NULL);
    if (kernel) {
        kernel[strcspn(kernel, "\n")] = 0;
        zr_pairs_set(&run->fingerprint, "kernel", kernel);
    }
    zr_pairs_set(&run->fingerprint, "command", command);
    firmware(run);
    for (size_t i = 0; i < w->libraries.n; i++) {
        struct zr_outside_library library;
        const char *name = w->libraries.at[i].name;
        char *key = zr_ab_text("%.*s.build_id", (int)strlen(name) - 5, name);
        zr_pairs_set(&run->fingerprint, name, w->libraries.at[i].value);
        if (zr_outside_library(0, w->libraries.at[i].value, &library))
            zr_pairs_set(&run->fingerprint, key, *library.build_id ? library.build_id : "none");
        free(key);
    }
    for (size_t i = 0; zr_ab_from_outside(&ab->arm[run->arm]) && i < ab->arm[run->arm].n_items; i++)
        if (ab->arm[run->arm].items[i].kind == ZR_AB_ENV) {
            char *key = zr_ab_text("env.%s", ab->arm[run->arm].items[i].key);
            zr_pairs_set(&run->fingerprint, key, ab->arm[run->arm].items[i].value);
            free(key);
        }
    free(kernel);
    free(command);
}

/* --- all of it -------------------------------------------------------------------------------- */

static double seconds(struct timeval t) {
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static void take_figures(struct zr_ab *ab, struct zr_ab_running *how, struct zr_ab_run *run, struct zr_ab_watch *w,
                         const struct rusage *used, const char *name) {
    bool outside = zr_ab_from_outside(&ab->arm[run->arm]);
    double base_active = how->base_active, base_available = how->base_available;

    /* No reading before the first run, as on a machine that is laid out in a folder: its own first one. */
    for (size_t i = 0; isnan(base_available) && i < w->n; i++) {
        base_active = w->sample[i].gpu_active;
        base_available = w->sample[i].mem_available;
    }
    set_metric(ab, run, "cpu", seconds(used->ru_utime) + seconds(used->ru_stime));
    if (!zr_ab_collect(ab, run, name) && !outside && run->status == 0)
        run->invalid = zr_ab_text("the hooks saw no call: the command used no Level Zero device, or was "
                                  "started past the preload");
    else if (!outside && run->status == 0 && !zr_pairs_get(&run->fingerprint, "setting.route"))
        run->invalid = zr_ab_text("no fingerprint was taken inside the process");
    host_metrics(ab, run, w, base_active, base_available, used);
    run->sample = w->sample;
    run->n_samples = w->n;
}

bool zr_ab_run_one(struct zr_ab *ab, struct zr_ab_running *how, size_t arm, size_t number, bool warmup) {
    char name[ZR_RUN_NAME], **owned, *const *argv = zr_ab_command(ab, arm, &owned);
    struct zr_ab_watch w = {0};
    int out = memfd_create("zeroute-ab-out", MFD_CLOEXEC), err = memfd_create("zeroute-ab-err", MFD_CLOEXEC);
    struct zr_program program = {.argv = argv, .out = out, .err = err};
    struct zr_ab_run *run = zr_ab_run_add(ab);

    run->arm = arm;
    run->number = number;
    run->warmup = warmup;
    run->settled = zr_ab_settle(how, &run->waited);
    const char *outer = getenv("ZEROUTE_RUN");
    char *kept = outer ? zr_ab_text("%s", outer) : NULL;
    zr_run_name(name, sizeof(name));
    zr_watched_begin(&w.watched, name);
    double start = zr_clock_seconds();
    int error = argv[0] ? errno : EINVAL;
    if (out >= 0 && err >= 0 && argv[0])
        error = zr_ab_spawn(ab, how, arm, &program);
    if (kept)
        setenv("ZEROUTE_RUN", kept, 1);
    else
        unsetenv("ZEROUTE_RUN");
    free(kept);
    bool fine = program.pid > 0 && !error;
    if (fine) {
        set_metric(ab, run, "wall", watch(how, &w, &program, start, zr_ab_from_outside(&ab->arm[arm])));
        run->status = program.status;
        outside_fingerprint(ab, run, &w, argv);
        take_figures(ab, how, run, &w, &program.used, name);
        take_output(ab, how, run, out, err);
    } else {
        zr_complain("ab", "cannot execute %s: %s", argv[0] ? argv[0] : "an empty command", strerror(error));
        free(w.sample);
    }
    zr_pairs_clear(&w.libraries);
    zr_watched_end(&w.watched);
    if (out >= 0)
        close(out);
    if (err >= 0)
        close(err);
    for (char **word = owned; word && *word; word++)
        free(*word);
    free(owned);
    return fine;
}
