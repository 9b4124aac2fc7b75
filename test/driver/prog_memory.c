/* Memory of every kind, size and alignment; properties, ranges, residency on every card. */
#include "ze_test.h"

static const size_t sizes[] = {1,       63,      4096,    65536,    (1 << 20) - 1,  1 << 20,
                               2 << 20, 3 << 20, 4 << 20, 20 << 20, (64 << 20) + 1, 256 << 20};

static void expect_block(void *p, size_t size, ze_memory_type_t type, ze_device_handle_t owner) {
    const size_t offsets[] = {0, size / 2, size - 1};
    for (unsigned i = 0; i < 3; i++) {
        ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
        ze_device_handle_t device = NULL;
        void *base = NULL;
        size_t range = 0;
        char *at = (char *)p + offsets[i];
        CHECK(zeMemGetAllocProperties(context, at, &properties, &device));
        EQUAL(properties.type, type);
        if (owner)
            EQUAL((intptr_t)device, (intptr_t)owner);
        CHECK(zeMemGetAddressRange(context, at, &base, &range));
        EQUAL((intptr_t)base, (intptr_t)p);
        EQUAL(range >= size, 1);
    }
}

static void alignments_are_kept(unsigned card) {
    for (size_t alignment = 8; alignment <= 1ul << 30; alignment *= 8) {
        void *p = NULL;
        ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
        CHECK(zeMemAllocDevice(context, &desc, 100, alignment, cards[card], &p));
        EQUAL((uintptr_t)p % alignment, 0);
        CHECK(zeMemFree(context, p));
    }
}

static void wrong_arguments_are_refused(void) {
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *p = NULL;
    int local;
    EQUAL(zeMemAllocDevice(context, &desc, 0, 0, cards[0], &p), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    EQUAL(zeMemAllocDevice(context, &desc, 1ull << 45, 0, cards[0], &p), ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    EQUAL(zeMemFree(context, NULL), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    EQUAL(zeMemFree(context, &local), ZE_RESULT_ERROR_INVALID_ARGUMENT);
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    CHECK(zeMemGetAllocProperties(context, &local, &properties, NULL));
    EQUAL(properties.type, ZE_MEMORY_TYPE_UNKNOWN);
}

int main(void) {
    start();
    for (unsigned card = 0; card < card_count; card++) {
        for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
            void *device = new_device(card, sizes[i]);
            char *host = new_host(sizes[i]);
            char *shared = new_shared(card, sizes[i]);
            expect_block(device, sizes[i], ZE_MEMORY_TYPE_DEVICE, cards[card]);
            expect_block(host, sizes[i], ZE_MEMORY_TYPE_HOST, NULL);
            expect_block(shared, sizes[i], ZE_MEMORY_TYPE_SHARED, cards[card]);
            host[0] = shared[0] = 1;
            host[sizes[i] - 1] = shared[sizes[i] - 1] = 2;
            for (unsigned peer = 0; peer < card_count; peer++) {
                CHECK(zeContextMakeMemoryResident(context, cards[peer], device, sizes[i]));
                CHECK(zeContextMakeMemoryResident(context, cards[peer], host, sizes[i]));
            }
            CHECK(zeContextEvictMemory(context, cards[card], device, sizes[i]));
            CHECK(zeMemFree(context, device));
            CHECK(zeMemFree(context, host));
            CHECK(zeMemFree(context, shared));
        }
        alignments_are_kept(card);
    }
    wrong_arguments_are_refused();
    CHECK(zeContextDestroy(context));
    puts("done");
    return 0;
}
