#include "cache/index.h"

#include "base/lock.h"
#include "cache/map.h"
#include "base/pages.h"

#include <string.h>

enum { FIRST_BITS = 9, LARGE = 1 << 16, REACH = 16, STRIDES = 6 };

/* Its base is no block's, and its state is NONE for ever. */
struct zr_block zr_nobody = {.base = UINTPTR_MAX};

static void *no_slots[2] = {&zr_nobody, &zr_nobody};
struct zr_index zr_index = {63, no_slots, 1};

/*
 * Pages side by side come 1.618 places apart: near each other, so that blocks that are asked for in order share
 * lines, and after going round still between each other.
 */
static uint64_t golden(unsigned bits)
{
    return (UINT64_C(0x9e3779b97f4a7c15) >> bits | 1) + (UINT64_C(1) << (64 - bits));
}

/* As many pages as this come to one place; what of a base is within its page comes anywhere. */
static uint64_t stride(unsigned bits, unsigned pages_bits)
{
    return (UINT64_C(1) << (64 - bits - pages_bits)) + 0x9e37;
}

/* A table, for those who write, with the lock held. */
struct table {
    void **slot;
    unsigned bits;
    uint64_t factor;
    size_t used;
    size_t detours; /* how far from home they are, all in all */
    size_t left;    /* so many stayed out of it */
    size_t farthest; /* no one is, or was, further from home than this */
};

static struct zr_lock lock;
static struct table now = {no_slots, 1, 1, 0, 0, 0, 0};
static size_t used_then; /* when the factor was changed last */

static size_t mask_of(const struct table *t)
{
    return ((size_t)1 << t->bits) - 1;
}

static size_t home_of(const struct table *t, uintptr_t base)
{
    return zr_index_mix(base) * t->factor >> (64 - t->bits);
}

static void store(void **slot, void *value)
{
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
}

/* How far from its place a block may be. */
static size_t reach_of(const struct table *t)
{
    return mask_of(t) < LARGE ? mask_of(t) : REACH;
}

/* What the slot of a block would be that is not in the table. */
static void *slot_by_tree(const void *p)
{
    uint64_t word;
    struct zr_block *b = zr_map_look_in_tree(p, &word);

    return b ? (void *)((uintptr_t)b | (uintptr_t)__atomic_load_n(&b->bin, __ATOMIC_RELAXED) << 48) : &zr_nobody;
}

/* Small tables are never full, but this one may be written to meanwhile: it goes round once at most. */
void *zr_index_probe(const void *p)
{
    unsigned shift = __atomic_load_n(&zr_index.shift, __ATOMIC_ACQUIRE);
    void **slot = __atomic_load_n(&zr_index.slot, __ATOMIC_ACQUIRE);
    struct table t = {slot, 64 - shift, __atomic_load_n(&zr_index.factor, __ATOMIC_RELAXED), 0, 0, 0, 0};
    size_t home = home_of(&t, (uintptr_t)p);

    for (size_t n = 0; n <= reach_of(&t); n++) {
        void *at = __atomic_load_n(&slot[(home + n) & mask_of(&t)], __ATOMIC_ACQUIRE);

        if (at == &zr_nobody)
            break;
        if (__atomic_load_n(&zr_slot_block(at)->base, __ATOMIC_RELAXED) == (uintptr_t)p)
            return at;
    }
    return slot_by_tree(p);
}

static void put_at(struct table *t, size_t at, void *value)
{
    size_t far = (at - home_of(t, zr_slot_block(value)->base)) & mask_of(t);

    t->farthest = far > t->farthest ? far : t->farthest;
    store(&t->slot[at], value);
}

/*
 * In a small table the newest comes first, as it is asked for most: those in its way move on by one place, the last
 * of them first, so that no reader misses one that stays where it is found. In a large one it goes behind them, and
 * where ranges of addresses lie upon each other some find no place near theirs: they stay out, so that all others keep
 * their order, and the tree answers for them.
 */
static void place(struct table *t, void *value)
{
    size_t mask = mask_of(t), home = home_of(t, zr_slot_block(value)->base), at = home;

    while (t->slot[at] != &zr_nobody && ((at - home) & mask) < reach_of(t))
        at = (at + 1) & mask;
    if (t->slot[at] != &zr_nobody) {
        t->left++;
        return;
    }
    t->detours += (at - home) & mask;
    for (; at != home && mask < LARGE; at = (at - 1) & mask)
        put_at(t, at, t->slot[(at - 1) & mask]);
    put_at(t, at, value);
    t->used++;
}

/* How many of these bases have a place to themselves in a table that is to come. `bitmap`: a bit for each place. */
static size_t at_home(const struct table *t, const uintptr_t *base, size_t count, uint64_t *bitmap)
{
    size_t homes = 0;

    memset(bitmap, 0, (mask_of(t) + 1) / 8);
    for (size_t i = 0; i < count; i++) {
        size_t home = home_of(t, base[i]);
        uint64_t bit = UINT64_C(1) << home % 64;

        homes += !(bitmap[home / 64] & bit);
        bitmap[home / 64] |= bit;
    }
    return homes;
}

