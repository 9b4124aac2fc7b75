#include "common/common.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *zr_root_path(char *out, size_t size, const char *format, ...) {
    const char *root = getenv("ZEROUTE_ROOT");
    int used = snprintf(out, size, "%s", root ? root : "");
    va_list args;

    if (used < 0 || (size_t)used >= size)
        return out;
    va_start(args, format);
    vsnprintf(out + used, size - (size_t)used, format, args);
    va_end(args);
    return out;
}

char *zr_read_whole(const char *path, size_t *length) {
    size_t have = 0, room = 4096;
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return NULL;
    for (;;) {
        char *more = realloc(text, room);
        ssize_t got;

        if (!more)
            break;
        text = more;
        got = read(fd, text + have, room - have - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        have += (size_t)got;
        if (got == 0) {
            text[have] = '\0';
            if (length)
                *length = have;
            close(fd);
            return text;
        }
        if (room - have < 2)
            room *= 2;
    }
    int error = errno;
    free(text);
    close(fd);
    errno = error;
    return NULL;
}

/* "NAME:   123 kB" or "NAME: 123 MiB" or "NAME: 123"; the value in bytes. */
static bool amount_of(const char *text, uint64_t *out) {
    static const struct {
        const char *unit;
        unsigned shift;
    } units[] = {{"kB", 10}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"B", 0}};
    char *end;
    unsigned long long n;

    while (*text == ' ' || *text == '\t')
        text++;
    if (!isdigit((unsigned char)*text))
        return false;
    n = strtoull(text, &end, 10);
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t length = strlen(units[i].unit);

        if (!strncmp(end, units[i].unit, length) && !isalnum((unsigned char)end[length])) {
            *out = n << units[i].shift;
            return true;
        }
    }
    *out = n;
    return true;
}

/* Each line of a text is handed out in turn, cut at its end; NULL after the last. */
static char *next_line(char **rest) {
    char *line = *rest, *end;

    if (!line || !*line)
        return NULL;
    end = strchr(line, '\n');
    if (end) {
        *end = '\0';
        *rest = end + 1;
    } else {
        *rest = NULL;
    }
    return line;
}

/* The value of "key:value" when the line has that key. */
static const char *value_of(const char *line, const char *key) {
    size_t length = strlen(key);

    if (strncmp(line, key, length) || line[length] != ':')
        return NULL;
    line += length + 1;
    while (*line == ' ' || *line == '\t')
        line++;
    return line;
}

bool zr_meminfo_read(struct zr_meminfo *out) {
    static const char *const told[] = {"Buffers",     "Cached",     "SwapCached",    "AnonPages", "Slab",
                                       "KernelStack", "PageTables", "SecPageTables", "Percpu",    "Hugetlb",
                                       "MemFree",     "GPUReclaim", "GPUActive"};
    char path[4096];
    char *text = zr_read_whole(zr_root_path(path, sizeof path, "/proc/meminfo"), NULL);
    char *rest = text, *line;
    uint64_t bytes, sum = 0;
    bool complete = false;
    const struct {
        const char *key;
        uint64_t *to;
    } wanted[] = {{"MemTotal", &out->total},
                  {"MemAvailable", &out->available},
                  {"GPUActive", &out->gpu_active},
                  {"GPUReclaim", &out->gpu_reclaim}};

    out->unaccounted = ZR_ABSENT;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        *wanted[i].to = ZR_ABSENT;
    if (!text)
        return false;
    while ((line = next_line(&rest))) {
        const char *value;

        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
            if ((value = value_of(line, wanted[i].key)))
                amount_of(value, wanted[i].to);
        }
        for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
            if ((value = value_of(line, told[i])) && amount_of(value, &bytes))
                sum += bytes;
        }
        complete |= value_of(line, "AnonPages") != NULL;
    }
    if (complete && out->total != ZR_ABSENT)
        out->unaccounted = out->total > sum ? out->total - sum : 0;
    free(text);
    return true;
}

int64_t zr_meminfo_drop(const struct zr_meminfo *baseline, const struct zr_meminfo *now) {
    int64_t drop = (int64_t)(baseline->available - now->available);

    if (baseline->gpu_reclaim != ZR_ABSENT && now->gpu_reclaim != ZR_ABSENT)
        drop -= (int64_t)(now->gpu_reclaim - baseline->gpu_reclaim);
    return drop;
}

