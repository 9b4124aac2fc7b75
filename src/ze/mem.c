/* zeMem*: allocation, free, properties, IPC. Each counts, asks the policy and keeps the books. */
#include "pause/pause.h"
#include "policy/policy.h"

/* An allocation of a runtime that is watched. */
static ze_result_t watched_alloc(const struct zr_op *above, struct zr_arrival from,
                                 ze_context_handle_t context,
                                 const ze_device_mem_alloc_desc_t *desc, size_t size,
                                 size_t alignment, ze_device_handle_t device, void **out) {
    bool first = above->watcher->allocates(above->watch, from.hook, context, desc, size, device);
    ze_result_t result =
        ZR_BELOW(&from, zeMemAllocDevice)(context, desc, size, alignment, device, out);

    if (first && result == ZE_RESULT_SUCCESS)
        above->watcher->allocated(above->watch, *out);
    return result;
}

ze_result_t zr_on_zeMemAllocDevice(struct zr_arrival from, ze_context_handle_t context,
                                   const ze_device_mem_alloc_desc_t *desc, size_t size,
                                   size_t alignment, ze_device_handle_t device, void **out) {
    const struct zr_op *watched = zr_op_watched();
    if (unlikely(watched))
        return watched_alloc(watched, from, context, desc, size, alignment, device, out);
    ZR_ENTER_OR_RETURN(zeMemAllocDevice, (context, desc, size, alignment, device, out));
    struct zr_block *block;
    struct zr_alloc a = {.kind = ZR_KIND_DEVICE,
                         .entry = ZR_E_zeMemAllocDevice,
                         .context = context,
                         .device = device,
                         .desc = desc,
                         .size = size,
                         .alignment = alignment,
                         .residents = ZR_RESIDENTS_EXPECTED,
                         .out = out,
                         .reusable = zr_policy_reuses(&op)};
    return zr_policy_alloc(&op, &a, &block);
}

ze_result_t zr_on_zeMemFree(struct zr_arrival from, ze_context_handle_t context, void *ptr) {
    const struct zr_op *watched = zr_op_watched();
    if (unlikely(watched))
        watched->watcher->frees(watched->watch, ptr, NULL, false);
    if (unlikely(zr_exiting()) && zr_pausing() && zr_pause_free(ptr, false))
        return ZE_RESULT_SUCCESS;
    ZR_ENTER_OR_RETURN(zeMemFree, (context, ptr));
    return zr_policy_free(
        &op,
        &(struct zr_free){.context = context, .ptr = ptr, .reusable = zr_policy_believes(&op)});
}

ze_result_t zr_on_zeMemFreeExt(struct zr_arrival from, ze_context_handle_t context,
                               const ze_memory_free_ext_desc_t *desc, void *ptr) {
    const struct zr_op *watched = zr_op_watched();
    if (unlikely(watched))
        watched->watcher->frees(watched->watch, ptr, desc, true);
    if (unlikely(zr_exiting()) && zr_pausing() && zr_pause_free(ptr, false))
        return ZE_RESULT_SUCCESS;
    ZR_ENTER_OR_RETURN(zeMemFreeExt, (context, desc, ptr));
    return zr_policy_free(&op, &(struct zr_free){.context = context,
                                                 .ptr = ptr,
                                                 .desc = desc,
                                                 .ext = true,
                                                 .reusable = zr_policy_believes(&op)});
}

ze_result_t zr_on_zeMemAllocHost(struct zr_arrival from, ze_context_handle_t context,
                                 const ze_host_mem_alloc_desc_t *desc, size_t size,
                                 size_t alignment, void **out) {
    ZR_ENTER_OR_RETURN(zeMemAllocHost, (context, desc, size, alignment, out));
    struct zr_block *block;
    struct zr_alloc a = {.kind = ZR_KIND_HOST,
                         .entry = ZR_E_zeMemAllocHost,
                         .context = context,
                         .desc = desc,
                         .size = size,
                         .alignment = alignment,
                         .out = out,
                         .reusable = zr_config.cache_host && zr_policy_reuses(&op)};
    if (zr_config.cache && !a.reusable)
        zr_count(ZR_F_PASSED_KIND, 1);
    if (unlikely(zr_config.cache_host && !a.reusable && zr_config.cache &&
                 zr_library_who(op.library) == ZR_WHO_RUNTIME))
        zr_warn("cache_host:on has no effect on host memory of SYCL programs: their runtime may "
                "free it while it is in "
                "use; add reuse:always if the program does not");
    return zr_policy_alloc(&op, &a, &block);
}

ze_result_t zr_on_zeMemAllocShared(struct zr_arrival from, ze_context_handle_t context,
                                   const ze_device_mem_alloc_desc_t *device_desc,
                                   const ze_host_mem_alloc_desc_t *host_desc, size_t size,
                                   size_t alignment, ze_device_handle_t device, void **out) {
    ZR_ENTER_OR_RETURN(zeMemAllocShared,
                       (context, device_desc, host_desc, size, alignment, device, out));
    struct zr_block *block;
    struct zr_alloc a = {.kind = ZR_KIND_SHARED,
                         .entry = ZR_E_zeMemAllocShared,
                         .context = context,
                         .device = device,
                         .desc = device_desc,
                         .host_desc = host_desc,
                         .size = size,
                         .alignment = alignment,
                         .out = out};
    if (zr_config.cache)
        zr_count(ZR_F_PASSED_KIND, 1);
    return zr_policy_alloc(&op, &a, &block);
}

