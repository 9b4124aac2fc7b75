/* Contexts; residency per card; and the export of a buffer that residency on a peer takes. */
#include "simgpu.h"

#include <stdlib.h>
#include <sys/mman.h>

struct sim_context *sim_context_new(uint32_t cards) {
    struct sim_context *context = calloc(1, sizeof(*context));
    if (!context)
        return NULL;
    sim_object_init(&context->object);
    context->cards = cards;
    pthread_mutex_lock(&sim.memory);
    context->next = sim.contexts;
    sim.contexts = context;
    pthread_mutex_unlock(&sim.memory);
    return context;
}

ze_result_t sim_zeContextCreateEx(ze_driver_handle_t driver, const ze_context_desc_t *desc, uint32_t count,
                                  ze_device_handle_t *devices, ze_context_handle_t *out) {
    uint32_t cards = 0;
    if (!driver)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!desc || !out || (count && !devices))
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    for (uint32_t i = 0; i < count; i++)
        cards |= 1u << sim_device(devices[i])->card;
    if (count == 0)
        cards = sim_visible_cards();
    *out = (ze_context_handle_t)sim_context_new(cards);
    return *out ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

ze_result_t sim_zeContextCreate(ze_driver_handle_t driver, const ze_context_desc_t *desc, ze_context_handle_t *out) {
    return sim_zeContextCreateEx(driver, desc, 0, NULL, out);
}

/* Blocks of the context stay valid until they are freed, as with the real driver. */
ze_result_t sim_zeContextDestroy(ze_context_handle_t handle) {
    struct sim_context *context = sim_context(handle);
    if (!handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (context == sim.driver.default_context)
        return ZE_RESULT_SUCCESS;
    pthread_mutex_lock(&sim.memory);
    struct sim_context **at = &sim.contexts;
    while (*at && *at != context)
        at = &(*at)->next;
    bool found = *at != NULL;
    if (found) {
        *at = context->next;
        sim_pool_forget(context);
    }
    pthread_mutex_unlock(&sim.memory);
    if (found)
        free(context);
    return found ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t sim_zeContextGetStatus(ze_context_handle_t handle) {
    return handle ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
}

ze_result_t sim_zeContextSystemBarrier(ze_context_handle_t handle, ze_device_handle_t device) {
    return handle && device ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
}

/* The three links of the host mirror: deferred backing, an export, a kernel that fills on export. */
static bool mirrors(const struct sim_backing *backing) {
    return sim_config.mirror && sim_config.kernel >= 618 && !sim.eager && !backing->spilled &&
           backing->kind != SIM_IMPORTED;
}

void sim_export(struct sim_backing *backing, int card) {
    if (!backing->device || (backing->kind == SIM_SHARED || backing->kind == SIM_HOST))
        return;
    if (!backing->exported && mirrors(backing)) {
        backing->mirror =
            mmap(NULL, backing->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (backing->mirror == MAP_FAILED) {
            backing->mirror = NULL;
            sim_say("no host memory for the mirror of %zu bytes", backing->size);
        } else {
            sim_machine_mirror((int64_t)backing->size);
        }
    }
    backing->exported = true;
    if (card < 0 || (unsigned)card == backing->device->card || (backing->importers >> card & 1))
        return;
    backing->importers |= 1u << card;
    sim_machine_import((unsigned)card, false, (int64_t)backing->size);
}

void sim_unexport(struct sim_backing *backing) {
    if (backing->mirror) {
        munmap(backing->mirror, backing->size);
        sim_machine_mirror(-(int64_t)backing->size);
        backing->mirror = NULL;
    }
    for (unsigned card = 0; card < SIM_CARDS; card++) {
        if (backing->importers >> card & 1)
            sim_machine_import(card, false, -(int64_t)backing->size);
    }
    if (backing->shares_card)
        sim_machine_import(backing->device->card, true, -(int64_t)backing->size);
    backing->importers = 0;
    backing->shares_card = false;
    backing->exported = false;
}

static ze_result_t set_residency(ze_context_handle_t context, ze_device_handle_t handle, void *p, bool resident) {
    struct sim_block block;
    if (!context || !handle)
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    if (!p)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    unsigned card = sim_device(handle)->card;
    sim_spend(sim_config.resident_cost);
    pthread_mutex_lock(&sim.memory);
    bool found = sim_find(p, &block);
    if (found && resident) {
        block.backing->resident |= 1u << card;
        if (block.backing->device && card != block.backing->device->card)
            sim_export(block.backing, (int)card);
    } else if (found) {
        block.backing->resident &= ~(1u << card);
    }
    pthread_mutex_unlock(&sim.memory);
    return found ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

ze_result_t sim_zeContextMakeMemoryResident(ze_context_handle_t context, ze_device_handle_t device, void *p,
                                            size_t size) {
    (void)size;
    return set_residency(context, device, p, true);
}

/* The import on the peer stays until the buffer goes. */
ze_result_t sim_zeContextEvictMemory(ze_context_handle_t context, ze_device_handle_t device, void *p, size_t size) {
    (void)size;
    return set_residency(context, device, p, false);
}

uint32_t sim_residency(const void *p) {
    struct sim_block block;
    pthread_mutex_lock(&sim.memory);
    uint32_t cards = sim_find(p, &block) ? block.backing->resident : 0;
    pthread_mutex_unlock(&sim.memory);
    return cards;
}
