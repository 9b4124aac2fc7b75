/*
 * The reader against files that no present writer makes: of tomorrow, of yesterday, damaged, or
 * half written.
 */
#include "suite.h"
#include "zeroute/reader.h"

#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FIELD_SIZE 320 /* larger than today's: there is something behind what we know */
#define HEADER_SIZE 700
#define GLOBALS 1024
#define FIELDS 2048
#define SHARDS 16384
#define SHARD_SIZE 4096
#define FILE_SIZE (SHARDS + 4 * SHARD_SIZE)

static char file[FILE_SIZE], path[64], why[256];
static unsigned field_count;

static struct zeroute_segment_header *header(void) {
    return (struct zeroute_segment_header *)(void *)file;
}

static uint64_t *shard(unsigned n) {
    return (uint64_t *)(void *)(file + SHARDS + n * SHARD_SIZE);
}

static struct zeroute_segment_field *field(const char *name, uint16_t type, uint16_t place, uint32_t offset) {
    struct zeroute_segment_field *f =
        (struct zeroute_segment_field *)(void *)(file + FIELDS + field_count++ * FIELD_SIZE);
    snprintf(f->name, sizeof f->name, "%s", name);
    f->type = type;
    f->place = place;
    f->offset = offset;
    f->count = 1;
    header()->field_count = field_count;
    return f;
}

static void begin(void) {
    memset(file, 0, sizeof file);
    field_count = 0;
    *header() = (struct zeroute_segment_header){
        .magic = ZEROUTE_SEGMENT_MAGIC,
        .layout = ZEROUTE_SEGMENT_LAYOUT,
        .header_size = HEADER_SIZE,
        .file_size = FILE_SIZE,
        .pid = 4711,
        .command = "program of tomorrow",
        .globals_offset = GLOBALS,
        .globals_size = 512,
        .fields_offset = FIELDS,
        .field_size = FIELD_SIZE,
        .shards_offset = SHARDS,
        .shard_size = SHARD_SIZE,
        .shard_count = 3,
        .buckets = ZEROUTE_BUCKETS,
        .shard_activity = 8,
        .shard_group = 1024,
        .fingerprint_offset = GLOBALS + 512,
        .fingerprint_size = 512,
    };
    snprintf(path, sizeof path, "/tmp/zeroute-reader.XXXXXX");
    close(mkstemp(path));
}

static void end(void) {
    unlink(path);
}

static struct zeroute_snapshot *look(void) {
    FILE *f = fopen(path, "w");
    fwrite(file, 1, sizeof file, f);
    fclose(f);
    return zeroute_snapshot_of_file(path, why, sizeof why);
}

static void refused(const char *with) {
    struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
    ck_assert_ptr_null(s);
    ck_assert_msg(strstr(why, with) != NULL, "'%s' does not say '%s'", why, with);
}

START_TEST(a_field_added_tomorrow_is_shown_today) {
    field("new.counter", ZEROUTE_COUNTER, ZEROUTE_SHARDS, 64);
    shard(0)[8] = 1;
    shard(1)[8] = 20;
    shard(2)[8] = 300;
    shard(3)[8] = 4000; /* not in use */
    struct zeroute_snapshot *s = look();
    ck_assert_msg(s != NULL, "%s", why);
    ck_assert_uint_eq(zeroute_value(s, "new.counter", 0), 321);
    ck_assert_str_eq(s->process.command, "program of tomorrow");
    zeroute_snapshot_free(s);
}
END_TEST

/* Its header ended before the place of requests. */
START_TEST(a_segment_of_yesterday_is_still_read) {
    field("old.counter", ZEROUTE_COUNTER, ZEROUTE_SHARDS, 64);
    shard(0)[8] = 5;
    header()->header_size = offsetof(struct zeroute_segment_header, control_offset);
    struct zeroute_snapshot *s = look();
    ck_assert_msg(s != NULL, "%s", why);
    ck_assert_uint_eq(zeroute_value(s, "old.counter", 0), 5);
    zeroute_snapshot_free(s);
}
END_TEST

