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

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HANDLES = 24,  /* as many lines as the text has room for */
    OPENED = 4,    /* addresses of one handle */
    SEGMENTS = 64, /* of other processes, looked at in one go */
    FIELDS = 2048, /* of a segment */
    LOOK_MS = 20,
    TEXT = 1024
};

static struct handle {
    char role; /* x, f, o, or 0: free */
    bool told;
    uint64_t whole, patched; /* its two ids */
    const void *base;        /* of an exported block */
    const void *at[OPENED];  /* where it was opened, or NULL */
    unsigned opens, closes;
    struct zr_origin origin;
} handles[HANDLES];
static struct zr_lock lock;
static uint32_t open_imports, looked_ms; /* atomic */

struct other {
    struct zeroute_segment_header header;
    char text[TEXT];
};

static bool is_on(void) {
    return zr_config.check == ZR_CHECK_IPC || zr_config.check == ZR_CHECK_ALL;
}

/* --- names of handles --------------------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t seed, const void *bytes, size_t length) {
    const unsigned char *p = bytes;

    for (size_t i = 0; i < length; i++)
        seed = (seed ^ p[i]) * UINT64_C(1099511628211);
    return seed;
}

static void name(const ze_ipc_mem_handle_t *h, uint64_t *whole, uint64_t *patched) {
    static const uint64_t seed = UINT64_C(14695981039346656037);
    struct statx s = {0}; /* fstat is a function of libc's own only from glibc 2.33 on */
    int fd;

    memcpy(&fd, h, sizeof fd);
    *whole = hash(seed, h, sizeof *h);
    *patched = hash(seed, (const char *)h + sizeof fd, sizeof *h - sizeof fd);
    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_INO, &s) != 0)
        s.stx_ino = 0;
    *patched = hash(hash(*patched, &s.stx_dev_minor, sizeof s.stx_dev_minor), &s.stx_ino, sizeof s.stx_ino);
}

/* Under the lock. */
static struct handle *find(char role, uint64_t whole, uint64_t patched) {
    for (unsigned i = 0; i < HANDLES; i++)
        if (handles[i].role == role && (handles[i].whole == whole || handles[i].patched == patched))
            return &handles[i];
    return NULL;
}

/* A free one, else one whose block is gone; NULL: there are too many. Under the lock. */
static struct handle *make(char role, uint64_t whole, uint64_t patched) {
    struct handle *h = NULL;

    for (unsigned i = 0; i < HANDLES && !h; i++)
        if (!handles[i].role)
            h = &handles[i];
    for (unsigned i = 0; i < HANDLES && !h; i++)
        if (handles[i].role == 'f')
            h = &handles[i];
    if (h)
        *h = (struct handle){.role = role, .whole = whole, .patched = patched};
    return h;
}

static void publish(void) {
    char text[TEXT] = "";
    size_t used = 0;

    zr_lock(&lock);
    for (unsigned i = 0; i < HANDLES && used < sizeof text - 48; i++)
        if (handles[i].role)
            used += (size_t)snprintf(text + used, sizeof text - used, "%c %016llx %016llx\n", handles[i].role,
                                     (unsigned long long)handles[i].whole, (unsigned long long)handles[i].patched);
    zr_unlock(&lock);
    zr_text(ZR_T_CHECK_IPC, text);
}

/* --- other processes ---------------------------------------------------------------------------------------------- */

static bool read_at(int fd, void *out, size_t size, uint64_t offset) {
    return offset < UINT64_C(1) << 40 && pread(fd, out, size, (off_t)offset) == (ssize_t)size;
}

/* Where the text is in its globals; 0: it has none. What the segment says of itself is believed within bounds. */
static uint32_t offset_of_text(int fd, const struct zeroute_segment_header *h) {
    struct zeroute_segment_field f;
    uint32_t count = h->field_count < FIELDS ? h->field_count : FIELDS;

    if (h->field_size < sizeof f || h->field_size > 4096)
        return 0;
    for (uint32_t i = count; i-- > 0;)
        if (!read_at(fd, &f, sizeof f, h->fields_offset + (uint64_t)i * h->field_size))
            return 0;
        else if (f.type == ZEROUTE_TEXT && f.place == ZEROUTE_GLOBAL &&
                 strncmp(f.name, "check.handles", sizeof f.name) == 0)
            return f.offset;
    return 0;
}

