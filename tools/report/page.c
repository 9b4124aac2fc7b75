/*
 * The page: page.html, page.css and the scripts, as they are in this folder, and the data in one JSON document. The
 * data is a summary of bounded size, whatever the length of the record; it is not the format of --json and may change.
 */
#include "common/common.h"
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

/* Files of this folder, linked in as they are. */
extern const char zr_part_page_html[], zr_part_page_css[], zr_part_timeline_js[], zr_part_page_js[];

enum { PATHS_EACH = 400, LISTED_EVENTS = 500, LISTED_MARKS = 2000, CHANGES_MOST = 150000 };

/* A JSON string that may also stand inside a script element. */
void zr_json_string(FILE *out, const char *text) {
    char *harmless = zr_harmless(text ? text : "", ZR_FOR_JSON);

    putc('"', out);
    for (const char *c = harmless ? harmless : ""; *c; c++)
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if ((unsigned char)*c < ' ' || *c == '<' || *c == 0x7f)
            fprintf(out, "\\u%04x", *c);
        else
            putc(*c, out);
    putc('"', out);
    free(harmless);
}

static void key(FILE *out, const char *name) {
    fprintf(out, ",\"%s\":", name);
}

static void number(FILE *out, const char *name, uint64_t n) {
    fprintf(out, ",\"%s\":%llu", name, (unsigned long long)n);
}

/* [index, value, index, value ...]: where the value changes. Returns how often it does. */
static size_t series(FILE *out, const uint64_t *value, uint32_t n) {
    uint64_t last = 0;
    size_t changes = 0;

    putc('[', out);
    for (uint32_t i = 0; i < n; i++)
        if (value[i] != last) {
            fprintf(out, "%s%u,%llu", changes++ ? "," : "", i, (unsigned long long)value[i]);
            last = value[i];
        }
    putc(']', out);
    return changes;
}

static void group(FILE *out, const char *name, bool first, size_t rows, const char *(*label)(void *from, size_t row),
                  void *from, const uint64_t *values, uint32_t n) {
    fprintf(out, "%s\"%s\":{\"names\":[", first ? "" : ",", name);
    for (size_t i = 0; i < rows; i++) {
        if (i)
            putc(',', out);
        zr_json_string(out, label(from, i));
    }
    fputs("],\"series\":[", out);
    for (size_t i = 0; i < rows; i++) {
        if (i)
            putc(',', out);
        series(out, values + i * n, n);
    }
    fputs("]}", out);
}

static const char *card_label(void *from, size_t row) {
    static char text[16];
    const struct zr_profile *f = from;

    if (f->cards[row] == ZEROUTE_RECORD_NO_CARD)
        return "no card";
    snprintf(text, sizeof text, "card %u", f->cards[row]);
    return text;
}
static const char *kind_label(void *from, size_t row) {
    (void)from;
    return zr_kind_name((unsigned)row);
}
static const char *size_label(void *from, size_t row) {
    (void)from;
    return zr_size_class_name((unsigned)row);
}
static const char *caller_label(void *from, size_t row) {
    const struct zr_profile *f = from;
    return row < f->top_callers ? f->p->caller[f->top_caller[row]] : "other callers";
}

static void samples(FILE *out, struct zr_profile *f) {
    uint32_t n = f->samples;
    uint64_t last = 0;

    /* Times as differences: they are long numbers. */
    key(out, "times");
    putc('[', out);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(out, "%s%llu", i ? "," : "", (unsigned long long)(f->sample[i].time - last));
        last = f->sample[i].time;
    }
    putc(']', out);
    key(out, "total");
    series(out, f->total, n);
    key(out, "blocks");
    series(out, f->blocks, n);
    key(out, "reserved");
    series(out, f->count[ZEROUTE_EVENT_RESERVE] ? f->held : f->total, n);
    key(out, "by");
    putc('{', out);
    group(out, "card", true, f->n_cards, card_label, f, f->by_card, n);
    group(out, "kind", false, ZEROUTE_MEMORY_KINDS, kind_label, f, f->by_kind, n);
    group(out, "caller", false, f->top_callers + 1, caller_label, f, f->by_caller, n);
    group(out, "size", false, ZR_SIZE_CLASSES, size_label, f, f->by_size, n);
    putc('}', out);
    key(out, "gaps");
    putc('[', out);
    for (size_t i = 0; i < f->gaps; i++)
        fprintf(out, "%s[%u,%llu,%llu,%llu]", i ? "," : "", f->gap[i].sample, (unsigned long long)f->gap[i].reserved,
                (unsigned long long)f->gap[i].free, (unsigned long long)f->gap[i].largest);
    putc(']', out);
}

