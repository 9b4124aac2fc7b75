/* Every answer of the memory calls that the real driver is known for. */
#include "sim.h"

#define ADDRESS_NOT_FOUND 0x78000021

static struct gpu gpu;

static ze_memory_allocation_properties_t properties_of(const void *p, ze_device_handle_t *device) {
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    OK(zeMemGetAllocProperties(gpu.context, p, &properties, device));
    return properties;
}

static void expect_range(char *p, size_t size) {
    char *inside[] = {p, p + size / 2, p + size - 1};
    for (int i = 0; i < 3; i++) {
        void *base = NULL;
        size_t length = 0;
        OK(zeMemGetAddressRange(gpu.context, inside[i], &base, &length));
        EXPECT(base == p && length == size);
        ze_device_handle_t device = NULL;
        EXPECT(properties_of(inside[i], &device).type == ZE_MEMORY_TYPE_DEVICE);
        EXPECT(device == gpu.card[0]);
    }
}

static void sizes_and_alignments(void) {
    void *p = &p;
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, zeMemAllocDevice(gpu.context, &device_desc, 0, 0, gpu.card[0], &p));
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
          zeMemAllocDevice(gpu.context, &device_desc, (size_t)1 << 46, 0, gpu.card[0], &p));
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, zeMemAllocHost(gpu.context, &host_desc, 0, 0, &p));
    EXPECT(p == NULL);
    p = &p;
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, zeMemAllocDevice(gpu.context, &device_desc, 64, 3, gpu.card[0], &p));
    EXPECT(p == &p);
    for (size_t alignment = 1; alignment <= GIB; alignment *= 2) {
        for (size_t size = 1; size <= 4 * MIB; size *= 64) {
            OK(zeMemAllocDevice(gpu.context, &device_desc, size, alignment, gpu.card[0], &p));
            EXPECT((uintptr_t)p % alignment == 0);
            OK(zeMemFree(gpu.context, p));
        }
    }
    for (size_t size = 1; size <= 64 * MIB; size *= 2) {
        char *q = on_card(&gpu, 0, size);
        EXPECT((uintptr_t)q % (size > MIB ? 64 * KIB : 512) == 0);
        q[0] = q[size - 1] = 7;
        expect_range(q, size);
        OK(zeMemFree(gpu.context, q));
    }
}

static void null_arguments(void) {
    void *p;
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeMemAllocDevice(NULL, &device_desc, 64, 0, gpu.card[0], &p));
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeMemAllocDevice(gpu.context, &device_desc, 64, 0, NULL, &p));
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zeMemAllocDevice(gpu.context, NULL, 64, 0, gpu.card[0], &p));
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zeMemAllocDevice(gpu.context, &device_desc, 64, 0, gpu.card[0], NULL));
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zeMemAllocHost(gpu.context, NULL, 64, 0, &p));
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_HANDLE, zeMemFree(NULL, &p));
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zeMemFreeExt(gpu.context, NULL, &p));
    GIVES(ZE_RESULT_ERROR_INVALID_NULL_POINTER, zeContextMakeMemoryResident(gpu.context, gpu.card[0], NULL, 1));
}

static void kinds(void) {
    void *host, *shared, *device = on_card(&gpu, 0, 100);
    ze_device_handle_t owner = NULL;
    OK(zeMemAllocHost(gpu.context, &host_desc, 100, 0, &host));
    OK(zeMemAllocShared(gpu.context, &device_desc, &host_desc, 100, 0, gpu.card[0], &shared));
    EXPECT(properties_of(device, NULL).type == ZE_MEMORY_TYPE_DEVICE);
    EXPECT(properties_of(host, &owner).type == ZE_MEMORY_TYPE_HOST && owner == NULL);
    EXPECT(properties_of(shared, &owner).type == ZE_MEMORY_TYPE_SHARED && owner == gpu.card[0]);
    EXPECT(properties_of(device, NULL).pageSize == 64 * KIB);
    EXPECT((uintptr_t)shared % (64 * KIB) == 0); /* shared memory is not pooled */
    memset(host, 1, 100);
    memset(shared, 2, 100);
    OK(zeMemFree(gpu.context, host));
    OK(zeMemFree(gpu.context, shared));
    OK(zeMemFree(gpu.context, device));
    EXPECT(properties_of(&gpu, &owner).type == ZE_MEMORY_TYPE_UNKNOWN && owner == NULL);
}

static void ids(void) {
    void *a = on_card(&gpu, 0, 512), *b = on_card(&gpu, 0, 512), *large = on_card(&gpu, 0, 4 * MIB);
    EXPECT(properties_of(a, NULL).id == properties_of(b, NULL).id);
    EXPECT(properties_of(a, NULL).id != properties_of(large, NULL).id);
    OK(zeMemFree(gpu.context, a));
    OK(zeMemFree(gpu.context, b));
    OK(zeMemFree(gpu.context, large));
}

static void frees(void) {
    void *base;
    size_t size;
    for (size_t bytes = 4096; bytes <= 4 * MIB; bytes *= 1024) {
        char *p = on_card(&gpu, 0, bytes);
        GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p + 64));
        OK(zeMemFree(gpu.context, p));
        GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p));
        GIVES(ADDRESS_NOT_FOUND, zeMemGetAddressRange(gpu.context, p, &base, &size));
        EXPECT(properties_of(p, NULL).type == ZE_MEMORY_TYPE_UNKNOWN);
        GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, bytes));
    }
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, NULL));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, &gpu));
    for (unsigned policy = 0; policy < 4; policy++)
        OK(free_with(&gpu, on_card(&gpu, 0, 4096), policy));
}

static void contexts(void) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t other;
    void *kept;
    OK(zeContextCreateEx(gpu.driver, &desc, 1, gpu.card, &other));
    OK(zeMemFree(other, on_card(&gpu, 0, 4096)));
    OK(zeMemAllocDevice(other, &device_desc, 4096, 0, gpu.card[0], &kept));
    OK(zeContextDestroy(other));
    memset(kept, 5, 4096);
    OK(zeMemFree(gpu.context, kept));
}

int main(void) {
    gpu = first_gpu();
    sizes_and_alignments();
    null_arguments();
    kinds();
    ids();
    frees();
    contexts();
    OK(zeContextDestroy(gpu.context));
    return 0;
}
