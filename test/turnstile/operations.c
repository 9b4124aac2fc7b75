/*
 * What the threads of a program do, as a table. An operation draws what it needs from its own random stream and looks
 * for something to work on; if there is nothing, it does nothing.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
enum { RANGES = 32, IMPORTS = 32, RELAXED_LIMITS = 0x10016 };

ze_result_t zeMemPutIpcHandle(ze_context_handle_t context, ze_ipc_mem_handle_t handle); /* from API 1.6 on */

int context_uses[TS_CONTEXTS];
bool context_dying[TS_CONTEXTS];
struct held held;
uint64_t program_seed;
static bool context_there[TS_CONTEXTS];
static ze_context_handle_t contexts[TS_CONTEXTS];
static ze_device_handle_t devices[TS_CARDS];

/* --- chance ------------------------------------------------------------------------------------------------------- */

uint64_t draw(struct actor *a) {
    a->random = ts_mix(a->random);
    return a->random;
}

static unsigned below(struct actor *a, unsigned n) {
    return (unsigned)(draw(a) >> 16) % n;
}

/* Most allocations of a program are of one size, and so find what others have freed. */
static bool is_usual(struct actor *a) {
    return below(a, 8) < 5;
}

size_t some_size(struct actor *a) {
    static const size_t sizes[] = {1,         512,       4 * KIB,   64 * KIB, 64 * KIB,
                                   100 * KIB, 192 * KIB, 512 * KIB, 1 * MIB,  3 * MIB};

    size_t size = sizes[below(a, sizeof sizes / sizeof *sizes)];

    if (is_usual(a))
        size = sizes[program_seed % (sizeof sizes / sizeof *sizes)];
    /* A little less is of the same class. */
    return size < 4 * KIB || below(a, 3) ? size : size - below(a, 128);
}

int enter_context(struct actor *a) {
    unsigned first = below(a, TS_CONTEXTS);

    for (unsigned i = 0; i < TS_CONTEXTS; i++) {
        int c = (int)((first + i) % TS_CONTEXTS);

        if (!context_there[c] || context_dying[c])
            continue;
        context_uses[c]++;
        return c;
    }
    return -1;
}

static bool enter_this_context(int c) {
    if (c < 0 || !context_there[c] || context_dying[c])
        return false;
    context_uses[c]++;
    return true;
}

ze_context_handle_t program_context(int c) {
    return contexts[c];
}

void leave_context(int c) {
    context_uses[c]--;
}

int some_owner(struct actor *a, bool (*fits)(const struct owner *o)) {
    int found = NO_OWNER;
    unsigned count = 0;

    for (int i = 0; i < owner_count; i++)
        if (fits(&owners[i])) {
            count++;
            if (below(a, count) == 0)
                found = i;
        }
    return found;
}

/* The program knows that it is the runtime's by now. */
static bool is_runtimes(const struct owner *o) {
    const struct ts_block *b = ts_block_around(o->p);

    return b && sycl_has_context(b->context);
}

static bool is_stale(const struct owner *o) {
    if (!o->gone || !o->returned || is_runtimes(o))
        return false;
    for (int i = 0; i < owner_count; i++)
        if (!owners[i].gone && o->p - owners[i].p < owners[i].size)
            return false;
    return true;
}

static bool is_orphan(const struct owner *o) {
    return o->orphaned && !o->gone && !o->frees;
}

static bool is_leaving(const struct owner *o) {
    return o->frees && !o->gone && !o->orphaned && !o->doomed && !o->past_us && !is_runtimes(o);
}

static bool is_large(const struct owner *o) {
    return owner_is_held(o) && o->size > 4 * KIB;
}

static bool is_on_a_card(const struct owner *o) {
    return owner_is_held(o) && o->kind == TS_DEVICE;
}

/* --- calls, each with what must follow ---------------------------------------------------------------------------- */

static const ze_device_mem_alloc_desc_t device_desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
static const ze_host_mem_alloc_desc_t host_desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};

