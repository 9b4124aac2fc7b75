/*
 * Several processes at once: their events in one order of time, by a heap of one place per process. What they had in
 * use at the same moment is less than the sum of their peaks, and is what a card must hold.
 */
#include "report/report.h"

#include <stdlib.h>

/* The next event of each process; the earliest is on top. */
struct place {
    uint64_t time;
    size_t process;
    uint32_t next;
    size_t implied;
};

static bool earlier(const struct place *a, const struct place *b) {
    return a->time != b->time ? a->time < b->time : a->process < b->process;
}

static void sift_down(struct place *heap, size_t n, size_t i) {
    for (;;) {
        size_t child = 2 * i + 1;

        if (child + 1 < n && earlier(&heap[child + 1], &heap[child]))
            child++;
        if (child >= n || earlier(&heap[i], &heap[child]))
            return;
        struct place swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
        i = child;
    }
}

static void begin(struct zr_joint *j, uint64_t *now, const struct zr_event *block) {
    j->level.bytes += block->size;
    j->level.blocks++;
    *now += block->size;
}

static void end(struct zr_joint *j, uint64_t *now, const struct zr_event *block) {
    j->level.bytes -= block->size;
    j->level.blocks--;
    *now -= block->size;
}

/* One event of one process. */
static void step(struct zr_joint *j, const struct zr_record *r, struct place *at, uint64_t *now) {
    const struct zr_event *e = &r->event[at->next];

    if (at->implied < r->implieds && r->implied[at->implied].at == at->next) {
        const struct zr_event *block = &r->event[r->implied[at->implied++].begin];
        if (block->type == ZEROUTE_EVENT_ALLOC && zr_kind_allocated(block->kind))
            end(j, now, block);
    }
    if (e->type == ZEROUTE_EVENT_ALLOC && zr_kind_allocated(e->kind))
        begin(j, now, e);
    else if (e->type == ZEROUTE_EVENT_FREE && e->partner != ZR_NO_EVENT && zr_kind_allocated(e->kind))
        end(j, now, e);
}

static void add_sums(struct zr_joint *j, const struct zr_profile *f) {
    j->peaks += f->all.most;
    j->left += f->left;
    j->left_blocks += f->left_blocks;
    j->allocations += f->count[ZEROUTE_EVENT_ALLOC];
    j->failures += f->count[ZEROUTE_EVENT_FAIL];
}

static void note_shares(struct zr_joint *j, const uint64_t *now, size_t processes) {
    for (size_t i = 0; i < processes; i++)
        j->then[i] = now[i];
}

/* The shares of the processes are noted when a peak is left, not at every step up to it. */
static void walk(const struct zr_report *shown, struct zr_joint *j, struct place *heap, size_t n, uint64_t *now,
                 size_t processes) {
    bool at_peak = false;

    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
    while (n) {
        struct place *top = &heap[0];
        const struct zr_record *r = shown[top->process].record;

        if (at_peak && (r->event[top->next].type != ZEROUTE_EVENT_ALLOC || top->implied < r->implieds)) {
            note_shares(j, now, processes);
            at_peak = false;
        }
        step(j, r, top, &now[top->process]);
        if (j->level.bytes > j->level.most) {
            j->level.most = j->level.bytes;
            j->level.most_blocks = j->level.blocks;
            j->level.at = top->time;
            at_peak = true;
        }
        if (++top->next < r->events)
            top->time = shown[top->process].offset + r->event[top->next].time;
        else
            heap[0] = heap[--n];
        sift_down(heap, n, 0);
    }
    if (at_peak)
        note_shares(j, now, processes);
}

bool zr_joint_of(const struct zr_report *shown, size_t n, struct zr_joint *out) {
    struct place *heap = calloc(n + 1, sizeof *heap);
    uint64_t *now = calloc(n + 1, sizeof *now);
    size_t running = 0;

    *out = (struct zr_joint){.then = calloc(n + 1, sizeof *out->then)};
    bool ok = heap && now && out->then;
    for (size_t i = 0; i < n && ok; i++) {
        const struct zr_record *r = shown[i].record;

        add_sums(out, shown[i].profile);
        if (r->events)
            heap[running++] = (struct place){.time = shown[i].offset + r->event[0].time, .process = i};
    }
    if (ok)
        walk(shown, out, heap, running, now, n);
    free(heap);
    free(now);
    return ok;
}
