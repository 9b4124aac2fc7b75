/* Loading records: order, pairing, versions, and files that nobody ever wrote. */
#include "record_file.h"
#include "report/report.h"
#include "suite.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

static char path[64], why[512];
static struct record_file f;
static struct zr_record *r;

static void setup(void) {
    snprintf(path, sizeof path, "/tmp/zeroute-record.XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    record_begin(&f, path, 4096);
    r = NULL;
}

static void teardown(void) {
    zr_record_free(r);
    unlink(path);
}

static void load(void) {
    record_end(&f);
    r = zr_record_load(path, why, sizeof why);
    ck_assert_msg(r != NULL, "%s", why);
}

START_TEST(events_of_several_threads_come_in_the_order_of_time) {
    for (unsigned i = 0; i < 1000; i++)
        record_event(&f, 1 + i * 7 % 5, ZEROUTE_EVENT_ALLOC, i * 10, 0x1000 + i, 1, 0);
    load();
    ck_assert_uint_eq(r->events, 1000);
    ck_assert_uint_eq(r->threads, 5);
    for (unsigned i = 0; i < 1000; i++) {
        ck_assert_uint_eq(r->event[i].address, 0x1000 + i);
        ck_assert_uint_eq(r->thread[r->event[i].thread].number, 1 + i * 7 % 5);
    }
    ck_assert_uint_eq(r->duration, 9990);
    ck_assert(r->ended);
}
END_TEST

START_TEST(of_equal_times_a_free_comes_first) {
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 10, 0x1000, 64, 0);
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 20, 0x1000, 32, 0); /* of the address that thread 2 gives back */
    record_event(&f, 2, ZEROUTE_EVENT_FREE, 20, 0x1000, 0, 0);
    load();
    ck_assert_uint_eq(r->event[1].type, ZEROUTE_EVENT_FREE);
    ck_assert_uint_eq(r->event[1].partner, 0);
    ck_assert_uint_eq(r->event[0].partner, 1);
    ck_assert_uint_eq(r->event[2].partner, ZR_NO_EVENT);
    ck_assert_uint_eq(r->implieds, 0);
}
END_TEST

START_TEST(a_free_has_what_its_block_was) {
    record_stack(&f, 9, (const uint64_t[]){1}, 1, NULL, 0);
    struct zeroute_record_event *e = record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 1, 0x1000, 64, 9);
    e->kind = ZEROUTE_MEMORY_SHARED;
    e->card = 3;
    record_event(&f, 1, ZEROUTE_EVENT_FREE, 2, 0x1000, 0, 0);
    record_event(&f, 1, ZEROUTE_EVENT_FREE, 3, 0x1000, 0, 0);
    load();
    ck_assert_uint_eq(r->event[1].size, 64);
    ck_assert_uint_eq(r->event[1].kind, ZEROUTE_MEMORY_SHARED);
    ck_assert_uint_eq(r->event[1].card, 3);
    ck_assert_uint_eq(r->event[1].of, r->event[0].stack);
    ck_assert_uint_ne(r->event[1].of, 0);
    ck_assert_uint_eq(r->event[2].partner, ZR_NO_EVENT);
    ck_assert_uint_eq(r->unknown_frees, 1);
}
END_TEST

START_TEST(a_free_that_was_refused_counts_for_nothing) {
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 1, 0x1000, 64, 0);
    record_event(&f, 1, ZEROUTE_EVENT_FREE, 2, 0x1000, 0, 0);
    record_event(&f, 1, ZEROUTE_EVENT_BACK, 3, 0x1000, 0, 0);
    record_event(&f, 1, ZEROUTE_EVENT_FREE, 4, 0x1000, 0, 0);
    load();
    ck_assert_uint_eq(r->event[1].partner, ZR_NO_EVENT);
    ck_assert_uint_eq(r->event[0].partner, 3);
    ck_assert_uint_eq(r->event[3].partner, 0);
}
END_TEST

START_TEST(an_address_that_is_handed_out_again_ends_the_block_before) {
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 1, 0x1000, 64, 0);
    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 2, 0x1000, 32, 0);
    load();
    ck_assert_uint_eq(r->implieds, 1);
    ck_assert_uint_eq(r->implied[0].at, 1);
    ck_assert_uint_eq(r->implied[0].begin, 0);
}
END_TEST

