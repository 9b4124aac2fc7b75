/* A record as steps that an allocator can take, and what the allocator of the recorded run did with them. */
#include "replay/replay.h"
#include "report/report.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_MOVED = 4096 };

/* A pipe is none, and is not read: what it brings is for whoever reads it next. */
bool zr_is_record(const char *path) {
    uint64_t magic = 0;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return false;
    bool is = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && pread(fd, &magic, sizeof magic, 0) == sizeof magic &&
              magic == ZEROUTE_RECORD_MAGIC;
    close(fd);
    return is;
}

/* Reserved memory is what RESERVE and RELEASE say, or where nothing was cached what ALLOC and FREE say. */
static void count(const struct zr_record *r, const struct zr_event *e, uint64_t *reserved, struct zr_outcome *o) {
    bool same = r->header.flags & ZEROUTE_RECORD_RESERVED_SAME;
    bool gets =
        e->type == (same ? ZEROUTE_EVENT_ALLOC : ZEROUTE_EVENT_RESERVE) || (same && e->type == ZEROUTE_EVENT_BACK);
    bool gives = e->type == (same ? ZEROUTE_EVENT_FREE : ZEROUTE_EVENT_RELEASE) && e->partner != ZR_NO_EVENT;

    if (e->type == ZEROUTE_EVENT_FAIL)
        o->refused += e->refuser == ZEROUTE_REFUSED_BY_LIMIT;
    if (e->type == ZEROUTE_EVENT_ALLOC && e->kind == ZEROUTE_MEMORY_DEVICE)
        o->hits += e->flags & ZEROUTE_FLAG_HIT ? 1 : 0;
    if ((!gets && !gives) || !zr_kind_allocated(e->kind))
        return;
    if (e->kind == ZEROUTE_MEMORY_DEVICE)
        o->driver_calls++;
    *reserved = gets ? *reserved + e->size : *reserved > e->size ? *reserved - e->size : 0;
    if (*reserved > o->peak_reserved)
        o->peak_reserved = *reserved;
}

/*
 * A TRIM is noted when it is over, and the memory went at the RELEASEs of its thread before it: the step is taken where
 * these begin. No further back than MOST_MOVED steps, whatever a file says.
 */
static void move_back(struct zr_recorded *to, size_t at) {
    struct zr_step trim = to->step[to->steps];

    if (to->steps - at > MOST_MOVED)
        at = to->steps - MOST_MOVED;
    memmove(&to->step[at + 1], &to->step[at], (to->steps - at) * sizeof trim);
    to->step[at] = trim;
}

/* Slots: the index of the ALLOC. released: where the RELEASEs of its thread just before it began. */
static void add(struct zr_recorded *to, const struct zr_record *r, uint32_t i, size_t released) {
    const struct zr_event *e = &r->event[i];
    struct zr_step *s = &to->step[to->steps];

    *s = (struct zr_step){.ms = (uint32_t)(e->time / 1000000),
                          .slot = i,
                          .bytes = e->size,
                          .context = e->aux,
                          .card = e->card < ZR_REPLAY_CARDS ? e->card : 0,
                          .is_device = e->kind == ZEROUTE_MEMORY_DEVICE,
                          .is_piece = (e->flags & ZEROUTE_FLAG_PIECE) != 0};
    switch (e->type) {
    case ZEROUTE_EVENT_ALLOC:
        if (!zr_kind_allocated(e->kind))
            return;
        s->op = ZR_STEP_ALLOC;
        s->may_cache = e->flags & ZEROUTE_FLAG_CACHED;
        to->pieces |= s->is_piece;
        break;
    case ZEROUTE_EVENT_FREE:
        if (e->partner == ZR_NO_EVENT || !zr_kind_allocated(e->kind))
            return;
        s->op = ZR_STEP_FREE;
        s->may_cache = e->flags & ZEROUTE_FLAG_CACHED;
        s->slot = e->partner;
        break;
    case ZEROUTE_EVENT_TRIM:
        if (e->code)
            return; /* memory was short: that depends on the settings */
        s->op = ZR_STEP_TRIM;
        s->card = e->card;
        move_back(to, released);
        break;
    case ZEROUTE_EVENT_CONTEXT_GO:
        s->op = ZR_STEP_CONTEXT_GO;
        s->context = e->address;
        break;
    case ZEROUTE_EVENT_RESIDENT:
    case ZEROUTE_EVENT_EVICT:
        if (e->partner == ZR_NO_EVENT || e->code)
            return;
        s->op = e->type == ZEROUTE_EVENT_RESIDENT ? ZR_STEP_RESIDENT : ZR_STEP_EVICT;
        s->slot = e->partner;
        break;
    default:
        return;
    }
    to->steps++;
}

bool zr_recorded_load(struct zr_recorded *to, const char *path, char *why, size_t size) {
    struct zr_record *r = zr_record_load(path, why, size);
    uint64_t reserved = 0;
    struct run {
        size_t from;
        bool is_on;
    } *run = NULL;

    *to = (struct zr_recorded){0};
    if (!r)
        return false;
    to->step = calloc((size_t)r->events + 1, sizeof *to->step);
    run = calloc(UINT16_MAX + 1, sizeof *run); /* by thread */
    if (!to->step || !run || !zr_record_pair(r)) {
        snprintf(why, size, "out of memory");
        free(run);
        zr_record_free(r);
        return false;
    }
    to->slots = r->events;
    for (uint32_t i = 0; i < r->events; i++) {
        struct run *of = &run[r->event[i].thread];

        count(r, &r->event[i], &reserved, &to->recorded);
        if (!of->is_on)
            of->from = to->steps;
        of->is_on = r->event[i].type == ZEROUTE_EVENT_RELEASE;
        add(to, r, i, of->from);
    }
    for (unsigned i = 0; i < ZR_REPLAY_CARDS; i++)
        to->card_memory[i] = r->card_memory[i];
    if (r->text[ZEROUTE_TEXT_SETTINGS])
        snprintf(to->settings, sizeof to->settings, "%s", r->text[ZEROUTE_TEXT_SETTINGS]);
    free(run);
    to->lost = r->header.lost_events + r->damaged;
    zr_record_free(r);
    if (!to->steps)
        snprintf(why, size, "no allocations are in it");
    return to->steps != 0;
}

void zr_recorded_free(struct zr_recorded *r) {
    free(r->step);
    r->step = NULL;
}
