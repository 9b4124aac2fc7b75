/*
 * Twice from beginning to end, with everything closed in between: the loader itself, asked by name; or a library that
 * is opened deep-bound and brings it along.
 */
#include "way.h"
#include <dlfcn.h>

static int once(const char *library) {
    void *handle = dlopen(library ? library : "libze_loader.so.1",
                          library ? RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND : RTLD_LAZY | RTLD_LOCAL);
    int (*run)(void);
    struct way way;

    if (!handle)
        return puts(dlerror()), 1;
    if (!library) {
        WAY_BY_NAME(handle);
        return way_run(&way) || dlclose(handle);
    }
    *(void **)&run = dlsym(handle, "user_run");
    return run() || dlclose(handle);
}

int main(int argc, char **argv) {
    const char *library = argc > 1 ? argv[1] : NULL;

    return once(library) || once(library);
}
