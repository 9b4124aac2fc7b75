/*
 * The real entry points: which loaders and drivers are in the process, and what lies below each
 * hook.
 *
 * Never loads anything. The loader is found among the loaded libraries, and pinned once seen,
 * because the pointers that were handed out must stay valid.
 */
#include "base/dl.h"
#include "driver/driver.h"
#include "work/work.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

zr_function zr_original[ZR_HOOKS][ZR_ENTRIES_ZE];
struct zr_loaded zr_loaded[ZR_LOADED];
int zr_table_set[ZR_LOADED];
struct zr_lock zr_loaded_lock;
bool zr_touched;

void zr_missed(const char *format, ...) {
    char text[900] = "not seen: ";
    va_list ap;

    va_start(ap, format);
    vsnprintf(text + 10, sizeof text - 10, format, ap);
    va_end(ap);
    if (zr_stats_open())
        zr_text(ZR_T_HOOKS, text);
    zr_warn("Level Zero calls are %s", text);
    zr_work_lost("calls may bypass zeroute");
}

/* --- which library is it ---------------------------------------------------------------------- */

/* Whether this library itself, not a dependency of it, defines the name. */
static bool library_defines(const struct zr_elf *f, void *handle, const char *name) {
    struct zr_elf at;
    void *p = zr_real_dlsym(handle, name);

    return p && zr_elf_find_now(p, &at) && at.start == f->start;
}

/*
 * By soname where it has the usual one, else by what only a loader, a layer (of no interest) or a
 * driver exports.
 */
static enum zr_loaded_kind kind_of(const struct zr_elf *f, void *handle) {
    const char *name = f->soname;

    if (strncmp(name, "libze_loader", 12) == 0)
        return ZR_LOADED_LOADER;
    if (!handle || (strncmp(name, "libze_", 6) == 0 && strstr(name, "_layer")))
        return ZR_LOADED_OTHER;
    if (library_defines(f, handle, "zelLoaderTranslateHandle"))
        return ZR_LOADED_LOADER;
    if (!library_defines(f, handle, "zelLoaderGetVersion") &&
        library_defines(f, handle, "zeGetGlobalProcAddrTable") &&
        library_defines(f, handle, "zeGetDriverProcAddrTable"))
        return ZR_LOADED_DRIVER;
    return ZR_LOADED_OTHER;
}

/*
 * The caller holds the lock. The library is unloaded: nobody can still be calling through its
 * hooks.
 */
static void forget_library(int n) {
    for (int s = 0; s < ZR_LOADED; s++)
        if (zr_table_set[s] == n + 1) {
            memset(zr_original[ZR_HOOK_TABLE + s], 0, sizeof *zr_original);
            __atomic_store_n(&zr_table_set[s], 0, __ATOMIC_RELEASE);
        }
    memset(zr_original[ZR_HOOK_DLSYM + n], 0, sizeof *zr_original);
    memset(zr_original[ZR_HOOK_HANDLE + n], 0, sizeof *zr_original);
    memset(&zr_loaded[n], 0, sizeof zr_loaded[n]);
}

/*
 * A library is identified by its file. If it is loaded again elsewhere, or where another one was,
 * the entry of the unloaded one is dropped. A driver's handle is its loader's: a reference of ours
 * would keep it from being unloaded.
 */
static int number_of(const struct zr_elf *f, enum zr_loaded_kind kind, void *handle) {
    uint64_t file = zr_hash(f->path);
    int n = -1;

    __atomic_store_n(&zr_touched, true, __ATOMIC_RELAXED);
    zr_lock(&zr_loaded_lock);
    for (int i = 0; i < ZR_LOADED; i++) {
        struct zr_loaded *l = &zr_loaded[i];

        if (l->base && (l->base == f->start) != (l->file == file))
            forget_library(i);
        if (l->base == f->start || (n < 0 && !l->base))
            n = i;
    }
    if (n >= 0) {
        zr_loaded[n].file = file;
        zr_loaded[n].kind = kind;
        if (handle)
            __atomic_store_n(&zr_loaded[n].handle, handle, __ATOMIC_RELEASE);
        __atomic_store_n(&zr_loaded[n].base, f->start, __ATOMIC_RELEASE);
    }
    zr_unlock(&zr_loaded_lock);
    if (n < 0)
        zr_missed("calls to %s, because the process has more than %d Level Zero libraries",
                  f->soname, ZR_LOADED);
    return n;
}

enum zr_loaded_kind zr_loaded_of(const void *address, void *handle, int *number) {
    struct zr_elf f;
    enum zr_loaded_kind kind;
    void *pinned;

