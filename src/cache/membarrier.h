/*
 * A memory barrier in every thread of the process at once, by the kernel: owners of what is mostly theirs go in and out
 * with plain stores, and who comes from outside pays for both.
 */
#ifndef ZEROUTE_MEMBARRIER_H
#define ZEROUTE_MEMBARRIER_H

#include <errno.h>
#include <linux/membarrier.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline bool zr_membarrier(int command)
{
    int saved = errno;
    bool done = syscall(SYS_membarrier, command, 0, 0) == 0;

    errno = saved;
    return done;
}

/*
 * Where a sandbox has taken membarrier away after it was promised: a store that is in flight is completed by the
 * processor itself, within microseconds. So much longer is waited, once; after that nobody may rely on plain stores.
 */
static inline void zr_stores_arrive(void)
{
    struct timespec left = {0, 20000000};
    int saved = errno;

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
    errno = saved;
}

#endif
