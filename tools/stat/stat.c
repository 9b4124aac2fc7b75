/* zeroute stat: what processes have counted, one by one and as a job. */
#include "outside/outside.h"
#include "stat/stat.h"
#include "watch/watch.h"

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
};

struct processes {
    struct zr_look look;
    struct zeroute_snapshot **snapshot;
    size_t count;
};

static const struct zr_option option_table[] = {
    {'a', "all", NULL, "show a page for each process and for each job"},
    {'e', "finished", NULL, "show finished processes, too"},
    {'f', "fields", NULL, "show every field by its name, with unit and help"},
    {'j', "json", NULL, "print JSON"},
    {'p', "prometheus", NULL, "print the Prometheus text format"},
    {'v', "verbose", NULL, "show every row and column of a page"},
    {'w', "watch", "[SECONDS]", "the same as 'zeroute top'"},
    {0},
};

static const struct zr_command command = {
    .name = "stat",
    .usage = "zeroute stat [OPTIONS] [PID]",
    .about = "Shows the running processes that use a device under zeroute, one line each, or a page about PID, which "
             "may be finished. Processes of one job (one 'zeroute run', MPI, torchrun, Slurm) stand together, with a "
             "line of sums.",
    .options = option_table,
    .notes = "Exit code: 0 shown, 2 no such process, not readable, or wrong usage.\n",
    .operands = "one process id at most",
    .most = 1,
    .one_of = "fields|json|prometheus;prometheus|watch",
    .examples = "zeroute stat\n"
                "zeroute stat 4242\n"
                "zeroute stat --finished\n"
                "zeroute stat --json | jq '.processes[].fields[\"left.bytes\"]'",
};

static void collect(struct processes *p) {
    char why[256];
    *p = (struct processes){0};
    zr_outside_look(&p->look, ZR_LOOK_SEGMENTS);
    p->snapshot = calloc(p->look.count + 1, sizeof(struct zeroute_snapshot *));
    for (size_t i = 0; p->snapshot && i < p->look.count; i++) {
        struct zeroute_process *one = &p->look.process[i];
        struct zeroute_snapshot *s = zr_outside_snapshot(one, why, sizeof why);
        if (s) {
            p->snapshot[p->count++] = s;
        } else if (one->readable && *why) {
            one->readable = false;
            snprintf(one->why, sizeof one->why, "%.127s", why);
        }
    }
}

