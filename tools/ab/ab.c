/* zeroute ab: the plan carried out, the reports. */
#include "ab/ab.h"
#include "common/common.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Of carry_out: the exit code is ZR_EXIT_ERROR as well, but there is something to report. */
enum { COMMAND_FAILED = 100 };

/* --- carrying it out -------------------------------------------------------------------------- */

static void interrupt(int signal_number) {
    (void)signal_number;
    zr_ab_interrupted = zr_ab_interrupted + 1;
}

static void progress(const struct zr_ab_options *o, size_t done, size_t all, size_t arm, bool warmup, double since) {
    char left[ZR_AB_WORD] = "";

    if (o->quiet || !isatty(STDERR_FILENO))
        return;
    if (done) {
        char text[ZR_AB_WORD];
        snprintf(left, sizeof(left), ", about %.100s left",
                 zr_ab_number(text, ZR_AB_SECONDS,
                              round((zr_clock_seconds() - since) / (double)done * (double)(all - done))));
    }
    if (done == all)
        fputs("\r\033[K", stderr);
    else
        fprintf(stderr, "\r\033[K[%zu/%zu] %s%s%s", done + 1, all, zr_shown(o->ab.arm[arm].name),
                warmup ? ", warm-up" : "", left);
}

/* Of the runs so far, none that could be watched from inside has touched a device. */
static bool never_touched_a_gpu(const struct zr_ab *ab) {
    size_t watched = 0;

    for (size_t r = 0; r < ab->n_runs; r++) {
        if (zr_ab_from_outside(&ab->arm[ab->run[r].arm]))
            continue;
        watched++;
        if (!ab->run[r].invalid || ab->run[r].status)
            return false;
    }
    return watched > 0;
}

/* 0: all runs were made, or it was interrupted; else the exit code. */
static int carry_out(struct zr_ab_options *o) {
    struct zr_ab *ab = &o->ab;
    size_t rounds = o->warmup + o->runs, all = rounds * ab->n_arms, set_up = 0;
    size_t *warm = zr_ab_plan(ab->n_arms, o->warmup, ab->random_order, ~ab->seed);
    size_t *plan = zr_ab_plan(ab->n_arms, o->runs, ab->random_order, ab->seed);
    double since = zr_clock_seconds();
    int code = 0;

    for (; set_up < ab->n_arms && !code; set_up++)
        code = zr_ab_shell(ab, set_up, "setup", o->setup) ? 0 : ZR_EXIT_ERROR;
    for (size_t i = 0; i < all && !code; i++) {
        bool warmup = i < o->warmup * ab->n_arms;
        size_t arm = warmup ? warm[i] : plan[i - o->warmup * ab->n_arms];
        size_t before = ab->n_runs;
        progress(o, i, all, arm, warmup, since);
        bool made = !zr_ab_interrupted && zr_ab_shell(ab, arm, "prepare", o->prepare) &&
                    zr_ab_run_one(ab, &o->how, arm, i + 1, warmup);
        if (zr_ab_interrupted) {
            ab->interrupted = true;
            if (ab->n_runs > before)
                zr_ab_run_drop(ab); /* the run under way does not count */
            break;
        }
        if (!made) {
            code = ZR_EXIT_ERROR;
        } else if (ab->run[ab->n_runs - 1].status) {
            code = COMMAND_FAILED;
        } else if (i + 1 == ab->n_arms && never_touched_a_gpu(ab)) {
            zr_complain("ab",
                        "the command has not touched a GPU, or was started past the preload (no hook saw a call): "
                        "there is nothing to compare");
            code = ZR_EXIT_ERROR;
        }
    }
    progress(o, all, all, 0, false, since);
    for (size_t arm = 0; arm < set_up; arm++)
        if (!zr_ab_shell(ab, arm, "cleanup", o->cleanup) && !code)
            code = ZR_EXIT_ERROR;
    free(warm);
    free(plan);
    return code;
}

/* Hours of runs must not end in a file that cannot be written. */
static bool can_write(const struct zr_ab_options *o) {
    const char *const files[] = {o->json, o->html, o->markdown};

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        if (files[i] && *files[i] && !zr_publish_possible("ab", files[i]))
            return false;
    return true;
}

/* Hours of runs must not end without the metric that they were made for, either. */
static bool metrics_are_known(struct zr_ab_options *o) {
    const char *const *regex = (const char *const *)o->how.regex;
    char *wrong = o->ab.primary ? zr_ab_unknown_metric(&o->ab, o->ab.primary, regex, o->how.n_regex) : NULL;

    for (size_t i = 0; !wrong && i < o->n_higher + o->n_lower; i++)
        wrong = zr_ab_unknown_metric(&o->ab, i < o->n_higher ? o->higher[i] : o->lower[i - o->n_higher], regex,
                                     o->how.n_regex);
    return zr_ab_right(wrong);
}

