/* Eight threads allocate, copy, ask and free at the same time, on two cards. */
#include "sim.h"
#include <pthread.h>

static struct gpu gpu;

static void *work(void *argument) {
    unsigned me = (unsigned)(uintptr_t)argument;
    unsigned seed = me;
    ze_command_list_handle_t list = immediate(&gpu, me % 2, true);
    for (int round = 0; round < 100; round++) {
        size_t size = 1 + (size_t)rand_r(&seed) % (round % 10 == 0 ? 4 * MIB : 64 * KIB);
        char *p = on_card(&gpu, me % 2, size), *back = malloc(size), mine = (char)(me + 1);
        void *base;
        size_t length;
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[round % 2], p, size));
        OK(zeCommandListAppendMemoryFill(list, p, &mine, 1, size, NULL, 0, NULL));
        OK(zeCommandListAppendMemoryCopy(list, back, p, size, NULL, 0, NULL));
        EXPECT(back[0] == mine && back[size - 1] == mine);
        OK(zeMemGetAddressRange(gpu.context, p + size - 1, &base, &length));
        EXPECT(base == p && length == size);
        OK(zeMemFree(gpu.context, p));
        free(back);
    }
    OK(zeCommandListDestroy(list));
    return NULL;
}

int main(void) {
    pthread_t threads[8];
    gpu = first_gpu();
    EXPECT(gpu.cards == 2);
    for (unsigned i = 0; i < 8; i++)
        EXPECT(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i) == 0);
    for (unsigned i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    EXPECT(figure(&gpu, "mirror") == 0 && figure(&gpu, "gtt.0") == 0);
    EXPECT(figure(&gpu, "faults") == 0);
    return 0;
}
