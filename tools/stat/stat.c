/* zeroute stat: what processes have counted, one by one and as a job. */
#include "stat/stat.h"
#include "outside/outside.h"
#include "watch/top.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FINISHED_SHOWN 20
#define UNREADABLE_SHOWN 20

struct options {
    bool json, all, fields, prometheus, finished, verbose;
    double watch; /* seconds, 0: once */
    int pid;
    unsigned column; /* ZR_SORT_NOT_SAID */
};
enum { SORT = ZR_LONG };

static const struct zr_option option_table[] = {
    {'a', "all", NULL, "show a page for each process and for each job"},
    {'e', "finished", NULL, "show finished processes, too"},
    {'f', "fields", NULL, "show every field by its name, with unit and help"},
    {'j', "json", NULL, "print JSON"},
    {'p', "prometheus", NULL, "print the Prometheus text format"},
    {SORT, "sort", "COLUMN",
     "sort by this column, as in 'zeroute top': pid, rank, in-use (default), peak, mirror, ..."},
    {'v', "verbose", NULL, "show every row and column of a page"},
    {'w', "watch", "[SECONDS]", "the same as 'zeroute top'"},
    {0},
};

static const struct zr_command command = {
    .name = "stat",
    .usage = "zeroute stat [OPTIONS] [PID]",
    .about = "Shows the running processes that use a device under zeroute, one line each, or a page about PID, which "
             "may be finished. Processes of one job (one 'zeroute run', MPI, torchrun, Slurm) stand together below a "
             "line of sums.",
    .options = option_table,
    .notes = "Exit code: 0 shown, 2 no such process, not readable, or wrong usage.\n",
    .operands = "one process id at most",
    .most = 1,
    .one_of = "fields|json|prometheus;prometheus|watch",
    .examples = "zeroute stat\n"
                "zeroute stat --sort mirror\n"
                "zeroute stat 4242\n"
                "zeroute stat --finished\n"
                "zeroute stat --json | jq '.processes[].fields[\"left.bytes\"]'",
};

static void print_fields(FILE *out, const struct zeroute_snapshot *s, bool colour) {
    struct zr_table *t = zr_table_new("field", ">value", "unit", "~help", (char *)NULL);
    for (size_t i = 0; i < s->field_count; i++) {
        const struct zeroute_field *f = &s->field[i];
        char number[ZR_TEXT_SIZE];
        if (f->type == ZEROUTE_HISTOGRAM)
            continue;
        snprintf(number, sizeof number, "%llu", (unsigned long long)f->value);
        zr_table_row(t, f->name, f->type == ZEROUTE_TEXT ? "" : number, f->unit,
                     f->type == ZEROUTE_TEXT ? f->text : f->help);
    }
    for (size_t i = 0; i < s->fact_count; i++)
        zr_table_row(t, s->fact[i].key, "", "", s->fact[i].value);
    zr_table_print(t, out, colour);
}

/* --- pages ------------------------------------------------------------------------------------ */

static void show_process(FILE *out, const struct zr_view *m, struct zr_process_view *v, const struct options *o,
                         bool colour) {
    struct zr_sheet page = {.snapshot = v->snapshot, .view = m, .process = &v, .count = 1};

    if (v->snapshot)
        zr_summary(out, &page, colour, o->verbose);
}

static void show_job(FILE *out, const struct zr_view *m, const struct zr_job_view *job, bool colour) {
    struct zeroute_snapshot **s = calloc(job->count, sizeof(struct zeroute_snapshot *));
    struct zr_sheet page = {.view = m, .process = job->process, .count = job->count};
    size_t count = 0;

    for (size_t i = 0; s && i < job->count; i++)
        if (job->process[i]->snapshot)
            s[count++] = job->process[i]->snapshot;
    struct zeroute_snapshot *sum = s ? zr_sum(s, count) : NULL;
    page.snapshot = sum;
    if (sum) {
        fprintf(out, "\njob %s: ", zr_shown(job->name));
        zr_summary(out, &page, colour, false);
    }
    zeroute_snapshot_free(sum);
    free(s);
}

