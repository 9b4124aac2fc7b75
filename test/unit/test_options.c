/* Promises of the command line: one table gives parsing, --help and the errors, alike for every command. */
#include "common/common.h"
#include "suite.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = ZR_LONG, FILE_NAME, PAGE };

static const struct zr_option table[] = {
    {'a', "all", NULL, "take everything"},
    {SIZE, "cache-limit", "SIZE",
     "a long explanation that does not fit beside the name of the option and has to be "
     "wrapped where the terminal of a careful reader ends"},
    {FILE_NAME, "json", "[FILE.json]", "write a file"},
    {PAGE, "page", NULL, NULL},
    {0},
};

static struct zr_command command = {
    .name = "test",
    .usage = "zeroute test [OPTIONS] ONE",
    .about = "Tests options.",
    .options = table,
    .examples = "zeroute test --all x",
    .notes = "A note that is too long for one line of the screen is wrapped where the screen "
             "ends.\n  a list  stays as it is\n",
    .operands = "one word",
    .one_of = "all|json;page|json",
    .most = 1};
static char seen[256];

static bool take(void *to, const struct zr_option *o, const char *value) {
    size_t n = strlen(seen);
    ck_assert_ptr_null(to);
    snprintf(seen + n, sizeof seen - n, "%s=%s ", o->name, value ? value : "");
    return !value || strcmp(value, "bad");
}

