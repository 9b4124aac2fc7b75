/*
 * Functions that only the driver knows, found by name: several IPC handles at once, a call back when a block is
 * freed, device memory mapped for the host. What hangs on a free happens at the free, whatever is cached above.
 */
#include "ze_test.h"

#include <dirent.h>
#include <unistd.h>

#define SIZE (128ul << 20) /* more than the driver itself keeps with several cards */

struct free_callback_desc { /* of the driver's ze_intel_gpu.h */
    uint32_t stype;
    const void *next;
    void (*call)(void *);
    void *data;
};
static ze_result_t (*get_handles)(ze_context_handle_t, const void *, uint32_t *, ze_ipc_mem_handle_t *);
static ze_result_t (*open_handles)(ze_context_handle_t, ze_device_handle_t, uint32_t, ze_ipc_mem_handle_t *,
                                   ze_ipc_memory_flags_t, void **);
static ze_result_t (*call_at_free)(ze_context_handle_t, struct free_callback_desc *, void *);
static ze_result_t (*map_to_host)(ze_context_handle_t, const void *, void **, void *);

static void find(void) {
    start();
    CHECK(zeDriverGetExtensionFunctionAddress(driver, "zexMemGetIpcHandles", (void **)&get_handles));
    CHECK(zeDriverGetExtensionFunctionAddress(driver, "zexMemOpenIpcHandles", (void **)&open_handles));
    CHECK(zeDriverGetExtensionFunctionAddress(driver, "zexMemFreeRegisterCallbackExt", (void **)&call_at_free));
    CHECK(zeDriverGetExtensionFunctionAddress(driver, "zeIntelMemMapDeviceMemToHost", (void **)&map_to_host));
}

/* Bytes of VRAM that this process holds, as the stand-in's fdinfo tells; in 0 where there is none. */
static uint64_t vram(void) {
    char path[4096], line[256];
    unsigned long long sum = 0, kib;
    const char *root = getenv("ZEROUTE_ROOT");
    DIR *dir;

    snprintf(path, sizeof(path), "%s/proc/%d/fdinfo", root ? root : "", getpid());
    dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        FILE *f;

        snprintf(path, sizeof(path), "%s/proc/%d/fdinfo/%s", root ? root : "", getpid(), e->d_name);
        for (f = fopen(path, "r"); f && fgets(line, sizeof(line), f);) {
            if (sscanf(line, "drm-total-vram0: %llu KiB", &kib) == 1)
                sum += kib;
        }
        if (f)
            fclose(f);
    }
    if (dir)
        closedir(dir);
    return sum << 10;
}

/* Opened where it was exported: the driver (26.27) takes the descriptors of these handles for its own process's. */
static void several_handles(void) {
    uint64_t before = vram();
    void *p = new_device(0, SIZE), *q = NULL;
    ze_ipc_mem_handle_t handle;
    uint32_t count = 0;
    char seen[16] = "";
    ze_command_list_handle_t list = new_list(0, copy_group(0));

    CHECK(zeCommandListAppendMemoryCopy(list, p, "0123456789abcdef", sizeof(seen), NULL, 0, NULL));
    CHECK(get_handles(context, p, &count, NULL));
    EQUAL(count, 1);
    CHECK(get_handles(context, p, &count, &handle));
    CHECK(open_handles(context, cards[0], 1, &handle, 0, &q));
    CHECK(zeCommandListAppendMemoryCopy(list, seen, q, sizeof(seen), NULL, 0, NULL));
    expect_bytes("through the handle", seen, "0123456789abcdef", sizeof(seen));
    CHECK(zeMemCloseIpcHandle(context, q));
    EQUAL(vram() >= before + SIZE, true);
    CHECK(zeMemFree(context, p));
    if (card_count > 1) /* what is exported is really freed; with one card the driver itself keeps it */
        EQUAL(vram() < before + SIZE, true);
    CHECK(zeCommandListDestroy(list));
}

/* Host memory takes nothing of the card that it is opened for: more of it than a limit allows. */
static void host_memory_of_another(void) {
    size_t size = 4 * SIZE;
    void *p = new_host(size), *q = NULL;
    ze_ipc_mem_handle_t handle;

    CHECK(zeMemGetIpcHandle(context, p, &handle));
    for (int i = 0; i < 2; i++) {
        CHECK(zeMemOpenIpcHandle(context, cards[0], handle, 0, &q));
        void *r = new_device(0, 64ul << 20);
        CHECK(zeMemFree(context, r));
        CHECK(zeMemCloseIpcHandle(context, q));
    }
    CHECK(zeMemFree(context, p));
}

static unsigned called;
static void count_call(void *data) {
    called += data == &called;
}

/* Whatever the free is called. */
static void a_call_at_each_free(void) {
    struct free_callback_desc desc = {.stype = 0x00030020, .call = count_call, .data = &called};
    ze_memory_free_ext_desc_t blocking = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC,
                                          .freePolicy = ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE};

    for (unsigned i = 0; i < 3; i++) {
        void *p = i == 2 ? new_host(4ul << 20) : new_device(0, 4ul << 20);

        CHECK(call_at_free(context, &desc, p));
        CHECK(i == 1 ? zeMemFreeExt(context, &blocking, p) : zeMemFree(context, p));
        EQUAL(called, i + 1);
    }
    void *p = new_device(0, 4ul << 20); /* as large, and nobody asked */
    CHECK(zeMemFree(context, p));
    EQUAL(called, 3);
}

static void mapped_until_it_is_freed(void) {
    uint64_t before = vram();
    char *p = new_device(0, SIZE), *host = NULL;

    if (map_to_host(context, p, (void **)&host, NULL) == ZE_RESULT_SUCCESS) {
        char seen[4] = "";
        ze_command_list_handle_t list = new_list(0, copy_group(0));

        memcpy(host, "abc", 4);
        CHECK(zeCommandListAppendMemoryCopy(list, seen, p, 4, NULL, 0, NULL));
        expect_bytes("through the map", seen, "abc", 4);
        CHECK(zeCommandListDestroy(list));
        CHECK(zeMemFree(context, p));
        EQUAL(vram() < before + SIZE, true);
    } else {
        puts("no map");
        CHECK(zeMemFree(context, p));
    }
}

int main(void) {
    find();
    several_handles();
    a_call_at_each_free();
    mapped_until_it_is_freed();
    host_memory_of_another();
    CHECK(zeContextDestroy(context));
    puts("done");
    return 0;
}
