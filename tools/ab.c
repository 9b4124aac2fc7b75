/* zeroute ab: the command line, the plan carried out, the reports. */
#include "ab.h"
#include "ab_run.h"
#include "launch.h"
#include "preload.h"
#include "tools.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_NO_VERDICT = 3, EXIT_COMMAND_FAILED = 1 };

struct options {
    struct zr_ab ab;
    struct zr_ab_running how;
    size_t runs, warmup;
    const char *setup, *prepare, *cleanup;
    const char *report, *html, *sim;
    const char *json, *markdown; /* "": on stdout */
    const char **higher, **lower;
    size_t n_higher, n_lower;
    bool quiet, help;
};

static void help(void)
{
    fputs(
        "usage: zeroute ab [OPTIONS] --a SETTING --b SETTING [--c ...] -- COMMAND [ARGUMENTS]\n"
        "       zeroute ab [OPTIONS] --factor NAME=SETTING|SETTING [--factor ...] -- COMMAND "
        "[ARGUMENTS]\n"
        "       zeroute ab --report FILE.json [--html FILE] [--markdown[=FILE]] [--primary "
        "METRIC]\n"
        "\n"
        "Runs COMMAND under two or more settings, interleaved, and says what differs - or that "
        "nothing does, or\n"
        "that nobody could tell because more than the declared setting differed between the runs.\n"
        "\n"
        "A SETTING is made of these, with commas between them, on top of the preset observe:\n"
        "  KNOB:VALUE        a knob, for example route:native or residency:owner\n"
        "  PRESET            observe, reroute, path, mitigate or eager\n"
        "  env:NAME=VALUE    a variable; a comma in VALUE is fine where no other item follows it\n"
        "                    (env:ZE_AFFINITY_MASK=0,1), \\, where one would\n"
        "  lib:/FOLDER       in front of LD_LIBRARY_PATH: another driver or runtime\n"
        "  cmd:COMMAND ARGS  this command instead; takes the rest of the text\n"
        "  none              without the preload, measured from outside: the control\n"
        "An option --a that is given twice adds to the same arm.\n"
        "\n"
        "  --runs N          per arm (default 10; fewer than 5 give figures and no verdict)\n"
        "  --warmup N        rounds before, not counted (default 1)\n"
        "  --order ORDER     abba (default) or random, by the seed\n"
        "  --seed N          for the order and the bootstrap (default 1)\n"
        "  --primary METRIC  the metric that the verdict is about (default wall)\n"
        "  --metric REGEX    every 'name: number' of the output whose name matches; with a group "
        "in the\n"
        "                    expression, the number that the group matches\n"
        "  --higher METRIC   more of this metric is better (--lower: less is)\n"
        "  --same-output     the output must be the same in all runs (--same-output=FILE: this "
        "file)\n"
        "  --allow WHAT      admit a difference by its name in the report; 'together' admits arms "
        "that differ\n"
        "                    in several settings at once\n"
        "  --effect PERCENT  the size to tell the needed runs for\n"
        "  --setup, --cleanup COMMAND   shell command once per arm, before and after all runs\n"
        "  --prepare COMMAND            shell command before each run; ZEROUTE_ARM tells the arm\n"
        "  --settle SECONDS  how long to wait for memory to be back at its baseline (default 10)\n"
        "  --interval MS     between samples of memory (default 10)\n"
        "  --sim[=SPEC]      on a simulated GPU\n"
        "  --show-output     what the command prints goes to stderr\n"
        "  --quiet           no progress\n"
        "  --json[=FILE]     everything raw\n"
        "  --html FILE       one self-contained page\n"
        "  --markdown[=FILE] for a pull request\n"
        "\n"
        "exit code: 0 a verdict, 3 none (it says why), 1 the command failed, 125 our own failure\n"
        "\n"
        "examples:\n"
        "  zeroute ab --a route:native --b route:auto -- python train.py\n"
        "  zeroute ab --primary host.mirror --a residency:asked --b residency:owner --same-output "
        "\\\n"
        "      --html report.html -- ./infer\n"
        "  zeroute ab --factor 'path=route:native|route:sycl' \\\n"
        "      --factor 'cards=env:ZE_AFFINITY_MASK=0|env:ZE_AFFINITY_MASK=0,1' -- ./train\n"
        "  zeroute ab --a none --b observe -- ./train           what does watching cost?\n",
        stdout);
}

