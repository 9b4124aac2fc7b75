/*
 * As a static loader inside a SYCL adapter does it (2025.2 and later): zeLoaderInit, each table by its getter, and
 * then each function again by name, which is what is kept.
 */
#include "way.h"
#include <dlfcn.h>

int main(void) {
    void *handle = dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL);
    ze_result_t (*start)(void), (*getter)(ze_api_version_t, ze_mem_dditable_t *);
    ze_mem_dditable_t table;
    struct way way;

    if (!handle || !(*(void **)&start = dlsym(handle, "zeLoaderInit")))
        return puts(dlerror()), 1;
    WAY_CHECK(start());
    *(void **)&getter = dlsym(handle, "zeGetMemProcAddrTable");
    if (!getter)
        return puts(dlerror()), 1;
    /* An adapter is newer than the loader, which is not asked for less than it has. */
    WAY_CHECK(getter(ZE_API_VERSION_CURRENT, &table));
    WAY_BY_NAME(handle);
    return way_run(&way);
}
