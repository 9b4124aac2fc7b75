/*
 * A program that a command has started, watched from outside while it runs: what it makes the host hold is known of one
 * that never calls, too, and at its peak. Host memory is read ten times a second; processes as often as that takes no
 * more than a fiftieth of the time.
 */
#include "view/view.h"

#include <stdlib.h>
#include <time.h>

/* The share of the time that looks may take; the first ones come ten times a second unless they are dear. */
enum { SHARE = 50, EVERY_TIME = 20, DEAR_NS = 20000000, LEAST_NS = (ZR_WATCHED_MS - 10) * 1000000, LOOKS_ENOUGH = 20 };

void zr_watched_begin(struct zr_watched *w, const char *run) {
    *w = (struct zr_watched){.least_available = ZR_ABSENT};
    if (!zr_meminfo_read(&w->before))
        w->before = (struct zr_meminfo){ZR_ABSENT, ZR_ABSENT, ZR_ABSENT, ZR_ABSENT, ZR_ABSENT};
    w->view = zr_view_new(&(struct zr_scope){.run = run, .before = &w->before, .history_ns = 1000000000});
}

static void note(struct zr_watched_figure *f, uint64_t value) {
    if (value == ZR_ABSENT)
        return;
    f->known = true;
    f->samples++;
    f->sum += (double)value;
    f->peak = value > f->peak ? value : f->peak;
}

static void note_processes(struct zr_watched *w) {
    uint64_t mirror = 0, unseen = 0, held = 0, spilled = 0;
    bool told = false;

    for (size_t i = 0; i < w->view->process_count; i++) {
        const struct zr_process_view *v = w->view->process[i];
        told |= v->mirror != ZR_ABSENT;
        mirror += v->mirror == ZR_ABSENT ? 0 : v->mirror;
        unseen += v->unseen;
        held += v->allocated;
        spilled += v->spilled;
    }
    if (!w->view->process_count)
        return;
    if (told)
        note(&w->mirror, mirror);
    note(&w->unseen, unseen);
    note(&w->held, held);
    w->spilled = spilled > w->spilled ? spilled : w->spilled;
    for (unsigned i = 0; i < w->view->card_count; i++) {
        const struct zr_card_view *card = &w->view->card[i];

        if (zr_card_is_full(card))
            w->full |= 1u << i;
        if (card->ours && zr_card_percent(card) > w->percent)
            w->percent = zr_card_percent(card);
    }
}

/* A simulated machine begins with its first program: nothing was held before. */
static struct zr_meminfo at_birth(struct zr_meminfo host) {
    if (host.gpu_active != ZR_ABSENT && host.available != ZR_ABSENT) {
        host.available += host.gpu_active;
        host.gpu_active = 0;
    }
    return host;
}

void zr_watched_sample(struct zr_watched *w) {
    struct zr_meminfo host;
    uint64_t began = zr_clock_ns();

    if (zr_meminfo_read(&host)) {
        if (w->before.available == ZR_ABSENT)
            w->before = at_birth(host);
        note(&w->active, host.gpu_active);
        w->least_available = host.available < w->least_available ? host.available : w->least_available;
    }
    if (!w->view || began < w->next_look || !zr_view_sample(w->view))
        return;
    note_processes(w);
    uint64_t took = zr_clock_ns() - began;
    uint64_t pause = w->view->samples > EVERY_TIME || took > DEAR_NS ? took * SHARE : 0;
    w->next_look = began + (pause > LEAST_NS ? pause : LEAST_NS);
}

bool zr_watched_wait(struct zr_watched *w, struct zr_program *p) {
    bool ended = false;

    while (!ended) {
        zr_watched_sample(w);
        ended = zr_spawn_wait(p, ZR_WATCHED_MS, -1);
    }
    return ended;
}

uint64_t zr_watched_mirror(const struct zr_watched *w, uint64_t asked, bool *at_least) {
    enum { TOO_LITTLE = 1 << 20 };
    uint64_t risen = 0;

    *at_least = false;
    if (w->active.known && w->before.gpu_active != ZR_ABSENT && w->active.peak > w->before.gpu_active + asked)
        risen = w->active.peak - w->before.gpu_active - asked;
    if (w->mirror.samples < LOOKS_ENOUGH && risen > w->mirror.peak + TOO_LITTLE) {
        *at_least = true;
        return risen;
    }
    return w->mirror.known ? w->mirror.peak : ZR_ABSENT;
}

bool zr_watched_is_brief(const struct zr_watched *w) {
    return w->view && w->view->samples < LOOKS_ENOUGH;
}

uint64_t zr_watched_mean(const struct zr_watched_figure *f) {
    return f->samples ? (uint64_t)(f->sum / f->samples) : ZR_ABSENT;
}

void zr_watched_end(struct zr_watched *w) {
    zr_view_free(w->view);
    w->view = NULL;
}

void zr_watched_json(json_t *object, const struct zr_watched *w, uint64_t asked) {
    static const struct {
        const char *peak, *mean;
        size_t offset;
    } part[] = {
        {"gpu_active_peak_bytes", "gpu_active_mean_bytes", offsetof(struct zr_watched, active)},
        {"unseen_peak_bytes", "unseen_mean_bytes", offsetof(struct zr_watched, unseen)},
        {"allocated_peak_bytes", "allocated_mean_bytes", offsetof(struct zr_watched, held)},
    };
    json_t *o = zr_json_object(object, "watched");
    bool at_least;

    zr_json_amount(o, "gpu_active_start_bytes", w->before.gpu_active);
    zr_json_amount(o, "mem_available_start_bytes", w->before.available);
    zr_json_amount(o, "mem_available_least_bytes", w->least_available);
    zr_json_amount(o, "mirror_peak_bytes", zr_watched_mirror(w, asked, &at_least));
    zr_json_amount(o, "mirror_mean_bytes", zr_watched_mean(&w->mirror));
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        const struct zr_watched_figure *f =
            (const struct zr_watched_figure *)(const void *)((const char *)w + part[i].offset);
        zr_json_amount(o, part[i].peak, f->known ? f->peak : ZR_ABSENT);
        zr_json_amount(o, part[i].mean, zr_watched_mean(f));
    }
}
