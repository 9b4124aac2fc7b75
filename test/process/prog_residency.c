/*
 * What residency:owner skips and what it lets through, as the simulated driver sees it (two
 * cards of two tiles). Usage: residency CASE; each case leaves its counters to the suite.
 */
#include "sim.h"

#include <dlfcn.h>

enum { FIRST = 1, SECOND = 2 }; /* bits of residency() */

static struct gpu gpu;

static void make(unsigned card, void *p, size_t size) {
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[card], p, size));
}

/* What is none of our business: the driver answers it. */
static void reached_the_driver(uint64_t calls) {
    EXPECT(figure(&gpu, "calls.zeContextMakeMemoryResident") == calls);
}

static void peer(void) {
    char *p = on_card(&gpu, 0, 4 * MIB);

    make(0, p, 4 * MIB);
    make(1, p, 4 * MIB);
    EXPECT(residency(&gpu, p) == FIRST);
    /* from inside, too, and of the other card's block */
    make(1, p + MIB, MIB);
    EXPECT(residency(&gpu, p) == FIRST);
    p = on_card(&gpu, 1, 4 * MIB);
    make(1, p, 4 * MIB);
    make(0, p, 4 * MIB);
    EXPECT(residency(&gpu, p) == SECOND);
}

static void evict(void) {
    char *p = on_card(&gpu, 0, 4 * MIB);

    make(0, p, 4 * MIB);
    make(1, p, 4 * MIB);
    OK(zeContextEvictMemory(gpu.context, gpu.card[1], p, 4 * MIB));
    EXPECT(residency(&gpu, p) == FIRST);
    OK(zeContextEvictMemory(gpu.context, gpu.card[0], p, 4 * MIB));
    EXPECT(residency(&gpu, p) == 0);
}

static void tile(void) {
    ze_device_handle_t tiles[2];
    uint32_t count = 2;
    char *p = on_card(&gpu, 0, 4 * MIB);

    OK(zeDeviceGetSubDevices(gpu.card[0], &count, tiles));
    EXPECT(count == 2);
    OK(zeContextMakeMemoryResident(gpu.context, tiles[1], p, 4 * MIB));
    EXPECT(residency(&gpu, p) == FIRST);
    /* a block of a tile belongs to its card */
    OK(zeMemAllocDevice(gpu.context, &device_desc, 4 * MIB, 0, tiles[0], (void **)&p));
    make(0, p, 4 * MIB);
    EXPECT(residency(&gpu, p) == FIRST);
}

static void virtual(void) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 2 * MIB};
    ze_physical_mem_handle_t physical;
    void *p;

    OK(zeVirtualMemReserve(gpu.context, NULL, 2 * MIB, &p));
    OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    OK(zeVirtualMemMap(gpu.context, p, 2 * MIB, physical, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE));
    zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, 2 * MIB);
    reached_the_driver(1);
}

static void imported(void) {
    char *p = on_card(&gpu, 0, 4 * MIB), *opened;
    ze_ipc_mem_handle_t handle;

    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    OK(zeMemOpenIpcHandle(gpu.context, gpu.card[1], handle, 0, (void **)&opened));
    zeContextMakeMemoryResident(gpu.context, gpu.card[0], opened, 4 * MIB);
    reached_the_driver(1);
    OK(zeMemCloseIpcHandle(gpu.context, opened));
}

/* Allocated past every hook: by the loader's own function, found by the C library's own dlsym. */
static void foreign(void) {
    void *real, *symbol;
    void *(*find)(void *, const char *);
    ze_result_t (*allocate)(ze_context_handle_t, const ze_device_mem_alloc_desc_t *, size_t, size_t, ze_device_handle_t,
                            void **);
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    void *loader = dlopen("libze_loader.so.1", RTLD_NOW | RTLD_NOLOAD), *p;

    EXPECT(libc && loader);
    real = dlvsym(libc, "dlsym", "GLIBC_2.34");
    if (!real)
        real = dlvsym(dlopen("libdl.so.2", RTLD_NOW), "dlsym", "GLIBC_2.2.5");
    EXPECT(real);
    memcpy(&find, &real, sizeof find);
    symbol = find(loader, "zeMemAllocDevice");
    EXPECT(symbol);
    memcpy(&allocate, &symbol, sizeof allocate);
    OK(allocate(gpu.context, &device_desc, 4 * MIB, 0, gpu.card[0], &p));
    make(0, p, 4 * MIB);
    make(1, p, 4 * MIB);
    make(1, p, 4 * MIB);
    EXPECT(residency(&gpu, p) == FIRST);
}

static void wrong(void) {
    char *p = on_card(&gpu, 0, 4 * MIB);
    void *nothing = malloc(64);

    EXPECT(zeContextMakeMemoryResident(gpu.context, gpu.card[1], NULL, 64) != ZE_RESULT_SUCCESS);
    zeContextMakeMemoryResident(gpu.context, gpu.card[1], nothing, 64);
    reached_the_driver(2);
    free(nothing);
    OK(zeMemFree(gpu.context, p));
}

static const struct part all[] = {PART(peer),     PART(evict),   PART(tile),  PART(virtual),
                                  PART(imported), PART(foreign), PART(wrong), {NULL, NULL}};

int main(int argc, char **argv) {
    gpu = first_gpu();
    return run_part(all, argc, argv);
}
