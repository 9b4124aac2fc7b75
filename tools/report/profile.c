/*
 * What a record amounts to, in two passes over the events. The first keeps levels and peaks, and notes for each stretch
 * of the record its highest and its last moment. The second replays the changes and takes down the state at those
 * moments: so no spike is lost, however many events there are.
 */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

static void raise_level(struct zr_level *l, uint64_t bytes, uint64_t time) {
    l->bytes += bytes;
    l->blocks++;
    if (l->bytes > l->most || l->most_blocks == 0) {
        l->most = l->bytes;
        l->most_blocks = l->blocks;
        l->at = time;
    }
}

static void lower_level(struct zr_level *l, uint64_t bytes) {
    l->bytes -= bytes;
    l->blocks--;
}

/* --- changes ------------------------------------------------------------------------------------------------------ */

/* Goes through the events and says which of them begin and end blocks. */
struct walk {
    const struct zr_record *r;
    size_t implied;
};

/* The beginning of what ended because event i handed its address out again; ZR_NO_EVENT: nothing did. */
static uint32_t ended_by(struct walk *w, uint32_t i) {
    if (w->implied < w->r->implieds && w->r->implied[w->implied].at == i)
        return w->r->implied[w->implied++].begin;
    return ZR_NO_EVENT;
}

static bool begins_block(const struct zr_event *e) {
    return e->type == ZEROUTE_EVENT_ALLOC && zr_kind_memory(e->kind);
}
/* A FREE has the size, kind, card and stack of its block. */
static bool ends_block(const struct zr_event *e) {
    return e->type == ZEROUTE_EVENT_FREE && e->partner != ZR_NO_EVENT && zr_kind_memory(e->kind);
}
static bool is_reserve(const struct zr_event *e) {
    return e->type == ZEROUTE_EVENT_RESERVE;
}
static bool is_release(const struct zr_event *e) {
    return e->type == ZEROUTE_EVENT_RELEASE && e->partner != ZR_NO_EVENT;
}

/* --- latencies ---------------------------------------------------------------------------------------------------- */

unsigned zr_latency_bucket(uint32_t ns) {
    if (ns < 4)
        return ns;
    unsigned top = 31 - (unsigned)__builtin_clz(ns);
    return 4 * (top - 1) + (ns >> (top - 2) & 3);
}

uint64_t zr_latency_value(unsigned bucket) {
    if (bucket < 4)
        return bucket;
    unsigned top = bucket / 4 + 1;
    uint64_t width = 1ull << (top - 2);
    return (4 + bucket % 4) * width + width / 2;
}

uint64_t zr_latency_quantile(const struct zr_class_use *c, unsigned reused, double share) {
    uint64_t wanted = (uint64_t)(share * (double)c->timed[reused]), seen = 0;

    for (unsigned i = 0; i < ZR_LATENCIES; i++) {
        seen += c->latency[reused][i];
        if (seen > wanted || (seen == c->timed[reused] && seen)) {
            uint64_t value = zr_latency_value(i);
            return value < c->longest[reused] ? value : c->longest[reused];
        }
    }
    return 0;
}

static void note_latency(struct zr_class_use *c, const struct zr_event *e) {
    unsigned reused = (e->flags & ZEROUTE_FLAG_HIT) != 0;

    if (!e->duration)
        return;
    c->timed[reused]++;
    c->latency[reused][zr_latency_bucket(e->duration)]++;
    if (e->duration > c->longest[reused])
        c->longest[reused] = e->duration;
}

/* --- the first pass ----------------------------------------------------------------------------------------------- */

