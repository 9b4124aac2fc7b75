/*
 * Makes the segment of a finished process small: 320 KiB hold a thousand fields of which most are zero. The compact one
 * has the same layout, and what `zeroute stat --finished` shows of it is the same.
 */
#include "stat/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, WORD = sizeof(uint64_t), SHARD_FIXED = 4 * WORD };

/* Where the parts of the compact file begin, and how large it is. */
struct plan {
    size_t fields, texts, histograms; /* how many fields, bytes of texts, how many histograms */
    size_t fields_at, globals_at, shard_at, fingerprint_at, size;
    size_t fingerprint; /* bytes */
    size_t zeros;       /* bytes of the lines of ZEROUTE_ZEROS */
};

static size_t whole_words(size_t bytes) {
    return (bytes + WORD - 1) / WORD * WORD;
}

static size_t text_room(const struct zeroute_field *f) {
    return whole_words(sizeof(struct zeroute_segment_text) + strlen(f->text) + 1);
}

/* Only the names of the other fields are kept. */
static bool is_worth_keeping(const struct zeroute_field *f) {
    return f->type == ZEROUTE_TEXT ? f->text && *f->text : f->value;
}

/* A histogram is followed by what the reader has worked out of it. */
static size_t next_field(const struct zeroute_snapshot *s, size_t i) {
    static const size_t derived = 5;

    return s->field[i].type == ZEROUTE_HISTOGRAM ? i + 1 + derived : i + 1;
}

static struct plan plan_of(const struct zeroute_snapshot *s, size_t fingerprint) {
    struct plan p = {.fingerprint = fingerprint};

    for (size_t i = 0; i < s->field_count; i = next_field(s, i)) {
        const struct zeroute_field *f = &s->field[i];

        if (!is_worth_keeping(f)) {
            p.zeros += 1 + strlen(f->name) + 1;
            continue;
        }
        p.fields++;
        if (f->type == ZEROUTE_HISTOGRAM)
            p.histograms++;
        else if (f->type == ZEROUTE_TEXT)
            p.texts += text_room(f);
    }
    p.fields++; /* of the zeros */
    p.texts += whole_words(sizeof(struct zeroute_segment_text) + p.zeros + 1);
    p.fields_at = whole_words(sizeof(struct zeroute_segment_header));
    p.globals_at = p.fields_at + p.fields * sizeof(struct zeroute_segment_field);
    p.fingerprint_at = p.globals_at + WORD + p.fields * WORD + p.texts; /* no offset is 0 */
    p.shard_at = p.fingerprint_at + fingerprint;
    p.size = p.shard_at + SHARD_FIXED + p.histograms * sizeof(struct zeroute_segment_histogram);
    return p;
}

static void lay_text(char *at, const char *text) {
    struct zeroute_segment_text head = {.length = (uint32_t)strlen(text)};

    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, text, head.length);
}

/* The longest time stands among the derived fields, as NAME.max_ns. */
static void lay_histogram(char *at, const struct zeroute_field *f) {
    struct zeroute_segment_histogram h = {.sum_ns = f->value, .max_ns = f[5].value};

    memcpy(h.buckets, f->buckets, sizeof h.buckets);
    memcpy(at, &h, sizeof h);
}

static void lay_fields(char *file, const struct plan *p, const struct zeroute_snapshot *s) {
    size_t word = WORD, text = WORD + p->fields * WORD, histogram = SHARD_FIXED;
    struct zeroute_segment_field *out = (void *)(file + p->fields_at);

    for (size_t i = 0; i < s->field_count; i = next_field(s, i)) {
        const struct zeroute_field *f = &s->field[i];

        if (!is_worth_keeping(f))
            continue;
        *out = (struct zeroute_segment_field){
            .type = (uint16_t)f->type, .place = ZEROUTE_GLOBAL, .count = 1, .offset = (uint32_t)word};
        snprintf(out->name, sizeof out->name, "%s", f->name);
        snprintf(out->unit, sizeof out->unit, "%s", f->unit);
        snprintf(out->help, sizeof out->help, "%s", f->help);
        if (f->type == ZEROUTE_HISTOGRAM) {
            out->place = ZEROUTE_SHARDS;
            out->offset = (uint32_t)histogram;
            lay_histogram(file + p->shard_at + histogram, f);
            histogram += sizeof(struct zeroute_segment_histogram);
        } else if (f->type == ZEROUTE_TEXT) {
            out->offset = (uint32_t)text;
            out->stride = (uint32_t)text_room(f);
            lay_text(file + p->globals_at + text, f->text);
            text += out->stride;
        } else {
            memcpy(file + p->globals_at + word, &f->value, WORD);
            word += WORD;
        }
        out++;
    }
}

