/* What /proc says of processes, and the list of them by their numbers in their own namespaces. */
#include "reader/snapshot.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void zeroute_read_line(const char *path, char *out, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    out[n < 0 ? 0 : n] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

uint64_t zeroute_namespace(const char *pid, const char *kind) {
    char path[64], link[64];
    snprintf(path, sizeof path, "/proc/%.16s/ns/%.16s", pid, kind);
    ssize_t n = readlink(path, link, sizeof link - 1);
    link[n < 0 ? 0 : n] = '\0';
    char *p = strchr(link, '[');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

uint64_t zeroute_start_time(const char *pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%.16s/stat", pid);
    zeroute_read_line(path, text, sizeof text);
    char *p = strrchr(text, ')');
    /* A zombie has ended; what it held is only waiting to be collected. */
    if (!p || p[1] != ' ' || p[2] == 'Z' || p[2] == 'X')
        return 0;
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

int zeroute_inner_pid(const char *pid) {
    char path[64], line[256];
    int inner = 0;
    snprintf(path, sizeof path, "/proc/%.16s/status", pid);
    FILE *f = fopen(path, "re");
    while (f && !inner && fgets(line, sizeof line, f))
        if (strncmp(line, "NSpid:", 6) == 0)
            inner = (int)strtol(strrchr(line, '\t') + 1, NULL, 10);
    if (f)
        fclose(f);
    return inner;
}

/* --- the list of processes ------------------------------------------------------------------------------- */

static int by_inside(const void *a, const void *b) {
    const struct zeroute_pid *p = a, *q = b;
    if (p->inside != q->inside)
        return p->inside < q->inside ? -1 : 1;
    return (p->pid > q->pid) - (p->pid < q->pid);
}

static void make_pids(struct zeroute_pids *pids) {
    size_t room = 0;
    DIR *d = opendir("/proc");
    struct dirent *e;
    while (d && (e = readdir(d))) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        if (pids->count == room) {
            room = room ? room * 2 : 256;
            struct zeroute_pid *more = realloc(pids->at, room * sizeof *more);
            if (!more)
                break;
            pids->at = more;
        }
        pids->at[pids->count++] = (struct zeroute_pid){
            .pid = (int)strtol(e->d_name, NULL, 10),
            .inside = zeroute_inner_pid(e->d_name),
            .pid_namespace = zeroute_namespace(e->d_name, "pid"),
            .start_time = zeroute_start_time(e->d_name),
        };
    }
    if (d)
        closedir(d);
    if (pids->count)
        qsort(pids->at, pids->count, sizeof *pids->at, by_inside);
    pids->made = true;
}

size_t zeroute_pids_find(struct zeroute_pids *pids, int inside) {
    if (!pids->made)
        make_pids(pids);
    size_t low = 0, high = pids->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pids->at[middle].inside < inside)
            low = middle + 1;
        else
            high = middle;
    }
    return low < pids->count && pids->at[low].inside == inside ? low : pids->count;
}

void zeroute_pids_free(struct zeroute_pids *pids) {
    free(pids->at);
    *pids = (struct zeroute_pids){0};
}
