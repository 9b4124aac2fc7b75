/* Fingerprint, mechanism and verdict: what gets none, and that the reason is named. */
#include "suite.h"
#include "unit/ab_fixture.h"

static struct zr_ab ab;
static struct zr_ab_analysis an;

static void begin(const char *a, const char *b) {
    fixture_start(&ab, a, b);
}

static void ten_runs(void) {
    const double same[] = {1, 1, 1, 1};

    fixture_runs(&ab, 10, same, 0.05, 42);
}

/* Every run of an arm is told to have had this. */
static void was(size_t arm, const char *name, const char *value) {
    for (size_t r = 0; r < ab.n_runs; r++)
        if (ab.run[r].arm == arm)
            zr_pairs_set(&ab.run[r].fingerprint, name, value);
}

/* No run of an arm tells of this. */
static void lost(size_t arm, const char *name) {
    for (size_t r = 0; r < ab.n_runs; r++) {
        struct zr_pairs kept = {0}, *p = &ab.run[r].fingerprint;
        for (size_t i = 0; ab.run[r].arm == arm && i < p->n; i++)
            if (strcmp(p->at[i].name, name))
                zr_pairs_set(&kept, p->at[i].name, p->at[i].value);
        if (ab.run[r].arm == arm) {
            zr_pairs_clear(p);
            *p = kept;
        }
    }
}

static void counted(size_t arm, const char *name, double value) {
    for (size_t r = 0; r < ab.n_runs; r++)
        if (ab.run[r].arm == arm) {
            char *text = zr_ab_text("%.17g", value);
            zr_pairs_set(&ab.run[r].fields, name, text);
            free(text);
        }
}

static void analyse(void) {
    zr_ab_analyse(&ab, &an);
}

static const struct zr_ab_difference *difference(const char *what) {
    for (size_t i = 0; i < an.differences.n; i++)
        if (!strcmp(an.differences.at[i].what, what))
            return &an.differences.at[i];
    ck_abort_msg("%s is not named", what);
    return NULL;
}

static bool tells(char **list, size_t n, const char *part) {
    for (size_t i = 0; i < n; i++)
        if (strstr(list[i], part))
            return true;
    return false;
}

static void refused_for(const char *part) {
    ck_assert(!an.verdict);
    ck_assert_msg(tells(an.reason, an.n_reasons, part), "first reason: %s", an.n_reasons ? an.reason[0] : "none");
}

static void end(void) {
    zr_ab_analysis_clear(&an);
    zr_ab_clear(&ab);
}

START_TEST(the_declared_setting_alone_gets_a_verdict) {
    begin("route:native", "route:sycl");
    ten_runs();
    analyse();
    ck_assert_msg(an.verdict, "%s", an.n_reasons ? an.reason[0] : "");
    ck_assert_int_eq(difference("setting.route")->status, ZR_AB_DECLARED);
    ck_assert_uint_eq(an.differences.n, 1);
    end();
}
END_TEST

/* One row per kind of thing that is not declared. */
static const struct {
    const char *name, *value;
} undeclared[] = {
    {"library.libsycl.so.8.path", "/opt/other/libsycl.so.8"},
    {"library.libze_loader.so.1.build_id", "feed"},
    {"library.libze_loader.so.1.version", "1.24.1"},
    {"driver.version", "25.18"},
    {"loader.version", "1.24.1"},
    {"adapter", "libur_adapter_level_zero_v2.so.0"},
    {"kernel", "6.17.0"},
    {"card.0.name", "A770"},
    {"card.0.firmware", "70.45.2"},
    {"env.UR_L0_USM_RESIDENT", "0x1"},
    {"env.OMP_NUM_THREADS", "3"},
    {"setting.residency", "owner"},
    {"command", "./train --fast"},
    {"output", "0123"},
};

START_TEST(every_kind_of_undeclared_difference_is_named) {
    begin("route:native", "route:sycl");
    ten_runs();
    was(0, "command", "./train");
    was(0, "output", "4567");
    was(1, undeclared[_i].name, undeclared[_i].value);
    analyse();
    refused_for("not declared");
    ck_assert_int_eq(difference(undeclared[_i].name)->status, ZR_AB_UNDECLARED);
    ck_assert_str_eq(difference(undeclared[_i].name)->value, undeclared[_i].value);
    end();
}
END_TEST

