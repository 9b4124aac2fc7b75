/* The model behind top and serve: whose process it is, which metric a field becomes, histories, where to listen. */
#include "suite.h"
#include "users.h"
#include "view/view.h"
#include "watch/serve.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ID "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

START_TEST(pods_and_containers_are_known_by_their_cgroup) {
    static const struct {
        const char *cgroup, *pod, *container, *job;
    } known[] = {
        {"0::/kubepods.slice/kubepods-burstable.slice/"
         "kubepods-burstable-pod1f0c2a3b_4d5e_6f70_8192_a3b4c5d6e7f8.slice/cri-containerd-" ID ".scope\n",
         "1f0c2a3b-4d5e-6f70-8192-a3b4c5d6e7f8", "0123456789ab", ""},
        {"12:memory:/kubepods/besteffort/pod1f0c2a3b-4d5e-6f70-8192-a3b4c5d6e7f8/" ID "\n",
         "1f0c2a3b-4d5e-6f70-8192-a3b4c5d6e7f8", "0123456789ab", ""},
        {"0::/system.slice/docker-" ID ".scope\n", "", "0123456789ab", ""},
        {"0::/docker/" ID "\n", "", "0123456789ab", ""},
        {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID ".scope/container\n", "",
         "0123456789ab", ""},
        {"0::/system.slice/slurmstepd.scope/job_81/step_0/user/task_1\n", "", "", "slurm:81.0"},
        {"4:memory:/slurm/uid_1000/job_81/step_batch/task_0\n", "", "", "slurm:81.batch"},
        {"0::/user.slice/session-2.scope\n", "", "", ""},
        {"0::/podman/pod/job_/step_\n", "", "", ""},
        {"", "", "", ""},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct zr_identity id = {0};
        zr_identify_cgroup(known[i].cgroup, &id);
        ck_assert_str_eq(id.pod, known[i].pod);
        ck_assert_str_eq(id.container, known[i].container);
        ck_assert_str_eq(id.job, known[i].job);
    }
}
END_TEST

START_TEST(launchers_and_the_downward_api_name_ranks_and_pods) {
    static const char env[] = "PATH=/bin\0LOCAL_RANK=3\0RAY_JOB_ID=02000000\0RANK=11\0POD_NAME=train-0\0"
                              "POD_NAMESPACE=ml\0CONTAINER_NAME=torch\0SLURM_JOB_NAME=big run\0BROKEN";
    struct zeroute_process none = {0}, told = {.job_id = "torchrun:x.29500", .rank = "4", .run_id = "r1"};
    struct zr_identity id = {0};
    zr_identify_environment(env, sizeof env, &none, &id);
    ck_assert_str_eq(id.job, "ray:02000000");
    ck_assert_str_eq(id.rank, "11");
    ck_assert_str_eq(id.local_rank, "3");
    ck_assert_str_eq(id.pod, "train-0");
    ck_assert_str_eq(id.space, "ml");
    ck_assert_str_eq(id.container, "torch");
    ck_assert_str_eq(id.job_name, "big run");
    id = (struct zr_identity){0};
    zr_identify_environment(env, sizeof env, &told, &id); /* the segment knows better: it is of the start */
    ck_assert_str_eq(id.job, "torchrun:x.29500");
    ck_assert_str_eq(id.rank, "4");
    id = (struct zr_identity){0};
    zr_identify_environment("PMI_RANK=7\0SLURM_JOB_ID=9", 26, &none, &id);
    ck_assert_str_eq(id.job, "slurm:9");
    ck_assert_str_eq(id.rank, "7");
}
END_TEST

/* A snapshot of these fields. */
static struct zr_figures figures_of(struct zeroute_field *field, size_t count, const char *rank) {
    static const struct zr_device_names devices = {1, {"0000:03:00.0"}};
    struct zeroute_snapshot s = {.field = field, .field_count = count};
    struct zr_figures f = {0};
    zr_figures_take(&f, &s, &devices, rank);
    return f;
}

