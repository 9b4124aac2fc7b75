/* What doctor found, as JSON. */
#include "doctor/doctor.h"

#include "common/common.h"

static void stack(json_t *j, const struct zr_case *c) {
    static const char *const bindings[] = {"unknown", "shared", "static"};

    json_t *libraries = zr_json_array(j, "libraries");
    for (int i = 0; i < ZR_PARTS; i++) {
        const struct zr_library *l = &c->stack.parts[i];

        if (!l->there)
            continue;
        json_t *item = zr_json_object(libraries, NULL);
        zr_json_text(item, "part", zr_part_names[i]);
        zr_json_text(item, "path", l->path);
        zr_json_text(item, "version", l->version);
        zr_json_text(item, "build_id", l->build_id);
    }
    if (c->stack.adapter) {
        zr_json_count(j, "adapter", (uint64_t)c->stack.adapter);
        zr_json_flag(j, "adapter_inside", c->stack.parts[ZR_PART_UR_V1].inside);
    }
    zr_json_text(j, "loader_binding", bindings[c->stack.binding]);
}

static void memory(json_t *j, const struct zr_case *c) {
    json_t *host = zr_json_object(j, "host");
    if (c->meminfo_there) {
        zr_json_amount(host, "mem_total_bytes", c->meminfo.total);
        zr_json_amount(host, "mem_available_bytes", c->meminfo.available);
        zr_json_amount(host, "gpu_active_bytes", c->meminfo.gpu_active);
        zr_json_amount(host, "gpu_reclaim_bytes", c->meminfo.gpu_reclaim);
        zr_json_amount(host, "unaccounted_bytes", c->meminfo.unaccounted);
    }
    zr_json_amount(host, "vmrss_bytes", c->memory.rss);
    zr_json_amount(host, "cgroup_bytes", c->memory.cgroup_current);
    zr_json_amount(host, "cgroup_limit_bytes", c->memory.cgroup_limit);
    json_t *cards = zr_json_array(j, "cards");
    for (unsigned i = 0; i < c->memory.card_count; i++) {
        const struct zr_card_use *use = &c->memory.cards[i];

        json_t *item = zr_json_object(cards, NULL);
        zr_json_text(item, "pdev", use->pdev);
        zr_json_text(item, "driver", use->driver);
        zr_json_card_use(item, use);
    }
}

static void mirror(json_t *j, const struct zr_diagnosis *d) {
    json_t *mirror = zr_json_object(j, "mirror");
    zr_json_text(mirror, "state", zr_mirror_names[d->mirror.state]);
    zr_json_amount(mirror, "bytes", d->mirror.bytes);
    zr_json_text(mirror, "why", d->mirror.why);
    json_t *links = zr_json_array(mirror, "links");
    for (unsigned i = 0; i < ZR_LINKS; i++) {
        json_t *item = zr_json_object(links, NULL);
        zr_json_text(item, "link", zr_link_names[i]);
        zr_json_text(item, "there", zr_answer_names[d->links[i].answer]);
        zr_json_text(item, "why", d->links[i].why);
    }
    json_t *remedies = zr_json_array(mirror, "remedies");
    for (unsigned i = 0; i < ZR_REMEDIES; i++) {
        const struct zr_remedy *r = &d->remedies[i];

        json_t *item = zr_json_object(remedies, NULL);
        zr_json_text(item, "id", r->id);
        zr_json_text(item, "setting", r->setting);
        zr_json_text(item, "breaks", r->breaks);
        zr_json_text(item, "price", r->price);
        zr_json_flag(item, "offered", r->offered);
        zr_json_flag(item, "in_force", r->in_force);
        zr_json_flag(item, "smallest", r->smallest);
        zr_json_flag(item, "needs_zeroute", r->needs_zeroute);
    }
}

static void findings(json_t *j, const struct zr_diagnosis *d) {
    json_t *findings = zr_json_array(j, "findings");
    for (size_t i = 0; i < d->findings.count; i++) {
        const struct zr_finding *f = &d->findings.list[i];

        json_t *item = zr_json_object(findings, NULL);
        zr_json_text(item, "id", f->id);
        zr_json_text(item, "severity", zr_severity_names[f->severity]);
        zr_json_text(item, "what", f->what);
        zr_json_text(item, "seen", f->seen);
        zr_json_text(item, "do", f->todo);
        zr_json_text(item, "price", f->price);
        zr_json_text(item, "source", f->source);
    }
}

void zr_doctor_json(FILE *to, const struct zr_case *c, const struct zr_diagnosis *d) {

    json_t *document = zr_json_document(1);
    if (c->pid) {
        zr_json_count(document, "pid", (uint64_t)c->pid);
        zr_json_text(document, "command", c->command);
        zr_json_flag(document, "preloaded", c->stack.parts[ZR_PART_PRELOAD].there);
    }
    zr_json_count(document, "code", (uint64_t)zr_diagnosis_code(d));
    stack(document, c);
    memory(document, c);
    mirror(document, d);
    findings(document, d);
    zr_json_write(to, document, ZR_JSON_DIGITS, false);
}