static int alloc_with(enum ts_kind kind, int c, int card, size_t size, size_t alignment, const void *next) {
    ze_device_mem_alloc_desc_t desc = device_desc;
    ze_result_t result;
    void *p = NULL;

    desc.pNext = next;
    truth_alloc_begins();
    if (kind == TS_HOST)
        result = zeMemAllocHost(contexts[c], &host_desc, size, alignment, &p);
    else if (kind == TS_SHARED)
        result = zeMemAllocShared(contexts[c], &desc, &host_desc, size, alignment, devices[card], &p);
    else
        result = zeMemAllocDevice(contexts[c], &desc, size, alignment, devices[card], &p);
    if (result == ZE_RESULT_SUCCESS && alignment && (uintptr_t)p % alignment)
        ts_violation("an allocation returned %p, which is not aligned to %zu", p, alignment);
    return truth_alloc_ends(result, p, size, kind, card, c);
}

int do_alloc(enum ts_kind kind, int c, int card, size_t size, size_t alignment) {
    return alloc_with(kind, c, card, size, alignment, NULL);
}

int do_alloc_past(int c, size_t size, bool fresh) {
    void *p;
    int i;

    truth_alloc_begins();
    p = ts_allocate_past(c, size, fresh);
    i = truth_alloc_ends(p ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, p, size, TS_DEVICE, 0, c);
    if (i != NO_OWNER)
        owners[i].past_us = true; /* no other operation touches it */
    else
        truth_failed--; /* nobody has seen it fail */
    return i;
}

/*
 * policy: -1 zeMemFree, else that of zeMemFreeExt. A program that frees what a command uses has to have the driver
 * wait.
 */
ze_result_t do_free(const void *ptr, int c, int policy) {
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC};
    void *p = (void *)(uintptr_t)ptr;
    ze_result_t result;

    if (policy <= 0 && ts_device_uses(ts_block_at((uintptr_t)p)))
        policy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE;
    truth_free_begins(p);
    desc.freePolicy = policy < 0 ? 0 : (uint32_t)policy;
    if (policy < 0)
        result = zeMemFree(contexts[c], p);
    else
        result = zeMemFreeExt(contexts[c], &desc, p);
    truth_free_ends(result);
    return result;
}

void do_query(const void *p, int c, bool range) {
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    uint64_t asked = truth_time();
    ze_device_handle_t device = NULL;
    void *base = NULL;
    size_t size = 0;
    bool live;

    if (range) {
        live = zeMemGetAddressRange(contexts[c], p, &base, &size) == ZE_RESULT_SUCCESS;
    } else {
        live = zeMemGetAllocProperties(contexts[c], p, &properties, &device) == ZE_RESULT_SUCCESS &&
               properties.type != ZE_MEMORY_TYPE_UNKNOWN;
    }
    truth_answer(asked, p, live, base, size);
}

ze_result_t do_residency(const struct owner *o, int card, bool in) {
    if (in)
        return zeContextMakeMemoryResident(contexts[o->context], devices[card], (void *)o->p, o->size);
    return zeContextEvictMemory(contexts[o->context], devices[card], (void *)o->p, o->size);
}

ze_result_t do_export(struct owner *o) {
    ze_ipc_mem_handle_t handle;
    ze_result_t result = zeMemGetIpcHandle(contexts[o->context], (void *)o->p, &handle);

    if (result == ZE_RESULT_SUCCESS)
        o->exported = !o->free_called;
    return result;
}

int do_context_create(void) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t context = NULL;
    int c;

    if (zeContextCreate(ts_driver_handle(), &desc, &context) != ZE_RESULT_SUCCESS)
        return -1;
    c = ts_context_number(context);
    contexts[c] = context;
    context_there[c] = true;
    context_dying[c] = false;
    return c;
}

ze_result_t do_context_destroy(int c) {
    ze_result_t result;

    context_dying[c] = true;
    context_there[c] = false; /* the driver may give the handle to another thread before this call returns */
    result = zeContextDestroy(contexts[c]);
    if (result != ZE_RESULT_SUCCESS)
        ts_violation("context %d was not destroyed: 0x%x", c, (unsigned)result);
    return result;
}

