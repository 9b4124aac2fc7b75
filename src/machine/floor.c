/* host_floor: the host memory that device memory must leave. */
#include "machine/machine.h"

#include <errno.h>
#include <string.h>

#define FLOOR_EVERY_NS 10000000u /* how often the machine is asked, */
#define FLOOR_EVERY_BYTES                                                                          \
    ((uint64_t)64 << 20) /* and after how many bytes: a process may allocate fast */

/* What follows "Name:" in /proc/meminfo, "   123 kB", in bytes. */
static uint64_t kilobytes_of(const char *text, const char *name) {
    const char *line = strstr(text, name);
    uint64_t n = line ? zr_number(line + strlen(name)) : ZEROUTE_ABSENT;

    return n == ZEROUTE_ABSENT ? n : n << 10;
}

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
            machine = kilobytes_of(text, "MemTotal:");
            available = kilobytes_of(text, "MemAvailable:");
        }
    }
    refuse = available < floor_of(machine);
    errno = saved;
    return refuse;
}