START_TEST(handles_and_ranges_are_no_pointers) {
    static const unsigned kinds[] = {ZEROUTE_MEMORY_DEVICE, ZEROUTE_MEMORY_PHYSICAL, ZEROUTE_MEMORY_VIRTUAL};

    for (unsigned i = 0; i < 3; i++)
        record_event(&f, 1, ZEROUTE_EVENT_ALLOC, i, 0x1000, 64, 0)->kind = (uint8_t)kinds[i];
    record_event(&f, 1, ZEROUTE_EVENT_RESERVE, 4, 0x1000, 128, 0);
    record_event(&f, 1, ZEROUTE_EVENT_FREE, 5, 0x1000, 0, 0)->kind = ZEROUTE_MEMORY_PHYSICAL;
    record_event(&f, 1, ZEROUTE_EVENT_RELEASE, 6, 0x1000, 0, 0);
    load();
    ck_assert_uint_eq(r->implieds, 0);
    ck_assert_uint_eq(r->event[0].partner, ZR_NO_EVENT);
    ck_assert_uint_eq(r->event[1].partner, 4);
    ck_assert_uint_eq(r->event[2].partner, ZR_NO_EVENT);
    ck_assert_uint_eq(r->event[3].partner, 5);
}
END_TEST

START_TEST(a_newer_major_version_is_refused_by_its_number) {
    f.header.major = ZEROUTE_RECORD_MAJOR + 1;
    f.header.minor = 0;
    record_end(&f);
    ck_assert_ptr_null(zr_record_load(path, why, sizeof why));
    ck_assert_ptr_nonnull(strstr(why, "has format 2.0"));
    ck_assert_ptr_nonnull(strstr(why, "reads formats up to 1"));
}
END_TEST

START_TEST(a_newer_minor_version_is_read) {
    f.header.minor = 7;
    f.header.header_size = 8192;
    fseek(f.out, 8192, SEEK_SET);
    record_add(&f, 1, 200, 1, 64); /* unknown */
    struct zeroute_record_event *e = record_add(&f, 1, ZEROUTE_EVENT_ALLOC, 0, sizeof *e + 24);
    e->time = FILE_START + 5;
    e->address = 0x1000;
    e->size = 77;
    record_event(&f, 1, ZEROUTE_EVENT_FREE, 6, 0x1000, 0, 0);
    load();
    ck_assert_uint_eq(r->events, 2);
    ck_assert_uint_eq(r->event[1].size, 77);
    ck_assert_uint_eq(r->damaged, 0);
}
END_TEST

START_TEST(what_is_no_record_is_refused) {
    record_end(&f);
    f.out = fopen(path, "w");
    fputs("op,id,bytes,stream,time_us\n", f.out);
    fclose(f.out);
    ck_assert_ptr_null(zr_record_load(path, why, sizeof why));
    ck_assert_ptr_nonnull(strstr(why, "is not a record"));
    ck_assert_ptr_null(zr_record_load("/tmp", why, sizeof why));
    ck_assert_ptr_nonnull(strstr(why, "is not a file"));
    ck_assert_ptr_null(zr_record_load("/nowhere/at/all", why, sizeof why));
    ck_assert_ptr_nonnull(strstr(why, "No such file"));
}
END_TEST

START_TEST(a_file_that_was_cut_gives_what_it_has) {
    for (unsigned i = 0; i < 200; i++)
        record_event(&f, 1, ZEROUTE_EVENT_ALLOC, i, 0x1000 + i, 1, 0);
    record_end(&f);
    ck_assert_int_eq(truncate(path, 4096 + 4096 + 1000), 0);
    r = zr_record_load(path, why, sizeof why);
    ck_assert_ptr_nonnull(r);
    ck_assert_uint_ge(r->events, 80);
    ck_assert_uint_lt(r->events, 100);
}
END_TEST