void program_opens(void) {
    uint32_t count = TS_CARDS;

    memset(context_uses, 0, sizeof context_uses);
    memset(context_there, 0, sizeof context_there);
    submits_begin();
    held = (struct held){0};
    if (zeInit(0) != ZE_RESULT_SUCCESS || zeDeviceGet(ts_driver_handle(), &count, devices) != ZE_RESULT_SUCCESS ||
        count != TS_CARDS)
        ts_violation("the driver does not start");
    do_context_create();
    do_context_create();
    sycl_opens();
}

/* Asks for something by zeroute ctl; the next call of any thread carries it out. */
void make_request(const char *text) {
    uint32_t count = 0;

    segment_request(text);
    zeDeviceGet(ts_driver_handle(), &count, NULL);
}

/* --- operations --------------------------------------------------------------------------------------------------- */

static void allocate(struct actor *a, enum ts_kind kind, size_t size, const void *next) {
    static const size_t alignments[] = {0, 0, 0, 64, 64 * KIB, 1 * MIB};
    size_t count = sizeof alignments / sizeof *alignments;
    size_t alignment = alignments[is_usual(a) ? program_seed / 16 % count : below(a, (unsigned)count)];
    int card = is_usual(a) ? 0 : (int)below(a, TS_CARDS);
    int c = enter_context(a);

    if (c < 0)
        return;
    ts_operation(a->index, "allocate %zu bytes, kind %d, card %d, context %d", size, kind, card, c);
    alloc_with(kind, c, card, size, alignment, next);
    leave_context(c);
}

static void op_alloc(struct actor *a) {
    allocate(a, TS_DEVICE, some_size(a), NULL);
}

static void op_alloc_host(struct actor *a) {
    allocate(a, TS_HOST, some_size(a), NULL);
}

static void op_alloc_shared(struct actor *a) {
    allocate(a, TS_SHARED, some_size(a), NULL);
}

/* With an extension: one that is part of a key, and one that is not. */
static void op_alloc_chained(struct actor *a) {
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {.stype = (ze_structure_type_t)RELAXED_LIMITS, .flags = 1};

    if (below(a, 2))
        relaxed.stype = (ze_structure_type_t)0x7777;
    allocate(a, TS_DEVICE, some_size(a), &relaxed);
}

/* What no driver grants. */
static void op_alloc_wrong(struct actor *a) {
    unsigned how = below(a, 4);
    int c = enter_context(a);
    ze_result_t result;
    void *p = NULL;

    if (c < 0)
        return;
    ts_operation(a->index, "allocate wrongly (%u)", how);
    truth_alloc_begins();
    if (how == 0)
        result = zeMemAllocDevice(contexts[c], &device_desc, 0, 0, devices[0], &p);
    else if (how == 1)
        result = zeMemAllocDevice(contexts[c], &device_desc, 4096, 3, devices[0], &p);
    else if (how == 2)
        result = zeMemAllocDevice(contexts[c], &device_desc, 4096, 0, NULL, &p);
    else
        result = zeMemAllocDevice(contexts[c], &device_desc, (size_t)1 << 45, 0, devices[0], &p);
    if (result == ZE_RESULT_SUCCESS)
        ts_violation("an allocation that is wrong (%u) succeeded", how);
    truth_alloc_ends(result, p, 0, TS_DEVICE, 0, c);
    leave_context(c);
}

static void free_owner(struct actor *a, int i, int policy, const char *what) {
    int c = owners[i].context;
    const void *p = (const void *)owners[i].p;

    if (owners[i].submitting || !enter_this_context(c))
        return;
    ts_operation(a->index, "%s %p, context %d, policy %d", what, p, c, policy);
    do_free(p, c, policy);
    leave_context(c);
}

static bool is_busy(const struct owner *o) {
    return owner_is_held(o) && o->calls;
}

