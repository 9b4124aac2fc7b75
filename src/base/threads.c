/* Threads of our own: in the modes that need one, and nowhere else. */
#include "base/base.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * The thread blocks all signals but those of its own faults, which drivers handle for shared
 * memory.
 */
bool zr_thread_start(void *(*work)(void *), void *arg) {
    int (*make)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (__typeof__(make))ZR_FUNCTION(zr_real_dlsym(RTLD_DEFAULT, "pthread_create"));
    int (*detach)(pthread_t) =
        (__typeof__(detach))ZR_FUNCTION(zr_real_dlsym(RTLD_DEFAULT, "pthread_detach"));
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t all, was;
    pthread_t thread;
    bool made;

    sigfillset(&all);
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&all, faults[i]);
    sigprocmask(SIG_BLOCK, &all, &was);
    made = make && detach && make(&thread, NULL, work, arg) == 0;
    sigprocmask(SIG_SETMASK, &was, NULL);
    if (made)
        detach(thread);
    return made;
}

void zr_futex_wait(uint32_t *word, uint32_t seen, uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &t, NULL, 0);
}

void zr_futex_wake(uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}
