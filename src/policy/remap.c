/*
 * Memory that is mapped anew in a reserved range. Intel's driver (seen with 26.27) lets another
 * card go on reading what was mapped at an address before, though it was unmapped and destroyed:
 * silent wrong data, which expandable segments on two cards lead to (doc/driver-defects.md). A
 * reservation that is made anew is right again. So where nothing of a reservation is mapped, it is
 * freed and reserved at the same address before the new memory goes in; elsewhere the mapping is
 * counted, and reported once with what the program can do.
 */
#include "check/check.h"
#include "policy/policy.h"

#include <string.h>

enum { STALE = 4096, CARDS = 64 };

/* Mappings that are gone; start == end: a free place. */
static struct stale {
    uintptr_t start, end;
    struct zr_origin unmapped; /* under check */
} stale[STALE];
static unsigned stale_count; /* places that were ever used */
static struct zr_lock remap_lock;
static uint64_t at_work; /* atomic: cards that the process has made lists or queues for */

void zr_remap_at_work(unsigned number) {
    if (number < CARDS && !(__atomic_load_n(&at_work, __ATOMIC_RELAXED) >> number & 1))
        __atomic_fetch_or(&at_work, UINT64_C(1) << number, __ATOMIC_RELAXED);
}

static bool several_at_work(void) {
    return __builtin_popcountll(__atomic_load_n(&at_work, __ATOMIC_RELAXED)) > 1;
}

/* --- mappings that are gone; the caller holds the lock ---------------------------------------- */

static bool meets(const struct stale *s, uintptr_t start, uintptr_t end) {
    return s->start < end && start < s->end;
}

/* That of the same mapping, else a free one, else the last. */
static struct stale *place_for(uintptr_t start, uintptr_t end) {
    struct stale *spare = NULL;

    for (struct stale *s = stale; s < stale + stale_count; s++) {
        if (s->start == start && s->end == end)
            return s;
        if (!spare && s->start == s->end)
            spare = s;
    }
    if (!spare && stale_count < STALE)
        spare = &stale[stale_count++];
    return spare ? spare : &stale[STALE - 1];
}

static void note_stale(uintptr_t start, uintptr_t end, const struct zr_origin *origin) {
    struct stale *s = place_for(start, end);

    s->start = start;
    s->end = end;
    s->unmapped = *origin;
}

/* Finds the next one in a range, after *at. */
static bool next_in(uintptr_t start, uintptr_t end, unsigned *at, struct stale *out) {
    while (*at < stale_count) {
        const struct stale *s = &stale[(*at)++];

        if (meets(s, start, end)) {
            *out = *s;
            return true;
        }
    }
    return false;
}

static void forget_stale(uintptr_t start, uintptr_t end) {
    for (struct stale *s = stale; s < stale + stale_count; s++)
        if (meets(s, start, end))
            *s = (struct stale){.start = 0};
}

/* --- reservations ----------------------------------------------------------------------------- */

struct range {
    uintptr_t start, end;
    bool used;
};

static void see_mapping(struct zr_object *o, void *arg) {
    struct range *r = arg;
    uintptr_t at = (uintptr_t)o->handle;

    if (o->kind == ZR_KIND_MAPPED && at < r->end && r->start < at + o->bytes)
        r->used = true;
}

/*
 * What another card has of a mapping goes with a reservation that begins at the mapping's address.
 * So the reservation is freed, each mapping's range is reserved and freed by itself, and the whole
 * is reserved again. Between these calls another thread may be given the address: then the
 * program's own call fails, which is better than wrong data.
 */
static bool make_anew(struct zr_op *op, const struct zr_block *b) {
    ze_context_handle_t context = b->key.context;
    uintptr_t start = b->base, end = b->base + b->held;
    struct stale s;
    unsigned at = 0;
    bool more;

    if (ZR_DOWN(op, zeVirtualMemFree, b->held, (context, (void *)start, b->held)) !=
        ZE_RESULT_SUCCESS)
        return false;
    do {
        zr_lock(&remap_lock);
        more = next_in(start, end, &at, &s);
        zr_unlock(&remap_lock);
        if (more && s.start != start)
            (void)zr_reserve_and_free(op, context, s.start, s.end - s.start);
    } while (more);
    if (!zr_reserve_at(op, context, start, b->held) && !zr_reserve_at(op, context, start, b->held))
        zr_warn("a reserved range could not be made anew at its address: memory cannot be mapped "
                "there");
    return true;
}

/* --- the interface ---------------------------------------------------------------------------- */

static ZR_COLD void remap_report(const void *ptr, size_t size, const struct zr_origin *unmapped) {
    zr_count(ZR_F_REMAPPED_UNDER_PEER, 1);
    zr_warn("memory was mapped at an address where other memory was mapped before, and several "
            "cards are at work: "
            "Intel's driver may let another card read the old memory; set "
            "expandable_segments:False, or use one "
            "card per process");
    if (zr_checking())
        zr_check_remapped(ptr, size, unmapped);
}

void zr_remap_before(struct zr_op *op, const void *ptr, size_t size) {
    uintptr_t start = (uintptr_t)ptr;
    struct zr_block *b;
    struct range all;
    struct stale s;
    unsigned at = 0;
    bool before;

    if (!several_at_work())
        return;
    zr_lock(&remap_lock);
    before = next_in(start, start + size, &at, &s);
    zr_unlock(&remap_lock);
    if (likely(!before))
        return;
    b = zr_map_find(ptr);
    if (!b || b->key.kind != ZR_KIND_VIRTUAL)
        return;
    all = (struct range){.start = b->base, .end = b->base + b->held};
    zr_object_each(see_mapping, &all);
    if (all.used || !zr_reserves_at_will(op, b->key.context, size) || !make_anew(op, b)) {
        remap_report(ptr, size, &s.unmapped);
        return;
    }
    zr_count(ZR_F_RESERVATIONS_REMADE, 1);
    zr_remap_released((const void *)all.start, all.end - all.start);
}

void zr_remap_unmapped(const struct zr_object *mappings) {
    struct zr_origin origin = {0};

    if (!mappings)
        return;
    if (zr_checking())
        zr_origin_here(&origin);
    zr_lock(&remap_lock);
    for (const struct zr_object *o = mappings; o; o = o->next)
        note_stale((uintptr_t)o->handle, (uintptr_t)o->handle + o->bytes, &origin);
    zr_unlock(&remap_lock);
}

void zr_remap_released(const void *start, size_t size) {
    zr_lock(&remap_lock);
    forget_stale((uintptr_t)start, (uintptr_t)start + size);
    zr_unlock(&remap_lock);
}

void zr_remap_fork_child(void) {
    stale_count = 0;
    at_work = 0;
}
