/*
 * The loader gap: a runtime adapter asks an older loader for a function that it lacks, keeps the
 * NULL and later calls it. The adapter gets an emulation where one is possible, else a stub that
 * reports "unsupported" in the function's own kind of result (guard.def).
 *
 * Only the adapters of SYCL runtimes and UMF are given stubs: others may test for NULL and have a
 * fallback of their own. Where the loader has the function, this file does nothing.
 */
#include "base/dl.h"
#include "hook/hook.h"

#include <stdio.h>
#include <string.h>

enum gap {
#define ZR_GAP(name, since, answer) GAP_##name,
#include "hook/guard.def"
    GAPS
};

static void called(enum gap gap);

/* One function per row, with the calling convention and result type of the function it replaces. */
#define STUB(type, name, parameters, value)                                                        \
    static type stub_##name parameters {                                                           \
        called(GAP_##name);                                                                        \
        return value;                                                                              \
    }
#define STUB_UNSUPPORTED(name) STUB(ze_result_t, name, (void), ZE_RESULT_ERROR_UNSUPPORTED_FEATURE)
#define STUB_ZERO(name) STUB(void *, name, (void), NULL)
#define STUB_ALL_ONES(name) STUB(uint32_t, name, (void), UINT32_MAX)
#define STUB_COUNT_ZERO(name)                                                                      \
    STUB(ze_result_t, name, (void *object, uint32_t *count), count_zero(object, count))
#define STUB_CONTEXT(name)                                                                         \
    STUB(ze_context_handle_t, name, (ze_driver_handle_t driver), default_context(driver))
#define STUB_HOST_SYNCHRONIZE(name)                                                                \
    STUB(ze_result_t, name, (ze_command_list_handle_t list, uint64_t timeout),                     \
         host_synchronize(list, timeout))
#define STUB_ROOT_DEVICE(name)                                                                     \
    STUB(ze_result_t, name, (ze_device_handle_t device, ze_device_handle_t * root),                \
         root_device(device, root))
#define STUB_NOTHING(name)                                                                         \
    static void stub_##name(void) {                                                                \
        called(GAP_##name);                                                                        \
    }

/* --- emulations ------------------------------------------------------------------------------- */

static ze_result_t count_zero(void *object, uint32_t *count) {
    (void)object;
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *count = 0;
    return ZE_RESULT_SUCCESS;
}

/*
 * The loader that an adapter asked last; we assume that no process has gaps in two different
 * loaders.
 */
static void *gap_loader;

static zr_function of_loader(const char *name) {
    void *handle = __atomic_load_n(&gap_loader, __ATOMIC_ACQUIRE);

    return handle ? ZR_FUNCTION(zr_real_dlsym(handle, name)) : zr_next(name, NULL);
}

/*
 * The missing function returns a context over all devices: zeContextCreate makes one per driver,
 * never destroyed. If two threads race, both get the first one.
 */
static ze_context_handle_t default_context(ze_driver_handle_t driver) {
    typedef ze_result_t (*create_context)(ze_driver_handle_t, const ze_context_desc_t *,
                                          ze_context_handle_t *);
    static ze_context_handle_t made[ZR_DRIVERS]; /* atomic */
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    create_context create = (create_context)of_loader("zeContextCreate");
    int n = zr_driver_number(driver);
    ze_context_handle_t first = NULL,
                        context = n < 0 ? NULL : __atomic_load_n(&made[n], __ATOMIC_ACQUIRE);

    if (n < 0 || context || !create || create(driver, &desc, &context) != ZE_RESULT_SUCCESS)
        return context;
    __atomic_compare_exchange_n(&made[n], &first, context, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_ACQUIRE);
    return first ? first : context;
}

