/* The host mirror on the simulated GPU: measured truly, stopped by either remedy, and nothing broken by it. */
#include "child.h"
#include "root.h"
#include "suite.h"

#include <math.h>

static void machine(void) {
    make_root();
    setenv("ZEROUTE_ROOT", root, 1);
    setenv("ZE_ENABLE_ALT_DRIVERS", build_path("libze_simgpu.so"), 1);
    setenv("ZE_SIMGPU", "devices:2,mirror:on", 1);
    unsetenv("NEOReadDebugKeys");
    unsetenv("EnableDeferBacking");
}

static void clear(void) {
    clear_root();
}

/* --- mirror-test ----------------------------------------------------------------------------- */

static struct child *mirror_test(const char *const *options) {
    static const char *const settings[] = {"LD_PRELOAD=", NULL};
    const char *argv[24] = {
        build_path("zeroute"), "mirror-test", "--json", "--step", "16MiB", "--count", "4", "--keep", "256MiB"};
    int n = 9;

    while (*options)
        argv[n++] = *options++;
    return child_run(settings, argv);
}

static double number_after(const char *text, const char *first, const char *second) {
    const char *at = strstr(text, first);

    at = at ? strstr(at, second) : NULL;
    return at ? strtod(at + strlen(second), NULL) : NAN;
}

static double last_number_after(const char *text, const char *key) {
    double value = NAN;

    for (const char *at = text; (at = strstr(at, key)); at++)
        value = strtod(at + strlen(key), NULL);
    return value;
}

static const struct measurement {
    const char *cards, *share, *residency, *backing;
    double slope;
    bool imports;
} measurements[] = {
    {"2", "peer", "default", "default", 1, true},  {"2", "peer", "owner", "default", 0, false},
    {"2", "peer", "default", "eager", 0, true},    {"2", "ipc", "default", "default", 1, false},
    {"2", "ipc", "owner", "default", 1, false},    {"2", "ipc", "default", "eager", 0, false},
    {"4", "peer", "default", "default", 1, true},  {"4", "peer", "owner", "default", 0, false},
    {"4", "peer", "default", "eager", 0, true},    {"4", "ipc", "default", "default", 1, false},
    {"4", "ipc", "owner", "default", 1, false},    {"4", "ipc", "default", "eager", 0, false},
    {"1", "peer", "default", "default", 0, false}, {"1", "peer", "owner", "default", 0, false},
    {"1", "peer", "default", "eager", 0, false},   {"2", "none", "default", "default", 0, false},
};
enum { MEASUREMENTS = sizeof measurements / sizeof *measurements };

START_TEST(host_bytes_per_device_byte_are_what_the_setting_makes_them) {
    const struct measurement *m = &measurements[_i];
    const char *options[] = {"--sim",       "--cards",    m->cards,    "--share",  m->share,
                             "--residency", m->residency, "--backing", m->backing, NULL};
    struct child *c = mirror_test(options);

    ck_assert_msg(WIFEXITED(c->status) && WEXITSTATUS(c->status) == (m->slope > 0 ? 1 : 0), "status %#x: %s",
                  (unsigned)c->status, c->out);
    ck_assert_double_eq_tol(number_after(c->out, "\"gpu_active\"", "\"slope\":"), m->slope, 0.02);
    /* MemAvailable tells the same */
    ck_assert_double_eq_tol(number_after(c->out, "\"mem_available\"", "\"slope\":"), m->slope, 0.05);
    ck_assert_msg(strstr(c->out, "\"data\": \"intact\"") != NULL, "%s", c->out);
    ck_assert_msg((last_number_after(c->out, "\"import_bytes\":") > 0) == m->imports, "%s", c->out);
    child_free(c);
}
END_TEST

START_TEST(it_stops_above_the_floor_of_host_memory) {
    const char *options[] = {"--sim", "--keep", "1024TiB", NULL};
    struct child *c = mirror_test(options);

    ck_assert_int_eq(WEXITSTATUS(c->status), 3);
    ck_assert_msg(strstr(c->out, "are kept (--keep)") != NULL, "%s", c->out);
    ck_assert_double_eq(last_number_after(c->out, "\"device_bytes\":"), 0);
    child_free(c);
}
END_TEST

