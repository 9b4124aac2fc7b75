/* What is booked, and what residency:owner does to it. */
#include "child.h"
#include "suite.h"

static struct child *run_program(const char *conf, const char *program, const char *what) {
    const char *settings[] = {sim_driver(), "ZE_SIMGPU=devices:2", conf, NULL};
    const char *argv[] = {program, what, NULL};

    return child_run(settings, argv);
}

static struct child *run(const char *conf) {
    return run_program(conf, "books", NULL);
}

#define MIB(n) ((uint64_t)(n) << 20)

START_TEST(residency_is_counted_by_owner_and_peer) {
    struct child *c = run("ZEROUTE_CONF=preset:observe");

    child_ok(c);
    counts(c, "residency.owner.requested_calls", 1);
    counts(c, "residency.peer.requested_calls", 3);
    counts(c, "residency.peer.requested_bytes", MIB(6));
    counts(c, "residency.peer.granted_calls", 3);
    counts(c, "residency.peer.skipped_calls", 0);
    child_free(c);
}
END_TEST

START_TEST(residency_owner_skips_peers_and_keeps_evictions_in_step) {
    struct child *c = run("ZEROUTE_CONF=preset:mitigate");

    child_ok(c);
    counts(c, "residency.owner.requested_calls", 1);
    counts(c, "residency.peer.requested_calls", 3);
    counts(c, "residency.peer.skipped_calls", 3);
    counts(c, "residency.peer.skipped_bytes", MIB(6));
    counts(c, "residency.peer.granted_calls", 0);
    counts(c, "residency.evict_calls", 2);
    counts(c, "residency.evict_skipped_calls", 1);
    counts(c, "callers.books.skipped_calls", 3);
    counts(c, "callers.books.skipped_bytes", MIB(6));
    child_free(c);
}
END_TEST

START_TEST(a_named_caller_is_let_through) {
    struct child *c = run("ZEROUTE_CONF=preset:mitigate,peer_callers:libccl.so+books");

    child_ok(c);
    counts(c, "residency.peer.skipped_calls", 0);
    counts(c, "residency.peer.granted_calls", 3);
    child_free(c);
}
END_TEST

START_TEST(a_caller_that_is_only_named_alike_is_not) {
    struct child *c = run("ZEROUTE_CONF=preset:mitigate,peer_callers:book+booksx+libccl.so");

    child_ok(c);
    counts(c, "residency.peer.skipped_calls", 3);
    child_free(c);
}
END_TEST

START_TEST(virtual_memory_shows) {
    struct child *c = run("ZEROUTE_CONF=preset:observe");

    child_ok(c);
    counts(c, "virtual_bytes.reserved.allocated", MIB(8));
    counts(c, "virtual_bytes.reserved.current", 0);
    counts(c, "virtual_bytes.mapped.allocated", MIB(2));
    counts(c, "virtual_bytes.mapped.current", 0);
    counts(c, "allocated_bytes.physical.allocated", MIB(2));
    counts(c, "device.1.allocated_bytes.all.allocated", MIB(3));
    child_free(c);
}
END_TEST

START_TEST(exports_and_imports_show) {
    struct child *c = run("ZEROUTE_CONF=preset:observe");

    child_ok(c);
    counts(c, "ipc.exports", 2);
    counts(c, "ipc.export_bytes", MIB(3));
    counts(c, "ipc.imports", 1);
    counts(c, "ipc.closes", 1);
    counts(c, "imported_bytes.all.allocated", MIB(3));
    counts(c, "imported_bytes.all.current", 0);
    child_free(c);
}
END_TEST

START_TEST(what_the_driver_refuses_is_not_booked) {
    struct child *c = run("ZEROUTE_CONF=preset:observe");

    child_ok(c);
    counts(c, "failures.zeMemAllocDevice", 1);
    counts(c, "failures.zeMemFree", 1);
    counts(c, "allocated_bytes.all.allocated", MIB(4 + 1 + 1 + 2 + 3));
    counts(c, "allocated_bytes.all.freed", MIB(4 + 1 + 1 + 2 + 3));
    child_free(c);
}
END_TEST

