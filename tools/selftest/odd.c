/* Operations of the random sequence that a program seldom does: odd arguments, chains, parts, and other contexts. */
#include "selftest/calls.h"

#include <string.h>
#include <unistd.h>

/* Structures and types that are younger than the oldest headers we build with. */
enum { SUB_ALLOCATIONS = 0x00020019 };
#define NOBODYS ((ze_structure_type_t)0x7abcdef0)
struct sub_allocations {
    uint32_t stype;
    void *next;
    uint32_t *count, *sub;
};

static ze_result_t device_block(const void *chain, size_t size, size_t alignment, unsigned device, void **p) {
    ze_device_mem_alloc_desc_t d = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, chain, 0, 0};

    *p = NULL;
    return ze.zeMemAllocDevice(zr_calls.contexts[0], &d, size, alignment, zr_calls.devices[device], p);
}

static void ask_and_free(void *p, size_t size) {
    ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    void *base = NULL;
    size_t length = 0;

    zr_out(" %#x", ze.zeMemGetAllocProperties(zr_calls.contexts[0], (char *)p + size - 1, &props, NULL));
    zr_out(" type %u", props.type);
    zr_out(" %#x", ze.zeMemGetAddressRange(zr_calls.contexts[0], (char *)p + size / 2, &base, &length));
    zr_out(" %s %zu", base == p ? "base" : "elsewhere", length);
    zr_out(" free %#x", ze.zeMemFree(zr_calls.contexts[0], p));
}

/* Over the maximum with and without leave to be, exported and imported by descriptor, and a chain of nobody's. */
void zr_calls_chained(void) {
    ze_relaxed_allocation_limits_exp_desc_t relaxed = {ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC, NULL, 0};
    ze_external_memory_export_desc_t as = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC, NULL,
                                           ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF};
    ze_external_memory_export_fd_t got = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, NULL,
                                          ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, -1};
    ze_external_memory_import_fd_t in = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, NULL,
                                         ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF, -1};
    ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES, .pNext = &got};
    ze_base_desc_t nobodys = {NOBODYS, NULL};
    unsigned device = (unsigned)zr_below(zr_calls.device_count), how = (unsigned)zr_below(4);
    size_t size = 1 + zr_below(8 * MIB), huge = (size_t)(4 + zr_below(9)) << 30;
    ze_result_t r;
    void *p, *q;

    if (!zr_calls_may_take(how ? 2 * size : huge))
        return;
    switch (how) {
    case 0:
        relaxed.flags = (uint32_t)zr_below(3);
        r = device_block(&relaxed, huge, 0, device, &p);
        zr_out(" relaxed %u of %zu: %#x", relaxed.flags, huge, r);
        if (!r)
            ask_and_free(p, huge);
        return;
    case 1:
        r = device_block(&nobodys, size, 0, device, &p);
        zr_out(" nobody's %#x", r);
        if (!r)
            ask_and_free(p, size);
        return;
    default:
        r = device_block(&as, size, 0, device, &p);
        zr_out(" to be exported, of %zu: %#x", size, r);
        if (r)
            return;
        r = ze.zeMemGetAllocProperties(zr_calls.contexts[0], p, &props, NULL);
        zr_out(" descriptor %#x %s", r, got.fd >= 0 ? "there" : "none");
        in.fd = got.fd;
        /* with two cards the driver forgets whose handle it is: see open_what_is_exported */
        if (how == 3 && got.fd >= 0 && zr_calls.device_count == 1) {
            r = device_block(&in, size, 0, device, &q);
            zr_out(" imported %#x", r);
            if (!r)
                zr_out(" free %#x", ze.zeMemFree(zr_calls.contexts[0], q));
        }
        zr_out(" free %#x", ze.zeMemFree(zr_calls.contexts[0], p));
        if (got.fd >= 0 && !(how == 3 && zr_calls.device_count == 1))
            close(got.fd);
    }
}

