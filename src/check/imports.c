/*
 * check:ipc: which IPC handles this process has exported and opened, published as a text of its segment, a line each:
 *
 *   x ID ID      exported            f ID ID      exported, and the block was freed since
 *   o ID ID      opened
 *
 * The first id is that of all bytes of the handle, for programs that pass it on as it is; the second leaves out the
 * descriptor at its start and has the file behind it instead, for those that send the descriptor and put their own in
 * its place. Whoever frees looks for who has it open; whoever has it open looks whether it was freed.
 */
#include "check/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HANDLES = 24,  /* as many lines as the text has room for */
    SEGMENTS = 64, /* of other processes, looked at in one go */
    LOOK_MS = 20,
    LINE = 36 /* "x 0123456789abcdef 0123456789abcdef\n" */
};

/* One per export, and one per opening. A handle that was closed stays while it is open at another address as well. */
static struct handle {
    char role; /* x, f, o, or c: closed; 0: the place is free */
    bool told;
    char id[2][17];
    const void *at; /* the start of an exported block, or where it was opened */
    struct zr_origin origin;
} handles[HANDLES];
static struct zr_lock lock;
static uint32_t looked_ms; /* atomic */
static bool imports;       /* atomic: something was opened */

struct other {
    struct zeroute_segment_header header;
    char text[ZR_TEXT_ROOM];
};

static bool is_on(void) {
    return zr_config.check == ZR_CHECK_IPC || zr_config.check == ZR_CHECK_ALL;
}

/* --- the table, under its lock ------------------------------------------------------------------------------------ */

static uint64_t hash(uint64_t seed, const void *bytes, size_t length) {
    const unsigned char *p = bytes;

    for (size_t i = 0; i < length; i++)
        seed = (seed ^ p[i]) * UINT64_C(1099511628211);
    return seed;
}

static void name(struct handle *h, const ze_ipc_mem_handle_t *handle) {
    static const uint64_t seed = UINT64_C(14695981039346656037);
    struct statx s = {0}; /* fstat is a function of libc's own only from glibc 2.33 on */
    uint64_t patched;
    int fd;

    memcpy(&fd, handle, sizeof fd);
    patched = hash(seed, (const char *)handle + sizeof fd, sizeof *handle - sizeof fd);
    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_INO, &s) != 0)
        s.stx_ino = 0;
    patched = hash(hash(patched, &s.stx_dev_minor, sizeof s.stx_dev_minor), &s.stx_ino, sizeof s.stx_ino);
    snprintf(h->id[0], sizeof h->id[0], "%016llx", (unsigned long long)hash(seed, handle, sizeof *handle));
    snprintf(h->id[1], sizeof h->id[1], "%016llx", (unsigned long long)patched);
}

static bool is_same(const struct handle *a, const struct handle *b) {
    return strcmp(a->id[0], b->id[0]) == 0 || strcmp(a->id[1], b->id[1]) == 0;
}

/* The one of this role, of the same handle as `as` unless that is NULL; NULL: there is none. */
static struct handle *find(char role, const struct handle *as) {
    for (unsigned i = 0; i < HANDLES; i++)
        if (handles[i].role == role && (!as || is_same(&handles[i], as)))
            return &handles[i];
    return NULL;
}

static void publish(void) {
    char text[HANDLES * LINE + 1] = "";
    size_t used = 0;

    zr_lock(&lock);
    for (unsigned i = 0; i < HANDLES; i++)
        if (handles[i].role && handles[i].role != 'c')
            used += (size_t)snprintf(text + used, sizeof text - used, "%c %s %s\n", handles[i].role, handles[i].id[0],
                                     handles[i].id[1]);
    zr_unlock(&lock);
    zr_text(ZR_T_CHECK_IPC, text);
}

/* An export in the place of an earlier one of the same handle; else in a free place, or in that of a freed block. */
static void add(const struct handle *h) {
    struct handle *to = NULL;

    zr_lock(&lock);
    if (h->role == 'x')
        to = find('x', h) ? find('x', h) : find('f', h);
    to = to ? to : find(0, NULL);
    to = to ? to : find('f', NULL);
    if (to)
        *to = *h;
    zr_unlock(&lock);
    if (!to)
        zr_check_count(ZR_FOUND_PASSED_SHARED, 1);
    publish();
}

/* --- other processes ---------------------------------------------------------------------------------------------- */

/* A text that is being written is read again by whoever looks next; that of another version of ours is not read. */
static bool read_other(const char *file, struct other *o) {
    struct zeroute_segment_text head, again;
    int fd = zr_segment_of_other(file, &o->header);
    off_t at = (off_t)(o->header.globals_offset + offsetof(struct zr_globals, texts[ZR_T_CHECK_IPC]));
    bool good = fd >= 0 && o->header.globals_size == sizeof(struct zr_globals) &&
                pread(fd, &head, sizeof head, at) == sizeof head && !(head.generation & 1) &&
                pread(fd, o->text, sizeof o->text, at + (off_t)sizeof head) == sizeof o->text &&
                pread(fd, &again, sizeof again, at) == sizeof again && again.generation == head.generation;

    if (fd >= 0)
        close(fd);
    o->text[sizeof o->text - 1] = o->header.command[sizeof o->header.command - 1] = '\0';
    for (char *p = o->header.command; *p; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p >= 127)
            *p = '?';
    return good;
}