START_TEST(an_injected_failure_reaches_the_caller_and_nothing_is_booked) {
    struct child *c = run("ZEROUTE_CONF=preset:observe,inject:zeMemAllocDevice@1=0x70000003");

    ck_assert_int_eq(WEXITSTATUS(c->status), 1);
    ck_assert_ptr_nonnull(strstr(c->out, "0x70000003"));
    counts(c, "failures.zeMemAllocDevice", 1);
    counts(c, "inject.failed_calls", 1);
    counts(c, "allocated_bytes.all.allocated", 0);
    child_free(c);
}
END_TEST

START_TEST(blocks_of_a_context_that_the_driver_keeps_are_no_orphans) {
    static const char *const conf[] = {"ZEROUTE_CONF=preset:observe,inject:zeContextDestroy@1=0x70000001",
                                       "ZEROUTE_CONF=preset:reroute,inject:zeContextDestroy@1=0x70000001"};

    for (int i = 0; i < 2; i++) {
        struct child *c = run_program(conf[i], "stays", NULL);

        child_ok(c);
        counts(c, "free.invalid.orphaned", 0);
        counts(c, "allocated_bytes.all.allocated", MIB(5));
        counts(c, "allocated_bytes.all.current", 0);
        counts(c, "reserved_bytes.all.current", 0);
        child_free(c);
    }
}
END_TEST

START_TEST(the_default_settings_keep_the_same_books) {
    struct child *c = run("ZEROUTE_CONF=preset:reroute");

    child_ok(c);
    counts(c, "allocated_bytes.all.allocated", MIB(4 + 1 + 1 + 2 + 3));
    counts(c, "allocated_bytes.all.current", 0);
    counts(c, "ipc.exports", 2);
    child_free(c);
}
END_TEST

START_TEST(the_peak_of_two_threads_is_what_they_held_together) {
    struct child *c = run_program("ZEROUTE_CONF=preset:observe", "two", "peak");

    child_ok(c);
    counts(c, "allocated_bytes.all.peak", MIB(2048));
    counts(c, "device.0.allocated_bytes.all.peak", MIB(2048));
    child_free(c);
}
END_TEST

START_TEST(of_two_threads_that_free_a_block_one_succeeds) {
    static const char *const conf[] = {"ZEROUTE_CONF=preset:observe", "ZEROUTE_CONF=preset:reroute"};

    for (int i = 0; i < 2; i++) {
        struct child *c = run_program(conf[i], "two", "twice");

        child_ok(c);
        counts(c, "allocated_bytes.all.current", 0);
        child_free(c);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("books");
    TCase *t = tcase_create("books");

    tcase_set_timeout(t, 60);
    tcase_add_test(t, residency_is_counted_by_owner_and_peer);
    tcase_add_test(t, residency_owner_skips_peers_and_keeps_evictions_in_step);
    tcase_add_test(t, a_named_caller_is_let_through);
    tcase_add_test(t, a_caller_that_is_only_named_alike_is_not);
    tcase_add_test(t, virtual_memory_shows);
    tcase_add_test(t, exports_and_imports_show);
    tcase_add_test(t, what_the_driver_refuses_is_not_booked);
    tcase_add_test(t, an_injected_failure_reaches_the_caller_and_nothing_is_booked);
    tcase_add_test(t, blocks_of_a_context_that_the_driver_keeps_are_no_orphans);
    tcase_add_test(t, the_default_settings_keep_the_same_books);
    tcase_add_test(t, the_peak_of_two_threads_is_what_they_held_together);
    tcase_add_test(t, of_two_threads_that_free_a_block_one_succeeds);
    suite_add_tcase(s, t);
    return run_suite(s);
}
