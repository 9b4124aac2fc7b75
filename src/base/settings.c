/* The settings: one table, and how their values are read and written. Used by the preload and by the command. */
#include "base/base.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ZR_SETTING(name, type, def, values, help)                                                                      \
    {#name, def, values, help, ZR_TYPE_##type, offsetof(struct zr_settings, name)},
const struct zr_setting zr_settings[] = {
#include "base/settings.def"
};
const size_t zr_setting_count = sizeof zr_settings / sizeof *zr_settings;

#define ZR_VALUE(setting, value, name, text) {#name, text},
static const struct {
    const char *setting, *value;
} values[] = {
#include "base/settings.def"
};

#define ZR_PRESET(name, settings, help) {#name, settings, help},
const struct zr_preset zr_presets[] = {
#include "base/settings.def"
};
const size_t zr_preset_count = sizeof zr_presets / sizeof *zr_presets;

struct out {
    char *at;
    size_t size, used;
};

static __attribute__((format(printf, 2, 3))) void put(struct out *o, const char *format, ...) {
    bool room = o->used < o->size;
    va_list arguments;

    va_start(arguments, format);
    o->used += (size_t)vsnprintf(room ? o->at + o->used : NULL, room ? o->size - o->used : 0, format, arguments);
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

static bool is_any_case(const char *s, size_t length, const char *word) {
    return strlen(word) == length && strncasecmp(s, word, length) == 0;
}

static bool space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void trim(const char **s, size_t *length) {
    while (*length && space(**s)) {
        ++*s;
        --*length;
    }
    while (*length && space((*s)[*length - 1]))
        --*length;
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

/* --- values ------------------------------------------------------------------------------------------------------- */

/* A decimal number with an optional fraction, in millionths; moves s past it. */
static bool millionths(const char **s, const char *end, zr_u128 *out) {
    const char *p = *s;
    zr_u128 n = 0, scale = 1000000;
    if (p == end || *p < '0' || *p > '9')
        return false;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        n = n * 10 + (unsigned)(*p - '0');
        if (n > UINT64_MAX)
            return false;
    }
    n *= 1000000;
    if (p < end && *p == '.') {
        p++;
        if (p == end || *p < '0' || *p > '9')
            return false;
        for (; p < end && *p >= '0' && *p <= '9'; p++)
            n += (unsigned)(*p - '0') * (scale /= 10);
    }
    *s = p;
    *out = n;
    return true;
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* A number and the name of a unit, times the unit, rounded down; false: no such number or unit, or too much. */
static bool with_unit(const char *s, size_t length, const struct unit *units, uint64_t *out) {
    const char *end = s + length;
    zr_u128 n;

    if (!millionths(&s, end, &n))
        return false;
    length = (size_t)(end - s);
    trim(&s, &length);
    for (; units->name; units++)
        if (is_any_case(s, length, units->name)) {
            n = n * units->factor / 1000000;
            if (n <= INT64_MAX)
                *out = (uint64_t)n;
            return n <= INT64_MAX;
        }
    return false;
}

bool zr_parse_amount(const char *s, size_t length, struct zr_amount *out) {
    static const struct unit hundredths[] = {{"%", 100}, {NULL, 0}};
    static const struct unit bytes[] = {{"", 1},
                                        {"b", 1},
                                        {"k", 1ull << 10},
                                        {"kib", 1ull << 10},
                                        {"kb", 1000ull},
                                        {"m", 1ull << 20},
                                        {"mib", 1ull << 20},
                                        {"mb", 1000000ull},
                                        {"g", 1ull << 30},
                                        {"gib", 1ull << 30},
                                        {"gb", 1000000000ull},
                                        {"t", 1ull << 40},
                                        {"tib", 1ull << 40},
                                        {"tb", 1000000000000ull},
                                        {NULL, 0}};
    uint64_t n;

    trim(&s, &length);
    if (with_unit(s, length, hundredths, &n))
        *out = (struct zr_amount){.set = true, .percent_x100 = n <= 10000 ? (uint32_t)n : 0};
    else if (with_unit(s, length, bytes, &n))
        *out = (struct zr_amount){.set = true, .bytes = n};
    else
        return false;
    return out->percent_x100 || out->bytes;
}

bool zr_parse_time(const char *s, size_t length, uint64_t *ns) {
    static const struct unit units[] = {{"", 1000000000u}, {"s", 1000000000u},  {"ms", 1000000u},      {"us", 1000u},
                                        {"ns", 1u},        {"m", 60000000000u}, {"min", 60000000000u}, {NULL, 0}};

    trim(&s, &length);
    return with_unit(s, length, units, ns);
}

/* Decimal or 0x hexadecimal, the whole of it. */
static bool integer(const char *s, size_t length, uint64_t *out) {
    char text[24], *end;

    if (!length || length >= sizeof text || s[0] < '0' || s[0] > '9')
        return false;
    memcpy(text, s, length);
    text[length] = '\0';
    errno = 0;
    *out = strtoull(text, &end, (text[1] | 0x20) == 'x' ? 16 : 10);
    return !*end && !errno;
}

static bool known_call(const char *s, size_t length) {
    for (size_t i = 0; i < ZR_ENTRIES; i++)
        if (is(s, length, zr_entry_name[i]))
            return true;
    return false;
}

static bool parse_inject(const char *s, size_t length, struct zr_inject_list *out) {
    struct zr_inject_list list = {0};
    const char *end = s + length;
    while (s < end) {
        const char *stop = memchr(s, '+', (size_t)(end - s));
        if (!stop)
            stop = end;
        const char *at = memchr(s, '@', (size_t)(stop - s));
        const char *equals = at ? memchr(at, '=', (size_t)(stop - at)) : NULL;
        struct zr_inject *r = &list.rule[list.count];
        uint64_t code;
        if (list.count == ZR_INJECT_MAX || !equals || (size_t)(at - s) >= sizeof r->call ||
            !known_call(s, (size_t)(at - s)) || !integer(at + 1, (size_t)(equals - at - 1), &r->nth) || r->nth == 0 ||
            !integer(equals + 1, (size_t)(stop - equals - 1), &code) || code == 0 || code > UINT32_MAX)
            return false;
        memcpy(r->call, s, (size_t)(at - s));
        r->call[at - s] = '\0';
        r->code = (uint32_t)code;
        list.count++;
        s = stop + 1;
        if (stop < end && s == end)
            return false;
    }
    *out = list;
    return list.count > 0;
}

static bool set_text(struct zr_settings *c, const char **out, const char *s, size_t length) {
    if (!length || c->text_used + length + 1 > sizeof c->text)
        return false;
    char *copy = c->text + c->text_used;
    memcpy(copy, s, length);
    copy[length] = '\0';
    c->text_used += length + 1;
    *out = copy;
    return true;
}

static bool set(struct zr_settings *c, const struct zr_setting *k, const char *s, size_t length) {
    void *at = (char *)c + k->offset;
    bool none = is(s, length, "none");
    switch (k->type) {
    case ZR_TYPE_CHOICE:
        for (int v = 0; v < ZR_VALUES; v++)
            if (strcmp(values[v].setting, k->name) == 0 && is(s, length, values[v].value)) {
                *(enum zr_value *)at = (enum zr_value)v;
                return true;
            }
        return false;
    case ZR_TYPE_SWITCH:
        if (!is(s, length, "on") && !is(s, length, "off"))
            return false;
        *(bool *)at = length == 2;
        return true;
    case ZR_TYPE_AMOUNT: {
        struct zr_amount a = {.is_auto = is(s, length, "auto") && strstr(k->values, "|auto|")};
        a.set = a.is_auto || (is(s, length, "0") && strstr(k->values, "|0|"));
        if (!none && !a.set && !zr_parse_amount(s, length, &a))
            return false;
        if (a.percent_x100 && !strstr(k->values, "PERCENT"))
            return false;
        *(struct zr_amount *)at = a;
        return true;
    }
    case ZR_TYPE_TIME:
        return zr_parse_time(s, length, at);
    case ZR_TYPE_TEXT:
        if (!none)
            return set_text(c, at, s, length);
        *(const char **)at = NULL;
        return true;
    case ZR_TYPE_INJECT:
        if (!none)
            return parse_inject(s, length, at);
        ((struct zr_inject_list *)at)->count = 0;
        return true;
    }
    return false;
}

static void set_default(struct zr_settings *c, const struct zr_setting *k) {
    set(c, k, k->fallback, strlen(k->fallback));
}

void zr_settings_default(struct zr_settings *c) {
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < zr_setting_count; i++)
        set_default(c, &zr_settings[i]);
}

/* "unknown WHAT 'x': did you mean 'y'?", or all there are. `names` is the first of `count` names, `stride` apart. */
static void unknown(const char *what, struct zr_nearest *n, const void *names, size_t count, size_t stride,
                    struct out o) {
    put(&o, "unknown %s '%.*s': ", what, (int)(n->length > 64 ? 64 : n->length), n->word);
    for (size_t i = 0; i < count; i++) {
        const char *name = *(const char *const *)((const char *)names + i * stride);
        zr_nearest_try(n, name, strlen(name));
    }
    if (n->best)
        put(&o, "did you mean '%s'?", n->best);
    for (size_t i = 0; i < count && !n->best; i++)
        put(&o, "%s%s", i ? ", " : "expected one of ", *(const char *const *)((const char *)names + i * stride));
}

bool zr_setting_set(struct zr_settings *c, const char *name, size_t name_length, const char *value, size_t value_length,
                    char *why, size_t why_size) {
    trim(&name, &name_length);
    trim(&value, &value_length);
    const struct zr_setting *k = zr_setting_find(name, name_length);
    struct zr_nearest n = {.word = name, .length = name_length};
    struct out o = {why, why_size, 0};
    if (!k) {
        unknown("setting", &n, &zr_settings->name, zr_setting_count, sizeof *zr_settings, o);
        return false;
    }
    if (!set(c, k, value, value_length)) {
        n = (struct zr_nearest){.word = value, .length = value_length};
        zr_nearest_try_list(&n, k->values);
        put(&o, "bad value '%.*s' of %s: expected %s", (int)(value_length > 200 ? 200 : value_length), value, k->name,
            k->values);
        if (n.best)
            put(&o, "; did you mean '%.*s'?", (int)n.best_length, n.best);
        return false;
    }
    return true;
}

void zr_preset_set(struct zr_settings *c, const struct zr_preset *p) {
    for (size_t i = 0; i < zr_setting_count; i++)
        if (strcmp(zr_settings[i].name, "stats") != 0 && strcmp(zr_settings[i].name, "record") != 0 &&
            strcmp(zr_settings[i].name, "stacks") != 0)
            set_default(c, &zr_settings[i]);
    zr_settings_parse(c, p->settings, NULL, NULL);
}

static bool parse_item(struct zr_settings *c, const char *s, size_t length, void (*bad)(const char *, void *),
                       void *data) {
    char why[640];
    size_t name_length = 0;
    bool good = false;
    trim(&s, &length);
    if (!length)
        return true;
    while (name_length < length && s[name_length] != ':' && s[name_length] != '=')
        name_length++;
    if (name_length == length) {
        snprintf(why, sizeof why, "'%.*s' has no value: expected key:value", (int)(length > 200 ? 200 : length), s);
    } else {
        const char *value = s + name_length + 1;
        size_t value_length = length - name_length - 1;
        size_t key_length = name_length;
        const char *key = s;
        trim(&key, &key_length);
        trim(&value, &value_length);
        if (is(key, key_length, "preset")) {
            const struct zr_preset *p = zr_preset_find(value, value_length);
            good = p != NULL;
            if (p)
                zr_preset_set(c, p);
            else
                unknown("preset", &(struct zr_nearest){.word = value, .length = value_length}, &zr_presets->name,
                        zr_preset_count, sizeof *zr_presets, (struct out){why, sizeof why, 0});
        } else {
            good = zr_setting_set(c, key, key_length, value, value_length, why, sizeof why);
        }
    }
    if (!good && bad)
        bad(why, data);
    return good;
}

bool zr_settings_parse(struct zr_settings *c, const char *text, void (*bad)(const char *why, void *data), void *data) {
    bool good = true;
    while (*text) {
        size_t length = strcspn(text, ",");
        good &= parse_item(c, text, length, bad, data);
        text += length + (text[length] == ',');
    }
    return good;
}

bool zr_settings_parse_lines(struct zr_settings *c, const char *text, void (*bad)(const char *why, void *data),
                             void *data) {
    bool good = true;
    while (*text) {
        size_t length = strcspn(text, "\n");
        const char *comment = memchr(text, '#', length);
        good &= parse_item(c, text, comment ? (size_t)(comment - text) : length, bad, data);
        text += length + (text[length] == '\n');
    }
    return good;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void put_amount(struct out *o, const struct zr_amount *a) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned u = 0, rest = a->percent_x100 % 100;
    uint64_t n = a->bytes;

    if (!a->set)
        put(o, "none");
    else if (a->is_auto)
        put(o, "auto");
    else if (a->percent_x100)
        put(o, rest ? "%u.%02u%%" : "%u%%", a->percent_x100 / 100, rest);
    else if (!n)
        put(o, "0");
    else {
        for (; u < 4 && n % 1024 == 0; u++)
            n /= 1024;
        put(o, "%llu%s", (unsigned long long)n, unit[u]);
    }
}

static void put_time(struct out *o, uint64_t ns) {
    static const struct unit units[] = {{"s", 1000000000u}, {"ms", 1000000u}, {"ns", 1u}};
    const struct unit *u = units;

    while (ns % u->factor)
        u++;
    put(o, "%llu%s", (unsigned long long)(ns / u->factor), u->name);
}

static void put_value(struct out *o, const struct zr_settings *c, const struct zr_setting *k) {
    const void *at = (const char *)c + k->offset;
    const struct zr_inject_list *list = at;

    switch (k->type) {
    case ZR_TYPE_CHOICE:
        put(o, "%s", values[*(const enum zr_value *)at].value);
        break;
    case ZR_TYPE_SWITCH:
        put(o, *(const bool *)at ? "on" : "off");
        break;
    case ZR_TYPE_AMOUNT:
        put_amount(o, at);
        break;
    case ZR_TYPE_TIME:
        put_time(o, *(const uint64_t *)at);
        break;
    case ZR_TYPE_TEXT:
        put(o, "%s", *(const char *const *)at ? *(const char *const *)at : "none");
        break;
    case ZR_TYPE_INJECT:
        if (!list->count)
            put(o, "none");
        for (unsigned i = 0; i < list->count; i++)
            put(o, "%s%s@%llu=0x%x", i ? "+" : "", list->rule[i].call, (unsigned long long)list->rule[i].nth,
                list->rule[i].code);
        break;
    }
}

size_t zr_settings_print(const struct zr_settings *c, char *out, size_t size) {
    struct out o = {out, size, 0};

    for (size_t i = 0; i < zr_setting_count; i++) {
        put(&o, "%s%s:", i ? "," : "", zr_settings[i].name);
        put_value(&o, c, &zr_settings[i]);
    }
    return o.used;
}
