/* Virtual memory: reserve, map physical memory piece by piece, copy across the pieces, unmap. */
#include "ze_test.h"

#define PIECES 4

int main(void) {
    start();
    for (unsigned card = 0; card < card_count; card++) {
        size_t page = 0, piece = 2 << 20;
        CHECK(zeVirtualMemQueryPageSize(context, cards[card], piece, &page));
        EQUAL(page, 2 << 20);
        char *base = NULL;
        size_t size = PIECES * piece;
        CHECK(zeVirtualMemReserve(context, NULL, size, (void **)&base));
        ze_physical_mem_handle_t physical[PIECES];
        for (unsigned i = 0; i < PIECES; i++) {
            ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = piece};
            CHECK(zePhysicalMemCreate(context, cards[card], &desc, &physical[i]));
            CHECK(zeVirtualMemMap(context, base + i * piece, piece, physical[i], 0,
                                  ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
        }
        char *from = malloc(size), *to = calloc(1, size);
        fill_random(from, size, card);
        ze_command_list_handle_t list = new_list(card, copy_group(card));
        CHECK(zeCommandListAppendMemoryCopy(list, base, from, size, NULL, 0, NULL));
        CHECK(zeCommandListAppendMemoryCopy(list, to, base, size, NULL, 0, NULL));
        expect_bytes("virtual memory", to, from, size);
        for (unsigned i = 0; i < PIECES; i++) {
            CHECK(zeVirtualMemUnmap(context, base + i * piece, piece));
            CHECK(zePhysicalMemDestroy(context, physical[i]));
        }
        CHECK(zeVirtualMemFree(context, base, size));
        CHECK(zeCommandListDestroy(list));
        free(from);
        free(to);
    }
    CHECK(zeContextDestroy(context));
    puts("done");
    return 0;
}
