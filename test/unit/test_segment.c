/* The segment: a layout that readers of other versions rely on, and counts that a reader can trust. */
#include "stats/stats.h"
#include "suite.h"
#include "zeroute/reader.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MIB ((uint64_t)1 << 20)

static char path[320];

/* This process's own segment, as anybody would read it. */
static struct zeroute_snapshot *look(void) {
    char why[256] = "not listed";
    struct zeroute_snapshot *found = NULL;
    struct zeroute_list *list = zeroute_list_new();
    for (size_t i = 0; i < list->count; i++)
        if (list->process[i].pid_inside == getpid() && list->process[i].nonce == zr_segment.header->nonce) {
            found = zeroute_snapshot_new(&list->process[i], why, sizeof why);
            snprintf(path, sizeof path, "%s", list->process[i].path);
        }
    zeroute_list_free(list);
    ck_assert_msg(found != NULL, "%s", why);
    return found;
}

static uint64_t value(const char *name) {
    struct zeroute_snapshot *s = look();
    uint64_t v = zeroute_value(s, name, UINT64_MAX);
    zeroute_snapshot_free(s);
    return v;
}

static uint64_t look_activity(void) {
    struct zeroute_snapshot *s = look();
    uint64_t at = s->last_activity_ns;
    zeroute_snapshot_free(s);
    return at;
}

/* As main of the preload does it. */
static const struct zr_module modules[] = {
    {.fork_child = zr_stats_fork_child, .thread_end = zr_stats_thread_end},
    {.fork_child = zr_libraries_fork_child},
    {.fork_child = zr_host_fork_child},
};

static void open_it(void) {
    ck_assert(zr_stats_open());
    zeroute_snapshot_free(look());
}

static void remove_it(void) {
    if (*path)
        unlink(path);
}

START_TEST(the_layout_is_pinned) {
    /* A change here is a new layout version: readers of the old one must refuse it. */
    ck_assert_uint_eq(ZEROUTE_SEGMENT_LAYOUT, 3);
    ck_assert_uint_eq(sizeof(struct zeroute_segment_field), 256);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_field, unit), 80);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_field, help), 96);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_field, type), 224);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_field, place), 226);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_field, offset), 228);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_field, stride), 232);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_field, count), 236);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_field, minus), 240);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_field, total), 244);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_field, high), 248);
    ck_assert_uint_eq(sizeof(struct zeroute_segment_histogram), 1024);
    ck_assert_uint_eq(sizeof(struct zeroute_segment_text), 16);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, layout), 8);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, header_size), 12);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, file_size), 16);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, pid), 24);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, pid_namespace), 32);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, start_time), 40);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, nonce), 48);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, boot_id), 64);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, run_id), 120);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, job_id), 160);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, command), 272);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, globals_offset), 528);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, fields_offset), 544);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, field_count), 556);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, shards_offset), 560);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, shard_count), 576);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, clock_hz), 608);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, shard_group), 624);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, shard_folds), 632);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, control_size), 636);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, control_offset), 640);
    ck_assert_uint_eq(sizeof(struct zeroute_segment_header), 656);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_control, answer), 4);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_control, answered_ns), 16);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_control, text), 24);
    ck_assert_uint_eq(offsetof(struct zeroute_segment_control, reply), 536);
}
END_TEST

START_TEST(nothing_is_made_before_something_is_counted) {
    ck_assert(!zr_stats_is_open());
    ck_assert_ptr_null(zr_segment.header);
}
END_TEST

START_TEST(the_file_is_the_owners_alone) {
    struct stat st;
    open_it();
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_ge(zr_segment.fd, 100);
    ck_assert_int_eq(fcntl(zr_segment.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}
END_TEST

START_TEST(a_segment_of_another_user_than_the_process_is_not_trusted) {
    struct zeroute_list *list;
    bool found = false;
    if (geteuid() != 0)
        SKIP("only root can give a file away");
    open_it();
    ck_assert_int_eq(chown(path, 12345, (gid_t)-1), 0);
    list = zeroute_list_new();
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->process[i].path, path) == 0) {
            found = true;
            ck_assert(!list->process[i].readable);
            ck_assert_ptr_nonnull(strstr(list->process[i].why, "forged: "));
        }
    ck_assert(found);
    zeroute_list_free(list);
}
END_TEST

