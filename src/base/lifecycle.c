/*
 * Tells the modules of the one table about fork, the end of a thread and the end of the process.
 *
 * A child of fork starts with nothing of ours. Two things detect it: the atfork handler, and a page
 * that the kernel wipes in every child that has its own memory (MADV_WIPEONFORK), which catches raw
 * clone too. vfork and posix_spawn share the parent's memory until exec and need nothing.
 */
#include "base/base.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>

__thread struct zr_thread zr_thread;

static const uint32_t not_armed = 1;
const volatile uint32_t *zr_fork_word = &not_armed;
bool zr_exiting_now;
int zr_process_number = 1;
static struct zr_lock lifecycle_lock;
static volatile uint32_t *word;
static bool registered;
static const struct zr_module *known_modules;
static size_t known_module_count;

extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle __attribute__((visibility("hidden")));

void zr_lifecycle_modules(const struct zr_module *all, size_t count) {
    known_modules = all;
    known_module_count = count;
}

/* --- fork ------------------------------------------------------------------------------------- */

static unsigned walkers, forks; /* threads in dl_iterate_phdr, and in fork */
static bool lost; /* a thread of the parent was walking: the dynamic linker's lock stays held */

bool zr_walk_begin(void) {
    __atomic_fetch_add(&walkers, 1, __ATOMIC_SEQ_CST);
    if (likely(!__atomic_load_n(&forks, __ATOMIC_SEQ_CST) && !lost))
        return true;
    zr_walk_end();
    return false;
}

void zr_walk_end(void) {
    __atomic_fetch_sub(&walkers, 1, __ATOMIC_SEQ_CST);
}

/* Waits for walkers, but only for 50 ms: one of them may be waiting for the thread that forks. */
static void fork_begins(void) {
    int saved = errno;

    __atomic_fetch_add(&forks, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 1000 && __atomic_load_n(&walkers, __ATOMIC_SEQ_CST); i++)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    errno = saved;
}

static void fork_ends(void) {
    __atomic_fetch_sub(&forks, 1, __ATOMIC_SEQ_CST);
}

void zr_fork_arm(void) {
    int saved = errno;

    if (__atomic_load_n(&word, __ATOMIC_ACQUIRE))
        return;
    zr_lock(&lifecycle_lock);
    if (!word) {
        enum {
            PAGE = 4096,
            AT = 256
        }; /* within a page: at the start of pages lies too much that is hot */
        uint32_t *page =
            mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (!registered)
            registered =
                __register_atfork(fork_begins, fork_ends, zr_fork_child, __dso_handle) == 0;
        if (page != MAP_FAILED) {
            page[AT] = 1;
            if (madvise(page, PAGE, MADV_WIPEONFORK) == 0)
                __atomic_store_n(&zr_fork_word, &page[AT], __ATOMIC_RELEASE);
            __atomic_store_n(&word, &page[AT], __ATOMIC_RELEASE);
        }
    }
    zr_unlock(&lifecycle_lock);
    errno = saved;
}

/*
 * This is the only thread left, and what others were changing may be half changed: modules forget
 * it.
 */
void zr_fork_child(void) {
    int saved = errno;

    zr_process_number++; /* no lock is held any more */
    lost |= walkers != 0;
    walkers = 0;
    forks = 0;
    if (word)
        *word = 1;
    for (size_t i = 0; i < known_module_count; i++)
        if (known_modules[i].fork_child)
            known_modules[i].fork_child();
    errno = saved;
}

/* --- threads ---------------------------------------------------------------------------------- */

static void thread_end(void *unused) {
    (void)unused;
    zr_fork_check();
    zr_thread.ended = true;
    for (size_t i = 0; i < known_module_count; i++)
        if (known_modules[i].thread_end)
            known_modules[i].thread_end();
}

/* libc takes a lock of the dynamic linker here: the caller holds none of ours. */
bool zr_thread_register(void) {
    int saved = errno;

    if (unlikely(!zr_thread.attended && !zr_thread.ended)) {
        zr_thread.attended = __cxa_thread_atexit_impl(thread_end, NULL, &__dso_handle) == 0;
        errno = saved;
    }
    return zr_thread.attended && !zr_thread.ended;
}

/* --- the process ------------------------------------------------------------------------------ */

void zr_process_end(void) {
    __atomic_store_n(&zr_exiting_now, true, __ATOMIC_SEQ_CST);
    for (size_t i = 0; i < known_module_count; i++)
        if (known_modules[i].process_end)
            known_modules[i].process_end();
}
