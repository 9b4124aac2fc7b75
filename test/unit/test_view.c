/* What follows from figures of processes, without a machine: jobs and their peaks, cards, mirror, growth. */
#include "outside/outside.h"
#include "suite.h"
#include "view/view.h"

#include <stdlib.h>
#include <string.h>

#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define SECONDS(n) ((uint64_t)(n)*1000000000u)

enum { MOST = 64 };
static struct zr_process_view process[MOST], *live[MOST], *ended[MOST];
static struct zr_view view;

static void setup(void) {
    memset(process, 0, sizeof process);
    view = (struct zr_view){.process = live, .ended = ended, .samples = 1};
    setenv("ZEROUTE_ROOT", "/nonexistent", 1); /* no cards, no memory but what a test says */
}

static void teardown(void) {
    free(view.joint);
}

/* Of the job "j", from the second `from` to `to`; 0: it runs. */
static struct zr_process_view *add(unsigned from, unsigned to, uint64_t peak) {
    size_t n = view.process_count + view.ended_count;
    struct zr_process_view *v = &process[n];

    v->process = (struct zeroute_process){.pid_inside = (int)n + 1, .nonce = n + 1, .created_ns = SECONDS(from)};
    v->process.state = to ? ZEROUTE_FINISHED : ZEROUTE_LIVE;
    v->last_activity_ns = SECONDS(to);
    v->vram = v->gtt = v->mirror = ZR_ABSENT;
    v->left_bytes = to ? 0 : ZR_ABSENT;
    v->peak = peak;
    v->allocated = peak;
    snprintf(v->id.job, sizeof v->id.job, "j");
    if (to)
        ended[view.ended_count++] = v;
    else
        live[view.process_count++] = v;
    return v;
}

static struct zr_job_view only_job(void) {
    size_t count;
    struct zr_job_view *jobs = zr_jobs(&view, &count), job = *jobs;

    ck_assert_uint_eq(count, 1);
    zr_jobs_free(jobs);
    return job;
}

START_TEST(programs_one_after_another_have_the_peak_of_the_largest) {
    add(10, 20, MIB(6500));
    add(21, 30, MIB(6700));
    add(31, 40, MIB(6600));
    ck_assert_uint_eq(only_job().peak, MIB(6700));
    ck_assert_int_eq(only_job().peak_is, ZR_PEAK_EXACT);
}
END_TEST

START_TEST(who_was_killed_may_have_held_it_until_now) {
    add(10, 20, GIB(2))->left_bytes = ZR_ABSENT;
    add(30, 40, GIB(3));
    ck_assert_uint_eq(only_job().peak, GIB(5));
    ck_assert_int_eq(only_job().peak_is, ZR_PEAK_BOUND);
}
END_TEST

START_TEST(of_processes_at_one_time_the_sum_of_peaks_is_called_a_bound) {
    add(10, 20, GIB(2));
    add(15, 0, GIB(3));
    add(25, 0, GIB(4));
    ck_assert_uint_eq(only_job().peak, GIB(7));
    ck_assert_int_eq(only_job().peak_is, ZR_PEAK_BOUND);
    ck_assert_str_eq(zr_peak_names[only_job().peak_is], "upper bound");
}
END_TEST

/* Each has four, at its turn. */
START_TEST(who_has_looked_again_and_again_knows_the_peak_of_a_job) {
    struct zr_process_view *a = add(10, 0, GIB(4)), *b = add(11, 0, GIB(4));

    a->allocated = GIB(4);
    b->allocated = GIB(1);
    zr_joint_note(&view);
    a->allocated = 0;
    b->allocated = GIB(4);
    zr_joint_note(&view);
    ck_assert_int_eq(only_job().peak_is, ZR_PEAK_BOUND); /* it has looked once only */
    view.samples = 2;
    ck_assert_uint_eq(only_job().peak, GIB(5));
    ck_assert_int_eq(only_job().peak_is, ZR_PEAK_SEEN);
}
END_TEST

