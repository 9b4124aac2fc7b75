/*
 * Comparisons of whole programs on the simulated GPU, with effects planted: the stories of both mistakes, what
 * gets no verdict and why, and the page opened in a browser. LONG=1 repeats the power tests 100 times.
 */
#define WORK "ab_work"
#include "common/common.h"
#include "shell.h"
#include "suite.h"

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#define OLD "devices:2,mirror:off,version:1.3.32567"
#define NEW "devices:2,mirror:on,version:1.6.33000"
#define MIB 1048576.0

static json_t *json;

#define exits(code, ...)                                                                                               \
    do {                                                                                                               \
        int got = sh(__VA_ARGS__);                                                                                     \
        ck_assert_msg(got == (code), "exit code %d, not %d:\n%s%s", got, (code), out, err);                            \
    } while (0)

static void says(const char *where, const char *text) {
    ck_assert_msg(strstr(where, text) != NULL, "'%s' is not in:\n%s", text, where);
}

/* j, as `zeroute ab --json=j` wrote it. */
static json_t *load(void) {
    char path[128], *wrong;
    snprintf(path, sizeof path, "%s/j", folder);
    json_decref(json);
    json = zr_json_read(path, &wrong);
    ck_assert_msg(json != NULL, "%s", wrong);
    return json;
}

static json_t *metric(const char *name, size_t arm) {
    json_t *m = json_object_get(json_object_get(json_object_get(json, "analysis"), "metrics"), name);
    json_t *arms = json_object_get(m, "arms");
    ck_assert_msg(arms && arm < json_array_size(arms), "no metric %s", name);
    return json_array_get(arms, arm);
}

static const char *status_of(const char *what) {
    json_t *list = json_object_get(json_object_get(json, "analysis"), "differences");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(zr_json_get_text(json_array_get(list, i), "what"), what) == 0)
            return zr_json_get_text(json_array_get(list, i), "status");
    return "none";
}

/* --- the stories ------------------------------------------------------------------------------------- */

START_TEST(path_and_driver_together_get_no_verdict_and_are_told_why) {
    exits(3, "$Z ab --sim --runs 5 --primary host.mirror --a route:native,env:ZE_SIMGPU=" OLD
             " --b route:sycl,env:ZE_SIMGPU=" NEW " -- $W hold=80");
    says(out, "No verdict");
    says(out, "b differs from a in 2 things at once, route (native, sycl) and ZE_SIMGPU");
}
END_TEST

START_TEST(a_driver_that_changed_behind_the_path_is_named) {
    exits(3, "$Z ab --sim=" OLD " --runs 5 --primary host.mirror --json=j --a \"route:native,cmd:$W hold=80\" "
             "--b \"route:native,cmd:env ZE_SIMGPU=" NEW " $W hold=80\"; c=$?; "
             "$Z ab --report j; exit $c");
    load();
    ck_assert_str_eq(status_of("driver.version"), "undeclared");
    ck_assert_str_eq(status_of("env.ZE_SIMGPU"), "undeclared");
    ck_assert_str_eq(status_of("command"), "declared");
    says(out, "undeclared  driver.version\n              a: 1.3.32567\n              b: 1.6.33000");
    ck_assert_ptr_null(strstr(out, "median"));
}
END_TEST

START_TEST(the_path_alone_makes_no_difference) {
    exits(0, "$Z ab --sim=" NEW " --runs 5 --primary host.mirror --json=j --a route:native --b route:sycl "
             "-- $W hold=80");
    says(out, "Verdict\n  Host RAM the same (16.0 MiB) with route:sycl; wall time ");
    load();
    ck_assert_str_eq(zr_json_get_text(metric("host.mirror", 1), "outcome"), "no difference");
}
END_TEST

