/* Arms and the plan, from their texts. */
#include "suite.h"
#include "unit/ab_fixture.h"

static struct zr_ab ab;
static struct zr_ab_arm *const arm = &ab.arm[0];

static void clear(void) {
    zr_ab_clear(&ab);
}

static void parse(const char *text) {
    clear();
    ab.n_arms = 1;
    char *wrong = zr_ab_arm_parse(arm, text);
    ck_assert_msg(!wrong, "%s: %s", text, wrong);
}

static void refuse(const char *text, const char *expected) {
    clear();
    ab.n_arms = 1;
    char *wrong = zr_ab_arm_parse(arm, text);
    ck_assert_msg(wrong && strstr(wrong, expected), "%s: got %s", text, wrong ? wrong : "no complaint");
    free(wrong);
}

static void settings_are(const char *expected) {
    char *settings = zr_ab_settings(arm);
    ck_assert_str_eq(settings, expected);
    free(settings);
}

static void has(size_t i, enum zr_ab_kind kind, const char *key, const char *value) {
    ck_assert_uint_lt(i, arm->n_items);
    ck_assert_int_eq(arm->items[i].kind, kind);
    ck_assert_str_eq(arm->items[i].key, key);
    ck_assert_str_eq(arm->items[i].value, value);
}

START_TEST(settings_stand_between_commas) {
    parse("route:native,cache:off");
    ck_assert_uint_eq(arm->n_items, 2);
    has(0, ZR_AB_SETTING, "route", "native");
    has(1, ZR_AB_SETTING, "cache", "off");
}
END_TEST

START_TEST(a_variable_may_have_commas) {
    parse("env:ZE_AFFINITY_MASK=0,1");
    ck_assert_uint_eq(arm->n_items, 1);
    has(0, ZR_AB_ENV, "ZE_AFFINITY_MASK", "0,1");
}
END_TEST

START_TEST(a_comma_before_another_item_ends_a_variable) {
    parse("env:ZE_AFFINITY_MASK=0,1,route:sycl,env:A=b=c,mitigate");
    ck_assert_uint_eq(arm->n_items, 4);
    has(0, ZR_AB_ENV, "ZE_AFFINITY_MASK", "0,1");
    has(1, ZR_AB_SETTING, "route", "sycl");
    has(2, ZR_AB_ENV, "A", "b=c");
    has(3, ZR_AB_PRESET, "mitigate", "");
}
END_TEST

START_TEST(an_escaped_comma_never_ends_a_variable) {
    parse("env:ZEROUTE_X=cache:on\\,route:sycl");
    ck_assert_uint_eq(arm->n_items, 1);
    has(0, ZR_AB_ENV, "ZEROUTE_X", "cache:on,route:sycl");
}
END_TEST

START_TEST(a_simulated_gpu_can_be_declared_whole) {
    parse("env:ZE_SIMGPU=devices:2,mirror:on,version:1.6.33000");
    ck_assert_uint_eq(arm->n_items, 1);
    has(0, ZR_AB_ENV, "ZE_SIMGPU", "devices:2,mirror:on,version:1.6.33000");
}
END_TEST

START_TEST(a_command_takes_the_rest) {
    parse("route:auto,cmd:python train.py --mode=a,b");
    ck_assert_uint_eq(arm->n_items, 2);
    has(1, ZR_AB_CMD, "", "python train.py --mode=a,b");
}
END_TEST

START_TEST(a_library_path_is_an_item) {
    parse("lib:/opt/neo-25.18,route:native");
    has(0, ZR_AB_LIB, "", "/opt/neo-25.18");
    has(1, ZR_AB_SETTING, "route", "native");
}
END_TEST

START_TEST(items_of_a_repeated_option_add_up) {
    parse("env:A=1");
    char *wrong = zr_ab_arm_parse(arm, "env:B=2");
    ck_assert(!wrong);
    ck_assert_uint_eq(arm->n_items, 2);
    ck_assert_str_eq(arm->text, "env:A=1,env:B=2");
}
END_TEST

START_TEST(what_is_not_a_setting_is_refused_by_name) {
    refuse("rout:native", "unknown setting 'rout:native': did you mean 'route:native'?");
    refuse("route:fast", "bad value 'fast' of route: expected auto|pool|sycl|native");
    refuse("limit:lots", "limit");
    refuse("cache_idle:", "cache_idle");
    refuse("mitigte", "unknown preset 'mitigte': did you mean 'mitigate'?");
    refuse("fast", "unknown setting 'fast'");
    refuse("env:NOVALUE", "expected env:NAME=VALUE");
    refuse("env:=x", "expected env:NAME=VALUE");
    refuse("lib:", "an empty path");
    refuse("cmd:", "an empty command");
    refuse("", "an empty arm");
    refuse("route:native,", "ends with a comma");
    refuse("none,route:native", "none has no preload");
    refuse("none,observe", "none has no preload");
}
END_TEST

