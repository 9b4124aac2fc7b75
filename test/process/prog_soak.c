/*
 * Everything at random, by several threads, for so many seconds: arguments seconds, threads, seed. Once a second all
 * threads rest: what the model says lives is what the driver says (where it can be asked), and with everything freed
 * and the cache given back the process holds no more memory than it did after the first third. Prints what is left
 * alive in the end, by the model: bytes and blocks on devices, bytes of host memory.
 */
#include "sim.h"

#include <pthread.h>
#include <stdatomic.h>

enum { BLOCKS = 48, MOST_THREADS = 16, SLACK_KIB = 1024 };

enum kind { DEVICE, SHARED, HOST };
struct block {
    char *base;
    size_t size;
    enum kind kind;
    unsigned card;
};

static struct gpu gpu;
static pthread_barrier_t rest;
static atomic_llong bytes[3], blocks[3];
static atomic_bool over;
static atomic_ullong steps;
static bool simulated;

static uint32_t draw(uint32_t *seed, uint32_t below) {
    *seed = *seed * 1664525 + 1013904223;
    return (*seed >> 8) % below;
}

static void take(struct block *b, uint32_t *seed) {
    size_t size = draw(seed, 3) ? 1 + draw(seed, 200000) : (size_t)(1 + draw(seed, 24)) * MIB;
    void *p = NULL;

    b->kind = draw(seed, 8) < 6 ? DEVICE : draw(seed, 2) ? SHARED : HOST;
    b->card = draw(seed, gpu.cards);
    b->size = size;
    switch (b->kind) {
    case DEVICE:
        OK(zeMemAllocDevice(gpu.context, &device_desc, size, draw(seed, 4) ? 0 : (size_t)64 << draw(seed, 11),
                            gpu.card[b->card], &p));
        break;
    case SHARED:
        OK(zeMemAllocShared(gpu.context, &device_desc, &host_desc, size, 0, gpu.card[b->card], &p));
        break;
    case HOST:
        OK(zeMemAllocHost(gpu.context, &host_desc, size, 0, &p));
        break;
    }
    b->base = p;
    bytes[b->kind] += (long long)size;
    blocks[b->kind]++;
}

static void give(struct block *b, uint32_t *seed) {
    uint32_t way = draw(seed, 4);

    OK(way ? zeMemFree(gpu.context, b->base) : free_with(&gpu, b->base, draw(seed, 3)));
    bytes[b->kind] -= (long long)b->size;
    blocks[b->kind]--;
    b->base = NULL;
}

static void look(const struct block *b, uint32_t *seed) {
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    size_t at = draw(seed, 1000) * (b->size - 1) / 1000, size = 0;
    ze_device_handle_t card;
    void *base = NULL;

    OK(zeMemGetAddressRange(gpu.context, b->base + at, &base, &size));
    EXPECT(base == b->base && size >= b->size);
    OK(zeMemGetAllocProperties(gpu.context, b->base + at, &properties, &card));
    EXPECT(properties.type == (b->kind == DEVICE   ? ZE_MEMORY_TYPE_DEVICE
                               : b->kind == SHARED ? ZE_MEMORY_TYPE_SHARED
                                                   : ZE_MEMORY_TYPE_HOST));
}

static void move(const struct block *b, uint32_t *seed) {
    ze_device_handle_t card = gpu.card[draw(seed, gpu.cards)];

    if (b->kind != DEVICE)
        return;
    OK(zeContextMakeMemoryResident(gpu.context, card, b->base, b->size));
    if (draw(seed, 2)) { /* where blocks share a slab, Intel's driver has evicted it with the first of them */
        ze_result_t result = zeContextEvictMemory(gpu.context, card, b->base, b->size);

        EXPECT(result == ZE_RESULT_SUCCESS || (!simulated && result == ZE_RESULT_ERROR_INVALID_ARGUMENT));
    }
}

static void wrong(uint32_t *seed) {
    if (draw(seed, 16) == 0) /* the driver's business, and counted */
        EXPECT(zeMemFree(gpu.context, NULL) != ZE_RESULT_SUCCESS);
}

