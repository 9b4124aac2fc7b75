/*
 * A view as JSON: the one schema, of which every command prints what it is about. What is not known is left out.
 */
#include "outside/outside.h"
#include "view/view.h"

#include <stdlib.h>
#include <string.h>

/* --- fields ----------------------------------------------------------------------------------- */

/* The raw buckets: [lowest ns, calls] for each that is not empty. */
static void histogram(json_t *fields, const struct zeroute_field *f) {
    char name[160];
    snprintf(name, sizeof name, "%s.buckets", f->name);
    json_t *buckets = zr_json_array(fields, name);
    for (unsigned b = 0; b < ZEROUTE_BUCKETS; b++) {
        if (!f->buckets[b])
            continue;
        json_t *bucket = zr_json_array(buckets, NULL);
        zr_json_count(bucket, NULL, zeroute_bucket_floor(b));
        zr_json_count(bucket, NULL, f->buckets[b]);
    }
}

void zr_json_fields(json_t *object, const struct zeroute_snapshot *s) {
    json_t *fields = zr_json_object(object, "fields");
    for (size_t i = 0; i < s->field_count; i++) {
        const struct zeroute_field *f = &s->field[i];
        if (f->type == ZEROUTE_TEXT)
            zr_json_text(fields, f->name, f->text);
        else if (f->type != ZEROUTE_HISTOGRAM)
            zr_json_count(fields, f->name, f->value);
        else if (f[1].value)
            histogram(fields, f);
    }
    json_t *fingerprint = zr_json_object(object, "fingerprint");
    for (size_t i = 0; i < s->fact_count; i++)
        zr_json_text(fingerprint, s->fact[i].key, s->fact[i].value);
}

/* --- what the kernel tells -------------------------------------------------------------------- */

void zr_json_card_use(json_t *object, const struct zr_card_use *use) {
    zr_json_amount(object, "vram_total_bytes", use->vram.total);
    zr_json_amount(object, "vram_resident_bytes", use->vram.resident);
    zr_json_amount(object, "gtt_total_bytes", use->gtt.total);
    zr_json_amount(object, "gtt_resident_bytes", use->gtt.resident);
    zr_json_amount(object, "system_total_bytes", use->system.total);
    zr_json_amount(object, "system_resident_bytes", use->system.resident);
}

static void add_accounts(json_t *o, const struct zr_process_view *v) {
    json_t *array = v->accounts ? zr_json_array(o, "accounts") : NULL;

    for (unsigned i = 0; i < v->accounts; i++) {
        const struct zr_account *a = &v->account[i];
        json_t *one = zr_json_object(array, NULL);

        zr_json_text(one, "device", a->pdev);
        zr_json_count(one, "number", a->number);
        zr_json_amount(one, "vram_bytes", a->vram);
        zr_json_count(one, "block_bytes", a->blocks);
        zr_json_count(one, "image_bytes", a->images);
        zr_json_count(one, "imported_bytes", a->imported);
        zr_json_amount(one, "unseen_bytes", a->unseen);
        zr_json_count(one, "spilled_bytes", a->spilled);
    }
}

/* Host memory of the process; the machine's beside it, as it was at the same moment. */
static void add_host(json_t *o, const struct zr_view *m, const struct zr_process_view *v) {
    json_t *host = zr_json_object(o, "host");

    if (v->process.state == ZEROUTE_FINISHED)
        return;
    zr_json_amount(host, "gpu_active_bytes", m->host.gpu_active);
    zr_json_amount(host, "mem_available_bytes", m->host.available);
    zr_json_amount(host, "vmrss_bytes", v->memory.rss);
    zr_json_amount(host, "cgroup_bytes", v->memory.cgroup_current);
    for (unsigned i = 0; i < v->memory.card_count; i++)
        zr_json_card_use(zr_json_object(host, v->memory.cards[i].pdev), &v->memory.cards[i]);
}

/* --- processes and jobs ----------------------------------------------------------------------- */

static void history(json_t *object, const char *name, const struct zr_history *h) {
    json_t *array = zr_json_array(object, name);
    for (unsigned i = 0; i < h->count; i++)
        zr_json_count(array, NULL, zr_history_at(h, i));
}

