/* Reserve, create, map, use, unmap: as PyTorch's expandable segments do. */
#include "sim.h"

#define ADDRESS_NOT_FOUND 0x78000021

static struct gpu gpu;

static ze_physical_mem_handle_t physical(size_t size) {
    ze_physical_mem_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, .size = size};
    ze_physical_mem_handle_t memory;
    OK(zePhysicalMemCreate(gpu.context, gpu.card[0], &desc, &memory));
    return memory;
}

int main(void) {
    const ze_memory_access_attribute_t rw = ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE;
    size_t page, length;
    char *base, back[64];
    void *found, *ignored;
    gpu = first_gpu();
    OK(zeVirtualMemQueryPageSize(gpu.context, gpu.card[0], 4096, &page));
    EXPECT(page == 64 * KIB);
    OK(zeVirtualMemQueryPageSize(gpu.context, gpu.card[0], 20 * MIB, &page));
    EXPECT(page == 2 * MIB);

    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, zeVirtualMemReserve(gpu.context, NULL, 1000, &ignored));
    OK(zeVirtualMemReserve(gpu.context, NULL, GIB, (void **)&base));
    EXPECT((uintptr_t)base % (2 * MIB) == 0);
    GIVES(ADDRESS_NOT_FOUND, zeMemGetAddressRange(gpu.context, base, &found, &length));

    ze_physical_mem_handle_t first = physical(2 * MIB), second = physical(20 * MIB);
    EXPECT(figure(&gpu, "vram.0") == 22 * MIB);
    OK(zeVirtualMemMap(gpu.context, base, 2 * MIB, first, 0, rw));
    OK(zeVirtualMemMap(gpu.context, base + 2 * MIB, 20 * MIB, second, 0, rw));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeVirtualMemMap(gpu.context, base, 2 * MIB, first, 0, rw));
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT, zeVirtualMemMap(gpu.context, base + 4096, 2 * MIB, first, 0, rw));
    GIVES(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, zeVirtualMemMap(gpu.context, base, 1000, first, 0, rw));

    ze_command_list_handle_t list = immediate(&gpu, 0, true);
    OK(zeCommandListAppendMemoryFill(list, base, "v", 1, 22 * MIB, NULL, 0, NULL));
    OK(zeCommandListAppendMemoryCopy(list, back, base + 2 * MIB - 32, 64, NULL, 0, NULL));
    for (int i = 0; i < 64; i++)
        EXPECT(back[i] == 'v');

    ze_device_handle_t owner;
    ze_memory_allocation_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES};
    OK(zeMemGetAllocProperties(gpu.context, base + 3 * MIB, &properties, &owner));
    EXPECT(properties.type == ZE_MEMORY_TYPE_DEVICE && owner == gpu.card[0]);
    OK(zeMemGetAddressRange(gpu.context, base + 3 * MIB, &found, &length));
    EXPECT(found == base + 2 * MIB && length == 20 * MIB);
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeMemFree(gpu.context, base));

    ze_memory_access_attribute_t access;
    OK(zeVirtualMemGetAccessAttribute(gpu.context, base, 2 * MIB, &access, &length));
    EXPECT(access == rw && length == GIB);
    OK(zeVirtualMemSetAccessAttribute(gpu.context, base, 2 * MIB, ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY));
    OK(zeVirtualMemGetAccessAttribute(gpu.context, base, 2 * MIB, &access, &length));
    EXPECT(access == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY && base[0] == 'v');

    OK(zeVirtualMemUnmap(gpu.context, base, 2 * MIB));
    GIVES(ADDRESS_NOT_FOUND, zeMemGetAddressRange(gpu.context, base, &found, &length));
    OK(zePhysicalMemDestroy(gpu.context, first));
    EXPECT(figure(&gpu, "vram.0") == 20 * MIB);
    OK(zeVirtualMemUnmap(gpu.context, base + 2 * MIB, 20 * MIB));
    OK(zeVirtualMemMap(gpu.context, base, 20 * MIB, second, 0, rw)); /* keeps its bytes */
    EXPECT(base[20 * MIB - 1] == 'v');
    OK(zeVirtualMemUnmap(gpu.context, base, 20 * MIB));
    OK(zePhysicalMemDestroy(gpu.context, second));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeVirtualMemFree(gpu.context, base, MIB));
    OK(zeVirtualMemFree(gpu.context, base, GIB));
    GIVES(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeVirtualMemFree(gpu.context, base, GIB));
    EXPECT(figure(&gpu, "vram.0") == 0);
    OK(zeCommandListDestroy(list));
    return 0;
}