/* --- paths ------------------------------------------------------------------------------------------------------- */

/* What flame graphs are weighed by. */
static const struct {
    const char *name;
    size_t offset;
} weights[] = {
    {"peak", offsetof(struct zr_path_use, peak)},
    {"peak_blocks", offsetof(struct zr_path_use, peak_blocks)},
    {"refused", offsetof(struct zr_path_use, refused)},
    {"refused_blocks", offsetof(struct zr_path_use, refused_blocks)},
    {"left", offsetof(struct zr_path_use, left)},
    {"left_blocks", offsetof(struct zr_path_use, left_blocks)},
    {"allocations", offsetof(struct zr_path_use, allocations)},
    {"bytes", offsetof(struct zr_path_use, bytes)},
    {"failures", offsetof(struct zr_path_use, failures)},
};
enum { WEIGHTS = sizeof weights / sizeof *weights };

static uint64_t weight(const struct zr_path_use *u, size_t w) {
    uint64_t value;
    memcpy(&value, (const char *)u + weights[w].offset, sizeof value);
    return value;
}

static const struct zr_profile *ranked; /* for qsort */
static size_t ranked_by;
static int by_weight(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    uint64_t x = weight(&ranked->path[i], ranked_by), y = weight(&ranked->path[j], ranked_by);
    return x != y ? (x > y ? -1 : 1) : i < j ? -1 : i > j;
}

/* Chooses the paths to show: number + 1 in the page's order, 0: not shown. NULL without memory. */
static uint32_t *choose(const struct zr_profile *f, uint32_t *shown) {
    uint32_t *chosen = calloc(f->p->paths + 1u, sizeof *chosen);
    uint32_t *order = malloc((f->p->paths + 1u) * sizeof *order);

    if (chosen && order) {
        for (size_t i = 0; i < f->top_paths; i++)
            chosen[f->top_path[i]] = 1;
        for (size_t w = 0; w < WEIGHTS; w++) {
            for (uint32_t i = 0; i < f->p->paths; i++)
                order[i] = i;
            ranked = f;
            ranked_by = w;
            qsort(order, f->p->paths, sizeof *order, by_weight);
            for (uint32_t i = 0; i < f->p->paths && i < PATHS_EACH && weight(&f->path[order[i]], w); i++)
                chosen[order[i]] = 1;
        }
        *shown = 0;
        for (uint32_t i = 0; i < f->p->paths; i++)
            if (chosen[i])
                chosen[i] = ++*shown;
    } else {
        free(chosen);
        chosen = NULL;
    }
    free(order);
    return chosen;
}

void zr_page_frame(FILE *out, const struct zr_frame *f) {
    putc('[', out);
    zr_json_string(out, f->name);
    putc(',', out);
    zr_json_string(out, f->file);
    fprintf(out, ",%u,%d]", f->line, f->python ? 2 : f->runtime);
}

static bool paths(FILE *out, const struct zr_profile *f, uint32_t **chosen_out) {
    uint32_t shown = 0, frames = 0;
    uint32_t *chosen = choose(f, &shown), *frame_of = calloc(f->p->frames + 1u, sizeof *frame_of);

    *chosen_out = chosen;
    if (!chosen || !frame_of) {
        free(frame_of);
        return false;
    }
    key(out, "frames");
    putc('[', out);
    for (uint32_t i = 0; i < f->p->paths; i++)
        for (uint32_t k = 0; chosen[i] && k < f->p->path[i].frames; k++) {
            uint32_t frame = f->p->path[i].frame[k];
            if (frame_of[frame])
                continue;
            if (frames)
                putc(',', out);
            zr_page_frame(out, &f->p->frame[frame]);
            frame_of[frame] = ++frames;
        }
    putc(']', out);
    key(out, "stacks");
    putc('[', out);
    for (uint32_t i = 0, n = 0; i < f->p->paths; i++) {
        if (!chosen[i])
            continue;
        fprintf(out, "%s[", n++ ? "," : "");
        for (uint32_t k = 0; k < f->p->path[i].frames; k++)
            fprintf(out, "%s%u", k ? "," : "", frame_of[f->p->path[i].frame[k]] - 1);
        putc(']', out);
    }
    putc(']', out);
    free(frame_of);
    key(out, "names");
    putc('[', out);
    for (uint32_t i = 0, n = 0; i < f->p->paths; i++)
        if (chosen[i]) {
            if (n++)
                putc(',', out);
            zr_json_string(out, f->p->path[i].name);
        }
    putc(']', out);
    key(out, "weights");
    putc('{', out);
    for (size_t w = 0; w < WEIGHTS; w++) {
        uint64_t rest = 0;
        uint32_t n = 0;

        fprintf(out, "%s\"%s\":[", w ? "," : "", weights[w].name);
        for (uint32_t i = 0; i < f->p->paths; i++)
            if (chosen[i])
                fprintf(out, "%s%llu", n++ ? "," : "", (unsigned long long)weight(&f->path[i], w));
            else
                rest += weight(&f->path[i], w);
        fprintf(out, "%s%llu]", n ? "," : "", (unsigned long long)rest); /* the last one: all others */
    }
    putc('}', out);
    key(out, "live");
    putc('[', out);
    for (size_t i = 0, changes = 0; i < f->top_paths && changes < CHANGES_MOST; i++) {
        fprintf(out, "%s[%u,", i ? "," : "", chosen[f->top_path[i]] - 1);
        changes += series(out, f->by_path + i * f->samples, f->samples);
        putc(']', out);
    }
    putc(']', out);
    return true;
}

