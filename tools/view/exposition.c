/*
 * The Prometheus text format: families with help and type, then their series, by group. What is zero says nothing and
 * is left out; counters of processes that have ended stay in the sum of their group.
 */
#include "view/view.h"

#include <stdlib.h>
#include <string.h>

static void head(FILE *out, const char *name, const char *type, const char *help) {
    char *harmless = zr_harmless(help, ZR_FOR_METRIC);
    fprintf(out, "# HELP zeroute_%s %s\n# TYPE zeroute_%s %s\n", name, harmless, name, type);
    free(harmless);
}

/* name{group,series,extra} */
static void name_of(FILE *out, const char *name, const char *suffix, const char *group, const char *series,
                    const char *extra) {
    bool any = *group || *series || *extra;
    fprintf(out, "zeroute_%s%s%s%s%s%s%s%s%s ", name, suffix, any ? "{" : "", group, *group && *series ? "," : "",
            series, (*group || *series) && *extra ? "," : "", extra, any ? "}" : "");
}

static void histogram(FILE *out, const struct zr_metric *f, const char *group, const struct zr_series *s) {
    uint64_t below = 0;
    char le[40];
    for (unsigned b = 0; b <= ZR_LE; b++) {
        below += s->bucket[b];
        if (b < ZR_LE)
            snprintf(le, sizeof le, "le=\"%.9g\"", (double)zr_le_ns(b) / 1e9);
        else
            snprintf(le, sizeof le, "le=\"+Inf\"");
        name_of(out, f->name, "_bucket", group, s->labels, le);
        fprintf(out, "%llu\n", (unsigned long long)below);
    }
    name_of(out, f->name, "_sum", group, s->labels, "");
    fprintf(out, "%.9f\n", (double)s->value / 1e9);
    name_of(out, f->name, "_count", group, s->labels, "");
    fprintf(out, "%llu\n", (unsigned long long)below);
}

static void sample(FILE *out, const struct zr_metric *f, const char *group, const struct zr_series *s) {
    if (f->type == ZR_METRIC_HISTOGRAM) {
        histogram(out, f, group, s);
        return;
    }
    name_of(out, f->name, "", group, s->labels, "");
    if (f->nanoseconds)
        fprintf(out, "%.9f\n", (double)s->value / 1e9);
    else
        fprintf(out, "%llu\n", (unsigned long long)s->value);
}

/* All series of one family stand together. */
static void family(FILE *out, const struct zr_view *m, const struct zr_figures *sums, unsigned number) {
    static const char *const type[] = {"counter", "gauge", "histogram"};
    const struct zr_metric *f = &zr_metric[number];
    bool begun = false;
    for (size_t g = 0; g < m->group_count; g++)
        for (const struct zr_series *s = sums[g].first; s; s = s->next) {
            if (s->family != number)
                continue;
            if (!begun)
                head(out, f->name, type[f->type], f->help);
            begun = true;
            sample(out, f, m->group[g].labels, s);
        }
}

/* --- the machine ------------------------------------------------------------------------------ */

static void one(FILE *out, const char *name, const char *help, const char *labels, uint64_t value) {
    if (value == ZR_ABSENT)
        return;
    head(out, name, "gauge", help);
    name_of(out, name, "", labels, "", "");
    fprintf(out, "%llu\n", (unsigned long long)value);
}

static void cards(FILE *out, const struct zr_view *m) {
    static const struct {
        const char *name, *help, *extra;
        size_t offset;
    } part[] = {
        {"card_vram_bytes", "VRAM of the card.", "", offsetof(struct zr_card_view, vram)},
        {"card_vram_used_bytes", "VRAM in use, as the kernel counts it.", "by=\"zeroute\"",
         offsetof(struct zr_card_view, ours)},
        {"card_vram_used_bytes", "", "by=\"others\"", offsetof(struct zr_card_view, others)},
        {"card_gtt_bytes", "Host memory that the card maps for processes under zeroute.", "",
         offsetof(struct zr_card_view, gtt)},
    };
    for (size_t p = 0; p < sizeof part / sizeof *part; p++) {
        bool begun = !*part[p].help;
        for (unsigned i = 0; i < m->card_count; i++) {
            char device[80] = "";
            uint64_t value;
            memcpy(&value, (const char *)&m->card[i] + part[p].offset, sizeof value);
            if (value == ZR_ABSENT)
                continue;
            if (!begun)
                head(out, part[p].name, "gauge", part[p].help);
            begun = true;
            zr_label(device, sizeof device, "device", m->card[i].pdev);
            name_of(out, part[p].name, "", device, part[p].extra, "");
            fprintf(out, "%llu\n", (unsigned long long)value);
        }
    }
}

/* --- what the kernel counts for processes ----------------------------------------------------- */

enum { KERNEL_VRAM, KERNEL_GTT, KERNEL_UNSEEN, KERNEL_SPILLED, KERNEL_FIGURES };
/* Sums of one group; those of a card are at its place in the view. */
struct kernel_sums {
    uint64_t card[ZR_CARDS_MAX][KERNEL_FIGURES];
    uint64_t resident;
};

static void add_known(uint64_t *sum, uint64_t n) {
    *sum += n == ZR_ABSENT ? 0 : n;
}

static unsigned card_at(const struct zr_view *m, const char *pdev) {
    unsigned at = 0;

    while (at < m->card_count && strcmp(m->card[at].pdev, pdev) != 0)
        at++;
    return at;
}

