/* What the settings mean, for the preload and for the command alike: parsing without malloc. */
#ifndef ZEROUTE_SETTINGS_H
#define ZEROUTE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 zr_u128;

/* A value of a CHOICE is its position in the list of the setting. */
enum zr_value {
#define ZR_VALUES(first, ...) first = 0, __VA_ARGS__,
#include "base/settings.def"
};

enum zr_setting_type {
    ZR_TYPE_CHOICE,
    ZR_TYPE_SWITCH,
    ZR_TYPE_AMOUNT,
    ZR_TYPE_TIME,
    ZR_TYPE_TEXT,
    ZR_TYPE_INJECT
};

/* Bytes, or hundredths of a percent of the device's memory. */
struct zr_amount {
    bool set;
    uint32_t percent_x100; /* 0: bytes counts */
    uint64_t bytes;
    bool is_auto; /* neither: what is left */
};

#define ZR_INJECT_MAX 16
struct zr_inject {
    const char *call;   /* of zr_entry_name[] */
    uint64_t nth, code; /* from 1 */
};
struct zr_inject_list {
    unsigned count;
    struct zr_inject rule[ZR_INJECT_MAX];
};

#define ZR_CTYPE_CHOICE enum zr_value
#define ZR_CTYPE_SWITCH bool
#define ZR_CTYPE_AMOUNT struct zr_amount
#define ZR_CTYPE_TIME uint64_t
#define ZR_CTYPE_TEXT const char *
#define ZR_CTYPE_INJECT struct zr_inject_list

struct zr_settings {
#define ZR_SETTING(name, type, def, values, help) ZR_CTYPE_##type name;
#include "base/settings.def"
    char text[4096]; /* holds the TEXT settings */
    size_t text_used;
};

struct zr_setting {
    const char *name, *fallback, *values, *help;
    enum zr_setting_type type;
    size_t offset; /* in struct zr_settings */
};
extern const struct zr_setting zr_settings[];
extern const size_t zr_setting_count;

struct zr_preset {
    const char *name, *settings, *help;
};
extern const struct zr_preset zr_presets[];
extern const size_t zr_preset_count;

const struct zr_setting *zr_setting_find(const char *name, size_t length);
const struct zr_preset *zr_preset_find(const char *name, size_t length);
void zr_settings_default(struct zr_settings *c);
/* Copies what is in force: texts that were replaced take no room in the copy. */
void zr_settings_copy(struct zr_settings *to, const struct zr_settings *from);
bool zr_settings_equal(const struct zr_settings *a, const struct zr_settings *b);
/*
 * Sets one setting. On a bad value: false, the setting unchanged, `why` says what was given and
 * what was expected.
 */
bool zr_setting_set(struct zr_settings *c, const char *name, const char *value, char *why,
                    size_t size);
/*
 * Sets a whole preset: its settings, and the default of every setting but stats, record and stacks.
 */
void zr_preset_set(struct zr_settings *c, const struct zr_preset *p);
/*
 * Applies "key:value,key:value" (key=value too, and preset:NAME). Each bad item is reported and
 * skipped; false if there was one. With '\n' as the separator the lines of a file, in which a #
 * starts a comment.
 */
bool zr_settings_parse(struct zr_settings *c, const char *text, char separator,
                       void (*bad)(const char *why, void *data), void *data);
/*
 * All settings as "key:value,..." in the order of the table; always terminated. Returns the full
 * length.
 */
size_t zr_settings_print(const struct zr_settings *c, char *out, size_t size);
/*
 * Parses 12GiB, 512M, 1.5g or 80 %; false if it is none of these. K, M, G, T and KiB are 1024s, KB
 * is 1000s.
 */
bool zr_parse_amount(const char *s, struct zr_amount *out);
/* Parses 1s, 500ms, 20us, 5ns or 2m; a bare number is seconds. */
bool zr_parse_time(const char *s, uint64_t *ns);

#endif