START_TEST(an_allowed_difference_is_admitted_and_said) {
    begin("route:native", "route:sycl");
    ab.allow = calloc(1, sizeof(char *));
    ab.allow[ab.n_allow++] = strdup("driver");
    ten_runs();
    was(1, "driver.version", "25.18");
    analyse();
    ck_assert(an.verdict);
    ck_assert_int_eq(difference("driver.version")->status, ZR_AB_ALLOWED);
    ck_assert(tells(an.remark, an.n_remarks, "driver.version differs and was allowed"));
    end();
}
END_TEST

START_TEST(runs_of_one_arm_must_be_alike) {
    begin("route:native", "route:sycl");
    ten_runs();
    zr_pairs_set(&ab.run[9].fingerprint, "env.ZE_FLAT_DEVICE_HIERARCHY", "FLAT");
    analyse();
    refused_for("the runs of one arm are not alike");
    ck_assert_int_eq(difference("env.ZE_FLAT_DEVICE_HIERARCHY")->status, ZR_AB_UNLIKE);
    ck_assert_uint_eq(difference("env.ZE_FLAT_DEVICE_HIERARCHY")->run, 10);
    end();
}
END_TEST

START_TEST(a_declared_variable_that_did_not_arrive_is_named) {
    begin("env:UR_L0_USM_RESIDENT=0x1", "route:native");
    ten_runs();
    was(0, "env.UR_L0_USM_RESIDENT", "0x2");
    analyse();
    refused_for("not declared");
    ck_assert(strstr(difference("env.UR_L0_USM_RESIDENT")->why, "did not reach the process"));
    end();
    begin("observe", "env:UR_GONE=1,env:HOME_MADE=1"); /* nobody tells of the second one */
    ten_runs();
    lost(1, "env.UR_GONE");
    lost(1, "env.HOME_MADE");
    analyse();
    refused_for("1 thing not declared");
    ck_assert(strstr(difference("env.UR_GONE")->why, "did not reach the process"));
    end();
}
END_TEST

START_TEST(what_a_short_run_did_not_show_from_outside_is_no_difference) {
    begin("none", "stats:off");
    ten_runs();
    for (size_t arm = 0; arm < 2; arm++)
        zr_pairs_set(&ab.run[arm].fingerprint, "library.libsycl.so.8.path", "/opt/libsycl.so.8");
    analyse();
    ck_assert_msg(an.verdict, "%s", an.n_reasons ? an.reason[0] : "");
    ck_assert(tells(an.remark, an.n_remarks, "b runs without statistics (stats:off)"));
    end();
}
END_TEST

START_TEST(a_file_that_nobody_wrote_proves_nothing) {
    begin("route:native", "route:sycl");
    ten_runs();
    was(0, "output.result.bin", ZR_AB_NO_FILE);
    was(1, "output.result.bin", ZR_AB_NO_FILE);
    analyse();
    refused_for("result.bin was not there after run 1 (a)");
    end();
}
END_TEST

START_TEST(an_allowance_that_admits_nothing_is_said) {
    begin("route:native", "route:sycl");
    ten_runs();
    ab.allow = calloc(1, sizeof(char *));
    ab.allow[ab.n_allow++] = strdup("env.UR_MISSPELT");
    analyse();
    ck_assert(tells(an.remark, an.n_remarks, "--allow env.UR_MISSPELT: nothing of that name"));
    end();
}
END_TEST

START_TEST(backing_eager_may_set_the_drivers_keys) {
    begin("observe", "backing:eager");
    ten_runs();
    was(1, "env.NEOReadDebugKeys", "1");
    was(1, "env.EnableDeferBacking", "0");
    analyse();
    ck_assert_msg(an.verdict, "%s", an.n_reasons ? an.reason[0] : "");
    ck_assert_int_eq(difference("env.EnableDeferBacking")->status, ZR_AB_CONSEQUENCE);
    ck_assert_str_eq(difference("env.EnableDeferBacking")->why, "setting.backing");
    end();
}
END_TEST

