/*
 * A driver without a device: it hands out addresses and handles, and takes back at once what is freed, so that the next
 * call gets it again. What it has given out is the truth that everything above is compared with.
 *
 * Each function is a point, its effect, a point. An effect is never interrupted.
 */
#include "turnstile.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Addresses: a room of pages for each kind of thing. Only blocks have memory behind them.
 */
#define ARENA UINT64_C(0x7e0000000000)
enum { PAGES = 4096, PAST_PAGES = 256 };
enum { RECENT = 64, BLOCKS = 1024, RANGES = 64, IMPORTS = 64, OBJECTS = 64, DRIVER_UNKNOWN = 0x78000021 };
static const uintptr_t ranges_at = ARENA + UINT64_C(0x10000000000);
static const uintptr_t imports_at = ARENA + UINT64_C(0x20000000000);

struct ts_driver ts_driver;
struct ts_truth ts_truth;

struct object { /* what handles point to; a loader's handle begins with a pointer to tables, which these lack */
    void *tables;
    int number;
    bool live;
};
static struct object the_driver, cards[TS_CARDS], contexts[TS_CONTEXTS];
static struct physical {
    struct object object;
    size_t size;
    int card, maps;
} physicals[OBJECTS];
static struct range {
    uintptr_t base;
    size_t size;
    bool live;
    struct physical *mapped;
    uintptr_t mapped_at;
} ranges[RANGES];
static struct import {
    uintptr_t base;
    size_t size;
    bool live;
} imports[IMPORTS];
static struct ts_block blocks[BLOCKS];
static unsigned block_count;
static uint8_t page_taken[PAGES];
static uintptr_t recent[RECENT]; /* bases freed last, a ring */
static unsigned recent_count;
static void *arena;
static size_t past_at; /* the first of the last pages that no block has had */

/* --- what is asked by the program --------------------------------------------------------------------------------- */

const struct ts_block *ts_block_at(uintptr_t base) {
    const struct ts_block *b = ts_block_around(base);

    return b && b->base == base ? b : NULL;
}

const struct ts_block *ts_block_around(uintptr_t address) {
    for (unsigned i = 0; i < block_count; i++)
        if (blocks[i].live && address - blocks[i].base < blocks[i].size)
            return &blocks[i];
    return NULL;
}

void ts_each_block(void (*see)(const struct ts_block *b, void *arg), void *arg) {
    for (unsigned i = 0; i < block_count; i++)
        if (blocks[i].live)
            see(&blocks[i], arg);
}

int ts_context_number(ze_context_handle_t context) {
    const struct object *o = (const struct object *)context;

    if (o < contexts || o >= contexts + TS_CONTEXTS)
        return -1;
    return (int)(o - contexts);
}

bool ts_context_is_live(int context) {
    return context >= 0 && contexts[context].live;
}

ze_device_handle_t ts_device(int card) {
    return (ze_device_handle_t)&cards[card];
}

ze_driver_handle_t ts_driver_handle(void) {
    return (ze_driver_handle_t)&the_driver;
}

int ts_card_number(ze_device_handle_t device) {
    const struct object *o = (const struct object *)device;

    if (o < cards || o >= cards + TS_CARDS)
        return -1;
    return (int)(o - cards);
}

void ts_driver_begin(uint64_t seed) {
    memset(&ts_driver, 0, sizeof ts_driver);
    for (int i = 0; i < TS_CARDS; i++)
        ts_driver.vram[i] = (uint64_t)(8 + ts_mix(seed + 17) % 56) << 20;
    ts_device_begin(seed);
    the_driver.live = true;
    for (int i = 0; i < TS_CARDS; i++)
        cards[i].number = i;
    arena = mmap((void *)ARENA, (size_t)PAGES * TS_PAGE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (arena != (void *)ARENA)
        ts_violation("no room for the driver's addresses");
}

/* --- what the kernel tells (fdinfo) ------------------------------------------------------------------------------- */

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        ts_violation("cannot write %s", path);
    close(fd);
}