START_TEST(texts_and_ranks_are_read) {
    record_text(&f, ZEROUTE_TEXT_COMMAND, "python\0train.py", 15);
    record_text(&f, ZEROUTE_TEXT_ENTRIES, "zeMemFree\0zeMemAllocDevice", 26);
    record_text(&f, ZEROUTE_TEXT_VARIABLES, "X=1\0RANK=3", 10);
    record_mark(&f, 1, 5, "epoch 1");
    load();
    char command[64];
    zr_record_command(r, command, sizeof command);
    ck_assert_str_eq(command, "python train.py");
    ck_assert_str_eq(zr_record_entry(r, 1), "zeMemAllocDevice");
    ck_assert_str_eq(zr_record_entry(r, 2), "");
    ck_assert_int_eq(zr_record_rank(r), 3);
    ck_assert_str_eq(r->mark[r->event[0].aux], "epoch 1");
}
END_TEST

/* A terabyte of nothing: neither time nor memory. */
START_TEST(holes_of_a_sparse_file_cost_nothing) {
    struct timespec from, to;

    record_event(&f, 1, ZEROUTE_EVENT_ALLOC, 1, 0x1000, 64, 0);
    record_end(&f);
    if (truncate(path, (off_t)1 << 40) != 0)
        SKIP("no sparse files of this size here");
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    r = zr_record_load(path, why, sizeof why);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    ck_assert_ptr_nonnull(r);
    ck_assert_uint_eq(r->events, 1);
    ck_assert_int_lt(to.tv_sec - from.tv_sec, 2);
}
END_TEST

/* Everything that reads a record, over it. */
static void use(struct zr_record *record) {
    struct zr_report report = {.record = record, .name = "test"};
    struct zr_symbols *symbols = zr_symbols_new(record, "/nowhere", false, NULL);
    FILE *out = fopen("/dev/null", "w");

    report.paths = zr_paths_new(record, symbols);
    report.profile = zr_profile_new(record, report.paths, 200);
    ck_assert_ptr_nonnull(report.profile);
    ck_assert(zr_report_page(out, &report, 1));
    ck_assert(zr_report_text(out, &report, 1, 10));
    ck_assert(zr_report_json(out, &report, 1, 10));
    ck_assert(zr_export_torch(out, &report));
    ck_assert(zr_export_perfetto(out, &report, 1));
    ck_assert(zr_export_csv(out, &report, 1));
    ck_assert(zr_export_flamegraph(out, &report, 1, "peak"));
    fclose(out);
    zr_profile_free(report.profile);
    zr_paths_free(report.paths);
    zr_symbols_free(symbols);
}

static void write_some_of_everything(void) {
    const struct zeroute_record_python python[] = {{1, 0}, {2, 4 | ZEROUTE_PYTHON_ENTRY}};
    const uint64_t native[] = {0x5000, 0x6000, 0x7000};

    record_text(&f, ZEROUTE_TEXT_COMMAND, "a\0b", 3);
    record_card(&f, 0, 1 << 30);
    record_thread(&f, 1, 12, "main");
    record_module(&f, 0x5000, 0x8000, 0, "/lib/some.so");
    record_code(&f, 1, "a.py", "f", 1, (const uint8_t *)"\xd9\0\0", 3);
    record_code(&f, 2, "b.py", "g", 10, (const uint8_t *)"\xe9\x02", 2);
    for (uint32_t i = 1; i < 20; i++)
        record_stack(&f, i, native, i % 4, python, i % 3);
    for (unsigned i = 0; i < 300; i++) {
        unsigned type = i % 19 < 15 ? 1 + i % 2 : 1 + i * 13 % (ZEROUTE_EVENTS - 1);
        if (type == ZEROUTE_EVENT_MARK)
            record_mark(&f, 1, i, "x");
        else
            record_event(&f, 1 + i % 3, type, i, 0x10000 + i % 40 * 0x1000, i * 100, i % 25)->kind = i % 7;
    }
    record_end(&f);
}