START_TEST(an_affinity_mask_may_change_the_cards_but_not_the_driver) {
    begin("env:ZE_AFFINITY_MASK=0", "env:ZE_AFFINITY_MASK=0,1");
    ten_runs();
    was(1, "card.1.name", "B580");
    was(1, "driver.version", "26.28");
    analyse();
    refused_for("1 thing not declared");
    ck_assert_int_eq(difference("card.1.name")->status, ZR_AB_CONSEQUENCE);
    ck_assert_int_eq(difference("driver.version")->status, ZR_AB_UNDECLARED);
    end();
}
END_TEST

START_TEST(a_library_path_admits_what_lies_in_it) {
    begin("observe", "lib:/opt/neo-25.18");
    ten_runs();
    was(1, "library.libze_intel_gpu.so.1.path", "/opt/neo-25.18/libze_intel_gpu.so.1");
    was(1, "library.libze_intel_gpu.so.1.build_id", "beef");
    was(1, "driver.version", "25.18");
    analyse();
    ck_assert_msg(an.verdict, "%s", an.n_reasons ? an.reason[0] : "");
    ck_assert_str_eq(difference("driver.version")->why, "lib:/opt/neo-25.18");
    ck_assert_int_eq(difference("library.libze_intel_gpu.so.1.build_id")->status, ZR_AB_CONSEQUENCE);
    end();
}
END_TEST

START_TEST(a_library_path_does_not_admit_what_lies_elsewhere) {
    begin("observe", "lib:/opt/neo-25.18");
    ten_runs();
    was(1, "library.libze_intel_gpu.so.1.path", "/opt/neo-25.180/libze_intel_gpu.so.1");
    was(1, "driver.version", "25.18");
    was(1, "loader.version", "1.20");
    analyse();
    refused_for("3 things not declared");
    end();
}
END_TEST

START_TEST(path_and_driver_at_once_get_no_verdict_although_both_are_declared) {
    begin("route:native", "route:sycl,env:ZE_SIMGPU=version:1.6.1");
    ten_runs();
    was(1, "driver.version", "1.6.1");
    analyse();
    refused_for("2 things at once");
    refused_for("change one at a time");
    end();
}
END_TEST

START_TEST(together_admits_several_settings_at_once) {
    begin("route:native", "route:sycl,residency:owner");
    ab.allow = calloc(1, sizeof(char *));
    ab.allow[ab.n_allow++] = strdup("together");
    ten_runs();
    analyse();
    ck_assert(an.verdict);
    ck_assert(tells(an.remark, an.n_remarks, "all of them together"));
    end();
}
END_TEST

START_TEST(fewer_than_five_runs_give_no_verdict) {
    const double same[] = {1, 2};

    begin("route:native", "route:sycl");
    fixture_runs(&ab, 4, same, 0.01, 1);
    analyse();
    refused_for("a has 4 runs that count: a verdict needs at least 5");
    ck_assert_double_eq_tol(an.row[0].arm[1].change, 1, 0.1);
    end();
}
END_TEST

START_TEST(a_run_in_which_the_hooks_saw_nothing_does_not_count) {
    const double same[] = {1, 1};

    begin("route:native", "route:sycl");
    fixture_runs(&ab, 5, same, 0.01, 1);
    ab.run[3].invalid = strdup("the hooks saw no call");
    analyse();
    refused_for("needs at least 5");
    ck_assert(tells(an.remark, an.n_remarks, "is not a run: the hooks saw no call"));
    end();
}
END_TEST

START_TEST(the_control_without_the_preload_is_compared_from_outside) {
    begin("none", "observe");
    ten_runs();
    analyse();
    ck_assert_msg(an.verdict, "%s", an.n_reasons ? an.reason[0] : "");
    ck_assert(tells(an.remark, an.n_remarks, "a runs without the preload"));
    end();
    begin("none", "observe");
    ten_runs();
    was(0, "kernel", "6.17.0");
    analyse();
    refused_for("1 thing not declared");
    end();
}
END_TEST

