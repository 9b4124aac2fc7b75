/* zeMem*: allocation, free, properties, IPC. Each counts, asks the policy and keeps the books. */
#include "policy/policy.h"

ze_result_t zr_on_zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t size,
                                   size_t alignment, ze_device_handle_t device, void **out) {
    if (unlikely(zr_thread.watch))
        zr_watch_alloc(zr_thread.hook.number, context, desc, size, device);
    ZR_ENTER(zeMemAllocDevice, (context, desc, size, alignment, device, out));
    struct zr_alloc a = {.kind = ZR_KIND_DEVICE,
                         .entry = ZR_E_zeMemAllocDevice,
                         .context = context,
                         .device = device,
                         .desc = desc,
                         .size = size,
                         .alignment = alignment,
                         .reusable = zr_policy_reuses(&call)};
    if (a.reusable)
        a.residents = zr_residency_expected(context, zr_device_number(&call, device));
    return zr_policy_alloc(&call, &a, out);
}

ze_result_t zr_on_zeMemFree(ze_context_handle_t context, void *ptr) {
    if (unlikely(zr_thread.watch))
        zr_watch_free(NULL, false);
    ZR_ENTER(zeMemFree, (context, ptr));
    return zr_policy_free(&call, &(struct zr_free){.context = context, .ptr = ptr, .reusable = true});
}

ze_result_t zr_on_zeMemFreeExt(ze_context_handle_t context, const ze_memory_free_ext_desc_t *desc, void *ptr) {
    if (unlikely(zr_thread.watch))
        zr_watch_free(desc, true);
    ZR_ENTER(zeMemFreeExt, (context, desc, ptr));
    return zr_policy_free(&call, &(struct zr_free){.context = context, .ptr = ptr, .desc = desc, .ext = true});
}

ze_result_t zr_on_zeMemAllocHost(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc, size_t size,
                                 size_t alignment, void **out) {
    ZR_ENTER(zeMemAllocHost, (context, desc, size, alignment, out));
    struct zr_alloc a = {.kind = ZR_KIND_HOST,
                         .entry = ZR_E_zeMemAllocHost,
                         .context = context,
                         .desc = desc,
                         .size = size,
                         .alignment = alignment,
                         .reusable = zr_config.cache_host && zr_policy_reuses(&call)};
    if (zr_config.cache && !a.reusable)
        zr_count(ZR_F_PASSED_KIND, 1);
    if (unlikely(zr_config.cache_host && !a.reusable && zr_config.cache &&
                 zr_library_who(call.library) == ZR_WHO_RUNTIME))
        zr_warn("cache_host:on has no effect on host memory of SYCL programs: their runtime may free it while it is in "
                "use; add reuse:always if the program does not");
    return zr_policy_alloc(&call, &a, out);
}

ze_result_t zr_on_zeMemAllocShared(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *device_desc,
                                   const ze_host_mem_alloc_desc_t *host_desc, size_t size, size_t alignment,
                                   ze_device_handle_t device, void **out) {
    ZR_ENTER(zeMemAllocShared, (context, device_desc, host_desc, size, alignment, device, out));
    struct zr_alloc a = {.kind = ZR_KIND_SHARED,
                         .entry = ZR_E_zeMemAllocShared,
                         .context = context,
                         .device = device,
                         .desc = device_desc,
                         .host_desc = host_desc,
                         .size = size,
                         .alignment = alignment};
    if (zr_config.cache)
        zr_count(ZR_F_PASSED_KIND, 1);
    return zr_policy_alloc(&call, &a, out);
}

