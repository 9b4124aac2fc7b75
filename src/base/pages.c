#include "base/base.h"

#include <errno.h>

#include <stdint.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, CHUNK = 256 << 10, LINE = 64 };

static struct zr_lock piece_lock;
static char *piece_next;
static size_t piece_left;

static void *map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

void *zr_pages(size_t bytes) {
    int saved = errno;
    char *p;

    if (bytes < HUGE_PAGE) {
        p = map(bytes);
    } else {
        p = map(bytes + HUGE_PAGE);
        if (p) {
            size_t before = -(uintptr_t)p & (HUGE_PAGE - 1);

            if (before)
                munmap(p, before);
            munmap(p + before + bytes, HUGE_PAGE - before);
            p += before;
            madvise(p, bytes, MADV_HUGEPAGE);
        }
    }
    errno = saved;
    return p;
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
    if (piece_left < bytes) {
        char *chunk = zr_pages(CHUNK);

        if (chunk) {
            piece_next = chunk;
            piece_left = CHUNK;
        }
    }
    if (piece_left >= bytes) {
        p = piece_next;
        piece_next += bytes;
        piece_left -= bytes;
    }
    zr_unlock(&piece_lock);
    return p;
}

void zr_pages_fork_child(void) {
    piece_lock.word = 0;
    piece_left = 0;
}