void ts_kernel_tells(void) {
    char path[200], text[512];

    if (!ts_driver.kernel[0] || ts_is_child())
        return;
    for (int i = 0; i < TS_CARDS; i++) {
        snprintf(path, sizeof path, "%s/%d", ts_driver.kernel, 7 + i);
        if (!ts_driver.fdinfo) {
            unlink(path);
            continue;
        }
        snprintf(
            text, sizeof text,
            "pos:\t0\ndrm-driver:\txe\ndrm-client-id:\t%d\ndrm-pdev:\t0000:%02x:00.0\ndrm-total-vram0:\t%llu KiB\n",
            5 + i, 3 + i, (unsigned long long)ts_driver.used[i] >> 10);
        write_file(path, text);
    }
}

void ts_driver_ends(void) {
    for (int i = 0; i < TS_CARDS; i++) {
        ts_shared->used[i] -= ts_driver.used[i];
        ts_shared->limited[i] -= ts_driver.limited[i];
        ts_driver.used[i] = 0;
    }
    ts_driver.fdinfo = false;
    ts_kernel_tells();
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static bool fits(uintptr_t base, size_t pages, size_t alignment) {
    size_t first = (base - ARENA) / TS_PAGE;

    if ((alignment && base % alignment) || first + pages > PAGES)
        return false;
    for (size_t i = first; i < first + pages; i++)
        if (page_taken[i])
            return false;
    return true;
}

/* What was freed last comes first. */
static uintptr_t find_room(size_t pages, size_t alignment) {
    for (unsigned i = 0; i < RECENT && i < recent_count; i++) {
        uintptr_t base = recent[(recent_count - 1 - i) % RECENT];

        if (fits(base, pages, alignment))
            return base;
    }
    for (size_t i = 0; i < PAGES - PAST_PAGES; i++)
        if (fits(ARENA + i * TS_PAGE, pages, alignment))
            return ARENA + i * TS_PAGE;
    return 0;
}

static struct ts_block *new_block(void) {
    for (unsigned i = 0; i < block_count; i++)
        if (!blocks[i].live)
            return &blocks[i];
    if (block_count == BLOCKS)
        ts_violation("the driver has given out more than %d blocks", BLOCKS);
    return &blocks[block_count++];
}

static bool is_on_card(enum ts_kind kind) {
    return kind != TS_HOST;
}

/* Memory past us is out of its reach, and so is shared memory. */
static bool is_limited(const struct ts_block *b) {
    return b->kind == TS_DEVICE && !b->past_us;
}

static void count(int card, bool limited, int64_t bytes) {
    ts_driver.used[card] += (uint64_t)bytes;
    ts_shared->used[card] += (uint64_t)bytes;
    if (bytes > 0 && ts_driver.spills && ts_shared->used[card] > ts_driver.vram[card])
        ts_violation("the processes hold %llu bytes of card %d, which has %llu",
                     (unsigned long long)ts_shared->used[card], card, (unsigned long long)ts_driver.vram[card]);
    if (limited)
        ts_driver.limited[card] += (uint64_t)bytes;
    if (limited)
        ts_shared->limited[card] += (uint64_t)bytes;
    if (bytes > 0 && ts_driver.most_of_all && ts_shared->limited[card] > ts_driver.most_of_all)
        ts_violation("the group holds %llu bytes of card %d, more than its limit of %llu",
                     (unsigned long long)ts_shared->limited[card], card, (unsigned long long)ts_driver.most_of_all);
    if (bytes > 0 && ts_driver.most && ts_driver.limited[card] > ts_driver.most)
        ts_violation("the process holds %llu bytes of card %d, more than its limit of %llu",
                     (unsigned long long)ts_driver.limited[card], card, (unsigned long long)ts_driver.most);
    ts_kernel_tells();
}

static struct ts_block *give_out(enum ts_kind kind, int c, int card, uintptr_t base, size_t size, bool past_us) {
    size_t pages = (size + TS_PAGE - 1) / TS_PAGE;
    struct ts_block *b = new_block();

    memset(&page_taken[(base - ARENA) / TS_PAGE], 1, pages);
    *b = (struct ts_block){.base = base,
                           .size = size,
                           .room = pages * TS_PAGE,
                           .kind = kind,
                           .card = card,
                           .context = c,
                           .live = true,
                           .past_us = past_us,
                           .given = ts_now()};
    ts_driver.blocks++;
    if (is_on_card(kind))
        count(card, is_limited(b), (int64_t)size);
    if (ts_truth.given)
        ts_truth.given(b);
    return b;
}

static ze_result_t allocate(enum ts_kind kind, ze_context_handle_t context, ze_device_handle_t device, size_t size,
                            size_t alignment, const void *desc, void **out) {
    int c = ts_context_number(context), card = ts_card_number(device);
    size_t pages = (size + TS_PAGE - 1) / TS_PAGE;
    uintptr_t base;

    if (!context || (kind != TS_HOST && !device))
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!ts_context_is_live(c))
        ts_violation("the driver is asked to allocate through context %d, which was destroyed", c);
    if (card < 0)
        card = 0;
    if (alignment & (alignment - 1))
        return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    if (!size || size > (size_t)1 << 32)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    if (ts_driver.refuse_alloc) {
        ts_driver.refuse_alloc--;
        return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    if (is_on_card(kind) && !ts_driver.spills && ts_driver.used[card] + size > ts_driver.vram[card])
        return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    base = find_room(pages, alignment);
    if (!base)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    give_out(kind, c, card, base, size, false);
    *out = (void *)base;
    return ZE_RESULT_SUCCESS;
}

void *ts_allocate_past(int context, size_t size, bool fresh) {
    size_t pages = (size + TS_PAGE - 1) / TS_PAGE;
    struct ts_block *b;
    uintptr_t base;

    if (ts_driver.refuse_alloc || (!ts_driver.spills && ts_driver.used[0] + size > ts_driver.vram[0]))
        return NULL;
    if (!fresh)
        base = find_room(pages, 0);
    else if (past_at + pages <= PAST_PAGES)
        base = ARENA + (PAGES - PAST_PAGES + past_at) * TS_PAGE;
    else
        return NULL;
    if (fresh)
        past_at += pages;
    b = give_out(TS_DEVICE, context, 0, base, size, true);
    return (void *)b->base;
}

static void take_back(struct ts_block *b) {
    b->live = false;
    memset(&page_taken[(b->base - ARENA) / TS_PAGE], 0, b->room / TS_PAGE);
    if (b->base < ARENA + (uintptr_t)(PAGES - PAST_PAGES) * TS_PAGE)
        recent[recent_count++ % RECENT] = b->base;
    ts_driver.blocks--;
    if (is_on_card(b->kind))
        count(b->card, is_limited(b), -(int64_t)b->size);
}

void ts_block_goes(const struct ts_block *b) {
    take_back((struct ts_block *)(uintptr_t)b);
}

static ze_result_t give_back(ze_context_handle_t context, void *ptr, unsigned policy) {
    struct ts_block *b = (struct ts_block *)(uintptr_t)ts_block_at((uintptr_t)ptr);

    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!ptr)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!ts_context_is_live(ts_context_number(context)))
        ts_violation("the driver is asked to free %p through context %d, which was destroyed", ptr,
                     ts_context_number(context));
    if (b && ts_driver.refuse_free) {
        ts_driver.refuse_free--;
        b->refused = true;
        if (ts_truth.refused)
            ts_truth.refused();
        return ts_driver.refusal;
    }
    if (ts_truth.taken)
        ts_truth.taken((uintptr_t)ptr, b);
    if (!b)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    ts_device_frees(b, policy);
    take_back(b);
    return ZE_RESULT_SUCCESS;
}

