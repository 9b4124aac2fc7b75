/*
 * The settings: one table, and how their values are read and written. Used by the preload and by
 * the command.
 */
#include "base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ZR_SETTING(name, type, def, values, help)                                                  \
    {#name, def, values, help, ZR_TYPE_##type, offsetof(struct zr_settings, name)},
const struct zr_setting zr_settings[] = {
#include "base/settings.def"
};
const size_t zr_setting_count = sizeof zr_settings / sizeof *zr_settings;

#define ZR_PRESET(name, settings, help) {#name, settings, help},
const struct zr_preset zr_presets[] = {
#include "base/settings.def"
};
const size_t zr_preset_count = sizeof zr_presets / sizeof *zr_presets;

struct out {
    char *at;
    size_t size, used;
};

static __attribute__((format(printf, 2, 3))) void put_text(struct out *o, const char *format, ...) {
    bool room = o->used < o->size;
    va_list arguments;

    va_start(arguments, format);
    o->used += (size_t)vsnprintf(room ? o->at + o->used : NULL, room ? o->size - o->used : 0,
                                 format, arguments);
    va_end(arguments);
}

static bool is(const char *s, size_t length, const char *word) {
    return strlen(word) == length && memcmp(s, word, length) == 0;
}

/* cache-limit is cache_limit. */
static bool is_name(const char *s, size_t length, const char *word) {
    for (size_t i = 0; i < length; i++)
        if (s[i] != word[i] && (s[i] != '-' || word[i] != '_'))
            return false;
    return !word[length];
}

/* Trims in place. */
static char *trim_blanks(char *s) {
    static const char blanks[] = " \t\r\n";
    size_t length;

    s += strspn(s, blanks);
    for (length = strlen(s); length && strchr(blanks, s[length - 1]); length--)
        s[length - 1] = '\0';
    return s;
}

const struct zr_setting *zr_setting_find(const char *name, size_t length) {
    for (size_t i = 0; i < zr_setting_count; i++)
        if (is_name(name, length, zr_settings[i].name))
            return &zr_settings[i];
    return NULL;
}

const struct zr_preset *zr_preset_find(const char *name, size_t length) {
    for (size_t i = 0; i < zr_preset_count; i++)
        if (is(name, length, zr_presets[i].name))
            return &zr_presets[i];
    return NULL;
}

/* --- values ----------------------------------------------------------------------------------- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* A decimal number with an optional fraction, in millionths; moves s past it. */
static bool millionths(const char **s, zr_u128 *out) {
    const char *p = *s;
    zr_u128 n = 0, scale = 1000000;

    if (!is_digit(*p))
        return false;
    for (; is_digit(*p); p++) {
        n = n * 10 + (unsigned)(*p - '0');
        if (n > UINT64_MAX)
            return false;
    }
    n *= 1000000;
    if (*p == '.' && !is_digit(*++p))
        return false;
    for (; is_digit(*p); p++) {
        scale /= 10;
        n += (unsigned)(*p - '0') * scale;
    }
    *s = p;
    *out = n;
    return true;
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* Parses a number with a unit, rounded down to a whole; false if it is malformed or too large. */
static bool with_unit(const char *s, const struct unit *units, uint64_t *out) {
    zr_u128 n;

    if (!millionths(&s, &n))
        return false;
    s += strspn(s, " \t");
    while (units->name && strcasecmp(s, units->name) != 0)
        units++;
    n = n * units->factor / 1000000;
    if (!units->name || n > INT64_MAX)
        return false;
    *out = (uint64_t)n;
    return true;
}

bool zr_parse_amount(const char *s, struct zr_amount *out) {
    static const struct unit hundredths[] = {{"%", 100}, {NULL, 0}};
    static const struct unit bytes[] = {{"", 1},
                                        {"b", 1},
                                        {"k", 1 << 10},
                                        {"kib", 1 << 10},
                                        {"kb", 1e3},
                                        {"m", 1 << 20},
                                        {"mib", 1 << 20},
                                        {"mb", 1e6},
                                        {"g", 1 << 30},
                                        {"gib", 1 << 30},
                                        {"gb", 1e9},
                                        {"t", 1ull << 40},
                                        {"tib", 1ull << 40},
                                        {"tb", (uint64_t)1e12},
                                        {NULL, 0}};
    uint64_t n;

    if (with_unit(s, hundredths, &n))
        *out = (struct zr_amount){.set = true, .percent_x100 = n <= 10000 ? (uint32_t)n : 0};
    else if (with_unit(s, bytes, &n))
        *out = (struct zr_amount){.set = true, .bytes = n};
    else
        return false;
    return out->percent_x100 || out->bytes;
}

bool zr_parse_time(const char *s, uint64_t *ns) {
    static const struct unit units[] = {
        {"", 1000000000u}, {"s", 1000000000u},  {"ms", 1000000u},      {"us", 1000u},
        {"ns", 1u},        {"m", 60000000000u}, {"min", 60000000000u}, {NULL, 0}};

    return with_unit(s, units, ns);
}

/* Parses all up to `end`: decimal or 0x hexadecimal, from 1 to `most`. */
static bool integer(const char *s, const char *end, uint64_t most, uint64_t *out) {
    char *stop;

    errno = 0;
    *out = strtoull(s, &stop, strncasecmp(s, "0x", 2) == 0 ? 16 : 10);
    return is_digit(*s) && stop == end && !errno && *out && *out <= most;
}

static const char *entry_named(const char *s, size_t length) {
    for (size_t i = 0; i < ZR_ENTRIES; i++)
        if (is(s, length, zr_entry_name[i]))
            return zr_entry_name[i];
    return NULL;
}

/* CALL@NTH=CODE, up to `end`. */
static bool parse_rule(const char *s, const char *end, struct zr_inject *out) {
    const char *at = s + strcspn(s, "@"), *equals = at + strcspn(at, "=");

    if (!*equals)
        return false;
    out->call = entry_named(s, (size_t)(at - s));
    return out->call && integer(at + 1, equals, UINT64_MAX, &out->nth) &&
           integer(equals + 1, end, UINT32_MAX, &out->code);
}

static bool parse_inject(const char *s, struct zr_inject_list *out) {
    struct zr_inject_list list = {0};

    for (bool more = strcmp(s, "none") != 0; more;) {
        const char *end = s + strcspn(s, "+");

        if (list.count == ZR_INJECT_MAX || !parse_rule(s, end, &list.rule[list.count]))
            return false;
        list.count++;
        more = *end != '\0';
        s = end + 1;
    }
    *out = list;
    return true;
}

static bool set_text(struct zr_settings *c, const char **out, const char *s) {
    size_t size = strcmp(s, "none") == 0 ? 0 : strlen(s) + 1;

    if (size == 1 || c->text_used + size > sizeof c->text)
        return false;
    *out = size ? memcpy(c->text + c->text_used, s, size) : NULL;
    c->text_used += size;
    return true;
}

static bool set_choice(const char *values, const char *s, enum zr_value *out) {
    for (int n = 0; *values; n++) {
        size_t length = strcspn(values, "|");

        if (is(values, length, s)) {
            *out = (enum zr_value)n;
            return true;
        }
        values += length + (values[length] == '|');
    }
    return false;
}

static bool set_amount(const struct zr_setting *k, const char *s, struct zr_amount *out) {
    struct zr_amount a = {.is_auto = strcmp(s, "auto") == 0 && strstr(k->values, "|auto|")};

    a.set = a.is_auto || (strcmp(s, "0") == 0 && strstr(k->values, "|0|"));
    if ((!a.set && strcmp(s, "none") != 0 && !zr_parse_amount(s, &a)) ||
        (a.percent_x100 && !strstr(k->values, "PERCENT")))
        return false;
    *out = a;
    return true;
}

static bool set_switch(const char *s, bool *out) {
    if (strcmp(s, "on") != 0 && strcmp(s, "off") != 0)
        return false;
    *out = strcmp(s, "on") == 0;
    return true;
}

static bool set_value(struct zr_settings *c, const struct zr_setting *k, const char *s) {
    void *at = (char *)c + k->offset;

    switch (k->type) {
    case ZR_TYPE_CHOICE:
        return set_choice(k->values, s, at);
    case ZR_TYPE_SWITCH:
        return set_switch(s, at);
    case ZR_TYPE_AMOUNT:
        return set_amount(k, s, at);
    case ZR_TYPE_TIME:
        return zr_parse_time(s, at);
    case ZR_TYPE_TEXT:
        return set_text(c, at, s);
    case ZR_TYPE_INJECT:
        return parse_inject(s, at);
    }
    return false;
}

void zr_settings_default(struct zr_settings *c) {
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < zr_setting_count; i++)
        set_value(c, &zr_settings[i], zr_settings[i].fallback);
}

void zr_settings_copy(struct zr_settings *to, const struct zr_settings *from) {
    memcpy(to, from, sizeof *to);
    memset(to->text, 0, sizeof to->text);
    to->text_used = 0;
    for (size_t i = 0; i < zr_setting_count; i++) {
        const char *const *text = (const void *)((const char *)from + zr_settings[i].offset);

        if (zr_settings[i].type == ZR_TYPE_TEXT && *text)
            set_text(to, (void *)((char *)to + zr_settings[i].offset), *text);
    }
}

#define EQUAL_CHOICE(a, b) (a == b)
#define EQUAL_SWITCH(a, b) (a == b)
#define EQUAL_TIME(a, b) (a == b)
#define EQUAL_AMOUNT(a, b) (memcmp(&a, &b, sizeof a) == 0)
#define EQUAL_INJECT(a, b) (memcmp(&a, &b, sizeof a) == 0)
#define EQUAL_TEXT(a, b) text_is_equal(a, b)

static bool text_is_equal(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool zr_settings_equal(const struct zr_settings *a, const struct zr_settings *b) {
#define ZR_SETTING(name, type, def, values, help)                                                  \
    if (!EQUAL_##type(a->name, b->name))                                                           \
        return false;
#include "base/settings.def"
    return true;
}

bool zr_setting_set(struct zr_settings *c, const char *name, const char *value, char *why,
                    size_t size) {
    const struct zr_setting *k = zr_setting_find(name, strlen(name));
    struct out o = {why, size, 0};

    if (!k) {
        put_text(&o, "unknown setting '%.64s': expected one of ", name);
        for (size_t i = 0; i < zr_setting_count; i++)
            put_text(&o, "%s%s", i ? ", " : "", zr_settings[i].name);
        return false;
    }
    if (set_value(c, k, value))
        return true;
    put_text(&o, "bad value '%.200s' of %s: expected %s", value, k->name, k->values);
    return false;
}

void zr_preset_set(struct zr_settings *c, const struct zr_preset *p) {
    for (size_t i = 0; i < zr_setting_count; i++)
        if (strcmp(zr_settings[i].name, "stats") != 0 &&
            strcmp(zr_settings[i].name, "record") != 0 &&
            strcmp(zr_settings[i].name, "stacks") != 0)
            set_value(c, &zr_settings[i], zr_settings[i].fallback);
    zr_settings_parse(c, p->settings, ',', NULL, NULL);
}

static bool parse_item(struct zr_settings *c, char *name, char *why, size_t size) {
    char *value = name + strcspn(name, ":=");
    struct out o = {why, size, 0};
    const struct zr_preset *p;

    if (!*value) {
        put_text(&o, "'%.200s' has no value: expected key:value", name);
        return false;
    }
    *value = '\0';
    name = trim_blanks(name);
    value = trim_blanks(value + 1);
    if (strcmp(name, "preset") != 0)
        return zr_setting_set(c, name, value, why, size);
    p = zr_preset_find(value, strlen(value));
    if (p) {
        zr_preset_set(c, p);
        return true;
    }
    put_text(&o, "unknown preset '%.64s': expected one of ", value);
    for (size_t i = 0; i < zr_preset_count; i++)
        put_text(&o, "%s%s", i ? ", " : "", zr_presets[i].name);
    return false;
}

bool zr_settings_parse(struct zr_settings *c, const char *text, char separator,
                       void (*bad)(const char *why, void *data), void *data) {
    const char ends[] = {separator, '\0'};
    bool good = true;

    for (size_t length; *text; text += length + (text[length] != '\0')) {
        char item[sizeof c->text + 64], why[640],
            *trimmed; /* the value of a longer item is too long, too */

        length = strcspn(text, ends);
        snprintf(item, sizeof item, "%.*s", (int)length, text);
        if (separator == '\n')
            item[strcspn(item, "#")] = '\0';
        trimmed = trim_blanks(item);
        if (!*trimmed || parse_item(c, trimmed, why, sizeof why))
            continue;
        good = false;
        if (bad)
            bad(why, data);
    }
    return good;
}

/* --- writing ---------------------------------------------------------------------------------- */

static void put_amount(struct out *o, const struct zr_amount *a) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned u = 0, rest = a->percent_x100 % 100;
    uint64_t n = a->bytes;

    if (!a->set)
        put_text(o, "none");
    else if (a->is_auto)
        put_text(o, "auto");
    else if (a->percent_x100)
        put_text(o, rest ? "%u.%02u%%" : "%u%%", a->percent_x100 / 100, rest);
    else if (!n)
        put_text(o, "0");
    else {
        for (; u < 4 && n % 1024 == 0; u++)
            n /= 1024;
        put_text(o, "%llu%s", (unsigned long long)n, unit[u]);
    }
}

static void put_time(struct out *o, uint64_t ns) {
    static const struct unit units[] = {{"s", 1000000000u}, {"ms", 1000000u}, {"ns", 1u}};
    const struct unit *u = units;

    while (ns % u->factor)
        u++;
    put_text(o, "%llu%s", (unsigned long long)(ns / u->factor), u->name);
}

static void put_value(struct out *o, const struct zr_settings *c, const struct zr_setting *k) {
    const void *at = (const char *)c + k->offset;
    const struct zr_inject_list *list = at;
    const char *value = k->values;

    switch (k->type) {
    case ZR_TYPE_CHOICE:
        for (int n = *(const enum zr_value *)at; n > 0; n--)
            value = strchr(value, '|') + 1;
        put_text(o, "%.*s", (int)strcspn(value, "|"), value);
        break;
    case ZR_TYPE_SWITCH:
        put_text(o, *(const bool *)at ? "on" : "off");
        break;
    case ZR_TYPE_AMOUNT:
        put_amount(o, at);
        break;
    case ZR_TYPE_TIME:
        put_time(o, *(const uint64_t *)at);
        break;
    case ZR_TYPE_TEXT:
        put_text(o, "%s", *(const char *const *)at ? *(const char *const *)at : "none");
        break;
    case ZR_TYPE_INJECT:
        if (!list->count)
            put_text(o, "none");
        for (unsigned i = 0; i < list->count; i++)
            put_text(o, "%s%s@%llu=0x%llx", i ? "+" : "", list->rule[i].call,
                     (unsigned long long)list->rule[i].nth, (unsigned long long)list->rule[i].code);
        break;
    }
}

size_t zr_settings_print(const struct zr_settings *c, char *out, size_t size) {
    struct out o = {out, size, 0};

    for (size_t i = 0; i < zr_setting_count; i++) {
        put_text(&o, "%s%s:", i ? "," : "", zr_settings[i].name);
        put_value(&o, c, &zr_settings[i]);
    }
    return o.used;
}
