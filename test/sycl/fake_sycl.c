/*
 * A SYCL runtime with all of its USM functions and no device: memory comes from malloc. Built under a soname that
 * nobody knows, under a known one with another backend than Level Zero, or under a third name as a second runtime.
 */
#include <stddef.h>
#include <stdlib.h>

#ifndef BACKEND
#define BACKEND 2
#endif

#define ZR_SYCL(form, entry, symbol, parameters, arguments, ...)                                                       \
    void *fake_##form parameters __asm__("_ZN4sycl3_V1" symbol);                                                       \
    void *fake_##form parameters {                                                                                     \
        return fake_malloc arguments;                                                                                  \
    }
#define ZR_SYCL_FREE(form, symbol, parameters, arguments, ...)                                                         \
    void fake_##form parameters __asm__("_ZN4sycl3_V1" symbol);                                                        \
    void fake_##form parameters {                                                                                      \
        (void)queue_or_context arguments;                                                                              \
        free(ptr);                                                                                                     \
    }
#define fake_malloc(...) malloc(4096)
#define queue_or_context(...) 0

#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "../../src/sycl/usm.def"

signed char context_backend(const void *context) __asm__("_ZNK4sycl3_V17context11get_backendEv");
signed char context_backend(const void *context) {
    return BACKEND;
}
signed char queue_backend(const void *queue) __asm__("_ZNK4sycl3_V15queue11get_backendEv");
signed char queue_backend(const void *queue) {
    return BACKEND;
}