START_TEST(a_type_of_tomorrow_is_left_out_and_the_rest_is_shown) {
    field("of.tomorrow", 99, ZEROUTE_SHARDS, 64);
    field("of.today", ZEROUTE_COUNTER, ZEROUTE_SHARDS, 64);
    struct zeroute_snapshot *s = look();
    ck_assert_ptr_null(zeroute_find(s, "of.tomorrow"));
    ck_assert_ptr_nonnull(zeroute_find(s, "of.today"));
    zeroute_snapshot_free(s);
}
END_TEST

START_TEST(a_gauge_is_a_difference_and_never_below_zero) {
    struct zeroute_segment_field *f = field("gauge", ZEROUTE_GAUGE, ZEROUTE_SHARDS, 64);
    f->minus = 72;
    f->stride = 16;
    f->count = 2;
    shard(0)[8] = 10; /* taken */
    shard(1)[9] = 3;  /* given back, by another thread */
    shard(2)[10] = 5; /* the second of the series */
    struct zeroute_snapshot *s = look();
    ck_assert_uint_eq(zeroute_value(s, "gauge", 99), 12);
    zeroute_snapshot_free(s);
    shard(1)[9] = 1000;
    s = look();
    ck_assert_uint_eq(zeroute_value(s, "gauge", 99), 0);
    zeroute_snapshot_free(s);
}
END_TEST

/* The global words of an account, as a writer lays them out: total, then peak. */
static int64_t *global(unsigned offset) {
    return (int64_t *)(void *)(file + GLOBALS + offset);
}

START_TEST(what_is_not_folded_yet_is_part_of_the_present_and_of_the_peak) {
    field("now", ZEROUTE_GAUGE, ZEROUTE_SHARDS, 64)->total = 16;
    struct zeroute_segment_field *f = field("peak", ZEROUTE_PEAK, ZEROUTE_GLOBAL, 24);
    f->total = 16;
    f->high = 72;
    *global(16) = 1000;
    *global(24) = 1100;
    shard(0)[8] = (uint64_t)-30; /* level */
    shard(1)[8] = 50;
    shard(1)[9] = 90; /* high */
    struct zeroute_snapshot *s = look();
    ck_assert_uint_eq(zeroute_value(s, "now", 0), 1020);
    ck_assert_uint_eq(zeroute_value(s, "peak", 0), 1100);
    zeroute_snapshot_free(s);
    shard(2)[9] = 20;
    s = look();
    ck_assert_uint_eq(zeroute_value(s, "peak", 0), 1110);
    zeroute_snapshot_free(s);
}
END_TEST

START_TEST(nothing_reads_below_zero) {
    field("now", ZEROUTE_GAUGE, ZEROUTE_SHARDS, 64)->total = 16;
    field("peak", ZEROUTE_PEAK, ZEROUTE_GLOBAL, 24)->total = 16;
    field("plain.peak", ZEROUTE_PEAK, ZEROUTE_GLOBAL, 24);
    *global(16) = -1000;
    *global(24) = -5;
    struct zeroute_snapshot *s = look();
    ck_assert_uint_eq(zeroute_value(s, "now", 1), 0);
    ck_assert_uint_eq(zeroute_value(s, "peak", 1), 0);
    ck_assert_uint_eq(zeroute_value(s, "plain.peak", 1), 0);
    zeroute_snapshot_free(s);
}
END_TEST

START_TEST(reserved_reads_at_least_what_is_allocated) {
    field("device.3.reserved_bytes.all.current", ZEROUTE_GAUGE, ZEROUTE_SHARDS, 64);
    field("device.3.allocated_bytes.all.current", ZEROUTE_GAUGE, ZEROUTE_SHARDS, 72);
    field("device.3.reserved_bytes.all.allocated", ZEROUTE_COUNTER, ZEROUTE_SHARDS, 64);
    field("device.3.allocated_bytes.all.allocated", ZEROUTE_COUNTER, ZEROUTE_SHARDS, 72);
    field("reserved_bytes.all.current", ZEROUTE_GAUGE, ZEROUTE_SHARDS, 64);
    shard(0)[8] = 10;
    shard(0)[9] = 30;
    struct zeroute_snapshot *s = look();
    ck_assert_uint_eq(zeroute_value(s, "device.3.reserved_bytes.all.current", 0), 30);
    ck_assert_uint_eq(zeroute_value(s, "device.3.reserved_bytes.all.allocated", 0), 10); /* a cache hit is none */
    ck_assert_uint_eq(zeroute_value(s, "reserved_bytes.all.current", 0), 10);
    zeroute_snapshot_free(s);
}
END_TEST