/*
 * Drivers give out bases at distances that are powers of two, with holes in between. In a large table, whoever looks at
 * another's descriptor first waits for memory twice: so of several factors it takes the one that gives most blocks
 * their own place; of equal ones, the one that leaves most room for those to come. Some ms for half a million blocks.
 */
static uint64_t best_factor(unsigned bits)
{
    size_t places = (size_t)1 << bits, bytes = places / 8 + (now.used + 1) * sizeof(uintptr_t), count = 0, most = 0;
    uint64_t best = golden(bits), *bitmap = places < LARGE ? NULL : zr_pages((bytes + 0x1fffff) & ~(size_t)0x1fffff);
    uintptr_t *base;

    if (!bitmap)
        return best;
    base = bitmap + places / 64;
    for (size_t i = 0; i <= mask_of(&now); i++)
        if (now.slot[i] != &zr_nobody)
            base[count++] = zr_slot_block(now.slot[i])->base;
    for (unsigned i = 0; i <= STRIDES; i++) {
        uint64_t factor = i ? stride(bits, i - 1) : golden(bits);
        size_t homes = at_home(&(struct table){.bits = bits, .factor = factor}, base, count, bitmap);

        if (homes >= most) {
            most = homes;
            best = factor;
        }
    }
    zr_pages_back(bitmap, (bytes + 0x1fffff) & ~(size_t)0x1fffff);
    return best;
}

/*
 * The old table stays as it is, for those who are reading it: all of them together are as large as the newest. Factor
 * 0: the best one, looked for when there is memory for a table.
 */
static bool move(unsigned bits, uint64_t factor)
{
    size_t slots = (size_t)1 << bits;
    struct table t = {zr_pages((slots * sizeof(void *) + 4095) & ~(size_t)4095), bits, factor, 0, 0, 0, 0};

    if (!t.slot)
        return false;
    if (!factor)
        t.factor = best_factor(bits);
    for (size_t i = 0; i < slots; i++)
        t.slot[i] = &zr_nobody;
    for (size_t i = 0; i <= mask_of(&now); i++)
        if (now.slot[i] != &zr_nobody)
            place(&t, now.slot[i]);
    now = t;
    /* A reader that has an old factor, or an old size, looks at the wrong place, no more. */
    __atomic_store_n(&zr_index.factor, t.factor, __ATOMIC_RELAXED);
    __atomic_store_n(&zr_index.slot, t.slot, __ATOMIC_RELEASE);
    __atomic_store_n(&zr_index.shift, 64 - bits, __ATOMIC_RELEASE);
    return true;
}

/* An eighth full at most: a block is then nearly always at home. Large tables, which leave the caches, half. */
static bool has_room(void)
{
    size_t slots = mask_of(&now) + 1;

    return now.used < (slots < LARGE ? slots / 8 : slots / 2);
}

/*
 * These bases and this factor do not agree: bases in no order whatever would be less in each other's way. Looked at
 * again only when there are more of them by a quarter.
 */
static bool is_unlucky(void)
{
    bool small = mask_of(&now) < LARGE;

    return (small ? now.detours : now.left) > now.used / 8 + 16 && now.used >= used_then / 4 * 5;
}

void zr_index_add(struct zr_block *b)
{
    unsigned more;

    zr_lock(&lock);
    more = now.bits == 1 ? FIRST_BITS : now.bits + 1;
    if (has_room() || move(more, 0))
        place(&now, (void *)((uintptr_t)b | (uintptr_t)b->bin << 48));
    if (is_unlucky() && move(now.bits, now.factor * 0xd6e8feb86659fd93u))
        used_then = now.used;
    zr_unlock(&lock);
}

/*
 * What follows closes up, as far as it is not at home there: no marks of what was are left behind. Who is further away
 * than anybody was from home stays: thousands may lie side by side.
 */
void zr_index_remove(const struct zr_block *b)
{
    size_t home, at, mask;

    zr_lock(&lock);
    mask = mask_of(&now);
    at = home = home_of(&now, b->base);
    while (zr_slot_block(now.slot[at]) != b && now.slot[at] != &zr_nobody && ((at - home) & mask) < now.farthest)
        at = (at + 1) & mask;
    if (zr_slot_block(now.slot[at]) == b) {
        now.detours -= (at - home) & mask;
        for (size_t next = (at + 1) & mask; now.slot[next] != &zr_nobody && ((next - at) & mask) <= now.farthest;
             next = (next + 1) & mask) {
            home = home_of(&now, zr_slot_block(now.slot[next])->base);
            if (((next - home) & mask) >= ((next - at) & mask)) {
                store(&now.slot[at], now.slot[next]);
                now.detours -= (next - at) & mask;
                at = next;
            }
        }
        store(&now.slot[at], &zr_nobody);
        now.used--;
    }
    zr_unlock(&lock);
}

void zr_index_fork_child(void)
{
    lock.word = 0;
    now = (struct table){no_slots, 1, 1, 0, 0, 0, 0};
    used_then = 0;
    zr_index.shift = 63;
    zr_index.slot = no_slots;
}
