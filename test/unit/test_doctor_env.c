/* Promises of tools/doctor/envcheck.c: which variables are called misspelt or inert. */
#include "doctor/doctor.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct zr_stack stack;
static struct zr_env_report last;
static unsigned reports;
static char folder[] = "/tmp/zeroute-env-XXXXXX";

static void keep(void *to, const struct zr_env_report *what) {
    (void)to;
    last = *what;
    reports++;
}

/* Lists end with an empty string. */
static void check(const char *list, size_t length) {
    stack.environ.text = malloc(length);
    memcpy(stack.environ.text, list, length);
    stack.environ.length = length;
    reports = 0;
    zr_env_check(&stack, keep, NULL);
    free(stack.environ.text);
    stack.environ.text = NULL;
}
#define CHECK(list) check(list, sizeof list)

static void load(enum zr_part part, const char *strings, size_t length) {
    struct zr_library *library = &stack.parts[part];
    FILE *f;

    library->there = true;
    snprintf(library->file, sizeof library->file, "%s/%d", folder, (int)part);
    f = fopen(library->file, "w");
    ck_assert_ptr_nonnull(f);
    fwrite(strings, length, 1, f);
    fclose(f);
}
#define LOAD(part, strings) load(part, "\0" strings, sizeof strings + 1)

static void nothing(void) {
    memset(&stack, 0, sizeof stack);
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void clear(void) {
    char command[100];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(what_the_simulated_gpu_needs_is_not_to_be_unset) {
    LOAD(ZR_PART_LOADER, "an old loader");
    CHECK("ZE_ENABLE_ALT_DRIVERS=/usr/lib/libze_other.so\0");
    ck_assert_uint_eq(reports, 1);
    CHECK("ZE_ENABLE_ALT_DRIVERS=/usr/lib/zeroute/libze_simgpu.so\0ZE_SIMGPU=devices:2\0");
    ck_assert_uint_eq(reports, 0);
}
END_TEST

START_TEST(distance_counts_edits_and_swaps) {
    ck_assert_uint_eq(zr_distance("abc", 3, "abc", 3), 0);
    ck_assert_uint_eq(zr_distance("abc", 3, "acb", 3), 1);
    ck_assert_uint_eq(zr_distance("abc", 3, "ab", 2), 1);
    ck_assert_uint_eq(zr_distance("kitten", 6, "sitting", 7), 3);
    ck_assert_uint_eq(zr_distance("abc", 3, "xyz", 3), 3);
}
END_TEST

START_TEST(a_misspelt_name_is_told_with_the_nearest_known_one) {
    CHECK("HOME=/root\0UR_L0_USE_RELAXED_ALLOCATION_LIMITS=1\0");
    ck_assert_uint_eq(reports, 1);
    ck_assert_int_eq(last.trouble, ZR_ENV_MISSPELT);
    ck_assert_str_eq(last.name, "UR_L0_USE_RELAXED_ALLOCATION_LIMITS");
    ck_assert_str_eq(last.nearest, "UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS");
    CHECK("ZE_AFINITY_MASK=0\0");
    ck_assert_str_eq(last.nearest, "ZE_AFFINITY_MASK");
    CHECK("NEOReadDebugKey=1\0");
    ck_assert_str_eq(last.nearest, "NEOReadDebugKeys");
    CHECK("NEOReadDebugKeys=1\0EnableDeferedBacking=0\0");
    ck_assert_str_eq(last.nearest, "EnableDeferBacking");
}
END_TEST

START_TEST(names_of_others_are_left_alone) {
    CHECK("PATH=/bin\0LESSOPEN=x\0UR_LIFE=1\0MyOwnVariable=2\0ZEROUTE_CONF=cache:off\0"
          "ONEAPI_ROOT=/opt\0UR_LOG_LEVEL_ZERO=level:debug\0");
    ck_assert_uint_eq(reports, 0);
}
END_TEST

START_TEST(a_key_of_the_driver_needs_the_master_key) {
    CHECK("EnableDeferBacking=0\0");
    ck_assert_uint_eq(reports, 1);
    ck_assert_int_eq(last.trouble, ZR_ENV_INERT);
    ck_assert_ptr_nonnull(strstr(last.todo, "NEOReadDebugKeys=1"));
    CHECK("NEO_L0_EnableDeferBacking=0\0NEOReadDebugKeys=0\0");
    ck_assert_uint_eq(reports, 1);
    CHECK("EnableDeferBacking=0\0NEOReadDebugKeys=1\0");
    ck_assert_uint_eq(reports, 0);
}
END_TEST

START_TEST(a_variable_that_only_the_other_adapter_reads_is_inert) {
    LOAD(ZR_PART_SYCL, "SYCL_CACHE_DIR");
    LOAD(ZR_PART_UR_V1, "UR_L0_USM_RESIDENT\0SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P");
    LOAD(ZR_PART_UR_V2, "SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P");
    stack.adapter = 2;
    CHECK("UR_L0_USM_RESIDENT=0x1\0");
    ck_assert_uint_eq(reports, 1);
    ck_assert_ptr_nonnull(strstr(last.why, "only adapter v1"));
    CHECK("SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P=1\0");
    ck_assert_uint_eq(reports, 0);
    stack.adapter = 1;
    CHECK("UR_L0_USM_RESIDENT=0x1\0");
    ck_assert_uint_eq(reports, 0);
    /* its file carries the name, and it ignores it all the same */
    CHECK("SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P=1\0");
    ck_assert_uint_eq(reports, 1);
}
END_TEST

START_TEST(names_of_the_old_plugins_are_inert_on_a_runtime_that_does_not_know_them) {
    LOAD(ZR_PART_SYCL, "SYCL_CACHE_DIR");
    LOAD(ZR_PART_UR_V2, "UR_L0_DEBUG");
    stack.adapter = 2;
    CHECK("SYCL_PI_LEVEL_ZERO_USM_ALLOCATOR=1\0SYCL_CACHE_DIR=/tmp\0");
    ck_assert_uint_eq(reports, 1);
    ck_assert_str_eq(last.name, "SYCL_PI_LEVEL_ZERO_USM_ALLOCATOR");
}
END_TEST

START_TEST(a_runtime_that_cannot_be_read_makes_nothing_inert) {
    stack.parts[ZR_PART_SYCL].there = stack.parts[ZR_PART_UR_V2].there = true;
    stack.adapter = 2;
    CHECK("UR_L0_USM_RESIDENT=0x1\0");
    ck_assert_uint_eq(reports, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("doctor: environment");
    TCase *env = tcase_create("env");

    tcase_add_checked_fixture(env, nothing, clear);
    tcase_add_test(env, what_the_simulated_gpu_needs_is_not_to_be_unset);
    tcase_add_test(env, distance_counts_edits_and_swaps);
    tcase_add_test(env, a_misspelt_name_is_told_with_the_nearest_known_one);
    tcase_add_test(env, names_of_others_are_left_alone);
    tcase_add_test(env, a_key_of_the_driver_needs_the_master_key);
    tcase_add_test(env, a_variable_that_only_the_other_adapter_reads_is_inert);
    tcase_add_test(env, names_of_the_old_plugins_are_inert_on_a_runtime_that_does_not_know_them);
    tcase_add_test(env, a_runtime_that_cannot_be_read_makes_nothing_inert);
    suite_add_tcase(suite, env);
    return run_suite(suite);
}
