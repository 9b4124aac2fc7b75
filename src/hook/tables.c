/*
 * Function tables: zeGet*ProcAddrTable of the loader and of drivers.
 *
 * Three kinds of callers fetch tables: runtimes that carry a static loader (from libze_loader), the
 * loader itself (from the drivers), and the loader's own front end (from its back end, through an
 * exported symbol, so that we see it). Callers that bind past our exported names call through one
 * of them. In each table the members that are entry points of ours are replaced by hooks.
 *
 * A hook must know its original, and the same library may hand out different functions (another API
 * version, a driver that came later). So hooks come in sets: a set belongs to one library and holds
 * at most one original per entry point; a different original starts another set.
 */
#include "hook/hook.h"

const char *const zr_getter_name[ZR_TABLES] = {
#define ZR_TABLE(table, getter, ...) #getter,
#include "base/tables.def"
};

const struct zr_place zr_place[ZR_ENTRIES_ZE] = {
#define ZR_ENTRY(name, table, index, minor, parameters, arguments)                                 \
    [ZR_E_##name] = {ZR_TABLE_##table, (index), 1 << 16 | (minor)},
#include "base/entries.def"
};

static bool is_ours(unsigned entry, zr_function f) {
    for (unsigned hook = 0; hook < ZR_HOOKS; hook++)
        if (zr_hook_function[hook][entry] == f)
            return true;
    return false;
}

/* The same member, or NULL if it is hooked already. */
static void **member(void **table, unsigned t, uint32_t version, unsigned entry) {
    void **slot = zr_slot(table, t, version, entry);

    return slot && !is_ours(entry, ZR_FUNCTION(*slot)) ? slot : NULL;
}

/* A set of library n that fits every member of the table, else -1. The caller holds the lock. */
static int set_for(int n, void **table, unsigned t, uint32_t version) {
    for (int s = 0; s < ZR_LOADED; s++) {
        bool good = zr_table_set[s] == n + 1 || !zr_table_set[s];

        for (unsigned e = 0; good && e < ZR_ENTRIES_ZE; e++) {
            zr_function original = zr_original[ZR_HOOK_TABLE + s][e];
            void **m = member(table, t, version, e);

            good = !m || !original || original == ZR_FUNCTION(*m);
        }
        if (good) {
            __atomic_store_n(&zr_table_set[s], n + 1, __ATOMIC_RELEASE);
            return s;
        }
    }
    return -1;
}

static void table_exchange(int n, unsigned t, uint32_t version, void **table) {
    int set;

    zr_lock(&zr_loaded_lock);
    set = set_for(n, table, t, version);
    for (unsigned e = 0; set >= 0 && e < ZR_ENTRIES_ZE; e++) {
        void **m = member(table, t, version, e);

        if (!m)
            continue;
        __atomic_store_n(&zr_original[ZR_HOOK_TABLE + set][e], ZR_FUNCTION(*m), __ATOMIC_RELEASE);
        *m = ZR_POINTER(zr_hook_function[ZR_HOOK_TABLE + set][e]);
    }
    zr_unlock(&zr_loaded_lock);
    if (set < 0)
        zr_missed("calls through one table, because the process has more than %d sets of tables",
                  ZR_LOADED);
}

zr_function zr_hook_table(unsigned entry, zr_function original) {
    void *table[ZR_TABLE_SLOTS] = {0};
    int n;

    zr_loaded_of(ZR_POINTER(original), NULL, &n);
    if (n < 0)
        return original;
    table[zr_place[entry].index] = ZR_POINTER(original);
    table_exchange(n, zr_place[entry].table, UINT32_MAX, table);
    return ZR_FUNCTION(table[zr_place[entry].index]);
}

static ze_result_t table_get(zr_getter getter, int n, unsigned t, ze_api_version_t version,
                             void **table) {
    ze_result_t result = getter(version, table);

    if (result == ZE_RESULT_SUCCESS && table && n >= 0 && !zr_exiting())
        table_exchange(n, t, (uint32_t)version, table);
    if (result == ZE_RESULT_SUCCESS && table && !zr_exiting())
        zr_submit_table(t, (uint32_t)version, table);
    return result;
}

/* For the exported getters: the library is the one that holds the next definition. */
static ze_result_t table_get_next(unsigned t, ze_api_version_t version, void **table,
                                  const void *caller) {
    zr_getter next = (zr_getter)zr_next(zr_getter_name[t], caller);
    int n;

    if (!next)
        return ZE_RESULT_ERROR_UNINITIALIZED;
    zr_loaded_of(ZR_POINTER(next), NULL, &n);
    return table_get(next, n, t, version, table);
}

#define GETTER(n, table)                                                                           \
    static ze_result_t table_get##n##_##table(ze_api_version_t version, void **out) {              \
        return table_get(                                                                          \
            (zr_getter)__atomic_load_n(&zr_loaded[n].getter[ZR_TABLE_##table], __ATOMIC_ACQUIRE),  \
            n, ZR_TABLE_##table, version, out);                                                    \
    }
#define ZR_TABLE(table, getter, ...)                                                               \
    ze_result_t zr_plt_##getter(ze_api_version_t version, void **out);                             \
    __attribute__((visibility("default")))                                                         \
    ze_result_t zr_plt_##getter(ze_api_version_t version, void **out) {                            \
        return table_get_next(ZR_TABLE_##table, version, out, __builtin_return_address(0));        \
    }                                                                                              \
    __asm__(".symver zr_plt_" #getter ", " #getter "@ZEROUTE_0");                                  \
    ZR_EACH_LOADED(GETTER, table)
#include "base/tables.def"

#define GETTER_AT(n, table) [n][ZR_TABLE_##table] = table_get##n##_##table,
const zr_getter zr_getter_function[ZR_LOADED][ZR_TABLES] = {
#define ZR_TABLE(table, ...) ZR_EACH_LOADED(GETTER_AT, table)
#include "base/tables.def"
};
