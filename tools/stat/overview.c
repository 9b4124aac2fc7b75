/* Many processes in one table: those of a job together, with a line of sums below them. */
#include "stat/stat.h"

#include <stdlib.h>
#include <string.h>

static struct zr_table *new_table(bool finished, bool ranks) {
    const char *held = finished ? ">not freed" : ">in use";

    if (ranks)
        return zr_table_new(">pid", ">age", held, ">peak", ">reserved", ">mirror", ">failed", "rank", "~command",
                            (char *)NULL);
    return zr_table_new(">pid", ">age", held, ">peak", ">reserved", ">mirror", ">failed", "~command", (char *)NULL);
}

struct row {
    const char *pid, *age, *rank, *command;
    uint64_t held, peak, reserved, mirror, failed;
};

static void add_row(struct zr_table *t, bool ranks, const struct row *r) {
    char held[ZR_TEXT_SIZE], peak[ZR_TEXT_SIZE], reserved[ZR_TEXT_SIZE], failed[ZR_TEXT_SIZE], mirror[ZR_TEXT_SIZE];

    zr_text_bytes(held, r->held);
    zr_text_bytes(peak, r->peak);
    zr_text_bytes(reserved, r->reserved);
    zr_text_bytes(mirror, r->mirror);
    zr_text_count(failed, r->failed);
    if (ranks)
        zr_table_row(t, r->pid, r->age, held, peak, reserved, mirror, failed, r->rank, r->command);
    else
        zr_table_row(t, r->pid, r->age, held, peak, reserved, mirror, failed, r->command);
}

static bool is_finished(const struct zr_process_view *v) {
    return v->process.state == ZEROUTE_FINISHED;
}

/* A finished process holds nothing any more: what it had not freed stands there instead. */
static void add_process(struct zr_table *t, const struct zr_view *m, const struct zr_process_view *v, bool ranks) {
    const struct zeroute_process *p = &v->process;
    char pid[16], age[ZR_TEXT_SIZE];
    struct row r = {.pid = pid,
                    .age = age,
                    .rank = *v->id.rank ? v->id.rank : "-",
                    .command = p->command,
                    .held = is_finished(v) ? v->left_bytes : v->allocated,
                    .peak = v->peak,
                    .reserved = is_finished(v) ? v->reserved_peak : v->reserved,
                    .mirror = is_finished(v) ? ZR_ABSENT : v->mirror,
                    .failed = v->failures};

    snprintf(pid, sizeof pid, "%d", p->pid ? p->pid : p->pid_inside);
    zr_text_age(age, m->wall_ns > p->created_ns ? m->wall_ns - p->created_ns : 0);
    add_row(t, ranks, &r);
}

static void add_sum(struct zr_table *t, const struct zr_job_view *job, bool finished, bool ranks) {
    char command[200];
    uint64_t left = 0, reserved = 0;
    struct row r = {.pid = "sum", .age = "", .rank = "", .command = command};

    for (size_t i = 0; i < job->count; i++) {
        left += job->process[i]->left_bytes == ZR_ABSENT ? 0 : job->process[i]->left_bytes;
        reserved += job->process[i]->reserved_peak;
    }
    snprintf(command, sizeof command, "%zu processes of job %.96s", job->count, job->name);
    if (job->ended && job->ended < job->count)
        snprintf(command + strlen(command), sizeof command - strlen(command), " (%zu finished)", job->ended);
    r.held = finished ? left : job->sum.allocated;
    r.peak = job->peak;
    r.reserved = finished ? reserved : job->sum.reserved;
    r.mirror = finished ? ZR_ABSENT : job->sum.mirror;
    r.failed = job->sum.failures;
    add_row(t, ranks, &r);
}

/* The newest job or process first. */
static int by_age(const void *a, const void *b) {
    const struct zr_job_view *p = a, *q = b;
    uint64_t x = 0, y = 0;

    for (size_t i = 0; i < p->count; i++)
        x = p->process[i]->process.created_ns > x ? p->process[i]->process.created_ns : x;
    for (size_t i = 0; i < q->count; i++)
        y = q->process[i]->process.created_ns > y ? q->process[i]->process.created_ns : y;
    return (x < y) - (x > y);
}

static int newest_first(const void *a, const void *b) {
    const struct zr_process_view *p = *(struct zr_process_view *const *)a, *q = *(struct zr_process_view *const *)b;

    return (p->process.created_ns < q->process.created_ns) - (p->process.created_ns > q->process.created_ns);
}

/* Its processes of this kind, `most` of them, and behind the last one the sum of the whole job. */
static size_t add_job(struct zr_table *t, const struct zr_view *m, struct zr_job_view *job, bool finished, bool ranks,
                      size_t most) {
    size_t shown = 0;

    qsort(job->process, job->count, sizeof(struct zr_process_view *), newest_first);
    for (size_t i = 0; i < job->count && shown < most; i++) {
        if (is_finished(job->process[i]) != finished)
            continue;
        add_process(t, m, job->process[i], ranks);
        shown++;
    }
    if (shown && *job->name && job->count > 1)
        add_sum(t, job, finished, ranks);
    return shown;
}

size_t zr_overview(FILE *out, const struct zr_view *m, bool finished, size_t most, bool colour) {
    size_t jobs, shown = 0, all = finished ? m->ended_count : m->process_count;
    struct zr_process_view *const *process = finished ? m->ended : m->process;
    struct zr_job_view *job;
    bool ranks = false;

    if (!all)
        return 0;
    for (size_t i = 0; i < all; i++)
        ranks |= *process[i]->id.rank != '\0';
    struct zr_table *t = new_table(finished, ranks);
    job = zr_jobs(m, &jobs);
    struct zr_process_view **processes = job->process; /* of all jobs; sorting jobs moves the first one */
    qsort(job, jobs, sizeof *job, by_age);
    for (size_t i = 0; i < jobs && shown < most; i++)
        shown += add_job(t, m, &job[i], finished, ranks, most - shown);
    zr_table_print(t, out, colour);
    free(processes);
    free(job);
    return all;
}