START_TEST(no_link_below_another_root_is_followed) {
    char link[64], other[400];
    int fd;
    open_it();
    /* /proc/self/root is our own, and one of its folders is a link now. */
    snprintf(link, sizeof link, "/tmp/zeroute-link.%d", (int)getpid());
    ck_assert_int_eq(symlink("/dev/shm", link), 0);
    snprintf(other, sizeof other, "/proc/self/root%s/%s", link, strrchr(path, '/') + 1);
    ck_assert_int_eq(zeroute_open(other, O_RDONLY), -1);
    ck_assert_int_eq(unlink(link), 0);
    snprintf(other, sizeof other, "/proc/self/root%s", path);
    fd = zeroute_open(other, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    close(fd);
}
END_TEST

START_TEST(every_name_of_the_contract_is_there_before_it_is_used) {
    static const char *const names[] = {"calls.zeMemAllocDevice.plt",
                                        "calls.zeMemAllocDevice.dlsym",
                                        "calls.zeMemAllocDevice.table",
                                        "calls.zeMemAllocDevice.handle",
                                        "calls.aligned_alloc_device.sycl",
                                        "calls.free.sycl",
                                        "calls.pool_malloc.pool",
                                        "calls.pool_free.pool",
                                        "failures.zeMemAllocDevice",
                                        "allocated_bytes.all.current",
                                        "allocated_bytes.all.peak",
                                        "allocated_bytes.all.allocated",
                                        "allocated_bytes.all.freed",
                                        "reserved_bytes.all.current",
                                        "reserved_bytes.all.peak",
                                        "reserved_bytes.all.allocated",
                                        "reserved_bytes.all.freed",
                                        "allocation.all.current",
                                        "allocation.all.peak",
                                        "allocation.all.allocated",
                                        "allocation.all.freed",
                                        "driver.alloc_calls",
                                        "driver.free_calls",
                                        "cache.hits",
                                        "cache.misses",
                                        "cache.returned",
                                        "residency.owner.requested_calls",
                                        "residency.peer.requested_calls",
                                        "residency.peer.requested_bytes",
                                        "residency.peer.skipped_calls",
                                        "residency.peer.skipped_bytes",
                                        "ipc.exports",
                                        "ipc.imports",
                                        "guard.stubs",
                                        "guard.calls",
                                        "virtual_bytes.reserved.current",
                                        "virtual_bytes.mapped.current",
                                        "allocated_bytes.host.peak",
                                        "virtual_bytes.mapped.peak",
                                        "imported_bytes.all.peak",
                                        "latency.zeMemAllocDevice.p50_ns",
                                        "latency.zeMemAllocDevice.p99_ns",
                                        "latency.zeMemAllocDevice.max_ns",
                                        "free.policy.default",
                                        "free.policy.blocking",
                                        "free.policy.defer",
                                        "settings",
                                        "route.in_force"};
    open_it();
    struct zeroute_snapshot *s = look();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_msg(zeroute_find(s, names[i]) != NULL, "no field %s", names[i]);
    for (size_t i = 0; i < s->field_count; i++)
        for (size_t o = 0; o < i; o++)
            ck_assert_msg(strcmp(s->field[i].name, s->field[o].name) != 0, "%s twice", s->field[i].name);
    /* What the system does not offer is absent, not zero. */
    zeroute_snapshot_free(s);
    zr_gauge(ZR_G_HOST_CGROUP, ZEROUTE_ABSENT);
    ck_assert_uint_eq(value("host.cgroup_bytes"), UINT64_MAX);
    zr_gauge(ZR_G_HOST_CGROUP, 7);
    ck_assert_uint_eq(value("host.cgroup_bytes"), 7);
}
END_TEST

START_TEST(memory_is_booked_by_kind_and_by_device) {
    zr_book(ZR_KIND_DEVICE, 0, 3 * MIB);
    zr_book(ZR_KIND_DEVICE, 2, 5 * MIB);
    zr_book(ZR_KIND_SHARED, 2, MIB);
    zr_book(ZR_KIND_HOST, 0, 7 * MIB);
    zr_book(ZR_KIND_PHYSICAL, 0, 2 * MIB);
    zr_book(ZR_KIND_VIRTUAL, 0, 64 * MIB);
    zr_unbook(ZR_KIND_DEVICE, 0, 3 * MIB);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 8 * MIB);
    ck_assert_uint_eq(value("allocated_bytes.all.peak"), 11 * MIB);
    ck_assert_uint_eq(value("allocated_bytes.all.allocated"), 11 * MIB);
    ck_assert_uint_eq(value("allocated_bytes.all.freed"), 3 * MIB);
    ck_assert_uint_eq(value("allocation.all.current"), 3);
    ck_assert_uint_eq(value("allocation.all.peak"), 4);
    ck_assert_uint_eq(value("device.0.allocated_bytes.all.current"), 2 * MIB);
    ck_assert_uint_eq(value("device.0.allocated_bytes.all.peak"), 5 * MIB);
    ck_assert_uint_eq(value("device.2.allocated_bytes.all.current"), 6 * MIB);
    ck_assert_uint_eq(value("device.1.allocated_bytes.all.current"), UINT64_MAX);
    ck_assert_uint_eq(value("allocated_bytes.host.current"), 7 * MIB);
    ck_assert_uint_eq(value("allocated_bytes.shared.current"), MIB);
    ck_assert_uint_eq(value("allocated_bytes.physical.current"), 2 * MIB);
    ck_assert_uint_eq(value("virtual_bytes.reserved.current"), 64 * MIB);
}
END_TEST

