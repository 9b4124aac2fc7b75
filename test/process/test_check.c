/*
 * check: each error of prog_check.c is found, with its offsets and the stacks of whoever allocated and freed the block;
 * a legal program that looks like one is left alone, and runs as without.
 */
#include "child.h"
#include "suite.h"
#include "users.h"

#include <sys/stat.h>

/* Long enough for a loaded machine: what was not waited for may be missed. */
#define ALL "ZEROUTE_CONF=check:all,check_wait:20s"

static struct child *run(const char *conf, const char *part) {
    const char *settings[] = {sim_driver(), conf, "ZE_SIMGPU=devices:2,vram:32MiB", NULL};
    const char *argv[] = {"check", part, "\033[2J", NULL};

    return child_run(settings, argv);
}

/* What the report says of each process: its command line as far as it can be shown, and its segment. */
static unsigned named(const char *out, const char *role, const char *part) {
    char line[256], segment[96];
    unsigned times = 0;
    int pid;

    snprintf(line, sizeof line, "  %-10s process %%d (check %s ?[2J), segment /dev/shm/%%95s", role, part);
    for (const char *p = out; (p = strstr(p, role)); p++) {
        char prefix[32];

        if (p - out < 2 || sscanf(p - 2, line, &pid, segment) != 2)
            continue;
        snprintf(prefix, sizeof prefix, "zeroute-%u/%d.", geteuid(), pid);
        ck_assert_msg(strncmp(segment, prefix, strlen(prefix)) == 0, "%s\n%s", segment, out);
        ck_assert_uint_eq(strlen(segment), strlen(prefix) + 16);
        times++;
    }
    return times;
}

static struct {
    const char *part, *field;
    uint64_t errors;
    const char *said[3]; /* in this order */
} errors[] = {
    {"write_after_free",
     "write_after_free",
     1,
     {"bytes 128 to 135 of a freed block of 4096 bytes", "allocated", "freed"}},
    {"write_after_free_large", "write_after_free", 1, {"bytes 3145733 to 3145733 of a freed block of 5242880 bytes"}},
    {"write_after_free_host", "write_after_free", 1, {"bytes 77 to 77 of a freed block of 4096 bytes", "host memory"}},
    {"overrun", "overrun", 1, {"bytes 1000 to 1002 of a block of 1000 bytes", "allocated", "freed"}},
    {"overrun_full_card", "overrun", 1, {"bytes 25165824 to 25165826 of a block of 25165824 bytes"}},
    {"underrun",
     "underrun",
     1,
     {"bytes -4 to -1 before the start of a block of 960 bytes", "They are bytes 1020 to 1023 of the block of 960"}},
    {"double_free", "double_free", 1, {"a block of 4096 bytes was freed twice", "  freed ", "then freed"}},
    {"interior_free", "interior_free", 1, {"64 bytes into a block", "allocated", "freed"}},
    {"foreign_free", "foreign_free", 1, {"where no allocation begins", "freed"}},
    {"wrong_context", "wrong_context", 1, {"which is not its own", "allocated", "freed"}},
    {"context_live", "context_with_live_blocks", 1, {"1 blocks, 4096 bytes", "allocated"}},
    {"context_live_once", "context_with_live_blocks", 1, {"1 blocks, 4096 bytes", "allocated"}},
    {"leaks",
     "leak",
     0,
     {"7 blocks, 5247680 bytes, were still allocated at the end of the process; the largest:",
      "3145728 bytes of device memory", "2097152 bytes of device memory"}},
    {"leak", "leak", 0, {"1 blocks, 4096 bytes, were still allocated at the end of the process", "allocated"}},
};

/* The program itself is on the stack of every finding. */
START_TEST(every_error_is_found_with_its_offsets_and_stacks) {
    struct child *c = run(ALL, errors[_i].part);
    const char *p = c->out;

    child_ok(c);
    for (int i = 0; i < 3 && errors[_i].said[i]; i++) {
        ck_assert_msg((p = strstr(p, errors[_i].said[i])) != NULL, "not said: %s\n%s", errors[_i].said[i], c->out);
        ck_assert_msg(strstr(p, "#0 check+0x") != NULL, "no stack\n%s", c->out);
    }
    ck_assert_uint_eq(child_count(c, "check.%s", errors[_i].field), 1);
    counts(c, "check.errors", errors[_i].errors);
    ck_assert_ptr_nonnull(strstr(zeroute_find(c->s, "check.error.1")->text, errors[_i].said[0]));
    child_free(c);
}
END_TEST

