/*
 * Peaks of all threads, without a word that all threads write.
 *
 * Each thread has, on each device, a mark up to which it may rise by itself. The marks of all together are no higher
 * than the peak that was recorded: as long as everybody stays below his, there can be no new one. A thread that rises
 * above its mark comes here, under a lock. It adds up what everybody has, records that if it is a new peak, and else
 * gets the room that others do not use: their marks are lowered. So a thread that takes and gives back the same again
 * and again comes here once, however large it is; with one thread that takes memory the peak is exact.
 *
 * With several, marks get a little more than that, so that threads which rise together come here less often: the peak
 * may lack this little per thread, and what another thread takes in the very moment in which its mark is lowered.
 */
#include "zeroute.h"

enum { MORE_BYTES = 256 << 10, MORE_BLOCKS = 16 };

static struct zr_lock lock;
static unsigned devices; /* booked so far: numbers below */

/* Bytes of all devices, blocks, bytes of the device in question. */
struct sum {
    int64_t bytes, blocks, on_device;
};

static int64_t get(const int64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static int64_t higher(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* All threads and devices, levels and marks: a level above its mark stands for it. */
static void add_up(unsigned shards, unsigned device, struct sum *levels, struct sum *marks)
{
    *levels = *marks = (struct sum){0};
    for (unsigned i = 0; i < shards; i++)
        for (unsigned d = 0; d < devices; d++) {
            const struct zr_level *l = &zr_segment_shard(i)->on[d].level;
            int64_t bytes = get(&l->level.bytes), blocks = get(&l->level.count);
            int64_t up_to = higher(bytes, get(&l->mark.bytes));

            levels->bytes += bytes;
            levels->blocks += blocks;
            levels->on_device += d == device ? bytes : 0;
            marks->bytes += up_to;
            marks->blocks += higher(blocks, get(&l->mark.count));
            marks->on_device += d == device ? up_to : 0;
        }
}

/*
 * Threads that have memory, or may rise to some, besides the one of this shard: their shards may be others' by now. Who
 * has only given back what others took is below zero, and none of them.
 */
static unsigned others(unsigned shards, unsigned own)
{
    unsigned n = 0;

    for (unsigned i = 0; i < shards; i++)
        for (unsigned d = 0; d < devices && i != own; d++) {
            const struct zr_level *l = &zr_segment_shard(i)->on[d].level;

            if (get(&l->mark.count) > 0 || get(&l->level.count) > 0) {
                n++;
                break;
            }
        }
    return n;
}

/* Takes from a mark what is not used, as much as is wanted: says how much. */
static int64_t lower(int64_t *mark, int64_t level, int64_t want)
{
    int64_t unused = get(mark) - level, taken = unused < want ? unused : want;

    if (taken <= 0)
        return 0;
    __atomic_store_n(mark, get(mark) - taken, __ATOMIC_RELAXED);
    return taken;
}

static void lower_both(struct zr_level *l, bool on_device, struct sum *want)
{
    int64_t taken = lower(&l->mark.bytes, get(&l->level.bytes),
                          on_device ? higher(want->bytes, want->on_device) : want->bytes);

    want->bytes -= taken;
    want->on_device -= on_device ? taken : 0;
    want->blocks -= lower(&l->mark.count, get(&l->level.count), want->blocks);
}

/* Those on this device first, which has a peak of its own; `own` last. */
static void lower_all(unsigned shards, unsigned device, struct zr_level *own, struct sum *want)
{
    for (unsigned elsewhere = 0; elsewhere < 2; elsewhere++)
        for (unsigned i = 0; i < shards; i++)
            for (unsigned d = 0; d < devices; d++) {
                struct zr_level *l = &zr_segment_shard(i)->on[d].level;

                if (l != own && elsewhere == (d != device))
                    lower_both(l, !elsewhere, want);
            }
    lower_both(own, true, want);
}

static void record(uint64_t *peak, int64_t now)
{
    if (now > 0)
        zr_raise_to(peak, (uint64_t)now);
}

/* What a level may rise by besides, if nobody else uses it: it comes here less often then. */
static void widen(int64_t *mark, int64_t level, int64_t more)
{
    __atomic_store_n(mark, higher(get(mark), level + more + higher(level, 0) / 8), __ATOMIC_RELAXED);
}

static unsigned shard_of(const struct zr_level *l)
{
    return (unsigned)(((uintptr_t)l - (uintptr_t)zr_segment.shards) / sizeof(struct zr_shard));
}

static unsigned device_of(const struct zr_level *l)
{
    size_t in_shard = ((uintptr_t)l - (uintptr_t)zr_segment.shards) % sizeof(struct zr_shard);

    return (unsigned)((in_shard - offsetof(struct zr_shard, on)) / sizeof(struct zr_line));
}

void zr_peak_look(struct zr_level *own)
{
    struct zr_globals *g = zr_segment.globals;
    unsigned device = device_of(own);
    unsigned n = __atomic_load_n(&zr_segment.header->shard_count, __ATOMIC_ACQUIRE), rising;
    int64_t more_bytes, more_blocks;
    struct sum levels, marks;

    zr_lock(&lock);
    if (device >= devices)
        devices = device + 1;
    rising = 1 + others(n, shard_of(own));
    more_bytes = rising > 1 ? MORE_BYTES : 0;
    more_blocks = rising > 1 ? MORE_BLOCKS : 0;
    widen(&own->mark.bytes, get(&own->level.bytes), more_bytes);
    widen(&own->mark.count, get(&own->level.count), more_blocks);
    add_up(n, device, &levels, &marks);
    record(&g->peak_bytes, levels.bytes);
    record(&g->peak_blocks, levels.blocks);
    record(&g->peak_device[device], levels.on_device);
    marks.bytes -= (int64_t)g->peak_bytes + rising * more_bytes;
    marks.blocks -= (int64_t)g->peak_blocks + rising * more_blocks;
    marks.on_device -= (int64_t)g->peak_device[device] + rising * more_bytes;
    lower_all(n, device, own, &marks);
    zr_unlock(&lock);
    zr_segment_describe_device(device);
}

void zr_fork_child_peak(void)
{
    lock = (struct zr_lock){0};
    devices = 0;
}