START_TEST(a_writer_that_died_while_writing_can_still_be_read) {
    field("counter", ZEROUTE_COUNTER, ZEROUTE_SHARDS, 64);
    shard(1)[0] = 7; /* odd: in the middle of a booking, for ever */
    shard(1)[8] = 5;
    struct zeroute_segment_text *t = (struct zeroute_segment_text *)(void *)(file + GLOBALS + 512);
    t->generation = 3;
    t->length = 4;
    memcpy(t + 1, "a\tb\n", 4);
    struct zeroute_snapshot *s = look();
    ck_assert_uint_eq(zeroute_value(s, "counter", 0), 5);
    ck_assert_str_eq(zeroute_fact(s, "a"), "b");
    zeroute_snapshot_free(s);
}
END_TEST

/* Killed in the middle of a booking: to wait for it takes 50 ms, each time. */
START_TEST(a_dead_writer_is_not_waited_for) {
    struct zeroute_process p = {.readable = true, .state = ZEROUTE_FINISHED};
    struct timespec from, to;
    double shortest = 1e9;
    struct stat st;
    field("counter", ZEROUTE_COUNTER, ZEROUTE_SHARDS, 64);
    shard(1)[0] = 7;
    zeroute_snapshot_free(look());
    ck_assert_int_eq(stat(path, &st), 0);
    snprintf(p.path, sizeof p.path, "%s", path);
    p.device = st.st_dev;
    p.inode = st.st_ino;
    for (int i = 0; i < 20; i++) {
        clock_gettime(CLOCK_MONOTONIC, &from);
        struct zeroute_snapshot *s = zeroute_snapshot_new(&p, why, sizeof why);
        clock_gettime(CLOCK_MONOTONIC, &to);
        ck_assert_msg(s && s->torn, "%s", s ? "not torn" : why);
        zeroute_snapshot_free(s);
        double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
        shortest = fmin(ms, shortest);
    }
    ck_assert_msg(shortest < 40, "%.0f ms", shortest); /* on a busy machine some take longer */
}
END_TEST

START_TEST(percentiles_come_from_the_buckets) {
    field("latency.x", ZEROUTE_HISTOGRAM, ZEROUTE_SHARDS, 64);
    struct zeroute_segment_histogram *h = (struct zeroute_segment_histogram *)(void *)(shard(0) + 8);
    unsigned low = 0, high = 0;
    while (zeroute_bucket_floor(low + 1) <= 1000)
        low++;
    while (zeroute_bucket_floor(high + 1) <= 1000000)
        high++;
    h->buckets[low] = 98;
    h->buckets[high] = 2;
    h->sum_ns = 98 * 1000 + 2 * 1000000;
    h->max_ns = 1000100;
    struct zeroute_snapshot *s = look();
    ck_assert_uint_eq(zeroute_value(s, "latency.x.calls", 0), 100);
    ck_assert_uint_eq(zeroute_value(s, "latency.x.max_ns", 0), 1000100);
    uint64_t p50 = zeroute_value(s, "latency.x.p50_ns", 0);
    uint64_t p99 = zeroute_value(s, "latency.x.p99_ns", 0);
    ck_assert(p50 >= 890 && p50 < 1100);
    ck_assert(p99 >= 890000 && p99 <= 1000100);
    zeroute_snapshot_free(s);
}
END_TEST

START_TEST(buckets_follow_each_other_without_a_gap) {
    ck_assert_uint_eq(zeroute_bucket_floor(0), 0);
    ck_assert_uint_eq(zeroute_bucket_floor(1), 16);
    for (unsigned b = 1; b + 1 < ZEROUTE_BUCKETS; b++) {
        uint64_t low = zeroute_bucket_floor(b), high = zeroute_bucket_floor(b + 1);
        ck_assert(low < high && (double)high / (double)low <= 1.2501);
    }
}
END_TEST

