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
    AHEAD = 64,
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

/* A look in progress, of which the caller gets `to`. */
struct sum {
    uint64_t pci, now, group;
    bool is_counted; /* the kernel tells of this card */
    struct zr_look *to;
    uint64_t own;                  /* what the kernel counts for this process */
    struct zr_holder ahead[AHEAD]; /* what processes have announced and the kernel does not count */
    unsigned ahead_count;
};

/* Notes that a process holds so much; of one that was noted before, the larger figure counts. */
static void note_holder(struct zr_holder *holder, int pid, uint64_t bytes) {
    unsigned i = 0;

    while (i < ZR_HOLDERS - 1 && (holder[i].pid != pid || !holder[i].bytes))
        i++;
    if (holder[i].bytes >= bytes)
        return;
    for (; i > 0 && holder[i - 1].bytes < bytes; i--)
        holder[i] = holder[i - 1];
    holder[i] = (struct zr_holder){.pid = pid, .bytes = bytes};
}

/* What is leased to a process, if the lease has not ended. */
static uint64_t leased_by(const struct zr_announcement *a, unsigned i, uint64_t now) {
    const struct zeroute_segment_lease *l = &a->group->lease[i];

    return now < l->until_ns ? l->bytes : 0;
}

/* What the kernel counts for a process that was seen in /proc. */
static uint64_t counted_for(int pid, uint64_t pci) {
    for (unsigned k = 0; pid && k < held_count; k++)
        if (held[k].pid == (uint64_t)pid && held[k].pci == pci)
            return held[k].vram;
    return 0;
}

/* What a process has announced, and what of it the kernel does not count for it. */
static void add_claim(const struct zr_announcement *a, void *arg) {
    struct sum *s = arg;
    bool is_ours = s->group && a->group->id == s->group;

    for (unsigned i = 0; i < ZR_DEVICES; i++) {
        const struct zeroute_segment_claim *c = &a->claims[i];
        uint64_t leased = leased_by(a, i, s->now);
        uint64_t announced = c->blocks + c->unseen + leased, counted;

        if (c->card != s->pci + 1 || !announced || announced >= UINT64_C(1) << 48)
            continue;
        s->to->leased += leased;
        if (is_ours) {
            s->to->group_others += announced;
            note_holder(s->to->group_holder, a->pid, announced);
        }
        counted = counted_for(a->pid, s->pci);
        if (!s->is_counted || announced <= counted)
            continue;
        note_holder(s->to->holder, a->pid, announced);
        s->to->others += announced - counted;
        if (s->ahead_count < AHEAD)
            s->ahead[s->ahead_count++] =
                (struct zr_holder){.pid = a->pid, .bytes = announced - counted};
    }
}

/* What others hold of a cgroup: what the kernel counts there but not for us, and what it does not
 * count yet. */
static void see_cgroup(const struct zr_cgroup *c, void *arg) {
    struct sum *s = arg;
    struct zr_look *to = s->to;
    uint64_t others = c->current > s->own ? c->current - s->own : 0;

    for (unsigned i = 0; i < s->ahead_count; i++)
        if (s->ahead[i].pid && zr_cgroup_holds(c->name, s->ahead[i].pid))
            others += s->ahead[i].bytes;
    if (to->is_in_cgroup &&
        to->cgroup.most - to->cgroup_others <= c->most - (others < c->most ? others : c->most))
        return;
    to->is_in_cgroup = true;
    to->cgroup = *c;
    to->cgroup_others = others < c->most ? others : c->most;
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

/* What the kernel counts for other processes. */
static void add_held(struct sum *s, uint64_t most_ns) {
    if (!scanned || s->now - scanned > most_ns)
        scan_processes(&drm, s->now);
    for (unsigned k = 0; k < held_count; k++)
        if (held[k].pci == s->pci) {
            s->to->others += held[k].vram;
            note_holder(s->to->holder, (int)held[k].pid, held[k].vram);
        }
}

/* The caller holds the lock. */
static void look_at_all(unsigned device, uint64_t blocks, uint64_t most_ns, struct sum *s) {
    int at = look_at_own(device, s->now, most_ns);

    s->is_counted = at >= 0;
    if (s->pci == ZR_NO_ADDRESS || (!s->is_counted && !s->group))
        return;
    s->own = s->is_counted ? drm.card[at].vram : blocks;
    s->to->unseen = s->own > blocks ? s->own - blocks : 0;
    claim_announce(device, s->pci, s->to->unseen);
    if (s->is_counted)
        add_held(s, most_ns);
    zr_others_each(add_claim, s);
    if (s->is_counted)
        zr_cgroup_each(s->pci, see_cgroup, s);
}

void zr_claims_look(unsigned device, uint64_t blocks, bool fresh, struct zr_look *look) {
    struct sum sum = {.pci = zr_drm_address(device), .now = zr_now(), .to = look};
    int saved = errno;

    *look = (struct zr_look){0};
    zr_stats_open(); /* not under the lock */
    sum.group = zr_config.group_limit.set ? zr_group_id() : 0;
    zr_lock(&claim_lock);
    look_at_all(device, blocks, fresh ? FRESH_NS : OLD_NS, &sum);
    zr_unlock(&claim_lock);
    errno = saved;
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
    zr_lease_fork_child();
    zr_group_fork_child();
    zr_others_fork_child();
}
