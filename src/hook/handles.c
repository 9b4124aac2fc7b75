/*
 * The tables behind handles (ZE_extension_driver_ddi_handles): each object of such a driver begins
 * with pointers to its function tables. With two drivers in a process newer loaders call through
 * them, past the tables of tables.c.
 *
 * A program may hold wrapped handles of the loader that look the same, so only handles that a
 * driver itself returns to its loader are examined. The tables are the driver's memory, one set for
 * all objects or one per context. They are hooked in place only if the driver advertises them,
 * their version is 1, they are valid, and every slot of ours equals that of the function tables
 * which the driver hands out.
 */
#include "hook/hook.h"
#include "policy/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct layer {
    uint32_t version;
    uint8_t valid;
    void **table[];
};
struct object {
    struct layer *layer[ZR_LAYERS];
};

static const struct {
    enum zr_layer layer;
    uint8_t position;
} where[ZR_TABLES] = {
#define ZR_TABLE(table, getter, layer, position) {ZR_LAYER_##layer, (position)},
#include "base/tables.def"
};

/*
 * The kernel reads the mask before it rejects the first argument: EFAULT if it cannot, else EINVAL.
 * No side effect.
 */
static bool is_readable(const void *p, size_t bytes) {
    int saved = errno;
    bool good = p && (uintptr_t)p % sizeof(void *) == 0;

    for (unsigned end = 0; end < 2 && good; end++)
        good = syscall(SYS_rt_sigprocmask, -1, (const char *)p + end * (bytes - 8), NULL, 8) == 0 ||
               errno != EFAULT;
    errno = saved;
    return good;
}

/*
 * The driver's function table as it hands it out, perhaps with our hooks in it. Returns false if it
 * has none.
 */
static bool own_table(int n, unsigned t, uint32_t version, void **own) {
    zr_getter getter = (zr_getter)__atomic_load_n(&zr_loaded[n].getter[t], __ATOMIC_ACQUIRE);

    memset(own, 0, ZR_TABLE_SLOTS * sizeof *own);
    return getter && getter((ze_api_version_t)(version < ZR_NEWEST_API ? version : ZR_NEWEST_API),
                            own) == ZE_RESULT_SUCCESS;
}

static bool has_tables(int n, ze_driver_handle_t driver) {
    enum { GET_PROPERTIES = 2 }; /* its place in the table */
    struct zr_ze_flags tables = {.stype = ZR_STYPE_DRIVER_DDI_HANDLES};
    ze_driver_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES,
                                         .pNext = &tables};
    void *own[ZR_TABLE_SLOTS];

    return own_table(n, ZR_TABLE_Driver, 1 << 16, own) && own[GET_PROPERTIES] &&
           ((ze_result_t(*)(ze_driver_handle_t, void *))ZR_FUNCTION(own[GET_PROPERTIES]))(
               driver, &properties) == ZE_RESULT_SUCCESS &&
           tables.flags & ZR_DRIVER_HAS_DDI_HANDLES;
}

static bool is_known_layer(const struct layer *l, unsigned t) {
    return is_readable(l, sizeof *l + (where[t].position + 1) * sizeof *l->table) &&
           l->version >> 16 == 1 && l->valid;
}

/* How far the table reaches in which this version has entry points of ours. */
static size_t bytes_of(unsigned t, uint32_t version) {
    size_t bytes = sizeof(void *);

    for (unsigned e = 0; e < ZR_ENTRIES_ZE; e++) {
        const struct zr_place *p = &zr_place[e];

        if (p->table == t && p->since <= version && p->index * sizeof(void *) >= bytes)
            bytes = (p->index + 1) * sizeof(void *);
    }
    return bytes;
}

/*
 * Examines the slot of one entry point (*todo: it has no hook yet), or writes it. Returns false if
 * it is not the driver's own. The caller holds the lock.
 */
static bool visit_slot(int n, unsigned e, void **slot, void *original, bool write, bool *todo) {
    void *hook = ZR_POINTER(zr_hook_function[ZR_HOOK_HANDLE + n][e]);

    if (!slot || *slot == hook)
        return true;
    if (original != hook)
        __atomic_store_n(&zr_original[ZR_HOOK_HANDLE + n][e], ZR_FUNCTION(original),
                         __ATOMIC_RELEASE);
    if (*slot != ZR_POINTER(zr_original[ZR_HOOK_HANDLE + n][e])) {
        *todo = false;
        return false;
    }
    *todo = true;
    if (write)
        __atomic_store_n(slot, hook, __ATOMIC_RELEASE);
    return true;
}