/* A text that was being written is read again by whoever looks next. */
static bool read_other(const char *file, struct other *o) {
    char path[300];
    struct zeroute_segment_text head, again;
    struct statx s;
    uint32_t offset;
    bool good;
    int fd;

    snprintf(path, sizeof path, ZEROUTE_SEGMENT_DIR "/%.200s", file);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    good = statx(fd, "", AT_EMPTY_PATH, STATX_UID, &s) == 0 && s.stx_uid == geteuid() &&
           read_at(fd, &o->header, sizeof o->header, 0) && o->header.magic == ZEROUTE_SEGMENT_MAGIC &&
           o->header.layout == ZEROUTE_SEGMENT_LAYOUT && o->header.pid != (uint32_t)getpid() &&
           kill((pid_t)o->header.pid, 0) == 0 && (offset = offset_of_text(fd, &o->header)) != 0;
    if (good) {
        uint64_t at = o->header.globals_offset + offset;

        memset(o->text, 0, sizeof o->text);
        good = read_at(fd, &head, sizeof head, at) && !(head.generation & 1) && head.length < sizeof o->text &&
               read_at(fd, o->text, head.length, at + sizeof head) && read_at(fd, &again, sizeof again, at) &&
               again.generation == head.generation;
    }
    close(fd);
    o->header.command[sizeof o->header.command - 1] = '\0';
    for (char *p = o->header.command; *p; p++)
        if ((unsigned char)*p < ' ' || (unsigned char)*p >= 127)
            *p = '?';
    return good;
}

/* Whether it has a line of this role with one of the ids. */
static bool has(const struct other *o, char role, const struct handle *h) {
    char want[2][24];

    snprintf(want[0], sizeof want[0], "%c %016llx ", role, (unsigned long long)h->whole);
    snprintf(want[1], sizeof want[1], " %016llx\n", (unsigned long long)h->patched);
    for (const char *line = o->text; *line; line += strcspn(line, "\n") + 1)
        if (line[0] == role &&
            (strncmp(line, want[0], strlen(want[0])) == 0 || strncmp(line + 18, want[1], strlen(want[1])) == 0))
            return true;
        else if (!strchr(line, '\n'))
            break;
    return false;
}

/* Calls see() for each process of this user that has such a line, until it returns true. */
static void each_other(char role, const struct handle *h, bool (*see)(const struct other *o, const void *arg),
                       const void *arg) {
    struct other *o = zr_pages(sizeof *o);
    DIR *d = o ? opendir(ZEROUTE_SEGMENT_DIR) : NULL;
    struct dirent *e;
    unsigned n = 0;

    while (d && n < SEGMENTS && (e = readdir(d)))
        if (strncmp(e->d_name, ZEROUTE_SEGMENT_PREFIX, sizeof ZEROUTE_SEGMENT_PREFIX - 1) == 0 && ++n &&
            read_other(e->d_name, o) && has(o, role, h) && see(o, arg))
            break;
    if (d)
        closedir(d);
    if (o)
        zr_pages_back(o, sizeof *o);
}

/* --- what is told ------------------------------------------------------------------------------------------------- */

static void tell_process(struct zr_account_of *t, const struct other *o) {
    zr_tell(t, "  %-10s process %u: %.200s\n", "other side", o->header.pid, o->header.command);
}

static bool has_it_open(const struct other *o, const void *arg) {
    struct zr_account_of t = {.used = 0};
    const struct zr_checked *c = arg;

    if (zr_found_is_told()) {
        zr_tell(&t, "a block of %zu bytes was freed while process %u has it open\n", c->size, o->header.pid);
        zr_tell_block(&t, c);
        tell_process(&t, o);
        zr_tell_origin(&t, "allocated", &c->born);
        zr_tell_origin(&t, "freed", &c->freed);
    }
    zr_found(ZR_FOUND_IPC_FREED_OPEN, &t);
    return false;
}

static bool has_freed_it(const struct other *o, const void *arg) {
    struct zr_account_of t = {.used = 0};
    const struct handle *h = arg;

    if (zr_found_is_told()) {
        zr_tell(&t, "memory opened at %p was freed by process %u, and is still open here\n", h->at[0], o->header.pid);
        tell_process(&t, o);
        zr_tell_origin(&t, "opened", &h->origin);
    }
    zr_found(ZR_FOUND_IPC_STALE, &t);
    return true;
}

/* --- what happens ------------------------------------------------------------------------------------------------- */