START_TEST(the_driver_alone_makes_the_difference_with_its_size) {
    exits(0, "$Z ab --sim --runs 5 --primary host.mirror --json=j --a env:ZE_SIMGPU=" OLD " --b env:ZE_SIMGPU=" NEW
             " -- $W hold=80");
    says(out, "host.mirror: more in b than in a, worse: 0 to 16.0 MiB");
    load();
    ck_assert_double_eq(zr_json_get_number(metric("host.mirror", 1), "difference"), 16 * MIB);
    ck_assert_str_eq(status_of("driver.version"), "consequence");
    ck_assert_str_eq(status_of("env.ZE_SIMGPU"), "declared");
}
END_TEST

START_TEST(the_mirror_of_several_processes_is_counted_once) {
    exits(3, "$Z ab --sim=" NEW " --runs 1 --warmup 0 --json=j --a residency:default --b residency:owner "
             "-- sh -c \"$W hold=300 & $W hold=300 & $W hold=300 & wait\"");
    load();
    ck_assert_double_le(zr_json_get_number(metric("host.mirror", 0), "median"), 3 * 16 * MIB);
    ck_assert_double_ge(zr_json_get_number(metric("host.mirror", 0), "median"), 16 * MIB);
    ck_assert_double_eq(zr_json_get_number(metric("host.mirror", 1), "median"), 0);
}
END_TEST

START_TEST(residency_alone_makes_the_difference_with_its_size) {
    exits(0, "$Z ab --sim=" NEW " --runs 5 --primary host.mirror --same-output --json=j --a residency:default "
             "--b residency:owner -- $W hold=80");
    says(out, "host.mirror: less in b than in a, better: 16.0 MiB to 0, -100 %");
    says(out, "residency.skipped              0           4   changed");
    load();
    ck_assert_double_eq(zr_json_get_number(metric("host.mirror", 1), "difference"), -16 * MIB);
    ck_assert_str_eq(status_of("output"), "none");
}
END_TEST

START_TEST(a_path_that_drops_residency_gets_no_verdict) {
    exits(3, "$Z ab --sim=" NEW " --runs 5 --primary host.mirror --a route:native --b route:sycl "
             "-- $W hold=80 sycl_drops=1");
    says(out, "route:sycl changed more than it should: residency.peer");
    exits(0, "$Z ab --sim=" NEW " --runs 5 --primary host.mirror --allow residency.peer --a route:native "
             "--b route:sycl -- $W hold=80 sycl_drops=1");
    says(out, "the verdict is about both");
}
END_TEST

/* --- power and false verdicts -------------------------------------------------------------------------- */

static int repetitions(void) {
    return getenv("LONG") ? 100 : 5;
}

/* Twenty runs per arm, noise of 5 % in the score; returns how many of all metrics are said to differ. */
static unsigned differing(int repetition, const char *effect) {
    unsigned n = 0;

    sh("echo %d >count; AB_COUNT=$PWD/count $Z ab --sim --runs 20 --warmup 0 --interval 1000 --metric score "
       "--primary score --json=j --a env:AB_EFFECT=0 --b env:AB_EFFECT=%s -- $W blocks=1 mib=1 score=100 noise=5",
       1000 * repetition, effect);
    json_t *all = json_object_get(json_object_get(load(), "analysis"), "metrics");
    const char *name;
    json_t *one;
    json_object_foreach(all, name, one) {
        const char *outcome = zr_json_get_text(json_array_get(json_object_get(one, "arms"), 1), "outcome");
        n += strcmp(outcome, "less") == 0 || strcmp(outcome, "more") == 0;
    }
    return n;
}

START_TEST(ten_percent_is_found_in_twenty_runs) {
    int found = 0, all = repetitions();
    for (int i = 1; i <= all; i++) {
        differing(i, "10");
        found += strcmp(zr_json_get_text(metric("score", 1), "outcome"), "more") == 0;
    }
    ck_assert_msg(found * 100 >= all * 95, "%d of %d", found, all);
}
END_TEST

START_TEST(without_an_effect_hardly_a_report_claims_one) {
    int wrong = 0, all = repetitions();
    for (int i = 1; i <= all; i++)
        wrong += differing(1000 + i, "0") > 0;
    ck_assert_msg(wrong <= (all == 100 ? 5 : 1), "%d of %d", wrong, all);
}
END_TEST