static void discard(struct processes *p) {
    for (size_t i = 0; i < p->count; i++)
        zeroute_snapshot_free(p->snapshot[i]);
    free(p->snapshot);
    zr_look_free(&p->look);
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
    struct zeroute_snapshot *own = zr_outside_snapshot(&s->process, why, sizeof why);
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
static void for_each_job(FILE *out, const struct processes *p, void (*show)(FILE *out, struct job *job, void *data),
                         void *data) {
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

static void job_json(FILE *out, struct job *job, void *data) {
    json_t *item = zr_json_object(data, NULL);
    (void)out;
    zr_json_text(item, "job", job->name);
    json_t *pids = zr_json_array(item, "pids");
    for (size_t i = 0; i < job->p->count; i++)
        if (belongs(i, job))
            zr_json_count(pids, NULL, (uint64_t)job->p->snapshot[i]->process.pid);
    zr_json_fields(item, job->sum);
}

static void job_page(FILE *out, struct job *job, void *data) {
    fprintf(out, "\njob %s: ", zr_shown(job->name));
    zr_summary(out, job->sum, *(bool *)data, false);
}

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

static void print_unreadable(const struct processes *p, FILE *out) {
    size_t count = 0;
    for (size_t i = 0; i < p->look.count; i++) {
        const struct zeroute_process *one = &p->look.process[i];
        char text[640];
        if (one->readable || ++count > UNREADABLE_SHOWN)
            continue;
        if (one->pid_inside)
            snprintf(text, sizeof text, "not readable: %d (user %u), %s: %s", one->pid_inside, one->uid, one->path,
                     one->why);
        else
            snprintf(text, sizeof text, "processes of user %u, %s: %s", one->uid, one->path, one->why);
        zr_text_wrap(out, 2, 80, text);
    }
    if (count > UNREADABLE_SHOWN)
        fprintf(out, "and %zu more that are not readable: zeroute stat --json has them all\n",
                count - UNREADABLE_SHOWN);
}

static void print_json(FILE *out, const struct processes *p, bool with_jobs) {
    json_t *document = zr_json_document(1);
    json_t *processes = zr_json_array(document, "processes");
    for (size_t i = 0; i < p->count; i++)
        zr_json_process(processes, p->snapshot[i]);
    if (with_jobs) {
        json_t *jobs = zr_json_array(document, "jobs");
        for_each_job(out, p, job_json, jobs);
        json_t *not_readable = zr_json_array(document, "not_readable");
        for (size_t i = 0; i < p->look.count; i++) {
            const struct zeroute_process *one = &p->look.process[i];
            if (one->readable)
                continue;
            json_t *item = zr_json_object(not_readable, NULL);
            zr_json_count(item, "pid", (uint64_t)one->pid_inside);
            zr_json_count(item, "uid", one->uid);
            zr_json_text(item, "path", one->path);
            zr_json_text(item, "why", one->why);
        }
    }
    zr_json_write(out, document, ZR_JSON_DIGITS, false);
}

/* Whether the process belongs to the user. */
static bool has_user(int pid, unsigned uid) {
    unsigned its;

    return zr_outside_user(pid, &its) && its == uid;
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
        for (size_t i = 0; i < p->look.count; i++) {
            const struct zeroute_process *one = &p->look.process[i];
            bool of_its_user = !one->pid_inside && has_user(pid, one->uid);

            if (one->readable || (one->pid_inside != pid && !of_its_user))
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

/* Those of a job stand together, behind the first of it. */
static void group(struct processes *p) {
    for (size_t i = 0; i < p->count; i++) {
        struct job j = {.name = job_of(p->snapshot[i]), .uid = p->snapshot[i]->process.uid, .p = p};
        for (size_t to = i + 1, from = i + 1; j.name && from < p->count; from++) {
            if (!belongs(from, &j))
                continue;
            struct zeroute_snapshot *moved = p->snapshot[from];
            memmove(&p->snapshot[to + 1], &p->snapshot[to], (from - to) * sizeof(struct zeroute_snapshot *));
            p->snapshot[to++] = moved;
            i = to - 1;
        }
    }
}

struct sums {
    struct zeroute_snapshot *const *shown;
    size_t shown_count, count;
    struct zr_overview_sum *at;
    char (*name)[160];
};

/* Takes the sum over, to be shown behind the last process of the job that is in the table. */
static void take_sum(FILE *out, struct job *job, void *data) {
    struct sums *sums = data;
    size_t behind = SIZE_MAX;
    (void)out;
    for (size_t i = 0; i < sums->shown_count; i++) {
        const char *its = job_of(sums->shown[i]);
        if (its && strcmp(its, job->name) == 0 && sums->shown[i]->process.uid == job->uid)
            behind = i;
    }
    if (behind == SIZE_MAX)
        return;
    char *name = sums->name[sums->count];
    snprintf(name, sizeof *sums->name, "%.96s", job->name);
    if (job->ended && job->ended < job->sum->processes)
        snprintf(name + strlen(name), sizeof *sums->name - strlen(name), " (%zu finished)", job->ended);
    sums->at[sums->count++] = (struct zr_overview_sum){behind, name, job->sum};
    job->sum = NULL;
}

static void print_table(FILE *out, bool colour, struct processes *all, struct zeroute_snapshot **shown, size_t count) {
    struct sums sums = {.shown = shown, .shown_count = count};
    sums.at = calloc(all->count + 1, sizeof *sums.at);
    sums.name = calloc(all->count + 1, sizeof *sums.name);
    if (sums.at && sums.name)
        for_each_job(out, all, take_sum, &sums);
    zr_overview(out, shown, count, sums.at, sums.count, colour);
    for (size_t i = 0; i < sums.count; i++)
        zeroute_snapshot_free((struct zeroute_snapshot *)(uintptr_t)sums.at[i].sum);
    free(sums.at);
    free(sums.name);
}

/* The running ones; the finished ones, FINISHED_SHOWN at most, if they are wanted. */
static void print_tables(FILE *out, bool colour, struct processes *p, const struct options *o) {
    size_t live = 0;
    if (p->count)
        qsort(p->snapshot, p->count, sizeof(struct zeroute_snapshot *), by_life);
    while (live < p->count && p->snapshot[live]->process.state != ZEROUTE_FINISHED)
        live++;
    struct processes running = {.snapshot = p->snapshot, .count = live};
    struct processes ended = {.snapshot = p->snapshot + live, .count = p->count - live};
    group(&running);
    group(&ended);
    if (live)
        print_table(out, colour, p, running.snapshot, live);
    if (!ended.count)
        return;
    if (!o->finished) {
        fprintf(out, "%s%zu finished in the last ten minutes: zeroute stat --finished\n",
                live ? "" : "no process is running; ", ended.count);
        return;
    }
    size_t shown = ended.count > FINISHED_SHOWN ? FINISHED_SHOWN : ended.count;
    fprintf(out, "%sfinished:\n", live ? "\n" : "");
    print_table(out, colour, p, ended.snapshot, shown);
    if (shown < ended.count)
        fprintf(out, "and %zu more that are finished: zeroute stat --json has them all\n", ended.count - shown);
}

/* As `zeroute serve` has them; a single process has labels of its own. */
static int print_metrics(FILE *out, int pid) {
    struct zr_model *m = zr_model_new(
        &(struct zr_model_options){.metrics = true, .all_at_once = true, .pid = pid, .per_process = pid != 0});
    bool good = m && zr_model_sample(m);
    if (good)
        zr_exposition(out, m);
    zr_model_free(m);
    return good ? ZR_EXIT_DONE : ZR_EXIT_ERROR;
}

static int show(FILE *out, bool colour, const struct options *o) {
    struct processes p = {0};
    int code = 0;
    if (!o->prometheus || o->pid)
        collect(&p);
    if (o->pid)
        code = choose(&p, o->pid);
    if (code) {
        discard(&p);
        return code;
    }
    if (o->json) {
        print_json(out, &p, !o->pid);
    } else if (o->prometheus) {
        code = print_metrics(out, o->pid);
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
            zr_summary(out, p.snapshot[i], colour, o->verbose);
        }
        if (!o->pid)
            for_each_job(out, &p, job_page, &colour);
    } else if (p.count) {
        print_tables(out, colour, &p, o);
    }
    if (!o->pid && !o->json && !o->prometheus) {
        if (!p.count && !p.look.count)
            fputs("no process has used a device under zeroute in the last ten minutes\n", out);
        print_unreadable(&p, out);
    }
    discard(&p);
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
