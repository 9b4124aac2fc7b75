/*
 * Host memory while a recorded program runs, sampled from outside: the program may never call, and the kernel's figures
 * are right only when they are read. When the program has ended the samples go into its records, in a chunk of their
 * own. Short programs are sampled every 5 ms, long ones as seldom as keeps the samples few.
 */
#include "record/host_samples.h"

#include <zeroute/record.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_MS = 5, SAMPLES_MOST = 1500 };
static const uint32_t launcher = UINT32_MAX; /* no thread of the program has that number */

static void halve(struct zr_host_samples *s) {
    for (size_t i = 1; i * 2 < s->n; i++)
        s->sample[i] = s->sample[i * 2];
    s->n = (s->n + 1) / 2;
    s->every_ms *= 2;
}

static void add(struct zr_host_samples *s, uint64_t time, uint64_t available, uint64_t gpu_active) {
    if (s->n == SAMPLES_MOST)
        halve(s);
    s->sample[s->n++] = (struct zeroute_record_host){.head = {ZEROUTE_RECORD_HOST, sizeof *s->sample / 8, 0},
                                                     .time = time,
                                                     .available = available,
                                                     .gpu_active = gpu_active};
}

void zr_host_samples_take(struct zr_host_samples *s) {
    struct zr_meminfo host;

    if (!s->sample)
        s->sample = calloc(SAMPLES_MOST, sizeof *s->sample);
    if (!s->every_ms)
        s->every_ms = FIRST_MS;
    if (!s->sample)
        return;
    if (!zr_meminfo_read(&host) || host.available == ZR_ABSENT) {
        s->before_ns = zr_clock_ns();
        return;
    }
    /* A simulated machine begins with its first program: nothing was held before. */
    if (!s->n && s->before_ns && host.gpu_active != ZR_ABSENT)
        add(s, s->before_ns, host.available + host.gpu_active, 0);
    add(s, zr_clock_ns(), host.available, host.gpu_active);
}

void zr_host_samples_free(struct zr_host_samples *s) {
    free(s->sample);
    *s = (struct zr_host_samples){0};
}

/* --- into a record ---------------------------------------------------------------------------------------------- */

/* A whole chunk behind the last one. */
static bool write_chunk(int fd, const struct zeroute_record_header *h, uint64_t file_size, uint64_t sequence,
                        const struct zeroute_record_host *sample, size_t n) {
    uint64_t behind = file_size - h->header_size;
    off_t at = (off_t)(h->header_size + (behind + h->chunk_size - 1) / h->chunk_size * h->chunk_size);
    struct zeroute_record_chunk head = {ZEROUTE_CHUNK_MAGIC, launcher, sizeof head + n * sizeof *sample, sequence};

    return ftruncate(fd, at + (off_t)h->chunk_size) == 0 &&
           pwrite(fd, sample, n * sizeof *sample, at + (off_t)sizeof head) == (ssize_t)(n * sizeof *sample) &&
           pwrite(fd, &head, sizeof head, at) == (ssize_t)sizeof head;
}

/*
 * Whether nobody else has the file open, or mapped, for writing: the kernel gives a lease then alone. A process that
 * was killed is known so in any namespace; where there are no leases the answer is no.
 */
static bool nobody_writes(int fd) {
    fcntl(fd, F_SETSIG, SIGURG); /* to whoever opens the file meanwhile; SIGIO would end us */
    if (fcntl(fd, F_SETLEASE, F_WRLCK))
        return false;
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return true;
}

bool zr_host_samples_add(const struct zr_host_samples *s, const char *path) {
    struct zeroute_record_header h;
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool ok = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
              pread(fd, &h, sizeof h, 0) == sizeof h && h.magic == ZEROUTE_RECORD_MAGIC &&
              h.major == ZEROUTE_RECORD_MAJOR && (h.end_time || nobody_writes(fd)) &&
              h.chunk_size >= ZEROUTE_RECORD_CHUNK_LEAST && h.chunk_size <= ZEROUTE_RECORD_CHUNK_MOST &&
              (uint64_t)st.st_size >= h.header_size;

    for (size_t done = 0, sequence = 0; ok && done < s->n; sequence++) {
        size_t room = (h.chunk_size - sizeof(struct zeroute_record_chunk)) / sizeof *s->sample;
        size_t n = s->n - done < room ? s->n - done : room;

        ok = fstat(fd, &st) == 0 && write_chunk(fd, &h, (uint64_t)st.st_size, sequence, s->sample + done, n);
        done += n;
    }
    if (fd >= 0)
        close(fd);
    return ok;
}