static void show_pages(FILE *out, const struct zr_view *m, const struct options *o, bool colour) {
    size_t count;
    struct zr_job_view *job = zr_jobs(m, &count);

    for (size_t i = 0; i < m->process_count + m->ended_count; i++) {
        if (i)
            fputc('\n', out);
        show_process(out, m, i < m->process_count ? m->process[i] : m->ended[i - m->process_count], o, colour);
    }
    for (size_t i = 0; i < count; i++)
        if (*job[i].name && job[i].count > 1)
            show_job(out, m, &job[i], colour);
    zr_jobs_free(job);
}

static void show_fields(FILE *out, const struct zr_view *m, bool colour) {
    size_t all = m->process_count + m->ended_count;

    for (size_t i = 0; i < all; i++) {
        const struct zr_process_view *v = i < m->process_count ? m->process[i] : m->ended[i - m->process_count];
        if (!v->snapshot)
            continue;
        if (all > 1)
            fprintf(out, "%s%d  %s\n", i ? "\n" : "", v->process.pid_inside, zr_shown(v->process.command));
        print_fields(out, v->snapshot, colour);
    }
}

/* --- tables ----------------------------------------------------------------------------------- */

static void show_unreadable(FILE *out, const struct zr_view *m) {
    for (size_t i = 0; i < m->unread_count && i < UNREADABLE_SHOWN; i++) {
        const struct zr_unread *u = &m->unread[i];
        char text[640];
        snprintf(text, sizeof text, "not readable: %d (user %u), %s: %s", u->pid, u->uid, u->path, u->why);
        zr_text_wrap(out, 2, 80, text);
    }
    if (m->unread_count > UNREADABLE_SHOWN)
        fprintf(out, "and %zu more that are not readable: zeroute stat --json has them all\n",
                m->unread_count - UNREADABLE_SHOWN);
}

/* Processes with memory that zeroute does not see: the first ones. */
static void show_missed(FILE *out, const struct zr_view *m) {
    char text[ZR_MISSED_TEXT];
    unsigned shown = 0;

    for (size_t i = 0; i < m->process_count && shown < ZR_MISSED_SHOWN; i++)
        if (zr_missed_text(text, sizeof text, m->process[i])) {
            zr_text_wrap(out, 2, ZR_COLUMNS, zr_shown(text));
            shown++;
        }
}

/* The running ones; the finished ones, FINISHED_SHOWN at most, if they are wanted. */
static void show_tables(FILE *out, const struct zr_view *m, const struct options *o, bool colour) {
    size_t live = zr_overview(out, m, &(struct zr_overview){false, SIZE_MAX, o->column}, colour);

    show_missed(out, m);
    if (!live && !m->finished && !m->unread_count) {
        fputs("no process has used a device under zeroute in the last ten minutes\n", out);
    } else if (o->finished && m->finished) {
        fprintf(out, "%sfinished:\n", live ? "\n" : "");
        zr_overview(out, m, &(struct zr_overview){true, FINISHED_SHOWN, o->column}, colour);
        if (m->ended_count > FINISHED_SHOWN)
            fprintf(out, "and %zu more that are finished: zeroute stat --json has them all\n",
                    m->ended_count - FINISHED_SHOWN);
    } else if (m->finished) {
        fprintf(out, "%s%zu finished in the last ten minutes: zeroute stat --finished\n",
                live ? "" : "no process is running; ", m->finished);
    }
}

/* --- one process ------------------------------------------------------------------------------ */

/* Whether the process belongs to the user. */
static bool has_user(int pid, unsigned uid) {
    unsigned its;

    return zr_outside_user(pid, &its) && its == uid;
}

/* Whether Intel's driver for OpenCL is loaded in it. */
static bool has_opencl(int pid) {
    char *maps = zr_outside_text(pid, ZR_FILE_MAPS, ZR_OUTSIDE_MOST, NULL);
    bool found = maps && strstr(maps, "/libigdrcl");

    free(maps);
    return found;
}

