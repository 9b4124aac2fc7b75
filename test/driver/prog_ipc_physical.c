/*
 * Physical memory is exported by its handle, and by an address that it is mapped at, and opened again. Prints each
 * answer, for comparing a run under the preload with one without: drivers differ in what they allow.
 */
#include "ze_test.h"

enum { SIZE = 2 << 20 };

static void share(const char *what, const void *memory) {
    ze_ipc_mem_handle_t handle;
    ze_result_t result = zeMemGetIpcHandle(context, memory, &handle);
    void *again = NULL;

    printf("%s: exported %#x", what, (unsigned)result);
    if (!result) {
        result = zeMemOpenIpcHandle(context, cards[0], handle, 0, &again);
        printf(", opened %#x", (unsigned)result);
    }
    if (again)
        printf(", closed %#x", (unsigned)zeMemCloseIpcHandle(context, again));
    puts("");
}

int main(void) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = SIZE};
    ze_physical_mem_handle_t physical;
    void *at = NULL;

    start();
    CHECK(zePhysicalMemCreate(context, cards[0], &desc, &physical));
    share("its handle", (void *)physical);
    CHECK(zeVirtualMemReserve(context, NULL, 16 * (size_t)SIZE, &at));
    CHECK(zeVirtualMemMap(context, at, SIZE, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    share("its address", at);
    CHECK(zeVirtualMemUnmap(context, at, SIZE));
    CHECK(zeVirtualMemFree(context, at, 16 * (size_t)SIZE));
    CHECK(zePhysicalMemDestroy(context, physical));
    CHECK(zeContextDestroy(context));
    return 0;
}
