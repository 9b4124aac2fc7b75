/* Blocks up to 1 MiB come from 2 MiB slabs, one chain of slabs per context, kind and device. */
#include "simgpu.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define UNITS (SIM_UNIT / SIM_GRAIN)
#define WORDS (UNITS / 64)
#define CLASSES 13 /* a slab is listed by the power of two that its longest free run reaches */

struct sim_pool {
    enum sim_kind kind;
    struct sim_device *device;
    struct sim_context *context; /* NULL: destroyed; the pool goes with its last slab */
    struct sim_pool *next;
    struct sim_slab *open[CLASSES]; /* slabs with room */
    struct sim_slab *empty;         /* an unused one, kept for speed */
    unsigned slabs;
};

struct sim_slab {
    struct sim_pool *pool;
    struct sim_backing *backing;
    struct sim_slab *prev, *next; /* in pool->open[class_of(run_limit)] */
    unsigned used_units;
    unsigned run_limit; /* no free run is longer than this; 0: not listed */
    unsigned hint;      /* no free unit lies below this */
    uint64_t used[WORDS], head[WORDS];
    uint32_t size[UNITS]; /* as asked, at the first unit of a block */
};

/* The first bit of that kind; `limit` or more: none below the limit. */
static unsigned next_bit(const uint64_t *map, unsigned from, unsigned limit, bool one) {
    while (from < limit) {
        uint64_t word = (one ? map[from / 64] : ~map[from / 64]) >> (from % 64);
        if (word)
            return from + (unsigned)__builtin_ctzll(word);
        from = (from / 64 + 1) * 64;
    }
    return from;
}

static void set_bits(uint64_t *map, unsigned from, unsigned count, bool one) {
    while (count) {
        unsigned here = 64 - from % 64 < count ? 64 - from % 64 : count;
        uint64_t mask = (here == 64 ? ~(uint64_t)0 : ((uint64_t)1 << here) - 1) << (from % 64);
        if (one)
            map[from / 64] |= mask;
        else
            map[from / 64] &= ~mask;
        from += here;
        count -= here;
    }
}

/* The first unit of the free run that ends before `from`. */
static unsigned run_start(const uint64_t *used, unsigned from) {
    while (from) {
        unsigned bits = from % 64 ? from % 64 : 64, base = from - bits;
        uint64_t word = used[base / 64] << (64 - bits);
        if (word)
            return from - (unsigned)__builtin_clzll(word);
        from = base;
    }
    return 0;
}

static unsigned class_of(unsigned run) {
    return 31 - (unsigned)__builtin_clz(run);
}

static void set_limit(struct sim_slab *slab, unsigned limit) {
    struct sim_slab **open = slab->pool->open;
    if (slab->run_limit && limit && class_of(slab->run_limit) == class_of(limit)) {
        slab->run_limit = limit;
        return;
    }
    if (slab->run_limit) {
        if (slab->prev)
            slab->prev->next = slab->next;
        else
            open[class_of(slab->run_limit)] = slab->next;
        if (slab->next)
            slab->next->prev = slab->prev;
        slab->prev = slab->next = NULL;
    }
    slab->run_limit = limit;
    if (limit) {
        slab->next = open[class_of(limit)];
        if (slab->next)
            slab->next->prev = slab;
        open[class_of(limit)] = slab;
    }
}

static void drop_slab(struct sim_slab *slab) {
    struct sim_pool *pool = slab->pool;
    set_limit(slab, 0);
    if (pool->empty == slab)
        pool->empty = NULL;
    sim_backing_free(slab->backing);
    free(slab);
    if (--pool->slabs == 0 && !pool->context)
        free(pool);
}

static struct sim_pool *pool_of(enum sim_kind kind, struct sim_context *context, struct sim_device *device) {
    struct sim_pool *pool;
    for (pool = context->pools; pool; pool = pool->next) {
        if (pool->kind == kind && pool->device == device)
            return pool;
    }
    pool = calloc(1, sizeof(*pool));
    if (pool) {
        *pool = (struct sim_pool){.kind = kind, .device = device, .context = context, .next = context->pools};
        context->pools = pool;
    }
    return pool;
}

static ze_result_t add_slab(struct sim_pool *pool, struct sim_slab **out) {
    struct sim_slab *slab = calloc(1, sizeof(*slab));
    if (!slab)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    ze_result_t result =
        sim_backing_new(pool->kind, pool->context, pool->device, SIM_UNIT, SIM_UNIT, -1, &slab->backing);
    if (result != ZE_RESULT_SUCCESS) {
        free(slab);
        return result;
    }
    slab->pool = pool;
    slab->backing->slab = slab;
    pool->slabs++;
    set_limit(slab, UNITS);
    *out = slab;
    return ZE_RESULT_SUCCESS;
}

