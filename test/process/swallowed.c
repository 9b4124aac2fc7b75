/*
 * A SYCL runtime of the layout that Unified Runtime has by default from 2026-07 on: the adapters, and a static
 * Level Zero loader, inside one library. Built under the names of runtimes, under other names with an export of a
 * runtime's each, and under another name with nothing but the string that an adapter's code holds; and as libraries
 * that are no runtime, of which one only depends on one.
 */
#include <dlfcn.h>
#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { UNSUPPORTED = 0x78000003 };

/* --- the static loader -------------------------------------------------------------------------------------------- */

static void *loader;

/* As the static loader has it: the first call of a function that is missing says so, the second jumps to NULL. */
struct entry {
    const char *name;
    void (*function)(void);
    bool asked;
};

static bool find(struct entry *e) {
    bool first = !e->asked;

    if (first)
        *(void **)&e->function = dlsym(loader, e->name);
    e->asked = true;
    return e->function || !first;
}

#define CALL(name, type, arguments)                                                                                    \
    ({                                                                                                                 \
        static struct entry e_ = {#name, NULL, false};                                                                 \
        volatile ze_result_t result_ = find(&e_) ? ((type)e_.function)arguments : (ze_result_t)UNSUPPORTED;            \
        result_;                                                                                                       \
    })
#define KNOWN(name, arguments) CALL(name, __typeof__(&name), arguments)

/* --- the adapters ------------------------------------------------------------------------------------------------- */

static ze_context_handle_t context;
static ze_device_handle_t device;

#ifdef BY_EXPORT
int BY_EXPORT(void);
int BY_EXPORT(void) {
    return 0;
}
#endif
#ifdef IMPORTED
int IMPORTED(void);
#endif
#ifdef BY_STRING
static const char pool_variable[] = "UR_L0_USM_ALLOCATOR";
#endif

int swallowed_start(void);
int swallowed_start(void) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_driver_handle_t driver;
    uint32_t one = 1;

#ifdef BY_STRING
    if (getenv(pool_variable))
        return 1;
#endif
#ifdef IMPORTED
    if (IMPORTED())
        return 1;
#endif
    loader = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL);
    return !loader || KNOWN(zeInit, (0)) || KNOWN(zeDriverGet, (&one, &driver)) ||
           KNOWN(zeDeviceGet, (driver, &one, &device)) || KNOWN(zeContextCreate, (driver, &desc, &context));
}

/* Kind is 'd' or 'h'. */
void *swallowed_alloc(char kind, size_t size);
void *swallowed_alloc(char kind, size_t size) {
    ze_device_mem_alloc_desc_t on_device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    ze_host_mem_alloc_desc_t on_host = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    void *p = NULL;

    if (kind == 'd')
        KNOWN(zeMemAllocDevice, (context, &on_device, size, 0, device, &p));
    else
        KNOWN(zeMemAllocHost, (context, &on_host, size, 0, &p));
    return p;
}

/* Adapter v1 frees at once what commands may still use; v2 lets the driver wait for them. */
int swallowed_free(int adapter, void *p);
int swallowed_free(int adapter, void *p) {
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                      .freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};

    return adapter == 1 ? KNOWN(zeMemFree, (context, p)) : KNOWN(zeMemFreeExt, (context, &desc, p));
}

/* Functions that no older loader has, each called twice. Returns 0 if each answered alike both times. */
int swallowed_missing(void);
int swallowed_missing(void) {
    typedef ze_result_t (*count)(ze_device_handle_t, uint32_t *, void *);
    typedef ze_result_t (*query)(ze_command_list_handle_t);
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC};
    ze_command_list_handle_t list = NULL;
    uint32_t n[2] = {0, 0};

    if (KNOWN(zeCommandListCreateImmediate, (context, device, &desc, &list)))
        return 1;
    for (int i = 0; i < 2; i++) {
        CALL(zeDeviceGetVectorWidthPropertiesExt, count, (device, &n[i], NULL));
        CALL(zeCommandListIsGraphCaptureEnabledExt, query, (list));
    }
    KNOWN(zeCommandListDestroy, (list));
    return n[0] != n[1];
}

/* 0 if what is written to a block comes back. */
int swallowed_copy(void *p, size_t size);
int swallowed_copy(void *p, size_t size) {
    ze_command_queue_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                                    .mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS};
    ze_command_list_handle_t list = NULL;
    char *there = malloc(size), *back = calloc(1, size);
    int wrong = 1;

    memset(there, 0x5a, size);
    if (KNOWN(zeCommandListCreateImmediate, (context, device, &desc, &list)) == 0 &&
        KNOWN(zeCommandListAppendMemoryCopy, (list, p, there, size, NULL, 0, NULL)) == 0 &&
        KNOWN(zeCommandListAppendMemoryCopy, (list, back, p, size, NULL, 0, NULL)) == 0)
        wrong = memcmp(there, back, size) != 0;
    KNOWN(zeCommandListDestroy, (list));
    free(there);
    free(back);
    return wrong;
}
