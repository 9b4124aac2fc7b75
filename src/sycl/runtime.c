/*
 * The SYCL runtimes in this process. Their ABI is checked, not assumed: a soname that we know, and
 * every function that we stand in front of present. Anything else is passed through.
 */
#include "base/dl.h"
#include "sycl/route.h"

#include <link.h>
#include <string.h>

#define PREFIX "_ZN4sycl3_V1"

static const char *const symbols[ZR_SYCL_FORMS] = {
#define ZR_SYCL(form, entry, symbol, parameters, arguments, ...) PREFIX symbol,
#define ZR_SYCL_FREE(form, symbol, parameters, arguments, object) PREFIX symbol,
#include "sycl/usm.def"
#undef ZR_SYCL
#undef ZR_SYCL_FREE
};

enum { RUNTIMES = 4, SITES = 64, OLDEST = 7, NEWEST = 9 };

static struct zr_runtime runtimes[RUNTIMES];
static struct zr_lock lock;

/* Which runtime a call site belongs to: a call site never changes its library. */
static struct {
    const void *site;
    struct zr_runtime *runtime;
} sites[SITES];

/* libsycl.so.9 is 9; anything else, libsycl-preview among it, is 0. */
static unsigned soname_number(const char *soname)
{
    static const char stem[] = "libsycl.so.";
    const char *digits = soname + sizeof stem - 1;
    unsigned n = 0;

    if (strncmp(soname, stem, sizeof stem - 1) != 0)
        return 0;
    while (*digits >= '0' && *digits <= '9')
        n = n * 10 + (unsigned)(*digits++ - '0');
    return *digits == '\0' && n >= OLDEST && n <= NEWEST ? n : 0;
}

struct census {
    const void *inside[RUNTIMES]; /* an address in each libsycl */
    unsigned count;
};

/* libsycl-preview is another runtime; libsycl-jit and others are none. */
static bool is_named(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    const char *name = slash ? slash + 1 : path;

    return name && (strncmp(name, "libsycl.so", 10) == 0 || strncmp(name, "libsycl-preview.so", 18) == 0);
}

static int is_runtime(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct census *c = arg;

    (void)size;
    for (int i = 0; is_named(info->dlpi_name) && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && c->count < RUNTIMES) {
            c->inside[c->count++] = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
            break;
        }
    return 0;
}

bool zr_runtime_is_foreign(void)
{
    struct census c = {.count = 0};
    bool known = false;

    dl_iterate_phdr(is_runtime, &c);
    for (unsigned i = 0; i < c.count; i++)
        known |= soname_number(zr_caller_name(c.inside[i])) != 0;
    return c.count != 0 && !known;
}

static signed char (*backend_of(const struct zr_runtime *r, const char *symbol))(const void *)
{
    return (signed char (*)(const void *))ZR_FUNCTION(zr_real_dlsym(r->handle, symbol));
}

static bool fill(struct zr_runtime *r)
{
    bool whole = true;

    for (int i = 0; i < ZR_SYCL_FORMS; i++) {
        r->real[i] = ZR_FUNCTION(zr_real_dlsym(r->handle, symbols[i]));
        whole &= r->real[i] != NULL;
    }
    r->context_backend = backend_of(r, "_ZNK4sycl3_V17context11get_backendEv");
    r->queue_backend = backend_of(r, "_ZNK4sycl3_V15queue11get_backendEv");
    return whole && r->context_backend && r->queue_backend;
}

/* Under the lock. The first runtime that is used is ours, later ones pass through. */
static struct zr_runtime *know(zr_function function)
{
    const char *soname = zr_caller_name(ZR_POINTER(function));
    struct zr_runtime *r = NULL;
    Dl_info library;