static ze_result_t host_synchronize(ze_command_list_handle_t list, uint64_t timeout) {
    typedef ze_result_t (*synchronize)(ze_command_list_handle_t, uint64_t);
    synchronize f = (synchronize)zr_function_of_driver("zeCommandListHostSynchronize");

    return f ? f(list, timeout) : ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

/* A root device has no root; for a sub-device an old loader has no way to find it. */
static ze_result_t root_device(ze_device_handle_t device, ze_device_handle_t *root) {
    typedef ze_result_t (*get_properties)(ze_device_handle_t, ze_device_properties_t *);
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    get_properties get = (get_properties)of_loader("zeDeviceGetProperties");
    ze_result_t result;

    if (!root)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    result = get ? get(device, &properties) : ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (result == ZE_RESULT_SUCCESS && properties.flags & ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE)
        result = ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (result == ZE_RESULT_SUCCESS)
        *root = NULL;
    return result;
}

/* --- the table -------------------------------------------------------------------------------- */

#define ZR_GAP(name, since, answer) STUB_##answer(name)
#include "hook/guard.def"

static const struct {
    const char *name, *since;
    zr_function stub;
} gaps[GAPS] = {
#define ZR_GAP(name, since, answer) {#name, since, (zr_function)stub_##name},
#include "hook/guard.def"
};

static bool ends_with(const char *name, const char *tail) {
    size_t n = strlen(name), m = strlen(tail);

    return n >= m && strcmp(name + n - m, tail) == 0;
}

static enum gap find_gap(const char *name) {
    enum gap i = 0;

    if (strncmp(name, "zelTracer", 9) == 0 && ends_with(name, "RegisterCallback"))
        return GAP_zelTracerRegisterCallback;
    while (i < GAPS && strcmp(gaps[i].name, name) != 0)
        i++;
    return i;
}

/* The loader's file, for messages. */
static const char *loader_path(void) {
    zr_function init = of_loader("zeInit");
    Dl_info info;

    return init && dladdr(ZR_POINTER(init), &info) && info.dli_fname ? info.dli_fname
                                                                     : "the Level Zero loader";
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
        zr_warn("%s lacks %s, which the runtime calls: zeroute answers instead; upgrade the loader "
                "(libze1) to %s or newer",
                loader_path(), gaps[gap].name, gaps[gap].since);
}

/*
 * Functions of an old loader that a newer static loader must not call. Before 1.20 the entry to the
 * tracing layer crashes. Before 1.9 the tables hold functions for wrapped handles while zeDriverGet
 * hands out bare ones: without the tables the static loader gives up, and the program finds no
 * device instead of crashing.
 */
static bool crashes(void *handle, bool is_tracing) {
    if (is_tracing)
        return !zr_real_dlsym(handle, "zeDeviceImportExternalSemaphoreExt"); /* since 1.20 */
    if (zr_real_dlsym(handle, "zesInit"))                                    /* since 1.9 */
        return false;
    zr_warn("%s is a Level Zero loader from before 1.9, too old for this SYCL runtime, which may "
            "find no "
            "device: install loader (libze1) 1.16 or newer",
            loader_path());
    return true;
}

bool zr_guard_answer(void *handle, const char *name, const void *caller, void **answer) {
    bool is_tracing = strcmp(name, "zelLoaderTracingLayerInit") == 0, absent;
    enum gap gap = find_gap(name);

    if (gap == GAPS && !is_tracing && !ends_with(name, "ProcAddrTable"))
        return false;
    zr_config_load();
    if (!zr_config.guard || zr_library_who_now(caller) != ZR_WHO_RUNTIME)
        return false;
    if (!zr_real_dlsym(handle, "zeInit"))
        return false;
    __atomic_store_n(&gap_loader, handle, __ATOMIC_RELEASE);
    absent = gap < GAPS ? !zr_real_dlsym(handle, name) : crashes(handle, is_tracing);
    dlerror(); /* clears the error of a failed lookup of ours */
    *answer = NULL;
    if (absent && gap < GAPS) {
        zr_count(ZR_F_GUARD_STUBS, 1);
        count_name("guard.stubs.", gap);
        *answer = ZR_POINTER(gaps[gap].stub);
    }
    return absent;
}

/* --- exports for runtimes that are linked against a newer loader than the installed one ------- */

/*
 * Runtimes up to 2025.1 import these, and Debian 12's loader lacks them: the adapter would not even
 * load. Where the loader has the function, this costs one load and a jump.
 */
static zr_function exported_gap(enum gap gap) {
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

#define EXPORT(name, parameters, arguments)                                                        \
    ze_result_t zr_gap_##name parameters;                                                          \
    __attribute__((visibility("default"))) ze_result_t zr_gap_##name parameters {                  \
        return ((ze_result_t(*) parameters)exported_gap(GAP_##name))arguments;                     \
    }                                                                                              \
    __asm__(".symver zr_gap_" #name ", " #name "@ZEROUTE_0");

EXPORT(zeDeviceGetRootDevice, (ze_device_handle_t device, ze_device_handle_t *root), (device, root))

zr_function zr_guard_stub(const char *name) {
    enum gap gap = find_gap(name);

    return gap < GAPS ? gaps[gap].stub : NULL;
}
