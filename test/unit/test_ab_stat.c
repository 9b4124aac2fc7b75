/* The statistics against known values, and the promises on power and false verdicts. */
#include "suite.h"
#include "unit/ab_fixture.h"

/*
 * Reference values: python3 with scipy 1.16, statsmodels, pymannkendall; the call is beside each.
 * close_to: relative error of 1e-9 unless the reference is itself random.
 */
#define close_to(x, y) ck_assert_double_eq_tol((x), (y), 1e-9 * fmax(1e-3, fabs((double)(y))))
#define COUNT(v) (sizeof(v) / sizeof(*(v)))

START_TEST(median_and_quantiles_are_those_of_numpy) {
    const double v[] = {3, 1, 4, 1, 5, 9, 2, 6};

    /* numpy.quantile(v, [.1, .5, .9]) */
    close_to(zr_quantile(v, 8, 0.1), 1);
    close_to(zr_median(v, 8), 3.5);
    close_to(zr_quantile(v, 8, 0.9), 6.9);
    ck_assert(isnan(zr_median(v, 0)));
    close_to(zr_median(v, 1), 3);
}
END_TEST

START_TEST(spread_is_the_scaled_median_absolute_deviation) {
    const double v[] = {1, 2, 4, 7, 11.5, 13};

    close_to(zr_spread(v, 6), 5.930408874022408);   /* stats.median_abs_deviation(v, scale='normal') */
    close_to(zr_deviation(v, 6), 4.98414151752001); /* numpy.std(v, ddof=1) */
}
END_TEST

START_TEST(normal_distribution_is_right) {
    close_to(zr_normal_quantile(0.995), 2.5758293035489004); /* stats.norm.ppf */
    close_to(zr_normal_quantile(0.8), 0.8416212335729143);
    close_to(zr_normal_below(-1.5), 0.06680720126885807); /* stats.norm.cdf */
}
END_TEST

START_TEST(mann_whitney_is_exact_for_few_runs) {
    const double a[] = {10.1, 9.8, 10.4, 10.0, 9.9, 10.3}, b[] = {11.0, 10.2, 11.3, 10.9, 10.6};
    double u;

    /* stats.mannwhitneyu(b, a, method='exact') */
    close_to(zr_mann_whitney(a, 6, b, 5, &u), 0.017316017316017316);
    close_to(u, 28);
    close_to(zr_mann_whitney(b, 5, a, 6, &u), 0.017316017316017316);
}
END_TEST

START_TEST(five_against_five_can_reach_a_verdict) {
    const double a[] = {1, 2, 3, 4, 5}, b[] = {6, 7, 8, 9, 10}, zero[5] = {0}, one[5] = {1, 1, 1, 1, 1};

    close_to(zr_mann_whitney(a, 5, b, 5, NULL), 0.007936507936507936); /* 2 / choose(10, 5) */
    close_to(zr_mann_whitney(zero, 5, one, 5, NULL), 0.007936507936507936);
    ck_assert_double_lt(0.007936507936507936, ZR_AB_ALPHA);
}
END_TEST

START_TEST(mann_whitney_counts_ties_out) {
    const double a[] = {1, 2, 2, 3, 4, 4, 5}, b[] = {2, 4, 5, 5, 6, 7, 7};
    double u;

    /* stats.permutation_test((a, b), lambda x, y: abs(mannwhitneyu(y, x).statistic - 24.5),
     *     permutation_type='independent', alternative='greater', n_resamples=inf) */
    close_to(zr_mann_whitney(a, 7, b, 7, &u), 0.039627039627039624);
    close_to(u, 41);
}
END_TEST

START_TEST(mann_whitney_of_twenty_runs_is_exact) {
    double a[20], b[20];

    for (int i = 0; i < 20; i++) {
        a[i] = i * 37 % 101;
        b[i] = i * 53 % 97 + 15.5;
    }
    /* stats.mannwhitneyu(b, a, method='exact') */
    close_to(zr_mann_whitney(a, 20, b, 20, NULL), 0.28876706372474614);
}
END_TEST

START_TEST(mann_whitney_of_many_runs_is_the_normal_approximation) {
    double a[60], b[50];

    for (int i = 0; i < 50; i++) {
        a[i] = (i * 37 % 101) / 7.0;
        b[i] = (i * 53 % 97) / 7.0 + 1;
    }
    close_to(zr_mann_whitney(a, 50, b, 50, NULL), 0.730311914710134); /* method='asymptotic' */
    for (int i = 0; i < 60; i++)
        a[i] = i * 37 % 11;
    for (int i = 0; i < 45; i++)
        b[i] = i * 53 % 13;
    close_to(zr_mann_whitney(a, 60, b, 45, NULL), 0.42601118043345887); /* with ties */
}
END_TEST

