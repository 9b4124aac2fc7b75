/*
 * No memory for the preload's own books: from the n-th on (NO_PAGES=n) its requests for pages fail, those of everybody
 * else do not.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int asked;

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    const char *most = getenv("NO_PAGES");
    Dl_info caller;

    if (most && flags & MAP_ANONYMOUS && dladdr(__builtin_return_address(0), &caller) && caller.dli_fname &&
        strstr(caller.dli_fname, "libzeroute.so") && atomic_fetch_add(&asked, 1) >= atoi(most)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}
