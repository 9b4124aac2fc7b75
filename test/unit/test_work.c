/* What of the work that devices were given is proven to be done (src/work/). */
#include "suite.h"

#include "work/work.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int list_a, list_b, event, fence, pool;

static void watch_work(void) {
    setenv("ZEROUTE_CONF", "route:native,reuse:proven,stats:off", 1);
    zr_config_load();
    ck_assert(zr_work_is_watched());
    zr_work_list_made(&list_a, 0, true, true, false);
    zr_work_list_made(&list_b, 1, true, false, false);
    zr_work_pool_made(&pool, false, false);
    zr_work_event_made(&event, &pool, false);
    zr_work_fence_made(&fence, false);
}

static struct zr_runner *runner_of(const void *handle) {
    bool later;

    return zr_work_runner(handle, &later);
}

static struct zr_submission submit_with(const void *list, const void *signal) {
    struct zr_submission s = zr_work_begin(runner_of(list));

    if (signal)
        zr_work_signals_begin(signal);
    zr_work_end(&s);
    if (signal)
        zr_work_signals_end(signal, &s, true);
    return s;
}

static void wait_for(const void *signal) {
    struct zr_awaited a = zr_work_await(signal);

    zr_work_awaited(&a);
}

static void synchronize(const void *list) {
    struct zr_runner *r = runner_of(list);

    zr_work_prove(r, zr_work_waited(r));
}

START_TEST(a_block_is_idle_when_nothing_was_submitted) {
    watch_work();
    ck_assert(zr_work_is_idle(zr_work_freed()));
}
END_TEST

START_TEST(a_block_is_idle_once_all_that_was_submitted_before_its_free_is_proven) {
    uint64_t epoch;

    watch_work();
    submit_with(&list_a, NULL);
    submit_with(&list_b, NULL);
    epoch = zr_work_freed();
    ck_assert(!zr_work_is_idle(epoch));
    synchronize(&list_a);
    ck_assert(!zr_work_is_idle(epoch));
    submit_with(&list_a, NULL); /* after the free: it cannot use the block */
    synchronize(&list_b);
    ck_assert(zr_work_is_idle(epoch));
    ck_assert(!zr_work_is_idle(zr_work_freed()));
}
END_TEST

START_TEST(a_wait_proves_only_what_had_returned_when_it_began) {
    struct zr_runner *r;
    struct zr_submission s;
    uint64_t number, epoch;

    watch_work();
    r = runner_of(&list_a);
    s = zr_work_begin(r);
    number = zr_work_waited(r); /* another thread waits while this one is inside the driver */
    zr_work_end(&s);
    epoch = zr_work_freed();
    zr_work_prove(r, number);
    ck_assert(!zr_work_is_idle(epoch));
    synchronize(&list_a);
    ck_assert(zr_work_is_idle(epoch));
}
END_TEST

START_TEST(a_submission_that_passes_two_hooks_is_one) {
    struct zr_runner *r;
    struct zr_submission outer, inner;

    watch_work();
    r = runner_of(&list_a);
    outer = zr_work_begin(r);
    inner = zr_work_begin(r);
    ck_assert_ptr_null(inner.runner);
    zr_work_end(&inner);
    ck_assert_uint_eq(zr_work_waited(r), outer.number - 1);
    zr_work_end(&outer);
    ck_assert_uint_eq(zr_work_waited(r), outer.number);
}
END_TEST

START_TEST(an_event_proves_what_lies_before_it_only_in_order) {
    uint64_t epoch;

    watch_work();
    submit_with(&list_b, NULL);
    submit_with(&list_b, &event);
    epoch = zr_work_freed();
    wait_for(&event);
    ck_assert(!zr_work_is_idle(epoch));
    synchronize(&list_b);
    zr_work_signal_reset(&event);

    submit_with(&list_a, NULL);
    submit_with(&list_a, &event);
    epoch = zr_work_freed();
    wait_for(&event);
    ck_assert(zr_work_is_idle(epoch));
}
END_TEST

START_TEST(without_an_order_each_submission_needs_its_own_proof) {
    int events[3];
    uint64_t epoch;

    watch_work();
    for (int i = 0; i < 3; i++) {
        zr_work_event_made(&events[i], &pool, false);
        submit_with(&list_b, &events[i]);
    }
    epoch = zr_work_freed();
    wait_for(&events[2]);
    wait_for(&events[0]);
    ck_assert(!zr_work_is_idle(epoch));
    wait_for(&events[1]);
    ck_assert(zr_work_is_idle(epoch));
}
END_TEST

