/* What a worker measures: which cards there are, what an allocation costs, whether free memory is told truly. */
#include "selftest/calls.h"
#include "selftest/selftest.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* SYCL's free_memory asks by this structure. */
enum { USABLE_MEMORY = 0x20041 };
struct usable_memory {
    uint32_t stype;
    void *next;
    uint64_t bytes;
};

static bool open_cards(const struct zr_selftest_program *p, char *why, size_t size) {
    ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
    ze_result_t r;

    if (!zr_level_zero_open(why, size))
        return false;
    if (p->cards && p->cards < zr_calls.device_count)
        zr_calls.device_count = p->cards;
    r = ze.zeContextCreateEx(zr_calls.driver, &desc, zr_calls.device_count, zr_calls.devices, &zr_calls.contexts[0]);
    if (r)
        snprintf(why, size, "zeContextCreateEx: error %#x", (unsigned)r);
    return !r;
}

static uint64_t memory_of(unsigned card) {
    ze_device_memory_properties_t memory[4];
    uint32_t count = COUNT(memory);
    uint64_t bytes = 0;

    memset(memory, 0, sizeof memory);
    for (unsigned i = 0; i < COUNT(memory); i++)
        memory[i].stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
    if (ze.zeDeviceGetMemoryProperties(zr_calls.devices[card], &count, memory) == ZE_RESULT_SUCCESS) {
        for (uint32_t i = 0; i < count; i++)
            bytes += memory[i].totalSize;
    }
    return bytes;
}

/* ZR_ABSENT: not told. */
static uint64_t free_of(unsigned card) {
    struct usable_memory usable = {USABLE_MEMORY, NULL, ZR_ABSENT};
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, .pNext = &usable};

    if (ze.zeDeviceGetProperties(zr_calls.devices[card], &properties) != ZE_RESULT_SUCCESS)
        return ZR_ABSENT;
    return usable.bytes;
}

/* driver VERSION; a line "card PCI-ADDRESS BYTES NAME" for each */
bool zr_selftest_probe(const struct zr_selftest_program *p, char *why, size_t size) {
    ze_driver_properties_t of_driver = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};

    (void)p;
    if (!zr_level_zero_open(why, size))
        return false;
    if (ze.zeDriverGetProperties(zr_calls.driver, &of_driver) == ZE_RESULT_SUCCESS)
        printf("driver %u.%u.%u\n", of_driver.driverVersion >> 24, of_driver.driverVersion >> 16 & 0xff,
               of_driver.driverVersion & 0xffff);
    for (unsigned i = 0; i < zr_calls.device_count; i++) {
        ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
        ze_pci_ext_properties_t pci = {.stype = ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES};
        char address[32] = "-";

        if (ze.zeDevicePciGetPropertiesExt &&
            ze.zeDevicePciGetPropertiesExt(zr_calls.devices[i], &pci) == ZE_RESULT_SUCCESS)
            snprintf(address, sizeof address, "%04x:%02x:%02x.%x", pci.address.domain & 0xffff, pci.address.bus & 0xff,
                     pci.address.device & 0xff, pci.address.function & 0xf);
        ze.zeDeviceGetProperties(zr_calls.devices[i], &properties);
        printf("card %s %" PRIu64 " %.80s\n", address, memory_of(i), properties.name);
    }
    return true;
}

