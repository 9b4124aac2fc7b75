/*
 * What differs between two records, stack by stack. Stacks of both are the same where their functions and files are:
 * lines are left out, because a change of the program moves them.
 */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

/* A path of one of the records, and the text by which it is found in the other. */
struct side {
    const char *key;
    const struct zr_report *of;
    uint32_t path;
    bool is_new;
};

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "name\nfile\n" of each frame. NULL without memory. */
static const char *key_of(struct zr_arena *arena, const struct zr_paths *p, uint32_t path) {
    const struct zr_path *x = &p->path[path];
    size_t size = 0;

    for (uint32_t i = 0; i < x->frames; i++) {
        const struct zr_frame *f = &p->frame[x->frame[i]];
        size += strlen(f->name) + strlen(base_name(f->file)) + 2;
    }
    char *key = zr_arena_get(arena, size + 1), *to = key;
    if (!key)
        return NULL;
    for (uint32_t i = 0; i < x->frames; i++) {
        const struct zr_frame *f = &p->frame[x->frame[i]];
        to = stpcpy(stpcpy(to, f->name), "\n");
        to = stpcpy(stpcpy(to, base_name(f->file)), "\n");
    }
    *to = '\0';
    return key;
}

static bool add_sides(struct zr_arena *arena, struct side *side, size_t *n, const struct zr_report *of, bool is_new) {
    for (uint32_t i = 0; i < of->paths->paths; i++) {
        const char *key = key_of(arena, of->paths, i);

        if (!key)
            return false;
        side[(*n)++] = (struct side){key, of, i, is_new};
    }
    return true;
}

/* New before old, so that a stack of both has the lines of the new one. */
static int by_key(const void *a, const void *b) {
    const struct side *x = a, *y = b;
    int order = strcmp(x->key, y->key);

    if (order)
        return order;
    if (x->is_new != y->is_new)
        return x->is_new ? -1 : 1;
    return x->path < y->path ? -1 : x->path > y->path;
}

static void add_use(uint64_t *to, const struct zr_path_use *u) {
    to[ZR_BY_PEAK] += u->peak;
    to[ZR_BY_LEFT] += u->left;
    to[ZR_BY_ALLOCATIONS] += u->allocations;
    to[ZR_BY_BYTES] += u->bytes;
    to[ZR_BY_FAILURES] += u->failures;
}

struct zr_diff *zr_diff_new(const struct zr_report *was, const struct zr_report *is) {
    size_t n = (size_t)was->paths->paths + is->paths->paths, sides = 0;
    struct zr_diff *d = calloc(1, sizeof *d);
    struct side *side = malloc((n + 1) * sizeof *side);
    bool ok = d && side;

    if (ok) {
        d->arena = zr_arena_new();
        d->row = calloc(n + 1, sizeof *d->row);
        ok = d->arena && d->row && add_sides(d->arena, side, &sides, was, false) &&
             add_sides(d->arena, side, &sides, is, true);
    }
    if (ok)
        qsort(side, sides, sizeof *side, by_key);
    for (size_t i = 0; i < sides && ok; i++) {
        if (i == 0 || strcmp(side[i].key, side[i - 1].key) != 0)
            d->row[d->rows++] = (struct zr_diff_row){.paths = side[i].of->paths, .path = side[i].path};
        struct zr_diff_row *row = &d->row[d->rows - 1];
        add_use(side[i].is_new ? row->is : row->was, &side[i].of->profile->path[side[i].path]);
    }
    free(side);
    if (ok)
        return d;
    zr_diff_free(d);
    return NULL;
}

void zr_diff_free(struct zr_diff *d) {
    if (!d)
        return;
    if (d->arena)
        zr_arena_free(d->arena);
    free(d->row);
    free(d);
}

/* --- rows by change ----------------------------------------------------------------------------------------------- */

const char *zr_diff_weight_name(enum zr_diff_weight by) {
    static const char *const names[ZR_DIFF_WEIGHTS] = {"peak", "left", "allocations", "bytes", "failures"};
    return names[by];
}

static const struct zr_diff *ranked; /* for qsort */
static enum zr_diff_weight ranked_by;

static uint64_t change_of(const struct zr_diff_row *r, enum zr_diff_weight by) {
    return r->is[by] > r->was[by] ? r->is[by] - r->was[by] : r->was[by] - r->is[by];
}

/* Stacks that grew come first, the largest growth first; then those that shrank. */
static int by_change(const void *a, const void *b) {
    const struct zr_diff_row *x = &ranked->row[*(const uint32_t *)a], *y = &ranked->row[*(const uint32_t *)b];
    bool x_grew = x->is[ranked_by] > x->was[ranked_by], y_grew = y->is[ranked_by] > y->was[ranked_by];
    uint64_t v = change_of(x, ranked_by), w = change_of(y, ranked_by);

    if (x_grew != y_grew)
        return x_grew ? -1 : 1;
    if (v != w)
        return v > w ? -1 : 1;
    return x < y ? -1 : x > y;
}

uint32_t *zr_diff_order(const struct zr_diff *d, enum zr_diff_weight by, size_t *n) {
    uint32_t *order = malloc((d->rows + 1u) * sizeof *order);

    *n = 0;
    for (uint32_t i = 0; order && i < d->rows; i++)
        if (change_of(&d->row[i], by))
            order[(*n)++] = i;
    ranked = d;
    ranked_by = by;
    if (order)
        qsort(order, *n, sizeof *order, by_change);
    return order;
}
