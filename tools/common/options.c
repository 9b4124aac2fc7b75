/* The command line of every command: one table gives parsing, --help and the message for what is not understood. */
#include "common/common.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MAX = 160, LIST_OPTIONS = -2 };
enum { COLUMN = 22, WIDTH = 80 }; /* of --help: where the explanations begin, and where they end */

static bool has_short_form(const struct zr_option *o) {
    return o->id < ZR_LONG && isalnum(o->id);
}

/* --- --help ----------------------------------------------------------------------------------- */

static void print_option(const struct zr_option *o) {
    char head[128];
    bool optional = o->argument && o->argument[0] == '[';
    int n = has_short_form(o) ? snprintf(head, sizeof head, "-%c, ", o->id) : 0;
    snprintf(head + n, sizeof head - (size_t)n, "--%s%s%s%s", o->name,
             optional      ? "[="
             : o->argument ? " "
                           : "",
             o->argument ? o->argument + optional : "", "");
    int used = printf("  %s", head);
    if (used > COLUMN - 2)
        printf("\n%*s", COLUMN, "");
    else
        printf("%*s", COLUMN - used, "");
    for (const char *text = o->help; *text;) {
        size_t length = strcspn(text, "\n");
        char *line = strndup(text, length);
        if (text != o->help)
            printf("%*s", COLUMN, "");
        zr_text_wrap(stdout, COLUMN, WIDTH, line ? line : "");
        free(line);
        text += length + (text[length] == '\n');
    }
}

/* The lines of `text`, each behind `first` or, from the second on, behind as many spaces. */
static void print_lines(const char *first, const char *text) {
    for (int line = 0; *text; line++) {
        int n = (int)strcspn(text, "\n");
        if (line)
            printf("%*s%.*s\n", (int)strlen(first), "", n, text);
        else
            printf("%s%.*s\n", first, n, text);
        text += n + (text[n] == '\n');
    }
}

/* Lines that begin with a space are a list and stay as they are; others are wrapped. */
static void print_notes(const char *text) {
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        char *line = strndup(text, n);
        if (line && *line && *line != ' ')
            zr_text_wrap(stdout, 0, WIDTH, line);
        else
            puts(line ? line : "");
        free(line);
    }
}

static void print_help(const struct zr_command *c) {
    static const struct zr_option help = {'h', "help", NULL, "show this help and exit"};
    print_lines("Usage: ", c->usage);
    putchar('\n');
    zr_text_wrap(stdout, 0, WIDTH, c->about);
    puts("\nOptions:");
    for (const struct zr_option *o = c->options; o->name; o++)
        if (o->help)
            print_option(o);
    print_option(&help);
    if (c->notes) {
        putchar('\n');
        print_notes(c->notes);
    }
    puts("\nExamples:");
    print_lines("  ", c->examples);
}

/* For completion: one option to a line, with its value and its help behind tabs. */
static void list_options(const struct zr_command *c) {
    for (const struct zr_option *o = c->options; o->name; o++)
        if (o->help)
            printf("--%s\t%s\t%.*s\n", o->name, o->argument ? o->argument : "", (int)strcspn(o->help, "\n"), o->help);
    puts("--help\t\tshow this help and exit");
}

/* --- parsing ---------------------------------------------------------------------------------- */

int zr_wrong(const struct zr_command *c, const char *what) {
    bool asks = *what && what[strlen(what) - 1] == '?';
    zr_complain(c->name, "%s%s 'zeroute %s --help'", what, asks ? " See" : "; see", c->name);
    return ZR_EXIT_ERROR;
}

static const struct zr_option *find(const struct zr_command *c, int id) {
    for (const struct zr_option *o = c->options; o->name; o++)
        if (o->id == id)
            return o;
    return NULL;
}

/* The option that getopt_long has just read, as it was typed. */
static const char *typed(char **argv) {
    return argv[optind - (optarg && optarg == argv[optind - 1] ? 2 : 1)];
}

static void suggest(const struct zr_command *c, const char *word, char *text, size_t size) {
    size_t used = strlen(text);
    struct zr_nearest n = {.word = word + strspn(word, "-")};
    n.length = strcspn(n.word, "=");
    for (const struct zr_option *o = c->options; o->name; o++)
        if (o->help || !o->name[1])
            zr_nearest_try(&n, o->name, strlen(o->name));
    zr_nearest_try(&n, "help", 4);
    if (n.best && word[0] == '-' && word[1] == '-')
        snprintf(text + used, size - used, ": did you mean '--%s'?", n.best);
}

