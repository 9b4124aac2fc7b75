/* The arms of a comparison: parsing of settings, the settings that follow, the plan. */
#include "ab/ab.h"
#include "base/settings.h"
#include "common/common.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Every arm starts from here, so that an arm changes what its text says and nothing else. */
static const char base_preset[] = "observe";

bool zr_ab_is_setting(const char *name, size_t length) {
    return zr_setting_find(name, length) != NULL;
}

static const char *preset_settings(const char *name, size_t length) {
    const struct zr_preset *p = zr_preset_find(name, length);
    return p ? p->settings : "";
}

/* --- parsing ---------------------------------------------------------------------------------- */

static bool starts_item(const char *s) {
    size_t word = strcspn(s, ",:");

    if (s[word] == ':')
        return zr_setting_find(s, word) ||
               (word == 3 && (!strncmp(s, "env", 3) || !strncmp(s, "lib", 3) || !strncmp(s, "cmd", 3)));
    return *preset_settings(s, word) || (word == 4 && !strncmp(s, "none", 4));
}

/*
 * The text of one item up to its end; *end is left behind it. A comma ends an item where another
 * item starts behind it, so that ZE_AFFINITY_MASK=0,1 needs no quoting; "\," never does.
 */
static char *take_text(const char *s, const char **end, bool to_the_end, bool plain) {
    char *out = zr_ab_more(NULL, strlen(s) + 1, 1);
    size_t n = 0;

    for (; *s; s++) {
        if (!to_the_end && s[0] == '\\' && s[1] == ',') {
            out[n++] = *++s;
            continue;
        }
        if (!to_the_end && *s == ',' && (plain || starts_item(s + 1)))
            break;
        out[n++] = *s;
    }
    out[n] = 0;
    *end = s;
    return out;
}

static char *check_setting(const struct zr_setting *k, const char *value) {
    struct zr_settings config;
    char why[640];

    zr_settings_default(&config);
    if (zr_setting_set(&config, k->name, value, why, sizeof(why)))
        return NULL;
    zr_did_you_mean(k->name, value, why, sizeof(why));
    return zr_ab_text("%s", why);
}

static char *unknown_item(const char *s, size_t word) {
    struct zr_nearest n = {.word = s, .length = word};
    int length = (int)strcspn(s, ",");

    for (size_t i = 0; s[word] == ':' && i < zr_setting_count; i++)
        zr_nearest_try(&n, zr_settings[i].name, strlen(zr_settings[i].name));
    for (size_t i = 0; s[word] != ':' && i < zr_preset_count; i++)
        zr_nearest_try(&n, zr_presets[i].name, strlen(zr_presets[i].name));
    if (n.best)
        return zr_ab_text("unknown %s '%.*s': did you mean '%s%.*s'?", s[word] == ':' ? "setting" : "preset", length, s,
                          n.best, length - (int)word, s + word);
    return zr_ab_text("unknown setting '%.*s': expected SETTING:VALUE, a preset, env:NAME=VALUE, "
                      "lib:/FOLDER, cmd:COMMAND or none",
                      length, s);
}

static void add_item(struct zr_ab_arm *arm, enum zr_ab_kind kind, char *key, char *value) {
    arm->items = zr_ab_more(arm->items, arm->n_items + 1, sizeof(*arm->items));
    arm->items[arm->n_items++] = (struct zr_ab_item){kind, key, value};
}

static char *parse_env(struct zr_ab_arm *arm, const char *s, const char **end) {
    char *text = take_text(s, end, false, false), *equals = strchr(text, '=');
    char *wrong = NULL;

    if (!equals || equals == text)
        wrong = zr_ab_text("bad variable '%s': expected env:NAME=VALUE", text);
    else
        add_item(arm, ZR_AB_ENV, zr_ab_text("%.*s", (int)(equals - text), text), zr_ab_text("%s", equals + 1));
    free(text);
    return wrong;
}

static char *parse_item(struct zr_ab_arm *arm, const char *s, const char **end) {
    size_t word = strcspn(s, ",:");
    const struct zr_setting *k = s[word] == ':' ? zr_setting_find(s, word) : NULL;

    if (k) {
        char *value = take_text(s + word + 1, end, false, true);
        char *wrong = check_setting(k, value);
        if (wrong)
            free(value);
        else
            add_item(arm, ZR_AB_SETTING, zr_ab_text("%s", k->name), value);
        return wrong;
    }
    if (!strncmp(s, "env:", 4))
        return parse_env(arm, s + 4, end);
    if (!strncmp(s, "lib:", 4) || !strncmp(s, "cmd:", 4)) {
        bool cmd = *s == 'c';
        char *value = take_text(s + 4, end, cmd, false);
        add_item(arm, cmd ? ZR_AB_CMD : ZR_AB_LIB, zr_ab_text("%s", ""), value);
        if (*value)
            return NULL;
        return zr_ab_text(cmd ? "an empty command: expected cmd:COMMAND ARGS" : "an empty path: expected lib:/FOLDER");
    }
    *end = s + word;
    if (s[word] != ':' && *preset_settings(s, word)) {
        add_item(arm, ZR_AB_PRESET, zr_ab_text("%.*s", (int)word, s), zr_ab_text("%s", ""));
        return NULL;
    }
    if (s[word] != ':' && word == 4 && !strncmp(s, "none", 4)) {
        add_item(arm, ZR_AB_NONE, zr_ab_text("%s", ""), zr_ab_text("%s", ""));
        arm->none = true;
        return NULL;
    }
    return unknown_item(s, word);
}

