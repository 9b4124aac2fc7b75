/*
 * Our descriptors in a process that does not know of them. A program may close any number, or all
 * of them, and get the number for a file of its own: before each use a descriptor must prove that
 * it still leads to the file it was opened for. Between the proof and the use another thread may
 * still close it; that window cannot be closed.
 */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOW_NUMBERS = 64, HIGH_NUMBER = 800, STANDARD = 2 };

/*
 * The lowest number to move to, by the soft limit: programs dup over low numbers, and select()
 * takes them alone.
 */
static int descriptor_floor(void) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > HIGH_NUMBER + LOW_NUMBERS)
        return HIGH_NUMBER;
    if (limit.rlim_cur > 2 * LOW_NUMBERS)
        return LOW_NUMBERS;
    return STANDARD + 1;
}

/* Where there is no room above, any number will do but those of the standard streams. */
static int descriptor_move(int fd) {
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, descriptor_floor());

    if (moved < 0 && fd <= STANDARD)
        moved = fcntl(fd, F_DUPFD_CLOEXEC, STANDARD + 1);
    if (moved < 0 && fd > STANDARD)
        return fd;
    close(fd);
    return moved;
}

static bool descriptor_identify(int fd, uint64_t *device, uint64_t *inode) {
    struct statx s;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_INO, &s))
        return false;
    *device = (uint64_t)s.stx_dev_major << 32 | s.stx_dev_minor;
    *inode = s.stx_ino;
    return true;
}

struct zr_descriptor zr_descriptor_borrow(int fd) {
    struct zr_descriptor d = {.fd = fd};

    if (fd >= 0 && !descriptor_identify(fd, &d.device, &d.inode)) {
        close(fd);
        d.fd = -1;
    }
    return d;
}

struct zr_descriptor zr_descriptor_keep(int fd) {
    return zr_descriptor_borrow(fd < 0 ? fd : descriptor_move(fd));
}

bool zr_descriptor_is_ours(const struct zr_descriptor *d) {
    uint64_t device, inode;
    int saved = errno;
    bool ours = d->fd >= 0 && descriptor_identify(d->fd, &device, &inode) && device == d->device &&
                inode == d->inode;

    errno = ours ? saved : EBADF;
    return ours;
}

void zr_descriptor_close(struct zr_descriptor *d) {
    int saved = errno;

    if (zr_descriptor_is_ours(d))
        close(d->fd);
    d->fd = -1;
    errno = saved;
}
