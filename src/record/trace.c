/*
 * trace: a line of CSV for every device block that the process gets and gives back, as `zeroute replay` reads it.
 *
 * The lines of all threads go into one buffer, in the order in which they happened: a free is noted before it takes
 * effect and an allocation after, so that an address is never there twice. About 100 ns for an event; a full buffer,
 * or one that is a second old, is written by whoever fills it. The file is open only while it is written: a program
 * may close descriptors that it does not know.
 */
#include "record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 65536, LONGEST_LINE = 96, MICROSECONDS = 1000000 };

static struct zr_lock lock;
static char buffer[ROOM];
static size_t used;
static char path[PATH_MAX]; /* empty: not begun */
static uint64_t start, written_at;
static bool stopped;

static uint64_t now_us(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * MICROSECONDS + (uint64_t)t.tv_nsec / 1000;
}

static size_t put_number(char *to, uint64_t n) {
    char digits[20];
    size_t count = 0;

    do
        digits[count++] = (char)('0' + n % 10);
    while (n /= 10);
    for (size_t i = 0; i < count; i++)
        to[i] = digits[count - 1 - i];
    return count;
}

/* The setting's file, %p being the process id, and where the process was when it began: it may go elsewhere. */
static bool name_file(void) {
    const char *from = zr_config.trace;
    size_t n = 0;

    if (*from != '/' && getcwd(path, sizeof path)) {
        n = strlen(path);
        path[n++] = '/';
    }
    for (; *from && n < sizeof path - 24; from++)
        if (from[0] == '%' && from[1] == 'p') {
            n += put_number(path + n, (uint64_t)getpid());
            from++;
        } else {
            path[n++] = *from;
        }
    path[n] = '\0';
    return !*from;
}

static void stop(const char *why) {
    zr_warn("trace: %s: %s; nothing more is written", path, why);
    stopped = true;
    used = 0;
}

/* A pipe that nobody reads is refused: the program must not wait for a reader. */
static int open_file(int flags) {
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, 0600);

    if (fd >= 0)
        fcntl(fd, F_SETFL, flags & O_APPEND);
    return fd;
}

/* That a reader is gone is our own trouble, and no signal for the program. */
static ssize_t write_unharmed(int fd) {
    const struct timespec at_once = {0};
    sigset_t one, pending, before;
    ssize_t n;

    sigemptyset(&one);
    sigaddset(&one, SIGPIPE);
    sigpending(&pending);
    sigprocmask(SIG_BLOCK, &one, &before);
    n = write(fd, buffer, used);
    if (n < 0 && errno == EPIPE && !sigismember(&pending, SIGPIPE)) {
        sigtimedwait(&one, NULL, &at_once);
        errno = EPIPE;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return n;
}

/* With the lock held. What could not be written whole is cut after the last whole line. */
static void write_out(int flags) {
    int fd = open_file(flags);
    ssize_t n = fd < 0 ? -1 : write_unharmed(fd);

    if (n == (ssize_t)used) {
        used = 0;
    } else {
        off_t end = n > 0 ? lseek(fd, 0, SEEK_CUR) : 0;
        ssize_t whole = n;

        while (whole > 0 && buffer[whole - 1] != '\n')
            whole--;
        if (end > 0 && ftruncate(fd, end - (n - whole)) != 0)
            whole = n; /* no file that has an end */
        stop(fd < 0 || n < 0 ? strerror(errno) : "it is full");
    }
    if (fd >= 0)
        close(fd);
}

/* With the lock held. */
static bool begin(void) {
    static const char head[] = "op,id,bytes,stream,time_us\n";

    if (!name_file()) {
        stop("the name is too long");
        return false;
    }
    zr_fork_arm();
    memcpy(buffer, head, sizeof head - 1);
    used = sizeof head - 1;
    start = written_at = now_us();
    write_out(O_CREAT | O_TRUNC | O_APPEND);
    return !stopped;
}

static void event(char op, const void *id, uint64_t bytes, unsigned stream) {
    int saved = errno;
    uint64_t now;

    zr_lock(&lock);
    if (!stopped && (path[0] || begin())) {
        char *line = buffer + used;
        size_t n = 0;

        now = now_us();
        line[n++] = op;
        line[n++] = ',';
        n += put_number(line + n, (uintptr_t)id);
        line[n++] = ',';
        if (op == 'a')
            n += put_number(line + n, bytes);
        line[n++] = ',';
        n += put_number(line + n, stream);
        line[n++] = ',';
        n += put_number(line + n, now - start);
        line[n++] = '\n';
        used += n;
        if (used > ROOM - LONGEST_LINE || now - written_at > MICROSECONDS) {
            write_out(O_APPEND);
            written_at = now;
        }
    }
    zr_unlock(&lock);
    errno = saved;
}

void zr_record_alloc(const void *id, uint64_t bytes, unsigned device) {
    event('a', id, bytes, device);
}

void zr_record_free(const void *id, unsigned device) {
    event('f', id, 0, device);
}

void zr_record_process_end(void) {
    int saved = errno;

    zr_lock(&lock);
    if (path[0] && !stopped && used)
        write_out(O_APPEND);
    zr_unlock(&lock);
    errno = saved;
}

/* A file of its own, where the name tells them apart; otherwise the file stays the parent's. */
void zr_record_fork_child(void) {
    lock = (struct zr_lock){0};
    used = 0;
    stopped = stopped || !zr_config.trace || (path[0] && !strstr(zr_config.trace, "%p"));
    path[0] = '\0';
}
