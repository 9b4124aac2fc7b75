/*
 * zeroute/reader.h: what is in a segment. Which segments there are: reader_list.c. Builds alone,
 * for anybody.
 */
#include "zeroute/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RETRIES 1000
/* Then with 100 us between: a writer that lost its processor needs some time. */
#define RETRIES_AT_ONCE 64
#define MOST_TALLIES 256
#define DERIVED 5 /* fields that follow a histogram */
#define SIZE_MAX_SANE ((uint64_t)1 << 30)

struct memory {
    struct memory *next;
    _Alignas(16) char bytes[];
};

static void *keep(struct zeroute_snapshot *s, size_t size)
{
    struct memory *m = calloc(1, sizeof *m + size);
    if (!m)
        return NULL;
    m->next = s->memory;
    s->memory = m;
    return m->bytes;
}

static const char *keep_text(struct zeroute_snapshot *s, const char *text, size_t length)
{
    char *copy = keep(s, length + 1);
    if (!copy)
        return "";
    memcpy(copy, text, length);
    return copy;
}

void zeroute_snapshot_free(struct zeroute_snapshot *s)
{
    if (!s)
        return;
    struct memory *m = s->memory;
    while (m) {
        struct memory *next = m->next;
        free(m);
        m = next;
    }
    free(s->field);
    free(s->fact);
    free(s);
}

/* --- histograms ------------------------------------------------------------------------------- */

uint64_t zeroute_bucket_floor(unsigned bucket)
{
    if (bucket == 0)
        return 0;
    unsigned octave = (bucket - 1) / 4 + 4;
    return (uint64_t)(4 + (bucket - 1) % 4) << (octave - 2);
}

static uint64_t percentile(const uint64_t *buckets, uint64_t total, uint64_t max, unsigned percent)
{
    if (!total)
        return 0;
    if (total == 1)
        return max;
    uint64_t rank = (total * percent + 99) / 100, below = 0;
    unsigned b = 0;
    while (b + 1 < ZEROUTE_BUCKETS && below + buckets[b] < rank)
        below += buckets[b++];
    double low = (double)zeroute_bucket_floor(b);
    double high = b + 1 < ZEROUTE_BUCKETS ? (double)zeroute_bucket_floor(b + 1) : (double)max;
    double part = buckets[b] ? ((double)(rank - below) - 0.5) / (double)buckets[b] : 0;
    uint64_t value = (uint64_t)(low + (high - low) * part);
    return value > max ? max : value;
}

/* at[0] is the histogram, with its sum in `value`; the derived fields follow it. */
static void derive(struct zeroute_field *at, uint64_t max)
{
    uint64_t total = 0;
    for (unsigned b = 0; b < ZEROUTE_BUCKETS; b++)
        total += at->buckets[b];
    at[1].value = total;
    at[2].value = at->value;
    at[3].value = percentile(at->buckets, total, max, 50);
    at[4].value = percentile(at->buckets, total, max, 99);
    at[5].value = max;
}

static bool name_derived(struct zeroute_snapshot *s, struct zeroute_field *at)
{
    static const struct {
        const char *name, *unit, *help;
        enum zeroute_type type;
    } part[DERIVED] = {
        {"calls", "", "calls that were timed, or that a timed one stands for", ZEROUTE_COUNTER},
        {"sum_ns", "ns", "time of these calls together", ZEROUTE_COUNTER},
        {"p50_ns", "ns", "half of the calls took no longer", ZEROUTE_GAUGE},
        {"p99_ns", "ns", "99 of 100 calls took no longer", ZEROUTE_GAUGE},
        {"max_ns", "ns", "the longest call", ZEROUTE_PEAK},
    };
    for (size_t i = 0; i < DERIVED; i++) {
        size_t size = strlen(at->name) + 16;
        char *name = keep(s, size);
        if (!name)
            return false;
        snprintf(name, size, "%s.%s", at->name, part[i].name);
        at[1 + i] =
            (struct zeroute_field){.name = name, .unit = part[i].unit, .help = part[i].help, .type = part[i].type};
    }
    return true;
}

/* --- the file --------------------------------------------------------------------------------- */

