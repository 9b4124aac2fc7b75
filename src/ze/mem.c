/*
 * zeMem*: allocation, free, properties, IPC. Thin: counts, asks the policy, keeps the books. zeMemAllocDevice and
 * zeMemFree come here when neither the shortest way (hit.h) nor the lean one (lean.h) is theirs.
 */
#include "policy/policy.h"
#include "sycl/route.h"

ze_result_t zr_on_zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc,
                                   size_t size, size_t alignment, ze_device_handle_t device, void **out)
{
    if (unlikely(zr_thread.watch))
        zr_habit_saw_alloc(zr_thread.hook, context, desc, size, device);
    ZR_ENTER(zeMemAllocDevice, (context, desc, size, alignment, device, out));
    zr_count_caller(call.caller, size);
    ze_result_t result = zr_is(ZR_DECIDING)
                             ? zr_policy_alloc_device(&call, context, desc, size, alignment, device, out)
                             : zr_plain_alloc_device(&call, context, desc, size, alignment, device, out);
    if (unlikely(zr_is(ZR_TRACING)) && result == ZE_RESULT_SUCCESS && !zr_thread.pooled &&
        !zr_chain_has(desc, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD))
        zr_trace('a', *out, size, zr_device_number(&call, device));
    return result;
}

/* Host and shared memory is freed by the same functions, and not traced. Pools trace what they hand out. */
static __attribute__((noinline, cold)) size_t trace_free(const void *ptr, unsigned *device)
{
    struct zr_block *b = zr_thread.pooled ? NULL : zr_map_base(ptr);

    if (!b || b->kind != ZR_KIND_DEVICE)
        return 0;
    *device = b->device;
    zr_trace('f', ptr, 0, b->device);
    return b->size;
}

/* The block is traced as given back before it is; the driver may not have taken it. */
struct traced_free {
    void *ptr;
    size_t size; /* 0: not traced */
    unsigned device;
};

static inline struct traced_free before_free(void *ptr)
{
    struct traced_free t = {ptr, 0, 0};

    if (unlikely(zr_is(ZR_TRACING)))
        t.size = trace_free(ptr, &t.device);
    return t;
}

static inline ze_result_t after_free(const struct traced_free *t, ze_result_t result)
{
    if (unlikely(t->size) && result != ZE_RESULT_SUCCESS)
        zr_trace('a', t->ptr, t->size, t->device);
    return result;
}

ze_result_t zr_on_zeMemFree(ze_context_handle_t context, void *ptr)
{
    if (unlikely(zr_thread.watch))
        zr_habit_saw_free(false, 0);
    ZR_ENTER(zeMemFree, (context, ptr));
    zr_count_caller(call.caller, 0);
    struct traced_free t = before_free(ptr);
    if (unlikely(!ptr) && !zr_is(ZR_DECIDING))
        zr_count(ZR_F_FREE_INVALID_NULL, 1);
    return after_free(&t, zr_is(ZR_DECIDING) ? zr_policy_free(&call, context, ptr)
                                             : zr_plain_free(&call, context, ptr));
}

ze_result_t zr_on_zeMemFreeExt(ze_context_handle_t context, const ze_memory_free_ext_desc_t *desc,
                               void *ptr)
{
    if (unlikely(zr_thread.watch))
        zr_habit_saw_free(true, desc ? (uint32_t)desc->freePolicy : 0);
    ZR_ENTER(zeMemFreeExt, (context, desc, ptr));
    zr_count_caller(call.caller, 0);
    struct traced_free t = before_free(ptr);
    if (likely(!zr_is(ZR_DECIDING))) {
        zr_count(!ptr ? ZR_F_FREE_INVALID_NULL : zr_free_policy_field(desc), 1);
        return after_free(&t, zr_plain_free_ext(&call, context, desc, ptr));
    }
    return after_free(&t, zr_policy_free_ext(&call, context, desc, ptr));
}

ze_result_t zr_on_zeMemAllocHost(ze_context_handle_t context, const ze_host_mem_alloc_desc_t *desc,
                                 size_t size, size_t alignment, void **out)
{
    ZR_ENTER(zeMemAllocHost, (context, desc, size, alignment, out));
    zr_count_caller(call.caller, size);
    return zr_policy_alloc_host(&call, context, desc, size, alignment, out);
}

ze_result_t zr_on_zeMemAllocShared(ze_context_handle_t context,
                                   const ze_device_mem_alloc_desc_t *device_desc,
                                   const ze_host_mem_alloc_desc_t *host_desc, size_t size,
                                   size_t alignment, ze_device_handle_t device, void **out)
{
    ZR_ENTER(zeMemAllocShared, (context, device_desc, host_desc, size, alignment, device, out));
    zr_count_caller(call.caller, size);
    return zr_policy_alloc_shared(&call, context, device_desc, host_desc, size, alignment, device,
                                  out);
}

/* The answer can carry a file descriptor of the block: that is an export. */
ze_result_t zr_on_zeMemGetAllocProperties(ze_context_handle_t context, const void *ptr,
                                          ze_memory_allocation_properties_t *properties,
                                          ze_device_handle_t *device)
{
    ZR_ENTER(zeMemGetAllocProperties, (context, ptr, properties, device));
    zr_count_caller(call.caller, 0);
    ptr = zr_keep_asked_about(&call, context, ptr);
    ze_result_t result =
        ZR_DOWN(&call, zeMemGetAllocProperties, 0, (context, ptr, properties, device));
    if (result == ZE_RESULT_SUCCESS && properties && unlikely(properties->pNext) &&
        zr_chain_has(properties, ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD))
        zr_registry_exported(ptr);
    return result;
}

