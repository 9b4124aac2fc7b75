#include "cache/thread.h"

#include "cache/cache.h"
#include "cache/pool.h"

#include <stdint.h>

_Thread_local unsigned char zr_thread_state;

/* glibc's own registration for thread exit, there since 2.18. It holds our library in memory meanwhile. */
extern int __cxa_thread_atexit_impl(void (*run)(void *), void *arg, void *dso);
extern void *__dso_handle __attribute__((visibility("hidden")));

/* Where the cache is not alone: a child of raw clone ends with locks that threads of its parent may hold (fork.c). */
extern const volatile uint32_t *zr_fork_word __attribute__((weak, visibility("hidden")));
extern void zr_fork_child(void) __attribute__((weak, visibility("hidden")));
/* What call sites have learnt of heaps (hit.c): they get other owners. */
extern void zr_hit_forget(void) __attribute__((weak, visibility("hidden")));

static void thread_exit(void *arg)
{
    (void)arg;
    if (zr_fork_child && *zr_fork_word == 0)
        zr_fork_child();
    zr_thread_state = ZR_THREAD_GONE;
    if (zr_hit_forget)
        zr_hit_forget();
    zr_cache_thread_exit();
    zr_pool_thread_exit();
    zr_block_thread_exit();
}

bool zr_thread_enter_slow(void)
{
    if (zr_thread_state == ZR_THREAD_GONE)
        return false;
    /* Set first: the registration may call malloc, which may be a program's own and call us. */
    zr_thread_state = ZR_THREAD_ACTIVE;
    if (__cxa_thread_atexit_impl(thread_exit, NULL, &__dso_handle) != 0)
        zr_thread_state = ZR_THREAD_GONE;
    return zr_thread_state == ZR_THREAD_ACTIVE;
}
