/* The process that reads what belongs to others: what it gives up, and what it answers. */
#include "outside/wire.h"
#include "reader/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MOST_COPIED ((off_t)64 << 20)

enum { PROCESSES_OF_A_USER = 2 };

static int told_socket;
static struct zr_progress *at;
static const struct zr_ask *current;

/* --- for the parts ---------------------------------------------------------------------------- */

void zr_helper_at(int pid, unsigned uid, uint64_t mounts) {
    at->pid = pid;
    at->uid = uid;
    at->mounts = mounts;
    at->step++;
}

/*
 * Of a user other than root one place is enough, and two processes are: the next of them would hold us up as well.
 */
bool zr_helper_is_stuck(int pid, unsigned uid, uint64_t mounts) {
    unsigned processes = 0;

    for (unsigned i = 0; i < current->stuck_count && i < ZR_SKIPPED; i++) {
        const struct zr_stuck *s = &current->stuck[i];

        if (mounts && s->mounts && (s->mounts == mounts || (uid && s->uid == uid)))
            return true;
        if (!mounts && !s->mounts && s->pid == pid && (pid || s->uid == uid))
            return true;
        processes += !s->mounts && s->pid && uid && s->uid == uid;
    }
    return !mounts && pid && processes >= PROCESSES_OF_A_USER;
}

static void tell(enum zr_told_kind kind, const void *what, size_t size, const int *files, unsigned file_count) {
    static char message[ZR_TOLD_BYTES];
    struct zr_told_head head = {kind, (uint32_t)size};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    struct iovec part = {message, sizeof head + size};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};

    memcpy(message, &head, sizeof head);
    memcpy(message + sizeof head, what, size);
    if (file_count) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(file_count * sizeof(int));
        control.head = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(file_count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), files, file_count * sizeof(int));
    }
    ssize_t n;
    do
        n = sendmsg(told_socket, &m, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        _exit(0); /* nobody asks any more */
}

void zr_helper_tell(enum zr_told_kind kind, const void *what, size_t size) {
    tell(kind, what, size, NULL, 0);
}

static void tell_array(enum zr_told_kind kind, const void *array, size_t count, size_t size) {
    size_t most = (ZR_TOLD_BYTES - sizeof(struct zr_told_head)) / size;
    const char *bytes = array;

    for (size_t i = 0; i < count; i += most) {
        size_t n = count - i < most ? count - i : most;
        zr_helper_tell(kind, bytes + i * size, n * size);
    }
}

static void tell_end(bool good, uint32_t value, const int *files, unsigned file_count) {
    struct zr_told_end end = {.good = good, .error = errno, .value = value, .files = file_count};

    tell(ZR_TOLD_END, &end, sizeof end, files, file_count);
}

/* --- segments --------------------------------------------------------------------------------- */

static bool enter_mounts(int pid, uint64_t mounts) {
    unsigned uid = 0;

    zr_reading_user(pid, &uid);
    if (zr_helper_is_stuck(pid, uid, mounts))
        return false;
    zr_helper_at(pid, uid, mounts);
    return true;
}

/* In a mount namespace of others a file system says what its owner likes of whose a directory is. */
static bool step(unsigned uid) {
    if (!at->mounts)
        at->uid = uid;
    at->step++;
    return !zr_helper_is_stuck(0, at->uid, at->mounts);
}

static const struct zeroute_watchman watchman = {.enter = enter_mounts, .step = step};

static void look(enum zr_thoroughness how) {
    zr_helper_at(0, 0, 0);
    struct zeroute_list *list = zeroute_list_watched(&watchman);
    zr_helper_at(0, 0, 0);
    if (list)
        tell_array(ZR_TOLD_SEGMENTS, list->process, list->count, sizeof *list->process);
    if (how != ZR_LOOK_SEGMENTS)
        zr_memory_tell_holders(how, list);
    zeroute_list_free(list);
    tell_end(list != NULL, 0, NULL, 0);
}