START_TEST(who_has_ended_holds_nothing) {
    add(1, 0, MIB(10));
    for (unsigned i = 0; i < 50; i++) {
        struct zr_process_view *v = add(2 + i, 3 + i, MIB(10));
        v->unseen = v->spilled = v->reserved = MIB(54);
    }
    struct zr_job_view job = only_job();
    ck_assert_uint_eq(job.count, 51);
    ck_assert_uint_eq(job.ended, 50);
    ck_assert_uint_eq(job.sum.allocated, MIB(10));
    ck_assert_uint_eq(job.sum.unseen + job.sum.spilled + job.sum.reserved, 0);
    ck_assert_uint_le(job.peak, MIB(30)); /* two of them at a time, and the one that runs */
}
END_TEST

/* --- cards ------------------------------------------------------------------------------------ */

START_TEST(a_card_is_full_by_what_all_processes_hold_of_it) {
    struct zr_card_view card = {.vram = MIB(11674), .ours = MIB(209)};

    ck_assert(!zr_card_is_full(&card));
    card.others = MIB(10800);
    ck_assert(!zr_card_is_full(&card));
    card.others = MIB(10900);
    ck_assert(zr_card_is_full(&card));
    card.vram = ZR_ABSENT;
    ck_assert(!zr_card_is_full(&card));
}
END_TEST

START_TEST(safe_is_recommended_where_a_card_is_short_of_memory_and_nowhere_else) {
    char why[200];

    ck_assert_int_eq(zr_safe_for(&(struct zr_safe_signs){.percent = 85}, why, sizeof why), ZR_SAFE_NOT_NEEDED);
    ck_assert_ptr_nonnull(strstr(why, "the fullest card is at 85 %"));
    ck_assert_int_eq(zr_safe_for(&(struct zr_safe_signs){.percent = 86}, why, sizeof why), ZR_SAFE_HELPS);
    ck_assert_ptr_nonnull(strstr(why, "86 % full"));
    ck_assert_int_eq(zr_safe_for(&(struct zr_safe_signs){.refused = true}, why, sizeof why), ZR_SAFE_HELPS);
    ck_assert_ptr_nonnull(strstr(why, "the driver ran out"));
    ck_assert_int_eq(zr_safe_for(&(struct zr_safe_signs){.spilled = MIB(3)}, why, sizeof why), ZR_SAFE_HELPS);
    ck_assert_ptr_nonnull(strstr(why, "3.00 MiB spilled"));
    ck_assert_int_eq(zr_safe_for(&(struct zr_safe_signs){.lost = 2, .spilled = 1}, why, sizeof why), ZR_SAFE_HELPS);
    ck_assert_ptr_nonnull(strstr(why, "2 calls were answered DEVICE_LOST"));
    ck_assert_int_eq(zr_safe_for(&(struct zr_safe_signs){.is_on = true, .percent = 99}, why, sizeof why),
                     ZR_SAFE_IS_ON);
}
END_TEST

START_TEST(what_is_on_no_card_is_spilled_only_where_the_card_is_full) {
    struct zr_process_view *v = add(1, 0, GIB(8));
    struct zr_holder holder = {.pid = 7}, both[2];
    struct zr_look look = {.count = 1, .process = &v->process, .holders = 1, .holder = &holder};

    v->process.pid = 7;
    v->accounts = 1;
    v->account[0] = (struct zr_account){.blocks = GIB(6), .vram = GIB(4), .unseen = 0};
    snprintf(v->account[0].pdev, sizeof v->account[0].pdev, "0000:03:00.0");
    holder.memory.card_count = 1;
    holder.memory.cards[0].vram.total = GIB(4);
    holder.memory.cards[0].gtt.total = 0;
    snprintf(holder.memory.cards[0].pdev, sizeof holder.memory.cards[0].pdev, "0000:03:00.0");
    view.host = (struct zr_meminfo){ZR_ABSENT, ZR_ABSENT, ZR_ABSENT, ZR_ABSENT, ZR_ABSENT};
    zr_view_card(&view, "0000:03:00.0", GIB(8), "Card");
    zr_view_cards(&view, &look);
    ck_assert_uint_eq(view.card[0].ours, GIB(4));
    ck_assert_uint_eq(v->spilled, 0);
    both[0] = both[1] = holder;
    both[1].pid = 8; /* a stranger takes the rest */
    look.holders = 2;
    look.holder = both;
    zr_view_cards(&view, &look);
    ck_assert_uint_eq(view.card[0].others, GIB(4));
    ck_assert_uint_eq(v->spilled, GIB(2));
    ck_assert_uint_eq(view.card[0].used.count, 0); /* no stretch has ended yet: its highest is noted then */
    view.history_due = true;
    zr_view_cards(&view, &look);
    ck_assert_uint_eq(view.card[0].used.count, 1);
    ck_assert_uint_eq(zr_history_at(&view.card[0].used, 0), GIB(8));
}
END_TEST

