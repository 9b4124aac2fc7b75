/*
 * However a caller binds to Level Zero, each of its calls is counted once, under the way it came, and its memory is
 * what the driver gave it. On one and on two drivers, on whatever loader the suite is started with.
 */
#include "child.h"
#include "suite.h"

enum { CALLS = 3, CARDS = 2 }; /* as way.h makes them, per device */

static const struct binding {
    const char *program, *library, *more, *way, *caller;
} bindings[] = {
    {"bind_plt", NULL, NULL, "plt", "bind_plt"},
    {"bind_calls", NULL, NULL, "plt", "bind_calls"},
    {"bind_local", "libuser.so", NULL, "plt", "libuser.so"},
    {"bind_handle", NULL, NULL, "dlsym", "bind_handle"},
    {"bind_noload", NULL, NULL, "dlsym", "bind_noload"},
    {"bind_default", NULL, NULL, "dlsym", "bind_default"},
    {"bind_main", NULL, NULL, "dlsym", "bind_main"},
    {"bind_static", NULL, NULL, "dlsym", "bind_static"},
    {"bind_table", NULL, NULL, "table", "bind_table"},
    {"bind_table", NULL, "old", "table", "bind_table"},
    {"bind_deep", "libuser.so", "loader first", "table", "libuser.so"},
    {"bind_deep", "libuser.so", NULL, "table", "libuser.so"},
    {"bind_deep", "libuser.so", "loader deep", "plt", "libuser.so"},
    {"bind_deep", "libopener.so", NULL, "dlsym", "libopener.so"},
    {"bind_deep", "libopener.so", "loader first", "dlsym", "libopener.so"},
    {"bind_deep", "libopener.so", "loader deep", "dlsym", "libopener.so"},
};
enum { BINDINGS = sizeof bindings / sizeof *bindings };

static const char *drivers(int count) {
    static char text[2 * PATH_MAX + 64];
    int n = snprintf(text, sizeof text, "%s", sim_driver());

    if (count > 1)
        snprintf(text + n, sizeof text - (size_t)n, ",%s", build_path("test/process/libze_simtwo.so"));
    return text;
}

static struct child *run(const struct binding *b, int driver_count, const char *conf) {
    const char *settings[] = {drivers(driver_count), "ZE_SIMGPU=devices:2", conf, NULL};
    char library[PATH_MAX] = "test/process/";
    const char *argv[5] = {b->program};
    int n = 1;

    if (b->library)
        argv[n++] = build_path(strcat(library, b->library));
    if (b->more)
        argv[n++] = b->more;
    return child_run(settings, argv);
}

static uint64_t all_ways(const struct child *c, const char *entry) {
    return child_count(c, "calls.%s.plt", entry) + child_count(c, "calls.%s.dlsym", entry) +
           child_count(c, "calls.%s.table", entry);
}

static void each_call_is_counted_once(int n, int driver_count) {
    const struct binding *b = &bindings[n];
    struct child *c = run(b, driver_count, "ZEROUTE_CONF=preset:observe");
    uint64_t devices = strtoull(c->out, NULL, 10);
    static const struct {
        const char *entry;
        unsigned per_device;
    } made[] = {{"zeMemAllocDevice", CALLS},
                {"zeMemAllocShared", 1},
                {"zeMemFree", CALLS + 1},
                {"zeContextMakeMemoryResident", CALLS}};

    child_ok(c);
    ck_assert_ptr_nonnull(c->s);
    ck_assert_uint_ge(devices, (uint64_t)(CARDS * driver_count)); /* an old loader may list a driver twice */
    for (unsigned i = 0; i < sizeof made / sizeof *made; i++) {
        ck_assert_msg(child_count(c, "calls.%s.%s", made[i].entry, b->way) == made[i].per_device * devices,
                      "%s %s: %s.%s is %lu", b->program, b->more ? b->more : "", made[i].entry, b->way,
                      (unsigned long)child_count(c, "calls.%s.%s", made[i].entry, b->way));
        ck_assert_uint_eq(all_ways(c, made[i].entry), made[i].per_device * devices);
    }
    counts(c, "allocated_bytes.all.allocated", (CALLS + 1) * devices << 20);
    counts(c, "allocated_bytes.all.freed", (CALLS + 1) * devices << 20);
    counts(c, "allocated_bytes.all.current", 0);
    counts(c, "residency.owner.requested_calls", CALLS * devices);
    counts(c, "residency.peer.requested_calls", 0);
    ck_assert_uint_eq(child_count(c, "callers.%s.bytes", b->caller), (CALLS + 1) * devices << 20);
    child_free(c);
}

START_TEST(every_way_is_counted_once_on_one_driver) {
    each_call_is_counted_once(_i, 1);
}
END_TEST

START_TEST(every_way_is_counted_once_on_two_drivers) {
    each_call_is_counted_once(_i, 2);
}
END_TEST

START_TEST(data_is_intact_under_the_default_settings) {
    struct child *c = run(&bindings[_i], 2, "ZEROUTE_CONF=stats:on");

    child_ok(c);
    counts(c, "allocated_bytes.all.current", 0);
    child_free(c);
}
END_TEST

