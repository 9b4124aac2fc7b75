/* The settings in force: environment and file, read at the first touch of Level Zero and never before. */
#include "base/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct zr_config zr_config;
static struct zr_lock lock;
bool zr_config_loaded;

static void warn(const char *why, void *where) {
    zr_warn("%s: %s; the default is used", (const char *)where, why);
}

static void load_file(const char *path) {
    static char text[16384];

    errno = 0;
    if (!zr_read_file(path, text, sizeof text) && errno)
        zr_warn("ZEROUTE_CONF_FILE: cannot read %s: %s", path, strerror(errno));
    zr_settings_parse_lines(&zr_config, text, warn, (void *)(uintptr_t)path);
}

static void load(void) {
    static char where[] = "ZEROUTE_CONF";
    const char *file = secure_getenv("ZEROUTE_CONF_FILE"), *text = secure_getenv(where);

    zr_settings_default(&zr_config);
    if (file && *file)
        load_file(file);
    if (text)
        zr_settings_parse(&zr_config, text, warn, where);
    zr_backing_apply();
}

void zr_config_read(void) {
    int saved = errno;

    if (zr_exiting())
        return;
    zr_lock(&lock);
    if (!__atomic_load_n(&zr_config_loaded, __ATOMIC_ACQUIRE)) {
        load();
        __atomic_store_n(&zr_config_loaded, true, __ATOMIC_RELEASE);
    }
    zr_unlock(&lock);
    errno = saved;
}

/* What was read stays; a thread that was reading is not here any more. */
void zr_config_fork_child(void) {
    lock = (struct zr_lock){0};
}
