/*
 * Functions that are requested from the driver by name: those of base/extensions.def, and entry
 * points that have a hook already. With several drivers in one process, only the extensions of the
 * first one are hooked.
 */
#include "hook/hook.h"

#include <string.h>

static const struct {
    const char *name;
    zr_function ours;
} extensions[ZR_EXTENSIONS] = {
#define ZR_EXTENSION(name, parameters) [ZR_X_##name] = {#name, (zr_function)zr_x_##name},
#include "base/extensions.def"
};

/* Whether this function of the driver is the one that ours calls. */
static bool extension_adopt(unsigned i, zr_function real) {
    zr_function first = NULL;

    return __atomic_compare_exchange_n(&zr_extension_real[i], &first, real, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE) ||
           first == real;
}

static void exchange_extension(const char *name, void **out) {
    for (unsigned i = 0; i < ZR_EXTENSIONS; i++)
        if (strcmp(name, extensions[i].name) == 0 && extension_adopt(i, ZR_FUNCTION(*out)))
            *out = ZR_POINTER(extensions[i].ours);
    for (unsigned e = 0; e < ZR_ENTRIES_ZE; e++)
        if (strcmp(name, zr_entry_name[e]) == 0)
            *out = ZR_POINTER(zr_hook_table(e, ZR_FUNCTION(*out)));
    *out = ZR_POINTER(zr_submit_named(name, ZR_FUNCTION(*out)));
}

ze_result_t zr_on_zeDriverGetExtensionFunctionAddress(struct zr_arrival from,
                                                      ze_driver_handle_t driver, const char *name,
                                                      void **out) {
    ZR_ENTER_OR_RETURN(zeDriverGetExtensionFunctionAddress, (driver, name, out));
    ze_result_t result = ZR_DOWN(&op, zeDriverGetExtensionFunctionAddress, 0, (driver, name, out));

    if (result == ZE_RESULT_SUCCESS && name && out && *out)
        exchange_extension(name, out);
    return result;
}
