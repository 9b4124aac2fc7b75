/*
 * dmem, the kernel's controller of device memory: what the cgroups above a process leave of a card.
 * Beyond dmem.max the kernel evicts, so what is left of the group counts, not what is left of the
 * card. Files of cgroup v2, a line for each region: "drm/0000:03:00.0/vram0 1073741824", or max.
 */
#include "machine/machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LEVELS = 64, PATH_SIZE = 480 };

/* What is being read, under the lock of claim.c: a thread may have a small stack. */
static char text[4096];

/* A line that does not fit is left out: of a figure that is cut nothing can be told. */
static void read_lines(const char *path) {
    char *end;

    if (zr_read_system(path, text, sizeof text) < sizeof text - 1)
        return;
    end = strrchr(text, '\n');
    if (end)
        *end = '\0';
    else
        text[0] = '\0';
}

/* Where cgroup v2 is mounted: beside the controllers of v1, or by itself. */
static const char *mount_point(void) {
    static const char *const beside = "/sys/fs/cgroup/unified";

    return zr_is_in_system(beside) ? beside : "/sys/fs/cgroup";
}

/*
 * The name of a process's cgroup, as our own namespace shows it: "/a/b" of "0::/a/b"; empty for the
 * root. Returns false if it has none, or one outside of that namespace.
 */
static bool read_name(int pid, char name[ZR_CGROUP_NAME]) {
    const char *line;
    char path[32];
    size_t length;

    snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
    read_lines(path);
    line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
    line = line ? strchr(line, '/') : NULL;
    length = line ? strcspn(line, "\n") : ZR_CGROUP_NAME;
    if (length >= ZR_CGROUP_NAME || strncmp(line, "/..", 3) == 0)
        return false;
    if (length == 1)
        length = 0;
    memcpy(name, line, length);
    name[length] = '\0';
    return true;
}

/*
 * The folder of a cgroup. A container may have mounted its own cgroup as the root of the tree, and
 * still know it by the whole name: then the folder is that of the rest of the name.
 */
static bool find_folder(const char *name, char folder[PATH_SIZE]) {
    const char *mounted = mount_point(), *rest = name;

    while (rest) {
        snprintf(folder, PATH_SIZE, "%s%s", mounted, rest);
        if (zr_is_in_system(folder))
            return true;
        rest = *rest ? strchr(rest + 1, '/') : NULL;
    }
    snprintf(folder, PATH_SIZE, "%s", mounted);
    return zr_is_in_system(folder);
}

/*
 * Sums up a file over the regions of a card's VRAM; UINT64_MAX if one of them is not limited, or
 * there is none.
 */
static uint64_t sum_regions(const char *folder, const char *file, uint64_t pci) {
    char path[PATH_SIZE + 16];
    uint64_t sum = 0;
    bool any = false;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    read_lines(path);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        const char *region, *value;

        line += *line == '\n';
        if (strncmp(line, "drm/", 4) != 0)
            continue;
        region = line + 4 + strcspn(line + 4, "/\n");
        value = region + strcspn(region, " \n");
        if (strncmp(region, "/vram", 5) != 0 || *value != ' ' || zr_drm_parse(line + 4) != pci)
            continue;
        if (zr_number(value) == UINT64_MAX)
            return UINT64_MAX;
        sum += zr_number(value);
        any = true;
    }
    return any ? sum : UINT64_MAX;
}

/* Goes to the cgroup above. Returns false at the root. */
static bool go_up(char *path, size_t root) {
    char *slash = strrchr(path, '/');

    if (!slash || strlen(path) <= root)
        return false;
    *slash = '\0';
    return true;
}

void zr_cgroup_each(uint64_t pci, void (*see)(const struct zr_cgroup *c, void *arg), void *arg) {
    size_t root = strlen(mount_point());
    char folder[PATH_SIZE];
    struct zr_cgroup c;

    if (!read_name(getpid(), c.name) || !find_folder(c.name, folder))
        return;
    for (unsigned level = 0; level < LEVELS; level++) {
        c.most = sum_regions(folder, "dmem.max", pci);
        if (c.most != UINT64_MAX) {
            c.current = sum_regions(folder, "dmem.current", pci);
            c.current = c.current == UINT64_MAX ? 0 : c.current;
            see(&c, arg);
        }
        if (!go_up(folder, root))
            return;
        go_up(c.name, 0);
    }
}

bool zr_cgroup_holds(const char *name, int pid) {
    size_t length = strlen(name);
    char of[ZR_CGROUP_NAME];

    return read_name(pid, of) && strncmp(of, name, length) == 0 &&
           (of[length] == '/' || of[length] == '\0');
}