START_TEST(processes_are_added_up_field_by_field) {
    field("counter", ZEROUTE_COUNTER, ZEROUTE_SHARDS, 64);
    field("latency.x", ZEROUTE_HISTOGRAM, ZEROUTE_SHARDS, 128);
    struct zeroute_segment_field *text = field("route", ZEROUTE_TEXT, ZEROUTE_GLOBAL, 64);
    text->stride = 64;
    struct zeroute_segment_text *t = (struct zeroute_segment_text *)(void *)(file + GLOBALS + 64);
    t->length = 4;
    memcpy(t + 1, "pool", 4);
    shard(0)[8] = 5;
    shard(0)[16] = 700;
    shard(0)[17] = 400;
    shard(0)[18 + 3] = 2;
    struct zeroute_snapshot *a = look();
    memcpy(t + 1, "sycl", 4);
    field("only.there", ZEROUTE_COUNTER, ZEROUTE_SHARDS, 64);
    struct zeroute_snapshot *b = look();
    ck_assert(zeroute_snapshot_add(a, b));
    ck_assert_uint_eq(a->processes, 2);
    ck_assert_uint_eq(zeroute_value(a, "counter", 0), 10);
    ck_assert_uint_eq(zeroute_value(a, "only.there", 0), 5);
    ck_assert_uint_eq(zeroute_value(a, "latency.x.calls", 0), 4);
    ck_assert_uint_eq(zeroute_value(a, "latency.x.sum_ns", 0), 1400);
    ck_assert_uint_eq(zeroute_value(a, "latency.x.max_ns", 0), 400);
    ck_assert_str_eq(zeroute_find(a, "route")->text, "differ");
    zeroute_snapshot_free(b);
    ck_assert_uint_eq(zeroute_value(a, "only.there", 0), 5);
    zeroute_snapshot_free(a);
}
END_TEST

START_TEST(what_is_no_segment_is_refused_with_the_reason) {
    zeroute_snapshot_free(look());
    ck_assert_int_eq(truncate(path, 10), 0);
    refused("truncated");
    ck_assert_int_eq(truncate(path, 300), 0);
    refused("truncated");
    zeroute_snapshot_free(look());
    ck_assert_int_eq(truncate(path, FILE_SIZE - 1), 0);
    refused("damaged");
    header()->layout = 2;
    zeroute_snapshot_free(look());
    refused("layout 2, written by an older zeroute; this one reads layout 4");
    header()->magic = 0;
    zeroute_snapshot_free(look());
    refused("not ready");
    header()->magic = 12345;
    zeroute_snapshot_free(look());
    refused("not a segment");
    unlink(path);
    refused("cannot be opened");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    refused("not a regular file");
}
END_TEST

