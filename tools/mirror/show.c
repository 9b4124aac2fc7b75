/* What mirror-test prints. */
#include "mirror/mirror.h"

#include "common/common.h"

#include <math.h>
#include <string.h>

/* "1.00 +- 0.01", "1.00" with two points, "-" when it was not measured. */
static const char *slope_text(char *out, size_t size, bool there, const struct zr_line *line) {
    double slope = fabs(line->slope) < 0.005 ? 0 : line->slope; /* no -0.00 */

    if (!there)
        snprintf(out, size, "-");
    else if (isnan(line->error))
        snprintf(out, size, "%.2f", slope);
    else
        snprintf(out, size, "%.2f +- %.2f", slope, line->error);
    return out;
}

enum { SIGNED_SIZE = ZR_TEXT_SIZE + 1 };

static const char *signed_bytes(char *out, int64_t bytes) {
    if (bytes < 0)
        *out = '-';
    zr_text_bytes(out + (bytes < 0), (uint64_t)(bytes < 0 ? -bytes : bytes));
    return out;
}

static const char *growth_text(char *out, uint64_t now, uint64_t start) {
    return now == ZR_ABSENT || start == ZR_ABSENT ? "-" : signed_bytes(out, (int64_t)(now - start));
}

static const char *drop_text(char *out, const struct zr_meminfo *start, const struct zr_meminfo *now) {
    bool there = start->available != ZR_ABSENT && now->available != ZR_ABSENT;
    return there ? signed_bytes(out, zr_meminfo_drop(start, now)) : "-";
}

static const struct zr_line *best_line(const struct zr_mirror_result *r, bool *there) {
    *there = r->by_active || r->by_available;
    return r->by_active ? &r->active : &r->available;
}

void zr_mirror_show(FILE *to, const struct zr_mirror_result *r) {
    const struct zr_mirror_plan *plan = &r->plan;
    const struct zr_mirror_step *start = &r->step[0];
    bool colour = zr_colour(to);
    char step[ZR_TEXT_SIZE], a[ZR_TEXT_SIZE], b[SIGNED_SIZE], c[SIGNED_SIZE], d[SIGNED_SIZE], e[SIGNED_SIZE];
    char n[16], active[48], available[48], text[512];
    struct zr_table *table;

    snprintf(text, sizeof text, "%u card%s, route:%s, residency:%s, backing:%s, share %s, %u steps of %s%s%s",
             plan->cards, plan->cards == 1 ? "" : "s", plan->route, plan->residency, plan->backing,
             zr_share_names[plan->share], plan->count, zr_text_bytes(step, plan->step), plan->variables ? ", " : "",
             plan->variables ? plan->variables : "");
    fputs(zr_bold(colour), to);
    zr_text_wrap(to, 0, 80, text);
    fputs(zr_plain(colour), to);
    if (*r->driver || *r->device)
        fprintf(to, "%s, driver %s\n", zr_shown(r->device), zr_shown(r->driver));
    if (r->count) {
        table =
            zr_table_new(">step", ">device", ">GPUActive", ">MemAvailable", ">VmRSS", ">imports", (const char *)NULL);
        for (unsigned i = 0; i < r->count; i++) {
            const struct zr_mirror_step *s = &r->step[i];

            snprintf(n, sizeof n, "%u", i);
            zr_table_row(table, n, zr_text_bytes(a, s->device),
                         growth_text(c, s->host.gpu_active, start->host.gpu_active),
                         drop_text(b, &start->host, &s->host), growth_text(d, s->rss, start->rss),
                         growth_text(e, s->imports, start->imports));
        }
        zr_table_print(table, to, colour);
        fprintf(to, "host columns: growth since step 0; MemAvailable: how much less there is\n"
                    "no host USM is allocated: GPUActive's growth is mirror, or another program's\n");
    }
    if (*r->stopped && r->count)
        fprintf(to, "stopped early: %s\n", zr_shown(r->stopped));
    if (r->count) {
        snprintf(text, sizeof text, "host bytes per device byte: %s by GPUActive, %s by MemAvailable; data %s",
                 slope_text(active, sizeof active, r->by_active, &r->active),
                 slope_text(available, sizeof available, r->by_available, &r->available), r->data);
        zr_text_wrap(to, 0, 80, text);
    }
    fprintf(to, "verdict: %s%s%s (%s)\n", r->verdict == ZR_MIRRORED ? zr_red(colour) : zr_bold(colour),
            zr_verdict_names[r->verdict], zr_plain(colour), r->why);
    zr_mirror_advise(to, r);
    zr_mirror_cost(to, r);
}

/* --- the table of --all ---------------------------------------------------------------------- */

static const struct zr_mirror_result *cell_of(const struct zr_mirror_result *results, unsigned count, const char *label,
                                              unsigned cards) {
    for (unsigned i = 0; i < count; i++) {
        if (!strcmp(results[i].plan.label, label) && results[i].plan.cards == cards)
            return &results[i];
    }
    return NULL;
}

static const char *cell_text(char *out, size_t size, const struct zr_mirror_result *cell) {
    bool there = false;
    const struct zr_line *line = cell ? best_line(cell, &there) : NULL;

    if (!cell || cell->count < 3 || !there)
        snprintf(out, size, "-");
    else if (!strcmp(cell->data, "damaged"))
        snprintf(out, size, "DAMAGED");
    else
        snprintf(out, size, "%.2f%s", fabs(line->slope) < 0.005 ? 0 : line->slope,
                 cell->verdict == ZR_CANNOT_TELL ? "?" : "");
    return out;
}

