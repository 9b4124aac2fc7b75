/*
 * zeroute/reader.h: what is in a segment. Which segments there are: reader_list.c; how they are opened: reader_open.c.
 *
 * Whatever a segment says, reading it takes at most about 100 ms of a processor and 16 MiB: every count and size is
 * bounded here, and what takes longer is given up. The folder builds alone, for anybody.
 */
#include "reader/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RETRY_NS 50000000u /* for all that must agree, together */
/* Then with 100 us between: a writer that lost its processor needs some time. */
#define RETRIES_AT_ONCE 64
/* Several times the needs of a segment of today. */
#define MOST_NS 90000000u /* of the processor */
#define MOST_FIELDS 2048
#define MOST_HISTOGRAMS 512
#define MOST_FACTS 4096
#define MOST_RESERVED 256              /* fields that are raised to what is allocated */
#define MOST_WORDS 1024                /* of one field in one shard */
#define MOST_SHARD ((uint64_t)1 << 20) /* bytes of one shard, and of the globals */
#define MOST_SHARDS 1024
#define MOST_BYTES ((uint64_t)64 << 20) /* of all shards */
#define MOST_TABLE ((uint64_t)2 << 20)  /* bytes of the table of fields */
#define MOST_TEXT ((uint64_t)1 << 20)   /* room of all texts */