START_TEST(a_peak_of_one_thread_is_exact_however_it_comes_about) {
    uint64_t now = 0, peak = 0, live[64];
    unsigned n = 0, seed = 7;
    for (int i = 0; i < 200000; i++) {
        seed = seed * 1103515245 + 12345;
        bool up = n == 0 || (n < 64 && (seed >> 16) % 2);
        if (up) {
            live[n] = 1 + (seed >> 8) % (40 * MIB);
            now += live[n];
            zr_book(ZR_KIND_DEVICE, 1, live[n++]);
            peak = now > peak ? now : peak;
        } else {
            now -= live[--n];
            zr_unbook(ZR_KIND_DEVICE, 1, live[n]);
        }
        if (i % 50000 == 0)
            ck_assert_uint_eq(value("allocated_bytes.all.peak"), peak);
    }
    ck_assert_uint_eq(value("allocated_bytes.all.peak"), peak);
    ck_assert_uint_eq(value("device.1.allocated_bytes.all.peak"), peak);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), now);
}
END_TEST

START_TEST(more_freed_than_allocated_reads_as_zero) {
    zr_unbook(ZR_KIND_DEVICE, 0, 5 * MIB);
    zr_book_reserved(0, -(int64_t)MIB);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 0);
    ck_assert_uint_eq(value("allocation.all.current"), 0);
    ck_assert_uint_eq(value("allocated_bytes.all.peak"), 0);
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 0);
    ck_assert_uint_eq(value("reserved_bytes.all.peak"), 0);
}
END_TEST

#define THREADS 16
#define ROUNDS 20000
static pthread_barrier_t together;

static void *busy(void *unused) {
    (void)unused;
    pthread_barrier_wait(&together);
    for (int i = 0; i < ROUNDS; i++) {
        zr_count_call(ZR_E_zeMemAllocDevice, ZR_VIA_DLSYM);
        zr_book(ZR_KIND_DEVICE, 0, MIB);
        zr_count_caller(zr_library_of((const void *)(uintptr_t)busy), ZR_CALLER_CALLS, 1);
        zr_count_caller(zr_library_of((const void *)(uintptr_t)busy), ZR_CALLER_BYTES, MIB);
        zr_unbook(ZR_KIND_DEVICE, 0, MIB);
        if (i % 100 == 0)
            zr_time_call(ZR_E_zeMemFree, 1, zr_now(), 1);
    }
    return NULL;
}

static void run_threads(unsigned n) {
    pthread_t t[512];
    pthread_barrier_init(&together, NULL, n);
    for (unsigned i = 0; i < n; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, busy, NULL), 0);
    for (unsigned i = 0; i < n; i++)
        pthread_join(t[i], NULL);
}

START_TEST(threads_lose_nothing_and_their_shards_are_used_again) {
    run_threads(THREADS);
    run_threads(THREADS);
    ck_assert_uint_eq(value("calls.zeMemAllocDevice.dlsym"), 2 * THREADS * ROUNDS);
    ck_assert_uint_eq(value("allocation.all.allocated"), 2 * THREADS * ROUNDS);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 0);
    ck_assert_uint_eq(value("latency.zeMemFree.calls"), 2 * THREADS * ROUNDS / 100);
    ck_assert_uint_le(zr_segment.header->shard_count, THREADS + 2);
    uint64_t peak = value("allocated_bytes.all.peak");
    ck_assert_uint_ge(peak, MIB);
    ck_assert_uint_le(peak, THREADS * MIB);
}
END_TEST

START_TEST(more_threads_than_shards_share_one_and_lose_nothing) {
    run_threads(300);
    ck_assert_uint_eq(value("calls.zeMemAllocDevice.dlsym"), 300ull * ROUNDS);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 0);
    ck_assert_uint_eq(value("allocated_bytes.all.freed"), 300ull * ROUNDS * MIB);
}
END_TEST

static void *take(void *unused) {
    (void)unused;
    for (int i = 0; i < 1000; i++)
        zr_book(ZR_KIND_DEVICE, 0, MIB);
    return NULL;
}

static void *give(void *unused) {
    (void)unused;
    for (int i = 0; i < 1000; i++)
        zr_unbook(ZR_KIND_DEVICE, 0, MIB);
    return NULL;
}

START_TEST(one_thread_may_free_what_another_allocated) {
    pthread_t t;
    for (int round = 0; round < 5; round++) {
        pthread_create(&t, NULL, take, NULL);
        pthread_join(t, NULL);
        ck_assert_uint_eq(value("allocated_bytes.all.current"), 1000 * MIB);
        pthread_create(&t, NULL, give, NULL);
        pthread_join(t, NULL);
        ck_assert_uint_eq(value("allocated_bytes.all.current"), 0);
    }
    ck_assert_uint_eq(value("allocated_bytes.all.peak"), 1000 * MIB);
}
END_TEST

/* reroute caches: what is reserved has books of its own. */
START_TEST(reserved_is_never_below_allocated) {
    zr_book_reserved(0, 3 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 3 * MIB);
    zr_book(ZR_KIND_DEVICE, 0, 5 * MIB); /* as if it was read in between */
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 5 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.peak"), 5 * MIB);
    ck_assert_uint_eq(value("device.0.reserved_bytes.all.current"), 5 * MIB);
    zr_unbook(ZR_KIND_DEVICE, 0, 5 * MIB);
    zr_book_reserved(0, -(int64_t)MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 2 * MIB);
    ck_assert_uint_eq(value("device.0.reserved_bytes.all.peak"), 5 * MIB);
}
END_TEST

