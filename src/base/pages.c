/*
 * Memory of our own, from mmap; and the mappings of the process, for writing into memory that is
 * not ours.
 */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK = 256 << 10, LINE = 64 };

static struct zr_lock piece_lock;
/* In a chunk, which ends at the next multiple of CHUNK; one word: never half changed. */
static uintptr_t piece_next;

void *zr_pages(size_t bytes) {
    int saved = errno;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);

    errno = saved;
    return p == MAP_FAILED ? NULL : p;
}

void zr_pages_back(void *pages, size_t bytes) {
    int saved = errno;

    munmap(pages, bytes);
    errno = saved;
}

void *zr_piece(size_t bytes) {
    void *p = NULL;

    bytes = (bytes + LINE - 1) & ~(size_t)(LINE - 1);
    zr_lock(&piece_lock);
    if ((-piece_next & (CHUNK - 1)) < bytes) {
        uintptr_t pages = (uintptr_t)zr_pages(2 * CHUNK); /* untouched pages take no memory */

        if (pages) /* not at its very start, which reads as the end of the chunk before */
            piece_next = ((pages + CHUNK - 1) & ~(uintptr_t)(CHUNK - 1)) + LINE;
    }
    if ((-piece_next & (CHUNK - 1)) >= bytes) {
        p = (void *)piece_next;
        piece_next += bytes;
    }
    zr_unlock(&piece_lock);
    return p;
}

/*
 * One line of /proc/self/maps, "START-END rwxp ...". Returns its protection, -1 if it does not hold
 * all these bytes.
 */
static int mapping_line(const char *line, uintptr_t start, uintptr_t end, uintptr_t *low,
                        uintptr_t *high) {
    int protection = 0;
    char *kind;

    *low = strtoul(line, &kind, 16);
    *high = strtoul(kind + 1, &kind, 16);
    if (start < *low || *high < end)
        return -1;
    if (kind[1] == 'r')
        protection |= PROT_READ;
    if (kind[2] == 'w')
        protection |= PROT_WRITE;
    if (kind[3] == 'x')
        protection |= PROT_EXEC;
    return protection;
}

int zr_mapping(uintptr_t start, uintptr_t end, uintptr_t *low, uintptr_t *high) {
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), found = -1;
    char text[4096 + 128]; /* a line has a path of at most 4096 bytes */
    size_t have = 0;
    ssize_t n;

    if (fd < 0)
        return -1;
    do {
        char *line = text, *next;

        n = read(fd, text + have, sizeof text - 1 - have);
        text[have + (size_t)(n > 0 ? n : 0)] = '\0';
        for (next = strchr(line, '\n'); found < 0 && next; next = strchr(line, '\n')) {
            found = mapping_line(line, start, end, low, high);
            line = next + 1;
        }
        have = strlen(line);
        memmove(text, line, have);
    } while (found < 0 && n > 0);
    close(fd);
    return found;
}

int zr_pages_protect(void *start, size_t bytes, int protection) {
    uintptr_t at = (uintptr_t)start, page = at & ~(uintptr_t)4095, low, high;
    int saved = errno, was = protection, next = protection;

    if (protection < 0) {
        was = zr_mapping(at, at + bytes, &low, &high);
        next = was | PROT_WRITE;
    }
    if (was >= 0 && !(was & PROT_WRITE) &&
        (was & PROT_EXEC || mprotect((void *)page, at + bytes - page, next) != 0))
        was = -1;
    errno = saved;
    return was;
}
