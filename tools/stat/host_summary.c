/* Host memory behind a process's device memory, as stat and run show it. */
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
        !zr_process_memory_read(s->process.pid, &f->process))
        return;
    f->active = now.gpu_active;
    f->available = now.available;
    f->rss = f->process.rss;
    f->cgroup = f->process.cgroup_current;
}

static void show_change(FILE *out, const char *name, uint64_t now, uint64_t start) {
    char a[32], b[32];

    if (now == ZR_ABSENT)
        return;
    fprintf(out, "%s %s", name, zr_text_bytes(a, now));
    if (start != ZR_ABSENT && start != now)
        fprintf(out, " (%s%s since its start)", now > start ? "+" : "-",
                zr_text_bytes(b, now > start ? now - start : start - now));
}

void zr_summary_host(FILE *out, const struct zeroute_snapshot *s) {
    const struct zeroute_field *backing = zeroute_find(s, "backing.in_force");
    struct figures f;
    char a[32], b[32];

    gather(&f, s);
    for (unsigned i = 0; i < f.process.card_count; i++)
        fprintf(out, "card %s: VRAM %s, imports (GTT) %s\n", f.process.cards[i].pdev,
                zr_text_bytes(a, f.process.cards[i].vram.total), zr_text_bytes(b, f.process.cards[i].gtt.total));
    if (f.active != ZR_ABSENT || f.available != ZR_ABSENT) {
        fprintf(out, "host memory of the machine: ");
        show_change(out, "GPUActive", f.active, f.active_start);
        show_change(out, f.active == ZR_ABSENT ? "MemAvailable" : ", MemAvailable", f.available, f.available_start);
        fprintf(out, "%s\n", f.active == ZR_ABSENT ? "; this kernel has no GPUActive" : "");
    }
    if (f.rss != ZR_ABSENT) {
        fprintf(out, "of the process: VmRSS %s", zr_text_bytes(a, f.rss));
        if (f.cgroup != ZR_ABSENT)
            fprintf(out, ", cgroup %s", zr_text_bytes(b, f.cgroup));
        fputc('\n', out);
    }
    if (backing && backing->text && *backing->text)
        fprintf(out, "backing: %s\n", zr_shown(backing->text));
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