/* A file system that answers by itself, whoever has mounted it. */
static bool never_waits(int fd) {
    struct statfs system;

    return fstatfs(fd, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

static int copy_of(int fd) {
    char bytes[16384];
    struct stat st;
    off_t done = 0;
    ssize_t n = 1;
    int copy = memfd_create("segment", MFD_CLOEXEC);

    if (copy < 0 || fstat(fd, &st) || st.st_size > MOST_COPIED || ftruncate(copy, st.st_size)) {
        close(copy);
        errno = EFBIG;
        return -1;
    }
    while (done < st.st_size && (n = pread(fd, bytes, sizeof bytes, done)) > 0) {
        ssize_t put = pwrite(copy, bytes, (size_t)n, done);
        if (put != n)
            break;
        done += n;
        at->step++;
    }
    return copy;
}

/* Below another's root a descriptor leaves this process only where no use of it can ever wait. */
static void open_segment(const struct zeroute_process *p, bool wants_directory) {
    bool ours = strncmp(p->path, "/proc/", 6) != 0;
    int files[2], directory = -1;
    int fd = zeroute_open_listed(p, wants_directory ? &directory : NULL);

    if (fd >= 0 && !ours && !never_waits(fd)) {
        int copy = wants_directory ? -1 : copy_of(fd), saved = wants_directory ? EXDEV : errno;
        close(fd);
        if (directory >= 0)
            close(directory);
        directory = -1;
        fd = copy;
        errno = saved;
    }
    files[0] = fd;
    files[1] = directory;
    tell_end(fd >= 0, 0, files, fd < 0 ? 0 : directory < 0 ? 1 : 2);
    if (fd >= 0)
        close(fd);
    if (directory >= 0)
        close(directory);
}

static void tell_state(const struct zeroute_process *p) {
    enum zeroute_state state = ZEROUTE_UNKNOWN;
    int fd = zeroute_open_listed(p, NULL);

    if (fd >= 0) {
        state = zeroute_state_now(p, fd);
        close(fd);
    }
    tell_end(fd >= 0, state, NULL, 0);
}

/* --- files of a process ----------------------------------------------------------------------- */

static void tell_text(int pid, uint32_t file, size_t most) {
    static const char *const names[] = {[ZR_FILE_ENVIRON] = "environ",
                                        [ZR_FILE_CMDLINE] = "cmdline",
                                        [ZR_FILE_MAPS] = "maps",
                                        [ZR_FILE_CGROUP] = "cgroup",
                                        [ZR_FILE_STATUS] = "status"};
    char path[4096], *text = NULL;
    size_t length = 0;

    bool real = file & ZR_FILE_REAL;

    file &= ~(uint32_t)ZR_FILE_REAL;
    errno = EINVAL;
    if (file < ZR_FILES) {
        zr_root_path(path, sizeof path, "/proc/%d/%s", pid, names[file]);
        if (real)
            snprintf(path, sizeof path, "/proc/%d/%s", pid, names[file]);
        text = zr_reading_text(path, most, &length);
    }
    int saved = errno;
    if (text)
        tell_array(ZR_TOLD_TEXT, text, length, 1);
    free(text);
    errno = saved;
    tell_end(text != NULL, 0, NULL, 0);
}

static void tell_children(int pid) {
    char path[64], *text;
    int child[1024];
    size_t count = 0;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    text = zr_reading_text(path, ZR_OUTSIDE_BYTES, NULL);
    for (char *from = text, *end; from && *from && count < sizeof child / sizeof *child; from = end) {
        long n = strtol(from, &end, 10);
        if (end == from)
            break;
        child[count++] = (int)n;
    }
    free(text);
    tell_array(ZR_TOLD_CHILDREN, child, count, sizeof *child);
    tell_end(true, 0, NULL, 0);
}

/* --- questions -------------------------------------------------------------------------------- */

static void answer(const struct zr_ask *ask) {
    struct zr_process_memory memory;
    struct zr_outside_library library;
    unsigned uid = 0;
    bool good;

    current = ask;
    setenv("ZEROUTE_ROOT", ask->root, 1);
    if (!*ask->root)
        unsetenv("ZEROUTE_ROOT");
    if (ask->kind == ZR_ASK_LOOK) {
        look((enum zr_thoroughness)ask->detail);
        return;
    }
    good = !ask->pid || zr_reading_user(ask->pid, &uid);
    if (zr_helper_is_stuck(ask->pid, uid, 0)) {
        errno = ETIMEDOUT;
        tell_end(false, 0, NULL, 0);
        return;
    }
    zr_helper_at(ask->pid, uid, 0);
    switch (ask->kind) {
    case ZR_ASK_MEMORY:
        good = zr_process_memory_read(ask->pid, &memory);
        zr_helper_tell(ZR_TOLD_MEMORY, &memory, sizeof memory);
        tell_end(good, 0, NULL, 0);
        return;
    case ZR_ASK_TEXT:
        tell_text(ask->pid, ask->detail, ask->most);
        return;
    case ZR_ASK_USER:
        tell_end(good, uid, NULL, 0);
        return;
    case ZR_ASK_CHILDREN:
        tell_children(ask->pid);
        return;
    case ZR_ASK_OPEN:
        open_segment(&ask->process, ask->detail);
        return;
    case ZR_ASK_STATE:
        tell_state(&ask->process);
        return;
    case ZR_ASK_LIBRARY:
        good = zr_library_look(ask->pid, ask->path, &library);
        zr_helper_tell(ZR_TOLD_LIBRARY, &library, sizeof library);
        tell_end(good, 0, NULL, 0);
        return;
    case ZR_ASK_MENTIONS:
        tell_end(zr_library_has(ask->path, ask->string), 0, NULL, 0);
        return;
    default:
        errno = EINVAL;
        tell_end(false, 0, NULL, 0);
    }
}

/* --- what it gives up ------------------------------------------------------------------------- */

/* Reading what others may not is all that root is needed for. */
static void drop_privileges(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct have[2] = {{0}}, keep[2] = {{0}};
    const uint32_t wanted = 1u << CAP_SYS_PTRACE | 1u << CAP_DAC_READ_SEARCH;

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_capget, &head, have))
        return;
    keep[0].permitted = keep[0].effective = have[0].permitted & wanted;
    syscall(SYS_capset, &head, keep);
}

/*
 * Signals of the terminal are for the command; a pipe that somebody reads from the command is not to stay open for
 * as long as another's file system keeps us waiting.
 */
static int keep_alone(int socket) {
    sigset_t none;
    int null = open("/dev/null", O_RDWR), high = fcntl(socket, F_DUPFD, 3);

    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    dup2(high, 3);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    syscall(SYS_close_range, 4u, ~0u, 0u);
    for (int s = 1; s < 32; s++)
        signal(s, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0);
    prctl(PR_SET_NAME, "zeroute-outside");
    return 3;
}

_Noreturn void zr_helper_run(int socket, struct zr_progress *progress) {
    static struct zr_ask ask;

    at = progress;
    told_socket = keep_alone(socket);
    drop_privileges();
    for (;;) {
        ssize_t n = recv(told_socket, &ask, sizeof ask, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != sizeof ask)
            _exit(0);
        answer(&ask);
    }
}
