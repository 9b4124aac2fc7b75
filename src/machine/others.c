/*
 * Segments of this user's other processes, through pread(2). A segment is live as long as its
 * writer holds its lock. A dead one stays dead, so the live ones of a directory are remembered
 * until a file is made or removed in it.
 */
#include "machine/machine.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KNOWN = 1024, DIRECTORIES = 2, SETTLED_NS = 100000000 };

/* A directory as it was listed. Under the lock of claim.c. */
static struct listing {
    uint64_t inode, changed; /* CLOCK_REALTIME; inode 0: to be listed again */
    unsigned count;
    char name[KNOWN][32];
} listings[DIRECTORIES];

/*
 * Whether the name is PID.NONCE, of another process than this one: closing our own segment would
 * release its lock.
 */
static bool is_others(const char *name) {
    const char *nonce = strchr(name, '.');

    if (!nonce || *name < '1' || *name > '9' || strlen(name) >= sizeof listings->name[0])
        return false;
    return !zr_segment.header || strtoull(nonce + 1, NULL, 16) != zr_segment.header->nonce;
}

enum life { DEAD, BEING_MADE, LIVE };

/* A segment is made first, then locked, then complete. *writer: who holds the lock. */
static enum life life_of(const struct zr_descriptor *segment, struct zeroute_segment_header *h,
                         int *writer) {
    struct flock held = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ZEROUTE_SEGMENT_LOCK_BYTE, .l_len = 1};
    bool complete =
        pread(segment->fd, h, sizeof *h, 0) == sizeof *h && h->magic == ZEROUTE_SEGMENT_MAGIC;
    bool locked = fcntl(segment->fd, F_GETLK, &held) == 0 && held.l_type != F_UNLCK;

    *writer = held.l_pid;
    if (!locked)
        return complete ? DEAD : BEING_MADE;
    return complete ? LIVE : BEING_MADE;
}

