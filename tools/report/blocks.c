/*
 * Which FREE ends which ALLOC: an open-addressing hash table (linear probing, backward-shift deletion) of what is live,
 * fed with the events in order. About 100 ns for an event when there are many blocks.
 */
#include "report/report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* Addresses of pointers, handles and ranges may be the same number: they are told apart. */
enum space { POINTERS, PHYSICAL, RANGES, MAPPINGS, RESERVED };

struct slot {
    uint64_t key; /* 0: empty */
    uint32_t begin;
};

struct live {
    struct slot *slot;
    size_t mask, used;
    uint64_t seed; /* no file can be made so that everything collides */
};

/* Frees that may still be refused. */
enum { RECENT = 64 };

static enum space space_of(const struct zr_event *e) {
    if (e->type == ZEROUTE_EVENT_RESERVE || e->type == ZEROUTE_EVENT_RELEASE)
        return RESERVED;
    return e->kind == ZEROUTE_MEMORY_PHYSICAL  ? PHYSICAL
           : e->kind == ZEROUTE_MEMORY_VIRTUAL ? RANGES
           : e->kind == ZEROUTE_MEMORY_MAPPED  ? MAPPINGS
                                               : POINTERS;
}

/* The top byte of an address is free for what it is an address of. */
static uint64_t key_of(const struct zr_event *e) {
    return ((e->address << 3) ^ (e->address >> 61 << 3)) + space_of(e) + 1;
}

static size_t place(const struct live *l, uint64_t key) {
    key ^= l->seed;
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdull;
    key ^= key >> 33;
    key *= 0xc4ceb9fe1a85ec53ull;
    return (size_t)(key ^ key >> 33) & l->mask;
}

static struct slot *find(const struct live *l, uint64_t key) {
    size_t i = place(l, key);

    while (l->slot[i].key && l->slot[i].key != key)
        i = (i + 1) & l->mask;
    return &l->slot[i];
}

static bool grow(struct live *l) {
    struct live more = {.mask = l->slot ? l->mask * 2 + 1 : 1023, .used = l->used, .seed = l->seed};

    more.slot = calloc(more.mask + 1, sizeof *more.slot);
    if (!more.slot)
        return false;
    for (size_t i = 0; l->slot && i <= l->mask; i++)
        if (l->slot[i].key)
            *find(&more, l->slot[i].key) = l->slot[i];
    free(l->slot);
    *l = more;
    return true;
}

static void drop(struct live *l, struct slot *s) {
    size_t hole = (size_t)(s - l->slot);

    for (size_t i = (hole + 1) & l->mask; l->slot[i].key; i = (i + 1) & l->mask) {
        size_t home = place(l, l->slot[i].key);
        if (((i - home) & l->mask) >= ((i - hole) & l->mask)) {
            l->slot[hole] = l->slot[i];
            hole = i;
        }
    }
    l->slot[hole].key = 0;
    l->used--;
}

static bool begin(struct zr_record *r, struct live *l, uint32_t i, size_t *implied_room) {
    if (l->used * 2 >= l->mask && !grow(l))
        return false;
    uint64_t key = key_of(&r->event[i]);
    struct slot *s = find(l, key);
    if (s->key) { /* handed out again: the FREE is missing */
        if (r->implieds == *implied_room) {
            size_t want = *implied_room ? *implied_room * 2 : 64;
            struct zr_implied *more = realloc(r->implied, want * sizeof *more);
            if (!more)
                return false;
            r->implied = more;
            *implied_room = want;
        }
        r->implied[r->implieds++] = (struct zr_implied){i, s->begin};
        r->event[s->begin].partner = i;
    } else {
        l->used++;
    }
    *s = (struct slot){key, i};
    return true;
}

static bool end(struct zr_record *r, struct live *l, uint32_t i) {
    struct zr_event *e = &r->event[i];
    struct slot *s = l->slot ? find(l, key_of(e)) : NULL;

    if (!s || !s->key) {
        if (e->type == ZEROUTE_EVENT_FREE)
            r->unknown_frees++;
        return false;
    }
    struct zr_event *b = &r->event[s->begin];
    b->partner = i;
    e->partner = s->begin;
    e->size = b->size;
    e->kind = b->kind;
    e->card = b->card;
    e->of = b->stack;
    drop(l, s);
    return true;
}