ze_result_t zr_on_zeMemGetAddressRange(ze_context_handle_t context, const void *ptr, void **base,
                                       size_t *size)
{
    ZR_ENTER(zeMemGetAddressRange, (context, ptr, base, size));
    zr_count_caller(call.caller, 0);
    if (zr_keep_address_range(context, ptr, base, size))
        return ZE_RESULT_SUCCESS;
    ptr = zr_keep_asked_about(&call, context, ptr);
    return ZR_DOWN(&call, zeMemGetAddressRange, 0, (context, ptr, base, size));
}

ze_result_t zr_on_zeMemGetIpcHandle(ze_context_handle_t context, const void *ptr,
                                    ze_ipc_mem_handle_t *handle)
{
    ZR_ENTER(zeMemGetIpcHandle, (context, ptr, handle));
    zr_count_caller(call.caller, 0);
    ptr = zr_keep_asked_about(&call, context, ptr);
    ze_result_t result = ZR_DOWN(&call, zeMemGetIpcHandle, 0, (context, ptr, handle));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_exported(ptr);
    return result;
}

ze_result_t zr_on_zeMemGetIpcHandleWithProperties(ze_context_handle_t context, const void *ptr,
                                                  void *next, ze_ipc_mem_handle_t *handle)
{
    ZR_ENTER(zeMemGetIpcHandleWithProperties, (context, ptr, next, handle));
    zr_count_caller(call.caller, 0);
    ptr = zr_keep_asked_about(&call, context, ptr);
    ze_result_t result =
        ZR_DOWN(&call, zeMemGetIpcHandleWithProperties, 0, (context, ptr, next, handle));
    if (result == ZE_RESULT_SUCCESS)
        zr_registry_exported(ptr);
    return result;
}

ze_result_t zr_on_zeMemPutIpcHandle(ze_context_handle_t context, ze_ipc_mem_handle_t handle)
{
    ZR_ENTER(zeMemPutIpcHandle, (context, handle));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeMemPutIpcHandle, 0, (context, handle));
}

ze_result_t zr_on_zeMemOpenIpcHandle(ze_context_handle_t context, ze_device_handle_t device,
                                     ze_ipc_mem_handle_t handle, ze_ipc_memory_flags_t flags,
                                     void **out)
{
    ZR_ENTER(zeMemOpenIpcHandle, (context, device, handle, flags, out));
    zr_count_caller(call.caller, 0);
    ze_result_t result = ZR_DOWN_AGAIN((void)0, &call, zeMemOpenIpcHandle, zr_device_number(&call, device), 0,
                                       (context, device, handle, flags, out));
    return result == ZE_RESULT_SUCCESS ? zr_policy_imported(&call, context, device, ZR_E_zeMemOpenIpcHandle, out)
                                       : result;
}

ze_result_t zr_on_zeMemCloseIpcHandle(ze_context_handle_t context, const void *ptr)
{
    ZR_ENTER(zeMemCloseIpcHandle, (context, ptr));
    zr_count_caller(call.caller, 0);
    struct zr_block *b = zr_registry_take(ptr);
    if (!b)
        ptr = zr_keep_to_close(&call, context, ptr);
    ze_result_t result = ZR_DOWN(&call, zeMemCloseIpcHandle, 0, (context, ptr));
    if (result == ZE_RESULT_SUCCESS) {
        zr_count(ZR_F_IPC_CLOSES, 1);
        zr_registry_gone(b);
    } else {
        zr_registry_back(b);
    }
    return result;
}

ze_result_t zr_on_zeMemGetPitchFor2dImage(ze_context_handle_t context, ze_device_handle_t device,
                                          size_t width, size_t height, unsigned int element,
                                          size_t *pitch)
{
    ZR_ENTER(zeMemGetPitchFor2dImage, (context, device, width, height, element, pitch));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeMemGetPitchFor2dImage, 0,
                   (context, device, width, height, element, pitch));
}

ze_result_t zr_on_zeMemGetIpcHandleFromFileDescriptorExp(ze_context_handle_t context,
                                                         uint64_t descriptor,
                                                         ze_ipc_mem_handle_t *handle)
{
    ZR_ENTER(zeMemGetIpcHandleFromFileDescriptorExp, (context, descriptor, handle));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeMemGetIpcHandleFromFileDescriptorExp, 0, (context, descriptor, handle));
}

ze_result_t zr_on_zeMemGetFileDescriptorFromIpcHandleExp(ze_context_handle_t context,
                                                         ze_ipc_mem_handle_t handle,
                                                         uint64_t *descriptor)
{
    ZR_ENTER(zeMemGetFileDescriptorFromIpcHandleExp, (context, handle, descriptor));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeMemGetFileDescriptorFromIpcHandleExp, 0, (context, handle, descriptor));
}

ze_result_t zr_on_zeMemSetAtomicAccessAttributeExp(ze_context_handle_t context,
                                                   ze_device_handle_t device, const void *ptr,
                                                   size_t size, uint32_t attribute)
{
    ZR_ENTER(zeMemSetAtomicAccessAttributeExp, (context, device, ptr, size, attribute));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeMemSetAtomicAccessAttributeExp, 0,
                   (context, device, ptr, size, attribute));
}

ze_result_t zr_on_zeMemGetAtomicAccessAttributeExp(ze_context_handle_t context,
                                                   ze_device_handle_t device, const void *ptr,
                                                   size_t size, uint32_t *attribute)
{
    ZR_ENTER(zeMemGetAtomicAccessAttributeExp, (context, device, ptr, size, attribute));
    zr_count_caller(call.caller, 0);
    return ZR_DOWN(&call, zeMemGetAtomicAccessAttributeExp, 0,
                   (context, device, ptr, size, attribute));
}
