/* A library that opens the loader itself and asks it by name; with OPENER=deep it opens it deep-bound. */
#include "way.h"
#include <dlfcn.h>

int user_run(void);
int user_run(void) {
    const char *how = getenv("OPENER");
    void *handle = dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL | (how ? RTLD_DEEPBIND : 0));
    struct way way;

    if (!handle)
        return puts(dlerror()), 1;
    WAY_BY_NAME(handle);
    return way_run(&way);
}