static void add_numbers(json_t *o, const struct zr_process_view *v) {
    zr_json_count(o, "allocated_bytes", v->allocated);
    zr_json_count(o, "reserved_bytes", v->reserved);
    zr_json_count(o, "peak_bytes", v->peak);
    zr_json_count(o, "host_usm_bytes", v->host_usm);
    zr_json_count(o, "blocks", v->blocks);
    zr_json_amount(o, "vram_bytes", v->vram);
    zr_json_amount(o, "gtt_bytes", v->gtt);
    zr_json_amount(o, "mirror_bytes", v->mirror);
    zr_json_count(o, "unseen_bytes", v->unseen);
    zr_json_count(o, "spilled_bytes", v->spilled);
    zr_json_count(o, "allocations", v->allocations);
    zr_json_count(o, "driver_calls", v->driver_calls);
    zr_json_count(o, "cache_hits", v->hits);
    zr_json_count(o, "cache_misses", v->misses);
    zr_json_count(o, "failures", v->failures);
    zr_json_count(o, "refused", v->refused);
    zr_json_count(o, "setting_changes", v->changes);
    zr_json_real(o, "allocations_per_second", v->allocations_rate);
    zr_json_real(o, "driver_calls_per_second", v->driver_rate);
    if (v->hit_rate >= 0)
        zr_json_real(o, "cache_hit_rate", v->hit_rate);
    zr_json_real(o, "p99_seconds", (double)v->p99_ns / 1e9);
}

static void add_text(json_t *o, const char *name, const char *value) {
    if (*value)
        zr_json_text(o, name, value);
}

static int pid_of(const struct zr_process_view *v) {
    return v->process.pid ? v->process.pid : v->process.pid_inside;
}

static void add_growth(json_t *o, const struct zr_process_view *v) {
    json_t *array = NULL;
    struct zr_growth g;

    for (unsigned k = 0; k < ZR_GROWTHS; k++) {
        if (!zr_grows(v, k, v->trend[k].seen_ns, &g))
            continue;
        array = array ? array : zr_json_array(o, "growing");
        json_t *one = zr_json_object(array, NULL);
        zr_json_text(one, "what", zr_growth_kinds[k].name);
        zr_json_count(one, "by", g.by);
        zr_json_real(one, "seconds", g.seconds);
    }
}

static void add_process(json_t *array, const struct zr_view *m, const struct zr_process_view *v, bool histories) {
    static const char *const state[] = {"live", "finished", "unknown"};
    const struct zeroute_process *p = &v->process;
    json_t *o = zr_json_object(array, NULL);

    zr_json_count(o, "pid", (uint64_t)pid_of(v));
    zr_json_count(o, "pid_inside", (uint64_t)p->pid_inside);
    zr_json_count(o, "uid", p->uid);
    zr_json_text(o, "command", p->command);
    zr_json_text(o, "state", state[p->state]);
    zr_json_text(o, "job", v->id.job);
    add_text(o, "job_name", v->id.job_name);
    zr_json_text(o, "rank", v->id.rank);
    add_text(o, "local_rank", v->id.local_rank);
    add_text(o, "namespace", v->id.space);
    add_text(o, "pod", v->id.pod);
    add_text(o, "container", v->id.container);
    zr_json_text(o, "run", p->run_id);
    zr_json_text(o, "version", p->version);
    zr_json_count(o, "created_ns", p->created_ns);
    zr_json_real(o, "age_seconds", m->wall_ns > p->created_ns ? (double)(m->wall_ns - p->created_ns) / 1e9 : 0);
    add_numbers(o, v);
    zr_json_amount(o, "left_bytes", v->left_bytes);
    add_text(o, "settings", v->settings);
    add_text(o, "route", v->route);
    add_text(o, "hooks", v->hooks);
    zr_pause_json(o, v);
    add_growth(o, v);
    add_host(o, m, v);
    add_accounts(o, v);
    if (histories)
        history(o, "history", &v->used);
    if (v->snapshot)
        zr_json_fields(o, v->snapshot);
}

static void add_sum(json_t *o, const struct zr_job_view *job) {
    struct zeroute_snapshot **s = calloc(job->count, sizeof(struct zeroute_snapshot *)), *sum;
    size_t count = 0;

    for (size_t i = 0; s && i < job->count; i++)
        if (job->process[i]->snapshot)
            s[count++] = job->process[i]->snapshot;
    sum = s && count ? zr_sum(s, count) : NULL;
    if (sum)
        zr_json_fields(o, sum);
    zeroute_snapshot_free(sum);
    free(s);
}

static void add_jobs(json_t *document, const struct zr_view *m) {
    json_t *array = zr_json_array(document, "jobs");
    size_t count;
    struct zr_job_view *job = zr_jobs(m, &count);

    for (size_t i = 0; i < count; i++) {
        if (!*job[i].name)
            continue;
        json_t *o = zr_json_object(array, NULL), *pids;
        zr_json_text(o, "job", job[i].name);
        add_text(o, "job_name", job[i].sum.id.job_name);
        zr_json_count(o, "uid", job[i].uid);
        pids = zr_json_array(o, "pids");
        for (size_t p = 0; p < job[i].count; p++)
            zr_json_count(pids, NULL, (uint64_t)pid_of(job[i].process[p]));
        zr_json_count(o, "finished", job[i].ended);
        zr_json_count(o, "paused", job[i].paused);
        add_numbers(o, &job[i].sum);
        zr_json_text(o, "peak_is", zr_peak_names[job[i].peak_is]);
        add_sum(o, &job[i]);
    }
    zr_jobs_free(job);
}

