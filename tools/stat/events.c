/* What happened in a process: each line only if there is something to say. */
#include "stat/stat.h"

#include <string.h>

static uint64_t value(const struct zeroute_snapshot *s, const char *name) {
    return zeroute_value(s, name, 0);
}

static const char *text_of(const struct zeroute_snapshot *s, const char *name) {
    const struct zeroute_field *f = zeroute_find(s, name);
    return f && f->text ? f->text : "";
}

/*
 * Lines that the process wrote itself: each made harmless, and cut at the width of the page. None but the head of an
 * explanation begins where ours do.
 */
static void print_lines(FILE *out, const char *text) {
    static const char head[] = "out of memory: ";
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        char line[256];
        n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        bool ours = *line == ' ' || strncmp(line, head, strlen(head)) == 0;
        fprintf(out, "%s%.*s\n", ours ? "" : "  ", ours ? ZR_COLUMNS : ZR_COLUMNS - 2, zr_shown(line));
    }
}

/* --- failures --------------------------------------------------------------------------------- */

/* "0x70000003" as the specification names it. */
static const char *name_of(const char *code) {
    static const char *const names[][2] = {
        {"0x70000001", "DEVICE_LOST"},          {"0x70000002", "OUT_OF_HOST_MEMORY"},
        {"0x70000003", "OUT_OF_DEVICE_MEMORY"}, {"0x78000001", "UNINITIALIZED"},
        {"0x78000002", "UNSUPPORTED_VERSION"},  {"0x78000003", "UNSUPPORTED_FEATURE"},
        {"0x78000004", "INVALID_ARGUMENT"},     {"0x78000007", "INVALID_NULL_POINTER"},
        {"0x78000008", "INVALID_SIZE"},         {"0x78000009", "UNSUPPORTED_SIZE"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], code) == 0)
            return names[i][1];
    return code;
}

/* "3 x OUT_OF_DEVICE_MEMORY, 1 x ..." */
static void by_code(const struct zeroute_snapshot *s, char *to, size_t size) {
    static const char prefix[] = "failures.code.";
    size_t used = 0;
    *to = '\0';
    for (size_t i = 0; i < s->field_count && used < size; i++) {
        const struct zeroute_field *f = &s->field[i];
        if (strncmp(f->name, prefix, sizeof prefix - 1) == 0 && f->value)
            used += (size_t)snprintf(to + used, size - used, "%s%llu x %s", used ? ", " : "",
                                     (unsigned long long)f->value, name_of(f->name + sizeof prefix - 1));
    }
}

/* `told`: the program has printed on this terminal why memory was refused. */
static void failures(FILE *out, const struct zeroute_snapshot *s, bool told, bool colour) {
    static const char *const causes[] = {
#define ZR_BY_SETTING(id, setting, ...) "oom." setting,
#define ZR_BY_DRIVER(id, name, ...) "oom." name,
#include "base/refusals.def"
    };
    uint64_t failed = zr_total(s, "failures.");
    char codes[400], a[ZR_TEXT_SIZE];
    by_code(s, codes, sizeof codes);
    if (failed) {
        fputs(zr_red(colour), out);
        zr_line(out, "failed calls", "%s: %s", zr_text_count(a, failed), codes);
        fputs(zr_plain(colour), out);
    }
    for (size_t i = 0; i < sizeof causes / sizeof *causes && !told; i++)
        print_lines(out, text_of(s, causes[i]));
}

/* --- what is left ----------------------------------------------------------------------------- */

/* SYCL allocations less frees, as far as the calls tell. */
static uint64_t sycl_not_freed(const struct zeroute_snapshot *s, uint64_t *allocated) {
    static const char *const entries[] = {
        "malloc_device", "aligned_alloc_device", "malloc_shared", "aligned_alloc_shared",
        "malloc_host",   "aligned_alloc_host",   "malloc",        "aligned_alloc"};
    uint64_t freed = value(s, "calls.free.sycl");
    char name[64];
    *allocated = 0;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        snprintf(name, sizeof name, "calls.%s.sycl", entries[i]);
        *allocated += value(s, name);
        snprintf(name, sizeof name, "failures.%s", entries[i]);
        *allocated -= value(s, name) < *allocated ? value(s, name) : *allocated;
    }
    return *allocated > freed ? *allocated - freed : 0;
}

static void left(FILE *out, const struct zeroute_snapshot *s) {
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];
    uint64_t blocks = value(s, "left.blocks"), runtime = value(s, "left.runtime_blocks"), all, sycl;
    if (s->process.state != ZEROUTE_FINISHED)
        return;
    if (!zeroute_find(s, "left.blocks")) {
        if (value(s, "allocated_bytes.all.current"))
            zr_line(out, "leaks", "not known: the process was killed, or left by _exit");
        return;
    }
    if (blocks) {
        zr_line(out, "leaks", "%s block%s, %s (device and host) were never freed:", zr_text_count(a, blocks),
                blocks == 1 ? "" : "s", zr_text_bytes(b, value(s, "left.bytes")));
        print_lines(out, text_of(s, "left.by_caller"));
    }
    if (runtime)
        zr_line(out, blocks ? "" : "left", "%s block%s, %s of the SYCL runtime, which frees them with its context",
                zr_text_count(a, runtime), runtime == 1 ? "" : "s", zr_text_bytes(b, value(s, "left.runtime_bytes")));
    sycl = runtime ? sycl_not_freed(s, &all) : 0;
    if (sycl)
        zr_line(out, "", "(%s of %s SYCL allocations were not freed by the program)", zr_text_count(a, sycl),
                zr_text_count(b, all));
}