/* The answer may hold a file descriptor of the block, which is an export. */
ze_result_t zr_on_zeMemGetAllocProperties(ze_context_handle_t context, const void *ptr,
                                          ze_memory_allocation_properties_t *properties, ze_device_handle_t *device) {
    ZR_ENTER(zeMemGetAllocProperties, (context, ptr, properties, device));
    ptr = zr_registry_visible(ptr);
    ze_result_t result = ZR_DOWN(&call, zeMemGetAllocProperties, 0, (context, ptr, properties, device));
    if (result == ZE_RESULT_SUCCESS && properties && unlikely(properties->pNext) &&
        zr_chained(properties, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD))
        zr_registry_exported(ptr, NULL);
    return result;
}

ze_result_t zr_on_zeMemGetAddressRange(ze_context_handle_t context, const void *ptr, void **base, size_t *size) {
    ZR_ENTER(zeMemGetAddressRange, (context, ptr, base, size));
    if (context && zr_registry_range(ptr, base, size))
        return ZE_RESULT_SUCCESS;
    ptr = zr_registry_visible(ptr);
    return ZR_DOWN(&call, zeMemGetAddressRange, 0, (context, ptr, base, size));
}

/* After a success, notes that the IPC handle of a block was taken, by the program or by a watched runtime. */
static ze_result_t exported(ze_result_t result, const void *ptr, const ze_ipc_mem_handle_t *handle) {
    if (result == ZE_RESULT_SUCCESS && zr_thread.watch)
        zr_watch_export(handle);
    else if (result == ZE_RESULT_SUCCESS)
        zr_registry_exported(ptr, handle);
    return result;
}

ze_result_t zr_on_zeMemGetIpcHandle(ze_context_handle_t context, const void *ptr, ze_ipc_mem_handle_t *handle) {
    if (unlikely(zr_thread.watch))
        return exported(ZR_BELOW_HOOK(zeMemGetIpcHandle)(context, ptr, handle), ptr, handle);
    ZR_ENTER(zeMemGetIpcHandle, (context, ptr, handle));
    ptr = zr_registry_visible(ptr);
    return exported(ZR_DOWN(&call, zeMemGetIpcHandle, 0, (context, ptr, handle)), ptr, handle);
}

ze_result_t zr_on_zeMemGetIpcHandleWithProperties(ze_context_handle_t context, const void *ptr, void *next,
                                                  ze_ipc_mem_handle_t *handle) {
    if (unlikely(zr_thread.watch))
        return exported(ZR_BELOW_HOOK(zeMemGetIpcHandleWithProperties)(context, ptr, next, handle), ptr, handle);
    ZR_ENTER(zeMemGetIpcHandleWithProperties, (context, ptr, next, handle));
    ptr = zr_registry_visible(ptr);
    return exported(ZR_DOWN(&call, zeMemGetIpcHandleWithProperties, 0, (context, ptr, next, handle)), ptr, handle);
}

ze_result_t zr_on_zeMemOpenIpcHandle(ze_context_handle_t context, ze_device_handle_t device, ze_ipc_mem_handle_t handle,
                                     ze_ipc_memory_flags_t flags, void **out) {
    ZR_ENTER(zeMemOpenIpcHandle, (context, device, handle, flags, out));
    ze_result_t result = ZR_WITH_ROOM(&call, zr_device_number(&call, device),
                                      ZR_DOWN(&call, zeMemOpenIpcHandle, 0, (context, device, handle, flags, out)));
    return result == ZE_RESULT_SUCCESS
               ? zr_policy_imported(&call, context, device, ZR_E_zeMemOpenIpcHandle, &handle, out)
               : result;
}

ze_result_t zr_on_zeMemCloseIpcHandle(ze_context_handle_t context, const void *ptr) {
    ZR_ENTER(zeMemCloseIpcHandle, (context, ptr));
    struct zr_block *b = zr_registry_take(ptr);
    if (!b)
        ptr = zr_registry_closable(ptr);
    ze_result_t result = ZR_DOWN(&call, zeMemCloseIpcHandle, 0, (context, ptr));
    if (result == ZE_RESULT_SUCCESS)
        zr_policy_closed(ptr);
    return zr_registry_left(b, result);
}