START_TEST(the_mirror_is_what_drivers_hold_beyond_what_was_asked_for) {
    struct zr_meminfo before = {.gpu_active = MIB(100), .available = GIB(32)};
    struct zr_meminfo now = {.gpu_active = MIB(244), .available = GIB(31), .unaccounted = ZR_ABSENT};
    struct zr_lost lost;

    zr_lost_find(&before, &now, MIB(48), MIB(500), &lost);
    ck_assert_int_eq(lost.by, ZR_LOST_GPU_ACTIVE);
    ck_assert_uint_eq(lost.bytes, MIB(96));
    now.gpu_active = before.gpu_active = ZR_ABSENT;
    zr_lost_find(&before, &now, MIB(48), MIB(500), &lost);
    ck_assert_int_eq(lost.by, ZR_LOST_AVAILABLE);
    ck_assert_uint_eq(lost.bytes, MIB(1024 - 548));
    zr_lost_find(NULL, &now, 0, 0, &lost);
    ck_assert_uint_eq(lost.bytes, ZR_ABSENT);
}
END_TEST

/* The kernel charges a buffer to each card that imports it. */
START_TEST(imports_are_counted_once_and_never_exceed_what_is_lost) {
    struct zr_process_memory memory = {.card_count = 4};
    struct zr_lost lost = {.bytes = GIB(8), .by = ZR_LOST_GPU_ACTIVE};

    for (unsigned i = 0; i < 4; i++)
        memory.cards[i].gtt.total = i ? GIB(1) : 0;
    ck_assert_uint_eq(zr_mirror_of(&memory, &lost), GIB(1));
    lost.bytes = MIB(10);
    ck_assert_uint_eq(zr_mirror_of(&memory, &lost), MIB(10));
    lost.by = ZR_LOST_UNACCOUNTED;
    ck_assert_uint_eq(zr_mirror_of(&memory, &lost), ZR_ABSENT);
}
END_TEST

/* Looks were rare: what GPUActive rose beyond all that was asked for is the least. */
START_TEST(a_short_program_has_at_least_the_mirror_that_nothing_else_explains) {
    struct zr_watched w = {.before = {.gpu_active = MIB(10)}, .active = {true, 5, 0, MIB(154)}};
    bool at_least;

    ck_assert_uint_eq(zr_watched_mirror(&w, MIB(48), &at_least), MIB(96));
    ck_assert(at_least);
    w.mirror = (struct zr_watched_figure){true, 2, 0, MIB(120)};
    ck_assert_uint_eq(zr_watched_mirror(&w, MIB(48), &at_least), MIB(120));
    ck_assert(!at_least);
    w.mirror = (struct zr_watched_figure){true, 50, 0, MIB(20)};
    ck_assert_uint_eq(zr_watched_mirror(&w, 0, &at_least), MIB(20));
    w = (struct zr_watched){.before = {.gpu_active = ZR_ABSENT}};
    ck_assert_uint_eq(zr_watched_mirror(&w, 0, &at_least), ZR_ABSENT);
}
END_TEST

/* --- growth ----------------------------------------------------------------------------------- */

static bool grows(const struct zr_process_view *v, unsigned second) {
    struct zr_growth g;

    return zr_grows(v, ZR_GROWTH_HOST, SECONDS(100 + second), &g);
}

