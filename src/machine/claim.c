/*
 * What other processes hold of a card, and what they have announced, so that several under
 * limit:auto never hold more than there is. Each announces in its own segment first and then looks
 * at all others: of two that do so at once, at least one sees the other. Announcements of this
 * user's processes are trusted; for others the kernel's figures count.
 */
#include "machine/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PROCESSES = 65536,
    HELD = 256,
    OLD_NS = 1000000000,
    ABSENT_NS = 100000000,
    FRESH_NS = 5000000
};

static struct zr_lock claim_lock;
static struct { /* of the last scan, under the lock */
    uint64_t pid, pci, vram;
} held[HELD];
static unsigned held_count;
static uint64_t scanned;  /* when */
static struct zr_drm drm; /* of this process, and of another one while that is scanned */

/* What this process holds of each card, by the kernel's count. */
static bool scan_process(const char *name, void *arg) {
    struct zr_drm *d = arg;
    uint64_t pid = zr_number(name);

    if (pid == UINT64_MAX || pid == (uint64_t)getpid())
        return true;
    for (unsigned i = 0; i < d->cards; i++)
        d->card[i].vram = 0;
    zr_drm_add(d, name);
    for (unsigned i = 0; i < d->cards && held_count < HELD; i++) {
        if (!d->card[i].vram)
            continue;
        held[held_count].pid = pid;
        held[held_count].pci = d->card[i].pci;
        held[held_count].vram = d->card[i].vram;
        held_count++;
    }
    return true;
}

/* Our own clients, which `d` holds already, count as ours: a child shares them with its parent. */
static void scan_processes(struct zr_drm *d, uint64_t now) {
    held_count = 0;
    zr_each_entry("/proc", PROCESSES, scan_process, d);
    scanned = now;
}

struct sum {
    uint64_t pci, bytes;
};

/* What a process has announced beyond what the kernel counts for it. */
static void add_claim(const struct zeroute_segment_header *h,
                      const struct zeroute_segment_claim *claims, void *arg) {
    struct sum *to = arg;

    for (unsigned i = 0; i < ZR_DEVICES; i++) {
        uint64_t more = claims[i].card == to->pci + 1 ? claims[i].blocks + claims[i].unseen : 0;

        for (unsigned k = 0; more && k < held_count; k++)
            if (held[k].pid == h->pid && held[k].pci == to->pci)
                more = more > held[k].vram ? more - held[k].vram : 0;
        if (more < UINT64_C(1) << 48)
            to->bytes += more;
    }
}

bool zr_claim(unsigned device, int64_t bytes) {
    if (device >= ZR_DEVICES || !zr_stats_open())
        return false;
    __atomic_fetch_add(&zr_segment.globals->claims[device].blocks, (uint64_t)bytes,
                       __ATOMIC_SEQ_CST);
    return true;
}

/* Says which card it is, and what of it is in none of our blocks. */
static void claim_announce(unsigned device, uint64_t pci, uint64_t unseen) {
    struct zeroute_segment_claim *claim;

    if (!zr_stats_open())
        return;
    claim = &zr_segment.globals->claims[device];
    __atomic_store_n(&claim->card, pci + 1, __ATOMIC_RELAXED);
    __atomic_store_n(&claim->unseen, unseen, __ATOMIC_RELAXED);
}

/*
 * Looks what this process has by the kernel's count. Returns the index of the card in it, or -1. A
 * card that is not found may have been opened since its descriptors were looked up.
 */
static int look_at_own(unsigned device, uint64_t now, uint64_t most_ns) {
    bool all;
    int at;

    memset(&drm, 0, sizeof drm);
    all = zr_drm_add_own(&drm, now, most_ns);
    at = zr_drm_find(&drm, device);
    if (at >= 0 || all)
        return at;
    memset(&drm, 0, sizeof drm);
    zr_drm_add_own(&drm, now, most_ns < ABSENT_NS ? most_ns : ABSENT_NS);
    return zr_drm_find(&drm, device);
}

/* The caller holds the lock. */
static uint64_t look_at_all(unsigned device, uint64_t blocks, uint64_t most_ns) {
    uint64_t now = zr_now(), unseen;
    struct sum sum = {.pci = zr_drm_address(device)};
    int at = look_at_own(device, now, most_ns);

    if (at < 0)
        return 0;
    unseen = drm.card[at].vram > blocks ? drm.card[at].vram - blocks : 0;
    claim_announce(device, sum.pci, unseen);
    if (!scanned || now - scanned > most_ns)
        scan_processes(&drm, now);
    for (unsigned k = 0; k < held_count; k++)
        if (held[k].pci == sum.pci)
            sum.bytes += held[k].vram;
    zr_others_each(add_claim, &sum);
    return sum.bytes + unseen;
}

uint64_t zr_claims_look(unsigned device, uint64_t blocks, bool fresh) {
    int saved = errno;
    uint64_t taken;

    zr_stats_open(); /* not under the lock */
    zr_lock(&claim_lock);
    taken = look_at_all(device, blocks, fresh ? FRESH_NS : OLD_NS);
    zr_unlock(&claim_lock);
    errno = saved;
    return taken;
}

uint64_t zr_claims_own(unsigned device) {
    uint64_t own;
    int at;

    zr_lock(&claim_lock);
    memset(&drm, 0, sizeof drm);
    zr_drm_add_own(&drm, zr_now(), 0);
    at = zr_drm_find(&drm, device);
    own = at < 0 ? UINT64_MAX : drm.card[at].vram;
    zr_unlock(&claim_lock);
    return own;
}

void zr_claims_words(unsigned device, char *out, size_t size) {
    uint64_t pci = zr_drm_address(device), most = 0, all = 0, pid = 0;
    int saved = errno;
    char who[200];

    zr_lock(&claim_lock);
    memset(&drm, 0, sizeof drm);
    zr_drm_add_own(&drm, zr_now(), OLD_NS);
    scan_processes(&drm, zr_now());
    for (unsigned k = 0; k < held_count; k++) {
        if (held[k].pci != pci)
            continue;
        all += held[k].vram;
        if (held[k].vram > most) {
            most = held[k].vram;
            pid = held[k].pid;
        }
    }
    zr_unlock(&claim_lock);
    out[0] = '\0';
    if (most) {
        zr_process_words((int)pid, who, sizeof who);
        snprintf(out, size, "other processes hold %llu MiB, most of it %s: %llu MiB",
                 (unsigned long long)(all >> 20), who, (unsigned long long)(most >> 20));
    }
    errno = saved;
}

void zr_claim_fork_child(void) {
    scanned = 0;
    held_count = 0;
    zr_drm_fork_child();
    zr_others_fork_child();
}
