/* The report in a terminal of 80 columns: peak, what was never freed, failures, and the stacks behind them. */
#include "common/common.h"
#include "report/report.h"

#include <stdlib.h>
#include <string.h>

enum { STACK_LINES = 12 };

static const char *size_text(uint64_t bytes) {
    static char text[8][ZR_TEXT_SIZE];
    static unsigned next;
    return zr_text_bytes(text[next++ % 8], bytes);
}
static const char *time_text(uint64_t ns) {
    static char text[8][ZR_TEXT_SIZE];
    static unsigned next;
    return zr_span_text(text[next++ % 8], ns);
}
static const char *share_text(uint64_t part, uint64_t whole) {
    static char text[8][ZR_TEXT_SIZE];
    static unsigned next;
    return zr_share_text(text[next++ % 8], part, whole);
}
static const char *count_text(uint64_t n) {
    static char text[8][ZR_TEXT_SIZE];
    static unsigned next;
    return zr_text_count(text[next++ % 8], n);
}

static void blocks_text(FILE *out, uint64_t bytes, uint64_t blocks) {
    fprintf(out, "%s in %s block%s", size_text(bytes), count_text(blocks), blocks == 1 ? "" : "s");
}

/* --- paths by weight ------------------------------------------------------------------------------------------- */

enum by { PEAK, REFUSED, LEFT, FAILURES };

static const struct zr_profile *ranked; /* for qsort */
static enum by ranked_by;

static uint64_t weight(const struct zr_path_use *u, enum by by) {
    switch (by) {
    case PEAK:
        return u->peak;
    case REFUSED:
        return u->refused;
    case LEFT:
        return u->left;
    default:
        return u->failures;
    }
}
static uint64_t blocks_of(const struct zr_path_use *u, enum by by) {
    switch (by) {
    case PEAK:
        return u->peak_blocks;
    case REFUSED:
        return u->refused_blocks;
    case LEFT:
        return u->left_blocks;
    default:
        return 0;
    }
}
static int by_weight(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    uint64_t x = weight(&ranked->path[i], ranked_by), y = weight(&ranked->path[j], ranked_by);
    return x != y ? (x > y ? -1 : 1) : i < j ? -1 : i > j;
}

/* Paths with a weight, the heaviest first; *n of them. To be freed. */
static uint32_t *heaviest(const struct zr_profile *f, enum by by, size_t *n) {
    uint32_t *order = malloc((f->p->paths + 1u) * sizeof *order);

    *n = 0;
    for (uint32_t i = 0; order && i < f->p->paths; i++)
        if (weight(&f->path[i], by))
            order[(*n)++] = i;
    ranked = f;
    ranked_by = by;
    if (order)
        qsort(order, *n, sizeof *order, by_weight);
    return order;
}

/* A stack, outermost frame first, down to the runtime; of a long one the frames nearest to the allocation. */
static void print_stack(FILE *out, const struct zr_paths *p, uint32_t path) {
    const struct zr_path *x = &p->path[path];
    uint32_t to = zr_path_shown(p, path), from = to > STACK_LINES ? to - STACK_LINES : 0;
    char text[1200];

    if (from)
        fprintf(out, "      ... %u more\n", from);
    for (uint32_t i = from; i < to; i++)
        fprintf(out, "      %.72s\n", zr_shown(zr_frame_text(&p->frame[x->frame[i]], text, sizeof text)));
    if (to < x->frames)
        fprintf(out, "      ... %u more in the runtime\n", x->frames - to);
}

static void print_paths(FILE *out, const struct zr_profile *f, enum by by, unsigned top, const char *title,
                        const char *unit) {
    size_t n;
    uint32_t *order = heaviest(f, by, &n);
    uint64_t all = 0;

    for (size_t i = 0; order && i < n; i++)
        all += weight(&f->path[order[i]], by);
    if (all)
        fprintf(out,
                by == FAILURES ? "\n%s\n%10s  share          called by\n" : "\n%s\n%10s  share  blocks  allocated by\n",
                title, unit);
    for (size_t i = 0; order && all && i < n && i < top; i++) {
        const struct zr_path_use *u = &f->path[order[i]];
        uint64_t value = weight(u, by), blocks = blocks_of(u, by);

        fprintf(out, "%10s %6s %7s  %.52s\n", by == FAILURES ? count_text(value) : size_text(value),
                share_text(value, all), by == FAILURES ? "" : count_text(blocks), zr_shown(f->p->path[order[i]].name));
        if (i < 3)
            print_stack(out, f->p, order[i]);
    }
    if (n > top)
        fprintf(out, "%10s  from %s other stacks; --top N shows more\n", "...", count_text(n - top));
    free(order);
}

