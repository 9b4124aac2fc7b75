/* zeroute ctl: whom to ask, what to ask for, and what was answered. */
#include "ctl/ctl.h"
#include "base/settings.h"
#include "outside/outside.h"

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

/* --- asking ------------------------------------------------------------------------------------- */

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
    int indent = printf("%d  ", zr_post_pid(p));
    if (p->state == ZR_POST_WITHDRAWN)
        printf("no answer: its last call was %s ago; the request was withdrawn\n",
               zr_text_age(age, zr_post_idle_ns(p)));
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
        zr_json_count(item, "pid", (uint64_t)zr_post_pid(&post[i]));
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
    struct zr_post *post = zr_whom_find(&(struct zr_whom){"ctl", o.pid, o.job}, &count);
    if (!post)
        return ZR_EXIT_ERROR;
    if (strcmp(request, "get") == 0)
        for (size_t i = 0; i < count; i++)
            look_up(&post[i]);
    else
        zr_ask(post, count, request,
               &(struct zr_asking){.command = "ctl", .timeout = o.timeout, .begun = 5, .say_who_is_idle = !o.json});
    if (o.json)
        print_json(post, count, request);
    else
        for (size_t i = 0; i < count; i++)
            print_one(&post[i]);
    int code = code_of(post, count);
    free(post);
    return code;
}
