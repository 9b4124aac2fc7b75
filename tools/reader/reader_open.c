/* Segments are opened without following anybody's links, and without looking at a path twice. */
#include "zeroute/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef SYS_openat2
#include <linux/openat2.h>
#endif

/* Folder by folder, where the kernel cannot do it at once. */
static int open_step_by_step(int from, const char *path, int flags) {
    char part[256];
    int fd = fcntl(from, F_DUPFD_CLOEXEC, 0);
    while (fd >= 0 && *path) {
        size_t length = strcspn(path, "/");
        snprintf(part, sizeof part, "%.*s", (int)length, path);
        path += length + (path[length] == '/');
        int next = openat(fd, part, *path ? O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW : flags);
        int saved = errno;
        close(fd);
        errno = saved;
        fd = next;
    }
    return fd;
}

static int open_below(int from, const char *path, int flags) {
#ifdef SYS_openat2
    struct open_how how = {.flags = (unsigned)flags, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH};
    int fd = (int)syscall(SYS_openat2, from, path, &how, sizeof how);
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
        return fd;
#endif
    return open_step_by_step(from, path, flags);
}

/*
 * /proc/<pid>/root is another's file system, and a link in it leads out of it, wherever its owner likes: none is
 * followed.
 */
int zeroute_open(const char *path, int flags) {
    static const char root[] = "/root/";
    const char *rest = strncmp(path, "/proc/", 6) == 0 ? strstr(path, root) : NULL;
    char part[64];
    flags |= O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    if (!rest)
        return open(path, flags);
    rest += strlen(root);
    snprintf(part, sizeof part, "%.*s", (int)(rest - path), path);
    int from = open(part, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (from < 0)
        return -1;
    int fd = open_below(from, rest, flags), saved = errno;
    close(from);
    errno = saved;
    return fd;
}

/* Our own /dev/shm may be a link; no other is. */
static int open_directory_of(const struct zeroute_process *p) {
    char directory[sizeof p->path];
    const char *slash = strrchr(p->path, '/');
    snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - p->path) : 0, p->path);
    if (strcmp(directory, ZEROUTE_SEGMENT_DIR) == 0)
        return open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return zeroute_open(directory, O_RDONLY | O_DIRECTORY);
}

/* A process that ends exchanges its segment for a small one, and so does who finds a large one of a dead process. */
static bool is_made_small(const struct zeroute_process *p, int fd, const struct stat *st) {
    struct zeroute_segment_header h;
    const ssize_t size = offsetof(struct zeroute_segment_header, created_ns);
    if (!S_ISREG(st->st_mode) || st->st_dev != p->device || !p->nonce || pread(fd, &h, (size_t)size, 0) != size)
        return false;
    return h.magic == ZEROUTE_SEGMENT_MAGIC && h.nonce == p->nonce && (int)h.pid == p->pid_inside;
}

static bool is_listed(const struct zeroute_process *p, int fd) {
    struct stat st;
    if (fstat(fd, &st))
        return false;
    return (st.st_dev == p->device && st.st_ino == p->inode) || is_made_small(p, fd, &st);
}

int zeroute_open_listed(const struct zeroute_process *p, int *directory) {
    int in = open_directory_of(p);
    int fd =
        in < 0 ? -1 : openat(in, strrchr(p->path, '/') + 1, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    int saved = errno;
    if (fd >= 0 && !is_listed(p, fd)) {
        close(fd);
        fd = -1;
        saved = ESTALE;
    }
    if (fd >= 0 && directory)
        *directory = in;
    else if (in >= 0)
        close(in);
    errno = saved;
    return fd;
}