/* cost SIZE NANOSECONDS: the median of rounds of an allocation and its free, on the first card */
bool zr_selftest_cost(const struct zr_selftest_program *p, char *why, size_t size) {
    static const size_t sizes[ZR_COST_SIZES] = {4096, 64 * KIB, 2 * MIB, 20 * MIB};
    enum { ROUNDS = 9, PAIRS = 20, ROUND_NS = 20000000 };
    ze_device_mem_alloc_desc_t d = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};

    if (!open_cards(p, why, size))
        return false;
    for (unsigned s = 0; s < COUNT(sizes); s++) {
        double ns[ROUNDS];
        unsigned rounds = 0;
        uint64_t began = zr_clock_ns();

        if (2 * sizes[s] > p->budget)
            break;
        while (rounds < ROUNDS && (rounds < 3 || zr_clock_ns() - began < 5ull * ROUND_NS)) {
            uint64_t start = zr_clock_ns();

            for (unsigned i = 0; i < PAIRS; i++) {
                void *block = NULL;
                ze_result_t r = ze.zeMemAllocDevice(zr_calls.contexts[0], &d, sizes[s], 0, zr_calls.devices[0], &block);

                if (r || ze.zeMemFree(zr_calls.contexts[0], block)) {
                    snprintf(why, size, "an allocation of %zu bytes: error %#x", sizes[s], (unsigned)r);
                    return false;
                }
            }
            double one = (double)(zr_clock_ns() - start) / PAIRS;
            unsigned at = rounds++;
            for (; at && ns[at - 1] > one; at--)
                ns[at] = ns[at - 1];
            ns[at] = one;
        }
        printf("cost %zu %.0f\n", sizes[s], ns[rounds / 2]);
    }
    return true;
}

/* free CARD TOTAL BEFORE ALLOCATED AFTER: what is told to be free, and once more with memory in use */
bool zr_selftest_free(const struct zr_selftest_program *p, char *why, size_t size) {
    ze_device_mem_alloc_desc_t d = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    size_t bytes = p->budget < 256 * MIB ? p->budget / 2 : 128 * MIB;

    if (!open_cards(p, why, size))
        return false;
    for (unsigned i = 0; i < zr_calls.device_count; i++) {
        uint64_t before = free_of(i), after;
        void *block = NULL;
        ze_result_t r = ze.zeMemAllocDevice(zr_calls.contexts[0], &d, bytes, 0, zr_calls.devices[i], &block);

        if (!r)
            r = ze.zeContextMakeMemoryResident(zr_calls.contexts[0], zr_calls.devices[i], block, bytes);
        if (r) {
            snprintf(why, size, "an allocation of %zu bytes: error %#x", bytes, (unsigned)r);
            return false;
        }
        after = free_of(i);
        printf("free %u %" PRIu64 " %" PRIu64 " %zu %" PRIu64 "\n", i, memory_of(i), before, bytes, after);
        ze.zeMemFree(zr_calls.contexts[0], block);
    }
    return true;
}

/*
 * beyond GIVEN SIZE CODE USE: blocks on the first card until one is refused or until it holds its size and the budget;
 * the code of the refusal, and that of a command afterwards. It stops where a quarter of the host's memory is left.
 */
bool zr_selftest_beyond(const struct zr_selftest_program *p, char *why, size_t size) {
    ze_device_mem_alloc_desc_t d = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    static char page[4096];
    ze_command_list_handle_t list = NULL;
    void *block = NULL, *first = NULL;
    uint64_t given = 0, whole, step;
    ze_result_t r, use = ZE_RESULT_SUCCESS;
    struct zr_meminfo now;

    if (!open_cards(p, why, size))
        return false;
    r = zr_level_zero_list(zr_calls.contexts[0], zr_calls.devices[0], ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS, &list);
    whole = memory_of(0);
    step = p->budget < whole / 32 ? p->budget : whole / 32;
    while (!r && given + step <= whole + p->budget) {
        if (!zr_meminfo_read(&now) || now.available == ZR_ABSENT || now.available < now.total / 4 + step) {
            snprintf(why, size, "too little host memory is left after %" PRIu64 " MiB", (uint64_t)(given / MIB));
            return false;
        }
        r = ze.zeMemAllocDevice(zr_calls.contexts[0], &d, step, 0, zr_calls.devices[0], &block);
        if (!r)
            r = ze.zeContextMakeMemoryResident(zr_calls.contexts[0], zr_calls.devices[0], block, step);
        given += r ? 0 : step;
        first = first ? first : block;
    }
    /* A card that was over-committed may be lost at the next command. */
    if (first)
        use = ze.zeCommandListAppendMemoryCopy(list, first, page, sizeof page, NULL, 0, NULL);
    printf("beyond %" PRIu64 " %" PRIu64 " %#x %#x\n", given, whole, (unsigned)r, (unsigned)use);
    fflush(stdout);
    _exit(0); /* its end frees faster than it could */
}
