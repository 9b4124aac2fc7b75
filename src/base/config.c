/*
 * The settings in force: environment and file, read at the first touch of Level Zero and never
 * before.
 */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_CHANGES = 512, REST_MS = 1000 };

struct zr_settings zr_config_at_start;
struct zr_settings *zr_config_in_force = &zr_config_at_start;
static struct made_settings { /* by zr_config_change() */
    struct zr_settings *settings;
    uint32_t replaced; /* when others came into force, in milliseconds */
} made_settings[MOST_CHANGES];
static unsigned made_settings_count;
static struct zr_lock config_lock;
bool zr_config_loaded;

static void warn(const char *why, void *where) {
    zr_warn("%s: %s; the default is used", (const char *)where, why);
}

static void load_file(const char *path) {
    static char text[16384];

    errno = 0;
    if (!zr_read_file(path, text, sizeof text) && errno)
        zr_warn("ZEROUTE_CONF_FILE: cannot read %s: %s", path, strerror(errno));
    zr_settings_parse(&zr_config, text, '\n', warn, (void *)(uintptr_t)path);
}

static void config_load(void) {
    static char where[] = "ZEROUTE_CONF";
    const char *file = secure_getenv("ZEROUTE_CONF_FILE"), *text = secure_getenv(where);

    zr_settings_default(&zr_config);
    if (file && *file)
        load_file(file);
    if (text)
        zr_settings_parse(&zr_config, text, ',', warn, where);
    if (zr_config.check > ZR_CHECK_NONE)
        zr_config.cache =
            false; /* check wants one driver allocation per block, and no immediate reuse */
    zr_backing_apply();
}

void zr_config_read(void) {
    int saved = errno;

    if (zr_exiting())
        return;
    zr_lock(&config_lock);
    if (!__atomic_load_n(&zr_config_loaded, __ATOMIC_ACQUIRE)) {
        config_load();
        __atomic_store_n(&zr_config_loaded, true, __ATOMIC_RELEASE);
    }
    zr_unlock(&config_lock);
    errno = saved;
}

/* An equal structure made before, or NULL: a setting that goes back and forth costs no memory. */
static struct zr_settings *alike(const struct zr_settings *s) {
    if (zr_settings_equal(s, &zr_config_at_start))
        return &zr_config_at_start;
    for (unsigned i = 0; i < made_settings_count; i++)
        if (zr_settings_equal(s, made_settings[i].settings))
            return made_settings[i].settings;
    return NULL;
}

/* Wraps around: compare differences. */
static uint32_t config_ms(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint32_t)((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
}

/* A place for one more. NULL: all were in force within the last second, or there is no memory. */
static struct made_settings *place_for_settings(void) {
    uint32_t now = config_ms();
    struct made_settings *oldest = NULL;

    if (made_settings_count < MOST_CHANGES) {
        oldest = &made_settings[made_settings_count];
        oldest->settings = zr_pages(sizeof *oldest->settings);
        made_settings_count += oldest->settings != NULL;
        return oldest->settings ? oldest : NULL;
    }
    for (struct made_settings *m = made_settings; m < made_settings + MOST_CHANGES; m++)
        if (m->settings != &zr_config && (!oldest || now - m->replaced > now - oldest->replaced))
            oldest = m;
    return now - oldest->replaced >= REST_MS ? oldest : NULL;
}

static void note_replaced(const struct zr_settings *settings) {
    for (unsigned i = 0; i < made_settings_count; i++)
        if (made_settings[i].settings == settings)
            made_settings[i].replaced = config_ms();
}

bool zr_config_change(const char *name, const char *value, char *why, size_t size) {
    static struct zr_settings next;
    struct zr_settings *before = &zr_config, *there;
    struct made_settings *place;

    zr_settings_copy(&next, before);
    if (!zr_setting_set(&next, name, value, why, size))
        return false;
    there = alike(&next);
    if (!there) {
        place = place_for_settings();
        if (!place) {
            snprintf(why, size,
                     "there is no memory, or settings changed too often within a second");
            return false;
        }
        there = place->settings;
        zr_settings_copy(there, &next);
    }
    note_replaced(before);
    __atomic_store_n(&zr_config_in_force, there, __ATOMIC_RELEASE);
    return true;
}
