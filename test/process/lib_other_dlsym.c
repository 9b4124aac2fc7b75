/* Another tool's preload that interposes dlsym too, in the usual way: a tail call it hopes for, or none at all. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int asked;

__attribute__((destructor)) static void tell(void) {
    printf("other dlsym was asked %s\n", asked ? "yes" : "no");
    fflush(stdout);
}

void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);

    if (!real)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (strncmp(name, "ze", 2) == 0)
        asked = 1;
    return real(handle, name);
}
