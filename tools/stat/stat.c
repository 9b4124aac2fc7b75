/* zeroute stat: what processes have counted, one by one and as a job. */
#include "stat/stat.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FINISHED_SHOWN 20

struct options {
    bool json, all, fields, prometheus;
    double watch; /* seconds, 0: once */
    int pid;
};

struct processes {
    struct zeroute_list *list;
    struct zeroute_snapshot **snapshot;
    size_t count;
};

static const struct zr_option option_table[] = {
    {'a', "all", NULL, "show a page for each process and for each job"},
    {'f', "fields", NULL, "show every field by its name, with unit and help"},
    {'j', "json", NULL, "print JSON; with --watch one document per line"},
    {'p', "prometheus", NULL, "print the Prometheus text format"},
    {'w', "watch", "[SECONDS]", "show it again and again, every 2 seconds by default"},
    {0},
};

static const struct zr_command command = {
    .name = "stat",
    .usage = "zeroute stat [PID | --all] [--fields] [--json | --prometheus] [--watch[=SECONDS]]",
    .about = "Shows the processes that have used a device under zeroute, running or finished: one line each, or a "
             "page about PID. Processes of one job (one 'zeroute run', MPI, torchrun, Slurm) are added up.",
    .options = option_table,
    .notes = "Exit code: 0 shown, 2 no such process, not readable, or wrong usage.\n",
    .operands = "one process id at most",
    .most = 1,
    .examples = "zeroute stat\n"
                "zeroute stat 4711 --fields\n"
                "zeroute stat --json | jq '.processes[].fields[\"allocated_bytes.all.peak\"]'",
};

static void collect(struct processes *p) {
    char why[256];
    *p = (struct processes){.list = zeroute_list_new()};
    if (!p->list)
        return;
    p->snapshot = calloc(p->list->count + 1, sizeof *p->snapshot);
    for (size_t i = 0; p->snapshot && i < p->list->count; i++) {
        struct zeroute_process *one = &p->list->process[i];
        struct zeroute_snapshot *s = zeroute_snapshot_new(one, why, sizeof why);
        if (s) {
            p->snapshot[p->count++] = s;
        } else if (one->readable) {
            one->readable = false;
            snprintf(one->why, sizeof one->why, "%.127s", why);
        }
    }
}

static void discard(struct processes *p) {
    for (size_t i = 0; i < p->count; i++)
        zeroute_snapshot_free(p->snapshot[i]);
    free(p->snapshot);
    zeroute_list_free(p->list);
}

/* The job of a process: its launcher's, or else its `zeroute run`. NULL when it belongs to none. */
static const char *job_of(const struct zeroute_snapshot *s) {
    if (*s->process.job_id)
        return s->process.job_id;
    return *s->process.run_id ? s->process.run_id : NULL;
}

struct job {
    const char *name;
    unsigned uid; /* nobody adds to the job of another */
    const struct processes *p;
    struct zeroute_snapshot *sum;
    size_t ended; /* of its processes */
};

static bool belongs(size_t i, const struct job *job) {
    const struct zeroute_snapshot *s = job->p->snapshot[i];
    const char *its = job_of(s);
    return its && strcmp(its, job->name) == 0 && s->process.uid == job->uid;
}

static bool is_current(const char *field) {
    size_t n = strlen(field);
    return n > 8 && strcmp(field + n - 8, ".current") == 0;
}

/* While a rank runs, those that have ended hold nothing: their last figures are no part of now. */
static struct zeroute_snapshot *share_of(const struct zeroute_snapshot *s, bool job_runs) {
    char why[256];
    struct zeroute_snapshot *own = zeroute_snapshot_new(&s->process, why, sizeof why);
    for (size_t i = 0; own && job_runs && s->process.state == ZEROUTE_FINISHED && i < own->field_count; i++)
        if (is_current(own->field[i].name))
            own->field[i].value = 0;
    return own;
}