/* --- what is a run, and what is not --------------------------------------------------------------------- */

START_TEST(a_run_that_no_hook_saw_is_not_a_run) {
    exits(2, "$Z ab --runs 500 --a route:native --b route:sycl -- true"); /* after the warm-up, not at the end */
    says(err, "the command has not touched a GPU");
    exits(2, "$Z ab --sim --runs 500 --primary host.miror --a observe --b mitigate -- $W hold=80");
    says(err, "unknown metric 'host.miror': did you mean 'host.mirror'?");
}
END_TEST

START_TEST(the_control_runs_without_the_preload) {
    exits(0, "$Z ab --sim=devices:2 --runs 5 --same-output --json=j --a none --b observe -- $W hold=80");
    says(out, "a runs without the preload");
    json_t *runs = json_object_get(load(), "runs");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        json_t *run = json_array_get(runs, i), *fingerprint = json_object_get(run, "fingerprint");
        bool none = zr_json_get_number(run, "arm") == 0;
        ck_assert(!json_object_get(fingerprint, "setting.route") == none);
        ck_assert(!json_object_get(fingerprint, "library.libzeroute.so.path") == none);
        ck_assert_ptr_nonnull(json_object_get(fingerprint, "kernel"));
    }
}
END_TEST

START_TEST(what_statistics_cost_can_be_compared) {
    exits(0, "$Z ab --sim --runs 5 --json j.json --a stats:off --b stats:on -- $W && mv j.json j");
    says(out, "a runs without statistics (stats:off)");
    load();
    ck_assert_str_eq(status_of("setting.stats"), "none"); /* one side cannot tell */
}
END_TEST

START_TEST(a_wrong_answer_gets_no_verdict) {
    exits(3, "$Z ab --sim --runs 5 --same-output --a \"cmd:$W\" --b \"cmd:$W wrong=1\"");
    says(out, "undeclared  output");
    exits(3, "$Z ab --sim --runs 5 --same-output=g --a \"cmd:$W\" --b \"cmd:$W wrong=1\"");
    says(out, "g was not there after run");
    exits(0, "echo same >f; $Z ab --sim --runs 5 --same-output=f --a \"cmd:$W\" --b \"cmd:$W wrong=1\"");
}
END_TEST

START_TEST(fewer_than_five_runs_give_figures_and_no_verdict) {
    exits(3, "$Z ab --sim --runs 2 --warmup 0 --a route:native --b route:sycl -- $W");
    says(out, "a has 2 runs that count: a verdict needs at least 5");
    says(out, "wall ");
}
END_TEST

START_TEST(backing_eager_declares_the_drivers_keys) {
    exits(0, "$Z ab --sim=" NEW " --runs 5 --json=j --primary host.mirror --a backing:default --b backing:eager -- $W");
    load();
    ck_assert_str_eq(status_of("env.EnableDeferBacking"), "consequence");
    ck_assert_str_eq(status_of("setting.backing"), "declared");
}
END_TEST

START_TEST(a_library_folder_is_declared_with_what_lies_in_it) {
    exits(0, "mkdir x y && cp $B/libze_simgpu.so x && cp $B/libze_simgpu.so y && ZE_ENABLE_ALT_DRIVERS=libze_simgpu.so "
             "ZEROUTE_ROOT=$PWD/root $Z ab --runs 5 --json=j --a lib:$PWD/x --b lib:$PWD/y -- $W");
    load();
    ck_assert_str_eq(status_of("library.libze_simgpu.so.path"), "consequence");
}
END_TEST

START_TEST(two_builds_of_the_driver_behind_a_command_are_named) {
    exits(3, "mkdir x && cp $B/libze_simgpu.so x && $Z ab --sim --runs 5 --json=j --a \"cmd:$W\" "
             "--b \"cmd:env ZE_ENABLE_ALT_DRIVERS=$PWD/x/libze_simgpu.so $W\"");
    load();
    ck_assert_str_eq(status_of("library.libze_simgpu.so.path"), "undeclared");
}
END_TEST

