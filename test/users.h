/* Where the segments of a user lie, for tests that put some there by hand. */
#ifndef USERS_H
#define USERS_H

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes it, if need be, and returns its path. */
static inline const char *directory_of(unsigned uid) {
    static char path[64];

    snprintf(path, sizeof path, "/dev/shm/zeroute-%u", uid);
    if (mkdir(path, 0700) == 0 && geteuid() == 0 && chown(path, uid, uid) != 0)
        return NULL;
    return path;
}

static inline const char *own_directory(void) {
    return directory_of(geteuid());
}

#endif
