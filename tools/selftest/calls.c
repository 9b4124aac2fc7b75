/*
 * A random sequence of Level Zero memory calls, one line of text for each: what was asked and what came
 * back, without addresses and ids. The same seed gives the same calls, whatever the answers are, and a
 * call can be left out without changing the others: so two runs can be compared, and a difference shrunk.
 *
 * Left out because the driver itself answers at random or must not be asked: questions about freed
 * pointers, double frees, frees of interior pointers, null handles.
 */
#include "selftest/calls.h"

#include "selftest/selftest.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const zr_usm_kinds[KINDS] = {"device", "host", "shared"};
static uint64_t state;

uint64_t zr_next(void) {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void zr_calls_seed(uint64_t seed, unsigned i) {
    state = seed * 0x2545f4914f6cdd1dull + i;
    zr_next();
}

uint64_t zr_below(uint64_t n) {
    return zr_next() % n;
}

void zr_out(const char *format, ...) {
    va_list args;

    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}

uint64_t zr_hash_bytes(const void *bytes, size_t size) {
    const unsigned char *at = bytes;
    uint64_t hash = 0xcbf29ce484222325ull;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * 0x100000001b3ull;
    return hash;
}

bool zr_calls_may_take(uint64_t bytes) {
    uint64_t least = 64 * KIB; /* what a block costs at least */

    if (!zr_calls.budget)
        return true;
    bytes = bytes < least ? least : bytes;
    if (bytes > zr_calls.budget - zr_calls.taken) {
        zr_out(" beyond the budget");
        return false;
    }
    zr_calls.taken += bytes;
    return true;
}

size_t zr_some_size(void) {
    static const size_t edges[] = {0,       1,       7,        512,      4095,      4096,    65535,
                                   65536,   65537,   MIB - 1,  MIB,      MIB + 1,   2 * MIB, 2 * MIB + 1,
                                   3 * MIB, 4 * MIB, 20 * MIB, 64 * MIB, 1ull << 45};

    switch (zr_below(4)) {
    case 0:
        return edges[zr_below(COUNT(edges))];
    case 1:
        return 1 + zr_below(64 * KIB);
    case 2:
        return 1 + zr_below(4 * MIB);
    default:
        return 2 * MIB * (1 + zr_below(zr_calls.budget ? 4 : 32));
    }
}

static size_t some_alignment(void) {
    static const size_t edges[] = {1, 3, 8, 64, 512, 4096, 65536, 2 * MIB, 4 * MIB, 100};

    return zr_below(2) ? 0 : edges[zr_below(COUNT(edges))];
}

static ze_result_t ask(enum kind kind, unsigned context, unsigned device, size_t size, size_t alignment,
                       uint32_t ordinal, uint32_t flags, void **p) {
    ze_device_mem_alloc_desc_t d = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, NULL, flags, ordinal};
    ze_host_mem_alloc_desc_t h = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, NULL, flags};

    *p = NULL;
    switch (kind) {
    case DEVICE:
        return ze.zeMemAllocDevice(zr_calls.contexts[context], &d, size, alignment, zr_calls.devices[device], p);
    case HOST:
        return ze.zeMemAllocHost(zr_calls.contexts[context], &h, size, alignment, p);
    default:
        return ze.zeMemAllocShared(zr_calls.contexts[context], &d, &h, size, alignment, zr_calls.devices[device], p);
    }
}

/* An exported block is not freed deferred: the driver (26.27) crashes when the card is full for the second time. */
static void give_back(struct slot *s, unsigned way) {
    ze_memory_free_ext_desc_t d = {ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, NULL, 1};
    ze_result_t r;

    if (s->exported && way == 2)
        way = 1;
    d.freePolicy = way == 2 ? ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE : d.freePolicy;
    r = way ? ze.zeMemFreeExt(zr_calls.contexts[s->context], &d, s->ptr)
            : ze.zeMemFree(zr_calls.contexts[s->context], s->ptr);
    zr_out(" free%u %s %#x", way, zr_usm_kinds[s->kind], r);
    memset(s, 0, sizeof(*s));
}