/* Rather one that another thread is in a call about. */
static int some_owner_to_free(struct actor *a) {
    int i = below(a, 2) ? some_owner(a, is_busy) : NO_OWNER;

    return i == NO_OWNER ? some_owner(a, owner_is_held) : i;
}

static void op_free(struct actor *a) {
    int i = some_owner_to_free(a);

    if (i != NO_OWNER)
        free_owner(a, i, -1, "free");
}

static void op_free_ext(struct actor *a) {
    int i = some_owner_to_free(a), policy = (int)below(a, 4);

    if (i != NO_OWNER)
        free_owner(a, i, policy, "free");
}

/* What another thread is in a call about. */
static void op_free_busy(struct actor *a) {
    int i = some_owner(a, is_busy);

    if (i != NO_OWNER)
        free_owner(a, i, -1, "free, while another thread asks for something,");
}

/* Two threads free one pointer at once. */
static void op_free_at_once(struct actor *a) {
    int i = some_owner(a, is_leaving);

    if (i != NO_OWNER)
        free_owner(a, i, -1, "free, as another thread does,");
}

static void op_free_twice(struct actor *a) {
    int i = some_owner(a, is_stale);

    if (i != NO_OWNER)
        free_owner(a, i, -1, "free again");
}

static void op_free_interior(struct actor *a) {
    int i = some_owner(a, is_large);
    const void *p;

    if (i == NO_OWNER || !enter_this_context(owners[i].context))
        return;
    p = (const void *)(owners[i].p + 64 * (1 + below(a, 32)));
    ts_operation(a->index, "free %p, which lies within a block", p);
    if (do_free(p, owners[i].context, -1) == ZE_RESULT_SUCCESS)
        ts_violation("a free of %p, which lies within a block, succeeded", p);
    leave_context(owners[i].context);
}

static void op_free_null(struct actor *a) {
    int c = enter_context(a);

    if (c < 0)
        return;
    ts_operation(a->index, "free NULL");
    if (do_free(NULL, c, -1) == ZE_RESULT_SUCCESS)
        ts_violation("a free of NULL succeeded");
    leave_context(c);
}

/* Through another context than its own: the driver takes it. */
static void op_free_elsewhere(struct actor *a) {
    int i = some_owner(a, owner_is_held), c = enter_context(a);
    const void *p;

    if (c < 0)
        return;
    if (i != NO_OWNER && !owners[i].submitting && enter_this_context(owners[i].context)) {
        p = (const void *)owners[i].p;
        ts_operation(a->index, "free %p of context %d through context %d", p, owners[i].context, c);
        do_free(p, c, -1);
        leave_context(owners[i].context);
    }
    leave_context(c);
}

/* Where we refuse, a block of a destroyed context is refused, too. */
static void op_free_orphan(struct actor *a) {
    int i = some_owner(a, is_orphan);
    const void *p;

    if (i == NO_OWNER || !truth_refuses() || enter_this_context(owners[i].context))
        return;
    p = (const void *)owners[i].p;
    ts_operation(a->index, "free %p of context %d, which was destroyed", p, owners[i].context);
    if (do_free(p, owners[i].context, -1) == ZE_RESULT_SUCCESS)
        ts_violation("a free of %p succeeded, although its context was destroyed", p);
}

static void query_owner(struct actor *a, int i, const char *what) {
    uintptr_t p = i == NO_OWNER ? 0 : owners[i].p;
    bool range = below(a, 2);
    int c = enter_context(a);

    if (c < 0)
        return;
    if (p && below(a, 2))
        p += below(a, (unsigned)owners[i].size);
    if (p) {
        ts_operation(a->index, "ask about %p, %s", (void *)p, what);
        do_query((const void *)p, c, range);
    }
    leave_context(c);
}

static void op_query(struct actor *a) {
    query_owner(a, some_owner(a, owner_is_held), "which is allocated");
}

static void op_query_stale(struct actor *a) {
    query_owner(a, some_owner(a, is_stale), "which is free");
}

