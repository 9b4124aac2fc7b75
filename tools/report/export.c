/* Exports that are one line for each thing: folded stacks, CSV, and the trace event JSON that Perfetto opens. */
#include "common/common.h"
#include "report/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- folded stacks --------------------------------------------------------------------------------------------- */

static uint64_t weight_of(const struct zr_path_use *u, const char *weight) {
    return strcmp(weight, "leaks") == 0         ? u->left
           : strcmp(weight, "allocations") == 0 ? u->allocations
           : strcmp(weight, "bytes") == 0       ? u->bytes
           : strcmp(weight, "failures") == 0    ? u->failures
                                                : u->peak;
}

/* A frame must not hold what separates frames. */
static void folded(FILE *out, const char *text) {
    for (const char *c = zr_shown(text); *c; c++)
        putc(*c == ';' ? ',' : *c, out);
}

void zr_folded_stack(FILE *out, const struct zr_paths *p, uint32_t path) {
    const struct zr_path *x = &p->path[path];
    char text[1200];

    for (uint32_t i = 0; i < x->frames; i++) {
        if (i)
            putc(';', out);
        folded(out, zr_frame_text(&p->frame[x->frame[i]], text, sizeof text));
    }
    if (!x->frames)
        fputs("no stack recorded", out);
}

bool zr_export_flamegraph(FILE *out, const struct zr_report *shown, size_t n, const char *weight) {
    for (size_t i = 0; i < n; i++) {
        const struct zr_paths *p = shown[i].paths;

        for (uint32_t k = 0; k < p->paths; k++) {
            uint64_t value = weight_of(&shown[i].profile->path[k], weight);

            if (!value)
                continue;
            if (n > 1)
                fprintf(out, "%s;", shown[i].name);
            zr_folded_stack(out, p, k);
            fprintf(out, " %" PRIu64 "\n", value);
        }
    }
    return !ferror(out);
}

/* --- CSV ---------------------------------------------------------------------------------------------------------- */

static void quoted(FILE *out, const char *text) {
    putc('"', out);
    for (const char *c = zr_shown(text); *c; c++) {
        if (*c == '"')
            putc('"', out);
        putc(*c, out);
    }
    putc('"', out);
}

bool zr_export_csv(FILE *out, const struct zr_report *shown, size_t n) {
    fputs("process,time_ns,thread,event,card,kind,bytes,address,code,duration_ns,entry,via,caller,text\n", out);
    for (size_t i = 0; i < n; i++) {
        const struct zr_record *r = shown[i].record;
        const struct zr_paths *p = shown[i].paths;

        for (uint32_t k = 0; k < r->events; k++) {
            const struct zr_event *e = &r->event[k];

            fprintf(out, "%u,%" PRIu64 ",%u,%s,", r->header.pid, e->time, r->thread[e->thread].tid,
                    zr_event_name(e->type));
            if (e->card != ZEROUTE_RECORD_NO_CARD)
                fprintf(out, "%u", e->card);
            fprintf(out, ",%s,%" PRIu64 ",0x%" PRIx64 ",0x%x,%u,", zr_kind_name(e->kind), e->size, e->address, e->code,
                    e->duration);
            quoted(out, zr_record_entry(r, e->entry));
            putc(',', out);
            quoted(out, zr_record_via(r, e->via));
            putc(',', out);
            quoted(out, e->stack ? p->caller[p->path[p->of_stack[e->stack]].caller] : "");
            putc(',', out);
            if (e->type == ZEROUTE_EVENT_MARK)
                quoted(out, r->mark[e->aux]);
            putc('\n', out);
        }
    }
    return !ferror(out);
}

/* --- trace event JSON --------------------------------------------------------------------------------------------- */

/* Only the largest blocks, this many, become slices: a viewer has its limits. */
enum { SLICES_MOST = 200000 };

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t smallest_slice(const struct zr_record *r) {
    uint64_t *size = malloc((r->events + 1u) * sizeof *size), least = 0;
    size_t n = 0;

    for (uint32_t i = 0; size && i < r->events; i++)
        if (r->event[i].type == ZEROUTE_EVENT_ALLOC)
            size[n++] = r->event[i].size;
    if (n > SLICES_MOST) {
        qsort(size, n, sizeof *size, ascending);
        least = size[n - SLICES_MOST] + 1;
    }
    free(size);
    return least;
}

