/*
 * The segment of a process that ends, made small: of a thousand fields most are zero, and 320 KiB
 * of shared memory would stay until somebody removes them. The compact file has the same layout
 * and the same name, and says the same.
 */
#include "stats/stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    COMPACT_PAGE = 4096,
    COMPACT_WORD = sizeof(uint64_t),
    COMPACT_SHARD = 4 * COMPACT_WORD, /* unused, folds, activity, unused; histograms follow */
};

/* One part of the compact file. */
struct compact_part {
    char *bytes;
    size_t used, room;
};

struct compact {
    struct zeroute_segment_header header;
    struct compact_part table, globals, fingerprint, shard;
    struct compact_part zeros; /* lines of ZEROUTE_ZEROS */
    uint64_t *sum;             /* of all shards, word by word */
};

static size_t whole_words(size_t size) {
    return (size + COMPACT_WORD - 1) / COMPACT_WORD * COMPACT_WORD;
}

/* NULL: there is no room. */
static void *part_take(struct compact_part *p, size_t size) {
    char *at = p->bytes + p->used;

    size = whole_words(size);
    if (size > p->room - p->used)
        return NULL;
    p->used += size;
    return at;
}

/* --- what a field is worth -------------------------------------------------------------------- */

/*
 * All threads share the histograms of the first shard, so the longest time in them is right as it
 * is.
 */
static void shards_add_up(struct compact *c) {
    unsigned count = __atomic_load_n(&zr_segment.header->shard_count, __ATOMIC_ACQUIRE);

    memcpy(c->sum, zr_segment_shard(0), sizeof(struct zr_shard));
    for (unsigned n = 1; n < count && n < ZR_SHARDS; n++) {
        const struct zr_shard *shard = zr_segment_shard(n);
        const uint64_t *words = (const uint64_t *)(const void *)shard;

        for (size_t i = 0; i < offsetof(struct zr_shard, latency) / COMPACT_WORD; i++)
            c->sum[i] += __atomic_load_n(&words[i], __ATOMIC_RELAXED);
    }
}

static uint64_t global_word(uint32_t offset) {
    const uint64_t *words = (const uint64_t *)(const void *)zr_segment.globals;

    return __atomic_load_n(&words[offset / COMPACT_WORD], __ATOMIC_RELAXED);
}

static uint64_t series_sum(const struct compact *c, const struct zeroute_segment_field *f,
                           uint16_t place, uint32_t offset) {
    uint64_t sum = 0;

    for (uint32_t i = 0; i < f->count; i++) {
        uint32_t at = offset + i * f->stride;

        sum += place == ZEROUTE_GLOBAL ? global_word(at) : c->sum[at / COMPACT_WORD];
    }
    return sum;
}

/* A signed total, and what of the series was not yet folded into it. */
static int64_t folded_sum(const struct compact *c, const struct zeroute_segment_field *f,
                          uint32_t unfolded) {
    return (int64_t)(global_word(f->total) + series_sum(c, f, ZEROUTE_SHARDS, unfolded));
}

static uint64_t never_negative(int64_t n) {
    return n > 0 ? (uint64_t)n : 0;
}

/* As zeroute/segment.h says that a reader works it out. */
static uint64_t field_value(const struct compact *c, const struct zeroute_segment_field *f) {
    int64_t highest, since;

    switch (f->type) {
    case ZEROUTE_GAUGE:
        if (f->total)
            return never_negative(folded_sum(c, f, f->offset));
        if (f->minus)
            return never_negative((int64_t)(series_sum(c, f, f->place, f->offset) -
                                            series_sum(c, f, f->place, f->minus)));
        return series_sum(c, f, f->place, f->offset);
    case ZEROUTE_PEAK:
        highest = (int64_t)global_word(f->offset);
        since = f->total ? folded_sum(c, f, f->high) : 0;
        return never_negative(since > highest ? since : highest);
    default:
        return series_sum(c, f, f->place, f->offset);
    }
}

/* --- fields ----------------------------------------------------------------------------------- */

/* Returns where the text is now, or 0. */
static uint32_t text_keep(struct compact_part *to, const struct zeroute_segment_text *text,
                          uint32_t *room) {
    uint32_t offset = (uint32_t)to->used;
    size_t size = sizeof *text + text->length + 1;
    struct zeroute_segment_text *copy = text->length ? part_take(to, size) : NULL;

    if (!copy)
        return 0;
    memcpy(copy, text, size - 1);
    copy->generation = 0;
    *room = (uint32_t)(to->used - offset);
    return offset;
}

