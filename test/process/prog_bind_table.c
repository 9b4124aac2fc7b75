/*
 * Function tables alone: the loader's getters, an old and a current version of the table. A loader with its
 * tracing layer beside it, as Debian 13 installs it, refuses the old one.
 */
#include "way.h"
#include <dlfcn.h>

#define TABLE(handle, table, type)                                                                                     \
    type table;                                                                                                        \
    get(handle, "zeGet" #table "ProcAddrTable", version, &table, sizeof table)

static void get(void *handle, const char *name, ze_api_version_t version, void *table, size_t size) {
    ze_result_t (*getter)(ze_api_version_t, void *);

    *(void **)&getter = dlsym(handle, name);
    if (!getter) {
        puts(dlerror());
        exit(1);
    }
    memset(table, 0, size);
    if (getter(version, table) == ZE_RESULT_ERROR_UNSUPPORTED_VERSION)
        version = ZE_API_VERSION_CURRENT;
    WAY_CHECK(getter(version, table));
}

int main(int argc, char **argv) {
    ze_api_version_t version = argc > 1 ? ZE_API_VERSION_1_0 : ZE_API_VERSION_CURRENT;
    void *handle = dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL);
    ze_result_t (*init)(ze_init_flags_t);
    struct way way;

    (void)argv;
    if (!handle)
        return puts(dlerror()), 1;
    WAY_BY_NAME(handle);
    *(void **)&init = dlsym(handle, "zeInit");
    WAY_CHECK(init(0));
    TABLE(handle, Mem, ze_mem_dditable_t);
    TABLE(handle, Context, ze_context_dditable_t);
    TABLE(handle, Device, ze_device_dditable_t);
    way.zeMemAllocDevice = Mem.pfnAllocDevice;
    way.zeMemAllocShared = Mem.pfnAllocShared;
    way.zeMemFree = Mem.pfnFree;
    way.zeContextCreate = Context.pfnCreate;
    way.zeContextDestroy = Context.pfnDestroy;
    way.zeContextMakeMemoryResident = Context.pfnMakeMemoryResident;
    way.zeDeviceGet = Device.pfnGet;
    return way_run(&way);
}
