/* Two drivers in one process: each has its own cards, and a block of one is unknown to the other. */
#include "sim.h"

int main(void) {
    ze_driver_handle_t drivers[2];
    struct gpu gpu[2];
    uint32_t count = 2;
    OK(zeInit(0));
    OK(zeDriverGet(&count, drivers));
    EXPECT(count == 2);
    uint32_t cards = 0;
    for (int i = 0; i < 2; i++) {
        use_driver(&gpu[i], drivers[i]);
        cards += gpu[i].cards;
    }
    EXPECT(cards == 3); /* devices:1 and devices:2 */
    for (int i = 0; i < 2; i++) {
        char *p = on_card(&gpu[i], 0, 3 * MIB), *back = calloc(1, 3 * MIB);
        void *base;
        size_t size;
        ze_command_list_handle_t list = immediate(&gpu[i], 0, true);
        OK(zeCommandListAppendMemoryFill(list, p, i ? "1" : "0", 1, 3 * MIB, NULL, 0, NULL));
        OK(zeCommandListAppendMemoryCopy(list, back, p, 3 * MIB, NULL, 0, NULL));
        EXPECT(back[0] == '0' + i && back[3 * MIB - 1] == '0' + i);
        OK(zeMemGetAddressRange(gpu[i].context, p + 5, &base, &size));
        EXPECT(base == p && size == 3 * MIB);
        GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu[1 - i].context, p));
        OK(zeMemFree(gpu[i].context, p));
        OK(zeCommandListDestroy(list));
        free(back);
    }
    return 0;
}
