/* Which files may be segments: the directories of users in /dev/shm, and in /dev/shm of other mount namespaces. */
#include "reader/found.h"
#include "reader/snapshot.h"

#include "zeroute/reader.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NAMES_OF_A_USER = 16, /* that the library tries, one after the other */
    MOST_OWNERS = 1024,   /* of directories in one /dev/shm */
};

struct seen {
    dev_t device;
    ino_t inode;
};

/* How many directories each user owns in one /dev/shm. */
struct owners {
    struct {
        unsigned uid, directories;
    } at[MOST_OWNERS];
    unsigned count;
    bool full;
};

struct walk {
    bool (*see)(const struct zeroute_found *f, void *arg);
    const struct zeroute_watchman *watchman; /* or NULL */
    void *arg;
    struct seen *seen; /* directories */
    size_t count;
    uint64_t *mounts; /* namespaces */
    size_t mount_count;
};

static bool directory_is_new(struct walk *w, const struct stat *st) {
    struct seen *grown;

    for (size_t i = 0; i < w->count; i++)
        if (w->seen[i].device == st->st_dev && w->seen[i].inode == st->st_ino)
            return false;
    grown = realloc(w->seen, (w->count + 1) * sizeof *grown);
    if (!grown)
        return false;
    w->seen = grown;
    w->seen[w->count++] = (struct seen){st->st_dev, st->st_ino};
    return true;
}

/* NULL: it cannot be read, or was seen under another name. Takes the descriptor. */
static DIR *directory_begin(struct walk *w, int fd, struct stat *st) {
    DIR *d = NULL;

    if (fd >= 0 && fstat(fd, st) == 0 && directory_is_new(w, st))
        d = fdopendir(fd);
    if (!d && fd >= 0)
        close(fd);
    return d;
}

/* "1234", or 0. What follows the number is at *end. */
static int number_of(const char *text, const char **end) {
    char *after;
    long n = *text >= '1' && *text <= '9' ? strtol(text, &after, 10) : 0;

    if (n <= 0 || n > INT32_MAX)
        return 0;
    *end = after;
    return (int)n;
}

/* The process of a name "PID.NONCE"; 0: another file. */
static int process_of(const char *name) {
    const char *end;
    int pid = number_of(name, &end);

    return pid && *end == '.' ? pid : 0;
}

/* zeroute-UID, zeroute-UID.N */
static bool is_users(const char *name) {
    size_t prefix = strlen(ZEROUTE_SEGMENT_USER), digits;

    if (strncmp(name, ZEROUTE_SEGMENT_USER, prefix) != 0)
        return false;
    name += prefix;
    digits = strspn(name, "0123456789");
    if (digits == 0)
        return false;
    name += digits;
    if (*name == '\0')
        return true;
    digits = *name == '.' ? strspn(++name, "0123456789") : 0;
    return digits && digits <= 2 && name[digits] == '\0' && atoi(name) < NAMES_OF_A_USER;
}

/*
 * Anybody may make any number of directories there, and needs no more of them than the library tries. Returns whether
 * this is one of so many.
 */
