/* VRAM runs out as set, says so by the right code, and comes back when blocks are freed. */
#include "ze_test.h"

#define BLOCK (256ul << 20)
#define BLOCKS 64

static unsigned fill_up(void *blocks[BLOCKS]) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    unsigned count = 0;
    ze_result_t result = ZE_RESULT_SUCCESS;
    while (count < BLOCKS &&
           (result = zeMemAllocDevice(context, &desc, BLOCK, 0, cards[0], &blocks[count])) == ZE_RESULT_SUCCESS)
        count++;
    EQUAL(result, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    return count;
}

int main(void) {
    void *blocks[BLOCKS] = {0};
    start();
    unsigned first = fill_up(blocks);
    for (unsigned i = 0; i < first; i++)
        CHECK(zeMemFree(context, blocks[i]));
    unsigned second = fill_up(blocks);
    EQUAL(second, first);
    for (unsigned i = 0; i < second; i++)
        CHECK(zeMemFree(context, blocks[i]));
    CHECK(zeContextDestroy(context));
    printf("%u blocks of 256 MiB\n", first);
    return 0;
}
