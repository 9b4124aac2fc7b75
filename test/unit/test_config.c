/*
 * The settings: what is understood, what is refused and in which words, and which setting is stronger.
 */
#include "base/base.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static char complaints[4096];
static int complaint_count;

static void bad(const char *why, void *data) {
    (void)data;
    strncat(complaints, why, sizeof complaints - strlen(complaints) - 1);
    complaint_count++;
}

static struct zr_settings parse(const char *text) {
    static struct zr_settings c; /* texts lie in it */
    complaints[0] = '\0';
    complaint_count = 0;
    zr_settings_default(&c);
    zr_settings_parse(&c, text, ',', bad, NULL);
    return c;
}

static uint64_t bytes_of(const char *text) {
    struct zr_amount a = {0};
    return zr_parse_amount(text, &a) && !a.percent_x100 ? a.bytes : 0;
}

static uint32_t percent_of(const char *text) {
    struct zr_amount a = {0};
    return zr_parse_amount(text, &a) ? a.percent_x100 : 0;
}

START_TEST(the_defaults_are_those_of_a_bare_preload) {
    static const char *const defaults[] = {"route:auto",
                                           "cache:on",
                                           "residency:default",
                                           "backing:default",
                                           "guard:on",
                                           "reuse:proven",
                                           "limit:none",
                                           "group_limit:none",
                                           "group:none",
                                           "free_memory:default",
                                           "cache_limit:none",
                                           "cache_idle:1s",
                                           "cache_host:off",
                                           "host_floor:none",
                                           "peer_callers:none",
                                           "ipc:default",
                                           "ipc_hold_limit:5%",
                                           "stats:on",
                                           "record:none",
                                           "stacks:native",
                                           "check:none",
                                           "check_quarantine:256MiB",
                                           "check_exported:keep",
                                           "check_wait:50ms",
                                           "pause:off",
                                           "inject:none"};
    char text[2048] = ",", item[64];
    struct zr_settings c;
    zr_settings_default(&c);
    zr_settings_print(&c, text + 1, sizeof text - 2);
    strcat(text, ",");
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        snprintf(item, sizeof item, ",%s,", defaults[i]);
        ck_assert_msg(strstr(text, item), "not %s: %s", defaults[i], text);
    }
}
END_TEST

START_TEST(every_setting_of_the_table_parses) {
    struct zr_settings c =
        parse("route:sycl,cache:off,residency:owner,backing:eager,guard:off,reuse:always,"
              "limit:12GiB,cache_limit:5%,cache_idle:500ms,cache_host:on,peer_callers:libccl.so+libfoo.so,"
              "group_limit:50%,group:mine,host_floor:4GiB,stats:off,record:/tmp/t.%p,stacks:off,"
              "check:all,check_quarantine:1GiB,check_exported:poison,check_wait:1s,pause:on,"
              "inject:zeMemAllocDevice@3=0x70000003");
    ck_assert_int_eq(complaint_count, 0);
    ck_assert_int_eq(c.route, ZR_ROUTE_SYCL);
    ck_assert(!c.cache && !c.guard && !c.stats && c.cache_host && c.pause);
    ck_assert_int_eq(c.residency, ZR_RESIDENCY_OWNER);
    ck_assert_int_eq(c.backing, ZR_BACKING_EAGER);
    ck_assert_int_eq(c.reuse, ZR_REUSE_ALWAYS);
    ck_assert_uint_eq(c.limit.bytes, 12ull << 30);
    ck_assert_uint_eq(c.cache_limit.percent_x100, 500);
    ck_assert_uint_eq(c.cache_idle, 500000000);
    ck_assert_str_eq(c.peer_callers, "libccl.so+libfoo.so");
    ck_assert_uint_eq(c.host_floor.bytes, 4ull << 30);
    ck_assert_uint_eq(c.group_limit.percent_x100, 5000);
    ck_assert_str_eq(c.group, "mine");
    ck_assert_str_eq(c.record, "/tmp/t.%p");
    ck_assert_uint_eq(c.inject.count, 1);
    ck_assert_str_eq(c.inject.rule[0].call, "zeMemAllocDevice");
    ck_assert_uint_eq(c.inject.rule[0].nth, 3);
    ck_assert_uint_eq(c.inject.rule[0].code, 0x70000003);
}
END_TEST

