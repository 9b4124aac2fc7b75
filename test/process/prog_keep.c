/* What is kept when it is freed, for how long, and what goes back to the driver. */
#include "keep.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>

static void reuse(void) {
    void *p = on_card(&gpu, 0, 3 * MIB);
    uint64_t before = allocs();

    release(p);
    EXPECT(on_card(&gpu, 0, 3 * MIB) == p);
    EXPECT(allocs() == before && frees() == 0);
    release(p);
}

/* Blocking, deferred: a command may still use it. */
static void policies(void) {
    for (uint32_t policy = 1; policy <= 2; policy++) {
        uint64_t before = ext_frees();

        OK(free_with(&gpu, on_card(&gpu, 0, MIB), policy));
        EXPECT(ext_frees() == before + 1);
    }
    uint64_t before = ext_frees() + frees();
    OK(free_with(&gpu, on_card(&gpu, 0, MIB), 0));
    EXPECT(ext_frees() + frees() == before);
    before = ext_frees();
    struct extension unknown = {0x7fff0001, NULL};
    ze_memory_free_ext_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, .pNext = &unknown};
    OK(zeMemFreeExt(gpu.context, &desc, on_card(&gpu, 0, MIB)));
    EXPECT(ext_frees() == before + 1);
    desc = (ze_memory_free_ext_desc_t){.stype = 0x7fff0001};
    zeMemFreeExt(gpu.context, &desc, on_card(&gpu, 0, MIB));
    EXPECT(ext_frees() == before + 2);
}

static void exported(void) {
    void *p = on_card(&gpu, 0, MIB);
    ze_ipc_mem_handle_t handle;

    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    release(p);
    EXPECT(frees() == 1);
    EXPECT(figure(&gpu, "vram.0") == 0);
    /* Also if it was reused before. */
    EXPECT(settled() == settled() && frees() == 1);
    OK(request(gpu.context, &device_desc, gpu.card[0], &p));
    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    release(p);
    EXPECT(frees() == 2);
}

/* A descriptor of the block's memory is one, too. */
static void exported_by_descriptor(void) {
    ze_external_memory_export_fd_t fd = {.stype = ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD,
                                         .flags = ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF};
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES,
                                                    .pNext = &fd};
    void *p = on_card(&gpu, 0, 3 * MIB);

    OK(zeMemGetAllocProperties(gpu.context, p, &properties, NULL));
    close(fd.fd);
    release(p);
    EXPECT(frees() == 1);
}

/* A descriptor with something chained to it that we do not know. */
static void chained(void) {
    struct extension unknown = {0x7fff0001, NULL};
    ze_device_mem_alloc_desc_t desc = device_desc;
    uint64_t before;
    void *p;

    release(on_card(&gpu, 0, MIB));
    before = allocs();
    desc.pNext = &unknown;
    OK(zeMemAllocDevice(gpu.context, &desc, MIB, 0, gpu.card[0], &p));
    EXPECT(allocs() == before + 1);
    release(p);
    EXPECT(frees() == 1);
}

/* The cards hold 64 MiB. */
static void full(void) {
    void *p = on_card(&gpu, 0, 40 * MIB), *q = NULL;

    release(p);
    release(on_card(&gpu, 1, 2 * MIB)); /* of no use to the other card: stays */
    EXPECT(frees() == 0);
    p = on_card(&gpu, 0, 60 * MIB);
    EXPECT(frees() == 1);
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          zeMemAllocDevice(gpu.context, &device_desc, 40 * MIB, 0, gpu.card[0], &q));
    EXPECT(q == NULL);
    q = on_card(&gpu, 1, 40 * MIB);
    release(p);
    release(q);
}