static int not_understood(const struct zr_command *c, int code, char **argv, const struct zr_option *o) {
    const char *word = typed(argv);
    char text[256];
    if (code == ':')
        snprintf(text, sizeof text, "option %s needs a value: expected %s", word,
                 o && o->argument ? o->argument : "one");
    else if (o && strchr(word, '='))
        snprintf(text, sizeof text, "option --%s takes no value: '%s' was given", o->name, strchr(word, '=') + 1);
    else if (optopt && !o)
        snprintf(text, sizeof text, "unknown option '-%c'", optopt);
    else
        snprintf(text, sizeof text, "unknown option '%.100s'", word);
    if (code != ':' && !(o && strchr(word, '=')))
        suggest(c, word, text, sizeof text);
    return zr_wrong(c, text);
}

/* getopt_long takes abbreviations; a later option could make them mean something else, so they are refused. */
static bool is_abbreviated(const struct option *found, char **argv) {
    return strcspn(typed(argv) + 2, "=") != strlen(found->name);
}

/* "[FILE.json]" also takes the next word if it ends in .json. */
static const char *next_word(const struct zr_option *o, int argc, char **argv) {
    const char *kind = o->argument ? strchr(o->argument, '.') : NULL;
    const char *dot = optind < argc && argv[optind][0] != '-' ? strrchr(argv[optind], '.') : NULL;
    if (o->argument[0] != '[' || !kind || !dot || strlen(kind) != strlen(dot) + 1 || strncmp(kind, dot, strlen(dot)))
        return NULL;
    return argv[optind++];
}

/* --cache_limit is understood as --cache-limit. */
static const char *with_underscores(const char *name) {
    static char names[OPTIONS_MAX][32];
    static size_t used;
    for (size_t i = 0; i < used; i++)
        if (strlen(names[i]) == strlen(name)) {
            size_t at = 0;
            while (name[at] && (names[i][at] == name[at] || (names[i][at] == '_' && name[at] == '-')))
                at++;
            if (!name[at])
                return names[i];
        }
    if (used == OPTIONS_MAX || !strchr(name, '-'))
        return NULL;
    char *copy = names[used++];
    snprintf(copy, sizeof names[0], "%s", name);
    for (char *p = copy; (p = strchr(p, '-'));)
        *p = '_';
    return copy;
}

static void describe(const struct zr_command *c, struct option *longs, char *shorts) {
    size_t n = 0;
    if (c->program)
        *shorts++ = '+';
    shorts = stpcpy(shorts, ":h");
    longs[n++] = (struct option){"help", no_argument, NULL, 'h'};
    longs[n++] = (struct option){"list-options", no_argument, NULL, LIST_OPTIONS};
    for (const struct zr_option *o = c->options; o->name && n < OPTIONS_MAX - 2; o++) {
        const char *other = with_underscores(o->name);
        int kind = !o->argument ? no_argument : o->argument[0] == '[' ? optional_argument : required_argument;
        longs[n++] = (struct option){o->name, kind, NULL, o->id};
        if (other)
            longs[n++] = (struct option){other, kind, NULL, o->id};
        if (!has_short_form(o))
            continue;
        *shorts++ = (char)o->id;
        shorts = stpcpy(shorts, kind == no_argument ? "" : kind == required_argument ? ":" : "::");
    }
    longs[n] = (struct option){0};
    *shorts = '\0';
}

/* -1: go on; otherwise the exit code. */
static int one_option(const struct zr_command *c, int code, const struct option *found, int argc, char **argv,
                      zr_take_option *take, void *to, bool *given) {
    const struct zr_option *o = find(c, code);
    if (code == 'h') {
        print_help(c);
        return ZR_EXIT_DONE;
    }
    if (code == LIST_OPTIONS) {
        list_options(c);
        return ZR_EXIT_DONE;
    }
    if (!o || (found && is_abbreviated(found, argv)))
        return not_understood(c, o ? '?' : code, argv, find(c, optopt));
    if (o->argument && optarg && strcmp(optarg, "--") == 0 && argv[optind - 1] == optarg)
        return not_understood(c, ':', argv, o);
    given[o - c->options] = true;
    const char *value = o->argument && !optarg ? next_word(o, argc, argv) : optarg;
    return take(to, o, value) ? -1 : ZR_EXIT_ERROR;
}