static void add_up(struct job *j) {
    size_t members = 0;
    for (size_t i = 0; i < j->p->count; i++)
        if (belongs(i, j)) {
            members++;
            j->ended += j->p->snapshot[i]->process.state == ZEROUTE_FINISHED;
        }
    for (size_t i = 0; members > 1 && i < j->p->count; i++) {
        if (!belongs(i, j))
            continue;
        struct zeroute_snapshot *one = share_of(j->p->snapshot[i], j->ended < members);
        if (!one)
            continue;
        if (!j->sum) {
            j->sum = one;
            continue;
        }
        zeroute_snapshot_add(j->sum, one);
        zeroute_snapshot_free(one);
    }
}

/* Adds up every job of two or more processes; calls `show` with the sum and its members. */
static void for_each_job(FILE *out, const struct processes *p,
                         void (*show)(FILE *out, const struct job *job, void *data), void *data) {
    for (size_t i = 0; i < p->count; i++) {
        struct job j = {.name = job_of(p->snapshot[i]), .uid = p->snapshot[i]->process.uid, .p = p};
        bool first = j.name != NULL;
        for (size_t o = 0; first && o < i; o++)
            first = !belongs(o, &j);
        if (!first)
            continue;
        add_up(&j);
        if (j.sum)
            show(out, &j, data);
        zeroute_snapshot_free(j.sum);
    }
}

static void job_json(FILE *out, const struct job *job, void *data) {
    json_t *item = zr_json_object(data, NULL);
    (void)out;
    zr_json_text(item, "job", job->name);
    json_t *pids = zr_json_array(item, "pids");
    for (size_t i = 0; i < job->p->count; i++)
        if (belongs(i, job))
            zr_json_count(pids, NULL, (uint64_t)job->p->snapshot[i]->process.pid);
    zr_json_fields(item, job->sum);
}

static void job_line(FILE *out, const struct job *job, void *data) {
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE], c[ZR_TEXT_SIZE], ended[48] = "";
    bool over = job->ended == job->sum->processes;
    (void)data;
    zr_text_bytes(b, zeroute_value(job->sum, "allocated_bytes.all.peak", 0));
    if (job->ended)
        snprintf(ended, sizeof ended, " (%zu finished)", job->ended);
    fprintf(out, "job %s: %zu processes%s, ", zr_shown(job->name), job->sum->processes, over ? ", finished" : ended);
    if (over)
        fprintf(out, "peaks together %s\n", b);
    else
        fprintf(out, "%s in use, peaks together %s, reserved %s\n",
                zr_text_bytes(a, zeroute_value(job->sum, "allocated_bytes.all.current", 0)), b,
                zr_text_bytes(c, zeroute_value(job->sum, "reserved_bytes.all.current", 0)));
}

static void job_page(FILE *out, const struct job *job, void *data) {
    fprintf(out, "\njob %s: ", zr_shown(job->name));
    zr_summary(out, job->sum, *(bool *)data);
}