    for (int n = 0; n < ZR_LOADED; n++) {
        uintptr_t end = __atomic_load_n(&zr_loaded[n].end, __ATOMIC_ACQUIRE);

        if ((uintptr_t)address < end && (uintptr_t)address >= zr_loaded[n].base) {
            *number = n;
            return ZR_LOADED_LOADER;
        }
    }
    *number = -1;
    if (!zr_elf_find_now(address, &f))
        return ZR_LOADED_OTHER;
    if (!handle && f.path[0]) {
        handle = dlopen(f.path, RTLD_LAZY | RTLD_NOLOAD);
        if (handle)
            dlclose(handle); /* it stays loaded: somebody else's code is running in it */
    }
    kind = kind_of(&f, handle);
    pinned =
        kind == ZR_LOADED_LOADER ? dlopen(f.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) : NULL;
    if (kind != ZR_LOADED_OTHER)
        *number = number_of(&f, kind, pinned ? pinned : handle);
    if (pinned && *number >= 0)
        __atomic_store_n(&zr_loaded[*number].end, f.end, __ATOMIC_RELEASE);
    return kind;
}

/* --- what lies below -------------------------------------------------------------------------- */
static ze_result_t no_loader(void) {
    return ZE_RESULT_ERROR_UNINITIALIZED;
}

static ze_result_t not_in_loader(void) {
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

/* A loader for a caller that is bound to our exports although none is in the global scope. */
static void *loader_handle(const void *caller) {
    static const char *const usual[] = {"libze_loader.so.1", "libze_loader.so"};
    int n;

    if (zr_loaded_of(caller, NULL, &n) == ZR_LOADED_LOADER && n >= 0)
        return zr_loaded[n].handle;
    for (unsigned i = 0; i < sizeof usual / sizeof *usual; i++) {
        void *init = zr_dlsym_in(usual[i], "zeInit");

        if (init && zr_loaded_of(init, NULL, &n) == ZR_LOADED_LOADER && n >= 0)
            return zr_loaded[n].handle;
    }
    for (n = 0; n < ZR_LOADED; n++)
        if (zr_loaded[n].handle && zr_loaded[n].kind == ZR_LOADED_LOADER)
            return zr_loaded[n].handle;
    return NULL;
}

zr_function zr_next(const char *name, const void *caller) {
    int saved = errno;
    void *p = zr_real_dlsym(RTLD_NEXT, name);
    void *handle;

    __atomic_store_n(&zr_touched, true, __ATOMIC_RELAXED);
    if (!p) {
        handle = loader_handle(caller);
        p = handle ? zr_real_dlsym(handle, name) : NULL;
    }
    if (!p)
        dlerror(); /* clears the error of a failed lookup of ours */
    errno = saved;
    return ZR_FUNCTION(p);
}

int zr_loaded_below(uint32_t hook) {
    if (hook >= ZR_HOOK_HANDLE)
        return (int)hook - ZR_HOOK_HANDLE;
    if (hook >= ZR_HOOK_TABLE)
        return __atomic_load_n(&zr_table_set[hook - ZR_HOOK_TABLE], __ATOMIC_ACQUIRE) - 1;
    return (int)hook - ZR_HOOK_DLSYM;
}

zr_function zr_function_below(uint32_t hook, const void *caller, const char *name) {
    int saved = errno, n = zr_loaded_below(hook);
    void *p = NULL;

    if (hook == ZR_HOOK_PLT)
        return zr_next(name, caller);
    if (n >= 0 && zr_loaded[n].handle)
        p = zr_real_dlsym(zr_loaded[n].handle, name);
    if (!p)
        dlerror();
    errno = saved;
    return ZR_FUNCTION(p);
}

/*
 * With a single driver in the process handles are the driver's own; with more than one they may be
 * wrapped.
 */
zr_function zr_function_of_driver(const char *name) {
    int only = -1;

    for (int n = 0; n < ZR_LOADED; n++) {
        if (!__atomic_load_n(&zr_loaded[n].base, __ATOMIC_ACQUIRE) ||
            zr_loaded[n].kind != ZR_LOADED_DRIVER)
            continue;
        if (only >= 0)
            return NULL;
        only = n;
    }
    return only < 0 ? NULL : zr_function_below(ZR_HOOK_HANDLE + (uint32_t)only, NULL, name);
}

zr_function zr_find_original(uint32_t hook, unsigned entry, const void *caller) {
    zr_function f = zr_function_below(hook, caller, zr_entry_name[entry]);

    if (f) {
        __atomic_store_n(&zr_original[hook][entry], f, __ATOMIC_RELEASE);
        return f;
    }
    return zr_next("zeInit", caller) ? (zr_function)not_in_loader : (zr_function)no_loader;
}

/*
 * A driver is what the loader loads when somebody starts it; the loader alone may just be linked.
 */
bool zr_is_driver_name(const char *file) {
    return strncmp(file, "libze_", 6) == 0 && strncmp(file, "libze_loader", 12) != 0 &&
           !strstr(file, "_layer");
}
