/*
 * The directory of this user, /dev/shm/zeroute-UID: segments, requests and locks of every kind lie
 * in it. Nobody else can put anything there, so what another user leaves in /dev/shm is neither
 * read nor waited for.
 */
#include "base/base.h"

#include "zeroute/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIRECTORY_NAMES = 16 }; /* tried, one after the other, where names are taken by others */

static void directory_name(char *out, size_t size, unsigned n) {
    unsigned uid = (unsigned)geteuid();

    if (n == 0)
        snprintf(out, size, ZEROUTE_SEGMENT_DIR "/" ZEROUTE_SEGMENT_USER "%u", uid);
    else
        snprintf(out, size, ZEROUTE_SEGMENT_DIR "/" ZEROUTE_SEGMENT_USER "%u.%u", uid, n);
}

/* A umask may have taken rights from its owner. */
static void directory_repair(int fd) {
    char link[32];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    (void)chmod(link, 0700);
}

/*
 * Opens this name if it is a directory of this user that nobody else may enter. Else returns -1;
 * EACCES: squatted, EPERM: this user may not enter /dev/shm.
 */
static int directory_open(const char *path) {
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct statx s;

    if (fd < 0) {
        if (errno == EACCES)
            errno = EPERM;
        else if (errno == ELOOP || errno == ENOTDIR)
            errno = EACCES;
        return -1;
    }
    if (statx(fd, "", AT_EMPTY_PATH, STATX_UID | STATX_MODE, &s) || s.stx_uid != geteuid() ||
        s.stx_mode & 077) {
        close(fd);
        errno = EACCES;
        return -1;
    }
    if ((s.stx_mode & 0700) != 0700)
        directory_repair(fd);
    return fd;
}

static int directory_make(const char *path) {
    int fd = directory_open(path);

    if (fd >= 0 || errno != ENOENT)
        return fd;
    if (mkdirat(AT_FDCWD, path, 0700) && errno != EEXIST) {
        if (errno == EACCES)
            errno = EPERM;
        return -1;
    }
    return directory_open(path);
}

int zr_directory(char *path, size_t size) {
    for (unsigned n = 0; n < DIRECTORY_NAMES; n++) {
        int fd;

        directory_name(path, size, n);
        fd = directory_make(path);
        if (fd >= 0 || errno != EACCES)
            return fd;
        zr_warn("%s is not a directory of this user alone: the next free name is used", path);
    }
    errno = EACCES;
    return -1;
}

/* A second one is there if the first was taken by another user for some time, or still is. */
void zr_directory_each(void (*see)(int directory, void *arg), void *arg) {
    char path[64];

    for (unsigned n = 0; n < DIRECTORY_NAMES; n++) {
        int fd;

        directory_name(path, sizeof path, n);
        fd = directory_open(path);
        if (fd < 0 && errno == ENOENT && n > 0)
            return;
        if (fd < 0)
            continue;
        see(fd, arg);
        close(fd);
    }
}
