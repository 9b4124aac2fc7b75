/*
 * Asks a loader for functions by name, as the static loader inside a runtime's adapter does. Built twice: under an
 * adapter's name, and under that of somebody who may probe for NULL.
 */
#include <dlfcn.h>

void *gap_open(const char *path);
void *gap_ask(void *loader, const char *name);

void *gap_open(const char *path) {
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* volatile: the return address that dlsym sees must lie in this library. */
void *gap_ask(void *loader, const char *name) {
    void *volatile f = dlsym(loader, name);

    return f;
}
