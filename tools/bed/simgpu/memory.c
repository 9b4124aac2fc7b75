/* zeMem*: allocate, free, and what a pointer is. */
#include "simgpu.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool wants_own_buffer(const void *extensions) {
    for (const struct sim_next *next = extensions; next; next = next->next) {
        if (next->stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC)
            return true;
    }
    return false;
}

static const ze_external_memory_import_fd_t *import_of(const void *extensions) {
    for (const struct sim_next *next = extensions; next; next = next->next) {
        if (next->stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD)
            return (const void *)next;
    }
    return NULL;
}

size_t sim_max_alloc(void) {
    if (sim_config.max_alloc)
        return sim_config.max_alloc;
    return sim_config.spill ? 4 * sim_config.vram : sim_config.vram;
}

/* As Intel's driver: one that relaxes nothing is an error. */
static ze_result_t check_relaxed(const void *extensions, bool *relaxed) {
    *relaxed = false;
    for (const struct sim_next *next = extensions; next; next = next->next) {
        const ze_relaxed_allocation_limits_exp_desc_t *desc = (const void *)next;
        if (next->stype != ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC)
            continue;
        if (!(desc->flags & ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE))
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        *relaxed = true;
    }
    return ZE_RESULT_SUCCESS;
}

/* As Intel's driver: a size that it does not take clears the pointer, other failures leave it. */
static ze_result_t check_size(size_t size, size_t alignment, bool relaxed, void **out) {
    if (size == 0 || (size > sim_max_alloc() && !relaxed) || size > (size_t)1 << 46) {
        *out = NULL;
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    }
    if ((alignment & (alignment - 1)) != 0 || alignment > SIM_GIB)
        return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    return ZE_RESULT_SUCCESS;
}

/* `extensions` are those of the description that names the kind. */
static ze_result_t allocate(enum sim_kind kind, struct sim_context *context, struct sim_device *device, size_t size,
                            size_t alignment, const void *extensions, void **out) {
    bool own = wants_own_buffer(extensions), relaxed;
    ze_result_t result = check_relaxed(extensions, &relaxed);
    if (result == ZE_RESULT_SUCCESS)
        result = check_size(size, alignment, relaxed, out);
    if (result != ZE_RESULT_SUCCESS)
        return result;
    sim_spend(sim_config.alloc_cost);
    pthread_mutex_lock(&sim.memory);
    if (!own && kind != SIM_SHARED && size <= SIM_POOLED && alignment <= SIM_PAGE) {
        result = sim_pool_alloc(kind, context, device, size, alignment, out);
    } else {
        struct sim_backing *backing;
        result = sim_backing_new(kind, context, device, size, alignment, -1, &backing);
        if (result == ZE_RESULT_SUCCESS)
            *out = (void *)backing->first;
    }
    pthread_mutex_unlock(&sim.memory);
    return result;
}

ze_result_t sim_zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t size,
                                 size_t alignment, ze_device_handle_t device, void **out) {
    if (!context || !device)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    const ze_external_memory_import_fd_t *import = import_of(desc->pNext);
    if (import)
        return sim_import_fd(sim_context(context), sim_device(device), import->fd, out);
    return allocate(SIM_DEVICE, sim_context(context), sim_device(device), size, alignment, desc->pNext, out);
}

ze_result_t sim_zeMemAllocHost(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc, size_t size,
                               size_t alignment, void **out) {
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return allocate(SIM_HOST, sim_context(context), NULL, size, alignment, desc->pNext, out);
}

ze_result_t sim_zeMemAllocShared(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *device_desc,
                                 const ze_host_mem_alloc_desc_t *host_desc, size_t size, size_t alignment,
                                 ze_device_handle_t device, void **out) {
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!device_desc || !host_desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return allocate(SIM_SHARED, sim_context(context), sim_device(device), size, alignment, device_desc->pNext, out);
}

bool sim_find(const void *p, struct sim_block *out) {
    uintptr_t address = (uintptr_t)p;
    struct sim_backing *backing = sim_backing_at(address);
    if (!backing)
        return false;
    if (backing->slab)
        return sim_pool_find(backing, address, out);
    if (backing->kind == SIM_VIRTUAL)
        return sim_virtual_find(backing, address, out);
    *out = (struct sim_block){
        .backing = backing, .base = backing->first, .size = backing->asked, .offset = backing->first - backing->base};
    return address - out->base < out->size;
}

void sim_release(const struct sim_block *block) {
    if (block->backing->slab)
        sim_pool_free(block->backing, block->base);
    else
        sim_backing_free(block->backing);
}

/* Blocks that DEFER_FREE left to their commands. Memory lock. */
struct deferred {
    struct sim_block block;
    struct deferred *next;
};
static struct deferred *deferred_blocks;
static atomic_int deferred_count;

static bool is_deferred(uintptr_t base) {
    for (const struct deferred *d = deferred_blocks; d; d = d->next) {
        if (d->block.base == base)
            return true;
    }
    return false;
}

