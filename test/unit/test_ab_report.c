/* Reports from a made-up comparison: the JSON comes back whole, and every report shows the same figures. */
#include "common/common.h"
#include "suite.h"
#include "unit/ab_fixture.h"

#include <unistd.h>

static struct zr_ab ab;
static struct zr_ab_analysis an;
static char path[64];

static void begin(void) {
    const double tenth[] = {1, 0.9};

    fixture_start(&ab, "residency:default", "residency:owner");
    ab.metric[0].help[0] = '<'; /* must not become a tag */
    fixture_runs(&ab, 10, tenth, 0.02, 5);
    for (size_t r = 0; r < ab.n_runs; r++) {
        struct zr_ab_run *run = &ab.run[r];
        run->sample = calloc(3, sizeof(*run->sample));
        run->n_samples = 3;
        for (size_t i = 0; i < 3; i++)
            run->sample[i] = (struct zr_ab_sample){(double)i * 0.5, 1e9 * (double)i, 8e9, 1e8, NAN, NAN, NAN};
        zr_pairs_set(&run->fields, "driver.alloc_calls", "100");
        zr_pairs_set(&run->fields, "residency.peer.granted_calls", run->arm ? "0" : "100");
        zr_pairs_set(&run->fingerprint, "env.UR_LOG", "a \"b\" \\ \t <c>");
    }
    zr_ab_analyse(&ab, &an);
}

static void end(void) {
    zr_ab_analysis_clear(&an);
    zr_ab_clear(&ab);
    unlink(path);
}

static char *report(void (*render)(FILE *, const struct zr_ab_report *), const struct zr_ab *of,
                    const struct zr_ab_analysis *analysis) {
    struct zr_ab_report r;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    zr_ab_report_build(&r, of, analysis);
    render(f, &r);
    fclose(f);
    zr_ab_report_clear(&r);
    return text;
}