static void op_query_leaving(struct actor *a) {
    query_owner(a, some_owner(a, is_leaving), "which is being freed");
}

static void op_query_unknown(struct actor *a) {
    int c = enter_context(a);

    if (c < 0)
        return;
    ts_operation(a->index, "ask about an unknown pointer");
    do_query(&contexts[c], c, below(a, 2));
    leave_context(c);
}

/*
 * Memory that came past the preload is asked about and freed through it. It lies where no block has been: of an address
 * that we know from before, the old descriptor decides (memory_past_us_at_a_known_address).
 */
static void op_foreign(struct actor *a) {
    int c = enter_context(a), i;
    void *p;

    if (c < 0)
        return;
    ts_operation(a->index, "allocate past the preload, ask and free");
    i = do_alloc_past(c, 64 * KIB, true);
    if (i != NO_OWNER) {
        p = (void *)owners[i].p;
        do_query(p, c, true);
        if (below(a, 2))
            zeContextMakeMemoryResident(contexts[c], devices[1], p, 64 * KIB);
        while (do_free(p, c, -1) != ZE_RESULT_SUCCESS && truth_was_refused())
            ;
        if (!owners[i].gone && !owners[i].contested)
            ts_violation("a free of %p, which was allocated past the preload, was refused", p);
    }
    leave_context(c);
}

static void residency(struct actor *a, bool in) {
    int i = some_owner(a, is_on_a_card), card = (int)below(a, TS_CARDS), c;
    ze_result_t result;
    void *p;

    if (i == NO_OWNER || !enter_this_context(owners[i].context))
        return;
    c = owners[i].context;
    p = (void *)owners[i].p;
    ts_operation(a->index, "%s %p on card %d", in ? "make resident" : "evict", p, card);
    owners[i].calls++;
    result = do_residency(&owners[i], card, in);
    owners[i].calls--;
    if (result != ZE_RESULT_SUCCESS && owner_is_held(&owners[i]) && !owners[i].free_called)
        ts_violation("residency of %p on card %d was refused: 0x%x", p, card, (unsigned)result);
    leave_context(c);
}

static void op_resident(struct actor *a) {
    residency(a, true);
}

static void op_evict(struct actor *a) {
    residency(a, false);
}

static void resident_on_peer(struct owner *o) {
    if (!owner_is_held(o))
        return;
    o->calls++;
    do_residency(o, 1, true);
    o->calls--;
}

static void free_if_held(const struct owner *o, int c) {
    if (owner_is_held(o) && !o->submitting)
        do_free((const void *)o->p, c, -1);
}

/* Three alike: two go, one of them resident on both cards; the third becomes so, and others may free it meanwhile. */
static void op_resident_third(struct actor *a) {
    size_t size = some_size(a);
    int c = enter_context(a), i[3];

    if (c < 0)
        return;
    ts_operation(a->index, "three of %zu bytes, one resident on card 1", size);
    for (int k = 0; k < 3; k++)
        i[k] = do_alloc(TS_DEVICE, c, 0, size, 0);
    if (i[0] != NO_OWNER && i[1] != NO_OWNER && i[2] != NO_OWNER) {
        resident_on_peer(&owners[i[1]]);
        free_if_held(&owners[i[0]], c);
        free_if_held(&owners[i[1]], c);
        resident_on_peer(&owners[i[2]]);
    }
    leave_context(c);
}

