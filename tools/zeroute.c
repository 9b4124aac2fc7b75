/* The command: finds the subcommand, and says what there is. */
#include "base/settings.h"
#include "common/common.h"
#include "outside/outside.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *help;
    int (*function)(int argc, char **argv);
} commands[] = {
#define ZR_COMMAND(name, help) {#name, help, zr_cmd_##name},
#include "commands.def"
#undef ZR_COMMAND
};
#define COMMANDS (sizeof commands / sizeof *commands)

/* mirror_test is typed mirror-test. */
static bool is_named(const char *typed, const char *name) {
    for (; *typed && *name; typed++, name++)
        if (*typed != *name && !(*typed == '-' && *name == '_'))
            return false;
    return *typed == *name;
}

static void print_name(FILE *out, const char *name, int width) {
    char shown[32];
    snprintf(shown, sizeof shown, "%s", name);
    for (char *p = shown; *p; p++)
        if (*p == '_')
            *p = '-';
    fprintf(out, "%-*s", width, shown);
}

static void help(FILE *out) {
    fputs("Usage: zeroute COMMAND [OPTIONS]\n"
          "\n"
          "Shows where the memory of Intel GPUs, and the host memory behind it, goes in a\n"
          "program that you cannot change, and stops the waste.\n"
          "\n"
          "Commands:\n",
          out);
    for (size_t i = 0; i < COMMANDS; i++) {
        if (!*commands[i].help) /* a part of another command */
            continue;
        fputs("  ", out);
        print_name(out, commands[i].name, 12);
        fprintf(out, "%s\n", commands[i].help);
    }
    fputs("\n"
          "Examples:\n"
          "  zeroute doctor                              # what is wrong, and what to do\n"
          "  zeroute run -- ./program                    # count, change nothing\n"
          "  zeroute run --sim -- ./program              # on a simulated GPU\n"
          "  zeroute stat                                # who holds how much, now\n"
          "\n"
          "See 'zeroute COMMAND --help' and 'man zeroute'.\n",
          out);
}

static int unknown_command(const char *typed) {
    struct zr_nearest n = {.word = typed, .length = strlen(typed)};
    char name[32] = "";
    for (size_t i = 0; i < COMMANDS; i++)
        if (*commands[i].help)
            zr_nearest_try(&n, commands[i].name, strlen(commands[i].name));
    for (size_t i = 0; n.best && n.best[i] && i < sizeof name - 1; i++)
        name[i] = n.best[i] == '_' ? '-' : n.best[i];
    if (strcmp(typed, "check") == 0)
        zr_complain("", "unknown command 'check': memory errors are found by 'zeroute run --check all -- PROGRAM'");
    else if (n.best)
        zr_complain("", "unknown command '%s': did you mean '%s'?", typed, name);
    else
        zr_complain("", "unknown command '%s': see 'zeroute --help'", typed);
    return ZR_EXIT_ERROR;
}

/* For completion and docs: one thing to a line, its parts separated by tabs. */
static int list(const char *what) {
    if (strcmp(what, "commands") == 0) {
        for (size_t i = 0; i < COMMANDS; i++) {
            if (!*commands[i].help)
                continue;
            print_name(stdout, commands[i].name, 0);
            printf("\t%s\n", commands[i].help);
        }
    } else if (strcmp(what, "settings") == 0) {
        for (size_t i = 0; i < zr_setting_count; i++)
            printf("%s\t%s\t%s\t%s\n", zr_settings[i].name, zr_settings[i].values, zr_settings[i].fallback,
                   zr_settings[i].help);
    } else if (strcmp(what, "presets") == 0) {
        for (size_t i = 0; i < zr_preset_count; i++)
            printf("%s\t%s\t%s\n", zr_presets[i].name, zr_presets[i].settings, zr_presets[i].help);
    } else {
        zr_complain("", "cannot list '%s': expected commands, settings or presets", what);
        return ZR_EXIT_ERROR;
    }
    return ZR_EXIT_DONE;
}

/* Carries out the command; *name is set to whose output it is. */
static int command(int argc, char **argv, const char **name) {
    static char help_option[] = "--help";
    if (argc < 2) {
        help(stderr);
        return ZR_EXIT_ERROR;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        if (argc <= 2 || argv[2][0] == '-') {
            help(stdout);
            return ZR_EXIT_DONE;
        }
        argv[1] = argv[2];
        argv[2] = help_option;
        argc = 3;
    } else if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        zr_print_version(argc > 2 && strcmp(argv[2], "--verbose") == 0);
        return ZR_EXIT_DONE;
    }
    if (strcmp(argv[1], "--list") == 0)
        return list(argc > 2 ? argv[2] : "");
    for (size_t i = 0; i < COMMANDS; i++) {
        if (!is_named(argv[1], commands[i].name))
            continue;
        *name = argv[1];
        return commands[i].function(argc - 1, argv + 1);
    }
    return unknown_command(argv[1]);
}

/* --json without a file: JSON on stdout. That of `run` always takes a file. */
static bool wants_json(int argc, char **argv) {
    for (int i = 2; i < argc && strcmp(argv[1], "run") != 0 && strcmp(argv[i], "--") != 0; i++) {
        const char *next = i + 1 < argc ? strrchr(argv[i + 1], '.') : NULL;
        if ((strcmp(argv[i], "--json") == 0 || strcmp(argv[i], "-j") == 0) && !(next && strcmp(next, ".json") == 0))
            return true;
    }
    return false;
}

/* A reader of JSON gets JSON about a failure, too. */
static void json_of_failure(int code) {
    json_t *document = zr_json_document(1);
    zr_json_text(document, "error", *zr_last_complaint() ? zr_last_complaint() : "wrong usage");
    zr_json_count(document, "code", (uint64_t)code);
    zr_json_write(stdout, document, ZR_JSON_DIGITS, false);
}

int main(int argc, char **argv) {
    const char *name = "";
    bool json = wants_json(argc, argv);
    int code = command(argc, argv, &name);
    if (json && code != 0 && !zr_json_begun)
        json_of_failure(code);
    fflush(stdout);
    zr_outside_complain(stderr);
    /* `run` has said so itself, and its exit code is the program's. */
    if ((fflush(stdout) || ferror(stdout)) && strcmp(name, "run") != 0) {
        zr_complain(name, "cannot write the output"); /* errno is that of a later call by now */
        return ZR_EXIT_ERROR;
    }
    return code;
}
