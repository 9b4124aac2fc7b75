/*
 * The random sequence through a SYCL runtime: blocks of all kinds by SYCL's own functions, as PyTorch asks for them;
 * copies and fills by Level Zero on the runtime's native handles. An exception ends the worker, and that is reported.
 */
#include "mirror/mirror.h"
#include "selftest/calls.h"
#include "selftest/selftest.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

struct code_location {
    const char *file, *function;
    unsigned long line, column;
};
static const struct code_location where = {"", "", 0, 0};

static struct {
    void *(*alloc_device)(size_t, size_t, const void *device, const void *context, const struct code_location *);
    void *(*alloc_shared)(size_t, size_t, const void *device, const void *context, const struct code_location *);
    void *(*alloc_host)(size_t, size_t, const void *context, const struct code_location *);
    void (*free)(void *, const void *context, const struct code_location *);
    uintptr_t (*native_device)(const void *device);
    uintptr_t (*native_context)(const void *context);
} usm;

static const struct {
    void *to;
    const char *symbol;
} names[] = {
    {&usm.alloc_device,
     "_ZN4sycl3_V120aligned_alloc_deviceEmmRKNS0_6deviceERKNS0_7contextERKNS0_6detail13code_locationE"},
    {&usm.alloc_shared,
     "_ZN4sycl3_V120aligned_alloc_sharedEmmRKNS0_6deviceERKNS0_7contextERKNS0_6detail13code_locationE"},
    {&usm.alloc_host, "_ZN4sycl3_V118aligned_alloc_hostEmmRKNS0_7contextERKNS0_6detail13code_locationE"},
    {&usm.free, "_ZN4sycl3_V14freeEPvRKNS0_7contextERKNS0_6detail13code_locationE"},
    {&usm.native_device, "_ZNK4sycl3_V16device9getNativeEv"},
    {&usm.native_context, "_ZNK4sycl3_V17context9getNativeEv"},
};

static struct zr_sycl sycl;
static struct slot slots[SLOTS];

static void *allocate(enum kind kind, unsigned card, size_t size, size_t alignment) {
    switch (kind) {
    case DEVICE:
        return usm.alloc_device(alignment, size, sycl.device[card], sycl.context, &where);
    case HOST:
        return usm.alloc_host(alignment, size, sycl.context, &where);
    default:
        return usm.alloc_shared(alignment, size, sycl.device[card], sycl.context, &where);
    }
}

static void give_back(struct slot *s) {
    usm.free(s->ptr, sycl.context, &where);
    memset(s, 0, sizeof *s);
}

/* A block that is held, from this slot on; an empty slot where there is none. */
static struct slot *held(uint64_t from) {
    for (unsigned i = 0; i < SLOTS; i++) {
        if (slots[(from + i) % SLOTS].ptr)
            return &slots[(from + i) % SLOTS];
    }
    return &slots[from];
}

/* --- operations ------------------------------------------------------------------------------ */

/* Not beyond 64 KiB: the pool of UMF 1.2 frees smaller blocks of such an alignment at a wrong address. */
static void usm_allocate(void) {
    static const size_t alignments[] = {0, 0, 64, 512, 4096, 65536};
    struct slot *s = &slots[zr_below(SLOTS)];
    enum kind kind = (enum kind)(zr_below(5) < 3 ? DEVICE : zr_below(2) ? HOST : SHARED);
    unsigned card = (unsigned)zr_below(sycl.cards);
    size_t size = zr_some_size(), alignment = alignments[zr_below(COUNT(alignments))];
    void *p;

    if (s->ptr)
        give_back(s);
    if (!zr_calls_may_take(size))
        return;
    p = allocate(kind, card, size, alignment);
    zr_out(" %s size %zu alignment %zu card %u: %s", zr_usm_kinds[kind], size, alignment, card, p ? "pointer" : "null");
    if (!p)
        return;
    if (alignment)
        zr_out(" %s", (uintptr_t)p % alignment ? "MISALIGNED" : "aligned");
    if (size)
        *s = (struct slot){.ptr = p, .size = size, .kind = kind, .device = card};
    else
        usm.free(p, sycl.context, &where);
}

