/*
 * entries.def and tables.def agree with the installed Level Zero header, as far as that goes: Debian 12's has API 1.4.
 */
#include "base/base.h"
#include "driver/ze_compat.h"
#include "suite.h"

#include <level_zero/ze_ddi.h>
#include <level_zero/zes_ddi.h>
#include <string.h>

#define ZR_ENTRY(name, table, index, minor, parameters, arguments)                                                     \
    typedef ze_result_t ours_##name parameters;                                                                        \
    enum { place_##name = (index) };
#include "base/entries.def"
#undef ZR_ENTRY

/* Every entry point that API 1.4 has: name, its table, the table's type there, the member. */
#define KNOWN(K)                                                                                                       \
    K(zeMemAllocDevice, Mem, ze_mem_dditable_t, pfnAllocDevice)                                                        \
    K(zeMemAllocHost, Mem, ze_mem_dditable_t, pfnAllocHost)                                                            \
    K(zeMemAllocShared, Mem, ze_mem_dditable_t, pfnAllocShared)                                                        \
    K(zeMemFree, Mem, ze_mem_dditable_t, pfnFree)                                                                      \
    K(zeMemFreeExt, Mem, ze_mem_dditable_t, pfnFreeExt)                                                                \
    K(zeMemGetAllocProperties, Mem, ze_mem_dditable_t, pfnGetAllocProperties)                                          \
    K(zeMemGetAddressRange, Mem, ze_mem_dditable_t, pfnGetAddressRange)                                                \
    K(zeMemGetIpcHandle, Mem, ze_mem_dditable_t, pfnGetIpcHandle)                                                      \
    K(zeMemOpenIpcHandle, Mem, ze_mem_dditable_t, pfnOpenIpcHandle)                                                    \
    K(zeMemCloseIpcHandle, Mem, ze_mem_dditable_t, pfnCloseIpcHandle)                                                  \
    K(zeVirtualMemReserve, VirtualMem, ze_virtual_mem_dditable_t, pfnReserve)                                          \
    K(zeVirtualMemFree, VirtualMem, ze_virtual_mem_dditable_t, pfnFree)                                                \
    K(zeVirtualMemQueryPageSize, VirtualMem, ze_virtual_mem_dditable_t, pfnQueryPageSize)                              \
    K(zeVirtualMemMap, VirtualMem, ze_virtual_mem_dditable_t, pfnMap)                                                  \
    K(zeVirtualMemUnmap, VirtualMem, ze_virtual_mem_dditable_t, pfnUnmap)                                              \
    K(zeVirtualMemSetAccessAttribute, VirtualMem, ze_virtual_mem_dditable_t, pfnSetAccessAttribute)                    \
    K(zeVirtualMemGetAccessAttribute, VirtualMem, ze_virtual_mem_dditable_t, pfnGetAccessAttribute)                    \
    K(zePhysicalMemCreate, PhysicalMem, ze_physical_mem_dditable_t, pfnCreate)                                         \
    K(zePhysicalMemDestroy, PhysicalMem, ze_physical_mem_dditable_t, pfnDestroy)                                       \
    K(zeContextCreate, Context, ze_context_dditable_t, pfnCreate)                                                      \
    K(zeContextCreateEx, Context, ze_context_dditable_t, pfnCreateEx)                                                  \
    K(zeContextDestroy, Context, ze_context_dditable_t, pfnDestroy)                                                    \
    K(zeContextMakeMemoryResident, Context, ze_context_dditable_t, pfnMakeMemoryResident)                              \
    K(zeContextEvictMemory, Context, ze_context_dditable_t, pfnEvictMemory)                                            \
    K(zeDeviceGet, Device, ze_device_dditable_t, pfnGet)                                                               \
    K(zeDeviceGetSubDevices, Device, ze_device_dditable_t, pfnGetSubDevices)                                           \
    K(zeDeviceGetProperties, Device, ze_device_dditable_t, pfnGetProperties)                                           \
    K(zeDeviceGetMemoryProperties, Device, ze_device_dditable_t, pfnGetMemoryProperties)                               \
    K(zeDriverGet, Driver, ze_driver_dditable_t, pfnGet)                                                               \
    K(zeDriverGetExtensionFunctionAddress, Driver, ze_driver_dditable_t, pfnGetExtensionFunctionAddress)               \
    K(zesDeviceEnumMemoryModules, SysmanDevice, zes_device_dditable_t, pfnEnumMemoryModules)                           \
    K(zesMemoryGetState, Memory, zes_memory_dditable_t, pfnGetState)                                                   \
    K(zeImageCreate, Image, ze_image_dditable_t, pfnCreate)                                                            \
    K(zeImageViewCreateExp, ImageExp, ze_image_exp_dditable_t, pfnViewCreateExp)                                       \
    K(zeImageDestroy, Image, ze_image_dditable_t, pfnDestroy)                                                          \
    K(zeModuleCreate, Module, ze_module_dditable_t, pfnCreate)                                                         \
    K(zeModuleDestroy, Module, ze_module_dditable_t, pfnDestroy)                                                       \
    K(zeEventPoolCreate, EventPool, ze_event_pool_dditable_t, pfnCreate)                                               \
    K(zeEventPoolDestroy, EventPool, ze_event_pool_dditable_t, pfnDestroy)                                             \
    K(zeCommandListCreate, CommandList, ze_command_list_dditable_t, pfnCreate)                                         \
    K(zeCommandListCreateImmediate, CommandList, ze_command_list_dditable_t, pfnCreateImmediate)                       \
    K(zeCommandListDestroy, CommandList, ze_command_list_dditable_t, pfnDestroy)                                       \
    K(zeCommandQueueCreate, CommandQueue, ze_command_queue_dditable_t, pfnCreate)                                      \
    K(zeCommandQueueDestroy, CommandQueue, ze_command_queue_dditable_t, pfnDestroy)                                    \
    K(zeInit, Global, ze_global_dditable_t, pfnInit)

/* What came later: declared by us, because the installed header may lack it. */
static const char *const later[] = {
    "zeMemGetIpcHandleWithProperties",
    "zeMemPutIpcHandle",
    "zeMemGetIpcHandleFromFileDescriptorExp",
    "zeMemGetFileDescriptorFromIpcHandleExp",
    "zeImageViewCreateExt",
    "zeInitDrivers",
    "zesInit",
};

START_TEST(our_parameters_are_those_of_the_header) {
#define K(name, table, type, member)                                                                                   \
    ck_assert_msg(__builtin_types_compatible_p(__typeof__(name), ours_##name), "%s differs", #name);
    KNOWN(K)
#undef K
}
END_TEST

/* Slots of a running driver's tables are written from the end of entries.def. */
START_TEST(what_frees_stands_after_what_allocates) {
    ck_assert_int_gt(ZR_E_zeMemFree, ZR_E_zeMemAllocDevice);
    ck_assert_int_gt(ZR_E_zeMemFree, ZR_E_zeMemAllocShared);
    ck_assert_int_gt(ZR_E_zeMemFree, ZR_E_zeMemAllocHost);
    ck_assert_int_gt(ZR_E_zeMemFreeExt, ZR_E_zeMemAllocDevice);
    ck_assert_int_gt(ZR_E_zeMemCloseIpcHandle, ZR_E_zeMemOpenIpcHandle);
    ck_assert_int_gt(ZR_E_zeVirtualMemFree, ZR_E_zeVirtualMemReserve);
    ck_assert_int_gt(ZR_E_zeVirtualMemUnmap, ZR_E_zeVirtualMemMap);
    ck_assert_int_gt(ZR_E_zePhysicalMemDestroy, ZR_E_zePhysicalMemCreate);
    ck_assert_int_gt(ZR_E_zeContextDestroy, ZR_E_zeContextCreate);
}
END_TEST

START_TEST(our_places_are_those_of_the_header) {
#define K(name, table, type, member)                                                                                   \
    ck_assert_msg(offsetof(type, member) == place_##name * sizeof(void *), "%s is elsewhere", #name);
    KNOWN(K)
#undef K
}
END_TEST

START_TEST(every_entry_point_is_in_the_header_or_known_to_be_later) {
    static const char *const all[] = {
#define ZR_ENTRY(name, ...) #name,
#include "base/entries.def"
#undef ZR_ENTRY
    };
    static const char *const known[] = {
#define K(name, table, type, member) #name,
        KNOWN(K)
#undef K
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t found = 0;

        for (size_t j = 0; j < sizeof known / sizeof *known; j++)
            found += strcmp(known[j], all[i]) == 0;
        for (size_t j = 0; j < sizeof later / sizeof *later; j++)
            found += strcmp(later[j], all[i]) == 0;
        ck_assert_msg(found == 1, "%s is checked %zu times", all[i], found);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("tables");
    TCase *t = tcase_create("header");

    tcase_add_test(t, our_parameters_are_those_of_the_header);
    tcase_add_test(t, what_frees_stands_after_what_allocates);
    tcase_add_test(t, our_places_are_those_of_the_header);
    tcase_add_test(t, every_entry_point_is_in_the_header_or_known_to_be_later);
    suite_add_tcase(s, t);
    return run_suite(s);
}
