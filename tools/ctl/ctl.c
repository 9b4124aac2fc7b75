/* zeroute ctl: whom to ask, what to ask for, and what was answered. */
#include "ctl/ctl.h"
#include "base/settings.h"
#include "outside/outside.h"
#include "view/view.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { JOB = ZR_LONG, ALL, TIMEOUT };

struct options {
    const char *job;
    bool all, json;
    double timeout;
    int pid;
};

static const struct zr_option option_table[] = {
    {JOB, "job", "NAME", "ask every process of this job, as 'zeroute top' and 'stat' name it"},
    {ALL, "all", NULL, "ask every process of yours"},
    {TIMEOUT, "timeout", "SECONDS", "wait this long for an answer (default 30), then withdraw the request"},
    {'j', "json", NULL, "print JSON"},
    {0},
};

static const struct zr_command command = {
    .name = "ctl",
    .usage = "zeroute ctl [OPTIONS] PID | --job NAME | --all   get\n"
             "zeroute ctl [OPTIONS] PID | --job NAME | --all   set SETTING VALUE\n"
             "zeroute ctl [OPTIONS] PID | --job NAME | --all   trim | check | mark TEXT\n"
             "zeroute ctl [OPTIONS] PID | --job NAME | --all   record on [FILE]|off",
    .about = "Changes settings of running processes. The request is left in the process's shared memory; its next call "
             "into Level Zero or SYCL carries it out and acknowledges it with the value in force and the time. "
             "A process that is idle answers at its next call; ctl says at once how long it has been idle. Only the "
             "user of a process may change it.",
    .options = option_table,
    .notes = "Requests:\n"
             "  get                 show the settings in force\n"
             "  set SETTING VALUE   limit, residency, cache, cache_limit, cache_idle,\n"
             "                      host_floor, free_memory or record\n"
             "  trim                return cached memory to the driver\n"
             "  check               verify red zones and freed memory now (setting check)\n"
             "  mark TEXT           leave a mark in the statistics and in the record\n"
             "  record on [FILE]    record allocations from now on (default zeroute.%p.zr,\n"
             "                      in this folder; %p is the process id); record off pauses\n"
             "\n"
             "Exit code: 0 done, 1 refused by a process, 2 no such process or wrong usage,\n"
             "3 not answered in time.\n",
    .operands = "a process, --job or --all, and a request",
    .least = 1,
    .most = 64,
    .examples = "zeroute ctl 4711 get\n"
                "zeroute ctl 4711 set limit 12GiB\n"
                "zeroute ctl --job slurm:81.0 set residency owner\n"
                "zeroute ctl --all trim",
};

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    switch (option->id) {
    case JOB:
        o->job = value;
        return true;
    case ALL:
        o->all = true;
        return true;
    case TIMEOUT:
        return zr_option_real(&command, option, value, 0, &o->timeout);
    default:
        o->json = true;
        return true;
    }
}

/* --- what to ask for ----------------------------------------------------------------------------- */

/* A bad value is refused here, before any process is asked; the process checks it again. */
static bool check_setting(const char *name, const char *value) {
    struct zr_settings *s = calloc(1, sizeof *s);
    char why[640], what[800];
    bool good = s != NULL;
    if (s) {
        zr_settings_default(s);
        good = zr_setting_set(s, name, value, why, sizeof why);
    }
    if (s && !good) {
        snprintf(what, sizeof what, "%s", why);
        zr_did_you_mean(name, value, what, sizeof what);
        zr_wrong(&command, what);
    }
    free(s);
    return good;
}

/* The setting `record` in words. The file is named from here: the process may be in another folder. */
static const char *record_request(char *text, size_t size, int count, char **word) {
    const char *file = count > 2 ? word[2] : "zeroute.%p.zr";
    char folder[4096] = "";
    if (strcmp(word[1], "off") == 0 && count == 2) {
        snprintf(text, size, "set record none");
        return text;
    }
    if (strcmp(word[1], "on") != 0) {
        zr_wrong(&command, "record takes on, with a file or without, or off");
        return NULL;
    }
    if (*file != '/' && !getcwd(folder, sizeof folder))
        return NULL;
    if ((size_t)snprintf(text, size, "set record %s%s%s", folder, *folder ? "/" : "", file) >= size ||
        strchr(text, ',')) {
        zr_wrong(&command, "the name of the file is too long, or has a comma");
        return NULL;
    }
    return text;
}