/* Both processes report, each names the other, and the importer has read what it should. */
START_TEST(a_block_freed_while_another_process_has_it_open_is_reported_on_both_sides) {
    struct child *c = run(ALL, "ipc_freed_open");
    const char *mine, *theirs;

    child_ok(c);
    mine = strstr(c->out, "a block of 2097152 bytes was freed by process ");
    theirs = strstr(c->out, " was freed by process ");
    ck_assert_msg(mine && theirs, "%s", c->out);
    ck_assert_msg(named(c->out, "freed by", "ipc_freed_open") == 2, "%s", c->out);
    ck_assert_msg(named(c->out, "open in", "ipc_freed_open") == 2, "%s", c->out);
    ck_assert_ptr_null(strchr(c->out, '\033'));
    counts(c, "check.ipc_freed_while_open", 1);
    ck_assert_uint_eq(named(zeroute_find(c->s, "check.error.1")->text, "open in", "ipc_freed_open"), 1);
    child_free(c);
}
END_TEST

/* Names that only look like segments are passed over: none is waited for, and no link is followed. */
START_TEST(a_process_without_a_segment_is_said_to_have_none) {
    char pipe[96], link[96];
    struct child *c;

    snprintf(pipe, sizeof pipe, "%s/1.check-pipe", own_directory());
    snprintf(link, sizeof link, "%s/1.check-link", own_directory());
    ck_assert_int_eq(mkfifo(pipe, 0600), 0);
    ck_assert_int_eq(symlink("/dev/zero", link), 0);
    c = run(ALL, "ipc_no_segment");
    unlink(pipe);
    unlink(link);
    child_ok(c);
    ck_assert_msg(strstr(c->out, "(check ipc_no_segment ?[2J), which has no segment\n"), "%s", c->out);
    ck_assert_msg(named(c->out, "freed by", "ipc_no_segment") == 2, "%s", c->out);
    child_free(c);
}
END_TEST

/* It calls nothing after the free of its exporter. */
START_TEST(an_importer_is_told_at_once_that_its_exporter_has_freed) {
    struct child *c = run(ALL, "ipc_told_at_once");

    child_ok(c);
    ck_assert_msg(strstr(c->out, "told by the importer: zeroute: check: ipc_stale_import"), "%s", c->out);
    child_free(c);
}
END_TEST

START_TEST(the_nearest_live_blocks_on_both_sides_are_named) {
    struct child *c = run(ALL, "beside");
    unsigned told = 0;

    child_ok(c);
    for (const char *p = c->out; (p = strstr(p, "must be told: ")); p++) {
        char line[128] = "\n  ";

        sscanf(p, "must be told:   %120[^\n]", line + strlen(line));
        ck_assert_msg(strstr(c->out, line), "%s\n%s", line, c->out);
        told++;
    }
    ck_assert_uint_eq(told, 2);
    child_free(c);
}
END_TEST

/* With check:free it comes later, and the program has gone on. */
START_TEST(with_guard_alone_a_free_answers_as_the_driver_does) {
    struct child *c = run("ZEROUTE_CONF=check:guard,check_wait:20s,inject:zeMemFree@1=0x70000001", "refused_free");

    child_ok(c);
    counts(c, "check.errors", 0);
    child_free(c);
}
END_TEST

START_TEST(an_importer_of_a_freed_block_reads_poison_if_asked) {
    struct child *c = run(ALL ",check_exported:poison", "ipc_poisoned");

    child_ok(c);
    counts(c, "check.ipc_freed_while_open", 1);
    counts(c, "check.poisoned", 1);
    child_free(c);
}
END_TEST

START_TEST(a_handle_opened_twice_and_closed_once_is_reported) {
    struct child *c = run(ALL, "ipc_unclosed");

    child_ok(c);
    ck_assert_msg(strstr(c->out, "a handle was opened 2 times and closed 1 times by process "), "%s", c->out);
    ck_assert_uint_eq(named(c->out, "opened by", "ipc_unclosed"), 1);
    ck_assert_uint_eq(named(c->out, "exporter", "ipc_unclosed"), 1);
    child_free(c);
    c = run(ALL, "ipc_half_closed");
    child_ok(c);
    ck_assert_msg(strstr(c->out, " has it open, opened more often than closed\n"), "%s", c->out);
    ck_assert_uint_eq(named(c->out, "exporter", "ipc_half_closed"), 1);
    child_free(c);
}
END_TEST

