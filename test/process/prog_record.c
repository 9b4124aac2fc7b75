/*
 * A program as a record sees it: steps that allocate and free, by one thread, in the order of a training loop.
 * Arguments: clean, leak (three blocks stay) or grow (each step leaves 64 KiB), and the number of steps. Prints what it
 * got: the peak of its own account, and a sum over codes and sizes that is the same in every run. Then executes what
 * follows, if anything does.
 */
#include "sim.h"

#include <unistd.h>

enum { AT_ONCE = 20, KEPT = 3 };

int main(int argc, char **argv) {
    static const size_t sizes[] = {64 * KIB, 512, 256 * KIB, 2 * MIB, 96 * KIB, 1 * MIB, 4096};
    struct gpu gpu = first_gpu();
    bool leak = argc > 1 && strcmp(argv[1], "leak") == 0, grow = argc > 1 && strcmp(argv[1], "grow") == 0;
    long steps = argc > 2 ? atol(argv[2]) : 10;
    uint64_t live = 0, peak = 0, sum = 0;
    size_t size[AT_ONCE];
    void *block[AT_ONCE];

    for (long step = 0; step < steps; step++) {
        for (int i = 0; i < AT_ONCE; i++) {
            size[i] = sizes[(size_t)(step + i * 3) % (sizeof sizes / sizeof *sizes)];
            OK(zeMemAllocDevice(gpu.context, &device_desc, size[i], 0, gpu.card[0], &block[i]));
            live += size[i];
            sum = sum * 31 + size[i];
            peak = live > peak ? live : peak;
        }
        for (int i = AT_ONCE; i-- > 0;) {
            if ((grow && size[i] == 64 * KIB && i < 7) || (leak && step == 0 && i < KEPT))
                continue;
            sum = sum * 31 + (uint64_t)zeMemFree(gpu.context, block[i]);
            live -= size[i];
        }
    }
    printf("peak %llu live %llu sum %llu\n", (unsigned long long)peak, (unsigned long long)live,
           (unsigned long long)sum);
    fflush(stdout);
    if (argc > 3)
        execv(argv[3], argv + 3);
    return argc > 3;
}