START_TEST(without_a_cache_reserved_is_allocated) {
    setenv("ZEROUTE_CONF", "preset:observe", 1);
    zr_book(ZR_KIND_DEVICE, 0, 5 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 5 * MIB);
    zr_unbook(ZR_KIND_DEVICE, 0, 2 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.current"), 3 * MIB);
    ck_assert_uint_eq(value("device.0.reserved_bytes.all.current"), 3 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.peak"), 5 * MIB);
    ck_assert_uint_eq(value("reserved_bytes.all.freed"), 2 * MIB);
}
END_TEST

static void *turn_over(void *stop) {
    while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED)) {
        for (int i = 0; i < 4; i++) {
            uint64_t bytes = i < 2 ? 20 * MIB : 100;
            struct timespec pause = {.tv_nsec = 20000};
            if (i % 2)
                zr_unbook(ZR_KIND_DEVICE, 1, bytes);
            else
                zr_book(ZR_KIND_DEVICE, 1, bytes);
            nanosleep(&pause, NULL); /* a driver would take its time, too */
        }
    }
    return NULL;
}

/* A booking is one critical section: whoever reads in the middle of it sees the state before or after. */
START_TEST(a_reader_never_sees_half_a_booking) {
    bool stop = false;
    unsigned torn = 0;
    pthread_t t;
    open_it();
    ck_assert_int_eq(pthread_create(&t, NULL, turn_over, &stop), 0);
    for (int i = 0; i < 2000; i++) {
        char why[256];
        struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
        ck_assert_msg(s != NULL, "%s", why);
        if (s->torn) { /* the writer has lost its processor: it happens */
            torn++;
            zeroute_snapshot_free(s);
            continue;
        }
        uint64_t now = zeroute_value(s, "allocated_bytes.all.current", 1);
        uint64_t blocks = zeroute_value(s, "allocation.all.current", 9);
        ck_assert_msg(now == 0 || now == 100 || now == 20 * MIB, "%llu", (unsigned long long)now);
        ck_assert_uint_eq(blocks, now != 0);
        ck_assert_uint_eq(now, zeroute_value(s, "allocated_bytes.all.allocated", 1) -
                                   zeroute_value(s, "allocated_bytes.all.freed", 1));
        uint64_t peak = zeroute_value(s, "allocated_bytes.all.peak", 1);
        ck_assert_msg(peak == 0 || peak == 20 * MIB, "%llu", (unsigned long long)peak);
        zeroute_snapshot_free(s);
    }
    ck_assert_uint_lt(torn, 1000);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(t, NULL);
}
END_TEST

#define BATCH ((int64_t)ZR_BATCH_BYTES)
#define LARGE ((uint64_t)ZR_BATCH_BYTES + 4 * MIB) /* it is folded at once */
static _Atomic unsigned half_done, unmarked, too_high;

/* Runs in the middle of whatever the thread was at. It is the only one that books. */
static void interrupt(int unused) {
    const struct zr_shard *s = zr_thread.stats.shard;
    const struct zr_cell *c = &s->on_device[1][ZR_KIND_DEVICE];
    (void)unused;
    for (unsigned i = 0; i < 2; i++) {
        unsigned account = i ? ZR_ACCOUNT_ALL : ZR_ACCOUNT_DEVICE + 1;
        const struct zr_total *t = &zr_segment.globals->total[account];
        const struct zr_level *l = &s->level[account];
        if ((int64_t)(c->allocated - c->freed) != t->now + l->level) {
            half_done++;
            unmarked += !(s->generation & 1);
        }
        too_high += l->level >= BATCH || l->level <= -BATCH || l->high >= BATCH;
    }
}

static void *never_rest(void *stop) {
    while (!__atomic_load_n((bool *)stop, __ATOMIC_RELAXED)) {
        zr_book(ZR_KIND_DEVICE, 1, LARGE);
        zr_unbook(ZR_KIND_DEVICE, 1, LARGE);
    }
    return NULL;
}

