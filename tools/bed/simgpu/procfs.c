/* What a reader would find in /proc, under ZEROUTE_ROOT: whole files, put in place by rename. */
#include "simgpu.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_FD 200 /* the descriptor that card 0 would have in the process */

struct text {
    char bytes[4096];
    size_t used;
};

static void put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *text, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof(text->bytes) - text->used;
    int n = vsnprintf(text->bytes + text->used, room, format, arguments);
    va_end(arguments);
    if (n > 0)
        text->used += (size_t)n < room ? (size_t)n : room - 1;
}

void sim_make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
}

static void write_whole(const char *path, const struct text *text) {
    char temporary[4200];
    snprintf(temporary, sizeof(temporary), "%s.%d.new", path, getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ENOENT) {
        sim_make_folders(temporary);
        fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    }
    if (fd < 0)
        return;
    bool whole = write(fd, text->bytes, text->used) == (ssize_t)text->used;
    close(fd);
    if (!whole || rename(temporary, path) != 0)
        unlink(temporary);
}

/* As the kernel prints them: the largest unit up to MiB that leaves no remainder. */
static void put_size(struct text *text, const char *what, const char *region, uint64_t bytes) {
    static const char *const units[] = {"", " KiB", " MiB"};
    unsigned unit = 0;
    while (unit < 2 && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    put(text, "drm-%s-%s:\t%" PRIu64 "%s\n", what, region, bytes, units[unit]);
}

static void put_region(struct text *text, const char *region, uint64_t total, uint64_t shared) {
    put_size(text, "total", region, total);
    put_size(text, "shared", region, shared);
    put_size(text, "active", region, 0);
    put_size(text, "resident", region, total);
    put_size(text, "purgeable", region, 0);
}

static void write_cgroup(const char *path) {
    struct text text = {.used = 0};
    put(&text, "0::%s\n", sim_config.cgroup);
    write_whole(path, &text);
}

/* Files of the real process that a reader of the root would miss. */
static void link_own_files(const char *root) {
    static const char *const names[] = {"status", "stat", "cmdline", "comm", "cgroup", "maps", "environ"};
    char real[64], link[4200];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(real, sizeof(real), "/proc/%d/%s", getpid(), names[i]);
        snprintf(link, sizeof(link), "%s/proc/%d/%s", root, getpid(), names[i]);
        if (*sim_config.cgroup && strcmp(names[i], "cgroup") == 0)
            write_cgroup(link);
        else if (symlink(real, link) != 0 && errno != EEXIST)
            return;
    }
}

static void link_card(const char *root, unsigned card) {
    char real[64], link[4200];
    snprintf(real, sizeof(real), "/dev/dri/renderD%u", 128 + card);
    snprintf(link, sizeof(link), "%s/proc/%d/fd/%u", root, getpid(), FIRST_FD + card);
    if (symlink(real, link) != 0 && errno == ENOENT) {
        sim_make_folders(link);
        if (symlink(real, link) != 0)
            return;
    }
}

/* As long as one process holds it, a simulated machine's folder is not taken for one that was left behind. */
static void hold(const char *root) {
    static int held = -1;
    int fd;

    if (held >= 0)
        return;
    fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    held = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD + 2 * SIM_CARDS); /* out of the program's way */
    close(fd);
    if (held >= 0)
        flock(held, LOCK_SH | LOCK_NB);
}

void sim_procfs_write_card(const char *root, unsigned client, unsigned card, const struct sim_usage *usage) {
    struct text text = {.used = 0};
    char path[4096];
    put(&text, "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t%u\n", 500 + card);
    put(&text, "drm-driver:\txe\ndrm-client-id:\t%u\ndrm-pdev:\t0000:%02x:00.0\n", client, 3 + card);
    put_region(&text, "system", usage->system, 0);
    put_region(&text, "gtt", usage->gtt, usage->gtt);
    put_region(&text, "vram0", usage->vram + usage->shared, usage->shared);
    snprintf(path, sizeof(path), "%s/proc/%d/fdinfo/%u", root, getpid(), FIRST_FD + card);
    bool fresh = access(path, F_OK) != 0;
    write_whole(path, &text);
    if (fresh) {
        link_own_files(root);
        link_card(root, card);
        hold(root);
    }
}

void sim_procfs_read_host(struct sim_host_memory *host) {
    char line[256];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof(line), file)) {
        uint64_t kib = strtoull(line + strcspn(line, ":") + 1, NULL, 10);
        if (strncmp(line, "MemTotal:", 9) == 0)
            host->total_kib = kib;
        else if (strncmp(line, "MemFree:", 8) == 0)
            host->free_kib = kib;
        else if (strncmp(line, "MemAvailable:", 13) == 0)
            host->available_kib = kib;
    }
    if (file)
        fclose(file);
}

static uint64_t less(uint64_t from, uint64_t what) {
    return from > what ? from - what : 0;
}

/*
 * MemFree and MemAvailable are those of the machine's first process less what is mirrored: what
 * else the real machine does does not disturb a test.
 */
void sim_procfs_write_meminfo(const char *root, const struct sim_host_memory *host, uint64_t used) {
    struct text text = {.used = 0};
    char path[4096];
    uint64_t kib = used / 1024;
    put(&text, "MemTotal:       %8" PRIu64 " kB\n", host->total_kib);
    put(&text, "MemFree:        %8" PRIu64 " kB\n", less(host->free_kib, kib));
    put(&text, "MemAvailable:   %8" PRIu64 " kB\n", less(host->available_kib, kib));
    put(&text, "SwapTotal:      %8u kB\nSwapFree:       %8u kB\n", 0, 0);
    if (sim_config.kernel >= 618) {
        put(&text, "GPUActive:      %8" PRIu64 " kB\n", kib);
        put(&text, "GPUReclaim:     %8u kB\n", 0);
    }
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    write_whole(path, &text);
    snprintf(path, sizeof(path), "%s/proc/sys/kernel/osrelease", root);
    if (access(path, F_OK) != 0) {
        text.used = 0;
        put(&text, "%u.%u.0\n", sim_config.kernel / 100, sim_config.kernel % 100);
        write_whole(path, &text);
    }
}

static void remove_folder(const char *root, int pid, const char *name) {
    char path[4096];
    for (unsigned card = 0; card < 2 * SIM_CARDS; card++) {
        snprintf(path, sizeof(path), "%s/proc/%d/%s/%u", root, pid, name, FIRST_FD + card);
        unlink(path);
        snprintf(path, sizeof(path), "%s/proc/%d/%s/%u.%d.new", root, pid, name, FIRST_FD + card,
                 pid); /* it may have been killed in write_whole */
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/proc/%d/%s", root, pid, name);
    rmdir(path);
}

void sim_procfs_remove(const char *root, int pid) {
    static const char *const names[] = {"status", "stat", "cmdline", "comm", "cgroup", "maps", "environ"};
    char path[4096];
    remove_folder(root, pid, "fdinfo");
    remove_folder(root, pid, "fd");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/proc/%d/%s", root, pid, names[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/proc/%d", root, pid);
    rmdir(path);
}
