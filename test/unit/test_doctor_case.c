/* What follows from what was read, without a machine: the preload's hooks, and the links of the mirror. */
#include "doctor/doctor.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB(n) ((uint64_t)(n) << 30)

static struct zr_case c;
static struct zr_diagnosis d;

static void environment(const char *list) {
    size_t length = strlen(list) + 1;

    free(c.stack.environ.text);
    c.stack.environ.text = malloc(length);
    memcpy(c.stack.environ.text, list, length);
    c.stack.environ.length = length;
}

static void a_preloaded_process_on_two_cards(void) {
    memset(&c, 0, sizeof c);
    c.pid = 42;
    c.alive = c.meminfo_there = true;
    c.meminfo = (struct zr_meminfo){GIB(64), GIB(32), 0, 0, 0};
    c.kernel = zr_version_of("7.1");
    c.card_count = c.memory.card_count = 2;
    for (unsigned i = 0; i < 2; i++) {
        snprintf(c.cards[i].pdev, sizeof c.cards[i].pdev, "0000:0%u:00.0", 3 + i);
        snprintf(c.memory.cards[i].pdev, sizeof c.memory.cards[i].pdev, "0000:0%u:00.0", 3 + i);
        c.cards[i].family = ZR_FAMILY_BATTLEMAGE;
        c.cards[i].bar = c.cards[i].vram = GIB(32);
        c.memory.cards[i].vram = (struct zr_region){GIB(6), GIB(6)};
        c.memory.cards[i].gtt = c.memory.cards[i].system = (struct zr_region){0, 0};
    }
    c.stack.parts[ZR_PART_PRELOAD].there = c.stack.parts[ZR_PART_LOADER].there = true;
    c.stack.driver = zr_version_of("26.27.39122");
    c.counted = (struct zr_counted){.found = true, .calls = 100, .allocated = GIB(12)};
    environment("HOME=/root");
}

/* As the view has it: of GPUActive so much was asked for. */
static void diagnose(uint64_t host_side) {
    zr_lost_find(NULL, &c.meminfo, host_side, ZR_ABSENT, &c.lost);
    zr_diagnose(&c, &d);
}

static void done(void) {
    zr_findings_free(&d.findings);
    zr_stack_free(&c.stack);
}

static const struct zr_finding *found(const char *id) {
    for (size_t i = 0; i < d.findings.count; i++) {
        if (!strcmp(d.findings.list[i].id, id))
            return &d.findings.list[i];
    }
    return NULL;
}

START_TEST(a_process_that_is_seen_as_a_whole_has_no_finding) {
    diagnose(0);
    ck_assert_msg(d.findings.count == 0, "%s", d.findings.count ? d.findings.list[0].id : "");
}
END_TEST

START_TEST(memory_that_we_did_not_count_is_an_error_that_names_the_likely_cause) {
    const struct zr_finding *f;

    c.counted.allocated = 0;
    c.counted.calls = 0;
    diagnose(0);
    f = found("preload-bypassed");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(f->severity, ZR_ERROR);
    ck_assert_int_eq(zr_diagnosis_code(&d), 1);
    zr_findings_free(&d.findings);

    environment("UR_ADAPTERS_DEEP_BIND=1");
    diagnose(0);
    ck_assert_ptr_nonnull(strstr(found("preload-bypassed")->seen, "UR_ADAPTERS_DEEP_BIND"));
}
END_TEST

START_TEST(what_the_preload_itself_says_of_its_hooks_is_an_error_whatever_was_counted) {
    snprintf(c.counted.hooks, sizeof c.counted.hooks, "not seen: calls through libfoo.so; open it before");
    diagnose(0);
    ck_assert_str_eq(found("preload-bypassed")->seen, "not seen: calls through libfoo.so");
    ck_assert_str_eq(found("preload-bypassed")->todo, "open it before");
    zr_findings_free(&d.findings);
    snprintf(c.counted.hooks, sizeof c.counted.hooks, "not seen: something;");
    diagnose(0);
    ck_assert_str_eq(found("preload-bypassed")->seen, "not seen: something");
}
END_TEST

START_TEST(memory_that_another_card_may_not_see_is_an_error_with_its_remedy) {
    diagnose(0);
    ck_assert_ptr_null(found("reuse-lost"));
    ck_assert_ptr_null(found("remapped-under-peer"));
    zr_findings_free(&d.findings);
    c.counted.remapped = 3;
    snprintf(c.counted.reuse_lost, sizeof c.counted.reuse_lost, "another driver");
    diagnose(0);
    ck_assert_ptr_nonnull(found("remapped-under-peer"));
    ck_assert_ptr_nonnull(strstr(found("reuse-lost")->seen, "another driver"));
    ck_assert_ptr_nonnull(strstr(found("remapped-under-peer")->todo, "expandable_segments:False"));
}
END_TEST