/* No two of its words may ever be read together; what is read is true all the same, but for a batch. */
START_TEST(a_process_that_never_rests_is_read_within_a_batch_and_in_time) {
    bool stop = false;
    double shortest = 1e9;
    pthread_t t;
    open_it();
    ck_assert_int_eq(pthread_create(&t, NULL, never_rest, &stop), 0);
    for (int i = 0; i < 20; i++) {
        char why[256];
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
        clock_gettime(CLOCK_MONOTONIC, &to);
        ck_assert_msg(s != NULL, "%s", why);
        ck_assert_uint_lt(zeroute_value(s, "allocated_bytes.all.current", UINT64_MAX), LARGE + MIB);
        ck_assert_uint_lt(zeroute_value(s, "allocated_bytes.all.peak", UINT64_MAX), LARGE + MIB);
        ck_assert_uint_le(zeroute_value(s, "allocation.all.peak", UINT64_MAX), 64);
        double ms = (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
        shortest = ms < shortest ? ms : shortest;
        zeroute_snapshot_free(s);
    }
    ck_assert_msg(shortest < 500, "%.0f ms", shortest); /* 50 and a busy machine */
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(t, NULL);
}
END_TEST

static void *begin_with_a_large_block(void *unused) {
    (void)unused;
    zr_book(ZR_KIND_DEVICE, 1, LARGE);
    pthread_barrier_wait(&together);
    return NULL;
}

/* A reader that knows of no shard of the thread yet must not add what it has folded already. */
START_TEST(threads_that_begin_while_they_are_read_are_read_whole) {
    pthread_t t[64];
    open_it();
    pthread_barrier_init(&together, NULL, 65);
    for (int i = 0; i < 64; i++) {
        char why[256];
        ck_assert_int_eq(pthread_create(&t[i], NULL, begin_with_a_large_block, NULL), 0);
        for (int k = 0; k < 5; k++) {
            struct zeroute_snapshot *s = zeroute_snapshot_of_file(path, why, sizeof why);
            ck_assert_msg(s != NULL, "%s", why);
            if (!s->torn)
                ck_assert_uint_eq(zeroute_value(s, "allocation.all.current", 9) * LARGE,
                                  zeroute_value(s, "allocated_bytes.all.current", 1));
            zeroute_snapshot_free(s);
        }
    }
    pthread_barrier_wait(&together);
    for (int i = 0; i < 64; i++)
        pthread_join(t[i], NULL);
}
END_TEST

START_TEST(half_a_booking_is_marked_wherever_it_is_interrupted) {
    bool stop = false;
    pthread_t t;
    open_it();
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer delivers signals at places of its own");
#endif
    zr_book(ZR_KIND_DEVICE, 1, 0); /* its fields are described */
    zr_unbook(ZR_KIND_DEVICE, 1, 0);
    zr_stats_thread_end();
    signal(SIGUSR1, interrupt);
    ck_assert_int_eq(pthread_create(&t, NULL, never_rest, &stop), 0);
    while (__atomic_load_n(&zr_segment_shard(1)->generation, __ATOMIC_RELAXED) < 1000)
        sched_yield();
    for (int i = 0; i < 5000000 && half_done < 100; i++)
        pthread_kill(t, SIGUSR1);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(t, NULL);
    ck_assert_uint_ge(half_done, 100);
    ck_assert_uint_eq(unmarked, 0);
    ck_assert_uint_eq(too_high, 0);
}
END_TEST

START_TEST(a_booking_that_never_ends_is_waited_for_in_vain_but_not_for_long) {
    open_it();
    zr_book(ZR_KIND_DEVICE, 0, MIB);
    zr_thread.stats.shard->generation++;
    struct zeroute_snapshot *s = look();
    ck_assert(s->torn);
    ck_assert_uint_eq(zeroute_value(s, "allocated_bytes.all.current", 0), MIB);
    zeroute_snapshot_free(s);
    zr_thread.stats.shard->generation++;
    s = look();
    ck_assert(!s->torn);
    zeroute_snapshot_free(s);
}
END_TEST

static pthread_barrier_t all_claimed, all_done;

static void *claim_and_wait(void *unused) {
    (void)unused;
    zr_count(ZR_F_CACHE_HITS, 1);
    pthread_barrier_wait(&all_claimed);
    pthread_barrier_wait(&all_done);
    return NULL;
}

static void *take_in_the_shared_shard(void *unused) {
    (void)unused;
    for (int i = 0; i < 200000; i++) {
        zr_book(ZR_KIND_DEVICE, 0, 3);
        zr_count(ZR_F_CACHE_MISSES, 1);
    }
    ck_assert(zr_thread.stats.shared && !zr_thread.stats.shard);
    return NULL;
}

START_TEST(threads_that_share_a_shard_lose_nothing) {
    pthread_t t[ZR_SHARDS - 1], shared[4];
    open_it();
    pthread_barrier_init(&all_claimed, NULL, ZR_SHARDS);
    pthread_barrier_init(&all_done, NULL, ZR_SHARDS);
    for (int i = 0; i < ZR_SHARDS - 1; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, claim_and_wait, NULL), 0);
    pthread_barrier_wait(&all_claimed);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&shared[i], NULL, take_in_the_shared_shard, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(shared[i], NULL);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), 4 * 200000 * 3);
    ck_assert_uint_eq(value("allocated_bytes.all.allocated"), 4 * 200000 * 3);
    ck_assert_uint_eq(value("allocated_bytes.all.peak"), 4 * 200000 * 3);
    ck_assert_uint_eq(value("allocation.all.peak"), 4 * 200000);
    ck_assert_uint_eq(value("cache.misses"), 4 * 200000);
    pthread_barrier_wait(&all_done);
    for (int i = 0; i < ZR_SHARDS - 1; i++)
        pthread_join(t[i], NULL);
}
END_TEST