static const char *const legal[] = {"clean",    "in_flight", "waits_for_us",  "waits_for_us_copying",
                                    "deferred", "blocking",  "full_card",     "forks",
                                    "threads",  "ipc_clean", "ipc_same_bytes"};

START_TEST(a_legal_program_runs_as_without_and_nothing_is_reported) {
    static const char *const values[] = {"free", "guard", "ipc", "all"};

    for (unsigned i = 0; i < sizeof values / sizeof *values; i++) {
        char conf[64];
        struct child *c;

        if (strcmp(legal[_i], "in_flight") == 0 && values[i][0] != 'f' && values[i][0] != 'a')
            continue; /* legal where a free leaves the block alone until the device is done with it */
        snprintf(conf, sizeof conf, "ZEROUTE_CONF=check:%s,check_wait:20ms", values[i]);
        c = run(conf, legal[_i]);
        child_ok(c);
        ck_assert_msg(!strstr(c->out, "check: ") || strstr(c->out, "errors that follow a free at once may be missed") ||
                          strstr(c->out, "unverified"),
                      "%s: %s", conf, c->out);
        counts(c, "check.errors", 0);
        counts(c, "check.leak", 0);
        counts(c, "reserved_bytes.all.current", 0);
        child_free(c);
    }
}
END_TEST

START_TEST(what_lies_at_a_handle_is_the_drivers_own) {
    struct child *c = run(ALL, "physical_on_host");

    child_ok(c);
    counts(c, "check.foreign_free", 4);
    counts(c, "allocated_bytes.host.current", 0);
    counts(c, "failures.zePhysicalMemDestroy", 0);
    child_free(c);
}
END_TEST

START_TEST(no_standard_stream_is_taken) {
    struct child *c = run("ZEROUTE_CONF=check:ipc", "streams_closed");

    child_ok(c);
    counts(c, "ipc.exports", 1);
    child_free(c);
}
END_TEST

static const char *const not_kept[] = {"ZEROUTE_CONF=check:guard,check_wait:20s",
                                       "ZEROUTE_CONF=check:ipc,check_wait:20s", ALL};

START_TEST(what_is_freed_leaves_the_books_once) {
    struct child *c = run(not_kept[_i], "booked_once");

    child_ok(c);
    counts(c, "allocated_bytes.all.allocated", 32 << 20);
    counts(c, "allocated_bytes.all.current", 0);
    counts(c, "allocation.all.current", 0);
    child_free(c);
}
END_TEST

START_TEST(a_live_block_is_verified_when_ctl_asks_for_it) {
    char tool[PATH_MAX + 16];
    const char *settings[] = {sim_driver(), ALL, "ZE_SIMGPU=vram:32MiB", tool, NULL};
    const char *argv[] = {"check", "overrun_live", NULL};
    const char *told, *asked;
    struct child *c;

    snprintf(tool, sizeof tool, "ZEROUTE_TOOL=%s", build_path("zeroute"));
    c = child_run(settings, argv);
    child_ok(c);
    told = strstr(c->out, "bytes 1000 to 1002 of a block of 1000 bytes");
    asked = strstr(c->out, "it was asked");
    ck_assert_msg(told && asked && told < asked, "%s", c->out);
    counts(c, "check.overrun", 1);
    child_free(c);
}
END_TEST

static bool holds(const char *file, const char *text) {
    FILE *f = fopen(file, "re");
    static char bytes[1 << 20];
    size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;

    if (f)
        fclose(f);
    return memmem(bytes, n, text, strlen(text)) != NULL;
}

START_TEST(a_report_is_in_the_record_and_in_the_json) {
    char record[] = "/tmp/check-record.XXXXXX", json[PATH_MAX];
    const char *settings[] = {"LD_PRELOAD=", NULL};
    const char *argv[] = {build_path("zeroute"),
                          "run",
                          "--sim",
                          "--check",
                          "all",
                          "--check-wait",
                          "20s",
                          "--record",
                          record,
                          "--json",
                          json,
                          "--discard",
                          "--",
                          build_path("test/process/check"),
                          "write_after_free",
                          NULL};
    struct child *c;

    close(mkstemp(record));
    snprintf(json, sizeof json, "%s.json", record);
    c = child_run(settings, argv);
    child_ok(c);
    ck_assert(holds(record, "zeroute: check: write_after_free: bytes 128 to 135 of a freed block of 4096 bytes"));
    ck_assert(holds(json, "write_after_free: bytes 128 to 135 of a freed block of 4096 bytes were written\\n  block"));
    ck_assert(holds(json, "\\n  freed      by thread "));
    unlink(record);
    unlink(json);
    child_free(c);
}
END_TEST

