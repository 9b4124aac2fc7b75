/* Blocks that another process opens: it sees the bytes, and what it writes comes back. */
#include "sim.h"
#include <fcntl.h>
#include <sys/wait.h>

static struct gpu gpu;

static int opener(char **argv) {
    ze_ipc_mem_handle_t handle;
    unsigned card = (unsigned)atoi(argv[3]);
    size_t size = (size_t)atol(argv[4]), length;
    void *base;
    char *p = NULL;
    for (size_t i = 0; i < sizeof(handle); i++) {
        unsigned byte;
        EXPECT(sscanf(argv[2] + 2 * i, "%2x", &byte) == 1);
        handle.data[i] = (char)byte;
    }
    ze_result_t result = zeMemOpenIpcHandle(gpu.context, gpu.card[card], handle, 0, (void **)&p);
    if (size == 0) {
        GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, result);
        return 0;
    }
    OK(result);
    for (size_t i = 0; i < size; i++)
        EXPECT(p[i] == 'a');
    memset(p, 'b', size);
    OK(zeMemGetAddressRange(gpu.context, p + size / 2, &base, &length));
    EXPECT(base == p && length == size);
    if (getenv("ZEROUTE_ROOT"))
        EXPECT(in_fdinfo(card, card == 0 ? "drm-shared-vram0" : "drm-total-gtt") >= (int64_t)size);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemCloseIpcHandle(gpu.context, p + 1));
    OK(zeMemCloseIpcHandle(gpu.context, p));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemCloseIpcHandle(gpu.context, p));
    if (getenv("ZEROUTE_ROOT"))
        EXPECT(in_fdinfo(card, "drm-total-gtt") == 0);
    return 0;
}

static void open_elsewhere(ze_ipc_mem_handle_t handle, unsigned card, size_t size) {
    char hex[2 * sizeof(handle) + 1], card_text[16], size_text[32];
    for (size_t i = 0; i < sizeof(handle); i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)handle.data[i]);
    snprintf(card_text, sizeof(card_text), "%u", card);
    snprintf(size_text, sizeof(size_text), "%zu", size);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "sim_ipc", "open", hex, card_text, size_text, (char *)NULL);
        _exit(127);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

static void share(size_t size, unsigned card) {
    char *neighbour = on_card(&gpu, 0, 512), *p = on_card(&gpu, 0, size);
    ze_ipc_mem_handle_t handle;
    memset(neighbour, 'n', 512);
    memset(p, 'a', size);
    OK(zeMemGetIpcHandle(gpu.context, p + size / 2, &handle)); /* opens at the base */
    open_elsewhere(handle, card, size);
    for (size_t i = 0; i < size; i++)
        EXPECT(p[i] == 'b');
    EXPECT(neighbour[0] == 'n' && neighbour[511] == 'n');
    if (size > MIB) { /* a handle of a buffer that is gone opens nothing */
        OK(zeMemFree(gpu.context, p));
        open_elsewhere(handle, card, 0);
    } else {
        OK(zeMemFree(gpu.context, p));
    }
    OK(zeMemFree(gpu.context, neighbour));
}

static void by_descriptor(void) {
    int fd = -1;
    char *p = exported_block(&gpu, 0, 4096, &fd), *q;
    EXPECT(fd >= 0);
    OK(import_block(&gpu, 1, 4096, fd, (void **)&q));
    p[100] = 42;
    EXPECT(q != p && q[100] == 42);
    OK(zeMemFree(gpu.context, p)); /* what was imported lives on */
    EXPECT(q[100] == 42);
    OK(zeMemFree(gpu.context, q));
    EXPECT(fcntl(fd, F_GETFD) >= 0); /* the descriptor is the caller's */
    close(fd);
}

int main(int argc, char **argv) {
    ze_ipc_mem_handle_t nothing = {{0}};
    void *p;
    gpu = first_gpu();
    if (argc > 1)
        return opener(argv);
    share(3 * MIB, 0);
    share(3 * MIB, 1);
    share(5000, 0);
    share(5000, 1);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemOpenIpcHandle(gpu.context, gpu.card[0], nothing, 0, &p));
    by_descriptor();
    return 0;
}
