/*
 * Names of paths. A wrapper that allocates for everybody is the caller of every path: the frames that differ tell these
 * paths apart. The paths of one caller are compared from the caller outwards, then inwards, and named by the frames at
 * which they depart from each other.
 */
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not a frame: the outermost one was passed. */
#define OUTSIDE UINT32_MAX

/* The frames of a path in the order in which they are compared. */
static uint32_t compared_length(const struct zr_path *x) {
    return x->frames ? x->frames : 1; /* all but the caller, and OUTSIDE between both directions */
}

static uint32_t compared_frame(const struct zr_path *x, uint32_t i) {
    if (i < x->caller_at)
        return x->frame[x->caller_at - 1 - i];
    if (i == x->caller_at || i >= compared_length(x))
        return OUTSIDE;
    return x->frame[i];
}

static uint32_t common_length(const struct zr_path *x, const struct zr_path *y) {
    uint32_t n = 0, most = compared_length(x);

    if (compared_length(y) < most)
        most = compared_length(y);
    while (n < most && compared_frame(x, n) == compared_frame(y, n))
        n++;
    return n;
}

static const struct zr_path *ranked; /* for qsort */

static int by_caller_and_frames(const void *a, const void *b) {
    const struct zr_path *x = &ranked[*(const uint32_t *)a], *y = &ranked[*(const uint32_t *)b];

    if (x->caller != y->caller)
        return x->caller < y->caller ? -1 : 1;
    uint32_t n = common_length(x, y);
    if (n == compared_length(x) || n == compared_length(y))
        return compared_length(x) < compared_length(y) ? -1 : compared_length(x) > compared_length(y);
    return compared_frame(x, n) < compared_frame(y, n) ? -1 : 1;
}

/* Frames at which a path departs from others of its caller, the nearest to the caller first. */
enum { DEPARTURES = 3 };
struct departures {
    uint32_t at[DEPARTURES]; /* as compared_frame counts */
    uint32_t n;              /* more than DEPARTURES: the last is that of the last one, some are left out before it */
};

static void depart(struct departures *d, uint32_t at) {
    d->at[d->n < DEPARTURES ? d->n : DEPARTURES - 1] = at;
    d->n++;
}

static void append(char *out, size_t size, const char *text) {
    size_t used = strlen(out);

    snprintf(out + used, size - used, "%s%s", used ? " > " : "", text);
}

static void append_frame(char *out, size_t size, const struct zr_paths *p, uint32_t frame) {
    char text[256];

    if (frame != OUTSIDE)
        append(out, size, zr_frame_text(&p->frame[frame], text, sizeof text));
}

/* Outermost frame first, as stacks are printed. NULL without memory. */
static const char *join(struct zr_paths *p, const struct zr_path *x, const struct departures *d) {
    char name[1200] = "";
    uint32_t n = d->n < DEPARTURES ? d->n : DEPARTURES;

    for (uint32_t i = n; i-- > 0;)
        if (d->at[i] < x->caller_at) {
            append_frame(name, sizeof name, p, compared_frame(x, d->at[i]));
            if (i == DEPARTURES - 1 && d->n > DEPARTURES)
                append(name, sizeof name, "...");
        }
    append(name, sizeof name, p->caller[x->caller]);
    for (uint32_t i = 0; i < n; i++)
        if (d->at[i] > x->caller_at) {
            if (i == DEPARTURES - 1 && d->n > DEPARTURES)
                append(name, sizeof name, "...");
            append_frame(name, sizeof name, p, compared_frame(x, d->at[i]));
        }
    return zr_arena_text(p->arena, name, strlen(name));
}

/* Names the paths order[0] to order[n - 1], which have one caller and departed from the others of it at `d`. */
static bool name_some(struct zr_paths *p, const uint32_t *order, uint32_t n, struct departures d) {
    const struct zr_path *first = &p->path[order[0]];
    uint32_t at = common_length(first, &p->path[order[n - 1]]); /* sorted: common to all of them */

    if (n == 1 || at == compared_length(&p->path[order[n - 1]])) {
        const char *name = d.n ? join(p, first, &d) : p->caller[first->caller];
        for (uint32_t i = 0; i < n; i++)
            p->path[order[i]].name = name;
        return name != NULL;
    }
    depart(&d, at);
    bool named = true;
    for (uint32_t i = 0, end; i < n && named; i = end) {
        uint32_t frame = compared_frame(&p->path[order[i]], at);

        for (end = i + 1; end < n && compared_frame(&p->path[order[end]], at) == frame; end++)
            continue;
        named = name_some(p, order + i, end - i, d);
    }
    return named;
}

bool zr_paths_name(struct zr_paths *p) {
    uint32_t *order = malloc((p->paths + 1u) * sizeof *order);

    if (!order)
        return false;
    for (uint32_t i = 0; i < p->paths; i++)
        order[i] = i;
    ranked = p->path;
    qsort(order, p->paths, sizeof *order, by_caller_and_frames);
    bool named = true;
    for (uint32_t i = 0, end; i < p->paths && named; i = end) {
        uint32_t caller = p->path[order[i]].caller;

        for (end = i + 1; end < p->paths && p->path[order[end]].caller == caller; end++)
            continue;
        named = name_some(p, order + i, end - i, (struct departures){.n = 0});
    }
    free(order);
    return named;
}