START_TEST(ten_are_told_and_the_rest_counted) {
    struct child *c = run(ALL, "many");
    unsigned told = 0;

    child_ok(c);
    for (const char *p = c->out; (p = strstr(p, "check: overrun:")); p++)
        told++;
    ck_assert_uint_eq(told, 10);
    ck_assert_ptr_nonnull(strstr(c->out, "14 errors, 10 of them printed in full"));
    counts(c, "check.overrun", 14);
    child_free(c);
}
END_TEST

START_TEST(every_freed_block_is_poisoned_and_verified) {
    struct child *c = run(ALL, "clean");

    child_ok(c);
    counts(c, "check.blocks", 80);
    counts(c, "check.poisoned", 80);
    counts(c, "check.proven", 80);
    counts(c, "check.verified", 80);
    counts(c, "check.unverified", 0);
    child_free(c);
}
END_TEST

START_TEST(a_block_that_a_command_may_use_is_not_proven_idle) {
    struct child *c = run("ZEROUTE_CONF=check:free,check_wait:20s", "in_flight");

    child_ok(c);
    counts(c, "check.blocks", 2);
    counts(c, "check.poisoned", 2);
    counts(c, "check.proven", 1); /* the copy, freed after a wait for the event of the command */
    child_free(c);
}
END_TEST

START_TEST(the_quarantine_goes_before_memory_is_short) {
    struct child *c = run("ZEROUTE_CONF=check:all,check_wait:20s,check_quarantine:64GiB", "full_card");

    child_ok(c);
    counts(c, "check.poisoned", 6);
    counts(c, "check.errors", 0);
    child_free(c);
}
END_TEST

START_TEST(what_the_quarantine_cannot_hold_passes_and_is_counted) {
    struct child *c = run("ZEROUTE_CONF=check:all,check_quarantine:1MiB", "full_card");

    child_ok(c);
    counts(c, "check.not_checked.size", 6);
    counts(c, "check.poisoned", 0);
    child_free(c);
}
END_TEST

START_TEST(a_block_without_room_for_a_red_zone_is_counted) {
    struct child *c = run(ALL, "whole_card");

    child_ok(c);
    counts(c, "check.not_checked.zone", 1);
    counts(c, "check.errors", 0);
    child_free(c);
}
END_TEST

START_TEST(run_ends_with_66_where_an_error_was_found) {
    static const struct {
        const char *part;
        int code;
    } cases[] = {{"overrun", 66}, {"clean", 0}, {"leak", 0}};

    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *settings[] = {"LD_PRELOAD=", NULL};
        const char *argv[] = {build_path("zeroute"),
                              "run",
                              "--sim",
                              "--check",
                              "all",
                              "--check-wait",
                              "20s",
                              "--fail-on-error",
                              "--discard",
                              "--",
                              build_path("test/process/check"),
                              cases[i].part,
                              NULL};
        struct child *c = child_run(settings, argv);

        ck_assert_msg(WIFEXITED(c->status) && WEXITSTATUS(c->status) == cases[i].code, "%s: %#x: %s", cases[i].part,
                      (unsigned)c->status, c->out);
        child_free(c);
    }
}
END_TEST