void zr_check_exported(const void *base, const ze_ipc_mem_handle_t *handle) {
    uint64_t whole, patched;
    struct handle *h;
    int saved = errno;

    if (!is_on())
        return;
    name(handle, &whole, &patched);
    zr_lock(&lock);
    h = find('f', whole, patched);
    if (h)
        h->role = 0; /* the handle of a block that was there before */
    h = find('x', whole, patched);
    if (!h)
        h = make('x', whole, patched);
    if (h)
        h->base = base;
    zr_unlock(&lock);
    if (!h)
        zr_check_count(ZR_CHECKED_PASSED_SHARED, 1);
    publish();
    errno = saved;
}

void zr_check_imported(const void *ptr, const ze_ipc_mem_handle_t *handle) {
    uint64_t whole, patched;
    struct handle *h;
    struct zr_origin here;
    int saved = errno;

    if (!is_on())
        return;
    zr_origin_here(&here);
    name(handle, &whole, &patched);
    zr_lock(&lock);
    h = find('o', whole, patched);
    if (!h && (h = make('o', whole, patched)))
        __atomic_fetch_add(&open_imports, 1, __ATOMIC_RELAXED);
    if (h) {
        h->origin = here;
        for (unsigned i = 0; i < OPENED; i++)
            if (!h->at[i]) {
                h->at[i] = ptr;
                break;
            }
        h->opens++;
    }
    zr_unlock(&lock);
    publish();
    errno = saved;
}

void zr_check_closed(const void *ptr) {
    bool found = false;
    int saved = errno;

    if (!is_on())
        return;
    zr_handles_look();
    zr_lock(&lock);
    for (unsigned i = 0; i < HANDLES && !found; i++)
        for (unsigned n = 0; n < OPENED && handles[i].role == 'o' && !found; n++)
            if (handles[i].at[n] == ptr) {
                found = true;
                handles[i].at[n] = NULL;
                if (++handles[i].closes == handles[i].opens) {
                    handles[i].role = 0;
                    __atomic_fetch_sub(&open_imports, 1, __ATOMIC_RELAXED);
                }
            }
    zr_unlock(&lock);
    if (found)
        publish();
    errno = saved;
}

void zr_handles_freed(const struct zr_checked *c) {
    struct handle copy[HANDLES];
    unsigned count = 0;

    if (!is_on())
        return;
    zr_lock(&lock);
    for (unsigned i = 0; i < HANDLES; i++)
        if (handles[i].role == 'x' && handles[i].base == (const void *)c->base) {
            handles[i].role = 'f';
            copy[count++] = handles[i];
        }
    zr_unlock(&lock);
    publish(); /* before the others are looked at: of two that look one sees the other */
    for (unsigned i = 0; i < count; i++)
        each_other('o', &copy[i], has_it_open, c);
}

static void look(void) {
    struct handle copy;

    for (unsigned i = 0; i < HANDLES; i++) {
        uint32_t before = zr_check_errors();

        zr_lock(&lock);
        copy = handles[i];
        zr_unlock(&lock);
        if (copy.role != 'o' || copy.told)
            continue;
        each_other('f', &copy, has_freed_it, &copy);
        if (zr_check_errors() == before)
            continue;
        zr_lock(&lock);
        if (handles[i].role == 'o' && handles[i].whole == copy.whole)
            handles[i].told = true;
        zr_unlock(&lock);
    }
}

/* At calls of the program, not more often than every LOOK_MS. */
void zr_handles_look(void) {
    uint32_t now, then = __atomic_load_n(&looked_ms, __ATOMIC_RELAXED);
    int saved = errno;

    if (likely(!__atomic_load_n(&open_imports, __ATOMIC_RELAXED)))
        return;
    now = zr_now_ms();
    if (now - then >= LOOK_MS &&
        __atomic_compare_exchange_n(&looked_ms, &then, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        look();
    errno = saved;
}

/* What was opened and never closed is as common as memory that is never freed; some closed and some not is an error. */
void zr_handles_end(void) {
    if (!is_on())
        return;
    if (open_imports)
        look();
    for (unsigned i = 0; i < HANDLES; i++) {
        struct zr_account_of t = {.used = 0};

        if (handles[i].role != 'o' || !handles[i].closes)
            continue;
        zr_tell(&t, "a handle was opened %u times and closed %u times\n", handles[i].opens, handles[i].closes);
        zr_tell_origin(&t, "opened", &handles[i].origin);
        zr_found(ZR_FOUND_IPC_UNCLOSED, &t);
    }
}

void zr_handles_fork_child(void) {
    memset(handles, 0, sizeof handles);
    lock = (struct zr_lock){0};
    open_imports = 0;
}
