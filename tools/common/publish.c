/*
 * Files that a command writes. A new file takes the name when it is whole: readers find the old one or the new one,
 * and nothing is ever written through a link, into a FIFO, or over a file of another user, whoever made it there.
 */
#include "common/common.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static bool publish_failed(const struct zr_publish *p, const char *why) {
    zr_complain(p->command, "cannot write %s: %s", zr_shown(p->path), why);
    return false;
}

/* --- where it goes --------------------------------------------------------------------------------- */

/* The number of a descriptor of ours that the path names, as "-" and the shell's >(COMMAND) do; -1: none. */
static int publish_descriptor(const char *path) {
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};

    if (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *number = path + strlen(folders[i]);

        if (strncmp(path, folders[i], strlen(folders[i])) == 0 && *number && !number[strspn(number, "0123456789")])
            return atoi(number);
    }
    return -1;
}

static bool publish_open_folder(struct zr_publish *p) {
    const char *slash = strrchr(p->path, '/');
    char folder[4096] = ".";

    p->name = slash ? slash + 1 : p->path;
    if (slash && (size_t)(slash - p->path) >= sizeof folder)
        return publish_failed(p, strerror(ENAMETOOLONG));
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", slash == p->path ? 1 : (int)(slash - p->path), p->path);
    p->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return p->folder >= 0 || publish_failed(p, strerror(errno));
}

/* Looks at what has the name now. Reports what must not be written over. */
static bool publish_may_replace(struct zr_publish *p) {
    char why[96];
    struct stat st;

    p->mode = 0;
    p->device = false;
    if (fstatat(p->folder, p->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT || publish_failed(p, strerror(errno));
    if (S_ISLNK(st.st_mode))
        return publish_failed(p, "it is a symbolic link: name the file itself");
    p->device = S_ISCHR(st.st_mode); /* /dev/null; only root can make one */
    if (p->device)
        return true;
    if (S_ISDIR(st.st_mode))
        return publish_failed(p, strerror(EISDIR));
    if (!S_ISREG(st.st_mode))
        return publish_failed(p, "it is no regular file");
    if (st.st_uid != geteuid()) {
        snprintf(why, sizeof why, "it belongs to user %" PRIuMAX ": name another file", (uintmax_t)st.st_uid);
        return publish_failed(p, why);
    }
    p->mode = st.st_mode & 07777;
    return true;
}

static bool publish_find(struct zr_publish *p, const char *command, const char *path) {
    *p = (struct zr_publish){.command = command, .path = path, .folder = -1};
    if (publish_descriptor(path) >= 0)
        return true;
    if (!publish_open_folder(p))
        return false;
    if (publish_may_replace(p))
        return true;
    close(p->folder);
    return false;
}

bool zr_publish_possible(const char *command, const char *path) {
    struct zr_publish p;
    bool good;

    if (!publish_find(&p, command, path))
        return false;
    if (p.folder < 0)
        return true;
    good = p.device || faccessat(p.folder, ".", W_OK | X_OK, AT_EACCESS) == 0 || publish_failed(&p, strerror(errno));
    close(p.folder);
    return good;
}

/* NULL, or why the folder must not be used. */
static const char *publish_unsafe_folder(const struct stat *st, unsigned uid) {
    if (st->st_uid != uid && st->st_uid != 0)
        return "the folder belongs to another user";
    if (st->st_mode & (S_IWGRP | S_IWOTH) && !(st->st_mode & S_ISVTX))
        return "other users may exchange what is in the folder: make one of mode 0700";
    return NULL;
}

bool zr_publish_folder(const char *command, const char *folder, unsigned uid, char *out, size_t size) {
    struct zr_publish p = {.command = command, .path = folder};
    char name[4096], *real;
    struct stat st;
    size_t length = strlen(folder);

    while (length > 1 && folder[length - 1] == '/') /* behind a slash a link is followed */
        length--;
    if ((size_t)snprintf(name, sizeof name, "%.*s", (int)length, folder) >= sizeof name)
        return publish_failed(&p, strerror(ENAMETOOLONG));
    if (lstat(name, &st) != 0)
        return publish_failed(&p, strerror(errno));
    if (S_ISLNK(st.st_mode))
        return publish_failed(&p, "it is a symbolic link: name the folder itself");
    if (!S_ISDIR(st.st_mode))
        return publish_failed(&p, strerror(ENOTDIR));
    if (publish_unsafe_folder(&st, uid))
        return publish_failed(&p, publish_unsafe_folder(&st, uid));
    real = realpath(name, NULL);
    if (!real)
        return publish_failed(&p, strerror(errno));
    bool fits = (size_t)snprintf(out, size, "%s", real) < size;
    free(real);
    return fits || publish_failed(&p, strerror(ENAMETOOLONG));
}

/* --- writing ----------------------------------------------------------------------------------------- */

/* A file of a name that nobody can foresee. */
static int publish_new_file(struct zr_publish *p) {
    uint64_t random;

    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return -1;
    snprintf(p->temporary, sizeof p->temporary, ".zeroute.%016" PRIx64, random);
    return openat(p->folder, p->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

FILE *zr_publish_open(struct zr_publish *p, const char *command, const char *path) {
    int fd;

    if (!publish_find(p, command, path))
        return NULL;
    if (publish_descriptor(path) == STDOUT_FILENO)
        return p->file = stdout;
    if (p->folder < 0)
        fd = fcntl(publish_descriptor(path), F_DUPFD_CLOEXEC, 3);
    else if (p->device)
        fd = openat(p->folder, p->name, O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
    else
        fd = publish_new_file(p);
    if (fd >= 0 && p->mode)
        fchmod(fd, p->mode);
    p->file = fd < 0 ? NULL : fdopen(fd, "w");
    if (p->file)
        return p->file;
    publish_failed(p, strerror(errno));
    if (p->folder >= 0)
        close(p->folder);
    return NULL;
}

bool zr_publish_close(struct zr_publish *p, bool good) {
    int error = 0;

    if (ferror(p->file) || (p->file == stdout ? fflush(p->file) : fclose(p->file)) != 0)
        error = errno ? errno : EIO;
    else if (good && *p->temporary && renameat(p->folder, p->temporary, p->folder, p->name) != 0)
        error = errno;
    if (*p->temporary && (error || !good))
        unlinkat(p->folder, p->temporary, 0);
    if (p->folder >= 0)
        close(p->folder);
    if (error)
        return publish_failed(p, strerror(error));
    return good || publish_failed(p, "out of memory");
}