/* --- the door ----------------------------------------------------------------------------------------------------- */

/* One that says the same at any time. */
#define PLAIN(name, parameters, answer)                                                                                \
    ze_result_t name parameters;                                                                                       \
    ze_result_t name parameters {                                                                                      \
        return answer;                                                                                                 \
    }

TS_DOOR(zeMemAllocDevice,
        (ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t size, size_t alignment,
         ze_device_handle_t device, void **out),
        out ? *out : NULL, allocate(TS_DEVICE, context, device, size, alignment, desc, out))
TS_DOOR(zeMemAllocHost,
        (ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc, size_t size, size_t alignment, void **out),
        out ? *out : NULL, allocate(TS_HOST, context, NULL, size, alignment, desc, out))
TS_DOOR(zeMemAllocShared,
        (ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, const ze_host_mem_alloc_desc_t *host,
         size_t size, size_t alignment, ze_device_handle_t device, void **out),
        out ? *out : NULL, allocate(TS_SHARED, context, device, size, alignment, desc &&host ? desc : NULL, out))
TS_DOOR(zeMemFree, (ze_context_handle_t context, void *ptr), ptr, give_back(context, ptr, 0))
TS_DOOR(zeMemFreeExt, (ze_context_handle_t context, const ze_memory_free_ext_desc_t *desc, void *ptr), ptr,
        desc ? give_back(context, ptr, desc->freePolicy) : ZE_RESULT_ERROR_INVALID_NULL_POINTER)

