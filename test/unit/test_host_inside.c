/* Promises of src/stats/host.c (host figures, what grows, the floor) and src/base/backing.c (backing:eager). */
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

/* --- what is sampled, with a segment and a clock of our own ------------------------------------------------------ */

static time_t clock_now;

time_t time(time_t *to) {
    if (to)
        *to = clock_now;
    return clock_now;
}

#define MIB(n) ((uint64_t)(n) << 20)

static void machine_with_a_segment(void) {
    make_root();
    setenv("ZEROUTE_ROOT", root, 1);
    setenv("ZEROUTE_CONF", "preset:observe", 1);
    zr_config_load();
    clock_now = 1000;
    lay("/proc/meminfo", "MemAvailable: 4194304 kB\nGPUActive: 1048576 kB\n");
    ck_assert(zr_stats_open());
}

static void without_the_segment(void) {
    ck_assert_int_eq(unlink(zr_segment.path), 0);
    clear_root();
}

static uint64_t gauge(enum zr_gauge g) {
    return zr_segment.globals->gauges[g];
}

/* A sample after so many seconds, with so much host USM and device memory more. */
static void later(unsigned seconds, int64_t host_usm, int64_t device) {
    static uint64_t due = 1; /* the first one was when the segment was made */

    clock_now += seconds;
    if (host_usm > 0)
        zr_book(ZR_KIND_HOST, 0, (uint64_t)host_usm);
    else if (host_usm < 0)
        zr_unbook(ZR_KIND_HOST, 0, (uint64_t)-host_usm);
    if (device)
        zr_book(ZR_KIND_DEVICE, 0, (uint64_t)device);
    zr_host_sample(++due);
}

START_TEST(host_usm_is_no_mirror) {
    lay("/proc/meminfo", "MemAvailable: 4194304 kB\nGPUActive: 1572864 kB\n"); /* 512 MiB more */
    later(1, MIB(384), 0);
    ck_assert_uint_eq(gauge(ZR_G_HOST_MIRROR), MIB(128));
    later(1, MIB(384), 0);
    ck_assert_uint_eq(gauge(ZR_G_HOST_MIRROR), 0);
}
END_TEST

START_TEST(what_grows_by_itself_is_noted_since_it_last_stood_still) {
    later(1, MIB(64), 0);
    later(99, 0, 0); /* still at 1100 s */
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_HOST), 0);
    for (int i = 0; i < 10; i++)
        later(10, MIB(8), 0);
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_HOST), MIB(72)); /* the first rise after a long rest */
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_HOST_SINCE), 1110);
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_HOST_ROSE), 1200);
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_HOST_STEPS), 9);
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_UNSEEN_STEPS), 0);
    later(10, -(int64_t)MIB(144), 0); /* all is freed: nothing grows any more */
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_HOST), 0);
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_HOST_STEPS), 0);
}
END_TEST

START_TEST(what_grows_with_the_allocations_is_not_noted) {
    for (int i = 0; i < 10; i++)
        later(10, MIB(8), MIB(8));
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_HOST_STEPS), 0);
}
END_TEST

START_TEST(open_handles_are_watched_too) {
    for (int i = 0; i < 10; i++) {
        zr_count(ZR_F_IPC_IMPORTS, 3);
        later(10, 0, MIB(8));
    }
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_IPC_STEPS), 10);
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_IPC), 0);
}
END_TEST

static void card_holds(unsigned vram_mib, unsigned gtt_mib) {
    char path[64], text[256];

    snprintf(path, sizeof path, "/proc/%d/fdinfo/9", (int)getpid());
    snprintf(text, sizeof text,
             "drm-driver:\txe\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram0:\t%u MiB\n"
             "drm-total-gtt:\t%u MiB\n",
             vram_mib, gtt_mib);
    lay(path, text);
}

START_TEST(memory_beside_the_allocations_is_watched_on_the_cards) {
    zr_drm_name(0, 3 << 8);
    card_holds(64, 0);
    later(1, 0, MIB(64));
    while (*zr_card(0, ZR_C_VRAM) != MIB(64)) { /* cards are looked at the less often the longer it takes */
        usleep(1000);
        later(0, 0, 0);
    }
    for (unsigned i = 1; gauge(ZR_G_GROWTH_UNSEEN_STEPS) < 3 || gauge(ZR_G_GROWTH_GTT_STEPS) < 3; i++) {
        card_holds(64 + 10 * i, 5 * i);
        usleep(1000);
        later(0, 0, 0);
    }
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_UNSEEN), 0);
    ck_assert_uint_eq(gauge(ZR_G_GROWTH_GTT), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host, inside");
    TCase *sampled = tcase_create("sampled");
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
    tcase_set_timeout(sampled, 60);
    tcase_add_checked_fixture(sampled, machine_with_a_segment, without_the_segment);
    tcase_add_test(sampled, host_usm_is_no_mirror);
    tcase_add_test(sampled, what_grows_by_itself_is_noted_since_it_last_stood_still);
    tcase_add_test(sampled, what_grows_with_the_allocations_is_not_noted);
    tcase_add_test(sampled, open_handles_are_watched_too);
    tcase_add_test(sampled, memory_beside_the_allocations_is_watched_on_the_cards);
    suite_add_tcase(suite, sampled);
    return run_suite(suite);
}
