/* The loader is opened by somebody; functions are found with RTLD_NOLOAD, as UMF does it. */
#include "way.h"
#include <dlfcn.h>

int main(void) {
    void *first = dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL);
    void *handle = dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_NOLOAD);
    struct way way;

    if (!first || !handle)
        return puts(dlerror()), 1;
    WAY_BY_NAME(handle);
    dlclose(handle);
    return way_run(&way);
}
