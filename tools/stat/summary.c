/* A process on one page: memory first, then what happened, then the busiest entry points. */
#include "base/settings.h"
#include "stat/stat.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL = 16 };

void zr_line(FILE *out, const char *label, const char *format, ...) {
    va_list ap;
    char *text;
    va_start(ap, format);
    if (vasprintf(&text, format, ap) < 0)
        abort();
    va_end(ap);
    for (char *c = text; (c = strchr(c, '\n'));)
        *c = ' '; /* from outside: a label has one text */
    fprintf(out, "%-*s", LABEL, label);
    if (strlen(label) >= LABEL)
        fprintf(out, "\n%*s", LABEL, "");
    zr_text_wrap(out, LABEL, ZR_COLUMNS, text);
    free(text);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void memory_row(struct zr_table *t, const struct zeroute_snapshot *s, const char *label, const char *field,
                       const char *blocks, bool verbose) {
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
        zr_text_count(count, zeroute_value(s, name, 0));
    }
    if (any && verbose)
        zr_table_row(t, label, cell[0], cell[1], cell[2], cell[3], count);
    else if (any)
        zr_table_row(t, label, cell[0], cell[1], cell[2], count);
}

static void device_rows(struct zr_table *t, const struct zeroute_snapshot *s, bool verbose) {
    unsigned cards = 0;
    for (unsigned round = 0; round < 2; round++)
        for (unsigned n = 0; n < 64 && (round == 0 || cards > 1 || verbose); n++) {
            char label[32], field[64], blocks[64];
            snprintf(field, sizeof field, "device.%u.allocated_bytes.all.allocated", n);
            cards += round == 0 && zeroute_value(s, field, 0) > 0;
            snprintf(label, sizeof label, "  on card %u", n);
            snprintf(field, sizeof field, "device.%u.allocated_bytes.all", n);
            snprintf(blocks, sizeof blocks, "device.%u.allocation.all", n);
            if (round)
                memory_row(t, s, label, field, blocks, verbose);
        }
}

static void memory(FILE *out, const struct zeroute_snapshot *s, bool colour, bool verbose) {
    const char *now = s->process.state == ZEROUTE_FINISHED ? ">at the end" : ">now";
    struct zr_table *t = verbose ? zr_table_new("memory", now, ">peak", ">allocated", ">freed", ">blocks", (char *)NULL)
                                 : zr_table_new("memory", now, ">peak", ">allocated", ">blocks", (char *)NULL);
    memory_row(t, s, "device memory in use", "allocated_bytes.all", "allocation.all", verbose);
    memory_row(t, s, "  reserved from the driver", "reserved_bytes.all", NULL, verbose);
    device_rows(t, s, verbose);
    memory_row(t, s, "  shared USM", "allocated_bytes.shared", NULL, verbose);
    memory_row(t, s, "  physical memory", "allocated_bytes.physical", NULL, verbose);
    memory_row(t, s, "host USM", "allocated_bytes.host", NULL, verbose);
    memory_row(t, s, "imported memory", "imported_bytes.all", NULL, verbose);
    if (verbose) {
        memory_row(t, s, "address ranges reserved", "virtual_bytes.reserved", NULL, verbose);
        memory_row(t, s, "address ranges mapped", "virtual_bytes.mapped", NULL, verbose);
    }
    if (!zr_table_rows(t))
        zr_table_row(t, "no device memory", "", "", "", "", "");
    zr_table_print(t, out, colour);
}

/* --- the head --------------------------------------------------------------------------------- */

/* The preset in force, if it is one, and the settings that are not at their default. */
static void print_settings(FILE *out, const char *text) {
    struct zr_settings *c = calloc(2, sizeof *c);
    char now[4096], preset[4096], line[4096] = "";
    size_t used = 0;
    if (!c)
        return;
    zr_settings_default(c);
    zr_settings_parse(c, text, ',', NULL, NULL);
    zr_settings_print(c, now, sizeof now);
    for (size_t i = 0; i < zr_preset_count; i++) {
        zr_settings_default(c + 1);
        zr_preset_set(c + 1, &zr_presets[i]);
        zr_settings_print(c + 1, preset, sizeof preset);
        if (strcmp(now, preset) == 0)
            used += (size_t)snprintf(line, sizeof line, "preset %s: ", zr_presets[i].name);
    }
    size_t head = used;
    for (char *item = strtok(now, ","); item; item = strtok(NULL, ",")) {
        char *colon = strchr(item, ':');
        const struct zr_setting *k = colon ? zr_setting_find(item, (size_t)(colon - item)) : NULL;
        if (k && strcmp(colon + 1, k->fallback) != 0 && used < sizeof line)
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", used > head ? ", " : "", item);
    }
    zr_line(out, "settings", "%s%s", line, used > head ? "" : "all at their defaults");
    free(c);
}

static void head(FILE *out, const struct zeroute_snapshot *s, bool colour) {
    static const char *const state[] = {"running", "finished", "not visible from here"};
    const struct zeroute_process *p = &s->process;
    const struct zeroute_field *route = zeroute_find(s, "route.in_force"), *why = zeroute_find(s, "route.why");
    const struct zeroute_field *settings = zeroute_find(s, "settings");
    const struct zeroute_field *hooks = zeroute_find(s, "hooks"), *lost = zeroute_find(s, "reuse.lost");
    char command[4 * sizeof p->command];
    if (s->processes > 1) {
        fprintf(out, "%s%zu processes together%s\n", zr_bold(colour), s->processes, zr_plain(colour));
    } else {
        zr_text_command(command, zr_shown(p->command), ZR_COLUMNS - 14 - strlen(state[p->state]));
        fprintf(out, "%s%d  %s%s  (%s)\n", zr_bold(colour), p->pid ? p->pid : p->pid_inside, command, zr_plain(colour),
                state[p->state]);
    }
    if (settings && settings->text && *settings->text)
        print_settings(out, settings->text);
    if (route && route->text && *route->text)
        zr_line(out, "route", "%s%s%s%s", route->text, why && *why->text ? " (" : "",
                why && *why->text ? why->text : "", why && *why->text ? ")" : "");
    zr_summary_pause(out, s);
    if (lost && lost->text && *lost->text)
        zr_line(out, "reuse", "runtime, no longer proven: %s", lost->text);
    if (hooks && hooks->text && *hooks->text)
        zr_line(out, "hooks", "%s", hooks->text);
}

void zr_summary(FILE *out, const struct zr_sheet *page, bool colour, bool verbose) {
    const struct zeroute_snapshot *s = page->snapshot;

    head(out, s, colour);
    fputc('\n', out);
    memory(out, s, colour, verbose);
    zr_summary_events(out, page, colour, verbose);
    zr_summary_entries(out, s, colour, verbose);
}