static void op_allocate(void) {
    struct slot *s = &zr_calls.slots[zr_below(SLOTS)];
    enum kind kind = (enum kind)(zr_below(5) < 3 ? DEVICE : zr_below(2) ? HOST : SHARED);
    unsigned context = (unsigned)zr_below(2), device = (unsigned)zr_below(zr_calls.device_count),
             way = (unsigned)zr_below(3);
    size_t size = zr_some_size(), alignment = some_alignment();
    uint32_t ordinal = zr_below(20) ? 0 : 5, flags = zr_below(4) ? 0 : 1u << zr_below(3);
    ze_result_t r;
    void *p;

    if (s->ptr)
        give_back(s, way);
    if (!zr_calls_may_take(size))
        return;
    r = ask(kind, context, device, size, alignment, ordinal, flags, &p);
    zr_out(" allocate %s size %zu alignment %zu device %u context %u ordinal %u flags %u: %#x %s", zr_usm_kinds[kind],
           size, alignment, device, context, ordinal, flags, r, p ? "pointer" : "null");
    if (r != ZE_RESULT_SUCCESS)
        return;
    *s = (struct slot){.ptr = p, .size = size, .kind = kind, .device = device, .context = context};
    if (alignment > 1 && !(alignment & (alignment - 1)))
        zr_out(" %s", (uintptr_t)p % alignment ? "MISALIGNED" : "aligned");
    else if (size > 2 * MIB && kind == DEVICE)
        zr_out(" %s", (uintptr_t)p % (64 * KIB) ? "MISALIGNED" : "aligned");
}

static void op_free(void) {
    struct slot *s = &zr_calls.slots[zr_below(SLOTS)];
    unsigned way = (unsigned)zr_below(3);

    if (s->ptr)
        give_back(s, way);
}

static void op_wrong_free(void) {
    static char ours[64];
    bool null = zr_below(2);

    zr_out(" free of %s: %#x", null ? "null" : "a pointer of the program",
           ze.zeMemFree(zr_calls.contexts[zr_below(2)], null ? NULL : ours));
}

static int index_of(ze_device_handle_t device) {
    for (uint32_t i = 0; i < zr_calls.device_count; i++) {
        if (zr_calls.devices[i] == device)
            return (int)i;
    }
    return -1;
}

struct slot *zr_calls_held(uint64_t from, int context) {
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *s = &zr_calls.slots[(from + i) % SLOTS];

        if (s->ptr && (context < 0 || s->context == (unsigned)context))
            return s;
    }
    return &zr_calls.slots[from % SLOTS];
}

/* Whether the driver says another thing about a block than what was allocated. */
static bool contradicts(const struct slot *s, ze_memory_type_t type, ze_device_handle_t device, const void *base,
                        size_t size) {
    static const ze_memory_type_t types[KINDS] = {ZE_MEMORY_TYPE_DEVICE, ZE_MEMORY_TYPE_HOST, ZE_MEMORY_TYPE_SHARED};

    if (type != types[s->kind] || base != s->ptr || size < s->size)
        return true;
    return s->kind == DEVICE && device != zr_calls.devices[s->device];
}

static void op_ask(void) {
    static char ours[64];
    struct slot *s = zr_calls_held(zr_below(SLOTS), -1);
    ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t device = NULL;
    unsigned place = (unsigned)zr_below(4), context = (unsigned)zr_below(2);
    uint64_t inside = zr_next();
    void *base = NULL;
    size_t size = 0;
    const char *p = ours;
    ze_result_t r;

    if (s->ptr) {
        context = s->context;
        p = s->ptr;
        if (place == 1)
            p += inside % s->size;
        else if (place == 2)
            p += s->size - 1;
    }
    r = ze.zeMemGetAllocProperties(zr_calls.contexts[context], p, &props, &device);
    zr_out(" properties at %u: %#x type %u device %d page %llu", place, r, props.type, device ? index_of(device) : -2,
           (unsigned long long)props.pageSize);
    if (!s->ptr)
        return;
    r = ze.zeMemGetAddressRange(zr_calls.contexts[context], p, &base, &size);
    zr_out(" range %#x offset %td size %zu", r, r ? 0 : p - (char *)base, r ? 0 : size);
    r = ze.zeMemGetAddressRange(zr_calls.contexts[context], p, NULL, &size);
    zr_out(" size alone %#x %zu", r, r ? 0 : size);
    if (contradicts(s, props.type, device, base, size))
        zr_out(" CONTRADICTS");
}

