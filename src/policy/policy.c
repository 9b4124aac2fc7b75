/*
 * Policy: who serves an allocation: what we keep (keep.c), or the driver, within the limit. Books are kept of both.
 */
#include "cache/cache.h"
#include "sycl/route.h"

bool zr_policy_trim(struct zr_call *call, unsigned number)
{
    uint64_t bytes = zr_keep_trim(call, number);

    return zr_pools_trim(number) + bytes != 0;
}

/* What other threads give back may be taken by others at once: several tries, but not without end. */
enum { MOST_TRIES = 16 };

static __attribute__((noinline, cold)) bool made_room(struct zr_call *call, unsigned number, uint32_t returned)
{
    return zr_policy_trim(call, number) || zr_keep_returned() != returned;
}

/* Host memory is kept for no device in particular. */
__attribute__((noinline, cold)) bool zr_policy_try_again(struct zr_call *call, unsigned number, ze_result_t result,
                                                        uint32_t returned, int tries)
{
    if (result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)
        number = ZR_UNKNOWN_DEVICE;
    else if (result != ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)
        return false;
    if (tries == MOST_TRIES || !made_room(call, number, returned))
        return false;
    zr_count(ZR_F_CACHE_RETRIES, 1);
    return true;
}

#define ALLOC_DOWN(call, name, number, size, arguments) \
    ZR_DOWN_AGAIN(zr_count(ZR_F_DRIVER_ALLOC_CALLS, 1), call, name, number, size, arguments)

/* What is kept counts too: it is given back before anybody is refused. */
bool zr_policy_within_limit(struct zr_call *call, unsigned number, uint64_t bytes)
{
    uint32_t returned = zr_keep_returned();

    for (int tries = 0; unlikely(!zr_limit_take(call, number, bytes)); returned = zr_keep_returned())
        if (tries++ == MOST_TRIES || !made_room(call, number, returned))
            return false;
    return true;
}

