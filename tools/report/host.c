/*
 * What the program cost in host memory: samples of the launcher against the first of them, and the events for what the
 * program asked for itself. GPUActive counts host and shared USM as well as the mirror. The samples are of the whole
 * machine: another program's memory is in them.
 */
#include "report/report.h"

#include <stdlib.h>

/* Host and shared USM that is live, as a list of changes in the order of time. */
struct change {
    uint64_t time;
    int64_t bytes;
};
struct asked {
    struct change *change;
    size_t n, next;
    int64_t bytes;
};

static bool is_host_side(const struct zr_event *e) {
    return e->kind == ZEROUTE_MEMORY_HOST || e->kind == ZEROUTE_MEMORY_SHARED;
}

static int by_time(const void *a, const void *b) {
    const struct change *x = a, *y = b;

    return x->time < y->time ? -1 : x->time > y->time;
}

static void add_change(struct asked *a, uint64_t time, uint64_t bytes, bool more) {
    a->change[a->n++] = (struct change){time, more ? (int64_t)bytes : -(int64_t)bytes};
}

/*
 * From the beginning of the call that allocates to the end of the one that frees: the kernel may count the memory
 * meanwhile, and what it counts is not to be taken for a mirror. False without memory.
 */
static bool asked_of(const struct zr_record *r, struct asked *a) {
    size_t implied = 0;
    uint32_t events = r->hosts ? r->events : 0; /* nobody asks where there is no sample */

    *a = (struct asked){.change = calloc(events + r->implieds + 1u, sizeof *a->change)};
    for (uint32_t i = 0; a->change && i < events; i++) {
        const struct zr_event *e = &r->event[i];

        while (implied < r->implieds && r->implied[implied].at == i) {
            const struct zr_event *block = &r->event[r->implied[implied++].begin];
            if (block->type == ZEROUTE_EVENT_ALLOC && is_host_side(block))
                add_change(a, e->time, block->size, false);
        }
        if (e->type == ZEROUTE_EVENT_ALLOC && is_host_side(e))
            add_change(a, e->time > e->duration ? e->time - e->duration : 0, e->size, true);
        else if (e->type == ZEROUTE_EVENT_FREE && e->partner != ZR_NO_EVENT && is_host_side(e))
            add_change(a, e->time + e->duration, e->size, false);
    }
    if (a->change)
        qsort(a->change, a->n, sizeof *a->change, by_time);
    return a->change != NULL;
}

static uint64_t asked_at(struct asked *a, uint64_t time) {
    for (; a->next < a->n && a->change[a->next].time <= time; a->next++)
        a->bytes += a->change[a->next].bytes;
    return a->bytes > 0 ? (uint64_t)a->bytes : 0;
}

static uint64_t above(uint64_t x, uint64_t y) {
    return x > y ? x - y : 0;
}

bool zr_host_line_of(const struct zr_record *r, struct zr_host_line *out) {
    struct asked asked;
    bool enough = asked_of(r, &asked);

    *out = (struct zr_host_line){.n = r->hosts, .mirror_known = r->hosts > 0};
    out->lost = calloc(r->hosts + 1, sizeof *out->lost);
    out->mirror = calloc(r->hosts + 1, sizeof *out->mirror);
    if (!enough || !out->lost || !out->mirror) {
        free(asked.change);
        zr_host_line_free(out);
        return false;
    }
    for (size_t i = 0; i < r->hosts; i++) {
        const struct zr_host_sample *now = &r->host[i], *start = &r->host[0];

        out->lost[i] = above(start->available, now->available);
        out->mirror_known = out->mirror_known && now->gpu_active != UINT64_MAX;
        if (out->mirror_known)
            out->mirror[i] = above(above(now->gpu_active, start->gpu_active), asked_at(&asked, now->time));
        if (out->lost[i] > out->lost_most)
            out->lost_most = out->lost[i];
        if (out->mirror[i] > out->mirror_most)
            out->mirror_most = out->mirror[i];
    }
    free(asked.change);
    return true;
}

void zr_host_line_free(struct zr_host_line *line) {
    free(line->lost);
    free(line->mirror);
    *line = (struct zr_host_line){0};
}