static void add_kernel(struct kernel_sums *sums, const struct zr_view *m, const struct zr_process_view *v) {
    add_known(&sums->resident, v->memory.rss);
    for (unsigned i = 0; i < v->memory.card_count; i++) {
        const struct zr_card_use *use = &v->memory.cards[i];
        unsigned at = card_at(m, use->pdev);
        if (at == m->card_count)
            continue;
        add_known(&sums->card[at][KERNEL_VRAM], use->vram.total);
        add_known(&sums->card[at][KERNEL_GTT], use->gtt.total);
    }
    for (unsigned i = 0; i < v->accounts; i++) {
        unsigned at = card_at(m, v->account[i].pdev);
        if (at == m->card_count)
            continue;
        add_known(&sums->card[at][KERNEL_UNSEEN], v->account[i].unseen);
        add_known(&sums->card[at][KERNEL_SPILLED], v->account[i].spilled);
    }
}

static void kernel_family(FILE *out, const struct zr_view *m, const struct kernel_sums *sums, unsigned figure) {
    static const struct {
        const char *name, *help;
    } family[KERNEL_FIGURES] = {
        {"device_memory_vram_bytes", "VRAM of programs, as the kernel counts it."},
        {"device_memory_gtt_bytes", "Host memory that the device maps for programs, as the kernel counts it."},
        {"device_memory_unseen_bytes",
         "VRAM in neither blocks, images nor imports: modules, command buffers, the driver's own."},
        {"device_memory_spilled_bytes", "Allocations that went to host memory because VRAM was full."},
    };
    bool begun = false;

    for (size_t g = 0; g < m->group_count; g++)
        for (unsigned c = 0; c < m->card_count && m->group[g].processes; c++) {
            char device[80] = "";
            if (!begun)
                head(out, family[figure].name, "gauge", family[figure].help);
            begun = true;
            zr_label(device, sizeof device, "device", m->card[c].pdev);
            name_of(out, family[figure].name, "", m->group[g].labels, device, "");
            fprintf(out, "%llu\n", (unsigned long long)sums[g].card[c][figure]);
        }
}

static void kernel_counts(FILE *out, const struct zr_view *m) {
    struct kernel_sums *sums = calloc(m->group_count, sizeof *sums);

    for (size_t i = 0; sums && i < m->process_count; i++)
        add_kernel(&sums[m->process[i]->group], m, m->process[i]);
    for (unsigned figure = 0; sums && figure < KERNEL_FIGURES; figure++)
        kernel_family(out, m, sums, figure);
    if (sums && m->process_count)
        head(out, "process_resident_bytes", "gauge", "Resident host memory of the processes.");
    for (size_t g = 0; sums && g < m->group_count; g++)
        if (m->group[g].processes) {
            name_of(out, "process_resident_bytes", "", m->group[g].labels, "", "");
            fprintf(out, "%llu\n", (unsigned long long)sums[g].resident);
        }
    free(sums);
}

/* How many processes of each group are in each state of a pause. */
static void paused_processes(FILE *out, const struct zr_view *m) {
    bool begun = false;

    for (size_t g = 0; g < m->group_count; g++)
        for (enum zr_pause_state state = ZR_PAUSE_RUNNING; state <= ZR_PAUSE_RESUMING; state++) {
            unsigned count = 0;
            char labels[40] = "";
            for (size_t i = 0; i < m->process_count; i++)
                count += m->process[i]->group == g && m->process[i]->pause.state == state;
            if (!count)
                continue;
            if (!begun)
                head(out, "pause_processes", "gauge", "Processes that can be paused (pause:on), by their state.");
            begun = true;
            zr_label(labels, sizeof labels, "state", zr_pause_name(state));
            name_of(out, "pause_processes", "", m->group[g].labels, labels, "");
            fprintf(out, "%u\n", count);
        }
}

static void machine(FILE *out, const struct zr_view *m) {
    char labels[64] = "";
    zr_label(labels, sizeof labels, "version", ZEROUTE_VERSION);
    one(out, "build_info", "The version of zeroute; always 1.", labels, 1);
    head(out, "processes", "gauge", "Running processes under zeroute.");
    for (size_t g = 0; g < m->group_count; g++)
        if (m->group[g].processes) {
            name_of(out, "processes", "", m->group[g].labels, "", "");
            fprintf(out, "%u\n", m->group[g].processes);
        }
    paused_processes(out, m);
    one(out, "processes_unreadable", "Processes whose statistics cannot be read.", "", m->unreadable);
    one(out, "processes_unseen", "Processes that use a device past every hook.", "", m->unhooked);
    one(out, "host_gpu_active_bytes", "GPUActive of the machine: host pages in use by GPUs.", "", m->host.gpu_active);
    one(out, "host_mirror_bytes", "GPUActive less host and shared USM: host memory behind device memory.", "",
        m->mirror);
    one(out, "host_memory_available_bytes", "MemAvailable of the machine.", "", m->host.available);
    cards(out, m);
    head(out, "sample_duration_seconds", "gauge", "How long the last look at all processes took.");
    fprintf(out, "zeroute_sample_duration_seconds %.9f\n", (double)m->sample_ns / 1e9);
}

void zr_exposition(FILE *out, const struct zr_view *m) {
    struct zr_figures *sums = calloc(m->group_count, sizeof *sums);
    if (!sums)
        return;
    for (size_t g = 0; g < m->group_count; g++) {
        zr_figures_add(&sums[g], &m->group[g].live, true, SIZE_MAX);
        zr_figures_add(&sums[g], &m->group[g].ended, false, SIZE_MAX);
    }
    machine(out, m);
    kernel_counts(out, m);
    for (unsigned f = 0; f < zr_metric_count; f++)
        family(out, m, sums, f);
    for (size_t g = 0; g < m->group_count; g++)
        zr_figures_free(&sums[g]);
    free(sums);
}
