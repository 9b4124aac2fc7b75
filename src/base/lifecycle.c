/*
 * A child of fork starts with nothing of ours. Two ways to know: the atfork handler, and a word on
 * a page that the kernel wipes in every child with a memory of its own, which sees raw clone too.
 * vfork and posix_spawn share the parent's memory until exec and change nothing.
 */
#include "zeroute.h"

#include <sys/mman.h>

static const uint32_t armed_never = 1;
const volatile uint32_t *zr_fork_word = &armed_never;
static struct zr_lock lock;
static volatile uint32_t *page;
static bool registered;

extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
extern void *__dso_handle __attribute__((visibility("hidden")));

void zr_fork_arm(void)
{
    if (__atomic_load_n(&page, __ATOMIC_ACQUIRE))
        return;
    int saved = errno;
    zr_lock(&lock);
    if (!page) {
        if (!registered)
            registered = __register_atfork(NULL, NULL, zr_fork_child, __dso_handle) == 0;
        volatile uint32_t *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED) {
            *p = 1;
            if (madvise((void *)p, 4096, MADV_WIPEONFORK) == 0)
                __atomic_store_n(&zr_fork_word, p, __ATOMIC_RELEASE);
            __atomic_store_n(&page, p, __ATOMIC_RELEASE);
        }
    }
    zr_unlock(&lock);
    errno = saved;
}

/*
 * One thread is left, and any lock may be held by one that is not: everything is set back, nothing
 * is waited for.
 */
void zr_fork_child(void)
{
    int saved = errno;
    lock = (struct zr_lock){0};
    if (page)
        *page = 1;
    zr_fork_child_config();
    zr_fork_child_stats();
    zr_fork_child_callers();
    zr_fork_child_fingerprint();
    zr_fork_child_host();
    zr_fork_child_trace();
    if (zr_fork_child_policy)
        zr_fork_child_policy();
    errno = saved;
}