/* Of the first field in this family; the list begins with the last one. */
static const char *labels_of(const struct zr_figures *f, const char *family) {
    const char *labels = "none";
    for (const struct zr_series *s = f->first; s; s = s->next)
        if (strcmp(zr_metric[s->family].name, family) == 0)
            labels = s->labels;
    return labels;
}

static unsigned count_of(const struct zr_figures *f) {
    unsigned count = 0;
    for (const struct zr_series *s = f->first; s; s = s->next)
        count++;
    return count;
}

/* Without one the number of a device, or the kind of memory, would be in the name. Others have a name of their own. */
START_TEST(every_field_of_a_device_or_a_kind_has_a_line_in_the_table_of_metrics) {
    struct zeroute_field field[] = {
#define NUMBER(field) {.name = field, .type = ZEROUTE_GAUGE, .value = 1},
#define ZR_ACCOUNT(ID, name, help)                                                                                     \
    NUMBER(name ".current") NUMBER(name ".peak") NUMBER(name ".allocated") NUMBER(name ".freed")
#define ZR_NUMBER(ID, name, unit, help) NUMBER(name ".current") NUMBER(name ".allocated") NUMBER(name ".freed")
#define ZR_CARD(ID, name, help) NUMBER("device.0." name)
#include "stats/fields.def"
    };
    struct zr_figures none = figures_of(NULL, 0, "");
    unsigned known = zr_metric_count;
    struct zr_figures all = figures_of(field, sizeof field / sizeof *field, "");
    ck_assert_msg(zr_metric_count == known, "metrics.def has no line for what would become %s", zr_metric[known].name);
    ck_assert_str_eq(labels_of(&all, "objects"), "kind=\"host_pointer\"");
    ck_assert_str_eq(labels_of(&all, "device_memory_free_bytes"), "device=\"0000:03:00.0\",source=\"driver\"");
    zr_figures_free(&none);
    zr_figures_free(&all);
}
END_TEST

START_TEST(fields_become_families_with_labels) {
    struct zeroute_field field[] = {
        {.name = "calls.zeMemFree.plt", .type = ZEROUTE_COUNTER, .value = 3},
        {.name = "callers.libze_loader.so.1.bytes", .type = ZEROUTE_COUNTER, .value = 4},
        {.name = "callers.libze_loader.so.1.skipped_calls", .type = ZEROUTE_COUNTER, .value = 4},
        {.name = "failures.code.0x70000003", .type = ZEROUTE_COUNTER, .value = 5},
        {.name = "failures.zeMemFree", .type = ZEROUTE_COUNTER, .value = 5},
        {.name = "device.0.allocated_bytes.all.current", .type = ZEROUTE_GAUGE, .value = 6},
        {.name = "device.1.reserved_bytes.all.current", .type = ZEROUTE_GAUGE, .value = 6},
        {.name = "residency.peer.skipped_calls", .type = ZEROUTE_COUNTER, .value = 7},
        {.name = "of.tomorrow_ns", .help = "new", .type = ZEROUTE_COUNTER, .value = 8},
        {.name = "cache.hits", .type = ZEROUTE_COUNTER, .value = 0},
        {.name = "cache.trims", .type = ZEROUTE_COUNTER, .value = 0},
        {.name = "settings", .type = ZEROUTE_TEXT, .text = "x"},
    };
    struct zr_figures f = figures_of(field, sizeof field / sizeof *field, "2");
    ck_assert_str_eq(labels_of(&f, "calls_total"), "entry=\"zeMemFree\",via=\"plt\"");
    ck_assert_str_eq(labels_of(&f, "caller_allocated_bytes_total"), "library=\"libze_loader.so.1\"");
    ck_assert_str_eq(labels_of(&f, "caller_residency_skipped_total"), "library=\"libze_loader.so.1\"");
    ck_assert_str_eq(labels_of(&f, "failures_total"), "code=\"0x70000003\"");
    ck_assert_str_eq(labels_of(&f, "call_failures_total"), "entry=\"zeMemFree\"");
    ck_assert_str_eq(labels_of(&f, "device_memory_allocated_bytes"), "device=\"0000:03:00.0\",rank=\"2\"");
    ck_assert_str_eq(labels_of(&f, "device_memory_reserved_bytes"), "device=\"1\",rank=\"2\"");
    ck_assert_str_eq(labels_of(&f, "residency_requests_total"), "target=\"peer\",outcome=\"skipped\"");
    ck_assert_str_eq(labels_of(&f, "of_tomorrow_seconds_total"), "");
    ck_assert_str_eq(labels_of(&f, "cache_requests_total"), "result=\"hit\""); /* though it is 0 */
    ck_assert_str_eq(labels_of(&f, "cache_trims_total"), "none");
    ck_assert_uint_eq(count_of(&f), 10);
    zr_figures_free(&f);
}
END_TEST

