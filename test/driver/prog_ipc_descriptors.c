/*
 * How many descriptors opening and closing IPC handles of another process leaves open, in the exporter and in the
 * importer. Usage: ipc_descriptors [ROUNDS].
 */
#include "ze_test.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (8ul << 20)

static int descriptors(void) {
    DIR *all = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(all))
        count++;
    closedir(all);
    return count;
}

/* Loaders before 1.10 have no such function. */
static void put(ze_ipc_mem_handle_t handle) {
    ze_result_t (*put_handle)(ze_context_handle_t, ze_ipc_mem_handle_t);

    *(void **)&put_handle = dlsym(RTLD_DEFAULT, "zeMemPutIpcHandle");
    if (put_handle)
        CHECK(put_handle(context, handle));
}

static void transfer(int fd, void *data, size_t size, bool out) {
    ssize_t done = out ? write(fd, data, size) : read(fd, data, size);

    EQUAL(done, (ssize_t)size);
}

/* Opens and closes what it is sent; the first round is left out, in which the driver makes what it keeps. */
static int import(int from, int to, int rounds) {
    ze_ipc_mem_handle_t handle;
    int before = 0;
    char word = 'x';

    start();
    for (int i = 0; i <= rounds; i++) {
        void *p = NULL;

        if (i == 1)
            before = descriptors();
        transfer(from, &handle, sizeof handle, false);
        CHECK(zeMemOpenIpcHandle(context, cards[0], handle, 0, &p));
        CHECK(zeMemCloseIpcHandle(context, p));
        transfer(to, &word, 1, true);
    }
    printf("importer: %d descriptors left by %d rounds\n", descriptors() - before, rounds);
    fflush(stdout);
    CHECK(zeContextDestroy(context));
    return 0;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20, down[2], up[2], before = 0, status;
    char word;

    EQUAL(pipe(down) | pipe(up), 0);
    if (fork() == 0)
        return import(down[0], up[1], rounds);
    start();
    for (int i = 0; i <= rounds; i++) {
        ze_ipc_mem_handle_t handle;
        void *p;

        if (i == 1)
            before = descriptors();
        p = new_device(0, SIZE);
        CHECK(zeMemGetIpcHandle(context, p, &handle));
        transfer(down[1], &handle, sizeof handle, true);
        transfer(up[0], &word, 1, false);
        put(handle);
        CHECK(zeMemFree(context, p));
    }
    EQUAL(wait(&status) > 0 && status == 0, 1);
    printf("exporter: %d descriptors left by %d rounds\n", descriptors() - before, rounds);
    CHECK(zeContextDestroy(context));
    return 0;
}
