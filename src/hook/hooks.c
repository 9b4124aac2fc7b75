/*
 * The small functions that calls arrive at: one per entry point and hook, all from entries.def.
 * Each notes its hook and its caller and goes on to the implementation, with both before the
 * arguments as they came.
 */
#include "hook/hook.h"

#define ARRIVE(to, name, at, arguments)                                                            \
    const struct zr_arrival from = {__builtin_return_address(0), (at)};                            \
    return to##name ZR_ARRIVED(arguments)
/*
 * A call that has passed a hook already is handed down here: it is counted once. Unless a watch
 * looks for it.
 */
#define COUNTED(name, at, arguments)                                                               \
    zr_function below = unlikely(zr_thread.op) ? zr_op_passes((at), ZR_E_##name) : NULL;           \
    if (below)                                                                                     \
        return ((zr_fn_##name)below)arguments;                                                     \
    ARRIVE(zr_on_, name, at, arguments)
/* What the driver returns is looked at, whoever has called. */
#define LOOKED_AT(name, at, arguments) ARRIVE(zr_made_, name, at, arguments)

/* Kind is DLSYM, TABLE or HANDLE; `body` is COUNTED or LOOKED_AT. */
#define HOOK(n, kind, body, name, parameters, arguments)                                           \
    static ze_result_t kind##n##_##name parameters {                                               \
        body(name, ZR_HOOK_##kind + n, arguments);                                                 \
    }

/*
 * The C names are ours, so that they agree with entries.def whatever the installed header says. The
 * exported name is a hidden version: found by those who are linked against the loader, not by
 * dlsym.
 */
#define BY_NAME(name, parameters, arguments)                                                       \
    ze_result_t zr_plt_##name parameters;                                                          \
    __attribute__((visibility("default"))) ze_result_t zr_plt_##name parameters {                  \
        COUNTED(name, ZR_HOOK_PLT, arguments);                                                     \
    }                                                                                              \
    __asm__(".symver zr_plt_" #name ", " #name "@ZEROUTE_0");                                      \
    ZR_EACH_LOADED(HOOK, DLSYM, COUNTED, name, parameters, arguments)
#define IN_TABLES(body, name, parameters, arguments)                                               \
    ZR_EACH_LOADED(HOOK, TABLE, body, name, parameters, arguments)                                 \
    ZR_EACH_LOADED(HOOK, HANDLE, body, name, parameters, arguments)
#define ZR_ENTRY(name, table, index, minor, parameters, arguments)                                 \
    BY_NAME(name, parameters, arguments) IN_TABLES(COUNTED, name, parameters, arguments)
#define ZR_MAKES(name, table, index, minor, parameters, arguments, look_at)                        \
    BY_NAME(name, parameters, arguments) IN_TABLES(LOOKED_AT, name, parameters, arguments)
#include "base/entries.def"

#define AT(n, kind, name) [ZR_HOOK_##kind + n][ZR_E_##name] = (zr_function)kind##n##_##name,
const zr_function zr_hook_function[ZR_HOOKS][ZR_ENTRIES_ZE] = {
#define ZR_ENTRY(name, ...)                                                                        \
    [ZR_HOOK_PLT][ZR_E_##name] = (zr_function)zr_plt_##name,                                       \
    ZR_EACH_LOADED(AT, DLSYM, name) ZR_EACH_LOADED(AT, TABLE, name)                                \
        ZR_EACH_LOADED(AT, HANDLE, name)
#include "base/entries.def"
};