static bool read_at(int fd, void *out, size_t size, uint64_t offset)
{
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

static void *load(int fd, uint64_t offset, uint64_t size)
{
    char *m = size && size < SIZE_MAX_SANE ? malloc(size + 1) : NULL;
    if (m && !read_at(fd, m, size, offset)) {
        free(m);
        return NULL;
    }
    if (m)
        m[size] = '\0';
    return m;
}

static uint64_t word(const char *base, uint64_t size, uint64_t offset)
{
    uint64_t n = 0;
    if (offset + sizeof n <= size)
        memcpy(&n, base + offset, sizeof n);
    return n;
}

static void add_word(char *base, uint64_t size, uint64_t offset, uint64_t n)
{
    if (!offset || offset + sizeof n > size)
        return;
    n += word(base, size, offset);
    memcpy(base + offset, &n, sizeof n);
}

static bool header_of(int fd, struct zeroute_segment_header *h, char *why, size_t why_size)
{
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
        snprintf(why, why_size, "layout %u of another version, this one reads layout %u", h->layout,
                 ZEROUTE_SEGMENT_LAYOUT);
    } else if (h->header_size < sizeof *h || !read_at(fd, h, sizeof *h, 0)) {
        snprintf(why, why_size, "truncated: %lld bytes", (long long)st.st_size);
    } else if ((uint64_t)st.st_size < h->file_size || h->file_size < h->shards_offset || h->shard_size == 0 ||
               h->shard_size > SIZE_MAX_SANE || h->shard_count > (h->file_size - h->shards_offset) / h->shard_size ||
               h->field_size < sizeof(struct zeroute_segment_field) || h->field_count > 65536 ||
               h->shard_count > 65536 || h->buckets != ZEROUTE_BUCKETS) {
        snprintf(why, why_size, "damaged: sizes in the header do not fit the file");
    } else {
        h->boot_id[sizeof h->boot_id - 1] = h->version[sizeof h->version - 1] = '\0';
        h->run_id[sizeof h->run_id - 1] = h->job_id[sizeof h->job_id - 1] = '\0';
        h->rank[sizeof h->rank - 1] = h->command[sizeof h->command - 1] = '\0';
        return true;
    }
    return false;
}

/* What the tallies of a shard count into. */
static void add_tallies(const struct zeroute_segment_header *h, char *shard)
{
    uint64_t group = h->shard_group < h->shard_size ? h->shard_group : h->shard_size;
    for (uint64_t i = 0; i < h->into_count && i < 65536; i++) {
        struct zeroute_segment_tally tally;
        struct zeroute_segment_into into;
        uint64_t at = h->shard_into + i * sizeof into;
        if (at + sizeof into > group)
            return;
        memcpy(&into, shard + at, sizeof into);
        if (!into.tally || into.tally + sizeof tally > group)
            continue;
        memcpy(&tally, shard + into.tally, sizeof tally);
        for (size_t k = 0; k < sizeof into.bytes / sizeof *into.bytes; k++)
            add_word(shard, h->shard_size, into.bytes[k], tally.bytes);
        for (size_t k = 0; k < sizeof into.calls / sizeof *into.calls; k++)
            add_word(shard, h->shard_size, into.calls[k], tally.calls);
    }
}

/*
 * One shard. The part that is to agree is read again while it is being written, but not for ever: the writer may be
 * dead, or busy.
 */
static bool read_shard(int fd, const struct zeroute_segment_header *h, unsigned n, char *out)
{
    uint64_t at = h->shards_offset + n * h->shard_size, generation = 0;
    uint64_t group = h->shard_group < h->shard_size ? h->shard_group : h->shard_size;
    char again[MOST_TALLIES * sizeof(struct zeroute_segment_tally)];
    uint64_t tallies = h->tallies_size;
    if (tallies > sizeof again || h->shard_tallies > group || tallies > group - h->shard_tallies)
        tallies = 0;
    if (!read_at(fd, out + group, h->shard_size - group, at + group))
        return false;
    for (int i = 0; i < RETRIES && group; i++) {
        if (i >= RETRIES_AT_ONCE)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        if (!read_at(fd, out, group, at) || !read_at(fd, again, tallies, at + h->shard_tallies) ||
            !read_at(fd, &generation, sizeof generation, at + h->shard_generation))
            return false;
        uint64_t before = word(out, group, h->shard_generation);
        if (before == generation && !(before & 1) && memcmp(again, out + h->shard_tallies, tallies) == 0)
            break;
    }
    add_tallies(h, out);
    return true;
}

