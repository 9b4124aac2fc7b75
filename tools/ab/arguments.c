/* The command line of zeroute ab. */
#include "ab/ab.h"
#include "base/settings.h"
#include "common/common.h"

#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUNS = ZR_LONG,
    WARMUP,
    ORDER,
    SEED,
    PRIMARY,
    METRIC,
    HIGHER,
    LOWER,
    SAME_OUTPUT,
    ALLOW,
    EFFECT,
    SETUP,
    PREPARE,
    CLEANUP,
    SETTLE,
    INTERVAL,
    SIM,
    SHOW_OUTPUT,
    QUIET,
    REPORT,
    JSON,
    HTML,
    MARKDOWN,
    ARM /* + letter */
};

#define ARM_ROW(letter, name)                                                                                          \
    { ARM + (letter), name, "SETTING", NULL }
static const struct zr_option option_table[] = {
    {ARM + 'a', "a", "SETTING", "the first arm; --b, --c ... are further ones. Given twice, it adds to the same arm"},
    {RUNS, "runs", "N", "counted runs per arm (default 10; fewer than 5 give figures and no verdict)"},
    {WARMUP, "warmup", "N", "rounds before, not counted (default 1)"},
    {ORDER, "order", "ORDER", "abba (default) or random, by the seed"},
    {SEED, "seed", "N", "seed of the order and the bootstrap (default 1)"},
    {PRIMARY, "primary", "METRIC",
     "what the verdict is about (default: by what differs between the arms; several with commas)"},
    {METRIC, "metric", "REGEX",
     "measure every 'name: number' of the output whose name matches; with a group in the expression, the number that "
     "the group matches"},
    {HIGHER, "higher", "METRIC", "more of this metric is better"},
    {LOWER, "lower", "METRIC", "less of this metric is better"},
    {SAME_OUTPUT, "same-output", "[FILE]", "require the same output, or the same FILE, in all runs"},
    {ALLOW, "allow", "WHAT",
     "accept a difference by its name in the report; 'together' accepts arms that differ in several settings"},
    {EFFECT, "effect", "PERCENT", "report how many runs a difference of this size would need"},
    {SETUP, "setup", "COMMAND", "shell command once per arm, before all runs"},
    {PREPARE, "prepare", "COMMAND", "shell command before each run; ZEROUTE_ARM is its arm"},
    {CLEANUP, "cleanup", "COMMAND", "shell command once per arm, after all runs"},
    {SETTLE, "settle", "SECONDS", "how long to wait for memory to be back at its baseline (default 10)"},
    {INTERVAL, "interval", "MS", "time between samples of memory (default 10)"},
    {SIM, "sim", "[SPEC]", "use a simulated GPU"},
    {SHOW_OUTPUT, "show-output", NULL, "pass what the command prints on to stderr"},
    {QUIET, "quiet", NULL, "show no progress"},
    {'v', "verbose", NULL, "show what is unchanged, too"},
    {REPORT, "report", "FILE", "report a recorded comparison anew; nothing is run"},
    {JSON, "json", "[FILE.json]", "write everything, the raw values included, as JSON"},
    {HTML, "html", "FILE", "write one self-contained page"},
    {MARKDOWN, "markdown", "[FILE.md]", "write the report for a pull request"},
    ARM_ROW('b', "b"),
    ARM_ROW('c', "c"),
    ARM_ROW('d', "d"),
    ARM_ROW('e', "e"),
    ARM_ROW('f', "f"),
    ARM_ROW('g', "g"),
    ARM_ROW('h', "h"),
    ARM_ROW('i', "i"),
    ARM_ROW('j', "j"),
    ARM_ROW('k', "k"),
    ARM_ROW('l', "l"),
    ARM_ROW('m', "m"),
    ARM_ROW('n', "n"),
    ARM_ROW('o', "o"),
    ARM_ROW('p', "p"),
    ARM_ROW('q', "q"),
    ARM_ROW('r', "r"),
    ARM_ROW('s', "s"),
    ARM_ROW('t', "t"),
    ARM_ROW('u', "u"),
    ARM_ROW('v', "v"),
    ARM_ROW('w', "w"),
    ARM_ROW('x', "x"),
    ARM_ROW('y', "y"),
    ARM_ROW('z', "z"),
    {0},
};

