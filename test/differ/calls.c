/*
 * A random sequence of Level Zero memory calls, one line of text for each: what was asked and what came
 * back, without addresses and ids. The same seed gives the same calls, whatever the answers are, and a
 * call can be left out without changing the others: so two runs can be compared, and a difference shrunk.
 *
 *   calls --seed N [--count N] [--only FIRST-LAST,...]
 *
 * Left out because the driver itself answers at random or must not be asked: questions about freed
 * pointers, double frees, frees of interior pointers, null handles.
 */
#include "calls.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const kind_name[KINDS] = {"device", "host", "shared"};
struct slot slots[SLOTS];
ze_driver_handle_t driver;
ze_device_handle_t devices[DEVICES];
uint32_t device_count = DEVICES;
ze_context_handle_t contexts[2];
ze_command_list_handle_t lists[DEVICES];
static uint64_t state;
/* Younger than the oldest headers we build with. */
static ze_result_t (*put_handle)(ze_context_handle_t, ze_ipc_mem_handle_t);

uint64_t next(void) {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

uint64_t below(uint64_t n) {
    return next() % n;
}

static void must(const char *what, ze_result_t r) {
    if (r != ZE_RESULT_SUCCESS) {
        fprintf(stderr, "calls: %s: 0x%x\n", what, r);
        exit(3);
    }
}

void out(const char *format, ...) {
    va_list args;

    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}

size_t some_size(void) {
    static const size_t edges[] = {0,       1,       7,        512,      4095,      4096,    65535,
                                   65536,   65537,   MIB - 1,  MIB,      MIB + 1,   2 * MIB, 2 * MIB + 1,
                                   3 * MIB, 4 * MIB, 20 * MIB, 64 * MIB, 1ull << 45};

    switch (below(4)) {
    case 0:
        return edges[below(COUNT(edges))];
    case 1:
        return 1 + below(64 * KIB);
    case 2:
        return 1 + below(4 * MIB);
    default:
        return 2 * MIB * (1 + below(32));
    }
}

static size_t some_alignment(void) {
    static const size_t edges[] = {1, 3, 8, 64, 512, 4096, 65536, 2 * MIB, 4 * MIB, 100};

    return below(2) ? 0 : edges[below(COUNT(edges))];
}

static ze_result_t ask(enum kind kind, unsigned context, unsigned device, size_t size, size_t alignment,
                       uint32_t ordinal, uint32_t flags, void **p) {
    ze_device_mem_alloc_desc_t d = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, NULL, flags, ordinal};
    ze_host_mem_alloc_desc_t h = {ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, NULL, flags};

    *p = NULL;
    switch (kind) {
    case DEVICE:
        return zeMemAllocDevice(contexts[context], &d, size, alignment, devices[device], p);
    case HOST:
        return zeMemAllocHost(contexts[context], &h, size, alignment, p);
    default:
        return zeMemAllocShared(contexts[context], &d, &h, size, alignment, devices[device], p);
    }
}

/* An exported block is not freed deferred: the driver (26.27) crashes when the card is full for the second time. */
static void give_back(struct slot *s, unsigned way) {
    ze_memory_free_ext_desc_t d = {ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, NULL, 1};
    ze_result_t r;

    if (s->exported && way == 2)
        way = 1;
    d.freePolicy = way == 2 ? ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE : d.freePolicy;
    r = way ? zeMemFreeExt(contexts[s->context], &d, s->ptr) : zeMemFree(contexts[s->context], s->ptr);
    out(" free%u %s %#x", way, kind_name[s->kind], r);
    memset(s, 0, sizeof(*s));
}

static void op_allocate(void) {
    struct slot *s = &slots[below(SLOTS)];
    enum kind kind = (enum kind)(below(5) < 3 ? DEVICE : below(2) ? HOST : SHARED);
    unsigned context = (unsigned)below(2), device = (unsigned)below(device_count), way = (unsigned)below(3);
    size_t size = some_size(), alignment = some_alignment();
    uint32_t ordinal = below(20) ? 0 : 5, flags = below(4) ? 0 : 1u << below(3);
    ze_result_t r;
    void *p;

    if (s->ptr)
        give_back(s, way);
    r = ask(kind, context, device, size, alignment, ordinal, flags, &p);
    out(" allocate %s size %zu alignment %zu device %u context %u ordinal %u flags %u: %#x %s", kind_name[kind], size,
        alignment, device, context, ordinal, flags, r, p ? "pointer" : "null");
    if (r != ZE_RESULT_SUCCESS)
        return;
    *s = (struct slot){.ptr = p, .size = size, .kind = kind, .device = device, .context = context};
    if (alignment > 1 && !(alignment & (alignment - 1)))
        out(" %s", (uintptr_t)p % alignment ? "MISALIGNED" : "aligned");
    else if (size > 2 * MIB && kind == DEVICE)
        out(" %s", (uintptr_t)p % (64 * KIB) ? "MISALIGNED" : "aligned");
}