static const char *read_text(int fd, struct zeroute_snapshot *s, uint64_t offset, uint64_t room)
{
    struct zeroute_segment_text head;
    const char *text = "";
    if (room <= sizeof head || room > SIZE_MAX_SANE)
        return text;
    for (int i = 0; i < RETRIES_AT_ONCE; i++) {
        uint64_t generation;
        if (!read_at(fd, &head, sizeof head, offset))
            return "";
        generation = head.generation;
        uint64_t length = head.length < room - sizeof head ? head.length : room - sizeof head - 1;
        char *copy = keep(s, length + 1);
        if (!copy || (length && !read_at(fd, copy, length, offset + sizeof head)))
            return "";
        text = copy;
        if (read_at(fd, &head, sizeof head, offset) && head.generation == generation && !(generation & 1))
            break;
    }
    return text;
}

struct image {
    const struct zeroute_segment_header *h;
    char *globals, *shards;
};

/* Sum of one series over all shards, or in the globals. */
static uint64_t series(const struct image *m, const struct zeroute_segment_field *f, uint16_t place, uint32_t offset)
{
    uint64_t sum = 0;
    unsigned shards = place == ZEROUTE_GLOBAL ? 1 : m->h->shard_count;
    for (unsigned n = 0; n < shards; n++) {
        const char *base = place == ZEROUTE_GLOBAL ? m->globals : m->shards + n * m->h->shard_size;
        uint64_t size = place == ZEROUTE_GLOBAL ? m->h->globals_size : m->h->shard_size;
        for (uint32_t i = 0; i < f->count && i < 65536; i++)
            sum += word(base, size, offset + (uint64_t)i * f->stride);
    }
    return sum;
}

static uint64_t never_below_zero(uint64_t plus, uint64_t minus)
{
    return plus > minus ? plus - minus : 0;
}

static bool add_histogram(struct zeroute_snapshot *s, const struct image *m, const struct zeroute_segment_field *f,
                          struct zeroute_field *out)
{
    uint64_t *buckets = keep(s, ZEROUTE_BUCKETS * sizeof *buckets), max = 0;
    if (!buckets)
        return false;
    for (unsigned n = 0; n < m->h->shard_count; n++) {
        const char *base = m->shards + n * m->h->shard_size;
        out->value += word(base, m->h->shard_size, f->offset);
        uint64_t longest = word(base, m->h->shard_size, f->offset + 8);
        max = longest > max ? longest : max;
        for (unsigned b = 0; b < ZEROUTE_BUCKETS; b++)
            buckets[b] += word(base, m->h->shard_size, f->offset + 16 + b * 8);
    }
    out->buckets = buckets;
    if (!name_derived(s, out))
        return false;
    derive(out, max);
    return true;
}

static bool add_fields(int fd, struct zeroute_snapshot *s, const struct image *m, const char *table)
{
    const struct zeroute_segment_header *h = m->h;
    s->field = calloc((size_t)h->field_count * (1 + DERIVED) + 1, sizeof *s->field);
    if (!s->field)
        return false;
    for (unsigned i = 0; i < h->field_count; i++) {
        struct zeroute_segment_field f;
        memcpy(&f, table + (size_t)i * h->field_size, sizeof f);
        struct zeroute_field *out = &s->field[s->field_count];
        *out = (struct zeroute_field){
            .name = keep_text(s, f.name, strnlen(f.name, sizeof f.name)),
            .unit = keep_text(s, f.unit, strnlen(f.unit, sizeof f.unit)),
            .help = keep_text(s, f.help, strnlen(f.help, sizeof f.help)),
            .type = (enum zeroute_type)f.type,
        };
        switch (f.type) {
        case ZEROUTE_COUNTER:
            out->value = series(m, &f, f.place, f.offset);
            break;
        case ZEROUTE_GAUGE:
            out->value = series(m, &f, f.place, f.offset);
            if (f.minus)
                out->value = never_below_zero(out->value, series(m, &f, f.place, f.minus));
            else if (out->value == ZEROUTE_ABSENT)
                continue;
            break;
        case ZEROUTE_PEAK:
            out->value = word(m->globals, h->globals_size, f.offset);
            if (f.present) {
                uint64_t now =
                    never_below_zero(series(m, &f, ZEROUTE_SHARDS, f.present), series(m, &f, ZEROUTE_SHARDS, f.minus));
                out->value = now > out->value ? now : out->value;
            }
            break;
        case ZEROUTE_HISTOGRAM:
            if (!add_histogram(s, m, &f, out))
                return false;
            s->field_count += DERIVED;
            break;
        case ZEROUTE_TEXT:
            out->text = read_text(fd, s, h->globals_offset + f.offset, f.stride);
            break;
        default:
            continue;
        }
        s->field_count++;
    }
    return true;
}

