/* Promises of tools/common/host.c, on machines laid out in a folder. */
#include "common/common.h"
#include "root.h"
#include "suite.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void machine(void) {
    make_root();
    setenv("ZEROUTE_ROOT", root, 1);
}

static void clear(void) {
    clear_root();
}

START_TEST(meminfo_tells_gpu_memory_where_the_kernel_does) {
    struct zr_meminfo m;

    lay("/proc/meminfo", "MemTotal:       63411580 kB\nMemFree: 1 kB\nMemAvailable:   21930336 kB\n"
                         "GPUActive:         81108 kB\nGPUReclaim:     24407784 kB\n");
    ck_assert(zr_meminfo_read(&m));
    ck_assert_uint_eq(m.total, UINT64_C(63411580) << 10);
    ck_assert_uint_eq(m.available, UINT64_C(21930336) << 10);
    ck_assert_uint_eq(m.gpu_active, UINT64_C(81108) << 10);
    ck_assert_uint_eq(m.gpu_reclaim, UINT64_C(24407784) << 10);
}
END_TEST

START_TEST(what_the_kernel_does_not_offer_is_absent_and_not_zero) {
    struct zr_meminfo m;
    struct zr_process_memory p;

    lay("/proc/meminfo", "MemTotal: 100 kB\nMemAvailable: 0 kB\n");
    ck_assert(zr_meminfo_read(&m));
    ck_assert_uint_eq(m.available, 0);
    ck_assert_uint_eq(m.gpu_active, ZR_ABSENT);
    ck_assert_uint_eq(m.gpu_reclaim, ZR_ABSENT);
    lay("/proc/7/status", "Name:\tkthread\n");
    lay("/proc/7/fdinfo/0", "pos:\t0\nflags:\t02\n");
    ck_assert(zr_process_memory_read(7, &p));
    ck_assert_uint_eq(p.rss, ZR_ABSENT);
    ck_assert_uint_eq(p.cgroup_current, ZR_ABSENT);
    ck_assert_uint_eq(p.cgroup_limit, ZR_ABSENT);
    ck_assert_uint_eq(p.card_count, 0);
    ck_assert_int_eq(p.fdinfo_error, 0);
}
END_TEST

START_TEST(memory_that_nobody_owns_is_what_is_left) {
    struct zr_meminfo m;

    lay("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 200 kB\nBuffers: 10 kB\n"
                         "Cached: 90 kB\nAnonPages: 200 kB\nSlab: 50 kB\nPageTables: 50 kB\n");
    ck_assert(zr_meminfo_read(&m));
    ck_assert_uint_eq(m.unaccounted, 500 << 10);
}
END_TEST

START_TEST(without_a_meminfo_it_says_so) {
    struct zr_meminfo m;

    ck_assert(!zr_meminfo_read(&m));
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_uint_eq(m.available, ZR_ABSENT);
}
END_TEST

static const char xe[] = "pos:    0\nflags:  0100002\nmnt_id: 26\nino:    685\ndrm-driver:\txe\n"
                         "drm-client-id:\t%d\ndrm-pdev:\t%s\n"
                         "drm-total-system:\t0\ndrm-shared-system:\t0\ndrm-resident-system:\t0\n"
                         "drm-total-gtt:\t192 KiB\ndrm-shared-gtt:\t0\ndrm-resident-gtt:\t128 KiB\n"
                         "drm-total-vram0:\t23992 KiB\ndrm-shared-vram0:\t16 MiB\n"
                         "drm-resident-vram0:\t20 MiB\ndrm-total-stolen:\t0\n"
                         "drm-cycles-rcs:\t28257900\ndrm-total-cycles-rcs:\t7655183225\n";

static void lay_client(const char *path, int id, const char *pdev) {
    char text[1024];

    snprintf(text, sizeof text, xe, id, pdev);
    lay(path, text);
}

