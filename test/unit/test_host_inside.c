/* Promises of src/stats/host.c (the floor under host memory) and src/base/backing.c (backing:eager). */
#include "root.h"
#include "stats/stats.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void meminfo(unsigned long available_mib) {
    char text[96];

    snprintf(text, sizeof text, "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: %lu kB\n", available_mib << 10);
    lay("/proc/meminfo", text);
}

static void machine(void) {
    make_root();
    setenv("ZEROUTE_ROOT", root, 1);
    setenv("ZEROUTE_CONF", "stats:off", 1);
    unsetenv("NEOReadDebugKeys");
    unsetenv("EnableDeferBacking");
    zr_config_load();
}

static void clear(void) {
    clear_root();
}

/* A large request looks at the machine anew, however short ago the last look was. */
static bool refused(void) {
    return zr_host_refuses((uint64_t)1 << 30);
}

START_TEST(without_the_setting_nothing_is_refused) {
    meminfo(1);
    zr_config.host_floor = (struct zr_amount){0};
    ck_assert(!refused());
}
END_TEST

START_TEST(below_the_floor_memory_is_refused_and_above_it_given_again) {
    zr_config.host_floor = (struct zr_amount){.set = true, .bytes = (uint64_t)4 << 30};
    meminfo(5000);
    ck_assert(!refused());
    meminfo(4000);
    ck_assert(refused());
    meminfo(5000);
    ck_assert(!refused());
}
END_TEST

START_TEST(a_floor_may_be_a_part_of_the_machine) {
    zr_config.host_floor = (struct zr_amount){.set = true, .percent_x100 = 2500};
    meminfo(4097);
    ck_assert(!refused());
    meminfo(4095);
    ck_assert(refused());
}
END_TEST

START_TEST(a_machine_that_tells_nothing_refuses_nothing) {
    zr_config.host_floor = (struct zr_amount){.set = true, .bytes = (uint64_t)4 << 30};
    ck_assert(!refused());
}
END_TEST

START_TEST(eager_backing_is_put_into_the_environment) {
    zr_config.backing = ZR_BACKING_EAGER;
    zr_backing_apply();
    ck_assert_str_eq(getenv("NEOReadDebugKeys"), "1");
    ck_assert_str_eq(getenv("EnableDeferBacking"), "0");
}
END_TEST

START_TEST(what_the_user_set_himself_is_kept) {
    zr_config.backing = ZR_BACKING_EAGER;
    setenv("EnableDeferBacking", "1", 1);
    setenv("NEOReadDebugKeys", "0", 1);
    zr_backing_apply();
    ck_assert_str_eq(getenv("NEOReadDebugKeys"), "0");
    ck_assert_str_eq(getenv("EnableDeferBacking"), "1");
    unsetenv("EnableDeferBacking");
    setenv("NEO_EnableDeferBacking", "1", 1);
    zr_backing_apply();
    ck_assert_str_eq(getenv("NEO_EnableDeferBacking"), "1"); /* the longest prefix wins */
}
END_TEST

START_TEST(backing_as_asked_touches_nothing) {
    zr_config.backing = ZR_BACKING_DEFAULT;
    zr_backing_apply();
    ck_assert_ptr_null(getenv("NEOReadDebugKeys"));
    ck_assert_ptr_null(getenv("EnableDeferBacking"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host, inside");
    TCase *inside = tcase_create("inside");

    tcase_add_checked_fixture(inside, machine, clear);
    tcase_add_test(inside, without_the_setting_nothing_is_refused);
    tcase_add_test(inside, below_the_floor_memory_is_refused_and_above_it_given_again);
    tcase_add_test(inside, a_floor_may_be_a_part_of_the_machine);
    tcase_add_test(inside, a_machine_that_tells_nothing_refuses_nothing);
    tcase_add_test(inside, eager_backing_is_put_into_the_environment);
    tcase_add_test(inside, what_the_user_set_himself_is_kept);
    tcase_add_test(inside, backing_as_asked_touches_nothing);
    suite_add_tcase(suite, inside);
    return run_suite(suite);
}