/* Options of which one rules out the other; -1: none such were given together. */
static int check_contradictions(const struct zr_command *c, const bool *given) {
    char what[160];
    for (const char *group = c->one_of; group && *group; group += strcspn(group, ";") + (strchr(group, ';') != NULL)) {
        const char *first = NULL;
        for (int i = 0; c->options[i].name; i++) {
            const char *name = c->options[i].name;
            size_t n = strlen(name);
            bool member = false;
            for (const char *at = group; *at && *at != ';'; at += strcspn(at, "|;") + (at[strcspn(at, "|;")] == '|'))
                member |= strcspn(at, "|;") == n && !strncmp(at, name, n);
            if (!member || !given[i])
                continue;
            if (first) {
                snprintf(what, sizeof what, "--%s and --%s together: expected one of them", first, name);
                return zr_wrong(c, what);
            }
            first = name;
        }
    }
    return -1;
}

static int check_operands(const struct zr_command *c, int given) {
    char what[160], number[16];
    if (c->program || (given >= c->least && given <= c->most))
        return -1;
    snprintf(number, sizeof number, given ? "%d" : "no", given);
    snprintf(what, sizeof what, "%s operand%s given: expected %s", number, given > 1 ? "s" : "",
             c->operands ? c->operands : "none");
    return zr_wrong(c, what);
}

bool zr_options(const struct zr_command *c, int argc, char **argv, zr_take_option *take, void *to, int *at) {
    struct option longs[OPTIONS_MAX];
    char shorts[3 * OPTIONS_MAX];
    bool given[OPTIONS_MAX] = {0};
    int code, index = -1, end = -1;
    describe(c, longs, shorts);
    opterr = 0;
    optind = 0;
    while (end < 0 && (code = getopt_long(argc, argv, shorts, longs, &index)) != -1) {
        end = one_option(c, code, index < 0 ? NULL : &longs[index], argc, argv, take, to, given);
        index = -1;
    }
    if (end < 0)
        end = check_contradictions(c, given);
    if (end < 0)
        end = check_operands(c, argc - optind);
    *at = end < 0 ? optind : end;
    return end < 0;
}

/* --- values ----------------------------------------------------------------------------------- */

bool zr_option_bad(const struct zr_command *c, const struct zr_option *o, const char *value, const char *expected) {
    zr_complain(c->name, "bad value '%s' of --%s: expected %s; see 'zeroute %s --help'", value, o->name, expected,
                c->name);
    return false;
}

bool zr_option_number(const struct zr_command *c, const struct zr_option *o, const char *value, uint64_t least,
                      uint64_t most, uint64_t *out) {
    char *end, expected[80];
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    if (isdigit((unsigned char)*value) && !*end && !errno && n >= least && n <= most) {
        *out = n;
        return true;
    }
    snprintf(expected, sizeof expected, "a whole number from %llu to %llu", (unsigned long long)least,
             (unsigned long long)most);
    return zr_option_bad(c, o, value, expected);
}

bool zr_option_real(const struct zr_command *c, const struct zr_option *o, const char *value, double least,
                    double *out) {
    char *end, expected[80];
    double n = strtod(value, &end);
    if (end != value && !*end && isfinite(n) && n >= least) {
        *out = n;
        return true;
    }
    snprintf(expected, sizeof expected, "a number, at least %g", least);
    return zr_option_bad(c, o, value, expected);
}

bool zr_option_bytes(const struct zr_command *c, const struct zr_option *o, const char *value, uint64_t *out) {
    return zr_text_parse_bytes(value, out) || zr_option_bad(c, o, value, "a size such as 2GiB");
}

bool zr_option_choice(const struct zr_command *c, const struct zr_option *o, const char *value, const char *choices) {
    size_t n = strlen(value);
    char expected[200];
    for (const char *at = choices; *at; at += strcspn(at, "|") + (at[strcspn(at, "|")] == '|'))
        if (strcspn(at, "|") == n && strncmp(at, value, n) == 0)
            return true;
    struct zr_nearest near = {.word = value, .length = n};
    zr_nearest_try_list(&near, choices);
    if (near.best)
        snprintf(expected, sizeof expected, "one of %s (did you mean '%.*s'?)", choices, (int)near.best_length,
                 near.best);
    else
        snprintf(expected, sizeof expected, "one of %s", choices);
    return zr_option_bad(c, o, value, expected);
}

bool zr_operand_pid(const struct zr_command *c, const char *text, int *pid) {
    char *end, what[160];
    errno = 0;
    long n = strtol(text, &end, 10);
    *pid = (int)n;
    if (isdigit((unsigned char)*text) && !*end && !errno && n >= 1 && n <= 4194304)
        return true;
    snprintf(what, sizeof what, "bad operand '%.60s': expected a process id", text);
    zr_wrong(c, what);
    return false;
}