/* --- mechanism ------------------------------------------------------------------------------------ */

static void calls(size_t arm, double driver, double peer) {
    counted(arm, "driver.alloc_calls", driver);
    counted(arm, "residency.owner.requested_calls", driver);
    counted(arm, "residency.peer.requested_calls", peer);
}

START_TEST(a_route_that_also_dropped_residency_gets_no_verdict) {
    begin("route:native", "route:sycl");
    ten_runs();
    calls(0, 100, 100);
    calls(1, 100, 0);
    analyse();
    refused_for("route:sycl changed more than it should: residency.peer");
    end();
}
END_TEST

START_TEST(allowed_it_is_a_verdict_about_both) {
    begin("route:native", "route:sycl");
    ab.allow = calloc(1, sizeof(char *));
    ab.allow[ab.n_allow++] = strdup("residency.peer");
    ten_runs();
    calls(0, 100, 100);
    calls(1, 100, 0);
    analyse();
    ck_assert(an.verdict);
    ck_assert(tells(an.remark, an.n_remarks, "the verdict is about both"));
    end();
}
END_TEST

START_TEST(fewer_driver_calls_with_as_much_residency_each_are_the_routes_own) {
    begin("route:native", "route:auto");
    ten_runs();
    calls(0, 100, 100);
    calls(1, 10, 10);
    analyse();
    ck_assert_msg(an.verdict, "%s", an.n_reasons ? an.reason[0] : "");
    end();
}
END_TEST

/* A cache asks the driver for less, and the program asks for residency as often: the ratio of the two is no change. */
START_TEST(a_ratio_whose_denominator_is_the_effect_has_not_changed) {
    begin("observe", "reroute");
    ten_runs();
    for (size_t arm = 0; arm < 2; arm++) {
        calls(arm, 100, 100);
        counted(arm, "allocation.all.allocated", 100);
    }
    counted(1, "driver.alloc_calls", 40);
    analyse();
    ck_assert_msg(an.verdict, "%s", an.n_reasons ? an.reason[0] : "");
    end();
}
END_TEST

START_TEST(residency_may_move_residency_and_nothing_else) {
    begin("residency:default", "residency:owner");
    ten_runs();
    calls(0, 100, 100);
    calls(1, 100, 0);
    counted(1, "residency.peer.skipped_calls", 100);
    analyse();
    ck_assert_msg(an.verdict, "%s", an.n_reasons ? an.reason[0] : "");
    end();
    begin("residency:default", "residency:owner");
    ten_runs();
    calls(0, 100, 100);
    calls(1, 50, 0);
    analyse();
    refused_for("residency:owner changed more than it should: driver.allocations");
    end();
}
END_TEST

START_TEST(a_variable_of_the_users_may_move_anything_and_it_is_shown) {
    size_t shown = 0;

    begin("observe", "env:SYCL_UR_L0_RESTRICT_USM_RESIDENCY_TO_P2P=1");
    ten_runs();
    calls(0, 100, 100);
    calls(1, 100, 0);
    analyse();
    ck_assert(an.verdict);
    for (size_t m = 0; m < an.n_mechanisms; m++)
        shown += !strcmp(an.mechanism[m].name, "residency.peer") && an.mechanism[m].arm[1].moved &&
                 an.mechanism[m].arm[1].expected;
    ck_assert_uint_eq(shown, 1);
    end();
}
END_TEST

/* --- words ------------------------------------------------------------------------------------------ */

START_TEST(no_difference_tells_the_runs_that_a_smaller_one_needs) {
    begin("route:native", "route:sycl");
    ten_runs();
    analyse();
    char *sentence = zr_ab_sentence(&ab, &an, 0, 1);
    ck_assert_msg(strstr(sentence, "no difference beyond noise between a and b"), "%s", sentence);
    ck_assert_msg(strstr(sentence, "runs per arm to see 5 %"), "%s", sentence);
    free(sentence);
    end();
}
END_TEST

