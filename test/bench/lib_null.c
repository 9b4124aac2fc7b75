/*
 * A driver that costs nothing: the simulated GPU, with an allocation and a free of device memory that only move an
 * address. What is left of a call is what the loader, and whoever stands in front of it, cost.
 */
#include <dlfcn.h>
#include <level_zero/ze_ddi.h>
#include <stdint.h>

static uintptr_t next_address = 0x600000000000;
static __thread uintptr_t freed; /* the last one of this thread */
static __thread size_t freed_size, size_of_all;

static ze_result_t alloc(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t size,
                         size_t alignment, ze_device_handle_t device, void **out)
{
    (void)context, (void)desc, (void)alignment, (void)device;
    if (!freed || freed_size != size)
        freed = __atomic_fetch_add(&next_address, (size + 0xffff) & ~(size_t)0xffff, __ATOMIC_RELAXED);
    *out = (void *)freed;
    freed = 0;
    size_of_all = size;
    return ZE_RESULT_SUCCESS;
}

/* A thread has blocks of one size at a time here. */
static ze_result_t release(ze_context_handle_t context, void *p)
{
    (void)context;
    freed = (uintptr_t)p;
    freed_size = size_of_all;
    return ZE_RESULT_SUCCESS;
}

ZE_APIEXPORT ze_result_t ZE_APICALL zeGetMemProcAddrTable(ze_api_version_t version, ze_mem_dditable_t *table)
{
    void *simulated = dlopen("libze_simgpu.so", RTLD_NOW | RTLD_NOLOAD);
    ze_result_t (*below)(ze_api_version_t, ze_mem_dditable_t *);
    ze_result_t result;

    if (!simulated)
        return ZE_RESULT_ERROR_UNINITIALIZED;
    *(void **)&below = dlsym(simulated, "zeGetMemProcAddrTable");
    result = below(version, table);
    table->pfnAllocDevice = alloc;
    table->pfnFree = release;
    return result;
}
