/*
 * New memory at an address where other memory was mapped before, inside one reservation, which another card reads: as
 * expandable segments do on two cards. Prints what the second card reads there: new, old, or neither. Usage: remap
 * whole|part|shift: `whole` unmaps all of the reservation before it maps anew, `part` leaves a piece of it mapped,
 * `shift` maps twice as much as is compared in every second round, and begins a piece before it.
 */
#include "ze_test.h"

enum { PIECE = 2 << 20, PIECES = 4, ROUNDS = 3 };

static ze_command_list_handle_t list[CARDS];
static char *base;

/* From the first piece to the last. */
struct pieces {
    unsigned first, last;
};

static size_t bytes_of(struct pieces p) {
    return (size_t)(p.last - p.first + 1) * PIECE;
}

static ze_physical_mem_handle_t map_pieces(struct pieces p) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = bytes_of(p)};
    ze_physical_mem_handle_t physical;

    CHECK(zePhysicalMemCreate(context, cards[0], &desc, &physical));
    CHECK(zeVirtualMemMap(context, base + (size_t)p.first * PIECE, bytes_of(p), physical, 0,
                          ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    return physical;
}

static void unmap_pieces(struct pieces p, ze_physical_mem_handle_t physical) {
    CHECK(zeVirtualMemUnmap(context, base + (size_t)p.first * PIECE, bytes_of(p)));
    CHECK(zePhysicalMemDestroy(context, physical));
}

static void copy(unsigned card, void *to, const void *from) {
    CHECK(zeCommandListAppendMemoryCopy(list[card], to, from, PIECE, NULL, 0, NULL));
}

/* Whether the second card reads what the first one has written in this round, or in which earlier one. */
static void show(unsigned round, const char *got) {
    char *written = malloc(PIECE);
    const char *what = "neither";

    for (unsigned r = 0; r <= round; r++) {
        fill_random(written, PIECE, r + 1);
        if (memcmp(got, written, PIECE) == 0)
            what = r == round ? "new" : "old";
    }
    printf("round %u: %s\n", round, what);
    free(written);
}

int main(int argc, char **argv) {
    bool part = argc > 1 && strcmp(argv[1], "part") == 0, shift = argc > 1 && strcmp(argv[1], "shift") == 0;
    char *new = malloc(PIECE), *got = malloc(PIECE);
    ze_physical_mem_handle_t first = NULL;

    start();
    EXPECT(card_count >= 2);
    for (unsigned card = 0; card < 2; card++)
        list[card] = new_list(card, copy_group(card));
    CHECK(zeVirtualMemReserve(context, NULL, PIECES * PIECE, (void **)&base));
    if (part)
        first = map_pieces((struct pieces){0, 0});
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct pieces mapped = {shift && round % 2 == 0 ? 1 : 2, 2};
        ze_physical_mem_handle_t physical = map_pieces(mapped);
        char *compared = base + (size_t)2 * PIECE;

        fill_random(new, PIECE, round + 1);
        copy(0, compared, new);
        copy(0, got, compared);
        expect_bytes("by the card itself", got, new, PIECE);
        memset(got, 0, PIECE);
        copy(1, got, compared);
        show(round, got);
        unmap_pieces(mapped, physical);
    }
    if (part)
        unmap_pieces((struct pieces){0, 0}, first);
    CHECK(zeVirtualMemFree(context, base, PIECES * PIECE));
    for (unsigned card = 0; card < 2; card++)
        CHECK(zeCommandListDestroy(list[card]));
    CHECK(zeContextDestroy(context));
    return 0;
}
