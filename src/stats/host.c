/*
 * The host's side of device memory, from inside the process: what the machine has left, and the floor below which
 * device memory is refused. Everything is read with plain read(2), and only when the process does something slow
 * anyway.
 */
#include "stats/stats.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FLOOR_EVERY_NS 10000000u               /* how often host_floor is checked, */
#define FLOOR_EVERY_BYTES ((uint64_t)64 << 20) /* and after how many bytes: a process may allocate fast */

_Atomic uint64_t zr_host_due;
static _Atomic bool has_start;
static struct zr_lock sampling_lock;

/* What follows "Name:" in a text like /proc/meminfo, "   123 kB", in bytes. */
static uint64_t kilobytes(const char *text, const char *name) {
    const char *line = strstr(text, name);
    uint64_t n = line ? zr_number(line + strlen(name)) : ZEROUTE_ABSENT;

    return n == ZEROUTE_ABSENT ? n : n << 10;
}

/* Memory charged to our cgroup; version 2, then 1, then the root of a container that hides both. */
static uint64_t cgroup_bytes(void) {
    static const char *const files[2] = {"memory.current", "memory.usage_in_bytes"};
    static const char *const mounts[2] = {"/sys/fs/cgroup", "/sys/fs/cgroup/memory"};
    static const char *const lines[2] = {"0::", ":memory:"};
    char text[2048], path[768], value[32];
    if (!zr_read_system("/proc/self/cgroup", text, sizeof text))
        return ZEROUTE_ABSENT;
    for (int v = 1; v >= 0; v--) {
        char *line = strstr(text, lines[v]);
        if (!line)
            continue;
        char *group = line + strlen(lines[v]);
        int length = (int)strcspn(group, "\n");
        for (int at_root = length <= 1; at_root < 2; at_root++) {
            snprintf(path, sizeof path, "%s%.*s/%s", mounts[v], at_root ? 0 : length, group, files[v]);
            if (zr_read_system(path, value, sizeof value))
                return zr_number(value);
        }
    }
    return ZEROUTE_ABSENT;
}

/*
 * A spill: our allocations have grown by more than VRAM has, and the card's host memory has grown instead, by more than
 * it may have imported from our other cards.
 */
static void notice_spill(unsigned n, uint64_t booked, uint64_t vram, uint64_t gtt) {
    static struct { uint64_t booked, vram, gtt; } last[ZR_DEVICES];
    int64_t more = (int64_t)(booked - last[n].booked), missing = more - (int64_t)(vram - last[n].vram);
    uint64_t *spilled = zr_card(n, ZR_C_SPILLED);
    if (more > 0 && more < 16 << 20)
        return;
    if (more > 0 && missing >= 16 << 20 && gtt >= last[n].gtt + (uint64_t)missing / 2) {
        __atomic_store_n(spilled, (*spilled == ZEROUTE_ABSENT ? 0 : *spilled) + gtt - last[n].gtt, __ATOMIC_RELAXED);
        zr_warn("card %u is full, and allocations go to host memory that cannot be swapped; the preset safe refuses "
                "them in time",
                n);
    }
    last[n].booked = booked;
    last[n].vram = vram;
    last[n].gtt = gtt;
}

/*
 * Notes from which level, and since when, a quantity grows while the program's own allocations do not. Starts again
 * when it falls back, when the program has allocated half as much itself, and when it rises after a standstill that was
 * longer than its growth and at least a minute.
 */
static void notice_growth(enum zr_gauge from, uint64_t value, uint64_t own) {
    static struct { uint64_t level, own; } last[ZR_GAUGES];
    const uint64_t *gauge = &zr_segment.globals->gauges[from]; /* from, since, rose, steps */
    uint64_t now = (uint64_t)time(NULL), grew = gauge[2] - gauge[1];
    bool rises = value > last[from].level, late = now - gauge[2] > (grew > 60 ? grew : 60);
    if (value <= gauge[0] || own > last[from].own + (value - gauge[0]) / 2 || (rises && late)) {
        zr_gauge(from, value);
        zr_gauge(from + 1, now);
        zr_gauge(from + 2, now);
        zr_gauge(from + 3, 0);
        last[from].own = own;
    } else if (rises) {
        zr_gauge(from + 2, now);
        zr_gauge(from + 3, gauge[3] + 1);
    }
    last[from].level = value;
}

