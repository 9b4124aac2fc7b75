/*
 * The small functions that calls arrive at: one per entry point and hook, all from entries.def. Each notes its hook and
 * its caller in the thread's structure and goes on to the implementation with the arguments as they came: a few stores
 * and a jump.
 */
#include "hook/hook.h"

#define ARRIVE(hook_number, hook_via)                                                                                  \
    zr_thread.hook.caller = __builtin_return_address(0);                                                               \
    zr_thread.hook.number = (hook_number);                                                                             \
    zr_thread.hook.via = (hook_via)

/* Kind is DLSYM, TABLE or HANDLE; `to` is zr_on_, or zr_made_ where what a driver returns is looked at. */
#define HOOK(n, kind, to, name, parameters, arguments)                                                                 \
    static ze_result_t kind##n##_##name parameters {                                                                   \
        ARRIVE(ZR_HOOK_##kind + n, ZR_VIA_##kind);                                                                     \
        return to##name arguments;                                                                                     \
    }

/*
 * The C names are ours, so that they agree with entries.def whatever the installed header says. The exported name is a
 * hidden version: found by those who are linked against the loader, not by dlsym.
 */
#define BY_NAME(name, parameters, arguments)                                                                           \
    ze_result_t zr_plt_##name parameters;                                                                              \
    __attribute__((visibility("default"))) ze_result_t zr_plt_##name parameters {                                      \
        ARRIVE(ZR_HOOK_PLT, ZR_VIA_PLT);                                                                               \
        return zr_on_##name arguments;                                                                                 \
    }                                                                                                                  \
    __asm__(".symver zr_plt_" #name ", " #name "@ZEROUTE_0");                                                          \
    ZR_EACH_LOADED(HOOK, DLSYM, zr_on_, name, parameters, arguments)
#define IN_TABLES(to, name, parameters, arguments)                                                                     \
    ZR_EACH_LOADED(HOOK, TABLE, to, name, parameters, arguments)                                                       \
    ZR_EACH_LOADED(HOOK, HANDLE, to, name, parameters, arguments)
#define ZR_ENTRY(name, table, index, minor, parameters, arguments)                                                     \
    BY_NAME(name, parameters, arguments) IN_TABLES(zr_on_, name, parameters, arguments)
#define ZR_MAKES(name, table, index, minor, parameters, arguments, look_at)                                            \
    BY_NAME(name, parameters, arguments) IN_TABLES(zr_made_, name, parameters, arguments)
#include "base/entries.def"

#define AT(n, kind, name) [ZR_HOOK_##kind + n][ZR_E_##name] = (zr_function)kind##n##_##name,
const zr_function zr_hook_function[ZR_HOOKS][ZR_ENTRIES_ZE] = {
#define ZR_ENTRY(name, ...)                                                                                            \
    [ZR_HOOK_PLT][ZR_E_##name] = (zr_function)zr_plt_##name,                                                           \
    ZR_EACH_LOADED(AT, DLSYM, name) ZR_EACH_LOADED(AT, TABLE, name) ZR_EACH_LOADED(AT, HANDLE, name)
#include "base/entries.def"
};
