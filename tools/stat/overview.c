/* Many processes in one table: jobs and processes sorted as in top, the processes of a job below its line of sums. */
#include "stat/stat.h"
#include "watch/top.h"

#include <stdlib.h>
#include <string.h>

enum { WIDE = 100, CELLS = 11 };

/* Columns that every table has not. */
struct columns {
    bool finished, ranks, failed, paused, wide;
};

static struct zr_table *new_table(const struct columns *c) {
    const char *head[CELLS + 1];
    size_t n = 0;

    head[n++] = ">pid";
    head[n++] = ">age";
    if (c->ranks)
        head[n++] = ">rank";
    if (!c->finished)
        head[n++] = ">card";
    head[n++] = c->finished ? ">not freed" : ">in use";
    head[n++] = ">peak";
    if (c->wide)
        head[n++] = ">reserved";
    head[n++] = ">mirror";
    if (c->failed)
        head[n++] = ">failed";
    if (c->paused)
        head[n++] = "state";
    head[n++] = "$command";
    head[n] = NULL;
    return zr_table_of(head);
}

struct row {
    const char *pid, *age, *rank, *card, *state, *command;
    uint64_t held, peak, reserved, mirror, failed;
};

static void add_row(struct zr_table *t, const struct columns *c, const struct row *r) {
    char held[ZR_TEXT_SIZE], peak[ZR_TEXT_SIZE], reserved[ZR_TEXT_SIZE], failed[ZR_TEXT_SIZE], mirror[ZR_TEXT_SIZE];
    const char *cell[CELLS];
    size_t n = 0;

    cell[n++] = r->pid;
    cell[n++] = r->age;
    if (c->ranks)
        cell[n++] = r->rank;
    if (!c->finished)
        cell[n++] = r->card;
    cell[n++] = zr_text_bytes(held, r->held);
    cell[n++] = zr_text_bytes(peak, r->peak);
    if (c->wide)
        cell[n++] = zr_text_bytes(reserved, r->reserved);
    cell[n++] = zr_text_bytes(mirror, r->mirror);
    if (c->failed)
        cell[n++] = zr_text_count(failed, r->failed);
    if (c->paused)
        cell[n++] = r->state;
    cell[n] = r->command;
    zr_table_cells(t, cell);
}

static bool is_finished(const struct zr_process_view *v) {
    return v->process.state == ZEROUTE_FINISHED;
}

/* A finished process holds nothing any more: what it had not freed stands there instead. */
static void add_process(struct zr_table *t, const struct zr_view *m, const struct zr_process_view *v,
                        const struct columns *c, bool of_job) {
    const struct zeroute_process *p = &v->process;
    char pid[16], age[ZR_TEXT_SIZE], cards[ZR_TEXT_SIZE], state[ZR_TEXT_SIZE], command[sizeof p->command + 8];
    struct row r = {.pid = pid,
                    .age = age,
                    .rank = *v->id.rank ? v->id.rank : "-",
                    .card = zr_cards_text(cards, sizeof cards, v->on_cards),
                    .state = zr_pause_text(state, v, m->wall_ns),
                    .command = command,
                    .held = is_finished(v) ? v->left_bytes : v->allocated,
                    .peak = v->peak,
                    .reserved = is_finished(v) ? v->reserved_peak : v->reserved,
                    .mirror = is_finished(v) ? ZR_ABSENT : v->mirror,
                    .failed = v->failures};

    snprintf(command, sizeof command, "%s%s", of_job ? "`- " : "", p->command);
    snprintf(pid, sizeof pid, "%d", p->pid ? p->pid : p->pid_inside);
    zr_text_age(age, m->wall_ns > p->created_ns ? m->wall_ns - p->created_ns : 0);
    add_row(t, c, &r);
}

static void add_sum(struct zr_table *t, const struct zr_job_view *job, const struct columns *c) {
    char command[320], cards[ZR_TEXT_SIZE], rank[24], state[ZR_TEXT_SIZE] = "";
    const char *name = job->sum.id.job_name;
    uint64_t left = 0;
    struct row r = {.pid = "sum", .age = "", .rank = rank, .state = state, .command = command};

    for (size_t i = 0; i < job->count; i++)
        left += job->process[i]->left_bytes == ZR_ABSENT ? 0 : job->process[i]->left_bytes;
    size_t used = (size_t)snprintf(command, sizeof command, "job %.96s", job->name);
    snprintf(rank, sizeof rank, "x%zu", job->count);
    if (job->paused)
        snprintf(state, sizeof state, "%zu paused", job->paused);
    if (*name)
        used += (size_t)snprintf(command + used, sizeof command - used, " (%s)", name);
    if (job->ended && job->ended < job->count)
        snprintf(command + used, sizeof command - used, " (%zu finished)", job->ended);
    r.card = zr_cards_text(cards, sizeof cards, job->sum.on_cards);
    r.held = c->finished ? left : job->sum.allocated;
    r.peak = job->peak;
    r.reserved = c->finished ? job->reserved_peak : job->sum.reserved;
    r.mirror = c->finished ? ZR_ABSENT : job->sum.mirror;
    r.failed = job->sum.failures;
    add_row(t, c, &r);
}