static bool is_first_of_label(const struct zr_mirror_result *results, unsigned i) {
    for (unsigned k = 0; k < i; k++) {
        if (!strcmp(results[k].plan.label, results[i].plan.label))
            return false;
    }
    return true;
}

static unsigned columns_of(const struct zr_mirror_result *results, unsigned count, unsigned *cards) {
    unsigned found = 0;

    for (unsigned i = 0; i < count; i++) {
        unsigned k = 0;

        while (k < found && cards[k] != results[i].plan.cards)
            k++;
        if (k == found && found < 4)
            cards[found++] = results[i].plan.cards;
    }
    return found;
}

/* Each reason once, with the first cell that has it. */
static void show_reasons(FILE *to, const struct zr_mirror_result *results, unsigned count, bool markdown) {
    for (unsigned i = 0; i < count; i++) {
        unsigned others = 0;
        bool told = false;

        if (results[i].count >= 3)
            continue;
        for (unsigned k = 0; k < count; k++) {
            bool alike = k != i && results[k].count < 3 && !strcmp(results[k].why, results[i].why);

            told |= alike && k < i;
            others += alike;
        }
        if (told)
            continue;
        char text[640], more[32] = "";

        if (others)
            snprintf(more, sizeof more, ", and %u more", others);
        snprintf(text, sizeof text, "%snot available: %s, %u card%s%s: %s", markdown ? "- " : "", results[i].plan.label,
                 results[i].plan.cards, results[i].plan.cards == 1 ? "" : "s", more, results[i].why);
        zr_text_wrap(to, 0, markdown ? 1 << 20 : 80, text);
    }
}

void zr_mirror_show_table(FILE *to, const struct zr_mirror_result *results, unsigned count, bool markdown) {
    unsigned cards[4], columns = columns_of(results, count, cards), width = 0;
    bool colour = !markdown && zr_colour(to);
    char text[48];

    for (unsigned i = 0; i < count; i++) {
        unsigned length = (unsigned)strlen(results[i].plan.label);

        width = length > width ? length : width;
    }
    fprintf(to, "%sHost bytes per device byte%s\n%s%-*s", zr_bold(colour), zr_plain(colour), markdown ? "\n| " : "",
            (int)width, "setting");
    for (unsigned k = 0; k < columns; k++)
        fprintf(to, "%s%u %s", markdown ? " | " : "  ", cards[k], cards[k] == 1 ? "card " : "cards");
    fprintf(to, "%s\n", markdown ? " |" : "");
    if (markdown) {
        fprintf(to, "| ---");
        for (unsigned k = 0; k < columns; k++)
            fprintf(to, " | ---:");
        fprintf(to, " |\n");
    }
    for (unsigned i = 0; i < count; i++) {
        if (!is_first_of_label(results, i))
            continue;
        fprintf(to, "%s%-*s", markdown ? "| " : "", (int)width, results[i].plan.label);
        for (unsigned k = 0; k < columns; k++)
            fprintf(to, "%s%7s", markdown ? " | " : "  ",
                    cell_text(text, sizeof text, cell_of(results, count, results[i].plan.label, cards[k])));
        fprintf(to, "%s\n", markdown ? " |" : "");
    }
    if (markdown)
        fputc('\n', to);
    show_reasons(to, results, count, markdown);
    if (!markdown)
        zr_mirror_advise_all(to, results, count);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void line(json_t *j, const char *key, bool there, const struct zr_line *of) {
    if (!there)
        return;
    json_t *named = zr_json_object(j, key);
    zr_json_real(named, "slope", of->slope);
    zr_json_real(named, "error", of->error);
}

static void one(json_t *j, const struct zr_mirror_result *r) {
    json_t *item = zr_json_object(j, NULL);
    if (*r->plan.label)
        zr_json_text(item, "setting", r->plan.label);
    zr_json_text(item, "route", r->plan.route);
    zr_json_text(item, "residency", r->plan.residency);
    zr_json_text(item, "backing", r->plan.backing);
    zr_json_text(item, "share", zr_share_names[r->plan.share]);
    if (r->plan.variables)
        zr_json_text(item, "variables", r->plan.variables);
    zr_json_count(item, "cards", r->plan.cards);
    zr_json_text(item, "device", r->device);
    zr_json_text(item, "driver", r->driver);
    json_t *steps = zr_json_array(item, "steps");
    for (unsigned i = 0; i < r->count; i++) {
        const struct zr_mirror_step *s = &r->step[i];

        json_t *inner = zr_json_object(steps, NULL);
        zr_json_amount(inner, "device_bytes", s->device);
        zr_json_amount(inner, "gpu_active_bytes", s->host.gpu_active);
        zr_json_amount(inner, "gpu_reclaim_bytes", s->host.gpu_reclaim);
        zr_json_amount(inner, "mem_available_bytes", s->host.available);
        zr_json_amount(inner, "vmrss_bytes", s->rss);
        zr_json_amount(inner, "import_bytes", s->imports);
        zr_json_amount(inner, "vram_bytes", s->vram);
    }
    line(item, "gpu_active", r->by_active, &r->active);
    line(item, "mem_available", r->by_available, &r->available);
    zr_json_text(item, "data", r->data);
    zr_json_text(item, "verdict", zr_verdict_names[r->verdict]);
    zr_json_text(item, "why", r->why);
    if (*r->stopped)
        zr_json_text(item, "stopped", r->stopped);
}

void zr_mirror_show_json(FILE *to, const struct zr_mirror_result *results, unsigned count) {

    json_t *document = zr_json_document(1);
    json_t *measurements = zr_json_array(document, "measurements");
    for (unsigned i = 0; i < count; i++)
        one(measurements, &results[i]);
    zr_json_write(to, document, ZR_JSON_DIGITS, false);
}
