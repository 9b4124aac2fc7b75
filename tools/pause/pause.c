/*
 * zeroute pause and resume: the requests, and what follows from the answers. All processes of a job are paused, or none
 * is: those that were are resumed when another refuses. Whoever is killed in the middle leaves processes that are
 * paused and can be resumed, and nothing half done: a process carries out alone what it has begun.
 */
#include "outside/outside.h"
#include "pause/pausable.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { JOB = ZR_LONG, TO, DROP_NOTHING, TIMEOUT, WAIT };
/* Seconds that a process has to begin with a request, and that it may take to carry it out. */
#define BEGINS_WITHIN 5.0
#define AS_LONG_AS_IT_TAKES 1e9

struct options {
    const char *job, *to; /* to: "host", "nothing" or a folder */
    bool json, wait;
    double timeout;
    int pid;
};

static const struct zr_option pause_options[] = {
    {JOB, "job", "NAME", "pause every process of this job, as 'zeroute top' and 'stat' name it, or none of them"},
    {TO, "to", "WHERE",
     "where the contents go: host, memory of the process (default); a folder, in which a file without a name takes "
     "them; or nothing: they are lost, and read as zero afterwards"},
    {DROP_NOTHING, "drop-nothing", NULL, "keep all contents, in host memory: the default, said aloud"},
    {TIMEOUT, "timeout", "SECONDS", "how long the program may take to come to rest (default 10)"},
    {'j', "json", NULL, "print JSON"},
    {0},
};

static const struct zr_option resume_options[] = {
    {JOB, "job", "NAME", "resume every process of this job"},
    {WAIT, "wait", NULL, "while there is no room on its cards, wait for it"},
    {'j', "json", NULL, "print JSON"},
    {0},
};

static const struct zr_command pause_command = {
    .name = "pause",
    .usage = "zeroute pause [OPTIONS] PID | --job NAME",
    .about = "Gives the device memory of a running program back, so that others can use the card, without ending it. "
             "The program waits at its next submission until 'zeroute resume'; its pointers stay what they are. "
             "It must have been started with pause:on: 'zeroute run --pause on -- COMMAND'. Only its user may pause "
             "it.",
    .options = pause_options,
    .notes = "A program that cannot be paused says why, and is left as it was. Of a job all processes are paused, or "
             "none is. Interrupted (Ctrl-C) the command resumes what it has paused; once more, and it leaves at once.\n"
             "\n"
             "Exit code: 0 paused, 1 refused, 2 no such process, not started with pause:on, or\n"
             "wrong usage, 3 no answer or interrupted.\n",
    .operands = "a process, or --job",
    .most = 1,
    .one_of = "to|drop-nothing",
    .examples = "zeroute run --pause on -- llama-server -m model.gguf\n"
                "zeroute pause 4711\n"
                "zeroute pause --to /var/tmp 4711\n"
                "zeroute pause --job slurm:81.0 --timeout 60",
};

static const struct zr_command resume_command = {
    .name = "resume",
    .usage = "zeroute resume [OPTIONS] PID | --job NAME",
    .about = "Returns the device memory of a paused program, with its contents, and lets it go on. If another has "
             "taken the card meanwhile, the program stays paused, and it is said who holds how much.",
    .options = resume_options,
    .notes = "Exit code: 0 it runs, 1 it stays paused, 2 no such process or wrong usage, 3 no\n"
             "answer or interrupted.\n",
    .operands = "a process, or --job",
    .most = 1,
    .examples = "zeroute resume 4711\n"
                "zeroute resume --wait --job slurm:81.0",
};

static bool take(struct options *o, const struct zr_command *c, const struct zr_option *option, const char *value) {
    switch (option->id) {
    case JOB:
        o->job = value;
        return true;
    case TO:
        o->to = value;
        return true;
    case DROP_NOTHING:
        o->to = "host";
        return true;
    case TIMEOUT:
        return zr_option_real(c, option, value, 0, &o->timeout);
    case WAIT:
        o->wait = true;
        return true;
    default:
        o->json = true;
        return true;
    }
}

static bool take_pause(void *to, const struct zr_option *option, const char *value) {
    return take(to, &pause_command, option, value);
}

static bool take_resume(void *to, const struct zr_option *option, const char *value) {
    return take(to, &resume_command, option, value);
}

/* --- Ctrl-C --------------------------------------------------------------------------------------- */

static volatile sig_atomic_t stopped, leaving; /* asked to end once, and again */
static const char *stop_text;

static void stop(int signal) {
    (void)signal;
    leaving = stopped;
    if (!stopped && write(STDERR_FILENO, stop_text, strlen(stop_text)) < 0)
        leaving = 1;
    stopped = 1;
}

/* A signal that whoever started us wants to be ignored stays so. */
static void stop_gently(const char *text) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART}, before;

    stop_text = text;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
}

