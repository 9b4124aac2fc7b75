/*
 * Policy: who serves an allocation. Until a cache is asked for, the driver does, and we keep the books.
 */
#include "policy.h"

/* Import and export by file descriptor: the same numbers in every version of the header. */
enum {
    IMPORT_FD = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD,
    EXPORT_DESC = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC
};

ze_result_t zr_policy_alloc_device(struct zr_call *call, ze_context_handle_t context,
                                   const ze_device_mem_alloc_desc_t *desc, size_t size,
                                   size_t alignment, ze_device_handle_t device, void **out)
{
    enum zr_kind kind = ZR_KIND_DEVICE;
    uint32_t flags = 0;
    ze_result_t result;

    if (unlikely(zr_host_refuses(size))) {
        zr_count_failure_code(ZR_E_zeMemAllocDevice, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    zr_count(ZR_F_DRIVER_ALLOC_CALLS, 1);
    result = ZR_DOWN(call, zeMemAllocDevice, size, (context, desc, size, alignment, device, out));
    if (unlikely(result != ZE_RESULT_SUCCESS))
        return result;
    if (unlikely(desc && desc->pNext)) {
        if (zr_chain_has(desc, IMPORT_FD))
            kind = ZR_KIND_IMPORTED;
        if (zr_chain_has(desc, EXPORT_DESC))
            flags = ZR_BLOCK_EXPORTED;
    }
    zr_registry_add(kind, zr_device_number(call, device), context, *out, size, flags);
    return result;
}

ze_result_t zr_policy_alloc_host(struct zr_call *call, ze_context_handle_t context,
                                 const ze_host_mem_alloc_desc_t *desc, size_t size,
                                 size_t alignment, void **out)
{
    ze_result_t result;

    zr_count(ZR_F_DRIVER_ALLOC_CALLS, 1);
    result = ZR_DOWN(call, zeMemAllocHost, size, (context, desc, size, alignment, out));
    if (likely(result == ZE_RESULT_SUCCESS))
        zr_registry_add(ZR_KIND_HOST, 0, context, *out, size, 0);
    return result;
}

ze_result_t zr_policy_alloc_shared(struct zr_call *call, ze_context_handle_t context,
                                   const ze_device_mem_alloc_desc_t *device_desc,
                                   const ze_host_mem_alloc_desc_t *host_desc, size_t size,
                                   size_t alignment, ze_device_handle_t device, void **out)
{
    ze_result_t result;

    zr_count(ZR_F_DRIVER_ALLOC_CALLS, 1);
    result = ZR_DOWN(call, zeMemAllocShared, size,
                     (context, device_desc, host_desc, size, alignment, device, out));
    if (likely(result == ZE_RESULT_SUCCESS))
        zr_registry_add(ZR_KIND_SHARED, zr_device_number(call, device), context, *out, size, 0);
    return result;
}

static inline ze_result_t finish_free(struct zr_block *b, ze_result_t result)
{
    if (likely(result == ZE_RESULT_SUCCESS))
        zr_registry_gone(b);
    else
        zr_registry_back(b);
    return result;
}

ze_result_t zr_policy_free(struct zr_call *call, ze_context_handle_t context, void *ptr)
{
    struct zr_block *b = zr_registry_take(ptr);

    zr_count(ZR_F_DRIVER_FREE_CALLS, 1);
    return finish_free(b, ZR_DOWN(call, zeMemFree, b ? b->held : 0, (context, ptr)));
}

ze_result_t zr_policy_free_ext(struct zr_call *call, ze_context_handle_t context,
                               const ze_memory_free_ext_desc_t *desc, void *ptr)
{
    struct zr_block *b = zr_registry_take(ptr);

    zr_count(ZR_F_DRIVER_FREE_CALLS, 1);
    return finish_free(b, ZR_DOWN(call, zeMemFreeExt, b ? b->held : 0, (context, desc, ptr)));
}

void zr_policy_before_memory_query(struct zr_call *call, ze_device_handle_t device)
{
    (void)call, (void)device;
}

void zr_policy_before_context_destroy(struct zr_call *call, ze_context_handle_t context)
{
    (void)call, (void)context;
}