static void begin_block(struct zr_profile *f, uint32_t i) {
    const struct zr_event *e = &f->r->event[i];
    uint32_t path = f->p->of_stack[e->stack];
    struct zr_path_use *use = &f->path[path];

    use->allocations++;
    use->bytes += e->size;
    f->made[e->kind]++;
    raise_level(&f->kind[e->kind], e->size, e->time);
    raise_level(&f->card_kind[e->card][e->kind], e->size, e->time);
    if (e->partner == ZR_NO_EVENT) {
        use->left += e->size;
        use->left_blocks++;
        f->left += e->size;
        f->left_blocks++;
    }
    if (!zr_kind_allocated(e->kind))
        return;
    struct zr_class_use *size = &f->size[zr_size_class(e->size)];
    size->allocations++;
    size->bytes += e->size;
    size->hits += (e->flags & ZEROUTE_FLAG_HIT) != 0;
    note_latency(size, e);
    raise_level(&f->all, e->size, e->time);
    raise_level(&f->card[e->card], e->size, e->time);
    raise_level(&size->level, e->size, e->time);
    raise_level(&use->level, e->size, e->time);
    raise_level(&f->caller[f->p->path[path].caller], e->size, e->time);
}

static void end_block(struct zr_profile *f, const struct zr_event *e) {
    uint32_t path = f->p->of_stack[e->of];

    lower_level(&f->kind[e->kind], e->size);
    lower_level(&f->card_kind[e->card][e->kind], e->size);
    if (!zr_kind_allocated(e->kind))
        return;
    lower_level(&f->all, e->size);
    lower_level(&f->card[e->card], e->size);
    lower_level(&f->size[zr_size_class(e->size)].level, e->size);
    lower_level(&f->path[path].level, e->size);
    lower_level(&f->caller[f->p->path[path].caller], e->size);
}

/* A heap of the largest blocks, the smallest on top; the earlier of two equal ones. */
static bool larger(const struct zr_profile *f, uint32_t a, uint32_t b) {
    uint64_t x = f->r->event[a].size, y = f->r->event[b].size;
    return x != y ? x > y : a < b;
}

static void keep_if_large(struct zr_profile *f, uint32_t event) {
    size_t i;

    if (f->tops < ZR_TOP_BLOCKS) {
        for (i = f->tops++; i > 0 && larger(f, f->top[(i - 1) / 2], event); i = (i - 1) / 2)
            f->top[i] = f->top[(i - 1) / 2];
        f->top[i] = event;
        return;
    }
    if (!larger(f, event, f->top[0]))
        return;
    for (i = 0;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < f->tops && larger(f, f->top[child], f->top[child + 1]))
            child++;
        if (child >= f->tops || larger(f, f->top[child], event))
            break;
        f->top[i] = f->top[child];
        i = child;
    }
    f->top[i] = event;
}

/* Stretches of the record: equal ones by time, and equal ones by number of events, so that bursts can be zoomed. */
struct stretch {
    uint64_t next_time, step;
    uint32_t next_event, events_each;
    uint32_t highest, first;
    uint64_t most;
    bool open;
};

static void add_sample(struct zr_profile *f, uint32_t event) {
    if (f->samples && f->sample[f->samples - 1].event == event)
        return;
    f->sample[f->samples++] = (struct zr_sample){event, f->r->event[event].time};
}

static void close_stretch(struct zr_profile *f, struct stretch *s, uint32_t last) {
    if (!s->open)
        return;
    add_sample(f, s->highest);
    add_sample(f, last);
    s->open = false;
}

/* Returns whether a stretch begins with this event. */
static bool next_stretch(struct stretch *s, const struct zr_event *e, uint32_t i) {
    if (s->open && e->time < s->next_time && i < s->next_event)
        return false;
    if (e->time >= s->next_time)
        s->next_time = e->time - e->time % s->step + s->step;
    if (i >= s->next_event)
        s->next_event = i + s->events_each;
    return true;
}

/* The state at these events is taken down: the page opens there. */
enum { SAMPLED_FAILURES = 12 };

static bool is_refusal(const struct zr_event *e) {
    return e->type == ZEROUTE_EVENT_FAIL && e->size; /* a free that was refused names no size */
}

static uint32_t last_refusal(const struct zr_record *r) {
    for (uint32_t i = r->events; i-- > 0;)
        if (is_refusal(&r->event[i]))
            return i;
    return ZR_NO_EVENT;
}