static bool read_at(int fd, void *out, size_t size, uint64_t offset) {
    char *to = out;
    while (size) {
        ssize_t n = pread(fd, to, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return true;
}

static void *load(int fd, uint64_t offset, uint64_t size, uint64_t most) {
    char *m = size && size <= most ? malloc(size) : NULL;
    if (m && !read_at(fd, m, size, offset)) {
        free(m);
        return NULL;
    }
    return m;
}

static uint64_t word(const char *base, uint64_t size, uint64_t offset) {
    uint64_t n = 0;
    if (offset + sizeof n <= size)
        memcpy(&n, base + offset, sizeof n);
    return n;
}

static bool shards_fit(const struct zeroute_segment_header *h, uint32_t count) {
    return count <= MOST_SHARDS && count <= MOST_BYTES / h->shard_size &&
           count <= (h->file_size - h->shards_offset) / h->shard_size;
}

/* An older one ends earlier: what it lacks is 0. */
static bool read_header(int fd, struct zeroute_segment_header *h) {
    uint32_t size = h->header_size;
    if (size < offsetof(struct zeroute_segment_header, control_size) ||
        !read_at(fd, h, size < sizeof *h ? size : sizeof *h, 0))
        return false;
    if (size < sizeof *h)
        h->control_size = 0;
    return true;
}

static bool header_of(int fd, struct zeroute_segment_header *h, char *why, size_t why_size) {
    struct stat st;
    memset(h, 0, sizeof *h);
    if (fstat(fd, &st)) {
        snprintf(why, why_size, "cannot be examined: %s", strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        snprintf(why, why_size, "not a regular file");
    } else if ((uint64_t)st.st_size < sizeof h->magic + 8 || !read_at(fd, h, 16, 0)) {
        snprintf(why, why_size, "truncated: %lld bytes", (long long)st.st_size);
    } else if (h->magic == 0) {
        snprintf(why, why_size, "not ready yet, or abandoned while being made");
    } else if (h->magic != ZEROUTE_SEGMENT_MAGIC) {
        snprintf(why, why_size, "not a segment of zeroute");
    } else if (h->layout != ZEROUTE_SEGMENT_LAYOUT) {
        snprintf(why, why_size, "layout %u, written by %s zeroute; this one reads layout %u", h->layout,
                 h->layout > ZEROUTE_SEGMENT_LAYOUT ? "a newer" : "an older", ZEROUTE_SEGMENT_LAYOUT);
    } else if (!read_header(fd, h)) {
        snprintf(why, why_size, "truncated: %lld bytes, and its header says %u", (long long)st.st_size, h->header_size);
    } else if ((uint64_t)st.st_size < h->file_size || h->file_size < h->shards_offset || h->shard_size == 0 ||
               h->shard_size > MOST_SHARD || h->shard_size % sizeof(uint64_t) || !shards_fit(h, h->shard_count) ||
               h->shard_generation > h->shard_size - 8 || h->shard_folds > h->shard_size - 8 ||
               h->field_size < sizeof(struct zeroute_segment_field) || h->field_count > MOST_FIELDS ||
               h->buckets != ZEROUTE_BUCKETS) {
        snprintf(why, why_size, "damaged: sizes in the header do not fit the file");
    } else {
        h->boot_id[sizeof h->boot_id - 1] = h->version[sizeof h->version - 1] = '\0';
        h->run_id[sizeof h->run_id - 1] = h->job_id[sizeof h->job_id - 1] = '\0';
        h->rank[sizeof h->rank - 1] = h->command[sizeof h->command - 1] = '\0';
        return true;
    }
    return false;
}

/* --- what all shards together say -------------------------------------------------------------- */

struct longest {
    uint64_t offset; /* in a shard, of max_ns */
    uint64_t ns;     /* of all shards */
};

struct image {
    int fd;
    const struct zeroute_segment_header *h;
    unsigned shards;   /* seen so far: the first call of a thread may add one at any time */
    uint64_t deadline; /* CLOCK_MONOTONIC: no retry after it */
    uint64_t group;    /* the first bytes of a shard, which its generation guards */
    char *table, *globals;
    uint64_t *shard, *sum;   /* one shard, and the sum of all, word by word */
    struct longest *longest; /* of each field that is a histogram, in their order */
    size_t histograms;
    uint64_t activity; /* the latest */
    uint64_t texts;    /* room of those so far */
    bool torn;         /* shards and totals do not agree */
    uint64_t given_up; /* CLOCK_THREAD_CPUTIME_ID: nothing is read after it */
};

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

/* With the reason in errno: a segment that takes longer than any process needs. */
static bool takes_too_long(const struct image *m) {
    if (clock_ns(CLOCK_THREAD_CPUTIME_ID) < m->given_up)
        return false;
    errno = ETIME;
    return true;
}

static struct zeroute_segment_field field_at(const struct image *m, unsigned i) {
    struct zeroute_segment_field f;
    memcpy(&f, m->table + (size_t)i * m->h->field_size, sizeof f);
    return f;
}

/*
 * The seqlock's side of a reader, for what a shard's generation guards. Not for ever: the writer may be dead, or busy.
 */
static bool read_group(struct image *m, uint64_t at) {
    uint64_t before = 0, after = 0;
    for (unsigned i = 0; i == 0 || before != after || before & 1; i++) {
        if (i && now_ns() > m->deadline) {
            m->torn = true;
            break;
        }
        if (i >= RETRIES_AT_ONCE)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        if (!read_at(m->fd, &before, sizeof before, at + m->h->shard_generation) ||
            !read_at(m->fd, m->shard, m->group, at) ||
            !read_at(m->fd, &after, sizeof after, at + m->h->shard_generation))
            return false;
    }
    return true;
}

static uint64_t shard_at(const struct image *m, unsigned n) {
    return m->h->shards_offset + n * m->h->shard_size;
}

static bool find_histograms(struct image *m) {
    for (unsigned i = 0; i < m->h->field_count; i++) {
        struct zeroute_segment_field f = field_at(m, i);
        if (f.type == ZEROUTE_HISTOGRAM)
            m->longest[m->histograms++].offset =
                (uint64_t)f.offset + offsetof(struct zeroute_segment_histogram, max_ns);
    }
    return m->histograms <= MOST_HISTOGRAMS;
}

/* The counters that no generation guards: each is right by itself. */
static bool sum_counters(struct image *m) {
    const struct zeroute_segment_header *h = m->h;
    for (unsigned n = 0; n < m->shards; n++) {
        const char *shard = (const char *)m->shard;
        if (takes_too_long(m) || !read_at(m->fd, m->shard, h->shard_size, shard_at(m, n)))
            return false;
        for (uint64_t i = m->group / 8; i < h->shard_size / 8; i++)
            m->sum[i] += m->shard[i];
        for (size_t i = 0; i < m->histograms; i++) {
            uint64_t ns = word(shard, h->shard_size, m->longest[i].offset);
            m->longest[i].ns = ns > m->longest[i].ns ? ns : m->longest[i].ns;
        }
        uint64_t activity = word(shard, h->shard_size, h->shard_activity);
        m->activity = activity > m->activity ? activity : m->activity;
    }
    return true;
}

/* Whether a shard has folded since its number of folds was added to this sum. */
static bool folded_since(const struct image *m, uint64_t folds, bool *good) {
    for (unsigned n = 0; *good && n < m->shards; n++) {
        uint64_t now = 0;
        *good = read_at(m->fd, &now, sizeof now, shard_at(m, n) + m->h->shard_folds);
        folds -= now;
    }
    return folds != 0;
}

/* Whether there are shards now that were not read, and may have folded. */
static bool more_shards(struct image *m, bool *good) {
    uint32_t now = 0;
    *good = read_at(m->fd, &now, sizeof now, offsetof(struct zeroute_segment_header, shard_count));
    if (!*good || now <= m->shards || !shards_fit(m->h, now))
        return false;
    m->shards = now;
    return true;
}

/*
 * What shards have booked, and the totals that they fold into, which agree if no shard folds in between. A process too
 * busy for that is off by no more than what its threads have not folded.
 */
static bool sum_bookings(struct image *m) {
    const struct zeroute_segment_header *h = m->h;
    bool good = true, agree = false;
    for (unsigned attempt = 0; good && !agree && (attempt == 0 || now_ns() < m->deadline); attempt++) {
        uint64_t folds = 0;
        m->torn = false;
        if (attempt >= RETRIES_AT_ONCE)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        memset(m->sum, 0, m->group);
        for (unsigned n = 0; good && n < m->shards; n++) {
            good = !takes_too_long(m) && read_group(m, shard_at(m, n));
            for (uint64_t i = 0; i < m->group / 8; i++)
                m->sum[i] += m->shard[i];
            folds += word((const char *)m->shard, m->group, h->shard_folds);
        }
        /* Last, so that what is reserved is read after what is allocated. */
        good = good && read_at(m->fd, m->globals, h->globals_size, h->globals_offset);
        agree = good && !folded_since(m, folds, &good) && !more_shards(m, &good);
    }
    m->torn |= !agree;
    return good;
}

static const char *read_text(struct image *m, struct zeroute_snapshot *s, uint64_t offset, uint64_t room) {
    struct zeroute_segment_text head, again;
    if (room <= sizeof head || room > MOST_TEXT - m->texts)
        return "";
    if (!read_at(m->fd, &head, sizeof head, offset) || (!head.length && !(head.generation & 1)))
        return ""; /* most of them are empty */
    uint64_t most = room - sizeof head - 1;
    char *text = zeroute_keep(s, room);
    m->texts += room;
    for (int i = 0; text && i < RETRIES_AT_ONCE; i++) {
        if (!read_at(m->fd, &head, sizeof head, offset))
            return "";
        uint64_t length = head.length < most ? head.length : most;
        if (!read_at(m->fd, text, length, offset + sizeof head) || !read_at(m->fd, &again, sizeof again, offset))
            return "";
        text[length] = '\0';
        if (head.generation == again.generation && !(head.generation & 1))
            break;
    }
    return text ? text : "";
}

/* Sum of one series over all shards, or in the globals. */
static uint64_t series(const struct image *m, const struct zeroute_segment_field *f, uint16_t place, uint32_t offset) {
    const char *base = place == ZEROUTE_GLOBAL ? m->globals : (const char *)m->sum;
    uint64_t sum = 0, size = place == ZEROUTE_GLOBAL ? m->h->globals_size : m->h->shard_size;
    for (uint32_t i = 0; i < f->count && i < MOST_WORDS; i++)
        sum += word(base, size, offset + (uint64_t)i * f->stride);
    return sum;
}

/* The folded part and the rest; signed. */
static int64_t folded(const struct image *m, const struct zeroute_segment_field *f, uint32_t unfolded) {
    return (int64_t)(word(m->globals, m->h->globals_size, f->total) + series(m, f, ZEROUTE_SHARDS, unfolded));
}

/* More freed than allocated is nothing, not 18 EB. */
static uint64_t never_below_zero(int64_t n) {
    return n > 0 ? (uint64_t)n : 0;
}

/* False: it is absent. */
static bool gauge(const struct image *m, const struct zeroute_segment_field *f, uint64_t *value) {
    *value = series(m, f, f->place, f->offset);
    if (f->total)
        *value = never_below_zero(folded(m, f, f->offset));
    else if (f->minus)
        *value = never_below_zero((int64_t)(*value - series(m, f, f->place, f->minus)));
    else if (*value == ZEROUTE_ABSENT)
        return false;
    return true;
}

static uint64_t peak(const struct image *m, const struct zeroute_segment_field *f) {
    int64_t value = (int64_t)word(m->globals, m->h->globals_size, f->offset);
    if (f->total) {
        int64_t since = folded(m, f, f->high);
        value = since > value ? since : value;
    }
    return never_below_zero(value);
}

static bool histogram(const struct image *m, struct zeroute_snapshot *s, const struct zeroute_segment_field *f,
                      uint64_t max, struct zeroute_field *out) {
    uint64_t *buckets = zeroute_keep(s, ZEROUTE_BUCKETS * sizeof *buckets);
    if (!buckets)
        return false;
    out->value = word((const char *)m->sum, m->h->shard_size, f->offset);
    for (unsigned b = 0; b < ZEROUTE_BUCKETS; b++)
        buckets[b] = word((const char *)m->sum, m->h->shard_size, (uint64_t)f->offset + 16 + b * 8);
    out->buckets = buckets;
    if (!zeroute_name_derived(s, out))
        return false;
    zeroute_derive(out, max);
    return true;
}

/* The names of the fields that are zero, where the segment has no more of them; NULL if it has them all. */
static char *zeros_of(struct image *m, struct zeroute_snapshot *s, size_t *count) {
    *count = 0;
    if (!m->h->field_count)
        return NULL;
    struct zeroute_segment_field f = field_at(m, m->h->field_count - 1); /* it is the last one */
    if (f.type != ZEROUTE_ZEROS)
        return NULL;
    char *text = (char *)(uintptr_t)read_text(m, s, m->h->globals_offset + f.offset, f.stride);
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        ++*count;
    return *count && *count + m->h->field_count <= MOST_FIELDS ? text : NULL;
}

/* The names stay where they are. */
static bool add_zeros(struct zeroute_snapshot *s, char *text) {
    static const uint64_t none[ZEROUTE_BUCKETS];
    for (char *end; text && (end = strchr(text, '\n')); text = end + 1) {
        unsigned type = (unsigned)(*text - '0');
        *end = '\0';
        if (type < ZEROUTE_COUNTER || type > ZEROUTE_TEXT)
            continue;
        struct zeroute_field *out = &s->field[s->field_count++];
        *out = (struct zeroute_field){.name = text + 1,
                                      .unit = "",
                                      .help = "",
                                      .type = (enum zeroute_type)type,
                                      .text = type == ZEROUTE_TEXT ? "" : NULL};
        if (type != ZEROUTE_HISTOGRAM)
            continue;
        out->buckets = none;
        if (!zeroute_name_derived(s, out))
            return false;
        zeroute_derive(out, 0);
        s->field_count += ZEROUTE_DERIVED;
    }
    return true;
}

static bool add_fields(struct image *m, struct zeroute_snapshot *s) {
    const struct zeroute_segment_header *h = m->h;
    size_t seen = 0, zeros; /* histograms, and fields without a value */
    char *zero_names = zeros_of(m, s, &zeros);
    s->field = calloc(h->field_count + (m->histograms + zeros) * (1 + ZEROUTE_DERIVED) + 1, sizeof *s->field);
    if (!s->field)
        return false;
    for (unsigned i = 0; i < h->field_count; i++) {
        struct zeroute_segment_field f = field_at(m, i);
        struct zeroute_field *out = &s->field[s->field_count];
        if (i % 128 == 0 && takes_too_long(m))
            return false;
        *out = (struct zeroute_field){
            .name = zeroute_keep_text(s, f.name, strnlen(f.name, sizeof f.name)),
            .unit = zeroute_keep_text(s, f.unit, strnlen(f.unit, sizeof f.unit)),
            .help = zeroute_keep_text(s, f.help, strnlen(f.help, sizeof f.help)),
            .type = (enum zeroute_type)f.type,
        };
        switch (f.type) {
        case ZEROUTE_COUNTER:
            out->value = series(m, &f, f.place, f.offset);
            break;
        case ZEROUTE_GAUGE:
            if (!gauge(m, &f, &out->value))
                continue;
            break;
        case ZEROUTE_PEAK:
            out->value = peak(m, &f);
            break;
        case ZEROUTE_HISTOGRAM:
            if (!histogram(m, s, &f, m->longest[seen++].ns, out))
                return false;
            s->field_count += ZEROUTE_DERIVED;
            break;
        case ZEROUTE_TEXT:
            out->text = read_text(m, s, h->globals_offset + f.offset, f.stride);
            break;
        default:
            continue;
        }
        s->field_count++;
    }
    return add_zeros(s, zero_names);
}

/*
 * What the process holds is reserved from the driver. The two are read one after the other, and a process that frees
 * in between would seem to hold more than there is.
 */
static void raise_reserved(struct zeroute_snapshot *s) {
    static const char reserved[] = "reserved_bytes.all.", allocated[] = "allocated_bytes.all.";
    unsigned found = 0;
    for (size_t i = 0; i < s->field_count && found < MOST_RESERVED; i++) {
        struct zeroute_field *f = &s->field[i];
        const char *at = strstr(f->name, reserved);
        if (!at || (f->type != ZEROUTE_GAUGE && f->type != ZEROUTE_PEAK))
            continue;
        char name[128];
        found++;
        snprintf(name, sizeof name, "%.*s%s%s", (int)(at - f->name), f->name, allocated, at + strlen(reserved));
        uint64_t held = zeroute_value(s, name, 0);
        f->value = held > f->value ? held : f->value;
    }
}

static bool add_facts(struct zeroute_snapshot *s, const char *text) {
    size_t lines = 1;
    for (const char *p = text; *p && lines < MOST_FACTS; p++)
        lines += *p == '\n';
    s->fact = calloc(lines, sizeof *s->fact);
    if (!s->fact)
        return false;
    while (*text && s->fact_count < lines) {
        size_t length = strcspn(text, "\n");
        const char *tab = memchr(text, '\t', length);
        if (tab) {
            struct zeroute_fact *f = &s->fact[s->fact_count++];
            f->key = zeroute_keep_text(s, text, (size_t)(tab - text));
            f->value = zeroute_keep_text(s, tab + 1, length - (size_t)(tab - text) - 1);
        }
        text += length + (text[length] == '\n');
    }
    return true;
}

static void identity(struct zeroute_process *p, const struct zeroute_segment_header *h) {
    p->pid_inside = (int)h->pid;
    p->uid = h->uid;
    p->pid_namespace = h->pid_namespace;
    p->start_time = h->start_time;
    p->nonce = h->nonce;
    p->created_ns = h->created_ns;
    memcpy(p->command, h->command, sizeof p->command);
    memcpy(p->version, h->version, sizeof p->version);
    memcpy(p->run_id, h->run_id, sizeof p->run_id);
    memcpy(p->job_id, h->job_id, sizeof p->job_id);
    memcpy(p->rank, h->rank, sizeof p->rank);
}

static void activity(struct zeroute_snapshot *s, const struct image *m) {
    if (m->activity <= m->h->clock_ticks || !m->h->clock_hz)
        return;
    double ns = (double)(m->activity - m->h->clock_ticks) * 1e9 / (double)m->h->clock_hz;
    if (ns < 1e18) /* 30 years: no clock of this world */
        s->last_activity_ns = m->h->created_ns + (uint64_t)ns;
}

static bool read_image(struct image *m, struct zeroute_snapshot *s, uint64_t retry_ns) {
    const struct zeroute_segment_header *h = m->h;
    m->group = (h->shard_group < h->shard_size ? h->shard_group : h->shard_size) / 8 * 8;
    m->deadline = now_ns() + retry_ns;
    m->given_up = clock_ns(CLOCK_THREAD_CPUTIME_ID) + MOST_NS;
    m->shards = h->shard_count;
    m->table = load(m->fd, h->fields_offset, (uint64_t)h->field_count * h->field_size, MOST_TABLE);
    m->globals = load(m->fd, h->globals_offset, h->globals_size, MOST_SHARD);
    m->shard = calloc(1, h->shard_size);
    m->sum = calloc(1, h->shard_size);
    m->longest = calloc(h->field_count + 1, sizeof *m->longest);
    if (!m->table || !m->globals || !m->shard || !m->sum || !m->longest)
        return false;
    if (!find_histograms(m)) {
        errno = E2BIG;
        return false;
    }
    if (!sum_counters(m) || !sum_bookings(m) || !add_fields(m, s) ||
        !add_facts(s, read_text(m, s, h->fingerprint_offset, h->fingerprint_size)))
        return false;
    s->torn = m->torn;
    zeroute_index_names(s);
    raise_reserved(s);
    activity(s, m);
    return true;
}

static struct zeroute_snapshot *snapshot(int fd, uint64_t retry_ns, char *why, size_t why_size) {
    struct zeroute_segment_header h;
    struct image m = {.fd = fd, .h = &h};
    errno = 0;
    if (!header_of(fd, &h, why, why_size))
        return NULL;
    struct zeroute_snapshot *s = calloc(1, sizeof *s);
    bool good = false;
    if (s) {
        s->processes = 1;
        identity(&s->process, &h);
        good = read_image(&m, s, retry_ns);
    }
    if (!good)
        snprintf(why, why_size, "cannot be read: %s",
                 errno == ETIME   ? "it takes more than 100 ms"
                 : errno == E2BIG ? "it has too many histograms"
                 : errno          ? strerror(errno)
                                  : "out of memory");
    free(m.table);
    free(m.globals);
    free(m.shard);
    free(m.sum);
    free(m.longest);
    if (good)
        return s;
    zeroute_snapshot_free(s);
    return NULL;
}

struct zeroute_snapshot *zeroute_snapshot_of_fd(int fd, char *why, size_t why_size) {
    return snapshot(fd, RETRY_NS, why, why_size);
}

/* Closes it. */
static struct zeroute_snapshot *snapshot_of_opened(int fd, uint64_t retry_ns, char *why, size_t why_size) {
    if (fd < 0) {
        snprintf(why, why_size, "cannot be opened: %s", strerror(errno));
        return NULL;
    }
    struct zeroute_snapshot *s = snapshot(fd, retry_ns, why, why_size);
    close(fd);
    return s;
}

struct zeroute_snapshot *zeroute_snapshot_of_file(const char *path, char *why, size_t why_size) {
    struct zeroute_snapshot *s = snapshot_of_opened(zeroute_open(path, O_RDONLY), RETRY_NS, why, why_size);
    if (s)
        snprintf(s->process.path, sizeof s->process.path, "%s", path);
    return s;
}

struct zeroute_snapshot *zeroute_snapshot_of_listed(const struct zeroute_process *p, int fd, char *why,
                                                    size_t why_size) {
    int error = errno; /* of opening it */
    struct zeroute_budget budget;
    if (!zeroute_budget_begin(&budget, p->uid)) {
        snprintf(why, why_size, ZEROUTE_BUDGET_WHY, p->uid);
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    /* A dead writer never completes a half-written value. */
    uint64_t retry_ns = p->state == ZEROUTE_FINISHED ? 0 : RETRY_NS;
    errno = error;
    struct zeroute_snapshot *s = snapshot_of_opened(fd, retry_ns, why, why_size);
    if (!s) {
        zeroute_budget_end(&budget, 0);
        return NULL;
    }
    zeroute_snapshot_charge(s, &budget);
    s->process = *p;
    return s;
}

struct zeroute_snapshot *zeroute_snapshot_new(const struct zeroute_process *p, char *why, size_t why_size) {
    if (!p->readable) {
        snprintf(why, why_size, "%s", p->why);
        return NULL;
    }
    return zeroute_snapshot_of_listed(p, zeroute_open_listed(p, NULL), why, why_size);
}