START_TEST(random_damage_is_never_more_than_a_wrong_figure) {
    static char good[1 << 18], bad[1 << 18];
    uint64_t state = 12345 + (uint64_t)_i;

    f.header.flags = 0;
    write_some_of_everything();
    FILE *in = fopen(path, "r");
    size_t size = fread(good, 1, sizeof good, in);
    fclose(in);
    for (unsigned round = 0; round < 60; round++) {
        memcpy(bad, good, size);
        for (unsigned k = 0; k < 1 + round % 40; k++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            /* Beyond the header, mostly: a file with a bad one is refused at once. */
            size_t at = k == 39 ? state >> 33 & 127 : 4096 + (state >> 33) % (size - 4096);
            bad[at] = (char)(state >> 24 & 1 ? state >> 16 : (uint64_t)bad[at] ^ (1 << (state >> 20 & 7)));
        }
        FILE *out = fopen(path, "w");
        fwrite(bad, 1, size - (round % 5 ? 0 : state >> 40 & 2047), out);
        fclose(out);
        r = zr_record_load(path, why, sizeof why);
        if (r)
            use(r);
        zr_record_free(r);
        r = NULL;
    }
}
END_TEST

/* --- lines of Python ---------------------------------------------------------------------------------------------- */

/* What this machine's Python says of its own code objects, against our decoding. */
START_TEST(lines_are_those_that_python_says) {
    static const char script[] = "import sys, dis, json, argparse, textwrap, types\n"
                                 "def walk(c):\n"
                                 "    yield c\n"
                                 "    for k in c.co_consts:\n"
                                 "        if isinstance(k, types.CodeType): yield from walk(k)\n"
                                 "for m in (json.decoder, argparse, textwrap):\n"
                                 "    for c in walk(compile(open(m.__file__).read(), m.__file__, \"exec\")):\n"
                                 "        print(\"code\", c.co_firstlineno, c.co_linetable.hex() or \"-\")\n"
                                 "        for a, b, line in c.co_lines():\n"
                                 "            for at in (a, b - 2): print(at, line or 0)\n";
    static char line[1 << 20];
    static uint8_t table[1 << 19];
    struct zr_code c = {.table = table};
    unsigned checked = 0, codes = 0, first;

    record_end(&f);
    FILE *out = fopen(path, "w");
    fputs(script, out);
    fclose(out);
    char command[160];
    snprintf(command, sizeof command, "python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' && python3 %s",
             path);
    FILE *in = popen(command, "r");
    while (fgets(line, sizeof line, in)) {
        unsigned at, expected;
        static char hex[1 << 20];
        if (sscanf(line, "code %u %1048000s", &first, hex) == 2) {
            codes++;
            c.first_line = first;
            c.table_size = 0;
            for (const char *h = hex; h[0] && h[1] && *hex != '-'; h += 2) {
                unsigned byte;
                sscanf(h, "%2x", &byte);
                table[c.table_size++] = (uint8_t)byte;
            }
        } else if (sscanf(line, "%u %u", &at, &expected) == 2) {
            ck_assert_msg(zr_python_line(&c, at) == expected, "code %u of line %u at %u: %u, not %u", codes, first, at,
                          zr_python_line(&c, at), expected);
            checked++;
        }
    }
    if (pclose(in) != 0 && !checked)
        SKIP("no Python 3.11 or later here");
    ck_assert_uint_gt(checked, 1000);
    ck_assert_uint_eq(zr_python_line(&c, 1 << 30), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("report_load");
    TCase *tests = tcase_create("report_load");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, events_of_several_threads_come_in_the_order_of_time);
    tcase_add_test(tests, of_equal_times_a_free_comes_first);
    tcase_add_test(tests, a_free_has_what_its_block_was);
    tcase_add_test(tests, a_free_that_was_refused_counts_for_nothing);
    tcase_add_test(tests, an_address_that_is_handed_out_again_ends_the_block_before);
    tcase_add_test(tests, handles_and_ranges_are_no_pointers);
    tcase_add_test(tests, a_newer_major_version_is_refused_by_its_number);
    tcase_add_test(tests, a_newer_minor_version_is_read);
    tcase_add_test(tests, what_is_no_record_is_refused);
    tcase_add_test(tests, a_file_that_was_cut_gives_what_it_has);
    tcase_add_test(tests, texts_and_ranks_are_read);
    tcase_add_test(tests, holes_of_a_sparse_file_cost_nothing);
    tcase_add_loop_test(tests, random_damage_is_never_more_than_a_wrong_figure, 0, 5);
    tcase_add_test(tests, lines_are_those_that_python_says);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