/* --- fdinfo ---------------------------------------------------------------------------------- */

struct client {
    char pdev[32];
    char id[32];
};

static void add_absent(uint64_t *sum, uint64_t bytes) {
    *sum = *sum == ZR_ABSENT ? bytes : *sum + bytes;
}

/* xe names its regions vram0, vram1, gtt, system, stolen; i915 local0, system0, stolen-local0. */
static struct zr_region *region_named(struct zr_card_use *card, const char *name, size_t length) {
    while (length && isdigit((unsigned char)name[length - 1]))
        length--;
    if ((length == 4 && !strncmp(name, "vram", 4)) || (length == 5 && !strncmp(name, "local", 5)))
        return &card->vram;
    if (length == 3 && !strncmp(name, "gtt", 3))
        return &card->gtt;
    if (length == 6 && !strncmp(name, "system", 6))
        return &card->system;
    return NULL;
}

static struct zr_card_use *card_of(struct zr_process_memory *out, const char *pdev, const char *driver) {
    struct zr_card_use *card;

    for (unsigned i = 0; i < out->card_count; i++) {
        if (!strcmp(out->cards[i].pdev, pdev))
            return &out->cards[i];
    }
    if (out->card_count == ZR_CARDS_MAX)
        return NULL;
    card = &out->cards[out->card_count++];
    memset(card, 0, sizeof *card);
    snprintf(card->pdev, sizeof card->pdev, "%s", pdev);
    snprintf(card->driver, sizeof card->driver, "%s", driver);
    card->vram = card->gtt = card->system = (struct zr_region){ZR_ABSENT, ZR_ABSENT};
    return card;
}

static void copy_value(char *to, size_t size, const char *value) {
    if (value)
        snprintf(to, size, "%s", value);
}

static void add_regions(struct zr_card_use *card, char *text) {
    char *rest = text, *line;

    while ((line = next_line(&rest))) {
        bool total = !strncmp(line, "drm-total-", 10);
        bool resident = !strncmp(line, "drm-resident-", 13);
        char *colon = strchr(line, ':');
        const char *name = line + (total ? 10 : 13);
        struct zr_region *region;
        uint64_t bytes;

        if (!(total || resident) || !colon)
            continue;
        region = region_named(card, name, (size_t)(colon - name));
        if (region && amount_of(colon + 1, &bytes))
            add_absent(total ? &region->total : &region->resident, bytes);
    }
}

/* Two descriptors of one client carry the same numbers: the pair of card and client id tells them
 * apart. A kernel without client ids gets every descriptor counted. */
static bool seen_before(struct client **seen, size_t *count, const char *pdev, const char *id) {
    struct client *more;

    if (!*id)
        return false;
    for (size_t i = 0; i < *count; i++) {
        if (!strcmp((*seen)[i].pdev, pdev) && !strcmp((*seen)[i].id, id))
            return true;
    }
    more = realloc(*seen, (*count + 1) * sizeof **seen);
    if (!more)
        return true;
    *seen = more;
    snprintf(more[*count].pdev, sizeof more->pdev, "%s", pdev);
    snprintf(more[*count].id, sizeof more->id, "%s", id);
    ++*count;
    return false;
}

static void add_descriptor(struct zr_process_memory *out, struct client **seen, size_t *count, const char *path) {
    char pdev[32] = "", driver[16] = "", id[32] = "";
    char *text = zr_read_whole(path, NULL), *copy, *rest, *line;
    struct zr_card_use *card;

    if (!text)
        return;
    copy = strdup(text);
    for (rest = copy; copy && (line = next_line(&rest));) {
        copy_value(pdev, sizeof pdev, value_of(line, "drm-pdev"));
        copy_value(driver, sizeof driver, value_of(line, "drm-driver"));
        copy_value(id, sizeof id, value_of(line, "drm-client-id"));
        if (value_of(line, "exp_name"))
            out->dmabuf_fds++;
    }
    free(copy);
    if (*driver && !seen_before(seen, count, pdev, id) && (card = card_of(out, pdev, driver))) {
        card->clients++;
        add_regions(card, text);
    }
    free(text);
}