START_TEST(nothing_changes_without_statistics) {
    struct child *c = run(&bindings[_i], 1, "ZEROUTE_CONF=preset:observe,stats:off");

    child_ok(c);
    ck_assert_ptr_null(c->s);
    child_free(c);
}
END_TEST

static const struct unseen {
    struct binding way;
    const char *told, *out;
} unseen[] = {
    {{"bind_deep", "libstarter.so", NULL, "table", NULL},
     "not seen: calls through the Level Zero loader, which was opened deep-bound (RTLD_DEEPBIND) and had started",
     "2 devices"},
    {{"bind_deep", "libopener.so", "no mprotect", "table", NULL},
     "which was opened deep-bound (RTLD_DEEPBIND) and whose memory cannot be written",
     "found"},
    {{"bind_namespace", "libuser.so", NULL, "plt", NULL},
     "not seen: calls through the Level Zero loader, which was opened in a namespace",
     "2 devices"}};

START_TEST(what_is_bound_past_every_hook_works_and_is_reported_as_unseen) {
    struct child *c = run(&unseen[_i].way, 1, "ZEROUTE_CONF=preset:observe");
    const struct zeroute_field *hooks;

    child_ok(c);
    ck_assert_ptr_nonnull(c->s);
    hooks = zeroute_find(c->s, "hooks");
    ck_assert_ptr_nonnull(hooks);
    ck_assert_msg(strstr(hooks->text, unseen[_i].told), "hooks: %s", hooks->text);
    ck_assert_ptr_nonnull(strstr(c->out, unseen[_i].out));
    child_free(c);
}
END_TEST

START_TEST(a_program_that_uses_opencl_is_told_so) {
    const char *settings[] = {drivers(1), "ZEROUTE_CONF=preset:observe", NULL};
    const char *argv[] = {"opencl", build_path("test/process/libigdrcl.so"), NULL};
    struct child *c = child_run(settings, argv);
    const struct zeroute_field *hooks;

    child_ok(c);
    ck_assert_msg(strstr(c->out, "this program uses OpenCL: zeroute does not see its memory") != NULL, "%s", c->out);
    ck_assert_ptr_null(strstr(c->out, "deep-bound"));
    ck_assert_ptr_nonnull(c->s);
    hooks = zeroute_find(c->s, "hooks");
    ck_assert(hooks && strstr(hooks->text, "limits do not hold for it"));
    child_free(c);
}
END_TEST

/* Of what gives a device work; what everybody knows loses nothing. */
static const struct {
    const char *part, *told;
} missed[] = {{"known", NULL},
              {"name", "zeCommandListAppendTomorrow was asked for, which this version of zeroute does not know"},
              {"table", "a table of functions of API 1.99 was asked for"},
              {"many", "the process has more than 4 functions called zeCommandListAppendBarrier"}};
enum { MISSED = sizeof missed / sizeof *missed };

START_TEST(after_what_may_be_missed_nothing_counts_as_proven) {
    const char *settings[] = {"ZEROUTE_CONF=reuse:proven", NULL};
    const char *argv[] = {"tomorrow", build_path("test/process/libtomorrow.so"), missed[_i].part, NULL};
    struct child *c = child_run(settings, argv);
    const char *said = strstr(c->out, "falls back to reuse:runtime");

    child_ok(c);
    ck_assert_msg(!said == !missed[_i].told, "%s", c->out);
    if (said) {
        ck_assert_msg(strstr(said, missed[_i].told) != NULL, "%s", said);
        ck_assert_ptr_null(strstr(said + 1, "falls back"));
    }
    child_free(c);
}
END_TEST

START_TEST(every_wrapper_leads_to_the_place_that_the_table_names) {
    const char *argv[] = {"tables", build_path("test/process/libfake_driver.so"), NULL};
    const char *settings[] = {"ZEROUTE_CONF=preset:observe", NULL};
    struct child *c = child_run(settings, argv);

    child_ok(c);
    child_free(c);
}
END_TEST

int main(void) {
    Suite *s = suite_create("binding");
    TCase *t = tcase_create("ways");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_way_is_counted_once_on_one_driver, 0, BINDINGS);
    tcase_add_loop_test(t, every_way_is_counted_once_on_two_drivers, 0, BINDINGS);
    tcase_add_loop_test(t, data_is_intact_under_the_default_settings, 0, BINDINGS);
    tcase_add_loop_test(t, nothing_changes_without_statistics, 0, BINDINGS);
    tcase_add_loop_test(t, what_is_bound_past_every_hook_works_and_is_reported_as_unseen, 0, 3);
    tcase_add_test(t, a_program_that_uses_opencl_is_told_so);
    tcase_add_loop_test(t, after_what_may_be_missed_nothing_counts_as_proven, 0, MISSED);
    tcase_add_test(t, every_wrapper_leads_to_the_place_that_the_table_names);
    suite_add_tcase(s, t);
    return run_suite(s);
}