static uint32_t histogram_keep(struct compact *c, uint32_t offset) {
    const struct zeroute_segment_histogram *h =
        (const void *)((const char *)zr_segment_shard(0) + offset);
    uint32_t at = (uint32_t)c->shard.used;
    struct zeroute_segment_histogram *copy = h->sum_ns ? part_take(&c->shard, sizeof *h) : NULL;

    if (!copy)
        return 0;
    *copy = *h;
    return at;
}

/* Where the value is now; 0: it is zero, or (and then not noted) absent. */
static uint32_t value_keep(struct compact *c, const struct zeroute_segment_field *f, bool *absent) {
    uint64_t value = field_value(c, f), *copy;
    uint32_t offset = (uint32_t)c->globals.used;

    *absent = f->type == ZEROUTE_GAUGE && value == ZEROUTE_ABSENT;
    copy = value && !*absent ? part_take(&c->globals, sizeof *copy) : NULL;
    if (!copy)
        return 0;
    *copy = value;
    return offset;
}

static void zero_note(struct compact_part *zeros, const struct zeroute_segment_field *f) {
    size_t room = zeros->room - zeros->used;
    int n = snprintf(zeros->bytes + zeros->used, room, "%u%.*s\n", f->type,
                     (int)strnlen(f->name, sizeof f->name), f->name);

    if (n > 0 && (size_t)n < room)
        zeros->used += (size_t)n;
}

/* A field of the compact file, whose value is at `offset`. */
static void field_add(struct compact *c, const struct zeroute_segment_field *f, uint32_t offset,
                      uint32_t room) {
    struct zeroute_segment_field *copy = part_take(&c->table, sizeof *copy);

    if (!copy)
        return;
    *copy = (struct zeroute_segment_field){.type = f->type, .count = 1, .offset = offset};
    copy->place = f->type == ZEROUTE_HISTOGRAM ? ZEROUTE_SHARDS : ZEROUTE_GLOBAL;
    copy->stride = room;
    memcpy(copy->name, f->name, sizeof copy->name);
    memcpy(copy->unit, f->unit, sizeof copy->unit);
    memcpy(copy->help, f->help, sizeof copy->help);
    c->header.field_count++;
}

static void field_keep(struct compact *c, const struct zeroute_segment_field *f) {
    const char *globals = (const char *)zr_segment.globals;
    uint32_t offset, room = 0;
    bool absent = false;

    if (f->type == ZEROUTE_TEXT)
        offset = text_keep(&c->globals, (const void *)(globals + f->offset), &room);
    else if (f->type == ZEROUTE_HISTOGRAM)
        offset = histogram_keep(c, f->offset);
    else
        offset = value_keep(c, f, &absent);
    if (offset)
        field_add(c, f, offset, room);
    else if (!absent)
        zero_note(&c->zeros, f);
}

static void zeros_keep(struct compact *c) {
    static const struct zeroute_segment_field field = {.name = "zeros", .type = ZEROUTE_ZEROS};
    uint32_t offset = (uint32_t)c->globals.used;
    struct zeroute_segment_text *text = part_take(&c->globals, sizeof *text + c->zeros.used + 1);

    if (!text)
        return;
    text->length = (uint32_t)c->zeros.used;
    memcpy(text + 1, c->zeros.bytes, c->zeros.used);
    field_add(c, &field, offset, (uint32_t)(c->globals.used - offset));
}

/* --- the file --------------------------------------------------------------------------------- */

static void parts_make(struct compact *c) {
    struct zeroute_segment_header *from = zr_segment.header, *h = &c->header;
    const struct zeroute_segment_field *field =
        (const void *)((const char *)from + from->fields_offset);
    uint64_t end = zr_now(); /* the last activity: until now it has held what it holds */
    uint32_t room, fields = __atomic_load_n(&from->field_count, __ATOMIC_ACQUIRE);

    *h = *from;
    h->field_count = 0;
    shards_add_up(c);
    part_take(&c->globals, COMPACT_WORD); /* no offset is 0 */
    part_take(&c->shard, COMPACT_SHARD);
    memcpy(c->shard.bytes + 2 * COMPACT_WORD, &end, sizeof end);
    for (uint32_t i = 0; i < fields; i++)
        field_keep(c, &field[i]);
    zeros_keep(c);
    text_keep(&c->fingerprint, zr_segment.fingerprint, &room);
}

