/*
 * The contents of blocks while these are given up: in memory of the process, or in a file without a
 * name, so that nothing stays behind whatever ends the process. Room is made for all of it before
 * anything is given up. Only the thread that pauses or resumes is here, but for blocks that are
 * freed meanwhile.
 */
#include "machine/machine.h"
#include "pause/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { ENGINES = 64, BUFFER = 16 << 20, POPULATE_WRITE = 23 };
static const uint64_t SPARE = UINT64_C(256) << 20; /* host memory that is left to others */

static struct {
    char *pages; /* NULL: they are in the file, or nowhere */
    struct zr_descriptor file;
    uint64_t bytes;
    bool keeps;
    int direct; /* O_DIRECT while that works */
} store = {.file = {.fd = -1}};
static struct zr_lock engines_lock;
static struct zr_engine engines[ENGINES];

/* --- the store -------------------------------------------------------------------------------- */

/* All of it is there afterwards: a page that is not would be missed only when it is too late. */
static bool populate(char *pages, uint64_t bytes) {
    if (madvise(pages, bytes, POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL)
        return false;
    for (uint64_t at = 0; at < bytes; at += 4096)
        pages[at] = 0;
    return true;
}

static const char *make_in_memory(uint64_t bytes) {
    uint64_t available = zr_host_available();

    if (available != UINT64_MAX && (available < SPARE || available - SPARE < bytes))
        return "there is not enough host memory for the contents";
    store.pages = zr_pages(bytes);
    if (!store.pages)
        return "there is no host memory for the contents";
    if (populate(store.pages, bytes))
        return NULL;
    zr_pages_back(store.pages, bytes);
    store.pages = NULL;
    return "there is no host memory for the contents";
}

static bool file_has_room(int fd, uint64_t bytes) {
    struct statvfs s;

    if (fallocate(fd, 0, 0, (off_t)bytes) == 0)
        return true;
    if (errno != EOPNOTSUPP || fstatvfs(fd, &s) != 0 || s.f_bavail * s.f_frsize < bytes)
        return false;
    return ftruncate(fd, (off_t)bytes) == 0;
}

static const char *make_in_file(const char *folder, uint64_t bytes) {
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR))
        return "the file system of that folder knows no files without a name";
    if (fd < 0)
        return "no file can be made in that folder";
    store.file = zr_descriptor_keep(fd);
    if (store.file.fd < 0)
        return "there is no descriptor for a file";
    if (!file_has_room(store.file.fd, bytes)) {
        zr_descriptor_close(&store.file);
        return "there is not enough room in that folder for the contents";
    }
    store.direct = fcntl(store.file.fd, F_SETFL, O_DIRECT) == 0;
    return NULL;
}

const char *zr_store_make(const char *folder, uint64_t bytes) {
    const char *why = NULL;

    store.keeps = strcmp(folder, "nothing") != 0;
    store.bytes = bytes;
    if (!store.keeps || !bytes)
        return NULL;
    why = strcmp(folder, "host") == 0 ? make_in_memory(bytes) : make_in_file(folder, bytes);
    if (why)
        store.bytes = 0;
    return why;
}

void zr_store_drop(void) {
    if (store.pages)
        zr_pages_back(store.pages, store.bytes);
    store.pages = NULL;
    if (store.file.fd >= 0)
        zr_descriptor_close(&store.file);
    store.bytes = 0;
}

uint64_t zr_store_host_bytes(void) {
    return store.pages ? store.bytes : 0;
}

void zr_store_forget(const struct zr_pausable *p) {
    if (p->stored && store.pages)
        madvise(store.pages + p->place, p->held, MADV_DONTNEED);
    else if (p->stored && zr_descriptor_is_ours(&store.file))
        (void)fallocate(store.file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)p->place,
                        (off_t)p->held);
}

/* --- the file --------------------------------------------------------------------------------- */

/* Some file systems take O_DIRECT and refuse to use it. */
static bool retry_indirectly(void) {
    if (!store.direct || errno != EINVAL)
        return false;
    store.direct = 0;
    return fcntl(store.file.fd, F_SETFL, 0) == 0;
}

