/* What differs between two records, in the terminal, for scripts, and as folded stacks. */
#include "common/common.h"
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1 };

static const struct {
    enum zr_diff_weight by;
    bool bytes;
    const char *title, *total;
} shown_weights[] = {
    {ZR_BY_PEAK, true, "Live at the peak, by change", "Peak"},
    {ZR_BY_LEFT, true, "Never freed, by change", "Never freed"},
    {ZR_BY_ALLOCATIONS, false, "Allocations, by change", "Allocations"},
    {ZR_BY_FAILURES, false, "Failures, by change", "Failures"},
};
enum { SHOWN_WEIGHTS = sizeof shown_weights / sizeof *shown_weights };

static const char *amount(bool bytes, uint64_t n) {
    static char text[8][ZR_TEXT_SIZE];
    static unsigned next;
    char *out = text[next++ % 8];

    return bytes ? zr_text_bytes(out, n) : zr_text_count(out, n);
}

/* "+256 MiB", "-3", "0" */
static const char *change(bool bytes, uint64_t was, uint64_t is) {
    static char text[4][ZR_TEXT_SIZE + 1];
    static unsigned next;
    char *out = text[next++ % 4];

    if (is == was)
        return "0";
    snprintf(out, sizeof text[0], "%c%s", is > was ? '+' : '-', amount(bytes, is > was ? is - was : was - is));
    return out;
}

static uint64_t total(const struct zr_report *s, enum zr_diff_weight by) {
    switch (by) {
    case ZR_BY_PEAK:
        return s->profile->all.most;
    case ZR_BY_LEFT:
        return s->profile->left;
    case ZR_BY_ALLOCATIONS:
        return s->profile->count[ZEROUTE_EVENT_ALLOC];
    default:
        return s->profile->count[ZEROUTE_EVENT_FAIL];
    }
}

static void introduce(FILE *out, const char *which, const struct zr_report *s) {
    char command[512], line[1200], time[ZR_TEXT_SIZE];

    zr_record_command(s->record, command, sizeof command);
    snprintf(line, sizeof line, "%.400s: %s, %s, ran for %s", s->record->path, *command ? command : "?", s->name,
             zr_span_text(time, s->record->duration));
    fprintf(out, "%-5s", which);
    zr_text_wrap(out, 5, 80, zr_shown(line));
}

static void rows(FILE *out, const struct zr_diff *d, size_t w, unsigned top) {
    enum zr_diff_weight by = shown_weights[w].by;
    bool bytes = shown_weights[w].bytes;
    size_t n;
    uint32_t *order = zr_diff_order(d, by, &n);

    if (order && n)
        fprintf(out, "\n%s\n%10s %10s %10s  %s\n", shown_weights[w].title, "change", "old", "new",
                by == ZR_BY_FAILURES ? "called by" : "allocated by");
    for (size_t i = 0; order && i < n && i < top; i++) {
        const struct zr_diff_row *r = &d->row[order[i]];
        fprintf(out, "%10s %10s %10s  %.45s\n", change(bytes, r->was[by], r->is[by]), amount(bytes, r->was[by]),
                amount(bytes, r->is[by]), zr_shown(r->paths->path[r->path].name));
    }
    if (order && n > top)
        fprintf(out, "%10s from %s other stacks; --top N shows more\n", "...", amount(false, n - top));
    free(order);
}

bool zr_diff_text(FILE *out, const struct zr_report shown[2], const struct zr_diff *d, unsigned top) {
    introduce(out, "old", &shown[0]);
    introduce(out, "new", &shown[1]);
    fprintf(out, "\n%-12s%12s%12s%12s\n", "", "old", "new", "change");
    for (size_t w = 0; w < SHOWN_WEIGHTS; w++) {
        uint64_t was = total(&shown[0], shown_weights[w].by), is = total(&shown[1], shown_weights[w].by);
        fprintf(out, "%-12s%12s%12s%12s\n", shown_weights[w].total, amount(shown_weights[w].bytes, was),
                amount(shown_weights[w].bytes, is), change(shown_weights[w].bytes, was, is));
    }
    for (size_t w = 0; w < SHOWN_WEIGHTS; w++)
        rows(out, d, w, top);
    return !ferror(out);
}

/* --- for scripts ------------------------------------------------------------------------------------------------- */

static void side(json_t *document, const char *name, const struct zr_report *s) {
    json_t *x = zr_json_object(document, name);

    zr_json_text(x, "file", s->record->path);
    zr_json_text(x, "name", s->name);
    zr_json_count(x, "peak_bytes", s->profile->all.most);
    zr_json_count(x, "never_freed_bytes", s->profile->left);
    zr_json_count(x, "allocations", s->profile->count[ZEROUTE_EVENT_ALLOC]);
    zr_json_count(x, "failures", s->profile->count[ZEROUTE_EVENT_FAIL]);
}

static void json_rows(json_t *document, const struct zr_diff *d, enum zr_diff_weight by, unsigned top) {
    json_t *list = zr_json_array(document, zr_diff_weight_name(by));
    size_t n;
    uint32_t *order = zr_diff_order(d, by, &n);

    for (size_t i = 0; order && i < n && i < top; i++) {
        const struct zr_diff_row *r = &d->row[order[i]];
        json_t *x = zr_json_object(list, NULL);

        zr_json_text(x, "name", r->paths->path[r->path].name);
        zr_json_count(x, "old", r->was[by]);
        zr_json_count(x, "new", r->is[by]);
    }
    free(order);
}

bool zr_diff_json(FILE *out, const struct zr_report shown[2], const struct zr_diff *d, unsigned top) {
    json_t *document = zr_json_document(FORMAT);

    side(document, "old", &shown[0]);
    side(document, "new", &shown[1]);
    for (unsigned by = 0; by < ZR_DIFF_WEIGHTS; by++)
        json_rows(document, d, (enum zr_diff_weight)by, top);
    return zr_json_write(out, document, ZR_JSON_DIGITS, false);
}

/* --- folded stacks: "frame;frame OLD NEW", as difffolded.pl makes them --------------------------------- */

static enum zr_diff_weight weight_called(const char *name) {
    if (strcmp(name, "leaks") == 0)
        return ZR_BY_LEFT;
    for (unsigned by = 0; by < ZR_DIFF_WEIGHTS; by++)
        if (strcmp(zr_diff_weight_name((enum zr_diff_weight)by), name) == 0)
            return (enum zr_diff_weight)by;
    return ZR_BY_PEAK;
}

bool zr_diff_flamegraph(FILE *out, const struct zr_diff *d, const char *weight) {
    enum zr_diff_weight by = weight_called(weight);

    for (uint32_t i = 0; i < d->rows; i++) {
        const struct zr_diff_row *r = &d->row[i];

        if (!r->was[by] && !r->is[by])
            continue;
        zr_folded_stack(out, r->paths, r->path);
        fprintf(out, " %llu %llu\n", (unsigned long long)r->was[by], (unsigned long long)r->is[by]);
    }
    return !ferror(out);
}