/* Takes the IPC handle, and perhaps opens it in this process: also of a block that another thread frees meanwhile. */
static void op_ipc(struct actor *a) {
    int i = some_owner(a, is_on_a_card), c;
    ze_result_t opened = ZE_RESULT_ERROR_UNKNOWN;
    ze_ipc_mem_handle_t handle;
    void *p, *import = NULL;

    if (i == NO_OWNER || !enter_this_context(owners[i].context))
        return;
    c = owners[i].context;
    p = (void *)owners[i].p;
    ts_operation(a->index, "export %p", p);
    owners[i].calls++;
    if (zeMemGetIpcHandle(contexts[c], p, &handle) == ZE_RESULT_SUCCESS) {
        owners[i].exported = !owners[i].free_called;
        if (below(a, 2)) {
            opened = zeMemOpenIpcHandle(contexts[c], devices[1], handle, 0, &import);
            truth_failed += opened == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY; /* more than the limit */
        }
        if (opened == ZE_RESULT_SUCCESS) {
            ts_point("holds an import", import);
            if (zeMemCloseIpcHandle(contexts[c], import) != ZE_RESULT_SUCCESS)
                ts_violation("the import %p was not closed", import);
        }
        zeMemPutIpcHandle(contexts[c], handle);
    } else if (owner_is_held(&owners[i]) && !owners[i].free_called) {
        ts_violation("the IPC handle of %p was refused", p);
    }
    owners[i].calls--;
    leave_context(c);
}

/* A range, memory mapped into it, and their ends in one order or another. */
static void op_virtual(struct actor *a) {
    size_t size = TS_PAGE * (1 + below(a, 8));
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = size};
    ze_physical_mem_handle_t physical = NULL;
    int c = enter_context(a), card = (int)below(a, TS_CARDS);
    void *range = NULL;

    if (c < 0)
        return;
    ts_operation(a->index, "reserve, map and unmap %zu bytes, card %d, context %d", size, card, c);
    if (zeVirtualMemReserve(contexts[c], NULL, size, &range) == ZE_RESULT_SUCCESS) {
        if (zePhysicalMemCreate(contexts[c], devices[card], &desc, &physical) == ZE_RESULT_SUCCESS) {
            if (zeVirtualMemMap(contexts[c], range, size, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE))
                ts_violation("physical memory was not mapped");
            /* Too early: the driver refuses both. */
            if (below(a, 2) &&
                (!zePhysicalMemDestroy(contexts[c], physical) || !zeVirtualMemFree(contexts[c], range, size)))
                ts_violation("physical memory was destroyed while it was mapped");
            if (zeVirtualMemUnmap(contexts[c], range, size))
                ts_violation("physical memory was not unmapped");
            if (zePhysicalMemDestroy(contexts[c], physical))
                ts_violation("physical memory was not destroyed");
        } else {
            truth_failed++;
        }
        if (zeVirtualMemFree(contexts[c], range, size))
            ts_violation("a reserved range was not freed");
    }
    leave_context(c);
}

static void op_context_create(struct actor *a) {
    ts_operation(a->index, "create a context");
    do_context_create();
}

/* With whatever lives in it, but with nobody in a call that names it: that would be the program's error. */
static void op_context_destroy(struct actor *a) {
    int c = enter_context(a);

    if (c < 0)
        return;
    leave_context(c);
    if (context_uses[c])
        return;
    ts_operation(a->index, "destroy context %d", c);
    do_context_destroy(c);
}

void ask_free_memory(int card) {
    struct {
        uint32_t type;
        void *next;
        uint64_t bytes;
    } usable = {.type = 0x20041};
    ze_device_memory_properties_t p = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES, .pNext = &usable};
    uint32_t count = 1;

    zeDeviceGetMemoryProperties(devices[card], &count, &p);
    if (usable.bytes > ts_driver.vram[card])
        ts_violation("%llu bytes are free on card %d, which has %llu", (unsigned long long)usable.bytes, card,
                     (unsigned long long)ts_driver.vram[card]);
}

static void op_free_memory(struct actor *a) {
    int card = (int)below(a, TS_CARDS);

    ts_operation(a->index, "ask how much is free on card %d", card);
    ask_free_memory(card);
}