static int run_all(struct zr_ab_options *o, char **argv) {
    struct sigaction act = {.sa_handler = interrupt}, hup;
    struct zr_ab *ab = &o->ab;
    char root[512] = "", started[32], *line;
    time_t seconds = time(NULL);
    struct tm utc;

    if (!zr_ab_check(o) || !can_write(o) || !zr_preload_find("ab", o->how.library, sizeof(o->how.library)) ||
        (o->sim && !zr_simulate("ab", o->sim, root, sizeof(root))))
        return ZR_EXIT_ERROR;
    if (getenv("ZEROUTE_CONF") || getenv("ZEROUTE_CONF_FILE"))
        zr_complain("ab", "ZEROUTE_CONF and ZEROUTE_CONF_FILE are not used here: every setting comes from its arm");
    strftime(started, sizeof(started), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    ab->started = zr_ab_text("%s", started);
    line = zr_ab_quoted(argv);
    ab->repeat = zr_ab_text("zeroute %s", line);
    free(line);
    ab->planned = o->runs;
    zr_ab_metrics_add(ab);
    if (!metrics_are_known(o)) {
        zr_simulate_end(root);
        return ZR_EXIT_ERROR;
    }
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    if (sigaction(SIGHUP, NULL, &hup) == 0 && hup.sa_handler != SIG_IGN) /* not under nohup */
        sigaction(SIGHUP, &act, NULL);
    int code = carry_out(o);
    zr_ab_machine(ab);
    zr_simulate_end(root);
    return code;
}

/* --- reports ---------------------------------------------------------------------------------- */

static bool write_file(const char *path, const struct zr_ab_report *r,
                       void (*render)(FILE *, const struct zr_ab_report *)) {
    struct zr_publish to;
    FILE *f = zr_publish_open(&to, "ab", *path ? path : "-");

    if (!f)
        return false;
    render(f, r);
    return zr_publish_close(&to, true);
}

static void set_better(struct zr_ab_options *o) {
    for (size_t i = 0; i < o->n_higher + o->n_lower; i++) {
        bool higher = i < o->n_higher;
        const char *name = higher ? o->higher[i] : o->lower[i - o->n_higher];
        size_t m = zr_ab_metric_index(&o->ab, name);
        if (m < o->ab.n_metrics)
            o->ab.metric[m].better = higher ? ZR_AB_HIGHER : ZR_AB_LOWER;
        else
            zr_complain("ab", "--%s: no metric '%s' was measured", higher ? "higher" : "lower", name);
    }
}

static bool reports(const struct zr_ab_options *o, const struct zr_ab_analysis *an) {
    bool to_stdout = (o->json && !*o->json) || (o->markdown && !*o->markdown), fine = true;
    struct zr_ab_report r;

    zr_ab_report_build(&r, &o->ab, an);
    r.verbose = o->verbose;
    if (o->json)
        fine &= write_file(o->json, &r, zr_ab_report_json);
    if (o->html)
        fine &= write_file(o->html, &r, zr_ab_report_html);
    if (o->markdown)
        fine &= write_file(o->markdown, &r, zr_ab_report_markdown);
    if (!to_stdout)
        fine &= write_file("", &r, zr_ab_report_terminal);
    zr_ab_report_clear(&r);
    return fine;
}

/* Reports a recorded comparison again; --primary and --allow given now add to its own. */
static bool load(struct zr_ab_options *o) {
    struct zr_ab given = o->ab;

    o->ab = (struct zr_ab){0};
    if (given.n_arms || (given.command && given.command[0])) {
        zr_ab_clear(&given);
        return zr_ab_right(zr_ab_text("--report runs nothing: give no arms and no command with it"));
    }
    bool fine = zr_ab_right(zr_ab_load(&o->ab, o->report));
    if (fine && given.primary) {
        free(o->ab.primary);
        o->ab.primary = zr_ab_text("%s", given.primary);
    }
    for (size_t i = 0; fine && i < given.n_allow; i++)
        zr_ab_allow(&o->ab, given.allow[i]);
    if (fine && given.effect > 0)
        o->ab.effect = given.effect;
    zr_ab_clear(&given);
    return fine;
}

/* What the runs say; returns the exit code. */
static int conclude(struct zr_ab_options *o) {
    struct zr_ab_analysis *an = calloc(1, sizeof(*an));
    int code = ZR_EXIT_ERROR;

    if (!an)
        return code;
    set_better(o);
    zr_ab_analyse(&o->ab, an);
    if (reports(o, an))
        code = an->verdict ? ZR_EXIT_DONE : ZR_EXIT_NO_VERDICT;
    zr_ab_analysis_clear(an);
    free(an);
    return code;
}

static int compare(struct zr_ab_options *o, char **argv) {
    if (o->report)
        return load(o) ? conclude(o) : ZR_EXIT_ERROR;
    int code = run_all(o, argv);
    if (code == COMMAND_FAILED) {
        conclude(o);
        return ZR_EXIT_ERROR;
    }
    return code ? code : conclude(o);
}

int zr_cmd_ab(int argc, char **argv) {
    struct zr_ab_options *o = calloc(1, sizeof(*o));
    int code;

    if (!o)
        return ZR_EXIT_ERROR;
    *o = (struct zr_ab_options){.runs = 10, .warmup = 1};
    o->ab.seed = 1;
    o->how.interval = 0.01;
    o->how.settle = 10;
    o->how.base_active = o->how.base_available = NAN;
    if (zr_ab_parse(o, argc, argv, &code))
        code = compare(o, argv);
    zr_ab_clear(&o->ab);
    free(o->how.regex);
    free(o->how.file);
    free(o->higher);
    free(o->lower);
    free(o);
    return code;
}
