/*
 * What an export costs the host, and where a reader sees it (four cards).
 * Usage: sim_mirror yes|no - is a mirror expected?
 */
#include "sim.h"

static struct gpu gpu;
static bool mirrored;

static long resident_kib(void) {
    long size, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT(file && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void expect_mirror(size_t bytes) {
    uint64_t wanted = mirrored ? bytes : 0;
    EXPECT(figure(&gpu, "mirror") == wanted);
    int64_t active = gpu_active();
    EXPECT(active == (int64_t)wanted || (active == -1 && !mirrored)); /* -1: an older kernel */
}

static void one_card_has_none(void) {
    char *p = on_card(&gpu, 0, 32 * MIB);
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, 32 * MIB));
    expect_mirror(0);
    EXPECT(in_fdinfo(1, "drm-total-gtt") == 0);
    OK(zeMemFree(gpu.context, p));
}

static void a_peer_costs_real_pages_once(void) {
    char *p = on_card(&gpu, 0, 64 * MIB);
    long before = resident_kib();
    EXPECT(residency(&gpu, p) == 1);
    for (unsigned card = 0; card < 4; card++)
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[card], p, 64 * MIB));
    expect_mirror(64 * MIB);
    if (mirrored)
        EXPECT(resident_kib() - before >= 64 * 1024);
    EXPECT(in_fdinfo(0, "drm-total-gtt") == 0); /* charged to those who import it, each */
    for (unsigned card = 1; card < 4; card++)
        EXPECT(in_fdinfo(card, "drm-total-gtt") == (int64_t)(64 * MIB));
    EXPECT(residency(&gpu, p) == 15);
    OK(zeContextEvictMemory(gpu.context, gpu.card[1], p, 64 * MIB));
    EXPECT(residency(&gpu, p) == 13);
    expect_mirror(64 * MIB);
    OK(zeMemFree(gpu.context, p));
    expect_mirror(0);
    for (unsigned card = 0; card < 4; card++)
        EXPECT(in_fdinfo(card, "drm-total-gtt") == 0);
}

static void a_handle_is_an_export(void) {
    char *p = on_card(&gpu, 0, 8 * MIB), *small = on_card(&gpu, 0, 100);
    ze_ipc_mem_handle_t handle;
    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    OK(zeMemGetIpcHandle(gpu.context, p, &handle));
    expect_mirror(8 * MIB);
    OK(zeMemGetIpcHandle(gpu.context, small, &handle));
    expect_mirror(10 * MIB); /* the whole slab */
    OK(zeMemFree(gpu.context, p));
    OK(zeMemFree(gpu.context, small));
}

/* However busy the machine is: nobody is waited for. */
static void who_exports_has_figures_that_agree(void) {
    char *p[3];
    ze_ipc_mem_handle_t handle;
    for (int64_t i = 0; i < 3; i++) {
        p[i] = on_card(&gpu, 0, 4 * MIB);
        OK(zeContextMakeMemoryResident(gpu.context, gpu.card[1], p[i], 4 * MIB));
        EXPECT(in_fdinfo(0, "drm-total-vram0") == (i + 1) * (int64_t)(4 * MIB));
    }
    for (int64_t i = 3; i--;)
        OK(zeMemFree(gpu.context, p[i]));
    p[0] = on_card(&gpu, 0, 4 * MIB);
    OK(zeMemGetIpcHandle(gpu.context, p[0], &handle));
    if (mirrored)
        EXPECT(in_fdinfo(0, "drm-total-vram0") == (int64_t)(4 * MIB));
    OK(zeMemFree(gpu.context, p[0]));
}

static void a_copy_by_a_peer_is_an_export(void) {
    ze_command_list_handle_t own = immediate(&gpu, 0, true), peer = immediate(&gpu, 1, true);
    char *from = on_card(&gpu, 0, 4 * MIB), *to = on_card(&gpu, 1, 4 * MIB);
    uint64_t before = figure(&gpu, "mirror");
    OK(zeCommandListAppendMemoryFill(own, from, "c", 1, 4 * MIB, NULL, 0, NULL));
    EXPECT(figure(&gpu, "mirror") == before);
    OK(zeCommandListAppendMemoryCopy(peer, to, from, 4 * MIB, NULL, 0, NULL));
    EXPECT(figure(&gpu, "mirror") == before + (mirrored ? 4 * MIB : 0));
    EXPECT(in_fdinfo(1, "drm-total-gtt") == (int64_t)(4 * MIB));
    EXPECT(memcmp(from, to, 4 * MIB) == 0);
    OK(zeMemFree(gpu.context, from));
    OK(zeMemFree(gpu.context, to));
    OK(zeCommandListDestroy(own));
    OK(zeCommandListDestroy(peer));
}

int main(int argc, char **argv) {
    gpu = first_gpu();
    mirrored = argc > 1 && strcmp(argv[1], "yes") == 0;
    EXPECT(gpu.cards == 4);
    one_card_has_none();
    a_peer_costs_real_pages_once();
    who_exports_has_figures_that_agree();
    a_handle_is_an_export();
    a_copy_by_a_peer_is_an_export();
    EXPECT(in_fdinfo(0, "drm-client-id") > 0);
    return 0;
}