/* The words as one request; NULL: they are none, which was said. Static. */
static const char *request_of(int count, char **word) {
    static char text[sizeof((struct zeroute_segment_control *)0)->text];
    static const struct {
        const char *word;
        int least, most;
        const char *usage;
    } known[] = {
        {"get", 1, 1, "get takes nothing"},   {"set", 3, 3, "set takes a setting and a value"},
        {"trim", 1, 1, "trim takes nothing"}, {"check", 1, 1, "check takes nothing"},
        {"mark", 2, 64, "mark takes a text"}, {"record", 2, 3, "record takes on, with a file or without, or off"}};
    size_t used = 0, i = 0, kinds = sizeof known / sizeof *known;
    char what[160], list[64] = "";
    while (count && i < kinds && strcmp(known[i].word, word[0]) != 0)
        i++;
    if (!count || i == kinds) {
        snprintf(what, sizeof what, "unknown request '%.40s': expected get, set, trim, check, mark or record",
                 count ? word[0] : "");
        for (size_t k = 0; k < kinds; k++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", k ? "|" : "", known[k].word);
        zr_mean_one_of(list, count ? word[0] : "", what, sizeof what);
        zr_wrong(&command, what);
        return NULL;
    }
    if (count < known[i].least || count > known[i].most) {
        zr_wrong(&command, known[i].usage);
        return NULL;
    }
    if (strcmp(word[0], "record") == 0)
        return record_request(text, sizeof text, count, word);
    for (int w = 0; w < count && used < sizeof text; w++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", w ? " " : "", word[w]);
    if (used >= sizeof text) {
        zr_wrong(&command, "the request is too long: expected less than 512 bytes");
        return NULL;
    }
    return strcmp(word[0], "set") != 0 || check_setting(word[1], word[2]) ? text : NULL;
}

/* --- whom ---------------------------------------------------------------------------------------- */

static void add_target(struct zr_post *post, size_t *count, const struct zr_process_view *v) {
    post[*count].process = v->process;
    post[*count].last_call_ns = v->last_activity_ns;
    ++*count;
}

/*
 * The processes to ask, to be freed. A process is the one that lives under its number; who else claims that number is
 * none. Jobs are those that 'zeroute top' and 'stat' show.
 */
static struct zr_post *targets(const struct options *o, size_t *count) {
    struct zr_view *m = zr_view_new(&(struct zr_scope){.pid = o->pid, .finished = o->pid != 0, .all_at_once = true});
    struct zr_post *post = NULL;

    *count = 0;
    if (m && zr_view_sample(m))
        post = calloc(m->process_count + m->ended_count + 1, sizeof *post);
    if (post && o->pid && zr_view_find(m, o->pid))
        add_target(post, count, zr_view_find(m, o->pid));
    for (size_t i = 0; post && !o->pid && i < m->process_count; i++) {
        const struct zr_process_view *v = m->process[i];
        bool mine = geteuid() == v->process.uid || geteuid() == 0;
        if (mine && v->process.state == ZEROUTE_LIVE && (o->all || zr_job_is_called(v, o->job)))
            add_target(post, count, v);
    }
    for (size_t i = 0; post && o->pid && !*count && i < m->unread_count; i++)
        if (m->unread[i].pid == o->pid)
            zr_complain("ctl", "process %d (user %u): %s", o->pid, m->unread[i].uid, m->unread[i].why);
    zr_view_free(m);
    return post;
}

static int pid_of(const struct zr_post *p) {
    return p->process.pid ? p->process.pid : p->process.pid_inside;
}

/* --- asking -------------------------------------------------------------------------------------- */

static void look_up(struct zr_post *p) {
    char why[256];
    struct zeroute_snapshot *s = zr_outside_snapshot(&p->process, why, sizeof why);
    const struct zeroute_field *settings = s ? zeroute_find(s, "settings") : NULL;
    p->state = settings && settings->text ? ZR_POST_ANSWERED : ZR_POST_FAILED;
    p->done = true;
    snprintf(p->reply, sizeof p->reply, "%s",
             settings && settings->text ? settings->text
             : s                        ? "it has no statistics"
             : *why                     ? why
                                        : "it has ended");
    zeroute_snapshot_free(s);
}

static bool has_ended(const struct zr_post *p) {
    return zr_outside_state(&p->process) == ZEROUTE_FINISHED;
}

/* Since its last call. */
static uint64_t idle_ns(const struct zr_post *p) {
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    return now > p->last_call_ns && p->last_call_ns ? now - p->last_call_ns : 0;
}

/* Once, soon: a process that is busy has answered by then. */
static void say_who_is_idle(const struct zr_post *post, size_t first, size_t left, size_t count) {
    char age[ZR_TEXT_SIZE];
    const struct zr_post *p = &post[first];

    zr_text_age(age, idle_ns(p));
    if (left == 1)
        fprintf(stderr, "zeroute ctl: process %d has been idle for %s; it answers at its next call\n", pid_of(p), age);
    else
        fprintf(stderr, "zeroute ctl: %zu of %zu processes are idle, %d for %s; they answer at their next call\n", left,
                count, pid_of(p), age);
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
        if (look_for_ended && has_ended(&post[i]) && !zr_post_answered(&post[i])) {
            snprintf(post[i].reply, sizeof post[i].reply, "it ended before it answered");
            post[i].state = ZR_POST_FAILED;
        }
    }
    return left;
}

static void wait_for_all(struct zr_post *post, size_t count, const struct options *o, uint64_t deadline) {
    enum { SOON = 200000000, LONGEST = 20000000 };
    uint64_t start = zr_post_clock();
    long pause = 50000;
    bool said = o->json;
    size_t first, left = count;

    while (left && zr_post_clock() < deadline) {
        left = count_silent(post, count, pause >= LONGEST, &first);
        if (!left)
            return;
        if (!said && zr_post_clock() - start > SOON) {
            said = true;
            say_who_is_idle(post, first, left, count);
        }
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        pause = pause < LONGEST ? pause * 2 : LONGEST;
    }
}

/* Requests that nobody has begun with are withdrawn; the others have five seconds, all of them together. */
static void withdraw_all(struct zr_post *post, size_t count) {
    uint64_t deadline = zr_post_clock() + 5000000000u;
    bool all = false;

    while (!all) {
        all = true;
        for (size_t i = 0; i < count; i++)
            all = zr_post_withdraw(&post[i]) && all;
        if (zr_post_clock() > deadline)
            return;
        if (!all)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* All are asked before any is waited for, so that none holds up another. */
static void ask(struct zr_post *post, size_t count, const char *request, const struct options *o) {
    uint64_t deadline = zr_post_clock() + (uint64_t)((o->timeout < 1e6 ? o->timeout : 1e6) * 1e9);

    for (size_t i = 0; i < count; i++)
        zr_post(&post[i], request);
    wait_for_all(post, count, o, deadline);
    withdraw_all(post, count);
    for (size_t i = 0; i < count; i++)
        zr_post_end(&post[i]);
}

/* --- what was answered --------------------------------------------------------------------------- */

/* "route:native,cache:off,...": one line where it fits, else broken behind commas. */
static void print_settings(const char *text, int indent) {
    char *spaced = malloc(2 * strlen(text) + 1), *to = spaced;

    if (!spaced)
        abort();
    for (const char *c = text; *c; c++) {
        *to++ = *c;
        if (*c == ',' && c[1] != ' ')
            *to++ = ' ';
    }
    *to = '\0';
    zr_text_wrap(stdout, indent, 80, spaced);
    free(spaced);
}

static void print_one(const struct zr_post *p) {
    char when[32] = "", age[ZR_TEXT_SIZE];
    time_t seconds = (time_t)(p->answered_ns / 1000000000u);
    struct tm local;
    if (p->answered_ns && localtime_r(&seconds, &local))
        strftime(when, sizeof when, "%H:%M:%S", &local);
    int indent = printf("%d  ", pid_of(p));
    if (p->state == ZR_POST_WITHDRAWN)
        printf("no answer: its last call was %s ago; the request was withdrawn\n", zr_text_age(age, idle_ns(p)));
    else if (p->state == ZR_POST_FAILED)
        printf("not asked: %s\n", zr_shown(p->reply));
    else if (!p->done)
        printf("refused: %s\n", zr_shown(p->reply));
    else if (*when)
        printf("%s  (in force since %s.%03u)\n", zr_shown(p->reply), when,
               (unsigned)(p->answered_ns / 1000000u % 1000u));
    else
        print_settings(p->reply, indent);
}

static void print_json(const struct zr_post *post, size_t count, const char *request) {
    static const char *const state[] = {"waits", "answered", "failed", "withdrawn"};
    json_t *document = zr_json_document(1), *answers;
    zr_json_text(document, "request", request);
    answers = zr_json_array(document, "answers");
    for (size_t i = 0; i < count; i++) {
        json_t *item = zr_json_object(answers, NULL);
        bool answered = post[i].state == ZR_POST_ANSWERED;
        zr_json_count(item, "pid", (uint64_t)pid_of(&post[i]));
        zr_json_text(item, "command", post[i].process.command);
        zr_json_text(item, "state", answered && !post[i].done ? "refused" : state[post[i].state]);
        zr_json_flag(item, "done", answered && post[i].done);
        zr_json_text(item, "reply", post[i].reply);
        if (post[i].answered_ns)
            zr_json_count(item, "answered_ns", post[i].answered_ns);
    }
    zr_json_write(stdout, document, ZR_JSON_DIGITS, false);
}

static int code_of(const struct zr_post *post, size_t count) {
    bool failed = false, refused = false, silent = false;
    for (size_t i = 0; i < count; i++) {
        failed |= post[i].state == ZR_POST_FAILED;
        refused |= post[i].state == ZR_POST_ANSWERED && !post[i].done;
        silent |= post[i].state == ZR_POST_WITHDRAWN;
    }
    return failed ? ZR_EXIT_ERROR : silent ? ZR_EXIT_NO_VERDICT : refused ? ZR_EXIT_FINDING : ZR_EXIT_DONE;
}

static int no_target(const struct options *o) {
    if (o->pid)
        zr_complain("ctl",
                    "no statistics of process %d: expected one that was started under zeroute and has used a "
                    "device",
                    o->pid);
    else if (o->job)
        zr_complain("ctl", "no running process of job '%s': 'zeroute top --once' lists jobs", o->job);
    else
        zr_complain("ctl", "no process of yours runs under zeroute");
    return ZR_EXIT_ERROR;
}

int zr_cmd_ctl(int argc, char **argv) {
    struct options o = {.timeout = 30};
    size_t count;
    int at;
    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    if (o.all && o.job)
        return zr_wrong(&command, "--all and --job together: expected one of them");
    if (!o.all && !o.job && !zr_operand_pid(&command, argv[at++], &o.pid))
        return ZR_EXIT_ERROR;
    const char *request = request_of(argc - at, argv + at);
    if (!request)
        return ZR_EXIT_ERROR;
    struct zr_post *post = targets(&o, &count);
    if (!post || !count) {
        free(post);
        return no_target(&o);
    }
    if (strcmp(request, "get") == 0)
        for (size_t i = 0; i < count; i++)
            look_up(&post[i]);
    else
        ask(post, count, request, &o);
    if (o.json)
        print_json(post, count, request);
    else
        for (size_t i = 0; i < count; i++)
            print_one(&post[i]);
    int code = code_of(post, count);
    free(post);
    return code;
}
