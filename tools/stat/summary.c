/* A process on one page, and many processes in one table. */
#include "base/settings.h"
#include "stat/stat.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_ENTRIES 256 /* more than there are; a segment may say anything */

static uint64_t value(const struct zeroute_snapshot *s, const char *name) {
    return zeroute_value(s, name, 0);
}

/* The part of "calls.<entry>.<way>" between the dots. */
static bool entry_of(const char *field, char *entry, size_t size) {
    const char *from = field + 6, *to = strrchr(field, '.');
    if (strncmp(field, "calls.", 6) != 0 || to <= from || (size_t)(to - from) >= size)
        return false;
    memcpy(entry, from, (size_t)(to - from));
    entry[to - from] = '\0';
    return true;
}

static uint64_t calls_of(const struct zeroute_snapshot *s, const char *entry) {
    uint64_t sum = 0;
    char name[96];
    for (size_t i = 0; i < s->field_count; i++)
        if (entry_of(s->field[i].name, name, sizeof name) && strcmp(name, entry) == 0)
            sum += s->field[i].value;
    return sum;
}

/* "plt 3, dlsym 4": the ways by which calls came. */
static void ways_of(const struct zeroute_snapshot *s, const char *entry, char *out, size_t size) {
    size_t used = 0;
    char name[96];
    out[0] = '\0';
    for (size_t i = 0; i < s->field_count; i++) {
        const struct zeroute_field *f = &s->field[i];
        if (!f->value || !entry_of(f->name, name, sizeof name) || strcmp(name, entry) != 0)
            continue;
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", strrchr(f->name, '.') + 1);
        if (used >= size)
            return;
    }
}

static void entries(FILE *out, const struct zeroute_snapshot *s, bool colour) {
    struct zr_table *t =
        zr_table_new("entry point", ">calls", ">failed", ">time", ">p50", ">p99", ">max", "seen by", (char *)NULL);
    char name[96], before[96] = "", latency[128], ways[64];
    char calls[ZR_TEXT_SIZE], failed[ZR_TEXT_SIZE], cell[4][ZR_TEXT_SIZE];
    static const char *const part[] = {"sum_ns", "p50_ns", "p99_ns", "max_ns"};
    unsigned seen = 0;
    for (size_t i = 0; i < s->field_count; i++) {
        if (!entry_of(s->field[i].name, name, sizeof name) || strcmp(name, before) == 0 || seen++ >= MOST_ENTRIES)
            continue;
        memcpy(before, name, sizeof before);
        uint64_t n = calls_of(s, name);
        if (!n)
            continue;
        snprintf(latency, sizeof latency, "failures.%s", name);
        zr_text_count(failed, value(s, latency));
        snprintf(latency, sizeof latency, "latency.%s.calls", name);
        bool timed = value(s, latency) > 0;
        for (size_t p = 0; p < 4; p++) {
            snprintf(latency, sizeof latency, "latency.%s.%s", name, part[p]);
            if (timed)
                zr_text_time(cell[p], value(s, latency));
            else
                snprintf(cell[p], sizeof cell[p], "-");
        }
        ways_of(s, name, ways, sizeof ways);
        zr_table_row(t, name, zr_text_count(calls, n), failed, cell[0], cell[1], cell[2], cell[3], ways);
    }
    zr_table_print(t, out, colour);
}

static void memory_row(struct zr_table *t, const struct zeroute_snapshot *s, const char *label, const char *field,
                       const char *blocks) {
    static const char *const part[] = {"current", "peak", "allocated", "freed"};
    char name[128], cell[4][ZR_TEXT_SIZE], count[ZR_TEXT_SIZE] = "";
    uint64_t any = 0;
    for (size_t p = 0; p < 4; p++) {
        snprintf(name, sizeof name, "%s.%s", field, part[p]);
        const struct zeroute_field *f = zeroute_find(s, name);
        any |= f ? f->value : 0;
        if (f)
            zr_text_bytes(cell[p], f->value);
        else
            snprintf(cell[p], sizeof cell[p], "-");
    }
    if (blocks) {
        snprintf(name, sizeof name, "%s.allocated", blocks);
        zr_text_count(count, value(s, name));
    }
    if (any)
        zr_table_row(t, label, cell[0], cell[1], cell[2], cell[3], count);
}