static struct zr_descriptor open_segment(int directory, const char *name) {
    return zr_descriptor_borrow(
        openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

/* --- announcements ---------------------------------------------------------------------------- */

struct look {
    void (*see)(const struct zr_announcement *a, void *arg);
    void *arg;
    struct listing *listing; /* NULL: there is no room to remember this directory */
};

static bool has_claims(const struct zeroute_segment_header *h) {
    return h->layout == ZEROUTE_SEGMENT_LAYOUT && h->claims &&
           h->header_size >= offsetof(struct zeroute_segment_header, group);
}

/* A process of an older version has none. */
static bool read_group(const struct zr_descriptor *segment, const struct zeroute_segment_header *h,
                       struct zeroute_segment_group *group) {
    if (h->header_size < sizeof *h || !h->group)
        return true;
    return pread(segment->fd, group, sizeof *group, (off_t)(h->globals_offset + h->group)) ==
           sizeof *group;
}

static enum life look_at(const struct look *l, int directory, const char *name) {
    struct zeroute_segment_group group = {0};
    struct zeroute_segment_claim claims[ZR_DEVICES];
    struct zr_descriptor segment = open_segment(directory, name);
    struct zeroute_segment_header h;
    enum life life;
    int writer;

    if (segment.fd < 0)
        return DEAD;
    life = life_of(&segment, &h, &writer);
    /* What a process takes from its lease it has announced before: the lease is read first. */
    if (life == LIVE && has_claims(&h) && read_group(&segment, &h, &group) &&
        pread(segment.fd, claims, sizeof claims, (off_t)(h.globals_offset + h.claims)) ==
            sizeof claims)
        l->see(&(struct zr_announcement){.pid = writer, .claims = claims, .group = &group}, l->arg);
    zr_descriptor_close(&segment);
    return life;
}

/* Remembers what is not dead. Where there are too many, every look lists the directory. */
static bool look_and_remember(int directory, const char *name, void *arg) {
    const struct look *l = arg;
    struct listing *to = l->listing;

    if (!is_others(name) || look_at(l, directory, name) == DEAD || !to)
        return true;
    if (to->count == KNOWN)
        to->inode = 0;
    else
        snprintf(to->name[to->count++], sizeof to->name[0], "%s", name);
    return true;
}

static void look_again(const struct look *l, int directory) {
    struct listing *known = l->listing;
    unsigned kept = 0;

    for (unsigned i = 0; i < known->count; i++)
        if (look_at(l, directory, known->name[i]) != DEAD)
            memmove(known->name[kept++], known->name[i], sizeof known->name[0]);
    known->count = kept;
}

static struct listing *listing_of(uint64_t inode) {
    for (unsigned i = 0; i < DIRECTORIES; i++)
        if (listings[i].inode == inode)
            return &listings[i];
    for (unsigned i = 0; i < DIRECTORIES; i++)
        if (!listings[i].inode)
            return &listings[i];
    return NULL;
}

/*
 * The clock of files has a grain of some milliseconds: what was just changed may be changed again
 * unnoticed.
 */
static bool has_settled(uint64_t changed) {
    uint64_t now = zr_clock(CLOCK_REALTIME);

    return now > changed && now - changed > SETTLED_NS;
}

static void look_into(int directory, void *arg) {
    struct look *l = arg;
    struct statx s;
    uint64_t changed;

    if (statx(directory, "", AT_EMPTY_PATH, STATX_INO | STATX_MTIME, &s))
        return;
    changed = (uint64_t)s.stx_mtime.tv_sec * 1000000000u + s.stx_mtime.tv_nsec;
    l->listing = listing_of(s.stx_ino);
    if (l->listing && l->listing->inode == s.stx_ino && l->listing->changed == changed) {
        look_again(l, directory);
        return;
    }
    if (l->listing) {
        l->listing->count = 0;
        l->listing->changed = changed;
        l->listing->inode = has_settled(changed) ? s.stx_ino : 0;
    }
    zr_each_entry_of(directory, UINT_MAX, look_and_remember, l);
}

void zr_others_each(void (*see)(const struct zr_announcement *a, void *arg), void *arg) {
    zr_directory_each(look_into, &(struct look){.see = see, .arg = arg});
}

void zr_others_fork_child(void) {
    for (unsigned i = 0; i < DIRECTORIES; i++)
        listings[i].inode = 0;
}

/* --- who a process is ------------------------------------------------------------------------- */

struct search {
    int pid;
    char path[128];
};

/* The path by which a segment was opened. */
static void read_path(const struct zr_descriptor *segment, char *out, size_t size) {
    char link[32];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", segment->fd);
    n = readlink(link, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
}

/*
 * A segment belongs to the process that holds its lock, whatever number is in its name. Returns
 * false if found.
 */
static bool search_segment(int directory, const char *name, void *arg) {
    struct search *s = arg;
    struct zr_descriptor segment =
        is_others(name) ? open_segment(directory, name) : ZR_NO_DESCRIPTOR;
    struct zeroute_segment_header h;
    int writer = 0;
    bool found;

    if (segment.fd < 0)
        return true;
    found = life_of(&segment, &h, &writer) == LIVE && writer == s->pid;
    if (found)
        read_path(&segment, s->path, sizeof s->path);
    zr_descriptor_close(&segment);
    return !found;
}

static void search_directory(int directory, void *arg) {
    const struct search *s = arg;

    if (!*s->path)
        zr_each_entry_of(directory, UINT_MAX, search_segment, arg);
}

void zr_process_words(int pid, char *out, size_t size) {
    struct search s = {.pid = pid};
    char path[32], command[96];

    if (pid <= 0) {
        snprintf(out, size, "a process of another PID namespace");
        return;
    }
    if (pid == getpid() && zr_segment.header)
        snprintf(s.path, sizeof s.path, "%s", zr_segment.path);
    else
        zr_directory_each(search_directory, &s);
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    zr_command_line(path, command, sizeof command);
    if (*s.path)
        snprintf(out, size, "process %d (%s), segment %s", pid, zr_printable(command),
                 zr_printable(s.path));
    else
        snprintf(out, size, "process %d (%s), which has no segment", pid, zr_printable(command));
}
