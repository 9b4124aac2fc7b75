/* Small files of the system, and numbers in them: without malloc, stdio or a locale. */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

size_t zr_read_file(const char *path, char *out, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t have = 0;
    ssize_t n = 0;

    if (fd >= 0) {
        do {
            n = read(fd, out + have, size - 1 - have);
            have += n > 0 ? (size_t)n : 0;
        } while (n > 0 && have < size - 1);
        close(fd);
    }
    out[have] = '\0';
    return have;
}

/* The path as it is on this machine; empty: too long. */
static const char *rooted(const char *path, char full[512]) {
    const char *root = NULL;

    if (strncmp(path, "/proc", 5) == 0 || strncmp(path, "/sys", 4) == 0)
        root = secure_getenv("ZEROUTE_ROOT");
    if (snprintf(full, 512, "%s%s", root ? root : "", path) >= 512)
        full[0] = '\0';
    return full;
}

size_t zr_read_system(const char *path, char *out, size_t size) {
    char full[512];

    return zr_read_file(rooted(path, full), out, size);
}

bool zr_is_in_system(const char *path) {
    char full[512];

    return faccessat(AT_FDCWD, rooted(path, full), F_OK, 0) == 0;
}

struct directory_entry { /* linux_dirent64 */
    uint64_t inode, offset;
    uint16_t length;
    char type, name[];
};

void zr_each_entry_of(int folder, unsigned most,
                      bool (*see)(int folder, const char *name, void *arg), void *arg) {
    _Alignas(8) char list[1024];
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool more = true;
    long n;

    if (fd < 0)
        return;
    do {
        n = syscall(SYS_getdents64, fd, list, sizeof list);
        for (long at = 0; more && at < n;) {
            const struct directory_entry *e = (const void *)(list + at);

            at += e->length;
            if (e->name[0] != '.')
                more = most-- && see(folder, e->name, arg);
        }
    } while (more && n > 0);
    close(fd);
}

struct named_entry {
    bool (*see)(const char *name, void *arg);
    void *arg;
};

static bool see_name(int folder, const char *name, void *arg) {
    const struct named_entry *n = arg;

    (void)folder;
    return n->see(name, n->arg);
}

void zr_each_entry(const char *path, unsigned most, bool (*see)(const char *name, void *arg),
                   void *arg) {
    char full[512];
    int folder = open(rooted(path, full), O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (folder < 0)
        return;
    zr_each_entry_of(folder, most, see_name, &(struct named_entry){see, arg});
    close(folder);
}

const char *zr_printable(char *text) {
    for (char *p = text; *p; p++)
        if (*p < ' ' || *p == 127)
            *p = '?';
    return *text ? text : "?";
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
