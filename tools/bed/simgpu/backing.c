/* Buffers: a file of sparse memory each, an address range, and the index from an address to both. */
#include "simgpu.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * A buffer never shares a 2 MiB unit of address space with another, so the index is two levels of
 * plain arrays over units: two loads to find a buffer.
 */
#define LEVEL 13
#define FANOUT ((size_t)1 << LEVEL)
static struct sim_backing **index_root[FANOUT];

static struct sim_backing **entry_of(uintptr_t address, bool create) {
    uintptr_t unit = address / SIM_UNIT;
    if (unit >> (2 * LEVEL))
        return NULL;
    struct sim_backing ***leaf = &index_root[unit >> LEVEL];
    if (!*leaf && create)
        *leaf = calloc(FANOUT, sizeof(struct sim_backing *));
    return *leaf ? &(*leaf)[unit & (FANOUT - 1)] : NULL;
}

struct sim_backing *sim_backing_at(uintptr_t address) {
    struct sim_backing **entry = entry_of(address, false);
    struct sim_backing *backing = entry ? *entry : NULL;
    return backing && address - backing->base < backing->size ? backing : NULL;
}

void sim_backing_index(struct sim_backing *backing, struct sim_backing *value) {
    for (uintptr_t at = backing->span; at < backing->span + backing->span_size; at += SIM_UNIT) {
        struct sim_backing **entry = entry_of(at, value != NULL);
        if (entry)
            *entry = value;
    }
}

bool sim_reserve(size_t size, size_t alignment, size_t shift, struct sim_backing *backing) {
    size_t align = alignment > SIM_UNIT ? alignment : SIM_UNIT;
    size_t wanted = sim_round(size + shift, SIM_UNIT), total = wanted + align;
    if (wanted < size || total < wanted)
        return false;
    char *all = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return false;
    size_t before = sim_round((uintptr_t)all, align) - (uintptr_t)all;
    if (before)
        munmap(all, before);
    if (total - before - wanted)
        munmap(all + before + wanted, total - before - wanted);
    backing->span = (uintptr_t)all + before;
    backing->span_size = wanted;
    backing->base = backing->span + shift;
    backing->size = size;
    return true;
}

/* Without a descriptor to spare the memory is anonymous: usable, but not exportable. */
static bool back(struct sim_backing *backing) {
    void *base = (void *)backing->base;
    if (backing->kind == SIM_DEVICE || backing->kind == SIM_PHYSICAL) {
        backing->fd = memfd_create("simgpu", MFD_CLOEXEC);
        if (backing->fd >= 0 && ftruncate(backing->fd, (off_t)backing->size) != 0) {
            close(backing->fd);
            backing->fd = -1;
        }
    }
    if (backing->kind == SIM_PHYSICAL)
        return backing->fd >= 0; /* shown by mappings of reservations */
    int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE | (backing->fd < 0 ? MAP_ANONYMOUS : 0);
    return mmap(base, backing->size, PROT_READ | PROT_WRITE, flags, backing->fd, 0) != MAP_FAILED;
}

/* Host memory has no device; what another process gave us is charged to that one. */
static bool is_in_vram(const struct sim_backing *backing) {
    return backing->device && backing->kind != SIM_IMPORTED && backing->kind != SIM_VIRTUAL;
}

static bool take_vram(struct sim_backing *backing) {
    if (!is_in_vram(backing))
        return true;
    unsigned card = backing->device->card;
    if (sim_machine_take(card, backing->size, false, &backing->spilled))
        return true;
    if (sim_pool_trim(backing->device) && sim_machine_take(card, backing->size, false, &backing->spilled))
        return true;
    return sim_config.spill && sim_machine_take(card, backing->size, true, &backing->spilled);
}

/* Shared memory has a host side besides. */
static bool is_on_host(const struct sim_backing *backing) {
    return backing->kind == SIM_HOST || backing->kind == SIM_SHARED;
}

static void give_back(struct sim_backing *backing) {
    if (is_on_host(backing))
        sim_machine_host(-(int64_t)backing->size);
    if (is_in_vram(backing))
        sim_machine_give(backing->device->card, backing->size, backing->spilled);
}

ze_result_t sim_backing_new(enum sim_kind kind, struct sim_context *context, struct sim_device *device, size_t size,
                            size_t alignment, int fd, struct sim_backing **out) {
    static uint64_t ids;
    struct sim_backing *backing = calloc(1, sizeof(*backing));
    if (!backing)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    backing->kind = kind;
    backing->context = context;
    backing->device = device;
    backing->fd = fd;
    backing->id = ++ids;
    backing->size = sim_round(size, SIM_PAGE);
    if (!take_vram(backing)) {
        free(backing);
        return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    if (is_on_host(backing))
        sim_machine_host((int64_t)backing->size);
    /* One page beside a large boundary: nobody may count on more alignment than was asked for. */
    size_t shift = alignment > SIM_PAGE ? 0 : SIM_PAGE;
    bool placed = kind == SIM_PHYSICAL || sim_reserve(backing->size, alignment, shift, backing);
    if (!placed || !back(backing)) {
        if (backing->span)
            munmap((void *)backing->span, backing->span_size);
        give_back(backing);
        free(backing);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    backing->first = backing->base;
    backing->asked = size;
    if (device)
        backing->resident = 1u << device->card;
    sim_backing_index(backing, backing);
    *out = backing;
    return ZE_RESULT_SUCCESS;
}

static void unmap(struct sim_backing *backing) {
    if (backing->span)
        munmap((void *)backing->span, backing->span_size);
    if (backing->fd >= 0)
        close(backing->fd);
    free(backing);
}

void sim_backing_free(struct sim_backing *backing) {
    sim_unexport(backing);
    sim_backing_index(backing, NULL);
    give_back(backing);
    if (backing->pins)
        backing->dead = true;
    else
        unmap(backing);
}

struct sim_backing *sim_pin(const void *p, size_t size, bool *gone) {
    *gone = false;
    pthread_mutex_lock(&sim.memory);
    struct sim_backing *backing = sim_backing_at((uintptr_t)p);
    if (backing) {
        struct sim_block block;
        if (backing->kind == SIM_VIRTUAL)
            *gone = !sim_virtual_find(backing, (uintptr_t)p, &block);
        if ((uintptr_t)p - backing->base > backing->size - size)
            *gone = true;
        backing->pins++;
    }
    pthread_mutex_unlock(&sim.memory);
    return backing;
}

void sim_unpin(struct sim_backing *backing) {
    if (!backing)
        return;
    pthread_mutex_lock(&sim.memory);
    if (--backing->pins == 0 && backing->dead)
        unmap(backing);
    pthread_mutex_unlock(&sim.memory);
}