static void first_pass(struct zr_profile *f, uint32_t detail) {
    const struct zr_record *r = f->r;
    struct walk w = {r, 0};
    struct stretch s = {.step = r->duration / (detail / 4 + 1) + 1, .events_each = r->events / (detail / 4 + 1) + 1};
    bool cards[256] = {false};
    unsigned refusals = 0;

    if (r->events <= detail)
        s.events_each = 1;
    f->failure_event = last_refusal(r);
    f->peak_event = ZR_NO_EVENT;
    for (uint32_t i = 0; i < r->events; i++) {
        const struct zr_event *e = &r->event[i];
        uint32_t ended = ended_by(&w, i);

        f->count[e->type]++;
        if (next_stretch(&s, e, i)) {
            if (i)
                close_stretch(f, &s, i - 1);
            s.open = true;
            s.most = 0;
            s.highest = i;
        }
        if (ended != ZR_NO_EVENT && r->event[ended].type == ZEROUTE_EVENT_RESERVE)
            lower_level(&f->reserved, r->event[ended].size);
        else if (ended != ZR_NO_EVENT && zr_kind_memory(r->event[ended].kind))
            end_block(f, &r->event[ended]);
        if (begins_block(e)) {
            uint64_t before = f->all.most;
            begin_block(f, i);
            keep_if_large(f, i);
            cards[e->card] = true;
            if (f->all.most > before)
                f->peak_event = i;
        } else if (e->type == ZEROUTE_EVENT_ALLOC) { /* an address range: no memory, and yet a call */
            f->path[f->p->of_stack[e->stack]].allocations++;
        } else if (ends_block(e)) {
            end_block(f, e);
        } else if (is_reserve(e)) {
            raise_level(&f->reserved, e->size, e->time);
        } else if (is_release(e)) {
            lower_level(&f->reserved, e->size);
        } else if (e->type == ZEROUTE_EVENT_FAIL) {
            f->path[f->p->of_stack[e->stack]].failures++;
            if (e->size) /* a free that was refused names none */
                f->size[zr_size_class(e->size)].failures++;
        } else if (e->type == ZEROUTE_EVENT_TRIM) {
            f->trimmed += e->size;
        }
        if (f->all.bytes > s.most) {
            s.most = f->all.bytes;
            s.highest = i;
        }
        if (is_refusal(e) && (refusals++ < SAMPLED_FAILURES || i == f->failure_event))
            close_stretch(f, &s, i);
    }
    if (r->events)
        close_stretch(f, &s, r->events - 1);
    for (unsigned i = 0; i < 256; i++)
        if (cards[i] || (r->card_seen[i] && i != ZEROUTE_RECORD_NO_CARD))
            f->cards[f->n_cards++] = (uint8_t)i;
}

/* --- what comes first --------------------------------------------------------------------------------------------- */

static const struct zr_profile *ranked; /* for qsort */

static int by_most(uint64_t x, uint64_t y, uint32_t a, uint32_t b) {
    return x != y ? (x > y ? -1 : 1) : a < b ? -1 : a > b;
}
static int callers_by_most(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return by_most(ranked->caller[x].most, ranked->caller[y].most, x, y);
}
static int paths_by_most(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return by_most(ranked->path[x].level.most, ranked->path[y].level.most, x, y);
}
static int blocks_by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return by_most(ranked->r->event[x].size, ranked->r->event[y].size, x, y);
}

/* The first `most` of n things in this order that ever had anything live. Returns how many, or SIZE_MAX. */
static size_t rank(uint32_t n, int (*order)(const void *, const void *), uint32_t *to, size_t most,
                   uint64_t (*live)(uint32_t)) {
    uint32_t *all = malloc((n + 1) * sizeof *all);
    size_t found = 0;

    if (!all)
        return SIZE_MAX;
    for (uint32_t i = 0; i < n; i++)
        all[i] = i;
    qsort(all, n, sizeof *all, order);
    while (found < most && found < n && live(all[found])) {
        to[found] = all[found];
        found++;
    }
    free(all);
    return found;
}
static uint64_t live_of_caller(uint32_t i) {
    return ranked->caller[i].most;
}
static uint64_t live_of_path(uint32_t i) {
    return ranked->path[i].level.most;
}