/* --- asking --------------------------------------------------------------------------------------- */

static bool has_ended(const struct zr_post *p) {
    return zr_outside_state(&p->process) == ZEROUTE_FINISHED;
}

/* An answer without the word that says which it is. */
static const char *without(const char *text, const char *word) {
    size_t n = strlen(word);

    return strncmp(text, word, n) == 0 ? text + n : text;
}

static void judge(struct zr_pausable *p, uint64_t began_ns) {
    const struct zr_post *post = p->post;
    const char *why = "";

    if (post->state == ZR_POST_ANSWERED && post->done && strncmp(post->reply, "ok waiting", 10) == 0) {
        p->outcome = ZR_OUTCOME_WAITS;
        why = without(without(post->reply, "ok waiting"), ": ");
    } else if (post->state == ZR_POST_ANSWERED) {
        p->outcome = post->done ? ZR_OUTCOME_DONE : ZR_OUTCOME_REFUSED;
        why = post->done ? "" : without(post->reply, "refused: ");
    } else if (has_ended(post)) {
        p->outcome = ZR_OUTCOME_ENDED;
    } else if (post->state == ZR_POST_WITHDRAWN) {
        p->outcome = ZR_OUTCOME_SILENT;
    } else {
        p->outcome = post->begun ? ZR_OUTCOME_BEGUN : ZR_OUTCOME_FAILED;
        why = post->reply;
    }
    snprintf(p->why, sizeof p->why, "%s", why);
    p->took_ns = post->answered_ns > began_ns ? post->answered_ns - began_ns : 0;
}

/* What a terminal is told while contents are moved. */
struct progress {
    const char *command;
    struct zr_pausable *p;
    size_t count;
    bool shown;
};

static void show_progress(void *data) {
    struct progress *to = data;
    char bytes[ZR_TEXT_SIZE];
    uint64_t moved = 0;

    if (!isatty(STDERR_FILENO) || !zr_pausables_look(to->command, to->p, to->count, false))
        return;
    for (size_t i = 0; i < to->count; i++)
        moved += to->p[i].after.bytes;
    fprintf(stderr, "\r\033[Kzeroute %s: %s %s", to->command, zr_text_bytes(bytes, moved),
            strcmp(to->command, "pause") == 0 ? "moved" : "to be returned");
    to->shown = true;
}

/* One that is in the middle of a pause answers when that is over. */
static bool any_is_busy(const struct zr_pausable *p, size_t count) {
    bool any = false;

    for (size_t i = 0; i < count; i++)
        any |= p[i].before.state == ZR_PAUSE_PAUSING || p[i].before.state == ZR_PAUSE_RESUMING;
    return any;
}

static void ask(const char *command, struct zr_post *post, struct zr_pausable *p, size_t count, const char *request,
                double begins_within) {
    uint64_t began = zr_wall_ns();
    struct progress progress = {command, p, count, false};

    zr_ask(post, count, request,
           &(struct zr_asking){.command = command,
                               .timeout = any_is_busy(p, count) ? AS_LONG_AS_IT_TAKES : begins_within,
                               .begun = AS_LONG_AS_IT_TAKES,
                               .stop = &stopped,
                               .leave = &leaving,
                               .tick = show_progress,
                               .data = &progress});
    if (progress.shown)
        fputs("\r\033[K", stderr);
    for (size_t i = 0; i < count; i++)
        judge(&p[i], began);
}

/* Those that were paused and are not to stay so. The request is carried out even if there is no room right now. */
static void undo(struct zr_pausable *p, size_t count) {
    struct zr_post *post = calloc(count, sizeof *post);
    size_t asked = 0, at = 0;

    for (size_t i = 0; post && i < count; i++)
        if (p[i].outcome == ZR_OUTCOME_DONE)
            post[asked++].process = p[i].post->process;
    if (asked)
        zr_ask(post, asked, "resume wait=1",
               &(struct zr_asking){
                   .command = "pause", .timeout = BEGINS_WITHIN, .begun = AS_LONG_AS_IT_TAKES, .leave = &leaving});
    for (size_t i = 0; post && i < count; i++) {
        if (p[i].outcome != ZR_OUTCOME_DONE)
            continue;
        const struct zr_post *answer = &post[at++];
        if (has_ended(answer)) {
            p[i].outcome = ZR_OUTCOME_ENDED;
        } else if (answer->state == ZR_POST_ANSWERED && answer->done) {
            p[i].outcome = ZR_OUTCOME_UNDONE;
            snprintf(p[i].why, sizeof p[i].why, "%s",
                     strncmp(answer->reply, "ok waiting", 10) == 0 ? "as soon as there is room on its cards" : "");
        } else {
            zr_complain("pause", "process %d stays paused: %s; 'zeroute resume %d' brings it back", zr_post_pid(answer),
                        *answer->reply ? zr_shown(answer->reply) : "no answer", zr_post_pid(answer));
        }
    }
    free(post);
}

