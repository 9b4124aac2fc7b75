/*
 * What `zeroute ctl` may ask of a running process: one line for each request and for each setting.
 * A setting that cannot be changed while blocks live says why.
 */
#include "check/check.h"
#include "pause/pause.h"
#include "policy/policy.h"
#include "record/record.h"

#include <stdio.h>
#include <string.h>

enum { CHECK_MS = 1000 };

static const struct change {
    const char *name;
    void (*changed)(void); /* applies the change; NULL: the setting is read by every call */
    const char *why_not;   /* why it cannot be changed, or NULL */
} changes[] = {
    {"limit", zr_limit_changed, NULL},
    {"group_limit", zr_limit_changed, NULL},
    {"residency", NULL, NULL},
    {"cache", zr_cache_changed, NULL},
    {"cache_limit", zr_cache_changed, NULL},
    {"cache_idle", zr_cache_changed, NULL},
    {"host_floor", NULL, NULL},
    {"free_memory", NULL, NULL},
    {"record", NULL, NULL},
    {"route", NULL, "a block must be freed on the way that it was allocated"},
    {"backing", NULL, "the driver reads its keys once, when it starts"},
    {"group", NULL, "its processes know each other by it from the start"},
    {"guard", NULL, "the runtime has asked for its functions when it started"},
    {"stats", NULL, "the segment that this request was read from is the statistics"},
};

static const struct change *find_change(const char *name) {
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        if (strcmp(changes[i].name, name) == 0)
            return &changes[i];
    return NULL;
}

/* "name:value" of the settings in force. */
static void print_value(const char *name, char *out, size_t size) {
    char all[1024], *at = all;
    size_t length = strlen(name);

    zr_settings_print(&zr_config, all, sizeof all);
    while (at && (strncmp(at, name, length) != 0 || at[length] != ':')) {
        at = strchr(at, ',');
        if (at)
            at++;
    }
    snprintf(out, size, "%.*s", at ? (int)strcspn(at, ",") : 0, at ? at : "");
}

/* Tells readers, the summary and the fingerprint. */
static void publish(const char *before, const char *after) {
    char text[1000];

    zr_settings_print(&zr_config, text, sizeof text);
    zr_text(ZR_T_SETTINGS, text);
    snprintf(text, sizeof text, "%.200s -> %.200s", before, after);
    zr_text(ZR_T_CHANGED, text);
    zeroute_mark(text);
    zr_count(ZR_F_CTL_CHANGES, 1);
    zr_fingerprint_note("settings.changed", text);
}

/* A record stays in the file in which it began: it can be switched off and on, but not moved. */
static bool moves_record(const char *value) {
    static char file[sizeof zr_config.text];

    if (!*file && zr_config.record)
        snprintf(file, sizeof file, "%s", zr_config.record);
    return *file && strcmp(value, "none") != 0 && strcmp(value, file) != 0;
}

/* Why a setting cannot have this value while the process runs; NULL: it can, or there is no such
 * setting. */
static const char *why_unchangeable(const struct change *c, const char *name, const char *value) {
    if (!c)
        return zr_setting_find(name, strlen(name)) ? "it is read when the process starts" : NULL;
    if ((zr_reserved_is_allocated() || zr_checking()) && strcmp(name, "cache") == 0 &&
        strcmp(value, "on") == 0)
        return "it was off when the process started, and its books have no place for cached memory";
    if (strcmp(name, "record") == 0 && moves_record(value))
        return "the record has begun in another file";
    return c->why_not;
}

static bool request_set(const char *rest, char *reply, size_t size) {
    char name[64], before[256];
    size_t length = strcspn(rest, " ");
    const char *value = rest + length + (rest[length] == ' '), *why;
    const struct change *c;

    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : 0), rest);
    c = find_change(name);
    why = why_unchangeable(c, name, value);
    if (why) {
        snprintf(reply, size, "%s cannot be changed while the process runs: %s", name, why);
        return false;
    }
    print_value(name, before, sizeof before);
    if (strcmp(name, "record") == 0 && strcmp(value, "none") == 0)
        zeroute_mark("recording was switched off");
    if (!zr_config_change(name, value, reply, size))
        return false;
    if (c && c->changed)
        c->changed();
    print_value(name, reply, size);
    if (strcmp(before, reply) != 0)
        publish(before, reply);
    return true;
}

static bool request_trim(const char *rest, char *reply, size_t size) {
    (void)rest;
    snprintf(reply, size, "%llu bytes returned to the driver",
             (unsigned long long)zr_policy_trim(ZR_UNKNOWN_DEVICE));
    return true;
}

static bool request_mark(const char *rest, char *reply, size_t size) {
    zeroute_mark(rest);
    zr_text(ZR_T_MARK, rest);
    snprintf(reply, size, "marked: %s", rest);
    return true;
}

static bool request_check(const char *rest, char *reply, size_t size) {
    bool done = zr_checking() && zr_check_now(CHECK_MS);
    const char *outcome = "check is off: start the process with check:all";

    (void)rest;
    if (done)
        outcome = "red zones and quarantine verified";
    else if (zr_checking())
        outcome = "not finished in a second";
    snprintf(reply, size, "%s; %u errors so far", outcome, zr_check_errors());
    return done;
}

/* What is cached goes back first: it need not be copied. */
static bool request_pause(const char *rest, char *reply, size_t size) {
    if (zr_pausing())
        zr_policy_trim(ZR_UNKNOWN_DEVICE);
    return zr_pause_request(rest, reply, size);
}

/* Each function gets what follows the word. */
static const struct {
    const char *word;
    zr_carry_out *carry_out;
} requests[] = {{"set", request_set},     {"trim", request_trim},   {"mark", request_mark},
                {"check", request_check}, {"pause", request_pause}, {"resume", zr_resume_request}};

bool zr_policy_request(const char *request, char *reply, size_t size) {
    size_t length = strcspn(request, " ");

    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        if (strlen(requests[i].word) == length && memcmp(requests[i].word, request, length) == 0)
            return requests[i].carry_out(request + length + (request[length] == ' '), reply, size);
    snprintf(reply, size,
             "unknown request: this process knows set, trim, mark, check, pause and resume");
    return false;
}
