/* Host memory behind a process's device memory, as stat and run show it. */
#include "outside/outside.h"
#include "stat/stat.h"

#include <stdlib.h>
#include <string.h>

/* As seen from outside, now: of a live process alone. ZR_ABSENT: not known. */
struct figures {
    uint64_t active, available;
    struct zr_process_memory process;
};

static void gather(struct figures *f, const struct zeroute_snapshot *s) {
    struct zr_meminfo now;

    memset(f, 0, sizeof *f);
    f->active = f->available = f->process.rss = f->process.cgroup_current = ZR_ABSENT;
    if (s->processes > 1 || s->process.state != ZEROUTE_LIVE || !s->process.pid || !zr_meminfo_read(&now) ||
        !zr_outside_memory(s->process.pid, &f->process))
        return;
    f->active = now.gpu_active;
    f->available = now.available;
}

static void add_figure(char *out, size_t size, const char *name, uint64_t bytes) {
    size_t used = strlen(out);
    char a[ZR_TEXT_SIZE];

    if (bytes != ZR_ABSENT)
        snprintf(out + used, size - used, "%s%s %s", used ? ", " : "", name, zr_text_bytes(a, bytes));
}

void zr_summary_host(FILE *out, const struct zeroute_snapshot *s, bool verbose) {
    const struct zeroute_field *backing = zeroute_find(s, "backing.in_force");
    struct figures f;
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE], text[256] = "";

    gather(&f, s);
    zr_summary_account(out, s);
    add_figure(text, sizeof text, "GPUActive", f.active);
    add_figure(text, sizeof text, "MemAvailable", f.available);
    if (*text)
        zr_line(out, "host memory", "%s%s", text,
                f.active == ZR_ABSENT ? "; GPUActive is not available (needs kernel 7.1)" : "");
    for (unsigned i = 0; i < f.process.card_count; i++)
        zr_line(out, i ? "" : "cards", "%s: VRAM %s, imported (GTT) %s", f.process.cards[i].pdev,
                zr_text_bytes(a, f.process.cards[i].vram.total), zr_text_bytes(b, f.process.cards[i].gtt.total));
    *text = '\0';
    add_figure(text, sizeof text, "VmRSS", f.process.rss);
    add_figure(text, sizeof text, "cgroup", f.process.cgroup_current);
    if (*text && verbose)
        zr_line(out, "process", "%s", text);
    if (backing && backing->text && *backing->text)
        zr_line(out, "backing", "%s", backing->text);
}

void zr_json_host(json_t *object, const struct zeroute_snapshot *s) {
    struct figures f;
    json_t *host = zr_json_object(object, "host");

    gather(&f, s);
    zr_json_amount(host, "gpu_active_bytes", f.active);
    zr_json_amount(host, "mem_available_bytes", f.available);
    zr_json_amount(host, "vmrss_bytes", f.process.rss);
    zr_json_amount(host, "cgroup_bytes", f.process.cgroup_current);
    for (unsigned i = 0; i < f.process.card_count; i++)
        zr_json_card_use(zr_json_object(host, f.process.cards[i].pdev), &f.process.cards[i]);
}