/* --- command line ----------------------------------------------------------------------------- */

/* Takes what a parser found wrong, or NULL; true when nothing was. */
static bool right(char *message)
{
    bool fine = message == NULL;

    if (!fine)
        zr_complain("ab", "%s", message);
    free(message);
    return fine;
}

static bool whole_number(const char *option, const char *value, size_t least, size_t most,
                         size_t *out)
{
    char *end;

    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    if (isdigit((unsigned char)*value) && !*end && !errno && n >= least && n <= most) {
        *out = (size_t)n;
        return true;
    }
    zr_complain("ab", "bad value '%s' of --%s: expected a whole number from %zu to %zu", value,
                option, least, most);
    return false;
}

static bool real_number(const char *option, const char *value, double *out)
{
    char *end;

    *out = strtod(value, &end);
    if (end != value && !*end && isfinite(*out) && *out >= 0)
        return true;
    zr_complain("ab", "bad value '%s' of --%s: expected a number, 0 or more", value, option);
    return false;
}

static void push(const char ***list, size_t *n, const char *value)
{
    *list = zr_ab_more(*list, *n + 1, sizeof(**list));
    (*list)[(*n)++] = value;
}

static bool add_arm(struct zr_ab *ab, char letter, const char *text)
{
    struct zr_ab_arm *arm = NULL;

    for (size_t i = 0; i < ab->n_arms; i++)
        if (ab->arm[i].name[0] == letter)
            arm = &ab->arm[i];
    if (!arm) {
        arm = &ab->arm[ab->n_arms++];
        arm->name = zr_ab_text("%c", letter);
    }
    char *message = zr_ab_arm_parse(arm, text);
    bool fine = right(message ? zr_ab_text("--%c: %s", letter, message) : NULL);
    free(message);
    return fine;
}

static bool add_regex(struct options *o, const char *value)
{
    regex_t re;
    int code = regcomp(&re, value, REG_EXTENDED);
    char why[128];

    if (code) {
        regerror(code, &re, why, sizeof(why));
        zr_complain("ab", "bad expression '%s' of --metric: %s", value, why);
        return false;
    }
    regfree(&re);
    push(&o->how.regex, &o->how.n_regex, value);
    return true;
}

static bool set_order(struct zr_ab *ab, const char *value)
{
    ab->random_order = !strcmp(value, "random");
    if (ab->random_order || !strcmp(value, "abba"))
        return true;
    zr_complain("ab", "bad value '%s' of --order: expected abba or random", value);
    return false;
}

static bool add_factor(struct zr_ab *ab, const char *value)
{
    if (ab->n_factors == ZR_AB_FACTORS)
        return right(zr_ab_text("more than %d factors", ZR_AB_FACTORS));
    return right(zr_ab_factor_parse(&ab->factor[ab->n_factors++], value));
}

/* Options that take a value; false, said, when it is no good. */
static bool valued(struct options *o, const char *name, const char *value)
{
    struct zr_ab *ab = &o->ab;
    double ms;
    size_t seed;

    if (strlen(name) == 1 && islower((unsigned char)*name))
        return add_arm(ab, *name, value);
    if (!strcmp(name, "factor"))
        return add_factor(ab, value);
    if (!strcmp(name, "runs"))
        return whole_number(name, value, 1, 10000, &o->runs);
    if (!strcmp(name, "warmup"))
        return whole_number(name, value, 0, 1000, &o->warmup);
    if (!strcmp(name, "order"))
        return set_order(ab, value);
    if (!strcmp(name, "seed")) {
        bool fine = whole_number(name, value, 0, SIZE_MAX, &seed);
        ab->seed = seed;
        return fine;
    }
    if (!strcmp(name, "primary")) {
        free(ab->primary);
        ab->primary = zr_ab_text("%s", value);
        return true;
    }
    if (!strcmp(name, "metric"))
        return add_regex(o, value);
    if (!strcmp(name, "allow")) {
        ab->allow = zr_ab_more(ab->allow, ab->n_allow + 1, sizeof(*ab->allow));
        ab->allow[ab->n_allow++] = zr_ab_text("%s", value);
        return true;
    }
    if (!strcmp(name, "effect"))
        return real_number(name, value, &ab->effect);
    if (!strcmp(name, "settle"))
        return real_number(name, value, &o->how.settle);
    if (!strcmp(name, "interval")) {
        if (!real_number(name, value, &ms))
            return false;
        o->how.interval = fmax(ms, 1) / 1000;
        return true;
    }
    if (!strcmp(name, "higher"))
        push(&o->higher, &o->n_higher, value);
    else if (!strcmp(name, "lower"))
        push(&o->lower, &o->n_lower, value);
    else
        *(!strcmp(name, "setup")     ? &o->setup
          : !strcmp(name, "prepare") ? &o->prepare
          : !strcmp(name, "cleanup") ? &o->cleanup
          : !strcmp(name, "report")  ? &o->report
                                     : &o->html) = value;
    return true;
}

