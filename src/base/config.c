/*
 * The settings in force: environment and file, read at the first touch of Level Zero and never before.
 */
#include "zeroute.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct zr_config zr_config;
static struct zr_lock lock;
static _Atomic bool loaded;

static void warn(const char *why, void *where)
{
    zr_say("%s: %s; the default is used", (const char *)where, why);
}

static void load_file(const char *path)
{
    static char text[16384];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n < 0)
        zr_say("ZEROUTE_CONF_FILE: cannot read %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    zr_settings_parse_lines(&zr_config, text, warn, (void *)(uintptr_t)path);
}

void zr_config_load(void)
{
    if (atomic_load_explicit(&loaded, memory_order_acquire))
        return;
    int saved = errno;
    zr_lock(&lock);
    if (!atomic_load(&loaded)) {
        static char where[] = "ZEROUTE_CONF";
        zr_settings_default(&zr_config);
        const char *file = secure_getenv("ZEROUTE_CONF_FILE");
        const char *text = secure_getenv("ZEROUTE_CONF");
        if (file && *file)
            load_file(file);
        if (text)
            zr_settings_parse(&zr_config, text, warn, where);
        zr_host_back_eagerly();
        atomic_store_explicit(&loaded, true, memory_order_release);
    }
    zr_unlock(&lock);
    errno = saved;
}

/* What was read stays; a thread that was reading is not here any more. */
void zr_fork_child_config(void)
{
    lock = (struct zr_lock){0};
}