static void op_resident(void) {
    struct slot *s = &zr_calls.slots[zr_below(SLOTS)];
    unsigned device = (unsigned)zr_below(zr_calls.device_count);
    bool evict = zr_below(4) == 0;
    ze_result_t r;

    if (!s->ptr)
        return;
    r = ze.zeContextMakeMemoryResident(zr_calls.contexts[s->context], zr_calls.devices[device], s->ptr, s->size);
    zr_out(" resident %s of %u on %u: %#x", zr_usm_kinds[s->kind], s->device, device, r);
    /* An eviction on a peer is refused by this driver; under residency:owner we answer for it. */
    if (!r && evict && (s->kind != DEVICE || s->device == device))
        zr_out(" evict %#x",
               ze.zeContextEvictMemory(zr_calls.contexts[s->context], zr_calls.devices[device], s->ptr, s->size));
}

/* What is exported is opened when all else is done: see open_what_is_exported. */
static void op_export(void) {
    struct slot *s = &zr_calls.slots[zr_below(SLOTS)];
    bool put = zr_below(2);
    uint64_t device = zr_below(zr_calls.device_count);
    ze_result_t r;

    if (!s->ptr || s->kind == SHARED)
        return;
    r = ze.zeMemGetIpcHandle(zr_calls.contexts[s->context], s->ptr, &s->ipc);
    zr_out(" export %s: %#x", zr_usm_kinds[s->kind], r);
    if (r)
        return;
    s->exported = true;
    s->open_on = (unsigned)device;
    if (put && ze.zeMemPutIpcHandle)
        zr_out(" put %#x", ze.zeMemPutIpcHandle(zr_calls.contexts[s->context], s->ipc));
}

/*
 * In the process that exported it, the driver (26.27) is given the GEM handle that it already holds. With host
 * memory on another card than the first, and with a handle whose number was in use before, it takes that handle
 * for the opened pointer's own and closes both with it: the card then finds no buffer, or somebody else's,
 * behind the block, and a bind that fails makes the driver evict the very batch it is about to start.
 */
static void open_what_is_exported(void) {
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *s = &zr_calls.slots[i];
        ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
        ze_ipc_mem_handle_t ipc;
        ze_result_t r;
        void *p = NULL;

        if (!s->exported)
            continue;
        r = ze.zeMemGetIpcHandle(zr_calls.contexts[s->context], s->ptr, &ipc);
        zr_out("again: export %s: %#x", zr_usm_kinds[s->kind], r);
        if (!r) {
            r = ze.zeMemOpenIpcHandle(zr_calls.contexts[s->context], zr_calls.devices[s->open_on], ipc, 0, &p);
            zr_out(" open %#x", r);
        }
        if (p) {
            r = ze.zeMemGetAllocProperties(zr_calls.contexts[s->context], p, &props, NULL);
            zr_out(" type %#x %u", r, props.type);
            zr_out(" close %#x", ze.zeMemCloseIpcHandle(zr_calls.contexts[s->context], p));
        }
        zr_out("\n");
    }
}

