/* The command line of zeroute ab: what it says of itself, and what it makes of what it is told. */
#include "ab/ab.h"
#include "common/common.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

void zr_ab_help(void)
{
    fputs(
        "usage: zeroute ab [OPTIONS] --a SETTING --b SETTING [--c ...] -- COMMAND [ARGUMENTS]\n"
        "       zeroute ab [OPTIONS] --factor NAME=SETTING|SETTING [--factor ...] -- COMMAND [ARGUMENTS]\n"
        "       zeroute ab --report FILE.json [--html FILE] [--markdown[=FILE]] [--primary METRIC]\n"
        "\n"
        "Runs COMMAND under two or more settings, interleaved, and says what differs - or that nothing does, or\n"
        "that nobody could tell because more than the declared setting differed between the runs.\n"
        "\n"
        "A SETTING is made of these, with commas between them, on top of the preset observe:\n"
        "  SETTING:VALUE        a setting, for example route:native or residency:owner\n"
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
        "  --metric REGEX    every 'name: number' of the output whose name matches; with a group in the\n"
        "                    expression, the number that the group matches\n"
        "  --higher METRIC   more of this metric is better (--lower: less is)\n"
        "  --same-output     the output must be the same in all runs (--same-output=FILE: this file)\n"
        "  --allow WHAT      admit a difference by its name in the report; 'together' admits arms that differ\n"
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
        "  zeroute ab --primary host.mirror --a residency:default --b residency:owner --same-output \\\n"
        "      --html report.html -- ./infer\n"
        "  zeroute ab --factor 'path=route:native|route:sycl' \\\n"
        "      --factor 'cards=env:ZE_AFFINITY_MASK=0|env:ZE_AFFINITY_MASK=0,1' -- ./train\n"
        "  zeroute ab --a none --b observe -- ./train           what does watching cost?\n",
        stdout);
}

bool zr_ab_right(char *message)
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
    bool fine = zr_ab_right(message ? zr_ab_text("--%c: %s", letter, message) : NULL);
    free(message);
    return fine;
}

static bool add_regex(struct zr_ab_options *o, const char *value)
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
        return zr_ab_right(zr_ab_text("more than %d factors", ZR_AB_FACTORS));
    return zr_ab_right(zr_ab_factor_parse(&ab->factor[ab->n_factors++], value));
}

void zr_ab_allow(struct zr_ab *ab, const char *what)
{
    ab->allow = zr_ab_more(ab->allow, ab->n_allow + 1, sizeof(*ab->allow));
    ab->allow[ab->n_allow++] = zr_ab_text("%s", what);
}

/* Options that take a value; false, said, when it is no good. */
static bool valued(struct zr_ab_options *o, const char *name, const char *value)
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
        zr_ab_allow(ab, value);
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
static bool plain(struct zr_ab_options *o, const char *name, const char *value)
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

bool zr_ab_parse(struct zr_ab_options *o, int argc, char **argv)
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

bool zr_ab_check(struct zr_ab_options *o)
{
    struct zr_ab *ab = &o->ab;

    if (ab->n_factors && ab->n_arms)
        return zr_ab_right(
            zr_ab_text("both arms and factors: expected --a, --b ... or --factor, not both"));
    if (ab->n_factors) {
        if (!zr_ab_right(zr_ab_combine(ab)))
            return false;
    } else {
        qsort(ab->arm, ab->n_arms, sizeof(*ab->arm), by_name);
    }
    if (ab->n_arms < 2)
        return zr_ab_right(zr_ab_text("%s: expected at least --a SETTING and --b SETTING, or --factor",
                                ab->n_arms ? "only one arm" : "nothing to compare"));
    for (size_t i = 0; i < ab->n_arms; i++) {
        char **owned;
        bool empty = zr_ab_command(ab, i, &owned)[0] == NULL;
        for (char **word = owned; word && *word; word++)
            free(*word);
        free(owned);
        if (empty)
            return zr_ab_right(
                zr_ab_text("no command: expected zeroute ab [OPTIONS] -- COMMAND [ARGUMENTS]"));
    }
    return true;
}
