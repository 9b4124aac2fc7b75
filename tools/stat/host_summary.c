/* Host memory behind a process's device memory, as stat and run show it. */
#include "outside/outside.h"
#include "stat/stat.h"

#include <stdlib.h>
#include <string.h>

/* A live process as seen from outside, now; a finished one by its last own sample. */
struct figures {
    uint64_t active, active_start, available, available_start, rss, cgroup;
    struct zr_process_memory process; /* of a live one */
};

static void gather(struct figures *f, const struct zeroute_snapshot *s) {
    struct zr_meminfo now;

    memset(f, 0, sizeof *f);
    f->active = zeroute_value(s, "host.gpu_active_bytes", ZR_ABSENT);
    f->active_start = zeroute_value(s, "host.gpu_active_start_bytes", ZR_ABSENT);
    f->available = zeroute_value(s, "host.mem_available_bytes", ZR_ABSENT);
    f->available_start = zeroute_value(s, "host.mem_available_start_bytes", ZR_ABSENT);
    f->rss = zeroute_value(s, "host.vmrss_bytes", ZR_ABSENT);
    f->cgroup = zeroute_value(s, "host.cgroup_bytes", ZR_ABSENT);
    if (s->processes > 1 || s->process.state != ZEROUTE_LIVE || !s->process.pid || !zr_meminfo_read(&now) ||
        !zr_outside_memory(s->process.pid, &f->process))
        return;
    f->active = now.gpu_active;
    f->available = now.available;
    f->rss = f->process.rss;
    f->cgroup = f->process.cgroup_current;
}

static void add_change(char *out, size_t size, const char *name, uint64_t now, uint64_t start) {
    size_t used = strlen(out);
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    if (now == ZR_ABSENT)
        return;
    used += (size_t)snprintf(out + used, size - used, "%s%s %s", used ? ", " : "", name, zr_text_bytes(a, now));
    if (start != ZR_ABSENT && start != now)
        snprintf(out + used, size - used, " (%s%s since the start)", now > start ? "+" : "-",
                 zr_text_bytes(b, now > start ? now - start : start - now));
}

/* What GPUActive has grown by: host memory that was asked for, and the rest, which only an export makes a mirror. */
static void show_split(FILE *out, const struct zeroute_snapshot *s, const struct figures *f) {
    bool exported = zeroute_value(s, "residency.peer.granted_calls", 0) + zeroute_value(s, "ipc.exports", 0) > 0;
    uint64_t asked = zr_host_side(s), grown;
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    if (!asked || f->active == ZR_ABSENT || f->active_start == ZR_ABSENT || f->active <= f->active_start)
        return;
    grown = f->active - f->active_start;
    zr_line(out, "GPUActive", "of its growth %s is host and shared USM, %s %sthe driver's or other processes'",
            zr_text_bytes(a, asked < grown ? asked : grown), zr_text_bytes(b, grown > asked ? grown - asked : 0),
            exported ? "mirror, " : "");
}

void zr_summary_host(FILE *out, const struct zeroute_snapshot *s, bool verbose) {
    const struct zeroute_field *backing = zeroute_find(s, "backing.in_force");
    struct figures f;
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE], text[256] = "";

    gather(&f, s);
    zr_summary_account(out, s);
    add_change(text, sizeof text, "GPUActive", f.active, f.active_start);
    add_change(text, sizeof text, "MemAvailable", f.available, f.available_start);
    if (*text)
        zr_line(out, "host memory", "%s%s", text,
                f.active == ZR_ABSENT ? "; GPUActive is not available (needs kernel 7.1)" : "");
    show_split(out, s, &f);
    for (unsigned i = 0; i < f.process.card_count; i++)
        zr_line(out, i ? "" : "cards", "%s: VRAM %s, imported (GTT) %s", f.process.cards[i].pdev,
                zr_text_bytes(a, f.process.cards[i].vram.total), zr_text_bytes(b, f.process.cards[i].gtt.total));
    if (f.rss != ZR_ABSENT && verbose)
        zr_line(out, "process", "VmRSS %s%s%s", zr_text_bytes(a, f.rss), f.cgroup != ZR_ABSENT ? ", cgroup " : "",
                f.cgroup != ZR_ABSENT ? zr_text_bytes(b, f.cgroup) : "");
    if (backing && backing->text && *backing->text)
        zr_line(out, "backing", "%s", backing->text);
}

void zr_json_host(json_t *object, const struct zeroute_snapshot *s) {
    struct figures f;
    json_t *host = zr_json_object(object, "host");

    gather(&f, s);
    zr_json_amount(host, "gpu_active_bytes", f.active);
    zr_json_amount(host, "gpu_active_start_bytes", f.active_start);
    zr_json_amount(host, "mem_available_bytes", f.available);
    zr_json_amount(host, "mem_available_start_bytes", f.available_start);
    zr_json_amount(host, "vmrss_bytes", f.rss);
    zr_json_amount(host, "cgroup_bytes", f.cgroup);
    for (unsigned i = 0; i < f.process.card_count; i++)
        zr_json_card_use(zr_json_object(host, f.process.cards[i].pdev), &f.process.cards[i]);
}
