/* A library that is linked against the loader, opened in a namespace of its own: no preload is there. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int (*run)(void);
    void *user = argc > 1 ? dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW) : NULL;

    if (!user || !(*(void **)&run = dlsym(user, "user_run")))
        return puts(dlerror()), 1;
    return run();
}
