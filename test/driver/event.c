/*
 * Sleeping until somebody wrote something. Commands and fences poll memory that anybody may write with
 * a plain store; writes of our own wake sleepers at once, others are seen when the sleep ends.
 */
#include "standin.h"

#include <linux/futex.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint32_t event, sleepers;

uint32_t xs_event_seen(void)
{
    return atomic_load(&event);
}

void xs_event_wait(uint32_t seen, uint64_t ns)
{
    struct timespec timeout = {.tv_sec = (time_t)(ns / 1000000000u),
                               .tv_nsec = (long)(ns % 1000000000u)};
    atomic_fetch_add(&sleepers, 1);
    syscall(SYS_futex, &event, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
    atomic_fetch_sub(&sleepers, 1);
}

void xs_event_bump(void)
{
    atomic_fetch_add(&event, 1);
    if (atomic_load(&sleepers))
        syscall(SYS_futex, &event, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
