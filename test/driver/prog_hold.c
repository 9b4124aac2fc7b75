/*
 * A block that its owner frees while another process has its IPC handle open. Usage: hold PART. The child opens what
 * the parent exports, and reads it once the parent has freed it and allocated more. Prints what became of the block.
 */
#include "ze_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SIZE (8ul << 20)
#define MOST 8

static int down[2], up[2]; /* to the child, to the parent */
static bool is_child;

static void say(int fd, const void *what, size_t size) {
    EQUAL(write(fd, what, size), (ssize_t)size);
}

static void hear(int fd, void *what, size_t size) {
    EQUAL(read(fd, what, size), (ssize_t)size);
}

static void turn(int fd) {
    say(fd, "t", 1);
}

static void await_turn(int fd) {
    char word;

    hear(fd, &word, 1);
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/* Filled with the number of the block, on the device. */
static void fill(void *p, unsigned char value) {
    ze_command_list_handle_t list = new_list(0, copy_group(0));

    CHECK(zeCommandListAppendMemoryFill(list, p, &value, 1, SIZE, NULL, 0, NULL));
    CHECK(zeCommandListDestroy(list));
}

static bool holds(const void *p, unsigned char value) {
    ze_command_list_handle_t list = new_list(0, copy_group(0));
    unsigned char *bytes = malloc(SIZE);
    bool same = true;

    CHECK(zeCommandListAppendMemoryCopy(list, bytes, p, SIZE, NULL, 0, NULL));
    CHECK(zeCommandListDestroy(list));
    for (size_t i = 0; i < SIZE; i++)
        same = same && bytes[i] == value;
    free(bytes);
    return same;
}

/* The parent: blocks that the child has open. The child: those imports. */
static void share_sized(void **block, int count, size_t size) {
    ze_ipc_mem_handle_t handle;

    EQUAL(pipe(down) | pipe(up), 0);
    is_child = fork() == 0;
    start();
    for (int i = 0; i < count; i++) {
        if (is_child) {
            hear(down[0], &handle, sizeof handle);
            CHECK(zeMemOpenIpcHandle(context, cards[0], handle, 0, &block[i]));
            turn(up[1]);
        } else {
            block[i] = new_device(0, size);
            if (size == SIZE)
                fill(block[i], (unsigned char)(i + 1));
            CHECK(zeMemGetIpcHandle(context, block[i], &handle));
            say(down[1], &handle, sizeof handle);
            await_turn(up[0]);
        }
    }
}

static void share(void **block, int count) {
    share_sized(block, count, SIZE);
}

/* Whether one of many allocations of the same size is given the address. */
static bool is_handed_out(const void *p) {
    void *more[16];
    bool found = false;

    for (int i = 0; i < 16; i++) {
        more[i] = new_device(0, SIZE);
        fill(more[i], 0xee);
        found = found || more[i] == p;
    }
    for (int i = 0; i < 16; i++)
        CHECK(zeMemFree(context, more[i]));
    return found;
}

static bool is_known(const void *p) {
    void *base = NULL;
    size_t size = 0;

    return zeMemGetAddressRange(context, p, &base, &size) == ZE_RESULT_SUCCESS && base == p;
}

/* Calls of the program look after what is held. */
static void calls(int count) {
    for (int i = 0; i < count; i++) {
        CHECK(zeMemFree(context, new_device(0, 4096)));
        nap();
    }
}

static void join(void) {
    int status = 0;

    EQUAL(wait(&status) > 0, 1);
}

static void free_with_policy(void *p) {
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                      .freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};

    CHECK(zeMemFreeExt(context, &desc, p));
}