static void usm_free(void) {
    struct slot *s = &slots[zr_below(SLOTS)];

    if (s->ptr)
        give_back(s);
}

static void usm_ask(void) {
    static const ze_memory_type_t types[KINDS] = {ZE_MEMORY_TYPE_DEVICE, ZE_MEMORY_TYPE_HOST, ZE_MEMORY_TYPE_SHARED};
    ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    struct slot *s = held(zr_below(SLOTS));
    uint64_t inside = zr_next();
    ze_result_t r;

    if (!s->ptr)
        return;
    r = ze.zeMemGetAllocProperties(zr_calls.contexts[0], s->ptr + inside % s->size, &props, NULL);
    zr_out(" %#x type %u%s", r, props.type, !r && props.type != types[s->kind] ? " CONTRADICTS" : "");
}

/* Host to block, block to block, block to host, a part of each. */
static void usm_copy(void) {
    enum { MOST = 256 * 1024 };
    static unsigned char from[MOST], to[MOST];
    struct slot *a = held(zr_below(SLOTS)), *b = held(zr_below(SLOTS));
    uint64_t seed = zr_next(), at = zr_next();
    ze_command_list_handle_t list;
    unsigned bad = 0;
    ze_result_t r;
    size_t n;

    if (!a->ptr || !b->ptr || a == b)
        return;
    list = zr_calls.lists[a->kind == HOST ? b->device : a->device];
    n = a->size < b->size ? a->size : b->size;
    n = n < MOST ? n : MOST;
    at %= a->size - n + 1;
    for (size_t i = 0; i < n; i++)
        from[i] = (unsigned char)((seed >> (i % 8 * 8)) + i);
    memset(to, 0, n);
    r = ze.zeCommandListAppendMemoryCopy(list, a->ptr + at, from, n, NULL, 0, NULL);
    if (!r)
        r = ze.zeCommandListAppendMemoryCopy(list, b->ptr, a->ptr + at, n, NULL, 0, NULL);
    if (!r)
        r = ze.zeCommandListAppendMemoryCopy(list, to, b->ptr, n, NULL, 0, NULL);
    for (size_t i = 0; i < n; i++)
        bad += from[i] != to[i];
    zr_out(" %zu bytes %s to %s: %#x %u wrong hash %#llx", n, zr_usm_kinds[a->kind], zr_usm_kinds[b->kind], r, bad,
           (unsigned long long)zr_hash_bytes(to, n));
}

enum { THREADS = 4, ROUNDS = 16 };
struct thread {
    unsigned card;
    size_t sizes[ROUNDS];
    unsigned failures, wrong;
    void *held[ROUNDS];
    pthread_t thread;
};

static void *thread_main(void *of) {
    struct thread *t = of;
    ze_command_list_handle_t list;
    unsigned char from[512], to[512];

    if (zr_level_zero_list(zr_calls.contexts[0], zr_calls.devices[t->card], ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, &list)) {
        t->failures++;
        return NULL;
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        size_t n = t->sizes[i] < sizeof from ? t->sizes[i] : sizeof from;

        t->held[i] = allocate(DEVICE, t->card, t->sizes[i], 0);
        memset(from, (int)(i + 1 + t->card * 20), n);
        if (!t->held[i] || ze.zeCommandListAppendMemoryCopy(list, t->held[i], from, n, NULL, 0, NULL) ||
            ze.zeCommandListAppendMemoryCopy(list, to, t->held[i], n, NULL, 0, NULL))
            t->failures++;
        else
            t->wrong += memcmp(from, to, n) != 0;
        if (i >= 2 && t->held[i - 2]) {
            usm.free(t->held[i - 2], sycl.context, &where);
            t->held[i - 2] = NULL;
        }
    }
    ze.zeCommandListDestroy(list);
    return NULL;
}