/* Host to block, block to block, block to host: the bytes must arrive. */
static void op_copy(void) {
    enum { MOST = 256 * 1024 };
    static unsigned char from[MOST], to[MOST];
    struct slot *a = zr_calls_held(zr_below(SLOTS), -1), *b = zr_calls_held(zr_below(SLOTS), (int)a->context);
    uint64_t where = zr_next(), seed = zr_next();
    unsigned bad = 0;
    size_t n;
    ze_command_list_handle_t list;
    ze_result_t r;

    if (!a->ptr || !b->ptr || a->context != b->context)
        return;
    list = zr_calls.lists[a->kind == HOST ? b->device : a->device];
    n = a->size < b->size ? a->size : b->size;
    n = n < MOST ? n : MOST;
    where = where % (a->size - n + 1);
    if (a == b)
        where = 0;
    for (size_t i = 0; i < n; i++)
        from[i] = (unsigned char)((seed >> (i % 8 * 8)) + i);
    memset(to, 0, n);
    r = ze.zeCommandListAppendMemoryCopy(list, a->ptr + where, from, n, NULL, 0, NULL);
    if (!r && a != b)
        r = ze.zeCommandListAppendMemoryCopy(list, b->ptr, a->ptr + where, n, NULL, 0, NULL);
    if (!r)
        r = ze.zeCommandListAppendMemoryCopy(list, to, b->ptr, n, NULL, 0, NULL);
    for (size_t i = 0; i < n; i++)
        bad += from[i] != to[i];
    zr_out(" copy %zu bytes %s to %s: %#x %u wrong hash %#llx", n, zr_usm_kinds[a->kind], zr_usm_kinds[b->kind], r, bad,
           (unsigned long long)zr_hash_bytes(to, n));
}

static void op_virtual(void) {
    unsigned context = (unsigned)zr_below(2), device = (unsigned)zr_below(zr_calls.device_count);
    size_t size = (1 + zr_below(8)) * 2 * MIB, page = 0, got = 0;
    ze_physical_mem_desc_t desc = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, NULL, 0, size};
    ze_memory_access_attribute_t access = ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
    ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_context_handle_t c = zr_calls.contexts[context];
    ze_physical_mem_handle_t physical = NULL;
    ze_result_t r;
    void *p = NULL;

    if (!zr_calls_may_take(size))
        return;
    r = ze.zeVirtualMemQueryPageSize(c, zr_calls.devices[device], size, &page);
    zr_out(" page of %zu: %#x %zu", size, r, page);
    r = ze.zeVirtualMemReserve(c, NULL, size, &p);
    zr_out(" reserve %#x", r);
    if (r)
        return;
    r = ze.zePhysicalMemCreate(c, zr_calls.devices[device], &desc, &physical);
    zr_out(" create %#x", r);
    if (!r) {
        r = ze.zeVirtualMemMap(c, p, size, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE);
        zr_out(" map %#x", r);
        if (!r) {
            r = ze.zeVirtualMemGetAccessAttribute(c, p, size, &access, &got);
            zr_out(" access %#x %u %zu", r, access, got);
            r = ze.zeMemGetAllocProperties(c, p, &props, NULL);
            zr_out(" type %#x %u", r, props.type);
            zr_out(" unmap %#x", ze.zeVirtualMemUnmap(c, p, size));
        }
        zr_out(" destroy %#x", ze.zePhysicalMemDestroy(c, physical));
    }
    zr_out(" unreserve %#x", ze.zeVirtualMemFree(c, p, size));
}

/* Blocks in a context of their own, freed or given back with it. */
static void op_context(void) {
    ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    ze_device_mem_alloc_desc_t d = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    unsigned device = (unsigned)zr_below(zr_calls.device_count), blocks = 1 + (unsigned)zr_below(4);
    size_t size = 1 + zr_below(8 * MIB);
    ze_context_handle_t c;
    ze_result_t r;

    if (!zr_calls_may_take(blocks * size))
        return;
    r = ze.zeContextCreate(zr_calls.driver, &desc, &c);
    zr_out(" context %#x", r);
    if (r)
        return;
    for (unsigned i = 0; i < blocks; i++) {
        void *p = NULL;

        r = ze.zeMemAllocDevice(c, &d, size, 0, zr_calls.devices[device], &p);
        zr_out(" %#x", r);
        if (!r)
            zr_out(" %#x", ze.zeMemFree(c, p));
    }
    zr_out(" destroy %#x", ze.zeContextDestroy(c));
}

/* Until the card is full, then all back: as many blocks fit as without us, whatever is cached. */
static void op_fill_up(void) {
    enum { MOST = 512 };
    static void *blocks[MOST];
    unsigned n = 0, device = (unsigned)zr_below(zr_calls.device_count);
    size_t size = 512 * MIB;
    ze_result_t r = ZE_RESULT_SUCCESS;

    while (n < MOST && !r) {
        r = ask(DEVICE, 0, device, size, 0, 0, 0, &blocks[n]);
        n += !r;
    }
    zr_out(" fill up: %u blocks, then %#x %s", n, r, n < MOST && blocks[n] ? "pointer" : "null");
    r = 0;
    while (n)
        r |= ze.zeMemFree(zr_calls.contexts[0], blocks[--n]);
    zr_out(" freed %#x", r);
}