/* --- order ------------------------------------------------------------------------------------ */

static const struct zr_overview *sorted; /* qsort has no argument */

static uint64_t newest_of(const struct zr_job_view *j) {
    uint64_t newest = 0;

    for (size_t i = 0; i < j->count; i++)
        newest = j->process[i]->process.created_ns > newest ? j->process[i]->process.created_ns : newest;
    return newest;
}

static double key_of(const struct zr_job_view *j, const struct zr_process_view *p) {
    const struct zr_row row = {.process = p};

    if (sorted->column != ZR_SORT_NOT_SAID)
        return zr_column_value(sorted->column, &row);
    if (!sorted->finished)
        return (double)p->allocated;
    return (double)(j ? newest_of(j) : p->process.created_ns);
}

/* PID and rank rise, as in top; of all else the most comes first. */
static int in_order(double x, double y) {
    if (x == y)
        return 0;
    return (x < y) == (sorted->column < 2) ? -1 : 1;
}

static const struct zr_process_view *of_line(const struct zr_job_view *j) {
    return j->count > 1 ? &j->sum : j->process[0];
}

static int by_job(const void *a, const void *b) {
    const struct zr_job_view *p = a, *q = b;
    int order = in_order(key_of(p, of_line(p)), key_of(q, of_line(q)));

    return order ? order : of_line(p)->process.pid - of_line(q)->process.pid;
}

/* Ranks stand in their order; processes without one as jobs do. */
static int by_rank(const void *a, const void *b) {
    const struct zr_process_view *p = *(struct zr_process_view *const *)a, *q = *(struct zr_process_view *const *)b;
    double x = strtod(p->id.rank, NULL), y = strtod(q->id.rank, NULL);

    if (x != y)
        return x < y ? -1 : 1;
    int order = in_order(key_of(NULL, p), key_of(NULL, q));
    return order ? order : p->process.pid - q->process.pid;
}

/* The line of the job, and `most` of its processes of this kind below it. */
static size_t add_job(struct zr_table *t, const struct zr_view *m, struct zr_job_view *job, const struct columns *c,
                      size_t most) {
    bool is_job = *job->name && job->count > 1;
    size_t shown = 0;

    qsort(job->process, job->count, sizeof(struct zr_process_view *), by_rank);
    for (size_t i = 0; i < job->count && shown < most; i++) {
        if (is_finished(job->process[i]) != c->finished)
            continue;
        if (is_job && !shown)
            add_sum(t, job, c);
        add_process(t, m, job->process[i], c, is_job);
        shown++;
    }
    return shown;
}

size_t zr_overview(FILE *out, const struct zr_view *m, const struct zr_overview *how, bool colour) {
    size_t jobs, shown = 0, all = how->finished ? m->ended_count : m->process_count;
    struct zr_process_view *const *process = how->finished ? m->ended : m->process;
    struct columns c = {.finished = how->finished, .wide = !zr_columns(out) || zr_columns(out) >= WIDE};
    struct zr_job_view *job;

    if (!all)
        return 0;
    for (size_t i = 0; i < all; i++) {
        c.ranks |= *process[i]->id.rank != '\0';
        c.failed |= process[i]->failures > 0;
        c.paused |= zr_is_paused(process[i]);
    }
    job = zr_jobs(m, &jobs);
    for (size_t i = 0; i < jobs; i++)
        c.ranks |= job[i].count > 1;
    struct zr_table *t = new_table(&c);
    struct zr_process_view **processes = job->process; /* of all jobs; sorting jobs moves the first one */
    sorted = how;
    qsort(job, jobs, sizeof *job, by_job);
    for (size_t i = 0; i < jobs && shown < how->most; i++)
        shown += add_job(t, m, &job[i], &c, how->most - shown);
    zr_table_print(t, out, colour);
    free(processes);
    free(job);
    return all;
}
