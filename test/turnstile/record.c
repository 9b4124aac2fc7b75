/*
 * The record of this very process, by the contract of zeroute/record.h: what it says was allocated and reserved, and
 * when, has to be what the program was given and what the driver has given out. Called while nobody else runs.
 */
#include "program.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zeroute/record.h>

enum { EVENTS = 16384, LIVE = 4096 };

struct seen { /* an event, and where it stands among those of its thread */
    const struct zeroute_record_event *e;
    uint64_t sequence;
    uint32_t thread;
    size_t offset;
};
struct live {
    uint64_t address, size;
    uint8_t kind, card;
};
struct set {
    struct live at[LIVE];
    unsigned count;
};

static struct seen seen[EVENTS];
static unsigned seen_count;
static struct set allocated, reserved, freed;
static uint64_t count[ZEROUTE_EVENTS], allocations[ZEROUTE_MEMORY_KINDS], failed, on_cards, peak;
static bool has_reserves;
static const char *when;

/* --- the file ----------------------------------------------------------------------------------------------------- */

static bool is_event(uint16_t type) {
    return type >= ZEROUTE_EVENT_ALLOC && type < ZEROUTE_EVENTS;
}

static void read_chunk(const struct zeroute_record_chunk *c) {
    const char *base = (const char *)c;
    size_t at = sizeof *c;

    while (at + sizeof(struct zeroute_record_head) <= c->used) {
        const struct zeroute_record_head *head = (const void *)(base + at);

        if (!head->words)
            ts_violation("%s, the record has an event without words", when);
        if (is_event(head->type) && seen_count == EVENTS)
            ts_violation("more than %d events", EVENTS);
        if (is_event(head->type))
            seen[seen_count++] = (struct seen){(const void *)head, c->sequence, c->thread, at};
        at += head->words * (size_t)8;
    }
}

static const struct zeroute_record_header *map_file(size_t *size) {
    const char *room = getenv("TURNSTILE_ROOM");
    char path[128];
    struct stat st;
    void *at;
    int fd;

    snprintf(path, sizeof path, "%s/record.%d", room ? room : "/tmp", getpid());
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        ts_violation("%s, there is no record %s", when, path);
    at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        ts_violation("%s, the record cannot be mapped", when);
    *size = (size_t)st.st_size;
    return at;
}

