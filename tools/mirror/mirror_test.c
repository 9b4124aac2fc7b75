/* zeroute mirror-test: how many bytes of host memory a byte of device memory costs here. */
#include "mirror/mirror.h"

#include "common/common.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "Usage: zeroute mirror-test [options]\n"
    "Allocates device memory in steps and prints after each how much host memory it took:\n"
    "the growth of GPUActive, the drop of MemAvailable, VmRSS, and what the cards import.\n"
    "Then the slope with its error, and a verdict. It leaves nothing behind.\n"
    "\n"
    "  --route R        native: Level Zero calls (default); runtime: SYCL's functions as they\n"
    "                   are; pool, sycl, auto: SYCL's functions, served by zeroute\n"
    "  --residency R    default, owner\n"
    "  --backing B      default, eager\n"
    "  --share S        peer: resident on every card that can reach it, as the SYCL runtime\n"
    "                   does (default); ipc: an IPC handle of every block; none\n"
    "  --cards N[,N..]  cards in the process's context (default 2; with --all 1,2,4)\n"
    "  --step SIZE      one block (default 2GiB), each on the next card in turn\n"
    "  --count N        blocks (default 6)\n"
    "  --keep SIZE      MemAvailable that is never touched: stops before (default 4GiB)\n"
    "  --all            every setting that is known to matter, each number of cards, in fresh\n"
    "                   processes; a table\n"
    "  --sim[=SPEC]     on the simulated GPU (SPEC as for ZE_SIMGPU; default mirror:on)\n"
    "  --json           everything measured, on stdout\n"
    "  --markdown       the table for an issue report\n"
    "  --help\n"
    "\n"
    "Exit code: 0 not mirrored, 1 mirrored, 2 cannot tell or wrong usage. With --all: that of\n"
    "the first row.\n"
    "\n"
    "Examples:\n"
    "  zeroute mirror-test                          as this machine is\n"
    "  zeroute mirror-test --residency owner        with peer residency skipped\n"
    "  zeroute mirror-test --share ipc --cards 1    what an IPC handle costs\n"
    "  zeroute mirror-test --all --markdown         the table for a report\n"
    "  zeroute mirror-test --sim --step 64MiB --keep 1GiB\n";

static const struct zr_mirror_plan settings[] = {
#define ZR_SETTING(l, r, d, b, s, v)                                                               \
    {.label = l, .route = r, .residency = d, .backing = b, .share = ZR_SHARE_##s, .variables = v},
#include "mirror/rows.def"
#undef ZR_SETTING
};
enum { SETTINGS = sizeof settings / sizeof *settings, COLUMNS = 4 };

struct options {
    struct zr_mirror_plan plan;
    unsigned cards[COLUMNS], card_count;
    bool all, json, markdown, sim;
    const char *sim_spec;
};

static bool one_of(const char *what, const char *value, const char *const *allowed)
{
    char list[128] = "";

    for (const char *const *a = allowed; *a; a++) {
        if (!strcmp(*a, value))
            return true;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", a == allowed ? "" : ", ",
                 *a);
    }
    zr_complain("mirror-test", "--%s %s: expected one of %s", what, value, list);
    return false;
}

static bool take_cards(struct options *o, const char *list)
{
    o->card_count = 0;
    while (*list) {
        char *end;
        unsigned long n = strtoul(list, &end, 10);

        if (end == list || n < 1 || n > ZR_CARDS_MAX || o->card_count == COLUMNS ||
            (*end && *end != ',')) {
            zr_complain("mirror-test",
                        "--cards %s: expected up to %d numbers from 1 to %d, as 1,2,4", list,
                        COLUMNS, ZR_CARDS_MAX);
            return false;
        }
        o->cards[o->card_count++] = (unsigned)n;
        list = end + (*end == ',');
    }
    return o->card_count > 0;
}

static bool take_size(const char *what, const char *value, uint64_t *out)
{
    if (zr_bytes_parse(value, out))
        return true;
    zr_complain("mirror-test", "--%s %s: expected a size as 2GiB", what, value);
    return false;
}

static bool take_count(const char *value, unsigned *out)
{
    char *end;
    unsigned long n = strtoul(value, &end, 10);

    if (!*value || *end || n < 2 || n > ZR_STEPS_MAX) {
        zr_complain("mirror-test", "--count %s: expected a number from 2 to %d", value,
                    ZR_STEPS_MAX);
        return false;
    }
    *out = (unsigned)n;
    return true;
}

static bool take_option(struct options *o, int option, const char *value)
{
    static const char *const routes[] = {"native", "runtime", "pool", "sycl", "auto", NULL};
    static const char *const residencies[] = {"default", "owner", NULL};
    static const char *const backings[] = {"default", "eager", NULL};
    static const char *const shares[] = {"peer", "ipc", "none", NULL};

    switch (option) {
    case 'r':
        o->plan.route = value;
        return one_of("route", value, routes);
    case 'o':
        o->plan.residency = value;
        return one_of("residency", value, residencies);
    case 'b':
        o->plan.backing = value;
        return one_of("backing", value, backings);
    case 's':
        while (o->plan.share < ZR_SHARE_NONE && strcmp(value, shares[o->plan.share]))
            o->plan.share++;
        return one_of("share", value, shares);
    case 'c':
        return take_cards(o, value);
    case 'p':
        return take_size("step", value, &o->plan.step) && o->plan.step > 0;
    case 'n':
        return take_count(value, &o->plan.count);
    case 'k':
        return take_size("keep", value, &o->plan.keep);
    case 'a':
        o->all = true;
        return true;
    case 'S':
        o->sim = true;
        o->sim_spec = value;
        return true;
    case 'j':
        o->json = true;
        return true;
    case 'm':
        o->markdown = true;
        return true;
    default:
        return false;
    }
}

