/*
 * What other processes hold of a card, and what they have announced, so that several under limit:auto never hold more
 * than there is. Each announces in its own segment first and then looks at all others: of two that do so at once, at
 * least one sees the other. Segments of this user are trusted, through pread(2), as long as their writer holds its
 * lock; for other processes the kernel's figures count.
 */
#include "stats/stats.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROCESSES = 4096, HELD = 256, OLD_NS = 1000000000, FRESH_NS = 5000000 };

static struct zr_lock lock;
static struct { /* of the last scan, under the lock */
    uint64_t pid, pci, vram;
} held[HELD];
static unsigned count;
static uint64_t scanned; /* when */

static bool scan_process(const char *name, void *arg) {
    struct zr_drm *d = arg;
    uint64_t pid = zr_number(name);
    if (pid == UINT64_MAX || pid == (uint64_t)getpid())
        return true;
    for (unsigned i = 0; i < d->cards; i++)
        d->card[i].vram = 0;
    zr_drm_add(d, name);
    for (unsigned i = 0; i < d->cards && count < HELD; i++) {
        held[count].pid = pid;
        held[count].pci = d->card[i].pci;
        held[count].vram = d->card[i].vram;
        count += d->card[i].vram > 0;
    }
    return true;
}

struct sum {
    uint64_t pci, bytes;
};

/*
 * Opens the segment of this name if another process of this user writes it: *writer is that process. Else returns -1.
 * Our own is not opened: closing it would release its lock.
 */
static int open_other(int directory, const char *name, int *writer) {
    struct flock held_by = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ZEROUTE_SEGMENT_LOCK_BYTE, .l_len = 1};
    const char *nonce = strrchr(name, '.');
    struct statx x;
    int fd;
    if (!nonce || (zr_segment.header && strtoull(nonce + 1, NULL, 16) == zr_segment.header->nonce))
        return -1;
    fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && !statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x) && x.stx_uid == geteuid() &&
        S_ISREG(x.stx_mode) && !fcntl(fd, F_GETLK, &held_by) && held_by.l_type != F_UNLCK) {
        *writer = held_by.l_pid;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool add_claims(int directory, const char *name, void *arg) {
    struct zeroute_segment_claim claim[ZR_DEVICES];
    struct zeroute_segment_header h;
    struct sum *to = arg;
    int writer, fd = open_other(directory, name, &writer);
    if (fd < 0)
        return true;
    if (pread(fd, &h, sizeof h, 0) == sizeof h && h.magic == ZEROUTE_SEGMENT_MAGIC &&
        h.layout == ZEROUTE_SEGMENT_LAYOUT && h.header_size >= sizeof h && h.claims &&
        pread(fd, claim, sizeof claim, (off_t)(h.globals_offset + h.claims)) == sizeof claim)
        for (unsigned i = 0; i < ZR_DEVICES; i++) {
            uint64_t more = claim[i].card == to->pci + 1 ? claim[i].blocks + claim[i].unseen : 0;
            for (unsigned k = 0; more && k < count; k++)
                if (held[k].pid == h.pid && held[k].pci == to->pci)
                    more = more > held[k].vram ? more - held[k].vram : 0;
            to->bytes += more < UINT64_C(1) << 48 ? more : 0;
        }
    close(fd);
    return true;
}

struct search {
    int pid;
    char path[128];
};

/* A segment belongs to the process that holds its lock, whatever number is in its name. Returns false if found. */
static bool is_not_of(int directory, const char *name, void *arg) {
    struct search *s = arg;
    int writer = 0, fd = open_other(directory, name, &writer);
    char link[32];
    ssize_t n = 0;
    if (fd < 0)
        return true;
    if (writer == s->pid) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        n = readlink(link, s->path, sizeof s->path - 1);
        s->path[n > 0 ? n : 0] = '\0';
    }
    close(fd);
    return writer != s->pid;
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
        zr_directory_each(UINT_MAX, is_not_of, &s);
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    zr_command_line(path, command, sizeof command);
    snprintf(out, size, "process %d (%s), %s%s", pid, zr_printable(command),
             *s.path ? "segment " : "which has no segment", *s.path ? zr_printable(s.path) : "");
}

bool zr_claim(unsigned device, int64_t bytes) {
    if (device >= ZR_DEVICES || !zr_stats_open())
        return false;
    __atomic_fetch_add(&zr_segment.globals->claims[device].blocks, (uint64_t)bytes, __ATOMIC_SEQ_CST);
    return true;
}

uint64_t zr_claims_look(unsigned device, uint64_t blocks, bool fresh) {
    uint64_t now = zr_now(), unseen = 0;
    struct sum sum = {.pci = zr_drm_address(device)};
    struct zr_drm d = {0};
    int at;
    zr_drm_add(&d, NULL);
    at = zr_drm_find(&d, device);
    if (at < 0)
        return 0;
    unseen = d.card[at].vram > blocks ? d.card[at].vram - blocks : 0;
    if (zr_stats_open()) {
        __atomic_store_n(&zr_segment.globals->claims[device].card, sum.pci + 1, __ATOMIC_RELAXED);
        __atomic_store_n(&zr_segment.globals->claims[device].unseen, unseen, __ATOMIC_RELAXED);
    }
    zr_lock(&lock);
    if (!scanned || now - scanned > (fresh ? FRESH_NS : OLD_NS)) {
        count = 0;
        zr_each_entry("/proc", PROCESSES, scan_process, &d); /* our own clients count as ours */
        scanned = now;
    }
    for (unsigned k = 0; k < count; k++)
        sum.bytes += held[k].pci == sum.pci ? held[k].vram : 0;
    zr_directory_each(UINT_MAX, add_claims, &sum);
    zr_unlock(&lock);
    return sum.bytes + unseen;
}

void zr_claim_fork_child(void) {
    scanned = 0;
}