START_TEST(a_wrapper_that_resets_a_setting_is_found_out) {
    exits(3, "$Z ab --sim --runs 5 --a \"residency:default\" --b \"residency:owner\" -- "
             "env ZEROUTE_CONF=route:native,cache:off,residency:default $W");
    says(out, "setting.residency");
    says(out, "in b: default, declared owner");
}
END_TEST

START_TEST(another_kernel_and_other_firmware_between_runs_are_named) {
    exits(3, "mkdir -p root/proc/sys/kernel root/sys/kernel/debug/dri/0/gt0/uc && export ZEROUTE_ROOT=$PWD/root && "
             "$Z ab --runs 5 --warmup 0 --json=j --prepare 'case $ZEROUTE_ARM in a) v=6.17.0 g=70.29.2;; "
             "*) v=6.18.0 g=70.44.1;; esac; echo $v >root/proc/sys/kernel/osrelease; "
             "printf \"GuC firmware: xe/bmg_guc_70.bin\\n\\twanted 70.0.0, found $g\\n\" "
             ">root/sys/kernel/debug/dri/0/gt0/uc/guc_info' --a none --b none -- true");
    load();
    ck_assert_str_eq(status_of("kernel"), "undeclared");
    ck_assert_str_eq(status_of("card.dri0.gt0.guc_firmware"), "undeclared");
    says(out, "a: 70.29.2\n              b: 70.44.1");
}
END_TEST

/* --- the command itself ---------------------------------------------------------------------------------- */

START_TEST(setup_prepare_and_cleanup_are_run_as_in_hyperfine) {
    exits(3, "$Z ab --sim --runs 2 --warmup 1 --setup 'echo setup $ZEROUTE_ARM $X >>log' --prepare 'echo prepare "
             "$ZEROUTE_ARM >>log' --cleanup 'echo cleanup $ZEROUTE_ARM >>log' --a env:X=1 --b env:X=2 -- $W");
    ck_assert_int_eq(sh("cat log"), 0);
    ck_assert_str_eq(out, "setup a 1\nsetup b 2\nprepare a\nprepare b\nprepare a\nprepare b\nprepare b\nprepare a\n"
                          "cleanup a\ncleanup b\n");
    exits(2, "$Z ab --sim --runs 2 --prepare false --a env:X=1 --b env:X=2 -- $W");
    says(err, "--prepare failed in arm a: 'false' ended with exit code 1");
}
END_TEST

START_TEST(a_run_waits_for_the_baseline_and_says_so) {
    exits(3, "mkdir -p root/proc && printf 'MemTotal: 8000000 kB\\nMemAvailable: 6000000 kB\\nGPUActive: 0 kB\\n' "
             ">root/proc/meminfo && sed 's/GPUActive: 0/GPUActive: 900000/' root/proc/meminfo >high && "
             "ZEROUTE_ROOT=$PWD/root $Z ab --runs 1 --warmup 0 --settle 0.1 --a none --b none "
             "--prepare '[ $ZEROUTE_ARM = a ] || cp high root/proc/meminfo' -- true");
    says(out, "run 2 (b) started after 0.1 s although memory was not back at its baseline");
}
END_TEST

START_TEST(an_interrupt_keeps_what_is_done) {
    signal(SIGHUP, SIG_DFL); /* ignored under nohup, and ab leaves it so */
    exits(3,
          "export AB_COUNT=$PWD/count; "
          "$Z ab --sim --runs 500 --warmup 0 --json=j --a env:X=1 --b env:X=2 -- $W score=1 & p=$!; "
          "until [ \"$(cat count 2>/dev/null || echo 0)\" -ge 5 ]; do sleep 0.01; done; kill -%s $p; wait $p",
          _i ? "HUP" : "TERM");
    says(out, "interrupted: 500 runs per arm were planned");
    json_t *runs = json_object_get(load(), "runs");
    ck_assert_uint_ge(json_array_size(runs), 4);
    ck_assert_uint_lt(json_array_size(runs), 1000); /* as planned */
}
END_TEST

