/*
 * The snapshot that PyTorch's memory viewer opens: a pickle (protocol 4) of segments, blocks and a trace per device.
 * What the driver gave is a segment, what the program got a block in it; without a cache of ours both are the same. The
 * viewer reads the trace backwards from the segments at the end, so every block must lie in a segment that lives at
 * least as long.
 */
#include "common/common.h"
#include "report/report.h"

#include <level_zero/ze_api.h>
#include <stdlib.h>
#include <string.h>

enum {
    ENTRIES_MOST = 1000000, /* the last ones: the viewer holds every entry */
    BATCH = 1000,           /* elements of a list at a time, as the viewer's unpickler expects */
    BASES_WALKED = 64
};

/* Numbers in the viewer are exact up to 53 bits: the sign extension of an address is left out. */
static uint64_t viewed(uint64_t address) {
    return address & ((1ull << 52) - 1);
}

/* --- pickle ------------------------------------------------------------------------------------------------------ */

struct pickle {
    FILE *out;
    uint32_t memo;       /* how many things are remembered */
    uint32_t *of_frames; /* memo + 1 of the frames of a path */
    struct {
        const char *text;
        uint32_t memo;
    } word[64]; /* keys and names that come again and again */
    size_t words;
    unsigned in_batch;
};

static void put_little(const struct pickle *p, uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++)
        putc((int)(value >> 8 * i & 255), p->out);
}

static void put_number(const struct pickle *p, uint64_t n) {
    unsigned bytes = 1;

    if (n < 256) {
        putc('K', p->out);
        put_little(p, n, 1);
    } else if (n < 65536) {
        putc('M', p->out);
        put_little(p, n, 2);
    } else if (n <= INT32_MAX) {
        putc('J', p->out);
        put_little(p, n, 4);
    } else {
        while (bytes < 8 && n >> (8 * bytes - 1))
            bytes++;
        putc(0x8a, p->out);
        putc((int)bytes, p->out);
        put_little(p, n & INT64_MAX, bytes);
    }
}

static void remember(struct pickle *p) {
    putc(0x94, p->out);
    p->memo++;
}

static void recall(const struct pickle *p, uint32_t memo) {
    putc(memo < 256 ? 'h' : 'j', p->out);
    put_little(p, memo, memo < 256 ? 1 : 4);
}

static void put_text(const struct pickle *p, const char *text) {
    char *harmless = zr_harmless(text, ZR_FOR_JSON);
    size_t size = harmless ? strlen(harmless) : 0;

    putc(size < 256 ? 0x8c : 'X', p->out);
    put_little(p, size, size < 256 ? 1 : 4);
    fwrite(harmless, 1, size, p->out);
    free(harmless);
}

/* A constant text: written once, then referred to. */
static void put_word(struct pickle *p, const char *text) {
    for (size_t i = 0; i < p->words; i++)
        if (p->word[i].text == text || strcmp(p->word[i].text, text) == 0) {
            recall(p, p->word[i].memo);
            return;
        }
    put_text(p, text);
    if (p->words < sizeof p->word / sizeof *p->word) {
        p->word[p->words].text = text;
        p->word[p->words++].memo = p->memo;
        remember(p);
    }
}

static void dict(struct pickle *p) {
    fputs("}(", p->out);
}
static void end_dict(struct pickle *p) {
    putc('u', p->out);
}
static void item(struct pickle *p, const char *key, uint64_t n) {
    put_word(p, key);
    put_number(p, n);
}
static void item_word(struct pickle *p, const char *key, const char *word) {
    put_word(p, key);
    put_word(p, word);
}

/* Lists do not nest while a batch is counted: only the outer one, of many elements, is. */
static void list(struct pickle *p) {
    fputs("](", p->out);
    p->in_batch = 0;
}
static void end_element(struct pickle *p) {
    if (++p->in_batch == BATCH) {
        fputs("e(", p->out);
        p->in_batch = 0;
    }
}
static void end_list(struct pickle *p) {
    putc('e', p->out);
}

