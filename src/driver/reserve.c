/* Address ranges that are reserved at a given address. */
#include "driver/driver.h"

bool zr_reserve_at(struct zr_op *op, ze_context_handle_t context, uintptr_t start, size_t size) {
    void *at = (void *)start, *out = NULL;

    if (ZR_DOWN(op, zeVirtualMemReserve, size, (context, at, size, &out)) != ZE_RESULT_SUCCESS)
        return false;
    if (out == at)
        return true;
    (void)ZR_DOWN(op, zeVirtualMemFree, size, (context, out, size));
    return false;
}

bool zr_reserve_and_free(struct zr_op *op, ze_context_handle_t context, uintptr_t start,
                         size_t size) {
    if (!zr_reserve_at(op, context, start, size))
        return false;
    (void)ZR_DOWN(op, zeVirtualMemFree, size, (context, (void *)start, size));
    return true;
}

/* In both halves of a range of its own choice, since one of them may be its choice again. */
bool zr_reserves_at_will(struct zr_op *op, ze_context_handle_t context, size_t size) {
    static uint32_t known; /* atomic; 1: no, 2: yes */
    uint32_t will = __atomic_load_n(&known, __ATOMIC_RELAXED);
    void *out = NULL;
    uintptr_t at;

    if (will)
        return will == 2;
    if (ZR_DOWN(op, zeVirtualMemReserve, 2 * size, (context, NULL, 2 * size, &out)) !=
        ZE_RESULT_SUCCESS)
        return false;
    at = (uintptr_t)out;
    (void)ZR_DOWN(op, zeVirtualMemFree, 2 * size, (context, out, 2 * size));
    will = 1;
    if (zr_reserve_and_free(op, context, at + size, size) &&
        zr_reserve_and_free(op, context, at, size))
        will = 2;
    __atomic_store_n(&known, will, __ATOMIC_RELAXED);
    return will == 2;
}