START_TEST(equal_values_are_no_difference) {
    const double a[] = {5, 5, 5, 5, 5, 5};
    double many[100];

    for (size_t i = 0; i < 100; i++)
        many[i] = 5;
    close_to(zr_mann_whitney(a, 6, a, 6, NULL), 1);
    close_to(zr_mann_whitney(many, 100, many, 100, NULL), 1);
    close_to(zr_cliff_delta(a, 6, a, 6), 0);
    ck_assert(isnan(zr_mann_whitney(a, 0, a, 6, NULL)));
}
END_TEST

START_TEST(cliff_delta_tells_the_side) {
    const double a[] = {1, 2, 3, 4}, b[] = {3, 4, 5, 6};

    close_to(zr_cliff_delta(a, 4, b, 4), 0.75); /* 13 pairs above, 1 below, 2 equal of 16 */
    close_to(zr_cliff_delta(b, 4, a, 4), -0.75);
    ck_assert_str_eq(zr_cliff_word(-0.75), "large");
    ck_assert_str_eq(zr_cliff_word(0.1), "negligible");
}
END_TEST

START_TEST(bootstrap_agrees_with_scipy) {
    double a[20], b[20];
    struct zr_interval i, change;

    for (int k = 0; k < 20; k++) {
        a[k] = 100 + k * 37 % 101;
        b[k] = 115.5 + k * 53 % 97;
    }
    /* stats.bootstrap((a, b), median(y) - median(x), method='percentile', n_resamples=100000) gives
     * -20 to 39.5; both are random, so the bounds may differ by a neighbouring value. */
    zr_bootstrap_compare(a, 20, b, 20, 7, &i, &change);
    ck_assert_double_eq_tol(i.low, -20, 3);
    ck_assert_double_eq_tol(i.high, 39.5, 3);
    ck_assert_double_eq_tol(change.low, -0.1254, 0.02); /* of the ratio: -0.1254 to 0.3 */
    ck_assert_double_eq_tol(change.high, 0.3, 0.02);
    i = zr_bootstrap_median(a, 20, 7); /* 126.5 to 170.5 */
    ck_assert_double_eq_tol(i.low, 126.5, 3);
    ck_assert_double_eq_tol(i.high, 170.5, 3);
}
END_TEST

START_TEST(bootstrap_is_the_same_for_the_same_seed) {
    const double a[] = {1, 2, 3, 4, 5, 7}, b[] = {2, 3, 5, 6, 8, 9};
    struct zr_interval x, y, cx, cy;

    zr_bootstrap_compare(a, 6, b, 6, 3, &x, &cx);
    zr_bootstrap_compare(a, 6, b, 6, 3, &y, &cy);
    ck_assert(x.low == y.low && x.high == y.high && cx.low == cy.low && cx.high == cy.high);
}
END_TEST

START_TEST(a_base_of_zero_has_no_relative_change) {
    const double zero[] = {0, 0, 0, 0, 0}, b[] = {1, 2, 3, 4, 5};
    struct zr_interval i, change;

    zr_bootstrap_compare(zero, 5, b, 5, 1, &i, &change);
    ck_assert(isnan(change.low) && isnan(change.high));
    ck_assert_double_ge(i.low, 1);
}
END_TEST

START_TEST(holm_is_that_of_statsmodels) {
    double p[] = {0.01, 0.04, 0.03, 0.005};
    double with_gap[] = {0.01, NAN, 0.04, 0.03, 0.005};

    /* multipletests(p, method='holm') */
    zr_holm(p, 4);
    close_to(p[0], 0.03);
    close_to(p[1], 0.06);
    close_to(p[2], 0.06);
    close_to(p[3], 0.02);
    zr_holm(with_gap, 5);
    ck_assert(isnan(with_gap[1]));
    close_to(with_gap[2], 0.06);
}
END_TEST

START_TEST(drift_is_that_of_mann_and_kendall) {
    const double up[] = {1, 3, 2, 5, 4, 6, 6, 8, 7, 9}, flat[] = {1, 2, 1, 2, 1, 2, 1, 2, 1, 2};

    close_to(zr_drift(up, 10), 0.0008915134791795953); /* pymannkendall.original_test(up).p */
    ck_assert_double_gt(zr_drift(flat, 10), 0.5);
    close_to(zr_drift(up, 7), 1);
}
END_TEST