/* Some of the blocks are freed by another thread than their own. */
static void usm_threads(void) {
    static struct thread threads[THREADS];
    unsigned failures = 0, wrong = 0, started = 0;
    uint64_t all = 0;

    for (unsigned i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.card = (unsigned)zr_below(sycl.cards)};
        for (unsigned k = 0; k < ROUNDS; k++) {
            threads[i].sizes[k] = 1 + zr_below(zr_below(2) ? 64 * KIB : 2 * MIB);
            all += threads[i].sizes[k];
        }
    }
    if (!zr_calls_may_take(all))
        return;
    while (started < THREADS && !pthread_create(&threads[started].thread, NULL, thread_main, &threads[started]))
        started++;
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i].thread, NULL);
    for (unsigned i = 0; i < started; i++) {
        for (unsigned k = 0; k < ROUNDS; k++) {
            if (threads[i].held[k])
                usm.free(threads[i].held[k], sycl.context, &where);
        }
        failures += threads[i].failures;
        wrong += threads[i].wrong;
    }
    zr_out(" %u threads: %u failures %u wrong", started, failures, wrong);
}

static const struct {
    const char *name;
    void (*run)(void);
    unsigned weight;
} operations[] = {
    {"allocate", usm_allocate, 40}, {"free", usm_free, 25},      {"ask", usm_ask, 15},
    {"copy", usm_copy, 20},         {"threads", usm_threads, 1},
};

/* --- the program ----------------------------------------------------------------------------- */

static bool open_usm(const struct zr_selftest_program *p, char *why, size_t size) {
    ze_result_t r = ZE_RESULT_SUCCESS;

    if (!zr_level_zero_open(why, size) || !zr_sycl_open(&sycl, why, size))
        return false;
    for (size_t i = 0; i < COUNT(names); i++) {
        void *symbol = dlsym(sycl.library, names[i].symbol);

        if (!symbol) {
            snprintf(why, size, "the SYCL runtime lacks %s", names[i].symbol);
            return false;
        }
        memcpy(names[i].to, &symbol, sizeof symbol);
    }
    if (!sycl.cards) {
        snprintf(why, size, "SYCL shows no card of Level Zero");
        return false;
    }
    if (p->cards && p->cards < sycl.cards)
        sycl.cards = p->cards;
    zr_calls.contexts[0] = (ze_context_handle_t)usm.native_context(sycl.context); // NOLINT
    for (unsigned i = 0; i < sycl.cards && !r; i++) {
        zr_calls.devices[i] = (ze_device_handle_t)usm.native_device(sycl.device[i]); // NOLINT
        r = zr_level_zero_list(zr_calls.contexts[0], zr_calls.devices[i], ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
                               &zr_calls.lists[i]);
    }
    if (r)
        snprintf(why, size, "a command list in SYCL's context: error %#x", (unsigned)r);
    return !r;
}

bool zr_usm_run(const struct zr_selftest_program *p, char *why, size_t size) {
    if (!open_usm(p, why, size))
        return false;
    zr_calls.budget = p->budget;
    for (unsigned i = 0; i < p->count; i++) {
        unsigned sum = 0, pick, k = 0;

        if (p->only && !zr_selftest_listed(p->only, i))
            continue;
        zr_calls_seed(p->seed, i);
        for (unsigned j = 0; j < COUNT(operations); j++)
            sum += operations[j].weight;
        for (pick = (unsigned)zr_below(sum); pick >= operations[k].weight; k++)
            pick -= operations[k].weight;
        zr_out("%u %s:", i, operations[k].name);
        operations[k].run();
        zr_out("\n");
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        if (slots[i].ptr)
            give_back(&slots[i]);
    }
    zr_out("end:\n");
    return true;
}
