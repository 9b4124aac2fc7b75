/*
 * The real entry points: which loaders and drivers are in the process, and what lies below each hook.
 *
 * Never loads anything. The loader is found among what is loaded, and pinned once seen, because the
 * pointers that were handed out must stay good.
 */
#include "base/dl.h"
#include "driver/hook.h"

#include <errno.h>
#include <link.h>
#include <string.h>

zr_function zr_original[ZR_HOOKS][ZR_ENTRIES_ZE];
struct zr_library zr_library[ZR_LIBRARIES];
uint8_t zr_unusual = ZR_UNSETTLED;
static bool touched; /* something of Level Zero has come our way */

/* --- which library is it ---------------------------------------------------------------------------- */
struct found {
    uintptr_t address;
    uintptr_t base; /* of the first segment: never 0, unlike the load bias of a fixed program */
    uintptr_t end;
    const struct namespaces *namespaces; /* as a debugger finds them, from the program itself */
    char path[4096];
    char soname[128];
};

/* glibc's r_debug; from 2.35 on, where there is more than one, r_version is 2 and they are chained. */
struct namespaces {
    struct r_debug one;
    const struct namespaces *next;
};

static void copy(char *to, size_t size, const char *from)
{
    size_t n = strnlen(from, size - 1);

    memcpy(to, from, n);
    to[n] = '\0';
}

static void read_soname(struct found *f, const struct dl_phdr_info *info, const ElfW(Dyn) * d)
{
    uintptr_t strings = 0;
    size_t at = 0;

    for (; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_STRTAB)
            strings = d->d_un.d_ptr;
        if (d->d_tag == DT_SONAME)
            at = d->d_un.d_val;
        if (d->d_tag == DT_DEBUG && d->d_un.d_ptr)
            f->namespaces = (const struct namespaces *)d->d_un.d_ptr;
    }
    if (!at || !strings)
        return;
    if (strings < info->dlpi_addr)
        strings += info->dlpi_addr;
    copy(f->soname, sizeof f->soname, (const char *)strings + at);
}

static int holds(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct found *f = arg;
    const ElfW(Phdr) *dynamic = NULL;
    uintptr_t low = UINTPTR_MAX, high = 0;
    bool inside = false;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr;

        if (p->p_type == PT_DYNAMIC)
            dynamic = p;
        if (p->p_type != PT_LOAD)
            continue;
        if (start < low)
            low = start;
        if (start + p->p_memsz > high)
            high = start + p->p_memsz;
        inside |= f->address - start < p->p_memsz;
    }
    if (!inside)
        return 0;
    f->base = low;
    f->end = high;
    copy(f->path, sizeof f->path, info->dlpi_name ? info->dlpi_name : "");
    if (dynamic)
        read_soname(f, info, (const ElfW(Dyn) *)(info->dlpi_addr + dynamic->p_vaddr));
    return 1;
}

static bool look(struct found *f, const void *address)
{
    f->address = (uintptr_t)address;
    f->base = 0;
    f->path[0] = f->soname[0] = '\0';
    dl_iterate_phdr(holds, f);
    return f->base != 0;
}

/* Does this very library, not one that it depends on, define the name? */
static bool defines(const struct found *f, void *handle, const char *name)
{
    struct found at;
    void *p = zr_real_dlsym(handle, name);

    return p && look(&at, p) && at.base == f->base;
}

/* By soname where it has the usual one, else by what only a loader, a layer or a driver exports. */
static enum zr_library_kind kind_of(const struct found *f, void *handle)
{
    const char *name = f->soname;

    if (strncmp(name, "libze_loader", 12) == 0)
        return ZR_LIBRARY_LOADER;
    if (strncmp(name, "libze_", 6) == 0 && strstr(name, "_layer"))
        return ZR_LIBRARY_LAYER;
    if (!handle)
        return ZR_LIBRARY_OTHER;
    if (defines(f, handle, "zelLoaderTranslateHandle"))
        return ZR_LIBRARY_LOADER;
    if (defines(f, handle, "zelLoaderGetVersion"))
        return ZR_LIBRARY_LAYER;
    if (defines(f, handle, "zeGetGlobalProcAddrTable") && defines(f, handle, "zeGetDriverProcAddrTable"))
        return ZR_LIBRARY_DRIVER;
    return ZR_LIBRARY_OTHER;
}

