/* Jobs: processes that belong together, and what they make together. */
#include "view/view.h"

#include <stdlib.h>
#include <string.h>

/* --- peaks ------------------------------------------------------------------------------------ */

/*
 * When a process held memory: until its end, which is its last call if it has ended by exit. Of one that was killed
 * it is not known.
 */
struct life {
    uint64_t from, to;
};

static struct life life_of(const struct zeroute_process *p, uint64_t last_activity_ns, uint64_t left_bytes) {
    struct life l = {p->created_ns, UINT64_MAX};

    if (p->state == ZEROUTE_FINISHED && left_bytes != ZR_ABSENT)
        l.to = last_activity_ns > p->created_ns ? last_activity_ns : p->created_ns;
    return l;
}

/*
 * The most that amounts of several processes can have been together, each at most its own peak: only those that ran
 * at one time add up. That sum can only rise when a process begins, so these are the times to look at.
 */
static uint64_t joint_peak(const struct life *life, const uint64_t *peak, size_t count) {
    uint64_t most = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < count; k++)
            if (life[k].from <= life[i].from && life[i].from <= life[k].to)
                sum += peak[k];
        most = sum > most ? sum : most;
    }
    return most;
}

/* --- snapshots as one ------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);

    return n > m && strcmp(text + n - m, end) == 0;
}

/* The value of this field in each process: 0 for memory that it holds no more. */
static uint64_t value_in(const struct zeroute_snapshot *s, const char *name, bool some_run) {
    if (some_run && s->process.state == ZEROUTE_FINISHED && ends_with(name, ".current"))
        return 0;
    return zeroute_value(s, name, 0);
}

/* Values now and peaks were added up as counters are: both are put right. */
static void correct(struct zeroute_snapshot *sum, struct zeroute_snapshot *const *s, size_t count) {
    struct life *life = calloc(count, sizeof *life);
    uint64_t *value = calloc(count, sizeof *value);
    bool some_run = false;

    if (!life || !value)
        abort();
    for (size_t i = 0; i < count; i++) {
        life[i] = life_of(&s[i]->process, s[i]->last_activity_ns, zeroute_value(s[i], "left.bytes", ZR_ABSENT));
        some_run |= s[i]->process.state != ZEROUTE_FINISHED;
    }
    for (size_t f = 0; f < sum->field_count; f++) {
        struct zeroute_field *to = &sum->field[f];
        bool is_peak = ends_with(to->name, ".peak");
        if ((!is_peak && !(some_run && ends_with(to->name, ".current"))) || to->type == ZEROUTE_TEXT)
            continue;
        uint64_t all = 0;
        for (size_t i = 0; i < count; i++) {
            value[i] = value_in(s[i], to->name, some_run);
            all += value[i];
        }
        to->value = is_peak ? joint_peak(life, value, count) : all;
    }
    free(life);
    free(value);
}

struct zeroute_snapshot *zr_sum(struct zeroute_snapshot *const *s, size_t count) {
    struct zeroute_snapshot *sum = calloc(1, sizeof *sum);

    if (!sum || !count) {
        free(sum);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        zeroute_snapshot_add(sum, s[i]);
    sum->process = s[0]->process;
    sum->processes = count;
    correct(sum, s, count);
    return sum;
}

/* --- jobs ------------------------------------------------------------------------------------- */

static void add_amount(uint64_t *sum, uint64_t n) {
    if (n != ZR_ABSENT)
        *sum = *sum == ZR_ABSENT ? n : *sum + n;
}

static void add_counts(struct zr_process_view *sum, const struct zr_process_view *v) {
    sum->hits += v->hits;
    sum->misses += v->misses;
    sum->allocations += v->allocations;
    sum->driver_calls += v->driver_calls;
    sum->failures += v->failures;
    sum->refused += v->refused;
    sum->changes += v->changes;
    sum->calls += v->calls;
    sum->p99_ns = v->p99_ns > sum->p99_ns ? v->p99_ns : sum->p99_ns;
    sum->allocations_rate += v->allocations_rate;
    sum->driver_rate += v->driver_rate;
    sum->failures_rate += v->failures_rate;
    sum->hits_lately += v->hits_lately;
    sum->asked_lately += v->asked_lately;
    sum->hit_rate = sum->asked_lately ? (double)sum->hits_lately / (double)sum->asked_lately : -1;
}

/* A process that has ended holds nothing. */
static void add_held(struct zr_process_view *sum, const struct zr_process_view *v) {
    sum->allocated += v->allocated;
    sum->reserved += v->reserved;
    sum->host_usm += v->host_usm;
    sum->host_side += v->host_side;
    sum->blocks += v->blocks;
    sum->unseen += v->unseen;
    sum->on_cards |= v->on_cards;
    sum->spilled += v->spilled;
    add_amount(&sum->vram, v->vram);
    add_amount(&sum->gtt, v->gtt);
    add_amount(&sum->mirror, v->mirror);
}

static bool is_of_job(const struct zr_process_view *v, const struct zr_job_view *job) {
    return *v->id.job && job->uid == v->process.uid && strcmp(job->name, v->id.job) == 0;
}

static void add_process(struct zr_job_view *job, struct zr_process_view *v) {
    job->process[job->count++] = v;
    add_counts(&job->sum, v);
    if (v->process.state == ZEROUTE_FINISHED)
        job->ended++;
    else
        add_held(&job->sum, v);
    job->paused += zr_is_paused(v);
}

const char *const zr_peak_names[] = {"exact", "seen", "upper bound"};

static struct zr_joint *find_joint(const struct zr_view *m, const char *job, unsigned uid) {
    for (size_t i = 0; i < m->joint_count; i++)
        if (m->joint[i].uid == uid && strcmp(m->joint[i].job, job) == 0)
            return &m->joint[i];
    return NULL;
}

/* NULL: there are too many. */
static struct zr_joint *joint_of(struct zr_view *m, const struct zr_process_view *v) {
    struct zr_joint *j = find_joint(m, v->id.job, v->process.uid);

