/* Blocks that are resident on another card: two simulated cards in one context. */
#include "keep.h"

static __attribute__((noinline)) void *resident_on_both(size_t size) {
    void *p = on_card(&gpu, 0, size);

    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, size));
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, size));
    return p;
}

/* One place that asks for the peer, and another that does not. */
static void peers(void) {
    void *p = NULL, *q;
    uint64_t before;

    for (int i = 0; i < 4; i++) {
        p = resident_on_both(BLOCK);
        release(p);
    }
    before = figure(&gpu, "calls.zeContextMakeMemoryResident");
    EXPECT(resident_on_both(BLOCK) == p);
    EXPECT(figure(&gpu, "calls.zeContextMakeMemoryResident") == before);
    EXPECT(residency(&gpu, p) == 3);
    release(p);
    EXPECT(residency(&gpu, p) == 3);
    OK(zeMemAllocDevice(gpu.context, &device_desc, BLOCK, 0, gpu.card[0], &q));
    release(q); /* could not be foreseen */
    OK(zeMemAllocDevice(gpu.context, &device_desc, BLOCK, 0, gpu.card[0], &q));
    EXPECT(q != p && residency(&gpu, q) != 3);
}

/* One place that asked for the peer for long, and then does not: what it gets is not on the peer. */
static __attribute__((noinline)) void *resident_if(bool asked) {
    void *p = on_card(&gpu, 0, BLOCK);

    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, BLOCK));
    if (asked)
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, BLOCK));
    return p;
}

static void no_longer_asked(void) {
    for (int i = 0; i < 20; i++)
        release(resident_if(true));
    release(resident_if(false)); /* could not be foreseen */
    for (int i = 0; i < 20; i++) {
        void *p = resident_if(false);

        EXPECT(residency(&gpu, p) == 1);
        release(p);
    }
}

/* What was evicted is not answered from the books. */
static void evicted(void) {
    void *p = NULL;

    for (int i = 0; i < 4; i++) {
        p = resident_on_both(BLOCK);
        OK(zeContextEvictMemory(gpu.context, gpu.card[1], p, BLOCK));
        EXPECT((residency(&gpu, p) & 2) == 0);
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, BLOCK));
        EXPECT(residency(&gpu, p) == 3);
        OK(zeContextEvictMemory(gpu.context, gpu.card[1], p, BLOCK));
        release(p);
        EXPECT((residency(&gpu, p) & 2) == 0);
    }
    p = resident_on_both(BLOCK);
    EXPECT(residency(&gpu, p) == 3);
}

/* Small blocks share a slab of the driver's: it goes as one, and each of them has to be asked for again. */
static void evicted_together(void) {
    void *p = resident_on_both(64 * KIB), *q = resident_on_both(64 * KIB);

    for (int i = 0; i < 4; i++) {
        release(p);
        p = resident_on_both(64 * KIB);
        EXPECT(residency(&gpu, p) == 3);
        OK(zeContextEvictMemory(gpu.context, gpu.card[1], q, 64 * KIB));
        EXPECT(residency(&gpu, p) == 1);
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, 64 * KIB));
        EXPECT(residency(&gpu, p) == 3);
        OK(zeContextEvictMemory(gpu.context, gpu.card[0], q, 64 * KIB));
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, 64 * KIB));
        EXPECT(residency(&gpu, p) == 3);
    }
}

static void owner_only(void) {
    for (int i = 0; i < 4; i++) {
        void *p = resident_on_both(BLOCK);

        EXPECT((residency(&gpu, p) & 2) == 0);
        OK(zeContextEvictMemory(gpu.context, gpu.card[1], p, BLOCK)); /* of what it does not have */
        release(p);
    }
    EXPECT(figure(&gpu, "calls.zeContextEvictMemory") == 0);
}

static const struct part all[] = {PART(peers),      PART(no_longer_asked), PART(evicted), PART(evicted_together),
                                  PART(owner_only), {NULL, NULL}};

int main(int argc, char **argv) {
    gpu = first_gpu();
    return run_part(all, argc, argv);
}