START_TEST(every_arm_starts_from_observe) {
    parse("env:A=1");
    settings_are("route:native,cache:off");
    parse("route:auto");
    settings_are("route:auto,cache:off");
    parse("reroute,residency:owner");
    settings_are("route:auto,cache:on,residency:owner");
    char *idle = zr_ab_setting_value(arm, "cache_idle");
    ck_assert_str_eq(idle, "1s");
    free(idle);
}
END_TEST

START_TEST(abba_runs_every_second_round_backwards) {
    const size_t two[] = {0, 1, 1, 0, 0, 1}, three[] = {0, 1, 2, 2, 1, 0};
    size_t *plan = zr_ab_plan(2, 3, false, 1);

    ck_assert_mem_eq(plan, two, sizeof(two));
    free(plan);
    plan = zr_ab_plan(3, 2, false, 1);
    ck_assert_mem_eq(plan, three, sizeof(three));
    free(plan);
}
END_TEST

START_TEST(random_order_has_every_arm_in_every_round_and_follows_the_seed) {
    size_t *x = zr_ab_plan(3, 50, true, 7), *y = zr_ab_plan(3, 50, true, 7), *z = zr_ab_plan(3, 50, true, 8);

    ck_assert_mem_eq(x, y, 150 * sizeof(*x));
    ck_assert_mem_ne(x, z, 150 * sizeof(*x));
    for (size_t round = 0; round < 50; round++)
        ck_assert_uint_eq(1u << x[3 * round] | 1u << x[3 * round + 1] | 1u << x[3 * round + 2], 7);
    free(x);
    free(y);
    free(z);
}
END_TEST

static void declares(const char *a, const char *b, size_t n, const char *text) {
    char *texts[8] = {0};

    clear();
    ab.n_arms = 2;
    ck_assert(!zr_ab_arm_parse(&ab.arm[0], a));
    ck_assert(!zr_ab_arm_parse(&ab.arm[1], b));
    size_t got = zr_ab_declared(&ab.arm[0], &ab.arm[1], texts, 8);
    ck_assert_msg(got == n, "%s against %s: %zu, %s", a, b, got, texts[0] ? texts[0] : "");
    if (text)
        ck_assert_str_eq(texts[0], text);
    for (size_t i = 0; i < got && i < 8; i++)
        free(texts[i]);
}

START_TEST(declared_differences_are_counted) {
    declares("route:native", "route:sycl", 1, "route (native, sycl)");
    declares("route:native", "observe", 0, NULL);
    declares("observe", "reroute", 1, "preset (observe, reroute)");
    declares("observe", "mitigate", 1, "preset (observe, mitigate)");
    declares("route:native", "route:sycl,env:X=1", 2, NULL);
    declares("env:X=1", "env:X=2", 1, "X (1, 2)");
    declares("env:X=1", "route:native", 1, "X (1, as it is)");
    declares("lib:/a", "lib:/b", 1, "libraries (/a, /b)");
    declares("cmd:x", "cmd:y", 1, "the command");
    declares("none", "route:sycl", 1, "the preload (none)");
    declares("observe", "env:NEOReadDebugKeys=1,env:EnableDeferBacking=0", 1, NULL);
    declares("observe", "residency:owner,peer_callers:libccl.so", 1, NULL);
    declares("observe", "cache:on,cache_limit:1GiB", 1, NULL);
    declares("observe", "env:SYCL_UR_USE_LEVEL_ZERO_V2=0,env:UR_L0_USM_RESIDENT=0x1", 2, NULL);
}
END_TEST

int main(void) {
    Suite *s = suite_create("ab_arm");
    TCase *t = tcase_create("arms");

    tcase_add_checked_fixture(t, NULL, clear);
    tcase_add_test(t, settings_stand_between_commas);
    tcase_add_test(t, a_variable_may_have_commas);
    tcase_add_test(t, a_comma_before_another_item_ends_a_variable);
    tcase_add_test(t, an_escaped_comma_never_ends_a_variable);
    tcase_add_test(t, a_simulated_gpu_can_be_declared_whole);
    tcase_add_test(t, a_command_takes_the_rest);
    tcase_add_test(t, a_library_path_is_an_item);
    tcase_add_test(t, items_of_a_repeated_option_add_up);
    tcase_add_test(t, what_is_not_a_setting_is_refused_by_name);
    tcase_add_test(t, every_arm_starts_from_observe);
    tcase_add_test(t, abba_runs_every_second_round_backwards);
    tcase_add_test(t, random_order_has_every_arm_in_every_round_and_follows_the_seed);
    tcase_add_test(t, declared_differences_are_counted);
    suite_add_tcase(s, t);
    return run_suite(s);
}