    if (j || m->joint_count == ZR_JOINTS)
        return j;
    if (!m->joint)
        m->joint = calloc(ZR_JOINTS, sizeof *m->joint);
    if (!m->joint)
        return NULL;
    j = &m->joint[m->joint_count++];
    *j = (struct zr_joint){.uid = v->process.uid};
    snprintf(j->job, sizeof j->job, "%s", v->id.job);
    return j;
}

void zr_joint_note(struct zr_view *m) {
    for (size_t i = 0; i < m->joint_count; i++)
        m->joint[i].now = 0;
    for (size_t i = 0; i < m->process_count; i++) {
        const struct zr_process_view *v = m->process[i];
        struct zr_joint *j = *v->id.job ? joint_of(m, v) : NULL;

        if (!j)
            continue;
        j->now += v->allocated;
        j->peak = j->now > j->peak ? j->now : j->peak;
    }
}

/* One process's own peak is exact; of several the sum of peaks is no more than a bound, unless somebody has looked. */
static void judge_peak(const struct zr_view *m, struct zr_job_view *job, uint64_t bound) {
    const struct zr_joint *seen = m->samples > 1 && *job->name ? find_joint(m, job->name, job->uid) : NULL;
    uint64_t least = 0;

    for (size_t i = 0; i < job->count; i++)
        least = job->process[i]->peak > least ? job->process[i]->peak : least;
    job->peak = bound;
    job->peak_is = bound > least ? ZR_PEAK_BOUND : ZR_PEAK_EXACT;
    if (job->peak_is == ZR_PEAK_BOUND && seen) {
        job->peak = seen->peak > least ? seen->peak : least;
        job->peak_is = ZR_PEAK_SEEN;
    }
    job->sum.peak = job->peak;
}

static void find_peak(const struct zr_view *m, struct zr_job_view *job) {
    struct life *life = calloc(job->count, sizeof *life);
    uint64_t *peak = calloc(job->count, sizeof *peak);

    if (!life || !peak)
        abort();
    for (size_t i = 0; i < job->count; i++) {
        const struct zr_process_view *v = job->process[i];
        life[i] = life_of(&v->process, v->last_activity_ns, v->left_bytes);
        peak[i] = job->process[i]->peak;
    }
    judge_peak(m, job, joint_peak(life, peak, job->count));
    for (size_t i = 0; i < job->count; i++)
        peak[i] = job->process[i]->reserved_peak;
    job->reserved_peak = joint_peak(life, peak, job->count);
    free(life);
    free(peak);
}

/* All processes of a view: those that run, then those that have ended. */
static struct zr_process_view *nth(const struct zr_view *m, size_t i) {
    return i < m->process_count ? m->process[i] : m->ended[i - m->process_count];
}

/* The job of process `first`, with all its processes; their places begin at `process`. */
static struct zr_job_view job_of(const struct zr_view *m, size_t first, struct zr_process_view **process) {
    struct zr_process_view *v = nth(m, first);
    struct zr_job_view job = {.name = v->id.job, .uid = v->process.uid, .process = process};

    job.sum.vram = job.sum.gtt = job.sum.mirror = ZR_ABSENT;
    job.sum.hit_rate = -1;
    job.sum.process = v->process;
    job.sum.id = v->id;
    job.sum.used = v->used;
    for (size_t i = first; i < m->process_count + m->ended_count; i++)
        if (i == first || is_of_job(nth(m, i), &job))
            add_process(&job, nth(m, i));
    find_peak(m, &job);
    return job;
}

/* The processes of all jobs are in one array, job by job: that of the first job is all of it. */
struct zr_job_view *zr_jobs(const struct zr_view *m, size_t *count) {
    size_t all = m->process_count + m->ended_count, used = 0;
    struct zr_job_view *jobs = calloc(all + 1, sizeof *jobs);
    struct zr_process_view **process = calloc(all + 1, sizeof(struct zr_process_view *));

    *count = 0;
    if (!jobs || !process)
        abort();
    jobs->process = process;
    for (size_t i = 0; i < all; i++) {
        size_t n = 0;
        while (n < *count && !is_of_job(nth(m, i), &jobs[n]))
            n++;
        if (n < *count)
            continue;
        jobs[n] = job_of(m, i, process + used);
        used += jobs[n].count;
        ++*count;
    }
    return jobs;
}

void zr_jobs_free(struct zr_job_view *jobs) {
    free(jobs->process);
    free(jobs);
}

bool zr_job_is_called(const struct zr_process_view *v, const char *name) {
    const char *colon = strchr(v->id.job, ':');

    return strcmp(v->id.job, name) == 0 || (colon && strcmp(colon + 1, name) == 0) ||
           (*v->process.run_id && strcmp(v->process.run_id, name) == 0);
}