/* ZR_ROUTE_AUTO is "auto" of route. */
START_TEST(the_values_of_a_choice_are_named_as_they_are_written) {
    static const char *const names[] = {
#define ZR_VALUES(...) #__VA_ARGS__,
#include "base/settings.def"
    };
    size_t n = 0;

    for (size_t i = 0; i < zr_setting_count; i++) {
        char expected[256] = "", *at = expected;

        if (zr_settings[i].type != ZR_TYPE_CHOICE)
            continue;
        for (const char *v = zr_settings[i].values; *v; v += strcspn(v, "|") + (v[strcspn(v, "|")] == '|'))
            at += sprintf(at, "%sZR_%s_%.*s", v == zr_settings[i].values ? "" : ", ", zr_settings[i].name,
                          (int)strcspn(v, "|"), v);
        ck_assert_uint_lt(n, sizeof names / sizeof *names);
        ck_assert_msg(strcasecmp(expected, names[n]) == 0, "%s: %s", zr_settings[i].name, names[n]);
        n++;
    }
    ck_assert_uint_eq(n, sizeof names / sizeof *names);
}
END_TEST

START_TEST(what_is_printed_parses_to_the_same) {
    char once[2048], twice[2048];
    struct zr_settings c = parse("limit:12.5%,cache_limit:1000,cache_idle:20us,record:a b,"
                                 "inject:zeMemFree@1=1+zeMemAllocHost@2=0x70000002,route:pool");
    ck_assert_int_eq(complaint_count, 0);
    zr_settings_print(&c, once, sizeof once);
    c = parse(once);
    ck_assert_int_eq(complaint_count, 0);
    zr_settings_print(&c, twice, sizeof twice);
    ck_assert_str_eq(once, twice);
    ck_assert_ptr_nonnull(strstr(once, "limit:12.50%"));
}
END_TEST

START_TEST(sizes_are_read_as_people_write_them) {
    ck_assert_uint_eq(bytes_of("12GiB"), 12ull << 30);
    ck_assert_uint_eq(bytes_of("12 gib"), 12ull << 30);
    ck_assert_uint_eq(bytes_of("512M"), 512ull << 20);
    ck_assert_uint_eq(bytes_of("1.5g"), 3ull << 29);
    ck_assert_uint_eq(bytes_of("2GB"), 2000000000);
    ck_assert_uint_eq(bytes_of("4096"), 4096);
    ck_assert_uint_eq(bytes_of("1TiB"), 1ull << 40);
    ck_assert_uint_eq(percent_of("80%"), 8000);
    ck_assert_uint_eq(percent_of("80 %"), 8000);
    ck_assert_uint_eq(percent_of("0.5%"), 50);
}
END_TEST

START_TEST(what_is_no_size_is_refused) {
    static const char *const wrong[] = {
        "",           "GiB",  "-1GiB", "1XiB",  "1..5G", "0",   "0%", "101%",
        "1G1",        "0x10", "1e9",   "16EiB", "1.G",   ".5G", "%",  "999999999999999999999",
        "9999999TiB", "nan"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct zr_amount a;
        ck_assert_msg(!zr_parse_amount(wrong[i], &a), "took '%s'", wrong[i]);
    }
}
END_TEST

START_TEST(a_cache_limit_of_nothing_is_meant) {
    struct zr_settings c = parse("cache_limit:0,limit:0,host_floor:0");
    char text[2048];

    ck_assert(c.cache_limit.set && c.cache_limit.bytes == 0 && c.cache_limit.percent_x100 == 0);
    ck_assert_int_eq(complaint_count, 2);
    ck_assert(!c.limit.set && !c.host_floor.set);
    zr_settings_print(&c, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, ",cache_limit:0,"));
    c = parse(text);
    ck_assert(complaint_count == 0 && c.cache_limit.set);
}
END_TEST

START_TEST(times_are_read_as_people_write_them) {
    static const struct {
        const char *text;
        uint64_t ns;
    } right[] = {{"1s", 1000000000},    {"500ms", 500000000},   {"2", 2000000000}, {"0", 0},
                 {"1.5 s", 1500000000}, {"2min", 120000000000}, {"20us", 20000}};
    uint64_t ns;
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        ck_assert(zr_parse_time(right[i].text, &ns));
        ck_assert_uint_eq(ns, right[i].ns);
    }
    ck_assert(!zr_parse_time("1h2", &ns));
    ck_assert(!zr_parse_time("soon", &ns));
}
END_TEST

START_TEST(an_unknown_setting_is_named_and_the_others_still_count) {
    struct zr_settings c = parse("rout:native,cache:off");
    ck_assert_int_eq(complaint_count, 1);
    ck_assert_ptr_nonnull(strstr(complaints, "unknown setting 'rout': expected one of route, cache, "));
    ck_assert(!c.cache);
}
END_TEST

