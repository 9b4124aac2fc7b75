/* The environment of a program under the preload, and its name. */
#include "common/common.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

bool zr_preload_find(const char *command, char *path, size_t size) {
    char why[1200];
    const char *given = getenv("ZEROUTE_LIB");
    if (given && *given) {
        char *whole = realpath(given, NULL);
        snprintf(path, size, "%s", whole ? whole : given);
        free(whole);
    } else if (!zr_find_file("libzeroute.so", path, size)) {
        zr_complain(command, "%s: set ZEROUTE_LIB to its path", path);
        return false;
    }
    if (!zr_check_library(path, why, sizeof why)) {
        zr_complain(command, "%s", why);
        return false;
    }
    if (strpbrk(path, " :\t")) {
        zr_complain(command,
                    "the path %s has a space or a colon in it, which LD_PRELOAD cannot hold: expected "
                    "the library elsewhere (ZEROUTE_LIB)",
                    path);
        return false;
    }
    return true;
}

bool zr_preload_set(const char *path) {
    const char *others = getenv("LD_PRELOAD");
    if (!others || !*others)
        return setenv("LD_PRELOAD", path, 1) == 0;
    char *both = NULL;
    bool good = asprintf(&both, "%s:%s", path, others) > 0 && setenv("LD_PRELOAD", both, 1) == 0;
    free(both);
    return good;
}

void zr_run_name(char *run, size_t size) {
    uint32_t r = 0;
    const char *outer = getenv("ZEROUTE_RUN");
    if (getrandom(&r, sizeof r, 0) != sizeof r)
        r = (uint32_t)getpid();
    if (outer && strlen(outer) < 30)
        snprintf(run, size, "%s.%08x", outer, r);
    else
        snprintf(run, size, "%08x", r);
    setenv("ZEROUTE_RUN", run, 1);
}

bool zr_run_owns(const struct zeroute_process *p, const char *run) {
    size_t n = strlen(run);
    return strncmp(p->run_id, run, n) == 0 && (p->run_id[n] == '\0' || p->run_id[n] == '.');
}
