/* A disk that fills up: the first large write is cut short in the middle of a line, later ones fail. */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t write(int fd, const void *from, size_t size) {
    static int full;

    if (size < 4096)
        return syscall(SYS_write, fd, from, size);
    if (full) {
        errno = ENOSPC;
        return -1;
    }
    full = 1;
    return syscall(SYS_write, fd, from, size / 2 | 1);
}