/* --- the rest --------------------------------------------------------------------------------- */

static void residency(FILE *out, const struct zeroute_snapshot *s) {
    uint64_t requested = value(s, "residency.peer.requested_calls"), skipped = value(s, "residency.peer.skipped_calls");
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE], c[ZR_TEXT_SIZE];
    if (requested)
        zr_line(out, "peer residency", "requested %s time%s for %s, %s skipped", zr_text_count(a, requested),
                requested == 1 ? "" : "s", zr_text_bytes(b, value(s, "residency.peer.requested_bytes")),
                skipped == requested ? "all"
                : skipped            ? zr_text_count(c, skipped)
                                     : "none");
}

static void cache(FILE *out, const struct zeroute_snapshot *s) {
    uint64_t hits = value(s, "cache.hits"), misses = value(s, "cache.misses");
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];
    if (hits + misses)
        zr_line(out, "cache", "%s hits, %s misses: %.1f %% of allocations served without the driver",
                zr_text_count(a, hits), zr_text_count(b, misses), 100.0 * (double)hits / (double)(hits + misses));
}

void zr_summary_pause(FILE *out, const struct zeroute_snapshot *s) {
    struct zr_pause_view p;
    char given[ZR_TEXT_SIZE], host[ZR_TEXT_SIZE], age[ZR_TEXT_SIZE], waiting[64] = "";
    uint64_t now = zr_wall_ns();

    zr_pause_take(&p, s);
    if (p.state <= ZR_PAUSE_RUNNING || s->processes > 1 || s->process.state == ZEROUTE_FINISHED)
        return;
    if (p.waiting)
        snprintf(waiting, sizeof waiting, "; %llu thread%s wait%s", (unsigned long long)p.waiting,
                 p.waiting == 1 ? "" : "s", p.waiting == 1 ? "s" : "");
    zr_line(out, zr_pause_name(p.state), "for %s: %s given back, %s of contents in host memory%s%s%s",
            zr_text_age(age, p.since_ns && now > p.since_ns ? now - p.since_ns : 0), zr_text_bytes(given, p.bytes),
            zr_text_bytes(host, p.host_bytes), waiting, *p.reason ? "; " : "", p.reason);
}

/* How often it was paused, of one that runs. */
static void pauses(FILE *out, const struct zeroute_snapshot *s) {
    uint64_t count = value(s, "pause.count"), refused = value(s, "pause.refused");
    const char *reason = text_of(s, "pause.reason");
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];

    if (count + refused)
        zr_line(out, "pauses", "%s, %s refused%s%s", zr_text_count(a, count), zr_text_count(b, refused),
                refused && *reason ? ", the last one: " : "", refused ? reason : "");
}

/* Of a program that ran under limit:auto, or needs none of it, there is nothing to say. */
static void advise(FILE *out, const struct zr_sheet *page, bool colour) {
    struct zr_safe_signs signs = zr_safe_signs_of(page->snapshot);
    char why[200];

    if (page->watched) {
        signs.was = true;
        signs.percent = page->watched->percent;
        signs.spilled = page->watched->spilled;
    }
    for (size_t i = 0; i < page->count && !page->watched; i++)
        signs.spilled += page->process[i]->spilled;
    if (zr_safe_for(&signs, why, sizeof why) == ZR_SAFE_NOT_NEEDED || (signs.is_on && !signs.lost))
        return;
    fputs(signs.lost ? zr_red(colour) : "", out);
    zr_line(out, signs.lost ? "lost card" : "full card", "%s; %s", why,
            signs.is_on ? "processes without limit:auto may have filled it"
                        : "run with --preset safe, and the program gets an error that it can handle");
    fputs(signs.lost ? zr_plain(colour) : "", out);
}

void zr_summary_events(FILE *out, const struct zr_sheet *page, bool colour, bool verbose) {
    const struct zeroute_snapshot *s = page->snapshot;
    char a[ZR_TEXT_SIZE], b[ZR_TEXT_SIZE];
    fputc('\n', out);
    failures(out, s, page->watched != NULL, colour);
    advise(out, page, colour);
    left(out, s);
    residency(out, s);
    cache(out, s);
    pauses(out, s);
    uint64_t taken = value(s, "ipc.exports"), opened = value(s, "ipc.imports");
    if (taken + opened)
        zr_line(out, "IPC", "%s handle%s taken, %s opened", zr_text_count(a, taken), taken == 1 ? "" : "s",
                zr_text_count(b, opened));
    zr_summary_account(out, page, verbose);
    if (value(s, "guard.stubs"))
        zr_line(out, "guard", "%s functions missing from the loader were answered, called %s times",
                zr_text_count(a, value(s, "guard.stubs")), zr_text_count(b, value(s, "guard.calls")));
    uint64_t invalid = zr_total(s, "free.invalid.");
    if (invalid)
        zr_line(out, "invalid frees", "%s refused", zr_text_count(a, invalid));
}
