/* The report for scripts. */
#include "common/common.h"
#include "report/report.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1, EVENTS_MOST = 1000 };

/* What stacks are listed by: bytes, and how many blocks they are. */
static const struct weight {
    const char *name;
    size_t bytes, blocks;
} weights[] = {
    {"peak_stacks", offsetof(struct zr_path_use, peak), offsetof(struct zr_path_use, peak_blocks)},
    {"refusal_stacks", offsetof(struct zr_path_use, refused), offsetof(struct zr_path_use, refused_blocks)},
    {"never_freed_stacks", offsetof(struct zr_path_use, left), offsetof(struct zr_path_use, left_blocks)},
};

static uint64_t value_at(const struct zr_path_use *use, size_t offset) {
    uint64_t value;

    memcpy(&value, (const char *)use + offset, sizeof value);
    return value;
}

static const struct zr_profile *ranked; /* for qsort */
static const struct weight *ranked_by;
static int by_weight(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    uint64_t v = value_at(&ranked->path[i], ranked_by->bytes), w = value_at(&ranked->path[j], ranked_by->bytes);
    return v != w ? (v > w ? -1 : 1) : i < j ? -1 : i > j;
}

static void frames(json_t *to, const struct zr_paths *p, uint32_t path) {
    json_t *list = zr_json_array(to, "frames");

    for (uint32_t i = 0; i < p->path[path].frames; i++) {
        const struct zr_frame *f = &p->frame[p->path[path].frame[i]];
        json_t *frame = zr_json_object(list, NULL);
        zr_json_text(frame, "name", f->name);
        zr_json_text(frame, "file", f->file);
        if (f->line)
            zr_json_count(frame, "line", f->line);
        zr_json_flag(frame, "python", f->python);
    }
}

static void stacks(json_t *to, const struct weight *by, const struct zr_profile *f, unsigned top) {
    json_t *list = zr_json_array(to, by->name);
    uint32_t *order = malloc((f->p->paths + 1u) * sizeof *order);

    for (uint32_t i = 0; order && i < f->p->paths; i++)
        order[i] = i;
    ranked = f;
    ranked_by = by;
    if (order)
        qsort(order, f->p->paths, sizeof *order, by_weight);
    for (uint32_t i = 0; order && i < f->p->paths && i < top; i++) {
        const struct zr_path_use *u = &f->path[order[i]];
        if (!value_at(u, by->bytes))
            break;
        json_t *stack = zr_json_object(list, NULL);
        zr_json_count(stack, "bytes", value_at(u, by->bytes));
        zr_json_count(stack, "blocks", value_at(u, by->blocks));
        zr_json_count(stack, "allocations", u->allocations);
        zr_json_text(stack, "name", f->p->path[order[i]].name);
        zr_json_text(stack, "caller", f->p->caller[f->p->path[order[i]].caller]);
        frames(stack, f->p, order[i]);
    }
    free(order);
}

static void where(json_t *to, const struct zr_event *e) {
    if (e->card != ZEROUTE_RECORD_NO_CARD)
        zr_json_count(to, "card", e->card);
    zr_json_text(to, "kind", zr_kind_name(e->kind));
}

static void events(json_t *to, const struct zr_profile *f) {
    const struct zr_record *r = f->r;
    json_t *failures = zr_json_array(to, "failures"), *marks = zr_json_array(to, "marks");
    unsigned failed = 0, marked = 0;

    for (uint32_t i = 0; i < r->events; i++) {
        const struct zr_event *e = &r->event[i];
        if (e->type == ZEROUTE_EVENT_FAIL && failed++ < EVENTS_MOST) {
            json_t *x = zr_json_object(failures, NULL);
            zr_json_count(x, "time_ns", e->time);
            zr_json_count(x, "bytes", e->size);
            where(x, e);
            zr_json_text(x, "code", zr_code_name(e->code));
            zr_json_text(x, "refused_by", zr_refuser_name(e->refuser));
            zr_json_text(x, "entry", zr_record_entry(r, e->entry));
            zr_json_text(x, "caller", f->p->caller[f->p->path[f->p->of_stack[e->stack]].caller]);
        } else if (e->type == ZEROUTE_EVENT_MARK && marked++ < EVENTS_MOST) {
            json_t *x = zr_json_object(marks, NULL);
            zr_json_count(x, "time_ns", e->time);
            zr_json_text(x, "text", r->mark[e->aux]);
        }
    }
}