START_TEST(runs_needed_follow_the_noise) {
    /* TTestIndPower().solve_power(1, alpha=.01, power=.8) = 25.07, normal approximation 23.4, x pi/3 */
    ck_assert_double_eq(zr_runs_needed(0.05, 0.05, 0.01, 0.8), 25);
    ck_assert_double_eq(zr_runs_needed(0.05, 0.025, 0.01, 0.8), 98);
    ck_assert_double_eq(zr_runs_needed(0.001, 0.5, 0.01, 0.8), ZR_AB_MIN_RUNS);
    double seen = zr_smallest_seen(0.05, 25, 0.01, 0.8);
    ck_assert_double_eq(zr_runs_needed(0.05, seen * 1.0001, 0.01, 0.8), 25);
}
END_TEST

/* --- whole reports -------------------------------------------------------------------------------- */

enum { METRICS = 25 };

/* A report of 20 runs per arm with a noise of 5 % in 25 metrics; the primary changes by `effect`. */
static void report(double effect, uint64_t seed, size_t *found, size_t *others) {
    struct zr_ab ab;
    struct zr_ab_analysis an;
    struct zr_random r;
    const double factor[] = {1, 1 + effect};

    fixture_start(&ab, "route:native", "route:sycl");
    for (int m = 2; m < METRICS; m++) {
        char name[16];
        snprintf(name, sizeof(name), "m%d", m);
        zr_ab_metric_add(&ab, name, ZR_AB_PLAIN, ZR_AB_NEITHER, "");
    }
    fixture_runs(&ab, 20, factor, 0.05, seed);
    zr_random_seed(&r, seed + 0x1000);
    for (size_t i = 0; i < ab.n_runs; i++)
        for (int m = 2; m < METRICS; m++)
            ab.run[i].value[m] = 100 * (1 + 0.05 * zr_random_normal(&r));
    zr_ab_analyse(&ab, &an);
    ck_assert_msg(an.verdict, "%s", an.n_reasons ? an.reason[0] : "");
    *found = an.row[0].arm[1].outcome == (effect > 0 ? ZR_AB_MORE : ZR_AB_LESS);
    *others = 0;
    for (int m = effect == 0 ? 0 : 1; m < METRICS; m++)
        *others += an.row[m].arm[1].outcome == ZR_AB_LESS || an.row[m].arm[1].outcome == ZR_AB_MORE;
    zr_ab_analysis_clear(&an);
    zr_ab_clear(&ab);
}

START_TEST(ten_percent_is_found_in_twenty_runs_at_five_percent_noise) {
    size_t hits = 0, found, others;

    for (uint64_t seed = 1; seed <= 100; seed++) {
        report(seed % 2 ? 0.1 : -0.1, seed, &found, &others);
        hits += found;
    }
    ck_assert_uint_ge(hits, 95);
}
END_TEST

START_TEST(without_an_effect_at_most_five_reports_of_a_hundred_claim_one) {
    size_t wrong = 0, found, others;

    for (uint64_t seed = 1; seed <= 100; seed++) {
        report(0, seed * 7919, &found, &others);
        wrong += others > 0;
    }
    ck_assert_uint_le(wrong, 5);
}
END_TEST

int main(void) {
    Suite *s = suite_create("ab_stat");
    TCase *known = tcase_create("known values"), *power = tcase_create("power");

    tcase_add_test(known, median_and_quantiles_are_those_of_numpy);
    tcase_add_test(known, spread_is_the_scaled_median_absolute_deviation);
    tcase_add_test(known, normal_distribution_is_right);
    tcase_add_test(known, mann_whitney_is_exact_for_few_runs);
    tcase_add_test(known, five_against_five_can_reach_a_verdict);
    tcase_add_test(known, mann_whitney_counts_ties_out);
    tcase_add_test(known, mann_whitney_of_twenty_runs_is_exact);
    tcase_add_test(known, mann_whitney_of_many_runs_is_the_normal_approximation);
    tcase_add_test(known, equal_values_are_no_difference);
    tcase_add_test(known, cliff_delta_tells_the_side);
    tcase_add_test(known, bootstrap_agrees_with_scipy);
    tcase_add_test(known, bootstrap_is_the_same_for_the_same_seed);
    tcase_add_test(known, a_base_of_zero_has_no_relative_change);
    tcase_add_test(known, holm_is_that_of_statsmodels);
    tcase_add_test(known, drift_is_that_of_mann_and_kendall);
    tcase_add_test(known, runs_needed_follow_the_noise);
    tcase_set_timeout(power, 600);
    tcase_add_test(power, ten_percent_is_found_in_twenty_runs_at_five_percent_noise);
    tcase_add_test(power, without_an_effect_at_most_five_reports_of_a_hundred_claim_one);
    suite_add_tcase(s, known);
    suite_add_tcase(s, power);
    return run_suite(s);
}