START_TEST(callers_are_counted_by_library) {
    const struct zr_library *program = zr_library_of((const void *)(uintptr_t)take);
    const struct zr_library *libc = zr_library_of((const void *)(uintptr_t)getenv);
    const struct zr_library *unknown = zr_library_of((const void *)(uintptr_t)16);
    ck_assert_str_eq(libc->name, "libc.so.6");
    ck_assert_str_eq(unknown->name, "unknown");
    ck_assert(program != libc && libc == zr_library_of((const void *)(uintptr_t)setenv));
    ck_assert(!libc->is_adapter && !libc->is_loader);
    zr_count_caller(libc, ZR_CALLER_CALLS, 1);
    zr_count_caller(libc, ZR_CALLER_BYTES, 10);
    ck_assert_uint_eq(value("callers.unknown.bytes"), UINT64_MAX);
    zr_count_caller(unknown, ZR_CALLER_CALLS, 1);
    ck_assert_uint_eq(value("callers.unknown.bytes"), 0);
    zr_count_caller(libc, ZR_CALLER_CALLS, 1);
    zr_count_caller(libc, ZR_CALLER_BYTES, 20);
    zr_count_caller(unknown, ZR_CALLER_BYTES, 5);
    zr_count_caller(libc, ZR_CALLER_SKIPPED_CALLS, 1);
    zr_count_caller(libc, ZR_CALLER_SKIPPED_BYTES, 3);
    ck_assert_uint_eq(value("callers.libc.so.6.calls"), 2);
    ck_assert_uint_eq(value("callers.libc.so.6.bytes"), 30);
    ck_assert_uint_eq(value("callers.libc.so.6.skipped_calls"), 1);
    ck_assert_uint_eq(value("callers.libc.so.6.skipped_bytes"), 3);
    ck_assert_uint_eq(value("callers.unknown.bytes"), 5);
    ck_assert_uint_eq(value("callers.unknown.skipped_calls"), UINT64_MAX);
}
END_TEST

START_TEST(a_library_that_is_gone_is_not_named_any_more) {
    void *handle = dlopen("libz.so.1", RTLD_NOW);
    if (!handle)
        SKIP("no libz.so.1 to load and unload");
    void *address = dlsym(handle, "deflate");
    ck_assert_str_eq(zr_library_of(address)->name, "libz.so.1");
    zr_count_caller(zr_library_of(address), ZR_CALLER_CALLS, 1);
    dlclose(handle);
    if (dlopen("libz.so.1", RTLD_NOW | RTLD_NOLOAD))
        SKIP("libz.so.1 stays loaded");
    for (int i = 0; i < 1025; i++)
        zr_library_of(address);
    ck_assert_str_eq(zr_library_of(address)->name, "unknown");
    handle = dlopen("libz.so.1", RTLD_NOW);
    address = dlsym(handle, "deflate");
    for (int i = 0; i < 1025; i++)
        zr_library_of(address);
    ck_assert_str_eq(zr_library_of(address)->name, "libz.so.1");
    zr_count_caller(zr_library_of(address), ZR_CALLER_CALLS, 1);
    ck_assert_uint_eq(value("callers.libz.so.1.calls"), 2);
}
END_TEST

START_TEST(slow_calls_are_all_timed_and_quick_ones_sampled_and_none_is_lost) {
    unsigned timed = 0;
    open_it();
    for (int i = 0; i < 100000; i++) {
        uint32_t weight = zr_time_weight(ZR_E_zeMemFree, 4096);
        if (!weight)
            continue;
        timed++;
        zr_time_call(ZR_E_zeMemFree, 4096, zr_now(), weight);
    }
    ck_assert_uint_ge(timed, 64 + 100000 / 192);
    ck_assert_uint_le(timed, 10000); /* a busy machine makes some of them slow, which begins anew */
    uint64_t calls = value("latency.zeMemFree.calls");
    ck_assert_uint_ge(calls, 100000 - 192);
    ck_assert_uint_le(calls, 100000);
    for (int i = 0; i < 1000; i++) {
        ck_assert_uint_eq(zr_time_weight(ZR_E_zeMemAllocDevice, 1 << 20), 1);
        zr_time_call(ZR_E_zeMemAllocDevice, 1 << 20, zr_now() - 2500, 1);
    }
    ck_assert_uint_eq(value("latency.zeMemAllocDevice.calls"), 1000);
    /* Another size of a quick entry point is not known to be quick. */
    ck_assert_uint_eq(zr_time_weight(ZR_E_zeMemFree, 1 << 20), 1);
    ck_assert_uint_gt(look_activity(), 0);
}
END_TEST

START_TEST(one_slow_call_ends_the_sampling_of_its_size) {
    open_it();
    for (int i = 0; i < 100000 && zr_time_weight(ZR_E_zeMemFree, 64); i++)
        zr_time_call(ZR_E_zeMemFree, 64, zr_now(), 1);
    ck_assert_uint_eq(zr_time_weight(ZR_E_zeMemFree, 64), 0);
    zr_time_call(ZR_E_zeMemFree, 64, zr_now() - 1000000, 1);
    for (int i = 0; i < 63; i++) {
        ck_assert_uint_eq(zr_time_weight(ZR_E_zeMemFree, 64), 1);
        zr_time_call(ZR_E_zeMemFree, 64, zr_now(), 1);
    }
}
END_TEST