START_TEST(a_bad_value_is_named_with_what_was_expected_and_the_default_stays) {
    struct zr_settings c = parse("route:nativ,limit:lots,cache:yes,host_floor:50%");
    ck_assert_int_eq(complaint_count, 4);
    ck_assert_ptr_nonnull(strstr(complaints, "bad value 'nativ' of route: expected auto|pool|sycl|native"));
    ck_assert_ptr_nonnull(strstr(complaints, "bad value 'lots' of limit: expected none|auto|SIZE|PERCENT"));
    ck_assert_ptr_nonnull(strstr(complaints, "bad value '50%' of host_floor: expected none|auto|SIZE"));
    ck_assert_int_eq(c.route, ZR_ROUTE_AUTO);
    ck_assert(!c.limit.set && c.cache && !c.host_floor.set);
}
END_TEST

START_TEST(a_key_without_a_value_is_refused) {
    parse("route");
    ck_assert_ptr_nonnull(strstr(complaints, "'route' has no value: expected key:value"));
    parse("record:");
    ck_assert_int_eq(complaint_count, 1);
}
END_TEST

START_TEST(inject_takes_several_rules_and_only_calls_that_exist) {
    struct zr_settings c = parse("inject:zeMemAllocDevice@1=0x70000003+zeMemFree@2=1");
    ck_assert_int_eq(complaint_count, 0);
    ck_assert_uint_eq(c.inject.count, 2);
    static const char *const wrong[] = {"inject:zeMemAllocDevice",       "inject:zeMemAllocDevice@0=1",
                                        "inject:zeMemAllocDevice@x=1",   "inject:zeMemAllocDevice@1",
                                        "inject:zeMemAllocDevice@1=0",   "inject:zeNothing@1=1",
                                        "inject:zeMemFree@1=1+",         "inject:@1=1",
                                        "inject:zeMemFree@1=0x1ffffffff"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        c = parse(wrong[i]);
        ck_assert_msg(complaint_count == 1 && c.inject.count == 0, "took '%s'", wrong[i]);
    }
}
END_TEST

START_TEST(later_settings_are_stronger) {
    struct zr_settings c = parse("cache:on,cache:off,limit:1GiB,limit:none");
    ck_assert(!c.cache && !c.limit.set);
}
END_TEST

START_TEST(a_preset_is_a_whole_setting_but_leaves_what_only_records) {
    struct zr_settings c = parse("residency:owner,limit:1GiB,record:/tmp/t,stacks:off,preset:observe");
    ck_assert_int_eq(complaint_count, 0);
    ck_assert_int_eq(c.route, ZR_ROUTE_NATIVE);
    ck_assert(!c.cache && !c.limit.set);
    ck_assert_int_eq(c.residency, ZR_RESIDENCY_DEFAULT);
    ck_assert_str_eq(c.record, "/tmp/t");
    parse("preset:nothing");
    ck_assert_ptr_nonnull(strstr(complaints, "unknown preset 'nothing': expected one of observe, reroute, "));
}
END_TEST

START_TEST(each_preset_is_one_step_from_observe) {
    static const struct {
        const char *name, *settings;
    } expected[] = {{"observe", "route:native,cache:off"},
                    {"reroute", "route:auto,cache:on"},
                    {"path", "route:sycl,cache:off"},
                    {"mitigate", "route:native,cache:off,residency:owner"},
                    {"eager", "route:native,cache:off,backing:eager"},
                    {"safe", "route:native,cache:off,limit:auto,free_memory:checked,ipc:hold,host_floor:auto"}};
    ck_assert_uint_eq(zr_preset_count, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < zr_preset_count; i++) {
        char a[2048], b[2048];
        struct zr_settings c = parse(expected[i].settings);
        zr_settings_print(&c, a, sizeof a);
        const struct zr_preset *p = zr_preset_find(expected[i].name, strlen(expected[i].name));
        ck_assert_ptr_nonnull(p);
        zr_preset_set(&c, p);
        zr_settings_print(&c, b, sizeof b);
        ck_assert_str_eq(a, b);
    }
}
END_TEST

START_TEST(a_file_has_one_setting_to_a_line_and_comments) {
    struct zr_settings c;
    complaint_count = 0;
    zr_settings_default(&c);
    zr_settings_parse(&c, "# ours\n cache = off \n\nlimit: 80 %  # of the card\r\nroute=native", '\n', bad, NULL);
    ck_assert_int_eq(complaint_count, 0);
    ck_assert(!c.cache);
    ck_assert_uint_eq(c.limit.percent_x100, 8000);
    ck_assert_int_eq(c.route, ZR_ROUTE_NATIVE);
}
END_TEST

START_TEST(text_that_is_far_too_long_is_refused_and_harms_nothing) {
    char *text = malloc(20000);
    memset(text, 'x', 19999);
    text[19999] = '\0';
    memcpy(text, "record:", 7);
    struct zr_settings c = parse(text);
    ck_assert_int_eq(complaint_count, 1);
    ck_assert_ptr_null(c.record);
    free(text);
}
END_TEST

