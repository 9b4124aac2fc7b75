/* Small files of the system, and numbers in them: without malloc, stdio or a locale. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

size_t zr_read_file(const char *path, char *out, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t have = 0;
    ssize_t n = 1;

    while (fd >= 0 && have < size - 1 && (n = read(fd, out + have, size - 1 - have)) > 0)
        have += (size_t)n;
    if (fd >= 0)
        close(fd);
    out[have] = '\0';
    return have;
}

size_t zr_read_system(const char *path, char *out, size_t size) {
    const char *root = secure_getenv("ZEROUTE_ROOT");
    char full[512];

    out[0] = '\0';
    if ((size_t)snprintf(full, sizeof full, "%s%s", root ? root : "", path) >= sizeof full)
        return 0;
    return zr_read_file(full, out, size);
}

uint64_t zr_number(const char *s) {
    uint64_t n = 0;

    while (*s == ' ' || *s == '\t')
        s++;
    if (*s < '0' || *s > '9')
        return UINT64_MAX;
    for (; *s >= '0' && *s <= '9'; s++)
        n = n * 10 + (uint64_t)(*s - '0');
    return n;
}