START_TEST(failures_are_counted_by_entry_and_by_code_and_book_nothing) {
    zr_count_failure(ZR_E_zeMemAllocDevice, 0x70000003);
    zr_count_failure(ZR_E_zeMemAllocDevice, 0x70000003);
    zr_count_failure(ZR_E_zeMemFree, 0x78000004);
    ck_assert_uint_eq(value("failures.zeMemAllocDevice"), 2);
    ck_assert_uint_eq(value("failures.code.0x70000003"), 2);
    ck_assert_uint_eq(value("failures.code.0x78000004"), 1);
    ck_assert_uint_eq(value("allocated_bytes.all.allocated"), 0);
}
END_TEST

START_TEST(names_given_at_run_time_are_made_once_and_run_out_gently) {
    int a = zr_named("guard.calls.zeFoo", "", "x");
    ck_assert_int_ge(a, 0);
    ck_assert_int_eq(zr_named("guard.calls.zeFoo", "", "x"), a);
    zr_count_named(a, 3);
    ck_assert_uint_eq(value("guard.calls.zeFoo"), 3);
    int last = 0;
    for (int i = 0; i < 2 * ZR_DYNAMIC; i++) {
        char name[64];
        snprintf(name, sizeof name, "test.%d", i);
        last = zr_named(name, "", "x");
        zr_count_named(last, 1);
    }
    ck_assert_int_eq(last, -1);
    ck_assert_uint_eq(value("guard.calls.zeFoo"), 3);
}
END_TEST

START_TEST(texts_and_the_fingerprint_can_be_read) {
    setenv("UR_L0_TEST", "1", 1);
    setenv("NEOReadDebugKeys", "1", 1);
    setenv("EnableDeferBacking", "0", 1);
    setenv("HOMEWORK", "no", 1);
    open_it();
    zr_text(ZR_T_ROUTE, "pool");
    zr_text(ZR_T_ROUTE, "sycl");
    zr_fingerprint_note("driver.version", "1.6.33578");
    struct zeroute_snapshot *s = look();
    ck_assert_str_eq(zeroute_find(s, "route.in_force")->text, "sycl");
    ck_assert_ptr_nonnull(strstr(zeroute_find(s, "settings")->text, "route:auto"));
    ck_assert_str_eq(zeroute_fact(s, "driver.version"), "1.6.33578");
    ck_assert_str_eq(zeroute_fact(s, "env.UR_L0_TEST"), "1");
    ck_assert_str_eq(zeroute_fact(s, "env.EnableDeferBacking"), "0");
    ck_assert_ptr_nonnull(zeroute_fact(s, "kernel.release"));
    ck_assert_ptr_null(zeroute_fact(s, "env.HOMEWORK"));
    ck_assert_ptr_null(zeroute_fact(s, "env.HOME"));
    zeroute_snapshot_free(s);
}
END_TEST

static atomic_bool changes, walks;

static bool linger(const struct zr_elf *elf, void *unused) {
    (void)elf, (void)unused;
    usleep(300);
    return false;
}

static void *walk_libraries(void *unused) {
    (void)unused;
    while (walks)
        zr_elf_each(linger, NULL);
    return NULL;
}

static int no_library(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)info, (void)size, (void)unused;
    return 0;
}

/* The dynamic linker's lock would be held for ever in the child, by a thread that is not there. */
START_TEST(a_fork_while_a_thread_walks_the_libraries_leaves_the_child_able_to) {
    pthread_t thread;
    zr_fork_arm();
    walks = true;
    ck_assert_int_eq(pthread_create(&thread, NULL, walk_libraries, NULL), 0);
    for (int i = 0; i < 50; i++) {
        int status;
        usleep(500);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(dl_iterate_phdr(no_library, NULL));
        }
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(status == 0, "child %d: status %#x", i, (unsigned)status);
    }
    walks = false;
    pthread_join(thread, NULL);
}
END_TEST

/* Each new variable makes the list longer; the memory of the old one is used for something else. */
static void *change_environment(void *unused) {
    char name[32];
    (void)unused;
    while (changes) {
        clearenv();
        for (int i = 1; i < 1000; i++) {
            snprintf(name, sizeof name, "ZE_TEST_%d", i);
            setenv(name, "1", 1);
            for (size_t size = (size_t)i * 8; size < (size_t)i * 8 + 48; size += 16) {
                char *p = malloc(size);
                memset(p, 'x', size);
                free(p);
            }
        }
    }
    return NULL;
}

START_TEST(the_environment_may_change_while_the_fingerprint_is_made) {
    pthread_t thread;
    open_it();
    changes = true;
    ck_assert_int_eq(pthread_create(&thread, NULL, change_environment, NULL), 0);
    for (int i = 0; i < 500; i++)
        zr_fingerprint_refresh();
    changes = false;
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_forked_child_starts_with_nothing_and_leaves_the_parents_alone) {
    zr_book(ZR_KIND_DEVICE, 0, MIB);
    uint64_t nonce = zr_segment.header->nonce;
    pid_t child = fork();
    if (child == 0) {
        zr_fork_check();
        bool clean = zr_segment.header == NULL && !zr_stats_is_open();
        zr_book(ZR_KIND_DEVICE, 0, 7 * MIB);
        clean &= zr_segment.header->nonce != nonce && zr_segment.header->pid == (uint32_t)getpid();
        clean &= value("allocated_bytes.all.current") == 7 * MIB;
        remove_it();
        _exit(clean ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), MIB);
    ck_assert_uint_eq(zr_segment.header->nonce, nonce);
}
END_TEST