/* The last of the fields: the names of those that are not there. */
static void lay_zeros(char *file, const struct plan *p, const struct zeroute_snapshot *s) {
    size_t room = whole_words(sizeof(struct zeroute_segment_text) + p->zeros + 1);
    size_t at = p->fingerprint_at - room; /* the last of the texts */
    struct zeroute_segment_text head = {.length = (uint32_t)p->zeros};
    struct zeroute_segment_field *field = (void *)(file + p->globals_at - sizeof *field);
    char *to = file + at + sizeof head;

    *field = (struct zeroute_segment_field){.name = "zeros",
                                            .type = ZEROUTE_ZEROS,
                                            .place = ZEROUTE_GLOBAL,
                                            .count = 1,
                                            .offset = (uint32_t)(at - p->globals_at),
                                            .stride = (uint32_t)room};
    memcpy(file + at, &head, sizeof head);
    for (size_t i = 0; i < s->field_count; i = next_field(s, i))
        if (!is_worth_keeping(&s->field[i]))
            to += sprintf(to, "%u%s\n", (unsigned)s->field[i].type, s->field[i].name);
}

static void lay_header(char *file, const struct plan *p, struct zeroute_segment_header h, uint64_t activity_ns) {
    uint64_t activity = activity_ns > h.created_ns ? activity_ns - h.created_ns + h.clock_ticks : 0;

    h.header_size = sizeof h;
    h.file_size = p->size;
    h.fields_offset = p->fields_at;
    h.field_size = sizeof(struct zeroute_segment_field);
    h.field_count = (uint32_t)p->fields;
    h.globals_offset = p->globals_at;
    h.globals_size = p->fingerprint_at - p->globals_at;
    h.fingerprint_offset = p->fingerprint_at;
    h.fingerprint_size = p->fingerprint;
    h.shards_offset = p->shard_at;
    h.shard_size = p->size - p->shard_at;
    h.shard_count = 1;
    h.shard_generation = 0;
    h.shard_folds = WORD;
    h.shard_activity = 2 * WORD;
    h.shard_group = 2 * WORD;
    h.control_size = 0;
    h.control_offset = 0;
    h.claims = 0;
    h.group = 0;
    h.clock_hz = 1000000000;
    memcpy(file, &h, sizeof h);
    memcpy(file + p->shard_at + h.shard_activity, &activity, WORD);
}

/* The text of the fingerprint with its head, as it is in the file; NULL: there is none. */
static char *load_fingerprint(int fd, const struct zeroute_segment_header *h, size_t *size) {
    struct zeroute_segment_text head;
    char *text;

    *size = 0;
    if (pread(fd, &head, sizeof head, (off_t)h->fingerprint_offset) != sizeof head || !head.length ||
        head.length >= h->fingerprint_size)
        return NULL;
    *size = whole_words(sizeof head + head.length + 1);
    text = calloc(1, *size);
    if (text && pread(fd, text, sizeof head + head.length, (off_t)h->fingerprint_offset) !=
                    (ssize_t)(sizeof head + head.length)) {
        free(text);
        text = NULL;
    }
    if (!text)
        *size = 0;
    return text;
}

/* The whole compact file, or NULL. */
static char *make_compact(int fd, size_t *size) {
    struct zeroute_segment_header h;
    struct zeroute_snapshot *s;
    size_t fingerprint = 0;
    char why[128], *text, *file = NULL;

    if (pread(fd, &h, sizeof h, 0) != sizeof h || h.header_size < sizeof h)
        return NULL;
    s = zeroute_snapshot_of_fd(fd, why, sizeof why);
    if (!s)
        return NULL;
    text = load_fingerprint(fd, &h, &fingerprint);
    struct plan p = plan_of(s, fingerprint);
    file = calloc(1, p.size);
    if (file) {
        lay_header(file, &p, h, s->last_activity_ns);
        lay_fields(file, &p, s);
        lay_zeros(file, &p, s);
        if (text)
            memcpy(file + p.fingerprint_at, text, fingerprint);
        *size = p.size;
    }
    free(text);
    zeroute_snapshot_free(s);
    return file;
}

/* Under a name that nobody lists, then over the segment's own: a reader has one file or the other. */
static bool exchange(int directory, const char *name, const char *file, size_t size, const struct stat *st) {
    const struct timespec times[] = {st->st_atim, st->st_mtim};
    char other[NAME_MAX];
    bool good;
    int fd;

    snprintf(other, sizeof other, ".%s", name);
    fd = openat(directory, other, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    good = write(fd, file, size) == (ssize_t)size && futimens(fd, times) == 0 &&
           renameat(directory, other, directory, name) == 0;
    if (!good)
        unlinkat(directory, other, 0);
    close(fd);
    return good;
}

bool zr_segment_compact(int directory, const char *name, int fd, const struct stat *st) {
    size_t size = 0;
    char *file = st->st_uid == geteuid() ? make_compact(fd, &size) : NULL;
    bool good = file && (off_t)size < st->st_blocks * 512 && exchange(directory, name, file, size, st);

    free(file);
    return good;
}
