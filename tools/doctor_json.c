#include "doctor.h"

#include "tools.h"

static void text(struct zr_json *j, const char *key, const char *value)
{
    if (!value)
        return;
    zr_json_key(j, key);
    zr_json_string(j, value);
}

/* Absent is left out. */
static void amount(struct zr_json *j, const char *key, uint64_t bytes)
{
    if (bytes == ZR_ABSENT)
        return;
    zr_json_key(j, key);
    zr_json_number(j, bytes);
}

static void flag(struct zr_json *j, const char *key, bool value)
{
    zr_json_key(j, key);
    zr_json_bool(j, value);
}

static void open_list(struct zr_json *j, const char *key)
{
    zr_json_key(j, key);
    zr_json_open(j, '[');
}

static void stack(struct zr_json *j, const struct zr_case *c)
{
    static const char *const bindings[] = {"unknown", "shared", "static"};

    open_list(j, "libraries");
    for (int i = 0; i < ZR_PARTS; i++) {
        const struct zr_library *l = &c->stack.parts[i];

        if (!l->there)
            continue;
        zr_json_open(j, '{');
        text(j, "part", zr_part_names[i]);
        text(j, "path", l->path);
        text(j, "version", l->version);
        text(j, "build_id", l->build_id);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
    if (c->stack.adapter) {
        zr_json_key(j, "adapter");
        zr_json_number(j, (uint64_t)c->stack.adapter);
    }
    text(j, "loader_binding", bindings[c->stack.binding]);
}

static void memory(struct zr_json *j, const struct zr_case *c)
{
    zr_json_key(j, "host");
    zr_json_open(j, '{');
    if (c->meminfo_there) {
        amount(j, "mem_total_bytes", c->meminfo.total);
        amount(j, "mem_available_bytes", c->meminfo.available);
        amount(j, "gpu_active_bytes", c->meminfo.gpu_active);
        amount(j, "gpu_reclaim_bytes", c->meminfo.gpu_reclaim);
        amount(j, "unaccounted_bytes", c->meminfo.unaccounted);
    }
    amount(j, "vmrss_bytes", c->memory.rss);
    amount(j, "cgroup_bytes", c->memory.cgroup_current);
    amount(j, "cgroup_limit_bytes", c->memory.cgroup_limit);
    zr_json_close(j, '}');
    open_list(j, "cards");
    for (unsigned i = 0; i < c->memory.card_count; i++) {
        const struct zr_card_use *use = &c->memory.cards[i];

        zr_json_open(j, '{');
        text(j, "pdev", use->pdev);
        text(j, "driver", use->driver);
        amount(j, "vram_total_bytes", use->vram.total);
        amount(j, "vram_resident_bytes", use->vram.resident);
        amount(j, "gtt_total_bytes", use->gtt.total);
        amount(j, "gtt_resident_bytes", use->gtt.resident);
        amount(j, "system_total_bytes", use->system.total);
        amount(j, "system_resident_bytes", use->system.resident);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
}

static void mirror(struct zr_json *j, const struct zr_diagnosis *d)
{
    zr_json_key(j, "mirror");
    zr_json_open(j, '{');
    text(j, "state", zr_mirror_names[d->mirror.state]);
    amount(j, "bytes", d->mirror.bytes);
    text(j, "why", d->mirror.why);
    open_list(j, "links");
    for (unsigned i = 0; i < ZR_LINKS; i++) {
        zr_json_open(j, '{');
        text(j, "link", zr_link_names[i]);
        text(j, "there", zr_answer_names[d->links[i].answer]);
        text(j, "why", d->links[i].why);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
    open_list(j, "remedies");
    for (unsigned i = 0; i < ZR_REMEDIES; i++) {
        const struct zr_remedy *r = &d->remedies[i];

        zr_json_open(j, '{');
        text(j, "id", r->id);
        text(j, "setting", r->setting);
        text(j, "breaks", r->breaks);
        text(j, "price", r->price);
        flag(j, "offered", r->offered);
        flag(j, "in_force", r->in_force);
        flag(j, "smallest", r->smallest);
        flag(j, "needs_zeroute", r->needs_zeroute);
        zr_json_close(j, '}');
    }
    zr_json_close(j, ']');
    zr_json_close(j, '}');
}

static void findings(struct zr_json *j, const struct zr_diagnosis *d)
{
    open_list(j, "findings");
    for (size_t i = 0; i < d->findings.count; i++) {
        const struct zr_finding *f = &d->findings.list[i];

        zr_json_open(j, '{');
        text(j, "id", f->id);
        text(j, "severity", zr_severity_names[f->severity]);
        text(j, "what", f->what);
        text(j, "seen", f->seen);
        text(j, "do", f->todo);
        text(j, "price", f->price);
        text(j, "source", f->source);
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
        zr_json_key(&j, "pid");
        zr_json_number(&j, (uint64_t)c->pid);
        text(&j, "command", c->command);
        flag(&j, "preloaded", c->stack.parts[ZR_PART_PRELOAD].there);
    }
    zr_json_key(&j, "code");
    zr_json_number(&j, (uint64_t)zr_diagnosis_code(d));
    stack(&j, c);
    memory(&j, c);
    mirror(&j, d);
    findings(&j, d);
    zr_json_close(&j, '}');
}