static bool put_in_order(struct zr_profile *f) {
    ranked = f;
    if (f->tops)
        qsort(f->top, f->tops, sizeof *f->top, blocks_by_size);
    f->top_callers = rank(f->p->callers, callers_by_most, f->top_caller, ZR_TOP_CALLERS, live_of_caller);
    f->top_paths = rank(f->p->paths, paths_by_most, f->top_path, ZR_TOP_PATHS, live_of_path);
    return f->top_callers != SIZE_MAX && f->top_paths != SIZE_MAX;
}

/* --- the second pass ---------------------------------------------------------------------------------------------- */

/* What is live, for the gaps in reserved memory: dense arrays, and each event's place in its array. */
struct set {
    uint32_t *event;
    size_t n, room;
};

struct replay {
    struct zr_profile *f;
    uint64_t total, blocks, held;
    uint64_t card[256], kind[ZEROUTE_MEMORY_KINDS], size[ZR_SIZE_CLASSES], caller[ZR_TOP_CALLERS + 1];
    uint64_t path[ZR_TOP_PATHS + 1];
    uint16_t *path_row, *caller_row; /* by index; the last row is that of all others */
    struct set block, reserve;       /* blocks and reserved memory */
    uint32_t *place;
    bool no_memory;
};

static void set_add(struct replay *p, struct set *s, uint32_t event) {
    if (s->n == s->room) {
        size_t want = s->room ? s->room * 2 : 1024;
        uint32_t *more = realloc(s->event, want * sizeof *more);
        if (!more) {
            p->no_memory = true;
            return;
        }
        s->event = more;
        s->room = want;
    }
    p->place[event] = (uint32_t)s->n;
    s->event[s->n++] = event;
}

static void set_drop(struct replay *p, struct set *s, uint32_t event) {
    uint32_t at = p->place[event];

    if (p->no_memory || at >= s->n)
        return;
    s->event[at] = s->event[--s->n];
    p->place[s->event[at]] = at;
}

static void change(struct replay *p, const struct zr_event *e, uint32_t begin, uint64_t sign) {
    struct zr_profile *f = p->f;
    uint32_t path = f->p->of_stack[e->of];

    p->kind[e->kind] += sign * e->size;
    if (!zr_kind_allocated(e->kind))
        return;
    p->total += sign * e->size;
    p->blocks += sign;
    p->card[e->card] += sign * e->size;
    p->size[zr_size_class(e->size)] += sign * e->size;
    p->caller[p->caller_row[f->p->path[path].caller]] += sign * e->size;
    p->path[p->path_row[path]] += sign * e->size;
    if (!p->place || e->kind == ZEROUTE_MEMORY_PHYSICAL)
        return;
    if (sign == 1)
        set_add(p, &p->block, begin);
    else
        set_drop(p, &p->block, begin);
}

static void change_held(struct replay *p, const struct zr_event *e, uint32_t begin, uint64_t sign) {
    p->held += sign * e->size;
    if (!p->place)
        return;
    if (sign == 1)
        set_add(p, &p->reserve, begin);
    else
        set_drop(p, &p->reserve, begin);
}

static void take_down(struct replay *p, uint32_t sample) {
    struct zr_profile *f = p->f;
    uint32_t n = f->samples;

    f->total[sample] = p->total;
    f->blocks[sample] = p->blocks;
    f->held[sample] = p->held;
    for (size_t i = 0; i < f->n_cards; i++)
        f->by_card[i * n + sample] = p->card[f->cards[i]];
    for (size_t i = 0; i < ZEROUTE_MEMORY_KINDS; i++)
        f->by_kind[i * n + sample] = p->kind[i];
    for (size_t i = 0; i < ZR_SIZE_CLASSES; i++)
        f->by_size[i * n + sample] = p->size[i];
    for (size_t i = 0; i <= f->top_callers; i++)
        f->by_caller[i * n + sample] = p->caller[i];
    for (size_t i = 0; i <= f->top_paths; i++)
        f->by_path[i * n + sample] = p->path[i];
}