static void *soak(void *arg) {
    uint32_t seed = (uint32_t)(uintptr_t)arg;
    struct block block[BLOCKS] = {0};

    while (!over) {
        for (uint64_t end = now_ms() + 1000; now_ms() < end;) {
            for (int i = 0; i < 64; i++, steps++) {
                struct block *b = &block[draw(&seed, BLOCKS)];

                if (!b->base)
                    take(b, &seed);
                else if (draw(&seed, 3) == 0)
                    look(b, &seed);
                else if (draw(&seed, 6) == 0)
                    move(b, &seed);
                else
                    give(b, &seed);
                wrong(&seed);
            }
        }
        pthread_barrier_wait(&rest); /* all rest: the driver is asked */
        pthread_barrier_wait(&rest);
        for (int i = 0; i < BLOCKS; i++)
            if (block[i].base)
                give(&block[i], &seed);
        pthread_barrier_wait(&rest); /* nothing lives: memory is measured */
        pthread_barrier_wait(&rest);
    }
    take(&block[0], &seed); /* something is left in the end */
    return NULL;
}

static long anonymous_kib(void) {
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %ld kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

/* The simulated driver tells what it has given out; a cache of ours may hold more than lives. */
static void agree(void) {
    uint64_t held = 0;

    for (unsigned c = 0; simulated && c < gpu.cards; c++) {
        char name[16];

        snprintf(name, sizeof name, "vram.%u", c);
        held += figure(&gpu, name);
    }
    EXPECT(!simulated || held >= (uint64_t)(bytes[DEVICE] + bytes[SHARED]));
}

static void all_given_back(void) {
    EXPECT(bytes[DEVICE] == 0 && bytes[SHARED] == 0 && bytes[HOST] == 0);
    for (unsigned c = 0; c < gpu.cards; c++)
        usable_memory(gpu.card[c]);                         /* a question of free memory gives the cache back */
    for (unsigned c = 0; simulated && c < gpu.cards; c++) { /* it keeps slabs for small blocks, as Intel's does */
        char name[16];

        snprintf(name, sizeof name, "vram.%u", c);
        EXPECT(figure(&gpu, name) <= 64 * MIB);
    }
}

int main(int argc, char **argv) {
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 3, threads = argc > 2 ? (unsigned)atoi(argv[2]) : 4;
    unsigned seed = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
    pthread_t thread[MOST_THREADS];
    void *address = NULL;
    long first = 0, most = 0;
    uint64_t start = now_ms(), passed = 0;

    EXPECT(threads >= 1 && threads <= MOST_THREADS);
    gpu = first_gpu();
    simulated = zeDriverGetExtensionFunctionAddress(gpu.driver, "zeSimgpuQuery", &address) == ZE_RESULT_SUCCESS;
    pthread_barrier_init(&rest, NULL, threads + 1);
    for (unsigned i = 0; i < threads; i++)
        EXPECT(pthread_create(&thread[i], NULL, soak, (void *)(uintptr_t)(seed * 100 + i)) == 0);
    while (!over) {
        long now;

        pthread_barrier_wait(&rest);
        agree();
        pthread_barrier_wait(&rest);
        pthread_barrier_wait(&rest);
        all_given_back();
        now = anonymous_kib();
        if (passed < 60000 && passed <= seconds * 1000 / 3) /* when this round began */
            first = now > first ? now : first;
        most = now > most ? now : most;
        passed = now_ms() - start;
        over = passed >= seconds * 1000;
        pthread_barrier_wait(&rest);
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    printf("alive %lld %lld %lld\n", (long long)(bytes[DEVICE] + bytes[SHARED]),
           (long long)(blocks[DEVICE] + blocks[SHARED]), (long long)bytes[HOST]);
    printf("steps %llu, KiB %ld then %ld\n", (unsigned long long)steps, first, most);
    EXPECT(!simulated || most <= first + SLACK_KIB); /* Intel's driver grows by itself: without us, too */
    return 0;
}
