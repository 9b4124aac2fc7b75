/*
 * IPC between processes: the parent's bytes arrive in the child, the child's in the parent. The
 * child is forked before the driver starts, and so is a process of its own on the same machine.
 */
#include "ze_test.h"

#include <sys/wait.h>
#include <unistd.h>

#define SIZE (8ul << 20)

static void transfer(int fd, void *data, size_t size, int out) {
    ssize_t done = out ? write(fd, data, size) : read(fd, data, size);
    EQUAL(done, size);
}

static void child(int from_parent, int to_parent) {
    ze_ipc_mem_handle_t handle;
    void *p = NULL;
    char word = 'x', *bytes = malloc(SIZE), *want = malloc(SIZE);
    transfer(from_parent, &handle, sizeof(handle), 0);
    start();
    CHECK(zeMemOpenIpcHandle(context, cards[card_count - 1], handle, 0, &p));
    ze_command_list_handle_t list = new_list(card_count - 1, copy_group(card_count - 1));
    CHECK(zeCommandListAppendMemoryCopy(list, bytes, p, SIZE, NULL, 0, NULL));
    fill_random(want, SIZE, 1);
    expect_bytes("from the parent", bytes, want, SIZE);
    fill_random(bytes, SIZE, 2);
    CHECK(zeCommandListAppendMemoryCopy(list, p, bytes, SIZE, NULL, 0, NULL));
    transfer(to_parent, &word, 1, 1);
    transfer(from_parent, &word, 1, 0); /* the parent has looked */
    CHECK(zeMemCloseIpcHandle(context, p));
    CHECK(zeCommandListDestroy(list));
    CHECK(zeContextDestroy(context));
}

int main(void) {
    int down[2], up[2], status;
    EQUAL(pipe(down) | pipe(up), 0);
    pid_t pid = fork();
    if (!pid) {
        child(down[0], up[1]);
        return 0;
    }
    start();
    char word = 'y', *bytes = malloc(SIZE), *want = malloc(SIZE);
    void *p = new_device(0, SIZE);
    ze_ipc_mem_handle_t handle;
    ze_command_list_handle_t list = new_list(0, copy_group(0));
    fill_random(bytes, SIZE, 1);
    CHECK(zeCommandListAppendMemoryCopy(list, p, bytes, SIZE, NULL, 0, NULL));
    CHECK(zeMemGetIpcHandle(context, p, &handle));
    transfer(down[1], &handle, sizeof(handle), 1);
    transfer(up[0], &word, 1, 0);
    CHECK(zeCommandListAppendMemoryCopy(list, bytes, p, SIZE, NULL, 0, NULL));
    fill_random(want, SIZE, 2);
    expect_bytes("from the child", bytes, want, SIZE);
    transfer(down[1], &word, 1, 1);
    EQUAL(waitpid(pid, &status, 0), pid);
    EQUAL(status, 0);
    CHECK(zeMemFree(context, p));
    CHECK(zeCommandListDestroy(list));
    CHECK(zeContextDestroy(context));
    puts("done");
    return 0;
}
