/*
 * A library that is linked against the loader, opened deep-bound: it binds past every preload. With an
 * argument the loader is in the process before, as it is when a runtime opened it; without one it comes
 * with the library and is deep-bound itself.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int (*run)(void);
    void *user;

    if (argc > 2 && !dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL))
        return puts(dlerror()), 1;
    user = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND) : NULL;
    if (!user || !(*(void **)&run = dlsym(user, "user_run")))
        return puts(dlerror()), 1;
    return run();
}
