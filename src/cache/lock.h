/*
 * A lock of four bytes on a futex: the preload may not use pthread functions whose version is newer
 * than GLIBC_2.28. Uncontended: one atomic exchange in, one out. Zero is "free", so static storage
 * and fresh pages need no set-up, and a forked child frees a lock by writing zero.
 */
#ifndef ZEROUTE_CACHE_LOCK_H
#define ZEROUTE_CACHE_LOCK_H

#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct zr_lock {
    uint32_t word; /* 0 free, 1 held, 2 held and somebody waits */
};

static inline bool zr_try_lock(struct zr_lock *lock)
{
    uint32_t expected = 0;

    return __atomic_compare_exchange_n(&lock->word, &expected, 1, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

/* Cold: spins for about a microsecond, then sleeps. errno is preserved. */
static __attribute__((noinline, cold, unused)) void zr_lock_slow(struct zr_lock *lock)
{
    int saved = errno;

    for (int spin = 0; spin < 100; spin++) {
        __builtin_ia32_pause();
        if (__atomic_load_n(&lock->word, __ATOMIC_RELAXED) == 0 && zr_try_lock(lock))
            return;
    }
    while (__atomic_exchange_n(&lock->word, 2, __ATOMIC_ACQUIRE) != 0)
        syscall(SYS_futex, &lock->word, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
    errno = saved;
}

static inline void zr_lock(struct zr_lock *lock)
{
    if (__builtin_expect(!zr_try_lock(lock), 0))
        zr_lock_slow(lock);
}

static inline void zr_unlock(struct zr_lock *lock)
{
    if (__builtin_expect(__atomic_exchange_n(&lock->word, 0, __ATOMIC_RELEASE) == 2, 0)) {
        int saved = errno;

        syscall(SYS_futex, &lock->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        errno = saved;
    }
}

#endif
