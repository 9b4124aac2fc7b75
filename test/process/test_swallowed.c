/*
 * A runtime that has its adapters, and a static Level Zero loader, inside itself is a runtime all the same: known
 * by its name, by what it exports, or by what its adapter's code holds. On the simulated GPU; on every real loader
 * it is a row of test/sycl/matrix.
 */
#include "child.h"
#include "suite.h"

static const char *const libraries[] = {"test/swallowed/libsycl.so.9", "test/swallowed/libexporting.so",
                                        "test/swallowed/libholding.so"};
/* Under reuse:proven what the device is known to have finished with is reused, a runtime's too. */
static const char *const confs[] = {"ZEROUTE_CONF=reuse:runtime", "ZEROUTE_CONF=route:pool,reuse:runtime",
                                    "ZEROUTE_CONF=route:native,reuse:runtime",
                                    "ZEROUTE_CONF=route:native,cache:on,cache_host:on,reuse:runtime"};
enum { LIBRARIES = 3, CONFS = 4 };

static struct child *swallow(const char *library, const char *part, const char *conf) {
    const char *settings[] = {sim_driver(), "ZE_SIMGPU=devices:1", conf, NULL};
    const char *argv[] = {"swallow", build_path(library), part, NULL};

    return child_run(settings, argv);
}

START_TEST(what_adapter_v1_frees_is_not_reused_at_once) {
    struct child *c = swallow(libraries[_i / CONFS], "v1", confs[_i % CONFS]);

    child_ok(c);
    ck_assert_uint_eq(child_count(c, "cache.hits"), 0);
    child_free(c);
}
END_TEST

START_TEST(what_adapter_v2_frees_is_waited_for_by_the_driver) {
    struct child *c = swallow(libraries[_i / CONFS], "v2", confs[_i % CONFS]);

    child_ok(c);
    ck_assert_uint_eq(child_count(c, "cache.hits"), 0);
    child_free(c);
}
END_TEST

START_TEST(its_host_memory_is_not_reused_and_that_is_said) {
    struct child *c = swallow(libraries[_i], "host", confs[CONFS - 1]);

    child_ok(c);
    ck_assert_uint_eq(child_count(c, "cache.hits"), 0);
    ck_assert_msg(strstr(c->out, "cache_host:on has no effect"), "%s", c->out);
    child_free(c);
}
END_TEST

START_TEST(what_it_keeps_to_the_end_is_no_leak) {
    struct child *c = swallow(libraries[_i], "leak", "ZEROUTE_CONF=preset:observe");

    child_ok(c);
    ck_assert_uint_eq(child_count(c, "left.blocks"), 0);
    ck_assert_uint_eq(child_count(c, "left.runtime_blocks"), 2);
    child_free(c);
}
END_TEST

START_TEST(what_its_loader_lacks_is_answered_twice) {
    struct child *c = swallow(libraries[_i], "missing", "ZEROUTE_CONF=preset:observe");

    child_ok(c);
    child_free(c);
}
END_TEST

/*
 * Its adapter reads UR_L0_DISABLE_USM_ALLOCATOR when it is loaded: at the program's start that is before check sets it.
 */
START_TEST(check_says_whether_its_pool_is_off) {
    char preload[2 * PATH_MAX];
    const char *settings[] = {sim_driver(), "ZEROUTE_CONF=check:all", preload, NULL};
    const char *argv[] = {"swallow", build_path("test/swallowed/libholding.so"), "v1", NULL};
    struct child *c;

    snprintf(preload, sizeof preload, "LD_PRELOAD=%s%s%s", library_path(), _i ? ":" : "",
             _i ? build_path("test/swallowed/libholding.so") : "");
    c = child_run(settings, argv);
    child_ok(c);
    ck_assert_ptr_nonnull(c->s);
    ck_assert_msg(
        strstr(zeroute_find(c->s, "check.in_force")->text, _i ? "own pool hides its small blocks" : "pool is off"),
        "%s", zeroute_find(c->s, "check.in_force")->text);
    child_free(c);
}
END_TEST

static const char *const runtimes[] = {"libsycl-preview.so.9",
                                       "libur_loader.so.0",
                                       "libpi_unified_runtime.so",
                                       "libumf.so.1",
                                       "lib_umfPoolCreate.so",
                                       "lib___sycl_register_lib.so",
                                       "lib_piPluginInit.so",
                                       "lib_urGetGlobalProcAddrTable.so",
                                       "lib_urGetAdapterProcAddrTable.so"};
enum { RUNTIMES = sizeof runtimes / sizeof *runtimes };

START_TEST(a_runtime_is_known_by_each_name_and_by_each_export) {
    char path[128] = "test/swallowed/";
    struct child *c = swallow(strcat(path, runtimes[_i]), "v1", confs[0]);

    child_ok(c);
    ck_assert_uint_eq(child_count(c, "cache.hits"), 0);
    child_free(c);
}
END_TEST

/*
 * The same program on a library that is no runtime, though it may depend on one: its blocks are reused, and what it
 * keeps is a leak.
 */
START_TEST(another_library_is_no_runtime) {
    const char *library = _i ? "test/swallowed/libneeding.so" : "test/swallowed/libplain.so";
    struct child *c = swallow(library, "v1", confs[0]);

    child_ok(c);
    ck_assert_uint_eq(child_count(c, "cache.hits"), 3);
    child_free(c);
    c = swallow(library, "leak", "ZEROUTE_CONF=preset:observe");
    child_ok(c);
    ck_assert_uint_eq(child_count(c, "left.blocks"), 2);
    child_free(c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("swallowed");
    TCase *t = tcase_create("runtime");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, what_adapter_v1_frees_is_not_reused_at_once, 0, LIBRARIES * CONFS);
    tcase_add_loop_test(t, what_adapter_v2_frees_is_waited_for_by_the_driver, 0, LIBRARIES * CONFS);
    tcase_add_loop_test(t, its_host_memory_is_not_reused_and_that_is_said, 0, LIBRARIES);
    tcase_add_loop_test(t, what_it_keeps_to_the_end_is_no_leak, 0, LIBRARIES);
    tcase_add_loop_test(t, what_its_loader_lacks_is_answered_twice, 0, LIBRARIES);
    tcase_add_loop_test(t, check_says_whether_its_pool_is_off, 0, 2);
    tcase_add_loop_test(t, a_runtime_is_known_by_each_name_and_by_each_export, 0, RUNTIMES);
    tcase_add_loop_test(t, another_library_is_no_runtime, 0, 2);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