/* Options without a value, or with one behind '='. */
static bool plain(struct options *o, const char *name, const char *value)
{
    if (!strcmp(name, "json"))
        o->json = value ? value : "";
    else if (!strcmp(name, "markdown"))
        o->markdown = value ? value : "";
    else if (!strcmp(name, "sim"))
        o->sim = value ? value : "";
    else if (!strcmp(name, "show-output") && !value)
        o->how.show_output = true;
    else if (!strcmp(name, "quiet") && !value)
        o->quiet = true;
    else if (!strcmp(name, "same-output")) {
        o->ab.same_output = true;
        if (value)
            push(&o->how.file, &o->how.n_files, value);
    } else {
        return false;
    }
    return true;
}

static bool takes_value(const char *name)
{
    static const char *const names[] = {
        "factor", "runs",     "warmup", "order", "seed",  "primary", "metric",  "allow",  "effect",
        "settle", "interval", "higher", "lower", "setup", "prepare", "cleanup", "report", "html"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strcmp(names[i], name))
            return true;
    return strlen(name) == 1 && islower((unsigned char)*name);
}

/* --json and --markdown take their file behind a '='; one that names itself is no command. */
static bool is_report(const char *name, const char *word)
{
    const char *dot = strrchr(word, '.');

    return *word != '-' && dot && ((!strcmp(name, "json") && !strcmp(dot, ".json")) ||
                                   (!strcmp(name, "markdown") && !strcmp(dot, ".md")));
}

static bool parse(struct options *o, int argc, char **argv)
{
    int i = 1;

    for (; i < argc && argv[i][0] == '-'; i++) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        const char *text = argv[i] + (argv[i][1] == '-' ? 2 : 0), *equals = strchr(text, '=');
        char *name = equals ? strndup(text, (size_t)(equals - text)) : strdup(text);
        const char *value = equals ? equals + 1 : NULL;
        bool fine = false;
        o->help = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
        if (o->help) {
            free(name);
            return true;
        }
        if (name && !value && i + 1 < argc && is_report(name, argv[i + 1]))
            value = argv[++i];
        if (name && takes_value(name)) {
            if (!value && i + 1 < argc)
                value = argv[++i];
            if (value)
                fine = valued(o, name, value);
            else
                zr_complain("ab", "option --%s needs a value", name);
        } else if (name && plain(o, name, value)) {
            fine = true;
        } else {
            zr_complain("ab",
                        "unknown option '%s': expected one of those that 'zeroute ab --help' lists",
                        argv[i]);
        }
        free(name);
        if (!fine)
            return false;
    }
    size_t words = (size_t)(argc - i);
    o->ab.command = zr_ab_more(NULL, words + 1, sizeof(char *));
    for (size_t w = 0; w < words; w++)
        o->ab.command[w] = zr_ab_text("%s", argv[i + (int)w]);
    o->ab.command[words] = NULL;
    return true;
}

static int by_name(const void *x, const void *y)
{
    return strcmp(((const struct zr_ab_arm *)x)->name, ((const struct zr_ab_arm *)y)->name);
}