static const char notes_format[] =
    "A SETTING is made of these, with commas between them, on top of the preset observe:\n"
    "  NAME:VALUE        a setting, for example route:native or residency:owner\n"
    "  PRESET            %s\n"
    "  env:NAME=VALUE    a variable; a comma in VALUE is fine where no other item\n"
    "                    follows (env:ZE_AFFINITY_MASK=0,1), else write \\,\n"
    "  lib:/FOLDER       in front of LD_LIBRARY_PATH: another driver or runtime\n"
    "  cmd:COMMAND ARGS  this command instead; takes the rest of the text\n"
    "  none              without the preload, measured from outside: the control\n"
    "\n"
    "Exit code: 0 a verdict, 2 an error, wrong usage, or the command failed, 3 no verdict (it says why).\n";

static struct zr_command command = {
    .name = "ab",
    .usage = "zeroute ab [OPTIONS] --a SETTING --b SETTING [--c ...] -- COMMAND [ARGS]\n"
             "zeroute ab --report FILE.json [--html FILE] [--markdown[=FILE]]",
    .about = "Runs COMMAND under two or more settings, interleaved, and says what differs, or that nothing does, or "
             "that no verdict is possible because more than the declared setting differed between the runs.",
    .options = option_table,
    .examples = "zeroute ab --a route:native --b route:auto -- python train.py\n"
                "zeroute ab --a observe --b mitigate --same-output --html r.html -- ./infer\n"
                "zeroute ab --a none --b observe -- ./train    # what does observing cost?",
    .program = true,
};

bool zr_ab_right(char *message) {
    bool fine = message == NULL;

    if (!fine)
        zr_wrong(&command, message);
    free(message);
    return fine;
}

static void push(const char ***list, size_t *n, const char *value) {
    *list = zr_ab_more(*list, *n + 1, sizeof(**list));
    (*list)[(*n)++] = value;
}

static bool add_arm(struct zr_ab *ab, char letter, const char *text) {
    struct zr_ab_arm *arm = NULL;

    for (size_t i = 0; i < ab->n_arms; i++)
        if (ab->arm[i].name[0] == letter)
            arm = &ab->arm[i];
    if (!arm) {
        arm = &ab->arm[ab->n_arms++];
        arm->name = zr_ab_text("%c", letter);
    }
    char *message = zr_ab_arm_parse(arm, text);
    bool fine = zr_ab_right(message ? zr_ab_text("--%c: %s", letter, message) : NULL);
    free(message);
    return fine;
}

