/* A library that is linked against the loader, opened RTLD_LOCAL by a program that is not, as Python does. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int (*run)(void);
    void *user = argc > 1 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) : NULL;

    if (!user || !(*(void **)&run = dlsym(user, "user_run")))
        return puts(dlerror()), 1;
    return run();
}