/* The child closes, or dies without: `killed`. `ext`: freed as adapter v2 frees. */
static void one(bool killed, bool ext) {
    void *p;

    share(&p, 1);
    if (is_child) {
        await_turn(down[0]);
        printf("the other process reads %s\n", holds(p, 1) ? "what was written" : "other bytes");
        fflush(stdout);
        if (killed)
            raise(SIGKILL);
        CHECK(zeMemCloseIpcHandle(context, p));
        turn(up[1]);
        await_turn(down[0]);
        CHECK(zeContextDestroy(context));
        exit(0);
    }
    if (ext)
        free_with_policy(p);
    else
        CHECK(zeMemFree(context, p));
    printf("allocated: %s\n", is_known(p) ? "yes" : "no");
    printf("handed out again: %s\n", is_handed_out(p) ? "yes" : "no");
    printf("freed again: %s\n", zeMemFree(context, p) == ZE_RESULT_SUCCESS ? "accepted" : "refused");
    fflush(stdout);
    turn(down[1]);
    if (killed) {
        join();
    } else {
        await_turn(up[0]);
    }
    calls(10);
    if (!killed) {
        turn(down[1]);
        join();
    }
    CHECK(zeContextDestroy(context));
}

/* Closed before it is freed: an ordinary free. */
static void closed(void) {
    void *p;

    share(&p, 1);
    if (is_child) {
        CHECK(zeMemCloseIpcHandle(context, p));
        turn(up[1]);
        await_turn(down[0]);
        CHECK(zeContextDestroy(context));
        exit(0);
    }
    await_turn(up[0]);
    CHECK(zeMemFree(context, p));
    turn(down[1]);
    join();
    CHECK(zeContextDestroy(context));
}

/* All are freed while they are open: under a small limit the oldest go. Or the context goes with them. */
static void many(bool context_ends) {
    void *block[MOST];

    share(block, MOST);
    if (is_child) {
        await_turn(down[0]);
        for (int i = 0; i < MOST; i++)
            CHECK(zeMemCloseIpcHandle(context, block[i]));
        turn(up[1]);
        await_turn(down[0]);
        CHECK(zeContextDestroy(context));
        exit(0);
    }
    for (int i = 0; i < MOST; i++)
        CHECK(zeMemFree(context, block[i]));
    if (context_ends) {
        CHECK(zeContextDestroy(context));
        turn(down[1]);
        await_turn(up[0]);
    } else {
        calls(5);
        turn(down[1]);
        await_turn(up[0]);
        calls(10);
        CHECK(zeContextDestroy(context));
    }
    turn(down[1]);
    join();
}

/* So many are held that a look at all of them takes its time: calls do not wait for one after the other. */
static void crowd(void) {
    enum { CROWD = 800, PAIRS = 300, SMALL = 64 << 10 };
    static void *block[CROWD];
    clock_t begun;

    share_sized(block, CROWD, SMALL);
    if (is_child) {
        await_turn(down[0]);
        exit(0);
    }
    for (int i = 0; i < CROWD; i++)
        CHECK(zeMemFree(context, block[i]));
    begun = clock();
    for (int i = 0; i < PAIRS; i++)
        CHECK(zeMemFree(context, new_device(0, SMALL)));
    printf("%d calls beside %d held blocks: %s\n", 2 * PAIRS, CROWD,
           clock() - begun < CLOCKS_PER_SEC ? "less than a second" : "a second and more");
    fflush(stdout);
    turn(down[1]);
    join();
    CHECK(zeContextDestroy(context));
}

int main(int argc, char **argv) {
    const char *part = argc > 1 ? argv[1] : "";

    if (strcmp(part, "open") == 0)
        one(false, false);
    else if (strcmp(part, "open_ext") == 0)
        one(false, true);
    else if (strcmp(part, "killed") == 0)
        one(true, false);
    else if (strcmp(part, "closed") == 0)
        closed();
    else if (strcmp(part, "many") == 0)
        many(false);
    else if (strcmp(part, "context") == 0)
        many(true);
    else if (strcmp(part, "crowd") == 0)
        crowd();
    else
        return 2;
    return 0;
}
