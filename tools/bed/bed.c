/*
 * zeroute bed: a program on Level Zero and SYCL without a GPU. The script `bed` does the work: tools/bed/bed in the
 * source folder, share/zeroute/bed/bed where zeroute is installed. This is its command line.
 */
#include "common/common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ON = ZR_LONG, CARDS, RUNTIME, LOADER, PYTHON, OFFLINE, SETUP };

static const struct zr_option option_table[] = {
    {ON, "on", "BED", "intel: Intel's driver on a stand-in device; sim: the simulated GPU; intel,sim: both"},
    {CARDS, "cards", "N", "cards: 1 to 4 (sim: to 8), 1 by default"},
    {PYTHON, "python", "[VERSION]", "run a script with dpctl and this SYCL runtime, the newest by default"},
    {RUNTIME, "runtime", "VERSION", "put this SYCL runtime on the program's library path"},
    {LOADER, "loader", "WHICH", "use this Level Zero loader: a file, debian12, debian13 or unstable"},
    {OFFLINE, "offline", NULL, "use the cache alone, download nothing"},
    {SETUP, "setup", NULL, "download what the other options ask for, start nothing"},
    {0},
};

static const struct zr_command command = {
    .name = "bed",
    .usage = "zeroute bed [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
             "zeroute bed --python [VERSION] [OPTIONS] [--] SCRIPT [ARGUMENTS]",
    .about =
        "Runs a SYCL or Level Zero program without a GPU: on Intel's own driver over a stand-in for the kernel's xe "
        "device, or on a simulated GPU. Driver, loader and SYCL runtimes are downloaded from Debian and PyPI at first "
        "use and kept in the user's cache folder; nothing is installed.",
    .options = option_table,
    .notes =
        "Carried out for real: every allocation and query, copies, fills, events, IPC, virtual memory, residency, and "
        "the driver's own kernels for copies and fills. Your kernels are not carried out: they end at once, and "
        "the memory that they would write stays as it was.\n"
        "\n"
        "Downloads are kept in $XDG_CACHE_HOME/zeroute or ~/.cache/zeroute; ZEROUTE_BEDS names another folder.\n"
        "\n"
        "Exit code: the program's own; 77 the bed cannot be had on this machine; 2 wrong usage; 126 the program "
        "cannot be executed, 127 it was not found.\n",
    .examples = "zeroute bed -- ./my-level-zero-test\n"
                "zeroute bed --on intel --cards 2 -- ./my-sycl-test\n"
                "zeroute bed --python 2026.2.0 -- script.py\n"
                "zeroute bed --on intel -- zeroute run -- ./program",
    .program = true,
};

struct arguments {
    char **word;
    int count;
    bool python, setup;
    const char *version;
};

static void add(struct arguments *a, const char *word) {
    a->word[a->count++] = (char *)(uintptr_t)word;
}

static bool take(void *to, const struct zr_option *o, const char *value) {
    static char text[8][32];
    struct arguments *a = to;

    if (o->id == OFFLINE)
        return setenv("ZEROUTE_BED_OFFLINE", "1", 1) == 0;
    a->python |= o->id == PYTHON;
    a->setup |= o->id == SETUP;
    if (o->id == PYTHON) {
        a->version = value ? value : a->version;
        return true;
    }
    snprintf(text[o->id - ON], sizeof text[0], "--%s", o->name);
    add(a, text[o->id - ON]);
    if (value)
        add(a, value);
    return true;
}

/* "--python 2026.2.0 -- script.py": the version as a word of its own. */
static bool is_version(const char *word) {
    return strcmp(word, "newest") == 0 || (*word >= '0' && *word <= '9' && !word[strspn(word, "0123456789.")]);
}

int zr_cmd_bed(int argc, char **argv) {
    char script[1024];
    int at;
    /* The script, two words for the runtime, --python or --, and the end, besides what was typed. */
    struct arguments a = {.word = calloc((size_t)argc * 2 + 8, sizeof *a.word)};

    if (!a.word)
        return ZR_EXIT_ERROR;
    if (!zr_find_file("../tools/bed/bed", script, sizeof script) &&
        !zr_find_file("../share/zeroute/bed/bed", script, sizeof script)) {
        zr_complain("bed", "the script of the beds is not found: %s", script);
        free(a.word);
        return ZR_EXIT_ERROR;
    }
    add(&a, script);
    if (!zr_options(&command, argc, argv, take, &a, &at)) {
        free(a.word);
        return at;
    }
    if (a.python && !a.version && at < argc && is_version(argv[at])) {
        a.version = argv[at++];
        at += at < argc && strcmp(argv[at], "--") == 0;
    }
    if (at == argc && !a.setup) {
        free(a.word);
        return zr_wrong(&command, "no program given");
    }
    if (a.version) {
        add(&a, "--runtime");
        add(&a, a.version);
    }
    add(&a, a.python ? "--python" : "--");
    for (int i = at; i < argc; i++)
        add(&a, argv[i]);
    execv(script, a.word);
    zr_complain("bed", "cannot execute %s: %s", script, strerror(errno));
    free(a.word);
    return ZR_EXIT_ERROR;
}
