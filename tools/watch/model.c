/* The model: processes as they come and go, their figures and rates, and the sums that outlive them. */
#include "outside/outside.h"
#include "watch/watch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { IDLE_AFTER = 5, IDLE_EVERY = 4, CROWD = 64 };

/* A process that has ended and was added to the sums of its group: not to be counted again. */
struct zr_ended {
    uint64_t nonce, inode;
    bool seen;
    struct zr_ended *next;
};

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- histories ------------------------------------------------------------------------------------------- */

void zr_history_note(struct zr_history *h, uint64_t now, uint64_t every, uint64_t value) {
    if (value > h->high)
        h->high = value;
    if (now < h->next)
        return;
    h->next = now + every - every / 8; /* samples come a little early and a little late */
    h->value[h->at] = h->high;
    h->at = (h->at + 1) % ZR_HISTORY;
    h->count += h->count < ZR_HISTORY;
    h->high = 0;
}

uint64_t zr_history_at(const struct zr_history *h, unsigned n) {
    return h->value[(h->at + ZR_HISTORY - h->count + n) % ZR_HISTORY];
}

/* --- groups of metrics ----------------------------------------------------------------------------------- */

static void group_labels(const struct zr_model *m, const struct zr_process_view *v, char *labels, size_t size) {
    char number[24];
    *labels = '\0';
    zr_label(labels, size, "job", v->id.job);
    zr_label(labels, size, "namespace", v->id.space);
    zr_label(labels, size, "pod", v->id.pod);
    zr_label(labels, size, "container", v->id.container);
    snprintf(number, sizeof number, "%u", v->process.uid);
    zr_label(labels, size, "uid", number);
    if (!m->options.per_process)
        return;
    snprintf(number, sizeof number, "%d", v->process.pid ? v->process.pid : v->process.pid_inside);
    zr_label(labels, size, "pid", number);
    zr_label(labels, size, "command", v->process.command);
}

/* A group of which no process is left makes room: what it counted goes on under a name for all such. */
static struct zr_group *make_room(struct zr_model *m) {
    struct zr_group *others = &m->group[0];
    for (size_t i = 1; i < m->group_count; i++)
        if (!m->group[i].processes && !m->group[i].was_live) {
            zr_figures_add(&others->ended, &m->group[i].ended, false, ZR_USER_SERIES);
            zr_figures_free(&m->group[i].ended);
            zr_figures_free(&m->group[i].live);
            return &m->group[i];
        }
    return NULL;
}

static struct zr_group *group_of(struct zr_model *m, const char *labels) {
    struct zr_group *g;
    for (size_t i = 0; i < m->group_count; i++)
        if (strcmp(m->group[i].labels, labels) == 0)
            return &m->group[i];
    g = m->group_count < ZR_WATCH_KEPT ? NULL : make_room(m);
    if (!g && m->group_count < ZR_WATCH_GROUPS)
        g = &m->group[m->group_count++];
    if (!g)
        return &m->group[0];
    *g = (struct zr_group){0};
    snprintf(g->labels, sizeof g->labels, "%s", labels);
    return g;
}

static struct zr_group *group_of_process(struct zr_model *m, const struct zr_process_view *v) {
    char labels[sizeof m->group->labels];
    group_labels(m, v, labels, sizeof labels);
    struct zr_group *g = group_of(m, labels);
    if (g != &m->group[0])
        g->uid = v->process.uid;
    return g;
}

/* How many series a user may still have, in all groups. */
static size_t room_of_user(const struct zr_model *m, unsigned uid) {
    size_t used = 0;
    for (size_t i = 0; i < m->group_count; i++)
        if (m->group[i].uid == uid)
            used += m->group[i].live.count + m->group[i].ended.count;
    return used < ZR_USER_SERIES ? ZR_USER_SERIES - used : 0;
}

static void not_all_of(struct zr_model *m, unsigned uid) {
    m->unreadable++;
    snprintf(m->unreadable_why, sizeof m->unreadable_why, "user %u has more processes or metrics than can be shown",
             uid);
}

/* --- one process ------------------------------------------------------------------------------------------- */