/* Innermost frame first, as PyTorch has them. */
static void frames(struct pickle *p, const struct zr_paths *paths, uint32_t path) {
    const struct zr_path *x = &paths->path[path];

    put_word(p, "frames");
    if (p->of_frames[path]) {
        recall(p, p->of_frames[path] - 1);
        return;
    }
    putc(']', p->out);
    p->of_frames[path] = p->memo + 1;
    remember(p);
    putc('(', p->out);
    for (uint32_t i = x->frames; i-- > 0;) {
        const struct zr_frame *f = &paths->frame[x->frame[i]];
        dict(p);
        put_word(p, "filename");
        put_text(p, *f->file ? f->file : "??");
        item(p, "line", f->line);
        put_word(p, "name");
        put_text(p, f->name);
        end_dict(p);
    }
    putc('e', p->out);
}

/* --- which segment holds a block ---------------------------------------------------------------------------------- */

struct segments {
    const struct zr_record *r;
    uint32_t *reserve; /* RESERVE events by address, then by number */
    size_t n;
};

static const struct zr_event *compared; /* for qsort */
static int by_address(const void *a, const void *b) {
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    uint64_t x = compared[i].address, y = compared[j].address;
    return x != y ? (x < y ? -1 : 1) : i < j ? -1 : i > j;
}