/* --- one process -------------------------------------------------------------------------------------------------- */

static void peaks(FILE *out, const struct zr_profile *f) {
    for (size_t i = 0; i < f->n_cards; i++)
        for (unsigned k = 0; k < ZEROUTE_MEMORY_KINDS; k++) {
            const struct zr_level *l = &f->card_kind[f->cards[i]][k];
            uint64_t memory = f->r->card_memory[f->cards[i]];
            char where[32] = "no card";

            if (!l->most_blocks)
                continue;
            if (f->cards[i] != ZEROUTE_RECORD_NO_CARD)
                snprintf(where, sizeof where, "card %u", f->cards[i]);
            fprintf(out, "  %-10s%-10s%11s at %s", where, zr_kind_name(k), size_text(l->most), time_text(l->at));
            if (memory && k == ZEROUTE_MEMORY_DEVICE)
                fprintf(out, ", %s of the card's %s", share_text(l->most, memory), size_text(memory));
            putc('\n', out);
        }
}

static void failures(FILE *out, const struct zr_profile *f, unsigned top) {
    const struct zr_record *r = f->r;
    unsigned shown = 0;

    if (!f->count[ZEROUTE_EVENT_FAIL])
        return;
    fprintf(out, "\nFailures\n%10s %10s  answer\n", "time", "size");
    for (uint32_t i = 0; i < r->events && shown < top; i++) {
        const struct zr_event *e = &r->event[i];
        if (e->type != ZEROUTE_EVENT_FAIL)
            continue;
        fprintf(out, "%10s %10s  %s by %s in %.30s\n", time_text(e->time), e->size ? size_text(e->size) : "-",
                zr_code_name(e->code), zr_refuser_name(e->refuser), zr_shown(zr_record_entry(r, e->entry)));
        shown++;
    }
    if (f->count[ZEROUTE_EVENT_FAIL] > shown)
        fprintf(out, "%10s %s more\n", "...", count_text(f->count[ZEROUTE_EVENT_FAIL] - shown));
}

/* By kind where there are several: the peak counts device, shared and physical memory alone. */
static void never_freed(FILE *out, const struct zr_profile *f, bool ended) {
    unsigned kinds = 0;

    fputs(ended ? "Never freed   " : "Still held    ", out);
    if (!f->left_blocks) {
        fputs("nothing\n", out);
        return;
    }
    blocks_text(out, f->left, f->left_blocks);
    putc('\n', out);
    for (unsigned k = 0; k < ZEROUTE_MEMORY_KINDS; k++)
        kinds += zr_kind_memory(k) && f->kind[k].blocks;
    for (unsigned k = 0; k < ZEROUTE_MEMORY_KINDS && kinds > 1; k++)
        if (zr_kind_memory(k) && f->kind[k].blocks) {
            fprintf(out, "  %-20s%11s in ", zr_kind_name(k), size_text(f->kind[k].bytes));
            fprintf(out, "%s block%s\n", count_text(f->kind[k].blocks), f->kind[k].blocks == 1 ? "" : "s");
        }
}

static void host(FILE *out, const struct zr_record *r) {
    struct zr_host_line line;

    if (!r->hosts || !zr_host_line_of(r, &line))
        return;
    fprintf(out, "Host RAM      %s less available at most", size_text(line.lost_most));
    if (line.mirror_known)
        fprintf(out, ", mirror %s", size_text(line.mirror_most));
    fputs(" (whole machine)\n", out);
    zr_host_line_free(&line);
}

static void refusal(FILE *out, const struct zr_profile *f) {
    if (f->failure_event == ZR_NO_EVENT)
        return;
    const struct zr_event *e = &f->r->event[f->failure_event];
    char where[32] = "";

    if (e->card != ZEROUTE_RECORD_NO_CARD)
        snprintf(where, sizeof where, " on card %u", e->card);
    fprintf(out, "\nRefused       %s%s by %s at %s\n", size_text(e->size), where, zr_refuser_name(e->refuser),
            time_text(e->time));
    fputs("              ", out);
    blocks_text(out, f->refused, f->refused_blocks);
    fputs(" were allocated then", out);
}

