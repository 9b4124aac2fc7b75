/* What src/work/ is told of a call, by what its arguments say and by what the driver answers (src/ze/submit.c). */
#include "suite.h"
#include "ze/submit.c"

#include <stdlib.h>

enum { COUNTERS_IPC = 1 << 3, COUNTERS_OF_A_GRAPH = 1 << 6 };
static const ze_result_t lost = (ze_result_t)0x70000001;

static int list_object, queue_object, event_object, fence_object, pool_object;
static void *const list = &list_object, *const queue = &queue_object, *const event = &event_object,
                   *const fence = &fence_object, *const pool = &pool_object;
static ze_result_t answer; /* the driver's, to every call */

struct counter_desc {
    uint32_t stype;
    const void *next;
    uint32_t flags, signal, wait;
};

/* Stands below any function whose arguments do not matter: all of them are passed in registers. */
static ze_result_t any(void) {
    return answer;
}

static ze_result_t create_fence(ze_command_queue_handle_t of, const ze_fence_desc_t *desc, ze_fence_handle_t *out) {
    (void)of, (void)desc;
    *out = fence;
    return answer;
}

static ze_result_t create_event(ze_event_pool_handle_t from, const ze_event_desc_t *desc, ze_event_handle_t *out) {
    (void)from, (void)desc;
    *out = event;
    return answer;
}

static ze_result_t create_counter(ze_context_handle_t context, ze_device_handle_t device, void *desc,
                                  ze_event_handle_t *out) {
    (void)context, (void)device, (void)desc;
    *out = event;
    return answer;
}

static void make_pool(uint32_t flags, const void *chained) {
    ze_event_pool_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .pNext = chained, .flags = flags, .count = 1};
    struct zr_op op = {.entry = ZR_E_zeEventPoolCreate};

    zr_submit_made(&op, NULL, &desc, pool);
}

static void make_event(void) {
    ze_event_handle_t out;

    ck_assert_int_eq(zr_does_zeEventCreate((zr_function)create_event, pool, NULL, &out), ZE_RESULT_SUCCESS);
}

static void make_counter(uint32_t flags, const void *chained) {
    struct counter_desc desc = {.next = chained, .flags = flags};
    ze_event_handle_t out;

    ck_assert_int_eq(zr_does_zeEventCounterBasedCreate((zr_function)create_counter, NULL, NULL, &desc, &out),
                     ZE_RESULT_SUCCESS);
}

static void watch_work(void) {
    setenv("ZEROUTE_CONF", "route:native,reuse:proven,stats:off", 1);
    zr_config_load();
    answer = ZE_RESULT_SUCCESS;
    zr_work_list_made(list, 0, true, true, false);
    make_pool(0, NULL);
}

/* A command that signals the event; whether waiting for it proves that a block which is freed now is idle. */
static void signal_event(void) {
    ck_assert_int_eq(zr_does_zeCommandListAppendSignalEvent((zr_function)any, list, event), ZE_RESULT_SUCCESS);
}

static bool is_proof(void) {
    uint64_t epoch = zr_work_freed();

    ck_assert_int_eq(zr_does_zeEventHostSynchronize((zr_function)any, event, 0), answer);
    return zr_work_is_idle(epoch);
}

START_TEST(a_wait_for_an_event_proves_if_it_succeeds) {
    watch_work();
    make_event();
    signal_event();
    answer = ZE_RESULT_NOT_READY;
    ck_assert(!is_proof());
    answer = ZE_RESULT_SUCCESS;
    ck_assert(is_proof());
}
END_TEST

/* While a wait is under way another thread gives the event, or the list, something else. */
static ze_result_t meanwhile(void) {
    zr_work_signal_reset(event);
    signal_event();
    return ZE_RESULT_SUCCESS;
}

static ze_result_t executes_meanwhile(void) {
    return zr_does_zeCommandQueueExecuteCommandLists((zr_function)any, queue, 0, NULL, NULL);
}

START_TEST(a_wait_proves_nothing_that_came_after_it_began) {
    uint64_t epoch;

    watch_work();
    make_event();
    signal_event();
    zr_does_zeEventHostSynchronize((zr_function)meanwhile, event, 0);
    ck_assert(!zr_work_is_idle(zr_work_freed()));
    zr_does_zeEventQueryStatus((zr_function)meanwhile, event);
    ck_assert(!zr_work_is_idle(zr_work_freed()));
    zr_does_zeCommandListHostSynchronize((zr_function)meanwhile, list, 0);
    ck_assert(!zr_work_is_idle(zr_work_freed()));
    epoch = zr_work_freed();
    zr_does_zeCommandListHostSynchronize((zr_function)any, list, 0);
    ck_assert(zr_work_is_idle(epoch));

    zr_work_queue_made(queue, 0, false);
    zr_does_zeCommandQueueSynchronize((zr_function)executes_meanwhile, queue, 0);
    epoch = zr_work_freed();
    ck_assert(!zr_work_is_idle(epoch));
    zr_does_zeCommandQueueSynchronize((zr_function)any, queue, 0);
    ck_assert(zr_work_is_idle(epoch));
}
END_TEST

START_TEST(an_event_of_a_pool_for_other_processes_proves_nothing) {
    char handle[64];

    watch_work();
    make_pool(ZE_EVENT_POOL_FLAG_IPC, NULL);
    make_event();
    signal_event();
    ck_assert(!is_proof());

    make_pool(0, NULL);
    ck_assert_int_eq(zr_does_zeEventPoolGetIpcHandle((zr_function)any, pool, handle), ZE_RESULT_SUCCESS);
    make_event();
    signal_event();
    ck_assert(!is_proof());
}
END_TEST