/* --- lists ------------------------------------------------------------------------------------------------------- */

static void blocks(FILE *out, const struct zr_profile *f, const uint32_t *chosen) {
    key(out, "largest");
    putc('[', out);
    for (size_t i = 0; i < f->tops; i++) {
        const struct zr_event *e = &f->r->event[f->top[i]];

        fprintf(out, "%s[%llu,%llu,", i ? "," : "", (unsigned long long)e->size, (unsigned long long)e->time);
        if (e->partner == ZR_NO_EVENT)
            fputs("null", out);
        else
            fprintf(out, "%llu", (unsigned long long)f->r->event[e->partner].time);
        fprintf(out, ",%u,%u,%d,\"0x%llx\",%u]", e->card, e->kind, (int)chosen[f->p->of_stack[e->stack]] - 1,
                (unsigned long long)e->address, f->r->thread[e->thread].tid);
    }
    putc(']', out);
}

static void lists(FILE *out, const struct zr_profile *f, const uint32_t *chosen) {
    const struct zr_record *r = f->r;
    unsigned listed = 0;

    key(out, "failures");
    putc('[', out);
    for (uint32_t i = 0; i < r->events && listed < LISTED_EVENTS && f->count[ZEROUTE_EVENT_FAIL]; i++) {
        const struct zr_event *e = &r->event[i];
        if (e->type != ZEROUTE_EVENT_FAIL)
            continue;
        fprintf(out, "%s[%llu,%llu,%u,%u,", listed++ ? "," : "", (unsigned long long)e->time,
                (unsigned long long)e->size, e->card, e->kind);
        zr_json_string(out, zr_code_name(e->code));
        putc(',', out);
        zr_json_string(out, zr_refuser_name(e->refuser));
        putc(',', out);
        zr_json_string(out, zr_record_entry(r, e->entry));
        fprintf(out, ",%d]", (int)chosen[f->p->of_stack[e->stack]] - 1);
    }
    fputs("],\"trims\":[", out);
    listed = 0;
    for (uint32_t i = 0; i < r->events && listed < LISTED_MARKS && f->count[ZEROUTE_EVENT_TRIM]; i++)
        if (r->event[i].type == ZEROUTE_EVENT_TRIM)
            fprintf(out, "%s[%llu,%llu]", listed++ ? "," : "", (unsigned long long)r->event[i].time,
                    (unsigned long long)r->event[i].size);
    fputs("],\"marks\":[", out);
    listed = 0;
    for (uint32_t i = 0; i < r->events && listed < LISTED_MARKS && r->marks; i++)
        if (r->event[i].type == ZEROUTE_EVENT_MARK) {
            fprintf(out, "%s[%llu,", listed++ ? "," : "", (unsigned long long)r->event[i].time);
            zr_json_string(out, r->mark[r->event[i].aux]);
            putc(']', out);
        }
    fputs("],\"sizes\":[", out);
    for (unsigned i = 0; i < ZR_SIZE_CLASSES; i++) {
        const struct zr_class_use *c = &f->size[i];

        fprintf(out, "%s[", i ? "," : "");
        zr_json_string(out, zr_size_class_name(i));
        fprintf(out, ",%llu,%llu,%llu,%llu,%llu", (unsigned long long)c->allocations, (unsigned long long)c->bytes,
                (unsigned long long)c->level.most, (unsigned long long)c->failures, (unsigned long long)c->hits);
        for (unsigned reused = 0; reused < 2; reused++)
            fprintf(out, ",%llu,%llu,%llu,%llu", (unsigned long long)c->timed[reused],
                    (unsigned long long)zr_latency_quantile(c, reused, 0.5),
                    (unsigned long long)zr_latency_quantile(c, reused, 0.99), (unsigned long long)c->longest[reused]);
        putc(']', out);
    }
    putc(']', out);
}