/* The kernel's figures of our own clients, per device. The longer it takes, the less often it is done. */
static void sample_cards(uint64_t all) {
    static uint64_t next;
    static struct zr_drm d; /* not on the stack: it may be a small one */
    uint64_t start = zr_now(), unseen = 0, gtt = 0;
    if (start < next)
        return;
    d = (struct zr_drm){0};
    zr_drm_add(&d, NULL);
    for (unsigned n = 0; n < ZR_DEVICES; n++) {
        int at = zr_drm_find(&d, n);
        if (at < 0)
            continue;
        uint64_t *card = zr_card(n, 0), booked = zr_booked(n), vram = d.card[at].vram;
        uint64_t seen = booked + card[ZR_C_IMAGE] + card[ZR_C_IMPORTED];
        __atomic_store_n(&card[ZR_C_VRAM], vram, __ATOMIC_RELAXED);
        __atomic_store_n(&card[ZR_C_GTT], d.card[at].gtt, __ATOMIC_RELAXED);
        __atomic_store_n(&card[ZR_C_UNSEEN], vram > seen ? vram - seen : 0, __ATOMIC_RELAXED);
        notice_spill(n, booked, vram, d.card[at].gtt > all - booked ? d.card[at].gtt - (all - booked) : 0);
        unseen += card[ZR_C_UNSEEN] + card[ZR_C_IMAGE];
        gtt += d.card[at].gtt;
    }
    notice_growth(ZR_G_GROWTH_UNSEEN, unseen, all);
    notice_growth(ZR_G_GROWTH_GTT, gtt, all);
    next = zr_now() + (zr_now() - start) * 64;
}

static void sample(void) {
    static char text[4096]; /* under the lock */
    uint64_t all = 0, host_usm = zr_booked(ZR_RESERVED_HOST);

    for (unsigned n = 0; n < ZR_DEVICES; n++)
        all += zr_booked(n);
    if (zr_read_system("/proc/meminfo", text, sizeof text)) {
        uint64_t active = kilobytes(text, "GPUActive:");
        uint64_t available = kilobytes(text, "MemAvailable:");
        zr_gauge(ZR_G_HOST_GPU_ACTIVE, active);
        zr_gauge(ZR_G_HOST_MEM_AVAILABLE, available);
        if (!atomic_exchange(&has_start, true)) {
            zr_gauge(ZR_G_HOST_GPU_ACTIVE_START, active);
            zr_gauge(ZR_G_HOST_MEM_AVAILABLE_START, available);
        }
        /* Host USM is in GPUActive as well, and so is the host side of shared USM: neither is a mirror. */
        uint64_t other = zr_segment.globals->gauges[ZR_G_HOST_GPU_ACTIVE_START] + host_usm + zr_shared_bytes();
        zr_gauge(ZR_G_HOST_MIRROR, active == ZEROUTE_ABSENT ? ZEROUTE_ABSENT : active > other ? active - other : 0);
    }
    if (zr_read_system("/proc/self/status", text, sizeof text))
        zr_gauge(ZR_G_HOST_VMRSS, kilobytes(text, "\nVmRSS:"));
    zr_gauge(ZR_G_HOST_CGROUP, cgroup_bytes());
    sample_cards(all);
    notice_growth(ZR_G_GROWTH_HOST, host_usm, all);
    notice_growth(ZR_G_GROWTH_IPC, zr_ipc_open(), 0);
}

void zr_host_sample(uint64_t next) {
    uint64_t due = atomic_load_explicit(&zr_host_due, memory_order_relaxed);
    int saved = errno;

    if (due >= next || !zr_stats_is_open() || !atomic_compare_exchange_strong(&zr_host_due, &due, next) ||
        !zr_lock_try(&sampling_lock))
        return;
    sample();
    zr_unlock(&sampling_lock);
    errno = saved;
}

/* The child's segment gets its own baseline. */
void zr_host_fork_child(void) {
    atomic_store(&has_start, false);
    atomic_store(&zr_host_due, 0);
}

/* --- host_floor --------------------------------------------------------------------------------------------------- */

static uint64_t floor_of(uint64_t machine) {
    struct zr_amount floor = zr_config.host_floor;

    if (!floor.percent_x100)
        return floor.bytes;
    return machine == ZEROUTE_ABSENT ? 0 : machine / 10000 * floor.percent_x100;
}

bool zr_host_refuses_slow(uint64_t bytes) {
    static _Atomic uint64_t next, since, machine = ZEROUTE_ABSENT, available = ZEROUTE_ABSENT;
    uint64_t now = zr_now();
    int saved = errno;
    char text[4096];
    bool refuse;

    since += bytes;
    if (now >= next || since >= FLOOR_EVERY_BYTES) {
        next = now + FLOOR_EVERY_NS;
        since = 0;
        if (zr_read_system("/proc/meminfo", text, sizeof text)) {
            machine = kilobytes(text, "MemTotal:");
            available = kilobytes(text, "MemAvailable:");
        }
    }
    refuse = available < floor_of(machine);
    if (refuse)
        zr_count(ZR_F_HOST_FLOOR_REFUSED_CALLS, 1);
    errno = saved;
    return refuse;
}