START_TEST(opencl_is_named_and_is_no_bypass) {
    snprintf(c.counted.hooks, sizeof c.counted.hooks, "this program uses OpenCL: zeroute does not");
    c.counted.allocated = 0;
    environment("UR_ADAPTERS_DEEP_BIND=1");
    diagnose(0);
    ck_assert_ptr_null(found("preload-bypassed"));
    ck_assert_ptr_nonnull(found("opencl"));
    ck_assert_int_eq(found("opencl")->severity, ZR_WARNING);
    ck_assert_msg(strstr(found("opencl")->seen, "12.0 GiB"), "%s", found("opencl")->seen);
    zr_findings_free(&d.findings);

    c.counted.hooks[0] = '\0'; /* it was started without zeroute */
    c.stack.parts[ZR_PART_OPENCL_DRIVER].there = true;
    c.stack.parts[ZR_PART_PRELOAD].there = false;
    diagnose(0);
    ck_assert_int_eq(found("opencl")->severity, ZR_NOTE);
}
END_TEST

/* Its runtime has loaded OpenCL's driver to list the devices. */
START_TEST(a_sycl_program_uses_opencl_only_if_the_cards_hold_more_than_was_counted) {
    c.stack.parts[ZR_PART_OPENCL_DRIVER].there = c.stack.parts[ZR_PART_SYCL].there = true;
    diagnose(0);
    ck_assert_ptr_null(found("opencl"));
    zr_findings_free(&d.findings);
    c.counted.allocated = GIB(4);
    diagnose(0);
    ck_assert_ptr_nonnull(found("opencl"));
}
END_TEST

START_TEST(a_loader_that_zeroute_opened_by_its_other_name_is_a_finding) {
    const struct zr_finding *f;

    c.counted.guard_loaders = 2;
    snprintf(c.counted.guard_loader, sizeof c.counted.guard_loader, "libccl.so.1");
    diagnose(0);
    f = found("unversioned-loader");
    ck_assert_ptr_nonnull(f);
    ck_assert_str_eq(f->what, "libccl.so.1 opens libze_loader.so, which is not installed");
    ck_assert_int_eq(f->severity, ZR_NOTE);
    ck_assert_ptr_nonnull(strstr(f->todo, "libze-dev"));
}
END_TEST

START_TEST(the_guard_answers_only_where_it_has) {
    snprintf(c.stack.parts[ZR_PART_LOADER].version, sizeof c.stack.parts[0].version, "1.20.6");
    c.stack.loader = zr_version_of("1.20.6");
    c.stack.runtime = zr_version_of("2026.2.0");
    diagnose(0);
    ck_assert_ptr_nonnull(strstr(found("loader-gap")->seen, "was not needed so far"));
    zr_findings_free(&d.findings);
    snprintf(c.counted.guard, sizeof c.counted.guard, "zeFoo");
    diagnose(0);
    ck_assert_ptr_nonnull(strstr(found("loader-gap")->seen, "guard has answered for: zeFoo"));
}
END_TEST

static const struct known {
    const char *id, *environment, *version;
    enum { OF_KERNEL, OF_DRIVER, OF_RUNTIME } of;
    bool alchemist, holds;
} known[] = {
    {"peer-binds", "A=1", "7.0", OF_KERNEL, false, true},
    {"peer-binds", "A=1", "7.1", OF_KERNEL, false, false},
    {"a770-results", "A=1", "26.27.39122", OF_DRIVER, true, true},
    {"a770-results", "A=1", "26.31.1", OF_DRIVER, true, false},
    {"a770-results", "A=1", "26.27.39122", OF_DRIVER, false, false},
    {"expandable-hangs", "PYTORCH_ALLOC_CONF=expandable_segments:True", "2026.1.0", OF_RUNTIME, false, true},
    {"expandable-hangs", "PYTORCH_ALLOC_CONF=expandable_segments:True", "2025.3.1", OF_RUNTIME, false, false},
    {"expandable-hangs", "PYTORCH_ALLOC_CONF=expandable_segments:False", "2026.1.0", OF_RUNTIME, false, false},
    {"remap-ahead", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "26.27.1", OF_DRIVER, false, true},
    {"remap-ahead", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "26.09.1", OF_DRIVER, false, false},
};