static void sizes(json_t *to, const struct zr_profile *f) {
    static const char *const names[2] = {"driver_latency_ns", "reused_latency_ns"};
    json_t *list = zr_json_array(to, "sizes");

    for (unsigned i = 0; i < ZR_SIZE_CLASSES; i++) {
        const struct zr_class_use *c = &f->size[i];
        if (!c->allocations && !c->failures)
            continue;
        json_t *x = zr_json_object(list, NULL);
        zr_json_text(x, "size", zr_size_class_name(i));
        zr_json_count(x, "allocations", c->allocations);
        zr_json_count(x, "bytes", c->bytes);
        zr_json_count(x, "most_live_bytes", c->level.most);
        zr_json_count(x, "failures", c->failures);
        zr_json_count(x, "reused", c->hits);
        for (unsigned reused = 0; reused < 2; reused++)
            if (c->timed[reused]) {
                json_t *l = zr_json_object(x, names[reused]);
                zr_json_count(l, "calls", c->timed[reused]);
                zr_json_count(l, "median", zr_latency_quantile(c, reused, 0.5));
                zr_json_count(l, "p99", zr_latency_quantile(c, reused, 0.99));
                zr_json_count(l, "longest", c->longest[reused]);
            }
    }
}

static void largest(json_t *to, const struct zr_profile *f, unsigned top) {
    json_t *list = zr_json_array(to, "largest_blocks");

    for (size_t i = 0; i < f->tops && i < top; i++) {
        const struct zr_event *e = &f->r->event[f->top[i]];
        json_t *x = zr_json_object(list, NULL);
        zr_json_count(x, "bytes", e->size);
        where(x, e);
        zr_json_count(x, "allocated_ns", e->time);
        if (e->partner != ZR_NO_EVENT)
            zr_json_count(x, "freed_ns", f->r->event[e->partner].time);
        zr_json_text(x, "caller", f->p->caller[f->p->path[f->p->of_stack[e->stack]].caller]);
    }
}

static void peaks(json_t *to, const struct zr_profile *f) {
    json_t *list = zr_json_array(to, "peaks");

    for (size_t i = 0; i < f->n_cards; i++)
        for (unsigned k = 0; k < ZEROUTE_MEMORY_KINDS; k++) {
            const struct zr_level *l = &f->card_kind[f->cards[i]][k];
            if (!l->most_blocks)
                continue;
            json_t *x = zr_json_object(list, NULL);
            if (f->cards[i] != ZEROUTE_RECORD_NO_CARD)
                zr_json_count(x, "card", f->cards[i]);
            if (f->r->card_memory[f->cards[i]])
                zr_json_count(x, "card_bytes", f->r->card_memory[f->cards[i]]);
            zr_json_text(x, "kind", zr_kind_name(k));
            zr_json_count(x, "bytes", l->most);
            zr_json_count(x, "time_ns", l->at);
            zr_json_count(x, "end_bytes", l->bytes);
        }
}

/* What adds up to the allocations, and to never_freed: the peak counts device, shared and physical memory alone. */
static void kinds(json_t *to, const struct zr_profile *f) {
    json_t *list = zr_json_array(to, "kinds");

    for (unsigned k = 0; k < ZEROUTE_MEMORY_KINDS; k++) {
        if (!f->made[k])
            continue;
        json_t *x = zr_json_object(list, NULL);
        zr_json_text(x, "kind", zr_kind_name(k));
        zr_json_count(x, "allocations", f->made[k]);
        zr_json_count(x, "left_bytes", f->kind[k].bytes);
        zr_json_count(x, "left_blocks", f->kind[k].blocks);
    }
}

/* The whole machine's, sampled by the launcher. */
static void host(json_t *to, const struct zr_record *r) {
    struct zr_host_line line;

    if (!r->hosts || !zr_host_line_of(r, &line))
        return;
    json_t *x = zr_json_object(to, "host");
    zr_json_count(x, "samples", line.n);
    zr_json_count(x, "lost_peak_bytes", line.lost_most);
    if (line.mirror_known)
        zr_json_count(x, "mirror_peak_bytes", line.mirror_most);
    zr_host_line_free(&line);
}