/* --- the whole --------------------------------------------------------------------------------------------------- */

static void list(FILE *out, const char *name, char *const *text, size_t n) {
    key(out, name);
    putc('[', out);
    for (size_t i = 0; i < n; i++) {
        if (i)
            putc(',', out);
        zr_json_string(out, text[i]);
    }
    putc(']', out);
}

/* [kind, allocations, bytes and blocks that were never freed]. */
static void kinds(FILE *out, const struct zr_profile *f) {
    size_t n = 0;

    key(out, "kinds");
    putc('[', out);
    for (unsigned k = 0; k < ZEROUTE_MEMORY_KINDS; k++)
        if (f->made[k])
            fprintf(out, "%s[%u,%llu,%llu,%llu]", n++ ? "," : "", k, (unsigned long long)f->made[k],
                    (unsigned long long)f->kind[k].bytes, (unsigned long long)f->kind[k].blocks);
    putc(']', out);
}

/* Samples of the whole machine: times in ns, how much less is available, and the mirror or null. */
static void host(FILE *out, const struct zr_record *r) {
    struct zr_host_line line;

    key(out, "host");
    if (!r->hosts || !zr_host_line_of(r, &line)) {
        fputs("null", out);
        return;
    }
    fputs("{\"times\":[", out);
    for (size_t i = 0; i < line.n; i++)
        fprintf(out, "%s%llu", i ? "," : "", (unsigned long long)r->host[i].time);
    fputs("],\"lost\":[", out);
    for (size_t i = 0; i < line.n; i++)
        fprintf(out, "%s%llu", i ? "," : "", (unsigned long long)line.lost[i]);
    fputs("],\"mirror\":[", out);
    for (size_t i = 0; i < line.n && line.mirror_known; i++)
        fprintf(out, "%s%llu", i ? "," : "", (unsigned long long)line.mirror[i]);
    fprintf(out, "],\"lost_most\":%llu,\"mirror_most\":%llu}", (unsigned long long)line.lost_most,
            (unsigned long long)line.mirror_most);
    zr_host_line_free(&line);
}

/* The last allocation that was refused, and what was allocated then. */
static void refusal(FILE *out, const struct zr_profile *f) {
    key(out, "refusal");
    if (f->failure_event == ZR_NO_EVENT) {
        fputs("null", out);
        return;
    }
    const struct zr_event *e = &f->r->event[f->failure_event];
    fprintf(out, "{\"time\":%llu,\"size\":%llu,\"card\":%u,\"bytes\":%llu,\"blocks\":%llu,\"by\":",
            (unsigned long long)e->time, (unsigned long long)e->size, e->card, (unsigned long long)f->refused,
            (unsigned long long)f->refused_blocks);
    zr_json_string(out, zr_refuser_name(e->refuser));
    key(out, "code");
    zr_json_string(out, zr_code_name(e->code));
    putc('}', out);
}