static uint64_t value(const struct zeroute_snapshot *s, const char *name) {
    return zeroute_value(s, name, 0);
}

static void copy_text(char *out, size_t size, const struct zeroute_snapshot *s, const char *name) {
    const struct zeroute_field *f = zeroute_find(s, name);
    snprintf(out, size, "%s", f && f->text ? f->text : "");
}

/* Two cards of one address, as a driver without sysfs tells them, are known by their numbers. */
static bool is_alone(const struct zeroute_snapshot *s, const char *pci, unsigned number) {
    char key[48];
    for (unsigned n = 0; n < ZR_CARDS_MAX; n++) {
        snprintf(key, sizeof key, "card.%u.pci", n);
        const char *other = zeroute_fact(s, key);
        if (other && n != number && strcmp(other, pci) == 0)
            return false;
    }
    return true;
}

static void device_names(struct zr_model *m, const struct zeroute_snapshot *s, struct zr_device_names *out) {
    char key[48];
    uint64_t memory;
    out->count = sizeof out->name / sizeof *out->name;
    for (unsigned n = 0; n < out->count; n++) {
        snprintf(key, sizeof key, "card.%u.pci", n);
        const char *pci = zeroute_fact(s, key);
        if (!pci || !is_alone(s, pci, n)) {
            snprintf(out->name[n], sizeof out->name[n], "%u", n);
            continue;
        }
        snprintf(out->name[n], sizeof out->name[n], "%.31s", pci);
        snprintf(key, sizeof key, "card.%u.memory", n);
        const char *text = zeroute_fact(s, key);
        if (text && zr_text_parse_bytes(text, &memory))
            zr_model_card(m, pci, memory);
    }
}

/* The slowest kind of allocation call. */
static uint64_t p99_of(const struct zeroute_snapshot *s) {
    uint64_t most = 0;
    for (size_t i = 0; i + 4 < s->field_count; i++)
        if (s->field[i].type == ZEROUTE_HISTOGRAM && s->field[i + 1].value &&
            strncmp(s->field[i].name, "latency.zeMemAlloc", 18) == 0 && s->field[i + 4].value > most)
            most = s->field[i + 4].value;
    return most;
}