static bool add_facts(struct zeroute_snapshot *s, const char *text)
{
    size_t lines = 1;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    s->fact = calloc(lines, sizeof *s->fact);
    if (!s->fact)
        return false;
    while (*text) {
        size_t length = strcspn(text, "\n");
        const char *tab = memchr(text, '\t', length);
        if (tab) {
            struct zeroute_fact *f = &s->fact[s->fact_count++];
            f->key = keep_text(s, text, (size_t)(tab - text));
            f->value = keep_text(s, tab + 1, length - (size_t)(tab - text) - 1);
        }
        text += length + (text[length] == '\n');
    }
    return true;
}

static void identity(struct zeroute_process *p, const struct zeroute_segment_header *h)
{
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

static void activity(struct zeroute_snapshot *s, const struct image *m)
{
    uint64_t last = 0;
    for (unsigned n = 0; n < m->h->shard_count; n++) {
        uint64_t t = word(m->shards + n * m->h->shard_size, m->h->shard_size, m->h->shard_activity);
        last = t > last ? t : last;
    }
    if (last > m->h->clock_ticks && m->h->clock_hz)
        s->last_activity_ns =
            m->h->created_ns + (uint64_t)((double)(last - m->h->clock_ticks) * 1e9 / (double)m->h->clock_hz);
}

static struct zeroute_snapshot *snapshot(int fd, char *why, size_t why_size)
{
    struct zeroute_segment_header h;
    if (!header_of(fd, &h, why, why_size))
        return NULL;
    struct zeroute_snapshot *s = calloc(1, sizeof *s);
    struct image m = {.h = &h};
    char *table = NULL;
    bool good = false;
    if (s) {
        s->processes = 1;
        identity(&s->process, &h);
        table = load(fd, h.fields_offset, (uint64_t)h.field_count * h.field_size);
        m.globals = load(fd, h.globals_offset, h.globals_size);
        m.shards = h.shard_size * h.shard_count < SIZE_MAX_SANE ? malloc(h.shard_size * h.shard_count + 1) : NULL;
        good = table && m.globals && m.shards;
        for (unsigned n = 0; good && n < h.shard_count; n++)
            good = read_shard(fd, &h, n, m.shards + n * h.shard_size);
        good = good && add_fields(fd, s, &m, table) &&
               add_facts(s, read_text(fd, s, h.fingerprint_offset, h.fingerprint_size));
        if (good)
            activity(s, &m);
    }
    free(table);
    free(m.globals);
    free(m.shards);
    if (!good) {
        snprintf(why, why_size, "cannot be read: %s", errno ? strerror(errno) : "out of memory");
        zeroute_snapshot_free(s);
        return NULL;
    }
    return s;
}

struct zeroute_snapshot *zeroute_snapshot_of_file(const char *path, char *why, size_t why_size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        snprintf(why, why_size, "cannot be opened: %s", strerror(errno));
        return NULL;
    }
    errno = 0;
    struct zeroute_snapshot *s = snapshot(fd, why, why_size);
    close(fd);
    if (s)
        snprintf(s->process.path, sizeof s->process.path, "%s", path);
    return s;
}

struct zeroute_snapshot *zeroute_snapshot_new(const struct zeroute_process *p, char *why, size_t why_size)
{
    if (!p->readable) {
        snprintf(why, why_size, "%s", p->why);
        return NULL;
    }
    struct zeroute_snapshot *s = zeroute_snapshot_of_file(p->path, why, why_size);
    if (s)
        s->process = *p;
    return s;
}

