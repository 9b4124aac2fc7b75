/* What must stay true for a process whose freed blocks are kept, on the simulated GPU. */
#include "child.h"
#include "suite.h"

static struct child *run(const char *conf, const char *program, const char *argument) {
    const char *sim = "ZE_SIMGPU=devices:2,count:on,vram:64MiB";
    const char *settings[] = {sim_driver(), sim, conf, NULL};
    const char *argv[] = {program, argument, NULL};
    struct child *c;

    if (strcmp(program, "keep_threads") == 0)
        settings[1] = "ZE_SIMGPU=devices:2,count:on"; /* never full */
    if (strcmp(argument, "many_devices") == 0)
        settings[1] = "ZE_SIMGPU=devices:8,tiles:2,count:on";
    if (strcmp(argument, "half_kept_of_all_tiles") == 0)
        settings[1] = "ZE_SIMGPU=devices:1,tiles:2,count:on,vram:64MiB";
    if (strcmp(argument, "shared_out") == 0)
        settings[1] = "ZE_SIMGPU=devices:2,count:on,vram:64MiB,free_cost:50us"; /* time to be in each other's way */
    if (strcmp(argument, "given_back_slowly") == 0)
        settings[1] = "ZE_SIMGPU=devices:2,count:on,vram:64MiB,free_cost:400ms";
    if (strcmp(argument, "two_percent_kept") == 0)
        settings[1] = "ZE_SIMGPU=devices:1,count:on,vram:100GiB";
    c = child_run(settings, argv);
    child_ok(c);
    return c;
}

static uint64_t value(const struct child *c, const char *name) {
    return child_count(c, "%s", name);
}

#define KEEPING "ZEROUTE_CONF=route:native,cache:on"
#define LASTING ",cache_idle:60s"

/* PROMISE(test, more settings, program, its part): the promise holds, and no book has gone below zero. */
#define PROMISES(X)                                                                                                    \
    X(a_freed_block_is_handed_out_again, LASTING, keep, reuse)                                                         \
    X(a_free_with_a_policy_goes_to_the_driver, LASTING ",reuse:runtime", keep, policies)                               \
    X(a_block_with_an_ipc_handle_is_really_freed, LASTING, keep, exported)                                             \
    X(a_block_whose_descriptor_was_taken_is_really_freed, LASTING, keep, exported_by_descriptor)                       \
    X(a_part_of_the_memory_is_kept, LASTING ",cache_limit:50%", keep, half_kept)                                       \
    X(a_part_of_the_cards_memory_not_the_tiles, LASTING ",cache_limit:50%", keep, half_kept_of_all_tiles)              \
    X(a_part_of_unknown_memory_is_as_usual, LASTING ",cache_limit:50%,cache_host:on", keep, host)                      \
    X(two_percent_of_the_memory_are_kept, LASTING, keep, two_percent_kept)                                             \
    X(what_is_chained_and_unknown_passes_through, LASTING, keep, chained)                                              \
    X(a_full_card_gets_back_what_is_kept, LASTING, keep, full)                                                         \
    X(a_context_takes_its_blocks_with_it, LASTING, keep, context_destroyed)                                            \
    X(a_query_of_free_memory_trims_first, LASTING, keep, queried)                                                      \
    X(a_small_cache_limit_keeps_nothing, LASTING ",cache_limit:4KiB", keep, nothing_kept)                              \
    X(a_cache_limit_of_nothing_keeps_nothing, LASTING ",cache_limit:0", keep, nothing_kept)                            \
    X(a_block_at_hand_is_no_way_around_the_host_floor, LASTING ",host_floor:4GiB", keep, below_the_floor)              \
    X(idle_blocks_go_back, ",cache_idle:50ms", keep, idle)                                                             \
    X(no_idle_time_at_all_is_allowed, ",cache_idle:0", keep, idle)                                                     \
    X(fifty_days_are_long, ",cache_idle:4294967297ms", keep, lasting)                                                  \
    X(threads_that_fit_together_are_not_refused, LASTING, keep, shared_out)                                            \
    X(nor_within_a_limit, LASTING ",limit:64MiB", keep, shared_out)                                                    \
    X(what_another_thread_is_giving_back_is_waited_for, LASTING ",cache_limit:50MiB", keep, given_back_slowly)         \
    X(host_memory_is_kept_on_request, LASTING ",cache_host:on", keep, host)                                            \
    X(host_memory_is_kept_for_the_same_flags, LASTING ",cache_host:on", keep, host_flags)                              \
    X(memory_of_the_callers_own_is_never_kept, LASTING ",cache_host:on", keep, host_of_the_caller)                     \
    X(what_a_sycl_runtime_frees_may_be_in_use, LASTING ",cache_host:on,reuse:runtime", keep, adapter)                  \
    X(a_program_that_vouches_has_it_kept, LASTING ",cache_host:on,reuse:always", keep, adapter_vouched)                \
    X(a_request_that_differs_in_one_property_gets_another_block, LASTING, keep_keys, another_key)                      \
    X(no_alignment_is_taken_for_another, LASTING, keep_keys, no_alignment)                                             \
    X(nor_with_a_host_floor, LASTING ",host_floor:1", keep_keys, no_alignment)                                         \
    X(answers_end_at_the_size_that_was_asked_for, LASTING, keep_answers, questions)                                    \
    X(a_free_block_is_made_resident_nowhere, LASTING, keep_answers, residency_of_free_blocks)                          \
    X(frees_of_free_interior_and_unknown_pointers_are_refused, LASTING, keep_answers, misuse)                          \
    X(what_is_closed_is_no_way_around_that, LASTING, keep_answers, closed)                                             \
    X(wrong_arguments_reach_the_driver, LASTING, keep_answers, wrong_arguments)                                        \
    X(a_refusal_is_the_drivers_own, LASTING, keep_answers, refusals)                                                   \
    X(a_peer_that_is_no_longer_asked_for_gets_nothing, LASTING, keep_peers, no_longer_asked)                           \
    X(a_block_on_peers_goes_only_to_who_would_ask_for_them, LASTING, keep_peers, peers)                                \
    X(an_evicted_block_is_made_resident_again, LASTING, keep_peers, evicted)                                           \
    X(blocks_that_are_evicted_together_are_made_resident_again, LASTING, keep_peers, evicted_together)                 \
    X(residency_owner_holds_for_kept_blocks_too, LASTING ",residency:owner", keep_peers, owner_only)                   \
    X(a_child_of_raw_clone_gets_nothing_of_its_parent, LASTING, keep_child, cloned)                                    \
    X(a_child_of_fork_gets_nothing_of_its_parent, LASTING, keep_child, forked)