START_TEST(cards_that_are_not_there_are_not_available) {
    static const char *const settings[] = {"LD_PRELOAD=", "ZE_SIMGPU=devices:1", NULL};
    const char *argv[] = {build_path("zeroute"), "mirror-test", "--cards", "3", NULL};
    struct child *c = child_run(settings, argv);

    ck_assert_int_eq(WEXITSTATUS(c->status), 3);
    ck_assert_msg(strstr(c->out, "there are 1 cards, not 3") != NULL, "%s", c->out);
    child_free(c);
}
END_TEST

START_TEST(all_settings_make_one_table) {
    static const char *const settings[] = {"LD_PRELOAD=", NULL};
    const char *argv[] = {build_path("zeroute"),
                          "mirror-test",
                          "--sim",
                          "--all",
                          "--markdown",
                          "--cards",
                          "1,2",
                          "--step",
                          "8MiB",
                          "--count",
                          "3",
                          "--keep",
                          "256MiB",
                          NULL};
    struct child *c = child_run(settings, argv);

    ck_assert_int_eq(WEXITSTATUS(c->status), 1);
    ck_assert_msg(strstr(c->out, "| as requested ") != NULL, "%s", c->out);
    ck_assert_double_eq_tol(number_after(c->out, "| as requested", "|  "), 0, 0.01);
    ck_assert_msg(strstr(c->out, "| residency:owner ") != NULL, "%s", c->out);
    ck_assert_msg(strstr(c->out, "1.00") != NULL, "%s", c->out);
    child_free(c);
}
END_TEST

START_TEST(wrong_usage_is_told_with_what_was_expected) {
    static const char *const settings[] = {"LD_PRELOAD=", NULL};
    static const char *const wrong[][2] = {{"--route", "north"}, {"--share", "all"}, {"--cards", "0"},
                                           {"--step", "big"},    {"--count", "1"},   {"--residency", "mine"},
                                           {"--backing", "lazy"}};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *argv[] = {build_path("zeroute"), "mirror-test", wrong[i][0], wrong[i][1], NULL};
        struct child *c = child_run(settings, argv);

        ck_assert_int_eq(WEXITSTATUS(c->status), 2);
        ck_assert_msg(strstr(c->out, "expected") != NULL, "%s", c->out);
        child_free(c);
    }
}
END_TEST

/* --- the policies themselves ----------------------------------------------------------------- */

static struct child *copy_between_cards(const char *conf, const char *more) {
    const char *settings[] = {conf, more, NULL};
    const char *argv[] = {"mirror_copy", NULL};

    return child_run(settings, argv);
}

static void figures(const struct child *c, unsigned long *before, unsigned long *after) {
    const char *at = strstr(c->out, "before ");

    ck_assert_msg(at && sscanf(at, "before %lu after %lu", before, after) == 2, "%s", c->out);
    ck_assert_msg(strstr(c->out, " same") != NULL, "%s", c->out);
}

START_TEST(as_asked_every_block_is_mirrored) {
    struct child *c = copy_between_cards("ZEROUTE_CONF=preset:observe", NULL);
    unsigned long before, after;

    child_ok(c);
    figures(c, &before, &after);
    ck_assert_uint_eq(before, 3 * 8192);
    counts(c, "residency.peer.granted_calls", 3);
    counts(c, "residency.peer.skipped_calls", 0);
    child_free(c);
}
END_TEST

START_TEST(under_owner_a_copy_between_cards_is_right_and_exports_its_one_buffer) {
    struct child *c = copy_between_cards("ZEROUTE_CONF=preset:mitigate", NULL);
    unsigned long before, after;

    child_ok(c);
    figures(c, &before, &after);
    ck_assert_uint_eq(before, 0);
    ck_assert_uint_eq(after, 8192);
    counts(c, "residency.owner.requested_calls", 3);
    counts(c, "residency.peer.requested_calls", 3);
    counts(c, "residency.peer.skipped_calls", 3);
    counts(c, "residency.peer.skipped_bytes", 3 * (8 << 20));
    counts(c, "callers.mirror_copy.skipped_calls", 3);
    counts(c, "residency.evict_skipped_calls", 1);
    child_free(c);
}
END_TEST

START_TEST(a_caller_that_is_named_is_let_through) {
    struct child *c = copy_between_cards("ZEROUTE_CONF=preset:mitigate,peer_callers:libccl.so+mirror_copy", NULL);
    unsigned long before, after;

    child_ok(c);
    figures(c, &before, &after);
    ck_assert_uint_eq(before, 3 * 8192);
    child_free(c);
}
END_TEST

