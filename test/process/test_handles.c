/* The tables behind handles: hooked where they are what they should be, left alone and reported where not. */
#include "child.h"
#include "suite.h"

enum { BLOCKS = 9, COPIES = 12 }; /* of prog_handles.c: three on each of three contexts */

static struct child *run(const char *kind, const char *how, const char *sim, const char *conf) {
    char odd[64];
    const char *settings[] = {sim, conf, kind ? odd : NULL, NULL};
    const char *argv[] = {"handles", build_path("test/process/libze_simodd.so"), how, NULL};

    snprintf(odd, sizeof odd, "ODD_DRIVER=%s", kind ? kind : "");
    return child_run(settings, argv);
}

static const char *told(const struct child *c) {
    const struct zeroute_field *hooks = c->s ? zeroute_find(c->s, "hooks") : NULL;

    return hooks ? hooks->text : "";
}

#define DDI "ZE_SIMGPU=ddi_handles:on"
#define OBSERVE "ZEROUTE_CONF=preset:observe"

static const char *const known[] = {NULL, "copies", "read-only", "tomorrow"};
START_TEST(calls_through_the_tables_of_handles_are_counted_once) {
    struct child *c = run(known[_i], NULL, DDI, OBSERVE);

    child_ok(c);
    ck_assert_str_eq(told(c), "");
    counts(c, "calls.zeMemAllocDevice.handle", BLOCKS);
    counts(c, "calls.zeMemFree.handle", BLOCKS);
    counts(c, "calls.zeMemAllocDevice.table", 0);
    counts(c, "allocated_bytes.all.allocated", BLOCKS << 20);
    counts(c, "allocated_bytes.all.current", 0);
    if (known[_i] && strcmp(known[_i], "read-only") == 0)
        ck_assert_str_eq(c->out, "r--\nr--\nr--\n");
    child_free(c);
}
END_TEST

START_TEST(blocks_of_such_calls_are_cached) {
    struct child *c = run(known[_i], NULL, DDI, "ZEROUTE_CONF=cache:on,route:native");

    child_ok(c);
    counts(c, "calls.zeMemAllocDevice.handle", BLOCKS);
    counts(c, "allocated_bytes.all.current", 0);
    child_free(c);
}
END_TEST

static const char *const unknown[] = {"another-major", "inserted", "wrapped", "invalid", "lying"};
START_TEST(tables_of_an_unknown_layout_are_left_alone_and_reported) {
    const char *kind = unknown[_i];
    /* Of these two nobody could be called through. */
    const char *how = strcmp(kind, "inserted") == 0 || strcmp(kind, "lying") == 0 ? "tables" : NULL;
    struct child *c = run(kind, how, DDI, OBSERVE);

    child_ok(c);
    ck_assert_msg(strstr(told(c), "not seen: what the loader calls through the handles of libze_simodd.so"), "%s: %s",
                  kind, told(c));
    ck_assert_ptr_nonnull(strstr(told(c), "not as this version of zeroute knows them"));
    counts(c, "calls.zeMemAllocDevice.handle", 0);
    counts(c, "calls.zeMemAllocDevice.table", how ? BLOCKS : 0);
    child_free(c);
}
END_TEST

START_TEST(a_driver_without_the_flag_stays_with_its_own_tables) {
    struct child *c = run(_i ? "nowhere" : NULL, "tables", "ZE_SIMGPU=ddi_handles:off", OBSERVE);

    child_ok(c);
    ck_assert_str_eq(told(c), "");
    counts(c, "calls.zeMemAllocDevice.table", BLOCKS);
    counts(c, "calls.zeMemAllocDevice.handle", 0);
    child_free(c);
}
END_TEST

START_TEST(the_hook_lands_while_threads_call_through_the_tables) {
    struct child *c = run(NULL, "threads", DDI, _i ? "ZEROUTE_CONF=cache:on,route:native" : OBSERVE);
    uint64_t allocations = child_count(c, "calls.zeMemAllocDevice.handle");
    uint64_t frees = child_count(c, "calls.zeMemFree.handle");

    child_ok(c);
    ck_assert_uint_ge(allocations, 200);
    ck_assert_uint_ge(frees, allocations);      /* frees are hooked first: */
    ck_assert_uint_le(frees, allocations + 12); /* four threads had three blocks each */
    counts(c, "allocated_bytes.all.current", 0);
    child_free(c);
}
END_TEST

static const char *const late_settings[] = {OBSERVE, "ZEROUTE_CONF=cache:on,cache_limit:0,route:native"};
START_TEST(a_call_that_was_on_its_way_when_the_hook_landed_is_no_wrong_free) {
    struct child *c = run(NULL, "late", DDI, late_settings[_i]);

    child_ok(c);
    ck_assert_str_eq(c->out, "same address\n");
    counts(c, "free.invalid.twice", 0);
    counts(c, "calls.zeMemFree.handle", 2);
    counts(c, "allocated_bytes.all.current", 0);
    child_free(c);
}
END_TEST

/* Files of their own, so that the dynamic linker takes them for different libraries. */
static struct child *run_copies(int count, int stay) {
    static char name[COPIES][PATH_MAX];
    const char *argv[COPIES + 3] = {"reload"}, *settings[] = {OBSERVE, NULL};
    char folder[] = "/tmp/zeroute-reload.XXXXXX", command[3 * PATH_MAX];
    struct child *c;
    int n = 1, length;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    if (stay)
        argv[n++] = "--";
    for (int i = 0; i < count; i++) {
        snprintf(name[i], sizeof name[i], "%s/libze_copy%d.so", folder, i);
        length =
            snprintf(command, sizeof command, "cp '%s' '%s'", build_path("test/process/libfake_driver.so"), name[i]);
        ck_assert_int_lt(length, (int)sizeof command);
        ck_assert_int_eq(system(command), 0);
        argv[n++] = name[i];
    }
    c = child_run(settings, argv);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
    return c;
}

START_TEST(places_of_drivers_that_were_unloaded_are_used_again) {
    struct child *c = run_copies(COPIES, 0);

    child_ok(c);
    ck_assert_msg(strstr(c->out, "12 exchanged"), "%s", c->out);
    ck_assert_str_eq(told(c), "");
    child_free(c);
}
END_TEST

START_TEST(running_out_of_places_is_reported) {
    struct child *c = run_copies(COPIES, 1);

    child_ok(c);
    ck_assert_msg(strstr(c->out, "8 exchanged"), "%s", c->out);
    ck_assert_msg(strstr(told(c), "not seen: calls to libze_copy"), "hooks: %s", told(c));
    child_free(c);
}
END_TEST

int main(void) {
    Suite *s = suite_create("handles");
    TCase *t = tcase_create("tables");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, calls_through_the_tables_of_handles_are_counted_once, 0, sizeof known / sizeof *known);
    tcase_add_loop_test(t, blocks_of_such_calls_are_cached, 0, sizeof known / sizeof *known);
    tcase_add_loop_test(t, tables_of_an_unknown_layout_are_left_alone_and_reported, 0,
                        sizeof unknown / sizeof *unknown);
    tcase_add_loop_test(t, a_driver_without_the_flag_stays_with_its_own_tables, 0, 2);
    tcase_add_loop_test(t, the_hook_lands_while_threads_call_through_the_tables, 0, 2);
    tcase_add_loop_test(t, a_call_that_was_on_its_way_when_the_hook_landed_is_no_wrong_free, 0, 2);
    tcase_add_test(t, places_of_drivers_that_were_unloaded_are_used_again);
    tcase_add_test(t, running_out_of_places_is_reported);
    suite_add_tcase(s, t);
    return run_suite(s);
}
