/*
 * Leaves while threads allocate and free, with blocks that are kept and blocks that are held, and frees more of them
 * from a destructor that runs after ours. Argument: how it leaves (return, exit, thread, _exit).
 */
#include "sim.h"

#include <pthread.h>
#include <stdatomic.h>

static struct gpu gpu;
static void *held[4];
static _Atomic int working;

static void *work(void *arg) {
    (void)arg;
    for (unsigned i = 0;; i++) {
        void *p = NULL;

        /* At the end the driver may be gone: any answer will do. */
        if (!zeMemAllocDevice(gpu.context, &device_desc, (i % 4 + 1) * MIB, 0, gpu.card[0], &p) && p)
            zeMemFree(gpu.context, p);
        if (i == 50)
            working++;
    }
    return NULL;
}

__attribute__((destructor)) static void last(void) {
    for (int i = 0; i < 4; i++)
        zeMemFree(gpu.context, held[i]);
}

static void *leave(void *arg) {
    (void)arg;
    exit(0);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "return";
    pthread_t thread;

    gpu = first_gpu();
    for (int i = 0; i < 4; i++)
        held[i] = on_card(&gpu, 0, 3 * MIB);
    OK(zeMemFree(gpu.context, on_card(&gpu, 0, 5 * MIB)));
    for (int i = 0; i < 2; i++)
        EXPECT(pthread_create(&thread, NULL, work, NULL) == 0);
    while (working < 2)
        pause_ms(1);
    if (strcmp(how, "_exit") == 0)
        _exit(0);
    if (strcmp(how, "exit") == 0)
        exit(0);
    if (strcmp(how, "thread") == 0) {
        EXPECT(pthread_create(&thread, NULL, leave, NULL) == 0);
        for (;;)
            pause_ms(1000);
    }
    return 0;
}
