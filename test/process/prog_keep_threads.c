/*
 * Threads that allocate, free, hand blocks to each other, export, make resident, query and trim, all at once. Every
 * block is stamped by its owner: one that was handed out twice shows. Argument: rounds per thread.
 */
#include "sim.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, BLOCKS = 16, EXCHANGE = 64 };

static struct gpu gpu;
static int rounds;
static _Atomic(void *) exchange[EXCHANGE];

static uint32_t draw(uint32_t *seed) {
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static size_t size_of(uint32_t n) {
    return (size_t)(1 + n % 8) * 512 * KIB + n % 3;
}

/* The simulated card's memory can be read and written here. */
static void *take(uint32_t *seed, uint64_t stamp) {
    uint64_t *p = on_card(&gpu, draw(seed) % 2, size_of(draw(seed)));

    *p = stamp;
    return p;
}

static void use(uint32_t *seed, void *p) {
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t owner;
    ze_ipc_mem_handle_t handle;
    void *base = NULL;
    size_t size = 0;

    switch (draw(seed) % 8) {
    case 0:
        OK(zeMemGetIpcHandle(gpu.context, p, &handle));
        break;
    case 1:
    case 2:
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[draw(seed) % 2], p, 4));
        break;
    case 3:
        OK(zeContextEvictMemory(gpu.context, gpu.card[draw(seed) % 2], p, 4));
        break;
    case 4:
        OK(zeMemGetAllocProperties(gpu.context, p, &properties, &owner));
        EXPECT(properties.type == ZE_MEMORY_TYPE_DEVICE);
        break;
    default:
        OK(zeMemGetAddressRange(gpu.context, (char *)p + 3, &base, &size));
        EXPECT(base == p);
    }
}

static void give(uint32_t *seed, void *p) {
    if (draw(seed) % 4)
        OK(zeMemFree(gpu.context, p));
    else
        OK(free_with(&gpu, p, draw(seed) % 3));
}

static void *work(void *arg) {
    uint64_t me = (uintptr_t)arg;
    uint32_t seed = (uint32_t)me * 7919;
    uint64_t *mine[BLOCKS] = {NULL};

    for (int i = 0; i < rounds; i++) {
        uint64_t **at = &mine[draw(&seed) % BLOCKS];

        if (!*at) {
            *at = take(&seed, me << 32 | (uint32_t)(at - mine));
            continue;
        }
        EXPECT(**at == (me << 32 | (uint32_t)(at - mine)));
        use(&seed, *at);
        if (draw(&seed) % 2)
            continue;
        if (draw(&seed) % 2) {
            void *other = atomic_exchange(&exchange[draw(&seed) % EXCHANGE], *at);

            if (other)
                give(&seed, other);
        } else {
            give(&seed, *at);
        }
        *at = NULL;
        if (draw(&seed) % 256 == 0)
            usable_memory(gpu.card[0]);
    }
    for (int i = 0; i < BLOCKS; i++)
        if (mine[i])
            give(&seed, mine[i]);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread[THREADS];
    uint32_t seed = 1;

    rounds = argc > 1 ? atoi(argv[1]) : 10000;
    gpu = first_gpu();
    for (int turn = 0; turn < 2; turn++) {
        for (uintptr_t i = 0; i < THREADS; i++)
            EXPECT(pthread_create(&thread[i], NULL, work, (void *)(i + 1)) == 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(thread[i], NULL);
    }
    for (int i = 0; i < EXCHANGE; i++)
        if (exchange[i])
            give(&seed, exchange[i]);
    usable_memory(gpu.card[0]);
    OK(zeContextDestroy(gpu.context));
    EXPECT(figure(&gpu, "calls.zeMemAllocDevice") ==
           figure(&gpu, "calls.zeMemFree") + figure(&gpu, "calls.zeMemFreeExt"));
    return 0;
}