    if (!dladdr(ZR_POINTER(function), &library))
        return NULL;
    for (int i = 0; i < RUNTIMES; i++) {
        r = &runtimes[i];
        if (r->handle && r->base == (uintptr_t)library.dli_fbase)
            return r;
        if (!r->handle)
            break;
        r = NULL;
    }
    if (!r)
        return NULL;
    r->handle = dlopen(library.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    if (!r->handle)
        return NULL;
    r->base = (uintptr_t)library.dli_fbase;
    r->soname = soname_number(soname);
    r->ours = fill(r) && r->soname && r == &runtimes[0];
    if (!r->ours) {
        const char *why = r != &runtimes[0] ? "a second SYCL runtime in this process"
                          : !r->soname      ? ZR_RUNTIME_NOT_KNOWN
                                            : "a SYCL runtime without all of its USM functions";

        zr_say("%s (%s): its allocations are left to it", why, soname);
        if (r == &runtimes[0]) {
            zr_text(ZR_T_ROUTE, "native");
            zr_text(ZR_T_ROUTE_WHY, why);
        }
    }
    return r;
}

zr_function zr_definition(const char *symbol, const void *caller)
{
    /* Python loads a runtime for itself alone: it is in nobody's scope but its own. */
    static const char *const usual[] = {"libsycl.so.9", "libsycl.so.8", "libsycl.so.7",
                                        "libumf.so.1", "libumf.so.0"};
    void *p = NULL;
    Dl_info info;
    void *own;

    if (caller && dladdr(caller, &info) && info.dli_fname && info.dli_fname[0]) {
        own = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (own) {
            p = zr_real_dlsym(own, symbol);
            dlclose(own);
        }
    }
    if (!p)
        p = zr_real_dlsym(RTLD_NEXT, symbol);
    for (size_t i = 0; !p && i < sizeof usual / sizeof usual[0]; i++) {
        own = dlopen(usual[i], RTLD_LAZY | RTLD_NOLOAD);
        if (own) {
            p = zr_real_dlsym(own, symbol);
            dlclose(own);
        }
    }
    dlerror();
    return ZR_FUNCTION(p);
}

static __attribute__((noinline, cold)) struct zr_runtime *find(enum zr_sycl_form form,
                                                               const void *caller, size_t site)
{
    zr_function function = zr_definition(symbols[form], caller);
    struct zr_runtime *r;

    if (!function)
        return NULL;
    zr_config_load();
    zr_stats_open();
    zr_lock(&lock);
    r = know(function);
    if (r) {
        __atomic_store_n(&sites[site].site, NULL, __ATOMIC_RELEASE);
        __atomic_store_n(&sites[site].runtime, r, __ATOMIC_RELEASE);
        __atomic_store_n(&sites[site].site, caller, __ATOMIC_RELEASE);
    }
    zr_unlock(&lock);
    return r;
}

struct zr_runtime *zr_runtime_of(enum zr_sycl_form form, const void *caller)
{
    size_t site = ((uintptr_t)caller ^ (uintptr_t)caller >> 9) % SITES;

    if (likely(__atomic_load_n(&sites[site].site, __ATOMIC_ACQUIRE) == caller)) {
        struct zr_runtime *r = __atomic_load_n(&sites[site].runtime, __ATOMIC_ACQUIRE);

        if (likely(__atomic_load_n(&sites[site].site, __ATOMIC_ACQUIRE) == caller))
            return r;
    }
    return find(form, caller, site);
}

struct zr_runtime *zr_runtime_called(enum zr_entry entry, const void *caller)
{
    struct zr_runtime *runtime = zr_runtime_of(ZR_SYCL_free_XC, caller);

    if (likely(!zr_exiting)) {
        zr_fork_check();
        zr_count_call(entry, ZR_VIA_SYCL);
    }
    return runtime;
}

zr_function zr_runtime_function(const struct zr_runtime *runtime, const char *symbol)
{
    zr_function f = ZR_FUNCTION(zr_real_dlsym(runtime->handle, symbol));

    if (!f)
        dlerror();
    return f;
}

/* --- the libraries through which runtimes call Level Zero -------------------------------------- */

bool zr_is_adapter(const void *caller)
{
    static const char *const stems[] = {"libur_adapter_level_zero", "libpi_level_zero", "libumf"};
    const char *name = zr_caller_name(caller);

    for (size_t i = 0; i < sizeof stems / sizeof stems[0]; i++)
        if (strncmp(name, stems[i], strlen(stems[i])) == 0)
            return true;
    return false;
}

/* Who came past the names, by the driver's hook, is seen as the loader. */
static bool is_loader(const void *caller)
{
    static const char stem[] = "libze_loader";

    return strncmp(zr_caller_name(caller), stem, sizeof stem - 1) == 0;
}

/* One word per call site: its address, which fits 47 bits, and above them what was found. */
bool zr_may_be_adapter(const void *caller)
{
    enum { SPOTS = 256, FOUND = 62, YES = 63 };
    static uint64_t spots[SPOTS];
    uint64_t *spot = &spots[((uintptr_t)caller ^ (uintptr_t)caller >> 9) % SPOTS];
    uint64_t word = __atomic_load_n(spot, __ATOMIC_RELAXED);
    uint64_t known = (uintptr_t)caller | UINT64_C(1) << FOUND;

    if (likely((word & ~(UINT64_C(1) << YES)) == known))
        return word >> YES;
    if (zr_is_adapter(caller) || is_loader(caller))
        known |= UINT64_C(1) << YES;
    __atomic_store_n(spot, known, __ATOMIC_RELAXED);
    return known >> YES;
}

void zr_fork_child_runtime(void)
{
    lock = (struct zr_lock){0};
}
