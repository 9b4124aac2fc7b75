/*
 * What the program cost in host memory: samples of the launcher against the first of them, and the events for what the
 * program asked for itself. GPUActive counts host and shared USM as well as the mirror. The samples are of the whole
 * machine: another program's memory is in them.
 */
#include "report/report.h"

#include <stdlib.h>

/* Host and shared USM that is live, event by event. */
struct asked {
    const struct zr_record *r;
    uint32_t next;
    size_t implied;
    uint64_t bytes;
};

static bool is_host_side(const struct zr_event *e) {
    return e->kind == ZEROUTE_MEMORY_HOST || e->kind == ZEROUTE_MEMORY_SHARED;
}

static uint64_t asked_at(struct asked *a, uint64_t time) {
    const struct zr_record *r = a->r;

    for (; a->next < r->events && r->event[a->next].time <= time; a->next++) {
        const struct zr_event *e = &r->event[a->next];

        if (a->implied < r->implieds && r->implied[a->implied].at == a->next) {
            const struct zr_event *block = &r->event[r->implied[a->implied++].begin];
            if (block->type == ZEROUTE_EVENT_ALLOC && is_host_side(block))
                a->bytes -= block->size;
        }
        if (e->type == ZEROUTE_EVENT_ALLOC && is_host_side(e))
            a->bytes += e->size;
        else if (e->type == ZEROUTE_EVENT_FREE && e->partner != ZR_NO_EVENT && is_host_side(e))
            a->bytes -= e->size;
    }
    return a->bytes;
}

static uint64_t above(uint64_t x, uint64_t y) {
    return x > y ? x - y : 0;
}

bool zr_host_line_of(const struct zr_record *r, struct zr_host_line *out) {
    struct asked asked = {.r = r};

    *out = (struct zr_host_line){.n = r->hosts, .mirror_known = r->hosts > 0};
    out->lost = calloc(r->hosts + 1, sizeof *out->lost);
    out->mirror = calloc(r->hosts + 1, sizeof *out->mirror);
    if (!out->lost || !out->mirror) {
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
    return true;
}

void zr_host_line_free(struct zr_host_line *line) {
    free(line->lost);
    free(line->mirror);
    *line = (struct zr_host_line){0};
}