static void op_free(void) {
    struct slot *s = &slots[below(SLOTS)];
    unsigned way = (unsigned)below(3);

    if (s->ptr)
        give_back(s, way);
}

static void op_wrong_free(void) {
    static char ours[64];
    bool null = below(2);

    out(" free of %s: %#x", null ? "null" : "a pointer of the program",
        zeMemFree(contexts[below(2)], null ? NULL : ours));
}

static int index_of(ze_device_handle_t device) {
    for (uint32_t i = 0; i < device_count; i++) {
        if (devices[i] == device)
            return (int)i;
    }
    return -1;
}

static void op_ask(void) {
    static char ours[64];
    struct slot *s = &slots[below(SLOTS)];
    ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t device = NULL;
    unsigned place = (unsigned)below(4), context = (unsigned)below(2);
    uint64_t inside = next();
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
    r = zeMemGetAllocProperties(contexts[context], p, &props, &device);
    out(" properties at %u: %#x type %u device %d page %llu", place, r, props.type, device ? index_of(device) : -2,
        (unsigned long long)props.pageSize);
    if (!s->ptr)
        return;
    r = zeMemGetAddressRange(contexts[context], p, &base, &size);
    out(" range %#x offset %td size %zu", r, r ? 0 : p - (char *)base, r ? 0 : size);
    r = zeMemGetAddressRange(contexts[context], p, NULL, &size);
    out(" size alone %#x %zu", r, r ? 0 : size);
}

static void op_resident(void) {
    struct slot *s = &slots[below(SLOTS)];
    unsigned device = (unsigned)below(device_count);
    bool evict = below(4) == 0;
    ze_result_t r;

    if (!s->ptr)
        return;
    r = zeContextMakeMemoryResident(contexts[s->context], devices[device], s->ptr, s->size);
    out(" resident %s of %u on %u: %#x", kind_name[s->kind], s->device, device, r);
    /* An eviction on a peer is refused by this driver; under residency:owner we answer for it. */
    if (!r && evict && (s->kind != DEVICE || s->device == device))
        out(" evict %#x", zeContextEvictMemory(contexts[s->context], devices[device], s->ptr, s->size));
}

/* What is exported is opened when all else is done: see open_what_is_exported. */
static void op_export(void) {
    struct slot *s = &slots[below(SLOTS)];
    bool put = below(2);
    uint64_t device = below(device_count);
    ze_result_t r;

    if (!s->ptr || s->kind == SHARED)
        return;
    r = zeMemGetIpcHandle(contexts[s->context], s->ptr, &s->ipc);
    out(" export %s: %#x", kind_name[s->kind], r);
    if (r)
        return;
    s->exported = true;
    s->open_on = (unsigned)device;
    if (put && put_handle)
        out(" put %#x", put_handle(contexts[s->context], s->ipc));
}

/*
 * In the process that exported it, the driver (26.27) is given the GEM handle that it already holds. With host
 * memory on another card than the first, and with a handle whose number was in use before, it takes that handle
 * for the opened pointer's own and closes both with it: the card then finds no buffer, or somebody else's,
 * behind the block, and a bind that fails makes the driver evict the very batch it is about to start.
 */
static void open_what_is_exported(void) {
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *s = &slots[i];
        ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
        ze_ipc_mem_handle_t ipc;
        ze_result_t r;
        void *p = NULL;

        if (!s->exported)
            continue;
        r = zeMemGetIpcHandle(contexts[s->context], s->ptr, &ipc);
        out("again: export %s: %#x", kind_name[s->kind], r);
        if (!r) {
            r = zeMemOpenIpcHandle(contexts[s->context], devices[s->open_on], ipc, 0, &p);
            out(" open %#x", r);
        }
        if (p) {
            r = zeMemGetAllocProperties(contexts[s->context], p, &props, NULL);
            out(" type %#x %u", r, props.type);
            out(" close %#x", zeMemCloseIpcHandle(contexts[s->context], p));
        }
        out("\n");
    }
}

