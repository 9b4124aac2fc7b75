/*
 * The small functions: one per entry point and hook, all from entries.def.
 *
 * Each notes its hook and its caller in the thread's own structure and goes on to the implementation with
 * the arguments as they came: three stores and a jump. They are right as plain calls too. Those of allocations and
 * frees look for a shorter way first: the lean one, or the shortest.
 */
#include "policy/hit.h"
#include "policy/lean.h"

__thread struct zr_thread zr_thread __attribute__((aligned(64)));

/*
 * Three kinds of hooks for an entry point. GO has what is behind them for a hook and a way, and goes on from one.
 */
#define DLSYM(n, GO, name, parameters, arguments)                                                  \
    BEHIND_##GO(2, dlsym##n##_, name, ZR_HOOK_DLSYM + n, ZR_VIA_DLSYM, parameters, arguments)      \
    static NEAR_##GO(2) ze_result_t dlsym##n##_##name parameters                                   \
    {                                                                                              \
        GO(dlsym##n##_, name, ZR_HOOK_DLSYM + n, ZR_VIA_DLSYM, arguments);                         \
    }
/*
 * Most calls that come to a driver's hook have passed a hook of ours above it: they are within that one, are booked
 * there, and go straight on. A test and a jump; what lies below is known before such a hook is handed out.
 */
#define TABLE(n, GO, name, parameters, arguments)                                                  \
    BEHIND_##GO(2, table##n##_, name, ZR_HOOK_TABLE + n, ZR_VIA_TABLE, parameters, arguments)      \
    static NEAR_##GO(1) ze_result_t table##n##_##name parameters                                   \
    {                                                                                              \
        if (likely(zr_thread.busy == ZR_ONLY_INSIDE))                                              \
            return ((zr_fn_##name)zr_known_below(ZR_HOOK_TABLE + n, ZR_E_##name))arguments;        \
        GO(table##n##_, name, ZR_HOOK_TABLE + n, ZR_VIA_TABLE, arguments);                         \
    }
/*
 * The C names are ours, so that they agree with entries.def whatever the installed header says. The exported
 * name is a hidden version: found by those who are linked against the loader, not by dlsym.
 */
#define HOOKS(GO, name, parameters, arguments)                                                     \
    BEHIND_##GO(0, plt_, name, ZR_HOOK_PLT, ZR_VIA_PLT, parameters, arguments)                     \
    ze_result_t zr_plt_##name parameters;                                                          \
    __attribute__((visibility("default"))) NEAR_##GO(0) ze_result_t zr_plt_##name parameters       \
    {                                                                                              \
        GO(plt_, name, ZR_HOOK_PLT, ZR_VIA_PLT, arguments);                                        \
    }                                                                                              \
    __asm__(".symver zr_plt_" #name ", " #name "@ZEROUTE_0");                                      \
    ZR_EACH_LIBRARY(DLSYM, GO, name, parameters, arguments)                                        \
    ZR_EACH_LIBRARY(TABLE, GO, name, parameters, arguments)

#define LIST(...) __VA_ARGS__
/*
 * What is called together lies together: the hooks of programs with their lean way, then those of tables. The linker
 * sorts by name. Where in a page they begin is worth up to 15 ns per pair of calls into a driver that fills the
 * processor's tables by itself: of 16 places this one was good for every size (test/bench/bench_observed).
 */
#define NEAR_GENERAL(place)
#define NEAR_LEAN(place) __attribute__((section(".text.sorted." #place)))
__asm__(".pushsection .text.sorted.0, \"ax\", @progbits\n\t.p2align 12\n\t.skip 1792\n\t.popsection");
#define BEHIND_GENERAL(place, kind, name, hook, way, parameters, arguments)
#define GENERAL(kind, name, hook, way, arguments)                                                  \
    zr_thread.caller = __builtin_return_address(0);                                                \
    zr_note((hook), (way));                                                                        \
    return zr_on_##name arguments
/* Functions of their own, so that neither of the two ways pays for the other's registers. */
#define BEHIND_LEAN(place, kind, name, hook, way, parameters, arguments)                           \
    static __attribute__((noinline)) NEAR_LEAN(place) ze_result_t lean_##kind##name parameters     \
    {                                                                                              \
        return zr_lean_##name((hook), (way), LIST arguments);                                      \
    }                                                                                              \
    static __attribute__((noinline)) NEAR_LEAN(3) ze_result_t hit_##kind##name parameters          \
    {                                                                                              \
        return zr_hit_##name((hook), (way), LIST arguments);                                       \
    }
#define LEAN(kind, name, hook, way, arguments)                                                     \
    zr_thread.caller = __builtin_return_address(0);                                                \
    if (likely(zr_thread.busy == ZR_ONLY_LEAN))                                                    \
        return lean_##kind##name arguments;                                                        \
    return hit_##kind##name arguments

#define ZR_ENTRY(name, table, slot, parameters, arguments) HOOKS(GENERAL, name, parameters, arguments)
#define ZR_LEAN(name, table, slot, parameters, arguments) HOOKS(LEAN, name, parameters, arguments)
#include "base/entries.def"
#undef ZR_ENTRY

const char *const zr_ze_name[ZR_ENTRIES_ZE] = {
#define ZR_ENTRY(name, ...) #name,
#include "base/entries.def"
#undef ZR_ENTRY
};

#define DLSYM_AT(n, name) [ZR_HOOK_DLSYM + n][ZR_E_##name] = (zr_function)dlsym##n##_##name,
#define TABLE_AT(n, name) [ZR_HOOK_TABLE + n][ZR_E_##name] = (zr_function)table##n##_##name,
const zr_function zr_hook_function[ZR_HOOKS][ZR_ENTRIES_ZE] = {
#define ZR_ENTRY(name, ...)                                                                        \
    [ZR_HOOK_PLT][ZR_E_##name] = (zr_function)zr_plt_##name,                                       \
    ZR_EACH_LIBRARY(DLSYM_AT, name) ZR_EACH_LIBRARY(TABLE_AT, name)
#include "base/entries.def"
#undef ZR_ENTRY
};