static void header_point(struct compact *c) {
    struct zeroute_segment_header *h = &c->header;

    h->fields_offset = sizeof *h;
    h->globals_offset = h->fields_offset + c->table.used;
    h->globals_size = c->globals.used;
    h->fingerprint_offset = h->globals_offset + c->globals.used;
    h->fingerprint_size = c->fingerprint.used;
    h->shards_offset = h->fingerprint_offset + c->fingerprint.used;
    h->shard_size = c->shard.used;
    h->shard_count = 1;
    h->shard_generation = 0;
    h->shard_folds = COMPACT_WORD;
    h->shard_activity = 2 * COMPACT_WORD;
    h->shard_group = 2 * COMPACT_WORD;
    h->file_size = h->shards_offset + h->shard_size;
    h->control_size = 0;
    h->control_offset = 0;
    h->claims = 0;
    h->group = 0;
}

static bool file_write(int fd, struct compact *c) {
    struct iovec parts[] = {
        {&c->header, sizeof c->header},      {c->table.bytes, c->table.used},
        {c->globals.bytes, c->globals.used}, {c->fingerprint.bytes, c->fingerprint.used},
        {c->shard.bytes, c->shard.used},
    };

    return writev(fd, parts, sizeof parts / sizeof *parts) == (ssize_t)c->header.file_size;
}

/* Until it has ended the process is known by the lock on its segment, and by having it mapped. */
static bool file_hold(int fd) {
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = ZEROUTE_SEGMENT_LOCK_BYTE, .l_len = 1};

    (void)fcntl(fd, F_SETLK, &lock);
    return mmap(NULL, COMPACT_PAGE, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED;
}

/*
 * Under a name that nobody lists, then over the segment's own: a reader has one file or the other.
 */
static void file_exchange(int directory, const char *name, struct compact *c) {
    char other[48];
    int fd;

    snprintf(other, sizeof other, ".%s", name);
    fd = openat(directory, other, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    fd = zr_descriptor_keep(fd).fd;
    if (fd < 0)
        return;
    /* It stays open: closing it would drop the lock. */
    if (!file_write(fd, c) || !file_hold(fd) || renameat(directory, other, directory, name) != 0)
        unlinkat(directory, other, 0);
}

/* Whether that is our segment still, and a smaller file may be written. */
static bool may_exchange(int directory, const char *name) {
    struct rlimit limit;
    struct statx s; /* fstatat is a function of libc's own only from glibc 2.33 on */

    return statx(directory, name, AT_SYMLINK_NOFOLLOW, STATX_INO, &s) == 0 &&
           zr_descriptor_is_ours(&zr_segment.file) && s.stx_ino == zr_segment.file.inode &&
           ((uint64_t)s.stx_dev_major << 32 | s.stx_dev_minor) == zr_segment.file.device &&
           getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur >= zr_segment.header->file_size;
}

/* Each part has all the room that it can need; what is not used costs nothing. */
static bool parts_map(struct compact *c, size_t *size) {
    const struct zeroute_segment_header *h = zr_segment.header;
    struct compact_part *part[] = {&c->table, &c->globals, &c->fingerprint, &c->shard, &c->zeros};
    size_t fields = h->field_count + 1;
    size_t zeros = fields * (sizeof(((struct zeroute_segment_field *)NULL)->name) + COMPACT_WORD);
    size_t room[] = {fields * sizeof(struct zeroute_segment_field),
                     fields * COMPACT_WORD + h->globals_size + zeros, h->fingerprint_size,
                     sizeof(struct zr_shard), zeros};
    size_t at = sizeof(struct zr_shard);
    char *memory;

    *size = at;
    for (size_t i = 0; i < sizeof room / sizeof *room; i++)
        *size += room[i];
    memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    c->sum = (uint64_t *)(void *)memory;
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        *part[i] = (struct compact_part){.bytes = memory + at, .room = room[i]};
        at += room[i];
    }
    return true;
}

/* In a child of vfork that calls exit the segment is its parent's. */
void zr_stats_process_end(void) {
    struct compact c = {0};
    int saved = errno, directory;
    char path[128];
    const char *name;
    size_t size;

    if (!zr_stats_is_open() || zr_segment.header->pid != (uint32_t)getpid())
        return;
    name = strrchr(zr_segment.path, '/') + 1;
    snprintf(path, sizeof path, "%.*s", (int)(name - 1 - zr_segment.path), zr_segment.path);
    directory = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (directory >= 0 && may_exchange(directory, name) && parts_map(&c, &size)) {
        parts_make(&c);
        header_point(&c);
        file_exchange(directory, name, &c);
        munmap(c.sum, size);
    }
    if (directory >= 0)
        close(directory);
    errno = saved;
}
