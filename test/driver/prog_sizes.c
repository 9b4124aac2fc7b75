/* What zeMemAllocDevice answers for each size from none to impossible ones, and whether it leaves errno alone. */
#include "ze_test.h"

#include <errno.h>

int main(void) {
    static const size_t sizes[] = {0,         4096,      1ul << 20, 64ul << 20, 20ul << 30,
                                   1ul << 40, 1ul << 60, ~0ul >> 1, ~0ul << 32, ~0ul};
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};

    start();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *p = NULL;
        ze_result_t result;

        errno = 42;
        result = zeMemAllocDevice(context, &desc, sizes[i], 0, cards[0], &p);
        printf("%zx: %#x, errno %s\n", sizes[i], (unsigned)result, errno == 42 ? "as before" : strerror(errno));
        if (result == ZE_RESULT_SUCCESS)
            CHECK(zeMemFree(context, p));
    }
    CHECK(zeContextDestroy(context));
    return 0;
}