/* --- what came of it ------------------------------------------------------------------------------ */

static size_t count_of(const struct zr_pausable *p, size_t count, enum zr_outcome outcome) {
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        n += p[i].outcome == outcome;
    return n;
}

static int code_of(const struct zr_pausable *p, size_t count) {
    size_t good = count_of(p, count, ZR_OUTCOME_DONE) + count_of(p, count, ZR_OUTCOME_ALREADY);

    if (count_of(p, count, ZR_OUTCOME_FAILED))
        return ZR_EXIT_ERROR;
    if (stopped)
        return ZR_EXIT_NO_VERDICT;
    if (count_of(p, count, ZR_OUTCOME_REFUSED))
        return ZR_EXIT_FINDING;
    if (count_of(p, count, ZR_OUTCOME_SILENT) || count_of(p, count, ZR_OUTCOME_BEGUN))
        return ZR_EXIT_NO_VERDICT;
    if (count_of(p, count, ZR_OUTCOME_WAITS))
        return ZR_EXIT_FINDING;
    return good ? ZR_EXIT_DONE : ZR_EXIT_ERROR; /* none: all have ended */
}

/* Processes that have not been started so that they can be paused. */
static bool all_can_be_paused(const char *command, const struct zr_pausable *p, size_t count) {
    bool all = true;

    for (size_t i = 0; i < count; i++) {
        if (p[i].before.state != ZR_PAUSE_OFF || p[i].post->process.state != ZEROUTE_LIVE)
            continue;
        zr_complain(command,
                    "process %d was not started with pause:on: start it with 'zeroute run --pause on -- COMMAND', or "
                    "with ZEROUTE_CONF=pause:on in its environment",
                    zr_post_pid(p[i].post));
        all = false;
    }
    return all;
}

/* Where there is nothing to do. */
static void note_already(struct zr_pausable *p, size_t count, enum zr_pause_state state) {
    for (size_t i = 0; i < count; i++)
        if (p[i].outcome == ZR_OUTCOME_DONE && p[i].before.state == state)
            p[i].outcome = ZR_OUTCOME_ALREADY;
}

/* The processes of a command line, with how it is with them; NULL: that was said. */
static struct zr_pausable *find(const struct zr_command *c, const struct options *o, struct zr_post **post,
                                size_t *count) {
    struct zr_pausable *p;

    *post = zr_whom_find(&(struct zr_whom){c->name, o->pid, o->job}, count);
    if (!*post)
        return NULL;
    p = calloc(*count, sizeof *p);
    for (size_t i = 0; p && i < *count; i++)
        p[i].post = &(*post)[i];
    if (p && zr_pausables_look(c->name, p, *count, true) && all_can_be_paused(c->name, p, *count))
        return p;
    free(p);
    free(*post);
    return NULL;
}

/* The operand and what every command line needs; false with *code. */
static bool parse(const struct zr_command *c, zr_take_option *take_one, int argc, char **argv, struct options *o,
                  int *code) {
    if (!zr_options(c, argc, argv, take_one, o, code))
        return false;
    int at = *code;
    *code = ZR_EXIT_ERROR;
    if (o->job && at < argc) {
        zr_wrong(c, "a process and --job together: expected one of them");
        return false;
    }
    if (!o->job && at == argc) {
        zr_wrong(c, "expected a process, or --job");
        return false;
    }
    return o->job || zr_operand_pid(c, argv[at], &o->pid);
}

/* --- pause ---------------------------------------------------------------------------------------- */

/* The request in words; false: the folder cannot be used, which was said. */
static bool pause_request(char *text, size_t size, const struct options *o, const struct zr_post *post, size_t count) {
    char folder[512] = "";
    const char *to = o->to;

    if (strcmp(to, "host") != 0 && strcmp(to, "nothing") != 0) {
        for (size_t i = 0; i < count; i++)
            if (!zr_publish_folder("pause", to, post[i].process.uid, folder, sizeof folder))
                return false;
        to = folder;
        if (strpbrk(to, " \n\t")) {
            zr_wrong(&pause_command, "the name of the folder has a space: expected one without");
            return false;
        }
    }
    if ((size_t)snprintf(text, size, "pause to=%s timeout=%.0fms", to, o->timeout * 1000) < size)
        return true;
    zr_wrong(&pause_command, "the name of the folder is too long");
    return false;
}

