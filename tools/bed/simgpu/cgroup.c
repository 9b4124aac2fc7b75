/*
 * The controller dmem of a simulated machine: below ZEROUTE_ROOT, sys/fs/cgroup/NAME/dmem.max is
 * read where a test has written it, and dmem.current written, for the cgroup of a process and those
 * above it.
 */
#include "simgpu.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put_path(char *out, size_t size, const char *root, const char *group, const char *file) {
    snprintf(out, size, "%s/sys/fs/cgroup%s/%s", root, group, file);
}

uint64_t sim_cgroup_most(const char *root, const char *group, unsigned card) {
    char path[4400], region[64], line[128];
    uint64_t most = UINT64_MAX;
    snprintf(region, sizeof(region), "drm/0000:%02x:00.0/vram0 ", 3 + card);
    put_path(path, sizeof(path), root, group, "dmem.max");
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, region, strlen(region)) == 0 && strncmp(line + strlen(region), "max", 3) != 0)
            most = strtoull(line + strlen(region), NULL, 10);
    }
    if (file)
        fclose(file);
    return most;
}

void sim_cgroup_write(const char *root, const char *group, const uint64_t *used, unsigned cards) {
    char path[4400], text[1024];
    size_t length = 0;
    for (unsigned card = 0; card < cards && length < sizeof(text) - 64; card++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "drm/0000:%02x:00.0/vram0 %" PRIu64 "\n",
                                   3 + card, used[card]);
    put_path(path, sizeof(path), root, group, "dmem.current");
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ENOENT) {
        sim_make_folders(path);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    }
    if (fd < 0)
        return;
    /* One write, and the file never shorter than a whole one: a reader finds a line or the other. */
    if (pwrite(fd, text, length, 0) == (ssize_t)length && ftruncate(fd, (off_t)length) != 0)
        sim_say("cannot shorten %s", path);
    close(fd);
}
