/* zeroute mirror-test: how many bytes of host memory a byte of device memory costs here. */
#include "mirror/mirror.h"

#include "common/common.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUTE = ZR_LONG, RESIDENCY, BACKING, SHARE, CARDS, STEP, COUNT, KEEP, ALL, SIM, JSON, MARKDOWN };

static const struct zr_option option_table[] = {
    {ROUTE, "route", "ROUTE",
     "native: Level Zero calls (default); runtime: SYCL's functions as they are; pool, sycl, auto: SYCL's functions, "
     "served by zeroute"},
    {RESIDENCY, "residency", "WHERE", "default or owner"},
    {BACKING, "backing", "WHEN", "default or eager"},
    {SHARE, "share", "HOW",
     "peer: resident on every card that can reach it, as the SYCL runtime does (default); ipc: an IPC handle of every "
     "block; none"},
    {CARDS, "cards", "N[,N..]", "cards in the process's context (default 2; with --all 1,2,4)"},
    {STEP, "step", "SIZE", "size of a block (default 2GiB); each is on the next card in turn"},
    {COUNT, "count", "N", "number of blocks (default 6)"},
    {KEEP, "keep", "SIZE", "MemAvailable that is never used: the test stops before (default 4GiB)"},
    {ALL, "all", NULL, "measure every setting that matters for each number of cards, in fresh processes: a table"},
    {SIM, "sim", "[SPEC]", "use a simulated GPU (SPEC as for ZE_SIMGPU; default mirror:on)"},
    {JSON, "json", NULL, "print everything that was measured as JSON"},
    {MARKDOWN, "markdown", NULL, "print the table for an issue report"},
    {0},
};

static const struct zr_command command = {
    .name = "mirror-test",
    .usage = "zeroute mirror-test [OPTIONS]",
    .about =
        "Allocates device memory in steps and prints after each how much host memory it took: the growth of "
        "GPUActive, the drop of MemAvailable, VmRSS, and what the cards import. Then the slope with its error, and "
        "a verdict. It leaves nothing behind.",
    .options = option_table,
    .one_of = "json|markdown",
    .notes =
        "Exit code: 0 not mirrored, 1 mirrored, 2 an error or wrong usage, 3 cannot tell. With --all it is that of the "
        "first row.\n",
    .examples = "zeroute mirror-test                        # as this machine is\n"
                "zeroute mirror-test --residency owner      # with peer residency skipped\n"
                "zeroute mirror-test --share ipc --cards 1  # what an IPC handle costs\n"
                "zeroute mirror-test --all --markdown       # the table for a report\n"
                "zeroute mirror-test --sim --step 64MiB --keep 1GiB",
};

static const struct zr_mirror_plan settings[] = {
#define ZR_SETTING(l, r, d, b, s, v)                                                                                   \
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

/* "1,2,4". Returns false if it is not such a list. */
static bool take_cards(struct options *o, const char *list) {
    for (o->card_count = 0; *list && o->card_count < COLUMNS; o->card_count++) {
        char *end;
        unsigned long n = strtoul(list, &end, 10);

        if (end == list || n < 1 || n > ZR_CARDS_MAX || (*end && *end != ','))
            return false;
        o->cards[o->card_count] = (unsigned)n;
        list = end + (*end == ',');
    }
    return o->card_count > 0 && !*list;
}

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    uint64_t n;

    switch (option->id) {
    case ROUTE:
        o->plan.route = value;
        return zr_option_choice(&command, option, value, "native|runtime|pool|sycl|auto");
    case RESIDENCY:
        o->plan.residency = value;
        return zr_option_choice(&command, option, value, "default|owner");
    case BACKING:
        o->plan.backing = value;
        return zr_option_choice(&command, option, value, "default|eager");
    case SHARE:
        for (o->plan.share = ZR_SHARE_PEER; o->plan.share < ZR_SHARE_NONE; o->plan.share++)
            if (!strcmp(value, zr_share_names[o->plan.share]))
                break;
        return zr_option_choice(&command, option, value, "peer|ipc|none");
    case CARDS:
        return take_cards(o, value) ||
               zr_option_bad(&command, option, value, "up to 4 numbers from 1 to 16, such as 1,2,4");
    case STEP:
        return zr_option_bytes(&command, option, value, &o->plan.step) && o->plan.step > 0;
    case COUNT:
        if (!zr_option_number(&command, option, value, 2, ZR_STEPS_MAX, &n))
            return false;
        o->plan.count = (unsigned)n;
        return true;
    case KEEP:
        return zr_option_bytes(&command, option, value, &o->plan.keep);
    case SIM:
        o->sim = true;
        o->sim_spec = value;
        return true;
    default:
        *(option->id == ALL ? &o->all : option->id == JSON ? &o->json : &o->markdown) = true;
        return true;
    }
}

/* --- the simulated GPU, with a /proc of its own ---------------------------------------------- */

static bool start_sim(const struct options *o, char *root, size_t size) {
    char spec[512];
    unsigned most = 1;

    for (unsigned i = 0; i < o->card_count; i++)
        most = o->cards[i] > most ? o->cards[i] : most;
    snprintf(spec, sizeof spec, "devices:%u,%s", most, o->sim_spec ? o->sim_spec : "mirror:on");
    return zr_simulate("mirror-test", spec, root, size);
}

/* --- running --------------------------------------------------------------------------------- */

/* Without a SYCL runtime the rest of the rows would say so again and again: one is enough. */
static unsigned run_all(const struct options *o, struct zr_mirror_result *results) {
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
            zr_mirror_measure(&plan, &results[done]);
            no_sycl = !strncmp(results[done++].stopped, "no SYCL", 7);
            if (no_sycl)
                break;
        }
    }
    return done;
}

static unsigned run_each(const struct options *o, struct zr_mirror_result *results) {
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

static int code_of(const struct options *o, const struct zr_mirror_result *results, unsigned count) {
    static const int codes[] = {[ZR_NOT_MIRRORED] = 0, [ZR_MIRRORED] = 1, [ZR_CANNOT_TELL] = ZR_EXIT_NO_VERDICT};
    int code = 0;

    for (unsigned i = 0; i < count && !(o->all && strcmp(results[i].plan.label, settings[0].label)); i++) {
        int one = codes[results[i].verdict];

        code = one == 1 || code == 1 ? 1 : one > code ? one : code;
    }
    return code;
}

int zr_cmd_mirror_test(int argc, char **argv) {
    struct options o = {.plan = {.label = "",
                                 .route = "native",
                                 .residency = "default",
                                 .backing = "default",
                                 .count = 6,
                                 .step = UINT64_C(2) << 30,
                                 .keep = UINT64_C(4) << 30}};
    struct zr_mirror_result *results;
    char root[512] = "";
    unsigned count;
    int at, code;

    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    if (!o.card_count)
        take_cards(&o, o.all ? "1,2,4" : "2");
    if (o.sim && !start_sim(&o, root, sizeof root))
        return ZR_EXIT_ERROR;
    results = calloc(SETTINGS * COLUMNS, sizeof *results);
    if (!results)
        return ZR_EXIT_ERROR;
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
        return zr_end_like(zr_mirror_interrupted); /* as if it had not been caught */
    return code;
}