/* About 30 instructions when the slab's first gap fits. A slab without room is listed again. */
static unsigned find_room(struct sim_slab *slab, unsigned units, unsigned step) {
    unsigned at = next_bit(slab->used, slab->hint, UNITS, false), longest = 0;
    slab->hint = at;
    while (at < UNITS) {
        unsigned begin = (at + step - 1) / step * step;
        unsigned wanted = begin + units < UNITS ? begin + units : UNITS;
        unsigned end = next_bit(slab->used, at, wanted, true);
        if (begin + units <= end)
            return begin;
        if (end - at > longest)
            longest = end - at;
        at = next_bit(slab->used, end, UNITS, false);
    }
    set_limit(slab, longest);
    return UNITS;
}

/* Slabs of the block's own class may be too tight: a few are tried. One of a higher class fits, or
 * is listed anew, so the search is short whatever the number of slabs. */
static struct sim_slab *find_slab(struct sim_pool *pool, unsigned units, unsigned step, unsigned *at) {
    for (unsigned class = class_of(units); class < CLASSES; class ++) {
        int tries = class == class_of(units) || step > 1 ? 8 : INT_MAX;
        for (struct sim_slab *slab = pool->open[class], *next; slab && tries--; slab = next) {
            next = slab->next;
            if (slab->run_limit >= units && (*at = find_room(slab, units, step)) < UNITS)
                return slab;
        }
    }
    return NULL;
}

ze_result_t sim_pool_alloc(enum sim_kind kind, struct sim_context *context, struct sim_device *device, size_t size,
                           size_t alignment, void **out) {
    struct sim_pool *pool = pool_of(kind, context, device);
    unsigned units = (unsigned)((size + SIM_GRAIN - 1) / SIM_GRAIN), at;
    unsigned step = alignment > SIM_GRAIN ? (unsigned)(alignment / SIM_GRAIN) : 1;
    if (!pool)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    struct sim_slab *slab = find_slab(pool, units, step, &at);
    if (!slab) {
        ze_result_t result = add_slab(pool, &slab);
        if (result != ZE_RESULT_SUCCESS)
            return result;
        at = 0;
    }
    set_bits(slab->used, at, units, true);
    set_bits(slab->head, at, 1, true);
    slab->size[at] = (uint32_t)size;
    slab->used_units += units;
    if (pool->empty == slab)
        pool->empty = NULL;
    if (slab->used_units == UNITS)
        set_limit(slab, 0);
    *out = (void *)(slab->backing->base + (size_t)at * SIM_GRAIN);
    return ZE_RESULT_SUCCESS;
}

void sim_pool_free(struct sim_backing *backing, uintptr_t base) {
    struct sim_slab *slab = backing->slab;
    struct sim_pool *pool = slab->pool;
    unsigned at = (unsigned)((base - backing->base) / SIM_GRAIN);
    unsigned units = (slab->size[at] + SIM_GRAIN - 1) / SIM_GRAIN;
    set_bits(slab->used, at, units, false);
    set_bits(slab->head, at, 1, false);
    slab->used_units -= units;
    if (UNITS - slab->used_units > slab->run_limit) {
        unsigned run = next_bit(slab->used, at, UNITS, true) - run_start(slab->used, at);
        if (run > slab->run_limit)
            set_limit(slab, run);
    }
    if (at < slab->hint)
        slab->hint = at;
    if (slab->used_units)
        return;
    if (pool->empty || !pool->context || slab->backing->exported)
        drop_slab(slab);
    else
        pool->empty = slab;
}

bool sim_pool_find(struct sim_backing *backing, uintptr_t address, struct sim_block *out) {
    struct sim_slab *slab = backing->slab;
    unsigned at = (unsigned)((address - backing->base) / SIM_GRAIN);
    unsigned word = at / 64;
    uint64_t bits = slab->head[word] & (~(uint64_t)0 >> (63 - at % 64));
    while (!bits) {
        if (word == 0)
            return false;
        bits = slab->head[--word];
    }
    at = word * 64 + 63 - (unsigned)__builtin_clzll(bits);
    *out = (struct sim_block){.backing = backing,
                              .base = backing->base + (size_t)at * SIM_GRAIN,
                              .size = slab->size[at],
                              .offset = (size_t)at * SIM_GRAIN};
    return address - out->base < out->size;
}

bool sim_pool_trim(struct sim_device *device) {
    bool any = false;
    for (struct sim_context *context = sim.contexts; context; context = context->next) {
        for (struct sim_pool *pool = context->pools; pool; pool = pool->next) {
            if (pool->empty && pool->device && pool->device->card == device->card) {
                drop_slab(pool->empty);
                any = true;
            }
        }
    }
    return any;
}

void sim_pool_forget(struct sim_context *context) {
    struct sim_pool *pool = context->pools, *next;
    context->pools = NULL;
    for (; pool; pool = next) {
        next = pool->next;
        pool->context = NULL;
        if (pool->slabs == 0)
            free(pool);
        else if (pool->empty)
            drop_slab(pool->empty);
    }
}
