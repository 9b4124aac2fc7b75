/*
 * The host's side of device memory, from inside the process: what the machine has left, the floor
 * below which device memory is refused, and backing:eager. Everything is read with plain read(2),
 * and only when the process does something slow anyway.
 */
#include "zeroute.h"

#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FLOOR_EVERY_NS 10000000u               /* host_floor must be in time... */
#define FLOOR_EVERY_BYTES ((uint64_t)64 << 20) /* ...for a process that allocates fast, too */

#define ABSENT UINT64_MAX

_Atomic uint64_t zr_host_due;
static _Atomic bool has_start;
static _Atomic uint64_t floor_next, floor_bytes, floor_available = ABSENT;
static char backing[256]; /* what became of backing:eager, for the segment that is made later */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A small file below $ZEROUTE_ROOT as a string; false when it cannot be read. */
static bool slurp(const char *path, char *text, size_t size)
{
    char full[512];
    const char *root = secure_getenv("ZEROUTE_ROOT");
    if ((size_t)snprintf(full, sizeof full, "%s%s", root ? root : "", path) >= sizeof full)
        return false;
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t have = 0;
    ssize_t n;
    while (have < size - 1 && (n = read(fd, text + have, size - 1 - have)) > 0)
        have += (size_t)n;
    close(fd);
    text[have] = '\0';
    return have > 0;
}

static uint64_t number(const char *s)
{
    uint64_t n = 0;
    while (*s == ' ' || *s == '\t')
        s++;
    if (*s < '0' || *s > '9')
        return ABSENT;
    for (; *s >= '0' && *s <= '9'; s++)
        n = n * 10 + (uint64_t)(*s - '0');
    return n;
}

/* "Name:   123 kB" of a text like /proc/meminfo, in bytes. */
static uint64_t kilobytes(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, length) && line[length] == ':') {
            uint64_t n = number(line + length + 1);
            return n == ABSENT ? n : n << 10;
        }
    }
    return ABSENT;
}

static void show(enum zr_gauge gauge, uint64_t value)
{
    if (value != ABSENT)
        zr_gauge(gauge, value);
}

/* Memory charged to our cgroup; version 2, then 1, then the root of a container that hides both. */
static uint64_t cgroup_bytes(void)
{
    static const char *const files[2] = {"memory.current", "memory.usage_in_bytes"};
    static const char *const mounts[2] = {"/sys/fs/cgroup", "/sys/fs/cgroup/memory"};
    static const char *const lines[2] = {"0::", ":memory:"};
    char text[2048], path[768], value[32];
    if (!slurp("/proc/self/cgroup", text, sizeof text))
        return ABSENT;
    for (int v = 1; v >= 0; v--) {
        char *line = strstr(text, lines[v]);
        if (!line)
            continue;
        char *group = line + strlen(lines[v]);
        int length = (int)strcspn(group, "\n");
        snprintf(path, sizeof path, "%s%.*s/%s", mounts[v], length > 1 ? length : 0, group,
                 files[v]);
        if (slurp(path, value, sizeof value))
            return number(value);
        snprintf(path, sizeof path, "%s/%s", mounts[v], files[v]);
        if (slurp(path, value, sizeof value))
            return number(value);
    }
    return ABSENT;
}

static void sample(void)
{
    char text[4096];
    if (slurp("/proc/meminfo", text, sizeof text)) {
        uint64_t active = kilobytes(text, "GPUActive");
        uint64_t available = kilobytes(text, "MemAvailable");
        show(ZR_G_HOST_GPU_ACTIVE, active);
        show(ZR_G_HOST_MEM_AVAILABLE, available);
        if (!atomic_exchange(&has_start, true)) {
            show(ZR_G_HOST_GPU_ACTIVE_START, active);
            show(ZR_G_HOST_MEM_AVAILABLE_START, available);
        }
    }
    if (slurp("/proc/self/status", text, sizeof text))
        show(ZR_G_HOST_VMRSS, kilobytes(text, "VmRSS"));
    show(ZR_G_HOST_CGROUP, cgroup_bytes());
}

void zr_host_start(void)
{
    int saved = errno;
    sample();
    if (*backing)
        zr_text(ZR_T_BACKING, backing);
    errno = saved;
}

void zr_host_sample(uint64_t next)
{
    uint64_t due = atomic_load_explicit(&zr_host_due, memory_order_relaxed);
    if (due >= next || !zr_stats_is_open() ||
        !atomic_compare_exchange_strong(&zr_host_due, &due, next))
        return;
    int saved = errno;
    sample();
    errno = saved;
}

