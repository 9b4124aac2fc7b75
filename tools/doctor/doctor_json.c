/* What doctor found, as JSON. */
#include "doctor/doctor.h"

#include "stat/stat.h"

static void stack(struct zr_json *j, const struct zr_case *c)
{
    static const char *const bindings[] = {"unknown", "shared", "static"};

    zr_json_begin(j, "libraries", '[');
    for (int i = 0; i < ZR_PARTS; i++) {
        const struct zr_library *l = &c->stack.parts[i];

        if (!l->there)
            continue;
        zr_json_open(j, '{');
        zr_json_text(j, "part", zr_part_names[i]);
        zr_json_text(j, "path", l->path);
        zr_json_text(j, "version", l->version);
        zr_json_text(j, "build_id", l->build_id);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
    if (c->stack.adapter) {
        zr_json_count(j, "adapter", (uint64_t)c->stack.adapter);
    }
    zr_json_text(j, "loader_binding", bindings[c->stack.binding]);
}

static void memory(struct zr_json *j, const struct zr_case *c)
{
    zr_json_begin(j, "host", '{');
    if (c->meminfo_there) {
        zr_json_amount(j, "mem_total_bytes", c->meminfo.total);
        zr_json_amount(j, "mem_available_bytes", c->meminfo.available);
        zr_json_amount(j, "gpu_active_bytes", c->meminfo.gpu_active);
        zr_json_amount(j, "gpu_reclaim_bytes", c->meminfo.gpu_reclaim);
        zr_json_amount(j, "unaccounted_bytes", c->meminfo.unaccounted);
    }
    zr_json_amount(j, "vmrss_bytes", c->memory.rss);
    zr_json_amount(j, "cgroup_bytes", c->memory.cgroup_current);
    zr_json_amount(j, "cgroup_limit_bytes", c->memory.cgroup_limit);
    zr_json_close(j, '}');
    zr_json_begin(j, "cards", '[');
    for (unsigned i = 0; i < c->memory.card_count; i++) {
        const struct zr_card_use *use = &c->memory.cards[i];

        zr_json_open(j, '{');
        zr_json_text(j, "pdev", use->pdev);
        zr_json_text(j, "driver", use->driver);
        zr_json_card_use(j, use);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
}

static void mirror(struct zr_json *j, const struct zr_diagnosis *d)
{
    zr_json_begin(j, "mirror", '{');
    zr_json_text(j, "state", zr_mirror_names[d->mirror.state]);
    zr_json_amount(j, "bytes", d->mirror.bytes);
    zr_json_text(j, "why", d->mirror.why);
    zr_json_begin(j, "links", '[');
    for (unsigned i = 0; i < ZR_LINKS; i++) {
        zr_json_open(j, '{');
        zr_json_text(j, "link", zr_link_names[i]);
        zr_json_text(j, "there", zr_answer_names[d->links[i].answer]);
        zr_json_text(j, "why", d->links[i].why);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
    zr_json_begin(j, "remedies", '[');
    for (unsigned i = 0; i < ZR_REMEDIES; i++) {
        const struct zr_remedy *r = &d->remedies[i];

        zr_json_open(j, '{');
        zr_json_text(j, "id", r->id);
        zr_json_text(j, "setting", r->setting);
        zr_json_text(j, "breaks", r->breaks);
        zr_json_text(j, "price", r->price);
        zr_json_flag(j, "offered", r->offered);
        zr_json_flag(j, "in_force", r->in_force);
        zr_json_flag(j, "smallest", r->smallest);
        zr_json_flag(j, "needs_zeroute", r->needs_zeroute);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
    zr_json_close(j, '}');
}

static void findings(struct zr_json *j, const struct zr_diagnosis *d)
{
    zr_json_begin(j, "findings", '[');
    for (size_t i = 0; i < d->findings.count; i++) {
        const struct zr_finding *f = &d->findings.list[i];

        zr_json_open(j, '{');
        zr_json_text(j, "id", f->id);
        zr_json_text(j, "severity", zr_severity_names[f->severity]);
        zr_json_text(j, "what", f->what);
        zr_json_text(j, "seen", f->seen);
        zr_json_text(j, "do", f->todo);
        zr_json_text(j, "price", f->price);
        zr_json_text(j, "source", f->source);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
}

void zr_doctor_json(FILE *to, const struct zr_case *c, const struct zr_diagnosis *d)
{
    struct zr_json j;

    zr_json_start(&j, to);
    zr_json_open(&j, '{');
    if (c->pid) {
        zr_json_count(&j, "pid", (uint64_t)c->pid);
        zr_json_text(&j, "command", c->command);
        zr_json_flag(&j, "preloaded", c->stack.parts[ZR_PART_PRELOAD].there);
    }
    zr_json_count(&j, "code", (uint64_t)zr_diagnosis_code(d));
    stack(&j, c);
    memory(&j, c);
    mirror(&j, d);
    findings(&j, d);
    zr_json_close(&j, '}');
}
