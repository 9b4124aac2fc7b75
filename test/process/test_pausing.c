/*
 * zeroute pause and resume from outside: what is asked of which process, what is said of it, and what is left when a
 * process refuses, ends, or does not answer. The processes are children of the suite with a segment of their own, which
 * answer as they are told; what pausing does to device memory is another suite's matter.
 */
#define WORK "run_work"
#include "shell.h"
#include "stats/stats.h"
#include "suite.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

/* How a process answers. */
struct nature {
    bool off;          /* it was started without pause:on */
    bool refuses;      /* to be paused */
    bool mute;         /* reads no request */
    bool ends;         /* as soon as it is asked */
    unsigned takes_ms; /* for a pause */
    const char *room;  /* resumes only when this file is there */
};

static const struct nature *nature;
static uint64_t state;
static bool waits;

static void enter(uint64_t to) {
    state = to;
    zr_gauge(ZR_G_PAUSE_STATE, to);
    zr_gauge(ZR_G_PAUSE_SINCE, zr_clock(CLOCK_REALTIME));
    zr_gauge(ZR_G_PAUSE_BYTES, to ? 64 * MIB : 0);
    zr_gauge(ZR_G_PAUSE_HOST_BYTES, to ? 64 * MIB : 0);
    zr_gauge(ZR_G_PAUSE_KEPT_BYTES, to ? MIB : 0);
    zr_gauge(ZR_G_PAUSE_WAITING, to ? 2 : 0);
}

static bool pause_it(const char *text, char *reply, size_t size) {
    if (state == 2) {
        snprintf(reply, size, "ok paused already");
        return true;
    }
    if (nature->refuses) {
        zr_gauge(ZR_G_PAUSE_REFUSED, 1);
        zr_text(ZR_T_PAUSE, "a closed command list lives");
        snprintf(reply, size, "refused: a closed command list lives");
        return false;
    }
    zr_text(ZR_T_MARK, text);
    enter(1);
    usleep(nature->takes_ms * 1000);
    enter(2);
    snprintf(reply, size, "ok paused");
    return true;
}

static bool resume_it(const char *text, char *reply, size_t size) {
    bool room = !nature->room || access(nature->room, F_OK) == 0;

    waits = !room && strstr(text, "wait=1");
    if (room)
        enter(0);
    if (room || waits)
        snprintf(reply, size, room ? "ok" : "ok waiting: 64 MiB do not fit");
    else
        snprintf(reply, size, "refused: 64 MiB do not fit");
    return room || waits;
}

static bool answer(const char *text, char *reply, size_t size) {
    if (nature->ends)
        _exit(0);
    return strncmp(text, "pause", 5) == 0 ? pause_it(text, reply, size) : resume_it(text, reply, size);
}

static void live(const struct nature *n, int ready) {
    nature = n;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    zr_control_handler = answer;
    if (!zr_stats_open())
        _exit(9);
    if (!n->off)
        enter(0);
    if (write(ready, "r", 1) != 1)
        _exit(9);
    for (;;) {
        if (!n->mute)
            zr_control_check();
        if (waits && access(n->room, F_OK) == 0) {
            waits = false;
            enter(0);
        }
        usleep(500);
    }
}

static pid_t start(const struct nature *n) {
    int ready[2];
    char byte;

    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0)
        live(n, ready[1]);
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return pid;
}