static void context_destroyed(void) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t first = gpu.context;
    void *kept[8], *other;

    other = on_card(&gpu, 0, MIB);
    release(other);
    OK(zeContextCreate(gpu.driver, &desc, &gpu.context));
    for (int i = 0; i < 8; i++)
        kept[i] = on_card(&gpu, (unsigned)i % 2, (size_t)(i + 1) * MIB);
    for (int i = 0; i < 8; i++)
        release(kept[i]);
    EXPECT(frees() == 0);
    OK(zeContextDestroy(gpu.context));
    EXPECT(frees() == 8 && figure(&gpu, "faults") == 0); /* before the context was gone */
    gpu.context = first;
    EXPECT(on_card(&gpu, 0, MIB) == other);
    release(other);
}

/* Blocks that outlive their context: counted once, and gone when they are freed through another one. */
static void orphans(void) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t first = gpu.context;
    size_t asked = 3 * MIB + 5 * KIB, size = 0;
    void *p, *base = NULL;

    OK(zeContextCreate(gpu.driver, &desc, &gpu.context));
    p = on_card(&gpu, 0, asked);
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeContextDestroy(NULL));
    release(p);
    EXPECT(frees() == 0); /* kept: a wrong argument has forgotten nothing */
    EXPECT(on_card(&gpu, 0, asked) == p);
    OK(zeContextDestroy(gpu.context));
    gpu.context = first;
    OK(zeMemGetAddressRange(gpu.context, (char *)p + asked - 1, &base, &size));
    EXPECT(base == p && size == asked);
    EXPECT(ZE_RESULT_SUCCESS != zeMemGetAddressRange(gpu.context, (char *)p + asked, &base, &size));
    printf("after: %x\n", (unsigned)zeMemFree(gpu.context, p));
}

static void say_available(const char *root, const char *kib) {
    char path[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    file = fopen(path, "w");
    EXPECT(file && fprintf(file, "MemTotal: 99999999 kB\nMemAvailable: %s kB\n", kib) > 0 && fclose(file) == 0);
}

/* With a host_floor of 4 GiB: a block at hand is no way around it. */
static void below_the_floor(void) {
    enum { LOOKS_AGAIN = 60 }; /* ms: after so many the next call asks how much there is */
    char root[] = "/tmp/zeroute-floor.XXXXXX", proc[64], meminfo[80];
    void *p = NULL;

    EXPECT(mkdtemp(root) != NULL);
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(meminfo, sizeof meminfo, "%s/meminfo", proc);
    EXPECT(mkdir(proc, 0700) == 0 && setenv("ZEROUTE_ROOT", root, 1) == 0);
    say_available(root, "8388608");
    settled();
    say_available(root, "1048576");
    pause_ms(LOOKS_AGAIN);
    GIVES(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, request(gpu.context, &device_desc, gpu.card[0], &p));
    EXPECT(p == NULL);
    say_available(root, "8388608");
    pause_ms(LOOKS_AGAIN);
    OK(request(gpu.context, &device_desc, gpu.card[0], &p));
    release(p);
    settled();
    EXPECT(unlink(meminfo) == 0 && rmdir(proc) == 0 && rmdir(root) == 0);
}

/* Of everything over 10 MiB it is refused; what is kept makes room first. */
static void limited(void) {
    void *p = on_card(&gpu, 0, 6 * MIB), *q = NULL;
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = 8 * MIB};
    ze_physical_mem_handle_t physical;

    release(p);
    p = on_card(&gpu, 0, 8 * MIB);
    for (int i = 0; i < 3; i++)
        GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
              zeMemAllocDevice(gpu.context, &device_desc, 4 * MIB, 0, gpu.card[0], &q));
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    q = on_card(&gpu, 1, 8 * MIB);
    release(p);
    OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
    OK(zePhysicalMemDestroy(gpu.context, physical));
    p = on_card(&gpu, 0, 9 * MIB + 900 * KIB);
    release(p);
    release(q);
    for (int i = 0; i < 100; i++) {
        p = on_card(&gpu, 0, (size_t)(i % 10 + 1) * MIB - 3 * KIB);
        OK(i % 2 ? free_with(&gpu, p, 1) : zeMemFree(gpu.context, p));
    }
    p = on_card(&gpu, 0, 10 * MIB);
    release(p);
}