START_TEST(a_fact_is_a_finding_where_it_concerns_the_program) {
    const struct known *k = &known[_i];
    struct zr_version *of[] = {&c.kernel, &c.stack.driver, &c.stack.runtime};

    *of[k->of] = zr_version_of(k->version);
    environment(k->environment);
    c.pid = strcmp(k->id, "peer-binds") ? 42 : 0;
    if (k->alchemist)
        c.cards[0].family = ZR_FAMILY_ALCHEMIST;
    diagnose(0);
    ck_assert_msg((found(k->id) != NULL) == k->holds, "%s, %s", k->id, k->version);
    ck_assert(!k->holds || found(k->id)->source);
}
END_TEST

START_TEST(skipped_residency_is_a_broken_link) {
    c.counted.peer_requested_calls = c.counted.peer_skipped_calls = 7;
    diagnose(0);
    ck_assert_int_eq(d.links[ZR_LINK_EXPORT].answer, ZR_NO);
    ck_assert_int_eq(d.links[ZR_LINK_BACKING].answer, ZR_YES);
    ck_assert_int_eq(d.mirror.state, ZR_MIRROR_NONE);
}
END_TEST

START_TEST(host_memory_that_was_asked_for_is_no_mirror) {
    c.counted.peer_requested_calls = 7;
    c.meminfo.gpu_active = GIB(20);
    diagnose(GIB(20));
    ck_assert_int_eq(d.mirror.state, ZR_MIRROR_NONE);
    zr_findings_free(&d.findings);
    c.meminfo.gpu_active = GIB(32);
    diagnose(GIB(20));
    ck_assert_int_eq(d.mirror.state, ZR_MIRROR_THERE);
    ck_assert_uint_eq(d.mirror.bytes, GIB(12));
}
END_TEST

/* The machine has lost 20 GiB: 12 of them to this process. */
START_TEST(the_mirror_of_other_processes_is_not_this_ones) {
    c.counted.peer_requested_calls = 7;
    c.meminfo.gpu_active = GIB(20);
    c.mirror = GIB(12);
    c.mirror_of_others = GIB(8);
    diagnose(0);
    ck_assert_int_eq(d.mirror.state, ZR_MIRROR_THERE);
    ck_assert_uint_eq(d.mirror.bytes, GIB(12));
    ck_assert_msg(strstr(d.mirror.why, "12.0 GiB of the machine's 20.0 GiB"), "%s", d.mirror.why);
    ck_assert_msg(strstr(found("mirror")->what, "12.0 GiB"), "%s", found("mirror")->what);
    zr_findings_free(&d.findings);

    c.mirror = 0; /* it asked for no residency, and exported nothing */
    c.mirror_of_others = GIB(20);
    c.counted.peer_requested_calls = 0;
    diagnose(0);
    ck_assert_int_eq(d.mirror.state, ZR_MIRROR_NONE);
    zr_findings_free(&d.findings);

    c.mirror_of_others = GIB(18); /* the imports of one are not counted yet */
    c.memory.cards[0].vram = (struct zr_region){GIB(1) / 8, GIB(1) / 8};
    c.memory.cards[1].vram = (struct zr_region){0, 0};
    diagnose(0);
    ck_assert_int_eq(d.mirror.state, ZR_MIRROR_TOO_LITTLE);
    zr_findings_free(&d.findings);

    c.memory.cards[0].vram = (struct zr_region){GIB(12), GIB(12)};
    c.counted.ipc_exports = 3; /* it exported: its imports are others' */
    diagnose(0);
    ck_assert_uint_eq(d.mirror.bytes, GIB(12));
}
END_TEST

START_TEST(backing_eager_of_the_preload_is_a_broken_link) {
    snprintf(c.counted.backing, sizeof c.counted.backing, "eager: NEOReadDebugKeys=1 EnableDeferBacking=0");
    diagnose(0);
    ck_assert_int_eq(d.links[ZR_LINK_BACKING].answer, ZR_NO);
}
END_TEST

START_TEST(an_older_driver_does_not_defer) {
    c.stack.driver = zr_version_of("26.05.1");
    diagnose(0);
    ck_assert_int_eq(d.links[ZR_LINK_BACKING].answer, ZR_NO);
    c.stack.driver = zr_version_of("");
    zr_findings_free(&d.findings);
    diagnose(0);
    ck_assert_int_eq(d.links[ZR_LINK_BACKING].answer, ZR_UNKNOWN);
}
END_TEST