START_TEST(a_drm_client_with_two_descriptors_is_counted_once) {
    struct zr_process_memory p;

    lay("/proc/42/status", "Name:\tpython\nVmRSS:\t  2048 kB\n");
    lay_client("/proc/42/fdinfo/3", 5, "0000:03:00.0");
    lay_client("/proc/42/fdinfo/9", 5, "0000:03:00.0");
    ck_assert(zr_process_memory_read(42, &p));
    ck_assert_uint_eq(p.rss, 2048 << 10);
    ck_assert_uint_eq(p.card_count, 1);
    ck_assert_str_eq(p.cards[0].pdev, "0000:03:00.0");
    ck_assert_str_eq(p.cards[0].driver, "xe");
    ck_assert_uint_eq(p.cards[0].clients, 1);
    ck_assert_uint_eq(p.cards[0].vram.total, 23992 << 10);
    ck_assert_uint_eq(p.cards[0].vram.resident, 20 << 20);
    ck_assert_uint_eq(p.cards[0].gtt.total, 192 << 10);
    ck_assert_uint_eq(p.cards[0].gtt.resident, 128 << 10);
    ck_assert_uint_eq(p.cards[0].system.total, 0);
}
END_TEST

START_TEST(two_clients_of_a_card_add_up_and_cards_stay_apart) {
    struct zr_process_memory p;

    lay("/proc/42/status", "VmRSS: 1 kB\n");
    lay_client("/proc/42/fdinfo/3", 5, "0000:03:00.0");
    lay_client("/proc/42/fdinfo/4", 6, "0000:03:00.0");
    /* client ids are unique per card only */
    lay_client("/proc/42/fdinfo/5", 5, "0000:04:00.0");
    ck_assert(zr_process_memory_read(42, &p));
    ck_assert_uint_eq(p.card_count, 2);
    for (unsigned i = 0; i < 2; i++) {
        bool first = !strcmp(p.cards[i].pdev, "0000:03:00.0");

        ck_assert_uint_eq(p.cards[i].clients, first ? 2 : 1);
        ck_assert_uint_eq(p.cards[i].vram.total, (first ? 2u : 1u) * (23992u << 10));
    }
}
END_TEST

START_TEST(i915_calls_its_memory_local_and_a_region_it_lacks_is_absent) {
    struct zr_process_memory p;

    lay("/proc/42/status", "VmRSS: 1 kB\n");
    lay("/proc/42/fdinfo/3", "drm-driver: i915\ndrm-pdev: 0000:00:02.0\ndrm-client-id: 1\n"
                             "drm-total-local0: 8 MiB\ndrm-resident-local0: 4 MiB\n"
                             "drm-total-stolen-local0: 1 MiB\n"
                             "drm-total-system0: 2 MiB\ndrm-resident-system0: 1 MiB\n");
    ck_assert(zr_process_memory_read(42, &p));
    ck_assert_uint_eq(p.cards[0].vram.total, 8 << 20);
    ck_assert_uint_eq(p.cards[0].system.resident, 1 << 20);
    ck_assert_uint_eq(p.cards[0].gtt.total, ZR_ABSENT);
}
END_TEST

START_TEST(open_shared_buffers_are_counted) {
    struct zr_process_memory p;

    lay("/proc/42/status", "VmRSS: 1 kB\n");
    lay("/proc/42/fdinfo/7", "pos: 0\nflags: 02\nsize:\t65536\ncount:\t3\nexp_name:\txe\n");
    ck_assert(zr_process_memory_read(42, &p));
    ck_assert_uint_eq(p.dmabuf_fds, 1);
}
END_TEST

START_TEST(cgroup_version_2_below_its_group_and_at_a_containers_root) {
    struct zr_process_memory p;

    lay("/proc/42/status", "VmRSS: 1 kB\n");
    lay("/proc/42/cgroup", "0::/user.slice/job\n");
    lay("/sys/fs/cgroup/memory.current", "11\n");
    lay("/sys/fs/cgroup/user.slice/job/memory.current", "4096\n");
    lay("/sys/fs/cgroup/user.slice/job/memory.max", "max\n");
    ck_assert(zr_process_memory_read(42, &p));
    ck_assert_uint_eq(p.cgroup_current, 4096);
    ck_assert_uint_eq(p.cgroup_limit, ZR_ABSENT);
    lay("/proc/42/cgroup", "0::/../elsewhere\n");
    ck_assert(zr_process_memory_read(42, &p));
    ck_assert_uint_eq(p.cgroup_current, 11);
}
END_TEST

