/* Holds device memory on two cards, resident on both, until its input ends: somebody to look at. */
#include "sim.h"

int main(void) {
    struct gpu gpu = first_gpu();
    char c;

    EXPECT(gpu.cards == 2);
    for (unsigned i = 0; i < 3; i++) {
        void *p = on_card(&gpu, i & 1, 128 * MIB);

        for (unsigned card = 0; card < 2; card++)
            OK(zeContextMakeMemoryResident(gpu.context, gpu.card[card], p, 128 * MIB));
    }
    puts("ready");
    fflush(stdout);
    while (read(0, &c, 1) > 0)
        ;
    return 0;
}