START_TEST(sizes_that_lie_are_refused_or_harmless) {
    static const struct {
        size_t at, size;
        uint64_t value;
        const char *said; /* NULL: harmless, what it is about is left out */
    } lie[] = {
        {offsetof(struct zeroute_segment_header, shard_count), 4, UINT32_MAX, "damaged"},
        {offsetof(struct zeroute_segment_header, shard_size), 8, UINT64_MAX, "damaged"},
        {offsetof(struct zeroute_segment_header, shard_size), 8, 0, "damaged"},
        {offsetof(struct zeroute_segment_header, shards_offset), 8, UINT64_MAX, "damaged"},
        {offsetof(struct zeroute_segment_header, field_count), 4, UINT32_MAX, "damaged"},
        {offsetof(struct zeroute_segment_header, field_size), 4, 1, "damaged"},
        {offsetof(struct zeroute_segment_header, fields_offset), 8, UINT64_MAX - 5, "cannot be read"},
        {offsetof(struct zeroute_segment_header, globals_size), 8, UINT64_MAX, "cannot be read"},
        {offsetof(struct zeroute_segment_header, file_size), 8, UINT64_MAX, "damaged"},
        {offsetof(struct zeroute_segment_header, buckets), 4, 1, "damaged"},
        {offsetof(struct zeroute_segment_header, header_size), 4, 8, "truncated"},
        {offsetof(struct zeroute_segment_header, fingerprint_offset), 8, UINT64_MAX, NULL},
        {offsetof(struct zeroute_segment_header, fingerprint_size), 8, UINT64_MAX, NULL},
        {offsetof(struct zeroute_segment_header, shard_generation), 4, UINT32_MAX, "damaged"},
        {offsetof(struct zeroute_segment_header, shard_folds), 4, UINT32_MAX, "damaged"},
        {offsetof(struct zeroute_segment_header, shard_activity), 4, UINT32_MAX, NULL},
        {offsetof(struct zeroute_segment_header, shard_group), 8, UINT64_MAX, NULL},
        {offsetof(struct zeroute_segment_header, shard_group), 8, 0, NULL},
    };
    for (size_t i = 0; i < sizeof lie / sizeof *lie; i++) {
        unlink(path);
        begin();
        field("counter", ZEROUTE_COUNTER, ZEROUTE_SHARDS, UINT32_MAX);
        field("series", ZEROUTE_GAUGE, ZEROUTE_SHARDS, 64)->count = UINT32_MAX;
        field("text", ZEROUTE_TEXT, ZEROUTE_GLOBAL, UINT32_MAX)->stride = UINT32_MAX;
        memcpy(file + lie[i].at, &lie[i].value, lie[i].size);
        struct zeroute_snapshot *s = look(); /* no crash, and nothing read beyond its end (sanitizers) */
        if (lie[i].said) {
            refused(lie[i].said);
            continue;
        }
        ck_assert_msg(s != NULL, "lie %zu: %s", i, why);
        ck_assert_uint_eq(s->field_count, 3);
        ck_assert_uint_eq(zeroute_value(s, "counter", 1), 0);
        ck_assert_str_eq(zeroute_find(s, "text")->text, "");
        zeroute_snapshot_free(s);
    }
}
END_TEST

START_TEST(random_damage_is_never_more_than_wrong_numbers) {
    unsigned seed = 1, read = 0;
    for (int round = 0; round < 1500; round++) {
        unlink(path);
        begin();
        field("counter", ZEROUTE_COUNTER, ZEROUTE_SHARDS, 64);
        field("latency.x", ZEROUTE_HISTOGRAM, ZEROUTE_SHARDS, 128);
        field("text", ZEROUTE_TEXT, ZEROUTE_GLOBAL, 64)->stride = 64;
        field("peak", ZEROUTE_PEAK, ZEROUTE_GLOBAL, 24)->total = 16;
        for (int hit = 0; hit < 4; hit++) {
            seed = seed * 1103515245 + 12345;
            unsigned at = seed >> 8 & 1 ? (seed >> 9) % 640 : FIELDS + (seed >> 9) % (4 * FIELD_SIZE);
            /* Not the generation's place: waiting for a dead writer takes its time. */
            if (at >= 8 && at != offsetof(struct zeroute_segment_header, shard_generation))
                file[at] = (char)(seed >> 20);
        }
        why[0] = '\0';
        struct zeroute_snapshot *s = look();
        ck_assert_msg((s == NULL) == (why[0] != '\0'), "round %d: %s, and told '%s'", round, s ? "read" : "refused",
                      why);
        for (size_t i = 0; s && i < s->field_count; i++)
            ck_assert(s->field[i].type != ZEROUTE_TEXT || s->field[i].text);
        read += s != NULL;
        zeroute_snapshot_free(s);
    }
    ck_assert(read > 100 && read < 1400); /* both happen */
}
END_TEST