/* Why there is nothing to show of this process. */
static int complain_of(const struct zr_view *m, int pid) {
    for (size_t i = 0; i < m->unread_count; i++) {
        const struct zr_unread *u = &m->unread[i];
        bool of_its_user = !u->pid && has_user(pid, u->uid);

        if (u->pid != pid && !of_its_user)
            continue;
        zr_complain("stat", "process %d (user %u): %s", pid, u->uid, u->why);
        return ZR_EXIT_ERROR;
    }
    if (has_opencl(pid))
        zr_complain("stat",
                    "no statistics of process %d: it uses OpenCL, whose memory zeroute does not see; "
                    "'zeroute doctor %d' shows what the kernel counts for it",
                    pid, pid);
    else
        zr_complain("stat",
                    "no statistics of process %d: expected one that was started under zeroute and has used a device",
                    pid);
    return ZR_EXIT_ERROR;
}

static int show(FILE *out, bool colour, const struct options *o) {
    bool fields = o->json || o->fields || o->all || o->pid;
    struct zr_scope scope = {.pid = o->pid,
                             .finished = fields || o->finished,
                             .jobs = true,
                             .fields = fields,
                             .metrics = o->prometheus,
                             .per_process = o->prometheus && o->pid,
                             .all_at_once = true};
    struct zr_view *m = zr_view_new(&scope);
    int code = ZR_EXIT_DONE;

    if (!m || !zr_view_sample(m)) {
        zr_complain("stat", "cannot look at the processes: %s", strerror(errno));
        code = ZR_EXIT_ERROR;
    } else if (o->pid && !zr_view_keep(m, o->pid)) {
        code = complain_of(m, o->pid);
    } else if (o->json) {
        zr_json_write(out, zr_view_json(m, (struct zr_json_parts){.machine = true, .jobs = !o->pid}), ZR_JSON_DIGITS,
                      false);
    } else if (o->prometheus) {
        zr_exposition(out, m);
    } else if (o->fields) {
        show_fields(out, m, colour);
    } else if (o->pid || o->all) {
        show_pages(out, m, o, colour);
    } else {
        show_tables(out, m, o, colour);
    }
    if (!code && !o->pid && !o->json && !o->prometheus)
        show_unreadable(out, m);
    zr_view_free(m);
    return code;
}

/* Watching is what top does. */
static int watch(const struct options *o) {
    static char name[] = "top", interval[] = "--interval", json[] = "--json", seconds[32], pid[16];
    char *argv[6] = {name, interval, seconds};
    int argc = 3;
    snprintf(seconds, sizeof seconds, "%g", o->watch);
    snprintf(pid, sizeof pid, "%d", o->pid);
    if (o->json)
        argv[argc++] = json;
    if (o->pid)
        argv[argc++] = pid;
    return zr_cmd_top(argc, argv);
}

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    switch (option->id) {
    case 'a':
        o->all = true;
        return true;
    case 'e':
        o->finished = true;
        return true;
    case 'f':
        o->fields = true;
        return true;
    case 'v':
        o->verbose = true;
        return true;
    case 'j':
        o->json = true;
        return true;
    case 'p':
        o->prometheus = true;
        return true;
    case SORT:
        return zr_column_take(&command, option, value, &o->column);
    default:
        o->watch = 2;
        return !value || zr_option_real(&command, option, value, 0.1, &o->watch);
    }
}

int zr_cmd_stat(int argc, char **argv) {
    struct options o = {.column = ZR_SORT_NOT_SAID};
    int at;
    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    if (at < argc && !zr_operand_pid(&command, argv[at], &o.pid))
        return ZR_EXIT_ERROR;
    if (o.all && o.pid)
        return zr_wrong(&command, "--all and a process id together: expected one of them");
    if (o.watch > 86400)
        o.watch = 86400;
    if (o.watch > 0)
        return watch(&o);
    zr_gc_old();
    return show(stdout, zr_colour(stdout), &o);
}
