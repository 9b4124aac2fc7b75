/*
 * A simulated GPU for a program, and the folder that is its machine. Every process of the machine holds a lock on the
 * folder; what nobody holds was left behind by a command that was killed, and goes.
 */
#include "common/common.h"

#include "bed/simgpu/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIMULATE_PREFIX "zeroute-sim."

static const char *simulate_folder(void) {
    const char *tmp = getenv("TMPDIR");

    return tmp && *tmp ? tmp : "/tmp";
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

/* --- those that were left behind ------------------------------------------------------------------- */

/* Whether it is a machine of ours that no process holds; then the lock is ours, in the descriptor. */
static int simulate_take(int parent, const char *name) {
    struct stat st;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    close(fd);
    return -1;
}

size_t zr_simulate_sweep(bool remove) {
    DIR *d = opendir(simulate_folder());
    struct dirent *e;
    size_t count = 0;

    while (d && (e = readdir(d))) {
        int fd = -1;

        if (strncmp(e->d_name, SIMULATE_PREFIX, strlen(SIMULATE_PREFIX)) == 0)
            fd = simulate_take(dirfd(d), e->d_name);
        if (fd < 0)
            continue;
        count++;
        if (remove)
            remove_tree(dirfd(d), e->d_name);
        close(fd);
    }
    if (d)
        closedir(d);
    return count;
}

/* --- a new one ------------------------------------------------------------------------------------------ */

static int held = -1; /* the lock on our own machine */

/* A sweep between the two steps may have taken the new folder for an old one: then there is another. */
static bool simulate_make(char *root, size_t size) {
    struct stat by_name, by_lock;

    for (int tries = 0; tries < 16; tries++) {
        snprintf(root, size, "%s/" SIMULATE_PREFIX "XXXXXX", simulate_folder());
        if (!mkdtemp(root))
            return false;
        held = open(root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (held >= 0 && flock(held, LOCK_SH) == 0 && fstat(held, &by_lock) == 0 && stat(root, &by_name) == 0 &&
            by_name.st_ino == by_lock.st_ino)
            return true;
        if (held >= 0)
            close(held);
    }
    return false;
}

/* Finds the setting that was meant in "unknown setting 'vrm': expected one of devices, tiles, vram". */
static void mean_setting(char *why, size_t size) {
    char word[64] = "", *names = strstr(why, "one of "), *list = names ? strdup(names + 7) : NULL;

    if (!list || sscanf(why, "unknown setting '%63[^']'", word) != 1) {
        free(list);
        return;
    }
    for (char *c = list; (c = strstr(c, ", "));) {
        *c = '|';
        memmove(c + 1, c + 2, strlen(c + 2) + 1);
    }
    zr_mean_one_of(list, word, why, size);
    free(list);
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
        mean_setting(why, sizeof why);
        zr_complain(command, "the simulated GPU: %s", why);
        return false;
    }
    zr_simulate_sweep(true);
    setenv("ZE_ENABLE_ALT_DRIVERS", path, 1);
    if (*spec)
        setenv("ZE_SIMGPU", spec, 1);
    if (getenv("ZEROUTE_ROOT"))
        return true;
    if (!simulate_make(root, size)) {
        zr_complain(command, "cannot make a folder for the simulated GPU: %s: %s", root, strerror(errno));
        *root = '\0';
        return false;
    }
    setenv("ZEROUTE_ROOT", root, 1);
    return true;
}

void zr_simulate_end(const char *root) {
    if (*root)
        remove_tree(AT_FDCWD, root);
    if (held >= 0)
        close(held);
    held = -1;
}