/* Moves a piece between the file and memory. */
static bool file_move(char *bytes, size_t size, uint64_t at, bool out) {
    while (size) {
        ssize_t n;

        if (!zr_descriptor_is_ours(&store.file))
            return false;
        if (out)
            n = pwrite(store.file.fd, bytes, size, (off_t)at);
        else
            n = pread(store.file.fd, bytes, size, (off_t)at);
        if (n < 0 && (errno == EINTR || retry_indirectly()))
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        at += (uint64_t)n;
        size -= (size_t)n;
    }
    return true;
}

/* --- engines ---------------------------------------------------------------------------------- */

/* NULL if the driver refuses, or there are too many. */
static struct zr_engine *copier_of(const struct zr_pausable *p) {
    struct zr_engine *e = NULL, *empty = NULL;

    zr_lock(&engines_lock);
    for (unsigned i = 0; i < ENGINES && !e; i++)
        if (engines[i].context == p->context && engines[i].device == p->device &&
            engines[i].hook == p->hook)
            e = &engines[i];
        else if (!engines[i].context)
            empty = &engines[i];
    if (!e && empty)
        *empty = (struct zr_engine){.context = p->context, .device = p->device, .hook = p->hook};
    zr_unlock(&engines_lock);
    if (!e && empty) {
        e = empty;
        zr_engine_make(e, BUFFER);
    }
    return e && e->list && !zr_pause_halts() ? e : NULL;
}

void zr_engines_drop(const void *context) {
    for (unsigned i = 0; i < ENGINES; i++) {
        struct zr_engine e = {.context = NULL};

        zr_lock(&engines_lock);
        if (engines[i].context && (!context || (const void *)engines[i].context == context)) {
            e = engines[i];
            engines[i].context = NULL;
        }
        zr_unlock(&engines_lock);
        if (e.context)
            zr_engine_drop(&e);
    }
}

static bool engine_copy(struct zr_engine *e, void *to, const void *from, size_t size) {
    return !zr_pause_halts() &&
           e->copy(e->list, to, from, size, NULL, 0, NULL) == ZE_RESULT_SUCCESS;
}

/* One piece of a block that is at `at` in it: to the store, or from there. */
static bool piece_move(struct zr_engine *e, const struct zr_pausable *p, size_t at, size_t size,
                       bool out) {
    char *block = (char *)p->base + at;
    uint64_t place = p->place + at;

    if (out) {
        if (!engine_copy(e, e->buffer, block, size))
            return false;
        if (!store.pages)
            return file_move(e->buffer, size, place, true);
        memcpy(store.pages + place, e->buffer, size);
        return true;
    }
    if (store.pages)
        memcpy(e->buffer, store.pages + place, size);
    else if (!file_move(e->buffer, size, place, false))
        return false;
    return engine_copy(e, block, e->buffer, size);
}

static bool block_move(const struct zr_pausable *p, bool out) {
    struct zr_engine *e = copier_of(p);
    size_t size;

    if (!e)
        return false;
    for (size_t at = 0; at < p->held; at += size) {
        size = p->held - at < BUFFER ? p->held - at : BUFFER;
        if (!piece_move(e, p, at, size, out))
            return false;
        zr_pause_moved((int64_t)size);
    }
    return true;
}

bool zr_store_put(const struct zr_pausable *p) {
    return !store.keeps || block_move(p, true);
}

bool zr_store_get(const struct zr_pausable *p) {
    return p->stored ? block_move(p, false) : zr_store_zero(p);
}

bool zr_store_zero(const struct zr_pausable *p) {
    struct zr_engine *e = copier_of(p);
    unsigned char zero = 0;

    zr_pause_moved((int64_t)p->held);
    return e &&
           e->fill(e->list, (void *)p->base, &zero, 1, p->held, NULL, 0, NULL) == ZE_RESULT_SUCCESS;
}

bool zr_store_keeps(void) {
    return store.keeps;
}

void zr_contents_fork_child(void) {
    memset(engines, 0, sizeof engines);
    if (store.pages)
        zr_pages_back(store.pages, store.bytes);
    store.pages = NULL;
    zr_descriptor_close(&store.file);
    store.bytes = 0;
}