START_TEST(cgroup_version_1_with_its_own_word_for_no_limit) {
    struct zr_process_memory p;

    lay("/proc/42/status", "VmRSS: 1 kB\n");
    lay("/proc/42/cgroup", "5:devices:/x\n4:cpu,memory:/job\n0::/\n");
    lay("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "8192\n");
    lay("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    ck_assert(zr_process_memory_read(42, &p));
    ck_assert_uint_eq(p.cgroup_current, 8192);
    ck_assert_uint_eq(p.cgroup_limit, ZR_ABSENT);
    lay("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1048576\n");
    ck_assert(zr_process_memory_read(42, &p));
    ck_assert_uint_eq(p.cgroup_limit, 1048576);
}
END_TEST

START_TEST(a_process_that_is_not_there_is_told) {
    struct zr_process_memory p;

    ck_assert(!zr_process_memory_read(42, &p));
    ck_assert_int_eq(errno, ENOENT);
    lay("/proc/42/status", "VmRSS: 1 kB\n");
    ck_assert(zr_process_memory_read(42, &p));
    ck_assert_int_eq(p.fdinfo_error, ENOENT);
}
END_TEST

START_TEST(a_page_pool_that_the_kernel_can_take_back_is_no_loss) {
    struct zr_meminfo before = {1000, 800, 0, 100, 0}, after = {1000, 500, 0, 350, 0};

    ck_assert_int_eq(zr_meminfo_drop(&before, &after), 50);
    before.gpu_reclaim = after.gpu_reclaim = ZR_ABSENT;
    ck_assert_int_eq(zr_meminfo_drop(&before, &after), 300);
    ck_assert_int_eq(zr_meminfo_drop(&after, &before), -300);
}
END_TEST

START_TEST(a_line_is_found_with_its_error) {
    double x[] = {0, 1, 2, 3}, exact[] = {5, 7, 9, 11}, noisy[] = {0, 1.1, 1.9, 3};
    struct zr_line line;

    ck_assert(zr_line_fit(x, exact, 4, &line));
    ck_assert_double_eq_tol(line.slope, 2, 1e-9);
    ck_assert_double_eq_tol(line.intercept, 5, 1e-9);
    ck_assert_double_eq_tol(line.error, 0, 1e-9);
    ck_assert(zr_line_fit(x, noisy, 4, &line));
    ck_assert_double_eq_tol(line.slope, 0.98, 1e-9);
    ck_assert_double_eq_tol(line.error, 0.0424264, 1e-6);
    ck_assert(zr_line_fit(x, exact, 2, &line));
    ck_assert(isnan(line.error));
    ck_assert(!zr_line_fit(x, exact, 1, &line));
}
END_TEST

START_TEST(bytes_are_read_and_written_in_binary_units) {
    char text[32];
    uint64_t n;

    ck_assert(zr_text_parse_bytes("2GiB", &n) && n == UINT64_C(2) << 30);
    ck_assert(zr_text_parse_bytes("1.5G", &n) && n == UINT64_C(3) << 29);
    ck_assert(!zr_text_parse_bytes("GiB", &n));
    ck_assert(!zr_text_parse_bytes("80%", &n));
    ck_assert(!zr_text_parse_bytes("none", &n));
    ck_assert_str_eq(zr_text_bytes(text, 0), "0");
    ck_assert_str_eq(zr_text_bytes(text, ZR_ABSENT), "-");
    ck_assert_str_eq(zr_text_bytes(text, UINT64_C(3) << 29), "1.50 GiB");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host");
    TCase *host = tcase_create("host");

    tcase_add_checked_fixture(host, machine, clear);
    tcase_add_test(host, meminfo_tells_gpu_memory_where_the_kernel_does);
    tcase_add_test(host, what_the_kernel_does_not_offer_is_absent_and_not_zero);
    tcase_add_test(host, memory_that_nobody_owns_is_what_is_left);
    tcase_add_test(host, without_a_meminfo_it_says_so);
    tcase_add_test(host, a_drm_client_with_two_descriptors_is_counted_once);
    tcase_add_test(host, two_clients_of_a_card_add_up_and_cards_stay_apart);
    tcase_add_test(host, i915_calls_its_memory_local_and_a_region_it_lacks_is_absent);
    tcase_add_test(host, open_shared_buffers_are_counted);
    tcase_add_test(host, cgroup_version_2_below_its_group_and_at_a_containers_root);
    tcase_add_test(host, cgroup_version_1_with_its_own_word_for_no_limit);
    tcase_add_test(host, a_process_that_is_not_there_is_told);
    tcase_add_test(host, a_page_pool_that_the_kernel_can_take_back_is_no_loss);
    tcase_add_test(host, a_line_is_found_with_its_error);
    tcase_add_test(host, bytes_are_read_and_written_in_binary_units);
    suite_add_tcase(suite, host);
    return run_suite(suite);
}