START_TEST(exit_codes_tell_whose_fault_it_was) {
    exits(2, "$Z ab --sim --runs 5 --a route:native --b route:sycl -- sh -c 'echo oh no >&2; exit 3'");
    says(err, "the command failed in arm a (exit code 3)");
    says(err, "oh no");
    exits(2, "$Z ab --a route:native --b route:sycl -- ./not-there");
    says(err, "cannot execute ./not-there");
    exits(2, "$Z ab --a route:native -- true");
    says(err, "only one arm: expected at least --a SETTING and --b SETTING");
    exits(2, "$Z ab --a route:natve --b route:sycl -- true");
    says(err, "bad value 'natve' of route: expected auto|pool|sycl|native");
    exits(2, "$Z ab --a route:native --b route:sycl");
    says(err, "no command");
    exits(2, "$Z ab --runs x --a observe --b path -- true");
    says(err, "bad value 'x' of --runs: expected a whole number");
    exits(2, "$Z ab --metric '(' --a observe --b path -- true");
    says(err, "bad expression '('");
    exits(2, "$Z ab --frobnicate");
    says(err, "unknown option '--frobnicate'");
    exits(2, "$Z ab --report not-there.json");
    says(err, "not-there.json: cannot be read");
    exits(0, "$Z ab --help");
    says(out, "Examples:");
    exits(0, "$Z ab --a observe --help");
    says(out, "Examples:");
    exits(2, "$Z ab --html nowhere/x.html --a observe --b path -- touch started");
    says(err, "cannot write nowhere/x.html");
    exits(1, "test -e started"); /* found out before anything ran */
}
END_TEST

START_TEST(a_report_is_rebuilt_from_its_file) {
    exits(0,
          "$Z ab --sim=" NEW " --runs 5 --primary host.mirror --json=j --html=h1 --markdown=m1 --a "
          "residency:default --b residency:owner -- $W hold=80 >t1 && "
          "$Z ab --report j --json=j2 --html=h2 --markdown=m2 >t2 && cmp j j2 && cmp h1 h2 && cmp m1 m2 && cmp t1 t2");
    exits(0, "$Z ab --report j --primary wall --markdown");
    says(out, "**Wall time ");
    says(out, "host.per_device_byte");
}
END_TEST

START_TEST(the_order_follows_the_seed) {
    exits(0, "for i in 5 05 6; do $Z ab --sim --runs 6 --warmup 0 --order random --seed $i --json=j$i "
             "--a env:X=1 --b env:X=2 -- $W; grep '\"arm\"' j$i | head -12 >order$i; done; cat order5; "
             "[ $(wc -l <order5) -eq 12 ] && cmp order5 order05 && ! cmp -s order5 order6");
}
END_TEST

/* --- the page ------------------------------------------------------------------------------------------- */

