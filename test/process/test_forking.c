/* While another thread forks the list of libraries cannot be read. Nothing is refused, lost or believed for that. */
#include "child.h"
#include "suite.h"

static struct child *forking(const char *part, const char *conf, const char *first, const char *second) {
    const char *settings[] = {sim_driver(), "ZE_SIMGPU=devices:2", conf, NULL};
    const char *argv[] = {"forking", part, first, second, NULL};

    return child_run(settings, argv);
}

START_TEST(a_runtime_that_is_first_called_meanwhile_answers) {
    struct child *c = forking("runtime", "ZEROUTE_CONF=preset:observe", NULL, NULL);

    child_ok(c);
    child_free(c);
}
END_TEST

START_TEST(a_loader_that_is_asked_meanwhile_is_hooked) {
    struct child *c = forking("loader", "ZEROUTE_CONF=preset:observe", NULL, NULL);

    child_ok(c);
    counts(c, "calls.zeMemAllocDevice.dlsym", 3 * 2);
    counts(c, "calls.zeMemFree.dlsym", 4 * 2);
    child_free(c);
}
END_TEST

START_TEST(what_an_adapter_frees_meanwhile_is_not_reused) {
    struct child *c = forking("adapter", "ZEROUTE_CONF=reuse:runtime", build_path("test/process/libadapter.so"), NULL);

    child_ok(c);
    counts(c, "cache.hits", 0);
    ck_assert_uint_ge(child_count(c, "callers.libur_adapter_level_zero_v2.so.0.calls"), 8);
    child_free(c);
}
END_TEST

START_TEST(an_adapter_that_asks_meanwhile_gets_its_stub) {
    struct child *c = forking("guard", "ZEROUTE_CONF=guard:on", build_path("test/gap/libur_adapter_level_zero_v2.so.0"),
                              build_path("test/gap/old/libze_loader.so.1"));

    child_ok(c);
    child_free(c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("forking");
    TCase *t = tcase_create("meanwhile");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, a_runtime_that_is_first_called_meanwhile_answers);
    tcase_add_test(t, a_loader_that_is_asked_meanwhile_is_hooked);
    tcase_add_test(t, what_an_adapter_frees_meanwhile_is_not_reused);
    tcase_add_test(t, an_adapter_that_asks_meanwhile_gets_its_stub);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
