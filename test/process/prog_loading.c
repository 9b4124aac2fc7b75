/*
 * A record begins in one thread while another one loads a library whose constructor records something, too. The first
 * is in the middle of it, as the file is made, when the second has the dynamic linker's lock.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

void zeroute_mark(const char *text) __attribute__((weak));
int marker_loads;
static int begins;

static void await(const int *what) {
    while (!__atomic_load_n(what, __ATOMIC_ACQUIRE))
        usleep(1000);
}

/* Called by the preload, which makes room in its file. */
int posix_fallocate(int fd, off_t offset, off_t size) {
    __atomic_store_n(&begins, 1, __ATOMIC_RELEASE);
    await(&marker_loads);
    return (int)syscall(SYS_fallocate, fd, 0, offset, size);
}

static void *load(void *path) {
    await(&begins);
    return dlopen(path, RTLD_NOW);
}

int main(int argc, char **argv) {
    pthread_t thread;
    void *library;

    if (argc < 2 || !zeroute_mark || pthread_create(&thread, NULL, load, argv[1]) != 0)
        return 2;
    alarm(20); /* where they wait for each other */
    zeroute_mark("beginning");
    pthread_join(thread, &library);
    printf("%s\n", library ? "both" : dlerror());
    return !library;
}
