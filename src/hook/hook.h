/* The map of hook/: how calls arrive. Grouped by the file that defines it; nothing below includes it. */
#ifndef ZEROUTE_HOOK_H
#define ZEROUTE_HOOK_H

#include "driver/driver.h"

#pragma GCC visibility push(hidden)

/* ZR_EACH_LOADED(X, ...) is X(0, ...) X(1, ...) and so on, for each loader and driver that can be told apart. */
#define ZR_EACH_LOADED(X, ...)                                                                                         \
    X(0, __VA_ARGS__)                                                                                                  \
    X(1, __VA_ARGS__)                                                                                                  \
    X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__) X(7, __VA_ARGS__)

/* --- hooks.c: the functions that calls arrive at ------------------------------------------------------------------ */
extern const zr_function zr_hook_function[ZR_HOOKS][ZR_ENTRIES_ZE];

/* --- tables.c: function tables and their getters ------------------------------------------------------------------ */
typedef ze_result_t (*zr_getter)(ze_api_version_t version, void **table);
extern const char *const zr_getter_name[ZR_TABLES];
extern const zr_getter zr_getter_function[ZR_LOADED][ZR_TABLES];
/* A hook of via "table" in front of one function; the function itself when all places are taken. */
zr_function zr_hook_table(unsigned entry, zr_function original);
void zr_tables_fork_child(void);

/* --- guard.c: functions that the installed loader lacks ----------------------------------------------------------- */
/* True: *answer is what dlsym returns for this name. */
bool zr_guard_answer(void *handle, const char *name, const void *caller, void **answer);

#pragma GCC visibility pop

#endif
