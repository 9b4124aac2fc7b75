/*
 * Virtual and physical memory. A reservation is address space with a list of mappings; a mapping
 * shows a piece of a physical memory, whose buffer answers for the block (owner, id, export).
 */
#include "simgpu.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct mapping {
    uintptr_t at;
    size_t size, offset;
    struct sim_physical *physical;
    struct mapping *next;
};

struct sim_virtual {
    size_t asked;
    ze_memory_access_attribute_t access;
    struct mapping *mappings;
};

struct sim_physical {
    struct sim_object object;
    struct sim_backing *backing;
    size_t size;
    unsigned mapped;
    bool destroyed; /* goes with its last mapping */
};

static size_t page_size(size_t size) {
    return size >= SIM_UNIT ? SIM_UNIT : SIM_PAGE;
}

static int protection(ze_memory_access_attribute_t access) {
    return access == ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE  ? PROT_READ | PROT_WRITE
           : access == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY ? PROT_READ
                                                           : PROT_NONE;
}

static struct mapping *mapping_at(const struct sim_backing *backing, uintptr_t address) {
    for (struct mapping *m = backing->virtual->mappings; m; m = m->next) {
        if (address - m->at < m->size)
            return m;
    }
    return NULL;
}

bool sim_virtual_find(struct sim_backing *backing, uintptr_t address, struct sim_block *out) {
    const struct mapping *m = mapping_at(backing, address);
    if (!m)
        return false;
    *out = (struct sim_block){.backing = m->physical->backing, .base = m->at, .size = m->size, .offset = m->offset};
    return true;
}

static void drop_physical(struct sim_physical *physical) {
    if (physical->mapped || !physical->destroyed)
        return;
    sim_backing_free(physical->backing);
    free(physical);
}

static void drop_mapping(struct mapping *mapping) {
    mapping->physical->mapped--;
    drop_physical(mapping->physical);
    free(mapping);
}

/* Memory lock held. The reservation that holds the whole range. */
static struct sim_backing *reservation_of(const void *p, size_t size) {
    struct sim_backing *backing = sim_backing_at((uintptr_t)p);
    if (!backing || backing->kind != SIM_VIRTUAL || size > backing->size ||
        (uintptr_t)p - backing->base > backing->size - size)
        return NULL;
    return backing;
}

ze_result_t sim_zeVirtualMemQueryPageSize(ze_context_handle_t context, ze_device_handle_t device, size_t size,
                                          size_t *out) {
    if (!context || !device)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *out = page_size(size);
    return ZE_RESULT_SUCCESS;
}

/* Whether the range could be reserved where it was asked for. */
static bool reserve_at(const void *hint, size_t size, struct sim_backing *backing) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    size_t span = sim_round(size, SIM_UNIT);
    if (!sim_config.hint || !hint || (uintptr_t)hint % SIM_UNIT)
        return false;
    void *at = mmap((void *)(uintptr_t)hint, span, PROT_NONE, flags, -1, 0);
    if (at == MAP_FAILED)
        return false;
    if (at != hint) {
        munmap(at, span);
        return false;
    }
    *backing = (struct sim_backing){.span = (uintptr_t)at, .span_size = span, .base = (uintptr_t)at, .size = size};
    return true;
}