/* Residency is of the live block at that address. */
static void refer(struct zr_record *r, const struct live *l, uint32_t i) {
    const struct slot *s = l->slot ? find(l, key_of(&r->event[i])) : NULL;

    if (s && s->key)
        r->event[i].partner = s->begin;
}

/* The free was refused: as if it had never been asked for. */
static bool back(struct zr_record *r, struct live *l, uint32_t i, const uint32_t *recent, size_t frees,
                 size_t *implied_room) {
    for (size_t n = 0; n < RECENT && n < frees; n++) {
        struct zr_event *f = &r->event[recent[(frees - 1 - n) % RECENT]];

        if (f->address != r->event[i].address || f->partner == ZR_NO_EVENT)
            continue;
        uint32_t first = f->partner;
        if (find(l, key_of(f))->key)
            return true; /* in use again: the file contradicts itself */
        f->partner = ZR_NO_EVENT;
        r->event[first].partner = ZR_NO_EVENT;
        return begin(r, l, first, implied_room);
    }
    return true;
}

bool zr_record_pair(struct zr_record *r) {
    struct live l = {0};
    uint32_t recent[RECENT];
    size_t frees = 0, implied_room = 0;
    bool ok = true;

    if (getrandom(&l.seed, sizeof l.seed, GRND_NONBLOCK) != sizeof l.seed)
        l.seed = (uintptr_t)&l;
    for (uint32_t i = 0; i < r->events && ok; i++) {
        switch (r->event[i].type) {
        case ZEROUTE_EVENT_ALLOC:
        case ZEROUTE_EVENT_RESERVE:
            ok = begin(r, &l, i, &implied_room);
            break;
        case ZEROUTE_EVENT_FREE:
            if (end(r, &l, i))
                recent[frees++ % RECENT] = i;
            break;
        case ZEROUTE_EVENT_RELEASE:
            end(r, &l, i);
            break;
        case ZEROUTE_EVENT_BACK:
            ok = back(r, &l, i, recent, frees, &implied_room);
            break;
        case ZEROUTE_EVENT_RESIDENT:
        case ZEROUTE_EVENT_EVICT:
            refer(r, &l, i);
            break;
        default:
            break;
        }
    }
    free(l.slot);
    return ok;
}

void zr_record_live(const struct zr_record *r, uint32_t at, void (*f)(void *to, const struct zr_event *block),
                    void *to) {
    for (uint32_t i = 0; i < r->events && i <= at; i++) {
        const struct zr_event *e = &r->event[i];
        if (e->type == ZEROUTE_EVENT_ALLOC && zr_kind_memory(e->kind) && (e->partner == ZR_NO_EVENT || e->partner > at))
            f(to, e);
    }
}

const char *zr_kind_name(unsigned kind) {
    static const char *const names[ZEROUTE_MEMORY_KINDS] = {"device",  "shared", "physical", "host",
                                                            "virtual", "mapped", "imported"};
    return kind < ZEROUTE_MEMORY_KINDS ? names[kind] : "other";
}

static const struct {
    uint64_t most;
    const char *name;
} classes[ZR_SIZE_CLASSES] = {
    {4096, "up to 4 KiB"},      {65536, "up to 64 KiB"},     {1 << 20, "up to 1 MiB"},   {2 << 20, "up to 2 MiB"},
    {10 << 20, "up to 10 MiB"}, {20 << 20, "up to 20 MiB"},  {64 << 20, "up to 64 MiB"}, {256 << 20, "up to 256 MiB"},
    {1u << 30, "up to 1 GiB"},  {UINT64_MAX, "above 1 GiB"},
};

unsigned zr_size_class(uint64_t size) {
    unsigned c = 0;
    while (size > classes[c].most)
        c++;
    return c;
}

const char *zr_size_class_name(unsigned size_class) {
    return size_class < ZR_SIZE_CLASSES ? classes[size_class].name : "";
}