/* By time; no two threads have events at one moment, because each point takes some. */
static int in_order(const void *a, const void *b) {
    const struct seen *x = a, *y = b;

    if (x->e->time != y->e->time)
        return x->e->time < y->e->time ? -1 : 1;
    if (x->thread != y->thread)
        return x->thread < y->thread ? -1 : 1;
    if (x->sequence != y->sequence)
        return x->sequence < y->sequence ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* --- what it says ------------------------------------------------------------------------------------------------- */

static struct live *find(struct set *s, uint64_t address) {
    for (unsigned i = 0; i < s->count; i++)
        if (s->at[i].address == address)
            return &s->at[i];
    return NULL;
}

static void add(struct set *s, const struct zeroute_record_event *e) {
    if (s->count == LIVE)
        ts_violation("%s, the record has more than %d blocks at once", when, LIVE);
    s->at[s->count++] = (struct live){e->address, e->size, e->kind, e->card};
}

static void take(struct set *s, struct live *l) {
    *l = s->at[--s->count];
}

/* A wrong free that went down is not recorded: whoever has the address next ends the block. */
static void comes(struct set *s, const struct zeroute_record_event *e, const char *what) {
    struct live *old = find(s, e->address);

    if (old && !truth_refuses())
        take(s, old);
    else if (old)
        ts_violation("%s, the record has %p %s twice", when, (void *)e->address, what);
    add(s, e);
}

static void goes(struct set *s, const struct zeroute_record_event *e, const char *what) {
    struct live *l = find(s, e->address);

    if (!l)
        ts_violation("%s, the record has %p %s, which was not there", when, (void *)e->address, what);
    if (l->kind != e->kind || l->card != e->card || l->size != e->size)
        ts_violation("%s, the record has %p %s as %llu bytes, kind %u, card %u; it came as %llu, %u, %u", when,
                     (void *)e->address, what, (unsigned long long)e->size, e->kind, e->card,
                     (unsigned long long)l->size, l->kind, l->card);
    take(s, l);
}

static bool is_on_card(uint8_t kind) {
    return kind == ZEROUTE_MEMORY_DEVICE || kind == ZEROUTE_MEMORY_SHARED || kind == ZEROUTE_MEMORY_PHYSICAL;
}

static void follow(const struct zeroute_record_event *e) {
    struct live *back;

    count[e->head.type]++;
    switch (e->head.type) {
    case ZEROUTE_EVENT_ALLOC:
        allocations[e->kind]++;
        comes(&allocated, e, "allocated");
        on_cards += is_on_card(e->kind) ? e->size : 0;
        peak = on_cards > peak ? on_cards : peak;
        break;
    case ZEROUTE_EVENT_FREE:
        goes(&allocated, e, "freed");
        on_cards -= is_on_card(e->kind) ? e->size : 0;
        back = find(&freed, e->address);
        if (back)
            take(&freed, back);
        add(&freed, e);
        break;
    case ZEROUTE_EVENT_BACK:
        back = find(&freed, e->address);
        if (!back || back->size != e->size)
            ts_violation("%s, the record has %p back, which was not freed", when, (void *)e->address);
        comes(&allocated, e, "back");
        on_cards += is_on_card(e->kind) ? e->size : 0;
        break;
    case ZEROUTE_EVENT_RESERVE:
        comes(&reserved, e, "reserved");
        break;
    case ZEROUTE_EVENT_RELEASE:
        goes(&reserved, e, "released");
        break;
    case ZEROUTE_EVENT_FAIL:
        failed += !e->address;
        break;
    default:
        break;
    }
}

static void replay(void) {
    size_t size;
    const struct zeroute_record_header *h = map_file(&size);

    seen_count = allocated.count = reserved.count = freed.count = 0;
    on_cards = peak = failed = 0;
    memset(count, 0, sizeof count);
    memset(allocations, 0, sizeof allocations);
    if (h->magic != ZEROUTE_RECORD_MAGIC || h->lost_events)
        ts_violation("%s, the record has lost %llu events", when, (unsigned long long)h->lost_events);
    has_reserves = !(h->flags & ZEROUTE_RECORD_RESERVED_SAME);
    for (size_t at = h->header_size; at + h->chunk_size <= size; at += h->chunk_size) {
        const struct zeroute_record_chunk *c = (const void *)((const char *)h + at);

        if (c->magic == ZEROUTE_CHUNK_MAGIC)
            read_chunk(c);
    }
    qsort(seen, seen_count, sizeof *seen, in_order);
    for (unsigned i = 0; i < seen_count; i++)
        follow(seen[i].e);
    munmap((void *)(uintptr_t)h, size);
}

/* --- against what is so ------------------------------------------------------------------------------------------- */

static const uint8_t kind_of[TS_KINDS] = {[TS_DEVICE] = ZEROUTE_MEMORY_DEVICE,
                                          [TS_HOST] = ZEROUTE_MEMORY_HOST,
                                          [TS_SHARED] = ZEROUTE_MEMORY_SHARED,
                                          [TS_PHYSICAL] = ZEROUTE_MEMORY_PHYSICAL};

static void must_have(struct set *s, uint64_t address, uint64_t size, enum ts_kind kind, int card, const char *what) {
    struct live *l = find(s, address);

    if (!l || l->size != size || l->kind != kind_of[kind] || (kind != TS_HOST && l->card != card))
        ts_violation("%s, the record has %llu bytes %s at %p; it should be %llu bytes of kind %d on card %d", when,
                     (unsigned long long)(l ? l->size : 0), what, (void *)address, (unsigned long long)size, kind,
                     card);
    take(s, l);
}

static void must_be_empty(const struct set *s, const char *what) {
    if (s->count)
        ts_violation("%s, the record still has %llu bytes %s at %p, kind %u", when, (unsigned long long)s->at[0].size,
                     what, (void *)s->at[0].address, s->at[0].kind);
}

static void compare_block(const struct ts_block *b, void *unused) {
    (void)unused;
    if (!b->past_us)
        must_have(&reserved, b->base, b->size, b->kind, b->card, "reserved");
}

static void compare_count(const char *what, uint64_t recorded, uint64_t expected) {
    if (recorded != expected)
        ts_violation("%s, the record has %llu %s; it should have %llu", when, (unsigned long long)recorded, what,
                     (unsigned long long)expected);
}

void record_compare(const char *at) {
    uint64_t given[TS_KINDS] = {0}, gone = 0;
    int64_t known;

    when = at;
    replay();
    for (int i = 0; i < owner_count; i++) {
        const struct owner *o = &owners[i];

        if (!o->returned || o->past_us)
            continue;
        given[o->kind]++;
        gone += o->gone != 0;
        if (!o->gone)
            must_have(&allocated, o->p, o->size, o->kind, o->card, "allocated");
    }
    must_be_empty(&allocated, "allocated");
    if (has_reserves) {
        ts_each_block(compare_block, NULL);
        must_be_empty(&reserved, "reserved");
    }
    for (int kind = TS_DEVICE; kind <= TS_SHARED; kind++)
        compare_count("allocations", allocations[kind_of[kind]], given[kind]);
    compare_count("exports", count[ZEROUTE_EVENT_EXPORT], ts_driver.handles);
    compare_count("failed allocations", failed, truth_failed);
    compare_count("ends of mappings", count[ZEROUTE_EVENT_UNMAP], count[ZEROUTE_EVENT_MAP]);
    if (segment_value("allocated_bytes.all.peak", &known) && (uint64_t)known > peak)
        ts_violation("%s, the peak is %lld bytes; the record has %llu at most", when, (long long)known,
                     (unsigned long long)peak);
}
