/* Several processes and one request: which they are, and asking all of them before any is waited for. */
#include "ctl/ctl.h"
#include "outside/outside.h"
#include "view/view.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* --- which ---------------------------------------------------------------------------------------- */

static void add_target(struct zr_post *post, size_t *count, const struct zr_process_view *v) {
    post[*count].process = v->process;
    post[*count].last_call_ns = v->last_activity_ns;
    ++*count;
}

static void complain_of_none(const struct zr_whom *w) {
    if (w->pid)
        zr_complain(w->command,
                    "no statistics of process %d: expected one that was started under zeroute and has used a "
                    "device",
                    w->pid);
    else if (w->job)
        zr_complain(w->command, "no running process of job '%s': 'zeroute top --once' lists jobs", zr_shown(w->job));
    else
        zr_complain(w->command, "no process of yours runs under zeroute");
}

struct zr_post *zr_whom_find(const struct zr_whom *w, size_t *count) {
    struct zr_view *m = zr_view_new(&(struct zr_scope){.pid = w->pid, .finished = w->pid != 0, .all_at_once = true});
    struct zr_post *post = NULL;

    *count = 0;
    if (m && zr_view_sample(m))
        post = calloc(m->process_count + m->ended_count + 1, sizeof *post);
    if (post && w->pid && zr_view_find(m, w->pid))
        add_target(post, count, zr_view_find(m, w->pid));
    for (size_t i = 0; post && !w->pid && i < m->process_count; i++) {
        const struct zr_process_view *v = m->process[i];
        bool mine = geteuid() == v->process.uid || geteuid() == 0;
        if (mine && v->process.state == ZEROUTE_LIVE && (!w->job || zr_job_is_called(v, w->job)))
            add_target(post, count, v);
    }
    for (size_t i = 0; post && w->pid && !*count && i < m->unread_count; i++)
        if (m->unread[i].pid == w->pid)
            zr_complain(w->command, "process %d (user %u): %s", w->pid, m->unread[i].uid, m->unread[i].why);
    zr_view_free(m);
    if (post && *count)
        return post;
    free(post);
    complain_of_none(w);
    return NULL;
}

int zr_post_pid(const struct zr_post *p) {
    return p->process.pid ? p->process.pid : p->process.pid_inside;
}

uint64_t zr_post_idle_ns(const struct zr_post *p) {
    uint64_t now = zr_wall_ns();

    return now > p->last_call_ns && p->last_call_ns ? now - p->last_call_ns : 0;
}

/* --- asking --------------------------------------------------------------------------------------- */

static bool has_ended(const struct zr_post *p) {
    return zr_outside_state(&p->process) == ZEROUTE_FINISHED;
}

/* A second or more after the last time. */
static void tick(const struct zr_asking *how, uint64_t *last) {
    if (!how->tick || zr_clock_ns() - *last < 1000000000u)
        return;
    how->tick(how->data);
    *last = zr_clock_ns();
}

static bool is_stopped(const struct zr_asking *how) {
    return how->stop && *how->stop;
}

/* Once, soon: a process that is busy has answered by then. */
static void say_who_is_idle(const struct zr_post *post, size_t first, size_t left, size_t count,
                            const struct zr_asking *how) {
    char age[ZR_TEXT_SIZE];
    const struct zr_post *p = &post[first];

    zr_text_age(age, zr_post_idle_ns(p));
    if (left == 1)
        zr_complain(how->command, "process %d has been idle for %s; it answers at its next call", zr_post_pid(p), age);
    else
        zr_complain(how->command, "%zu of %zu processes are idle, %d for %s; they answer at their next call", left,
                    count, zr_post_pid(p), age);
}

/* Returns how many have not answered, and the first of them. */
static size_t count_silent(struct zr_post *post, size_t count, bool look_for_ended, size_t *first) {
    size_t left = 0;

    *first = count;
    for (size_t i = 0; i < count; i++) {
        if (zr_post_answered(&post[i]))
            continue;
        *first = *first == count ? i : *first;
        left++;
        if (look_for_ended && has_ended(&post[i]) && !zr_post_answered(&post[i]))
            zr_post_failed(&post[i], "it ended before it answered");
    }
    return left;
}

static void wait_for_all(struct zr_post *post, size_t count, const struct zr_asking *how, uint64_t deadline) {
    enum { SOON = 200000000, LONGEST = 20000000 };
    uint64_t start = zr_clock_ns(), ticked = start;
    long pause = 50000;
    bool said = !how->say_who_is_idle;
    size_t first, left = count;

    while (left && zr_clock_ns() < deadline && !is_stopped(how)) {
        left = count_silent(post, count, pause >= LONGEST, &first);
        if (!left)
            return;
        if (!said && zr_clock_ns() - start > SOON) {
            said = true;
            say_who_is_idle(post, first, left, count, how);
        }
        tick(how, &ticked);
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        pause = pause < LONGEST ? pause * 2 : LONGEST;
    }
}

/* Requests that nobody has begun with are withdrawn; the others have some seconds, all of them together. */
static void withdraw_all(struct zr_post *post, size_t count, const struct zr_asking *how) {
    enum { NANOSECOND_SLEEP = 1000000, ROUNDS = 20 };
    uint64_t deadline = zr_clock_ns() + (uint64_t)(how->begun * 1e9), ticked = zr_clock_ns();
    bool all = false;

    for (unsigned round = 0; !all; round++) {
        size_t first;

        all = true;
        for (size_t i = 0; i < count; i++)
            all = zr_post_withdraw(&post[i]) && all;
        if (zr_clock_ns() > deadline || (how->leave && *how->leave))
            return;
        tick(how, &ticked);
        if (!all)
            nanosleep(&(struct timespec){.tv_nsec = NANOSECOND_SLEEP}, NULL);
        if (!all && round % ROUNDS == 0)
            count_silent(post, count, true, &first);
    }
}

void zr_ask(struct zr_post *post, size_t count, const char *request, const struct zr_asking *how) {
    uint64_t deadline = zr_clock_ns() + (uint64_t)((how->timeout < 1e6 ? how->timeout : 1e6) * 1e9);

    for (size_t i = 0; i < count; i++)
        zr_post(&post[i], request);
    wait_for_all(post, count, how, deadline);
    withdraw_all(post, count, how);
    for (size_t i = 0; i < count; i++)
        zr_post_end(&post[i]);
}
