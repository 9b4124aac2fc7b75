/* The environment of a program under the preload, on a simulated GPU or not, and its name. */
#include "common/common.h"
#include "bed/simgpu/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
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

bool zr_simulate(const char *command, const char *spec, char *root, size_t size) {
    char path[1024], why[480];
    const char *card = *spec ? spec : getenv("ZE_SIMGPU");
    *root = '\0';
    if (!zr_find_file("libze_simgpu.so", path, sizeof path)) {
        zr_complain(command, "no simulated GPU: %s", path);
        return false;
    }
    if (card && !sim_config_check(card, why, sizeof why)) {
        zr_complain(command, "the simulated GPU: %s", why);
        return false;
    }
    setenv("ZE_ENABLE_ALT_DRIVERS", path, 1);
    if (*spec)
        setenv("ZE_SIMGPU", spec, 1);
    if (getenv("ZEROUTE_ROOT"))
        return true;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, size, "%s/zeroute-sim.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(root)) {
        zr_complain(command, "cannot make a folder for the simulated GPU: %s: %s", root, strerror(errno));
        return false;
    }
    setenv("ZEROUTE_ROOT", root, 1);
    return true;
}

static void remove_tree(int parent, const char *name) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(d), e->d_name, 0) && (errno == EISDIR || errno == EPERM))
            remove_tree(dirfd(d), e->d_name);
    }
    if (d)
        closedir(d);
    unlinkat(parent, name, AT_REMOVEDIR);
}

void zr_simulate_end(const char *root) {
    if (*root)
        remove_tree(AT_FDCWD, root);
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