/* What was printed while parsing this line, and what it returned. */
static int at;
static char printed[4096];
static bool parse(const char *line) {
    char words[256], *argv[16], *word;
    int argc = 0, before[2] = {dup(1), dup(2)};
    FILE *f = tmpfile();

    snprintf(words, sizeof words, "test %s", line);
    for (word = strtok(words, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    *seen = '\0';
    fflush(stdout);
    for (int i = 1; i <= 2; i++)
        dup2(fileno(f), i);
    bool good = zr_options(&command, argc, argv, take, NULL, &at);
    fflush(stdout);
    for (int i = 1; i <= 2; i++) {
        dup2(before[i - 1], i);
        close(before[i - 1]);
    }
    rewind(f);
    printed[fread(printed, 1, sizeof printed - 1, f)] = '\0';
    fclose(f);
    return good;
}

START_TEST(options_are_taken_wherever_they_stand) {
    ck_assert(parse("word --all --cache-limit 5 -a --page"));
    ck_assert_str_eq(seen, "all= cache-limit=5 all= page= ");
    ck_assert_int_eq(at, 6); /* the operand is last now */
    ck_assert(parse("--cache-limit=5 -- --all"));
    ck_assert_str_eq(seen, "cache-limit=5 ");
    ck_assert(parse("--cache_limit 5"));
    ck_assert_str_eq(seen, "cache-limit=5 "); /* an underscore will do */
}
END_TEST

START_TEST(a_program_keeps_its_own_options) {
    command.program = true;
    ck_assert(parse("-a prog --all --nonsense"));
    ck_assert_str_eq(seen, "all= ");
    ck_assert_int_eq(at, 2);
    command.program = false;
}
END_TEST

START_TEST(an_optional_file_is_taken_by_its_ending) {
    ck_assert(parse("--json out.json word"));
    ck_assert_str_eq(seen, "json=out.json ");
    ck_assert(parse("--json out.md"));
    ck_assert_str_eq(seen, "json= ");
    ck_assert(parse("--json=out.md"));
    ck_assert_str_eq(seen, "json=out.md ");
}
END_TEST

START_TEST(what_is_not_understood_is_said_with_what_was_expected) {
    static const char *const wrong[][2] = {
        {"--nonsense", "unknown option '--nonsense'"},
        {"-x", "unknown option '-x'"},
        {"--al", "unknown option '--al'"},
        {"--page --json", "--json and --page together: expected one of them"},
        {"--cache-lim 5", "unknown option '--cache-lim': did you mean '--cache-limit'?"},
        {"--cahce_limit=5", "unknown option '--cahce_limit=5': did you mean '--cache-limit'?"},
        {"--hlep", "did you mean '--help'?"},
        {"--cache-limit", "option --cache-limit needs a value: expected SIZE"},
        {"--all=x", "option --all takes no value: 'x' was given"},
        {"one two", "2 operands given: expected one word"},
        {"--cache-limit bad", ""},
    };
    ck_assert(!parse(wrong[_i][0]));
    ck_assert_int_eq(at, ZR_EXIT_ERROR);
    ck_assert_msg(strstr(printed, wrong[_i][1]) != NULL, "%s", printed);
    if (*wrong[_i][1]) {
        ck_assert_int_eq(strncmp(printed, "zeroute test: ", 14), 0);
        ck_assert_ptr_nonnull(strstr(printed, "ee 'zeroute test --help'\n"));
    }
}
END_TEST

START_TEST(help_comes_from_the_table) {
    ck_assert(!parse("--all --help"));
    ck_assert_int_eq(at, ZR_EXIT_DONE);
    ck_assert_str_eq(printed, "Usage: zeroute test [OPTIONS] ONE\n"
                              "\n"
                              "Tests options.\n"
                              "\n"
                              "Options:\n"
                              "  -a, --all           take everything\n"
                              "  --cache-limit SIZE  a long explanation that does not fit beside the name of\n"
                              "                      the option and has to be wrapped where the terminal of a\n"
                              "                      careful reader ends\n"
                              "  --json[=FILE.json]  write a file\n"
                              "  -h, --help          show this help and exit\n"
                              "\n"
                              "A note that is too long for one line of the screen is wrapped where the screen\n"
                              "ends.\n"
                              "  a list  stays as it is\n"
                              "\n"
                              "Examples:\n"
                              "  zeroute test --all x\n");
}
END_TEST

/* zr_shown() keeps its last 32 texts: a command line has more words. */
START_TEST(a_text_that_is_shown_may_be_wrapped) {
    char words[401] = "", *out = NULL;
    size_t size;
    for (int i = 0; i < 100; i++)
        strcat(words, "one ");
    mallopt(M_PERTURB, 0x5a); /* what is freed is written over */
    FILE *f = open_memstream(&out, &size);
    zr_text_wrap(f, 0, 500, zr_shown(words));
    fclose(f);
    ck_assert_uint_eq(size, strlen(words));
    ck_assert_int_eq(strncmp(out, words, size - 1), 0);
    free(out);
}
END_TEST

START_TEST(values_are_checked_and_the_range_is_named) {
    const struct zr_option *o = &table[1];
    uint64_t n = 0;
    double d = 0;
    int pid;
    ck_assert(zr_option_number(&command, o, "7", 1, 9, &n) && n == 7);
    ck_assert(!zr_option_number(&command, o, "10", 1, 9, &n));
    ck_assert(!zr_option_number(&command, o, "-1", 0, UINT64_MAX, &n));
    ck_assert(!zr_option_number(&command, o, "18446744073709551616", 0, UINT64_MAX, &n));
    ck_assert(zr_option_real(&command, o, "0.5", 0, &d) && d > 0.4);
    ck_assert(!zr_option_real(&command, o, "nan", 0, &d));
    ck_assert(zr_option_bytes(&command, o, "2MiB", &n) && n == 2u << 20);
    ck_assert(!zr_option_bytes(&command, o, "many", &n));
    ck_assert(zr_option_choice(&command, o, "b", "aa|b|c"));
    ck_assert(!zr_option_choice(&command, o, "a", "aa|b|c"));
    ck_assert(!zr_option_choice(&command, o, "", "aa|b|c"));
    ck_assert(zr_operand_pid(&command, "42", &pid) && pid == 42);
    ck_assert(!zr_operand_pid(&command, "0", &pid));
    ck_assert(!zr_operand_pid(&command, "42x", &pid));
}
END_TEST

int main(void) {
    Suite *s = suite_create("options");
    TCase *t = tcase_create("options");
    tcase_add_test(t, options_are_taken_wherever_they_stand);
    tcase_add_test(t, a_program_keeps_its_own_options);
    tcase_add_test(t, an_optional_file_is_taken_by_its_ending);
    tcase_add_loop_test(t, what_is_not_understood_is_said_with_what_was_expected, 0, 11);
    tcase_add_test(t, help_comes_from_the_table);
    tcase_add_test(t, values_are_checked_and_the_range_is_named);
    tcase_add_test(t, a_text_that_is_shown_may_be_wrapped);
    suite_add_tcase(s, t);
    return run_suite(s);
}
