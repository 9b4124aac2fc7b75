#include "common/common.h"

#include <ctype.h>
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

bool zr_amount_of(const char *text, uint64_t *out) {
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

char *zr_next_line(char **rest) {
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

const char *zr_value_of(const char *line, const char *key) {
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
    while ((line = zr_next_line(&rest))) {
        const char *value;

        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
            if ((value = zr_value_of(line, wanted[i].key)))
                zr_amount_of(value, wanted[i].to);
        }
        for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
            if ((value = zr_value_of(line, told[i])) && zr_amount_of(value, &bytes))
                sum += bytes;
        }
        complete |= zr_value_of(line, "AnonPages") != NULL;
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
