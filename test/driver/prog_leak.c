/*
 * Leaks one kind of memory on card 0 every 10 ms, without end, and holds one block all the time:
 *
 *   leak image|host|ipc     an image of 4 MiB; host USM of 2 MiB; an IPC handle that is opened and never closed
 */
#include "ze_test.h"

#include <time.h>

int main(int argc, char **argv) {
    ze_image_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_IMAGE_DESC,
                            .type = ZE_IMAGE_TYPE_2D,
                            .format = {.layout = ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, .type = ZE_IMAGE_FORMAT_TYPE_UNORM},
                            .width = 1024,
                            .height = 1024,
                            .depth = 1};
    const char *kind = argc > 1 ? argv[1] : "image";
    ze_ipc_mem_handle_t handle;
    void *block, *opened;
    start();
    block = new_device(0, 64 << 20);
    CHECK(zeMemGetIpcHandle(context, block, &handle));
    puts("ready");
    fflush(stdout);
    for (;;) {
        ze_image_handle_t image;
        if (!strcmp(kind, "image"))
            CHECK(zeImageCreate(context, cards[0], &desc, &image));
        else if (!strcmp(kind, "host"))
            new_host(2 << 20);
        else
            CHECK(zeMemOpenIpcHandle(context, cards[0], handle, 0, &opened));
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}