static ze_result_t answer_properties(const void *ptr, ze_memory_allocation_properties_t *p,
                                     ze_device_handle_t *device) {
    const struct ts_block *b = ts_block_around((uintptr_t)ptr);

    if (!p || !ptr)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    p->type = ZE_MEMORY_TYPE_UNKNOWN;
    if (device)
        *device = NULL;
    if (!b)
        return ZE_RESULT_SUCCESS;
    p->type = ZE_MEMORY_TYPE_DEVICE;
    if (b->kind == TS_HOST)
        p->type = ZE_MEMORY_TYPE_HOST;
    if (b->kind == TS_SHARED)
        p->type = ZE_MEMORY_TYPE_SHARED;
    p->id = b->base;
    p->pageSize = TS_PAGE;
    if (device)
        *device = ts_device(b->card);
    return ZE_RESULT_SUCCESS;
}

TS_DOOR(zeMemGetAllocProperties,
        (ze_context_handle_t context, const void *ptr, ze_memory_allocation_properties_t *properties,
         ze_device_handle_t *device),
        ptr, context ? answer_properties(ptr, properties, device) : ZE_RESULT_ERROR_INVALID_NULL_HANDLE)

static ze_result_t answer_range(const void *ptr, void **base, size_t *size) {
    const struct ts_block *b = ts_block_around((uintptr_t)ptr);
    uintptr_t start = b ? b->base : 0;
    size_t bytes = b ? b->size : 0;

    for (int i = 0; i < IMPORTS; i++)
        if (imports[i].live && (uintptr_t)ptr - imports[i].base < imports[i].size) {
            start = imports[i].base;
            bytes = imports[i].size;
        }
    if (!start)
        return (ze_result_t)DRIVER_UNKNOWN;
    if (base)
        *base = (void *)start;
    if (size)
        *size = bytes;
    return ZE_RESULT_SUCCESS;
}

TS_DOOR(zeMemGetAddressRange, (ze_context_handle_t context, const void *ptr, void **base, size_t *size), ptr,
        context ? answer_range(ptr, base, size) : ZE_RESULT_ERROR_INVALID_NULL_HANDLE)

/* --- contexts and residency --------------------------------------------------------------------------------------- */

static ze_result_t create_context(ze_context_handle_t *out) {
    for (int i = 0; i < TS_CONTEXTS; i++)
        if (!contexts[i].live) {
            contexts[i].live = true;
            contexts[i].number = i;
            *out = (ze_context_handle_t)&contexts[i];
            return ZE_RESULT_SUCCESS;
        }
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

TS_DOOR(zeContextCreate, (ze_driver_handle_t driver, const ze_context_desc_t *desc, ze_context_handle_t *out), driver,
        desc ? create_context(out) : ZE_RESULT_ERROR_INVALID_NULL_POINTER)
TS_DOOR(zeContextCreateEx,
        (ze_driver_handle_t driver, const ze_context_desc_t *desc, uint32_t number, ze_device_handle_t *devices,
         ze_context_handle_t *out),
        driver, desc || number || devices ? create_context(out) : ZE_RESULT_ERROR_INVALID_NULL_POINTER)

static ze_result_t destroy_context(ze_context_handle_t context) {
    int c = ts_context_number(context);

    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!ts_context_is_live(c))
        ts_violation("the driver is asked to destroy context %d twice", c);
    if (ts_truth.context_gone)
        ts_truth.context_gone(c);
    contexts[c].live = false;
    return ZE_RESULT_SUCCESS;
}

