/* dlsym(RTLD_DEFAULT) with the loader in the global scope, as UMF 0.9 and 0.10 do it. */
#include "way.h"
#include <dlfcn.h>

int main(void) {
    struct way way;

    if (dlsym(RTLD_DEFAULT, "zeMemAllocDevice"))
        return puts("found a function although there is no loader"), 1;
    if (!dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_GLOBAL))
        return puts(dlerror()), 1;
    WAY_BY_NAME(RTLD_DEFAULT);
    return way_run(&way);
}