static void refusal(json_t *to, const struct zr_profile *f) {
    if (f->failure_event == ZR_NO_EVENT)
        return;
    const struct zr_event *e = &f->r->event[f->failure_event];
    json_t *x = zr_json_object(to, "refusal");
    zr_json_count(x, "time_ns", e->time);
    zr_json_count(x, "bytes", e->size);
    where(x, e);
    zr_json_text(x, "code", zr_code_name(e->code));
    zr_json_text(x, "refused_by", zr_refuser_name(e->refuser));
    zr_json_count(x, "allocated_bytes", f->refused);
    zr_json_count(x, "allocated_blocks", f->refused_blocks);
}

static void process(json_t *x, const struct zr_report *s, unsigned top) {
    const struct zr_profile *f = s->profile;
    const struct zr_record *r = s->record;
    char command[4096];
    int rank = zr_record_rank(r);

    zr_record_command(r, command, sizeof command);
    zr_json_text(x, "name", s->name);
    zr_json_text(x, "file", r->path);
    zr_json_text(x, "command", command);
    zr_json_count(x, "pid", r->header.pid);
    if (rank >= 0)
        zr_json_count(x, "rank", (uint64_t)rank);
    zr_json_text(x, "run", r->header.run_id);
    zr_json_text(x, "settings", r->text[ZEROUTE_TEXT_SETTINGS]);
    zr_json_count(x, "start_unix_ns", r->header.start_real);
    zr_json_count(x, "duration_ns", r->duration);
    zr_json_flag(x, "ended", r->ended);
    zr_json_count(x, "events", r->events);
    zr_json_count(x, "lost_events", r->header.lost_events);
    json_t *notes = zr_json_array(x, "notes");
    for (size_t i = 0; i < s->notes; i++)
        zr_json_text(notes, NULL, s->note[i]);
    json_t *remarks = zr_json_array(x, "remarks");
    for (size_t i = 0; i < s->remarks; i++)
        zr_json_text(remarks, NULL, s->remark[i]);
    json_t *calls = zr_json_object(x, "counts");
    for (unsigned i = ZEROUTE_EVENT_ALLOC; i < ZEROUTE_EVENTS; i++)
        zr_json_count(calls, zr_event_name(i), f->count[i]);
    json_t *peak = zr_json_object(x, "peak");
    zr_json_count(peak, "bytes", f->all.most);
    zr_json_count(peak, "blocks", f->all.most_blocks);
    zr_json_count(peak, "time_ns", f->all.at);
    json_t *left = zr_json_object(x, "never_freed");
    zr_json_count(left, "bytes", f->left);
    zr_json_count(left, "blocks", f->left_blocks);
    kinds(x, f);
    refusal(x, f);
    host(x, r);
    zr_json_count(x, "reserved_peak_bytes", f->count[ZEROUTE_EVENT_RESERVE] ? f->reserved.most : f->all.most);
    zr_json_count(x, "trimmed_bytes", f->trimmed);
    peaks(x, f);
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        stacks(x, &weights[i], f, top);
    largest(x, f, top);
    sizes(x, f);
    events(x, f);
}

static void joint(json_t *document, const struct zr_report *shown, size_t n) {
    struct zr_joint j;

    if (zr_joint_of(shown, n, &j)) {
        json_t *x = zr_json_object(document, "joint");
        zr_json_count(x, "peaks_bytes", j.peaks);
        zr_json_count(x, "peak_bytes", j.level.most);
        zr_json_count(x, "peak_blocks", j.level.most_blocks);
        zr_json_count(x, "time_ns", j.level.at);
        json_t *then = zr_json_array(x, "at_peak_bytes");
        for (size_t i = 0; i < n; i++)
            zr_json_count(then, NULL, j.then[i]);
    }
    free(j.then);
}

bool zr_report_json(FILE *out, const struct zr_report *shown, size_t n, unsigned top) {
    json_t *document = zr_json_document(FORMAT), *list = zr_json_array(document, "processes");

    for (size_t i = 0; i < n; i++)
        process(zr_json_object(list, NULL), &shown[i], top);
    if (n > 1)
        joint(document, shown, n);
    return zr_json_write(out, document, ZR_JSON_DIGITS, false);
}
