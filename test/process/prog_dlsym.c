/* What a process may rely on around dlsym. Exits with 0 when all of it holds. */
#include <dlfcn.h>
#include <errno.h>
#include <level_zero/ze_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *which(void);
const char *which(void) {
    return "program";
}

#define PROMISE(what)                                                                                                  \
    do {                                                                                                               \
        if (!(what))                                                                                                   \
            return printf("broken: %s\n", #what), 1;                                                                   \
    } while (0)

int main(void) {
    const char *(*next)(void);
    void *loader, *c = dlopen("libc.so.6", RTLD_LAZY);
    char message[512];

    *(void **)&next = dlsym(RTLD_NEXT, "which");
    PROMISE(next && strcmp(next(), "second") == 0);
    PROMISE((uintptr_t)dlsym(RTLD_DEFAULT, "which") == (uintptr_t)which);
    PROMISE(dlsym(c, "zzz_nothing") == NULL);
    PROMISE(dlerror() != NULL && dlerror() == NULL);

    /* No loader yet: every way of asking finds nothing, and says so with the caller's own name. */
    PROMISE(dlsym(RTLD_DEFAULT, "zeMemAllocDevice") == NULL);
    snprintf(message, sizeof message, "%s", dlerror());
    PROMISE(strstr(message, "undefined symbol: zeMemAllocDevice") && !strstr(message, "libzeroute"));
    PROMISE(dlsym(RTLD_NEXT, "zeMemAllocDevice") == NULL && dlerror());
    PROMISE(dlsym(dlopen(NULL, RTLD_LAZY), "zeGetMemProcAddrTable") == NULL && dlerror());
    PROMISE(dlsym(c, "zeMemFree") == NULL);
    snprintf(message, sizeof message, "%s", dlerror());
    PROMISE(strstr(message, "libc.so.6: undefined symbol: zeMemFree"));

    loader = dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_LOCAL);
    PROMISE(loader);
    PROMISE(dlsym(RTLD_DEFAULT, "zeMemAllocDevice") == NULL); /* it is local */
    errno = 42;
    PROMISE(dlsym(loader, "zeMemAllocDevice") != NULL);
    PROMISE(errno == 42);
    PROMISE(dlerror() == NULL);
    PROMISE(dlsym(loader, "zeMemAllocDevice") == dlsym(loader, "zeMemAllocDevice"));
    errno = 42;
    PROMISE(dlsym(loader, "zeMemNoSuchThing") == NULL && errno == 42);
    snprintf(message, sizeof message, "%s", dlerror());
    PROMISE(strstr(message, "libze_loader.so.1: undefined symbol: zeMemNoSuchThing"));
    PROMISE(dlsym(RTLD_NEXT, "zeInit") == NULL && dlerror());
    if (getenv("LD_PRELOAD") && *getenv("LD_PRELOAD")) {
        __typeof__(&zeMemFree) kept;
        __typeof__(&zeInit) start;

        /* With us: unloading it does not pull it from under pointers that were handed out. */
        *(void **)&start = dlsym(loader, "zeInit");
        PROMISE(start(0) == ZE_RESULT_SUCCESS); /* before it a call crashes in loaders from 1.20 on */
        *(void **)&kept = dlsym(loader, "zeMemFree");
        dlclose(loader);
        PROMISE(kept(NULL, NULL) != ZE_RESULT_SUCCESS);
    }
    puts("all holds");
    return 0;
}
