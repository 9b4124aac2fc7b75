/*
 * Functions that only the driver knows (base/extensions.def). They are not counted: each passes on
 * what the program may know, and notes what has become of memory.
 */
#include "policy/policy.h"

zr_function zr_extension_real[ZR_EXTENSIONS];

#define REAL(name)                                                                                 \
    ((zr_xfn_##name)__atomic_load_n(&zr_extension_real[ZR_X_##name], __ATOMIC_ACQUIRE))

/* Whether the call is the program's own. */
static bool is_seen(void) {
    return !zr_op_passes_down() && !zr_exiting();
}

ze_result_t zr_x_zexMemGetIpcHandles(ze_context_handle_t context, const void *ptr, uint32_t *count,
                                     ze_ipc_mem_handle_t *handles) {
    bool seen = is_seen();
    ze_result_t result;

    if (seen)
        ptr = handles ? zr_registry_mark(ptr, ZR_BLOCK_EXPORTED) : zr_registry_visible(ptr);
    result = REAL(zexMemGetIpcHandles)(context, ptr, count, handles);
    if (seen && handles && result == ZE_RESULT_SUCCESS)
        zr_registry_exported(ptr, handles);
    return result;
}

ze_result_t zr_x_zexMemOpenIpcHandles(ze_context_handle_t context, ze_device_handle_t device,
                                      uint32_t count, ze_ipc_mem_handle_t *handles,
                                      ze_ipc_memory_flags_t flags, void **out) {
    ze_result_t result = REAL(zexMemOpenIpcHandles)(context, device, count, handles, flags, out);

    if (result != ZE_RESULT_SUCCESS || !is_seen())
        return result;
    ZR_OWN_OP(op, ZR_HOOK_PLT);
    return zr_policy_imported(&op, context, device, ZR_E_zeMemOpenIpcHandle, handles, out);
}

ze_result_t zr_x_zexMemFreeRegisterCallbackExt(ze_context_handle_t context, void *desc, void *ptr) {
    if (is_seen())
        ptr = (void *)(uintptr_t)zr_registry_mark(ptr, ZR_BLOCK_PINNED);
    return REAL(zexMemFreeRegisterCallbackExt)(context, desc, ptr);
}

ze_result_t zr_x_zeIntelMemMapDeviceMemToHost(ze_context_handle_t context, const void *ptr,
                                              void **out, void *next) {
    if (is_seen())
        ptr = zr_registry_mark(ptr, ZR_BLOCK_PINNED);
    return REAL(zeIntelMemMapDeviceMemToHost)(context, ptr, out, next);
}

/* The pages stay pinned until they are released. */
ze_result_t zr_x_zexDriverImportExternalPointer(ze_driver_handle_t driver, void *ptr, size_t size) {
    ze_result_t result = REAL(zexDriverImportExternalPointer)(driver, ptr, size);

    if (result == ZE_RESULT_SUCCESS && is_seen())
        zr_object_add(&(struct zr_op){.hook = ZR_HOOK_PLT}, ZR_KIND_POINTER, 0, NULL, ptr, size);
    return result;
}

ze_result_t zr_x_zexDriverReleaseImportedPointer(ze_driver_handle_t driver, void *ptr) {
    struct zr_object *o = is_seen() ? zr_object_take(ptr) : NULL;

    return zr_object_answered(o, REAL(zexDriverReleaseImportedPointer)(driver, ptr));
}