START_TEST(a_child_of_raw_clone_is_seen_too) {
    zr_book(ZR_KIND_DEVICE, 0, MIB);
    uint64_t nonce = zr_segment.header->nonce;
    long child = syscall(SYS_clone, 17 /* SIGCHLD */, NULL, NULL, NULL, NULL);
    if (child == 0) {
        zr_fork_check();
        bool clean = zr_segment.header == NULL;
        zr_book(ZR_KIND_DEVICE, 0, 7 * MIB);
        clean &= zr_segment.header->nonce != nonce;
        char own[96];
        snprintf(own, sizeof own, "/dev/shm/zeroute.%d.%016llx", (int)syscall(SYS_getpid),
                 (unsigned long long)zr_segment.header->nonce);
        unlink(own);
        _exit(clean ? 0 : 1);
    }
    int status;
    waitpid((pid_t)child, &status, 0);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_uint_eq(value("allocated_bytes.all.current"), MIB);
}
END_TEST

START_TEST(a_small_limit_for_files_kills_nobody) {
    struct rlimit limit = {100000, 100000};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert(!zr_stats_open());
    zr_book(ZR_KIND_DEVICE, 0, MIB);
    zr_count_caller(zr_library_of((const void *)(uintptr_t)take), ZR_CALLER_CALLS, 1);
    ck_assert_ptr_null(zr_segment.header);
}
END_TEST

START_TEST(errno_is_as_the_caller_left_it) {
    errno = 4711;
    zr_count_call(ZR_E_zeMemFree, ZR_VIA_PLT);
    zr_count_caller(zr_library_of((const void *)(uintptr_t)take), ZR_CALLER_CALLS, 1);
    zr_fingerprint_note("a", "b");
    zr_warn("errno_is_as_the_caller_left_it: this line belongs to a test");
    ck_assert_int_eq(errno, 4711);
    zeroute_snapshot_free(look());
}
END_TEST

int main(void) {
    Suite *s = suite_create("segment");
    zr_lifecycle_modules(modules, sizeof modules / sizeof *modules);
    TCase *t = tcase_create("segment");
    tcase_add_checked_fixture(t, NULL, remove_it);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, the_layout_is_pinned);
    tcase_add_test(t, nothing_is_made_before_something_is_counted);
    tcase_add_test(t, the_file_is_the_owners_alone);
    tcase_add_test(t, a_segment_of_another_user_than_the_process_is_not_trusted);
    tcase_add_test(t, no_link_below_another_root_is_followed);
    tcase_add_test(t, every_name_of_the_contract_is_there_before_it_is_used);
    tcase_add_test(t, memory_is_booked_by_kind_and_by_device);
    tcase_add_test(t, a_peak_of_one_thread_is_exact_however_it_comes_about);
    tcase_add_test(t, more_freed_than_allocated_reads_as_zero);
    tcase_add_test(t, threads_lose_nothing_and_their_shards_are_used_again);
    tcase_add_test(t, more_threads_than_shards_share_one_and_lose_nothing);
    tcase_add_test(t, one_thread_may_free_what_another_allocated);
    tcase_add_test(t, reserved_is_never_below_allocated);
    tcase_add_test(t, without_a_cache_reserved_is_allocated);
    tcase_add_test(t, a_reader_never_sees_half_a_booking);
    tcase_add_test(t, a_process_that_never_rests_is_read_within_a_batch_and_in_time);
    tcase_add_test(t, threads_that_begin_while_they_are_read_are_read_whole);
    tcase_add_test(t, half_a_booking_is_marked_wherever_it_is_interrupted);
    tcase_add_test(t, a_booking_that_never_ends_is_waited_for_in_vain_but_not_for_long);
    tcase_add_test(t, threads_that_share_a_shard_lose_nothing);
    tcase_add_test(t, callers_are_counted_by_library);
    tcase_add_test(t, a_library_that_is_gone_is_not_named_any_more);
    tcase_add_test(t, slow_calls_are_all_timed_and_quick_ones_sampled_and_none_is_lost);
    tcase_add_test(t, one_slow_call_ends_the_sampling_of_its_size);
    tcase_add_test(t, failures_are_counted_by_entry_and_by_code_and_book_nothing);
    tcase_add_test(t, names_given_at_run_time_are_made_once_and_run_out_gently);
    tcase_add_test(t, texts_and_the_fingerprint_can_be_read);
    tcase_add_test(t, a_fork_while_a_thread_walks_the_libraries_leaves_the_child_able_to);
    tcase_add_test(t, the_environment_may_change_while_the_fingerprint_is_made);
    tcase_add_test(t, a_forked_child_starts_with_nothing_and_leaves_the_parents_alone);
    tcase_add_test(t, a_child_of_raw_clone_is_seen_too);
    tcase_add_test(t, a_small_limit_for_files_kills_nobody);
    tcase_add_test(t, errno_is_as_the_caller_left_it);
    suite_add_tcase(s, t);
    return run_suite(s);
}
