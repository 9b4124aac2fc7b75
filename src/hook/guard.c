/*
 * The loader gap: a runtime adapter that asks an older loader for a function which that loader lacks, keeps
 * the NULL and later jumps to it. It gets an emulation here where one is possible, else a stub that reports
 * "unsupported" in the function's own kind of result (guard.def).
 *
 * Only the adapters of SYCL runtimes and UMF are answered: others may probe for NULL and have a way of their
 * own. Where the loader has the function, nobody meets us.
 */
#include "base/dl.h"
#include "hook/hook.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum gap {
#define ZR_GAP(name, since, answer) GAP_##name,
#include "hook/guard.def"
#undef ZR_GAP
    GAPS
};

static void called(enum gap gap);

/* One function per row: calling convention and result are those of the function it stands for. */
#define STUB(type, name, parameters, value)                                                                            \
    static type stub_##name parameters {                                                                               \
        called(GAP_##name);                                                                                            \
        return value;                                                                                                  \
    }
#define STUB_UNSUPPORTED(name) STUB(ze_result_t, name, (void), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)
#define STUB_ZERO(name) STUB(void *, name, (void), NULL)
#define STUB_ALL_ONES(name) STUB(uint32_t, name, (void), UINT32_MAX)
#define STUB_COUNT_ZERO(name) STUB(ze_result_t, name, (void *object, uint32_t *count), count_zero(object, count))
#define STUB_CONTEXT(name) STUB(ze_context_handle_t, name, (ze_driver_handle_t driver), default_context(driver))
#define STUB_HOST_SYNCHRONIZE(name)                                                                                    \
    STUB(ze_result_t, name, (ze_command_list_handle_t list, uint64_t timeout), host_synchronize(list, timeout))
#define STUB_ROOT_DEVICE(name)                                                                                         \
    STUB(ze_result_t, name, (ze_device_handle_t device, ze_device_handle_t * root), root_device(device, root))
#define STUB_NOTHING(name)                                                                                             \
    static void stub_##name(void) {                                                                                    \
        called(GAP_##name);                                                                                            \
    }
#define STUB_ABSENT(name)

/* --- emulations --------------------------------------------------------------------------------------------------- */

static ze_result_t count_zero(void *object, uint32_t *count) {
    (void)object;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *count = 0;
    return ZE_RESULT_SUCCESS;
}

/* The loader that adapters asked last; a process with gaps in two different loaders is not to be expected. */
static void *gap_loader;

static zr_function of_loader(const char *name) {
    void *handle = __atomic_load_n(&gap_loader, __ATOMIC_ACQUIRE);

    return handle ? ZR_FUNCTION(zr_real_dlsym(handle, name)) : zr_next(name, NULL);
}

/*
 * zeContextCreate over all devices is what the missing function promises; one per driver, never destroyed. Of two
 * threads that make one at once the second destroys its own.
 */
