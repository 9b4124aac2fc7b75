/* A context that the driver refuses to destroy stays as it was, and so do its blocks. */
#include "sim.h"

int main(void) {
    struct gpu gpu = first_gpu();
    void *p = on_card(&gpu, 0, 4 * MIB);

    GIVES(ZE_RESULT_ERROR_DEVICE_LOST, zeContextDestroy(gpu.context));
    OK(zeMemFree(gpu.context, p));
    OK(zeMemFree(gpu.context, on_card(&gpu, 1, MIB)));
    OK(zeContextDestroy(gpu.context));
    return 0;
}
