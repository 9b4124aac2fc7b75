/* dlsym under the preload answers as without it, whoever else interposes it, and at whatever place in the order. */
#include "child.h"
#include "suite.h"

static const char *const one_driver[2] = {"ZE_SIMGPU=devices:2", NULL};

static const char *preload(const char *first, const char *second) {
    static char text[3 * PATH_MAX];

    snprintf(text, sizeof text, "LD_PRELOAD=%s%s%s", first, second ? ":" : "", second ? second : "");
    return text;
}

static struct child *run(const char *preloads, const char *program) {
    const char *settings[] = {sim_driver(), one_driver[0], "ZEROUTE_CONF=preset:observe", preloads, NULL};
    const char *argv[] = {program, NULL};

    return child_run(settings, argv);
}

START_TEST(dlsym_answers_as_without_us) {
    struct child *c = run(preload(library_path(), NULL), "dlsym");

    child_ok(c);
    child_free(c);
}
END_TEST

START_TEST(the_same_program_holds_without_us) {
    struct child *c = run("LD_PRELOAD=", "dlsym");

    child_ok(c);
    child_free(c);
}
END_TEST

START_TEST(a_preload_path_with_a_symlink_is_the_same_library) {
    char link[PATH_MAX];
    struct child *c;

    snprintf(link, sizeof link, "%s.%d", build_path("test/process/link.so"), (int)getpid());
    unlink(link);
    ck_assert_int_eq(symlink(library_path(), link), 0);
    c = run(preload(link, NULL), "dlsym");
    child_ok(c);
    child_free(c);
    c = run(preload(link, NULL), "bind_handle");
    child_ok(c);
    counts(c, "calls.zeMemAllocDevice.dlsym", 6);
    unlink(link);
    child_free(c);
}
END_TEST

static const struct {
    const char *program, *entry;
} bound[] = {
    {"bind_plt", "calls.zeMemAllocDevice.plt"},
    {"bind_handle", "calls.zeMemAllocDevice.dlsym"},
    {"bind_default", "calls.zeMemAllocDevice.dlsym"},
    {"bind_table", "calls.zeMemAllocDevice.table"},
};
enum { BOUND = sizeof bound / sizeof *bound };

START_TEST(another_interposer_of_dlsym_before_us_is_asked_and_so_are_we) {
    struct child *c = run(preload(build_path("test/process/libother_dlsym.so"), library_path()), bound[_i].program);

    child_ok(c);
    ck_assert_ptr_nonnull(strstr(c->out, "other dlsym was asked yes"));
    ck_assert_uint_eq(child_count(c, "%s", bound[_i].entry), 6);
    child_free(c);
}
END_TEST

START_TEST(another_interposer_of_dlsym_after_us_is_asked_too) {
    struct child *c = run(preload(library_path(), build_path("test/process/libother_dlsym.so")), bound[_i].program);

    child_ok(c);
    ck_assert_ptr_nonnull(strstr(c->out, "other dlsym was asked yes"));
    ck_assert_uint_eq(child_count(c, "%s", bound[_i].entry), 6);
    child_free(c);
}
END_TEST

static uint64_t allocations(const struct child *c) {
    return child_count(c, "calls.zeMemAllocDevice.plt") + child_count(c, "calls.zeMemAllocDevice.dlsym") +
           child_count(c, "calls.zeMemAllocDevice.table");
}

/* 6 device blocks, 2 shared ones, all freed: the other sees 6 + 8 calls, and nobody goes round in circles. */
START_TEST(another_interposer_of_level_zero_before_us_sees_what_we_see) {
    struct child *c = run(preload(build_path("test/process/libother_ze.so"), library_path()), "bind_plt");

    child_ok(c);
    ck_assert_msg(strstr(c->out, "other saw 14"), "%s", c->out);
    ck_assert_uint_eq(allocations(c), 6);
    counts(c, "allocated_bytes.all.current", 0);
    child_free(c);
}
END_TEST

START_TEST(another_interposer_of_level_zero_after_us_sees_what_we_see) {
    struct child *c = run(preload(library_path(), build_path("test/process/libother_ze.so")), "bind_plt");

    child_ok(c);
    ck_assert_msg(strstr(c->out, "other saw 14"), "%s", c->out);
    ck_assert_uint_eq(allocations(c), 6);
    counts(c, "calls.zeMemAllocDevice.plt", 6);
    child_free(c);
}
END_TEST

/* The guard that keeps a call from being counted twice must not stay behind. */
START_TEST(what_is_thrown_through_us_leaves_nothing_behind) {
    struct child *c = run(preload(library_path(), build_path("test/process/libthrower.so")), "throw");

    child_ok(c);
    counts(c, "calls.zeMemAllocDevice.plt", 6);
    counts(c, "calls.zeMemFree.plt", 6);
    child_free(c);
}
END_TEST

START_TEST(frees_at_the_end_of_the_process_reach_the_driver) {
    struct child *c = run(preload(library_path(), NULL), "exit");

    child_ok(c);
    ck_assert_msg(strstr(c->out, "stage 0: 0\nstage 1: 0\nstage 2: 0\n"), "%s", c->out);
    child_free(c);
}
END_TEST

START_TEST(each_copy_of_the_loader_gets_its_own_calls) {
    char directory[PATH_MAX], copy[PATH_MAX + 32], command[3 * PATH_MAX];
    const char *settings[] = {sim_driver(), one_driver[0], "ZEROUTE_CONF=preset:observe", NULL};
    const char *argv[] = {"two_loaders", copy, NULL};
    struct child *c;

    snprintf(directory, sizeof directory, "%s.%d", build_path("test/process/copy"), (int)getpid());
    snprintf(copy, sizeof copy, "%s/libze_loader.so.1", directory);
    snprintf(command, sizeof command, "mkdir -p %s && cp -L \"$(ldd %s | awk '/libze_loader.so.1/ {print $3}')\" %s",
             directory, build_path("test/process/bind_plt"), copy);
    ck_assert_int_eq(system(command), 0);
    c = child_run(settings, argv);
    child_ok(c);
    ck_assert_msg(strcmp(c->out, "2 devices\n2 devices\n2 devices\n") == 0, "%s", c->out);
    counts(c, "calls.zeMemAllocDevice.dlsym", 18);
    unlink(copy);
    rmdir(directory);
    child_free(c);
}
END_TEST

int main(void) {
    Suite *s = suite_create("dlsym");
    TCase *t = tcase_create("dlsym");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, dlsym_answers_as_without_us);
    tcase_add_test(t, the_same_program_holds_without_us);
    tcase_add_test(t, a_preload_path_with_a_symlink_is_the_same_library);
    tcase_add_loop_test(t, another_interposer_of_dlsym_before_us_is_asked_and_so_are_we, 0, BOUND);
    tcase_add_loop_test(t, another_interposer_of_dlsym_after_us_is_asked_too, 0, BOUND);
    tcase_add_test(t, another_interposer_of_level_zero_before_us_sees_what_we_see);
    tcase_add_test(t, another_interposer_of_level_zero_after_us_sees_what_we_see);
    tcase_add_test(t, what_is_thrown_through_us_leaves_nothing_behind);
    tcase_add_test(t, frees_at_the_end_of_the_process_reach_the_driver);
    tcase_add_test(t, each_copy_of_the_loader_gets_its_own_calls);
    suite_add_tcase(s, t);
    return run_suite(s);
}