START_TEST(versions_compare_by_number) {
    ck_assert_int_lt(zr_version_compare(zr_version_of("1.8.12"), zr_version_of("1.16")), 0);
    ck_assert_int_eq(zr_version_compare(zr_version_of("1.8"), zr_version_of("1.8.0")), 0);
    ck_assert(zr_version_from(zr_version_of("26.27.39122.14-1"), "26.9"));
    ck_assert(!zr_version_from(zr_version_of("none"), "0"));
}
END_TEST

/* The matrix: runtimes against the loaders that distributions ship. */
START_TEST(advice_about_loaders_agrees_with_the_matrix) {
    static const char *const loaders[] = {"1.8.12", "1.16.1", "1.20.6", "1.24.1", "1.28.2", "1.32.0"};
    static const struct {
        const char *runtime, *cells; /* W works; what fails by its letter */
    } matrix[] = {{"2024.2.1", "AWWWWW"}, {"2025.0.5", "AWWWWW"}, {"2025.1.1", "AWWWWW"}, {"2025.2.1", "BCWWWW"},
                  {"2025.3.1", "BCDWWW"}, {"2026.0.0", "BCDWWW"}, {"2026.1.2", "BCDEEW"}, {"2026.2.0", "BCDEEW"}};
    static const enum zr_fact_id fact_of[] = {['A' - 'A'] = ZR_FACT_LOADER_NO_DEVICES,
                                              ['B' - 'A'] = ZR_FACT_LOADER_NO_DEVICES,
                                              ['C' - 'A'] = ZR_FACT_LOADER_TRACING_CRASH,
                                              ['D' - 'A'] = ZR_FACT_LOADER_VECTOR_WIDTH,
                                              ['E' - 'A'] = ZR_FACT_LOADER_GRAPH};

    for (size_t r = 0; r < sizeof matrix / sizeof *matrix; r++) {
        struct zr_version runtime = zr_version_of(matrix[r].runtime);
        for (size_t l = 0; l < 6; l++) {
            char cell = matrix[r].cells[l];
            ck_assert_msg(zr_loader_fails(runtime, zr_version_of(loaders[l])) ==
                              (cell == 'W' ? ZR_FACTS : fact_of[cell - 'A']),
                          "runtime %s, loader %s", matrix[r].runtime, loaders[l]);
        }
        /* What is recommended is in the matrix, and works. */
        ck_assert_msg(zr_loader_fails(runtime, zr_version_of(zr_loader_for(runtime))) == ZR_FACTS, "runtime %s: %s",
                      matrix[r].runtime, zr_loader_for(runtime));
    }
    ck_assert_str_eq(zr_loader_for(zr_version_of("2026.2.0")), "1.32.0");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("doctor: conclusions");
    TCase *t = tcase_create("case");

    tcase_add_checked_fixture(t, a_preloaded_process_on_two_cards, done);
    tcase_add_test(t, a_process_that_is_seen_as_a_whole_has_no_finding);
    tcase_add_test(t, memory_that_we_did_not_count_is_an_error_that_names_the_likely_cause);
    tcase_add_test(t, what_the_preload_itself_says_of_its_hooks_is_an_error_whatever_was_counted);
    tcase_add_test(t, memory_that_another_card_may_not_see_is_an_error_with_its_remedy);
    tcase_add_test(t, opencl_is_named_and_is_no_bypass);
    tcase_add_test(t, a_sycl_program_uses_opencl_only_if_the_cards_hold_more_than_was_counted);
    tcase_add_test(t, a_loader_that_zeroute_opened_by_its_other_name_is_a_finding);
    tcase_add_test(t, the_guard_answers_only_where_it_has);
    tcase_add_loop_test(t, a_fact_is_a_finding_where_it_concerns_the_program, 0, sizeof known / sizeof *known);
    tcase_add_test(t, skipped_residency_is_a_broken_link);
    tcase_add_test(t, host_memory_that_was_asked_for_is_no_mirror);
    tcase_add_test(t, the_mirror_of_other_processes_is_not_this_ones);
    tcase_add_test(t, backing_eager_of_the_preload_is_a_broken_link);
    tcase_add_test(t, an_older_driver_does_not_defer);
    tcase_add_test(t, versions_compare_by_number);
    tcase_add_test(t, advice_about_loaders_agrees_with_the_matrix);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
