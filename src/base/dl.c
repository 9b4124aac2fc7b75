/* The real dlsym, found past ourselves. */
#include "base/dl.h"
#include "base/base.h"

#include <errno.h>

/* The hooks jump there. Threads that race to resolve them store the same value. */
void *zr_dlsym_real __attribute__((visibility("hidden")));
void *zr_dlopen_real __attribute__((visibility("hidden")));

/* Not a tail call: the callee must see a return address of ours. */
static ZR_BEFORE_SANITIZERS __attribute__((noinline)) void *call_dlsym(void *f, void *handle,
                                                                       const char *name) {
    void *p = ((void *(*)(void *, const char *))(uintptr_t)f)(handle, name);
    void *volatile kept = p;

    return kept;
}

/*
 * The next definition may be another preload's, which is then called as it would be without us. It
 * usually has no symbol version, so only a dlsym without one finds it.
 */
ZR_BEFORE_SANITIZERS __attribute__((used)) void *zr_dlsym_resolve(void) {
    int saved = errno;
    void *f = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    void *next;

    if (!f)
        f = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"); /* every libc has one of the two */
    next = f ? call_dlsym(f, RTLD_NEXT, "dlsym") : NULL;
    if (next)
        f = next;
    __atomic_store_n(&zr_dlsym_real, f, __ATOMIC_RELEASE);
    errno = saved;
    return f;
}

void *zr_real_dlsym(void *handle, const char *name) {
    void *real = __atomic_load_n(&zr_dlsym_real, __ATOMIC_ACQUIRE);

    return call_dlsym(real ? real : zr_dlsym_resolve(), handle, name);
}

ZR_BEFORE_SANITIZERS __attribute__((used)) void *zr_dlopen_resolve(void) {
    int saved = errno;
    void *f = zr_real_dlsym(RTLD_NEXT, "dlopen");

    __atomic_store_n(&zr_dlopen_real, f, __ATOMIC_RELEASE);
    errno = saved;
    return f;
}

void *zr_real_dlopen(const char *path, int mode) {
    void *real = __atomic_load_n(&zr_dlopen_real, __ATOMIC_ACQUIRE);

    if (!real)
        real = zr_dlopen_resolve();
    return ((void *(*)(const char *, int))(uintptr_t)real)(path, mode);
}

bool zr_dl_loaded(const char *path) {
    void *handle = zr_real_dlopen(path, RTLD_LAZY | RTLD_NOLOAD);

    if (handle)
        dlclose(handle);
    else
        dlerror();
    return handle != NULL;
}

void *zr_dlsym_in(const char *path, const char *name) {
    void *handle = path && *path ? zr_real_dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *p = handle ? zr_real_dlsym(handle, name) : NULL;

    if (handle)
        dlclose(handle);
    return p;
}

void *zr_dlsym_from(const void *address, const char *name) {
    Dl_info info;

    return address && dladdr(address, &info) ? zr_dlsym_in(info.dli_fname, name) : NULL;
}
