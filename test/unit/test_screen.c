/* A page on a small screen: cut at its edges, never wrapped, never scrolled away. */
#include "common/common.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>

static char shown[4096];

static const char *show(const char *text, size_t width, size_t height) {
    FILE *f = fmemopen(shown, sizeof shown, "w");
    ck_assert_ptr_nonnull(f);
    zr_screen_show(f, text, width, height);
    ck_assert_int_eq(fclose(f), 0);
    return shown;
}

START_TEST(a_page_that_fits_is_shown_whole) {
    ck_assert_str_eq(show("one\ntwo\n", 10, 3), "\033[Hone\033[K\ntwo\033[K\n\033[J");
}
END_TEST

START_TEST(what_is_below_the_last_line_is_counted) {
    ck_assert_str_eq(show("1\n2\n3\n4\n5\n", 20, 4), "\033[H1\033[K\n2\033[K\n... 3 more lines\033[K\033[J");
}
END_TEST

START_TEST(a_line_ends_at_the_edge_and_its_colour_with_it) {
    ck_assert_str_eq(show("\033[2mabcdef\033[0m\n", 3, 5), "\033[H\033[2mabc\033[0m\033[K\n\033[J");
}
END_TEST

START_TEST(a_character_of_several_bytes_takes_one_column) {
    ck_assert_str_eq(show("\xc3\xa4\xc3\xb6\xc3\xbc\n", 2, 5), "\033[H\xc3\xa4\xc3\xb6\033[K\n\033[J");
}
END_TEST

START_TEST(no_terminal_is_no_screen) {
    size_t width, height;
    FILE *f = fopen("/dev/null", "w");
    ck_assert(!zr_screen_size(f, &width, &height));
    fclose(f);
}
END_TEST

int main(void) {
    Suite *s = suite_create("screen");
    TCase *t = tcase_create("screen");
    tcase_add_test(t, a_page_that_fits_is_shown_whole);
    tcase_add_test(t, what_is_below_the_last_line_is_counted);
    tcase_add_test(t, a_line_ends_at_the_edge_and_its_colour_with_it);
    tcase_add_test(t, a_character_of_several_bytes_takes_one_column);
    tcase_add_test(t, no_terminal_is_no_screen);
    suite_add_tcase(s, t);
    return run_suite(s);
}
