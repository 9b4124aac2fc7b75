/*
 * check:ipc: which processes have an IPC handle open, and who has freed what it stands for.
 *
 * They meet at a file in /dev/shm that stays empty: each handle has a byte for "open here" and one for "freed here",
 * and a process holds a POSIX read lock on it for as long as that is so. Whoever frees asks the kernel who has it open,
 * whoever closes asks who has freed it, and the kernel forgets processes that end.
 */
#include "check/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HANDLES = 256, IDS = 2 };
enum fact { OPEN_HERE, FREED_HERE };
enum role { UNUSED, EXPORTED, FREED, OPENED, CLOSED }; /* CLOSED: but not as often as opened */

/* One for each export, and one for each opening. */
static struct handle {
    enum role role;
    uint64_t id[IDS];
    const void *at; /* the start of an exported block, or where it was opened */
    struct zr_origin origin;
} handles[HANDLES];
static struct zr_lock lock;
static int file = -1; /* under the lock; never closed, which would release the locks on its bytes */

static uint64_t fnv1a(const void *bytes, size_t length) {
    uint64_t sum = UINT64_C(14695981039346656037);

    for (const unsigned char *p = bytes; length--; p++)
        sum = (sum ^ *p) * UINT64_C(1099511628211);
    return sum;
}

/*
 * The first id is that of all bytes of the handle, for programs that pass it on as it is; the second leaves out the
 * descriptor at its start and has the file behind it instead, for those that send the descriptor and put their own in
 * its place.
 */
static void name(struct handle *h, const ze_ipc_mem_handle_t *handle) {
    struct statx s = {0}; /* fstat is a function of libc's own only from glibc 2.33 on */
    ze_ipc_mem_handle_t patched = *handle;
    uint64_t file_id;
    int fd;

    memcpy(&fd, handle, sizeof fd);
    file_id = fd >= 0 && statx(fd, "", AT_EMPTY_PATH, STATX_INO, &s) == 0 ? s.stx_ino : 0;
    memset(&patched, 0, sizeof fd);
    h->id[0] = fnv1a(handle, sizeof *handle);
    h->id[1] = fnv1a(&patched, sizeof patched) ^ fnv1a(&file_id, sizeof file_id);
}

static void open_file(void) {
    char path[64];
    struct statx s;

    if (file >= 0)
        return;
    snprintf(path, sizeof path, ZEROUTE_SEGMENT_DIR "/zeroute-check.%u", (unsigned)geteuid());
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0 && (statx(file, "", AT_EMPTY_PATH, STATX_UID, &s) != 0 || s.stx_uid != geteuid())) {
        close(file);
        file = -1;
    }
}

/*
 * Sets (F_SETLK with F_RDLCK), clears (F_UNLCK) or looks at (F_GETLK with F_WRLCK) a fact. Returns another process for
 * which it is so, when looking; 0: there is none.
 */
static unsigned fact_is(const struct handle *h, enum fact fact, int command, short type) {
    for (unsigned i = 0; i < IDS; i++) {
        struct flock l = {
            .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)(h->id[i] >> 3 << 1 | fact), .l_len = 1};

        if (fcntl(file, command, &l) == 0 && command == F_GETLK && l.l_type != F_UNLCK)
            return (unsigned)l.l_pid;
    }
    return 0;
}

static void report_stale(unsigned pid, const struct handle *h) {
    struct zr_report r = {.what = ZR_FOUND_IPC_STALE};

    zr_tell(&r, "memory opened at %p was freed by process %u, and is still open here\n", h->at, pid);
    zr_tell_origin(&r, "opened", &h->origin);
    zr_found(&r);
}

/* Of this role, and of the same handle as `as`, or at this address, unless NULL. Under the lock; NULL: none. */
static struct handle *find(enum role role, const struct handle *as, const void *at) {
    for (struct handle *h = handles; h < handles + HANDLES; h++)
        if (h->role == role && (!at || h->at == at) && (!as || h->id[0] == as->id[0] || h->id[1] == as->id[1]))
            return h;
    return NULL;
}