/* Host to block, block to block, block to host: the bytes must arrive. */
static void op_copy(void) {
    enum { MOST = 256 * 1024 };
    static unsigned char from[MOST], to[MOST];
    struct slot *a = &slots[below(SLOTS)], *b = &slots[below(SLOTS)];
    uint64_t where = next(), seed = next();
    unsigned bad = 0;
    size_t n;
    ze_command_list_handle_t list;
    ze_result_t r;

    if (!a->ptr || !b->ptr || a->context != b->context)
        return;
    list = lists[a->kind == HOST ? b->device : a->device];
    n = a->size < b->size ? a->size : b->size;
    n = n < MOST ? n : MOST;
    where = where % (a->size - n + 1);
    if (a == b)
        where = 0;
    for (size_t i = 0; i < n; i++)
        from[i] = (unsigned char)((seed >> (i % 8 * 8)) + i);
    memset(to, 0, n);
    r = zeCommandListAppendMemoryCopy(list, a->ptr + where, from, n, NULL, 0, NULL);
    if (!r && a != b)
        r = zeCommandListAppendMemoryCopy(list, b->ptr, a->ptr + where, n, NULL, 0, NULL);
    if (!r)
        r = zeCommandListAppendMemoryCopy(list, to, b->ptr, n, NULL, 0, NULL);
    for (size_t i = 0; i < n; i++)
        bad += from[i] != to[i];
    out(" copy %zu bytes %s to %s: %#x %u wrong", n, kind_name[a->kind], kind_name[b->kind], r, bad);
}

static void op_virtual(void) {
    unsigned context = (unsigned)below(2), device = (unsigned)below(device_count);
    size_t size = (1 + below(8)) * 2 * MIB, page = 0, got = 0;
    ze_physical_mem_desc_t desc = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, NULL, 0, size};
    ze_memory_access_attribute_t access = ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
    ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_context_handle_t c = contexts[context];
    ze_physical_mem_handle_t physical = NULL;
    ze_result_t r;
    void *p = NULL;

    r = zeVirtualMemQueryPageSize(c, devices[device], size, &page);
    out(" page of %zu: %#x %zu", size, r, page);
    r = zeVirtualMemReserve(c, NULL, size, &p);
    out(" reserve %#x", r);
    if (r)
        return;
    r = zePhysicalMemCreate(c, devices[device], &desc, &physical);
    out(" create %#x", r);
    if (!r) {
        r = zeVirtualMemMap(c, p, size, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE);
        out(" map %#x", r);
        if (!r) {
            r = zeVirtualMemGetAccessAttribute(c, p, size, &access, &got);
            out(" access %#x %u %zu", r, access, got);
            r = zeMemGetAllocProperties(c, p, &props, NULL);
            out(" type %#x %u", r, props.type);
            out(" unmap %#x", zeVirtualMemUnmap(c, p, size));
        }
        out(" destroy %#x", zePhysicalMemDestroy(c, physical));
    }
    out(" unreserve %#x", zeVirtualMemFree(c, p, size));
}

/* Blocks in a context of their own, freed or given back with it. */
static void op_context(void) {
    ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    ze_device_mem_alloc_desc_t d = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    unsigned device = (unsigned)below(device_count), blocks = 1 + (unsigned)below(4);
    size_t size = 1 + below(8 * MIB);
    ze_context_handle_t c;
    ze_result_t r = zeContextCreate(driver, &desc, &c);

    out(" context %#x", r);
    if (r)
        return;
    for (unsigned i = 0; i < blocks; i++) {
        void *p = NULL;

        r = zeMemAllocDevice(c, &d, size, 0, devices[device], &p);
        out(" %#x", r);
        if (!r)
            out(" %#x", zeMemFree(c, p));
    }
    out(" destroy %#x", zeContextDestroy(c));
}

