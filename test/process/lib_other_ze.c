/*
 * Another tool's preload that exports Level Zero functions and goes on by dlsym(RTLD_NEXT), or by the loader's handle
 * where there is nothing next. It prints how many calls it saw.
 */
#include <dlfcn.h>
#include <level_zero/ze_api.h>
#include <stdio.h>
#include <stdlib.h>

static int seen;

__attribute__((destructor)) static void tell(void) {
    printf("other saw %d\n", seen);
    fflush(stdout);
}

static void *next(const char *name) {
    void *p = dlsym(RTLD_NEXT, name);

    if (!p)
        p = dlsym(dlopen("libze_loader.so.1", RTLD_LAZY | RTLD_NOLOAD), name);
    if (!p)
        abort();
    return p;
}

ze_result_t zeMemAllocDevice(ze_context_handle_t context, const ze_device_mem_alloc_desc_t *desc, size_t size,
                             size_t alignment, ze_device_handle_t device, void **out) {
    static __typeof__(&zeMemAllocDevice) real;

    if (!real)
        *(void **)&real = next("zeMemAllocDevice");
    seen++;
    return real(context, desc, size, alignment, device, out);
}

ze_result_t zeMemFree(ze_context_handle_t context, void *ptr) {
    static __typeof__(&zeMemFree) real;

    if (!real)
        *(void **)&real = next("zeMemFree");
    seen++;
    return real(context, ptr);
}