static int pause_all(const struct options *o, struct zr_post *post, struct zr_pausable *p, size_t count) {
    char request[sizeof((struct zeroute_segment_control *)0)->text];
    size_t paused, ended;

    if (!pause_request(request, sizeof request, o, post, count))
        return ZR_EXIT_ERROR;
    stop_gently("\nzeroute pause: interrupted: resuming what was paused; once more to leave at once\n");
    ask("pause", post, p, count, request, BEGINS_WITHIN + o->timeout);
    note_already(p, count, ZR_PAUSE_PAUSED);
    for (size_t i = 0; i < count; i++)
        p[i].to = o->to;
    paused = count_of(p, count, ZR_OUTCOME_DONE);
    ended = count_of(p, count, ZR_OUTCOME_ENDED) + count_of(p, count, ZR_OUTCOME_ALREADY);
    if (paused && (stopped || paused + ended < count))
        undo(p, count);
    zr_pausables_look("pause", p, count, false);
    if (o->json)
        zr_pausables_json(stdout, p, count, false, o->to);
    else
        zr_pausables_show(stdout, p, count, false);
    return code_of(p, count);
}

int zr_cmd_pause(int argc, char **argv) {
    struct options o = {.to = "host", .timeout = 10};
    struct zr_post *post;
    size_t count;
    int code;

    if (!parse(&pause_command, take_pause, argc, argv, &o, &code))
        return code;
    if (o.timeout > 86400)
        o.timeout = 86400;
    struct zr_pausable *p = find(&pause_command, &o, &post, &count);
    if (!p)
        return ZR_EXIT_ERROR;
    code = pause_all(&o, post, p, count);
    free(p);
    free(post);
    return code;
}

/* --- resume --------------------------------------------------------------------------------------- */

/* Until those that have no room run again, have ended, or we are asked to stop. Says once who holds the cards. */
static void wait_for_room(struct zr_pausable *p, size_t count, bool say) {
    enum { BETWEEN = 200000000 };
    uint64_t began = zr_wall_ns();

    if (say)
        zr_pausables_holders(stderr, p, count);
    while (!stopped && count_of(p, count, ZR_OUTCOME_WAITS)) {
        nanosleep(&(struct timespec){.tv_nsec = BETWEEN}, NULL);
        if (!zr_pausables_look("resume", p, count, false))
            return;
        for (size_t i = 0; i < count; i++) {
            if (p[i].outcome != ZR_OUTCOME_WAITS)
                continue;
            if (has_ended(p[i].post))
                p[i].outcome = ZR_OUTCOME_ENDED;
            else if (p[i].after.state == ZR_PAUSE_RUNNING)
                p[i].outcome = ZR_OUTCOME_DONE;
            p[i].took_ns = zr_wall_ns() - began;
        }
    }
}

/* Those that wait are to wait no longer: one more request, and each stays as it is then. */
static void stop_waiting(struct zr_pausable *p, size_t count) {
    struct zr_post *post = calloc(count, sizeof *post);
    struct zr_pausable *some = calloc(count, sizeof *some);
    size_t asked = 0, at = 0;

    for (size_t i = 0; post && some && i < count; i++)
        if (p[i].outcome == ZR_OUTCOME_WAITS) {
            some[asked].post = &post[asked];
            post[asked++].process = p[i].post->process;
        }
    stopped = 0;
    if (asked)
        ask("resume", post, some, asked, "resume wait=0", BEGINS_WITHIN);
    stopped = 1;
    for (size_t i = 0; post && some && i < count; i++)
        if (p[i].outcome == ZR_OUTCOME_WAITS) {
            p[i].outcome = some[at].outcome;
            memcpy(p[i].why, some[at++].why, sizeof p[i].why);
        }
    free(some);
    free(post);
}

static int resume_all(const struct options *o, struct zr_post *post, struct zr_pausable *p, size_t count) {
    stop_gently("\nzeroute resume: interrupted; once more to leave at once\n");
    ask("resume", post, p, count, o->wait ? "resume wait=1" : "resume wait=0", BEGINS_WITHIN);
    note_already(p, count, ZR_PAUSE_RUNNING);
    if (o->wait && count_of(p, count, ZR_OUTCOME_WAITS))
        wait_for_room(p, count, !o->json);
    if (stopped && count_of(p, count, ZR_OUTCOME_WAITS))
        stop_waiting(p, count);
    zr_pausables_look("resume", p, count, false);
    if (o->json)
        zr_pausables_json(stdout, p, count, true, NULL);
    else
        zr_pausables_show(stdout, p, count, true);
    if (!o->json && !o->wait && count_of(p, count, ZR_OUTCOME_REFUSED))
        zr_pausables_holders(stdout, p, count);
    return code_of(p, count);
}

int zr_cmd_resume(int argc, char **argv) {
    struct options o = {0};
    struct zr_post *post;
    size_t count;
    int code;

    if (!parse(&resume_command, take_resume, argc, argv, &o, &code))
        return code;
    struct zr_pausable *p = find(&resume_command, &o, &post, &count);
    if (!p)
        return ZR_EXIT_ERROR;
    code = resume_all(&o, post, p, count);
    free(p);
    free(post);
    return code;
}
