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

/*
 * A call that has passed a hook already goes straight down: it was counted there. zr_enter() would say the same later;
 * every call by name meets the hook in the driver's table on its way.
 */
#define GO_DOWN(hook_number, name, arguments)                                                                          \
    if (zr_thread.inside && !zr_thread.watch)                                                                          \
    return ((zr_fn_##name)zr_below((hook_number), ZR_E_##name))arguments

#define DLSYM(n, name, parameters, arguments)                                                                          \
    static ze_result_t dlsym##n##_##name parameters {                                                                  \
        ARRIVE(ZR_HOOK_DLSYM + n, ZR_VIA_DLSYM);                                                                       \
        return zr_on_##name arguments;                                                                                 \
    }
#define TABLE(n, name, parameters, arguments)                                                                          \
    static ze_result_t table##n##_##name parameters {                                                                  \
        GO_DOWN(ZR_HOOK_TABLE + n, name, arguments);                                                                   \
        ARRIVE(ZR_HOOK_TABLE + n, ZR_VIA_TABLE);                                                                       \
        return zr_on_##name arguments;                                                                                 \
    }
#define HANDLE(n, name, parameters, arguments)                                                                         \
    static ze_result_t handle##n##_##name parameters {                                                                 \
        GO_DOWN(ZR_HOOK_HANDLE + n, name, arguments);                                                                  \
        ARRIVE(ZR_HOOK_HANDLE + n, ZR_VIA_HANDLE);                                                                     \
        return zr_on_##name arguments;                                                                                 \
    }

/* What a driver returns is looked at in nested calls, too. */
#define MAKES(n, name, parameters, arguments)                                                                          \
    static ze_result_t table##n##_##name parameters {                                                                  \
        ARRIVE(ZR_HOOK_TABLE + n, ZR_VIA_TABLE);                                                                       \
        return zr_made_##name arguments;                                                                               \
    }                                                                                                                  \
    static ze_result_t handle##n##_##name parameters {                                                                 \
        ARRIVE(ZR_HOOK_HANDLE + n, ZR_VIA_HANDLE);                                                                     \
        return zr_made_##name arguments;                                                                               \
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
    ZR_EACH_LOADED(DLSYM, name, parameters, arguments)
#define ZR_ENTRY(name, table, index, minor, parameters, arguments)                                                     \
    BY_NAME(name, parameters, arguments)                                                                               \
    ZR_EACH_LOADED(TABLE, name, parameters, arguments)                                                                 \
    ZR_EACH_LOADED(HANDLE, name, parameters, arguments)
#define ZR_MAKES(name, table, index, minor, parameters, arguments)                                                     \
    BY_NAME(name, parameters, arguments)                                                                               \
    ZR_EACH_LOADED(MAKES, name, parameters, arguments)
#include "base/entries.def"
#undef ZR_ENTRY

#define DLSYM_AT(n, name) [ZR_HOOK_DLSYM + n][ZR_E_##name] = (zr_function)dlsym##n##_##name,
#define TABLE_AT(n, name) [ZR_HOOK_TABLE + n][ZR_E_##name] = (zr_function)table##n##_##name,
#define HANDLE_AT(n, name) [ZR_HOOK_HANDLE + n][ZR_E_##name] = (zr_function)handle##n##_##name,
const zr_function zr_hook_function[ZR_HOOKS][ZR_ENTRIES_ZE] = {
#define ZR_ENTRY(name, ...)                                                                                            \
    [ZR_HOOK_PLT][ZR_E_##name] = (zr_function)zr_plt_##name,                                                           \
    ZR_EACH_LOADED(DLSYM_AT, name) ZR_EACH_LOADED(TABLE_AT, name) ZR_EACH_LOADED(HANDLE_AT, name)
#include "base/entries.def"
#undef ZR_ENTRY
};