static void queried(void) {
    struct usable usable = USABLE;
    ze_device_memory_properties_t memory = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES, .pNext = &usable};
    uint32_t one = 1;

    release(on_card(&gpu, 0, MIB));
    release(on_card(&gpu, 1, MIB));
    usable_memory(gpu.card[0]);
    EXPECT(frees() == 1);
    OK(zeDeviceGetMemoryProperties(gpu.card[1], &one, &memory));
    EXPECT(frees() == 2);
    release(on_card(&gpu, 1, 8 * MIB));
    EXPECT(figure(&gpu, "vram.1") >= 8 * MIB);
    OK(zeDeviceGetMemoryProperties(gpu.card[1], &one, &memory));
    EXPECT(frees() == 3 && usable.bytes == usable_memory(gpu.card[0]));
}

static void nothing_kept(void) {
    for (int i = 0; i < 3; i++)
        release(on_card(&gpu, 0, 3 * MIB + (size_t)i));
    EXPECT(frees() == 3);
    EXPECT(figure(&gpu, "vram.0") == 0);
}

/* With a cache_limit of half of 64 MiB, and with 2 % of 100 GiB. */
static void kept_up_to(size_t most) {
    release(on_card(&gpu, 0, most + most / 4));
    EXPECT(frees() == 1);
    release(on_card(&gpu, 0, most / 4 * 3));
    EXPECT(frees() == 1);
    release(on_card(&gpu, 0, most / 2)); /* not beside the other one */
    EXPECT(frees() == 2);
}

static void half_kept(void) {
    kept_up_to(32 * MIB);
}

/* A tile comes first, and tells of half as much memory. */
static void half_kept_of_all_tiles(void) {
    ze_device_handle_t tile;
    uint32_t one = 1;
    void *p;

    OK(zeDeviceGetSubDevices(gpu.card[0], &one, &tile));
    OK(zeMemAllocDevice(gpu.context, &device_desc, MIB, 0, tile, &p));
    kept_up_to(32 * MIB);
    release(p);
}

static void two_percent_kept(void) {
    kept_up_to(1700 * MIB); /* 2 GiB lie between the two */
}

/* One page at a time is noticed at the next call. */
static void idle(void) {
    void *p = on_card(&gpu, 0, MIB);

    release(p);
    for (int i = 0; i < 200 && frees() == 0; i++) {
        pause_ms(10);
        release(on_card(&gpu, 0, 4 * KIB));
    }
    EXPECT(frees() > 0);
}

static void lasting(void) {
    release(on_card(&gpu, 0, MIB));
    for (int i = 0; i < 5; i++) {
        pause_ms(10);
        release(on_card(&gpu, 0, 4 * KIB));
    }
    EXPECT(frees() == 0);
}

static void host(void) {
    void *p, *q;

    OK(zeMemAllocHost(gpu.context, &host_desc, MIB, 0, &p));
    release(p);
    OK(zeMemAllocHost(gpu.context, &host_desc, MIB, 0, &q));
    EXPECT(p == q && frees() == 0);
    memset(q, 1, MIB);
    release(q);
}

/* How it is cached by the processor is part of what was asked for. */
static void host_flags(void) {
    ze_host_mem_alloc_desc_t combined = host_desc;
    void *p, *q;

    combined.flags = ZE_HOST_MEM_ALLOC_FLAG_BIAS_WRITE_COMBINED;
    OK(zeMemAllocHost(gpu.context, &host_desc, MIB, 0, &p));
    release(p);
    OK(zeMemAllocHost(gpu.context, &combined, MIB, 0, &q));
    EXPECT(p != q && figure(&gpu, "calls.zeMemAllocHost") == 2);
    release(q);
    OK(zeMemAllocHost(gpu.context, &combined, MIB, 0, &p));
    EXPECT(p == q && figure(&gpu, "calls.zeMemAllocHost") == 2);
    release(p);
}

