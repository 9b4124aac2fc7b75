/* The simulated GPU keeps what the real driver does: one small program per promise. */
#include "suite.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char here[PATH_MAX - 64]; /* .../build/test/process */
static char root[64];
static char said[4096]; /* what the last program printed, both streams */

/* A shell command line; its exit code. */
static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...) {
    char command[2 * PATH_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    FILE *output = popen(command, "r");
    ck_assert_ptr_nonnull(output);
    size_t used = fread(said, 1, sizeof(said) - 1, output);
    said[used] = '\0';
    int status = pclose(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A program of this folder with these settings; its exit code. */
static int run(const char *settings, const char *program) {
    setenv("ZE_SIMGPU", settings, 1);
    return shell("cd %s && exec ./%s 2>&1", here, program);
}

static void expect_success(const char *settings, const char *program) {
    int code = run(settings, program);
    ck_assert_msg(code == 0, "%s with %s: exit code %d: %s", program, settings, code, said);
    ck_assert_msg(!strstr(said, "simgpu: ZE_SIMGPU"), "%s", said);
}

static void setup(void) {
    char drivers[PATH_MAX];
    strcpy(root, "/tmp/simgpu-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    setenv("ZEROUTE_ROOT", root, 1);
    snprintf(drivers, sizeof(drivers), "%s/../../libze_simgpu.so", here);
    setenv("ZE_ENABLE_ALT_DRIVERS", drivers, 1);
}

static void teardown(void) {
    ck_assert_int_eq(shell("rm -rf %s", root), 0);
}

START_TEST(bytes_go_there_and_back) {
    expect_success("devices:1", "sim_hello");
}
END_TEST

START_TEST(answers_are_those_of_the_real_driver) {
    expect_success("vram:4GiB", "sim_answers");
}
END_TEST

START_TEST(cards_have_identity_tiles_and_peers) {
    const char *settings = "devices:3,tiles:2,mirror:on,version:1.14.35000,name:Test Card";
    expect_success(settings, "sim_device");
    setenv("NEOReadDebugKeys", "1", 1);
    setenv("ForceZeDeviceCanAccessPerReturnValue", "0", 1);
    expect_success(settings, "sim_device");
}
END_TEST

START_TEST(an_affinity_mask_hides_cards) {
    expect_success("devices:4", "sim_buses");
    ck_assert_str_eq(said, "3 4 5 6\n");
    setenv("ZE_AFFINITY_MASK", "3,1", 1);
    expect_success("devices:4", "sim_buses");
    ck_assert_str_eq(said, "4 6\n");
    setenv("ZE_AFFINITY_MASK", "2.1", 1);
    expect_success("devices:4", "sim_buses");
    ck_assert_str_eq(said, "5\n");
}
END_TEST

START_TEST(full_vram_is_out_of_device_memory) {
    setenv("ZES_ENABLE_SYSMAN", "1", 1);
    expect_success("vram:64MiB", "sim_vram full");
}
END_TEST

START_TEST(with_spill_it_goes_to_the_host) {
    setenv("ZES_ENABLE_SYSMAN", "1", 1);
    expect_success("vram:64MiB,spill:on", "sim_vram spill");
}
END_TEST

START_TEST(another_process_opens_a_handle) {
    expect_success("devices:2", "sim_ipc");
    unsetenv("ZEROUTE_ROOT");
    expect_success("devices:2", "sim_ipc");
}
END_TEST

START_TEST(commands_take_their_time_and_keep_their_order) {
    expect_success("copy_cost:100ms", "sim_commands");
}
END_TEST

static double seconds(const char *settings) {
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    expect_success(settings, "sim_hello");
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
}

/* sim_hello allocates and frees four times and moves 12.6 MB. */
START_TEST(calls_and_copies_cost_what_they_are_told) {
    ck_assert_double_ge(seconds("copy_rate:10MB/s"), 1.2);
    ck_assert_double_ge(seconds("alloc_cost:50ms,free_cost:50ms"), 0.4);
    ck_assert_double_ge(seconds("alloc_cost:90us,copy_cost:50ms"), 0.4);
}
END_TEST

START_TEST(a_free_waits_defers_or_shows) {
    expect_success("copy_cost:1ms", "sim_reuse");
    ck_assert_ptr_nonnull(strstr(said, "freed before it ran"));
}
END_TEST

START_TEST(physical_memory_is_mapped_into_reservations) {
    expect_success("vram:1GiB", "sim_virtual");
}
END_TEST

START_TEST(an_export_is_mirrored) {
    expect_success("devices:4,mirror:on", "sim_mirror yes");
}
END_TEST

START_TEST(each_link_of_the_mirror_can_be_broken) {
    expect_success("devices:4,mirror:off", "sim_mirror no");
    expect_success("devices:4,mirror:on,kernel:6.17", "sim_mirror no");
    setenv("EnableDeferBacking", "0", 1);
    expect_success("devices:4,mirror:on", "sim_mirror yes"); /* without NEOReadDebugKeys=1 */
    setenv("NEOReadDebugKeys", "1", 1);
    expect_success("devices:4,mirror:on", "sim_mirror no");
}
END_TEST

START_TEST(a_process_leaves_no_file_of_its_own) {
    expect_success("devices:2,mirror:on", "sim_hello");
    ck_assert_int_eq(shell("ls -d %s/proc/[0-9]* 2>&1", root), 2);
    ck_assert_int_eq(shell("ls %s/proc/meminfo", root), 0);
}
END_TEST

START_TEST(a_killed_process_gives_its_memory_back) {
    setenv("ZE_SIMGPU", "vram:64MiB,mirror:on", 1);
    ck_assert_int_eq(shell("cd %s && ./sim_hold 48 kill 2>&1", here), 128 + 9);
    ck_assert_int_eq(shell("ls -d %s/proc/[0-9]* 2>&1", root), 0);
    expect_success("vram:64MiB,mirror:on", "sim_hold 48 exit");
    ck_assert_int_eq(shell("ls -d %s/proc/[0-9]* 2>&1", root), 2);
    ck_assert_int_eq(shell("grep -q 'GPUActive: *0 kB' %s/proc/meminfo", root), 0);
}
END_TEST

START_TEST(processes_share_the_vram_of_one_machine) {
    expect_success("vram:64MiB", "sim_hold 40 nest 40 fail");
    expect_success("vram:64MiB", "sim_hold 40 nest 20 exit");
    unsetenv("ZEROUTE_ROOT");
    expect_success("vram:64MiB", "sim_hold 40 nest 40 exit");
}
END_TEST

START_TEST(sixteen_processes_leave_whole_files) {
    setenv("ZE_SIMGPU", "devices:2,vram:1GiB,mirror:on", 1);
    int code = shell("cd %s && for i in $(seq 16); do ./sim_threads & p=\"$p $!\"; done; "
                     "for i in $p; do wait $i || exit 1; done",
                     here);
    ck_assert_msg(code == 0, "%s", said);
    ck_assert_int_eq(shell("ls -d %s/proc/[0-9]* 2>&1", root), 2);
    ck_assert_int_eq(shell("grep -q 'GPUActive: *0 kB' %s/proc/meminfo", root), 0);
    ck_assert_int_eq(shell("ls %s/proc/*.new 2>&1", root), 2);
}
END_TEST

START_TEST(threads_do_not_disturb_each_other) {
    expect_success("devices:2,mirror:on", "sim_threads");
    unsetenv("ZEROUTE_ROOT");
    expect_success("devices:2,mirror:on,count:on", "sim_threads");
}
END_TEST

START_TEST(an_injected_failure_hits_its_call) {
    ck_assert_int_eq(run("fail:zeMemAllocDevice@3=0x70000003", "sim_hello"), 1);
    ck_assert_ptr_nonnull(strstr(said, "zeMemAllocDevice(context, &desc, sizes[i]"));
    ck_assert_ptr_nonnull(strstr(said, "0x70000003"));
    ck_assert_int_eq(run("fail:zeMemAllocDevice@5=0x70000003", "sim_hello"), 0);
    ck_assert_int_eq(run("fail:zeContextCreate=0x78000003+zeMemFree@1=0x70000001", "sim_hello"), 1);
    ck_assert_ptr_nonnull(strstr(said, "0x78000003"));
}
END_TEST

START_TEST(a_bad_setting_is_one_warning_and_the_default) {
    static const char *const bad[] = {"devices:9",     "devices:0",          "devices:two",   "vram:",
                                      "vram:1furlong", "mirror:maybe",       "copy_cost:-1",  "frob:1",
                                      "kernel:new",    "fail:zeNothing@1=1", "fail:zeMemFree"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char name[32] = "";
        strncpy(name, bad[i], strcspn(bad[i], ":"));
        ck_assert_int_eq(run(bad[i], "sim_hello"), 0);
        const char *warning = strstr(said, "simgpu: ZE_SIMGPU: ");
        ck_assert_msg(warning && strstr(warning, name), "%s: %s", bad[i], said);
        ck_assert_msg(!strstr(warning + 1, "simgpu: "), "%s: %s", bad[i], said);
    }
}
END_TEST

START_TEST(two_drivers_share_a_process) {
    char drivers[2 * PATH_MAX];
    ck_assert_int_eq(shell("cp %s/../../libze_simgpu.so %s/libze_simgpu2.so", here, root), 0);
    snprintf(drivers, sizeof(drivers), "%s/../../libze_simgpu.so,%s/libze_simgpu2.so", here, root);
    setenv("ZE_ENABLE_ALT_DRIVERS", drivers, 1);
    setenv("ZE_SIMGPU2", "devices:2", 1);
    expect_success("devices:1", "sim_two");
    setenv("ZE_SIMGPU2", "devices:2,ddi_handles:on", 1);
    expect_success("devices:1,ddi_handles:on", "sim_two");
}
END_TEST

START_TEST(an_older_callers_table_is_not_overrun) {
    expect_success("devices:1", "sim_tables ../../libze_simgpu.so");
}
END_TEST

int main(int argc, char **argv) {
    (void)argc;
    if (!realpath(argv[0], here))
        return 2;
    *strrchr(here, '/') = '\0';
    Suite *suite = suite_create("simgpu");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, bytes_go_there_and_back);
    tcase_add_test(cases, answers_are_those_of_the_real_driver);
    tcase_add_test(cases, cards_have_identity_tiles_and_peers);
    tcase_add_test(cases, an_affinity_mask_hides_cards);
    tcase_add_test(cases, full_vram_is_out_of_device_memory);
    tcase_add_test(cases, with_spill_it_goes_to_the_host);
    tcase_add_test(cases, another_process_opens_a_handle);
    tcase_add_test(cases, commands_take_their_time_and_keep_their_order);
    tcase_add_test(cases, calls_and_copies_cost_what_they_are_told);
    tcase_add_test(cases, a_free_waits_defers_or_shows);
    tcase_add_test(cases, physical_memory_is_mapped_into_reservations);
    tcase_add_test(cases, an_export_is_mirrored);
    tcase_add_test(cases, each_link_of_the_mirror_can_be_broken);
    tcase_add_test(cases, a_process_leaves_no_file_of_its_own);
    tcase_add_test(cases, a_killed_process_gives_its_memory_back);
    tcase_add_test(cases, processes_share_the_vram_of_one_machine);
    tcase_add_test(cases, sixteen_processes_leave_whole_files);
    tcase_add_test(cases, threads_do_not_disturb_each_other);
    tcase_add_test(cases, an_injected_failure_hits_its_call);
    tcase_add_test(cases, a_bad_setting_is_one_warning_and_the_default);
    tcase_add_test(cases, two_drivers_share_a_process);
    tcase_add_test(cases, an_older_callers_table_is_not_overrun);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
