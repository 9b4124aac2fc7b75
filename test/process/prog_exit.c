/* Frees at every stage of the end: an exit handler from before the first call, one from after it, a destructor. */
#include "sim.h"

static struct gpu gpu;
static void *block[3];

static void give_back(int n) {
    ze_result_t result = zeMemFree(gpu.context, block[n]);

    printf("stage %d: %#x\n", n, (unsigned)result);
    fflush(stdout);
}

static void early(void) {
    give_back(1);
}

static void late(void) {
    give_back(0);
}

__attribute__((destructor)) static void last(void) {
    give_back(2);
}

int main(void) {
    atexit(early);
    gpu = first_gpu();
    for (int i = 0; i < 3; i++)
        block[i] = on_card(&gpu, 0, 4 * MIB);
    atexit(late);
    return 0;
}