static ze_context_handle_t default_context(ze_driver_handle_t driver) {
    enum { DRIVERS = 8 };
    typedef ze_result_t (*create_context)(ze_driver_handle_t, const ze_context_desc_t *, ze_context_handle_t *);
    typedef ze_result_t (*destroy_context)(ze_context_handle_t);
    static struct {
        ze_driver_handle_t driver;
        ze_context_handle_t context;
    } made[DRIVERS]; /* atomic */
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    create_context create = (create_context)of_loader("zeContextCreate");
    destroy_context destroy = (destroy_context)of_loader("zeContextDestroy");

    for (int i = 0; driver && create && i < DRIVERS; i++) {
        ze_driver_handle_t none = NULL;
        ze_context_handle_t first = NULL, context = NULL;

        if (!__atomic_compare_exchange_n(&made[i].driver, &none, driver, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
            none != driver)
            continue;
        context = __atomic_load_n(&made[i].context, __ATOMIC_ACQUIRE);
        if (context || create(driver, &desc, &context) != ZE_RESULT_SUCCESS)
            return context;
        if (__atomic_compare_exchange_n(&made[i].context, &first, context, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return context;
        if (destroy)
            destroy(context);
        return first;
    }
    return NULL;
}

/*
 * The driver has the function even where the loader does not hand it on. With a single driver in the process
 * handles are the driver's own, so its function can be called; with more than one they may be wrapped.
 */
static void *only_driver(void) {
    void *driver = NULL;

    for (int n = 0; n < ZR_LOADED; n++) {
        if (!__atomic_load_n(&zr_loaded[n].base, __ATOMIC_ACQUIRE) ||
            __atomic_load_n(&zr_loaded[n].kind, __ATOMIC_ACQUIRE) != ZR_LOADED_DRIVER)
            continue;
        if (driver)
            return NULL;
        driver = __atomic_load_n(&zr_loaded[n].handle, __ATOMIC_ACQUIRE);
    }
    return driver;
}

static zr_function of_only_driver(const char *getter, ze_api_version_t version, unsigned slot) {
    enum { TABLE = 256 };
    zr_function table[TABLE] = {NULL};
    void *driver = only_driver();
    ze_result_t (*get)(ze_api_version_t, void *);

    if (!driver)
        return NULL;
    get = (ze_result_t(*)(ze_api_version_t, void *))ZR_FUNCTION(zr_real_dlsym(driver, getter));
    if (!get || get(version, table) != ZE_RESULT_SUCCESS)
        return NULL;
    return table[slot];
}

static ze_result_t host_synchronize(ze_command_list_handle_t list, uint64_t timeout) {
    enum { SLOT = 28 }; /* pfnHostSynchronize, there since API version 1.6 */
    static zr_function known;
    zr_function f = __atomic_load_n(&known, __ATOMIC_ACQUIRE);

    if (!f) {
        f = of_only_driver("zeGetCommandListProcAddrTable", ZE_MAKE_VERSION(1, 9), SLOT);
        if (!f)
            return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
        __atomic_store_n(&known, f, __ATOMIC_RELEASE);
    }
    return ((ze_result_t(*)(ze_command_list_handle_t, uint64_t))f)(list, timeout);
}

/* A root device has no root; for a sub-device the loader offers no way to find it. */
static ze_result_t root_device(ze_device_handle_t device, ze_device_handle_t *root) {
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    ze_result_t (*query)(ze_device_handle_t, ze_device_properties_t *);
    ze_result_t result;

    query = (ze_result_t(*)(ze_device_handle_t, ze_device_properties_t *))of_loader("zeDeviceGetProperties");
    if (!query)
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (!root)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    result = query(device, &properties);
    if (result != ZE_RESULT_SUCCESS)
        return result;
    if (properties.flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE)
        return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    *root = NULL;
    return ZE_RESULT_SUCCESS;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define ZR_GAP(name, since, answer) STUB_##answer(name)
#include "hook/guard.def"
#undef ZR_GAP

#define FUNCTION_ABSENT(name) NULL
#define FUNCTION_UNSUPPORTED(name) (zr_function) stub_##name
#define FUNCTION_COUNT_ZERO FUNCTION_UNSUPPORTED
#define FUNCTION_CONTEXT FUNCTION_UNSUPPORTED
#define FUNCTION_ZERO FUNCTION_UNSUPPORTED
#define FUNCTION_ALL_ONES FUNCTION_UNSUPPORTED
#define FUNCTION_NOTHING FUNCTION_UNSUPPORTED
#define FUNCTION_HOST_SYNCHRONIZE FUNCTION_UNSUPPORTED
#define FUNCTION_ROOT_DEVICE FUNCTION_UNSUPPORTED

static const struct {
    const char *name, *since;
    zr_function stub; /* NULL: stays absent */
} gaps[GAPS] = {
#define ZR_GAP(name, since, answer) {#name, since, FUNCTION_##answer(name)},
#include "hook/guard.def"
#undef ZR_GAP
};

static bool ends_with(const char *name, const char *tail) {
    size_t n = strlen(name), m = strlen(tail);

    return n >= m && strcmp(name + n - m, tail) == 0;
}

static enum gap find(const char *name) {
    enum gap i = 0;

    if (strncmp(name, "zelTracer", 9) == 0 && ends_with(name, "RegisterCallback"))
        return GAP_zelTracerRegisterCallback;

    while (i < GAPS && strcmp(gaps[i].name, name) != 0)
        i++;
    return i;
}

/* "1.20.6" is 1020. */
static unsigned release_number(const char *text) {
    char *dot;
    unsigned long major = strtoul(text, &dot, 10);

    return (unsigned)(major * 1000 + (*dot ? strtoul(dot + 1, NULL, 10) : 0));
}

/* The loader's release by what it exports: the newest mark that is there. Some 0.1 ms, once per loader. */
static unsigned release_of(void *handle) {
    enum { ADDRESS_BITS = 48 };
    static uint64_t known; /* atomic: release and handle in one word, so that they belong together */
    uint64_t of = (uint64_t)(uintptr_t)handle & ((UINT64_C(1) << ADDRESS_BITS) - 1);
    uint64_t seen = __atomic_load_n(&known, __ATOMIC_RELAXED);
    unsigned release = 1008;

    if (seen >> ADDRESS_BITS && (seen & ((UINT64_C(1) << ADDRESS_BITS) - 1)) == of)
        return (unsigned)(seen >> ADDRESS_BITS);
    for (int i = GAPS - 1; i >= 0; i--) {
        if (release_number(gaps[i].since) <= release || !zr_real_dlsym(handle, gaps[i].name))
            continue;
        release = release_number(gaps[i].since);
        break;
    }
    dlerror();
    __atomic_store_n(&known, (uint64_t)release << ADDRESS_BITS | of, __ATOMIC_RELAXED);
    return release;
}

/* The file behind a loader, for people. */
static const char *loader_path(void *handle) {
    static char path[256];
    zr_function init = handle ? ZR_FUNCTION(zr_real_dlsym(handle, "zeInit")) : of_loader("zeInit");
    Dl_info info;

    if (!path[0] && init && dladdr(ZR_POINTER(init), &info) && info.dli_fname)
        snprintf(path, sizeof path, "%s", info.dli_fname);
    return path[0] ? path : "the Level Zero loader";
}

static void count_name(const char *what, enum gap gap) {
    char name[96];

    snprintf(name, sizeof name, "%s%s", what, gaps[gap].name);
    zr_count_named(zr_named(name, "", "by name of the function that the loader lacks"), 1);
}

static void called(enum gap gap) {
    static unsigned told;

    if (zr_exiting())
        return;
    zr_fork_check();
    zr_count(ZR_F_GUARD_CALLS, 1);
    count_name("guard.calls.", gap);
    if (__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED) == 0)
        zr_warn("%s lacks %s, which the runtime calls: answered in its place; upgrade the loader "
                "(libze1) to %s or newer",
                loader_path(NULL), gaps[gap].name, gaps[gap].since);
}

/*
 * What an old loader has and a newer static loader must not call: its entry to the tracing layer crashes
 * before 1.20, and before 1.9 its tables hold functions for wrapped handles while zeDriverGet hands out bare ones:
 * without the tables the static loader gives up, and the program finds no device instead of crashing.
 */
static bool crashes(void *handle, const char *name, unsigned release, void **answer) {
    if (release < 1020 && strcmp(name, "zelLoaderTracingLayerInit") == 0) {
        *answer = NULL;
        return true;
    }
    if (release < 1009 && ends_with(name, "ProcAddrTable")) {
        zr_warn("%s is a Level Zero loader from before 1.9, too old for this SYCL runtime, which may find no "
                "device: install loader (libze1) 1.16 or newer",
                loader_path(handle));
        *answer = NULL;
        return true;
    }
    return false;
}

bool zr_guard_answer(void *handle, const char *name, const void *caller, void **answer) {
    enum gap gap = find(name);

    if (gap == GAPS && !ends_with(name, "ProcAddrTable"))
        return false;
    zr_config_load();
    if (!zr_config.guard || !zr_library_of(caller)->is_adapter || !zr_real_dlsym(handle, "zeInit"))
        return false;
    if (crashes(handle, name, release_of(handle), answer))
        return true;
    if (gap == GAPS || !gaps[gap].stub || zr_real_dlsym(handle, name))
        return false;
    dlerror(); /* the lookup that failed is not the caller's */
    __atomic_store_n(&gap_loader, handle, __ATOMIC_RELEASE);
    zr_count(ZR_F_GUARD_STUBS, 1);
    count_name("guard.stubs.", gap);
    *answer = ZR_POINTER(gaps[gap].stub);
    return true;
}

/* --- exports for runtimes that are linked against a newer loader than the installed one --------------------------- */

/*
 * Runtimes up to 2025.1 import these, and Debian 12's loader lacks them: the adapter would not even load. Where
 * the loader has the function, what is left of us is one load and a jump.
 */
static zr_function exported(enum gap gap) {
    static zr_function known[GAPS];
    zr_function f = __atomic_load_n(&known[gap], __ATOMIC_ACQUIRE);

    if (unlikely(!f)) {
        f = zr_next(gaps[gap].name, NULL);
        if (!f)
            f = gaps[gap].stub;
        __atomic_store_n(&known[gap], f, __ATOMIC_RELEASE);
    }
    return f;
}

#define EXPORT(name, parameters, arguments)                                                                            \
    ze_result_t zr_gap_##name parameters;                                                                              \
    __attribute__((visibility("default"))) ze_result_t zr_gap_##name parameters {                                      \
        return ((ze_result_t(*) parameters)exported(GAP_##name))arguments;                                             \
    }                                                                                                                  \
    __asm__(".symver zr_gap_" #name ", " #name "@ZEROUTE_0");

EXPORT(zeDeviceGetRootDevice, (ze_device_handle_t device, ze_device_handle_t *root), (device, root))
EXPORT(zeCommandListHostSynchronize, (ze_command_list_handle_t list, uint64_t timeout), (list, timeout))