/* Microseconds with three digits behind the point. */
static void at(FILE *out, uint64_t ns) {
    fprintf(out, "\"ts\":%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}

static void counter(FILE *out, unsigned pid, uint64_t ns, const char *name, uint64_t value) {
    fprintf(out, ",\n{\"ph\":\"C\",\"pid\":%u,\"name\":\"%s\",", pid, name);
    at(out, ns);
    fprintf(out, ",\"args\":{\"bytes\":%" PRIu64 "}}", value);
}

static void counters(FILE *out, const struct zr_report *s, unsigned pid) {
    const struct zr_profile *f = s->profile;
    char name[40];

    for (uint32_t i = 0; i < f->samples; i++) {
        uint64_t ns = s->offset + f->sample[i].time;

        for (size_t c = 0; c < f->n_cards; c++) {
            const uint64_t *row = f->by_card + c * f->samples;
            if (f->cards[c] == ZEROUTE_RECORD_NO_CARD || (i && row[i] == row[i - 1]))
                continue;
            snprintf(name, sizeof name, "allocated, card %u", f->cards[c]);
            counter(out, pid, ns, name, row[i]);
        }
        if (f->count[ZEROUTE_EVENT_RESERVE] && (!i || f->held[i] != f->held[i - 1]))
            counter(out, pid, ns, "reserved", f->held[i]);
    }
}

static void slice(FILE *out, const struct zr_report *s, unsigned pid, uint32_t i) {
    const struct zr_record *r = s->record;
    const struct zr_event *e = &r->event[i];
    uint64_t end = e->partner == ZR_NO_EVENT ? r->duration : r->event[e->partner].time;
    char text[ZR_TEXT_SIZE];

    fprintf(out, ",\n{\"ph\":\"b\",\"cat\":\"block\",\"id\":%u,\"pid\":%u,\"name\":\"%s\",", i, pid,
            zr_text_bytes(text, e->size));
    at(out, s->offset + e->time);
    fprintf(out, ",\"args\":{\"bytes\":%" PRIu64 ",\"address\":\"0x%" PRIx64 "\",\"kind\":\"%s\"", e->size, e->address,
            zr_kind_name(e->kind));
    if (e->card != ZEROUTE_RECORD_NO_CARD)
        fprintf(out, ",\"card\":%u", e->card);
    if (e->partner == ZR_NO_EVENT)
        fputs(",\"freed\":false", out);
    if (e->stack) {
        fputs(",\"caller\":", out);
        zr_json_string(out, s->paths->caller[s->paths->path[s->paths->of_stack[e->stack]].caller]);
    }
    fprintf(out, "}},\n{\"ph\":\"e\",\"cat\":\"block\",\"id\":%u,\"pid\":%u,\"name\":\"%s\",", i, pid,
            zr_text_bytes(text, e->size));
    at(out, s->offset + end);
    putc('}', out);
}

/* The call itself, on its thread: it ended when the event was noted. */
static void call(FILE *out, const struct zr_report *s, unsigned pid, const struct zr_event *e) {
    uint64_t end = s->offset + e->time, begin = end > e->duration ? end - e->duration : 0;

    fprintf(out, ",\n{\"ph\":\"X\",\"cat\":\"call\",\"pid\":%u,\"tid\":%u,\"name\":", pid,
            s->record->thread[e->thread].tid);
    zr_json_string(out, zr_record_entry(s->record, e->entry));
    putc(',', out);
    at(out, begin);
    fprintf(out, ",\"dur\":%u.%03u,\"args\":{\"bytes\":%" PRIu64 ",\"code\":\"0x%x\"}}", e->duration / 1000,
            e->duration % 1000, e->size, e->code);
}

static void instant(FILE *out, const struct zr_report *s, unsigned pid, const struct zr_event *e, const char *name) {
    fprintf(out, ",\n{\"ph\":\"i\",\"s\":\"p\",\"pid\":%u,\"tid\":%u,\"name\":", pid, s->record->thread[e->thread].tid);
    zr_json_string(out, name);
    putc(',', out);
    at(out, s->offset + e->time);
    putc('}', out);
}

static void events(FILE *out, const struct zr_report *s, unsigned pid) {
    const struct zr_record *r = s->record;
    uint64_t least = smallest_slice(r);
    char text[160], size[ZR_TEXT_SIZE];

    for (uint32_t i = 0; i < r->events; i++) {
        const struct zr_event *e = &r->event[i];

        if (e->type == ZEROUTE_EVENT_ALLOC && zr_kind_memory(e->kind) && e->size >= least) {
            slice(out, s, pid, i);
            if (e->duration)
                call(out, s, pid, e);
        } else if (e->type == ZEROUTE_EVENT_FAIL) {
            snprintf(text, sizeof text, "%s: %s by %s", zr_code_name(e->code), zr_text_bytes(size, e->size),
                     zr_refuser_name(e->refuser));
            instant(out, s, pid, e, text);
        } else if (e->type == ZEROUTE_EVENT_TRIM) {
            snprintf(text, sizeof text, "%s of cached memory given back", zr_text_bytes(size, e->size));
            instant(out, s, pid, e, text);
        } else if (e->type == ZEROUTE_EVENT_MARK) {
            instant(out, s, pid, e, r->mark[e->aux]);
        }
    }
    if (least)
        zr_complain("report", "%s has very many blocks: those below %s are in the counters only", zr_shown(r->path),
                    zr_text_bytes(size, least));
}

bool zr_export_perfetto(FILE *out, const struct zr_report *shown, size_t n) {
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"zeroute\",\"pid\":0,\"args\":{}}",
          out);
    for (size_t i = 0; i < n; i++) {
        const struct zr_record *r = shown[i].record;
        unsigned pid = r->header.pid;
        char command[512];

        zr_record_command(r, command, sizeof command);
        fprintf(out, ",\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":", pid);
        zr_json_string(out, n > 1 ? shown[i].name : command);
        fputs("}}", out);
        for (uint32_t t = 0; t < r->threads && t < 1000; t++) {
            fprintf(out, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":", pid,
                    r->thread[t].tid);
            zr_json_string(out, r->thread[t].name);
            fputs("}}", out);
        }
        counters(out, &shown[i], pid);
        events(out, &shown[i], pid);
    }
    fputs("\n]}\n", out);
    return !ferror(out);
}