static void memory(FILE *out, const struct zeroute_snapshot *s, bool colour) {
    struct zr_table *t = zr_table_new("memory", ">now", ">peak", ">allocated", ">freed", ">blocks", (char *)NULL);
    memory_row(t, s, "device memory in use", "allocated_bytes.all", "allocation.all");
    memory_row(t, s, "  reserved from the driver", "reserved_bytes.all", NULL);
    for (unsigned n = 0; n < 64; n++) {
        char label[32], field[64], blocks[64];
        snprintf(label, sizeof label, "  of device %u", n);
        snprintf(field, sizeof field, "device.%u.allocated_bytes.all", n);
        snprintf(blocks, sizeof blocks, "device.%u.allocation.all", n);
        memory_row(t, s, label, field, blocks);
    }
    memory_row(t, s, "  of it shared USM", "allocated_bytes.shared", NULL);
    memory_row(t, s, "  of it physical", "allocated_bytes.physical", NULL);
    memory_row(t, s, "host USM", "allocated_bytes.host", NULL);
    memory_row(t, s, "address ranges reserved", "virtual_bytes.reserved", NULL);
    memory_row(t, s, "address ranges mapped", "virtual_bytes.mapped", NULL);
    memory_row(t, s, "of other processes", "imported_bytes.all", NULL);
    if (zr_table_rows(t))
        fputc('\n', out);
    else
        zr_table_row(t, "none", "", "", "", "", "");
    zr_table_print(t, out, colour);
}

/* What is worth a line only when it happened. */
static void events(FILE *out, const struct zeroute_snapshot *s) {
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE], c[ZR_TEXT_SIZE];
    uint64_t hits = value(s, "cache.hits"), misses = value(s, "cache.misses");
    fputc('\n', out);
    if (hits + misses)
        fprintf(out, "cache: %s hits, %s misses (%.1f %% served without the driver)\n", zr_text_count(a, hits),
                zr_text_count(b, misses), 100.0 * (double)hits / (double)(hits + misses));
    uint64_t requested = value(s, "residency.peer.requested_calls");
    if (requested)
        fprintf(out, "peer residency: requested %s times for %s, skipped %s times\n", zr_text_count(a, requested),
                zr_text_bytes(b, value(s, "residency.peer.requested_bytes")),
                zr_text_count(c, value(s, "residency.peer.skipped_calls")));
    if (value(s, "ipc.exports") + value(s, "ipc.imports"))
        fprintf(out, "IPC: %s handles taken, %s opened\n", zr_text_count(a, value(s, "ipc.exports")),
                zr_text_count(b, value(s, "ipc.imports")));
    zr_summary_host(out, s);
    uint64_t stubs = value(s, "guard.stubs");
    if (stubs)
        fprintf(out, "guard: %s functions that the loader lacks were answered, called %s times\n",
                zr_text_count(a, stubs), zr_text_count(b, value(s, "guard.calls")));
    uint64_t invalid = zr_total(s, "free.invalid.");
    if (invalid)
        fprintf(out, "invalid frees refused: %s\n", zr_text_count(a, invalid));
}

static void callers(FILE *out, const struct zeroute_snapshot *s) {
    unsigned n = 0;
    for (size_t i = 0; i < s->field_count; i++) {
        const char *name = s->field[i].name;
        size_t length = strlen(name);
        char a[ZR_TEXT_SIZE], bytes[ZR_TEXT_SIZE], field[128], library[128];
        if (strncmp(name, "callers.", 8) != 0 || length < 15 || strcmp(name + length - 6, ".calls") != 0 ||
            !s->field[i].value)
            continue;
        snprintf(field, sizeof field, "%.*s.bytes", (int)(length - 6), name);
        snprintf(library, sizeof library, "%.*s", (int)(length - 14), name + 8);
        fprintf(out, "%s%s (%s calls, %s)", n++ ? ", " : "called by: ", zr_shown(library),
                zr_text_count(a, s->field[i].value), zr_text_bytes(bytes, value(s, field)));
    }
    if (n)
        fputc('\n', out);
}