static bool check(struct options *o)
{
    struct zr_ab *ab = &o->ab;

    if (ab->n_factors && ab->n_arms)
        return right(
            zr_ab_text("both arms and factors: expected --a, --b ... or --factor, not both"));
    if (ab->n_factors) {
        if (!right(zr_ab_combine(ab)))
            return false;
    } else {
        qsort(ab->arm, ab->n_arms, sizeof(*ab->arm), by_name);
    }
    if (ab->n_arms < 2)
        return right(zr_ab_text("%s: expected at least --a SETTING and --b SETTING, or --factor",
                                ab->n_arms ? "only one arm" : "nothing to compare"));
    for (size_t i = 0; i < ab->n_arms; i++) {
        char **owned;
        bool empty = zr_ab_command(ab, i, &owned)[0] == NULL;
        for (char **word = owned; word && *word; word++)
            free(*word);
        free(owned);
        if (empty)
            return right(
                zr_ab_text("no command: expected zeroute ab [OPTIONS] -- COMMAND [ARGUMENTS]"));
    }
    return true;
}

/* --- carrying it out -------------------------------------------------------------------------- */

static void interrupt(int signal_number)
{
    (void)signal_number;
    zr_ab_interrupted = zr_ab_interrupted + 1;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void progress(const struct options *o, size_t done, size_t all, size_t arm, bool warmup,
                     double since)
{
    char left[ZR_AB_WORD] = "";

    if (o->quiet || !isatty(STDERR_FILENO))
        return;
    if (done) {
        char text[ZR_AB_WORD];
        snprintf(left, sizeof(left), ", about %.100s left",
                 zr_ab_number(text, ZR_AB_SECONDS,
                              round((now() - since) / (double)done * (double)(all - done))));
    }
    if (done == all)
        fputs("\r\033[K", stderr);
    else
        fprintf(stderr, "\r\033[K[%zu/%zu] %s%s%s", done + 1, all, o->ab.arm[arm].name,
                warmup ? ", warm-up" : "", left);
}

/* 0: all runs were made, or it was interrupted; else the exit code. */
static int carry_out(struct options *o)
{
    struct zr_ab *ab = &o->ab;
    size_t rounds = o->warmup + o->runs, all = rounds * ab->n_arms, set_up = 0;
    size_t *warm = zr_ab_plan(ab->n_arms, o->warmup, ab->random_order, ~ab->seed);
    size_t *plan = zr_ab_plan(ab->n_arms, o->runs, ab->random_order, ab->seed);
    double since = now();
    int code = 0;

    for (; set_up < ab->n_arms && !code; set_up++)
        code = zr_ab_shell(ab, set_up, "setup", o->setup) ? 0 : ZR_EXIT_OWN;
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
            code = ZR_EXIT_OWN;
        } else if (ab->run[ab->n_runs - 1].status) {
            code = EXIT_COMMAND_FAILED;
        }
    }
    progress(o, all, all, 0, false, since);
    for (size_t arm = 0; arm < set_up; arm++)
        if (!zr_ab_shell(ab, arm, "cleanup", o->cleanup) && !code)
            code = ZR_EXIT_OWN;
    free(warm);
    free(plan);
    return code;
}

/* Hours of runs must not end in a file that cannot be written. */
static bool can_write(const struct options *o)
{
    const char *const files[] = {o->json, o->html, o->markdown};

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        FILE *f = files[i] && *files[i] ? fopen(files[i], "ae") : stdout;
        if (!f) {
            zr_complain("ab", "cannot write %s: %s", files[i], strerror(errno));
            return false;
        }
        if (f != stdout)
            fclose(f);
    }
    return true;
}