/* A look every `every` seconds until `until`; host USM and the program's own memory grow by so much at each. */
static void watch(struct zr_process_view *v, unsigned every, unsigned until, uint64_t step, uint64_t own) {
    for (unsigned second = 0; second <= until; second += every) {
        zr_trends_note(v, SECONDS(100 + second));
        v->host_usm += step;
        v->reserved += own;
    }
}

START_TEST(what_grew_in_steps_for_half_a_minute_grows) {
    struct zr_process_view *v = add(1, 0, 0);
    struct zr_growth g;

    watch(v, 5, 40, MIB(10), 0);
    ck_assert(zr_grows(v, ZR_GROWTH_HOST, SECONDS(140), &g));
    ck_assert_uint_eq(g.by, MIB(80));
    ck_assert(!zr_grows(v, ZR_GROWTH_GTT, SECONDS(140), &g));
    ck_assert(!grows(v, 300)); /* it has stopped since */
}
END_TEST

START_TEST(what_stood_still_all_the_time_does_not_grow) {
    struct zr_process_view *v = add(1, 0, 0);

    v->host_usm = GIB(4);
    watch(v, 5, 120, 0, 0);
    ck_assert(!grows(v, 120));
}
END_TEST

START_TEST(nothing_grows_that_was_watched_for_less_than_half_a_minute) {
    struct zr_process_view *v = add(1, 0, 0);

    watch(v, 1, 29, MIB(100), 0);
    ck_assert(!grows(v, 29));
}
END_TEST

START_TEST(two_looks_are_no_growth) {
    struct zr_process_view *v = add(1, 0, 0);

    watch(v, 40, 40, GIB(1), 0);
    ck_assert(!grows(v, 41));
}
END_TEST

START_TEST(what_grows_with_the_programs_own_memory_is_its_own) {
    struct zr_process_view *v = add(1, 0, 0);

    watch(v, 5, 60, MIB(10), MIB(10));
    ck_assert(!grows(v, 60));
}
END_TEST

START_TEST(what_falls_back_begins_again) {
    struct zr_process_view *v = add(1, 0, 0);

    watch(v, 5, 25, MIB(20), 0);
    v->host_usm = 0;
    watch(v, 5, 25, MIB(1), 0);
    ck_assert(!grows(v, 26));
}
END_TEST

int main(void) {
    Suite *s = suite_create("view");
    TCase *t = tcase_create("view");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, programs_one_after_another_have_the_peak_of_the_largest);
    tcase_add_test(t, who_was_killed_may_have_held_it_until_now);
    tcase_add_test(t, of_processes_at_one_time_the_sum_of_peaks_is_called_a_bound);
    tcase_add_test(t, who_has_looked_again_and_again_knows_the_peak_of_a_job);
    tcase_add_test(t, who_has_ended_holds_nothing);
    tcase_add_test(t, a_card_is_full_by_what_all_processes_hold_of_it);
    tcase_add_test(t, safe_is_recommended_where_a_card_is_short_of_memory_and_nowhere_else);
    tcase_add_test(t, what_is_on_no_card_is_spilled_only_where_the_card_is_full);
    tcase_add_test(t, the_mirror_is_what_drivers_hold_beyond_what_was_asked_for);
    tcase_add_test(t, imports_are_counted_once_and_never_exceed_what_is_lost);
    tcase_add_test(t, a_short_program_has_at_least_the_mirror_that_nothing_else_explains);
    tcase_add_test(t, what_grew_in_steps_for_half_a_minute_grows);
    tcase_add_test(t, what_stood_still_all_the_time_does_not_grow);
    tcase_add_test(t, nothing_grows_that_was_watched_for_less_than_half_a_minute);
    tcase_add_test(t, two_looks_are_no_growth);
    tcase_add_test(t, what_grows_with_the_programs_own_memory_is_its_own);
    tcase_add_test(t, what_falls_back_begins_again);
    suite_add_tcase(s, t);
    return run_suite(s);
}
