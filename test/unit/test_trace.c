/* Traces: what is read, what is refused and how it is said, and what is made up. */
#include "replay/replay.h"
#include "suite.h"

#include <stdlib.h>
#include <string.h>

static struct zr_trace trace;
static char why[200];

static bool read_text(const char *text) {
    FILE *in = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
    bool good;

    ck_assert_ptr_nonnull(in);
    good = zr_trace_read(&trace, in, why, sizeof why);
    fclose(in);
    return good;
}

START_TEST(a_trace_is_counted) {
    ck_assert(read_text("op,id,bytes,stream,time_us\na,1,100,0,5\na,2,50,0,6\nf,1,,0,7\na,1,10,0,8\nf,2,50,0,9\n"));
    ck_assert_uint_eq(trace.events, 5);
    ck_assert_uint_eq(trace.allocations, 3);
    ck_assert_uint_eq(trace.frees, 2);
    ck_assert_uint_eq(trace.peak_live, 150);
    ck_assert_uint_eq(trace.slots, 2);
    ck_assert_uint_eq(trace.left, 1);
    zr_trace_free(&trace);
}
END_TEST

START_TEST(heads_ends_of_lines_and_short_lines_are_taken_as_they_come) {
    ck_assert(read_text("a,18446744073709551615,1\r\nf,18446744073709551615"));
    ck_assert_uint_eq(trace.events, 2);
    zr_trace_free(&trace);
    ck_assert(read_text("op,id,bytes,stream,time_us\na,1,1\nf,1\na,2,5\n\nf,2"));
    ck_assert_uint_eq(trace.events, 4);
    zr_trace_free(&trace);
    ck_assert(read_text("\xef\xbb\xbfop,id,bytes,stream,time_us\r\na,1,1,0,0\r\n\r\n"));
    ck_assert_uint_eq(trace.events, 1);
    zr_trace_free(&trace);
}
END_TEST

START_TEST(frees_of_unknown_ids_are_counted_and_left_out) {
    ck_assert(read_text("a,1,10,0,0\nf,7,,0,0\nf,1,,0,0\nf,1,,0,0\n"));
    ck_assert_uint_eq(trace.events, 2);
    ck_assert_uint_eq(trace.unknown_frees, 2);
    ck_assert_uint_eq(trace.first_unknown_line, 2);
    zr_trace_free(&trace);
}
END_TEST

static const struct {
    const char *text, *said;
} bad[] = {
    {"x,1,2,3,4\n", "line 1: expected a,"},
    {"op,name,bytes\n", "line 1: expected the columns"},
    {"a,1,10,0,0\na,one,10,0,0\n", "line 2: expected a number as id"},
    {"a,1,-5,0,0\n", "line 1: expected a number of bytes"},
    {"a,1,999999999999999999,0,0\n", "line 1: expected a number of bytes below"},
    {"a,1,99999999999999999999999,0,0\n", "line 1: expected a number of bytes"},
    {"a,1\n", "line 1: expected a number of bytes"},
    {"a,1,10,zero,0\n", "line 1: expected a number as stream"},
    {"a,1,10,0,soon\n", "line 1: expected a number as time_us"},
    {"a,1,10,0,0,9\n", "line 1: expected nothing behind"},
    {"a,1,10,0,0\na,1,10,0,0\n", "line 2: this id is allocated already"},
    {"a,1,35184372088832,0,0\n", "line 1: expected a number of bytes below 2^45"},
    {"a,1,35184372088831,0,0\na,2,1,0,0\n", "line 2: too much is allocated at once"},
    {"op,id,bytes,stream,time_us\na,1,10,0,0\na,2,10", "line 3: the file ends within this line"},
    {"a,1,10,0,0\nf,1,,0,0\nf", "line 3: the file ends within this line"},
    {"\n", "no events"},
};

START_TEST(what_is_wrong_is_said_with_its_line) {
    ck_assert(!read_text(bad[_i].text));
    ck_assert_msg(strstr(why, bad[_i].said), "said: %s", why);
    zr_trace_free(&trace);
}
END_TEST

START_TEST(a_line_without_end_is_refused) {
    char text[600];

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    ck_assert(!read_text(text));
    ck_assert_ptr_nonnull(strstr(why, "line 1: the line is too long"));
    zr_trace_free(&trace);
}
END_TEST

START_TEST(a_byte_that_is_no_text_is_said_to_be_one) {
    static const char text[] = "a,1,10,0,0\nf,1\0,,0,0\n";
    FILE *in = fmemopen((void *)(uintptr_t)text, sizeof text - 1, "r");

    ck_assert(!zr_trace_read(&trace, in, why, sizeof why));
    ck_assert_str_eq(why, "line 2: a byte is 0: expected text, op,id,bytes,stream,time_us");
    fclose(in);
    zr_trace_free(&trace);
}
END_TEST

START_TEST(made_up_traces_are_traces_and_the_same_for_the_same_seed) {
    static const char *const shapes[] = {"tensors", "segments"};
    char *text[2];
    size_t size;

    for (int i = 0; i < 2; i++) {
        FILE *out = open_memstream(&text[i], &size);

        ck_assert(zr_trace_make(out, shapes[_i], 3));
        fclose(out);
    }
    ck_assert_str_eq(text[0], text[1]);
    ck_assert(read_text(text[0]));
    ck_assert_uint_gt(trace.events, 1000);
    ck_assert_uint_eq(trace.unknown_frees, 0);
    zr_trace_free(&trace);
    free(text[0]);
    free(text[1]);
    ck_assert(!zr_trace_make(stderr, "circles", 1));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("trace");
    TCase *c = tcase_create("trace");

    suite_add_tcase(suite, c);
    tcase_add_test(c, a_trace_is_counted);
    tcase_add_test(c, heads_ends_of_lines_and_short_lines_are_taken_as_they_come);
    tcase_add_test(c, frees_of_unknown_ids_are_counted_and_left_out);
    tcase_add_loop_test(c, what_is_wrong_is_said_with_its_line, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(c, a_line_without_end_is_refused);
    tcase_add_test(c, a_byte_that_is_no_text_is_said_to_be_one);
    tcase_add_loop_test(c, made_up_traces_are_traces_and_the_same_for_the_same_seed, 0, 2);
    return run_suite(suite);
}
