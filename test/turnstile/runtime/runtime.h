/*
 * A SYCL runtime, as its program sees it: SYCL's functions by their symbols, and what a program gets from SYCL's
 * classes.
 */
#ifndef TURNSTILE_RUNTIME_H
#define TURNSTILE_RUNTIME_H

#include <level_zero/ze_api.h>
#include <stdbool.h>
#include <stddef.h>

enum { RUNTIME_CARDS = 2, RUNTIME_POOLS_UP_TO = 256 << 10 };

/* One context with two devices. Adapter 1 frees by zeMemFree, adapter 2 by zeMemFreeExt, which waits. */
void runtime_begin(ze_context_handle_t context, const ze_device_handle_t *devices, int adapter);
/* The pool of a card comes with the first allocation, and may go while nothing of it is allocated. */
void runtime_end_pool(int card);
const void *runtime_context(void);
const void *runtime_device(int card);

/* In a library of its own, as a program is linked to its runtime. */
void *usm_alloc(size_t size, size_t alignment, int card);
void usm_free(void *ptr);

#endif
