/*
 * The loader gap, row by row: what an adapter gets from a loader that lacks a function, and that nobody else does.
 * The real runtimes on the real loaders are in test/sycl.
 */
#include "child.h"
#include "suite.h"

static struct child *gap(const char *loader, const char *asker, const char *age, const char *kind, const char *conf) {
    char at[PATH_MAX], by[PATH_MAX];
    const char *settings[] = {conf, NULL};
    const char *argv[] = {"gap", at, by, age, kind, NULL};

    snprintf(at, sizeof at, "%s", build_path(loader));
    snprintf(by, sizeof by, "%s", build_path(asker));
    return child_run(settings, argv);
}

#define OLD "test/gap/old/libze_loader.so.1"
#define NEW "test/gap/new/libze_loader.so.1"
#define ADAPTER "test/gap/libur_adapter_level_zero_v2.so.0"
#define STRANGER "test/gap/libstranger.so"

START_TEST(an_adapter_on_an_old_loader_gets_an_answer_for_every_row) {
    struct child *c = gap(OLD, ADAPTER, "old", "guarded", "ZEROUTE_CONF=guard:on");

    child_ok(c);
    ck_assert_msg(strstr(c->out, "upgrade the loader (libze1) to") != NULL, "%s", c->out);
    child_free(c);
}
END_TEST

START_TEST(a_child_of_fork_lists_what_it_calls_itself) {
    struct child *c = gap(OLD, ADAPTER, "old", "guarded", "ZEROUTE_CONF=guard:on");
    struct child of_fork = {0};
    const char *line = strstr(c->out, "child ");
    char name[100], field[120];
    int pid;

    child_ok(c);
    ck_assert_msg(line && sscanf(line, "child %d called %99s", &pid, name) == 2, "%s", c->out);
    of_fork.started = c->started;
    child_read(&of_fork, pid);
    ck_assert_ptr_nonnull(of_fork.s);
    snprintf(field, sizeof field, "guard.calls.%s", name);
    ck_assert_uint_eq(child_count(&of_fork, field), 1);
    ck_assert_uint_eq(child_count(&of_fork, "guard.calls"), 1);
    zeroute_snapshot_free(of_fork.s);
    child_free(c);
}
END_TEST

START_TEST(others_still_see_null) {
    struct child *c = gap(OLD, STRANGER, "old", "bare", "ZEROUTE_CONF=guard:on");

    child_ok(c);
    child_free(c);
}
END_TEST

START_TEST(guard_off_leaves_null_to_adapters_too) {
    struct child *c = gap(OLD, ADAPTER, "old", "bare", "ZEROUTE_CONF=guard:off");

    child_ok(c);
    child_free(c);
}
END_TEST

START_TEST(a_loader_that_has_the_function_is_not_stood_in_front_of) {
    struct child *c = gap(NEW, ADAPTER, "new", "guarded", "ZEROUTE_CONF=guard:on,reuse:runtime");

    child_ok(c);
    ck_assert_msg(strstr(c->out, "zeroute:") == NULL, "%s", c->out);
    child_free(c);
}
END_TEST

/* A file that is no library comes first in the search, so libze_loader.so cannot be opened. */
static struct child *open_unversioned(const char *conf) {
    char folder[] = "/tmp/unversioned.XXXXXX", path[256], search[PATH_MAX];
    const char *settings[] = {sim_driver(), search, conf, NULL};
    const char *argv[] = {"bind_handle", "libze_loader.so", NULL};
    struct child *c;
    int fd;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/libze_loader.so", folder);
    snprintf(search, sizeof search, "LD_LIBRARY_PATH=%s", folder);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    c = child_run(settings, argv);
    unlink(path);
    rmdir(folder);
    return c;
}

START_TEST(who_opens_the_unversioned_loader_is_given_the_other) {
    struct child *c = open_unversioned("ZEROUTE_CONF=preset:observe");

    child_ok(c);
    ck_assert_uint_eq(child_count(c, "guard.loaders"), 1);
    ck_assert_uint_gt(child_count(c, "calls.zeMemAllocDevice.dlsym"), 0);
    ck_assert_msg(strstr(c->out, "libze-dev") != NULL, "%s", c->out);
    child_free(c);
}
END_TEST

START_TEST(without_the_guard_it_fails_as_it_would) {
    struct child *c = open_unversioned("ZEROUTE_CONF=preset:observe,guard:off");

    ck_assert_int_ne(c->status, 0);
    child_free(c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("guard");
    TCase *t = tcase_create("guard");

    tcase_add_test(t, who_opens_the_unversioned_loader_is_given_the_other);
    tcase_add_test(t, without_the_guard_it_fails_as_it_would);
    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, an_adapter_on_an_old_loader_gets_an_answer_for_every_row);
    tcase_add_test(t, a_child_of_fork_lists_what_it_calls_itself);
    tcase_add_test(t, others_still_see_null);
    tcase_add_test(t, guard_off_leaves_null_to_adapters_too);
    tcase_add_test(t, a_loader_that_has_the_function_is_not_stood_in_front_of);
    return run_suite(suite);
}