TS_DOOR(zeContextDestroy, (ze_context_handle_t context), context, destroy_context(context))

static ze_result_t make_resident(ze_context_handle_t context, ze_device_handle_t device, const void *ptr, bool in) {
    struct ts_block *b = (struct ts_block *)(uintptr_t)ts_block_around((uintptr_t)ptr);
    int card = ts_card_number(device);

    if (!context || !device || card < 0)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!b)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (in)
        b->resident |= 1u << card;
    else
        b->resident &= ~(1u << card);
    return ZE_RESULT_SUCCESS;
}

TS_DOOR(zeContextMakeMemoryResident, (ze_context_handle_t context, ze_device_handle_t device, void *ptr, size_t size),
        ptr, size ? make_resident(context, device, ptr, true) : ZE_RESULT_ERROR_INVALID_SIZE)
TS_DOOR(zeContextEvictMemory, (ze_context_handle_t context, ze_device_handle_t device, void *ptr, size_t size), ptr,
        size ? make_resident(context, device, ptr, false) : ZE_RESULT_ERROR_INVALID_SIZE)

/* --- memory between processes ------------------------------------------------------------------------------------- */

struct handle { /* what is in an IPC handle of this driver */
    uint64_t base, size, given;
};

static ze_result_t export_block(const void *ptr, ze_ipc_mem_handle_t *out) {
    struct ts_block *b = (struct ts_block *)(uintptr_t)ts_block_around((uintptr_t)ptr);
    struct handle h;

    if (!ptr || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!b)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    b->exported = true;
    h = (struct handle){.base = b->base, .size = b->size, .given = b->given};
    memset(out, 0, sizeof *out);
    memcpy(out->data + 8, &h, sizeof h); /* behind where other drivers have a descriptor: there is none */
    memset(out->data, 0xff, 4);
    ts_driver.handles++;
    return ZE_RESULT_SUCCESS;
}

TS_DOOR(zeMemGetIpcHandle, (ze_context_handle_t context, const void *ptr, ze_ipc_mem_handle_t *handle), ptr,
        context ? export_block(ptr, handle) : ZE_RESULT_ERROR_INVALID_NULL_HANDLE)

TS_DOOR(zeMemPutIpcHandle, (ze_context_handle_t context, ze_ipc_mem_handle_t handle), handle.data[0] ? context : NULL,
        context ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_HANDLE)

static ze_result_t open_import(ze_ipc_mem_handle_t handle, void **out) {
    struct handle h;

    memcpy(&h, handle.data + 8, sizeof h);
    if (!h.base || !out)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < IMPORTS; i++)
        if (!imports[i].live) {
            imports[i] = (struct import){imports_at + i * ((uintptr_t)64 << 20), h.size, true};
            ts_driver.imports++;
            *out = (void *)imports[i].base;
            return ZE_RESULT_SUCCESS;
        }
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

TS_DOOR(zeMemOpenIpcHandle,
        (ze_context_handle_t context, ze_device_handle_t device, ze_ipc_mem_handle_t handle,
         ze_ipc_memory_flags_t flags, void **out),
        flags ? NULL : device, context ? open_import(handle, out) : ZE_RESULT_ERROR_INVALID_NULL_HANDLE)

