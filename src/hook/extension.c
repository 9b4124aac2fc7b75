/*
 * Functions that only the driver knows, requested from it by name. Some export or import memory, or make the driver
 * call back or unmap something when a block is freed: such a block must not be cached. With several drivers in one
 * process, only the functions of the first one are hooked.
 */
#include "hook/hook.h"
#include "policy/policy.h"

#include <string.h>

static bool ours_to_see(ze_result_t result) {
    return result == ZE_RESULT_SUCCESS && !zr_op_passes_down() && !zr_exiting();
}

static void *visible(const void *ptr) {
    return (void *)(uintptr_t)(zr_op_passes_down() || zr_exiting() ? ptr : zr_registry_visible(ptr));
}

#define NO_HOOK (&(struct zr_op){.hook = ZR_HOOK_PLT})

/* on_NAME() calls the driver's own function, then `follows` if it succeeded. */
#define EXTENSION(name, parameters, arguments, follows)                                                                \
    static ze_result_t(*real_##name) parameters;                                                                       \
    static ze_result_t on_##name parameters {                                                                          \
        ze_result_t result = real_##name arguments;                                                                    \
        if (ours_to_see(result))                                                                                       \
            follows;                                                                                                   \
        return result;                                                                                                 \
    }
EXTENSION(zexMemGetIpcHandles,
          (ze_context_handle_t context, const void *ptr, uint32_t *count, ze_ipc_mem_handle_t *handles),
          (context, visible(ptr), count, handles), handles ? zr_registry_exported(ptr, handles) : (void)0)
EXTENSION(zexMemOpenIpcHandles,
          (ze_context_handle_t context, ze_device_handle_t device, uint32_t count, ze_ipc_mem_handle_t *handles,
           ze_ipc_memory_flags_t flags, void **out),
          (context, device, count, handles, flags, out),
          result = zr_policy_imported(NO_HOOK, context, device, ZR_E_zeMemOpenIpcHandle, handles, out))
EXTENSION(zexMemFreeRegisterCallbackExt, (ze_context_handle_t context, void *desc, void *ptr),
          (context, desc, visible(ptr)), zr_registry_pin(ptr))
EXTENSION(zeIntelMemMapDeviceMemToHost, (ze_context_handle_t context, const void *ptr, void **out, void *next),
          (context, visible(ptr), out, next), zr_registry_pin(ptr))
/* The pages stay pinned until they are released. */
EXTENSION(zexDriverImportExternalPointer, (ze_driver_handle_t driver, void *ptr, size_t size), (driver, ptr, size),
          zr_object_add(NO_HOOK, ZR_KIND_POINTER, 0, NULL, ptr, size))
EXTENSION(zexDriverReleaseImportedPointer, (ze_driver_handle_t driver, void *ptr), (driver, ptr),
          zr_object_left(zr_object_take(ptr), ZE_RESULT_SUCCESS))

#define AT(name)                                                                                                       \
    { #name, (void **)&real_##name, ZR_POINTER(on_##name) }
static const struct {
    const char *name;
    void **real; /* atomic */
    void *ours;
} extensions[] = {
    AT(zexMemGetIpcHandles),          AT(zexMemOpenIpcHandles),           AT(zexMemFreeRegisterCallbackExt),
    AT(zeIntelMemMapDeviceMemToHost), AT(zexDriverImportExternalPointer), AT(zexDriverReleaseImportedPointer)};

static void exchange_extension(const char *name, void **out) {
    for (unsigned i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        void *first = NULL;

        if (strcmp(name, extensions[i].name) == 0 &&
            (__atomic_compare_exchange_n(extensions[i].real, &first, *out, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
             first == *out))
            *out = extensions[i].ours;
    }
    for (unsigned e = 0; e < ZR_ENTRIES_ZE; e++)
        if (strcmp(name, zr_entry_name[e]) == 0)
            *out = ZR_POINTER(zr_hook_table(e, ZR_FUNCTION(*out)));
}

ze_result_t zr_on_zeDriverGetExtensionFunctionAddress(struct zr_arrival from, ze_driver_handle_t driver,
                                                      const char *name, void **out) {
    ZR_ENTER_OR_RETURN(zeDriverGetExtensionFunctionAddress, (driver, name, out));
    ze_result_t result = ZR_DOWN(&op, zeDriverGetExtensionFunctionAddress, 0, (driver, name, out));
    if (result == ZE_RESULT_SUCCESS && name && out && *out)
        exchange_extension(name, out);
    return result;
}