/* Three runs of five close together, two far off: a middle half without width, and much noise. */
START_TEST(the_noise_is_at_least_what_the_interval_shows) {
    static const double seconds[] = {1.000, 1.001, 1.002, 1.8, 1.9};

    begin("route:native", "route:sycl");
    for (size_t i = 0; i < 10; i++) {
        fixture_run(&ab, i % 2)->value[0] = seconds[i / 2];
        ab.run[i].value[1] = 0;
    }
    analyse();
    const struct zr_ab_comparison *c = &an.row[0].arm[1];
    ck_assert_double_gt(c->change_interval.high, 0.5);
    ck_assert_double_gt(c->noise, 0.2);
    ck_assert_double_gt(c->seen, 0.1);
    end();
}
END_TEST

START_TEST(a_difference_that_is_near_says_what_a_verdict_needs) {
    begin("route:native", "route:sycl");
    for (size_t i = 0; i < 12; i++) { /* one of b below four of a: p = 0.026 */
        fixture_run(&ab, i % 2)->value[0] = i == 1 ? 2.5 : (double)(i / 2) + 1 + 6 * (double)(i % 2);
        ab.run[i].value[1] = 0;
    }
    analyse();
    char *sentence = zr_ab_sentence(&ab, &an, 0, 1);
    ck_assert_msg(strstr(sentence, "p = 0.0260, a verdict needs less than 0.01"), "%s", sentence);
    free(sentence);
    end();
}
END_TEST

/* Which metric a comparison is about follows from what differs; --primary overrides. */
START_TEST(the_primary_metric_follows_from_what_differs) {
    static const char *const cases[][3] = {{"observe", "mitigate", "host.mirror"},
                                           {"observe", "eager", "host.mirror"},
                                           {"observe", "reroute", "driver.calls,wall"},
                                           {"observe", "cache:on", "driver.calls,wall"},
                                           {"observe", "limit:1GiB", "failures,device.live.peak"},
                                           {"observe", "env:EnableDeferBacking=0", "host.mirror"},
                                           {"observe", "env:SOMETHING=1", "wall"},
                                           {"none", "observe", "wall"}};
    begin(cases[_i][0], cases[_i][1]);
    free(ab.primary);
    ab.primary = NULL;
    ck_assert_str_eq(zr_ab_primary_names(&ab), cases[_i][2]);
    ab.primary = strdup("cpu");
    ck_assert_str_eq(zr_ab_primary_names(&ab), "cpu");
    end();
}
END_TEST

START_TEST(the_verdict_is_one_sentence_in_plain_words) {
    begin("observe", "mitigate");
    free(ab.primary);
    ab.primary = NULL;
    for (size_t i = 0; i < 20; i++) {
        struct zr_ab_run *run = fixture_run(&ab, i % 2);
        run->value[0] = 1 + 0.01 * (double)(i / 2 % 5); /* the same in both arms */
        run->value[1] = i % 2 ? 16e6 + (double)i : 100e6 + (double)i;
    }
    analyse();
    char *sentence = zr_ab_plain_sentence(&ab, &an, 1);
    ck_assert_str_eq(sentence, "Host RAM 84 % lower with residency:owner; wall time unchanged (-2 % .. +2 %)");
    free(sentence);
    end();
}
END_TEST

/* Five of six above all others: p = 0.016 is no verdict, but an interval that excludes zero is no noise either. */
START_TEST(an_interval_that_excludes_zero_is_not_called_noise) {
    static const double values[2][6] = {{1.0, 1.01, 1.02, 1.03, 1.04, 1.3}, {1.2, 1.21, 1.22, 1.23, 1.24, 1.25}};
    begin("route:native", "route:sycl");
    for (size_t i = 0; i < 12; i++) {
        fixture_run(&ab, i % 2)->value[0] = values[i % 2][i / 2];
        ab.run[i].value[1] = 0;
    }
    analyse();
    ck_assert_double_gt(an.row[0].arm[1].p, 0.01);
    ck_assert_double_gt(an.row[0].arm[1].difference_interval.low, 0);
    ck_assert_int_eq(an.row[0].arm[1].outcome, ZR_AB_UNCLEAR);
    end();
}
END_TEST