/* The preset in force, if it is one, and the settings that are not at their default. */
static void print_settings(FILE *out, const char *text) {
    struct zr_config *c = calloc(2, sizeof *c);
    char now[4096], preset[4096];
    bool any = false;
    if (!c)
        return;
    zr_settings_default(c);
    zr_settings_parse(c, text, NULL, NULL);
    zr_settings_print(c, now, sizeof now);
    for (size_t i = 0; i < zr_preset_count; i++) {
        zr_settings_default(c + 1);
        zr_preset_set(c + 1, &zr_presets[i]);
        zr_settings_print(c + 1, preset, sizeof preset);
        if (strcmp(now, preset) == 0)
            fprintf(out, "preset %s: ", zr_presets[i].name);
    }
    for (char *item = strtok(now, ","); item; item = strtok(NULL, ",")) {
        char *colon = strchr(item, ':');
        const struct zr_setting *k = colon ? zr_setting_find(item, (size_t)(colon - item)) : NULL;
        if (!k || strcmp(colon + 1, k->fallback) == 0)
            continue;
        fprintf(out, "%s%s", any ? ", " : "", zr_shown(item));
        any = true;
    }
    fputs(any ? "\n" : "all settings at their defaults\n", out);
    free(c);
}

void zr_summary(FILE *out, const struct zeroute_snapshot *s, bool colour) {
    static const char *const state[] = {"running", "finished", "not visible from here"};
    const struct zeroute_process *p = &s->process;
    const struct zeroute_field *route = zeroute_find(s, "route.in_force");
    const struct zeroute_field *why = zeroute_find(s, "route.why");
    const struct zeroute_field *settings = zeroute_find(s, "settings");
    if (s->processes > 1)
        fprintf(out, "%s%zu processes together%s\n", zr_bold(colour), s->processes, zr_plain(colour));
    else
        fprintf(out, "%s%d  %s%s  (%s)\n", zr_bold(colour), p->pid ? p->pid : p->pid_inside, zr_shown(p->command),
                zr_plain(colour), state[p->state]);
    if (settings && settings->text && *settings->text)
        print_settings(out, settings->text);
    if (route && route->text && *route->text)
        fprintf(out, "route: %s%s%s%s\n", zr_shown(route->text), why && *why->text ? " (" : "",
                why && *why->text ? zr_shown(why->text) : "", why && *why->text ? ")" : "");
    fputc('\n', out);
    entries(out, s, colour);
    memory(out, s, colour);
    events(out, s);
    callers(out, s);
}

void zr_overview(FILE *out, struct zeroute_snapshot *const *s, size_t count, bool colour) {
    static const char *const state[] = {"live", "finished", "unknown"};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    struct zr_table *t = zr_table_new(">pid", "state", ">age", ">in use", ">peak", ">reserved", ">calls", ">failed",
                                      "rank", "command", (char *)NULL);
    for (size_t i = 0; i < count; i++) {
        const struct zeroute_process *p = &s[i]->process;
        char pid[16], age[ZR_TEXT_SIZE], cell[5][ZR_TEXT_SIZE];
        snprintf(pid, sizeof pid, "%d", p->pid ? p->pid : p->pid_inside);
        bool ended = p->state == ZEROUTE_FINISHED; /* it holds nothing any more */
        zr_text_bytes(cell[0], value(s[i], "allocated_bytes.all.current"));
        zr_text_bytes(cell[2], value(s[i], "reserved_bytes.all.current"));
        zr_table_row(t, pid, state[p->state], zr_text_age(age, now_ns > p->created_ns ? now_ns - p->created_ns : 0),
                     ended ? "-" : cell[0], zr_text_bytes(cell[1], value(s[i], "allocated_bytes.all.peak")),
                     ended ? "-" : cell[2], zr_text_count(cell[3], zr_total(s[i], "calls.")),
                     zr_text_count(cell[4], zr_total(s[i], "failures.")), *p->rank ? p->rank : "-", p->command);
    }
    zr_table_print(t, out, colour);
}
