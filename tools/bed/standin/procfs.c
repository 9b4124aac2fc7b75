/*
 * The /proc-style files under $ZEROUTE_ROOT: meminfo with GPUActive, and for every open card
 * proc/<pid>/fdinfo/<fd> in the format of the xe driver. They are made once, mapped, and hold
 * numbers of fixed width: a change is a store of a dozen bytes. What else a reader wants of a
 * process (status, stat, ...) is a link to the real file. Without ZEROUTE_ROOT there are no files.
 */
#include "standin.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WIDTH 14
#define MEMINFO_SIZE 1024

static char *meminfo;
static unsigned place_available, place_free, place_active;
static uint64_t base_available, base_free; /* KiB, before any mirror */

static const char *const memory_names[] = {[XS_VRAM] = "vram0", [XS_GTT] = "gtt", [XS_SYSTEM] = "system"};

void xs_pci_address(unsigned card, char out[16]) {
    snprintf(out, 16, "0000:%02x:00.0", 3 + card);
}

static char *map_file(const char *path, const char *content, size_t length) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        xs_say("%s: %s", path, strerror(errno));
        return NULL;
    }
    char *text = MAP_FAILED;
    if (!ftruncate(fd, (off_t)length) && pwrite(fd, content, length, 0) == (ssize_t)length)
        text = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return text == MAP_FAILED ? NULL : text;
}

static uint64_t real_meminfo(const char *key) {
    uint64_t value = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file)) {
        if (!strncmp(line, key, strlen(key)))
            value = strtoull(line + strlen(key), NULL, 10);
    }
    fclose(file);
    return value;
}

static unsigned add_line(char *text, unsigned *length, const char *key, uint64_t kib) {
    *length += (unsigned)sprintf(text + *length, "%-16s", key);
    unsigned place = *length;
    xs_format_number(text + place, WIDTH, kib);
    *length += WIDTH;
    *length += (unsigned)sprintf(text + *length, " kB\n");
    return place;
}

static uint64_t number_at(const char *text, const char *key) {
    const char *line = strstr(text, key);
    return line ? strtoull(line + strlen(key), NULL, 10) : 0;
}

/*
 * MemAvailable and MemFree are what the machine had when its first process came, less the mirror: a
 * figure that only the stand-in moves.
 */
static void open_meminfo(void) {
    char path[600], text[MEMINFO_SIZE], old[MEMINFO_SIZE] = "";
    unsigned length = 0;
    snprintf(path, sizeof(path), "%s/proc/meminfo", xs_config.root);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, old, sizeof(old) - 1);
        old[got > 0 ? got : 0] = 0;
        close(fd);
    }
    uint64_t active = number_at(old, "GPUActive:");
    bool known = strstr(old, "GPUActive:") != NULL;
    uint64_t total = known ? number_at(old, "MemTotal:") : real_meminfo("MemTotal:");
    base_free = known ? number_at(old, "MemFree:") + active : real_meminfo("MemFree:");
    base_available = known ? number_at(old, "MemAvailable:") + active : real_meminfo("MemAvailable:");
    add_line(text, &length, "MemTotal:", total);
    place_free = add_line(text, &length, "MemFree:", base_free);
    place_available = add_line(text, &length, "MemAvailable:", base_available);
    if (xs_config.kernel[0] > 6 || (xs_config.kernel[0] == 6 && xs_config.kernel[1] >= 18)) {
        place_active = add_line(text, &length, "GPUActive:", active);
        add_line(text, &length, "GPUReclaim:", 0);
    }
    meminfo = map_file(path, text, length);
}

void xs_procfs_meminfo(uint64_t gpu_active) {
    if (!meminfo)
        return;
    uint64_t kib = gpu_active >> 10;
    xs_format_number(meminfo + place_free, WIDTH, base_free > kib ? base_free - kib : 0);
    xs_format_number(meminfo + place_available, WIDTH, base_available > kib ? base_available - kib : 0);
    if (place_active)
        xs_format_number(meminfo + place_active, WIDTH, kib);
}

static void make_dir(const char *name) {
    char path[640];
    snprintf(path, sizeof(path), "%s%s", xs_config.root, name);
    if (mkdir(path, 0755) && errno != EEXIST)
        xs_say("%s: %s", path, strerror(errno));
}