static void op_pause(struct actor *a) {
    long ns = 100000 * (long)(1 + below(a, 30));

    ts_operation(a->index, "pause %ld us", ns / 1000);
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void op_trim(struct actor *a) {
    ts_operation(a->index, "zeroute ctl trim");
    make_request("trim");
}

static void op_ctl(struct actor *a) {
    static const char *const requests[] = {"set cache_limit 256KiB", "set cache_limit none",  "set cache_idle 2ms",
                                           "set residency owner",    "set residency default", "mark here"};
    const char *request = requests[below(a, sizeof requests / sizeof *requests)];

    ts_operation(a->index, "zeroute ctl %s", request);
    make_request(request);
}

/* Not above a runtime: a wrong free that passes would take a segment from it, and what it has in there. */
static void op_ctl_cache(struct actor *a) {
    const char *request = below(a, 2) ? "set cache off" : "set cache on";

    ts_operation(a->index, "zeroute ctl %s", request);
    truth_may_pass();
    make_request(request);
}

static void op_ctl_limit(struct actor *a) {
    static const char *const requests[] = {"set limit 4MiB", "set limit none", "set limit auto", "set limit 8MiB"};
    const char *request = requests[below(a, sizeof requests / sizeof *requests)];

    ts_operation(a->index, "zeroute ctl %s", request);
    make_request(request);
}

/* The child, in which nothing of ours is left, makes calls of its own and ends; other threads are in the driver. */
static void use_in_child(int c, int card, size_t size, uint64_t forked) {
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    const struct ts_block *b;
    void *p = NULL;

    if (zeMemAllocDevice(contexts[c], &device_desc, size, 0, devices[card], &p) != ZE_RESULT_SUCCESS)
        return;
    b = ts_block_at((uintptr_t)p);
    if (!b || b->given < forked)
        ts_violation("an allocation returned %p, which the driver has not given out to it", p);
    if (zeMemGetAllocProperties(contexts[c], p, &properties, NULL) || properties.type != ZE_MEMORY_TYPE_DEVICE)
        ts_violation("%p was answered as not allocated", p);
    if (zeMemFree(contexts[c], p) != ZE_RESULT_SUCCESS)
        ts_violation("a free of %p was refused", p);
}

static void op_fork(struct actor *a) {
    int c = enter_context(a), pid, status = 0;
    size_t usual = some_size(a);
    uint64_t forked;

    if (c < 0)
        return;
    ts_operation(a->index, "fork");
    ts_point("before fork", NULL);
    forked = ts_now();
    pid = ts_fork();
    if (pid == 0) {
        ts_driver.refuse_alloc = ts_driver.refuse_free = 0;
        ts_driver.most = 0; /* the child's limit is its own */
        use_in_child(c, 0, usual, forked);
        use_in_child(c, 1, 4 * KIB, forked);
        segment_unlink();
        ts_child_ends();
    }
    waitpid(pid, &status, 0);
    if (status)
        ts_violation("the child of fork ended with status 0x%x", (unsigned)status);
    leave_context(c);
}

struct short_thread {
    uint64_t random;
    unsigned index;
};

static void run_short_thread(void *arg) {
    struct short_thread *s = arg;
    struct actor a = {.random = s->random, .thread = (unsigned)ts_self(), .index = s->index};

    op_alloc(&a);
    op_free(&a);
}

/* A thread that begins, does something and ends. */
static void op_thread(struct actor *a) {
    static unsigned streams = 8;
    struct short_thread s = {.random = draw(a), .index = a->index};

    if (streams + MOST_THREADS >= TS_THREADS)
        return;
    ts_operation(a->index, "a short thread");
    ts_join(ts_start(run_short_thread, &s, streams++));
}

static void op_refuse_alloc(struct actor *a) {
    ts_operation(a->index, "the driver is short of memory");
    ts_driver.refuse_alloc = 1 + below(a, 3);
}

static void op_refuse_free(struct actor *a) {
    ts_operation(a->index, "the driver refuses a free");
    ts_driver.refusal = ZE_RESULT_ERROR_DEVICE_LOST;
    ts_driver.refuse_free = 1;
}

static void op_fdinfo(struct actor *a) {
    ts_operation(a->index, "the kernel tells, or no longer");
    ts_driver.fdinfo = below(a, 2);
    ts_kernel_tells();
}

const struct operation operations[] = {
    {"alloc", 20, op_alloc, 0, 0},
    {"alloc_host", 2, op_alloc_host, 0, 0},
    {"alloc_shared", 2, op_alloc_shared, 0, SEVERAL},
    {"alloc_chained", 2, op_alloc_chained, 0, 0},
    {"alloc_wrong", 1, op_alloc_wrong, 0, 0},
    {"free", 14, op_free, 0, 0},
    {"free_ext", 5, op_free_ext, 0, 0},
    {"free_busy", 5, op_free_busy, 0, 0},
    {"free_at_once", 3, op_free_at_once, 0, 0},
    {"free_twice", 3, op_free_twice, 0, 0},
    {"free_interior", 1, op_free_interior, 0, 0},
    {"free_null", 1, op_free_null, 0, 0},
    {"free_elsewhere", 2, op_free_elsewhere, 0, 0},
    {"free_orphan", 2, op_free_orphan, 0, 0},
    {"query", 4, op_query, 0, 0},
    {"query_stale", 3, op_query_stale, 0, 0},
    {"query_leaving", 2, op_query_leaving, 0, 0},
    {"query_unknown", 1, op_query_unknown, 0, 0},
    {"foreign", 2, op_foreign, 0, SEVERAL},
    {"resident", 7, op_resident, 0, 0},
    {"evict", 2, op_evict, 0, 0},
    {"resident_third", 3, op_resident_third, 0, SEVERAL},
    {"ipc", 3, op_ipc, 0, 0},
    {"virtual", 2, op_virtual, 0, 0},
    {"context_create", 2, op_context_create, 0, 0},
    {"context_destroy", 2, op_context_destroy, 0, 0},
    {"free_memory", 2, op_free_memory, 0, 0},
    {"pause", 3, op_pause, 0, 0},
    {"trim", 3, op_trim, 0, 0},
    {"ctl", 2, op_ctl, 0, 0},
    {"ctl_cache", 1, op_ctl_cache, HAS_CACHE, SYCL},
    {"ctl_limit", 1, op_ctl_limit, 0, LIMITED | SEVERAL},
    {"fork", 1, op_fork, 0, 0},
    {"thread", 2, op_thread, 0, 0},
    {"refuse_alloc", 1, op_refuse_alloc, 0, 0},
    {"refuse_free", 1, op_refuse_free, 0, SYCL},
    {"fdinfo", 3, op_fdinfo, FLAKY, 0},
    {"submit", 6, op_submit, 0, SEVERAL},
    {"work", 4, op_work, 0, SEVERAL},
    {"execute", 3, op_execute, 0, SEVERAL},
    {"wait", 4, op_wait, 0, SEVERAL},
    {"wait_device", 1, op_wait_device, 0, SEVERAL},
    {"event", 5, op_event, 0, SEVERAL},
    {"slot_end", 1, op_slot_end, 0, SEVERAL},
    {"usm_alloc", 6, op_usm_alloc, SYCL, 0},
    {"usm_free", 6, op_usm_free, SYCL, 0},
    {"usm_work", 5, op_usm_work, SYCL, 0},
    {"usm_wait", 2, op_usm_wait, SYCL, 0},
    {"usm_end", 2, op_usm_end, SYCL, 0},
};
const unsigned operation_count = sizeof operations / sizeof *operations;

/* --- the end ------------------------------------------------------------------------------------------------------ */

void program_closes(void) {
    submits_end();
    sycl_closes();
    for (int i = 0; i < owner_count; i++)
        if (owner_is_held(&owners[i])) {
            ts_operation(MOST_OPERATIONS + (unsigned)i, "free %p at the end", (void *)owners[i].p);
            if (do_free((const void *)owners[i].p, owners[i].context, -1) != ZE_RESULT_SUCCESS)
                ts_violation("a free of %p at the end was refused", (void *)owners[i].p);
        }
    ts_operation(MOST_OPERATIONS, "zeroute ctl trim at the end");
    make_request("trim");
}
