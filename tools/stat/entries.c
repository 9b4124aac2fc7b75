/* The entry points of a process, the busiest first, and the libraries that called them. */
#include "stat/stat.h"

#include <stdlib.h>
#include <string.h>

#define MOST_ENTRIES 256 /* more than there are; a segment may say anything */
#define BUSIEST 6

struct entry {
    char name[96];
    uint64_t calls, failed, timed, ns[4]; /* sum, p50, p99, max */
};

static uint64_t value(const struct zeroute_snapshot *s, const char *format, const char *entry) {
    char name[160];
    snprintf(name, sizeof name, format, entry);
    return zeroute_value(s, name, 0);
}

/* The part of "calls.<entry>.<via>" between the dots. */
static bool entry_of(const char *field, char *entry, size_t size) {
    const char *from = field + 6, *to = strrchr(field, '.');
    if (strncmp(field, "calls.", 6) != 0 || to <= from || (size_t)(to - from) >= size)
        return false;
    memcpy(entry, from, (size_t)(to - from));
    entry[to - from] = '\0';
    return true;
}

/* "plt, dlsym": the hooks that saw calls. */
static void vias_of(const struct zeroute_snapshot *s, const char *entry, char *out, size_t size) {
    size_t used = 0;
    char name[96];
    out[0] = '\0';
    for (size_t i = 0; i < s->field_count && used < size; i++) {
        const struct zeroute_field *f = &s->field[i];
        if (f->value && entry_of(f->name, name, sizeof name) && strcmp(name, entry) == 0)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", strrchr(f->name, '.') + 1);
    }
}

static int by_time(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->ns[0] != y->ns[0])
        return x->ns[0] < y->ns[0] ? 1 : -1;
    return (x->calls < y->calls) - (x->calls > y->calls);
}

static size_t gather(const struct zeroute_snapshot *s, struct entry *all) {
    static const char *const part[] = {"latency.%s.sum_ns", "latency.%s.p50_ns", "latency.%s.p99_ns",
                                       "latency.%s.max_ns"};
    size_t n = 0;
    for (size_t i = 0; i < s->field_count; i++) {
        struct entry e = {0};
        size_t same = 0;
        if (!s->field[i].value || !entry_of(s->field[i].name, e.name, sizeof e.name))
            continue;
        while (same < n && strcmp(all[same].name, e.name) != 0)
            same++;
        if (same == MOST_ENTRIES)
            continue;
        if (same == n) {
            e.failed = value(s, "failures.%s", e.name);
            e.timed = value(s, "latency.%s.calls", e.name);
            for (size_t p = 0; p < 4; p++)
                e.ns[p] = value(s, part[p], e.name);
            all[n++] = e;
        }
        all[same].calls += s->field[i].value;
    }
    if (n)
        qsort(all, n, sizeof *all, by_time);
    return n;
}

static void callers(FILE *out, const struct zeroute_snapshot *s) {
    char text[2048] = "", library[128], a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];
    size_t used = 0;
    for (size_t i = 0; i < s->field_count && used < sizeof text; i++) {
        const char *name = s->field[i].name;
        size_t length = strlen(name);
        if (strncmp(name, "callers.", 8) != 0 || length < 15 || strcmp(name + length - 6, ".calls") != 0 ||
            !s->field[i].value)
            continue;
        snprintf(library, sizeof library, "%.*s", (int)(length - 14), name + 8);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s (%s calls, %s)", used ? ", " : "", library,
                                 zr_text_count(a, s->field[i].value),
                                 zr_text_bytes(b, value(s, "callers.%s.bytes", library)));
    }
    if (used)
        zr_line(out, "called by", "%s", text);
}

/* Device allocations by size class; each class is a power of two, up to the next one. */
static void sizes(FILE *out, const struct zeroute_snapshot *s) {
    char text[1024] = "", a[ZR_TEXT_SIZE];
    size_t used = 0;
    for (size_t i = 0; i < s->field_count && used < sizeof text; i++)
        if (strncmp(s->field[i].name, "allocation.size.", 16) == 0 && s->field[i].value)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s: %s", used ? ", " : "",
                                     s->field[i].name + 16, zr_text_count(a, s->field[i].value));
    if (used)
        zr_line(out, "sizes", "%s", text);
}

void zr_summary_entries(FILE *out, const struct zeroute_snapshot *s, bool colour, bool verbose) {
    struct entry *all = calloc(MOST_ENTRIES, sizeof *all);
    size_t n = all ? gather(s, all) : 0, shown = verbose || n <= BUSIEST + 1 ? n : BUSIEST;
    struct zr_table *t =
        verbose
            ? zr_table_new("entry point", ">calls", ">failed", ">time", ">p50", ">p99", ">max", "seen by", (char *)NULL)
            : zr_table_new("busiest entry points", ">calls", ">failed", ">time", ">p50", ">p99", (char *)NULL);
    for (size_t i = 0; i < shown; i++) {
        const struct entry *e = &all[i];
        char calls[ZR_TEXT_SIZE], failed[ZR_TEXT_SIZE], cell[4][ZR_TEXT_SIZE], vias[64];
        zr_text_count(failed, e->failed);
        for (size_t p = 0; p < 4; p++)
            if (e->timed)
                zr_text_time(cell[p], e->ns[p]);
            else
                snprintf(cell[p], sizeof cell[p], "-");
        vias_of(s, e->name, vias, sizeof vias);
        if (verbose)
            zr_table_row(t, e->name, zr_text_count(calls, e->calls), failed, cell[0], cell[1], cell[2], cell[3], vias);
        else
            zr_table_row(t, e->name, zr_text_count(calls, e->calls), failed, cell[0], cell[1], cell[2]);
    }
    callers(out, s);
    if (verbose)
        sizes(out, s);
    if (n) {
        fputc('\n', out);
        zr_table_print(t, out, colour);
    } else {
        zr_table_free(t);
    }
    if (shown < n)
        fprintf(out, "and %zu more: --verbose\n", n - shown);
    free(all);
}