/* The child's own segment gets a baseline of its own. */
void zr_fork_child_host(void)
{
    atomic_store(&has_start, false);
    atomic_store(&zr_host_due, 0);
}

/* --- host_floor ------------------------------------------------------------------------------ */

static uint64_t floor_of(const char *meminfo)
{
    const struct zr_amount *a = &zr_config.host_floor;
    if (!a->percent_x100)
        return a->bytes;
    uint64_t total = kilobytes(meminfo, "MemTotal");
    return total == ABSENT ? 0 : total / 10000 * a->percent_x100;
}

bool zr_host_refuses_slow(uint64_t bytes)
{
    static _Atomic uint64_t least;
    uint64_t due = atomic_load_explicit(&floor_next, memory_order_relaxed), now = now_ns();
    uint64_t since = atomic_fetch_add_explicit(&floor_bytes, bytes, memory_order_relaxed) + bytes;
    int saved = errno;
    if (now >= due || since >= FLOOR_EVERY_BYTES) {
        char text[4096];
        atomic_store_explicit(&floor_next, now + FLOOR_EVERY_NS, memory_order_relaxed);
        atomic_store_explicit(&floor_bytes, 0, memory_order_relaxed);
        if (slurp("/proc/meminfo", text, sizeof text)) {
            atomic_store_explicit(&least, floor_of(text), memory_order_relaxed);
            atomic_store_explicit(&floor_available, kilobytes(text, "MemAvailable"),
                                  memory_order_relaxed);
        }
    }
    uint64_t available = atomic_load_explicit(&floor_available, memory_order_relaxed);
    bool refuse = available < atomic_load_explicit(&least, memory_order_relaxed);
    if (refuse) {
        zr_count(ZR_F_HOST_FLOOR_REFUSED_CALLS, 1);
        zr_say("host memory is below host_floor: device allocations fail with OUT_OF_HOST_MEMORY "
               "until "
               "there is more");
    }
    errno = saved;
    return refuse;
}

/* --- backing:eager --------------------------------------------------------------------------- */

static int is_driver(struct dl_phdr_info *info, size_t size, void *found)
{
    (void)size;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    const char *name = slash ? slash + 1 : info->dlpi_name;
    if (name && !strncmp(name, *(const char **)found, strlen(*(const char **)found))) {
        *(const char **)found = NULL;
        return 1;
    }
    return 0;
}

static bool is_loaded(const char *name)
{
    dl_iterate_phdr(is_driver, &name);
    return !name;
}

/* The driver's own order: the longest prefix wins. */
static const char *users_key(char *name, size_t size)
{
    static const char *const names[] = {"NEO_L0_EnableDeferBacking", "NEO_EnableDeferBacking",
                                        "EnableDeferBacking"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value) {
            snprintf(name, size, "%s", names[i]);
            return value;
        }
    }
    return NULL;
}

void zr_host_back_eagerly(void)
{
    if (zr_config.backing != ZR_BACKING_EAGER)
        return;
    char name[64];
    const char *key = users_key(name, sizeof name);
    const char *master = getenv("NEOReadDebugKeys");
    bool key_on = key && number(key) != 0, master_off = master && number(master) == 0;
    if (!key)
        setenv("EnableDeferBacking", "0", 0);
    if (!master)
        setenv("NEOReadDebugKeys", "1", 0);
    if (is_loaded("libze_intel_gpu.so") && (!key || !master)) {
        snprintf(backing, sizeof backing,
                 "asked, too late: the driver was there before zeroute saw it");
        zr_say("backing:eager comes too late, the driver is loaded already: use zeroute run");
    } else if (key_on || master_off) {
        snprintf(backing, sizeof backing, "asked, set by the user: %s=%s",
                 key_on ? name : "NEOReadDebugKeys", key_on ? key : master);
        zr_say("backing:eager: %s=%s is set already and kept; memory is not backed eagerly",
               key_on ? name : "NEOReadDebugKeys", key_on ? key : master);
    } else {
        snprintf(backing, sizeof backing, "eager: NEOReadDebugKeys=1 %s=0",
                 key ? name : "EnableDeferBacking");
    }
}

/*
 * A program that is linked to the loader calls zeInit past us: its environment must be right before
 * main. Costs every other process one look at the environment.
 */
__attribute__((constructor)) static void before_main(void)
{
    const char *conf = secure_getenv("ZEROUTE_CONF");
    if (((conf && strstr(conf, "eager")) || secure_getenv("ZEROUTE_CONF_FILE")) &&
        is_loaded("libze_loader.so"))
        zr_config_load();
}