static void write_file(const char *name, const char *content) {
    char path[640];
    snprintf(path, sizeof(path), "%s%s", xs_config.root, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    ssize_t ignored = write(fd, content, strlen(content));
    (void)ignored;
    close(fd);
}

/* What a reader finds of a process besides the cards: the real files. */
static void link_process(const char *process) {
    static const char *const files[] = {"status",  "stat",    "statm",        "cgroup", "comm",
                                        "cmdline", "environ", "smaps_rollup", "maps",   "exe"};
    char from[600], to[64];
    snprintf(to, sizeof(to), "/proc/%s", process);
    make_dir(to);
    for (unsigned i = 0; i < sizeof(files) / sizeof(*files); i++) {
        snprintf(from, sizeof(from), "%s/proc/%s/%s", xs_config.root, process, files[i]);
        snprintf(to, sizeof(to), "/proc/%s/%s", process, files[i]);
        if (symlink(to, from) && errno != EEXIST)
            xs_say("%s: %s", from, strerror(errno));
    }
}

static void describe_cards(void) {
    char name[128], device[16];
    make_dir("/sys");
    make_dir("/sys/class");
    make_dir("/sys/class/drm");
    snprintf(device, sizeof(device), "0x%04x\n", xs_config.device_id);
    for (unsigned card = 0; card < xs_config.cards; card++) {
        const char *const files[][2] = {{"vendor", "0x8086\n"},
                                        {"device", device},
                                        {"subsystem_vendor", "0x8086\n"},
                                        {"subsystem_device", "0x1100\n"},
                                        {"revision", "0x00\n"}};
        int length = snprintf(name, sizeof(name), "/sys/class/drm/renderD%u", XS_FIRST_RENDER + card);
        make_dir(name);
        length += snprintf(name + length, sizeof(name) - (size_t)length, "/device");
        make_dir(name);
        for (unsigned i = 0; i < sizeof(files) / sizeof(*files); i++) {
            snprintf(name + length, sizeof(name) - (size_t)length, "/%s", files[i][0]);
            write_file(name, files[i][1]);
        }
    }
}

/* The machine's lock is held. */
void xs_procfs_open(void) {
    if (!xs_config.root[0])
        return;
    char text[64];
    make_dir("");
    make_dir("/proc");
    make_dir("/proc/sys");
    make_dir("/proc/sys/kernel");
    link_process("self");
    snprintf(text, sizeof(text), "%d", (int)getpid());
    link_process(text);
    snprintf(text, sizeof(text), "/proc/%d/fdinfo", (int)getpid());
    make_dir(text);
    snprintf(text, sizeof(text), "%u.%u.0-standin\n", xs_config.kernel[0], xs_config.kernel[1]);
    write_file("/proc/sys/kernel/osrelease", text);
    describe_cards();
    if (!meminfo)
        open_meminfo();
}

void xs_procfs_forget(pid_t pid) {
    char path[600];
    if (!xs_config.root[0] || !pid)
        return;
    static const char *const folders[] = {"/fdinfo", ""};
    for (unsigned i = 0; i < 2; i++) {
        int length = snprintf(path, sizeof(path), "%s/proc/%d%s", xs_config.root, (int)pid, folders[i]);
        DIR *dir = opendir(path);
        for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
            snprintf(path + length, sizeof(path) - (size_t)length, "/%s", e->d_name);
            if (e->d_name[0] != '.')
                unlink(path);
        }
        if (dir)
            closedir(dir);
        path[length] = 0;
        rmdir(path);
    }
}

void xs_fdinfo_open(struct xs_fdinfo *info, int fd, unsigned card, uint64_t client_id) {
    char path[600], text[1024], pci[16];
    info->fd = fd;
    if (!xs_config.root[0])
        return;
    xs_pci_address(card, pci);
    int length = snprintf(text, sizeof(text),
                          "pos:\t0\nflags:\t02100002\nmnt_id:\t15\nino:\t%u\n"
                          "drm-driver:\txe\ndrm-client-id:\t%llu\ndrm-pdev:\t%s\n",
                          500 + card, (unsigned long long)client_id, pci);
    for (unsigned kind = 0; kind < XS_MEMORIES; kind++) {
        static const char *const parts[] = {"total", "shared", "active", "resident", "purgeable"};
        for (unsigned part = 0; part < 5; part++) {
            length += sprintf(text + length, "drm-%s-%s:\t", parts[part], memory_names[kind]);
            if (part == 0 || part == 3)
                info->place[kind][part == 3] = (unsigned)length;
            xs_format_number(text + length, WIDTH, 0);
            length += WIDTH;
            length += sprintf(text + length, " KiB\n");
        }
    }
    snprintf(path, sizeof(path), "%s/proc/%d/fdinfo/%d", xs_config.root, (int)getpid(), fd);
    info->text = map_file(path, text, (size_t)length);
}

void xs_fdinfo_close(struct xs_fdinfo *info) {
    char path[600];
    if (!info->text)
        return;
    snprintf(path, sizeof(path), "%s/proc/%d/fdinfo/%d", xs_config.root, (int)getpid(), info->fd);
    unlink(path);
    munmap(info->text, 1);
    info->text = NULL;
}

/* About 20 ns with a file, 5 ns without. */
void xs_fdinfo_add(struct xs_fdinfo *info, enum xs_memory kind, int64_t bytes) {
    uint64_t value = atomic_fetch_add(&info->bytes[kind], (uint64_t)bytes) + (uint64_t)bytes;
    if (!info->text)
        return;
    for (;;) {
        xs_format_number(info->text + info->place[kind][0], WIDTH, value >> 10);
        memcpy(info->text + info->place[kind][1], info->text + info->place[kind][0], WIDTH);
        uint64_t now = atomic_load(&info->bytes[kind]);
        if (now == value)
            return;
        value = now;
    }
}