static void submit_after(const void *list, const void *wait, const void *signal) {
    struct zr_submission s = zr_work_begin(runner_of(list));

    zr_work_signals_begin(signal);
    zr_work_signals_after(signal, &s, 1, &wait);
    zr_work_end(&s);
    zr_work_signals_end(signal, &s, true);
}

enum { CHAIN = 200 };
static int chain[CHAIN];

/* Each command begins after the one before it, by turns on two lists without an order of their own. */
static uint64_t submit_chain(void) {
    static int list_c;
    const void *lists[] = {&list_b, &list_c};

    zr_work_list_made(&list_c, 1, true, false, false);
    for (int i = 0; i < CHAIN; i++)
        zr_work_event_made(&chain[i], &pool, false);
    submit_with(&list_b, &chain[0]);
    for (int i = 1; i < CHAIN; i++)
        submit_after(lists[i / 3 % 2], &chain[i - 1], &chain[i]);
    return zr_work_freed();
}

START_TEST(commands_that_wait_for_each_other_are_proven_by_the_last_one) {
    uint64_t epoch;

    watch_work();
    epoch = submit_chain();
    wait_for(&chain[CHAIN - 2]);
    ck_assert(!zr_work_is_idle(epoch));
    wait_for(&chain[CHAIN - 1]);
    ck_assert(zr_work_is_idle(epoch));
    submit_with(&list_b, NULL); /* one that nobody waits for breaks the chain */
    epoch = submit_chain();
    wait_for(&chain[CHAIN - 1]);
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

/* What has let a command of the chain begin may not have been the command before it. */
START_TEST(a_chain_proves_nothing_once_a_signal_in_it_is_doubtful) {
    struct zr_awaited last;
    uint64_t epoch;

    watch_work();
    epoch = submit_chain();
    last = zr_work_await(&chain[CHAIN - 1]);
    switch (_i) {
    case 0:
        zr_work_signal_unknown(&chain[7], false); /* the host signals it */
        break;
    case 1:
        zr_work_signal_reset(&chain[7]);
        submit_with(&list_a, &chain[7]);
        break;
    case 2:
        submit_with(&list_a, &chain[7]);
        break;
    default:
        zr_work_event_gone(&chain[7]);
        zr_work_event_made(&chain[7], &pool, false);
        submit_with(&list_a, &chain[7]);
    }
    synchronize(&list_a);
    zr_work_awaited(&last);
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

/* It was signalled by the host before the second command was told to wait for it. */
START_TEST(waiting_for_a_doubtful_event_proves_nothing_of_it) {
    uint64_t epoch;
    int second;

    watch_work();
    zr_work_event_made(&second, &pool, false);
    submit_with(&list_a, &event);
    zr_work_signal_unknown(&event, false);
    submit_after(&list_b, &event, &second);
    epoch = zr_work_freed();
    wait_for(&second);
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

/* A counter that another submission has taken over says nothing of what the one before it waited for. */
START_TEST(what_a_replaced_submission_waited_for_is_not_proven) {
    uint64_t epoch;
    int counter;

    watch_work();
    zr_work_event_made(&counter, NULL, true);
    submit_with(&list_a, &event);
    submit_after(&list_b, &event, &counter);
    submit_with(&list_b, &counter);
    epoch = zr_work_freed();
    wait_for(&counter);
    synchronize(&list_b);
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

/* Adapters use an event again when what comes after it is done. */
START_TEST(a_chain_whose_events_are_used_again_proves_as_before) {
    uint64_t epoch;

    watch_work();
    submit_chain();
    wait_for(&chain[CHAIN - 1]);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < CHAIN; i++)
            zr_work_signal_reset(&chain[i]);
        epoch = submit_chain();
        wait_for(&chain[CHAIN - 1]);
        ck_assert(zr_work_is_idle(epoch));
    }
}
END_TEST

START_TEST(an_event_that_was_not_reset_proves_nothing) {
    uint64_t epoch;

    watch_work();
    submit_with(&list_a, &event);
    synchronize(&list_a);
    submit_with(&list_a, &event);
    epoch = zr_work_freed();
    wait_for(&event);
    ck_assert(!zr_work_is_idle(epoch));
    synchronize(&list_a);
    zr_work_signal_reset(&event);
    submit_with(&list_a, &event);
    epoch = zr_work_freed();
    wait_for(&event);
    ck_assert(zr_work_is_idle(epoch));
}
END_TEST

START_TEST(an_event_that_was_reset_while_its_signal_was_to_come_proves_nothing_any_more) {
    uint64_t epoch;

    watch_work();
    submit_with(&list_a, &event);
    zr_work_signal_reset(&event);
    submit_with(&list_b, &event);
    epoch = zr_work_freed();
    wait_for(&event);
    ck_assert(!zr_work_is_idle(epoch));
    synchronize(&list_a);
    wait_for(&event);
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

/* List A's signal is forgotten with list B's, and comes after the reset. */
START_TEST(an_event_that_two_lists_signal_proves_nothing_after_a_reset_while_one_is_to_come) {
    uint64_t epoch;

    watch_work();
    submit_with(&list_a, &event);
    submit_with(&list_b, &event);
    synchronize(&list_b);
    zr_work_signal_reset(&event);
    submit_with(&list_b, &event);
    epoch = zr_work_freed();
    wait_for(&event);
    synchronize(&list_a);
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

/* A list that a queue executes again and again signals it. */
START_TEST(an_event_that_is_unknown_for_ever_proves_nothing_after_a_reset_either) {
    uint64_t epoch;

    watch_work();
    zr_work_signal_unknown(&event, true);
    zr_work_signal_reset(&event);
    submit_with(&list_a, &event);
    epoch = zr_work_freed();
    wait_for(&event);
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

/* The driver has refused it: an event that counts, and was never appended, counts as signalled. */
START_TEST(an_event_of_a_submission_that_failed_proves_nothing) {
    struct zr_submission s;
    uint64_t epoch;
    int counter;

    watch_work();
    zr_work_event_made(&counter, NULL, true);
    submit_with(&list_a, NULL);
    s = zr_work_begin(runner_of(&list_a));
    zr_work_signals_begin(&counter);
    zr_work_end(&s);
    zr_work_signals_end(&counter, &s, false);
    epoch = zr_work_freed();
    wait_for(&counter);
    ck_assert(!zr_work_is_idle(epoch));
    submit_with(&list_a, &counter);
    wait_for(&counter);
    ck_assert(zr_work_is_idle(epoch));
}
END_TEST

START_TEST(an_event_in_the_place_of_one_that_is_unknown_is_as_good_as_any) {
    uint64_t epoch;

    watch_work();
    zr_work_signal_unknown(&event, false);
    zr_work_event_gone(&event);
    zr_work_event_made(&event, &pool, false);
    submit_with(&list_a, &event);
    epoch = zr_work_freed();
    wait_for(&event);
    ck_assert(zr_work_is_idle(epoch));
}
END_TEST

START_TEST(an_event_that_a_submission_in_progress_may_signal_proves_nothing) {
    struct zr_awaited before;
    struct zr_submission s;
    uint64_t epoch;

    watch_work();
    submit_with(&list_a, &event);
    epoch = zr_work_freed();
    before = zr_work_await(&event);
    s = zr_work_begin(runner_of(&list_b));
    zr_work_signals_begin(&event);
    zr_work_awaited(&before); /* the driver may have signalled it for list B */
    ck_assert(!zr_work_is_idle(epoch));
    wait_for(&event);
    ck_assert(!zr_work_is_idle(epoch));
    zr_work_end(&s);
    zr_work_signals_end(&event, &s, true);
}
END_TEST

START_TEST(an_event_in_the_place_of_one_whose_signal_is_to_come_proves_nothing) {
    uint64_t epoch;

    watch_work();
    submit_with(&list_a, &event);
    zr_work_event_gone(&event);
    zr_work_event_made(&event, &pool, false);
    submit_with(&list_b, &event);
    epoch = zr_work_freed();
    wait_for(&event);
    synchronize(&list_a);
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

/* Its handle may be that of an event which was opened from another process. */
START_TEST(an_event_that_was_destroyed_proves_nothing) {
    uint64_t epoch;

    watch_work();
    submit_with(&list_a, &event);
    epoch = zr_work_freed();
    zr_work_event_gone(&event);
    wait_for(&event);
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

START_TEST(a_counter_stands_for_its_newest_submission_alone) {
    int counter;
    struct zr_awaited before;
    uint64_t epoch;

    watch_work();
    zr_work_event_made(&counter, NULL, true);
    submit_with(&list_a, &counter);
    before = zr_work_await(&counter);
    submit_with(&list_a, &counter);
    epoch = zr_work_freed();
    zr_work_awaited(&before); /* which of the two has ended the wait is not known */
    ck_assert(!zr_work_is_idle(epoch));
    wait_for(&counter);
    ck_assert(zr_work_is_idle(epoch));

    submit_with(&list_a, &counter);
    before = zr_work_await(&counter);
    submit_with(&list_b, &counter);
    epoch = zr_work_freed();
    synchronize(&list_b);
    zr_work_awaited(&before); /* list B may have ended it */
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

START_TEST(the_events_of_a_pool_of_counters_are_counters) {
    int counters, counter;
    uint64_t epoch;

    watch_work();
    zr_work_pool_made(&counters, false, true);
    zr_work_event_made(&counter, &counters, false);
    submit_with(&list_a, &counter);
    submit_with(&list_a, &counter);
    epoch = zr_work_freed();
    wait_for(&counter);
    ck_assert(zr_work_is_idle(epoch));
}
END_TEST

START_TEST(what_others_may_signal_proves_nothing) {
    int shared_pool, exported_pool, shared, exported, of_unknown, signalled;
    const void *const all[] = {&shared, &exported, &of_unknown, &signalled, &event};

    watch_work();
    zr_work_pool_made(&shared_pool, true, false);
    zr_work_event_made(&shared, &shared_pool, false);
    zr_work_pool_made(&exported_pool, false, false);
    zr_work_pool_shared(&exported_pool);
    zr_work_event_made(&exported, &exported_pool, false);
    zr_work_event_made(&of_unknown, &all, false);
    zr_work_fence_made(&signalled, true);
    zr_work_signal_unknown(&event, false);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        uint64_t epoch;

        submit_with(&list_a, all[i]);
        epoch = zr_work_freed();
        wait_for(all[i]);
        ck_assert_msg(!zr_work_is_idle(epoch), "signal %u", i);
    }
}
END_TEST

/* It was opened from another process: nobody told us that it was made. */
START_TEST(a_pool_in_the_place_of_one_that_was_destroyed_is_not_known) {
    struct zr_submission last;
    uint64_t epoch;
    int opened;

    watch_work();
    last = zr_work_going(&pool);
    zr_work_gone(&pool, &last, true);
    zr_work_event_made(&opened, &pool, false);
    submit_with(&list_a, &opened);
    epoch = zr_work_freed();
    wait_for(&opened);
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

/* Proofs are kept apart for 64 submissions after the last one before which all are proven. */
START_TEST(a_proof_far_ahead_is_no_proof_of_another_submission) {
    int events[70];
    uint64_t epoch;

    watch_work();
    for (int i = 0; i < 70; i++) {
        zr_work_event_made(&events[i], &pool, false);
        submit_with(&list_b, &events[i]);
    }
    epoch = zr_work_freed();
    for (int i = 1; i < 70; i++)
        wait_for(&events[i]);
    ck_assert(!zr_work_is_idle(epoch));
    wait_for(&events[0]);
    ck_assert(!zr_work_is_idle(epoch)); /* the last six came too early */
    for (int i = 64; i < 70; i++)
        wait_for(&events[i]);
    ck_assert(zr_work_is_idle(epoch));
}
END_TEST

START_TEST(a_reset_after_a_proof_without_an_order_makes_an_event_good_again) {
    uint64_t epoch;

    watch_work();
    submit_with(&list_b, NULL);
    submit_with(&list_b, &event);
    wait_for(&event);
    zr_work_signal_reset(&event);
    synchronize(&list_b);
    submit_with(&list_b, &event);
    epoch = zr_work_freed();
    wait_for(&event);
    ck_assert(zr_work_is_idle(epoch));
}
END_TEST

START_TEST(a_list_that_was_destroyed_has_done_its_work_if_the_driver_says_so) {
    struct zr_submission last;
    uint64_t epoch;

    watch_work();
    submit_with(&list_a, NULL);
    epoch = zr_work_freed();
    last = zr_work_going(&list_a);
    zr_work_gone(&list_a, &last, false);
    ck_assert(!zr_work_is_idle(epoch));
    last = zr_work_going(&list_a);
    zr_work_gone(&list_a, &last, true);
    ck_assert(zr_work_is_idle(epoch));
    ck_assert_ptr_null(runner_of(&list_a));
}
END_TEST

static void note_runner(struct zr_runner *runner, void *arg) {
    *(struct zr_runner **)arg = runner;
}

START_TEST(a_list_in_the_place_of_another_is_what_it_was_made_as) {
    struct zr_runner *r, *of_card[2] = {NULL, NULL};
    struct zr_submission last;
    uint64_t epoch;

    watch_work();
    submit_with(&list_a, NULL);
    last = zr_work_going(&list_a);
    zr_work_gone(&list_a, &last, true);
    zr_work_list_made(&list_a, 5, true, false, true); /* another card, no order, synchronous */
    r = runner_of(&list_a);
    zr_work_each(0, note_runner, &of_card[0]);
    zr_work_each(5, note_runner, &of_card[1]);
    ck_assert_ptr_null(of_card[0]);
    ck_assert_ptr_eq(of_card[1], r);
    ck_assert(zr_runner_is_synchronous(r));
    submit_with(&list_a, NULL);
    submit_with(&list_a, &event);
    epoch = zr_work_freed();
    wait_for(&event);
    ck_assert(!zr_work_is_idle(epoch));
    zr_work_list_made(&list_a, 2, true, true, false); /* and back */
    of_card[0] = of_card[1] = NULL;
    zr_work_each(2, note_runner, &of_card[0]);
    zr_work_each(5, note_runner, &of_card[1]);
    ck_assert_ptr_eq(of_card[0], r);
    ck_assert_ptr_null(of_card[1]);
    ck_assert(!zr_runner_is_synchronous(r));
    zr_work_signal_reset(&event);
    submit_with(&list_a, &event);
    epoch = zr_work_freed();
    ck_assert(!zr_work_is_idle(epoch));
}
END_TEST

/* Two threads submit to one list, and the second one returns first, or last. */
static pthread_barrier_t step;

static void *submit_by_steps(void *runner) {
    struct zr_submission s = zr_work_begin(runner);

    pthread_barrier_wait(&step);
    pthread_barrier_wait(&step);
    zr_work_end(&s);
    return NULL;
}

START_TEST(what_two_threads_have_submitted_is_proven_once_both_have_returned) {
    struct zr_submission first;
    struct zr_runner *r;
    pthread_t second;
    uint64_t epoch;

    watch_work();
    ck_assert_int_eq(pthread_barrier_init(&step, NULL, 2), 0);
    r = runner_of(&list_a);
    first = zr_work_begin(r);
    ck_assert_int_eq(pthread_create(&second, NULL, submit_by_steps, r), 0);
    pthread_barrier_wait(&step);
    epoch = zr_work_freed();
    if (_i)
        zr_work_end(&first);
    synchronize(&list_a);
    ck_assert(!zr_work_is_idle(epoch));
    pthread_barrier_wait(&step);
    ck_assert_int_eq(pthread_join(second, NULL), 0);
    synchronize(&list_a);
    ck_assert(zr_work_is_idle(epoch) == _i);
    if (!_i)
        zr_work_end(&first);
    synchronize(&list_a);
    ck_assert(zr_work_is_idle(epoch));
}
END_TEST

START_TEST(more_epochs_than_a_runner_keeps_apart_are_put_to_an_earlier_one) {
    uint64_t epoch[40];
    struct zr_runner *r;

    watch_work();
    r = runner_of(&list_a);
    for (unsigned i = 0; i < 40; i++) {
        submit_with(&list_a, NULL);
        epoch[i] = zr_work_freed();
    }
    for (unsigned i = 0; i < 40; i++) {
        zr_work_prove(r, i); /* submission i + 1, which block i was used by, is not among them */
        ck_assert_msg(!zr_work_is_idle(epoch[i]), "block %u after %u submissions", i, i);
    }
    zr_work_prove(r, 40);
    ck_assert(zr_work_is_idle(epoch[39]));
}
END_TEST

START_TEST(after_something_was_missed_nothing_is_sure) {
    watch_work();
    ck_assert(zr_work_is_sure());
    zr_work_lost("a %s", "test");
    ck_assert(!zr_work_is_sure());
    ck_assert_str_eq(zr_work_why(), "a test");
}
END_TEST

START_TEST(a_child_of_fork_starts_with_nothing) {
    watch_work();
    submit_with(&list_a, NULL);
    zr_work_lost("a test");
    zr_work_fork_child();
    ck_assert(zr_work_is_sure());
    ck_assert_str_eq(zr_work_why(), "");
    ck_assert_ptr_null(runner_of(&list_a));
    ck_assert(zr_work_is_idle(zr_work_freed()));
}
END_TEST

static bool sure_during_fork;

static void look_during_fork(void) {
    sure_during_fork = zr_work_is_sure();
}

/* A library may have been loaded that passes us by. Handlers of what is registered first are called last. */
START_TEST(nothing_is_sure_while_the_libraries_cannot_be_listed) {
    pid_t child;

    watch_work();
    ck_assert_int_eq(pthread_atfork(look_during_fork, NULL, NULL), 0);
    zr_fork_arm();
    ck_assert(zr_work_is_sure());
    sure_during_fork = true;
    child = fork();
    if (child == 0)
        _exit(0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert(!sure_during_fork);
    ck_assert(zr_work_is_sure());
}
END_TEST

int main(void) {
    Suite *s = suite_create("work");
    TCase *t = tcase_create("proof");

    tcase_add_test(t, a_block_is_idle_when_nothing_was_submitted);
    tcase_add_test(t, a_block_is_idle_once_all_that_was_submitted_before_its_free_is_proven);
    tcase_add_test(t, a_wait_proves_only_what_had_returned_when_it_began);
    tcase_add_test(t, a_submission_that_passes_two_hooks_is_one);
    tcase_add_test(t, an_event_proves_what_lies_before_it_only_in_order);
    tcase_add_test(t, without_an_order_each_submission_needs_its_own_proof);
    tcase_add_test(t, commands_that_wait_for_each_other_are_proven_by_the_last_one);
    tcase_add_loop_test(t, a_chain_proves_nothing_once_a_signal_in_it_is_doubtful, 0, 4);
    tcase_add_test(t, waiting_for_a_doubtful_event_proves_nothing_of_it);
    tcase_add_test(t, what_a_replaced_submission_waited_for_is_not_proven);
    tcase_add_test(t, a_chain_whose_events_are_used_again_proves_as_before);
    tcase_add_test(t, an_event_that_was_not_reset_proves_nothing);
    tcase_add_test(t, an_event_that_was_reset_while_its_signal_was_to_come_proves_nothing_any_more);
    tcase_add_test(t, an_event_that_two_lists_signal_proves_nothing_after_a_reset_while_one_is_to_come);
    tcase_add_test(t, an_event_that_is_unknown_for_ever_proves_nothing_after_a_reset_either);
    tcase_add_test(t, an_event_of_a_submission_that_failed_proves_nothing);
    tcase_add_test(t, an_event_in_the_place_of_one_that_is_unknown_is_as_good_as_any);
    tcase_add_test(t, an_event_that_a_submission_in_progress_may_signal_proves_nothing);
    tcase_add_test(t, an_event_in_the_place_of_one_whose_signal_is_to_come_proves_nothing);
    tcase_add_test(t, an_event_that_was_destroyed_proves_nothing);
    tcase_add_test(t, a_counter_stands_for_its_newest_submission_alone);
    tcase_add_test(t, the_events_of_a_pool_of_counters_are_counters);
    tcase_add_test(t, what_others_may_signal_proves_nothing);
    tcase_add_test(t, a_pool_in_the_place_of_one_that_was_destroyed_is_not_known);
    tcase_add_test(t, a_proof_far_ahead_is_no_proof_of_another_submission);
    tcase_add_test(t, a_reset_after_a_proof_without_an_order_makes_an_event_good_again);
    tcase_add_test(t, a_list_that_was_destroyed_has_done_its_work_if_the_driver_says_so);
    tcase_add_test(t, a_list_in_the_place_of_another_is_what_it_was_made_as);
    tcase_add_loop_test(t, what_two_threads_have_submitted_is_proven_once_both_have_returned, 0, 2);
    tcase_add_test(t, more_epochs_than_a_runner_keeps_apart_are_put_to_an_earlier_one);
    tcase_add_test(t, after_something_was_missed_nothing_is_sure);
    tcase_add_test(t, a_child_of_fork_starts_with_nothing);
    tcase_add_test(t, nothing_is_sure_while_the_libraries_cannot_be_listed);
    suite_add_tcase(s, t);
    return run_suite(s);
}