static void one(FILE *out, const struct zr_report *s, unsigned top) {
    const struct zr_profile *f = s->profile;
    const struct zr_record *r = s->record;
    char command[512];

    zr_record_command(r, command, sizeof command);
    zr_text_wrap(out, 0, 80, zr_shown(*command ? command : r->path));
    fprintf(out, "%s, ran for %s, %s event%s\n", s->name, time_text(r->duration), count_text(r->events),
            r->events == 1 ? "" : "s");
    for (size_t i = 0; i < s->notes; i++) {
        fputs("  ! ", out);
        zr_text_wrap(out, 4, 80, zr_shown(s->note[i]));
    }
    refusal(out, f);
    fputs("\nPeak          ", out);
    if (f->all.most_blocks) {
        blocks_text(out, f->all.most, f->all.most_blocks);
        fprintf(out, " at %s\n", time_text(f->all.at));
    } else {
        fputs("no device memory was allocated\n", out);
    }
    peaks(out, f);
    if (f->count[ZEROUTE_EVENT_RESERVE])
        fprintf(out, "Reserved      %s at most\n", size_text(f->reserved.most));
    host(out, r);
    never_freed(out, f, r->ended);
    fprintf(out, "Calls         %s allocation%s, %s free%s, %s failure%s\n", count_text(f->count[ZEROUTE_EVENT_ALLOC]),
            f->count[ZEROUTE_EVENT_ALLOC] == 1 ? "" : "s", count_text(f->count[ZEROUTE_EVENT_FREE]),
            f->count[ZEROUTE_EVENT_FREE] == 1 ? "" : "s", count_text(f->count[ZEROUTE_EVENT_FAIL]),
            f->count[ZEROUTE_EVENT_FAIL] == 1 ? "" : "s");
    if (f->count[ZEROUTE_EVENT_TRIM])
        fprintf(out, "Given back    %s of cached memory, %s time%s\n", size_text(f->trimmed),
                count_text(f->count[ZEROUTE_EVENT_TRIM]), f->count[ZEROUTE_EVENT_TRIM] == 1 ? "" : "s");
    print_paths(out, f, REFUSED, top, "Live when the last allocation was refused", "bytes");
    print_paths(out, f, PEAK, top, "Live at the peak", "bytes");
    print_paths(out, f, LEFT, top, r->ended ? "Never freed" : "Live when the record ends", "bytes");
    failures(out, f, top);
    print_paths(out, f, FAILURES, top, "Stacks of failed calls", "failures");
    if (s->remarks)
        putc('\n', out);
    for (size_t i = 0; i < s->remarks; i++) {
        fputs("  ! ", out);
        zr_text_wrap(out, 4, 80, zr_shown(s->remark[i]));
    }
}

/* Each process, then all of them: their peaks come at different times, so what all held at once is less. */
static void side_by_side(FILE *out, const struct zr_report *shown, size_t n) {
    struct zr_table *t =
        zr_table_new("~process", ">peak", ">at joint peak", ">never freed", ">allocations", ">failures", (char *)NULL);
    struct zr_joint j;

    if (!zr_joint_of(shown, n, &j)) {
        zr_table_free(t);
        free(j.then);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const struct zr_profile *f = shown[i].profile;
        zr_table_row(t, shown[i].name, size_text(f->all.most), size_text(j.then[i]), size_text(f->left),
                     count_text(f->count[ZEROUTE_EVENT_ALLOC]), count_text(f->count[ZEROUTE_EVENT_FAIL]));
    }
    zr_table_row(t, "sum", size_text(j.peaks), size_text(j.level.most), size_text(j.left), count_text(j.allocations),
                 count_text(j.failures));
    zr_table_print(t, out, zr_colour(out));
    if (j.level.most_blocks) {
        fputs("Joint peak    ", out);
        blocks_text(out, j.level.most, j.level.most_blocks);
        fprintf(out, " at %s after the first began\n", time_text(j.level.at));
    }
    free(j.then);
    putc('\n', out);
}

bool zr_report_text(FILE *out, const struct zr_report *shown, size_t n, unsigned top) {
    if (n > 1)
        side_by_side(out, shown, n);
    for (size_t i = 0; i < n; i++) {
        if (i)
            fputs("\n", out);
        one(out, &shown[i], top);
    }
    return !ferror(out);
}
