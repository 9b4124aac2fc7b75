/*
 * The map of hook/: how calls arrive. Grouped by the file that defines it; nothing below includes
 * it.
 */
#ifndef ZEROUTE_HOOK_H
#define ZEROUTE_HOOK_H

#include "driver/driver.h"

#pragma GCC visibility push(hidden)

/*
 * ZR_EACH_LOADED(X, ...) is X(0, ...) X(1, ...) and so on, one for each loader and driver that has
 * a place.
 */
#define ZR_EACH_LOADED(X, ...)                                                                     \
    X(0, __VA_ARGS__)                                                                              \
    X(1, __VA_ARGS__)                                                                              \
    X(2, __VA_ARGS__)                                                                              \
    X(3, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__) X(7, __VA_ARGS__)

/* --- hooks.c: the functions that calls arrive at ---------------------------------------------- */
extern const zr_function zr_hook_function[ZR_HOOKS][ZR_ENTRIES_ZE];

/* --- tables.c: function tables and their getters ---------------------------------------------- */
struct zr_place {
    uint8_t table;
    uint8_t index;
    uint32_t since; /* the API version */
};
extern const struct zr_place zr_place[ZR_ENTRIES_ZE];
/* The member of table `t` that is this entry point, if the table's version has it. */
static inline void **zr_slot(void **table, unsigned t, uint32_t version, unsigned entry) {
    const struct zr_place *p = &zr_place[entry];

    return p->table == t && p->since <= version && table[p->index] ? &table[p->index] : NULL;
}
typedef ze_result_t (*zr_getter)(ze_api_version_t version, void **table);
extern const char *const zr_getter_name[ZR_TABLES];
extern const zr_getter zr_getter_function[ZR_LOADED][ZR_TABLES];
/*
 * Returns a hook of kind "table" in front of one function; the function itself if all places are
 * taken.
 */
zr_function zr_hook_table(unsigned entry, zr_function original);

/* --- submits.c: what gives devices work, or waits for it -------------------------------------- */
/* Whether a function of this name gives devices work or waits for it, known or not. */
bool zr_submit_is_work(const char *name);
/* A hook in front of it, if somebody asks what is idle; else the function itself. */
zr_function zr_submit_named(const char *name, zr_function original);
zr_function zr_submit_hook(unsigned entry, zr_function original);
/* The same for all of a table. */
void zr_submit_table(unsigned t, uint32_t version, void **table);
/* How much of such a table they take; `least` if that is more. */
size_t zr_submit_table_bytes(unsigned t, uint32_t version, size_t least);

/* --- deep.c: callers that are bound past us (RTLD_DEEPBIND) ----------------------------------- */
/*
 * Something was opened deep-bound: dlsym calls zr_deep_look(), which redirects its slots and those
 * of loaders.
 */
extern bool zr_deep_seen;
void zr_deep_open(const char *file, int mode);
void zr_deep_look(void);
/* Of dlsym.c. */
void *zr_dlopen(const char *file, int mode);
void *zr_dlsym(void *handle, const char *name);
#define ZR_DEEP "; unset UR_ADAPTERS_DEEP_BIND, or open the loader before"

/* --- unversioned.c: the loader by its unversioned name ---------------------------------------- */
/* The name to open instead of this one, or NULL. */
const char *zr_unversioned(const char *file, const void *caller);

/* --- opencl.c: programs that use OpenCL ------------------------------------------------------- */
/* Called before this file is opened: says so if it is OpenCL's driver, which it then keeps open. */
void zr_opencl_open(const char *file, int mode, const void *caller);
/* Whether the process uses OpenCL, which is then said, if it was not said before. */
bool zr_opencl_at_end(bool level_zero_used);

/* --- handles.c: the tables behind handles ----------------------------------------------------- */
#define ZR_ENTRY(...)
#define ZR_MAKES(name, table, index, minor, parameters, arguments, look_at)                        \
    ze_result_t zr_made_##name ZR_ARRIVES(parameters);
#include "base/entries.def"

/* --- guard.c: functions that the installed loader lacks --------------------------------------- */
/* Returns true if *answer is what dlsym is to return for this name. */
bool zr_guard_answer(void *handle, const char *name, const void *caller, void **answer);
/*
 * What stands in for a function that no loader of this process has; NULL if the guard does not know
 * it.
 */
zr_function zr_guard_stub(const char *name);

#pragma GCC visibility pop

#endif
