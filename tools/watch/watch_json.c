/* The model as JSON: what `top --json` prints and what serve answers under /api. */
#include "outside/outside.h"
#include "stat/stat.h"
#include "watch/watch.h"

#include <string.h>

static void history(json_t *object, const char *name, const struct zr_history *h) {
    json_t *array = zr_json_array(object, name);
    for (unsigned i = 0; i < h->count; i++)
        zr_json_count(array, NULL, zr_history_at(h, i));
}

static void numbers(json_t *o, const struct zr_process_view *v) {
    zr_json_count(o, "allocated_bytes", v->allocated);
    zr_json_count(o, "reserved_bytes", v->reserved);
    zr_json_count(o, "peak_bytes", v->peak);
    zr_json_count(o, "host_usm_bytes", v->host_usm);
    zr_json_count(o, "blocks", v->blocks);
    zr_json_amount(o, "vram_bytes", v->vram);
    zr_json_amount(o, "gtt_bytes", v->gtt);
    zr_json_amount(o, "mirror_bytes", v->mirror);
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

static void text(json_t *o, const char *name, const char *value) {
    if (*value)
        zr_json_text(o, name, value);
}

static void process(json_t *array, const struct zr_model *m, const struct zr_process_view *v, bool histories) {
    json_t *o = zr_json_object(array, NULL);
    const struct zeroute_process *p = &v->process;
    zr_json_count(o, "pid", (uint64_t)(p->pid ? p->pid : p->pid_inside));
    zr_json_count(o, "pid_inside", (uint64_t)p->pid_inside);
    zr_json_count(o, "uid", p->uid);
    zr_json_text(o, "command", p->command);
    text(o, "job", v->id.job);
    text(o, "job_name", v->id.job_name);
    text(o, "rank", v->id.rank);
    text(o, "local_rank", v->id.local_rank);
    text(o, "namespace", v->id.space);
    text(o, "pod", v->id.pod);
    text(o, "container", v->id.container);
    zr_json_real(o, "age_seconds", m->wall_ns > p->created_ns ? (double)(m->wall_ns - p->created_ns) / 1e9 : 0);
    numbers(o, v);
    text(o, "settings", v->settings);
    text(o, "route", v->route);
    text(o, "hooks", v->hooks);
    if (histories)
        history(o, "history", &v->used);
}

static void jobs(json_t *document, const struct zr_model *m) {
    json_t *array = zr_json_array(document, "jobs");
    size_t count;
    struct zr_job_view *job = zr_jobs(m, &count);
    for (size_t i = 0; job && i < count; i++) {
        if (!*job[i].name)
            continue;
        json_t *o = zr_json_object(array, NULL), *pids;
        zr_json_text(o, "job", job[i].name);
        text(o, "job_name", job[i].sum.id.job_name);
        zr_json_count(o, "uid", job[i].uid);
        pids = zr_json_array(o, "pids");
        for (size_t p = 0; p < job[i].count; p++) {
            const struct zeroute_process *one = &job[i].process[p]->process;
            zr_json_count(pids, NULL, (uint64_t)(one->pid ? one->pid : one->pid_inside));
        }
        numbers(o, &job[i].sum);
    }
    zr_jobs_free(job);
}

static void cards(json_t *document, const struct zr_model *m, bool histories) {
    json_t *array = zr_json_array(document, "cards");
    for (unsigned i = 0; i < m->card_count; i++) {
        const struct zr_card_view *c = &m->card[i];
        json_t *o = zr_json_object(array, NULL);
        zr_json_text(o, "device", c->pdev);
        text(o, "driver", c->driver);
        zr_json_amount(o, "vram_bytes", c->vram);
        zr_json_count(o, "used_by_zeroute_bytes", c->ours);
        zr_json_count(o, "used_by_others_bytes", c->others);
        zr_json_count(o, "gtt_bytes", c->gtt);
        if (histories)
            history(o, "history", &c->used);
    }
}

json_t *zr_watch_document(const struct zr_model *m, bool histories) {
    json_t *document = zr_json_document(1), *host, *processes;
    zr_json_real(document, "time", (double)m->wall_ns / 1e9);
    if (histories)
        zr_json_real(document, "history_seconds", (double)m->options.history_ns / 1e9);
    host = zr_json_object(document, "host");
    zr_json_amount(host, "gpu_active_bytes", m->host.gpu_active);
    zr_json_amount(host, "mirror_bytes", m->mirror);
    zr_json_amount(host, "mem_available_bytes", m->host.available);
    zr_json_amount(host, "mem_total_bytes", m->host.total);
    if (histories)
        history(host, "mirror_history", &m->mirror_history);
    cards(document, m, histories);
    jobs(document, m);
    processes = zr_json_array(document, "processes");
    for (size_t i = 0; i < m->process_count; i++)
        process(processes, m, m->process[i], histories);
    zr_json_count(document, "unreadable", m->unreadable);
    if (m->unreadable)
        zr_json_text(document, "unreadable_why", m->unreadable_why);
    return document;
}

json_t *zr_watch_process(const struct zr_model *m, int pid) {
    for (size_t i = 0; i < m->process_count; i++) {
        const struct zr_process_view *v = m->process[i];
        char why[256];
        if ((v->process.pid ? v->process.pid : v->process.pid_inside) != pid)
            continue;
        json_t *document = zr_json_document(1), *array = zr_json_array(document, "processes");
        struct zeroute_snapshot *s = zr_outside_snapshot(&v->process, why, sizeof why);
        process(array, m, v, true);
        if (s)
            zr_json_fields(json_array_get(array, 0), s);
        zeroute_snapshot_free(s);
        return document;
    }
    return NULL;
}