/* --- the machine ------------------------------------------------------------------------------ */

static void add_cards(json_t *document, const struct zr_view *m, bool histories) {
    json_t *array = zr_json_array(document, "cards");

    for (unsigned i = 0; i < m->card_count; i++) {
        const struct zr_card_view *c = &m->card[i];
        json_t *o = zr_json_object(array, NULL);

        zr_json_text(o, "device", c->pdev);
        add_text(o, "driver", c->driver);
        add_text(o, "model", c->model);
        zr_json_amount(o, "vram_bytes", c->vram);
        zr_json_count(o, "used_by_zeroute_bytes", c->ours);
        zr_json_count(o, "used_by_others_bytes", c->others);
        zr_json_count(o, "gtt_bytes", c->gtt);
        zr_json_flag(o, "full", zr_card_is_full(c));
        if (histories)
            history(o, "history", &c->used);
    }
}

static void add_machine(json_t *document, const struct zr_view *m, bool histories) {
    static const char *const by[] = {"unknown", "GPUActive", "MemAvailable", "unaccounted"};
    json_t *host = zr_json_object(document, "host");

    zr_json_amount(host, "gpu_active_bytes", m->host.gpu_active);
    zr_json_amount(host, "mirror_bytes", m->mirror);
    if (m->mirror != ZR_ABSENT) {
        json_t *made_of = zr_json_object(host, "mirror_made_of");
        zr_json_text(made_of, "by", by[m->lost.by]);
        zr_json_count(made_of, "start_bytes", m->lost.start);
        zr_json_count(made_of, "host_and_shared_usm_bytes", m->lost.host_side);
    }
    zr_json_amount(host, "mem_available_bytes", m->host.available);
    zr_json_amount(host, "mem_total_bytes", m->host.total);
    if (histories)
        history(host, "mirror_history", &m->mirror_history);
    add_cards(document, m, histories);
}

static void add_not_readable(json_t *document, const struct zr_view *m) {
    const struct zr_unanswered *unanswered;
    size_t count = zr_outside_unanswered(&unanswered);
    json_t *array = zr_json_array(document, "not_readable");

    for (size_t i = 0; i < m->unread_count; i++) {
        json_t *o = zr_json_object(array, NULL);
        zr_json_count(o, "pid", (uint64_t)m->unread[i].pid);
        zr_json_count(o, "uid", m->unread[i].uid);
        zr_json_text(o, "path", m->unread[i].path);
        zr_json_text(o, "why", m->unread[i].why);
    }
    array = count ? zr_json_array(document, "not_answered") : NULL;
    for (size_t i = 0; i < count; i++) {
        json_t *o = zr_json_object(array, NULL);
        zr_json_text(o, "user", unanswered[i].user);
        zr_json_count(o, "uid", unanswered[i].uid);
        zr_json_count(o, "pid", (uint64_t)unanswered[i].pid);
    }
}

json_t *zr_view_json(const struct zr_view *m, struct zr_json_parts parts) {
    json_t *document = zr_json_document(1), *processes;

    zr_json_real(document, "time", (double)m->wall_ns / 1e9);
    if (parts.histories)
        zr_json_real(document, "history_seconds", (double)m->scope.history_ns / 1e9);
    if (parts.machine)
        add_machine(document, m, parts.histories);
    if (parts.jobs)
        add_jobs(document, m);
    processes = zr_json_array(document, "processes");
    for (size_t i = 0; i < m->process_count; i++)
        add_process(processes, m, m->process[i], parts.histories);
    for (size_t i = 0; i < m->ended_count; i++)
        add_process(processes, m, m->ended[i], parts.histories);
    zr_json_count(document, "unreadable", m->unreadable);
    if (m->unreadable)
        zr_json_text(document, "unreadable_why", m->unreadable_why);
    add_not_readable(document, m);
    return document;
}

json_t *zr_view_json_of(const struct zr_view *m, int pid) {
    const struct zr_process_view *v = zr_view_find(m, pid);
    json_t *document, *array;
    char why[256];

    if (!v)
        return NULL;
    document = zr_json_document(1);
    array = zr_json_array(document, "processes");
    add_process(array, m, v, true);
    struct zeroute_snapshot *s = v->snapshot ? NULL : zr_outside_snapshot(&v->process, why, sizeof why);
    if (s)
        zr_json_fields(json_array_get(array, 0), s);
    zeroute_snapshot_free(s);
    return document;
}