#define PROMISE(test, conf, program, part)                                                                             \
    START_TEST(test) {                                                                                                 \
        struct child *c = run(KEEPING conf, #program, #part);                                                          \
                                                                                                                       \
        ck_assert_uint_lt(value(c, "allocated_bytes.all.current"), 1u << 30);                                          \
        ck_assert_uint_lt(value(c, "reserved_bytes.all.current"), 1u << 30);                                           \
        child_free(c);                                                                                                 \
    }                                                                                                                  \
    END_TEST
PROMISES(PROMISE)

/* One of 60 MiB, after one of 40 MiB has gone back; and one that is refused with nothing left to go. */
START_TEST(what_a_full_card_got_back_is_counted) {
    struct child *c = run(KEEPING LASTING, "keep", "full");

    ck_assert_uint_eq(value(c, "cache.trims"), 1);
    ck_assert_uint_eq(value(c, "cache.trimmed_bytes"), 40u << 20);
    ck_assert_uint_eq(value(c, "cache.retries"), 1);
    child_free(c);
}
END_TEST

/* As many as prog_keep_keys.c makes, and one. */
START_TEST(a_program_that_repeats_itself_gets_what_it_asks_for_and_is_counted) {
    struct child *c = run(KEEPING LASTING, "keep_keys", "steady");

    ck_assert_uint_eq(value(c, "calls.zeMemAllocDevice.plt"), 3001);
    ck_assert_uint_eq(value(c, "calls.zeMemFree.plt"), 6001);
    ck_assert_uint_eq(value(c, "free.invalid.twice"), 3000);
    ck_assert_uint_eq(value(c, "failures.zeMemFree"), 3000);
    ck_assert_uint_eq(value(c, "cache.hits") + value(c, "cache.misses"), 3001);
    ck_assert_uint_lt(value(c, "cache.misses"), 7);
    ck_assert_uint_eq(value(c, "allocation.all.allocated"), 3001);
    ck_assert_uint_eq(value(c, "allocation.all.freed"), 3001);
    ck_assert_uint_eq(value(c, "device.1.allocation.all.allocated"), 38 * 16); /* a fifth of the rounds, 16 in a row */
    ck_assert_uint_eq(value(c, "device.1.allocation.all.freed"), 38 * 16);
    ck_assert_uint_eq(value(c, "device.0.allocation.all.freed"), 3001 - 38 * 16);
    ck_assert_uint_eq(value(c, "device.0.allocated_bytes.all.current"), 0);
    ck_assert_uint_eq(value(c, "allocation.all.peak"), 2);
    ck_assert_uint_eq(value(c, "allocated_bytes.all.peak"), 256 << 10);
    ck_assert_uint_eq(value(c, "allocated_bytes.all.current"), 0);
    ck_assert_uint_ge(value(c, "callers.keep_keys.calls"), 3000 * 5); /* and a few to get there */
    ck_assert_uint_lt(value(c, "callers.keep_keys.calls"), 3000 * 5 + 20);
    ck_assert_uint_eq(value(c, "callers.keep_keys.bytes"), value(c, "allocated_bytes.all.allocated"));
    child_free(c);
}
END_TEST

static void each_card_counts(const struct child *c, int cards, uint64_t calls) {
    for (int card = 0; card < cards; card++) {
        ck_assert_uint_eq(child_count(c, "device.%d.allocation.all.allocated", card), calls);
        ck_assert_uint_eq(child_count(c, "device.%d.allocation.all.freed", card), calls);
    }
}

/* 8 cards and two tiles of each, 20 times each; tiles are counted with their card. */
START_TEST(every_device_gets_memory_of_its_own) {
    struct child *c = run(KEEPING LASTING, "keep_keys", "many_devices");

    each_card_counts(c, 8, 3 * 20);
    child_free(c);
}
END_TEST

START_TEST(a_handler_of_signals_may_come_between) {
    struct child *c = run(KEEPING LASTING, "keep_keys", "interrupted");

    ck_assert_uint_eq(value(c, "allocation.all.current"), 0);
    ck_assert_uint_eq(value(c, "allocated_bytes.all.current"), 0);
    child_free(c);
}
END_TEST

START_TEST(a_limit_refuses_in_time_and_counts_once) {
    struct child *c = run(KEEPING LASTING ",limit:10MiB", "keep", "limited");

    ck_assert_uint_eq(value(c, "limit.refused_calls"), 4);
    ck_assert_uint_eq(value(c, "failures.zeMemAllocDevice"), 3);
    ck_assert_uint_eq(value(c, "failures.zePhysicalMemCreate"), 1);
    ck_assert_uint_eq(value(c, "allocated_bytes.all.current"), 0);
    child_free(c);
    c = run("ZEROUTE_CONF=route:native,cache:off,limit:16%", "keep", "limited");
    ck_assert_uint_eq(value(c, "limit.refused_calls"), 4);
    child_free(c);
}
END_TEST

START_TEST(blocks_that_outlive_their_context_leave_the_books_once) {
    struct child *c = run(KEEPING LASTING ",limit:8GiB", "keep", "orphans");

    ck_assert_uint_eq(value(c, "allocated_bytes.all.current"), 0);
    ck_assert_uint_eq(value(c, "allocation.all.current"), 0);
    ck_assert_uint_eq(value(c, "reserved_bytes.all.current"), 0);
    child_free(c);
}
END_TEST

START_TEST(a_process_may_leave_in_the_middle_of_everything) {
    static const char *const how[] = {"return", "exit", "thread", "_exit"};

    for (int i = 0; i < 40; i++)
        child_free(run(i % 8 < 4 ? KEEPING : KEEPING ",limit:1GiB", "leave", how[i % 4]));
}
END_TEST

START_TEST(a_child_of_fork_counts_what_is_skipped_under_its_own_names) {
    struct child *c = run(KEEPING LASTING ",residency:owner", "keep_child", "skipped_in_child");
    struct child *of_fork = calloc(1, sizeof *of_fork);
    const char *pid = strstr(c->out, "child ");

    ck_assert_uint_eq(value(c, "callers.keep_child.skipped_calls"), 1);
    ck_assert_ptr_nonnull(pid);
    of_fork->started = c->started;
    child_read(of_fork, atoi(pid + 6));
    ck_assert_ptr_nonnull(of_fork->s);
    ck_assert_uint_eq(value(of_fork, "residency.peer.skipped_calls"), 5);
    ck_assert_uint_eq(value(of_fork, "callers.keep_child.skipped_calls"), 5);
    ck_assert_uint_eq(value(of_fork, "callers.keep_child.skipped_bytes"), 5 * 4 << 20);
    child_free(of_fork);
    child_free(c);
}
END_TEST

/* Of prog_locks.c. */
START_TEST(a_child_finds_every_lock_free) {
    static const char *const how[] = {"forked", "cloned", "cloned_and_gone", "cloned_by_a_stranger"};
    static const char *const conf[] = {KEEPING, "ZEROUTE_CONF=preset:observe"};

    for (int i = 0; i < 8; i++)
        child_free(run(conf[i % 2], "locks", how[i / 2]));
}
END_TEST

START_TEST(threads_may_do_everything_at_once) {
    const char *const conf[] = {KEEPING, KEEPING ",cache_limit:8MiB,cache_idle:1ms"};

    for (int i = 0; i < 2; i++) {
        struct child *c = run(conf[i], "keep_threads", "4000");

        ck_assert_uint_eq(value(c, "allocated_bytes.all.current"), 0);
        ck_assert_uint_eq(value(c, "reserved_bytes.all.current"), 0);
        child_free(c);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("keep");
    TCase *t = tcase_create("keep");

    tcase_set_timeout(t, 60);
#define ADD(test, conf, program, part) tcase_add_test(t, test);
    PROMISES(ADD)
    tcase_add_test(t, what_a_full_card_got_back_is_counted);
    tcase_add_test(t, a_program_that_repeats_itself_gets_what_it_asks_for_and_is_counted);
    tcase_add_test(t, every_device_gets_memory_of_its_own);
    tcase_add_test(t, a_handler_of_signals_may_come_between);
    tcase_add_test(t, a_limit_refuses_in_time_and_counts_once);
    tcase_add_test(t, blocks_that_outlive_their_context_leave_the_books_once);
    tcase_add_test(t, a_process_may_leave_in_the_middle_of_everything);
    tcase_add_test(t, a_child_of_fork_counts_what_is_skipped_under_its_own_names);
    tcase_add_test(t, a_child_finds_every_lock_free);
    tcase_add_test(t, threads_may_do_everything_at_once);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
