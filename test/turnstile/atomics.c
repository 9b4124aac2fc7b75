/*
 * What the second build of the preload is linked to instead of the thread sanitizer's own library: each atomic
 * operation is a point. Plain loads and stores, and functions, are none.
 */
#include <stdbool.h>
#include <stddef.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* the compiler's own */

void ts_atomic_point(void) __attribute__((weak));

static void point(void) {
    if (ts_atomic_point)
        ts_atomic_point();
}

#define CHANGE(bits, type, name)                                                                                       \
    type __tsan_atomic##bits##_##name(volatile type *at, type value, int order) {                                      \
        (void)order;                                                                                                   \
        point();                                                                                                       \
        return __atomic_##name(at, value, __ATOMIC_SEQ_CST);                                                           \
    }
#define EXCHANGE(bits, type, kind, weak)                                                                               \
    int __tsan_atomic##bits##_compare_exchange_##kind(volatile type *at, type *expected, type value, int order,        \
                                                      int failure) {                                                   \
        (void)order, (void)failure;                                                                                    \
        point();                                                                                                       \
        return __atomic_compare_exchange_n(at, expected, value, weak, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);             \
    }
#define ATOMIC(bits, type)                                                                                             \
    type __tsan_atomic##bits##_load(const volatile type *at, int order) {                                              \
        (void)order;                                                                                                   \
        point();                                                                                                       \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                  \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order) {                                       \
        (void)order;                                                                                                   \
        point();                                                                                                       \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                                 \
    }                                                                                                                  \
    type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order) {                                    \
        (void)order;                                                                                                   \
        point();                                                                                                       \
        return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                                       \
    }                                                                                                                  \
    CHANGE(bits, type, fetch_add)                                                                                      \
    CHANGE(bits, type, fetch_sub)                                                                                      \
    CHANGE(bits, type, fetch_and)                                                                                      \
    CHANGE(bits, type, fetch_or)                                                                                       \
    CHANGE(bits, type, fetch_xor)                                                                                      \
    EXCHANGE(bits, type, strong, false)                                                                                \
    EXCHANGE(bits, type, weak, true)
ATOMIC(8, unsigned char)
ATOMIC(16, unsigned short)
ATOMIC(32, unsigned)
ATOMIC(64, unsigned long)

void __tsan_atomic_thread_fence(int order) {
    (void)order;
    point();
}

void __tsan_atomic_signal_fence(int order) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    (void)order;
}

#define NOTHING(name, ...)                                                                                             \
    void __tsan_##name(__VA_ARGS__) {                                                                                  \
    }
NOTHING(init, void)
NOTHING(func_entry, void *call)
NOTHING(func_exit, void)
NOTHING(read_range, void *at, size_t size)
NOTHING(write_range, void *at, size_t size)
#define ACCESS(size)                                                                                                   \
    NOTHING(read##size, void *at)                                                                                      \
    NOTHING(write##size, void *at)                                                                                     \
    NOTHING(unaligned_read##size, void *at)                                                                            \
    NOTHING(unaligned_write##size, void *at)                                                                           \
    NOTHING(volatile_read##size, void *at)                                                                             \
    NOTHING(volatile_write##size, void *at)
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
