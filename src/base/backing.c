/*
 * backing:eager: sets the driver's debug keys that end deferred backing, before the driver reads
 * them. What the user has set stays as it is.
 */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char in_force[256];

const char *zr_backing_in_force(void) {
    return in_force;
}

static bool is_loader(const char *file) {
    return strncmp(file, "libze_loader.so", 15) == 0;
}

/* The driver's own order: the longest prefix wins. */
static const char *users_key(const char **name) {
    static const char *const names[] = {"NEO_L0_EnableDeferBacking", "NEO_EnableDeferBacking",
                                        "EnableDeferBacking"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *name = names[i];
        if (getenv(names[i]))
            return getenv(names[i]);
    }
    return NULL;
}

static bool is_zero(const char *number) {
    return number && strtol(number, NULL, 0) == 0;
}

void zr_backing_apply(void) {
    const char *name, *key, *master;

    if (zr_config.backing != ZR_BACKING_EAGER)
        return;
    key = users_key(&name);
    master = getenv("NEOReadDebugKeys");
    if (!key)
        setenv(name, "0", 0);
    setenv("NEOReadDebugKeys", "1", 0);
    if (zr_dl_loaded("libze_intel_gpu.so.1") && (!key || !master)) {
        snprintf(in_force, sizeof in_force,
                 "asked, too late: the driver was there before zeroute saw it");
        zr_warn("backing:eager comes too late, the driver is loaded already: use zeroute run");
    } else if ((key && !is_zero(key)) || is_zero(master)) {
        bool by_key = key && !is_zero(key);

        snprintf(in_force, sizeof in_force, "asked, set by the user: %s=%s",
                 by_key ? name : "NEOReadDebugKeys", by_key ? key : master);
        zr_warn("backing:eager: %s is set by the user and kept; memory is not backed eagerly",
                strchr(in_force, ':') + 2);
    } else {
        snprintf(in_force, sizeof in_force, "eager: NEOReadDebugKeys=1 %s=0", name);
    }
}

/*
 * A program that is linked to the loader calls zeInit past us, so its environment must be right
 * before main. Every other process pays for one look at its environment.
 */
__attribute__((constructor)) static void before_main(void) {
    const char *conf = secure_getenv("ZEROUTE_CONF");

    if (((conf && strstr(conf, "eager")) || secure_getenv("ZEROUTE_CONF_FILE")) &&
        zr_elf_named(is_loader) == ZR_LIST_FOUND)
        zr_config_load();
}
