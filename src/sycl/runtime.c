/*
 * The SYCL runtimes in this process. Their ABI is checked, not assumed: the soname must be a known
 * one, and every function that we stand in front of must be there. Any other runtime is passed
 * through.
 */
#include "base/dl.h"
#include "sycl/sycl.h"

#include <string.h>

#define PREFIX "_ZN4sycl3_V1"

static const char *const symbols[ZR_SYCL_FORMS] = {
#define ZR_SYCL(form, entry, symbol, parameters, arguments, ...) PREFIX symbol,
#define ZR_SYCL_FREE(form, symbol, parameters, arguments, ...) PREFIX symbol,
#include "sycl/usm.def"
};

enum { RUNTIMES = 4, OLDEST = 7 };

static struct zr_runtime runtimes[RUNTIMES];

static const char *const known[] = {"libsycl.so.7", "libsycl.so.8", "libsycl.so.9"};

/* libsycl.so.9 is 9; anything else, libsycl-preview among it, is 0. */
static unsigned soname_number(const char *soname) {
    for (unsigned i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(soname, known[i]) == 0)
            return OLDEST + i;
    return 0;
}

/* libsycl-preview is another runtime; libsycl-jit and others are none. */
static bool is_runtime(const char *file) {
    return strncmp(file, "libsycl.so", 10) == 0 || strncmp(file, "libsycl-preview.so", 18) == 0;
}

/* While a thread forks, a runtime of another version is not noticed here; its own calls will show
 * it. */
bool zr_runtime_is_foreign(void) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (zr_dl_loaded(known[i]))
            return false;
    return zr_elf_named(is_runtime) == ZR_LIST_FOUND;
}

static signed char (*backend_of(const struct zr_runtime *r, const char *symbol))(const void *) {
    return (signed char (*)(const void *))ZR_FUNCTION(zr_real_dlsym(r->handle, symbol));
}

static bool fill(struct zr_runtime *r) {
    bool whole = true;

    for (int i = 0; i < ZR_SYCL_FORMS; i++) {
        r->real[i] = ZR_FUNCTION(zr_real_dlsym(r->handle, symbols[i]));
        whole &= r->real[i] != NULL;
    }
    r->context_backend = backend_of(r, "_ZNK4sycl3_V17context11get_backendEv");
    r->queue_backend = backend_of(r, "_ZNK4sycl3_V15queue11get_backendEv");
    return whole && r->context_backend && r->queue_backend;
}

static void runtime_report(const struct zr_runtime *r, bool first, const char *soname) {
    const char *why = "a SYCL runtime without all of its USM functions";

    if (!first)
        why = "a second SYCL runtime in this process";
    else if (!r->soname)
        why = ZR_RUNTIME_NOT_KNOWN;
    zr_warn("%s (%s): its allocations are left to it", why, soname);
    if (first) {
        zr_text(ZR_T_ROUTE, "native");
        zr_text(ZR_T_ROUTE_WHY, why);
    }
}

/* The runtime at this address, or a place for it; NULL if all are taken. The caller holds the lock.
 */
static struct zr_runtime *runtime_place(uintptr_t base) {
    for (int i = 0; i < RUNTIMES; i++)
        if (runtimes[i].base == base || !runtimes[i].base)
            return &runtimes[i];
    return NULL;
}

/* The first runtime that is used is ours, later ones pass through. It is examined without the lock,
 * then published. */
static struct zr_runtime *know(zr_function function) {
    struct zr_runtime new = {.base = 0}, *r;
    bool added = false;
    struct zr_elf elf;

    if (!zr_elf_find_now(ZR_POINTER(function), &elf))
        return NULL;
    new.handle = dlopen(elf.path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    if (!new.handle)
        return NULL;
    new.base = elf.start;
    new.soname = soname_number(elf.soname);
    new.ours = fill(&new) && new.soname;
    zr_lock(&zr_sycl_lock);
    r = runtime_place(new.base);
    if (r && !r->base) {
        added = true;
        new.ours &= r == &runtimes[0];
        *r = new;
    }
    zr_unlock(&zr_sycl_lock);
    if (added && !new.ours)
        runtime_report(r, r == &runtimes[0], elf.soname);
    return r;
}

zr_function zr_definition(const char *symbol, const void *caller) {
    /* Python loads a runtime RTLD_LOCAL: it is in nobody's scope but its own. */
    static const char *const usual[] = {"libsycl.so.9", "libsycl.so.8", "libsycl.so.7",
                                        "libumf.so.1", "libumf.so.0"};
    void *p = zr_dlsym_from(caller, symbol);

    if (!p)
        p = zr_real_dlsym(RTLD_NEXT, symbol);
    for (size_t i = 0; !p && i < sizeof usual / sizeof usual[0]; i++)
        p = zr_dlsym_in(usual[i], symbol);
    dlerror();
    return ZR_FUNCTION(p);
}

/* Every runtime has this form of free. */
static ZR_COLD struct zr_runtime *find_runtime(const void *caller) {
    zr_function function = zr_definition(symbols[ZR_SYCL_free_XC], caller);
    struct zr_runtime *r;

    if (!function)
        return NULL;
    zr_config_load();
    zr_stats_open();
    r = know(function);
    zr_library_tag(zr_library_find_now(caller), r);
    return r;
}

/* A library is linked to one runtime: its record remembers which. */
struct zr_runtime *zr_runtime_called(enum zr_entry entry, const void *caller) {
    struct zr_runtime *r;

    if (likely(!zr_exiting())) {
        zr_fork_check();
        zr_control_check();
        zr_count_call(entry, ZR_VIA_SYCL);
    }
    r = zr_library_tagged(zr_library_of(caller));
    return likely(r) ? r : find_runtime(caller);
}

zr_function zr_runtime_function(const struct zr_runtime *runtime, const char *symbol,
                                const void *caller) {
    zr_function f;

    if (!runtime)
        return zr_definition(symbol, caller);
    f = ZR_FUNCTION(zr_real_dlsym(runtime->handle, symbol));
    if (!f)
        dlerror();
    return f;
}

zr_function zr_runtime_form(const struct zr_runtime *runtime, enum zr_sycl_form form,
                            const void *caller) {
    if (likely(runtime && runtime->real[form]))
        return runtime->real[form];
    return zr_definition(symbols[form], caller);
}