static bool add_regex(struct zr_ab_options *o, const char *value) {
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

void zr_ab_allow(struct zr_ab *ab, const char *what) {
    ab->allow = zr_ab_more(ab->allow, ab->n_allow + 1, sizeof(*ab->allow));
    ab->allow[ab->n_allow++] = zr_ab_text("%s", what);
}

static bool set_number(const struct zr_option *option, const char *value, uint64_t least, uint64_t most, size_t *out) {
    uint64_t n;

    if (!zr_option_number(&command, option, value, least, most, &n))
        return false;
    *out = (size_t)n;
    return true;
}

/* Options that describe what is compared; -1: it is none of them. */
static int take_design(struct zr_ab *ab, const struct zr_option *option, const char *value) {
    switch (option->id) {
    case ORDER:
        ab->random_order = !strcmp(value, "random");
        return zr_option_choice(&command, option, value, "abba|random");
    case SEED:
        return zr_option_number(&command, option, value, 0, UINT64_MAX, &ab->seed);
    case PRIMARY:
        free(ab->primary);
        ab->primary = zr_ab_text("%s", value);
        return true;
    case ALLOW:
        zr_ab_allow(ab, value);
        return true;
    case EFFECT:
        return zr_option_real(&command, option, value, 0, &ab->effect);
    default:
        return option->id > ARM ? add_arm(ab, option->name[0], value) : -1;
    }
}

/* Where an option that is a plain text goes. */
static const char **text_of(struct zr_ab_options *o, int id) {
    switch (id) {
    case SETUP:
        return &o->setup;
    case PREPARE:
        return &o->prepare;
    case CLEANUP:
        return &o->cleanup;
    case REPORT:
        return &o->report;
    case HTML:
        return &o->html;
    case JSON:
        return &o->json;
    case MARKDOWN:
        return &o->markdown;
    default:
        return &o->sim;
    }
}

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct zr_ab_options *o = to;
    int done = take_design(&o->ab, option, value);

    if (done >= 0)
        return done;
    switch (option->id) {
    case RUNS:
        return set_number(option, value, 1, 10000, &o->runs);
    case WARMUP:
        return set_number(option, value, 0, 1000, &o->warmup);
    case METRIC:
        return add_regex(o, value);
    case HIGHER:
        push(&o->higher, &o->n_higher, value);
        return true;
    case LOWER:
        push(&o->lower, &o->n_lower, value);
        return true;
    case SAME_OUTPUT:
        o->ab.same_output = true;
        if (value)
            push(&o->how.file, &o->how.n_files, value);
        return true;
    case SETTLE:
        return zr_option_real(&command, option, value, 0, &o->how.settle);
    case INTERVAL:
        if (!zr_option_real(&command, option, value, 0, &o->how.interval))
            return false;
        o->how.interval = fmax(o->how.interval, 1) / 1000;
        return true;
    case SHOW_OUTPUT:
        o->how.show_output = true;
        return true;
    case QUIET:
        o->quiet = true;
        return true;
    case 'v':
        o->verbose = true;
        return true;
    default:
        *text_of(o, option->id) = value ? value : "";
        return true;
    }
}

/* The presets of the table in the text of the help. */
static void describe_presets(void) {
    static char notes[2048];
    char names[256];
    size_t n = 0;

    for (size_t i = 0; i < zr_preset_count && n < sizeof(names); i++)
        n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", i ? ", " : "", zr_presets[i].name);
    snprintf(notes, sizeof(notes), notes_format, names);
    command.notes = notes;
}

bool zr_ab_parse(struct zr_ab_options *o, int argc, char **argv, int *at) {
    describe_presets();
    if (!zr_options(&command, argc, argv, take, o, at))
        return false;
    size_t words = (size_t)(argc - *at);
    o->ab.command = zr_ab_more(NULL, words + 1, sizeof(char *));
    for (size_t w = 0; w < words; w++)
        o->ab.command[w] = zr_ab_text("%s", argv[*at + (int)w]);
    o->ab.command[words] = NULL;
    return true;
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const struct zr_ab_arm *)x)->name, ((const struct zr_ab_arm *)y)->name);
}

bool zr_ab_check(struct zr_ab_options *o) {
    struct zr_ab *ab = &o->ab;

    qsort(ab->arm, ab->n_arms, sizeof(*ab->arm), by_name);
    if (ab->n_arms < 2)
        return zr_ab_right(zr_ab_text("%s: expected at least --a SETTING and --b SETTING",
                                      ab->n_arms ? "only one arm" : "nothing to compare"));
    for (size_t i = 0; i < ab->n_arms; i++) {
        char **owned;
        bool empty = zr_ab_command(ab, i, &owned)[0] == NULL;
        for (char **word = owned; word && *word; word++)
            free(*word);
        free(owned);
        if (empty)
            return zr_ab_right(zr_ab_text("no command: expected zeroute ab [OPTIONS] -- COMMAND [ARGUMENTS]"));
    }
    return true;
}