static bool owner_has_room(struct owners *o, int shm, const char *name) {
    struct stat st;
    unsigned i = 0;

    if (fstatat(shm, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
        return false;
    while (i < o->count && o->at[i].uid != st.st_uid)
        i++;
    if (i == MOST_OWNERS) {
        o->full = true;
        return false;
    }
    if (i == o->count) {
        o->at[i].uid = st.st_uid;
        o->at[i].directories = 0;
        o->count++;
    }
    return o->at[i].directories++ < NAMES_OF_A_USER;
}

/* A directory of another user, which only that user and root may look at. */
static void see_closed(struct walk *w, struct zeroute_found *f, int shm, const char *name) {
    struct stat st;

    if (fstatat(shm, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode) || !directory_is_new(w, &st))
        return;
    f->owner = st.st_uid;
    w->see(f, w->arg);
}

static void see_user(struct walk *w, int shm, const char *path, const char *name) {
    int fd = openat(shm, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct zeroute_found f = {.directory = -1};
    struct dirent *e;
    struct stat st;
    char whole[320];
    bool more = true;
    DIR *d;

    snprintf(whole, sizeof whole, "%s/%s", path, name);
    f.path = whole;
    if (fd < 0 && errno == EACCES)
        see_closed(w, &f, shm, name);
    d = directory_begin(w, fd, &st);
    if (!d)
        return;
    f.directory = dirfd(d);
    f.owner = st.st_uid;
    while (more && (e = readdir(d))) {
        f.name = e->d_name;
        f.pid = process_of(e->d_name);
        if (f.pid)
            more = w->see(&f, w->arg);
    }
    closedir(d);
}

/* Our own /dev/shm may be a link; no other is. */
static int open_shm(const char *path) {
    if (strcmp(path, ZEROUTE_SEGMENT_DIR) == 0)
        return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return zeroute_open(path, O_RDONLY | O_DIRECTORY);
}

/* The caller's directories come first: no crowd of others takes their place. */
static void see_own(struct walk *w, int shm, const char *path) {
    char name[64];

    for (unsigned n = 0; n < NAMES_OF_A_USER; n++) {
        snprintf(name, sizeof name, n ? ZEROUTE_SEGMENT_USER "%u.%u" : ZEROUTE_SEGMENT_USER "%u", geteuid(), n);
        see_user(w, shm, path, name);
    }
}

static void see_shm(struct walk *w, const char *path) {
    size_t prefix = strlen(ZEROUTE_SEGMENT_OLD_PREFIX);
    struct owners owners = {.count = 0};
    struct stat st;
    struct dirent *e;
    bool more = true;
    DIR *d = directory_begin(w, open_shm(path), &st);

    if (d)
        see_own(w, dirfd(d), path);
    while (d && (e = readdir(d))) {
        struct zeroute_found old = {.directory = dirfd(d), .old = true, .path = path, .name = e->d_name};

        if (is_users(e->d_name) && owner_has_room(&owners, dirfd(d), e->d_name))
            see_user(w, dirfd(d), path, e->d_name);
        if (!more || strncmp(e->d_name, ZEROUTE_SEGMENT_OLD_PREFIX, prefix) != 0)
            continue;
        old.pid = process_of(e->d_name + prefix);
        if (old.pid)
            more = w->see(&old, w->arg);
    }
    if (owners.full)
        w->see(&(struct zeroute_found){.directory = -1, .owner = st.st_uid, .path = path, .crowd = true}, w->arg);
    if (d)
        closedir(d);
}

/* Whether this mount namespace was entered before; remembers it. */
static bool is_entered(struct walk *w, uint64_t mounts) {
    uint64_t *grown;

    for (size_t i = 0; i < w->mount_count; i++)
        if (w->mounts[i] == mounts)
            return true;
    grown = realloc(w->mounts, (w->mount_count + 1) * sizeof *grown);
    if (!grown)
        return true;
    w->mounts = grown;
    w->mounts[w->mount_count++] = mounts;
    return false;
}

/* Other mount namespaces, each once: a container's /dev/shm is reached through any of its processes. */
static void see_containers(struct walk *w) {
    uint64_t own = zeroute_namespace("self", "mnt");
    DIR *d = opendir("/proc");
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char path[64];
        uint64_t n;

        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        n = zeroute_namespace(e->d_name, "mnt");
        if (!n || n == own || is_entered(w, n))
            continue;
        if (w->watchman && !w->watchman->enter((int)strtol(e->d_name, NULL, 10), n))
            continue;
        snprintf(path, sizeof path, "/proc/%.16s/root" ZEROUTE_SEGMENT_DIR, e->d_name);
        see_shm(w, path);
    }
    if (d)
        closedir(d);
}

void zeroute_each_found(bool (*see)(const struct zeroute_found *f, void *arg), const struct zeroute_watchman *watchman,
                        void *arg) {
    struct walk w = {.see = see, .watchman = watchman, .arg = arg};

    see_shm(&w, ZEROUTE_SEGMENT_DIR);
    see_containers(&w);
    free(w.seen);
    free(w.mounts);
}
