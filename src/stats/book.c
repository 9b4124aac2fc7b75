/* Bytes and blocks in use, and their peaks. */
#include "stats/stats.h"

/* Guards shard 0, which threads without a shard of their own write. */
static struct zr_lock shared_lock;

/*
 * Adds what this thread has not folded, now `level`, to the total. The peak is the old total plus
 * the highest level of this thread since its last fold: exact for this thread, and off by what
 * others have not folded.
 */
static void account_fold(struct zr_shard *s, unsigned account, int64_t level) {
    struct zr_total *t = &zr_segment.globals->total[account];
    struct zr_level *l = &s->level[account];
    int64_t high = l->high, before;

    /* First: a reader that sees the new total sees this as well. */
    __atomic_store_n(&s->folds, s->folds + 1, __ATOMIC_RELEASE);
    before = __atomic_fetch_add(&t->now, level, __ATOMIC_ACQ_REL);
    zr_raise_to(&t->peak, before + (level > high ? level : high));
    __atomic_store_n(&l->level, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&l->high, 0, __ATOMIC_RELEASE);
}

/*
 * A stored level is always below a batch: even a reader that races with a fold is off by less than
 * that.
 */
static inline void account_move(struct zr_shard *s, unsigned account, int64_t n, int64_t batch) {
    struct zr_level *l = &s->level[account];
    int64_t level = l->level + n;

    if (unlikely(level >= batch || level <= -batch)) {
        account_fold(s, account, level);
        return;
    }
    __atomic_store_n(&l->level, level, __ATOMIC_RELEASE);
    if (n > 0 && level > l->high)
        __atomic_store_n(&l->high, level, __ATOMIC_RELEASE);
}

/*
 * One booking, a fold included, is one critical section of the shard's seqlock, so that a reader
 * sees cells, levels and totals that agree. Its stores are releases, so that none precedes the odd
 * generation: plain moves on x86-64.
 */
static inline void booking_begin(struct zr_shard *s) {
    if (unlikely(zr_thread.stats.shared))
        zr_lock(&shared_lock);
    __atomic_store_n(&s->generation, s->generation + 1, __ATOMIC_RELAXED);
}

static inline void booking_end(struct zr_shard *s) {
    __atomic_store_n(&s->generation, s->generation + 1, __ATOMIC_RELEASE);
    if (unlikely(zr_thread.stats.shared))
        zr_unlock(&shared_lock);
}

static inline void cell_count(struct zr_cell *c, uint64_t bytes, bool freed) {
    uint64_t *sum = freed ? &c->freed : &c->allocated;
    uint64_t *blocks = freed ? &c->frees : &c->allocations;

    __atomic_store_n(sum, *sum + bytes, __ATOMIC_RELEASE);
    __atomic_store_n(blocks, *blocks + 1, __ATOMIC_RELEASE);
}

/*
 * Devices beyond the last are counted with it. The fields of one are described when it is first
 * booked on.
 */
static inline unsigned device_described(unsigned device) {
    if (unlikely(device >= ZR_DEVICES))
        device = ZR_DEVICES - 1;
    if (unlikely(!(__atomic_load_n(&zr_segment.devices, __ATOMIC_RELAXED) >> device & 1)))
        zr_fields_describe_device(device);
    return device;
}