START_TEST(the_events_of_a_pool_of_counters_are_counters) {
    const ze_base_desc_t counters = {.stype = (ze_structure_type_t)POOL_COUNTER_BASED};

    watch_work();
    make_pool(0, &counters);
    make_event();
    signal_event();
    signal_event();
    ck_assert(is_proof());
}
END_TEST

START_TEST(a_counter_that_others_may_advance_proves_nothing) {
    const ze_base_desc_t memory_of_the_program = {.stype = (ze_structure_type_t)0x2003b};

    watch_work();
    make_counter(0, NULL);
    signal_event();
    ck_assert(is_proof());
    make_counter(COUNTERS_IPC, NULL);
    signal_event();
    ck_assert(!is_proof());
    make_counter(COUNTERS_OF_A_GRAPH, NULL);
    signal_event();
    ck_assert(!is_proof());
    make_counter(0, &memory_of_the_program);
    signal_event();
    ck_assert(!is_proof());
}
END_TEST

START_TEST(what_was_not_created_is_not_known) {
    ze_event_handle_t out;

    watch_work();
    answer = lost;
    zr_does_zeEventCreate((zr_function)create_event, pool, NULL, &out);
    answer = ZE_RESULT_SUCCESS;
    signal_event();
    ck_assert(!is_proof());
}
END_TEST

/* It stays signalled, and says nothing of the next command that signals it. */
START_TEST(a_reset_that_failed_is_none) {
    watch_work();
    make_event();
    signal_event();
    ck_assert(is_proof());
    answer = lost;
    zr_does_zeEventHostReset((zr_function)any, event);
    answer = ZE_RESULT_SUCCESS;
    signal_event();
    ck_assert(!is_proof());
    zr_does_zeCommandListHostSynchronize((zr_function)any, list, 0);
    zr_does_zeEventHostReset((zr_function)any, event);
    signal_event();
    ck_assert(is_proof());
}
END_TEST

static bool fence_is_proof(void) {
    uint64_t epoch;

    ck_assert_int_eq(zr_does_zeCommandQueueExecuteCommandLists((zr_function)any, queue, 0, NULL, fence),
                     ZE_RESULT_SUCCESS);
    epoch = zr_work_freed();
    zr_does_zeFenceHostSynchronize((zr_function)any, fence, 0);
    return zr_work_is_idle(epoch);
}

START_TEST(a_fence_counts_from_its_reset_on) {
    ze_fence_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_FENCE_DESC, .flags = ZE_FENCE_FLAG_SIGNALED};
    ze_fence_handle_t out;

    watch_work();
    zr_work_queue_made(queue, 0, false);
    zr_does_zeFenceCreate((zr_function)create_fence, NULL, &desc, &out);
    ck_assert(!fence_is_proof()); /* it was signalled from the start */
    zr_does_zeCommandQueueSynchronize((zr_function)any, queue, 0);
    answer = lost;
    zr_does_zeFenceReset((zr_function)any, fence);
    answer = ZE_RESULT_SUCCESS;
    ck_assert(!fence_is_proof());
    zr_does_zeCommandQueueSynchronize((zr_function)any, queue, 0);
    zr_does_zeFenceReset((zr_function)any, fence);
    ck_assert(fence_is_proof());
    zr_does_zeFenceDestroy((zr_function)any, fence);
    ck_assert(!fence_is_proof()); /* not known any more */
}
END_TEST

START_TEST(an_event_that_was_destroyed_is_not_known) {
    watch_work();
    make_event();
    zr_does_zeEventDestroy((zr_function)any, event);
    signal_event();
    ck_assert(!is_proof());
}
END_TEST

static ze_result_t create_copy(ze_command_list_handle_t of, ze_command_list_handle_t *out) {
    (void)of;
    *out = event; /* where another list was before */
    return answer;
}

START_TEST(the_copy_of_a_list_is_a_list_that_runs_later) {
    ze_command_list_handle_t out;
    bool later;

    watch_work();
    zr_work_list_made(event, 0, true, true, false);
    zr_does_zeCommandListCreateCloneExp((zr_function)create_copy, list, &out);
    ck_assert_ptr_null(zr_work_runner(out, &later));
    ck_assert(later);
}
END_TEST

int main(void) {
    Suite *s = suite_create("submit");
    TCase *t = tcase_create("proof");

    tcase_add_test(t, a_wait_for_an_event_proves_if_it_succeeds);
    tcase_add_test(t, a_wait_proves_nothing_that_came_after_it_began);
    tcase_add_test(t, an_event_of_a_pool_for_other_processes_proves_nothing);
    tcase_add_test(t, the_events_of_a_pool_of_counters_are_counters);
    tcase_add_test(t, a_counter_that_others_may_advance_proves_nothing);
    tcase_add_test(t, what_was_not_created_is_not_known);
    tcase_add_test(t, a_reset_that_failed_is_none);
    tcase_add_test(t, a_fence_counts_from_its_reset_on);
    tcase_add_test(t, an_event_that_was_destroyed_is_not_known);
    tcase_add_test(t, the_copy_of_a_list_is_a_list_that_runs_later);
    suite_add_tcase(s, t);
    return run_suite(s);
}