static void print_fields(FILE *out, const struct zeroute_snapshot *s, bool colour) {
    struct zr_table *t = zr_table_new("field", ">value", "unit", "help", (char *)NULL);
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

static void print_unreadable(const struct processes *p, FILE *out) {
    for (size_t i = 0; p->list && i < p->list->count; i++) {
        const struct zeroute_process *one = &p->list->process[i];
        if (!one->readable)
            fprintf(out, "%d  (user %u)  %s: %s\n", one->pid_inside, one->uid, zr_shown(one->path), zr_shown(one->why));
    }
}

static void print_json(FILE *out, const struct processes *p, bool with_jobs, bool one_line) {
    json_t *document = zr_json_document(1);
    json_t *processes = zr_json_array(document, "processes");
    for (size_t i = 0; i < p->count; i++)
        zr_json_process(processes, p->snapshot[i]);
    if (with_jobs) {
        json_t *jobs = zr_json_array(document, "jobs");
        for_each_job(out, p, job_json, jobs);
        json_t *not_readable = zr_json_array(document, "not_readable");
        for (size_t i = 0; p->list && i < p->list->count; i++) {
            const struct zeroute_process *one = &p->list->process[i];
            if (one->readable)
                continue;
            json_t *item = zr_json_object(not_readable, NULL);
            zr_json_count(item, "pid", (uint64_t)one->pid_inside);
            zr_json_count(item, "uid", one->uid);
            zr_json_text(item, "why", one->why);
        }
    }
    zr_json_write(out, document, ZR_JSON_DIGITS, one_line);
}

/*
 * Leaves only the process that was named: by its pid here, else by its pid in its container;
 * the newest.
 */
static int choose(struct processes *p, int pid) {
    struct zeroute_snapshot *best = NULL;
    for (int inside = 0; !best && inside < 2; inside++)
        for (size_t i = 0; i < p->count; i++) {
            const struct zeroute_process *one = &p->snapshot[i]->process;
            bool match = (inside ? one->pid_inside : one->pid) == pid;
            if (match && (!best || one->state == ZEROUTE_LIVE || best->process.state != ZEROUTE_LIVE))
                best = p->snapshot[i];
        }
    if (!best) {
        for (size_t i = 0; p->list && i < p->list->count; i++) {
            const struct zeroute_process *one = &p->list->process[i];
            if (one->readable || one->pid_inside != pid)
                continue;
            zr_complain("stat", "process %d (user %u): %s", pid, one->uid, one->why);
            return ZR_EXIT_ERROR;
        }
        zr_complain("stat",
                    "no statistics of process %d: expected one that was started under zeroute and has "
                    "used a device",
                    pid);
        return ZR_EXIT_ERROR;
    }
    for (size_t i = 0; i < p->count; i++)
        if (p->snapshot[i] != best)
            zeroute_snapshot_free(p->snapshot[i]);
    p->snapshot[0] = best;
    p->count = 1;
    return 0;
}

/* The living first, then the finished, the newest of each first. */
static int by_life(const void *a, const void *b) {
    const struct zeroute_snapshot *p = *(struct zeroute_snapshot *const *)a;
    const struct zeroute_snapshot *q = *(struct zeroute_snapshot *const *)b;
    bool p_ended = p->process.state == ZEROUTE_FINISHED;
    bool q_ended = q->process.state == ZEROUTE_FINISHED;
    if (p_ended != q_ended)
        return p_ended ? 1 : -1;
    return (p->process.created_ns < q->process.created_ns) - (p->process.created_ns > q->process.created_ns);
}

/* The living first, what holds most of each first. */
static int by_use(const void *a, const void *b) {
    const struct zeroute_snapshot *p = *(struct zeroute_snapshot *const *)a;
    const struct zeroute_snapshot *q = *(struct zeroute_snapshot *const *)b;
    uint64_t p_use = zeroute_value(p, "reserved_bytes.all.current", 0);
    uint64_t q_use = zeroute_value(q, "reserved_bytes.all.current", 0);
    if ((p->process.state == ZEROUTE_FINISHED) != (q->process.state == ZEROUTE_FINISHED) || p_use == q_use)
        return by_life(a, b);
    return p_use < q_use ? 1 : -1;
}

/* For a page that fits a screen; returns how many finished ones were left out. */
static size_t shorten(struct processes *p, bool watched) {
    size_t ended = 0, left_out = 0, kept = 0;
    if (p->count)
        qsort(p->snapshot, p->count, sizeof *p->snapshot, watched ? by_use : by_life);
    for (size_t i = 0; i < p->count; i++) {
        if (p->snapshot[i]->process.state == ZEROUTE_FINISHED && ++ended > FINISHED_SHOWN) {
            zeroute_snapshot_free(p->snapshot[i]);
            left_out++;
        } else {
            p->snapshot[kept++] = p->snapshot[i];
        }
    }
    p->count = kept;
    return left_out;
}

static int show(FILE *out, bool colour, const struct options *o) {
    struct processes p;
    int code = 0;
    collect(&p);
    if (o->pid)
        code = choose(&p, o->pid);
    if (code) {
        discard(&p);
        return code;
    }
    if (o->json) {
        print_json(out, &p, !o->pid, o->watch > 0);
    } else if (o->prometheus) {
        zr_prometheus(out, p.snapshot, p.count);
    } else if (o->fields) {
        for (size_t i = 0; i < p.count; i++) {
            if (p.count > 1)
                fprintf(out, "%s%d  %s\n", i ? "\n" : "", p.snapshot[i]->process.pid_inside,
                        zr_shown(p.snapshot[i]->process.command));
            print_fields(out, p.snapshot[i], colour);
        }
    } else if (o->pid || o->all) {
        for (size_t i = 0; i < p.count; i++) {
            if (i)
                fputc('\n', out);
            zr_summary(out, p.snapshot[i], colour);
        }
        if (!o->pid)
            for_each_job(out, &p, job_page, &colour);
    } else if (p.count) {
        size_t left_out = shorten(&p, o->watch > 0);
        zr_overview(out, p.snapshot, p.count, colour);
        if (left_out)
            fprintf(out, "and %zu more that are finished: zeroute stat --all\n", left_out);
        for_each_job(out, &p, job_line, NULL);
    }
    if (!o->pid && !o->json && !o->prometheus) {
        if (!p.count && (!p.list || !p.list->count))
            fputs("no process has used a device under zeroute in the last ten minutes\n", out);
        print_unreadable(&p, out);
    }
    discard(&p);
    return 0;
}

static volatile sig_atomic_t interrupted;

static void interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

/* One look: drawn over the last one on a screen, else behind it. */
static int look(const struct options *o) {
    size_t width, height, size = 0;
    char *page = NULL;
    if (o->json || o->prometheus || !zr_screen_size(stdout, &width, &height))
        return show(stdout, zr_colour(stdout), o);
    FILE *f = open_memstream(&page, &size);
    if (!f)
        return ZR_EXIT_ERROR;
    int code = show(f, zr_colour(stdout), o);
    if (fclose(f) == 0 && code == 0)
        zr_screen_show(stdout, page, width, height);
    free(page);
    return code;
}

static int watch(const struct options *o) {
    struct sigaction act = {.sa_handler = interrupt};
    int code = 0;
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    while (!interrupted && code == 0) {
        code = look(o);
        if (fflush(stdout))
            return ZR_EXIT_ERROR;
        struct timespec t = {.tv_sec = (time_t)o->watch,
                             .tv_nsec = (long)((o->watch - (double)(time_t)o->watch) * 1e9)};
        if (code == 0)
            nanosleep(&t, NULL);
    }
    return code;
}

static bool take(void *to, const struct zr_option *option, const char *value) {
    struct options *o = to;
    switch (option->id) {
    case 'a':
        o->all = true;
        return true;
    case 'f':
        o->fields = true;
        return true;
    case 'j':
        o->json = true;
        return true;
    case 'p':
        o->prometheus = true;
        return true;
    default:
        o->watch = 2;
        return !value || zr_option_real(&command, option, value, 0.1, &o->watch);
    }
}

int zr_cmd_stat(int argc, char **argv) {
    struct options o = {0};
    int at;
    if (!zr_options(&command, argc, argv, take, &o, &at))
        return at;
    if (at < argc && !zr_operand_pid(&command, argv[at], &o.pid))
        return ZR_EXIT_ERROR;
    if (o.all && o.pid)
        return zr_wrong(&command, "--all and a process id together: expected one of them");
    if (o.watch > 86400)
        o.watch = 86400;
    int code = o.watch > 0 ? watch(&o) : show(stdout, zr_colour(stdout), &o);
    zr_gc_old();
    return code;
}
