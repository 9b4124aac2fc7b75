/* What a process is told of blocks that are alive or kept, and of calls that are wrong. */
#include "keep.h"

static size_t range(const char *p, void **base) {
    size_t size = 0;

    *base = NULL;
    return zeMemGetAddressRange(gpu.context, p, base, &size) == ZE_RESULT_SUCCESS ? size : 0;
}

static ze_memory_type_t type_of(const void *p) {
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    ze_device_handle_t device = NULL;

    if (zeMemGetAllocProperties(gpu.context, p, &properties, &device) != ZE_RESULT_SUCCESS)
        return ZE_MEMORY_TYPE_UNKNOWN;
    return properties.type;
}

/* Of a size that no class has: what lies behind it is nobody's. */
static void questions(void) {
    size_t size = 3 * MIB + 5 * KIB;
    char *p = on_card(&gpu, 0, size);
    ze_ipc_mem_handle_t handle;
    void *base;

    EXPECT(range(p, &base) == size && base == p);
    EXPECT(range(p + size / 2, &base) == size && base == p);
    EXPECT(range(p + size - 1, &base) == size && base == p);
    EXPECT(range(p + size, &base) == 0);
    EXPECT(type_of(p + size - 1) == ZE_MEMORY_TYPE_DEVICE);
    EXPECT(type_of(p + size) == ZE_MEMORY_TYPE_UNKNOWN);
    EXPECT(zeMemGetIpcHandle(gpu.context, p + size, &handle) != ZE_RESULT_SUCCESS);
    release(p);
    EXPECT(frees() == 0);
    EXPECT(range(p, &base) == 0 && range(p + 5, &base) == 0);
    EXPECT(type_of(p) == ZE_MEMORY_TYPE_UNKNOWN);
    EXPECT(zeMemGetIpcHandle(gpu.context, p, &handle) != ZE_RESULT_SUCCESS);
}

/* A block that is kept is resident where it was before. */
static void residency_of_free_blocks(void) {
    size_t size = 3 * MIB + 5 * KIB;
    char *p = on_card(&gpu, 0, size);

    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeContextMakeMemoryResident(gpu.context, gpu.card[1], p + size, 1));
    OK(zeContextMakeMemoryResident(gpu.context, gpu.card[0], p, size));
    release(p);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeContextMakeMemoryResident(gpu.context, gpu.card[1], p, size));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeContextEvictMemory(gpu.context, gpu.card[0], p + 5, size));
    EXPECT(residency(&gpu, p) == 1);
}

static void misuse(void) {
    char *p = on_card(&gpu, 0, MIB);
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_context_handle_t other;
    int local;

    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p + 64));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, &local));
    release(p);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p + 64));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, free_with(&gpu, p, 1));
    EXPECT(frees() == 0);
    OK(zeContextCreate(gpu.driver, &desc, &other));
    OK(zeMemFree(other, on_card(&gpu, 0, MIB)));
    EXPECT(frees() == 1); /* through another context: the driver answers */
}

/* Intel's driver frees by zeMemCloseIpcHandle whatever it is given. */
static void closed(void) {
    size_t size = 3 * MIB + 5 * KIB;
    char *p = on_card(&gpu, 0, size);

    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemCloseIpcHandle(gpu.context, p + 64));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemCloseIpcHandle(gpu.context, p + size));
    EXPECT(type_of(p) == ZE_MEMORY_TYPE_DEVICE);
    release(p);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemCloseIpcHandle(gpu.context, p));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemCloseIpcHandle(gpu.context, p + 64));
    EXPECT(on_card(&gpu, 0, size) == p);
    EXPECT(type_of(p) == ZE_MEMORY_TYPE_DEVICE);
    p[size - 1] = 1;
    OK(zeMemCloseIpcHandle(gpu.context, p));
    EXPECT(figure(&gpu, "vram.0") == 0);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, p));
}

/* Each as the bare driver answers, with blocks kept that would fit. */
static void wrong_arguments(void) {
    ze_device_handle_t card = gpu.card[0];
    void *p = on_card(&gpu, 0, MIB), *out = &gpu;

    release(p);
    OK(zeMemAllocDevice(gpu.context, &device_desc, MIB, 1, card, &p)); /* would do for an alignment of 3 */
    release(p);
    p = on_card(&gpu, 0, 2 * MIB);
    for (int round = 0; round < 2; round++) {
        unsigned n = 0, code[12];
        uint64_t before = allocs(), given_back = frees();

        code[n++] = zeMemAllocDevice(gpu.context, &device_desc, 0, 0, card, &out);
        EXPECT(out == NULL);
        out = &gpu;
        code[n++] = zeMemAllocDevice(gpu.context, &device_desc, MIB, 3, card, &out);
        code[n++] = zeMemAllocDevice(gpu.context, NULL, MIB, 0, card, &out);
        code[n++] = zeMemAllocDevice(gpu.context, &device_desc, MIB, 0, card, NULL);
        code[n++] = zeMemAllocDevice(gpu.context, &device_desc, MIB, 0, NULL, &out);
        for (unsigned i = 0; i < n; i++) {
            printf("%x ", code[i]);
            EXPECT(code[i] != 0);
        }
        EXPECT(out == &gpu);
        EXPECT(allocs() >= before + n);
        code[0] = zeMemGetAddressRange(NULL, p, &out, NULL);
        printf("%x ", code[0]);
        EXPECT(code[0] != 0 && out == &gpu);
        code[0] = zeMemFreeExt(gpu.context, NULL, p);
        code[1] = zeMemFree(gpu.context, NULL);
        code[2] = zeMemFree(NULL, p);
        printf("%x %x %x\n", code[0], code[1], code[2]);
        EXPECT(ext_frees() == 1u + (unsigned)round && code[0] != 0 && code[1] != 0 && code[2] != 0);
        EXPECT(frees() == given_back + 2);
    }
    release(p); /* is still whole */
    EXPECT(on_card(&gpu, 0, 2 * MIB) == p);
}

/* As the driver answers it, down to what it leaves in the pointer. */
static void refusals(void) {
    ze_relaxed_allocation_limits_exp_desc_t nothing = {.stype = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC};
    ze_device_mem_alloc_desc_t relaxed = device_desc;
    void *out = &gpu;

    relaxed.pNext = &nothing;
    release(on_card(&gpu, 0, MIB)); /* would fit */
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemAllocDevice(gpu.context, &relaxed, MIB, 0, gpu.card[0], &out));
    on_card(&gpu, 1, 60 * MIB);
    GIVES(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
          zeMemAllocDevice(gpu.context, &device_desc, 8 * MIB, 0, gpu.card[1], &out));
    EXPECT(out == &gpu);
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE,
          zeMemAllocDevice(gpu.context, &device_desc, SIZE_MAX, 0, gpu.card[0], &out));
    EXPECT(out == NULL);
}

static const struct part all[] = {PART(questions), PART(residency_of_free_blocks), PART(misuse),
                                  PART(closed),    PART(wrong_arguments),          PART(refusals),
                                  {NULL, NULL}};

int main(int argc, char **argv) {
    gpu = first_gpu();
    return run_part(all, argc, argv);
}
