/* What selftest takes for the same, for a known difference, and for a finding. */
#include "selftest/selftest.h"
#include "suite.h"

/* A run that said these lines, NULL last. */
static struct zr_child said(const char *const *lines) {
    struct zr_child c = {.ending = ZR_ENDED};

    while (lines[c.count])
        c.count++;
    c.line = (char **)(uintptr_t)lines;
    return c;
}
#define SAID(...) said((const char *const[]){__VA_ARGS__, NULL})

static enum zr_difference compared(const char *setting, struct zr_child alone, struct zr_child under) {
    const char *reason = NULL;
    enum zr_difference d;
    size_t at = 0;

    d = zr_compare(setting, &alone, &under, &at, &reason);
    ck_assert_msg((d == ZR_SAME_BUT_KNOWN) == (reason != NULL), "a known difference has a reason");
    return d;
}

START_TEST(equal_answers_are_the_same) {
    ck_assert_int_eq(compared("reroute", SAID("0 copy: 0", "end:"), SAID("0 copy: 0", "end:")), ZR_SAME);
}
END_TEST

START_TEST(another_answer_another_end_and_a_missing_line_differ) {
    ck_assert_int_eq(compared("reroute", SAID("0 copy: 0 0 wrong hash 0x1"), SAID("0 copy: 0 0 wrong hash 0x2")),
                     ZR_DIFFERS);
    ck_assert_int_eq(compared("reroute", SAID("0 copy: 0", "end:"), SAID("0 copy: 0")), ZR_DIFFERS);
    ck_assert_int_eq(compared("reroute", SAID("0 copy: 0"), SAID("0 copy: 0", "end:")), ZR_DIFFERS);
    ck_assert_int_eq(compared("reroute", SAID("0 free: free0 device 0"), SAID("0 free: free0 device 0x78000004")),
                     ZR_DIFFERS);
}
END_TEST

START_TEST(safe_may_refuse_early_and_others_may_not) {
    struct zr_child alone = SAID("0 allocate: allocate device size 1: 0 pointer aligned", "1 copy: 0");
    struct zr_child under = SAID("0 allocate: allocate device size 1: 0x70000003 null", "1 copy:");

    ck_assert_int_eq(compared("safe", alone, under), ZR_SAME_BUT_KNOWN);
    ck_assert_int_eq(compared("reroute", alone, under), ZR_DIFFERS);
}
END_TEST

START_TEST(check_may_report_what_is_wrong_on_purpose_and_nothing_else) {
    struct zr_child alone = SAID("0 wrong-free: 0", "end:");

    ck_assert_int_eq(compared("check", alone, SAID("0 wrong-free: 0", "end:", "report: foreign_free: 0x1")),
                     ZR_SAME_BUT_KNOWN);
    ck_assert_int_eq(compared("check", alone, SAID("0 wrong-free: 0", "end:", "report: overrun: 0x1")), ZR_DIFFERS);
    ck_assert_int_eq(compared("reroute", alone, SAID("0 wrong-free: 0", "end:", "report: leak: 0x1")), ZR_DIFFERS);
}
END_TEST

START_TEST(a_lie_of_the_driver_may_be_corrected_but_not_made) {
    ck_assert_int_eq(compared("reroute", SAID("0 ask: size 1 CONTRADICTS"), SAID("0 ask: size 2")), ZR_SAME_BUT_KNOWN);
    ck_assert_int_eq(compared("reroute", SAID("0 ask: size 2"), SAID("0 ask: size 1 CONTRADICTS")), ZR_DIFFERS);
    ck_assert_int_eq(compared("reroute", SAID("0 copy: 5 wrong"), SAID("0 copy: 6 wrong")), ZR_DIFFERS);
}
END_TEST

static const char *contradiction(struct zr_child c) {
    size_t at;

    return zr_contradiction(&c, &at);
}

START_TEST(a_run_that_went_wrong_shows_it_by_itself) {
    ck_assert_ptr_null(contradiction(SAID("0 copy: 0 0 wrong hash 0x1", "10 wrong: 2: 0", "11 wrong-free: 0")));
    ck_assert_ptr_nonnull(contradiction(SAID("0 copy: 0 4096 wrong hash 0x1")));
    ck_assert_ptr_nonnull(contradiction(SAID("0 copy: 0x70000001 0 wrong")));
    ck_assert_ptr_nonnull(contradiction(SAID("0 allocate: 0 pointer MISALIGNED")));
}
END_TEST

START_TEST(paths_are_cut_to_the_name_of_the_file) {
    char out[200];

    ck_assert_str_eq(zr_without_paths(out, sizeof out, "cannot open /home/me/lib/libx.so: no such file"),
                     "cannot open libx.so: no such file");
    ck_assert_str_eq(zr_without_paths(out, sizeof out, "A=/home/me/a:/home/me/b"), "A=a:b");
    ck_assert_str_eq(zr_without_paths(out, 4, "abcdef"), "abc");
}
END_TEST

START_TEST(an_operation_is_listed_by_number_or_range) {
    ck_assert(zr_selftest_listed("3-5,9", 4));
    ck_assert(zr_selftest_listed("3-5,9", 9));
    ck_assert(!zr_selftest_listed("3-5,9", 6));
    ck_assert(!zr_selftest_listed("", 0));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("selftest");
    TCase *tests = tcase_create("compare");

    tcase_add_test(tests, equal_answers_are_the_same);
    tcase_add_test(tests, another_answer_another_end_and_a_missing_line_differ);
    tcase_add_test(tests, safe_may_refuse_early_and_others_may_not);
    tcase_add_test(tests, check_may_report_what_is_wrong_on_purpose_and_nothing_else);
    tcase_add_test(tests, a_lie_of_the_driver_may_be_corrected_but_not_made);
    tcase_add_test(tests, a_run_that_went_wrong_shows_it_by_itself);
    tcase_add_test(tests, paths_are_cut_to_the_name_of_the_file);
    tcase_add_test(tests, an_operation_is_listed_by_number_or_range);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