/* As Intel's driver has it: a block that holds this address is freed by it. */
static ze_result_t close_import(ze_context_handle_t context, const void *ptr) {
    for (int i = 0; i < IMPORTS; i++)
        if (imports[i].live && imports[i].base == (uintptr_t)ptr) {
            imports[i].live = false;
            ts_driver.imports--;
            return ZE_RESULT_SUCCESS;
        }
    if (ts_block_at((uintptr_t)ptr))
        return give_back(context, (void *)(uintptr_t)ptr, 0);
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

TS_DOOR(zeMemCloseIpcHandle, (ze_context_handle_t context, const void *ptr), ptr,
        context ? close_import(context, ptr) : ZE_RESULT_ERROR_INVALID_NULL_HANDLE)

/* --- virtual and physical memory ---------------------------------------------------------------------------------- */

static ze_result_t reserve(size_t size, void **out) {
    if (!size || size % TS_PAGE)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    for (unsigned i = 0; i < RANGES; i++)
        if (!ranges[i].live) {
            ranges[i] = (struct range){.base = ranges_at + i * ((uintptr_t)64 << 20), .size = size, .live = true};
            ts_driver.ranges++;
            *out = (void *)ranges[i].base;
            return ZE_RESULT_SUCCESS;
        }
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static struct range *range_around(const void *ptr) {
    for (int i = 0; i < RANGES; i++)
        if (ranges[i].live && (uintptr_t)ptr - ranges[i].base < ranges[i].size)
            return &ranges[i];
    return NULL;
}

static ze_result_t unreserve(const void *ptr, size_t size) {
    struct range *r = range_around(ptr);

    if (!r || r->base != (uintptr_t)ptr || r->size != size || r->mapped)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    r->live = false;
    ts_driver.ranges--;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t create_physical(ze_device_handle_t device, const ze_physical_mem_desc_t *desc,
                                   ze_physical_mem_handle_t *out) {
    int card = ts_card_number(device);

    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (card < 0)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc->size || desc->size % TS_PAGE)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    if (!ts_driver.spills && ts_driver.used[card] + desc->size > ts_driver.vram[card])
        return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    for (int i = 0; i < OBJECTS; i++)
        if (!physicals[i].object.live) {
            physicals[i] = (struct physical){.object.live = true, .size = desc->size, .card = card};
            ts_driver.physical++;
            count(card, true, (int64_t)desc->size);
            *out = (ze_physical_mem_handle_t)&physicals[i];
            return ZE_RESULT_SUCCESS;
        }
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

static struct physical *physical_of(ze_physical_mem_handle_t handle) {
    struct physical *p = (struct physical *)handle;

    return p >= physicals && p < physicals + OBJECTS && p->object.live ? p : NULL;
}

static ze_result_t destroy_physical(ze_physical_mem_handle_t handle) {
    struct physical *p = physical_of(handle);

    if (!p || p->maps)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    p->object.live = false;
    ts_driver.physical--;
    count(p->card, true, -(int64_t)p->size);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t map_physical(const void *ptr, size_t size, ze_physical_mem_handle_t handle) {
    struct physical *p = physical_of(handle);
    struct range *r = range_around(ptr);

    if (!p || !r || r->mapped || size != p->size || (uintptr_t)ptr + size > r->base + r->size)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    r->mapped = p;
    r->mapped_at = (uintptr_t)ptr;
    p->maps++;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t unmap_physical(const void *ptr, size_t size) {
    struct range *r = range_around(ptr);

    if (!r || !r->mapped || r->mapped_at != (uintptr_t)ptr || r->mapped->size != size)
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    r->mapped->maps--;
    r->mapped = NULL;
    return ZE_RESULT_SUCCESS;
}

TS_DOOR(zeVirtualMemReserve, (ze_context_handle_t context, const void *start, size_t size, void **out), start,
        context ? reserve(size, out) : ZE_RESULT_ERROR_INVALID_NULL_HANDLE)
TS_DOOR(zeVirtualMemFree, (ze_context_handle_t context, const void *ptr, size_t size), ptr,
        context ? unreserve(ptr, size) : ZE_RESULT_ERROR_INVALID_NULL_HANDLE)
TS_DOOR(zeVirtualMemMap,
        (ze_context_handle_t context, const void *ptr, size_t size, ze_physical_mem_handle_t physical, size_t offset,
         ze_memory_access_attribute_t access),
        ptr, context &&access && !offset ? map_physical(ptr, size, physical) : ZE_RESULT_ERROR_INVALID_ARGUMENT)
TS_DOOR(zeVirtualMemUnmap, (ze_context_handle_t context, const void *ptr, size_t size), ptr,
        context ? unmap_physical(ptr, size) : ZE_RESULT_ERROR_INVALID_NULL_HANDLE)
TS_DOOR(zePhysicalMemCreate,
        (ze_context_handle_t context, ze_device_handle_t device, ze_physical_mem_desc_t *desc,
         ze_physical_mem_handle_t *out),
        device, context ? create_physical(device, desc, out) : ZE_RESULT_ERROR_INVALID_NULL_HANDLE)
TS_DOOR(zePhysicalMemDestroy, (ze_context_handle_t context, ze_physical_mem_handle_t physical), physical,
        context ? destroy_physical(physical) : ZE_RESULT_ERROR_INVALID_NULL_HANDLE)
PLAIN(zeVirtualMemQueryPageSize, (ze_context_handle_t context, ze_device_handle_t device, size_t size, size_t *page),
      (*page = TS_PAGE, context &&device &&size ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT))

/* --- drivers and devices ------------------------------------------------------------------------------------------ */

static ze_result_t drivers(uint32_t *number, ze_driver_handle_t *out) {
    if (out && *number)
        *out = ts_driver_handle();
    *number = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t devices(uint32_t *number, ze_device_handle_t *out) {
    for (int i = 0; out && i < TS_CARDS && (uint32_t)i < *number; i++)
        out[i] = ts_device(i);
    if (!out || *number > TS_CARDS)
        *number = TS_CARDS;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t device_properties(ze_device_handle_t device, ze_device_properties_t *p) {
    int card = ts_card_number(device);

    if (card < 0)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    p->type = ZE_DEVICE_TYPE_GPU;
    p->vendorId = 0x8086;
    p->deviceId = 0xe20b;
    p->maxMemAllocSize = ts_driver.vram[card];
    memset(p->uuid.id, 0x10 + card, sizeof p->uuid.id);
    snprintf(p->name, sizeof p->name, "turnstile");
    return ZE_RESULT_SUCCESS;
}

/* A chained structure may ask how much is free. */
static void answer_usable(void *next, int card) {
    struct usable {
        uint32_t type;
        void *next;
        uint64_t bytes;
    } * u;

    for (u = next; u; u = u->next)
        if (u->type == 0x20041)
            u->bytes = ts_driver.vram[card] - ts_driver.used[card];
}

static ze_result_t memory_properties(ze_device_handle_t device, uint32_t *number, ze_device_memory_properties_t *p) {
    int card = ts_card_number(device);

    if (card < 0)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (p && *number) {
        p->totalSize = ts_driver.vram[card];
        answer_usable(p->pNext, card);
    }
    *number = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t pci(ze_device_handle_t device, ze_pci_ext_properties_t *p) {
    memset(&p->address, 0, sizeof p->address);
    p->address.bus = 3 + (uint32_t)ts_card_number(device);
    return ZE_RESULT_SUCCESS;
}

PLAIN(zeInit, (ze_init_flags_t flags), flags <= 3 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ENUMERATION)
PLAIN(zeDriverGet, (uint32_t * number, ze_driver_handle_t *out), drivers(number, out))
TS_DOOR(zeDeviceGet, (ze_driver_handle_t driver, uint32_t *number, ze_device_handle_t *out), driver,
        devices(number, out))
TS_DOOR(zeDeviceGetProperties, (ze_device_handle_t device, ze_device_properties_t *p), device,
        device_properties(device, p))
TS_DOOR(zeDeviceGetMemoryProperties, (ze_device_handle_t device, uint32_t *number, ze_device_memory_properties_t *p),
        device, memory_properties(device, number, p))
PLAIN(zeDevicePciGetPropertiesExt, (ze_device_handle_t device, ze_pci_ext_properties_t *p), pci(device, p))