/* An export in the place of an earlier one of the same handle; else in a free place, or in that of a freed block. */
static void add(enum role role, const void *at, const ze_ipc_mem_handle_t *handle) {
    struct handle h = {.role = role, .at = at}, *to = NULL;
    int saved = errno;

    if (!zr_checks(ZR_CHECK_IPC))
        return;
    zr_origin_here(&h.origin);
    name(&h, handle);
    zr_lock(&lock);
    open_file();
    if (role == EXPORTED && !(to = find(EXPORTED, &h, NULL)))
        to = find(FREED, &h, NULL);
    if (!to && !(to = find(UNUSED, NULL, NULL)))
        to = find(FREED, NULL, NULL);
    if (to && to->role == FREED)
        fact_is(to, FREED_HERE, F_SETLK, F_UNLCK);
    if (to && role == OPENED)
        fact_is(&h, OPEN_HERE, F_SETLK, F_RDLCK);
    if (to)
        *to = h;
    zr_unlock(&lock);
    if (!to)
        zr_check_count(ZR_FOUND_PASSED_SHARED, 1);
    errno = saved;
}

void zr_check_exported(const void *base, const ze_ipc_mem_handle_t *handle) {
    add(EXPORTED, base, handle);
}

void zr_check_imported(const void *ptr, const ze_ipc_mem_handle_t *handle) {
    add(OPENED, ptr, handle);
}

void zr_check_closed(const void *ptr) {
    struct handle *h, closed;
    int saved = errno;
    unsigned pid = 0;

    zr_lock(&lock);
    h = find(OPENED, NULL, ptr);
    if (h) {
        closed = *h;
        pid = fact_is(h, FREED_HERE, F_GETLK, F_WRLCK);
        h->role = CLOSED;
        if (!find(OPENED, &closed, NULL)) {
            fact_is(&closed, OPEN_HERE, F_SETLK, F_UNLCK);
            while ((h = find(CLOSED, &closed, NULL)))
                h->role = UNUSED;
        }
    }
    zr_unlock(&lock);
    if (pid)
        report_stale(pid, &closed);
    errno = saved;
}

void zr_handles_freed(const struct zr_checked *c) {
    struct handle *h;
    unsigned pid = 0;

    zr_lock(&lock);
    while ((h = find(EXPORTED, NULL, (const void *)c->base))) {
        h->role = FREED;
        /* Before anybody is looked for: of two that look one sees the other. */
        fact_is(h, FREED_HERE, F_SETLK, F_RDLCK);
        pid = pid ? pid : fact_is(h, OPEN_HERE, F_GETLK, F_WRLCK);
    }
    zr_unlock(&lock);
    if (pid) {
        struct zr_report r = {.what = ZR_FOUND_IPC_FREED_OPEN};

        zr_tell(&r, "a block of %zu bytes was freed while process %u has it open\n", c->size, pid);
        zr_tell_block(&r, c);
        zr_found(&r);
    }
}

/* What was opened and never closed is as common as memory that is never freed; some closed and some not is an error. */
void zr_handles_end(void) {
    struct handle *h;
    unsigned pid;

    for (h = handles; h < handles + HANDLES; h++)
        if (h->role == OPENED && (pid = fact_is(h, FREED_HERE, F_GETLK, F_WRLCK)))
            report_stale(pid, h);
    while ((h = find(CLOSED, NULL, NULL))) {
        struct zr_report r = {.what = ZR_FOUND_IPC_UNCLOSED};
        struct handle closed = *h;
        unsigned opens = 0, closes = 0;

        for (; (h = find(CLOSED, &closed, NULL)); closes++)
            h->role = UNUSED;
        for (; (h = find(OPENED, &closed, NULL)); opens++)
            h->role = UNUSED;
        zr_tell(&r, "a handle was opened %u times and closed %u times\n", opens + closes, closes);
        zr_tell_origin(&r, "opened", &closed.origin);
        zr_found(&r);
    }
}

void zr_handles_fork_child(void) {
    memset(handles, 0, sizeof handles);
    lock = (struct zr_lock){0};
}