/* Each wrong in one thing. The loader or the driver refuses; nothing may be left behind. */
void zr_calls_wrong(void) {
    static char ours[64];
    ze_device_mem_alloc_desc_t d = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t h = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    ze_memory_free_ext_desc_t f = {ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, NULL, (uint32_t)zr_below(5)};
    struct slot *s = &zr_calls.slots[zr_below(SLOTS)];
    ze_ipc_mem_handle_t ipc;
    size_t alignment = (size_t)1 << zr_below(40), size = 1 + zr_below(4 * MIB);
    unsigned how = (unsigned)zr_below(12), device = (unsigned)zr_below(zr_calls.device_count);
    ze_result_t r = 0;
    void *p = NULL;

    memset(&ipc, 0x5a, sizeof ipc);
    if (!zr_calls_may_take(size))
        return;
    if (zr_calls.budget && alignment > 2 * MIB)
        alignment = 2 * MIB;
    switch (how) {
    case 0:
        d.flags = 1u << (8 + zr_below(16));
        break;
    case 1:
        h.flags = 1u << (8 + zr_below(16));
        break;
    case 2:
        d.ordinal = (uint32_t)zr_next() | 1u << 31;
        break;
    default:
        break;
    }
    switch (how) {
    case 0:
    case 2:
        r = ze.zeMemAllocDevice(zr_calls.contexts[0], &d, size, 0, zr_calls.devices[device], &p);
        break;
    case 1:
        r = ze.zeMemAllocHost(zr_calls.contexts[0], &h, size, 0, &p);
        break;
    case 3:
        r = ze.zeMemAllocDevice(zr_calls.contexts[0], &d, size, alignment, zr_calls.devices[device], &p);
        break;
    case 4:
        r = ze.zeMemAllocHost(zr_calls.contexts[0], &h, size, alignment, &p);
        break;
    case 5:
        r = ze.zeMemAllocShared(zr_calls.contexts[0], &d, &h, ~(size_t)0 - size, 0, zr_calls.devices[device], &p);
        break;
    case 6:
        r = ze.zeMemFreeExt(zr_calls.contexts[0], &f, ours);
        break;
    case 7:
        r = ze.zeMemGetIpcHandle(zr_calls.contexts[0], ours, &ipc);
        break;
    case 8:
        r = ze.zeContextMakeMemoryResident(zr_calls.contexts[0], zr_calls.devices[device], ours, sizeof ours);
        break;
    case 9:
        r = ze.zeContextEvictMemory(zr_calls.contexts[0], zr_calls.devices[device], ours, sizeof ours);
        break;
    case 10:
        r = ze.zeMemCloseIpcHandle(zr_calls.contexts[0], ours);
        break;
    default:
        r = ze.zeMemGetAddressRange(zr_calls.contexts[0], s->ptr ? s->ptr : ours, NULL, NULL);
        break;
    }
    /* Alignments of the address space's size may or may not find room. */
    zr_out(" %u: %#x %s", how, how == 3 || how == 4 ? (alignment < 1ull << 30 ? r : 0) : r,
           how < 3 || how == 5 ? (p ? "pointer" : "null") : "-");
    if (!r && p) {
        if (alignment < 1ull << 30 && (how == 3 || how == 4))
            zr_out(" %s", (uintptr_t)p % alignment ? "MISALIGNED" : "aligned");
        r = ze.zeMemFree(zr_calls.contexts[0], p);
        if (r)
            zr_out(" free %#x", r);
    }
}

/* A part of a block, and more than it: made resident, copied and filled. */
void zr_calls_partly(void) {
    enum { MOST = 64 * 1024 };
    static unsigned char back[MOST];
    struct slot *s = zr_calls_held(zr_below(SLOTS), 0);
    uint64_t at = zr_next(), length = zr_next();
    unsigned char byte = (unsigned char)zr_next();
    unsigned bad = 0;
    ze_result_t r;

    if (!s->ptr || s->context)
        return;
    at %= s->size;
    length = 1 + length % (s->size - at);
    r = ze.zeContextMakeMemoryResident(zr_calls.contexts[0], zr_calls.devices[s->device], s->ptr + at, length);
    zr_out(" %s resident in part %#x", zr_usm_kinds[s->kind], r);
    length = length < MOST ? length : MOST;
    r = ze.zeCommandListAppendMemoryFill(zr_calls.lists[s->device], s->ptr + at, &byte, 1, length, NULL, 0, NULL);
    if (!r)
        r = ze.zeCommandListAppendMemoryCopy(zr_calls.lists[s->device], back, s->ptr + at, length, NULL, 0, NULL);
    for (size_t i = 0; !r && i < length; i++)
        bad += back[i] != byte;
    zr_out(" fill %llu %#x %u wrong hash %#llx", (unsigned long long)length, r, bad,
           (unsigned long long)zr_hash_bytes(back, length));
}

/* A context of some of the devices: blocks of those that are in it, and of those that are not. */
void zr_calls_few(void) {
    ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    unsigned member = (unsigned)zr_below(zr_calls.device_count), device = (unsigned)zr_below(zr_calls.device_count);
    ze_device_mem_alloc_desc_t d = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    size_t size = 1 + zr_below(4 * MIB);
    ze_context_handle_t c;
    void *p = NULL;
    ze_result_t r;

    if (!zr_calls_may_take(2 * size))
        return;
    r = ze.zeContextCreateEx(zr_calls.driver, &desc, 1, &zr_calls.devices[member], &c);
    zr_out(" context of %u: %#x", member, r);
    if (r)
        return;
    for (int i = 0; i < 2; i++) {
        r = ze.zeMemAllocDevice(c, &d, size, 0, zr_calls.devices[device], &p);
        /* with the code of a lost device, which tells of another thing */
        zr_out(" on %u %s", device, r ? "refused" : "given");
        if (!r) {
            if (member == device)
                zr_out(" resident %#x", ze.zeContextMakeMemoryResident(c, zr_calls.devices[device], p, size));
            zr_out(" free %#x", ze.zeMemFree(c, p));
        }
    }
    zr_out(" destroy %#x", ze.zeContextDestroy(c));
}