/*
 * Examines a table behind an object (*todo: it has slots without a hook), or writes it, from the
 * end of entries.def. Returns false if there is a table that is not the driver's own, or its pages
 * cannot be written.
 */
static bool visit_table(int n, const struct object *o, unsigned t, bool write, bool *todo) {
    struct layer *l = o->layer[where[t].layer];
    void *own[ZR_TABLE_SLOTS], **table = NULL;
    bool good = true;
    size_t bytes;
    int was = 0;

    if (l && !is_known_layer(l, t))
        return false;
    if (l && own_table(n, t, l->version, own))
        table = l->table[where[t].position];
    if (!table)
        return t != ZR_TABLE_Mem;
    bytes = zr_submit_table_bytes(t, l->version, bytes_of(t, l->version));
    if (!is_readable(table, bytes))
        return false;
    zr_lock(&zr_loaded_lock);
    if (write)
        was = zr_pages_protect(table, bytes, -1);
    for (unsigned i = 0; i < ZR_ENTRIES_ZE && good && was >= 0; i++) {
        unsigned e = ZR_ENTRIES_ZE - 1 - i;

        good =
            visit_slot(n, e, zr_slot(table, t, l->version, e), own[zr_place[e].index], write, todo);
    }
    if (write && was >= 0 && good)
        zr_submit_table(t, l->version, table);
    if (write && was >= 0)
        zr_pages_protect(table, bytes, was);
    zr_unlock(&zr_loaded_lock);
    return good && was >= 0;
}

/*
 * Whether a call may be on its way past the hooks that are being set. The folder has a link for
 * each thread.
 */
static bool has_other_threads(void) {
    struct statx s; /* stat is a function of libc's own only from glibc 2.33 on */

    return statx(AT_FDCWD, "/proc/self/task", 0, STATX_NLINK, &s) != 0 || s.stx_nlink > 3;
}

static void look(int n, ze_driver_handle_t driver, const struct object *o) {
    bool known = true, good = true, todo = false;
    struct zr_elf elf = {.soname = "a driver"};

    if (!is_readable(o, sizeof *o) || !has_tables(n, driver))
        return;
    for (unsigned t = 0; known && t < ZR_TABLES; t++)
        known = visit_table(n, o, t, false, &todo);
    for (unsigned t = 1; known && todo && good && t <= ZR_TABLES; t++)
        good = visit_table(n, o, ZR_TABLES - t, true, &todo);
    if (known && todo && has_other_threads())
        zr_registry_hooked_late();
    if (known && good)
        return;
    (void)zr_elf_find_now((void *)zr_loaded[n].base, &elf);
    zr_missed("what the loader calls through the handles of %s, as it does beside a second driver: "
              "their tables %s; set "
              "ZE_ENABLE_LOADER_DRIVER_DDI_PATH=0",
              elf.soname,
              known ? "cannot be written" : "are not as this version of zeroute knows them");
}

/*
 * The creation of the default context is not seen, and its getter returns no code: ask the driver
 * for it.
 */
static void seen(uint32_t hook, ze_driver_handle_t driver, void *object) {
    enum { GET_DEFAULT_CONTEXT = 8, SINCE = 1 << 16 | 14 };
    int n = zr_loaded_below(hook);
    void *own[ZR_TABLE_SLOTS];

    if (n < 0 || zr_loaded[n].kind != ZR_LOADED_DRIVER || zr_exiting())
        return;
    look(n, driver, object);
    if (object == driver && own_table(n, ZR_TABLE_Driver, SINCE, own) && own[GET_DEFAULT_CONTEXT])
        look(n, driver,
             ((void *(*)(ze_driver_handle_t))ZR_FUNCTION(own[GET_DEFAULT_CONTEXT]))(driver));
}

static void drivers_seen(uint32_t hook, const uint32_t *count, ze_driver_handle_t *drivers) {
    for (uint32_t i = 0; count && drivers && i < *count; i++)
        seen(hook, drivers[i], drivers[i]);
}

#define ZR_ENTRY(...)
#define ZR_MAKES(name, table, index, minor, parameters, arguments, look_at)                        \
    ze_result_t zr_made_##name ZR_ARRIVES(parameters) {                                            \
        uint32_t hook = from.hook;                                                                 \
        ze_result_t result = zr_on_##name ZR_ARRIVED(arguments);                                   \
        if (result == ZE_RESULT_SUCCESS)                                                           \
            look_at;                                                                               \
        return result;                                                                             \
    }
#include "base/entries.def"