static int run_all(struct options *o, int argc, char **argv)
{
    struct sigaction act = {.sa_handler = interrupt};
    struct zr_ab *ab = &o->ab;
    char root[512] = "", started[32], *line;
    time_t seconds = time(NULL);
    struct tm utc;

    if (!check(o) || !can_write(o) ||
        !zr_preload_find("ab", o->how.library, sizeof(o->how.library)) ||
        (o->sim && !zr_simulate("ab", o->sim, root, sizeof(root))))
        return ZR_EXIT_OWN;
    if (getenv("ZEROUTE_CONF") || getenv("ZEROUTE_CONF_FILE"))
        zr_complain(
            "ab",
            "ZEROUTE_CONF and ZEROUTE_CONF_FILE are not used here: every knob comes from its arm");
    strftime(started, sizeof(started), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    ab->started = zr_ab_text("%s", started);
    line = zr_ab_quoted(argv);
    ab->repeat = zr_ab_text("zeroute %s", line);
    free(line);
    (void)argc;
    ab->planned = o->runs;
    zr_ab_metrics_add(ab);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    int code = carry_out(o);
    zr_ab_machine(ab);
    zr_simulate_end(root);
    return code;
}

/* --- reports ---------------------------------------------------------------------------------- */

static bool write_file(const char *path, const struct zr_ab *ab, const struct zr_ab_analysis *an,
                       void (*report)(FILE *, const struct zr_ab *, const struct zr_ab_analysis *))
{
    FILE *f = *path ? fopen(path, "we") : stdout;
    bool fine = f != NULL;

    if (f) {
        report(f, ab, an);
        fine = fflush(f) == 0 && !ferror(f);
        if (*path)
            fine &= fclose(f) == 0;
    }
    if (!fine)
        zr_complain("ab", "cannot write %s: %s", *path ? path : "the report", strerror(errno));
    return fine;
}

static void set_better(struct options *o)
{
    for (size_t i = 0; i < o->n_higher + o->n_lower; i++) {
        bool higher = i < o->n_higher;
        const char *name = higher ? o->higher[i] : o->lower[i - o->n_higher];
        size_t m = zr_ab_metric_index(&o->ab, name);
        if (m < o->ab.n_metrics)
            o->ab.metric[m].better = higher ? ZR_AB_HIGHER : ZR_AB_LOWER;
        else
            zr_complain("ab", "--%s: no metric '%s' was measured", higher ? "higher" : "lower",
                        name);
    }
}

static bool reports(struct options *o, const struct zr_ab_analysis *an)
{
    bool to_stdout = (o->json && !*o->json) || (o->markdown && !*o->markdown), fine = true;

    if (o->json)
        fine &= write_file(o->json, &o->ab, an, zr_ab_report_json);
    if (o->html)
        fine &= write_file(o->html, &o->ab, an, zr_ab_report_html);
    if (o->markdown)
        fine &= write_file(o->markdown, &o->ab, an, zr_ab_report_markdown);
    if (!to_stdout)
        fine &= write_file("", &o->ab, an, zr_ab_report_terminal);
    return fine;
}

/* A recorded comparison, reported anew; a primary metric and differences allowed now add to its own. */
static bool load(struct options *o)
{
    struct zr_ab asked = o->ab;

    o->ab = (struct zr_ab){0};
    if (asked.n_arms || asked.n_factors || (asked.command && asked.command[0])) {
        zr_ab_clear(&asked);
        return right(
            zr_ab_text("--report runs nothing: expected no arms and no command beside it"));
    }
    bool fine = right(zr_ab_load(&o->ab, o->report));
    if (fine && asked.primary) {
        free(o->ab.primary);
        o->ab.primary = zr_ab_text("%s", asked.primary);
    }
    for (size_t i = 0; fine && i < asked.n_allow; i++)
        fine = valued(o, "allow", asked.allow[i]);
    if (fine && asked.effect > 0)
        o->ab.effect = asked.effect;
    zr_ab_clear(&asked);
    return fine;
}

int zr_cmd_ab(int argc, char **argv)
{
    struct options *o = calloc(1, sizeof(*o));
    struct zr_ab_analysis *an = calloc(1, sizeof(*an));
    int code = ZR_EXIT_OWN;

    if (!o || !an)
        return code;
    *o = (struct options){.runs = 10, .warmup = 1};
    o->ab.seed = 1;
    o->how.interval = 0.01;
    o->how.settle = 10;
    o->how.base_active = o->how.base_available = NAN;
    bool parsed = parse(o, argc, argv);
    if (o->help) {
        help();
        code = 0;
    } else if (parsed) {
        code = o->report ? (load(o) ? 0 : ZR_EXIT_OWN) : run_all(o, argc, argv);
        if (code != ZR_EXIT_OWN) {
            set_better(o);
            zr_ab_analyse(&o->ab, an);
            if (!reports(o, an))
                code = ZR_EXIT_OWN;
            else if (!code)
                code = an->verdict ? 0 : EXIT_NO_VERDICT;
            zr_ab_analysis_clear(an);
        }
    }
    zr_ab_clear(&o->ab);
    free(o->how.regex);
    free(o->how.file);
    free(o->higher);
    free(o->lower);
    free(o);
    free(an);
    return code;
}
