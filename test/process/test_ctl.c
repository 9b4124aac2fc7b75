/*
 * zeroute ctl: settings of a process that runs, changed from outside. LONG=1 makes 10,000 changes under
 * load instead of some hundred.
 */
#define WORK "run_work"
#include "base/settings.h"
#include "ctl/ctl.h"
#include "shell.h"
#include "suite.h"
#include "worker.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* Lets it go on; its exit code. */
static int end(struct worker *w) {
    go_on(w);
    int status = finish(w);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static struct zeroute_process process_of(pid_t pid) {
    struct zeroute_list *list = zeroute_list_new();
    struct zeroute_process p = {0};
    for (size_t i = 0; i < list->count; i++)
        if (list->process[i].pid_inside == pid)
            p = list->process[i];
    zeroute_list_free(list);
    ck_assert_int_eq(p.pid_inside, pid);
    return p;
}

static uint64_t field(pid_t pid, const char *name) {
    struct zeroute_process p = process_of(pid);
    char why[256];
    struct zeroute_snapshot *s = zeroute_snapshot_new(&p, why, sizeof why);
    ck_assert_msg(s != NULL, "%s", why);
    uint64_t value = zeroute_value(s, name, 0);
    zeroute_snapshot_free(s);
    return value;
}

static bool in_force(pid_t pid, const char *setting) {
    ck_assert_int_eq(sh("$Z ctl %d get", pid), 0);
    return strstr(out, setting) != NULL;
}

static const char *const busy[] = {"run_work", "keep", "3", "busy", "wait", "calm", NULL};
static const char *const idle[] = {"run_work", "keep", "3", "wait", "alloc", "2", NULL};

static void setup(void) {
    shell_setup();
    chmod(folder, 0777);
    setenv("ZE_SIMGPU", "devices:1,vram:1GiB", 1);
    signal(SIGPIPE, SIG_IGN);
}

START_TEST(a_change_is_acknowledged_with_the_value_and_the_time_and_shows_everywhere) {
    struct worker w = begin(busy);
    ck_assert_int_eq(sh("date +%%s%%N; $Z ctl %d set limit 512MiB --json; date +%%s%%N", w.pid), 0);
    ck_assert_ptr_nonnull(strstr(out, "\"state\": \"answered\""));
    ck_assert_ptr_nonnull(strstr(out, "\"reply\": \"limit:512MiB\""));
    unsigned long long before = strtoull(out, NULL, 10);
    unsigned long long at = strtoull(strstr(out, "answered_ns\": ") + 14, NULL, 10);
    unsigned long long after = strtoull(strrchr(out, '}') + 1, NULL, 10);
    ck_assert_msg(before <= at && at <= after, "%llu, %llu, %llu", before, at, after);
    ck_assert(in_force(w.pid, "limit:512MiB"));
    ck_assert_uint_eq(field(w.pid, "ctl.changes"), 1);
    ck_assert_int_eq(sh("$Z stat %d", w.pid), 0);
    ck_assert_msg(strstr(out, "limit:512MiB") != NULL, "%s", out);
    ck_assert_int_eq(sh("$Z stat %d --fields | grep settings.changed", w.pid), 0);
    ck_assert_ptr_nonnull(strstr(out, "limit:none -> limit:512MiB"));
    ck_assert_int_eq(end(&w), 0);
}
END_TEST

/* The request is there before the process goes on; its exit code. */
static int asked_at_its_next_call(struct worker *w, const char *request) {
    struct zr_post post = {.process = process_of(w->pid)};
    zr_post(&post, request);
    int code = end(w);
    zr_post_end(&post);
    return code;
}

/* A process that began without a limit has counted nothing: what it holds counts all the same. */
START_TEST(a_limit_counts_what_was_there_before_it) {
    static const struct {
        const char *request;
        int code;
    } expected[] = {{"set limit 5MiB", 0}, {"set limit 4MiB", 3}};
    struct worker w = begin(idle);
    ck_assert_int_eq(asked_at_its_next_call(&w, expected[_i].request), expected[_i].code); /* 3: it was refused */
}
END_TEST

START_TEST(a_host_floor_that_is_set_refuses_what_follows) {
    struct worker w = begin(idle);
    ck_assert_int_eq(asked_at_its_next_call(&w, "set host_floor 1000TiB"), 3);
    ck_assert_uint_eq(field(w.pid, "host_floor.refused_calls"), 1);
}
END_TEST

START_TEST(a_check_is_made_when_it_is_asked_for) {
    struct worker w = begin(busy);
    ck_assert_int_eq(sh("$Z ctl %d check", w.pid), 1);
    ck_assert_msg(strstr(out, "start the process with check:all") != NULL, "%s", out);
    ck_assert_int_eq(end(&w), 0);
    setenv("ZEROUTE_CONF", "check:all", 1);
    w = begin(busy);
    ck_assert_int_eq(sh("$Z ctl %d check", w.pid), 0);
    ck_assert_msg(strstr(out, "verified; 0 errors so far") != NULL, "%s", out);
    ck_assert_int_eq(end(&w), 0);
}
END_TEST

START_TEST(a_process_without_calls_is_waited_for_and_the_request_withdrawn) {
    struct worker w = begin(idle);
    ck_assert_int_eq(sh("$Z ctl %d --timeout 0.7 set limit 1MiB", w.pid), 3);
    ck_assert_msg(strstr(err, " has been idle for ") && strstr(err, "; it answers at its next call\n"), "%s", err);
    ck_assert_msg(strstr(out, "no answer: its last call was ") != NULL, "%s", out);
    ck_assert_int_eq(end(&w), 0); /* with a limit of 1 MiB it would have failed */
    ck_assert_int_eq(sh("$Z ctl %d set limit 1MiB", w.pid), 2);
    ck_assert_ptr_nonnull(strstr(out, "it has ended"));
}
END_TEST

START_TEST(settings_are_broken_where_the_screen_ends) {
    struct worker w = begin(idle);
    ck_assert_int_eq(sh("$Z ctl %d get >get; awk 'length > 80' get; wc -l <get; $Z ctl %d gte", w.pid, w.pid), 2);
    ck_assert_msg(atoi(out) > 1, "%s", out); /* several lines, and none that is longer */
    ck_assert_ptr_nonnull(strstr(err, "did you mean 'get'?"));
    ck_assert_int_eq(end(&w), 0);
}
END_TEST

/* By its owner, while root waits for the answer. */
START_TEST(a_segment_that_is_cut_off_meanwhile_gives_no_answer) {
    struct worker w = begin(idle);
    struct zr_post post = {.process = process_of(w.pid)};
    zr_post(&post, "trim");
    ck_assert_int_eq(post.state, ZR_POST_WAITS);
    kill(w.pid, SIGKILL);
    finish(&w);
    ck_assert_int_eq(truncate(post.process.path, 0), 0);
    ck_assert(!zr_post_answered(&post));
    zr_post_end(&post);
    ck_assert_int_ne(post.state, ZR_POST_ANSWERED);
    unlink(post.process.path);
}
END_TEST

START_TEST(what_cannot_be_changed_says_why) {
    struct worker w = begin(busy);
    ck_assert_int_eq(sh("$Z ctl %d set route native", w.pid), 1);
    ck_assert_ptr_nonnull(strstr(out, "freed on the way that it was allocated"));
    ck_assert_int_eq(sh("$Z ctl %d set inject none", w.pid), 1);
    ck_assert_int_eq(sh("$Z ctl %d set limit lots", w.pid), 2);
    ck_assert_ptr_nonnull(strstr(err, "bad value 'lots' of limit"));
    ck_assert_int_eq(sh("$Z ctl %d set lmit 1GiB", w.pid), 2);
    ck_assert_int_eq(sh("$Z ctl %d explode", w.pid), 2);
    ck_assert_int_eq(sh("$Z ctl --job nosuch trim"), 2);
    ck_assert_uint_eq(field(w.pid, "ctl.changes"), 0);
    ck_assert_int_eq(end(&w), 0);
}
END_TEST

START_TEST(another_user_may_not_ask) {
    if (geteuid() != 0)
        SKIP("needs root, to become another user");
    struct worker w = begin(busy);
    ck_assert_int_eq(sh("cp $B/zeroute z; chmod 755 z .; setpriv --reuid 65534 --clear-groups ./z ctl %d trim", w.pid),
                     2);
    ck_assert_uint_eq(field(w.pid, "cache.trims"), 0);
    ck_assert_int_eq(end(&w), 0);
}
END_TEST

START_TEST(a_cache_that_is_switched_off_keeps_nothing) {
    struct worker w = begin(busy);
    ck_assert_int_eq(sh("$Z ctl %d set cache off", w.pid), 0);
    /* What a thread was putting in at that instant is the next request's. */
    ck_assert_int_eq(sh("$Z ctl %d trim", w.pid), 0);
    uint64_t hits = field(w.pid, "cache.hits");
    for (int i = 0; i < 50; i++)
        ck_assert_uint_le(field(w.pid, "reserved_bytes.all.current"), (3 + 2) << 20);
    ck_assert_uint_le(field(w.pid, "cache.hits"), hits + 2); /* each thread may have been in the middle of one */
    hits += 2;
    ck_assert_int_eq(sh("$Z ctl %d set cache on", w.pid), 0);
    for (int i = 0; i < 2000 && field(w.pid, "cache.hits") <= hits; i++)
        usleep(1000);
    ck_assert_uint_gt(field(w.pid, "cache.hits"), hits);
    ck_assert_int_eq(end(&w), 0);
}
END_TEST

/* Tells a process that waits; the request is there before its next call. */
static void tell_and_go(struct worker *w, const char *request) {
    char line[64] = "";
    struct zr_post post = {.process = process_of(w->pid)};
    zr_post(&post, request);
    go_on(w);
    while (!zr_post_answered(&post))
        usleep(1000);
    ck_assert_msg(post.state == ZR_POST_ANSWERED && post.done, "%s", post.reply);
    zr_post_end(&post);
    for (size_t n = 0; n < sizeof line - 1 && !strchr(line, '\n'); n++) /* until it waits again */
        ck_assert_int_eq(read(w->out, line + n, 1), 1);
}

START_TEST(residency_follows_at_once) {
    static const char *const argv[] = {"run_work", "peer", "wait", "peer", "wait", "peer", "wait", NULL};
    setenv("ZE_SIMGPU", "devices:2,vram:1GiB", 1);
    struct worker w = begin(argv);
    ck_assert_uint_eq(field(w.pid, "residency.peer.granted_calls"), 1);
    tell_and_go(&w, "set residency owner");
    ck_assert_uint_eq(field(w.pid, "residency.peer.granted_calls"), 1);
    ck_assert_uint_eq(field(w.pid, "residency.peer.skipped_calls"), 1);
    tell_and_go(&w, "set residency default");
    ck_assert_uint_eq(field(w.pid, "residency.peer.granted_calls"), 2);
    ck_assert_uint_eq(field(w.pid, "residency.peer.skipped_calls"), 1);
    ck_assert_int_eq(end(&w), 0);
}
END_TEST

START_TEST(a_job_is_asked_as_a_whole) {
    setenv("SLURM_JOB_ID", "81", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_PROCID", "0", 1);
    struct worker a = begin(busy);
    setenv("SLURM_PROCID", "1", 1);
    struct worker b = begin(busy);
    setenv("SLURM_JOB_ID", "82", 1);
    struct worker other = begin(busy);
    ck_assert_int_eq(sh("$Z ctl --job 81.0 set cache_idle 7s"), 0);
    ck_assert(in_force(a.pid, "cache_idle:7s") && in_force(b.pid, "cache_idle:7s"));
    ck_assert(!in_force(other.pid, "cache_idle:7s"));
    ck_assert_int_eq(sh("$Z ctl --all mark epoch 3"), 0);
    ck_assert_int_eq(sh("$Z stat %d --fields | grep 'ctl.mark .*epoch 3'", other.pid), 0);
    ck_assert_int_eq(end(&a) + end(&b) + end(&other), 0);
}
END_TEST

/* Every answer is the value that was asked for, no allocation fails meanwhile, and each change counts. */
START_TEST(no_change_is_lost_or_half_applied_under_load) {
    static const char *const value[] = {"none", "64MiB", "50%", "1GiB", "12.50%", "100MiB"};
    unsigned rounds = getenv("LONG") ? 10000 : 300;
    struct worker w = begin(busy);
    struct zr_post post = {.process = process_of(w.pid)};
    for (unsigned i = 1; i <= rounds; i++) {
        char request[64], expected[64];
        const char *v = value[i % (sizeof value / sizeof *value)];
        uint64_t deadline = zr_post_clock() + 20000000000u;
        snprintf(request, sizeof request, "set limit %s", v);
        snprintf(expected, sizeof expected, "limit:%s", v);
        zr_post(&post, request);
        while (!zr_post_answered(&post) && zr_post_clock() < deadline)
            ;
        zr_post_end(&post);
        ck_assert_msg(post.state == ZR_POST_ANSWERED && post.done, "%s", post.reply);
        ck_assert_str_eq(post.reply, expected);
    }
    ck_assert_uint_eq(field(w.pid, "ctl.changes"), rounds);
    ck_assert_uint_eq(field(w.pid, "limit.refused_calls"), 0);
    ck_assert_int_eq(sh("$Z ctl %d set limit 64MiB", w.pid), 0);
    ck_assert_int_eq(end(&w), 0);
}
END_TEST

START_TEST(requesters_take_turns) {
    struct worker w = begin(busy);
    ck_assert_int_eq(sh("for k in 1 2 3 4; do (for i in $(seq 25); do $Z ctl %d set cache_idle ${k}0${i}ms | grep -q "
                        "\"cache_idle:${k}0${i}ms \" || echo lost; done) & done; wait",
                        w.pid),
                     0);
    ck_assert_str_eq(out, "");
    ck_assert_uint_eq(field(w.pid, "ctl.changes"), 100);
    ck_assert_int_eq(end(&w), 0);
}
END_TEST

START_TEST(a_record_is_switched_on_and_off_and_shows_changes_and_marks) {
    struct worker w = begin(busy);
    ck_assert_int_eq(sh("$Z ctl %d record on r", w.pid), 0);
    ck_assert_int_eq(sh("$Z ctl %d set limit 1GiB && $Z ctl %d mark step seven", w.pid, w.pid), 0);
    ck_assert_int_eq(sh("$Z ctl %d record on elsewhere", w.pid), 1);
    ck_assert_int_eq(sh("$Z ctl %d record off && grep -q 'step seven' r && grep -q 'limit:none -> limit:1GiB' r && "
                        "grep -q 'switched off' r && cp r s && sleep 0.1 && cmp r s",
                        w.pid),
                     0);
    ck_assert_int_eq(end(&w), 0);
}
END_TEST

START_TEST(a_comparison_refuses_runs_that_were_changed) {
    ck_assert_int_eq(
        sh("$Z ab --sim --runs 5 --warmup 0 --a cache:on --b cache:on -- sh -c \"(sleep 0.4; echo) | $W keep 1 "
           "busy wait calm & sleep 0.2; $Z ctl --all set limit 1GiB; wait\""),
        3);
    ck_assert_msg(strstr(out, "changed by zeroute ctl") != NULL, "%s%s", out, err);
}
END_TEST

int main(void) {
    Suite *s = suite_create("ctl");
    TCase *t = tcase_create("ctl");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, shell_teardown);
    tcase_add_test(t, a_change_is_acknowledged_with_the_value_and_the_time_and_shows_everywhere);
    tcase_add_loop_test(t, a_limit_counts_what_was_there_before_it, 0, 2);
    tcase_add_test(t, a_host_floor_that_is_set_refuses_what_follows);
    tcase_add_test(t, a_check_is_made_when_it_is_asked_for);
    tcase_add_test(t, settings_are_broken_where_the_screen_ends);
    tcase_add_test(t, a_process_without_calls_is_waited_for_and_the_request_withdrawn);
    tcase_add_test(t, a_segment_that_is_cut_off_meanwhile_gives_no_answer);
    tcase_add_test(t, what_cannot_be_changed_says_why);
    tcase_add_test(t, another_user_may_not_ask);
    tcase_add_test(t, a_cache_that_is_switched_off_keeps_nothing);
    tcase_add_test(t, residency_follows_at_once);
    tcase_add_test(t, a_job_is_asked_as_a_whole);
    tcase_add_test(t, no_change_is_lost_or_half_applied_under_load);
    tcase_add_test(t, requesters_take_turns);
    tcase_add_test(t, a_record_is_switched_on_and_off_and_shows_changes_and_marks);
    tcase_add_test(t, a_comparison_refuses_runs_that_were_changed);
    suite_add_tcase(s, t);
    return run_suite(s);
}