static const struct option longs[] = {
    {"route", required_argument, NULL, 'r'},   {"residency", required_argument, NULL, 'o'},
    {"backing", required_argument, NULL, 'b'}, {"share", required_argument, NULL, 's'},
    {"cards", required_argument, NULL, 'c'},   {"step", required_argument, NULL, 'p'},
    {"count", required_argument, NULL, 'n'},   {"keep", required_argument, NULL, 'k'},
    {"all", no_argument, NULL, 'a'},           {"sim", optional_argument, NULL, 'S'},
    {"json", no_argument, NULL, 'j'},          {"markdown", no_argument, NULL, 'm'},
    {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};

/* --- the simulated GPU, with a /proc of its own ---------------------------------------------- */

static bool start_sim(const struct options *o, char *root, size_t size)
{
    char spec[512];
    unsigned most = 1;

    for (unsigned i = 0; i < o->card_count; i++)
        most = o->cards[i] > most ? o->cards[i] : most;
    snprintf(spec, sizeof spec, "devices:%u,%s", most, o->sim_spec ? o->sim_spec : "mirror:on");
    return zr_simulate("mirror-test", spec, root, size);
}

/* --- running --------------------------------------------------------------------------------- */

static void tell(const struct options *o, const struct zr_mirror_plan *plan)
{
    if (isatty(2) && o->all)
        fprintf(stderr, "\r\033[K%s, %u cards ...", plan->label, plan->cards);
}

/* Without a SYCL runtime the rest of the rows would say so again and again: one is enough. */
static unsigned run_all(const struct options *o, struct zr_mirror_result *results)
{
    unsigned done = 0;
    bool no_sycl = false;

    for (unsigned s = 0; s < SETTINGS; s++) {
        if (no_sycl && strcmp(settings[s].route, "native"))
            continue;
        for (unsigned k = 0; k < o->card_count && !zr_mirror_interrupted; k++) {
            struct zr_mirror_plan plan = settings[s];

            plan.cards = o->cards[k];
            plan.count = o->plan.count;
            plan.step = o->plan.step;
            plan.keep = o->plan.keep;
            tell(o, &plan);
            zr_mirror_measure(&plan, &results[done]);
            no_sycl = !strncmp(results[done++].stopped, "no SYCL", 7);
            if (no_sycl)
                break;
        }
    }
    if (isatty(2))
        fputs("\r\033[K", stderr);
    return done;
}

static unsigned run_each(const struct options *o, struct zr_mirror_result *results)
{
    unsigned done = 0;

    for (unsigned k = 0; k < o->card_count && !zr_mirror_interrupted; k++) {
        struct zr_mirror_plan plan = o->plan;

        plan.cards = o->cards[k];
        zr_mirror_measure(&plan, &results[k]);
        done++;
        if (!o->json && !o->markdown) {
            if (k)
                putchar('\n');
            zr_mirror_show(stdout, &results[k]);
            fflush(stdout);
        }
    }
    return done;
}

static int code_of(const struct options *o, const struct zr_mirror_result *results, unsigned count)
{
    static const int codes[] = {[ZR_NOT_MIRRORED] = 0, [ZR_MIRRORED] = 1, [ZR_CANNOT_TELL] = 2};
    int code = 0;

    for (unsigned i = 0; i < count && !(o->all && strcmp(results[i].plan.label, settings[0].label));
         i++) {
        int one = codes[results[i].verdict];

        code = one == 1 || code == 1 ? 1 : one > code ? one : code;
    }
    return code;
}

int zr_cmd_mirror_test(int argc, char **argv)
{
    struct options o = {.plan = {.label = "",
                                 .route = "native",
                                 .residency = "default",
                                 .backing = "default",
                                 .count = 6,
                                 .step = UINT64_C(2) << 30,
                                 .keep = UINT64_C(4) << 30}};
    struct zr_mirror_result *results;
    static char name[] = "zeroute mirror-test"; /* for getopt's messages */
    char root[512] = "";
    unsigned count;
    int option, code;

    optind = 0;
    argv[0] = name;
    while ((option = getopt_long(argc, argv, "+", longs, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (!take_option(&o, option, optarg))
            return 2;
    }
    if (optind < argc) {
        zr_complain("mirror-test", "%s: no arguments are expected, see --help", argv[optind]);
        return 2;
    }
    if (!o.card_count)
        take_cards(&o, o.all ? "1,2,4" : "2");
    if (o.sim && !start_sim(&o, root, sizeof root))
        return 2;
    results = calloc(SETTINGS * COLUMNS, sizeof *results);
    if (!results)
        return 2;
    zr_mirror_catch();
    count = (o.all ? run_all : run_each)(&o, results);
    if (o.json)
        zr_mirror_show_json(stdout, results, count);
    else if (o.all || o.markdown)
        zr_mirror_show_table(stdout, results, count, o.markdown);
    code = code_of(&o, results, count);
    free(results);
    zr_simulate_end(root);
    fflush(stdout);
    if (zr_mirror_interrupted)
        return zr_end_like(zr_mirror_interrupted); /* as if nobody had caught it */
    return code;
}