static bool defer(const struct sim_block *block) {
    struct deferred *d = malloc(sizeof(*d));
    if (!d)
        return false;
    *d = (struct deferred){.block = *block, .next = deferred_blocks};
    deferred_blocks = d;
    atomic_fetch_add(&deferred_count, 1);
    return true;
}

void sim_free_deferred(void) {
    if (atomic_load(&deferred_count) == 0)
        return;
    pthread_mutex_lock(&sim.memory);
    for (struct deferred **at = &deferred_blocks; *at;) {
        struct deferred *d = *at;
        if (sim_in_use(d->block.base, d->block.size)) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        atomic_fetch_sub(&deferred_count, 1);
        sim_release(&d->block);
        free(d);
    }
    pthread_mutex_unlock(&sim.memory);
}

/* Memory lock held. Only the very start of a live block that is ours to free. */
static bool find_to_free(const void *p, struct sim_block *block) {
    return sim_find(p, block) && block->base == (uintptr_t)p && block->backing->kind != SIM_PHYSICAL &&
           (atomic_load(&deferred_count) == 0 || !is_deferred(block->base));
}

/* Memory lock held. */
static void check_context(const struct sim_context *context) {
    const struct sim_context *c = sim.contexts;
    while (c && c != context)
        c = c->next;
    if (!c)
        sim_context_gone();
}

static ze_result_t release(const struct sim_context *context, void *p,
                           ze_driver_memory_free_policy_ext_flags_t policy) {
    struct sim_block block;
    sim_spend(sim_config.free_cost);
    pthread_mutex_lock(&sim.memory);
    check_context(context);
    bool found = find_to_free(p, &block);
    if (found && (policy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE)) {
        pthread_mutex_unlock(&sim.memory);
        sim_wait_unused(block.base, block.size);
        pthread_mutex_lock(&sim.memory);
        found = find_to_free(p, &block);
    }
    if (found) {
        bool later = (policy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE) && sim_in_use(block.base, block.size);
        if (!later || !defer(&block))
            sim_release(&block);
    }
    pthread_mutex_unlock(&sim.memory);
    return found ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t sim_zeMemFree(ze_context_handle_t context, void *p) {
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    return release(sim_context(context), p, 0);
}

ze_result_t sim_zeMemFreeExt(ze_context_handle_t context, const ze_memory_free_ext_desc_t *desc, void *p) {
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (desc->freePolicy > 3)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    return release(sim_context(context), p, desc->freePolicy);
}

static const ze_memory_type_t type_of[] = {
    [SIM_DEVICE] = ZE_MEMORY_TYPE_DEVICE,   [SIM_HOST] = ZE_MEMORY_TYPE_HOST,
    [SIM_SHARED] = ZE_MEMORY_TYPE_SHARED,   [SIM_PHYSICAL] = ZE_MEMORY_TYPE_DEVICE,
    [SIM_IMPORTED] = ZE_MEMORY_TYPE_DEVICE,
};

static ze_result_t fill_export(struct sim_backing *backing, struct sim_next *first) {
    for (struct sim_next *next = first; next; next = next->next) {
        if (next->stype != ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD)
            continue;
        if (backing->fd < 0)
            return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
        sim_export(backing, -1);
        ((ze_external_memory_export_fd_t *)(void *)next)->fd = dup(backing->fd);
    }
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeMemGetAllocProperties(ze_context_handle_t context, const void *p,
                                        ze_memory_allocation_properties_t *properties, ze_device_handle_t *device) {
    struct sim_block block;
    ze_result_t result = ZE_RESULT_SUCCESS;
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p || !properties)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&sim.memory);
    if (sim_find(p, &block)) {
        properties->type = type_of[block.backing->kind];
        if (block.backing->kind == SIM_PHYSICAL && !block.backing->device)
            properties->type = ZE_MEMORY_TYPE_HOST;
        properties->id = block.backing->id;
        properties->pageSize = block.backing->kind == SIM_HOST ? 4096 : SIM_PAGE;
        if (device)
            *device = (ze_device_handle_t)block.backing->device;
        result = fill_export(block.backing, properties->pNext);
    } else {
        properties->type = ZE_MEMORY_TYPE_UNKNOWN;
        properties->id = 0;
        properties->pageSize = 0;
        if (device)
            *device = NULL;
    }
    pthread_mutex_unlock(&sim.memory);
    return result;
}

ze_result_t sim_zeMemGetAddressRange(ze_context_handle_t context, const void *p, void **base, size_t *size) {
    struct sim_block block;
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&sim.memory);
    bool found = sim_find(p, &block);
    pthread_mutex_unlock(&sim.memory);
    if (!found)
        return SIM_ADDRESS_NOT_FOUND;
    if (base)
        *base = (void *)block.base;
    if (size)
        *size = sim_config.says_half ? block.size / 2 : block.size;
    return ZE_RESULT_SUCCESS;
}
