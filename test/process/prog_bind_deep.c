/*
 * A library opened deep-bound: it binds past every preload. "loader first": the loader is in the process before, as it
 * is when a runtime opened it. "loader deep": only the loader is deep-bound, and the library is opened plainly. With
 * nothing the loader comes with the library, or is opened by it. "no mprotect": the same, and no page can be made
 * writable.
 */
#include "seccomp.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    int sealed = argc > 2 && strcmp(argv[2], "no mprotect") == 0;
    int deep = argc > 2 && strcmp(argv[2], "loader deep") == 0;
    int (*run)(void);
    void *user;

    if (argc > 2 && !sealed && !dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL | (deep ? RTLD_DEEPBIND : 0)))
        return puts(dlerror()), 1;
    user = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL | (deep ? 0 : RTLD_DEEPBIND)) : NULL;
    if (sealed && !take_away(SYS_mprotect, EPERM))
        return puts("seccomp cannot be had"), 1;
    if (!user || !(*(void **)&run = dlsym(user, "user_run")))
        return puts(dlerror()), 1;
    return sealed ? puts("found") < 0 : run(); /* no driver can be loaded any more */
}
