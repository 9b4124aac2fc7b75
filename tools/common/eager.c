#include "common/common.h"

#include <stdio.h>
#include <stdlib.h>

/* Under which of its names, in the driver's own order, the key is set. */
static const char *key_set(const char **name) {
    static const char *const names[] = {"NEO_L0_EnableDeferBacking", "NEO_EnableDeferBacking", "EnableDeferBacking"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);

        if (value) {
            *name = names[i];
            return value;
        }
    }
    return NULL;
}

bool zr_eager_environment(char *kept, size_t size) {
    const char *name = "", *key = key_set(&name), *master = getenv("NEOReadDebugKeys");

    *kept = '\0';
    if (key && strtoll(key, NULL, 10) != 0)
        snprintf(kept, size, "%s=%s", name, key);
    else if (master && strtoll(master, NULL, 10) == 0)
        snprintf(kept, size, "NEOReadDebugKeys=%s", master);
    if (!key)
        setenv("EnableDeferBacking", "0", 0);
    if (!master)
        setenv("NEOReadDebugKeys", "1", 0);
    return !*kept;
}
