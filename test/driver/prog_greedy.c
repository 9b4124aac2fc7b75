/*
 * Takes device memory of card 0 until it is refused, frees a part, takes again, ROUNDS times, and says what it holds:
 *
 *   greedy [MIB_PER_BLOCK [ROUNDS [hold]]]     hold: keeps it until stdin ends
 *
 * Where the environment names a file START, it first has the driver make what it needs for itself, creates START.PID,
 * and waits for START to come into being: so that several begin at once, and take blocks alone.
 */
#include "ze_test.h"

#include <time.h>
#include <unistd.h>

enum { MOST = 4096 };

static void await_start(const char *file, const ze_device_mem_alloc_desc_t *desc, size_t size) {
    char ready[4096];
    void *p;

    CHECK(zeMemAllocDevice(context, desc, size, 0, cards[0], &p));
    CHECK(zeMemFree(context, p));
    snprintf(ready, sizeof ready, "%s.%d", file, (int)getpid());
    EQUAL(fclose(fopen(ready, "w")), 0);
    while (access(file, F_OK))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int main(int argc, char **argv) {
    size_t size = (argc > 1 ? strtoull(argv[1], NULL, 10) : 20) << 20;
    int rounds = argc > 2 ? atoi(argv[2]) : 1, refused = 0;
    ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    static void *blocks[MOST];
    unsigned held = 0, least = 0;
    start();
    if (getenv("START"))
        await_start(getenv("START"), &desc, size);
    for (int r = 0; r < rounds; r++) {
        while (held > least)
            CHECK(zeMemFree(context, blocks[--held]));
        while (held < MOST && zeMemAllocDevice(context, &desc, size, 0, cards[0], &blocks[held]) == ZE_RESULT_SUCCESS)
            held++;
        refused += held < MOST;
        least = held / 2;
    }
    printf("%llu %d\n", (unsigned long long)(held * size), refused);
    fflush(stdout);
    if (argc > 3) {
        char c;
        while (read(0, &c, 1) > 0) {
        }
    }
    _Exit(0);
}