/* How many RESERVE events are at a lower address, or at this one and not later than event i. */
static size_t before(const struct segments *s, uint64_t address, uint32_t i) {
    size_t low = 0, high = s->n;

    while (low < high) {
        size_t middle = (low + high) / 2;
        uint32_t e = s->reserve[middle];
        uint64_t x = s->r->event[e].address;
        if (x < address || (x == address && e <= i))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The RESERVE event that holds the block of ALLOC event i for as long as the block lives; ZR_NO_EVENT: none. */
static uint32_t holder(const struct segments *s, uint32_t i) {
    const struct zr_event *event = s->r->event, *block = &event[i];
    uint64_t base = block->address;

    for (unsigned walked = 0; walked < BASES_WALKED; walked++) {
        size_t at = before(s, base, i);

        if (at == 0)
            return ZR_NO_EVENT;
        uint32_t e = s->reserve[at - 1];
        if (event[e].address != base) { /* the next base below; there, the latest that is not later than i */
            base = event[e].address;
            continue;
        }
        if (e <= i && event[e].size >= block->size && block->address - base <= event[e].size - block->size &&
            event[e].partner > i && event[e].partner >= block->partner)
            return e;
        if (base == 0)
            return ZR_NO_EVENT;
        at = before(s, base - 1, UINT32_MAX);
        if (at == 0)
            return ZR_NO_EVENT;
        base = event[s->reserve[at - 1]].address;
    }
    return ZR_NO_EVENT;
}

/* --- the trace ---------------------------------------------------------------------------------------------------- */

struct snapshot {
    struct pickle p;
    const struct zr_record *r;
    const struct zr_paths *paths;
    struct segments segments;
    uint64_t live[256]; /* allocated bytes by card */
};

static void entry(struct snapshot *s, const char *action, const struct zr_event *e, const struct zr_event *block) {
    struct pickle *p = &s->p;

    dict(p);
    item_word(p, "action", action);
    item(p, "addr", viewed(block->address));
    item(p, "size", block->size);
    item(p, "stream", 0);
    item(p, "time_us", (s->r->header.start_real + e->time) / 1000);
    frames(p, s->paths, s->paths->of_stack[e->stack]);
    end_dict(p);
    end_element(p);
}

static void out_of_memory(struct snapshot *s, const struct zr_event *e) {
    struct pickle *p = &s->p;
    uint64_t memory = s->r->card_memory[e->card], live = s->live[e->card];

    dict(p);
    item_word(p, "action", "oom");
    item(p, "device_free", memory > live ? memory - live : 0);
    item(p, "size", e->size);
    item(p, "stream", 0);
    item(p, "time_us", (s->r->header.start_real + e->time) / 1000);
    frames(p, s->paths, s->paths->of_stack[e->stack]);
    end_dict(p);
    end_element(p);
}

static void begin_block(struct snapshot *s, uint32_t i) {
    const struct zr_event *e = &s->r->event[i];

    s->live[e->card] += e->size;
    if (holder(&s->segments, i) == ZR_NO_EVENT)
        entry(s, "segment_alloc", e, e);
    entry(s, "alloc", e, e);
}

static void end_block(struct snapshot *s, const struct zr_event *e, uint32_t begin) {
    const struct zr_event *block = &s->r->event[begin];

    s->live[block->card] -= block->size;
    entry(s, "free_requested", e, block);
    entry(s, "free_completed", e, block);
    if (holder(&s->segments, begin) == ZR_NO_EVENT)
        entry(s, "segment_free", e, block);
}

static bool is_block(const struct zr_event *e) {
    return e->type == ZEROUTE_EVENT_ALLOC && zr_kind_allocated(e->kind);
}

static void trace(struct snapshot *s, unsigned card, uint32_t from) {
    const struct zr_record *r = s->r;
    size_t implied = 0;

    list(&s->p);
    for (uint32_t i = 0; i < r->events; i++) {
        const struct zr_event *e = &r->event[i];
        uint32_t ended = ZR_NO_EVENT;

        if (implied < r->implieds && r->implied[implied].at == i)
            ended = r->implied[implied++].begin;
        if (i < from)
            continue;
        if (ended != ZR_NO_EVENT && r->event[ended].card == card && is_block(&r->event[ended]))
            end_block(s, e, ended);
        else if (ended != ZR_NO_EVENT && r->event[ended].card == card && r->event[ended].type == ZEROUTE_EVENT_RESERVE)
            entry(s, "segment_free", e, &r->event[ended]);
        if (e->card != card)
            continue;
        if (is_block(e))
            begin_block(s, i);
        else if (e->type == ZEROUTE_EVENT_FREE && e->partner != ZR_NO_EVENT && zr_kind_allocated(e->kind))
            end_block(s, e, e->partner);
        else if (e->type == ZEROUTE_EVENT_RESERVE)
            entry(s, "segment_alloc", e, e);
        else if (e->type == ZEROUTE_EVENT_RELEASE && e->partner != ZR_NO_EVENT)
            entry(s, "segment_free", e, e);
        else if (e->type == ZEROUTE_EVENT_FAIL &&
                 (e->code == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY || e->code == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY))
            out_of_memory(s, e);
    }
    end_list(&s->p);
}

/* --- the segments at the end -------------------------------------------------------------------------------------- */

struct left {
    uint32_t block, segment; /* events; the segment may be the block itself */
};

static int by_segment(const void *a, const void *b) {
    const struct left *x = a, *y = b;
    uint64_t v, w;

    if (x->segment != y->segment)
        return x->segment < y->segment ? -1 : 1;
    v = compared[x->block].address;
    w = compared[y->block].address;
    return v != w ? (v < w ? -1 : 1) : x->block < y->block ? -1 : x->block > y->block;
}

static void block(struct snapshot *s, uint64_t address, uint64_t size, const struct zr_event *e) {
    struct pickle *p = &s->p;

    dict(p);
    item(p, "address", viewed(address));
    item(p, "size", size);
    item(p, "requested_size", e ? e->size : 0);
    item_word(p, "state", e ? "active_allocated" : "inactive");
    frames(p, s->paths, e ? s->paths->of_stack[e->stack] : s->paths->of_stack[0]);
    end_dict(p);
}

/* A segment with its blocks, and what is free between them: together exactly its size. */
static void segment(struct snapshot *s, uint32_t event, const struct left *left, size_t n) {
    const struct zr_event *all = s->r->event, *seg = &all[event];
    struct pickle *p = &s->p;
    uint64_t used = 0, at = 0;

    for (size_t i = 0; i < n; i++)
        used += all[left[i].block].size;
    dict(p);
    item(p, "device", seg->card);
    item(p, "address", viewed(seg->address));
    item(p, "total_size", seg->size);
    item(p, "allocated_size", used);
    item(p, "active_size", used);
    item(p, "requested_size", used);
    item(p, "stream", 0);
    item_word(p, "segment_type", seg->size > 2 << 20 ? "large" : "small");
    put_word(p, "segment_pool_id");
    fputs("K", p->out);
    putc(0, p->out);
    fputs("K", p->out);
    putc(0, p->out);
    putc(0x86, p->out);
    put_word(p, "is_expandable");
    putc(seg->kind == ZEROUTE_MEMORY_PHYSICAL ? 0x88 : 0x89, p->out);
    frames(p, s->paths, s->paths->of_stack[seg->stack]);
    put_word(p, "blocks");
    fputs("](", p->out);
    for (size_t i = 0; i < n; i++) {
        const struct zr_event *b = &all[left[i].block];
        uint64_t offset = b->address - seg->address;

        if (offset < at || offset > seg->size || b->size > seg->size - offset)
            continue; /* overlaps: the file contradicts itself */
        if (offset > at)
            block(s, seg->address + at, offset - at, NULL);
        block(s, b->address, b->size, b);
        at = offset + b->size;
        fputs("e(", p->out);
    }
    if (at < seg->size)
        block(s, seg->address + at, seg->size - at, NULL);
    putc('e', p->out);
    end_dict(p);
    end_element(p);
}

static bool segments_at_end(struct snapshot *s) {
    const struct zr_record *r = s->r;
    struct left *left = NULL;
    size_t n = 0, room = 0;

    for (uint32_t i = 0; i < r->events; i++) {
        const struct zr_event *e = &r->event[i];

        if (e->partner != ZR_NO_EVENT || e->card == ZEROUTE_RECORD_NO_CARD || !is_block(e))
            continue;
        if (n == room) {
            struct left *more = realloc(left, (room = room ? room * 2 : 256) * sizeof *more);
            if (!more) {
                free(left);
                return false;
            }
            left = more;
        }
        uint32_t held = holder(&s->segments, i);
        left[n++] = (struct left){i, held == ZR_NO_EVENT ? i : held};
    }
    compared = r->event;
    if (n)
        qsort(left, n, sizeof *left, by_segment);
    list(&s->p);
    size_t next = 0;
    for (uint32_t i = 0; i < r->events; i++) {
        size_t from = next;

        while (next < n && left[next].segment == i)
            next++;
        if (next > from || (r->event[i].type == ZEROUTE_EVENT_RESERVE && r->event[i].partner == ZR_NO_EVENT &&
                            r->event[i].card != ZEROUTE_RECORD_NO_CARD))
            segment(s, i, left ? left + from : NULL, next - from);
    }
    end_list(&s->p);
    free(left);
    return true;
}

bool zr_export_torch(FILE *out, const struct zr_report *shown) {
    const struct zr_record *r = shown->record;
    struct snapshot s = {.p = {.out = out}, .r = r, .paths = shown->paths, .segments = {.r = r}};
    unsigned cards = 0;
    bool ok = false;

    s.p.of_frames = calloc(shown->paths->paths + 1u, sizeof *s.p.of_frames);
    s.segments.reserve = malloc((r->events + 1u) * sizeof *s.segments.reserve);
    for (uint32_t i = 0; s.segments.reserve && i < r->events; i++)
        if (r->event[i].type == ZEROUTE_EVENT_RESERVE)
            s.segments.reserve[s.segments.n++] = i;
    compared = r->event;
    if (s.segments.n)
        qsort(s.segments.reserve, s.segments.n, sizeof *s.segments.reserve, by_address);
    for (unsigned i = 0; i < ZEROUTE_RECORD_NO_CARD; i++)
        if (r->card_seen[i])
            cards = i + 1;
    if (s.p.of_frames && s.segments.reserve) {
        struct pickle *p = &s.p;

        putc(0x80, out);
        putc(4, out);
        dict(p);
        put_word(p, "segments");
        ok = segments_at_end(&s);
        put_word(p, "device_traces");
        fputs("](", out);
        for (unsigned i = 0; i < cards; i++)
            trace(&s, i, r->events > ENTRIES_MOST ? r->events - ENTRIES_MOST : 0);
        putc('e', out);
        put_word(p, "allocator_settings");
        putc('}', out);
        put_word(p, "external_annotations");
        putc(']', out);
        end_dict(p);
        putc('.', out);
        if (r->events > ENTRIES_MOST)
            zr_complain("report", "the snapshot has the last %d events of %u", (int)ENTRIES_MOST, r->events);
    }
    free(s.p.of_frames);
    free(s.segments.reserve);
    return ok && !ferror(out);
}