/* Until the card is full, then all back: as many blocks fit as without us, whatever is cached. */
static void op_fill_up(void) {
    enum { MOST = 512 };
    static void *blocks[MOST];
    unsigned n = 0, device = (unsigned)below(device_count);
    size_t size = 512 * MIB;
    ze_result_t r = ZE_RESULT_SUCCESS;

    while (n < MOST && !r) {
        r = ask(DEVICE, 0, device, size, 0, 0, 0, &blocks[n]);
        n += !r;
    }
    out(" fill up: %u blocks, then %#x %s", n, r, n < MOST && blocks[n] ? "pointer" : "null");
    r = 0;
    while (n)
        r |= zeMemFree(contexts[0], blocks[--n]);
    out(" freed %#x", r);
}

static const struct {
    const char *name;
    void (*run)(void);
    unsigned weight;
} operations[] = {
    {"allocate", op_allocate, 40},
    {"free", op_free, 20},
    {"wrong-free", op_wrong_free, 2},
    {"ask", op_ask, 30},
    {"resident", op_resident, 10},
    {"export", op_export, 6},
    {"copy", op_copy, 14},
    {"virtual", op_virtual, 3},
    {"context", op_context, 3},
    {"fill-up", op_fill_up, 1},
    {"chained", op_chained, 6},
    {"wrong", op_wrong, 8},
    {"partly", op_partly, 4},
    {"few", op_few, 3},
    {"pieces", op_pieces, 3},
    {"shapes", op_shapes, 5},
    {"elsewhere", op_elsewhere, 4},
    {"anywhere", op_anywhere, 3},
};

static void one(uint64_t seed, unsigned i) {
    unsigned sum = 0, pick, k = 0;

    state = seed * 0x2545f4914f6cdd1dull + i;
    next();
    for (unsigned j = 0; j < COUNT(operations); j++)
        sum += operations[j].weight;
    for (pick = (unsigned)below(sum); pick >= operations[k].weight; k++)
        pick -= operations[k].weight;
    out("%u %s:", i, operations[k].name);
    operations[k].run();
    out("\n");
}

static void start(void) {
    ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    uint32_t n = 1;
    ze_context_handle_t (*standard)(ze_driver_handle_t);

    must("zeInit", zeInit(ZE_INIT_FLAG_GPU_ONLY));
    must("zeDriverGet", zeDriverGet(&n, &driver));
    must("zeDeviceGet", zeDeviceGet(driver, &device_count, devices));
    must("zeContextCreate", zeContextCreate(driver, &desc, &contexts[0]));
    *(void **)&standard = dlsym(RTLD_DEFAULT, "zeDriverGetDefaultContext");
    *(void **)&put_handle = dlsym(RTLD_DEFAULT, "zeMemPutIpcHandle");
    contexts[1] = standard ? standard(driver) : NULL;
    if (!contexts[1])
        must("zeContextCreate", zeContextCreate(driver, &desc, &contexts[1]));
    for (uint32_t i = 0; i < device_count; i++) {
        ze_command_queue_desc_t q = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                     .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
        ze_command_queue_group_properties_t groups[8] = {0};
        uint32_t count = COUNT(groups);

        for (unsigned g = 0; g < COUNT(groups); g++)
            groups[g].stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
        must("queue groups", zeDeviceGetCommandQueueGroupProperties(devices[i], &count, groups));
        for (uint32_t g = 0; g < count; g++) {
            if ((groups[g].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY) &&
                !(groups[g].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE))
                q.ordinal = g;
        }
        must("command list", zeCommandListCreateImmediate(contexts[0], devices[i], &q, &lists[i]));
    }
}

/* "3-5,9": is i in it? */
static bool listed(const char *list, unsigned i) {
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

int main(int argc, char **argv) {
    uint64_t seed = 1;
    unsigned count = 300;
    const char *only = NULL;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--seed"))
            seed = strtoull(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--count"))
            count = (unsigned)strtoul(argv[i + 1], NULL, 0);
        else if (!strcmp(argv[i], "--only"))
            only = argv[i + 1];
        else {
            fprintf(stderr, "calls: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IONBF, 0); /* a crash must not take the line along */
    start();
    for (unsigned i = 0; i < count; i++) {
        if (!only || listed(only, i))
            one(seed, i);
    }
    open_what_is_exported();
    out("end:");
    for (unsigned i = 0; i < SLOTS; i++) {
        if (slots[i].ptr)
            give_back(&slots[i], 0);
    }
    out("\n");
    for (uint32_t i = 0; i < device_count; i++)
        zeCommandListDestroy(lists[i]);
    zeContextDestroy(contexts[0]);
    return 0;
}
