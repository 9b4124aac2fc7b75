/*
 * zeVirtualMemUnmap over several mappings, over parts of them and over none. Four mappings of 2, 4,
 * 2 and 4 MiB lie side by side in a reservation of 16 MiB. Usage: unmap FROM TO, in MiB: prints the
 * driver's answer, what it has mapped afterwards (a letter for each 2 MiB, or a dot) and how many
 * bytes these mappings are, and ends without giving anything back.
 */
#include "ze_test.h"

enum { MIB = 1 << 20, STEP = 2 * MIB, ALL = 16 * MIB, MAPPINGS = 4 };

static const size_t sizes[MAPPINGS] = {2 * MIB, 4 * MIB, 2 * MIB, 4 * MIB};
static char *base;

static void map_all(void) {
    size_t at = 0;

    CHECK(zeVirtualMemReserve(context, NULL, ALL, (void **)&base));
    for (unsigned i = 0; i < MAPPINGS; at += sizes[i++]) {
        ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = sizes[i]};
        ze_physical_mem_handle_t physical;

        CHECK(zePhysicalMemCreate(context, cards[0], &desc, &physical));
        CHECK(zeVirtualMemMap(context, base + at, sizes[i], physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    }
}

static bool is_mapped(size_t at) {
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};

    CHECK(zeMemGetAllocProperties(context, base + at, &properties, NULL));
    return properties.type != ZE_MEMORY_TYPE_UNKNOWN;
}

/* Of each mapping the driver has all or nothing: its first and its last step say the same. */
static void show(void) {
    size_t at = 0, mapped = 0;
    char letters[ALL / STEP + 1] = "........";

    for (unsigned i = 0; i < MAPPINGS; at += sizes[i++]) {
        EXPECT(is_mapped(at) == is_mapped(at + sizes[i] - STEP));
        if (!is_mapped(at))
            continue;
        mapped += sizes[i];
        memset(letters + at / STEP, 'a' + (int)i, sizes[i] / STEP);
    }
    printf("%s %zu\n", letters, mapped);
}

int main(int argc, char **argv) {
    size_t from, to;

    EXPECT(argc == 3);
    from = (size_t)atoi(argv[1]) * MIB;
    to = (size_t)atoi(argv[2]) * MIB;
    start();
    map_all();
    printf("%x ", zeVirtualMemUnmap(context, base + from, to - from));
    show();
    return 0;
}