/* --- asking ----------------------------------------------------------------------------------- */

const struct zeroute_field *zeroute_find(const struct zeroute_snapshot *s, const char *name)
{
    for (size_t i = 0; i < s->field_count; i++)
        if (strcmp(s->field[i].name, name) == 0)
            return &s->field[i];
    return NULL;
}

uint64_t zeroute_value(const struct zeroute_snapshot *s, const char *name, uint64_t absent)
{
    const struct zeroute_field *f = zeroute_find(s, name);
    return f ? f->value : absent;
}

const char *zeroute_fact(const struct zeroute_snapshot *s, const char *key)
{
    for (size_t i = 0; i < s->fact_count; i++)
        if (strcmp(s->fact[i].key, key) == 0)
            return s->fact[i].value;
    return NULL;
}

/* --- adding up -------------------------------------------------------------------------------- */

static bool add_missing(struct zeroute_snapshot *sum, const struct zeroute_field *from, size_t n)
{
    struct zeroute_field *grown = realloc(sum->field, (sum->field_count + n + 1) * sizeof *sum->field);
    if (!grown)
        return false;
    sum->field = grown;
    for (size_t i = 0; i < n; i++) {
        struct zeroute_field *to = &sum->field[sum->field_count++];
        *to = from[i];
        to->name = keep_text(sum, from[i].name, strlen(from[i].name));
        to->unit = keep_text(sum, from[i].unit, strlen(from[i].unit));
        to->help = keep_text(sum, from[i].help, strlen(from[i].help));
        if (from[i].text)
            to->text = keep_text(sum, from[i].text, strlen(from[i].text));
        if (from[i].buckets) {
            uint64_t *b = keep(sum, ZEROUTE_BUCKETS * sizeof *b);
            if (!b)
                return false;
            memcpy(b, from[i].buckets, ZEROUTE_BUCKETS * sizeof *b);
            to->buckets = b;
        }
    }
    return true;
}

static bool add_to_histogram(struct zeroute_snapshot *sum, struct zeroute_field *to, const struct zeroute_field *from)
{
    uint64_t *b = keep(sum, ZEROUTE_BUCKETS * sizeof *b);
    if (!b)
        return false;
    for (unsigned i = 0; i < ZEROUTE_BUCKETS; i++)
        b[i] = to->buckets[i] + from->buckets[i];
    to->buckets = b;
    to->value += from->value;
    derive(to, to[DERIVED].value > from[DERIVED].value ? to[DERIVED].value : from[DERIVED].value);
    return true;
}

uint64_t zeroute_together(const char *name, uint64_t a, uint64_t b)
{
    static const struct {
        const char *name;
        bool most;
    } shared[] = {
        {"host.gpu_active_bytes", true},     {"host.gpu_active_start_bytes", false},
        {"host.mem_available_bytes", false}, {"host.mem_available_start_bytes", true},
        {"host.cgroup_bytes", true},
    };
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (strcmp(name, shared[i].name) == 0)
            return (a > b) == shared[i].most ? a : b;
    return a + b;
}

bool zeroute_snapshot_add(struct zeroute_snapshot *sum, const struct zeroute_snapshot *other)
{
    for (size_t i = 0; i < other->field_count; i++) {
        const struct zeroute_field *from = &other->field[i];
        struct zeroute_field *to = (struct zeroute_field *)(uintptr_t)zeroute_find(sum, from->name);
        size_t group = from->type == ZEROUTE_HISTOGRAM ? 1 + DERIVED : 1;
        if (!to) {
            if (!add_missing(sum, from, group))
                return false;
        } else if (to->type != from->type) {
            continue;
        } else if (from->type == ZEROUTE_HISTOGRAM) {
            if (!add_to_histogram(sum, to, from))
                return false;
        } else if (from->type == ZEROUTE_TEXT) {
            if (strcmp(to->text, from->text) != 0)
                to->text = "differ";
        } else {
            to->value = zeroute_together(from->name, to->value, from->value);
        }
        i += group - 1;
    }
    sum->processes += other->processes;
    if (other->last_activity_ns > sum->last_activity_ns)
        sum->last_activity_ns = other->last_activity_ns;
    return true;
}
