/*
 * A request in the segment of a process, and its answer (zeroute_segment_control in zeroute/segment.h). The file is
 * the one that the list has found, by its inode, and belongs to the process's user: nobody else may ask.
 */
#include "ctl/ctl.h"
#include "outside/outside.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

uint64_t zr_post_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void zr_post_failed(struct zr_post *p, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->reply, sizeof p->reply, format, arguments);
    va_end(arguments);
    p->state = ZR_POST_FAILED;
}

/* The file that was listed, for writing. */
static int open_for_writing(const struct zeroute_process *p) {
    char path[64];
    int fd = zr_outside_open(p, NULL), again;
    if (fd < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    again = open(path, O_RDWR | O_CLOEXEC);
    int saved = errno;
    close(fd);
    errno = saved;
    return again;
}

/* Its owner may cut the file off at any time: what is missing reads as zeros, and nobody answers there. */
static void replace_page(int signal, siginfo_t *info, void *context) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *at = (void *)((uintptr_t)info->si_addr / page * page);
    (void)context;
    if (mmap(at, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        _exit(128 + signal);
}

/* Maps the page of requests. False, said in the reply, if there is none. */
static bool map_control(struct zr_post *p) {
    struct zeroute_segment_header h;
    struct stat st;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (fstat(p->fd, &st) || pread(p->fd, &h, sizeof h, 0) != (ssize_t)sizeof h || h.magic != ZEROUTE_SEGMENT_MAGIC ||
        h.layout != ZEROUTE_SEGMENT_LAYOUT) {
        zr_post_failed(p, "its segment cannot be read");
        return false;
    }
    if (h.header_size < sizeof h || h.control_size < sizeof *p->control) {
        zr_post_failed(p, "it runs an older version of zeroute, which takes no requests");
        return false;
    }
    if (h.control_offset % page || h.control_offset > (uint64_t)st.st_size ||
        (uint64_t)st.st_size - h.control_offset < h.control_size) {
        zr_post_failed(p, "its segment is damaged");
        return false;
    }
    sigaction(SIGBUS, &(struct sigaction){.sa_sigaction = replace_page, .sa_flags = SA_SIGINFO}, NULL);
    p->map_size = sizeof *p->control;
    p->map = mmap(NULL, p->map_size, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, (off_t)h.control_offset);
    if (p->map == MAP_FAILED) {
        p->map = NULL;
        zr_post_failed(p, "its segment cannot be mapped: %s", strerror(errno));
        return false;
    }
    p->control = p->map;
    return true;
}

/* Requesters take turns. Returns false while another has the turn, or with the state set if there is none to have. */
static bool take_turn(struct zr_post *p) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ZEROUTE_SEGMENT_REQUEST_BYTE, .l_len = 1};

    if (fcntl(p->fd, F_SETLK, &lock) == 0)
        return true;
    if (errno != EAGAIN && errno != EACCES && errno != EINTR)
        zr_post_failed(p, "its segment cannot be locked: %s", strerror(errno));
    return false;
}

/* A requester that keeps the lock holds up this process alone. */
static void leave_request(struct zr_post *p) {
    if (!take_turn(p))
        return;
    /* This request is left from a requester that was killed; the process may be at it right now. */
    __atomic_store_n(&p->control->request, 0, __ATOMIC_SEQ_CST);
    do
        p->number = (uint32_t)(zr_post_clock() * 2654435761u ^ (uint32_t)getpid()) | 1;
    while (p->number == __atomic_load_n(&p->control->answer, __ATOMIC_ACQUIRE));
    memset(p->control->text, 0, sizeof p->control->text);
    memcpy(p->control->text, p->request, strnlen(p->request, sizeof p->control->text - 1));
    __atomic_store_n(&p->control->request, p->number, __ATOMIC_RELEASE);
    p->asked = true;
}

void zr_post(struct zr_post *p, const char *request) {
    p->state = ZR_POST_WAITS;
    p->map = NULL;
    p->fd = -1;
    p->request = request;
    p->asked = p->begun = false;
    if (p->process.state != ZEROUTE_LIVE) {
        zr_post_failed(p, "it has ended");
        return;
    }
    if (geteuid() != p->process.uid && geteuid() != 0) {
        zr_post_failed(p, "it belongs to user %u: only that user may change it", p->process.uid);
        return;
    }
    if (!p->process.readable || (p->fd = open_for_writing(&p->process)) < 0) {
        zr_post_failed(p, "its segment cannot be opened: %.128s",
                       p->process.readable ? strerror(errno) : p->process.why);
        return;
    }
    if (map_control(p))
        leave_request(p);
}

bool zr_post_answered(struct zr_post *p) {
    if (p->state == ZR_POST_WAITS && !p->asked)
        leave_request(p);
    if (p->state != ZR_POST_WAITS)
        return true;
    if (!p->asked)
        return false;
    if (__atomic_load_n(&p->control->answer, __ATOMIC_ACQUIRE) != p->number)
        return false;
    memcpy(p->reply, p->control->reply, sizeof p->reply);
    p->reply[sizeof p->reply - 1] = '\0';
    p->done = p->control->code == ZEROUTE_CARRIED_OUT;
    p->answered_ns = p->control->answered_ns;
    p->state = ZR_POST_ANSWERED;
    return true;
}

bool zr_post_withdraw(struct zr_post *p) {
    uint32_t mine = p->number;

    if (zr_post_answered(p))
        return true;
    if (!p->asked)
        zr_post_failed(p, "another zeroute ctl is waiting for it");
    /* One that has begun is waited for: it will take effect, and that is to be said. */
    else if (__atomic_compare_exchange_n(&p->control->request, &mine, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        p->state = ZR_POST_WITHDRAWN;
    return p->state != ZR_POST_WAITS;
}

void zr_post_end(struct zr_post *p) {
    if (p->state == ZR_POST_WAITS) {
        zr_post_failed(p, "it has begun and not finished");
        p->begun = true;
    }
    if (p->map)
        munmap(p->map, p->map_size);
    if (p->fd >= 0)
        close(p->fd);
    p->map = NULL;
    p->fd = -1;
}
