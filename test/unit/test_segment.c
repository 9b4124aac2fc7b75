/* The segment: a layout that readers of other versions rely on, what it names, and who may read and make it. */
#include "segment.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static uint64_t look_activity(void) {
    struct zeroute_snapshot *s = look();
    uint64_t at = s->last_activity_ns;
    zeroute_snapshot_free(s);
    return at;
}

START_TEST(the_layout_is_pinned) {
    /* A change here is a new layout version: readers of the old one must refuse it. */
    ck_assert_uint_eq(ZEROUTE_SEGMENT_LAYOUT, 4);
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
    ck_assert_uint_eq(offsetof(struct zeroute_segment_header, group), 656);
    ck_assert_uint_eq(sizeof(struct zeroute_segment_header), 664);
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
    ck_assert_int_ge(zr_segment.file.fd, 64);
    ck_assert_int_eq(fcntl(zr_segment.file.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
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
    snprintf(other, sizeof other, "/proc/self/root%s/%s", link, path + strlen("/dev/shm/"));
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
    /* What was never told is absent, not zero. */
    zeroute_snapshot_free(s);
    zr_gauge(ZR_G_LEFT_BYTES, ZEROUTE_ABSENT);
    ck_assert_uint_eq(value("left.bytes"), UINT64_MAX);
    zr_gauge(ZR_G_LEFT_BYTES, 7);
    ck_assert_uint_eq(value("left.bytes"), 7);
}
END_TEST

START_TEST(callers_are_counted_by_library) {
    const struct zr_library *program = zr_library_of((const void *)(uintptr_t)open_it);
    const struct zr_library *libc = zr_library_of((const void *)(uintptr_t)getenv);
    const struct zr_library *unknown = zr_library_of((const void *)(uintptr_t)16);
    ck_assert_str_eq(libc->name, "libc.so.6");
    ck_assert_str_eq(unknown->name, "unknown");
    ck_assert(program != libc && libc == zr_library_of((const void *)(uintptr_t)setenv));
    ck_assert(zr_library_who(libc) == ZR_WHO_PROGRAM);
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
        unlink(zr_segment.path);
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
    zr_count_caller(zr_library_of((const void *)(uintptr_t)open_it), ZR_CALLER_CALLS, 1);
    ck_assert_ptr_null(zr_segment.header);
}
END_TEST

START_TEST(errno_is_as_the_caller_left_it) {
    errno = 4711;
    zr_count_call(ZR_E_zeMemFree, ZR_VIA_PLT);
    zr_count_caller(zr_library_of((const void *)(uintptr_t)open_it), ZR_CALLER_CALLS, 1);
    zr_fingerprint_note("a", "b");
    zr_warn("errno_is_as_the_caller_left_it: this line belongs to a test");
    ck_assert_int_eq(errno, 4711);
    zeroute_snapshot_free(look());
}
END_TEST
int main(void) {
    Suite *s = suite_create("segment");
    TCase *t = segment_case(s);
    tcase_add_test(t, the_layout_is_pinned);
    tcase_add_test(t, nothing_is_made_before_something_is_counted);
    tcase_add_test(t, the_file_is_the_owners_alone);
    tcase_add_test(t, a_segment_of_another_user_than_the_process_is_not_trusted);
    tcase_add_test(t, no_link_below_another_root_is_followed);
    tcase_add_test(t, every_name_of_the_contract_is_there_before_it_is_used);
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
    return run_suite(s);
}
