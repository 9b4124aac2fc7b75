/*
 * The segment of this very process, by the contract of zeroute/segment.h. Found among the mappings of the process; the
 * descriptor that it is mapped through is never closed, because that would release the preload's lock.
 */
#include "program.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zeroute/segment.h>

static char path[512];
static const char *map;
static const struct zeroute_segment_header *header;

/* By its name, which has the number of the process in it: a child of fork has its parent's mapped, too. */
static bool find_path(void) {
    char line[1024], own[2][32];
    FILE *maps = fopen("/proc/self/maps", "re");
    bool found = false;

    snprintf(own[0], sizeof own[0], ".%d.", getpid());
    snprintf(own[1], sizeof own[1], "/%d.", getpid());
    while (maps && !found && fgets(line, sizeof line, maps)) {
        char *at = strstr(line, "/dev/shm/zeroute");

        if (!at || (!strstr(at, own[0]) && !strstr(at, own[1])) || strstr(at, " (deleted)"))
            continue;
        at[strcspn(at, "\n")] = '\0';
        snprintf(path, sizeof path, "%s", at);
        found = true;
    }
    if (maps)
        fclose(maps);
    return found;
}

bool segment_open(void) {
    struct stat st;
    void *at;
    int fd;

    if (header)
        return true;
    if (!find_path())
        return false;
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return false;
    at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return false;
    map = at;
    header = at;
    return header->magic == ZEROUTE_SEGMENT_MAGIC;
}

void segment_unlink(void) {
    if (find_path())
        unlink(path);
}

/* The sum of a series over all shards, or in the globals. */
static int64_t series(const struct zeroute_segment_field *f, uint32_t offset) {
    const char *base = map + header->globals_offset;
    uint32_t shards = f->place == ZEROUTE_SHARDS ? header->shard_count : 1;
    uint64_t sum = 0;

    for (uint32_t s = 0; s < shards; s++) {
        if (f->place == ZEROUTE_SHARDS)
            base = map + header->shards_offset + s * header->shard_size;
        for (uint32_t i = 0; i < (f->count ? f->count : 1); i++)
            sum += *(const uint64_t *)(const void *)(base + offset + i * f->stride);
    }
    return (int64_t)sum;
}

static const struct zeroute_segment_field *field(uint32_t i) {
    return (const void *)(map + header->fields_offset + (uint64_t)i * header->field_size);
}

static bool value_of(const struct zeroute_segment_field *f, int64_t *value) {
    if (f->type != ZEROUTE_COUNTER && f->type != ZEROUTE_GAUGE)
        return false;
    *value = series(f, f->offset);
    if (f->minus)
        *value -= series(f, f->minus);
    if (f->total)
        *value += *(const int64_t *)(const void *)(map + header->globals_offset + f->total);
    return !(f->place == ZEROUTE_GLOBAL && (uint64_t)*value == ZEROUTE_ABSENT);
}

bool segment_value(const char *name, int64_t *value) {
    if (!segment_open())
        return false;
    for (uint32_t i = 0; i < header->field_count; i++)
        if (strcmp(field(i)->name, name) == 0)
            return value_of(field(i), value);
    return false;
}

const char *segment_negative(int64_t *value) {
    if (!segment_open())
        return NULL;
    for (uint32_t i = 0; i < header->field_count; i++)
        if (value_of(field(i), value) && *value < 0)
            return field(i)->name;
    return NULL;
}

bool segment_claim(int card, int64_t *blocks, int64_t *unseen) {
    const struct zeroute_segment_claim *claims;

    if (!segment_open() || !header->claims)
        return false;
    claims = (const void *)(map + header->globals_offset + header->claims);
    *blocks = (int64_t)claims[card].blocks;
    *unseen = (int64_t)claims[card].unseen;
    return true;
}

static struct zeroute_segment_control *control(void) {
    return (void *)(uintptr_t)(map + header->control_offset);
}

bool segment_request(const char *text) {
    static uint32_t number;

    if (!segment_open())
        return false;
    memset(control()->text, 0, sizeof control()->text);
    snprintf(control()->text, sizeof control()->text, "%s", text);
    __atomic_store_n(&control()->request, ++number, __ATOMIC_RELEASE);
    return true;
}

const char *segment_reply(void) {
    return segment_open() ? control()->reply : "";
}
