/*
 * The cache at the Level Zero entry points, on the simulated GPU: each promise of prog_cache.c with
 * the settings that it needs, and what was counted.
 */
#include "promises.h"

/* Nothing goes back because a machine is slow. */
#define CONF "ZEROUTE_CONF=route:native,cache:on,cache_idle:60s"
#define SIM "ZE_SIMGPU=count:on,vram:4GiB"

static const struct promise promises[] = {
    {NULL, "freed_blocks_are_reused", CONF, SIM, {{"cache.hits", 1001}, {"cache.misses", 1}, {"cache.returned", 1001}}},
    {NULL, "questions_are_answered_for_the_asked_size", CONF, SIM, {{"cache.hits", 2}}},
    {NULL,
     "a_free_that_waits_goes_to_the_driver",
     CONF ",reuse:runtime",
     SIM,
     {{"free.policy.blocking", 1}, {"free.policy.defer", 1}, {"driver.free_calls", 2}}},
    {NULL, "a_block_in_use_is_not_handed_out", CONF, SIM, {{0}}},
    {NULL, "an_exported_block_is_really_freed", CONF, SIM, {{"ipc.exports", 1}, {"driver.free_calls", 1}}},
    {NULL, "what_is_kept_does_not_look_used", CONF, SIM, {{"cache.trims", 2}, {"cache.trimmed_bytes", 128u << 20}}},
    {NULL, "the_limit_holds_and_is_told", CONF ",limit:1GiB", SIM, {{0}}},
    {NULL, "physical_memory_counts_against_the_limit", CONF ",limit:1GiB", SIM, {{0}}},
    {NULL, "a_full_card_gets_back_what_is_kept", CONF, "ZE_SIMGPU=count:on,vram:128MiB", {{0}}},
    {NULL, "a_destroyed_context_leaves_nothing_behind", CONF, SIM, {{"driver.free_calls", 1}}},
    {NULL,
     "misuse_is_refused",
     CONF,
     SIM,
     {{"free.invalid.interior", 1}, {"free.invalid.twice", 1}, {"free.invalid.unknown", 2}, {"failures.zeMemFree", 4}}},
    {"every free that reroute refuses is a failure",
     "misuse_is_refused",
     "ZEROUTE_CONF=preset:reroute",
     SIM,
     {{"failures.zeMemFree", 4}}},
    {NULL, "wrong_arguments_get_the_drivers_own_answer", CONF, SIM, {{0}}},
    {NULL, "alignment_is_honoured", CONF, SIM, {{0}}},
    {NULL, "residency_is_kept_and_answered_from_the_books", CONF, SIM ",devices:2", {{0}}},
    {NULL, "what_lies_unused_goes_back_on_later_calls", CONF ",cache_idle:50ms", SIM, {{0}}},
    {NULL, "no_more_is_kept_than_cache_limit", CONF ",cache_limit:32MiB", SIM, {{0}}},
    {NULL, "host_memory_is_kept_only_when_asked", CONF, SIM, {{"cache.hits", 0}}},
    {NULL, "host_memory_is_kept_only_when_asked", CONF ",cache_host:on", SIM, {{"cache.hits", 1}}},
    {NULL,
     "injected_failures_meet_the_cache",
     CONF ",inject:zeMemAllocDevice@2=0x70000003+zeMemAllocDevice@5=0x78000004",
     SIM,
     {{"inject.failed_calls", 2}}},
    {NULL, "another_failure_is_not_tried_again", CONF ",inject:zeMemAllocDevice@1=0x70000001", SIM, {{0}}},
    {NULL,
     "what_is_not_cached_is_counted_once",
     CONF ",cache_limit:0",
     SIM,
     {{"allocation.all.allocated", 3}, {"allocation.all.freed", 3}}},
    {NULL, "a_handle_is_no_range", CONF, SIM, {{"free.invalid.interior", 0}, {"free.invalid.unknown", 1}}},
    {NULL, "a_child_starts_with_nothing", CONF, SIM, {{0}}},
    {NULL, "threads_allocate_free_export_and_query_at_once", CONF, SIM, {{0}}},
    {NULL, "threads_allocate_free_export_and_query_at_once", CONF ",cache_limit:8MiB,cache_idle:1ms", SIM, {{0}}},
};

START_TEST(the_promise_is_kept) {
    keep_promise("cache", &promises[_i]);
}
END_TEST

/* KiB of anonymous memory of prog_own_memory.c. */
static long anonymous(const char *preload, const char *conf) {
    const char *settings[] = {sim_driver(), "ZE_SIMGPU=devices:2", conf, preload, NULL};
    const char *argv[] = {"own_memory", "100000", NULL};
    struct child *c = child_run(settings, argv);
    long kib = strtol(c->out, NULL, 10);

    child_ok(c);
    ck_assert_msg(kib > 0, "%s", c->out);
    if (c->s)
        counts(c, "allocated_bytes.all.current", 0);
    child_free(c);
    return kib;
}

/*
 * 100,000 allocations, no two alike, at most 192 live: 3 MiB are ours here (1.5 MiB without a cache), of which the half
 * is the map's. A bin, a key or a descriptor that is lost with each of them is 6 MiB more.
 */
START_TEST(our_own_memory_stays_small) {
    char preload[PATH_MAX + 16];
    long none = anonymous("LD_PRELOAD=", "ZEROUTE_CONF="), off, on;

    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library_path());
    off = anonymous(preload, "ZEROUTE_CONF=route:native,cache:off");
    on = anonymous(preload, "ZEROUTE_CONF=route:native,cache:on,cache_host:on");
    ck_assert_int_le(off - none, 4 << 10);
    ck_assert_int_le(on - none, 6 << 10);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cache");
    TCase *c = tcase_create("promises");

    suite_add_tcase(suite, c);
    tcase_set_timeout(c, 120);
    tcase_add_loop_test(c, the_promise_is_kept, 0, (int)(sizeof promises / sizeof *promises));
    tcase_add_test(c, our_own_memory_stays_small);
    return run_suite(suite);
}