START_TEST(every_call_is_in_one_bucket) {
    uint64_t buckets[ZEROUTE_BUCKETS];
    struct zeroute_field field[2] = {{.name = "latency.zeMemFree", .type = ZEROUTE_HISTOGRAM, .buckets = buckets},
                                     {.name = "latency.zeMemFree.calls", .type = ZEROUTE_COUNTER, .value = 1}};
    for (unsigned b = 0; b < ZEROUTE_BUCKETS; b++) {
        uint64_t upper = b + 1 < ZEROUTE_BUCKETS ? zeroute_bucket_floor(b + 1) : UINT64_MAX;
        memset(buckets, 0, sizeof buckets);
        buckets[b] = 5;
        struct zr_figures f = figures_of(field, 2, NULL);
        ck_assert_uint_eq(count_of(&f), 1);
        unsigned le = 0;
        while (le < ZR_LE && !f.first->bucket[le])
            le++;
        ck_assert_uint_eq(f.first->bucket[le], 5);
        ck_assert_uint_le(upper, zr_le_ns(le));
        ck_assert(le == 0 || zeroute_bucket_floor(b) >= zr_le_ns(le - 1));
        zr_figures_free(&f);
    }
}
END_TEST

START_TEST(counters_of_the_ended_stay_and_gauges_go) {
    struct zeroute_field field[] = {{.name = "cache.trims", .type = ZEROUTE_COUNTER, .value = 3},
                                    {.name = "allocated_bytes.host.current", .type = ZEROUTE_GAUGE, .value = 4}};
    struct zr_figures one = figures_of(field, 2, NULL), sum = {0};
    ck_assert(zr_figures_add(&sum, &one, true, 2));
    ck_assert(zr_figures_add(&sum, &one, false, 2));
    ck_assert_uint_eq(count_of(&sum), 2);
    ck_assert_uint_eq(sum.first->value, 6);
    ck_assert_uint_eq(sum.first->next->value, 4);
    zr_figures_free(&one);
    zr_figures_free(&sum);
}
END_TEST

START_TEST(a_label_is_whole_or_not_there) {
    char labels[24] = "";
    zr_label(labels, sizeof labels, "a", "x\"\n");
    ck_assert_str_eq(labels, "a=\"x\\\"\\n\"");
    zr_label(labels, sizeof labels, "b", "much too long for this");
    ck_assert_str_eq(labels, "a=\"x\\\"\\n\"");
    zr_label(labels, sizeof labels, "c", "");
    ck_assert_str_eq(labels, "a=\"x\\\"\\n\"");
}
END_TEST