static const struct {
    const char *name;
    void (*run)(void);
    unsigned weight;
    bool large; /* left out under a budget */
} operations[] = {
    {"allocate", op_allocate, 40, false},
    {"free", op_free, 20, false},
    {"wrong-free", op_wrong_free, 2, false},
    {"ask", op_ask, 30, false},
    {"resident", op_resident, 10, false},
    {"export", op_export, 6, false},
    {"copy", op_copy, 14, false},
    {"virtual", op_virtual, 3, false},
    {"context", op_context, 3, false},
    {"fill-up", op_fill_up, 1, true},
    {"chained", zr_calls_chained, 6, false},
    {"wrong", zr_calls_wrong, 8, false},
    {"partly", zr_calls_partly, 4, false},
    {"few", zr_calls_few, 3, false},
    {"pieces", zr_calls_pieces, 3, false},
    {"shapes", zr_calls_shapes, 5, false},
    {"elsewhere", zr_calls_elsewhere, 4, false},
    {"anywhere", zr_calls_anywhere, 3, false},
    {"threads", zr_calls_threads, 1, false},
    {"early", zr_calls_early, 4, false},
};

static void one(uint64_t seed, unsigned i) {
    unsigned sum = 0, pick, k = 0;

    zr_calls_seed(seed, i);
    for (unsigned j = 0; j < COUNT(operations); j++)
        sum += operations[j].weight;
    for (pick = (unsigned)zr_below(sum); pick >= operations[k].weight; k++)
        pick -= operations[k].weight;
    zr_out("%u %s:", i, operations[k].name);
    if (zr_calls.budget && operations[k].large)
        zr_out(" beyond the budget");
    else
        operations[k].run();
    zr_out("\n");
}

/* Returns false with the reason in why. */
static bool start(char *why, size_t size) {
    ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    ze_result_t r = ze.zeContextCreate(zr_calls.driver, &desc, &zr_calls.contexts[0]);

    if (ze.zeDriverGetDefaultContext)
        zr_calls.contexts[1] = ze.zeDriverGetDefaultContext(zr_calls.driver);
    if (!r && !zr_calls.contexts[1])
        r = ze.zeContextCreate(zr_calls.driver, &desc, &zr_calls.contexts[1]);
    for (uint32_t i = 0; i < zr_calls.device_count && !r; i++)
        r = zr_level_zero_list(zr_calls.contexts[0], zr_calls.devices[i], ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
                               &zr_calls.lists[i]);
    if (r)
        snprintf(why, size, "a context and command lists: error %#x", (unsigned)r);
    return !r;
}

/* "3-5,9": is i in it? */
bool zr_selftest_listed(const char *list, unsigned i) {
    char *end;

    while (list && *list) {
        unsigned long first = strtoul(list, &end, 10), last = first;

        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (i >= first && i <= last)
            return true;
        list = *end == ',' ? end + 1 : "";
    }
    return false;
}

bool zr_calls_run(const struct zr_selftest_program *p, char *why, size_t size) {
    if (!zr_level_zero_open(why, size))
        return false;
    if (p->cards && p->cards < zr_calls.device_count)
        zr_calls.device_count = p->cards;
    zr_calls.budget = p->budget;
    if (!start(why, size))
        return false;
    for (unsigned i = 0; i < p->count; i++) {
        if (!p->only || zr_selftest_listed(p->only, i))
            one(p->seed, i);
    }
    open_what_is_exported();
    zr_out("end:");
    for (unsigned i = 0; i < SLOTS; i++) {
        if (zr_calls.slots[i].ptr)
            give_back(&zr_calls.slots[i], 0);
    }
    zr_out("\n");
    for (uint32_t i = 0; i < zr_calls.device_count; i++)
        ze.zeCommandListDestroy(zr_calls.lists[i]);
    ze.zeContextDestroy(zr_calls.contexts[0]);
    return true;
}