/* Inlined twice, once for each value of `freed`: saves a third of the instructions. */
static inline __attribute__((always_inline)) void book_block(enum zr_kind k, unsigned device,
                                                             uint64_t bytes, bool freed) {
    struct zr_shard *s =
        likely(zr_thread.stats.shard) ? zr_thread.stats.shard : zr_shard_of_thread();
    int64_t n = freed ? -(int64_t)bytes : (int64_t)bytes;
    unsigned power = zr_power_of(bytes);

    if (unlikely(!s))
        return;
    if (unlikely(k >= ZR_KINDS_ON_DEVICE)) {
        booking_begin(s);
        cell_count(&s->elsewhere[k - ZR_KINDS_ON_DEVICE], bytes, freed);
        account_move(s, ZR_ACCOUNT_KIND + k - ZR_KINDS_ON_DEVICE, n, ZR_BATCH_BYTES);
        booking_end(s);
        return;
    }
    device = device_described(device);
    booking_begin(s);
    cell_count(&s->on_device[device][k], bytes, freed);
    account_move(s, ZR_ACCOUNT_DEVICE + device, n, ZR_BATCH_BYTES);
    account_move(s, ZR_ACCOUNT_ALL, n, ZR_BATCH_BYTES);
    account_move(s, ZR_ACCOUNT_BLOCKS, freed ? -1 : 1, ZR_BATCH_BLOCKS);
    if (!freed)
        zr_relaxed_add(&s->sizes[power < ZR_SIZES ? power : ZR_SIZES - 1], 1);
    booking_end(s);
}

void zr_book(enum zr_kind k, unsigned device, uint64_t bytes) {
    book_block(k, device, bytes, false);
}

void zr_unbook(enum zr_kind k, unsigned device, uint64_t bytes) {
    book_block(k, device, bytes, true);
}

void zr_book_reserved(unsigned device, int64_t bytes) {
    struct zr_shard *s = zr_reserved_is_allocated() ? NULL : zr_shard_of_thread();

    if (!s)
        return;
    if (device != ZR_RESERVED_HOST)
        device = device_described(device);
    booking_begin(s);
    cell_count(&s->reserved[device], (uint64_t)(bytes < 0 ? -bytes : bytes), bytes < 0);
    account_move(s, ZR_ACCOUNT_RESERVED_ON + device, bytes, ZR_BATCH_BYTES);
    if (device != ZR_RESERVED_HOST)
        account_move(s, ZR_ACCOUNT_RESERVED, bytes, ZR_BATCH_BYTES);
    booking_end(s);
}

void zr_fold_all(struct zr_shard *s) {
    booking_begin(s);
    for (unsigned a = 0; a < ZR_STATS_ACCOUNTS; a++)
        account_fold(s, a, s->level[a].level);
    booking_end(s);
}

/*
 * Allocated less freed, over all threads: `count` words at each of two offsets in shards, `stride`
 * bytes apart.
 */
static uint64_t cells_remaining(size_t came, size_t went, size_t stride, unsigned count) {
    uint64_t sum = 0;

    for (unsigned s = 0; s < __atomic_load_n(&zr_segment.header->shard_count, __ATOMIC_ACQUIRE);
         s++)
        for (size_t at = (size_t)zr_segment_shard(s), end = at + count * stride; at < end;
             at += stride)
            sum += __atomic_load_n((const uint64_t *)(at + came), __ATOMIC_RELAXED) -
                   __atomic_load_n((const uint64_t *)(at + went), __ATOMIC_RELAXED);
    return (int64_t)sum > 0 ? sum : 0;
}

static uint64_t cells_remaining_in(size_t cell, size_t stride, unsigned count) {
    return cells_remaining(cell + offsetof(struct zr_cell, allocated),
                           cell + offsetof(struct zr_cell, freed), stride, count);
}

uint64_t zr_booked(unsigned device) {
    if (!zr_reserved_is_allocated())
        return cells_remaining_in(offsetof(struct zr_shard, reserved[device]),
                                  sizeof(struct zr_cell), 1);
    if (device == ZR_RESERVED_HOST)
        return cells_remaining_in(offsetof(struct zr_shard, elsewhere), sizeof(struct zr_cell), 1);
    return cells_remaining_in(offsetof(struct zr_shard, on_device[device]), sizeof(struct zr_cell),
                              ZR_KINDS_ON_DEVICE);
}

uint64_t *zr_card(unsigned device, enum zr_card c) {
    static uint64_t nobodys[ZR_CARD_FIGURES];

    return zr_stats_open() ? &zr_segment.globals->cards[device_described(device)][c] : &nobodys[c];
}
