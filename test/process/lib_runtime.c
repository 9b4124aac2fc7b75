/* A SYCL runtime of a known name that has two of its USM functions, and says how often each was called. */
#include <stdlib.h>

#define FORM "_ZN4sycl3_V113malloc_deviceEmRKNS0_6deviceERKNS0_7contextERKNS0_6detail13code_locationE"
#define FREE "_ZN4sycl3_V14freeEPvRKNS0_7contextERKNS0_6detail13code_locationE"

int runtime_allocated, runtime_freed;
void *runtime_malloc(size_t size, const void *device, const void *context, const void *code) __asm__(FORM);
void runtime_free(void *p, const void *context, const void *code) __asm__(FREE);

void *runtime_malloc(size_t size, const void *device, const void *context, const void *code) {
    (void)device, (void)context, (void)code;
    runtime_allocated++;
    return malloc(size);
}

void runtime_free(void *p, const void *context, const void *code) {
    (void)context, (void)code;
    runtime_freed++;
    free(p);
}