/* Without the setting the hint is not followed: any address will do. */
ze_result_t sim_zeVirtualMemReserve(ze_context_handle_t context, const void *hint, size_t size, void **out) {
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (size == 0 || size % 4096)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    struct sim_backing *backing = calloc(1, sizeof(*backing));
    struct sim_virtual *virtual = calloc(1, sizeof(*virtual));
    if (!backing || !virtual || (!reserve_at(hint, size, backing) && !sim_reserve(size, SIM_UNIT, 0, backing))) {
        free(backing);
        free(virtual);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    backing->kind = SIM_VIRTUAL;
    backing->fd = -1;
    backing->virtual = virtual;
    virtual->asked = size;
    pthread_mutex_lock(&sim.memory);
    sim_backing_index(backing, backing);
    pthread_mutex_unlock(&sim.memory);
    *out = (void *)backing->base;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeVirtualMemFree(ze_context_handle_t context, const void *p, size_t size) {
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&sim.memory);
    struct sim_backing *backing = reservation_of(p, size);
    bool right = backing && backing->base == (uintptr_t)p && backing->virtual->asked == size;
    if (right) {
        struct mapping *next;
        for (struct mapping *m = backing->virtual->mappings; m; m = next) {
            next = m->next;
            drop_mapping(m);
        }
        free(backing->virtual);
        backing->virtual = NULL;
        sim_backing_free(backing);
    }
    pthread_mutex_unlock(&sim.memory);
    return right ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t sim_zePhysicalMemCreate(ze_context_handle_t context, ze_device_handle_t device,
                                    ze_physical_mem_desc_t *desc, ze_physical_mem_handle_t *out) {
    if (!context || !device)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    bool on_host = (desc->flags & 2) != 0; /* ZE_PHYSICAL_MEM_FLAG_ALLOCATE_ON_HOST */
    if (desc->size == 0 || desc->size % (on_host ? 4096 : page_size(desc->size)))
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    struct sim_physical *physical = calloc(1, sizeof(*physical));
    if (!physical)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    sim_object_init(&physical->object);
    physical->size = desc->size;
    pthread_mutex_lock(&sim.memory);
    ze_result_t result = sim_backing_new(SIM_PHYSICAL, sim_context(context), on_host ? NULL : sim_device(device),
                                         desc->size, 0, -1, &physical->backing);
    pthread_mutex_unlock(&sim.memory);
    if (result != ZE_RESULT_SUCCESS) {
        free(physical);
        return result;
    }
    *out = (ze_physical_mem_handle_t)physical;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zePhysicalMemDestroy(ze_context_handle_t context, ze_physical_mem_handle_t handle) {
    struct sim_physical *physical = (struct sim_physical *)handle;
    if (!context || !physical)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    pthread_mutex_lock(&sim.memory);
    physical->destroyed = true;
    drop_physical(physical);
    pthread_mutex_unlock(&sim.memory);
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zePhysicalMemGetProperties(ze_context_handle_t context, ze_physical_mem_handle_t handle,
                                           struct sim_physical_properties *out) {
    const struct sim_physical *physical = (struct sim_physical *)handle;
    if (!context || !physical)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    out->id = physical->backing->id;
    out->size = physical->size;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t check_range(const void *p, size_t size) {
    if (size == 0 || size % page_size(size))
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    if ((uintptr_t)p % page_size(size))
        return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    return ZE_RESULT_SUCCESS;
}

static bool overlaps_mapping(const struct sim_backing *backing, uintptr_t at, size_t size) {
    for (const struct mapping *m = backing->virtual->mappings; m; m = m->next) {
        if (m->at < at + size && at < m->at + m->size)
            return true;
    }
    return false;
}

/* Memory lock held. */
static ze_result_t map(void *p, size_t size, struct sim_physical *physical, size_t offset,
                       ze_memory_access_attribute_t access) {
    struct sim_backing *backing = reservation_of(p, size);
    if (!backing || offset > physical->size || size > physical->size - offset ||
        overlaps_mapping(backing, (uintptr_t)p, size))
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (physical->mapped && physical->backing->device) /* as the real driver: one mapping each */
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    struct mapping *m = malloc(sizeof(*m));
    if (!m)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (mmap(p, size, protection(access), MAP_SHARED | MAP_FIXED | MAP_NORESERVE, physical->backing->fd,
             (off_t)offset) == MAP_FAILED) {
        free(m);
        return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    *m = (struct mapping){
        .at = (uintptr_t)p, .size = size, .offset = offset, .physical = physical, .next = backing->virtual->mappings};
    backing->virtual->mappings = m;
    backing->virtual->access = access;
    physical->mapped++;
    return ZE_RESULT_SUCCESS;
}

ze_result_t sim_zeVirtualMemMap(ze_context_handle_t context, const void *p, size_t size,
                                ze_physical_mem_handle_t handle, size_t offset, ze_memory_access_attribute_t access) {
    struct sim_physical *physical = (struct sim_physical *)handle;
    if (!context || !physical)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (access > ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    ze_result_t result = check_range(p, size);
    if (result == ZE_RESULT_SUCCESS && offset % SIM_PAGE)
        result = ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    if (result != ZE_RESULT_SUCCESS)
        return result;
    pthread_mutex_lock(&sim.memory);
    result = map((void *)(uintptr_t)p, size, physical, offset, access);
    pthread_mutex_unlock(&sim.memory);
    return result;
}

/* Every mapping that lies in the range goes; the reservation has no hole afterwards. */
static void unmap(struct sim_virtual *virtual, uintptr_t from, uintptr_t to) {
    struct mapping **at = &virtual->mappings;
    while (*at) {
        struct mapping *m = *at;
        if (m->at < from || m->at + m->size > to) {
            at = &m->next;
            continue;
        }
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
        if (mmap((void *)m->at, m->size, PROT_NONE, flags, -1, 0) == MAP_FAILED)
            return; /* it stays mapped */
        *at = m->next;
        drop_mapping(m);
    }
}

ze_result_t sim_zeVirtualMemUnmap(ze_context_handle_t context, const void *p, size_t size) {
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    ze_result_t result = check_range(p, size);
    if (result != ZE_RESULT_SUCCESS)
        return result;
    pthread_mutex_lock(&sim.memory);
    struct sim_backing *backing = reservation_of(p, size);
    if (backing)
        unmap(backing->virtual, (uintptr_t)p, (uintptr_t)p + size);
    pthread_mutex_unlock(&sim.memory);
    return backing ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t sim_zeVirtualMemSetAccessAttribute(ze_context_handle_t context, const void *p, size_t size,
                                               ze_memory_access_attribute_t access) {
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (access > ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    pthread_mutex_lock(&sim.memory);
    struct sim_backing *backing = reservation_of(p, size);
    if (backing) {
        backing->virtual->access = access;
        for (const struct mapping *m = backing->virtual->mappings; m; m = m->next) {
            if (m->at >= (uintptr_t)p && m->at + m->size <= (uintptr_t)p + size)
                mprotect((void *)m->at, m->size, protection(access));
        }
    }
    pthread_mutex_unlock(&sim.memory);
    return backing ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

/* One attribute for the whole reservation, as the real driver keeps it. */
ze_result_t sim_zeVirtualMemGetAccessAttribute(ze_context_handle_t context, const void *p, size_t size,
                                               ze_memory_access_attribute_t *access, size_t *out) {
    if (!context)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p || !access || !out)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    pthread_mutex_lock(&sim.memory);
    struct sim_backing *backing = reservation_of(p, size);
    if (backing) {
        *access = backing->virtual->access;
        *out = backing->virtual->asked;
    }
    pthread_mutex_unlock(&sim.memory);
    return backing ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}
