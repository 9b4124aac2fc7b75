/*
 * The small functions: one per entry point and door, all from entries.def.
 *
 * Each notes its door and its caller in the thread's own structure and goes on to the implementation with
 * the arguments as they came: two stores and a jump. They are right as plain calls too.
 */
#include "door.h"

__thread struct zr_thread zr_thread;

#define NOTE(number, by)                                                                           \
    zr_thread.door = (number);                                                                     \
    zr_thread.way = (by);                                                                          \
    zr_thread.caller = __builtin_return_address(0)

#define DLSYM(n, name, parameters, arguments)                                                      \
    static ze_result_t dlsym##n##_##name parameters                                                \
    {                                                                                              \
        NOTE(ZR_DOOR_DLSYM + n, ZR_WAY_DLSYM);                                                     \
        return zr_on_##name arguments;                                                             \
    }
#define TABLE(n, name, parameters, arguments)                                                      \
    static ze_result_t table##n##_##name parameters                                                \
    {                                                                                              \
        NOTE(ZR_DOOR_TABLE + n, ZR_WAY_TABLE);                                                     \
        return zr_on_##name arguments;                                                             \
    }
/*
 * The C names are ours, so that they agree with entries.def whatever the installed header says. The exported
 * name is a hidden version: found by those who are linked against the loader, not by dlsym.
 */
#define ZR_ENTRY(name, table, slot, parameters, arguments)                                         \
    ze_result_t zr_plt_##name parameters;                                                          \
    __attribute__((visibility("default"))) ze_result_t zr_plt_##name parameters                    \
    {                                                                                              \
        NOTE(ZR_DOOR_PLT, ZR_WAY_PLT);                                                             \
        return zr_on_##name arguments;                                                             \
    }                                                                                              \
    __asm__(".symver zr_plt_" #name ", " #name "@ZEROUTE_0");                                      \
    ZR_EACH_LIBRARY(DLSYM, name, parameters, arguments)                                            \
    ZR_EACH_LIBRARY(TABLE, name, parameters, arguments)
#include "entries.def"
#undef ZR_ENTRY

const char *const zr_ze_name[ZR_ENTRIES_ZE] = {
#define ZR_ENTRY(name, ...) #name,
#include "entries.def"
#undef ZR_ENTRY
};

#define DLSYM_AT(n, name) [ZR_DOOR_DLSYM + n][ZR_E_##name] = (zr_function)dlsym##n##_##name,
#define TABLE_AT(n, name) [ZR_DOOR_TABLE + n][ZR_E_##name] = (zr_function)table##n##_##name,
const zr_function zr_door_function[ZR_DOORS][ZR_ENTRIES_ZE] = {
#define ZR_ENTRY(name, ...)                                                                        \
    [ZR_DOOR_PLT][ZR_E_##name] = (zr_function)zr_plt_##name,                                       \
    ZR_EACH_LIBRARY(DLSYM_AT, name) ZR_EACH_LIBRARY(TABLE_AT, name)
#include "entries.def"
#undef ZR_ENTRY
};
