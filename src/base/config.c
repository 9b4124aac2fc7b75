/*
 * The settings in force: environment and file, read at the first touch of Level Zero and never
 * before.
 */
#include "base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHANGES = 512 };

struct zr_settings zr_config_at_start;
struct zr_settings *zr_config_in_force = &zr_config_at_start;
static struct zr_settings *made_settings[MOST_CHANGES]; /* by zr_config_change() */
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
        if (zr_settings_equal(s, made_settings[i]))
            return made_settings[i];
    return NULL;
}

bool zr_config_change(const char *name, const char *value, char *why, size_t size) {
    static struct zr_settings *spare;
    struct zr_settings *next;

    if (!spare && made_settings_count < MOST_CHANGES)
        spare = zr_pages(sizeof *spare);
    if (!spare) {
        snprintf(why, size, "it was changed too often, or there is no memory; restart the process");
        return false;
    }
    zr_settings_copy(spare, &zr_config);
    if (!zr_setting_set(spare, name, value, why, size))
        return false;
    next = alike(spare);
    if (!next) {
        next = spare;
        made_settings[made_settings_count++] = next;
        spare = NULL;
    }
    __atomic_store_n(&zr_config_in_force, next, __ATOMIC_RELEASE);
    return true;
}
