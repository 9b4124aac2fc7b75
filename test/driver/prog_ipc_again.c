/*
 * IPC within one process, over and over, as PyTorch's own tests do: a block is exported and opened where it was made,
 * and freed while that import is open; the import is closed a round later. What is written through an import should
 * arrive in the block, and the program prints whether it does. Usage: ipc_again [ROUNDS [close-first]]: close-first
 * closes each import before its block is freed.
 */
#include "ze_test.h"

#include <dlfcn.h>

#define SIZE (20ul << 20)

static ze_command_list_handle_t list;

/* Loaders before 1.10 have no such function. */
static void put(ze_ipc_mem_handle_t handle) {
    ze_result_t (*put_handle)(ze_context_handle_t, ze_ipc_mem_handle_t);

    *(void **)&put_handle = dlsym(RTLD_DEFAULT, "zeMemPutIpcHandle");
    if (put_handle)
        CHECK(put_handle(context, handle));
}

static void *new_block(void) {
    void *p = new_device(0, SIZE);

    for (uint32_t i = 0; i < card_count; i++) /* as a SYCL runtime asks for on every card */
        CHECK(zeContextMakeMemoryResident(context, cards[i], p, SIZE));
    return p;
}

static void *open_block(void *p) {
    ze_ipc_mem_handle_t handle;
    void *open = NULL;

    CHECK(zeMemGetIpcHandle(context, p, &handle));
    CHECK(zeMemOpenIpcHandle(context, cards[0], handle, 0, &open));
    put(handle);
    return open;
}

static void free_waiting(void *p) {
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                      .freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};

    CHECK(zeMemFreeExt(context, &desc, p));
}

/* Writes through one and reads through the other: prints whether they are the same memory. */
static void round_trip(int round, const char *what, void *to, void *from) {
    char *bytes = malloc(SIZE), *want = malloc(SIZE);

    fill_random(want, SIZE, (uint32_t)round + (what[0] == 'i' ? 1 : 100));
    CHECK(zeCommandListAppendMemoryCopy(list, to, want, SIZE, NULL, 0, NULL));
    CHECK(zeCommandListAppendMemoryCopy(list, bytes, from, SIZE, NULL, 0, NULL));
    printf("round %d, written through the %s: %s\n", round, what,
           memcmp(bytes, want, SIZE) == 0 ? "right" : "other memory");
    free(bytes);
    free(want);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 4;
    bool early = argc > 2 && strcmp(argv[2], "close-first") == 0;
    void *before = NULL;

    start();
    list = new_list(0, copy_group(0));
    for (int i = 0; i < rounds; i++) {
        void *block = new_block(), *import = open_block(block);

        round_trip(i, "import", import, block);
        round_trip(i, "block", block, import);
        if (early)
            CHECK(zeMemCloseIpcHandle(context, import));
        free_waiting(block); /* unless `early` its import is still open */
        if (before)
            CHECK(zeMemCloseIpcHandle(context, before));
        before = early ? NULL : import;
    }
    if (before)
        CHECK(zeMemCloseIpcHandle(context, before));
    CHECK(zeCommandListDestroy(list));
    CHECK(zeContextDestroy(context));
    return 0;
}