/* A reservation filled piece by piece. */
void zr_calls_pieces(void) {
    enum { PIECES = 4 };
    size_t piece = 2 * MIB * (1 + zr_below(4)), got = 0;
    unsigned device = (unsigned)zr_below(zr_calls.device_count), leave = (unsigned)zr_below(PIECES);
    ze_physical_mem_desc_t desc = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, NULL, 0, 2 * piece};
    ze_physical_mem_handle_t physical[PIECES] = {NULL};
    ze_memory_access_attribute_t access = ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
    ze_context_handle_t c = zr_calls.contexts[0];
    char *p = NULL;
    ze_result_t r;

    if (!zr_calls_may_take((uint64_t)PIECES * 2 * piece))
        return;
    r = ze.zeVirtualMemReserve(c, NULL, PIECES * piece, (void **)&p);
    zr_out(" reserve %#x", r);
    if (r)
        return;
    for (unsigned i = 0; i < PIECES; i++) {
        if (i == leave)
            continue;
        r = ze.zePhysicalMemCreate(c, zr_calls.devices[device], &desc, &physical[i]);
        zr_out(" create %#x", r);
        if (r)
            continue;
        /* from its middle */
        r = ze.zeVirtualMemMap(c, p + i * piece, piece, physical[i], i & 1 ? piece : 0,
                               ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE);
        zr_out(" map %#x", r);
    }
    zr_out(" set %#x", ze.zeVirtualMemSetAccessAttribute(c, p, piece, ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY));
    r = ze.zeVirtualMemGetAccessAttribute(c, p, piece, &access, &got);
    zr_out(" access %#x %u %zu", r, access, got);
    for (unsigned i = 0; i < PIECES; i++) {
        if (!physical[i])
            continue;
        zr_out(" unmap %#x", ze.zeVirtualMemUnmap(c, p + i * piece, piece));
        zr_out(" destroy %#x", ze.zePhysicalMemDestroy(c, physical[i]));
    }
    zr_out(" unreserve %#x", ze.zeVirtualMemFree(c, p, PIECES * piece));
}

/* What is said about a block in every shape of the question. */
void zr_calls_shapes(void) {
    struct slot *s = &zr_calls.slots[zr_below(SLOTS)];
    uint32_t count = 0;
    struct sub_allocations sub = {SUB_ALLOCATIONS, NULL, &count, NULL};
    ze_base_properties_t nobodys = {NOBODYS, NULL};
    ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    unsigned how = (unsigned)zr_below(3);
    void *base = NULL;
    ze_result_t r;

    if (!s->ptr)
        return;
    props.pNext = how == 0 ? NULL : how == 1 ? (void *)&sub : (void *)&nobodys;
    r = ze.zeMemGetAllocProperties(zr_calls.contexts[1 - s->context], s->ptr, &props, NULL);
    zr_out(" %u: %#x type %u parts %u", how, r, props.type, count);
    r = ze.zeMemGetAddressRange(zr_calls.contexts[1 - s->context], s->ptr + s->size / 2, &base, NULL);
    zr_out(" base %#x %s", r, base == s->ptr ? "right" : "WRONG");
}

/* Freed through another context than the one it is of, as the driver lets one. */
void zr_calls_elsewhere(void) {
    ze_memory_free_ext_desc_t f = {ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, NULL, (uint32_t)zr_below(4)};
    struct slot *s = &zr_calls.slots[zr_below(SLOTS)];
    bool ext = zr_below(2);
    ze_result_t r;

    if (!s->ptr || s->exported)
        return;
    r = ext ? ze.zeMemFreeExt(zr_calls.contexts[1 - s->context], &f, s->ptr)
            : ze.zeMemFree(zr_calls.contexts[1 - s->context], s->ptr);
    zr_out(" %s free%u through another context %#x", zr_usm_kinds[s->kind], ext ? f.freePolicy : 9, r);
    if (!r)
        memset(s, 0, sizeof *s);
}

/*
 * Shared memory of no device in particular. Without advice: the driver (26.27) holds on to what was advised after it
 * is freed, and crashes at a later command.
 */
void zr_calls_anywhere(void) {
    ze_device_mem_alloc_desc_t d = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t h = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    ze_memory_allocation_properties_t props = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t device = NULL;
    size_t size = 1 + zr_below(4 * MIB);
    char *p = NULL;
    ze_result_t r;

    if (!zr_calls_may_take(2 * size))
        return;
    r = ze.zeMemAllocShared(zr_calls.contexts[0], &d, &h, size, 0, NULL, (void **)&p);
    zr_out(" %#x", r);
    if (r)
        return;
    r = ze.zeMemGetAllocProperties(zr_calls.contexts[0], p, &props, &device);
    zr_out(" properties %#x type %u %s", r, props.type, device ? "a device" : "no device");
    p[0] = p[size - 1] = 7;
    r = ze.zeCommandListAppendMemoryPrefetch(zr_calls.lists[0], p, size);
    zr_out(" prefetch %#x %d %d", r, p[0], p[size - 1]);
    zr_out(" free %#x", ze.zeMemFree(zr_calls.contexts[0], p));
}