static void head(FILE *out, const struct zr_report *s) {
    const struct zr_profile *f = s->profile;
    const struct zr_record *r = s->record;
    char command[2048];

    zr_record_command(r, command, sizeof command);
    fputs("{\"name\":", out);
    zr_json_string(out, s->name);
    key(out, "file");
    zr_json_string(out, r->path);
    key(out, "command");
    zr_json_string(out, command);
    key(out, "settings");
    zr_json_string(out, r->text[ZEROUTE_TEXT_SETTINGS]);
    key(out, "version");
    zr_json_string(out, r->header.version);
    number(out, "pid", r->header.pid);
    number(out, "begin", r->header.start_real / 1000000); /* ms: whole numbers that JavaScript can hold */
    number(out, "offset", s->offset);
    number(out, "duration", r->duration);
    number(out, "events", r->events);
    number(out, "lost", r->header.lost_events);
    fprintf(out, ",\"ended\":%s", r->ended ? "true" : "false");
    fprintf(out, ",\"apart\":%s", f->count[ZEROUTE_EVENT_RESERVE] ? "true" : "false");
    list(out, "notes", s->note, s->notes);
    list(out, "remarks", s->remark, s->remarks);
    kinds(out, f);
    refusal(out, f);
    host(out, r);
    fprintf(out, ",\"peak\":{\"bytes\":%llu,\"blocks\":%llu,\"at\":%llu}", (unsigned long long)f->all.most,
            (unsigned long long)f->all.most_blocks, (unsigned long long)f->all.at);
    fprintf(out, ",\"reserved_peak\":%llu",
            (unsigned long long)(f->count[ZEROUTE_EVENT_RESERVE] ? f->reserved.most : f->all.most));
    fprintf(out, ",\"end\":{\"bytes\":%llu,\"blocks\":%llu}", (unsigned long long)f->left,
            (unsigned long long)f->left_blocks);
    fprintf(out,
            ",\"counts\":{\"allocations\":%llu,\"frees\":%llu,\"failures\":%llu,\"trims\":%llu,\"trimmed\":%llu,"
            "\"marks\":%llu,\"exports\":%llu}",
            (unsigned long long)f->count[ZEROUTE_EVENT_ALLOC], (unsigned long long)f->count[ZEROUTE_EVENT_FREE],
            (unsigned long long)f->count[ZEROUTE_EVENT_FAIL], (unsigned long long)f->count[ZEROUTE_EVENT_TRIM],
            (unsigned long long)f->trimmed, (unsigned long long)f->count[ZEROUTE_EVENT_MARK],
            (unsigned long long)f->count[ZEROUTE_EVENT_EXPORT]);
    key(out, "peaks");
    putc('[', out);
    for (size_t i = 0, n = 0; i < f->n_cards; i++)
        for (unsigned k = 0; k < ZEROUTE_MEMORY_KINDS; k++) {
            const struct zr_level *l = &f->card_kind[f->cards[i]][k];
            if (l->most_blocks)
                fprintf(out, "%s[%u,%u,%llu,%llu,%llu]", n++ ? "," : "", f->cards[i], k, (unsigned long long)l->most,
                        (unsigned long long)l->at, (unsigned long long)r->card_memory[f->cards[i]]);
        }
    putc(']', out);
}

static bool joint(FILE *out, const struct zr_report *shown, size_t n) {
    struct zr_joint j;
    bool ok = zr_joint_of(shown, n, &j);

    if (ok) {
        fprintf(out, ",\"joint\":{\"peaks\":%llu,\"bytes\":%llu,\"blocks\":%llu,\"at\":%llu,\"left\":%llu,\"then\":[",
                (unsigned long long)j.peaks, (unsigned long long)j.level.most, (unsigned long long)j.level.most_blocks,
                (unsigned long long)j.level.at, (unsigned long long)j.left);
        for (size_t i = 0; i < n; i++)
            fprintf(out, "%s%llu", i ? "," : "", (unsigned long long)j.then[i]);
        fputs("]}", out);
    }
    free(j.then);
    return ok;
}

void zr_page_begin(FILE *out, const char *html) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>zeroute report</title>\n"
          "<style>\n",
          out);
    fputs(zr_part_page_css, out);
    fputs("</style>\n</head>\n<body>\n", out);
    fputs(html, out);
    fputs("<script type=\"application/json\" id=\"data\">\n{\"tool\":", out);
    zr_json_string(out, ZEROUTE_VERSION);
}

void zr_page_end(FILE *out, const char *const *script) {
    fputs("}\n</script>\n<script>\n'use strict';\n", out);
    for (; *script; script++)
        fputs(*script, out);
    fputs("</script>\n</body>\n</html>\n", out);
}

bool zr_report_page(FILE *out, const struct zr_report *shown, size_t n) {
    static const char *const scripts[] = {zr_part_common_js, zr_part_timeline_js, zr_part_flame_js, zr_part_page_js,
                                          NULL};
    bool ok = true;

    zr_page_begin(out, zr_part_page_html);
    key(out, "processes");
    fputs("[\n", out);
    for (size_t i = 0; i < n && ok; i++) {
        uint32_t *chosen = NULL;

        if (i)
            fputs(",\n", out);
        head(out, &shown[i]);
        samples(out, shown[i].profile);
        ok = paths(out, shown[i].profile, &chosen);
        if (ok) {
            blocks(out, shown[i].profile, chosen);
            lists(out, shown[i].profile, chosen);
        }
        free(chosen);
        putc('}', out);
    }
    putc(']', out);
    if (n > 1)
        ok = joint(out, shown, n) && ok;
    zr_page_end(out, scripts);
    return ok && !ferror(out);
}
