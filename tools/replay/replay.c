/* zeroute replay: what happened in a record, and what other settings would have done. */
#include "common/common.h"

#include "replay/replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct options {
    const char *file, *settings;
    bool json;
};

enum { JSON = ZR_LONG, SETTINGS };

static const struct zr_option option_table[] = {
    {SETTINGS, "settings", "LIST",
     "settings to try, each a preset or a setting, several joined by +: observe,cache:on+limit:8GiB"},
    {JSON, "json", NULL, "print JSON"},
    {0},
};

static const struct zr_command command = {
    .name = "replay",
    .usage = "zeroute replay [--settings LIST] [--json] RECORD",
    .about = "Says what happened in a record ('zeroute record'), what a replay with the same settings makes of it, and "
             "what other settings would have done: the peak of reserved memory, driver calls, hits in the cache, and "
             "allocations that a limit refuses.",
    .options = option_table,
    .notes = "Exit code: 0 done, 2 an error or wrong usage.\n",
    .operands = "one record",
    .most = 1,
    .examples = "zeroute replay train.zr\n"
                "zeroute replay train.zr --settings observe,reroute,limit:8GiB",
};

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;

    if (option->id == JSON)
        o->json = true;
    else
        o->settings = value;
    return true;
}

static void show_outcome(json_t *list, const char *settings, const struct zr_outcome *o) {
    char reserved[ZR_TEXT_SIZE];

    if (!list) {
        printf("%-32.60s %13s %13" PRIu64 " %10" PRIu64 " %8" PRIu64 "\n", settings,
               zr_text_bytes(reserved, o->peak_reserved), o->driver_calls, o->hits, o->refused);
        return;
    }
    json_t *item = zr_json_object(list, NULL);
    zr_json_text(item, "settings", settings);
    zr_json_count(item, "peak_reserved_bytes", o->peak_reserved);
    zr_json_count(item, "driver_calls", o->driver_calls);
    zr_json_count(item, "hits", o->hits);
    zr_json_count(item, "refused", o->refused);
}

static bool what_if(const struct zr_recorded *r, json_t *list, const char *settings, const char *name) {
    struct zr_outcome outcome;
    char why[256];

    if (!zr_what_if(r, settings, &outcome, why, sizeof why)) {
        zr_complain("replay", "%s: %s", name, why);
        return false;
    }
    show_outcome(list, name, &outcome);
    return true;
}

static int replay_record(const struct options *o) {
    json_t *document = o->json ? zr_json_document(1) : NULL, *list = NULL;
    char *settings = strdup(o->settings ? o->settings : ""), *rest = settings, *one, why[256];
    struct zr_recorded r;
    bool good = settings && zr_recorded_load(&r, o->file, why, sizeof why);

    if (!good) {
        zr_complain("replay", "%s: %s", o->file, why);
        free(settings);
        return ZR_EXIT_ERROR;
    }
    if (r.lost)
        zr_complain("replay", "%s: %" PRIu64 " events were lost: figures are too low", o->file, r.lost);
    if (o->json) {
        zr_json_text(document, "file", o->file);
        zr_json_text(document, "settings", r.settings);
        zr_json_count(document, "steps", r.steps);
        list = zr_json_array(document, "outcomes");
    } else {
        printf("%-32s %13s %13s %10s %8s\n", "settings", "peak reserved", "driver calls", "hits", "refused");
    }
    show_outcome(list, "recorded", &r.recorded);
    good = what_if(&r, list, "", "the same, replayed");
    while (good && (one = strsep(&rest, ",")))
        good = !*one || what_if(&r, list, one, one);
    if (o->json)
        good &= zr_json_write(stdout, document, ZR_JSON_DIGITS, false);
    zr_recorded_free(&r);
    free(settings);
    return good ? ZR_EXIT_DONE : ZR_EXIT_ERROR;
}

int zr_cmd_replay(int argc, char **argv) {
    struct options o = {0};
    int at;

    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    if (at == argc)
        return zr_wrong(&command, "no record given: expected a file that 'zeroute record' has written");
    o.file = argv[at];
    return replay_record(&o);
}