/* The answer may hold a file descriptor of the block, which is an export. */
ze_result_t zr_on_zeMemGetAllocProperties(struct zr_arrival from, ze_context_handle_t context,
                                          const void *ptr,
                                          ze_memory_allocation_properties_t *properties,
                                          ze_device_handle_t *device) {
    ZR_ENTER_OR_RETURN(zeMemGetAllocProperties, (context, ptr, properties, device));
    ptr = zr_registry_visible(ptr);
    if (zr_pausing() && zr_pause_properties(ptr, properties, device))
        return ZE_RESULT_SUCCESS;
    ZR_WITHIN(zr_pausing() && properties && properties->pNext ? ZR_GATE_WORK : ZR_GATE_BOOKS);
    ze_result_t result =
        ZR_DOWN(&op, zeMemGetAllocProperties, 0, (context, ptr, properties, device));
    if (result == ZE_RESULT_SUCCESS && properties && unlikely(properties->pNext) &&
        zr_chained(properties, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD))
        zr_registry_exported(ptr, NULL);
    return result;
}

ze_result_t zr_on_zeMemGetAddressRange(struct zr_arrival from, ze_context_handle_t context,
                                       const void *ptr, void **base, size_t *size) {
    ZR_ENTER_OR_RETURN(zeMemGetAddressRange, (context, ptr, base, size));
    if (context && zr_registry_range(ptr, base, size))
        return ZE_RESULT_SUCCESS;
    if (zr_pausing() && context && zr_pause_range(ptr, base, size))
        return ZE_RESULT_SUCCESS;
    ptr = zr_registry_visible(ptr);
    return ZR_DOWN(&op, zeMemGetAddressRange, 0, (context, ptr, base, size));
}

/* After a success, notes that the program has taken the IPC handle of a block. */
static ze_result_t note_exported(ze_result_t result, const void *ptr,
                                 const ze_ipc_mem_handle_t *handle) {
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_exported(ptr, handle);
    return result;
}

/* The same for a runtime that is watched. */
static ze_result_t watched_export(ze_result_t result, const struct zr_op *above,
                                  const ze_ipc_mem_handle_t *handle) {
    if (result == ZE_RESULT_SUCCESS)
        above->watcher->exported(above->watch, handle);
    return result;
}

ze_result_t zr_on_zeMemGetIpcHandle(struct zr_arrival from, ze_context_handle_t context,
                                    const void *ptr, ze_ipc_mem_handle_t *handle) {
    const struct zr_op *watched = zr_op_watched();
    if (unlikely(watched))
        return watched_export(ZR_BELOW(&from, zeMemGetIpcHandle)(context, ptr, handle), watched,
                              handle);
    ZR_ENTER_OR_RETURN(zeMemGetIpcHandle, (context, ptr, handle));
    ZR_WITHIN(ZR_GATE_WORK);
    ptr = zr_registry_mark(ptr, ZR_BLOCK_EXPORTED);
    return note_exported(ZR_DOWN(&op, zeMemGetIpcHandle, 0, (context, ptr, handle)), ptr, handle);
}

ze_result_t zr_on_zeMemGetIpcHandleWithProperties(struct zr_arrival from,
                                                  ze_context_handle_t context, const void *ptr,
                                                  void *next, ze_ipc_mem_handle_t *handle) {
    const struct zr_op *watched = zr_op_watched();
    if (unlikely(watched))
        return watched_export(
            ZR_BELOW(&from, zeMemGetIpcHandleWithProperties)(context, ptr, next, handle), watched,
            handle);
    ZR_ENTER_OR_RETURN(zeMemGetIpcHandleWithProperties, (context, ptr, next, handle));
    ZR_WITHIN(ZR_GATE_WORK);
    ptr = zr_registry_mark(ptr, ZR_BLOCK_EXPORTED);
    return note_exported(
        ZR_DOWN(&op, zeMemGetIpcHandleWithProperties, 0, (context, ptr, next, handle)), ptr,
        handle);
}

ze_result_t zr_on_zeMemOpenIpcHandle(struct zr_arrival from, ze_context_handle_t context,
                                     ze_device_handle_t device, ze_ipc_mem_handle_t handle,
                                     ze_ipc_memory_flags_t flags, void **out) {
    ZR_ENTER_OR_RETURN(zeMemOpenIpcHandle, (context, device, handle, flags, out));
    struct zr_room room = zr_room_begin(&op, zr_device_number(&op, device));
    ze_result_t result;
    do {
        result = ZR_DOWN(&op, zeMemOpenIpcHandle, 0, (context, device, handle, flags, out));
    } while (zr_room_again(&room, result));
    if (result != ZE_RESULT_SUCCESS)
        return result;
    return zr_policy_imported(&op, context, device, ZR_E_zeMemOpenIpcHandle, &handle, out);
}

ze_result_t zr_on_zeMemCloseIpcHandle(struct zr_arrival from, ze_context_handle_t context,
                                      const void *ptr) {
    ZR_ENTER_OR_RETURN(zeMemCloseIpcHandle, (context, ptr));
    struct zr_block *b = zr_registry_take(ptr);
    if (!b)
        ptr = zr_registry_closable(ptr);
    ze_result_t result = ZR_DOWN(&op, zeMemCloseIpcHandle, 0, (context, ptr));
    if (result == ZE_RESULT_SUCCESS)
        zr_policy_closed(ptr);
    return zr_registry_answered(b, result);
}