ze_result_t zr_policy_refused(enum zr_entry entry)
{
    zr_count(ZR_F_LIMIT_REFUSED_CALLS, 1);
    zr_count_failure_code(entry, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
}

/*
 * A SYCL program's free reaches zeMemFree under some adapters, and the program may have freed early: the driver
 * waits for commands before memory goes to anybody else, unless it is one that its own cache takes. That is not
 * the adapter's to vouch for. So blocks that an adapter asks for are the driver's, unless the program vouches.
 */
static inline bool is_kept(const struct zr_call *call)
{
    return zr_config.cache && (zr_config.reuse == ZR_REUSE_ALWAYS || !zr_may_be_adapter(call->caller));
}

ze_result_t zr_policy_alloc_device(struct zr_call *call, ze_context_handle_t context,
                                   const ze_device_mem_alloc_desc_t *desc, size_t size,
                                   size_t alignment, ze_device_handle_t device, void **out)
{
    ze_result_t result;

    if (unlikely(zr_host_refuses(size))) {
        zr_count_failure_code(ZR_E_zeMemAllocDevice, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!zr_thread.pooled && is_kept(call) &&
        zr_keep_alloc_device(call, context, desc, size, alignment, device, out, &result))
        return result;
    return zr_policy_alloc_device_from_driver(call, context, desc, size, alignment, device, out);
}

ze_result_t zr_policy_alloc_device_from_driver(struct zr_call *call, ze_context_handle_t context,
                                               const ze_device_mem_alloc_desc_t *desc, size_t size,
                                               size_t alignment, ze_device_handle_t device, void **out)
{
    enum zr_kind kind = ZR_KIND_DEVICE;
    uint32_t flags = zr_thread.pooled ? ZR_BLOCK_POOLED : 0;
    unsigned number;
    ze_result_t result;

    if (unlikely(desc && desc->pNext))
        zr_chain_kind(desc, &kind, &flags);
    number = zr_device_number(call, device);
    /* Of what is imported the driver tells the size. */
    if (kind != ZR_KIND_IMPORTED && unlikely(!zr_policy_within_limit(call, number, size)))
        return zr_policy_refused(ZR_E_zeMemAllocDevice);
    result = ALLOC_DOWN(call, zeMemAllocDevice, number, size, (context, desc, size, alignment, device, out));
    if (unlikely(kind == ZR_KIND_IMPORTED))
        return result == ZE_RESULT_SUCCESS
                   ? zr_policy_imported(call, context, device, ZR_E_zeMemAllocDevice, out)
                   : result;
    if (unlikely(result != ZE_RESULT_SUCCESS)) {
        zr_limit_drop(number, size);
        return result;
    }
    zr_registry_add(kind, number, context, *out, size, flags);
    return result;
}

ze_result_t zr_policy_alloc_host(struct zr_call *call, ze_context_handle_t context,
                                 const ze_host_mem_alloc_desc_t *desc, size_t size,
                                 size_t alignment, void **out)
{
    ze_result_t result;

    if (zr_config.cache_host && is_kept(call) &&
        zr_keep_alloc_host(call, context, desc, size, alignment, out, &result))
        return result;
    if (zr_config.cache)
        zr_count(ZR_F_PASSED_KIND, 1);
    result = ALLOC_DOWN(call, zeMemAllocHost, ZR_UNKNOWN_DEVICE, size, (context, desc, size, alignment, out));
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

    if (zr_config.cache)
        zr_count(ZR_F_PASSED_KIND, 1);
    result = ALLOC_DOWN(call, zeMemAllocShared, zr_device_number(call, device), size,
                        (context, device_desc, host_desc, size, alignment, device, out));
    if (likely(result == ZE_RESULT_SUCCESS))
        zr_registry_add(ZR_KIND_SHARED, zr_device_number(call, device), context, *out, size, 0);
    return result;
}

ze_result_t zr_policy_free(struct zr_call *call, ze_context_handle_t context, void *ptr)
{
    ze_result_t result;

    zr_count(ptr ? ZR_F_FREE_POLICY_DEFAULT : ZR_F_FREE_INVALID_NULL, 1);
    if (zr_config.cache && zr_keep_free(call, context, NULL, ptr, &result))
        return result;
    return zr_plain_free(call, context, ptr);
}

ze_result_t zr_policy_free_to_driver(struct zr_call *call, ze_context_handle_t context, void *ptr)
{
    ze_result_t result;

    zr_count(ZR_F_FREE_POLICY_DEFAULT, 1);
    if (zr_config.cache && zr_keep_not(call, context, ptr, &result))
        return result;
    return zr_plain_free(call, context, ptr);
}

enum zr_field zr_free_policy_field(const ze_memory_free_ext_desc_t *desc)
{
    if (desc && desc->freePolicy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE)
        return ZR_F_FREE_POLICY_BLOCKING;
    if (desc && desc->freePolicy & ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE)
        return ZR_F_FREE_POLICY_DEFER;
    return ZR_F_FREE_POLICY_DEFAULT;
}

ze_result_t zr_policy_free_ext(struct zr_call *call, ze_context_handle_t context,
                               const ze_memory_free_ext_desc_t *desc, void *ptr)
{
    ze_result_t result;

    zr_count(!ptr ? ZR_F_FREE_INVALID_NULL : zr_free_policy_field(desc), 1);
    /* Without a descriptor, or with another one, the answer is the driver's. */
    if (zr_config.cache && desc && desc->stype == ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC &&
        zr_keep_free(call, context, desc, ptr, &result))
        return result;
    return zr_plain_free_ext(call, context, desc, ptr);
}

static bool is_on_host(struct zr_call *call, ze_context_handle_t context, const void *ptr)
{
    ze_memory_allocation_properties_t p = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t device = NULL;

    return ZR_BELOW(call, zeMemGetAllocProperties)(context, ptr, &p, &device) == ZE_RESULT_SUCCESS &&
           p.type == ZE_MEMORY_TYPE_HOST;
}

/*
 * The driver alone knows how much it is: it takes no notice of the size that an allocation names. And of what kind:
 * host memory that another process has exported takes nothing of the device that it is opened for.
 */
ze_result_t zr_policy_imported(struct zr_call *call, ze_context_handle_t context,
                               ze_device_handle_t device, enum zr_entry entry, void **out)
{
    enum zr_kind kind = is_on_host(call, context, *out) ? ZR_KIND_HOST : ZR_KIND_IMPORTED;
    unsigned number = zr_device_number(call, device);
    void *start = NULL;
    size_t size = 0;

    if (ZR_BELOW(call, zeMemGetAddressRange)(context, *out, &start, &size) != ZE_RESULT_SUCCESS)
        size = 0;
    if (kind == ZR_KIND_IMPORTED && unlikely(!zr_policy_within_limit(call, number, size))) {
        if (entry == ZR_E_zeMemAllocDevice)
            ZR_BELOW(call, zeMemFree)(context, *out);
        else
            ZR_BELOW(call, zeMemCloseIpcHandle)(context, *out);
        *out = NULL;
        return zr_policy_refused(entry);
    }
    if (entry != ZR_E_zeMemAllocDevice)
        zr_count(ZR_F_IPC_IMPORTS, 1);
    zr_registry_add(kind, number, context, *out, size, 0);
    return ZE_RESULT_SUCCESS;
}

static void least(uint64_t *value, uint64_t bound)
{
    if (value && *value > bound)
        *value = bound;
}

void zr_policy_tell_limit(struct zr_call *call, unsigned number, uint64_t *total, uint64_t *free)
{
    enum { CARDS = 64 };
    bool all = number == ZR_UNKNOWN_DEVICE;

    if (!zr_config.limit.set)
        return;
    for (unsigned n = all ? 0 : number; n < (all ? CARDS : number + 1); n++) {
        uint64_t limit = zr_limit_of(call, n), used = zr_limit_used(n);

        least(total, limit);
        least(free, limit > used ? limit - used : 0);
    }
}

void zr_policy_tell_part(struct zr_call *call, unsigned number, uint64_t *left, uint64_t *total)
{
    zr_policy_tell_limit(call, number, left, NULL);
    least(total, *left);
    if (*left != UINT64_MAX)
        *left -= *total;
}

/* A device that has several modules has its limit shared out among them by their size. */
void zr_policy_tell_module(struct zr_call *call, zes_mem_handle_t memory, uint64_t *total, uint64_t *free)
{
    uint64_t limit = UINT64_MAX, left = UINT64_MAX, size = *total;
    unsigned number;
    uint32_t among;
    bool known = zr_device_of_module(memory, &number, &among);

    if (!zr_config.limit.set)
        return;
    if (known && number == ZR_UNKNOWN_DEVICE)
        limit = left = zr_amount_of(&zr_config.limit, size * among) / among;
    else
        zr_policy_tell_limit(call, number, &limit, &left);
    if (number != ZR_UNKNOWN_DEVICE && among > 1 && limit != UINT64_MAX) {
        limit /= among;
        left /= among;
    }
    least(total, limit);
    least(free, left);
}

void zr_policy_before_context_destroy(struct zr_call *call, ze_context_handle_t context)
{
    if (context)
        zr_keep_drop_context(call, context);
}

void zr_fork_child_policy(void)
{
    zr_cache_fork_child();
    zr_fork_child_local();
    zr_fork_child_device();
    zr_fork_child_table();
    zr_fork_child_keep();
    zr_fork_child_residency();
    zr_fork_child_pool();
    zr_fork_child_limit();
    zr_fork_child_habit();
    zr_fork_child_runtime();
    if (zr_fork_child_sycl_ipc) {
        zr_fork_child_sycl_ipc();
        zr_fork_child_umf();
        zr_fork_child_guard();
    }
}