/* The launcher names lines, shows the source, counts equal errors once, and gives the reason of the exit code. */
START_TEST(run_reports_lines_and_equal_errors_once) {
    const char *settings[] = {"LD_PRELOAD=", NULL};
    const char *argv[] = {build_path("zeroute"),
                          "run",
                          "--sim",
                          "--check",
                          "all",
                          "--check-wait",
                          "20s",
                          "--fail-on-error",
                          "--discard",
                          "--",
                          build_path("test/process/check"),
                          "double_free_thrice",
                          NULL};
    struct child *c = child_run(settings, argv);
    const char *end = strstr(c->out, "check found, with lines where there is debug information");

    ck_assert_msg(end != NULL, "%s", c->out);
    ck_assert_msg(strstr(end, "  1. double_free: a block of 4096 bytes was freed twice (3 times)\n"), "%s", end);
    ck_assert_msg(strstr(end, "#0 free_twice (prog_check.c:"), "no line\n%s", end);
    ck_assert_msg(strstr(end, " | OK(zeMemFree(gpu.context, p));"), "no source line\n%s", end);
    ck_assert_ptr_null(strstr(end, "  2. double_free"));
    ck_assert_msg(strstr(end, "zeroute: check: 3 errors in 1 place; exit code 66: --fail-on-error\n"), "%s", end);
    /* before that each error was told in one line, at once */
    ck_assert_ptr_null(strstr(c->out, "#0 check+0x"));
    child_free(c);
}
END_TEST

/* Nothing would ever be found: a run that cannot fail is not started. */
START_TEST(fail_on_error_is_refused_where_no_error_can_be_known) {
    static const char *const without[] = {"--check=none", "--stats=off"};

    for (unsigned i = 0; i < sizeof without / sizeof *without; i++) {
        const char *settings[] = {"LD_PRELOAD=", NULL};
        const char *argv[] = {build_path("zeroute"),
                              "run",
                              "--sim",
                              "--check=all",
                              without[i],
                              "--fail-on-error",
                              "--",
                              build_path("test/process/check"),
                              "overrun",
                              NULL};
        struct child *c = child_run(settings, argv);

        ck_assert_msg(WIFEXITED(c->status) && WEXITSTATUS(c->status) == 125, "%#x: %s", (unsigned)c->status, c->out);
        ck_assert_msg(strstr(c->out, "--fail-on-error needs --check") && !strstr(c->out, "overrun:"), "%s", c->out);
        child_free(c);
    }
}
END_TEST

START_TEST(without_the_setting_there_is_no_worker_and_no_field) {
    struct child *c = run("ZEROUTE_CONF=preset:observe", "clean");

    child_ok(c);
    ck_assert_ptr_null(zeroute_find(c->s, "check.blocks"));
    child_free(c);
}
END_TEST

int main(void) {
    Suite *s = suite_create("check");
    TCase *t = tcase_create("check");

    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_error_is_found_with_its_offsets_and_stacks, 0, sizeof errors / sizeof *errors);
    tcase_add_loop_test(t, a_legal_program_runs_as_without_and_nothing_is_reported, 0, sizeof legal / sizeof *legal);
    tcase_add_test(t, a_block_freed_while_another_process_has_it_open_is_reported_on_both_sides);
    tcase_add_test(t, a_process_without_a_segment_is_said_to_have_none);
    tcase_add_test(t, an_importer_is_told_at_once_that_its_exporter_has_freed);
    tcase_add_test(t, the_nearest_live_blocks_on_both_sides_are_named);
    tcase_add_test(t, with_guard_alone_a_free_answers_as_the_driver_does);
    tcase_add_test(t, an_importer_of_a_freed_block_reads_poison_if_asked);
    tcase_add_test(t, a_handle_opened_twice_and_closed_once_is_reported);
    tcase_add_test(t, a_live_block_is_verified_when_ctl_asks_for_it);
    tcase_add_test(t, a_report_is_in_the_record_and_in_the_json);
    tcase_add_test(t, ten_are_told_and_the_rest_counted);
    tcase_add_test(t, every_freed_block_is_poisoned_and_verified);
    tcase_add_test(t, a_block_that_a_command_may_use_is_not_proven_idle);
    tcase_add_test(t, the_quarantine_goes_before_memory_is_short);
    tcase_add_test(t, what_the_quarantine_cannot_hold_passes_and_is_counted);
    tcase_add_test(t, a_block_without_room_for_a_red_zone_is_counted);
    tcase_add_test(t, run_ends_with_66_where_an_error_was_found);
    tcase_add_test(t, what_lies_at_a_handle_is_the_drivers_own);
    tcase_add_test(t, no_standard_stream_is_taken);
    tcase_add_loop_test(t, what_is_freed_leaves_the_books_once, 0, 3);
    tcase_add_test(t, run_reports_lines_and_equal_errors_once);
    tcase_add_test(t, fail_on_error_is_refused_where_no_error_can_be_known);
    tcase_add_test(t, without_the_setting_there_is_no_worker_and_no_field);
    suite_add_tcase(s, t);
    return run_suite(s);
}