/* Each value was appended to one buffer of 4096 bytes: about the 50th change failed. */
START_TEST(a_setting_may_change_for_ever) {
    char file[128], why[256] = "";

    memset(file, 'f', sizeof file - 1);
    file[sizeof file - 1] = '\0';
    setenv("ZEROUTE_CONF", "peer_callers:libccl", 1);
    zr_config_load();
    for (int i = 0; i < 2000; i++) {
        ck_assert_msg(zr_config_change("record", i % 2 ? "none" : file, why, sizeof why), "change %d: %s", i, why);
        if (i % 2)
            ck_assert_ptr_null(zr_config.record);
        else
            ck_assert_str_eq(zr_config.record, file);
        ck_assert_str_eq(zr_config.peer_callers, "libccl");
    }
}
END_TEST

/* Old structures are kept for a while, because other threads may be reading them; not for ever. */
START_TEST(a_setting_may_have_any_number_of_values) {
    char value[32], why[256] = "";
    unsigned waited = 0;

    setenv("ZEROUTE_CONF", "peer_callers:libccl", 1);
    zr_config_load();
    for (int i = 1; i <= 1100; i++) {
        snprintf(value, sizeof value, "%dMiB", i);
        while (!zr_config_change("limit", value, why, sizeof why)) {
            ck_assert_msg(strstr(why, "too often within a second") != NULL, "change %d: %s", i, why);
            ck_assert_uint_lt(waited++, 5000);
            usleep(1000);
        }
        ck_assert_uint_eq(zr_config.limit.bytes, (uint64_t)i << 20);
        ck_assert_str_eq(zr_config.peer_callers, "libccl");
    }
    ck_assert_uint_gt(waited, 0);
}
END_TEST

START_TEST(a_copy_has_what_is_in_force_and_no_more) {
    struct zr_settings first = parse("record:a.zr,limit:3GiB,inject:zeMemFree@2=0x70000003"), copy, other;
    const size_t used = first.text_used;

    zr_settings_parse(&first, "record:b.zr", ',', NULL, NULL);
    zr_settings_copy(&copy, &first);
    ck_assert_uint_eq(copy.text_used, used);
    ck_assert_str_eq(copy.record, "b.zr");
    ck_assert(copy.record >= copy.text && copy.record < copy.text + sizeof copy.text);
    ck_assert(zr_settings_equal(&copy, &first));
    for (size_t i = 0; i < zr_setting_count; i++) {
        static const char *const values[] = {"on", "off", "77", "5ms", "zeMemFree@9=0x70000003"};

        zr_settings_copy(&other, &first);
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            if (zr_setting_set(&other, zr_settings[i].name, values[v], complaints, sizeof complaints) &&
                !zr_settings_equal(&other, &first))
                break;
        if (zr_settings[i].type != ZR_TYPE_CHOICE)
            ck_assert_msg(!zr_settings_equal(&other, &first), "%s", zr_settings[i].name);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("config");
    TCase *t = tcase_create("settings");
    tcase_add_test(t, the_defaults_are_those_of_a_bare_preload);
    tcase_add_test(t, every_setting_of_the_table_parses);
    tcase_add_test(t, the_values_of_a_choice_are_named_as_they_are_written);
    tcase_add_test(t, what_is_printed_parses_to_the_same);
    tcase_add_test(t, sizes_are_read_as_people_write_them);
    tcase_add_test(t, what_is_no_size_is_refused);
    tcase_add_test(t, a_cache_limit_of_nothing_is_meant);
    tcase_add_test(t, times_are_read_as_people_write_them);
    tcase_add_test(t, an_unknown_setting_is_named_and_the_others_still_count);
    tcase_add_test(t, a_bad_value_is_named_with_what_was_expected_and_the_default_stays);
    tcase_add_test(t, a_key_without_a_value_is_refused);
    tcase_add_test(t, inject_takes_several_rules_and_only_calls_that_exist);
    tcase_add_test(t, later_settings_are_stronger);
    tcase_add_test(t, a_preset_is_a_whole_setting_but_leaves_what_only_records);
    tcase_add_test(t, each_preset_is_one_step_from_observe);
    tcase_add_test(t, a_file_has_one_setting_to_a_line_and_comments);
    tcase_add_test(t, text_that_is_far_too_long_is_refused_and_harms_nothing);
    tcase_add_test(t, a_setting_may_change_for_ever);
    tcase_add_test(t, a_setting_may_have_any_number_of_values);
    tcase_add_test(t, a_copy_has_what_is_in_force_and_no_more);
    suite_add_tcase(s, t);
    return run_suite(s);
}
