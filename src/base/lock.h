/*
 * A lock of four bytes on a futex: no libpthread, and all zero (a forked child's reset) is
 * unlocked.
 */
#ifndef ZEROUTE_LOCK_H
#define ZEROUTE_LOCK_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

struct zr_lock {
    _Atomic int word; /* 0 free, 1 held, 2 held and waited for */
};

static inline void zr_lock_futex(struct zr_lock *l, int op, int value)
{
    int saved = errno;
    syscall(SYS_futex, &l->word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
    errno = saved;
}

static inline void zr_lock(struct zr_lock *l)
{
    int seen = 0;
    if (atomic_compare_exchange_strong_explicit(&l->word, &seen, 1, memory_order_acquire,
                                                memory_order_relaxed))
        return;
    /*
     * Our critical sections are short: the holder is most often gone before a system call would be
     * made.
     */
    for (int spin = 0; spin < 100; spin++) {
        __builtin_ia32_pause();
        if (atomic_load_explicit(&l->word, memory_order_relaxed) == 0)
            break;
    }
    while (atomic_exchange_explicit(&l->word, 2, memory_order_acquire) != 0)
        zr_lock_futex(l, FUTEX_WAIT, 2);
}

static inline void zr_unlock(struct zr_lock *l)
{
    if (atomic_exchange_explicit(&l->word, 0, memory_order_release) == 2)
        zr_lock_futex(l, FUTEX_WAKE, 1);
}

#endif