/* A driver's handle is its loader's own: a reference of ours would keep it from being unloaded. */
static int number_of(const struct found *f, enum zr_library_kind kind, void *handle)
{
    __atomic_store_n(&touched, true, __ATOMIC_RELAXED);
    for (int n = 0; n < ZR_LIBRARIES; n++) {
        uintptr_t none = 0;
        uintptr_t base = __atomic_load_n(&zr_library[n].base, __ATOMIC_ACQUIRE);

        if (!base && __atomic_compare_exchange_n(&zr_library[n].base, &none, f->base, false,
                                                 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            base = f->base;
        else if (!base)
            base = none;
        if (base != f->base)
            continue;
        __atomic_store_n(&zr_library[n].kind, kind, __ATOMIC_RELEASE);
        if (handle)
            __atomic_store_n(&zr_library[n].handle, handle, __ATOMIC_RELEASE);
        return n;
    }
    zr_say("more than %d Level Zero libraries in one process: calls to %s are not seen", ZR_LIBRARIES,
           f->path);
    return -1;
}

enum zr_library_kind zr_library_of(const void *address, void *handle, int *number)
{
    struct found f;
    enum zr_library_kind kind;
    void *own = handle && handle != RTLD_DEFAULT ? handle : NULL;

    for (int n = 0; n < ZR_LIBRARIES; n++) {
        uintptr_t end = __atomic_load_n(&zr_library[n].end, __ATOMIC_ACQUIRE);

        if ((uintptr_t)address < end && (uintptr_t)address >= zr_library[n].base) {
            *number = n;
            return ZR_LIBRARY_LOADER;
        }
    }
    *number = -1;
    if (!look(&f, address))
        return ZR_LIBRARY_OTHER;
    for (int n = 0; n < ZR_LIBRARIES && !own; n++)
        if (__atomic_load_n(&zr_library[n].base, __ATOMIC_ACQUIRE) == f.base)
            own = __atomic_load_n(&zr_library[n].handle, __ATOMIC_ACQUIRE);
    if (!own && f.path[0]) {
        own = dlopen(f.path, RTLD_LAZY | RTLD_NOLOAD);
        if (own)
            dlclose(own); /* it stays loaded: somebody else's code is running in it */
    }
    kind = kind_of(&f, own);
    if (kind == ZR_LIBRARY_LOADER) {
        void *pinned = f.path[0] ? dlopen(f.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) : NULL;

        if (pinned)
            own = pinned;
    }
    if (kind == ZR_LIBRARY_LOADER || kind == ZR_LIBRARY_DRIVER)
        *number = number_of(&f, kind, own);
    if (kind == ZR_LIBRARY_LOADER && *number >= 0 && own)
        __atomic_store_n(&zr_library[*number].end, f.end, __ATOMIC_RELEASE);
    return kind;
}

/* --- what lies below --------------------------------------------------------------------------------- */
static ze_result_t no_loader(void)
{
    return ZE_RESULT_ERROR_UNINITIALIZED;
}

static ze_result_t not_in_loader(void)
{
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

/* A loader for a caller that is bound to our exports although none is in the global scope. */
static void *loader_handle(const void *caller)
{
    static const char *const usual[] = {"libze_loader.so.1", "libze_loader.so"};
    int n;

    if (zr_library_of(caller, NULL, &n) == ZR_LIBRARY_LOADER && n >= 0)
        return zr_library[n].handle;
    for (unsigned i = 0; i < sizeof usual / sizeof *usual; i++) {
        void *handle = dlopen(usual[i], RTLD_LAZY | RTLD_NOLOAD);

        if (handle) {
            void *init = zr_real_dlsym(handle, "zeInit");

            if (init)
                zr_library_of(init, handle, &n);
            dlclose(handle);
            return handle;
        }
    }
    for (n = 0; n < ZR_LIBRARIES; n++)
        if (zr_library[n].handle && zr_real_dlsym(zr_library[n].handle, "zelLoaderTranslateHandle"))
            return zr_library[n].handle;
    return NULL;
}

zr_function zr_next(const char *name, const void *caller)
{
    int saved = errno;
    void *p = zr_real_dlsym(RTLD_NEXT, name);
    void *handle;

    __atomic_store_n(&touched, true, __ATOMIC_RELAXED);
    if (!p && (handle = loader_handle(caller)))
        p = zr_real_dlsym(handle, name);
    if (!p)
        dlerror(); /* the failure was ours, not the caller's */
    errno = saved;
    return ZR_FUNCTION(p);
}

zr_function zr_function_below(uint32_t hook, const char *name)
{
    int saved = errno;
    void *p = NULL;
    int n = hook >= ZR_HOOK_TABLE ? zr_table_library(hook - ZR_HOOK_TABLE) : (int)hook - ZR_HOOK_DLSYM;

    if (hook == ZR_HOOK_PLT)
        return zr_next(name, zr_thread.caller);
    if (n >= 0 && zr_library[n].handle)
        p = zr_real_dlsym(zr_library[n].handle, name);
    if (!p)
        dlerror();
    errno = saved;
    return ZR_FUNCTION(p);
}

zr_function zr_find_original(uint32_t hook, unsigned entry)
{
    zr_function f = zr_function_below(hook, zr_ze_name[entry]);
    if (f) {
        __atomic_store_n(&zr_original[hook][entry], f, __ATOMIC_RELEASE);
        return f;
    }
    return zr_next("zeInit", zr_thread.caller) ? (zr_function)not_in_loader : (zr_function)no_loader;
}

/* --- beginning and end ------------------------------------------------------------------------------ */
bool zr_settle(void)
{
    uint8_t now = 0;

    if (zr_exiting)
        return false;
    zr_config_load();
    if (zr_config.inject.count)
        now |= ZR_INJECTING;
    if (zr_config.trace)
        now |= ZR_TRACING;
    if (zr_config.limit.set || zr_config.host_floor.set || !zr_reserved_is_allocated())
        now |= ZR_DECIDING;
    __atomic_fetch_or(&zr_unusual, now, __ATOMIC_RELAXED);
    __atomic_fetch_and(&zr_unusual, (uint8_t)~ZR_UNSETTLED, __ATOMIC_RELEASE);
    return true;
}

/* A driver is what the loader loads when somebody starts it; the loader alone may just be linked. */
static bool is_driver_name(const char *soname)
{
    return strncmp(soname, "libze_", 6) == 0 && strncmp(soname, "libze_loader", 12) != 0 &&
           !strstr(soname, "_layer");
}

static int is_driver(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct found *f = arg;

    (void)size;
    f->soname[0] = '\0';
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            read_soname(f, info, (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
    return is_driver_name(f->soname);
}

/* A namespace that dlmopen makes has no preload. Only ours is listed by dl_iterate_phdr. */
static bool driver_in_another_namespace(const struct namespaces *n)
{
    for (; n; n = n->one.r_version > 1 ? n->next : NULL)
        for (const struct link_map *l = n->one.r_map; l; l = l->l_next) {
            const char *slash = l->l_name ? strrchr(l->l_name, '/') : NULL;

            if (slash && is_driver_name(slash + 1))
                return true;
        }
    return false;
}

/*
 * Runs when the libraries are taken down, early: a preload stands before what is loaded later. A process that
 * used a driver and never came our way was bound past us, loader and all. Until then nothing of ours runs in it.
 */
__attribute__((destructor)) static void begin_exit(void)
{
    struct found f = {.namespaces = NULL};

    zr_fork_check(); /* a child of raw clone ends with locks that threads of its parent may hold */
    if (__atomic_load_n(&touched, __ATOMIC_RELAXED))
        ;
    else if (dl_iterate_phdr(is_driver, &f) && zr_stats_open()) {
        zr_text(ZR_T_HOOKS, "not seen: the Level Zero loader was opened deep-bound (RTLD_DEEPBIND)");
        zr_say("Level Zero was used and not seen: its loader was opened deep-bound (RTLD_DEEPBIND), past "
               "every preload; with UR_ADAPTERS_DEEP_BIND unset, or the loader opened before, it is seen");
    } else if (driver_in_another_namespace(f.namespaces) && zr_stats_open()) {
        zr_text(ZR_T_HOOKS, "not seen: the Level Zero loader was opened in a namespace of its own (dlmopen)");
        zr_say("Level Zero was used and not seen: its loader was opened in a namespace of its own (dlmopen), "
               "where there is no preload");
    }
    __atomic_fetch_or(&zr_unusual, ZR_EXITING, __ATOMIC_SEQ_CST);
    zr_local_close_all();
    if (zr_config.trace)
        zr_trace_end();
}
