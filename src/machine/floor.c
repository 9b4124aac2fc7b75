/* host_floor: the host memory that device memory must leave. */
#include "machine/machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FLOOR_EVERY_NS 10000000u /* how often the machine is asked, */
#define FLOOR_EVERY_BYTES                                                                          \
    ((uint64_t)64 << 20) /* and after how many bytes: a process may allocate fast */

/* auto: what the kernel needs to go on. */
#define FLOOR_PART 50
#define FLOOR_LEAST ((uint64_t)512 << 20)
/* A single block above 19.3 GiB was seen to need host pages (compute-runtime#998). */
#define LARGEST_WITHOUT_HOST ((uint64_t)193 * ((uint64_t)1 << 30) / 10)

/* What follows "Name:" in /proc/meminfo, "   123 kB", in bytes. */
static uint64_t kilobytes_of(const char *text, const char *name) {
    const char *line = strstr(text, name);
    uint64_t n = line ? zr_number(line + strlen(name)) : ZEROUTE_ABSENT;

    return n == ZEROUTE_ABSENT ? n : n << 10;
}

/* What a control group leaves of memory; UINT64_MAX without a limit. */
static uint64_t group_leaves(const char *group) {
    char path[600], text[64];
    uint64_t most, now;

    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", group);
    if (!zr_read_system(path, text, sizeof text))
        return UINT64_MAX;
    most = zr_number(text);
    if (most == UINT64_MAX)
        return UINT64_MAX;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.current", group);
    now = zr_read_system(path, text, sizeof text) ? zr_number(text) : 0;
    return now < most ? most - now : 0;
}

/* The group of this process and all above it. */
static uint64_t groups_leave(void) {
    uint64_t least = UINT64_MAX;
    char text[1024], *group, *end;

    if (!zr_read_system("/proc/self/cgroup", text, sizeof text))
        return least;
    group = strstr(text, "0::/");
    if (!group)
        return least;
    group += 3;
    group[strcspn(group, "\n")] = '\0';
    for (;;) {
        uint64_t leaves = group_leaves(strcmp(group, "/") == 0 ? "" : group);

        least = leaves < least ? leaves : least;
        end = strrchr(group, '/');
        if (!end || !*group)
            return least;
        *end = '\0';
    }
}

uint64_t zr_host_available(void) {
    char text[4096];
    int saved = errno;
    uint64_t machine = UINT64_MAX, group = groups_leave();

    if (zr_read_system("/proc/meminfo", text, sizeof text))
        machine = kilobytes_of(text, "MemAvailable:");
    errno = saved;
    return machine < group ? machine : group;
}

static uint64_t floor_of(uint64_t machine) {
    struct zr_amount floor = zr_config.host_floor;

    if (floor.is_auto && machine != ZEROUTE_ABSENT)
        return machine / FLOOR_PART > FLOOR_LEAST ? machine / FLOOR_PART : FLOOR_LEAST;
    if (!floor.percent_x100)
        return floor.bytes;
    return machine == ZEROUTE_ABSENT ? 0 : machine / 10000 * floor.percent_x100;
}

static _Atomic uint64_t machine = ZEROUTE_ABSENT, available = ZEROUTE_ABSENT;
static _Atomic bool tells_of_mirrors;

static void look_at_host(void) {
    char text[2048];

    if (!zr_read_system("/proc/meminfo", text, sizeof text))
        return;
    machine = kilobytes_of(text, "MemTotal:");
    available = kilobytes_of(text, "MemAvailable:");
    tells_of_mirrors = strstr(text, "GPUActive:") != NULL;
}

static bool host_is_short(uint64_t bytes) {
    uint64_t floor = floor_of(machine);

    if (available == ZEROUTE_ABSENT)
        return false;
    if (!zr_config.host_floor.is_auto)
        return available < floor;
    if (bytes <= LARGEST_WITHOUT_HOST && !tells_of_mirrors)
        return false;
    return available < floor + bytes;
}

bool zr_host_refuses_slow(uint64_t bytes, bool is_mirrored) {
    static _Atomic uint64_t next, since;
    uint64_t now = zr_now();
    int saved = errno;

    /* Device memory by itself takes no host memory: auto does not refuse what needs none. */
    if (zr_config.host_floor.is_auto && bytes <= LARGEST_WITHOUT_HOST && !is_mirrored)
        return false;
    since += bytes;
    if (now >= next || since >= FLOOR_EVERY_BYTES) {
        next = now + FLOOR_EVERY_NS;
        since = 0;
        look_at_host();
    }
    errno = saved;
    return host_is_short(bytes);
}

void zr_host_room(uint64_t *floor, uint64_t *left) {
    *floor = floor_of(machine);
    *left = available == ZEROUTE_ABSENT ? 0 : available;
}