START_TEST(a_history_keeps_the_last_values_and_the_highest_between) {
    struct zr_history *h = calloc(1, sizeof *h);
    for (unsigned i = 0; i < 2 * ZR_HISTORY; i++) {
        zr_history_note(h, true, i);
        zr_history_note(h, false, i + 10000); /* between two */
    }
    ck_assert_uint_eq(h->count, ZR_HISTORY);
    ck_assert_uint_eq(zr_history_at(h, ZR_HISTORY - 1), 2 * ZR_HISTORY - 2 + 10000);
    ck_assert_uint_eq(zr_history_at(h, 0), ZR_HISTORY - 1 + 10000);
    free(h);
}
END_TEST

/* A segment with one counter; a dead one is of the time before the machine was last started. */
struct made {
    char path[96];
    struct zeroute_segment_header *map;
    pid_t writer; /* that has it mapped: a process has one segment */
};

enum { MADE_SIZE = 8192, MADE_FIELD = 1024, MADE_GLOBALS = 2048, MADE_SHARD = 4096 };

static struct made make_segment(const char *job, uint64_t created, uint64_t count, bool live) {
    static uint64_t nonce;
    struct made one;
    char c;
    int ready[2], fd;
    ck_assert_int_eq(pipe(ready), 0);
    one.writer = fork();
    snprintf(one.path, sizeof one.path, "%s/" ZEROUTE_SEGMENT_NAME, own_directory(),
             one.writer ? (int)one.writer : (int)getpid(), (unsigned long long)++nonce);
    if (one.writer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fd = open(one.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (ftruncate(fd, MADE_SIZE) || mmap(NULL, MADE_SIZE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ||
            write(ready[1], "r", 1) != 1)
            _exit(1);
        pause();
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    close(ready[0]);
    fd = open(one.path, O_RDWR | O_CLOEXEC);
    one.map = mmap(NULL, MADE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    struct zeroute_segment_field *f = (void *)((char *)one.map + MADE_FIELD);
    *f = (struct zeroute_segment_field){.type = ZEROUTE_COUNTER, .place = ZEROUTE_SHARDS, .offset = 64, .count = 1};
    snprintf(f->name, sizeof f->name, "limit.refused_calls");
    *(uint64_t *)(void *)((char *)one.map + MADE_SHARD + 64) = count;
    struct stat st;
    ck_assert_int_eq(stat("/proc/self/ns/pid", &st), 0);
    *one.map = (struct zeroute_segment_header){.magic = ZEROUTE_SEGMENT_MAGIC,
                                               .layout = ZEROUTE_SEGMENT_LAYOUT,
                                               .header_size = sizeof *one.map,
                                               .file_size = MADE_SIZE,
                                               .pid = (uint32_t)one.writer,
                                               .pid_namespace = st.st_ino,
                                               .nonce = nonce,
                                               .created_ns = created,
                                               .globals_offset = MADE_GLOBALS,
                                               .globals_size = 64,
                                               .fields_offset = MADE_FIELD,
                                               .field_size = sizeof *f,
                                               .field_count = 1,
                                               .shards_offset = MADE_SHARD,
                                               .shard_size = MADE_SIZE - MADE_SHARD,
                                               .shard_count = 1,
                                               .shard_folds = 8,
                                               .shard_group = 64,
                                               .buckets = ZEROUTE_BUCKETS};
    snprintf(one.map->job_id, sizeof one.map->job_id, "%s", job);
    if (!live)
        snprintf(one.map->boot_id, sizeof one.map->boot_id, "another one");
    return one;
}

static void unmake(const struct made *one) {
    kill(one->writer, SIGKILL);
    waitpid(one->writer, NULL, 0);
    munmap(one->map, MADE_SIZE);
    unlink(one->path);
}

/* What the page says of this job. */
static uint64_t refused_of(const struct zr_view *m, const char *job) {
    char *page = NULL, label[64];
    size_t size;
    uint64_t count = UINT64_MAX;
    FILE *f = open_memstream(&page, &size);
    zr_exposition(f, m);
    fclose(f);
    snprintf(label, sizeof label, "job=\"%s\"", job);
    for (char *line = strtok(page, "\n"); line; line = strtok(NULL, "\n"))
        if (strncmp(line, "zeroute_refused_allocations_total{", 34) == 0 && strstr(line, label) &&
            strstr(line, "setting=\"limit\""))
            count = strtoull(strrchr(line, ' '), NULL, 10);
    free(page);
    return count;
}

/*
 * Beyond 128 jobs an ended one gives its place to a new one. The new one is looked at before the living one here, whose
 * place was taken for that of an ended one, with what its ended process had counted.
 */
START_TEST(a_living_job_keeps_its_sums_when_room_is_made) {
    enum { DEAD = 130 };
    struct zr_view *m = zr_view_new(&(struct zr_scope){.metrics = true});
    struct made dead[DEAD], of_job = make_segment("l", 5, 5, false), early = make_segment("e", 10, 1, true),
                            living = make_segment("l", 20, 1, true);
    ck_assert(zr_view_sample(m));
    ck_assert_uint_eq(refused_of(m, "l"), 6);
    for (int i = 0; i < DEAD; i++) {
        char job[16];
        snprintf(job, sizeof job, "d%d", i);
        dead[i] = make_segment(job, 30 + (uint64_t)i, 1, false);
    }
    ck_assert(zr_view_sample(m));
    snprintf(early.map->boot_id, sizeof early.map->boot_id, "another one");
    struct made newest = make_segment("n", 1, 1, true);
    ck_assert(zr_view_sample(m));
    uint64_t after = refused_of(m, "l"), of_new = refused_of(m, "n");
    zr_view_free(m);
    for (int i = 0; i < DEAD; i++)
        unmake(&dead[i]);
    unmake(&of_job);
    unmake(&early);
    unmake(&living);
    unmake(&newest);
    ck_assert_uint_eq(of_new, 1);
    ck_assert_uint_eq(after, 6);
}
END_TEST

START_TEST(addresses_are_parsed_and_loopback_is_known) {
    static const struct {
        const char *text;
        bool good, loopback;
    } known[] = {{"127.0.0.1:9877", true, true},  {"127.9.9.9:1", true, true},   {"localhost:80", true, true},
                 {"[::1]:9877", true, true},      {"0.0.0.0:9877", true, false}, {":9877", true, false},
                 {"[::]:9877", true, false},      {"10.0.0.1:0", true, false},   {"9877", false, false},
                 {"127.0.0.1:", false, false},    {"127.0.0.1:x", false, false}, {"127.0.0.1:65536", false, false},
                 {"example.org:1", false, false}, {"[::1:1", false, false},      {"127.0.0.1:-1", false, false}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct zr_serve s = {0};
        ck_assert_msg(zr_listen_parse(known[i].text, &s) == known[i].good, "%s", known[i].text);
        if (known[i].good)
            ck_assert_msg(s.loopback == known[i].loopback, "%s", known[i].text);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("watch");
    TCase *t = tcase_create("watch");
    tcase_add_test(t, pods_and_containers_are_known_by_their_cgroup);
    tcase_add_test(t, launchers_and_the_downward_api_name_ranks_and_pods);
    tcase_add_test(t, every_field_of_a_device_or_a_kind_has_a_line_in_the_table_of_metrics);
    tcase_add_test(t, fields_become_families_with_labels);
    tcase_add_test(t, every_call_is_in_one_bucket);
    tcase_add_test(t, counters_of_the_ended_stay_and_gauges_go);
    tcase_add_test(t, a_label_is_whole_or_not_there);
    tcase_add_test(t, a_history_keeps_the_last_values_and_the_highest_between);
    tcase_add_test(t, a_living_job_keeps_its_sums_when_room_is_made);
    tcase_add_test(t, addresses_are_parsed_and_loopback_is_known);
    suite_add_tcase(s, t);
    return run_suite(s);
}