/* Since the last sample; of the first one since the process began. A torn reading may step back: no rate. */
static double rate(uint64_t now, uint64_t before, double seconds) {
    return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

static void rates(struct zr_process_view *v, const struct zr_process_view *before, double seconds) {
    v->allocations_rate = rate(v->allocations, before->allocations, seconds);
    v->driver_rate = rate(v->driver_calls, before->driver_calls, seconds);
    v->failures_rate = rate(v->failures, before->failures, seconds);
    v->hits_lately = v->hits - before->hits;
    v->asked_lately = v->hits_lately + v->misses - before->misses;
    if (v->hits < before->hits || v->misses < before->misses || !v->asked_lately) {
        v->hits_lately = v->hits; /* of the whole time, where there was nothing lately */
        v->asked_lately = v->hits + v->misses;
    }
    v->hit_rate = v->asked_lately ? (double)v->hits_lately / (double)v->asked_lately : -1;
}

static void take_numbers(struct zr_process_view *v, const struct zeroute_snapshot *s) {
    v->allocated = value(s, "allocated_bytes.all.current");
    v->reserved = value(s, "reserved_bytes.all.current");
    v->peak = value(s, "allocated_bytes.all.peak");
    v->host_usm = value(s, "allocated_bytes.host.current");
    v->host_side = zr_host_side(s);
    v->blocks = value(s, "allocation.all.current");
    v->hits = value(s, "cache.hits");
    v->misses = value(s, "cache.misses");
    v->allocations = value(s, "allocation.all.allocated");
    v->driver_calls = value(s, "driver.alloc_calls") + value(s, "driver.free_calls");
    v->calls = zr_total(s, "calls.");
    v->failures = zr_total(s, "failures.");
    v->refused = 0;
#define ZR_BY_SETTING(id, setting, ...) v->refused += value(s, setting ".refused_calls");
#include "base/refusals.def"
    v->changes = value(s, "ctl.changes");
    v->p99_ns = p99_of(s);
    copy_text(v->settings, sizeof v->settings, s, "settings");
    copy_text(v->route, sizeof v->route, s, "route.in_force");
    copy_text(v->hooks, sizeof v->hooks, s, "hooks");
}

static bool read_process(struct zr_model *m, struct zr_process_view *v, uint64_t now) {
    char why[256];
    struct zeroute_snapshot *s = zr_outside_snapshot(&v->process, why, sizeof why);
    struct zr_process_view before = {.sampled_ns = v->sampled_ns,
                                     .hits = v->hits,
                                     .misses = v->misses,
                                     .allocations = v->allocations,
                                     .driver_calls = v->driver_calls,
                                     .failures = v->failures};
    struct zr_device_names devices;
    uint64_t age = m->wall_ns > v->process.created_ns ? m->wall_ns - v->process.created_ns : 0;
    if (!s)
        return false;
    take_numbers(v, s);
    v->sampled_ns = now;
    rates(v, &before, (double)(before.sampled_ns ? now - before.sampled_ns : age) / 1e9);
    device_names(m, s, &devices);
    zr_figures_free(&v->figures);
    if (m->options.metrics)
        zr_figures_take(&v->figures, s, &devices, v->id.rank);
    zr_history_note(&v->used, now, m->options.history_ns, v->allocated);
    zeroute_snapshot_free(s);
    return true;
}

/* --- coming and going ---------------------------------------------------------------------------------------- */

static bool is_same(const struct zeroute_process *a, const struct zeroute_process *b) {
    return a->nonce == b->nonce && a->inode == b->inode && a->pid_inside == b->pid_inside;
}

static struct zr_process_view *view_of(struct zr_model *m, const struct zeroute_process *p) {
    struct zr_process_view *v;
    size_t of_user = 0;
    for (size_t i = 0; i < m->process_count; i++) {
        of_user += m->process[i]->process.uid == p->uid;
        if (is_same(&m->process[i]->process, p)) {
            m->process[i]->process = *p;
            return m->process[i];
        }
    }
    if (of_user >= ZR_USER_PROCESSES && p->uid != geteuid())
        return NULL;
    if (m->process_count == m->process_room) {
        size_t room = m->process_room ? 2 * m->process_room : 64;
        struct zr_process_view **more =
            room <= ZR_WATCH_PROCESSES ? realloc(m->process, room * sizeof(struct zr_process_view *)) : NULL;
        if (!more)
            return NULL;
        m->process = more;
        m->process_room = room;
    }
    v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    v->process = *p;
    v->vram = v->gtt = v->mirror = ZR_ABSENT;
    v->hit_rate = -1;
    zr_identify(p, &v->id);
    return m->process[m->process_count++] = v;
}

static void forget(struct zr_process_view *v) {
    zr_figures_free(&v->figures);
    free(v);
}

/* Its counters stay, its memory is free. */
static void retire(struct zr_model *m, const struct zr_process_view *v) {
    struct zr_figures *ended = &group_of_process(m, v)->ended;
    zr_figures_add(ended, &v->figures, false, ended->count + room_of_user(m, v->process.uid));
}

static bool was_counted(struct zr_model *m, const struct zeroute_process *p) {
    for (struct zr_ended *e = m->ended; e; e = e->next)
        if (e->nonce == p->nonce && e->inode == p->inode)
            return e->seen = true;
    return false;
}

/* One that has ended: its last figures count once, whether or not it was seen alive. */
static void take_ended(struct zr_model *m, const struct zeroute_process *p, uint64_t now) {
    struct zr_ended *e;
    struct zr_process_view *v;
    size_t i = 0;
    if (was_counted(m, p) || !(e = malloc(sizeof *e)))
        return;
    *e = (struct zr_ended){p->nonce, p->inode, true, m->ended};
    m->ended = e;
    while (i < m->process_count && !is_same(&m->process[i]->process, p))
        i++;
    v = i < m->process_count ? m->process[i] : view_of(m, p);
    if (!v)
        return;
    read_process(m, v, now);
    retire(m, v);
    forget(v);
    while (i < m->process_count && m->process[i] != v)
        i++;
    m->process[i] = m->process[--m->process_count];
}

/* One that did nothing for some samples is read less often; those of a crowd take turns, unless metrics are wanted. */
static bool may_wait(const struct zr_model *m, const struct zr_process_view *v) {
    unsigned turns = v->idle >= IDLE_AFTER ? IDLE_EVERY
                     : m->options.metrics  ? 1
                                           : 1 + (unsigned)m->process_count / CROWD;
    return v->sampled_ns && (m->samples + (unsigned)v->process.pid_inside) % turns != 0;
}

static void take_live(struct zr_model *m, const struct zeroute_process *p, uint64_t now) {
    struct zr_process_view *v = view_of(m, p);
    uint64_t before;
    if (!v) {
        not_all_of(m, p->uid);
        return;
    }
    if (may_wait(m, v)) {
        v->seen = true;
        zr_history_note(&v->used, now, m->options.history_ns, v->allocated);
    } else {
        before = v->calls;
        v->seen = read_process(m, v, now) || v->sampled_ns;
        v->idle = v->calls == before ? v->idle + 1 : 0;
    }
    m->unseen += *v->hooks != '\0';
}

/* Segments that are gone: removed between two samples. */
static void sweep(struct zr_model *m) {
    size_t kept = 0;
    for (size_t i = 0; i < m->process_count; i++) {
        struct zr_process_view *v = m->process[i];
        if (v->seen) {
            v->seen = false;
            m->process[kept++] = v;
        } else {
            retire(m, v);
            forget(v);
        }
    }
    m->process_count = kept;
    for (struct zr_ended **at = &m->ended; *at;) {
        struct zr_ended *e = *at;
        if (e->seen) {
            e->seen = false;
            at = &e->next;
        } else {
            *at = e->next;
            free(e);
        }
    }
}

static void add_up(struct zr_model *m) {
    for (size_t i = 0; i < m->group_count; i++) {
        zr_figures_free(&m->group[i].live);
        m->group[i].was_live = m->group[i].processes > 0;
        m->group[i].processes = 0;
    }
    for (size_t i = 0; i < m->process_count; i++) {
        struct zr_group *g = group_of_process(m, m->process[i]);
        unsigned uid = m->process[i]->process.uid;
        if (!zr_figures_add(&g->live, &m->process[i]->figures, true, g->live.count + room_of_user(m, uid)))
            not_all_of(m, uid);
        g->processes++;
    }
}

bool zr_model_sample(struct zr_model *m) {
    uint64_t now = clock_ns(CLOCK_MONOTONIC), host_side = 0;
    struct zr_look look;
    if (!zr_outside_look(&look, ZR_LOOK_SEGMENTS))
        return false;
    m->wall_ns = clock_ns(CLOCK_REALTIME);
    m->unreadable = m->unseen = 0;
    for (size_t i = 0; i < look.count; i++) {
        const struct zeroute_process *p = &look.process[i];
        if (m->options.pid && p->pid != m->options.pid && p->pid_inside != m->options.pid) {
            continue;
        } else if (!p->pid_inside) {
            continue; /* the directory of another user, with or without processes */
        } else if (!p->readable) {
            m->unreadable++;
            snprintf(m->unreadable_why, sizeof m->unreadable_why, "%s", p->why);
        } else if (p->state == ZEROUTE_FINISHED) {
            take_ended(m, p, now);
        } else {
            take_live(m, p, now);
        }
    }
    zr_look_free(&look);
    sweep(m);
    add_up(m);
    if (!zr_meminfo_read(&m->host))
        m->host = (struct zr_meminfo){ZR_ABSENT, ZR_ABSENT, ZR_ABSENT, ZR_ABSENT, ZR_ABSENT};
    for (size_t i = 0; i < m->process_count; i++)
        host_side += m->process[i]->host_side;
    m->mirror = m->host.gpu_active == ZR_ABSENT  ? ZR_ABSENT
                : m->host.gpu_active > host_side ? m->host.gpu_active - host_side
                                                 : 0;
    zr_model_cards(m, now);
    if (m->mirror != ZR_ABSENT)
        zr_history_note(&m->mirror_history, now, m->options.history_ns, m->mirror);
    m->samples++;
    m->sample_ns = clock_ns(CLOCK_MONOTONIC) - now;
    return true;
}

struct zr_model *zr_model_new(const struct zr_model_options *o) {
    struct zr_model *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->options = *o;
    m->group_count = 1;
    zr_label(m->group[0].labels, sizeof m->group[0].labels, "job", "(others)");
    m->group[0].uid = UINT_MAX;
    return m;
}

void zr_model_free(struct zr_model *m) {
    if (!m)
        return;
    for (size_t i = 0; i < m->process_count; i++)
        forget(m->process[i]);
    for (size_t i = 0; i < m->group_count; i++) {
        zr_figures_free(&m->group[i].live);
        zr_figures_free(&m->group[i].ended);
    }
    for (struct zr_ended *e = m->ended, *next; e; e = next) {
        next = e->next;
        free(e);
    }
    free(m->others);
    free(m->process);
    free(m);
}

/* --- jobs ------------------------------------------------------------------------------------------------------ */

static void add_amount(uint64_t *sum, uint64_t n) {
    if (n != ZR_ABSENT)
        *sum = *sum == ZR_ABSENT ? n : *sum + n;
}

static void add_process(struct zr_process_view *sum, const struct zr_process_view *v) {
    sum->allocated += v->allocated;
    sum->reserved += v->reserved;
    sum->peak += v->peak;
    sum->host_usm += v->host_usm;
    sum->blocks += v->blocks;
    sum->hits += v->hits;
    sum->misses += v->misses;
    sum->allocations += v->allocations;
    sum->driver_calls += v->driver_calls;
    sum->failures += v->failures;
    sum->refused += v->refused;
    sum->changes += v->changes;
    sum->p99_ns = v->p99_ns > sum->p99_ns ? v->p99_ns : sum->p99_ns;
    add_amount(&sum->vram, v->vram);
    add_amount(&sum->gtt, v->gtt);
    add_amount(&sum->mirror, v->mirror);
    sum->allocations_rate += v->allocations_rate;
    sum->driver_rate += v->driver_rate;
    sum->failures_rate += v->failures_rate;
    sum->hits_lately += v->hits_lately;
    sum->asked_lately += v->asked_lately;
    sum->hit_rate = sum->asked_lately ? (double)sum->hits_lately / (double)sum->asked_lately : -1;
}

static bool is_of_job(const struct zr_process_view *v, const struct zr_job_view *job) {
    return *v->id.job && job->uid == v->process.uid && strcmp(job->name, v->id.job) == 0;
}

/* The job of process `first`, with all its processes; their places begin at `process`. */
static struct zr_job_view job_of(const struct zr_model *m, size_t first, struct zr_process_view **process) {
    const struct zr_process_view *v = m->process[first];
    struct zr_job_view job = {.name = v->id.job, .uid = v->process.uid, .process = process};
    job.sum.vram = job.sum.gtt = job.sum.mirror = ZR_ABSENT;
    job.sum.process = v->process;
    job.sum.id = v->id;
    job.sum.used = v->used;
    for (size_t i = first; i < m->process_count; i++)
        if (i == first || is_of_job(m->process[i], &job)) {
            process[job.count++] = m->process[i];
            add_process(&job.sum, m->process[i]);
        }
    return job;
}

/* The processes of all jobs are in one array, job by job: that of the first job is all of it. */
struct zr_job_view *zr_jobs(const struct zr_model *m, size_t *count) {
    struct zr_job_view *jobs = calloc(m->process_count + 1, sizeof *jobs);
    struct zr_process_view **process = calloc(m->process_count + 1, sizeof(struct zr_process_view *));
    size_t used = 0;
    *count = 0;
    if (!jobs || !process)
        abort();
    jobs->process = process;
    for (size_t i = 0; i < m->process_count; i++) {
        size_t n = 0;
        while (n < *count && !is_of_job(m->process[i], &jobs[n]))
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