START_TEST(eager_backing_works_in_a_program_that_is_linked_to_the_loader) {
    struct child *c = copy_between_cards("ZEROUTE_CONF=preset:eager", NULL);
    const struct zeroute_field *backing = c->s ? zeroute_find(c->s, "backing.in_force") : NULL;
    unsigned long before, after;

    child_ok(c);
    figures(c, &before, &after);
    ck_assert_uint_eq(before, 0);
    ck_assert_uint_eq(after, 0);
    ck_assert_ptr_nonnull(backing);
    ck_assert_msg(!strncmp(backing->text, "eager", 5), "%s", backing->text);
    child_free(c);
}
END_TEST

START_TEST(what_the_user_set_against_eager_backing_is_kept_and_named) {
    struct child *c = copy_between_cards("ZEROUTE_CONF=preset:eager", "EnableDeferBacking=1");
    const struct zeroute_field *backing = c->s ? zeroute_find(c->s, "backing.in_force") : NULL;
    unsigned long before, after;

    child_ok(c);
    figures(c, &before, &after);
    ck_assert_uint_eq(before, 3 * 8192);
    ck_assert_msg(strstr(c->out, "EnableDeferBacking=1 is set by the user and kept") != NULL, "%s", c->out);
    ck_assert_ptr_nonnull(backing);
    ck_assert_msg(strstr(backing->text, "EnableDeferBacking=1") != NULL, "%s", backing->text);
    child_free(c);
}
END_TEST

/* What the driver itself sees is checked in the program; these are the books. */
static const struct {
    const char *name;
    uint64_t owner, peer, skipped;
} residencies[] = {{"peer", 2, 3, 3},     {"evict", 1, 1, 1},   {"tile", 2, 0, 0}, {"virtual", 0, 0, 0},
                   {"imported", 0, 0, 0}, {"foreign", 1, 2, 2}, {"wrong", 0, 0, 0}};
enum { RESIDENCIES = sizeof residencies / sizeof *residencies };

START_TEST(owner_skips_peers_and_lets_all_else_through) {
    const char *settings[] = {"ZEROUTE_CONF=preset:mitigate", "ZE_SIMGPU=devices:2,tiles:2,mirror:on,count:on", NULL};
    const char *argv[] = {"residency", residencies[_i].name, NULL};
    struct child *c = child_run(settings, argv);

    child_ok(c);
    counts(c, "residency.owner.requested_calls", residencies[_i].owner);
    counts(c, "residency.peer.requested_calls", residencies[_i].peer);
    counts(c, "residency.peer.skipped_calls", residencies[_i].skipped);
    child_free(c);
}
END_TEST

START_TEST(below_the_host_floor_device_memory_is_refused_counted_and_said) {
    const char *settings[] = {"ZEROUTE_CONF=preset:observe,host_floor:1024TiB", NULL};
    const char *argv[] = {"mirror_copy", NULL};
    struct child *c = child_run(settings, argv);

    ck_assert_int_eq(WEXITSTATUS(c->status), 1);
    ck_assert_msg(strstr(c->out, "0x70000002") != NULL, "%s", c->out);
    ck_assert_msg(strstr(c->out, "the setting host_floor refused") != NULL, "%s", c->out);
    counts(c, "host_floor.refused_calls", 1);
    counts(c, "allocated_bytes.all.current", 0);
    child_free(c);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mirror");
    TCase *t = tcase_create("mirror");

    tcase_add_checked_fixture(t, machine, clear);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, host_bytes_per_device_byte_are_what_the_setting_makes_them, 0, MEASUREMENTS);
    tcase_add_test(t, it_stops_above_the_floor_of_host_memory);
    tcase_add_test(t, cards_that_are_not_there_are_not_available);
    tcase_add_test(t, all_settings_make_one_table);
    tcase_add_test(t, wrong_usage_is_told_with_what_was_expected);
    tcase_add_test(t, as_asked_every_block_is_mirrored);
    tcase_add_test(t, under_owner_a_copy_between_cards_is_right_and_exports_its_one_buffer);
    tcase_add_test(t, a_caller_that_is_named_is_let_through);
    tcase_add_test(t, eager_backing_works_in_a_program_that_is_linked_to_the_loader);
    tcase_add_test(t, what_the_user_set_against_eager_backing_is_kept_and_named);
    tcase_add_loop_test(t, owner_skips_peers_and_lets_all_else_through, 0, RESIDENCIES);
    tcase_add_test(t, below_the_host_floor_device_memory_is_refused_counted_and_said);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