START_TEST(the_page_in_a_browser_shows_the_figures_of_the_json) {
    static const char *const names[] = {"host.mirror", "wall", "host.per_device_byte"};
    if (sh("command -v chromium || command -v chromium-browser || command -v google-chrome") != 0) {
        const char *ci = getenv("CI");
        ck_assert_msg(!ci || strcmp(ci, "true"), "no browser here, and CI expects one");
        SKIP("no browser here");
    }
    char browser[256];
    snprintf(browser, sizeof browser, "%.*s", (int)strcspn(out, "\n"), out);
    exits(0, "$Z ab --sim=" NEW " --runs 6 --primary host.mirror --json=j --html=h.html --a residency:default "
             "--b residency:owner -- $W hold=80");
    exits(0, "%s --headless --no-sandbox --disable-gpu --user-data-dir=$PWD/profile --dump-dom file://$PWD/h.html",
          browser);
    load();
    says(out, "host.mirror: less in b than in a, better: 16.0 MiB to 0");
    for (size_t i = 0; i < 3; i++)
        for (size_t arm = 0; arm < 2; arm++) {
            char cell[128];
            snprintf(cell, sizeof cell, "data-metric=\"%s\" data-arm=\"%zu\" data-value=\"", names[i], arm);
            const char *at = strstr(out, cell);
            ck_assert_msg(at != NULL, "no cell %s", cell);
            ck_assert_double_eq(strtod(at + strlen(cell), NULL), zr_json_get_number(metric(names[i], arm), "median"));
        }
    /* every run is a dot of the plot, with its value */
    json_t *runs = json_object_get(json, "runs");
    const char *plot = strstr(out, "data-plot=\"wall\"");
    size_t dots = 0;
    ck_assert_ptr_nonnull(plot);
    for (size_t i = 0; i < json_array_size(runs); i++) {
        if (zr_json_get_flag(json_array_get(runs, i), "warmup"))
            continue;
        char dot[64];
        snprintf(dot, sizeof dot, "data-run=\"%.0f\" data-value=\"",
                 zr_json_get_number(json_array_get(runs, i), "number"));
        const char *at = strstr(plot, dot);
        ck_assert_ptr_nonnull(at);
        ck_assert_double_eq(strtod(at + strlen(dot), NULL),
                            zr_json_get_number(json_object_get(json_array_get(runs, i), "values"), "wall"));
        dots++;
    }
    ck_assert_uint_eq(dots, 12);
    /* and every arm has its median there, with the interval */
    for (size_t arm = 0; arm < 2; arm++) {
        const json_t *of = metric("wall", arm), *interval_of = json_object_get(of, "median_interval");
        const char *shown[] = {"data-median=\"", "data-low=\"", "data-high=\""};
        double expected[] = {zr_json_get_number(of, "median"), json_number_value(json_array_get(interval_of, 0)),
                             json_number_value(json_array_get(interval_of, 1))};
        char group[64];

        snprintf(group, sizeof group, "class=\"interval arm%zu\"", arm);
        const char *at = strstr(plot, group);
        ck_assert_ptr_nonnull(at);
        for (size_t i = 0; i < 3; i++) {
            const char *value = strstr(at, shown[i]);
            ck_assert_ptr_nonnull(value);
            ck_assert_double_eq(strtod(value + strlen(shown[i]), NULL), expected[i]);
        }
    }
    /* what the host's other figures say as the mirror does is folded away */
    const char *folded = strstr(out, "Other figures of the host: they change as host.mirror does");
    ck_assert_ptr_nonnull(folded);
    const char *row_of_active = strstr(out, "data-metric=\"host.gpu_active\"");
    ck_assert(row_of_active && row_of_active > folded);
    says(out, "data-memory=\"0\"");
    says(out, "data-memory=\"1\"");
    says(out, "<polyline");
}
END_TEST

/* --- two recorded runs ------------------------------------------------------------------------------------ */

