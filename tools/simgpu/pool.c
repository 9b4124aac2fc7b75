/* Blocks up to 1 MiB come from 2 MiB slabs, one chain of slabs per context, kind and device. */
#include "simgpu.h"

#include <stdlib.h>
#include <string.h>

#define UNITS (SIM_UNIT / SIM_GRAIN)
#define WORDS (UNITS / 64)

struct sim_pool {
    enum sim_kind kind;
    struct sim_device *device;
    struct sim_context *context; /* NULL: destroyed; the pool goes with its last slab */
    struct sim_pool *next;
    struct sim_slab *open;  /* slabs with room */
    struct sim_slab *empty; /* one of them that nobody uses, kept to be quick */
    unsigned slabs;
};

struct sim_slab {
    struct sim_pool *pool;
    struct sim_backing *backing;
    struct sim_slab *prev, *next; /* among pool->open */
    unsigned used_units;
    unsigned run_limit; /* no free run is longer than this */
    unsigned hint;      /* no free unit lies below this */
    uint64_t used[WORDS], head[WORDS];
    uint32_t size[UNITS]; /* as asked, at the first unit of a block */
};

static unsigned next_bit(const uint64_t *map, unsigned from, bool one)
{
    while (from < UNITS) {
        uint64_t word = (one ? map[from / 64] : ~map[from / 64]) >> (from % 64);
        if (word)
            return from + (unsigned)__builtin_ctzll(word);
        from = (from / 64 + 1) * 64;
    }
    return UNITS;
}

static void set_bits(uint64_t *map, unsigned from, unsigned count, bool one)
{
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

static void open_slab(struct sim_slab *slab)
{
    struct sim_pool *pool = slab->pool;
    slab->prev = NULL;
    slab->next = pool->open;
    if (pool->open)
        pool->open->prev = slab;
    pool->open = slab;
}

static void close_slab(struct sim_slab *slab)
{
    struct sim_pool *pool = slab->pool;
    if (slab->prev)
        slab->prev->next = slab->next;
    else
        pool->open = slab->next;
    if (slab->next)
        slab->next->prev = slab->prev;
    slab->prev = slab->next = NULL;
}

static void drop_slab(struct sim_slab *slab)
{
    struct sim_pool *pool = slab->pool;
    close_slab(slab);
    if (pool->empty == slab)
        pool->empty = NULL;
    sim_backing_free(slab->backing);
    free(slab);
    if (--pool->slabs == 0 && !pool->context)
        free(pool);
}

static struct sim_pool *pool_of(enum sim_kind kind, struct sim_context *context,
                                struct sim_device *device)
{
    struct sim_pool *pool;
    for (pool = context->pools; pool; pool = pool->next) {
        if (pool->kind == kind && pool->device == device)
            return pool;
    }
    pool = calloc(1, sizeof(*pool));
    if (pool) {
        *pool = (struct sim_pool){
            .kind = kind, .device = device, .context = context, .next = context->pools};
        context->pools = pool;
    }
    return pool;
}

static ze_result_t add_slab(struct sim_pool *pool)
{
    struct sim_slab *slab = calloc(1, sizeof(*slab));
    if (!slab)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    ze_result_t result = sim_backing_new(pool->kind, pool->context, pool->device, SIM_UNIT,
                                         SIM_UNIT, -1, &slab->backing);
    if (result != ZE_RESULT_SUCCESS) {
        free(slab);
        return result;
    }
    slab->pool = pool;
    slab->run_limit = UNITS;
    slab->backing->slab = slab;
    pool->slabs++;
    open_slab(slab);
    return ZE_RESULT_SUCCESS;
}

/* About 30 instructions when the slab's first gap fits. */
static unsigned find_room(struct sim_slab *slab, unsigned units, unsigned step)
{
    unsigned at = next_bit(slab->used, slab->hint, false);
    slab->hint = at;
    while (at < UNITS) {
        unsigned begin = (at + step - 1) / step * step;
        unsigned end = next_bit(slab->used, at, true);
        if (begin + units <= end)
            return begin;
        at = next_bit(slab->used, end, false);
    }
    if (step == 1)
        slab->run_limit = units - 1;
    return UNITS;
}

ze_result_t sim_pool_alloc(enum sim_kind kind, struct sim_context *context,
                           struct sim_device *device, size_t size, size_t alignment, void **out)
{
    struct sim_pool *pool = pool_of(kind, context, device);
    unsigned units = (unsigned)((size + SIM_GRAIN - 1) / SIM_GRAIN), at = UNITS;
    unsigned step = alignment > SIM_GRAIN ? (unsigned)(alignment / SIM_GRAIN) : 1;
    struct sim_slab *slab;
    if (!pool)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    for (slab = pool->open; slab; slab = slab->next) {
        if (UNITS - slab->used_units >= units && slab->run_limit >= units &&
            (at = find_room(slab, units, step)) < UNITS)
            break;
    }
    if (!slab) {
        ze_result_t result = add_slab(pool);
        if (result != ZE_RESULT_SUCCESS)
            return result;
        slab = pool->open;
        at = 0;
    }
    set_bits(slab->used, at, units, true);
    set_bits(slab->head, at, 1, true);
    slab->size[at] = (uint32_t)size;
    slab->used_units += units;
    if (pool->empty == slab)
        pool->empty = NULL;
    if (slab->used_units == UNITS)
        close_slab(slab);
    *out = (void *)(slab->backing->base + (size_t)at * SIM_GRAIN);
    return ZE_RESULT_SUCCESS;
}

void sim_pool_free(struct sim_backing *backing, uintptr_t base)
{
    struct sim_slab *slab = backing->slab;
    struct sim_pool *pool = slab->pool;
    unsigned at = (unsigned)((base - backing->base) / SIM_GRAIN);
    unsigned units = (slab->size[at] + SIM_GRAIN - 1) / SIM_GRAIN;
    if (slab->used_units == UNITS)
        open_slab(slab);
    set_bits(slab->used, at, units, false);
    set_bits(slab->head, at, 1, false);
    slab->used_units -= units;
    slab->run_limit = UNITS;
    if (at < slab->hint)
        slab->hint = at;
    if (slab->used_units)
        return;
    if (pool->empty || !pool->context)
        drop_slab(slab);
    else
        pool->empty = slab;
}

bool sim_pool_find(struct sim_backing *backing, uintptr_t address, struct sim_block *out)
{
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

bool sim_pool_trim(struct sim_device *device)
{
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

void sim_pool_forget(struct sim_context *context)
{
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
