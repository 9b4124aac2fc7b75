/* What differs between two records as a page: diff.html and diff.js with the styles and scripts of the other page. */
#include "report/report.h"

#include <stdlib.h>

extern const char zr_part_diff_html[], zr_part_diff_js[];

enum { ROWS_EACH = 400 };

static void side(FILE *out, const char *name, const struct zr_report *s) {
    const struct zr_profile *f = s->profile;
    char command[2048];

    zr_record_command(s->record, command, sizeof command);
    fprintf(out, ",\"%s\":{\"name\":", name);
    zr_json_string(out, s->name);
    fputs(",\"file\":", out);
    zr_json_string(out, s->record->path);
    fputs(",\"command\":", out);
    zr_json_string(out, command);
    fprintf(out, ",\"duration\":%llu,\"peak\":%llu,\"left\":%llu,\"allocations\":%llu,\"failures\":%llu,\"notes\":[",
            (unsigned long long)s->record->duration, (unsigned long long)f->all.most, (unsigned long long)f->left,
            (unsigned long long)f->count[ZEROUTE_EVENT_ALLOC], (unsigned long long)f->count[ZEROUTE_EVENT_FAIL]);
    for (size_t i = 0; i < s->notes; i++) {
        if (i)
            putc(',', out);
        zr_json_string(out, s->note[i]);
    }
    fputs("]}", out);
}

/* The rows that the page holds: of each weight those that changed most. NULL without memory. */
static bool *choose(const struct zr_diff *d) {
    bool *chosen = calloc(d->rows + 1u, sizeof *chosen);

    for (unsigned by = 0; chosen && by < ZR_DIFF_WEIGHTS; by++) {
        size_t n;
        uint32_t *order = zr_diff_order(d, (enum zr_diff_weight)by, &n);

        if (!order) {
            free(chosen);
            return NULL;
        }
        for (size_t i = 0; i < n; i++) /* both ends: what grew, and what shrank */
            if (i < ROWS_EACH || i + ROWS_EACH >= n)
                chosen[order[i]] = true;
        free(order);
    }
    return chosen;
}

/* Each stack has frames of its own here: the script makes one of those that are the same in both records. */
static void stacks(FILE *out, const struct zr_diff *d, const bool *chosen) {
    uint32_t written = 0, next = 0, rows = 0;

    fputs(",\"frames\":[", out);
    for (uint32_t i = 0; i < d->rows; i++)
        for (uint32_t k = 0; chosen[i] && k < d->row[i].paths->path[d->row[i].path].frames; k++) {
            if (written++)
                putc(',', out);
            zr_page_frame(out, &d->row[i].paths->frame[d->row[i].paths->path[d->row[i].path].frame[k]]);
        }
    fputs("],\"stacks\":[", out);
    for (uint32_t i = 0; i < d->rows; i++) {
        if (!chosen[i])
            continue;
        fputs(rows++ ? ",[" : "[", out);
        for (uint32_t k = 0; k < d->row[i].paths->path[d->row[i].path].frames; k++)
            fprintf(out, "%s%u", k ? "," : "", next++);
        putc(']', out);
    }
    fputs("],\"names\":[", out);
    rows = 0;
    for (uint32_t i = 0; i < d->rows; i++)
        if (chosen[i]) {
            if (rows++)
                putc(',', out);
            zr_json_string(out, d->row[i].paths->path[d->row[i].path].name);
        }
    putc(']', out);
}

/* Values of the chosen rows, and last the sum of all others. */
static void values(FILE *out, const char *name, const struct zr_diff *d, const bool *chosen, bool is) {
    fprintf(out, ",\"%s\":{", name);
    for (unsigned by = 0; by < ZR_DIFF_WEIGHTS; by++) {
        uint64_t rest = 0;

        fprintf(out, "%s\"%s\":[", by ? "," : "", zr_diff_weight_name((enum zr_diff_weight)by));
        for (uint32_t i = 0; i < d->rows; i++) {
            uint64_t value = is ? d->row[i].is[by] : d->row[i].was[by];

            if (chosen[i])
                fprintf(out, "%llu,", (unsigned long long)value);
            else
                rest += value;
        }
        fprintf(out, "%llu]", (unsigned long long)rest);
    }
    putc('}', out);
}

bool zr_diff_page(FILE *out, const struct zr_report shown[2], const struct zr_diff *d) {
    static const char *const scripts[] = {zr_part_common_js, zr_part_flame_js, zr_part_diff_js, NULL};
    bool *chosen = choose(d);

    if (!chosen)
        return false;
    zr_page_begin(out, zr_part_diff_html);
    side(out, "old", &shown[0]);
    side(out, "new", &shown[1]);
    stacks(out, d, chosen);
    values(out, "was", d, chosen, false);
    values(out, "is", d, chosen, true);
    zr_page_end(out, scripts);
    free(chosen);
    return !ferror(out);
}