static void read_descriptors(pid_t pid, struct zr_process_memory *out) {
    char folder[4096], path[4400];
    struct client *seen = NULL;
    size_t count = 0;
    struct dirent *entry;
    DIR *listing = opendir(zr_root_path(folder, sizeof folder, "/proc/%d/fdinfo", (int)pid));

    if (!listing) {
        out->fdinfo_error = errno;
        return;
    }
    while ((entry = readdir(listing))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        add_descriptor(out, &seen, &count, path);
    }
    free(seen);
    closedir(listing);
}

/* --- cgroup and the process itself ----------------------------------------------------------- */

static uint64_t number_in(const char *path) {
    char *text = zr_read_whole(path, NULL);
    uint64_t n = ZR_ABSENT;

    if (text)
        amount_of(text, &n);
    free(text);
    return n;
}

/* A process in a container names its group relative to a root that is mounted elsewhere: the group
 * is looked for below the mount, then at the mount itself. */
static bool cgroup_file(char *path, size_t size, const char *mount, const char *group, const char *file) {
    zr_root_path(path, size, "/sys/fs/cgroup%s%s/%s", mount, strcmp(group, "/") ? group : "", file);
    if (!access(path, R_OK))
        return true;
    zr_root_path(path, size, "/sys/fs/cgroup%s/%s", mount, file);
    return !access(path, R_OK);
}

static void read_cgroup_at(struct zr_process_memory *out, const char *mount, const char *group, const char *current,
                           const char *limit) {
    char path[4096];

    if (cgroup_file(path, sizeof path, mount, group, current))
        out->cgroup_current = number_in(path);
    if (cgroup_file(path, sizeof path, mount, group, limit))
        out->cgroup_limit = number_in(path);
    /* Version 1 writes "no limit" as the largest multiple of a page. */
    if (out->cgroup_limit != ZR_ABSENT && out->cgroup_limit >= (UINT64_C(1) << 62))
        out->cgroup_limit = ZR_ABSENT;
}

static void read_cgroup(pid_t pid, struct zr_process_memory *out) {
    char path[4096];
    char *text = zr_read_whole(zr_root_path(path, sizeof path, "/proc/%d/cgroup", (int)pid), NULL);
    char *rest = text, *line;
    const char *unified = NULL, *memory = NULL;

    while (text && (line = next_line(&rest))) {
        char *controllers = strchr(line, ':');
        char *group = controllers ? strchr(controllers + 1, ':') : NULL;

        if (!group)
            continue;
        *group++ = '\0';
        if (!controllers[1])
            unified = group;
        else if (!strcmp(controllers + 1, "memory") || strstr(controllers, ",memory") ||
                 strstr(controllers, ":memory,"))
            memory = group;
    }
    if (memory)
        read_cgroup_at(out, "/memory", memory, "memory.usage_in_bytes", "memory.limit_in_bytes");
    else if (unified)
        read_cgroup_at(out, "", unified, "memory.current", "memory.max");
    free(text);
}

bool zr_process_memory_read(pid_t pid, struct zr_process_memory *out) {
    char path[4096];
    char *text = zr_read_whole(zr_root_path(path, sizeof path, "/proc/%d/status", (int)pid), NULL);
    char *rest = text, *line;

    memset(out, 0, sizeof *out);
    out->rss = out->cgroup_current = out->cgroup_limit = ZR_ABSENT;
    if (!text)
        return false;
    while ((line = next_line(&rest))) {
        const char *value = value_of(line, "VmRSS");

        if (value)
            amount_of(value, &out->rss);
    }
    free(text);
    read_cgroup(pid, out);
    read_descriptors(pid, out);
    return true;
}

/* --- arithmetic ------------------------------------------------------------------------------ */

bool zr_line_fit(const double *x, const double *y, unsigned n, struct zr_line *out) {
    double mean_x = 0, mean_y = 0, xx = 0, xy = 0, rest = 0;

    for (unsigned i = 0; i < n; i++) {
        mean_x += x[i] / n;
        mean_y += y[i] / n;
    }
    for (unsigned i = 0; i < n; i++) {
        xx += (x[i] - mean_x) * (x[i] - mean_x);
        xy += (x[i] - mean_x) * (y[i] - mean_y);
    }
    if (n < 2 || xx <= 0)
        return false;
    out->slope = xy / xx;
    out->intercept = mean_y - out->slope * mean_x;
    for (unsigned i = 0; i < n; i++) {
        double off = y[i] - out->intercept - out->slope * x[i];

        rest += off * off;
    }
    out->error = n > 2 ? sqrt(rest / (n - 2) / xx) : NAN;
    return true;
}
