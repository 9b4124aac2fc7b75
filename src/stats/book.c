/* Memory that comes and goes, and its peaks: the parts of a booking that are not inline. */
#include "stats/stats.h"

#include <errno.h>

/*
 * What this thread has not folded, now `level`, joins the total of all. The peak that it went through is the total
 * before, plus the highest that this thread was above it: exact for this thread, and off by what others have not
 * folded.
 */
void zr_fold(struct zr_shard *s, struct zr_level *l, int64_t level, int64_t *total, int64_t *peak) {
    int64_t high = __atomic_load_n(&l->high, __ATOMIC_RELAXED), before;

    /* First: a reader that finds the new total finds this as well. */
    __atomic_store_n(&s->folds, __atomic_load_n(&s->folds, __ATOMIC_RELAXED) + 1, __ATOMIC_RELEASE);
    before = __atomic_fetch_add(total, level, __ATOMIC_ACQ_REL);
    zr_raise_to(peak, before + (level > high ? level : high));
    __atomic_store_n(&l->level, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&l->high, 0, __ATOMIC_RELEASE);
}

/* Without a shard of its own a thread folds every booking at once. */
static void fold_at_once(unsigned account, int64_t bytes, int64_t blocks) {
    struct zr_total *t = &zr_segment.globals->total[account];

    zr_raise_to(&t->peak_bytes, __atomic_add_fetch(&t->bytes, bytes, __ATOMIC_RELAXED));
    zr_raise_to(&t->peak_blocks, __atomic_add_fetch(&t->blocks, blocks, __ATOMIC_RELAXED));
}

static void book_shared(struct zr_shard *s, enum zr_kind k, unsigned device, uint64_t bytes, bool freed) {
    struct zr_cell *c = zr_cell(s, k, device);
    int64_t n = freed ? -(int64_t)bytes : (int64_t)bytes, one = freed ? -1 : 1;

    __atomic_fetch_add(freed ? &c->freed : &c->allocated, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(freed ? &c->frees : &c->allocations, 1, __ATOMIC_RELAXED);
    if (k < ZR_KINDS_ON_DEVICE) {
        if (!freed)
            __atomic_fetch_add(zr_size_counter(s, bytes), 1, __ATOMIC_RELAXED);
        fold_at_once(ZR_ACCOUNT_DEVICE + device, n, one);
        fold_at_once(ZR_ACCOUNT_ALL, n, one);
    } else {
        fold_at_once(ZR_ACCOUNT_KIND + k - ZR_KINDS_ON_DEVICE, n, one);
    }
}

ZR_COLD void zr_book_slow(enum zr_kind k, unsigned device, uint64_t bytes, bool freed) {
    struct zr_shard *s = zr_shard_of_thread();
    int saved = errno;

    if (!s)
        return;
    if (!zr_device_is_described(k, device))
        zr_fields_describe_device(device);
    if (zr_thread.stats.shard)
        zr_book_in(s, k, device, bytes, freed);
    else
        book_shared(s, k, device, bytes, freed);
    errno = saved;
}

static void move_reserved(struct zr_reserved *r, int64_t bytes) {
    if (bytes < 0)
        __atomic_fetch_add(&r->freed, (uint64_t)-bytes, __ATOMIC_RELAXED);
    else
        __atomic_fetch_add(&r->allocated, (uint64_t)bytes, __ATOMIC_RELAXED);
    zr_raise_to(&r->peak, __atomic_add_fetch(&r->now, bytes, __ATOMIC_RELAXED));
}

static unsigned described(unsigned device) {
    device = device < ZR_DEVICES ? device : ZR_DEVICES - 1;
    if (!zr_device_is_described(ZR_KIND_DEVICE, device))
        zr_fields_describe_device(device);
    return device;
}

void zr_book_reserved(unsigned device, int64_t bytes) {
    if (zr_reserved_is_allocated() || !zr_stats_open())
        return;
    if (device == ZR_RESERVED_HOST) {
        move_reserved(&zr_segment.globals->reserved[ZR_RESERVED_HOST], bytes);
        return;
    }
    move_reserved(&zr_segment.globals->reserved_all, bytes);
    move_reserved(&zr_segment.globals->reserved[described(device)], bytes);
}

uint64_t zr_booked(unsigned device) {
    unsigned account = device == ZR_RESERVED_HOST ? (unsigned)ZR_ACCOUNT_KIND : ZR_ACCOUNT_DEVICE + device;
    int64_t sum = __atomic_load_n(&zr_segment.globals->total[account].bytes, __ATOMIC_RELAXED);
    if (!zr_reserved_is_allocated())
        return (uint64_t)__atomic_load_n(&zr_segment.globals->reserved[device].now, __ATOMIC_RELAXED);
    for (unsigned s = 0; s < __atomic_load_n(&zr_segment.header->shard_count, __ATOMIC_ACQUIRE); s++)
        sum += __atomic_load_n(&zr_segment_shard(s)->level[account].bytes.level, __ATOMIC_RELAXED);
    return sum > 0 ? (uint64_t)sum : 0;
}

uint64_t *zr_card(unsigned device, enum zr_card c) {
    static uint64_t nobodys[ZR_CARD_FIGURES];
    return zr_stats_open() ? &zr_segment.globals->cards[described(device)][c] : &nobodys[c];
}