/* With this flag of Intel's own the caller names the memory: none that is kept will do. */
static void host_of_the_caller(void) {
    ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC, .flags = 1u << 30};
    void *p;

    for (unsigned i = 1; i <= 2; i++) {
        OK(zeMemAllocHost(gpu.context, &desc, 2 * MIB, 0, &p));
        release(p);
        EXPECT(frees() == i && figure(&gpu, "calls.zeMemAllocHost") == i);
    }
}

/* As a library through which a SYCL runtime calls would: its program may have freed early. */
static void take_and_release_as_an_adapter(void) {
    void *p, *q;

    p = on_card(&gpu, 0, 3 * MIB);
    OK(zeMemAllocHost(gpu.context, &host_desc, MIB, 0, &q));
    release(p);
    release(q);
}

static void adapter(void) {
    take_and_release_as_an_adapter();
    EXPECT(frees() == 2);
}

static void adapter_vouched(void) {
    take_and_release_as_an_adapter();
    EXPECT(frees() == 0);
}

/* Four threads with up to a quarter of the memory each, on a card, or within a limit, of 64 MiB: nobody is refused. */
static void *take_and_give(void *arg) {
    uint32_t seed = (uint32_t)(uintptr_t)arg;

    for (int i = 0; i < 1000; i++) {
        ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC};
        ze_physical_mem_handle_t physical;

        seed = seed * 1664525 + 1013904223;
        desc.size = (1 + (seed >> 16) % 8) * 2 * MIB;
        if (seed >> 20 & 1) {
            release(on_card(&gpu, 0, desc.size));
        } else {
            OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &physical));
            OK(zePhysicalMemDestroy(gpu.context, physical));
        }
    }
    return NULL;
}

static void shared_out(void) {
    pthread_t thread[4];

    for (uintptr_t i = 0; i < 4; i++)
        EXPECT(pthread_create(&thread[i], NULL, take_and_give, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
}

/* The driver takes long to take back what is cached: whoever needs that memory meanwhile waits for it. */
static void *take_half(void *unused) {
    (void)unused;
    return on_card(&gpu, 0, 32 * MIB);
}

static void given_back_slowly(void) {
    pthread_t other;
    void *half, *others;

    release(on_card(&gpu, 0, 48 * MIB)); /* of 64 MiB: it is cached */
    EXPECT(pthread_create(&other, NULL, take_half, NULL) == 0);
    pause_ms(100); /* the other one is giving it back */
    half = on_card(&gpu, 0, 32 * MIB);
    pthread_join(other, &others);
    release(half);
    release(others);
}

static const struct part all[] = {PART(reuse),
                                  PART(policies),
                                  PART(given_back_slowly),
                                  PART(exported),
                                  PART(exported_by_descriptor),
                                  PART(chained),
                                  PART(full),
                                  PART(context_destroyed),
                                  PART(orphans),
                                  PART(below_the_floor),
                                  PART(limited),
                                  PART(queried),
                                  PART(nothing_kept),
                                  PART(half_kept),
                                  PART(half_kept_of_all_tiles),
                                  PART(two_percent_kept),
                                  PART(idle),
                                  PART(lasting),
                                  PART(host),
                                  PART(host_flags),
                                  PART(host_of_the_caller),
                                  PART(adapter),
                                  PART(adapter_vouched),
                                  PART(shared_out),
                                  {NULL, NULL}};

int main(int argc, char **argv) {
    /* Before anything was called: a library's name is looked up once. */
    if (argc > 1 && strncmp(argv[1], "adapter", 7) == 0)
        program_invocation_short_name = (char *)(uintptr_t) "libur_adapter_level_zero.so.0";
    gpu = first_gpu();
    return run_part(all, argc, argv);
}
