/*
 * A spinlock of four bytes without libpthread; all zero is unlocked. One locked instruction takes
 * it, a plain store releases it. Critical sections are short, so a waiter spins (test and
 * test-and-set, exponential backoff). If that takes long, the holder has been preempted, and the
 * waiter sleeps between tries. The word is the number of the process: a child of fork has another
 * one, and so finds every lock of its parent free.
 */
#ifndef ZEROUTE_LOCK_H
#define ZEROUTE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

extern int zr_process_number
    __attribute__((visibility("hidden"))); /* 1, in a child of fork one more */

struct zr_lock {
    _Atomic int word; /* the number of the process that holds it */
};

static inline bool zr_lock_try(struct zr_lock *l) {
    int seen = atomic_load_explicit(&l->word, memory_order_relaxed);

    return seen != zr_process_number &&
           atomic_compare_exchange_strong_explicit(&l->word, &seen, zr_process_number,
                                                   memory_order_acquire, memory_order_relaxed);
}

static __attribute__((noinline, unused)) void zr_lock_wait(struct zr_lock *l) {
    static const struct timespec little = {0, 50000};
    int pauses = 128;

    do {
        if (pauses > 1024)
            clock_nanosleep(CLOCK_MONOTONIC, 0, &little,
                            NULL); /* returns its error: errno stays as it is */
        for (int i = 0; i < pauses && pauses <= 1024; i++)
            __builtin_ia32_pause();
        if (pauses <= 1024)
            pauses *= 2;
    } while (!zr_lock_try(l));
}

static inline void zr_lock(struct zr_lock *l) {
    if (__builtin_expect(!zr_lock_try(l), 0))
        zr_lock_wait(l);
}

static inline void zr_unlock(struct zr_lock *l) {
    atomic_store_explicit(&l->word, 0, memory_order_release);
}

#endif