static double used_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* A sparse file whose table of fields is `many`. */
static void lay_large(const struct zeroute_segment_field *many, unsigned count, const char *text, size_t length) {
    struct zeroute_segment_text head = {.length = (uint32_t)length};
    header()->field_count = count;
    header()->field_size = sizeof many[0];
    header()->fields_offset = FILE_SIZE;
    header()->fingerprint_offset = FILE_SIZE + count * sizeof many[0];
    header()->fingerprint_size = 1 << 20;
    header()->shards_offset = header()->fingerprint_offset + (1 << 20);
    header()->file_size = header()->shards_offset + 3 * SHARD_SIZE;
    zeroute_snapshot_free(look());
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, many, count * sizeof many[0], FILE_SIZE), (ssize_t)(count * sizeof many[0]));
    ck_assert_int_eq(ftruncate(fd, (off_t)header()->file_size), 0);
    ck_assert_int_eq(pwrite(fd, &head, sizeof head, (off_t)header()->fingerprint_offset), sizeof head);
    ck_assert_int_eq(pwrite(fd, text, length, (off_t)(header()->fingerprint_offset + sizeof head)), (ssize_t)length);
    close(fd);
}

START_TEST(the_facts_of_a_segment_take_little_memory) {
    enum { LENGTH = (1 << 20) - 64 };
    static char text[LENGTH];
    struct zeroute_segment_field one = {.type = ZEROUTE_COUNTER, .name = "n"};
    for (size_t i = 0; i < LENGTH; i++)
        text[i] = i % 2 ? '\n' : '\t';
    lay_large(&one, 1, text, LENGTH);
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
    size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    ck_assert_msg(s != NULL, "%s", why);
    printf("half a million facts: %zu KiB\n", (after - before) >> 10);
    ck_assert_uint_lt(after - before, 16 << 20);
    zeroute_snapshot_free(s);
}
END_TEST

/* As `stat --prometheus` looks for each name in each process before it. */
START_TEST(every_field_of_the_largest_segment_is_found_in_no_time) {
    enum { MOST = 2048 };
    static struct zeroute_segment_field many[4096];
    for (unsigned i = 0; i < 4096; i++) {
        many[i] = (struct zeroute_segment_field){.type = i < 512 ? ZEROUTE_HISTOGRAM : ZEROUTE_COUNTER};
        snprintf(many[i].name, sizeof many[i].name, "a.name.that.begins.like.all.the.others.%u", i);
    }
    lay_large(many, 4096, "", 0);
    refused("damaged");
    unlink(path);
    begin();
    lay_large(many, MOST, "", 0);
    struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
    ck_assert_msg(s != NULL, "%s", why);
    double ms = 1e9;
    for (int tries = 0; tries < 5; tries++) { /* the processor's time varies with what else runs */
        double from = used_ms();
        for (size_t i = 0; i < s->field_count; i++)
            ck_assert_ptr_eq(zeroute_find(s, s->field[i].name), &s->field[i]);
        ms = fmin(ms, used_ms() - from);
    }
    printf("%zu fields found in %.1f ms\n", s->field_count, ms);
    ck_assert_msg(ms < 30, "%.0f ms", ms);
    zeroute_snapshot_free(s);
    for (unsigned i = 0; i < MOST; i++)
        many[i].type = ZEROUTE_HISTOGRAM;
    unlink(path);
    begin();
    lay_large(many, MOST, "", 0);
    refused("too many histograms");
}
END_TEST

