/* Functions that are asked for by extension name: only the driver knows them. */
#include "hook/hook.h"
#include "policy/policy.h"

#include <string.h>

/*
 * Memory is also exported and imported by functions that only the driver knows, and so is the driver asked to call back
 * or to unmap something when a block is freed: such a block must not be cached. Of several drivers in one process the
 * first one's functions are seen.
 */
typedef ze_result_t (*get_handles)(ze_context_handle_t, const void *, uint32_t *, ze_ipc_mem_handle_t *);
typedef ze_result_t (*open_handles)(ze_context_handle_t, ze_device_handle_t, uint32_t, ze_ipc_mem_handle_t *,
                                    ze_ipc_memory_flags_t, void **);
typedef ze_result_t (*call_back)(ze_context_handle_t, void *, void *);
typedef ze_result_t (*map_to_host)(ze_context_handle_t, const void *, void **, void *);
static get_handles real_get;
static open_handles real_open;
static call_back real_call_back;
static map_to_host real_map;
static ze_result_t (*real_import)(ze_driver_handle_t, void *, size_t);
static ze_result_t (*real_release)(ze_driver_handle_t, void *);

static bool ours_to_see(ze_result_t result) {
    return result == ZE_RESULT_SUCCESS && !zr_thread.inside && !zr_exiting();
}

static const void *visible(const void *ptr) {
    return zr_thread.inside || zr_exiting() ? ptr : zr_registry_visible(ptr);
}

static ze_result_t on_get(ze_context_handle_t context, const void *ptr, uint32_t *count, ze_ipc_mem_handle_t *handles) {
    ze_result_t result = real_get(context, visible(ptr), count, handles);

    if (ours_to_see(result) && handles)
        zr_registry_exported(ptr, handles);
    return result;
}

static ze_result_t on_open(ze_context_handle_t context, ze_device_handle_t device, uint32_t count,
                           ze_ipc_mem_handle_t *handles, ze_ipc_memory_flags_t flags, void **out) {
    ze_result_t result = real_open(context, device, count, handles, flags, out);

    if (ours_to_see(result)) {
        struct zr_call call = {.hook = ZR_HOOK_PLT};

        result = zr_policy_imported(&call, context, device, ZR_E_zeMemOpenIpcHandle, handles, out);
    }
    return result;
}

static ze_result_t on_call_back(ze_context_handle_t context, void *desc, void *ptr) {
    ze_result_t result = real_call_back(context, desc, (void *)visible(ptr));

    if (ours_to_see(result))
        zr_registry_pin(ptr);
    return result;
}

static ze_result_t on_map(ze_context_handle_t context, const void *ptr, void **out, void *next) {
    ze_result_t result = real_map(context, visible(ptr), out, next);

    if (ours_to_see(result))
        zr_registry_pin(ptr);
    return result;
}

/* Its pages are pinned until it is released. */
static ze_result_t on_import(ze_driver_handle_t driver, void *ptr, size_t size) {
    struct zr_call call = {.hook = ZR_HOOK_PLT};
    ze_result_t result = real_import(driver, ptr, size);
    if (ours_to_see(result))
        zr_registry_note(&call, ZR_KIND_POINTER, 0, NULL, ptr, size, ZR_BLOCK_HANDLE);
    return result;
}

static ze_result_t on_release(ze_driver_handle_t driver, void *ptr) {
    ze_result_t result = real_release(driver, ptr);
    if (ours_to_see(result))
        zr_registry_gone(zr_map_take(ptr));
    return result;
}

static const struct {
    const char *name;
    void **real; /* atomic */
    void *ours;
} extensions[] = {{"zexMemGetIpcHandles", (void **)&real_get, ZR_POINTER(on_get)},
                  {"zexMemOpenIpcHandles", (void **)&real_open, ZR_POINTER(on_open)},
                  {"zexMemFreeRegisterCallbackExt", (void **)&real_call_back, ZR_POINTER(on_call_back)},
                  {"zeIntelMemMapDeviceMemToHost", (void **)&real_map, ZR_POINTER(on_map)},
                  {"zexDriverImportExternalPointer", (void **)&real_import, ZR_POINTER(on_import)},
                  {"zexDriverReleaseImportedPointer", (void **)&real_release, ZR_POINTER(on_release)}};

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

ze_result_t zr_on_zeDriverGetExtensionFunctionAddress(ze_driver_handle_t driver, const char *name, void **out) {
    ZR_ENTER(zeDriverGetExtensionFunctionAddress, (driver, name, out));
    ze_result_t result = ZR_DOWN(&call, zeDriverGetExtensionFunctionAddress, 0, (driver, name, out));
    if (result == ZE_RESULT_SUCCESS && name && out && *out)
        exchange_extension(name, out);
    return result;
}