START_TEST(diff_tells_what_two_runs_differ_in) {
    exits(1, "$Z run --sim=" OLD " --preset observe --json x -- $W && "
             "$Z run --sim=" NEW " --preset observe --json y -- $W && $Z diff x y");
    says(out, "driver.version\n    first   1.3.32567\n    second  1.6.33000");
    exits(0, "$Z diff x x");
    says(out, "The fingerprints are the same.");
    exits(2, "$Z record --sim -o x.zr -- $W hold=20 && $Z diff x.zr x");
    says(err, "x.zr is a record and x is none");
    exits(2, "echo '{}' >e && $Z diff e x");
    says(err, "expected what 'zeroute run --json'");
    exits(0, "$Z record --sim -o y.zr -- $W hold=20 && $Z diff x.zr y.zr");
    /* With units, the largest difference first, and without latencies unless they are asked for. */
    exits(0, "$Z run --sim=" OLD " --preset reroute --limit 1GiB --json z -- $W blocks=7 && $Z diff x z | tr -s ' '");
    says(out, " MiB ");
    ck_assert_ptr_null(strstr(out, "_ns "));
    ck_assert_ptr_nonnull(strstr(out, " new\n"));
    ck_assert_ptr_nonnull(strstr(strstr(out, " new\n"), " %\n"));
    exits(1, "$Z diff --latency x z");
    says(out, "_ns ");
    exits(1, "$Z diff --json x y");
    says(out, "\"same_fingerprint\": false");
    exits(0, "$Z ab --sim=" OLD " --runs 1 --warmup 0 --same-output --json=j --a observe --b mitigate "
             "-- $W; $Z run --sim=" OLD " --preset observe --json x -- $W; $Z diff x j#a");
    says(out, "The fingerprints are the same."); /* recorded in two ways */
    exits(1, "$Z diff j#b x");
    says(out, "differ in 1 thing:\n  setting.residency\n");
    exits(2, "$Z diff x");
    exits(2, "echo '[]' >z; $Z diff x z");
    says(err, "is not a recorded run");
    exits(2, "$Z diff x nothing");
}
END_TEST

static void teardown(void) {
    shell_teardown();
    json_decref(json);
    json = NULL;
}

int main(void) {
    Suite *s = suite_create("ab");
    TCase *story = tcase_create("stories"), *power = tcase_create("power"), *run = tcase_create("runs");
    TCase *command = tcase_create("command");
    TCase *all[] = {story, power, run, command};

    for (size_t i = 0; i < 4; i++) {
        tcase_add_checked_fixture(all[i], shell_setup, teardown);
        tcase_set_timeout(all[i], i == 1 ? 3600 : 240);
        suite_add_tcase(s, all[i]);
    }
    tcase_add_test(story, path_and_driver_together_get_no_verdict_and_are_told_why);
    tcase_add_test(story, a_driver_that_changed_behind_the_path_is_named);
    tcase_add_test(story, the_path_alone_makes_no_difference);
    tcase_add_test(story, the_driver_alone_makes_the_difference_with_its_size);
    tcase_add_test(story, residency_alone_makes_the_difference_with_its_size);
    tcase_add_test(story, the_mirror_of_several_processes_is_counted_once);
    tcase_add_test(story, a_path_that_drops_residency_gets_no_verdict);
    tcase_add_test(power, ten_percent_is_found_in_twenty_runs);
    tcase_add_test(power, without_an_effect_hardly_a_report_claims_one);
    tcase_add_test(run, a_run_that_no_hook_saw_is_not_a_run);
    tcase_add_test(run, the_control_runs_without_the_preload);
    tcase_add_test(run, a_wrong_answer_gets_no_verdict);
    tcase_add_test(run, what_statistics_cost_can_be_compared);
    tcase_add_test(run, fewer_than_five_runs_give_figures_and_no_verdict);
    tcase_add_test(run, backing_eager_declares_the_drivers_keys);
    tcase_add_test(run, a_library_folder_is_declared_with_what_lies_in_it);
    tcase_add_test(run, two_builds_of_the_driver_behind_a_command_are_named);
    tcase_add_test(run, another_kernel_and_other_firmware_between_runs_are_named);
    tcase_add_test(run, a_wrapper_that_resets_a_setting_is_found_out);
    tcase_add_test(command, setup_prepare_and_cleanup_are_run_as_in_hyperfine);
    tcase_add_test(command, a_run_waits_for_the_baseline_and_says_so);
    tcase_add_loop_test(command, an_interrupt_keeps_what_is_done, 0, 2);
    tcase_add_test(command, exit_codes_tell_whose_fault_it_was);
    tcase_add_test(command, a_report_is_rebuilt_from_its_file);
    tcase_add_test(command, the_order_follows_the_seed);
    tcase_add_test(command, the_page_in_a_browser_shows_the_figures_of_the_json);
    tcase_add_test(command, diff_tells_what_two_runs_differ_in);
    return run_suite(s);
}
