/*
 * New memory at an address where other memory was mapped before, inside one reservation, which another card reads: as
 * expandable segments do on two cards. Prints what the second card reads there: new, old, or neither. Usage: remap
 * whole|part: `whole` unmaps all of the reservation before it maps anew, `part` leaves a piece of it mapped.
 */
#include "ze_test.h"

enum { PIECE = 2 << 20, ROUNDS = 3 };

static ze_command_list_handle_t list[CARDS];
static char *base;

static ze_physical_mem_handle_t map_piece(unsigned piece) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = PIECE};
    ze_physical_mem_handle_t physical;

    CHECK(zePhysicalMemCreate(context, cards[0], &desc, &physical));
    CHECK(zeVirtualMemMap(context, base + (size_t)piece * PIECE, PIECE, physical, 0,
                          ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    return physical;
}

static void unmap_piece(unsigned piece, ze_physical_mem_handle_t physical) {
    CHECK(zeVirtualMemUnmap(context, base + (size_t)piece * PIECE, PIECE));
    CHECK(zePhysicalMemDestroy(context, physical));
}

int main(int argc, char **argv) {
    bool part = argc > 1 && strcmp(argv[1], "part") == 0;
    char *new = malloc(PIECE), *old = malloc(PIECE), *got = malloc(PIECE);
    ze_physical_mem_handle_t first = NULL;

    start();
    EXPECT(card_count >= 2);
    for (unsigned card = 0; card < 2; card++)
        list[card] = new_list(card, copy_group(card));
    CHECK(zeVirtualMemReserve(context, NULL, 2 * PIECE, (void **)&base));
    if (part)
        first = map_piece(0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        ze_physical_mem_handle_t physical = map_piece(1);

        fill_random(new, PIECE, round + 1);
        CHECK(zeCommandListAppendMemoryCopy(list[0], base + PIECE, new, PIECE, NULL, 0, NULL));
        CHECK(zeCommandListAppendMemoryCopy(list[0], got, base + PIECE, PIECE, NULL, 0, NULL));
        expect_bytes("by the card itself", got, new, PIECE);
        memset(got, 0, PIECE);
        CHECK(zeCommandListAppendMemoryCopy(list[1], got, base + PIECE, PIECE, NULL, 0, NULL));
        printf("round %u: %s\n", round,
               memcmp(got, new, PIECE) == 0                ? "new"
               : round > 0 && memcmp(got, old, PIECE) == 0 ? "old"
                                                           : "neither");
        memcpy(old, round == 0 ? new : old, PIECE);
        unmap_piece(1, physical);
    }
    if (part)
        unmap_piece(0, first);
    CHECK(zeVirtualMemFree(context, base, 2 * PIECE));
    for (unsigned card = 0; card < 2; card++)
        CHECK(zeCommandListDestroy(list[card]));
    CHECK(zeContextDestroy(context));
    return 0;
}
