/* ipc_large MIB: a process opens a block of that size of another process on its card, and says what came of it. */
#include "ze_test.h"

#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    size_t size = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1) << 20;
    int down[2], up[2], status = 0;
    ze_ipc_mem_handle_t handle;
    ze_result_t result;
    void *p = NULL;
    char word = 'x';
    pid_t child;

    EQUAL(pipe(down) | pipe(up), 0);
    child = fork();
    start();
    if (child) {
        p = new_device(0, size);
        CHECK(zeMemGetIpcHandle(context, p, &handle));
        EQUAL(write(down[1], &handle, sizeof handle), (ssize_t)sizeof handle);
        EQUAL(read(up[0], &word, 1), 1);
        CHECK(zeMemFree(context, p));
        EQUAL(waitpid(child, &status, 0), child);
        return status != 0;
    }
    EQUAL(read(down[0], &handle, sizeof handle), (ssize_t)sizeof handle);
    result = zeMemOpenIpcHandle(context, cards[0], handle, 0, &p);
    printf("%#x\n", (unsigned)result);
    if (result == ZE_RESULT_SUCCESS)
        CHECK(zeMemCloseIpcHandle(context, p));
    EQUAL(write(up[1], &word, 1), 1);
    return 0;
}