/* Five metrics of one quantity are one test, and cost one correction. */
START_TEST(metrics_of_one_quantity_are_corrected_for_once) {
    static const char *const same[] = {"host.gpu_active", "host.available_drop", "host.imports", "host.imports.x"};
    begin("route:native", "route:sycl");
    for (size_t i = 0; i < 4; i++)
        zr_ab_metric_add(&ab, same[i], ZR_AB_BYTES, ZR_AB_LOWER, "");
    for (size_t i = 0; i < 20; i++) {
        struct zr_ab_run *run = fixture_run(&ab, i % 2);
        run->value[0] = 1 + 0.01 * (double)(i / 2 % 5);
        for (size_t m = 1; m < 6; m++)
            run->value[m] = (i % 2 ? 16e6 : 100e6) + (double)i;
    }
    analyse();
    for (size_t m = 1; m < 6; m++)
        ck_assert_double_eq_tol(an.row[m].arm[1].p_corrected, an.row[m].arm[1].p, 1e-12);
    end();
}
END_TEST

START_TEST(an_unknown_metric_is_refused_with_what_was_meant) {
    static const char *const printed[] = {"^tokens"};
    begin("observe", "mitigate");
    char *wrong = zr_ab_unknown_metric(&ab, "wal", NULL, 0);
    ck_assert_str_eq(wrong, "unknown metric 'wal': did you mean 'wall'?");
    free(wrong);
    ck_assert_ptr_null(zr_ab_unknown_metric(&ab, "wall,host.mirror", NULL, 0));
    ck_assert_ptr_null(zr_ab_unknown_metric(&ab, "tokens/s", printed, 1));
    wrong = zr_ab_unknown_metric(&ab, "loss", printed, 1);
    ck_assert_ptr_nonnull(wrong);
    free(wrong);
    end();
}
END_TEST

START_TEST(a_faster_wrong_answer_is_not_called_better) {
    const double half[] = {1, 0.5};

    begin("route:native", "route:sycl");
    ab.same_output = true;
    ab.allow = calloc(1, sizeof(char *));
    ab.allow[ab.n_allow++] = strdup("output");
    fixture_runs(&ab, 10, half, 0.01, 3);
    was(0, "output", "right");
    was(1, "output", "wrong");
    analyse();
    ck_assert(an.verdict);
    char *sentence = zr_ab_sentence(&ab, &an, 0, 1);
    ck_assert_msg(!strstr(sentence, "faster") && strstr(sentence, "not called better"), "%s", sentence);
    free(sentence);
    end();
}
END_TEST

START_TEST(a_drifting_metric_is_flagged) {
    begin("route:native", "route:sycl");
    ten_runs();
    for (size_t r = 0; r < ab.n_runs; r++)
        ab.run[r].value[0] *= 1 + 0.05 * (double)r;
    analyse();
    ck_assert(an.row[0].drifts && !an.row[1].drifts);
    ck_assert(tells(an.remark, an.n_remarks, "wall drifts"));
    end();
}
END_TEST

START_TEST(the_same_runs_give_the_same_words) {
    struct zr_ab_analysis again;

    begin("route:native", "route:sycl");
    ten_runs();
    analyse();
    zr_ab_analyse(&ab, &again);
    char *x = zr_ab_sentence(&ab, &an, 0, 1), *y = zr_ab_sentence(&ab, &again, 0, 1);
    ck_assert_str_eq(x, y);
    free(x);
    free(y);
    zr_ab_analysis_clear(&again);
    end();
}
END_TEST