/* Each bound at its highest, a writer that is always in the middle of a booking, and all of it sparse. */
START_TEST(whatever_a_segment_says_it_does_not_take_long) {
    enum { MOST = 2048 };
    static struct zeroute_segment_field many[MOST];
    for (unsigned i = 0; i < MOST; i++) {
        many[i] = (struct zeroute_segment_field){.type = ZEROUTE_GAUGE, .count = UINT32_MAX, .stride = 8, .minus = 8};
        snprintf(many[i].name, sizeof many[i].name, "reserved_bytes.all.%u", i);
        if (i % 4 == 1)
            many[i].type = ZEROUTE_HISTOGRAM;
        if (i % 4 == 2)
            many[i] = (struct zeroute_segment_field){.type = ZEROUTE_TEXT, .stride = 1 << 20};
    }
    header()->field_count = MOST;
    header()->field_size = sizeof many[0];
    header()->fields_offset = FILE_SIZE;
    header()->shard_size = 1 << 16;
    header()->shard_count = 1024;
    header()->shard_group = 1 << 16;
    header()->shards_offset = FILE_SIZE + sizeof many;
    header()->file_size = header()->shards_offset + ((uint64_t)1024 << 16);
    zeroute_snapshot_free(look());
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, many, sizeof many, FILE_SIZE), sizeof many);
    ck_assert_int_eq(ftruncate(fd, (off_t)header()->file_size), 0);
    for (unsigned n = 0; n < 1024; n++)
        ck_assert_int_eq(pwrite(fd, &(uint64_t){1}, 8, (off_t)(header()->shards_offset + ((uint64_t)n << 16))), 8);
    close(fd);
    double ms = 1e9;
    for (int tries = 0; tries < 5; tries++) {
        double from = used_ms();
        struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
        ms = fmin(ms, used_ms() - from);
        ck_assert_msg(s ? s->torn : strstr(why, "it takes more than 100 ms") != NULL, "%s", why);
        zeroute_snapshot_free(s);
    }
    printf("the worst segment: %.0f ms of the processor\n", ms);
    ck_assert_msg(ms < 130, "%.0f ms", ms); /* 100, and what a sanitizer adds between two looks at the clock */
}
END_TEST

/* Of a writer that is always at it: it was read 64 times over, each time it was named. */
START_TEST(texts_of_a_gigabyte_are_not_read) {
    enum { TEXTS = 64, LARGE = 1 << 30 };
    static struct zeroute_segment_field many[TEXTS];
    struct zeroute_segment_text head = {.generation = 1, .length = LARGE - 64};
    for (unsigned i = 0; i < TEXTS; i++)
        many[i] = (struct zeroute_segment_field){
            .type = ZEROUTE_TEXT, .place = ZEROUTE_GLOBAL, .name = "text", .offset = 512, .stride = LARGE};
    lay_large(many, TEXTS, "", 0);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, &head, sizeof head, GLOBALS + 512), sizeof head);
    ck_assert_int_eq(ftruncate(fd, (off_t)2 * LARGE), 0);
    close(fd);
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    double from = used_ms();
    struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
    double ms = used_ms() - from;
    size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    ck_assert_msg(s != NULL, "%s", why);
    ck_assert_str_eq(zeroute_find(s, "text")->text, "");
    ck_assert_uint_lt(after - before, 16 << 20);
    ck_assert_msg(ms < 1000, "%.0f ms", ms);
    zeroute_snapshot_free(s);
}
END_TEST

int main(void) {
    Suite *s = suite_create("reader");
    TCase *t = tcase_create("reader");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, a_field_added_tomorrow_is_shown_today);
    tcase_add_test(t, a_segment_of_yesterday_is_still_read);
    tcase_add_test(t, a_type_of_tomorrow_is_left_out_and_the_rest_is_shown);
    tcase_add_test(t, a_gauge_is_a_difference_and_never_below_zero);
    tcase_add_test(t, what_is_not_folded_yet_is_part_of_the_present_and_of_the_peak);
    tcase_add_test(t, nothing_reads_below_zero);
    tcase_add_test(t, reserved_reads_at_least_what_is_allocated);
    tcase_add_test(t, a_writer_that_died_while_writing_can_still_be_read);
    tcase_add_test(t, a_dead_writer_is_not_waited_for);
    tcase_add_test(t, percentiles_come_from_the_buckets);
    tcase_add_test(t, buckets_follow_each_other_without_a_gap);
    tcase_add_test(t, processes_are_added_up_field_by_field);
    tcase_add_test(t, what_is_no_segment_is_refused_with_the_reason);
    tcase_add_test(t, sizes_that_lie_are_refused_or_harmless);
    tcase_add_test(t, random_damage_is_never_more_than_wrong_numbers);
    tcase_add_test(t, the_facts_of_a_segment_take_little_memory);
    tcase_add_test(t, every_field_of_the_largest_segment_is_found_in_no_time);
    tcase_add_test(t, whatever_a_segment_says_it_does_not_take_long);
    tcase_add_test(t, texts_of_a_gigabyte_are_not_read);
    tcase_set_timeout(t, 120);
    suite_add_tcase(s, t);
    return run_suite(s);
}