static bool is_live_at(const struct zr_event *block, uint32_t begun, uint32_t at) {
    return at != ZR_NO_EVENT && begun <= at && (block->partner == ZR_NO_EVENT || block->partner > at);
}

/* Every path's share of the peak, and of what was live at the refusal: those without a row of their own count too. */
static void note_shares(struct zr_profile *f) {
    uint32_t until = f->peak_event;

    if (until == ZR_NO_EVENT || (f->failure_event != ZR_NO_EVENT && f->failure_event > until))
        until = f->failure_event;
    for (uint32_t i = 0; until != ZR_NO_EVENT && i <= until; i++) {
        const struct zr_event *e = &f->r->event[i];
        struct zr_path_use *use = &f->path[f->p->of_stack[e->stack]];

        if (e->type != ZEROUTE_EVENT_ALLOC || !zr_kind_allocated(e->kind))
            continue;
        if (is_live_at(e, i, f->peak_event)) {
            use->peak += e->size;
            use->peak_blocks++;
        }
        if (is_live_at(e, i, f->failure_event)) {
            use->refused += e->size;
            use->refused_blocks++;
            f->refused += e->size;
            f->refused_blocks++;
        }
    }
}

static const struct zr_event *addresses; /* for qsort */
static int by_address(const void *a, const void *b) {
    uint64_t x = addresses[*(const uint32_t *)a].address, y = addresses[*(const uint32_t *)b].address;
    return x < y ? -1 : x > y;
}

static void copy_sorted(uint32_t *to, const struct set *s) {
    if (!s->n)
        return;
    memcpy(to, s->event, s->n * sizeof *to);
    qsort(to, s->n, sizeof *to, by_address);
}

/* Sweeps over copies of both sets in the order of addresses. Blocks outside reserved memory are passed over. */
static void measure_gaps(struct replay *p, uint32_t sample, uint32_t *copy) {
    struct zr_profile *f = p->f;
    const struct zr_event *event = f->r->event;
    uint32_t *reserve = copy, *block = copy + p->reserve.n;
    struct zr_gap *gap = &f->gap[f->gaps];
    size_t next = 0;

    addresses = event;
    copy_sorted(reserve, &p->reserve);
    copy_sorted(block, &p->block);
    *gap = (struct zr_gap){.sample = sample};
    for (size_t i = 0; i < p->reserve.n; i++) {
        uint64_t at = event[reserve[i]].address, end = at + event[reserve[i]].size;

        gap->reserved += event[reserve[i]].size;
        while (next < p->block.n && event[block[next]].address < at)
            next++;
        for (;; next++) {
            bool inside = next < p->block.n && event[block[next]].address < end;
            uint64_t until = inside ? event[block[next]].address : end;

            if (until > at) {
                gap->free += until - at;
                if (until - at > gap->largest)
                    gap->largest = until - at;
            }
            if (!inside)
                break;
            if (event[block[next]].address + event[block[next]].size > at)
                at = event[block[next]].address + event[block[next]].size;
        }
    }
    f->gaps++;
}

/* Gaps are measured at some of the samples: sorting everything that is live takes time. */
enum { GAPS_MOST = 400, GAPS_WORK = 20000000 };

static void second_pass(struct replay *p) {
    struct zr_profile *f = p->f;
    const struct zr_record *r = f->r;
    struct walk w = {r, 0};
    uint32_t next = 0, every = f->samples / GAPS_MOST + 1;
    size_t work = 0;

    for (uint32_t i = 0; i < r->events && !p->no_memory; i++) {
        const struct zr_event *e = &r->event[i];
        uint32_t ended = ended_by(&w, i);

        if (ended != ZR_NO_EVENT && r->event[ended].type == ZEROUTE_EVENT_RESERVE)
            change_held(p, &r->event[ended], ended, (uint64_t)-1);
        else if (ended != ZR_NO_EVENT && zr_kind_memory(r->event[ended].kind))
            change(p, &r->event[ended], ended, (uint64_t)-1);
        if (begins_block(e))
            change(p, e, i, 1);
        else if (ends_block(e))
            change(p, e, e->partner, (uint64_t)-1);
        else if (is_reserve(e))
            change_held(p, e, i, 1);
        else if (is_release(e))
            change_held(p, e, e->partner, (uint64_t)-1);
        if (next >= f->samples || f->sample[next].event != i)
            continue;
        take_down(p, next);
        size_t live = p->block.n + p->reserve.n;
        if (p->place && next % every == 0 && work < GAPS_WORK && !p->no_memory) {
            uint32_t *copy = calloc(live + 1, sizeof *copy);
            if (copy)
                measure_gaps(p, next, copy);
            free(copy);
            work += live * 4;
        }
        next++;
    }
}