static pid_t start_rank(const char *rank, const struct nature *n) {
    setenv("SLURM_JOB_ID", "81", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_PROCID", rank, 1);
    return start(n);
}

static void end(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    sh("$Z gc %d", pid);
}

/* Whether `zeroute stat` shows it in this state of a pause. */
static bool is_in_state(pid_t pid, const char *name) {
    char text[64];

    ck_assert_int_eq(sh("$Z stat --json %d", pid), 0);
    const char *pause = strstr(out, "\"pause\": {");
    snprintf(text, sizeof text, "\"state\": \"%s\"", name);
    return pause && strstr(pause, text) && strstr(pause, text) - pause < 40;
}

static void setup(void) {
    shell_setup();
    chmod(folder, 0755);
}

static const struct nature willing, slow = {.takes_ms = 1500}, refusing = {.refuses = true};

START_TEST(a_process_is_paused_and_resumed_and_says_what_was_given_back) {
    pid_t pid = start(&willing);
    ck_assert_int_eq(sh("$Z pause %d", pid), 0);
    ck_assert_msg(strstr(out, "paused in ") && strstr(out, "64.0 MiB given back") &&
                      strstr(out, "64.0 MiB of contents in its"),
                  "%s", out);
    ck_assert(is_in_state(pid, "paused"));
    ck_assert_int_eq(sh("$Z pause %d", pid), 0);
    ck_assert_msg(strstr(out, "was paused already") != NULL, "%s", out);
    ck_assert_int_eq(sh("$Z resume %d", pid), 0);
    ck_assert_msg(strstr(out, "resumed in ") && strstr(out, "64.0 MiB returned"), "%s", out);
    ck_assert(is_in_state(pid, "running"));
    ck_assert_int_eq(sh("$Z resume %d", pid), 0);
    ck_assert_msg(strstr(out, "was not paused") != NULL, "%s", out);
    end(pid);
}
END_TEST

START_TEST(a_process_that_cannot_be_paused_says_how_to_start_it) {
    static const struct nature off = {.off = true};
    pid_t pid = start(&off);
    ck_assert_int_eq(sh("$Z pause %d", pid), 2);
    ck_assert_msg(strstr(err, "was not started with pause:on: start it with 'zeroute run --pause on") != NULL, "%s",
                  err);
    ck_assert_int_eq(sh("$Z resume %d", pid), 2);
    ck_assert_int_eq(sh("$Z pause 1"), 2);
    ck_assert_int_eq(sh("$Z pause --job nosuch"), 2);
    ck_assert_int_eq(sh("$Z pause"), 2);
    ck_assert_int_eq(sh("$Z pause --job 81.0 %d", pid), 2);
    end(pid);
}
END_TEST

START_TEST(a_refusal_says_why) {
    pid_t pid = start(&refusing);
    ck_assert_int_eq(sh("$Z pause %d", pid), 1);
    ck_assert_msg(strstr(out, "refused, and runs on: a closed command list lives") != NULL, "%s", out);
    ck_assert_int_eq(sh("$Z stat %d", pid), 0);
    ck_assert_msg(strstr(out, "a closed command list lives") != NULL, "%s", out);
    end(pid);
}
END_TEST

START_TEST(what_is_asked_for_reaches_the_process) {
    pid_t pid = start(&willing);
    ck_assert_int_eq(sh("$Z pause --to . --timeout 2.5 %d && $Z stat --fields %d | grep ctl.mark", pid, pid), 0);
    ck_assert_msg(strstr(out, "contents in .") && strstr(out, "to=/tmp/zeroute-test.") &&
                      strstr(out, " timeout=2500ms"),
                  "%s", out);
    ck_assert_int_eq(
        sh("$Z resume %d && $Z pause --to nothing %d && $Z stat --fields %d | grep ctl.mark", pid, pid, pid), 0);
    ck_assert_msg(strstr(out, "contents lost") && strstr(out, "to=nothing timeout=10000ms"), "%s", out);
    end(pid);
}
END_TEST

START_TEST(a_folder_that_others_could_exchange_is_refused) {
    pid_t pid = start(&willing);
    ck_assert_int_eq(sh("mkdir d open 'a b' && chmod 777 open && ln -s d link && $Z pause --to link/ %d", pid), 2);
    ck_assert_msg(strstr(err, "it is a symbolic link") != NULL, "%s", err);
    ck_assert_int_eq(sh("$Z pause --to open %d", pid), 2);
    ck_assert_msg(strstr(err, "other users may exchange") != NULL, "%s", err);
    ck_assert_int_eq(sh("$Z pause --to nosuch %d", pid), 2);
    ck_assert_int_eq(sh("$Z pause --to 'a b' %d", pid), 2);
    ck_assert_int_eq(sh("touch f && $Z pause --to f %d", pid), 2);
    if (geteuid() == 0) {
        ck_assert_int_eq(sh("chown 65534 d && $Z pause --to d %d", pid), 2);
        ck_assert_msg(strstr(err, "belongs to another user") != NULL, "%s", err);
    }
    ck_assert(is_in_state(pid, "running"));
    end(pid);
}
END_TEST

START_TEST(a_job_is_paused_as_a_whole_or_not_at_all) {
    pid_t a = start_rank("0", &willing), b = start_rank("1", &willing), c;
    ck_assert_int_eq(sh("$Z pause --job 81.0"), 0);
    ck_assert(is_in_state(a, "paused") && is_in_state(b, "paused"));
    ck_assert_int_eq(sh("$Z stat"), 0);
    ck_assert_msg(strstr(out, "2 paused") != NULL, "%s", out);
    ck_assert_int_eq(sh("$Z resume --job slurm:81.0"), 0);
    ck_assert(is_in_state(a, "running") && is_in_state(b, "running"));
    c = start_rank("2", &refusing);
    ck_assert_int_eq(sh("$Z pause --job 81.0"), 1);
    ck_assert_msg(strstr(out, "rank 0  was paused, and is resumed again") &&
                      strstr(out, "rank 2  refused, and runs on"),
                  "%s", out);
    ck_assert(is_in_state(a, "running") && is_in_state(b, "running"));
    end(a);
    end(b);
    end(c);
}
END_TEST

START_TEST(a_rank_that_was_paused_before_stays_so_when_another_refuses) {
    pid_t a = start_rank("0", &willing), b = start_rank("1", &refusing);
    ck_assert_int_eq(sh("$Z pause %d; $Z pause --job 81.0", a), 1);
    ck_assert(is_in_state(a, "paused"));
    end(a);
    end(b);
}
END_TEST

START_TEST(a_paused_process_shows_as_such) {
    pid_t pid = start(&willing);
    ck_assert_int_eq(sh("$Z stat; $Z top --once"), 0);
    ck_assert_msg(!strstr(out, "paused"), "%s", out);
    ck_assert_int_eq(sh("$Z pause %d && $Z stat | grep '^ *%d ' | grep -c ' paused '", pid, pid), 0);
    ck_assert_int_eq(sh("$Z top --once | grep -c '(paused) '"), 0);
    ck_assert_int_eq(sh("$Z stat %d", pid), 0);
    ck_assert_msg(strstr(out, "64.0 MiB given back") && strstr(out, "2 threads wait"), "%s", out);
    ck_assert_int_eq(sh("$Z stat --prometheus %d | grep '^zeroute_pause'", pid), 0);
    ck_assert_msg(strstr(out, "zeroute_pause_processes{") && strstr(out, "state=\"paused\"} 1\n") &&
                      strstr(out, "zeroute_pause_given_back_bytes{") && strstr(out, "} 67108864\n"),
                  "%s", out);
    ck_assert_int_eq(sh("$Z stat --prometheus | grep -c '^# HELP zeroute_pause_processes '"), 0);
    end(pid);
}
END_TEST

START_TEST(two_pausers_at_once_do_no_harm) {
    static const struct nature some = {.takes_ms = 300};
    pid_t pid = start(&some);
    ck_assert_int_eq(sh("for i in 1 2 3; do ($Z pause %d >o$i; echo $? >c$i) & done; wait; cat c1 c2 c3 o1 o2 o3", pid),
                     0);
    ck_assert_msg(strncmp(out, "0\n0\n0\n", 6) == 0 && strstr(out, "paused in"), "%s", out);
    ck_assert(is_in_state(pid, "paused"));
    end(pid);
}
END_TEST

START_TEST(a_command_that_is_interrupted_resumes_what_it_has_paused) {
    pid_t pid = start(&slow);
    ck_assert_int_eq(sh("$Z pause %d & p=$!; until $Z stat --json %d | grep -q ': \"pausing\"'; do :; done; kill $p; "
                        "wait $p",
                        pid, pid),
                     3);
    ck_assert_msg(strstr(out, "was paused, and is resumed again") != NULL, "%s", out);
    ck_assert(is_in_state(pid, "running"));
    end(pid);
}
END_TEST

START_TEST(a_command_that_is_killed_leaves_a_process_that_can_be_resumed) {
    pid_t pid = start(&slow);
    ck_assert_int_eq(
        sh("$Z pause %d & p=$!; until $Z stat --json %d | grep -q ': \"pausing\"'; do :; done; kill -9 $p; wait $p; "
           "$Z resume %d",
           pid, pid, pid),
        0);
    ck_assert(is_in_state(pid, "running"));
    end(pid);
}
END_TEST

START_TEST(a_process_that_ends_meanwhile_is_said_to_have_ended) {
    static const struct nature brief = {.ends = true};
    pid_t pid = start(&brief);
    ck_assert_int_eq(sh("$Z pause %d", pid), 2);
    ck_assert_msg(strstr(out, "has ended") != NULL, "%s", out);
    waitpid(pid, NULL, 0);
    pid_t a = start_rank("0", &willing), b = start_rank("1", &brief);
    ck_assert_int_eq(sh("$Z pause --job 81.0"), 0);
    ck_assert(is_in_state(a, "paused"));
    end(a);
    end(b);
}
END_TEST

START_TEST(a_process_that_does_not_answer_is_not_paused_later) {
    static const struct nature mute = {.mute = true};
    pid_t pid = start(&mute), other = start_rank("0", &willing), same = start_rank("1", &mute);
    ck_assert_int_eq(sh("$Z pause --timeout 0 %d", pid), 3);
    ck_assert_msg(strstr(out, "no answer: it has not begun, and the request was withdrawn") != NULL, "%s", out);
    ck_assert_int_eq(sh("$Z pause --timeout 0 --job 81.0"), 3);
    ck_assert(is_in_state(other, "running"));
    end(pid);
    end(other);
    end(same);
}
END_TEST

START_TEST(a_resume_without_room_says_so_and_waits_if_it_is_told_to) {
    char room[128];
    struct nature poor = {.room = room};
    snprintf(room, sizeof room, "%s/room", folder);
    pid_t pid = start(&poor);
    ck_assert_int_eq(sh("$Z pause %d >p; $Z resume %d", pid, pid), 1);
    ck_assert_msg(strstr(out, "stays paused: 64 MiB do not fit") != NULL, "%s", out);
    ck_assert_int_eq(sh("$Z resume --wait %d & p=$!; sleep 0.5; kill $p; wait $p", pid), 3);
    ck_assert(is_in_state(pid, "paused"));
    ck_assert_int_eq(sh("$Z resume --wait %d & p=$!; sleep 0.5; touch room; wait $p", pid), 0);
    ck_assert_msg(strstr(out, "resumed in ") != NULL, "%s", out);
    ck_assert(is_in_state(pid, "running"));
    end(pid);
}
END_TEST

START_TEST(another_user_may_not_pause) {
    if (geteuid() != 0)
        SKIP("needs root, to become another user");
    pid_t pid = start(&willing);
    ck_assert_int_eq(sh("cp $B/zeroute z; chmod 755 z .; setpriv --reuid 65534 --clear-groups ./z pause %d", pid), 2);
    ck_assert(is_in_state(pid, "running"));
    end(pid);
}
END_TEST

START_TEST(json_says_what_the_lines_say) {
    pid_t pid = start(&willing);
    ck_assert_int_eq(sh("$Z pause --json %d >p.json && python3 -c \"import json; d = json.load(open('p.json')); p = "
                        "d['processes'][0]; assert d['format'] == 1 and d['to'] == 'host'; assert p['pid'] == %d and "
                        "p['outcome'] == 'done' and p['state'] == 'paused' and p['given_back_bytes'] == 64 << 20\"",
                        pid, pid),
                     0);
    end(pid);
}
END_TEST

int main(void) {
    Suite *s = suite_create("pausing");
    TCase *t = tcase_create("pausing");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, shell_teardown);
    tcase_add_test(t, a_process_is_paused_and_resumed_and_says_what_was_given_back);
    tcase_add_test(t, a_process_that_cannot_be_paused_says_how_to_start_it);
    tcase_add_test(t, a_refusal_says_why);
    tcase_add_test(t, what_is_asked_for_reaches_the_process);
    tcase_add_test(t, a_folder_that_others_could_exchange_is_refused);
    tcase_add_test(t, a_job_is_paused_as_a_whole_or_not_at_all);
    tcase_add_test(t, a_rank_that_was_paused_before_stays_so_when_another_refuses);
    tcase_add_test(t, a_paused_process_shows_as_such);
    tcase_add_test(t, two_pausers_at_once_do_no_harm);
    tcase_add_test(t, a_command_that_is_interrupted_resumes_what_it_has_paused);
    tcase_add_test(t, a_command_that_is_killed_leaves_a_process_that_can_be_resumed);
    tcase_add_test(t, a_process_that_ends_meanwhile_is_said_to_have_ended);
    tcase_add_test(t, a_process_that_does_not_answer_is_not_paused_later);
    tcase_add_test(t, a_resume_without_room_says_so_and_waits_if_it_is_told_to);
    tcase_add_test(t, another_user_may_not_pause);
    tcase_add_test(t, json_says_what_the_lines_say);
    suite_add_tcase(s, t);
    return run_suite(s);
}
