/* Makes an image of 4 MiB on card 0 every 10 ms, without end, and destroys none. Holds one block all the time. */
#include "ze_test.h"

#include <time.h>

int main(void) {
    ze_image_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_IMAGE_DESC,
                            .type = ZE_IMAGE_TYPE_2D,
                            .format = {.layout = ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, .type = ZE_IMAGE_FORMAT_TYPE_UNORM},
                            .width = 1024,
                            .height = 1024,
                            .depth = 1};
    ze_image_handle_t image;
    start();
    new_device(0, 64 << 20);
    puts("ready");
    fflush(stdout);
    for (;;) {
        CHECK(zeImageCreate(context, cards[0], &desc, &image));
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}