START_TEST(numbers_read_well) {
    char t[ZR_AB_WORD];

    ck_assert_str_eq(zr_ab_number(t, ZR_AB_BYTES, 1073741824.0), "1.00 GiB");
    ck_assert_str_eq(zr_ab_number(t, ZR_AB_BYTES, 12), "12 B");
    ck_assert_str_eq(zr_ab_number(t, ZR_AB_BYTES, 0), "0");
    ck_assert_str_eq(zr_ab_number(t, ZR_AB_SECONDS, 0.0123), "12.3 ms");
    ck_assert_str_eq(zr_ab_number(t, ZR_AB_SECONDS, 1.5), "1.50 s");
    ck_assert_str_eq(zr_ab_number(t, ZR_AB_SECONDS, 150), "2 min 30 s");
    ck_assert_str_eq(zr_ab_number(t, ZR_AB_COUNT, 1234), "1234");
    ck_assert_str_eq(zr_ab_number(t, ZR_AB_PLAIN, NAN), "-");
    ck_assert_str_eq(zr_ab_percent(t, -0.123), "-12.3 %");
    ck_assert_str_eq(zr_ab_percent(t, 0.001), "+0.10 %");
    ck_assert_str_eq(zr_ab_p_text(t, 0.00001), "<0.0001");
}
END_TEST

int main(void) {
    Suite *s = suite_create("ab_verdict");
    TCase *f = tcase_create("fingerprint"), *m = tcase_create("mechanism"), *w = tcase_create("words");

    tcase_add_test(f, the_declared_setting_alone_gets_a_verdict);
    tcase_add_loop_test(f, every_kind_of_undeclared_difference_is_named, 0,
                        (int)(sizeof(undeclared) / sizeof(*undeclared)));
    tcase_add_test(f, an_allowed_difference_is_admitted_and_said);
    tcase_add_test(f, runs_of_one_arm_must_be_alike);
    tcase_add_test(f, a_declared_variable_that_did_not_arrive_is_named);
    tcase_add_test(f, what_a_short_run_did_not_show_from_outside_is_no_difference);
    tcase_add_test(f, a_file_that_nobody_wrote_proves_nothing);
    tcase_add_test(f, an_allowance_that_admits_nothing_is_said);
    tcase_add_test(f, backing_eager_may_set_the_drivers_keys);
    tcase_add_test(f, an_affinity_mask_may_change_the_cards_but_not_the_driver);
    tcase_add_test(f, a_library_path_admits_what_lies_in_it);
    tcase_add_test(f, a_library_path_does_not_admit_what_lies_elsewhere);
    tcase_add_test(f, path_and_driver_at_once_get_no_verdict_although_both_are_declared);
    tcase_add_test(f, together_admits_several_settings_at_once);
    tcase_add_test(f, fewer_than_five_runs_give_no_verdict);
    tcase_add_test(f, a_run_in_which_the_hooks_saw_nothing_does_not_count);
    tcase_add_test(f, the_control_without_the_preload_is_compared_from_outside);
    tcase_add_test(m, a_route_that_also_dropped_residency_gets_no_verdict);
    tcase_add_test(m, allowed_it_is_a_verdict_about_both);
    tcase_add_test(m, fewer_driver_calls_with_as_much_residency_each_are_the_routes_own);
    tcase_add_test(m, a_ratio_whose_denominator_is_the_effect_has_not_changed);
    tcase_add_test(m, residency_may_move_residency_and_nothing_else);
    tcase_add_test(m, a_variable_of_the_users_may_move_anything_and_it_is_shown);
    tcase_add_test(w, no_difference_tells_the_runs_that_a_smaller_one_needs);
    tcase_add_test(w, the_noise_is_at_least_what_the_interval_shows);
    tcase_add_test(w, a_difference_that_is_near_says_what_a_verdict_needs);
    tcase_add_loop_test(w, the_primary_metric_follows_from_what_differs, 0, 8);
    tcase_add_test(w, the_verdict_is_one_sentence_in_plain_words);
    tcase_add_test(w, an_interval_that_excludes_zero_is_not_called_noise);
    tcase_add_test(w, metrics_of_one_quantity_are_corrected_for_once);
    tcase_add_test(w, an_unknown_metric_is_refused_with_what_was_meant);
    tcase_add_test(w, a_faster_wrong_answer_is_not_called_better);
    tcase_add_test(w, a_drifting_metric_is_flagged);
    tcase_add_test(w, the_same_runs_give_the_same_words);
    tcase_add_test(w, numbers_read_well);
    suite_add_tcase(s, f);
    suite_add_tcase(s, m);
    suite_add_tcase(s, w);
    return run_suite(s);
}