static void save(const char *text) {
    strcpy(path, "/tmp/zeroute-test-ab.XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

START_TEST(a_comparison_comes_back_from_its_json_whole) {
    struct zr_ab back = {0};
    struct zr_ab_analysis again;

    begin();
    char *first = report(zr_ab_report_json, &ab, &an), *second, *wrong;
    save(first);
    wrong = zr_ab_load(&back, path);
    ck_assert_msg(!wrong, "%s", wrong);
    zr_ab_analyse(&back, &again);
    second = report(zr_ab_report_json, &back, &again);
    ck_assert_str_eq(first, second);
    free(first);
    free(second);
    zr_ab_analysis_clear(&again);
    zr_ab_clear(&back);
    end();
}
END_TEST

START_TEST(every_report_is_the_same_from_the_file) {
    void (*const writers[])(FILE *, const struct zr_ab_report *) = {zr_ab_report_terminal, zr_ab_report_html,
                                                                    zr_ab_report_markdown};
    struct zr_ab back = {0};
    struct zr_ab_analysis again;

    begin();
    char *json = report(zr_ab_report_json, &ab, &an);
    save(json);
    ck_assert(!zr_ab_load(&back, path));
    zr_ab_analyse(&back, &again);
    for (size_t i = 0; i < 3; i++) {
        char *x = report(writers[i], &ab, &an), *y = report(writers[i], &back, &again);
        ck_assert_str_eq(x, y);
        free(x);
        free(y);
    }
    free(json);
    zr_ab_analysis_clear(&again);
    zr_ab_clear(&back);
    end();
}
END_TEST

START_TEST(a_file_that_is_no_comparison_is_refused_by_name) {
    static const struct {
        const char *text, *expected;
    } bad[] = {
        {"{}", "it is not a comparison"},
        {"{\"format\": 99}", "its format is 99: expected 3"},
        {"{\"format\": 2}", "no arms"},
        {"{\"format\":", "line 1: "},
        {"", "line 1: "},
    };
    struct zr_ab back = {0};

    save(bad[_i].text);
    char *wrong = zr_ab_load(&back, path);
    ck_assert_msg(wrong && strstr(wrong, bad[_i].expected), "%s", wrong ? wrong : "taken");
    ck_assert(strstr(wrong, path));
    free(wrong);
    zr_ab_clear(&back);
    unlink(path);
}
END_TEST

START_TEST(the_page_is_self_contained_and_shows_texts_as_texts) {
    begin();
    char *html = report(zr_ab_report_html, &ab, &an);
    ck_assert(!strstr(html, "http"));
    ck_assert(!strstr(html, "<script"));
    ck_assert(!strstr(html, "src="));
    ck_assert(strstr(html, "--steps=3 &lt;&amp;&gt;"));
    ck_assert(strstr(html, "&lt;c&gt;"));
    ck_assert(strstr(html, "data-plot=\"wall\""));
    ck_assert(strstr(html, "data-memory=\"1\""));
    ck_assert(strstr(html, "zeroute ab -- ./train"));
    free(html);
    end();
}
END_TEST

START_TEST(markdown_has_what_a_pull_request_needs) {
    begin();
    char *text = report(zr_ab_report_markdown, &ab, &an);
    ck_assert_ptr_nonnull(strstr(text, "### zeroute ab: verdict"));
    ck_assert_ptr_nonnull(strstr(text, "| wall |"));
    ck_assert_ptr_nonnull(strstr(text, "declared: `setting.residency`"));
    ck_assert_ptr_nonnull(strstr(text, "kernel 6.18.0"));
    ck_assert_ptr_nonnull(strstr(text, "```sh\nzeroute ab -- ./train\n```"));
    free(text);
    end();
}
END_TEST

START_TEST(figures_are_kept_back_where_they_would_mislead) {
    begin();
    zr_ab_analysis_clear(&an);
    for (size_t r = 0; r < ab.n_runs; r++)
        if (ab.run[r].arm)
            zr_pairs_set(&ab.run[r].fingerprint, "driver.version", "25.18");
    zr_ab_analyse(&ab, &an);
    char *text = report(zr_ab_report_terminal, &ab, &an);
    ck_assert_ptr_nonnull(strstr(text, "undeclared  driver.version\n              a: 26.27\n              b: 25.18"));
    ck_assert_ptr_nonnull(strstr(text, "No verdict"));
    ck_assert_ptr_null(strstr(text, "median"));
    free(text);
    end();
}
END_TEST

/* Is this text in it, as the page or a JSON string has it? */
static bool shows(const char *report_text, const char *text, bool html) {
    char *escaped = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&escaped, &size);

    if (html)
        zr_html_text(f, text);
    else
        fputs(text, f);
    fclose(f);
    bool found = strstr(report_text, escaped) != NULL;
    free(escaped);
    return found;
}

START_TEST(all_four_reports_say_the_same) {
    void (*const renderers[])(FILE *, const struct zr_ab_report *) = {zr_ab_report_terminal, zr_ab_report_markdown,
                                                                      zr_ab_report_html, zr_ab_report_json};
    struct zr_ab_report r;

    begin();
    if (_i) { /* without a verdict */
        zr_ab_analysis_clear(&an);
        for (size_t i = 0; i < ab.n_runs; i++)
            if (ab.run[i].arm)
                zr_pairs_set(&ab.run[i].fingerprint, "driver.version", "25.18");
        zr_ab_analyse(&ab, &an);
    }
    zr_ab_report_build(&r, &ab, &an);
    ck_assert_uint_ge(r.n_lines, 1);
    ck_assert_int_eq(r.n_metrics == 0, _i);
    for (size_t i = 0; i < 4; i++) {
        bool html = renderers[i] == zr_ab_report_html;
        char *text = report(renderers[i], &ab, &an);
        for (size_t l = 0; l < r.n_lines; l++)
            ck_assert_msg(shows(text, r.line[l].text, html), "'%s' is not in:\n%s", r.line[l].text, text);
        ck_assert(shows(text, r.fingerprint, html));
        for (size_t k = 0; k < r.n_findings; k++)
            ck_assert(shows(text, r.finding[k].what, html));
        for (size_t k = 0; k < r.n_metrics; k++)
            ck_assert(shows(text, r.metric[k].name, html));
        for (size_t k = 0; k < r.n_mechanisms; k++)
            ck_assert(shows(text, r.mechanism[k].name, html));
        for (size_t k = 0; i > 0 && i < 3 && k < r.n_metrics; k++) /* the terminal leaves out what is unchanged */
            for (size_t a = 0; a < r.n_arms; a++) {
                ck_assert(shows(text, r.metric[k].cell[a].median, html));
                ck_assert(shows(text, r.metric[k].cell[a].change_interval, html));
                ck_assert(shows(text, r.metric[k].cell[a].outcome, html));
            }
        free(text);
    }
    zr_ab_report_clear(&r);
    end();
}
END_TEST

/* --- the command's output --------------------------------------------------------------------------- */

static double found(const char *output, const char *regex, const char *name) {
    const char *list[] = {regex};
    double value = NAN;

    fixture_start(&ab, "observe", "mitigate");
    struct zr_ab_run *run = zr_ab_run_add(&ab);
    char *wrong = zr_ab_output_metrics(&ab, run, output, list, 1);
    ck_assert_msg(!wrong, "%s", wrong);
    size_t m = zr_ab_metric_index(&ab, name);
    if (m < ab.n_metrics)
        value = ab.run[0].value[m];
    zr_ab_clear(&ab);
    return value;
}

START_TEST(numbers_are_found_in_the_output_by_name) {
    ck_assert_double_eq(found("step 1\ntokens/s: 12.5\n", "tokens", "tokens/s"), 12.5);
    ck_assert_double_eq(found("loss: 3, accuracy: 0.9\n", "accuracy", "accuracy"), 0.9);
    ck_assert_double_eq(found("  rate = 1e3 per second\n", "^rate$", "rate"), 1000);
    ck_assert_double_eq(found("score: 1\nscore: 2\n", "score", "score"), 2);
    ck_assert(isnan(found("score: nan\n", "score", "score")));
    ck_assert(isnan(found("score: fine\n", "score", "score")));
    ck_assert(isnan(found("loss: 1\n", "score", "loss")));
    ck_assert_double_eq(found("throughput 42 img/s\n", "throughput ([0-9.]+)", "throughput"), 42);
}
END_TEST

START_TEST(the_hash_is_sha256) {
    char hash[65], million[1001];

    zr_ab_hash_text("abc", 3, hash); /* FIPS 180-4, example B.1; printf abc | sha256sum */
    ck_assert_str_eq(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    zr_ab_hash_text("", 0, hash);
    ck_assert_str_eq(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    memset(million, 'a', 1000); /* head -c 1000 /dev/zero | tr '\0' a | sha256sum */
    zr_ab_hash_text(million, 1000, hash);
    ck_assert_str_eq(hash, "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}
END_TEST

/* --- JSON ------------------------------------------------------------------------------------------- */

static char *written(json_t *document) {
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    ck_assert(zr_json_write(f, document, ZR_JSON_DIGITS, true));
    fclose(f);
    return text;
}

START_TEST(every_document_says_its_format_first) {
    json_t *document = zr_json_document(3);

    zr_json_count(document, "b", UINT64_C(9223372036854775807));
    zr_json_count(document, "a", UINT64_MAX);
    zr_json_amount(document, "absent", ZR_ABSENT);
    zr_json_real(document, "nan", NAN);
    zr_json_real(document, "half", 0.5);
    zr_json_flag(zr_json_object(zr_json_array(document, "list"), NULL), "on", true);
    char *text = written(document);
    ck_assert_str_eq(text, "{\"format\":3,\"b\":9223372036854775807,\"a\":1.844674407e19,\"nan\":null,\"half\":0.5,"
                           "\"list\":[{\"on\":true}]}\n");
    free(text);
}
END_TEST

START_TEST(bytes_that_are_not_utf8_become_replacement_characters) {
    static const struct {
        const char *from, *to;
    } cases[] = {
        {"plain", "plain"},
        {"x\xc3\xa9\xf0\x9f\x98\x80", "x\xc3\xa9\xf0\x9f\x98\x80"},
        {"\xff", "\xef\xbf\xbd"},
        {"a\xc3", "a\xef\xbf\xbd"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},                 /* overlong */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
    };
    json_t *document = zr_json_document(1);
    char *valid = zr_harmless(cases[_i].from, ZR_FOR_JSON);

    ck_assert_str_eq(valid, cases[_i].to);
    zr_json_text(document, cases[_i].from, cases[_i].from); /* a key comes from outside as well */
    ck_assert_str_eq(zr_json_get_text(document, valid), valid);
    json_decref(document);
    free(valid);
}
END_TEST

START_TEST(a_file_that_is_not_json_is_refused_with_its_line) {
    static const char *const bad[] = {"", "{", "[1,]", "{\"a\"}", "{\n\"a\":1,}", "tru", "[1 2]", "\"\\u0000\""};
    char *why;

    save(bad[_i]);
    ck_assert_ptr_null(zr_json_read(path, &why));
    ck_assert_ptr_nonnull(strstr(why, "line "));
    free(why);
    unlink(path);
}
END_TEST

START_TEST(depth_is_bounded) {
    char deep[100001], *why;

    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = 0;
    save(deep);
    ck_assert_ptr_null(zr_json_read(path, &why));
    ck_assert_ptr_nonnull(strstr(why, "depth"));
    free(why);
    unlink(path);
}
END_TEST

int main(void) {
    Suite *s = suite_create("ab_report");
    TCase *r = tcase_create("reports"), *o = tcase_create("output"), *j = tcase_create("json");

    tcase_add_test(r, a_comparison_comes_back_from_its_json_whole);
    tcase_add_test(r, every_report_is_the_same_from_the_file);
    tcase_add_loop_test(r, a_file_that_is_no_comparison_is_refused_by_name, 0, 5);
    tcase_add_test(r, the_page_is_self_contained_and_shows_texts_as_texts);
    tcase_add_test(r, markdown_has_what_a_pull_request_needs);
    tcase_add_test(r, figures_are_kept_back_where_they_would_mislead);
    tcase_add_loop_test(r, all_four_reports_say_the_same, 0, 2);
    tcase_add_test(o, numbers_are_found_in_the_output_by_name);
    tcase_add_test(o, the_hash_is_sha256);
    tcase_add_test(j, every_document_says_its_format_first);
    tcase_add_loop_test(j, bytes_that_are_not_utf8_become_replacement_characters, 0, 6);
    tcase_add_loop_test(j, a_file_that_is_not_json_is_refused_with_its_line, 0, 8);
    tcase_add_test(j, depth_is_bounded);
    suite_add_tcase(s, r);
    suite_add_tcase(s, o);
    suite_add_tcase(s, j);
    return run_suite(s);
}