/* May be called again for the same arm: the items add up. */
char *zr_ab_arm_parse(struct zr_ab_arm *arm, const char *text) {
    char *wrong = NULL, *joined;
    const char *s = text;

    while (!wrong && *s) {
        wrong = parse_item(arm, s, &s);
        if (!wrong && *s == ',' && !*++s)
            wrong = zr_ab_text("'%s' ends with a comma: expected a setting behind it", text);
    }
    if (!wrong && !*text)
        wrong = zr_ab_text("an empty arm: expected a setting, for example route:native");
    for (size_t i = 0; !wrong && arm->none && i < arm->n_items; i++)
        if (arm->items[i].kind == ZR_AB_SETTING || arm->items[i].kind == ZR_AB_PRESET)
            wrong = zr_ab_text("none has no preload: %s cannot be set in it", arm->items[i].key);
    joined = arm->text ? zr_ab_text("%s,%s", arm->text, text) : zr_ab_text("%s", text);
    free(arm->text);
    arm->text = joined;
    return wrong;
}

static char *value_in(const char *list, const char *setting) {
    size_t n = strlen(setting);

    for (const char *s = list; *s;) {
        size_t item = strcspn(s, ",");
        if (item > n && !strncmp(s, setting, n) && s[n] == ':')
            return zr_ab_text("%.*s", (int)(item - n - 1), s + n + 1);
        s += item + (s[item] == ',');
    }
    return NULL;
}

/* --- settings ------------------------------------------------------------------------------------ */

/* NULL if it is not set: the default is in force. */
static char *set_value(const struct zr_ab_arm *arm, const char *setting) {
    const char *preset = base_preset;
    char *value = NULL;

    for (size_t i = 0; i < arm->n_items; i++)
        if (arm->items[i].kind == ZR_AB_PRESET)
            preset = arm->items[i].key;
    for (size_t i = 0; i < arm->n_items; i++)
        if (arm->items[i].kind == ZR_AB_SETTING && !strcmp(arm->items[i].key, setting)) {
            free(value);
            value = zr_ab_text("%s", arm->items[i].value);
        }
    return value ? value : value_in(preset_settings(preset, strlen(preset)), setting);
}

char *zr_ab_setting_value(const struct zr_ab_arm *arm, const char *setting) {
    static const char defaults[] = ""
#define ZR_SETTING(name, type, def, values, help) #name ":" def ","
#include "base/settings.def"
        ;
    char *value = set_value(arm, setting);

    return value ? value : value_in(defaults, setting);
}

bool zr_ab_from_outside(const struct zr_ab_arm *arm) {
    char *stats = arm->none ? NULL : zr_ab_setting_value(arm, "stats");
    bool off = stats && !strcmp(stats, "off");

    free(stats);
    return arm->none || off;
}

char *zr_ab_settings(const struct zr_ab_arm *arm) {
    char *out = zr_ab_text("%s", "");

    for (size_t i = 0; i < zr_setting_count; i++) {
        char *value = set_value(arm, zr_settings[i].name);
        if (!value)
            continue;
        char *longer = zr_ab_text("%s%s%s:%s", out, *out ? "," : "", zr_settings[i].name, value);
        free(value);
        free(out);
        out = longer;
    }
    return out;
}

/* --- the plan --------------------------------------------------------------------------------- */

/* ABBA: every second round backwards, so that a steady drift hits all arms alike. */
size_t *zr_ab_plan(size_t arms, size_t rounds, bool random_order, uint64_t seed) {
    size_t *plan = zr_ab_more(NULL, arms * rounds, sizeof(*plan));
    struct zr_random r;

    zr_random_seed(&r, seed);
    for (size_t round = 0; round < rounds; round++) {
        size_t *at = plan + round * arms;
        for (size_t i = 0; i < arms; i++)
            at[i] = !random_order && round % 2 ? arms - 1 - i : i;
        for (size_t i = arms; random_order && i-- > 1;) {
            size_t other = zr_random_below(&r, i + 1), held = at[i];
            at[i] = at[other];
            at[other] = held;
        }
    }
    return plan;
}
