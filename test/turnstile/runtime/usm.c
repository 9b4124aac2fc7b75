/* The part of the program that is linked to the runtime: its calls are seen where SYCL's symbols are. */
#include "runtime.h"

void *
aligned_alloc_device(size_t alignment, size_t size, const void *device, const void *context, const void *code) __asm__(
    "_ZN4sycl3_V120aligned_alloc_deviceEmmRKNS0_6deviceERKNS0_7contextERKNS0_6detail13code_locationE");
void free_in(void *ptr, const void *context,
             const void *code) __asm__("_ZN4sycl3_V14freeEPvRKNS0_7contextERKNS0_6detail13code_locationE");

static const char nowhere[64];

void *usm_alloc(size_t size, size_t alignment, int card) {
    return aligned_alloc_device(alignment, size, runtime_device(card), runtime_context(), nowhere);
}

void usm_free(void *ptr) {
    free_in(ptr, runtime_context(), nowhere);
}