/* Whether it has a line of this role with one of the ids. */
static bool has(const struct other *o, char role, const struct handle *h) {
    for (const char *line = o->text; strlen(line) >= LINE; line += LINE)
        if (line[0] == role && (strncmp(line + 2, h->id[0], 16) == 0 || strncmp(line + 19, h->id[1], 16) == 0))
            return true;
    return false;
}

static void report(const struct other *o, const struct handle *h, const struct zr_checked *freed) {
    struct zr_report r = {.used = 0};

    if (freed)
        zr_tell(&r, "a block of %zu bytes was freed while process %u has it open\n", freed->size, o->header.pid);
    else
        zr_tell(&r, "memory opened at %p was freed by process %u, and is still open here\n", h->at, o->header.pid);
    zr_tell(&r, "  %-10s process %u: %.200s\n", "other side", o->header.pid, o->header.command);
    if (freed)
        zr_tell_block(&r, freed);
    else
        zr_tell_origin(&r, "opened", &h->origin);
    zr_found(freed ? ZR_FOUND_IPC_FREED_OPEN : ZR_FOUND_IPC_STALE, &r);
}

/* A process of this user: has it open what was just freed here, or freed what is open here? */
static bool look_at(const char *file, void *freed) {
    const struct zr_checked *c = freed;
    char mine = c ? 'f' : 'o', theirs = c ? 'o' : 'f';
    struct other o;

    if (!read_other(file, &o))
        return true;
    for (unsigned i = 0; i < HANDLES; i++) {
        struct handle h;
        bool tell;

        zr_lock(&lock);
        h = handles[i];
        tell = h.role == mine && !h.told && (!c || h.at == (const void *)c->base) && has(&o, theirs, &h);
        handles[i].told |= tell && !c;
        zr_unlock(&lock);
        if (tell)
            report(&o, &h, c);
    }
    return true;
}

static void look(const struct zr_checked *freed) {
    zr_each_entry(ZEROUTE_SEGMENT_DIR, SEGMENTS, look_at, (void *)(uintptr_t)freed);
}

/* --- what happens ------------------------------------------------------------------------------------------------- */

void zr_check_exported(const void *base, const ze_ipc_mem_handle_t *handle) {
    struct handle h = {.role = 'x', .at = base};
    int saved = errno;

    if (!is_on())
        return;
    name(&h, handle);
    add(&h);
    errno = saved;
}

void zr_check_imported(const void *ptr, const ze_ipc_mem_handle_t *handle) {
    struct handle h = {.role = 'o', .at = ptr};
    int saved = errno;

    if (!is_on())
        return;
    zr_origin_here(&h.origin);
    name(&h, handle);
    add(&h);
    __atomic_store_n(&imports, true, __ATOMIC_RELAXED);
    errno = saved;
}

void zr_check_closed(const void *ptr) {
    struct handle *h = NULL;
    int saved = errno;

    if (!is_on())
        return;
    zr_handles_look();
    zr_lock(&lock);
    for (unsigned i = 0; i < HANDLES && !h; i++)
        if (handles[i].role == 'o' && handles[i].at == ptr)
            h = &handles[i];
    if (h)
        h->role = 'c';
    if (h && !find('o', h)) /* the last one: as many closed as opened */
        for (struct handle as = *h; (h = find('c', &as));)
            h->role = 0;
    zr_unlock(&lock);
    publish();
    errno = saved;
}

void zr_handles_freed(const struct zr_checked *c) {
    if (!is_on())
        return;
    zr_lock(&lock);
    for (unsigned i = 0; i < HANDLES; i++)
        if (handles[i].role == 'x' && handles[i].at == (const void *)c->base)
            handles[i].role = 'f';
    zr_unlock(&lock);
    publish(); /* before the others are looked at: of two that look one sees the other */
    look(c);
    zr_lock(&lock);
    for (unsigned i = 0; i < HANDLES; i++)
        handles[i].told |= handles[i].role == 'f' && handles[i].at == (const void *)c->base;
    zr_unlock(&lock);
}

/* At calls of the program, not more often than every LOOK_MS. */
void zr_handles_look(void) {
    uint32_t now, then = __atomic_load_n(&looked_ms, __ATOMIC_RELAXED);
    int saved = errno;

    if (likely(!__atomic_load_n(&imports, __ATOMIC_RELAXED)))
        return;
    now = zr_now_ms();
    if (now - then >= LOOK_MS &&
        __atomic_compare_exchange_n(&looked_ms, &then, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        look(NULL);
    errno = saved;
}

/* What was opened and never closed is as common as memory that is never freed; some closed and some not is an error. */
void zr_handles_end(void) {
    struct zr_report r = {.used = 0};
    struct handle *h;

    if (imports)
        look(NULL);
    while ((h = find('c', NULL))) {
        unsigned opens = 0, closes = 0;
        struct handle as = find('o', h) ? *find('o', h) : *h;

        for (unsigned i = 0; i < HANDLES; i++)
            if ((handles[i].role == 'o' || handles[i].role == 'c') && is_same(&handles[i], &as)) {
                opens++;
                closes += handles[i].role == 'c';
                handles[i].role = 0;
            }
        r.used = 0;
        zr_tell(&r, "a handle was opened %u times and closed %u times\n", opens, closes);
        zr_tell_origin(&r, "opened", &as.origin);
        zr_found(ZR_FOUND_IPC_UNCLOSED, &r);
    }
}

void zr_handles_fork_child(void) {
    memset(handles, 0, sizeof handles);
    lock = (struct zr_lock){0};
    imports = false;
}
