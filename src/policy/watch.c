/*
 * Notes what reaches Level Zero while a thread lets a runtime allocate one block (sycl/probe.c). The same call may pass
 * a second hook of ours further down: the first one counts.
 */
#include "policy/policy.h"

void zr_watch_alloc(struct zr_watch *w, uint32_t hook, ze_context_handle_t context,
                    const ze_device_mem_alloc_desc_t *desc, size_t size, ze_device_handle_t device) {
    if (w->allocated || size < w->size)
        return;
    w->allocated = true;
    w->made = size;
    w->hook = hook;
    w->context = context;
    w->device = device;
    w->ordinal = desc ? desc->ordinal : 0;
    w->flags = desc ? desc->flags : 0;
}

void zr_watch_resident(struct zr_watch *w, uint32_t hook, ze_device_handle_t device, size_t size) {
    if (w->allocated && !w->freed && hook == w->hook && size >= w->size && w->residents < ZR_WATCH_DEVICES)
        w->resident[w->residents++] = device;
}

void zr_watch_free(struct zr_watch *w, const ze_memory_free_ext_desc_t *desc, bool ext) {
    if (!w->allocated || w->freed)
        return;
    w->freed = true;
    w->frees_ext = ext;
    w->free_policy = desc ? (uint32_t)desc->freePolicy : 0;
}

void zr_watch_export(struct zr_watch *w, const ze_ipc_mem_handle_t *handle) {
    w->exported = true;
    w->handle = *handle;
}