static bool replay(struct zr_profile *f) {
    struct replay p = {.f = f};
    size_t n = f->samples + 1u;
    bool apart = f->count[ZEROUTE_EVENT_RESERVE] != 0;

    p.path_row = malloc((f->p->paths + 1) * sizeof *p.path_row);
    p.caller_row = malloc((f->p->callers + 1) * sizeof *p.caller_row);
    p.place = apart ? malloc((f->r->events + 1u) * sizeof *p.place) : NULL;
    f->gap = calloc(GAPS_MOST + 2, sizeof *f->gap);
    f->total = calloc(n, sizeof *f->total);
    f->blocks = calloc(n, sizeof *f->blocks);
    f->held = calloc(n, sizeof *f->held);
    f->by_card = calloc(n * (f->n_cards + 1), sizeof *f->by_card);
    f->by_kind = calloc(n * ZEROUTE_MEMORY_KINDS, sizeof *f->by_kind);
    f->by_size = calloc(n * ZR_SIZE_CLASSES, sizeof *f->by_size);
    f->by_caller = calloc(n * (f->top_callers + 1), sizeof *f->by_caller);
    f->by_path = calloc(n * (f->top_paths + 1), sizeof *f->by_path);
    p.no_memory = !p.path_row || !p.caller_row || (apart && !p.place) || !f->gap || !f->total || !f->blocks ||
                  !f->held || !f->by_card || !f->by_kind || !f->by_size || !f->by_caller || !f->by_path;
    if (!p.no_memory) {
        for (uint32_t i = 0; i < f->p->paths; i++)
            p.path_row[i] = (uint16_t)f->top_paths;
        for (size_t i = 0; i < f->top_paths; i++)
            p.path_row[f->top_path[i]] = (uint16_t)i;
        for (uint32_t i = 0; i < f->p->callers; i++)
            p.caller_row[i] = (uint16_t)f->top_callers;
        for (size_t i = 0; i < f->top_callers; i++)
            p.caller_row[f->top_caller[i]] = (uint16_t)i;
        second_pass(&p);
        note_shares(f);
    }
    free(p.path_row);
    free(p.caller_row);
    free(p.place);
    free(p.block.event);
    free(p.reserve.event);
    return !p.no_memory;
}

struct zr_profile *zr_profile_new(const struct zr_record *r, const struct zr_paths *p, uint32_t detail) {
    struct zr_profile *f = calloc(1, sizeof *f);

    if (!f)
        return NULL;
    f->r = r;
    f->p = p;
    if (detail < 16)
        detail = 16;
    f->path = calloc(p->paths + 1u, sizeof *f->path);
    f->caller = calloc(p->callers + 1u, sizeof *f->caller);
    /* Stretches end at a step of time or of events: about detail / 2 of them, two samples each. */
    f->sample = malloc((2 * (size_t)detail + 64) * sizeof *f->sample);
    if (f->path && f->caller && f->sample) {
        first_pass(f, detail);
        if (put_in_order(f) && replay(f))
            return f;
    }
    zr_profile_free(f);
    return NULL;
}

void zr_profile_free(struct zr_profile *f) {
    if (!f)
        return;
    free(f->path);
    free(f->caller);
    free(f->sample);
    free(f->total);
    free(f->blocks);
    free(f->held);
    free(f->by_card);
    free(f->by_kind);
    free(f->by_size);
    free(f->by_caller);
    free(f->by_path);
    free(f->gap);
    free(f);
}
